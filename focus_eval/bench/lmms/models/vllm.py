"""Shows the chosen frames to models that run in vLLM, through lmms-eval's `vllm_generate` wrapper.

This adapter was written without access to vLLM's engine. Its tests replace the call `LLM.generate`, and run vLLM's own
processor on the requests.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence, Sized
from typing import TYPE_CHECKING, ClassVar, Protocol, TypedDict

from lmms_eval.models.chat.vllm_generate import VLLMGenerate

from focus_eval.bench.answering.frames import FrameBatch, PathWithFrames
from focus_eval.bench.answering.questions import FramedQuestion, ViewDocument
from focus_eval.bench.answering.tracing import GenerateTrace
from focus_eval.bench.lmms.models.qwen_vl import QwenAdapter, metadata_of
from focus_eval.bench.lmms.patches import resize_to_patches
from focus_eval.core.errors import MissingDependency

if TYPE_CHECKING:
    from lmms_eval.api.instance import Instance
    from typing_extensions import Self


class VllmInputs(TypedDict, total=False):
    """The fields of a request to vLLM's engine that are read here."""

    prompt: str
    prompt_token_ids: list[int]
    multi_modal_data: dict[str, list[Sized]]
    mm_processor_kwargs: dict[str, object]


class VllmOutput(Protocol):
    """The tokens of a prompt, or None if the engine does not state them, and the replies."""

    prompt_token_ids: Sequence[int] | None
    outputs: Sequence[object]


class VllmEngine(Protocol):
    """An engine of vLLM."""

    def generate(self, inputs: list[VllmInputs], *args: object, **options: object) -> list[VllmOutput]: ...


class FocusVLLM(QwenAdapter, VLLMGenerate):  # type: ignore[misc]
    """Qwen2-VL, 2.5 and 3 in vLLM, given token prompts and whole videos (`LLM.generate`).

    Its wrapper reads videos through qwen-vl-utils, like the Qwen wrappers that run a model in this process.
    """

    model_id: ClassVar[str] = "focus_vllm"
    stock_name: ClassVar[str] = "vllm_generate"
    is_simple: ClassVar[bool] = False
    packages: ClassVar[tuple[str, ...]] = ("qwen-vl-utils", "vllm")
    frames_argument: ClassVar[str] = "nframes"
    takes_mixed_sizes: ClassVar[bool] = False
    prepares_ahead: ClassVar[bool] = False  # preparing batches ahead was not tried with vLLM's engine

    client: VllmEngine
    batch_size_per_gpu: int

    @classmethod
    def check_installed(cls) -> None:
        """Raise `MissingDependency` if vLLM or qwen-vl-utils is missing; patch how the wrapper resizes frames."""
        from lmms_eval.models.simple import vllm as stock

        if stock.LLM is None:
            raise MissingDependency(f"{cls.model_id} needs vLLM: pip install vllm")
        super().check_installed()
        resize_to_patches()

    @classmethod
    def passed_on(cls) -> tuple[str, ...]:
        """Return the names of the engine's arguments (`max_model_len`, `dtype`, ...); empty without vLLM."""
        try:
            from vllm import EngineArgs
        except ImportError:
            return ()
        return tuple(field.name for field in dataclasses.fields(EngineArgs))

    def defaults(self, wrapper_arguments: dict[str, object]) -> None:
        """Raise the wrapper's default limit `max_frame_num` to the requested number of frames."""
        wrapper_arguments.setdefault("max_frame_num", self.frame_limit(wrapper_arguments))

    @property
    def batch_size(self) -> int:
        """Questions in one call of the engine."""
        return int(self.batch_size_per_gpu)

    def trace_model(self, view: Self, batch: Sequence[FramedQuestion], trace: GenerateTrace) -> None:
        """Replace the engine of `view` by one that records its calls in `trace`."""
        view.client = TracedEngine(self.client, trace)

    def ready(self, frame_batch: FrameBatch) -> FrameBatch:
        """Return the frames with the model's patch size, so that they are resized to whole patches."""
        patch_size = getattr(getattr(self.processor, "video_processor", None), "patch_size", None)
        return dataclasses.replace(frame_batch, patch_size=patch_size)

    def make_one_request(self, request: Instance) -> tuple[VllmInputs, dict[str, object]]:
        """Return the stock request, marked not to resize its frames again; for Qwen2.5-VL with the frames' metadata.

        Without metadata vLLM refuses videos for Qwen2.5-VL. Unless told otherwise, the model's processor would resize
        the frames a second time, to its own limits.
        """
        inputs, params = super().make_one_request(request)
        _, _, _, doc_id, task, split = request.arguments
        document = self.task_dict[task][split][doc_id]
        assert isinstance(document, ViewDocument)
        parts = [part for message in document.messages or [] for part in message["content"] if part["type"] == "video"]
        videos = inputs["multi_modal_data"].get("video") or []
        if any(isinstance(part["url"], PathWithFrames) for part in parts):
            inputs["mm_processor_kwargs"]["do_resize"] = False
        # Qwen2-VL takes frames alone; for Qwen3-VL the stock wrapper attaches the metadata.
        if videos and "Qwen2VL" not in type(self.processor).__name__:
            inputs["multi_modal_data"]["video"] = [
                video if isinstance(video, tuple) or not isinstance(part["url"], PathWithFrames)
                else (video, metadata_of(part["url"].frame_batch))
                for video, part in zip(videos, parts, strict=True)
            ]  # fmt: skip
        return inputs, params


class TracedEngine:
    """Wraps a vLLM engine and records the calls of `generate`; all other attributes are the engine's."""

    def __init__(self, engine: VllmEngine, trace: GenerateTrace) -> None:
        self._engine = engine
        self._trace = trace

    def __getattr__(self, name: str) -> object:
        """Return the engine's attribute."""
        return getattr(self._engine, name)

    def generate(self, inputs: list[VllmInputs], *args: object, **options: object) -> list[VllmOutput]:
        """Generate, and record seconds, tokens, frames and any exception, which is raised again."""
        trace = self._trace
        trace.frames = []
        for request in inputs:
            videos = request.get("multi_modal_data", {}).get("video") or []
            n_frames = sum(len(video[0] if isinstance(video, tuple) else video) for video in videos)
            # The vision tower takes frames in pairs.
            trace.frames.append(n_frames + n_frames % 2)
        if trace.wants_prompt_record:
            ids = inputs[0].get("prompt_token_ids")
            trace.sent = {"token_ids": list(ids)} if ids is not None else {"text": str(inputs[0].get("prompt", ""))}
        with trace.generating():
            outputs = self._engine.generate(inputs, *args, **options)
        ids_by_name = [
            {
                "input": getattr(output, "prompt_token_ids", None),
                "output": getattr(output.outputs[0], "token_ids", None),
            }
            for output in outputs
        ]
        trace.tokens = [{name: len(ids) for name, ids in lists.items() if ids is not None} for lists in ids_by_name]
        return outputs
