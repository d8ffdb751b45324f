"""Which encoders of the real architectures can be had without a download? Those with random weights.

For tests, for timing (throughput does not depend on the values), and for comparing precisions. Their relevance
says nothing about images. Tiny ones are written as checkpoint folders like the hub's.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from focus_eval.errors import unknown_name

WORDS = ("a", "the", "man", "woman", "dog", "cat", "car", "red", "blue", "is", "on", "in", "what", "who", "cooking")

_TINY_TOWER = {"hidden_size": 48, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4}
_BLIP_TEXT = {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12}
_BLIP_SIZES: dict[str, tuple[dict[str, int], dict[str, int]]] = {
    "large": (
        {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16},
        _BLIP_TEXT,
    ),
    "base": (
        {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12},
        _BLIP_TEXT,
    ),
    "tiny": (
        {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4},
        {"hidden_size": 48, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 6},
    ),
}
TINY_BLIP_HEADS = 6


def random_blip(size: str, *, image_size: int = 384, device: str = "cpu", seed: int = 0) -> tuple[Any, Any]:
    """Return (`BlipForImageTextRetrieval`, tokenizer) of size "large", "base" or "tiny", as LAVIS configures it.

    The vocabulary is made up: letters and a few words. Token ids differ from the real ones, their number is larger.

    Raises:
        UnknownName: another size.
    """
    from transformers import BlipConfig, BlipForImageTextRetrieval

    if size not in _BLIP_SIZES:
        raise unknown_name("size of BLIP", size, _BLIP_SIZES)
    vision, text = _BLIP_SIZES[size]
    config = BlipConfig(
        image_text_hidden_size=256,
        vision_config={**vision, "image_size": image_size, "patch_size": 16, "layer_norm_eps": 1e-6},
        text_config={**text, "vocab_size": 30524},
    )
    return _built(BlipForImageTextRetrieval, config, seed, device=device), _bert_tokenizer()


def write_tiny_blip(folder: Path, *, seed: int = 0) -> Path:
    """Write a BLIP-ITM with 96x96 images; load it with `text_heads=TINY_BLIP_HEADS`."""
    from transformers import BlipImageProcessor

    model, tokenizer = random_blip("tiny", image_size=96, seed=seed)
    return _write(folder, model, tokenizer, BlipImageProcessor(size={"height": 96, "width": 96}))


def write_tiny_clip(folder: Path, *, positions: int = 77, seed: int = 0) -> Path:
    """Write a CLIP with 32x32 images; 248 positions make it a Long-CLIP."""
    from transformers import CLIPConfig, CLIPImageProcessor, CLIPModel

    tokenizer = _clip_tokenizer()
    end = tokenizer.eos_token_id
    ids = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": end, "pad_token_id": end}
    config = CLIPConfig(
        projection_dim=24,
        vision_config={**_TINY_TOWER, "image_size": 32, "patch_size": 8},
        text_config={**_TINY_TOWER, "vocab_size": len(tokenizer), "max_position_embeddings": positions, **ids},
    )
    model = _built(CLIPModel, config, seed)
    images = CLIPImageProcessor(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32})
    return _write(folder, model, tokenizer, images)


def write_tiny_siglip(folder: Path, *, seed: int = 0) -> Path:
    """Write a SigLIP with 48x48 images and 16 text positions, its SentencePiece model trained on a few words."""
    from transformers import SiglipConfig, SiglipImageProcessor, SiglipModel

    config = SiglipConfig(
        vision_config={**_TINY_TOWER, "image_size": 48, "patch_size": 8},
        text_config={
            **_TINY_TOWER,
            "vocab_size": 64,
            "max_position_embeddings": 16,
            "projection_size": 48,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "pad_token_id": 2,
        },
    )
    model = _built(SiglipModel, config, seed)
    folder.mkdir(parents=True, exist_ok=True)
    images = SiglipImageProcessor(size={"height": 48, "width": 48})
    return _write(folder, model, _siglip_tokenizer(folder, vocabulary=64, positions=16), images)


def _built(model_class: Any, config: Any, seed: int, *, device: str = "cpu") -> Any:
    """Return a model whose weights are wide enough that relevance differs between frames and between texts.

    The same seed gives the same weights on the same kind of device; torch's own generator is left as it was.
    """
    with torch.random.fork_rng(), torch.device(device):
        torch.manual_seed(seed)
        model = model_class(config)
    for at, (name, weight) in enumerate(model.named_parameters()):
        if weight.ndim < 2:
            continue
        generator = torch.Generator(weight.device).manual_seed(seed * 100_003 + at)
        is_table = "embedding" in name and "patch_embedding" not in name
        spread = 0.5 if is_table else (2.0 if "itm_head" in name else 1.4) / weight[0].numel() ** 0.5
        with torch.no_grad():
            weight.normal_(0.0, spread, generator=generator)
    return model.eval()


def _write(folder: Path, model: Any, tokenizer: Any, images: Any = None) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    if images is not None:
        images.save_pretrained(folder)
    return folder


def _bert_tokenizer() -> Any:
    from transformers import BertTokenizer

    letters = [chr(code) for code in range(33, 127)]
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, *letters, *(f"##{letter}" for letter in letters)]
    return BertTokenizer(vocab={piece: at for at, piece in enumerate(dict.fromkeys(pieces))})


def _clip_tokenizer() -> Any:
    from transformers import CLIPTokenizer

    letters = [chr(code) for code in range(33, 127)]
    pieces = [*letters, *(f"{letter}</w>" for letter in letters), "<|startoftext|>", "<|endoftext|>"]
    return CLIPTokenizer(vocab={piece: at for at, piece in enumerate(pieces)}, merges=[])


def _siglip_tokenizer(folder: Path, *, vocabulary: int, positions: int) -> Any:
    import sentencepiece
    from transformers import SiglipTokenizer

    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([" ".join(WORDS)] * 20),
        model_prefix=str(folder / "spiece"),
        vocab_size=vocabulary,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    return SiglipTokenizer(str(folder / "spiece.model"), model_max_length=positions)
