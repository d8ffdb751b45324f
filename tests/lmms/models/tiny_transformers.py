"""Tiny models of transformers' own video classes, with random weights and real processors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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


def _tokenizer(byte_tokenizer: Any, video: str, image: str, named: dict[str, str]) -> Any:
    from transformers import PreTrainedTokenizerFast

    base = byte_tokenizer(["<|im_start|>", "<|im_end|>", *named.values()], "")
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=base.backend_tokenizer, eos_token="<|im_end|>", pad_token="<|endoftext|>",
        extra_special_tokens=named,
    )  # fmt: skip
    tokenizer.chat_template = TEMPLATE.replace("VIDEO", video).replace("IMAGE", image)
    return tokenizer


def _save(folder: Path, model: Any, processor: Any, tokenizer: Any) -> Path:
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def internvl(folder: Path, byte_tokenizer: Any) -> Path:
    """InternVL3.5's class: each frame is an image of its own."""
    import transformers as t

    named = {
        "start_image_token": "<img>", "end_image_token": "</img>", "context_image_token": "<IMG_CONTEXT>",
        "video_token": "<video>",
    }  # fmt: skip
    tokenizer = _tokenizer(byte_tokenizer, "<video>", "<IMG_CONTEXT>", named)
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


def smolvlm(folder: Path, byte_tokenizer: Any) -> Path:
    """SmolVLM2's class: frames with their times as text before them."""
    import transformers as t

    named = {
        "image_token": "<image>", "fake_image_token": "<fake_token_around_image>", "video_token": "<video>",
        "end_of_utterance_token": "<end_of_utterance>", "global_image_token": "<global-img>",
    }  # fmt: skip
    tokenizer = _tokenizer(byte_tokenizer, "<video>", "<image>", named)
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


def glm46v(folder: Path, byte_tokenizer: Any) -> Path:
    """GLM-4.6V's class: frames in pairs, each pair with its time."""
    import transformers as t

    named = {
        "image_token": "<|image|>", "video_token": "<|video|>", "a": "<|begin_of_image|>", "b": "<|end_of_image|>",
        "c": "<|begin_of_video|>", "d": "<|end_of_video|>",
    }  # fmt: skip
    video = "<|begin_of_video|><|video|><|end_of_video|>"
    tokenizer = _tokenizer(byte_tokenizer, video, "<|begin_of_image|><|image|><|end_of_image|>", named)
    known = tokenizer.convert_tokens_to_ids
    rope = {"rope_type": "default", "mrope_section": [1, 1, 2], "partial_rotary_factor": 1.0, "rope_theta": 1e4}
    config = t.Glm46VConfig(
        text_config={"model_type": "glm4v_text", **TEXT, "head_dim": 8, "rope_parameters": rope},
        vision_config={
            "model_type": "glm4v_vision", "depth": 2, "hidden_size": 32, "num_heads": 2, "intermediate_size": 64,
            "out_hidden_size": 32, "patch_size": 14, "image_size": 56,
        },
        image_token_id=known("<|image|>"), video_token_id=known("<|video|>"),
        image_start_token_id=known("<|begin_of_image|>"), image_end_token_id=known("<|end_of_image|>"),
        video_start_token_id=known("<|begin_of_video|>"), video_end_token_id=known("<|end_of_video|>"),
    )  # fmt: skip
    processor = t.Glm46VProcessor(
        image_processor=t.Glm46VImageProcessor(), video_processor=t.Glm46VVideoProcessor(), tokenizer=tokenizer,
        chat_template=tokenizer.chat_template,
    )  # fmt: skip
    return _save(folder, t.Glm46VForConditionalGeneration(config), processor, tokenizer)


def video_llama3(folder: Path, byte_tokenizer: Any) -> Path:
    """Video-LLaMA 3's class: one grid per video, times as text."""
    import transformers as t

    tokenizer = _tokenizer(byte_tokenizer, "<video>", "<image>", {"image_token": "<image>", "video_token": "<video>"})
    known = tokenizer.convert_tokens_to_ids
    config = t.VideoLlama3Config(
        text_config={"model_type": "qwen2", **TEXT}, vision_config={**VISION, "patch_size": 14},
        image_token_id=known("<image>"), video_token_id=known("<video>"),
    )  # fmt: skip
    processor = t.VideoLlama3Processor(
        image_processor=t.VideoLlama3ImageProcessor(), video_processor=t.VideoLlama3VideoProcessor(),
        tokenizer=tokenizer, chat_template=tokenizer.chat_template,
    )  # fmt: skip
    return _save(folder, t.VideoLlama3ForConditionalGeneration(config), processor, tokenizer)


MODELS = {"internvl": internvl, "smolvlm": smolvlm, "glm46v": glm46v, "video_llama3": video_llama3}
