"""What do the scan alone, and both encoders on every frame of the grid, give beside scan_cover?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from focus_eval.core.options import option
from focus_eval.core.types import IntArray, VideoInfo
from focus_eval.samplers import coverage, fusion
from focus_eval.samplers.base import Choice, Role, SelectionRequest
from focus_eval.samplers.even_cover import SHARE_OF_FPS
from focus_eval.samplers.expected_pulls import ExpectedPulls
from focus_eval.samplers.scan_cover import Pulls, ScanView
from focus_eval.samplers.scanning import ScanningSampler


@dataclass(frozen=True, kw_only=True)
class ScanOnly(ScanningSampler):
    """The whole budget pays for the scan, at most five frames a second; keyframes as `scan_cover` without pulls.

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
        """Return the frames to scan, ascending; `cost` is a scan forward's in forwards of the main encoder."""
        n = int(self.share * SHARE_OF_FPS * video.duration_seconds * self.shared_by / cost + 1e-9)
        return self.scannable(video, coverage.middles(video, min(coverage.grid_frames(video).size, max(1, n))))

    def expected_pulls(self, video: VideoInfo, *, k: int) -> ExpectedPulls | None:
        """Return the scan, without pulls."""
        return ExpectedPulls(scanned=self.scanned(video, self.cost_of_scan(None)))

    def count_scans(self, video: VideoInfo, *, k: int) -> int:
        """Return the number of frames that the budget pays for."""
        return int(self.scanned(video, self.cost_of_scan(None)).size)


@dataclass(frozen=True, kw_only=True)
class AllFrames(ScanningSampler):
    """Both encoders see five frames a second; keyframes are chosen as in `scan_cover`. An upper bound for sparse pulls.

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
