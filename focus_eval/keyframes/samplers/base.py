"""The sampler protocol: the request that a sampler gets, the choice that it returns, and the checks of both."""

from __future__ import annotations

import hashlib
import inspect
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Literal, SupportsIndex, cast, get_args

import numpy as np

from focus_eval.core.errors import InvalidInput
from focus_eval.core.gaps import halve_widest_gaps
from focus_eval.core.options import checked_values, option
from focus_eval.core.plugins import class_of_file, is_plugin_file
from focus_eval.core.types import (
    ClipReport,
    ExampleReplies,
    FloatArray,
    IntArray,
    Pixels,
    Selection,
    TimedText,
    VideoInfo,
    example_reply_to,
    finite_seconds,
    whole_number,
)
from focus_eval.keyframes.samplers.asking import CountedModel, LanguageModel, Undeclared
from focus_eval.keyframes.samplers.expected_pulls import ExpectedPulls
from focus_eval.keyframes.samplers.ledger import Ledger, LookFn, RelevanceFn, RelevanceSource, broken


def derived_rng(seed: int, *parts: str) -> np.random.Generator:
    """Return a generator seeded with a hash of `seed` and `parts`, the same on every machine.

    Called with (seed, benchmark, question id, sampler) for a question and with (seed, benchmark, video, "coarse")
    for coarse pulls shared by the questions of a video.
    """
    text = "\x1f".join([str(int(seed)), *parts])
    digest = hashlib.sha256(text.encode(errors="surrogatepass")).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest[:16], "little")))


Role = Literal["sampler", "control", "ceiling", "floor"]


def check_class(kind: type[FrameSampler], label: str) -> None:
    """Check the role, the declarations and the signature of `choose` of a sampler class.

    Args:
        label: what error messages call the class.

    Raises:
        BrokenContract: an unknown role, a contradictory declaration, or a `choose` that does not take one request.
    """
    if kind.role not in get_args(Role):
        raise broken("class", f"{label}: role must be {' or '.join(get_args(Role))}, got {kind.role!r}")
    if kind.needs_evidence and kind.role != "ceiling":
        raise broken("class", f"{label}: only a sampler of role 'ceiling' may see the annotated evidence")
    if kind.needs_llm and "llm" not in kind.__dataclass_fields__:
        raise broken(
            "class", f"{label}: a sampler that asks a model derives from AskingSampler, which has the option llm"
        )
    signature = inspect.signature(kind.choose)
    try:
        signature.bind(None, None)
    except TypeError as error:
        raise broken(
            "class",
            f"{label}: choose{signature} must be choose(self, request); "
            "request.video, .k, .ledger, .rng, .coarse_rng, .llm and the texts are what it may use",
        ) from error


def checked_keyframes(
    sampler: FrameSampler, choice: Any, *, video: VideoInfo, n_requested: int
) -> tuple[IntArray, dict[str, int]]:
    """Return the keyframes of `choice` in its order, int64 `(n,)`, and facts about their number, after checking them.

    The facts may have "unique_keyframes", "returned_fewer" and "returned_more", each a number of keyframes. There are
    no facts if there are exactly `n_requested` distinct keyframes.

    Raises:
        BrokenContract: `choice` is not a `Choice`, or its keyframes are no integers or lie outside the video. Also if
            keyframes are repeated or are not `n_requested`, unless the class declares that it may do so.
    """
    name = sampler.name
    of_video = f"of a video of {video.n_frames} frames ({video.duration_seconds:.1f} s)"
    if not hasattr(choice, "keyframes") or not hasattr(choice, "facts"):
        returned = "None (is a `return` missing?)" if choice is None else f"a {type(choice).__name__}"
        raise broken("choice", f"{name}: choose must return a Choice, not {returned}")
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
    if frames.size != n_requested:
        fewer_or_more = "fewer" if frames.size < n_requested else "more"
        if not getattr(sampler, f"may_return_{fewer_or_more}"):
            raise broken(
                "count",
                f"{name} chose {frames.size} keyframes, {n_requested} were requested, {of_video}; "
                f"return request.n_wanted of them, or declare may_return_{fewer_or_more} = True if that is meant",
            )
        facts[f"returned_{fewer_or_more}"] = int(frames.size)
    if frames.size > n_requested:
        _check_pixels(name, choice.scales, n_chosen=frames.size, n_requested=n_requested)
    return frames, facts


def _check_pixels(name: str, scales: object, *, n_chosen: int, n_requested: int) -> None:
    """Raise BrokenContract if the scaled keyframes have more pixels than `n_requested` frames at full size."""
    pixels = float(n_chosen) if scales is None else float(np.square(np.asarray(scales, dtype=float)).sum())
    if pixels > n_requested * (1 + 1e-9):
        raise broken(
            "count",
            f"{name} chose {n_chosen} keyframes with the pixels of {pixels:.6g} full frames, {n_requested} were "
            "requested; more frames may be shown only if `scales` make them smaller: sum(scales ** 2) is at most K",
        )


def _as_frames(keyframes: object, sampler: str) -> IntArray:
    """`keyframes` as int64, `(n,)`; raises BrokenContract for values that are no integers, such as 0.9."""
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


def _check_kind(value: object, kind: type[object], name: str, expected: str) -> None:
    """Raise InvalidInput unless `value` is a `kind`; the message calls it `name` and says what is `expected`."""
    if not isinstance(value, kind):
        raise InvalidInput(f"{name} must be {expected}, got {_shown(value)}")


def _check_sources(pull: object, scan: object, look: object, scan_cost: object, *, needs_pull: bool) -> None:
    """Raise InvalidInput if a source is not callable, or if the relative cost of a scan is not above 0."""
    for name, source in (("pull", pull), ("scan", scan), ("look", look)):
        if not callable(source) and (source is not None or (name == "pull" and needs_pull)):
            raise InvalidInput(f"{name} must be a function of an array of frames, got {_shown(source)}")
    if scan_cost is not None and not (isinstance(scan_cost, (int, float)) and 0 < scan_cost < np.inf):
        raise InvalidInput(f"scan_cost must be a finite number above 0, got {_shown(scan_cost)}")


def _shown(value: object) -> str:
    """`value` on one line, cut to 80 characters, for a message."""
    return " ".join(repr(value).split())[:80]


@dataclass(frozen=True, kw_only=True)
class QuestionTexts:
    """The texts of a question, without its answer.

    Args:
        query: the text that the encoder compares frames with.
        question: the bare question.
        options: texts of the options in order; empty for an open question.
        subtitles: spoken lines by time, if the task has them and the sampler declares `needs_subtitles`.
    """

    query: str = ""
    question: str = ""
    options: tuple[str, ...] = ()
    subtitles: tuple[TimedText, ...] = ()


@dataclass(frozen=True, kw_only=True)
class SelectionRequest(QuestionTexts):
    """One question to a sampler with everything the sampler may use; the texts are those of `QuestionTexts`.

    >>> video, rng = VideoInfo(100, 10.0), np.random.default_rng(0)
    >>> ledger = Ledger(lambda frames: frames / 100, video)
    >>> SelectionRequest(video=video, k=8, ledger=ledger, rng=rng, coarse_rng=rng).n_wanted
    8

    Args:
        video: length, rate and, if known, sync frames.
        k: requested keyframes, at least 1; may exceed the number of frames.
        ledger: gives relevance, embeddings and pictures, and counts every pull and look; there is no other way to them.
        llm: the model to ask, for a sampler that declares `needs_llm`; counts calls, pictures and tokens.
        rng: source of every random draw.
        coarse_rng: source of the sampler's coarse draws, which the questions of a video may share; it may be `rng`.
        evidence_seconds: times of the annotated evidence; empty unless the sampler declares `needs_evidence`.
        scan_cost: cost of a forward of the scan encoder divided by that of the main encoder; None without a scan
            encoder or if unknown.
    """

    video: VideoInfo
    k: int
    ledger: Ledger
    rng: np.random.Generator
    coarse_rng: np.random.Generator
    evidence_seconds: tuple[float, ...] = ()
    scan_cost: float | None = None
    llm: LanguageModel = field(default_factory=lambda: cast(LanguageModel, Undeclared("this sampler asks request.llm")))

    @property
    def n_wanted(self) -> int:
        """Keyframes to return: `min(k, n_frames)`."""
        return min(self.k, self.video.n_frames)


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The keyframes that an algorithm chose; `FrameSampler.select` makes a `Selection` of them.

    >>> Choice(keyframes=np.array([70, 3]), facts={"candidates": 25}).keyframes.tolist()
    [70, 3]

    Args:
        keyframes: any order, shape `(n,)`.
        scales: one factor in (0, 1] per keyframe, in the order of `keyframes`; None for full size.
        clips, facts, seconds_apart: as in `Selection`.
    """

    keyframes: IntArray
    scales: np.ndarray | None = None
    clips: tuple[ClipReport, ...] = ()
    facts: Mapping[str, object] = field(default_factory=dict)
    seconds_apart: float = 0.0


def _sampler_of_file(path: str, class_name: str, values: Mapping[str, object]) -> FrameSampler:
    sampler: FrameSampler = class_of_file(path, class_name)(**values)
    return sampler


@dataclass(frozen=True, kw_only=True)
class FrameSampler(ABC):
    """Chooses keyframes. A subclass is a frozen dataclass whose fields are its options.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True, kw_only=True)
    ... class Middle(FrameSampler):
    ...     name, source = "middle", "an example"
    ...     def choose(self, request):
    ...         return Choice(keyframes=np.array([request.video.n_frames // 2]))
    >>> rng = np.random.default_rng(0)
    >>> Middle().select(VideoInfo(100, 10.0), k=1, pull=lambda frames: frames / 100, rng=rng).keyframes
    (50,)

    Options are checked when a sampler is made: their declared types (an int becomes a float if one is declared), then
    the ranges stated with `focus_eval.core.options.option`. Every sampler has the option `fill`.

    Args:
        fill: "even" adds frames in the middle of the widest gaps if the sampler chose fewer than requested; the fact
            "filled" counts the added frames.
        distinct: replace keyframes that show the same picture as a better one by other relevant frames (see
            `samplers.distinct`); off in published algorithms.
        snap_seconds: move a keyframe that lies just outside a scene to a scored frame of the scene, by at most this
            many seconds (see `samplers.snap`); off in published algorithms.

    Class attributes:
        name: the registered name.
        source: reference of the algorithm.
        paper: key of its paper in `configs/references.yaml`, or an address; "" if there is none.
        role: kind of the algorithm in tables: "sampler" for one that can be used, "control" for one that samplers have
            to beat, "ceiling" for one that knows the annotated evidence, "floor" for one that shows no frames.
        version: raised whenever the code may choose other frames; part of a cell's identity.
        file_digest: hash of the file of a sampler that is given as a file; also part of a cell's identity.
        draws: False for samplers without random draws: every seed gives the same frames, so a matrix runs only one.
        needs_encoder: False for samplers that never pull.
        reads_query: False for samplers that pull but whose choice does not depend on the query, as for a summary.
        needs_evidence: True for a ceiling that is given the times of the annotated evidence.
        needs_scan: True for samplers that also use a second encoder (see `scanning`).
        needs_logits, needs_embeddings: True for samplers that pull these instead of relevance.
        needs_texts: True for samplers that pull relevance to other texts than the question's.
        needs_subtitles: True for samplers that read `request.subtitles`; for others these are empty.
        needs_llm: True for samplers that ask a model: those that derive from `AskingSampler`.
        example_reply: a typical reply to the sampler's prompts, or a mapping from a phrase in each kind of prompt to
            the reply; the scripted model of checks and simulations returns it.
        may_return_fewer, may_return_more, may_repeat: exceptions to "exactly K distinct keyframes". If more than K are
            returned, their `scales` must shrink them so that together they have no more pixels than K full frames.
    """

    name: ClassVar[str]
    source: ClassVar[str]
    paper: ClassVar[str] = ""
    role: ClassVar[Role] = "sampler"
    version: ClassVar[int] = 1
    file_digest: ClassVar[str] = ""
    draws: ClassVar[bool] = True
    needs_encoder: ClassVar[bool] = True
    reads_query: ClassVar[bool] = True
    needs_evidence: ClassVar[bool] = False
    needs_scan: ClassVar[bool] = False
    needs_logits: ClassVar[bool] = False
    needs_embeddings: ClassVar[bool] = False
    needs_texts: ClassVar[bool] = False
    needs_subtitles: ClassVar[bool] = False
    needs_llm: ClassVar[bool] = False
    example_reply: ClassVar[ExampleReplies] = ""
    may_return_fewer: ClassVar[bool] = False
    may_return_more: ClassVar[bool] = False
    may_repeat: ClassVar[bool] = False

    distinct: bool = option(False, added=True)
    snap_seconds: float = option(0.0, at_least=0, added=True)
    fill: Literal["even"] | None = option(None, added=True)

    def __post_init__(self) -> None:
        """Check the class and bring the options to their declared types and ranges."""
        check_class(type(self), f"sampler {self.name!r}")
        for name, value in checked_values(f"sampler {self.name!r}", self).items():
            object.__setattr__(self, name, value)

    @abstractmethod
    def choose(self, request: SelectionRequest) -> Choice:
        """Run the algorithm on one question and return its keyframes.

        Pulls go through `request.ledger` alone, draws through `request.rng` and `request.coarse_rng`.
        """

    def select(
        self,
        video: VideoInfo,
        *,
        k: int,
        pull: RelevanceSource | RelevanceFn | None,
        rng: np.random.Generator,
        coarse_rng: np.random.Generator | None = None,
        budget: int | None = None,
        evidence_seconds: Sequence[float] = (),
        scan: RelevanceFn | None = None,
        scan_cost: float | None = None,
        texts: QuestionTexts = QuestionTexts(),
        look: LookFn | None = None,
        llm: LanguageModel | None = None,
    ) -> Selection:
        """Choose `min(k, n_frames)` keyframes of `video`.

        Args:
            video: length, rate and, if known, sync frames.
            k: requested keyframes, at least 1.
            pull: relevance in [0, 1] of an int64 array of frame indices, `(n,)`; a function, or a `RelevanceSource`.
            rng: source of every random draw.
            coarse_rng: separate source of the coarse draws, so that the questions of a video can share coarse pulls; by
                default `rng`.
            budget: limit on the number of pulls; None for no limit.
            evidence_seconds: times of the annotated evidence; passed only to a sampler that declares `needs_evidence`.
            scan: raw logits of the scan encoder, shape `(n,)`; passed only to a sampler that declares `needs_scan`.
            scan_cost: cost of a forward of the scan encoder divided by that of the main encoder; None if unknown.
            texts: the question's texts.
            look: function of frames and a longest side in pixels (None: full size) that returns pictures.
            llm: the model to ask; passed only to a sampler that declares `needs_llm`.

        Raises:
            InvalidInput: an argument of the wrong kind, or `k` below 1.
            EncoderError: relevance that is not finite or not in [0, 1], or no embeddings for a sampler that needs them.
            BrokenContract: the algorithm broke its contract or its budget.
        """
        k = whole_number(k, "k")
        budget = None if budget is None else whole_number(budget, "budget", at_least=0)
        _check_kind(video, VideoInfo, "video", "a VideoInfo (the `info` of an open video)")
        _check_kind(texts, QuestionTexts, "texts", "QuestionTexts")
        _check_sources(pull, scan, look, scan_cost, needs_pull=self.needs_encoder)
        evidence = finite_seconds(evidence_seconds, "evidence_seconds").tolist() if self.needs_evidence else ()
        scan = scan if self.needs_scan else None
        ledger = Ledger(pull, video, budget=budget, scan=scan, look=look, query=texts.query, distinct=self.distinct)
        if self.needs_embeddings:
            ledger.check_embeddings()
        request = SelectionRequest(
            **vars(texts),
            video=video,
            k=k,
            ledger=ledger,
            rng=self._generator(rng, "rng"),
            coarse_rng=self._generator(rng if coarse_rng is None else coarse_rng, "coarse_rng"),
            evidence_seconds=tuple(evidence),
            scan_cost=scan_cost if self.needs_scan else None,
            llm=self.counted_model(llm),
        )
        return self._selection(request, self.choose(request))

    def _selection(self, request: SelectionRequest, choice: Choice) -> Selection:
        """Check `choice` and return it as a `Selection` with its pulls, scans, looks and model usage."""
        ledger, video = request.ledger, request.video
        keyframes, facts_of_count = checked_keyframes(self, choice, video=video, n_requested=request.n_wanted)
        can_be_moved = choice.scales is None and not facts_of_count.get("unique_keyframes")
        if self.snap_seconds and can_be_moved:
            from focus_eval.keyframes.samplers.snap import snapped_frames

            keyframes, n_snapped = snapped_frames(keyframes, ledger, video, seconds=self.snap_seconds)
            facts_of_count |= {"snapped": n_snapped} if n_snapped else {}
        if self.distinct and can_be_moved:
            from focus_eval.keyframes.samplers.distinct import distinct_frames

            keyframes, twin_facts = distinct_frames(keyframes, ledger, video)
            facts_of_count |= twin_facts
        scales = None if choice.scales is None else np.asarray(choice.scales, dtype=float)
        n_missing = request.n_wanted - keyframes.size
        if self.fill and n_missing > 0 and self.role != "floor":  # a floor such as `blind` returns no frames by design
            distinct = np.unique(keyframes)
            grid = halve_widest_gaps(distinct, distinct.size + n_missing, video.n_frames)
            keyframes = np.append(keyframes, np.setdiff1d(grid, distinct))
            scales = None if scales is None else np.append(scales, np.ones(n_missing))
            facts_of_count["filled"] = n_missing
        order = np.argsort(keyframes, kind="stable")
        return Selection(
            keyframes=tuple(keyframes[order].tolist()),
            video=video,
            k=request.k,
            sampler=self.name,
            options=self.options,
            pulled_frames=ledger.frames,
            pulled_relevance=ledger.relevances,
            text_pulls=ledger.text_pulls,
            scanned_frames=ledger.scanned_frames,
            looked_frames=ledger.looked_frames,
            model_usage=request.llm.usage.as_dict() if isinstance(request.llm, CountedModel) else {},
            scales=None if scales is None else tuple(scales[order].tolist()),
            clips=choice.clips,
            facts={**choice.facts, **facts_of_count},
            seconds_apart=choice.seconds_apart,
        )

    def counted_model(self, llm: LanguageModel | None) -> LanguageModel:
        """Return `llm` wrapped so that its usage is counted.

        A sampler that declares no model gets a stand-in that raises an error at any use. Raises InvalidInput if the
        sampler needs a model and `llm` is None.
        """
        if not self.needs_llm:
            return cast(LanguageModel, Undeclared(f"{self.name} asks request.llm; derive it from AskingSampler"))
        if llm is None:
            raise InvalidInput(f"sampler {self.name!r} asks a model: name one, e.g. llm=chat:model=NAME")
        return CountedModel(llm)

    def _generator(self, rng: np.random.Generator, name: str) -> np.random.Generator:
        """`rng`, or a stand-in that refuses any use if the sampler declares `draws = False`; `name` is for messages."""
        # The stand-in catches a subclass that inherits draws = False but uses the generator.
        if not self.draws:
            message = f"{self.name} draws from request.rng; declare draws = True, not False"
            return cast(np.random.Generator, Undeclared(message))
        _check_kind(rng, np.random.Generator, name, "a numpy generator, e.g. np.random.default_rng(0)")
        return rng

    def count_pulls(self, video: VideoInfo, *, k: int, seed: int = 0) -> int:
        """Return the number of frames that the algorithm pulls of a video with constant relevance.

        Real questions may have other numbers of pulls if the sampler's pulls depend on relevance or on draws, as in
        `focus_iterative` and `focus_released`.
        """
        if not self.needs_encoder:
            return 0
        expected = self.expected_pulls(video, k=k)
        is_fixed = expected is not None and not (expected.coarse or expected.later_draws)
        return int(expected.fixed.size) if expected and is_fixed else self._on_flat(video, k=k, seed=seed).n_pulls

    def count_scans(self, video: VideoInfo, *, k: int) -> int:
        """Return the number of frames that the algorithm scans of a video with constant relevance; 0 without scans."""
        expected = self.expected_pulls(video, k=k) if self.needs_scan else ExpectedPulls()
        return self._on_flat(video, k=k).n_scanned if expected is None else int(expected.scanned.size)

    def count_model_usage(self, video: VideoInfo, *, k: int) -> dict[str, int]:
        """Return the model usage on a video with constant relevance, keyed like `asking.ModelUsage`.

        {} for a sampler without a model. Pictures count as 1920 x 1080, shrunk to the size that the sampler requests.
        """
        return dict(self._on_flat(video, k=k).model_usage) if self.needs_llm else {}

    def expected_pulls(self, video: VideoInfo, *, k: int) -> ExpectedPulls | None:
        """Return the expected pulls of any question on a video with constant relevance; None if they cannot be stated.

        A plan calls this once per video; if it gets None, it runs the sampler for each question instead. A subclass
        that draws other frames than its parent must override this method too.
        """
        reads_more = self.needs_evidence or self.needs_scan or self.needs_texts or self.needs_llm
        if self.draws or reads_more or self.may_return_more:
            return None
        flat = self._on_flat(video, k=k)
        return (
            None
            if flat.looked_frames.size
            else ExpectedPulls(fixed=np.sort(flat.pulled_frames), n_keyframes=len(flat.keyframes))
        )

    def at_cost(self, scan_cost: float | None) -> FrameSampler:
        """Return the sampler with its option `relative_cost` set to `scan_cost`, for counting only.

        A sampler without this option, or with a value for it, is returned unchanged.
        """
        changes: dict[str, Any] = {"relative_cost": scan_cost}
        return replace(self, **changes) if self.options.get("relative_cost", 0.0) is None else self

    def _on_flat(self, video: VideoInfo, *, k: int, seed: int = 0) -> Selection:
        """The sampler's selection on a video with constant relevance, from which pulls and usage are counted."""
        rng = derived_rng(seed, self.name, str(video.n_frames), repr(video.fps), str(k))
        flat = FlatSource(self.example_reply)
        texts = QuestionTexts(query="?", question="?")
        return self.select(video, k=k, pull=flat, rng=rng, scan=flat.scan, texts=texts, look=flat.look, llm=flat)

    def infeasible_reason(self, video: VideoInfo, *, k: int) -> str | None:
        """Return why the sampler would choose no frame of `video`, and a remedy; None if it will choose some.

        A plan calls this before the run, so the result may depend only on the video's length and rate.
        """
        return None

    def __reduce_ex__(self, protocol: SupportsIndex) -> str | tuple[object, ...]:
        """Return how pickle rebuilds the sampler; the class of a plugin file is named by the file, not by a module."""
        module = type(self).__module__
        if not is_plugin_file(module):
            return super().__reduce_ex__(protocol)
        values = {option.name: getattr(self, option.name) for option in fields(self)}
        return _sampler_of_file, (str(sys.modules[module].__file__), type(self).__qualname__, values)

    @property
    def options(self) -> dict[str, Any]:
        """Values of all options by name; `fill` and `snap_seconds` are left out if they are off."""
        values = {option.name: getattr(self, option.name) for option in fields(self)}
        return {name: value for name, value in values.items() if value or name not in ("fill", "snap_seconds")}

    @property
    def identifying_options(self) -> dict[str, object]:
        """Options that identify a selection, by name: all except options declared `added` that have their default."""
        later = {option.name: option.default for option in fields(self) if "added" in option.metadata}
        return {name: value for name, value in self.options.items() if name not in later or value != later[name]}


@dataclass(frozen=True, kw_only=True)
class AskingSampler(FrameSampler):
    """A sampler that asks a language or vision-language model, `request.llm`.

    >>> make_sampler("subquestions", llm="scripted").needs_llm
    True

    Args:
        llm: the model, with its options: `chat:model=gpt-4o-mini`. A simulation uses a scripted model instead.
    """

    needs_llm: ClassVar[bool] = True

    llm: str = option("")


# The answer of a scripted model to a sampler without an `example_reply`.
EXAMPLE_REPLY = "a person\na car\na dog\na sign"


class FlatSource(RelevanceSource):
    """Source with constant relevance (0.5), logits (0), embedding and picture for every frame.

    Args:
        reply: what `ask` answers, as in `FrameSampler.example_reply`; `EXAMPLE_REPLY` if it has no reply to a text.
    """

    def __init__(self, reply: ExampleReplies = "") -> None:
        self.reply = reply

    def relevance_to(self, frames: IntArray, text: str) -> FloatArray:
        """Return relevance 0.5 to any text, `(n,)`."""
        return self(frames)

    def look(self, frames: IntArray, size: int | None) -> list[Pixels]:
        """Return a grey picture 16 to 9 for each frame, 1920 pixels wide or shrunk."""
        width = min(1920, size or 1920)
        # Broadcast a single pixel, so that a full-size picture takes no memory.
        grey = np.full((1, 1, 3), 128, dtype=np.uint8)
        return [np.broadcast_to(grey, (max(1, width * 9 // 16), width, 3))] * frames.size

    def ask(self, text: str, images: Sequence[Pixels] = (), *, max_tokens: int = 1) -> str:
        """Return the fixed reply to this kind of text."""
        return example_reply_to(text, self.reply) or EXAMPLE_REPLY

    def yes(self, text: str, images: Sequence[Pixels]) -> FloatArray:
        """Return probability 0.5 for each picture."""
        return np.full(len(images), 0.5)

    def __call__(self, frames: IntArray) -> FloatArray:
        """Return relevance 0.5, `(n,)`."""
        return np.full(frames.shape, 0.5)

    def logits(self, frames: IntArray) -> FloatArray:
        """Return logits 0, `(n,)`."""
        return np.zeros(frames.shape)

    scan = logits

    def embeddings(self, frames: IntArray) -> tuple[FloatArray, FloatArray]:
        """Return equal embeddings of one dimension, `(n, 1)`, and the query's, `(1,)`."""
        return np.ones((frames.size, 1)), np.ones(1)

    def relevance_and_embeddings(self, frames: IntArray) -> tuple[FloatArray, FloatArray]:
        """Return relevance 0.5, `(n,)`, and equal embeddings, `(n, 1)`."""
        return self(frames), np.ones((frames.size, 1))
