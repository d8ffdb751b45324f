"""How often is a model right without seeing the video?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from focus_eval.samplers.base import Choice, FrameSampler, Role, SelectionRequest


@dataclass(frozen=True, kw_only=True)
class Blind(FrameSampler):
    """No frame at all: the floor, reached by language alone.

    A model that requires a video gets one black frame, and the row records that.
    """

    name: ClassVar[str] = "blind"
    source: ClassVar[str] = "control without frames"
    draws: ClassVar[bool] = False
    role: ClassVar[Role] = "floor"
    needs_encoder: ClassVar[bool] = False
    may_return_fewer: ClassVar[bool] = True

    def choose(self, request: SelectionRequest) -> Choice:
        """Return no keyframes."""
        return Choice(keyframes=np.empty(0, dtype=np.int64))
