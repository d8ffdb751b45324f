"""Which promises does a sampler break on one question?"""

from __future__ import annotations

import json
import random
import sys
import traceback
from typing import Any

import numpy as np

from focus_eval.errors import BrokenContract, FocusEvalError
from focus_eval.samplers.base import FrameSampler
from focus_eval.samplers.contract.cases import Case, World
from focus_eval.types import Selection


def select(sampler: FrameSampler, case: Case, *, world: World | None = None, budget: int | None = None) -> Selection:
    """Return what `sampler` selects for `case`, its generator seeded alike every time."""
    return sampler.select(
        case.video,
        k=case.k,
        pull=case.world() if world is None else world,
        rng=np.random.default_rng(case.seed),
        budget=budget,
        evidence_seconds=case.evidence_seconds,
    )


def broken_promises(sampler: FrameSampler, case: Case) -> dict[str, str]:
    """Return what `sampler` breaks on `case`: one word for each broken promise, and what happened."""
    before, world = _global_generators(), case.world()
    try:
        first = select(sampler, case, world=world)
        after = _global_generators()
        second = select(sampler, case)
    except BrokenContract as error:
        return {error.promise: str(error)}
    except (Exception, SystemExit) as error:  # noqa: BLE001 (whatever a sampler raises is what is to be told)
        return {"runs": described(error)}
    found = {}
    if before != after:
        found["generator"] = "uses a global generator (np.random, random or torch); draw from request.rng"
    if fingerprint(first) != fingerprint(second):
        found["determinism"] = "the same question twice gives other frames; draw from request.rng and nothing else"
    pulled = np.concatenate(world.calls) if world.calls else np.empty(0, dtype=np.int64)
    if not np.array_equal(pulled, first.pulled_frames):
        found["ledger"] = f"{pulled.size} frames were scored, the ledger knows {first.n_pulls}; pull through it alone"
    if first.n_pulls and not sampler.needs_encoder:
        found["declares"] = f"{first.n_pulls} pulls by a sampler that declares needs_encoder = False"
    for kind in sorted(world.kinds):
        if not getattr(sampler, f"needs_{kind}"):
            found["declares"] = f"pulls {kind}, which not every encoder has; declare needs_{kind} = True"
    return {**found, **_broken_facts(first)}


def fingerprint(selection: Selection) -> str:
    """Return all that must be the same when a question is asked again, as text."""
    return json.dumps([selection.keyframes, selection.pulled_frames.tolist(), selection.scales])


def described(error: BaseException) -> str:
    """Return one line for `error`: ours as it is, others with their type and place."""
    text = " ".join(str(error).split())
    if isinstance(error, FocusEvalError):
        return text
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {text} ({place.filename.rpartition('/')[2]}:{place.lineno})"


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
