"""The process that runs a sampler's file: it receives one question at a time and pulls over a pipe.

The sampler's file is imported once, in a fork of a process that has loaded the shared modules. Each question is
answered in a further fork that ends with the answer, so no state passes from one question to the next. This guards
against mistakes, not against
attacks: the sampler's code has all rights of the user. `subprocess_sampler` is the other end of the pipe.
"""

from __future__ import annotations

import importlib
import json
import os
import pickle
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import astuple, fields, replace
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from focus_eval.core.errors import FocusEvalError, SamplerError
from focus_eval.core.types import ClipReport, FloatArray, IntArray, VideoInfo
from focus_eval.keyframes.samplers.base import Choice, FrameSampler, SelectionRequest, checked_keyframes
from focus_eval.keyframes.samplers.ledger import Ledger, RelevanceSource, broken
from focus_eval.keyframes.samplers.registry import SAMPLERS, make_sampler
from focus_eval.lab.subprocess_sampler import error_line, portable_error


def main(arguments: list[str]) -> None:
    """Answer questions about installed samplers, and start a process for each file, until the socket closes."""
    os.dup2(2, 1)  # keep the sampler's prints out of the command's output
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # ended forks disappear by themselves, since no code waits for them
    # Import these modules and list the samplers once here, so that no fork has to.
    for lazy_module in ("numpy.ma", "numpy.random"):
        importlib.import_module(lazy_module)
    with suppress(FocusEvalError):  # the fork of a question reports this error
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
            make_sampler(spec)  # make it once, so that every fork inherits its set-up
    except FocusEvalError as error:
        import_error = error
    with requests:
        while True:
            _, fds, *_ = socket.recv_fds(requests, 1, 1)
            if not fds:
                return
            if os.fork() == 0:
                requests.close()
                with suppress(EOFError, BrokenPipeError):  # the parent has exited
                    with Connection(os.dup(fds[0])) as line:
                        question = line.recv()
                    if question["ask"] == "serve":
                        sys.path[:] = question["path"]
                        _serve(socket.socket(fileno=fds[0]), question["spec"])
                    else:
                        _answer(Connection(fds[0]), question, import_error)
                sys.stdout.flush()
                os._exit(0)
            os.close(fds[0])


def _answer(line: Connection, question: dict[str, object], import_error: FocusEvalError | None) -> None:
    """Send the answer to a question, or its error, over `line`."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    answer, answer_error = None, import_error
    try:
        if import_error is None:
            answer = _ANSWERS[str(question.pop("ask"))](line, **question)
    except (EOFError, BrokenPipeError):
        raise
    except FocusEvalError as error:
        answer_error = portable_error(error)
    except (Exception, SystemExit) as error:  # noqa: BLE001 (whatever a sampler raises is reported)
        answer_error = SamplerError(error_line(error))
    try:
        line.send(("answer", answer, answer_error))
    except (AttributeError, TypeError, pickle.PicklingError) as error:
        line.send(("answer", None, SamplerError(f"a value cannot be sent to another process: {error_line(error)}")))


def _describe(line: Connection, *, spec: str) -> dict[str, object]:
    """The description from which `subprocess_class` makes a class with the same options and declarations."""
    kind = SAMPLERS.load(spec)
    declarations = [name for name, hint in FrameSampler.__annotations__.items() if "ClassVar" in str(hint)]
    overridden = [name for name in ("count_pulls", "count_scans", "count_model_usage", "infeasible_reason")
                  if getattr(kind, name) is not getattr(FrameSampler, name)]  # fmt: skip
    return {
        "class": kind.__name__,
        "doc": kind.__doc__,
        "attributes": {name: getattr(kind, name) for name in declarations},
        "metadata": {option.name: dict(option.metadata) for option in fields(kind)},
        "options": make_sampler(spec).options,
        "overridden": overridden,
    }


def _check_options(line: Connection, *, spec: str, options: Mapping[str, object]) -> dict[str, object]:
    """The options as the sampler's class reads them."""
    return make_sampler(spec, **options).options


def _call(
    line: Connection,
    *,
    spec: str,
    options: Mapping[str, object],
    method: str,
    video: VideoInfo,
    keywords: Mapping[str, object],
) -> object:
    """The result of a method of the sampler, such as `count_pulls`, for a video."""
    return getattr(make_sampler(spec, **options), method)(video, **keywords)


def _run_suite(line: Connection, *, spec: str, options: Mapping[str, object], seconds_allowed: float) -> object:
    """Run the contract suite in this process, so that state kept between cases can be noticed."""
    from focus_eval.lab.contract import suite  # imported here, as only this function needs it

    return suite(make_sampler(spec, **options), seconds_allowed=seconds_allowed)


def _choose(line: Connection, *, spec: str, options: Mapping[str, object], request: SelectionRequest) -> Choice:
    """Run the sampler on one question and return its choice in plain types.

    Pulls and model calls go over `line` to the asking process.
    """
    sampler = make_sampler(spec, **options)
    source = RemoteSource(line, "ledger")
    request = replace(
        request,
        ledger=Ledger(source, request.video, scan=source.scan, look=source.look, query=request.query),
        llm=sampler.counted_model(RemoteSource(line, "llm")),
    )
    start = time.process_time()
    choice = sampler.choose(request)
    seconds = time.process_time() - start
    keyframes, _ = checked_keyframes(sampler, choice, video=request.video, n_requested=request.n_wanted)
    try:
        details = json.dumps([[astuple(clip) for clip in choice.clips], dict(choice.facts)], allow_nan=False)
    except (TypeError, ValueError) as error:
        raise broken("facts", f"a fact is not JSON: {error}; use int(), float() or .tolist()") from error
    clips, facts = json.loads(details)
    return Choice(
        keyframes=keyframes,
        scales=None if choice.scales is None else np.asarray(choice.scales, dtype=np.float64),
        clips=tuple(ClipReport(*clip) for clip in clips),
        facts=facts,
        seconds_apart=seconds,
    )


_ANSWERS: Mapping[str, Callable[..., object]] = {
    "describe": _describe, "options": _check_options, "call": _call, "suite": _run_suite, "choose": _choose,
}  # fmt: skip


class RemoteSource(RelevanceSource):
    """Stand-in for a source or model: each method runs in the asking process, which checks and counts the call.

    Args:
        line: the pipe to that process.
        receiver: the object of the request that has the methods: "ledger" or "llm".
    """

    def __init__(self, line: Connection, receiver: str) -> None:
        self._line, self._receiver = line, receiver

    def __call__(self, frames: IntArray) -> FloatArray:
        """Return the relevance of `frames` to the question, `(n,)`."""
        relevance: FloatArray = self._send("relevance", frames)
        return relevance

    def relevance_to(self, frames: IntArray, text: str) -> FloatArray:
        """Return the relevance of `frames` to another text, `(n,)`."""
        relevance: FloatArray = self._send("relevance", frames, text)
        return relevance

    def logits(self, frames: IntArray) -> FloatArray:
        logits: FloatArray = self._send("logits", frames)
        return logits

    def embeddings(self, frames: IntArray) -> tuple[NDArray[np.float64], FloatArray]:
        images, query = self._send("embeddings", frames)
        return images, query

    def relevance_and_logits(self, frames: IntArray) -> tuple[FloatArray, FloatArray]:
        relevance, logits = self._send("relevance_and_logits", frames)
        return relevance, logits

    def relevance_and_embeddings(self, frames: IntArray) -> tuple[FloatArray, NDArray[np.float64]]:
        relevance, images = self._send("relevance_and_embeddings", frames)
        return relevance, images

    def __getattr__(self, method: str) -> Callable[..., Any]:
        """Return a function that calls `method` of the receiver, such as `scan` or `ask`."""
        return partial(self._send, method)

    def _send(self, method: str, *arguments: object, **keywords: object) -> Any:
        """The result of the receiver's method; raises the error that it raised."""
        self._line.send((self._receiver, method, arguments, keywords))
        answer, error = self._line.recv()
        if error is not None:
            raise error
        return answer
