"""Scores frames with SigLIP 2, of fixed resolution or NaFlex, with the text as it was trained on.

SigLIP 2 (Tschannen et al. 2025) was trained on lower-cased text: the authors' demo reads
`lower | tok(length=64, model="gemma", bos="no", eos="sticky")`. Some published checkpoints name `GemmaTokenizer`, which
keeps capitals, and transformers 5 follows that name for those of fixed resolution (model type "siglip"): "A Dog" then
gets tokens the model never saw, and a plausible, wrong score. Here text is lower-cased before any tokenizer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import torch

from focus_eval.errors import EncoderError
from focus_eval.scoring.encoders.checkpoints import Located
from focus_eval.scoring.encoders.dual_encoder import DualEncoderScorer
from focus_eval.scoring.encoders.preprocess import ImageRules, read_image_rules, read_preprocessor


@dataclass(frozen=True, kw_only=True)
class NaflexRules(ImageRules):
    """Input of a NaFlex model: as many whole patches as fit, in about the frame's own aspect.

    Args:
        patch: side of a patch in pixels.
        max_patches: most patches of an image.
    """

    patch: int
    max_patches: int

    def of_size(self, height: int, width: int) -> ImageRules:
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
    text_padding: ClassVar[str] = "max_length"

    def read_image_rules(self, folder: Path) -> ImageRules:
        """Return size and colour of the input, with patches for a NaFlex checkpoint."""
        config = read_preprocessor(folder)
        if "max_num_patches" not in config:
            return read_image_rules(folder)
        patch, most = int(config["patch_size"]), int(config["max_num_patches"])
        side = max(1, int(most**0.5)) * patch
        return NaflexRules(
            height=side,
            width=side,
            resample=int(config.get("resample", 2)),
            mean=tuple(config["image_mean"]),
            std=tuple(config["image_std"]),
            patch=patch,
            max_patches=most,
        )

    @property
    def fills_batches(self) -> bool:
        """Whether batches should be filled across videos: not with NaFlex, whose inputs differ in size."""
        return super().fills_batches and not isinstance(self.image_rules, NaflexRules)

    def rules_for(self, height: int, width: int) -> ImageRules:
        """Return the input's size and colour for frames of that size."""
        rules = self.image_rules
        return rules.of_size(height, width) if isinstance(rules, NaflexRules) else rules

    def image_features(self, pixels: torch.Tensor) -> Any:
        """Return what the image tower gives for pixel values `(n, 3, height, width)`."""
        if not isinstance(self.image_rules, NaflexRules):
            return super().image_features(pixels)
        patches, shape = as_patches(pixels, self.image_rules.patch)
        # Frames of a video have one size, so that no patch is padding.
        return self._image_features(
            pixel_values=patches,
            pixel_attention_mask=torch.ones(patches.shape[:2], dtype=torch.int32, device=patches.device),
            spatial_shapes=torch.tensor([shape] * len(patches), device=patches.device),
        )

    def load_tokenizer(self, located: Located) -> Any:
        """Return the checkpoint's tokenizer, padding on the right."""
        tokenizer = super().load_tokenizer(located)
        if type(tokenizer).__name__ == "SiglipTokenizer":
            raise EncoderError(f"{located.identity}: has SigLIP's tokenizer, not SigLIP 2's; use the encoder siglip")
        tokenizer.padding_side = "right"
        ids = tokenizer("a")["input_ids"]
        if ids[-1] != tokenizer.eos_token_id or ids[0] == tokenizer.bos_token_id:
            raise EncoderError(f"{located.identity}: its tokenizer makes {ids} of 'a', no text with an end token alone")
        return tokenizer

    def cleaned(self, text: str) -> str:
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
def _lowercase() -> Any:
    """Return the normaliser that transformers' own SigLIP 2 tokenizer uses; str.lower differs at a final sigma."""
    from tokenizers.normalizers import Lowercase

    return Lowercase()
