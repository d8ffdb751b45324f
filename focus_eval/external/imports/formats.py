"""The base class of selection formats, and the entries that they read: a selection row with its place in the file."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from focus_eval.bench.benchmarks.registry import read_documents
from focus_eval.core.errors import InvalidInput, SelectionMismatch
from focus_eval.core.options import checked_values, make, named_options
from focus_eval.core.plugins import Registry, check_derived, classes_in
from focus_eval.core.resources import read_json
from focus_eval.core.types import Question, VideoInfo
from focus_eval.external.imports.lmms_logs import Verdict, short_text
from focus_eval.keyframes.rows.records import Origin, SelectionRow, stated_row

# Rows by line, in columns, or packed.
_NOT_JSON = (".jsonl", ".parquet", ".csv", ".tsv", ".zip", ".npz", ".npy", ".pt", ".txt")


class FileEntry(NamedTuple):
    """What a file states of one question.

    Args:
        selection: the row as the file states it: frames or times, the other None, without an id; `imports.loading`
            makes a report's rows from it.
        verdict: the model's answer and whether it is right, if the file has them.
        location: file and entry, for messages.
    """

    selection: SelectionRow
    verdict: Verdict | None = None
    location: str = ""

    @property
    def place(self) -> str:
        """Place in the file and question id, for messages."""
        question_id = self.selection.question_id
        return f"{self.location} ({question_id})" if self.location else question_id

    @property
    def shown(self) -> Sequence[float]:
        """The keyframes, or their times if the file states seconds; repeats count."""
        return self.selection.keyframes if self.selection.keyframes is not None else self.selection.times_seconds or ()

    def times_at(self, fps: float | None) -> list[float]:
        """Return the times of the keyframes in seconds; frame indices become `frame / fps`.

        Raises:
            InvalidInput: frames, but no rate.
        """
        if self.selection.keyframes is None:
            return list(self.shown)
        if fps is None:
            raise InvalidInput(f"{self.place}: frame indices need the video's rate to become times")
        return [frame / fps for frame in self.shown]

    def frames_in(self, video: VideoInfo) -> list[int]:
        """Return the ascending keyframes in `video`; a time means the frame nearest to it at the average rate.

        Raises:
            SelectionMismatch: a frame or time past the end; names the row.
        """
        last = self.shown[-1] if self.shown else 0
        if self.selection.keyframes is not None:
            if last >= video.n_frames:
                raise SelectionMismatch(f"{self.place}: frame {last} asked, video has {video.n_frames}")
            return self.selection.keyframes
        if last > video.duration_seconds:
            raise SelectionMismatch(
                f"{self.place}: {last:g} s asked, video has {video.duration_seconds:.2f} s; frame indices?"
            )
        return video.frames_at(self.shown)


def file_entry(
    question_id: str,
    sampler: str,
    *,
    keyframes: Sequence[int] | None = None,
    times_seconds: Sequence[float] | None = None,
    verdict: Verdict | None = None,
    location: str = "",
    k: int = 0,
    **fields: Any,
) -> FileEntry:
    """Return what a file states of one question, after checking it.

    Args:
        sampler: its name in a row of ours, else the format's.
        keyframes, times_seconds: ascending, a frame may repeat (BOLT's may); None if not stated, one of the two is.
        k: requested frames; 0 for the number of keyframes.
        fields: others of a `SelectionRow` that the file states: benchmark, video, n_frames, fps, scales, pulls, clips.

    Raises:
        SelectionMismatch: frames or times that do not ascend from 0, or scales or relevance of another number.
    """
    place = f"{location} ({question_id})" if location else question_id
    shown_values = times_seconds if keyframes is None else keyframes
    if shown_values is None:
        raise InvalidInput(f"{place}: a selection needs frame indices or times")
    for unit_name, values in (("frame", keyframes), ("time", times_seconds)):
        if values and values[0] < 0:
            raise SelectionMismatch(f"{place}: {unit_name} {values[0]} is below 0")
        if values and any(later < earlier for earlier, later in pairwise(values)):
            raise SelectionMismatch(f"{place}: {unit_name}s must ascend; sort them")
    scales = fields.get("scales")
    if scales is not None and len(scales) != len(shown_values):
        raise SelectionMismatch(f"{place}: {len(scales)} scales for {len(shown_values)} frames")
    if len(fields.get("pulled_frames", ())) != len(fields.get("pulled_relevance", ())):
        raise SelectionMismatch(f"{place}: pulled frames and their relevance differ in length")
    selection = stated_row(
        question_id,
        Origin(selection_id="", sampler=sampler, k=k or len(shown_values)),
        keyframes=None if keyframes is None else list(keyframes),
        times_seconds=None if times_seconds is None else list(times_seconds),
        **fields,
    )
    return FileEntry(selection, verdict, location)


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
        self, values: Any, *, question_id: str, location: str, unit: str | None = None, **fields: Any
    ) -> Iterable[FileEntry]:
        """Yield the entry with frames or times `values`; nothing for an empty one if `allow_missing`.

        Args:
            unit: of this entry, if it is not that of the file.
            fields: further ones of `file_entry`.

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

    def records(self, *fields: str) -> list[Mapping[str, Any]]:
        """Return the rows of a list, JSON lines or table as objects, after checking that each has these fields.

        Raises:
            SelectionMismatch: not a list of objects, or one that lacks a field; names it.
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

    def rows_with_questions(self, data: Any) -> Iterable[tuple[Any, Question]]:
        """Return the entries of a list, each with the question of the same row of the annotation.

        Raises:
            SelectionMismatch: not a list, no questions given, or another number of rows.
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
        is_general: True if files of other formats may look like this one too; detected after the others.
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
        """Yield what the file states of each question, in its order.

        Raises:
            SelectionMismatch: a file that does not fit; names the entry at fault.
        """

    def write(self, selections: Mapping[str, FileEntry], path: Path, *, questions: Sequence[Question]) -> list[Path]:
        """Write the selections of `questions`, in their order, and return the files written.

        Raises:
            SelectionMismatch: a question without a selection, or a selection that the format cannot hold.
        """
        raise InvalidInput(f"selection format {self.name!r} is read, not written")


def _check(loaded: Any, label: str) -> type[SelectionFormat]:
    """Return the loaded class if it is a selection format; raise PluginError otherwise."""
    kind: type[SelectionFormat] = check_derived(loaded, label, base=SelectionFormat)
    return kind


FORMATS = Registry(
    "selection format",
    group="focus_eval.selection_formats",
    built_in=classes_in("focus_eval.external.imports", base="SelectionFormat"),
    check=_check,
)


def make_format(name: str, **options: Any) -> SelectionFormat:
    """Return the selection format `name` ("wfs", "wfs:field=chosen") with `options`.

    Raises:
        UnknownName: no such format or option; the message has the nearest name.
        InvalidInput: an option of another type.
        PluginError: a plugin that cannot be used.
    """
    name, options = named_options(name, options)
    kind = FORMATS.load(name)
    return make(f"selection format {name!r}", kind, options)


def is_list_of_rows(data: Any, *fields: str) -> bool:
    """Return True if `data` is a non-empty list of objects that all have `fields`."""
    is_list = isinstance(data, list) and bool(data)
    return is_list and all(isinstance(row, Mapping) and all(field in row for field in fields) for row in data)


def numbers(values: Any, *, unit: str, location: str) -> list[Any]:
    """Return `values` as ints (unit "frames") or floats (unit "seconds").

    Raises:
        SelectionMismatch: no list, no number, not finite, or a fraction as a frame index.
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
