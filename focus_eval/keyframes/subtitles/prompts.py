"""Chooses the subtitles of shown frames, and places them between the frames or before a question.

    parts = interleaved(lines, times, rule="longvideobench", fps=25.0)
    text_of_parts(parts)  # "<image>\\nHello.\\n<image>"

The rules are those of two benchmarks, as lmms-eval 0.7.3 applies them to its own evenly spaced frames
(`lmms_eval/tasks/longvideobench/utils.py`, `lmms_eval/tasks/videomme/utils.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from math import isclose
from typing import Literal

from focus_eval.core.types import TimedText
from focus_eval.keyframes.subtitles.files import in_order_of_time

SubtitleMode = Literal["off", "shown", "all"]
SubtitleRule = Literal["longvideobench", "videomme"]
SubtitleLayout = Literal["interleaved", "block"]

SUBTITLE_MODES: tuple[SubtitleMode, ...] = ("off", "shown", "all")
SUBTITLE_RULES: tuple[SubtitleRule, ...] = ("longvideobench", "videomme")
SUBTITLE_LAYOUTS: tuple[SubtitleLayout, ...] = ("interleaved", "block")

# Placeholder that lmms-eval writes for a picture between lines of text.
PICTURE = "<image>"
BLOCK_TITLE = "This video's subtitles are listed below: "
# Arguments with which tasks of lmms-eval state for how many evenly spaced frames a prompt is written.
FRAME_ARGUMENTS = ("frame_num", "num_frames", "max_num_frames", "insert_interleave_subtitles")
OTHER_FRAMES = "prompt made for other frames"
NO_SUBTITLES = "no subtitles available"
# LongVideoBench widens an interval that is shorter than this to this length, about its middle.
_LEAST_SECONDS = 1.0


def shown_lines(
    lines: Sequence[TimedText], times_seconds: Sequence[float], *, rule: SubtitleRule, fps: float
) -> tuple[TimedText, ...]:
    """Return the lines of the shown frames, each once, in the order of the rule.

    Rule "longvideobench": a line is returned if a frame lies strictly inside its interval, which is widened to 1 s
    about its middle if it is shorter; lines are in the order of the file. Rule "videomme": a line is returned if a
    frame lies in [start, stop); lines ascend by start.

    Args:
        lines: the video's subtitles in the order of the file.
        times_seconds: presentation times of the shown frames.
        fps: frame rate of the video, above 0. Under "videomme" a frame of a constant rate is compared by its number
            with `int(start * fps)` and `int(stop * fps)`, as lmms-eval does; another by its time.
    """
    if rule == "longvideobench":
        return tuple(line for line in lines if _is_inside_widened(line, times_seconds))
    numbers, other_times = set[int](), []
    for seconds in times_seconds:
        # If the rate is constant, seconds * fps is a whole number, up to rounding.
        if isclose(seconds * fps, number := round(seconds * fps), abs_tol=1e-3):
            numbers.add(number)
        else:
            other_times.append(seconds)
    return tuple(
        line
        for line in in_order_of_time(tuple(lines))
        if any(int(line.start_seconds * fps) <= number < int(line.stop_seconds * fps) for number in numbers)
        or any(line.start_seconds <= seconds < line.stop_seconds for seconds in other_times)
    )


def interleaved(
    lines: Sequence[TimedText], times_seconds: Sequence[float], *, texts_of: Iterable[TimedText]
) -> list[str | None]:
    """Return the sequence of pictures (None) and texts of lines by time.

    A line's place is the middle of its interval: every frame at or before the middle comes before it.

    Args:
        lines: all subtitles of the video, in the order of the file; also those that are not written advance the frames.
        times_seconds: presentation times of the shown frames, ascending.
        texts_of: the lines of `lines` whose texts are part of the sequence.
    """
    parts: list[str | None] = []
    n_pictures, text_ids = 0, {id(line) for line in texts_of}
    for line in lines:
        middle = (line.start_seconds + line.stop_seconds) / 2
        while n_pictures < len(times_seconds) and times_seconds[n_pictures] <= middle:
            parts.append(None)
            n_pictures += 1
        if id(line) in text_ids:
            parts.append(line.text)
    return parts + [None] * (len(times_seconds) - n_pictures)


def text_of_parts(parts: Iterable[str | None]) -> str:
    """Return the sequence as one text of lines, `PICTURE` for each picture."""
    return "\n".join(PICTURE if part is None else part for part in parts)


def block_text(lines: Iterable[TimedText], *, absence: str = "") -> str:
    """Return the lines under `BLOCK_TITLE`, with a line break at the end.

    Args:
        absence: text that replaces the lines if the video has none.
    """
    return f"{BLOCK_TITLE}\n{absence or text_of_parts(line.text for line in lines)}\n"


def _is_inside_widened(line: TimedText, times_seconds: Iterable[float]) -> bool:
    start, stop = line.start_seconds, line.stop_seconds
    if stop - start < _LEAST_SECONDS:
        middle = (start + stop) / 2
        start, stop = middle - _LEAST_SECONDS / 2, middle + _LEAST_SECONDS / 2
    return any(start < seconds < stop for seconds in times_seconds)


def other_frames_note(prompt: str, arguments: Mapping[str, object], *, n_shown: int | None, is_even: bool) -> str:
    """Return why a prompt was made for other frames than those shown, beginning with `OTHER_FRAMES`; "" if it was not.

    Args:
        prompt: the text that the model got.
        arguments: of the task; those in `FRAME_ARGUMENTS` count.
        n_shown: number of pictures shown; None if not known.
        is_even: True if the shown frames are, or may be, the evenly spaced ones that the task itself would take.
    """
    n_pictures = prompt.count(PICTURE)
    stated_arguments = {name: arguments[name] for name in FRAME_ARGUMENTS if arguments.get(name)}
    numbers = [value for value in stated_arguments.values() if type(value) is int]
    reasons = []
    if n_pictures and n_shown is not None and n_pictures != n_shown:
        reasons.append(f"{n_pictures} {PICTURE} in the text, {n_shown} pictures shown")
    if stated_arguments and (not is_even or (n_shown is not None and n_shown not in (numbers or [n_shown]))):
        shown_text = f", {n_shown} frames shown" if n_shown is not None else ""
        reasons.append(
            f"the task states {', '.join(f'{name}={value}' for name, value in stated_arguments.items())}{shown_text}"
        )
    if not reasons and not is_even and (n_pictures or BLOCK_TITLE.strip() in prompt):
        reasons.append("its subtitles are those of even frames")
    return f"{OTHER_FRAMES}: {'; '.join(reasons)}" if reasons else ""


def are_evenly_spaced(frames: Sequence[float]) -> bool:
    """Return True if frame numbers or seconds are evenly spaced, up to the rounding of a frame."""
    gaps = [stop - start for start, stop in pairwise(frames)]
    return not gaps or max(gaps) - min(gaps) <= 1.0


def task_arguments(kwargs: Mapping[str, object] | None, model: str = "") -> dict[str, object]:
    """Return the arguments of a task for a model, from its `lmms_eval_specific_kwargs`: `model`'s, else "default"'s."""
    kwargs = kwargs or {}
    arguments = kwargs.get(model) or kwargs.get("default") or kwargs
    return dict(arguments) if isinstance(arguments, Mapping) else {}
