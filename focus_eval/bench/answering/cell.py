"""A cell: the rows of one model with one selection on one task, and their folder in a run.

    RUN/run.json                              the description of the run, and its starts
    RUN/selections/NAME/spec.json             the description of the selection rows beside it
    RUN/answers/CELL/cell.json                the description of the answer rows beside it
    RUN/answers/CELL/prompt.json              the first prompt that the model was sent
    RUN/{selections,answers}/*/rows-*.jsonl   a file of rows for each process that writes

A matrix is one run, in which cells share selections. The plugin, which knows one model and one sampler, makes a run
for each cell: if a run held two of its cells, a table might show no difference between them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext
from dataclasses import dataclass
from pathlib import Path

from focus_eval.bench.answering.questions import FramedQuestion, ModelReply, TaskQuestion
from focus_eval.bench.rows.store import PROMPT_FILE, StoredRows
from focus_eval.core.errors import InvalidInput, RunError
from focus_eval.core.types import FramePolicy, Question, query_text
from focus_eval.keyframes.rows.files import write_sealed_json
from focus_eval.keyframes.rows.json_lines import RowWriter
from focus_eval.keyframes.rows.records import AnswerRow, CellNames, RowT, SelectionRow, answer_row

DESCRIPTION_FILES: Mapping[type[object], str] = {SelectionRow: "spec.json", AnswerRow: "cell.json"}


def describe_part(
    folder: Path, kind: type[SelectionRow | AnswerRow], *, name: str, identity: Mapping[str, object]
) -> None:
    """Create the folder of a selection or a cell, and write the description of its rows if it has none."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / DESCRIPTION_FILES[kind]
    # Written once: the folder's name ends in a hash of the description, which therefore cannot change.
    if not file.exists():
        write_sealed_json(file, {"name": name, "identity": identity})


@dataclass(frozen=True, kw_only=True)
class CellSettings:
    """The settings that all answers of a cell have in common.

    Args:
        names: id and name of the cell; the id is the hash of its identity, computed when the cell is opened.
        model: name of the model in the rows.
        frames: requested number of frames.
        selection_id: written in answers without a selection row (the wrapper's own sampling).
        read: returns the fields of a row that depend on the reply's text: answer, parsed, score, metric, is_cut.
        frame_policy: which frames are fed for a selection.
        query: form of the question for an encoder (see `core.types.query_text`).
        device: name of the model's device in the rows; "" if unknown.
    """

    names: CellNames
    model: str
    frames: int
    selection_id: str
    read: Callable[[TaskQuestion, ModelReply], Mapping[str, object]]
    frame_policy: FramePolicy = "exact"
    query: str = "question"
    device: str = ""


class Cell:
    """One cell of which this process writes rows. No file is created and nothing is locked before the first row.

    Args:
        settings: what its rows have in common.
        answers: folder of the answer rows, their description and the prompt record.
        selections: folder of the selection rows; None if this cell does not write them.
        file_name: name of this process's file in each folder of rows.
        writing: returns a context that locks and describes the folders, entered before the first row, left by `close`.
    """

    def __init__(
        self,
        settings: CellSettings,
        *,
        answers: Path,
        selections: Path | None = None,
        file_name: str,
        writing: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self.settings = settings
        self._folders: dict[type[object], Path] = {AnswerRow: answers}
        if selections is not None:
            self._folders[SelectionRow] = selections
        self._file_name = file_name
        self._writing = writing
        # Selections are written by the thread that chooses, answers by the one that collects them.
        self._lock = threading.Lock()
        self._open_files = ExitStack()
        self._is_writing = self._has_prompt = False
        self._writers: dict[type[object], RowWriter] = {}
        self._earlier: dict[type[object], dict[str, object]] = {}

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
            self._begin()
            if reply.prompt_record is not None and self.wants_prompt:
                try:
                    write_sealed_json(self._prompt_file, reply.prompt_record)
                except InvalidInput as error:  # the disk's fault, not the question's: end the run, write no row
                    raise RunError(str(error)) from error
            self._write(row)
        return row

    def write_selection(self, row: SelectionRow) -> None:
        """Append a selection row; do nothing if this cell does not write selection rows."""
        if SelectionRow in self._folders:
            with self._lock:
                self._write(row)

    def earlier_answer(self, question: Question) -> AnswerRow | None:
        """Return the question's answer from an earlier start of any process; None if it has none without an error.

        Raises:
            InvalidInput: the question has changed since.
            RunError: rows of another cell, copied into this one's folder.
        """
        row = self._earlier_row(AnswerRow, question.id)
        if row is not None:
            self.earlier_selection(question)
            self._check_unchanged(question, is_same=row.correct_answer == question.answer)
        return row

    def earlier_selection(self, question: Question) -> SelectionRow | None:
        """Return the question's selection likewise; None if there is none. Raises as `earlier_answer`."""
        row = self._earlier_row(SelectionRow, question.id) if SelectionRow in self._folders else None
        if row is not None:
            # Rows hold the plain query if the query form has no effect on the sampler.
            queries = (question.query, query_text(question, self.settings.query))
            self._check_unchanged(
                question, is_same=(row.query in queries and row.option_texts == list(question.options))
            )
        return row

    @property
    def wants_prompt(self) -> bool:
        """True if the cell has no prompt record yet."""
        self._has_prompt = self._has_prompt or self._prompt_file.exists()
        return not self._has_prompt

    def close(self) -> None:
        """Close the files, release the lock and forget the rows read; a later row opens its file again."""
        self._open_files.close()
        self._is_writing = False
        self._writers.clear()
        # Read the rows again next time, since other processes may write from now on.
        self._earlier.clear()

    def _begin(self) -> None:
        # Lock before the first line only: a process that only reads needs no lock.
        if not self._is_writing:
            self._open_files.enter_context(self._writing())
            self._is_writing = True

    def _write(self, row: AnswerRow | SelectionRow) -> None:
        """Append a row to this process's file; raise RunError if that fails or another process writes to it."""
        self._begin()
        if type(row) not in self._writers:
            file = self._folders[type(row)] / self._file_name
            # The exit stack closes the file before it releases the lock, so the next holder finds all lines on disk.
            self._writers[type(row)] = self._open_files.enter_context(closing(RowWriter(file)))
        self._writers[type(row)].write(row)

    def _check_unchanged(self, question: Question, *, is_same: bool) -> None:
        if not is_same:
            raise InvalidInput(
                f"{self._folders[AnswerRow]}: question {question.id!r} was another one in an earlier start (its text, "
                "options or right answer differ); answer the changed questions into another folder"
            )

    def _earlier_row(self, kind: type[RowT], question_id: str) -> RowT | None:
        with self._lock:
            if kind not in self._earlier:  # files are read once
                self._earlier[kind] = self._earlier_rows(kind)
            earlier = self._earlier[kind].get(question_id)
        return earlier if isinstance(earlier, kind) else None

    def _earlier_rows(self, kind: type[RowT]) -> dict[str, object]:
        rows: dict[str, object] = {}
        expected = self.settings.names.cell_id if kind is AnswerRow else self.settings.selection_id
        for row in StoredRows(self._folders[kind], kind):
            if row.key[-1] != expected:
                raise RunError(
                    f"{self._folders[kind]}: holds a row of another identity (question {row.question_id!r}, "
                    f"{row.key[-1]} in place of {expected}); move the file that was copied here away"
                )
            # A row with an error is no answer: the question is asked again.
            if row.error is None:
                # Drop the lists of pulls, which take most of a selection row's memory: answering does not need them.
                rows[row.question_id] = row.without_pulls() if isinstance(row, SelectionRow) else row
        return rows

    @property
    def _prompt_file(self) -> Path:
        return self._folders[AnswerRow] / PROMPT_FILE
