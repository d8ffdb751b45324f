"""Reads what `audit` checks: logs of lmms-eval, files of selections, and our own runs."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from focus_eval.benchmarks.declared import DeclaredBenchmark
from focus_eval.benchmarks.evidence import END_SLACK_SECONDS, annotation_fps
from focus_eval.benchmarks.question import Question
from focus_eval.benchmarks.registry import VideoRate, make_benchmark
from focus_eval.core.errors import InvalidInput, SelectionMismatch
from focus_eval.report.audit import AuditedAnswer, AuditedRun
from focus_eval.report.run import load_run
from focus_eval.rows.packed import run_folder
from focus_eval.rows.records import AnswerRow, SelectionRow
from focus_eval.selections.lmms_logs import LmmsLog, LogRecord, answer_read, find_logs, verdict_of
from focus_eval.selections.loading import load_selections
from focus_eval.selections.log_questions import category_of, options_of

# Fields that forks put the frames that they fed into; shown where none was named.
FRAME_FIELDS = ("indices", "frame_idx", "frame_indices", "frames_used", "selected_frames", "frames")
_SAME_RATE = 0.1
_SELECTION_FILE, _LOG_FILE = re.compile(r"\.(json|jsonl|parquet)(\.gz)?$"), re.compile(r"_samples_|_results\.")


@dataclass(frozen=True, kw_only=True)
class AuditSource:
    """What is known beside the files.

    Args:
        frames_field: field of a log that holds the frames that were fed; "" where frames are not read.
        questions: of the benchmark, in the annotation's order; None where not given.
        rates: length and rate by question id.
        position_fps: rate at which the annotation counts frames; 0 where it does not.
    """

    frames_field: str = ""
    questions: Sequence[Question] | None = None
    rates: Mapping[str, VideoRate] = field(default_factory=dict)
    position_fps: float = 0.0

    @property
    def expected(self) -> frozenset[str]:
        """Return the ids of the benchmark's questions; none where they are not known."""
        return frozenset(question.id for question in self.questions or ())

    def lengths(self, unit: str) -> dict[str, tuple[float, float]]:
        """Return the length of each question's video, and what is more than a second past its end."""
        made: dict[str, tuple[float, float]] = {}
        for key, rate in self.rates.items():
            length, scale = (rate.n_frames, float(rate.fps)) if unit == "frames" else (rate.duration_seconds, 1.0)
            made[key] = (length, (rate.duration_seconds + END_SLACK_SECONDS) * scale)
        return made

    def positions(self, benchmark: str = "") -> dict[str, tuple[int, ...]]:
        """Return annotated frame numbers by question, where its video has another rate than the annotation.

        Args:
            benchmark: the only one whose questions are meant; "" for whichever they are.
        """
        return {
            asked.id: tuple(round(time * self.position_fps) for time in asked.evidence_seconds)
            for asked in self.questions or ()
            if self.position_fps > 0
            and asked.id in self.rates
            and not self.is_at_its_rate(asked.id)
            and (not benchmark or asked.benchmark == benchmark)
        }

    def is_at_its_rate(self, key: str) -> bool:
        """Return whether the question's video has the rate of the annotation, so that its numbers are frames."""
        return key in self.rates and abs(float(self.rates[key].fps) - self.position_fps) <= _SAME_RATE


def position_fps_of(benchmark: str) -> float:
    """Return the rate at which a benchmark's annotation counts frames; 0 where it does not count frames."""
    made = make_benchmark(benchmark)
    unit = made.fields.evidence_unit if isinstance(made, DeclaredBenchmark) else ""
    return annotation_fps(unit) if unit.startswith("frames@") else 0.0


@dataclass(frozen=True, kw_only=True)
class AuditInput:
    """What was found under the paths.

    Args:
        notes: sentences on what was not read or not checked, for the user.
    """

    runs: tuple[AuditedRun, ...]
    notes: tuple[str, ...]


def read_paths(paths: Sequence[Path], source: AuditSource) -> AuditInput:
    """Return all runs and selections in `paths`: runs of ours, packed too, logs and folders of logs, selection files.

    Raises:
        InvalidInput: a path that does not exist, or nothing in it that can be checked.
    """
    runs: list[AuditedRun] = []
    notes: list[str] = []
    for path in paths:
        if not path.exists():
            raise InvalidInput(f"{path}: no such file or folder")
        found = list(_read_path(run_folder(path), source, notes))
        if not found:
            raise InvalidInput(f"{path}: neither a run, nor lmms-eval's samples, nor a file of selections")
        runs += found
    return AuditInput(runs=_named_apart(runs), notes=tuple(dict.fromkeys(notes)))


def _read_path(path: Path, source: AuditSource, notes: list[str]) -> Iterator[AuditedRun]:
    if path.is_dir() and ((path / "selections").is_dir() or (path / "answers").is_dir()):
        yield from runs_of_folder(path, source)
    elif path.is_dir():
        inside = sorted(file for file in path.rglob("*") if file.is_file())
        if any("_samples_" in file.name for file in inside):
            yield from (read_log(log, source, notes) for log in find_logs(path))
        for file in inside:
            if _SELECTION_FILE.search(file.name) and not _LOG_FILE.search(file.name):
                yield from _file(file, source, notes, is_asked=False)
    else:
        yield from _file(path, source, notes, is_asked=True)


def _file(path: Path, source: AuditSource, notes: list[str], *, is_asked: bool) -> Iterator[AuditedRun]:
    if "_samples_" in path.name or (path.suffix == ".parquet" and _is_table(path)):
        yield from (read_log(log, source, notes) for log in find_logs(path))
        return
    try:
        yield read_selection(path, source)
    except InvalidInput as error:  # a file that is no selection, beside others
        if is_asked:
            raise
        notes.append(f"{path}: not checked ({error})")


def read_log(log: LmmsLog, source: AuditSource, notes: list[str]) -> AuditedRun:
    """Return one run of a log; lines that cannot be read are its problems, and what follows them is not read."""
    answers: dict[str, AuditedAnswer] = {}
    frames: dict[str, tuple[float, ...]] = {}
    positions: dict[str, tuple[int, ...]] = {}
    problems, candidates = [], set()
    # A million lines hold the same few texts and frame numbers: each is kept once.
    texts: dict[str, str] = {}
    numbers: dict[float, float] = {}
    metric = ""
    try:
        for record in log.records():
            key = _question_id(record)
            metric = metric or _metric(log, record)
            answers[key] = _answer(record, metric, texts)
            shown = record.frames(source.frames_field) if source.frames_field else None
            if shown is not None:
                frames[key] = tuple(numbers.setdefault(frame, frame) for frame in shown)
            elif record.doc is not None:
                candidates |= {name for name in FRAME_FIELDS if record.doc.get(name) is not None}
            positions |= {} if source.is_at_its_rate(key) else _positions(record, key)
    except (InvalidInput, SelectionMismatch) as error:
        problems.append(str(error))
    if candidates or (source.frames_field and not problems and len(frames) < len(answers)):
        asked = f"no field {source.frames_field!r} in some lines" if source.frames_field else "no --frames-field"
        there = f"; its documents have {', '.join(sorted(candidates))}" if candidates else ""
        notes.append(f"{log.samples}: frames not read ({asked}){there}")
    scores = [answer.score for answer in answers.values() if answer.score is not None]
    accuracy = log.scores.get(metric)
    return AuditedRun(
        name=log.run,
        group=" ".join((log.task or log.samples.name, log.model)),
        answers=answers,
        frames=frames,
        k=log.frames_asked(max(map(len, frames.values()), default=0)) or None,
        lengths=source.lengths("frames"),
        positions=positions,
        expected=source.expected if any(key in source.expected for key in answers) else frozenset(),
        stated_accuracy=accuracy,
        stated_questions=log.n_samples,
        scale=100.0 if accuracy is not None and accuracy > 1 and max(scores, default=0) <= 1 else 1.0,
        problems=tuple(problems),
    )


def read_selection(path: Path, source: AuditSource) -> AuditedRun:
    """Return a file of selections; a row that does not fit is its problem.

    Raises:
        InvalidInput: a file that holds no selections, or none that can be read without the questions.
    """
    name = path.name.split(".")[0]
    try:
        loaded = load_selections(path, questions=source.questions, allow_missing=True)
    except SelectionMismatch as error:
        if "not a known kind" in str(error):
            raise InvalidInput(str(error)) from error
        return AuditedRun(name=name, problems=(str(error),))
    is_frames = all(chosen.keyframes is not None for chosen in loaded.values())
    fps = {key: float(rate.fps) for key, rate in source.rates.items()}
    frames = {
        key: tuple(map(float, chosen.keyframes or ())) if is_frames else chosen.times_at(fps.get(key, 0.0))
        for key, chosen in loaded.items()
    }
    return AuditedRun(
        name=name,
        frames=frames,
        unit="frames" if is_frames else "seconds",
        k=max(chosen.k for chosen in loaded.values()),
        lengths=source.lengths("frames" if is_frames else "seconds"),
        positions=source.positions(),
        expected=source.expected,
    )


def runs_of_folder(path: Path, source: AuditSource) -> Iterator[AuditedRun]:
    """Yield a run for each selection that each model answered, and for each selection alone."""
    run = load_run(path)
    labels = run.labels
    frames: dict[str, dict[str, tuple[float, ...]]] = {}
    lengths: dict[str, dict[str, tuple[float, float]]] = {}
    about: dict[str, SelectionRow] = {}
    for row in run.selections:
        about.setdefault(row.selection_id, row.without_pulls())
        if row.error is None:
            frames.setdefault(row.selection_id, {})[row.question_id] = tuple(map(float, row.keyframes))
            lengths.setdefault(row.selection_id, {})[row.question_id] = (row.n_frames, _surely_past(row))
    answers: dict[tuple[str, str], dict[str, AuditedAnswer]] = {}
    for answer in run.answers:
        if answer.error is None:
            prompt = str(run.made_with.get(answer.cell, {}).get("prompt", ""))
            answers.setdefault((answer.selection_id, answer.model), {})[answer.question_id] = _answered(answer, prompt)
    without = [(key, "") for key in about if not any(key == selection for selection, _ in answers)]
    for selection_id, model in [*answers, *without]:
        row = about[selection_id]
        who = " ".join((model, labels.get(selection_id, selection_id))).strip()
        yield AuditedRun(
            name=f"{path.name}: {who}, K = {row.k}, seed {row.seed}",
            group=f"{row.benchmark} {model}",
            answers=answers.get((selection_id, model), {}),
            frames=frames.get(selection_id, {}),
            k=row.k if row.role == "sampler" else None,  # a ceiling or a floor does not choose K frames
            lengths=lengths.get(selection_id, {}),
            positions=source.positions(row.benchmark),
            are_frames_sure=not row.facts.get("published"),
        )


def _answered(row: AnswerRow, prompt: str) -> AuditedAnswer:
    """What is checked of an answer of ours; after a fallback other frames were fed, and the row says so."""
    return AuditedAnswer(
        text=row.answer or "",
        is_parsed=not row.is_unparsed,
        score=row.score,
        prompt=prompt,
        fed=tuple(map(float, row.fed_frames)) if row.fed_frames and not row.fallback else None,
    )


def _surely_past(row: SelectionRow) -> float:
    """The first frame that is past the end; where no reader counted the frames, a second later."""
    is_counted = not row.facts.get("published")
    return row.n_frames if is_counted else row.n_frames + END_SLACK_SECONDS * row.fps


def _metric(log: LmmsLog, record: LogRecord) -> str:
    """The first metric that says whether an answer is right; "" where none does."""
    names = (*log.metric_names, *record.metrics)
    return next((name for name in names if verdict_of(record.metrics.get(name)) is not None), "")


def _answer(record: LogRecord, metric: str, texts: dict[str, str]) -> AuditedAnswer:
    verdict = verdict_of(record.metrics.get(metric))
    category = category_of(record)
    prompt = hashlib.md5(record.prompt.encode(), usedforsecurity=False).digest()[:8] if record.prompt else b""
    return AuditedAnswer(
        text=texts.setdefault(record.response, record.response),
        is_parsed=verdict is None or answer_read(record.response, verdict, options_of(record)) is not None,
        score=None if verdict is None else verdict.score,
        prompt=prompt or record.prompt_hash,
        category=texts.setdefault(category, category),
    )


def _question_id(record: LogRecord) -> str:
    """The document's own id where it has one, the id that a metric repeats, else its row."""
    for name in ("id", "question_id", "uid", "qid"):
        value = (record.doc or {}).get(name)
        if value is not None:
            return str(value)
    for entry in record.metrics.values():
        if isinstance(entry, Mapping) and entry.get("question_id") is not None:
            return str(entry["question_id"])
    return str(record.doc_id)


def _positions(record: LogRecord, key: str) -> dict[str, tuple[int, ...]]:
    """Annotated frame numbers of a document."""
    listed = (record.doc or {}).get("position")
    if not isinstance(listed, Sequence) or isinstance(listed, str):
        return {}
    return {key: tuple(int(value) for value in listed)}


def _is_table(path: Path) -> bool:
    try:
        return bool(find_logs(path))
    except InvalidInput:
        return False


def _named_apart(runs: Sequence[AuditedRun]) -> tuple[AuditedRun, ...]:
    """Number the runs that share a name: findings must say which is meant."""
    seen: dict[str, int] = {}
    made = []
    for run in runs:
        seen[run.name] = seen.get(run.name, 0) + 1
        made.append(run if seen[run.name] == 1 else replace(run, name=f"{run.name} ({seen[run.name]})"))
    return tuple(made)
