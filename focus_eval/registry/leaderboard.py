"""The registry's CSV files of published selections, and the tables of `docs/leaderboard.md` made from them."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from focus_eval.benchmarks.question import BUCKETS
from focus_eval.core.errors import InvalidInput
from focus_eval.registry.cards import PublishedFile
from focus_eval.registry.replayed import BASELINES, LONG_SECONDS, MEASURES
from focus_eval.report.table import Table, TableRow, Value, to_markdown
from focus_eval.rows.records import replace_file, write_text

# A row of a CSV file, all of it text: figures are compared with a file's to the last digit.
Record = Mapping[str, str]
_MARKS = ("<!-- leaderboard -->", "<!-- end of leaderboard -->")


@dataclass(frozen=True)
class RecordFile:
    """A CSV file of the registry.

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
            raise InvalidInput(f"{path}: not a file of the registry's figures; its columns are {', '.join(head)}")
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


RECALLS = RecordFile(
    "by_length.csv",
    ("benchmark", "name", "k", "bucket", "questions", "frames", *MEASURES),
    ("benchmark", "name", "k", "bucket"),
    order=lambda record: (record["name"] not in BASELINES, record["name"]),
)
DIFFERENCES = RecordFile(
    "differences.csv",
    ("benchmark", "k", "name", "less", "questions", "measure", "value", "low", "high", "p", "p_holm"),
    ("benchmark", "k", "name", "less", "measure"),
    order=lambda record: (record["name"],),
)


def update_page(page: Path, folder: Path, files: Sequence[tuple[str, PublishedFile]]) -> None:
    """Replace the text between the leaderboard's marks in `page` by the tables of the CSV files in `folder`.

    Raises:
        InvalidInput: a page without the two marks.
    """
    head, start, old_text = page.read_text(encoding="utf-8").partition(_MARKS[0])
    _, end, foot = old_text.partition(_MARKS[1])
    if not start or not end:
        raise InvalidInput(f"{page}: lacks the lines {_MARKS[0]} and {_MARKS[1]} to put the table between")
    text = page_text(RECALLS.read(folder), DIFFERENCES.read(folder), files)
    write_text(page, f"{head}{start}\n{text.strip()}\n{end}{foot}")


def page_text(
    recalls: Sequence[Record], differences: Sequence[Record], files: Sequence[tuple[str, PublishedFile]]
) -> str:
    """Return the tables as Markdown, without short videos, random frames and the variants among `files`."""
    variants = {(item.benchmark, str(item.k), name) for name, item in files if item.variant}
    recalls = [
        row
        for row in recalls
        if row["bucket"] != BUCKETS[0]
        and row["name"] != "random"
        and (row["benchmark"], row["k"], row["name"]) not in variants
    ]
    differences = [row for row in differences if (row["benchmark"], row["k"], row["name"]) not in variants]
    settings = {
        (item.benchmark, str(item.k), name): f"{name}, {item.settings}" for name, item in files if item.settings
    }
    recalls, differences = ([_with_settings(row, settings) for row in rows] for rows in (recalls, differences))
    tables = [recall_table(rows) for rows in _by_benchmark(recalls)]
    tables += [_difference_table(rows) for rows in _by_benchmark(differences)]
    return "\n".join(to_markdown(table) for table in tables).replace("### ", "## ")


def _with_settings(row: Record, settings: Mapping[tuple[str, str, str], str]) -> Record:
    """Return `row` with the settings of the selections that it names."""
    names = {side: row[side] for side in ("name", "less") if side in row}
    return {**row, **{side: settings.get((row["benchmark"], row["k"], name), name) for side, name in names.items()}}


def _by_benchmark(rows: Sequence[Record]) -> list[list[Record]]:
    """Return the rows in one list per benchmark."""
    return [
        [row for row in rows if row["benchmark"] == name] for name in dict.fromkeys(row["benchmark"] for row in rows)
    ]


def recall_table(rows: Sequence[Record]) -> Table:
    """Return the table of one benchmark, with the best selection at each tolerance."""
    buckets = list(dict.fromkeys(row["bucket"] for row in rows))
    measures = [measure for measure in MEASURES if any(row[measure] for row in rows)]
    row_by_line: dict[tuple[str, str], dict[str, Record]] = {}
    for row in rows:
        row_by_line.setdefault((row["k"], row["name"]), {})[row["bucket"]] = row
    lines = []
    for keys, row_by_bucket in row_by_line.items():
        percents = [_percent(row_by_bucket.get(bucket), measure) for bucket in buckets for measure in measures]
        lines.append(TableRow(keys, (_mean_frames(list(row_by_bucket.values())), *percents)))
    return Table(
        name=f"leaderboard_{rows[0]['benchmark']}",
        title=f"Evidence in view of published selections (%), {rows[0]['benchmark']}",
        key_titles=("K", "Selection"),
        columns=("Frames", *(f"{bucket}, {measure}" for bucket in buckets for measure in measures)),
        rows=tuple(lines),
        notes=tuple(_leaders(rows, buckets, measures)),
    )


def _percent(row: Record | None, measure: str) -> str:
    """Return a share as percent with one decimal; "" without a value."""
    return f"{100 * float(row[measure]):.1f}" if row and row[measure] else ""


def _mean_frames(rows: Sequence[Record]) -> str:
    """Return the mean number of frames over all questions: of bucket "all", else weighted over the buckets."""
    rows = [row for row in rows if row["bucket"] == "all"] or rows
    frames = sum(float(row["frames"]) * int(row["questions"]) for row in rows)
    return f"{frames / sum(int(row['questions']) for row in rows):.1f}"


def _leaders(rows: Sequence[Record], buckets: Sequence[str], measures: Sequence[str]) -> Iterable[str]:
    """Yield a sentence on the best selection at each K and bucket, by measure if they differ; none for single ones."""
    for k in dict.fromkeys(row["k"] for row in rows):
        for bucket in buckets:
            part = [row for row in rows if (row["k"], row["bucket"]) == (k, bucket) and row["name"] not in BASELINES]
            if len(part) < 2:
                continue
            measures_by_leader: dict[str, list[str]] = {}
            for measure in (name for name in measures if part[0][name]):
                best = max(float(row[measure]) for row in part)
                leader = ", ".join(row["name"] for row in part if float(row[measure]) == best)
                measures_by_leader.setdefault(leader, []).append(measure)
            first, *runners_up = measures_by_leader
            if not runners_up:
                yield f"K = {k}, {bucket}: {first} is first at every tolerance and in nearness."
            else:
                leaders = "; ".join(f"{name} ({', '.join(names)})" for name, names in measures_by_leader.items())
                yield f"K = {k}, {bucket}: first by tolerance: {leaders}."


def _difference_table(rows: Sequence[Record]) -> Table:
    """Return the table of paired differences of one benchmark, in points, with intervals and adjusted p."""
    measures = list(dict.fromkeys(row["measure"] for row in rows))
    lines: dict[tuple[str, str], dict[str, Value]] = {}
    for row in rows:
        value, low, high = (100 * float(row[name]) if row[name] else None for name in ("value", "low", "high"))
        line = lines.setdefault((row["k"], f"{row['name']} less {row['less']}"), {})
        line[row["measure"]] = Value(
            ours=value, low=low, high=high, is_difference=True, p_adjusted=float(row["p_holm"])
        )
    return Table(
        name=f"leaderboard_differences_{rows[0]['benchmark']}",
        title=f"Paired differences (points), {rows[0]['benchmark']}, videos of {LONG_SECONDS:g} s and more",
        key_titles=("K", "Selections"),
        columns=tuple(measures),
        rows=tuple(TableRow(keys, tuple(line.get(name, Value()) for name in measures)) for keys, line in lines.items()),
    )
