"""Decodes VP8 and VP9 a second time with libvpx, because FFmpeg's own decoders pass over damage in them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray

from focus_eval.core.errors import VideoError

_SECOND_DECODERS = {"vp8": "libvpx", "vp9": "libvpx-vp9"}


class SecondDecoder:
    """Tells from packets, in the order of decoding, whether libvpx decodes them as FFmpeg does.

    Of VP9 libvpx refuses a picture whose data end too early. Of VP8 it decodes zeros from there on, while FFmpeg leaves
    the rest of the picture as its memory was, so that the two differ. An encoder's pictures are the same with both.

    Args:
        path: of the file, for messages.
        context: of the stream's own decoder.

    Raises:
        VideoError: this PyAV is built without libvpx.
    """

    def __init__(self, path: Path, context: Any) -> None:
        name = _SECOND_DECODERS[context.name]
        try:
            self._context: Any = av.CodecContext.create(name, "r")
        except ValueError as error:
            raise VideoError(
                f"{path}: {name}, which finds damage in {context.name}, is not in this FFmpeg; install the wheel of av"
            ) from error
        self._context.thread_count = 1
        self._context.extradata = context.extradata
        self._compares = context.name == "vp8"

    @staticmethod
    def exists_for(context: Any) -> bool:
        """Return True if a stream is VP8 or VP9 of 8 bits; the libvpx of PyAV's wheel decodes no more."""
        return context.name in _SECOND_DECODERS and (context.format is None or context.format.components[0].bits == 8)

    def agrees(self, packet: Any, frames: Sequence[Any]) -> bool:
        """Return True if libvpx decodes a packet too and, of VP8, to the same `frames`."""
        try:
            second_frames = self._context.decode(packet)
        except av.FFmpegError:
            return False
        if not self._compares:
            return True
        return len(frames) == len(second_frames) and all(map(_are_equal, frames, second_frames))


def _are_equal(frame: Any, second_frame: Any) -> bool:
    planes = zip(frame.planes[:3], second_frame.planes[:3], strict=True)  # a fourth would be transparency
    return all(np.array_equal(_pixels(plane), _pixels(second_plane)) for plane, second_plane in planes)


def _pixels(plane: Any) -> NDArray[np.uint8]:
    rows = np.frombuffer(plane, dtype=np.uint8).reshape(plane.height, plane.line_size)
    return rows[:, : plane.width]
