"""What is a frame sampler?"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

import numpy as np

from focus_eval.errors import InvalidInput
from focus_eval.samplers.ledger import Ledger, RelevanceFn
from focus_eval.types import ClipReport, IntArray, Selection, VideoInfo


@dataclass(frozen=True, kw_only=True)
class Choice:
    """What an algorithm chose; `FrameSampler.select` turns it into a `Selection`.

    Args:
        keyframes: any order, shape `(n,)`.
        scales: one factor in (0, 1] per keyframe, in the order of `keyframes`; None for full size.
        clips, facts: as in `Selection`.
    """

    keyframes: IntArray
    scales: np.ndarray | None = None
    clips: tuple[ClipReport, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class FrameSampler(ABC):
    """Chooses keyframes. A subclass is a frozen dataclass whose fields are its options.

    Class attributes:
        name: how it is registered.
        source: where the algorithm is described.
        version: raised whenever the code may choose other frames; part of a cell's identity.
        needs_scorer: False for samplers that never pull.
        may_return_fewer, may_repeat: what the sampler's text grants itself.
    """

    name: ClassVar[str]
    source: ClassVar[str]
    version: ClassVar[int] = 1
    needs_scorer: ClassVar[bool] = True
    may_return_fewer: ClassVar[bool] = False
    may_repeat: ClassVar[bool] = False

    @abstractmethod
    def choose(
        self, video: VideoInfo, *, k: int, ledger: Ledger, rng: np.random.Generator, coarse_rng: np.random.Generator
    ) -> Choice:
        """Run the algorithm: pull through `ledger`, draw from `rng` (coarse pulls from `coarse_rng`)."""

    def select(
        self,
        video: VideoInfo,
        *,
        k: int,
        pull: RelevanceFn,
        rng: np.random.Generator,
        coarse_rng: np.random.Generator | None = None,
        budget: int | None = None,
    ) -> Selection:
        """Choose `min(k, n_frames)` keyframes of `video`.

        Args:
            video: length, rate and, where known, sync frames.
            k: keyframes wanted, at least 1.
            pull: relevance in [0, 1] of an int64 array of frame indices, shape `(n,)`; one encoder forward each.
            rng: source of every random draw.
            coarse_rng: separate source of the coarse pulls, so that the questions of a video can share them;
                `rng` itself by default.
            budget: most pulls allowed; None for no limit.

        Raises:
            InvalidInput: `k` below 1.
            ScorerError: relevance that is not finite or not in [0, 1].
            SamplerError: the algorithm broke its contract or its budget.
        """
        if k < 1:
            raise InvalidInput(f"k must be at least 1, got {k}")
        ledger = Ledger(pull, video, budget=budget)
        choice = self.choose(video, k=k, ledger=ledger, rng=rng, coarse_rng=rng if coarse_rng is None else coarse_rng)
        keyframes = np.asarray(choice.keyframes, dtype=np.int64)
        order = np.argsort(keyframes, kind="stable")
        return Selection(
            keyframes=tuple(int(frame) for frame in keyframes[order]),
            video=video,
            k=k,
            sampler=self.name,
            options=self.options,
            pulled_frames=ledger.frames,
            pulled_relevance=ledger.relevances,
            scales=None if choice.scales is None else tuple(float(s) for s in np.asarray(choice.scales)[order]),
            clips=choice.clips,
            facts=choice.facts,
        )

    @property
    def options(self) -> dict[str, Any]:
        """Every option with its value."""
        return {option.name: getattr(self, option.name) for option in fields(self)}
