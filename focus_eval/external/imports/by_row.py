"""Formats that list frames by row of the annotation, without ids: AKS, the public FOCUS code, and a CSV column."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from focus_eval.bench.rows.entries import FileEntry
from focus_eval.core.errors import SelectionMismatch
from focus_eval.core.files import write_text
from focus_eval.core.options import option
from focus_eval.core.resources import read_json, read_text
from focus_eval.core.types import Question
from focus_eval.external.imports.formats import SelectionFormat, Source

# The public FOCUS code writes both files; AKS's code writes only the first.
FRAMES_FILE, DETAILS_FILE = "selected_frames.json", "sampling_details.json"


class AksFormat(SelectionFormat):
    """AKS's list of frames by row of the annotation."""

    name: ClassVar[str] = "aks"
    summary: ClassVar[str] = "a list, one entry of frames per row of the annotation"
    is_written: ClassVar[bool] = True

    def detects(self, source: Source) -> bool:
        """Return True if the file is a list of lists without FOCUS's `sampling_details.json` beside it."""
        return _is_list_of_lists(source.data) and not source.path.with_name(DETAILS_FILE).exists()

    def read(self, source: Source) -> Iterable[FileEntry]:
        """Yield the frames of each row, for the question at the same row of the annotation."""
        for row, (values, question) in enumerate(source.rows_with_questions(source.data)):
            yield from source.selection(values, question_id=question.id, location=f"row {row}", video=question.video)

    def write(self, selections: Mapping[str, FileEntry], path: Path, *, questions: Sequence[Question]) -> list[Path]:
        """Write the frames of every question in the annotation's order."""
        rows = []
        for row, question in enumerate(questions):
            if question.id not in selections:
                raise SelectionMismatch(
                    f"row {row} ({question.id}): no selection; a list by row needs one for every question"
                )
            frames = selections[question.id].selection.keyframes
            if frames is None:
                raise SelectionMismatch(f"{question.id}: chosen in seconds; this format needs frame indices")
            rows.append(frames)
        if extra := sorted(set(selections) - {question.id for question in questions}):
            raise SelectionMismatch(f"{extra[0]!r} is not a question of this benchmark ({len(questions)} questions)")
        return [write_text(path, json.dumps(rows))]


class PublicFocus(AksFormat):
    """The public FOCUS code's list of frames by row, with the pulls and clips from its details file."""

    name: ClassVar[str] = "focus"
    summary: ClassVar[str] = "as aks, selected_frames.json (or its folder) with sampling_details.json beside it"

    def detects(self, source: Source) -> bool:
        """Return True for a list of lists beside `sampling_details.json`, or a folder with `selected_frames.json`."""
        if source.path.is_dir():
            return (source.path / FRAMES_FILE).is_file()
        return _is_list_of_lists(source.data) and source.path.with_name(DETAILS_FILE).exists()

    def read(self, source: Source) -> Iterable[FileEntry]:
        """Yield the selection of each row, with pulls and clips if a details file has as many entries."""
        if source.path.is_dir():
            source = replace(source, path=source.path / FRAMES_FILE)
        details_path, rows = source.path.with_name(DETAILS_FILE), [*source.rows_with_questions(source.data)]
        details = read_json(details_path) if details_path.exists() else [{} for _ in rows]
        if not isinstance(details, list) or len(details) != len(rows):
            raise SelectionMismatch(
                f"{details_path.name}: {len(details)} entries for {len(rows)} rows of {source.path.name}"
            )
        for row, (values, question) in enumerate(rows):
            row_details = _focus_details(
                details[row], values, location=f"{details_path.name}: row {row} ({question.id})"
            )
            location = f"row {row}"
            yield from source.selection(
                values, question_id=question.id, location=location, video=question.video, **row_details
            )


@dataclass(frozen=True, kw_only=True)
class ListLines(SelectionFormat):
    """A CSV column of lists, as published for MaxInfo and CSTA (momentslab/frame-sampling).

    Args:
        skip: number of lists before that of the first question, e.g. if a run started again in the same file.
    """

    name: ClassVar[str] = "csv"
    summary: ClassVar[str] = "a CSV column of lists of frames, a line per row of the annotation"
    skip: int = option(0, at_least=0)

    def detects(self, source: Source) -> bool:
        """Return True if the file is a CSV file whose second line begins a list."""
        if not source.path.is_file() or not source.path.name.removesuffix(".gz").endswith(".csv"):
            return False
        return read_text(source.path).partition("\n")[2].lstrip('"').startswith("[")

    def read(self, source: Source) -> Iterable[FileEntry]:
        """Yield the frames of each line below the first, for the question at the same row of the annotation."""
        rows = list(csv.reader(io.StringIO(read_text(source.path))))[1 + self.skip :]
        lists = []
        for number, row in enumerate(rows):
            try:
                lists.append(json.loads(row[0]))
            except (ValueError, IndexError) as error:
                raise SelectionMismatch(
                    f"{source.path.name}: row {number}: no list of frames, {','.join(row)[:40]!r}; the first column is "
                    "read, separated by commas, in the order of the annotation"
                ) from error
        for number, (frames, question) in enumerate(source.rows_with_questions(lists)):
            yield from source.selection(frames, question_id=question.id, location=f"row {number}", video=question.video)


def _is_list_of_lists(data: object) -> bool:
    """True if `data` is a list of lists, or of null where a question has no frames."""
    if not isinstance(data, list) or not any(isinstance(row, list) for row in data):
        return False
    return all(row is None or isinstance(row, list) for row in data)


def _focus_details(entry: Any, values: Any, *, location: str) -> dict[str, Any]:
    """Return length, rate, pulls and clips in a row's details as keywords of a selection; {} without details.

    Raises SelectionMismatch if the final frames of `entry` differ from the selected frames `values`, or a field is
    missing.
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
            "pulled_frames": [int(frame) for stage in stages for frame in stage["frame_indices"]],
            "pulled_relevance": [float(value) for stage in stages for value in stage["relevance_scores"]],
            "clips": [_focus_clip(arm) for arm in entry["arms_info"]["arms"]],
        }
    except (KeyError, TypeError, ValueError) as error:
        raise SelectionMismatch(
            f"{location}: not FOCUS's sampling details ({type(error).__name__}: {error})"
        ) from error


def _focus_clip(arm: Mapping[str, Any]) -> list[object]:
    """Return a clip of FOCUS's details as (start, stop, pulls, mean, radius, is final); the stop is exclusive.

    Mean and radius are None for a clip without pulls.
    """
    # FOCUS states an inclusive end and the optimistic mean. Our clips have an exclusive end and a separate radius.
    start, stop, n_pulls = int(arm["start_frame"]), int(arm["end_frame"]) + 1, int(arm["samples_count"])
    is_final = int(arm["times_selected"]) > 0
    if n_pulls == 0:
        return [start, stop, 0, None, None, is_final]
    mean = float(arm["mean_similarity"])
    return [start, stop, n_pulls, mean, float(arm["focus_score"]) - mean, is_final]
