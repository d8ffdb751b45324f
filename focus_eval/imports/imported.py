"""One imported selection, its frames in a video, and the base class of selection formats."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from focus_eval.benchmarks.registry import read_documents
from focus_eval.core.errors import InvalidInput, SelectionMismatch
from focus_eval.core.gaps import halve_widest_gaps
from focus_eval.core.options import checked_values
from focus_eval.core.resources import read_json
from focus_eval.core.types import Question, VideoInfo


@dataclass(frozen=True, kw_only=True)
class PublishedAnswer:
    """A model's answer published with a selection.

    Args:
        letter: the option it named; None if none could be read.
        correct_letter, is_correct: as stated in the file; None if not stated.
    """

    letter: str | None
    correct_letter: str | None = None
    is_correct: bool | None = None


@dataclass(frozen=True, kw_only=True)
class ImportedSelection:
    """The published keyframes of one question: frame indices, or times if the file states seconds.

    Args:
        question_id: id within the benchmark.
        sampler: name of the sampler in a row of ours, else the format ("aks", "bolt", ...).
        keyframes: ascending frame indices; a frame may repeat (BOLT's may). None if the file states seconds.
        times_seconds: ascending times; None if unknown. At least one of the two is given.
        benchmark, video: "" if the file does not state them and no questions were given.
        k: requested frames; if the file does not state it, the number of keyframes.
        n_frames, fps: length and rate above 0 as stated in the file; None if not stated.
        pulled_frames, pulled_relevance: scored frames in pull order; relevance None if not recorded.
        clips: `[start, stop, n_pulls, mean, radius, is_final]` per arm, as in a `SelectionRow`.
        scales: shrink factor per keyframe or None.
        n_filled: even frames among them that the file does not have (`fill=even`).
        answered: the model's answer, if the file has it; not part of the Parquet file.
        location: file and row it came from, for messages.
    """

    question_id: str
    sampler: str
    keyframes: tuple[int, ...] | None = None
    times_seconds: tuple[float, ...] | None = None
    benchmark: str = ""
    video: str = ""
    k: int = 0
    n_frames: int | None = None
    fps: float | None = None
    pulled_frames: tuple[int, ...] = ()
    pulled_relevance: tuple[float | None, ...] = ()
    clips: tuple[tuple[Any, ...], ...] = ()
    scales: tuple[float, ...] | None = None
    n_filled: int = 0
    answered: PublishedAnswer | None = field(default=None, compare=False)
    location: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        """Raise SelectionMismatch, naming the row, unless frames or times ascend from 0 and scales fit them."""
        values_chosen = self.times_seconds if self.keyframes is None else self.keyframes
        if values_chosen is None:
            raise InvalidInput(f"{self._name}: a selection needs frame indices or times")
        for unit_name, values in (("frame", self.keyframes), ("time", self.times_seconds)):
            if values and values[0] < 0:
                raise SelectionMismatch(f"{self._name}: {unit_name} {values[0]} is below 0")
            if values and any(later < earlier for earlier, later in pairwise(values)):
                raise SelectionMismatch(f"{self._name}: {unit_name}s must ascend")
        if self.scales is not None and len(self.scales) != len(values_chosen):
            raise SelectionMismatch(f"{self._name}: {len(self.scales)} scales for {len(values_chosen)} frames")
        if len(self.pulled_frames) != len(self.pulled_relevance):
            raise SelectionMismatch(f"{self._name}: pulled frames and their relevance differ in length")
        if self.k == 0:
            object.__setattr__(self, "k", len(values_chosen))

    @property
    def n_keyframes(self) -> int:
        """Number of keyframes, repeats counted."""
        return len(self.keyframes if self.keyframes is not None else self.times_seconds or ())

    def frames_in(self, video: VideoInfo) -> tuple[int, ...]:
        """Return the ascending frame indices of this selection in `video`.

        A time means the frame nearest to it at the video's average rate.

        Raises:
            SelectionMismatch: a frame or time past the end; names the row.
        """
        if self.keyframes is not None:
            if self.keyframes and self.keyframes[-1] >= video.n_frames:
                raise SelectionMismatch(f"{self._name}: frame {self.keyframes[-1]} asked, video has {video.n_frames}")
            return self.keyframes
        times = self.times_seconds or ()
        if times and times[-1] > video.duration_seconds:
            raise SelectionMismatch(
                f"{self._name}: {times[-1]:g} s asked, video has {video.duration_seconds:.2f} s; frame indices?"
            )
        return tuple(min(int(time * video.fps + 0.5), video.n_frames - 1) for time in times)

    def times_at(self, fps: float | None) -> tuple[float, ...]:
        """Return the times of the keyframes in seconds; frame indices become `frame / fps`.

        Raises:
            InvalidInput: frames, but no rate.
        """
        if self.keyframes is None:
            return self.times_seconds or ()
        if fps is None:
            raise InvalidInput(f"{self._name}: frame indices need the video's rate to become times")
        return tuple(frame / fps for frame in self.keyframes)

    @property
    def _name(self) -> str:
        """Place in the file and question id, for messages."""
        return f"{self.location} ({self.question_id})" if self.location else self.question_id


def selections_hash(selections: Mapping[str, ImportedSelection]) -> str:
    """Return 16 hexadecimal digits over all that a replay depends on: ids, frames, times, scales."""
    content = [
        [key, selection.keyframes, selection.times_seconds if selection.keyframes is None else None, selection.scales]
        for key, selection in sorted(selections.items())
    ]
    return hashlib.sha256(json.dumps(content, separators=(",", ":")).encode()).hexdigest()[:16]


# Grid on which selections in seconds are filled.
TIMES_PER_SECOND = 1000.0
# Written beside the frames by the public FOCUS code: by this file its list is told from AKS's.
DETAILS_FILE = "sampling_details.json"
# Rows by line, in columns, or packed.
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
        if suffix != ".json" and self.path.is_file() and not _begins_like_json(self.path):
            return None
        return read_json(self.path)

    def selection(
        self,
        values: Any,
        *,
        question_id: str,
        location: str,
        video: str = "",
        unit: str | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> Iterable[ImportedSelection]:
        """Yield the selection with frames or times `values`; nothing for an empty one if `allow_missing`.

        Args:
            unit: of this entry, if it is not that of the file.

        Raises:
            SelectionMismatch: no frames, or values that are not of `unit`; names file and entry.
        """
        location = f"{self.path.name}: {location}"
        if isinstance(values, list) and not values:
            if self.allow_missing:
                return
            raise SelectionMismatch(f"{location} ({question_id}): no frames chosen (--allow-missing leaves it out)")
        unit = unit or self.unit
        values_in_unit = numbers(values, unit=unit, location=f"{location} ({question_id})")
        frames_or_times: dict[str, Any] = {"times_seconds" if unit == "seconds" else "keyframes": values_in_unit}
        fields: dict[str, Any] = {"sampler": self.format, "video": video, **frames_or_times, **(details or {})}
        yield ImportedSelection(question_id=question_id, location=location, **fields)

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
    def read(self, source: Source) -> Iterable[ImportedSelection]:
        """Yield the selections, in the file's order.

        Raises:
            SelectionMismatch: a file that does not fit; names the entry at fault.
        """

    def write(
        self, selections: Mapping[str, ImportedSelection], path: Path, *, questions: Sequence[Question]
    ) -> list[Path]:
        """Write the selections of `questions`, in their order, and return the files written.

        Raises:
            SelectionMismatch: a question without a selection, or a selection that the format cannot hold.
        """
        raise InvalidInput(f"selection format {self.name!r} is read, not written")


def _begins_like_json(path: Path) -> bool:
    """Return True if the file's first character, after a byte-order mark and blanks, is `[` or `{`."""
    with path.open("rb") as file:
        return file.read(64).removeprefix(b"\xef\xbb\xbf").lstrip()[:1] in (b"[", b"{")


def is_list_of_lists(data: Any) -> bool:
    """Return True if `data` is a non-empty list of lists."""
    return isinstance(data, list) and bool(data) and all(isinstance(row, list) for row in data)


def is_list_of_rows(data: Any, *fields: str) -> bool:
    """Return True if `data` is a non-empty list of objects that all have `fields`."""
    is_list = isinstance(data, list) and bool(data)
    return is_list and all(isinstance(row, Mapping) and all(field in row for field in fields) for row in data)


def is_mapping_of_lists(data: Any) -> bool:
    """Return True if `data` is a non-empty mapping of names to lists."""
    return isinstance(data, Mapping) and bool(data) and all(isinstance(value, list) for value in data.values())


def video_stem(video: str) -> str:
    """Return the file name of `video` without folder and suffix."""
    return Path(str(video)).stem


def in_order(selections: Mapping[str, ImportedSelection], questions: Sequence[Question]) -> list[ImportedSelection]:
    """Return the selections in the order of `questions`, one for each, for formats that go by row.

    Raises:
        SelectionMismatch: a question without a selection, or a selection of no question.
    """
    for row, question in enumerate(questions):
        if question.id not in selections:
            raise SelectionMismatch(
                f"row {row} ({question.id}): no selection; a list by row needs one for every question"
            )
    if len(selections) > len(questions):
        extra = sorted(set(selections) - {question.id for question in questions})[0]
        raise SelectionMismatch(f"{extra!r} is not a question of this benchmark ({len(questions)} questions)")
    return [selections[question.id] for question in questions]


def frames_of(selection: ImportedSelection) -> tuple[int, ...]:
    """Return the frame indices of `selection`, for a format that cannot hold times.

    Raises:
        SelectionMismatch: a selection in seconds.
    """
    if selection.keyframes is None:
        raise SelectionMismatch(f"{selection.question_id}: chosen in seconds; this format needs frame indices")
    return selection.keyframes


# An annotation's length and a file's real one differ by up to a second in LongVideoBench.
SLACK_SECONDS = 1.0
# Below this many frames in all, "every index is smaller than the seconds" may be chance.
_FEWEST_FRAMES_TO_JUDGE = 16


def numbers(values: Any, *, unit: str, location: str) -> tuple[Any, ...]:
    """Return `values` as ascending ints (unit "frames") or floats (unit "seconds").

    Raises:
        SelectionMismatch: no list, no number, not finite, or a fraction as a frame index.
    """
    if not isinstance(values, list):
        raise SelectionMismatch(f"{location}: expected a list of {unit}, got {type(values).__name__}")
    for value in values:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            raise SelectionMismatch(f"{location}: {value!r} is not a number of {unit}")
        if unit == "frames" and value != int(value):
            raise SelectionMismatch(f"{location}: {value!r} is not a frame index; are these seconds? (unit: seconds)")
    return tuple(int(value) for value in values) if unit == "frames" else tuple(float(value) for value in values)


def check_unit_plausible(selections: Mapping[str, ImportedSelection], questions: Sequence[Question]) -> None:
    """Raise SelectionMismatch for "frames" that never exceed their videos' lengths in seconds: probably seconds.

    Files of few frames are not judged.

    Raises:
        SelectionMismatch: names the first row and its length.
    """
    seconds = {question.id: question.duration_seconds for question in questions}
    judged = [
        (selection, selection.keyframes[-1], length)
        for key, selection in selections.items()
        if selection.keyframes and (length := seconds.get(key)) is not None
    ]
    if sum(selection.n_keyframes for selection, _, _ in judged) < _FEWEST_FRAMES_TO_JUDGE:
        return
    if all(last <= length + SLACK_SECONDS for _, last, length in judged):
        selection, last, length = judged[0]
        raise SelectionMismatch(
            f"{selection.location} ({selection.question_id}): no frame of this file is past its video's length in "
            f"seconds (here: {last} of {length:g} s); these are seconds (unit: seconds)"
        )


def check_lengths(
    selections: Mapping[str, ImportedSelection],
    questions: Sequence[Question],
    fps: Mapping[str, float],
    *,
    left_out: list[str] | None = None,
) -> dict[str, ImportedSelection]:
    """Return the selections after checking that none goes more than a second past its video's annotated end.

    Args:
        fps: rate by question id, for selections without their own; without rate or length, frames are not checked.
        left_out: if given, takes a sentence about each selection that loses frames; one without any left is dropped.

    Raises:
        SelectionMismatch: a frame past the end, and no `left_out`; names the row.
    """
    seconds = {question.id: question.duration_seconds for question in questions}
    checked = {}
    for key, selection in selections.items():
        length, rate = seconds.get(key), selection.fps or fps.get(key)
        is_known = length is not None and (selection.keyframes is None or rate is not None)
        times = selection.times_at(rate) if is_known else ()
        if length is None or not times or times[-1] <= length + SLACK_SECONDS:
            checked[key] = selection
            continue
        problem = _past_end(selection, times, length)
        if left_out is None:
            raise SelectionMismatch(f"{problem} (--allow-outside leaves it out)")
        inside = sum(time <= length + SLACK_SECONDS for time in times)
        left_out.append(f"{problem}; {len(times) - inside} of {len(times)} frames left out")
        if inside:
            checked[key] = _first_frames(selection, inside)
    return checked


def filled_selections(
    selections: Mapping[str, ImportedSelection], questions: Sequence[Question], fps: Mapping[str, float]
) -> dict[str, ImportedSelection]:
    """Return the selections, those of fewer different frames than the usual K filled up in their widest gaps.

    Raises:
        InvalidInput: a selection to fill whose video's length is not known, or its rate where the file states frames.
        SelectionMismatch: a selection with answers, which were given without the added frames.
    """
    seconds = {question.id: question.duration_seconds for question in questions}
    counts = Counter(selection.k for selection in selections.values())
    k = max(counts, key=lambda n: (counts[n], n))
    filled = {}
    for key, selection in selections.items():
        frames, times, length = selection.keyframes, selection.times_seconds, seconds.get(key)
        rate = TIMES_PER_SECOND if frames is None else selection.fps or fps.get(key)
        grid = np.unique(
            np.rint(np.array(times or ()) * TIMES_PER_SECOND) if frames is None else np.array(frames)
        ).astype(np.int64)
        if grid.size >= k:
            filled[key] = selection
            continue
        if selection.answered is not None:
            raise SelectionMismatch(f"{selection.location} ({key}): the model answered without filled frames")
        if length is None or rate is None:
            raise InvalidInput(f"{selection.location} ({key}): fill=even needs the video's length and rate (--rates)")
        n_frames = max(int(length * rate), int(grid.max(initial=-1)) + 1)
        added_frames = np.setdiff1d(halve_widest_gaps(grid, min(k, n_frames), n_frames), grid)
        changes: dict[str, Any] = {
            "keyframes": tuple(sorted([*grid.tolist(), *added_frames.tolist()])),
            "times_seconds": None,
        }
        if frames is None:
            changes = {"times_seconds": tuple(sorted({*(times or ()), *(added_frames / rate).tolist()}))}
        filled[key] = dataclasses.replace(selection, **changes, scales=None, n_filled=int(added_frames.size))
    return filled


def _past_end(selection: ImportedSelection, times: Sequence[float], length: float) -> str:
    """Return the message for a selection whose last frame or time is past the end of its video, `length` seconds."""
    is_time = selection.keyframes is None
    last_text = (
        f"{times[-1]:g} s" if selection.keyframes is None else f"frame {selection.keyframes[-1]} ({times[-1]:.1f} s)"
    )
    hint = "are these frames? (unit: frames)" if is_time else "past the end"
    return f"{selection.location} ({selection.question_id}): {last_text} asked, the video has {length:g} s; {hint}"


def _first_frames(selection: ImportedSelection, n: int) -> ImportedSelection:
    """Return the selection with only its first `n` frames, times and scales."""
    cut: dict[str, Any] = {
        name: values[:n]
        for name in ("keyframes", "times_seconds", "scales")
        if (values := getattr(selection, name)) is not None
    }
    return dataclasses.replace(selection, **cut)
