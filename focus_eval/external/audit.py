"""Checks runs, logs and selections for faults that make their reported figures misleading.

    for finding in audit(series_of(runs)):
        print(finding)

Each check is a function over the rows of one series, or of two, and returns `Finding`s. Unknown values (None in a row)
are not checked.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from focus_eval.bench.benchmarks.group_scores import score_groups
from focus_eval.bench.benchmarks.question import END_SLACK_SECONDS, annotation_fps
from focus_eval.bench.benchmarks.registry import BENCHMARKS, facts_of, make_benchmark
from focus_eval.bench.report.run import Run
from focus_eval.bench.rows.seen_videos import SeenState
from focus_eval.core.errors import InvalidInput
from focus_eval.core.types import Question
from focus_eval.external.imports.aks_settings import infer_settings
from focus_eval.external.imports.log_import import LogOrigin
from focus_eval.keyframes.rows.identity import ID_MARK, QuestionKey, match_questions, row_key, shared_ids
from focus_eval.keyframes.rows.records import AnswerRow, SelectionRow
from focus_eval.keyframes.subtitles.prompts import OTHER_FRAMES

FAULT, NOTE = "fault", "note"
# Runs with different selections agreed on 61 to 98 % of the answers; a selection that never arrived on 99.7 to 100 %.
SAME_ANSWERS = 0.99
# Selections count as the same if this share of questions has equal frames.
SAME_FRAMES = 0.99
# Least number of shared questions for a finding: with fewer, equal answers may be chance.
MIN_SHARED = 30
# Largest share of equal answers seen with different selections. It is a fault if runs that agree at this rate would
# give as many equal answers with no more than the probability below.
HONEST_AGREEMENT = 0.98
CHANCE_OF_HONEST_AGREEMENT = 1e-3
# Report a part of the questions only if chance gives its agreement with at most this probability (`arrival_by_part`).
CHANCE_OF_AGREEMENT = 1e-6
# Report a series if, in more than this share of its checked questions, all annotated numbers are among the fed frame
# numbers: chance rarely does that.
POSITIONS_FED = 0.5
# A larger share of unparsed answers is a fault, since they count as wrong.
MAX_UNPARSED = 0.05
# Largest rounding error of a figure that a log states to five decimals.
ROUNDING = 5.1e-6
# Frame rates closer than this are equal.
SAME_RATE = 0.1


@dataclass(frozen=True, kw_only=True)
class CheckedSeries:
    """The rows of one selection and of one model's answers to it, or of a selection that no model answered.

    Args:
        name: name of the series in findings.
        model: "" for a selection alone.
        selections, answers: rows by question id, without rows that have an error.
        errors: error by question id: that of the answer, or that of the selection if no model answered.
        origin: an imported file's statements about itself; None for a run of this project.
        prompt: the first prompt of the cell, "" if not recorded.
        expected: all questions of the benchmark; empty if not known.
        run: name of the run.
        videos: by video, the states of the file from which the run's rows were made; empty if not recorded.
    """

    name: str
    model: str = ""
    selections: Mapping[str, SelectionRow] = field(default_factory=dict)
    answers: Mapping[str, AnswerRow] = field(default_factory=dict)
    errors: Mapping[str, str] = field(default_factory=dict)
    origin: LogOrigin | None = None
    prompt: str = ""
    expected: Sequence[Question] = ()
    run: str = ""
    videos: Mapping[str, Sequence[SeenState]] = field(default_factory=dict)

    @property
    def k(self) -> int | None:
        """Requested number of frames; None if not stated, or if the role of the selection is not "sampler"."""
        row = next(iter(self.selections.values()), None)
        is_stated = self.origin is None or self.origin.is_k_stated
        return row.k or None if row is not None and row.role == "sampler" and is_stated else None

    @property
    def benchmark(self) -> str:
        """Benchmark of the first row; "" without rows."""
        rows: Iterable[SelectionRow | AnswerRow] = [*self.selections.values()] or [*self.answers.values()]
        return next((row.benchmark for row in rows), "")

    @property
    def is_imported(self) -> bool:
        """True if the frames come from an imported log, not from a run of this project."""
        return any(row.facts.get("published") for row in itertools.islice(self.selections.values(), 1))

    @cached_property
    def keys(self) -> list[QuestionKey]:
        """Identity of each selected question, in the order of `ids`."""
        answers = self.answers
        return [
            row_key(row, answers[question_id].correct_answer if question_id in answers else "")
            for question_id, row in self.selections.items()
        ]

    @cached_property
    def ids(self) -> list[str]:
        """Ids of the selected questions, in the order of `selections`."""
        return list(self.selections)

    @cached_property
    def frames(self) -> dict[str, tuple[float, ...]]:
        """Frame numbers (or seconds, if only these are known) by question id, in the order fed to the model."""
        frames = {}
        for question_id, row in self.selections.items():
            values: Sequence[float] | None = row.times_seconds if row.keyframes is None else row.keyframes
            answer = self.answers.get(question_id)
            if self.is_imported and answer is not None and answer.fed_frames:
                values = answer.fed_frames
            if values is not None:
                frames[question_id] = tuple(values)
        return frames

    def prompt_of(self, question_id: str) -> str:
        """Return the prompt recorded for a question (a text or a hash), else the cell's; "" if not known."""
        return str(self.selections[question_id].facts.get("prompt") or self.prompt)


@dataclass(frozen=True)
class Finding:
    """One problem that a check found.

    Args:
        check: short name of the problem.
        subject: name of the series, or names of several.
        count, of: cases with the problem, and cases checked.
        worst: the worst or first case; "" if none is named.
        severity: `FAULT` if reported figures are misleading, else `NOTE`.
    """

    check: str
    subject: str
    count: int
    of: int
    worst: str = ""
    severity: str = FAULT

    def __str__(self) -> str:
        """Return the finding as one line, with its worst case if one is named."""
        end = f"; {self.worst}" if self.worst else ""
        return f"{self.severity}: {self.subject}: {self.check}: {self.count:,} of {self.of:,}{end}"


def series_of(runs: Sequence[Run], expected: Sequence[Question] = ()) -> list[CheckedSeries]:
    """Return a series for each (selection, model) in `runs`, and for each selection that no model answered.

    Args:
        expected: all questions of one benchmark; series of other benchmarks are not checked against them.
    """
    series = [item for run in runs for item in _series_of_run(run, expected)]
    count_by_name: dict[str, int] = {}
    numbered = []
    for item in series:  # findings name the file when labels collide
        count = count_by_name[item.name] = count_by_name.get(item.name, 0) + 1
        numbered.append(item if count == 1 else replace(item, name=f"{item.name} ({count})"))
    return numbered


def _series_of_run(run: Run, expected: Sequence[Question]) -> Iterator[CheckedSeries]:
    """Yield the series of one run; for an imported file without readable rows, a series with its origin alone."""
    # Key by benchmark too, because two benchmarks may use the same question ids.
    selections: dict[tuple[str, str], dict[str, SelectionRow]] = {}
    variants: dict[tuple[str, str], SelectionRow] = {}
    errors: dict[tuple[str, str, str], dict[str, str]] = {}
    for row in run.selections:
        slim, of_row = row.without_pulls(), (row.benchmark, row.selection_id)
        variants.setdefault(of_row, slim)
        if row.error is None:
            selections.setdefault(of_row, {})[row.question_id] = slim
        else:
            errors.setdefault((*of_row, ""), {})[row.question_id] = row.error
    answers: dict[tuple[str, str, str], dict[str, AnswerRow]] = {}
    for answer in run.answers:
        key = answer.benchmark, answer.selection_id, answer.model
        if answer.error is None:
            answers.setdefault(key, {})[answer.question_id] = answer
        else:
            errors.setdefault(key, {})[answer.question_id] = answer.error
    answered = {key[:2] for key in answers}
    unanswered = [(*key, "") for key in variants if key not in answered]
    has_several = len({benchmark for benchmark, _ in variants}) > 1
    for benchmark, selection_id, model in [*answers, *unanswered]:
        row = variants[benchmark, selection_id]
        own_answers = answers.get((benchmark, selection_id, model), {})
        cell = next((answer.cell for answer in own_answers.values()), "")
        origin = run.logs.get(cell)
        words = (benchmark if has_several else "", model, run.labels.get(selection_id, selection_id))
        label = " ".join(filter(None, words))
        is_one_file = row.facts.get("published") and run.name == row.sampler
        yield CheckedSeries(
            name=run.name if is_one_file else f"{run.name}: {label}, K = {row.k}, seed {row.seed}",
            model=model,
            selections=selections.get((benchmark, selection_id), {}),
            answers=own_answers,
            errors=errors.get((benchmark, selection_id, model), {}),
            origin=None if origin is None else LogOrigin.from_document(origin),
            prompt=str(run.made_with.get(cell, {}).get("prompt", "")),
            expected=expected if any(question.benchmark == row.benchmark for question in expected[:1]) else (),
            run=run.name,
            videos=_files_of_videos(run, benchmark),
        )
    if not variants:  # no row of the file could be read
        for document in run.logs.values():
            yield CheckedSeries(name=run.name, origin=LogOrigin.from_document(document))


def _files_of_videos(run: Run, benchmark: str) -> dict[str, Sequence[SeenState]]:
    """The video files behind the run's rows, by video; files of equal size in two folders count as one."""
    files: dict[str, Sequence[SeenState]] = {}
    records = [record for record in run.seen_videos if record.benchmark == benchmark]
    for record in records:
        is_moved = record.folder != records[0].folder
        for video, states in record.videos.items():
            sizes = {state.size for state in files.get(video, ())}
            new_states = [state for state in states if not (is_moved and state.size in sizes)]
            files[video] = [*dict.fromkeys([*files.get(video, ()), *new_states])]
    return files


def audit(series: Sequence[CheckedSeries]) -> list[Finding]:
    """Return the findings of all checks: faults before notes; within each, checks of several series first."""
    findings = [(at, finding) for item in series for at, check in enumerate(CHECKS_OF_ONE) for finding in check(item)]
    for group in _groups([item for item in series if item.answers]):
        findings += [
            (at - len(CHECKS_OF_SEVERAL), finding)
            for at, check in enumerate(CHECKS_OF_SEVERAL)
            for finding in check(group)
        ]
    ordered = [finding for _, finding in sorted(findings, key=lambda item: (item[1].severity != FAULT, item[0]))]
    # Merge notes that differ only in their subject, e.g. a video that no series could read.
    subjects_of: dict[Finding, dict[str, None]] = {}
    for finding in ordered:
        shared = replace(finding, subject="") if finding.severity == NOTE else finding
        subjects_of.setdefault(shared, {})[finding.subject] = None
    return [
        replace(
            finding,
            subject=next(iter(subjects)) + (f" and {len(subjects) - 1} more series" if len(subjects) > 1 else ""),
        )
        for finding, subjects in subjects_of.items()
    ]


@dataclass(frozen=True)
class ComparableSeries:
    """Series of one model on the same questions.

    Args:
        series: the series.
        own_ids: for each series, its question ids by the id shared in the group, without ambiguous questions.
    """

    series: tuple[CheckedSeries, ...]
    own_ids: tuple[Mapping[str, str], ...]

    @property
    def name(self) -> str:
        """Names of all series if they are at most three, else the first name and the number of the rest."""
        names = [item.name for item in self.series]
        return ", ".join(names) if len(names) <= 3 else f"{names[0]} and {len(names) - 1} others"

    def pairs(self) -> Iterator[SeriesPair]:
        """Yield every two series with the questions that both answered."""
        for (a, ids_a), (b, ids_b) in itertools.combinations(zip(self.series, self.own_ids, strict=True), 2):
            ids = [(id_a, ids_b[name]) for name, id_a in ids_a.items() if name in ids_b]
            yield SeriesPair(a, b, [(id_a, id_b) for id_a, id_b in ids if id_a in a.answers and id_b in b.answers])


@dataclass(frozen=True)
class SeriesPair:
    """Two series and the questions that both answered: `ids` holds (id in `a`, id in `b`)."""

    a: CheckedSeries
    b: CheckedSeries
    ids: Sequence[tuple[str, str]]

    def is_alike(self, ids: tuple[str, str]) -> bool:
        """Return True if both answers to the question `ids` (id in `a`, id in `b`) have the same text."""
        return self.a.answers[ids[0]].answer == self.b.answers[ids[1]].answer

    def is_nested(self, ids: tuple[str, str]) -> bool:
        """Return True if one series was fed all frames of the other: equal answers are then no sign of a fault."""
        first, second = set(self.a.frames.get(ids[0], ())), set(self.b.frames.get(ids[1], ()))
        return bool(first and second) and (first <= second or second <= first)

    def accuracies(self, ids: Sequence[tuple[str, str]]) -> str:
        """Return both accuracies (%) over `ids` and their difference as text; "" if no question has both scores."""
        scores = [(self.a.answers[id_a].score, self.b.answers[id_b].score) for id_a, id_b in ids]
        scored = [(first, second) for first, second in scores if first is not None and second is not None]
        if not scored:
            return ""
        first, second = (100 * sum(values) / len(scored) for values in zip(*scored, strict=True))
        return f"{first:.1f} against {second:.1f} % ({first - second:+.1f} points)"


def _groups(series: Sequence[CheckedSeries]) -> Iterator[ComparableSeries]:
    """Yield groups of two or more series of one model that share a benchmark, or at least half of their questions."""
    by_model: dict[str, list[CheckedSeries]] = {}
    for item in series:
        by_model.setdefault(item.model, []).append(item)
    for of_model in (several for several in by_model.values() if len(several) > 1):
        names = [str(at) for at in range(len(of_model))]
        ids = shared_ids({name: item.keys for name, item in zip(names, of_model, strict=True)})
        paired_ids = [{shared for shared in ids[name] if not shared.endswith(f"{ID_MARK}{name}")} for name in names]
        groups: list[list[int]] = []
        for at, item in enumerate(of_model):
            for group in groups:
                group_ids = set[str]().union(*(paired_ids[place] for place in group))
                n_least = min(len(paired_ids[at]), len(group_ids))
                is_alike = 2 * len(paired_ids[at] & group_ids) >= n_least > 0
                if is_alike or item.benchmark in [of_model[place].benchmark for place in group]:
                    group.append(at)
                    break
            else:
                groups.append([at])
        for group in groups:
            if len(group) > 1:
                group_ids = set[str]().union(*(paired_ids[place] for place in group))
                pairs = [zip(ids[names[at]], of_model[at].ids, strict=True) for at in group]
                yield ComparableSeries(
                    tuple(of_model[at] for at in group),
                    tuple({shared: own_id for shared, own_id in of if shared in group_ids} for of in pairs),
                )


def unreadable_lines(series: CheckedSeries) -> Iterator[Finding]:
    """Find problems of importing a file: damaged lines, repeated questions, refused selections."""
    problems = series.origin.problems if series.origin is not None else ()
    if problems:
        yield Finding("not readable as it is", series.name, len(problems), len(problems), problems[0])


def missing_questions(series: CheckedSeries) -> Iterator[Finding]:
    """Find expected questions without a row, and rows of questions that are not expected; skip if none are known."""
    if not series.expected:
        return
    expected_keys = [QuestionKey(question.benchmark, question.id, question.content_key) for question in series.expected]
    matches = match_questions(series.keys, expected_keys)
    # Under lmms-eval's `limit` only the first documents were asked, so do not expect the rest.
    n_asked = len(expected_keys) - (series.origin.n_left_out if series.origin is not None else 0)
    left_out = sorted(series.expected[at].id for at in matches.only_b if at >= n_asked)
    missing = sorted(series.expected[at].id for at in matches.only_b if at < n_asked)
    foreign = sorted(series.ids[at] for at in matches.only_a)
    if missing:
        yield _finding("missing questions", series, missing, n_asked)
    if left_out:
        check = "questions that the log's own limit leaves out"
        yield _finding(check, series, left_out, len(expected_keys), severity=NOTE)
    if foreign:
        yield _finding("questions that are not the benchmark's", series, foreign, len(series.ids))


def stated_questions(series: CheckedSeries) -> Iterator[Finding]:
    """Find a number of rows that differs from the number that the results file states."""
    origin, n_lines = series.origin, len(series.answers) or len(series.selections)
    if origin is None or origin.n_questions in (None, n_lines) or origin.problems:
        return
    n_stated = origin.n_questions or 0
    worst = "the others are missing" if n_lines < n_stated else "there are more: lines of another split or run?"
    yield Finding("questions that its results file counts", series.name, n_lines, n_stated, worst)


def questions_asked_twice(series: CheckedSeries) -> Iterator[Finding]:
    """Find questions with equal content and different row ids: they cannot be paired with those of another run."""
    counts = Counter(key.content for key in series.keys if key.content and key.is_row)
    repeated = [key.id for key in series.keys if counts[key.content] > 1]
    if repeated:
        worst = f"the first is {repeated[0]}"
        yield Finding("questions asked more than once", series.name, len(repeated), len(series.keys), worst, NOTE)


def frames_past_the_end(series: CheckedSeries) -> Iterator[Finding]:
    """Find questions with a frame (or second) at or past the end of the video."""
    past: list[str] = []
    worst_reach, worst, n_checked = 0.0, "", 0
    for question_id, frames in series.frames.items():
        row = series.selections[question_id]
        length, bound = _length(row)
        if not frames or bound is None:
            continue
        n_checked += 1
        if max(frames) >= bound:
            past.append(question_id)
            if max(frames) - length > worst_reach:
                text = f"frame {max(frames):.0f}, video has {length:.0f}"
                text = f"{max(frames):.1f} s of {length:.1f} s" if row.keyframes is None else text
                worst_reach, worst = max(frames) - length, f"{question_id}: {text}"
    if past:
        yield _finding("frames past the end of the video", series, past, n_checked, worst)


def _length(row: SelectionRow) -> tuple[float, float | None]:
    """Return the length of a row's video, and the first frame (or second) that is surely past its end.

    (0, None) if the length is not known. Imported lengths get slack: computed from seconds and rate, they may be a
    little short.
    """
    is_counted = not row.facts.get("published")
    if row.keyframes is None:
        seconds = row.duration_seconds
        return seconds or 0.0, None if not seconds else seconds + END_SLACK_SECONDS
    if row.n_frames is None or row.fps is None:
        return 0.0, None
    slack = 0.0 if is_counted else END_SLACK_SECONDS * row.fps
    return row.n_frames, row.n_frames + slack


def frames_in_order(series: CheckedSeries) -> Iterator[Finding]:
    """Find questions whose frames do not ascend in time, and questions that repeat a frame."""
    frames_of = series.frames
    unsorted = [key for key, frames in frames_of.items() if any(b < a for a, b in itertools.pairwise(frames))]
    if unsorted:
        yield _finding("frames not in order", series, unsorted, len(frames_of))
    n_repeats = {key: len(frames) - len(set(frames)) for key, frames in frames_of.items()}
    repeated = [key for key, count in n_repeats.items() if count]
    if repeated:
        worst = max(repeated, key=lambda key: n_repeats[key])
        text = f"{worst}: {n_repeats[worst]} of {len(frames_of[worst])} frames repeat another"
        yield _finding("frames that repeat", series, repeated, len(frames_of), text, severity=NOTE)


def fewer_than_k(series: CheckedSeries) -> Iterator[Finding]:
    """Find questions with fewer distinct frames than K (or than the video has, if that is less).

    If a log does not state K, K is the largest number of frames that any question was fed, provided that at least half
    of the questions were fed that many.
    """
    n_distinct = {key: len(set(frames)) for key, frames in series.frames.items()}
    k = series.k or max(n_distinct.values(), default=0)
    n_full = sum(count == k for count in n_distinct.values())
    if series.k is None and (not series.is_imported or 2 * n_full < len(n_distinct)):  # an oracle has no K
        return
    max_frames = {key: series.selections[key].n_frames or k for key in n_distinct}
    short_ids = [key for key, count in n_distinct.items() if count < min(k, max_frames[key])]
    if short_ids:
        worst = min(short_ids, key=lambda key: n_distinct[key])
        mean = sum(n_distinct[key] for key in short_ids) / len(short_ids)
        n_worst = sum(count == n_distinct[worst] for count in n_distinct.values())
        text = f"{mean:.1f} on average, fewest {n_distinct[worst]} ({n_worst:,} times), first in {worst}"
        check = f"fewer distinct frames than K = {k}" + ("" if series.k else ", the most of a question")
        yield _finding(check, series, short_ids, len(n_distinct), text, severity=NOTE)


def prompts_for_other_frames(series: CheckedSeries) -> Iterator[Finding]:
    """Find answers to prompts that contain the subtitles or placeholders of frames that were not shown."""
    notes = {key: answer.prompt_note for key, answer in series.answers.items()}
    other_ids = [key for key, note in notes.items() if note.startswith(OTHER_FRAMES)]
    if other_ids:
        worst = f"{other_ids[0]}: {notes[other_ids[0]].removeprefix(f'{OTHER_FRAMES}: ')}"
        yield _finding("prompts made for other frames", series, other_ids, len(series.answers), worst)


def same_frames_everywhere(series: CheckedSeries) -> Iterator[Finding]:
    """Find a selection that repeats one frame in nearly every question, or has equal frames in every question."""
    frames_of = series.frames
    # A floor such as `blind` shows one black frame in every question on purpose, so it is no fault.
    is_floor = any(row.role == "floor" for row in itertools.islice(series.selections.values(), 1))
    if len(frames_of) < MIN_SHARED or is_floor:
        return
    single = [key for key, frames in frames_of.items() if len(frames) > 1 and len(set(frames)) == 1]
    if len(single) >= SAME_FRAMES * len(frames_of):
        frame = frames_of[single[0]][0]
        yield _finding("one frame over and over", series, single, len(frames_of), f"{single[0]}: {frame:g}")
    elif len(set(frames_of.values())) == 1:
        yield _finding("the same frames in every question", series, list(frames_of), len(frames_of))


def positions_as_frames(series: CheckedSeries) -> Iterator[Finding]:
    """Find annotated frame numbers used as frame numbers of video files that have another frame rate."""
    unit = make_benchmark(series.benchmark).fields.evidence_unit if series.benchmark in BENCHMARKS else ""
    rate = annotation_fps(unit) if unit.startswith("frames@") else None
    if rate is None:
        return
    fed_ids: dict[bool, list[str]] = {True: [], False: []}
    n_checked, first_positions = {True: 0, False: 0}, ""
    for question_id, frames in series.frames.items():
        row = series.selections[question_id]
        is_known = row.fps is not None
        is_at_its_rate = row.fps is not None and abs(row.fps - rate) <= SAME_RATE
        positions = [round(seconds * rate) for seconds in row.evidence_seconds]
        if row.keyframes is None or not frames or not positions or is_at_its_rate:
            continue
        n_checked[is_known] += 1
        if set(positions) <= set(frames):
            fed_ids[is_known].append(question_id)
            if not first_positions:
                listed = ", ".join(map(str, positions[:4])) + (", ..." if len(positions) > 4 else "")
                first_positions = f"{question_id}: {listed}"
    for is_known, severity, check, reason in (
        (True, FAULT, "annotated positions taken as native frame numbers", "at another rate than the file"),
        (
            False,
            NOTE,
            "annotated positions fed as frame numbers",
            f"at {rate:g} a second; the files' rates are not known",
        ),
    ):
        if n_checked[is_known] >= MIN_SHARED and len(fed_ids[is_known]) > POSITIONS_FED * n_checked[is_known]:
            worst = f"{first_positions}; the annotation counts {reason}"
            yield _finding(check, series, fed_ids[is_known], n_checked[is_known], worst, severity=severity)


def unparsed(series: CheckedSeries) -> Iterator[Finding]:
    """Find answers that could not be parsed."""
    failed = [key for key, answer in series.answers.items() if answer.is_unparsed]
    if failed:
        text = " ".join((series.answers[failed[0]].answer or "").split())
        severity = FAULT if len(failed) > MAX_UNPARSED * len(series.answers) else NOTE
        worst = f"{failed[0]}: {text[:60]!r}"
        yield _finding("answers not parsed", series, failed, len(series.answers), worst, severity=severity)


def accuracy_of_rows(series: CheckedSeries) -> Iterator[Finding]:
    """Find a stated accuracy that equals neither the mean score of the rows nor the mean over question types."""
    origin = series.origin
    by_type: dict[str, list[float]] = {}
    for answer in series.answers.values():
        if answer.score is not None:
            by_type.setdefault(answer.category, []).append(answer.score)
    if origin is None or origin.accuracy is None or origin.problems or not by_type:
        return
    scores = [score for of_type in by_type.values() for score in of_type]
    scale = 100.0 if origin.accuracy > 1 and max(scores) <= 1 else 1.0
    mean = scale * sum(scores) / len(scores)
    mean_of_types = scale * sum(sum(of_type) / len(of_type) for of_type in by_type.values()) / len(by_type)
    if min(abs(value - origin.accuracy) for value in (mean, mean_of_types)) > ROUNDING * scale:
        text = f"stated {origin.accuracy:.5f}, the rows give {mean:.5f}"
        text += f" ({mean_of_types:.5f} over {len(by_type)} types)" if len(by_type) > 1 else ""
        check = "an accuracy that does not follow from the rows"
        yield _finding(check, series, list(series.answers), len(scores), text)


def unjudged_answers(series: CheckedSeries) -> Iterator[Finding]:
    """Find answers without a score, and answers that the import scored because the log does not."""
    unscored = [question_id for question_id, answer in series.answers.items() if answer.score is None]
    if unscored:
        text = "nothing says whether they are right; give --annotations with options and answers"
        yield _finding("answers without a score", series, unscored, len(series.answers), text, severity=NOTE)
    by_us = [question_id for question_id, row in series.selections.items() if row.facts.get("scored")]
    if by_us:
        text = "the log states no scores; the options were read strictly"
        yield _finding("answers scored from the annotation", series, by_us, len(by_us), text, severity=NOTE)


def group_score_of_rows(series: CheckedSeries) -> Iterator[Finding]:
    """Find a stated score of groups that does not follow from the scores of their questions."""
    row = next(iter(series.selections.values()), None)
    facts = facts_of(row.benchmark).group_score if row is not None else None
    origin = series.origin
    if facts is None or origin is None or facts.metric not in origin.scores or origin.problems:
        return
    questions = [
        (answer.video, question_id, answer.score or 0.0, tuple(series.selections[question_id].facts.get("group", ())))
        for question_id, answer in series.answers.items()
        if question_id in series.selections
    ]
    try:
        groups = score_groups(questions, size=facts.size)
    except InvalidInput as error:
        yield Finding("a score of groups that cannot be computed", series.name, 1, len(questions), str(error), NOTE)
        return
    log_score = origin.scores[facts.metric]
    scale = 100.0 if log_score > 1 else 1.0
    mean = scale * sum(groups.values()) / len(groups) if groups else 0.0
    if abs(mean - log_score) > ROUNDING * scale:
        text = f"stated {log_score:.5f}, the rows give {mean:.5f}"
        check = "a score of groups that does not follow from the rows"
        yield Finding(check, series.name, len(groups), len(groups), text)


def failed_questions(series: CheckedSeries) -> Iterator[Finding]:
    """Find questions whose selection or answer is an error, since the other checks leave these questions out."""
    if series.errors:
        first, error = next(iter(series.errors.items()))
        n_asked = len(series.errors) + len(series.answers if series.model else series.selections)
        worst = f"the first is {first}: {error}"
        yield _finding("questions that failed", series, [*series.errors], n_asked, worst, severity=NOTE)


def fed_other_frames(series: CheckedSeries) -> Iterator[Finding]:
    """Find answers whose fed frames differ from the chosen ones although the answer reports no fallback."""
    n_checked, differing_ids = 0, []
    for question_id, answer in series.answers.items():
        row = series.selections.get(question_id)
        # After a reported fallback the fed frames differ as expected.
        if row is None or row.keyframes is None or not answer.fed_frames or answer.fallback:
            continue
        n_checked += 1
        if sorted(answer.fed_frames) != sorted(row.keyframes):
            differing_ids.append(question_id)
    if differing_ids:
        yield _finding("other frames fed than chosen", series, differing_ids, n_checked)


def exchanged_videos(series: CheckedSeries) -> Iterator[Finding]:
    """Find videos whose file was replaced although the run kept rows made from the earlier file."""
    exchanged = [video for video, states in series.videos.items() if len(states) > 1]
    if exchanged:
        sizes = ", then ".join(f"{state.size:,} bytes" for state in series.videos[exchanged[0]])
        check = "videos exchanged between rows (focus-eval run --changed-videos retry makes them again)"
        yield Finding(check, series.run, len(exchanged), len(series.videos), f"the first is {exchanged[0]}: {sizes}")


def other_videos(group: ComparableSeries) -> Iterator[Finding]:
    """Find videos whose files differ in size between runs."""
    sizes: dict[str, dict[int, str]] = {}
    for item in group.series:
        for video, states in item.videos.items():
            sizes.setdefault(video, {}).setdefault(states[-1].size, item.run)
    videos = [video for video, run_by_size in sizes.items() if len(run_by_size) > 1]
    if videos:
        first = ", ".join(f"{size:,} bytes in {run}" for size, run in sizes[videos[0]].items())
        check = "videos whose files differ between runs"
        yield Finding(check, group.name, len(videos), len(sizes), f"the first is {videos[0]}: {first}")


def same_answers(group: ComparableSeries) -> Iterator[Finding]:
    """Find pairs of series with nearly all answers equal despite different frames (or with unknown frames)."""
    pairs = list(group.pairs())
    alike_by_reason: dict[str, list[tuple[float, int, int, str, str, bool]]] = {}
    for pair in pairs:
        with_frames = [ids for ids in pair.ids if ids[0] in pair.a.frames and ids[1] in pair.b.frames]
        are_known = bool(with_frames)
        # Leave out questions where one series was fed all frames of the other (e.g. K = 4 and K = 8): equal answers are
        # expected there.
        shared = [ids for ids in with_frames if not pair.is_nested(ids)] if are_known else list(pair.ids)
        n, n_alike = len(shared), sum(pair.is_alike(ids) for ids in shared)
        if n < MIN_SHARED or n_alike <= SAME_ANSWERS * n:
            continue
        if not are_known and _is_repeat(pair):
            reason = "the same run twice?"
        elif _chance_of_agreement(n_alike, n) > CHANCE_OF_HONEST_AGREEMENT:
            reason = "too few questions to say whether the selection reached the model"
        else:
            reason = _UNREACHED
        alike = (n_alike / n, n_alike, n, pair.a.name, pair.b.name, are_known)
        alike_by_reason.setdefault(reason, []).append(alike)
    for reason, entries in alike_by_reason.items():
        share, n_alike, n, first, second, are_known = max(entries)
        frames = "from other frames" if are_known else "the frames are not in the logs"
        worst = f"{first} and {second}: {n_alike:,} of {n:,} ({100 * share:.2f} %), {frames}"
        check = f"pairs of runs with the same answers ({reason})"
        severity = FAULT if reason == _UNREACHED else NOTE
        yield Finding(check, group.name, len(entries), len(pairs), worst, severity)


_UNREACHED = "did the selection reach the model?"


def _chance_of_agreement(n_alike: int, n: int) -> float:
    """Binomial probability of at least `n_alike` equal answers of `n` if answers agree at `HONEST_AGREEMENT`."""
    from scipy.special import bdtrc

    return float(bdtrc(n_alike - 1, n, HONEST_AGREEMENT))


# Words in a run's name that mark a repeat or stock sampling rather than a selection.
_REPEAT_WORDS = frozenset(
    (
        *("again", "rerun", "repeat", "repeated", "retry", "run", "copy", "seed", "trial", "try", "first", "second"),
        *("uniform", "stock", "baseline", "nframes", "frames", "new", "old", "v"),
    )
)


def _is_repeat(pair: SeriesPair) -> bool:
    """True if both come from one log, or have the same K and names that differ only in numbers or `_REPEAT_WORDS`."""
    # One of the two series may be the log itself and the other a run imported from that log.
    logs = [(item.origin.file, item.origin.stamp) for item in (pair.a, pair.b) if item.origin and item.origin.stamp]
    if len(logs) == 2 and logs[0] == logs[1]:
        return True
    words = [set(re.findall(r"[^\W\d_]+", item.name.casefold())) - _REPEAT_WORDS for item in (pair.a, pair.b)]
    return words[0] == words[1] and pair.a.k == pair.b.k


def same_run_under_two_names(group: ComparableSeries) -> Iterator[Finding]:
    """Find imported series that were fed the same frames and gave the same answers: one run, published twice.

    At least `MIN_SHARED` questions must have K different frames: in shorter videos all selections are alike.
    """
    pairs = list(group.pairs())
    copies = []
    for pair in pairs:
        if not (pair.a.is_imported or pair.b.is_imported):
            continue
        ids_with_frames = [ids for ids in pair.ids if ids[0] in pair.a.frames and ids[1] in pair.b.frames]
        frames = [(set(pair.a.frames[id_a]), set(pair.b.frames[id_b])) for id_a, id_b in ids_with_frames]
        k = max((len(frames_a) for frames_a, _ in frames), default=0)
        n, n_full = len(frames), sum(len(frames_a) == k for frames_a, _ in frames)
        n_frames, n_alike = sum(a == b for a, b in frames), sum(map(pair.is_alike, ids_with_frames))
        if n_full >= MIN_SHARED and k > 1 and n_frames >= SAME_FRAMES * n and n_alike > SAME_ANSWERS * n:
            copies.append((n_frames, n_alike, n, pair))
    for severity in (FAULT, NOTE):
        entries = [entry for entry in copies if _is_repeat(entry[3]) == (severity == NOTE)]
        if entries:
            n_frames, n_alike, n, pair = max(entries, key=lambda entry: entry[:3])
            worst = (
                f"{pair.a.name} and {pair.b.name}: frames equal in {n_frames:,} of {n:,} questions, "
                f"answers in {n_alike:,}"
            )
            check = "pairs of runs with the same frames and answers"
            check += " (one run under two names)" if severity == FAULT else " (the same run twice?)"
            yield Finding(check, group.name, len(entries), len(pairs), worst, severity)


def arrival_by_part(group: ComparableSeries) -> Iterator[Finding]:
    """Find the part of the questions (see `_parts`) on which two series answer alike although they differ elsewhere.

    On that part the selection probably did not reach the model. Yields the largest such part of each pair.
    """
    for pair in map(_frames_first, group.pairs()):
        unreached_parts = [item for part in _parts(pair) if (item := _unreached(pair, *part)) is not None]
        if unreached_parts:
            yield max(unreached_parts, key=lambda item: item.count)


def _frames_first(pair: SeriesPair) -> SeriesPair:
    """The pair, ordered so that the series with recorded frames for more questions comes first."""
    if len(pair.a.frames) >= len(pair.b.frames):
        return pair
    return SeriesPair(pair.b, pair.a, [(id_b, id_a) for id_a, id_b in pair.ids])


def _parts(pair: SeriesPair) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Yield (name, ids) of each part: by logged group, length, question type, and whether frames are recorded."""
    parts: dict[str, list[tuple[str, str]]] = {}
    for ids in pair.ids:
        row, other_row = pair.a.selections[ids[0]], pair.b.selections[ids[1]]
        groups = {**(other_row.facts.get("groups") or {}), **(row.facts.get("groups") or {})}
        names = [f"{name} {value!r}" for name, value in groups.items()]
        names += [f"length {row.bucket!r}"] if row.bucket else []
        category = pair.b.answers[ids[1]].category
        names += [f"type {category!r}"] if category and not groups else []
        for item, question_id in zip((pair.a, pair.b), ids, strict=True):
            names.append(f"frames {'recorded' if question_id in item.frames else 'not recorded'} in {item.name}")
        for name in names:
            parts.setdefault(name, []).append(ids)
    yield from parts.items()


def _unreached(pair: SeriesPair, name: str, part: Sequence[tuple[str, str]]) -> Finding | None:
    """A finding if nearly all answers of `part` agree and those of the remaining questions do not, else None."""
    inside = set(part)
    nested_ids = {ids for ids in pair.ids if pair.is_nested(ids)}
    part = [ids for ids in part if ids not in nested_ids]
    remainder = [ids for ids in pair.ids if ids not in inside and ids not in nested_ids]
    if min(len(part), len(remainder)) < MIN_SHARED:
        return None
    n_part, n_rest = (sum(pair.is_alike(ids) for ids in of) for of in (part, remainder))
    if n_part <= SAME_ANSWERS * len(part) or n_rest > SAME_ANSWERS * len(remainder):
        return None
    # All of a small part may agree by chance: report it only if that is very unlikely at the rate of the remainder.
    if n_part * math.log(max(n_rest, 1) / len(remainder)) > math.log(CHANCE_OF_AGREEMENT):
        return None
    worst = (
        f"the same answers in {n_part:,} of {len(part):,}, elsewhere in {n_rest:,} of {len(remainder):,}; "
        f"accuracy where it arrived {pair.accuracies(remainder)}, there {pair.accuracies(part)}, "
        f"in all {pair.accuracies(pair.ids)}"
    )
    check = f"questions that the selection did not reach: {name}"
    return Finding(check, f"{pair.a.name} and {pair.b.name}", len(part), len(pair.ids), worst)


def same_frames_in_every_run(group: ComparableSeries) -> Iterator[Finding]:
    """Find series with equal recorded frames but different answers: the recorded field is not what was fed."""
    places = [at for at, item in enumerate(group.series) if item.frames]
    if len(places) < 2 or not any(group.series[at].is_imported for at in places):
        return
    first, ids_first = group.series[places[0]], group.own_ids[places[0]]
    shares = []
    for at in places[1:]:
        second, ids_second = group.series[at], group.own_ids[at]
        ids = [(id_a, ids_second[name]) for name, id_a in ids_first.items() if name in ids_second]
        shared = [(id_a, id_b) for id_a, id_b in ids if id_a in first.frames and id_b in second.frames]
        n_alike = sum(first.frames[id_a] == second.frames[id_b] for id_a, id_b in shared)
        if len(shared) < MIN_SHARED or n_alike < SAME_FRAMES * len(shared):
            return
        pair = SeriesPair(first, second, [(a, b) for a, b in shared if a in first.answers and b in second.answers])
        shares.append(sum(not pair.is_alike(item) for item in pair.ids) / max(1, len(pair.ids)))
    if max(shares) > 1 - SAME_ANSWERS:
        check = "runs with the same frames (is this the field that was fed?)"
        worst = f"their answers differ on up to {100 * max(shares):.1f} % of the questions"
        yield Finding(check, group.name, len(places), len(group.series), worst)


def other_prompts(group: ComparableSeries) -> Iterator[Finding]:
    """Find pairs of series whose prompts for the same question differ."""
    pairs = list(group.pairs())
    differing = []
    for pair in pairs:
        prompts = [(id_a, pair.a.prompt_of(id_a), pair.b.prompt_of(id_b)) for id_a, id_b in pair.ids]
        comparable = [item for item in prompts if item[1] and item[2] and _kind(item[1]) == _kind(item[2])]
        differing_ids = [question_id for question_id, first, second in comparable if first != second]
        if differing_ids:
            differing.append((len(differing_ids), len(comparable), pair.a.name, pair.b.name, differing_ids[0]))
    if differing:
        count, of, first_name, second_name, key = max(differing)
        worst = f"{first_name} and {second_name}: {count:,} of {of:,} questions, the first is {key}"
        yield Finding("pairs of runs with other prompts", group.name, len(differing), len(pairs), worst)


def _kind(prompt_digest: str) -> str:
    """Return "text" for a digest of the prompt's text, "hash" for a log's own hash, else "".

    Only digests of one kind can be compared.
    """
    return prompt_digest.partition(" ")[0] if prompt_digest.startswith(("text ", "hash ")) else ""


def other_questions(group: ComparableSeries) -> Iterator[Finding]:
    """Find series that lack questions of other series, and equal questions under several benchmark names."""
    all_ids = set().union(*group.own_ids)
    lacking = {
        item.name: all_ids - set(ids)
        for item, ids in zip(group.series, group.own_ids, strict=True)
        if all_ids - set(ids)
    }
    if lacking:
        name = max(lacking, key=lambda name: len(lacking[name]))
        worst = f"{name}: {len(lacking[name]):,} of {len(all_ids):,}, the first is {min(lacking[name])}"
        check = "runs that lack questions of the others"
        yield Finding(check, group.name, len(lacking), len(group.series), worst, NOTE)
    benchmarks = list(dict.fromkeys(item.benchmark for item in group.series))
    if len(benchmarks) > 1:
        check = "the same questions under several task names"
        yield Finding(check, group.name, len(benchmarks), len(group.series), ", ".join(benchmarks), NOTE)


def aks_settings(series: CheckedSeries) -> Iterator[Finding]:
    """Note for an imported AKS selection how often it is plain Top-K, and how deep it splits the remaining videos."""
    if not (series.is_imported and "aks" in series.name.casefold()):
        return
    rows = [row for row in series.selections.values() if row.keyframes and row.n_frames and row.fps]
    settings = infer_settings((row.keyframes or (), row.n_frames or 0, row.fps or 0.0) for row in rows)
    if settings is not None:
        check = f"AKS left the whole video unsplit (plain Top-{settings.k})"
        yield Finding(check, series.name, settings.whole, settings.questions, str(settings), NOTE)


CHECKS_OF_SEVERAL: tuple[Callable[[ComparableSeries], Iterable[Finding]], ...] = (
    same_answers,
    same_run_under_two_names,
    arrival_by_part,
    same_frames_in_every_run,
    other_videos,
    other_prompts,
    other_questions,
)
CHECKS_OF_ONE: tuple[Callable[[CheckedSeries], Iterable[Finding]], ...] = (
    unreadable_lines,
    accuracy_of_rows,
    group_score_of_rows,
    unjudged_answers,
    stated_questions,
    missing_questions,
    failed_questions,
    exchanged_videos,
    fed_other_frames,
    prompts_for_other_frames,
    same_frames_everywhere,
    positions_as_frames,
    frames_past_the_end,
    frames_in_order,
    unparsed,
    fewer_than_k,
    questions_asked_twice,
    aks_settings,
)


def _finding(
    check: str, series: CheckedSeries, keys: Sequence[str], of: int, worst: str = "", *, severity: str = FAULT
) -> Finding:
    """Return a finding of one series.

    Args:
        keys: ids of the questions with the problem.
        of: number of checked questions.
        worst: the worst case; the first of `keys` if none is given.
    """
    return Finding(check, series.name, len(keys), of, worst or f"the first is {keys[0]}", severity)
