"""Lists the benchmarks, declared in `configs/benchmarks/*.yaml` or by packages, and finds the one of an lmms-eval task.

    questions = read_annotations("longvideobench", "lvb_val.json")

Every other use of a benchmark's documents goes through `make_benchmark(name).question(document)`.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from functools import cache, partial
from pathlib import Path, PurePosixPath
from typing import Any

from focus_eval.bench.benchmarks.group_scores import GroupScore, check_groups
from focus_eval.bench.benchmarks.question import (
    Benchmark,
    BenchmarkFacts,
    DocumentFields,
    FileShape,
    LengthEdges,
    documents_in,
)
from focus_eval.bench.benchmarks.subtitles import SubtitleFacts
from focus_eval.core.errors import InvalidInput, PluginError, unknown_name
from focus_eval.core.options import make
from focus_eval.core.plugins import Registry, yaml_files
from focus_eval.core.resources import lines_of, parse_json, read_json, read_text, read_yaml, resource_path
from focus_eval.core.types import Question, VideoInfo

BenchmarkMaker = Callable[..., Benchmark]


def _check(loaded: object, label: str) -> BenchmarkMaker:
    """Return the function that makes the benchmark: `loaded` itself, or a function that reads the YAML file `loaded`.

    Raises PluginError if `loaded` is neither; `label` names the plugin.
    """
    if isinstance(loaded, (str, Path)):
        return cache(partial(declared_in, Path(loaded)))
    if not callable(loaded):
        raise PluginError(f"{label} is neither the path of a YAML file nor a function that takes `edges=`")
    benchmark_maker: BenchmarkMaker = loaded
    return benchmark_maker


# Our benchmarks are YAML files. A package registers a YAML file, or a function that takes `edges=` and returns a
# benchmark.
BENCHMARKS: Registry[BenchmarkMaker] = Registry(
    "benchmark",
    group="focus_eval.benchmarks",
    built_in=lambda: yaml_files(resource_path("configs") / "benchmarks"),
    check=_check,
)
_SHAPE = tuple(item.name for item in fields(FileShape))
# Keys that only a matrix reads.
_MATRIX_KEYS = {
    *("name", "include_path", "annotations", "dataset", "videos", "rates", "data_home"),
    *("source", "gated", "disk_gigabytes", "disk_copies"),
}
FILE_KEYS = frozenset(
    {"benchmark", "task", "tasks", "fields", "edges_seconds", *_SHAPE}
    | {item.name for item in fields(BenchmarkFacts)}
    | _MATRIX_KEYS
)
# A task of ours has this prefix before the name of the official task or of the benchmark.
TASK_PREFIX = "focus_"


def make_benchmark(name: str, *, edges_seconds: tuple[float, float] | None = None) -> Benchmark:
    """Return the benchmark `name`; `edges_seconds` are the bounds of its length buckets (default: those of its file).

    Args:
        name: a registered name, or a YAML file that declares one (see `docs/benchmarks.md`).

    Raises:
        UnknownName: no such benchmark; the message has the nearest name.
        InvalidInput: edges that do not ascend, or a file that declares no benchmark.
        PluginError: a plugin that cannot be loaded.
    """
    edges = LengthEdges(*edges_seconds) if edges_seconds else None
    if name.endswith((".yaml", ".yml")):
        return declared_in(Path(name), edges=edges)
    return BENCHMARKS.load(name)(edges=edges)


def benchmark_of_task(task_name: str) -> Benchmark:
    """Return the benchmark whose documents the lmms-eval task `task_name` has.

    `task_name` is an official name (`longvideobench_val_v`, `videomme`, `mlvu_dev`, ..) or one of ours: "focus_"
    followed by an official name or by the name of a benchmark.

    Raises:
        UnknownName: no benchmark has this task; the message has the nearest name.
    """
    by_task = _names_by_task(tuple(BENCHMARKS.names()))
    if task_name not in by_task:
        raise unknown_name("task", task_name, by_task)
    return make_benchmark(by_task[task_name])


def facts_of(name: str, stated_facts: Mapping[str, object] | None = None) -> BenchmarkFacts:
    """Return the facts of a benchmark: `stated_facts`, else those of its YAML file; defaults if neither has any.

    Args:
        stated_facts: keys of a YAML file, or their copy in `run.json`; runs of older versions kept fewer.
    """
    own_facts = make_benchmark(name).facts if name in BENCHMARKS else BenchmarkFacts()
    return _facts(stated_facts or {}, own_facts)


def declared_in(path: Path, *, edges: LengthEdges | None = None) -> Benchmark:
    """Return the benchmark declared in a YAML file with `benchmark`, `task`, `fields` and other keys of `declared`.

    Raises:
        InvalidInput: a file that cannot be read, without `fields`, or with an unknown key.
    """
    document = read_yaml(path)
    if not isinstance(document, dict) or not isinstance(document.get("fields"), (dict, str)):
        raise InvalidInput(f"{path}: not a benchmark: the key `fields`, which names the document's fields, is missing")
    for key in document:
        if str(key) not in FILE_KEYS:
            raise InvalidInput(f"{path}: {unknown_name('key', str(key), FILE_KEYS)}")
    return declared(document, name=str(document.get("benchmark") or path.stem), location=str(path), edges=edges)


def declared(document: Mapping[str, Any], *, name: str, location: str, edges: LengthEdges | None = None) -> Benchmark:
    """Return the benchmark `name` from the keys of a YAML file.

    The keys are `task` and `tasks`, `fields` (or the name of a benchmark with the same fields), `edges_seconds`, and
    the names of `BenchmarkFacts` and `FileShape`.
    """
    own_edges, fields = document.get("edges_seconds"), document["fields"]
    is_name = isinstance(fields, str)
    tasks = map(str, [*([document["task"]] if document.get("task") else []), *(document.get("tasks") or [])])
    return Benchmark(
        name=name,
        # Leave out a task of ours, which is found by the name of the benchmark.
        tasks=tuple(task for task in tasks if task != f"{TASK_PREFIX}{name}"),
        fields=make_benchmark(fields).fields if is_name else make(f"fields in {location}", DocumentFields, fields),
        edges=edges or (LengthEdges(*own_edges) if own_edges else LengthEdges()),
        facts=_facts(document, BenchmarkFacts()),
        shape=make(location, FileShape, {key: document[key] for key in _SHAPE if document.get(key) is not None}),
    )


def _facts(stated_facts: Mapping[str, Any], own_facts: BenchmarkFacts) -> BenchmarkFacts:
    """Return `own_facts` with the values that `stated_facts` sets.

    An empty value replaces nothing, except that of `mean_over_types`.
    """
    changed_facts = {
        item.name: stated_facts[item.name] for item in fields(BenchmarkFacts) if stated_facts.get(item.name)
    }
    if "types_with_parts" in changed_facts:
        changed_facts["types_with_parts"] = tuple(map(str, changed_facts["types_with_parts"]))
    if isinstance(changed_facts.get("group_score"), Mapping):
        changed_facts["group_score"] = make("group_score", GroupScore, changed_facts["group_score"])
    if isinstance(changed_facts.get("subtitles"), Mapping):
        tasks = tuple(map(str, changed_facts["subtitles"].get("tasks") or ()))
        changed_facts["subtitles"] = make("subtitles", SubtitleFacts, {**changed_facts["subtitles"], "tasks": tasks})
    if stated_facts.get("mean_over_types") is False:
        changed_facts["mean_over_types"] = False
    return replace(own_facts, **changed_facts)


@cache
def _names_by_task(names: tuple[str, ...]) -> dict[str, str]:
    """Name of the benchmark by lmms-eval task, for official tasks and tasks with our prefix."""
    by_task: dict[str, str] = {}
    for name in names:
        for task in (*make_benchmark(name).tasks, name):
            by_task[f"{TASK_PREFIX}{task}"] = name
        by_task.update(dict.fromkeys(make_benchmark(name).tasks, name))
    return by_task


def read_annotations(name: str | Benchmark, path: str | Path) -> list[Question]:
    """Return the questions of benchmark `name` (or of the benchmark itself) in the file's order.

    Args:
        path: a `.json` list, `.jsonl`, `.csv` (each also gzipped), `.parquet`, or a folder with `validation-*.parquet`
            or `test-*.parquet`.

    Raises:
        UnknownName: no such benchmark.
        InvalidInput: a file that is missing or cannot be read, a row that is not a question, a repeated id; names the
            file, and the row if there is one.
    """
    benchmark = make_benchmark(name) if isinstance(name, str) else name
    documents = documents_in(read_documents(Path(path)), benchmark.shape, Path(path))
    return questions_of(benchmark, documents, location=str(path))


def questions_of(name: str | Benchmark, documents: Iterable[Mapping[str, object]], *, location: str) -> list[Question]:
    """Return the questions of benchmark `name` in `documents`, in their order. Raises as `read_annotations`."""
    benchmark = make_benchmark(name) if isinstance(name, str) else name
    questions = []
    for at, row in enumerate(documents):
        try:
            question = benchmark.question(row)
            # The path is not trusted, so it must stay inside the folder. Links are followed, since the hub's cache
            # consists of links.
            path = PurePosixPath(question.video.replace("\\", "/"))
            if path.is_absolute() or ".." in path.parts or "\0" in question.video:
                raise InvalidInput(f"{question.id}: video {question.video!r} leaves the folder of videos")
            questions.append(question)
        except InvalidInput as error:
            raise InvalidInput(f"{location}: row {at}: {error}") from error
    repeated_ids = [
        question_id for question_id, count in Counter(question.id for question in questions).items() if count > 1
    ]
    if repeated_ids:
        raise InvalidInput(
            f"{location}: {len(repeated_ids)} ids occur more than once, the first is {repeated_ids[0]!r}"
        )
    if grouped := benchmark.facts.group_score:
        # Check before the run: an error in the report would come after paying for the answers.
        try:
            check_groups(((question.video, question.group) for question in questions), size=grouped.size)
        except InvalidInput as error:
            raise InvalidInput(f"{location}: {error}") from error
    return questions


def read_documents(path: Path) -> list[Mapping[str, object]]:
    """Return the rows of an annotation file or folder as dictionaries. Raises as `read_annotations`."""
    if path.is_dir():
        shards = sorted(path.glob("validation-*.parquet")) or sorted(path.glob("test-*.parquet"))
        if not shards:
            raise InvalidInput(f"{path}: no validation-*.parquet or test-*.parquet in this folder")
        return [row for shard in shards for row in read_documents(shard)]
    suffix = Path(path.name.removesuffix(".gz")).suffix
    try:
        if suffix == ".parquet":
            import pyarrow.parquet

            rows = pyarrow.parquet.ParquetFile(path).read().to_pylist()
        elif suffix == ".arrow":  # as the datasets library keeps them
            import pyarrow.ipc

            with open(path, "rb") as file:
                rows = pyarrow.ipc.open_stream(file).read_all().to_pylist()
        elif suffix == ".csv":
            # An empty cell of a CSV file means that the value is missing.
            rows = [{name: value or None for name, value in row.items()} for row in _csv_rows(path)]
        elif suffix == ".jsonl":
            lines = enumerate(lines_of(read_text(path)), start=1)
            rows = [parse_json(line, location=f"{path}:{at}") for at, line in lines if line.strip()]
        else:
            rows = read_json(path)
    except InvalidInput:
        raise
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{path}: cannot be read as annotations ({error})") from error
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise InvalidInput(f"{path}: annotations must be a list of rows, at least one")
    return rows


def _csv_rows(path: Path) -> list[dict[str, str | None]]:
    text = read_text(path)
    csv.field_size_limit(max(csv.field_size_limit(), len(text)))  # the default limit is 128 KB a field
    try:
        return list(csv.DictReader(io.StringIO(text)))
    except csv.Error as error:
        raise InvalidInput(f"{path}: not a CSV that can be read ({error})") from error


# NTSC rates that files round or cut to integers, and the exact ones (24000/1001 ..). Taken literally, an integer would
# shift late frames by 3 %, and 23.98 by 0.6 s in an hour.
_NTSC = {
    Fraction(text): Fraction(1000 * whole, 1001) for text, whole in (("23", 24), ("23.98", 24), ("29", 30), ("59", 60))
}


@dataclass(frozen=True)
class VideoRate:
    """Length and rate of one question's video.

    Args:
        duration_seconds: above 0.
        fps: exact rate, above 0.
    """

    duration_seconds: float
    fps: Fraction

    def __post_init__(self) -> None:
        """Raise InvalidInput unless length and rate are above 0 and the length is finite."""
        if not (0 < self.duration_seconds < float("inf") and self.fps > 0):
            raise InvalidInput(f"a video needs seconds and a rate above 0, got {self.duration_seconds} s at {self.fps}")

    @property
    def n_frames(self) -> int:
        """Number of frames of the video, rounded down, at least 1."""
        return max(1, int(self.duration_seconds * float(self.fps)))

    @property
    def info(self) -> VideoInfo:
        """The length and rate as samplers see them."""
        return VideoInfo(self.n_frames, float(self.fps))


def read_rates(path: str | Path) -> dict[str, VideoRate]:
    """Return length and rate by question id from a CSV file with the columns id, duration_s and fps.

    `fps` is a number or a fraction ("30000/1001"); 23, 23.98, 29 and 59 are read as the NTSC rates they come from.

    Raises:
        InvalidInput: a missing file or column, a value that is not a number above 0, a repeated id; names the line.
    """
    rates: dict[str, VideoRate] = {}
    rows = _csv_rows(Path(path))
    if not rows:
        raise InvalidInput(f"{path}: no lines below the first; rates are a CSV with the columns id, duration_s and fps")
    missing = [name for name in ("id", "duration_s", "fps") if name not in rows[0]]
    if missing:
        columns = ", ".join(repr(name) for name in rows[0] if name is not None)
        raise InvalidInput(
            f"{path}: needs the columns id, duration_s and fps, separated by commas; "
            f"has no {missing[0]!r}, but {columns}"
        )
    for number, row in enumerate(rows, start=2):
        # Short lines lack trailing values.
        seconds, fps = row["duration_s"] or "", row["fps"] or ""
        try:
            rate = VideoRate(float(seconds), exact_rate(fps))
        except InvalidInput as error:
            raise InvalidInput(f"{path}:{number}: {error}") from error
        except (ValueError, ZeroDivisionError) as error:
            raise InvalidInput(
                f"{path}:{number}: duration_s {seconds!r} or fps {fps!r} is not a number; "
                "write seconds and frames a second, such as 190.16 and 30000/1001"
            ) from error
        video_id = row["id"]
        if not video_id or video_id in rates:
            raise InvalidInput(f"{path}:{number}: id {video_id!r} is missing or occurs twice")
        rates[video_id] = rate
    return rates


def write_rates(path: Path, infos: Mapping[str, VideoInfo]) -> None:
    """Write the CSV that `read_rates` reads, from the probed length and rate of each question's video."""
    rows = []
    for question_id, info in infos.items():
        rate = Fraction(info.fps).limit_denominator()
        # Slightly more than the length, so that seconds * rate rounds down to the exact number of frames.
        seconds = f"{info.duration_seconds + 1e-4:.4f}"
        rows.append((question_id, seconds, f"{rate.numerator}/{rate.denominator}"))
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([("id", "duration_s", "fps"), *rows])


def stated_rates(questions: Iterable[Question]) -> dict[str, VideoRate]:
    """Return length and rate by question id, for the questions whose annotation states both."""
    return {
        # Parse the text of the number, since 29.97 has no exact float.
        question.id: VideoRate(question.duration_seconds, exact_rate(repr(question.fps)))
        for question in questions
        if question.fps is not None and question.duration_seconds is not None
    }


def frame_rates(rates: Mapping[str, VideoRate]) -> dict[str, float]:
    """Return frames per second by question id."""
    return {key: float(rate.fps) for key, rate in rates.items()}


def exact_rate(text: str) -> Fraction:
    """Return the frame rate in `text` as a fraction; a rounded NTSC rate becomes exact, "29" gives 30000/1001.

    A text with a slash, "29/1", is taken as it is.
    """
    rate = Fraction(text.strip())
    return _NTSC.get(rate, rate) if "/" not in text else rate
