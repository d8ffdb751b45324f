"""What the request runner and a model know of each other."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from focus_eval.core.errors import RunError
from focus_eval.lmms.arguments import AdapterOptions
from focus_eval.lmms.frames import FrameBatch, SharedFrames
from focus_eval.lmms.recording import Recorder
from focus_eval.lmms.requests import PendingRequest
from focus_eval.lmms.sent import sent_tensors
from focus_eval.lmms.sources import FrameSource
from focus_eval.lmms.turns import OwnProcessors, Turn, own_cores
from focus_eval.video.scan_cache import KeptScans


@dataclass(frozen=True, kw_only=True)
class RunContext:
    """Where frames come from, how many, how they are read, and where rows go.

    Args:
        source: gives the selections; None for the wrapper's own sampling.
        frames: keyframes asked for.
        options: frame policy, video reader, answer parsing.
        recorder: takes the rows.
        shared: frames that are decoded for several questions together.
        kept: what opening learned of files, kept for other processes.
        cores: that decode and prepare.
    """

    source: FrameSource | None
    frames: int
    options: AdapterOptions
    recorder: Recorder
    shared: SharedFrames | None = None
    kept: KeptScans | None = None
    cores: int = field(default_factory=own_cores)


@dataclass(kw_only=True)
class GenerateTrace:
    """What was seen of one batch.

    Args:
        error: an exception of the model; some wrappers catch it and answer "" instead.
        n_calls: how often the model was asked.
        generate_seconds: inside the model's `generate`.
        frames: frames per question that reached the model; None where its inputs do not tell.
        tokens: per question: input, output, vision.
        turn: of a model that takes one batch at a time.
        wants_sent: whether `sent` is asked for: what the first question of the batch looks like to the model.
    """

    error: BaseException | None = None
    n_calls: int = 0
    generate_seconds: float = 0.0
    frames: list[int] | None = None
    tokens: list[dict[str, int]] = field(default_factory=list)
    turn: Turn | None = None
    wants_sent: bool = False
    sent: dict[str, Any] = field(default_factory=dict)

    def take_turn(self) -> None:
        """Wait until the model is free for this batch. Raises RunError where the run ends first."""
        if self.turn is None:
            return
        try:
            self.turn.take()
        except RunError as error:
            # Noted, since a wrapper may swallow it as it does those of its model.
            self.error = error
            raise

    @contextmanager
    def generating(self) -> Iterator[None]:
        """Count the block as one call of the model; note its seconds, and its exception, which is raised on."""
        self.n_calls += 1
        started = time.perf_counter()
        try:
            yield
        except BaseException as error:
            # The wrapper may swallow it; `BatchAnswerer` raises it again from here.
            self.error = error
            raise
        finally:
            self.generate_seconds += time.perf_counter() - started


class TracedModel:
    """Wraps a model and records what goes through `generate`; everything else is the model's own.

    Args:
        model: a transformers model.
        trace: where to note it.
        frames_reaching: returns the frames per question in the keyword arguments of `generate`.
    """

    def __init__(self, model: Any, trace: GenerateTrace, frames_reaching: Any) -> None:
        self._model = model
        self._trace = trace
        self._frames_reaching = frames_reaching

    # Wrappers read `config`, `device` and more of their model, so everything else is the original's.
    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def __call__(self, *args: Any, **inputs: Any) -> Any:
        return self._model(*args, **inputs)

    def generate(self, *args: Any, **inputs: Any) -> Any:
        """Generate, and note seconds, tokens, frames and an exception, which is raised on."""
        trace = self._trace
        trace.take_turn()
        # Before the call: a model that runs out of memory was still shown these frames.
        trace.frames = self._frames_reaching(inputs)
        # Wrappers pass the prompt by position or under either name.
        given = args[0] if args else inputs.get("input_ids", inputs.get("inputs"))
        if trace.wants_sent and getattr(given, "ndim", 0) == 2:
            trace.sent = sent_tensors(self._model, given, inputs)
        with trace.generating():
            output = self._model.generate(*args, **inputs)
        trace.tokens = token_counts(given, output, inputs, getattr(self._model, "config", None))
        return output


def token_counts(given: Any, output: Any, inputs: dict[str, Any], config: Any) -> list[dict[str, int]]:
    """Return per question the tokens that went in (padding left out), came out, and stood for frames.

    Frames count where they have a token of their own in the input, as in Qwen-VL and LLaVA-OneVision.
    """
    # Embeddings in place of tokens, or a list of texts: there is nothing to count.
    if given is None or getattr(given, "ndim", 0) != 2 or getattr(output, "ndim", 0) != 2:
        return []
    mask = inputs.get("attention_mask")
    n_given = given.shape[1]
    # `generate` returns the prompt too, unless it was given embeddings in place of tokens.
    generated = output[:, n_given:] if output.shape[1] >= n_given else output
    padding = inputs.get("pad_token_id")
    visual = [getattr(config, name, None) for name in ("video_token_id", "image_token_id")]
    counts = []
    for at in range(given.shape[0]):
        row = {
            "input": int(mask[at].sum()) if mask is not None else n_given,
            "output": int((generated[at] != padding).sum()) if padding is not None else int(generated.shape[1]),
        }
        n_visual = sum(int((given[at] == token).sum()) for token in visual if token is not None)
        counts.append({**row, "vision": n_visual} if n_visual else row)
    return counts


class AdapterProtocol(Protocol):
    """A model that is shown frames; see `FrameAdapter` for what each member means."""

    @property
    def model_id(self) -> str: ...
    @property
    def frames_merged(self) -> int: ...
    @property
    def takes_mixed_sizes(self) -> bool: ...
    @property
    def questions_at_once(self) -> int | None: ...
    @property
    def prepares_ahead(self) -> bool: ...
    @property
    def processors(self) -> OwnProcessors: ...
    @property
    def is_simple(self) -> bool: ...
    @property
    def task_dict(self) -> Mapping[str, Any]: ...

    def ready(self, frame_batch: FrameBatch) -> None: ...
    def visuals(self, frame_batch: FrameBatch) -> Any: ...
    def video_parts(self, frame_batch: FrameBatch) -> list[dict[str, Any]]: ...
    def trace_model(self, view: Any, batch: list[PendingRequest], trace: GenerateTrace) -> None: ...
    def wrapper_generate(self, requests: Sequence[Any]) -> list[Any]: ...
