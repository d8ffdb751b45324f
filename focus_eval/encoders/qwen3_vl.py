"""Scores frames with Qwen3-VL-Embedding (one space for pictures and text) or Qwen3-VL-Reranker (yes or no).

Both are a Qwen3-VL whose last token is read: as an embedding, or as the odds of "yes" against "no". Prompts are the
authors', rendered by the checkpoint's own chat template. A frame keeps its aspect and takes at most `max_pixels`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from focus_eval.core.errors import EncoderError, InvalidInput
from focus_eval.core.types import FloatArray
from focus_eval.encoders.cost import qwen3_vl_gmacs
from focus_eval.encoders.dual_encoder import DualEncoderScorer
from focus_eval.encoders.preprocess import ImageRules, Resize, triple
from focus_eval.encoders.protocol import checked_query
from focus_eval.encoders.torch_scorer import EncoderOptions, MatchingScorer, Precision, revision_line
from focus_eval.encoders.weights import Located, load_weights, locate, weights_identity
from focus_eval.video.reader import Pixels

# A longer query loses its end. In the authors' code a whole prompt may have 8,192 tokens.
MOST_QUERY_TOKENS = 512
# 256 tokens a frame. The authors' default is 1,800, seven times the cost.
MAX_PIXELS = 256 * 32 * 32
LEAST_PATCHES = 16
# What a question is taken to have when the cost of reading it is stated.
QUERY_TOKENS = 64

_DOCUMENT = "Represent the user's input."
_QUERY = "Retrieve images or text relevant to the user's query."
_JUDGE = (
    "Judge whether the Document meets the requirements based on the Query and the Instruct provided. "
    'Note that the answer can only be "yes" or "no".'
)
_RETRIEVE = "Given a search query, retrieve relevant candidates that answer the query."
# From a query to what stands in the prompt.
Content = Callable[[str], list[dict[str, str]]]


@dataclass(frozen=True, kw_only=True)
class QwenRules(ImageRules):
    """Input of a Qwen-VL: about the frame's own aspect, in whole blocks of patches.

    Args:
        patch: side of a patch in pixels.
        merge: patches on a side of what becomes one token.
        max_pixels: most pixels of an image; the fewest are those of four tokens.
    """

    patch: int
    merge: int
    max_pixels: int

    def of_size(self, height: int, width: int) -> ImageRules:
        """Return the rules for frames of that size.

        Raises:
            InvalidInput: a frame more than 200 times as wide as high, or the other way round.
        """
        from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize

        least = LEAST_PATCHES * self.patch**2
        try:
            rows, columns = smart_resize(height, width, self.patch * self.merge, least, self.max_pixels)
        except ValueError as error:
            raise InvalidInput(f"a frame of {width}x{height}: {error}") from error
        return replace(self, height=rows, width=columns)


class Prompts:
    """Turns messages into tokens, as the checkpoint in `folder` states."""

    def __init__(self, folder: Path) -> None:
        from transformers import AutoTokenizer, Qwen2VLImageProcessorPil, Qwen3VLProcessor, Qwen3VLVideoProcessor

        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        self.images = Qwen2VLImageProcessorPil.from_pretrained(folder, local_files_only=True)
        self.processor = Qwen3VLProcessor.from_pretrained(
            folder,
            image_processor=self.images,
            video_processor=Qwen3VLVideoProcessor(),
            tokenizer=tokenizer,
            local_files_only=True,
        )
        self.tokenizer = tokenizer
        self._controls = sorted(set(tokenizer.all_special_tokens) | {self.processor.image_token})

    def rules(self, max_pixels: int) -> QwenRules:
        """Return size and colour of the input."""
        images = self.images
        least = LEAST_PATCHES * images.patch_size**2
        if max_pixels < least:
            raise InvalidInput(f"max_pixels must be at least {least}, got {max_pixels}")
        side = int(max_pixels**0.5) // (images.patch_size * images.merge_size) * images.patch_size * images.merge_size
        return QwenRules(
            height=side,
            width=side,
            resample=int(images.resample),
            mean=triple(images.image_mean),
            std=triple(images.image_std),
            patch=images.patch_size,
            merge=images.merge_size,
            max_pixels=max_pixels,
        )

    def ids(self, system: str, content: Content, *, query: str = "", n_image_tokens: int = 0) -> list[int]:
        """Return the tokens of a prompt with an answer begun; a query that is too long loses its end.

        Raises:
            InvalidInput: a query that holds a control token of the model.
        """
        if control := next((token for token in self._controls if token in query), ""):
            raise InvalidInput(f"the query holds {control!r}, a control token of the model: leave it out")
        text = self._text(system, content(query), n_image_tokens)
        ids = self._tokens(text)
        most = len(self._tokens(self._text(system, content(""), n_image_tokens))) + MOST_QUERY_TOKENS
        if len(ids) <= most:
            return ids
        after = len(self._tokens(text.rpartition(query)[2]))
        return ids[: most - after] + ids[-after:]

    def is_cut(self, system: str, content: Content, query: str) -> bool:
        """Return whether `ids` leaves the end of `query` out."""
        with_query, without = (len(self._tokens(self._text(system, content(part), 1))) for part in (query, ""))
        return with_query - without > MOST_QUERY_TOKENS

    def _text(self, system: str, content: list[dict[str, str]], n_image_tokens: int) -> str:
        said: Any = [{"role": "system", "content": [{"type": "text", "text": system}]}]
        said.append({"role": "user", "content": content})
        text = str(self.processor.apply_chat_template(said, add_generation_prompt=True, tokenize=False))
        return text.replace(self.processor.image_token, self.processor.image_token * n_image_tokens)

    def _tokens(self, text: str) -> list[int]:
        ids: list[int] = self.tokenizer(text)["input_ids"]
        return ids

    def batch(self, ids: list[int], n: int, device: torch.device) -> dict[str, torch.Tensor]:
        """Return the model's inputs for `n` prompts of the same tokens, each `(n, n_tokens)`."""
        tokens = torch.tensor([ids], device=device).expand(n, -1)
        image = tokens == self.processor.image_token_id
        return {"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "mm_token_type_ids": image.int()}


def as_patches(pixels: torch.Tensor, rules: QwenRules) -> tuple[torch.Tensor, torch.Tensor]:
    """Return patches of images `(n, 3, h, w)`, each twice in time, and their grids.

    Returns:
        `(n * rows * columns, 3 * 2 * patch * patch)`, in the order of the blocks that become tokens; and of each image
        (1, rows, columns), `(n, 3)`.
    """
    n, channels, height, width = pixels.shape
    p, m = rules.patch, rules.merge
    rows, columns = height // p, width // p
    cut = pixels.reshape(n, channels, rows // m, m, p, columns // m, m, p).permute(0, 2, 5, 3, 6, 1, 4, 7)
    twice = cut.unsqueeze(6).expand(*cut.shape[:6], 2, p, p)
    grid = torch.tensor([[1, rows, columns]] * n, device=pixels.device)
    return twice.reshape(n * rows * columns, -1), grid


class _Prompted:
    """What both scorers say of themselves before weights load, and that their frames differ in size."""

    model_type: ClassVar[str | tuple[str, ...]] = "qwen3_vl"
    default_checkpoint: ClassVar[str]
    default_instruction: ClassVar[str]

    @classmethod
    def revision_of(
        cls,
        *,
        checkpoint: str = "",
        revision: str | None = None,
        precision: str = "fp32",
        max_pixels: int = MAX_PIXELS,
        instruction: str | None = None,
        **_: Any,
    ) -> str:
        """Return the `revision` of an encoder with these options; loads no weights."""
        identity = weights_identity(checkpoint or cls.default_checkpoint, revision)
        asked = cls.default_instruction if instruction is None else instruction
        return revision_line(identity, precision=precision, **_settings(max_pixels, asked))

    @classmethod
    def gmacs_of(
        cls, *, checkpoint: str = "", revision: str | None = None, max_pixels: int = MAX_PIXELS, **_: Any
    ) -> dict[str, float]:
        """Return the `gmacs` of an encoder with these options; loads no weights."""
        located = locate(checkpoint or cls.default_checkpoint, revision=revision, model_type=cls.model_type)
        return cls.gmacs_by(Prompts(located.folder), located.folder, max_pixels)

    @staticmethod
    def gmacs_by(prompts: Prompts, folder: Path, max_pixels: int) -> dict[str, float]:
        """Return the `gmacs` of the checkpoint in `folder`."""
        raise NotImplementedError

    @property
    def fills_batches(self) -> bool:
        """Whether batches should be filled across videos: no, whose frames differ in size."""
        return False


class Qwen3VlEmbeddingScorer(_Prompted, DualEncoderScorer):
    """Qwen3-VL-Embedding (Li et al. 2026): the last token's state, of a picture or of a query, in one space.

    Args:
        max_pixels: most pixels of a frame.
        instruction: what a query is for, in the prompt.
    """

    name: ClassVar[str] = "qwen3_vl_embedding"
    default_checkpoint: ClassVar[str] = "qwen3-vl-embedding-2b"
    default_instruction: ClassVar[str] = _QUERY
    checkpoints: ClassVar[dict[str, dict[str, Any]]] = {
        "qwen3-vl-embedding-2b": {
            "repository": "Qwen/Qwen3-VL-Embedding-2B",
            "revision": "9f2f7e710d6d81056aa5c0a4f04764fec6bb7bda",
            "gigabytes": 4.26,
            "note": "commit as pinned by public code; held in fp32, twice its size",
        },
    }

    def __init__(
        self,
        *,
        checkpoint: str = "",
        revision: str | None = None,
        device: str = "auto",
        precision: Precision = "fp32",
        batch_size: int = 8,
        resize: Resize = "auto",
        max_pixels: int = MAX_PIXELS,
        instruction: str = _QUERY,
    ) -> None:
        self._max_pixels, self._instruction = max_pixels, instruction
        super().__init__(
            checkpoint=checkpoint,
            revision=revision,
            device=device,
            precision=precision,
            batch_size=batch_size,
            resize=resize,
        )
        self.revision = self._label(self.revision.split()[0], **_settings(max_pixels, instruction))
        self.gmacs = self._gmacs

    @staticmethod
    def gmacs_by(prompts: Prompts, folder: Path, max_pixels: int) -> dict[str, float]:
        """Return the `gmacs` of the checkpoint in `folder`: an image costs the tower and the prompt around it."""
        tokens = _most_tokens(prompts.rules(max_pixels))
        length = len(prompts.ids(_DOCUMENT, _picture, n_image_tokens=tokens))
        parts = qwen3_vl_gmacs(_config(folder), tokens, length)
        return {"image": parts["image"] + parts["fusion"]}

    @classmethod
    def gmacs_in(cls, folder: Path) -> dict[str, float]:
        """Return {}: the cost depends on `max_pixels` too."""
        return {}

    def load_model(self, located: Located) -> Any:
        """Return the checkpoint's model without a head for words."""
        from transformers import Qwen3VLModel

        self._prompts = Prompts(located.folder)
        self._gmacs = self.gmacs_by(self._prompts, located.folder, self._max_pixels)
        return _Named(_loaded(Qwen3VLModel, located))

    def load_tokenizer(self, located: Located) -> Any:
        """Return the checkpoint's tokenizer."""
        return self._prompts.tokenizer

    def read_image_rules(self, folder: Path) -> ImageRules:
        """Return size and colour of the input."""
        return self._prompts.rules(self._max_pixels)

    def count_positions(self, model: Any) -> int:
        """Return how many tokens of a query are read."""
        return MOST_QUERY_TOKENS

    def rules_for(self, height: int, width: int) -> ImageRules:
        """Return the input's size and colour for frames of that size."""
        return _rules(self).of_size(height, width)

    def image_features(self, pixels: torch.Tensor) -> torch.Tensor:
        """Return embeddings of pixel values `(n, 3, height, width)`, not normalised, `(n, d)`."""
        patches, grid = as_patches(pixels, _rules(self))
        ids = self._prompts.ids(_DOCUMENT, _picture, n_image_tokens=_n_tokens(grid, _rules(self)))
        inputs = self._prompts.batch(ids, len(pixels), pixels.device)
        states = self._model.model(**inputs, pixel_values=patches, image_grid_thw=grid).last_hidden_state
        last: torch.Tensor = states[:, -1]
        return last

    def is_cut(self, query: str) -> bool:
        """Return whether the model reads only the start of `query`."""
        return self._prompts.is_cut(self._instruction, _text, query)

    def text_inputs(self, texts: Any) -> dict[str, torch.Tensor]:
        """Return the model's inputs for one text."""
        (query,) = texts
        ids = self._prompts.ids(self._instruction, _text, query=query)
        return {"input_ids": torch.tensor([ids]), "attention_mask": torch.ones(1, len(ids), dtype=torch.long)}


class Qwen3VlRerankerScorer(_Prompted, MatchingScorer):
    """Qwen3-VL-Reranker (Li et al. 2026): the probability of "yes" when asked whether a frame meets the query.

    The image tower runs once a frame; the language model once a frame and query.

    Args:
        checkpoint, revision: as in `DualEncoderScorer`.
        max_pixels: most pixels of a frame.
        instruction: what is asked of a frame, in the prompt.
    """

    name: ClassVar[str] = "qwen3_vl_reranker"
    default_checkpoint: ClassVar[str] = "qwen3-vl-reranker-2b"
    default_instruction: ClassVar[str] = _RETRIEVE
    checkpoints: ClassVar[dict[str, dict[str, Any]]] = {
        "qwen3-vl-reranker-2b": {
            "repository": "Qwen/Qwen3-VL-Reranker-2B",
            "revision": "4bd860ac4f15ad1897a214615cccc700f8f71818",
            "gigabytes": 4.26,
            "note": "commit as pinned by public code; held in fp32, twice its size",
        },
    }

    def __init__(
        self,
        *,
        checkpoint: str = "",
        revision: str | None = None,
        device: str = "auto",
        precision: Precision = "fp32",
        batch_size: int = 8,
        resize: Resize = "auto",
        max_pixels: int = MAX_PIXELS,
        instruction: str = _RETRIEVE,
    ) -> None:
        from transformers import Qwen3VLForConditionalGeneration

        located = locate(checkpoint or self.default_checkpoint, revision=revision, model_type=self.model_type)
        self._prompts, self._instruction = Prompts(located.folder), instruction
        whole = _loaded(Qwen3VLForConditionalGeneration, located)
        yes, no = (_word(self._prompts, word, located) for word in ("yes", "no"))
        weights = whole.lm_head.weight
        options = EncoderOptions(device=device, precision=precision, batch_size=batch_size, resize=resize)
        super().__init__(whole.model, image_rules=self._prompts.rules(max_pixels), options=options)
        self._direction = (weights[yes] - weights[no]).detach().to(self._torch_device, torch.float32)
        self._text_runner = self._runner(batch_size)
        self.revision = self._label(located.identity, **_settings(max_pixels, instruction))
        self.gmacs = self.gmacs_by(self._prompts, located.folder, max_pixels)

    @staticmethod
    def gmacs_by(prompts: Prompts, folder: Path, max_pixels: int) -> dict[str, float]:
        """Return the `gmacs` of the checkpoint in `folder`: a frame costs the tower, a frame and query the rest."""
        tokens = _most_tokens(prompts.rules(max_pixels))
        length = len(prompts.ids(_JUDGE, partial(_judged, _RETRIEVE), n_image_tokens=tokens)) + QUERY_TOKENS
        return qwen3_vl_gmacs(_config(folder), tokens, length)

    def rules_for(self, height: int, width: int) -> ImageRules:
        """Return the input's size and colour for frames of that size."""
        return _rules(self).of_size(height, width)

    def queue_parts(self, parts: Sequence[Pixels]) -> Callable[[], torch.Tensor]:
        """Queue image tokens and their deeper layers side by side, `(n, rows, columns, (1 + layers) * width)`."""

        def tower(pixels: torch.Tensor) -> torch.Tensor:
            patches, grid = as_patches(pixels, _rules(self))
            seen = self._model.get_image_features(patches, grid, return_dict=True)
            layers = [torch.stack(list(part)) for part in (seen.pooler_output, *seen.deepstack_features)]
            rows, columns = (int(side) // _rules(self).merge for side in grid[0, 1:])
            return torch.cat(layers, dim=-1).reshape(len(pixels), rows, columns, -1)

        return self._queue(parts, tower, dtype=self._image_runner.half_dtype)

    def relevance(self, features: torch.Tensor, query: str) -> FloatArray:
        """Return the probability of "yes", shape `(n,)`."""
        odds = self.logits(features, query)
        probability: FloatArray = 1.0 / (1.0 + np.exp(-odds))
        return probability

    def logits(self, features: torch.Tensor, query: str) -> FloatArray:
        """Return the log-odds of "yes" against "no", shape `(n,)`."""
        asked = checked_query(query)
        if not len(features):
            return np.empty(0)
        rows, columns = features.shape[1:3]
        ids = self._prompts.ids(_JUDGE, self._content, query=asked, n_image_tokens=rows * columns)
        merge = _rules(self).merge
        grid = torch.tensor([[1, rows * merge, columns * merge]], device=self._torch_device)

        def match(states: torch.Tensor, part: slice) -> torch.Tensor:
            n = len(states)
            layers = torch.split(states.reshape(n, rows * columns, -1), self._direction.numel(), dim=-1)
            seen = _Seen(pooler_output=list(layers[0]), deepstack_features=[list(layer) for layer in layers[1:]])
            inputs = self._prompts.batch(ids, n, self._torch_device)
            output = self._model(**inputs, image_grid_thw=grid.expand(n, -1), mm_encoder_outputs={"image": seen})
            odds: torch.Tensor = output.last_hidden_state[:, -1].float() @ self._direction
            return odds

        found: FloatArray = self._matched(features, match).numpy()
        return found

    def is_cut(self, query: str) -> bool:
        """Return whether the model reads only the start of `query`."""
        return self._prompts.is_cut(_JUDGE, self._content, query)

    def _content(self, query: str) -> list[dict[str, str]]:
        return _judged(self._instruction, query)


@dataclass
class _Seen:
    """What transformers' image tower gives, as its model takes it back."""

    pooler_output: list[torch.Tensor]
    deepstack_features: list[list[torch.Tensor]]


class _Named(torch.nn.Module):
    """Gives the model the name under which `DualEncoderScorer` asks for text features."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model
        self.get_image_features = None

    def get_text_features(self, **inputs: torch.Tensor) -> torch.Tensor:
        """Return the last token's state, `(n, d)`."""
        state: torch.Tensor = self.model(**inputs).last_hidden_state[:, -1]
        return state


def _settings(max_pixels: int, instruction: str) -> dict[str, Any]:
    return {"max_pixels": max_pixels, "instruction": repr(instruction)}


def _loaded(kind: Any, located: Located) -> Any:
    return load_weights(kind, located.folder, config=_config(located.folder), where=located.identity)


def _config(folder: Path) -> Any:
    from transformers import Qwen3VLConfig

    return Qwen3VLConfig.from_pretrained(folder, local_files_only=True)


def _word(prompts: Prompts, word: str, located: Located) -> int:
    vocabulary = prompts.tokenizer.get_vocab()
    if word not in vocabulary:
        raise EncoderError(f"{located.identity}: its tokenizer has no token {word!r}; is it a reranker?")
    return int(vocabulary[word])


def _rules(scorer: Any) -> QwenRules:
    rules: QwenRules = scorer.image_rules
    return rules


def _picture(_: str = "") -> list[dict[str, str]]:
    return [{"type": "image"}]


def _text(query: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": query}]


def _judged(instruction: str, query: str) -> list[dict[str, str]]:
    parts = ("<Instruct>: " + instruction, "<Query>:", query, "\n<Document>:")
    return [{"type": "text", "text": part} for part in parts] + _picture()


def _n_tokens(grid: torch.Tensor, rules: QwenRules) -> int:
    return int(grid[0].prod()) // rules.merge**2


def _most_tokens(rules: QwenRules) -> int:
    return rules.max_pixels // (rules.patch * rules.merge) ** 2
