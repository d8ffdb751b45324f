"""Shows the chosen frames to any video model of transformers, through its own processor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from lmms_eval.models.chat.huggingface import Huggingface
from transformers.video_utils import VideoMetadata

from focus_eval.bench.answering.frames import FrameBatch, PathWithFrames
from focus_eval.bench.answering.questions import FramedQuestion
from focus_eval.bench.answering.tracing import GenerateInputs, GenerateTrace
from focus_eval.bench.lmms.adapter import FrameAdapter
from focus_eval.bench.lmms.patches import load_generating_classes
from focus_eval.core.errors import AnswerError

if TYPE_CHECKING:
    from transformers import BatchFeature
    from typing_extensions import Self, Unpack

    from focus_eval.bench.answering.processors import Processor, ProcessorInputs


class FocusHuggingface(FrameAdapter, Huggingface):  # type: ignore[misc]
    """lmms-eval's `huggingface` wrapper: InternVL3.5, SmolVLM2, GLM-4.6V, Video-LLaMA 3 and others.

    The wrapper passes paths to the model's processor, which would sample frames of its own. Here the processor gets the
    decoded frames with their indices, rate and length, and the option not to sample.
    """

    model_id: ClassVar[str] = "focus_huggingface"
    stock_name: ClassVar[str] = "huggingface"
    is_simple: ClassVar[bool] = False
    frames_argument: ClassVar[str] = "max_num_frames"
    takes_mixed_sizes: ClassVar[bool] = True
    prepares_ahead: ClassVar[bool] = True

    @classmethod
    def check_installed(cls) -> None:
        """Let the stock wrapper load model classes that can generate."""
        load_generating_classes()

    def defaults(self, wrapper_arguments: dict[str, object]) -> None:
        """Set device and device map: with the stock map "auto" the wrapper sends its inputs to "cuda" only."""
        device = wrapper_arguments.setdefault("device", "cuda")
        wrapper_arguments.setdefault("device_map", device)

    def trace_model(self, view: Self, batch: Sequence[FramedQuestion], trace: GenerateTrace) -> None:
        """Trace the model as every adapter does, and let the processor of `view` take paths with frames."""
        super().trace_model(view, batch, trace)
        view.processor = FramesProcessor(view.processor)

    @property
    def frames_merged(self) -> int:  # type: ignore[override]
        """Number of frames that the vision tower merges into one step; the last frame is repeated to fill a step."""
        return int(getattr(getattr(self.config, "vision_config", None), "temporal_patch_size", None) or 1)

    def frames_reaching(self, inputs: GenerateInputs) -> list[int] | None:
        """Return the number of frames per question by the shapes of the inputs of `generate`; None if they do not tell.

        A video grid states the number of steps in time (GLM-4.6V, Video-LLaMA 3, Qwen). Without a grid, frames lie
        along the second axis of pixels with five axes, or, for a single question, along the first axis (InternVL).
        """
        grid, n_questions = inputs.get("video_grid_thw"), int(inputs["input_ids"].shape[0])
        if grid is not None:
            return [self.frames_merged * int(steps) for steps in grid[:, 0]] if len(grid) == n_questions else None
        pixels = inputs.get("pixel_values_videos")
        pixels = inputs.get("pixel_values") if pixels is None else pixels
        if pixels is None:
            return [0] * n_questions
        if pixels.ndim == 5:
            return [int(pixels.shape[1])] * n_questions
        return [int(pixels.shape[0])] if n_questions == 1 else None


class FramesProcessor:
    """Wraps a processor so that it takes `PathWithFrames` for videos; all other attributes are the processor's."""

    def __init__(self, processor: Processor) -> None:
        self._processor = processor

    def __getattr__(self, name: str) -> object:
        """Return the processor's attribute."""
        return getattr(self._processor, name)

    def __call__(self, **inputs: Unpack[ProcessorInputs]) -> BatchFeature:
        """Process `inputs` with the chosen frames; empty images, videos or audios are left out."""
        processor_inputs = {
            name: value for name, value in inputs.items() if name not in ("images", "videos", "audios") or value
        }
        videos = inputs.get("videos") or []
        frame_batches = [video.frame_batch for video in videos if isinstance(video, PathWithFrames)]
        if not frame_batches:
            return self._processor(**processor_inputs)
        if len(frame_batches) != len(videos):
            raise AnswerError("this batch mixes videos with chosen frames and videos without")
        processor_inputs["videos"] = [frame_batch.take() for frame_batch in frame_batches]
        processor_inputs["video_metadata"] = [metadata_of(frame_batch) for frame_batch in frame_batches]
        return self._processor(**processor_inputs, do_sample_frames=False)


def metadata_of(frame_batch: FrameBatch) -> VideoMetadata:
    """Return a video's metadata for transformers: its length, and the frames' times as indices at a rate."""
    height, width = frame_batch.pixels.shape[1:3]
    clock = frame_batch.clock()
    return VideoMetadata(
        total_num_frames=clock.n_ticks,
        fps=clock.rate,
        duration=frame_batch.n_frames / frame_batch.fps,
        width=int(width),
        height=int(height),
        frames_indices=clock.ticks,
        video_backend="focus_eval",
    )
