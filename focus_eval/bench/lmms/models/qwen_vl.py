"""Shows the chosen frames to Qwen2-VL, Qwen2.5-VL, Qwen3-VL and Qwen3.5.

The models' wrappers pass a video's path to qwen-vl-utils, whose readers are entries of a table. Each entry is replaced
once (`patches.wrap_video_readers`): a path that carries frames gives its frames, with their indices, rate and length;
any other path goes to the stock reader. Resizing to `max_pixels`, and all later steps, are unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, ClassVar

import torch
from lmms_eval.models.chat.qwen2_5_vl import Qwen2_5_VL as Qwen2_5VLChat
from lmms_eval.models.chat.qwen3_5 import Qwen3_5 as Qwen3_5Chat
from lmms_eval.models.chat.qwen3_vl import Qwen3_VL as Qwen3VLChat
from lmms_eval.models.model_utils.media_encoder import encode_image_to_data_url
from lmms_eval.models.simple.qwen2_5_vl import Qwen2_5_VL
from lmms_eval.models.simple.qwen2_vl import Qwen2_VL
from lmms_eval.models.simple.qwen3_5 import Qwen3_5
from lmms_eval.models.simple.qwen3_vl import Qwen3_VL
from PIL import Image

from focus_eval.bench.answering.frames import FrameBatch, PathWithFrames
from focus_eval.bench.answering.questions import FramedQuestion
from focus_eval.bench.answering.tracing import GenerateInputs, GenerateTrace
from focus_eval.bench.lmms.adapter import FrameAdapter
from focus_eval.bench.lmms.parsing import StrippedReply
from focus_eval.bench.lmms.patches import ElementReader, VideoReading, open_no_video_twice, wrap_video_readers
from focus_eval.core.errors import MissingDependency

if TYPE_CHECKING:
    from transformers import BatchFeature
    from typing_extensions import Self, Unpack

    from focus_eval.bench.answering.processors import Processor, ProcessorInputs


class QwenAdapter(FrameAdapter):
    """The adapter of every wrapper that reads videos through qwen-vl-utils."""

    packages: ClassVar[tuple[str, ...]] = ("qwen-vl-utils",)
    frames_argument: ClassVar[str] = "max_num_frames"
    frames_merged: ClassVar[int] = 2  # the vision tower takes frames in pairs; an odd last one is repeated
    takes_mixed_sizes: ClassVar[bool] = True
    prepares_ahead: ClassVar[bool] = True

    @classmethod
    def check_installed(cls) -> None:
        """Raise `MissingDependency` without qwen-vl-utils; replace its readers, and the wrappers' use of decord."""
        if find_spec("qwen_vl_utils") is None:
            raise MissingDependency(f"{cls.model_id} needs qwen-vl-utils: pip install qwen-vl-utils")
        wrap_video_readers(wrap_reader)
        open_no_video_twice()

    def visuals(self, frame_batch: FrameBatch) -> Sequence[object]:
        """Return the video, or one image per frame if frames differ in size."""
        return frame_batch.images() if frame_batch.scales is not None else [PathWithFrames(frame_batch)]

    def frames_reaching(self, inputs: GenerateInputs) -> list[int] | None:
        """Return the number of frames per video, in whole pairs; None if the frames came as images."""
        grid = inputs.get("video_grid_thw")
        if grid is None:
            return None if inputs.get("image_grid_thw") is not None else [0] * int(inputs["input_ids"].shape[0])
        return [self.frames_merged * int(pairs) for pairs in grid[:, 0]]


class ThinkingQwenAdapter(QwenAdapter):
    """The adapter of wrappers that remove the thinking from replies (`enable_thinking`): rows keep the whole reply."""

    def _strip_thinking(self, answer: str) -> str:
        """The reply without its thinking, as a text that also carries the whole reply."""
        return StrippedReply(self.strip_reply(answer), whole=answer)

    def strip_reply(self, text: str) -> str:
        """Return the reply without its thinking, as the stock method gives it."""
        return str(super()._strip_thinking(text))  # type: ignore[misc]


class FocusQwen2VL(QwenAdapter, Qwen2_VL):  # type: ignore[misc]
    """Qwen2-VL, which has simple requests only."""

    model_id = "focus_qwen2_vl"
    stock_name: ClassVar[str] = "qwen2_vl"
    checkpoint_types: ClassVar[tuple[str, ...]] = ("qwen2_vl",)

    def _encode_image_data_url(self, image: Image.Image) -> str:
        """`image` as a data URL in PNG, which keeps the decoded pixels; the stock wrapper uses JPEG."""
        return str(encode_image_to_data_url(image, image_format="PNG"))


class FocusQwen2_5VL(QwenAdapter, Qwen2_5_VL):  # type: ignore[misc]
    """Qwen2.5-VL, simple requests."""

    model_id = "focus_qwen2_5_vl"
    requests: ClassVar[str] = "simple"
    stock_name: ClassVar[str] = "qwen2_5_vl"
    checkpoint_types: ClassVar[tuple[str, ...]] = ("qwen2_5_vl",)

    def trace_model(self, view: Self, batch: Sequence[FramedQuestion], trace: GenerateTrace) -> None:
        """Trace the model as every adapter does, and give the processor the frames' times.

        Without the times the processor would assume 24 frames a second.
        """
        super().trace_model(view, batch, trace)
        frame_batches = [framed.frame_batch for framed in batch if framed.frame_batch is not None]
        if len(frame_batches) == len(batch) and all(frame_batch.scales is None for frame_batch in frame_batches):
            view.processor = TimedProcessor(view.processor, [metadata_of(frame_batch) for frame_batch in frame_batches])


class FocusQwen2_5VLChat(QwenAdapter, Qwen2_5VLChat):  # type: ignore[misc]
    """Qwen2.5-VL, chat requests: lmms-eval's default."""

    model_id = "focus_qwen2_5_vl"
    stock_name: ClassVar[str] = "qwen2_5_vl"
    is_simple: ClassVar[bool] = False


class FocusQwen3VL(ThinkingQwenAdapter, Qwen3_VL):  # type: ignore[misc]
    """Qwen3-VL, simple requests."""

    model_id = "focus_qwen3_vl"
    requests: ClassVar[str] = "simple"
    stock_name: ClassVar[str] = "qwen3_vl"
    checkpoint_types: ClassVar[tuple[str, ...]] = ("qwen3_vl", "qwen3_vl_moe")


class FocusQwen3VLChat(ThinkingQwenAdapter, Qwen3VLChat):  # type: ignore[misc]
    """Qwen3-VL, chat requests: lmms-eval's default."""

    model_id = "focus_qwen3_vl"
    stock_name: ClassVar[str] = "qwen3_vl"
    is_simple: ClassVar[bool] = False


class FocusQwen3_5(ThinkingQwenAdapter, Qwen3_5):  # type: ignore[misc]
    """Qwen3.5, simple requests. Its wrapper samples answers at temperature 0.7 if a task sets none."""

    model_id = "focus_qwen3_5"
    requests: ClassVar[str] = "simple"
    stock_name: ClassVar[str] = "qwen3_5"


class FocusQwen3_5Chat(ThinkingQwenAdapter, Qwen3_5Chat):  # type: ignore[misc]
    """Qwen3.5, chat requests: lmms-eval's default."""

    model_id = "focus_qwen3_5"
    stock_name: ClassVar[str] = "qwen3_5"
    is_simple: ClassVar[bool] = False


class TimedProcessor:
    """Wraps a processor so that it gets rate, length and indices of its videos; all else is the processor's."""

    def __init__(self, processor: Processor, metadata: list[dict[str, object]]) -> None:
        self._processor = processor
        self._metadata = metadata

    def __getattr__(self, name: str) -> object:
        """Return the processor's attribute."""
        return getattr(self._processor, name)

    def __call__(self, **inputs: Unpack[ProcessorInputs]) -> BatchFeature:
        """Process `inputs`, with the metadata if there is one entry for each video; both are in the same order."""
        if len(inputs.get("videos") or []) != len(self._metadata):
            return self._processor(**inputs)
        return self._processor(**inputs, video_metadata=self._metadata, do_sample_frames=False)


def metadata_of(frame_batch: FrameBatch) -> dict[str, object]:
    """Return the metadata that qwen-vl-utils's readers return with the frames of a video."""
    clock = frame_batch.clock()
    return {
        "fps": clock.rate,
        "frames_indices": clock.ticks,
        "total_num_frames": clock.n_ticks,
        "video_backend": "focus_eval",
    }


def wrap_reader(read: ElementReader) -> ElementReader:
    """Return a reader that gives a `PathWithFrames` its own frames and leaves every other path to `read`."""
    if getattr(read, "feeds_frames", False):
        return read

    def read_or_feed(element: dict[str, object]) -> VideoReading:
        """Return frames, metadata and rate of the video `element`: its carried frames, or what `read` returns."""
        video = element["video"]
        if not isinstance(video, PathWithFrames):
            return read(element)
        frame_batch = video.frame_batch
        frames = torch.from_numpy(frame_batch.take()).permute(0, 3, 1, 2)
        return frames, metadata_of(frame_batch), len(frame_batch.frames) / frame_batch.n_frames * frame_batch.fps

    read_or_feed.feeds_frames = True  # type: ignore[attr-defined]
    return read_or_feed
