"""How is one question sent to an OpenAI-compatible API, and what did that cost?"""

from __future__ import annotations

import base64
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import openai
from PIL import Image
from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_attempt, wait_exponential_jitter

from focus_eval.errors import AnswerError, InvalidInput
from focus_eval.lmms.generate_trace import GenerateTrace

# A server that asks for a longer pause than this is not waited for.
LONGEST_PAUSE_SECONDS = 120.0
_LIKE_A_KEY = re.compile(r"\b(?:sk|rk|pk|key)-[A-Za-z0-9_*\-]{8,}")


@dataclass(frozen=True, kw_only=True)
class ImageFormat:
    """How frames are written into a request.

    Args:
        jpeg_quality: 1 to 95; None for PNG, which loses nothing.
        max_side: longest side in pixels; larger frames are shrunk (Lanczos). None for the frame's own size.
        max_megabytes: most bytes of one image; larger is refused.

    Raises:
        InvalidInput: a value outside its range.
    """

    jpeg_quality: int | None = None
    max_side: int | None = None
    max_megabytes: float = 20.0

    def __post_init__(self) -> None:
        for name, low, high in (("jpeg_quality", 1, 95), ("max_side", 16, 1 << 16)):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or value != int(value) or not low <= value <= high):
                raise InvalidInput(f"{name} must be a whole number from {low} to {high}, got {value!r}")

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


class QuestionClient:
    """Stands in for the wrapper's client while it asks one question: `client.chat.completions.create(**payload)`.

    It puts the frames where the wrapper left place for images, tries again what may succeed later, and notes
    requests, images, tokens and the error, from which the key is taken out.

    Args:
        client: an openai client that does not retry by itself.
        images: the question's frames as data URLs; None leaves the payload's own images (the wrapper's sampling).
        attempts: requests at most.
        backoff_seconds: first pause; it doubles, with jitter, and a server's `Retry-After` counts for more.
        secrets: strings that appear nowhere.
    """

    def __init__(
        self,
        client: openai.OpenAI,
        trace: GenerateTrace,
        *,
        images: Sequence[str] | None,
        attempts: int,
        backoff_seconds: float,
        secrets: Sequence[str],
    ) -> None:
        self._client = client
        self._trace = trace
        self._images = images
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
            parts = list(image_parts(payload["messages"]))
            if self._images is not None:
                _fill(parts, self._images)
            self._cost["images"] = len(parts)
            self._trace.frames = [len(parts)]
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
    """A reply that is no answer of this API; the next one may be."""


def may_succeed_later(error: BaseException) -> bool:
    """Return whether sending the same request again has a chance: no connection, time-out, 408, 409, 429, 5xx, and
    replies that cannot be read. A spent quota stays spent."""
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


def image_parts(messages: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the image parts of `messages` in order."""
    for message in messages:
        if isinstance(message["content"], list):
            yield from (part for part in message["content"] if part.get("type") == "image_url")


def _fill(parts: list[dict[str, Any]], urls: Sequence[str]) -> None:
    if len(parts) != len(urls):
        raise AnswerError(f"{len(urls)} frames to send, the wrapper left place for {len(parts)}")
    for part, url in zip(parts, urls, strict=True):
        part["image_url"]["url"] = url


def _check_answer(completion: Any) -> None:
    choice = completion.choices[0]
    refusal = getattr(choice.message, "refusal", None)
    if refusal:
        raise AnswerError(f"refused: {refusal}")
    if choice.finish_reason == "content_filter":
        raise AnswerError("refused: the content filter stopped the answer")
    if choice.message.content is None:
        raise AnswerError(f"an answer without text (finish reason {choice.finish_reason!r})")
