"""What would scan_cover choose if both encoders saw every frame of its grid? A bound without a budget."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from focus_eval.core.options import option
from focus_eval.samplers import coverage, fusion
from focus_eval.samplers.base import Choice, Role, SelectionRequest
from focus_eval.samplers.scan_cover import Pulls, ScanView
from focus_eval.samplers.scanning import ScanningSampler


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
