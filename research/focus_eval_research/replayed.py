"""Measures published selections on annotated evidence, from their files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd

from focus_eval.bench.benchmarks.registry import VideoRate, frame_rates, read_annotations, read_rates, stated_rates
from focus_eval.bench.report.recall import (
    EvidenceCase,
    Scenes,
    evidence_cases,
    nearness_of,
    read_scenes,
    scene_distances,
    scenes_of,
    shares_within,
    uniform_times,
    with_scenes,
)
from focus_eval.core.errors import InvalidInput
from focus_eval.core.types import Question
from focus_eval.external.imports.loading import load_selections, selection_rows
from focus_eval.external.selection_layouts import TOLERANCES_SECONDS, ShownByQuestion, ShownFrames, shown_frames
from focus_eval_research.published import PublishedFile, check_file, find_file

# The evidence of shorter videos is mostly in view: they are not judged.
LONG_SECONDS = 180.0
# Measures of a question, each the mean over its evidence.
MEANS = (*(f"within {tolerance:g} s" for tolerance in TOLERANCES_SECONDS), "nearness")


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
    def means(self) -> list[str]:
        """Names of the measures for this evidence: moments have no inside."""
        return [*MEANS[self.kind == "moments" :]]

    @property
    def is_long(self) -> np.ndarray:
        """Mask over `cases`, True for videos of `LONG_SECONDS` and more, shape `(n_cases,)`."""
        return np.array([(case.duration_seconds or 0) >= LONG_SECONDS for case in self.cases])

    def videos_of(self, is_kept: np.ndarray) -> list[str]:
        """Return the videos of the `cases` that the mask keeps."""
        return [self.videos[case.question_id] for case, is_one in zip(self.cases, is_kept, strict=True) if is_one]


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

    @classmethod
    def of(cls, files: Path, annotations: Sequence[str], rates: Sequence[str], scenes: Sequence[str]) -> Material:
        """Return the folder of published files with the files that options name, each [BENCHMARK=]FILE.

        LongVideoBench where an option names no benchmark.
        """
        by_benchmark = []
        for texts in (annotations, rates, scenes):
            pairs = (text.rpartition("=") for text in texts)
            by_benchmark.append({benchmark or "longvideobench": Path(file) for benchmark, _, file in pairs})
        return cls(files, annotations=by_benchmark[0], rates=by_benchmark[1], scenes=by_benchmark[2])

    def find(self, item: PublishedFile) -> Path | None:
        """Return the path of a listed file, checked against its hash; None if it is not at hand."""
        path = find_file(item, self.files)
        if path is not None:
            check_file(item, path)
        return path

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
    """The selections of one benchmark and K that are at hand, and uniform frames at that K.

    Args:
        frames: shown frames by name of the selection and question id.
        notes: sentences about frames and rows that were left out.
    """

    ground: Ground
    k: int
    frames: Mapping[str, ShownByQuestion]
    notes: tuple[str, ...]

    @cached_property
    def figures(self) -> dict[str, pd.DataFrame]:
        """`question_figures` of each selection, by name."""
        return {name: question_figures(self.ground, self.frames[name]) for name in sorted(self.frames)}


def measured_groups(listed: Sequence[PublishedFile], material: Material) -> Iterator[Group]:
    """Yield the selections of each benchmark and K, from the files that are at hand.

    Raises:
        InvalidInput: a file with another hash, or one that does not fit the benchmark's questions.
    """
    groups = sorted({(item.benchmark, item.k) for item in listed if item.benchmark in material.annotations})
    for benchmark, _ in groups:  # rates that were not given are named before minutes of work
        material.ground(benchmark)
    for benchmark, k in groups:
        frames: dict[str, ShownByQuestion] = {}
        notes: list[str] = []
        for item in listed:
            if (item.benchmark, item.k) != (benchmark, k) or (path := material.find(item)) is None:
                continue
            questions, rate_of, ground = material.ground(benchmark)
            loaded = load_selections(
                path,
                format=item.format,
                questions=questions,
                fps=frame_rates(rate_of),
                allow_missing=True,
                allow_outside=True,
            )
            left_out = [*loaded.left_out]
            if missing_ids := [case.question_id for case in ground.cases if case.question_id not in loaded]:
                count = f"{len(missing_ids)} of {len(ground.cases)} questions"
                left_out.append(f"no selection for {count}, counted as nothing in view, the first: {missing_ids[0]}")
            frames[item.name] = shown_frames(selection_rows(loaded, questions, rate_of, name=item.name))
            notes += [f"{item.name}, K = {k}: {line}" for line in left_out]
        if frames:
            frames["uniform"] = uniform_frames(ground, k)
            yield Group(ground=ground, k=k, frames=frames, notes=tuple(notes))


def missing_files(listed: Sequence[PublishedFile], material: Material) -> list[str]:
    """Return a sentence for each benchmark without an annotation, and for each file that is not at hand."""
    unknown = sorted({item.benchmark for item in listed} - set(material.annotations))
    missing = [f"{name}: not measured, no annotation (--annotations {name}=FILE)" for name in unknown]
    for item in listed:
        if item.benchmark in material.annotations and find_file(item, material.files) is None:
            place = f"published at {item.source or 'a place not recorded'}"
            missing.append(f"{item.name}, {item.benchmark}, K = {item.k}: not at hand, {item.file} ({place})")
    return missing


def uniform_frames(ground: Ground, k: int) -> dict[str, ShownFrames]:
    """Return `k` even frames of each question by its id."""
    return {key: ShownFrames(times) for key, times in uniform_times(ground.cases, k=k).items()}


def question_figures(ground: Ground, frames: ShownByQuestion) -> pd.DataFrame:
    """Return `MEANS` of each question of `ground.cases`, in their order; without a selection nothing is in view."""
    lines = []
    for case in ground.cases:
        times = frames.get(case.question_id, ShownFrames()).times
        gaps = scene_distances(ground.scenes[case.question_id], times) if len(times) else np.empty((1, 0))
        lines.append([*shares_within(gaps, TOLERANCES_SECONDS), nearness_of(gaps)])
    return pd.DataFrame(lines, columns=MEANS)
