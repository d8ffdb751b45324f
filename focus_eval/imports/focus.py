"""Reads and writes the public FOCUS code's format: `selected_frames.json` and `sampling_details.json`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from focus_eval.core.errors import SelectionMismatch
from focus_eval.core.resources import read_json
from focus_eval.core.types import Question
from focus_eval.imports import imported

FRAMES_FILE = "selected_frames.json"


class PublicFocus(imported.SelectionFormat):
    """The public FOCUS code's list of frames by row, with the pulls and clips from its details file."""

    name: ClassVar[str] = "focus"
    summary: ClassVar[str] = "as aks, selected_frames.json (or its folder) with sampling_details.json beside it"
    is_written: ClassVar[bool] = True

    def detects(self, source: imported.Source) -> bool:
        """Return True for a list of lists beside `sampling_details.json`, or a folder with `selected_frames.json`."""
        if source.path.is_dir():
            return (source.path / FRAMES_FILE).is_file()
        return imported.is_list_of_lists(source.data) and source.path.with_name(imported.DETAILS_FILE).exists()

    def read(self, source: imported.Source) -> Iterable[imported.ImportedSelection]:
        if source.path.is_dir():
            source = replace(source, path=source.path / FRAMES_FILE)
        details_path, rows = source.path.with_name(imported.DETAILS_FILE), [*source.rows_with_questions(source.data)]
        details = read_json(details_path) if details_path.exists() else [{} for _ in rows]
        if not isinstance(details, list) or len(details) != len(rows):
            raise SelectionMismatch(
                f"{details_path.name}: {len(details)} entries for {len(rows)} rows of {source.path.name}"
            )
        for row, (values, question) in enumerate(rows):
            yield from source.selection(
                values,
                question_id=question.id,
                location=f"row {row}",
                video=question.video,
                details=_focus_details(
                    details[row], values, location=f"{details_path.name}: row {row} ({question.id})"
                ),
            )

    def write(
        self, selections: Mapping[str, imported.ImportedSelection], path: Path, *, questions: Sequence[Question]
    ) -> list[Path]:
        """Write `path`, and `sampling_details.json` in its folder.

        A row does not record the stage of a pull, so all pulls go under `coarse_sampling`, in pull order. An arm's
        score is its mean plus its radius. Values without a place in that format go under `focus_eval`.
        """
        ordered = imported.in_order(selections, questions)
        imported.write_json(path, [list(imported.frames_of(selection)) for selection in ordered])
        details_path = path.with_name(imported.DETAILS_FILE)
        imported.write_json(details_path, [_details(row, selection) for row, selection in enumerate(ordered)])
        return [path, details_path]


def _focus_details(entry: Any, values: Any, *, location: str) -> dict[str, Any]:
    if not isinstance(entry, Mapping) or not entry:
        return {}
    try:
        if list(entry["final_selected_frames"]) != list(values):
            raise SelectionMismatch(f"{location}: its final frames are not those of the selected frames")
        stages = (entry["coarse_sampling"], entry["fine_sampling"])
        meta, own_entry = entry["video_metadata"], entry.get("focus_eval", {})
        return {
            **({"sampler": own_entry["sampler"], "k": own_entry["k"]} if own_entry else {}),
            "n_frames": int(meta["total_frames"]),
            "fps": float(meta["fps"]),
            "pulled_frames": tuple(int(frame) for stage in stages for frame in stage["frame_indices"]),
            "pulled_relevance": tuple(float(value) for stage in stages for value in stage["relevance_scores"]),
            "clips": tuple(map(tuple, own_entry["clips"]))
            if own_entry
            else tuple(map(_focus_clip, entry["arms_info"]["arms"])),
        }
    except (KeyError, TypeError, ValueError) as error:
        raise SelectionMismatch(
            f"{location}: not FOCUS's sampling details ({type(error).__name__}: {error})"
        ) from error


def _focus_clip(arm: Mapping[str, Any]) -> tuple[Any, ...]:
    # FOCUS states the optimistic score and an inclusive end; an arm of ours is half-open with its radius apart.
    start, stop, n_pulls = int(arm["start_frame"]), int(arm["end_frame"]) + 1, int(arm["samples_count"])
    is_final = int(arm["times_selected"]) > 0
    if n_pulls == 0:
        return (start, stop, 0, None, None, is_final)
    mean = float(arm["mean_similarity"])
    return (start, stop, n_pulls, mean, float(arm["focus_score"]) - mean, is_final)


def _details(row: int, selection: imported.ImportedSelection) -> dict[str, Any]:
    if any(value is None for value in selection.pulled_relevance):
        raise SelectionMismatch(
            f"{selection.question_id}: a scored frame has no relevance; FOCUS's details need it for every one"
        )
    return {
        "original_idx": row,
        "coarse_sampling": _stage(selection.pulled_frames, selection.pulled_relevance, selection.fps),
        "fine_sampling": _stage((), (), selection.fps),
        "arms_info": {
            "total_arms": len(selection.clips),
            "frames_per_arm": selection.n_frames // max(1, len(selection.clips)),
            "arms": [_arm(number, clip, imported.frames_of(selection)) for number, clip in enumerate(selection.clips)],
        },
        "arm_selection_probabilities": [],
        "final_selected_frames": list(imported.frames_of(selection)),
        "video_metadata": {
            "total_frames": selection.n_frames,
            "fps": selection.fps,
            "duration_seconds": selection.n_frames / max(1.0, selection.fps),
            "budget_used": len(selection.pulled_frames),
        },
        "focus_eval": {"sampler": selection.sampler, "k": selection.k, "clips": [*map(list, selection.clips)]},
    }


def _stage(frames: Sequence[int], pulled_relevance: Sequence[float | None], fps: float) -> dict[str, Any]:
    relevance = [float(value or 0.0) for value in pulled_relevance]
    in_time = sorted(zip(frames, relevance, strict=True))
    return {
        "frame_indices": list(frames),
        "relevance_scores": relevance,
        "temporal_order": [{"frame_idx": f, "score": score, "timestamp": f / max(1.0, fps)} for f, score in in_time],
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
