"""What accuracy would a rule have had that picks one of several logged runs for each question?

A policy is a list of rules; the first that fits a question names the run whose answer counts:

    policy_table(run, "duration<65:uniform,else:aks")
    policy_table(run, "duration<?:uniform,else:?")  # ? is chosen by cross-validation

Nothing is asked again: all runs answered the questions.
"""

from __future__ import annotations

import itertools
import operator
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
import pandas as pd

from focus_eval.bench.report.comparisons import Pair, comparison_table
from focus_eval.bench.report.measures import question_means
from focus_eval.bench.report.rendering import Table
from focus_eval.bench.report.run import Run
from focus_eval.bench.report.statistics import compare_paired
from focus_eval.core.errors import InvalidInput, unknown_name
from focus_eval.core.types import FloatArray, IntArray

CHOSEN = "?"
N_FOLDS = 10
# Assignments of videos to folds that a choice is averaged over: accuracies differ by up to 2 or 3 points between them.
N_ASSIGNMENTS = 100
# Chosen alternatives that a note names.
N_SHOWN = 5
# Thresholds that a `?` is chosen from: quantiles of the questions' lengths.
N_THRESHOLDS = 39
MAX_ALTERNATIVES = 5000
# Name in a rule -> column of the answers.
FIELDS = {"duration": "duration_seconds", "bucket": "bucket", "category": "category"}
COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "=": operator.eq,
}  # fmt: skip
_RULE = re.compile(r"(?:else|(?P<field>\w+)\s*(?P<sign><=|>=|<|>|=)\s*(?P<value>[^:]+?))\s*:\s*(?P<pattern>.+)")


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A condition and the run that answers the questions it fits.

    Args:
        field, sign, value: e.g. "duration", "<", "65"; "" for `else`. The value may be `?`.
        pattern: a run's name as tables have it, a pattern that fits one of them, or `?`.
    """

    field: str = ""
    sign: str = ""
    value: str = ""
    pattern: str

    def fits(self, questions: pd.DataFrame) -> np.ndarray:
        """Return a mask `(n,)` of the questions that the rule's condition fits; `else` fits all."""
        if not self.field:
            return np.ones(len(questions), dtype=bool)
        values = questions[FIELDS[self.field]]
        bound = float(self.value) if self.field == "duration" else self.value
        return np.asarray(COMPARISONS[self.sign](values, bound), dtype=bool)

    def __str__(self) -> str:
        """Return the rule as it is written, e.g. "duration<65:aks"."""
        return f"{self.field}{self.sign}{self.value or 'else'}:{self.pattern}"


def parse_policy(text: str) -> list[Rule]:
    """Return the rules in `text`, separated by commas or lines; a line that starts with # is a comment.

    Raises:
        InvalidInput: a rule that cannot be read, or no `else` at the end.
    """
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    parts = [part.strip() for line in lines for part in line.split(",") if part.strip()]
    rules = []
    for part in parts:
        match = _RULE.fullmatch(part)
        if match is None:
            raise InvalidInput(f"policy rule {part!r}: write e.g. duration<65:uniform, and else:aks at the end")
        rules.append(Rule(**{name: value.strip() for name, value in match.groupdict(default="").items()}))
        _check_rule(rules[-1])
    if not rules or rules[-1].field or not all(rule.field for rule in rules[:-1]):
        raise InvalidInput(f"policy {text!r}: the last rule, and no other, is else:RUN")
    return rules


def _check_rule(rule: Rule) -> None:
    """Raise InvalidInput for an unknown field, or a value or comparison that does not fit it; `?` is for durations."""
    if rule.field and rule.field not in FIELDS:
        raise unknown_name("field of a policy", rule.field, FIELDS)
    if rule.field == "duration" and rule.value != CHOSEN:
        try:
            float(rule.value)
        except ValueError:
            raise InvalidInput(f"policy rule {rule}: duration is compared with seconds") from None
    elif rule.field not in ("", "duration") and (rule.sign != "=" or rule.value == CHOSEN):
        raise InvalidInput(f"policy rule {rule}: {rule.field} is a name; write {rule.field}=NAME")


def policy_table(run: Run, text: str) -> Table:
    """Return the accuracy differences of a policy to the runs it picks from, by benchmark, model and K.

    Raises:
        InvalidInput: a policy that cannot be read, a pattern that fits no run or several, unknown lengths, or no
            questions that all these runs answered.
    """
    rules, pairs, notes = parse_policy(text), [], []
    frame = run.answer_frame if run.answers else pd.DataFrame()
    frame = frame[frame["is_answered"] & frame["score"].notna()] if len(frame) else frame
    name = ",".join(map(str, rules))
    for group, part in frame.groupby(["benchmark", "model", "k"], sort=False) if len(frame) else ():
        place = f"{group[0]}, {group[1]}, K {group[2]}"
        labels = _labels(rules, part, place)
        questions, scores = _answers(part, labels, place)
        alternatives = list(_alternatives(rules, questions, labels))
        picked, chosen = _picked_scores(alternatives, questions, scores, labels)
        videos = questions["video"].tolist()
        for label, own_scores in zip(labels, scores, strict=True):
            compared = compare_paired(own_scores, picked, videos)
            pairs.append(Pair(group=tuple(map(str, group)), a=label, b=name, compared=compared))
        accuracies = [f"{label} {100 * own.mean():.1f}" for label, own in zip(labels, scores, strict=True)]
        notes.append(
            f"{place}: accuracy of the policy {100 * picked.mean():.1f}; {'; '.join(accuracies)}; of the best answer "
            f"to each question {100 * scores.max(axis=0).mean():.1f}."
        )
        notes += [f"{place}: {chosen}"] if chosen else []
    if not pairs:
        raise InvalidInput(f"{run.name}: no answers to apply a policy to")
    table = comparison_table(pairs, name="policy", title="Accuracy difference of a policy to the runs it picks from")
    return replace(table, notes=(*notes, *table.notes))


def _labels(rules: Sequence[Rule], part: pd.DataFrame, place: str) -> list[str]:
    """Return the labels of the runs that the rules may pick; raise InvalidInput for a pattern without one match.

    `?` stands for all runs; `place` is for the message.
    """
    known = list(dict.fromkeys(part["label"]))
    labels: list[str] = []
    for rule in rules:
        is_open = rule.pattern == CHOSEN
        matching = known if is_open else [rule.pattern] * (rule.pattern in known)
        matching = matching or [label for label in known if fnmatchcase(label, rule.pattern)]
        if not matching:
            raise unknown_name(f"run of {place},", rule.pattern, known)
        if len(matching) > 1 and not is_open:
            raise InvalidInput(f"policy rule {rule}: fits {len(matching)} runs, {', '.join(matching)}")
        labels += matching
    return list(dict.fromkeys(labels))


def _answers(part: pd.DataFrame, labels: Sequence[str], place: str) -> tuple[pd.DataFrame, FloatArray]:
    """Return the questions that all of `labels` answered, and their scores, shape `(n_labels, n_questions)`."""
    means = [question_means(part[part["label"] == label], "score") for label in labels]
    shared = set(means[0].keys).intersection(*(item.keys for item in means[1:]))
    if not shared:
        raise InvalidInput(f"{place}: no question that {', '.join(labels)} all answered")
    lines = part.drop_duplicates("question_id").set_index("question_id")
    questions = lines.loc[[key[1] for key in means[0].keys if key in shared]]
    score_by_id = [dict(zip((key[1] for key in item.keys), item.values, strict=True)) for item in means]
    scores = np.array([[scores[key] for key in questions.index] for scores in score_by_id], dtype=np.float64)
    return questions, scores


def _alternatives(rules: Sequence[Rule], questions: pd.DataFrame, labels: Sequence[str]) -> Iterator[tuple[Rule, ...]]:
    """Yield the policy with every `?` replaced in every way, and patterns by labels."""
    if any(rule.field == "duration" for rule in rules):
        lengths = questions["duration_seconds"].astype(float)
        if (n_unknown := int(lengths.isna().sum())) > 0:
            raise InvalidInput(f"policy on duration: {n_unknown:,} lengths are not known; import with --rates")
        thresholds = [
            f"{value:g}" for value in np.unique(np.quantile(lengths, np.linspace(0, 1, N_THRESHOLDS + 2)[1:-1]))
        ]
    options = []
    for rule in rules:
        values = thresholds if rule.value == CHOSEN else [rule.value]
        fitting = labels if rule.pattern == CHOSEN else [label for label in labels if label == rule.pattern]
        fitting = fitting or [label for label in labels if fnmatchcase(label, rule.pattern)]
        options.append([replace(rule, value=value, pattern=label) for value in values for label in fitting])
    n_alternatives = int(np.prod([len(item) for item in options]))
    if n_alternatives > MAX_ALTERNATIVES:
        raise InvalidInput(
            f"policy with {n_alternatives:,} alternatives, at most {MAX_ALTERNATIVES:,}: fix some of its ?"
        )
    yield from itertools.product(*options)


def _picked_scores(
    alternatives: Sequence[Sequence[Rule]], questions: pd.DataFrame, scores: FloatArray, labels: Sequence[str]
) -> tuple[FloatArray, str]:
    """Return the score of the picked answers, shape `(n_questions,)`, and what was chosen ("" for a fixed policy).

    With several alternatives, see `scores_of_best`; a question's score is the mean over the assignments.
    """
    everyone = np.arange(len(questions))
    score_rows = []
    for rules in alternatives:
        places = [labels.index(rule.pattern) for rule in rules]
        picked = np.select([rule.fits(questions) for rule in rules], places)
        score_rows.append(scores[picked, everyone])
    by_alternative = np.array(score_rows)
    if len(alternatives) == 1:
        return by_alternative[0], ""
    by_assignment, best = scores_of_best(by_alternative, questions["video"].tolist(), folds=N_FOLDS)
    counts = Counter(",".join(map(str, alternatives[at])) for at in best.flat)
    shown = [f"{name} ({100 * count / best.size:.0f} %)" for name, count in counts.most_common(N_SHOWN)]
    shown += [f"{n_more:,} others"] if (n_more := len(counts) - N_SHOWN) > 0 else []
    accuracies = 100 * by_assignment.mean(axis=1)
    return by_assignment.mean(axis=0), (
        f"? chosen for each tenth of the videos on the other nine, mean over {N_ASSIGNMENTS} random assignments of "
        f"videos to tenths (accuracy {accuracies.min():.1f} to {accuracies.max():.1f}): {'; '.join(shown)}."
    )


def scores_of_best(
    scores: FloatArray, videos: Sequence[object], *, folds: int, assignments: int = N_ASSIGNMENTS
) -> tuple[FloatArray, IntArray]:
    """Return the scores of the alternative that is best on the other folds, and which one that is.

    Which alternative a fold gets depends on the videos that it happens to hold. So the videos are assigned to folds of
    equal size many times, at random with a fixed seed.

    Args:
        scores: shape `(n_alternatives, n_questions)`.
        videos: the video of each question, shape `(n_questions,)`.

    Returns:
        Scores, shape `(assignments, n_questions)`, and places of the best alternatives, `(assignments, folds)`.
    """
    names, video = np.unique([str(name) for name in videos], return_inverse=True)
    by_video = np.array([np.bincount(video, weights=of_alternative) for of_alternative in scores])
    rng, everyone = np.random.default_rng(0), np.arange(video.size)
    score_rows, best_rows = [], []
    for _ in range(assignments):
        fold = rng.permutation(names.size) % folds
        is_other = fold[:, None] != np.arange(folds)
        # Rounded, so that equal sums added in another order stay equal and the first alternative is taken.
        best = (by_video @ is_other).round(9).argmax(axis=0)
        score_rows.append(scores[best[fold[video]], everyone])
        best_rows.append(best)
    return np.array(score_rows), np.array(best_rows)
