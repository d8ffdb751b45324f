"""Runs the sampler of a file in a process of its own, which holds neither evidence nor questions.

The class that `stand_in` returns takes the place of the file's: it has the same name, options and declarations, and
`choose` asks the other process (`environment`). That one pulls over a pipe, so the ledger here sees every pull,
whatever its own code believes. Only JSON and arrays of integers come from there: nothing that could run here.
"""

from __future__ import annotations

import atexit
import json
import os
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, make_dataclass, replace
from functools import cache
from multiprocessing.connection import Connection
from typing import Any, ClassVar, cast

import numpy as np

from focus_eval.core import errors
from focus_eval.core.errors import FocusEvalError, SamplerError
from focus_eval.core.types import ClipReport, Picture
from focus_eval.samplers.base import Choice, FrameSampler, QuestionTexts, SelectionRequest

PULLS = ("relevance", "logits", "embeddings", "relevance_and_embeddings", "relevance_and_logits", "scan", "look")
ASKS = ("ask", "yes")
_ALSO = {"relevance": "query", "look": "size", "ask": "max_tokens"}
_START = (
    "import sys; sys.path[:] = sys.argv[2].split(sys.argv[1]); "
    "from focus_eval.samplers.environment import main; main(sys.argv[3:])"
)
OF_QUESTION, OF_FILE = b"?", b"f"
# The line to each process that was started, and the process where it is a child of this one.
_processes: dict[tuple[str, bool], tuple[socket.socket, subprocess.Popen[bytes] | None]] = {}


@dataclass(frozen=True, kw_only=True)
class Apart(FrameSampler):
    """The base of stand-ins."""

    spec: ClassVar[str] = ""
    moves_clock: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Take the options as the file's class reads and checks them."""
        given = json.dumps(self.options, default=str)
        for name, value in _checked_options(self.spec, self.moves_clock, given).items():
            object.__setattr__(self, name, tuple(value) if isinstance(value, list) else value)

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process makes the class again: it lies in no module."""
        return _made_again, (self.spec, self.moves_clock, self.options)

    def choose(self, request: SelectionRequest) -> Choice:
        question = {"video": request.video, "k": request.k, "rng": request.rng, "coarse_rng": request.coarse_rng}
        question |= {"evidence_seconds": request.evidence_seconds, "scan_cost": request.scan_cost}
        question["texts"] = {each.name: getattr(request, each.name) for each in fields(QuestionTexts)}
        found, keyframes = self._ask("choose", request=request, **question)
        return Choice(
            keyframes=np.frombuffer(keyframes, dtype=np.int64),
            scales=None if found["scales"] is None else np.array(found["scales"], dtype=np.float64),
            clips=tuple(ClipReport(*clip) for clip in found["clips"]),
            facts=found["facts"],
            seconds_apart=found["seconds"],
        )

    def suite(self, seconds_allowed: float) -> dict[str, Any]:
        """Return what `contract.suite` finds in the sampler's own process."""
        return cast("dict[str, Any]", self._ask("suite", seconds_allowed=seconds_allowed)[0])

    def at_cost(self, scan_cost: float | None) -> FrameSampler:
        """Return the sampler with `relative_cost`, as samplers with a scan encoder do."""
        is_given = "relative_cost" not in self.options or self.options["relative_cost"] is not None
        changed: dict[str, Any] = {"relative_cost": scan_cost}
        return self if is_given else replace(self, **changed)

    def _ask(self, what: str, *, request: SelectionRequest | None = None, **question: Any) -> tuple[Any, bytes]:
        asked = {"ask": what, "spec": self.spec, "options": self.options, **question}
        return _ask(self.spec, self.moves_clock, asked, request=request)


def _asked_there(method: str) -> Callable[..., Any]:
    """Return a method that asks what the file's class made anew in the sampler's own process."""
    return lambda self, video, **also: self._ask("call", method=method, video=video, also=also)[0]


@cache
def stand_in(spec: str, *, moves_clock: bool = False) -> type[FrameSampler]:
    """Return a class that runs the sampler `spec` (registered, or `FILE.py:Class`) in a process of its own.

    Args:
        moves_clock: give that process another time of day and another `hash()`.

    Raises:
        FocusEvalError: as loading the class in this process would.
    """
    try:
        about, _ = _ask(spec, moves_clock, {"ask": "describe", "spec": spec})
    except FocusEvalError:
        end_processes(_key(spec, moves_clock))  # the file may be corrected and tried again
        raise
    options = [
        (name, Any, field(default=tuple(value) if isinstance(value, list) else value, metadata=about["metadata"][name]))
        for name, value in about["options"].items()
    ]
    attributes = {**about["attributes"], "spec": spec, "moves_clock": moves_clock, "__doc__": about["doc"]}
    attributes |= {method: _asked_there(method) for method in about["its_own"]}
    made = make_dataclass(about["class"], options, bases=(Apart,), namespace=attributes, frozen=True, kw_only=True)
    return cast("type[FrameSampler]", made)


def _made_again(spec: str, moves_clock: bool, options: Mapping[str, Any]) -> FrameSampler:
    return stand_in(spec, moves_clock=moves_clock)(**options)


@cache
def _checked_options(spec: str, moves_clock: bool, given: str) -> dict[str, Any]:
    options, _ = _ask(spec, moves_clock, {"ask": "options", "spec": spec, "options": json.loads(given)})
    return cast("dict[str, Any]", options)


def _ask(
    spec: str, moves_clock: bool, question: Mapping[str, Any], *, request: SelectionRequest | None = None
) -> tuple[Any, bytes]:
    """Return the answer to `question` and the bytes that come with it, pulling and asking through `request`."""
    ours, theirs = socket.socketpair()
    failed: FocusEvalError | None = None
    with theirs, Connection(ours.detach()) as line:
        try:
            socket.send_fds(_process(spec, moves_clock), [OF_QUESTION], [theirs.fileno()])
            theirs.close()
            line.send(question)
            while True:
                said = json.loads(line.recv_bytes())
                if "pull" not in said:
                    break
                failed = _serve(line, said, request) or failed
            if "error" not in said:
                return said["answer"], line.recv_bytes()
        except (EOFError, OSError) as error:
            raise SamplerError(f"{spec}: the process of the sampler ended before it answered") from error
        except ValueError as error:
            raise SamplerError(f"{spec}: the process of the sampler sent no answer: {error}") from error
    if failed is not None and said["error"][:2] == as_texts(failed)[:2]:
        raise failed  # with its own traceback
    raise from_texts(*said["error"])


def _serve(line: Connection, said: Mapping[str, Any], request: SelectionRequest | None) -> FocusEvalError | None:
    """Answer one pull or one question to the model; return the error where there is one, which the sampler is told."""
    data = line.recv_bytes()
    if request is None or said["pull"] not in (*PULLS, *ASKS) or {*said["also"]} - {_ALSO.get(said["pull"])}:
        raise ValueError(f"{said['pull']!r} is not a pull")
    try:
        if said["pull"] in ASKS:
            answer = getattr(request.llm, said["pull"])(said["text"], _pictures(data, said["shapes"]), **said["also"])
        else:
            answer = getattr(request.ledger, said["pull"])(np.frombuffer(data, dtype=np.int64), **said["also"])
    except FocusEvalError as error:
        line.send((None, as_texts(error)))
        return error
    line.send((answer, None))
    return None


def _pictures(data: bytes, shapes: list[list[int]]) -> list[Picture]:
    """Return the pictures whose pixels lie in `data`, one after the other."""
    ends = np.cumsum([int(np.prod(shape)) for shape in shapes])
    parts = np.split(np.frombuffer(data, dtype=np.uint8), ends)
    if parts.pop().size:
        raise ValueError("more pixels than pictures")
    return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]


def as_texts(error: FocusEvalError) -> list[str]:
    """Return class, message and broken promise of `error`, for another process."""
    return [type(error).__name__, str(error), getattr(error, "promise", "")]


def from_texts(kind: str, message: str, promise: str) -> FocusEvalError:
    """Return the error that `as_texts` was given."""
    found: Any = getattr(errors, str(kind), None)
    is_ours = isinstance(found, type) and issubclass(found, FocusEvalError)
    error: FocusEvalError = found(str(message)) if is_ours else SamplerError(str(message))
    if promise:
        error.promise = str(promise)  # type: ignore[attr-defined]
    return error


def described(error: BaseException) -> str:
    """Return one line for `error`: ours as it is, others with their type and place."""
    text = " ".join(str(error).split())
    if isinstance(error, FocusEvalError):
        return text
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {text} ({place.filename.rpartition('/')[2]}:{place.lineno})"


def _key(spec: str, moves_clock: bool) -> tuple[str, bool]:
    # What is installed needs no process for each.
    return spec if ".py:" in spec else "", moves_clock


def _process(spec: str, moves_clock: bool) -> socket.socket:
    """Return the line to the process of `spec`, which is started if need be; forks of this process share it."""
    key = _key(spec, moves_clock)
    if key not in _processes:
        ours, theirs = socket.socketpair()
        with theirs:
            if key[0]:
                # A fork of the process without a file: Python and numpy are there already.
                socket.send_fds(_process("", moves_clock), [OF_FILE], [theirs.fileno()])
                line = Connection(os.dup(ours.fileno()))
                with line:
                    line.send_bytes(json.dumps([key[0], sys.path]).encode())
                _processes[key] = ours, None
            else:
                _processes[key] = ours, _start(theirs, moves_clock)
    return _processes[key][0]


def _start(line: socket.socket, moves_clock: bool) -> subprocess.Popen[bytes]:
    # hash() of a text differs from process to process. scikit-learn counts cores with lscpu if not told.
    other = {"PYTHONHASHSEED": "20240229"} if moves_clock else {}
    other["LOKY_MAX_CPU_COUNT"] = "1"
    start = json.dumps({"line": line.fileno(), "moves_clock": moves_clock})
    return subprocess.Popen(
        [sys.executable, "-c", _START, os.pathsep, os.pathsep.join(sys.path), start],
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **other},
        pass_fds=[line.fileno()],
        stdin=subprocess.DEVNULL,
    )


_SECONDS_TO_END = 5.0


def end_processes(*keys: tuple[str, bool]) -> None:
    """End the processes of `keys`, all by default; what is asked next starts them again, from the files as they are."""
    stand_in.cache_clear()
    _checked_options.cache_clear()
    for key in keys or [*_processes]:
        line, process = _processes.pop(key)
        line.close()
        if process is not None:
            try:
                process.wait(timeout=_SECONDS_TO_END)
            except subprocess.TimeoutExpired:  # a thread of the file lives on, or the machine is busy
                process.kill()
                process.wait()


atexit.register(end_processes)
