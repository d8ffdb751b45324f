"""Shows the chosen frames to GPT-4o, or any model behind an OpenAI-compatible API.

The stock wrappers build the request; where they would put images they find stand-ins, and the client puts the real
frames there (see `api_frames`). So both kinds of request send the same images, as PNG or as JPEG, in full size or
shrunk.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from lmms_eval.models.chat.openai import OpenAICompatible as OpenAIChat
from lmms_eval.models.simple.openai import OpenAICompatible as OpenAISimple
from PIL import Image

from focus_eval.errors import InvalidInput, unknown_name
from focus_eval.lmms.arguments import read_argument
from focus_eval.lmms.frame_batch import FrameBatch, PathWithFrames
from focus_eval.lmms.generate_trace import GenerateTrace
from focus_eval.lmms.models.api_client import QuestionClient, Spending
from focus_eval.lmms.models.api_frames import ImageFormat, ShownFrames
from focus_eval.lmms.requests import PendingRequest
from focus_eval.lmms.seam import FrameSeam

DETAILS = ("auto", "low", "high")
# The adapter's own arguments, with their types.
_OWN: Mapping[str, Any] = {
    "jpeg_quality": int | None, "max_side": int | None, "timestamps": bool, "as_video": bool, "detail": str | None,
    "max_cost": float | None, "price_input": float | None, "price_output": float | None,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class RequestFormat:
    """How frames go into a request: as images of some format and detail, with their times, or as one video."""

    images: ImageFormat
    timestamps: bool = False
    as_video: bool = False
    detail: str = ""

    def __post_init__(self) -> None:
        if self.detail not in ("", *DETAILS):
            raise unknown_name("detail", self.detail, DETAILS)
        if self.detail and self.as_video:
            raise InvalidInput("detail is a field of images; as_video=true sends no images")
        if self.timestamps and self.as_video:
            raise InvalidInput("timestamps=true writes a time before each image; as_video=true sends no images")

    def shown(self, frame_batch: FrameBatch) -> ShownFrames:
        """Return the frames of `frame_batch`, already encoded, as they are shown."""
        times = frame_batch.times_seconds if self.timestamps else None
        return ShownFrames(urls=frame_batch.encoded, times_seconds=times, as_video=self.as_video, detail=self.detail)


class OpenAISeam(FrameSeam):
    """The seam of the OpenAI wrappers.

    Own arguments: `jpeg_quality` (PNG without it) and `max_side` (longest side in pixels); `timestamps` (true writes
    each frame's time before it); `detail` (auto, low or high, sent with each image where given); `as_video` (true sends
    one video of JPEG frames, for vLLM and SGLang); `max_cost` in dollars, with `price_input` and `price_output` in
    dollars per million tokens. `max_retries` counts requests, as in the stock wrapper; `timeout` (seconds, 120 by
    default) is really set on the client.
    """

    model_id: ClassVar[str] = "focus_gpt4o"
    frames_argument: ClassVar[str] = "max_frames_num"
    takes_mixed_sizes: ClassVar[bool] = True
    own_arguments: ClassVar[tuple[str, ...]] = tuple(_OWN)

    client: Any
    num_concurrent: int
    max_retries: int
    retry_backoff_s: float
    timeout: float
    _spending: Spending

    def prepare(self, own: Mapping[str, Any], wrapper_arguments: dict[str, Any]) -> RequestFormat:
        """Check how images are written, and that a key is where it does not end up in a log."""
        if "api_key" in wrapper_arguments:
            raise InvalidInput("api_key in --model_args would be printed by lmms-eval; set OPENAI_API_KEY instead")
        uses_azure = read_argument(self.model_id, "azure_openai", bool, wrapper_arguments.get("azure_openai", False))
        name = "AZURE_OPENAI_API_KEY" if uses_azure else "OPENAI_API_KEY"
        if not os.getenv(name):
            raise InvalidInput(f"{self.model_id} needs {name} in the environment (any word for a server without keys)")
        if wrapper_arguments.get("pass_video_url"):
            raise InvalidInput("pass_video_url=True lets the server sample the video; the chosen frames need images")
        given = {
            name: read_argument(self.model_id, name, kind, own[name]) for name, kind in _OWN.items() if name in own
        }
        self._spending = Spending(*(given.get(name) for name in ("max_cost", "price_input", "price_output")))
        as_video, quality = given.get("as_video", False), given.get("jpeg_quality")
        images = ImageFormat(
            jpeg_quality=95 if as_video and quality is None else quality,
            max_side=given.get("max_side"),
            max_megabytes=read_argument(
                self.model_id, "max_size_in_mb", float, wrapper_arguments.get("max_size_in_mb", 20)
            ),
        )
        timestamps, detail = given.get("timestamps", False), given.get("detail") or ""
        return RequestFormat(images=images, timestamps=timestamps, as_video=as_video, detail=detail)

    def defaults(self, wrapper_arguments: dict[str, Any]) -> None:
        """Name the model the paper used, and a time-out long enough for many images."""
        if "model" not in wrapper_arguments:
            wrapper_arguments.setdefault("model_version", "gpt-4o")
        wrapper_arguments.setdefault("timeout", 120)

    @property
    def questions_at_once(self) -> int | None:
        """Questions sent in parallel: the wrapper's `num_concurrent`."""
        return self.num_concurrent

    def ready(self, frame_batch: FrameBatch) -> None:
        """Write the frames as images, and let go of the pixels: many questions are under way at once."""
        frame_batch.encoded = [self.prepared.images.data_url(image) for image in frame_batch.images()]
        frame_batch.encoded_bytes = sum(map(len, frame_batch.encoded))
        frame_batch.pixels = np.empty((0, *frame_batch.pixels.shape[1:]), dtype=np.uint8)

    def trace_model(self, view: Any, batch: list[PendingRequest], trace: GenerateTrace) -> None:
        """Give `view` a client of its own that sends the frames of its one question and notes the cost."""
        self._spending.check()
        frame_batch = batch[0].frame_batch
        view.client = QuestionClient(
            self.client.with_options(max_retries=0, timeout=float(self.timeout)),
            trace,
            shown=None if frame_batch is None else self.prepared.shown(frame_batch),
            spending=self._spending,
            attempts=int(self.max_retries),
            backoff_seconds=self.retry_backoff_s,
            secrets=[str(self.client.api_key or "")],
        )
        view.max_retries = 1  # the client tries again by itself, and knows what is worth it

    def video_parts(self, frame_batch: FrameBatch) -> list[dict[str, Any]]:
        """Return one stand-in image per frame."""
        return [{"type": "image", "url": Image.new("RGB", (1, 1))} for _ in frame_batch.frames]


class FocusGPT4o(OpenAISeam, OpenAISimple):  # type: ignore[misc]
    """OpenAI-compatible API, simple requests: the text first, then the frames."""

    def encode_video(self, video_path: Any, for_get_frames_num: int) -> list[str]:
        """Return one stand-in per frame for a path that carries frames; other paths are read as always."""
        if isinstance(video_path, PathWithFrames):
            return ["" for _ in video_path.frame_batch.frames]
        return list(super().encode_video(video_path, for_get_frames_num))


class FocusGPT4oChat(OpenAISeam, OpenAIChat):  # type: ignore[misc]
    """OpenAI-compatible API, chat requests: the frames where the document has its video."""
