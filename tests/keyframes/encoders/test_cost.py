"""What an encoder costs, counted again by torch's own counter on tiny networks, and for the published ones."""

from __future__ import annotations

import pytest

from focus_eval.keyframes.encoders.base import Encoder
from focus_eval.keyframes.encoders.cost import (
    blip_gmacs,
    dual_encoder_gmacs,
    efficientnet_lite0_gmacs,
    relative_cost,
    selection_gmacs,
)

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
TEXT = {"hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 3, "num_attention_heads": 2, "vocab_size": 50}
VISION = {"hidden_size": 32, "intermediate_size": 56, "num_hidden_layers": 2, "num_attention_heads": 4,
          "image_size": 48, "patch_size": 8}  # fmt: skip
N_TOKENS = 7
PIXELS = {"pixel_values": torch.zeros(1, 3, 48, 48)}


def counted(run):
    """10^9 multiply-adds of `run()`, by torch."""
    from torch.utils.flop_counter import FlopCounterMode

    # torch's counter does not know the fused kernels of every version.
    plain = torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH)
    with torch.no_grad(), plain, FlopCounterMode(display=False) as counter:
        run()
    return counter.get_total_flops() / 2e9


def made(kind, config):
    # Training mode keeps torch from a fused kernel that its counter does not know.
    return kind._from_config(config, attn_implementation="eager").train()


def config_of(kind, **facts):
    text = {"projection_dim": 16, **TEXT}
    return kind(vision_config={"projection_dim": 16, **VISION}, text_config=text, projection_dim=16, **facts)


@pytest.mark.parametrize(
    ("config", "model"),
    [
        ("CLIPConfig", "CLIPModel"),
        ("SiglipConfig", "SiglipModel"),
        ("Aimv2Config", "Aimv2Model"),
    ],
)
def test_an_image_tower_is_counted_as_torch_counts_it(config, model):
    config = config_of(getattr(transformers, config))
    network = made(getattr(transformers, model), config)
    assert dual_encoder_gmacs(config) == {
        "image": pytest.approx(counted(lambda: network.get_image_features(**PIXELS)), rel=1e-9)
    }


def test_a_naflex_tower_is_counted_at_its_most_patches():
    config = transformers.Siglip2Config(vision_config={**VISION, "num_patches": 36}, text_config=TEXT)
    network = made(transformers.Siglip2Model, config)
    inputs = {"pixel_values": torch.zeros(1, 36, 192), "spatial_shapes": torch.tensor([[6, 6]])}
    gmacs = counted(lambda: network.get_image_features(pixel_attention_mask=torch.ones(1, 36).int(), **inputs))
    # Resizing the grid of positions is no part of the tower; since transformers 5.24 it is a matrix product.
    embeddings = network.vision_model.embeddings
    positions = embeddings.position_embedding.weight.reshape(6, 6, -1)
    resizing = counted(lambda: embeddings.resize_positional_embeddings(positions, inputs["spatial_shapes"], 36))
    assert dual_encoder_gmacs(config)["image"] == pytest.approx(gmacs - resizing, rel=1e-9)


def test_blip_is_counted_as_torch_counts_it():
    config = transformers.BlipConfig(
        vision_config=VISION, text_config={**TEXT, "encoder_hidden_size": 32, "is_decoder": True}
    )
    network = made(transformers.BlipForImageTextRetrieval, config)
    ids = torch.ones(1, N_TOKENS, dtype=torch.int64)
    states = network.vision_model(**PIXELS).last_hidden_state

    def match():
        hidden = network.text_encoder(input_ids=ids, encoder_hidden_states=states).last_hidden_state
        network.itm_head(hidden[:, 0])

    gmacs = blip_gmacs(config, N_TOKENS)
    assert gmacs["image"] == pytest.approx(counted(lambda: network.vision_model(**PIXELS)), rel=1e-9)
    assert gmacs["keys"] + gmacs["fusion"] == pytest.approx(counted(match), rel=1e-9)
    keys = [part for layer in network.text_encoder.encoder.layer
            for part in (layer.crossattention.self.key, layer.crossattention.self.value)]  # fmt: skip
    assert gmacs["keys"] == pytest.approx(counted(lambda: [part(states) for part in keys]), rel=1e-9)


@pytest.mark.parametrize("size", [64, 100, 224])
def test_the_offline_encoders_network_is_counted_as_torch_counts_it(size):
    timm = pytest.importorskip("timm")
    network = timm.create_model("tf_efficientnet_lite0", pretrained=False).eval()
    gmacs = counted(lambda: network(torch.zeros(1, 3, size, size)))
    assert efficientnet_lite0_gmacs(size) == {"image": pytest.approx(gmacs, rel=1e-9)}


def of_size(kind, *, width, layers, image, patch, mlp=0, **facts):
    vision = {"hidden_size": width, "intermediate_size": mlp or 4 * width, "num_hidden_layers": layers,
              "image_size": image, "patch_size": patch, "num_attention_heads": 16}  # fmt: skip
    return kind(vision_config=vision, **facts)


def test_published_encoders_cost_what_their_papers_and_others_count():
    large = of_size(transformers.BlipConfig, width=1024, layers=24, image=384, patch=16)
    assert blip_gmacs(large, 35) == pytest.approx({"image": 191.07, "keys": 10.89, "fusion": 3.86}, abs=0.005)
    base = of_size(transformers.BlipConfig, width=768, layers=12, image=384, patch=16)
    assert blip_gmacs(base, 35)["image"] == pytest.approx(55.5, abs=0.05)
    small = of_size(transformers.CLIPConfig, width=768, layers=12, image=224, patch=32)
    assert dual_encoder_gmacs(small)["image"] == pytest.approx(4.41, abs=0.005)


class Stated(Encoder):
    def __init__(self, **gmacs):
        self.gmacs = gmacs


def test_a_scan_encoder_costs_its_share_of_the_main_ones_image():
    main, scan = Stated(image=200.0, keys=10.0, fusion=4.0), Stated(image=5.0)
    assert selection_gmacs(main, scan) == {"image": 200.0, "keys": 10.0, "fusion": 4.0, "scan_image": 5.0}
    assert relative_cost(scan, main) == 0.025
    assert relative_cost(main, scan) == 214 / 5


def test_an_encoder_that_does_not_say_costs_nothing_known():
    assert selection_gmacs(Encoder()) == selection_gmacs(None) == {}
    assert relative_cost(Encoder(), Stated(image=1.0)) is None
    assert relative_cost(Stated(image=1.0), Stated()) is None
    assert dual_encoder_gmacs(transformers.BertConfig()) == {}


def test_the_offline_encoder_says_what_it_costs_before_its_weights_are_read():
    from focus_eval.keyframes.encoders.registry import make_encoder
    from focus_eval.keyframes.encoders.weights import local_gmacs

    small = make_encoder("offline", size=64)
    assert small.gmacs == local_gmacs("offline", {"size": 64}) == efficientnet_lite0_gmacs(64)
    assert relative_cost(small, make_encoder("offline")) == pytest.approx(1 / 11.8, abs=0.001)
    assert local_gmacs("clip", {"checkpoint": "no-such-checkpoint"}) == {}


BLIP_LARGE = {"width": 1024, "layers": 24, "image": 384, "patch": 16}
CLIP_BASE = {"width": 768, "layers": 12, "image": 224, "patch": 32}
CLIP_LARGE = {"width": 1024, "layers": 24, "image": 224, "patch": 14, "projection_dim": 768}
SO400M = {"width": 1152, "layers": 27, "image": 384, "patch": 14, "mlp": 4304}


@pytest.mark.parametrize(
    ("encoder", "checkpoint", "shape"),
    [
        ("blip", "", BLIP_LARGE),
        ("blip", "Salesforce/blip-itm-large-coco", BLIP_LARGE),
        ("blip", "blip-itm-base-coco", {**BLIP_LARGE, "width": 768, "layers": 12}),
        ("clip", "", CLIP_BASE),
        ("clip", "clip-vit-large-patch14", CLIP_LARGE),
        ("longclip", "", CLIP_LARGE),
        ("siglip", "", SO400M),
        ("siglip2", "", SO400M),
    ],
)
def test_a_published_checkpoint_states_its_cost_before_its_weights_are_here(
    monkeypatch, tmp_path, encoder, checkpoint, shape
):
    from focus_eval.keyframes.encoders.weights import local_gmacs

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    kind = {"b": transformers.BlipConfig, "s": transformers.SiglipConfig}.get(encoder[0], transformers.CLIPConfig)
    config = of_size(kind, **shape)
    gmacs = blip_gmacs(config, 35) if encoder.startswith("blip") else dual_encoder_gmacs(config)
    assert local_gmacs(encoder, {"checkpoint": checkpoint}) == pytest.approx(gmacs, rel=1e-12)


def test_a_checkpoint_that_states_no_cost_has_none_before_its_weights_are_here(monkeypatch, tmp_path):
    from focus_eval.keyframes.encoders.weights import local_gmacs

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    assert local_gmacs("siglip2", {"checkpoint": "siglip2-so400m-patch16-naflex"}) == {}
    assert local_gmacs("clip", {"checkpoint": "blip-itm-large-coco"}) == {}
