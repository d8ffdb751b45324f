"""Reads the QCA format: by question id (or by video, for all its questions), a list of frames."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar

from focus_eval.core.errors import SelectionMismatch
from focus_eval.core.types import Question
from focus_eval.imports.imported import ImportedSelection, SelectionFormat, Source, is_mapping_of_lists, video_stem


class QcaFormat(SelectionFormat):
    """QCA's mapping from question id, or video, to frames."""

    name: ClassVar[str] = "qca"
    summary: ClassVar[str] = "by question id (or by video, for all its questions): frames"

    def detects(self, source: Source) -> bool:
        """Return True if the file maps names to lists of numbers."""
        data = source.data
        return is_mapping_of_lists(data) and not any(isinstance(value[0], Mapping) for value in data.values() if value)

    def read(self, source: Source) -> Iterable[ImportedSelection]:
        """Yield the selections by question id; a video's frames go to all its questions."""
        if not isinstance(source.data, Mapping):
            raise SelectionMismatch(
                f"{source.path.name}: format 'qca' is a mapping from question id (or video) to frames"
            )
        of_video: dict[str, list[Question]] = {}
        by_id = {question.id: question for question in source.questions or ()}
        for question in source.questions or ():
            of_video.setdefault(video_stem(question.video), []).append(question)
        for key, values in source.data.items():
            asked_here = [by_id[key]] if key in by_id else of_video.get(video_stem(key), [])
            pairs = [(question.id, question.video) for question in asked_here] or [(str(key), "")]
            for question_id, video in pairs:
                yield from source.selection(values, question_id=question_id, location=f"key {key!r}", video=video)
