"""Measures how near the chosen frames are to the annotated evidence, all computed from one distance.

Evidence is moments, shape `(n,)`, or intervals, shape `(n, 2)`, in seconds; a moment counts as an interval of length 0.
No model is needed: the benchmark states the times of the evidence, and the selection those of its frames.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from focus_eval.benchmarks.question import END_SLACK_SECONDS, RECALL_SECONDS, SLACK_SECONDS, distances_text
from focus_eval.benchmarks.registry import make_benchmark
from focus_eval.core.errors import InvalidInput
from focus_eval.core.types import FloatArray, Question, finite_seconds, frozen_floats

Times = Sequence[float] | FloatArray
PIXELS_NOTE = "Recall is at equal pixels: a frame at scale s is worth a full frame drawn with probability s²."
# Nearness fades to 1/e over this distance, which also bounds the frames that count as near.
SCALE_SECONDS = 5.0
# Parts of the video that spread asks for a frame in.
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
    """Return starts and ends of moments or intervals, shape `(n,)` each; both are the moment itself for moments.

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
        nearest = gaps.min(axis=1)
        return np.array([(nearest <= tolerance + SLACK_SECONDS).mean() for tolerance in tolerances])
    undrawn = 1.0 - np.square(np.asarray(scales, dtype=np.float64))
    missed = [np.where(gaps <= tolerance + SLACK_SECONDS, undrawn, 1.0).prod(axis=1) for tolerance in tolerances]
    return np.array([1.0 - share.mean() for share in missed])


def frames_inside(evidence: ArrayLike, times: Times) -> float:
    """Return the share of the frames at `times` that lie in any interval, ends included; 0 without frames."""
    gaps = distances(evidence, times)
    return float((gaps <= SLACK_SECONDS).any(axis=0).mean()) if gaps.shape[1] else 0.0


def nearness(evidence: ArrayLike, times: Times) -> float:
    """Return the mean over moments or intervals of exp(-seconds to the nearest frame / 5), in [0, 1]; 0 without frames.

    Args:
        evidence: moments, shape `(n,)`, or intervals, shape `(n, 2)`, in seconds; a frame inside has distance 0.
        times: seconds of the frames, shape `(k,)`.
    """
    return nearness_of(distances(evidence, times))


def nearness_of(gaps: FloatArray) -> float:
    """Return `nearness` from the `distances` of evidence and frames, shape `(n, k)`; 0 without frames."""
    return float(np.exp(-gaps.min(axis=1) / SCALE_SECONDS).mean()) if gaps.shape[1] else 0.0


def near_frames(evidence: ArrayLike, times: Times) -> float:
    """Return the mean over the evidence of log(1 + number of frames within 5 s); a repeated frame counts once."""
    return _near_frames(distances(evidence, np.unique(np.asarray(times, dtype=np.float64))))


def _near_frames(gaps: FloatArray) -> float:
    """Return `near_frames` from the `distances` of evidence and different frames, shape `(n, k)`."""
    return float(np.log1p((gaps <= SCALE_SECONDS + SLACK_SECONDS).sum(axis=1)).mean())


def spread(times: Times, *, duration_seconds: float) -> float:
    """Return the share of ten equal parts of the video that hold one of the frames at `times`, in [0, 1]."""
    parts = np.floor(np.asarray(times, dtype=np.float64) / duration_seconds * N_PARTS)
    return np.unique(np.clip(parts, 0, N_PARTS - 1)).size / N_PARTS


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
        "near_frames": _near_frames(gaps[:, np.unique(np.asarray(times, dtype=np.float64), return_index=True)[1]]),
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
    # The windows as disjoint intervals: each ends where the next one begins.
    ends = np.minimum(frames + seconds, np.append(frames[1:] - seconds, np.inf))
    ends = np.maximum(ends, frames - seconds)
    inside = np.minimum(stops[:, None], ends) - np.maximum(starts[:, None], frames - seconds)
    lengths = stops - starts
    points = np.abs(starts[:, None] - frames).min(axis=1) <= seconds
    covered = np.where(lengths > 0, np.maximum(inside, 0).sum(axis=1), points)
    # What many windows cover together may come to more than the whole by a rounding.
    return min(1.0, float(covered.sum() / np.where(lengths > 0, lengths, 1.0).sum()))


@dataclass(frozen=True, kw_only=True)
class EvidenceCase:
    """One question with annotated evidence, and its video.

    Args:
        bucket: length bucket of the video.
        evidence_seconds: annotated moments, shape `(n,)`; those more than a second past the end are dropped.
        duration_seconds: annotated length, above 0; None if unknown: then there are no even and random frames.
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
        raise InvalidInput(f"{benchmark}: its annotation marks no evidence; longvideobench's does")
    return cases


def uniform_times(cases: Iterable[EvidenceCase], *, k: int) -> dict[str, FloatArray]:
    """Return the seconds of `k` even frames by question id: `linspace(0, n_frames - 1, k) / fps`, not rounded."""
    return {case.question_id: np.linspace(0, case.n_frames - 1, k) / case.fps for case in cases}


def random_recall(evidence: ArrayLike, tolerances: Sequence[float], case: EvidenceCase, k: int) -> FloatArray:
    """Return the exact expectation of `recall_within` for `min(k, n_frames)` random frames, one per tolerance.

    Frames are drawn without replacement, so the chance that none of those near the evidence is drawn is
    hypergeometric.
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
