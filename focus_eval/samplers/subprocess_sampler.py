"""Runs a sampler's file in a process of its own, which holds neither evidence nor other questions.

The class that `subprocess_class` returns replaces the file's class: it has the same name, options and declarations, and
its `choose` asks the other process (`sampler_process`). That process pulls over a pipe, so the ledger here counts every
pull. It sends back only JSON and arrays of integers.
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
from focus_eval.core.types import ClipReport, Pixels
from focus_eval.samplers.base import Choice, FrameSampler, QuestionTexts, SelectionRequest

LEDGER_METHODS = (
    "relevance", "logits", "embeddings", "relevance_and_embeddings", "relevance_and_logits", "scan", "look",
)  # fmt: skip
MODEL_METHODS = ("ask", "yes")
_KEYWORD_BY_METHOD = {"relevance": "query", "look": "size", "ask": "max_tokens"}
_BOOTSTRAP = (
    "import sys; sys.path[:] = sys.argv[2].split(sys.argv[1]); "
    "from focus_eval.samplers.sampler_process import main; main(sys.argv[3:])"
)
QUESTION_REQUEST, FILE_REQUEST = b"?", b"f"
# hash() of a text differs between two starts only where their seeds are set apart.
_SECOND_HASH_SEED = "20240229"
# The socket to each process by `_key`, and the process where it is a child of this one.
_processes: dict[tuple[str, bool], tuple[socket.socket, subprocess.Popen[bytes] | None]] = {}


@dataclass(frozen=True, kw_only=True)
class SubprocessSampler(FrameSampler):
    """Sampler that runs in a process of its own; `subprocess_class` derives one from it for each file."""

    spec: ClassVar[str] = ""
    has_other_hash_seed: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Replace the options by their values as read and checked by the file's class."""
        options = json.dumps(self.options, default=str)
        for name, value in _checked_options(self.spec, self.has_other_hash_seed, options).items():
            object.__setattr__(self, name, tuple(value) if isinstance(value, list) else value)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the spec and the options, since the class lies in no module and is made again on loading."""
        return _remade_sampler, (self.spec, self.has_other_hash_seed, self.options)

    def choose(self, request: SelectionRequest) -> Choice:
        """Have the sampler's process answer the question, and serve its pulls; return its choice."""
        question = {"video": request.video, "k": request.k, "rng": request.rng, "coarse_rng": request.coarse_rng}
        question |= {"evidence_seconds": request.evidence_seconds, "scan_cost": request.scan_cost}
        question["texts"] = {text.name: getattr(request, text.name) for text in fields(QuestionTexts)}
        details, keyframes = self._ask("choose", request=request, **question)
        return Choice(
            keyframes=np.frombuffer(keyframes, dtype=np.int64),
            scales=None if details["scales"] is None else np.array(details["scales"], dtype=np.float64),
            clips=tuple(ClipReport(*clip) for clip in details["clips"]),
            facts=details["facts"],
            seconds_apart=details["seconds"],
        )

    def suite(self, seconds_allowed: float) -> dict[str, Any]:
        """Run `contract.suite` in the sampler's process; return its parts by the keys "verdict" and "fingerprints"."""
        return cast("dict[str, Any]", self._ask("suite", seconds_allowed=seconds_allowed)[0])

    def at_cost(self, scan_cost: float | None) -> FrameSampler:
        """Return the sampler with `relative_cost` set to `scan_cost`, if it has that option and it is None."""
        is_fixed = "relative_cost" not in self.options or self.options["relative_cost"] is not None
        changed_options: dict[str, Any] = {"relative_cost": scan_cost}
        return self if is_fixed else replace(self, **changed_options)

    def _ask(self, ask: str, *, request: SelectionRequest | None = None, **question: Any) -> tuple[Any, bytes]:
        """Send a question about this sampler to its process; return the answer and extra bytes."""
        question = {"ask": ask, "spec": self.spec, "options": self.options, **question}
        return _ask(self.spec, self.has_other_hash_seed, question, request=request)


def _forwarded(method: str) -> Callable[..., Any]:
    """Return a method that calls `method` of the file's class in the sampler's own process."""
    return lambda self, video, **keywords: self._ask("call", method=method, video=video, keywords=keywords)[0]


@cache
def subprocess_class(spec: str, *, has_other_hash_seed: bool = False) -> type[FrameSampler]:
    """Return a class that runs the sampler `spec` (registered, or `FILE.py:Class`) in a process of its own.

    Args:
        has_other_hash_seed: use a second process, started with another seed of `hash()`.

    Raises:
        FocusEvalError: as loading the class in this process would.
    """
    try:
        description, _ = _ask(spec, has_other_hash_seed, {"ask": "describe", "spec": spec})
    except FocusEvalError:
        end_processes(_key(spec, has_other_hash_seed))  # the file may be corrected and tried again
        raise
    metadata = description["metadata"]
    options = [
        (name, Any, field(default=tuple(value) if isinstance(value, list) else value, metadata=metadata[name]))
        for name, value in description["options"].items()
    ]
    attributes = {**description["attributes"], "spec": spec, "has_other_hash_seed": has_other_hash_seed}
    attributes |= {"__doc__": description["doc"]}
    attributes |= {method: _forwarded(method) for method in description["overridden"]}
    made_class = make_dataclass(
        description["class"], options, bases=(SubprocessSampler,), namespace=attributes, frozen=True, kw_only=True
    )
    return cast("type[FrameSampler]", made_class)


def _remade_sampler(spec: str, has_other_hash_seed: bool, options: Mapping[str, Any]) -> FrameSampler:
    """Return the sampler after unpickling; its class is made again from the spec."""
    return subprocess_class(spec, has_other_hash_seed=has_other_hash_seed)(**options)


@cache
def _checked_options(spec: str, has_other_hash_seed: bool, options: str) -> dict[str, Any]:
    """Return the options as the sampler's process reads them; cached by their JSON."""
    question = {"ask": "options", "spec": spec, "options": json.loads(options)}
    return cast("dict[str, Any]", _ask(spec, has_other_hash_seed, question)[0])


def _ask(
    spec: str, has_other_hash_seed: bool, question: Mapping[str, Any], *, request: SelectionRequest | None = None
) -> tuple[Any, bytes]:
    """Send `question` to the sampler's process, serve its pulls from `request`; return its answer and extra bytes."""
    our_end, process_end = socket.socketpair()
    error: FocusEvalError | None = None
    with process_end, Connection(our_end.detach()) as line:
        try:
            socket.send_fds(_process(spec, has_other_hash_seed), [QUESTION_REQUEST], [process_end.fileno()])
            process_end.close()
            line.send(question)
            while True:
                message = json.loads(line.recv_bytes())
                if "pull" not in message:
                    break
                error = _serve(line, message, request) or error
            if "error" not in message:
                return message["answer"], line.recv_bytes()
        except (EOFError, OSError) as problem:
            raise SamplerError(f"{spec}: the process of the sampler ended before it answered") from problem
        except ValueError as problem:
            raise SamplerError(f"{spec}: the process of the sampler sent no answer: {problem}") from problem
    if error is not None and message["error"][:2] == error_texts(error)[:2]:
        raise error  # with its own traceback
    raise error_from_texts(*message["error"])


def _serve(line: Connection, message: Mapping[str, Any], request: SelectionRequest | None) -> FocusEvalError | None:
    """Answer one pull or model call of the sampler; return the error that was sent back to it, None if none."""
    data = line.recv_bytes()
    method, keywords = message["pull"], message["keywords"]
    if request is None or method not in (*LEDGER_METHODS, *MODEL_METHODS):
        raise ValueError(f"{method!r} is not a pull")
    if {*keywords} - {_KEYWORD_BY_METHOD.get(method)}:
        raise ValueError(f"{method!r} takes none of {', '.join(keywords)}")
    try:
        if method in MODEL_METHODS:
            answer = getattr(request.llm, method)(message["text"], _pictures(data, message["shapes"]), **keywords)
        else:
            answer = getattr(request.ledger, method)(np.frombuffer(data, dtype=np.int64), **keywords)
    except FocusEvalError as error:
        line.send((None, error_texts(error)))
        return error
    line.send((answer, None))
    return None


def _pictures(data: bytes, shapes: list[list[int]]) -> list[Pixels]:
    """Split `data` into pictures of the given `shapes`."""
    ends = np.cumsum([int(np.prod(shape)) for shape in shapes])
    parts = np.split(np.frombuffer(data, dtype=np.uint8), ends)
    if parts.pop().size:
        raise ValueError("more pixels than pictures")
    return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]


def error_texts(error: FocusEvalError) -> list[str]:
    """Return [class name, message, broken promise or ""] of `error`, to send to another process."""
    return [type(error).__name__, str(error), getattr(error, "promise", "")]


def error_from_texts(kind: str, message: str, promise: str) -> FocusEvalError:
    """Return the error that `error_texts` described; a `SamplerError` for an unknown class name."""
    error_class: Any = getattr(errors, str(kind), None)
    is_ours = isinstance(error_class, type) and issubclass(error_class, FocusEvalError)
    error: FocusEvalError = error_class(str(message)) if is_ours else SamplerError(str(message))
    if promise:
        error.promise = str(promise)  # type: ignore[attr-defined]
    return error


def error_line(error: BaseException) -> str:
    """Return `error` as one line: this package's errors by their message, others with their type and place."""
    text = " ".join(str(error).split())
    if isinstance(error, FocusEvalError):
        return text
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {text} ({place.filename.rpartition('/')[2]}:{place.lineno})"


def _key(spec: str, has_other_hash_seed: bool) -> tuple[str, bool]:
    """Return the key of a sampler's process: each file has its own, installed samplers share ""."""
    # Installed samplers share one process.
    return spec if ".py:" in spec else "", has_other_hash_seed


def _process(spec: str, has_other_hash_seed: bool) -> socket.socket:
    """Return the socket to the process of `spec`, starting it if necessary; forks of this process share it."""
    key = _key(spec, has_other_hash_seed)
    if key not in _processes:
        our_end, process_end = socket.socketpair()
        with process_end:
            if key[0]:
                # A fork of the process without a file: Python and numpy are loaded there already.
                socket.send_fds(_process("", has_other_hash_seed), [FILE_REQUEST], [process_end.fileno()])
                with Connection(os.dup(our_end.fileno())) as line:
                    line.send_bytes(json.dumps([key[0], sys.path]).encode())
                _processes[key] = our_end, None
            else:
                _processes[key] = our_end, _start(process_end, has_other_hash_seed)
    return _processes[key][0]


def _start(end: socket.socket, has_other_hash_seed: bool) -> subprocess.Popen[bytes]:
    """Start a Python process that serves samplers over the socket `end`.

    A second start gets another seed of `hash()`.
    """
    # scikit-learn counts cores with lscpu if not told.
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "LOKY_MAX_CPU_COUNT": "1"}
    if has_other_hash_seed:
        environment["PYTHONHASHSEED"] = _SECOND_HASH_SEED
    return subprocess.Popen(
        [sys.executable, "-c", _BOOTSTRAP, os.pathsep, os.pathsep.join(sys.path), str(end.fileno())],
        env=environment,
        pass_fds=[end.fileno()],
        stdin=subprocess.DEVNULL,
    )


_SECONDS_TO_END = 5.0


def end_processes(*keys: tuple[str, bool]) -> None:
    """End the processes of `keys`, all by default; the next question starts them again and reads their files anew."""
    subprocess_class.cache_clear()
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
