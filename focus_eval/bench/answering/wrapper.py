"""The parts of an lmms-eval wrapper that answering uses: its protocol, and the batches that it would form."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, ClassVar, Protocol

from focus_eval.bench.answering.frames import FrameBatch
from focus_eval.bench.answering.questions import FramedQuestion, MessagePart, TaskDocuments, TaskQuestion
from focus_eval.bench.answering.tracing import GenerateTrace
from focus_eval.bench.benchmarks.subtitles import SubtitleLayoutOption, SubtitleModeOption, SubtitleOptions

if TYPE_CHECKING:
    from lmms_eval.api.instance import GenerationOutput, Instance
    from typing_extensions import Self


class Wrapper(Protocol):
    """A loaded wrapper of lmms-eval behind the adapter; `lmms.adapter.FrameAdapter` describes each member."""

    model_id: ClassVar[str]
    is_simple: ClassVar[bool]
    takes_mixed_sizes: ClassVar[bool]
    prepares_ahead: ClassVar[bool]
    task_dict: TaskDocuments

    @property
    def batch_size(self) -> int | str: ...
    @property
    def frames_merged(self) -> int: ...
    @property
    def questions_at_once(self) -> int | None: ...
    def subtitle_options(self, mode: SubtitleModeOption, layout: SubtitleLayoutOption) -> SubtitleOptions: ...
    def ready(self, frame_batch: FrameBatch) -> FrameBatch: ...
    def visuals(self, frame_batch: FrameBatch) -> Sequence[object]: ...
    def video_parts(self, frame_batch: FrameBatch) -> list[MessagePart]: ...
    def trace_model(self, view: Self, batch: Sequence[FramedQuestion], trace: GenerateTrace) -> None: ...
    def wrapper_generate(self, requests: Sequence[Instance]) -> list[GenerationOutput]: ...
    def close(self) -> None: ...


def form_batches(model: Wrapper, queue: list[TaskQuestion]) -> list[list[TaskQuestion]]:
    """Return `queue` in batches with the order that the stock wrapper would use.

    Equal batches have equal padding, which makes answers comparable with a stock run. A batch size of 1
    needs no sorting and keeps the documents' order, in which neighbours often share a video. Only questions of one task
    and split go together: the wrappers look a whole batch up in the first question's task.
    """
    size = int(model.batch_size)
    if size == 1:
        return [[task_question] for task_question in queue]
    # Use lmms-eval's class: a copy of its rules could drift from them.
    from lmms_eval.utils import Collator

    by_task: dict[tuple[str, str], list[tuple[TaskQuestion]]] = {}
    for task_question in queue:
        by_task.setdefault((task_question.parts.task, task_question.parts.split), []).append((task_question,))
    batches: list[list[TaskQuestion]] = []
    for entries in by_task.values():
        collator = Collator(
            entries,
            lambda entry: sort_key(model, entry[0]),
            group_fn=lambda entry: entry[0].parts.generation,
            grouping=True,
        )
        batches += [[entry[0] for entry in batch] for batch in collator.get_batched(n=size, batch_fn=None)]
    return batches


def sort_key(model: Wrapper, task_question: TaskQuestion) -> object:
    """Return the stock wrapper's key for sorting `task_question`: by text, the longest first in simple wrappers."""
    context = task_question.parts.context
    if not model.is_simple:
        return context
    # The stock order is by length in the wrapper's own tokens; some wrappers have no `tok_encode`.
    encode = getattr(model, "tok_encode", None) or attrgetter("tokenizer.encode")(model)
    return (-len(encode(context)), context)
