"""Reads config.json of a LLaVA-Video checkpoint."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast, get_args

from focus_eval.errors import InvalidInput, MissingWeights
from focus_eval.lmms.llava_video.setup import Newline, Pooling, Setup
from focus_eval.lmms.llava_video.tokens import Layout

HUB_NAME = "lmms-lab/LLaVA-Video-7B-Qwen2"

# The vision tower is named, not described, in the checkpoint: these are SigLIP's own published sizes.
_TOWERS = {
    "siglip-so400m-patch14-384": {
        "hidden_size": 1152,
        "intermediate_size": 4304,
        "num_hidden_layers": 27,
        "num_attention_heads": 16,
        "image_size": 384,
        "patch_size": 14,
        "hidden_act": "gelu_pytorch_tanh",
        "layer_norm_eps": 1e-6,
    }
}
_TEXT_KEYS = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "hidden_act",
    "max_position_embeddings",
    "rms_norm_eps",
    "tie_word_embeddings",
    "rope_theta",
)
# What the recorded parity covers; another value would load and silently compute something else.
_REQUIRED = {
    "mm_projector_type": ("mlp2x_gelu",),
    "mm_patch_merge_type": ("spatial_unpad",),
    "mm_resampler_type": (None, "spatial_pool"),
    "mm_use_im_start_end": (False, None),
    "add_faster_video": (False, None),
    "use_pos_skipping": (False, None),
    "use_sliding_window": (False, None),
    "rope_scaling": (None,),
}
_OTHER_MODELS = {
    "llava_onevision": f"focus_llava_onevision (for LLaVA-Video itself take the original {HUB_NAME})",
    "qwen2_vl": "focus_qwen2_vl",
    "qwen2_5_vl": "focus_qwen2_5_vl",
    "qwen3_vl": "focus_qwen3_vl",
    "llava_llama": "lmms-eval's own llava, in an environment of its own",
    "llava_mistral": "lmms-eval's own llava, in an environment of its own",
}


@dataclass(frozen=True, kw_only=True)
class CheckpointConfig:
    """What a LLaVA-Video checkpoint says of itself.

    Args:
        folder: where it lies.
        text: settings of the Qwen2 language model, under transformers' names.
        vision: settings of the SigLIP tower at its full depth; the last layer is never run.
        pooling, newline: what the model was trained with.
        context_tokens: longest merged sequence.
    """

    folder: Path
    text: Mapping[str, Any]
    vision: Mapping[str, Any]
    pooling: Pooling
    newline: Newline
    context_tokens: int

    @property
    def side(self) -> int:
        """Patches per side of a frame before pooling: 27 in the published models."""
        return int(self.vision["image_size"]) // int(self.vision["patch_size"])

    def layout(self, setup: Setup) -> Layout:
        """Return how frames become tokens under `setup`."""
        return Layout(
            side=self.side,
            pooling=self.pooling if setup.pooling == "checkpoint" else setup.pooling,
            newline=self.newline if setup.newline == "checkpoint" else setup.newline,
        )


def read_config(folder: Path) -> CheckpointConfig:
    """Return what `folder/config.json` says.

    A `vision_config` entry (full depth, SigLIP's names) describes a tower other than the published one.

    Raises:
        MissingWeights: no config.json.
        InvalidInput: not JSON, another model (the message names the model to use), or a setting outside of what is
            known to equal the original.
    """
    path = folder / "config.json"
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise MissingWeights(
            f"{folder}: no config.json; a LLaVA-Video checkpoint such as {HUB_NAME} is needed"
        ) from None
    except ValueError as error:
        raise InvalidInput(f"{path}: not JSON ({error})") from error
    if not isinstance(raw, dict):
        raise InvalidInput(f"{path}: not a JSON object")
    return parse_config(raw, folder)


def parse_config(raw: Mapping[str, Any], folder: Path) -> CheckpointConfig:
    """Return what the config `raw` of the checkpoint in `folder` says; see `read_config`."""
    path = folder / "config.json"
    _refuse_other_models(raw, folder)
    for key, allowed in _REQUIRED.items():
        if raw.get(key) not in allowed:
            raise InvalidInput(f"{path}: {key} is {raw.get(key)!r}, only {allowed[0]!r} is known to equal the original")
    missing = [key for key in _TEXT_KEYS if key not in raw]
    if missing:
        raise InvalidInput(f"{path}: no {', '.join(missing)}")
    return CheckpointConfig(
        folder=folder,
        text={key: raw[key] for key in _TEXT_KEYS},
        vision=_vision(raw, path),
        pooling=cast(Pooling, _choice(raw, "mm_spatial_pool_mode", get_args(Pooling), path)),
        newline=cast(Newline, _choice(raw, "mm_newline_position", get_args(Newline), path)),
        context_tokens=min(raw["max_position_embeddings"], raw.get("tokenizer_model_max_length") or 2**31),
    )


def _refuse_other_models(raw: Mapping[str, Any], folder: Path) -> None:
    kind = raw.get("model_type")
    if kind != "llava_qwen":
        use = _OTHER_MODELS.get(str(kind), "the wrapper of its own family")
        raise InvalidInput(f"{folder} is a {kind!r} checkpoint, not LLaVA-Video; use {use}")
    if "mm_newline_position" not in raw:
        raise InvalidInput(
            f"{folder} is a llava_qwen checkpoint without mm_newline_position, so LLaVA-OneVision or older, not"
            " LLaVA-Video; use focus_llava_onevision with llava-hf/llava-onevision-qwen2-7b-ov-hf"
        )


def _vision(raw: Mapping[str, Any], path: Path) -> Mapping[str, Any]:
    if "vision_config" in raw:
        return dict(raw["vision_config"])
    tower = str(raw.get("mm_vision_tower"))
    name = tower.rstrip("/").rsplit("/", 1)[-1]
    if name not in _TOWERS:
        raise InvalidInput(f"{path}: vision tower {tower!r} is not {' or '.join(_TOWERS)}, so not LLaVA-Video")
    return _TOWERS[name]


def _choice(raw: Mapping[str, Any], key: str, known: tuple[str, ...], path: Path) -> str:
    value = raw.get(key)
    if value not in known:
        raise InvalidInput(f"{path}: {key} is {value!r}, known: {', '.join(known)}")
    return str(value)
