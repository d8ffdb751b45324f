"""The relevance store gives back what was put, to the bit, whoever else writes and whenever somebody is killed."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest

from focus_eval.core.errors import InvalidInput, VideoError
from focus_eval.encoders.store import RelevanceStore

from .conftest import QUERY, SCORER, VIDEO, vectors_of


def test_embeddings_come_back_to_the_bit_in_asked_order_with_repeats(store):
    frames = np.array([7, 3, 900_000_000_000, 0])
    vectors = np.random.default_rng(0).normal(size=(4, 384)).astype(np.float32)
    vectors[0, :3] = (np.float32(1e-45), -0.0, np.finfo(np.float32).max)
    np.testing.assert_array_equal(store.put_embeddings(SCORER, VIDEO, frames, vectors), vectors)
    found, back = store.embeddings(SCORER, VIDEO, np.array([0, 5, 7, 7, 900_000_000_000]))
    np.testing.assert_array_equal(found, [True, False, True, True, True])
    assert back.dtype == np.float32
    assert back.tobytes() == vectors[[3, 0, 0, 2]].tobytes()


def test_relevance_comes_back_to_the_bit_and_nan_where_unknown(store):
    frames, values = np.arange(50) * 3, np.random.default_rng(0).random(50)
    values[:3] = (0.0, 1.0, np.nextafter(0, 1))
    store.put_relevance(SCORER, VIDEO, QUERY, frames, values)
    back = store.relevance(SCORER, VIDEO, QUERY, np.arange(150))
    np.testing.assert_array_equal(back[::3], values)
    assert np.isnan(back.reshape(50, 3)[:, 1:]).all()


def test_nothing_known_and_nothing_asked_are_empty(store):
    found, vectors = store.embeddings(SCORER, VIDEO, np.array([1, 2]))
    assert (found.tolist(), vectors.shape) == ([False, False], (0, 0))
    nothing = np.array([], dtype=np.int64)
    assert store.embeddings(SCORER, VIDEO, nothing)[0].shape == (0,)
    assert store.put_embeddings(SCORER, VIDEO, nothing, np.empty((0, 8), np.float32)).shape == (0, 8)
    assert store.put_relevance(SCORER, VIDEO, QUERY, nothing, np.empty(0)).shape == (0,)


@pytest.mark.parametrize("other", [("rev 2", VIDEO, QUERY), (SCORER, "ffff", QUERY), (SCORER, VIDEO, "a dog")])
def test_scorer_video_and_query_each_keep_their_own(store, other):
    frames = np.array([1, 2])
    store.put_relevance(SCORER, VIDEO, QUERY, frames, np.array([0.25, 0.5]))
    assert np.isnan(store.relevance(*other, frames)).all()
    store.put_relevance(*other, frames, np.array([0.75, 1.0]))
    np.testing.assert_array_equal(store.relevance(SCORER, VIDEO, QUERY, frames), [0.25, 0.5])


def test_what_was_put_first_stays_and_is_what_a_later_put_returns(store):
    store.put_embeddings(SCORER, VIDEO, np.array([1, 2]), vectors_of([1, 2], writer=1))
    kept = store.put_embeddings(SCORER, VIDEO, np.array([3, 2]), vectors_of([3, 2], writer=2))
    np.testing.assert_array_equal(kept, np.concatenate([vectors_of([3], writer=2), vectors_of([2], writer=1)]))
    store.put_relevance(SCORER, VIDEO, QUERY, np.array([1]), np.array([0.5]))
    np.testing.assert_array_equal(
        store.put_relevance(SCORER, VIDEO, QUERY, np.array([1, 2]), np.array([0.1, 0.2])), [0.5, 0.2]
    )


def test_a_long_unicode_query_is_a_key(store):
    query = "多少只猫 🐈 " * 1250
    store.put_relevance(SCORER, VIDEO, query, np.array([4]), np.array([0.5]))
    assert store.relevance(SCORER, VIDEO, query, np.array([4])) == 0.5
    assert np.isnan(store.relevance(SCORER, VIDEO, query + "x", np.array([4]))).all()


@pytest.mark.parametrize(
    "wrong",
    [
        lambda s: s.put_embeddings(SCORER, VIDEO, np.array([1]), np.zeros((1, 4))),
        lambda s: s.put_embeddings(SCORER, VIDEO, np.array([1, 2]), np.zeros((1, 4), np.float32)),
        lambda s: s.put_embeddings(SCORER, VIDEO, np.array([1]), np.full((1, 4), np.nan, np.float32)),
        lambda s: s.put_relevance(SCORER, VIDEO, QUERY, np.array([1]), np.array([np.nan])),
        lambda s: s.put_relevance(SCORER, VIDEO, QUERY, np.array([1]), np.array([1.01])),
        lambda s: s.put_relevance(SCORER, VIDEO, QUERY, np.array([1, 2]), np.array([0.5])),
        lambda s: s.put_relevance(SCORER, VIDEO, "", np.array([1]), np.array([0.5])),
    ],
    ids=["float64", "too few", "nan vector", "nan", "above one", "too few values", "no query"],
)
def test_what_no_scorer_may_give_is_refused_and_not_kept(store, wrong):
    with pytest.raises(InvalidInput):
        wrong(store)
    assert not store.embeddings(SCORER, VIDEO, np.array([1]))[0].any()
    assert np.isnan(store.relevance(SCORER, VIDEO, QUERY, np.array([1]))).all()


def test_a_closed_store_opens_again_and_another_sees_what_it_kept(store, path):
    store.put_embeddings(SCORER, VIDEO, np.array([1]), vectors_of([1]))
    store.close()
    for reader in (RelevanceStore(path), store, pickle.loads(pickle.dumps(store))):
        np.testing.assert_array_equal(reader.embeddings(SCORER, VIDEO, np.array([1]))[1], vectors_of([1]))


def test_a_store_made_anew_at_the_same_path_forgets_the_old_numbers(store, path):
    store.put_relevance(SCORER, "other video", QUERY, np.array([1]), np.array([0.5]))
    store.put_relevance(SCORER, VIDEO, QUERY, np.array([1]), np.array([0.25]))
    store.close()
    path.unlink()
    store.put_relevance(SCORER, VIDEO, QUERY, np.array([1]), np.array([0.75]))
    assert store.relevance(SCORER, VIDEO, QUERY, np.array([1])) == 0.75
    assert np.isnan(store.relevance(SCORER, "other video", QUERY, np.array([1])))


def test_the_fingerprint_is_of_the_content_not_of_the_name(store, tmp_path):
    first, copy, other = (tmp_path / name for name in ("a.mp4", "b.mkv", "c.mp4"))
    first.write_bytes(b"frames" * 1000)
    shutil.copy(first, copy)
    other.write_bytes(b"Frames" + b"frames" * 999)
    prints = [store.video_fingerprint(item) for item in (first, copy, other)]
    assert prints[0] == prints[1] != prints[2]
    other.write_bytes(b"frames" * 1000)
    assert store.video_fingerprint(other) == prints[0]


def test_a_file_is_hashed_once_while_it_stays_the_same(store, path, tmp_path, monkeypatch):
    video = tmp_path / "clip.mp4"
    video.write_bytes(b"frames")
    before = store.video_fingerprint(video)
    monkeypatch.setattr("focus_eval.encoders.store.content_hash", lambda _: pytest.fail("hashed again"))
    monkeypatch.chdir(tmp_path)
    assert RelevanceStore(path).video_fingerprint("clip.mp4") == before


def test_a_video_that_is_not_there_is_named(store, tmp_path):
    with pytest.raises(VideoError, match=r"gone\.mp4: No such file"):
        store.video_fingerprint(tmp_path / "gone.mp4")
    with pytest.raises(VideoError, match="Is a directory"):
        store.video_fingerprint(Path(tmp_path))
