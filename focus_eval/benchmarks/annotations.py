"""Reads the questions of an annotation file."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from focus_eval.benchmarks.question import Benchmark, Question
from focus_eval.benchmarks.registry import make_benchmark
from focus_eval.errors import InvalidInput


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
            questions.append(benchmark.question(row))
        except InvalidInput as error:
            raise InvalidInput(f"{where}: row {at}: {error}") from error
    twice = [question_id for question_id, count in Counter(question.id for question in questions).items() if count > 1]
    if twice:
        raise InvalidInput(f"{where}: {len(twice)} ids occur more than once, the first is {twice[0]!r}")
    return questions


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
            rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
        else:
            rows = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{path}: cannot be read as annotations ({error})") from error
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise InvalidInput(f"{path}: annotations must be a list of rows, at least one")
    return rows
