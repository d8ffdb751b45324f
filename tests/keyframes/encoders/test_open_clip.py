"""The encoder `open_clip` gives what open_clip's own loader, transform and model give."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

from focus_eval.core.errors import EncoderError, MissingWeights
from focus_eval.keyframes.encoders.cost import dual_encoder_gmacs
from focus_eval.keyframes.encoders.open_clip import OpenClipScorer, image_gmacs
from focus_eval.keyframes.encoders.registry import encoder_revision, make_encoder
from focus_eval.keyframes.encoders.weights import local_gmacs
from tests.conftest import require_packages
from tests.support.keyframes.random_weights import write_tiny_open_clip

pytestmark = pytest.mark.slow

require_packages("open_clip")

QUERIES = ["A red CAR!", "Who is the man on the left?", "the dog " * 40]


@pytest.fixture(scope="module", params=["ViT", "PE-Core", "MobileCLIP2", "SigLIP"])
def folder(request, tmp_path_factory):
    return write_tiny_open_clip(tmp_path_factory.mktemp(request.param), family=request.param)


@pytest.fixture(scope="module")
def scorer(folder):
    return make_encoder("open_clip", checkpoint=str(folder), device="cpu")


@pytest.fixture(scope="module")
def open_clip():
    import open_clip

    return open_clip


@pytest.fixture(scope="module")
def frames():
    # 48 x 87: at 48 pixels the centre starts at 19.5, which torchvision rounds to the even side, not down.
    noise = np.random.default_rng(0).integers(-40, 40, (2, 48, 87, 3))
    return np.clip(np.array([[[[200, 30, 90]]], [[[20, 130, 250]]]]) + noise, 0, 255).astype(np.uint8)


@pytest.fixture(scope="module")
def reference(open_clip, folder, frames):
    """open_clip's own way: its loader, transform and tokenizer, one forward of the whole model."""
    model, _, transform = open_clip.create_model_and_transforms(f"local-dir:{folder}")
    tokens = open_clip.get_tokenizer(f"local-dir:{folder}")(QUERIES)
    with torch.inference_mode():
        pixels = torch.stack([transform(Image.fromarray(frame)) for frame in frames])
        return pixels, model.eval().encode_image(pixels).numpy(), model.encode_text(tokens).numpy()


def test_pixels_are_those_of_its_own_transform(scorer, reference, frames):
    assert np.abs(scorer._pixel_values(frames).numpy() - reference[0].numpy()).max() < 1e-6


def test_logits_and_cosines_are_those_of_its_own_model(scorer, reference, frames):
    _, images, texts = reference
    features = scorer.embed(frames)
    unit, unit_texts = (part / np.linalg.norm(part, axis=1, keepdims=True) for part in (images, texts))
    for at, query in enumerate(QUERIES):
        assert np.allclose(scorer.logits(features, query), images @ texts[at], rtol=1e-4, atol=1e-4)
        assert np.abs(scorer.cosine(features, query) - unit @ unit_texts[at]).max() < 1e-5
    assert np.abs(unit @ unit_texts.T - (unit @ unit_texts.T).mean()).max() > 1e-3  # there is something to compare


def test_a_query_is_known_to_be_cut(scorer):
    assert [scorer.is_cut(query) for query in QUERIES] == [False, scorer.is_cut(QUERIES[1]), True]
    tokens = scorer.text_inputs(["a a", "a a " * 60])["input_ids"]
    assert tokens.shape == (2, 16)


def test_the_cost_is_that_of_the_forward_really_made(folder, scorer, frames):
    from torch.utils.flop_counter import FlopCounterMode

    if hasattr(scorer._model.model.visual, "trunk"):
        for part in scorer._model.modules():  # fused attention on a CPU is not known to torch's counter
            if hasattr(part, "fused_attn"):
                part.fused_attn = False
    pixels = scorer._pixel_values(frames[:1])
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH), torch.no_grad():
        with FlopCounterMode(display=False) as counter:
            scorer._model.train().get_image_features(pixel_values=pixels.repeat(2, 1, 1, 1))
        scorer._model.eval()
    assert scorer.gmacs == {"image": pytest.approx(counter.get_total_flops() / 4e9, rel=1e-9)}
    assert local_gmacs("open_clip", {"checkpoint": str(folder)}) == scorer.gmacs


def test_a_clip_costs_what_the_formula_of_the_other_families_says(open_clip):
    from transformers import CLIPConfig

    vision = {
        "hidden_size": 768,
        "intermediate_size": 3072,
        "num_hidden_layers": 12,
        "image_size": 224,
        "patch_size": 32,
    }
    formula = dual_encoder_gmacs(CLIPConfig(vision_config=vision, projection_dim=512))["image"]
    assert image_gmacs(json.dumps(open_clip.get_model_config("ViT-B-32"))) == pytest.approx(formula, rel=1e-9)


@pytest.mark.parametrize("name", sorted(OpenClipScorer.checkpoints))
def test_the_known_checkpoints_are_those_of_the_registry(open_clip, name):
    config = open_clip.get_model_config(name)
    facts = OpenClipScorer.checkpoints[name]
    tags = open_clip.list_pretrained_tags_by_model(name)
    assert facts["gmacs"] == {"image": pytest.approx(image_gmacs(json.dumps(config)), rel=1e-3)}
    assert facts["repository"] + "/" in [open_clip.get_pretrained_cfg(name, tag)["hf_hub"] for tag in tags]
    config.pop("custom_text")
    with torch.device("meta"):
        model = open_clip.CustomTextCLIP(**config)
    bytes_of_it = sum(value.numel() * value.element_size() for value in model.state_dict().values())
    assert facts["gigabytes"] == pytest.approx(bytes_of_it / 1e9, abs=0.005)


@pytest.fixture
def plain(tmp_path):
    return write_tiny_open_clip(tmp_path / "tiny")


def test_the_revision_names_the_weights_and_needs_none(plain):
    encoder = make_encoder("open_clip", checkpoint=str(plain), device="cpu")
    assert encoder_revision("open_clip", {"checkpoint": str(plain)}) == encoder.revision
    assert encoder.revision.startswith("tiny@sha256:")


def _change(folder, **of_text):
    path = folder / "open_clip_config.json"
    config = json.loads(path.read_text())
    config["model_cfg"]["text_cfg"].update(of_text)
    path.write_text(json.dumps(config))


def test_weights_of_another_model_are_one_line(plain):
    _change(plain, width=48)
    with pytest.raises(EncoderError, match="open_clip cannot load it"):
        make_encoder("open_clip", checkpoint=str(plain))
    _change(plain, width=32, layers=3)
    with pytest.raises(EncoderError, match="open_clip cannot load it") as error:
        make_encoder("open_clip", checkpoint=str(plain))
    assert "\n" not in str(error.value)
    # open_clip alone would interpolate the positions.
    _change(plain, layers=2, context_length=20)
    with pytest.raises(
        EncoderError, match=r"positional_embedding has shape \(16, 32\), its configuration says \(20, 32\)"
    ):
        make_encoder("open_clip", checkpoint=str(plain))
    weights = load_file(plain / "open_clip_model.safetensors")
    _change(plain, context_length=16)
    weights.pop("logit_scale")
    save_file(weights, plain / "open_clip_model.safetensors")
    with pytest.raises(EncoderError, match="logit_scale"):
        make_encoder("open_clip", checkpoint=str(plain))


def test_what_would_be_fetched_is_refused(plain):
    _change(plain, hf_model_name="roberta-base")
    with pytest.raises(EncoderError, match="'roberta-base' of transformers, which open_clip would fetch"):
        make_encoder("open_clip", checkpoint=str(plain))


def test_a_tokenizer_that_is_not_there_is_one_line(plain):
    _change(plain, hf_tokenizer_name="its own")
    with pytest.raises(EncoderError, match="no readable tokenizer"):
        make_encoder("open_clip", checkpoint=str(plain))


def test_a_pickle_and_a_folder_of_transformers_are_refused(plain):
    (plain / "open_clip_model.safetensors").rename(plain / "open_clip_pytorch_model.bin")
    with pytest.raises(MissingWeights, match=r"no complete open_clip_model\.safetensors"):
        make_encoder("open_clip", checkpoint=str(plain))
    (plain / "open_clip_config.json").write_text('{"model_type": "clip"}')
    with pytest.raises(EncoderError, match="holds a 'clip' model, this scorer needs 'open_clip'"):
        make_encoder("open_clip", checkpoint=str(plain))
