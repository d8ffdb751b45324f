"""Lists the commands for samplers; the command line joins four such lists."""

from __future__ import annotations

from collections.abc import Callable

from focus_eval.lab.commands.check import check, simulate
from focus_eval.lab.commands.compare_samplers import compare_samplers

# Each command with the example that its help ends with, by heading. The most used come first.
COMMANDS: dict[str, dict[str, tuple[Callable[..., None], str]]] = {
    "A sampler": {
        "check": (check, "focus-eval check mine.py:Mine"),
        "simulate": (simulate, "focus-eval simulate --limit 5"),
        "compare-samplers": (compare_samplers, "focus-eval compare-samplers focus topk even_diverse even_cover"),
    },
}
