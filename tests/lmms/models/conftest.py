"""A chat service on this machine that fails as it is told, and a model that asks it."""

from __future__ import annotations

import contextlib
import json
import threading
import time

import pytest

from focus_eval.testing.local_server import Handler, LocalServer

KEY = "sk-verysecret-0123456789abcdef"


def completion(text="B", **message):
    return {
        "id": "x", "object": "chat.completion", "created": 0, "model": "gpt-4o",
        "choices": [
            {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text, **message}}
        ],
        "usage": {"prompt_tokens": 111, "completion_tokens": 2, "total_tokens": 113},
    }  # fmt: skip


class Server(LocalServer):
    """Answers with `replies` in order (status, body, headers, delay in seconds), then with "B"."""

    def __init__(self) -> None:
        self.bodies: list[dict] = []
        self.times: list[float] = []
        self.keys: list[str] = []
        self.replies: list[tuple] = []
        self.on_question: dict[str, tuple] = {}
        self.busy, self.busiest = 0, 0
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"{super().url}/v1"


class Answering(Handler):
    def do_POST(self):
        server = self.owner
        body = json.loads(self.read_body())
        with server.lock:
            server.bodies.append(body)
            server.times.append(time.monotonic())
            server.keys.append(self.headers["Authorization"])
            server.busy += 1
            server.busiest = max(server.busiest, server.busy)
            reply = next((given for text, given in server.on_question.items() if text in prompt_of(body)), None)
            if reply is None:
                reply = server.replies.pop(0) if server.replies else (200, completion())
        status, content, *rest = reply
        time.sleep(rest[1] if len(rest) > 1 else 0)
        data = content.encode() if isinstance(content, str) else json.dumps(content).encode()
        with contextlib.suppress(OSError):  # the client gave up waiting
            self.send_bytes(data, status=status, headers=rest[0] if rest else None)
        with server.lock:
            server.busy -= 1


Server.handler = Answering


@pytest.fixture
def server():
    with Server() as made:
        yield made


@pytest.fixture
def gpt(server, monkeypatch, tmp_path):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)

    def make(*, simple=False, **arguments):
        from focus_eval.lmms.models.openai import FocusGPT4o, FocusGPT4oChat

        options = {"sampler": "random", "frames": 3, "record": str(tmp_path), "retry_backoff_s": 0.05, **arguments}
        return (FocusGPT4o if simple else FocusGPT4oChat)(base_url=server.url, **options)

    return make


def prompt_of(body):
    return " ".join(part["text"] for message in body["messages"] for part in message["content"] if "text" in part)
