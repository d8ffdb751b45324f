"""Notes which videos a process has open, so that a run can go on without a video that crashes its decoder.

    reading-WORKER.jsonl    the videos that a worker's process opened and closed, one line each
    crash-WORKER.txt        what Python wrote when a signal such as SIGSEGV ended the process
    crashes.jsonl           the videos that ended a process, which `open_video` refuses; removed after a run if empty

A process that was killed from outside writes nothing into `crash-WORKER.txt`, so no video is blamed for its end.
"""

from __future__ import annotations

import faulthandler
import json
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import TextIO, TypedDict

import numpy as np

from focus_eval.core.errors import FocusEvalError, RunError, VideoError
from focus_eval.core.processes import DisposableProcess, ProcessDied

# `faulthandler`'s names of the signals that a fault in the process itself raises.
_SIGNALS = {
    "Segmentation fault": signal.SIGSEGV,
    "Aborted": signal.SIGABRT,
    "Bus error": signal.SIGBUS,
    "Illegal instruction": signal.SIGILL,
    "Floating-point exception": signal.SIGFPE,
}
CRASHES_NAME = "crashes.jsonl"
_FRAMES_AT_A_TIME = 256
_notes: _Notes | None = None


@contextmanager
def noting_reads(folder: Path, worker: str) -> Iterator[None]:
    """Note in a run's folder which videos `open_video` opens in this process, and which signal ends it, if one does.

    Within the block `open_video` raises VideoError for a video that ended an earlier process.
    """
    global _notes
    reading, trace = folder / f"reading-{worker}.jsonl", folder / f"crash-{worker}.txt"
    earlier_notes, was_enabled = _notes, faulthandler.is_enabled()
    try:
        with reading.open("w", encoding="utf-8") as reading_file, trace.open("w", encoding="utf-8") as trace_file:
            _notes = _Notes(reading_file, folder / CRASHES_NAME)
            faulthandler.enable(trace_file, all_threads=False)
            try:
                yield
            finally:
                _notes = earlier_notes
                faulthandler.disable()
    finally:
        if was_enabled and sys.__stderr__ is not None:
            faulthandler.enable(sys.__stderr__)
        reading.unlink(missing_ok=True)
        trace.unlink(missing_ok=True)


@contextmanager
def noted(video: Path) -> Iterator[None]:
    """Note that a video is open within the block; do nothing unless this process notes its reads (`noting_reads`).

    Raises:
        VideoError: reading the video ended an earlier process.
        RunError: the notes cannot be read or written.
    """
    notes = _notes
    if notes is None:
        yield
        return
    notes.open(video)
    try:
        yield
    finally:
        notes.write(video, is_open=False)


class _Notes:
    """The notes of this process; may be used from several threads."""

    def __init__(self, file: TextIO, crashes: Path) -> None:
        self._file, self._lock = file, Lock()
        self._crashes = crashes

    def open(self, video: Path) -> None:
        # Read the whole file each time: other processes append to it.
        with _named(self._crashes):
            signal_by_video = {line["video"]: line["signal"] for line in _whole_lines(self._crashes)}
        if (signal_number := signal_by_video.get(str(video))) is not None:
            raise VideoError(
                f"{video}: reading this file ended the process (signal {signal_number}); re-encode it, or run again "
                "with --retry-errors"
            )
        self.write(video, is_open=True)

    def write(self, video: Path, *, is_open: bool) -> None:
        line = json.dumps({"video": str(video), "open": is_open}) + "\n"
        with self._lock, _named(Path(self._file.name)):
            if not self._file.closed:  # it is closed if a reader outlives the run
                self._file.write(line)
                self._file.flush()


@contextmanager
def _named(file: Path) -> Iterator[None]:
    """Turn a disk error into a RunError: it is not the video's fault."""
    try:
        yield
    except OSError as error:
        raise RunError(f"{file}: cannot be used ({error.strerror or error}); run again when it can") from error


@contextmanager
def crash_record(folder: Path, *, forget: bool = False) -> Iterator[None]:
    """Record at the start of a run which videos ended processes of earlier starts.

    Args:
        folder: the run's folder.
        forget: remove the record, so that the videos that ended a process are opened again.
    """
    crashes = folder / CRASHES_NAME
    record_crashes(folder)
    if forget:
        crashes.unlink(missing_ok=True)
    # Create it now: on a shared disk a file created later may stay invisible to other machines for a minute.
    crashes.touch()
    try:
        yield
    finally:
        if crashes.stat().st_size == 0:
            crashes.unlink()


def record_crashes(folder: Path, *, worker: str | None = None) -> None:
    """Record the videos that ended a process which noted its reads, and print a line for each.

    If the process had several videos open, each is read in a new process to find those that end it.

    Args:
        folder: the run's folder.
        worker: glob pattern of workers' names. None: all workers, none of which may still run; notes without a crash
            are then removed too.
    """
    for reading in sorted(folder.glob(f"reading-{worker or '*'}.jsonl")):
        trace = reading.with_name(reading.name.replace("reading-", "crash-", 1)).with_suffix(".txt")
        head = trace.read_text(encoding="utf-8", errors="replace")[:200] if trace.exists() else ""
        signal_number = next((n for name, n in _SIGNALS.items() if f"Fatal Python error: {name}" in head), None)
        if signal_number is None and worker is not None:
            continue  # the worker still runs, or was killed from outside
        n_open: Counter[str] = Counter()
        for line in _whole_lines(reading) if signal_number is not None else ():
            n_open[line["video"]] += 1 if line["open"] else -1
        videos = [video for video, count in n_open.items() if count > 0]
        for video in videos:
            number = signal_number if len(videos) == 1 else _signal_of_reading(Path(video))
            if number is not None:
                with (folder / CRASHES_NAME).open("a", encoding="utf-8") as file:
                    file.write(json.dumps({"video": video, "signal": number}) + "\n")
                print(f"{video}: reading this file ended the process (signal {number})", file=sys.stderr, flush=True)
        # Remove the notes last: if this process is killed before, the next start only records the crash twice.
        reading.unlink()
        trace.unlink(missing_ok=True)


class _Line(TypedDict, total=False):
    """A line of `reading-WORKER.jsonl`, which has `open`, or of `crashes.jsonl`, which has `signal`."""

    video: str
    open: bool
    signal: int


def _whole_lines(path: Path) -> list[_Line]:
    # Leave out what follows the last line break: a line that was not written to its end.
    return [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]] if path.exists() else []


def _signal_of_reading(video: Path) -> int | None:
    """The signal that ends a process which reads all frames of a video; None if the process survives."""
    with DisposableProcess() as process:
        try:
            process.call(_read_whole, video)
        except ProcessDied as death:
            return death.signal_number
    return None


def _read_whole(video: Path) -> None:
    """Read every frame of a video that can be read."""
    from focus_eval.keyframes.video.pyav import PyAVReader

    with suppress(FocusEvalError), PyAVReader(video, n_threads=1) as reader:
        for start in range(0, reader.info.n_frames, _FRAMES_AT_A_TIME):
            with suppress(FocusEvalError):
                for _ in reader.stream(np.arange(start, min(start + _FRAMES_AT_A_TIME, reader.info.n_frames))):
                    pass
