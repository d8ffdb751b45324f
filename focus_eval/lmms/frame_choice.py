"""Chooses the frames of lmms-eval's requests, those of one video together."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tqdm import tqdm

from focus_eval.errors import AnswerError, FocusEvalError, InvalidInput, RunError
from focus_eval.lmms.requests import PendingRequest
from focus_eval.lmms.run_context import RunContext
from focus_eval.lmms.shown_model import ShownModel
from focus_eval.lmms.sources import FrameSource, NeedsQuestions
from focus_eval.pipeline.frame_server import SharedBatcher
from focus_eval.pipeline.selector import Selector
from focus_eval.pipeline.timing import charged_rows
from focus_eval.rows.records import SelectionRow
from focus_eval.video import open_video


class FrameChooser:
    """Gives every request its selection; each question's failure is its own."""

    def __init__(self, model: ShownModel, context: RunContext, *, quiet: bool) -> None:
        self._model = model
        self._context = context
        self._quiet = quiet

    def choose(self, queue: list[PendingRequest]) -> None:
        """Choose frames for every document of `queue` once, and put the row, or the error, into each request."""
        self._prepare_source(queue)
        self._select(queue)

    def _prepare_source(self, queue: list[PendingRequest]) -> None:
        source = self._context.source
        if not isinstance(source, NeedsQuestions):
            return
        groups: dict[tuple[str, str], list[PendingRequest]] = {}
        for pending in queue:
            # A task without a benchmark has no known order of questions to hold a file against.
            if pending.benchmark is not None:
                groups.setdefault((pending.parts.task, pending.parts.split), []).append(pending)
        for (task, split), group in groups.items():
            question_of, name = group[0].benchmark.question, group[0].benchmark.name
            # All of the split, also under --limit: some published files go by position.
            questions = [question_of(document) for document in self._model.task_dict[task][split]]
            source.prepare(name, questions, asked={pending.question.id for pending in group})

    def _select(self, queue: list[PendingRequest]) -> None:
        source = self._context.source
        if source is None:
            return
        # One selection per document: two requests about it (a repeat) must be shown the same frames.
        first_of: dict[tuple[str, str, int], PendingRequest] = {}
        by_video: dict[Path | None, list[PendingRequest]] = {}
        for pending in queue:
            if first_of.setdefault(pending.parts.key, pending) is not pending:
                continue
            pending.row = None if pending.error is not None else self._context.recorder.earlier_selection(pending)
            if pending.row is None:
                by_video.setdefault(pending.path, []).append(pending)
        with tqdm(total=sum(map(len, by_video.values())), desc="Choosing frames", disable=self._quiet) as progress:
            for path, group in by_video.items():
                self._select_together(source, path, group)
                for pending in group:
                    # Video by video: a killed run keeps the choices that are paid for.
                    if not pending.is_padding:
                        self._context.recorder.selection(pending)
                progress.update(len(group))
        for pending in queue:  # asked again: a repeat, or a copy that keeps ranks in step
            first = first_of[pending.parts.key]
            pending.row, pending.error = first.row, pending.error or first.error

    def _select_together(self, source: FrameSource, path: Path | None, group: list[PendingRequest]) -> None:
        """Choose the frames of one video's questions; a sampler that pulls decodes and embeds each frame once."""
        # Only a sampler that pulls gains from being served together; a replayed selection has nothing to embed.
        if not isinstance(source, Selector) or path is None or len(group) == 1:
            for pending in group:
                self._select_one(pending, source.select)
            return
        # What the threads measure overlaps; charged is the wall clock of all together.
        started = time.perf_counter()
        try:
            reader = open_video(path, backend=self._context.options.backend)
        except FocusEvalError:
            for pending in group:  # each fails on its own, with its own row
                self._select_one(pending, source.select)
            return
        with reader:
            batcher = SharedBatcher(reader)
            select = partial(source.select, batcher=batcher)
            batcher.run([partial(self._select_one, pending, select) for pending in group])
        with_rows = [(pending, pending.row) for pending in group if pending.row is not None]
        charged = charged_rows([row for _, row in with_rows], time.perf_counter() - started)
        for (pending, _), row in zip(with_rows, charged, strict=True):
            pending.row = row

    def _select_one(self, pending: PendingRequest, select: Callable[..., SelectionRow]) -> None:
        source = self._context.source
        try:
            if pending.error is not None or pending.path is None:
                raise AnswerError(pending.error or "the document has no video")
            pending.row = select(pending.question, pending.path, bucket_of=pending.bucket_of)
            # Now, not when the model refuses: decoding and batching would be in vain.
            self._check_limit(pending)
        except RunError:
            raise
        except Exception as error:  # noqa: BLE001 (recorded: one question never ends a run)
            pending.fail(error)
            if pending.row is None and source is not None:
                pending.row = source.error_row(pending.question, error, bucket_of=pending.bucket_of)

    def _check_limit(self, pending: PendingRequest) -> None:
        row, model, most = pending.row, self._model.model_id, self._context.frames
        if row is None or not (row.keyframes or row.role == "floor" or self._context.options.frame_policy == "aks"):
            raise InvalidInput("no frame chosen")
        if row.scales is not None and not self._model.takes_mixed_sizes:
            raise InvalidInput(f"sampler {row.sampler!r} chose frames of several sizes; {model} can show one size only")
        if row.scales is None and len(row.keyframes) > most:
            raise InvalidInput(f"{len(row.keyframes)} frames chosen, {model} is set to show at most {most}")
