"""Reads the BOLT format: by video, a list of `{question_id, question, frames}` with frames in seconds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from focus_eval.core.errors import SelectionMismatch
from focus_eval.selections.imported import ImportedSelection, Source, is_mapping_of_lists, video_stem

UNIT = "seconds"


def detects(path: Path, data: Any) -> bool:
    """Return whether `data` maps videos to lists of objects."""
    return is_mapping_of_lists(data) and any(isinstance(value[0], Mapping) for value in data.values() if value)


def read(data: Any, source: Source) -> Iterable[ImportedSelection]:
    """Yield the selections of every question of every video.

    Raises:
        SelectionMismatch: a file that does not fit; names the entry at fault.
    """
    if not isinstance(data, Mapping):
        raise SelectionMismatch(f"{source.path.name}: format 'bolt' is a mapping from video to its questions")
    by_text = {(video_stem(asked.video), asked.query.strip()): asked.id for asked in source.questions or ()}
    known = {asked.id for asked in source.questions or ()}
    for video, entries in data.items():
        for number, entry in enumerate(entries if isinstance(entries, list) else [None]):
            where = f"video {video!r}, entry {number}"
            if not isinstance(entry, Mapping) or "frames" not in entry or "question_id" not in entry:
                raise SelectionMismatch(f"{source.path.name}: {where}: needs `question_id` and `frames`")
            question_id = str(entry["question_id"])
            if known and question_id not in known:
                # MLVU has no ids: BOLT writes the video's name there, and only the text tells its questions apart.
                question_id = by_text.get((video_stem(video), str(entry.get("question", "")).strip()), question_id)
            yield from source.selection(entry["frames"], question_id=question_id, where=where, video=str(video))
