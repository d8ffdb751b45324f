"""Which keyframes cover the events that an even batch of pulls makes likely?"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from focus_eval.core.gaps import halve_widest_gaps
from focus_eval.core.options import option
from focus_eval.core.types import FloatArray, IntArray, VideoInfo
from focus_eval.keyframes.samplers import coverage
from focus_eval.keyframes.samplers.base import Choice, SelectionRequest
from focus_eval.keyframes.samplers.ledger import log_odds

# Quantiles for a robust scale of the logits. In a normal distribution the outer two lie one standard deviation from the
# median.
SCALE_QUANTILES = (0.159, 0.5, 0.841)
Z_RANGE = (-6.0, 5.5)
# The background is a first-order autoregression: its correlation just above lag 0, and the seconds over which the
# correlation falls to 1/e.
BACKGROUND_CORRELATION, BACKGROUND_SECONDS = 0.93, 4.7
# Mean and standard deviation of an event's height, the amount by which it raises the logits of its pulls, in standard
# deviations of the background.
EVENT_HEIGHT_MEAN, EVENT_HEIGHT_DEVIATION = 2.0, 1.5
# Event lengths are log-normal; longer intervals are not considered.
EVENT_MEDIAN_SECONDS, EVENT_LOG_DEVIATION, MAX_EVENT_SECONDS = 6.0, 0.9, 60.0
MIN_INTERVAL_WEIGHT = 1e-6
MAX_LOG_LIKELIHOOD = 60.0
# Factor for intervals with low logits, which are no sign of an event; exponent of the ratios and the density; and
# saturation, which keeps a single peak from deciding alone.
DIP_FACTOR, SHARPNESS, SATURATION = 0.001, 1.1, 0.012
# Lower bounds of the density: share of questions whose relevance shows nothing about the evidence, and share of the
# density that is spread evenly over all moments.
BLIND_SHARE, UNIFORM_SHARE = 0.2, 0.125
GRID_HZ = 5
# Half-width of a window around a keyframe in seconds -> value of evidence within it.
WINDOW_WEIGHTS = {1.0: 3.0, 2.0: 1.0, 3.0: 1.0, 5.0: 2.0}
# Relative difference up to which two sums count as equal, because they may differ only by rounding.
EQUAL_SUMS = 1e-9


@dataclass(frozen=True, kw_only=True)
class EventCover(coverage.EvenPulls):
    """Even pulls without jitter; a density of evidence from the likelihood of each interval; frames that cover it.

    The logits are modelled as a slowly changing background, and an event raises all pulls inside it. For each interval
    of up to a minute the likelihood ratio of "one event lies here" has a closed form. Summed over the intervals that
    hold a pull it is the density of evidence there, and keyframes cover it within 1, 2, 3 and 5 seconds at once. With
    the same pulls, the choice for a smaller `k` is the beginning of the choice for a larger one.

    Args:
        share: pulls as a share of the frames of the video at 25 fps, at least `k` and 8 of them.
        budget_of, pulls, every_seconds: number of pulls, instead of `share`.
    """

    name: ClassVar[str] = "event_cover"
    source: ClassVar[str] = "focus-eval; posterior of events in an autoregressive background"
    draws: ClassVar[bool] = False

    budget_of: str | None = option(None)
    share: float = option(0.0178, above=0, at_most=1)

    def choose(self, request: SelectionRequest) -> Choice:
        """Pull even frames; return the keyframes that cover the events that their logits make likely."""
        video = request.video
        frames = coverage.middles(video, self.n_pulls(video, k=request.k))
        times = frames / video.fps
        density = event_density(times, log_odds(request.ledger.relevance(frames)))
        return Choice(keyframes=event_frames(times, density, request.n_wanted, video))

    def default_pulls(self, video: VideoInfo, *, k: int) -> int:
        """Return the number of pulls by the length of the video; at least `k`."""
        return coverage.share_of_frames(video, self.share, k=k)


def event_density(times: FloatArray, logits: FloatArray) -> FloatArray:
    """Return the density of evidence at each pull, mean 1, at least 1/8, `(n_pulls,)`.

    All ones for fewer than three pulls, or if the logits are all equal.

    Args:
        times: seconds of the pulls, ascending and about evenly spaced, `(n_pulls,)`.
        logits: log-odds of their relevance, `(n_pulls,)`.
    """
    if times.size < 3 or np.ptp(logits) == 0:
        return np.ones(times.size)
    gap_seconds = float(times[-1] - times[0]) / (times.size - 1)
    weights = interval_weights(gap_seconds, times.size)
    mass = _event_mass(standardised(logits), gap_seconds, weights)
    density = ((1 - BLIND_SHARE) * (weights[0] + mass) + BLIND_SHARE) ** SHARPNESS
    mixed: FloatArray = (1 - UNIFORM_SHARE) * density / density.mean() + UNIFORM_SHARE
    return mixed


def standardised(logits: FloatArray) -> FloatArray:
    """Return `(logits - median) / scale`, clipped to [-6, 5.5]; the scale is half the range of the middle 68 %."""
    low, median, high = np.quantile(logits, SCALE_QUANTILES)
    scaled: FloatArray = np.clip((logits - median) / max((high - low) / 2, 1e-9), *Z_RANGE)
    return scaled


def interval_weights(gap_seconds: float, n_pulls: int) -> FloatArray:
    """Return the probabilities that an event contains 0, 1, .. `n_max` pulls, which are `gap_seconds` apart.

    `n_max` is `n_pulls`, or fewer if these would span more than `MAX_EVENT_SECONDS`; the last entry includes all longer
    events. An event as long as `x` gaps contains `floor(x)` pulls, or one more with probability `x - floor(x)`.
    """
    n_max = max(1, min(n_pulls, math.ceil(MAX_EVENT_SECONDS / gap_seconds)))
    deviations = np.linspace(-2.6, 2.6, 105)
    probabilities = np.exp(-(deviations**2) / 2)
    probabilities /= probabilities.sum()
    lengths = np.maximum(1.0, EVENT_MEDIAN_SECONDS * np.exp(EVENT_LOG_DEVIATION * deviations)) / gap_seconds
    whole = np.floor(lengths)
    fraction = lengths - whole
    n_fewer = np.minimum(whole, n_max).astype(np.int64)
    n_more = np.minimum(whole + 1, n_max).astype(np.int64)
    pull_counts = np.concatenate([n_fewer, n_more])
    shares = np.concatenate([probabilities * (1 - fraction), probabilities * fraction])
    weights: FloatArray = np.bincount(pull_counts, shares, n_max + 1).astype(np.float64)
    return weights


def _event_mass(z: FloatArray, gap_seconds: float, weights: FloatArray) -> FloatArray:
    """For each pull, the weighted sum of the likelihood ratios of all intervals that contain it, `(n_pulls,)`."""
    correlation = BACKGROUND_CORRELATION * math.exp(-gap_seconds / BACKGROUND_SECONDS)
    # Deviation of each pull from the value that the previous pull predicts; a 0 is appended after the last pull.
    surprise = np.append(z, 0.0)
    surprise[1:-1] -= correlation * z[:-1]
    surprise[0] *= 1 - correlation
    sums = np.concatenate([[0.0], np.cumsum(surprise)])
    steps = np.zeros(z.size + 1)  # differences of the mass between neighbouring pulls, summed up at the end
    for n in range(1, weights.size):
        if weights[n] < MIN_INTERVAL_WEIGHT:
            continue
        starts = np.arange(z.size - n + 1)
        inside = sums[starts + n] - sums[starts + 1]
        lift = surprise[starts] + (1 - correlation) * inside - correlation * surprise[starts + n]
        ratios = weights[n] / n * _likelihood_ratios(lift, correlation, n)
        steps[starts] += ratios
        steps[starts + n] -= ratios
    mass: FloatArray = np.cumsum(steps)[:-1]
    return mass


def _likelihood_ratios(lift: FloatArray, correlation: float, n: int) -> FloatArray:
    """The likelihood ratio of an event of `n` pulls to none, given their summed surprise `lift`."""
    variance = 1 - correlation**2
    precision = (1 + (n - 1) * (1 - correlation) ** 2 + correlation**2) / variance
    height_precision = 1 / EVENT_HEIGHT_DEVIATION**2
    evidence = lift / variance + EVENT_HEIGHT_MEAN * height_precision
    exponent = evidence**2 / (2 * (precision + height_precision)) - EVENT_HEIGHT_MEAN**2 * height_precision / 2
    ratios = np.exp(np.minimum(MAX_LOG_LIKELIHOOD, exponent)) / math.sqrt(1 + precision * EVENT_HEIGHT_DEVIATION**2)
    ratios = np.where(evidence <= 0, DIP_FACTOR * ratios, ratios) ** SHARPNESS
    saturated: FloatArray = ratios / (1 + SATURATION * ratios)
    return saturated


def event_frames(times: FloatArray, density: FloatArray, n: int, video: VideoInfo) -> IntArray:
    """Return `n` frames whose windows cover as much of the density as possible.

    If several chosen points give one frame, frames in the middle of the widest gaps replace the repeated ones.
    """
    n_points = max(1, round(GRID_HZ * video.duration_seconds))
    points = cover_points(grid_mass(times, density, n_points), min(n, n_points))
    frames = np.minimum(np.floor((points + 0.5) / GRID_HZ * video.fps).astype(np.int64), video.n_frames - 1)
    return halve_widest_gaps(np.unique(frames), n, video.n_frames)


def grid_mass(times: FloatArray, density: FloatArray, n_points: int) -> FloatArray:
    """Return the density of the nearest pull at `n_points` grid moments, smoothed over 3 s and scaled to sum 1."""
    moments = (np.arange(n_points) + 0.5) / GRID_HZ
    nearest = density[np.searchsorted((times[1:] + times[:-1]) / 2, moments, side="left")]
    ramp = np.arange(1, 9)
    kernel = np.concatenate([ramp, ramp[-2::-1]]) / 64
    mass = np.convolve(np.pad(nearest, 7, mode="edge"), kernel, mode="valid")
    normalised: FloatArray = mass / mass.sum()
    return normalised


def cover_points(mass: FloatArray, n: int) -> IntArray:
    """Return `n` points whose windows cover as much of `mass` as possible, in order of choice, `(n,)`.

    `coverage.best_cover` chooses points until everything is covered. Then each further point is the one farthest from
    all chosen ones, the first of equal ones.

    Args:
        mass: at least 0, five points a second, `(n_points,)`, `n <= n_points`.
    """
    covering = coverage.best_cover(mass, n, rate=GRID_HZ, window_weights=WINDOW_WEIGHTS, tolerance=EQUAL_SUMS)
    if covering.size == n:
        return covering
    points = covering.tolist()
    places = np.arange(mass.size)
    distance = np.abs(places[:, None] - covering).min(axis=1)
    while len(points) < n:
        points.append(int(np.argmax(distance)))
        distance = np.minimum(distance, np.abs(places - points[-1]))
    return np.array(points, dtype=np.int64)
