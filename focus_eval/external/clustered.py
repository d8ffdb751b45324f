"""Least-squares fits of scores that are clustered by video, with CR2 standard errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from focus_eval.bench.report.statistics import Estimate
from focus_eval.core.errors import InvalidInput
from focus_eval.core.types import FloatArray, IntArray


@dataclass(frozen=True, kw_only=True)
class Coefficient:
    """A coefficient with its standard error.

    Args:
        value, error: the coefficient and its CR2 standard error.
        freedom: Satterthwaite's degrees of freedom: about the number of videos that determine the error.
        n, videos: numbers of scores and videos in the fit.
    """

    value: float
    error: float
    freedom: float
    n: int
    videos: int

    @property
    def p_value(self) -> float:
        """Return the two-sided p-value of a t test that the coefficient is 0; 1 if the error is 0."""
        from scipy.special import stdtr

        return float(2 * stdtr(self.freedom, -abs(self.value) / self.error)) if self.error > 0 else 1.0

    def estimate(self, *, level: float = 0.95, limits: tuple[float, float] | None = None) -> Estimate:
        """Return the coefficient with its t interval, clipped to `limits`; no interval if the error is 0."""
        from scipy.special import stdtrit

        if not (self.error > 0 and np.isfinite(self.error)):
            return Estimate(self.value, None, None, self.n, self.videos)
        reach = float(stdtrit(self.freedom, (1 + level) / 2)) * self.error
        low, high = self.value - reach, self.value + reach
        if limits is not None:
            low, high = max(limits[0], low), min(limits[1], high)
        return Estimate(self.value, low, high, self.n, self.videos)


class ClusteredDesign:
    """A regression with shared controls, which are projected out once for several fits of the same answers.

    Each fit gives the coefficients of the full least-squares regression (Frisch, Waugh and Lovell). The variance is CR2
    (Bell and McCaffrey 2002): each video's residuals are first scaled up for the variance that the fit removed. The
    degrees of freedom are Satterthwaite's under independent errors (Pustejovsky and Tipton 2018). With many videos this
    is the usual cluster-robust variance; with few it stays nearly unbiased.

    Args:
        videos: the cluster of each score, shape `(n,)`.
        groups: the group of each score, shape `(n,)`. A group lies within one video and has its own intercept. None
            gives all scores one intercept.
        controls: columns that every fit includes but whose coefficients it does not return, shape `(n, q)`.

    Raises:
        InvalidInput: a control is constant, or a linear combination of the others.
    """

    def __init__(
        self, videos: Sequence[object], *, groups: Sequence[object] | None = None, controls: FloatArray | None = None
    ) -> None:
        """Sort the scores by video, and project out the controls and the groups' means once for all fits."""
        cluster = np.unique([str(video) for video in videos], return_inverse=True)[1]
        self._order = np.argsort(cluster, kind="stable")
        self._starts = np.flatnonzero(np.diff(cluster[self._order], prepend=-1))
        self._group = None
        columns = np.empty((cluster.size, 0)) if controls is None else controls
        if groups is None:
            columns = np.column_stack([columns, np.ones(cluster.size)])
        else:
            self._group = np.unique([str(group) for group in groups], return_inverse=True)[1][self._order]
        self._controls = self._independent(self._within_groups(columns[self._order]))
        self._control_products = self._products(self._controls, self._controls)

    def fit(self, scores: ArrayLike, columns: ArrayLike) -> list[Coefficient]:
        """Return the coefficient of each of `columns`, shape `(n, p)`, in one fit of `scores`, shape `(n,)`.

        Raises:
            InvalidInput: a column is constant or a linear combination of the others; the message names its number.
        """
        values = self._within_groups(np.asarray(scores, dtype=np.float64)[self._order])
        design = self._within_groups(np.asarray(columns, dtype=np.float64)[self._order])
        residual_columns = design - self._controls @ (self._controls.T @ design)
        basis = self._independent(residual_columns, scale=np.linalg.norm(design, axis=0))
        triangle = basis.T @ residual_columns
        coefficients = np.linalg.solve(triangle, basis.T @ values)
        residuals = values - self._controls @ (self._controls.T @ values) - basis @ (basis.T @ values)
        # A coefficient is the sum of the scores weighted by its column of `basis @ weights`.
        weights = np.linalg.inv(triangle).T
        errors, freedoms = self._uncertainty(basis, weights, residuals)
        return [
            Coefficient(value=value, error=error, freedom=freedom, n=values.size, videos=self._starts.size)
            for value, error, freedom in zip(coefficients.tolist(), errors.tolist(), freedoms, strict=True)
        ]

    def _uncertainty(
        self, basis: FloatArray, weights: FloatArray, residuals: FloatArray
    ) -> tuple[FloatArray, list[float]]:
        """Return the CR2 standard error and the degrees of freedom of each coefficient, shapes `(p,)`.

        All matrices are in the coordinates of the fit's orthonormal columns: controls first, then `basis`.
        """
        crossed = self._products(self._controls, basis)
        products = np.block([[self._control_products, crossed], [crossed.swapaxes(1, 2), self._products(basis, basis)]])
        adjusted = _cr2_adjusted(products, products[:, :, -basis.shape[1] :] @ weights)
        adjusted[:, -basis.shape[1] :] += weights
        projected = np.add.reduceat(residuals[:, np.newaxis] * np.column_stack([self._controls, basis]), self._starts)
        errors = np.sqrt((np.einsum("vp,vpk->vk", projected, adjusted) ** 2).sum(axis=0))
        shared = products @ adjusted
        sizes = np.einsum("vpk,vpk->vk", adjusted, shared)
        return errors, [_satterthwaite(sizes[:, k], shared[:, :, k]) for k in range(weights.shape[1])]

    def _within_groups(self, values: FloatArray) -> FloatArray:
        """`values`, in the design's order, minus the mean of each group; unchanged without groups."""
        return values if self._group is None else deviations(values, self._group)

    def _products(self, rows_a: FloatArray, rows_b: FloatArray) -> FloatArray:
        """`rows_a.T @ rows_b` of each video's rows, shape `(n_videos, p, q)`."""
        stops = [*self._starts[1:], rows_a.shape[0]]
        return np.array([rows_a[at:stop].T @ rows_b[at:stop] for at, stop in zip(self._starts, stops, strict=True)])

    @staticmethod
    def _independent(columns: FloatArray, *, scale: FloatArray | None = None) -> FloatArray:
        """Return an orthonormal basis of `columns`.

        Raises:
            InvalidInput: a column is nearly a linear combination of the columns before it, measured relative to
                `scale`.
        """
        lengths = np.linalg.norm(columns, axis=0) if scale is None else scale
        basis, triangle = np.linalg.qr(columns / np.where(lengths > 0, lengths, 1.0))
        dependent = np.flatnonzero(np.abs(np.diag(triangle)) < 1e-9)
        if dependent.size or columns.shape[0] < columns.shape[1]:
            at = int(dependent[0]) if dependent.size else columns.shape[0]
            raise InvalidInput(f"column {at} of the fit does not vary, or the columns before it determine it")
        return basis


def _cr2_adjusted(products: FloatArray, vectors: FloatArray) -> FloatArray:
    """Return `((I - G)^(-1/2) - I) G^(-1) x` per video, shape `(n_videos, p, k)`: CR2 of Bell and McCaffrey (2002).

    `G` is a video's part of the hat matrix in coordinates of the fit's columns.

    If only one video determines a direction, `G` has eigenvalue 1 there; `(I - G)^(-1/2)` then counts as 0.

    Args:
        products: `G` of each video, shape `(n_videos, p, p)`.
        vectors: `x` of each video, shape `(n_videos, p, k)`.
    """
    shares, directions = np.linalg.eigh(products)
    root = np.sqrt(np.maximum(1 - shares, 1e-10))
    # This form of (1 / root - 1) / share does not lose digits at small shares.
    factors = np.where(1 - shares > 1e-10, 1 / (root * (1 + root)), -1.0)
    return np.asarray(directions @ (factors[:, :, np.newaxis] * (directions.swapaxes(1, 2) @ vectors)))


def _satterthwaite(sizes: FloatArray, shared: FloatArray) -> float:
    """Return Satterthwaite's degrees of freedom of one coefficient's variance: squared trace over sum of squares.

    The matrix is `diag(sizes) - shared @ shared.T`, of `sizes` `(n_videos,)` and `shared` `(n_videos, p)`.
    """
    spread = np.diag(sizes) - shared @ shared.T
    return float(np.trace(spread) ** 2 / (spread**2).sum())


def deviations(values: FloatArray, group: IntArray) -> FloatArray:
    """Return `values`, shape `(n,)` or `(n, p)`, minus the mean of each value's group; groups are numbered from 0."""
    table = values.reshape(values.shape[0], -1)
    counts = np.bincount(group)
    group_means = np.empty((counts.size, table.shape[1]))
    for place, column in enumerate(table.T):
        group_means[:, place] = np.bincount(group, weights=column) / counts
    return np.asarray((table - group_means[group]).reshape(values.shape))


def indicators(labels: Sequence[object]) -> FloatArray:
    """Return one 0/1 column per distinct label except the first in sorted order, shape `(n, labels - 1)`."""
    place = np.unique([str(label) for label in labels], return_inverse=True)[1]
    return np.asarray(np.eye(int(place.max()) + 1)[place][:, 1:])
