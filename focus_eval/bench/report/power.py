"""How large a difference can a number of questions show? The power of the sign-flip test that the reports print."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import atan, cos, exp, inf, lgamma, pi, sqrt, tan
from statistics import NormalDist

import numpy as np

from focus_eval.bench.report.sign_flips import effective_number, findings, has_few_effective_videos
from focus_eval.core.errors import InvalidInput
from focus_eval.core.types import FloatArray, IntArray

POWER, TEST_LEVEL = 0.8, 0.05
# From so many effective videos and differing questions on, a t test over videos has the power of the sign-flip test
# within 3 points (scripts/checks/statistics_coverage.py).
MANY_VIDEOS, MANY_DIFFERING = 100, 40
RUNS, SEED = 400, 20260101
# Search for the detectable difference: most steps, and tolerance in normal quantiles (.05 is 1.4 points of power).
MAX_STEPS, CLOSE_ENOUGH = 6, 0.05
# Differences that a reader asks about: published gains are mostly 1 to 3 points.
TARGET_POINTS = (2.0, 1.0)


@dataclass(frozen=True, kw_only=True)
class Discordance:
    """Disagreement of two samplers' scores, and correlation of their differences within a video.

    Args:
        share: variance over questions of the difference of the two scores, above 0, at most 1. With right and wrong
            answers it is about the share of questions that only one of the samplers has right.
        video_correlation: correlation of the differences of two questions about one video, in [-1, 1].
        source: samplers, model and benchmark that both numbers were measured on.
    """

    share: float
    video_correlation: float = 0.0
    source: str = ""

    def __post_init__(self) -> None:
        """Raise InvalidInput for a share outside (0, 1] or a correlation outside [-1, 1]."""
        if not (0 < self.share <= 1 and -1 <= self.video_correlation <= 1):
            raise InvalidInput(
                f"a discordance is a share of the questions, above 0 and at most 1, got {self.share:g} with a "
                f"correlation of {self.video_correlation:g}"
            )


# Assumptions for a benchmark without public logs; correlation from none to that of many templated questions per video.
ASSUMED_SHARE, ASSUMED_CORRELATIONS = 0.21, (0.0, 0.3)


def expected_discordances(measured: Discordance | None, *, share: float | None = None) -> tuple[Discordance, ...]:
    """Return the discordance to plan with: the measured one, or else two assumed ones, without and with correlation.

    Args:
        measured: of the benchmark's public logs; None if there are none.
        share: takes the place of the share that was measured or assumed.
    """
    if measured is not None:
        source = measured.source if share is None else f"stated; correlation of {measured.source}"
        return (replace(measured, share=share or measured.share, source=source),)
    source = "assumed: no public log of this benchmark was measured" if share is None else "stated"
    return tuple(
        Discordance(share=share or ASSUMED_SHARE, video_correlation=correlation, source=source)
        for correlation in ASSUMED_CORRELATIONS
    )


def least_difference(questions_per_video: Sequence[int], discordance: Discordance, *, tests: int = 1) -> float | None:
    """Return the smallest difference in [0, 1] that gets an arrow in 80 % of runs.

    Args:
        questions_per_video: number of questions of each video, above 0; at least two videos.
        tests: number of tests of the table, which Holm adjusts.

    Returns:
        None if no difference that the discordance allows is found in 80 % of runs.

    Raises:
        InvalidInput: fewer than two videos, or a video without a question.
    """
    counts = np.asarray(questions_per_video, dtype=np.int64)
    if counts.size < 2 or not (counts > 0).all():
        raise InvalidInput(f"power needs questions about at least two videos, got {counts.size}")
    weighted_size = float((counts**2).sum() / counts.sum())
    effect = max(1e-9, 1 + (weighted_size - 1) * discordance.video_correlation)
    clusters = np.repeat(np.arange(counts.size), counts)
    weights = np.full(clusters.size, 1 / clusters.size)
    error = sqrt(discordance.share * effect / clusters.size)
    spread = Spread(clusters=clusters, weights=weights, share=discordance.share, size=1.0, error=error)
    return spread.least_difference(tests=tests)


@dataclass(frozen=True, kw_only=True, eq=False)
class Spread:
    """Spread of the paired differences of a run, from which its power follows.

    Args:
        clusters: number of each question's video, from 0 on, shape `(n,)`.
        weights: weight of each question in the mean, sum 1, shape `(n,)`.
        share: mean square of the differences.
        size: mean square over mean absolute difference; 1 for right and wrong answers.
        error: standard error of the mean difference, clustered by video.
    """

    clusters: IntArray
    weights: FloatArray
    share: float
    size: float
    error: float

    def least_difference(self, *, tests: int = 1) -> float | None:
        """Return the smallest mean difference that gets an arrow in 80 % of runs; None if there is none.

        With many videos and differing questions it is `power_reach` times the standard error (Bloom 1995). With few,
        or few effective videos, runs are simulated: questions differ by plus or minus `size`, and how many do in a
        video follows Polya's urn, which gives the differences of two questions about a video one correlation.

        Args:
            tests: number of tests of the table; Holm gives the smallest p of them the level .05 / `tests`.
        """
        shares = np.asarray(np.bincount(self.clusters, weights=self.weights), dtype=np.float64)
        largest = self.share / self.size  # all differing questions differ in one direction
        reach = power_reach(shares.size, tests)
        start, n_differing = reach * self.error, self.share / self.size**2 * self.clusters.size
        has_many = effective_number(shares) >= MANY_VIDEOS and n_differing >= MANY_DIFFERING
        if has_many and not has_few_effective_videos(shares):
            return start if start <= largest else None
        square = float(self.weights @ self.weights)
        excess = float(shares @ shares) / square - 1
        effect = self.error**2 / (self.share * square)
        correlation = min(1.0, max(0.0, (effect - 1) / excess)) if excess > 1e-9 else 0.0

        def quantile(difference: float) -> float:
            """Return the normal quantile of the simulated power."""
            plus, minus = (self.share / self.size**2 + sign * difference / self.size for sign in (1, -1))
            sums = self.size * _simulated_sums(self.clusters, self.weights, plus / 2, minus / 2, correlation)
            n_found = np.count_nonzero(findings(sums, shares, level=TEST_LEVEL, tests=tests))
            return NormalDist().inv_cdf((n_found + 0.5) / (RUNS + 1))

        return _least_argument(quantile, start=min(start, largest), largest=largest, slope=reach / start)


def _least_argument(quantile: Callable[[float], float], *, start: float, largest: float, slope: float) -> float | None:
    """Return the difference, at most `largest`, whose power has the normal quantile of 80 %; None if there is none.

    The quantile of the power is nearly linear in the difference, so that a few steps of the secant method suffice.

    Args:
        start: difference to begin with.
        slope: expected change of the quantile with the difference.
    """
    target, steepest, difference, previous = NormalDist().inv_cdf(POWER), 2 * slope, start, None
    for _ in range(MAX_STEPS):
        point = quantile(difference)
        if point < target and difference == largest:
            return None
        if abs(target - point) < CLOSE_ENOUGH:
            break
        if previous is not None and difference != previous[0]:
            measured = (point - previous[1]) / (difference - previous[0])
            slope = min(steepest, max(steepest / 16, measured))
        previous = (difference, point)
        step = difference + (target - point) / slope
        difference = min(largest, 2 * difference, max(difference / 2, step))
    return difference


def _simulated_sums(
    clusters: IntArray, weights: FloatArray, plus: float, minus: float, correlation: float
) -> FloatArray:
    """Return each video's part of the mean difference in `RUNS` simulated runs, shape `(RUNS, n_videos)`.

    A question gains with the chance `plus` and loses with `minus`; correlated with the earlier questions of its video.
    """
    n_videos, rng = int(clusters.max()) + 1, np.random.default_rng(SEED)
    order = np.argsort(clusters, kind="stable")
    rank = np.empty(clusters.size, dtype=np.int64)
    starts = np.searchsorted(clusters[order], clusters[order])
    rank[order] = np.arange(clusters.size) - starts
    gained, lost, sums = (np.zeros((RUNS, n_videos)) for _ in range(3))
    for place in range(int(rank.max()) + 1):
        questions = np.flatnonzero(rank == place)
        at, draws = clusters[questions], rng.random((RUNS, questions.size))
        total = 1 - correlation + correlation * place
        gains = draws * total < (1 - correlation) * plus + correlation * gained[:, at]
        losses = (1 - draws) * total < (1 - correlation) * minus + correlation * lost[:, at]
        gained[:, at] += gains
        lost[:, at] += losses
        sums[:, at] += weights[questions] * (gains * 1.0 - losses)
    return sums


def power_reach(videos: int, tests: int = 1) -> float:
    """Return the difference, in standard errors, that a t test over `videos` at .05 / `tests` finds with 80 % power."""
    return t_quantile(1 - TEST_LEVEL / (2 * tests), videos - 1) + t_quantile(POWER, videos - 1)


def t_quantile(share: float, freedom: int) -> float:
    """Return the quantile of Student's t at `share`, at least .5: scipy's, without loading scipy for a plan.

    With t = sqrt(freedom) tan(angle) the density is a power of cos(angle), which 32 nodes integrate to rounding.
    Newton's method comes from the normal quantile, which is below, and never passes the root.
    """
    nodes, weights = _nodes()
    scale = exp(lgamma((freedom + 1) / 2) - lgamma(freedom / 2)) / sqrt(pi)
    angle, step = atan(NormalDist().inv_cdf(share) / sqrt(freedom)), inf
    while step > 1e-14 * angle:
        area = scale * angle / 2 * float(weights @ np.cos(angle / 2 * (nodes + 1)) ** (freedom - 1))
        step = (share - 0.5 - area) / (scale * cos(angle) ** (freedom - 1))
        angle += step
    return sqrt(freedom) * tan(angle)


@cache
def _nodes() -> tuple[FloatArray, FloatArray]:
    # 5 ms each time, and a table asks for hundreds of quantiles.
    nodes, weights = np.polynomial.legendre.leggauss(32)
    return nodes, weights


def videos_needed(detectable: float, videos: int, difference: float, *, tests: int = 1) -> int:
    """Return the number of videos needed to detect `difference`, if `videos` videos of the kind detect `detectable`.

    Both are of a table of `tests` tests.

    Raises:
        InvalidInput: a difference that is not above 0, or fewer than two videos.
    """
    if not (difference > 0 and detectable > 0 and videos >= 2):
        raise InvalidInput(
            f"power needs differences above 0 and two videos, got {difference:g}, {detectable:g}, {videos}"
        )
    spread = detectable / power_reach(videos, tests) * np.sqrt(videos)

    def shows(number: int) -> bool:
        """Return True if `number` videos detect the difference."""
        return bool(power_reach(number, tests) * spread / np.sqrt(number) <= difference * (1 + 1e-12))

    low, high = 2, 2
    while not shows(high):
        low, high = high, 2 * high
    while low < high:  # binary search for the least number
        middle = (low + high) // 2
        low, high = (low, middle) if shows(middle) else (middle + 1, high)
    return high


def more_videos_text(detectable: float, videos: int, *, tests: int = 1) -> str:
    """Return e.g. "to show 2 points takes 1,716 more videos like these, 1 point 9,117".

    Args:
        detectable: difference in [0, 1] that the present `videos` videos can detect.
        tests: number of tests of the table.
    """
    more_videos = [
        max(0, videos_needed(detectable, videos, points / 100, tests=tests) - videos) for points in TARGET_POINTS
    ]
    first, *later_counts = (f"{count:,}" if count else "no" for count in more_videos)
    later_texts = [f", {points:g} point {count}" for points, count in zip(TARGET_POINTS[1:], later_counts, strict=True)]
    return f"to show {TARGET_POINTS[0]:g} points takes {first} more videos like these{''.join(later_texts)}"
