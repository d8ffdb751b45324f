"""Compares what the reader gives of a file that a device or another project made with a plain decode in order."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.support.keyframes.faults import Reading, plain_decode, print_reading, read_here, run_apart

VERDICTS = ("right", "wrong", "refused rightly", "refused falsely", "crashed", "hung")


def judge_apart(path: Path, *, seconds: float) -> Reading:
    """Judge a file in a process with limits of memory and time; see `judge_here`."""
    return run_apart("tests.support.keyframes.devices", path, seconds=seconds)


def judge_here(path: Path) -> Reading:
    """Read every frame forward and every fifth alone, and say which of `VERDICTS` is true, and why.

    A refusal, of the file or of some frames, is right where the plain decode shows that something is wrong, too: it
    cannot open the file, finds no picture in it, raises an error, logs one, or marks a frame as damaged.
    """
    prints, complaint = plain_decode(path)
    reading = read_here(path, prints)
    if reading.kind == "right":
        return reading
    if reading.kind == "refused":
        if not complaint:
            return Reading("refused falsely", reading.detail)
        return Reading("refused rightly", f"{reading.detail} (plain decode: {complaint})")
    return Reading("wrong", reading.detail)


if __name__ == "__main__":
    print_reading(lambda: judge_here(Path(sys.argv[1])))
