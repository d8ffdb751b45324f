"""Records of measured figures: CSV files whose rows are replaced by key."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from focus_eval.core.errors import InvalidInput
from focus_eval.core.files import replace_file

# A row of a CSV file, all of it text: figures are compared with a file's to the last digit.
Record = Mapping[str, str]


@dataclass(frozen=True)
class RecordFile:
    """A CSV file of measured figures.

    Args:
        keys: the columns that identify a record.
        order: sort key for the records of one benchmark and K.
    """

    name: str
    columns: tuple[str, ...]
    keys: tuple[str, ...]
    order: Callable[[Record], tuple[object, ...]]

    def read(self, folder: Path) -> list[Record]:
        """Return the records of the file in `folder`; [] if there is no file.

        Raises:
            InvalidInput: other columns.
        """
        path = folder / self.name
        if not path.exists():
            return []
        with open(path, newline="", encoding="utf-8") as file:
            head, *rows = list(csv.reader(file)) or [[]]
        if tuple(head) != self.columns or any(len(row) != len(head) for row in rows):
            raise InvalidInput(f"{path}: not a file of measured figures; its columns are {', '.join(head)}")
        return [dict(zip(self.columns, row, strict=True)) for row in rows]

    def update(self, folder: Path, records: Iterable[Record]) -> list[Record]:
        """Replace the records of the same keys by `records`, write the file and return all of it.

        Records are sorted by benchmark, number of frames and name, not by rank.
        """
        by_key = {tuple(item[key] for key in self.keys): item for item in (*self.read(folder), *records)}
        ordered = sorted(by_key.values(), key=self._place)
        (folder / self.name).parent.mkdir(parents=True, exist_ok=True)
        with replace_file(folder / self.name) as part, open(part, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, self.columns, lineterminator="\n")
            writer.writeheader()
            writer.writerows(ordered)
        return ordered

    def _place(self, record: Record) -> tuple[object, ...]:
        """Return the sort key of a record: benchmark, number of frames, then its own order."""
        return record["benchmark"], int(record["k"]), *self.order(record)
