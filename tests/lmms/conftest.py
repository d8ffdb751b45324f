"""Tiny random-weight models with their real processors, and data sets in the official layout, made on the spot."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("FORCE_QWENVL_VIDEO_READER", "decord")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

QWEN_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}"
    "{% else %}{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% elif part['type'] == 'video' %}<|vision_start|><|video_pad|><|vision_end|>"
    "{% elif 'text' in part %}{{ part['text'] }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
LLAVA_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
QWEN_TOKENS = ["<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"]
LLAVA_TOKENS = ["<|im_start|>", "<|im_end|>", "<image>", "<video>"]


def byte_tokenizer(special: list[str], template: str):
    """A byte-level tokenizer: one token per byte, and the special ones."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE(vocab={"<|endoftext|>": 0, **{c: i + 1 for i, c in enumerate(alphabet)}}, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core, eos_token="<|im_end|>", pad_token="<|endoftext|>", additional_special_tokens=special
    )
    tokenizer.chat_template = template
    return tokenizer


def save_qwen2_vl(folder: Path, seed: int = 0) -> Path:
    import torch
    from transformers import (
        Qwen2VLConfig,
        Qwen2VLForConditionalGeneration,
        Qwen2VLImageProcessor,
        Qwen2VLProcessor,
        Qwen2VLVideoProcessor,
    )

    tokenizer = byte_tokenizer(QWEN_TOKENS, QWEN_TEMPLATE)
    ids = {name: tokenizer.convert_tokens_to_ids(name) for name in QWEN_TOKENS}
    config = Qwen2VLConfig(
        text_config={
            "vocab_size": 280, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
            "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 32768,
            "rope_parameters": {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 10000.0},
            "bos_token_id": 0, "eos_token_id": ids["<|im_end|>"],
        },
        vision_config={"depth": 2, "embed_dim": 32, "hidden_size": 32, "num_heads": 2, "mlp_ratio": 2, "patch_size": 14},
        vision_start_token_id=ids["<|vision_start|>"], vision_end_token_id=ids["<|vision_end|>"],
        image_token_id=ids["<|image_pad|>"], video_token_id=ids["<|video_pad|>"],
    )  # fmt: skip
    torch.manual_seed(seed)
    Qwen2VLForConditionalGeneration(config).save_pretrained(folder)
    Qwen2VLProcessor(
        image_processor=Qwen2VLImageProcessor(), video_processor=Qwen2VLVideoProcessor(), tokenizer=tokenizer,
        chat_template=QWEN_TEMPLATE,
    ).save_pretrained(folder)  # fmt: skip
    tokenizer.save_pretrained(folder)
    return folder


def save_llava_onevision(folder: Path, seed: int = 0) -> Path:
    import torch
    from transformers import (
        LlavaOnevisionConfig,
        LlavaOnevisionForConditionalGeneration,
        LlavaOnevisionImageProcessor,
        LlavaOnevisionProcessor,
        LlavaOnevisionVideoProcessor,
    )

    tokenizer = byte_tokenizer(LLAVA_TOKENS, LLAVA_TEMPLATE)
    side, patch = 56, 14
    config = LlavaOnevisionConfig(
        text_config={
            "model_type": "qwen2", "vocab_size": 280, "hidden_size": 32, "intermediate_size": 64,
            "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
            "max_position_embeddings": 32768, "eos_token_id": tokenizer.eos_token_id,
        },
        vision_config={
            "model_type": "siglip_vision_model", "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
            "num_attention_heads": 2, "image_size": side, "patch_size": patch, "vision_use_head": False,
        },
        image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
        video_token_index=tokenizer.convert_tokens_to_ids("<video>"),
        image_grid_pinpoints=[[side, side]], vision_feature_select_strategy="full", vision_feature_layer=-1,
    )  # fmt: skip
    torch.manual_seed(seed)
    LlavaOnevisionForConditionalGeneration(config).save_pretrained(folder)
    size = {"height": side, "width": side}
    LlavaOnevisionProcessor(
        image_processor=LlavaOnevisionImageProcessor(size=size, image_grid_pinpoints=[[side, side]]),
        video_processor=LlavaOnevisionVideoProcessor(size=size),
        tokenizer=tokenizer, num_image_tokens=(side // patch) ** 2, vision_feature_select_strategy="full",
        chat_template=LLAVA_TEMPLATE,
    ).save_pretrained(folder)  # fmt: skip
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def tiny_qwen(tmp_path_factory) -> Path:
    return save_qwen2_vl(tmp_path_factory.mktemp("tiny") / "qwen2_vl")


@pytest.fixture(scope="session")
def tiny_llava(tmp_path_factory) -> Path:
    return save_llava_onevision(tmp_path_factory.mktemp("tiny") / "llava_onevision")
