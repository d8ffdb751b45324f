"""Reads the verdicts of `videos verify`: which frames of a video can be decoded, by the file's SHA-256."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from focus_eval.core.errors import VideoError
from focus_eval.core.types import IntArray
from focus_eval.video.manifest import entry_of, file_state, name_in

VERDICTS_NAME = "videos.verified.json"
VERDICTS_VERSION = 1


@dataclass(frozen=True)
class VideoVerdict:
    """Result of decoding all of a file.

    Args:
        frames: number of frames; 0 if the file is refused as a whole.
        damaged: half-open ranges of frames that do not come out whole, ascending.
        groups: of each group of pictures the half-open range of frames that need it, and the CRC-32 of its packets; ()
            if frames can only be counted.
        error: why the file is refused as a whole; "" if it is not.
        writer: versions that decoded it.
    """

    frames: int
    damaged: tuple[tuple[int, int], ...] = ()
    groups: tuple[tuple[int, int, int], ...] = ()
    error: str = ""
    writer: str = ""

    @property
    def is_whole(self) -> bool:
        """True if every frame can be decoded."""
        return not self.damaged and not self.error

    def summary(self) -> str:
        """Return the verdict as text, such as "whole, 90 frames"."""
        ranges = ", ".join(f"{start} to {stop - 1}" for start, stop in self.damaged)
        return self.error or (
            f"damaged: frames {ranges} of {self.frames}" if ranges else f"whole, {self.frames} frames"
        )

    def refused_among(self, frames: IntArray) -> IntArray:
        """Return those of `frames` that are damaged."""
        starts, stops = np.array(self.damaged, dtype=np.int64).reshape(-1, 2).T
        is_damaged = (frames[:, None] >= starts) & (frames[:, None] < stops)
        refused: IntArray = frames[is_damaged.any(axis=1)]
        return refused


@dataclass(frozen=True)
class Verdicts:
    """Verdicts kept in a folder.

    Args:
        videos: verdict by the video's SHA-256.
        states: size in bytes and time of change of a video, by path in the folder, when its content was last seen to be
            what its manifest says.
    """

    videos: Mapping[str, VideoVerdict] = field(default_factory=dict)
    states: Mapping[str, tuple[int, int]] = field(default_factory=dict)


def verdict_on(path: Path) -> VideoVerdict | None:
    """Return the verdict for a video's checksum in its manifest; None without a manifest entry or a verdict."""
    match = entry_of(path)
    return read_verdicts(match[0].parent).videos.get(match[1].sha256) if match is not None else None


def count_verified(paths: Sequence[Path]) -> str:
    """Return the number of verified videos as text: "20 of 900 videos verified, 1 of them damaged".

    A video whose file changed since it was verified is counted apart. No video is read.
    """
    known = [(path, verdict) for path in paths if (verdict := verdict_on(path)) is not None]
    current = [verdict for path, verdict in known if is_as_verified(path)]
    n_changed, n_damaged = len(known) - len(current), sum(not verdict.is_whole for verdict in current)
    text = f"{len(current)} of {len(paths)} video{'s' if len(paths) != 1 else ''} verified"
    text += f", {n_damaged} of them damaged" if n_damaged else ""
    return text + (f"; {n_changed} changed since: videos verify says how" if n_changed else "")


def is_as_verified(path: Path) -> bool:
    """Return True if a video with a verdict has the size and time of change that it had when it was verified."""
    match, state = entry_of(path), file_state(path)
    states = read_verdicts(match[0].parent).states if match is not None else {}
    return match is not None and states.get(name_in(match[0].parent, path)) == (state.size, state.mtime_ns)


def read_verdicts(folder: Path) -> Verdicts:
    """Return the verdicts kept in a folder; empty if none are kept.

    Raises:
        VideoError: the file is damaged.
    """
    path = folder / VERDICTS_NAME
    return _read(path, path.stat().st_mtime_ns) if path.exists() else Verdicts()


@lru_cache(maxsize=16)
def _read(path: Path, modified_ns: int) -> Verdicts:
    """Return the verdicts in a file; `modified_ns` is only a cache key."""
    del modified_ns
    try:
        content: Any = json.loads(path.read_text(encoding="utf-8"))
        if content["version"] != VERDICTS_VERSION:
            raise VideoError(f"{path}: version {content['version']}, this program reads {VERDICTS_VERSION}")
        return Verdicts(
            {digest: _verdict(fields) for digest, fields in content["videos"].items()},
            {name: (size, mtime_ns) for name, (size, mtime_ns) in content.get("states", {}).items()},
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise VideoError(f"{path}: cannot be read ({error}); delete it and run videos verify again") from error


def _verdict(fields: dict[str, Any]) -> VideoVerdict:
    """Return the verdict with `fields` from JSON, its lists as tuples."""
    damaged, groups = (tuple(map(tuple, fields[name])) for name in ("damaged", "groups"))
    return VideoVerdict(**{**fields, "damaged": damaged, "groups": groups})
