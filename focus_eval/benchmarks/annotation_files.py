"""Brings published annotations into one document per question: nested rows, and details in a second file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from focus_eval.core.errors import InvalidInput
from focus_eval.core.resources import read_json_object


@dataclass(frozen=True, kw_only=True)
class FileShape:
    """How a benchmark's file differs from one row per question.

    Args:
        nested: field of a row that holds the list of its questions (LVBench: `qa`); "" if a row is a question.
        beside: name of a second file in the annotation's folder with details of each document; `{stem}` is the
            annotation's name without its suffix; "" for none. A document gets its entry there as the field `beside`.
        beside_by: field of a document that holds its key in that file.
    """

    nested: str = ""
    beside: str = ""
    beside_by: str = ""

    def __post_init__(self) -> None:
        """Raise InvalidInput unless `beside` and `beside_by` are both given or both empty."""
        if bool(self.beside) != bool(self.beside_by):
            raise InvalidInput("`beside` names a file and `beside_by` the field that is its key; give both")


def documents_in(rows: Iterable[Mapping[str, Any]], shape: FileShape, path: Path) -> Iterator[Mapping[str, Any]]:
    """Yield the documents of `rows`, which were read from `path`, one for each question.

    If the second file is missing, documents come without its details.

    Raises:
        InvalidInput: a nested field that is no list of objects; names file and row.
    """
    details_by_key = _beside(shape, path)
    for at, row in enumerate(rows):
        for document in _questions_of(row, shape.nested, location=f"{path}: row {at}"):
            key = str(document.get(shape.beside_by))
            yield {**document, "beside": details_by_key[key]} if key in details_by_key else document


def _questions_of(row: Mapping[str, Any], nested: str, *, location: str) -> Iterator[Mapping[str, Any]]:
    """Yield `row`, or one document per question in its list field `nested`, with the row's other fields."""
    if not nested or nested not in row:
        yield row
        return
    questions = row[nested]
    if not isinstance(questions, list) or not all(isinstance(question, Mapping) for question in questions):
        raise InvalidInput(f"{location}: {nested} must be a list of questions, got {type(questions).__name__}")
    shared = {name: value for name, value in row.items() if name != nested}
    for question in questions:
        yield {**shared, **question}


def _beside(shape: FileShape, path: Path) -> Mapping[str, Any]:
    """Return the JSON object in the second file of annotation `path`, by key; {} if there is none.

    A gzipped file is found too.
    """
    if not shape.beside:
        return {}
    stem = path.name.removesuffix(".gz").rpartition(".")[0]
    name = shape.beside.replace("{stem}", stem)
    details_path = next((file for file in (path.with_name(name), path.with_name(f"{name}.gz")) if file.is_file()), None)
    return read_json_object(details_path) if details_path is not None else {}
