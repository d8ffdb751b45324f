"""An OpenAI-compatible service on this machine that answers every question with a letter."""

from __future__ import annotations

import hashlib
import json
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

LETTERS = "ABCD"


@dataclass
class ChatServer:
    """Answers chat completions; the letter follows from the request alone. A context manager."""

    n_requests: int = 0
    n_images: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __enter__(self) -> ChatServer:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        self._server.chat = self  # type: ignore[attr-defined]
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        """For OPENAI_BASE_URL and OPENAI_API_BASE."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def count(self, body: dict[str, Any]) -> None:
        """Count a request and its images."""
        parts = [part for message in body["messages"] for part in message["content"] if isinstance(part, dict)]
        with self.lock:
            self.n_requests += 1
            self.n_images += sum(part["type"] == "image_url" for part in parts)


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers["Content-Length"]))
        body = json.loads(data)
        self.server.chat.count(body)  # type: ignore[attr-defined]
        letter = LETTERS[hashlib.sha256(data).digest()[0] % len(LETTERS)]
        reply = json.dumps(_completion(letter, body.get("model", ""))).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)

    def log_message(self, *args: Any) -> None:
        pass


def _completion(text: str, model: str) -> dict[str, Any]:
    return {
        "id": "chat-1",
        "object": "chat.completion",
        "created": 0,
        "model": model,
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 1, "total_tokens": 101},
    }
