"""The cost of choosing frames, in forwards of the main encoder.

total = forward_equivalents(unit_costs(row.gmacs), encoded=20, scanned=300, pulls=20)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import ArrayLike

from focus_eval.core.types import FloatArray
from focus_eval.keyframes.rows.records import forward_gmacs


def unit_costs(gmacs: Mapping[str, float], *, relative_cost: float | None = None) -> tuple[float, float, float]:
    """Return the cost of a main frame, a scanned frame and a (frame, question) pair, in forwards of the main encoder.

    An encoder without stated costs counts 1 per main frame and 0 per pair; a scan of unknown cost is NaN.

    Args:
        gmacs: 10^9 multiply-adds by kind, as in a `SelectionRow`.
        relative_cost: cost of a scanned frame divided by that of a main one, if the user states it.
    """
    unit = forward_gmacs(gmacs) or np.nan
    scan = gmacs.get("scan_image", np.nan) / unit if relative_cost is None else float(relative_cost)
    keys, fusion = (gmacs[name] / unit if name in gmacs else 0.0 for name in ("keys", "fusion"))
    # An encoder that reads image and text together has no cost per frame, only per pair of frame and question.
    return (0.0 if "fusion" in gmacs and "image" not in gmacs else 1.0 + keys), scan, fusion


def common_forward(rows: Iterable[Mapping[str, float]]) -> float | None:
    """Return the 10^9 multiply-adds of a forward if all `rows` (`gmacs` mappings) that state them agree, else None.

    It is the unit of cost for rows without an encoder, whose sampler asked a model.
    """
    units = {unit for unit in map(forward_gmacs, rows) if unit}
    return units.pop() if len(units) == 1 else None


def llm_equivalents(gmacs: Mapping[str, float], usage: Mapping[str, float], *, unit: float | None = None) -> float:
    """Return the cost of asking a model, in forwards of the main encoder; NaN if tokens or their cost are not known.

    A token takes one multiply-add per parameter, whether it is read or written.

    Args:
        gmacs: 10^9 multiply-adds by kind, as in a `SelectionRow`.
        usage: `asked` of a `SelectionRow`: numbers of calls, input and output tokens. Without calls the cost is 0.
        unit: 10^9 multiply-adds of a forward for a row without an encoder.
    """
    if not usage.get("calls"):
        return 0.0
    tokens = usage.get("input", np.nan) + usage.get("output", np.nan)
    return float(tokens * gmacs.get("llm_token", np.nan) / (forward_gmacs(gmacs) or unit or np.nan))


def forward_equivalents(
    units: tuple[ArrayLike, ArrayLike, ArrayLike], *, encoded: ArrayLike, scanned: ArrayLike, pulls: ArrayLike
) -> FloatArray:
    """Return the total cost in forwards of main frames, scanned frames and pulled pairs; `units` from `unit_costs`."""
    main, scan, pair = units
    # If no frame was scanned, the cost is 0 even if that of a scan is unknown (NaN).
    scans = np.where(np.asarray(scanned) == 0, 0.0, np.asarray(scanned) * scan)
    return np.asarray(np.asarray(encoded) * main + scans + np.asarray(pulls) * pair, dtype=np.float64)
