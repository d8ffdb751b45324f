"""Checks the numbers of a selection file against the lengths of the videos."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from focus_eval.errors import SelectionMismatch
from focus_eval.rows.building import AskedQuestion
from focus_eval.selections.imported import ImportedSelection

# An annotation's length and a file's real one differ by up to a second in LongVideoBench.
SLACK_SECONDS = 1.0
# Below this many frames in all, "every index is smaller than the seconds" may be chance.
_FEWEST_FRAMES_TO_JUDGE = 16


def numbers(values: Any, *, unit: str, where: str) -> tuple[Any, ...]:
    """Return `values` as ascending ints (unit "frames") or floats (unit "seconds").

    Raises:
        SelectionMismatch: no list, no number, not finite, or a fraction where a frame is meant.
    """
    if not isinstance(values, list):
        raise SelectionMismatch(f"{where}: expected a list of {unit}, got {type(values).__name__}")
    for value in values:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            raise SelectionMismatch(f"{where}: {value!r} is not a number of {unit}")
        if unit == "frames" and value != int(value):
            raise SelectionMismatch(f"{where}: {value!r} is not a frame index; are these seconds? (unit: seconds)")
    return tuple(int(value) for value in values) if unit == "frames" else tuple(float(value) for value in values)


def check_unit_plausible(selections: Mapping[str, ImportedSelection], questions: Sequence[AskedQuestion]) -> None:
    """Refuse a file whose "frames" never go past the videos' lengths in seconds: those are whole seconds.

    Raises:
        SelectionMismatch: names the first row and its length.
    """
    seconds = {asked.id: asked.duration_seconds for asked in questions}
    judged = [
        (selection, selection.keyframes[-1], length)
        for key, selection in selections.items()
        if selection.keyframes and (length := seconds.get(key)) is not None
    ]
    if sum(selection.n_keyframes for selection, _, _ in judged) < _FEWEST_FRAMES_TO_JUDGE:
        return
    if all(last <= length + SLACK_SECONDS for _, last, length in judged):
        selection, last, length = judged[0]
        raise SelectionMismatch(
            f"{selection.where} ({selection.question_id}): no frame of this file is past its video's length in seconds "
            f"(here: {last} of {length:g} s); these are seconds (unit: seconds)"
        )


def check_lengths(
    selections: Mapping[str, ImportedSelection], questions: Sequence[AskedQuestion], fps: Mapping[str, float]
) -> None:
    """Refuse a frame or time more than a second past the annotated end of its video, where lengths are known.

    Raises:
        SelectionMismatch: names the row.
    """
    seconds = {asked.id: asked.duration_seconds for asked in questions}
    for key, selection in selections.items():
        length, rate = seconds.get(key), selection.fps or fps.get(key, 0.0)
        if length is None or (selection.keyframes is not None and rate <= 0):
            continue
        times = selection.times_at(rate)
        if not times or times[-1] <= length + SLACK_SECONDS:
            continue
        said = (
            f"{times[-1]:g} s"
            if selection.keyframes is None
            else f"frame {selection.keyframes[-1]} ({times[-1]:.1f} s)"
        )
        hint = "are these frames? (unit: frames)" if selection.keyframes is None else "past the end"
        raise SelectionMismatch(f"{selection.where} ({key}): {said} asked, the video has {length:g} s; {hint}")
