"""Scores frames in the joint space of CLIP, Long-CLIP, MetaCLIP 2, AIMv2 or SigLIP.

Relevance is `(1 + cosine) / 2` of the two embeddings: monotone, in [0, 1], the same for every encoder, so that
0.5 means "orthogonal". The raw cosine and the raw dot product are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from focus_eval.errors import EncoderError
from focus_eval.scoring.encoders.checkpoints import Located, load_weights, locate
from focus_eval.scoring.encoders.precision import Precision
from focus_eval.scoring.encoders.preprocess import ImageRules, Resize, read_image_rules
from focus_eval.scoring.encoders.torch_scorer import EncoderOptions, TorchScorer
from focus_eval.scoring.scorer import checked_query
from focus_eval.types import FloatArray
from focus_eval.video.reader import Pixels


class DualEncoderScorer(TorchScorer):
    """Base of the encoders with an image tower and a text tower that meet in one space.

    Images are resized and cut as `preprocessor_config.json` says, by Pillow, as transformers did when the published
    runs were made; text is tokenized by the checkpoint's own tokenizer and cut at the text tower's positions.

    Args:
        checkpoint: a known name, a repository of the model hub, or a folder; see `focus-eval doctor`.
        revision: commit, tag or branch of the repository; None: the known one.
        device, precision, batch_size, resize, compile: see `EncoderOptions`.

    Raises:
        MissingWeights, EncoderError: see `checkpoints.locate`.
    """

    name: ClassVar[str]
    stores_embeddings: ClassVar[bool] = True
    model_type: ClassVar[str | tuple[str, ...]]
    default_checkpoint: ClassVar[str]
    # SigLIP was trained on text padded to full length, with the padding attended to; CLIP never saw padding.
    text_padding: ClassVar[str] = "longest"
    least_positions: ClassVar[int] = 1

    def __init__(
        self,
        *,
        checkpoint: str = "",
        revision: str | None = None,
        device: str = "auto",
        precision: Precision = "fp32",
        batch_size: int = 32,
        resize: Resize = "auto",
        compile: bool = False,
    ) -> None:
        located = locate(checkpoint or self.default_checkpoint, revision=revision, model_type=self.model_type)
        super().__init__(
            self.load_model(located),
            image_rules=self.read_image_rules(located.folder),
            options=EncoderOptions(
                device=device, precision=precision, batch_size=batch_size, resize=resize, compile=compile
            ),
        )
        self._positions = int(self._model.config.text_config.max_position_embeddings)
        if self._positions < self.least_positions:
            raise EncoderError(
                f"{located.identity}: {self._positions} text positions, {self.name!r} needs {self.least_positions}"
            )
        self._tokenizer = self.load_tokenizer(located)
        image_features = self._model.get_image_features
        self._image_features = torch.compile(image_features) if compile else image_features
        self._text_runner = self._runner(batch_size)
        self._text_features: dict[str, FloatArray] = {}
        self.revision = self._label(located.identity)

    def embed(self, frames: Pixels) -> NDArray[np.float32]:
        """Return image embeddings `(n, d)`, not normalised."""
        found = self._encode(frames, lambda pixels: pooled(self.image_features(pixels)), dtype=torch.float32)
        return found.cpu().numpy()

    def image_features(self, pixels: torch.Tensor) -> Any:
        """Return what the image tower gives for pixel values `(n, 3, height, width)`."""
        return self._image_features(pixel_values=pixels)

    def read_image_rules(self, folder: Path) -> ImageRules:
        """Return size and colour of the input as the checkpoint in `folder` states them."""
        return read_image_rules(folder)

    def load_model(self, located: Located) -> Any:
        """Return the checkpoint's model, both towers."""
        return _load_model(located.folder, located.identity)

    def load_tokenizer(self, located: Located) -> Any:
        """Return the checkpoint's tokenizer."""
        return load_tokenizer(located.folder)

    def cleaned(self, text: str) -> str:
        """Return `text` as the tokenizer gets it."""
        return text

    def relevance(self, features: NDArray[np.float32], query: str) -> FloatArray:
        """Return `(1 + cosine) / 2`, shape `(n,)`, in [0, 1]."""
        return (1.0 + self.cosine(features, query)) / 2.0

    def relevance_many(self, features: NDArray[np.float32], queries: Sequence[str]) -> NDArray[np.float64]:
        """Return `(1 + cosine) / 2` of each query with each frame, shape `(n_queries, n)`."""
        return np.stack([self.relevance(features, query) for query in queries])

    def cosine(self, features: NDArray[np.float32], query: str) -> FloatArray:
        """Return the cosine of the embeddings, shape `(n,)`, in [-1, 1]."""
        images, text = self.embeddings(features, query)
        # row by row: a matrix product may round differently with the number of rows
        cosine: FloatArray = np.clip((images * text).sum(axis=1), -1.0, 1.0)
        return cosine

    def logits(self, features: NDArray[np.float32], query: str) -> FloatArray:
        """Return the dot product of the embeddings as the towers give them, not normalised, shape `(n,)`.

        That is what Q-Frame divides by its temperature; cosines would all be within a tenth of each other.
        """
        product: FloatArray = (features.astype(np.float64) * self._query_features(query)).sum(axis=1)
        return product

    def embeddings(self, features: NDArray[np.float32], query: str) -> tuple[NDArray[np.float64], FloatArray]:
        """Return the embeddings of the frames `(n, d)` and of the query `(d,)`, all of length 1."""
        images, text = features.astype(np.float64), self._query_features(query)
        images /= np.linalg.norm(images, axis=1, keepdims=True)
        return images, text / np.linalg.norm(text)

    def count_tokens(self, query: str) -> int:
        """Return the tokens of `query` with both ends, before any cut."""
        return len(self._tokenizer(self.cleaned(query))["input_ids"])

    def is_cut(self, query: str) -> bool:
        """Return whether the text tower sees only the start of `query`."""
        return self.count_tokens(query) > self._positions

    def text_inputs(self, texts: Sequence[str]) -> dict[str, torch.Tensor]:
        """Return the tokenizer's output for `texts` as the text tower gets it; no mask where padding is attended to."""
        encoded = self._tokenizer(
            [self.cleaned(text) for text in texts],
            padding=self.text_padding,
            truncation=True,
            max_length=self._positions,
            return_tensors="pt",
        )
        return {"input_ids": encoded["input_ids"]} if self.text_padding == "max_length" else dict(encoded)

    def _query_features(self, query: str) -> FloatArray:
        """Return the query's embedding `(d,)`, not normalised; computed once."""
        if query not in self._text_features:
            inputs = {
                name: part.to(self._torch_device) for name, part in self.text_inputs([checked_query(query)]).items()
            }
            found = self._text_runner.run(
                lambda _: pooled(self._model.get_text_features(**inputs)), 1, dtype=torch.float32
            )
            self._text_features[query] = found[0].double().cpu().numpy()
        return self._text_features[query]


class ClipScorer(DualEncoderScorer):
    """CLIP (Radford et al. 2021): ViT-B/32 as AKS used it, L/14, or any other."""

    name: ClassVar[str] = "clip"
    model_type: ClassVar[str] = "clip"
    default_checkpoint: ClassVar[str] = "clip-vit-base-patch32"


class LongClipScorer(DualEncoderScorer):
    """Long-CLIP (Zhang et al. 2024): a CLIP whose text tower has 248 positions."""

    name: ClassVar[str] = "longclip"
    model_type: ClassVar[str] = "clip"
    default_checkpoint: ClassVar[str] = "longclip-gmp-vit-l-14"
    least_positions: ClassVar[int] = 248


class MetaClip2Scorer(DualEncoderScorer):
    """MetaCLIP 2 (Chuang et al. 2025): a CLIP trained on text of more than 300 languages."""

    name: ClassVar[str] = "metaclip2"
    model_type: ClassVar[str] = "metaclip_2"
    default_checkpoint: ClassVar[str] = "metaclip-2-worldwide-huge-quickgelu"


class Aimv2Scorer(DualEncoderScorer):
    """AIMv2 (Fini et al. 2025), the "lit" weights: the only ones published with a text tower.

    The text tower was trained with causal attention. transformers 5 leaves the mask of a single text without padding
    to a kernel that is then called as not causal, so that the same text has another embedding alone than in a batch;
    the text tower runs with plain ("eager") attention here, which always gets the mask.
    """

    name: ClassVar[str] = "aimv2"
    model_type: ClassVar[str] = "aimv2"
    default_checkpoint: ClassVar[str] = "aimv2-large-patch14-224-lit"

    def load_model(self, located: Located) -> Any:
        """Return the checkpoint's model, the text tower with plain attention."""
        model = super().load_model(located)
        model.text_model.set_attn_implementation("eager")
        return model


class SiglipScorer(DualEncoderScorer):
    """SigLIP (Zhai et al. 2023): so400m or any other. For SigLIP 2 see `siglip2`: its text is prepared differently.

    Raises:
        EncoderError: also for a SigLIP 2 of fixed resolution, whose configuration says "siglip" too.
    """

    name: ClassVar[str] = "siglip"
    model_type: ClassVar[str] = "siglip"
    default_checkpoint: ClassVar[str] = "siglip-so400m-patch14-384"
    text_padding: ClassVar[str] = "max_length"

    def load_tokenizer(self, located: Located) -> Any:
        """Return SigLIP's own tokenizer."""
        tokenizer = super().load_tokenizer(located)
        if type(tokenizer).__name__ != "SiglipTokenizer":
            raise EncoderError(
                f"{located.identity}: its tokenizer is {type(tokenizer).__name__}, not SigLIP's; "
                "for a SigLIP 2 use the encoder siglip2"
            )
        return tokenizer


_MODEL_CLASSES = {
    "clip": "CLIPModel",
    "metaclip_2": "MetaClip2Model",
    "aimv2": "Aimv2Model",
    "siglip": "SiglipModel",
    "siglip2": "Siglip2Model",
}


def _load_model(folder: Path, where: str) -> Any:
    import transformers

    config: Any = transformers.AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    model_class = getattr(transformers, _MODEL_CLASSES[config.model_type])
    return load_weights(model_class, folder, config=config, where=where)


def load_tokenizer(folder: Path) -> Any:
    """Return the tokenizer in `folder`, of the class that transformers finds for it."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)


def pooled(output: Any) -> torch.Tensor:
    """Return the embedding from what transformers gives: the tensor itself before version 5, an output object since."""
    pooled: torch.Tensor = getattr(output, "pooler_output", output)
    return pooled
