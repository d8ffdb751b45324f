"""`focus-eval list` prints the names that a command or a matrix may use, by kind.

focus-eval list                   # every name, by kind
focus-eval list samplers --json
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from focus_eval.core.errors import InvalidInput, MissingDependency, unknown_name
from focus_eval.core.offers import offered
from focus_eval.core.resources import read_yaml, resource_path
from focus_eval.core.types import VideoInfo
from focus_eval.keyframes.commands.console import print_entries, print_folded, refuse_idle_options

if TYPE_CHECKING:
    from focus_eval.bench.matrix.config import MatrixConfig
    from focus_eval.core.plugins import Plugin, Registry
    from focus_eval.keyframes.samplers.base import FrameSampler

# Cost of a scanned frame in the list of samplers, in encoder images: CLIP B/32 as scan encoder, BLIP large as encoder.
LISTED_SCAN_COST = 1 / 43


@dataclass(frozen=True)
class Entry:
    """One name of a list.

    Args:
        name: the text to type.
        lines: description, for people.
        facts: JSON values, for programs; if empty, programs get `lines`.
        title: heading instead of the name.
    """

    name: str
    lines: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    title: str = ""


def list_(
    context: typer.Context,
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND",
            help="samplers, encoders, models, benchmarks, tasks, configs, formats, readers, llms. [default: all names]",
            autocompletion=lambda: [*KINDS],
        ),
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    k: Annotated[int, typer.Option("-k", help="samplers: keyframes of the example video.")] = 64,
    minutes: Annotated[float, typer.Option(help="samplers: length of the example video, in minutes.")] = 60.0,
    fps: Annotated[float, typer.Option(help="samplers: frame rate of the example video.")] = 30.0,
    copy: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="configs: copy all YAML files to this folder.")
    ] = None,
    install_path: Annotated[
        bool, typer.Option("--install-path", help="tasks: print only the folder, for lmms-eval's --include_path.")
    ] = False,
) -> None:
    """List what can be named, by kind.

    Samplers with their options and cost on an example video, encoders with their checkpoints, models that answer,
    benchmarks, lmms-eval tasks, shipped matrices (configs), formats of selections, video readers, and models that are
    asked (llms) with their options. Plugins of installed packages are listed too.
    """
    if kind and kind not in KINDS:
        raise unknown_name("kind", kind, KINDS)
    if kind != "samplers":
        refuse_idle_options(context, "but in: focus-eval list samplers", "k", "minutes", "fps")
    if copy is not None or install_path:
        refuse_idle_options(context, "beside --copy and --install-path: leave it out", "as_json")
    if copy is not None:
        _check_kind("--copy", kind, "configs")
        from focus_eval.bench.matrix.config import copy_configs

        files = copy_configs(copy)
        print_folded(f"{len(files)} files in {copy}; run one with: focus-eval run {copy}/paper/alpha.yaml")
    elif install_path:
        _check_kind("--install-path", kind, "tasks")
        print(resource_path("tasks"))
    elif kind == "samplers":
        _list_samplers(k, minutes, fps, as_json=as_json)
    elif as_json:
        print(json.dumps({name: list(map(_as_json, KINDS[name]())) for name in ([kind] if kind else KINDS)}, indent=2))
    elif kind:
        print_entries([(entry.title or entry.name, entry.lines) for entry in KINDS[kind]()])
        _print_usage(kind)
    else:
        _print_all_names()


def _check_kind(option: str, kind: str, expected: str) -> None:
    """Raise InvalidInput for an option that only another kind of list takes."""
    if kind != expected:
        raise InvalidInput(f"{option} goes with: focus-eval list {expected}")


def _as_json(entry: Entry) -> dict[str, object]:
    """The JSON values of the entry, or its description if it has no JSON values."""
    return {"name": entry.name, **(entry.facts or {"about": list(entry.lines)})}


def _print_usage(kind: str) -> None:
    """Print the command that uses the names of a list, unless that is `list` itself."""
    if kind == "configs":
        print("\nfocus-eval plan NAME and focus-eval run NAME take these names.")
    elif kind == "llms":
        print()
        print_folded("Options follow the name: focus-eval ask VIDEO QUESTION --llm chat:model=NAME,max_side=2048")
    elif kind == "tasks":
        folder = resource_path("tasks")
        print()
        print_folded(f"lmms-eval --include_path {folder} --tasks {min(folder.glob('*.yaml')).stem} ...")


def _print_all_names() -> None:
    """Print the names of every kind; for a plugin of an installed package also its location."""
    from focus_eval.bench.matrix.config import shipped_matrices

    entries = []
    for kind, registry in _registries().items():
        names = [entry.name for entry in model_entries()] if kind == "models" else registry.names()
        origins = [f"{plugin.name} is {plugin.location}" for plugin in registry.plugins.values() if plugin.point]
        entries.append((f"{kind} ({registry.group})", [", ".join(names), *origins]))
    entries.append(("tasks", [", ".join(entry.name for entry in task_entries())]))
    entries.append(("configs", [", ".join(shipped_matrices())]))
    print_entries(entries)


def _registries() -> dict[str, Registry[Any]]:
    from focus_eval.bench.benchmarks.registry import BENCHMARKS
    from focus_eval.bench.lmms.manifests import MODELS
    from focus_eval.keyframes.encoders.registry import ENCODERS
    from focus_eval.keyframes.llms.registry import LLMS
    from focus_eval.keyframes.samplers.registry import SAMPLERS
    from focus_eval.keyframes.video import READERS

    return {
        "samplers": SAMPLERS,
        "encoders": ENCODERS,
        "models": MODELS,
        "benchmarks": BENCHMARKS,
        "formats": offered("selection_formats"),
        "readers": READERS,
        "llms": LLMS,
    }


def _plugin_entries(kind: str, describe: Callable[[Plugin], list[str]]) -> list[Entry]:
    """An entry per plugin of `kind`; a plugin of an installed package is described by its entry point."""
    plugins = _registries()[kind].plugins
    return [
        Entry(name, tuple(describe(plugin) if plugin.point is None else [plugin.location]))
        for name, plugin in sorted(plugins.items())
    ]


def sampler_entries(
    video: VideoInfo = VideoInfo(n_frames=108_000, fps=30.0), k: int = 64, cost_title: str = ""
) -> list[Entry]:
    """Return the samplers with source, options with defaults, and cost on `video`."""
    from focus_eval.keyframes.samplers.registry import sampler_classes

    entries = []
    for kind in sampler_classes().values():
        row = sampler_row(kind, video, k)
        options = " ".join(f"{name}={_as_text(value)}" for name, value in row["options"].items())
        cost = f"{row['pulls']} ({100 * row['frames_scored']:.2f} %) {cost_title}; needs {row['needs']}"
        lines = (row["source"], *([f"-o {options}"] if options else []), cost)
        entries.append(Entry(row["name"], lines, row))
    return entries


def _list_samplers(k: int, minutes: float, fps: float, *, as_json: bool) -> None:
    """Print the samplers with their cost on a video of that length, as text or JSON."""
    if not (0 < minutes < float("inf") and 0 < fps < float("inf") and k > 0):
        raise InvalidInput(f"minutes, fps and k must be numbers above 0, got {minutes}, {fps} and {k}")
    video = VideoInfo(n_frames=max(1, int(minutes * 60 * fps)), fps=fps)
    entries = sampler_entries(video, k, f"pulls of {minutes:g} min at {fps:g} fps, k = {k}")
    if as_json:
        samplers = list(map(_as_json, entries))
        print(json.dumps({"n_frames": video.n_frames, "fps": video.fps, "k": k, "samplers": samplers}, indent=2))
    else:
        print_entries([(entry.name, entry.lines) for entry in entries])


def sampler_row(kind: type[FrameSampler], video: VideoInfo, k: int) -> dict[str, Any]:
    """Return name, source, version, needs, options with defaults and cost of one sampler, JSON values only."""
    sampler = kind()
    pulls = sampler.at_cost(LISTED_SCAN_COST).count_pulls(video, k=k)
    pulled = "logits" if kind.needs_logits else "embeddings" if kind.needs_embeddings else "relevance"
    requirements = ["a scan"] if kind.needs_scan and not pulls else [pulled] if kind.needs_encoder else []
    requirements += ["a model"] if kind.needs_llm else []
    return {
        "name": kind.name,
        "source": kind.source,
        "version": kind.version,
        "needs": " and ".join(requirements) or "nothing",
        "options": sampler.options,
        "pulls": pulls,
        "frames_scored": pulls / video.n_frames,
    }


def _as_text(value: object) -> str:
    """`value` as it is written after `-o name=`."""
    return str(value).lower() if isinstance(value, bool) or value is None else str(value)


def encoder_entries() -> list[Entry]:
    """Return the encoders with their checkpoints and sizes."""

    def describe(plugin: Plugin) -> list[str]:
        """Return a line with the checkpoints and sizes of an encoder; [] if it has none."""
        checkpoints = plugin.facts.get("checkpoints", {})
        sizes = [f"{name} ({facts['gigabytes']:g} GB)" if facts.get("gigabytes") else name
                 for name, facts in checkpoints.items()]  # fmt: skip
        return [f"checkpoints: {', '.join(sizes)}"] if sizes else []

    return _plugin_entries("encoders", describe)


def model_entries() -> list[Entry]:
    """Return the models that answer, with the shipped configs that use them."""
    from focus_eval.bench.lmms.manifests import known_models

    configs: dict[str, list[str]] = {}
    for file in sorted((resource_path("configs") / "models").glob("*.yaml")):
        configs.setdefault(read_yaml(file)["model"], []).append(file.stem)
    return [
        Entry(name, (f"configs: {', '.join(configs[name])}",) if name in configs else ())
        for name in sorted(known_models())
    ]


def benchmark_entries() -> list[Entry]:
    """Return the benchmarks with the first sentence of their file, their task, and where their videos come from."""
    from focus_eval.bench.matrix.config import title_of

    def describe(plugin: Plugin) -> list[str]:
        """Return the title, task, source and size of a benchmark's file."""
        file = plugin.load()
        assert isinstance(file, Path)  # a benchmark of this package is a YAML file
        config = read_yaml(file)
        facts = [f"{name} {config[name]}" for name in ("task", "source") if config.get(name)]
        facts += [f"{config['questions']:,} questions"] if config.get("questions") else []
        return [line for line in (title_of(file), ", ".join(facts)) if line]

    return _plugin_entries("benchmarks", describe)


def task_entries() -> list[Entry]:
    """Return the lmms-eval tasks of this package, with the first line of their file."""
    files = sorted(resource_path("tasks").glob("*.yaml"))
    return [Entry(file.stem, (file.read_text(encoding="utf-8").partition("\n")[0].lstrip("# "),)) for file in files]


def config_entries() -> list[Entry]:
    """Return the shipped matrices with title, benchmarks, models and size."""
    from focus_eval.bench.matrix.config import load_matrix, shipped_matrices, table_of, title_of

    entries = []
    for name, file in shipped_matrices().items():
        matrix = load_matrix(file)
        selections, answers, gigabytes = matrix_size(matrix)
        benchmarks, models = (", ".join(item.name for item in part) for part in (matrix.benchmarks, matrix.models))
        size = f"{selections} selections" + (f", {answers} answers, {gigabytes} GB of weights" if answers else "")
        scope = f"{benchmarks} with {models}" if models else benchmarks
        table = table_of(file)
        title = f"{name} (table {table})" if table.isdecimal() else name
        entries.append(Entry(name, (title_of(file), scope, size), title=title))
    return entries


def format_entries() -> list[Entry]:
    """Return the formats of selections, with a description of such a file."""
    return _plugin_entries("formats", lambda plugin: [plugin.facts["summary"]] if "summary" in plugin.facts else [])


def reader_entries() -> list[Entry]:
    """Return the video readers, with the package that each needs."""
    return _plugin_entries(
        "readers", lambda plugin: [f"needs {plugin.facts['package']}"] if "package" in plugin.facts else []
    )


def llm_entries() -> list[Entry]:
    """Return the models that are asked, with the options of each; with the extra that it needs if that is not here."""
    from focus_eval.keyframes.llms.registry import LLMS

    def describe(plugin: Plugin) -> list[str]:
        """Return the first line of the class, and a line for each option."""
        try:
            kind = LLMS.load(plugin.name)
        except MissingDependency as error:
            return [str(error)]
        return [(inspect.getdoc(kind) or "").partition("\n")[0], *_option_lines(kind)]

    return _plugin_entries("llms", describe)


def _option_lines(kind: type) -> list[str]:
    """E.g. "max_side=1024: longest side of a picture" for each entry of the Args section of a class."""
    parameters = inspect.signature(kind).parameters
    section = re.search(r"^Args:\n(.*?)(?:^\S|\Z)", inspect.getdoc(kind) or "", flags=re.DOTALL | re.MULTILINE)
    lines = []
    for entry in re.split(r"\n {4}(?! )", "\n" + (section[1].rstrip() if section else ""))[1:]:
        names, _, text = " ".join(entry.split()).partition(": ")
        defaults = {name: parameters[name].default for name in names.split(", ")}
        options = [
            f"{name}={'NAME' if default is inspect.Parameter.empty else _as_text(default)}"
            for name, default in defaults.items()
        ]
        lines.append(f"{', '.join(options)}: {text}")
    return lines


# Word after `focus-eval list` -> function that returns the entries.
KINDS: dict[str, Callable[[], list[Entry]]] = {
    "samplers": sampler_entries,
    "encoders": encoder_entries,
    "models": model_entries,
    "benchmarks": benchmark_entries,
    "tasks": task_entries,
    "configs": config_entries,
    "formats": format_entries,
    "readers": reader_entries,
    "llms": llm_entries,
}


def matrix_size(matrix: MatrixConfig) -> tuple[str, str, str]:
    """Return the numbers of selections and answers in `matrix` and the gigabytes of its weights, as texts.

    A benchmark whose config does not state its number of questions makes the sum a lower bound, marked "+".
    """
    from focus_eval.bench.matrix.cells import all_encoders, cells, selection_specs

    specs, answer_specs = selection_specs(matrix), cells(matrix)
    sizes = {benchmark.name: benchmark.questions for benchmark in matrix.benchmarks}
    suffix = "+" if None in sizes.values() else ""
    n_selections = sum(sizes[spec.benchmark.name] or 0 for spec in specs)
    n_answers = sum(sizes[spec.benchmark.name] or 0 for spec in answer_specs)
    gigabytes = sum(model.disk_gigabytes for model in matrix.models)
    gigabytes += sum(encoder.disk_gigabytes for encoder in all_encoders(matrix))
    return f"{n_selections:,}{suffix}", f"{n_answers:,}{suffix}" if answer_specs else "", f"{gigabytes:.0f}"
