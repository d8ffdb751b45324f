"""A picture seen before is not embedded again, and gets the features it had."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from focus_eval.encoders.cache import DuplicateCache


class Embedder:
    """Gives each picture its mean and counts what it was asked for."""

    def __init__(self):
        self.asked = []

    def __call__(self, pictures):
        self.asked += [int(picture.flat[0]) for picture in pictures]
        return pictures.reshape(len(pictures), -1).mean(axis=1, keepdims=True).astype(np.float32)


def pictures_of(values):
    return np.stack([np.full((2, 3, 3), value, np.uint8) for value in values])


@given(st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=6), min_size=1, max_size=5), st.integers(1, 8))
def test_features_are_those_of_the_pictures_whatever_was_forgotten(batches, n_most):
    seen, embedder = DuplicateCache(n_most), Embedder()
    for values in batches:
        before = len(embedder.asked)
        features, computed = seen.embed(pictures_of(values), embedder)
        np.testing.assert_array_equal(features[:, 0], np.float32(values))
        assert computed.sum() == len(embedder.asked) - before
        assert len(seen) <= n_most


def test_each_picture_is_embedded_once_also_within_a_batch():
    seen, embedder = DuplicateCache(), Embedder()
    _, computed = seen.embed(pictures_of([1, 2, 1, 3, 2]), embedder)
    assert computed.tolist() == [True, True, False, True, False]
    _, computed = seen.embed(pictures_of([3, 4]), embedder)
    assert computed.tolist() == [False, True]
    assert embedder.asked == [1, 2, 3, 4]


def test_a_picture_of_another_shape_is_another_picture():
    seen, embedder = DuplicateCache(), Embedder()
    pixels = np.arange(18, dtype=np.uint8)
    seen.embed(pixels.reshape(1, 2, 3, 3), embedder)
    _, computed = seen.embed(pixels.reshape(1, 3, 2, 3), embedder)
    assert computed.all()


def test_a_failed_batch_leaves_nothing_behind():
    seen, embedder = DuplicateCache(), Embedder()

    def fail(pictures):
        raise MemoryError

    for _ in range(2):
        try:
            seen.embed(pictures_of([1]), fail)
        except MemoryError:
            continue
    features, computed = seen.embed(pictures_of([1]), embedder)
    assert computed.all()
    assert features[0, 0] == 1


def test_threads_get_the_same_features():
    seen, embedder = DuplicateCache(4), Embedder()
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda value: seen.embed(pictures_of([value % 7]), embedder)[0][0, 0], range(200)))
    assert found == [value % 7 for value in range(200)]
