"""The rows: what is recorded about one question, safe against a kill.

Two kinds of rows, both append-only JSON lines: a `SelectionRow` says which frames were chosen and what that
cost; an `AnswerRow` says what one model answered from them. They are joined on (benchmark, question_id,
selection_id), never on position.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

from focus_eval.core.errors import DamagedFile, FocusEvalError, InvalidInput, RunError, printable
from focus_eval.core.resources import HALF_ESCAPED, whole_text, whole_texts
from focus_eval.core.types import VideoInfo

RowT = TypeVar("RowT", bound="SelectionRow | AnswerRow")

# Stages of selecting. Those one after the other add up to the time a device is held; the rest runs beside them.
HELD_STAGES = ("open", "scan", "encode", "ask", "select", "idle")
BESIDE_STAGES = ("decode", "preprocess")
# What a row says of the model that was asked: calls, images in them, tokens, and what was paid.
ASKED = ("calls", "images", "input", "output", "dollars")
# What of a video's frames was asked for when it was decoded.
DECODED = ("all", "reference", "sync")


@dataclass(frozen=True, kw_only=True)
class SelectionRow:
    """One question's selection, or the error that prevented it.

    Args:
        selection_id: hash over all that can change the selection (sampler and options, encoder and revision, k, seed).
        bucket: length bucket of the benchmark, e.g. "short".
        duration_seconds: the benchmark's own length where it states one, else the probed one.
        keyframes, times_seconds: ascending frames and their presentation times.
        scales: shrink factor per keyframe or None.
        pulled_frames, pulled_relevance: in pull order; relevance None where only logits were pulled.
        text_pulls: `[text, frames, relevance]` of each other text that frames were scored for, in pull order.
        looked_frames: frames whose pictures the sampler looked at itself, in that order; not pulls.
        clips: `[start, stop, n_pulls, mean, radius, is_final]` per arm.
        forwards: encoder forwards on frames really made for this question (the rest came from the store or from
            another question of the video); `frames_scored` is the paper's count.
        seconds: by stage. `HELD_STAGES` add up to the wall-clock time that the device was held for this question
            (its share, where several were served at once), `BESIDE_STAGES` ran beside them in other threads.
        gmacs: 10^9 multiply-adds by what is counted (see `encoders.cost`): "image", "keys" and "scan_image" once a
            frame, "fusion" once a frame and question; {} where the encoder does not say.
        decoded: frames that the decoder gave out for this question, those passed through included, by the option
            that chose them: "all", "reference", "sync"; {} where the reader does not say.
        encoded: share of the distinct "main" and "scan" frames, where those lists are not kept (see `report.cost`).
        evidence_seconds: times of the annotated evidence; empty where the benchmark has none.
        option_texts: the question's options in order (A, B, ..); empty for open questions.
        changed_options: those of `options` that are not the sampler's defaults.
        n_pulls: how many frames were scored, where `pulled_frames` is not kept (simulations); else None.
        scan_encoder, scan_encoder_revision: the second, cheap encoder; "" where there is none.
        scanned_frames, n_scanned: what it was shown, ascending, or how many where the list is not kept; not pulls.
        scan_forwards: as `forwards`, of the scan encoder.
        llm, llm_revision: the model that the sampler asked; "" where it asks none.
        asked: "calls" and "images" that it was asked with, "input" and "output" tokens of all calls where the service
            says so, "replayed" calls that the store answered, "requests" and "dollars" really spent, by an encoder
            that asks a service too; {} without either.
        role: "sampler", or what a table marks it as: "control", "ceiling" (sees the annotation) or "floor" (sees no
            frame).
        error: one line, None on success.
    """

    benchmark: str
    question_id: str
    video: str
    query: str
    selection_id: str
    sampler: str
    options: dict[str, Any]
    encoder: str
    encoder_revision: str
    k: int
    seed: int
    bucket: str
    duration_seconds: float
    n_frames: int = 0
    fps: float = 0.0
    keyframes: list[int] = field(default_factory=list)
    times_seconds: list[float] = field(default_factory=list)
    scales: list[float] | None = None
    pulled_frames: list[int] = field(default_factory=list)
    pulled_relevance: list[float | None] = field(default_factory=list)
    clips: list[list[Any]] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    forwards: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    device: str = ""
    gmacs: dict[str, float] = field(default_factory=dict)
    decoded: dict[str, int] = field(default_factory=dict)
    encoded: dict[str, float] = field(default_factory=dict)
    evidence_seconds: list[float] = field(default_factory=list)
    option_texts: list[str] = field(default_factory=list)
    changed_options: dict[str, Any] = field(default_factory=dict)
    n_pulls: int | None = None
    role: str = "sampler"
    scan_encoder: str = ""
    scan_encoder_revision: str = ""
    scanned_frames: list[int] = field(default_factory=list)
    n_scanned: int | None = None
    scan_forwards: int = 0
    llm: str = ""
    llm_revision: str = ""
    asked: dict[str, float] = field(default_factory=dict)
    text_pulls: list[list[Any]] = field(default_factory=list)
    looked_frames: list[int] = field(default_factory=list)
    error: str | None = None

    @property
    def frames_scanned(self) -> int:
        """How many frames the scan encoder was shown for this question."""
        return len(self.scanned_frames) if self.n_scanned is None else self.n_scanned

    @property
    def frames_scored(self) -> int:
        """How many frames were scored for this question; one that was scored for two texts counts twice."""
        if self.n_pulls is not None:
            return self.n_pulls
        return len(self.pulled_frames) + sum(len(frames) for _, frames, _ in self.text_pulls)

    @property
    def encoded_frames(self) -> set[int]:
        """The distinct frames that were scored for any text, where the lists are kept."""
        return {*self.pulled_frames}.union(*(frames for _, frames, _ in self.text_pulls))

    @property
    def has_times(self) -> bool:
        """False where a file or log does not say which frames were fed, or not when they are."""
        return bool(self.times_seconds) or not (self.keyframes or self.facts.get("frames_unknown"))

    @property
    def key(self) -> tuple[str, str, str]:
        return (self.benchmark, self.question_id, self.selection_id)

    def without_pulls(self) -> SelectionRow:
        """Return the row without the long lists of what was scored, which take most of its memory."""
        pulled = replace(
            self, n_pulls=self.frames_scored, pulled_frames=[], pulled_relevance=[], text_pulls=[], clips=[]
        )
        return replace(pulled, n_scanned=self.frames_scanned or None, scanned_frames=[])


@dataclass(frozen=True, kw_only=True)
class AnswerRow:
    """What one model answered to one question from the frames it was fed, or the error that prevented it.

    Args:
        cell_id: hash over all that can change the answer (selection, model and revision, policies, prompt).
        frames_asked, frames_chosen, frames_fed: k; keyframes of the selection; frames that reached the model.
        fallback: why other frames than the chosen ones were fed (`frame_policy: aks`, a black frame), else None.
        answer: the model's text, verbatim.
        parsed: the option letter or value read from it; None where none could be read.
        correct_answer: letter or value.
        score: 0-1, or the benchmark's partial credit (VSI-Bench); None where the task is not scored here.
        category: the benchmark's question type, "" where there is none.
        metric: the task's own metric that gave the score; "" where the answer was read here.
        tokens: input, output and image tokens where the model says so.
        error: one line, None on success; a row with an error has no answer.
    """

    benchmark: str
    question_id: str
    video: str
    selection_id: str
    cell_id: str
    cell: str
    model: str
    bucket: str
    frames_asked: int
    frames_chosen: int
    frames_fed: int
    fed_frames: list[int] = field(default_factory=list)
    fallback: str | None = None
    answer: str | None = None
    parsed: str | None = None
    correct_answer: str | None = None
    score: float | None = 0.0
    category: str = ""
    metric: str = ""
    seconds: dict[str, float] = field(default_factory=dict)
    tokens: dict[str, int] = field(default_factory=dict)
    device: str = ""
    error: str | None = None

    @property
    def key(self) -> tuple[str, str, str]:
        return (self.benchmark, self.question_id, self.cell_id)

    @property
    def is_unparsed(self) -> bool:
        """True for an answer from which no option could be read: counted, and wrong but where lmms-eval guessed."""
        return self.error is None and self.parsed is None


class RowWriter:
    """Appends rows to one JSON-lines file, one writer per file; a line is complete or is not a row.

    A torn last line (the writer was killed) is cut off when the file is opened again.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            cut_torn_line(path)
        self.path = path
        self._file = open(path, "ab")  # noqa: SIM115 (closed by close)

    def write(self, row: SelectionRow | AnswerRow) -> None:
        """Append `row` and hand it to the operating system."""
        line = json.dumps(vars(row), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        with naming(self.path):
            self._file.write(whole_text(line).encode() + b"\n")
            self._file.flush()

    def close(self) -> None:
        """Write through to the disk and close."""
        if not self._file.closed:
            with naming(self.path), closing(self._file):
                os.fsync(self._file.fileno())


def write_rows(path: Path, rows: Iterable[SelectionRow | AnswerRow]) -> Path:
    """Write a JSON-lines file of `rows`, completely or not at all, make its folder first, and return `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replace_file(path) as part:
        part.unlink(missing_ok=True)  # of a process of the same number that was killed
        with closing(RowWriter(part)) as writer:
            for row in rows:
                writer.write(row)
    return path


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Name the file in an error of writing: the system does not say which one it was."""
    try:
        yield
    except OSError as error:
        raise RunError(
            f"{path}: cannot be written ({error.strerror or error}); run again when it can, finished rows are kept"
        ) from error


def read_rows(path: Path, kind: type[RowT]) -> Iterator[RowT]:
    """Yield the complete rows of a JSON-lines file in file order; a torn last line is not a row.

    Raises:
        InvalidInput: a broken line that is not the last, or one with other fields; names file and line.
    """
    for number, values in read_lines(path):
        yield _row(values, kind, where=f"{path}:{number}")


def is_row(line: bytes, kind: type[RowT], *, where: str) -> bool:
    """Whether one line of a JSON-lines file is a row of this kind."""
    try:
        _row(parse_line(line, where=where), kind, where=where)
    except InvalidInput:
        return False
    return True


def _row(values: dict[str, Any], kind: type[RowT], *, where: str) -> RowT:
    known = {declared.name for declared in fields(kind)}
    if unknown := set(values) - known:
        raise InvalidInput(f"{where}: not a {kind.__name__}; it has no field {min(unknown)!r}")
    try:
        return kind(**values)
    except TypeError as error:
        raise InvalidInput(f"{where}: not a {kind.__name__} ({error})") from error


def read_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the number and the fields of each complete line of a JSON-lines file, from 1.

    A line without its end was being written when its writer died: it is not a row.

    Raises:
        InvalidInput: a line that is not a JSON object; names file and line.
    """
    with open(path, "rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n"):
                return
            yield number, parse_line(line, where=f"{path}:{number}")


def parse_line(line: bytes, *, where: str) -> dict[str, Any]:
    """Return the fields of one line of a JSON-lines file.

    Raises:
        InvalidInput: a line that is not a JSON object; names `where`.
    """
    try:
        values = json.loads(text := line.decode())
        values = whole_texts(values) if HALF_ESCAPED.search(text) else values
    except (ValueError, RecursionError) as error:
        raise DamagedFile(f"{where}: not a JSON row ({error}); the file was edited or damaged") from error
    if not isinstance(values, dict):
        raise DamagedFile(f"{where}: not a row but {type(values).__name__}")
    return values


@contextmanager
def replace_file(path: Path) -> Iterator[Path]:
    """Yield a path beside `path` to write to; it replaces `path` when the block ends well, else nothing is left.

    Raises:
        InvalidInput: the folder does not exist or cannot be written.
    """
    # A name of its own: threads share a process id, and so may processes of two nodes on one disk.
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        yield part
        with open(part, "rb") as file:
            os.fsync(file.fileno())  # else a machine that loses power may keep the name without the content
        os.replace(part, path)
    except OSError as error:
        raise InvalidInput(f"{path}: cannot be written ({error.strerror or error})") from error
    finally:
        part.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> Path:
    """Write a UTF-8 file, completely or not at all, make its folder first, and return `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replace_file(path) as part:
        part.write_text(text, encoding="utf-8")
    return path


def error_line(error: BaseException) -> str:
    """Return one line for an error row: our errors as they are, others with their type."""
    text = printable(" ".join(str(error).split()))
    return text if isinstance(error, FocusEvalError) and text else f"{type(error).__name__}: {text}".rstrip(": ")


def cut_torn_line(path: Path) -> None:
    """Cut off what follows the last line break: its writer was killed."""
    with open(path, "rb+") as file:
        end = file.seek(0, os.SEEK_END)
        keep = end
        while keep > 0:
            start = max(0, keep - 65536)
            file.seek(start)
            newline = file.read(keep - start).rfind(b"\n")
            if newline >= 0:
                keep = start + newline + 1
                break
            keep = start
        if keep != end:
            file.truncate(keep)


# Selections come from a sampler, a file, published frames or rows made before; answers from a model or a published
# file. All of them say the same about the question and about who chose, whether or not a selection came of it.

BucketOf = Callable[[float], str]


class AskedQuestion(Protocol):
    """The part of a benchmark's `Question` that names it."""

    @property
    def benchmark(self) -> str: ...
    @property
    def id(self) -> str: ...
    @property
    def query(self) -> str: ...
    @property
    def video(self) -> str: ...
    @property
    def duration_seconds(self) -> float | None: ...


class RowQuestion(AskedQuestion, Protocol):
    """The part of a benchmark's `Question` that goes into rows."""

    @property
    def options(self) -> tuple[str, ...]: ...
    @property
    def answer(self) -> str | None: ...
    @property
    def bucket(self) -> str | None: ...
    @property
    def evidence_seconds(self) -> tuple[float, ...]: ...
    @property
    def category(self) -> str: ...


@dataclass(frozen=True, kw_only=True)
class Chooser:
    """Who chose the frames: what a row says of it whatever the question. The fields are those of a `SelectionRow`."""

    selection_id: str
    sampler: str
    k: int
    seed: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)
    changed_options: Mapping[str, Any] = field(default_factory=dict)
    encoder: str = ""
    encoder_revision: str = ""
    scan_encoder: str = ""
    scan_encoder_revision: str = ""
    llm: str = ""
    llm_revision: str = ""
    role: str = "sampler"


@dataclass(frozen=True, kw_only=True)
class CellNames:
    """How a run's answers are called: a hash over all that can change them, and a readable name."""

    cell_id: str
    cell: str


def forward_gmacs(gmacs: Mapping[str, float]) -> float | None:
    """Return what a forward of a row's main encoder costs; None where it does not say.

    An image; a pair of image and text where the encoder reads both together.
    """
    return gmacs.get("image") or gmacs.get("fusion")


def selection_row(
    question: RowQuestion,
    chooser: Chooser,
    *,
    video: VideoInfo,
    keyframes: Sequence[int],
    times_seconds: Sequence[float],
    measured_seconds: float | None = None,
    bucket_of: BucketOf | None = None,
    **found: Any,
) -> SelectionRow:
    """Return the row of a question that has a selection.

    Args:
        measured_seconds: length of the video where the benchmark states none; by default that of `video`.
        bucket_of: length bucket of a duration in seconds, for questions that do not state their own.
        found: any other fields of a `SelectionRow`: query, scales, pulled_frames, clips, facts, seconds, ...
    """
    measured = video.duration_seconds if measured_seconds is None else measured_seconds
    duration = measured if question.duration_seconds is None else question.duration_seconds
    return SelectionRow(
        **{
            **_of_question(question, chooser, duration, bucket_of),
            **found,
            "n_frames": video.n_frames,
            "fps": video.fps,
            "keyframes": list(keyframes),
            "times_seconds": list(times_seconds),
        }
    )


def failed_selection_row(
    question: RowQuestion, chooser: Chooser, error: BaseException, *, bucket_of: BucketOf | None = None, **found: Any
) -> SelectionRow:
    """Return the row that records why a question has no selection; `found` as in `selection_row`."""
    fixed = _of_question(question, chooser, question.duration_seconds, bucket_of)
    return SelectionRow(**{**fixed, **found, "error": error_line(error)})


def answer_row(
    question: RowQuestion,
    names: CellNames,
    *,
    model: str,
    frames_asked: int,
    selection: SelectionRow | None,
    fed_frames: Sequence[int],
    **said: Any,
) -> AnswerRow:
    """Return the row of one model's answer, or of the error that prevented it.

    Args:
        selection: None where the wrapper sampled by itself; `said` then has its selection_id and frames_fed.
        fed_frames: indices of the frames that the model was given, in order.
        said: any other fields of an `AnswerRow`: answer, parsed, score, metric, seconds, error, ...
    """
    return AnswerRow(
        **{
            "benchmark": question.benchmark,
            "question_id": question.id,
            "video": question.video,
            "cell_id": names.cell_id,
            "cell": names.cell,
            "model": model,
            "bucket": (question.bucket if selection is None else selection.bucket) or "",
            "frames_asked": frames_asked,
            "frames_chosen": 0 if selection is None else len(selection.keyframes),
            "frames_fed": len(fed_frames),
            "fed_frames": list(fed_frames),
            "correct_answer": question.answer,
            "category": question.category,
            **({} if selection is None else {"selection_id": selection.selection_id}),
            **said,
        }
    )


def _of_question(
    question: RowQuestion, chooser: Chooser, duration_seconds: float | None, bucket_of: BucketOf | None
) -> dict[str, Any]:
    """Return the fields that a row has whether or not a selection came of it."""
    bucket = bucket_of(duration_seconds) if bucket_of and duration_seconds else ""
    return {
        **asdict(chooser),
        "benchmark": question.benchmark,
        "question_id": question.id,
        "video": question.video,
        "query": question.query,
        "bucket": question.bucket or bucket,
        "duration_seconds": duration_seconds or 0.0,
        "evidence_seconds": list(question.evidence_seconds),
        "option_texts": list(question.options),
    }
