"""The figures of a run computed again from its rows, in plain Python."""

from __future__ import annotations

import itertools
from collections import defaultdict
from statistics import fmean

from tests.bench.report.realistic.made_run import BENCHMARKS, FRAMES, MODELS
from tests.support.bench.independent_formulas import sign_flip_p

LABELS = ("uniform", "random [control]", "aks max_depth=3", "focus (blip)", "focus (clip)")


def answers_of(rows, benchmark, model, label, k, *, bucket=None):
    return [
        row
        for row in rows["answers"]
        if (row["benchmark"], row["model"], row["selection"]["label"], row["frames_asked"])
        == (benchmark, model, label, k)
        and bucket in (None, row["bucket"])
    ]


def selections_of(rows, benchmark, label, k):
    return [row for row in rows["selections"] if (row["benchmark"], row["label"], row["k"]) == (benchmark, label, k)]


def by_question(answers):
    """Mean score over seeds of each answered question, with its video and category."""
    scores = defaultdict(list)
    for answer in answers:
        if answer["error"] is None:
            scores[answer["question_id"], answer["video"], answer["category"]].append(answer["score"])
    return {key: fmean(values) for key, values in scores.items()}


def over_types(questions):
    """VSI-Bench's mean: over types, the relative directions' parts first."""
    kinds = defaultdict(list)
    for (_, _, category), score in questions.items():
        kinds[category].append(score)
    directions = [fmean(kinds.pop(kind)) for kind in list(kinds) if kind.startswith("object_rel_direction")]
    return fmean([*(fmean(scores) for scores in kinds.values()), fmean(directions)])


def recall(selection, distance):
    evidence = selection["evidence_seconds"]
    return fmean(
        any(abs(time - moment) <= distance + 1e-6 for time in selection["times_seconds"]) for moment in evidence
    )


def recalls_of(rows, benchmark, label, k, distance):
    """Mean recall over seeds of each question that has evidence and a selection, by question and video."""
    recalls = defaultdict(list)
    for item in selections_of(rows, benchmark, label, k):
        if item["error"] is None and item["evidence_seconds"]:
            recalls[item["question_id"], item["video"]].append(recall(item, distance))
    return {key: fmean(values) for key, values in recalls.items()}


def flips_p(differences):
    """Return the p-value of a sign-flip test of differences by (question, video, ...), counting every assignment."""
    sums, sizes = defaultdict(float), defaultdict(int)
    for (_, video, *_), value in differences.items():
        sums[video] += value / len(differences)
        sizes[video] += 1
    return sign_flip_p([sums[video] for video in sums], [sizes[video] / len(differences) for video in sums])


CELLS = [*itertools.product(BENCHMARKS, MODELS, LABELS, FRAMES)]


def recall_at_2(row):
    moments = row["evidence_seconds"]
    if row["error"] or not moments:
        return None
    return fmean(any(abs(time - moment) <= 2 for time in row["times_seconds"]) for moment in moments)
