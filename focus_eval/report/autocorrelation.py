"""How long does relevance stay alike along a video? (the paper's figure 1)"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from focus_eval.errors import InvalidInput
from focus_eval.rows.records import SelectionRow
from focus_eval.types import FloatArray


@dataclass(frozen=True)
class Autocorrelation:
    """Autocorrelation of relevance over lag, summed up over videos.

    Args:
        lags_seconds: shape `(n,)`, from 0.
        low, median, high: quartiles over videos at each lag, shape `(n,)`.
        videos, questions: how many it rests on.
        flat: questions left out because their relevance never changes.
        half_life_seconds: first lag at which the median falls to 0.5, interpolated; None where it never does.
    """

    lags_seconds: FloatArray
    low: FloatArray
    median: FloatArray
    high: FloatArray
    videos: int
    questions: int
    flat: int
    half_life_seconds: float | None


def relevance_autocorrelation(rows: Iterable[SelectionRow], *, max_lag_seconds: float = 60.0) -> Autocorrelation:
    """Return the autocorrelation of relevance of rows whose sampler pulled a regular grid (topk, aks, aks_dense).

    Per question `sum (r_t - m)(r_{t+lag} - m) / sum (r_t - m)^2`, the usual biased estimate; the mean over a video's
    questions; quartiles over videos. Lags are in steps of one second. A video counts at lags up to half its length.

    Raises:
        InvalidInput: no row with a regular grid of pulls at about one a second or denser.
    """
    lags = np.arange(0.0, max_lag_seconds + 0.5)
    by_video: dict[str, list[FloatArray]] = {}
    flat = questions = 0
    for row in rows:
        series = _series(row)
        if series is None:
            continue
        values, step_seconds = series
        if np.ptp(values) < 1e-9:
            flat += 1
            continue
        questions += 1
        by_video.setdefault(row.video, []).append(_at_lags(values, step_seconds, lags))
    if not by_video:
        raise InvalidInput(
            "autocorrelation needs rows whose pulls are a regular grid (topk, aks, aks_dense); there is none"
        )
    curves = np.array([_mean_where_known(np.array(item)) for item in by_video.values()])
    known = ~np.isnan(curves).all(axis=0)
    low, median, high = np.nanquantile(curves[:, known], [0.25, 0.5, 0.75], axis=0)
    lags = lags[known]
    return Autocorrelation(lags, low, median, high, len(by_video), questions, flat, half_life(lags, median))


def half_life(lags_seconds: FloatArray, curve: FloatArray) -> float | None:
    """Return the first lag at which `curve` falls to 0.5, between two lags by straight line; None if it never does."""
    below = np.flatnonzero(curve <= 0.5)
    if below.size == 0 or below[0] == 0:
        return None
    i = int(below[0])
    share = (curve[i - 1] - 0.5) / (curve[i - 1] - curve[i])
    return float(lags_seconds[i - 1] + share * (lags_seconds[i] - lags_seconds[i - 1]))


def autocorrelation(values: FloatArray) -> FloatArray:
    """Return the biased autocorrelation of `values`, shape `(n,)`, at all lags from 0; 1 at lag 0."""
    centred = values - values.mean()
    # By Fourier transform, padded to twice the length: a dense row has 10^5 values.
    size = 1 << (2 * values.size - 1).bit_length()
    spectrum = np.fft.rfft(centred, size)
    products = np.fft.irfft(spectrum * np.conj(spectrum), size)[: values.size]
    return np.asarray(products / products[0])


def _series(row: SelectionRow) -> tuple[FloatArray, float] | None:
    """Relevance in time order and its step in seconds, None where the pulls are not a regular grid."""
    if row.error is not None or row.fps <= 0 or len(row.pulled_frames) < 8:
        return None
    if any(value is None for value in row.pulled_relevance):
        return None
    order = np.argsort(row.pulled_frames)
    steps = np.diff(np.asarray(row.pulled_frames)[order])
    if (steps != steps[0]).any() or steps[0] / row.fps > 1.5:
        return None
    return np.asarray(row.pulled_relevance, dtype=np.float64)[order], float(steps[0] / row.fps)


def _at_lags(values: FloatArray, step_seconds: float, lags: FloatArray) -> FloatArray:
    curve = autocorrelation(values)
    usable = curve[: max(2, values.size // 2)]
    return np.interp(lags, np.arange(usable.size) * step_seconds, usable, right=np.nan)


def _mean_where_known(curves: NDArray[np.float64]) -> FloatArray:
    known = ~np.isnan(curves)
    counts = known.sum(axis=0)
    sums = np.where(known, curves, 0.0).sum(axis=0)
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
