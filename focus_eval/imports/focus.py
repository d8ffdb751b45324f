"""Reads the public FOCUS code's format: `selected_frames.json` with `sampling_details.json` in its folder."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, ClassVar

from focus_eval.core.errors import SelectionMismatch
from focus_eval.core.resources import read_json
from focus_eval.imports import imported
from focus_eval.imports.aks import AksFormat

FRAMES_FILE = "selected_frames.json"


class PublicFocus(AksFormat):
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
        """Yield the selection of each row, with pulls and clips if there is a details file of as many entries."""
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


def _focus_details(entry: Any, values: Any, *, location: str) -> dict[str, Any]:
    """Return length, rate, pulls and clips in a row's details as keywords of a selection; {} without details.

    Raises SelectionMismatch if its final frames differ from `values`, the selected ones, or a field is missing.
    """
    if not isinstance(entry, Mapping) or not entry:
        return {}
    try:
        if list(entry["final_selected_frames"]) != list(values):
            raise SelectionMismatch(f"{location}: its final frames are not those of the selected frames")
        stages = (entry["coarse_sampling"], entry["fine_sampling"])
        meta = entry["video_metadata"]
        return {
            "n_frames": int(meta["total_frames"]),
            "fps": float(meta["fps"]),
            "pulled_frames": tuple(int(frame) for stage in stages for frame in stage["frame_indices"]),
            "pulled_relevance": tuple(float(value) for stage in stages for value in stage["relevance_scores"]),
            "clips": tuple(map(_focus_clip, entry["arms_info"]["arms"])),
        }
    except (KeyError, TypeError, ValueError) as error:
        raise SelectionMismatch(
            f"{location}: not FOCUS's sampling details ({type(error).__name__}: {error})"
        ) from error


def _focus_clip(arm: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return a clip of FOCUS's details as (start, stop, pulls, mean, radius, is final); the stop is exclusive.

    Mean and radius are None for a clip without pulls.
    """
    # FOCUS states the optimistic score and an inclusive end; an arm of ours is half-open with its radius apart.
    start, stop, n_pulls = int(arm["start_frame"]), int(arm["end_frame"]) + 1, int(arm["samples_count"])
    is_final = int(arm["times_selected"]) > 0
    if n_pulls == 0:
        return (start, stop, 0, None, None, is_final)
    mean = float(arm["mean_similarity"])
    return (start, stop, n_pulls, mean, float(arm["focus_score"]) - mean, is_final)
