"""A cell: the rows of one model with one selection on one task, and their folder."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from focus_eval.bench.answering.questions import FramedQuestion, ModelReply, TaskQuestion
from focus_eval.bench.rows.store import PROMPT_FILE, StoredRows
from focus_eval.core.errors import InvalidInput, RunError
from focus_eval.core.types import FramePolicy
from focus_eval.keyframes.rows.files import locked_at_once, write_sealed_json
from focus_eval.keyframes.rows.json_lines import RowWriter
from focus_eval.keyframes.rows.records import AnswerRow, CellNames, RowT, SelectionRow, answer_row


def describe_part(file: Path, document: Callable[[], Mapping[str, object]]) -> None:
    """Write the description of a selection or a cell to `file`, unless it is there; makes its folder."""
    file.parent.mkdir(parents=True, exist_ok=True)
    # Written once: the folder's name ends in a hash of the description, so it cannot change.
    if not file.exists():
        write_sealed_json(file, document())


@dataclass(frozen=True, kw_only=True)
class CellSettings:
    """What all answers of a cell have in common.

    Args:
        names: id and name of the cell; the id is the hash of its identity, computed when the cell is opened.
        model: name of the model in the rows.
        frames: requested number of frames.
        selection_id: written in answers without a selection row (the wrapper's own sampling).
        read: returns the fields of a row that depend on the reply's text: answer, parsed, score, metric, is_cut.
        frame_policy: which frames are fed for a selection.
        device: name of the model's device in the rows; "" if unknown.
    """

    names: CellNames
    model: str
    frames: int
    selection_id: str
    read: Callable[[TaskQuestion, ModelReply], Mapping[str, Any]]
    frame_policy: FramePolicy = "exact"
    device: str = ""


class Cell:
    """One cell while this process writes its rows. Nothing is made or locked before the first row.

    Args:
        settings: what its rows have in common.
        path: folder of the cell's description and prompt record.
        file_name: of this process's file in each folder of rows.
        answers: folder of the answer rows.
        selections: folder of the selection rows; None if others keep them.
        description: content of `cell.json`; None if somebody else writes it.
        refusal: end of the error if another process has this process's lock; None takes no lock, under that of a run.
    """

    def __init__(
        self,
        settings: CellSettings,
        path: Path,
        *,
        file_name: str,
        answers: Path,
        selections: Path | None = None,
        description: Callable[[], Mapping[str, Any]] | None = None,
        refusal: str | None = None,
    ) -> None:
        self.settings = settings
        self.path = path
        self._file_name = file_name
        self._folders: dict[type[object], Path] = {AnswerRow: answers}
        if selections is not None:
            self._folders[SelectionRow] = selections
        self._description = description
        self._refusal = refusal
        # Selections are written by the thread that chooses, answers by the one that collects them.
        self._lock = threading.Lock()
        self._open_files = ExitStack()
        self._is_locked = self._has_prompt = False
        self._writers: dict[type[object], RowWriter] = {}
        self._earlier: dict[type[object], dict[str, Any]] = {}

    def write_answer(self, framed: FramedQuestion, reply: ModelReply) -> AnswerRow:
        """Append and return the row of an answered or failed question; a row with an error has no answer."""
        settings = self.settings
        # Without a selection row, only the model's inputs show how many frames it got.
        own_sampling = {"selection_id": settings.selection_id, "frames_fed": reply.n_reached or 0}
        unread = {"answer": None, "parsed": None, "score": 0.0}
        row = answer_row(
            framed.task_question.question,
            settings.names,
            model=settings.model,
            frames_asked=settings.frames,
            selection=framed.row,
            fed_frames=reply.fed_frames,
            **({} if framed.row else own_sampling),
            fallback=reply.fallback,
            **(settings.read(framed.task_question, reply) if reply.error is None else unread),
            seconds={stage: round(seconds, 6) for stage, seconds in reply.seconds.items()},
            tokens=dict(reply.tokens),
            device=settings.device,
            error=reply.error,
            prompt_note=reply.prompt_note,
        )
        with self._lock:
            if reply.prompt_record is not None and self.wants_prompt:
                self._write_prompt(reply.prompt_record)
            self._write(row)
        return row

    def write_selection(self, row: SelectionRow) -> None:
        """Append a selection row, unless others keep them."""
        if SelectionRow in self._folders:
            with self._lock:
                self._write(row)

    def earlier_answer(self, question_id: str) -> AnswerRow | None:
        """Return the answer of an earlier start, of any process, without an error; None if there is none."""
        return self._earlier_row(AnswerRow, question_id)

    def earlier_selection(self, question_id: str) -> SelectionRow | None:
        """Return the selection of an earlier start without an error; None if there is none."""
        return self._earlier_row(SelectionRow, question_id) if SelectionRow in self._folders else None

    @property
    def wants_prompt(self) -> bool:
        """True if the cell has no prompt record yet."""
        self._has_prompt = self._has_prompt or (self.path / PROMPT_FILE).exists()
        return not self._has_prompt

    def close(self) -> None:
        """Close the files, release the lock and forget the rows read; a later row opens its file again."""
        self._open_files.close()
        self._is_locked = False
        self._writers.clear()
        # Read again next time, since others may write from now on.
        self._earlier.clear()

    def _write(self, row: AnswerRow | SelectionRow) -> None:
        """Append a row to this process's file; raise RunError if another process writes to it, or it cannot be."""
        if type(row) not in self._writers:
            folder = self._folders[type(row)]
            folder.mkdir(parents=True, exist_ok=True)
            # Lock before the first line only: a process that only reads needs no lock.
            if self._refusal is not None and not self._is_locked:
                # One lock per file: ranks of a run write in parallel.
                self._open_files.enter_context(locked_at_once(self.path / f".{self._file_name}.lock", self._refusal))
                self._is_locked = True
            if self._description is not None:
                describe_part(self.path / "cell.json", self._description)
            # The exit stack closes the file before it releases the lock, so the next holder finds all lines on disk.
            self._writers[type(row)] = self._open_files.enter_context(closing(RowWriter(folder / self._file_name)))
        self._writers[type(row)].write(row)

    def _earlier_row(self, kind: type[RowT], question_id: str) -> RowT | None:
        with self._lock:
            # Skip rows with an error, so that their questions are asked again. Files are read once.
            if kind not in self._earlier:
                rows = StoredRows(self._folders[kind], kind)
                self._earlier[kind] = {row.question_id: row for row in rows if row.error is None}
            earlier: RowT | None = self._earlier[kind].get(question_id)
        return earlier

    def _write_prompt(self, record: Mapping[str, object]) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        try:
            write_sealed_json(self.path / PROMPT_FILE, record)
        except InvalidInput as error:  # a disk error is not the question's error: end the run instead of writing a row
            raise RunError(str(error)) from error
