"""Reads the rows of one part of a run from disk, a few at a time."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator
from copy import copy
from dataclasses import fields
from functools import cached_property
from pathlib import Path

from focus_eval.errors import InvalidInput
from focus_eval.rows.parquet import RowsByKey, parquet_columns, parquet_records
from focus_eval.rows.records import RowT, read_rows

Key = tuple[str, str, str]
KEY_COLUMNS = ("benchmark", "question_id", "selection_id", "cell_id")
_PARQUET = ("rows.parquet", "costs.parquet")


class StoredRows(Collection[RowT]):
    """The rows of one part: its Parquet files where it is done, and its JSON lines; each key once.

    Of several rows of one key the first without an error counts: a question that failed was asked again. Rows are
    read again at every iteration, so memory does not grow with their number; of JSON lines the keys are held.

    Args:
        folder: of the part.
        kind: `SelectionRow` or `AnswerRow`.

    Raises:
        InvalidInput: on iteration, a file that is damaged, holds other rows, or was changed by a run meanwhile.
    """

    def __init__(self, folder: Path, kind: type[RowT]) -> None:
        self._folder = folder
        self._kind = kind
        self._left_out: tuple[str, ...] = ()
        self._parquet = [folder / name for name in _PARQUET] if (folder / _PARQUET[0]).exists() else []
        self._lines = sorted(folder.glob("*.jsonl"))
        self._inodes = self._inodes_now()

    def __iter__(self) -> Iterator[RowT]:
        if not self._lines:
            yield from self._parquet_rows()
            return
        for source in range(len(self._lines) + 1):
            yield from self._counting_rows(source)

    def without(self, *names: str) -> Iterator[RowT]:
        """Yield the rows with these fields at their defaults where they lie in Parquet, which is then not decoded."""
        slim = copy(self)
        slim._left_out = names
        yield from slim

    def __len__(self) -> int:
        return len(self._counting) if self._lines else sum(1 for _ in self.states())

    def __contains__(self, row: object) -> bool:
        return any(stored == row for stored in self)

    def states(self) -> Iterator[tuple[Key, str | None]]:
        """Yield the key and the error (None: it went well) of every row; of Parquet rows nothing else is read."""
        if self._lines:
            yield from ((key, error) for key, (_, _, error) in self._counting.items())
        else:
            yield from self._parquet_states()

    def in_order(self, keys: Iterable[Key]) -> Iterator[RowT]:
        """Yield the rows of `keys` in that order.

        Rows that lie before those asked for are held until it is their turn: few where the order is about that of the
        files.

        Raises:
            KeyError: a key without a row.
        """
        sources = range(len(self._lines) + 1)
        rows = {source: RowsByKey(self._counting_rows(source), key=lambda row: row.key) for source in sources}
        for key in keys:
            row = rows[self._counting[key][0] if self._lines else 0].take(key)
            if row is None:
                raise KeyError(key)
            yield row

    @cached_property
    def _counting(self) -> dict[Key, tuple[int, int, str | None]]:
        """File, number in it and error of the row that counts, by key."""
        found: dict[Key, tuple[int, int, str | None]] = {}
        finished = ((0, number, key, error) for number, (key, error) in enumerate(self._parquet_states()))
        lines = (
            (source, number, row.key, row.error)
            for source, path in enumerate(self._lines, start=1)
            for number, row in enumerate(self._rows_of(path))
        )
        for part in (finished, lines):
            for source, number, key, error in part:
                if key not in found or (found[key][2] is not None and error is None):
                    found[key] = (source, number, error)
        return found

    def _counting_rows(self, source: int) -> Iterator[RowT]:
        """Yield the rows of one file that count: of Parquet (0), or of the n-th file of JSON lines."""
        rows = self._parquet_rows() if source == 0 else self._rows_of(self._lines[source - 1])
        for number, row in enumerate(rows):
            if not self._lines or self._counting.get(row.key, (-1, -1, None))[:2] == (source, number):
                yield row

    def _rows_of(self, path: Path) -> Iterator[RowT]:
        self._check_unchanged()
        yield from read_rows(path, self._kind)

    def _parquet_states(self) -> Iterator[tuple[Key, str | None]]:
        if not self._parquet:
            return
        self._check_unchanged()
        self._checked_keys()
        last = "cell_id" if "cell_id" in {declared.name for declared in fields(self._kind)} else "selection_id"
        for row in parquet_records(self._parquet[0], columns=["benchmark", "question_id", last, "error"]):
            yield (row["benchmark"], row["question_id"], row[last]), row["error"]

    def _parquet_rows(self) -> Iterator[RowT]:
        if not self._parquet:
            return
        self._check_unchanged()
        keys = self._checked_keys()
        rows, costs = self._parquet
        cost_of = RowsByKey(parquet_records(costs), key=lambda cost: tuple(cost[name] for name in keys))
        columns = [name for name in parquet_columns(rows) if name not in self._left_out]
        for row in parquet_records(rows, columns=columns if self._left_out else None):
            # A run killed while a part grew leaves costs of rows that are still lines.
            cost = cost_of.take(tuple(row[name] for name in keys))
            if cost is None:
                raise InvalidInput(
                    f"{self._folder}: costs.parquet lacks {row['question_id']!r}; delete the folder to redo it"
                )
            yield self._kind(**{**cost, **row})

    def _checked_keys(self) -> list[str]:
        """Return the columns that rows and costs have in common, where both files hold rows of this kind."""
        rows, costs = (parquet_columns(path) for path in self._parquet)
        unknown = {*rows, *costs} - {declared.name for declared in fields(self._kind)}
        if unknown:
            raise InvalidInput(
                f"{self._folder}: written by another version of focus-eval, with columns this one does not know: "
                f"{', '.join(sorted(unknown))}"
            )
        return [name for name in KEY_COLUMNS if name in costs]

    def _check_unchanged(self) -> None:
        now = self._inodes_now()
        if now is None or now != self._inodes:
            raise InvalidInput(f"{self._folder}: changed while it was read: a run is writing here; read it again")

    def _inodes_now(self) -> list[int] | None:
        try:
            return [os.stat(path).st_ino for path in (*self._parquet, *self._lines)]
        except FileNotFoundError:
            return None
