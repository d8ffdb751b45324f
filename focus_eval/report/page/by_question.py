"""Reads the rows of a run question by question, whichever files they are in."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import groupby

from focus_eval.report.run import Run
from focus_eval.report.run_rows import RunRows
from focus_eval.rows.records import AnswerRow, RowT, SelectionRow
from focus_eval.rows.stored import Key

Question = tuple[str, str]
Ids = Mapping[Question, Sequence[tuple[str, str]]]


def rows_by_question(
    run: Run, ids_of: Ids
) -> Iterator[tuple[Question, list[SelectionRow | None], list[AnswerRow | None]]]:
    """Yield each question with its selections and answers, in the order of `ids_of`.

    All parts of a run list their questions in about the same order, so only a few rows of each are held.

    Args:
        ids_of: (benchmark, question id) -> selection and cell ids of the rows that are asked for; None for those that
            are not there.
    """
    selections = _in_order(run.selections, [(*key, own) for key, ids in ids_of.items() for own, _ in ids])
    answers = _in_order(run.answers, [(*key, own) for key, ids in ids_of.items() for _, own in ids])
    chosen, answered = next(selections, None), next(answers, None)
    for key, ids in ids_of.items():
        rows: dict[Key, SelectionRow] = {}
        if chosen is not None and chosen[0] == key:
            rows, chosen = chosen[1], next(selections, None)
        replies: dict[Key, AnswerRow] = {}
        if answered is not None and answered[0] == key:
            replies, answered = answered[1], next(answers, None)
        yield key, [rows.get((*key, own)) for own, _ in ids], [replies.get((*key, own)) for _, own in ids]


def _in_order(rows: Collection[RowT], keys: Sequence[Key]) -> Iterator[tuple[Question, dict[Key, RowT]]]:
    """Yield the rows of `keys` by question; several keys of a question stand together."""
    place = {key: number for number, key in enumerate(keys)}
    if isinstance(rows, RunRows):
        parts = rows.in_order(list(place))
    else:
        by_key = {row.key: row for row in rows}
        parts = [iter([by_key[key] for key in place if key in by_key])]
    merged = heapq.merge(*parts, key=lambda row: place[row.key])
    for question, group in groupby(merged, key=lambda row: row.key[:2]):
        yield question, {row.key: row for row in group}
