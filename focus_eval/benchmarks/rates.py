"""Lengths and frame rates of a benchmark's videos, from a CSV file."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from focus_eval.errors import InvalidInput
from focus_eval.types import VideoInfo

# Integer parts of rates that only NTSC has: read as 24000/1001 and so on. Taken as they stand they would shift
# late frames by 3 %.
_NTSC = {23: Fraction(24000, 1001), 29: Fraction(30000, 1001), 59: Fraction(60000, 1001)}


@dataclass(frozen=True)
class VideoRate:
    """Length and rate of one question's video.

    Args:
        duration_seconds: above 0.
        fps: exact rate, above 0.
    """

    duration_seconds: float
    fps: Fraction

    def __post_init__(self) -> None:
        if not (0 < self.duration_seconds < float("inf") and self.fps > 0):
            raise InvalidInput(f"a video needs seconds and a rate above 0, got {self.duration_seconds} s at {self.fps}")

    @property
    def n_frames(self) -> int:
        """`int(duration * fps)`, at least 1."""
        return max(1, int(self.duration_seconds * float(self.fps)))

    @property
    def info(self) -> VideoInfo:
        """What a sampler needs to know of the video."""
        return VideoInfo(self.n_frames, float(self.fps))


def read_rates(path: str | Path) -> dict[str, VideoRate]:
    """Return length and rate by question id from a CSV file with the columns id, duration_s and fps.

    `fps` is a number or a fraction ("30000/1001"); 23, 29 and 59 are read as the NTSC rates they are cut from.

    Raises:
        InvalidInput: a missing file or column, a value that is not a number above 0, an id met twice; names the line.
    """
    rates: dict[str, VideoRate] = {}
    try:
        with open(path, newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
    except OSError as error:
        raise InvalidInput(f"{path}: cannot be read ({error.strerror})") from error
    for number, row in enumerate(rows, start=2):
        try:
            rate = VideoRate(float(row["duration_s"]), exact_rate(row["fps"]))
        except KeyError as error:
            raise InvalidInput(f"{path}: needs the columns id, duration_s and fps, has no {error}") from error
        except (TypeError, ValueError, ZeroDivisionError) as error:
            raise InvalidInput(f"{path}:{number}: {error}") from error
        if not row.get("id") or row["id"] in rates:
            raise InvalidInput(f"{path}:{number}: id {row.get('id')!r} is missing or occurs twice")
        rates[row["id"]] = rate
    return rates


def exact_rate(text: str) -> Fraction:
    """Return a frame rate as a fraction; the integers 23, 29 and 59 mean 24000/1001, 30000/1001 and 60000/1001."""
    rate = Fraction(text.strip())
    return _NTSC[int(rate)] if rate.denominator == 1 and int(rate) in _NTSC else rate
