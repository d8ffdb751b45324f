"""Turns what came of a request into a row; the classes below say where the rows go."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from focus_eval.benchmarks.declared import DeclaredBenchmark
from focus_eval.lmms.arguments import SeamOptions
from focus_eval.lmms.requests import PendingRequest, RequestParts
from focus_eval.lmms.tasks.parsing import ParsedAnswer, read_answer, read_option
from focus_eval.lmms.tasks.scoring import task_of, task_score
from focus_eval.rows.building import CellNames, answer_row
from focus_eval.rows.records import AnswerRow, SelectionRow
from focus_eval.samplers.randomness import derived_rng


class Recorder(ABC):
    """Takes the rows of one rank, and may know rows of an earlier start.

    Args:
        model: name in the rows.
        options: how answers are read.
        selection_id: of the wrapper's own sampling, where there are no selection rows.
        device: what the model runs on.
    """

    where: Path

    def __init__(self, *, model: str, options: SeamOptions, selection_id: str, device: str = "") -> None:
        self._model = model
        self._options = options
        self._selection_id = selection_id
        self._device = device

    @abstractmethod
    def names(self, parts: RequestParts) -> CellNames:
        """Return how the cell of a request is called."""

    @abstractmethod
    def write_answer(self, pending: PendingRequest, row: AnswerRow) -> None:
        """Write the row of an answered question, or of one that failed."""

    @abstractmethod
    def close(self) -> None:
        """Write through to the disk."""

    def earlier(self, pending: PendingRequest) -> AnswerRow | None:
        """Return the answer that an earlier start has written for this question; None where there is none."""
        return None

    def earlier_selection(self, pending: PendingRequest) -> SelectionRow | None:
        """Return the selection that an earlier start has written for this question; None where there is none."""
        return None

    def selection(self, pending: PendingRequest) -> None:
        """Write the selection of `pending`, where it is not written elsewhere."""
        return

    def answer(self, pending: PendingRequest, frames: int) -> AnswerRow:
        """Write what came of `pending`, and return the row."""
        row = self.answer_row(pending, frames)
        self.write_answer(pending, row)
        return row

    def answer_row(self, pending: PendingRequest, frames: int) -> AnswerRow:
        """Return the row of `pending`: a row with an error has no answer."""
        question, chosen = pending.question, pending.row
        text = None if pending.error is not None else answer_text(pending.output)
        reading = self._read(pending, text)
        # Without a selection only the model's inputs tell how many frames it was shown.
        own_sampling = {} if chosen else {"selection_id": self._selection_id, "frames_fed": pending.n_reached or 0}
        return answer_row(
            question,
            self.names(pending.parts),
            model=self._model,
            frames_asked=frames,
            selection=chosen,
            fed_frames=pending.fed_frames,
            **own_sampling,
            fallback=pending.fallback,
            answer=text,
            parsed=reading.parsed,
            score=reading.score,
            metric=reading.metric,
            seconds={stage: round(seconds, 6) for stage, seconds in pending.seconds.items()},
            tokens=pending.tokens,
            device=self._device,
            error=pending.error,
        )

    def _read(self, pending: PendingRequest, text: str | None) -> ParsedAnswer:
        if text is None:
            return ParsedAnswer(None, 0.0)
        question, parsing = pending.question, self._options.answer_parsing
        # Of a declared benchmark only questions with options can be read here; its task scores the others.
        is_ours = pending.benchmark is not None and not isinstance(pending.benchmark, DeclaredBenchmark)
        if is_ours or (question.options and parsing == "strict"):
            return read_answer(question, text, answer_parsing=parsing, seed=self._options.seed)
        return self._read_as_task(pending, text)

    def _read_as_task(self, pending: PendingRequest, text: str) -> ParsedAnswer:
        """Return what the task's own metric says: of a task no benchmark describes, an open question, or when asked."""
        question, task = pending.question, task_of(pending.request)
        parsed = read_option(text, question.options) if question.options else text
        if task is None:
            return ParsedAnswer(parsed, None)
        # From the question, so that a task's guess does not depend on what was answered before.
        seed = int(derived_rng(self._options.seed, question.benchmark, question.id, "guess").integers(2**32))
        scored = task_score(task, pending.document, text, seed=seed)
        return ParsedAnswer(parsed, scored.score, scored.metric)


def answer_text(output: Any) -> str:
    """Return the text of what a wrapper returned: a string, or lmms-eval's `GenerationResult`."""
    from lmms_eval.api.instance import unwrap_generation_output

    text, _ = unwrap_generation_output(output)
    return str(text)
