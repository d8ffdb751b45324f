"""What the pulls say about each arm: counts, means and variances."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from focus_eval.bandit.clips import Clips
from focus_eval.bandit.radius import bernstein_radius
from focus_eval.types import ClipReport, FloatArray, IntArray


@dataclass(frozen=True)
class Arms:
    """Clips with the statistics of their rewards, every array of shape `(n_arms,)`.

    Args:
        clips: what each arm covers.
        n_pulls: pulls so far.
        mean: empirical mean of the rewards, 0 where there are none.
        variance: their population variance, 0 with fewer than two.
    """

    clips: Clips
    n_pulls: IntArray
    mean: FloatArray
    variance: FloatArray

    @classmethod
    def unpulled(cls, clips: Clips) -> Arms:
        """Return the arms of `clips` before the first pull."""
        return cls(clips, np.zeros(len(clips), dtype=np.int64), np.zeros(len(clips)), np.zeros(len(clips)))

    def with_pulls(self, frames: IntArray, rewards: FloatArray) -> Arms:
        """Return the arms after `rewards` of `frames` too, both `(n,)`; every frame must lie in a clip."""
        arm = self.clips.arm_of(frames)
        n_new = np.bincount(arm, minlength=len(self.clips))
        count = np.maximum(1, n_new)
        mean_new = np.bincount(arm, weights=rewards, minlength=len(self.clips)) / count
        variance_new = np.bincount(arm, weights=(rewards - mean_new[arm]) ** 2, minlength=len(self.clips)) / count
        # Chan, Golub and LeVeque's pairwise update: exact means and variances without keeping the rewards.
        n_all = self.n_pulls + n_new
        share = n_new / np.maximum(1, n_all)
        step = np.where(n_new > 0, mean_new - self.mean, 0.0)
        variance = (1 - share) * self.variance + share * variance_new + share * (1 - share) * step**2
        return replace(self, n_pulls=n_all, mean=self.mean + share * step, variance=variance)

    @property
    def radius(self) -> FloatArray:
        """Bernstein radius of every arm at the pulls so far."""
        return bernstein_radius(self.variance, self.n_pulls, max(1, int(self.n_pulls.sum())))

    def reports(self, radius: FloatArray, *, final: IntArray) -> tuple[ClipReport, ...]:
        """Return one report per arm in order of time; the arms in `final` are marked."""
        is_final = np.zeros(len(self.clips), dtype=bool)
        is_final[final] = True
        columns = (self.clips.starts, self.clips.stops, self.n_pulls, self.mean, radius, is_final)
        return tuple(
            ClipReport(start, stop, n, mean if n else None, r if n else None, chosen)
            for start, stop, n, mean, r, chosen in zip(*(column.tolist() for column in columns), strict=True)
        )


def best_first(values: FloatArray) -> IntArray:
    """Return indices by descending value, shape `(n,)`; the earlier of equal ones comes first."""
    return np.argsort(-values, kind="stable")


def top_set(values: FloatArray, n: int) -> NDArray[np.bool_]:
    """Return which are the `n` largest of `values`, a mask `(n_arms,)`; the earlier of equal ones wins."""
    mask = np.zeros(values.shape, dtype=bool)
    mask[best_first(values)[:n]] = True
    return mask
