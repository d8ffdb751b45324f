"""Samplers that get at more than their request, each in one way, by mistake or on purpose; used by `test_cheats`.

Each does what an honest sampler does where its trick fails: `Even` an even grid without pulls, `Best` the best of twice
as many even pulls.
"""

from __future__ import annotations

import gc
import json
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

from focus_eval import Choice, FrameSampler
from focus_eval.bench.report import recall
from focus_eval.keyframes.samplers.ledger import Ledger
from focus_eval.lab.traces import make_trace
from focus_eval.lab.worlds import WORLDS


@dataclass(frozen=True, kw_only=True)
class Even(FrameSampler):
    name, source, needs_encoder = "even", "test", False

    def choose(self, request):
        evidence_times = self.evidence(request)
        grid = np.linspace(0, request.video.n_frames - 1, request.n_wanted).astype(int)
        frames = np.minimum(np.round(np.array(evidence_times) * request.video.fps), request.video.n_frames - 1).astype(
            int
        )
        first = dict.fromkeys([*frames.tolist(), *grid.tolist(), *range(request.video.n_frames)])
        return Choice(keyframes=np.array([*first][: request.n_wanted]))

    def evidence(self, request):
        """Return the times of the evidence, where the trick finds them."""
        return ()


@dataclass(frozen=True, kw_only=True)
class Best(FrameSampler):
    name, source = "best", "test"

    def choose(self, request):
        frames = np.unique(np.linspace(0, request.video.n_frames - 1, 2 * request.n_wanted).astype(int))
        scored = {**dict(zip(frames.tolist(), request.ledger.relevance(frames).tolist(), strict=True))}
        scored |= self.more(request, scored)
        best = sorted(scored, key=lambda frame: (-scored[frame], frame))
        return Choice(keyframes=np.array(best[: request.n_wanted]))

    def more(self, request, relevance):
        """Return relevance that nobody counts, where the trick gets some."""
        return {}


def evidence_in(values, video):
    """Return the evidence of the first of `values` that is a question about `video`; empty if there is none."""
    for value in values:
        with suppress(Exception):
            video_info = value if hasattr(value, "n_frames") else value.info
            if video_info.n_frames == video.n_frames and len(value.evidence_seconds):
                return tuple(value.evidence_seconds)
    return ()


@dataclass(frozen=True, kw_only=True)
class ReadsFrames(Even):
    """Looks at the variables of whoever called it."""

    name = "reads_frames"

    def evidence(self, request):
        frame, values = sys._getframe(), []
        while frame is not None:
            values += frame.f_locals.values()
            frame = frame.f_back
        return evidence_in(values, request.video)


@dataclass(frozen=True, kw_only=True)
class ReadsObjects(Even):
    """Looks at every object there is."""

    name = "reads_objects"

    def evidence(self, request):
        return evidence_in(gc.get_objects(), request.video)


def of_seed(seed, video):
    """Return the evidence of the first simulated video of that seed that is as long; empty if there is none."""
    for number in range(12):
        trace = make_trace(WORLDS["calibrated"], number, seed=seed, minutes=(1, 4))
        if trace.info == video:
            return trace.evidence_seconds
    return ()


@dataclass(frozen=True, kw_only=True)
class RemembersTheSeed(Even):
    """The simulation's seed is in its public code: it makes the same videos and looks where their events are."""

    name = "remembers_the_seed"

    def evidence(self, request):
        return of_seed(0, request.video)


@dataclass(frozen=True, kw_only=True)
class PullsByTheClosure(Best):
    """The function behind the ledger counts nothing."""

    name = "pulls_by_the_closure"

    def more(self, request, relevance):
        frames = np.arange(0, request.video.n_frames, 5)
        with suppress(Exception):
            return dict(zip(frames.tolist(), request.ledger._pull(frames).tolist(), strict=True))
        return {}


@dataclass(frozen=True, kw_only=True)
class PullsByThePipe(Best):
    """The line to the other process, found among all objects: its ledger counts, ours would not."""

    name = "pulls_by_the_pipe"

    def more(self, request, relevance):
        frames = np.setdiff1d(np.arange(0, request.video.n_frames, 25), [*relevance])
        for line in gc.get_objects():
            if type(line) is Connection and not line.closed:
                line.send(("ledger", "relevance", (frames,), {}))
                values, _ = line.recv()
                return dict(zip(frames.tolist(), values.tolist(), strict=True))
        return {}


@dataclass(frozen=True, kw_only=True)
class PatchesTheLedger(Best):
    """From now on the ledger counts nothing and every recall is 1."""

    name = "patches_the_ledger"

    def more(self, request, scored):
        Ledger._record = lambda ledger, frames, relevance: None
        Ledger.n_pulls = property(lambda ledger: 0)
        recall.recall_within = lambda evidence, times, distances, **_: np.ones(len(distances))
        frames = np.setdiff1d(np.arange(0, request.video.n_frames, 25), [*scored])
        return dict(zip(frames.tolist(), request.ledger.relevance(frames).tolist(), strict=True))


RELEVANCE_BY_VIDEO = {}


@dataclass(frozen=True, kw_only=True)
class RemembersPulls(Best):
    """What it pulled for a smaller K it knows for a larger one, without pulling."""

    name = "remembers_pulls"

    def more(self, request, relevance):
        earlier = RELEVANCE_BY_VIDEO.get(request.video.n_frames, {})
        RELEVANCE_BY_VIDEO[request.video.n_frames] = {**earlier, **relevance}
        return earlier


CACHE = tempfile.TemporaryDirectory()


@dataclass(frozen=True, kw_only=True)
class RemembersOnDisk(Best):
    """The same in a file."""

    name = "remembers_on_disk"

    def more(self, request, relevance):
        file = Path(CACHE.name, f"{request.video.n_frames}.json")
        earlier = {}
        with suppress(OSError):
            earlier = {int(frame): value for frame, value in json.loads(file.read_text()).items()}
        with suppress(OSError):
            file.write_text(json.dumps({**earlier, **relevance}))
        return earlier


@dataclass(frozen=True, kw_only=True)
class Tiny(FrameSampler):
    """64 times as many frames of 1/64 of the pixels: one of them is near every moment."""

    name, source, needs_encoder, may_return_more = "tiny", "test", False, True

    def choose(self, request):
        n = min(64 * request.n_wanted, request.video.n_frames)
        return Choice(keyframes=np.linspace(0, request.video.n_frames - 1, n).astype(int), scales=np.full(n, 1 / 8))
