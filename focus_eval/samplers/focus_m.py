"""How much does FOCUS lose by comparing means alone, without radii?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from focus_eval.core.types import FloatArray
from focus_eval.samplers.bandit import Arms
from focus_eval.samplers.focus import Focus


@dataclass(frozen=True, kw_only=True)
class FocusM(Focus):
    """`focus` whose promising arms are those of the highest mean: a radius of 0 in step 3."""

    name: ClassVar[str] = "focus_m"
    source: ClassVar[str] = "FOCUS (Zhu et al., ICLR 2026), ablation without Bernstein radius"

    def exploration(self, arms: Arms) -> FloatArray:
        """Return 0 for every arm: no radius is added to its mean."""
        return np.zeros(len(arms.clips))
