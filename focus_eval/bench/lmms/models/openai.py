"""Shows the chosen frames to GPT-4o, or any model behind an OpenAI-compatible API.

The stock wrappers build the request with placeholder images, which our client replaces by the real frames
(`replace_images`). So simple and chat requests send the same images, as PNG or as JPEG, in full size or shrunk.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, ClassVar

from lmms_eval.models.chat.openai import OpenAICompatible as OpenAIChat
from lmms_eval.models.simple.openai import OpenAICompatible as OpenAISimple
from PIL import Image

from focus_eval.bench.answering.frames import FrameBatch, PathWithFrames
from focus_eval.bench.answering.questions import FramedQuestion, MessagePart
from focus_eval.bench.answering.tracing import (
    ChatPayload,
    GenerateTrace,
    PayloadMessage,
    PayloadPart,
    describe_messages,
    image_parts,
)
from focus_eval.bench.lmms.adapter import FrameAdapter
from focus_eval.bench.lmms.arguments import read_argument
from focus_eval.core.errors import AnswerError, InvalidInput
from focus_eval.core.options import checked_values, option
from focus_eval.keyframes.llms.chat import MAX_PAUSE_SECONDS, ChatClient, ImageFormat, RefusedSettings, Spending

if TYPE_CHECKING:
    import openai
    from openai.types.chat import ChatCompletion
    from typing_extensions import Self, Unpack


class QuestionClient:
    """Replaces the wrapper's client for one question, asked by `client.chat.completions.create(**payload)`.

    It puts the frames in place of the wrapper's placeholder images, and records the numbers of requests, images and
    tokens, and the error.

    Args:
        client: sends requests, and repeats those that may succeed later.
        trace: receives the record.
        urls: data URLs of the question's frames; None keeps the payload's own images (the wrapper's sampling).
        times_seconds: times of the frames, each written before its frame; None writes no times.
        system_prompt: sent as the first message; "" sends none.
    """

    def __init__(
        self,
        client: ChatClient,
        trace: GenerateTrace,
        *,
        urls: Sequence[str] | None,
        times_seconds: Sequence[float] | None = None,
        system_prompt: str = "",
    ) -> None:
        self._client = client
        self._system: list[PayloadMessage] = [{"role": "system", "content": system_prompt}] if system_prompt else []
        self._trace = trace
        self._urls = urls
        self._times_seconds = times_seconds
        self._cost = {"requests": 0}
        trace.tokens = [self._cost]
        self.chat = SimpleNamespace(completions=self)

    def create(self, **payload: Unpack[ChatPayload]) -> ChatCompletion:
        """Send `payload` with the question's frames in it, and return the API's answer.

        Raises:
            AnswerError: the service refuses, or gives no usable answer in any attempt; the message is one line without
                the API key.
        """
        self._trace.n_calls += 1
        try:
            n_images = len(list(image_parts(payload["messages"])))
            if self._urls is not None:
                replace_images(payload, self._urls)
            if self._times_seconds is not None:
                write_times(payload, self._times_seconds)
            payload["messages"] = [*self._system, *payload["messages"]]
            if self._trace.wants_prompt_record:
                self._trace.sent = describe_messages(payload)
            self._cost["images"] = n_images
            self._trace.frames = [n_images]
            completion: ChatCompletion = self._client.create(dict(payload), self._cost)
        except AnswerError as error:
            self._trace.error = error
            raise
        except Exception as error:  # noqa: BLE001 (the wrapper's own loop would log it)
            self._trace.error = AnswerError(self._client.one_line(error))
            raise self._trace.error from None
        return completion


def replace_images(payload: ChatPayload, urls: Sequence[str]) -> None:
    """Replace, in place, the placeholder images of a request by `urls`; raise AnswerError if their numbers differ."""
    parts = list(image_parts(payload["messages"]))
    if len(parts) != len(urls):
        raise AnswerError(f"{len(urls)} frames to send, the wrapper made room for {len(parts)}")
    for part, url in zip(parts, urls, strict=True):
        part["image_url"]["url"] = url


def write_times(payload: ChatPayload, times_seconds: Sequence[float]) -> None:
    """Put, in place, the time of each frame before its image, in the form of Qwen3-VL's prompts: <13.7 seconds>."""
    times = iter(times_seconds)
    for message in payload["messages"]:
        if isinstance(message["content"], list):
            parts: list[PayloadPart] = []
            for part in message["content"]:
                if part.get("type") == "image_url":
                    parts.append({"type": "text", "text": f"<{next(times):.1f} seconds>"})
                parts.append(part)
            message["content"] = parts


@dataclass(frozen=True, kw_only=True)
class ApiOptions:
    """The adapter's own arguments.

    Args:
        jpeg_quality: quality of JPEG images; None for PNG.
        max_side: longest side of a frame in pixels; None for its own size.
        times: True to write each frame's time before it; of the paper's models none is told.
        max_cost: spending limit in dollars; needs `price_input` and `price_output`, in dollars per million tokens.
        max_pause_s: a service that asks for a longer pause, in seconds, is not asked again.
        system_prompt: the first message of every request, of the role "system"; "" sends none.
    """

    jpeg_quality: int | None = option(None, at_least=1, at_most=95)
    max_side: int | None = option(None, at_least=16, at_most=1 << 16)
    times: bool = False
    max_cost: float | None = option(None, at_least=0)
    price_input: float | None = option(None, at_least=0)
    price_output: float | None = option(None, at_least=0)
    max_pause_s: float = option(MAX_PAUSE_SECONDS, at_least=0)
    system_prompt: str = ""

    def __post_init__(self) -> None:
        """Raise InvalidInput for a value of another type or outside its range."""
        checked_values("the API model", self)


@dataclass(frozen=True)
class RequestFormat:
    """Form of the frames in a request."""

    images: ImageFormat
    times: bool = False

    # This text is part of a cell's identity: if it changed, the cell would not find its earlier rows.
    def __str__(self) -> str:
        return f"RequestFormat(images={self.images!r}, timestamps={self.times}, as_video=False, detail='')"


class OpenAIAdapter(FrameAdapter):
    """The adapter of the OpenAI wrappers.

    Its own arguments are `ApiOptions`. `max_retries` counts requests, as in the stock wrapper; `timeout` (seconds, 120
    by default) is passed to the client, which the stock wrapper does not do.
    """

    frames_argument: ClassVar[str] = "max_frames_num"
    takes_mixed_sizes: ClassVar[bool] = True
    own_options: ClassVar[type | None] = ApiOptions

    prepared: RequestFormat
    client: openai.OpenAI
    num_concurrent: int
    max_retries: int
    retry_backoff_s: float
    timeout: float
    _spending: Spending
    _refused: RefusedSettings
    _max_pause_seconds: float
    _system_prompt: str

    def prepare(self, adapter_arguments: object, wrapper_arguments: dict[str, object]) -> RequestFormat:
        """Check the image format, and that the API key is in the environment, where no log prints it."""
        assert isinstance(adapter_arguments, ApiOptions)
        api_options = adapter_arguments
        if "api_key" in wrapper_arguments:
            raise InvalidInput("api_key in --model_args would be printed by lmms-eval; set OPENAI_API_KEY instead")
        uses_azure = read_argument(self.model_id, "azure_openai", bool, wrapper_arguments.get("azure_openai", False))
        name = "AZURE_OPENAI_API_KEY" if uses_azure else "OPENAI_API_KEY"
        if not os.getenv(name):
            raise InvalidInput(f"{self.model_id} needs {name} in the environment (any word for a server without keys)")
        if wrapper_arguments.get("pass_video_url"):
            raise InvalidInput("pass_video_url=True lets the server sample the video; the chosen frames need images")
        self._spending = Spending(api_options.max_cost, api_options.price_input, api_options.price_output)
        self._refused = RefusedSettings()
        self._max_pause_seconds = api_options.max_pause_s
        self._system_prompt = api_options.system_prompt
        images = ImageFormat(
            jpeg_quality=api_options.jpeg_quality,
            max_side=api_options.max_side,
            max_megabytes=read_argument(
                self.model_id, "max_size_in_mb", float, wrapper_arguments.get("max_size_in_mb", 20)
            ),
        )
        return RequestFormat(images, times=api_options.times)

    def defaults(self, wrapper_arguments: dict[str, object]) -> None:
        """Set the paper's model, and a time-out long enough for many images."""
        if "model" not in wrapper_arguments:
            wrapper_arguments.setdefault("model_version", "gpt-4o")
        wrapper_arguments.setdefault("timeout", 120)

    @property
    def questions_at_once(self) -> int | None:
        """Questions sent in parallel: the wrapper's `num_concurrent`."""
        return self.num_concurrent

    def ready(self, frame_batch: FrameBatch) -> FrameBatch:
        """Return the frames as data URLs, which take less memory."""
        urls = [self.prepared.images.data_url(image) for image in frame_batch.images()]
        return frame_batch.with_encoded(urls, n_bytes=sum(map(len, urls)))

    def trace_model(self, view: Self, batch: Sequence[FramedQuestion], trace: GenerateTrace) -> None:
        """Give `view` its own client, which sends the frames of one question and records the cost."""
        self._spending.check()
        frame_batch = batch[0].frame_batch
        if self.prepared.times and frame_batch is None:
            raise InvalidInput(
                "times=true: the wrapper's own sampling (sampler=native) does not state the frames' times"
            )
        client = ChatClient(
            self.client.with_options(max_retries=0, timeout=float(self.timeout)),
            spending=self._spending,
            attempts=int(self.max_retries),
            backoff_seconds=self.retry_backoff_s,
            secrets=[str(self.client.api_key or "")],
            refused=self._refused,
            max_pause_seconds=self._max_pause_seconds,
        )
        question_client = QuestionClient(
            client,
            trace,
            urls=frame_batch.take_encoded() if frame_batch else None,
            times_seconds=frame_batch.times_seconds if frame_batch and self.prepared.times else None,
            system_prompt=self._system_prompt,
        )
        # Our client repeats failed requests itself, so the wrapper must not.
        vars(view).update(client=question_client, max_retries=1)

    def video_parts(self, frame_batch: FrameBatch) -> list[MessagePart]:
        """Return one placeholder image per frame."""
        return [{"type": "image", "url": Image.new("RGB", (1, 1))} for _ in frame_batch.frames]


class FocusGPT4o(OpenAIAdapter, OpenAISimple):  # type: ignore[misc]
    """OpenAI-compatible API, simple requests: the text first, then the frames."""

    model_id: ClassVar[str] = "focus_gpt4o"
    stock_name: ClassVar[str] = "openai"
    requests: ClassVar[str] = "simple"

    def encode_video(self, video_path: object, for_get_frames_num: int) -> list[str]:
        """Return one placeholder per frame of a path that carries frames; the stock wrapper reads other paths."""
        if isinstance(video_path, PathWithFrames):
            return ["" for _ in video_path.frame_batch.frames]
        return list(super().encode_video(video_path, for_get_frames_num))


class FocusGPT4oChat(OpenAIAdapter, OpenAIChat):  # type: ignore[misc]
    """OpenAI-compatible API, chat requests: the frames where the document has its video."""

    model_id: ClassVar[str] = "focus_gpt4o"
    stock_name: ClassVar[str] = "openai"
    is_simple: ClassVar[bool] = False
    interleaves: ClassVar[bool] = True
