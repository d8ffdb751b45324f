"""Compares this port of LLaVA-Video with recorded outputs of the original.

The recording (a folder with `weights.safetensors`, `config.json`, `cases.safetensors`, `cases_meta.json`) is of tiny
random weights in float32; it lies outside of this package.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import nn

from focus_eval.bench.lmms.llava_video.checkpoint import CheckpointConfig, Setup, load_network, read_config, tower_body
from focus_eval.bench.lmms.llava_video.model import VideoNetwork

TOLERANCE = 2e-5
MARKER = -200
NEW_TOKENS = 8
# What `config.json` of LLaVA-Video-7B-Qwen2 says of the shape of its network.
PUBLISHED_7B = {
    "model_type": "llava_qwen",
    "vocab_size": 152064,
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "hidden_act": "silu",
    "max_position_embeddings": 32768,
    "tokenizer_model_max_length": 32768,
    "rms_norm_eps": 1e-06,
    "rope_theta": 1000000.0,
    "rope_scaling": None,
    "tie_word_embeddings": False,
    "sliding_window": 131072,
    "use_sliding_window": False,
    "mm_newline_position": "grid",
    "mm_patch_merge_type": "spatial_unpad",
    "mm_projector_type": "mlp2x_gelu",
    "mm_resampler_type": None,
    "mm_spatial_pool_mode": "bilinear",
    "mm_use_im_start_end": False,
    "mm_vision_tower": "google/siglip-so400m-patch14-384",
}


@dataclass(frozen=True)
class Case:
    """One recorded run: a name, its settings, and its tensors by their last name.

    The recording may hold `video_features` of some of the video's tokens only: those at `feature_positions`.
    """

    name: str
    settings: Mapping[str, Any]
    tensors: Mapping[str, torch.Tensor]

    @property
    def setup(self) -> Setup:
        """Pooling and newlines of the case."""
        return Setup(pooling=self.settings["pool_mode"], newline=self.settings["newline_position"])

    @property
    def halves(self) -> tuple[list[int], list[int]]:
        """Token ids before and after the video."""
        ids = self.tensors["input_ids"].tolist()
        at = ids.index(MARKER)
        return ids[:at], ids[at + 1 :]

    @property
    def feature_positions(self) -> torch.Tensor:
        """The video's tokens whose features are recorded, as indices `(n,)`."""
        all_positions = torch.arange(self.settings["num_video_tokens"])
        return self.tensors.get("feature_positions", all_positions).long()


@dataclass(frozen=True)
class Deviation:
    """Largest absolute differences from the recording; None where the shapes differ.

    `logits` are compared at the recorded positions or, where a mistake changes the length, after the video.
    """

    case: str
    features: float | None
    embeddings: float | None
    logits: float
    same_tokens: bool
    n_tokens: tuple[int, int]

    @property
    def within_tolerance(self) -> bool:
        """True where everything agrees to `TOLERANCE` and the greedy tokens are equal."""
        are_near = [value is not None and value <= TOLERANCE for value in (self.features, self.embeddings, self.logits)]
        return all(are_near) and self.same_tokens


def stage_checkpoint(recording: Path, into: Path) -> CheckpointConfig:
    """Lay out the recorded weights in the folder `into` as a checkpoint, and return its config."""
    raw = json.loads((recording / "config.json").read_text(encoding="utf-8"))
    vision = dict(raw.pop("_golden_vision_config"))
    vision.pop("note", None)
    into.mkdir(parents=True, exist_ok=True)
    (into / "config.json").write_text(json.dumps({**raw, "vision_config": vision}), encoding="utf-8")
    shutil.copyfile(recording / "weights.safetensors", into / "model.safetensors")
    return read_config(into)


def read_cases(recording: Path) -> tuple[list[Case], torch.Tensor]:
    """Return the recorded cases and the pixel values `(8, 3, size, size)` they share."""
    tensors = load_file(recording / "cases.safetensors")
    settings = json.loads((recording / "cases_meta.json").read_text(encoding="utf-8"))["cases"]
    cases = [
        Case(
            name, setting, {key[len(name) + 1 :]: value for key, value in tensors.items() if key.startswith(f"{name}.")}
        )
        for name, setting in settings.items()
    ]
    return cases, tensors["pixel_values"]


def measure(network: VideoNetwork, case: Case, pixel_values: torch.Tensor) -> Deviation:
    """Run `case` through `network` and return how far its outputs are from the recording."""
    expected = case.tensors
    video = network.video_tokens(pixel_values[: case.settings["num_frames"]])
    first_ids, second_ids = case.halves
    merged = network.merged(first_ids, video, second_ids)
    n_video = case.settings["num_video_tokens"]
    same_length = len(video) == n_video
    features = _largest(video[case.feature_positions], expected["video_features"]) if same_length else None
    logits = network.logits([merged])[0]
    positions = expected["logit_positions"].long()
    compared_positions = positions if same_length else positions[-len(second_ids) :] + len(video) - n_video
    tokens = network.generate([merged], max_new_tokens=NEW_TOKENS)[0]
    return Deviation(
        case=case.name,
        features=features,
        # The other cases' merged embeddings are the text's, around the features compared above.
        embeddings=_largest(merged, expected["inputs_embeds"]) if "inputs_embeds" in expected else features,
        logits=float(
            (logits[compared_positions] - expected["logits"].reshape(-1, logits.shape[-1])[-len(compared_positions) :])
            .abs()
            .max()
        ),
        same_tokens=tokens.tolist() == expected["greedy_tokens"].reshape(-1).tolist(),
        n_tokens=(len(video), n_video),
    )


def measure_all(recording: Path, folder: Path, *, attn_implementation: str = "sdpa") -> list[Deviation]:
    """Return the deviation of every recorded case; `folder` is where the checkpoint is laid out."""
    config = stage_checkpoint(recording, folder)
    loaded = load_network(config, dtype="float32", attn_implementation=attn_implementation)
    cases, pixels = read_cases(recording)
    return [measure(VideoNetwork(loaded, config=config, setup=case.setup), case, pixels) for case in cases]


def measure_mistakes(recording: Path, folder: Path) -> dict[str, Deviation]:
    """Return, by the mistake's name, how far each deliberate mistake is from the recorded case."""
    config = stage_checkpoint(recording, folder)
    cases, pixels = read_cases(recording)
    case = next(item for item in cases if item.name == "f3_bilinear_grid")
    return {name: measure(make(config, case.setup), case, pixels) for name, make in MISTAKES.items()}


Mistake = Callable[[CheckpointConfig, Setup], VideoNetwork]


def _network(config: CheckpointConfig, setup: Setup) -> VideoNetwork:
    return VideoNetwork(load_network(config, dtype="float32"), config=config, setup=setup)


def _with_text(**changes: Any) -> Mistake:
    return lambda config, setup: _network(replace(config, text={**config.text, **changes}), setup)


def _with_vision(**changes: Any) -> Mistake:
    return lambda config, setup: _network(replace(config, vision={**config.vision, **changes}), setup)


def _with_setup(**changes: Any) -> Mistake:
    return lambda config, setup: _network(config, replace(setup, **changes))


def _post_norm(config: CheckpointConfig, setup: Setup) -> VideoNetwork:
    return VideoNetwork(load_network(config, dtype="float32", end_early=False), config=config, setup=setup)


def _layer_fewer(config: CheckpointConfig, setup: Setup) -> VideoNetwork:
    """Return the network with the last layer of its vision tower left out."""
    network = _network(config, setup)
    encoder = tower_body(network.network.model.vision_tower).encoder
    encoder.layers = encoder.layers[:-1]
    return network


def _tanh_projector(config: CheckpointConfig, setup: Setup) -> VideoNetwork:
    """Return the network with the approximate GELU in its projector."""
    network = _network(config, setup)
    network.network.model.multi_modal_projector.act = nn.GELU(approximate="tanh")
    return network


class _NewlineFirst(VideoNetwork):
    """The network with each row's newline token before the row, not after it."""

    def video_tokens(self, pixel_values: torch.Tensor) -> torch.Tensor:
        tokens = super().video_tokens(pixel_values)
        row = self.layout.pooled_side + 1
        return tokens.view(-1, row, tokens.shape[-1]).roll(1, dims=1).reshape(tokens.shape)


def _newline_first(config: CheckpointConfig, setup: Setup) -> VideoNetwork:
    return _NewlineFirst(load_network(config, dtype="float32"), config=config, setup=setup)


class _ClipPixels(VideoNetwork):
    """The network with pixels normalised as CLIP's, not SigLIP's."""

    def video_tokens(self, pixel_values: torch.Tensor) -> torch.Tensor:
        mean = torch.tensor([0.48145466, 0.4578275, 0.40821073]).view(1, 3, 1, 1)
        deviation = torch.tensor([0.26862954, 0.26130258, 0.27577711]).view(1, 3, 1, 1)
        return super().video_tokens((pixel_values * 0.5 + 0.5 - mean) / deviation)


def _clip_pixels(config: CheckpointConfig, setup: Setup) -> VideoNetwork:
    return _ClipPixels(load_network(config, dtype="float32"), config=config, setup=setup)


MISTAKES: dict[str, Mistake] = {
    "post-norm applied": _post_norm,
    "one vision layer fewer": _layer_fewer,
    "average for bilinear": _with_setup(pooling="average"),
    "newline first": _newline_first,
    "one newline per video": _with_setup(newline="one_token"),
    "rope theta 1e4": _with_text(rope_theta=1e4),
    "RMSNorm eps 1e-5": _with_text(rms_norm_eps=1e-5),
    "vision LayerNorm eps 1e-5": _with_vision(layer_norm_eps=1e-5),
    "tanh GELU in the projector": _tanh_projector,
    "CLIP mean and deviation": _clip_pixels,
}


def _largest(values: torch.Tensor, recorded: torch.Tensor) -> float | None:
    return float((values - recorded).abs().max()) if values.shape == recorded.shape else None
