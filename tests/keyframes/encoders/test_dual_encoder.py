"""Every encoder with two towers gives what transformers' own classes give."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import (
    Aimv2Model,
    AutoTokenizer,
    CLIPModel,
    Siglip2Model,
    Siglip2Tokenizer,
    SiglipModel,
)
from transformers.models.clip.image_processing_clip import CLIPImageProcessor
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil
from transformers.models.siglip2.image_processing_pil_siglip2 import Siglip2ImageProcessorPil

from focus_eval.core.errors import EncoderError, InvalidInput
from focus_eval.keyframes.encoders.dual_encoder import as_patches
from focus_eval.keyframes.encoders.registry import make_encoder
from tests.support.keyframes.random_weights import (
    WORDS,
    write_tiny_aimv2,
    write_tiny_clip,
    write_tiny_naflex,
    write_tiny_siglip,
    write_tiny_siglip2,
)

# Every encoder with two towers gives what transformers' own classes give.


QUERIES = ["a red car", "Who is the man on the left?", "What, in the VIDEO, is the dog cooking?", "the " * 120]


@dataclass(frozen=True)
class Family:
    """An architecture in transformers' own classes, and the encoder that reads it.

    Args:
        encoder: registered name.
        write: writes tiny random weights into a folder.
        model, processor, tokenizer: transformers' own.
        positions: text positions.
        is_padded: the text is padded to all positions, and the padding attended to.
    """

    encoder: str
    write: Callable[[Path], Path]
    model: Any
    processor: Any
    positions: int
    tokenizer: Any = AutoTokenizer
    is_padded: bool = False


FAMILIES = {
    "clip": Family("clip", write_tiny_clip, CLIPModel, CLIPImageProcessorPil, 77),
    "longclip": Family(
        "longclip", lambda folder: write_tiny_clip(folder, positions=248), CLIPModel, CLIPImageProcessorPil, 248
    ),
    "aimv2": Family("aimv2", write_tiny_aimv2, Aimv2Model, CLIPImageProcessorPil, 77),
    "siglip": Family("siglip", write_tiny_siglip, SiglipModel, SiglipImageProcessorPil, 16, is_padded=True),
    "siglip2": Family("siglip2", write_tiny_siglip2, SiglipModel, SiglipImageProcessorPil, 16, is_padded=True),
    "siglip2 saved with GemmaTokenizer": Family(
        "siglip2",
        lambda folder: write_tiny_siglip2(folder, tokenizer_class="GemmaTokenizer"),
        SiglipModel,
        SiglipImageProcessorPil,
        16,
        tokenizer=Siglip2Tokenizer,
        is_padded=True,
    ),
    "siglip2 naflex": Family(
        "siglip2", write_tiny_naflex, Siglip2Model, Siglip2ImageProcessorPil, 16, Siglip2Tokenizer, is_padded=True
    ),
}


@pytest.fixture(scope="module", params=FAMILIES)
def family(request, tmp_path_factory):
    family_case = FAMILIES[request.param]
    return family_case, family_case.write(tmp_path_factory.mktemp(family_case.encoder))


@pytest.fixture(scope="module")
def scorer(family):
    return make_encoder(family[0].encoder, checkpoint=str(family[1]), device="cpu")


@pytest.fixture(scope="module")
def frames():
    rng = np.random.default_rng(0)
    colours = rng.integers(0, 256, (7, 1, 1, 3))
    noise = rng.integers(-1, 2, (7, 60, 100, 3)) * np.arange(7).reshape(7, 1, 1, 1) * 15
    return np.clip(colours + noise, 0, 255).astype(np.uint8)


@pytest.fixture(scope="module")
def reference(family, frames):
    """transformers' own way: image processor and tokenizer, one forward of the whole model, logits per image."""
    family_case, folder = family
    model = family_case.model.from_pretrained(folder).eval()
    pixels = family_case.processor.from_pretrained(folder)(
        [Image.fromarray(frame) for frame in frames], return_tensors="pt"
    )
    padding = "max_length" if family_case.is_padded else True
    cut = {"truncation": True, "max_length": family_case.positions, "return_tensors": "pt"}
    inputs = family_case.tokenizer.from_pretrained(folder)(QUERIES, padding=padding, **cut)
    if family_case.is_padded:
        inputs.pop("attention_mask", None)
    with torch.inference_mode():
        return model, model(**inputs, **pixels)


def test_it_is_a_scorer_with_logits_and_embeddings(scorer):
    assert scorer.reads_frames
    assert scorer.overrides("logits")
    assert scorer.overrides("embeddings")


def test_cosine_equals_transformers_logits_before_their_scale(scorer, reference, frames):
    model, output = reference
    bias = getattr(model, "logit_bias", torch.zeros(1))
    expected = ((output.logits_per_image - bias) / model.logit_scale.exp()).detach().numpy()
    features = scorer.embed(frames)
    for at, query in enumerate(QUERIES):
        assert np.abs(scorer.cosine(features, query) - expected[:, at]).max() < 1e-5


def test_embeddings_equal_transformers_normalised_ones(scorer, reference, frames):
    _, output = reference
    for at, query in enumerate(QUERIES):
        images, text = scorer.embeddings(scorer.embed(frames), query)
        assert np.abs(images - output.image_embeds.numpy()).max() < 1e-5
        assert np.abs(text - output.text_embeds[at].numpy()).max() < 1e-5


def test_logits_are_the_dot_product_of_what_the_towers_give(scorer, reference, frames):
    model, output = reference
    image, text = output.vision_model_output.pooler_output, output.text_model_output.pooler_output
    if isinstance(model, Aimv2Model):  # its towers are projected in the whole model only
        with torch.inference_mode():
            image, text = model.visual_projection(image), model.text_projection(text)
    expected = (image @ text.T).numpy()
    features = scorer.embed(frames)
    for at, query in enumerate(QUERIES):
        assert np.allclose(scorer.logits(features, query), expected[:, at], atol=1e-4, rtol=1e-5)
    assert np.abs(scorer.logits(features, QUERIES[0])).max() > 1.5  # no cosines


def test_relevance_is_half_of_one_plus_the_cosine_and_ranks_as_it_does(scorer, frames):
    features = scorer.embed(frames)
    for query in QUERIES:
        relevance, cosine = scorer.relevance(features, query), scorer.cosine(features, query)
        assert np.allclose(relevance, (1 + cosine) / 2, atol=1e-12)
        assert np.array_equal(np.argsort(relevance), np.argsort(cosine))
        assert ((relevance >= 0) & (relevance <= 1)).all()


def test_padding_of_the_text_is_what_each_encoder_was_trained_on(family, scorer):
    ids = scorer.text_inputs(["a red car"])["input_ids"]
    assert (ids.shape[1] == 16) == family[0].is_padded


def test_what_lies_beyond_the_text_positions_is_cut_and_said(family, scorer, frames):
    positions = family[0].positions
    text = WORDS[2]
    while not scorer.is_cut(text):
        text += f" {WORDS[2]}"
    assert scorer.count_tokens(text) > positions
    assert scorer.text_inputs([text])["input_ids"].shape[1] == positions
    features = scorer.embed(frames)
    assert np.array_equal(scorer.relevance(features, text + " car"), scorer.relevance(features, text + " dog"))


@pytest.mark.parametrize("options", [{"batch_size": 2}, {"resize": "device"}])
def test_batches_and_the_place_of_the_resize_change_nothing(family, scorer, frames, options):
    variant = make_encoder(family[0].encoder, checkpoint=str(family[1]), device="cpu", **options)
    assert np.abs(variant.embed(frames) - scorer.embed(frames)).max() < 1e-5
    assert variant.revision == scorer.revision


def test_prepared_frames_embed_to_the_same(scorer, frames):
    assert np.array_equal(scorer.embed(scorer.prepare(frames)), scorer.embed(frames))


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_half_precision_moves_relevance_a_little(family, scorer, frames, precision):
    half = make_encoder(family[0].encoder, checkpoint=str(family[1]), device="cpu", precision=precision)
    difference = half.relevance(half.embed(frames), QUERIES[0]) - scorer.relevance(scorer.embed(frames), QUERIES[0])
    assert 0 < np.abs(difference).max() < 0.02
    assert half.embed(frames).dtype == np.float32
    assert f"precision={precision}" in half.revision


def test_torchvisions_resize_is_not_pillows(tmp_path, frames):
    """Why the scorer resizes by Pillow: transformers 5 changed the processor that the published runs used."""
    folder = write_tiny_clip(tmp_path)
    images = [Image.fromarray(frame) for frame in frames]
    pillow = CLIPImageProcessorPil.from_pretrained(folder)(images, return_tensors="pt")["pixel_values"]
    torchvision = CLIPImageProcessor.from_pretrained(folder)(images, return_tensors="pt")["pixel_values"]
    assert (pillow - torchvision).abs().max() > 0.01


def test_aimv2_text_is_read_causally_alone_as_in_a_batch(tmp_path, frames):
    """transformers' own fused attention loses the mask of a single text without padding."""
    folder = write_tiny_aimv2(tmp_path)
    scorer = make_encoder("aimv2", checkpoint=str(folder), device="cpu")
    model, tokenizer = Aimv2Model.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    texts = ["a red car", "a red car and a dog"]
    with torch.inference_mode():
        batch = model.get_text_features(**tokenizer(texts, padding=True, return_tensors="pt")).pooler_output[0]
        single = model.get_text_features(**tokenizer(texts[:1], return_tensors="pt")).pooler_output[0]
    assert (single - batch).abs().max() > 0.01
    features = scorer._query_features(texts[0])
    assert np.abs(features - batch.numpy()).max() < 1e-5


def test_features_are_small_enough_to_store(scorer, frames):
    features = scorer.embed(frames)
    assert scorer.stores_embeddings
    assert features.dtype == np.float32
    assert features.ndim == 2


def test_no_frame_gives_no_relevance(scorer):
    features = scorer.embed(np.empty((0, 40, 60, 3), dtype=np.uint8))
    assert features.shape[0] == 0
    assert scorer.relevance(features, "a dog").shape == (0,)


def test_an_empty_query_is_refused(scorer, frames):
    with pytest.raises(InvalidInput, match="query is empty"):
        scorer.relevance(scorer.embed(frames), "  ")


def test_the_text_tower_runs_once_for_all_frames_of_a_question(scorer, frames, monkeypatch):
    runs = []
    stock = scorer._model.get_text_features
    monkeypatch.setattr(scorer._model, "get_text_features", lambda **inputs: runs.append(1) or stock(**inputs))
    for at in range(3):
        scorer.relevance(scorer.embed(frames[at : at + 1]), "a question nobody asked before")
    assert len(runs) == 1


def test_frames_of_several_sizes_are_embedded_in_one_batch_as_each_by_itself(tmp_path):
    encoder = make_encoder("clip", checkpoint=str(write_tiny_clip(tmp_path / "clip")), device="cpu", batch_size=4)
    rng = np.random.default_rng(0)
    parts = [
        rng.integers(0, 256, (n, height, width, 3), dtype=np.uint8)
        for n, height, width in ((3, 48, 64), (1, 90, 40), (2, 32, 32))
    ]
    single_features = np.concatenate([encoder.embed(part) for part in parts])
    np.testing.assert_allclose(encoder.queue_parts(parts)(), single_features, atol=1e-6)
    assert not encoder.fills_batches  # a processor takes batches as they come


# SigLIP 2 reads lower-cased text whatever tokenizer was saved, and frames of any aspect.


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
    keeps_case = as_is != scorer.text_inputs(["A Red CAR"])["input_ids"][0].tolist()
    assert keeps_case == (tokenizer_class == "GemmaTokenizer")  # what transformers alone would do


def test_capitals_kept_would_give_other_relevance(tmp_path):
    """Why it matters: the score of a tokenizer that keeps capitals looks as good as the right one."""
    folder = write_tiny_siglip2(tmp_path, tokenizer_class="GemmaTokenizer")
    scorer = make_encoder("siglip2", checkpoint=str(folder), device="cpu")
    features = scorer.embed(frames_of(60, 100))
    right = scorer.relevance(features, "A Red CAR")
    assert np.array_equal(right, scorer.relevance(features, "a red car"))
    cased_encoder = make_encoder("siglip2", checkpoint=str(folder), device="cpu")
    cased_encoder.clean_text = lambda text: text
    wrong = cased_encoder.relevance(features, "A Red CAR")
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
    expected = processor([Image.fromarray(frame) for frame in frames], return_tensors="pt")
    patches, shape = as_patches(scorer._pixel_values(frames), 8)
    rows, columns = expected["spatial_shapes"][0].tolist()
    assert shape == (rows, columns)
    assert torch.equal(expected["pixel_attention_mask"][0].bool(), torch.arange(36) < rows * columns)
    # In one call Pillow resizes a portrait image height first: one level of 255 apart, of values from -1 to 1.
    tolerance = 2.1 / 255 if size[0] > size[1] else 1e-5
    assert (patches - expected["pixel_values"][:, : rows * columns]).abs().max() < tolerance


@pytest.mark.parametrize("size", [(60, 100), (100, 60), (9, 200), (720, 1280), (337, 511)])
def test_naflex_frames_shrunk_ahead_of_time_embed_to_the_same(naflex, size):
    _, scorer = naflex
    frames = frames_of(*size)
    assert np.array_equal(scorer.embed(scorer.prepare(frames)), scorer.embed(frames))
