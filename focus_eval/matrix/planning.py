"""Plans a matrix: what it will do and cost, before anything runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from focus_eval.benchmarks.question import Question
from focus_eval.errors import FocusEvalError
from focus_eval.matrix.cells import Cell, SelectionSpec, cells, selection_specs
from focus_eval.matrix.config import MatrixConfig
from focus_eval.matrix.questions import QuestionSet, load_questions
from focus_eval.samplers.base import FlatSource
from focus_eval.samplers.randomness import derived_rng
from focus_eval.types import IntArray, Selection, VideoInfo


@dataclass(frozen=True, kw_only=True)
class PlanWarning:
    """What will go wrong with some questions of a selection, known before it runs.

    Args:
        text: what happens, why, and what to do.
        questions: how many it concerns.
        first: the first of them, with the length of its video.
    """

    text: str
    questions: int
    first: str


@dataclass(frozen=True, kw_only=True)
class SelectionPlan:
    """What one selection will cost.

    Args:
        pulls: frames scored, summed over questions, as the paper counts them.
        frames: frames of the videos, summed over questions (a video asked about twice counts twice).
        keyframes: chosen on flat relevance, summed over questions.
        embedded_alone: frames embedded if each question pays for its own, as the published hours count.
        embedded_shared: frames embedded if the questions of a video share theirs.
        unknown: questions whose video's length is not known, with the first reason.
        warnings: what will go wrong: no frames, or a sampler that breaks its contract.
    """

    spec: SelectionSpec
    questions: int
    pulls: int
    frames: int
    keyframes: int = 0
    embedded_alone: int = 0
    embedded_shared: int = 0
    unknown: int = 0
    reason: str = ""
    warnings: tuple[PlanWarning, ...] = ()

    @property
    def frames_scored(self) -> float:
        """Share of the frames that are scored, in [0, 1]; NaN where no length is known."""
        return self.pulls / self.frames if self.frames else float("nan")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a matrix will do.

    Args:
        forwards_by_encoder: frames each encoder will embed, each distinct (video, frame) pair once with
            `share_frames`, else again for each question of each selection: exact for samplers that look at fixed
            frames, on flat relevance for the others.
        questions: by benchmark name; those that will be asked, and all there are.
    """

    matrix: MatrixConfig
    selections: tuple[SelectionPlan, ...]
    cells: tuple[Cell, ...]
    questions: dict[str, tuple[int, int]]
    forwards_by_encoder: dict[str, int] = field(default_factory=dict)

    @property
    def pulls_by_encoder(self) -> dict[str, int]:
        """Frames each encoder would embed if nothing were shared."""
        totals: dict[str, int] = {}
        for selection in self.selections:
            if selection.spec.encoder:
                totals[selection.spec.encoder.name] = totals.get(selection.spec.encoder.name, 0) + selection.pulls
        return totals


def make_plan(matrix: MatrixConfig, *, progress: Callable[[int, int], None] = lambda done, of: None) -> Plan:
    """Return the plan of `matrix`: counted exactly, from lengths and rates alone, by running every sampler.

    One video after another, so that memory does not grow with their number.

    Args:
        progress: told how many selections are counted, and of how many.

    Raises:
        InvalidInput: annotations or rates that are missing or damaged.
    """
    sets, specs = load_sets(matrix), selection_specs(matrix)
    of = sum(len(sets[spec.benchmark.name].questions) for spec in specs)
    forwards = {spec.encoder.name: 0 for spec in specs if spec.encoder}
    selections, done = list[SelectionPlan](), 0
    for name, questions in sets.items():
        mine = [spec for spec in specs if spec.benchmark.name == name]
        counted, distinct = count_selections(mine, questions.infos(), progress=partial(_further, progress, done, of))
        selections += counted
        done += len(questions.questions) * len(mine)
        for encoder, n_frames in distinct.items():
            forwards[encoder] += n_frames
    # Then every selection embeds its own frames, also those that another one has.
    if not matrix.share_frames:
        forwards = dict.fromkeys(forwards, 0)
        for selection in selections:
            if selection.spec.encoder:
                forwards[selection.spec.encoder.name] += selection.embedded_alone
    return Plan(
        matrix=matrix,
        selections=tuple(selections),
        cells=tuple(cells(matrix)),
        questions={name: (len(questions.questions), len(questions.all_ids)) for name, questions in sets.items()},
        forwards_by_encoder=forwards,
    )


def pooled(plans: Sequence[Plan]) -> dict[str, tuple[int, int]]:
    """Return how many selections and answers the plans ask for in all, and how many of them are distinct.

    Runs beside each other share one pool of rows: what one has answered the next one finds.
    """
    counts = {}
    for what in ("selections", "answers"):
        asked, distinct = 0, dict[str, int]()
        for plan in plans:
            parts = [selection.spec for selection in plan.selections] if what == "selections" else plan.cells
            for part in parts:
                n_questions = plan.questions[part.benchmark.name][0]
                asked += n_questions
                # Two matrices may ask other numbers of questions of one part; the larger covers both.
                distinct[part.name] = max(n_questions, distinct.get(part.name, 0))
        counts[what] = (asked, sum(distinct.values()))
    return counts


def load_sets(matrix: MatrixConfig) -> dict[str, QuestionSet]:
    """Return the questions of every benchmark of `matrix` by the benchmark's configured name."""
    return {benchmark.name: load_questions(benchmark, limit=matrix.limit) for benchmark in matrix.benchmarks}


def count_selections(
    specs: Sequence[SelectionSpec],
    videos: Iterable[list[tuple[int, Question, VideoInfo | FocusEvalError]]],
    *,
    progress: Callable[[int], None] = lambda done: None,
) -> tuple[list[SelectionPlan], dict[str, int]]:
    """Return the plan of each of `specs` for the questions of `videos`, and the distinct frames by encoder.

    Args:
        videos: as `QuestionSet.infos` gives them.
        progress: told how many selections are counted so far.
    """
    countings = [_Counting(spec) for spec in specs]
    distinct, done = dict[str, int](), 0
    for asked in videos:
        embedded: dict[str, list[IntArray]] = {}
        for counting in countings:
            frames = counting.add_video(asked)
            if counting.spec.encoder:
                embedded.setdefault(counting.spec.encoder.name, []).append(frames)
        for encoder, several in embedded.items():
            # Over all selections of a video: what one has embedded the next one finds.
            distinct[encoder] = distinct.get(encoder, 0) + np.unique(np.concatenate(several)).size
        done += len(asked) * len(countings)
        progress(done)
    return [counting.plan() for counting in countings], distinct


def _further(progress: Callable[[int, int], None], before: int, of: int, done: int) -> None:
    """Tell `progress` of what is done in all benchmarks so far."""
    progress(before + done, of)


def plan_selection(spec: SelectionSpec, questions: QuestionSet) -> SelectionPlan:
    """Return the plan of one selection of `questions`."""
    ((counted,), _) = count_selections([spec], questions.infos())
    return counted


class _Counting:
    """Adds up what one selection will cost."""

    def __init__(self, spec: SelectionSpec) -> None:
        self.spec = spec
        self._questions = self._pulls = self._frames = self._keyframes = self._alone = self._shared = self._unknown = 0
        self._reason = (0, "")
        self._warnings: dict[str, tuple[int, PlanWarning]] = {}

    def add_video(self, asked: list[tuple[int, Question, VideoInfo | FocusEvalError]]) -> IntArray:
        """Count the questions of one video; return the frames that are scored for any of them, ascending."""
        pulled = [self._pulled(number, question, info) for number, question, info in asked]
        frames = np.unique(np.concatenate(pulled))
        self._shared += frames.size
        return frames

    def plan(self) -> SelectionPlan:
        """Return what was counted."""
        return SelectionPlan(
            spec=self.spec,
            questions=self._questions,
            pulls=self._pulls,
            frames=self._frames,
            keyframes=self._keyframes,
            embedded_alone=self._alone,
            embedded_shared=self._shared,
            unknown=self._unknown,
            reason=self._reason[1],
            warnings=tuple(warning for _, warning in sorted(self._warnings.values(), key=lambda item: item[0])),
        )

    def _pulled(self, number: int, question: Question, info: VideoInfo | FocusEvalError) -> IntArray:
        self._questions += 1
        nothing = np.zeros(0, dtype=np.int64)
        if isinstance(info, FocusEvalError):
            # The first by number, since videos are visited in another order than questions.
            self._reason = min(self._reason, (number, str(info))) if self._unknown else (number, str(info))
            self._unknown += 1
            return nothing
        self._frames += info.n_frames
        # Said before the run: such questions become errors, and too many of them fail it.
        if (why := self.spec.sampler.why_no_frames(info, k=self.spec.k)) is not None:
            self._warn("no frames", f"may end without frames: {why}", number, question, info)
        try:
            selection = _on_flat_relevance(self.spec, question, info)
        except FocusEvalError as error:  # of this question: the run records it and goes on, and so does the plan
            kind = getattr(error, "promise", "") or type(error).__name__
            self._warn(kind, f"will be errors: {error}", number, question, info)
            return nothing
        self._pulls += selection.n_pulls
        self._keyframes += len(selection.keyframes)
        # A frame pulled twice by one question is embedded once.
        self._alone += np.unique(selection.pulled_frames).size
        return selection.pulled_frames

    def _warn(self, kind: str, text: str, number: int, question: Question, info: VideoInfo) -> None:
        """Count a warning; of each kind the text is the first question's."""
        first = f"{question.id}, {info.duration_seconds:.1f} s"
        at, known = self._warnings.get(kind, (number, PlanWarning(text=text, questions=0, first=first)))
        if number < at:
            at, known = number, replace(known, text=text, first=first)
        self._warnings[kind] = (at, replace(known, questions=known.questions + 1))


def _on_flat_relevance(spec: SelectionSpec, question: Question, info: VideoInfo) -> Selection:
    """Return what the run would select, were relevance the same everywhere."""
    # The very generators of the run: samplers that draw frames then draw the same ones here.
    key = (spec.benchmark.benchmark, question.id, spec.sampler.name)
    coarse = (spec.benchmark.benchmark, question.video, "coarse")
    shares = spec.coarse_seed == "video"
    return spec.sampler.select(
        info,
        k=spec.k,
        pull=FlatSource(),
        rng=derived_rng(spec.seed, *key),
        coarse_rng=derived_rng(spec.seed, *coarse) if shares else None,
        evidence_seconds=question.evidence_seconds,
    )
