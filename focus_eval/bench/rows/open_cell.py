"""Writes the rows of one cell: describes and locks its folder, and finds the rows of an earlier start."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from focus_eval.bench.rows.store import PROMPT_FILE, StoredRows
from focus_eval.core.errors import InvalidInput, RunError
from focus_eval.keyframes.rows.files import locked_at_once, write_sealed_json
from focus_eval.keyframes.rows.records import AnswerRow, CellNames, RowT, RowWriter, SelectionRow

_WRITING_PROMPT = threading.Lock()


def describe_part(file: Path, document: Callable[[], Mapping[str, Any]]) -> None:
    """Write the description of a selection or a cell to `file`, unless it is there; makes its folder."""
    file.parent.mkdir(parents=True, exist_ok=True)
    # Written once: the folder's name ends in a hash of what the description says, so it cannot change.
    if not file.exists():
        write_sealed_json(file, document())


class OpenCell:
    """One cell's folder while this process writes its rows. Nothing is made or locked before the first row.

    Args:
        path: folder of the cell's description and prompt record.
        names: id and name of the cell in its rows.
        file_name: of this process's file in each folder of rows.
        rows: folder of the rows by their type.
        description: content of `cell.json`; None if somebody else writes it.
        refusal: end of the error if another process has this process's lock; None takes no lock, under that of a run.
    """

    def __init__(
        self,
        path: Path,
        names: CellNames,
        *,
        file_name: str,
        rows: Mapping[type[Any], Path],
        description: Callable[[], Mapping[str, Any]] | None = None,
        refusal: str | None = None,
    ) -> None:
        self.path = path
        self.names = names
        self._file_name = file_name
        self._rows = rows
        self._description = description
        self._refusal = refusal
        self._open_files = ExitStack()
        self._is_locked = False
        self._writers: dict[type[Any], RowWriter] = {}
        self._earlier: dict[type[Any], dict[str, Any]] = {}

    def write(self, row: AnswerRow | SelectionRow) -> None:
        """Append a row to this process's file.

        Raises:
            RunError: another process writes to the file, or it cannot be written.
        """
        if type(row) not in self._writers:
            folder = self._rows[type(row)]
            folder.mkdir(parents=True, exist_ok=True)
            # Before the first line, and only where a line is written: reading needs no lock.
            if self._refusal is not None and not self._is_locked:
                # One per file: the ranks of one run write side by side.
                self._open_files.enter_context(locked_at_once(self.path / f".{self._file_name}.lock", self._refusal))
                self._is_locked = True
            if self._description is not None:
                describe_part(self.path / "cell.json", self._description)
            # Closed before the lock is released: until then our lines may not be on the disk.
            self._writers[type(row)] = self._open_files.enter_context(closing(RowWriter(folder / self._file_name)))
        self._writers[type(row)].write(row)

    def earlier(self, kind: type[RowT], question_id: str) -> RowT | None:
        """Return the row of a question, of any process, without an error; None if there is none. Files are read once.

        A row with an error is no answer: the question is asked again.
        """
        if kind not in self._earlier:
            rows = StoredRows(self._rows[kind], kind)
            self._earlier[kind] = {row.question_id: row for row in rows if row.error is None}
        earlier: RowT | None = self._earlier[kind].get(question_id)
        return earlier

    @property
    def wants_prompt(self) -> bool:
        """True if the cell has no prompt record yet."""
        return not (self.path / PROMPT_FILE).exists()

    def write_prompt(self, record: Mapping[str, Any]) -> None:
        """Write the prompt record (`tracing.prompt_record`) into the folder, unless it has one."""
        self.path.mkdir(parents=True, exist_ok=True)
        # Questions of an API are answered side by side: several may have found no record yet.
        with _WRITING_PROMPT:
            if self.wants_prompt:
                try:
                    write_sealed_json(self.path / PROMPT_FILE, record)
                except InvalidInput as error:  # the disk's fault, not the question's: no row may say so
                    raise RunError(str(error)) from error

    def close(self) -> None:
        """Close the files, release the lock and forget the rows read; a later row opens its file again."""
        self._open_files.close()
        self._is_locked = False
        self._writers.clear()
        # Read again next time, since others may write from now on.
        self._earlier.clear()
