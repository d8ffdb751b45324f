"""Choosers of frames for the questions about an open video.

Frames are chosen by a sampler (`SamplerChooser`), or come from rows made before (`GivenRows`, and the rows or files
that `replay` reads). Without a chooser (None), the wrapper samples frames itself.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from loguru import logger

from focus_eval.bench.answering.questions import SplitDocuments, TaskQuestion
from focus_eval.core.errors import SelectionMismatch
from focus_eval.keyframes.pipeline.relevance import OnPulls
from focus_eval.keyframes.pipeline.selector import Outcome, QuestionRequest, Selector, choose_on_video
from focus_eval.keyframes.pipeline.timing import charged_rows
from focus_eval.keyframes.rows.records import SelectionRow, error_line

if TYPE_CHECKING:
    from focus_eval.keyframes.video.reader import VideoReader


@dataclass(frozen=True, kw_only=True)
class FrameChoice:
    """The selection of one question, or why there is none.

    Args:
        row: the selection, or the row that records its error; None if there is no row at all.
        error: None if the frames of `row` can be shown.
        infeasible_reason: why the sampler can choose no frame of such a video; "" if it can.
    """

    row: SelectionRow | None
    error: str | None = None
    infeasible_reason: str = ""


class Chooser(Protocol):
    """Chooses the frames of questions; a question that fails does not affect the others.

    `identity` holds everything that can change a selection, as JSON values; `selection_id` is a hash over it.
    """

    @property
    def selection_id(self) -> str: ...
    @property
    def identity(self) -> Mapping[str, object]: ...
    @property
    def needs_gpu(self) -> bool: ...
    def begin(self, questions: Sequence[TaskQuestion], documents: Mapping[str, Mapping[str, SplitDocuments]]) -> None:
        """Prepare for all questions, before the first choice; `documents` are by task and split.

        Raises:
            FocusEvalError: the questions are not those that the chooser can choose for.
        """
        ...

    def choose(
        self, reader: VideoReader, questions: Sequence[TaskQuestion], *, on_pulls: OnPulls | None = None
    ) -> list[FrameChoice]:
        """Return the choice of each question about the open video.

        Args:
            on_pulls: is called with numbers of scored frames; the choosing ends with what it raises.
        """
        ...

    def failed(self, task_question: TaskQuestion, error: Exception) -> FrameChoice:
        """Return the choice of a question whose video or document cannot be read."""
        ...


class SamplerChooser:
    """Chooses with a sampler; questions of one video share its decoded and embedded frames."""

    def __init__(self, selector: Selector) -> None:
        self.selector = selector
        self.identity: Mapping[str, object] = selector.identity
        self.selection_id = selector.selection_id
        self._has_warned = False

    @property
    def needs_gpu(self) -> bool:
        """True if an encoder computes on a GPU."""
        encoders = (self.selector.encoder, self.selector.scan_encoder)
        return any(str(encoder.device).startswith("cuda") for encoder in encoders if encoder is not None)

    def begin(self, questions: Sequence[TaskQuestion], documents: Mapping[str, Mapping[str, SplitDocuments]]) -> None:
        """As in `Chooser`; does nothing."""

    def choose(
        self, reader: VideoReader, questions: Sequence[TaskQuestion], *, on_pulls: OnPulls | None = None
    ) -> list[FrameChoice]:
        """Run the sampler on each question; the wall-clock time of several questions is divided among their rows."""
        started = time.perf_counter()
        requests = [
            QuestionRequest(selector=self.selector, question=item.question, bucket_of=item.bucket_of)
            for item in questions
        ]
        outcomes = choose_on_video(reader, requests, on_pulls=on_pulls)
        rows = [request.row_of(outcome) for request, outcome in zip(requests, outcomes, strict=True)]
        if len(rows) > 1:
            # The threads' own times overlap, so the wall-clock time of all questions together is charged.
            rows = charged_rows(rows, time.perf_counter() - started)
        return [self._choice(row, outcome) for row, outcome in zip(rows, outcomes, strict=True)]

    def failed(self, task_question: TaskQuestion, error: Exception) -> FrameChoice:
        """As in `Chooser`."""
        row = self.selector.error_row(task_question.question, error, bucket_of=task_question.bucket_of)
        return FrameChoice(row=row, error=error_line(error))

    def _choice(self, row: SelectionRow, outcome: Outcome) -> FrameChoice:
        """The choice; warn once if the sampler can choose no frame of such a video."""
        if outcome.error is not None:
            return FrameChoice(row=row, error=error_line(outcome.error))
        if row.keyframes or row.info is None:
            return FrameChoice(row=row)
        reason = self.selector.sampler.infeasible_reason(row.info, k=self.selector.k) or ""
        if reason and not self._has_warned:
            self._has_warned = True
            logger.warning(f"questions may end without frames, and so as errors; {row.video}: {reason}")
        return FrameChoice(row=row, infeasible_reason=reason)


class GivenRows:
    """Chooses the frames that rows made before record.

    Args:
        rows: by question id.
    """

    needs_gpu = False
    identity: Mapping[str, object] = {}

    def __init__(self, rows: Mapping[str, SelectionRow]) -> None:
        self._rows = rows
        self.selection_id = next(iter(rows.values())).selection_id if rows else ""

    def begin(self, questions: Sequence[TaskQuestion], documents: Mapping[str, Mapping[str, SplitDocuments]]) -> None:
        """As in `Chooser`; does nothing."""

    def choose(
        self, reader: VideoReader, questions: Sequence[TaskQuestion], *, on_pulls: OnPulls | None = None
    ) -> list[FrameChoice]:
        """Return the rows of the questions."""
        return [self._choice(item) for item in questions]

    def failed(self, task_question: TaskQuestion, error: Exception) -> FrameChoice:
        """As in `Chooser`; a question whose document cannot be read has no row."""
        if task_question.error is not None:
            return FrameChoice(row=None, error=task_question.error)
        choice = self._choice(task_question)
        return choice if choice.error is not None else replace(choice, error=error_line(error))

    def _choice(self, task_question: TaskQuestion) -> FrameChoice:
        question = task_question.question
        row = self._rows.get(question.id)
        error = None
        if row is None:
            error = f"{question.benchmark} {question.id}: no selection among {len(self._rows)} rows"
        elif row.error is not None:
            error = f"no selection: {row.error}"
        return FrameChoice(row=row, error=None if error is None else error_line(SelectionMismatch(error)))
