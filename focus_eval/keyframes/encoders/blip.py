"""Scores frames with BLIP's image-text matching head, as LAVIS computes it.

Relevance is the softmax probability of "match" (Li et al. 2022, "BLIP", section 3.2), computed with transformers'
`BlipForImageTextRetrieval`. `embed` returns image tokens, which do not depend on the question; the text encoder attends
to them, for several questions of a video at once.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from types import MethodType
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import scaled_dot_product_attention

from focus_eval.core.errors import EncoderError, InvalidInput
from focus_eval.core.types import FloatArray, Pixels, checked_query
from focus_eval.keyframes.encoders.base import PublishedWeights
from focus_eval.keyframes.encoders.cost import blip_gmacs
from focus_eval.keyframes.encoders.preprocess import ImageRules
from focus_eval.keyframes.encoders.torch_scorer import EncoderOptions, MatchingScorer
from focus_eval.keyframes.encoders.weights import Located, load_weights

if TYPE_CHECKING:
    from transformers import BertTokenizer, BlipForImageTextRetrieval, BlipImageProcessor

# Each field of `BlipRules` is one difference between LAVIS and transformers. The test
# tests/keyframes/encoders/test_blip_parity.py switches off one difference at a time.

MAX_WORDS = 50
LAVIS_TOKENS = 35  # longest text in tokens, start and end token included

_REMOVED_CHARACTERS = re.compile(r"[.!\"()*#:;~]")
_BLANK_RUNS = re.compile(r"\s{2,}")


@dataclass(frozen=True, kw_only=True)
class BlipRules:
    """Preparation of text and image, and settings that override those of the model's configuration.

    Args:
        first_token: token id that replaces `[CLS]`, since LAVIS' `[ENC]` is not in transformers' vocabulary; None keeps
            `[CLS]`.
        caption: clean the text as LAVIS' `blip_caption` does.
        max_tokens: longest text in tokens, start and end token included; longer text is cut. None: no cut.
        text_heads: attention heads of the text encoder as trained; None: as in `config.json`. The first published
            configurations state 8, which is wrong and loads without a warning.
        vision_eps: epsilon of the image tower's layer norms as trained; None: as in `config.json` (1e-5).
        resize: "pil" resizes the width and then the height with Pillow; "torchvision" uses transformers' image
            processor.
    """

    first_token: int | None = 30523
    caption: bool = True
    max_tokens: int | None = LAVIS_TOKENS
    text_heads: int | None = 12
    vision_eps: float | None = 1e-6
    resize: Literal["pil", "torchvision"] = "pil"


LAVIS = BlipRules()
TRANSFORMERS = BlipRules(
    first_token=None, caption=False, max_tokens=None, text_heads=None, vision_eps=None, resize="torchvision"
)


def clean_caption(text: str) -> str:
    """Return `text` cleaned as LAVIS' `blip_caption` does.

    Lower case; each of `. ! " ( ) * # : ; ~` becomes a blank; runs of two or more blanks become one; the ends are
    stripped; the first 50 words, counted between single spaces, stay. `?`, `,`, `'` and `-` stay.
    """
    text = _BLANK_RUNS.sub(" ", _REMOVED_CHARACTERS.sub(" ", text.lower())).rstrip("\n").strip(" ")
    return " ".join(text.split(" ")[:MAX_WORDS])


# transformers computes BLIP's attention as two matrix products with a softmax between them. torch's fused kernel
# computes the same faster. In cross-attention all questions about a frame are placed along the query axis, so the
# frame's keys and values are projected once for all of them. Keys and values do not depend on the questions: a layer
# that still has them in its attribute `image` reuses them for the next question about the same frames.


def use_fused_attention(model: Any) -> None:
    """Replace the attention functions of a `BlipForImageTextRetrieval` in place by fused ones; keep the weights."""
    for layer in model.vision_model.encoder.layers:
        layer.self_attn.forward = MethodType(_attend_image, layer.self_attn)
    for layer in model.text_encoder.encoder.layer:
        layer.attention.self.forward = MethodType(_attend_text, layer.attention.self)
        layer.crossattention.self.forward = MethodType(_attend_to_image, layer.crossattention.self)
        layer.crossattention.self.image, layer.crossattention.self.keeps_image = None, False


def _attend_image(module: Any, hidden_states: torch.Tensor, **_: object) -> tuple[torch.Tensor, None]:
    """Fused self-attention of the image tower; replaces the layer's `forward`. Returns (states, no weights)."""
    n, length, width = hidden_states.shape
    mixed = module.qkv(hidden_states).view(n, length, 3, module.num_heads, width // module.num_heads)
    query, key, value = mixed.permute(2, 0, 3, 1, 4).unbind(0)
    context = scaled_dot_product_attention(query, key, value, scale=module.scale)
    return module.projection(context.transpose(1, 2).reshape(n, length, width)), None


def _attend_text(
    module: Any, hidden_states: torch.Tensor, attention_mask: torch.Tensor | None = None, **_: object
) -> tuple[torch.Tensor, None]:
    """Fused self-attention of the text encoder; replaces the layer's `forward`. Returns (states, no weights)."""
    rows, length, _width = hidden_states.shape
    projections = (module.query, module.key, module.value)
    query, key, value = (_heads(project(hidden_states), module.num_attention_heads) for project in projections)
    mask = attention_mask if attention_mask is None else attention_mask.to(query.dtype)
    context = scaled_dot_product_attention(query, key, value, attn_mask=mask)
    return context.transpose(1, 2).reshape(rows, length, module.all_head_size), None


def _attend_to_image(
    module: Any, hidden_states: torch.Tensor, *, encoder_hidden_states: torch.Tensor, **_: object
) -> tuple[torch.Tensor, None]:
    """Fused cross-attention of `(n * questions)` texts to the image tokens `(n, tokens, width)` of their frame.

    Uses the keys and values in `module.image`, if set, in place of computing them.
    """
    rows, length, width = hidden_states.shape
    queried = hidden_states.reshape(encoder_hidden_states.shape[0], -1, width)
    image = module.image
    if image is None:
        projections = (module.key, module.value)
        image = tuple(_heads(project(encoder_hidden_states), module.num_attention_heads) for project in projections)
        module.image = image if module.keeps_image else None
    context = scaled_dot_product_attention(_heads(module.query(queried), module.num_attention_heads), *image)
    return context.transpose(1, 2).reshape(rows, length, module.all_head_size), None


def _heads(states: torch.Tensor, n_heads: int) -> torch.Tensor:
    """States `(n, length, width)` split by attention head: `(n, n_heads, length, width / n_heads)`."""
    n, length, width = states.shape
    return states.view(n, length, n_heads, width // n_heads).transpose(1, 2)


# Limit on the number of frame-question pairs in one pass of the text encoder. In fp32, 512 frames of BLIP large take
# 1.2 GB of image tokens, 1.8 GB of keys and values in the layer that runs, and .3 GB of activations.
_MAX_TEXT_ROWS = 512
_MAX_QUERIES_AT_ONCE = 64
# Limit in bytes of the keys and values, summed over all layers, that are kept for the next question about the same
# frames. 32 frames of BLIP large take 1.36 GB in fp32. Above the limit, each layer computes its keys and values for
# every pass and drops them after use.
_MAX_KEPT_BYTES = 2 << 30


@dataclass
class _ImageKeys:
    """Cache of the keys and values that the text layers computed from the image tokens `features`, by frame range."""

    features: torch.Tensor
    by_part: dict[object, list[tuple[torch.Tensor, torch.Tensor]]] = field(default_factory=dict)
    n_bytes: int = 0


@dataclass(frozen=True, kw_only=True)
class BlipOptions(EncoderOptions):
    """Options of BLIP.

    Args:
        preprocess: "lavis", as FOCUS and AKS ran it; "hf", transformers' own defaults of text and image.
        text_heads: attention heads of the text encoder as trained; "hf" reads them from the configuration.
    """

    preprocess: Literal["lavis", "hf"] = "lavis"
    text_heads: int = 12

    def __post_init__(self) -> None:
        """Raise InvalidInput for another `preprocess` than lavis or hf."""
        super().__post_init__()
        if self.preprocess not in ("lavis", "hf"):
            raise InvalidInput(f"preprocess {self.preprocess!r} must be lavis or hf")

    @property
    def rules(self) -> BlipRules:
        """The preparation that `preprocess` names."""
        return BlipRules(text_heads=self.text_heads) if self.preprocess == "lavis" else TRANSFORMERS


class BlipScorer(MatchingScorer):
    """BLIP-ITM: relevance is the probability that image and text match. Its options are those of `BlipOptions`.

    Raises:
        MissingWeights, EncoderError: see `weights.locate`.
    """

    name: ClassVar[str] = "blip"
    model_type: ClassVar[str] = "blip"
    default_checkpoint: ClassVar[str] = "blip-itm-large-coco"
    checkpoints: ClassVar[Mapping[str, PublishedWeights]] = {
        "blip-itm-large-coco": {
            "repository": "Salesforce/blip-itm-large-coco",
            "revision": "c0273606af96037e7a3b2fb0ff4ae9620b517be6",
            "gigabytes": 1.78,
            "gmacs": {"image": 191.065276416, "keys": 10.890510336, "fusion": 3.862980096},
            "note": "FOCUS and AKS (LAVIS blip_image_text_matching, large)",
        },
        "blip-itm-base-coco": {
            "repository": "Salesforce/blip-itm-base-coco",
            "revision": "refs/pr/5",
            "gigabytes": 0.90,
            "gmacs": {"image": 55.483582464, "keys": 8.167882752, "fusion": 3.862980096},
            "note": "the main branch has no safetensors",
        },
    }

    options_type: ClassVar[type[EncoderOptions]] = BlipOptions

    options: BlipOptions

    def load_model(self, located: Located) -> torch.nn.Module:
        """Return the checkpoint's model, configured by the rules that the options name."""
        self.rules = self.options.rules
        return load_model(located.folder, self.rules, label=located.identity)

    def read_image_rules(self, folder: Path) -> ImageRules:
        """Return the square input size that the model's configuration states."""
        side = int(_config(folder, self.rules).vision_config.image_size)
        return ImageRules(height=side, width=side)

    def load_text(self, located: Located) -> None:
        """Load the tokenizer and, if the rules resize frames with it, transformers' image processor."""
        image_processor = None
        if self.rules.resize == "torchvision":
            from transformers import BlipImageProcessor

            image_processor = BlipImageProcessor.from_pretrained(located.folder, local_files_only=True)
        self._set_up(load_tokenizer(located.folder), image_processor)

    @classmethod
    def settings(cls, options: BlipOptions) -> dict[str, object]:
        """Return what `revision` says of the preparation: the preset, and the rules that differ from the preset."""
        rules = options.rules
        if rules == TRANSFORMERS:
            return {"preprocess": "hf"}
        changed = {name: value for name, value in asdict(rules).items() if value != getattr(LAVIS, name)}
        return {"preprocess": "lavis", **changed}

    @classmethod
    def gmacs_in(cls, folder: Path, options: BlipOptions) -> dict[str, float]:
        """Return 10^9 multiply-adds by part, for the longest text that the rules allow."""
        # If the rules do not cut text, assume the LAVIS limit: few questions are longer.
        return blip_gmacs(_config(folder, options.rules), options.rules.max_tokens or LAVIS_TOKENS)

    def _set_up(self, tokenizer: BertTokenizer, image_processor: BlipImageProcessor | None) -> None:
        """Make the loaded model ready: fused attention, the optional compiled image tower, text batches and caches."""
        use_fused_attention(self._model)
        self._tokenizer = tokenizer
        self._image_processor = image_processor
        self._vision = torch.compile(self._model.vision_model) if self.options.compile else self._model.vision_model
        self._text_runner = self._runner(_MAX_TEXT_ROWS)
        self._tokens = lru_cache(maxsize=4096)(self._tokens_on_device)
        self._keys: _ImageKeys | None = None

    def relevance(self, features: torch.Tensor, query: str) -> FloatArray:
        """Return the probability of a match, shape `(n,)`."""
        relevance: FloatArray = self.relevance_many(features, [query])[0]
        return relevance

    def relevance_many(self, features: torch.Tensor, queries: Sequence[str]) -> NDArray[np.float64]:
        """Return the probability of a match of each query with each frame, shape `(n_queries, n)`.

        The queries go through the text encoder as one padded batch per frame; the frame's keys and values are
        projected once for all of them. Equal to one query at a time within 1e-5 in fp32.
        """
        checked = [checked_query(query) for query in queries]
        groups = [checked[at : at + _MAX_QUERIES_AT_ONCE] for at in range(0, len(checked), _MAX_QUERIES_AT_ONCE)]
        return np.concatenate([self._match_probability(features, part) for part in groups])

    def text_inputs(self, texts: Sequence[str]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return token ids and mask of `texts`, each int64 `(n_texts, longest)`, as the text encoder gets them.

        Raises:
            EncoderError: without `max_tokens`, a text longer than the text encoder has positions.
        """
        truncation = {"truncation": True, "max_length": self.rules.max_tokens} if self.rules.max_tokens else {}
        cleaned = [self._clean_text(text) for text in texts]
        encoded = self._tokenizer(cleaned, padding="longest", return_tensors="pt", **truncation)
        ids = encoded["input_ids"].clone()
        positions = self._model.config.text_config.max_position_embeddings
        if ids.shape[1] > positions:
            raise EncoderError(f"a query has {ids.shape[1]} tokens, the encoder {positions}; use preprocess=lavis")
        if self.rules.first_token is not None:  # in place of [CLS], as the original does
            ids[:, 0] = self.rules.first_token
        return ids, encoded["attention_mask"]

    def count_tokens(self, query: str) -> int:
        """Return the number of tokens of the cleaned `query`, both ends included, before the cut to `max_tokens`."""
        return len(self._tokenizer(self._clean_text(query))["input_ids"])

    def is_cut(self, query: str) -> bool:
        """Return True if the cleaned `query` has more tokens than the rules allow."""
        return self.rules.max_tokens is not None and self.count_tokens(query) > self.rules.max_tokens

    def _clean_text(self, text: str) -> str:
        """`text` as LAVIS cleans captions if the rules say so, else unchanged."""
        return clean_caption(text) if self.rules.caption else text

    def _tokens_on_device(self, queries: tuple[str, ...]) -> tuple[torch.Tensor, torch.Tensor]:
        """Token ids and mask on the device; cached, so that all batches of frames share them."""
        ids, mask = self.text_inputs(queries)
        return ids.to(self._torch_device), mask.to(self._torch_device)

    def _match_probability(self, features: torch.Tensor, queries: Sequence[str]) -> NDArray[np.float64]:
        """Return the probability of a match, `(n_queries, n)`, of `queries` with embedded frames.

        Keys and values of the image tokens are kept for the next call with the same `features`.
        """
        if not len(features):
            return np.empty((len(queries), 0))
        ids, mask = self._tokens(tuple(queries))
        # Keep and compare the tensor itself, not its id: the id of a freed tensor could be that of a new one.
        keys = self._keys
        if keys is None or keys.features is not features:
            keys = self._keys = _ImageKeys(features)
        probabilities = self._match_in_batches(
            features, lambda states, part: self._match(states, ids, mask, part, keys), rows_per_frame=len(queries)
        )
        probability: NDArray[np.float64] = probabilities.numpy().T
        return probability

    def close(self) -> None:
        self._keys = None
        self._tokens.cache_clear()
        super().close()

    def _match(
        self, states: torch.Tensor, ids: torch.Tensor, mask: torch.Tensor, part: slice, keys: _ImageKeys
    ) -> torch.Tensor:
        """Return match probabilities `(n, n_queries)`, fp32, of the image tokens `states` of the frames `part`.

        The text layers take the keys and values of these frames from `keys`. If they are not there, the layers compute
        them and store them in `keys`, up to `_MAX_KEPT_BYTES`.
        """
        n, n_tokens, _ = states.shape
        device = states.device.type
        is_autocast = torch.is_autocast_enabled(device)
        # The precision is part of the key: a batch that is not finite in half precision is computed again in fp32 and
        # must not reuse its half-precision keys and values.
        key = (part.start, part.stop, is_autocast)
        readers = [layer.crossattention.self for layer in self._model.text_encoder.encoder.layer]
        stored = keys.by_part.get(key)
        dtype = torch.get_autocast_dtype(device) if is_autocast else states.dtype
        n_bytes = len(readers) * 2 * n * n_tokens * int(readers[0].all_head_size) * dtype.itemsize
        keeps = stored is None and keys.n_bytes + n_bytes <= _MAX_KEPT_BYTES
        for at, reader in enumerate(readers):
            reader.image, reader.keeps_image = stored[at] if stored else None, keeps
        try:
            hidden = self._model.text_encoder(
                input_ids=ids.repeat(n, 1), attention_mask=mask.repeat(n, 1), encoder_hidden_states=states
            ).last_hidden_state
            if keeps:
                keys.by_part[key] = [reader.image for reader in readers]
                keys.n_bytes += n_bytes
        finally:
            for reader in readers:
                reader.image = None
        logits: torch.Tensor = self._model.itm_head(hidden[:, 0]).float()
        return logits.softmax(dim=-1)[:, 1].view(n, len(ids))

    def prepare(self, frames: Pixels) -> Pixels:
        """Return frames at the encoder's input size; unchanged for "hf", whose own processor resizes them."""
        return super().prepare(frames) if self._image_processor is None else frames

    def _pixel_values(self, *parts: Pixels) -> torch.Tensor:
        """Fp32 pixel values on the device; for "hf" by transformers' own image processor, frame by frame."""
        if self._image_processor is None:
            return super()._pixel_values(*parts)
        started = time.perf_counter()
        frames = [frame for part in parts for frame in part]
        pixels = self._image_processor(frames, return_tensors="pt", input_data_format="channels_last")
        values: torch.Tensor = pixels["pixel_values"].to(self._torch_device)
        self.preprocess_seconds += time.perf_counter() - started
        return values


def load_model(folder: Path, rules: BlipRules, *, label: str) -> BlipForImageTextRetrieval:
    """Return the `BlipForImageTextRetrieval` in `folder`, configured by `rules`, in fp32.

    Raises:
        EncoderError: weights of another model or damaged ones.
    """
    from transformers import BlipForImageTextRetrieval

    return load_weights(BlipForImageTextRetrieval, folder, config=_config(folder, rules), label=label)


def _config(folder: Path, rules: BlipRules) -> Any:
    """The checkpoint's configuration with the attention heads and epsilon that the rules set."""
    from transformers import BlipConfig

    config: Any = BlipConfig.from_pretrained(folder, local_files_only=True)
    if rules.text_heads is not None:
        config.text_config.num_attention_heads = rules.text_heads
    if rules.vision_eps is not None:
        config.vision_config.layer_norm_eps = rules.vision_eps
    return config


def load_tokenizer(folder: Path) -> BertTokenizer:
    """Return BERT's tokenizer from the checkpoint in `folder`, without the network."""
    from transformers import BertTokenizer

    tokenizer: BertTokenizer = BertTokenizer.from_pretrained(folder, local_files_only=True)
    return tokenizer
