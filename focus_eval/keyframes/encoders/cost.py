"""Counts an encoder's multiply-adds from the sizes that its checkpoint states.

A matrix product `(n, k) x (k, m)` counts n k m. Norms, activations and sums are left out: they are below one per cent.
Costs are in 10^9 multiply-adds, by part of the encoder:

- "image" is spent once per frame.
- "keys", a matching encoder's keys and values of the image, is spent once per frame, because all questions share them.
- "fusion" is spent once per pair of frame and question, and assumes the longest text that the encoder reads.

A separate text tower runs only once per question and is not counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import TYPE_CHECKING

from focus_eval.keyframes.encoders.base import Encoder
from focus_eval.keyframes.rows.records import forward_gmacs

if TYPE_CHECKING:
    from transformers import PretrainedConfig

_CLASS_TOKEN = ("clip", "blip")
# Towers with an attention-pooling head: one learned query over all patches.
_POOLING_HEAD = ("siglip", "siglip2", "aimv2")
_GATED = ("aimv2",)


def selection_gmacs(encoder: Encoder | None, scan_encoder: Encoder | None = None) -> dict[str, float]:
    """Return the main encoder's 10^9 multiply-adds by part, and the total of the scan encoder as "scan_image"."""
    main, scanning = (scorer.gmacs if scorer else {} for scorer in (encoder, scan_encoder))
    return joint_gmacs(main, scanning)


def joint_gmacs(main: Mapping[str, float], scanning: Mapping[str, float]) -> dict[str, float]:
    """Return `main` with the sum of `scanning` added as "scan_image"; the key is left out if the sum is 0."""
    scanned = sum(scanning.values())
    return {**main, **({"scan_image": scanned} if scanned else {})}


def relative_cost(scan_encoder: Encoder | None, encoder: Encoder | None) -> float | None:
    """Return the cost of a scanned frame divided by that of an image of `encoder`; None if either is not known."""
    return scan_share(selection_gmacs(encoder, scan_encoder))


def scan_share(gmacs: Mapping[str, float]) -> float | None:
    """Return the cost of a scanned frame divided by that of a main-encoder image; None if either is unknown.

    `gmacs` is a row's field: 10^9 multiply-adds by part.
    """
    unit = forward_gmacs(gmacs)
    return gmacs["scan_image"] / unit if unit and "scan_image" in gmacs else None


def dual_encoder_gmacs(config: PretrainedConfig) -> dict[str, float]:
    """Return {"image": 10^9 multiply-adds} of an image tower from its `config`; {} for an unknown `model_type`.

    Known are CLIP, SigLIP and AIMv2.
    """
    if config.model_type not in (*_CLASS_TOKEN[:2], *_POOLING_HEAD):
        return {}
    has_projection = config.model_type not in ("siglip", "siglip2")
    projection = config.vision_config.hidden_size * config.projection_dim if has_projection else 0
    return _in_gmacs(image=_image_tower(config.model_type, config.vision_config) + projection)


def blip_gmacs(config: PretrainedConfig, n_tokens: int) -> dict[str, float]:
    """Return the cost of BLIP: "image" tower, "keys" and values of the image, and "fusion" with a text.

    Args:
        config: configuration of a `BlipForImageTextRetrieval`.
        n_tokens: length of the text.
    """
    text, image_tokens = config.text_config, _n_tokens("blip", config.vision_config)
    width = text.hidden_size
    # Cross-attention without the projection of its keys and values, which `keys` counts below.
    cross_attention = 2 * n_tokens * width**2 + 2 * n_tokens * image_tokens * width
    layer = _layer(n_tokens, width, text.intermediate_size) + cross_attention
    keys = 2 * image_tokens * config.vision_config.hidden_size * width
    return _in_gmacs(
        image=_image_tower("blip", config.vision_config),
        keys=text.num_hidden_layers * keys,
        fusion=text.num_hidden_layers * layer + 2 * width,
    )


def _in_gmacs(**macs: float) -> dict[str, float]:
    """The given multiply-adds by name in units of 10^9."""
    return {name: value / 1e9 for name, value in macs.items()}


def _n_patches(vision: PretrainedConfig) -> int:
    """The number of patches of an image: from its fixed size, or the largest number of a NaFlex checkpoint."""
    return int(getattr(vision, "num_patches", None) or (vision.image_size // vision.patch_size) ** 2)


def _n_tokens(model_type: str, vision: PretrainedConfig) -> int:
    """The number of tokens of an image: its patches, and a class token if the model type has one."""
    return _n_patches(vision) + (model_type in _CLASS_TOKEN)


def _image_tower(model_type: str, vision: PretrainedConfig) -> int:
    """The multiply-adds of one image in a vision transformer, its pooling head included."""
    width, mlp, tokens = vision.hidden_size, vision.intermediate_size, _n_tokens(model_type, vision)
    embedding = _n_patches(vision) * 3 * vision.patch_size**2 * width
    layers = vision.num_hidden_layers * _layer(tokens, width, mlp, is_gated=model_type in _GATED)
    # Pooling head: keys and values of all patches, attention and projection of one query; SigLIP adds an MLP.
    head = 2 * tokens * width**2 + 2 * tokens * width + width**2
    head += 0 if model_type == "aimv2" else width**2 + 2 * width * mlp
    return int(embedding + layers + (head if model_type in _POOLING_HEAD else 0))


def _layer(tokens: int, width: int, mlp: int, *, is_gated: bool = False) -> int:
    """The multiply-adds of a transformer layer on `tokens` tokens: projections, attention and MLP."""
    return 4 * tokens * width**2 + 2 * tokens**2 * width + (3 if is_gated else 2) * tokens * width * mlp


# Stages of EfficientNet-Lite0 (Tan and Le 2019, table 1): number of blocks, kernel size, stride of the first block,
# widening factor, output channels.
_STAGES = ((1, 3, 1, 1, 16), (2, 3, 2, 6, 24), (2, 5, 2, 6, 40), (3, 3, 2, 6, 80), (3, 5, 1, 6, 112), (4, 5, 2, 6, 192),
           (1, 3, 1, 6, 320))  # fmt: skip
_STEM, _HEAD, _CLASSES = 32, 1280, 1000


def efficientnet_lite0_gmacs(size: int) -> dict[str, float]:
    """Return {"image": 10^9 multiply-adds} of EfficientNet-Lite0 on `size` x `size` pixels."""
    side, channels = ceil(size / 2), _STEM
    macs = side**2 * 9 * 3 * channels
    for n_blocks, kernel, first_stride, widening, width in _STAGES:
        for number in range(n_blocks):
            wide = channels * widening
            macs += side**2 * channels * wide if widening > 1 else 0
            side = ceil(side / (1 if number else first_stride))
            macs += side**2 * wide * (kernel**2 + width)
            channels = width
    return _in_gmacs(image=macs + side**2 * channels * _HEAD + _HEAD * _CLASSES)
