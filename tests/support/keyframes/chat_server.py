"""An OpenAI-compatible service on this machine that answers every question with a letter, or fails on purpose."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from math import log
from typing import Any

from tests.support.keyframes.local_server import Handler, LocalServer

LETTERS = "ABCD"
FAULTS = ("429", "500", "dropped", "silent", "truncated")


@dataclass
class ChatServer(LocalServer):
    """Answers chat completions; the letter follows from the request alone. A context manager.

    Args:
        fault_share: share of the requests that fail, in [0, 1]: one of `FAULTS`, which follows from the request and
            how often it was sent before, whatever the order of requests.
        reply_to: gives the answer to a request, instead of a letter, with the probabilities of its first word by token,
            which it gives where a request asks for log-probabilities.
        delay_seconds: how long every answer takes.
        expected_at_once: requests that must be under way at once before the first is answered.
        silent_seconds: how long a silent request is left without a reply.
        refuses: settings that are refused as newer models of OpenAI do, in its words.
        refusal_status: status of such a refusal; with 200, as routers send it, the error states the code 400.
        refuses_keys: whether every request is answered 401.
        content: what every request is answered with, whatever it asks, as a web page or as JSON; None for a completion.
        status, headers: of that answer.
        bodies: the settings of each request that was not refused: all but model and messages.
        texts: the text of each request.
        keeps_images: whether the images of each request are kept, as files, with its text in `images`.
        answered: how often each request got an answer, by its hash; `failed` counts the faults by kind.
        most_at_once: the most requests that were under way at once.
    """

    fault_share: float = 0.0
    reply_to: Callable[[dict[str, Any]], tuple[str, dict[str, float]]] | None = None
    silent_seconds: float = 3.0
    delay_seconds: float = 0.0
    expected_at_once: int = 0
    keeps_images: bool = False
    refuses: tuple[str, ...] = ()
    refusal_status: int = 400
    refuses_keys: bool = False
    content: bytes | None = None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    n_requests: int = 0
    n_images: int = 0
    texts: list[str] = field(default_factory=list)
    images: list[tuple[str, list[bytes]]] = field(default_factory=list)
    answered: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    most_at_once: int = 0
    n_at_once: int = 0
    tries: Counter[str] = field(default_factory=Counter)
    lock: threading.Condition = field(default_factory=threading.Condition)

    @property
    def url(self) -> str:
        """For OPENAI_BASE_URL and OPENAI_API_BASE."""
        return f"{super().url}/v1"

    def count(self, body: dict[str, Any]) -> None:
        """Count a request and its images."""
        parts = [part for message in body["messages"] for part in message["content"] if isinstance(part, dict)]
        urls = [part["image_url"]["url"] for part in parts if part["type"] == "image_url"]
        text = "\n".join(part["text"] for part in parts if part["type"] == "text")
        files = [base64.b64decode(url.partition("base64,")[2]) for url in urls] if self.keeps_images else []
        with self.lock:
            self.n_requests += 1
            self.n_images += len(urls)
            self.texts.append(text)
            self.bodies.append({name: value for name, value in body.items() if name not in ("model", "messages")})
            self.images += [(text, files)] if self.keeps_images else []

    def fault(self, digest: str) -> str:
        """Return how this request fails, "" where it is answered, and count it."""
        with self.lock:
            attempt = self.tries[digest]
            self.tries[digest] += 1
            drawn = hashlib.sha256(f"{digest} {attempt}".encode()).digest()
            fails = int.from_bytes(drawn[:4], "big") < self.fault_share * 2**32
            kind = FAULTS[drawn[4] % len(FAULTS)] if fails else ""
            self.failed.update([kind] if kind else [])
            self.answered.update([] if kind else [digest])
        return kind


class _Handler(Handler):
    """Answers one connection; it waits first until as many requests are there as the server expects at once."""

    def do_GET(self) -> None:
        if not self._is_answered() and not self._is_refused():
            self.send_json({"object": "list", "data": []})

    def _is_answered(self) -> bool:
        """Send the server's content, if it has one; return True if it did."""
        content = self.owner.content
        if content is not None:
            kind = {"Content-Type": "text/html"} if content.startswith(b"<") else {}
            with self.owner.lock:
                self.owner.n_requests += self.command == "POST"
            self.send_bytes(content, status=self.owner.status, headers={**kind, **self.owner.headers})
        return content is not None

    def _is_refused(self) -> bool:
        """Refuse the key with status 401 if the server refuses keys; return True if it did."""
        if self.owner.refuses_keys:
            self.send_json({"error": {"message": "Incorrect API key provided."}}, status=401)
        return bool(self.owner.refuses_keys)

    def do_POST(self) -> None:
        data = self.read_body()
        chat: ChatServer = self.owner
        if self._is_answered() or self._is_refused():
            return
        with chat.lock:
            chat.n_at_once += 1
            chat.most_at_once = max(chat.most_at_once, chat.n_at_once)
            chat.lock.notify_all()
            chat.lock.wait_for(lambda: chat.most_at_once >= chat.expected_at_once, timeout=600)
        try:
            self._reply(chat, data)
        except OSError:
            pass  # the client gave up
        finally:
            with chat.lock:
                chat.n_at_once -= 1

    def _reply(self, chat: ChatServer, data: bytes) -> None:
        """Send the completion after the server's delay, or what the fault due for this request prescribes."""
        time.sleep(chat.delay_seconds)
        body = json.loads(data)
        for name in chat.refuses:
            if name in body:
                status = chat.refusal_status
                error = {**refusal(name, body[name]), **({"code": 400} if status == 200 else {})}
                self.send_json({"error": error}, status=status)
                return
        chat.count(body)
        digest = hashlib.sha256(data)
        letter = LETTERS[digest.digest()[0] % len(LETTERS)]
        text, probabilities = (letter, {letter: 1.0}) if chat.reply_to is None else chat.reply_to(body)
        completion = _completion(text, body.get("model", ""), probabilities if body.get("logprobs") else {})
        fault = chat.fault(digest.hexdigest())
        if fault in ("429", "500"):
            self.send_json({"error": {"message": "on purpose"}}, status=int(fault))
        elif fault == "truncated":
            self.send_bytes(json.dumps(completion).encode()[:60])
        elif fault:
            time.sleep(chat.silent_seconds if fault == "silent" else 0.0)
            self.close_connection = True
            self.connection.close()
        else:
            self.send_json(completion)


ChatServer.handler = _Handler


def refusal(name: str, value: object) -> dict[str, Any]:
    """Return the error by which a newer model of OpenAI refuses a setting, word for word."""
    if name == "max_tokens":
        text = "'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
        code, message = "unsupported_parameter", f"Unsupported parameter: {text}"
    else:
        text = f"'{name}' does not support {value} with this model. Only the default (1) value is supported."
        code, message = "unsupported_value", f"Unsupported value: {text}"
    return {"message": message, "type": "invalid_request_error", "param": name, "code": code}


def _completion(text: str, model: str, probabilities: dict[str, float]) -> dict[str, Any]:
    """Return a chat completion; log-probabilities are those of its first token, none if all shares are 0."""
    top = [{"token": token, "logprob": log(share), "bytes": None} for token, share in probabilities.items() if share]
    first = {"logprobs": {"content": [{**top[0], "top_logprobs": top}]}} if top else {}
    return {
        "id": "chat-1",
        "object": "chat.completion",
        "created": 0,
        "model": model,
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}, **first}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 1, "total_tokens": 101},
    }
