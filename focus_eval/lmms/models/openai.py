"""Shows the chosen frames to GPT-4o, or any model behind an OpenAI-compatible API.

The stock wrappers build the request; where they would put images they find stand-ins, and the client puts the real
frames there (see `api_frames`). So both kinds of request send the same images, as PNG or as JPEG, in full size or
shrunk.
"""

from __future__ import annotations

import base64
import io
import json
import os
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar, Literal

import numpy as np
import openai
from lmms_eval.models.chat.openai import OpenAICompatible as OpenAIChat
from lmms_eval.models.simple.openai import OpenAICompatible as OpenAISimple
from PIL import Image
from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_attempt, wait_exponential_jitter

from focus_eval.core.errors import AnswerError, InvalidInput, RunError
from focus_eval.core.options import checked_values, option
from focus_eval.lmms.adapter import FrameAdapter
from focus_eval.lmms.arguments import read_argument
from focus_eval.lmms.frames import FrameBatch, PathWithFrames
from focus_eval.lmms.protocol import GenerateTrace
from focus_eval.lmms.requests import PendingRequest
from focus_eval.lmms.sent import sent_messages


@dataclass(frozen=True, kw_only=True)
class ImageFormat:
    """How frames are written into a request.

    Args:
        jpeg_quality: 1 to 95; None for PNG, which loses nothing.
        max_side: longest side in pixels; larger frames are shrunk (Lanczos). None for the frame's own size.
        max_megabytes: most bytes of one image; larger is refused.

    """

    jpeg_quality: int | None = None
    max_side: int | None = None
    max_megabytes: float = 20.0

    def data_url(self, image: Image.Image) -> str:
        """Return `image` as a data URL.

        Raises:
            AnswerError: more than `max_megabytes`.
        """
        if self.max_side is not None and max(image.size) > self.max_side:
            factor = self.max_side / max(image.size)
            size = (max(1, round(image.width * factor)), max(1, round(image.height * factor)))
            image = image.resize(size, Image.Resampling.LANCZOS)
        data = io.BytesIO()
        if self.jpeg_quality is None:
            image.save(data, format="PNG")
        else:
            image.convert("RGB").save(data, format="JPEG", quality=int(self.jpeg_quality))
        if data.tell() > self.max_megabytes * 2**20:
            raise AnswerError(
                f"a frame of {image.width} x {image.height} takes {data.tell() / 2**20:.1f} MB, "
                f"{self.max_megabytes:g} are allowed: set jpeg_quality or max_side"
            )
        kind = "png" if self.jpeg_quality is None else "jpeg"
        return f"data:image/{kind};base64,{base64.b64encode(data.getvalue()).decode()}"


@dataclass(frozen=True, kw_only=True)
class ShownFrames:
    """The frames of one question as they go into a request.

    Args:
        urls: data URLs of the images, in the order they are shown.
        times_seconds: written as text before each image ("[83.2 s]"); None for images alone.
        as_video: one part of type `video_url` in place of the images, for servers that take it (vLLM, SGLang): JPEG
            images behind one another, of which the server is asked to sample none away.
        detail: sent with each image; "" leaves it out.
    """

    urls: Sequence[str]
    times_seconds: Sequence[float] | None = None
    as_video: bool = False
    detail: str = ""

    def put_into(self, payload: dict[str, Any]) -> None:
        """Replace the stand-in images of `payload` by the frames.

        Raises:
            AnswerError: another number of stand-ins than of frames.
        """
        parts = list(image_parts(payload["messages"]))
        if len(parts) != len(self.urls):
            raise AnswerError(f"{len(self.urls)} frames to send, the wrapper made room for {len(parts)}")
        for part, url in zip(parts, self.urls, strict=True):
            part["image_url"]["url"] = url
            if self.detail:
                part["image_url"]["detail"] = self.detail
        for message in payload["messages"]:
            if isinstance(message["content"], list):
                message["content"] = self._arranged(message["content"])
        if self.as_video:
            extra = payload.setdefault("extra_body", {})
            extra["media_io_kwargs"] = {"video": {"num_frames": -1}}

    def _arranged(self, content: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the parts of a message with times before the images, or the images as one video."""
        images = [part for part in content if part.get("type") == "image_url"]
        if not images:
            return content
        if self.as_video:
            data = ",".join(part["image_url"]["url"].partition("base64,")[2] for part in images)
            video = {"type": "video_url", "video_url": {"url": f"data:video/jpeg;base64,{data}"}}
            first = content.index(images[0])
            rest = [part for part in content if part.get("type") != "image_url"]
            at = sum(part.get("type") != "image_url" for part in content[:first])
            return [*rest[:at], video, *rest[at:]]
        if self.times_seconds is None:
            return content
        times = iter(self.times_seconds)
        arranged: list[dict[str, Any]] = []
        for part in content:
            if part.get("type") == "image_url":
                arranged.append({"type": "text", "text": f"[{next(times):.1f} s]"})
            arranged.append(part)
        return arranged


def image_parts(messages: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the image parts of `messages` in order."""
    for message in messages:
        if isinstance(message["content"], list):
            yield from (part for part in message["content"] if part.get("type") == "image_url")


# A server that asks for a longer pause than this is not waited for.
LONGEST_PAUSE_SECONDS = 120.0
_LIKE_A_KEY = re.compile(r"\b(?:sk|rk|pk|key)-[A-Za-z0-9_*\-]{8,}")


class Spending:
    """What a run has spent on an API, over all its threads.

    Args:
        limit_dollars: no further question is sent once so much is spent; None for no limit. Questions under way then
            are still paid for.
        dollars_per_million_input, dollars_per_million_output: the service's prices per million tokens.

    Raises:
        InvalidInput: a limit without prices, or a negative number.
    """

    def __init__(
        self,
        limit_dollars: float | None = None,
        dollars_per_million_input: float | None = None,
        dollars_per_million_output: float | None = None,
    ) -> None:
        prices = (dollars_per_million_input, dollars_per_million_output)
        if limit_dollars is not None and None in prices:
            raise InvalidInput("max_cost needs price_input and price_output, in dollars per million tokens")
        if any(value is not None and not value >= 0 for value in (limit_dollars, *prices)):
            raise InvalidInput(f"max_cost and prices must be 0 or above, got {limit_dollars}, {prices[0]}, {prices[1]}")
        self._limit = limit_dollars
        self._prices = [price or 0.0 for price in prices]
        self._lock = threading.Lock()
        self._dollars = 0.0

    def check(self) -> None:
        """Refuse to send another question once the limit is reached.

        Raises:
            RunError: ends the run; what is answered is kept, and a later run with a higher limit goes on.
        """
        if self._limit is not None and self._dollars >= self._limit:
            raise RunError(
                f"max_cost={self._limit:g} dollars are spent ({self._dollars:.4f}); answers are kept, "
                "run again with a higher max_cost to continue"
            )

    def add(self, input_tokens: int, output_tokens: int) -> None:
        """Count the tokens of one answer."""
        with self._lock:
            self._dollars += (input_tokens * self._prices[0] + output_tokens * self._prices[1]) / 1e6


class QuestionClient:
    """Stands in for the wrapper's client while it asks one question: `client.chat.completions.create(**payload)`.

    It puts the frames where the wrapper made room for images, tries again what may succeed later, and notes
    requests, images, tokens and the error, from which the key is taken out.

    Args:
        client: an openai client that does not retry by itself.
        shown: the question's frames; None leaves the payload's own images (the wrapper's sampling).
        spending: counts what the answer cost, and says when enough is spent.
        attempts: requests at most.
        backoff_seconds: first pause; it doubles, with jitter, and a server's `Retry-After` counts for more.
        secrets: strings that appear nowhere.
    """

    def __init__(
        self,
        client: openai.OpenAI,
        trace: GenerateTrace,
        *,
        shown: ShownFrames | None,
        spending: Spending,
        attempts: int,
        backoff_seconds: float,
        secrets: Sequence[str],
    ) -> None:
        self._client = client
        self._trace = trace
        self._shown = shown
        self._spending = spending
        self._attempts = attempts
        self._backoff_seconds = backoff_seconds
        self._secrets = [secret for secret in secrets if secret]
        self._cost = {"requests": 0}
        trace.tokens = [self._cost]
        self.chat = SimpleNamespace(completions=self)

    def create(self, **payload: Any) -> Any:
        """Send `payload` with the question's frames in it, and return the API's answer.

        Raises:
            AnswerError: a refusal, or no usable answer after all attempts; one line without the key.
        """
        self._trace.n_calls += 1
        try:
            n_images = len(list(image_parts(payload["messages"])))
            if self._shown is not None:
                self._shown.put_into(payload)
            if self._trace.wants_sent:
                self._trace.sent = sent_messages(payload)
            self._cost["images"] = n_images
            self._trace.frames = [n_images]
            completion = self._retrying()(self._send, payload)
            self._note_usage(completion)
            _check_answer(completion)
            return completion
        except Exception as error:  # noqa: BLE001 (raised on without the key; the wrapper's own loop would log it)
            self._trace.error = AnswerError(self._one_line(error))
            raise self._trace.error from None

    def _send(self, payload: dict[str, Any]) -> Any:
        self._cost["requests"] += 1
        completion = self._client.chat.completions.create(**payload)
        if not getattr(completion, "choices", None):
            raise _UnreadableReply("a reply without choices")
        return completion

    def _retrying(self) -> Retrying:
        return Retrying(
            retry=retry_if_exception(may_succeed_later),
            stop=stop_after_attempt(self._attempts),
            wait=self._pause,
            reraise=True,
        )

    def _pause(self, state: RetryCallState) -> float:
        asked = retry_after_seconds(state.outcome.exception() if state.outcome else None)
        first = self._backoff_seconds
        own = wait_exponential_jitter(initial=first, max=60.0, jitter=first)(state)
        return max(own, asked or 0.0)

    def _note_usage(self, completion: Any) -> None:
        usage = getattr(completion, "usage", None)
        if usage is None:
            return
        self._cost["input"] = int(getattr(usage, "prompt_tokens", 0) or 0)
        self._cost["output"] = int(getattr(usage, "completion_tokens", 0) or 0)
        self._spending.add(self._cost["input"], self._cost["output"])
        details = getattr(usage, "completion_tokens_details", None)
        reasoning = getattr(details, "reasoning_tokens", None)
        if reasoning:
            self._cost["reasoning"] = int(reasoning)

    def _one_line(self, error: BaseException) -> str:
        text = " ".join(str(error).split())
        for secret in self._secrets:
            text = text.replace(secret, "[key]")
        text = _LIKE_A_KEY.sub("[key]", text)
        n_requests = self._cost["requests"]
        kind = "" if isinstance(error, AnswerError) else f"{type(error).__name__}: "
        tried = f" (after {n_requests} requests)" if n_requests > 1 else ""
        return f"{kind}{text[:400]}{tried}"


class _UnreadableReply(Exception):
    """A reply that is not an answer of this API; the next one may be."""


def may_succeed_later(error: BaseException) -> bool:
    """Return whether sending the same request again has a chance: no connection, time-out, 408, 409, 429, 5xx, and
    replies that cannot be read. Waiting does not restore a quota that is used up."""
    if isinstance(error, openai.APIStatusError):
        if error.code == "insufficient_quota" or (retry_after_seconds(error) or 0.0) > LONGEST_PAUSE_SECONDS:
            return False
        return error.status_code in (408, 409, 429) or error.status_code >= 500
    unreadable = (_UnreadableReply, json.JSONDecodeError, openai.APIResponseValidationError)
    return isinstance(error, (openai.APIConnectionError, *unreadable))


def retry_after_seconds(error: BaseException | None) -> float | None:
    """Return the pause a server asked for, or None."""
    response = getattr(error, "response", None)
    try:
        return float(response.headers["retry-after"]) if response is not None else None
    except (KeyError, ValueError):
        return None


def _check_answer(completion: Any) -> None:
    choice = completion.choices[0]
    refusal = getattr(choice.message, "refusal", None)
    if refusal:
        raise AnswerError(f"refused: {refusal}")
    if choice.finish_reason == "content_filter":
        raise AnswerError("refused: the content filter stopped the answer")
    if choice.message.content is None:
        raise AnswerError(f"an answer without text (finish reason {choice.finish_reason!r})")


@dataclass(frozen=True, kw_only=True)
class ApiOptions:
    """The adapter's own arguments.

    Args:
        jpeg_quality: None for PNG.
        max_side: longest side of a frame in pixels; None for its own size.
        timestamps: write each frame's time before it.
        as_video: send one video of JPEG frames, for vLLM and SGLang.
        detail: sent with each image where given.
        max_cost: in dollars; needs `price_input` and `price_output`, in dollars per million tokens.
    """

    jpeg_quality: int | None = option(None, at_least=1, at_most=95)
    max_side: int | None = option(None, at_least=16, at_most=1 << 16)
    timestamps: bool = False
    as_video: bool = False
    detail: Literal["auto", "low", "high"] | None = None
    max_cost: float | None = option(None, at_least=0)
    price_input: float | None = option(None, at_least=0)
    price_output: float | None = option(None, at_least=0)

    def __post_init__(self) -> None:
        checked_values("the API model", self)


@dataclass(frozen=True, kw_only=True)
class RequestFormat:
    """How frames go into a request: as images of some format and detail, with their times, or as one video."""

    images: ImageFormat
    timestamps: bool = False
    as_video: bool = False
    detail: str = ""

    def __post_init__(self) -> None:
        if self.detail and self.as_video:
            raise InvalidInput("detail is a field of images; as_video=true sends no images")
        if self.timestamps and self.as_video:
            raise InvalidInput("timestamps=true writes a time before each image; as_video=true sends no images")

    def shown(self, frame_batch: FrameBatch) -> ShownFrames:
        """Return the frames of `frame_batch`, already encoded, as they are shown."""
        times = frame_batch.times_seconds if self.timestamps else None
        return ShownFrames(urls=frame_batch.encoded, times_seconds=times, as_video=self.as_video, detail=self.detail)


class OpenAIAdapter(FrameAdapter):
    """The adapter of the OpenAI wrappers.

    Its own arguments are `ApiOptions`. `max_retries` counts requests, as in the stock wrapper; `timeout` (seconds, 120
    by default) is really set on the client.
    """

    frames_argument: ClassVar[str] = "max_frames_num"
    takes_mixed_sizes: ClassVar[bool] = True
    own_options: ClassVar[type | None] = ApiOptions

    client: Any
    num_concurrent: int
    max_retries: int
    retry_backoff_s: float
    timeout: float
    _spending: Spending

    def prepare(self, own: ApiOptions, wrapper_arguments: dict[str, Any]) -> RequestFormat:
        """Check how images are written, and that a key is where it does not end up in a log."""
        if "api_key" in wrapper_arguments:
            raise InvalidInput("api_key in --model_args would be printed by lmms-eval; set OPENAI_API_KEY instead")
        uses_azure = read_argument(self.model_id, "azure_openai", bool, wrapper_arguments.get("azure_openai", False))
        name = "AZURE_OPENAI_API_KEY" if uses_azure else "OPENAI_API_KEY"
        if not os.getenv(name):
            raise InvalidInput(f"{self.model_id} needs {name} in the environment (any word for a server without keys)")
        if wrapper_arguments.get("pass_video_url"):
            raise InvalidInput("pass_video_url=True lets the server sample the video; the chosen frames need images")
        self._spending = Spending(own.max_cost, own.price_input, own.price_output)
        images = ImageFormat(
            jpeg_quality=95 if own.as_video and own.jpeg_quality is None else own.jpeg_quality,
            max_side=own.max_side,
            max_megabytes=read_argument(
                self.model_id, "max_size_in_mb", float, wrapper_arguments.get("max_size_in_mb", 20)
            ),
        )
        return RequestFormat(images=images, timestamps=own.timestamps, as_video=own.as_video, detail=own.detail or "")

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


class FocusGPT4o(OpenAIAdapter, OpenAISimple):  # type: ignore[misc]
    """OpenAI-compatible API, simple requests: the text first, then the frames."""

    model_id: ClassVar[str] = "focus_gpt4o"
    stock_name: ClassVar[str] = "openai"

    def encode_video(self, video_path: Any, for_get_frames_num: int) -> list[str]:
        """Return one stand-in per frame for a path that carries frames; other paths are read as always."""
        if isinstance(video_path, PathWithFrames):
            return ["" for _ in video_path.frame_batch.frames]
        return list(super().encode_video(video_path, for_get_frames_num))


class FocusGPT4oChat(OpenAIAdapter, OpenAIChat):  # type: ignore[misc]
    """OpenAI-compatible API, chat requests: the frames where the document has its video."""

    model_id: ClassVar[str] = "focus_gpt4o"
    stock_name: ClassVar[str] = "openai"
    is_simple: ClassVar[bool] = False
