"""Scores frames in the joint space of CLIP, Long-CLIP, AIMv2 or SigLIP.

Relevance is `(1 + cosine) / 2` of the two embeddings: monotone, in [0, 1], the same for every encoder, so that
0.5 means "orthogonal". The raw cosine and the raw dot product are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from focus_eval.core.errors import EncoderError
from focus_eval.core.types import FloatArray, Pixels, checked_query
from focus_eval.keyframes.encoders.base import PublishedWeights
from focus_eval.keyframes.encoders.cost import dual_encoder_gmacs
from focus_eval.keyframes.encoders.preprocess import ImageRules, read_image_rules, read_preprocessor
from focus_eval.keyframes.encoders.torch_scorer import TorchScorer
from focus_eval.keyframes.encoders.weights import Located, load_weights

if TYPE_CHECKING:
    from tokenizers.normalizers import Lowercase
    from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase
    from transformers.modeling_outputs import BaseModelOutputWithPooling


# An image tower's output: the embedding itself, or, since transformers 5, an object that holds it.
ImageOutput: TypeAlias = "torch.Tensor | BaseModelOutputWithPooling"


class DualEncoderScorer(TorchScorer):
    """Base of the encoders with an image tower and a text tower that share an embedding space.

    Images are resized and cropped with Pillow by the rules of `preprocessor_config.json`, as transformers did when the
    published runs were made. The checkpoint's own tokenizer reads the text; text longer than the text tower's positions
    is cut. The options are those of `EncoderOptions`.

    Raises:
        MissingWeights, EncoderError: see `weights.locate`.
    """

    stores_embeddings: ClassVar[bool] = True
    # "longest" pads to the longest text of a batch, as for CLIP, which was trained without padding. SigLIP needs
    # "max_length": it was trained on text padded to full length and attends to the padding.
    text_padding: ClassVar[str] = "longest"
    least_positions: ClassVar[int] = 1

    def load_text(self, located: Located) -> None:
        """Load the tokenizer and the cache of query embeddings; raise EncoderError if the text tower is too short."""
        self._positions = self.count_positions()
        if self._positions < self.least_positions:
            raise EncoderError(
                f"{located.identity}: {self._positions} text positions, {self.name!r} needs {self.least_positions}"
            )
        self._tokenizer = self.load_tokenizer(located)
        image_features = self._model.get_image_features
        self._image_features: Callable[..., ImageOutput] | None = (
            torch.compile(image_features) if self.options.compile else image_features
        )
        self._text_runner = self._runner(self.options.batch_size)
        self._query_features = lru_cache(maxsize=4096)(self._embed_query)

    @classmethod
    def gmacs_in(cls, folder: Path, options: object) -> dict[str, float]:
        """Return 10^9 multiply-adds of an image, by part; the text tower is not counted."""
        return dual_encoder_gmacs(_config(folder))

    def count_positions(self) -> int:
        """Return the largest number of tokens that the text tower reads."""
        return int(self._model.config.text_config.max_position_embeddings)

    def queue_parts(self, parts: Sequence[Pixels]) -> Callable[[], NDArray[np.float32]]:
        """Queue frames; the returned function gives embeddings, float32 `(n, d)` in host memory, not normalised."""
        finish = self._queue(
            parts, lambda pixels: pooled_output(self.image_features(pixels)), dtype=torch.float32, to_host=True
        )
        return lambda: finish().numpy()

    def image_features(self, pixels: torch.Tensor) -> ImageOutput:
        """Return the image tower's output for pixel values `(n, 3, height, width)`."""
        assert self._image_features is not None, "closed"
        return self._image_features(pixel_values=pixels)

    def load_model(self, located: Located) -> torch.nn.Module:
        """Return both towers of the checkpoint, of the class that its configuration names."""
        return _load_model(located.folder, located.identity)

    def load_tokenizer(self, located: Located) -> PreTrainedTokenizerBase:
        """Return the checkpoint's tokenizer."""
        return load_tokenizer(located.folder)

    def clean_text(self, text: str) -> str:
        """Return `text` as it is given to the tokenizer; unchanged unless a subclass cleans it."""
        return text

    def relevance(self, features: NDArray[np.float32], query: str) -> FloatArray:
        """Return `(1 + cosine) / 2`, shape `(n,)`, in [0, 1]."""
        return (1.0 + self.cosine(features, query)) / 2.0

    def cosine(self, features: NDArray[np.float32], query: str) -> FloatArray:
        """Return the cosine of the embeddings, shape `(n,)`, in [-1, 1]."""
        images, text = self.embeddings(features, query)
        # Multiply and sum row by row: the rounding of a matrix product may depend on the number of rows.
        cosine: FloatArray = np.clip((images * text).sum(axis=1), -1.0, 1.0)
        return cosine

    def logits(self, features: NDArray[np.float32], query: str) -> FloatArray:
        """Return the dot product of the embeddings as the towers give them, not normalised, shape `(n,)`.

        Q-Frame divides these logits by its temperature. Cosines would not do, since they all lie within a tenth of one
        another.
        """
        product: FloatArray = (features.astype(np.float64) * self._query_features(query)).sum(axis=1)
        return product

    def embeddings(self, features: NDArray[np.float32], query: str) -> tuple[NDArray[np.float64], FloatArray]:
        """Return the embeddings of the frames `(n, d)` and of the query `(d,)`, all of length 1."""
        images, text = features.astype(np.float64), self._query_features(query)
        images /= np.linalg.norm(images, axis=1, keepdims=True)
        return images, text / np.linalg.norm(text)

    def count_tokens(self, query: str) -> int:
        """Return the number of tokens of `query`, both ends included, before any cut."""
        return len(self._tokenizer(self.clean_text(query))["input_ids"])

    def is_cut(self, query: str) -> bool:
        """Return True if `query` has more tokens than the text tower has positions."""
        return self.count_tokens(query) > self._positions

    def text_inputs(self, texts: Sequence[str]) -> dict[str, torch.Tensor]:
        """Return the text tower's inputs for `texts`, without an attention mask if the tower attends to padding."""
        encoded = self._tokenizer(
            [self.clean_text(text) for text in texts],
            padding=self.text_padding,
            truncation=True,
            max_length=self._positions,
            return_tensors="pt",
        )
        return {"input_ids": encoded["input_ids"]} if self.text_padding == "max_length" else dict(encoded)

    def close(self) -> None:
        self._image_features = None
        super().close()

    def _embed_query(self, query: str) -> FloatArray:
        """The query's embedding `(d,)`, not normalised."""
        inputs = {name: part.to(self._torch_device) for name, part in self.text_inputs([checked_query(query)]).items()}
        embeddings = self._text_runner.run(
            lambda _: pooled_output(self._model.get_text_features(**inputs)), 1, dtype=torch.float32
        )
        features: FloatArray = embeddings[0].double().cpu().numpy()
        return features


class ClipScorer(DualEncoderScorer):
    """CLIP (Radford et al. 2021): ViT-B/32 as AKS used it, L/14, or any other."""

    name: ClassVar[str] = "clip"
    model_type: ClassVar[str] = "clip"
    default_checkpoint: ClassVar[str] = "clip-vit-base-patch32"
    checkpoints: ClassVar[Mapping[str, PublishedWeights]] = {
        "clip-vit-base-patch32": {
            "repository": "openai/clip-vit-base-patch32",
            "revision": "c237dc49a33fc61debc9276459120b7eac67e7ef",
            "gigabytes": 0.61,
            "licence": "MIT, its code's; none stated for the weights",
            "gmacs": {"image": 4.40881152},
            "note": "AKS; the main branch has no safetensors",
        },
        "clip-vit-large-patch14": {
            "repository": "openai/clip-vit-large-patch14",
            "revision": "32bd64288804d66eefd0ccbe215aa642df71cc41",
            "gigabytes": 1.71,
            "gmacs": {"image": 81.012768768},
        },
    }


class LongClipScorer(DualEncoderScorer):
    """Long-CLIP (Zhang et al. 2024): a CLIP whose text tower has 248 positions."""

    name: ClassVar[str] = "longclip"
    model_type: ClassVar[str] = "clip"
    default_checkpoint: ClassVar[str] = "longclip-gmp-vit-l-14"
    checkpoints: ClassVar[Mapping[str, PublishedWeights]] = {
        "longclip-gmp-vit-l-14": {
            "repository": "zer0int/LongCLIP-GmP-ViT-L-14",
            "revision": "6f0d363cbe2a68e3d3018c7161aecf40a918597a",
            "gigabytes": 1.71,
            "gmacs": {"image": 81.012768768},
            "note": "a fine-tune of Long-CLIP L; Q-Frame's own weights are published as a pickle only",
        },
    }
    least_positions: ClassVar[int] = 248


class Aimv2Scorer(DualEncoderScorer):
    """AIMv2 (Fini et al. 2025), the "lit" weights: the only ones published with a text tower.

    The text tower was trained with causal attention. For a single text without padding, transformers 5 uses a kernel
    without the causal mask, so that the text's embedding differs from the one in a batch. The plain ("eager") attention
    that is used here always applies the mask.
    """

    name: ClassVar[str] = "aimv2"
    model_type: ClassVar[str] = "aimv2"
    default_checkpoint: ClassVar[str] = "aimv2-large-patch14-224-lit"
    checkpoints: ClassVar[Mapping[str, PublishedWeights]] = {
        "aimv2-large-patch14-224-lit": {
            "repository": "apple/aimv2-large-patch14-224-lit",
            "revision": "main",
            "gigabytes": None,
            "note": "the only commit found in public code holds Apple's own format, which needs code from the hub",
        },
    }

    def load_model(self, located: Located) -> torch.nn.Module:
        """Return both towers, with the text tower's attention set to the kernel that respects the causal mask."""
        model = super().load_model(located)
        text_model: Any = model.text_model
        text_model.set_attn_implementation("eager")
        return model


class SiglipScorer(DualEncoderScorer):
    """SigLIP (Zhai et al. 2023): so400m or any other. SigLIP 2, whose text is prepared differently, is `siglip2`.

    Raises:
        EncoderError: also for a SigLIP 2 of fixed resolution, whose configuration says "siglip" too.
    """

    name: ClassVar[str] = "siglip"
    model_type: ClassVar[str] = "siglip"
    default_checkpoint: ClassVar[str] = "siglip-so400m-patch14-384"
    checkpoints: ClassVar[Mapping[str, PublishedWeights]] = {
        "siglip-so400m-patch14-384": {
            "repository": "google/siglip-so400m-patch14-384",
            "revision": "9fdffc58afc957d1a03a25b10dba0329ab15c2a3",
            "gigabytes": 3.51,
            "gmacs": {"image": 335.17322496},
        },
    }
    text_padding: ClassVar[str] = "max_length"

    def load_tokenizer(self, located: Located) -> PreTrainedTokenizerBase:
        """Return the tokenizer; raise EncoderError if it is not SigLIP's, as in a checkpoint of SigLIP 2."""
        tokenizer = super().load_tokenizer(located)
        if type(tokenizer).__name__ != "SiglipTokenizer":
            raise EncoderError(
                f"{located.identity}: its tokenizer is {type(tokenizer).__name__}, not SigLIP's; "
                "for a SigLIP 2 use the encoder siglip2"
            )
        return tokenizer


def _load_model(folder: Path, label: str) -> PreTrainedModel:
    """The transformers model that the configuration in `folder` names; `label` is for errors."""
    import transformers
    from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

    config = _config(folder)
    model_class: type[PreTrainedModel] = getattr(transformers, str(MODEL_MAPPING_NAMES[config.model_type]))
    return load_weights(model_class, folder, config=config, label=label)


def _config(folder: Path) -> PretrainedConfig:
    """The configuration in `folder`, without the network or code of the checkpoint."""
    from transformers import AutoConfig

    config: PretrainedConfig = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    return config


def load_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    """Return the tokenizer in `folder`, of the class that transformers finds for it."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)


def pooled_output(output: ImageOutput) -> torch.Tensor:
    """Return the embedding in `output`, which is the tensor itself before transformers 5 and holds it since then."""
    if isinstance(output, torch.Tensor):
        return output
    assert output.pooler_output is not None  # None only if pooling is switched off, which is never done here
    return output.pooler_output


# SigLIP 2 (Tschannen et al. 2025) was trained on lower-cased text: the authors' demo reads `lower | tok(length=64,
# model="gemma", bos="no", eos="sticky")`. Some published checkpoints name `GemmaTokenizer`, which keeps capitals, and
# transformers 5 follows that name for those of fixed resolution (model type "siglip"): "A Dog" then gets tokens the
# model never saw, and a plausible, wrong score. Here text is lower-cased before any tokenizer.


@dataclass(frozen=True, kw_only=True)
class NaflexRules(ImageRules):
    """Input of a NaFlex model: as many whole patches as fit, at about the frame's own aspect ratio.

    Args:
        patch: side of a patch in pixels.
        max_patches: limit on the number of patches of an image.
    """

    has_one_size: ClassVar[bool] = False

    patch: int
    max_patches: int

    def of_size(self, height: int, width: int) -> ImageRules:
        """Return the rules with the input size for frames of that size: whole patches, near their aspect ratio."""
        from transformers.models.siglip2.image_processing_siglip2 import get_image_size_for_max_num_patches

        rows, columns = get_image_size_for_max_num_patches(height, width, self.patch, self.max_patches)
        return replace(self, height=rows, width=columns)


class Siglip2Scorer(DualEncoderScorer):
    """SigLIP 2: so400m at 384 pixels, NaFlex, or any other.

    Text is lower-cased, padded on the right to all positions, and the padding is attended to, as in training. A
    query longer than the text tower loses its end, never the end token.

    Raises:
        EncoderError: also for a SigLIP (1), and for a tokenizer that adds a start token or no end token.
    """

    name: ClassVar[str] = "siglip2"
    model_type: ClassVar[tuple[str, ...]] = ("siglip", "siglip2")
    default_checkpoint: ClassVar[str] = "siglip2-so400m-patch14-384"
    checkpoints: ClassVar[Mapping[str, PublishedWeights]] = {
        "siglip2-so400m-patch14-384": {
            "repository": "google/siglip2-so400m-patch14-384",
            "revision": "e8e487298228002f3d8a82e0cd5c8ea9c567f57f",
            "gigabytes": 4.54,
            "gmacs": {"image": 335.17322496},
            "note": "commit as pinned by public code",
        },
        "siglip2-so400m-patch16-naflex": {
            "repository": "google/siglip2-so400m-patch16-naflex",
            "revision": "cc24074f717b612951c2dead130904ab9b65a81e",
            "gigabytes": 4.54,
            "note": "keeps the aspect of a frame; commit as pinned by public code",
        },
    }
    text_padding: ClassVar[str] = "max_length"

    def read_image_rules(self, folder: Path) -> ImageRules:
        """Return the input's rules: fixed size, or NaFlex if the checkpoint states a largest number of patches."""
        config = read_preprocessor(folder)
        if "max_num_patches" not in config:
            return read_image_rules(folder)
        patch, max_patches = int(config["patch_size"]), int(config["max_num_patches"])
        side = max(1, int(max_patches**0.5)) * patch
        return NaflexRules(
            height=side,
            width=side,
            resample=int(config.get("resample", 2)),
            mean=tuple(config["image_mean"]),
            std=tuple(config["image_std"]),
            patch=patch,
            max_patches=max_patches,
        )

    def image_features(self, pixels: torch.Tensor) -> ImageOutput:
        """Return the image tower's output; for a NaFlex checkpoint, pixels are first cut into patches."""
        if not isinstance(self.image_rules, NaflexRules):
            return super().image_features(pixels)
        patches, shape = as_patches(pixels, self.image_rules.patch)
        assert self._image_features is not None, "closed"
        # All frames of a video have one size, so none needs padding and the mask is all ones.
        return self._image_features(
            pixel_values=patches,
            pixel_attention_mask=torch.ones(patches.shape[:2], dtype=torch.int32, device=patches.device),
            spatial_shapes=torch.tensor([shape] * len(patches), device=patches.device),
        )

    def load_tokenizer(self, located: Located) -> PreTrainedTokenizerBase:
        """Return the tokenizer, set to pad on the right; raise EncoderError unless it adds only an end token."""
        tokenizer = super().load_tokenizer(located)
        if type(tokenizer).__name__ == "SiglipTokenizer":
            raise EncoderError(f"{located.identity}: has SigLIP's tokenizer, not SigLIP 2's; use the encoder siglip")
        tokenizer.padding_side = "right"
        ids = tokenizer("a")["input_ids"]
        if ids[-1] != tokenizer.eos_token_id or ids[0] == tokenizer.bos_token_id:
            raise EncoderError(f"{located.identity}: its tokenizer makes {ids} of 'a', no text with an end token alone")
        return tokenizer

    def clean_text(self, text: str) -> str:
        """Return `text` in lower case."""
        lowered: str = _lowercase().normalize_str(text)
        return lowered


def as_patches(pixels: torch.Tensor, patch: int) -> tuple[torch.Tensor, tuple[int, int]]:
    """Return patches `(n, rows * columns, patch * patch * 3)` of images `(n, 3, h, w)`, and (rows, columns)."""
    n, channels, height, width = pixels.shape
    rows, columns = height // patch, width // patch
    cut = pixels.reshape(n, channels, rows, patch, columns, patch).permute(0, 2, 4, 3, 5, 1)
    return cut.reshape(n, rows * columns, -1), (rows, columns)


@cache
def _lowercase() -> Lowercase:
    """The normaliser of transformers' own SigLIP 2 tokenizer; `str.lower` treats a Greek final sigma differently."""
    from tokenizers.normalizers import Lowercase

    return Lowercase()
