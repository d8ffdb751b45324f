"""Which frames represent the kinds of pictures in a video, whatever the question? KTV (Song et al., AAAI 2026)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from focus_eval.core.gaps import halve_widest_gaps
from focus_eval.core.options import option
from focus_eval.core.types import FloatArray, IntArray, VideoInfo
from focus_eval.keyframes.samplers.base import Choice, FrameSampler, SelectionRequest
from focus_eval.keyframes.samplers.coverage import unit_rows
from focus_eval.keyframes.samplers.uniform import at_most_one_fps

# k-means stops when a step lowers the mean distance to the nearest centre by less than this.
LEAST_GAIN = 1e-6


@dataclass(frozen=True, kw_only=True)
class Ktv(FrameSampler):
    """k-means of the candidates' embeddings in `k` clusters; the frame nearest to each centre.

    This is KTV's first stage, which chooses keyframes without the question. The second stage, which reduces tokens
    within a frame, belongs to the model. Here the embeddings are the encoder's, at length 1. The clusters start as
    equal parts of the video in time instead of at random, so that there are no random draws. A cluster that loses all
    its frames is replaced by a frame in the widest gap.

    Args:
        n_candidates: limit on the number of candidates, evenly spaced; shorter videos have one candidate a second.
    """

    name: ClassVar[str] = "ktv"
    paper: ClassVar[str] = "ktv"
    source: ClassVar[str] = "KTV (Song et al., AAAI 2026), first stage"
    draws: ClassVar[bool] = False
    reads_query: ClassVar[bool] = False
    needs_embeddings: ClassVar[bool] = True

    n_candidates: int = option(3600, at_least=1)

    def choose(self, request: SelectionRequest) -> Choice:
        """Embed the candidates and return the one nearest to each centre of `k` clusters; gaps are filled up to `k`."""
        n = request.n_wanted
        candidates = at_most_one_fps(request.video, max(n, self.n_candidates))
        facts = {"candidates": int(candidates.size)}
        if candidates.size > n:
            images, _ = request.ledger.embeddings(candidates)
            candidates = candidates[nearest_to_centres(unit_rows(images), n)]
        keyframes = halve_widest_gaps(candidates, n, request.video.n_frames)
        return Choice(keyframes=keyframes, facts={**facts, "from_widest_gaps": n - int(candidates.size)})

    def count_pulls(self, video: VideoInfo, *, k: int, seed: int = 0) -> int:
        """Return the number of candidates; 0 if all of them become keyframes, so that none need be embedded."""
        n = min(k, video.n_frames)
        candidates = at_most_one_fps(video, max(n, self.n_candidates)).size
        return int(candidates) if candidates > n else 0


def nearest_to_centres(points: FloatArray, n: int) -> IntArray:
    """Return for each cluster of k-means the point nearest to its centre, ascending, at most `n`.

    Args:
        points: shape `(n_points, d)`, in an order in which neighbours are similar: clusters start as equal runs of it.
        n: initial clusters, at most `n_points`; one that loses all its points disappears.
    """
    from scipy.cluster.vq import kmeans, vq

    centres, _ = kmeans(points, np.stack([run.mean(axis=0) for run in np.array_split(points, n)]), thresh=LEAST_GAIN)
    cluster, distance = vq(points, centres)
    best = np.lexsort((distance, cluster))
    return np.sort(best[np.unique(cluster[best], return_index=True)[1]])
