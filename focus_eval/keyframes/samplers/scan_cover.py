"""Which keyframes cover the most evidence, if a cheap encoder scans the video and an expensive one pulls few frames?

Besides `ScanCover` there are two controls: `ScanOnly`, without pulls, and `AllFrames`, with both encoders on every
frame of the grid.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from focus_eval.core.errors import InvalidInput
from focus_eval.core.options import option
from focus_eval.core.types import FloatArray, IntArray, VideoInfo
from focus_eval.keyframes.samplers import coverage, fusion
from focus_eval.keyframes.samplers.bandit import equal_clips
from focus_eval.keyframes.samplers.base import Choice, Role, SelectionRequest
from focus_eval.keyframes.samplers.even_cover import covering_choice, jittered, jittered_draw
from focus_eval.keyframes.samplers.event_cover import event_density, event_frames
from focus_eval.keyframes.samplers.expected_pulls import Draw, ExpectedPulls
from focus_eval.keyframes.samplers.ledger import Ledger
from focus_eval.keyframes.samplers.scanning import ScanningSampler
from focus_eval.keyframes.samplers.uniform import even_frames

LEAST_PULLS = 4
# If the correlation of scan and main encoder is lower than this, the scan does not tell where to pull.
WEAKEST_RHO = 0.15
EVENT_STEP = 2


@dataclass(frozen=True, kw_only=True)
class ScanCover(ScanningSampler):
    """Scan the whole video with a cheap encoder, pull its best moments and a few even ones, cover the joint density.

    Args:
        share: the budget in forwards of the main encoder, as a share of the frames of the video at 25 fps.
        shared_by: average number of questions per video; they share the scan, and each pays an equal part of it.
        scan_hz: limit on the frames scanned per second of video.
        scan_budget_share: largest share of the budget that the scan may take.
        even_share: share of the pulls that is spread evenly over the video.
        cell_seconds: length of a cell in seconds; each of the other pulls lies in a cell of its own. If all cells are
            pulled, the rest of the budget is not spent.
        h, cap, rho_prior, prior_pulls, fade_seconds, nugget: see `fusion.Prior`.
        fallback: "even_cover": continue as `even_cover`, with a second batch, if scan and even pulls correlate by less
            than .15 on this video.
        value: see `coverage.best_cover`.
        density: "likelihood_ratio" of single moments (see `fusion`), or "events": the mean of that density and of the
            likelihood of events in both channels together, covered within 1, 2, 3 and 5 seconds (see `event_cover`).
    """

    name: ClassVar[str] = "scan_cover"
    source: ClassVar[str] = "focus-eval; likelihood ratio of two encoders, maximum coverage"

    share: float = option(0.005, above=0, at_most=1)
    shared_by: float = option(1.0, at_least=1)
    scan_hz: float = option(2.0, above=0)
    scan_budget_share: float = option(0.5, above=0, at_most=1)
    even_share: float = option(0.2, at_least=0, at_most=1)
    cell_seconds: float = option(4.0, above=0)
    h: float = option(fusion.Prior.h, above=0)
    cap: float = option(fusion.Prior.cap, above=0)
    rho_prior: float = option(fusion.Prior.rho_prior, at_least=0, at_most=0.95)
    prior_pulls: float = option(fusion.Prior.prior_pulls, at_least=0)
    fade_seconds: float = option(fusion.Prior.fade_seconds, above=0)
    nugget: float = option(fusion.Prior.nugget, at_least=0, at_most=1)
    fallback: Literal["none", "even_cover"] = option("none")
    value: coverage.Value = option("recall")
    density: Literal["likelihood_ratio", "events"] = option("likelihood_ratio", added=True)

    def __post_init__(self) -> None:
        """Check the options; raise InvalidInput if `density=events` comes with a `value` of another kind."""
        super().__post_init__()
        if self.density == "events" and self.value != "recall":
            raise InvalidInput(f"sampler {self.name!r}: density=events has windows of its own; leave value out")

    def choose(self, request: SelectionRequest) -> Choice:
        """Scan the video, pull promising and even frames, and return those that cover the most joint density.

        If the budget leaves too few pulls, the scan decides alone.
        """
        video, ledger = request.video, request.ledger
        scanned, n_pulls = self.spending(video, self.cost_of_scan(request.scan_cost))
        view = ScanView.of(video, scanned, ledger.scan(scanned))
        if n_pulls < LEAST_PULLS:
            return view.covering(fusion.scan_density(view.times, view.scan, self.prior), request, self.value)
        n_even = int(self.even_share * n_pulls)
        even = evenly_pulled(video, n_even, request.coarse_rng)
        promising = self.promising(view, n_pulls - n_even)
        if self.fallback == "none" or n_even < LEAST_PULLS:
            pulls = Pulls.of(ledger, np.union1d(even, promising))
            return view.fused(pulls, request, self.prior, self.value, with_events=self.density == "events")
        pulls = Pulls.of(ledger, even)
        is_weak = (rho := view.measured(pulls)) < WEAKEST_RHO
        fine_frames = evenly_pulled(video, n_pulls - n_even, request.coarse_rng) if is_weak else promising
        pulls = pulls.merge(Pulls.of(ledger, np.setdiff1d(fine_frames, even)))
        if not is_weak:
            return view.fused(pulls, request, self.prior, self.value, with_events=self.density == "events")
        whole, facts = equal_clips(video.n_frames, 1), {"fallback": "even_cover", "rho_measured": rho}
        return covering_choice(pulls.frames, pulls.relevance, whole, request, facts, value=self.value)

    def expected_pulls(self, video: VideoInfo, *, k: int) -> ExpectedPulls | None:
        """Return scan and pulls; promising pulls are counted as if all cells, and all frames in a cell, were equal."""
        scanned, n_pulls = self.spending(video, self.cost_of_scan(None))
        if n_pulls < LEAST_PULLS:
            return ExpectedPulls(scanned=scanned)
        n_even = int(self.even_share * n_pulls)
        if self.fallback != "none" and n_even >= LEAST_PULLS:
            return None
        even = jittered_draw(equal_clips(video.n_frames, 1), np.array([n_even])) if n_even else None
        grid = coverage.grid_frames(video)
        _, cell, n_in_cell = np.unique(self.cells(grid / video.fps), return_inverse=True, return_counts=True)
        rates = np.zeros(2 * grid.size - 1)
        rates[::2] = min(1.0, (n_pulls - n_even) / n_in_cell.size) / n_in_cell[cell]
        promising = Draw(np.stack([grid, grid + 1], axis=1).ravel(), rates, is_ranking=True)
        return ExpectedPulls(scanned=scanned, coarse=even, later_draws=(promising,))

    @property
    def prior(self) -> fusion.Prior:
        """The options that are assumptions about events and encoders."""
        return fusion.Prior(**{name: self.options[name] for name in fusion.Prior.__dataclass_fields__})

    def spending(self, video: VideoInfo, cost: float) -> tuple[IntArray, int]:
        """Return the frames to scan, ascending, and the number of pulls that the rest of the budget pays for.

        Args:
            cost: cost of a forward of the scan encoder divided by that of the main encoder.
        """
        seconds = video.duration_seconds
        budget, cost = self.share * coverage.SHARE_OF_FPS * seconds, cost / self.shared_by
        n = int(min(self.scan_hz * seconds, self.scan_budget_share * budget / cost) + 1e-9)
        frames = self.scannable(video, coverage.middles(video, min(video.n_frames, max(1, n))))
        return frames, min(video.n_frames, max(0, int(budget - cost * frames.size + 1e-9)))

    def promising(self, view: ScanView, n: int) -> IntArray:
        """Return the grid frame of highest expected density in each of the `n` best cells, ascending."""
        # Average five points, because a single high frame is usually noise.
        expected = fusion.moving_mean(fusion.scan_density(view.times, view.scan, self.prior), 2)
        cell = self.cells(view.times)
        best_first = np.lexsort((-expected, cell))
        of_cells = best_first[np.unique(cell[best_first], return_index=True)[1]]
        frames: IntArray = np.sort(view.grid[of_cells[np.argsort(-expected[of_cells], kind="stable")[:n]]])
        return frames

    def cells(self, times: FloatArray) -> IntArray:
        """Return the number of the cell that each moment lies in, shape like `times`."""
        return (times / self.cell_seconds).astype(np.int64)


@dataclass(frozen=True, eq=False)
class Pulls:
    """Pulled frames, ascending, with relevance and logits, all `(n_pulls,)`."""

    frames: IntArray
    relevance: FloatArray
    logits: FloatArray

    @classmethod
    def of(cls, ledger: Ledger, frames: IntArray) -> Pulls:
        """Pull `frames`, ascending, and return them with relevance and logits."""
        return cls(frames, *ledger.relevance_and_logits(frames))

    def merge(self, later_pulls: Pulls) -> Pulls:
        """Return these pulls and later ones together, ascending."""
        frames = np.concatenate([self.frames, later_pulls.frames])
        relevance = np.concatenate([self.relevance, later_pulls.relevance])
        logits = np.concatenate([self.logits, later_pulls.logits])
        order = np.argsort(frames)
        return Pulls(frames[order], relevance[order], logits[order])


@dataclass(frozen=True, eq=False)
class ScanView:
    """A scan of a video, with the grid on which the density of evidence is estimated.

    Args:
        grid, times: frames at which density is estimated, and their seconds, `(n_grid,)`.
        scanned_at, values: seconds of the scanned frames, ascending, and their logits, `(n_scanned,)`.
        scan: the scan at `times`, standardised.
    """

    video: VideoInfo
    grid: IntArray
    times: FloatArray
    scanned_at: FloatArray
    values: FloatArray
    scan: FloatArray

    @classmethod
    def of(cls, video: VideoInfo, scanned: IntArray, values: FloatArray) -> ScanView:
        """Return the view of ascending `scanned` frames and their logits `values`."""
        grid = coverage.grid_frames(video)
        times, scanned_at = grid / video.fps, scanned / video.fps
        scan = fusion.standardised_scan(times, times, scanned_at, values)
        return cls(video, grid, times, scanned_at, values, scan)

    def regression(self, pulls: Pulls, prior: fusion.Prior) -> fusion.Regression:
        """Return the regression of the pulls' logits on the scan."""
        at_pulls = fusion.standardised_scan(self.times, pulls.frames / self.video.fps, self.scanned_at, self.values)
        return fusion.regression(at_pulls, pulls.logits, prior)

    def measured(self, pulls: Pulls) -> float:
        """Return the correlation of both encoders in [-1, 1], estimated from the pulls alone, without the prior."""
        fit = self.regression(pulls, replace(fusion.Prior(), prior_pulls=0.0))
        return fit.slope / fit.sigma

    def fused(
        self,
        pulls: Pulls,
        request: SelectionRequest,
        prior: fusion.Prior,
        value: coverage.Value,
        *,
        with_events: bool = False,
    ) -> Choice:
        """Return the keyframes that cover the most evidence density estimated from scan and pulls together.

        Args:
            with_events: see the density "events" of `ScanCover`.
        """
        fit, pull_times = self.regression(pulls, prior), pulls.frames / self.video.fps
        density = fusion.density_of(self.times, self.scan, pull_times, fit, prior)
        facts = {"rho": fit.rho, "q": fit.q, "slope": fit.slope, "rho_measured": self.measured(pulls)}
        if with_events and np.ptp(pulls.logits) > 0 and density.sum() > 0:
            heights, _ = fusion.fused_heights(self.times, self.scan, pull_times, fit, prior)
            # Use every second point: 2.5 points a second are enough for events, and the cost grows with their square.
            coarse = slice(None, None, EVENT_STEP)
            events = np.interp(self.times, self.times[coarse], event_density(self.times[coarse], heights[coarse]))
            density = 0.5 * events + 0.5 * density / density.mean()
            return Choice(keyframes=event_frames(self.times, density, request.n_wanted, self.video), facts=facts)
        return self.covering(density, request, value, facts, is_flat=np.ptp(pulls.logits) == 0)

    def covering(
        self,
        density: FloatArray,
        request: SelectionRequest,
        value: coverage.Value,
        facts: Mapping[str, object] | None = None,
        *,
        is_flat: bool = True,
    ) -> Choice:
        """Return the keyframes that cover the most of `density`, or even ones if scan and pulls are constant.

        Args:
            is_flat: True if the pulls are all equal or there are none.
        """
        if is_flat and np.ptp(self.values) == 0:
            even = even_frames(self.video, request.n_wanted)
            return Choice(keyframes=even, facts={**(facts or {}), "fallback": "uniform: both encoders are flat"})
        frames = coverage.covering_frames(self.grid, density, request.n_wanted, self.video, value=value)
        return Choice(keyframes=frames, facts=facts or {})


def evenly_pulled(video: VideoInfo, n: int, rng: np.random.Generator) -> IntArray:
    """Return jittered even frames, as `even_cover` pulls them, ascending, `(n,)`."""
    if n == 0:
        return np.empty(0, dtype=np.int64)
    return jittered(equal_clips(video.n_frames, 1), np.array([n]), rng)


@dataclass(frozen=True, kw_only=True)
class ScanOnly(ScanningSampler):
    """Spends the whole budget on the scan, at most five frames a second, and chooses keyframes from the scan alone.

    The coverage rule is that of `scan_cover`.

    Args:
        share, shared_by, value: as in `scan_cover`.
    """

    name: ClassVar[str] = "scan_only"
    source: ClassVar[str] = "focus-eval; control of scan_cover at equal cost"
    role: ClassVar[Role] = "control"
    draws: ClassVar[bool] = False

    share: float = option(0.005, above=0, at_most=1)
    shared_by: float = option(1.0, at_least=1)
    value: coverage.Value = option("recall")

    def choose(self, request: SelectionRequest) -> Choice:
        """Scan as many frames as the budget pays for; return those that cover the most density of the scan."""
        frames = self.scanned(request.video, self.cost_of_scan(request.scan_cost))
        view = ScanView.of(request.video, frames, request.ledger.scan(frames))
        return view.covering(fusion.scan_density(view.times, view.scan, fusion.Prior()), request, self.value)

    def scanned(self, video: VideoInfo, cost: float) -> IntArray:
        """Return the frames to scan, ascending; `cost` is that of a scan forward, in forwards of the main encoder."""
        n = int(self.share * coverage.SHARE_OF_FPS * video.duration_seconds * self.shared_by / cost + 1e-9)
        return self.scannable(video, coverage.middles(video, min(coverage.grid_frames(video).size, max(1, n))))

    def expected_pulls(self, video: VideoInfo, *, k: int) -> ExpectedPulls | None:
        """Return the scan, without pulls."""
        return ExpectedPulls(scanned=self.scanned(video, self.cost_of_scan(None)))


@dataclass(frozen=True, kw_only=True)
class AllFrames(ScanningSampler):
    """Both encoders see five frames a second; keyframes are chosen as in `scan_cover`: a ceiling for sparse pulls.

    Args:
        value: as in `scan_cover`.
    """

    name: ClassVar[str] = "all_frames"
    source: ClassVar[str] = "focus-eval; control of scan_cover without a budget"
    draws: ClassVar[bool] = False
    role: ClassVar[Role] = "control"

    value: coverage.Value = option("recall")

    def choose(self, request: SelectionRequest) -> Choice:
        """Score and scan the whole grid of five frames a second.

        Return the keyframes that `scan_cover` would choose.
        """
        grid = coverage.grid_frames(request.video)
        scanned = self.scannable(request.video, grid)
        view = ScanView.of(request.video, scanned, request.ledger.scan(scanned))
        return view.fused(Pulls.of(request.ledger, grid), request, fusion.Prior(), self.value)
