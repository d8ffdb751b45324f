"""Sends one question to an OpenAI-compatible API and counts what it cost."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import openai
from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_attempt, wait_exponential_jitter

from focus_eval.errors import AnswerError, InvalidInput, RunError
from focus_eval.lmms.generate_trace import GenerateTrace
from focus_eval.lmms.models.api_frames import ShownFrames, image_parts

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
