"""Counts the work of an encoder, and measures the rate of matrix products it could reach on a device."""

from __future__ import annotations

import time
from typing import Any

import torch

from focus_eval.keyframes.encoders.torch_scorer import Precision, arithmetic


def matrix_rate(device: str, precision: Precision, *, size: int | None = None) -> float:
    """Return the device's measured rate of square matrix products in TFLOP/s: the most an encoder could reach."""
    torch_device = torch.device(device)
    size = size or (8192 if torch_device.type == "cuda" else 512)
    factor = torch.randn(size, size, device=torch_device)
    if precision in ("fp16", "bf16"):
        factor = factor.to(torch.float16 if precision == "fp16" else torch.bfloat16)
    best = float("inf")
    with torch.inference_mode(), arithmetic("tf32" if precision == "tf32" else "fp32", torch_device):
        for _ in range(6):
            wait(torch_device)
            start = time.perf_counter()
            for _ in range(4):
                factor @ factor
            wait(torch_device)
            best = min(best, (time.perf_counter() - start) / 4)
    return 2 * size**3 / best / 1e12


def wait(device: torch.device | str) -> None:
    """Wait for what is queued on a GPU."""
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)


def image_gflop(config: Any) -> float:
    """Return the work of BLIP's image tower on one frame in GFLOP (a multiply and an add are two)."""
    vision = config.vision_config
    width, tokens = vision.hidden_size, (vision.image_size // vision.patch_size) ** 2 + 1
    products = 8 * tokens * width**2 + 4 * tokens * width * vision.intermediate_size
    attention = 4 * tokens**2 * width
    patches = 2 * (tokens - 1) * 3 * vision.patch_size**2 * width
    total: int = vision.num_hidden_layers * (products + attention) + patches
    return total / 1e9


def text_gflop(config: Any, *, n_tokens: int, n_queries: int = 1) -> float:
    """Return the work of BLIP's text encoder on one frame and `n_queries` texts, keys and values projected once."""
    text, vision = config.text_config, config.vision_config
    width, image_tokens = text.hidden_size, (vision.image_size // vision.patch_size) ** 2 + 1
    rows = n_tokens * n_queries
    per_image = 4 * image_tokens * vision.hidden_size * width
    products = rows * (12 * width**2 + 4 * width * text.intermediate_size)
    attention = 4 * rows * width * (n_tokens + image_tokens)
    total: int = text.num_hidden_layers * (per_image + products + attention)
    return total / 1e9
