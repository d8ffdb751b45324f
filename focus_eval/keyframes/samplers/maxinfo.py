"""Which frames span the video best, whatever the question? MaxInfo (Li et al., 2025)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from focus_eval.core.options import option
from focus_eval.core.types import FloatArray, IntArray, VideoInfo
from focus_eval.keyframes.samplers.base import Choice, FrameSampler, SelectionRequest
from focus_eval.keyframes.samplers.uniform import even_frames

LEAST_GROWTH, MAX_SWAPS = 1.02, 200


@dataclass(frozen=True, kw_only=True)
class MaxInfo(FrameSampler):
    """Rows of the largest volume in the candidates' embeddings, reduced to their leading left singular vectors.

    The paper does not state the numbers of candidates and of vectors. Here there are `n_candidates` even frames, and as
    many singular vectors as carry the share `energy` of the squared singular values, at most `k`. First a square block
    of as many rows as vectors is chosen, then one row after another that adds the most volume (rectangular max-volume,
    Mikhalev and Oseledets 2018). The query is not used.

    Args:
        n_candidates: number of evenly spaced candidates, which also limits the number of keyframes.
        energy: share of the squared singular values that is kept.
    """

    name: ClassVar[str] = "maxinfo"
    paper: ClassVar[str] = "maxinfo"
    source: ClassVar[str] = "MaxInfo (Li et al., 2025)"
    draws: ClassVar[bool] = False
    reads_query: ClassVar[bool] = False
    needs_embeddings: ClassVar[bool] = True
    may_return_fewer: ClassVar[bool] = True

    n_candidates: int = option(128, at_least=1)
    energy: float = option(0.99, above=0, at_most=1)

    def choose(self, request: SelectionRequest) -> Choice:
        """Embed the candidates and return those whose reduced embeddings span the largest volume."""
        candidates = even_frames(request.video, self.n_candidates)
        images, _ = request.ledger.embeddings(candidates)
        left_vectors, singular, _ = np.linalg.svd(images, full_matrices=False)
        kept_energy = np.cumsum(singular**2) / max(float((singular**2).sum()), np.finfo(float).tiny)
        rank = int(min(np.searchsorted(kept_energy, self.energy) + 1, request.k, singular.size))
        rows = largest_volume_rows(left_vectors[:, :rank], min(request.k, candidates.size))
        return Choice(keyframes=candidates[rows], facts={"candidates": int(candidates.size), "rank": rank})

    def count_pulls(self, video: VideoInfo, *, k: int, seed: int = 0) -> int:
        """Return the number of candidates, all of which are embedded."""
        return min(self.n_candidates, video.n_frames)


def largest_volume_rows(matrix: FloatArray, n: int) -> IntArray:
    """Return the indices of `n` rows of `matrix` `(n_rows, rank)` of large volume `sqrt(det(A^T A))`.

    Square max-volume (Goreinov et al. 2010) swaps rows while one swap grows the volume by more than 2 %; then rows are
    added greedily. Columns of `matrix` must be independent, and `rank <= n <= n_rows`.
    """
    rows = _pivot_rows(matrix)
    # Coordinates of every row in the basis of the chosen rows. Putting row i in the place of the j-th chosen row
    # multiplies the volume by |coefficients[i, j]|.
    coefficients = np.linalg.solve(matrix[rows].T, matrix.T).T
    for _ in range(MAX_SWAPS):
        i, j = divmod(int(np.abs(coefficients).argmax()), rows.size)
        if abs(coefficients[i, j]) <= LEAST_GROWTH:
            break
        rows[j] = i
        change = coefficients[i] - np.eye(rows.size)[j]
        coefficients -= np.outer(coefficients[:, j] / coefficients[i, j], change)
    while rows.size < n:
        square = matrix[rows]
        # Adding row x multiplies the squared volume by 1 + x (A^T A)^-1 x^T.
        growth = np.einsum("ij,ij->i", matrix @ np.linalg.inv(square.T @ square), matrix)
        growth[rows] = -np.inf
        rows = np.append(rows, int(growth.argmax()))
    return rows


def _pivot_rows(matrix: FloatArray) -> IntArray:
    """The first rows that Gaussian elimination with row pivoting takes, shape `(rank,)`."""
    residual = matrix.copy()
    rows = np.empty(matrix.shape[1], dtype=np.int64)
    for column in range(matrix.shape[1]):
        rows[column] = pivot = int(np.abs(residual[:, column]).argmax())
        residual -= np.outer(residual[:, column] / residual[pivot, column], residual[pivot])
        residual[rows[: column + 1]] = 0.0
    return rows
