"""Scores frames with BLIP's image-text matching head, as LAVIS computes it.

Relevance is the softmax of the two matching logits, the "match" one (Li et al. 2022, "BLIP", section 3.2), on
transformers' `BlipForImageTextRetrieval`. The image tower does not know the question: `embed` gives its image
tokens, and the text encoder attends to them, for several questions of a video at once.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from types import MethodType
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import scaled_dot_product_attention

from focus_eval.core.errors import EncoderError
from focus_eval.core.types import FloatArray
from focus_eval.encoders import torch_scorer
from focus_eval.encoders.cost import blip_gmacs
from focus_eval.encoders.preprocess import ImageRules, Resize
from focus_eval.encoders.protocol import checked_query
from focus_eval.encoders.weights import load_weights, locate, weights_identity
from focus_eval.video.reader import Pixels

# Each field is one difference; `LAVIS` has them all, `TRANSFORMERS` none. tests/encoders/test_blip_parity.py takes away
# one at a time.

MAX_WORDS = 50
LAVIS_TOKENS = 35  # longest text with both ends

_BLANKED = re.compile(r"[.!\"()*#:;~]")
_BLANKS = re.compile(r"\s{2,}")


@dataclass(frozen=True, kw_only=True)
class BlipRules:
    """How text and image reach the model, and what its configuration must say.

    Args:
        first_token: id put in place of `[CLS]`; LAVIS' `[ENC]` is not in transformers' vocabulary. None: `[CLS]`.
        caption: clean the text as LAVIS' `blip_caption` does.
        max_tokens: longest text with both ends; None: no cut.
        text_heads: attention heads of the text encoder as trained; None: what `config.json` says (8 by default,
            and in the first published configurations, which load without a word and are wrong).
        vision_eps: epsilon of the image tower's layer norms as trained; None: what `config.json` says (1e-5).
        resize: "pil": width, then height, each by Pillow; "torchvision": transformers' image processor.
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
    r"""Return `text` as LAVIS' `blip_caption` leaves it.

    Lower case; each of `. ! " ( ) * # : ; ~` becomes a blank; runs of two or more blanks become one; the ends are
    stripped; the first 50 words, counted between single spaces, stay. `?`, `,`, `'` and `-` stay.
    """
    text = _BLANKS.sub(" ", _BLANKED.sub(" ", text.lower())).rstrip("\n").strip(" ")
    return " ".join(text.split(" ")[:MAX_WORDS])


# transformers computes BLIP's attention as two matrix products with a softmax between them. The same numbers come
# from torch's fused kernel. In cross-attention the questions of a frame lie along the query axis, so the frame's
# keys and values are projected once, whatever the number of questions. They do not depend on the question either: for
# the next question about the same frames a layer finds them in `image`.


def use_fused_attention(model: Any) -> None:
    """Replace the attention of a `BlipForImageTextRetrieval` in place; weights and names stay as they are."""
    for layer in model.vision_model.encoder.layers:
        layer.self_attn.forward = MethodType(_attend_image, layer.self_attn)
    for layer in model.text_encoder.encoder.layer:
        layer.attention.self.forward = MethodType(_attend_text, layer.attention.self)
        layer.crossattention.self.forward = MethodType(_attend_to_image, layer.crossattention.self)
        layer.crossattention.self.image = None


def _attend_image(module: Any, hidden_states: torch.Tensor, **_: Any) -> tuple[torch.Tensor, None]:
    n, length, width = hidden_states.shape
    mixed = module.qkv(hidden_states).view(n, length, 3, module.num_heads, width // module.num_heads)
    query, key, value = mixed.permute(2, 0, 3, 1, 4).unbind(0)
    context = scaled_dot_product_attention(query, key, value, scale=module.scale)
    return module.projection(context.transpose(1, 2).reshape(n, length, width)), None


def _attend_text(
    module: Any, hidden_states: torch.Tensor, attention_mask: torch.Tensor | None = None, **_: Any
) -> tuple[torch.Tensor, None]:
    rows, length, _width = hidden_states.shape
    projections = (module.query, module.key, module.value)
    query, key, value = (_heads(project(hidden_states), module.num_attention_heads) for project in projections)
    mask = attention_mask if attention_mask is None else attention_mask.to(query.dtype)
    context = scaled_dot_product_attention(query, key, value, attn_mask=mask)
    return context.transpose(1, 2).reshape(rows, length, module.all_head_size), None


def _attend_to_image(
    module: Any, hidden_states: torch.Tensor, *, encoder_hidden_states: torch.Tensor, **_: Any
) -> tuple[torch.Tensor, None]:
    """Attention to image tokens `(n, tokens, width)` of `(n * questions)` texts, frame by frame; every one is seen."""
    rows, length, width = hidden_states.shape
    queried = hidden_states.reshape(encoder_hidden_states.shape[0], -1, width)
    if module.image is None:
        module.image = tuple(
            _heads(project(encoder_hidden_states), module.num_attention_heads) for project in (module.key, module.value)
        )
    context = scaled_dot_product_attention(_heads(module.query(queried), module.num_attention_heads), *module.image)
    return context.transpose(1, 2).reshape(rows, length, module.all_head_size), None


def _heads(states: torch.Tensor, n_heads: int) -> torch.Tensor:
    n, length, width = states.shape
    return states.view(n, length, n_heads, width // n_heads).transpose(1, 2)


_TEXT_ROWS = 512  # frames x questions in one pass of the text encoder: about 1 GB of activations in fp32
_QUERIES_AT_ONCE = 64
_KEPT_BYTES = 2 << 30  # of keys and values: 32 frames of BLIP large take 1.36 GB in fp32
_KeysAndValues = list[tuple[torch.Tensor, torch.Tensor]]


class BlipScorer(torch_scorer.MatchingScorer):
    """BLIP-ITM: relevance is the probability that image and text match.

    Args:
        checkpoint: a known name, a repository of the model hub, or a folder; see `focus-eval doctor`.
        revision: commit, tag or branch of the repository; None: the known one.
        preprocess: "lavis", what FOCUS and AKS ran; "hf", transformers' own defaults of text and image.
        text_heads: attention heads of the text encoder as trained; "hf" takes what the configuration says.
        device, precision, batch_size, resize, compile: see `EncoderOptions`.

    Raises:
        MissingWeights, EncoderError: see `weights.locate`.
    """

    name: ClassVar[str] = "blip"
    model_type: ClassVar[str] = "blip"
    default_checkpoint: ClassVar[str] = "blip-itm-large-coco"
    checkpoints: ClassVar[dict[str, dict[str, Any]]] = {
        "blip-itm-large-coco": {
            "repository": "Salesforce/blip-itm-large-coco",
            "revision": "c0273606af96037e7a3b2fb0ff4ae9620b517be6",
            "gigabytes": 1.78,
            "note": "FOCUS and AKS (LAVIS blip_image_text_matching, large)",
        },
        "blip-itm-base-coco": {
            "repository": "Salesforce/blip-itm-base-coco",
            "revision": "refs/pr/5",
            "gigabytes": 0.90,
            "note": "the main branch has no safetensors",
        },
    }

    def __init__(
        self,
        *,
        checkpoint: str = default_checkpoint,
        revision: str | None = None,
        preprocess: Literal["lavis", "hf"] = "lavis",
        text_heads: int = 12,
        device: str = "auto",
        precision: torch_scorer.Precision = "fp32",
        batch_size: int = 32,
        resize: Resize = "auto",
        compile: bool = False,
    ) -> None:
        rules = _rules(preprocess, text_heads)
        options = torch_scorer.EncoderOptions(
            device=device, precision=precision, batch_size=batch_size, resize=resize, compile=compile
        )
        located = locate(checkpoint, revision=revision, model_type=self.model_type)
        self._setup(
            load_model(located.folder, rules, where=located.identity),
            load_tokenizer(located.folder),
            rules=rules,
            options=options,
            identity=located.identity,
            image_processor=_torchvision_processor(located.folder) if rules.resize == "torchvision" else None,
        )

    @classmethod
    def revision_of(
        cls,
        *,
        checkpoint: str = default_checkpoint,
        revision: str | None = None,
        preprocess: Literal["lavis", "hf"] = "lavis",
        text_heads: int = 12,
        precision: str = "fp32",
        compile: bool = False,
        **_: Any,
    ) -> str:
        """Return the `revision` of an encoder with these options; loads no weights."""
        settings = _settings(_rules(preprocess, text_heads))
        return torch_scorer.revision_line(
            weights_identity(checkpoint, revision), precision=precision, compile=compile, **settings
        )

    @classmethod
    def gmacs_of(
        cls,
        *,
        checkpoint: str = default_checkpoint,
        revision: str | None = None,
        preprocess: Literal["lavis", "hf"] = "lavis",
        text_heads: int = 12,
        **_: Any,
    ) -> dict[str, float]:
        """Return the `gmacs` of an encoder with these options; loads no weights."""
        rules = _rules(preprocess, text_heads)
        located = locate(checkpoint, revision=revision, model_type=cls.model_type)
        return blip_gmacs(_config(located.folder, rules), _longest(rules))

    @classmethod
    def of_parts(
        cls,
        model: Any,
        tokenizer: Any,
        *,
        identity: str,
        rules: BlipRules = LAVIS,
        options: torch_scorer.EncoderOptions | None = None,
        image_processor: Any = None,
    ) -> BlipScorer:
        """Return a scorer on a `BlipForImageTextRetrieval` made elsewhere, for benchmarks on random weights."""
        scorer = cls.__new__(cls)
        scorer._setup(
            model,
            tokenizer,
            rules=rules,
            options=options or torch_scorer.EncoderOptions(),
            identity=identity,
            image_processor=image_processor,
        )
        return scorer

    def _setup(
        self,
        model: Any,
        tokenizer: Any,
        *,
        rules: BlipRules,
        options: torch_scorer.EncoderOptions,
        identity: str,
        image_processor: Any,
    ) -> None:
        side = int(model.config.vision_config.image_size)
        super().__init__(model, image_rules=ImageRules(height=side, width=side), options=options)
        use_fused_attention(self._model)
        self.rules = rules
        self._tokenizer = tokenizer
        self._image_processor = image_processor
        self._vision = torch.compile(self._model.vision_model) if options.compile else self._model.vision_model
        self._text_runner = self._runner(_TEXT_ROWS)
        self._tokens = lru_cache(maxsize=4096)(self._tokens_on_device)
        self._kept: tuple[Any, dict[Any, _KeysAndValues]] = (None, {})
        self.revision = self._label(identity, **_settings(rules))
        self.gmacs = blip_gmacs(self._model.config, _longest(rules))

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
        groups = [checked[at : at + _QUERIES_AT_ONCE] for at in range(0, len(checked), _QUERIES_AT_ONCE)]
        return np.concatenate([self._match_probability(features, part) for part in groups])

    def text_inputs(self, texts: Sequence[str]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return token ids and mask of `texts`, each int64 `(n_texts, longest)`, as the text encoder gets them.

        Raises:
            EncoderError: without a cut, a text longer than the text encoder has positions.
        """
        cut = {"truncation": True, "max_length": self.rules.max_tokens} if self.rules.max_tokens else {}
        cleaned = [self._cleaned(text) for text in texts]
        encoded = self._tokenizer(cleaned, padding="longest", return_tensors="pt", **cut)
        ids = encoded["input_ids"].clone()
        positions = self._model.config.text_config.max_position_embeddings
        if ids.shape[1] > positions:
            raise EncoderError(f"a query has {ids.shape[1]} tokens, the encoder {positions}; use preprocess=lavis")
        if self.rules.first_token is not None:
            ids[:, 0] = self.rules.first_token
        return ids, encoded["attention_mask"]

    def count_tokens(self, query: str) -> int:
        """Return the tokens of `query` with both ends before the cut to 35 (of its first 50 words, if it has more)."""
        return len(self._tokenizer(self._cleaned(query))["input_ids"])

    def is_cut(self, query: str) -> bool:
        """Return whether the text encoder sees only the start of `query`."""
        return self.rules.max_tokens is not None and self.count_tokens(query) > self.rules.max_tokens

    def _cleaned(self, text: str) -> str:
        return clean_caption(text) if self.rules.caption else text

    def _tokens_on_device(self, queries: tuple[str, ...]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return ids and mask for all batches of frames; the text encoder itself reads the image in every layer."""
        ids, mask = self.text_inputs(queries)
        return ids.to(self._torch_device), mask.to(self._torch_device)

    def _match_probability(self, features: torch.Tensor, queries: Sequence[str]) -> NDArray[np.float64]:
        if not len(features):
            return np.empty((len(queries), 0))
        ids, mask = self._tokens(tuple(queries))
        kept = self._kept_of(features)
        found = self._matched(
            features, lambda states, part: self._match(states, ids, mask, part, kept), rows_per_frame=len(queries)
        )
        probability: NDArray[np.float64] = found.numpy().T
        return probability

    def close(self) -> None:
        """Release weights and device memory."""
        self._kept = (None, {})
        super().close()

    def _kept_of(self, features: torch.Tensor) -> dict[Any, _KeysAndValues]:
        """Return the keys and values of `features`, by part; those of the frames before are dropped."""
        # The very tensor is held, so that no other one can take its place in memory and pass for it.
        held, kept = self._kept
        if held is not features:
            kept = {}
            self._kept = (features, kept)
        return kept

    def _match(
        self,
        states: torch.Tensor,
        ids: torch.Tensor,
        mask: torch.Tensor,
        part: slice,
        kept: dict[Any, _KeysAndValues],
    ) -> torch.Tensor:
        """Return match probabilities `(n, n_queries)` in fp32."""
        n = len(states)
        # A batch that was not finite in half precision is computed again in fp32, with keys and values of its own.
        key = (part.start, part.stop, torch.is_autocast_enabled(states.device.type))
        readers = [layer.crossattention.self for layer in self._model.text_encoder.encoder.layer]
        known = kept.get(key)
        for at, reader in enumerate(readers):
            reader.image = known[at] if known else None
        try:
            hidden = self._model.text_encoder(
                input_ids=ids.repeat(n, 1), attention_mask=mask.repeat(n, 1), encoder_hidden_states=states
            ).last_hidden_state
            if known is None and len(readers) * sum(map(_n_bytes, readers[0].image)) <= _KEPT_BYTES:
                kept[key] = [reader.image for reader in readers]
        finally:
            for reader in readers:
                reader.image = None
        logits: torch.Tensor = self._model.itm_head(hidden[:, 0]).float()
        return logits.softmax(dim=-1)[:, 1].view(n, len(ids))

    def prepare(self, frames: Pixels) -> Pixels:
        """Return frames at the encoder's input size; unchanged for "hf", whose own processor resizes them."""
        return super().prepare(frames) if self._image_processor is None else frames

    def _pixel_values(self, *parts: Pixels) -> torch.Tensor:
        if self._image_processor is None:
            return super()._pixel_values(*parts)
        started = time.perf_counter()
        frames = [frame for part in parts for frame in part]
        pixels = self._image_processor(frames, return_tensors="pt", input_data_format="channels_last")
        values: torch.Tensor = pixels["pixel_values"].to(self._torch_device)
        self.preprocess_seconds += time.perf_counter() - started
        return values


def _n_bytes(values: torch.Tensor) -> int:
    return values.numel() * values.element_size()


def load_model(folder: Path, rules: BlipRules, *, where: str) -> Any:
    """Return the `BlipForImageTextRetrieval` in `folder`, configured as `rules` say, in fp32.

    Raises:
        EncoderError: weights of another model or damaged ones.
    """
    from transformers import BlipForImageTextRetrieval

    return load_weights(BlipForImageTextRetrieval, folder, config=_config(folder, rules), where=where)


def _config(folder: Path, rules: BlipRules) -> Any:
    from transformers import BlipConfig

    config: Any = BlipConfig.from_pretrained(folder, local_files_only=True)
    if rules.text_heads is not None:
        config.text_config.num_attention_heads = rules.text_heads
    if rules.vision_eps is not None:
        config.vision_config.layer_norm_eps = rules.vision_eps
    return config


def load_tokenizer(folder: Path) -> Any:
    from transformers import BertTokenizer

    return BertTokenizer.from_pretrained(folder, local_files_only=True)


def _rules(preprocess: str, text_heads: int) -> BlipRules:
    return BlipRules(text_heads=text_heads) if torch_scorer.checked_preprocess(preprocess) == "lavis" else TRANSFORMERS


def _longest(rules: BlipRules) -> int:
    """Return the tokens of the longest text; where none is cut, those of LAVIS, which few questions pass."""
    return rules.max_tokens or LAVIS_TOKENS


def _settings(rules: BlipRules) -> dict[str, Any]:
    """Return what to say of `rules` in the revision: a name, and the fields that differ from it."""
    if rules == TRANSFORMERS:
        return {"preprocess": "hf"}
    changed = {name: value for name, value in asdict(rules).items() if value != getattr(LAVIS, name)}
    return {"preprocess": "lavis", **changed}


def _torchvision_processor(folder: Path) -> Any:
    from transformers import BlipImageProcessor

    return BlipImageProcessor.from_pretrained(folder, local_files_only=True)
