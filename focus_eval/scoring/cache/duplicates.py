"""Recognises pictures that were embedded before, by their pixels.

A still shot or a slide gives frame after frame of the same bytes, and a reader is shown frames that a sampler pulled
before: their features are looked up by a hash of their pixels.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from focus_eval.video.reader import Pixels

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
