"""Shows the chosen frames to models that run in vLLM, through lmms-eval's `vllm_generate` wrapper."""

from __future__ import annotations

import time
from typing import Any, ClassVar

from lmms_eval.models.chat.vllm_generate import VLLMGenerate

from focus_eval.errors import MissingDependency
from focus_eval.lmms.generate_trace import GenerateTrace
from focus_eval.lmms.models.qwen_vl import QwenSeam
from focus_eval.lmms.requests import PendingRequest


class FocusVLLM(QwenSeam, VLLMGenerate):  # type: ignore[misc]
    """Qwen2-VL, 2.5 and 3 in vLLM: the wrapper reads videos through qwen-vl-utils, as the in-process ones do.

    The engine was not at hand when this was written: tests run it with a stand-in at the call `LLM.generate`.
    """

    model_id: ClassVar[str] = "focus_vllm"
    frames_argument: ClassVar[str] = "nframes"
    takes_mixed_sizes: ClassVar[bool] = False

    @classmethod
    def check_installed(cls) -> None:
        """Raise `MissingDependency` without vLLM or qwen-vl-utils."""
        from lmms_eval.models.simple import vllm as stock

        if stock.LLM is None:
            raise MissingDependency(f"{cls.model_id} needs vLLM: pip install vllm")
        super().check_installed()

    def defaults(self, wrapper_arguments: dict[str, Any]) -> None:
        """Let no limit of the wrapper be smaller than the frames asked for."""
        wrapper_arguments.setdefault("max_frame_num", int(wrapper_arguments[self.frames_argument]))

    @property
    def tokenizer(self) -> Any:
        """The processor's, by which requests are batched as the other wrappers do."""
        return self.processor.tokenizer

    @property
    def batch_size(self) -> int:
        """Requests handed to the engine at once."""
        return int(self.batch_size_per_gpu)

    def trace_model(self, view: Any, batch: list[PendingRequest], trace: GenerateTrace) -> None:
        """Note what goes into the engine and what comes out."""
        view.client = TracedEngine(self.client, trace, self.processor)


class TracedEngine:
    """A vLLM engine that is its original in everything, but notes what goes through `generate`."""

    def __init__(self, engine: Any, trace: GenerateTrace, processor: Any) -> None:
        self._engine = engine
        self._trace = trace
        self._processor = processor

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def generate(self, inputs: list[dict[str, Any]], *args: Any, **options: Any) -> Any:
        """Generate, and note seconds, tokens, frames and an exception, which is raised on."""
        trace = self._trace
        trace.n_calls += 1
        trace.frames = [_frames_in(given) for given in inputs]
        started = time.perf_counter()
        try:
            outputs = self._engine.generate(inputs, *args, **options)
        except BaseException as error:
            trace.error = error
            raise
        finally:
            trace.generate_seconds += time.perf_counter() - started
        trace.tokens = [_tokens_of(output) for output in outputs]
        return outputs


def _frames_in(given: dict[str, Any]) -> int:
    """Return the frames of one request, counted in whole pairs as the vision tower takes them."""
    videos = given.get("multi_modal_data", {}).get("video") or []
    frames = sum(len(video[0] if isinstance(video, tuple) else video) for video in videos)
    return frames + frames % 2


def _tokens_of(output: Any) -> dict[str, int]:
    given, made = getattr(output, "prompt_token_ids", None), output.outputs[0]
    counts = {"output": len(made.token_ids)} if getattr(made, "token_ids", None) is not None else {}
    return {"input": len(given), **counts} if given is not None else counts
