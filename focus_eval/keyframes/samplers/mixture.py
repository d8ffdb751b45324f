"""Takes half of the keyframes from each of two samplers: do they find more together?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from focus_eval.core.errors import InvalidInput
from focus_eval.core.options import option
from focus_eval.core.types import FloatArray, IntArray, VideoInfo
from focus_eval.keyframes.samplers.base import Choice, FrameSampler, SelectionRequest
from focus_eval.keyframes.samplers.coverage import fill_gaps
from focus_eval.keyframes.samplers.ledger import Ledger
from focus_eval.keyframes.samplers.registry import make_sampler

_REFUSED_DECLARATIONS = (
    "needs_scan", "needs_logits", "needs_embeddings", "needs_texts", "needs_subtitles", "needs_llm", "needs_evidence",
    "may_return_more",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Mixture(FrameSampler):
    """Half of the keyframes of one sampler, then those of a second sampler that are not near them in time.

    Places that are left go to other keyframes of the first sampler, then to the widest gaps. Both samplers choose `k`
    keyframes and may use relevance and pictures only. A frame that both pull is pulled once. The facts count the pulls
    of the first sampler, and the pulls that the second one adds.

    Args:
        first, second: samplers with their options, e.g. `aks:max_depth=3`.
        twin_seconds: a keyframe of the second sampler is left out if it is at most this far from one of the first.
    """

    name: ClassVar[str] = "mixture"
    source: ClassVar[str] = "focus-eval; halves of two samplers"

    first: str = option("aks")
    second: str = option("event_cover")
    twin_seconds: float = option(1.0, at_least=0)

    def __post_init__(self) -> None:
        """Check the options.

        Raises:
            InvalidInput: a part needs more than relevance and pictures, may return more than K, or is a mixture.
        """
        super().__post_init__()
        for sampler in self.parts:
            needs = [name for name in _REFUSED_DECLARATIONS if getattr(sampler, name)]
            if needs or isinstance(sampler, Mixture):
                raise InvalidInput(f"sampler 'mixture' takes no {sampler.name} ({needs[0] if needs else 'a mixture'})")

    @property
    def parts(self) -> list[FrameSampler]:
        """The two samplers."""
        return [make_sampler(self.first), make_sampler(self.second)]

    def choose(self, request: SelectionRequest) -> Choice:
        """Return half of the first sampler's keyframes, then the second's keyframes that are not near them."""
        n_first = (request.n_wanted + 1) // 2
        first, second = (
            part.select(
                request.video,
                k=request.k,
                pull=_SharedPulls(request.ledger),
                look=request.ledger.look,
                rng=request.rng,
                coarse_rng=request.coarse_rng,
            )
            for part in self.parts
        )
        first_frames = np.unique(np.array(first.keyframes, dtype=np.int64))
        first_half = _thinned(first_frames, n_first)
        candidates = np.unique(np.array(second.keyframes, dtype=np.int64))
        is_twin = np.abs(np.subtract.outer(candidates, first_half)) <= self.twin_seconds * request.video.fps
        untwinned = candidates[~is_twin.any(axis=1)]
        second_half = _thinned(untwinned, request.n_wanted - first_half.size)
        more_of_first = _thinned(
            np.setdiff1d(first_frames, [*first_half, *second_half]),
            request.n_wanted - first_half.size - second_half.size,
        )
        choice = fill_gaps(np.concatenate([first_half, second_half, more_of_first]), request)
        n_first_pulls = first.n_pulls
        facts = {
            "from_first": int(first_half.size),
            "from_second": int(second_half.size),
            "pulls_of_first": n_first_pulls,
        }
        facts["pulls_of_second_alone"] = request.ledger.n_pulls - n_first_pulls
        return Choice(keyframes=choice.keyframes, facts={**choice.facts, **facts})

    def infeasible_reason(self, video: VideoInfo, *, k: int) -> str | None:
        """Return None: if the two samplers choose too few frames, gaps are filled."""
        return None


class _SharedPulls:
    """Relevance through a ledger; a frame is pulled once, even if both samplers request it."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def __call__(self, frames: IntArray) -> FloatArray:
        """Return the relevance of `frames`, `(n,)`; only frames not pulled before are pulled."""
        self._ledger.relevance(frames[~self._ledger.is_pulled(frames)])
        pulled_frames, relevance = self._ledger.pulls_in_time()
        return np.asarray(relevance[np.searchsorted(pulled_frames, frames)])


def _thinned(frames: IntArray, n: int) -> IntArray:
    """At most `n` of `frames` at equal steps, shape `(min(n, len(frames)),)`."""
    places = (np.arange(n) * frames.size) // max(n, 1)
    return frames[places] if n < frames.size else frames
