"""How sure is an accuracy, and is one sampler really better than another? (protocol, "Statistics")"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from focus_eval.errors import InvalidInput
from focus_eval.types import FloatArray

# At or below this many disagreements McNemar's test is the exact binomial one.
EXACT_UP_TO = 25
FEW_VIDEOS = 10
DRAWS = 4000
SEED = 20260101


@dataclass(frozen=True)
class Estimate:
    """A mean with its 95 % interval, all in the unit of the scores (0-1), and what it rests on."""

    value: float
    low: float
    high: float
    questions: int
    videos: int

    @property
    def half_width(self) -> float:
        """Half the length of the interval."""
        return (self.high - self.low) / 2


@dataclass(frozen=True)
class PairedComparison:
    """Two samplers on the same questions.

    Args:
        difference: mean of `b - a`, with its interval.
        only_a, only_b: questions that only one of the two has right.
        p_value: McNemar's; `is_exact` says by which form.
    """

    difference: Estimate
    only_a: int
    only_b: int
    p_value: float
    is_exact: bool

    @property
    def disagreements(self) -> int:
        """Questions on which the two differ."""
        return self.only_a + self.only_b

    @property
    def holds_zero(self) -> bool:
        """Whether the difference may be none: such a difference is never emphasised."""
        return self.difference.low <= 0.0 <= self.difference.high


@dataclass(frozen=True)
class SeedSpread:
    """Mean over seeds and the sample standard deviation (n - 1), NaN for a single seed."""

    mean: float
    deviation: float
    seeds: int


def mean_estimate(
    scores: ArrayLike, videos: Sequence[object], *, level: float = 0.95, draws: int = DRAWS, seed: int = SEED
) -> Estimate:
    """Return the mean of `scores` in [0, 1] with a bootstrap interval clustered by video.

    Questions about one video are not independent, so whole videos are drawn with replacement; the figure of a draw
    is the ratio of its summed scores to its number of questions. The interval is the expanded percentile one
    (Hesterberg, What Teachers Should Know About the Bootstrap, 2015, section 4.1.3), which corrects the plain one's
    shortness with few clusters; below 10 videos it is widened to the cluster-robust t interval. Where all videos
    have the same mean a bootstrap sees no spread, and the interval is Wilson's for as many trials as there are
    videos. With a single video nothing is known: [0, 1].

    Args:
        scores: shape `(n,)`, n >= 1.
        videos: the video of each score, shape `(n,)`.

    Raises:
        InvalidInput: no scores, other lengths, scores outside [0, 1].
    """
    values = _checked(scores, videos, low=0.0)
    n_videos = len(set(videos))
    made = _bootstrapped(values, videos, bounds=(0.0, 1.0), level=level, draws=draws, seed=seed)
    if n_videos == 1 or made.high - made.low > 1e-9:
        return made
    from statsmodels.stats.proportion import proportion_confint

    low, high = proportion_confint(made.value * n_videos, n_videos, alpha=1 - level, method="wilson")
    return Estimate(made.value, float(low), float(high), values.size, n_videos)


def compare_paired(
    a: ArrayLike, b: ArrayLike, videos: Sequence[object], *, draws: int = DRAWS, seed: int = SEED
) -> PairedComparison:
    """Return how sampler `b` differs from `a` on the same questions, in the same order.

    McNemar's test on questions that only one has right (a score of at least one half counts as right): exact
    binomial up to 25 disagreements, else chi-square with continuity correction. The interval of the difference is
    clustered by video; the test is not, so read the two together.

    Raises:
        InvalidInput: different numbers of scores.
    """
    first, second = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if first.shape != second.shape:
        raise InvalidInput(f"a paired comparison needs the same questions, got {first.size} and {second.size}")
    right_a, right_b = first >= 0.5, second >= 0.5
    only_a, only_b = int((right_a & ~right_b).sum()), int((right_b & ~right_a).sum())
    p_value, is_exact = mcnemar_p(only_a, only_b)
    differences = _checked(second - first, videos, low=-1.0)
    difference = _bootstrapped(differences, videos, bounds=(-1.0, 1.0), level=0.95, draws=draws, seed=seed)
    return PairedComparison(difference, only_a, only_b, p_value, is_exact)


def mcnemar_p(only_a: int, only_b: int) -> tuple[float, bool]:
    """Return McNemar's two-sided p-value for the two counts of disagreement, and whether it is the exact one."""
    if only_a + only_b == 0:
        return 1.0, True
    from statsmodels.stats.contingency_tables import mcnemar

    is_exact = only_a + only_b <= EXACT_UP_TO
    result = mcnemar([[0, only_a], [only_b, 0]], exact=is_exact, correction=not is_exact)
    return float(min(1.0, result.pvalue)), is_exact


def holm(p_values: Sequence[float]) -> FloatArray:
    """Return Holm's adjusted p-values for the comparisons of one table, shape and order of `p_values`."""
    if not len(p_values):
        return np.zeros(0)
    from statsmodels.stats.multitest import multipletests

    return np.asarray(multipletests(p_values, method="holm")[1])


def spread_over_seeds(values: Sequence[float]) -> SeedSpread:
    """Return mean and sample standard deviation of one figure over several seeds, at least one."""
    array = np.asarray(values, dtype=np.float64)
    if array.size == 0:
        raise InvalidInput("a spread over seeds needs at least one value")
    return SeedSpread(float(array.mean()), float(array.std(ddof=1)) if array.size > 1 else float("nan"), array.size)


def minimal_difference(
    n_questions: int, *, disagreement: float, power: float = 0.8, level: float = 0.05, design_effect: float = 1.0
) -> float:
    """Return the smallest paired difference of accuracies a benchmark of this size shows with `power`.

    Normal approximation to McNemar's test (Connor 1987): the difference `d` at which
    `sqrt(n) d = z_(1 - level/2) sqrt(p) + z_power sqrt(p - d^2)`, with `p` the share of questions on which the two
    samplers disagree.

    Args:
        disagreement: `p`, in (0, 1].
        design_effect: by how much clustering by video inflates the variance, at least 1 (see `design_effect_of`).

    Returns:
        A difference in (0, `disagreement`]; NaN where even the largest one would not show.
    """
    from scipy.optimize import brentq
    from scipy.special import ndtri

    if n_questions < 1 or not 0 < disagreement <= 1:
        raise InvalidInput(f"needs questions and a disagreement in (0, 1], got {n_questions} and {disagreement}")
    z_level, z_power = ndtri(1 - level / 2), ndtri(power)
    n = n_questions / max(1.0, design_effect)

    def excess(d: float) -> float:
        return float(np.sqrt(n) * d - z_level * np.sqrt(disagreement) - z_power * np.sqrt(disagreement - d * d))

    # p - d^2 >= 0 needs d <= sqrt(p); a paired difference cannot exceed p itself.
    if excess(disagreement) < 0:
        return float("nan")
    return float(brentq(excess, 0.0, disagreement))


def design_effect_of(scores: ArrayLike, videos: Sequence[object]) -> float:
    """Return the variance of the clustered mean over that of independent questions, at least 1."""
    values = np.asarray(scores, dtype=np.float64)
    sums, counts = _by_cluster(values, videos)
    variance = values.var()
    if variance == 0 or sums.size < 2:
        return 1.0
    return float(max(1.0, _clustered_variance(sums, counts) / (variance / values.size)))


def _clustered_variance(sums: FloatArray, counts: FloatArray) -> float:
    residuals = sums - counts * (sums.sum() / counts.sum())
    return float((residuals**2).sum() * sums.size / (sums.size - 1) / counts.sum() ** 2)


def _checked(scores: ArrayLike, videos: Sequence[object], *, low: float) -> FloatArray:
    values = np.asarray(scores, dtype=np.float64)
    if values.ndim != 1 or values.size == 0 or values.size != len(videos):
        raise InvalidInput(f"an estimate needs scores and as many videos, got {values.shape} and {len(videos)}")
    if not ((values >= low) & (values <= 1.0)).all():
        raise InvalidInput(f"scores must be finite and in [{low:g}, 1]")
    return values


def _bootstrapped(
    values: FloatArray,
    videos: Sequence[object],
    *,
    bounds: tuple[float, float],
    level: float,
    draws: int,
    seed: int,
) -> Estimate:
    from scipy.special import ndtr, stdtrit

    sums, counts = _by_cluster(values, videos)
    n, value = sums.size, float(values.mean())
    if n == 1:
        return Estimate(value, *bounds, values.size, 1)
    # Expanded percentile: the tail at which a normal interval of the bootstrap's (too small) spread is as wide as
    # the t interval of the unbiased one.
    tail = ndtr(np.sqrt(n / (n - 1)) * stdtrit(n - 1, (1 - level) / 2))
    low, high = np.quantile(_bootstrap_means(sums, counts, draws=draws, seed=seed), [tail, 1 - tail])
    if n < FEW_VIDEOS:
        # So few videos have not enough distinct draws for the tails: the cluster-robust t interval where it is wider.
        reach = stdtrit(n - 1, (1 + level) / 2) * np.sqrt(_clustered_variance(sums, counts))
        low, high = max(bounds[0], min(low, value - reach)), min(bounds[1], max(high, value + reach))
    return Estimate(value, float(low), float(high), values.size, n)


def _by_cluster(values: FloatArray, videos: Sequence[object]) -> tuple[FloatArray, FloatArray]:
    _, cluster = np.unique(np.asarray(videos, dtype=str), return_inverse=True)
    sums = np.bincount(cluster, weights=values)
    return sums.astype(np.float64), np.bincount(cluster).astype(np.float64)


def _bootstrap_means(sums: FloatArray, counts: FloatArray, *, draws: int, seed: int) -> FloatArray:
    rng = np.random.default_rng(seed)
    # In blocks, so that a hundred thousand videos need no more than some 30 MB.
    block = max(1, 2_000_000 // sums.size)
    means = []
    for start in range(0, draws, block):
        picked = rng.integers(0, sums.size, size=(min(block, draws - start), sums.size))
        means.append(sums[picked].sum(axis=1) / counts[picked].sum(axis=1))
    return np.concatenate(means)
