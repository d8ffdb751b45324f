"""The configuration of a matrix, read from YAML."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StrictBool, model_validator

from focus_eval.benchmarks.question import Benchmark
from focus_eval.errors import InvalidInput
from focus_eval.matrix.shipped import find_matrix
from focus_eval.matrix.yaml_source import check, expand_variables, load_yaml
from focus_eval.resources import resource_path
from focus_eval.types import AnswerParsing, CoarseSeed, FramePolicy

Option = bool | int | float | str | None


class StrictModel(BaseModel):
    """A part of a configuration: what it does not know is refused, and nothing changes it."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class BenchmarkConfig(StrictModel):
    """Where a benchmark's questions and videos are.

    The questions are the documents of `task`, from the hub's cache or from the local folder `dataset`. `annotations`
    (a file, or a folder of parquet shards) stands in for them where no model answers. `videos` is the folder that the
    questions' video paths are relative to. Paths may hold `${VARIABLE}` and `${VARIABLE:-default}`. `rates` is a CSV
    of id, duration_s and fps, which stands in for the videos when planning, and wherever no frame is read.
    `fields` names the fields of a declared benchmark's documents (see `benchmarks.declared`), and `tasks` further tasks
    with such documents. `data_home` is what lmms-eval finds as `HF_HOME`. `source` is the data set's name on the hub,
    and `gated` says that it asks for an account.
    """

    name: str
    benchmark: str
    task: str = ""
    annotations: str = ""
    videos: str = ""
    rates: str = ""
    data_home: str = ""
    dataset: str = ""
    questions: int | None = None
    disk_gigabytes: float = 0.0
    edges_seconds: tuple[float, float] | None = None
    source: str = ""
    gated: StrictBool = False
    tasks: list[str] = []
    fields: dict[str, str | bool | list[str]] = {}

    def make(self) -> Benchmark:
        """Return the benchmark, with this config's length edges."""
        from focus_eval.benchmarks.registry import declared, make_benchmark

        if self.fields:
            return declared(self.model_dump(), name=self.benchmark, where=f"benchmark {self.name}")
        return make_benchmark(self.benchmark, edges_seconds=self.edges_seconds)

    @model_validator(mode="after")
    def _has_questions(self) -> BenchmarkConfig:
        if not self.annotations and not self.task:
            raise ValueError("say where the questions are: task (an lmms-eval task) or annotations (a file)")
        return self


class ModelConfig(StrictModel):
    """One model as lmms-eval knows it, its checkpoint and the frames it is shown.

    `gpus` is how many one copy of the model takes, where that differs from the matrix's `answer_resources`.
    """

    name: str
    model: str
    args: dict[str, Option] = {}
    frames: int = Field(gt=0)
    batch_size: int = Field(default=1, gt=0)
    needs_gpu: StrictBool = True
    gpus: float | None = Field(default=None, ge=0)
    api_key: str = ""
    disk_gigabytes: float = 0.0
    source: str = ""


class EncoderConfig(StrictModel):
    """One encoder with its checkpoint."""

    name: str
    encoder: str
    options: dict[str, Option] = {}
    needs_gpu: StrictBool = True
    disk_gigabytes: float = 0.0
    source: str = ""


class SamplerConfig(StrictModel):
    """One sampler; every option given a list is tried with each of its values, all combinations.

    `encoders` restricts it to some of the matrix's encoders, by name.
    """

    sampler: str
    encoders: list[str] = []
    options: dict[str, Option | list[Option]] = {}


class Resources(StrictModel):
    """What one worker of a cluster takes; of the last two, a worker in this process too.

    `decode_cores` is how many cores decode videos: by default `cpus` on a cluster, and here the cores of this machine
    by its GPUs. `frame_gigabytes` is the most memory for decoded frames.
    """

    gpus: float = Field(default=1, ge=0)
    cpus: float = Field(default=4, gt=0)
    decode_cores: int | None = Field(default=None, gt=0)
    frame_gigabytes: float = Field(default=4, gt=0)


def worker_resources(model: ModelConfig, resources: Resources) -> Resources:
    """Return what one worker that runs `model` takes: no GPU where the model needs none, or where workers get none."""
    # 0 in the matrix means a cluster without GPUs, whatever a model's config asks for.
    if resources.gpus == 0 or not model.needs_gpu:
        return resources.model_copy(update={"gpus": 0.0})
    return resources.model_copy(update={"gpus": resources.gpus if model.gpus is None else model.gpus})


class MatrixConfig(StrictModel):
    """All configurations of one table: the product of its lists.

    `k` is a list of frame counts; empty means each model's own `frames`. `queries` lists what of a question encoders
    are given: "question", "question_and_options", or a template with {question} and {options}. Without `models` a
    matrix only selects. With `share_frames` a frame is embedded once for all selections, and kept; without it every
    question of every selection pays for its own frames, so that its hours may stand beside published ones.
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
    frame_policy: FramePolicy = "exact"
    answer_parsing: AnswerParsing = "strict"
    max_error_share: float = Field(default=0.02, ge=0, le=1)
    limit: int | None = Field(default=None, gt=0)
    select_resources: Resources = Resources()
    answer_resources: Resources = Resources()


_PARTS: dict[str, type[StrictModel]] = {
    "benchmarks": BenchmarkConfig,
    "models": ModelConfig,
    "encoders": EncoderConfig,
}


def load_matrix(path: str | Path, *, overrides: dict[str, Any] | None = None) -> MatrixConfig:
    """Return the matrix in the YAML file at `path`, or the shipped one of that name ("alpha").

    An entry of `benchmarks`, `models` or `encoders` is a name (a file `configs/<kind>/<name>.yaml`, beside the
    matrix or in the package) or the mapping itself; an entry of `samplers` may be a bare name. `overrides` replace
    top-level keys.

    Raises:
        InvalidInput: file, line and key of the first mistake, with the nearest name for an unknown key.
    """
    file = find_matrix(path)
    # What the command line says is checked like the file, since it is put in before.
    values = {**load_yaml(file), **(overrides or {})}
    values.setdefault("name", file.stem)
    for kind, model in _PARTS.items():
        if isinstance(values.get(kind), list):
            values[kind] = [_part(kind, model, entry, file) for entry in values[kind]]
    if isinstance(values.get("samplers"), list):
        values["samplers"] = [{"sampler": value} if isinstance(value, str) else value for value in values["samplers"]]
    # Parts are put in first, so that a mistake in one is reported with the part's own file.
    matrix = check(MatrixConfig, values, file, replaced=overrides or ())
    # With neither there would be no cells, and a run that does nothing ends well.
    if not matrix.k and not matrix.models:
        raise InvalidInput(f"{file}: a matrix without models needs k")
    _check_names(matrix, file)
    return matrix


def _check_names(matrix: MatrixConfig, file: Path) -> None:
    """Refuse what rows and reports could not tell apart, for they name every part."""
    for kind in _PARTS:
        names = [part.name for part in getattr(matrix, kind)]
        for name in names:
            if names.count(name) > 1:
                raise InvalidInput(f"{file}: {kind}: two are called {name!r}; give each its own name")
    of_benchmark: dict[str, str] = {}
    for part in matrix.benchmarks:
        other = of_benchmark.setdefault(part.benchmark, part.name)
        if other != part.name:
            raise InvalidInput(
                f"{file}: benchmarks: {other!r} and {part.name!r} are both {part.benchmark!r}, so their rows would be "
                "taken for one benchmark's; give each a matrix of its own"
            )


def _part(kind: str, model: type[StrictModel], entry: Any, matrix_file: Path) -> Any:
    if not isinstance(entry, str):
        if isinstance(entry, dict):
            return _expanded(entry, matrix_file)
        return entry
    file = _part_file(kind, entry, matrix_file)
    values = load_yaml(file)
    values.setdefault("name", file.stem)
    return check(model, _expanded(values, file), file)


def _part_file(kind: str, name: str, matrix_file: Path) -> Path:
    # Beside the matrix before the package's own: a user's part replaces a shipped one of its name.
    folders = [folder / kind for folder in matrix_file.resolve().parents[:3]] + [resource_path("configs") / kind]
    for folder in folders:
        if (folder / f"{name}.yaml").is_file():
            return folder / f"{name}.yaml"
    known = sorted({file.stem for folder in folders for file in folder.glob("*.yaml")})
    raise InvalidInput(f"{matrix_file}: {kind}: no {kind}/{name}.yaml; known: {', '.join(known) or 'none'}")


def _expanded(values: dict[str, Any], file: Path) -> dict[str, Any]:
    return {key: expand_variables(value, file) if isinstance(value, str) else value for key, value in values.items()}
