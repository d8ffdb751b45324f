"""Compares what a reader gives with a plain sequential decode of the whole file."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import av
import numpy as np

from focus_eval.core.errors import VideoError
from focus_eval.core.types import Pixels
from focus_eval.keyframes.video import open_video
from focus_eval.keyframes.video.decoder import TAG_ERRORS, LoggedErrors

_FULL_RANGE = 2
_N_SINGLE = 10
# Clips of more frames than this are compared at so many frames, drawn at random.
_MAX_FRAMES = 2000


@dataclass(frozen=True)
class Outcome:
    """What became of one clip: `exact`, `refused` or `wrong`."""

    kind: str
    detail: str
    n_frames: int
    seconds: float


def sequential_frames(path: Path, *, flags: Sequence[str] = (), errors: list[str] | None = None) -> Iterator[Pixels]:
    """Yield RGB frames of a plain decode with one thread, turned as PyAV says, in the size of the first.

    Args:
        flags: what the decoder is to refuse, as FFmpeg's `err_detect` names it.
        errors: where errors of the decoder are noted, which then goes on with the next packet; None: they are raised.

    Raises:
        VideoError: no video stream.
        av.FFmpegError: FFmpeg cannot open or decode it.
    """
    size: tuple[int, int] | None = None
    with av.open(str(path), **TAG_ERRORS) as container:
        stream = container.streams.best("video")
        if stream is None or stream.codec_context is None:
            raise VideoError(f"{path}: no video stream")
        # Several threads would hide some damage and find some that one does not notice.
        stream.codec_context.thread_type, stream.codec_context.thread_count = "NONE", 1
        stream.codec_context.options = {"err_detect": "+".join(flags)} if flags else {}
        for frame in _decoded(container, stream, errors):
            size = size or (frame.width, frame.height)
            yield np.rot90(_pixels(frame, *size), frame.rotation // 90)


def sign_before(path: Path, number: int, *, flags: Sequence[str] = ()) -> str:
    """Return the first thing that a plain decode finds wrong between a frame's key frame and the frame, or "".

    The packets of the file are demuxed up to the frame's own; those from its key frame on are decoded.

    Args:
        number: of the frame, in order of time.
        flags: as in `sequential_frames`.
    """
    packets = []
    with av.open(str(path), **TAG_ERRORS) as container:
        stream = container.streams.best("video")
        stream.codec_context.thread_type, stream.codec_context.thread_count = "NONE", 1
        stream.codec_context.options = {"err_detect": "+".join(flags)} if flags else {}
        demuxed = container.demux(stream)
        try:
            while True:
                with LoggedErrors() as logged:
                    packet = next(demuxed)
                if not packet.size:
                    break
                packets.append((packet, [*logged]))
        except (av.FFmpegError, StopIteration) as error:
            packets.append((None, [str(error)]))
        shown = sorted((packet.pts, at) for at, (packet, _) in enumerate(packets) if packet and packet.pts is not None)
        if number >= len(shown):
            return "a packet without a time"
        shown_place = shown[number][1]
        first = max((at for at in range(shown_place + 1) if packets[at][0].is_keyframe), default=0)
        errors = [line for _, lines in packets[: shown_place + 1] for line in lines]
        with LoggedErrors() as logged:
            for packet, _ in packets[first : shown_place + 1]:
                try:
                    stream.codec_context.decode(packet)
                except av.FFmpegError as error:
                    errors.append(str(error))
    return [*errors, *logged, ""][0]


def _decoded(container: Any, stream: Any, errors: list[str] | None) -> Iterator[Any]:
    """Yield the decoded frames; FFmpeg asks to be called again after 64 KiB without a packet of a transport stream."""
    is_open = True
    while is_open:
        try:
            # PyAV fails behind the last frame where streams were added by a programme table.
            with contextlib.suppress(IndexError):
                for packet in container.demux(stream):
                    try:
                        yield from packet.decode()
                    except BlockingIOError:
                        raise
                    except av.FFmpegError as error:
                        if errors is None:
                            raise
                        errors.append(str(error))
            is_open = False
        except BlockingIOError:
            pass


def _pixels(frame: Any, width: int, height: int) -> Pixels:
    """Return a frame in RGB of the given size, converted with BT.601 and the range that the frame states."""
    is_full = frame.color_range == _FULL_RANGE or frame.format.name.startswith("yuvj")
    pixels: Pixels = frame.to_ndarray(
        format="rgb24",
        width=width,
        height=height,
        dst_colorspace="ITU601",
        src_color_range="JPEG" if is_full else "MPEG",
    )
    return pixels


def check_clip(path: Path, *, seed: int = 0) -> Outcome:
    """Read a clip forward, at a stride, and frame by frame in random order, and compare every frame."""
    start = time.perf_counter()
    prints = [_print(pixels) for pixels in sequential_frames(path)]
    kind, detail = _compare(path, prints, np.random.default_rng(seed))
    return Outcome(kind, detail, len(prints), time.perf_counter() - start)


def _compare(path: Path, prints: list[int], rng: np.random.Generator) -> tuple[str, str]:
    """Return (outcome, detail) of reading a clip whose frames have these prints, in order and in jumps."""
    try:
        with open_video(path) as video:
            if video.info.n_frames != len(prints):
                return "wrong", f"{video.info.n_frames} frames, the decoder gives {len(prints)}"
            n = len(prints)
            frames = np.arange(n) if n <= _MAX_FRAMES else np.sort(rng.choice(n, _MAX_FRAMES, replace=False))
            wrong = {number for number, pixels in video.stream(frames) if _print(pixels) != prints[number]}
            wrong |= {
                number for number, pixels in video.stream(np.arange(0, n, 7)[:50]) if _print(pixels) != prints[number]
            }
            for number in [n - 1, 0, *rng.permutation(n)[:_N_SINGLE].tolist()]:
                if _print(video.read(np.array([number]))[0]) != prints[number]:
                    wrong.add(number)
    except VideoError as error:
        return "refused", str(error).partition(": ")[2]
    return ("wrong", f"frames {sorted(wrong)[:6]} of {n}") if wrong else ("exact", "")


def _print(pixels: Pixels) -> int:
    return hash(pixels.tobytes())
