"""The house: imports point down, light commands stay light, nothing of this machine is named."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from scripts.checks import house_figures
from scripts.checks.house_figures import nodes_of

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "focus_eval"
# A room may import itself, the rooms below it, and nothing else.
ROOMS = {
    "core": set(),
    "keyframes": {"core"},
    "bench": {"core", "keyframes"},
    "lab": {"core", "keyframes", "bench"},
    "external": {"core", "keyframes", "bench"},
    "cli": {"core", "keyframes", "bench", "lab", "external"},
    "__main__": {"cli"},
}
# Packages within a room; an import goes to the same rank or down.
RANKS = {
    "keyframes.rows": 0, "keyframes.samplers": 0, "keyframes.video": 0, "keyframes.subtitles": 0,
    "keyframes.encoders": 1, "keyframes.llms": 2, "keyframes.pipeline": 3, "keyframes": 4, "keyframes.commands": 5,
    "bench.benchmarks": 0, "bench.rows": 0, "bench.demo": 0, "bench.report": 1, "bench.answering": 2, "bench.lmms": 3,
    "bench.matrix": 4, "bench.commands": 5, "bench": 6,
    "lab": 0, "lab.commands": 1,
    "external.imports": 0, "external": 1, "external.commands": 2,
}  # fmt: skip
HEAVY = {
    "torch", "torchvision", "transformers", "timm", "av", "decord", "torchcodec", "ray", "lmms_eval", "pandas",
    "pyarrow", "matplotlib", "scipy", "statsmodels", "pydantic", "PIL", "jinja2", "openvino", "open_clip",
}  # fmt: skip


def modules():
    return sorted(PACKAGE.rglob("*.py"))


def parsed(text: str) -> ast.Module:
    """Return the tree of a source text, which is parsed once, however many tests look at it."""
    return nodes_of(text)[0]


def shown(path: Path) -> str:
    return str(path.relative_to(ROOT))


def imported_names(node: ast.AST) -> list[str]:
    """Return the modules that an import statement names; none for any other node."""
    if isinstance(node, ast.ImportFrom):
        return [node.module or ""]
    return [alias.name for alias in node.names] if isinstance(node, ast.Import) else []


def room_of(path: Path) -> str:
    """Return the room or root module below focus_eval that a file belongs to; "" for focus_eval/__init__.py."""
    relative = path.relative_to(PACKAGE)
    return relative.parts[0] if len(relative.parts) > 1 else relative.stem.replace("__init__", "")


def package_of(path: Path) -> str:
    """Return a room and its package, e.g. "bench.report"; the room alone for a file that lies in it directly."""
    return ".".join(path.relative_to(PACKAGE).parts[:-1][:2])


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in modules()}


@cache
def own_imports(path: Path) -> frozenset[str]:
    """Modules of focus_eval that a file imports anywhere: inside functions and for type checking included."""
    imported_modules = set()
    for node in nodes_of(path.read_text()):
        if isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: relative import"
            base = node.module or ""
            imported_modules |= {
                f"{base}.{alias.name}" if f"{base}.{alias.name}" in MODULES else base for alias in node.names
            }
        elif isinstance(node, ast.Import):
            imported_modules |= {alias.name for alias in node.names}
    return frozenset(name for name in imported_modules & MODULES.keys() if name != module_name(path))


def circles(arrows):
    """Return the sets of nodes that import one another, each as a sorted list."""
    reached = {node: set(targets) for node, targets in arrows.items()}
    grown = True
    while grown:
        grown = False
        for targets in reached.values():
            further = set().union(*(reached.get(target, ()) for target in targets)) - targets
            targets |= further
            grown = grown or bool(further)
    mutual = {
        frozenset({node} | {t for t in targets if node in reached.get(t, ())}) for node, targets in reached.items()
    }
    return sorted(sorted(nodes) for nodes in mutual if len(nodes) > 1)


def test_imports_point_down():
    wrong = []
    for path in modules():
        room, package = room_of(path), package_of(path)
        for name in own_imports(path) if room else ():  # focus_eval/__init__.py shows what a user imports
            target = MODULES[name]
            target_room = room_of(target)
            is_down = target_room in ROOMS[room] if target_room != room else True
            if target_room == room and package in RANKS:
                is_down = RANKS[package_of(target)] <= RANKS[package]
            if not is_down:
                wrong.append(f"{shown(path)} ({package or room}) imports {name}")
    assert not wrong, "\n".join(wrong)


def test_the_package_imports_nothing_of_this_repository_but_itself():
    folder_names = {path.name for path in ROOT.iterdir() if path.is_dir()} - {"focus_eval"}
    wrong = [
        f"{shown(path)} imports {name}"
        for path in modules()
        for node in nodes_of(path.read_text())
        for name in imported_names(node)
        if name.split(".")[0] in folder_names & {"tests", "scripts"}
    ]
    assert not wrong, "\n".join(wrong)


def test_rows_are_built_in_one_place():
    building = re.compile(r"(?<!class )\b(SelectionRow|AnswerRow)\(")
    assert [path.name for path in modules() if building.search(path.read_text())] == ["records.py"]


def test_every_file_lies_in_a_room():
    assert {room_of(path) for path in modules()} - {""} <= ROOMS.keys()
    packages = {package_of(path) for path in modules()}
    assert {package for package in packages if package.partition(".")[0] in ROOMS} - {"core"} <= RANKS.keys()


def test_no_modules_import_one_another():
    assert circles({name: own_imports(path) for name, path in MODULES.items()}) == []


def test_no_packages_import_one_another():
    arrows: dict[str, set[str]] = {}
    for path in modules():
        package = str(path.parent.relative_to(PACKAGE)) if path.parent != PACKAGE else path.stem
        for name in own_imports(path):
            target = MODULES[name]
            target_package = str(target.parent.relative_to(PACKAGE)) if target.parent != PACKAGE else target.stem
            if target_package != package:
                arrows.setdefault(package, set()).add(target_package)
    assert circles(arrows) == []


def test_a_circle_is_found():
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [["a", "b", "c"]]
    assert circles({"a": {"b"}, "b": {"c"}}) == []


HELP = """
import sys
sys.argv = ["focus-eval", "--help"]
import focus_eval.cli
try:
    focus_eval.cli.main()
except SystemExit:
    pass
"""


def test_the_core_knows_numpy_and_nothing_else():
    allowed = {"numpy", "focus_eval", *sys.stdlib_module_names}
    wrong = [
        f"{shown(path)} imports {name}"
        for path in modules()
        if package_of(path) in ("core", "keyframes.samplers")
        for node in parsed(path.read_text()).body  # a function may import an extra of its own
        for name in imported_names(node)
        if name.split(".")[0] not in allowed
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("code", ["import focus_eval", HELP], ids=["import", "help"])
def test_import_and_help_load_nothing_heavy(code):
    script = f"{code}\nimport sys\nprint('LOADED', *sorted({{m.split('.')[0] for m in sys.modules}}))"
    process = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = set(process.stdout.rsplit("LOADED", 1)[1].split())
    assert not loaded & HEAVY


def tracked_files():
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in listed.stdout.splitlines()]


def test_no_file_names_a_machine_path_or_a_registry():
    # Written so that this file does not match itself.
    patterns = ["/wo" + "rk/", "py" + "pi.org", "pythonhos" + "ted", "registry.npm" + "js", "deb.deb" + "ian.org"]
    texts = {
        path: path.read_text(encoding="utf-8", errors="replace")
        for path in tracked_files()
        if path.is_file() and path.suffix not in (".png", ".parquet", ".mp4", ".pdf")
    }
    wrong = [f"{shown(path)} names {found}" for path, text in texts.items() for found in patterns if found in text]
    assert not wrong, "\n".join(wrong)


def test_every_file_says_what_it_is_for():
    first = {path: (ast.get_docstring(parsed(path.read_text())) or "").partition("\n")[0] for path in modules()}
    wrong = [f"{shown(path)}: {line!r}" for path, line in first.items() if not re.match(r"\S.*[.?:)]$", line)]
    assert not wrong, "\n".join(wrong)


def test_no_function_is_longer_than_sixty_lines():
    wrong = [
        f"{shown(path)}:{node.lineno} {node.name} has {node.end_lineno - node.lineno + 1} lines"
        for path in modules()
        for node in nodes_of(path.read_text())
        if isinstance(node, ast.FunctionDef) and node.end_lineno - node.lineno >= 60
    ]
    assert not wrong, "\n".join(wrong)


def test_a_fact_or_an_identity_stands_in_one_place():
    places = {
        "names of buckets": (r'[(\[{]"short", "medium"', {"bench/benchmarks/question.py"}),
        "recall distances": (
            r"\(1(\.0)?, 2(\.0)?, 5(\.0)?\)",
            {"bench/benchmarks/question.py", "keyframes/video/packets.py"},
        ),
        "a recall column": (r"[\"']recall@\d", {"bench/report/recall.py"}),
        "a benchmark's name": (r"benchmark (in|==) [(\"']", set()),
        "the content key of a question": (r"def content_key\(", {"core/types.py"}),
        "the pairing of questions": (r"def match_questions\(", {"keyframes/rows/identity.py"}),
        "the name of a log": (r"_samples_[^pf]", {"external/imports/lmms_logs.py"}),
        "how a row is flattened": (r"def flat_values\(", {"keyframes/rows/records.py"}),
        "a checkpoint's size": (r"gigabytes *(:.*)?= *\d{2,}", set()),
    }
    wrong = [
        f"{shown(path)}:{number}: {what} written again: {line.strip()}"
        for path in modules()
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        for what, (pattern, homes) in places.items()
        if re.search(pattern, line) and str(path.relative_to(PACKAGE)) not in homes
    ]
    assert not wrong, "\n".join(wrong)


def registries():
    """Return every registry of the package by what it holds."""
    from focus_eval.bench.benchmarks.registry import BENCHMARKS
    from focus_eval.bench.lmms.manifests import MODELS
    from focus_eval.external.imports.formats import FORMATS
    from focus_eval.keyframes.encoders.registry import ENCODERS
    from focus_eval.keyframes.llms.registry import LLMS
    from focus_eval.keyframes.samplers.registry import SAMPLERS
    from focus_eval.keyframes.video import READERS

    return {registry.noun: registry for registry in (SAMPLERS, ENCODERS, READERS, FORMATS, BENCHMARKS, MODELS, LLMS)}


KINDS = ("sampler", "encoder", "video reader", "selection format", "benchmark", "model", "llm")


@cache
def collections_of(source):
    """Return (line, the texts it holds) of each list, tuple, set and dict of texts in `source`."""
    collections = []
    for node in nodes_of(source):
        items = node.keys if isinstance(node, ast.Dict) else getattr(node, "elts", [])
        texts = {item.value for item in items if isinstance(item, ast.Constant) and isinstance(item.value, str)}
        if texts:
            collections.append((node.lineno, texts))
    return collections


def lists_of(names, source):
    """Return the lines of collections in `source` that hold two fifths or more of `names`: second lists of these."""
    return [line for line, texts in collections_of(source) if 5 * len(texts & names) >= 2 * len(names)]


@pytest.mark.parametrize("kind", KINDS)
def test_no_kind_of_plugin_is_listed_a_second_time(kind):
    names = {name.removesuffix(".chat") for name in registries()[kind].names()}
    lines_by_path = {str(path.relative_to(ROOT)): lists_of(names, path.read_text()) for path in modules()}
    assert not {path: lines for path, lines in lines_by_path.items() if lines}


def test_a_second_list_is_found():
    assert lists_of({"clip", "blip", "siglip"}, "A = 1\nHUB = {'clip': 'clip', 'blip': 'blip', 'none': ''}\n") == [2]
    assert not lists_of({"clip", "blip", "siglip", "offline"}, "usual = ('clip',)\n")


def test_every_module_that_is_imported_exists():
    # mypy passes over a missing module of ours as it does over one of others without types.
    missing = []
    for path in [
        *modules(),
        *(ROOT / "tests").rglob("*.py"),
        *(ROOT / "scripts").rglob("*.py"),
    ]:
        for node in nodes_of(path.read_text()):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "focus_eval":
                is_module = node.module in MODULES
                missing += [] if is_module else [f"{path.relative_to(ROOT)}:{node.lineno} imports {node.module}"]
    assert not missing, "\n".join(missing)


def test_scripts_are_run_as_modules():
    # Run by its path a script does not find this repository's tests: a dependency installs a package of that name.
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    texts = {name: (ROOT / name).read_text() for name in tracked if Path(name).suffix in (".py", ".md", ".yml", "")}
    pattern = re.compile(r"python3?\s+scripts/\w+/\w+\.py|sys\.executable, __file__")
    assert [name for name, text in texts.items() if pattern.search(text)] == []


@pytest.mark.parametrize("folder", ["focus_eval", "tests", "scripts"])
def test_names_say_what_they_name(folder):
    names = [
        (name, f"{shown(path)}:{line}: {name}")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for name, line in house_figures.bindings(path.read_text())
    ]
    places = [place for name, place in names if house_figures.is_empty_name(name)]
    assert len(places) <= 0.005 * len(names), "\n".join(places)


def test_an_empty_name_is_counted(tmp_path):
    text = "def f(asked, _mine=1):\n    given_frames = asked\n    for found in given_frames: pass"
    names = [name for name, _ in house_figures.bindings(text)]
    assert sorted(filter(house_figures.is_empty_name, names)) == ["_mine", "asked", "found"]
    (tmp_path / "f.py").write_text(text)
    figures = house_figures.measure(tmp_path)
    assert (figures.bindings, figures.empty_names) == (4, 3)


def test_a_docstring_of_a_private_helper_does_not_begin_with_return():
    """Name and type say that it returns something; what is left says what it is."""
    wordy = [
        f"{shown(path)}:{node.lineno}: {node.name}"
        for path in modules()
        for node in nodes_of(path.read_text())
        if isinstance(node, ast.FunctionDef) and re.match(r"_(?!_)", node.name)
        and (docstring := ast.get_docstring(node)) and "\n" not in docstring and docstring.startswith("Return")
    ]  # fmt: skip
    assert not wordy, "\n".join(wordy)


# Lower it with each helper that is written where it is used. Those in comprehensions, and formulas, may stay.
MAX_FRAGMENTS = 45


def test_few_helpers_of_four_lines_have_one_caller():
    texts = {path: path.read_text() for path in house_figures.source_files(PACKAGE)}
    places = [
        f"{shown(path)}:{line} {name}" for path, text in texts.items() for name, line in house_figures.fragments(text)
    ]
    assert len(places) <= MAX_FRAGMENTS, "\n".join(places)


def test_a_helper_of_one_caller_is_counted_and_one_passed_on_is_not():
    text = (
        "def _once(x):\n    return x + 1\ndef _passed(x):\n    return x\ndef f(y):\n    return map(_passed, [_once(y)])"
    )
    assert house_figures.fragments(text) == [("_once", 1)]


# Lower it with each value that gets a type. Any stays where a library gives no types.
MAX_UNTYPED = 215


def test_few_annotations_are_any():
    lines_by_file = {
        shown(path): house_figures.untyped_annotations(path.read_text()) for path in house_figures.source_files(PACKAGE)
    }
    report = "\n".join(f"{name}: {len(lines)} (lines {lines})" for name, lines in lines_by_file.items() if lines)
    assert sum(map(len, lines_by_file.values())) <= MAX_UNTYPED, report


def test_any_is_counted_in_annotations_only():
    text = "import typing\nx: dict[str, Any] = {}\ndef f(a: Any, *b: list[Any]) -> typing.Any:\n    return Any"
    assert sorted(house_figures.untyped_annotations(text)) == [2, 3, 3, 3]


def test_each_class_name_has_one_meaning():
    repeated = {name: count for name, count in house_figures.class_names(PACKAGE).items() if count > 1}
    assert not repeated
