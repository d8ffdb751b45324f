"""Groups questions into the batches that the stock wrapper would form."""

from __future__ import annotations

from typing import Any

from focus_eval.lmms.requests import PendingRequest


def batches_like_the_wrapper(model: Any, queue: list[PendingRequest]) -> list[list[PendingRequest]]:
    """Return `queue` in the batches, and the order, in which the stock wrapper would form them.

    Batches decide on padding, so equal batches are what makes answers comparable with a stock run. One question at
    a time needs no order, and keeps that of the documents: neighbours often share a video. Only questions of one
    task and split go together: the wrappers look a whole batch up in the first question's task.
    """
    size = int(model.batch_size)
    if size == 1:
        return [[pending] for pending in queue]
    # The wrappers' own class: rules written again here could drift from theirs.
    from lmms_eval.utils import Collator

    by_task: dict[tuple[str, str], list[tuple[PendingRequest]]] = {}
    for pending in queue:
        by_task.setdefault((pending.parts.task, pending.parts.split), []).append((pending,))
    batches: list[list[PendingRequest]] = []
    for entries in by_task.values():
        collator = Collator(
            entries,
            lambda entry: place_of(model, entry[0]),
            group_fn=lambda entry: entry[0].parts.generation,
            grouping=True,
        )
        batches += [[entry[0] for entry in batch] for batch in collator.get_batched(n=size, batch_fn=None)]
    return batches


def place_of(model: Any, pending: PendingRequest) -> Any:
    """Return the key by which the stock wrapper sorts `pending` among others: by text, the longest first in simple
    wrappers."""
    context = f"{pending.preface}\n{pending.parts.context}" if pending.preface else pending.parts.context
    if not model.is_simple:
        return context
    # The stock order is by length in the wrapper's own tokens; some wrappers have no `tok_encode`.
    encode = getattr(model, "tok_encode", None) or model.tokenizer.encode
    return (-len(encode(context)), context)
