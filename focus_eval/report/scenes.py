"""How selections meet annotated intervals: hits with and without tolerance, and KFS-Bench's own measures of scenes."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from focus_eval.benchmarks.evidence import RECALL_SECONDS, SLACK_SECONDS, clock_seconds
from focus_eval.core.errors import InvalidInput
from focus_eval.core.resources import read_json, read_text
from focus_eval.core.types import FloatArray
from focus_eval.report import recall
from focus_eval.report.table import Table
from focus_eval.selections import ImportedSelection

Interval = tuple[float, float]
# The intervals of a question; KFS-Bench groups them into scenes, elsewhere each interval is a scene.
Scenes = Sequence[Sequence[Interval]]
TOLERANCES_SECONDS = (0.0, *RECALL_SECONDS)
# Questions whose intervals are no longer than this have figures of their own: long intervals are hit by any frames.
SHORT_SECONDS = 10.0
SHORT = f"up to {SHORT_SECONDS:g} s"


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


def scene_score(scenes: Scenes, times: recall.Times) -> SceneScore:
    """Return KFS-Bench's measures of `times` for a question's scenes, each the union of its intervals.

    Raises:
        InvalidInput: no scenes, an interval that ends before it starts, or no times.
    """
    chosen = np.asarray(times, dtype=np.float64)
    if not scenes or not chosen.size:
        raise InvalidInput("KFS-Bench's measures need at least one scene and one frame")
    inside = np.array([_is_inside(chosen, scene) for scene in scenes])
    per_scene = inside.sum(axis=1)
    n_inside = int(inside.any(axis=0).sum())
    lengths = np.array([sum(stop - start for start, stop in scene) for scene in scenes])
    if not lengths.any():  # moments: none is longer than another
        lengths = np.ones_like(lengths)
    rate = n_inside / chosen.size
    product = rate * _balanced_recall(per_scene, lengths, n_inside) * _balanced_similarity(per_scene, lengths)
    return SceneScore(
        key_frame_rate=rate, scene_hit_rate=float((per_scene > 0).mean()), ukss=float(product ** (1.0 / 3.0))
    )


def _balanced_recall(per_scene: np.ndarray, lengths: FloatArray, n_inside: int) -> float:
    """Share of scenes with their part of the frames inside: by length or by number, whichever is less, at least 1."""
    part = np.minimum(lengths / lengths.sum(), 1.0 / lengths.size)
    return float((per_scene >= np.maximum(1, np.floor(part * n_inside))).mean())


def _balanced_similarity(per_scene: np.ndarray, lengths: FloatArray) -> float:
    """Largest cosine of the frames per scene and the scenes' lengths to a power from 0 (alike) to 1 (by length)."""
    if not per_scene.any():
        return 0.0
    powers = lengths[None, :] ** np.linspace(0.0, 1.0, 11)[:, None]
    cosines = powers @ per_scene / (np.linalg.norm(powers, axis=1) * np.linalg.norm(per_scene))
    return min(1.0, float(cosines.max()))


def _is_inside(times: FloatArray, intervals: Iterable[Interval], tolerance: float = 0.0) -> np.ndarray:
    """Return which of `times` lie in any of `intervals`, both ends in, or within `tolerance` seconds of one."""
    found = np.zeros(times.shape, dtype=bool)
    reach = tolerance + SLACK_SECONDS
    for start, stop in intervals:
        if not 0 <= start <= stop:
            raise InvalidInput(f"an interval needs 0 <= start <= stop, got [{start}, {stop}]")
        found |= (times >= start - reach) & (times <= stop + reach)
    return found


def interval_figures(intervals: Sequence[Interval], times: recall.Times) -> dict[str, float]:
    """Return the share of `times` inside any interval, and the share of intervals hit at each tolerance."""
    chosen = np.asarray(times, dtype=np.float64)
    figures = {"frames inside": float(_is_inside(chosen, intervals).mean()) if chosen.size else 0.0}
    for tolerance in TOLERANCES_SECONDS:
        hits = [bool(_is_inside(chosen, [interval], tolerance).any()) for interval in intervals]
        figures[f"hit@{tolerance:g}"] = float(np.mean(hits))
    return figures


def covered_share(intervals: Sequence[Interval], times: recall.Times, seconds: float) -> float:
    """Return the share of the intervals' time that lies within `seconds` of one of `times`, in [0, 1].

    Where intervals overlap their time counts for each. One of length 0 is covered or not, like a second of the others.
    """
    chosen = np.sort(np.asarray(times, dtype=np.float64))
    if not chosen.size:
        return 0.0
    # The windows as disjoint intervals: each ends where the next one begins.
    ends = np.minimum(chosen + seconds, np.append(chosen[1:] - seconds, np.inf))
    ends = np.maximum(ends, chosen - seconds)
    starts, stops = np.asarray(intervals, dtype=np.float64).T
    inside = np.minimum(stops[:, None], ends) - np.maximum(starts[:, None], chosen - seconds)
    lengths = stops - starts
    points = np.abs(starts[:, None] - chosen).min(axis=1) <= seconds
    met = np.where(lengths > 0, np.maximum(inside, 0).sum(axis=1), points)
    # What many windows cover together may come to more than the whole by a rounding.
    return min(1.0, float(met.sum() / np.where(lengths > 0, lengths, 1.0).sum()))


def random_figures(intervals: Sequence[Interval], case: recall.EvidenceCase, k: int) -> dict[str, float]:
    """Return the exact expectation of `interval_figures` for `min(k, T)` frames drawn without replacement."""
    inside = _is_inside(np.arange(case.n_frames) / case.fps, intervals)
    starts, stops = np.asarray(intervals, dtype=np.float64).T
    reach = np.array(TOLERANCES_SECONDS)[:, None] + SLACK_SECONDS
    hits = recall.chance_of_hit(starts - reach, stops + reach, case, k).mean(axis=1)
    named = {f"hit@{d:g}": float(hit) for d, hit in zip(TOLERANCES_SECONDS, hits, strict=True)}
    return {"frames inside": float(inside.mean()), **named}


def interval_table(
    cases: Sequence[recall.EvidenceCase],
    intervals_of: Mapping[str, Sequence[Interval]],
    loaded: Mapping[str, Mapping[str, ImportedSelection]],
    fps: Mapping[str, float],
) -> Table:
    """Return how selections, and uniform and random frames at every K that occurs, meet annotated intervals."""
    annotated = _annotated(cases, intervals_of)
    asked = [(case, intervals_of[case.question_id]) for case in annotated]
    short = {case.question_id for case, own in asked if max(stop - start for start, stop in own) <= SHORT_SECONDS}
    groups, rows = _groups(annotated, short), list[dict[str, object]]()
    times: dict[str, Mapping[str, recall.Times] | int] = {}
    for k in recall.ks_of(loaded):
        times |= {f"uniform, K = {k}": recall.uniform_times(annotated, k=k), f"random, K = {k}": k}
    for name, chosen in (times | recall.times_by_selection(loaded, fps)).items():
        figures = pd.DataFrame(
            random_figures(own, case, chosen)
            if isinstance(chosen, int)
            else interval_figures(own, chosen[case.question_id])
            for case, own in asked
        )
        for bucket, inside in groups:
            means = figures[inside].mean().to_dict()
            rows.append({"selection": name, "bucket": bucket, "questions": int(inside.sum()), **means})
    return recall.by_bucket(
        pd.DataFrame(rows),
        ["frames inside", *(f"hit@{d:g}" for d in TOLERANCES_SECONDS)],
        name="scenes",
        title="Annotated intervals",
        notes=(
            "frames inside: share of the frames in any interval. hit@d: share of the intervals with a frame inside "
            "(0) or within d seconds, per question, then the mean. Both ends are in. random: the exact expectation.",
        ),
    )


def scene_table(
    cases: Sequence[recall.EvidenceCase],
    scenes_of: Mapping[str, Scenes],
    loaded: Mapping[str, Mapping[str, ImportedSelection]],
    fps: Mapping[str, float],
) -> Table:
    """Return KFS-Bench's measures of selections, and of uniform frames at every K that occurs."""
    annotated = _annotated(cases, scenes_of)
    times: dict[str, Mapping[str, recall.Times]] = {
        f"uniform, K = {k}": recall.uniform_times(annotated, k=k) for k in recall.ks_of(loaded)
    } | recall.times_by_selection(loaded, fps)
    rows = []
    for name, chosen in times.items():
        scores = [scene_score(scenes_of[case.question_id], chosen[case.question_id]) for case in annotated]
        for bucket, inside in _groups(annotated, set()):
            kept = [score for score, is_in in zip(scores, inside, strict=True) if is_in]
            rows.append({"selection": name, "bucket": bucket, "questions": len(kept), **_means(kept)})
    return recall.by_bucket(
        pd.DataFrame(rows),
        ["key frames", "scenes hit", "UKSS"],
        name="scenes",
        title="Annotated scenes, as KFS-Bench measures them",
        notes=(
            "key frames: share of the frames inside any scene. scenes hit: share of the scenes with a frame inside. "
            "UKSS: geometric mean over questions, none below 0.01. A segment lasts to its end + 1 s.",
        ),
    )


def _means(scores: Sequence[SceneScore]) -> dict[str, float]:
    logs = [np.log(max(score.ukss, 0.01)) for score in scores]
    return {
        "key frames": float(np.mean([score.key_frame_rate for score in scores])),
        "scenes hit": float(np.mean([score.scene_hit_rate for score in scores])),
        "UKSS": float(np.exp(np.mean(logs))),
    }


def read_scenes(path: Path) -> dict[str, list[list[Interval]]]:
    """Return the scenes of each question, each a list of intervals in seconds.

    Two kinds of files: KFS-Bench's CSV (id, segment_id, scene_id, start, end as h:mm:ss or mm:ss; a segment lasts to
    its end + 1 s), and JSON, question id to [[start, stop], ..], each a scene.

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
    reader = csv.DictReader(io.StringIO(read_text(path)))
    missing = [name for name in ("id", "scene_id", "start", "end") if name not in (reader.fieldnames or ())]
    if missing:
        raise InvalidInput(f"{path}:1: no column {missing[0]!r}; KFS-Bench's scenes have id, scene_id, start and end")
    found: dict[str, dict[str, list[Interval]]] = {}
    for row in reader:
        where = f"{path}:{reader.line_num}"
        start, stop = (clock_seconds(str(row[name]), where=where) for name in ("start", "end"))
        if stop < start:
            raise InvalidInput(f"{where}: the segment {row['start']} to {row['end']} ends before it starts")
        found.setdefault(row["id"], {}).setdefault(row["scene_id"], []).append((start, stop + 1.0))
    return {question_id: list(scenes.values()) for question_id, scenes in found.items()}


def _annotated(
    cases: Sequence[recall.EvidenceCase], known: Mapping[str, Sequence[object]]
) -> list[recall.EvidenceCase]:
    ids = {case.question_id for case in cases}
    unknown = next((key for key in known if key not in ids), None)
    if unknown is not None:
        raise InvalidInput(f"scenes of {unknown!r}, which is not a question of this benchmark")
    return [case for case in cases if known.get(case.question_id)]


def _groups(cases: Sequence[recall.EvidenceCase], short: set[str]) -> list[tuple[str, np.ndarray]]:
    """Return the length buckets (where there are several), all questions, and those with short intervals, as masks."""
    groups = recall.bucket_masks(cases)
    groups = groups[1:] if len(groups) == 2 else groups
    is_short = np.array([case.question_id in short for case in cases])
    return [*groups, (SHORT, is_short)] if is_short.any() and not is_short.all() else groups
