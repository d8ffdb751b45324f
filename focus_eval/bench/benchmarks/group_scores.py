"""Official scores of groups of questions: Video-MME-v2 scores the four questions about a video together."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from focus_eval.core.errors import InvalidInput

RELEVANCE, LOGIC = "relevance", "logic"


@dataclass(frozen=True, kw_only=True)
class GroupScore:
    """Facts of a benchmark whose official score is of groups: all questions about one video.

    Args:
        metric: name of the score in lmms-eval's results.
        question_metric: name in these results of the plain accuracy, which is the score of a single question.
        type, structure: fields of a document with the kind of its group ("relevance" or "logic") and its levels.
        size: number of questions in a group.
    """

    metric: str
    question_metric: str
    type: str
    structure: str
    size: int


def group_score(kind: str, structure: str, are_right: Sequence[bool], *, size: int) -> float:
    """Return the score of a group in [0, 1] (Video-MME-v2).

    Relevance: the square of the share of right answers. Logic: questions stand on levels, e.g. "[1, [2, 3], 4]", and a
    question on level d weighs 2 d - 1. Right answers count up to and including the first level with a wrong answer.

    Args:
        are_right: True for each right answer, in the order of the questions; may be shorter if the last were not asked.

    Raises:
        InvalidInput: an unknown kind, or a structure that is no list of `size` questions.
    """
    if kind == RELEVANCE:
        return (sum(are_right) / size) ** 2
    if kind != LOGIC:
        raise InvalidInput(f"group type {kind!r}: neither {RELEVANCE} nor {LOGIC}")
    try:
        levels = [level if isinstance(level, list) else [level] for level in json.loads(structure)]
    except (ValueError, TypeError) as error:
        raise InvalidInput(f"group structure {structure!r}: not a list of levels") from error
    if [number for level in levels for number in level] != list(range(1, size + 1)):
        raise InvalidInput(f"group structure {structure!r}: does not name questions 1 to {size} in order")
    right_numbers = {number for number, is_right in enumerate(are_right, start=1) if is_right}
    total = sum((2 * depth - 1) * len(level) for depth, level in enumerate(levels, start=1))
    points = 0
    for depth, level in enumerate(levels, start=1):
        points += (2 * depth - 1) * len(right_numbers & set(level))
        if not right_numbers >= set(level):
            break
    return points / total


def check_groups(groups: Iterable[tuple[str, tuple[str, ...]]], *, size: int) -> None:
    """Check that the questions about each video form a group that `score_groups` can score.

    Args:
        groups: video and (type, structure) of each question; a question with () is in no group.

    Raises:
        InvalidInput: a video has more than `size` questions, or several types or structures, or an unknown one.
    """
    by_video: dict[str, list[tuple[str, ...]]] = {}
    for video, group in groups:
        if group:
            by_video.setdefault(video, []).append(group)
    for video, of_video in by_video.items():
        if len(of_video) > size:
            raise InvalidInput(f"video {video!r}: a group of {len(of_video)} questions; group_score states size {size}")
        if len(set(of_video)) > 1:
            raise InvalidInput(f"video {video!r}: its questions name several groups, {sorted(set(of_video))}")
        kind, structure = of_video[0]
        try:
            group_score(kind, structure, [], size=size)
        except InvalidInput as error:
            raise InvalidInput(f"video {video!r}: {error}") from error


def score_groups(questions: Iterable[tuple[str, str, float | None, tuple[str, ...]]], *, size: int) -> dict[str, float]:
    """Return the score of each group by video; a group is all questions about one video.

    Args:
        questions: video, question id, score, and (type, structure) of the group; a question with () is left
            out. A score is None if the right answer is hidden; the whole group is then left out.
    """
    by_video: dict[str, list[tuple[int, str, float | None, tuple[str, ...]]]] = {}
    for video, question_id, score, group in questions:
        if group:
            number = re.search(r"(\d+)\D*$", question_id)
            place = int(number[1]) if number else 0
            by_video.setdefault(video, []).append((place, question_id, score, group))
    scores = {}
    for video, of_video in by_video.items():
        ordered = sorted(of_video, key=lambda question: question[:2])
        kind, structure = ordered[0][-1]
        known = [score >= 1 for _, _, score, _ in ordered if score is not None]
        if len(known) == len(ordered):
            scores[video] = group_score(kind, structure, known, size=size)
    return scores
