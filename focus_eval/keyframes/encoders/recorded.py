"""Gives relevance from a table instead of pixels: a trace, or the pulls of an earlier run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from focus_eval.core.errors import EncoderError, InvalidInput
from focus_eval.core.types import FloatArray, IntArray, checked_query, frozen_floats
from focus_eval.keyframes.encoders.base import Encoder

_WILDCARD = ""  # matches any video or query
_Key = tuple[str, str]
_Row = tuple[str, str, ArrayLike, ArrayLike]  # video, query, frames (n,), relevance (n,)


class RecordedScorer(Encoder):
    """Relevance by frame index from a record; no frame is read. A frame without a record raises EncoderError.

    Args:
        trace: relevance in [0, 1] of frames 0, 1, ... `(n_frames,)`, for any video and query; NaN: not recorded.
        path: a file, instead of `trace`. A `.npy` file holds a trace. A `.jsonl` file holds objects with video, query,
            pulled_frames and pulled_relevance, such as the selection rows of a run; an incomplete last line, left by a
            killed run, is skipped. A video is matched by its file name, with or without the suffix.

    Raises:
        InvalidInput: both or neither given, a file of another kind, or values outside [0, 1].
    """

    name: ClassVar[str] = "recorded"
    needs_gpu: ClassVar[bool] = False
    reads_frames: ClassVar[bool] = False

    def __init__(self, trace: ArrayLike | None = None, *, path: Path | None = None) -> None:
        """Read the trace or the file; raise InvalidInput unless exactly one is given and it holds relevance."""
        if (trace is None) == (path is None):
            raise InvalidInput("encoder 'recorded' needs a trace or the path of a file: exactly one of the two")
        self._source = str(path) if path is not None else "the trace"
        rows = _read(Path(path)) if path is not None else [_trace_row(trace)]
        self._table: dict[_Key, dict[int, float]] = {}
        for row in rows:
            self._add(*row)
        if not any(self._table.values()):
            raise InvalidInput(f"{self._source}: no relevance in this file")
        self.revision = f"{Path(path).name if path is not None else 'trace'} {_digest(self._table)}"

    def relevance_of(self, video: Path, frames: IntArray, query: str) -> FloatArray:
        """Return the recorded relevance of `frames`; raise EncoderError for a query or a frame without one."""
        video, query = Path(video), checked_query(query)
        # A trace is stored without video and query: use it if there is no row for this video and query.
        keys = ((video.name, query), (video.stem, query), (_WILDCARD, _WILDCARD))
        relevance_by_frame = next((self._table[key] for key in keys if key in self._table), None)
        if relevance_by_frame is None:
            raise EncoderError(f"{video.name}: nothing is recorded for the query {query[:60]!r} in {self._source}")
        values = np.array(
            [relevance_by_frame.get(frame, np.nan) for frame in np.asarray(frames).tolist()], dtype=np.float64
        )
        if np.isnan(values).any():
            frame = int(np.asarray(frames)[np.isnan(values)][0])
            raise EncoderError(
                f"{video.name}: frame {frame} has no relevance in {self._source} ({len(relevance_by_frame)} have)"
            )
        return values

    def _add(self, video: str, query: str, frames: ArrayLike, relevance: ArrayLike) -> None:
        """Add one row of relevance to the table, without NaN; raise InvalidInput for values outside [0, 1]."""
        numbers, values = np.asarray(frames), frozen_floats(relevance)
        label = f"{self._source}: {video}" if video else self._source
        if numbers.shape != values.shape or (numbers.size and numbers.dtype.kind not in "iu"):
            raise InvalidInput(f"{label}: {numbers.size} frame indices for {values.size} relevance values")
        is_number = ~np.isnan(values)
        bad = is_number & ~((values >= 0) & (values <= 1) & (numbers >= 0))
        if bad.any():
            at = int(np.flatnonzero(bad)[0])
            raise InvalidInput(f"{label}: frame {numbers[at]} has relevance {values[at]}, not a number in [0, 1]")
        key = (Path(video).name, query.strip())
        relevance_by_frame = self._table.setdefault(key, {})
        for frame, value in zip(numbers[is_number].tolist(), values[is_number].tolist(), strict=True):
            if relevance_by_frame.setdefault(frame, value) != value:
                raise InvalidInput(
                    f"{label}: frame {frame} is recorded twice, as {relevance_by_frame[frame]} and {value}"
                )


def _trace_row(trace: object) -> _Row:
    """A trace, relevance of frames 0, 1, .., as a row for any video and query."""
    values = np.asarray(trace)
    if values.ndim != 1 or values.dtype.kind not in "fiub":
        raise InvalidInput(f"a relevance trace must be numbers of shape (n_frames,), got {values.dtype} {values.shape}")
    return _WILDCARD, _WILDCARD, np.arange(values.size), values


def _read(path: Path) -> list[_Row]:
    readers = {".npy": _read_npy, ".jsonl": _read_json_lines}
    if path.suffix not in readers:
        raise InvalidInput(f"{path}: relevance is read from {', '.join(readers)} files")
    try:
        return list(readers[path.suffix](path))
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error}") from error
    except (OSError, ValueError, TypeError, KeyError, MemoryError, OverflowError) as error:
        text = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise InvalidInput(f"{path}: no recorded relevance can be read ({text})") from error


def _read_npy(path: Path) -> Iterable[_Row]:
    """Yield the one row of a NumPy file: a trace for any video and query."""
    yield _trace_row(np.load(path, allow_pickle=False))


def _read_json_lines(path: Path) -> Iterable[_Row]:
    """Yield a row per line of a run's rows; an incomplete last line is skipped, another raises InvalidInput."""
    lines = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines, start=1):
        try:
            row = json.loads(line) if line.strip() else None
        except ValueError as error:
            if number == len(lines):  # unfinished last line: the writer was killed
                return
            raise InvalidInput(f"line {number} is not JSON ({error})") from error
        if row is not None:
            yield _json_row(row, number)


def _json_row(row: object, number: int) -> _Row:
    """(video, query, frames, relevance) of a decoded line; null relevance becomes NaN."""
    required_keys = ("video", "query", "pulled_frames", "pulled_relevance")
    missing = [key for key in required_keys if not isinstance(row, dict) or key not in row]
    if missing or not isinstance(row, dict):
        raise InvalidInput(f"line {number} has no {missing[0]}")
    video, query, frames, values = (row[key] for key in required_keys)
    numbers = np.array(frames, dtype=np.int64)
    return str(video), str(query), numbers, [np.nan if value is None else float(value) for value in values]


def _digest(table: dict[_Key, dict[int, float]]) -> str:
    digest = hashlib.sha256()
    for key in sorted(table):
        frames = np.array(sorted(table[key]), dtype="<i8")
        values = np.array([table[key][frame] for frame in frames.tolist()], dtype="<f8")
        digest.update(json.dumps([*key, frames.size]).encode() + frames.tobytes() + values.tobytes())
    return digest.hexdigest()[:12]
