"""Selections with their place in a file, of published formats and of our own rows, for replays."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from focus_eval.bench.rows.store import parquet_records
from focus_eval.core.errors import InvalidInput, SelectionMismatch
from focus_eval.core.resources import HALF_ESCAPED, open_unpacked, whole_texts
from focus_eval.core.types import VideoInfo
from focus_eval.keyframes.rows.json_lines import read_lines as read_run_lines
from focus_eval.keyframes.rows.records import Origin, SelectionRow, stated_row

_SUFFIXES = (".jsonl", ".parquet")
LinesOf = Callable[[Path], Iterator[tuple[int, dict[str, Any]]]]


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """A model's answer as a log or a published file states it.

    Args:
        score: as stated; of a log's entry without one 1.0 if prediction and right answer are equal, else 0.0. None if a
            published file does not state it.
        predicted, right: the answer that was read, and the right one; None if not stated.
    """

    score: float | None
    predicted: str | None = None
    right: str | None = None


class FileEntry(NamedTuple):
    """Statement of a file about one question.

    Args:
        selection: the row as the file states it: frames or times, the other None, without an id.
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
            InvalidInput: the entry has frame numbers and `fps` is None.
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
    """Return the entry of one question, after checking it.

    Args:
        sampler: name of the sampler in our rows, else name of the format.
        keyframes, times_seconds: ascending; a frame may repeat, as in BOLT's files. Exactly one of the two is None.
        k: requested frames; 0 for the number of keyframes.
        fields: further fields of a `SelectionRow` that the file states: benchmark, video, n_frames, fps, scales, pulls,
            clips.

    Raises:
        SelectionMismatch: frames or times do not ascend from 0 on, or scales or relevance differ from them in number.
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


def read_own_rows(path: Path, *, sampler: str | None = None, allow_missing: bool = False) -> list[FileEntry]:
    """Return the selections in our rows, which must be of one sampler.

    Args:
        path: a file, or the folder of a run.
        sampler: a sampler's name or a selection id; required if the rows hold several.
        allow_missing: leave out failed questions instead of refusing the rows.

    Raises:
        SelectionMismatch: rows of several samplers, of a failed question, or that are no selections.
        InvalidInput: no rows, or a file that cannot be read.
    """
    # A run's last line may be unfinished; in any other file the last line counts.
    lines_of = read_run_lines if path.is_dir() else read_lines
    files = _row_files(path) if path.is_dir() else [path]
    rows = [(location, row) for file in files for location, row in _rows_of(file, lines_of)]
    if not rows:
        raise InvalidInput(f"{path}: no selection rows (*.jsonl or *.parquet) here")
    rows = _of_one_sampler(rows, sampler, path)
    failed = next(((location, row) for location, row in rows if row.get("error")), None)
    if failed is not None and not allow_missing:
        location, row = failed
        raise SelectionMismatch(f"{location} ({row.get('question_id')}): no selection, {row['error']}")
    return [_entry(row, location) for location, row in rows if not row.get("error")]


def is_rows_path(path: Path) -> bool:
    """Return True if `path` looks like our rows: by its suffix, or as a folder that holds such files."""
    return Path(path.name.removesuffix(".gz")).suffix in _SUFFIXES or (path.is_dir() and bool(_row_files(path)))


def holds_own_rows(path: Path) -> bool:
    """Return True if the first row of a file, or of a run's folder, is a selection row of ours."""
    if not is_rows_path(path):
        return False
    files = _row_files(path) if path.is_dir() else [path]
    for file in files:
        for _, row in _rows_of(file, read_run_lines if path.is_dir() else read_lines):
            return {"question_id", "sampler"} <= row.keys() and ("keyframes" in row or "times_seconds" in row)
    return path.is_dir()


def _row_files(folder: Path) -> list[Path]:
    """Files of selection rows, without costs, in the folder of a run, of its `selections/`, or of one part."""
    inside = folder / "selections" if (folder / "selections").is_dir() else folder
    files = [*inside.glob("*"), *inside.glob("*/*")]
    return sorted(file for file in files if file.suffix in _SUFFIXES and file.name != "costs.parquet")


def _rows_of(file: Path, lines_of: LinesOf) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield (location such as "file: line 3", row) pairs of `file`; `lines_of` reads it unless it is Parquet.

    Raises InvalidInput if there is no file.
    """
    if not file.is_file():
        raise InvalidInput(f"{file}: no such file")
    if file.suffix == ".parquet":
        yield from ((f"{file.name}: row {number}", row) for number, row in enumerate(parquet_records(file)))
    else:
        yield from ((f"{file.name}: line {number}", row) for number, row in lines_of(file))


def _of_one_sampler(
    rows: list[tuple[str, Mapping[str, object]]], sampler: str | None, path: Path
) -> list[tuple[str, Mapping[str, object]]]:
    """Return the rows of `sampler` (a name or a selection id), or all if it is None.

    Raises SelectionMismatch if no rows are left, or if the rows are of several selections.
    """
    if sampler is not None:
        named_rows = [
            (location, row) for location, row in rows if sampler in (row.get("sampler"), row.get("selection_id"))
        ]
        if not named_rows:
            names = sorted({str(row.get("sampler")) for _, row in rows})
            raise SelectionMismatch(f"{path.name}: no rows of {sampler!r}; there are: {', '.join(names)}")
        rows = named_rows
    kinds = {(str(row.get("sampler")), str(row.get("selection_id", "")), str(row.get("benchmark"))) for _, row in rows}
    if len(kinds) > 1:
        listed = ", ".join(f"{name} {identity}" for name, identity, _ in sorted(kinds))
        raise SelectionMismatch(f"{path.name}: rows of {len(kinds)} samplers ({listed}); say which (rows:sampler=NAME)")
    return rows


def _entry(row: Mapping[str, Any], location: str) -> FileEntry:
    """The selection in a row; raises SelectionMismatch if its frames are unknown or it is no selection row."""
    keyframes, times = row.get("keyframes"), row.get("times_seconds") or None
    if keyframes is None and times is None:
        reason = "no keyframes, so not a selection row of ours; name its format: rows of id and frames are wfs"
        reason = "a line of an lmms-eval log; name its format, lmms:frames_field=NAME" if "doc_id" in row else reason
        raise SelectionMismatch(f"{location}: {'the frames are not known' if 'keyframes' in row else reason}")
    try:
        return file_entry(
            str(row["question_id"]),
            str(row.get("sampler") or "rows"),
            keyframes=None if keyframes is None else [int(frame) for frame in keyframes],
            times_seconds=None if times is None else [float(time) for time in times],
            benchmark=str(row.get("benchmark") or ""),
            video=str(row.get("video") or ""),
            k=int(row.get("k") or 0),
            n_frames=int(row.get("n_frames") or 0) or None,
            fps=float(row.get("fps") or 0.0) or None,
            pulled_frames=[int(frame) for frame in row.get("pulled_frames") or ()],
            pulled_relevance=[None if item is None else float(item) for item in row.get("pulled_relevance") or ()],
            clips=[list(clip) for clip in row.get("clips") or ()],
            scales=None if row.get("scales") is None else [float(scale) for scale in row["scales"]],
            facts={"filled": int(row["n_filled"])} if row.get("n_filled") else {},
            location=location,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise SelectionMismatch(f"{location}: not a selection row ({type(error).__name__}: {error})") from error


def read_lines(path: Path, *, expected: int | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the number (from 1) and the value of each line of a JSON-lines file, gzipped or not.

    Args:
        expected: expected number of lines, for the message about a file that is cut off.

    Raises:
        InvalidInput: a line that is cut off or is not a JSON object; names file and line.
    """
    number = 0
    try:
        with open_unpacked(path) as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield number, _parsed(line, path, number, expected)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise _cut_off(path, number + 1, expected) from error
    except OSError as error:
        raise InvalidInput(f"{path}: cannot be read ({error.strerror or error})") from error


def _parsed(line: bytes, path: Path, number: int, expected: int | None) -> dict[str, Any]:
    """The object in one line of the file; raises InvalidInput if it is cut off, damaged or no object."""
    try:
        values = json.loads(text := line.decode("utf-8-sig"))
        values = whole_texts(values) if HALF_ESCAPED.search(text) else values
    except ValueError as error:
        if not line.endswith(b"\n"):
            raise _cut_off(path, number, expected) from error
        raise InvalidInput(f"{path}:{number}: not JSON ({error}); the file was edited or damaged") from error
    except RecursionError as error:
        raise InvalidInput(f"{path}:{number}: JSON nested too deeply") from error
    if not isinstance(values, dict):
        raise InvalidInput(f"{path}:{number}: not an object but {type(values).__name__}; write one object a line")
    return values


def _cut_off(path: Path, number: int, expected: int | None) -> InvalidInput:
    """The error for a file that ends within line `number`; `expected` is the number of lines, if known."""
    of = f" of {expected}" if expected else ""
    return InvalidInput(f"{path}:{number}: cut off here, {number - 1}{of} lines are whole; copy the file again")
