"""Reads the BOLT format: by video, a list of `{question_id, question, frames}` with frames in seconds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar

from focus_eval.core.errors import SelectionMismatch
from focus_eval.imports.imported import ImportedSelection, SelectionFormat, Source, is_mapping_of_lists, video_stem


class BoltFormat(SelectionFormat):
    """BOLT's mapping from video to its questions."""

    name: ClassVar[str] = "bolt"
    summary: ClassVar[str] = "by video: a list of {question_id, question, frames}, frames in seconds"
    unit: ClassVar[str] = "seconds"

    def detects(self, source: Source) -> bool:
        """Return True if the file maps videos to lists of objects."""
        data = source.data
        return is_mapping_of_lists(data) and any(isinstance(value[0], Mapping) for value in data.values() if value)

    def read(self, source: Source) -> Iterable[ImportedSelection]:
        """Yield the selection of each entry, times in seconds.

        Where the file's id is unknown, the question is found by video and text. Raises SelectionMismatch for a file of
        another form.
        """
        if not isinstance(source.data, Mapping):
            raise SelectionMismatch(f"{source.path.name}: format 'bolt' is a mapping from video to its questions")
        by_text = {
            (video_stem(question.video), question.query.strip()): question.id for question in source.questions or ()
        }
        known_ids = {question.id for question in source.questions or ()}
        for video, entries in source.data.items():
            for number, entry in enumerate(entries if isinstance(entries, list) else [None]):
                location = f"video {video!r}, entry {number}"
                if not isinstance(entry, Mapping) or "frames" not in entry or "question_id" not in entry:
                    raise SelectionMismatch(f"{source.path.name}: {location}: needs `question_id` and `frames`")
                question_id = str(entry["question_id"])
                if known_ids and question_id not in known_ids:
                    # MLVU has no ids: BOLT writes the video's name there, and only the text tells its questions apart.
                    question_id = by_text.get((video_stem(video), str(entry.get("question", "")).strip()), question_id)
                yield from source.selection(
                    entry["frames"], question_id=question_id, location=location, video=str(video)
                )
