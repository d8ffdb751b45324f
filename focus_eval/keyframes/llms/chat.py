"""Asks a model behind an OpenAI-compatible service: retries, spending, images in a request, errors without the key."""

from __future__ import annotations

import base64
import io
import json
import os
import random
import re
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from functools import cached_property, partial
from math import ceil, exp, isfinite
from time import time
from types import NoneType
from typing import TYPE_CHECKING, ClassVar
from urllib.parse import urlsplit

import openai
from PIL import Image
from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_attempt

from focus_eval.core.errors import AnswerError, InvalidInput, RunError, printable
from focus_eval.core.types import Pixels, whole_number
from focus_eval.keyframes.llms.registry import Reply, check_limits, yes_of
from focus_eval.keyframes.samplers.asking import PIXELS_A_TOKEN

if TYPE_CHECKING:
    from openai.types.chat import ChatCompletion


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


# If a service asks for a longer pause than this, it is not asked again; `max_pause_s` sets another limit.
MAX_PAUSE_SECONDS = 120.0
# Shorter keys are not masked in messages: for a service without keys, users set a word such as "any", which ordinary
# text contains.
MIN_KEY_CHARACTERS = 8
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
        self._is_known = True

    def check(self) -> None:
        """Raise RunError, which ends the run, if the limit is reached or a service did not state its token counts.

        A later run with a higher limit, or without one, continues.
        """
        if self._limit is not None and not self._is_known:
            raise RunError(
                "max_cost: the service does not state how many tokens it charges; run again without max_cost"
            )
        if self._limit is not None and self._dollars >= self._limit:
            raise RunError(
                f"max_cost={self._limit:g} dollars are spent ({self._dollars:.4f}); answers are kept, "
                "run again with a higher max_cost to continue"
            )

    def dollars(self, input_tokens: float, output_tokens: float) -> float:
        """Return the price of these numbers of tokens in dollars; 0.0 without prices."""
        return (input_tokens * self._prices[0] + output_tokens * self._prices[1]) / 1e6

    def add(self, input_tokens: int | None, output_tokens: int | None) -> None:
        """Add the price of these numbers of tokens, None for unknown, to the dollars spent; safe for threads."""
        with self._lock:
            self._is_known &= input_tokens is not None and output_tokens is not None
            self._dollars += self.dollars(input_tokens or 0, output_tokens or 0)


_REFUSABLE_SETTINGS = ("max_tokens", "temperature", "seed")
_REFUSABLE = re.compile(rf"\b(?:{'|'.join(_REFUSABLE_SETTINGS)})\b")
_UNSUPPORTED = re.compile(r"support|permitted|deprecated|unrecognized|unknown|unexpected", re.IGNORECASE)
# Messages such as "supports at most 16384 completion tokens": the service accepts the setting, but not its value.
_OUT_OF_RANGE = re.compile(
    r"at most|at least|maximum|minimum|less than|greater than|[<>]=|exceed|too (?:large|high|low|many)|up to|between"
    r"|out of range",
    re.IGNORECASE,
)


class RefusedSettings:
    """Settings of requests that the service has refused, and so are left out of later ones; safe for threads.

    Newer OpenAI models refuse any temperature but their own, and `max_tokens`: they take `max_completion_tokens`.
    """

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._lock = threading.Lock()

    def accepted_part(self, payload: Mapping[str, object]) -> dict[str, object]:
        """Return `payload` without the refused settings; a refused `max_tokens` gets its newer name."""
        accepted = {name: value for name, value in payload.items() if name not in self._names}
        if "max_tokens" in payload and "max_tokens" in self._names:
            accepted["max_completion_tokens"] = payload["max_tokens"]
        return accepted

    def add_from(self, error: openai.APIStatusError | _ServiceError, accepted: Mapping[str, object]) -> bool:
        """Remember the setting that `error` refuses; return True if a request without it is worth sending.

        Args:
            error: the answer to the request `accepted`.
        """
        # A value out of range is the user's error: do not drop the parameter.
        is_named = str(error.code).startswith("unsupported_")
        is_refusal = _UNSUPPORTED.search(str(error)) and (is_named or not _OUT_OF_RANGE.search(str(error)))
        if error.status_code not in (400, 422) or not is_refusal:
            return False
        # OpenAI's errors have a field with the parameter's name; other services only quote it in the message.
        names = {error.param, *_REFUSABLE.findall(str(error))} & accepted.keys()
        refused = next((name for name in _REFUSABLE_SETTINGS if name in names), None)
        if refused is None:
            return False
        with self._lock:
            is_new = refused not in self._names
            self._names.add(refused)
        if is_new:
            change = "max_completion_tokens replaces it" if refused == "max_tokens" else "it is left out from here on"
            text = f"{accepted.get('model')} refuses {refused}={accepted[refused]}; {change}"
            print(f"note: {printable(text)}", file=sys.stderr, flush=True)
        return True

    def usage(self, payload: Mapping[str, object]) -> dict[str, int]:
        """Return {"without_temperature": 1} and the like for settings in `payload` that the service refused."""
        return {f"without_{name}": 1 for name in self._names - {"max_tokens"} if name in payload}


class ChatClient:
    """Sends payloads one by one, retries those that may succeed later, and counts requests and tokens.

    Args:
        client: an openai client that does not retry by itself.
        spending: adds up the price of the answers.
        attempts: limit on the requests for one payload.
        backoff_seconds: first pause. Each further pause is twice as long, with jitter; every pause is at least as long
            as the server's `Retry-After`.
        secrets: strings to remove from error messages, of at least `MIN_KEY_CHARACTERS`.
        refused: settings that the service has refused so far; the clients of one model share them.
        max_pause_seconds: if the service asks for a longer pause than this, the request is not repeated.
    """

    def __init__(
        self,
        client: openai.OpenAI,
        *,
        spending: Spending,
        attempts: int,
        backoff_seconds: float,
        secrets: Sequence[str],
        refused: RefusedSettings | None = None,
        max_pause_seconds: float = MAX_PAUSE_SECONDS,
    ) -> None:
        self._client = client
        self._spending = spending
        self._attempts = attempts
        self._backoff_seconds = backoff_seconds
        # Use a private generator, so as not to disturb lmms-eval tasks, which draw from the process's `random`.
        self._jitter = random.Random()
        self._secrets = [secret for secret in secrets if len(secret) >= MIN_KEY_CHARACTERS]
        self._refused = refused or RefusedSettings()
        self._max_pause_seconds = max_pause_seconds

    def create(self, payload: Mapping[str, object], cost: dict[str, int]) -> ChatCompletion:
        """Send `payload` and return the service's answer; add its usage to `cost`.

        Args:
            payload: keywords of `chat.completions.create`.
            cost: mapping to fill with "requests" and, if the service states them, "input", "output" and "reasoning"
                tokens; "without_temperature": 1 if the service refused that setting, likewise for a seed.

        Raises:
            AnswerError: a refusal, or no usable answer after all attempts; one line without the key.
        """
        cost.setdefault("requests", 0)
        try:
            completion = self._retrying()(self._send, payload, cost)
            self._note_usage(completion, cost)
            cost.update(self._refused.usage(payload))
            _check_answer(completion)
            return completion
        except Exception as error:  # noqa: BLE001 (raised on without the key)
            raise with_usage(AnswerError(self.one_line(error, cost["requests"])), cost) from None

    def _send(self, payload: Mapping[str, object], cost: dict[str, int]) -> ChatCompletion:
        """Send a request and return the answer; repeat it without each setting that the service refuses.

        All requests are counted. A reply that holds an error raises _ServiceError; any other reply that is no chat
        completion raises _UnreadableReply.
        """
        send: Callable[..., ChatCompletion] = self._client.chat.completions.create
        while True:
            accepted = self._refused.accepted_part(payload)
            cost["requests"] += 1
            try:
                completion = send(**accepted)
                _raise_error_in(completion)
                break
            except (openai.APIStatusError, _ServiceError) as error:
                if not self._refused.add_from(error, accepted):
                    raise
        _check_form(completion)
        return completion

    def _retrying(self) -> Retrying:
        """The loop that repeats a call while `may_succeed_later`, up to the attempts allowed."""
        # The retries of the openai package do not fit: they give up after 6 s, retry when a quota is used up, do not
        # retry unreadable replies, and draw from the process's `random`.
        return Retrying(
            retry=retry_if_exception(partial(may_succeed_later, max_pause_seconds=self._max_pause_seconds)),
            stop=stop_after_attempt(self._attempts),
            wait=self._pause,
            reraise=True,
        )

    def _pause(self, state: RetryCallState) -> float:
        """Seconds to wait before the next attempt: growing, with jitter, at least what the service asks for."""
        requested_seconds = retry_after_seconds(state.outcome.exception() if state.outcome else None)
        first = self._backoff_seconds
        backoff_seconds = min(60.0, first * 2.0 ** (state.attempt_number - 1) + self._jitter.uniform(0, first))
        return max(backoff_seconds, requested_seconds or 0.0)

    def _note_usage(self, completion: ChatCompletion, cost: dict[str, int]) -> None:
        """Add the answer's token counts to `cost`, and their price to the run's spending."""
        usage = getattr(completion, "usage", None)
        counts = [getattr(usage, name, None) for name in ("prompt_tokens", "completion_tokens")]
        n_input, n_output = (count if isinstance(count, int) else None for count in counts)
        self._spending.add(n_input, n_output)
        if n_input is None or n_output is None:
            return  # some services report no usage, or only a part
        cost["input"], cost["output"] = n_input, n_output
        details = getattr(usage, "completion_tokens_details", None)
        reasoning = getattr(details, "reasoning_tokens", None)
        if reasoning:
            cost["reasoning"] = int(reasoning)

    def one_line(self, error: BaseException, n_requests: int = 1) -> str:
        """Return an error on one line: at most 400 characters of its message without keys, requests, and the fix."""
        text = " ".join(str(error).split())
        for secret in self._secrets:
            text = text.replace(secret, "[key]")
        text = _LIKE_A_KEY.sub("[key]", text)
        kind = "" if isinstance(error, (AnswerError, _UnreadableReply, _ServiceError)) else f"{type(error).__name__}: "
        tried = f" (after {n_requests} requests)" if n_requests > 1 else ""
        fix = next((fix for kinds, fix in _FIXES if isinstance(error, kinds)), "")
        if getattr(error, "status_code", None) == _TOO_LARGE:
            fix = "send fewer pictures, or smaller ones with max_side"
        pause_seconds = retry_after_seconds(error) or 0.0
        if pause_seconds > self._max_pause_seconds:
            fix = (
                f"the service asks for a pause of {pause_seconds:,.0f} s, at most {self._max_pause_seconds:,g} are "
                "waited: run again then, or raise max_pause_s"
            )
        return f"{kind}{text[:400]}{tried}{fix and '; ' + fix}"


def with_usage(error: AnswerError, usage: Mapping[str, float]) -> AnswerError:
    """Set `error.usage` to a copy of `usage` and return `error`."""
    error.usage = dict(usage)
    return error


class _UnreadableReply(Exception):
    """A reply that is not an answer of this API; a retry may succeed."""


class _ServiceError(Exception):
    """An error in a reply with status 200, as routers send it.

    Args:
        error: the reply's `error`, an object with "message" and "code", or its text.
    """

    def __init__(self, error: object) -> None:
        facts: Mapping[str, object] = (
            error if isinstance(error, Mapping) else vars(error) if hasattr(error, "message") else {"message": error}
        )
        message, self.code = facts.get("message") or error, facts.get("code") or facts.get("type") or ""
        self.param = facts.get("param")
        self.status_code = int(str(self.code)) if str(self.code).isdecimal() else None
        named_code = f" (code {self.code})" if self.code else ""
        super().__init__(f"the service answers with an error: {message}{named_code}")

    @property
    def may_pass(self) -> bool:
        """True if the same request may succeed later.

        A numeric code is judged as an HTTP status; without one, the words of the message decide.
        """
        return not _LASTING.search(str(self)) if self.status_code is None else _is_passing_status(self.status_code)


_LASTING = re.compile(
    r"quota|credit|moderation|flagged|content.?(?:filter|policy)|safety|invalid|not.?found|unauthori[sz]ed|authenticat"
    r"|permission|forbidden|context.?length|unsupported",
    re.IGNORECASE,
)


def _is_passing_status(status: int) -> bool:
    return status in (408, 409, 429) or status >= 500


# Remedies by error class; the first match counts.
_FIXES: tuple[tuple[type[Exception] | tuple[type[Exception], ...], str], ...] = (
    (openai.APITimeoutError, "allow more seconds with timeout"),
    (openai.APIConnectionError, "check the network and base_url"),
    (openai.NotFoundError, "check the model's name, and whether base_url ends in /v1"),
    ((_UnreadableReply, json.JSONDecodeError), "check base_url, which usually ends in /v1"),
)
_TOO_LARGE = 413
# Types of the parts of an answer that hold its text; parts of other types are thoughts, pictures and the like.
_TEXT_PARTS = ("text", "output_text")


def _raise_error_in(completion: object) -> None:
    """Raise `_ServiceError` if a reply, or its first choice, is an error."""
    choices = getattr(completion, "choices", None)
    choice = choices[0] if isinstance(choices, list) and choices else None
    error = getattr(completion, "error", None) or getattr(choice, "error", None)
    if error or getattr(choice, "finish_reason", None) == "error":
        raise _ServiceError(error or "no reason is given (finish reason 'error')")


def _check_form(completion: object) -> None:
    """Raise `_UnreadableReply` unless a reply has the parts of a chat completion that are read here.

    A text that comes as a list of parts becomes one text, in place.
    """
    choices = getattr(completion, "choices", None)
    message = getattr(choices[0], "message", None) if isinstance(choices, list) and choices else None
    text = getattr(message, "content", None)
    if isinstance(text, list):
        text_parts = [part for part in text if isinstance(part, Mapping) and part.get("type") in _TEXT_PARTS]
        if text_parts and message is not None:
            message.content = text = "".join(str(part.get("text") or "") for part in text_parts)
    if message is None or not isinstance(text, (str, NoneType)):
        content = (
            completion.to_json(indent=None, warnings=False)
            if isinstance(completion, openai.BaseModel)
            else str(completion)
        )
        raise _UnreadableReply(f"the reply is no chat completion: {content[:80]!r}")


def open_client(address: str | None, *, key_name: str, seconds: float) -> openai.OpenAI:
    """Return a client that does not retry by itself, with the key of the environment variable `key_name`.

    Args:
        address: of the service; None for that of `OPENAI_BASE_URL`, else OpenAI's.
        seconds: time of one request.

    Raises:
        InvalidInput: a key or an address that no request could be sent with.
    """
    key = os.environ[key_name]
    place = next((at for at, character in enumerate(key, 1) if not "!" <= character <= "~"), None)
    if place is not None:
        raise InvalidInput(
            f"{key_name}: character {place} of the key is a space, a line end or not ASCII (such as a curly quote); "
            "copy it again"
        )
    try:
        # The openai client would read this variable itself; it is read here to check the address.
        address = address or os.environ.get("OPENAI_BASE_URL") or None
        parts = urlsplit(address or "https://api.openai.com")
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:  # the port is above 65535 or is no number
        is_address = False
    if not is_address:
        raise InvalidInput(f"base_url {address!r} is no address of a service; write http://HOST:PORT/v1")
    return openai.OpenAI(api_key=key, base_url=address, timeout=seconds, max_retries=0)


def served_models(client: openai.OpenAI) -> list[str]:
    """Return the names of the models that a service lists; [] if its reply is no such list.

    Raises:
        openai.APIError: the service refuses the request, or cannot be reached.
    """
    # Parse the reply here: if it is a web page, the openai package raises AttributeError.
    reply = client.models.with_raw_response.list().text
    try:
        return [str(item["id"]) for item in json.loads(reply)["data"]]
    except (ValueError, TypeError, KeyError):
        return []


def may_succeed_later(error: BaseException, *, max_pause_seconds: float = MAX_PAUSE_SECONDS) -> bool:
    """Return True if a retry may help: no connection, time-out, 408, 409, 429, 5xx or an unreadable reply.

    A used-up quota or a requested pause above `max_pause_seconds` gives False.
    """
    if isinstance(error, openai.APIStatusError):
        if error.code == "insufficient_quota" or (retry_after_seconds(error) or 0.0) > max_pause_seconds:
            return False
        return _is_passing_status(error.status_code)
    if isinstance(error, _ServiceError):
        return error.may_pass
    unreadable = (_UnreadableReply, json.JSONDecodeError, openai.APIResponseValidationError)
    return isinstance(error, (openai.APIConnectionError, *unreadable))


def retry_after_seconds(error: BaseException | None) -> float | None:
    """Return the pause in seconds that the error's headers ask for; None if they ask for none.

    Read are `retry-after-ms`, and `Retry-After` as seconds or as a date.
    """
    headers = getattr(getattr(error, "response", None), "headers", {})
    for name, units_a_second in (("retry-after-ms", 1000), ("retry-after", 1)):
        try:
            seconds = float(headers.get(name, "")) / units_a_second
        except ValueError:
            continue
        return max(0.0, seconds) if isfinite(seconds) else None
    try:
        return max(0.0, parsedate_to_datetime(headers.get("retry-after", "")).timestamp() - time())
    except (ValueError, TypeError):
        return None


def _check_answer(completion: ChatCompletion) -> None:
    """Raise `AnswerError` if the model refused or the content filter stopped the answer."""
    choice = completion.choices[0]
    refusal = getattr(choice.message, "refusal", None)
    if refusal:
        raise AnswerError(f"refused: {refusal}")
    if choice.finish_reason == "content_filter":
        raise AnswerError("refused: the content filter stopped the answer")
    if choice.message.content is None:
        raise AnswerError(f"an answer without text (finish reason {choice.finish_reason!r})")


def _text_of(completion: ChatCompletion) -> str:
    """The text of an answer that `_check_answer` let pass."""
    return completion.choices[0].message.content or ""


_CHECK_SECONDS = 10.0
# Number of candidates for the first word that are requested; services return at most 20.
_CANDIDATES = 20


class ChatModel:
    """An OpenAI-compatible service: a provider, or vLLM and the like on your own machine.

    Args:
        model: name of the model at the service.
        base_url: address of the service; "" for OPENAI_BASE_URL, then OPENAI_API_BASE, then OpenAI's.
        key: environment variable that holds the key; set it to any word for a service without keys.
        max_side: longest side of a picture in pixels; None for its own size. At 1024 a picture of 16:9 is about 750
            tokens and small print of a slide can be read; at 512 it is about 190.
        jpeg_quality: 1 to 95; None for PNG.
        detail: the service's `detail` of each picture; "" sends none.
        temperature, seed: sampling settings sent with each request; one that the service refuses is left out from then
            on, which is said once and counted in the usage.
        system_prompt: the first message of every request, of the role "system"; "" sends none.
        parameters: size of the model in 10^9; its tokens then count in forward equivalents. None: not known.
        num_concurrent: pictures asked about at once.
        timeout: seconds of one request.
        max_retries: most requests for one question, the first one included.
        retry_backoff_s: seconds of the first pause between two requests.
        max_pause_s: a service that asks for a longer pause, in seconds, is not asked again.
        max_cost: dollars after which no question is sent; needs both prices. None for no limit.
        price_input, price_output: dollars per million tokens.
        offline: True to answer from the store alone, without a key.
    """

    model_id: ClassVar[str] = "chat"
    extra: ClassVar[str] = "llm"

    def __init__(
        self,
        model: str,
        *,
        base_url: str = "",
        key: str = "OPENAI_API_KEY",
        max_side: int | None = 1024,
        jpeg_quality: int | None = 90,
        detail: str = "",
        temperature: float = 0.0,
        seed: int = 0,
        system_prompt: str = "",
        parameters: float | None = None,
        num_concurrent: int = 8,
        timeout: float = 120.0,
        max_retries: int = 5,
        retry_backoff_s: float = 1.0,
        max_pause_s: float = MAX_PAUSE_SECONDS,
        max_cost: float | None = None,
        price_input: float | None = None,
        price_output: float | None = None,
        offline: bool = False,
    ) -> None:
        """Check the options and state the revision; no request is sent."""
        if not model:
            raise InvalidInput("llm chat: which model? e.g. chat:model=gpt-4o-mini")
        check_limits("chat", above=0, max_side=max_side, timeout=timeout, parameters=parameters)
        check_limits("chat", above=0, at_most=95, jpeg_quality=jpeg_quality)
        check_limits(
            "chat", at_least=0, temperature=temperature, retry_backoff_s=retry_backoff_s, max_pause_s=max_pause_s
        )
        self._model, self._key, self._offline = model, key, offline
        self._url = base_url or os.environ.get("OPENAI_BASE_URL") or os.environ.get("OPENAI_API_BASE") or None
        self._images = ImageFormat(jpeg_quality=jpeg_quality, max_side=max_side)
        self._detail = {"detail": detail} if detail else {}
        self._fixed = {"model": model, "temperature": temperature, "seed": seed}
        self._parameters = parameters
        self._system = [{"role": "system", "content": system_prompt}] if system_prompt else []
        # A square picture has the most tokens.
        self.tokens_per_image = ceil(max_side**2 / PIXELS_A_TOKEN**2) if max_side else None
        self.at_once = whole_number(num_concurrent, "num_concurrent")
        self._timeout, self._attempts, self._backoff = (
            timeout,
            whole_number(max_retries, "max_retries"),
            retry_backoff_s,
        )
        self._max_pause_seconds = max_pause_s
        self._has_prices = price_input is not None and price_output is not None
        self._spending = Spending(max_cost, price_input, price_output)
        self._refused = RefusedSettings()
        place = f" at {base_url}" if base_url else ""
        pictures = (
            f"{max_side or 'full'} px, {f'JPEG {jpeg_quality}' if jpeg_quality else 'PNG'}{detail and ' ' + detail}"
        )
        prompt = f", system prompt {system_prompt!r}" if system_prompt else ""
        self.revision = f"{model}{place}, {pictures}, temperature {temperature:g}, seed {seed}{prompt}"

    @property
    def gmacs_per_token(self) -> float | None:
        """10^9 multiply-adds of one token, the stated `parameters`."""
        return self._parameters

    def ask(self, text: str, images: Sequence[Pixels], *, max_tokens: int) -> Reply:
        """Send one request and return its reply; raises as `Model.ask`."""
        completion, usage = self._send(text, images, max_tokens=max_tokens)
        return Reply(text=_text_of(completion), usage=usage)

    def yes(self, text: str, image: Pixels) -> Reply:
        """Send one request for a single token and return its reply, with P(yes) from the log-probabilities."""
        completion, usage = self._send(text, [image], max_tokens=1, logprobs=True, top_logprobs=_CANDIDATES)
        answer = _text_of(completion)
        tokens = getattr(completion.choices[0].logprobs, "content", None)
        try:
            if not tokens:
                raise AnswerError(f"{self._model} gives no log-probabilities; a probability of yes needs them")
            candidates = [(item.token, exp(item.logprob)) for item in tokens[0].top_logprobs or tokens[:1]]
            return Reply(text=answer, yes=yes_of(candidates, answer), usage=usage)
        except AnswerError as error:
            raise with_usage(error, usage) from None

    def _send(self, text: str, images: Sequence[Pixels], **settings: object) -> tuple[ChatCompletion, dict[str, float]]:
        """Send text and pictures with retries; return the service's answer, and its usage with dollars if priced.

        Raises AnswerError if offline, RunError if the spending limit is reached.
        """
        if self._offline:
            raise AnswerError(f"offline=true, and the store has no answer of {self._model} to {text[:80]!r}")
        self._spending.check()
        urls = [self._images.data_url(Image.fromarray(image)) for image in images]
        parts: list[dict[str, object]] = [
            {"type": "image_url", "image_url": {"url": url, **self._detail}} for url in urls
        ]
        content = [*parts, {"type": "text", "text": text}]
        counts: dict[str, int] = {}
        client = ChatClient(
            self._client,
            spending=self._spending,
            attempts=self._attempts,
            backoff_seconds=self._backoff,
            secrets=[os.environ.get(self._key, "")],
            refused=self._refused,
            max_pause_seconds=self._max_pause_seconds,
        )
        messages = [*self._system, {"role": "user", "content": content}]
        try:
            completion = client.create({**self._fixed, "messages": messages, **settings}, counts)
        except AnswerError as error:
            place = f"llm chat:model={self._model} at {str(self._client.base_url).rstrip('/')}"
            raise with_usage(AnswerError(f"{place}: {error}"), error.usage) from None
        usage: dict[str, float] = {**counts}
        if "input" in usage and (dollars := self.price(usage["input"], usage["output"])) is not None:
            usage["dollars"] = dollars
        return completion, usage

    def price(self, input_tokens: float, output_tokens: float) -> float | None:
        """Return the price of the tokens in dollars; None if no prices were given."""
        return self._spending.dollars(input_tokens, output_tokens) if self._has_prices else None

    @cached_property
    def _client(self) -> openai.OpenAI:
        """The connection, opened at first use; raises InvalidInput without a usable key and address."""
        # All threads share one client, because every new client reads the machine's certificates.
        if not os.environ.get(self._key):
            raise InvalidInput(f"llm chat:model={self._model} needs {self._key} in the environment (any word for a "
                               "service without keys), or offline=true to answer from the store")  # fmt: skip
        return open_client(self._url, key_name=self._key, seconds=self._timeout)

    def check(self) -> None:
        """Raise InvalidInput for a missing or refused key, or a service that is down."""
        if self._offline:
            return
        client = self._client.with_options(timeout=_CHECK_SECONDS)
        try:
            served_models(client)
        except (openai.AuthenticationError, openai.PermissionDeniedError) as error:
            raise InvalidInput(f"llm chat:model={self._model}: {client.base_url} refuses {self._key} "
                               f"({error.status_code}); set a key of that service") from None  # fmt: skip
        except openai.APIConnectionError:
            raise InvalidInput(
                f"llm chat:model={self._model}: {client.base_url} cannot be reached; check the network and base_url"
            ) from None
        except openai.APIStatusError:
            return  # some services do not list their models: nothing can be checked

    def close(self) -> None:
        """Close the connection, if one is open."""
        if client := vars(self).pop("_client", None):
            client.close()
