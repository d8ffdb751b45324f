"""A store in a file of its own."""

from __future__ import annotations

import numpy as np
import pytest

from focus_eval.encoders.store import RelevanceStore

SCORER, VIDEO, QUERY = "offline rev 1", "0123abcd", "a cat"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "kept" / "store.sqlite"


@pytest.fixture
def store(path):
    made = RelevanceStore(path)
    yield made
    made.close()


def vectors_of(frames, *, writer=0, d=8):
    """Embeddings that tell frame and writer: each is one number, `d` times."""
    return np.repeat((np.asarray(frames) + writer / 16).astype(np.float32)[:, None], d, axis=1)
