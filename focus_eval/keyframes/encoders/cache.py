"""Stores features of frames in memory, and recognises pictures that were embedded before.

A still shot or a slide repeats the same bytes frame after frame, and a model often sees frames that a sampler has
pulled already. Their features are looked up by a hash of their pixels.
"""

from __future__ import annotations

import hashlib
import threading
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from focus_eval.core.errors import InvalidInput
from focus_eval.core.files import replace_file
from focus_eval.core.types import IntArray, Pixels
from focus_eval.keyframes.encoders.base import FrameFeatures


class FeatureCache:
    """Keep features of frames in memory and drop the least recently used; tensors stay on their device.

    Safe for threads. A frame of BLIP-large takes 577 x 1024 numbers: 2.25 MiB in fp32, 1.13 MiB in half precision.

    Args:
        max_bytes: limit of the memory for features.
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

    def get(self, video: str, frames: IntArray) -> tuple[NDArray[np.bool_], FrameFeatures | None]:
        """Return a mask `(n,)` of the `frames` that are stored, and their features in order; None if none is stored."""
        with self._lock:
            is_stored = np.array([(video, int(frame)) in self._rows for frame in frames], dtype=bool)
            keys = [(video, int(frame)) for frame in frames[is_stored]]
            for key in keys:
                self._rows.move_to_end(key)
            rows = [self._rows[key] for key in keys]
        if not rows:
            return is_stored, None
        if isinstance(rows[0], np.ndarray):
            return is_stored, np.stack(rows)
        import torch

        return is_stored, torch.stack(rows)

    def put(self, video: str, frames: IntArray, features: Any) -> None:
        """Store a copy of each row of `features`, one row per frame; drop the least recently used above `max_bytes`."""
        if len(frames) != len(features):
            raise InvalidInput(f"{len(frames)} frames, {len(features)} rows of features")
        # Copy the rows: a view would keep its whole batch in memory.
        copies = [row.clone() if hasattr(row, "clone") else row.copy() for row in features]
        with self._lock:
            for frame, row in zip(frames.tolist(), copies, strict=True):
                replaced = self._rows.pop((video, frame), None)
                self.n_bytes += row.nbytes - (replaced.nbytes if replaced is not None else 0)
                self._rows[(video, frame)] = row
                while self.n_bytes > self.max_bytes:
                    self.n_bytes -= self._rows.popitem(last=False)[1].nbytes

    def clear(self) -> None:
        """Drop all features."""
        with self._lock:
            self._rows.clear()
            self.n_bytes = 0


MAX_PICTURES = 32768  # about 60 MB at 384 numbers each
Features = NDArray[np.float32]


class DuplicateCache:
    """Keep features of pictures by a hash of their pixels and drop the least recently used; safe for threads.

    Use it only for an encoder whose features of a picture do not depend on the other pictures of the batch, so that the
    stored features equal those that the encoder would compute.

    Args:
        max_pictures: limit on the number of pictures whose features are kept.
    """

    def __init__(self, max_pictures: int = MAX_PICTURES) -> None:
        self._max_pictures = max_pictures
        self._features: OrderedDict[bytes, Features] = OrderedDict()
        self._earlier: dict[bytes, Features] = {}
        self._underway: dict[bytes, Future[dict[bytes, Features]]] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._features)

    def load(self, path: Path) -> None:
        """Read the features that `save` wrote; do nothing if the file is missing or damaged.

        Loaded features only save the encoder's work. The first time that a picture of them is seen, it still counts as
        computed, so that the counts in rows do not depend on earlier runs on this machine.
        """
        with suppress(OSError, EOFError, ValueError, KeyError, BadZipFile), np.load(path, allow_pickle=False) as file:
            self._earlier.update(zip(map(bytes, file["hashes"]), file["features"], strict=True))

    def save(self, path: Path) -> None:
        """Write the features that were not loaded to `path`.

        Do nothing if all were loaded, or if `load` read the maximum number of pictures already.
        """
        with self._lock:
            features = {digest: row for digest, row in self._features.items() if digest not in self._earlier}
        if not features or len(self._earlier) >= self._max_pictures:
            return
        hashes = np.frombuffer(b"".join(features), np.uint8).reshape(len(features), -1)
        # A cache that cannot be written is skipped; the next process computes the features again.
        with suppress(OSError, InvalidInput):
            path.parent.mkdir(parents=True, exist_ok=True)
            with replace_file(path) as part, open(part, "wb") as file:
                np.savez(file, hashes=hashes, features=np.stack(list(features.values())))

    def embed(self, pictures: Pixels, compute: Callable[[Pixels], Features]) -> tuple[Features, NDArray[np.bool_]]:
        """Return the features of `pictures`, and a mask `(n,)` of the pictures whose features count as computed now.

        Args:
            pictures: uint8, n along the first axis, at least one.
            compute: the encoder's `embed`; called with each new picture once, unless another thread computes it now.
        """
        hashes = [_hash(picture) for picture in pictures]
        with self._lock:
            features_by_hash = {digest: self._features[digest] for digest in hashes if digest in self._features}
        new = {digest: at for at, digest in reversed(list(enumerate(hashes))) if digest not in features_by_hash}
        first = np.array(sorted(new.values()), dtype=np.intp)
        computed = np.zeros(len(hashes), dtype=bool)
        computed[first] = True
        earlier = {hashes[at]: self._earlier[hashes[at]] for at in first.tolist() if hashes[at] in self._earlier}
        features_by_hash |= earlier
        unseen = {hashes[at]: at for at in first.tolist() if hashes[at] not in earlier}
        while missing := {digest: at for digest, at in unseen.items() if digest not in features_by_hash}:
            features_by_hash |= self._computed_once(missing, pictures, compute)
        with self._lock:
            for digest in hashes:
                self._features[digest] = features_by_hash[digest]
                self._features.move_to_end(digest)
            while len(self._features) > self._max_pictures:
                self._features.popitem(last=False)
        return np.stack([features_by_hash[digest] for digest in hashes]), computed

    def _computed_once(
        self, missing: Mapping[bytes, int], pictures: Pixels, compute: Callable[[Pixels], Features]
    ) -> dict[bytes, Features]:
        """The features of the pictures at the places `missing`, less those that another thread failed to compute."""
        own = Future[dict[bytes, Features]]()
        with self._lock:
            # Another thread may have computed some since they were found missing.
            features = {digest: self._features[digest] for digest in missing if digest in self._features}
            others = {self._underway[digest] for digest in missing if digest in self._underway}
            claimed = missing.keys() - features.keys() - self._underway.keys()
            places = {digest: at for digest, at in missing.items() if digest in claimed}
            self._underway.update(dict.fromkeys(places, own))
        try:
            if places:
                numbers = list(places.values())
                fresh = compute(pictures if len(numbers) == len(pictures) else pictures[numbers])
                features |= {digest: row.copy() for digest, row in zip(places, fresh, strict=True)}
        finally:
            with self._lock:
                self._features.update(features)
                for digest in places:
                    del self._underway[digest]
            own.set_result(features)
        # Wait only after the own pictures are computed, so that no two threads wait for each other.
        for other in others:
            computed = other.result()
            features |= {digest: computed[digest] for digest in missing if digest in computed}
        return features


@lru_cache(maxsize=4)
def duplicate_cache(scorer_key: str) -> DuplicateCache:
    """Return the process-wide cache of the encoder whose name and revision are `scorer_key`."""
    cache = DuplicateCache()
    if _feature_folder is not None:
        for path in sorted(_feature_folder.path.glob(f"{_file_stem(scorer_key)}*.npz")):
            cache.load(path)
        _feature_folder.caches[scorer_key] = cache
    return cache


@dataclass(frozen=True)
class _FeatureFolder:
    """The folder of stored features that is in use, and the caches made since then, by encoder."""

    path: Path
    caches: dict[str, DuplicateCache] = field(default_factory=dict)


_feature_folder: _FeatureFolder | None = None


@contextmanager
def using_feature_folder(folder: Path | None) -> Iterator[None]:
    """In the block, fill each new cache with the features stored in `folder`; at the end store the added features.

    Several processes may use one folder, because each process writes its own file. With None nothing is stored.
    """
    global _feature_folder
    if folder is None:
        yield
        return
    outer_folder, feature_folder = _feature_folder, _FeatureFolder(folder)
    _feature_folder = feature_folder
    # Must be set before the first cache is created.
    duplicate_cache.cache_clear()
    try:
        yield
    finally:
        _feature_folder = outer_folder
        for scorer_key, cache in feature_folder.caches.items():
            cache.save(folder / f"{_file_stem(scorer_key)}-{uuid.uuid4().hex[:8]}.npz")


def _file_stem(scorer_key: str) -> str:
    """The beginning of the names of an encoder's feature files."""
    return f"features-{hashlib.sha256(scorer_key.encode()).hexdigest()[:16]}"


def _hash(picture: Pixels) -> bytes:
    """A hash of a picture's shape and pixels, 32 bytes."""
    # SHA-256 is fastest here (hardware support). The hash includes the shape, which the bytes alone do not show.
    digest = hashlib.sha256(repr(picture.shape).encode())
    digest.update(np.ascontiguousarray(picture).data)
    return digest.digest()
