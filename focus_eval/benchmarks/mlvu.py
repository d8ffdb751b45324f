"""Turns MLVU documents into questions."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from focus_eval.benchmarks.buckets import LengthEdges
from focus_eval.benchmarks.documents import LETTERS, seconds_field, text_field
from focus_eval.benchmarks.question import Question
from focus_eval.errors import InvalidInput

_OPTION_LINE = re.compile(r"^[ \t]*\(([A-H])\)[ \t]*", re.MULTILINE)


class MLVU:
    """MLVU, dev and test: options sit inside the question's text, and documents have no id.

    The id is made of the video's name and a hash of question and options, so that lmms-eval's documents and the
    published annotation (with its own `question_id` or without) give the same one.

    Args:
        edges: length buckets; MLVU publishes none.
    """

    name = "mlvu"
    tasks: tuple[str, ...] = ("mlvu_dev", "mlvu_test")
    video_folders: Mapping[str, str] = {"mlvu_dev": "mlvu", "mlvu_test": "mlvu_test"}

    def __init__(self, *, edges: LengthEdges | None = None) -> None:
        self.edges = edges or LengthEdges()

    def question(self, document: Mapping[str, Any]) -> Question:
        """Return the question of one document.

        Raises:
            InvalidInput: a field that is missing or not as it must be.
        """
        video = text_field(document, "video_name" if "video_name" in document else "video", benchmark=self.name)
        where = f"{self.name} {video}"
        query, options = split_options(text_field(document, "question", benchmark=where))
        if not options:
            options = tuple(str(option) for option in document.get("candidates") or ())
        if len(options) < 2:
            raise InvalidInput(f"{where}: no options (A), (B).. in the question {query!r}")
        category = document.get("task_type") or document.get("question_type") or ""
        return Question(
            benchmark=self.name,
            id=_question_id(video, query, options),
            query=query,
            options=options,
            video=video,
            answer=_answer(text_field(document, "answer", benchmark=where), options, where=where),
            duration_seconds=seconds_field(document, "duration", benchmark=where),
            category=str(category),
        )

    def bucket(self, duration_seconds: float) -> str:
        """Return the length bucket of a video of that length."""
        return self.edges.bucket(duration_seconds)


def split_options(text: str) -> tuple[str, tuple[str, ...]]:
    """Return the bare question and its options from "question\\n(A) first\\n(B) second".

    Options start at the first line that begins with "(A)" and must run on in the order of the alphabet; a text
    without them is a question without options.
    """
    marks = list(_OPTION_LINE.finditer(text))
    start = next((at for at, mark in enumerate(marks) if mark[1] == "A"), None)
    if start is None:
        return text.strip(), ()
    marks = marks[start:]
    if [mark[1] for mark in marks] != list(LETTERS[: len(marks)]):
        return text.strip(), ()
    ends = [mark.start() for mark in marks[1:]] + [len(text)]
    options = tuple(text[mark.end() : end].strip() for mark, end in zip(marks, ends, strict=True))
    return text[: marks[0].start()].strip(), options


def _question_id(video: str, query: str, options: tuple[str, ...]) -> str:
    words = " ".join("\n".join((query, *options)).split())
    return f"{PurePosixPath(video).stem}_{hashlib.sha256(words.encode()).hexdigest()[:8]}"


def _answer(answer: str, options: tuple[str, ...], *, where: str) -> str:
    """Return the letter; the first published annotation gives the option's text instead."""
    if len(answer) == 1 and answer in LETTERS[: len(options)]:
        return answer
    if options.count(answer) == 1:
        return LETTERS[options.index(answer)]
    raise InvalidInput(f"{where}: answer {answer!r} is not one of the {len(options)} options")
