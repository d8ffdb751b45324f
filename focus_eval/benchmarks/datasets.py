"""Turns LongVideoBench, MLVU, Video-MME and VSI-Bench documents into questions."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from focus_eval.benchmarks.declared import LETTERS, option_letter, seconds_field, text_field, without_letter
from focus_eval.benchmarks.question import BUCKETS, LengthEdges, Question
from focus_eval.core.errors import InvalidInput

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
