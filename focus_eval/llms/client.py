"""Sends requests to an OpenAI-compatible service: retries, spending, images in a request, errors without the key."""

from __future__ import annotations

import base64
import io
import json
import random
import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import openai
from PIL import Image
from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_attempt

from focus_eval.core.errors import AnswerError, InvalidInput, RunError


@dataclass(frozen=True, kw_only=True)
class ImageFormat:
    """How frames are encoded in a request.

    Args:
        jpeg_quality: 1 to 95; None for PNG, which is lossless.
        max_side: longest side in pixels; larger frames are shrunk (Lanczos). None for the frame's own size.
        max_megabytes: most megabytes of one image; a larger one is refused.
    """

    jpeg_quality: int | None = None
    max_side: int | None = None
    max_megabytes: float = 20.0

    def data_url(self, image: Image.Image) -> str:
        """Return `image`, shrunk to `max_side` and encoded, as a data URL.

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


# A server that asks for a longer pause than this is not waited for.
LONGEST_PAUSE_SECONDS = 120.0
_LIKE_A_KEY = re.compile(r"\b(?:sk|rk|pk|key)-[A-Za-z0-9_*\-]{8,}")


class Spending:
    """Spending of a run on an API, over all its threads.

    Args:
        limit_dollars: dollars after which no further question is sent; None for no limit. Questions already under way
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
        """Raise RunError if the limit is reached; the run ends, and a later run with a higher limit continues."""
        if self._limit is not None and self._dollars >= self._limit:
            raise RunError(
                f"max_cost={self._limit:g} dollars are spent ({self._dollars:.4f}); answers are kept, "
                "run again with a higher max_cost to continue"
            )

    def dollars(self, input_tokens: float, output_tokens: float) -> float:
        """Return the price of these numbers of tokens in dollars; 0.0 without prices."""
        return (input_tokens * self._prices[0] + output_tokens * self._prices[1]) / 1e6

    def add(self, input_tokens: int, output_tokens: int) -> None:
        """Add the price of these numbers of tokens to the dollars spent; safe for threads."""
        with self._lock:
            self._dollars += self.dollars(input_tokens, output_tokens)


class ChatClient:
    """Sends payloads one by one, retries those that may succeed later, and counts requests and tokens.

    Args:
        client: an openai client that does not retry by itself.
        spending: adds up the price of the answers.
        attempts: most requests for one payload.
        backoff_seconds: first pause; it doubles, with jitter, and is at least the server's `Retry-After`.
        secrets: strings to remove from error messages.
    """

    def __init__(
        self,
        client: openai.OpenAI,
        *,
        spending: Spending,
        attempts: int,
        backoff_seconds: float,
        secrets: Sequence[str],
    ) -> None:
        self._client = client
        self._spending = spending
        self._attempts = attempts
        self._backoff_seconds = backoff_seconds
        # Its own: with that of the process, another thread's task of lmms-eval may be guessing an answer just then.
        self._jitter = random.Random()
        self._secrets = [secret for secret in secrets if secret]

    def create(self, payload: dict[str, Any], cost: dict[str, Any]) -> Any:
        """Send `payload` and return the service's answer; add its usage to `cost`.

        Args:
            payload: keywords of `chat.completions.create`.
            cost: mapping to fill with "requests" and, if the service states them, "input", "output" and "reasoning"
                tokens.

        Raises:
            AnswerError: a refusal, or no usable answer after all attempts; one line without the key.
        """
        cost.setdefault("requests", 0)
        try:
            completion = self._retrying()(self._send, payload, cost)
            self._note_usage(completion, cost)
            _check_answer(completion)
            return completion
        except Exception as error:  # noqa: BLE001 (raised on without the key)
            raise with_usage(AnswerError(self.one_line(error, cost["requests"])), cost) from None

    def _send(self, payload: dict[str, Any], cost: dict[str, Any]) -> Any:
        """Send one request, count it, and return the answer; one without choices raises _UnreadableReply."""
        cost["requests"] += 1
        completion = self._client.chat.completions.create(**payload)
        if not getattr(completion, "choices", None):
            raise _UnreadableReply("a reply without choices")
        return completion

    def _retrying(self) -> Retrying:
        """Return the loop that repeats a call while `may_succeed_later`, up to the attempts allowed."""
        return Retrying(
            retry=retry_if_exception(may_succeed_later),
            stop=stop_after_attempt(self._attempts),
            wait=self._pause,
            reraise=True,
        )

    def _pause(self, state: RetryCallState) -> float:
        """Return seconds to wait before the next attempt: growing, with jitter, at least what the service asks for."""
        requested_seconds = retry_after_seconds(state.outcome.exception() if state.outcome else None)
        first = self._backoff_seconds
        backoff_seconds = min(60.0, first * 2.0 ** (state.attempt_number - 1) + self._jitter.uniform(0, first))
        return max(backoff_seconds, requested_seconds or 0.0)

    def _note_usage(self, completion: Any, cost: dict[str, Any]) -> None:
        """Add the answer's token counts to `cost`, and their price to the run's spending."""
        usage = getattr(completion, "usage", None)
        if usage is None:
            return
        cost["input"] = int(getattr(usage, "prompt_tokens", 0) or 0)
        cost["output"] = int(getattr(usage, "completion_tokens", 0) or 0)
        self._spending.add(cost["input"], cost["output"])
        details = getattr(usage, "completion_tokens_details", None)
        reasoning = getattr(details, "reasoning_tokens", None)
        if reasoning:
            cost["reasoning"] = int(reasoning)

    def one_line(self, error: BaseException, n_requests: int = 1) -> str:
        """Return an error's message on one line of at most 400 characters, with each key replaced by "[key]"."""
        text = " ".join(str(error).split())
        for secret in self._secrets:
            text = text.replace(secret, "[key]")
        text = _LIKE_A_KEY.sub("[key]", text)
        kind = "" if isinstance(error, AnswerError) else f"{type(error).__name__}: "
        tried = f" (after {n_requests} requests)" if n_requests > 1 else ""
        return f"{kind}{text[:400]}{tried}"


def with_usage(error: AnswerError, usage: Mapping[str, Any]) -> AnswerError:
    """Set `error.usage` to a copy of `usage` and return `error`."""
    error.usage = dict(usage)
    return error


class _UnreadableReply(Exception):
    """A reply that is not an answer of this API; a retry may succeed."""


def may_succeed_later(error: BaseException) -> bool:
    """Return True if a retry may help: no connection, time-out, 408, 409, 429, 5xx or an unreadable reply.

    A used-up quota or a requested pause above `LONGEST_PAUSE_SECONDS` gives False.
    """
    if isinstance(error, openai.APIStatusError):
        if error.code == "insufficient_quota" or (retry_after_seconds(error) or 0.0) > LONGEST_PAUSE_SECONDS:
            return False
        return error.status_code in (408, 409, 429) or error.status_code >= 500
    unreadable = (_UnreadableReply, json.JSONDecodeError, openai.APIResponseValidationError)
    return isinstance(error, (openai.APIConnectionError, *unreadable))


def retry_after_seconds(error: BaseException | None) -> float | None:
    """Return the pause in seconds of the error's `Retry-After` header; None without a readable one."""
    response = getattr(error, "response", None)
    try:
        return float(response.headers["retry-after"]) if response is not None else None
    except (KeyError, ValueError):
        return None


def _check_answer(completion: Any) -> None:
    """Raise `AnswerError` if the model refused or the content filter stopped the answer."""
    choice = completion.choices[0]
    refusal = getattr(choice.message, "refusal", None)
    if refusal:
        raise AnswerError(f"refused: {refusal}")
    if choice.finish_reason == "content_filter":
        raise AnswerError("refused: the content filter stopped the answer")
    if choice.message.content is None:
        raise AnswerError(f"an answer without text (finish reason {choice.finish_reason!r})")
