"""A tiny LLaVA-Video checkpoint made on the spot: original parameter names, random weights, a Qwen2 tokenizer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from focus_eval.bench.lmms.llava_video.checkpoint import parse_config, transformers_config
from tests.support.keyframes.tiny_models import llava_video_tokenizer, original_name

TINY_CONFIG = {
    "architectures": ["LlavaQwenForCausalLM"],
    "model_type": "llava_qwen",
    "hidden_act": "silu",
    "hidden_size": 48,
    "intermediate_size": 96,
    "max_position_embeddings": 4096,
    "mm_hidden_size": 32,
    "mm_newline_position": "grid",
    "mm_patch_merge_type": "spatial_unpad",
    "mm_projector_type": "mlp2x_gelu",
    "mm_resampler_type": None,
    "mm_spatial_pool_mode": "bilinear",
    "mm_spatial_pool_stride": 2,
    "mm_use_im_patch_token": False,
    "mm_use_im_start_end": False,
    "mm_vision_tower": "tiny/siglip",
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-06,
    "rope_scaling": None,
    "rope_theta": 1000000.0,
    "tie_word_embeddings": False,
    "tokenizer_model_max_length": 4096,
    "torch_dtype": "bfloat16",
    "use_sliding_window": False,
    "vocab_size": 112,
    "vision_config": {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 3,
        "num_attention_heads": 2,
        "image_size": 18,
        "patch_size": 2,
        "hidden_act": "gelu_pytorch_tanh",
        "layer_norm_eps": 1e-6,
    },
}


def write_checkpoint(folder: Path, *, shards: int = 1, **changes) -> Path:
    """Write a tiny checkpoint with `changes` to its config; several shards get an index."""
    from safetensors.torch import save_file
    from transformers import LlavaOnevisionForConditionalGeneration

    folder.mkdir(parents=True, exist_ok=True)
    raw = {**TINY_CONFIG, **changes}
    (folder / "config.json").write_text(json.dumps(raw))
    config = parse_config(raw, folder)
    torch.manual_seed(7)
    network = LlavaOnevisionForConditionalGeneration(transformers_config(config, vocab_size=raw["vocab_size"]))
    for name, parameter in network.named_parameters():
        if "norm" in name and name.endswith(".weight"):
            torch.nn.init.normal_(parameter, mean=1.0, std=0.1)
        else:
            torch.nn.init.normal_(parameter, std=1.5 / parameter.shape[-1] ** 0.5)
    state = {original_name(name): value.contiguous() for name, value in network.state_dict().items()}
    names = sorted(state)
    if shards == 1:
        save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    else:
        files = {
            name: f"model-{index % shards + 1:05d}-of-{shards:05d}.safetensors" for index, name in enumerate(names)
        }
        for file in set(files.values()):
            part = {name: state[name] for name in names if files[name] == file}
            save_file(part, folder / file, metadata={"format": "pt"})
        (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": files}))
    llava_video_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def make_checkpoint():
    """The function that writes a tiny checkpoint into a folder."""
    return write_checkpoint


@pytest.fixture(scope="session")
def tiny_checkpoint(tmp_path_factory) -> Path:
    """A tiny checkpoint nobody changes."""
    return write_checkpoint(tmp_path_factory.mktemp("llava_video") / "tiny")
