"""Where do the rows of a cell go while its model answers?"""

from __future__ import annotations

from collections.abc import Callable

from focus_eval.lmms.arguments import SeamOptions
from focus_eval.lmms.recording import CellNames, Recorder
from focus_eval.lmms.requests import PendingRequest
from focus_eval.matrix.cells import Cell
from focus_eval.rows.records import AnswerRow, RowWriter


class CellRecorder(Recorder):
    """Writes answers to one file of a run's folder as they come; the selections lie there already."""

    def __init__(self, cell: Cell, writer: RowWriter, *, options: SeamOptions, selection_id: str) -> None:
        names = CellNames(cell_id=cell.id, cell=cell.name)
        super().__init__(
            writer.path.parent,
            model=cell.model.name,
            cell_of=lambda task, generation: names,
            options=options,
            selection_id=selection_id,
            writes_selections=False,
        )
        self.on_row: Callable[[AnswerRow], None] | None = None
        self._file = writer

    def answer(self, pending: PendingRequest, frames: int) -> AnswerRow:
        """Write what came of `pending`, and return the row."""
        row = self.answer_row(pending, frames)
        self._file.write(row)
        if self.on_row is not None:
            self.on_row(row)
        return row

    def close(self) -> None:
        """Write through to the disk and close."""
        self._file.close()
