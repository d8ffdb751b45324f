"""A web server on a free port of this machine, for as long as a `with` block lasts."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, ClassVar, TypeVar

ServerT = TypeVar("ServerT", bound="LocalServer")


class _ManyAtOnce(ThreadingHTTPServer):
    """Lets a hundred requests come at the same moment: by default the sixth may have to try again a second later."""

    daemon_threads = True
    request_queue_size = 128


class LocalServer:
    """Serves with `handler`, whose requests find this object as `owner`; a context manager."""

    handler: ClassVar[type[Handler]]

    def __enter__(self: ServerT) -> ServerT:
        self._server = _ManyAtOnce(("127.0.0.1", 0), self.handler)
        self._server.owner = self  # type: ignore[attr-defined]
        # By default the end of the block waits half a second.
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        """Address of the server, without a path."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    """Answers one request; prints nothing."""

    @property
    def owner(self) -> Any:
        """The `LocalServer` that was asked."""
        return self.server.owner  # type: ignore[attr-defined]

    def log_message(self, *args: Any) -> None:
        """Print nothing, where the standard library prints a line per request."""

    def read_body(self) -> bytes:
        """Return what was sent, b"" where nothing was."""
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def send_json(self, value: Any, *, status: int = 200) -> None:
        """Answer with `value`."""
        self.send_bytes(json.dumps(value).encode(), status=status)

    def send_bytes(self, data: bytes, *, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        """Answer with JSON text, unless a header says otherwise; HEAD gets the headers only."""
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)
