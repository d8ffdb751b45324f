"""Bounds the decoded frames that are held at once, in bytes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from threading import Condition

from focus_eval.errors import VideoError
from focus_eval.lmms.frame_batch import frames_to_decode
from focus_eval.lmms.requests import PendingRequest
from focus_eval.types import FramePolicy

GIGABYTE = 1e9


class FrameMemory:
    """Lets batches in, in their order, while what is held stays below a limit.

    A batch that is larger than the limit is let in alone. The order matters: were a later batch let in first, the
    earlier one, which is answered before it, could wait for room that only the later one would give back.

    Args:
        most_bytes: of decoded frames, those of the batch being answered included.
    """

    def __init__(self, most_bytes: float) -> None:
        self.most_bytes = most_bytes
        # By batch, because its estimate is replaced once its frames are decoded.
        self._held: dict[int, int] = {}
        self._next = 0
        self._is_open = False
        self._changed = Condition()

    @property
    def held_bytes(self) -> int:
        return sum(self._held.values())

    def take(self, batch: int, n_bytes: int) -> None:
        """Wait until all batches before `batch` were let in and there is room for `n_bytes`; then hold them."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_open or (batch == self._next and self._has_room(n_bytes)))
            self._held[batch] = n_bytes
            self._next += 1
            self._changed.notify_all()

    def _has_room(self, n_bytes: int) -> bool:
        # Where nothing is held even too large a batch goes in: it would wait for ever otherwise.
        return not self.held_bytes or self.held_bytes + n_bytes <= self.most_bytes

    def correct(self, batch: int, n_bytes: int) -> None:
        """Hold `n_bytes` for `batch` from now on: what its frames really take; 0 lets them go."""
        with self._changed:
            if n_bytes:
                self._held[batch] = n_bytes
            else:
                self._held.pop(batch, None)
            self._changed.notify_all()

    def open(self) -> None:
        """Let everybody in: the run is ending, and no thread may be left waiting for room or for a batch before it."""
        with self._changed:
            self._is_open = True
            self._changed.notify_all()


def decoded_bytes(pending: PendingRequest, frame_policy: FramePolicy) -> int:
    """Return what the decoded frames of a question will take, from its selection and the size of its video's frames.

    0 where there is nothing to decode or the file cannot be opened: decoding it will say why.
    """
    if pending.row is None or pending.path is None:
        return 0
    frames, _ = frames_to_decode(pending.row, frame_policy)
    return len(frames) * _frame_bytes(pending.path)


def parts_that_fit(
    batch: list[PendingRequest], most_bytes: float, frame_policy: FramePolicy
) -> Iterator[list[PendingRequest]]:
    """Yield `batch` whole where its frames fit into `most_bytes`, else in parts of at most half as much.

    Half, so that a part can be decoded while the one before it is answered. A question too large alone is a part.
    """
    sizes = [decoded_bytes(pending, frame_policy) for pending in batch]
    if sum(sizes) <= most_bytes:
        yield batch
        return
    part: list[PendingRequest] = []
    taken = 0
    for pending, size in zip(batch, sizes, strict=True):
        # The first check keeps a question too large alone from making an empty part.
        if part and taken + size > most_bytes / 2:
            yield part
            part, taken = [], 0
        part.append(pending)
        taken += size
    yield part


# Many questions ask about one video; its header is read once.
@lru_cache(maxsize=4096)
def _frame_bytes(path: Path) -> int:
    """Return the bytes of an RGB frame of a video, from the file's header."""
    from focus_eval.video.decoder import Decoder

    try:
        # As the reader opens it: the stream that is read, and no file or address that a playlist names.
        decoder = Decoder(path, n_threads=1)
    except (VideoError, OSError):
        return 0
    try:
        size = decoder.stream.codec_context
        return 3 * int(size.width) * int(size.height)
    finally:
        decoder.close()
