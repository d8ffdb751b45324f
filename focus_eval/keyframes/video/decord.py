"""Reads exact frames with decord, to replay published runs, most of which used this library."""

from __future__ import annotations

from typing import ClassVar

import decord
import numpy as np

from focus_eval.core.types import Pixels
from focus_eval.keyframes.video.reader import ByIndexReader


class DecordReader(ByIndexReader):
    """Reads a video by frame index through decord.

    Not the default: decord needs memory to decode ahead in the background, cannot decode AV1, and returns wrong frames
    for some files (`docs/fidelity.md`).
    """

    name: ClassVar[str] = "decord"
    package: ClassVar[str] = "decord"
    extra: ClassVar[str] = "decord"
    library = "decord"
    failures = (decord.DECORDError, RuntimeError, UnicodeEncodeError)

    def _open(self, n_threads: int | None) -> decord.VideoReader:
        """Decord's reader of the file; `n_threads` None lets decord choose."""
        return decord.VideoReader(str(self.path), ctx=decord.cpu(0), num_threads=n_threads or 0)

    def _decoded(self, number: int) -> Pixels:
        frame = self._video[number]
        # A frame may lack `asnumpy`: another package may have made decord return that package's tensors.
        pixels: Pixels = frame.asnumpy() if hasattr(frame, "asnumpy") else np.asarray(frame)
        return pixels

    def _reason(self, error: BaseException) -> str:
        """The first line of decord's message, which carries a stack trace, without its source location."""
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        return lines[0].split("] ", 1)[-1] if lines else type(error).__name__
