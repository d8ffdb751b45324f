"""Writes frames into a video file, without outside programs."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from types import TracebackType

import av
import numpy as np
from av.container import OutputContainer

from focus_eval.core.errors import InvalidInput, VideoError
from focus_eval.core.types import Pixels

# Encoders that have the option `preset`, and encoders that have the option `crf`.
_WITH_PRESET = {"libx264", "libx265"}
_WITH_CRF = {"libx264", "libx265", "libvpx-vp9", "libaom-av1", "libsvtav1"}


class ClipWriter:
    """Writes RGB frames into a video file, one `write` per frame; a context manager.

    The number of encoder threads is fixed, so that the same frames give the same file on any machine.

    Args:
        path: file to write; its suffix names the container (.mp4, .mkv, .webm, .avi, .mov, .ts).
        width, height: size in pixels; 4:2:0 formats of H.264 need both even.
        fps: frame rate; ignored for a frame that is written with its own `ticks`.
        gop: maximum number of frames between two sync frames (x264's own default is 250).
        crf: constant quality, lower is better; ignored by encoders without it. None: the encoder's default.
        codec, preset, pixel_format: as FFmpeg names them.
        options: further encoder options, as FFmpeg names them.
        container_options: options of the container, for instance `{"movflags": "faststart"}`.
        time_base: seconds per tick; default `1 / fps`.
        n_threads: encoder threads.

    Raises:
        VideoError: the encoder or the container refuses these settings.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        width: int,
        height: int,
        fps: float | Fraction = 30,
        gop: int = 250,
        crf: int | None = 23,
        codec: str = "libx264",
        preset: str = "veryfast",
        pixel_format: str = "yuv420p",
        options: Mapping[str, str] | None = None,
        container_options: Mapping[str, str] | None = None,
        time_base: Fraction | None = None,
        n_threads: int = 2,
    ) -> None:
        """Open the file and the encoder; raise VideoError if either fails."""
        self.path, self.width, self.height = Path(path), width, height
        self.n_frames = 0
        self._is_failed = False
        rate = Fraction(fps).limit_denominator(1001)
        encoder_options = {"crf": str(crf)} if crf is not None and codec in _WITH_CRF else {}
        if codec in _WITH_PRESET:
            encoder_options["preset"] = preset
        if codec == "libx264":
            # Switch off x264's macroblock tree: with AVX-512 it reads memory past a narrow picture, so that the same
            # frames sometimes gave a different file.
            encoder_options["mbtree"] = "0"
        try:
            self._container: OutputContainer | None = av.open(
                str(self.path), "w", options=dict(container_options or {})
            )
            stream = self._container.add_stream(codec, rate=rate, options={**encoder_options, **(options or {})})
        except (av.FFmpegError, ValueError) as error:
            raise VideoError(f"{self.path}: cannot write {codec} into this container: {error}") from error
        if not isinstance(stream, av.VideoStream):
            raise VideoError(f"{self.path}: {codec} is no codec of pictures; name one, such as libx264")
        stream.width, stream.height, stream.pix_fmt = width, height, pixel_format
        stream.codec_context.gop_size = gop
        stream.codec_context.time_base = time_base or 1 / rate
        stream.codec_context.thread_count = n_threads
        self._stream = stream

    def write(self, pixels: Pixels, *, ticks: int | None = None, n_times: int = 1) -> None:
        """Append `pixels`: RGB uint8 `(height, width, 3)`, or the planes of yuv420p, `(height * 3 / 2, width)`.

        Args:
            ticks: presentation time in the time base; default: the number of frames written before.
            n_times: number of frames to write with these pixels, one tick apart.
        """
        forms = {(self.height, self.width, 3): "rgb24", (self.height * 3 // 2, self.width): "yuv420p"}
        if pixels.shape not in forms:
            raise InvalidInput(f"{self.path}: a frame of {self.height} x {self.width} x 3 expected, got {pixels.shape}")
        frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(pixels), format=forms[pixels.shape])
        frame = frame.reformat(format=self._stream.pix_fmt)
        frame.time_base = self._stream.codec_context.time_base
        first = self.n_frames if ticks is None else ticks
        if self._is_failed:  # FFmpeg crashes if more is written after a failure, such as a full disk
            raise VideoError(f"{self.path}: an earlier frame could not be written")
        for time in range(first, first + n_times):
            frame.pts = time
            self.n_frames += 1
            self._mux(frame)

    def _mux(self, frame: av.VideoFrame) -> None:
        """Encode one frame and write its packets."""
        assert self._container is not None, "closed"
        try:
            self._container.mux(self._stream.encode(frame))
        except av.FFmpegError as error:
            self._is_failed = True
            raise VideoError(f"{self.path}: frame {self.n_frames - 1} could not be encoded: {error}") from error

    def close(self) -> None:
        """Write the frames that the encoder still holds, and finish the file; after a failed write, only close it."""
        container, self._container = self._container, None
        if container is None:
            return
        try:
            if self.n_frames and not self._is_failed:
                container.mux(self._stream.encode(None))
            container.close()
        except av.FFmpegError as error:
            # Close it here and drop the error: PyAV would otherwise close it when it is freed, and print a traceback.
            with suppress(av.FFmpegError):
                container.close()
            if not self._is_failed:
                raise VideoError(f"{self.path}: the file could not be finished: {error}") from error

    def __enter__(self) -> ClipWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Finish the file."""
        self.close()
