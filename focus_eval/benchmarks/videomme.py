"""Turns Video-MME documents into questions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from focus_eval.benchmarks.buckets import BUCKETS, LengthEdges
from focus_eval.benchmarks.documents import LETTERS, text_field, without_letter
from focus_eval.benchmarks.question import Question
from focus_eval.errors import InvalidInput


class VideoMME:
    """Video-MME: its field `duration` is the bucket; it gives no seconds.

    Args:
        edges: used only where a video's length is asked for without its question; the data set's classes (up to
            2 minutes, 4 to 15, 30 to 60) fall apart at the defaults.
    """

    name = "videomme"
    tasks: tuple[str, ...] = ("videomme",)
    video_folders: Mapping[str, str] = {"videomme": "videomme/data"}

    def __init__(self, *, edges: LengthEdges | None = None) -> None:
        self.edges = edges or LengthEdges()

    def question(self, document: Mapping[str, Any]) -> Question:
        """Return the question of one document.

        Raises:
            InvalidInput: a field that is missing or not as it must be.
        """
        question_id = text_field(document, "question_id", benchmark=self.name)
        where = f"{self.name} {question_id}"
        bucket = text_field(document, "duration", benchmark=where)
        if bucket not in BUCKETS:
            raise InvalidInput(f"{where}: duration must be one of {', '.join(BUCKETS)}, got {bucket!r}")
        options = tuple(without_letter(str(option), at) for at, option in enumerate(document.get("options") or ()))
        answer = text_field(document, "answer", benchmark=where)
        if answer not in LETTERS[: len(options)]:
            raise InvalidInput(f"{where}: answer {answer!r} is not one of the {len(options)} options")
        return Question(
            benchmark=self.name,
            id=question_id,
            query=text_field(document, "question", benchmark=where).strip(),
            options=options,
            video=f"{text_field(document, 'videoID', benchmark=where)}.mp4",
            answer=answer,
            bucket=bucket,
            category=str(document.get("task_type") or ""),
        )

    def bucket(self, duration_seconds: float) -> str:
        """Return the length bucket of a video of that length."""
        return self.edges.bucket(duration_seconds)
