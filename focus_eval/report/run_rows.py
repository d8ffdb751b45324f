"""Reads the rows of all parts of a run."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from focus_eval.rows.records import RowT
from focus_eval.rows.stored import Key, StoredRows


class RunRows(Collection[RowT]):
    """The rows of all parts of a run that were asked for, read as they are iterated over.

    Args:
        parts: folders of rows.
        asked: ids of the questions by benchmark; all of a benchmark that is not named.
    """

    def __init__(self, parts: Sequence[Path], kind: type[RowT], asked: Mapping[str, set[str]]) -> None:
        self._parts = [StoredRows(part, kind) for part in parts]
        self._asked = asked

    def __iter__(self) -> Iterator[RowT]:
        return (row for part in self._parts for row in part if self._is_asked(row.key))

    def without(self, *names: str) -> Iterator[RowT]:
        """Yield the rows without these fields (see `StoredRows.without`)."""
        return (row for part in self._parts for row in part.without(*names) if self._is_asked(row.key))

    def __len__(self) -> int:
        return sum(self._is_asked(key) for part in self._parts for key, _ in part.states())

    def __bool__(self) -> bool:
        return any(self._is_asked(key) for part in self._parts for key, _ in part.states())

    def __contains__(self, row: object) -> bool:
        return any(stored == row for stored in self)

    def in_order(self, keys: Sequence[Key]) -> list[Iterator[RowT]]:
        """Return the rows of each part whose keys are among `keys`, in their order."""
        place = {key: number for number, key in enumerate(keys)}
        found = []
        for part in self._parts:
            mine = sorted((key for key, _ in part.states() if key in place), key=lambda key: place[key])
            if mine:
                found.append(part.in_order(mine))
        return found

    def _is_asked(self, key: Key) -> bool:
        """Return False for a row of a question that only another run beside this one has asked."""
        return key[0] not in self._asked or key[1] in self._asked[key[0]]
