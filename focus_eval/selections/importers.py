"""How is a published selection file read, whoever wrote it?"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from focus_eval.errors import InvalidInput, SelectionMismatch, unknown_name
from focus_eval.selections.checks import check_lengths, check_unit_plausible, numbers
from focus_eval.selections.imported import AskedQuestion, ImportedSelection
from focus_eval.selections.rows import is_rows_path, load_rows

FORMATS = ("auto", "aks", "focus", "bolt", "qca", "wfs", "rows")
UNITS = ("frames", "seconds")
_FRAME_FIELDS = ("keyframe_indices", "selected_frames", "frame_indices", "frame_idx", "keyframes", "frames")
_FOCUS_FILE = "selected_frames.json"
_ID_FIELDS = ("id", "question_id", "qid", "question_idx")


def load_selections(
    path: str | Path,
    *,
    format: str = "auto",
    questions: Sequence[AskedQuestion] | None = None,
    unit: str | None = None,
    field: str | None = None,
    fps: Mapping[str, float] | None = None,
    sampler: str | None = None,
    allow_missing: bool = False,
) -> dict[str, ImportedSelection]:
    """Return the selections of a file by question id, in the file's order.

    | format | what the file is |
    |---|---|
    | aks | a list, one entry of frames per row of the annotation |
    | focus | the same, `selected_frames.json` (or its folder) with `sampling_details.json` beside it |
    | bolt | by video: a list of `{question_id, question, frames}`, frames in seconds |
    | qca | by question id (or by video, for all its questions): frames |
    | wfs | the rows of the annotation with a field of frames |
    | rows | ours: Parquet, JSON lines, or a run's folder |

    Args:
        questions: the benchmark's questions in the order of its annotation. `aks` and `focus` say nothing of ids,
            so they need them; the other formats are checked against them.
        unit: "frames" or "seconds" where the file differs from its format's habit.
        field: name of the field of frames (wfs); found by itself where there is a usual one.
        fps: rate by question id, to find indices past the end before any video is opened.
        sampler: which one, where rows of ours hold several (a sampler's name or a selection id).
        allow_missing: leave out questions without frames instead of refusing the file.

    Raises:
        SelectionMismatch: a file that does not fit; names the row at fault.
        InvalidInput: an unknown format, unit or file.
    """
    path = Path(path)
    if format not in FORMATS:
        raise unknown_name("selection format", format, FORMATS)
    if unit is not None and unit not in UNITS:
        raise unknown_name("unit", unit, UNITS)
    if format == "rows" or (format == "auto" and is_rows_path(path) and not _is_focus_folder(path)):
        found = load_rows(path, sampler=sampler, allow_missing=allow_missing)
        unit = "frames"
    else:
        path = path / _FOCUS_FILE if path.is_dir() else path
        data = _read_json(path)
        format = _detect(data, path) if format == "auto" else format
        unit = unit or ("seconds" if format == "bolt" else "frames")
        found = list(_READERS[format](data, _Source(path, format, unit, field, questions, allow_missing)))
    selections = _by_id(found, path)
    if questions is not None:
        selections = _fitted(selections, questions, path, allow_missing=allow_missing)
        if unit == "frames":
            check_unit_plausible(selections, questions)
        check_lengths(selections, questions, fps or {})
    return selections


class _Source:
    """Where a reader's data came from and what the caller said of it."""

    def __init__(
        self,
        path: Path,
        format: str,
        unit: str,
        field: str | None,
        questions: Sequence[AskedQuestion] | None,
        allow_missing: bool,
    ) -> None:
        self.path, self.format, self.unit, self.field = path, format, unit, field
        self.questions, self.allow_missing = questions, allow_missing

    def selection(
        self, values: Any, *, question_id: str, where: str, video: str = "", details: Mapping[str, Any] | None = None
    ) -> ImportedSelection | None:
        """Return one selection, or None for an empty one the caller allows."""
        where = f"{self.path.name}: {where}"
        if isinstance(values, list) and not values:
            if self.allow_missing:
                return None
            raise SelectionMismatch(f"{where} ({question_id}): no frames chosen (allow_missing leaves it out)")
        kept = numbers(values, unit=self.unit, where=f"{where} ({question_id})")
        stated: dict[str, Any] = {"times_seconds" if self.unit == "seconds" else "keyframes": kept}
        said: dict[str, Any] = {"sampler": self.format, "video": video, **stated, **(details or {})}
        return ImportedSelection(question_id=question_id, where=where, **said)


def _read_aks(data: Any, source: _Source) -> Iterable[ImportedSelection]:
    for row, (values, question) in enumerate(_rows_with_questions(data, source)):
        one = source.selection(values, question_id=question.id, where=f"row {row}", video=question.video)
        if one is not None:
            yield one


def _read_focus(data: Any, source: _Source) -> Iterable[ImportedSelection]:
    beside = source.path.with_name("sampling_details.json")
    details = _read_json(beside) if beside.exists() else [{} for _ in data]
    if not isinstance(details, list) or len(details) != len(data):
        raise SelectionMismatch(f"{beside.name}: {len(details)} entries for {len(data)} rows of {source.path.name}")
    for row, (values, question) in enumerate(_rows_with_questions(data, source)):
        one = source.selection(
            values,
            question_id=question.id,
            where=f"row {row}",
            video=question.video,
            details=_focus_details(details[row], values, where=f"{beside.name}: row {row} ({question.id})"),
        )
        if one is not None:
            yield one


def _rows_with_questions(data: Any, source: _Source) -> Iterable[tuple[Any, AskedQuestion]]:
    if not isinstance(data, list):
        raise SelectionMismatch(f"{source.path.name}: format {source.format!r} is a list with one entry per question")
    if source.questions is None:
        raise SelectionMismatch(
            f"{source.path.name}: format {source.format!r} goes by the annotation's order; give the questions too"
        )
    if len(data) != len(source.questions):
        raise SelectionMismatch(
            f"{source.path.name}: {len(data)} rows for {len(source.questions)} questions; another benchmark or split?"
        )
    return zip(data, source.questions, strict=True)


def _focus_details(entry: Any, values: Any, *, where: str) -> dict[str, Any]:
    if not isinstance(entry, Mapping) or not entry:
        return {}
    try:
        if list(entry["final_selected_frames"]) != list(values):
            raise SelectionMismatch(f"{where}: its final frames are not those of the selected frames")
        stages = (entry["coarse_sampling"], entry["fine_sampling"])
        meta, ours = entry["video_metadata"], entry.get("focus_eval", {})
        return {
            **({"sampler": ours["sampler"], "k": ours["k"]} if ours else {}),
            "n_frames": int(meta["total_frames"]),
            "fps": float(meta["fps"]),
            "pulled_frames": tuple(int(frame) for stage in stages for frame in stage["frame_indices"]),
            "pulled_relevance": tuple(float(value) for stage in stages for value in stage["relevance_scores"]),
            "clips": tuple(map(tuple, ours["clips"])) if ours else tuple(map(_focus_clip, entry["arms_info"]["arms"])),
        }
    except (KeyError, TypeError, ValueError) as error:
        raise SelectionMismatch(f"{where}: not FOCUS's sampling details ({type(error).__name__}: {error})") from error


def _focus_clip(arm: Mapping[str, Any]) -> tuple[Any, ...]:
    # FOCUS states the optimistic score and an inclusive end; an arm of ours is half-open with its radius apart.
    start, stop, n_pulls = int(arm["start_frame"]), int(arm["end_frame"]) + 1, int(arm["samples_count"])
    is_final = int(arm["times_selected"]) > 0
    if n_pulls == 0:
        return (start, stop, 0, None, None, is_final)
    mean = float(arm["mean_similarity"])
    return (start, stop, n_pulls, mean, float(arm["focus_score"]) - mean, is_final)


def _read_bolt(data: Any, source: _Source) -> Iterable[ImportedSelection]:
    if not isinstance(data, Mapping):
        raise SelectionMismatch(f"{source.path.name}: format 'bolt' is a mapping from video to its questions")
    by_text = {(_stem(asked.video), asked.query.strip()): asked.id for asked in source.questions or ()}
    known = {asked.id for asked in source.questions or ()}
    for video, entries in data.items():
        for number, entry in enumerate(entries if isinstance(entries, list) else [None]):
            where = f"video {video!r}, entry {number}"
            if not isinstance(entry, Mapping) or "frames" not in entry or "question_id" not in entry:
                raise SelectionMismatch(f"{source.path.name}: {where}: needs `question_id` and `frames`")
            question_id = str(entry["question_id"])
            if known and question_id not in known:
                # MLVU has no ids: BOLT writes the video's name there, and only the text tells its questions apart.
                question_id = by_text.get((_stem(video), str(entry.get("question", "")).strip()), question_id)
            one = source.selection(entry["frames"], question_id=question_id, where=where, video=str(video))
            if one is not None:
                yield one


def _read_qca(data: Any, source: _Source) -> Iterable[ImportedSelection]:
    if not isinstance(data, Mapping):
        raise SelectionMismatch(f"{source.path.name}: format 'qca' is a mapping from question id (or video) to frames")
    of_video: dict[str, list[AskedQuestion]] = {}
    by_id = {asked.id: asked for asked in source.questions or ()}
    for asked in source.questions or ():
        of_video.setdefault(_stem(asked.video), []).append(asked)
    for key, values in data.items():
        asked_here = [by_id[key]] if key in by_id else of_video.get(_stem(key), [])
        pairs = [(asked.id, asked.video) for asked in asked_here] or [(str(key), "")]
        for question_id, video in pairs:
            one = source.selection(values, question_id=question_id, where=f"key {key!r}", video=video)
            if one is not None:
                yield one


def _read_wfs(data: Any, source: _Source) -> Iterable[ImportedSelection]:
    if not isinstance(data, list) or not all(isinstance(row, Mapping) for row in data):
        raise SelectionMismatch(f"{source.path.name}: format 'wfs' is a list of the annotation's rows")
    frames_field = source.field or _first_field(data, _FRAME_FIELDS, source.path, "frames")
    id_field = _first_field(data, _ID_FIELDS, source.path, "an id")
    for row, values in enumerate(data):
        if frames_field not in values or id_field not in values:
            missing = frames_field if frames_field not in values else id_field
            raise SelectionMismatch(f"{source.path.name}: row {row} has no field {missing!r}")
        video = str(values.get("video_path") or values.get("video_name") or values.get("videoID") or "")
        one = source.selection(values[frames_field], question_id=str(values[id_field]), where=f"row {row}", video=video)
        if one is not None:
            yield one


_READERS = {"aks": _read_aks, "focus": _read_focus, "bolt": _read_bolt, "qca": _read_qca, "wfs": _read_wfs}


def _detect(data: Any, path: Path) -> str:
    if isinstance(data, list) and data and all(isinstance(row, list) for row in data):
        return "focus" if path.with_name("sampling_details.json").exists() else "aks"
    if isinstance(data, list) and data and all(isinstance(row, Mapping) for row in data):
        return "wfs"
    if isinstance(data, Mapping) and data and all(isinstance(value, list) for value in data.values()):
        firsts = [value[0] for value in data.values() if value]
        return "bolt" if any(isinstance(first, Mapping) for first in firsts) else "qca"
    raise SelectionMismatch(f"{path}: no known kind of selection file; formats: {', '.join(FORMATS[1:])}")


def _is_focus_folder(path: Path) -> bool:
    return (path / _FOCUS_FILE).is_file()


def _first_field(rows: Sequence[Mapping[str, Any]], names: Sequence[str], path: Path, what: str) -> str:
    for name in names:
        if rows and name in rows[0]:
            return name
    have = ", ".join(sorted(rows[0])) if rows else "no rows"
    raise SelectionMismatch(f"{path.name}: row 0 has no field of {what} among {', '.join(names)}; has: {have}")


def _by_id(found: Iterable[ImportedSelection], path: Path) -> dict[str, ImportedSelection]:
    selections: dict[str, ImportedSelection] = {}
    for one in found:
        if one.question_id in selections:
            first = selections[one.question_id].where
            raise SelectionMismatch(f"{one.where}: question {one.question_id!r} came before ({first})")
        selections[one.question_id] = one
    if not selections:
        raise SelectionMismatch(f"{path}: holds no selection")
    return selections


def _fitted(
    selections: dict[str, ImportedSelection], questions: Sequence[AskedQuestion], path: Path, *, allow_missing: bool
) -> dict[str, ImportedSelection]:
    known = {asked.id: asked for asked in questions}
    for key, one in selections.items():
        if key not in known:
            raise SelectionMismatch(f"{one.where}: {key!r} is no question of this benchmark ({len(known)} questions)")
    missing = [asked.id for asked in questions if asked.id not in selections]
    if missing and not allow_missing:
        raise SelectionMismatch(
            f"{path.name}: {len(selections)} selections for {len(known)} questions, the first without is {missing[0]!r}"
        )
    return {key: _named(one, known[key]) for key, one in selections.items()}


def _named(one: ImportedSelection, asked: AskedQuestion) -> ImportedSelection:
    if one.benchmark and one.benchmark != asked.benchmark:
        raise SelectionMismatch(f"{one.where}: a selection for {one.benchmark}, the question is of {asked.benchmark}")
    return replace(one, benchmark=asked.benchmark, video=asked.video)


def _stem(video: str) -> str:
    return Path(str(video)).stem


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise InvalidInput(f"{path}: no such file") from error
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{path}: not a JSON file that can be read ({error})") from error
