"""Reads the questions of an annotation file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from focus_eval.benchmarks.question import Benchmark, Question
from focus_eval.benchmarks.registry import make_benchmark
from focus_eval.errors import InvalidInput
from focus_eval.resources import parse_json, read_json, read_text


def read_annotations(name: str | Benchmark, path: str | Path) -> list[Question]:
    """Return the questions of benchmark `name` (or of the benchmark itself) in the file's order.

    Args:
        path: a `.json` list, `.jsonl`, `.parquet`, or a folder with `validation-*.parquet` or `test-*.parquet`.

    Raises:
        UnknownName: no such benchmark.
        InvalidInput: a file that is missing or cannot be read, a row that is not a question, an id met twice; names
            the file, and the row where there is one.
    """
    return questions_of(name, read_documents(Path(path)), where=str(path))


def questions_of(name: str | Benchmark, documents: Iterable[Mapping[str, Any]], *, where: str) -> list[Question]:
    """Return the questions of benchmark `name` in `documents`, in their order. Raises as `read_annotations`."""
    benchmark = make_benchmark(name) if isinstance(name, str) else name
    questions = []
    for at, row in enumerate(documents):
        try:
            question = benchmark.question(row)
            _refuse_escape(question)
            questions.append(question)
        except InvalidInput as error:
            raise InvalidInput(f"{where}: row {at}: {error}") from error
    twice = [question_id for question_id, count in Counter(question.id for question in questions).items() if count > 1]
    if twice:
        raise InvalidInput(f"{where}: {len(twice)} ids occur more than once, the first is {twice[0]!r}")
    return questions


def _refuse_escape(question: Question) -> None:
    """Refuse a video path that leads out of the folder of videos: annotations are written by others.

    Links inside the folder are followed: that is how the hub's cache and many data folders are laid out.
    """
    path = PurePosixPath(question.video.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or "\0" in question.video:
        raise InvalidInput(f"{question.id}: video {question.video!r} leaves the folder of videos")


def read_documents(path: Path) -> list[Mapping[str, Any]]:
    """Return the rows of an annotation file or folder as dictionaries. Raises as `read_annotations`."""
    if path.is_dir():
        shards = sorted(path.glob("validation-*.parquet")) or sorted(path.glob("test-*.parquet"))
        if not shards:
            raise InvalidInput(f"{path}: no validation-*.parquet or test-*.parquet in this folder")
        return [row for shard in shards for row in read_documents(shard)]
    try:
        if path.suffix == ".parquet":
            import pyarrow.parquet

            rows = pyarrow.parquet.ParquetFile(path).read().to_pylist()
        elif path.suffix == ".arrow":  # as the datasets library keeps them
            import pyarrow.ipc

            with open(path, "rb") as file:
                rows = pyarrow.ipc.open_stream(file).read_all().to_pylist()
        elif path.suffix == ".jsonl":
            lines = enumerate(read_text(path).splitlines(), start=1)
            rows = [parse_json(line, where=f"{path}:{at}") for at, line in lines if line.strip()]
        else:
            rows = read_json(path)
    except InvalidInput:
        raise
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{path}: cannot be read as annotations ({error})") from error
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise InvalidInput(f"{path}: annotations must be a list of rows, at least one")
    return rows
