"""Measures how near the chosen frames are to the annotated moments, beside recall at fixed distances."""

from __future__ import annotations

import numpy as np

from focus_eval.benchmarks.evidence import SLACK_SECONDS
from focus_eval.core.types import FloatArray
from focus_eval.report.recall import EvidenceCase, Times, chance_of_hit

# Fades nearness to 1/e, and bounds the frames that count as near.
SCALE_SECONDS = 5.0
# Frames further away than this count as nothing: exp(-12) is 6 in a million.
FADED_SECONDS = 12 * SCALE_SECONDS
# Parts of the video that spread asks for a frame in.
N_PARTS = 10
# Measure -> what a table calls it.
MEASURES = {
    "nearness": "mean exp(−distance / 5 s)",
    "near_frames": "log(1 + frames within 5 s)",
    "spread": "tenths of the video with a frame",
}


def nearness(evidence_seconds: FloatArray, times: Times, *, stops: FloatArray | None = None) -> float:
    """Return the mean over the moments of exp(-distance of the nearest frame / scale), in [0, 1].

    It has no edge: a frame that is a little nearer counts a little more. 0 without frames.

    Args:
        evidence_seconds: moments, or starts of intervals, shape `(n,)`, n >= 1.
        stops: ends of the intervals, shape `(n,)`; a frame inside has distance 0.
    """
    chosen = np.asarray(times, dtype=np.float64)
    if chosen.size == 0:
        return 0.0
    ends = evidence_seconds if stops is None else stops
    outside = np.maximum(evidence_seconds[:, np.newaxis] - chosen, chosen - ends[:, np.newaxis])
    return float(np.exp(-np.maximum(outside, 0).min(axis=1) / SCALE_SECONDS).mean())


def random_nearness(starts: FloatArray, stops: FloatArray, case: EvidenceCase, k: int) -> float:
    """Return the exact expectation of `nearness` for `min(k, T)` frames drawn at random without replacement.

    Args:
        starts, stops: intervals, shape `(n,)`; a moment has both equal.
    """
    expected = []
    for start, stop in zip(starts, stops, strict=True):
        before = np.arange(np.floor((start - FADED_SECONDS) * case.fps), np.floor(start * case.fps) + 1)
        after = np.arange(np.floor(stop * case.fps), (stop + FADED_SECONDS) * case.fps)
        outside = np.concatenate([start - before / case.fps, after / case.fps - stop])
        steps = np.unique(np.round(np.maximum(outside, 0), 9))
        chance = chance_of_hit(start - steps - SLACK_SECONDS, stop + steps + SLACK_SECONDS, case, k)
        expected.append(float((np.diff(chance, prepend=0.0) * np.exp(-steps / SCALE_SECONDS)).sum()))
    return float(np.mean(expected))


def near_frames(evidence_seconds: FloatArray, times: Times) -> float:
    """Return the mean over the moments of log(1 + frames within 5 seconds); a repeated frame counts once.

    Args:
        evidence_seconds: moments, shape `(n,)`, n >= 1.
    """
    chosen = np.unique(np.asarray(times, dtype=np.float64))
    distances = np.abs(evidence_seconds[:, np.newaxis] - chosen)
    return float(np.log1p((distances <= SCALE_SECONDS + SLACK_SECONDS).sum(axis=1)).mean())


def spread(times: Times, *, duration_seconds: float) -> float:
    """Return the share of ten equal parts of the video that hold a frame, in [0, 1]. It asks for no evidence."""
    chosen = np.asarray(times, dtype=np.float64)
    parts = np.floor(chosen / duration_seconds * N_PARTS)
    return np.unique(np.clip(parts, 0, N_PARTS - 1)).size / N_PARTS
