"""Looks for signs of damage that prove nothing: `videos verify` reports them, and no frame is refused for them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray

from focus_eval.keyframes.video.decoder import Decoder

# Encoders of these write long runs of zeros only where they fill a picture, and then fill many.
_CODECS = ("h264", "hevc", "mpeg1video", "mpeg2video", "mpeg4", "vp8", "vp9", "av1")
_LONG_BLANK = bytes(64)
_SECOND_DECODERS = {"vp8": "libvpx", "vp9": "libvpx-vp9"}


def doubts_about(path: Path) -> tuple[str, ...]:
    """Return a sentence for each sign of damage that FFmpeg does not notice; decodes VP8 and VP9 twice.

    Raises:
        VideoError: the file cannot be read.
    """
    with closing(Decoder(path)) as decoder:
        context = decoder.stream.codec_context
        second = _second_decoder(context)
        n_packets = n_blank = n_unlike = 0
        for packet in decoder.packets():
            n_packets += 1
            n_blank += context.name in _CODECS and _LONG_BLANK in bytes(packet)
            n_unlike += second is not None and not _is_alike(packet, context, second)
    doubts = []
    if n_blank <= n_packets / 2 and n_blank:
        doubts.append(f"{n_blank} of {n_packets} packets hold 64 zeros in a row, as blanked sectors do")
    if n_unlike:
        doubts.append(f"libvpx refuses, or decodes otherwise, {n_unlike} of {n_packets} pictures, as damaged ones")
    return tuple(doubts)


def _second_decoder(context: Any) -> Any:
    """Return libvpx's decoder of VP8, or of VP9 of 8 bits; None for other codecs.

    Of VP8 it fills damaged parts otherwise than FFmpeg, of VP9 it refuses pictures whose data end too early.
    """
    name = _SECOND_DECODERS.get(context.name)
    has_more_bits = context.format is not None and context.format.components[0].bits > 8
    if name not in av.codecs_available or has_more_bits:
        return None
    second: Any = av.CodecContext.create(name, "r")
    second.thread_count, second.extradata = 1, context.extradata
    return second


def _is_alike(packet: Any, context: Any, second: Any) -> bool:
    try:
        frames: Sequence[Any] = context.decode(packet)
        second_frames: Sequence[Any] = second.decode(packet)
    except av.FFmpegError:
        return False
    if context.name == "vp9":
        return True
    return len(frames) == len(second_frames) and all(map(_are_equal, frames, second_frames))


def _are_equal(frame: Any, second_frame: Any) -> bool:
    planes = zip(frame.planes[:3], second_frame.planes[:3], strict=True)  # a fourth would be transparency
    return all(np.array_equal(_plane_pixels(plane), _plane_pixels(second_plane)) for plane, second_plane in planes)


def _plane_pixels(plane: Any) -> NDArray[np.uint8]:
    rows = np.frombuffer(plane, dtype=np.uint8).reshape(plane.height, plane.line_size)
    return rows[:, : plane.width]
