"""What does LLaVA-Video cost before its first word, against transformers' LLaVA-OneVision with as many tokens?

The real 7B architecture with random weights (speed does not depend on the values), 64 frames, one question. Both paths
use the same weights in turn, in one run, on one device:

  port   this package: frames through the tower in parts, grid newlines, prompt as embeddings
  stock  transformers' `get_video_features`, put in place of placeholders as its forward does, then its `generate`;
         its video has one newline, so text makes up the difference

Without a GPU, or with --tiny, a tiny architecture shows that the script runs; its figures mean nothing else.

Run: python -m scripts.speed.llava_video [--tiny] [--frames 64] [--attention sdpa] [--repeats 5] [--new-tokens 32]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import nn
from transformers import LlavaOnevisionForConditionalGeneration

from focus_eval.bench.lmms.llava_video.checkpoint import CheckpointConfig, make_setup, parse_config, transformers_config
from focus_eval.bench.lmms.llava_video.model import VideoNetwork, tower_rules
from focus_eval.keyframes.encoders.preprocess import normalise, resize_frames
from focus_eval.keyframes.pipeline.timing import device_name
from tests.support.bench.llava_video_parity import PUBLISHED_7B

TINY_TEXT = {"vocab_size": 512, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
TINY_TEXT |= {"num_attention_heads": 4, "num_key_value_heads": 2}
TINY_VISION = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4}
TINY_VISION |= {"image_size": 54, "patch_size": 2}
N_TEXT = 150  # a LongVideoBench question with its options


def main() -> None:
    """Measure both paths in turn and print medians, ratios and peak memory."""
    options = arguments()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    tiny = options.tiny or device.type == "cpu"
    frames = min(options.frames, 8) if tiny else options.frames
    config = published_config(tiny)
    network = random_network(
        config, device, dtype=torch.float32 if tiny else torch.bfloat16, attention=options.attention
    )
    millions = sum(parameter.numel() for parameter in network.parameters()) / 1e6
    print(f"{device_name(str(device))}, torch {torch.__version__}, {millions:.1f} M parameters, {network.dtype},")
    print(f"{options.attention} attention, {frames} frames{', tiny: figures mean nothing' if tiny else ''}\n")
    bench = Bench(network, config, frames=frames, device=device)
    for path in (bench.stock, bench.port):  # warm up: kernels, allocator
        path(2)
    times: dict[str, list[dict[str, float]]] = {"stock": [], "port": []}
    for _ in range(options.repeats):
        times["stock"].append(bench.stock(options.new_tokens))
        times["port"].append(bench.port(options.new_tokens))
    report(times, bench, new_tokens=options.new_tokens)


class Bench:
    """Both paths on the same weights and the same frames."""

    def __init__(self, network: Any, config: CheckpointConfig, *, frames: int, device: torch.device) -> None:
        self.network, self.config, self.device = network, config, device
        self.post_norm = network.model.vision_tower.post_layernorm
        self.video = VideoNetwork(network, config=config, setup=make_setup("aks"))
        self.decoded = np.random.default_rng(0).integers(0, 256, (frames, 720, 1280, 3), dtype=np.uint8)
        self.rules = tower_rules(int(config.vision["image_size"]))
        self.n_grid = self.video.layout.count(frames)
        self.n_one = replace(self.video.layout, newline="one_token").count(frames)
        self.ids = torch.randint(10, 500, (N_TEXT + self.n_grid,), generator=torch.Generator().manual_seed(0))

    @property
    def length(self) -> int:
        """Number of prompt tokens, the same on both paths."""
        return len(self.ids)

    def pixels(self) -> torch.Tensor:
        """Return the frames as pixel values for the vision tower."""
        levels = torch.from_numpy(resize_frames(self.decoded, self.rules)).to(self.device)
        return normalise(levels.permute(0, 3, 1, 2), self.rules)

    def port(self, new_tokens: int) -> dict[str, float]:
        """Measure this package's path with `new_tokens` generated tokens."""
        self.network.model.vision_tower.post_layernorm = nn.Identity()
        text = self.ids[:N_TEXT].tolist()
        return self._measure(
            lambda pixels: self.video.video_tokens(pixels),
            lambda video: [self.video.merged(text[:14], video, text[14:])],
            lambda rows, n: self.video.generate(rows, max_new_tokens=n),
            new_tokens,
        )

    def stock(self, new_tokens: int) -> dict[str, float]:
        """Measure transformers' own class, which also applies the vision tower's post-norm."""
        self.network.model.vision_tower.post_layernorm = self.post_norm
        ids = self.ids.clone()
        ids[14 : 14 + self.n_one] = self.network.config.video_token_index
        ids = ids[None].to(self.device)

        def features(pixels: torch.Tensor) -> dict[str, Any]:
            with torch.inference_mode():
                return {"video": self.network.get_video_features(pixels[None].to(self.network.dtype))}

        def generate(inputs: dict[str, torch.Tensor], n: int) -> torch.Tensor:
            with torch.inference_mode():
                return self.network.generate(
                    **inputs, max_new_tokens=n, min_new_tokens=n, do_sample=False, pad_token_id=0
                )

        def inputs(video: dict[str, Any]) -> dict[str, torch.Tensor]:
            with torch.inference_mode():
                embeddings = self.network.get_input_embeddings()(ids)
                tokens = video["video"].pooler_output.flatten(0, 1).to(embeddings.dtype)
                if len(tokens) == self.n_one - 1:  # some versions put the newline on in the forward
                    tokens = torch.cat([tokens, self.network.model.image_newline[None].to(tokens)])
                mask = (ids == self.network.config.video_token_index).unsqueeze(-1)
                merged = embeddings.masked_scatter(mask, tokens)
            return {"inputs_embeds": merged, "attention_mask": torch.ones_like(ids)}

        return self._measure(features, inputs, generate, new_tokens)

    def _measure(self, see: Callable, merge: Callable, generate: Callable, new_tokens: int) -> dict[str, float]:
        """Return the seconds of each stage, and the peak of the GPU's memory in GiB, NaN without a GPU."""
        on_gpu = self.device.type == "cuda"
        if on_gpu:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        marks = [self._now()]
        pixels = self.pixels()
        marks.append(self._now())
        merged = merge(see(pixels))
        marks.append(self._now())
        generate(merged, 1)
        marks.append(self._now())
        peak = torch.cuda.max_memory_allocated() / 2**30 if on_gpu else float("nan")
        generate(merged, new_tokens)
        marks.append(self._now())
        resize, see_seconds, prefill, whole = np.diff(marks)
        return {
            "resize": resize,
            "vision": see_seconds,
            "prefill": prefill,
            "first token": see_seconds + prefill,
            "per new token": (whole - prefill) / max(1, new_tokens - 1),
            "peak": peak,
        }

    def _now(self) -> float:
        """Return the time once the GPU has finished its work."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()


def report(times: dict[str, list[dict[str, float]]], bench: Bench, *, new_tokens: int) -> None:
    """Print the median times of both paths over the repeats."""
    middle = {path: {key: median(run[key] for run in runs) for key in runs[0]} for path, runs in times.items()}
    print(f"{bench.length} tokens in the prompt on both paths; video {bench.n_grid} (port), {bench.n_one} (stock)")
    print(f"medians of {len(times['port'])} runs, taken in turn; {new_tokens} new tokens\n")
    print("| seconds | port | stock | stock / port |\n|---|---:|---:|---:|")
    for key in ("resize", "vision", "prefill", "first token", "per new token"):
        port, stock = middle["port"][key], middle["stock"][key]
        print(f"| {key} | {port:.4f} | {stock:.4f} | {stock / port:.2f} |")
    if bench.device.type == "cuda":
        print(
            f"| peak memory to the first token, GiB | {middle['port']['peak']:.1f} | {middle['stock']['peak']:.1f} | |"
        )


def published_config(tiny: bool) -> CheckpointConfig:
    """Return the 7B's config, or a tiny one with as many patches per frame."""
    config = parse_config(PUBLISHED_7B, Path("7B"))
    if not tiny:
        return config
    return replace(config, text={**config.text, **TINY_TEXT}, vision={**config.vision, **TINY_VISION})


def random_network(config: CheckpointConfig, device: torch.device, *, dtype: torch.dtype, attention: str) -> Any:
    """Build the network with random weights directly on the device."""
    model_config = transformers_config(config, vocab_size=config.text["vocab_size"])
    model_config.image_token_index, model_config.video_token_index = 1, 2
    with torch.device(device):
        network = LlavaOnevisionForConditionalGeneration._from_config(
            model_config, dtype=dtype, attn_implementation=attention
        )
    return network.eval()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--frames", type=int, default=64)
    parser.add_argument("--attention", default="sdpa", choices=("sdpa", "flash_attention_2", "eager"))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--new-tokens", type=int, default=32)
    return parser.parse_args()


if __name__ == "__main__":
    main()
