"""Turns LongVideoBench documents into questions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from focus_eval.benchmarks.buckets import LengthEdges
from focus_eval.benchmarks.documents import option_letter, seconds_field, text_field
from focus_eval.benchmarks.question import Question
from focus_eval.errors import InvalidInput

# `position` counts frames at this rate whatever the rate of the file: it agrees with independent scene
# annotations, the native rate does not.
POSITION_FPS = 24.0
# A position this far past the end of the video is a slip of the annotation (one of 2396 in the validation split).
SLACK_SECONDS = 1.0


class LongVideoBench:
    """LongVideoBench: lmms-eval's documents (`option0`..`option4`) and rows of `lvb_val.json` (`candidates`).

    Buckets follow the video's own `duration`, not `duration_group`.

    Args:
        name: "longvideobench", or that of a data set in its schema.
        edges: length buckets.
    """

    tasks: tuple[str, ...] = ("longvideobench_val_v",)
    video_folders: Mapping[str, str] = {"longvideobench_val_v": "datasets/longvideobench/videos"}
    # Beside the documents, which need not have `position`: the evidence of each, by id.
    evidence_file = "lvb_val.json"

    def __init__(self, *, name: str = "longvideobench", edges: LengthEdges | None = None) -> None:
        self.name = name
        self.edges = edges or LengthEdges()

    def question(self, document: Mapping[str, Any]) -> Question:
        """Return the question of one document; dropped positions are counted in `extra["evidence_dropped"]`.

        Raises:
            InvalidInput: a field that is missing or not as it must be.
        """
        question_id = text_field(document, "id", benchmark=self.name)
        where = f"{self.name} {question_id}"
        options = _options(document, where=where)
        duration = seconds_field(document, "duration", benchmark=where)
        if duration is None:
            raise InvalidInput(f"{where}: no field 'duration'")
        evidence, n_dropped = evidence_of(document.get("position"), duration_seconds=duration, where=where)
        correct = document.get("correct_choice")
        return Question(
            benchmark=self.name,
            id=question_id,
            query=text_field(document, "question", benchmark=where).strip(),
            options=options,
            video=text_field(document, "video_path", benchmark=where),
            answer=None if correct is None else option_letter(int(correct), options, where=where),
            duration_seconds=duration,
            evidence_seconds=evidence,
            category=str(document.get("question_category") or ""),
            extra={"evidence_dropped": n_dropped, "duration_group": document.get("duration_group")},
        )

    def bucket(self, duration_seconds: float) -> str:
        """Return the length bucket of a video of that length."""
        return self.edges.bucket(duration_seconds)


def evidence_of(position: Any, *, duration_seconds: float, where: str) -> tuple[tuple[float, ...], int]:
    """Return the times of `position` in seconds, and how many of its entries lie past the video and were dropped.

    Raises:
        InvalidInput: entries that are not frame numbers; the message starts with `where`.
    """
    if position is None:
        return (), 0
    try:
        frames = [int(frame) for frame in (json.loads(position) if isinstance(position, str) else position)]
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"{where}: position must be a list of frame numbers, got {position!r}") from error
    if any(frame < 0 for frame in frames):
        raise InvalidInput(f"{where}: a position is below 0: {position!r}")
    times = [frame / POSITION_FPS for frame in frames]
    kept = tuple(time for time in times if time <= duration_seconds + SLACK_SECONDS)
    return kept, len(times) - len(kept)


def _options(document: Mapping[str, Any], *, where: str) -> tuple[str, ...]:
    if document.get("candidates") is not None:
        options = [str(option) for option in document["candidates"]]
    else:
        options = []
        for index in range(5):
            option = document.get(f"option{index}")
            if option is None or option == "N/A":
                break
            options.append(str(option))
    if len(options) < 2:
        raise InvalidInput(f"{where}: needs at least 2 options in option0.. or candidates, got {options}")
    return tuple(options)
