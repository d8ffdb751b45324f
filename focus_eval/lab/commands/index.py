"""Lists the commands for samplers; the command line joins this list with three more."""

from __future__ import annotations

from collections.abc import Callable

from focus_eval.lab.commands.check import check, simulate
from focus_eval.lab.commands.compare_samplers import compare_samplers

# Heading -> command name -> function and the example at the end of its help. The most used commands come first.
COMMANDS: dict[str, dict[str, tuple[Callable[..., None], str]]] = {
    "A sampler": {
        "check": (check, "focus-eval check mine.py:Mine"),
        "simulate": (simulate, "focus-eval simulate --limit 5"),
        "compare-samplers": (compare_samplers, "focus-eval compare-samplers focus topk even_diverse even_cover"),
    },
}
