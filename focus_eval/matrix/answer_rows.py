"""Writes the rows of a cell while its model answers."""

from __future__ import annotations

from collections.abc import Callable

from focus_eval.lmms.arguments import SeamOptions
from focus_eval.lmms.recording import CellNames, Recorder
from focus_eval.lmms.requests import PendingRequest, RequestParts
from focus_eval.matrix.cells import Cell
from focus_eval.rows.records import AnswerRow, RowWriter


class CellRecorder(Recorder):
    """Writes answers to one file of a run's folder as they come; the selections lie there already."""

    def __init__(self, cell: Cell, writer: RowWriter, *, options: SeamOptions, selection_id: str) -> None:
        super().__init__(model=cell.model.name, options=options, selection_id=selection_id)
        self.where = writer.path.parent
        self.on_row: Callable[[AnswerRow], None] | None = None
        self._names = CellNames(cell_id=cell.id, cell=cell.name)
        self._file = writer

    def names(self, parts: RequestParts) -> CellNames:
        """Return how the cell is called, whatever is asked."""
        return self._names

    def write_answer(self, pending: PendingRequest, row: AnswerRow) -> None:
        """Write an answer."""
        self._file.write(row)
        if self.on_row is not None:
            self.on_row(row)

    def close(self) -> None:
        """Write through to the disk and close."""
        self._file.close()
