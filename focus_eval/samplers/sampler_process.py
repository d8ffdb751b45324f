"""The process of a sampler's file: gets the request of one question and pulls over a pipe.

The sampler's file is imported once, in a fork of a process that has loaded the shared modules. A fork answers each
question and ends with it, so nothing is kept from one question to the next. This guards against mistakes, not against
attacks: the code may read and write what its user may. `subprocess_sampler` is the other end of the pipe.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, astuple, fields
from multiprocessing.connection import Connection
from typing import Any, cast

import numpy as np

from focus_eval.core.errors import FocusEvalError
from focus_eval.core.types import FloatArray, IntArray, Pixels, VideoInfo, frozen_ints
from focus_eval.samplers.asking import MAX_TOKENS, NoModel, checked_question
from focus_eval.samplers.base import FrameSampler, SelectionRequest, checked_keyframes
from focus_eval.samplers.ledger import Ledger, broken
from focus_eval.samplers.registry import SAMPLERS, make_in_this_process
from focus_eval.samplers.subprocess_sampler import FILE_REQUEST, error_from_texts, error_line, error_texts


def main(arguments: list[str]) -> None:
    """Answer questions about installed samplers, and start a process for each file, until the socket closes."""
    os.dup2(2, 1)  # what a sampler prints is not what a command prints
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the forks
    # Imported and listed once here instead of in every fork.
    for lazy_module in ("numpy.ma", "numpy.random"):
        importlib.import_module(lazy_module)
    with suppress(FocusEvalError):  # which the fork of a question reports
        SAMPLERS.names()
    _serve(socket.socket(fileno=int(arguments[0])), "")


def _serve(requests: socket.socket, spec: str) -> None:
    """Fork for every request: to answer a question about `spec`, or to become the process of another file.

    Args:
        spec: `FILE.py:Class`; "" for the process that serves all installed samplers, which imports no file.
    """
    import_error: FocusEvalError | None = None
    try:
        if spec:
            make_in_this_process(spec)  # what it sets up when it is made once, every fork has
    except FocusEvalError as error:
        import_error = error
    with requests:
        while True:
            kind, fds, *_ = socket.recv_fds(requests, 1, 1)
            if not fds:
                return
            if os.fork() == 0:
                requests.close()
                if kind == FILE_REQUEST:
                    file, sys.path[:] = _receive_json(os.dup(fds[0]))
                    _serve(socket.socket(fileno=fds[0]), file)
                else:
                    signal.signal(signal.SIGINT, signal.SIG_DFL)
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    _answer(Connection(fds[0]), import_error)
                sys.stdout.flush()
                os._exit(0)
            os.close(fds[0])


def _receive_json(fd: int) -> Any:
    """Return the JSON value of one message received on file descriptor `fd`, which is closed."""
    with Connection(fd) as line:
        return json.loads(line.recv_bytes())


def _answer(line: Connection, import_error: FocusEvalError | None) -> None:
    """Receive one question over `line`, and send its answer or its error."""
    try:
        question = line.recv()
        reply: dict[str, Any]
        try:
            if import_error is not None:
                raise import_error
            answer, data = _ANSWERS[question.pop("ask")](line, **question)
            reply = {"answer": answer}
        except (EOFError, BrokenPipeError):
            raise
        except FocusEvalError as error:
            reply, data = {"error": error_texts(error)}, b""
        except (Exception, SystemExit) as error:  # noqa: BLE001 (whatever a sampler raises is reported)
            reply, data = {"error": ["SamplerError", error_line(error), ""]}, b""
        line.send_bytes(json.dumps(reply).encode())
        line.send_bytes(data)
    except (EOFError, BrokenPipeError):
        return  # the process that asked is gone


def _describe(line: Connection, *, spec: str) -> tuple[Any, bytes]:
    """Return the description from which `subprocess_class` makes a class with the same options and declarations."""
    kind = SAMPLERS.load(spec)
    declarations = [name for name, hint in FrameSampler.__annotations__.items() if "ClassVar" in str(hint)]
    overridden = [name for name in ("count_pulls", "count_scans", "count_model_usage", "infeasible_reason")
                  if getattr(kind, name) is not getattr(FrameSampler, name)]  # fmt: skip
    return {
        "class": kind.__name__,
        "doc": kind.__doc__,
        "attributes": {name: getattr(kind, name) for name in declarations},
        "metadata": {option.name: dict(option.metadata) for option in fields(kind)},
        "options": make_in_this_process(spec).options,
        "overridden": overridden,
    }, b""


def _check_options(line: Connection, *, spec: str, options: Mapping[str, Any]) -> tuple[Any, bytes]:
    """Return the options as the sampler's class reads them."""
    return make_in_this_process(spec, **options).options, b""


def _call(
    line: Connection,
    *,
    spec: str,
    options: Mapping[str, Any],
    method: str,
    video: VideoInfo,
    keywords: Mapping[str, Any],
) -> tuple[Any, bytes]:
    """Return the result of a method of the sampler, such as `count_pulls`, for a video."""
    return getattr(make_in_this_process(spec, **options), method)(video, **keywords), b""


def _run_suite(line: Connection, *, spec: str, options: Mapping[str, Any], seconds_allowed: float) -> tuple[Any, bytes]:
    """Run the contract suite in this process, so that state kept between cases can be noticed."""
    from focus_eval.samplers.contract import suite  # nothing else here needs it

    verdict, fingerprints = suite(make_in_this_process(spec, **options), seconds_allowed=seconds_allowed)
    return {"verdict": asdict(verdict), "fingerprints": fingerprints}, b""


def _choose(
    line: Connection,
    *,
    spec: str,
    options: Mapping[str, Any],
    video: VideoInfo,
    k: int,
    texts: Mapping[str, Any],
    **request_fields: Any,
) -> tuple[Any, bytes]:
    """Run the sampler on one question and return details of its choice as JSON, and its keyframes as bytes.

    Pulls and model calls go over `line` to the asking process.
    """
    sampler = make_in_this_process(spec, **options)
    model: Any = PipeModel(line) if sampler.needs_llm else NoModel(sampler.name)
    ledger = PipeLedger(line, video, query=texts["query"])
    request = SelectionRequest(video=video, k=k, ledger=ledger, llm=model, **texts, **request_fields)
    start = time.process_time()
    choice = sampler.choose(request)
    seconds = time.process_time() - start
    keyframes, _ = checked_keyframes(sampler, choice, video=video, n_requested=request.n_wanted)
    details = {
        "scales": None if choice.scales is None else np.asarray(choice.scales, dtype=np.float64).tolist(),
        "clips": [astuple(clip) for clip in choice.clips],
        "facts": dict(choice.facts),
        "seconds": seconds,
    }
    try:
        json.dumps(details, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise broken("facts", f"a fact is not JSON: {error}; use int(), float() or .tolist()") from error
    return details, keyframes.tobytes()


_ANSWERS: Mapping[str, Callable[..., tuple[Any, bytes]]] = {
    "describe": _describe, "options": _check_options, "call": _call, "suite": _run_suite, "choose": _choose,
}  # fmt: skip


class PipeLedger(Ledger):
    """Ledger that sends every pull over `line`; the ledger at the other end checks and counts."""

    def __init__(self, line: Connection, video: VideoInfo, *, query: str) -> None:
        super().__init__(_refuse_pull, video, scan=_refuse_pull, query=query)
        self._line = line

    def relevance(self, frames: IntArray, query: str | None = None) -> FloatArray:
        """Return relevance of `frames` from the other end, and record the pull here too."""
        values: FloatArray = self._send("relevance", frames, query=query)
        if query is None or query == self._query:
            self._record(frozen_ints(frames), values)
        else:
            self._record_of(query, frozen_ints(frames), values)
        return values

    def look(self, frames: IntArray, size: int | None = None) -> list[Pixels]:
        """Return pictures of `frames` from the other end, and record the look here too."""
        pictures: list[Pixels] = self._send("look", frames, size=size)
        self._looked.append(frozen_ints(frames))
        return pictures

    def logits(self, frames: IntArray) -> FloatArray:
        """Return raw logits of `frames` from the other end, and record the pull here too."""
        values: FloatArray = self._send("logits", frames)
        self._record(frozen_ints(frames), np.full(values.shape, np.nan))
        return values

    def embeddings(self, frames: IntArray) -> tuple[FloatArray, FloatArray]:
        """Return embeddings of `frames` and of the query from the other end, and record the pull here too."""
        images, query = self._send("embeddings", frames)
        self._record(frozen_ints(frames), np.full(len(images), np.nan))
        return images, query

    def relevance_and_embeddings(self, frames: IntArray) -> tuple[FloatArray, FloatArray | None]:
        """Return relevance and embeddings from the other end (None without any), and record the pull here too."""
        values, images = self._send("relevance_and_embeddings", frames)
        self._record(frozen_ints(frames), values)
        return values, images

    def relevance_and_logits(self, frames: IntArray) -> tuple[FloatArray, FloatArray]:
        """Return relevance and logits from the other end, and record the pull here too."""
        values, logits = self._send("relevance_and_logits", frames)
        self._record(frozen_ints(frames), values)
        return values, logits

    def scan(self, frames: IntArray) -> FloatArray:
        """Return the scan encoder's logits from the other end, and record the scan here too."""
        values: FloatArray = self._send("scan", frames)
        self._is_scanned[frozen_ints(frames)] = True
        return values

    def _send(self, method: str, frames: IntArray, **keywords: Any) -> Any:
        """Send a request for `frames` and return the other end's answer."""
        return _exchange(self._line, {"pull": method, "keywords": keywords}, frozen_ints(frames).tobytes())


class PipeModel:
    """Model that sends every question over `line`; the model at the other end checks and counts."""

    def __init__(self, line: Connection) -> None:
        self._line = line

    def ask(self, text: str, images: Sequence[Pixels] = (), *, max_tokens: int = MAX_TOKENS) -> str:
        """Return the answer of the model at the other end."""
        return cast(str, self._send("ask", text, images, max_tokens=max_tokens))

    def yes(self, text: str, images: Sequence[Pixels]) -> FloatArray:
        """Return the probabilities of yes from the model at the other end."""
        return cast(FloatArray, self._send("yes", text, images))

    def _send(self, method: str, text: str, images: Sequence[Pixels], **keywords: Any) -> Any:
        """Send a checked question with its pictures and return the other end's answer."""
        text, images = checked_question(text, images)
        shapes = [image.shape for image in images]
        message = {"pull": method, "text": text, "shapes": shapes, "keywords": keywords}
        return _exchange(self._line, message, b"".join(image.tobytes() for image in images))


def _exchange(line: Connection, message: Mapping[str, Any], data: bytes) -> Any:
    """Send `message` and `data`, and return the answer of the other end.

    Raises:
        FocusEvalError: the error that the other end raised.
    """
    line.send_bytes(json.dumps(message, default=int).encode())  # NumPy's integers
    line.send_bytes(data)
    answer, error = line.recv()
    if error is not None:
        raise error_from_texts(*error)
    return answer


def _refuse_pull(frames: IntArray) -> FloatArray:
    """Raise BrokenContract: frames were pulled past the ledger."""
    raise broken("ledger", f"{frames.size} frames pulled past the ledger; pull through request.ledger alone")
