"""BLIP on transformers gives what was recorded of BLIP on LAVIS, and each way to get it wrong is noticed."""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import PIL
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from transformers import BlipConfig, BlipForImageTextRetrieval, BlipImageProcessor, BlipProcessor

from focus_eval.keyframes.encoders.blip import (
    LAVIS,
    TRANSFORMERS,
    BlipOptions,
    clean_caption,
    load_model,
    load_tokenizer,
)
from focus_eval.keyframes.encoders.registry import make_encoder
from tests.support.keyframes.random_weights import blip_scorer

TOLERANCE = 1e-5
TINY = replace(LAVIS, text_heads=6)  # the recorded model is small: six heads, not twelve


_RENAMED = (
    ("visual_encoder.blocks.", "vision_model.encoder.layers."),
    ("visual_encoder.cls_token", "vision_model.embeddings.class_embedding"),
    ("visual_encoder.pos_embed", "vision_model.embeddings.position_embedding"),
    ("visual_encoder.patch_embed.proj.", "vision_model.embeddings.patch_embedding."),
    ("visual_encoder.norm.", "vision_model.post_layernorm."),
)
_RENAMED_IN_BLOCK = (
    (".norm1.", ".layer_norm1."),
    (".norm2.", ".layer_norm2."),
    (".attn.proj.", ".self_attn.projection."),
    (".attn.qkv.", ".self_attn.qkv."),
)


def transformers_name(lavis: str) -> str:
    """Return transformers' name of a LAVIS tensor; only the image tower is named differently."""
    name = lavis
    for lavis_name, hf_name in _RENAMED:
        name = name.replace(lavis_name, hf_name)
    if name.startswith("vision_model.encoder."):
        for lavis_name, hf_name in _RENAMED_IN_BLOCK:
            name = name.replace(lavis_name, hf_name)
    return name


def lavis_state(recorded: Path) -> dict[str, torch.Tensor]:
    """Return the recorded weights in fp32 under transformers' names."""
    return {
        transformers_name(name): tensor.float() for name, tensor in load_file(recorded / "weights.safetensors").items()
    }


def write_checkpoint(recorded: Path, folder: Path, **changes: Any) -> Path:
    """Write a checkpoint folder as the hub's: `config.json` with transformers' own defaults for what LAVIS changes."""
    settings = json.loads((recorded / "config.json").read_text())["hf"]
    settings["vision_config"].pop("layer_norm_eps")  # the published configurations say 1e-5
    settings["text_config"]["num_attention_heads"] = 8
    config = BlipConfig(**{**settings, **changes})
    model = BlipForImageTextRetrieval(config)
    model.load_state_dict(lavis_state(recorded), strict=True)
    folder.mkdir(parents=True, exist_ok=True)
    config.save_pretrained(folder)
    save_file(model.state_dict(), folder / "model.safetensors", metadata={"format": "pt"})
    shutil.copy(recorded / "vocab.txt", folder / "vocab.txt")
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "BertTokenizer", "do_lower_case": True})
    )
    (folder / "preprocessor_config.json").write_text(json.dumps({"image_processor_type": "BlipImageProcessor"}))
    return folder


@pytest.fixture(scope="module")
def recorded(recorded_blip):
    return recorded_blip


@pytest.fixture(scope="module")
def cases(recorded):
    return json.loads((recorded / "cases.json").read_text())


@pytest.fixture(scope="module")
def golden(recorded):
    return load_file(recorded / "golden.safetensors")


@pytest.fixture(scope="module")
def images(recorded, cases):
    return [np.asarray(Image.open(recorded / image["file"])) for image in cases["images"]]


@pytest.fixture(scope="module")
def texts(cases):
    return [text["raw"] for text in cases["texts"]]


@pytest.fixture(scope="module")
def folder(recorded, tmp_path_factory):
    return write_checkpoint(recorded, tmp_path_factory.mktemp("checkpoint"))


@pytest.fixture(scope="module")
def scorer(folder):
    return make_encoder("blip", checkpoint=str(folder), text_heads=6, device="cpu")


@pytest.fixture(scope="module")
def tokens(scorer, images):
    return torch.cat([scorer.embed(image[None]) for image in images])


def probabilities(scorer, images, texts) -> np.ndarray:
    """Match probabilities `(n_images, n_texts)`, one image and one text a call, as AKS runs it.

    The recorded texts include the empty one, which a scorer refuses as a query: so below that check.
    """
    tokens = [scorer.embed(image[None]) for image in images]
    return np.array([[scorer._match_probability(states, [text])[0, 0] for text in texts] for states in tokens])


@pytest.mark.parametrize("resize", ["pil", "device"])
def test_pixels_equal_the_recorded_ones_bit_for_bit(folder, cases, images, resize):
    scorer = make_encoder("blip", checkpoint=str(folder), text_heads=6, device="cpu", resize=resize)
    for image, case in zip(images, cases["images"], strict=True):
        pixels = scorer._pixel_values(image[None])[0].numpy().astype("<f4")
        assert hashlib.sha256(pixels.tobytes()).hexdigest() == case["pixel_values"]["sha256_chw_le"], case["name"]


def test_prepared_frames_equal_what_lavis_resized(recorded, scorer, cases, images):
    for image, case in zip(images, cases["images"], strict=True):
        resized = np.asarray(Image.open(recorded / case["resized_file"]))
        assert np.array_equal(scorer.prepare(image[None])[0], resized), case["name"]


def test_text_and_token_ids_equal_the_recorded_ones(scorer, cases):
    for case in cases["texts"]:
        assert clean_caption(case["raw"]) == case["processed"]
        ids, mask = scorer.text_inputs([case["raw"]])
        assert ids[0].tolist() == case["itm_input_ids"], case["name"]
        assert mask[0].tolist() == case["attention_mask"], case["name"]
        assert scorer.count_tokens(case["raw"]) == case["n_tokens_untruncated"], case["name"]


def test_image_tokens_equal_the_recorded_ones(tokens, cases, golden):
    first, *later_names = [image["name"] for image in cases["images"]]
    assert (tokens[0] - golden[f"image_embeds/{first}"]).abs().max() < TOLERANCE
    for at, name in enumerate(later_names, start=1):
        assert (tokens[at, :8] - golden[f"image_embeds_head/{name}"]).abs().max() < TOLERANCE


def test_probability_equals_the_recorded_one_image_and_text_at_a_time(scorer, images, texts, golden):
    assert np.abs(probabilities(scorer, images, texts) - golden["itm_prob"].numpy()).max() < TOLERANCE


def test_probability_equals_the_recorded_one_of_all_images_against_one_text(scorer, tokens, texts, golden):
    probabilities = np.stack([scorer._match_probability(tokens, [text])[0] for text in texts], axis=1)
    assert np.abs(probabilities - golden["itm_prob_focus_batch"].numpy()).max() < TOLERANCE


def test_probability_equals_the_recorded_one_of_all_texts_as_one_padded_batch(scorer, tokens, texts, golden):
    recorded = golden["itm_logits_padded_list"].softmax(dim=-1)[..., 1].numpy()
    assert np.abs(scorer._match_probability(tokens, texts).T - recorded).max() < TOLERANCE


def test_relevance_is_the_recorded_probability(scorer, images, texts, golden):
    relevance = scorer.relevance(scorer.embed(images[0][None]), texts[0])
    assert abs(relevance[0] - golden["itm_prob"][0, 0]) < TOLERANCE


MISTAKES = {
    "first token [CLS]": (replace(TINY, first_token=None), 0.1),
    "8 heads in the text encoder": (replace(TINY, text_heads=8), 0.1),
    "text not cleaned": (replace(TINY, caption=False), 0.1),
    "no cut at 35 tokens": (replace(TINY, max_tokens=None), 0.005),
    "layer-norm epsilon 1e-5": (replace(TINY, vision_eps=None), 0.005),
    "torchvision's resize": (replace(TINY, resize="torchvision"), 0.0005),
    "all of transformers' defaults": (TRANSFORMERS, 0.1),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_bridge_left_out_moves_a_probability_far_beyond_the_tolerance(folder, images, texts, golden, mistake):
    rules, at_least = MISTAKES[mistake]
    wrong = blip_scorer(
        load_model(folder, rules, label="tiny"),
        load_tokenizer(folder),
        rules=rules,
        options=BlipOptions(device="cpu"),
        image_processor=BlipImageProcessor() if rules.resize == "torchvision" else None,
    )
    moved = np.abs(probabilities(wrong, images, texts) - golden["itm_prob"].numpy()).max()
    print(f"{mistake}: {moved:.2g}")
    assert moved > at_least > 10 * TOLERANCE


@pytest.mark.skipif(int(PIL.__version__.split(".")[0]) < 13, reason="Pillow before 13 resizes the width first")
def test_one_call_to_pillow_moves_a_probability_of_the_portrait_image(scorer, images, texts, golden):
    one_call = [np.asarray(Image.fromarray(image).resize((384, 384), resample=3)) for image in images]
    moved = np.abs(probabilities(scorer, one_call, texts) - golden["itm_prob"].numpy())
    print(f"one call to Pillow {PIL.__version__}: {moved.max():.2g}")
    assert moved[2].max() > 0.005
    assert moved[[0, 1, 3]].max() < TOLERANCE


@pytest.mark.parametrize(("precision", "at_least", "at_most"), [("fp16", 5e-5, 5e-3), ("bf16", 5e-4, 5e-2)])
def test_half_precision_moves_a_probability(folder, images, texts, golden, precision, at_least, at_most):
    half = make_encoder("blip", checkpoint=str(folder), text_heads=6, device="cpu", precision=precision)
    moved = np.abs(probabilities(half, images, texts) - golden["itm_prob"].numpy()).max()
    print(f"{precision}: {moved:.2g}")
    assert at_least < moved < at_most
    assert half.recoveries == {}


def test_itm_score_is_no_probability_and_its_first_column_is_no_match(folder, scorer, images, texts, golden):
    model = load_model(folder, TINY, label="tiny")
    pixels = torch.cat([scorer._pixel_values(image[None]) for image in images])
    ids, mask = scorer.text_inputs([texts[0]] * len(images))
    with torch.inference_mode():
        logits = model(input_ids=ids, attention_mask=mask, pixel_values=pixels).itm_score
    right = golden["itm_prob"][:, 0]
    assert (logits.softmax(dim=-1)[:, 1] - right).abs().max() < TOLERANCE
    assert (logits[:, 1] - right).abs().max() > 0.1
    assert (logits.softmax(dim=-1)[:, 0] - right).abs().max() > 0.1


def test_the_option_hf_gives_what_transformers_gives(folder, images):
    scorer = make_encoder("blip", checkpoint=str(folder), preprocess="hf", device="cpu")
    model = BlipForImageTextRetrieval.from_pretrained(folder).eval()
    processor = BlipProcessor(BlipImageProcessor.from_pretrained(folder), load_tokenizer(folder))
    query = "What does the SIGN say: (a) left, or (b) right?"
    for image in images:
        inputs = processor(images=Image.fromarray(image), text=query, return_tensors="pt")
        with torch.inference_mode():
            expected = model(**inputs).itm_score.softmax(dim=-1)[0, 1].item()
        assert abs(scorer.relevance(scorer.embed(image[None]), query)[0] - expected) < TOLERANCE
    assert "preprocess=hf" in scorer.revision
