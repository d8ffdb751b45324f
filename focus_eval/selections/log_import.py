"""Turns a log of lmms-eval into the rows of a run, so that reports read it as one of ours.

The log is read several times and held never: first what it says is counted and checked, then the rows are written.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Literal

import numpy as np

from focus_eval.benchmarks.evidence import END_SLACK_SECONDS
from focus_eval.benchmarks.question import Question
from focus_eval.benchmarks.registry import VideoRate
from focus_eval.core.errors import InvalidInput, SelectionMismatch
from focus_eval.core.options import checked_values, option
from focus_eval.core.resources import whole_text
from focus_eval.core.types import VideoInfo
from focus_eval.rows.identity import identity_hash
from focus_eval.rows.records import AnswerRow, CellNames, Chooser, SelectionRow, answer_row, selection_row, write_text
from focus_eval.rows.store import part_writer
from focus_eval.selections.imported import video_stem
from focus_eval.selections.lmms_logs import LmmsLog, LogRecord, Verdict, answer_read, verdict_of
from focus_eval.selections.log_questions import QuestionSource
from focus_eval.selections.published_rows import part_name

# Above so many different values a field is no grouping of questions.
_MOST_GROUPS = 100
# Answers in doubt that are held to be named; all are counted.
_MOST_LISTED = 10_000


@dataclass(frozen=True, kw_only=True)
class LogOptions:
    """What the caller says of logs.

    Args:
        frames_field: the document's field with the frames that were fed; "" where the log does not say them.
        unit: of that field, "frames" of the file or "seconds".
        metric: which of the task's metrics is the score; "" for the first that gives one for each answer.
        k: frames the model was asked to see; 0 to take it from the log.
        assume_uniform: questions whose frames the log does not say were shown evenly spaced frames.
        id_field: field with a question's id in the annotation; "" for the benchmark's own, or the row.
        video_field: field that names the video, where no benchmark says which.
        model, name: in the rows; "" to take them from the log.
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
        for name, value in checked_values("import lmms", self).items():
            object.__setattr__(self, name, value)


@dataclass(frozen=True, kw_only=True)
class Answered:
    """One record with its question, what it is worth, and the frames fed (None where the log does not say)."""

    record: LogRecord
    question: Question
    verdict: Verdict
    parsed: str | None
    fed: tuple[float, ...] | None


@dataclass(kw_only=True)
class LogCounts:
    """What was counted in one pass over a log."""

    metric: str
    answers: int = 0
    score: float = 0.0
    unparsed: int = 0
    without_frames: int = 0
    unsorted: int = 0
    fewest_frames: int = 0
    most_frames: int = 0
    past_end: int = 0
    first_past_end: str = ""
    digest: int = 0
    videos: set[str] = field(default_factory=set)
    lengths: Counter[str] = field(default_factory=Counter)
    groups: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    doubtful: list[tuple[str, str]] = field(default_factory=list)

    @property
    def accuracy(self) -> float:
        return self.score / self.answers if self.answers else float("nan")


class LogImport:
    """One log as rows.

    Args:
        log: of one task of one run.
        source: how its questions are known.
        options: what the caller says of it.
        rates: length and rate by question or video; None where not known.

    Raises:
        InvalidInput: a log that is damaged, without a score for each answer, or whose K, rates or model are not known.
        SelectionMismatch: an answer that contradicts the annotation.
    """

    def __init__(
        self, log: LmmsLog, source: QuestionSource, options: LogOptions, *, rates: Mapping[str, VideoRate] | None = None
    ) -> None:
        self.log, self.source, self.options, self.rates = log, source, options, rates
        self.name = whole_text(options.name or log.run)
        self.model = whole_text(options.model or log.model)
        if not self.model:
            raise InvalidInput(f"{log.samples}: no results file beside it names the model; say which (--model)")
        self.counts = self._count()
        self.k = self._frames_asked()
        content = {"lmms_log": f"{self.counts.digest:032x}", "name": self.name, "k": self.k, "of": source.benchmark}
        self.selection_id = identity_hash(content)
        # Folders of its selections and its answers.
        self.part = part_name(f"{self.source.benchmark}-{self.name}-k{self.k}", where=log.samples)
        self.answers_part = part_name(f"{self.model}-{self.part}", where=log.samples)

    def rows(self) -> Iterator[tuple[SelectionRow, AnswerRow]]:
        """Yield the selection and the answer of each question in the log's order."""
        identity = {"selection": self.selection_id, "model": self.model, "arguments": dict(self.log.model_args)}
        cell = f"{self.source.benchmark}-{self.model}-{self.name}-k{self.k}"
        names = CellNames(cell_id=identity_hash({**identity, "task": self.log.task}), cell=cell)
        for answered in self._answered(self.counts.metric):
            selection = self._selection(answered)
            yield selection, self._answer(answered, selection, names)

    def write(self, folder: Path) -> list[Path]:
        """Write the rows below `folder`, and return the files; an earlier import of the same name is replaced."""
        chosen = folder / "selections" / self.part
        said = folder / "answers" / self.answers_part
        for part in (chosen, said):
            part.mkdir(parents=True, exist_ok=True)
        with part_writer(chosen, SelectionRow) as put_selection, part_writer(said, AnswerRow) as put_answer:
            for selection, answer in self.rows():
                put_selection(selection)
                put_answer(answer)
        versions = {"lmms_eval": self.log.git_hash} if self.log.git_hash else {}
        cell = {"name": said.name, "identity": {"versions": versions}, "log": self._origin()}
        write_text(said / "cell.json", whole_text(json.dumps(cell, indent=1, ensure_ascii=False)) + "\n")
        return [chosen / "rows.parquet", said / "rows.parquet"]

    def _origin(self) -> dict[str, object]:
        log = self.log
        said = {"file": log.samples.name, "stamp": log.stamp, "task": log.task, "split": log.split}
        return {**said, "model_args": dict(log.model_args), "metric": self.counts.metric, "scores": dict(log.scores)}

    def _count(self) -> LogCounts:
        counts = LogCounts(metric=self._metric())
        for answered in self._answered(counts.metric):
            _add(counts, answered, self._rate(answered), self.options.unit)
        if not counts.answers:
            raise InvalidInput(f"{self.log.samples}: no answers in this file; copy it again")
        expected = self.log.n_samples
        if expected is not None and counts.answers != expected:
            raise InvalidInput(
                f"{self.log.samples}:{counts.answers}: the file ends here, its run asked {expected} questions; "
                "copy it again, or move the results file away to import what is there"
            )
        return counts

    def _metric(self) -> str:
        """Return the metric that is the score: the one named, or the first with a verdict in the first line."""
        first = next(self.log.records())
        if self.options.metric:
            entry = first.metrics.get(self.options.metric)
            if entry is None or verdict_of(entry) is None:
                names = [name for name, other in first.metrics.items() if verdict_of(other) is not None]
                raise InvalidInput(
                    f"{first.where}: no score in {self.options.metric!r}; scores are in: {', '.join(names) or 'none'}"
                )
            return self.options.metric
        for name in dict.fromkeys([*self.log.metric_names, *first.metrics]):
            if verdict_of(first.metrics.get(name)) is not None:
                return name
        raise InvalidInput(
            f"{first.where}: no entry says whether the answer is right, only {', '.join(first.metrics) or 'nothing'}; "
            "a task that is scored elsewhere cannot be imported"
        )

    def _answered(self, metric: str) -> Iterator[Answered]:
        name, unit = self.options.frames_field, self.options.unit
        for record in self.log.records():
            verdict = verdict_of(record.metrics.get(metric))
            if verdict is None:
                raise InvalidInput(f"{record.where}: {metric} holds no score; choose another (-o metric=NAME)")
            if not 0 <= verdict.score <= 1:
                raise InvalidInput(
                    f"{record.where}: {metric} is {verdict.score:g}, not from 0 to 1; choose another (-o metric=NAME)"
                )
            question = self.source.question(record)
            _refuse_other_answer(record, question, verdict)
            fed = record.frames(name, unit=unit) if name else None
            parsed = answer_read(record.response, verdict, question.options)
            yield Answered(record=record, question=question, verdict=verdict, parsed=parsed, fed=fed)

    def _frames_asked(self) -> int:
        if self.options.k:
            return self.options.k
        if k := self.log.frames_asked(self.counts.most_frames):
            return k
        where = self.log.results or self.log.samples
        raise InvalidInput(f"{where}: K unknown, model_args names no number of frames; say it (-o k=32)")

    def _rate(self, answered: Answered) -> VideoRate | None:
        rates, question = self.rates, answered.question
        if rates is None:
            return None
        for key in (question.id, question.video, video_stem(question.video)):
            if key in rates:
                return rates[key]
        if answered.fed is None and not self.options.assume_uniform:
            return None  # no frames, so no times
        raise InvalidInput(
            f"{answered.record.where}: no length and rate for question {question.id} or video {question.video}; "
            "add its line to --rates"
        )

    def _selection(self, answered: Answered) -> SelectionRow:
        question, rate = answered.question, self._rate(answered)
        frames, times = _frames_and_times(answered.fed, rate, self.options.unit)
        facts: dict[str, object] = {"published": True, "log": "lmms-eval"}
        if answered.fed is None and self.options.assume_uniform and rate is not None:
            frames = [int(frame) for frame in np.linspace(0, rate.n_frames - 1, self.k)]
            times = [float(time) for time in np.linspace(0, rate.n_frames - 1, self.k) / float(rate.fps)]
            facts["frames"] = "assumed evenly spaced"
        elif answered.fed is None:
            facts["frames_unknown"] = True
        length = question.duration_seconds or (rate.duration_seconds if rate else 0.0)
        row = selection_row(
            question,
            Chooser(selection_id=self.selection_id, sampler=self.name, k=self.k),
            video=rate.info if rate is not None else VideoInfo(1, 1.0),
            keyframes=frames,
            times_seconds=times,
            measured_seconds=length,
            bucket_of=self.source.bucket if length else None,
            facts=facts,
        )
        return row if rate is not None else replace(row, n_frames=0, fps=0.0)  # nobody says them

    def _answer(self, answered: Answered, selection: SelectionRow, names: CellNames) -> AnswerRow:
        question, verdict = answered.question, answered.verdict
        n_fed = self.k if answered.fed is None else len(answered.fed)
        is_frames = answered.fed is not None and self.options.unit == "frames"
        return answer_row(
            question,
            names,
            model=self.model,
            frames_asked=self.k,
            selection=selection,
            fed_frames=[int(frame) for frame in answered.fed or ()] if is_frames else [],
            frames_fed=n_fed,
            frames_chosen=n_fed,
            answer=answered.record.response,
            parsed=answered.parsed,
            correct_answer=question.answer or verdict.right or answered.record.target or None,
            score=verdict.score,
            metric=self.counts.metric,
        )


def _add(counts: LogCounts, answered: Answered, rate: VideoRate | None, unit: str) -> None:
    question, record, fed = answered.question, answered.record, answered.fed
    counts.answers += 1
    counts.score += answered.verdict.score
    counts.videos.add(question.video)
    if answered.parsed is None:
        counts.unparsed += 1
        if len(counts.doubtful) < _MOST_LISTED:
            counts.doubtful.append((question.id, f"line {record.line}"))
    _add_groups(counts, answered)
    content = json.dumps([question.id, fed], separators=(",", ":"))
    counts.digest = (counts.digest + int(hashlib.sha256(content.encode()).hexdigest()[:32], 16)) % 2**128
    if fed is None:
        counts.without_frames += 1
        return
    first = counts.answers - counts.without_frames == 1
    counts.fewest_frames = len(fed) if first else min(counts.fewest_frames, len(fed))
    counts.most_frames = max(counts.most_frames, len(fed))
    counts.unsorted += any(later < earlier for earlier, later in pairwise(fed))
    if rate is not None and fed and _seconds(max(fed), rate, unit) > rate.duration_seconds + END_SLACK_SECONDS:
        counts.past_end += 1
        counts.first_past_end = counts.first_past_end or f"line {record.line} ({question.id}): {max(fed):,.10g}"


def _add_groups(counts: LogCounts, answered: Answered) -> None:
    """Count scores by the fields of the metric's entry: some tasks give a mean over such groups."""
    entry = answered.record.metrics[counts.metric]
    for name, value in entry.items() if isinstance(entry, Mapping) else ():
        if not isinstance(value, (str, int)):
            continue
        groups = counts.groups.setdefault(name, {})
        if len(groups) <= _MOST_GROUPS:
            total = groups.setdefault(str(value), [0.0, 0.0])
            total[0] += answered.verdict.score
            total[1] += 1


def _seconds(frame: float, rate: VideoRate, unit: str) -> float:
    return frame if unit == "seconds" else frame / float(rate.fps)


def _frames_and_times(
    fed: tuple[float, ...] | None, rate: VideoRate | None, unit: str
) -> tuple[list[int], list[float]]:
    """Return ascending frames and times, as far as either is known."""
    values = sorted(fed or ())
    fps = float(rate.fps) if rate is not None else 0.0
    if unit == "seconds":
        frames = [min(int(time * fps + 0.5), rate.n_frames - 1) for time in values] if rate is not None else []
        return frames, list(values)
    return [int(frame) for frame in values], [frame / fps for frame in values] if fps else []


def _refuse_other_answer(record: LogRecord, question: Question, verdict: Verdict) -> None:
    right = verdict.right
    if right is None or question.answer is None or not (len(right) == len(question.answer) == 1):
        return
    if right.isupper() and right != question.answer:
        raise SelectionMismatch(
            f"{record.where} ({question.id}): the log's right answer is {right}, the annotation's is "
            f"{question.answer}; another version of the benchmark?"
        )


def stated_accuracy(made: LogImport) -> tuple[float | None, bool]:
    """Return the log's own figure for the metric, and whether the rows come to it, to its last digit.

    Tasks state a share or per cent, rounded or not.
    """
    stated = made.log.scores.get(made.counts.metric)
    return stated, stated is not None and _is_equal(made.counts.accuracy, stated)


def explained_by(made: LogImport, stated: float) -> str:
    """Return why the log's figure is not the mean over its answers: a mean over groups, or the answers in doubt."""
    for name, groups in made.counts.groups.items():
        means = [score / n for score, n in groups.values()]
        if 1 < len(means) <= _MOST_GROUPS and _is_equal(float(np.mean(means)), stated):
            return f"it is the mean over the {len(means)} values of {name}"
    doubtful = made.counts.doubtful
    if not doubtful:
        return "no answer is in doubt: its figure is made otherwise"
    listed = "; ".join(f"{question} ({where})" for question, where in doubtful[:5])
    return f"{len(doubtful)} answers could not be read or were guessed: {listed}"


def _is_equal(mean: float, stated: float) -> bool:
    decimals = len(repr(stated).partition(".")[2]) if "e" not in repr(stated) else 12
    half = 0.5 * 10.0**-decimals
    return any(abs(mean * scale - stated) <= half + 1e-12 * max(1.0, scale) for scale in (1.0, 100.0))


def refuse_same_names(made: Sequence[LogImport]) -> None:
    """Refuse two logs whose rows would be written to one place.

    Raises:
        InvalidInput: names both files.
    """
    seen: dict[tuple[str, str], LogImport] = {}
    for item in made:
        key = (item.model, item.part)
        if key in seen:
            raise InvalidInput(
                f"{item.log.samples}: two runs are called {item.name!r}, the other is {seen[key].log.samples}; "
                "import one of them with another --name"
            )
        seen[key] = item
