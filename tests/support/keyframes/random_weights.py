"""Encoders of the real architectures with random weights, so that nothing is downloaded.

For tests, for timing (throughput does not depend on the values), and for comparing precisions. Their relevance
says nothing about images. Tiny ones are written as checkpoint folders like the hub's.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from focus_eval.core.errors import unknown_name

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


def blip_scorer(
    model: Any,
    tokenizer: Any,
    *,
    rules: Any = None,
    options: Any = None,
    image_processor: Any = None,
    scorer_class: type[Any] | None = None,
) -> Any:
    """Return a BLIP encoder on a `BlipForImageTextRetrieval` made elsewhere, prepared by `rules` (default: LAVIS')."""
    from focus_eval.keyframes.encoders import blip
    from focus_eval.keyframes.encoders.preprocess import ImageRules

    scorer = (scorer_class or blip.BlipScorer).__new__(scorer_class or blip.BlipScorer)
    scorer._prepare_device(options or blip.BlipOptions())
    scorer.rules = rules or blip.LAVIS
    side = model.config.vision_config.image_size
    scorer._load_on_device(model, ImageRules(height=side, width=side))
    scorer._set_up(tokenizer, image_processor)
    scorer.revision = f"random weights, {scorer.rules}, {scorer.options}"
    scorer.gmacs = blip.blip_gmacs(model.config, scorer.rules.max_tokens or blip.LAVIS_TOKENS)
    return scorer


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


def write_tiny_siglip2(folder: Path, *, tokenizer_class: str = "Siglip2Tokenizer", seed: int = 0) -> Path:
    """Write a SigLIP 2 of fixed resolution, 48x48 images and 16 text positions; its configuration says "siglip".

    Args:
        tokenizer_class: "Siglip2Tokenizer" lower-cases, "GemmaTokenizer" (saved in some checkpoints) does not.
    """
    from transformers import SiglipConfig, SiglipImageProcessor, SiglipModel

    tokenizer = _gemma_tokenizer(tokenizer_class, positions=16)
    config = SiglipConfig(
        vision_config={**_TINY_TOWER, "image_size": 48, "patch_size": 8},
        text_config=_siglip2_text(tokenizer, positions=16),
    )
    images = SiglipImageProcessor(size={"height": 48, "width": 48})
    return _write(folder, _built(SiglipModel, config, seed), tokenizer, images)


def write_tiny_naflex(folder: Path, *, seed: int = 0) -> Path:
    """Write a SigLIP 2 NaFlex with at most 36 patches of 8x8 pixels and 16 text positions."""
    from transformers import Siglip2Config, Siglip2ImageProcessor, Siglip2Model

    tokenizer = _gemma_tokenizer("GemmaTokenizer", positions=16)
    config = Siglip2Config(
        vision_config={**_TINY_TOWER, "num_patches": 36, "patch_size": 8},
        text_config=_siglip2_text(tokenizer, positions=16),
    )
    images = Siglip2ImageProcessor(patch_size=8, max_num_patches=36)
    return _write(folder, _built(Siglip2Model, config, seed), tokenizer, images)


def write_tiny_aimv2(folder: Path, *, seed: int = 0) -> Path:
    """Write an AIMv2 with a text tower, 32x32 images and 77 text positions."""
    from transformers import Aimv2Config, Aimv2Model, CLIPImageProcessor

    tokenizer = _clip_tokenizer()
    text = {"vocab_size": len(tokenizer), "max_position_embeddings": 77, "eos_token_id": tokenizer.eos_token_id}
    config = Aimv2Config(
        projection_dim=24,
        vision_config={**_TINY_TOWER, "image_size": 32, "patch_size": 8},
        text_config={**_TINY_TOWER, **text},
    )
    images = CLIPImageProcessor(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32})
    return _write(folder, _built(Aimv2Model, config, seed), tokenizer, images)


_OPEN_CLIP_TEXT = {"context_length": 16, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 2}
_OPEN_CLIP = {
    # CLIP's own towers; the others are real image towers of timm, the smallest of their family.
    "ViT": ({"image_size": 48, "patch_size": 8, "width": 48, "head_width": 12, "layers": 2}, {}, {"quick_gelu": True}),
    "PE-Core": (
        {"image_size": 384, "timm_model_name": "vit_pe_core_tiny_patch16_384", "timm_pool": "map", "timm_proj": None},
        {"mean": [0.5] * 3, "std": [0.5] * 3, "interpolation": "bilinear", "resize_mode": "squash"},
        {},
    ),
    "MobileCLIP2": (
        {"image_size": 256, "timm_model_name": "fastvit_mci0", "timm_pool": "avg", "timm_proj": None},
        {"mean": [0.0] * 3, "std": [1.0] * 3, "interpolation": "bilinear", "resize_mode": "shortest"},
        {},
    ),
    "SigLIP": (
        {"image_size": 48, "patch_size": 8, "width": 48, "head_width": 12, "layers": 2},
        {"mean": [0.5] * 3, "std": [0.5] * 3, "interpolation": "bicubic", "resize_mode": "squash"},
        {"init_logit_bias": -10},
    ),
}


def write_tiny_open_clip(folder: Path, *, family: str = "ViT", seed: int = 0) -> Path:
    """Write a model as open_clip's repositories hold one: "ViT", "PE-Core", "MobileCLIP2" or "SigLIP".

    The text tower is tiny; SigLIP's reads a Gemma tokenizer of letters, the others open_clip's own.
    """
    import json

    import open_clip
    from safetensors.torch import save_file

    vision, images, facts = _OPEN_CLIP[family]
    text: dict[str, Any] = dict(_OPEN_CLIP_TEXT)
    folder.mkdir(parents=True, exist_ok=True)
    if family == "SigLIP":
        tokenizer = _gemma_tokenizer("GemmaTokenizer", positions=16)
        tokenizer.save_pretrained(folder)
        text |= {"vocab_size": len(tokenizer), "hf_tokenizer_name": "its own", "no_causal_mask": True,
                 "tokenizer_kwargs": {"clean": "canonicalize"}, "pool_type": "last", "proj_bias": True}  # fmt: skip
    config = {"embed_dim": 32, "vision_cfg": vision, "text_cfg": text, **facts}

    def made(config: Any) -> Any:
        return open_clip.CustomTextCLIP(**config)

    model = _built(made, config, seed)
    save_file({name: value.contiguous() for name, value in model.state_dict().items()},
              folder / "open_clip_model.safetensors")  # fmt: skip
    content = {"model_cfg": {**config, "custom_text": True}, "preprocess_cfg": images}
    (folder / "open_clip_config.json").write_text(json.dumps(content), encoding="utf-8")
    return folder


def _siglip2_text(tokenizer: Any, *, positions: int) -> dict[str, Any]:
    """Return the settings of a tiny text tower that fits the tokenizer."""
    ids = {name: getattr(tokenizer, name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
    sizes = {"vocab_size": len(tokenizer), "max_position_embeddings": positions, "projection_size": 48}
    return {**_TINY_TOWER, **sizes, **ids}


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
    """Save model, tokenizer and image processor, if there is one, in a new folder, and return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    if images is not None:
        images.save_pretrained(folder)
    return folder


def _bert_tokenizer() -> Any:
    """Return a BERT tokenizer that knows the test's words, and other words by their characters."""
    from transformers import BertTokenizer

    letters = [chr(code) for code in range(33, 127)]
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, *letters, *(f"##{letter}" for letter in letters)]
    return BertTokenizer(vocab={piece: at for at, piece in enumerate(dict.fromkeys(pieces))})


def _clip_tokenizer() -> Any:
    """Return a CLIP tokenizer of single characters."""
    from transformers import CLIPTokenizer

    letters = [chr(code) for code in range(33, 127)]
    pieces = [*letters, *(f"{letter}</w>" for letter in letters), "<|startoftext|>", "<|endoftext|>"]
    return CLIPTokenizer(vocab={piece: at for at, piece in enumerate(pieces)}, merges=[])


def _siglip_tokenizer(folder: Path, *, vocabulary: int, positions: int) -> Any:
    """Return a SigLIP tokenizer whose pieces are trained on the test's words and saved in `folder`."""
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


def _gemma_tokenizer(tokenizer_class: str, *, positions: int) -> Any:
    """Return a Gemma tokenizer of single characters that ends a text with its end token."""
    import transformers

    letters = [chr(code) for code in range(33, 127)]
    pieces = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", "\u2581", *letters]
    return getattr(transformers, tokenizer_class)(
        vocab={piece: at for at, piece in enumerate(pieces)},
        merges=[],
        add_bos_token=False,
        add_eos_token=True,
        padding_side="right",
        model_max_length=positions,
    )


def _xlm_tokenizer() -> Any:
    """Return an XLM-RoBERTa tokenizer that knows the test's words and single characters, all equally likely."""
    from transformers import XLMRobertaTokenizer

    letters = [chr(code) for code in range(33, 127)]
    pieces = ["<s>", "<pad>", "</s>", "<unk>", "\u2581", *letters, *(f"\u2581{word}" for word in WORDS)]
    vocab = [(piece, -float(at)) for at, piece in enumerate(dict.fromkeys([*pieces, "<mask>"]))]
    return XLMRobertaTokenizer(vocab=vocab, model_max_length=77)
