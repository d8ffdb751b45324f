"""Plans a matrix: what it will do and cost, before anything runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

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
        embedded_alone: frames embedded if each question pays for its own, as the published hours count.
        embedded_shared: frames embedded if the questions of a video share theirs.
        unknown: questions whose video's length is not known, with the first reason.
        warnings: what will go wrong: no frames, or a sampler that breaks its contract.
    """

    spec: SelectionSpec
    questions: int
    pulls: int
    frames: int
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
            `share_frames`, else for each question of each selection anew: exact for samplers that look at fixed
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

    Args:
        progress: told how many selections are counted, and of how many.

    Raises:
        InvalidInput: annotations or rates that are missing or damaged.
    """
    sets = load_sets(matrix)
    infos = {name: list(questions.infos()) for name, questions in sets.items()}
    embedded: dict[str, dict[str, list[IntArray]]] = {}
    selections: list[SelectionPlan] = []
    for spec in (specs := selection_specs(matrix)):
        progress(len(selections), len(specs))
        pulled: dict[str, list[IntArray]] = {}
        selections.append(_plan_selection(spec, infos[spec.benchmark.name], pulled))
        if spec.encoder:
            videos = embedded.setdefault(spec.encoder.name, {})
            for video, frames in pulled.items():
                videos.setdefault(video, []).append(np.unique(np.concatenate(frames)))
    forwards = {encoder: _distinct(videos) for encoder, videos in embedded.items()}
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
                benchmark = part.selection.benchmark if isinstance(part, Cell) else part.benchmark
                n_questions = plan.questions[benchmark.name][0]
                asked += n_questions
                distinct[part.name] = max(n_questions, distinct.get(part.name, 0))
        counts[what] = (asked, sum(distinct.values()))
    return counts


def load_sets(matrix: MatrixConfig) -> dict[str, QuestionSet]:
    """Return the questions of every benchmark of `matrix` by the benchmark's configured name."""
    return {benchmark.name: load_questions(benchmark, limit=matrix.limit) for benchmark in matrix.benchmarks}


def _plan_selection(
    spec: SelectionSpec, infos: list[tuple[Question, VideoInfo | FocusEvalError]], pulled: dict[str, list[IntArray]]
) -> SelectionPlan:
    pulls = frames = alone = unknown = 0
    reason = ""
    warnings = _Warnings()
    for question, info in infos:
        if isinstance(info, FocusEvalError):
            unknown, reason = unknown + 1, reason or str(info)
            continue
        frames += info.n_frames
        if (why := spec.sampler.why_no_frames(info, k=spec.k)) is not None:
            warnings.add("no frames", f"may end without frames: {why}", question, info)
        try:
            selection = _on_flat_relevance(spec, question, info)
        except FocusEvalError as error:  # of this question: the run records it and goes on, and so does the plan
            kind = getattr(error, "promise", "") or type(error).__name__
            warnings.add(kind, f"will be errors: {error}", question, info)
            continue
        pulls += selection.n_pulls
        alone += np.unique(selection.pulled_frames).size
        pulled.setdefault(f"{spec.benchmark.name}/{question.video}", []).append(selection.pulled_frames)
    return SelectionPlan(
        spec=spec,
        questions=len(infos),
        pulls=pulls,
        frames=frames,
        embedded_alone=alone,
        embedded_shared=_distinct(pulled),
        unknown=unknown,
        reason=reason,
        warnings=warnings.found(),
    )


def _distinct(videos: Mapping[str, list[IntArray]]) -> int:
    return sum(np.unique(np.concatenate(frames)).size for frames in videos.values())


def _on_flat_relevance(spec: SelectionSpec, question: Question, info: VideoInfo) -> Selection:
    """Return what the run would select, were relevance the same everywhere."""
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


class _Warnings:
    """Warnings of one selection, one of each kind: the first question's text, and how many there are."""

    def __init__(self) -> None:
        self._found: dict[str, PlanWarning] = {}

    def add(self, kind: str, text: str, question: Question, info: VideoInfo) -> None:
        first = f"{question.id}, {info.duration_seconds:.1f} s"
        known = self._found.get(kind, PlanWarning(text=text, questions=0, first=first))
        self._found[kind] = replace(known, questions=known.questions + 1)

    def found(self) -> tuple[PlanWarning, ...]:
        return tuple(self._found.values())
