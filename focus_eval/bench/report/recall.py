"""Measures how near the chosen frames are to annotated moments, intervals and scenes, all from one distance.

Evidence is moments, shape `(n,)`, or intervals, shape `(n, 2)`, in seconds; a moment counts as an interval of length 0.
No model is needed: the benchmark states the times of the evidence, and the selection states the times of its frames.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from focus_eval.bench.benchmarks.question import (
    END_SLACK_SECONDS,
    NEAR_SECONDS,
    RECALL_SECONDS,
    SLACK_SECONDS,
    clock_seconds,
    distances_text,
)
from focus_eval.bench.benchmarks.registry import make_benchmark
from focus_eval.core.errors import InvalidInput
from focus_eval.core.resources import read_json, read_text
from focus_eval.core.types import FloatArray, Question, finite_seconds, frozen_floats

Times = Sequence[float] | FloatArray
PIXELS_NOTE = "Recall is at equal pixels: a frame at scale s is worth a full frame drawn with probability s²."
# Nearness falls to 1/e at this distance; frames up to this distance count as near.
SCALE_SECONDS = 5.0
# Number of equal parts of the video in which `spread` looks for a frame.
N_PARTS = 10
# Measure of a selection beside recall -> what a table calls it.
MEASURES = {
    "nearness": "mean exp(−distance / 5 s)",
    "near_frames": "log(1 + frames within 5 s)",
    "spread": "tenths of the video with a frame",
}


def recall_column(seconds: float, *, any_size: bool = False) -> str:
    """Return the column of the recall within `seconds`, e.g. "recall@2".

    Args:
        any_size: True for the recall in which a shrunk frame counts like a full one (see `recall_within`).

    Raises:
        InvalidInput: a distance that is not one of `RECALL_SECONDS`.
    """
    if seconds not in RECALL_SECONDS:
        raise InvalidInput(f"evidence is measured within {distances_text()} s, not {seconds:g}")
    return f"recall@{seconds:g}{' any size' if any_size else ''}"


def recall(
    keyframe_seconds: ArrayLike,
    evidence_seconds: ArrayLike,
    *,
    within_seconds: float = 2.0,
    scales: ArrayLike | None = None,
) -> float:
    """Return evidence recall@d: the share of annotated moments with a keyframe within `within_seconds`, in [0, 1].

    >>> recall([9.5, 40.0], [10.0, 20.0], within_seconds=2.0)
    0.5

    Args:
        keyframe_seconds: times of the keyframes, shape `(k,)`, any order.
        evidence_seconds: times of the annotated moments, shape `(n,)`, at least one.
        within_seconds: distance d, at least 0.
        scales: side of each keyframe over that of a full frame, shape `(k,)`; None for full frames. A frame of scale s
            is worth a full frame drawn with probability s ** 2, so that selections are compared at equal pixels.

    Raises:
        InvalidInput: no moment, a time that is not a finite number, a distance below 0, or not one scale in (0, 1]
            per keyframe.
    """
    times, moments = (finite_seconds(seconds, "times of a recall") for seconds in (keyframe_seconds, evidence_seconds))
    if not moments.size or not within_seconds >= 0:
        raise InvalidInput(
            f"recall needs a moment and a distance of at least 0 s, got {moments.size}, {within_seconds}"
        )
    sizes = None if scales is None else np.asarray(scales, dtype=np.float64).reshape(-1)
    if sizes is not None and (sizes.shape != times.shape or not ((sizes > 0) & (sizes <= 1)).all()):
        raise InvalidInput(f"recall needs one scale in (0, 1] per keyframe, got {sizes.size} for {times.size}")
    return float(recall_within(moments, times, (within_seconds,), scales=sizes)[0])


def bounds(evidence: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Return starts and ends of moments or intervals, shape `(n,)` each; a moment is its own start and end.

    Raises:
        InvalidInput: an interval that starts below 0 or ends before it starts.
    """
    values = np.asarray(evidence, dtype=np.float64)
    if values.ndim == 1:
        return values, values
    wrong = values[~((values[:, 0] >= 0) & (values[:, 0] <= values[:, 1]))]
    if wrong.size:
        raise InvalidInput(f"an interval needs 0 <= start <= stop, got {wrong[0].tolist()}")
    return values[:, 0], values[:, 1]


def distances(evidence: ArrayLike, times: Times) -> FloatArray:
    """Return the seconds from each moment or interval to each of `times`, shape `(n, k)`; 0 inside an interval."""
    starts, ends = bounds(evidence)
    frames = np.asarray(times, dtype=np.float64)
    return np.maximum(np.maximum(starts[:, np.newaxis] - frames, frames - ends[:, np.newaxis]), 0.0)


def recall_within(
    evidence: ArrayLike, times: Times, tolerances: Sequence[float], *, scales: Times | None = None
) -> FloatArray:
    """Return the share of the moments or intervals with a frame within each tolerance, shape `(n_tolerances,)`.

    Selections are compared at equal pixels: a frame shrunk by `scale` is worth a full frame that is drawn with
    probability `scale ** 2`, so a sampler gains nothing by shrinking its frames. The result is the exact expectation
    over the draws; 0 without frames.

    Distances are compared with a slack of a microsecond, because times are quotients of integers.

    Args:
        times: seconds of the frames, shape `(k,)`.
        tolerances: seconds; 0 asks for a frame inside the interval.
        scales: scale of each frame in (0, 1], shape `(k,)`; None for full frames, or to count a frame of any size like
            a full one.
    """
    return shares_within(distances(evidence, times), tolerances, scales)


def shares_within(gaps: FloatArray, tolerances: Sequence[float], scales: Times | None = None) -> FloatArray:
    """Return `recall_within` from the `distances` of evidence and frames, shape `(n, k)`."""
    if gaps.shape[1] == 0:
        return np.zeros(len(tolerances))
    if scales is None:
        limits = np.asarray(tolerances, dtype=np.float64) + SLACK_SECONDS
        near: FloatArray = (gaps.min(axis=1)[:, np.newaxis] <= limits).mean(axis=0)
        return near
    undrawn = 1.0 - np.square(np.asarray(scales, dtype=np.float64))
    missed = [np.where(gaps <= tolerance + SLACK_SECONDS, undrawn, 1.0).prod(axis=1) for tolerance in tolerances]
    return np.array([1.0 - share.mean() for share in missed])


def frames_inside(evidence: ArrayLike, times: Times) -> float:
    """Return the share of the frames at `times` that lie in any interval, ends included; 0 without frames."""
    gaps = distances(evidence, times)
    return float((gaps <= SLACK_SECONDS).any(axis=0).mean()) if gaps.shape[1] else 0.0


def nearness_of(gaps: FloatArray) -> float:
    """Return the mean over moments or intervals of exp(-seconds to the nearest frame / 5), in [0, 1]; 0 without frames.

    Args:
        gaps: `distances` of evidence and frames, shape `(n, k)`.
    """
    return float(np.exp(-gaps.min(axis=1) / SCALE_SECONDS).mean()) if gaps.shape[1] else 0.0


def _near_frames(gaps: FloatArray) -> float:
    """Return the mean over the evidence of log(1 + number of frames within 5 s).

    Args:
        gaps: `distances` of evidence and frames without repeats, shape `(n, k)`.
    """
    return float(np.log1p((gaps <= SCALE_SECONDS + SLACK_SECONDS).sum(axis=1)).mean())


def spread(times: Times, *, duration_seconds: float) -> float:
    """Return the share of ten equal parts of the video that hold one of the frames at `times`, in [0, 1]."""
    parts = np.floor(np.asarray(times, dtype=np.float64) / duration_seconds * N_PARTS)
    return len({min(max(part, 0), N_PARTS - 1) for part in parts.tolist()}) / N_PARTS


def row_measures(
    evidence: ArrayLike, times: Times, *, duration_seconds: float | None, scales: Times | None = None
) -> dict[str, float | None]:
    """Return the measures of one selection by column: recall at each distance and at any size, and `MEASURES`.

    Args:
        duration_seconds: length of the video; if it is None or 0, the spread is None.
    """
    gaps = distances(evidence, times)
    at_any_size = shares_within(gaps, RECALL_SECONDS).tolist()
    at_equal_pixels = at_any_size if scales is None else shares_within(gaps, RECALL_SECONDS, scales).tolist()
    return {
        **{recall_column(d): share for d, share in zip(RECALL_SECONDS, at_equal_pixels, strict=True)},
        **{recall_column(d, any_size=True): share for d, share in zip(RECALL_SECONDS, at_any_size, strict=True)},
        "nearness": nearness_of(gaps),
        "near_frames": _near_frames(gaps[:, np.unique(times, return_index=True)[1]]),
        "spread": spread(times, duration_seconds=duration_seconds) if duration_seconds else None,
    }


def covered_share(intervals: ArrayLike, times: Times, seconds: float) -> float:
    """Return the share of the intervals' time that lies within `seconds` of one of `times`, in [0, 1].

    Time in several intervals counts once for each. An interval of length 0 counts like one second that is covered
    wholly or not at all. Without frames the share is 0.
    """
    frames = np.sort(np.asarray(times, dtype=np.float64))
    if not frames.size:
        return 0.0
    starts, stops = bounds(intervals)
    # Windows around the frames that do not overlap: each ends at the latest where the next one begins.
    ends = np.minimum(frames + seconds, np.append(frames[1:] - seconds, np.inf))
    ends = np.maximum(ends, frames - seconds)
    inside = np.minimum(stops[:, None], ends) - np.maximum(starts[:, None], frames - seconds)
    lengths = stops - starts
    points = np.abs(starts[:, None] - frames).min(axis=1) <= seconds
    covered = np.where(lengths > 0, np.maximum(inside, 0).sum(axis=1), points)
    # Rounding may push the sum slightly above 1.
    return min(1.0, float(covered.sum() / np.where(lengths > 0, lengths, 1.0).sum()))


@dataclass(frozen=True, kw_only=True)
class EvidenceCase:
    """One question with annotated evidence, and its video.

    Args:
        bucket: length bucket of the video.
        evidence_seconds: annotated moments, shape `(n,)`; those more than a second past the end are dropped.
        duration_seconds: annotated length, above 0; None if unknown: then there are no evenly spaced and no
            random frames to compare with.
        fps: average rate of the file, above 0.
        n_frames: frames of the file; 0 becomes `int(duration_seconds * fps)`, at least 1.
        n_dropped: number of moments dropped here or by the benchmark.
    """

    question_id: str
    bucket: str
    evidence_seconds: FloatArray
    duration_seconds: float | None
    fps: float
    n_frames: int = 0
    n_dropped: int = 0

    def __post_init__(self) -> None:
        """Drop moments past the end of the video, count them, and compute a missing number of frames.

        Raises InvalidInput for a length or a rate that is not above 0.
        """
        length = math.inf if self.duration_seconds is None else self.duration_seconds
        if not (length > 0 and self.fps > 0):
            raise InvalidInput(f"{self.question_id}: evidence recall needs a length and a rate above 0")
        times = frozen_floats(self.evidence_seconds)
        inside = times <= length + END_SLACK_SECONDS
        object.__setattr__(self, "evidence_seconds", frozen_floats(times[inside]))
        object.__setattr__(self, "n_dropped", self.n_dropped + int((~inside).sum()))
        if self.n_frames < 1 and self.duration_seconds is not None:
            object.__setattr__(self, "n_frames", max(1, int(self.duration_seconds * self.fps)))


def evidence_cases(
    benchmark: str, questions: Sequence[Question], fps: Mapping[str, float], *, has_evidence: bool = False
) -> list[EvidenceCase]:
    """Return a case for each of `questions`, with no moments for a question without annotated moments.

    Args:
        benchmark: name of the benchmark, which assigns length buckets if the annotation does not.
        fps: frame rate of the video by question id.
        has_evidence: True if another file states the evidence, so that the annotation need not.

    Raises:
        InvalidInput: no question has evidence, and `has_evidence` is False.
    """
    chosen_benchmark = make_benchmark(benchmark)
    cases = []
    for question in questions:
        seconds = question.duration_seconds
        cases.append(
            EvidenceCase(
                question_id=question.id,
                bucket=question.bucket or ("" if seconds is None else chosen_benchmark.bucket(seconds)),
                evidence_seconds=frozen_floats(question.evidence_seconds),
                duration_seconds=seconds,
                fps=fps[question.id],
                n_dropped=question.n_evidence_dropped,
            )
        )
    has_intervals = any(question.evidence_intervals for question in questions)
    if not has_evidence and not has_intervals and not any(case.evidence_seconds.size for case in cases):
        raise InvalidInput(
            f"{benchmark}: no question of the annotation has evidence; give the file that marks it, or --scenes"
        )
    return cases


def uniform_times(cases: Iterable[EvidenceCase], *, k: int) -> dict[str, FloatArray]:
    """Return the times of `k` evenly spaced frames by question id: `linspace(0, n_frames - 1, k) / fps`, unrounded."""
    return {case.question_id: np.linspace(0, case.n_frames - 1, k) / case.fps for case in cases}


def random_recall(evidence: ArrayLike, tolerances: Sequence[float], case: EvidenceCase, k: int) -> FloatArray:
    """Return the exact expectation of `recall_within` for `min(k, n_frames)` random frames, one per tolerance.

    Frames are drawn without replacement, so the chance that no frame near the evidence is drawn is hypergeometric.
    """
    starts, ends = bounds(evidence)
    reach = np.asarray(tolerances)[:, np.newaxis] + SLACK_SECONDS
    return np.asarray(chance_of_hit(starts - reach, ends + reach, case, k).mean(axis=1))


def chance_of_hit(starts: FloatArray, ends: FloatArray, case: EvidenceCase, k: int) -> FloatArray:
    """Return the chance that one of `min(k, n_frames)` frames drawn without replacement lies in each [start, end]."""
    from scipy.special import gammaln

    first = np.maximum(np.ceil(starts * case.fps), 0)
    last = np.minimum(np.floor(ends * case.fps), case.n_frames - 1)
    reachable = np.maximum(last - first + 1, 0)
    n, drawn = case.n_frames, min(k, case.n_frames)
    outside = np.maximum(n - reachable, drawn)
    log_missed = gammaln(outside + 1) - gammaln(outside - drawn + 1) - gammaln(n + 1) + gammaln(n - drawn + 1)
    missed = np.where(n - reachable < drawn, 0.0, np.exp(log_missed))
    return np.asarray(1.0 - missed)


Interval = tuple[float, float]
# Scenes of a question, each a list of intervals. Only KFS-Bench groups intervals; elsewhere each interval is a scene.
Scenes = Sequence[Sequence[Interval]]


@dataclass(frozen=True, kw_only=True)
class SceneScore:
    """KFS-Bench's measures of one question, each in [0, 1] (its eval.py, NEC-VID/KFS-Bench 2349b9e).

    Args:
        key_frame_rate: share of the frames inside any scene.
        scene_hit_rate: share of the scenes with a frame inside.
        ukss: cube root of key frame rate x balanced scene recall x balanced distribution similarity.
    """

    key_frame_rate: float
    scene_hit_rate: float
    ukss: float


# Column of `Run.selection_frame` for a measure of annotated intervals beside recall -> what a table calls it.
INTERVAL_MEASURES = {
    "hit": "intervals with a frame inside",
    "coverage": f"intervals' time within {NEAR_SECONDS:g} s of a frame",
    "UKSS": "UKSS",
}


def interval_measures(intervals: Sequence[Sequence[float]], times: Times) -> dict[str, float]:
    """Return the measures of one question by the keys of `INTERVAL_MEASURES`, each in [0, 1]; all 0 without frames.

    Args:
        intervals: `[start, stop]`, or `[start, stop, scene]` with the number of the scene that the interval belongs
            to. Without a number each interval is a scene.
        times: seconds of the frames.
    """
    if not len(times):
        return dict.fromkeys(INTERVAL_MEASURES, 0.0)
    score = scene_score(grouped_scenes(intervals), times)
    coverage = covered_share([interval[:2] for interval in intervals], times, NEAR_SECONDS)
    return {"hit": score.scene_hit_rate, "coverage": coverage, "UKSS": score.ukss}


def grouped_scenes(intervals: Iterable[Sequence[float]]) -> list[list[Interval]]:
    """Return the scenes of `intervals`, each `[start, stop]` or `[start, stop, scene]` as in `interval_measures`."""
    scenes: dict[float, list[Interval]] = {}
    for at, interval in enumerate(intervals):
        scenes.setdefault(interval[2] if len(interval) > 2 else at, []).append((interval[0], interval[1]))
    return list(scenes.values())


def scenes_of(question: Question) -> list[list[Interval]]:
    """Return the scenes of a question's annotated intervals; each interval is one if no scenes are annotated."""
    numbers = question.evidence_scenes or range(len(question.evidence_intervals))
    return grouped_scenes(
        (*interval, number) for interval, number in zip(question.evidence_intervals, numbers, strict=True)
    )


def scene_distances(scenes: Scenes, times: Times) -> FloatArray:
    """Return the seconds from each scene to each of `times`, shape `(n_scenes, k)`; 0 inside one of its intervals."""
    return np.array([distances(scene, times).min(axis=0) for scene in scenes])


def scene_score(scenes: Scenes, times: Times) -> SceneScore:
    """Return KFS-Bench's measures of frames at `times` for a question's scenes, each a list of intervals.

    Raises:
        InvalidInput: no scenes, an interval that ends before it starts, or no times.
    """
    if not scenes or not len(times):
        raise InvalidInput("KFS-Bench's measures need at least one scene and one frame")
    inside = scene_distances(scenes, times) <= SLACK_SECONDS
    per_scene = inside.sum(axis=1)
    n_inside = int(inside.any(axis=0).sum())
    lengths = np.array([sum(stop - start for start, stop in scene) for scene in scenes])
    if not lengths.any():  # moments have no length
        lengths = np.ones_like(lengths)
    rate = n_inside / len(times)
    product = rate * _balanced_recall(per_scene, lengths, n_inside) * _balanced_similarity(per_scene, lengths)
    return SceneScore(
        key_frame_rate=rate, scene_hit_rate=float((per_scene > 0).mean()), ukss=float(product ** (1.0 / 3.0))
    )


def _balanced_recall(per_scene: np.ndarray, lengths: FloatArray, n_inside: int) -> float:
    """Return the share of scenes that have enough frames, in [0, 1].

    A scene needs the smaller of two numbers, rounded down and at least 1: `n_inside` times its share of the total
    length, and `n_inside` divided by the number of scenes.
    """
    part = np.minimum(lengths / lengths.sum(), 1.0 / lengths.size)
    return float((per_scene >= np.maximum(1, np.floor(part * n_inside))).mean())


def _balanced_similarity(per_scene: np.ndarray, lengths: FloatArray) -> float:
    """The largest cosine between frames per scene and lengths ** p, for p from 0 to 1 in steps of 0.1."""
    if not per_scene.any():
        return 0.0
    powers = lengths[None, :] ** np.linspace(0.0, 1.0, 11)[:, None]
    cosines = powers @ per_scene / (np.linalg.norm(powers, axis=1) * np.linalg.norm(per_scene))
    return min(1.0, float(cosines.max()))


def with_scenes(questions: Sequence[Question], scenes_by_id: Mapping[str, Scenes]) -> list[Question]:
    """Return the questions with these scenes as their only evidence; questions without scenes get no evidence."""
    annotated = []
    for question in questions:
        scenes = scenes_by_id.get(question.id, ())
        numbered = [(interval, number) for number, scene in enumerate(scenes) for interval in scene]
        intervals, numbers = tuple(interval for interval, _ in numbered), tuple(number for _, number in numbered)
        annotated.append(replace(question, evidence_seconds=(), evidence_intervals=intervals, evidence_scenes=numbers))
    return annotated


def read_scenes(path: Path) -> dict[str, list[list[Interval]]]:
    """Return the scenes by question id, each scene a list of intervals in seconds.

    The file is KFS-Bench's CSV with the columns id, segment_id, scene_id, start and end (h:mm:ss or mm:ss; a segment
    lasts to its end + 1 s), or JSON that maps a question id to [[start, stop], ..], each pair a scene.

    Raises:
        InvalidInput: the file is of another kind or damaged; the message names the file, and the line of a CSV.
    """
    if path.name.removesuffix(".gz").endswith(".csv"):
        return _read_csv(path)
    try:
        values = read_json(path)
        return {str(key): [[(float(start), float(stop))] for start, stop in pairs] for key, pairs in values.items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise InvalidInput(
            f"{path}: scenes are JSON, question id to [[start, stop], ..] in seconds, or KFS-Bench's CSV ({error})"
        ) from error


def _read_csv(path: Path) -> dict[str, list[list[Interval]]]:
    """The scenes by question id from KFS-Bench's CSV; raises InvalidInput for a missing column or a bad line."""
    reader = csv.DictReader(io.StringIO(read_text(path)))
    missing = [name for name in ("id", "scene_id", "start", "end") if name not in (reader.fieldnames or ())]
    if missing:
        raise InvalidInput(f"{path}:1: no column {missing[0]!r}; KFS-Bench's scenes have id, scene_id, start and end")
    scenes_by_question: dict[str, dict[str, list[Interval]]] = {}
    for row in reader:
        location = f"{path}:{reader.line_num}"
        start, stop = (clock_seconds(str(row[name]), location=location) for name in ("start", "end"))
        if stop < start:
            raise InvalidInput(f"{location}: the segment {row['start']} to {row['end']} ends before it starts")
        scenes_by_question.setdefault(row["id"], {}).setdefault(row["scene_id"], []).append((start, stop + 1.0))
    return {question_id: list(scenes.values()) for question_id, scenes in scenes_by_question.items()}
