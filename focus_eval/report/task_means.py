"""The benchmarks whose accuracy is the mean over task types, and which types those are."""

from __future__ import annotations

from collections.abc import Sequence

# As their authors and lmms-eval report them (spec of the protocol, "Benchmark means").
MEANS_OVER_TYPES = ("mlvu", "vsibench")
_DIRECTION = "object_rel_direction_"


def strata_of(benchmark: str, categories: Sequence[str]) -> list[str] | None:
    """Return the task type of each question where `benchmark` is reported as the mean over types, else None.

    VSI-Bench's three relative directions are parts of one type: "object_rel_direction/easy". None also where a row
    does not say its category: then only the mean over questions is known.

    Args:
        categories: the benchmark's own question types, as the rows carry them.
    """
    if benchmark not in MEANS_OVER_TYPES or not all(categories):
        return None
    return [
        category.replace(_DIRECTION, _DIRECTION[:-1] + "/") if category.startswith(_DIRECTION) else category
        for category in categories
    ]
