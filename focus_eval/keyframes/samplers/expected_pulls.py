"""Computes the expected number of pulled frames without drawing them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from focus_eval.core.types import FloatArray, IntArray

NO_FRAMES: IntArray = np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class Draw:
    """One random draw of frames: each frame of `[edges[i], edges[i + 1])` is pulled with probability `rates[i]`.

    Args:
        edges: ascending, `(n + 1,)`.
        rates: in [0, 1], `(n,)`.
        is_ranking: True if the draw takes the first frames of a random order, so that a larger draw from the same
            generator contains every frame of a smaller one.
    """

    edges: IntArray
    rates: FloatArray
    is_ranking: bool = False

    @property
    def key(self) -> tuple[bytes, bytes]:
        """Key of the draw. If two draws with one generator have equal keys, one contains all frames of the other."""
        return self.edges.tobytes(), b"" if self.is_ranking else self.rates.tobytes()

    def rates_at(self, edges: IntArray) -> FloatArray:
        """Return the rate of the frames from each of `edges` to the next, `(n_edges - 1,)`; 0 outside this draw."""
        if edges is self.edges:
            return self.rates
        at = np.searchsorted(self.edges, edges[:-1], side="right") - 1
        is_inside = (at >= 0) & (at < self.rates.size)
        return np.where(is_inside, self.rates[np.minimum(at, self.rates.size - 1)], 0.0)


def independent_ranges(starts: IntArray, stops: IntArray, rates: FloatArray) -> Draw:
    """Return one draw equivalent to independent draws at `rates[i]` in `[starts[i], stops[i])`, which may overlap.

    All arrays have shape `(n,)`.
    """
    edges = np.unique(np.concatenate([starts, stops]))
    is_in_range = (starts[:, None] <= edges[:-1]) & (edges[:-1] < stops[:, None])
    return Draw(edges, 1.0 - np.where(is_in_range, 1.0 - rates[:, None], 1.0).prod(axis=0))


@dataclass(frozen=True, kw_only=True)
class ExpectedPulls:
    """The frames that one question pulls and scans if relevance is the same everywhere.

    Args:
        fixed: frames that every question pulls, ascending.
        scanned: frames that every question scans, ascending.
        n_keyframes: number of keyframes of every question; None if it varies, so that only the limit `k` is known.
        coarse: draw with `coarse_rng` from the frames that are not fixed; the questions of a video may share it. None
            if there is no such draw.
        later_draws: draws with `rng` from the frames that are left after `fixed` and `coarse`.
    """

    fixed: IntArray = field(default_factory=NO_FRAMES.copy)
    scanned: IntArray = field(default_factory=NO_FRAMES.copy)
    n_keyframes: int | None = None
    coarse: Draw | None = None
    later_draws: tuple[Draw, ...] = ()

    @property
    def n_pulls(self) -> float:
        """Expected pulls of one question; not a whole number if a draw may hit a frame that is pulled already."""
        return expected_union(self.fixed, [(draw, 1) for draw in (self.coarse, *self.later_draws) if draw is not None])


def expected_union(fixed: IntArray, draws: Iterable[tuple[Draw, int]]) -> float:
    """Return the expected number of distinct frames in the union of `fixed` and independent draws.

    The probability that all draws miss a frame outside `fixed` is `prod (1 - rate) ** times`.

    Args:
        fixed: frames, ascending, each once.
        draws: pairs of a draw and the number of times it is made.
    """
    draws = list(draws)
    if not draws:
        return float(fixed.size)
    edges = draws[0][0].edges
    if any(draw.edges is not edges for draw, _ in draws):
        # A stable sort is fast here, since each part ascends. Repeated edges are harmless: no frame is between them.
        edges = np.sort(np.concatenate([draw.edges for draw, _ in draws]), kind="stable")
    # Number of times a draw is made -> probability, per interval of `edges`, that all draws made that often miss a
    # frame if each is made once.
    missed_once: dict[int, FloatArray] = defaultdict(lambda: np.ones(edges.size - 1))
    for draw, times in draws:
        missed_once[times] *= 1.0 - draw.rates_at(edges)
    missed = np.prod([part**times for times, part in missed_once.items()], axis=0)
    free = np.diff(edges) - np.diff(np.searchsorted(fixed, edges))
    return fixed.size + float(free @ (1.0 - missed))
