"""Tiny checkpoints of transformers' video models: random weights, real processors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.keyframes.tiny_models import LLAVA_TEMPLATE, LLAVA_TOKENS, QWEN_TEMPLATE, QWEN_TOKENS, byte_tokenizer

TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{% for part in message['content'] %}"
    "{% if part['type'] == 'video' %}VIDEO\n{% elif part['type'] == 'image' %}IMAGE\n{% else %}{{ part['text'] }}"
    "{% endif %}{% endfor %}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TEXT = {
    "vocab_size": 300, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 32768,
}  # fmt: skip
VISION = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}


# Sizes of the text part, of its rotary sections, and of the image tower.
_QWEN2_VL: dict[str, tuple[dict[str, int], list[int], dict[str, int]]] = {
    "tiny": (
        {"vocab_size": 280, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2},
        [1, 1, 2],
        {"depth": 2, "embed_dim": 32, "hidden_size": 32, "num_heads": 2, "mlp_ratio": 2},
    ),
    "7B": (
        {"vocab_size": 152064, "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28,
         "num_attention_heads": 28, "num_key_value_heads": 4},
        [16, 24, 24],
        {"depth": 32, "embed_dim": 1280, "hidden_size": 3584, "num_heads": 16, "mlp_ratio": 4},
    ),
}  # fmt: skip


def save_qwen2_vl(folder: Path, seed: int = 0, *, shape: str = "tiny") -> Path:
    """Write a Qwen2-VL; "7B" has the published shape, in bfloat16, and is made on the GPU."""
    import torch

    t = _transformers()

    tokenizer = byte_tokenizer(QWEN_TOKENS, QWEN_TEMPLATE)
    ids = {name: tokenizer.convert_tokens_to_ids(name) for name in QWEN_TOKENS}
    text, sections, vision = _QWEN2_VL[shape]
    config = t.Qwen2VLConfig(
        text_config={
            **text, "max_position_embeddings": 32768,
            "rope_parameters": {"rope_type": "default", "mrope_section": sections, "rope_theta": 10000.0},
            "bos_token_id": 0, "eos_token_id": ids["<|im_end|>"],
        },
        vision_config={**vision, "patch_size": 14},
        vision_start_token_id=ids["<|vision_start|>"], vision_end_token_id=ids["<|vision_end|>"],
        image_token_id=ids["<|image_pad|>"], video_token_id=ids["<|video_pad|>"],
    )  # fmt: skip
    torch.manual_seed(seed)
    is_tiny = shape == "tiny"
    with torch.device("cpu" if is_tiny else "cuda"):
        network = t.Qwen2VLForConditionalGeneration._from_config(
            config, dtype=torch.float32 if is_tiny else torch.bfloat16
        )
    network.save_pretrained(folder)
    t.Qwen2VLProcessor(
        image_processor=t.Qwen2VLImageProcessor(), video_processor=t.Qwen2VLVideoProcessor(), tokenizer=tokenizer,
        chat_template=QWEN_TEMPLATE,
    ).save_pretrained(folder)  # fmt: skip
    tokenizer.save_pretrained(folder)
    return folder


def save_qwen_successor(folder: Path, kind: str, seed: int = 0) -> Path:
    """Write a Qwen2.5-VL ("qwen2_5"), Qwen3-VL ("qwen3") or Qwen3.5 ("qwen3_5")."""
    import torch

    t = _transformers()

    tokenizer = byte_tokenizer(QWEN_TOKENS, QWEN_TEMPLATE)
    ids = {name: tokenizer.convert_tokens_to_ids(name) for name in QWEN_TOKENS}
    text = {
        "vocab_size": 280, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 32768, "head_dim": 8,
        "rope_parameters": {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 10000.0},
        "bos_token_id": 0, "eos_token_id": ids["<|im_end|>"],
    }  # fmt: skip
    vision: dict[str, Any] = {
        "depth": 2, "hidden_size": 32, "num_heads": 2, "intermediate_size": 64, "out_hidden_size": 32,
    }  # fmt: skip
    tokens = {
        "vision_start_token_id": ids["<|vision_start|>"], "vision_end_token_id": ids["<|vision_end|>"],
        "image_token_id": ids["<|image_pad|>"], "video_token_id": ids["<|video_pad|>"],
    }  # fmt: skip
    torch.manual_seed(seed)
    images, videos = t.Qwen2VLImageProcessor(), t.Qwen2VLVideoProcessor()
    if kind == "qwen2_5":
        vision |= {"patch_size": 14, "window_size": 56, "fullatt_block_indexes": [1]}
        config = t.Qwen2_5_VLConfig(text_config=text, vision_config=vision, **tokens)
        model, processor = t.Qwen2_5_VLForConditionalGeneration(config), t.Qwen2_5_VLProcessor
    else:
        vision |= {"patch_size": 16, "num_position_embeddings": 64}
        processor = t.Qwen3VLProcessor
        if kind == "qwen3":
            vision |= {"deepstack_visual_indexes": [0]}
            config = t.Qwen3VLConfig(text_config=text, vision_config=vision, **tokens)
            model = t.Qwen3VLForConditionalGeneration(config)
        else:
            # One layer of each kind; the linear one has small heads.
            heads = {"linear_num_key_heads": 2, "linear_num_value_heads": 4}
            sizes = {"linear_key_head_dim": 8, "linear_value_head_dim": 8}
            text |= {**heads, **sizes, "layer_types": ["linear_attention", "full_attention"]}
            config = t.Qwen3_5Config(text_config=text, vision_config=vision, **tokens)
            model = t.Qwen3_5ForConditionalGeneration(config)
        images, videos = t.Qwen2VLImageProcessor(patch_size=16), t.Qwen3VLVideoProcessor()
    model.save_pretrained(folder)
    processor(
        image_processor=images, video_processor=videos, tokenizer=tokenizer, chat_template=QWEN_TEMPLATE
    ).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def save_llava_onevision(folder: Path, seed: int = 0) -> Path:
    """Write a LLaVA-OneVision."""
    import torch

    t = _transformers()

    tokenizer = byte_tokenizer(LLAVA_TOKENS, LLAVA_TEMPLATE)
    side, patch = 56, 14
    config = t.LlavaOnevisionConfig(
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
    t.LlavaOnevisionForConditionalGeneration(config).save_pretrained(folder)
    size = {"height": side, "width": side}
    t.LlavaOnevisionProcessor(
        image_processor=t.LlavaOnevisionImageProcessor(size=size, image_grid_pinpoints=[[side, side]]),
        video_processor=t.LlavaOnevisionVideoProcessor(size=size),
        tokenizer=tokenizer, num_image_tokens=(side // patch) ** 2, vision_feature_select_strategy="full",
        chat_template=LLAVA_TEMPLATE,
    ).save_pretrained(folder)  # fmt: skip
    tokenizer.save_pretrained(folder)
    return folder


def internvl(folder: Path) -> Path:
    """Write a tiny model of InternVL3.5's class, which takes each frame as an image of its own."""
    t = _transformers()

    special_tokens = {
        "start_image_token": "<img>", "end_image_token": "</img>", "context_image_token": "<IMG_CONTEXT>",
        "video_token": "<video>",
    }  # fmt: skip
    tokenizer = _tokenizer("<video>", "<IMG_CONTEXT>", special_tokens)
    config = t.InternVLConfig(
        vision_config={**VISION, "image_size": [56, 56], "patch_size": [14, 14]},
        text_config={"model_type": "qwen2", **TEXT},
        image_token_id=tokenizer.convert_tokens_to_ids("<IMG_CONTEXT>"),
        downsample_ratio=0.5,
    )
    size = {"height": 56, "width": 56}
    processor = t.InternVLProcessor(
        image_processor=t.GotOcr2ImageProcessor(size=size), video_processor=t.InternVLVideoProcessor(size=size),
        tokenizer=tokenizer, image_seq_length=4, chat_template=tokenizer.chat_template,
    )  # fmt: skip
    return _save(folder, t.InternVLForConditionalGeneration(config), processor, tokenizer)


def smolvlm(folder: Path) -> Path:
    """Write a tiny model of SmolVLM2's class, which takes frames with their times as text before them."""
    t = _transformers()

    special_tokens = {
        "image_token": "<image>", "fake_image_token": "<fake_token_around_image>", "video_token": "<video>",
        "end_of_utterance_token": "<end_of_utterance>", "global_image_token": "<global-img>",
    }  # fmt: skip
    tokenizer = _tokenizer("<video>", "<image>", special_tokens)
    config = t.SmolVLMConfig(
        image_token_id=tokenizer.convert_tokens_to_ids("<image>"), pad_token_id=0, scale_factor=2,
        vision_config={**VISION, "image_size": 56, "patch_size": 14}, text_config={"model_type": "llama", **TEXT},
    )  # fmt: skip
    size = {"longest_edge": 56}
    processor = t.SmolVLMProcessor(
        image_processor=t.SmolVLMImageProcessor(size=size, max_image_size=size, do_image_splitting=False),
        video_processor=t.SmolVLMVideoProcessor(size=size, max_image_size=size), tokenizer=tokenizer, image_seq_len=4,
        chat_template=tokenizer.chat_template,
    )  # fmt: skip
    return _save(folder, t.SmolVLMForConditionalGeneration(config), processor, tokenizer)


def glm46v(folder: Path) -> Path:
    """Write a tiny model of GLM-4.6V's class, which takes frames in pairs, each pair with its time."""
    t = _transformers()

    special_tokens = {
        "image_token": "<|image|>", "video_token": "<|video|>", "a": "<|begin_of_image|>", "b": "<|end_of_image|>",
        "c": "<|begin_of_video|>", "d": "<|end_of_video|>",
    }  # fmt: skip
    video = "<|begin_of_video|><|video|><|end_of_video|>"
    tokenizer = _tokenizer(video, "<|begin_of_image|><|image|><|end_of_image|>", special_tokens)
    token_id = tokenizer.convert_tokens_to_ids
    rope = {"rope_type": "default", "mrope_section": [1, 1, 2], "partial_rotary_factor": 1.0, "rope_theta": 1e4}
    config = t.Glm46VConfig(
        text_config={"model_type": "glm4v_text", **TEXT, "head_dim": 8, "rope_parameters": rope},
        vision_config={
            "model_type": "glm4v_vision", "depth": 2, "hidden_size": 32, "num_heads": 2, "intermediate_size": 64,
            "out_hidden_size": 32, "patch_size": 14, "image_size": 56,
        },
        image_token_id=token_id("<|image|>"), video_token_id=token_id("<|video|>"),
        image_start_token_id=token_id("<|begin_of_image|>"), image_end_token_id=token_id("<|end_of_image|>"),
        video_start_token_id=token_id("<|begin_of_video|>"), video_end_token_id=token_id("<|end_of_video|>"),
    )  # fmt: skip
    processor = t.Glm46VProcessor(
        image_processor=t.Glm46VImageProcessor(), video_processor=t.Glm46VVideoProcessor(), tokenizer=tokenizer,
        chat_template=tokenizer.chat_template,
    )  # fmt: skip
    return _save(folder, t.Glm46VForConditionalGeneration(config), processor, tokenizer)


def video_llama3(folder: Path) -> Path:
    """Write a tiny model of Video-LLaMA 3's class, which takes one grid per video, and times as text."""
    t = _transformers()

    tokenizer = _tokenizer("<video>", "<image>", {"image_token": "<image>", "video_token": "<video>"})
    token_id = tokenizer.convert_tokens_to_ids
    config = t.VideoLlama3Config(
        text_config={"model_type": "qwen2", **TEXT}, vision_config={**VISION, "patch_size": 14},
        image_token_id=token_id("<image>"), video_token_id=token_id("<video>"),
    )  # fmt: skip
    processor = t.VideoLlama3Processor(
        image_processor=t.VideoLlama3ImageProcessor(), video_processor=t.VideoLlama3VideoProcessor(),
        tokenizer=tokenizer, chat_template=tokenizer.chat_template,
    )  # fmt: skip
    return _save(folder, t.VideoLlama3ForConditionalGeneration(config), processor, tokenizer)


MODELS = {"internvl": internvl, "smolvlm": smolvlm, "glm46v": glm46v, "video_llama3": video_llama3}


def _tokenizer(video: str, image: str, special_tokens: dict[str, str]) -> Any:
    """Return a tokenizer of bytes with these special tokens, whose template marks videos and images as given."""
    base = byte_tokenizer(["<|im_start|>", "<|im_end|>", *special_tokens.values()], "")
    tokenizer = _transformers().PreTrainedTokenizerFast(
        tokenizer_object=base.backend_tokenizer, eos_token="<|im_end|>", pad_token="<|endoftext|>",
        extra_special_tokens=special_tokens,
    )  # fmt: skip
    tokenizer.chat_template = TEMPLATE.replace("VIDEO", video).replace("IMAGE", image)
    return tokenizer


def _save(folder: Path, model: Any, processor: Any, tokenizer: Any) -> Path:
    """Save model, processor and tokenizer in one folder, and return it."""
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def _transformers() -> Any:
    """Return the module as Any: its classes are typed in part only."""
    import transformers

    return transformers
