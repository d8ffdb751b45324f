"""Chooses the frames of the FOCUS authors' public code, bit for bit.

Differences to the paper (`focus`): an arm's centre is always pulled, frames at the end of the video may belong to no
arm, fine pulls change neither the arms nor the interpolated relevance, and the best pulled frames become keyframes
directly. Every draw comes from one generator in the order of the public code.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from focus_eval.core.options import option
from focus_eval.core.types import FloatArray, IntArray, VideoInfo
from focus_eval.keyframes.samplers.bandit import Arms, Clips, best_first, even_shares, min_max, optimistic_mean
from focus_eval.keyframes.samplers.base import Choice, FrameSampler, SelectionRequest
from focus_eval.keyframes.samplers.expected_pulls import Draw, ExpectedPulls, independent_ranges
from focus_eval.keyframes.samplers.ledger import Ledger

Interpolation = Literal["nearest", "linear", "rbf", "uniform"]


def interpolated(frames: IntArray, pulled: IntArray, rewards: FloatArray, method: Interpolation) -> FloatArray:
    """Return the relevance of ascending `frames` from the pulls of their arm, in [0, 1], shape `(n,)`.

    Args:
        frames: shape `(n,)`.
        pulled, rewards: shape `(n_pulls,)`, at least one, in pull order.
        method: "nearest" (the first pulled of equally near ones), "linear" (`numpy.interp` on the pulls in pull
            order, unsorted, as in the public code) or "rbf".
    """
    if method == "nearest":
        values = rewards[np.abs(frames[:, None] - pulled).argmin(axis=1)]
    elif method == "linear":
        values = np.interp(frames, pulled, rewards)
    else:
        values = _gaussian_rbf(frames, pulled, rewards)
    clipped: FloatArray = np.clip(values, 0.0, 1.0)
    return clipped


def softmax_probabilities(relevance: FloatArray, temperature: float) -> FloatArray:
    """Return softmax probabilities of relevance scaled to [0, 1] (all ones if constant), shape `(n,)`."""
    scaled = min_max(relevance) if np.ptp(relevance) > 0 else np.ones_like(relevance)
    weights = np.exp(scaled / temperature - np.max(scaled / temperature))
    probabilities: FloatArray = weights / weights.sum()
    return probabilities


def _gaussian_rbf(frames: IntArray, pulled: IntArray, rewards: FloatArray) -> FloatArray:
    """Interpolate `rewards` with Gaussians of width range / n_pulls; constant for a single pull.

    Uses SciPy's function, as the public code does: on a nearly constant arm the softmax amplifies the last bits of the
    solver.
    """
    from scipy.interpolate import Rbf

    if pulled.size == 1:
        return np.full(frames.shape, rewards[0])
    values: FloatArray = Rbf(pulled, rewards, function="gaussian", smooth=0.0)(frames)
    return values


@dataclass(frozen=True, kw_only=True)
class FocusReleased(FrameSampler):
    """The authors' public code; its options have the same names and defaults here, so that command lines carry over.

    Args:
        coarse_every_sec: seconds between arms.
        fine_every_sec: seconds between fine pulls in the window of a zoomed arm.
        zoom_ratio: share of the arms that are zoomed into, and that give keyframes; the paper's alpha.
        final_min_arms, final_max_arms: bounds on the number of arms that give keyframes.
        min_coarse_segments, min_zoom_segments: smallest number of arms, and of zoomed arms.
        extra_samples_per_region: number of random coarse pulls of an arm, in addition to its centre.
        min_variance_threshold: smallest variance in the Bernstein radius.
        fine_uniform_ratio: share of a window's fine pulls at equal distances; the rest are random.
        interpolation_method: how the relevance of an arm's frames follows from its coarse pulls; "uniform": keyframes
            are drawn without regard to relevance.
        top_ratio: share of the keyframes that are the most relevant pulled frames.
        temperature: temperature of the softmax; below 0.002 its probabilities would underflow to 0.
        region_half_window_sec: half the length of a zoom window in seconds; None for half an arm.
        min_gap_sec: smallest distance in seconds between a drawn keyframe and those of earlier arms; "auto" is the
            public driver's rule: with at most 0.2 seconds of video per keyframe 0, else a quarter of the seconds per
            keyframe, at most 1.
    """

    name: ClassVar[str] = "focus_released"
    paper: ClassVar[str] = "focus"
    version: ClassVar[int] = 2
    source: ClassVar[str] = "FOCUS (Zhu et al., ICLR 2026), public code"
    may_return_fewer: ClassVar[bool] = True

    coarse_every_sec: float = option(16.0, above=0)
    fine_every_sec: float = option(1.0, above=0)
    zoom_ratio: float = option(0.25, at_least=0, at_most=1)
    final_min_arms: int = option(4, at_least=1)
    final_max_arms: int = option(32, at_least=1)
    min_coarse_segments: int = option(8, at_least=1)
    min_zoom_segments: int = option(4, at_least=1)
    extra_samples_per_region: int = option(2, at_least=0)
    min_variance_threshold: float = option(1e-6, at_least=0)
    fine_uniform_ratio: float = option(0.5, at_least=0, at_most=1)
    interpolation_method: Interpolation = option("nearest")
    top_ratio: float = option(0.2, at_least=0, at_most=1)
    temperature: float = option(0.06, at_least=0.002)
    region_half_window_sec: float | None = option(None, at_least=0)
    min_gap_sec: float | Literal["auto"] = option("auto", at_least=0)

    def choose(self, request: SelectionRequest) -> Choice:
        """Run the public code's steps; `coarse_rng` is not used."""
        video, k, ledger, rng = request.video, request.k, request.ledger, request.rng
        clips = self.clips(video)
        coarse = self.coarse_frames(clips, rng)
        rewards = ledger.relevance(coarse.reshape(-1)).reshape(coarse.shape)
        arms = Arms(clips, np.full(len(clips), coarse.shape[1]), rewards.mean(axis=1), rewards.var(axis=1))
        scores = self.scores(arms)
        ranked = best_first(scores)
        ledger.relevance(self.fine_frames(video, clips, ranked[: self.n_zoomed(len(clips))], coarse, rng))

        is_chosen = np.zeros(video.n_frames, dtype=bool)
        is_chosen[self.top_frames(ledger, k)] = True
        final = ranked[: self.n_final(len(clips))]
        gap_seconds = self.gap_seconds(video, k)
        n_open = max(0, k - int(is_chosen.sum()))
        for arm, share in zip(final, even_shares(n_open, final.size), strict=True):
            inside = np.arange(clips.starts[arm], clips.stops[arm])
            drawn = self.draw(
                inside, is_chosen, coarse[arm], rewards[arm], int(share), gap=round(gap_seconds * video.fps), rng=rng
            )
            is_chosen[drawn] = True
        facts = {"min_gap_sec": gap_seconds, "coarse_pulls": coarse.size, "fine_pulls": ledger.n_pulls - coarse.size}
        clip_reports = arms.reports(scores - arms.mean, final=final)
        return Choice(keyframes=np.flatnonzero(is_chosen)[:k], clips=clip_reports, facts=facts)

    def clips(self, video: VideoInfo) -> Clips:
        """Return arms of equal size from frame 0 on; remaining frames at the end belong to no arm."""
        stride = max(1, video.n_frames // self._n_coarse_segments(video))
        n_arms = max(1, video.n_frames // stride)
        size = max(1, video.n_frames // n_arms)
        starts = np.arange(n_arms) * size
        return Clips(starts, starts + size)

    def coarse_frames(self, clips: Clips, rng: np.random.Generator) -> IntArray:
        """Return the centre of every arm, then its random frames, shape `(n_arms, 1 + n_extra)`."""
        centres = _centres(clips)
        n_others = int(clips.sizes[0]) - 1
        n_extra = min(self.extra_samples_per_region, n_others)
        if n_extra == 0:
            return centres[:, None]
        drawn = np.stack([rng.choice(n_others, size=n_extra, replace=False) for _ in range(len(clips))])
        other_frames = clips.starts[:, None] + drawn
        return np.column_stack([centres, other_frames + (other_frames >= centres[:, None])])

    def scores(self, arms: Arms) -> FloatArray:
        """Return the optimistic mean of every arm, `(n_arms,)`; its mean if only one pull was made."""
        variance = np.maximum(arms.variance, self.min_variance_threshold)
        return optimistic_mean(arms.mean, variance, arms.n_pulls, int(arms.n_pulls.sum()))

    def n_zoomed(self, n_arms: int) -> int:
        """Return the number of arms that are zoomed into."""
        return min(n_arms, max(self.min_zoom_segments, math.ceil(n_arms * self.zoom_ratio)))

    def n_final(self, n_arms: int) -> int:
        """Return the number of arms that give keyframes beside the top frames."""
        return min(n_arms, self.final_max_arms, max(self.final_min_arms, math.ceil(n_arms * self.zoom_ratio)))

    def fine_frames(
        self, video: VideoInfo, clips: Clips, zoomed: IntArray, coarse: IntArray, rng: np.random.Generator
    ) -> IntArray:
        """Return the frames of the fine pulls, ascending: equally spaced and random ones around each zoomed centre."""
        is_taken = np.zeros(video.n_frames, dtype=bool)
        is_taken[coarse] = True
        for start, stop, n_wanted, n_even in self._windows(video, _centres(clips)[zoomed]):
            is_taken[evenly_inside(start, stop, n_even)] = True
            free = start + np.flatnonzero(~is_taken[start:stop])
            n_random = min(n_wanted - n_even, free.size)
            if n_random > 0:
                is_taken[free[rng.choice(free.size, size=n_random, replace=False)]] = True
        is_taken[coarse] = False
        return np.flatnonzero(is_taken)

    def expected_pulls(self, video: VideoInfo, *, k: int) -> ExpectedPulls | None:
        """Return the pulls; see `FrameSampler.expected_pulls`. Draws in overlapping windows count as independent."""
        clips, centres = self.clips(video), _centres(self.clips(video))
        size = int(clips.sizes[0])
        rate = min(self.extra_samples_per_region, size - 1) / max(1, size - 1)
        coarse = Draw(np.append(clips.starts, clips.stops[-1]), np.full(len(clips), rate))
        # With constant relevance all arms are equal, so the first ones are zoomed into.
        windows = self._windows(video, centres[: self.n_zoomed(len(clips))])
        fixed = np.unique(np.concatenate([centres, *(evenly_inside(*window[:2], window[3]) for window in windows)]))
        starts, stops, n_wanted, n_even = np.array(windows).T
        free = (stops - starts - np.searchsorted(fixed, stops) + np.searchsorted(fixed, starts)) * (1.0 - rate)
        fine = independent_ranges(starts, stops, np.minimum(1.0, (n_wanted - n_even) / np.maximum(1.0, free)))
        return ExpectedPulls(fixed=fixed, later_draws=(coarse, fine))

    def top_frames(self, ledger: Ledger, k: int) -> IntArray:
        """Return the most relevant pulled frames, the first pulled of equal ones."""
        n_top = round(self.top_ratio * min(k, ledger.n_pulls))
        return ledger.frames[best_first(ledger.relevances)[:n_top]]

    def draw(
        self,
        inside: IntArray,
        is_chosen: NDArray[np.bool_],
        pulled: IntArray,
        rewards: FloatArray,
        n: int,
        *,
        gap: int,
        rng: np.random.Generator,
    ) -> IntArray:
        """Return up to `n` frames of one arm, drawn by relevance, at least `gap` frames from those chosen before.

        If no frame is that far away, the gap is ignored.

        Args:
            inside: frames of the arm.
            is_chosen: mask over all frames of the video.
            pulled, rewards: the arm's pulls and their relevance.
        """
        candidates = inside[~is_chosen[inside]]
        if n == 0 or candidates.size == 0:
            return candidates[:0]
        # Distance to the nearest chosen frame, infinite if there is none.
        around = np.concatenate([[-np.inf], np.flatnonzero(is_chosen), [np.inf]])
        right = np.searchsorted(around, candidates)
        distance: FloatArray = np.minimum(candidates - around[right - 1], around[right] - candidates)
        is_apart = distance >= gap
        if not is_apart.any():
            is_apart[:] = True
        distant_frames = candidates[is_apart]
        n_drawn = min(n, distant_frames.size)
        if self.interpolation_method == "uniform":
            return distant_frames[rng.choice(distant_frames.size, size=n_drawn, replace=False)]
        # Interpolate at all candidates, not only at the distant ones: if the pulls are unsorted, the result of
        # numpy.interp for a frame depends on the other frames that it is asked for.
        relevance = interpolated(candidates, pulled, rewards, self.interpolation_method)[is_apart]
        probabilities = softmax_probabilities(relevance, self.temperature)
        return distant_frames[rng.choice(distant_frames.size, size=n_drawn, p=probabilities, replace=False)]

    def gap_seconds(self, video: VideoInfo, k: int) -> float:
        """Return `min_gap_sec`, or the public driver's rule for "auto"."""
        if self.min_gap_sec != "auto":
            return self.min_gap_sec
        seconds_per_keyframe = _seconds(video) / k
        return 0.0 if seconds_per_keyframe <= 0.2 else min(1.0, 0.25 * seconds_per_keyframe)

    def _windows(self, video: VideoInfo, centres: IntArray) -> list[tuple[int, int, int, int]]:
        """(start, stop, fine pulls, evenly spaced ones among them) of the window around each centre."""
        n_segments = self._n_coarse_segments(video)
        # Fine pulls must not be farther apart than arms.
        stride = min(max(1, round(self.fine_every_sec * video.fps)), max(1, video.n_frames // n_segments))
        half_seconds = self.region_half_window_sec
        if half_seconds is None:
            half_seconds = max(1.0 / video.fps, _seconds(video) / n_segments / 2.0)
        half = max(1, round(half_seconds * video.fps))
        windows = []
        for centre in centres.tolist():
            start, stop = max(0, centre - half), min(video.n_frames, centre + half + 1)
            n_wanted = max(1, (stop - start) // stride)
            windows.append((start, stop, n_wanted, round(n_wanted * self.fine_uniform_ratio)))
        return windows

    def _n_coarse_segments(self, video: VideoInfo) -> int:
        """The number of coarse arms that the options ask for; the video may give fewer."""
        return max(self.min_coarse_segments, math.ceil(_seconds(video) / self.coarse_every_sec))


def _seconds(video: VideoInfo) -> float:
    """The video's length in seconds as the public code computes it: a rate below 1 counts as 1."""
    return video.n_frames / max(1.0, video.fps)


def _centres(clips: Clips) -> IntArray:
    return (clips.starts + clips.stops - 1) // 2


def evenly_inside(start: int, stop: int, n: int) -> IntArray:
    """Return the middles of `n` equal parts of `[start, stop)`; a range of at most `n` frames has one middle."""
    length = stop - start
    if n == 0:
        return np.empty(0, dtype=np.int64)
    if length <= n:
        return np.array([(start + stop - 1) // 2])
    # Keep this order of operations: another order could round to other frames.
    part = length / n
    return np.minimum(start + (np.arange(n) * part + part / 2).astype(np.int64), stop - 1)
