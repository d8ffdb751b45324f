"""Simulates the relevance of videos as an encoder would see it: a background with events."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from focus_eval.core.types import FloatArray, IntArray, VideoInfo
from focus_eval.keyframes.samplers.base import derived_rng
from focus_eval.lab.worlds import EVIDENCE_SHAPES, SHARES, Channel, EvidenceShape, Quantiles, World

GRID_HZ = 10
FRAME_RATES = (24.0, 25.0, 24000 / 1001, 30000 / 1001)
# Largest distance between sync frames, x264's default.
LONGEST_GROUP = 250
SHARE_OF_CUTS_SEEN = 0.925
# The seconds from an annotated moment to the centre of the visible event follow Student's t distribution: scale and
# degrees of freedom.
_CENTRE_SECONDS, _CENTRE_FREEDOM = 0.3, 3
_SEEN_THROUGH = 0.3  # share of the background that stays visible under a look-alike, or under an event that is a shot
_SEEN_MEDIAN_SECONDS, _SEEN_LOG_DEVIATION = 8.0, 0.9
_GOLDEN = (math.sqrt(5) - 1) / 2
_LATENT_LIMIT = 12.0


@dataclass(frozen=True, eq=False)
class SimulatedTrace:
    """A simulated video of `world`. Noise of a frame is computed only when its relevance is asked for.

    Args:
        latent: background and events at ten values per second, float32 `(n_grid,)`.
        key: seeds the noise of each frame.
        strength: mean height of this question's events.
        event_lengths, event_starts: seconds of each event, in the order of `evidence_seconds`.
        cuts: times of the cuts in seconds.
        looks: number of the scene that each shot shows, `(n_cuts + 1,)`.
        likeness: the benchmark whose evidence was imitated; "" if there is none.
        shared_noise: key of another encoder's noise, and the correlation of this encoder's noise with it.
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
    shared_noise: tuple[int, float] = (0, 0.0)

    @property
    def events(self) -> list[tuple[float, float]]:
        """Start and stop of the visible part of each event, in the order of `evidence_seconds`."""
        visible_seconds = self.world.least_seen_seconds
        placed = zip(self.event_starts, self.event_lengths, strict=True)
        return [(start, start + max(length, visible_seconds)) for start, length in placed]

    def relevance(self, frames: IntArray) -> FloatArray:
        """Return the relevance of `frames`, in (0, 1), shape `(n,)`, independent of their order."""
        cell = np.minimum((frames * (GRID_HZ / self.info.fps)).astype(np.int64), self.latent.size - 1)
        noise, (other_key, correlation) = frame_noise(frames, self.key), self.shared_noise
        if correlation:
            noise = correlation * frame_noise(frames, other_key) + math.sqrt(1 - correlation**2) * noise
        latent = self.latent[cell] + self.world.noise * noise
        skew = self.world.skew
        bent = np.expm1(skew * np.minimum(latent, _LATENT_LIMIT / skew)) / skew
        relevance: FloatArray = 1.0 / (1.0 + np.exp(-(self.world.location + self.world.scale * bent)))
        return relevance


def frame_noise(frames: IntArray, key: int) -> FloatArray:
    """Return a nearly normal number of variance 1 per frame, a function of frame and `key` alone, shape `(n,)`.

    The number is the scaled sum of four uniform numbers, the quarters of a 64-bit hash (SplitMix64; Steele, Lea and
    Flood 2014).
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


def _question(
    world: World, number: int, minutes: tuple[float, float], rng: np.random.Generator
) -> tuple[float, RealQuestion]:
    """The length in seconds drawn for a simulated video, and its question, still without evidence."""
    seconds, n_frames, fps = _length(number, minutes, rng)
    return seconds, RealQuestion(f"{world.name}-{number:04d}", VideoInfo(n_frames, fps), np.empty(0))


def _length(number: int, minutes: tuple[float, float], rng: np.random.Generator) -> tuple[float, int, float]:
    """Seconds, number of frames and rate of a video; must be the first draw from its generator."""
    place = (0.5 + number * _GOLDEN) % 1.0
    seconds = 60.0 * minutes[0] * (minutes[1] / minutes[0]) ** place
    fps = float(rng.choice(FRAME_RATES))
    return seconds, max(1, round(seconds * fps)), fps


@dataclass(frozen=True, eq=False)
class RealQuestion:
    """A real video's length and a real question's annotated evidence, for a trace that draws neither at random.

    Args:
        evidence: moments `(n,)` or intervals `(n, 2)` in seconds, at least one.
    """

    id: str
    info: VideoInfo
    evidence: FloatArray


def make_trace(
    world: World,
    number: int,
    *,
    seed: int,
    minutes: tuple[float, float] = (1.0, 180.0),
    channel: Channel | None = None,
    real: RealQuestion | None = None,
) -> SimulatedTrace:
    """Return video `number` of `world` as the main encoder sees it, or a scan encoder with `channel`.

    The video does not depend on which other videos are made. Lengths are log-uniform in `minutes` and spread by the
    golden ratio, so that the first few videos already cover the range.

    Args:
        real: real length and evidence to use; None draws both at random.
    """
    rng = derived_rng(seed, "simulation", world.name, str(number))
    # The scan has its own generator, so that adding a scan does not change what the main encoder sees.
    rng_of_scan = derived_rng(seed, "simulation", world.name, str(number), "scan")
    is_blind = derived_rng(seed, "simulation", world.name, str(number), "blind").uniform() < world.blind
    seconds, question = _question(world, number, minutes, rng) if real is None else (real.info.duration_seconds, real)
    if world.is_fitted:
        return _fitted_trace(world, question, rng, is_blind=is_blind, channel=channel, rng_of_scan=rng_of_scan)
    info, n_grid = question.info, math.ceil(question.info.duration_seconds * GRID_HZ) + 1
    strength = world.encoder_quality * rng.normal(world.strength, world.strength_spread)
    likeness = str(rng.choice(world.evidence)) if world.evidence and real is None else ""
    placed = _placed(world, likeness, seconds, rng) if real is None else _placed_around(world, real, rng)
    starts, lengths = placed.starts, placed.lengths
    latent, shot_cuts, looks = _background(world, n_grid, rng)
    if channel is not None:
        background, _, _ = _background(world, n_grid, rng_of_scan)
        latent = np.float32(channel.rho) * latent + np.float32(math.sqrt(1 - channel.rho**2)) * background
        world, strength = _as_seen_by(channel, world), channel.q * strength
    if not is_blind:
        _add_related(latent, world, placed, rng)
    heights = strength + world.encoder_quality * world.event_spread * rng.standard_normal(starts.size)
    if not is_blind:
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
        question_id=question.id,
        info=replace(info, sync_frames=_sync_frames(cuts, info.n_frames, info.fps, rng)),
        latent=latent,
        key=int((rng if channel is None else rng_of_scan).integers(2**63)),
        evidence_seconds=tuple(moments.tolist()),
        event_lengths=tuple(lengths.tolist()),
        strength=0.0 if is_blind else float(strength),
        event_starts=tuple(starts.tolist()),
        cuts=shot_cuts,
        looks=looks,
        likeness=likeness,
    )


def _as_seen_by(channel: Channel, world: World) -> World:
    """`world` with the heights of the encoder `channel`, and with its marginal if `channel` states one."""
    changes = {key: value for key in ("location", "scale") if (value := getattr(channel, key)) is not None}
    return replace(world, encoder_quality=channel.q * world.encoder_quality, **changes)


def _fitted_trace(
    world: World,
    question: RealQuestion,
    rng: np.random.Generator,
    *,
    is_blind: bool,
    channel: Channel | None,
    rng_of_scan: np.random.Generator,
) -> SimulatedTrace:
    """Return a video by the rules fitted to public selections.

    Relevance is the sigmoid of a background, with one level per shot, plus the visible parts of evidence and of
    look-alikes; where several overlap, the highest counts. All look-alikes of a question have one height, drawn
    independently of the height of the evidence, so they may be higher. Evidence without intervals is visible around its
    moments.
    """
    info, likeness = question.info, str(rng.choice(world.evidence or ()))
    n_grid, seconds = math.ceil(info.duration_seconds * GRID_HZ) + 1, info.duration_seconds
    location_shift = world.location_spread * rng.standard_normal()
    gaps = world.shot_seconds * np.exp(0.7 * rng.standard_normal(int(3 * seconds / world.shot_seconds) + 8))
    all_cuts = np.cumsum(gaps) - rng.uniform(0, world.shot_seconds)
    cuts = all_cuts[(all_cuts > 0) & (all_cuts < seconds)]
    latent = _fitted_background(world, cuts, n_grid, rng)
    height, height_of_others = np.maximum(0.0, rng.normal(world.strength, world.strength_spread, 2))
    evidence = question.evidence
    if not evidence.size:
        evidence = np.asarray(place_evidence(EVIDENCE_SHAPES[likeness], seconds, rng).moments)
    moments, starts, lengths = _seen_events(evidence, rng)
    distractors = rng.uniform(0, seconds, int(rng.poisson(world.distractors_per_minute * seconds / 60)))
    other_starts, other_lengths = _seen_around(distractors, rng)
    heights = np.concatenate(
        [np.full(starts.size, 0.0 if is_blind else height), np.full(distractors.size, height_of_others)]
    )
    heights += world.event_spread * rng.standard_normal(heights.size)
    sync_frames, key = _sync_frames(cuts, info.n_frames, info.fps, rng), int(rng.integers(2**63))
    shared_noise = (0, 0.0)
    if channel is not None:
        background = _fitted_background(world, cuts, n_grid, rng_of_scan)
        latent = np.float32(channel.rho) * latent + np.float32(math.sqrt(1 - channel.rho**2)) * background
        world, shared_noise, key = _as_seen_by(channel, world), (key, channel.rho), int(rng_of_scan.integers(2**63))
    lift = np.zeros_like(latent)
    stops = np.concatenate([starts + np.maximum(lengths, 1.0), other_starts + np.maximum(other_lengths, 1.0)])
    for start, stop, lifted in zip(np.concatenate([starts, other_starts]), stops, heights, strict=True):
        cells = _cells(start, stop, n_grid)
        lift[cells] = np.maximum(lift[cells], lifted)
    return SimulatedTrace(
        world=replace(world, location=world.location + location_shift),
        question_id=question.id,
        info=replace(info, sync_frames=sync_frames),
        latent=latent + np.float32(world.encoder_quality) * lift,
        key=key,
        evidence_seconds=tuple(moments.tolist()),
        event_lengths=tuple(lengths.tolist()),
        strength=0.0 if is_blind else world.encoder_quality * float(height),
        event_starts=tuple(starts.tolist()),
        cuts=cuts,
        looks=np.arange(cuts.size + 1),
        likeness=likeness,
        shared_noise=shared_noise,
    )


def _fitted_background(world: World, cuts: FloatArray, n: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """The part of the background that does not change from frame to frame, float32 `(n,)`."""
    levels = rng.standard_normal(cuts.size + 1).astype(np.float32)
    smooth = autoregression(0.5 ** (1.0 / (world.half_life_seconds * GRID_HZ)), n, rng)
    share, smooth_share = np.float32(world.shot_share), np.float32(1 - world.shot_share - world.noise**2)
    shot = np.searchsorted(cuts, np.arange(n) / GRID_HZ, side="right")
    background: NDArray[np.float32] = np.sqrt(share) * levels[shot] + np.sqrt(smooth_share) * smooth
    return background


def _seen_events(evidence: FloatArray, rng: np.random.Generator) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Ascending moments of the evidence, and the start and length of the visible event of each, all `(n,)`."""
    if evidence.ndim == 2:
        ordered = evidence[np.argsort(evidence.mean(axis=1), kind="stable")]
        return ordered.mean(axis=1), ordered[:, 0], ordered[:, 1] - ordered[:, 0]
    moments = np.sort(evidence)
    return moments, *_seen_around(moments + _CENTRE_SECONDS * rng.standard_t(_CENTRE_FREEDOM, moments.size), rng)


def _seen_around(centres: FloatArray, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    """Start and length of an event around each of `centres`, both `(n,)`; the centre lies anywhere in the event."""
    lengths = _SEEN_MEDIAN_SECONDS * np.exp(_SEEN_LOG_DEVIATION * rng.standard_normal(centres.size))
    return centres - lengths * rng.uniform(size=centres.size), lengths


def autoregression(keep: float, n: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """Return a stationary first-order autoregression of variance 1, `x[t] = keep * x[t - 1] + noise`, float32 `(n,)`.

    Steps are summed in blocks, each short enough that `keep ** steps` does not become 0.
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
    """Places of the events: like those of a benchmark, within one stretch, or anywhere in the video."""
    if likeness:
        return place_evidence(EVIDENCE_SHAPES[likeness], seconds, rng)
    if world.cluster_seconds is None:
        starts, lengths = _placed_events(world, seconds, rng)
        return PlacedEvidence(starts=starts, lengths=lengths)
    stretch = min(float(_log_uniform(world.cluster_seconds, 1, rng)[0]), seconds)
    first = rng.uniform(0, seconds - stretch)
    starts, lengths = _placed_events(world, stretch, rng)
    return PlacedEvidence(starts=first + starts, lengths=lengths, stretch=(first, first + stretch))


def _placed_around(world: World, question: RealQuestion, rng: np.random.Generator) -> PlacedEvidence:
    """Annotated intervals as they are, or events of the world's lengths around annotated moments."""
    evidence, seconds = np.sort(question.evidence, axis=0), question.info.duration_seconds
    if evidence.ndim == 2:
        return PlacedEvidence(starts=evidence[:, 0], lengths=np.ptp(evidence, axis=1), moments=evidence.mean(axis=1))
    n = evidence.size
    shape = EVIDENCE_SHAPES["longvideobench"].seconds
    lengths = drawn_seconds(shape, n, rng) if world.evidence else _log_uniform(world.event_seconds, n, rng)
    lengths = np.minimum(lengths, 0.5 * seconds)
    place = 0.5 if world.evidence_at == "middle" and not world.evidence else rng.uniform(size=n)
    starts = np.clip(evidence - lengths * place, 0, seconds - lengths)
    return PlacedEvidence(starts=starts, lengths=lengths, moments=evidence)


def _placed_events(world: World, seconds: float, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    """Ascending starts, and lengths, of events that do not overlap, in seconds, both `(n_events,)`."""
    low, high = world.events
    n_events = int(min(high, np.exp(rng.uniform(np.log(low), np.log(high + 1)))))
    lengths = _log_uniform(world.event_seconds, n_events, rng)
    lengths *= min(1.0, 0.5 * seconds / lengths.sum())
    free = np.sort(rng.uniform(0, seconds - lengths.sum(), size=n_events))
    return free + np.cumsum(lengths) - lengths, lengths


def _log_uniform(ends: tuple[float, float], n: int, rng: np.random.Generator) -> FloatArray:
    """`n` random numbers between `ends` whose logarithm is uniform."""
    return np.exp(rng.uniform(math.log(ends[0]), math.log(ends[1]), size=n))


def _background(world: World, n: int, rng: np.random.Generator) -> tuple[NDArray[np.float32], FloatArray, IntArray]:
    """The background, variance 1, float32 `(n,)`, the times of its cuts in seconds, and each shot's look."""
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
        latent[cells] = heights[at] + (_SEEN_THROUGH if world.event_is_shot else 1.0) * background[cells]


def _add_related(latent: NDArray[np.float32], world: World, placed: PlacedEvidence, rng: np.random.Generator) -> None:
    """Raise the stretch that holds all events, or a stretch around each event; overlaps are raised once."""
    if world.related_height == 0:
        return
    raised = np.zeros(latent.size, dtype=bool)
    if placed.stretch is not None:
        raised[_cells(*placed.stretch, latent.size)] = True
    else:
        for start, length in zip(placed.starts, placed.lengths, strict=True):
            seconds = rng.uniform(*world.related_seconds)
            first = start - rng.uniform(0, seconds)
            raised[_cells(first, max(first + seconds, start + length), latent.size)] = True
    latent[raised] += np.float32(world.related_height * world.encoder_quality)


def _add_distractors(latent: NDArray[np.float32], world: World, seconds: float, rng: np.random.Generator) -> None:
    """Add look-alikes of events, without evidence, at random places to `latent`."""
    n = int(rng.poisson(world.distractors_per_minute * seconds / 60))
    starts = rng.uniform(0, seconds, n)
    lengths = _log_uniform(world.event_seconds, n, rng)
    heights = world.encoder_quality * rng.normal(world.strength, world.strength_spread, n)
    for start, length, height in zip(starts, lengths, heights, strict=True):
        cells = _cells(start, start + length, latent.size)
        latent[cells] = np.maximum(latent[cells], height + _SEEN_THROUGH * latent[cells])


def _cells(start: float, stop: float, n: int) -> slice:
    """A slice of the `n` grid cells that covers `[start, stop)` seconds, at least one cell."""
    first = min(n - 1, max(0, round(start * GRID_HZ)))
    return slice(first, max(first + 1, min(n, round(stop * GRID_HZ))))


def _sync_frames(cuts: FloatArray, n_frames: int, fps: float, rng: np.random.Generator) -> IntArray:
    """Sync frames as a codec would place them: at nearly all cuts, and every 250 frames after each of these."""
    frames = np.unique((cuts * fps).astype(np.int64))
    is_seen = rng.uniform(size=frames.size) < SHARE_OF_CUTS_SEEN
    cut_frames = frames[is_seen & (frames > 0) & (frames < n_frames)]
    edges = np.concatenate([[0], cut_frames, [n_frames]])
    return np.concatenate([np.arange(a, b, LONGEST_GROUP) for a, b in itertools.pairwise(edges)])


@dataclass(frozen=True, eq=False)
class PlacedEvidence:
    """Times of the evidence of one question.

    Args:
        starts, lengths: seconds of each event, `(n,)`; events may overlap.
        moments: ascending annotated times, one in each event, `(n,)`; None before they are drawn.
        stretch: start and stop of the part of the video that holds all events; None if there is no such part.
    """

    starts: FloatArray
    lengths: FloatArray
    moments: FloatArray | None = None
    stretch: tuple[float, float] | None = None


def drawn_seconds(quantiles: Quantiles, n: int, rng: np.random.Generator) -> FloatArray:
    """Draw `n` lengths from a distribution with these quantiles, shape `(n,)`."""
    return np.expm1(np.interp(rng.uniform(size=n), SHARES, np.log1p(quantiles)))


def place_evidence(shape: EvidenceShape, video_seconds: float, rng: np.random.Generator) -> PlacedEvidence:
    """Return the evidence of one question: moments within a span, and an event around each of them.

    An event is at most half of the video, a span at most nine tenths of it.
    """
    n = 1 + int(rng.choice(len(shape.counts), p=shape.counts))
    span = 0.0
    if n > 1:
        span = min(float(drawn_seconds(shape.span_quantiles(video_seconds), 1, rng)[0]), 0.9 * video_seconds)
    first = rng.uniform(0, video_seconds - span)
    between = first + span * rng.uniform(size=max(0, n - 2))
    moments = np.sort(np.concatenate([[first, first + span][:n], between]))
    lengths = np.minimum(drawn_seconds(shape.seconds, n, rng), 0.5 * video_seconds)
    starts = np.clip(moments - lengths * rng.uniform(size=n), 0, video_seconds - lengths)
    return PlacedEvidence(starts=starts, lengths=lengths, moments=moments)
