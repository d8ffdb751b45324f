"""Means, intervals and p-values as docs/statistics.md defines them, in plain loops, to check a report against."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

FEWEST_VIDEOS = 5


def mean_with_interval(
    scores: Mapping[Any, tuple[float, str, str]], kind_of: Callable[[str], str]
) -> tuple[float | None, float | None, float | None]:
    """Return mean and 95 % interval in percent: t on the logit scale over videos, none of fewer than 5 videos."""
    if not scores:
        return None, None, None
    weights = question_weights({key: kind_of(kind) for key, (_, _, kind) in scores.items()})
    mean = sum(weights[key] * score for key, (score, _, _) in scores.items())
    by_video, share = _deviations(scores, weights, kind_of)
    n = len(by_video)
    if n < FEWEST_VIDEOS:
        return 100 * mean, None, None
    error = _error(by_video.values(), n)
    if error < 1e-12:
        low, high = _wilson(mean, n)
        return 100 * mean, 100 * low, 100 * high
    plain = _logit_interval(mean, error, n)
    half = 0.5 / n
    centre = (mean + 0.5 * half) / (1 + half)
    moved = [by_video[video] + (mean - centre) * share[video] for video in by_video]
    shrunk = _logit_interval(centre, _error([*moved, (0.5 - centre) * half], n) / (1 + half), n)
    return 100 * mean, 100 * min(plain[0], shrunk[0], mean), 100 * max(plain[1], shrunk[1], mean)


def _error(deviations: Iterable[float], n: int) -> float:
    values = list(deviations)
    return math.sqrt(sum(value * value for value in values) * len(values) / (len(values) - 1))


def question_weights(kinds: Mapping[Any, str]) -> dict[Any, float]:
    """The weight of each question in a mean of types; VSI-Bench's three directions are parts of one type."""
    prefix = "object_rel_direction"
    whole = {key: prefix if kind.startswith(prefix) else kind for key, kind in kinds.items()}
    types = set(whole.values())
    weights = {}
    for key, kind in kinds.items():
        parts = {kinds[other] for other in kinds if whole[other] == whole[key]}
        same = sum(other == kind for other in kinds.values())
        weights[key] = 1 / (len(types) * len(parts) * same)
    return weights


def _deviations(
    scores: Mapping[Any, tuple[float, str, str]], weights: Mapping[Any, float], kind_of: Callable[[str], str]
) -> tuple[dict[str, float], dict[str, float]]:
    """Per video: the weighted sum of its questions' deviations from their type's mean, and its weight."""
    by_kind: dict[str, list[float]] = defaultdict(list)
    for score, _, kind in scores.values():
        by_kind[kind_of(kind)].append(score)
    by_video: dict[str, float] = defaultdict(float)
    share: dict[str, float] = defaultdict(float)
    for key, (score, video, kind) in scores.items():
        by_video[video] += weights[key] * (score - fmean(by_kind[kind_of(kind)]))
        share[video] += weights[key]
    return dict(by_video), dict(share)


def _logit_interval(mean: float, error: float, n: int) -> tuple[float, float]:
    from scipy.stats import t

    reach = float(t.ppf(0.975, n - 1)) * error / (mean * (1 - mean))
    centre = math.log(mean / (1 - mean))
    return 1 / (1 + math.exp(reach - centre)), 1 / (1 + math.exp(-reach - centre))


def _wilson(mean: float, n: int) -> tuple[float, float]:
    z = 1.959963984540054
    centre = (mean + z * z / (2 * n)) / (1 + z * z / n)
    reach = z / (1 + z * z / n) * math.sqrt(mean * (1 - mean) / n + z * z / (4 * n * n))
    return max(0.0, centre - reach), min(1.0, centre + reach)


def sign_flip_p(sums: Sequence[float]) -> float:
    """Return the share of sign assignments whose total is as far from 0 as the one seen; all are counted."""
    values = [item for item in sums if abs(item) > 1e-12]
    if len(values) > 20:
        raise ValueError(f"{len(values)} videos differ; more than 20 are not counted here")
    seen = abs(sum(values)) - 1e-9 * sum(map(abs, values))
    flips = list(itertools.product((1, -1), repeat=len(values)))
    return sum(
        abs(sum(sign * item for sign, item in zip(signs, values, strict=True))) >= seen for signs in flips
    ) / len(flips)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return Holm's adjusted p-values: the i-th smallest of m times (m - i), never below a smaller one's."""
    order = sorted(range(len(p_values)), key=lambda at: p_values[at])
    adjusted, largest = [0.0] * len(p_values), 0.0
    for place, at in enumerate(order):
        largest = max(largest, min(1.0, p_values[at] * (len(p_values) - place)))
        adjusted[at] = largest
    return adjusted
