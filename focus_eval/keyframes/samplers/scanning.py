"""Base of samplers that scan the whole video with a second, cheap encoder: its name, cost and frames."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from focus_eval.core.errors import InvalidInput
from focus_eval.core.options import option
from focus_eval.core.types import IntArray, VideoInfo
from focus_eval.keyframes.samplers.base import FrameSampler

ScanDecode = Literal["all", "reference", "sync"]


@dataclass(frozen=True, kw_only=True)
class ScanningSampler(FrameSampler):
    """A sampler with a scan encoder.

    >>> make_sampler("scan_cover", scan_encoder="offline:size=64").needs_scan
    True

    Args:
        scan_encoder: a registered encoder, with or without options ("clip:model=ViT-B-32"). A simulation uses its own
            simulated encoder "fair" instead, or another one such as "good" or "useless:cost=0.1".
        relative_cost: cost of a forward of the scan encoder divided by that of the main encoder; by default the ratio
            of their multiply-adds, if known.
        scan_decode: which frames may be scanned. "all": every planned frame is scanned. "reference": planned frames are
            moved to the nearest frames that others refer to, which must be decoded anyway. "sync": planned frames are
            moved to the nearest sync frames, so that no other frame is decoded. If the file does not list such frames,
            nothing is moved, and the row's facts record that.
    """

    needs_scan: ClassVar[bool] = True

    scan_encoder: str = option("")
    relative_cost: float | None = option(None, above=0)
    scan_decode: ScanDecode = option("all")

    def cost_of_scan(self, scan_cost: float | None) -> float:
        """Return the cost of a scan forward divided by that of a main forward: `relative_cost`, else `scan_cost`.

        Raises:
            InvalidInput: neither is known.
        """
        cost = scan_cost if self.relative_cost is None else self.relative_cost
        if cost is None:
            raise InvalidInput(
                f"sampler {self.name!r}: what a forward of scan_encoder {self.scan_encoder!r} costs is not known; "
                "give it as a share of one of the main encoder, e.g. -o relative_cost=0.1"
            )
        return cost

    def scannable(self, video: VideoInfo, frames: IntArray) -> IntArray:
        """Return the nearest frames to ascending `frames` that `scan_decode` allows, each once, ascending."""
        cheap = cheap_frames(video, self.scan_decode)
        if cheap is None:
            return frames
        nearest: IntArray = np.unique(cheap[np.searchsorted((cheap[1:] + cheap[:-1]) / 2, frames)])
        return nearest


def cheap_frames(video: VideoInfo, scan_decode: str) -> IntArray | None:
    """Return the frames that `scan_decode` ("sync", "reference" or "all") allows, ascending; None for all frames."""
    decodable_frames = {"sync": video.sync_frames, "reference": video.reference_frames}.get(scan_decode)
    return None if decodable_frames is None or decodable_frames.size == 0 else decodable_frames
