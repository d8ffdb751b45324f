"""Simulated videos: relevance with a background and events, as an encoder sees it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from focus_eval.core.errors import InvalidInput, unknown_name
from focus_eval.core.types import FloatArray, IntArray, VideoInfo, frozen_floats, frozen_ints
from focus_eval.imports.relevance import SCORED
from focus_eval.rows.records import SelectionRow
from focus_eval.rows.store import load_rows
from focus_eval.samplers.bandit import nearest_pulled
from focus_eval.samplers.base import derived_rng
from focus_eval.simulation.channels import Channel
from focus_eval.simulation.evidence_shapes import EVIDENCE_SHAPES, PlacedEvidence, check_shapes, place_evidence

Range = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class World:
    """The parameters of simulated relevance. Heights are in standard deviations of the background.

    Relevance is `sigmoid(location + scale * (exp(skew * x) - 1) / skew)` of a latent `x`, as a softmax of two
    image-text-matching logits is. Away from events `x` is a stationary background of variance 1.

    Args:
        half_life_seconds: lag at which the smooth part of the background keeps half of its correlation.
        shot_share: share of the background's variance that jumps at cuts, in [0, 1]; 0: no cuts.
        shot_seconds: median length of a shot.
        n_looks: how many scenes a video returns to; every shot shows one of them. 0: every shot is new.
        events: fewest and most events of a question.
        event_seconds: shortest and longest event, log-uniform.
        event_is_shot: an event replaces the background between two cuts; else it is added to it.
        strength, strength_spread: mean height of a question's events, and its spread over questions.
        event_spread: spread of the events of one question around its mean.
        distractors_per_minute: moments as high as events that are no evidence.
        related_height, related_seconds: height of a raised stretch around each event, and range of its length.
        noise: standard deviation of what changes from frame to frame.
        evidence_at: "middle" of the event, or "anywhere" in it.
        cluster_seconds: all events of a question lie in one stretch of so many seconds, log-uniform, which takes the
            place of `related_seconds`; None: anywhere in the video.
        evidence: benchmarks in whose likeness evidence is made (see `EVIDENCE_SHAPES`), each for an equal share of
            the questions; instead of `events`, `event_seconds`, `evidence_at` and `cluster_seconds`.
        encoder_quality: factor on every height that has to do with the question.
        location, scale, skew: of the marginal; skew above 0 has its tail at high relevance.
    """

    name: str
    half_life_seconds: float = 5.0
    shot_share: float = 0.0
    shot_seconds: float = 8.0
    n_looks: int = 0
    events: tuple[int, int] = (1, 4)
    event_seconds: Range = (0.5, 8.0)
    event_is_shot: bool = False
    strength: float = 2.5
    strength_spread: float = 0.7
    event_spread: float = 0.5
    distractors_per_minute: float = 0.2
    related_height: float = 0.0
    related_seconds: Range = (30.0, 120.0)
    noise: float = 0.3
    evidence_at: str = "anywhere"
    encoder_quality: float = 1.0
    location: float = -2.5
    scale: float = 1.0
    skew: float = 0.3
    cluster_seconds: Range | None = None
    evidence: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        positive = (self.half_life_seconds, self.shot_seconds, self.scale, self.skew, *self.event_seconds)
        if min(positive) <= 0:
            raise InvalidInput(f"world {self.name!r}: lengths, half-life, scale and skew must be above 0")
        if not 0 <= self.shot_share <= 1 or not 1 <= self.events[0] <= self.events[1]:
            raise InvalidInput(f"world {self.name!r}: shot_share lies in [0, 1], events are at least 1, ascending")
        if self.evidence_at not in ("middle", "anywhere"):
            raise InvalidInput(f"world {self.name!r}: evidence_at is middle or anywhere, got {self.evidence_at!r}")
        if self.cluster_seconds is not None and (self.evidence is not None or min(self.cluster_seconds) <= 0):
            raise InvalidInput(f"world {self.name!r}: cluster_seconds are above 0, and not given with evidence")
        check_shapes(self.evidence or ())

    @property
    def least_seen_seconds(self) -> float:
        """Shortest visible length of an event, since annotations in whole seconds have events of 0 s."""
        return 1.0 if self.evidence else 0.0

    @property
    def values(self) -> dict[str, Any]:
        """Every parameter that is not None, as JSON values, so that ids do not change with new parameters."""
        values = {key: value for key, value in asdict(self).items() if value is not None}
        return {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}


_SMOOTH = World(name="smooth")
# Fitted to the relevance of every half second of the demo's videos to its questions (docs/simulation.md): no skew once
# it is a logit, shots that explain most of the variance, and questions of very different strength.
_CALIBRATED = World(
    name="calibrated",
    shot_share=0.88,
    shot_seconds=9.4,
    n_looks=10,
    events=(1, 2),
    event_seconds=(3.0, 8.0),
    event_is_shot=True,
    strength=2.4,
    strength_spread=1.65,
    event_spread=0.25,
    distractors_per_minute=0.0,
    noise=0.25,
    evidence_at="middle",
    location=-4.6,
    scale=2.5,
    skew=0.01,
)
# Evidence of real lengths and distances; relevance as in the demo, but an event adds to the pictures it lies in.
_REALISTIC = replace(_CALIBRATED, name="realistic", event_is_shot=False, evidence=tuple(EVIDENCE_SHAPES))
_ALL = (
    _REALISTIC,
    _CALIBRATED,
    _SMOOTH,
    replace(_SMOOTH, name="cuts", shot_share=0.6, event_is_shot=True),
    replace(_SMOOTH, name="flashes", event_seconds=(0.5, 2.0)),
    replace(_SMOOTH, name="distractors", distractors_per_minute=2.0),
    replace(_SMOOTH, name="weak", strength=1.2),
    replace(_SMOOTH, name="related", related_height=1.5),
    replace(_SMOOTH, name="clustered", events=(3, 6), cluster_seconds=(60.0, 180.0), related_height=1.5),
)
WORLDS: dict[str, World] = {world.name: world for world in _ALL}


def world_of(entry: str | dict[str, Any]) -> World:
    """Return the world of that name, or `{world: NAME, name: .., parameter: value}`, a named one with other parameters.

    Raises:
        UnknownName: no such world or parameter.
        InvalidInput: a value outside its range.
    """
    values = {"world": entry} if isinstance(entry, str) else dict(entry)
    base = str(values.pop("world", "calibrated"))
    if base not in WORLDS:
        raise unknown_name("world", base, WORLDS)
    for name in values:
        if name not in World.__dataclass_fields__:
            raise unknown_name(f"parameter of world {base!r}:", name, World.__dataclass_fields__)
    changes: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}
    return replace(WORLDS[base], **changes)


GRID_HZ = 10
FRAME_RATES = (24.0, 25.0, 24000 / 1001, 30000 / 1001)
# x264's defaults: a sync frame at most every 250 frames; it saw 335 of the 362 cuts of the demo's videos.
LONGEST_GROUP = 250
SHARE_OF_CUTS_SEEN = 0.925
_GOLDEN = (math.sqrt(5) - 1) / 2
_LATENT_LIMIT = 12.0


@dataclass(frozen=True, eq=False)
class SimulatedTrace:
    """A video of `world`: only frames that are asked for get their noise.

    Args:
        latent: ten values a second, float32 `(n_grid,)`.
        key: decides the noise of each frame.
        strength: mean height of this question's events.
        event_lengths: seconds, in the order of `evidence_seconds`.
        event_starts: seconds, likewise.
        cuts: where the pictures change at once, seconds.
        looks: which scene each shot shows, `(n_cuts + 1,)`.
        likeness: the benchmark in whose likeness the evidence was made; "" where there is none.
    """

    world: World
    question_id: str
    info: VideoInfo
    latent: NDArray[np.float32]
    key: int
    evidence_seconds: tuple[float, ...]
    event_lengths: tuple[float, ...]
    strength: float
    event_starts: tuple[float, ...]
    cuts: FloatArray
    looks: IntArray
    likeness: str = ""

    @property
    def events(self) -> list[tuple[float, float]]:
        """Start and stop of the visible part of each event, in the order of `evidence_seconds`."""
        visible_seconds = self.world.least_seen_seconds
        placed = zip(self.event_starts, self.event_lengths, strict=True)
        return [(start, start + max(length, visible_seconds)) for start, length in placed]

    def relevance(self, frames: IntArray) -> FloatArray:
        """Return the relevance of `frames`, in (0, 1), shape `(n,)`, independent of their order."""
        cell = np.minimum((frames * (GRID_HZ / self.info.fps)).astype(np.int64), self.latent.size - 1)
        latent = self.latent[cell] + self.world.noise * frame_noise(frames, self.key)
        skew = self.world.skew
        bent = np.expm1(skew * np.minimum(latent, _LATENT_LIMIT / skew)) / skew
        relevance: FloatArray = 1.0 / (1.0 + np.exp(-(self.world.location + self.world.scale * bent)))
        return relevance


def frame_noise(frames: IntArray, key: int) -> FloatArray:
    """Return a nearly normal number of variance 1 per frame, a function of frame and `key` alone, shape `(n,)`.

    The sum of the four quarters of a 64-bit hash (Steele, Lea and Flood 2014, SplitMix64), each uniform.
    """
    with np.errstate(over="ignore"):
        x = frames.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(key)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x ^= x >> np.uint64(31)
    quarters = sum((x >> np.uint64(16 * at) & np.uint64(0xFFFF)).astype(np.float64) for at in range(4))
    noise: FloatArray = (np.asarray(quarters) / 65536 - 2.0) * math.sqrt(3.0)
    return noise


def trace_video(world: World, number: int, *, seed: int, minutes: tuple[float, float]) -> VideoInfo:
    """Return length and rate of video `number` of `world`, without its sync frames and without making its trace."""
    _, n_frames, fps = _length(number, minutes, derived_rng(seed, "simulation", world.name, str(number)))
    return VideoInfo(n_frames, fps)


def _length(number: int, minutes: tuple[float, float], rng: np.random.Generator) -> tuple[float, int, float]:
    """Return seconds, frames and rate of a video; the first draw of its generator."""
    place = (0.5 + number * _GOLDEN) % 1.0
    seconds = 60.0 * minutes[0] * (minutes[1] / minutes[0]) ** place
    fps = float(rng.choice(FRAME_RATES))
    return seconds, max(1, round(seconds * fps)), fps


def make_trace(
    world: World, number: int, *, seed: int, minutes: tuple[float, float], channel: Channel | None = None
) -> SimulatedTrace:
    """Return video `number` of `world`, or what a scan encoder sees of it; the same whatever other videos are made.

    Lengths are log-uniform in `minutes` and spread by the golden ratio, so that the first videos cover the range too.
    """
    rng = derived_rng(seed, "simulation", world.name, str(number))
    seconds, n_frames, fps = _length(number, minutes, rng)
    n_grid = math.ceil(n_frames / fps * GRID_HZ) + 1
    strength = world.encoder_quality * rng.normal(world.strength, world.strength_spread)
    likeness = str(rng.choice(world.evidence)) if world.evidence else ""
    placed = _placed(world, likeness, seconds, rng)
    starts, lengths = placed.starts, placed.lengths
    latent, shot_cuts, looks = _background(world, n_grid, rng)
    if channel is not None:
        # From a generator of its own: what the main encoder sees stays the same.
        rng_of_scan = derived_rng(seed, "simulation", world.name, str(number), "scan")
        background, _, _ = _background(world, n_grid, rng_of_scan)
        latent = np.float32(channel.rho) * latent + np.float32(math.sqrt(1 - channel.rho**2)) * background
        world, strength = replace(world, encoder_quality=channel.q * world.encoder_quality), channel.q * strength
    _add_related(latent, world, placed, rng)
    heights = strength + world.encoder_quality * world.event_spread * rng.standard_normal(starts.size)
    _add_events(latent, starts, lengths, heights, world)
    _add_distractors(latent, world, seconds, rng)
    cuts = shot_cuts
    if world.event_is_shot:
        cuts = np.union1d(cuts, np.concatenate([starts, starts + lengths]))
    moments = placed.moments
    if moments is None:
        moments = starts + lengths * (0.5 if world.evidence_at == "middle" else rng.uniform(size=starts.size))
    return SimulatedTrace(
        world=world,
        question_id=f"{world.name}-{number:04d}",
        info=VideoInfo(n_frames, fps, sync_frames=_sync_frames(cuts, n_frames, fps, rng)),
        latent=latent,
        key=int((rng if channel is None else rng_of_scan).integers(2**63)),
        evidence_seconds=tuple(moments.tolist()),
        event_lengths=tuple(lengths.tolist()),
        strength=float(strength),
        event_starts=tuple(starts.tolist()),
        cuts=shot_cuts,
        looks=looks,
        likeness=likeness,
    )


def autoregression(keep: float, n: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """Return a stationary first-order autoregression of variance 1, `x[t] = keep * x[t - 1] + noise`, float32 `(n,)`.

    Blocks of so few steps that `keep` to their power stays away from 0 are summed at once.
    """
    size = max(1, min(512, int(3.0 / -math.log(keep))))
    drive = rng.standard_normal((math.ceil(n / size), size)) * math.sqrt(1 - keep**2)
    powers = keep ** np.arange(size)
    blocks = powers * np.cumsum(drive / powers, axis=1)
    last = rng.standard_normal()
    carried = np.empty(len(blocks))
    for at, end in enumerate(blocks[:, -1].tolist()):
        carried[at] = last
        last = end + last * keep**size
    values: NDArray[np.float32] = (blocks + np.outer(carried, powers * keep)).ravel()[:n].astype(np.float32)
    return values


def _placed(world: World, likeness: str, seconds: float, rng: np.random.Generator) -> PlacedEvidence:
    """Return the events' places: as in a benchmark, in one stretch, or anywhere."""
    if likeness:
        return place_evidence(EVIDENCE_SHAPES[likeness], seconds, rng)
    if world.cluster_seconds is None:
        starts, lengths = _placed_events(world, seconds, rng)
        return PlacedEvidence(starts=starts, lengths=lengths)
    stretch = min(float(_log_uniform(world.cluster_seconds, 1, rng)[0]), seconds)
    first = rng.uniform(0, seconds - stretch)
    starts, lengths = _placed_events(world, stretch, rng)
    return PlacedEvidence(starts=first + starts, lengths=lengths, stretch=(first, first + stretch))


def _placed_events(world: World, seconds: float, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    """Return starts, ascending, and lengths of events that do not overlap, in seconds, both `(n_events,)`."""
    low, high = world.events
    n_events = int(min(high, np.exp(rng.uniform(np.log(low), np.log(high + 1)))))
    lengths = _log_uniform(world.event_seconds, n_events, rng)
    lengths *= min(1.0, 0.5 * seconds / lengths.sum())
    free = np.sort(rng.uniform(0, seconds - lengths.sum(), size=n_events))
    return free + np.cumsum(lengths) - lengths, lengths


def _log_uniform(ends: tuple[float, float], n: int, rng: np.random.Generator) -> FloatArray:
    return np.exp(rng.uniform(math.log(ends[0]), math.log(ends[1]), size=n))


def _background(world: World, n: int, rng: np.random.Generator) -> tuple[NDArray[np.float32], FloatArray, IntArray]:
    """Return the background, variance 1, float32 `(n,)`, the times of its cuts in seconds, and each shot's look."""
    smooth = autoregression(0.5 ** (1.0 / (world.half_life_seconds * GRID_HZ)), n, rng)
    if world.shot_share == 0:
        return smooth, np.empty(0), np.zeros(1, dtype=np.int64)
    n_shots = max(2, int(3 * n / GRID_HZ / world.shot_seconds) + 8)
    stops = np.cumsum(world.shot_seconds * np.exp(0.7 * rng.standard_normal(n_shots)))
    looks = rng.standard_normal(world.n_looks or n_shots)
    look = rng.integers(0, looks.size, n_shots) if world.n_looks else np.arange(n_shots)
    at = np.minimum(np.searchsorted(stops, np.arange(n) / GRID_HZ, side="right"), n_shots - 1)
    level = looks[look][at].astype(np.float32)
    share = np.float32(world.shot_share)
    background: NDArray[np.float32] = np.sqrt(share) * level + np.sqrt(1 - share) * smooth
    cuts = stops[stops < n / GRID_HZ]
    return background, cuts, look[: cuts.size + 1]


def _add_events(
    latent: NDArray[np.float32], starts: FloatArray, lengths: FloatArray, heights: FloatArray, world: World
) -> None:
    """Add each event to `latent` at its height; where events overlap, the highest counts."""
    background = latent.copy()
    for at in np.argsort(heights, kind="stable"):
        cells = _cells(starts[at], starts[at] + max(lengths[at], world.least_seen_seconds), latent.size)
        latent[cells] = heights[at] + (0.3 if world.event_is_shot else 1.0) * background[cells]


def _add_related(latent: NDArray[np.float32], world: World, placed: PlacedEvidence, rng: np.random.Generator) -> None:
    """Raise the stretch that holds all events, or one around each with the event anywhere in it; overlaps once."""
    if world.related_height == 0:
        return
    raised = np.zeros(latent.size, dtype=bool)
    if placed.stretch is not None:
        raised[_cells(*placed.stretch, latent.size)] = True
    for start, length in () if placed.stretch is not None else zip(placed.starts, placed.lengths, strict=True):
        stretch = rng.uniform(*world.related_seconds)
        first = start - rng.uniform(0, stretch)
        raised[_cells(first, max(first + stretch, start + length), latent.size)] = True
    latent[raised] += np.float32(world.related_height * world.encoder_quality)


def _add_distractors(latent: NDArray[np.float32], world: World, seconds: float, rng: np.random.Generator) -> None:
    n = int(rng.poisson(world.distractors_per_minute * seconds / 60))
    starts = rng.uniform(0, seconds, n)
    lengths = _log_uniform(world.event_seconds, n, rng)
    heights = world.encoder_quality * rng.normal(world.strength, world.strength_spread, n)
    for start, length, height in zip(starts, lengths, heights, strict=True):
        cells = _cells(start, start + length, latent.size)
        latent[cells] = np.maximum(latent[cells], height + 0.3 * latent[cells])


def _cells(start: float, stop: float, n: int) -> slice:
    first = min(n - 1, max(0, round(start * GRID_HZ)))
    return slice(first, max(first + 1, min(n, round(stop * GRID_HZ))))


def _sync_frames(cuts: FloatArray, n_frames: int, fps: float, rng: np.random.Generator) -> IntArray:
    """Return sync frames as a codec would place them: at most cuts, and every 250 frames after the last one."""
    frames = np.unique((cuts * fps).astype(np.int64))
    is_seen = rng.uniform(size=frames.size) < SHARE_OF_CUTS_SEEN
    cut_frames = frames[is_seen & (frames > 0) & (frames < n_frames)]
    edges = np.concatenate([[0], cut_frames, [n_frames]])
    return np.concatenate([np.arange(a, b, LONGEST_GROUP) for a, b in itertools.pairwise(edges)])


# A trace with wider gaps than this says nothing of events of a second.
WIDEST_MEAN_GAP_SECONDS = 1.1


@dataclass(frozen=True, eq=False)
class RecordedTrace:
    """Recorded relevance of one question; a frame has the relevance of the nearest scored frame.

    Args:
        frames, values: scored frames, ascending, and their relevance, `(n,)`.
        is_cosine: relevance is `(1 + cosine) / 2`, and no probability.
        is_published: imported relevance of a benchmark's own questions; rows of it may be compared with its answers.
        scan: the same question as a scan encoder sees it; None where there is none.
    """

    benchmark: str
    question_id: str
    video: str
    bucket: str
    info: VideoInfo
    evidence_seconds: tuple[float, ...]
    frames: IntArray
    values: FloatArray
    is_cosine: bool = False
    is_published: bool = False
    scan: RecordedTrace | None = None

    def relevance(self, frames: IntArray) -> FloatArray:
        """Return the recorded relevance nearest to each of `frames`, shape `(n,)`."""
        return nearest_pulled(frames, self.frames, self.values)


def recorded_traces(folder: Path) -> list[RecordedTrace]:
    """Return one trace per question of the run in `folder` that has evidence, in the order of benchmark and id.

    Everything that any sampler of the run scored for a question is put together.

    Raises:
        InvalidInput: no such run, several encoders or forms of query, no evidence, or fewer scores than one a second of
            video.
    """
    parts = sorted((folder / "selections").iterdir()) if (folder / "selections").is_dir() else []
    by_question: dict[tuple[str, str], list[SelectionRow]] = {}
    for part in parts:
        for row in load_rows(part, SelectionRow):
            if row.error is None and row.pulled_frames and row.evidence_seconds:
                by_question.setdefault((row.benchmark, row.question_id), []).append(row)
    if not by_question:
        raise InvalidInput(f"{folder}: no rows with scored frames and evidence; name a run that keeps what it scored")
    encoders = {f"{row.encoder} {row.encoder_revision}" for rows in by_question.values() for row in rows}
    if len(encoders) > 1:
        raise InvalidInput(f"{folder}: relevance of several encoders ({', '.join(sorted(encoders))}); narrow the run")
    return [_trace(rows, folder) for _, rows in sorted(by_question.items())]


def scanned_traces(traces: Sequence[RecordedTrace], folder: Path) -> list[RecordedTrace]:
    """Return `traces` with the relevance of the run in `folder` as their scan.

    Raises:
        InvalidInput: as `recorded_traces`, or a question that `folder` does not have.
    """
    scans = {trace.question_id: trace for trace in recorded_traces(folder)}
    missing = [trace.question_id for trace in traces if trace.question_id not in scans]
    if missing:
        raise InvalidInput(f"{folder}: nothing recorded for {len(missing)} questions, the first: {missing[0]}")
    return [replace(trace, scan=scans[trace.question_id]) for trace in traces]


def _trace(rows: Sequence[SelectionRow], folder: Path) -> RecordedTrace:
    relevance_at: dict[int, float] = {}
    if len({row.query for row in rows}) > 1:
        raise InvalidInput(f"{folder}: {rows[0].question_id} was scored for several queries; narrow the run to one")
    for row in rows:
        pulls = zip(row.pulled_frames, row.pulled_relevance, strict=True)
        relevance_at.update({frame: relevance for frame, relevance in pulls if relevance is not None})
    if row.info is None:
        raise InvalidInput(f"{folder}: the length of {row.video} is not known; a trace needs rows of a read video")
    if len(relevance_at) * WIDEST_MEAN_GAP_SECONDS < row.info.duration_seconds:
        raise InvalidInput(
            f"{folder}: {row.question_id} has {len(relevance_at)} scored frames in {row.info.duration_seconds:.0f} s; "
            "a trace needs one a second: run topk with every_seconds=0.5 first"
        )
    frames = sorted(relevance_at)
    return RecordedTrace(
        benchmark=row.benchmark,
        question_id=row.question_id,
        video=row.video,
        bucket=row.bucket,
        info=row.info,
        evidence_seconds=tuple(row.evidence_seconds),
        frames=frozen_ints(frames),
        values=frozen_floats([relevance_at[frame] for frame in frames]),
        is_cosine=bool(row.facts.get("is_cosine")),
        is_published=row.sampler == SCORED,
    )
