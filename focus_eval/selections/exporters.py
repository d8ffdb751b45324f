"""How do our selections become files that other pipelines read?"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from focus_eval.errors import SelectionMismatch
from focus_eval.selections.imported import AskedQuestion, ImportedSelection

EXPORT_FORMATS = ("aks", "focus")


def export_aks(
    selections: Mapping[str, ImportedSelection], path: Path, *, questions: Sequence[AskedQuestion]
) -> list[Path]:
    """Write the list-by-row file of the AKS pipeline: frames of every question in the annotation's order.

    Raises:
        SelectionMismatch: a question without a selection, or one in seconds.
    """
    _write(path, [list(_frames(one)) for one in _in_order(selections, questions)])
    return [path]


def export_focus(
    selections: Mapping[str, ImportedSelection], path: Path, *, questions: Sequence[AskedQuestion]
) -> list[Path]:
    """Write `path` (the public FOCUS code's `selected_frames.json`) and `sampling_details.json` beside it.

    A row does not say which pull belonged to which stage, so all stand under `coarse_sampling`, in pull order. An
    arm's score is its mean plus its radius. What that format has no place for stands under `focus_eval`.

    Raises:
        SelectionMismatch: a question without a selection, or one in seconds.
    """
    ordered = _in_order(selections, questions)
    _write(path, [list(_frames(one)) for one in ordered])
    beside = path.with_name("sampling_details.json")
    _write(beside, [_details(row, one) for row, one in enumerate(ordered)])
    return [path, beside]


def _in_order(
    selections: Mapping[str, ImportedSelection], questions: Sequence[AskedQuestion]
) -> list[ImportedSelection]:
    for row, asked in enumerate(questions):
        if asked.id not in selections:
            raise SelectionMismatch(f"row {row} ({asked.id}): no selection; a list by row needs one for every question")
    if len(selections) > len(questions):
        extra = sorted(set(selections) - {asked.id for asked in questions})[0]
        raise SelectionMismatch(f"{extra!r} is no question of this benchmark ({len(questions)} questions)")
    return [selections[asked.id] for asked in questions]


def _frames(one: ImportedSelection) -> tuple[int, ...]:
    if one.keyframes is None:
        raise SelectionMismatch(f"{one.question_id}: chosen in seconds; this format needs frame indices")
    return one.keyframes


def _details(row: int, one: ImportedSelection) -> dict[str, Any]:
    if any(value is None for value in one.pulled_relevance):
        raise SelectionMismatch(f"{one.question_id}: a pull without relevance; FOCUS's details need one for each")
    return {
        "original_idx": row,
        "coarse_sampling": _stage(one.pulled_frames, [float(value or 0.0) for value in one.pulled_relevance], one.fps),
        "fine_sampling": _stage((), [], one.fps),
        "arms_info": {
            "total_arms": len(one.clips),
            "frames_per_arm": one.n_frames // max(1, len(one.clips)),
            "arms": [_arm(number, clip, _frames(one)) for number, clip in enumerate(one.clips)],
        },
        "arm_selection_probabilities": [],
        "final_selected_frames": list(_frames(one)),
        "video_metadata": {
            "total_frames": one.n_frames,
            "fps": one.fps,
            "duration_seconds": one.n_frames / max(1.0, one.fps),
            "budget_used": len(one.pulled_frames),
        },
        "focus_eval": {"sampler": one.sampler, "k": one.k, "clips": [list(clip) for clip in one.clips]},
    }


def _stage(frames: Sequence[int], relevance: Sequence[float], fps: float) -> dict[str, Any]:
    in_time = sorted(zip(frames, relevance, strict=True))
    return {
        "frame_indices": list(frames),
        "relevance_scores": list(relevance),
        "temporal_order": [
            {"frame_idx": frame, "score": score, "timestamp": frame / max(1.0, fps)} for frame, score in in_time
        ],
        "budget_used": len(frames),
    }


def _arm(number: int, clip: Sequence[Any], keyframes: Sequence[int]) -> dict[str, Any]:
    start, stop, n_pulls, mean, radius, _ = clip
    score = (mean or 0.0) + (radius or 0.0)
    return {
        "arm_id": number,
        "start_frame": int(start),
        "end_frame": int(stop) - 1,
        "focus_score": score,
        "focus_after_coarse": score,
        "focus_after_fine": None,
        "times_selected": sum(start <= frame < stop for frame in keyframes),
        "mean_similarity": mean or 0.0,
        "variance": 0.0,
        "samples_count": int(n_pulls),
    }


def _write(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(path.name + ".unfinished")
    unfinished.write_text(json.dumps(value, allow_nan=False), encoding="utf-8")
    os.replace(unfinished, path)
