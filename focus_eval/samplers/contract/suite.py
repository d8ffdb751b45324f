"""Runs the contract suite on one sampler and tells the smallest case of each broken promise."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from focus_eval.errors import EncoderError, FocusEvalError, SamplerError
from focus_eval.samplers.base import FlatSource, FrameSampler
from focus_eval.samplers.contract.cases import CASES, TEN_HOURS, Case
from focus_eval.samplers.contract.once import broken_promises, described, fingerprint, select
from focus_eval.samplers.registry import make_sampler, parse_options

PROMISES = {
    "class": "choose(self, request), role and declarations are as they must be",
    "runs": "every length, rate, K and relevance: no exception",
    "choice": "choose returns a Choice",
    "integers": "keyframes are frame indices",
    "range": "keyframes lie in the video",
    "repeats": "no frame twice",
    "count": "min(k, n_frames) keyframes",
    "ledger": "every frame is scored through the ledger, and once",
    "budget": "a spent budget ends the question",
    "planned": "count_pulls is what is pulled of a flat video, or more",
    "declares": "what is pulled was declared",
    "facts": "facts and clips can be written down",
    "errors": "relevance that is not a number is an error",
    "generator": "no global random generator",
    "determinism": "the same question gives the same frames",
    "order": "the order of questions changes nothing",
    "process": "another process gives the same frames, at another time and in another order",
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
    found: dict[str, Broken] = {}
    for case in CASES:
        for promise, message in broken_promises(sampler, case).items():
            found.setdefault(promise, Broken(promise, case, message))
    found = {promise: _smallest(sampler, match) for promise, match in found.items()}
    runs = not found.keys() & {"runs", "choice", "integers", "range", "repeats", "count", "ledger"}
    for check in [_order, _budget, _errors, _planned] if runs else []:
        if (broken := check(sampler)) is not None:
            found.setdefault(broken.promise, broken)
    if (broken := _options(name, sampler)) is not None:
        found["options"] = broken
    seconds, pulls, broken = _ten_hours(sampler, seconds_allowed)
    if broken is not None:
        found.setdefault(broken.promise, broken)
    tries_elsewhere = elsewhere and runs and not found.keys() & {"determinism", "order"}
    if tries_elsewhere:
        (there,) = fingerprints_elsewhere([(name, dict(sampler.options))])
        if (broken := differing(there, fingerprints(sampler))) is not None:
            found.setdefault(broken.promise, broken)
    in_order = tuple(found[promise] for promise in PROMISES if promise in found)
    tried = {
        "budget": runs, "planned": runs, "errors": runs, "order": runs,
        "time": seconds is not None, "process": tries_elsewhere or not elsewhere,
    }  # fmt: skip
    left = tuple(promise for promise, is_tried in tried.items() if not is_tried and promise not in found)
    return Verdict(in_order, len(CASES) + 1, left, seconds, pulls)


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
    if not sampler.needs_encoder:
        return None
    try:
        selection = select(sampler, case)
    except EncoderError:
        return None
    except Exception as error:  # noqa: BLE001 (whatever a sampler raises is what is to be told)
        return Broken("errors", case, f"the encoder's error became {described(error)}")
    if selection.n_pulls == 0:
        return None
    return Broken("errors", case, "goes on when relevance is not a number: is the ledger's error caught?")


def _planned(sampler: FrameSampler) -> Broken | None:
    for case in (Case(40, 16, 10.0), Case(1000, 16, 24.0), Case(7201, 16, 29.97)):
        if not sampler.needs_encoder:
            return None
        try:
            planned = sampler.count_pulls(case.video, k=case.k)
        except FocusEvalError as error:
            return Broken("planned", case, f"count_pulls: {error}")
        flat = sampler.select(
            case.video,
            k=case.k,
            pull=FlatSource(),
            rng=np.random.default_rng(case.seed),
            evidence_seconds=case.evidence_seconds,
        ).n_pulls
        # What depends on draws may differ by a few; a plan must not be far too low.
        if planned > case.n_frames or planned < 0.9 * flat:
            return Broken("planned", case, f"count_pulls says {planned}, {flat} frames are pulled of a flat video")
    return None


def _options(name: str, sampler: FrameSampler) -> Broken | None:
    texts = {
        option: value if isinstance(value, str) else str(value).lower() for option, value in sampler.options.items()
    }
    try:
        read = parse_options(name, texts)
    except FocusEvalError as error:
        return Broken("options", None, str(error))
    if read != sampler.options:
        return Broken("options", None, f"{texts} is read as {read}")
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


def differing(there: list[str], here: list[str]) -> Broken | None:
    """Return the first case that another process answers differently."""
    for case, left, right in zip(ELSEWHERE, there, here, strict=True):
        if left != right:
            message = (
                "a fresh process gives other frames: does the clock, the order of a set, hash(), the environment or an "
                "earlier question decide?"
            )
            return Broken("process", case, message)
    return None


def fingerprints_elsewhere(samplers: list[tuple[str, dict[str, Any]]]) -> list[list[str]]:
    """Return `fingerprints` of samplers, each by name and options, as a fresh process gives them.

    Raises:
        SamplerError: the process failed.
    """
    command = [sys.executable, "-m", "focus_eval.samplers.contract.elsewhere"]
    environment = {**os.environ, "PYTHONHASHSEED": "20240229"}  # hash() of a text differs from process to process
    asked = json.dumps(samplers)
    done = subprocess.run(command, input=asked, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SamplerError(f"another process could not run the sampler: {done.stderr.strip().splitlines()[-1]}")
    answers: list[list[str]] = json.loads(done.stdout.splitlines()[-1])
    return answers
