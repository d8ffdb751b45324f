"""Scores frames with Qwen3-VL-Embedding (one space for pictures and text) or Qwen3-VL-Reranker (yes or no).

Both read the last token of a Qwen3-VL: as an embedding, or as the odds of "yes" against "no". Prompts are the authors',
rendered by the checkpoint's own chat template. A frame keeps its aspect ratio and has at most `max_pixels`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from focus_eval.core.errors import EncoderError, InvalidInput
from focus_eval.core.types import FloatArray, checked_query
from focus_eval.encoders.cost import qwen3_vl_gmacs
from focus_eval.encoders.dual_encoder import DualEncoderScorer
from focus_eval.encoders.preprocess import ImageRules, triple
from focus_eval.encoders.torch_scorer import EncoderOptions, MatchingScorer
from focus_eval.encoders.weights import Located, load_weights
from focus_eval.video.reader import Pixels

# A longer query loses its end. In the authors' code a whole prompt may have 8,192 tokens.
MAX_QUERY_TOKENS = 512
# 256 tokens a frame. The authors' default is 1,800, seven times the cost.
MAX_PIXELS = 256 * 32 * 32
MIN_PATCHES = 16
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
    """Input of a Qwen-VL: whole blocks of patches at about the frame's own aspect ratio.

    Args:
        patch: side of a patch in pixels.
        merge: side of a block, in patches; a block becomes one token.
        max_pixels: most pixels of an image; the fewest are those of four tokens.
    """

    has_one_size: ClassVar[bool] = False

    patch: int
    merge: int
    max_pixels: int

    def of_size(self, height: int, width: int) -> ImageRules:
        """Return the rules for frames of that size, at about their aspect ratio.

        Raises:
            InvalidInput: a frame more than 200 times as wide as high, or as high as wide.
        """
        from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize

        min_pixels = MIN_PATCHES * self.patch**2
        try:
            rows, columns = smart_resize(height, width, self.patch * self.merge, min_pixels, self.max_pixels)
        except ValueError as error:
            raise InvalidInput(f"a frame of {width}x{height}: {error}") from error
        return replace(self, height=rows, width=columns)


class Prompts:
    """Turn prompts into tokens with the tokenizer and chat template of the checkpoint in `folder`."""

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
        images = self.images
        min_pixels = MIN_PATCHES * images.patch_size**2
        if max_pixels < min_pixels:
            raise InvalidInput(f"max_pixels must be at least {min_pixels}, got {max_pixels}")
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
        """Return the tokens of a prompt up to the start of the answer; a query that is too long loses its end.

        Raises:
            InvalidInput: a query that holds a control token of the model.
        """
        if control := next((token for token in self._controls if token in query), ""):
            raise InvalidInput(f"the query holds {control!r}, a control token of the model: leave it out")
        text = self._text(system, content(query), n_image_tokens)
        ids = self._tokens(text)
        max_tokens = len(self._tokens(self._text(system, content(""), n_image_tokens))) + MAX_QUERY_TOKENS
        if len(ids) <= max_tokens:
            return ids
        n_tail_tokens = len(self._tokens(text.rpartition(query)[2]))
        return ids[: max_tokens - n_tail_tokens] + ids[-n_tail_tokens:]

    def is_cut(self, system: str, content: Content, query: str) -> bool:
        """Return True if `ids` cuts the end of `query`."""
        n_with_query, n_without_query = (
            len(self._tokens(self._text(system, content(part), 1))) for part in (query, "")
        )
        return n_with_query - n_without_query > MAX_QUERY_TOKENS

    def _text(self, system: str, content: list[dict[str, str]], n_image_tokens: int) -> str:
        messages: Any = [{"role": "system", "content": [{"type": "text", "text": system}]}]
        messages.append({"role": "user", "content": content})
        text = str(self.processor.apply_chat_template(messages, add_generation_prompt=True, tokenize=False))
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
    """Return patches of images `(n, 3, h, w)`, each doubled in time, and the grid of each image.

    Returns:
        `(n * rows * columns, 3 * 2 * patch * patch)`, in the order of the blocks that become tokens; and
        (1, rows, columns) of each image, `(n, 3)`.
    """
    n, channels, height, width = pixels.shape
    p, m = rules.patch, rules.merge
    rows, columns = height // p, width // p
    cut = pixels.reshape(n, channels, rows // m, m, p, columns // m, m, p).permute(0, 2, 5, 3, 6, 1, 4, 7)
    doubled = cut.unsqueeze(6).expand(*cut.shape[:6], 2, p, p)
    grid = torch.tensor([[1, rows, columns]] * n, device=pixels.device)
    return doubled.reshape(n * rows * columns, -1), grid


@dataclass(frozen=True, kw_only=True)
class QwenOptions(EncoderOptions):
    """Options of Qwen3-VL-Embedding.

    Args:
        max_pixels: most pixels of a frame.
        instruction: the task, as the prompt states it.
    """

    batch_size: int = 8
    compile: bool = field(default=False, init=False)  # no option: inputs differ in size
    max_pixels: int = MAX_PIXELS
    instruction: str = _QUERY


@dataclass(frozen=True, kw_only=True)
class RerankerOptions(QwenOptions):
    """Options of Qwen3-VL-Reranker: those of the embedding model, with another default instruction."""

    instruction: str = _RETRIEVE


class Qwen3VlEmbeddingScorer(DualEncoderScorer):
    """Qwen3-VL-Embedding (Li et al. 2026): the last token's state, of a picture or of a query, in one space.

    Its options are those of `QwenOptions`.
    """

    name: ClassVar[str] = "qwen3_vl_embedding"
    model_type: ClassVar[str] = "qwen3_vl"
    default_checkpoint: ClassVar[str] = "qwen3-vl-embedding-2b"
    checkpoints: ClassVar[dict[str, dict[str, Any]]] = {
        "qwen3-vl-embedding-2b": {
            "repository": "Qwen/Qwen3-VL-Embedding-2B",
            "revision": "9f2f7e710d6d81056aa5c0a4f04764fec6bb7bda",
            "gigabytes": 4.26,
            "note": "commit as pinned by public code; held in fp32, twice its size",
        },
    }

    options_type: ClassVar[type[EncoderOptions]] = QwenOptions

    options: QwenOptions
    image_rules: QwenRules

    @classmethod
    def settings(cls, options: QwenOptions) -> dict[str, Any]:
        return _settings(options)

    @classmethod
    def gmacs_in(cls, folder: Path, options: QwenOptions) -> dict[str, float]:
        """Return the `gmacs` of the checkpoint in `folder`: an image costs the tower and the prompt around it."""
        prompts = Prompts(folder)
        tokens = _max_image_tokens(prompts.rules(options.max_pixels))
        length = len(prompts.ids(_DOCUMENT, _image_content, n_image_tokens=tokens))
        parts = qwen3_vl_gmacs(_config(folder), tokens, length)
        return {"image": parts["image"] + parts["fusion"]}

    def load_model(self, located: Located) -> Any:
        """Return the checkpoint's model without its language-model head."""
        from transformers import Qwen3VLModel

        self._prompts = Prompts(located.folder)
        return _LastTokenModel(_load_model(Qwen3VLModel, located))

    def load_tokenizer(self, located: Located) -> Any:
        return self._prompts.tokenizer

    def read_image_rules(self, folder: Path) -> ImageRules:
        return self._prompts.rules(self.options.max_pixels)

    def count_positions(self, model: Any) -> int:
        return MAX_QUERY_TOKENS

    def image_features(self, pixels: torch.Tensor) -> torch.Tensor:
        """Return embeddings of pixel values `(n, 3, height, width)`, not normalised, `(n, d)`."""
        patches, grid = as_patches(pixels, self.image_rules)
        ids = self._prompts.ids(_DOCUMENT, _image_content, n_image_tokens=_n_tokens(grid, self.image_rules))
        inputs = self._prompts.batch(ids, len(pixels), pixels.device)
        states = self._model.model(**inputs, pixel_values=patches, image_grid_thw=grid).last_hidden_state
        last: torch.Tensor = states[:, -1]
        return last

    def is_cut(self, query: str) -> bool:
        return self._prompts.is_cut(self.options.instruction, _text, query)

    def text_inputs(self, texts: Any) -> dict[str, torch.Tensor]:
        """Return the model's inputs for one text, each `(1, n_tokens)`."""
        (query,) = texts
        ids = self._prompts.ids(self.options.instruction, _text, query=query)
        return {"input_ids": torch.tensor([ids]), "attention_mask": torch.ones(1, len(ids), dtype=torch.long)}


class Qwen3VlRerankerScorer(MatchingScorer):
    """Qwen3-VL-Reranker (Li et al. 2026): the probability of "yes" to the question whether a frame meets the query.

    The image tower runs once a frame, the language model once a frame and query. Its options are those of
    `RerankerOptions`.
    """

    name: ClassVar[str] = "qwen3_vl_reranker"
    model_type: ClassVar[str] = "qwen3_vl"
    default_checkpoint: ClassVar[str] = "qwen3-vl-reranker-2b"
    checkpoints: ClassVar[dict[str, dict[str, Any]]] = {
        "qwen3-vl-reranker-2b": {
            "repository": "Qwen/Qwen3-VL-Reranker-2B",
            "revision": "4bd860ac4f15ad1897a214615cccc700f8f71818",
            "gigabytes": 4.26,
            "note": "commit as pinned by public code; held in fp32, twice its size",
        },
    }
    options_type: ClassVar[type[EncoderOptions]] = RerankerOptions

    options: RerankerOptions
    image_rules: QwenRules

    @classmethod
    def settings(cls, options: RerankerOptions) -> dict[str, Any]:
        return _settings(options)

    @classmethod
    def gmacs_in(cls, folder: Path, options: RerankerOptions) -> dict[str, float]:
        """Return the `gmacs` of the checkpoint in `folder`: "image" is the tower, "fusion" the language model."""
        prompts = Prompts(folder)
        tokens = _max_image_tokens(prompts.rules(options.max_pixels))
        length = len(prompts.ids(_JUDGE, partial(_judge_content, _RETRIEVE), n_image_tokens=tokens)) + QUERY_TOKENS
        return qwen3_vl_gmacs(_config(folder), tokens, length)

    def load_model(self, located: Located) -> Any:
        """Return the checkpoint's model without its head; keep the head's row of "yes" minus that of "no"."""
        from transformers import Qwen3VLForConditionalGeneration

        self._prompts = Prompts(located.folder)
        whole = _load_model(Qwen3VLForConditionalGeneration, located)
        yes, no = (_word_id(self._prompts, word, located) for word in ("yes", "no"))
        weights = whole.lm_head.weight
        self._direction = (weights[yes] - weights[no]).detach().to(self._torch_device, torch.float32)
        return whole.model

    def read_image_rules(self, folder: Path) -> ImageRules:
        return self._prompts.rules(self.options.max_pixels)

    def load_text(self, located: Located) -> None:
        self._text_runner = self._runner(self.options.batch_size)

    def queue_parts(self, parts: Sequence[Pixels]) -> Callable[[], torch.Tensor]:
        """Queue image tokens joined with their deepstack layers, `(n, rows, columns, (1 + layers) * width)`."""

        def tower(pixels: torch.Tensor) -> torch.Tensor:
            patches, grid = as_patches(pixels, self.image_rules)
            output = self._model.get_image_features(patches, grid, return_dict=True)
            layers = [torch.stack(list(part)) for part in (output.pooler_output, *output.deepstack_features)]
            rows, columns = (int(side) // self.image_rules.merge for side in grid[0, 1:])
            return torch.cat(layers, dim=-1).reshape(len(pixels), rows, columns, -1)

        return self._queue(parts, tower, dtype=self._image_runner.half_dtype)

    def relevance(self, features: torch.Tensor, query: str) -> FloatArray:
        """Return the probability of "yes", shape `(n,)`."""
        odds = self.logits(features, query)
        probability: FloatArray = 1.0 / (1.0 + np.exp(-odds))
        return probability

    def logits(self, features: torch.Tensor, query: str) -> FloatArray:
        """Return the log-odds of "yes" against "no", shape `(n,)`."""
        checked = checked_query(query)
        if not len(features):
            return np.empty(0)
        rows, columns = features.shape[1:3]
        ids = self._prompts.ids(_JUDGE, self._content, query=checked, n_image_tokens=rows * columns)
        merge = self.image_rules.merge
        grid = torch.tensor([[1, rows * merge, columns * merge]], device=self._torch_device)

        def match(states: torch.Tensor, part: slice) -> torch.Tensor:
            n = len(states)
            layers = torch.split(states.reshape(n, rows * columns, -1), self._direction.numel(), dim=-1)
            image_output = _ImageTowerOutput(
                pooler_output=list(layers[0]), deepstack_features=[list(layer) for layer in layers[1:]]
            )
            inputs = self._prompts.batch(ids, n, self._torch_device)
            output = self._model(
                **inputs, image_grid_thw=grid.expand(n, -1), mm_encoder_outputs={"image": image_output}
            )
            odds: torch.Tensor = output.last_hidden_state[:, -1].float() @ self._direction
            return odds

        odds: FloatArray = self._match_in_batches(features, match).numpy()
        return odds

    def close(self) -> None:
        self._direction = torch.empty(0)
        super().close()

    def is_cut(self, query: str) -> bool:
        return self._prompts.is_cut(_JUDGE, self._content, query)

    def _content(self, query: str) -> list[dict[str, str]]:
        return _judge_content(self.options.instruction, query)


@dataclass
class _ImageTowerOutput:
    """Output of transformers' image tower, in the form that its language model accepts."""

    pooler_output: list[torch.Tensor]
    deepstack_features: list[list[torch.Tensor]]


class _LastTokenModel(torch.nn.Module):
    """Model whose last token's state is returned under the method name that `DualEncoderScorer` calls."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model
        self.get_image_features = None

    def get_text_features(self, **inputs: torch.Tensor) -> torch.Tensor:
        """Return the last token's state, `(n, d)`."""
        state: torch.Tensor = self.model(**inputs).last_hidden_state[:, -1]
        return state


def _settings(options: QwenOptions) -> dict[str, Any]:
    return {"max_pixels": options.max_pixels, "instruction": repr(options.instruction)}


def _load_model(kind: Any, located: Located) -> Any:
    return load_weights(kind, located.folder, config=_config(located.folder), label=located.identity)


def _config(folder: Path) -> Any:
    from transformers import Qwen3VLConfig

    return Qwen3VLConfig.from_pretrained(folder, local_files_only=True)


def _word_id(prompts: Prompts, word: str, located: Located) -> int:
    vocabulary = prompts.tokenizer.get_vocab()
    if word not in vocabulary:
        raise EncoderError(f"{located.identity}: its tokenizer has no token {word!r}; is it a reranker?")
    return int(vocabulary[word])


def _image_content(_: str = "") -> list[dict[str, str]]:
    return [{"type": "image"}]


def _text(query: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": query}]


def _judge_content(instruction: str, query: str) -> list[dict[str, str]]:
    parts = ("<Instruct>: " + instruction, "<Query>:", query, "\n<Document>:")
    return [{"type": "text", "text": part} for part in parts] + _image_content()


def _n_tokens(grid: torch.Tensor, rules: QwenRules) -> int:
    return int(grid[0].prod()) // rules.merge**2


def _max_image_tokens(rules: QwenRules) -> int:
    return rules.max_pixels // (rules.patch * rules.merge) ** 2
