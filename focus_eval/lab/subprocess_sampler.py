"""Runs a sampler's file in a process of its own, which holds neither evidence nor other questions.

The class that `subprocess_class` returns replaces the file's class: it has the same name, options and declarations, and
its `choose` asks the other process (`sampler_process`). That process pulls over a pipe, so the ledger here counts every
pull.
"""

from __future__ import annotations

import atexit
import json
import os
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, make_dataclass, replace
from functools import cache
from multiprocessing.connection import Connection
from typing import Any, ClassVar, cast

from focus_eval.core import errors
from focus_eval.core.errors import FocusEvalError, SamplerError
from focus_eval.core.options import make, named_options, parse_named
from focus_eval.core.plugins import place_in_plugin
from focus_eval.keyframes.samplers.base import Choice, FrameSampler, SelectionRequest
from focus_eval.keyframes.samplers.registry import make_sampler, sampler_class

_BOOTSTRAP = (
    "import sys; sys.path[:] = sys.argv[2].split(sys.argv[1]); "
    "from focus_eval.lab.sampler_process import main; main(sys.argv[3:])"
)
# Seed of hash() in the second process: with another seed, code that depends on hash() of texts is noticed.
_SECOND_HASH_SEED = "20240229"
# `_key` -> socket to the sampler's process, and the process object if it is a child of this process.
_processes: dict[tuple[str, bool], tuple[socket.socket, subprocess.Popen[bytes] | None]] = {}


@dataclass(frozen=True, kw_only=True)
class SubprocessSampler(FrameSampler):
    """Sampler that runs in a process of its own; `subprocess_class` derives one from it for each file."""

    spec: ClassVar[str] = ""
    has_other_hash_seed: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Replace each option by its value as the file's class reads and checks it."""
        options = json.dumps(self.options, default=str)
        for name, value in _checked_options(self.spec, self.has_other_hash_seed, options).items():
            object.__setattr__(self, name, value)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the spec and the options, since the class lies in no module and is made again on loading."""
        return _remade_sampler, (self.spec, self.has_other_hash_seed, self.options)

    def choose(self, request: SelectionRequest) -> Choice:
        """Have the sampler's process answer the question, and serve its pulls; return its choice."""
        # Send the request without ledger and model: they stay here, and the sampler's process calls them over the pipe.
        nothing: Any = None
        plain_request = replace(request, ledger=nothing, llm=nothing)
        choice: Choice = self._ask("choose", answering=request, request=plain_request)
        return choice

    def suite(self, seconds_allowed: float) -> tuple[Any, list[str]]:
        """Run `contract.suite` in the sampler's process and return its result."""
        result: tuple[Any, list[str]] = self._ask("suite", seconds_allowed=seconds_allowed)
        return result

    def _ask(self, ask: str, *, answering: SelectionRequest | None = None, **question: object) -> Any:
        """Send a question about this sampler to its process and return the answer."""
        question = {"ask": ask, "spec": self.spec, "options": self.options, **question}
        return _ask(self.spec, self.has_other_hash_seed, question, answering=answering)


def _forwarded(method: str) -> Callable[..., object]:
    """A method that calls `method` of the file's class in the sampler's own process."""
    return lambda self, video, **keywords: self._ask("call", method=method, video=video, keywords=keywords)


@cache
def subprocess_class(spec: str, *, has_other_hash_seed: bool = False) -> type[FrameSampler]:
    """Return a class that runs the sampler `spec` (registered, or `FILE.py:Class`) in a process of its own.

    Args:
        has_other_hash_seed: use a second process, started with another seed of `hash()`.

    Raises:
        FocusEvalError: the class cannot be loaded; the same error as loading it in this process.
    """
    try:
        description = _ask(spec, has_other_hash_seed, {"ask": "describe", "spec": spec})
    except FocusEvalError:
        end_processes(_key(spec, has_other_hash_seed))  # start anew next time: the file may have been corrected
        raise
    metadata = description["metadata"]
    options = [
        (name, Any, field(default=value, metadata=metadata[name])) for name, value in description["options"].items()
    ]
    attributes = {**description["attributes"], "spec": spec, "has_other_hash_seed": has_other_hash_seed}
    attributes |= {"__doc__": description["doc"]}
    attributes |= {method: _forwarded(method) for method in description["overridden"]}
    made_class = make_dataclass(
        description["class"], options, bases=(SubprocessSampler,), namespace=attributes, frozen=True, kw_only=True
    )
    return cast("type[FrameSampler]", made_class)


def make_apart(name: str, **options: object) -> FrameSampler:
    """Return the sampler `name` with `options`, as `make_sampler`, but run a sampler from a file in its own process.

    A stranger's file could end the process that imports it, or change modules that the ledger uses.
    """
    name, values = named_options(name, options)
    return make_in_subprocess(name, values) if ".py:" in name else make_sampler(name, **values)


def class_apart(name: str) -> type[FrameSampler]:
    """Return the class of the sampler that `make_apart` makes of `name`; options in `name` are ignored."""
    plain_name = parse_named(name)[0]
    return subprocess_class(os.path.abspath(plain_name)) if ".py:" in plain_name else sampler_class(plain_name)


def make_in_subprocess(
    name: str, options: Mapping[str, object] | None = None, *, has_other_hash_seed: bool = False
) -> FrameSampler:
    """Return the sampler `name` with `options`, run in a process of its own, or in a second, newly started one."""
    # The process keeps its own working folder: pass an absolute path.
    spec = os.path.abspath(name) if ".py:" in name else name
    kind = subprocess_class(spec, has_other_hash_seed=has_other_hash_seed)
    return make(f"sampler {kind.name!r}", kind, options or {})


def _remade_sampler(spec: str, has_other_hash_seed: bool, options: Mapping[str, Any]) -> FrameSampler:
    """The sampler after unpickling; its class is made again from the spec."""
    return subprocess_class(spec, has_other_hash_seed=has_other_hash_seed)(**options)


@cache
def _checked_options(spec: str, has_other_hash_seed: bool, options: str) -> dict[str, object]:
    """The options as the sampler's process reads them; cached by their JSON."""
    question = {"ask": "options", "spec": spec, "options": json.loads(options)}
    parsed_options: dict[str, object] = _ask(spec, has_other_hash_seed, question)
    return parsed_options


def _ask(
    spec: str, has_other_hash_seed: bool, question: Mapping[str, object], *, answering: SelectionRequest | None = None
) -> Any:
    """Send `question` to the sampler's process and return the answer; `answering` serves the sampler's pulls."""
    our_end, process_end = socket.socketpair()
    pull_error: FocusEvalError | None = None
    with process_end, Connection(our_end.detach()) as line:
        try:
            socket.send_fds(_process(spec, has_other_hash_seed), [b"?"], [process_end.fileno()])
            process_end.close()
            line.send(question)
            while (message := line.recv())[0] != "answer":
                if answering is None:
                    raise SamplerError(f"{spec}: frames pulled outside a question; pull through request.ledger alone")
                pull_error = _serve(line, answering, *message) or pull_error
        except (EOFError, OSError) as problem:
            raise SamplerError(f"{spec}: the process of the sampler ended before it answered") from problem
        except (AttributeError, ImportError) as problem:
            # A class of the file cannot be unpickled here, since this process must not import the file.
            raise SamplerError(
                f"{spec}: a value is of a class of this file; let options and facts be plain"
            ) from problem
    _, answer, error = message
    if error is None:
        return answer
    if pull_error is not None and (type(error), str(error)) == (type(pull_error), str(pull_error)):
        raise pull_error  # re-raise the source's error with its own traceback
    raise error


def _serve(
    line: Connection,
    request: SelectionRequest,
    receiver: str,
    method: str,
    arguments: Sequence[object],
    keywords: Mapping[str, object],
) -> FocusEvalError | None:
    """Answer one pull or model call of the sampler; return the error sent to the sampler, None if there is none."""
    try:
        answer = getattr(getattr(request, receiver), method)(*arguments, **keywords)
    except FocusEvalError as error:
        line.send((None, portable_error(error)))
        return error
    line.send((answer, None))
    return None


def portable_error(error: FocusEvalError) -> FocusEvalError:
    """Return `error` in a class that every process can import: other classes become `SamplerError`."""
    return error if type(error).__module__ == errors.__name__ else SamplerError(str(error))


def error_line(error: BaseException) -> str:
    """Return `error` as one line: the message, and for errors of other packages also type and place."""
    text = " ".join(str(error).split())
    if isinstance(error, FocusEvalError):
        return text
    place = traceback.extract_tb(error.__traceback__)[-1]
    # Name the line of the sampler's file rather than that of the library it called.
    path, line = place_in_plugin(error) or (place.filename, place.lineno)
    return f"{type(error).__name__}: {text} ({path.rpartition('/')[2]}:{line})"


def _key(spec: str, has_other_hash_seed: bool) -> tuple[str, bool]:
    """The key of a sampler's process: each file has its own, installed samplers share ""."""
    # Installed samplers share one process.
    return spec if ".py:" in spec else "", has_other_hash_seed


def _process(spec: str, has_other_hash_seed: bool) -> socket.socket:
    """The socket to the process of `spec`, starting it if necessary; forks of this process share it."""
    key = _key(spec, has_other_hash_seed)
    if key not in _processes:
        our_end, process_end = socket.socketpair()
        with process_end:
            if key[0]:
                # Have the process of installed samplers fork, since it has loaded Python and numpy already.
                socket.send_fds(_process("", has_other_hash_seed), [b"?"], [process_end.fileno()])
                with Connection(os.dup(our_end.fileno())) as line:
                    line.send({"ask": "serve", "spec": key[0], "path": sys.path})
                _processes[key] = our_end, None
            else:
                _processes[key] = our_end, _start(process_end, has_other_hash_seed)
    return _processes[key][0]


def _start(end: socket.socket, has_other_hash_seed: bool) -> subprocess.Popen[bytes]:
    """Start a Python process that serves samplers over the socket `end`.

    A second start gets another seed of `hash()`.
    """
    # Without LOKY_MAX_CPU_COUNT, scikit-learn runs lscpu to count cores.
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
    """End the processes of `keys`, by default all; the next question starts new ones, which read their files again."""
    subprocess_class.cache_clear()
    _checked_options.cache_clear()
    for key in keys or [*_processes]:
        line, process = _processes.pop(key)
        line.close()
        if process is not None:
            try:
                process.wait(timeout=_SECONDS_TO_END)
            except subprocess.TimeoutExpired:  # the file left a thread running, or the machine is busy
                process.kill()
                process.wait()


atexit.register(end_processes)
