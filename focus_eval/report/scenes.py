"""Computes KFS-Bench's measures of scenes, and reads files of annotated scenes."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from focus_eval.benchmarks.question import NEAR_SECONDS, SLACK_SECONDS, clock_seconds
from focus_eval.core.errors import InvalidInput
from focus_eval.core.resources import read_json, read_text
from focus_eval.core.types import FloatArray, Question
from focus_eval.report.recall import Times, covered_share, distances

Interval = tuple[float, float]
# The intervals of a question; KFS-Bench groups them into scenes, elsewhere each interval is a scene.
Scenes = Sequence[Sequence[Interval]]


@dataclass(frozen=True, kw_only=True)
class SceneScore:
    """KFS-Bench's measures of one question, each in [0, 1] (its eval.py, NEC-VID/KFS-Bench 2349b9e).

    Args:
        key_frame_rate: share of the frames inside any scene.
        scene_hit_rate: share of the scenes with a frame inside.
        ukss: cube root of key frame rate x balanced scene recall x balanced distribution similarity.
    """

    key_frame_rate: float
    scene_hit_rate: float
    ukss: float


# Measures of annotated intervals beside recall, by the column of `Run.selection_frame` -> what a table calls them.
INTERVAL_MEASURES = {
    "hit": "intervals with a frame inside",
    "coverage": f"intervals' time within {NEAR_SECONDS:g} s of a frame",
    "UKSS": "UKSS",
}


def interval_measures(intervals: Sequence[Sequence[float]], times: Times) -> dict[str, float]:
    """Return the measures of one question by the keys of `INTERVAL_MEASURES`, each in [0, 1]; all 0 without frames.

    Args:
        intervals: `[start, stop]`, or `[start, stop, scene]` with the number of the scene that the interval belongs
            to. Without a number each interval is a scene.
        times: seconds of the frames.
    """
    if not len(times):
        return dict.fromkeys(INTERVAL_MEASURES, 0.0)
    score = scene_score(grouped_scenes(intervals), times)
    coverage = covered_share([interval[:2] for interval in intervals], times, NEAR_SECONDS)
    return {"hit": score.scene_hit_rate, "coverage": coverage, "UKSS": score.ukss}


def grouped_scenes(intervals: Iterable[Sequence[float]]) -> list[list[Interval]]:
    """Return the scenes of `intervals`, each `[start, stop]` or `[start, stop, scene]` as in `interval_measures`."""
    scenes: dict[float, list[Interval]] = {}
    for at, interval in enumerate(intervals):
        scenes.setdefault(interval[2] if len(interval) > 2 else at, []).append((interval[0], interval[1]))
    return list(scenes.values())


def scenes_of(question: Question) -> list[list[Interval]]:
    """Return the scenes of a question's annotated intervals; each interval is one if no scenes are annotated."""
    numbers = question.evidence_scenes or range(len(question.evidence_intervals))
    return grouped_scenes(
        (*interval, number) for interval, number in zip(question.evidence_intervals, numbers, strict=True)
    )


def scene_distances(scenes: Scenes, times: Times) -> FloatArray:
    """Return the seconds from each scene to each of `times`, shape `(n_scenes, k)`; 0 inside one of its intervals."""
    return np.array([distances(scene, times).min(axis=0) for scene in scenes])


def scene_score(scenes: Scenes, times: Times) -> SceneScore:
    """Return KFS-Bench's measures of frames at `times` for a question's scenes, each a list of intervals.

    Raises:
        InvalidInput: no scenes, an interval that ends before it starts, or no times.
    """
    if not scenes or not len(times):
        raise InvalidInput("KFS-Bench's measures need at least one scene and one frame")
    inside = scene_distances(scenes, times) <= SLACK_SECONDS
    per_scene = inside.sum(axis=1)
    n_inside = int(inside.any(axis=0).sum())
    lengths = np.array([sum(stop - start for start, stop in scene) for scene in scenes])
    if not lengths.any():  # moments: none is longer than another
        lengths = np.ones_like(lengths)
    rate = n_inside / len(times)
    product = rate * _balanced_recall(per_scene, lengths, n_inside) * _balanced_similarity(per_scene, lengths)
    return SceneScore(
        key_frame_rate=rate, scene_hit_rate=float((per_scene > 0).mean()), ukss=float(product ** (1.0 / 3.0))
    )


def _balanced_recall(per_scene: np.ndarray, lengths: FloatArray, n_inside: int) -> float:
    """Return the share of the scenes with enough frames, in [0, 1].

    Enough is the scene's part of the `n_inside` frames by its length or by the number of scenes, whichever is smaller,
    and at least 1.
    """
    part = np.minimum(lengths / lengths.sum(), 1.0 / lengths.size)
    return float((per_scene >= np.maximum(1, np.floor(part * n_inside))).mean())


def _balanced_similarity(per_scene: np.ndarray, lengths: FloatArray) -> float:
    """Return the largest cosine between frames per scene and lengths ** p, for p from 0 to 1 in steps of 0.1."""
    if not per_scene.any():
        return 0.0
    powers = lengths[None, :] ** np.linspace(0.0, 1.0, 11)[:, None]
    cosines = powers @ per_scene / (np.linalg.norm(powers, axis=1) * np.linalg.norm(per_scene))
    return min(1.0, float(cosines.max()))


def with_scenes(questions: Sequence[Question], scenes_by_id: Mapping[str, Scenes]) -> list[Question]:
    """Return the questions with these scenes as their evidence; those without scenes have none."""
    annotated = []
    for question in questions:
        scenes = scenes_by_id.get(question.id, ())
        numbered = [(interval, number) for number, scene in enumerate(scenes) for interval in scene]
        intervals, numbers = tuple(interval for interval, _ in numbered), tuple(number for _, number in numbered)
        annotated.append(replace(question, evidence_seconds=(), evidence_intervals=intervals, evidence_scenes=numbers))
    return annotated


def read_scenes(path: Path) -> dict[str, list[list[Interval]]]:
    """Return the scenes by question id, each scene a list of intervals in seconds.

    The file is KFS-Bench's CSV with the columns id, segment_id, scene_id, start and end (h:mm:ss or mm:ss; a segment
    lasts to its end + 1 s), or JSON that maps a question id to [[start, stop], ..], each pair a scene.

    Raises:
        InvalidInput: another kind of file; names it, and the line.
    """
    if path.name.removesuffix(".gz").endswith(".csv"):
        return _read_csv(path)
    try:
        values = read_json(path)
        return {str(key): [[(float(start), float(stop))] for start, stop in pairs] for key, pairs in values.items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise InvalidInput(
            f"{path}: scenes are JSON, question id to [[start, stop], ..] in seconds, or KFS-Bench's CSV ({error})"
        ) from error


def _read_csv(path: Path) -> dict[str, list[list[Interval]]]:
    """Return the scenes by question id from KFS-Bench's CSV; raise InvalidInput for a missing column or a bad line."""
    reader = csv.DictReader(io.StringIO(read_text(path)))
    missing = [name for name in ("id", "scene_id", "start", "end") if name not in (reader.fieldnames or ())]
    if missing:
        raise InvalidInput(f"{path}:1: no column {missing[0]!r}; KFS-Bench's scenes have id, scene_id, start and end")
    scenes_by_question: dict[str, dict[str, list[Interval]]] = {}
    for row in reader:
        location = f"{path}:{reader.line_num}"
        start, stop = (clock_seconds(str(row[name]), location=location) for name in ("start", "end"))
        if stop < start:
            raise InvalidInput(f"{location}: the segment {row['start']} to {row['end']} ends before it starts")
        scenes_by_question.setdefault(row["id"], {}).setdefault(row["scene_id"], []).append((start, stop + 1.0))
    return {question_id: list(scenes.values()) for question_id, scenes in scenes_by_question.items()}
