"""Reads the frames recorded in a log of lmms-eval as a selection."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from focus_eval.core.errors import SelectionMismatch
from focus_eval.imports.imported import ImportedSelection, SelectionFormat, Source
from focus_eval.imports.lmms_logs import find_logs


@dataclass(frozen=True, kw_only=True)
class Lmms(SelectionFormat):
    """One log of lmms-eval, its frames alone; `focus-eval import lmms` also reads its answers.

    Args:
        frames_field: field of the document with the frames that were fed; must be named, for a log may hold others.
        id_field: field with the question's id in the annotation.
        run: name of the run, if the file holds several.
    """

    name: ClassVar[str] = "lmms"
    # Never detected: its field has to be named.
    summary: ClassVar[str] = "a log of lmms-eval (options `frames_field`, `id_field`, `run`)"

    frames_field: str = ""
    id_field: str = "id"
    run: str = ""

    def read(self, source: Source) -> Iterable[ImportedSelection]:
        """Yield the frames of every line of the one log; a line without frames counts as an empty selection.

        Raises SelectionMismatch if there are several logs or no field of frames is named.
        """
        logs = [log for log in find_logs(source.path) if self.run in ("", log.run)]
        if len(logs) != 1:
            raise SelectionMismatch(f"{source.path}: holds {len(logs)} logs, name the file of one (or its `run`)")
        if not self.frames_field:
            raise SelectionMismatch(f"{source.path}: name the field of the frames that were fed (frames_field)")
        for record in logs[0].records():
            question_id = record.value(self.id_field)
            if question_id is None:
                raise SelectionMismatch(
                    f"{record.location}: no field {self.id_field!r} with the question's id (id_field)"
                )
            frames = record.frames(self.frames_field, unit=source.unit)
            yield from source.selection(
                sorted(frames or ()), question_id=str(question_id), location=f"line {record.line}"
            )
