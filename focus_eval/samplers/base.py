"""The sampler protocol: the request, the ledger that counts every pull, the choice and its checks."""

from __future__ import annotations

import hashlib
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Literal, Protocol, cast, get_args, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from focus_eval.core.errors import BrokenContract, EncoderError, InvalidInput
from focus_eval.core.options import checked_values
from focus_eval.core.types import (
    ClipReport,
    FloatArray,
    IntArray,
    Selection,
    VideoInfo,
    frozen_floats,
    frozen_ints,
    whole_number,
)


def derived_rng(seed: int, *parts: str) -> np.random.Generator:
    """Return the generator of (seed, *parts), the same on every machine and in any order of questions.

    Called with (seed, benchmark, question id, sampler) for a question and with (seed, benchmark, video, "coarse")
    for coarse pulls shared by the questions of a video.
    """
    text = "\x1f".join([str(int(seed)), *parts])
    digest = hashlib.sha256(text.encode()).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest[:16], "little")))


Role = Literal["sampler", "control", "ceiling", "floor"]


class Declares(Protocol):
    """What a sampler says of itself; see `FrameSampler`."""

    name: ClassVar[str]
    may_return_fewer: ClassVar[bool]
    may_return_more: ClassVar[bool]
    may_repeat: ClassVar[bool]


def broken(promise: str, message: str) -> BrokenContract:
    """Return the error for a broken `promise`, one word that says which."""
    error = BrokenContract(message)
    error.promise = promise
    return error


def check_class(kind: type[Any], label: str) -> None:
    """Refuse a sampler class whose `choose` cannot be called with one request, or whose role does not exist.

    Raises:
        BrokenContract: with what was found and what is needed.
    """
    if kind.role not in get_args(Role):
        raise broken("class", f"{label}: role must be {' or '.join(get_args(Role))}, got {kind.role!r}")
    if kind.needs_evidence and kind.role != "ceiling":
        raise broken("class", f"{label}: only a sampler of role 'ceiling' may see the annotated evidence")
    signature = inspect.signature(kind.choose)
    try:
        signature.bind(None, None)
    except TypeError as error:
        raise broken(
            "class",
            f"{label}: choose{signature} must be choose(self, request); "
            "request.video, .k, .ledger, .rng and .coarse_rng are what it may use",
        ) from error


def checked_keyframes(
    sampler: Declares, choice: Any, *, video: VideoInfo, asked: int
) -> tuple[IntArray, dict[str, int]]:
    """Return the keyframes of `choice` in its order, int64 `(n,)`, and the facts about a count that was not asked.

    Raises:
        BrokenContract: not a `Choice`, no integers, outside the video, repeated, or more or fewer than asked without
            the class saying that it may; the message names the video's length and what to do.
    """
    name = sampler.name
    of_video = f"of a video of {video.n_frames} frames ({video.duration_seconds:.1f} s)"
    if not hasattr(choice, "keyframes") or not hasattr(choice, "facts"):
        raise broken("choice", f"{name}: choose must return a Choice, not {_described(choice)}")
    frames = _as_frames(choice.keyframes, name)
    outside = frames[(frames < 0) | (frames >= video.n_frames)]
    if outside.size:
        raise broken("range", f"{name} chose frame {outside[0]} {of_video}; it must lie in [0, {video.n_frames})")
    facts, n_unique = {}, int(np.unique(frames).size)
    if n_unique < frames.size:
        if not sampler.may_repeat:
            raise broken(
                "repeats",
                f"{name} chose {frames.size} keyframes, only {n_unique} of them unique, {of_video}; "
                "choose each once, or declare may_repeat = True if that is meant",
            )
        facts["unique_keyframes"] = n_unique
    if frames.size != asked:
        may, fewer_or_more = _may(sampler, frames.size < asked)
        if not may:
            raise broken(
                "count",
                f"{name} chose {frames.size} keyframes, {asked} were asked, {of_video}; "
                f"return request.n_wanted of them, or declare may_return_{fewer_or_more} = True if that is meant",
            )
        facts[f"returned_{fewer_or_more}"] = int(frames.size)
    if frames.size > asked:
        _check_pixels(name, choice.scales, n_chosen=frames.size, asked=asked)
    return frames, facts


def _check_pixels(name: str, scales: Any, *, n_chosen: int, asked: int) -> None:
    """Refuse extra keyframes at full size: more pixels than K frames would not be comparable."""
    pixels = float(n_chosen) if scales is None else float(np.square(np.asarray(scales, dtype=float)).sum())
    if pixels > asked * (1 + 1e-9):
        raise broken(
            "count",
            f"{name} chose {n_chosen} keyframes with the pixels of {pixels:.6g} full frames, {asked} were asked; "
            "more frames may be shown only if their `scales` make them smaller: sum(scales ** 2) is at most K",
        )


def _may(sampler: Declares, is_fewer: bool) -> tuple[bool, str]:
    return (sampler.may_return_fewer, "fewer") if is_fewer else (sampler.may_return_more, "more")


def _as_frames(keyframes: Any, sampler: str) -> IntArray:
    """Return `keyframes` as int64, `(n,)`; 0.9 is not frame 0."""
    try:
        frames = np.asarray(keyframes)
    except ValueError as error:
        raise broken("integers", f"{sampler}: keyframes must be a one-dimensional array of integers") from error
    if frames.ndim != 1:
        raise broken("integers", f"{sampler}: keyframes must be a one-dimensional array, got shape {frames.shape}")
    if frames.size and frames.dtype.kind not in "iu":
        raise broken(
            "integers",
            f"{sampler}: keyframes must be integers, the indices of frames; got {frames[0]!r} ({frames.dtype}); "
            "a time in seconds is frame round(seconds * request.video.fps)",
        )
    return frames.astype(np.int64)


def _described(value: Any) -> str:
    return "None (is a `return` missing?)" if value is None else f"a {type(value).__name__}"


RelevanceFn = Callable[[IntArray], Any]


@runtime_checkable
class LogitSource(Protocol):
    """A pull that also gives an encoder's raw image-text logits."""

    def logits(self, frames: IntArray, /) -> FloatArray:
        """Return raw logits, shape `(n,)`."""
        ...


@runtime_checkable
class EmbeddingSource(Protocol):
    """A pull that also gives an encoder's embeddings of frames and of the query."""

    def embeddings(self, frames: IntArray, /) -> tuple[NDArray[np.float64], FloatArray]:
        """Return frame embeddings `(n, d)` and the query's embedding `(d,)`."""
        ...


@runtime_checkable
class RelevanceAndEmbeddingSource(EmbeddingSource, Protocol):
    """A pull that gives relevance and embeddings in one look at the frames."""

    def relevance_and_embeddings(self, frames: IntArray, /) -> tuple[FloatArray, NDArray[np.float64]]:
        """Return relevance `(n,)` and frame embeddings `(n, d)`."""
        ...


@runtime_checkable
class RelevanceAndLogitSource(LogitSource, Protocol):
    """A pull that gives relevance and logits in one look at the frames."""

    def relevance_and_logits(self, frames: IntArray, /) -> tuple[FloatArray, FloatArray]:
        """Return relevance and raw logits, both `(n,)`."""
        ...


_LEAST_RELEVANCE = 1e-6


def log_odds(relevance: FloatArray) -> FloatArray:
    """Return the log-odds of `relevance`, clipped to [1e-6, 1 - 1e-6] first, shape like `relevance`."""
    known = np.clip(relevance, _LEAST_RELEVANCE, 1 - _LEAST_RELEVANCE)
    odds: FloatArray = np.log(known / (1 - known))
    return odds


class Ledger:
    """The only way from a sampler to relevance: checks and records every pull.

    A frame is pulled at most once; asking twice is the sampler's mistake. Relevance must be finite and in
    [0, 1]. Each of `relevance`, `logits` and `embeddings` counts one pull per frame. What the scan encoder sees is
    recorded apart: a frame may be scanned, once, and pulled as well.

    Args:
        pull: gives relevance of an int64 array of frames, shape `(n,)`; may also have `logits` and `embeddings`.
        video: bounds of the frame indices.
        budget: most pulls allowed, scans left aside; None for no limit.
        scan: gives the scan encoder's raw logits of such an array, shape `(n,)`; None where there is no such encoder.
    """

    def __init__(
        self, pull: RelevanceFn, video: VideoInfo, *, budget: int | None = None, scan: RelevanceFn | None = None
    ) -> None:
        self._pull = pull
        self._video = video
        self._budget = budget
        self._scan = scan
        self._is_scanned = np.zeros(video.n_frames if scan else 0, dtype=bool)
        self._frames: list[IntArray] = []
        self._relevance: list[FloatArray] = []
        self._is_pulled = np.zeros(video.n_frames, dtype=bool)
        self._n_pulls = 0

    @property
    def n_pulls(self) -> int:
        """Frames pulled so far."""
        return self._n_pulls

    @property
    def frames(self) -> IntArray:
        """Frames in pull order, shape `(n_pulls,)`, read-only."""
        return frozen_ints(np.concatenate(self._frames) if self._frames else [])

    @property
    def relevances(self) -> FloatArray:
        """Relevance in pull order, shape `(n_pulls,)`; NaN where only logits or embeddings were asked."""
        return frozen_floats(np.concatenate(self._relevance) if self._relevance else [])

    def pulls_in_time(self) -> tuple[IntArray, FloatArray]:
        """Return the frames pulled so far, ascending, and their relevance, both `(n_pulls,)`."""
        order = np.argsort(self.frames, kind="stable")
        return self.frames[order], self.relevances[order]

    @property
    def n_scanned(self) -> int:
        """Frames scanned so far."""
        return int(np.count_nonzero(self._is_scanned))

    @property
    def scanned_frames(self) -> IntArray:
        """Frames scanned so far, ascending, shape `(n_scanned,)`, read-only."""
        return frozen_ints(np.flatnonzero(self._is_scanned))

    @property
    def unpulled(self) -> IntArray:
        """Frames never pulled so far, ascending."""
        return np.flatnonzero(~self._is_pulled)

    def is_pulled(self, frames: IntArray) -> NDArray[np.bool_]:
        """Return which of `frames` were pulled already, shape like `frames`."""
        return self._is_pulled[frames]

    def relevance(self, frames: IntArray) -> FloatArray:
        """Pull `frames` in one batch and return their relevance in [0, 1], shape `(n,)`.

        Raises:
            SamplerError: a frame out of range, repeated, or above the budget.
            EncoderError: relevance of the wrong shape, not finite, or outside [0, 1].
        """
        frames = self._pullable(frames)
        if frames.size == 0:
            return frozen_floats([])
        values = np.asarray(self._pull(frames), dtype=np.float64)
        _check_values(values, frames, low=0.0, high=1.0)
        self._record(frames, values)
        return values

    def logits(self, frames: IntArray) -> FloatArray:
        """Pull `frames` in one batch and return the encoder's raw logits, shape `(n,)`.

        Raises:
            EncoderError: the encoder has no logits, or gave some that are not finite.
        """
        if not isinstance(self._pull, LogitSource):
            raise EncoderError(f"{_name_of(self._pull)} gives no raw logits; use one that does (clip, siglip)")
        frames = self._pullable(frames)
        if frames.size == 0:
            return frozen_floats([])
        values = np.asarray(self._pull.logits(frames), dtype=np.float64)
        _check_values(values, frames, low=-np.inf, high=np.inf)
        self._record(frames, np.full(frames.shape, np.nan))
        return values

    def embeddings(self, frames: IntArray) -> tuple[NDArray[np.float64], FloatArray]:
        """Pull `frames`, at least one, in one batch and return their embeddings `(n, d)` and the query's `(d,)`.

        Raises:
            EncoderError: the encoder has no embeddings, or gave some of the wrong shape.
        """
        if not isinstance(self._pull, EmbeddingSource):
            raise EncoderError(f"{_name_of(self._pull)} gives no embeddings; use one that does (clip, siglip)")
        frames = self._pullable(frames)
        images, query = self._pull.embeddings(frames)
        if images.shape != (frames.size, query.size) or not (np.isfinite(images).all() and np.isfinite(query).all()):
            raise EncoderError(f"embeddings of {frames.size} frames have shape {images.shape} or are not finite")
        self._record(frames, np.full(frames.shape, np.nan))
        return images, query

    def relevance_and_embeddings(self, frames: IntArray) -> tuple[FloatArray, NDArray[np.float64] | None]:
        """Pull `frames`, at least one, in one batch; return their relevance `(n,)` and, where there are, embeddings.

        One pull per frame. The embeddings `(n, d)` are None where the encoder has none.

        Raises:
            SamplerError, EncoderError: as `relevance` and `embeddings`.
        """
        if not isinstance(self._pull, EmbeddingSource):
            return self.relevance(frames), None
        frames = self._pullable(frames)
        if isinstance(self._pull, RelevanceAndEmbeddingSource):
            relevance, images = self._pull.relevance_and_embeddings(frames)
        else:
            relevance, (images, _) = self._pull(frames), self._pull.embeddings(frames)
        values = np.asarray(relevance, dtype=np.float64)
        _check_values(values, frames, low=0.0, high=1.0)
        if images.ndim != 2 or images.shape[0] != frames.size or not np.isfinite(images).all():
            raise EncoderError(f"embeddings of {frames.size} frames have shape {images.shape} or are not finite")
        self._record(frames, values)
        return values, images

    def relevance_and_logits(self, frames: IntArray) -> tuple[FloatArray, FloatArray]:
        """Pull `frames` in one batch; return their relevance and raw logits, log-odds where there are none, `(n,)`.

        One pull per frame.

        Raises:
            SamplerError, EncoderError: as `relevance` and `logits`.
        """
        if not isinstance(self._pull, LogitSource) or len(frames) == 0:
            relevance = self.relevance(frames)
            return relevance, log_odds(relevance)
        frames = self._pullable(frames)
        if isinstance(self._pull, RelevanceAndLogitSource):
            given, logits = self._pull.relevance_and_logits(frames)
        else:
            given, logits = self._pull(frames), self._pull.logits(frames)
        relevance, logits = np.asarray(given, dtype=np.float64), np.asarray(logits, dtype=np.float64)
        _check_values(relevance, frames, low=0.0, high=1.0)
        _check_values(logits, frames, low=-np.inf, high=np.inf, what="logit")
        self._record(frames, relevance)
        return relevance, logits

    def scan(self, frames: IntArray) -> FloatArray:
        """Show `frames` to the scan encoder in one batch and return its raw logits, shape `(n,)`; no pulls.

        Raises:
            InvalidInput: no scan encoder.
            BrokenContract: a frame out of range, or scanned before.
            EncoderError: logits of the wrong shape or not finite.
        """
        if self._scan is None:
            raise InvalidInput("scan_encoder missing; name one, e.g. -o scan_encoder=clip")
        frames = self._checked(frames, self._is_scanned, "scanned")
        if frames.size == 0:
            return frozen_floats([])
        values = np.asarray(self._scan(frames), dtype=np.float64)
        _check_values(values, frames, low=-np.inf, high=np.inf, what="scan logit")
        self._is_scanned[frames] = True
        return values

    def _pullable(self, frames: IntArray) -> IntArray:
        frames = self._checked(frames, self._is_pulled, "pulled")
        if self._budget is not None and self.n_pulls + frames.size > self._budget:
            raise broken("budget", f"{self.n_pulls + frames.size} pulls asked, the budget is {self._budget}")
        return frames

    def _checked(self, frames: IntArray, is_known: NDArray[np.bool_], verb: str) -> IntArray:
        frames = frozen_ints(frames)
        outside = (frames < 0) | (frames >= self._video.n_frames)
        if outside.any():
            raise broken("ledger", f"frame {frames[outside][0]} asked, video has {self._video.n_frames}")
        unique, counts = np.unique(frames, return_counts=True)
        repeated = np.concatenate([unique[counts > 1], frames[is_known[frames]]])
        if repeated.size:
            raise broken("ledger", f"frame {repeated[0]} {verb} twice; keep what the ledger gave the first time")
        return frames

    def _record(self, frames: IntArray, relevance: FloatArray) -> None:
        self._is_pulled[frames] = True
        self._n_pulls += int(frames.size)
        self._frames.append(frames)
        self._relevance.append(frozen_floats(relevance))


def _check_values(values: FloatArray, frames: IntArray, *, low: float, high: float, what: str = "relevance") -> None:
    if values.shape != frames.shape:
        raise EncoderError(f"{frames.size} frames asked, {what} came with shape {values.shape}")
    bad = ~np.isfinite(values) | (values < low) | (values > high)
    if bad.any():
        raise EncoderError(f"frame {frames[bad][0]}: {what} {values[bad][0]} is not a finite number in [{low}, {high}]")


def _name_of(pull: RelevanceFn) -> str:
    return str(getattr(pull, "name", "") or getattr(pull, "__name__", type(pull).__name__))


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
        scan_cost: a forward of the scan encoder over one of the main encoder; None where there is no scan encoder or
            it is not known.
    """

    video: VideoInfo
    k: int
    ledger: Ledger
    rng: np.random.Generator
    coarse_rng: np.random.Generator
    evidence_seconds: tuple[float, ...] = ()
    scan_cost: float | None = None

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
        clips, facts, seconds_apart: as in `Selection`.
    """

    keyframes: IntArray
    scales: np.ndarray | None = None
    clips: tuple[ClipReport, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    seconds_apart: float = 0.0


@dataclass(frozen=True)
class _NoGenerator:
    """Stands in for the generator of a sampler that declares that it draws nothing."""

    sampler: str

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)  # pickle asks, on the way to the sampler's own process
        raise broken("draws", f"{self.sampler} draws from request.rng and declares draws = False; declare draws = True")


@dataclass(frozen=True, kw_only=True)
class FrameSampler(ABC):
    """Chooses keyframes. A subclass is a frozen dataclass whose fields are its options.

    Options are checked when a sampler is made: their declared types (an int becomes a float where one is
    declared), then the ranges stated with `focus_eval.core.options.option`.

    Class attributes:
        name: how it is registered.
        source: where the algorithm is described.
        role: what a table marks it as: a "sampler" that can be used, a "control" that it has to beat, a "ceiling"
            that knows the answer's place, or a "floor" without frames.
        version: raised whenever the code may choose other frames; part of a cell's identity.
        file_digest: hash of the file of a sampler that nobody installed; likewise part of it.
        draws: False for samplers that draw nothing: every seed gives the same frames, and a matrix runs one.
        needs_encoder: False for samplers that never pull.
        needs_evidence: True for a ceiling that is given the times of the annotated evidence.
        needs_scan: True for samplers that look with a second encoder as well (see `scanning`).
        needs_logits, needs_embeddings: True for samplers that pull these instead of relevance.
        may_return_fewer, may_return_more, may_repeat: what the sampler's text grants itself. More frames than asked
            need `scales` with which all of them have no more pixels than K full frames.
    """

    name: ClassVar[str]
    source: ClassVar[str]
    role: ClassVar[Role] = "sampler"
    version: ClassVar[int] = 1
    file_digest: ClassVar[str] = ""
    draws: ClassVar[bool] = True
    needs_encoder: ClassVar[bool] = True
    needs_evidence: ClassVar[bool] = False
    needs_scan: ClassVar[bool] = False
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
        scan: RelevanceFn | None = None,
        scan_cost: float | None = None,
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
            scan: raw logits of the scan encoder, shape `(n,)`; reaches only a sampler that declares `needs_scan`.
            scan_cost: a forward of the scan encoder over one of the main encoder, where it is known.

        Raises:
            InvalidInput: `k` below 1.
            EncoderError: relevance that is not finite or not in [0, 1].
            BrokenContract: the algorithm broke its contract or its budget.
        """
        k = whole_number(k, "k")
        ledger = Ledger(pull, video, budget=budget, scan=scan if self.needs_scan else None)
        request = SelectionRequest(
            video=video,
            k=k,
            ledger=ledger,
            rng=self._generator(rng),
            coarse_rng=self._generator(rng if coarse_rng is None else coarse_rng),
            evidence_seconds=tuple(evidence_seconds) if self.needs_evidence else (),
            scan_cost=scan_cost if self.needs_scan else None,
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
            scanned_frames=ledger.scanned_frames,
            scales=None if choice.scales is None else tuple(np.asarray(choice.scales, dtype=float)[order].tolist()),
            clips=choice.clips,
            facts={**choice.facts, **facts_of_count},
            seconds_apart=choice.seconds_apart,
        )

    def _generator(self, rng: np.random.Generator) -> np.random.Generator:
        # A class may inherit the declaration that it draws nothing, and draw all the same.
        return rng if self.draws else cast(np.random.Generator, _NoGenerator(self.name))

    def count_pulls(self, video: VideoInfo, *, k: int, seed: int = 0) -> int:
        """Return how many frames the algorithm pulls of a video with the same relevance everywhere.

        Where the number depends on relevance or on draws (`focus_iterative`, `focus_released`), real questions differ.
        """
        return self._on_flat(video, k=k, seed=seed).n_pulls if self.needs_encoder else 0

    def count_scans(self, video: VideoInfo, *, k: int) -> int:
        """Return how many frames of such a video the algorithm shows to its scan encoder; 0 without one."""
        return self._on_flat(video, k=k).n_scanned if self.needs_scan else 0

    def at_cost(self, scan_cost: float | None) -> FrameSampler:
        """Return the sampler to ask for counts where the scan encoder costs so much; itself where it has none."""
        return self

    def _on_flat(self, video: VideoInfo, *, k: int, seed: int = 0) -> Selection:
        rng, flat = derived_rng(seed, self.name, str(video.n_frames), repr(video.fps), str(k)), FlatSource()
        return self.select(video, k=k, pull=flat, rng=rng, scan=flat.logits)

    def why_no_frames(self, video: VideoInfo, *, k: int) -> str | None:
        """Return why the sampler may choose no frame of `video`, and what to do; None if it will choose some.

        A plan asks before the run, so it is answered from the length alone.
        """
        return None

    @property
    def options(self) -> dict[str, Any]:
        """Every option with its value."""
        return {option.name: getattr(self, option.name) for option in fields(self)}

    @property
    def identifying_options(self) -> dict[str, Any]:
        """The options that tell two selections apart: without those added later, where they are at their defaults."""
        later = {option.name: option.default for option in fields(self) if "added" in option.metadata}
        return {name: value for name, value in self.options.items() if name not in later or value != later[name]}


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
