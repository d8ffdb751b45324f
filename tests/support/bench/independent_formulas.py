"""Means, intervals and p-values as docs/statistics.md defines them, in plain loops, to check a report against."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

MIN_VIDEOS = 5


def mean_with_interval(
    scores: Mapping[Any, tuple[float, str, str]], kind_of: Callable[[str], str]
) -> tuple[float | None, float | None, float | None]:
    """Return mean and 95 % interval in percent: t on the logit scale over videos, none of fewer than 5 videos."""
    if not scores:
        return None, None, None
    weights = question_weights({key: kind_of(kind) for key, (_, _, kind) in scores.items()})
    mean = sum(weights[key] * score for key, (score, _, _) in scores.items())
    by_video, share, freedom = _deviations(scores, weights, kind_of)
    n = len(by_video)
    if n < MIN_VIDEOS:
        return 100 * mean, None, None
    error = math.sqrt(sum(value**2 for value in by_video.values()))
    if error < 1e-12:
        low, high = _wilson(mean, n)
        return 100 * mean, 100 * low, 100 * high
    plain = _logit_interval(mean, error, freedom)
    half = 0.5 / n
    centre = (mean + 0.5 * half) / (1 + half)
    moved = [by_video[video] + (mean - centre) * share[video] for video in by_video]
    moved.append((0.5 - centre) * half * math.sqrt(n / (n - 1)))
    shrunk = _logit_interval(centre, math.sqrt(sum(value**2 for value in moved)) / (1 + half), freedom)
    return 100 * mean, 100 * min(plain[0], shrunk[0], mean), 100 * max(plain[1], shrunk[1], mean)


def question_weights(kinds: Mapping[Any, str]) -> dict[Any, float]:
    """Return each question's weight in a mean of types; VSI-Bench's three directions are parts of one type."""
    prefix = "object_rel_direction"
    whole = {key: prefix if kind.startswith(prefix) else kind for key, kind in kinds.items()}
    types = set(whole.values())
    weights = {}
    for key, kind in kinds.items():
        parts = {kinds[question] for question in kinds if whole[question] == whole[key]}
        n_same_kind = sum(part == kind for part in kinds.values())
        weights[key] = 1 / (len(types) * len(parts) * n_same_kind)
    return weights


def _deviations(
    scores: Mapping[Any, tuple[float, str, str]], weights: Mapping[Any, float], kind_of: Callable[[str], str]
) -> tuple[dict[str, float], dict[str, float], float]:
    """Per video: its jackknife deviation from the types' means, and its weight; and the degrees of freedom."""
    kinds = _joined_kinds({key: (video, kind_of(kind)) for key, (_, video, kind) in scores.items()})
    by_video: dict[str, float] = defaultdict(float)
    share: dict[str, float] = defaultdict(float)
    spreads = []
    for kind in set(kinds.values()):
        keys = [key for key in scores if kinds[key] == kind]
        total = sum(weights[key] for key in keys)
        mean = sum(weights[key] * scores[key][0] for key in keys) / total
        of_video: dict[str, float] = defaultdict(float)
        off: dict[str, float] = defaultdict(float)
        for key in keys:
            score, video, _ = scores[key]
            of_video[video] += weights[key] / total
            off[video] += weights[key] * (score - mean)
            share[video] += weights[key]
        n = len(of_video)
        for video in of_video:
            by_video[video] += off[video] * math.sqrt((n - 1) / n) / max(1 - of_video[video], 1e-12)
        effective = 1 / sum(part**2 for part in of_video.values())
        spreads.append((total**2 / effective, max(effective - 1, 1e-9)))
    freedom = sum(spread for spread, _ in spreads) ** 2 / sum(spread**2 / n_own for spread, n_own in spreads)
    return dict(by_video), dict(share), min(len(by_video) - 1, freedom)


def _joined_kinds(kinds_by_key: Mapping[Any, tuple[str, str]]) -> dict[Any, str]:
    """Return each question's type, where a type of a single video is joined with others.

    All such types become one; a lone one joins the type of the fewest videos.
    """
    videos: dict[str, set[str]] = defaultdict(set)
    for video, kind in kinds_by_key.values():
        videos[kind].add(video)
    single = [kind for kind in videos if len(videos[kind]) == 1]
    if len(single) == 1:
        single = sorted(videos, key=lambda kind: (len(videos[kind]), kind))[:2]
    return {key: single[0] if kind in single else kind for key, (_, kind) in kinds_by_key.items()}


def _logit_interval(mean: float, error: float, freedom: float) -> tuple[float, float]:
    """Return the 95 % interval of a mean strictly between 0 and 1, symmetric on the scale of its logit."""
    from scipy.stats import t

    reach = float(t.ppf(0.975, freedom)) * error / (mean * (1 - mean))
    centre = math.log(mean / (1 - mean))
    return 1 / (1 + math.exp(reach - centre)), 1 / (1 + math.exp(-reach - centre))


def _wilson(mean: float, n: int) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a share of `n` videos."""
    z = 1.959963984540054
    centre = (mean + z * z / (2 * n)) / (1 + z * z / n)
    reach = z / (1 + z * z / n) * math.sqrt(mean * (1 - mean) / n + z * z / (4 * n * n))
    return max(0.0, centre - reach), min(1.0, centre + reach)


def sign_flip_p(sums: Sequence[float], weights: Sequence[float] | None = None) -> float:
    """Return the share of sign assignments whose statistic is as far from 0 as the one seen; all are counted."""
    shares = weights or [1 / len(sums)] * len(sums)
    differing = [at for at, item in enumerate(sums) if abs(item) > 1e-12]
    if len(differing) > 14:
        raise ValueError(f"{len(differing)} videos differ; more than 14 are not counted here")
    values = []
    for signs in itertools.product((1, -1), repeat=len(differing)):
        parts = [0.0] * len(sums)
        for at, sign in zip(differing, signs, strict=True):
            parts[at] = sign * sums[at]
        values.append(abs(_without_skew(parts, shares)))
    return sum(item >= values[0] - 1e-9 * (1 + values[0]) for item in values) / len(values)


def _without_skew(parts: Sequence[float], shares: Sequence[float]) -> float:
    """Return the total over its clustered error, freed of its skew by Hall's cubic."""
    total, squares = sum(parts), sum(part**2 for part in parts)
    residuals = [part - share * total for part, share in zip(parts, shares, strict=True)]
    variance = max(sum(item**2 for item in residuals), 1e-12 * squares)
    if variance == 0:
        return 0.0
    skew = min(1.0, max(-1.0, sum(item**3 for item in residuals) / variance**1.5))
    t = total / math.sqrt(variance)
    return t + skew * t**2 / 3 + skew**2 * t**3 / 27 + skew / 6


def holm(p_values: Sequence[float]) -> list[float]:
    """Return Holm's adjusted p-values: the i-th smallest of m times (m - i), never below a smaller one's."""
    order = sorted(range(len(p_values)), key=lambda at: p_values[at])
    adjusted, largest = [0.0] * len(p_values), 0.0
    for place, at in enumerate(order):
        largest = max(largest, min(1.0, p_values[at] * (len(p_values) - place)))
        adjusted[at] = largest
    return adjusted
