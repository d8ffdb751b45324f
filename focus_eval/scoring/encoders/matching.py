"""What BLIP and BLIP-2 share: a text encoder that reads the tokens of an image and says whether both match."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch

from focus_eval.errors import InvalidInput
from focus_eval.scoring.encoders.precision import BatchRunner
from focus_eval.scoring.encoders.torch_scorer import TorchScorer
from focus_eval.video.reader import Pixels


class MatchingScorer(TorchScorer):
    """Base of the encoders whose features are image tokens, too many to store.

    A subclass sets `_vision`, the image tower, and `_text_runner`, which runs the text encoder.
    """

    stores_embeddings: ClassVar[bool] = False

    _vision: Any
    _text_runner: BatchRunner

    def embed(self, frames: Pixels) -> torch.Tensor:
        """Return image tokens `(n, tokens, width)` on the device: 577 x 1024 for BLIP large, 257 x 1408 for BLIP-2."""
        dtype = self._image_runner.half_dtype
        return self._encode(frames, lambda pixels: self._vision(pixel_values=pixels).last_hidden_state, dtype=dtype)

    def _matched(
        self, features: torch.Tensor, match: Callable[[torch.Tensor], torch.Tensor], *, rows_per_frame: int = 1
    ) -> torch.Tensor:
        """Return `match(image tokens)` of `features`, batch by batch, float64 on the CPU."""
        found = self._text_runner.run(
            lambda tokens: match(self._states(tokens)),
            len(features),
            load=lambda part: features[part].to(self._torch_device),
            dtype=torch.float32,
            rows_per_frame=rows_per_frame,
        )
        return found.double().cpu()

    def _states(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return image tokens in the type that is computed in: half ones may be computed on again in fp32."""
        return tokens if torch.is_autocast_enabled(self._torch_device.type) else tokens.float()


def checked_preprocess(preprocess: str) -> str:
    """Return `preprocess`.

    Raises:
        InvalidInput: neither lavis nor hf.
    """
    if preprocess not in ("lavis", "hf"):
        raise InvalidInput(f"preprocess {preprocess!r} must be lavis or hf")
    return preprocess
