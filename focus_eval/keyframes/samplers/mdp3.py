"""Which list of frames is relevant, diverse and in order? MDP3 (Sun et al., ICCV 2025)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from focus_eval.core.options import option
from focus_eval.core.types import FloatArray, IntArray, VideoInfo
from focus_eval.keyframes.samplers.base import Choice, FrameSampler, SelectionRequest
from focus_eval.keyframes.samplers.coverage import unit_rows
from focus_eval.keyframes.samplers.uniform import even_frames

# Lower limit of a residual, so that its logarithm is finite: a frame that adds nothing has residual 0.
LEAST_RESIDUAL = 1e-10


@dataclass(frozen=True, kw_only=True)
class Mdp3(FrameSampler):
    """Maximise `(2 / lambda) sum ln k(query, frame) + logdet K` over `k` frames, segment after segment.

    A dynamic programme decides how many frames each segment of candidates gives. Within a segment, frames are added
    greedily with a Cholesky factor, conditioned on the last frame chosen before the segment. `K` is the multi-scale
    Gaussian kernel of the normalised embeddings.

    With several segments this differs from the authors' code on purpose. Their programme counts the frame that a
    segment is conditioned on twice; this one maximises the objective of the paper.

    Args:
        n_candidates: number of evenly spaced candidates, which also limits the number of keyframes.
        balance: lambda; a lower value gives relevance more weight, and diversity less.
        segment_size: number of candidates per segment; if `k` is larger, all candidates are one segment.
    """

    name: ClassVar[str] = "mdp3"
    paper: ClassVar[str] = "mdp3"
    source: ClassVar[str] = "MDP3 (Sun et al., ICCV 2025)"
    draws: ClassVar[bool] = False
    needs_embeddings: ClassVar[bool] = True
    may_return_fewer: ClassVar[bool] = True

    n_candidates: int = option(128, at_least=1)
    balance: float = option(0.2, above=0)
    segment_size: int = option(32, at_least=1)

    def choose(self, request: SelectionRequest) -> Choice:
        """Embed the candidates and return the list of `k` that is most relevant and diverse."""
        candidates = even_frames(request.video, self.n_candidates)
        images, query = request.ledger.embeddings(candidates)
        images, query = unit_rows(images), unit_rows(query[None])
        gain = (2.0 / self.balance) * np.log(multi_gaussian(images, query)[:, 0])
        kernel = multi_gaussian(images, images)
        size = self.segment_size if request.k <= self.segment_size else candidates.size
        segments = [np.arange(start, min(start + size, candidates.size)) for start in range(0, candidates.size, size)]
        positions = best_list(kernel, gain, segments, min(request.k, candidates.size))
        return Choice(keyframes=candidates[positions], facts={"candidates": int(candidates.size)})

    def count_pulls(self, video: VideoInfo, *, k: int, seed: int = 0) -> int:
        """Return the number of candidates, all of which are embedded."""
        return min(self.n_candidates, video.n_frames)


def multi_gaussian(first: FloatArray, second: FloatArray) -> FloatArray:
    """Return the sum over `a` in 2^-3 .. 2^1 of `exp(-|x - y|^2 / (2 a))`, shape `(n_left, n_right)`, in (0, 5]."""
    squared = (first**2).sum(1)[:, None] + (second**2).sum(1) - 2.0 * first @ second.T
    widths = 2.0 ** np.arange(-3, 2)
    kernel: FloatArray = np.exp(-np.maximum(squared, 0.0)[..., None] / (2.0 * widths)).sum(axis=-1)
    return kernel


def best_list(kernel: FloatArray, gain: FloatArray, segments: list[IntArray], k: int) -> IntArray:
    """Return the `k` candidates of the largest value that the dynamic programme over `segments` finds, ascending.

    Args:
        kernel: `(n, n)`, positive.
        gain: relevance term of each candidate, `(n,)`.
        segments: consecutive candidates; together at least `k`.
    """
    best: dict[int, tuple[float, IntArray]] = {0: (0.0, np.empty(0, dtype=np.int64))}
    for segment in segments:
        longer = dict(best)
        for n_before, (value, selected) in best.items():
            # `selected` ascends: its last entry precedes this segment.
            order, gains = greedy(kernel, gain, segment, selected[-1:], min(segment.size, k - n_before))
            for n_more, total in enumerate(value + np.cumsum(gains), start=1):
                if n_before + n_more not in longer or total > longer[n_before + n_more][0]:
                    longer[n_before + n_more] = (float(total), np.concatenate([selected, np.sort(order[:n_more])]))
        best = longer
    return best[k][1]


def greedy(
    kernel: FloatArray, gain: FloatArray, segment: IntArray, last: IntArray, n: int
) -> tuple[IntArray, FloatArray]:
    """Return `n` candidates of `segment` in greedy order and their gains, both `(n,)`, given the `last` chosen.

    Fast greedy MAP inference (Chen, Zhang and Zhou, 2018): every step extends the Cholesky factor by one column.

    Args:
        last: the candidate conditioned on, shape `(1,)` or `(0,)`.
    """
    columns = np.zeros((segment.size, n + last.size))
    residual = kernel[segment, segment].copy()
    for frame in last:
        columns[:, 0] = kernel[segment, frame] / np.sqrt(kernel[frame, frame])
        residual -= columns[:, 0] ** 2
    order, gains = np.empty(n, dtype=np.int64), np.empty(n)
    is_free = np.ones(segment.size, dtype=bool)
    for step in range(n):
        value = gain[segment] + np.log(np.maximum(residual, LEAST_RESIDUAL))
        best = int(np.argmax(np.where(is_free, value, -np.inf)))
        order[step], gains[step], is_free[best] = segment[best], value[best], False
        filled = step + last.size
        projection = kernel[segment, segment[best]] - columns[:, :filled] @ columns[best, :filled]
        columns[:, filled] = projection / np.sqrt(max(residual[best], LEAST_RESIDUAL))
        residual = residual - columns[:, filled] ** 2
    return order, gains
