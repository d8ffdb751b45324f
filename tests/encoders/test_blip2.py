"""BLIP-2's matching head as a scorer gives what transformers' own model gives."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import Blip2ForImageTextRetrieval, Blip2Processor
from transformers.models.blip.image_processing_pil_blip import BlipImageProcessorPil

from focus_eval.core.errors import EncoderError, InvalidInput
from focus_eval.encoders.protocol import GivesEmbeddings, Scorer
from focus_eval.encoders.registry import make_encoder
from support.random_weights import write_tiny_blip2

QUERIES = ["a red car", "Who is the man on the left?", "what is the dog cooking"]


@pytest.fixture(scope="module", params=[True, False], ids=["image token", "no image token"])
def folder(request, tmp_path_factory):
    return write_tiny_blip2(tmp_path_factory.mktemp("blip2"), image_token=request.param)


@pytest.fixture(scope="module")
def scorer(folder):
    return make_encoder("blip2", checkpoint=str(folder), device="cpu", preprocess="hf")


@pytest.fixture(scope="module")
def frames():
    return np.random.default_rng(0).integers(0, 256, (5, 60, 100, 3), dtype=np.uint8)


def theirs(folder, frames, query: str) -> np.ndarray:
    """transformers' own way: the processor on image and text, one forward with the matching head, softmax."""
    model = Blip2ForImageTextRetrieval.from_pretrained(folder).eval()
    processor = Blip2Processor.from_pretrained(folder)
    processor.image_processor = BlipImageProcessorPil.from_pretrained(folder)
    images = [Image.fromarray(frame) for frame in frames]
    inputs = processor(images=images, text=[query] * len(images), return_tensors="pt")
    with torch.inference_mode():
        logits = model(**inputs, use_image_text_matching_head=True).logits_per_image
    return logits.softmax(dim=1)[:, 1].numpy()


@pytest.mark.parametrize("query", QUERIES)
def test_relevance_is_transformers_probability_of_a_match(folder, scorer, frames, query):
    expected = theirs(folder, frames, query)
    assert np.ptp(expected) > 1e-3  # the frames differ
    assert np.abs(scorer.relevance(scorer.embed(frames), query) - expected).max() < 1e-5


def test_lavis_text_is_cleaned_and_cut_to_32_tokens(folder, frames):
    scorer = make_encoder("blip2", checkpoint=str(folder), device="cpu")
    plain = make_encoder("blip2", checkpoint=str(folder), device="cpu", preprocess="hf")
    features = scorer.embed(frames)
    assert np.array_equal(scorer.relevance(features, "A red CAR!"), plain.relevance(features, "a red car"))
    assert scorer.text_inputs(["a dog " * 40])[0].shape[1] == 32
    assert scorer.is_cut("a dog " * 40)
    assert not plain.is_cut("a dog " * 40)
    assert "preprocess=lavis" in scorer.revision
    assert "preprocess=hf" in plain.revision


@pytest.mark.parametrize("options", [{"batch_size": 2}, {"resize": "device"}])
def test_batches_and_the_place_of_the_resize_change_nothing(folder, scorer, frames, options):
    other = make_encoder("blip2", checkpoint=str(folder), device="cpu", preprocess="hf", **options)
    difference = other.relevance(other.embed(frames), QUERIES[0]) - scorer.relevance(scorer.embed(frames), QUERIES[0])
    assert np.abs(difference).max() < 1e-5


def test_image_tokens_are_not_stored(scorer):
    assert isinstance(scorer, Scorer)
    assert not isinstance(scorer, GivesEmbeddings)
    assert not scorer.stores_embeddings


def test_a_blip2_that_generates_text_is_refused(tmp_path):
    folder = write_tiny_blip2(tmp_path)
    config = json.loads((folder / "config.json").read_text())
    config["qformer_config"]["use_qformer_text_input"] = False
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(EncoderError, match="reads no text"):
        make_encoder("blip2", checkpoint=str(folder))


def test_another_preprocess_is_refused():
    with pytest.raises(InvalidInput, match="must be lavis or hf"):
        make_encoder("blip2", preprocess="clip")
