"""Fits least squares to answers that are clustered by video, and says how sure each coefficient is (CR2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from focus_eval.core.errors import InvalidInput
from focus_eval.core.types import FloatArray, IntArray
from focus_eval.report.statistics import Estimate


@dataclass(frozen=True, kw_only=True)
class Coefficient:
    """A coefficient with its standard error.

    Args:
        freedom: Satterthwaite's degrees of freedom: about how many videos the error rests on.
        n, videos: scores and videos that the fit rests on.
    """

    value: float
    error: float
    freedom: float
    n: int
    videos: int

    @property
    def p_value(self) -> float:
        """Return the two-sided p of a t test that the coefficient is 0; 1 where no error is seen."""
        from scipy.special import stdtr

        return float(2 * stdtr(self.freedom, -abs(self.value) / self.error)) if self.error > 0 else 1.0

    def estimate(self, *, level: float = 0.95, within: tuple[float, float] | None = None) -> Estimate:
        """Return the coefficient with its t interval, cut to `within`; without one where no error is seen."""
        from scipy.special import stdtrit

        if not (self.error > 0 and np.isfinite(self.error)):
            return Estimate(self.value, None, None, self.n, self.videos)
        reach = float(stdtrit(self.freedom, (1 + level) / 2)) * self.error
        low, high = self.value - reach, self.value + reach
        if within is not None:
            low, high = max(within[0], low), min(within[1], high)
        return Estimate(self.value, low, high, self.n, self.videos)


def clustered_fit(
    scores: ArrayLike, columns: ArrayLike, videos: Sequence[object], *, absorbed: Sequence[object] | None = None
) -> list[Coefficient]:
    """Return the coefficient of each column in the least-squares fit of `scores`, clustered by video.

    The variance is CR2 (Bell and McCaffrey 2002): each video's residuals are first divided by what the fit took of
    their spread. The degrees of freedom are Satterthwaite's under independent errors (Pustejovsky and Tipton 2018).
    With many videos this is the usual cluster-robust variance; with few on one side it keeps its promise.

    Args:
        scores: shape `(n,)`.
        columns: shape `(n, p)`, without an intercept.
        videos: shape `(n,)`.
        absorbed: the group of each score, shape `(n,)`, each within one video: every group has its own intercept.
            None: one intercept for all.

    Raises:
        InvalidInput: a column that does not vary, or that the others determine; its number is named.
    """
    values, design = np.asarray(scores, dtype=np.float64), np.asarray(columns, dtype=np.float64)
    if absorbed is None:
        design = np.column_stack([design, np.ones(values.size)])
    else:
        group = np.unique([str(item) for item in absorbed], return_inverse=True)[1]
        values, design = deviations(values, group), deviations(design, group)
    _refuse_dependent(design)
    inverse = np.linalg.inv(design.T @ design)
    found = inverse @ (design.T @ values)
    _, cluster = np.unique([str(video) for video in videos], return_inverse=True)
    errors, freedoms = _cr2(design, inverse, values - design @ found, cluster)
    n_columns = np.asarray(columns).shape[1]
    n_videos = int(cluster.max()) + 1
    return [
        Coefficient(value=float(value), error=float(error), freedom=float(freedom), n=values.size, videos=n_videos)
        for value, error, freedom in zip(found[:n_columns], errors, freedoms, strict=False)
    ]


def deviations(values: FloatArray, group: IntArray) -> FloatArray:
    """Return `values`, shape `(n,)` or `(n, p)`, each less the mean of its group."""
    table = values.reshape(values.shape[0], -1)
    counts = np.bincount(group)
    means = np.stack([np.bincount(group, weights=column) / counts for column in table.T], axis=1)
    return np.asarray((table - means[group]).reshape(values.shape))


def indicators(labels: Sequence[object]) -> FloatArray:
    """Return a column of 0 and 1 for each label but the first in order, shape `(n, labels - 1)`."""
    place = np.unique([str(label) for label in labels], return_inverse=True)[1]
    return np.asarray(np.eye(int(place.max()) + 1)[place][:, 1:])


def _refuse_dependent(design: FloatArray) -> None:
    """Refuse a column that the columns before it determine: it has no effect of its own."""
    scale = np.linalg.norm(design, axis=0)
    triangle = np.linalg.qr(design / np.where(scale > 0, scale, 1.0), mode="r")
    lost = np.flatnonzero(np.abs(np.diag(triangle)) < 1e-9)
    if lost.size or design.shape[0] < design.shape[1]:
        at = int(lost[0]) if lost.size else design.shape[0]
        raise InvalidInput(f"column {at} of the fit does not vary, or the columns before it determine it")


def _cr2(
    design: FloatArray, inverse: FloatArray, residuals: FloatArray, cluster: IntArray
) -> tuple[FloatArray, FloatArray]:
    """Return the CR2 standard error and the degrees of freedom of each coefficient, shapes `(p,)`."""
    n_clusters, n_columns = int(cluster.max()) + 1, design.shape[1]
    root = np.linalg.cholesky(inverse)
    order = np.argsort(cluster, kind="stable")
    scores = np.zeros((n_clusters, n_columns))
    sizes = np.zeros((n_clusters, n_columns))
    shared = np.zeros((n_columns, n_clusters, n_columns))
    for at, rows in enumerate(np.split(order, np.cumsum(np.bincount(cluster))[:-1])):
        own = design[rows]
        basis, singular, _ = np.linalg.svd(own @ root, full_matrices=False)
        left = 1 - singular**2
        # A direction that only this video determines has no residual: nothing is scaled there.
        scale = np.where(left > 1e-10, 1 / np.sqrt(np.maximum(left, 1e-10)), 0.0) - 1
        adjusted = own @ inverse
        adjusted = adjusted + basis @ (scale[:, np.newaxis] * (basis.T @ adjusted))
        scores[at] = residuals[rows] @ adjusted
        sizes[at] = (adjusted**2).sum(axis=0)
        shared[:, at] = adjusted.T @ own
    errors = np.sqrt((scores**2).sum(axis=0))
    freedoms = np.array([_satterthwaite(sizes[:, j], shared[j], inverse) for j in range(n_columns)])
    return errors, freedoms


def _satterthwaite(sizes: FloatArray, shared: FloatArray, inverse: FloatArray) -> float:
    """Return the degrees of freedom of one variance: its mean squared over half its variance, errors independent."""
    spread = np.diag(sizes) - shared @ inverse @ shared.T
    return float(np.trace(spread) ** 2 / (spread**2).sum())
