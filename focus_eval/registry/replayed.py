"""Measures published selections on annotated evidence, from their files: figures and paired differences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
from focus_eval.report.recall import (
    EvidenceCase,
    evidence_cases,
    nearness_of,
    random_nearness,
    random_recall,
    shares_within,
    uniform_times,
)
from focus_eval.report.scenes import (
    Scenes,
    geometric_ukss,
    read_scenes,
    scene_distances,
    scene_score,
    scenes_of,
    with_scenes,
)
from focus_eval.report.selection_tables import SHORT, SHORT_SECONDS, TOLERANCES_SECONDS, ShownFrames, shown_frames
from focus_eval.report.statistics import compare_paired, holm

BASELINES = ("random", "uniform")
# Selections of one K are compared with this one, or with uniform where it was not published at that K.
REFERENCE = "AKS"
# The page and the paired differences leave out shorter videos: their evidence is mostly in view.
LONG_SECONDS = 180.0
UKSS = "UKSS"
_WITHIN = tuple(f"within {tolerance:g} s" for tolerance in TOLERANCES_SECONDS)
# Means over questions, which are compared in pairs; UKSS is a geometric mean.
MEANS = (*_WITHIN, "nearness")
MEASURES = (*MEANS, UKSS)


@dataclass(frozen=True, kw_only=True)
class Ground:
    """The annotated evidence of one benchmark's questions, on which selections are measured.

    Args:
        cases: questions with evidence.
        scenes: by question id; a moment is a scene of one interval of length 0, an interval one of its own.
        kind: "moments", "intervals" or "scenes".
        videos: by question id.
    """

    benchmark: str
    cases: tuple[EvidenceCase, ...]
    scenes: Mapping[str, Scenes]
    kind: str
    videos: Mapping[str, str]

    @classmethod
    def of(cls, benchmark: str, questions: Sequence[Question], fps: Mapping[str, float]) -> Ground:
        """Return the ground of `questions`; those without readable evidence are left out."""
        cases = evidence_cases(benchmark, questions, fps)
        scenes: dict[str, Scenes] = {
            case.question_id: [[(time, time)] for time in case.evidence_seconds.tolist()] for case in cases
        }
        kind = "moments"
        for question in (question for question in questions if question.evidence_intervals):
            kind = "scenes" if question.evidence_scenes else "intervals"
            scenes[question.id] = scenes_of(question)
        usable_cases = tuple(case for case in cases if scenes[case.question_id])
        videos = {question.id: question.video for question in questions}
        return cls(benchmark=benchmark, cases=usable_cases, scenes=scenes, kind=kind, videos=videos)

    @property
    def measures(self) -> tuple[str, ...]:
        """Names of the measures for this evidence: moments have no inside, and scenes alone have UKSS."""
        left_out = {"moments": (_WITHIN[0], UKSS), "intervals": (UKSS,), "scenes": ()}[self.kind]
        return tuple(name for name in MEASURES if name not in left_out)

    @property
    def means(self) -> list[str]:
        """Names of the measures whose means are compared."""
        return [name for name in self.measures if name in MEANS]

    @property
    def is_long(self) -> np.ndarray:
        """Mask over `cases`, True for videos of `LONG_SECONDS` and more, shape `(n_cases,)`."""
        return np.array([(case.duration_seconds or 0) >= LONG_SECONDS for case in self.cases])

    def videos_of(self, is_kept: np.ndarray) -> list[str]:
        """Return the videos of the `cases` that the mask keeps."""
        return [self.videos[case.question_id] for case, is_one in zip(self.cases, is_kept, strict=True) if is_one]

    @property
    def groups(self) -> list[tuple[str, np.ndarray]]:
        """Name and mask over `cases` of each bucket: by the video's length, or by that of the intervals."""
        if self.kind != "intervals":
            buckets = np.array([case.bucket for case in self.cases])
            return [(name, buckets == name) for name in BUCKETS if (buckets == name).any()]
        longest = [max(stop - start for ((start, stop),) in self.scenes[case.question_id]) for case in self.cases]
        return [("all", np.ones(len(self.cases), dtype=bool)), (SHORT, np.asarray(longest) <= SHORT_SECONDS)]


@dataclass(frozen=True)
class Material:
    """The files from which the figures of published selections are derived.

    Args:
        files: folder of the published files.
        annotations: annotation file of each benchmark.
        rates: CSV of lengths and rates of each benchmark whose annotation does not state them.
        scenes: file of scenes of each benchmark whose annotation has no evidence.
    """

    files: Path
    annotations: Mapping[str, Path]
    rates: Mapping[str, Path] = field(default_factory=dict)
    scenes: Mapping[str, Path] = field(default_factory=dict)
    _grounds: dict[str, tuple[Sequence[Question], Mapping[str, VideoRate], Ground]] = field(default_factory=dict)

    def find(self, card: Card, item: PublishedFile) -> Path | None:
        """Return the path of a card's file, checked against its hash; None if it is not at hand."""
        path = find_file(item, card.folder, self.files)
        if path is not None:
            check_file(item, path)
        return path

    def questions(self, benchmark: str) -> Sequence[Question]:
        """Return the questions of a benchmark of `annotations`. Raises as `ground`."""
        return self.ground(benchmark)[0]

    def videos(self, benchmark: str) -> dict[str, str]:
        """Return the video of each question of a benchmark. Raises as `questions`."""
        return {question.id: question.video for question in self.questions(benchmark)}

    def ground(self, benchmark: str) -> tuple[Sequence[Question], Mapping[str, VideoRate], Ground]:
        """Return the questions of a benchmark, their rates, and the evidence that selections are measured on.

        Raises:
            InvalidInput: an annotation without rates and no --rates.
        """
        if benchmark not in self._grounds:
            questions = read_annotations(benchmark, self.annotations[benchmark])
            if benchmark in self.scenes:
                questions = with_scenes(questions, read_scenes(self.scenes[benchmark]))
            rate_of = stated_rates(questions)
            if not rate_of:
                if benchmark not in self.rates:
                    place = f"{self.annotations[benchmark]}: states no frame rates"
                    raise InvalidInput(f"{place}; measuring needs --rates {benchmark}=FILE")
                rate_of = read_rates(self.rates[benchmark])
                questions = [_with_length(question, rate_of) for question in questions]
            self._grounds[benchmark] = (questions, rate_of, Ground.of(benchmark, questions, frame_rates(rate_of)))
        return self._grounds[benchmark]


def _with_length(question: Question, rate_of: Mapping[str, VideoRate]) -> Question:
    """Return the question with its video's length, if its annotation states none."""
    if question.duration_seconds is not None or question.id not in rate_of:
        return question
    return replace(question, duration_seconds=rate_of[question.id].duration_seconds)


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
        missing: list to which a sentence is added for each file, or annotation of a benchmark, that is not at hand.

    Raises:
        InvalidInput: a file with another hash, or one that does not fit the benchmark's questions.
    """
    listed = [(card, item) for card in cards for item in card.selections]
    wanted_groups = {(item.benchmark, item.k) for card, item in listed if only in ("", card.name)}
    groups = sorted((benchmark, k) for benchmark, k in wanted_groups if benchmark in material.annotations)
    if missing is not None:
        unknown = sorted({benchmark for benchmark, _ in wanted_groups} - set(material.annotations))
        missing += [
            f"{benchmark}: not measured, no annotation (--annotations {benchmark}=FILE)" for benchmark in unknown
        ]
    for benchmark, _ in groups:  # rates that were not given are said before minutes of work
        material.ground(benchmark)
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
                path,
                format=item.format,
                questions=questions,
                fps=frame_rates(rate_of),
                allow_missing=True,
                left_out=left_out,
            )
            rows = selection_rows(loaded, questions, rate_of, name=label)
            if missing_ids := [case.question_id for case in ground.cases if case.question_id not in loaded]:
                count = f"{len(missing_ids)} of {len(ground.cases)} questions"
                left_out.append(f"no selection for {count}, counted as nothing in view, the first: {missing_ids[0]}")
            figures[label] = question_figures(ground, shown_frames(rows))
            owners[label] = card.name
            notes += [f"{label}, K = {k}: {line}" for line in left_out]
        if figures:
            figures |= baseline_figures(ground, k)
            yield Group(ground=ground, k=k, figures=figures, owners=owners, notes=tuple(notes), is_whole=is_whole)


def question_figures(ground: Ground, frames: Mapping[str, ShownFrames]) -> pd.DataFrame:
    """Return the measures of each question of `ground.cases`, in their order, and its number of different frames.

    Random frames get their exact expectation. A question without a selection has nothing in view.
    """
    lines = []
    for case in ground.cases:
        shown_frames, scenes = frames.get(case.question_id, ShownFrames()), ground.scenes[case.question_id]
        if shown_frames.n_random is not None:
            intervals = [interval for (interval,) in scenes]
            shares = random_recall(intervals, TOLERANCES_SECONDS, case, shown_frames.n_random)
            closeness = random_nearness(intervals, case, shown_frames.n_random)
            n_frames = min(shown_frames.n_random, case.n_frames)
        else:
            gaps = scene_distances(scenes, shown_frames.times) if len(shown_frames.times) else np.empty((1, 0))
            shares, closeness = shares_within(gaps, TOLERANCES_SECONDS), nearness_of(gaps)
            n_frames = len(set(shown_frames.times))
        line = {**dict(zip(_WITHIN, shares.tolist(), strict=True)), "nearness": closeness, "frames": n_frames}
        if ground.kind == "scenes":
            line[UKSS] = scene_score(scenes, shown_frames.times).ukss if n_frames else 0.0
        lines.append(line)
    return pd.DataFrame(lines)


def baseline_figures(ground: Ground, k: int) -> dict[str, pd.DataFrame]:
    """Return the figures of uniform frames at `k`, and of random ones, whose expectation in scenes is not computed."""
    even = {key: ShownFrames(times) for key, times in uniform_times(ground.cases, k=k).items()}
    figures = {"uniform": question_figures(ground, even)}
    if ground.kind != "scenes":
        figures["random"] = question_figures(ground, dict.fromkeys(even, ShownFrames(n_random=k)))
    return figures


def recall_records(ground: Ground, name: str, k: int, figures: pd.DataFrame) -> list[dict[str, str]]:
    """Return the records of one selection in `by_length.csv`, one per bucket; measures that do not apply are "".

    Args:
        figures: `question_figures` of the selection.
    """
    records = []
    for bucket, is_inside in ground.groups:
        bucket_means = figures[is_inside].mean()
        if UKSS in figures:
            bucket_means[UKSS] = geometric_ukss(figures[UKSS][is_inside])
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
    is_long = ground.is_long
    videos = ground.videos_of(is_long)
    tests = [
        (name, measure, compare_paired(figures[reference][measure][is_long], figures[name][measure][is_long], videos))
        for name in sorted(figures)
        if name not in (reference, "random")
        for measure in ground.means
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
