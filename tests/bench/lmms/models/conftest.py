"""A chat service on this machine that fails as it is told, and a model that asks it."""

from __future__ import annotations

import contextlib
import json
import threading
import time

import pytest

from tests.support.keyframes.local_server import Handler, LocalServer

KEY = "sk-verysecret-0123456789abcdef"


def completion(text="B", **message):
    return {
        "id": "x", "object": "chat.completion", "created": 0, "model": "gpt-4o",
        "choices": [
            {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text, **message}}
        ],
        "usage": {"prompt_tokens": 111, "completion_tokens": 2, "total_tokens": 113},
    }  # fmt: skip


LATE = (200, completion())  # comes a minute after a client with a time-out has given up


class Server(LocalServer):
    """Answers with `replies` in order (status, body, headers), then with "B".

    A reply is chosen when its request is sent, and only a request whose reply is `LATE` keeps the client's time-out: on
    however slow a machine, every other one is answered.

    Args:
        expected: requests that must be under way at once before the first is answered.
    """

    def __init__(self) -> None:
        self.bodies: list[dict] = []
        self.times: list[float] = []
        self.keys: list[str] = []
        self.replies: list[tuple] = []
        self.on_question: dict[str, tuple] = {}
        self.expected, self.busy, self.busiest = 0, 0, 0
        self.changed, self.closing = threading.Condition(), threading.Event()
        self._chosen: list[tuple] = []

    def __exit__(self, *error):
        self.closing.set()
        super().__exit__(*error)

    def sends(self, request) -> None:
        """Choose the reply to a request that the client is about to send."""
        text = prompt_of(json.loads(request.content))
        with self.changed:
            self.times.append(time.monotonic())
            reply = next((planned_reply for part, planned_reply in self.on_question.items() if part in text), None)
            if reply is None:
                reply = self.replies.pop(0) if self.replies else (200, completion())
            request.headers["x-reply"] = str(len(self._chosen))
            self._chosen.append(reply)
        if reply is not LATE:
            request.extensions["timeout"] = dict.fromkeys(("connect", "read", "write", "pool"), 600)

    def reply_to(self, headers, body) -> tuple:
        """Note a request that has come, wait for the others expected, and return its reply."""
        with self.changed:
            self.bodies.append(body)
            self.keys.append(headers["Authorization"])
            self.busy += 1
            self.busiest = max(self.busiest, self.busy)
            self.changed.notify_all()
            self.changed.wait_for(lambda: self.busiest >= self.expected, timeout=120)
            reply = self._chosen[int(headers["x-reply"])]
        if reply is LATE:
            self.closing.wait(60)
        with self.changed:  # before the answer: once the client has it, it sends the next request
            self.busy -= 1
        return reply

    @property
    def url(self) -> str:
        return f"{super().url}/v1"


class Answering(Handler):
    def do_POST(self):
        reply = self.owner.reply_to(self.headers, json.loads(self.read_body()))
        status, content, *headers = reply
        data = content.encode() if isinstance(content, str) else json.dumps(content).encode()
        with contextlib.suppress(OSError):  # the client gave up waiting
            self.send_bytes(data, status=status, headers=headers[0] if headers else None)


Server.handler = Answering


@pytest.fixture
def server():
    with Server() as chat_server:
        yield chat_server


@pytest.fixture
def gpt(server, monkeypatch, tmp_path):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)

    def make(*, simple=False, **arguments):
        from focus_eval.bench.lmms.models.openai import FocusGPT4o, FocusGPT4oChat

        options = {"sampler": "random", "frames": 3, "record": str(tmp_path), "retry_backoff_s": 0.05, **arguments}
        model = (FocusGPT4o if simple else FocusGPT4oChat)(base_url=server.url, **options)
        model.client._client.event_hooks = {"request": [server.sends]}
        return model

    return make


def prompt_of(body):
    return " ".join(part["text"] for message in body["messages"] for part in message["content"] if "text" in part)
