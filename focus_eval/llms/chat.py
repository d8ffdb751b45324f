"""Asks a model behind an OpenAI-compatible service."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cached_property
from math import ceil, exp
from typing import Any, ClassVar

import openai
from PIL import Image

from focus_eval.core.errors import AnswerError, InvalidInput
from focus_eval.core.types import PIXELS_A_TOKEN, Pixels, whole_number
from focus_eval.llms.client import ChatClient, ImageFormat, Spending, with_usage
from focus_eval.llms.protocol import Reply, check_limits, yes_of

_CHECK_SECONDS = 10.0
# As many of the first word's candidates as services give.
_CANDIDATES = 20


class ChatModel:
    """An OpenAI-compatible service: a provider, or vLLM and the like on your own machine.

    Args:
        model: name of the model at the service.
        base_url: address of the service; "" for OPENAI_BASE_URL, then OPENAI_API_BASE, then OpenAI's.
        key: environment variable that holds the key; set it to any word for a service without keys.
        max_side: longest side of a picture in pixels; None for its own size.
        jpeg_quality: 1 to 95; None for PNG.
        detail: the service's `detail` of each picture; "" sends none.
        temperature, seed: sampling settings sent with each request.
        parameters: size of the model in 10^9; its tokens then count in forward equivalents. None: not known.
        num_concurrent: pictures asked about at once.
        timeout: seconds of one request.
        max_retries: most requests for one question, the first one included.
        retry_backoff_s: seconds of the first pause between two requests.
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
        max_side: int | None = 512,
        jpeg_quality: int | None = 90,
        detail: str = "",
        temperature: float = 0.0,
        seed: int = 0,
        parameters: float | None = None,
        num_concurrent: int = 8,
        timeout: float = 120.0,
        max_retries: int = 5,
        retry_backoff_s: float = 1.0,
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
        check_limits("chat", at_least=0, temperature=temperature, retry_backoff_s=retry_backoff_s)
        self._model, self._key, self._offline = model, key, offline
        self._url = base_url or os.environ.get("OPENAI_BASE_URL") or os.environ.get("OPENAI_API_BASE") or None
        self._images = ImageFormat(jpeg_quality=jpeg_quality, max_side=max_side)
        self._detail = {"detail": detail} if detail else {}
        self._fixed = {"model": model, "temperature": temperature, "seed": seed}
        self._parameters = parameters
        # Of a square picture, the most there can be.
        self.tokens_per_image = ceil(max_side**2 / PIXELS_A_TOKEN**2) if max_side else None
        self.at_once = whole_number(num_concurrent, "num_concurrent")
        self._timeout, self._attempts, self._backoff = (
            timeout,
            whole_number(max_retries, "max_retries"),
            retry_backoff_s,
        )
        self._has_prices = price_input is not None and price_output is not None
        self._spending = Spending(max_cost, price_input, price_output)
        place = f" at {base_url}" if base_url else ""
        pictures = (
            f"{max_side or 'full'} px, {f'JPEG {jpeg_quality}' if jpeg_quality else 'PNG'}{detail and ' ' + detail}"
        )
        self.revision = f"{model}{place}, {pictures}, temperature {temperature:g}, seed {seed}"

    @property
    def gmacs_per_token(self) -> float | None:
        """10^9 multiply-adds of one token, the stated `parameters`."""
        return self._parameters

    def ask(self, text: str, images: Sequence[Pixels], *, max_tokens: int) -> Reply:
        """Send one request and return its reply; raises as `Model.ask`."""
        completion, usage = self._send(text, images, max_tokens=max_tokens)
        return Reply(text=completion.choices[0].message.content, usage=usage)

    def yes(self, text: str, image: Pixels) -> Reply:
        """Send one request for a single token and return its reply, with P(yes) from the log-probabilities."""
        completion, usage = self._send(text, [image], max_tokens=1, logprobs=True, top_logprobs=_CANDIDATES)
        choice = completion.choices[0]
        tokens = getattr(choice.logprobs, "content", None)
        try:
            if not tokens:
                raise AnswerError(f"{self._model} gives no log-probabilities; a probability of yes needs them")
            candidates = [(item.token, exp(item.logprob)) for item in tokens[0].top_logprobs or tokens[:1]]
            return Reply(text=choice.message.content, yes=yes_of(candidates, choice.message.content), usage=usage)
        except AnswerError as error:
            raise with_usage(error, usage) from None

    def _send(self, text: str, images: Sequence[Pixels], **settings: Any) -> tuple[Any, dict[str, float]]:
        """Send text and pictures with retries; return the service's answer, and its usage with dollars if priced.

        Raises AnswerError if offline, RunError if the spending limit is reached.
        """
        if self._offline:
            raise AnswerError(f"offline=true, and the store has no answer of {self._model} to {text[:80]!r}")
        self._spending.check()
        urls = [self._images.data_url(Image.fromarray(image)) for image in images]
        parts: list[dict[str, Any]] = [{"type": "image_url", "image_url": {"url": url, **self._detail}} for url in urls]
        content = [*parts, {"type": "text", "text": text}]
        usage: dict[str, Any] = {}
        client = ChatClient(
            self._client,
            spending=self._spending,
            attempts=self._attempts,
            backoff_seconds=self._backoff,
            secrets=[os.environ.get(self._key, "")],
        )
        completion = client.create(
            {**self._fixed, "messages": [{"role": "user", "content": content}], **settings}, usage
        )
        if "input" in usage and (dollars := self.price(usage["input"], usage["output"])) is not None:
            usage["dollars"] = dollars
        return completion, usage

    def price(self, input_tokens: float, output_tokens: float) -> float | None:
        """Return the price of the tokens in dollars; None if no prices were given."""
        return self._spending.dollars(input_tokens, output_tokens) if self._has_prices else None

    @cached_property
    def _client(self) -> openai.OpenAI:
        """The connection, opened at first use; raises InvalidInput if the environment has no key."""
        # One for all requests and threads: each client reads the machine's certificates anew.
        key = os.environ.get(self._key)
        if not key:
            raise InvalidInput(f"llm chat:model={self._model} needs {self._key} in the environment (any word for a "
                               "service without keys), or offline=true to answer from the store")  # fmt: skip
        return openai.OpenAI(api_key=key, base_url=self._url, timeout=self._timeout, max_retries=0)

    def check(self) -> None:
        """Raise InvalidInput for a missing or refused key, or a service that is down."""
        if self._offline:
            return
        client = self._client.with_options(timeout=_CHECK_SECONDS)
        try:
            client.models.list()
        except (openai.AuthenticationError, openai.PermissionDeniedError) as error:
            raise InvalidInput(f"llm chat:model={self._model}: {client.base_url} refuses {self._key} "
                               f"({error.status_code}); set a key of that service") from None  # fmt: skip
        except openai.APIConnectionError:
            raise InvalidInput(
                f"llm chat:model={self._model}: {client.base_url} cannot be reached; check the network and base_url"
            ) from None
        except openai.APIStatusError:
            return  # a service need not list its models

    def close(self) -> None:
        """Close the connection, if one is open."""
        if client := vars(self).pop("_client", None):
            client.close()
