"""Turns VSI-Bench documents into questions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from focus_eval.benchmarks.buckets import LengthEdges
from focus_eval.benchmarks.documents import LETTERS, text_field, without_letter
from focus_eval.benchmarks.question import Question
from focus_eval.errors import InvalidInput


class VSIBench:
    """VSI-Bench: choices where a document has `options`, else an open question whose answer is a number.

    Args:
        edges: length buckets; VSI-Bench publishes none, and its annotation has no seconds.
    """

    name = "vsibench"
    tasks: tuple[str, ...] = ("vsibench", "vsibench_debiased", "vsibench_pruned")
    video_folders: Mapping[str, str] = dict.fromkeys(tasks, "vsibench")

    def __init__(self, *, edges: LengthEdges | None = None) -> None:
        self.edges = edges or LengthEdges()

    def question(self, document: Mapping[str, Any]) -> Question:
        """Return the question of one document.

        Raises:
            InvalidInput: a field that is missing or not as it must be.
        """
        question_id = text_field(document, "id", benchmark=self.name)
        where = f"{self.name} {question_id}"
        given = document.get("options")
        options = () if given is None else tuple(without_letter(str(item), at) for at, item in enumerate(given))
        answer = text_field(document, "ground_truth", benchmark=where).strip()
        if options and answer not in LETTERS[: len(options)]:
            raise InvalidInput(f"{where}: answer {answer!r} is not one of the {len(options)} options")
        scene = text_field(document, "scene_name", benchmark=where)
        return Question(
            benchmark=self.name,
            id=question_id,
            query=text_field(document, "question", benchmark=where).strip(),
            options=options,
            video=f"{text_field(document, 'dataset', benchmark=where)}/{scene}.mp4",
            answer=answer,
            category=text_field(document, "question_type", benchmark=where),
        )

    def bucket(self, duration_seconds: float) -> str:
        """Return the length bucket of a video of that length."""
        return self.edges.bucket(duration_seconds)
