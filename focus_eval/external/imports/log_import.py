"""Turns logs of lmms-eval into rows, so that reports read them like rows of our own runs.

    for log in read_log_imports(Path("logs"), LogOptions(frames_field="indices")):
        for selection, answer in log.rows():
            ...

A log is read several times and never held in memory: first its contents are counted and checked, then rows are made.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np

from focus_eval.bench.benchmarks.question import END_SLACK_SECONDS, Benchmark, letters
from focus_eval.bench.benchmarks.registry import (
    VideoRate,
    benchmark_of_task,
    facts_of,
    make_benchmark,
    read_annotations,
)
from focus_eval.bench.lmms.parsing import read_answer as read_strictly
from focus_eval.bench.rows.entries import Verdict
from focus_eval.bench.rows.store import part_name
from focus_eval.core.errors import InvalidInput, SelectionMismatch, UnknownName
from focus_eval.core.options import checked_values, option
from focus_eval.core.resources import whole_text
from focus_eval.core.types import Question
from focus_eval.external.imports.lmms_logs import (
    PREDICTION_SUFFIXES,
    LmmsLog,
    LogRecord,
    find_logs,
    read_answer,
    verdict_of,
)
from focus_eval.external.imports.log_questions import (
    FRAME_FIELDS,
    QuestionSource,
    first_record,
    group_fields,
    number_fields,
    question_source,
)
from focus_eval.external.imports.vlmevalkit import predictions_log
from focus_eval.keyframes.rows.identity import identity_hash
from focus_eval.keyframes.rows.records import (
    AnswerRow,
    CellNames,
    KnownSelection,
    Origin,
    SelectionRow,
    answer_row,
    selection_row,
)
from focus_eval.keyframes.subtitles.prompts import are_evenly_spaced, other_frames_note

# Metric name of scores that the import computed because the log has none.
SCORED_HERE = "from the annotation, strictly"
# A field with more distinct values does not group questions: ignore it.
MAX_GROUPS = 100
# Limit of the doubtful answers whose names are kept; all are counted.
MAX_DOUBTFUL = 10_000


@dataclass(frozen=True, kw_only=True)
class LogOptions:
    """Options of `import lmms`.

    Args:
        frames_field: the document's field with the frames that were fed; "" if the log does not have them.
        unit: unit of `frames_field`: "frames" of the video file, or "seconds".
        metric: the task's metric that is the score; "" for the first that gives one for each answer.
        k: frames that the model was to be shown; 0 to take it from the log.
        assume_uniform: assume evenly spaced frames for questions whose frames the log does not have.
        id_field: field with a question's id in the annotation; "" for the benchmark's own id field, else the row
            number.
        video_field: field with the name of the video, if no benchmark defines it.
        model, name: names of the model and the selection in the rows; "" takes them from the log.
    """

    frames_field: str = ""
    unit: Literal["frames", "seconds"] = "frames"
    metric: str = ""
    k: int = option(0, at_least=0)
    assume_uniform: bool = False
    id_field: str = ""
    video_field: str = ""
    model: str = ""
    name: str = ""

    def __post_init__(self) -> None:
        """Bring the options to their declared types; raise InvalidInput for a value of another type."""
        for name, value in checked_values("import lmms", self).items():
            object.__setattr__(self, name, value)


@dataclass(frozen=True, kw_only=True)
class LogOrigin:
    """Origin of an imported log, stored with its answers: stated facts, and problems met while reading.

    Args:
        file, stamp, task, split, model_args, scores: as the log states them; `scores` are figures by metric.
        metric: the metric that is the rows' score.
        n_questions: number of questions as stated in the results file; None if not stated.
        n_left_out: number of questions that the run's `limit` left out.
        is_k_stated: True if the log's arguments or the caller state K and no question was fed more frames. Otherwise K
            is the largest number of frames of a question.
        frames_field, unit: field that the frames were read from, and its unit.
        candidate_fields: fields with lists of numbers, if no frames were read: one of them may hold the frames.
        problems: a sentence for each record that could not be read.
        has_documents: False if the log leaves the documents out.
    """

    file: str = ""
    stamp: str = ""
    task: str = ""
    split: str = ""
    model_args: Mapping[str, str] = field(default_factory=dict)
    metric: str = ""
    scores: Mapping[str, float] = field(default_factory=dict)
    n_questions: int | None = None
    n_left_out: int = 0
    is_k_stated: bool = True
    frames_field: str = ""
    unit: str = "frames"
    candidate_fields: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    has_documents: bool = True

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> LogOrigin:
        """Return the origin in `cell.json`; fields that an older version did not write get their defaults."""
        return cls(**{item.name: document[item.name] for item in fields(cls) if item.name in document})

    @property
    def accuracy(self) -> float | None:
        """The log's own figure for the metric that is the rows' score; None if it states none."""
        return self.scores.get(self.metric)


@dataclass(frozen=True, kw_only=True)
class ScoredRecord:
    """One record of a log with its question, its score and the frames that were fed (None if the log lacks them)."""

    record: LogRecord
    question: Question
    verdict: Verdict | None
    parsed: str | None
    fed_frames: tuple[float, ...] | None

    @property
    def score(self) -> float:
        """The stated score; 0.0 without one."""
        return (self.verdict.score if self.verdict is not None else None) or 0.0


@dataclass(kw_only=True)
class LogCounts:
    """Counts of one pass over a log."""

    metric: str
    answers: int = 0
    score: float = 0.0
    unparsed: int = 0
    without_frames: int = 0
    unsorted: int = 0
    fewest_frames: int = 0
    most_frames: int = 0
    repeated: int = 0
    most_responses: int = 1
    past_end: int = 0
    first_past_end: str = ""
    digest: int = 0
    videos: set[str] = field(default_factory=set)
    lengths: Counter[str] = field(default_factory=Counter)
    groups: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    doubtful: list[tuple[str, str]] = field(default_factory=list)
    frame_fields: set[str] = field(default_factory=set)
    has_documents: bool = False

    @property
    def accuracy(self) -> float:
        """Mean score over all answers; NaN without answers."""
        return self.score / self.answers if self.answers else float("nan")


class LogImport:
    """One log as rows.

    Args:
        log: the log of one task of one run.
        source: where its questions come from.
        options: the caller's options.
        rates: length and rate by question or video; None if not known.
        is_tolerant: list unreadable lines in `problems` instead of raising an error for the first.
        needs_k: raise an error if K is unknown; False sets an unknown K to 0.

    Raises:
        InvalidInput: the log is damaged or lacks a score for an answer, or its K, a rate or its model is unknown.
        SelectionMismatch: an answer that contradicts the annotation.
    """

    def __init__(
        self,
        log: LmmsLog,
        source: QuestionSource,
        options: LogOptions,
        *,
        rates: Mapping[str, VideoRate] | None = None,
        is_tolerant: bool = False,
        needs_k: bool = True,
    ) -> None:
        """Read the log once to check and count it; raise InvalidInput for problems unless tolerant."""
        self.log, self.source, self.options, self.rates = log, source, options, rates
        self.is_tolerant, self.needs_k = is_tolerant, needs_k and not is_tolerant
        self.problems: list[str] = []
        self.name = whole_text(options.name or log.run)
        self.model = whole_text(options.model or log.model)
        if not self.model and not is_tolerant:
            raise InvalidInput(f"{log.samples}: {log.unnamed_model}; say which (--model)")
        self.counts = self._count()
        self.k = self._frames_asked()
        content = {"lmms_log": f"{self.counts.digest:032x}", "name": self.name, "k": self.k, "of": source.benchmark}
        self.selection_id = identity_hash(content)
        # Names of the folders with the log's selections and answers.
        self.part = part_name(f"{self.source.benchmark}-{self.name}-k{self.k}", location=log.samples)
        self.answers_part = part_name(f"{self.model}-{self.part}", location=log.samples)

    @property
    def cell(self) -> str:
        """Name of the log's cell in the rows."""
        return f"{self.source.benchmark}-{self.model}-{self.name}-k{self.k}"

    @property
    def versions(self) -> dict[str, str]:
        """Version of lmms-eval, as far as the log states it."""
        return {"lmms_eval": self.log.git_hash} if self.log.git_hash else {}

    @property
    def cell_document(self) -> dict[str, object]:
        """Content of the `cell.json` written with the answers."""
        return {
            "name": self.answers_part,
            "cell": self.cell,
            "identity": {"versions": self.versions},
            "log": asdict(self.origin),
        }

    @property
    def origin(self) -> LogOrigin:
        """Origin of the log's rows: the facts that the log states."""
        log, options = self.log, self.options
        is_without_frames = self.counts.without_frames > 0
        return LogOrigin(
            file=log.samples.name,
            stamp=log.stamp,
            task=log.task,
            split=log.split,
            model_args=dict(log.model_args),
            metric=self.counts.metric,
            scores=dict(log.scores),
            n_questions=log.n_samples,
            n_left_out=log.n_left_out,
            is_k_stated=(options.k or log.frames_asked(0)) == self.k,
            frames_field=options.frames_field,
            unit=options.unit,
            candidate_fields=tuple(sorted(self.counts.frame_fields)) if is_without_frames else (),
            problems=tuple(self.problems),
            has_documents=self.counts.has_documents,
        )

    def rows(self) -> Iterator[tuple[SelectionRow, AnswerRow]]:
        """Yield the selection and the answer of each question in the log's order."""
        identity = {"selection": self.selection_id, "model": self.model, "arguments": dict(self.log.model_args)}
        names = CellNames(cell_id=identity_hash({**identity, "task": self.log.task}), cell=self.cell)
        for scored in self._scored_records(self.counts.metric):
            if isinstance(scored, str):  # recorded in `problems` at the first reading
                continue
            selection = self._selection(scored)
            yield selection, self._answer(scored, selection, names)

    def _count(self) -> LogCounts:
        """Read the log once and return its counts; problems are raised, or listed by a tolerant import."""
        counts = LogCounts(metric=self._metric())
        line_of: dict[str, str] = {}
        for scored in self._scored_records(counts.metric):
            if isinstance(scored, str):
                self.problems.append(scored)
                continue
            question_id, location = scored.question.id, scored.record.location
            if question_id in line_of:
                problem = f"{location}: question {question_id!r} a second time, first in {line_of[question_id]}"
                if not self.is_tolerant:
                    raise InvalidInput(problem)
                self.problems.append(problem)
            line_of[question_id] = f"line {scored.record.line}"
            _count_record(counts, scored, self._rate(scored), self.options.unit)
        if not counts.answers and not self.problems:
            raise InvalidInput(f"{self.log.samples}: no answers in this file; copy it again")
        expected = self.log.n_samples
        if expected is not None and counts.answers != expected and not self.is_tolerant:
            if counts.answers > expected:
                raise InvalidInput(
                    f"{self.log.samples}:{expected + 1}: {counts.answers} lines, its run asked {expected} questions; "
                    "lines of another split or run: remove them"
                )
            raise InvalidInput(
                f"{self.log.samples}:{counts.answers}: the file ends here, its run asked {expected} questions; "
                "copy it again, or move the results file away to import what is there"
            )
        return counts

    def _metric(self) -> str:
        """The name of the score's metric: the option `metric`, or the first metric of line 1 that has a verdict."""
        first = first_record(self.log, is_tolerant=self.is_tolerant)
        if first is None:
            return ""
        if self.options.metric:
            entry = first.metrics.get(self.options.metric)
            if entry is None or verdict_of(entry) is None:
                names = [name for name, other_entry in first.metrics.items() if verdict_of(other_entry) is not None]
                raise InvalidInput(
                    f"{first.location}: no score in {self.options.metric!r}; "
                    f"scores are in: {', '.join(names) or 'none'}"
                )
            return self.options.metric
        group = facts_of(self.source.benchmark).group_score
        # Try the metric of single questions first: lmms-eval also logs the score of a group at each question of the
        # group.
        preferred = [group.question_metric] if group else []
        for name in dict.fromkeys([*preferred, *self.log.metric_names, *first.metrics]):
            if verdict_of(first.metrics.get(name)) is not None:
                return name
        if self.is_tolerant or _is_answerable(self.source.question(first)):
            return ""
        raise InvalidInput(
            f"{first.location}: no entry says whether the answer is right, "
            f"only {', '.join(first.metrics) or 'nothing'}; give the benchmark and its --annotations, with options and "
            "right answers, and the answers are scored here"
        )

    def _scored_records(self, metric: str) -> Iterator[ScoredRecord | str]:
        """Yield the records with question and score; for an unreadable one, a tolerant import yields a sentence."""
        records = self.log.records()
        while True:
            try:
                record = next(records, None)
                if record is None:
                    return
                scored = self._scored(record, metric)
            except (InvalidInput, SelectionMismatch) as error:
                if not self.is_tolerant:
                    raise
                yield str(error)
                continue
            yield scored

    def _scored(self, record: LogRecord, metric: str) -> ScoredRecord:
        """Return the record with its question, score and answer.

        Raises InvalidInput if the metric has no score from 0 to 1, SelectionMismatch if the log's right answer is not
        the
        annotation's.
        """
        verdict = verdict_of(record.metrics.get(metric))
        if verdict is None and metric:
            raise InvalidInput(f"{record.location}: {metric} holds no score; choose another (-o metric=NAME)")
        score = 0.0 if verdict is None else verdict.score or 0.0
        if not 0 <= score <= 1:
            raise InvalidInput(
                f"{record.location}: {metric} is {score:g}, not from 0 to 1; choose another (-o metric=NAME)"
            )
        question = self.source.question(record)
        name, unit = self.options.frames_field, self.options.unit
        fed_frames = record.frames(name, unit=unit) if name else None
        if verdict is None and _is_answerable(question):
            answer = read_strictly(question, record.response)
            verdict = Verdict(score=answer.score, predicted=answer.parsed, right=question.answer)
            return ScoredRecord(
                record=record, question=question, verdict=verdict, parsed=answer.parsed, fed_frames=fed_frames
            )
        if verdict is None:
            return ScoredRecord(record=record, question=question, verdict=None, parsed="", fed_frames=fed_frames)
        _refuse_other_answer(record, question, verdict)
        parsed = read_answer(record.response, verdict, question.options)
        return ScoredRecord(record=record, question=question, verdict=verdict, parsed=parsed, fed_frames=fed_frames)

    def _frames_asked(self) -> int:
        """K from the options, else from the log. If unknown: 0, or InvalidInput with `needs_k`."""
        if self.options.k:
            return self.options.k
        k = self.log.frames_asked(self.counts.most_frames)
        if not k and self.needs_k:
            location = self.log.results or self.log.samples
            raise InvalidInput(f"{location}: K unknown, model_args names no number of frames; say it (-o k=32)")
        return k

    def _rate(self, scored: ScoredRecord) -> VideoRate | None:
        """Return length and rate of the record's video, by question id, video or its stem; None if unknown.

        Raises InvalidInput if rates are given but not for this video, and its frames need one.
        """
        rates, question = self.rates, scored.question
        if rates is None:
            return None
        for key in (question.id, question.video, Path(question.video).stem):
            if key in rates:
                return rates[key]
        if self.is_tolerant or (scored.fed_frames is None and not self.options.assume_uniform):
            return None  # without frames there are no times
        raise InvalidInput(
            f"{scored.record.location}: no length and rate for question {question.id} or video {question.video}; "
            "add its line to --rates"
        )

    def _selection(self, scored: ScoredRecord) -> SelectionRow:
        """The selection row of a record; if the log lacks its frames, they are null or assumed evenly spaced."""
        question, rate = scored.question, self._rate(scored)
        frames, times = _frames_and_times(scored.fed_frames, rate, self.options.unit)
        facts: dict[str, object] = {"published": True, "log": "lmms-eval"}
        if scored.fed_frames is None and self.options.assume_uniform and rate is not None:
            frames = [int(frame) for frame in np.linspace(0, rate.n_frames - 1, self.k)]
            times = [float(time) for time in np.linspace(0, rate.n_frames - 1, self.k) / float(rate.fps)]
            facts["frames"] = "assumed evenly spaced"
        if scored.record.prompt_digest:
            facts["prompt"] = scored.record.prompt_digest
        if not self.counts.metric and scored.verdict is not None:
            facts["scored"] = SCORED_HERE
        if groups := group_fields(scored.record):
            facts["groups"] = groups
        length = question.duration_seconds or (rate.duration_seconds if rate else None)
        return selection_row(
            question,
            Origin(selection_id=self.selection_id, sampler=self.name, k=self.k),
            KnownSelection(video=None if rate is None else rate.info, keyframes=frames, times_seconds=times),
            facts=facts,
            measured_seconds=length,
            bucket_of=self.source.bucket if length else None,
        )

    def _answer(self, scored: ScoredRecord, selection: SelectionRow, names: CellNames) -> AnswerRow:
        """The answer row of a record; its right answer is the annotation's, else the log's."""
        question, verdict = scored.question, scored.verdict
        shown_frames = selection.keyframes if scored.fed_frames is None else scored.fed_frames
        n_fed = None if shown_frames is None else len(shown_frames)
        is_frames = scored.fed_frames is not None and self.options.unit == "frames"
        is_even = scored.fed_frames is None or are_evenly_spaced(scored.fed_frames)
        n_shown = n_fed if n_fed is not None else self.k if self.log.frames_asked(0) else None
        right = question.answer or (verdict.right if verdict is not None else None) or scored.record.target
        return answer_row(
            question,
            names,
            model=self.model,
            frames_asked=self.k,
            selection=selection,
            fed_frames=[int(frame) for frame in scored.fed_frames or ()] if is_frames else [],
            frames_fed=n_fed,
            frames_chosen=n_fed,
            answer=scored.record.response,
            parsed=scored.parsed,
            correct_answer=right or None,
            score=None if verdict is None else verdict.score,
            metric=self.counts.metric,
            prompt_note=other_frames_note(
                scored.record.prompt, self.log.task_arguments, n_shown=n_shown, is_even=is_even
            ),
        )


def _is_answerable(question: Question) -> bool:
    """True if a reply can be scored: the question has options and the letter of the right option."""
    return bool(question.options) and (question.answer or "") in [*letters(len(question.options))]


def read_log_imports(
    path: Path,
    options: LogOptions,
    *,
    benchmark: str = "",
    annotations: Path | Sequence[Question] | None = None,
    rates: Mapping[str, VideoRate] | None = None,
    is_tolerant: bool = False,
    needs_k: bool = True,
) -> list[LogImport]:
    """Return the checked logs in a file of samples, in a table of VLMEvalKit, or below a folder.

    Args:
        benchmark: name of the benchmark; "" takes the benchmark of each log's task.
        annotations: the benchmark's questions in order, or their file.
        rates: length and rate by question or video.
        is_tolerant: as in `LogImport`. True also reads logs of other benchmarks, without the annotation.
        needs_k: as in `LogImport`.

    Raises:
        InvalidInput, SelectionMismatch: logs that cannot be read, share a name or do not fit the annotation.
    """
    logs = [predictions_log(path)] if path.suffix in PREDICTION_SUFFIXES else find_logs(path)
    if options.name and len(logs) > 1:
        raise InvalidInput(f"{path}: {len(logs)} logs cannot all be called {options.name!r}; import each by itself")
    imports = []
    questions_by_benchmark: dict[str, Sequence[Question] | None] = {}
    for log in logs:
        described = _benchmark_of(log, benchmark)
        name = described.name if described is not None else ""
        if name not in questions_by_benchmark:
            questions_by_benchmark[name] = _annotated(described, annotations, log)
        annotated = questions_by_benchmark[name]
        if is_tolerant and annotated and (described is None or described.name != annotated[0].benchmark):
            annotated = None
        source = question_source(
            log,
            benchmark=described,
            annotated=annotated,
            is_named=bool(benchmark),
            id_field=options.id_field,
            video_field=options.video_field,
            is_tolerant=is_tolerant,
        )
        imports.append(LogImport(log, source, options, rates=rates, is_tolerant=is_tolerant, needs_k=needs_k))
    if not is_tolerant:
        _refuse_same_names(imports)
        _refuse_unknown_field(path, imports, options)
    return imports


def _benchmark_of(log: LmmsLog, name: str) -> Benchmark | None:
    """The benchmark called `name`, or that of the log's task; None if neither is known here."""
    if name:
        return make_benchmark(name)
    try:
        return benchmark_of_task(log.task)
    except UnknownName:
        return None


def _annotated(
    benchmark: Benchmark | None, annotations: Path | Sequence[Question] | None, log: LmmsLog
) -> Sequence[Question] | None:
    """Return the questions in the file `annotations`, or `annotations` itself if it is not a path.

    Raises InvalidInput for a file if the benchmark is not known.
    """
    if not isinstance(annotations, Path):
        return annotations
    if benchmark is None:
        task = f"the task {log.task}" if log.task else "a table of answers"
        raise InvalidInput(f"{annotations}: {task} does not say of which benchmark these are; name it (--benchmark)")
    return read_annotations(benchmark, annotations)


def _refuse_unknown_field(path: Path, imports: Sequence[LogImport], options: LogOptions) -> None:
    """Raise InvalidInput if no line has the field of frames: its name is probably mistyped."""
    if not options.frames_field or options.assume_uniform or any(item.counts.most_frames for item in imports):
        return
    names = sorted({name for item in imports for name in number_fields(next(item.log.records()))})
    raise InvalidInput(
        f"{path}: no line has the field {options.frames_field!r}; lists of numbers are in: "
        f"{', '.join(names) or 'none'} (without --frames-field the frames are unknown)"
    )


def _refuse_same_names(imports: Sequence[LogImport]) -> None:
    """Raise InvalidInput if two logs would be written to the same place."""
    import_by_place: dict[tuple[str, str], LogImport] = {}
    for item in imports:
        key = (item.model, item.part)
        if key in import_by_place:
            raise InvalidInput(
                f"{item.log.samples}: two runs are called {item.name!r}, the other is "
                f"{import_by_place[key].log.samples}; import one of them with another --name"
            )
        import_by_place[key] = item


def _count_record(counts: LogCounts, scored: ScoredRecord, rate: VideoRate | None, unit: str) -> None:
    """Add one record to `counts`: answer, score, video, digest and frames."""
    question, record, frames = scored.question, scored.record, scored.fed_frames
    counts.answers += 1
    counts.score += scored.score
    counts.videos.add(question.video)
    counts.has_documents = counts.has_documents or record.doc is not None
    counts.repeated += record.n_responses > 1
    counts.most_responses = max(counts.most_responses, record.n_responses)
    if scored.parsed is None:
        counts.unparsed += 1
        if len(counts.doubtful) < MAX_DOUBTFUL:
            counts.doubtful.append((question.id, f"line {record.line}"))
    _count_groups(counts, scored)
    content = json.dumps([question.id, frames], separators=(",", ":"))
    counts.digest = (counts.digest + int(hashlib.sha256(content.encode()).hexdigest()[:32], 16)) % 2**128
    if frames is None:
        counts.without_frames += 1
        counts.frame_fields |= {name for name in FRAME_FIELDS if (record.doc or {}).get(name) is not None}
        return
    is_first = counts.answers - counts.without_frames == 1
    counts.fewest_frames = len(frames) if is_first else min(counts.fewest_frames, len(frames))
    counts.most_frames = max(counts.most_frames, len(frames))
    counts.unsorted += any(later < earlier for earlier, later in pairwise(frames))
    if rate is None or not frames:
        return
    last = max(frames)
    last_seconds = last if unit == "seconds" else last / float(rate.fps)
    if last_seconds > rate.duration_seconds + END_SLACK_SECONDS:
        counts.past_end += 1
        counts.first_past_end = counts.first_past_end or f"line {record.line} ({question.id}): {last:,.10g}"


def _count_groups(counts: LogCounts, scored: ScoredRecord) -> None:
    """Add the record's score to each group that the metric's entry names, since some tasks average over groups."""
    entry = scored.record.metrics.get(counts.metric)
    for name, value in entry.items() if isinstance(entry, Mapping) and scored.verdict is not None else ():
        if not isinstance(value, (str, int)):
            continue
        groups = counts.groups.setdefault(name, {})
        if len(groups) <= MAX_GROUPS:
            total = groups.setdefault(str(value), [0.0, 0.0])
            total[0] += scored.score
            total[1] += 1


def _frames_and_times(
    fed_frames: tuple[float, ...] | None, rate: VideoRate | None, unit: str
) -> tuple[list[int] | None, list[float] | None]:
    """The fed frames and their times, each ascending; None for either if log and rate do not give it."""
    if fed_frames is None:
        return None, None
    values = sorted(fed_frames)
    fps = None if rate is None else float(rate.fps)
    if unit == "frames":
        return [int(frame) for frame in values], None if fps is None else [frame / fps for frame in values]
    if rate is None:
        return None, values
    return rate.info.frames_at(values), values


def _refuse_other_answer(record: LogRecord, question: Question, verdict: Verdict) -> None:
    """Raise SelectionMismatch if log and annotation state different right letters: the benchmark versions differ."""
    right = verdict.right
    if right is None or question.answer is None or not (len(right) == len(question.answer) == 1):
        return
    if right.isupper() and right != question.answer:
        raise SelectionMismatch(
            f"{record.location} ({question.id}): the log's right answer is {right}, the annotation's is "
            f"{question.answer}; another version of the benchmark?"
        )


def stated_accuracy(log: LogImport) -> tuple[float | None, bool]:
    """Return the log's own figure for the metric, and True if the rows' mean equals it to its last digit.

    Tasks state a share or a percentage, rounded or not.
    """
    accuracy = log.log.scores.get(log.counts.metric)
    return accuracy, accuracy is not None and equals_to_last_digit(log.counts.accuracy, accuracy)


def explain_difference(log: LogImport, accuracy: float) -> str:
    """Return why `accuracy`, the figure that the log states, differs from the mean over the log's answers.

    If `accuracy` is a mean over groups, the text names the groups. Otherwise it lists doubtful answers, or says that
    there are none.
    """
    for name, groups in log.counts.groups.items():
        group_means = [score / n for score, n in groups.values()]
        if 1 < len(group_means) <= MAX_GROUPS and equals_to_last_digit(float(np.mean(group_means)), accuracy):
            return f"it is the mean over the {len(group_means)} values of {name}"
    doubtful = log.counts.doubtful
    if not doubtful:
        return "no answer is in doubt: its figure is made otherwise"
    gap = min(abs(log.counts.accuracy - accuracy / scale) for scale in (1.0, 100.0))
    if (n_apart := round(gap * log.counts.answers)) > len(doubtful):
        return (
            f"{n_apart} answers apart, {len(doubtful)} in doubt: are lines of another split, run or model in the log?"
        )
    listed = "; ".join(f"{question} ({line})" for question, line in doubtful[:5])
    return f"{len(doubtful)} answers could not be read or were guessed: {listed}"


def equals_to_last_digit(mean: float, accuracy: float) -> bool:
    """Return True if `accuracy`, a share or per cent, is `mean`, a share, rounded to the digits of `accuracy`."""
    decimals = len(repr(accuracy).partition(".")[2]) if "e" not in repr(accuracy) else 12
    half = 0.5 * 10.0**-decimals
    return any(abs(mean * scale - accuracy) <= half + 1e-12 * max(1.0, scale) for scale in (1.0, 100.0))
