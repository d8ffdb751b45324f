"""A model's answers to the rows of a sheet, recorded and counted as those of a run; for `ask --from`.

The command is in `keyframes`, which must not import this module, so it finds `SheetAnswers` by an entry point.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from focus_eval.bench.lmms.parsing import read_answer
from focus_eval.bench.report.statistics import mean_estimate
from focus_eval.bench.rows.store import StoredRows, name_run, part_name
from focus_eval.core.errors import FocusEvalError, InvalidInput, MissingDependency, RunError, printable
from focus_eval.core.types import Question
from focus_eval.keyframes.commands.console import counted
from focus_eval.keyframes.llms.registry import Model
from focus_eval.keyframes.question_sheet import SheetRow
from focus_eval.keyframes.rows.identity import identity_hash
from focus_eval.keyframes.rows.json_lines import RowWriter
from focus_eval.keyframes.rows.records import AnswerRow, CellNames, SelectionRow, answer_row, error_line
from focus_eval.keyframes.selection import VideoSelection

# This number is part of the identity of the answers: increase it when the prompt changes.
PROMPT_VERSION = 1
LETTER_INSTRUCTION = "Answer with the letter of the correct option."


class SheetAnswers:
    """Asks a model about the rows of a sheet, and appends its answers to the folder of the sheet's keyframes.

    Args:
        folder: folder with the selections of the rows, which `load_run` can read.
        sheet_name: name of the sheet, which is the benchmark in the rows.
        selection_id: selection id of the rows.
        max_tokens: largest number of tokens of an answer.
    """

    def __init__(self, folder: Path, sheet_name: str, model: Model, *, selection_id: str, max_tokens: int) -> None:
        self._sheet_name, self._model, self._max_tokens = sheet_name, model, max_tokens
        identity = {"selection": selection_id, "model": model.model_id, "revision": model.revision}
        cell_id = identity_hash({**identity, "max_tokens": max_tokens, "prompt": PROMPT_VERSION})
        # `model_id` names only the service, so add the model's name, with which the revision begins.
        self._model_name = f"{model.model_id} ({model.revision.partition(',')[0]})"
        self._names = CellNames(cell_id=cell_id, cell=f"{self._model_name} {sheet_name}")
        self._folder = folder / "answers" / part_name(f"{self._model_name} {sheet_name}", location=folder)
        rows = StoredRows(self._folder, AnswerRow) if self._folder.is_dir() else ()
        self._rows = {row.question_id: row for row in rows if row.error is None}
        self._sheet_ids: set[str] = set()
        if other := next((row for row in self._rows.values() if row.cell_id != cell_id), None):
            raise InvalidInput(
                f"{folder}: {self._model_name} answered row {printable(other.question_id)!r} with other settings or "
                "from other keyframes; name another folder with --out"
            )
        self._lock = threading.Lock()
        self._writer = RowWriter(self._folder / "rows.jsonl")
        name_run(folder)

    def close(self) -> None:
        """Close the file of the rows."""
        self._writer.close()

    def earlier(self, row: SheetRow) -> dict[str, object] | None:
        """Return the cells of a row that was answered before; None for a new row.

        Raises:
            InvalidInput: the sheet stated a different right answer when the row was answered.
        """
        self._sheet_ids.add(row.id)
        earlier = self._rows.get(row.id)
        if earlier is not None and (earlier.correct_answer or "") != row.answer:
            raise InvalidInput(
                f"row {printable(row.id)!r} was scored for the answer {earlier.correct_answer!r}, the sheet now has "
                f"{printable(row.answer)!r}; name another folder with --out"
            )
        return None if earlier is None else _cells(earlier)

    def ask(self, row: SheetRow, selection: VideoSelection, record: SelectionRow) -> dict[str, object]:
        """Ask about a row, record the answer or the error, and return the cells of the table."""
        question = Question(
            benchmark=self._sheet_name, id=row.id, query=row.question, options=row.options, video=row.video,
            answer=row.answer or None,
        )  # fmt: skip
        started = time.perf_counter()
        fields: dict[str, object]
        try:
            reply = selection.ask(self._model, prompt_of(row), max_tokens=self._max_tokens)
            tokens = {name: int(reply.usage[name]) for name in ("input", "output") if name in reply.usage}
            fields = {"answer": reply.text, "tokens": tokens, **_read(question, reply.text)}
        except RunError:
            raise
        except FocusEvalError as error:
            fields = {"answer": None, "parsed": None, "score": 0.0, "error": error_line(error)}
        answer = answer_row(
            question,
            self._names,
            model=self._model_name,
            frames_asked=record.k,
            selection=record,
            fed_frames=selection.keyframes,
            seconds={"answer": round(time.perf_counter() - started, 6)},
            **fields,
        )
        with self._lock:
            self._sheet_ids.add(row.id)
            self._writer.write(answer)
            if answer.error is None:
                self._rows[row.id] = answer
        return _cells(answer)

    def summary(self) -> list[str]:
        """Return the accuracy with its interval, and what it counts, as lines."""
        rows = [row for row_id, row in self._rows.items() if row_id in self._sheet_ids]
        scored = [row for row in rows if row.score is not None]
        if not scored:
            return [f"{len(rows)} answers, none scored: the sheet states no answer that can be"]
        estimate = mean_estimate([row.score or 0.0 for row in scored], [row.video for row in scored])
        interval = "" if estimate.low is None or estimate.high is None else (
            f" [{100 * estimate.low:.1f}, {100 * estimate.high:.1f}]"
        )  # fmt: skip
        n_unread = sum(row.is_unparsed for row in scored)
        notes = [f"{counted(estimate.questions, 'answer')} about {counted(estimate.videos, 'video')}"]
        notes += [f"{n_unread} without a readable answer, counted as wrong"] if n_unread else []
        notes += [f"{len(rows) - len(scored)} more that cannot be scored"] if len(rows) > len(scored) else []
        notes += ["no interval below 5 videos"] if not interval else []
        if n_others := len(self._rows) - len(rows):
            notes.append(f"left out {n_others} to rows that the sheet does not have, which report counts")
        return [f"accuracy {100 * estimate.value:.1f} %{interval}: {', '.join(notes)}"]


def prompt_of(row: SheetRow) -> str:
    """Return the question of a row, with its options by letter and how to answer."""
    if not row.options:
        return row.question
    options = [f"{chr(ord('A') + at)}. {option}" for at, option in enumerate(row.options)]
    return "\n".join([row.question, *options, LETTER_INSTRUCTION])


def _read(question: Question, text: str) -> Mapping[str, object]:
    """Parse the reply as a run would; an open answer in words has no score."""
    if not question.options:
        try:
            is_number = math.isfinite(float(question.answer or ""))
        except ValueError:
            is_number = False
        if not is_number:
            return {"parsed": None, "score": None}
    try:
        read = read_answer(question, text)
    except ModuleNotFoundError as error:
        raise MissingDependency(
            f"an answer that is a number, or that a model thinks about, is read by {error.name}, which is not "
            'installed: pip install ".[lmms]"'
        ) from error
    return {"parsed": read.parsed, "score": read.score, "is_cut": read.is_cut}


def _cells(row: AnswerRow) -> dict[str, object]:
    return {
        "answer": (row.answer or "").strip(),
        "read_as": row.parsed or "",
        "correct_answer": row.correct_answer or "",
        "score": "" if row.score is None or row.error else row.score,
        "error": row.error or "",
    }
