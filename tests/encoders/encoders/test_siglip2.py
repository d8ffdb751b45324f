"""SigLIP 2 reads lower-cased text whatever tokenizer was saved, and frames of any aspect."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import AutoTokenizer
from transformers.models.siglip2.image_processing_pil_siglip2 import Siglip2ImageProcessorPil

from focus_eval.core.errors import EncoderError
from focus_eval.encoders.dual_encoder import as_patches
from focus_eval.encoders.registry import make_encoder
from support.random_weights import write_tiny_naflex, write_tiny_siglip, write_tiny_siglip2

CAPITALS = ["A Red CAR", "Who is the Man?", "ÉTÉ Straße ΣΟΦΟΣ İ"]


def frames_of(height: int, width: int, n: int = 3) -> np.ndarray:
    return np.random.default_rng(height * width).integers(0, 256, (n, height, width, 3), dtype=np.uint8)


@pytest.fixture(scope="module")
def naflex(tmp_path_factory):
    folder = write_tiny_naflex(tmp_path_factory.mktemp("naflex"))
    return folder, make_encoder("siglip2", checkpoint=str(folder), device="cpu")


@pytest.mark.parametrize("tokenizer_class", ["Siglip2Tokenizer", "GemmaTokenizer"])
def test_capitals_are_lower_cased_whichever_tokenizer_was_saved(tmp_path, tokenizer_class):
    folder = write_tiny_siglip2(tmp_path / "weights", tokenizer_class=tokenizer_class)
    scorer = make_encoder("siglip2", checkpoint=str(folder), device="cpu")
    expected = AutoTokenizer.from_pretrained(write_tiny_siglip2(tmp_path / "own"))  # transformers' Siglip2Tokenizer
    for text in CAPITALS:
        ids = scorer.text_inputs([text])["input_ids"][0].tolist()
        assert ids == expected(text, padding="max_length", truncation=True, max_length=16)["input_ids"]
    as_is = AutoTokenizer.from_pretrained(folder)("A Red CAR", padding="max_length", max_length=16)["input_ids"]
    kept = as_is != scorer.text_inputs(["A Red CAR"])["input_ids"][0].tolist()
    assert kept == (tokenizer_class == "GemmaTokenizer")  # what transformers alone would do


def test_capitals_kept_would_give_other_relevance(tmp_path):
    """Why it matters: the score of a tokenizer that keeps capitals looks as good as the right one."""
    folder = write_tiny_siglip2(tmp_path, tokenizer_class="GemmaTokenizer")
    scorer = make_encoder("siglip2", checkpoint=str(folder), device="cpu")
    features = scorer.embed(frames_of(60, 100))
    right = scorer.relevance(features, "A Red CAR")
    assert np.array_equal(right, scorer.relevance(features, "a red car"))
    kept = make_encoder("siglip2", checkpoint=str(folder), device="cpu")
    kept.cleaned = lambda text: text
    wrong = kept.relevance(features, "A Red CAR")
    assert np.abs(wrong - right).max() > 1e-3
    assert ((wrong >= 0) & (wrong <= 1)).all()


def test_a_long_query_keeps_its_end_token_and_pads_on_the_right(tmp_path):
    folder = write_tiny_siglip2(tmp_path)
    scorer = make_encoder("siglip2", checkpoint=str(folder), device="cpu")
    long, short = scorer.text_inputs(["a dog " * 50])["input_ids"][0], scorer.text_inputs(["a"])["input_ids"][0]
    assert long[-1] == 1
    assert short[-1] == 0
    assert short[1] == 1
    assert set(scorer.text_inputs(["a"])) == {"input_ids"}


def test_the_two_generations_refuse_each_others_weights(tmp_path):
    first, second = write_tiny_siglip(tmp_path / "1"), write_tiny_siglip2(tmp_path / "2")
    with pytest.raises(EncoderError, match=r"use the encoder siglip$"):
        make_encoder("siglip2", checkpoint=str(first))
    with pytest.raises(EncoderError, match="use the encoder siglip2"):
        make_encoder("siglip", checkpoint=str(second))


@pytest.mark.parametrize("size", [(60, 100), (100, 60), (48, 48), (720, 1280), (9, 200)])
def test_naflex_sees_the_patches_of_transformers_own_processor(naflex, size):
    folder, scorer = naflex
    frames = frames_of(*size)
    processor = Siglip2ImageProcessorPil.from_pretrained(folder)
    theirs = processor([Image.fromarray(frame) for frame in frames], return_tensors="pt")
    patches, shape = as_patches(scorer._pixel_values(frames), 8)
    rows, columns = theirs["spatial_shapes"][0].tolist()
    assert shape == (rows, columns)
    assert torch.equal(theirs["pixel_attention_mask"][0].bool(), torch.arange(36) < rows * columns)
    # In one call Pillow resizes a portrait image height first: one level of 255 apart, of values from -1 to 1.
    tolerance = 2.1 / 255 if size[0] > size[1] else 1e-5
    assert (patches - theirs["pixel_values"][:, : rows * columns]).abs().max() < tolerance


@pytest.mark.parametrize("size", [(60, 100), (100, 60), (9, 200), (720, 1280), (337, 511)])
def test_naflex_frames_shrunk_ahead_of_time_embed_to_the_same(naflex, size):
    _, scorer = naflex
    frames = frames_of(*size)
    assert np.array_equal(scorer.embed(scorer.prepare(frames)), scorer.embed(frames))
