"""Number, length and distance of the evidence in real benchmarks: quantiles, and draws from them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from focus_eval.core.errors import unknown_name
from focus_eval.core.types import FloatArray

# The quantiles below are at these shares. Between two of them log(1 + seconds) is linear; there is nothing above the
# last.
SHARES = (0.0, 0.1, 0.5, 0.9, 0.99)
Quantiles = tuple[float, float, float, float, float]
ALL_LENGTHS = float("inf")


@dataclass(frozen=True, kw_only=True)
class EvidenceShape:
    """The annotated evidence of one benchmark.

    Args:
        counts: share of the questions with 1, 2, 3 and 4 or more moments (or intervals).
        seconds: quantiles of the length of an interval.
        spans: pairs of a limit and quantiles of the seconds from a question's first moment to its last; a pair holds
            for videos shorter than its limit in seconds.
    """

    counts: tuple[float, ...]
    seconds: Quantiles
    spans: tuple[tuple[float, Quantiles], ...] = ()

    def span_quantiles(self, video_seconds: float) -> Quantiles:
        """Return the quantiles of the span in a video of that length."""
        return next(quantiles for limit_seconds, quantiles in self.spans if video_seconds < limit_seconds)


# Computed from the annotations that docs/simulation.md names. LongVideoBench annotates moments: the lengths are those
# of KFS-Bench's segments, which has no figure above 90 %.
EVIDENCE_SHAPES = {
    "cgbench": EvidenceShape(
        counts=(0.86, 0.106, 0.017, 0.017),
        seconds=(1, 2, 8, 34, 136),
        spans=((ALL_LENGTHS, (2, 5, 20, 118, 1259)),),
    ),
    "lvbench": EvidenceShape(counts=(1.0,), seconds=(0, 0, 17, 900, 6058)),
    "vue_tr_v2": EvidenceShape(
        counts=(0.789, 0.101, 0.041, 0.069),
        seconds=(0.5, 1, 8, 84, 1276),
        spans=((ALL_LENGTHS, (7, 37, 365, 2490, 3932)),),
    ),
    "longvideobench": EvidenceShape(
        counts=(0.465, 0.391, 0.092, 0.052),
        seconds=(1, 1, 6, 82, 82),
        spans=(
            (180, (0.2, 1, 4.4, 18, 45)),
            (1200, (0, 1.7, 42, 350, 767)),
            (ALL_LENGTHS, (0, 1.5, 16, 719, 1999)),
        ),
    ),
}


@dataclass(frozen=True, eq=False)
class PlacedEvidence:
    """Times of the evidence of one question.

    Args:
        starts, lengths: seconds, `(n,)`; events may overlap.
        moments: the annotated times, ascending, one in each event, `(n,)`; None before they are drawn.
        stretch: start and stop of the part of the video that holds all of it, if there is such a part.
    """

    starts: FloatArray
    lengths: FloatArray
    moments: FloatArray | None = None
    stretch: tuple[float, float] | None = None


def check_shapes(names: tuple[str, ...]) -> None:
    """Raise UnknownName for a name that is not one of `EVIDENCE_SHAPES`."""
    for name in names:
        if name not in EVIDENCE_SHAPES:
            raise unknown_name("evidence", name, EVIDENCE_SHAPES)


def drawn_seconds(quantiles: Quantiles, n: int, rng: np.random.Generator) -> FloatArray:
    """Draw `n` lengths from a distribution with these quantiles, shape `(n,)`."""
    return np.expm1(np.interp(rng.uniform(size=n), SHARES, np.log1p(quantiles)))


def place_evidence(shape: EvidenceShape, video_seconds: float, rng: np.random.Generator) -> PlacedEvidence:
    """Return the evidence of one question: moments within a span, and an event around each of them.

    An event is at most half of the video, a span at most nine tenths of it.
    """
    n = 1 + int(rng.choice(len(shape.counts), p=shape.counts))
    span = 0.0
    if n > 1:
        span = min(float(drawn_seconds(shape.span_quantiles(video_seconds), 1, rng)[0]), 0.9 * video_seconds)
    first = rng.uniform(0, video_seconds - span)
    between = first + span * rng.uniform(size=max(0, n - 2))
    moments = np.sort(np.concatenate([[first, first + span][:n], between]))
    lengths = np.minimum(drawn_seconds(shape.seconds, n, rng), 0.5 * video_seconds)
    starts = np.clip(moments - lengths * rng.uniform(size=n), 0, video_seconds - lengths)
    return PlacedEvidence(starts=starts, lengths=lengths, moments=moments)
