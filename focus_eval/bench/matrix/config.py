"""Reads the configuration of a matrix from YAML and validates it."""

from __future__ import annotations

import difflib
import itertools
import os
import re
import shutil
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeGuard, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, StrictBool, ValidationError, model_validator

from focus_eval.bench.benchmarks.question import Benchmark
from focus_eval.bench.benchmarks.subtitles import SubtitleLayoutOption, SubtitleModeOption
from focus_eval.core.errors import InvalidInput, nearest, unknown_name
from focus_eval.core.options import named_options, named_text, parse_named
from focus_eval.core.resources import read_yaml, resource_path, yaml_loader, yaml_node
from focus_eval.core.types import AnswerParsing, CoarseSeed, FramePolicy, PixelForm, Timeline

ModelT = TypeVar("ModelT", bound=BaseModel)
_VARIABLE = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}")


# Readable words for pydantic's error types.
_TYPE_WORDS = {
    "bool_type": "true or false",
    "dict_type": "a mapping of keys to values",
    "float_parsing": "a number",
    "float_type": "a number",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "int_type": "a whole number",
    "model_type": "a mapping of keys to values",
    "string_type": "a text",
}


def load_yaml(path: Path) -> dict[str, Any]:
    """Return the mapping in the YAML file at `path`.

    Raises:
        InvalidInput: no such file, broken YAML (with its line), no mapping, a key written twice.
    """
    node = yaml_node(path)
    if not isinstance(node, yaml.MappingNode):
        raise InvalidInput(f"{path}: must hold a mapping of keys to values")
    # Refuse repeated keys, of which YAML would silently keep the last.
    _refuse_repeats(node, path)
    return dict(read_yaml(path))


def check(model: type[ModelT], values: dict[str, object], path: Path, *, replaced: Collection[str] = ()) -> ModelT:
    """Return `values` as a validated `model`.

    Args:
        path: file that the values are from, for messages.
        replaced: top-level keys whose values do not come from the file.

    Raises:
        InvalidInput: the first mistake, as `file:line: key: message`, with the nearest name for an unknown key.
    """
    try:
        return model.model_validate(values)
    except ValidationError as error:
        mistakes = error.errors()
        # Report unknown keys first (a misspelt key also makes another one missing) and wrong types last (a union
        # reports each type that does not fit).
        first = min(
            mistakes, key=lambda mistake: (mistake["type"] != "extra_forbidden", mistake["type"].endswith("_type"))
        )
        location = [part for part in first["loc"] if not _is_union_tag(part)] or list(first["loc"][-1:])
        key = ".".join(str(part) for part in location)
        message = first["msg"].removeprefix("Value error, ")
        if first["type"] == "list_type":
            message = f"must be a list: [{first['input']}]"
        elif first["type"] in _TYPE_WORDS:
            message = f"must be {_TYPE_WORDS[first['type']]}, got {first['input']!r}"
        if first["type"] == "extra_forbidden":
            known_keys = _fields_at(model, location[:-1])
            close = difflib.get_close_matches(str(location[-1]), known_keys, n=1, cutoff=0.5)
            fix = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known_keys)}"
            message = f"unknown key; {fix}"
        if location and location[0] in replaced:
            raise InvalidInput(f"{key} (set over {path}): {message}") from error
        # An error of a whole part names no key, so leave the key out of the message.
        raise InvalidInput(": ".join(filter(None, (f"{path}:{_line_of(path, location)}", key, message)))) from error


def read_yaml_value(text: str) -> object:
    """Return the value of a YAML text, e.g. [8, 16] for "[8, 16]".

    Raises:
        InvalidInput: broken YAML.
    """
    try:
        value: object = yaml.load(text, Loader=yaml_loader())
    except yaml.YAMLError as error:
        raise InvalidInput(f"{text!r} is not a YAML value") from error
    return value


def expand_variables(text: str, path: Path) -> str:
    """Return `text` with `${NAME}` and `${NAME:-default}` replaced from the environment, and a leading `~`.

    Raises:
        InvalidInput: a variable that is not set and has no default.
    """

    def value(match: re.Match[str]) -> str:
        """Return the variable's value or its default; raise InvalidInput if it has neither."""
        name, default = match.groups()
        setting = os.environ.get(name, default)
        if setting is None:
            raise InvalidInput(f"{path}: environment variable {name} is not set; export it, or write the path itself")
        return setting

    return os.path.expanduser(_VARIABLE.sub(value, text))


def _is_union_tag(part: object) -> bool:
    """True if a part of pydantic's error location names a type instead of a key."""
    return isinstance(part, str) and ("[" in part or part in ("str", "int", "float", "bool"))


def safe_name(text: str) -> str:
    """Return `text` with each run of characters unfit for a folder's name replaced by "_"."""
    return re.sub(r"[^\w.,=+-]+", "_", text)


def _fields_at(model: type[BaseModel], location: Sequence[int | str]) -> list[str]:
    """The sorted keys that the part of `model` at `location` knows."""
    current: object = model
    for part in location:
        if isinstance(part, int):
            continue
        field = getattr(current, "model_fields", {}).get(part)
        inner = _inner_types(field.annotation) if field else []
        # In annotations of optional parts and of lists, the model is nested in another type.
        current = next((item for item in inner if isinstance(item, type) and issubclass(item, BaseModel)), None)
    return sorted(getattr(current, "model_fields", {}))


def _inner_types(annotation: object) -> list[object]:
    """The types inside a generic or union annotation, at any depth; [annotation] for a plain type."""
    arguments = getattr(annotation, "__args__", ())
    return [kind for argument in arguments for kind in _inner_types(argument)] or [annotation]


def _line_of(path: Path, location: Sequence[int | str]) -> int:
    """The line number (from 1) of the key at `location`, or of its nearest parent in the file."""
    # Parse the file again as nodes, since validated values have no line numbers.
    node: yaml.Node | None = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml_loader())
    line = 1
    for part in location:
        if isinstance(node, yaml.MappingNode):
            pair = next(((key, value) for key, value in node.value if key.value == str(part)), None)
            if pair is None:
                # A missing key has no line, so return the line of its parent.
                return line
            line, node = pair[0].start_mark.line + 1, pair[1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            node = node.value[part]
            line = node.start_mark.line + 1
    return line


def _refuse_repeats(node: object, path: Path) -> None:
    """Raise InvalidInput for a key that is written twice in one mapping, or is not text."""
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _refuse_repeats(item, path)
    if not isinstance(node, yaml.MappingNode):
        return
    keys: set[str] = set()
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise InvalidInput(f"{path}:{key.start_mark.line + 1}: a key must be text, not a list or a mapping")
        if key.value in keys:
            raise InvalidInput(f"{path}:{key.start_mark.line + 1}: key {key.value!r} is written twice")
        keys.add(key.value)
        _refuse_repeats(value, path)


# YAML files of this folder that are no matrices.
NO_MATRICES = ("references.yaml", "simulation.yaml")


def shipped_matrices() -> dict[str, Path]:
    """Return the shipped matrix files by name: the paper's tables, then the ablations, then the demo."""
    configs = resource_path("configs")
    files = [file for folder in ("paper", "ablations", "") for file in sorted((configs / folder).glob("*.yaml"))]
    return {file.stem: file for file in files if file.name not in NO_MATRICES}


def find_matrix(name: str | Path) -> Path:
    """Return the matrix file of `name`: a file, or the name of a shipped one ("alpha", "paper/alpha.yaml").

    Raises:
        UnknownName: there is no file and no shipped matrix of that name; the message has the nearest name.
        InvalidInput: a path to a file that does not exist.
    """
    file = Path(name)
    if file.is_file():
        return file
    # A path as in the repository (configs/..) also finds the file in the installed package.
    tail = Path(*file.parts[1:]) if file.parts[:1] == ("configs",) else file
    inside = resource_path("configs") / tail
    if inside.suffix == ".yaml" and inside.is_file():
        return inside
    shipped = shipped_matrices()
    if file.name not in shipped:
        if file.suffix or len(file.parts) > 1:
            raise InvalidInput(f"{file}: no such file; shipped matrices: {', '.join(shipped)}")
        raise unknown_name("matrix", str(name), shipped)
    return shipped[file.name]


def title_of(file: Path) -> str:
    """Return the first sentence of the comment at the top of a matrix file, without its period; "" if it has none."""
    lines = itertools.takewhile(lambda line: line.startswith("#"), file.read_text(encoding="utf-8").splitlines())
    comment = " ".join(line.lstrip("# ") for line in lines)
    return re.split(r"(?<=[.?]) ", comment)[0].rstrip(".")


def copy_configs(folder: Path) -> list[Path]:
    """Copy all shipped YAML configs to `folder`, and return the paths of the copies.

    Raises:
        InvalidInput: one of the files already exists; nothing is copied then.
    """
    source = resource_path("configs")
    files = sorted(path.relative_to(source) for path in source.rglob("*.yaml"))
    existing = [folder / file for file in files if (folder / file).exists()]
    # Check all files before copying the first, so that nothing is left half done.
    if existing:
        raise InvalidInput(f"{existing[0]}: already exists and is not overwritten; name a folder without configs")
    for file in files:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source / file, folder / file)
    return [folder / file for file in files]


def table_of(file: Path) -> str:
    """Return the key `table` of a matrix file, the paper's table that it reproduces; "" for none."""
    return str(load_yaml(file).get("table", ""))


Option = bool | int | float | str | None


class StrictModel(BaseModel):
    """Base of all configurations: immutable, and unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class BenchmarkConfig(StrictModel):
    """Sources of a benchmark's questions and videos.

    `include_path` is the folder with the file of the user's own task, as in lmms-eval's option.

    The questions are the documents of `task`, from the hub's cache or from the local folder `dataset`. `annotations` (a
    file, or a folder of parquet shards) replaces them as the source of questions. `videos` is the folder that the
    questions' video paths are relative to. Paths may hold `${VARIABLE}` and `${VARIABLE:-default}`. `rates` is a CSV of
    id, duration_s and fps, which replaces the videos when planning, and wherever no frame is read.

    `fields` names the fields of the documents (see `DocumentFields`), or a benchmark with the same fields; `tasks`
    lists further tasks with such documents. `nested`, `beside` and `beside_by` say how the file of annotations differs
    from one row per question (see `FileShape`). `questions` to `lmms_eval_parsing` are the benchmark's facts (see
    `benchmarks.question.BenchmarkFacts`); missing ones are taken from that benchmark's file. `data_home` is the value
    of `HF_HOME` for lmms-eval. `source` is the data set's name on the hub, and `gated` is True if it needs an account.
    `disk_gigabytes` is the size of the videos. Fetching them takes `disk_copies` times as much, since the archives stay
    beside the unpacked files.
    """

    name: str
    benchmark: str
    task: str = ""
    include_path: str = ""
    annotations: str = ""
    videos: str = ""
    rates: str = ""
    data_home: str = ""
    dataset: str = ""
    disk_gigabytes: float = Field(default=0.0, ge=0)
    disk_copies: int = Field(default=2, gt=0)
    edges_seconds: tuple[float, float] | None = None
    questions: int | None = Field(default=None, gt=0)
    mean_over_types: StrictBool | None = None
    types_with_parts: list[str] = []
    evidence_file: str = ""
    lmms_eval_parsing: str = ""
    questions_of_tasks: dict[str, int] = {}
    group_score: dict[str, str | int] = {}
    subtitles: dict[str, str | list[str]] = {}
    source: str = ""
    gated: StrictBool = False
    tasks: list[str] = []
    fields: dict[str, str | bool | list[str]] | str = {}
    nested: str = ""
    beside: str = ""
    beside_by: str = ""

    def make(self) -> Benchmark:
        """Return the benchmark, with this config's length edges."""
        from focus_eval.bench.benchmarks.registry import declared, make_benchmark

        if self.fields:
            return declared(self.model_dump(), name=self.benchmark, location=f"benchmark {self.name}")
        return make_benchmark(self.benchmark, edges_seconds=self.edges_seconds)

    @model_validator(mode="after")
    def _check_declaration(self) -> BenchmarkConfig:
        """Refuse a benchmark that names neither a task nor annotations, or whose declaration has a mistake."""
        if not self.annotations and not self.task:
            raise ValueError("say where the questions are: task (an lmms-eval task) or annotations (a file)")
        # Validate the fields here, where error messages name the file.
        if self.fields:
            self.make()
        return self


Tag = Annotated[str, Field(min_length=1)]


class ModelConfig(StrictModel):
    """One model of lmms-eval, its checkpoint and the number of frames it is shown.

    `gpus` is the number of GPUs of one copy of the model; None for the matrix's `answer_resources`. `frames` is used if
    the matrix states no k. `api_key` is the name of the environment variable with the key. `reasoning_tags` are pairs
    of tags as in lmms-eval's option: what is between them in a reply is not read; None for lmms-eval's own pairs.
    `subtitles` and `subtitle_layout` are those of the plugin: which lines a prompt gets, and where.
    """

    name: str
    model: str
    args: dict[str, Option] = {}
    frames: int = Field(gt=0)
    batch_size: int = Field(default=1, gt=0)
    needs_gpu: StrictBool = True
    gpus: float | None = Field(default=None, ge=0)
    api_key: str = ""
    reasoning_tags: list[tuple[Tag, Tag]] | None = None
    subtitles: SubtitleModeOption = ""
    subtitle_layout: SubtitleLayoutOption = ""
    disk_gigabytes: float = Field(default=0.0, ge=0)
    source: str = ""


def _names_with_options(part: object, kind: str) -> TypeGuard[dict[str, Any]]:
    """True if `part` is a mapping with a text under the key `kind` and, if any, a mapping of options."""
    return isinstance(part, dict) and isinstance(part.get(kind), str) and isinstance(part.get("options") or {}, dict)


class EncoderConfig(StrictModel):
    """One encoder with its options, under its name in rows and tables.

    A matrix may name one in place: `blip`, `clip:checkpoint=clip-vit-large-patch14`. `disk_gigabytes` is the
    checkpoint's size, by default that of the published checkpoint.
    """

    name: str
    encoder: str
    options: dict[str, Option] = {}
    disk_gigabytes: float = Field(default=0.0, ge=0)

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, part: object) -> object:
        """Move options in the encoder's name to `options`, and fill in the size of its published checkpoint."""
        if not _names_with_options(part, "encoder"):
            return part
        name, options = named_options(part["encoder"], part.get("options") or {})
        return {"disk_gigabytes": _published_gigabytes(name, options), **part, "encoder": name, "options": options}

    @property
    def precision(self) -> str:
        """The precision of the encoder's forwards, e.g. "bf16"."""
        return str(self.options.get("precision", "fp32"))


def _published_gigabytes(encoder: str, options: Mapping[str, object]) -> float:
    """The size of the encoder's published checkpoint in gigabytes; 0 if it is not known."""
    from focus_eval.keyframes.encoders.registry import ENCODERS
    from focus_eval.keyframes.encoders.weights import known_checkpoint

    default = ENCODERS.plugins[encoder].facts.get("default_checkpoint") if encoder in ENCODERS else None
    published = known_checkpoint(str(options.get("checkpoint") or default or ""))
    return published.gigabytes or 0.0 if published else 0.0


class SamplerConfig(StrictModel):
    """One sampler; options given as lists are expanded to all combinations of their values.

    Options may also follow the name: `focus:alpha=0.1`.

    `encoders` restricts it to some of the matrix's encoders, by name. The option `scan_encoder` is the name of one of
    them, a text as in `encoders`, or a mapping with `encoder` and `options`.
    """

    sampler: str
    encoders: list[str] = []
    # Refuse an empty list: it would drop the sampler silently.
    options: dict[str, Option | Annotated[list[Option], Field(min_length=1)]] = {}

    @model_validator(mode="before")
    @classmethod
    def _split_name(cls, part: object) -> object:
        """Move options in the sampler's name to `options`, and write scan encoders as text."""
        if not _names_with_options(part, "sampler"):
            return part
        name, options = named_options(part["sampler"], part.get("options") or {})
        if "scan_encoder" in options:
            scan = options["scan_encoder"]
            texts = [_encoder_text(item) for item in scan] if isinstance(scan, list) else _encoder_text(scan)
            options = {**options, "scan_encoder": texts}
        return {**part, "sampler": name, "options": options}


def _encoder_text(part: object) -> object:
    """An encoder that is given as a mapping, as text "clip:checkpoint=NAME"; any other value unchanged."""
    if not isinstance(part, dict):
        return part
    encoder = EncoderConfig.model_validate({"name": "scan_encoder", **part})
    return named_text(encoder.encoder, encoder.options)


class Resources(StrictModel):
    """The resources of one worker of a cluster; the last two also hold for a worker in this process.

    `decode_cores` is the number of cores that decode videos: by default `cpus` on a cluster, and in this process the
    machine's cores divided by its GPUs. `frame_gigabytes` limits the memory for decoded frames: by default 4, and on a
    machine with GPUs an eighth of the worker's share of memory, from 4 to 16.
    """

    gpus: float = Field(default=1, ge=0)
    cpus: float = Field(default=4, gt=0)
    decode_cores: int | None = Field(default=None, gt=0)
    frame_gigabytes: float | None = Field(default=None, gt=0)


def worker_resources(model: ModelConfig, resources: Resources) -> Resources:
    """Return the resources of one worker that runs `model`: without GPU if the model or `resources` has none."""
    # `gpus: 0` in the matrix means that no worker gets a GPU, whatever the model's config asks for.
    if resources.gpus == 0 or not model.needs_gpu:
        return resources.model_copy(update={"gpus": 0.0})
    return resources.model_copy(update={"gpus": resources.gpus if model.gpus is None else model.gpus})


class MatrixConfig(StrictModel):
    """All configurations of one table: the product of its lists.

    `k` is a list of frame counts; empty means each model's own `frames`. `queries` lists the texts that encoders get:
    "question", "question_and_options", or a template with {question} and {options}. Without `models` a matrix only
    selects. With `share_frames` a frame is embedded once for all selections, and kept; without it every question of
    every selection pays for its own frames, so that its hours compare with published ones. With `available_only` only
    questions whose video is on this machine are asked, with `only_questions` those of these ids. `store_gigabytes` is
    the disk space of the store of embeddings and the rows; checks before a run require it. `pixels: display` shows
    encoders and models HDR videos in standard dynamic range and with square pixels (see `keyframes.video.colour`).
    `timeline: seconds` shows samplers a video whose rate varies in even steps of time, not frame by frame.
    """

    name: str
    table: str = ""
    anchors: str = ""
    benchmarks: list[BenchmarkConfig] = Field(min_length=1)
    models: list[ModelConfig] = []
    encoders: list[EncoderConfig] = []
    samplers: list[SamplerConfig] = Field(min_length=1)
    k: list[Annotated[int, Field(gt=0)]] = []
    seeds: list[Annotated[int, Field(ge=0)]] = Field(default=[0], min_length=1)
    coarse_seed: CoarseSeed = "question"
    queries: list[str] = Field(default=["question"], min_length=1)
    share_frames: StrictBool = True
    pixels: PixelForm = "stored"
    timeline: Timeline = "frames"
    frame_policy: FramePolicy = "exact"
    answer_parsing: AnswerParsing = "strict"
    max_error_share: float = Field(default=0.02, ge=0, le=1)
    allow_unparsed: StrictBool = False
    limit: int | None = Field(default=None, gt=0)
    available_only: StrictBool = False
    only_questions: list[str] = []
    store_gigabytes: float = Field(default=1.0, ge=0)
    select_resources: Resources = Resources()
    answer_resources: Resources = Resources()


_PARTS: dict[str, type[StrictModel]] = {"benchmarks": BenchmarkConfig, "models": ModelConfig, "encoders": EncoderConfig}


def load_matrix(path: str | Path, *, overrides: Mapping[str, object] | None = None) -> MatrixConfig:
    """Return the matrix in the YAML file at `path`, or the shipped one of that name ("alpha").

    An entry of `benchmarks`, `models` or `encoders` is a name (a file `configs/<kind>/<name>.yaml`, beside the
    matrix or in the package) or the mapping itself; an entry of `samplers` may be a bare name. `overrides` replace
    top-level keys.

    Raises:
        InvalidInput: file, line and key of the first mistake, with the nearest name for an unknown key.
    """
    file = find_matrix(path)
    # Apply overrides of the command line before validation, so that they are checked like the file.
    values = {**load_yaml(file), **(overrides or {})}
    values.setdefault("name", file.stem)
    for kind, model in _PARTS.items():
        if isinstance(values.get(kind), list):
            values[kind] = [_part(kind, model, entry, file) for entry in values[kind]]
    if isinstance(values.get("samplers"), list):
        values["samplers"] = [{"sampler": value} if isinstance(value, str) else value for value in values["samplers"]]
    # Load parts first, so that an error in one names the part's own file.
    matrix = check(MatrixConfig, values, file, replaced=overrides or ())
    # Without k and models there are no cells, and an empty run would succeed silently.
    if not matrix.k and not matrix.models:
        raise InvalidInput(f"{file}: a matrix without models needs k")
    # Check this before anything is selected, since the run would stop at its first answer.
    if untasked := [part.name for part in matrix.benchmarks if matrix.models and not part.task]:
        raise InvalidInput(
            f"{file}: benchmark {untasked[0]!r} has no task; models answer through an lmms-eval task: set it, or leave "
            "models out"
        )
    _check_names(matrix, file)
    return matrix


def _check_names(matrix: MatrixConfig, file: Path) -> None:
    """Check that the names of all parts are unique and usable in rows and reports."""
    for kind in _PARTS:
        names = [part.name for part in getattr(matrix, kind)]
        for name in names:
            if names.count(name) > 1:
                raise InvalidInput(f"{file}: {kind}: two are called {name!r}; give each its own name")
    of_benchmark: dict[str, str] = {}
    for part in matrix.benchmarks:
        first_name = of_benchmark.setdefault(part.benchmark, part.name)
        if first_name != part.name:
            raise InvalidInput(
                f"{file}: benchmarks: {first_name!r} and {part.name!r} are both {part.benchmark!r}, so their rows "
                "would be taken for one benchmark's; give each a matrix of its own"
            )


def _part(kind: str, model: type[StrictModel], entry: object, matrix_file: Path) -> object:
    """One entry of list `kind`: the validated part that a name stands for, or the mapping with variables replaced."""
    if not isinstance(entry, str):
        return _expanded(entry, matrix_file) if isinstance(entry, dict) else entry
    file = _part_file(kind, entry, matrix_file)
    if file is None:
        # Registered encoders need no file.
        return check(model, {"name": safe_name(entry), "encoder": entry}, matrix_file)
    values = load_yaml(file)
    values.setdefault("name", file.stem)
    return check(model, _expanded(values, file), file)


def _part_file(kind: str, name: str, matrix_file: Path) -> Path | None:
    """Return the YAML file of the part `name`; None for a registered encoder without a file.

    Raises:
        InvalidInput: no such part.
    """
    from focus_eval.keyframes.encoders.registry import ENCODERS

    if name.endswith((".yaml", ".yml")):
        if (file := matrix_file.resolve().parent / Path(name).expanduser()).is_file():
            return file
        raise InvalidInput(f"{matrix_file}: {kind}: no such file {file}; its path is relative to the matrix")
    # Look next to the matrix first: a user's part replaces a shipped one of the same name.
    folders = [folder / kind for folder in matrix_file.resolve().parents[:3]] + [resource_path("configs") / kind]
    for folder in folders:
        if (folder / f"{name}.yaml").is_file():
            return folder / f"{name}.yaml"
    known_names = sorted({file.stem for folder in folders for file in folder.glob("*.yaml")})
    if kind == "encoders":
        if parse_named(name)[0] in ENCODERS:
            return None
        known_names = sorted({*known_names, *ENCODERS.names()})
    raise InvalidInput(
        f"{matrix_file}: {kind}: no {kind}/{name}.yaml{nearest(name, known_names) or ';'} known: "
        f"{', '.join(known_names) or 'none'}"
    )


def _expanded(values: dict[str, object], file: Path) -> dict[str, object]:
    """`values` with environment variables replaced in its texts."""
    return {key: expand_variables(value, file) if isinstance(value, str) else value for key, value in values.items()}
