"""Checks a sampler against the sampler contract, and reduces each broken promise to its smallest case.

    verdict = check_sampler("peaks.py:Peaks")
    print([broken.promise for broken in verdict.broken])

The checks detect mistakes: state between questions, uncounted pulls, draws from a global generator. They do not detect
deliberate cheating.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from focus_eval.core.errors import AnswerError, BrokenContract, EncoderError, FocusEvalError, SamplerError
from focus_eval.core.options import field_types, named_options, read_options
from focus_eval.core.types import (
    Selection,
    TimedText,
    VideoInfo,
)
from focus_eval.keyframes.samplers.base import FlatSource, FrameSampler, QuestionTexts
from focus_eval.keyframes.samplers.sources import ArraySource, bumpy
from focus_eval.lab.subprocess_sampler import SubprocessSampler, error_line, make_apart, make_in_subprocess

Pattern = Literal["events", "ties", "flat 0", "flat 0.5", "flat 1", "not a number"]


@dataclass(frozen=True, order=True)
class Case:
    """One test question about one video.

    Args:
        n_frames, fps: length and rate of the video.
        k: requested keyframes.
        pattern: relevance over time: "events" for four peaks in noise, "ties" for four levels, "flat" and a value for
            constant relevance, "not a number" for NaN.
        seed: seeds the relevance and the sampler's generator.
        has_sync_frames: True if the video lists its sync frames.
    """

    n_frames: int
    k: int
    fps: float = 30.0
    pattern: Pattern = "events"
    seed: int = 0
    has_sync_frames: bool = False

    def __str__(self) -> str:
        """Return the case as a phrase for messages."""
        frames = "1 frame" if self.n_frames == 1 else f"{self.n_frames} frames"
        relevance = "" if self.pattern == "events" else f", relevance {self.pattern}"
        sync = ", sync frames known" if self.has_sync_frames else ""
        return f"{frames} at {self.fps:g} fps, k = {self.k}{relevance}{sync}"

    @property
    def video(self) -> VideoInfo:
        """Length and rate of the video, with sync frames at most 50 frames apart if `has_sync_frames`."""
        if not self.has_sync_frames:
            return VideoInfo(self.n_frames, self.fps)
        sync = np.unique(np.concatenate([np.arange(0, self.n_frames, 50), np.arange(0, self.n_frames, 130)]))
        return VideoInfo(self.n_frames, self.fps, sync)

    @property
    def evidence_seconds(self) -> tuple[float, ...]:
        """Evidence moments for ceilings: two in the first frame, one off every grid, and one in the last frame."""
        return (0.0, 0.2 / self.fps, int(0.618 * self.n_frames) / self.fps, (self.n_frames - 1) / self.fps)

    def source(self) -> ArraySource:
        """Return the source of relevance, embeddings and pictures of this case."""
        if self.pattern == "events":
            return ArraySource(bumpy(self.n_frames, seed=self.seed), seed=self.seed)
        if self.pattern == "ties":
            return ArraySource(np.random.default_rng(self.seed).integers(0, 4, self.n_frames) / 3, seed=self.seed)
        source = ArraySource(
            np.full(self.n_frames, np.nan if self.pattern == "not a number" else float(self.pattern[5:]))
        )
        if self.pattern == "not a number":
            source.vectors[:] = np.nan
        return source


LENGTHS_AND_RATES = [
    (1, 0.1), (1, 30.0), (2, 24.0), (3, 60.0), (7, 25.0), (8, 25.0), (29, 29.97), (31, 29.97), (100, 1e6),
    (250, 24.0), (900, 0.2), (1000, 0.999), (1000, 1.0), (2500, 240.0), (7201, 30000 / 1001),
]  # fmt: skip
# Cases with K below, at and above the number of frames, with relevance of each pattern, and with sync frames.
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
# Cost of one forward of the scan encoder, divided by that of the main encoder.
SCAN_COST = 1 / 43


def select(
    sampler: FrameSampler, case: Case, *, source: ArraySource | FlatSource | None = None, budget: int | None = None
) -> Selection:
    """Run `sampler` on `case` with a generator seeded from the case, and return the selection.

    Args:
        source: source of relevance, embeddings and pictures, which records requests; None for a new `case.source()`.
        budget: largest number of pulls allowed; None for no limit.
    """
    source = case.source() if source is None else source
    source.reply = sampler.example_reply
    return sampler.select(
        case.video,
        k=case.k,
        pull=source,
        rng=np.random.default_rng(case.seed),
        budget=budget,
        evidence_seconds=case.evidence_seconds,
        scan=source.scan,
        scan_cost=SCAN_COST,
        texts=TEXTS,
        look=source.look,
        llm=source,
    )


def broken_promises(sampler: FrameSampler, case: Case) -> dict[str, str]:
    """Return the promises that `sampler` breaks on `case`: messages by the promise's name; {} for none."""
    return _try_case(sampler, case)[0]


def _try_case(sampler: FrameSampler, case: Case) -> tuple[dict[str, str], bool]:
    """The result of `broken_promises`, and True if the sampler made a selection that could be checked."""
    generators, source = _global_generators(), case.source()
    try:
        first = select(sampler, case, source=source)
        is_generator_used = _global_generators() != generators
        second = select(sampler, case)
    except BrokenContract as error:
        return {error.promise: str(error)}, False
    except (Exception, SystemExit) as error:  # noqa: BLE001 (whatever a sampler raises is reported)
        return {"runs": error_line(error)}, False
    messages = {}
    if is_generator_used:
        messages["generator"] = "uses a global generator (np.random, random or torch); draw from request.rng"
    if fingerprint(first) != fingerprint(second):
        messages["determinism"] = "the same question twice gives other frames; draw from request.rng and nothing else"
    messages |= _broken_ledger(first, source)
    if first.n_pulls and not sampler.needs_encoder:
        messages["declares"] = f"{first.n_pulls} pulls by a sampler that declares needs_encoder = False"
    for kind in sorted(source.kinds):
        if not getattr(sampler, f"needs_{kind}"):
            messages["declares"] = f"pulls {kind}, which not every encoder has; declare needs_{kind} = True"
    return {**messages, **_broken_facts(first)}, True


def _broken_ledger(selection: Selection, source: ArraySource) -> dict[str, str]:
    """{"ledger": message} if the selection does not list exactly the frames asked of `source`; else {}."""
    pulled = np.concatenate(source.calls) if source.calls else np.empty(0, dtype=np.int64)
    n_scored = pulled.size + source.other_pulls
    if not np.array_equal(pulled, selection.pulled_frames) or n_scored != selection.n_pulls:
        message = f"{n_scored} frames were scored, the ledger has {selection.n_pulls}; pull through it alone"
        return {"ledger": message}
    scanned = np.sort(np.concatenate(source.scans)) if source.scans else np.empty(0, dtype=np.int64)
    if not np.array_equal(scanned, selection.scanned_frames):
        message = f"{scanned.size} frames were scanned, the ledger has {selection.n_scanned}; scan through it alone"
        return {"ledger": message}
    return {}


def fingerprint(selection: Selection) -> str:
    """Return as JSON the parts of a selection that must not change when the same question is asked again."""
    frames = [selection.pulled_frames.tolist(), selection.scanned_frames.tolist(), selection.looked_frames.tolist()]
    text_pulls = [[pulls.text, pulls.frames.tolist()] for pulls in selection.text_pulls]
    return json.dumps([selection.keyframes, *frames, text_pulls, selection.model_usage, selection.scales])


def _broken_facts(selection: Selection) -> dict[str, str]:
    """{"facts": message} if facts or options are no JSON, or clips report more pulls than were made; else {}."""
    try:
        json.dumps([dict(selection.facts), dict(selection.options)], allow_nan=False)
    except (TypeError, ValueError) as error:
        return {"facts": f"a fact or an option is not JSON: {error}; use int(), float() or .tolist()"}
    for clip in selection.clips:
        n_inside = np.count_nonzero((selection.pulled_frames >= clip.start) & (selection.pulled_frames < clip.stop))
        if clip.n_pulls > n_inside or (clip.mean is None) != (clip.n_pulls == 0):
            return {"facts": f"clip [{clip.start}, {clip.stop}) reports {clip.n_pulls} pulls, {n_inside} were made"}
    return {}


def _global_generators() -> tuple[object, ...]:
    """The states of the global generators of NumPy, Python and torch; unequal after a draw from one."""
    name, keys, *position = np.random.get_state()  # noqa: NPY002 (to see whether it was used)
    torch = sys.modules.get("torch")  # torch is checked only if the sampler imported it
    torch_state = None if torch is None else torch.get_rng_state().numpy().tobytes()
    return name, np.asarray(keys).tobytes(), *position, random.getstate(), torch_state


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
    "planned": "the counts of pulls, scans and model usage that a plan asks for hold for a flat video",
    "declares": "what is pulled, asked or drawn was declared",
    "asks": "a model is asked with text and RGB pictures",
    "facts": "facts and clips can be written down",
    "errors": "relevance that is not a number, or a model that does not answer, is an error",
    "generator": "no global random generator",
    "determinism": "the same question gives the same frames",
    "order": "the order of questions changes nothing",
    "process": "a second process, started anew and asked in another order, gives the same frames",
    "options": "options survive being written as text",
    "time": "ten hours take seconds",
}
# The cases that are repeated in a second process.
SECOND_START_CASES = tuple(case for case in CASES if case.n_frames in (31, 500, 7201))
SECONDS_ALLOWED = 30.0


@dataclass(frozen=True)
class BrokenPromise:
    """A broken promise: its name, the smallest case that shows the fault (None for no case), and a message."""

    promise: str
    case: Case | None
    message: str


@dataclass(frozen=True)
class CheckResult:
    """The result of the contract suite.

    Args:
        broken: one entry per broken promise, in the order of `PROMISES`.
        n_cases: number of test questions asked.
        not_tried: promises that could not be checked because another promise is broken.
        ten_hours_seconds, ten_hours_pulls: processor seconds and pulls on a video of ten hours; None if the sampler
            failed on it.
    """

    broken: tuple[BrokenPromise, ...]
    n_cases: int
    not_tried: tuple[str, ...] = ()
    ten_hours_seconds: float | None = None
    ten_hours_pulls: int | None = None


def check_sampler(
    name: str,
    options: Mapping[str, object] | None = None,
    *,
    with_second_start: bool = True,
    seconds_allowed: float = SECONDS_ALLOWED,
) -> CheckResult:
    """Run all contract checks on the sampler `name` (registered, or `FILE.py:Class`) with `options`.

    Args:
        name: name of the sampler, with or without options: `focus:alpha=0.5`.
        with_second_start: also compare with a newly started process, which takes about a second.
        seconds_allowed: limit of processor seconds for a video of ten hours.

    Raises:
        FocusEvalError: there is no such sampler, or it cannot be made for another reason than its class.
    """
    name, values = named_options(name, options or {})
    try:
        sampler = make_apart(name, **values)
    except SamplerError as error:
        if getattr(error, "promise", "") != "class":
            raise
        return CheckResult((BrokenPromise("class", None, str(error)),), 0, not_tried=tuple(PROMISES)[1:])
    verdict, first_fingerprints = (
        _suite_in_subprocess(sampler, seconds_allowed)
        if isinstance(sampler, SubprocessSampler)
        else suite(sampler, seconds_allowed=seconds_allowed)
    )
    if not with_second_start or not first_fingerprints:
        return verdict
    second = make_in_subprocess(name, sampler.options, has_other_hash_seed=True)
    difference = first_difference(second, first_fingerprints)
    broken = {item.promise: item for item in [*([difference] if difference else []), *verdict.broken]}
    not_tried = tuple(promise for promise in verdict.not_tried if promise != "process")
    return replace(verdict, broken=_in_order(broken), not_tried=not_tried)


def suite(sampler: FrameSampler, *, seconds_allowed: float) -> tuple[CheckResult, list[str]]:
    """Run the checks in this process; return their result and the sampler's `fingerprints`.

    The fingerprints are [] if the sampler fails or does not repeat its choices: comparing processes is then useless.
    """
    broken: dict[str, BrokenPromise] = {}
    tried = {"class", "runs", "options", "time"}
    for case in CASES:
        messages, is_finished = _try_case(sampler, case)
        tried |= set(_PROMISES_OF_A_SELECTION) if is_finished else _promises_tried_until(*messages)
        for promise, message in messages.items():
            broken.setdefault(promise, BrokenPromise(promise, case, message))
    broken = {promise: _smallest(sampler, item) for promise, item in broken.items()}
    runs = not broken.keys() & {"runs", "ledger", *_PROMISES_OF_A_CHOICE}
    for promise, check in _LATER_CHECKS.items() if runs else ():
        tried.add(promise)
        if (item := check(sampler)) is not None:
            broken.setdefault(item.promise, item)
    if (item := _check_options(sampler)) is not None:
        broken["options"] = item
    seconds, pulls, item = _check_ten_hours(sampler, seconds_allowed)
    if item is not None:
        broken.setdefault(item.promise, item)
    if seconds is None:
        tried -= {"time"}
    not_tried = tuple(promise for promise in PROMISES if promise not in tried | broken.keys())
    verdict = CheckResult(_in_order(broken), len(CASES) + 1, not_tried, seconds, pulls)
    is_repeatable = runs and not broken.keys() & {"determinism", "order"}
    return verdict, fingerprints(sampler) if is_repeatable else []


def _suite_in_subprocess(sampler: SubprocessSampler, seconds_allowed: float) -> tuple[CheckResult, list[str]]:
    """Run `suite` in the process of the sampler's file and return its result."""
    try:
        return sampler.suite(seconds_allowed)
    except SamplerError as error:
        item = BrokenPromise(getattr(error, "promise", "") or "runs", None, str(error))
        not_tried = tuple(promise for promise in PROMISES if promise not in ("class", item.promise))
        return CheckResult((item,), 0, not_tried=not_tried), []


# Promises in the order of their checks: a check that finds one broken has found all earlier ones kept.
_PROMISES_OF_A_CHOICE = ("choice", "integers", "range", "repeats", "count")
_PROMISES_OF_A_SELECTION = (
    *_PROMISES_OF_A_CHOICE, "ledger", "declares", "asks", "facts", "generator", "determinism",
)  # fmt: skip


def _promises_tried_until(promise: str) -> set[str]:
    """The promises that have been checked when the checks of a question end with `promise` broken."""
    if promise not in _PROMISES_OF_A_CHOICE:
        return {promise}
    return set(_PROMISES_OF_A_CHOICE[: _PROMISES_OF_A_CHOICE.index(promise) + 1])


def _in_order(broken: Mapping[str, BrokenPromise]) -> tuple[BrokenPromise, ...]:
    """The broken promises in the order of `PROMISES`."""
    return tuple(broken[promise] for promise in PROMISES if promise in broken)


def _smallest(sampler: FrameSampler, broken: BrokenPromise) -> BrokenPromise:
    """`broken` with the smallest case found by halving and decrementing `n_frames` and `k`."""
    case = broken.case
    while case is not None:
        smaller = [replace(case, n_frames=n) for n in (case.n_frames // 2, case.n_frames - 1) if n > 0]
        smaller += [replace(case, k=k) for k in (case.k // 2, case.k - 1) if k > 0]
        for candidate in smaller:
            message = broken_promises(sampler, candidate).get(broken.promise)
            if message is not None:
                broken, case = BrokenPromise(broken.promise, candidate, message), candidate
                break
        else:
            break
    return broken


def _check_order(sampler: FrameSampler) -> BrokenPromise | None:
    """A broken promise if asking a second question changes the frames of the first; else None."""
    for case in (Case(30, 4), Case(2000, 8)):
        first = fingerprint(select(sampler, case))
        select(sampler, replace(case, seed=5, n_frames=20_000))  # longer than any earlier case
        if fingerprint(select(sampler, case)) != first:
            message = "asked again after another question it gives other frames; keep nothing between questions"
            return BrokenPromise("order", case, message)
    return None


def _check_budget(sampler: FrameSampler) -> BrokenPromise | None:
    """A broken promise if a budget smaller than the number of pulls raises no error; else None."""
    for case in (Case(30, 4), Case(2000, 8)):
        n_pulls = select(sampler, case).n_pulls
        if n_pulls == 0:
            continue
        try:
            select(sampler, case, budget=n_pulls - 1)
        except SamplerError:
            continue
        message = f"{n_pulls} pulls are made, and a budget of {n_pulls - 1} is no error: is it caught?"
        return BrokenPromise("budget", case, message)
    return None


def _check_errors(sampler: FrameSampler) -> BrokenPromise | None:
    """A broken promise if the sampler catches or changes an error of the encoder or the model; else None."""
    case = Case(3000, 8, pattern="not a number")
    if not (sampler.needs_encoder or sampler.needs_llm):
        return None
    try:
        selection = select(sampler, case)
    except (EncoderError, AnswerError):
        return None
    except Exception as error:  # noqa: BLE001 (whatever a sampler raises is reported)
        return BrokenPromise("errors", case, f"the encoder's or the model's error became {error_line(error)}")
    if selection.model_usage.get("calls"):
        return BrokenPromise("errors", case, "goes on when the model does not answer: is its error caught?")
    if selection.n_pulls == 0:
        return None
    return BrokenPromise("errors", case, "goes on when relevance is not a number: is the ledger's error caught?")


def _check_plan(sampler: FrameSampler) -> BrokenPromise | None:
    """A broken promise if counting pulls fails, or differs from a run on constant relevance; else None."""
    if not (sampler.needs_encoder or sampler.needs_llm):
        return None
    for case in (Case(40, 16, 10.0), Case(1000, 16, 24.0), Case(7201, 16, 29.97)):
        try:
            planned = sampler.at_cost(SCAN_COST)
            n_pulls = planned.count_pulls(case.video, k=case.k)
            n_scans = planned.count_scans(case.video, k=case.k)
            usage = planned.count_model_usage(case.video, k=case.k)
        except FocusEvalError as error:
            return BrokenPromise("planned", case, f"count_pulls: {error}")
        flat = select(sampler, case, source=FlatSource())
        if any(usage.get(name, 0) != flat.model_usage.get(name, 0) for name in ("calls", "images")):
            message = f"count_model_usage says {usage}, a flat video takes {dict(flat.model_usage)}"
            return BrokenPromise("planned", case, message)
        if n_scans != flat.n_scanned:
            message = f"count_scans says {n_scans}, {flat.n_scanned} frames are scanned"
            return BrokenPromise("planned", case, message)
        # Allow for random draws, which change the number of pulls a little. Refuse a count that is far too low.
        if n_pulls > max(case.n_frames, flat.n_pulls) or n_pulls < 0.9 * flat.n_pulls:
            message = f"count_pulls says {n_pulls}, {flat.n_pulls} frames are pulled of a flat video"
            return BrokenPromise("planned", case, message)
    return None


def _check_options(sampler: FrameSampler) -> BrokenPromise | None:
    """A broken promise if an option written as text is not read back with the same value; else None."""
    texts = {
        option: value if isinstance(value, str) else str(value).lower() for option, value in sampler.options.items()
    }
    try:
        parsed = read_options(f"sampler {sampler.name!r}", field_types(type(sampler)), texts)
    except FocusEvalError as error:
        return BrokenPromise("options", None, str(error))
    for option, value in sampler.options.items():
        if parsed[option] != value:
            message = f"{option}={texts[option]} is read as {parsed[option]!r}, not as {value!r}: declare another type"
            return BrokenPromise("options", None, message)
    return None


def _check_ten_hours(
    sampler: FrameSampler, seconds_allowed: float
) -> tuple[float | None, int | None, BrokenPromise | None]:
    """Processor seconds and pulls on a ten-hour video, and the broken promise; each None if there is none."""
    source = TEN_HOURS.source()
    # Measure processor time, so that a busy machine does not make a sampler look slow.
    start = time.process_time()
    try:
        n_pulls = select(sampler, TEN_HOURS, source=source).n_pulls
    except (Exception, SystemExit) as error:  # noqa: BLE001 (whatever a sampler raises is reported)
        return None, None, BrokenPromise(getattr(error, "promise", "") or "runs", TEN_HOURS, error_line(error))
    seconds = time.process_time() - start
    if seconds > seconds_allowed:
        message = f"{seconds:.0f} s, {seconds_allowed:g} are allowed: is there a loop over all frames?"
        return seconds, n_pulls, BrokenPromise("time", TEN_HOURS, message)
    return seconds, n_pulls, None


def fingerprints(sampler: FrameSampler) -> list[str]:
    """Return the fingerprint of the selection for each of `SECOND_START_CASES`, in their order."""
    return [fingerprint(select(sampler, case)) for case in SECOND_START_CASES]


def first_difference(second: FrameSampler, first_fingerprints: Sequence[str]) -> BrokenPromise | None:
    """Return the broken promise of the first case whose fingerprint differs or that fails; None if all agree.

    Args:
        second: the sampler in a newly started process; asked the cases in reverse order.
        first_fingerprints: result of `fingerprints` in the first process.
    """
    for case, expected in reversed([*zip(SECOND_START_CASES, first_fingerprints, strict=True)]):
        try:
            is_same = fingerprint(select(second, case)) == expected
        except SamplerError as error:
            message = f"in a process of its own: {error}"
            return BrokenPromise(getattr(error, "promise", "") or "process", case, message)
        if not is_same:
            message = (
                "a second process gives other frames: does hash(), the order of a set, something drawn on import, the "
                "environment, an earlier question or what the caller holds decide?"
            )
            return BrokenPromise("process", case, message)
    return None


# Checks of several questions, which need a sampler that runs.
_LATER_CHECKS = {"order": _check_order, "budget": _check_budget, "errors": _check_errors, "planned": _check_plan}
