"""Makes clips for tests and benchmarks: frames that carry their number, moving texture, hours of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import av
import numpy as np

from focus_eval.core.errors import InvalidInput, VideoError
from focus_eval.core.types import Pixels
from focus_eval.keyframes.video.clip_writer import ClipWriter

_ROWS, _COLUMNS, _NUMBER_BITS = 4, 6, 20
_DARK, _LIGHT = 40, 215


def numbered_frame(number: int, *, width: int, height: int) -> Pixels:
    """Return an RGB frame that carries `number` (in `[0, 2**20)`) as 24 dark and light cells, 4 of them a check.

    Cells this large survive lossy coding, so `frame_number` tells any decoded frame exactly.
    """
    if not 0 <= number < 1 << _NUMBER_BITS:
        raise InvalidInput(f"a frame number lies in [0, 2**{_NUMBER_BITS}), got {number}")
    word = number << 4 | _check(number)
    bits = (word >> np.arange(_ROWS * _COLUMNS)) & 1
    cells = np.where(bits, _LIGHT, _DARK).astype(np.uint8).reshape(_ROWS, _COLUMNS)
    rows = np.arange(height) * _ROWS // height
    columns = np.arange(width) * _COLUMNS // width
    return np.repeat(cells[rows][:, columns, None], 3, axis=2)


def frame_number(pixels: Pixels) -> int:
    """Return the number that `numbered_frame` drew into RGB `pixels` of any size.

    Raises:
        InvalidInput: the frame carries no number, or was decoded wrongly.
    """
    height, width = pixels.shape[:2]
    grey = pixels.mean(axis=2)
    word = 0
    for bit in range(_ROWS * _COLUMNS):
        row, column = divmod(bit, _COLUMNS)
        cell = grey[_middle(row, _ROWS, height), _middle(column, _COLUMNS, width)]
        word |= int(cell.mean() > (_DARK + _LIGHT) / 2) << bit
    if word & 15 != _check(word >> 4):
        raise InvalidInput("the frame carries no readable number")
    return word >> 4


def _check(number: int) -> int:
    """Return four check bits: the exclusive or of the number's nibbles, inverted in part so that black is invalid."""
    check = 0b1010
    while number:
        check ^= number & 15
        number >>= 4
    return check


def _middle(cell: int, n_cells: int, length: int) -> slice:
    """Return the middle half of a cell along an axis of `length` pixels."""
    start, stop = -(-cell * length // n_cells), -(-(cell + 1) * length // n_cells)
    margin = (stop - start) // 4
    return slice(start + margin, stop - margin)


def write_numbered_clip(
    path: str | Path,
    n_frames: int,
    *,
    width: int = 96,
    height: int = 64,
    ticks: Iterable[int] | None = None,
    **encoding: Any,
) -> Path:
    """Write a clip whose frame `i` carries the number `i`; `encoding` goes to `ClipWriter`.

    Args:
        ticks: presentation time of each frame in the time base, for a variable frame rate or a late start.
    """
    times: Iterator[int | None] = iter(ticks) if ticks is not None else iter(range(n_frames))
    with ClipWriter(path, width=width, height=height, **encoding) as writer:
        for number in range(n_frames):
            writer.write(numbered_frame(number, width=width, height=height), ticks=next(times))
    return Path(path)


def write_long_clip(
    path: str | Path,
    seconds: float,
    *,
    width: int = 640,
    height: int = 360,
    fps: int = 30,
    segment_seconds: float = 60,
    **encoding: Any,
) -> Path:
    """Write a long clip of moving texture quickly: one segment is encoded, its packets are repeated in time.

    Every repetition starts at a sync frame, so the file is an ordinary video whose picture repeats. The length is
    rounded up to whole segments. `encoding` goes to `ClipWriter`.
    """
    path = Path(path)
    n_segment = round(segment_seconds * fps)
    segment = path.with_name(f"{path.stem}.segment.mp4")
    with ClipWriter(segment, width=width, height=height, fps=fps, **encoding) as writer:
        for pixels in moving_texture(n_segment, width=width, height=height):
            writer.write(pixels)
    repeat_clip(segment, path, n_times=-(-round(seconds * fps) // n_segment))
    segment.unlink()
    return path


def moving_texture(n_frames: int, *, width: int, height: int, seed: int = 0) -> Iterator[Pixels]:
    """Yield a window that drifts over grainy random texture, with a cut to another place every 200 to 400 frames."""
    rng = np.random.default_rng(seed)
    canvas = _texture(rng, height * 2, width * 2)
    grain = rng.integers(0, 7, size=canvas.shape, dtype=np.uint8)
    until = 0
    place, drift = np.zeros(2), np.zeros(2)
    for number in range(n_frames):
        if number == until:
            until = number + int(rng.integers(200, 400))
            place, drift = rng.uniform(0, 1, 2) * (height, width), rng.uniform(-1.5, 1.5, 2)
        place = (place + drift) % (height, width)
        y, x = place.astype(int)
        grain_y, grain_x = rng.integers(0, height), rng.integers(0, width)
        yield canvas[y : y + height, x : x + width] + grain[grain_y : grain_y + height, grain_x : grain_x + width]


def _texture(rng: np.random.Generator, height: int, width: int) -> Pixels:
    """Return random RGB texture with detail at every scale (amplitude halves as frequency doubles)."""
    picture = np.zeros((height, width, 3))
    for octave in range(1, 8):
        cells = 2**octave
        grid = rng.normal(size=(cells + 1, cells + 1, 3))
        y, x = np.linspace(0, cells, height), np.linspace(0, cells, width)
        picture += grid[y.astype(int)][:, x.astype(int)] / 2 ** (octave / 2)
    picture = (picture - picture.min()) / np.ptp(picture)
    texture: Pixels = (picture * 245).astype(np.uint8)
    return texture


def repeat_clip(source: str | Path, target: str | Path, *, n_times: int) -> Path:
    """Copy the video packets of `source` into `target` `n_times` over, each time later by the clip's length."""
    with av.open(str(source)) as clip:
        template: Any = clip.streams.video[0]
        packets = [packet for packet in clip.demux(template) if packet.size]
        span = sum(packet.duration or 0 for packet in packets)
        times = [(packet.pts, packet.dts) for packet in packets]
        if not span or any(pts is None or dts is None for pts, dts in times):
            raise VideoError(f"{source}: a clip can be repeated only where every packet has its times")
        with av.open(str(target), "w") as output:
            stream = output.add_stream_from_template(template)
            for turn in range(n_times):
                for packet, (pts, dts) in zip(packets, times, strict=True):
                    packet.stream, packet.time_base = stream, template.time_base
                    packet.pts, packet.dts = int(pts or 0) + turn * span, int(dts or 0) + turn * span
                    output.mux_one(packet)
    return Path(target)
