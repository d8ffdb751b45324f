"""Which keyframes cover the most evidence expected after one batch of even pulls? The default of `select`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from focus_eval.core.errors import InvalidInput
from focus_eval.core.options import option
from focus_eval.core.types import FloatArray, IntArray, VideoInfo
from focus_eval.keyframes.samplers import coverage, fusion
from focus_eval.keyframes.samplers.bandit import Clips, equal_clips
from focus_eval.keyframes.samplers.base import Choice, SelectionRequest
from focus_eval.keyframes.samplers.expected_pulls import Draw, ExpectedPulls
from focus_eval.keyframes.samplers.uniform import even_frames

# Seconds over which a pull informs its surroundings (time constant of `coverage.bridge_mean`): without shots, and
# within a shot.
FADING_SECONDS = 3.0
FADING_SECONDS_IN_SHOT = 10.0
FLAT = {"fallback": "uniform: relevance is flat"}
Density = Literal["squares", "likelihood_ratio"]


@dataclass(frozen=True, kw_only=True)
class EvenCover(coverage.EvenPulls):
    """One batch of jittered even pulls, then the `k` frames whose surroundings hold the most estimated evidence.

    The pulls give a density of evidence over time (see `coverage`); the windows of one and two seconds around the
    keyframes cover as much of it as possible. Once everything is covered, or if relevance is constant, the remaining
    keyframes are spread evenly.

    Args:
        share: pulls as a share of the frames of the video at 25 fps, at least `k` and 8 of them.
        budget_of, pulls, every_seconds: number of pulls, instead of `share`.
        cuts: take shots from the file's sync frames: pulls are divided among them, and a pull informs its own shot
            only. No effect without sync frames, with groups of one length, or with more shots than pulls.
        weigh_cuts: with `cuts`, mix the densities with and without shots; the weight of the former is the share of
            relevance's variance that lies between shots.
        shared_by: questions of a video that share its pulls (`coarse_seed: video`): `shared_by * share` is pulled,
            which costs each of them `share`.
        density: "squares" of relevance, or the "likelihood_ratio" of its log-odds (see `fusion`), without `cuts`.
        value: see `coverage.best_cover`.
    """

    name: ClassVar[str] = "even_cover"
    source: ClassVar[str] = "focus-eval; maximum coverage of estimated evidence"

    budget_of: str | None = option(None)
    share: float = option(0.005, above=0, at_most=1)
    cuts: bool = option(False)
    weigh_cuts: bool = option(False)
    shared_by: float = option(1.0, at_least=1, added=True)
    density: Density = option("squares", added=True)
    value: coverage.Value = option("recall", added=True)

    def __post_init__(self) -> None:
        """Check the options; raise InvalidInput for `weigh_cuts` without `cuts`, or `cuts` with a likelihood ratio."""
        super().__post_init__()
        if self.weigh_cuts and not self.cuts:
            raise InvalidInput(f"sampler {self.name!r}: weigh_cuts=true needs cuts=true: there are no shots to weigh")
        if self.cuts and self.density == "likelihood_ratio":
            raise InvalidInput(f"sampler {self.name!r}: density=likelihood_ratio knows no shots; leave cuts out")

    def choose(self, request: SelectionRequest) -> Choice:
        """Pull jittered even frames; return the keyframes that cover the most evidence estimated from them."""
        video = request.video
        n = self.n_pulls(video, k=request.k)
        shots = self.shots(video, n)
        frames = jittered(shots, coverage.shares_by_length(shots.sizes, n), request.coarse_rng)
        if self.density == "likelihood_ratio":
            return likely_choice(frames, request, self.value)
        relevance = request.ledger.relevance(frames)
        facts: dict[str, float] = {"shots": len(shots)} if self.cuts else {}
        share = 1.0
        if self.weigh_cuts:
            share = facts["shot_share"] = coverage.share_between_shots(frames, relevance, shots)
        return covering_choice(frames, relevance, shots, request, facts, shot_share=share, value=self.value)

    def expected_pulls(self, video: VideoInfo, *, k: int) -> ExpectedPulls | None:
        """Return the jittered pulls as a draw; see `FrameSampler.expected_pulls`."""
        n = self.n_pulls(video, k=k)
        shots = self.shots(video, n)
        return ExpectedPulls(coarse=jittered_draw(shots, coverage.shares_by_length(shots.sizes, n)))

    def default_pulls(self, video: VideoInfo, *, k: int) -> int:
        """Return the number of pulls by the length of the video, for all questions that share them; at least `k`."""
        return coverage.share_of_frames(video, self.share * self.shared_by, k=k)

    def shots(self, video: VideoInfo, n_pulls: int) -> Clips:
        """Return the shots that the pulls are divided among.

        Without `cuts`, or with more shots than pulls, the whole video is one shot.
        """
        shots = coverage.shots_of(video) if self.cuts else equal_clips(video.n_frames, 1)
        return shots if len(shots) <= n_pulls else equal_clips(video.n_frames, 1)


def jittered(shots: Clips, shares: IntArray, rng: np.random.Generator) -> IntArray:
    """Return the middles of equal strata, each moved at random by up to a quarter of its stratum, ascending.

    Args:
        shares: number of strata of each shot, at most its frames, `(n_shots,)`.
    """
    starts, sizes = _strata(shots, shares)
    place = 0.5 + rng.uniform(-0.25, 0.25, starts.size)
    frames: IntArray = starts + (sizes * place).astype(np.int64)
    return frames


def jittered_draw(shots: Clips, shares: IntArray) -> Draw:
    """Return the draw that `jittered` makes: one frame in the middle half of each stratum, all equally likely."""
    starts, sizes = _strata(shots, shares)
    first, last = starts + sizes // 4, starts - (-3 * sizes // 4)
    rates = np.stack([1.0 / (last - first), np.zeros(first.size)], axis=1)
    return Draw(np.stack([first, last], axis=1).ravel(), rates.ravel()[:-1])


def _strata(shots: Clips, shares: IntArray) -> tuple[IntArray, IntArray]:
    """First frame and size of each of the `shares` equal strata of every shot, both `(sum(shares),)`."""
    edges = [
        start + np.arange(n + 1) * size // n
        for start, size, n in zip(shots.starts.tolist(), shots.sizes.tolist(), shares.tolist(), strict=True)
    ]
    return np.concatenate([edge[:-1] for edge in edges]), np.concatenate([np.diff(edge) for edge in edges])


def covering_choice(
    frames: IntArray,
    relevance: FloatArray,
    shots: Clips,
    request: SelectionRequest,
    facts: Mapping[str, object],
    *,
    shot_share: float = 1.0,
    value: coverage.Value = "recall",
) -> Choice:
    """Return the keyframes that cover the most evidence estimated from `relevance` of ascending `frames`.

    Args:
        shot_share: weight in [0, 1] of the density that respects `shots`; the rest is the density without shots.
    """
    video, n = request.video, request.n_wanted
    if np.ptp(relevance) == 0:
        return Choice(keyframes=even_frames(video, n), facts={**facts, **FLAT})
    grid = coverage.grid_frames(video)
    at, times = grid / video.fps, frames / video.fps
    density = evidence_density(at, times, relevance, shots, video)
    if shot_share < 1 and len(shots) > 1:
        plain = evidence_density(at, times, relevance, equal_clips(video.n_frames, 1), video)
        density = shot_share * density / density.sum() + (1 - shot_share) * plain / plain.sum()
    return Choice(keyframes=coverage.covering_frames(grid, density, n, video, value=value), facts=facts)


def likely_choice(frames: IntArray, request: SelectionRequest, value: coverage.Value) -> Choice:
    """Pull ascending `frames`; return the keyframes that cover the most of the likelihood ratio of their logits."""
    video, n = request.video, request.n_wanted
    relevance, logits = request.ledger.relevance_and_logits(frames)
    if np.ptp(relevance) == 0:
        return Choice(keyframes=even_frames(video, n), facts=FLAT)
    grid = coverage.grid_frames(video)
    density = fusion.likelihood_ratio(grid / video.fps, frames / video.fps, logits)
    return Choice(keyframes=coverage.covering_frames(grid, density, n, video, value=value))


def evidence_density(
    at: FloatArray, times: FloatArray, relevance: FloatArray, shots: Clips, video: VideoInfo
) -> FloatArray:
    """Return the density of evidence at `at`, above 0, shape like `at`, from the relevance of pulls at `times`.

    Args:
        at, times: seconds, ascending.
        shots: shots of the video; each must hold at least one pull.
    """
    weights = coverage.evidence_weights(times, relevance)
    base = float(weights.mean())
    if len(shots) == 1:
        return coverage.bridge_mean(at, times, weights, base=base, seconds=FADING_SECONDS)
    edges = np.append(shots.starts, video.n_frames) / video.fps
    first_pull, first_at = np.searchsorted(times, edges), np.searchsorted(at, edges)
    density = np.empty(at.shape)
    for shot in range(len(shots)):
        shot_grid, pulled = slice(*first_at[shot : shot + 2]), slice(*first_pull[shot : shot + 2])
        density[shot_grid] = coverage.bridge_mean(
            at[shot_grid], times[pulled], weights[pulled], base=base, seconds=FADING_SECONDS_IN_SHOT
        ) * coverage.shot_weights(at[shot_grid], edges[shot], edges[shot + 1])
    return density
