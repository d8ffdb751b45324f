"""Image states are kept for the next question of a video, within their bound; equal pictures share their features."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor, wait

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from focus_eval.core.errors import InvalidInput
from focus_eval.keyframes.encoders.cache import DuplicateCache, FeatureCache
from focus_eval.keyframes.encoders.registry import make_encoder
from tests.support.keyframes.random_weights import TINY_BLIP_HEADS, write_tiny_blip

# Kept image states serve the next question of a video and never outgrow their bound.


ROW = 8  # bytes: two float32


def rows_of(frames) -> np.ndarray:
    return np.stack([np.array([frame, -frame], dtype=np.float32) for frame in frames])


def test_kept_frames_come_back_in_the_order_asked():
    cache = FeatureCache(1000)
    cache.put("a", np.array([5, 3, 9]), rows_of([5, 3, 9]))
    is_stored, features = cache.get("a", np.array([9, 4, 5]))
    assert is_stored.tolist() == [True, False, True]
    assert np.array_equal(features, rows_of([9, 5]))


def test_videos_do_not_mix():
    cache = FeatureCache(1000)
    cache.put("a", np.array([1]), rows_of([1]))
    assert cache.get("b", np.array([1])) == (np.array([False]), None)


def test_the_least_recently_used_frame_goes_first():
    cache = FeatureCache(3 * ROW)
    cache.put("a", np.array([1, 2, 3]), rows_of([1, 2, 3]))
    cache.get("a", np.array([1]))
    cache.put("a", np.array([4]), rows_of([4]))
    assert cache.get("a", np.array([1, 2, 3, 4]))[0].tolist() == [True, False, True, True]


@given(st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=8, unique=True), max_size=12), st.integers(0, 90))
def test_memory_stays_within_its_bound_and_is_counted_right(batches, bound):
    cache = FeatureCache(bound)
    for frames in batches:
        cache.put("a", np.array(frames), rows_of(frames))
        assert cache.n_bytes == len(cache) * ROW <= bound
        is_stored, features = cache.get("a", np.array(frames))
        assert is_stored.sum() == min(len(frames), bound // ROW)
        if features is not None:
            assert np.array_equal(features, rows_of(np.array(frames)[is_stored]))


def test_a_kept_row_does_not_hold_its_batch():
    batch = torch.zeros(64, 1000)
    cache = FeatureCache(4000)
    cache.put("a", np.array([0]), batch[:1])
    _, features = cache.get("a", np.array([0]))
    batch += 1
    assert features.untyped_storage().nbytes() == 4000
    assert not features.any()


def test_the_next_question_on_kept_states_equals_one_on_fresh_ones(tmp_path):
    scorer = make_encoder("blip", checkpoint=str(write_tiny_blip(tmp_path)), text_heads=TINY_BLIP_HEADS, device="cpu")
    pixels = np.random.default_rng(0).integers(0, 256, (6, 50, 80, 3), dtype=np.uint8)
    cache = FeatureCache(1 << 20)
    cache.put("clip.mp4", np.arange(6), scorer.embed(pixels))
    is_stored, states = cache.get("clip.mp4", np.array([4, 1]))
    assert is_stored.all()
    fresh = scorer.relevance(scorer.embed(pixels[[4, 1]]), "a red car")
    assert np.abs(scorer.relevance(states, "a red car") - fresh).max() < 1e-5


def test_rows_and_frames_must_match():
    with pytest.raises(InvalidInput, match="2 frames, 1 rows"):
        FeatureCache(100).put("a", np.array([1, 2]), rows_of([1]))


# A picture seen before is not embedded again, and gets the features it had.


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
def test_features_are_those_of_the_pictures_whatever_was_forgotten(batches, max_pictures):
    duplicates, embedder = DuplicateCache(max_pictures), Embedder()
    for values in batches:
        n_embedded = len(embedder.asked)
        features, computed = duplicates.embed(pictures_of(values), embedder)
        np.testing.assert_array_equal(features[:, 0], np.float32(values))
        assert computed.sum() == len(embedder.asked) - n_embedded
    n_seen = len({value for values in batches for value in values})
    assert len(duplicates) == min(max_pictures, n_seen)


def test_each_picture_is_embedded_once_also_within_a_batch():
    duplicates, embedder = DuplicateCache(), Embedder()
    _, computed = duplicates.embed(pictures_of([1, 2, 1, 3, 2]), embedder)
    assert computed.tolist() == [True, True, False, True, False]
    _, computed = duplicates.embed(pictures_of([3, 4]), embedder)
    assert computed.tolist() == [False, True]
    assert embedder.asked == [1, 2, 3, 4]


@pytest.mark.parametrize("is_failing", [False, True])
def test_threads_embed_a_picture_once_and_take_over_what_another_failed_at(is_failing):
    duplicates, embedder = DuplicateCache(), Embedder()
    begun, may_end = threading.Event(), threading.Event()

    def embed_late(pictures):
        begun.set()
        assert may_end.wait(60)
        if is_failing:
            raise MemoryError
        return embedder(pictures)

    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(duplicates.embed, pictures_of([1, 2]), embed_late)
        assert begun.wait(60)
        others = [pool.submit(duplicates.embed, pictures_of([2, 3]), embedder) for _ in range(2)]
        assert not wait(others, timeout=0.2).done
        may_end.set()
        assert isinstance(first.exception(60), MemoryError) == is_failing
        for other in others:
            np.testing.assert_array_equal(other.result(60)[0][:, 0], np.float32([2, 3]))
    assert sorted(embedder.asked) == ([2, 3] if is_failing else [1, 2, 3])


def test_a_picture_of_another_shape_is_another_picture():
    duplicates, embedder = DuplicateCache(), Embedder()
    pixels = np.arange(18, dtype=np.uint8)
    duplicates.embed(pixels.reshape(1, 2, 3, 3), embedder)
    _, computed = duplicates.embed(pixels.reshape(1, 3, 2, 3), embedder)
    assert computed.all()


def test_a_failed_batch_leaves_nothing_behind():
    duplicates, embedder = DuplicateCache(), Embedder()

    def fail(pictures):
        raise MemoryError

    for _ in range(2):
        try:
            duplicates.embed(pictures_of([1]), fail)
        except MemoryError:
            continue
    features, computed = duplicates.embed(pictures_of([1]), embedder)
    assert computed.all()
    assert features[0, 0] == 1


def test_saved_features_spare_the_encoder_and_still_count_as_computed(tmp_path):
    path, earlier, later = tmp_path / "new" / "features.npz", DuplicateCache(), DuplicateCache()
    expected, _ = earlier.embed(pictures_of([1, 2]), Embedder())
    earlier.save(path)
    later.load(path)
    embedder = Embedder()
    features, computed = later.embed(pictures_of([2, 1, 3, 2]), embedder)
    assert embedder.asked == [3]
    assert computed.tolist() == [True, True, True, False]
    np.testing.assert_array_equal(features[:3], [*expected[::-1], [3]])
    # A file of its own, with the new features alone.
    later.save(path.with_name("later.npz"))
    again, embedder = DuplicateCache(), Embedder()
    again.load(path.with_name("later.npz"))
    again.embed(pictures_of([1, 2, 3]), embedder)
    assert embedder.asked == [1, 2]
    again.load(path)
    again.save(tmp_path / "none.npz")
    assert not (tmp_path / "none.npz").exists()


def test_features_are_not_kept_without_end(tmp_path):
    caches = [DuplicateCache(2) for _ in range(2)]
    caches[0].embed(pictures_of([1, 2]), Embedder())
    caches[0].save(tmp_path / "first.npz")
    caches[1].load(tmp_path / "first.npz")
    caches[1].embed(pictures_of([3]), Embedder())
    caches[1].save(tmp_path / "second.npz")
    assert not (tmp_path / "second.npz").exists()


@pytest.mark.parametrize("n_bytes", [0, 100, -30])
def test_a_missing_or_damaged_file_of_features_is_as_none(tmp_path, n_bytes):
    path, duplicates = tmp_path / "features.npz", DuplicateCache()
    duplicates.embed(pictures_of([1, 2]), Embedder())
    duplicates.save(path)
    path.write_bytes(path.read_bytes()[:n_bytes])
    embedder, later = Embedder(), DuplicateCache()
    for features_path in (path, tmp_path / "none.npz"):
        later.load(features_path)
    later.embed(pictures_of([1, 2]), embedder)
    assert embedder.asked == [1, 2]


def test_a_flipped_bit_of_saved_features_is_noticed(tmp_path):
    path, duplicates = tmp_path / "features.npz", DuplicateCache()
    features, _ = duplicates.embed(pictures_of([1, 2]), Embedder())
    duplicates.save(path)
    content = bytearray(path.read_bytes())
    content[content.index(features.tobytes())] ^= 1
    path.write_bytes(content)
    embedder, later = Embedder(), DuplicateCache()
    later.load(path)
    later.embed(pictures_of([1, 2]), embedder)
    assert embedder.asked == [1, 2]


def test_threads_get_the_same_features():
    duplicates, embedder = DuplicateCache(4), Embedder()
    with ThreadPoolExecutor(4) as pool:
        values = list(pool.map(lambda value: duplicates.embed(pictures_of([value % 7]), embedder)[0][0, 0], range(200)))
    assert values == [value % 7 for value in range(200)]
