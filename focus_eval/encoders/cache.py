"""Keeps features of frames in memory, and recognises pictures that were embedded before.

A still shot or a slide gives frame after frame of the same bytes, and a reader is shown frames that a sampler pulled
before: their features are looked up by a hash of their pixels.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from focus_eval.core.errors import InvalidInput
from focus_eval.core.types import IntArray
from focus_eval.video.reader import Pixels


class FeatureCache:
    """Features of frames, least recently used first out: BLIP's image tokens stay on their device, never on disk.

    May be used from several threads.

    A frame of BLIP-large takes 577 x 1024 numbers: 2.25 MiB in fp32, 1.13 MiB in half precision.

    Args:
        max_bytes: most memory to hold; a batch above it alone is not kept.
    """

    def __init__(self, max_bytes: int) -> None:
        if max_bytes < 0:
            raise InvalidInput(f"max_bytes must not be negative, got {max_bytes}")
        self.max_bytes = max_bytes
        self.n_bytes = 0
        self._rows: OrderedDict[tuple[str, int], Any] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._rows)

    def get(self, video: str, frames: IntArray) -> tuple[NDArray[np.bool_], Any]:
        """Return which of `frames` are kept, and their features in that order (None where no frame is)."""
        with self._lock:
            found = np.array([(video, int(frame)) in self._rows for frame in frames], dtype=bool)
            keys = [(video, int(frame)) for frame in frames[found]]
            for key in keys:
                self._rows.move_to_end(key)
            rows = [self._rows[key] for key in keys]
        return found, _stacked(rows) if rows else None

    def put(self, video: str, frames: IntArray, features: Any) -> None:
        """Keep a copy of each row of `features`, `n` along the first axis, an array or a tensor."""
        if len(frames) != len(features):
            raise InvalidInput(f"{len(frames)} frames, {len(features)} rows of features")
        # copies: a view of one row would hold the memory of its whole batch
        copies = [row.clone() if hasattr(row, "clone") else row.copy() for row in features]
        with self._lock:
            for frame, row in zip(frames.tolist(), copies, strict=True):
                replaced = self._rows.pop((video, frame), None)
                self.n_bytes += row.nbytes - (replaced.nbytes if replaced is not None else 0)
                self._rows[(video, frame)] = row
                while self.n_bytes > self.max_bytes:
                    self.n_bytes -= self._rows.popitem(last=False)[1].nbytes

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._rows.clear()
            self.n_bytes = 0


def _stacked(rows: list[Any]) -> Any:
    if isinstance(rows[0], np.ndarray):
        return np.stack(rows)
    import torch

    return torch.stack(rows)


MOST_PICTURES = 32768  # about 60 MB of embeddings of 384 numbers
Features = NDArray[np.float32]


class DuplicateCache:
    """Features of pictures by their pixels, least recently used first out; may be used from several threads.

    Only for a scorer that gives a picture the same bits whatever others are in its batch: what is looked up here
    must be what would have been computed.

    Args:
        n_most: pictures remembered.
    """

    def __init__(self, n_most: int = MOST_PICTURES) -> None:
        self._n_most = n_most
        self._features: OrderedDict[bytes, Features] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._features)

    def embed(self, pictures: Pixels, compute: Callable[[Pixels], Features]) -> tuple[Features, NDArray[np.bool_]]:
        """Return the features of `pictures`, and which of them `compute` was asked for, shape `(n,)`.

        Args:
            pictures: uint8, n along the first axis, at least one.
            compute: the scorer's `embed`; gets each picture that is new once.
        """
        hashes = [_hash(picture) for picture in pictures]
        with self._lock:
            found = {digest: self._features[digest] for digest in hashes if digest in self._features}
        new = {digest: at for at, digest in reversed(list(enumerate(hashes))) if digest not in found}
        first = np.array(sorted(new.values()), dtype=np.intp)
        computed = np.zeros(len(hashes), dtype=bool)
        computed[first] = True
        if first.size:
            fresh = compute(pictures if computed.all() else pictures[first])
            found.update((hashes[at], row.copy()) for at, row in zip(first.tolist(), fresh, strict=True))
        with self._lock:
            for digest in hashes:
                self._features[digest] = found[digest]
                self._features.move_to_end(digest)
            while len(self._features) > self._n_most:
                self._features.popitem(last=False)
        return np.stack([found[digest] for digest in hashes]), computed


@lru_cache(maxsize=4)
def duplicate_cache(scorer_key: str) -> DuplicateCache:
    """Return what this process has seen through the scorer whose name and revision are `scorer_key`."""
    return DuplicateCache()


def _hash(picture: Pixels) -> bytes:
    # SHA-256 is faster than others here, for processors have it built in; the shape keeps a reshaped picture apart
    return repr(picture.shape).encode() + hashlib.sha256(np.ascontiguousarray(picture).data).digest()
