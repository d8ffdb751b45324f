"""The recorded LAVIS run as a checkpoint folder under transformers' names."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from transformers import BlipConfig, BlipForImageTextRetrieval

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
    for theirs, ours in _RENAMED:
        name = name.replace(theirs, ours)
    if name.startswith("vision_model.encoder."):
        for theirs, ours in _RENAMED_IN_BLOCK:
            name = name.replace(theirs, ours)
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
