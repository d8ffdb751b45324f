"""Records the calls of a model: frames, tokens, seconds, and the first prompt of a cell.

An accuracy is comparable only with its prompt, which is kept in the cell's folder as `prompt.json`.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypedDict

from focus_eval.bench.answering.ahead import Place
from focus_eval.core.errors import RunError
from focus_eval.keyframes.rows.identity import versions

if TYPE_CHECKING:
    from torch import Tensor
    from typing_extensions import Required, Unpack

# A repeated token: placeholders of visual features come hundreds of times in a row.
_REPEATED = re.compile(r"(<[^<>]+>)\1{2,}")
# Number of tokens kept of a prompt's end: enough for an opening tag and blanks.
PROMPT_END_TOKENS = 16
# Attributes in which lmms-eval's wrappers keep a tokenizer, or a processor that has one.
_TOKENIZERS = ("tokenizer", "_tokenizer", "processor", "_processor", "_image_processor")


class GenerateInputs(TypedDict, total=False):
    """The keyword arguments of a transformers model's `generate` that are read here; wrappers pass others too."""

    input_ids: Tensor  # (batch, length), as `inputs`
    inputs: Tensor
    attention_mask: Tensor
    pad_token_id: int
    pixel_values: Tensor
    pixel_values_videos: Tensor
    image_grid_thw: Tensor  # (images, 3): patches in time, height and width
    video_grid_thw: Tensor
    image_sizes: Tensor


class GeneratingModel(Protocol):
    """A model of transformers."""

    def __call__(self, *args: object, **inputs: object) -> object: ...
    def generate(self, *args: Tensor, **inputs: Unpack[GenerateInputs]) -> Tensor: ...


class CountsFrames(Protocol):
    """Counts the frames per question in the inputs of `generate`; None if they do not show it."""

    def __call__(self, inputs: GenerateInputs) -> list[int] | None: ...


class Tokenizer(Protocol):
    """A tokenizer of transformers."""

    def decode(self, ids: object, *, skip_special_tokens: bool) -> str: ...


class MediaUrl(TypedDict, total=False):
    """Address or content of an image or video in a chat message."""

    url: str
    detail: str


class PayloadPart(TypedDict, total=False):
    """A part of a chat message in OpenAI's format."""

    type: Required[str]
    text: str
    image_url: MediaUrl
    video_url: MediaUrl


class PayloadMessage(TypedDict):
    """A chat message in OpenAI's format."""

    role: str
    content: str | list[PayloadPart]


class ChatPayload(TypedDict, total=False):
    """The keywords of `chat.completions.create` that are read here; wrappers pass others too."""

    messages: Required[list[PayloadMessage]]
    model: str


@dataclass(kw_only=True)
class GenerateTrace:
    """Record of one batch on its way through the model.

    Args:
        error: an exception of the model; some wrappers catch it and answer "" instead.
        n_calls: number of calls of the model.
        generate_seconds: time spent in the model's `generate`.
        wrapper_seconds: time spent in the wrapper, `generate` included, without waiting for the model.
        frames: number of frames per question that reached the model; None if its inputs do not tell.
        tokens: token counts per question, under "input", "output" and "vision" if known.
        prompt_end: last token ids of the first question's prompt, which ends like the others; empty if unknown.
        place: the batch's place in the order of batches; None for a service.
        wants_prompt_record: True if `sent` is to be filled.
        sent: the first question of the batch as the model got it; empty if not requested.
    """

    error: BaseException | None = None
    n_calls: int = 0
    generate_seconds: float = 0.0
    wrapper_seconds: float = 0.0
    frames: list[int] | None = None
    tokens: list[dict[str, int]] = field(default_factory=list)
    prompt_end: list[int] = field(default_factory=list)
    place: Place | None = None
    wants_prompt_record: bool = False
    sent: dict[str, object] = field(default_factory=dict)

    def take_model(self) -> None:
        """Wait until the model is free for this batch. Raises RunError if the run ends first."""
        if self.place is None:
            return
        try:
            self.place.take_model()
        except RunError as error:
            # Some wrappers catch it and answer ""; the session raises it again from here.
            self.error = error
            raise

    @contextmanager
    def generating(self) -> Iterator[None]:
        """Count the block as one call of the model; record its seconds and its exception, which is raised again."""
        self.n_calls += 1
        started = time.perf_counter()
        try:
            yield
        except BaseException as error:
            # Keep the error for the session, as in `take_model`.
            self.error = error
            raise
        finally:
            self.generate_seconds += time.perf_counter() - started


class TracedModel:
    """Wraps a model and records the calls of `generate`; all other attributes are the model's own.

    Args:
        model: a transformers model.
        trace: takes the record of each call.
        frames_reaching: counts the frames in the keyword arguments of `generate`.
    """

    def __init__(self, model: GeneratingModel, trace: GenerateTrace, frames_reaching: CountsFrames) -> None:
        self._model = model
        self._trace = trace
        self._frames_reaching = frames_reaching

    # Wrappers read `config`, `device` and more: delegate everything else.
    def __getattr__(self, name: str) -> object:
        """Return the model's attribute."""
        return getattr(self._model, name)

    def __call__(self, *args: object, **inputs: object) -> object:
        """Call the model; this is not recorded."""
        return self._model(*args, **inputs)

    def generate(self, *args: Tensor, **inputs: Unpack[GenerateInputs]) -> Tensor:
        """Generate; record seconds, tokens, frames and an exception, which is raised again."""
        trace = self._trace
        trace.take_model()
        # Record before the call: a model that runs out of memory was still shown these frames.
        trace.frames = self._frames_reaching(inputs)
        # Wrappers pass the prompt by position or under either name.
        prompt_ids = args[0] if args else inputs.get("input_ids", inputs.get("inputs"))
        if prompt_ids is not None and getattr(prompt_ids, "ndim", 0) == 2:
            trace.prompt_end = prompt_ids[0, -PROMPT_END_TOKENS:].tolist()
            if trace.wants_prompt_record:
                trace.sent = describe_tensors(self._model, prompt_ids, inputs)
        with trace.generating():
            output = self._model.generate(*args, **inputs)
        trace.tokens = token_counts(prompt_ids, output, inputs, getattr(self._model, "config", None))
        return output


def token_counts(
    prompt_ids: Tensor | None, output: Tensor, inputs: GenerateInputs, config: object
) -> list[dict[str, int]]:
    """Return the token counts of each question: "input" (without padding), "output", and "vision" if above 0.

    "vision" counts the tokens that stand for frames in the input, as in Qwen-VL and LLaVA-OneVision. The list is empty
    if prompt or output are not token ids.

    Args:
        prompt_ids, output: token ids `(batch, length)`.
        inputs: keyword arguments of `generate`.
        config: the model's config.
    """
    # Embeddings or texts instead of token ids: nothing to count.
    if prompt_ids is None or getattr(prompt_ids, "ndim", 0) != 2 or getattr(output, "ndim", 0) != 2:
        return []
    mask = inputs.get("attention_mask")
    n_given = prompt_ids.shape[1]
    # `generate` returns the prompt too, unless it was given embeddings in place of tokens.
    generated = output[:, n_given:] if output.shape[1] >= n_given else output
    padding = inputs.get("pad_token_id")
    visual = [getattr(config, name, None) for name in ("video_token_id", "image_token_id")]
    counts = []
    for at in range(prompt_ids.shape[0]):
        counts_of_row = {
            "input": int(mask[at].sum()) if mask is not None else n_given,
            "output": int((generated[at] != padding).sum()) if padding is not None else int(generated.shape[1]),
        }
        n_visual = sum(int((prompt_ids[at] == token).sum()) for token in visual if token is not None)
        counts.append({**counts_of_row, "vision": n_visual} if n_visual else counts_of_row)
    return counts


def describe_tensors(model: object, prompt_ids: Tensor, inputs: GenerateInputs) -> dict[str, object]:
    """Return the inputs of a batch's first question: token ids without padding, frame pixels, settings.

    Args:
        prompt_ids: token ids `(batch, length)`.
        inputs: keyword arguments of `generate`.
    """
    config, mask = getattr(model, "config", None), inputs.get("attention_mask")
    ids = prompt_ids[0] if mask is None or mask.shape != prompt_ids.shape else prompt_ids[0][mask[0].bool()]
    defaults: Mapping[str, object] = getattr(getattr(model, "generation_config", None), "to_diff_dict", dict)()
    return {
        "token_ids": ids.tolist(),
        "frame_pixels": _frame_pixels(inputs, config),
        **numeric_formats(model),
        "generation": {**_plain(defaults), **_plain(inputs)},
    }


def numeric_formats(model: object) -> dict[str, str]:
    """Return "dtype" and "attention" (the attention implementation) of a transformers model; "" if unknown."""
    dtype, config = getattr(model, "dtype", ""), getattr(model, "config", None)
    attention = getattr(config, "_attn_implementation", None)
    return {"dtype": str(dtype).removeprefix("torch."), "attention": str(attention or "")}


def image_parts(messages: Iterable[PayloadMessage]) -> Iterator[PayloadPart]:
    """Yield the image parts of chat messages in order."""
    for message in messages:
        if isinstance(message["content"], list):
            yield from (part for part in message["content"] if part.get("type") == "image_url")


def describe_messages(payload: ChatPayload) -> dict[str, object]:
    """Return "text" and "generation" of a chat request; an image is described by its format, size and hash."""
    lines: list[str] = []
    for message in payload["messages"]:
        content = message["content"]
        parts: list[PayloadPart] = [{"type": "text", "text": content}] if isinstance(content, str) else content
        lines += [f"{message['role']}: {_part_text(part)}" for part in parts]
    parameters = {name: value for name, value in payload.items() if name != "messages"}
    return {"text": "\n".join(lines), "generation": _plain(parameters)}


def prompt_record(
    view: object, question_id: str, sent: Mapping[str, object], tokens: Mapping[str, int]
) -> dict[str, object]:
    """Return the prompt record of one question: `sent` with token ids as text, chat template, tokens and versions.

    Args:
        view: the model's wrapper, which holds the tokenizer.
        sent: see `GenerateTrace.sent`.
        tokens: token counts of the question; "vision" is used if there.
    """
    record = {name: value for name, value in sent.items() if name != "token_ids"}
    tokenizer = _tokenizer(view)
    if "token_ids" in sent and tokenizer is not None:
        record["text"] = fold_repeats(tokenizer.decode(sent["token_ids"], skip_special_tokens=False))
    template = str(getattr(tokenizer, "chat_template", None) or "")
    fields = {
        "question_id": question_id,
        **record,
        "visual_tokens": tokens.get("vision"),
        "template": hashlib.sha256(template.encode()).hexdigest()[:16] if template else "",
        "special_tokens": {name: str(token) for name, token in getattr(tokenizer, "special_tokens_map", {}).items()},
        "versions": versions(),
    }
    return {name: value for name, value in fields.items() if value not in (None, "", {}, [])}


def end_of_prompt(view: object, trace: GenerateTrace) -> str:
    """Return the last tokens of the prompt as text, without blanks at its end; "" if they are unknown.

    Args:
        view: the model's wrapper, which holds the tokenizer.
    """
    tokenizer = _tokenizer(view) if trace.prompt_end else None
    return str(tokenizer.decode(trace.prompt_end, skip_special_tokens=False)).rstrip() if tokenizer else ""


def fold_repeats(text: str) -> str:
    """Return `text` with repeated tokens shortened: three `<|video_pad|>` become `<|video_pad|>*3`."""
    return _REPEATED.sub(lambda match: f"{match[1]}*{len(match[0]) // len(match[1])}", text)


def _tokenizer(view: object) -> Tokenizer | None:
    """The tokenizer among the attributes of a model's wrapper; None if there is none."""
    components = [getattr(view, name, None) for name in _TOKENIZERS]
    tokenizers = [getattr(item, "tokenizer", item) for item in components if item is not None]
    return next((item for item in tokenizers if hasattr(item, "decode")), None)


def _frame_pixels(inputs: GenerateInputs, config: object) -> list[int]:
    """[height, width] in pixels of a frame in the inputs of `generate`; [] if they do not show it."""
    grid = inputs.get("video_grid_thw")
    grid = inputs.get("image_grid_thw") if grid is None else grid
    patch = getattr(getattr(config, "vision_config", None), "patch_size", None)
    if grid is not None and isinstance(patch, int):
        return [patch * int(grid[0][1]), patch * int(grid[0][2])]
    pixels = inputs.get("pixel_values_videos")
    pixels = inputs.get("pixel_values") if pixels is None else pixels
    return [int(side) for side in pixels.shape[-2:]] if pixels is not None and pixels.ndim >= 4 else []


def _part_text(part: PayloadPart) -> str:
    """A part of a message as text: its text, or format, bytes and hash of an image or video."""
    if part.get("type") == "text":
        return str(part["text"])
    url = str((part.get("image_url") or part.get("video_url") or {}).get("url", ""))
    head, _, data = url.partition("base64,")
    digest = hashlib.sha256(data.encode()).hexdigest()[:16]
    detail = (part.get("image_url") or {}).get("detail")
    return f"<{head.removeprefix('data:').rstrip(';')}, {len(data) * 3 // 4:,} bytes, {digest}{detail or ''}>"


def _plain(values: Mapping[str, object]) -> dict[str, object]:
    """The entries whose values are numbers, texts, Booleans, or lists of fewer than 20 of these."""
    kinds = (bool, int, float, str)
    return {
        name: value
        for name, value in values.items()
        if isinstance(value, kinds)
        or (isinstance(value, Sequence) and len(value) < 20 and all(isinstance(item, kinds) for item in value))
    }
