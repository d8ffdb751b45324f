"""The base class of selection formats, and the entries that they read: a selection row with its place in the file."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from focus_eval.bench.benchmarks.registry import read_documents
from focus_eval.bench.rows.entries import FileEntry, file_entry
from focus_eval.core.errors import InvalidInput, SelectionMismatch
from focus_eval.core.options import checked_values, make, named_options
from focus_eval.core.plugins import Registry, check_derived, classes_in
from focus_eval.core.resources import read_json
from focus_eval.core.types import Question
from focus_eval.external.imports.lmms_logs import short_text

# Suffixes of files that `Source.data` must not read as one JSON value.
_NOT_JSON = (".jsonl", ".parquet", ".csv", ".tsv", ".zip", ".npz", ".npy", ".pt", ".txt")


@dataclass(frozen=True, kw_only=True)
class Source:
    """A file of selections with the caller's options.

    Args:
        path: the file, or a folder.
        format: name of its format; "" before it is detected.
        unit: "frames" or "seconds".
        questions: in the order of the annotation; None if none were given.
        allow_missing: leave out questions without frames instead of refusing the file.
    """

    path: Path
    format: str = ""
    unit: str = "frames"
    questions: Sequence[Question] | None = None
    allow_missing: bool = False

    @cached_property
    def data(self) -> Any:
        """Value of the JSON file (or its gzip), read once; None for a folder, or a file of another kind.

        Raises:
            InvalidInput: no such file, or broken JSON.
        """
        suffix = Path(self.path.name.removesuffix(".gz")).suffix
        if self.path.is_dir() or suffix in _NOT_JSON:
            return None
        if suffix != ".json" and self.path.is_file():
            with self.path.open("rb") as file:
                head = file.read(64).removeprefix(b"\xef\xbb\xbf").lstrip()  # without a byte-order mark
            if not head.startswith((b"[", b"{")):
                return None
        return read_json(self.path)

    def selection(
        self, values: object, *, question_id: str, location: str, unit: str | None = None, **fields: Any
    ) -> Iterable[FileEntry]:
        """Yield the entry with frames or times `values`; yield nothing if they are empty and `allow_missing` is set.

        Args:
            unit: unit of this entry, if it differs from that of the file.
            fields: further arguments of `file_entry`.

        Raises:
            SelectionMismatch: no frames, or values that are not of `unit`; names file and entry.
        """
        location = f"{self.path.name}: {location}"
        if values is None or values == []:
            if self.allow_missing:
                return
            raise SelectionMismatch(f"{location} ({question_id}): no frames chosen (--allow-missing leaves it out)")
        unit = unit or self.unit
        values_in_unit = numbers(values, unit=unit, location=f"{location} ({question_id})")
        fields["times_seconds" if unit == "seconds" else "keyframes"] = values_in_unit
        yield file_entry(question_id, self.format, location=location, **fields)

    def records(self, *fields: str) -> list[Mapping[str, object]]:
        """Return the rows of a list, JSON lines or table as objects, after checking that each has these fields.

        Raises:
            SelectionMismatch: not a list of objects, or an object lacks a field; names the field.
        """
        name = self.path.name
        data = read_documents(self.path) if self.data is None and self.path.is_file() else self.data
        if not isinstance(data, list) or not all(isinstance(row, Mapping) for row in data):
            raise SelectionMismatch(f"{name}: format {self.format!r} is a list of rows, one per question")
        for at, row in enumerate(data):
            if missing := [field for field in fields if field not in row]:
                raise SelectionMismatch(
                    f"{name}: row {at} lacks {', '.join(missing)}; it has: {', '.join(map(str, row))}"
                )
        return data

    def rows_with_questions(self, data: object) -> Iterable[tuple[Any, Question]]:
        """Return the entries of a list, each with the question of the same row of the annotation.

        Raises:
            SelectionMismatch: `data` is no list, no questions were given, or there are not as many entries as
                questions.
        """
        name = self.path.name
        if not isinstance(data, list):
            raise SelectionMismatch(f"{name}: format {self.format!r} is a list with one entry per question")
        if self.questions is None:
            raise SelectionMismatch(
                f"{name}: format {self.format!r} follows the order of the annotation; give the questions too"
            )
        if len(data) != len(self.questions):
            raise SelectionMismatch(
                f"{name}: {len(data)} rows for {len(self.questions)} questions; another benchmark or split?"
            )
        return zip(data, self.questions, strict=True)


@dataclass(frozen=True, kw_only=True)
class SelectionFormat(ABC):
    """A format of selection files, registered by its `name`.

    A format with options is a frozen dataclass whose fields, all with defaults, are the options.

    Class attributes:
        name: the registered name.
        summary: description of such a file in a line.
        unit: usual unit of its numbers, "frames" or "seconds".
        is_general: True if files of other formats may look like this one too. Such a format is tried after all others.
        is_written: True if `write` is implemented.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    unit: ClassVar[str] = "frames"
    is_general: ClassVar[bool] = False
    is_written: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Bring the options to their declared types; raise InvalidInput for a value of another type."""
        for name, value in checked_values(f"selection format {self.name!r}", self).items():
            object.__setattr__(self, name, value)

    def detects(self, source: Source) -> bool:
        """Return True if `source` looks like this format; always False for a format that has to be named."""
        return False

    @abstractmethod
    def read(self, source: Source) -> Iterable[FileEntry]:
        """Yield an entry for each question in the file, in the order of the file.

        Raises:
            SelectionMismatch: a file that does not fit; names the entry at fault.
        """

    def write(self, selections: Mapping[str, FileEntry], path: Path, *, questions: Sequence[Question]) -> list[Path]:
        """Write the selections of `questions`, in their order, and return the files written.

        Raises:
            SelectionMismatch: a question without a selection, or a selection that the format cannot hold.
        """
        raise InvalidInput(f"selection format {self.name!r} is read, not written")


def _check(loaded: object, label: str) -> type[SelectionFormat]:
    """The loaded class if it is a selection format; raises PluginError otherwise."""
    kind: type[SelectionFormat] = check_derived(loaded, label, base=SelectionFormat)
    return kind


FORMATS = Registry(
    "selection format",
    group="focus_eval.selection_formats",
    built_in=classes_in("focus_eval.external.imports", base="SelectionFormat"),
    check=_check,
)


def make_format(name: str, **options: object) -> SelectionFormat:
    """Return the selection format `name` ("wfs", "wfs:field=chosen") with `options`.

    Raises:
        UnknownName: no such format or option; the message has the nearest name.
        InvalidInput: an option of another type.
        PluginError: a plugin that cannot be used.
    """
    name, options = named_options(name, options)
    kind = FORMATS.load(name)
    return make(f"selection format {name!r}", kind, options)


def is_list_of_rows(data: object, *fields: str) -> bool:
    """Return True if `data` is a non-empty list of objects that all have `fields`."""
    if not isinstance(data, list) or not data:
        return False
    return all(isinstance(row, Mapping) and all(field in row for field in fields) for row in data)


def numbers(values: object, *, unit: str, location: str) -> list[Any]:
    """Return `values` as ints (unit "frames") or floats (unit "seconds").

    Raises:
        SelectionMismatch: `values` is no list, an item is no finite number, or a frame index is a fraction.
    """
    if not isinstance(values, list):
        raise SelectionMismatch(f"{location}: expected a list of {unit}, got {type(values).__name__}")
    for value in values:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            fix = "; write it without quotes" if isinstance(value, str) else ""
            fix = f"; give each question one flat list of {unit}" if isinstance(value, list) else fix
            raise SelectionMismatch(f"{location}: {short_text(value)} is not a number{fix}")
        if unit == "frames" and value != int(value):
            raise SelectionMismatch(f"{location}: {value!r} is not a frame index; are these seconds? (unit: seconds)")
    return [int(value) for value in values] if unit == "frames" else [float(value) for value in values]
