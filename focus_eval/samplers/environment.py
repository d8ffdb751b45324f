"""The process that a sampler has to itself: it knows of a question what the request says, and pulls over a pipe.

The file is imported once, in a fork of a process that holds what all samplers need. Every question is answered by a
fork that ends with it, so nothing is kept from one question to the next. `apart` is the other end.
"""

from __future__ import annotations

import builtins
import datetime
import importlib
import json
import os
import signal
import site
import socket
import sys
import time
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, astuple, fields
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, cast

import numpy as np

from focus_eval.core.errors import BrokenContract, FocusEvalError
from focus_eval.core.plugins import is_plugin_file
from focus_eval.core.types import FloatArray, IntArray, Picture, VideoInfo, frozen_ints
from focus_eval.samplers.apart import OF_FILE, as_texts, described, from_texts
from focus_eval.samplers.asking import MAX_TOKENS, NoModel, checked_question
from focus_eval.samplers.base import Choice, FrameSampler, SelectionRequest, checked_keyframes
from focus_eval.samplers.ledger import Ledger, broken
from focus_eval.samplers.registry import SAMPLERS, make_here


def main(arguments: list[str]) -> None:
    """Answer questions about installed samplers, and start the process of each file, until nobody asks any more."""
    start = json.loads(arguments[0])
    os.dup2(2, 1)  # what a sampler prints is not what a command prints
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the forks
    for lazy in ("numpy.ma", "numpy.random"):  # here once instead of in every fork
        importlib.import_module(lazy)
    if start["moves_clock"]:
        move_clock()
    _serve(socket.socket(fileno=start["line"]), "")


def _serve(asked: socket.socket, spec: str) -> None:
    """Fork for everything that is asked: a question about `spec`, or the process of another file.

    Args:
        spec: `FILE.py:Class`; "" for the process that serves all installed samplers, which imports no file.
    """
    watch, failed = Watch(Path(spec.rpartition(":")[0])) if spec else None, None
    try:
        if spec:
            make_here(spec)  # what it keeps from being made once, every fork has
    except FocusEvalError as error:
        failed = error
    with asked:
        while True:
            wanted, fds, *_ = socket.recv_fds(asked, 1, 1)
            if not fds:
                return
            if os.fork() == 0:
                asked.close()
                if wanted == OF_FILE:
                    file, sys.path[:] = _received(os.dup(fds[0]))
                    _serve(socket.socket(fileno=fds[0]), file)
                else:
                    signal.signal(signal.SIGINT, signal.SIG_DFL)
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    _answer(Connection(fds[0]), watch or Watch(Path()), failed)
                sys.stdout.flush()
                os._exit(0)
            os.close(fds[0])


def _received(end: int) -> Any:
    """Return what comes over the socket `end`, and close it: a sampler finds no line but its question's."""
    with Connection(end) as line:
        return json.loads(line.recv_bytes())


def _answer(line: Connection, watch: Watch, failed: FocusEvalError | None) -> None:
    """Answer the one question that comes over `line`."""
    try:
        question = line.recv()
        try:
            if failed is not None:
                raise failed
            answer, more = _ANSWERS[question.pop("ask")](line, watch, **question)
            said: dict[str, Any] = {"answer": answer}
        except (EOFError, BrokenPipeError):
            raise
        except FocusEvalError as error:
            said, more = {"error": as_texts(error)}, b""
        except (Exception, SystemExit) as error:  # noqa: BLE001 (whatever a sampler raises is what is to be told)
            said, more = {"error": ["SamplerError", described(error), ""]}, b""
        line.send_bytes(json.dumps(said).encode())
        line.send_bytes(more)
    except (EOFError, BrokenPipeError):
        return  # who asked has gone


def _describe(line: Connection, watch: Watch, *, spec: str) -> tuple[Any, bytes]:
    kind = SAMPLERS.load(spec)
    stated = [name for name, hint in FrameSampler.__annotations__.items() if "ClassVar" in str(hint)]
    its_own = [name for name in ("count_pulls", "count_scans", "count_asked", "why_no_frames")
               if getattr(kind, name) is not getattr(FrameSampler, name)]  # fmt: skip
    about = {"class": kind.__name__, "doc": kind.__doc__, "attributes": {name: getattr(kind, name) for name in stated}}
    about["metadata"] = {option.name: dict(option.metadata) for option in fields(kind)}
    return {**about, "options": make_here(spec).options, "its_own": its_own}, b""


def _options(line: Connection, watch: Watch, *, spec: str, options: Mapping[str, Any]) -> tuple[Any, bytes]:
    return make_here(spec, **options).options, b""


def _call(
    line: Connection,
    watch: Watch,
    *,
    spec: str,
    options: Mapping[str, Any],
    method: str,
    video: VideoInfo,
    also: Mapping[str, Any],
) -> tuple[Any, bytes]:
    return getattr(make_here(spec, **options), method)(video, **also), b""


def _suite(
    line: Connection, watch: Watch, *, spec: str, options: Mapping[str, Any], seconds_allowed: float
) -> tuple[Any, bytes]:
    """Run the contract suite where the sampler can see all of it: what it chooses otherwise then is telling."""
    from focus_eval.samplers.contract import suite  # here alone: its questions have evidence

    verdict, chosen = suite(make_here(spec, **options), seconds_allowed=seconds_allowed)
    return {"verdict": asdict(verdict), "fingerprints": chosen}, b""


def _choose(
    line: Connection,
    watch: Watch,
    *,
    spec: str,
    options: Mapping[str, Any],
    video: VideoInfo,
    k: int,
    texts: Mapping[str, Any],
    **rest: Any,
) -> tuple[Any, bytes]:
    sampler = make_here(spec, **options)
    watch.is_asked = True
    model: Any = PipeModel(line) if sampler.needs_llm else NoModel(sampler.name)
    ledger = PipeLedger(line, video, query=texts["query"])
    request = SelectionRequest(video=video, k=k, ledger=ledger, llm=model, **texts, **rest)
    started = time.process_time()
    choice = sampler.choose(request)
    seconds = time.process_time() - started
    keyframes, _ = checked_keyframes(sampler, choice, video=video, asked=request.n_wanted)
    found = {
        "scales": None if choice.scales is None else np.asarray(choice.scales, dtype=np.float64).tolist(),
        "clips": [astuple(clip) for clip in choice.clips],
        "facts": dict(choice.facts),
        "seconds": seconds,
    }
    return checked_json(found, choice), keyframes.tobytes()


def checked_json(found: dict[str, Any], choice: Choice) -> dict[str, Any]:
    """Return `found`, which holds the facts of `choice`.

    Raises:
        BrokenContract: a fact that is not JSON.
    """
    try:
        json.dumps(found, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise broken("facts", f"a fact is not JSON: {error}; use int(), float() or .tolist()") from error
    return found


_ANSWERS: Mapping[str, Callable[..., tuple[Any, bytes]]] = {
    "describe": _describe, "options": _options, "call": _call, "suite": _suite, "choose": _choose,
}  # fmt: skip


class PipeLedger(Ledger):
    """A ledger whose every pull is asked over `line`; the ledger at its other end checks and counts."""

    def __init__(self, line: Connection, video: VideoInfo, *, query: str) -> None:
        super().__init__(_not_here, video, scan=_not_here, query=query)
        self._line = line

    def relevance(self, frames: IntArray, query: str | None = None) -> FloatArray:
        values: FloatArray = self._asked("relevance", frames, query=query)
        if query is None or query == self._query:
            self._record(frozen_ints(frames), values)
        else:
            self._record_of(query, frozen_ints(frames), values)
        return values

    def look(self, frames: IntArray, size: int | None = None) -> list[Picture]:
        pictures: list[Picture] = self._asked("look", frames, size=size)
        self._looked.append(frozen_ints(frames))
        return pictures

    def logits(self, frames: IntArray) -> FloatArray:
        values: FloatArray = self._asked("logits", frames)
        self._record(frozen_ints(frames), np.full(values.shape, np.nan))
        return values

    def embeddings(self, frames: IntArray) -> tuple[FloatArray, FloatArray]:
        images, query = self._asked("embeddings", frames)
        self._record(frozen_ints(frames), np.full(len(images), np.nan))
        return images, query

    def relevance_and_embeddings(self, frames: IntArray) -> tuple[FloatArray, FloatArray | None]:
        values, images = self._asked("relevance_and_embeddings", frames)
        self._record(frozen_ints(frames), values)
        return values, images

    def relevance_and_logits(self, frames: IntArray) -> tuple[FloatArray, FloatArray]:
        values, logits = self._asked("relevance_and_logits", frames)
        self._record(frozen_ints(frames), values)
        return values, logits

    def scan(self, frames: IntArray) -> FloatArray:
        values: FloatArray = self._asked("scan", frames)
        self._is_scanned[frozen_ints(frames)] = True
        return values

    def _asked(self, pull: str, frames: IntArray, **also: Any) -> Any:
        return _over(self._line, {"pull": pull, "also": also}, frozen_ints(frames).tobytes())


class PipeModel:
    """A model whose every question goes over `line`; the model at its other end checks and counts."""

    def __init__(self, line: Connection) -> None:
        self._line = line

    def ask(self, text: str, images: Sequence[Picture] = (), *, max_tokens: int = MAX_TOKENS) -> str:
        return cast(str, self._asked("ask", text, images, max_tokens=max_tokens))

    def yes(self, text: str, images: Sequence[Picture]) -> FloatArray:
        return cast(FloatArray, self._asked("yes", text, images))

    def _asked(self, what: str, text: str, images: Sequence[Picture], **also: Any) -> Any:
        text, images = checked_question(text, images)
        said = {"pull": what, "text": text, "shapes": [image.shape for image in images], "also": also}
        return _over(self._line, said, b"".join(image.tobytes() for image in images))


def _over(line: Connection, said: Mapping[str, Any], data: bytes) -> Any:
    """Return what the other end of `line` answers.

    Raises:
        FocusEvalError: what it raised.
    """
    line.send_bytes(json.dumps(said, default=int).encode())  # NumPy's integers
    line.send_bytes(data)
    answer, error = line.recv()
    if error is not None:
        raise from_texts(*error)
    return answer


def _not_here(frames: IntArray) -> FloatArray:
    raise broken("ledger", f"{frames.size} frames asked beside the ledger; pull through request.ledger alone")


_FOLDERS = {sys.prefix, sys.base_prefix, *site.getsitepackages(), site.getusersitepackages()}
_FOLDERS |= {str(Path(__file__).parents[1]), "/dev", "/etc", "/proc", "/sys", "/usr"}
LIBRARIES = tuple(os.path.realpath(folder) + os.sep for folder in _FOLDERS)
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_TRUNC
REFUSED = (
    "socket.__new__", "socket.connect", "subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn",
    "os.fork", "os.forkpty", "os.kill", "os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.link", "os.symlink",
    "os.truncate", "os.utime", "sqlite3.connect",
)  # fmt: skip


class Refused(BrokenContract, PermissionError):
    """What a sampler has no use for; a library that asks for it in passing expects a `PermissionError`."""

    promise = "alone"


class Watch:
    """Refuses what no sampler needs to choose frames.

    While the file is imported: reading the folder of a run, or another process. While it chooses: also reading anything
    but installed packages and what lies beside the file, writing, starting processes, and connections.

    Args:
        file: of the sampler.
    """

    def __init__(self, file: Path) -> None:
        self.is_asked = False
        self._beside = os.path.dirname(os.path.realpath(file))
        sys.addaudithook(self._see)

    def _see(self, event: str, arguments: tuple[Any, ...]) -> None:
        said = self._open(*arguments) if event == "open" else f"calls {event}" if event in REFUSED else ""
        if event == "mmap.__new__" and arguments[0] == -1 and not _imports_a_library():
            said = f"{_KEEPS} in memory that forks share"  # other questions would find it there
        if said and (said.startswith((_READS_RUN, _KEEPS)) or (self.is_asked and not _imports_a_library())):
            raise Refused(f"{said}; a sampler has its request, installed packages and the files beside its own")

    def _open(self, path: Any, mode: Any, flags: Any) -> str:
        """Return what is wrong with opening `path`, "" for nothing."""
        if not isinstance(path, (str, bytes, os.PathLike)):
            return ""
        file = os.path.realpath(os.fsdecode(path))
        parts = file.split(os.sep)
        if parts[1:2] == ["proc"] and parts[2].isdigit() and parts[2] != str(os.getpid()):
            return f"{_READS_RUN} {file}"
        if file != os.devnull and (set(mode or "") & set("wax+") or (flags or 0) & WRITES):
            return f"writes {file}"
        is_beside = os.path.dirname(file) == self._beside
        if file.startswith(LIBRARIES) or (is_beside and file.endswith(".py")):
            return ""
        if any(os.path.exists(os.sep.join([*parts[:at], "run.json"])) for at in range(1, len(parts))):
            return f"{_READS_RUN} {file}"
        return "" if is_beside else f"reads {file}"


_READS_RUN, _KEEPS = "reads what belongs to a run:", "keeps something"


def _imports_a_library() -> bool:
    """Whether installed code is being imported: it may look for compilers and write caches."""
    frame = sys._getframe(2)
    while frame.f_back is not None:
        file = frame.f_code.co_filename
        if file.startswith("<frozen importlib"):
            return True
        if not file.startswith(("<frozen", *LIBRARIES)):
            return False
        frame = frame.f_back
    return False


# No whole number of minutes, hours, days, weeks or years.
AHEAD_SECONDS = 40_033_723.25


def move_clock() -> None:
    """Move the clocks that a sampler can ask by `AHEAD_SECONDS`.

    The functions of `time` for everybody. The classes of `datetime` only as a sampler's file imports them: libraries
    derive their own from the real ones.
    """
    for name in ("time", "monotonic", "perf_counter"):
        setattr(time, name, _later(getattr(time, name), AHEAD_SECONDS))
        setattr(time, f"{name}_ns", _later(getattr(time, f"{name}_ns"), int(AHEAD_SECONDS * 10**9)))
    for name in ("localtime", "gmtime", "ctime"):
        setattr(time, name, _of_now(getattr(time, name)))
    strftime = time.strftime
    time.strftime = lambda text, parts=None: strftime(text, time.localtime() if parts is None else parts)
    moved = types.ModuleType("datetime")
    vars(moved).update({**vars(datetime), "datetime": MovedDatetime, "date": MovedDate})
    real_import = builtins.__import__

    def import_moved(name: str, importer: Any = None, *rest: Any) -> Any:
        if name == "datetime" and is_plugin_file(str((importer or {}).get("__name__", ""))):
            return moved
        return real_import(name, importer, *rest)

    builtins.__import__ = import_moved  # type: ignore[assignment]


class _AsItsBase(type):
    """Takes what libraries make of the real class for its own."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, cls.__mro__[1])

    def __subclasscheck__(cls, kind: type) -> bool:
        return issubclass(kind, cls.__mro__[1])


class MovedDatetime(datetime.datetime, metaclass=_AsItsBase):
    """A datetime whose present is that of the moved clock."""

    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> MovedDatetime:
        return cls.fromtimestamp(time.time(), tz)

    @classmethod
    def utcnow(cls) -> MovedDatetime:
        return cls.now(datetime.timezone.utc).replace(tzinfo=None)


class MovedDate(datetime.date, metaclass=_AsItsBase):
    """A date whose today is that of the moved clock."""

    @classmethod
    def today(cls) -> MovedDate:
        return cls.fromtimestamp(time.time())


def _later(clock: Callable[[], Any], by: float) -> Callable[[], Any]:
    return lambda: clock() + by


def _of_now(shown: Callable[[float], Any]) -> Callable[..., Any]:
    return lambda seconds=None: shown(time.time() if seconds is None else seconds)
