"""The colour and the mark of each sampler, in every figure.

Okabe and Ito's colours, told apart by readers with any kind of colour vision; marks differ as well, for print.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle

# (colour, matplotlib marker), in the order samplers are given one. Yellow is left out: it fades on white.
STYLES = (
    ("#0072B2", "o"),
    ("#D55E00", "s"),
    ("#009E73", "^"),
    ("#CC79A7", "D"),
    ("#E69F00", "v"),
    ("#56B4E9", "P"),
    ("#8A6D3B", "X"),
    ("#5B4B8A", "*"),
    ("#3F4A54", "p"),
)
BASELINE = ("#8A8A8A", "o")
EVIDENCE = "#B8860B"
INK, FAINT = "#222222", "#8A8A8A"
_OWN = {"focus": 0, "topk": 1, "aks": 2, "focus_released": 3, "random": 4, "uniform_1fps": 8}


def styles_of(labels: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Return colour and marker by label: known samplers always have their own, uniform frames are grey."""
    taken = {_OWN[label] for label in labels if label in _OWN}
    free = cycle([style for i, style in enumerate(STYLES) if i not in taken] or STYLES)
    return {
        label: BASELINE if label == "uniform" else STYLES[_OWN[label]] if label in _OWN else next(free)
        for label in labels
    }
