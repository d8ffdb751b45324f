"""Keeps the leaderboard of published selections: its entries, the figures measured from their files, and its table."""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from focus_eval.benchmarks.evidence import RECALL_SECONDS, distances_text
from focus_eval.benchmarks.question import BUCKETS
from focus_eval.core.errors import InvalidInput
from focus_eval.core.resources import read_yaml
from focus_eval.report.recall import (
    EvidenceCase,
    Times,
    random_recall,
    recall_column,
    recall_table,
    uniform_times,
)
from focus_eval.report.table import Table, TableRow, Value
from focus_eval.rows.records import replace_file

_COLUMNS_OF = {f"{bucket}@{d:g}": (bucket, recall_column(d)) for bucket in (*BUCKETS, "all") for d in RECALL_SECONDS}
FIGURES = tuple(_COLUMNS_OF)
COLUMNS = ("name", "k", "questions", "mean_frames", *FIGURES)
_MARKS = ("<!-- leaderboard -->", "<!-- end of leaderboard -->")


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One published selection of LongVideoBench val.

    Args:
        name, k: how the row is called; unique together.
        format: of the file, as `load_selections` names it.
        file: its name in the reader's folder.
        sha256: of the file; "" where it is not known yet: the entry then has no figures.
        source, path, commit: repository, place in it and commit; "" where not recorded.
    """

    name: str
    k: int
    format: str
    file: str
    sha256: str = ""
    source: str = ""
    path: str = ""
    commit: str = ""

    def __post_init__(self) -> None:
        if not self.name or not self.file or self.k < 1:
            raise InvalidInput(f"a leaderboard entry needs a name, a file and K of at least 1, got {self}")

    @property
    def command(self) -> str:
        """The command that prints the row."""
        return (
            "focus-eval recall --annotations lvb_val.json --rates lvb_val_fps.csv "
            f"--selections {self.file} --format {self.format}"
        )


@dataclass(frozen=True, kw_only=True)
class Row:
    """The measured figures of one selection: evidence recall in [0, 1] by `FIGURES`."""

    name: str
    k: int
    questions: int
    mean_frames: float
    recall: Mapping[str, float]

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts of the row in the CSV file, by `COLUMNS`: recall to four decimals."""
        figures = (f"{self.recall[name]:.4f}" for name in FIGURES)
        return (self.name, str(self.k), str(self.questions), f"{self.mean_frames:.1f}", *figures)


def read_entry(path: Path) -> Entry:
    """Return the entry of a YAML file.

    Raises:
        InvalidInput: a file that cannot be read, or fields that are not an entry's.
    """
    try:
        return Entry(**read_yaml(path))
    except TypeError as error:
        raise InvalidInput(f"{path}: not a leaderboard entry ({error})") from error


def check_file(entry: Entry, path: Path) -> None:
    """Refuse a file that is not the one the entry was made from.

    Raises:
        InvalidInput: another hash, or an entry without one.
    """
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != entry.sha256:
        raise InvalidInput(f"{path}: sha256 is {found}, the entry {entry.name!r} (K = {entry.k}) has {entry.sha256!r}")


def measured_row(entry: Entry, times: Mapping[str, Times], cases: Sequence[EvidenceCase]) -> Row:
    """Return the evidence recall of the selection `times` (question id -> seconds)."""
    return _row(recall_table(cases, {entry.name: times}), entry.name, entry.k)


def baseline_rows(cases: Sequence[EvidenceCase], k: int) -> list[Row]:
    """Return the rows of uniform and of random frames (its exact expectation) at `k`."""
    uniform = recall_table(cases, {"uniform": uniform_times(cases, k=k)})
    return [_row(uniform, "uniform", k), _row(random_recall(cases, k=k), "random", k)]


def read_rows(path: Path) -> list[tuple[str, ...]]:
    """Return the rows of the CSV file as texts under `COLUMNS`; none where there is no file.

    Raises:
        InvalidInput: other columns.
    """
    if not path.exists():
        return []
    with open(path, newline="", encoding="utf-8") as file:
        head, *rows = list(csv.reader(file)) or [[]]
    if tuple(head) != COLUMNS:
        raise InvalidInput(
            f"{path}: not a leaderboard's figures within {distances_text()} s; its columns are {', '.join(head)}"
        )
    return [tuple(row) for row in rows]


def write_rows(path: Path, rows: Iterable[tuple[str, ...]]) -> None:
    """Write rows under `COLUMNS`: fewer frames first, in each K baselines first, then by recall on long videos."""
    at = COLUMNS.index(f"long@{RECALL_SECONDS[0]:g}")
    baselines = ("random", "uniform")
    ordered = sorted(
        rows,
        key=lambda row: (int(row[1]), row[0] not in baselines, row[0] if row[0] in baselines else "", -float(row[at])),
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    with replace_file(path) as part, open(part, "w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([COLUMNS, *ordered])


def replaced(rows: Sequence[tuple[str, ...]], new: Iterable[Row]) -> list[tuple[str, ...]]:
    """Return `rows` with `new` in place of those of the same name and K."""
    by_key = {row[:2]: row for row in rows}
    by_key.update({row.texts[:2]: row.texts for row in new})
    return list(by_key.values())


def leaderboard_table(rows: Sequence[tuple[str, ...]]) -> Table:
    """Return the table of the CSV file's rows."""
    figures = [name for name in FIGURES if not name.startswith("all")]
    lines = []
    for row in rows:
        values = dict(zip(COLUMNS, row, strict=True))
        texts = (values["mean_frames"], *(values[name] for name in figures))
        lines.append(
            TableRow((values["k"], values["name"]), tuple(Value(ours=float(text), text=text) for text in texts))
        )
    return Table(
        name="leaderboard",
        title="Evidence recall of published selections, LongVideoBench val",
        key_titles=("K", "Selection"),
        columns=("Frames", *(name.replace("@", " @") for name in figures)),
        rows=tuple(lines),
    )


def source_table(entries: Sequence[Entry]) -> Table:
    """Return the table of where each entry's file comes from and how its row is reproduced."""
    rows: list[TableRow] = []
    for entry in sorted(entries, key=lambda item: (item.k, item.name)):
        place = " ".join(part for part in (entry.source, entry.path) if part) or "not recorded"
        texts = (place, entry.commit or "not recorded", entry.sha256[:16] or "file not at hand", entry.command)
        rows.append(TableRow((str(entry.k), entry.name), texts))
    return Table(
        name="leaderboard_sources",
        title="Where the files come from",
        key_titles=("K", "Selection"),
        columns=("Source", "Commit", "sha256, first 16", "Command"),
        rows=tuple(rows),
    )


def update_page(page: Path, text: str) -> None:
    """Replace the text between the leaderboard's marks in `page`.

    Raises:
        InvalidInput: a page without the two marks.
    """
    old = page.read_text(encoding="utf-8")
    before, start, rest = old.partition(_MARKS[0])
    _, end, after = rest.partition(_MARKS[1])
    if not start or not end:
        raise InvalidInput(f"{page}: lacks the lines {_MARKS[0]} and {_MARKS[1]} to put the table between")
    with replace_file(page) as part:
        part.write_text(f"{before}{start}\n{text.strip()}\n{end}{after}", encoding="utf-8")


def _row(frame: Any, name: str, k: int) -> Row:
    by_bucket = frame.set_index("bucket")
    recall = {name: float(by_bucket.loc[place]) for name, place in _COLUMNS_OF.items()}
    every = by_bucket.loc["all"]
    return Row(
        name=name, k=k, questions=int(every["questions"]), mean_frames=float(every["mean_frames"]), recall=recall
    )
