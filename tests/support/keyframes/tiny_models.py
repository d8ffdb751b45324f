"""Tiny checkpoints of the answering models, laid out as their repositories on the model hub are.

Random weights, real configuration files and processors. They answer with one letter or digit and end there, so that
a run of any table is quick and its answers can be parsed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

ANSWERS = "ABCD2"
SHARPNESS = 3.0
QWEN_TOKENS = ["<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"]
LLAVA_TOKENS = ["<|im_start|>", "<|im_end|>", "<image>", "<video>"]
CLIP_MEAN, CLIP_STD = [0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711]
HALF = [0.5, 0.5, 0.5]
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
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}"
    "{% else %}{% for part in message['content'] %}"
    "{% if part['type'] == 'video' %}<video>\n{% elif 'text' in part %}{{ part['text'] }}{% endif %}"
    "{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# One layer and one head: 64 frames of LLaVA-Video are 11,000 tokens, and attention to them is most of a rehearsal.
_TEXT = {
    "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 1,
    "num_key_value_heads": 1, "max_position_embeddings": 32768, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0,
    "tie_word_embeddings": False, "hidden_act": "silu",
}  # fmt: skip
_SIGLIP = {
    "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 1,
    "image_size": 384, "patch_size": 14, "hidden_act": "gelu_pytorch_tanh", "layer_norm_eps": 1e-6,
}  # fmt: skip


def write_qwen2_vl(folder: Path, *, shards: int = 2, seed: int = 0) -> Path:
    """Write a Qwen2-VL with the files of `Qwen/Qwen2-VL-7B-Instruct`: a flat config, an image processor, shards."""
    from transformers import Qwen2VLConfig, Qwen2VLForConditionalGeneration

    tokenizer = byte_tokenizer(QWEN_TOKENS, QWEN_TEMPLATE)
    ids = {name: tokenizer.convert_tokens_to_ids(name) for name in QWEN_TOKENS}
    config = {
        "architectures": ["Qwen2VLForConditionalGeneration"], "model_type": "qwen2_vl", "torch_dtype": "bfloat16",
        **_TEXT, "num_attention_heads": 2, "vocab_size": 288, "bos_token_id": 0, "eos_token_id": ids["<|im_end|>"],
        "vision_start_token_id": ids["<|vision_start|>"], "vision_end_token_id": ids["<|vision_end|>"],
        "image_token_id": ids["<|image_pad|>"], "video_token_id": ids["<|video_pad|>"],
        "rope_scaling": {"type": "mrope", "mrope_section": [1, 1, 2]},
        "vision_config": {
            "depth": 2, "embed_dim": 16, "mlp_ratio": 2, "num_heads": 2, "in_chans": 3, "hidden_size": 16,
            "patch_size": 14, "spatial_merge_size": 2, "spatial_patch_size": 14, "temporal_patch_size": 2,
        },
    }  # fmt: skip
    images = {
        "min_pixels": 3136, "max_pixels": 12845056, "patch_size": 14, "temporal_patch_size": 2, "merge_size": 2,
        "image_mean": CLIP_MEAN, "image_std": CLIP_STD, "image_processor_type": "Qwen2VLImageProcessor",
        "processor_class": "Qwen2VLProcessor",
    }  # fmt: skip
    _write_json(folder / "config.json", config)
    _write_json(folder / "preprocessor_config.json", images)
    _write_json(folder / "chat_template.json", {"chat_template": QWEN_TEMPLATE})
    _write_generation(folder, eos=ids["<|im_end|>"], pad=0)
    _save_network(folder, Qwen2VLForConditionalGeneration, Qwen2VLConfig, tokenizer, shards=shards, seed=seed)
    return folder


def write_llava_onevision(folder: Path, *, shards: int = 2, seed: int = 0) -> Path:
    """Write a LLaVA-OneVision with the files of `llava-hf/llava-onevision-qwen2-7b-ov-hf`."""
    from transformers import LlavaOnevisionConfig, LlavaOnevisionForConditionalGeneration

    tokenizer = byte_tokenizer(LLAVA_TOKENS, LLAVA_TEMPLATE)
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    config = {
        "architectures": ["LlavaOnevisionForConditionalGeneration"], "model_type": "llava_onevision",
        "torch_dtype": "float16", "tie_word_embeddings": False, "projector_hidden_act": "gelu",
        "image_grid_pinpoints": [[384, 384]], "vision_aspect_ratio": "anyres_max_9", "vision_feature_layer": -1,
        "vision_feature_select_strategy": "full", "use_image_newline_parameter": True,
        "image_token_index": tokenizer.convert_tokens_to_ids("<image>"),
        "video_token_index": tokenizer.convert_tokens_to_ids("<video>"),
        "text_config": {"model_type": "qwen2", **_TEXT, "vocab_size": 288, "eos_token_id": end, "bos_token_id": 0},
        "vision_config": {"model_type": "siglip_vision_model", "vision_use_head": False, **_SIGLIP},
    }  # fmt: skip
    size = {"height": 384, "width": 384}
    frames = {
        "do_convert_rgb": True, "do_normalize": True, "do_rescale": True, "do_resize": True, "image_mean": HALF,
        "image_std": HALF, "resample": 3, "rescale_factor": 1 / 255, "size": size,
        "processor_class": "LlavaOnevisionProcessor",
    }  # fmt: skip
    images = {**frames, "image_grid_pinpoints": [[384, 384]], "image_processor_type": "LlavaOnevisionImageProcessor"}
    processor_config = {
        "image_token": "<image>", "video_token": "<video>", "num_image_tokens": 729,
        "processor_class": "LlavaOnevisionProcessor", "vision_feature_select_strategy": "full",
    }  # fmt: skip
    _write_json(folder / "config.json", config)
    _write_json(folder / "preprocessor_config.json", images)
    video = {**frames, "image_processor_type": "LlavaOnevisionVideoProcessor"}
    _write_json(folder / "video_processor" / "preprocessor_config.json", video)
    _write_json(folder / "processor_config.json", processor_config)
    _write_json(folder / "chat_template.json", {"chat_template": LLAVA_TEMPLATE})
    _write_generation(folder, eos=end, pad=0)
    network_class = LlavaOnevisionForConditionalGeneration
    _save_network(folder, network_class, LlavaOnevisionConfig, tokenizer, shards=shards, seed=seed)
    return folder


def write_llava_video(folder: Path, *, shards: int = 4, seed: int = 0) -> Path:
    """Write a LLaVA-Video with the files and parameter names of `lmms-lab/LLaVA-Video-7B-Qwen2`.

    The tower has the published geometry (384 pixels, 27 patches a side), so that as many frames fit as really do.
    """
    from transformers import LlavaOnevisionForConditionalGeneration

    from focus_eval.bench.lmms.llava_video.checkpoint import parse_config, transformers_config

    raw = {
        "architectures": ["LlavaQwenForCausalLM"], "model_type": "llava_qwen", **_TEXT, "vocab_size": 112,
        "mm_hidden_size": 16, "mm_newline_position": "grid", "mm_patch_merge_type": "spatial_unpad",
        "mm_projector_type": "mlp2x_gelu", "mm_resampler_type": None, "mm_spatial_pool_mode": "bilinear",
        "mm_spatial_pool_stride": 2, "mm_use_im_patch_token": False, "mm_use_im_start_end": False,
        "mm_vision_tower": "google/siglip-so400m-patch14-384", "rope_scaling": None, "torch_dtype": "bfloat16",
        "tokenizer_model_max_length": 32768, "use_sliding_window": False,
        "vision_config": {**_SIGLIP, "num_hidden_layers": 2},  # the last is left out
    }  # fmt: skip
    _write_json(folder / "config.json", raw)
    tokenizer = llava_video_tokenizer()
    tokenizer.save_pretrained(folder)
    config = parse_config(raw, folder)
    network = _random_network(
        lambda: LlavaOnevisionForConditionalGeneration(transformers_config(config, vocab_size=112)), seed
    )
    say_one_letter(network, tokenizer)
    state = {original_name(name): value.bfloat16().contiguous() for name, value in network.state_dict().items()}
    write_shards(folder, state, shards=shards)
    return folder


def byte_tokenizer(special: list[str], template: str) -> Any:
    """Return a byte-level tokenizer: one token per byte, and the special ones."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {"<|endoftext|>": 0, **{letter: at + 1 for at, letter in enumerate(alphabet)}}
    core = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    tokenizer_class: Any = PreTrainedTokenizerFast
    tokenizer = tokenizer_class(
        tokenizer_object=core, eos_token="<|im_end|>", pad_token="<|endoftext|>", additional_special_tokens=special
    )
    tokenizer.chat_template = template
    return tokenizer


def llava_video_tokenizer() -> Any:
    """Return a Qwen2 tokenizer of 99 tokens: blank, newline, printable ASCII, three special tokens."""
    from transformers import Qwen2Tokenizer

    characters = ["Ġ", "Ċ", *(chr(code) for code in range(33, 127))]
    return Qwen2Tokenizer(
        vocab={character: at for at, character in enumerate(characters)},
        merges=[],
        unk_token="<|endoftext|>",
        pad_token="<|endoftext|>",
        eos_token="<|im_end|>",
        extra_special_tokens=["<|im_start|>", "<|im_end|>"],
    )


def original_name(name: str) -> str:
    """Return the original name of a parameter of transformers' LLaVA-OneVision."""
    name = re.sub(r"^model\.vision_tower\.(vision_model\.)?", "model.vision_tower.vision_tower.vision_model.", name)
    name = re.sub(r"^model\.multi_modal_projector\.linear_1\.", "model.mm_projector.0.", name)
    name = re.sub(r"^model\.multi_modal_projector\.linear_2\.", "model.mm_projector.2.", name)
    return re.sub(r"^model\.language_model\.", "model.", name)


def write_shards(folder: Path, state: dict[str, torch.Tensor], *, shards: int) -> None:
    """Write `state` as that many safetensors files and their index; one file has no index."""
    from safetensors.torch import save_file

    names = sorted(state)
    if shards == 1:
        save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
        return
    files = {name: f"model-{at % shards + 1:05d}-of-{shards:05d}.safetensors" for at, name in enumerate(names)}
    for file in set(files.values()):
        save_file({name: state[name] for name in names if files[name] == file}, folder / file, {"format": "pt"})
    size = sum(value.numel() * value.element_size() for value in state.values())
    _write_json(folder / "model.safetensors.index.json", {"metadata": {"total_size": size}, "weight_map": files})


def say_one_letter(network: Any, tokenizer: Any, seed: int = 0) -> None:
    """Let a language model answer with one of `ANSWERS`, which one its context decides, and end the turn after it.

    The first channel of the residual stream says whether the last token was such an answer: then only the end of the
    turn can follow, else only an answer. No layer reads or writes it. Sharp attention makes answers differ.
    """
    import torch

    answer_ids = [tokenizer.convert_tokens_to_ids(letter) for letter in ANSWERS]
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    embedding, head = network.get_input_embeddings().weight, network.get_output_embeddings().weight
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for layer in network.model.language_model.layers:
            for silent in (layer.input_layernorm, layer.post_attention_layernorm):
                silent.weight[0] = 0.0
            for unwritten in (layer.self_attn.o_proj, layer.mlp.down_proj):
                unwritten.weight[0] = 0.0
            for sharp in (layer.self_attn.q_proj, layer.self_attn.k_proj):
                sharp.weight *= SHARPNESS
        embedding[:, 0] = -1.0
        embedding[answer_ids, 0] = 1.0
        head.zero_()
        head[answer_ids] = torch.randn(len(answer_ids), head.shape[1], generator=generator)
        head[answer_ids, 0] = -100.0
        head[end, 0] = 100.0


def _save_network(
    folder: Path, network_class: Any, config_class: Any, tokenizer: Any, *, shards: int, seed: int
) -> None:
    """Write the weights under the names that `save_pretrained` gives, and the tokenizer's files."""
    import torch
    from safetensors.torch import load_file

    config = config_class.from_pretrained(folder)
    network = _random_network(lambda: network_class(config), seed)
    say_one_letter(network, tokenizer)
    network = network.to(torch.bfloat16)
    content_by_path = {path: path.read_bytes() for path in folder.glob("*.json")}
    network.save_pretrained(folder)
    for path, content in content_by_path.items():
        path.write_bytes(content)
    if shards > 1:
        state = load_file(folder / "model.safetensors")
        (folder / "model.safetensors").unlink()
        write_shards(folder, state, shards=shards)
    tokenizer.save_pretrained(folder)


def _random_network(make: Callable[[], Any], seed: int) -> Any:
    """Return a network whose weights depend on the seed alone; matrices and biases are drawn anew."""
    import torch

    with torch.random.fork_rng():
        torch.manual_seed(seed)
        network = make()
        for name, parameter in network.named_parameters():
            if parameter.ndim > 1:
                torch.nn.init.normal_(parameter, std=1.5 / parameter.shape[-1] ** 0.5)
            elif not name.endswith("weight"):
                torch.nn.init.normal_(parameter, std=0.1)
    return network.eval()


def _write_generation(folder: Path, *, eos: int, pad: int) -> None:
    """Write generation_config.json for greedy decoding that ends at either token."""
    content = {"bos_token_id": pad, "pad_token_id": pad, "eos_token_id": [eos, pad], "do_sample": False}
    _write_json(folder / "generation_config.json", content)


def _write_json(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=2))
