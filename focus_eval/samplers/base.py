"""The sampler protocol."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

import numpy as np

from focus_eval.errors import InvalidInput
from focus_eval.options import checked_values
from focus_eval.samplers.ledger import Ledger, RelevanceFn
from focus_eval.samplers.promises import Role, check_class, checked_keyframes
from focus_eval.samplers.randomness import derived_rng
from focus_eval.types import ClipReport, FloatArray, IntArray, Selection, VideoInfo


@dataclass(frozen=True, kw_only=True)
class SelectionRequest:
    """What a sampler is asked, and what it may use to answer.

    Args:
        video: length, rate and, where known, sync frames.
        k: keyframes wanted, at least 1; may be more than the video has frames.
        ledger: the only way to relevance; counts every pull.
        rng: source of every random draw.
        coarse_rng: source of the first draws of a sampler that looks coarsely first, which the questions of a video
            may share; `rng` itself by default.
        evidence_seconds: times of the annotated evidence; empty but for a ceiling that declares `needs_evidence`.
    """

    video: VideoInfo
    k: int
    ledger: Ledger
    rng: np.random.Generator
    coarse_rng: np.random.Generator
    evidence_seconds: tuple[float, ...] = ()

    @property
    def n_wanted(self) -> int:
        """Keyframes to return: `min(k, n_frames)`."""
        return min(self.k, self.video.n_frames)


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

    Options are checked when a sampler is made: their declared types (an int becomes a float where one is
    declared), then the ranges stated with `focus_eval.options.option`.

    Class attributes:
        name: how it is registered.
        source: where the algorithm is described.
        role: what a table marks it as: a "sampler" that could be used, a "control" that it has to beat, a "ceiling"
            that knows the answer's place, or a "floor" without frames.
        version: raised whenever the code may choose other frames; part of a cell's identity.
        file_digest: hash of the file of a sampler that nobody installed; likewise part of it.
        needs_encoder: False for samplers that never pull.
        needs_evidence: True for a ceiling that is given the times of the annotated evidence.
        needs_logits, needs_embeddings: True for samplers that pull these instead of relevance.
        may_return_fewer, may_return_more, may_repeat: what the sampler's text grants itself. More frames than asked
            need `scales` with which all of them have no more pixels than K full frames.
    """

    name: ClassVar[str]
    source: ClassVar[str]
    role: ClassVar[Role] = "sampler"
    version: ClassVar[int] = 1
    file_digest: ClassVar[str] = ""
    needs_encoder: ClassVar[bool] = True
    needs_evidence: ClassVar[bool] = False
    needs_logits: ClassVar[bool] = False
    needs_embeddings: ClassVar[bool] = False
    may_return_fewer: ClassVar[bool] = False
    may_return_more: ClassVar[bool] = False
    may_repeat: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_class(type(self), f"sampler {self.name!r}")
        for name, value in checked_values(f"sampler {self.name!r}", self).items():
            object.__setattr__(self, name, value)

    @abstractmethod
    def choose(self, request: SelectionRequest) -> Choice:
        """Run the algorithm: pull through `request.ledger`, draw from `request.rng`."""

    def select(
        self,
        video: VideoInfo,
        *,
        k: int,
        pull: RelevanceFn,
        rng: np.random.Generator,
        coarse_rng: np.random.Generator | None = None,
        budget: int | None = None,
        evidence_seconds: Sequence[float] = (),
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
            evidence_seconds: times of the annotated evidence; reach only a sampler that declares `needs_evidence`.

        Raises:
            InvalidInput: `k` below 1.
            EncoderError: relevance that is not finite or not in [0, 1].
            BrokenContract: the algorithm broke its contract or its budget.
        """
        if k < 1:
            raise InvalidInput(f"k must be at least 1, got {k}")
        ledger = Ledger(pull, video, budget=budget)
        request = SelectionRequest(
            video=video,
            k=k,
            ledger=ledger,
            rng=rng,
            coarse_rng=rng if coarse_rng is None else coarse_rng,
            evidence_seconds=tuple(evidence_seconds) if self.needs_evidence else (),
        )
        choice = self.choose(request)
        keyframes, facts_of_count = checked_keyframes(self, choice, video=video, asked=request.n_wanted)
        order = np.argsort(keyframes, kind="stable")
        return Selection(
            keyframes=tuple(keyframes[order].tolist()),
            video=video,
            k=k,
            sampler=self.name,
            options=self.options,
            pulled_frames=ledger.frames,
            pulled_relevance=ledger.relevances,
            scales=None if choice.scales is None else tuple(np.asarray(choice.scales, dtype=float)[order].tolist()),
            clips=choice.clips,
            facts={**choice.facts, **facts_of_count},
        )

    def count_pulls(self, video: VideoInfo, *, k: int, seed: int = 0) -> int:
        """Return how many frames the algorithm pulls of a video with the same relevance everywhere.

        Where the number depends on relevance or on draws (`focus_iterative`, `focus_released`), real questions differ.
        """
        if not self.needs_encoder:
            return 0
        rng = derived_rng(seed, self.name, str(video.n_frames), repr(video.fps), str(k))
        return self.select(video, k=k, pull=FlatSource(), rng=rng).n_pulls

    def why_no_frames(self, video: VideoInfo, *, k: int) -> str | None:
        """Return why the sampler may choose no frame of `video`, and what to do; None where nothing speaks for that.

        A plan asks before the run, so it is answered from the length alone.
        """
        return None

    @property
    def options(self) -> dict[str, Any]:
        """Every option with its value."""
        return {option.name: getattr(self, option.name) for option in fields(self)}


class FlatSource:
    """A pull that sees the same in every frame: relevance 0.5, logits 0 and one embedding for all."""

    def __call__(self, frames: IntArray) -> FloatArray:
        """Return relevance 0.5, shape `(n,)`."""
        return np.full(frames.shape, 0.5)

    def logits(self, frames: IntArray) -> FloatArray:
        """Return logits 0, shape `(n,)`."""
        return np.zeros(frames.shape)

    def embeddings(self, frames: IntArray) -> tuple[FloatArray, FloatArray]:
        """Return the same unit vector for every frame `(n, 1)` and the query `(1,)`."""
        return np.ones((frames.size, 1)), np.ones(1)

    def relevance_and_embeddings(self, frames: IntArray) -> tuple[FloatArray, FloatArray]:
        """Return relevance 0.5 `(n,)` and the same unit vector for every frame `(n, 1)`."""
        return self(frames), np.ones((frames.size, 1))
