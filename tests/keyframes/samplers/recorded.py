"""Cases recorded from the public code of others, and the relevance they were recorded on (`tests/recorded`)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from focus_eval.keyframes.samplers.sources import ArraySource

FOLDER = Path(__file__).resolve().parents[2] / "recorded"


def recorded_cases(name: str) -> list[dict[str, Any]]:
    """Return the cases of `tests/recorded/<name>.json`."""
    return json.loads((FOLDER / f"{name}.json").read_text())


def recorded_relevance(trace: dict[str, Any]) -> np.ndarray:
    """Return the relevance of every frame that a case's `trace` describes, shape `(frames,)`.

    The terms are added in the order they were recorded in, so that every bit agrees.
    """
    frame = np.arange(trace["frames"], dtype=float)
    relevance = np.full(frame.shape, float(trace["base"]))
    for center, width, height in trace["bumps"]:
        relevance = relevance + height * np.exp(-(((frame - center) / width) ** 2))
    relevance = relevance + trace["ripple"] * np.sin(frame * trace["ripple_rate"])
    return np.minimum(np.maximum(relevance, 0.0), 1.0)


def recorded_world(case: dict[str, Any]) -> ArraySource:
    """Return the world that a case was recorded in."""
    return ArraySource(recorded_relevance(case["trace"]))
