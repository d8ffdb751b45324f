"""Turns or damages video files in known ways."""

from __future__ import annotations

from pathlib import Path

from focus_eval.core.errors import InvalidInput

_TURNS = {0: (1, 0, 0, 1), 90: (0, 1, -1, 0), 180: (-1, 0, 0, -1), 270: (0, -1, 1, 0)}
_FIXED_POINT_ONE = 1 << 16
# Bytes from the name of a track header box (version 0) to its matrix, and between the matrix's rows (ISO 14496-12).
_TO_MATRIX, _ROW = 44, 12


def cut_off(source: str | Path, target: str | Path, *, share: float) -> Path:
    """Write the first `share` of a file's bytes, as a broken download leaves them."""
    data = Path(source).read_bytes()
    Path(target).write_bytes(data[: int(len(data) * share)])
    return Path(target)


def blank_out(source: str | Path, target: str | Path, *, start: float, stop: float) -> Path:
    """Copy a file with the bytes from share `start` to share `stop` of its length set to zero."""
    data = bytearray(Path(source).read_bytes())
    first, last = int(len(data) * start), int(len(data) * stop)
    data[first:last] = bytes(last - first)
    Path(target).write_bytes(data)
    return Path(target)


def turn_mp4(source: str | Path, target: str | Path, *, degrees: int) -> Path:
    """Copy an MP4 with a display matrix that turns its picture clockwise by 0, 90, 180 or 270 degrees."""
    if degrees not in _TURNS:
        raise InvalidInput(f"a turn is 0, 90, 180 or 270 degrees, got {degrees}")
    return set_display_matrix(source, target, matrix=_TURNS[degrees])


def set_display_matrix(source: str | Path, target: str | Path, *, matrix: tuple[float, float, float, float]) -> Path:
    """Copy an MP4 with the display matrix `(a, b, c, d)`: (x, y) is shown at `(a x + c y, b x + d y)`."""
    data = bytearray(Path(source).read_bytes())
    at = data.find(b"tkhd")
    if at < 0:
        raise InvalidInput(f"{source}: an MP4 with a track header expected")
    for place, value in zip((0, 4, _ROW, _ROW + 4), matrix, strict=True):
        first = at + _TO_MATRIX + place
        data[first : first + 4] = round(value * _FIXED_POINT_ONE).to_bytes(4, "big", signed=True)
    Path(target).write_bytes(data)
    return Path(target)


def claim_avi_frames(source: str | Path, target: str | Path, *, n_frames: int) -> Path:
    """Copy an AVI whose main and stream headers claim `n_frames` frames."""
    data = bytearray(Path(source).read_bytes())
    for name, offset in ((b"avih", 24), (b"strh", 40)):
        first = data.find(name) + offset
        data[first : first + 4] = n_frames.to_bytes(4, "little")
    Path(target).write_bytes(data)
    return Path(target)
