"""Scores an answer as the task's own `process_results` does, for one question."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from focus_eval.rows.records import error_line

# What a task's dictionary for one question calls its score, the most explicit name first.
_SCORE_NAMES = ("score", "correct", "is_correct", "accuracy", "acc")
_ANSWER_PAIRS = (("pred_answer", "answer"), ("parsed_pred", "answer"), ("pred", "ground_truth"))


@dataclass(frozen=True)
class TaskScore:
    """What a task's own metric says of one answer.

    Args:
        metric: its name; "" where the task gives no number for one question.
        score: 0 to 1; None where the task gives none.
    """

    metric: str = ""
    score: float | None = None


def task_of(request: Any) -> Any | None:
    """Return the lmms-eval task that built `request`; None for a request made by hand.

    A wrapper is given documents only, and the score of a task that is not a benchmark here is known to the task alone.
    lmms-eval puts its task's bound method `doc_to_visual` (`doc_to_messages` for chat models) into every request, so
    the task is that method's object. tests/lmms/tasks/test_scoring.py fails when that changes.
    """
    for argument in request.args:
        owner = getattr(argument, "__self__", None)
        if owner is not None and hasattr(owner, "process_results"):
            return owner
    return None


def task_score(task: Any, document: Mapping[str, Any], text: str, *, seed: int) -> TaskScore:
    """Return what `process_results` of `task` says of the answer `text` to `document`.

    The first metric in the task's own order that gives a number in [0, 1], higher being better, counts. Some tasks
    guess where they cannot read an answer; their guess is drawn from `seed`, and the generator of the process is left
    as it was.
    """
    state = random.getstate()
    random.seed(seed)
    try:
        # Not the task's own method: it tries again for ten seconds where a document is damaged.
        function = task.config.process_results
        results = function(document, [text.strip()]) if callable(function) else task.process_results(document, [text])
    except (Exception, SystemExit) as error:  # noqa: BLE001 (a task of others; its answer stays, unscored)
        from loguru import logger  # comes with lmms-eval; a plan reads this module without it

        logger.warning(f"{task.config.task}: its process_results failed, the answer is not scored: {error_line(error)}")
        return TaskScore()
    finally:
        random.setstate(state)
    metrics = {str(entry.get("metric")): entry for entry in task.config.metric_list or [] if isinstance(entry, Mapping)}
    # Of an error measure the best answer would have the lowest number.
    for metric, entry in metrics.items():
        score = score_in(results.get(metric)) if entry.get("higher_is_better", True) else None
        if score is not None:
            return TaskScore(metric, score)
    return TaskScore()


def score_in(value: Any) -> float | None:
    """Return the score of one question in what a metric collected; None without a number in [0, 1]."""
    # A task gives a number, or the facts that its aggregation needs later.
    if isinstance(value, Mapping):
        for name in _SCORE_NAMES:
            if name in value:
                return score_in(value[name])
        for given, right in _ANSWER_PAIRS:
            if given in value and right in value:
                return float(str(value[given]).strip().upper() == str(value[right]).strip().upper())
        return None
    try:
        score = float(value)
    except (TypeError, ValueError):
        return None
    # Beyond that it is a count or a percentage, and nothing says which.
    return score if 0.0 <= score <= 1.0 else None
