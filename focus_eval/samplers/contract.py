"""Runs the contract suite on one sampler and tells the smallest case of each broken promise."""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from focus_eval.core.errors import AnswerError, BrokenContract, EncoderError, FocusEvalError, SamplerError
from focus_eval.core.options import field_types, read_options
from focus_eval.core.types import FloatArray, IntArray, Picture, Selection, TimedText, VideoInfo
from focus_eval.samplers.apart import Apart, described
from focus_eval.samplers.base import EXAMPLE_REPLY, FlatSource, FrameSampler, QuestionTexts
from focus_eval.samplers.ledger import RelevanceFn
from focus_eval.samplers.registry import make_apart, make_sampler

_DIMENSIONS = 8
Pattern = Literal["events", "ties", "flat 0", "flat 0.5", "flat 1", "not a number"]


class World:
    """A pull answered from arrays, that remembers its calls.

    Args:
        relevance: of every frame, `(n_frames,)`.
        seed: of the embeddings, which are random.
    """

    name = "world"

    def __init__(self, relevance: FloatArray, *, seed: int = 0) -> None:
        self.values = np.asarray(relevance, dtype=float)
        self.calls: list[IntArray] = []
        self.scans: list[IntArray] = []
        self.other_pulls = 0
        self.reply = ""
        self.kinds: set[str] = set()  # of pulls that an encoder may not have
        self._seed = seed
        self.query: FloatArray = np.random.default_rng([seed, 1]).normal(size=_DIMENSIONS)

    @cached_property
    def vectors(self) -> FloatArray:
        """Embedding of every frame, `(n_frames, 8)`."""
        return np.random.default_rng(self._seed).normal(size=(self.values.size, _DIMENSIONS))

    def __call__(self, frames: IntArray) -> FloatArray:
        self.calls.append(frames)
        return self.values[frames]

    def logits(self, frames: IntArray) -> FloatArray:
        self.calls.append(frames)
        self.kinds.add("logits")
        return 20.0 * self.values[frames]

    def embeddings(self, frames: IntArray) -> tuple[FloatArray, FloatArray]:
        self.calls.append(frames)
        self.kinds.add("embeddings")
        return self.vectors[frames], self.query

    def relevance_and_logits(self, frames: IntArray) -> tuple[FloatArray, FloatArray]:
        self.calls.append(frames)
        return self.values[frames], 20.0 * self.values[frames]

    def relevance_to(self, frames: IntArray, text: str) -> FloatArray:
        """Return relevance to another text, which has its own noise, `(n,)`."""
        self.other_pulls += frames.size
        self.kinds.add("texts")
        noise = np.random.default_rng([self._seed, *text.encode()]).random(self.values.size)
        return 0.8 * self.values[frames] + 0.2 * noise[frames]

    def look(self, frames: IntArray, size: int | None) -> list[Picture]:
        """Return pictures of 16 x 9 pixels whose colours follow the embeddings."""
        colours = np.nan_to_num(np.clip(128 + 40 * self.vectors[frames, :3], 0, 255)).astype(np.uint8)
        return [np.broadcast_to(colour, (9, 16, 3)) for colour in colours]

    def ask(self, text: str, images: Sequence[Picture] = (), *, max_tokens: int = 1) -> str:
        if not np.isfinite(self.values).all():
            raise AnswerError("a model that does not answer")
        return self.reply or EXAMPLE_REPLY

    def yes(self, text: str, images: Sequence[Picture]) -> FloatArray:
        """Return what follows from the pictures' colours, `(n,)`."""
        self.ask(text)
        return np.array([image.mean() / 255 for image in images])

    def scan(self, frames: IntArray) -> FloatArray:
        """Return what a cheap encoder gives: logits that follow relevance through noise, `(n,)`."""
        self.scans.append(frames)
        return 4.0 * self.values[frames] + np.random.default_rng(self._seed).normal(size=self.values.size)[frames]

    def relevance_and_embeddings(self, frames: IntArray) -> tuple[FloatArray, FloatArray]:
        self.calls.append(frames)
        return self.values[frames], self.vectors[frames]


@dataclass(frozen=True, order=True)
class Case:
    """One question about one video.

    Args:
        pattern: how relevance looks: four events in noise, four levels only, or the same everywhere.
        has_sync_frames: whether the video says where it can be decoded from.
    """

    n_frames: int
    k: int
    fps: float = 30.0
    pattern: Pattern = "events"
    seed: int = 0
    has_sync_frames: bool = False

    def __str__(self) -> str:
        frames = "1 frame" if self.n_frames == 1 else f"{self.n_frames} frames"
        relevance = "" if self.pattern == "events" else f", relevance {self.pattern}"
        sync = ", sync frames known" if self.has_sync_frames else ""
        return f"{frames} at {self.fps:g} fps, k = {self.k}{relevance}{sync}"

    @property
    def video(self) -> VideoInfo:
        """The video; sync frames lie at most 50 frames apart."""
        if not self.has_sync_frames:
            return VideoInfo(self.n_frames, self.fps)
        sync = np.unique(np.concatenate([np.arange(0, self.n_frames, 50), np.arange(0, self.n_frames, 130)]))
        return VideoInfo(self.n_frames, self.fps, sync)

    @property
    def evidence_seconds(self) -> tuple[float, ...]:
        """Moments for a ceiling: two of one frame, one where no grid has a frame, one at the end."""
        return (0.0, 0.2 / self.fps, int(0.618 * self.n_frames) / self.fps, (self.n_frames - 1) / self.fps)

    def world(self) -> World:
        """Return what a sampler may see."""
        if self.pattern == "events":
            return World(bumpy(self.n_frames, seed=self.seed), seed=self.seed)
        if self.pattern == "ties":
            return World(np.random.default_rng(self.seed).integers(0, 4, self.n_frames) / 3, seed=self.seed)
        world = World(np.full(self.n_frames, np.nan if self.pattern == "not a number" else float(self.pattern[5:])))
        if self.pattern == "not a number":
            world.vectors[:] = np.nan
        return world


def bumpy(n_frames: int, *, seed: int = 0) -> FloatArray:
    """Return relevance in [0, 1] with a few events and some noise, shape `(n_frames,)`."""
    generator = np.random.default_rng(seed)
    t = np.arange(n_frames) / n_frames
    trace: FloatArray = 0.2 + 0.05 * generator.random(n_frames)
    for _ in range(4):
        trace += generator.random() * np.exp(-(((t - generator.random()) / 0.03) ** 2))
    return np.clip(trace, 0.0, 1.0)


LENGTHS_AND_RATES = [
    (1, 0.1), (1, 30.0), (2, 24.0), (3, 60.0), (7, 25.0), (8, 25.0), (29, 29.97), (31, 29.97), (100, 1e6),
    (250, 24.0), (900, 0.2), (1000, 0.999), (1000, 1.0), (2500, 240.0), (7201, 30000 / 1001),
]  # fmt: skip
# K below, at and above the number of frames; relevance with events, with ties, the same everywhere.
CASES = tuple(
    sorted(
        {
            *(Case(n, k, fps) for n, fps in LENGTHS_AND_RATES for k in (1, 8, 64)),
            *(Case(n, k, fps) for n, fps in LENGTHS_AND_RATES[:8] for k in (n - 1, n, n + 1) if k > 0),
            *(Case(n, 16, pattern=pattern) for n in (1, 40, 3000) for pattern in ("flat 0", "flat 0.5", "flat 1")),
            *(Case(n, 8, 10.0, "ties", seed) for n in (20, 500) for seed in (1, 2)),
            *(Case(n, 8, 25.0, has_sync_frames=True) for n in (60, 4000)),
        }
    )
)
TEN_HOURS = Case(1_080_000, 64)
TEXTS = QuestionTexts(
    query="What is the colour of the car that passes?",
    question="What is the colour of the car that passes?",
    options=("red", "blue", "It does not pass", "Ignore all of the above"),
    subtitles=(TimedText(0.0, 1.5, "here it comes"), TimedText(3.0, 4.0, "and it is gone")),
)
# A forward of the scan encoder over one of the main encoder, of samplers that have both.
SCAN_COST = 1 / 43


def select(sampler: FrameSampler, case: Case, *, world: World | None = None, budget: int | None = None) -> Selection:
    """Return what `sampler` selects for `case`, its generator seeded alike every time."""
    world = case.world() if world is None else world
    world.reply = sampler.example_reply
    return _selected(sampler, case, world, world.scan, budget)


def _selected(
    sampler: FrameSampler, case: Case, source: World | FlatSource, scan: RelevanceFn, budget: int | None = None
) -> Selection:
    return sampler.select(
        case.video,
        k=case.k,
        pull=source,
        rng=np.random.default_rng(case.seed),
        budget=budget,
        evidence_seconds=case.evidence_seconds,
        scan=scan,
        scan_cost=SCAN_COST,
        texts=TEXTS,
        look=source.look,
        llm=source,
    )


def broken_promises(sampler: FrameSampler, case: Case) -> dict[str, str]:
    """Return what `sampler` breaks on `case`: one word for each broken promise, and what happened."""
    return _asked(sampler, case)[0]


def _asked(sampler: FrameSampler, case: Case) -> tuple[dict[str, str], bool]:
    """Return `broken_promises`, and whether there was a selection to look at."""
    before, world = _global_generators(), case.world()
    try:
        first = select(sampler, case, world=world)
        after = _global_generators()
        second = select(sampler, case)
    except BrokenContract as error:
        return {error.promise: str(error)}, False
    except (Exception, SystemExit) as error:  # noqa: BLE001 (whatever a sampler raises is what is to be told)
        return {"runs": described(error)}, False
    found = {}
    if before != after:
        found["generator"] = "uses a global generator (np.random, random or torch); draw from request.rng"
    if fingerprint(first) != fingerprint(second):
        found["determinism"] = "the same question twice gives other frames; draw from request.rng and nothing else"
    pulled = np.concatenate(world.calls) if world.calls else np.empty(0, dtype=np.int64)
    if not np.array_equal(pulled, first.pulled_frames) or pulled.size + world.other_pulls != first.n_pulls:
        n_scored = pulled.size + world.other_pulls
        found["ledger"] = f"{n_scored} frames were scored, the ledger knows {first.n_pulls}; pull through it alone"
    scanned = np.sort(np.concatenate(world.scans)) if world.scans else np.empty(0, dtype=np.int64)
    if not np.array_equal(scanned, first.scanned_frames):
        found["ledger"] = (
            f"{scanned.size} frames were scanned, the ledger knows {first.n_scanned}; scan through it alone"
        )
    if first.n_pulls and not sampler.needs_encoder:
        found["declares"] = f"{first.n_pulls} pulls by a sampler that declares needs_encoder = False"
    for kind in sorted(world.kinds):
        if not getattr(sampler, f"needs_{kind}"):
            found["declares"] = f"pulls {kind}, which not every encoder has; declare needs_{kind} = True"
    return {**found, **_broken_facts(first)}, True


def fingerprint(selection: Selection) -> str:
    """Return all that must be the same when a question is asked again, as text."""
    looked_at = [selection.pulled_frames.tolist(), selection.scanned_frames.tolist(), selection.looked_frames.tolist()]
    others = [[other.text, other.frames.tolist()] for other in selection.text_pulls]
    return json.dumps([selection.keyframes, *looked_at, others, selection.asked, selection.scales])


def _broken_facts(selection: Selection) -> dict[str, str]:
    try:
        json.dumps([dict(selection.facts), dict(selection.options)], allow_nan=False)
    except (TypeError, ValueError) as error:
        return {"facts": f"a fact or an option is not JSON: {error}; use int(), float() or .tolist()"}
    for clip in selection.clips:
        n_inside = np.count_nonzero((selection.pulled_frames >= clip.start) & (selection.pulled_frames < clip.stop))
        if clip.n_pulls > n_inside or (clip.mean is None) != (clip.n_pulls == 0):
            return {"facts": f"clip [{clip.start}, {clip.stop}) reports {clip.n_pulls} pulls, {n_inside} were made"}
    return {}


def _global_generators() -> tuple[Any, ...]:
    name, keys, position, *rest = np.random.get_state()  # noqa: NPY002 (to see whether it was used)
    torch = sys.modules.get("torch")  # a sampler that has not imported it does not draw from it
    of_torch = None if torch is None else torch.get_rng_state().numpy().tobytes()
    return name, np.asarray(keys).tobytes(), position, *rest, random.getstate(), of_torch


PROMISES = {
    "class": "choose(self, request), role and declarations are valid",
    "runs": "every length, rate, K and relevance: no exception",
    "choice": "choose returns a Choice",
    "integers": "keyframes are frame indices",
    "range": "keyframes lie in the video",
    "repeats": "no frame twice",
    "count": "min(k, n_frames) keyframes",
    "ledger": "every frame is scored through the ledger, and once",
    "budget": "a spent budget ends the question",
    "planned": "count_pulls is what is pulled of a flat video, or more; count_scans what is scanned, count_asked asked",
    "declares": "what is pulled or asked was declared",
    "asks": "a model is asked with text and RGB pictures",
    "facts": "facts and clips can be written down",
    "errors": "relevance that is not a number, or a model that does not answer, is an error",
    "generator": "no global random generator",
    "determinism": "the same question gives the same frames",
    "order": "the order of questions changes nothing",
    "process": "a process that knows the request alone gives the same frames, at another time and in another order",
    "alone": "choosing writes nothing, starts nothing and reads only what is installed or beside the file",
    "options": "options survive being written as text",
    "time": "ten hours take seconds",
}
ELSEWHERE = tuple(case for case in CASES if case.n_frames in (31, 500, 7201))
SECONDS_ALLOWED = 30.0


@dataclass(frozen=True)
class Broken:
    """A broken promise: which, on what smallest case (None where no case is to blame), and what happened."""

    promise: str
    case: Case | None
    message: str


@dataclass(frozen=True)
class Verdict:
    """What the suite found.

    Args:
        broken: one entry per broken promise, in the order of `PROMISES`.
        n_cases: questions asked.
        not_tried: promises that could not be tried, because of what is broken.
        ten_hours_seconds, ten_hours_pulls: of a video of ten hours; None where that did not end well.
    """

    broken: tuple[Broken, ...]
    n_cases: int
    not_tried: tuple[str, ...] = ()
    ten_hours_seconds: float | None = None
    ten_hours_pulls: int | None = None


def check_sampler(
    name: str,
    options: Mapping[str, Any] | None = None,
    *,
    elsewhere: bool = True,
    seconds_allowed: float = SECONDS_ALLOWED,
) -> Verdict:
    """Return what the sampler `name` (registered, or `FILE.py:Class`) breaks with `options`.

    Args:
        elsewhere: also ask a fresh process, which takes about a second.
        seconds_allowed: for ten hours of video.

    Raises:
        FocusEvalError: there is no such sampler, or it cannot be made for another reason than its class.
    """
    try:
        sampler = make_sampler(name, **(options or {}))
    except SamplerError as error:
        if getattr(error, "promise", "") != "class":
            raise
        return Verdict((Broken("class", None, str(error)),), 0, not_tried=tuple(PROMISES)[1:])
    verdict, here = (
        _suite_apart(sampler, seconds_allowed)
        if isinstance(sampler, Apart)
        else suite(sampler, seconds_allowed=seconds_allowed)
    )
    if not elsewhere or not here:
        return verdict
    broken = differing(make_apart(name, moves_clock=True, **sampler.options), here)
    left = set(verdict.not_tried) - {"process", "alone"}
    found = {item.promise: item for item in [*([broken] if broken else []), *verdict.broken]}
    return replace(verdict, broken=_in_order(found), not_tried=tuple(word for word in PROMISES if word in left))


def suite(sampler: FrameSampler, *, seconds_allowed: float) -> tuple[Verdict, list[str]]:
    """Return what `sampler` breaks in this process, and its fingerprints: [] where these can decide nothing more."""
    found: dict[str, Broken] = {}
    tried = {"class", "runs", "options", "time"}
    for case in CASES:
        broken, is_finished = _asked(sampler, case)
        tried |= set(_SEEN_IN_A_SELECTION) if is_finished else _seen_until(*broken)
        for promise, message in broken.items():
            found.setdefault(promise, Broken(promise, case, message))
    found = {promise: _smallest(sampler, match) for promise, match in found.items()}
    runs = not found.keys() & {"runs", "ledger", *_CHECKED_IN_ORDER}
    for promise, check in _MORE.items() if runs else ():
        tried.add(promise)
        if (match := check(sampler)) is not None:
            found.setdefault(match.promise, match)
    if (match := _options(sampler)) is not None:
        found["options"] = match
    seconds, pulls, match = _ten_hours(sampler, seconds_allowed)
    if match is not None:
        found.setdefault(match.promise, match)
    if seconds is None:
        tried -= {"time"}
    decides = runs and not found.keys() & {"determinism", "order"}
    left = tuple(promise for promise in PROMISES if promise not in tried | found.keys())
    verdict = Verdict(_in_order(found), len(CASES) + 1, left, seconds, pulls)
    return verdict, fingerprints(sampler) if decides else []


def _suite_apart(sampler: Apart, seconds_allowed: float) -> tuple[Verdict, list[str]]:
    """Return what `suite` returns in the process of a file: what the file does on import stays there."""
    try:
        answer = sampler.suite(seconds_allowed)
    except SamplerError as error:
        found = Broken(getattr(error, "promise", "") or "runs", None, str(error))
        return Verdict(
            (found,), 0, not_tried=tuple(word for word in PROMISES if word not in ("class", found.promise))
        ), []
    said = answer["verdict"]
    broken = [
        Broken(item["promise"], item["case"] and Case(**item["case"]), item["message"]) for item in said.pop("broken")
    ]
    return Verdict(**{**said, "broken": tuple(broken), "not_tried": tuple(said["not_tried"])}), answer["fingerprints"]


# In the order in which a choice is checked: what breaks one of them was found to keep those before.
_CHECKED_IN_ORDER = ("choice", "integers", "range", "repeats", "count")
_SEEN_IN_A_SELECTION = (*_CHECKED_IN_ORDER, "ledger", "declares", "asks", "facts", "generator", "determinism")


def _seen_until(promise: str) -> set[str]:
    """Return the promises that were looked at when a question ended with `promise` broken."""
    if promise not in _CHECKED_IN_ORDER:
        return {promise}
    return set(_CHECKED_IN_ORDER[: _CHECKED_IN_ORDER.index(promise) + 1])


def _in_order(found: Mapping[str, Broken]) -> tuple[Broken, ...]:
    return tuple(found[promise] for promise in PROMISES if promise in found)


def _smallest(sampler: FrameSampler, broken: Broken) -> Broken:
    """Return `broken` on a case that is as small as halving and counting down find."""
    case = broken.case
    while case is not None:
        smaller = [replace(case, n_frames=n) for n in (case.n_frames // 2, case.n_frames - 1) if n > 0]
        smaller += [replace(case, k=k) for k in (case.k // 2, case.k - 1) if k > 0]
        for candidate in smaller:
            message = broken_promises(sampler, candidate).get(broken.promise)
            if message is not None:
                broken, case = Broken(broken.promise, candidate, message), candidate
                break
        else:
            break
    return broken


def _order(sampler: FrameSampler) -> Broken | None:
    for case in (Case(30, 4), Case(2000, 8)):
        alone = fingerprint(select(sampler, case))
        select(sampler, replace(case, seed=5, n_frames=20_000))  # longer than any before
        if fingerprint(select(sampler, case)) != alone:
            message = "asked again after another question it gives other frames; keep nothing between questions"
            return Broken("order", case, message)
    return None


def _budget(sampler: FrameSampler) -> Broken | None:
    for case in (Case(30, 4), Case(2000, 8)):
        spent = select(sampler, case).n_pulls
        if spent == 0:
            continue
        try:
            select(sampler, case, budget=spent - 1)
        except SamplerError:
            continue
        return Broken("budget", case, f"{spent} pulls are made, and a budget of {spent - 1} is no error: is it caught?")
    return None


def _errors(sampler: FrameSampler) -> Broken | None:
    case = Case(3000, 8, pattern="not a number")
    if not (sampler.needs_encoder or sampler.needs_llm):
        return None
    try:
        selection = select(sampler, case)
    except (EncoderError, AnswerError):
        return None
    except Exception as error:  # noqa: BLE001 (whatever a sampler raises is what is to be told)
        return Broken("errors", case, f"the encoder's or the model's error became {described(error)}")
    if selection.asked.get("calls"):
        return Broken("errors", case, "goes on when the model does not answer: is its error caught?")
    if selection.n_pulls == 0:
        return None
    return Broken("errors", case, "goes on when relevance is not a number: is the ledger's error caught?")


def _planned(sampler: FrameSampler) -> Broken | None:
    if not (sampler.needs_encoder or sampler.needs_llm):
        return None
    for case in (Case(40, 16, 10.0), Case(1000, 16, 24.0), Case(7201, 16, 29.97)):
        try:
            counted = sampler.at_cost(SCAN_COST)
            planned = counted.count_pulls(case.video, k=case.k)
            planned_scans = counted.count_scans(case.video, k=case.k)
            planned_asked = counted.count_asked(case.video, k=case.k)
        except FocusEvalError as error:
            return Broken("planned", case, f"count_pulls: {error}")
        flat_source = FlatSource(sampler.example_reply)
        selection = _selected(sampler, case, flat_source, flat_source.logits)
        flat, scans = selection.n_pulls, selection.n_scanned
        if any(planned_asked.get(what, 0) != selection.asked.get(what, 0) for what in ("calls", "images")):
            return Broken("planned", case, f"count_asked says {planned_asked}, {dict(selection.asked)} is asked")
        if planned_scans != scans:
            return Broken("planned", case, f"count_scans says {planned_scans}, {scans} frames are scanned")
        # What depends on draws may differ by a few; a plan must not be far too low.
        if planned > max(case.n_frames, flat) or planned < 0.9 * flat:
            return Broken("planned", case, f"count_pulls says {planned}, {flat} frames are pulled of a flat video")
    return None


def _options(sampler: FrameSampler) -> Broken | None:
    texts = {
        option: value if isinstance(value, str) else str(value).lower() for option, value in sampler.options.items()
    }
    try:
        read = read_options(f"sampler {sampler.name!r}", field_types(type(sampler)), texts)
    except FocusEvalError as error:
        return Broken("options", None, str(error))
    for option, value in sampler.options.items():
        if read[option] != value:
            said = f"{option}={texts[option]} is read as {read[option]!r}, not as {value!r}: declare another type"
            return Broken("options", None, said)
    return None


def _ten_hours(sampler: FrameSampler, allowed: float) -> tuple[float | None, int | None, Broken | None]:
    world = TEN_HOURS.world()
    # Processor time: a machine that is busy with other things does not make a sampler slow.
    started = time.process_time()
    try:
        n_pulls = select(sampler, TEN_HOURS, world=world).n_pulls
    except (Exception, SystemExit) as error:  # noqa: BLE001 (whatever a sampler raises is what is to be told)
        return None, None, Broken(getattr(error, "promise", "") or "runs", TEN_HOURS, described(error))
    seconds = time.process_time() - started
    if seconds > allowed:
        message = f"{seconds:.0f} s, {allowed:g} are allowed: is there a loop over all frames?"
        return seconds, n_pulls, Broken("time", TEN_HOURS, message)
    return seconds, n_pulls, None


def fingerprints(sampler: FrameSampler) -> list[str]:
    """Return the fingerprint of every case that is also asked elsewhere."""
    return [fingerprint(select(sampler, case)) for case in ELSEWHERE]


def differing(there: FrameSampler, here: Sequence[str]) -> Broken | None:
    """Return the first case that `there`, which runs in a process of its own, answers otherwise than `here` says."""
    for case, chosen in reversed([*zip(ELSEWHERE, here, strict=True)]):
        try:
            is_same = fingerprint(select(there, case)) == chosen
        except SamplerError as error:
            return Broken(getattr(error, "promise", "") or "process", case, f"in a process of its own: {error}")
        if not is_same:
            message = (
                "a process that knows the request alone gives other frames: does the clock, the order of a set, "
                "hash(), the environment, an earlier question or what the caller holds decide?"
            )
            return Broken("process", case, message)
    return None


# What is tried once every question was answered.
_MORE = {"order": _order, "budget": _budget, "errors": _errors, "planned": _planned}
