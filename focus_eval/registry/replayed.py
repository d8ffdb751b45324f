"""Measures published selections on annotated evidence, from their files: figures and paired differences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd

from focus_eval.benchmarks.question import BUCKETS
from focus_eval.benchmarks.registry import VideoRate, frame_rates, read_annotations, read_rates, stated_rates
from focus_eval.core.errors import InvalidInput
from focus_eval.core.types import Question
from focus_eval.imports.loading import load_selections
from focus_eval.imports.selection_rows import selection_rows
from focus_eval.registry.cards import Card, PublishedFile, check_file, find_file
from focus_eval.report.recall import EvidenceCase, evidence_cases, nearness, random_nearness, uniform_times
from focus_eval.report.selection_tables import (
    SHORT,
    SHORT_SECONDS,
    TOLERANCES_SECONDS,
    ShownFrames,
    interval_figures,
    shown_frames,
)
from focus_eval.report.statistics import compare_paired, holm

BASELINES = ("random", "uniform")
# Selections of one K are compared with this one, or with uniform where it was not published at that K.
REFERENCE = "AKS"
# The page and the paired differences leave out shorter videos: their evidence is mostly in view.
LONG_SECONDS = 180.0
# What `interval_figures` calls a tolerance, and how it is called here: a moment is an interval of no length.
_MEASURE_BY_HIT = {f"hit@{tolerance:g}": f"within {tolerance:g} s" for tolerance in TOLERANCES_SECONDS}
_INSIDE = _MEASURE_BY_HIT["hit@0"]
MEASURES = (*_MEASURE_BY_HIT.values(), "nearness")


@dataclass(frozen=True, kw_only=True)
class Ground:
    """The annotated evidence of one benchmark's questions, on which selections are measured.

    Args:
        cases: questions with evidence.
        intervals: by question id; a moment is an interval of length 0.
        are_moments: True if all intervals are moments.
        videos: by question id.
    """

    benchmark: str
    cases: tuple[EvidenceCase, ...]
    intervals: Mapping[str, tuple[tuple[float, float], ...]]
    are_moments: bool
    videos: Mapping[str, str]

    @classmethod
    def of(cls, benchmark: str, questions: Sequence[Question], fps: Mapping[str, float]) -> Ground:
        """Return the ground of `questions`; those without readable evidence are left out."""
        cases = evidence_cases(benchmark, questions, fps)
        moments = {case.question_id: tuple((time, time) for time in case.evidence_seconds.tolist()) for case in cases}
        intervals = {question.id: question.evidence_intervals or moments[question.id] for question in questions}
        usable_cases = tuple(case for case in cases if intervals[case.question_id])
        are_moments = not any(question.evidence_intervals for question in questions)
        videos = {question.id: question.video for question in questions}
        return cls(benchmark=benchmark, cases=usable_cases, intervals=intervals, are_moments=are_moments, videos=videos)

    @property
    def measures(self) -> tuple[str, ...]:
        """Names of the measures for this evidence; for moments none that counts keyframes inside intervals."""
        return tuple(name for name in MEASURES if not (self.are_moments and name == _INSIDE))

    def videos_of(self, is_kept: np.ndarray) -> list[str]:
        """Return the videos of the `cases` that the mask keeps."""
        return [self.videos[case.question_id] for case, is_one in zip(self.cases, is_kept, strict=True) if is_one]

    @property
    def groups(self) -> list[tuple[str, np.ndarray]]:
        """Name and mask over `cases` of each bucket: by the video's length, or by that of the intervals."""
        if self.are_moments:
            buckets = np.array([case.bucket for case in self.cases])
            return [(name, buckets == name) for name in BUCKETS if (buckets == name).any()]
        longest = [max(stop - start for start, stop in self.intervals[case.question_id]) for case in self.cases]
        return [("all", np.ones(len(self.cases), dtype=bool)), (SHORT, np.asarray(longest) <= SHORT_SECONDS)]


@dataclass(frozen=True)
class Material:
    """The files from which the figures of published selections are derived.

    Args:
        files: folder of the published files.
        annotations: annotation file of each benchmark.
        rates: CSV of lengths and rates, for annotations that do not state them.
    """

    files: Path
    annotations: Mapping[str, Path]
    rates: Path | None = None
    _grounds: dict[str, tuple[Sequence[Question], Mapping[str, VideoRate], Ground]] = field(default_factory=dict)

    def find(self, card: Card, item: PublishedFile) -> Path | None:
        """Return the path of a card's file, checked against its hash; None if it is not at hand."""
        path = find_file(item, card.folder, self.files)
        if path is not None:
            check_file(item, path)
        return path

    def questions(self, benchmark: str) -> Sequence[Question]:
        """Return the questions of a benchmark. Raises InvalidInput without its annotation."""
        return self.ground(benchmark)[0]

    def videos(self, benchmark: str) -> dict[str, str]:
        """Return the video of each question of a benchmark. Raises as `questions`."""
        return {question.id: question.video for question in self.questions(benchmark)}

    def ground(self, benchmark: str) -> tuple[Sequence[Question], Mapping[str, VideoRate], Ground]:
        """Return the questions of a benchmark, their rates, and the evidence that selections are measured on.

        Raises:
            InvalidInput: no annotation of it was given, or one without rates and no --rates.
        """
        if benchmark not in self._grounds:
            if benchmark not in self.annotations:
                raise InvalidInput(f"measuring needs the annotation of {benchmark} (--annotations {benchmark}=FILE)")
            questions = read_annotations(benchmark, self.annotations[benchmark])
            rate_of = stated_rates(questions)
            if not rate_of:
                if self.rates is None:
                    raise InvalidInput(f"{self.annotations[benchmark]}: states no frame rates; measuring needs --rates")
                rate_of = read_rates(self.rates)
            self._grounds[benchmark] = (questions, rate_of, Ground.of(benchmark, questions, frame_rates(rate_of)))
        return self._grounds[benchmark]


@dataclass(frozen=True, kw_only=True)
class Group:
    """The selections of one benchmark and K that are at hand, and the baselines at that K.

    Args:
        figures: `question_figures` by name, those of the baselines included.
        owners: registry folder of each selection.
        notes: sentences about frames and rows that were left out.
        is_whole: True if no listed selection is missing, so that tiers among `figures` are those of the registry.
    """

    ground: Ground
    k: int
    figures: Mapping[str, pd.DataFrame]
    owners: Mapping[str, str]
    notes: tuple[str, ...]
    is_whole: bool

    @property
    def tested(self) -> list[str]:
        """Names of the selections to test; random is left out, because its figures are an expectation."""
        return sorted(name for name in self.figures if name != "random")


def measured_groups(
    cards: Iterable[Card], material: Material, *, only: str = "", missing: list[str] | None = None
) -> Iterator[Group]:
    """Yield the selections of each benchmark and K, from the files that are at hand.

    Args:
        only: folder of a sampler: groups without it are left out.
        missing: list to which a sentence is added for each file that is not at hand.

    Raises:
        InvalidInput: a file with another hash, or one that does not fit the benchmark's questions.
    """
    listed = [(card, item) for card in cards for item in card.selections]
    groups = sorted({(item.benchmark, item.k) for card, item in listed if only in ("", card.name)})
    for card, item in listed:  # an annotation that was not given is said before minutes of work
        if (item.benchmark, item.k) in groups and material.find(card, item) is not None:
            material.ground(item.benchmark)
    for benchmark, k in groups:
        figures: dict[str, pd.DataFrame] = {}
        owners, notes, is_whole = {}, list[str](), True
        for card, item in listed:
            if (item.benchmark, item.k) != (benchmark, k):
                continue
            label, path = card.label(item), material.find(card, item)
            if path is None:
                is_whole = False
                if missing is not None:
                    place = f"published at {item.source or 'a place not recorded'}"
                    missing.append(f"{label}, {benchmark}, K = {k}: not at hand, {item.file} ({place})")
                continue
            questions, rate_of, ground = material.ground(benchmark)
            left_out: list[str] = []
            loaded = load_selections(
                path, format=item.format, questions=questions, fps=frame_rates(rate_of), left_out=left_out
            )
            rows = selection_rows(loaded, questions, rate_of, name=label)
            figures[label] = question_figures(ground, shown_frames(rows))
            owners[label] = card.name
            notes += [f"{label}, K = {k}: {line}" for line in left_out]
        if figures:
            figures |= baseline_figures(ground, k)
            yield Group(ground=ground, k=k, figures=figures, owners=owners, notes=tuple(notes), is_whole=is_whole)


def question_figures(ground: Ground, frames: Mapping[str, ShownFrames]) -> pd.DataFrame:
    """Return the measures of each question of `ground.cases`, in their order, and its number of different frames.

    Random frames get their exact expectation.

    Raises:
        InvalidInput: a question without a selection.
    """
    lines = []
    for case in ground.cases:
        if case.question_id not in frames:
            raise InvalidInput(f"{ground.benchmark}: no selection for question {case.question_id!r}")
        shown_frames, intervals = frames[case.question_id], ground.intervals[case.question_id]
        if shown_frames.n_random is not None:
            closeness = random_nearness(intervals, case, shown_frames.n_random)
            n_frames = min(shown_frames.n_random, case.n_frames)
        else:
            closeness, n_frames = nearness(intervals, shown_frames.times), len(set(shown_frames.times))
        hits = interval_figures(intervals, case, shown_frames)
        shares = {_MEASURE_BY_HIT[name]: value for name, value in hits.items() if name in _MEASURE_BY_HIT}
        lines.append({**shares, "nearness": closeness, "frames": n_frames})
    return pd.DataFrame(lines)


def baseline_figures(ground: Ground, k: int) -> dict[str, pd.DataFrame]:
    """Return the figures of uniform and of random frames at `k`."""
    even = {key: ShownFrames(times) for key, times in uniform_times(ground.cases, k=k).items()}
    drawn = dict.fromkeys(even, ShownFrames(n_random=k))
    return {"uniform": question_figures(ground, even), "random": question_figures(ground, drawn)}


def recall_records(ground: Ground, name: str, k: int, figures: pd.DataFrame) -> list[dict[str, str]]:
    """Return the records of one selection in `by_length.csv`, one per bucket; measures that do not apply are "".

    Args:
        figures: `question_figures` of the selection.
    """
    records = []
    for bucket, is_inside in ground.groups:
        bucket_means = figures[is_inside].mean()
        keys = {"benchmark": ground.benchmark, "name": name, "k": str(k), "bucket": bucket}
        counts = {"questions": str(int(is_inside.sum())), "frames": f"{bucket_means['frames']:.1f}"}
        texts = {measure: f"{bucket_means[measure]:.6f}" if measure in ground.measures else "" for measure in MEASURES}
        records.append({**keys, **counts, **texts})
    return records


def difference_records(ground: Ground, k: int, figures: Mapping[str, pd.DataFrame]) -> list[dict[str, str]]:
    """Return the paired differences of the selections of one K to the reference, p adjusted over them by Holm.

    Args:
        figures: by name of the selection; `question_figures` of each, random left out.
    """
    reference = REFERENCE if REFERENCE in figures else "uniform"
    is_long = np.array([(case.duration_seconds or 0) >= LONG_SECONDS for case in ground.cases])
    videos = ground.videos_of(is_long)
    tests = [
        (name, measure, compare_paired(figures[reference][measure][is_long], figures[name][measure][is_long], videos))
        for name in sorted(figures)
        if name not in (reference, "random")
        for measure in ground.measures
    ]
    adjusted = holm([test.p_value for _, _, test in tests])
    records = []
    for (name, measure, test), p_holm in zip(tests, adjusted, strict=True):
        value = test.difference
        low, high = ("" if end is None else f"{end:.4f}" for end in (value.low, value.high))
        keys = {"benchmark": ground.benchmark, "k": str(k), "name": name, "less": reference}
        texts = {"value": f"{value.value:.4f}", "low": low, "high": high}
        p_values = {"p": f"{test.p_value:.4f}", "p_holm": f"{p_holm:.4f}"}
        records.append({**keys, "questions": str(value.questions), "measure": measure, **texts, **p_values})
    return records
