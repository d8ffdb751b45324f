"""Looks for signs of damage that prove nothing: `videos verify` reports them, and no frame is refused for them."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import av
import numpy as np
from numpy.typing import NDArray

from focus_eval.keyframes.video.decoder import Decoder, second_decoder

if TYPE_CHECKING:
    from av import Packet, VideoFrame
    from av.video.codeccontext import VideoCodecContext
    from av.video.plane import VideoPlane


# Codecs in which a long run of zeros is a sign of damage, unless the encoder fills many pictures with zeros.
_CODECS = ("h264", "hevc", "mpeg1video", "mpeg2video", "mpeg4", "vp8", "vp9", "av1")
_LONG_BLANK = bytes(64)


def doubts_about(path: Path) -> tuple[str, ...]:
    """Return a sentence for each sign of damage that FFmpeg does not notice; decodes VP8 twice.

    Raises:
        VideoError: the file cannot be read.
    """
    with closing(Decoder(path)) as decoder:
        context = decoder.stream.codec_context
        second = second_decoder(context) if context.name == "vp8" else None
        n_packets = n_blank = n_unlike = 0
        for packet in decoder.packets():
            n_packets += 1
            n_blank += context.name in _CODECS and _LONG_BLANK in bytes(packet)
            n_unlike += second is not None and not _is_alike(packet, context, second)
    doubts = []
    if n_blank <= n_packets / 2 and n_blank:
        doubts.append(f"{n_blank} of {n_packets} packets hold 64 zeros in a row, as blanked sectors do")
    if n_unlike:
        doubts.append(f"libvpx decodes {n_unlike} of {n_packets} pictures otherwise than FFmpeg, as damaged ones")
    return tuple(doubts)


def _is_alike(packet: Packet, context: VideoCodecContext, second: VideoCodecContext) -> bool:
    try:
        frames = context.decode(packet)
        second_frames = second.decode(packet)
    except av.FFmpegError:
        return False
    return len(frames) == len(second_frames) and all(map(_are_equal, frames, second_frames))


def _are_equal(frame: VideoFrame, second_frame: VideoFrame) -> bool:
    planes = zip(frame.planes[:3], second_frame.planes[:3], strict=True)  # a fourth would be transparency
    return all(np.array_equal(_plane_pixels(plane), _plane_pixels(second_plane)) for plane, second_plane in planes)


def _plane_pixels(plane: VideoPlane) -> NDArray[np.uint8]:
    rows: NDArray[np.uint8] = np.frombuffer(memoryview(plane), dtype=np.uint8).reshape(plane.height, plane.line_size)
    return rows[:, : plane.width]
