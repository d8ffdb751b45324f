"""The mean of a column per question over its seeds: what every mean, interval and test of a report starts from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from focus_eval.types import FloatArray

Key = tuple[str, str]


@dataclass(frozen=True)
class QuestionMeans:
    """One value per question, in the order of the rows.

    Args:
        keys: (benchmark, question id), shape `(n,)`.
        values: mean over the question's seeds, shape `(n,)`.
        videos: (benchmark, video): two benchmarks may use the same names.
        categories: the benchmark's question types, "" where there are none.
        seeds: the most seeds any of the questions has.
    """

    keys: tuple[Key, ...]
    values: FloatArray
    videos: tuple[Key, ...]
    categories: tuple[str, ...]
    seeds: int

    def taken(self, places: list[int]) -> QuestionMeans:
        """Return the questions at `places`, in that order."""
        return QuestionMeans(
            tuple(self.keys[i] for i in places),
            self.values[places],
            tuple(self.videos[i] for i in places),
            tuple(self.categories[i] for i in places),
            self.seeds,
        )


def question_means(part: pd.DataFrame, column: str) -> QuestionMeans:
    """Return the mean of `column` per question of `part`; rows without a value are left out.

    Args:
        part: lines of one configuration, so that the rows of a question differ in their seed alone.
    """
    part = part[part[column].notna()]
    categories = part["category"] if "category" in part else [""] * len(part)
    sums: dict[Key, float] = {}
    counts: dict[Key, int] = {}
    about: dict[Key, tuple[Key, str]] = {}
    columns = (part["benchmark"], part["question_id"], part["video"], categories, part[column])
    for benchmark, question_id, video, category, value in zip(*columns, strict=True):
        key = (benchmark, question_id)
        sums[key] = sums.get(key, 0.0) + float(value)
        counts[key] = counts.get(key, 0) + 1
        about.setdefault(key, ((benchmark, video), category))
    return QuestionMeans(
        tuple(sums),
        np.array([sums[key] / counts[key] for key in sums], dtype=np.float64),
        tuple(video for video, _ in about.values()),
        tuple(category for _, category in about.values()),
        max(counts.values(), default=0),
    )
