"""Reads a run's rows, and finds those of one line of a table, by other code than the report's."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Row = Mapping[str, Any]
Pair = tuple[Row | None, Row]
# A published option and ours that mean the same.
SAME_OPTION = {"alpha": ("alpha", "zoom_ratio"), "Clip (s)": ("clip_seconds", "coarse_every_sec")}


@dataclass(frozen=True)
class Rows:
    """A run's rows: selections by (benchmark, question, selection), answers with their selection."""

    selections: Mapping[tuple[str, str, str], Row]
    answers: Sequence[tuple[Row, Row]]


def read_run(folder: Path) -> Rows:
    """Return the rows of a run: of the questions that it asked, where its parts hold those of other runs too."""
    run = folder / "run.json"
    ids_by_benchmark = json.loads(run.read_text(encoding="utf-8")).get("asked", {}) if run.exists() else {}

    def rows_of(kind: str) -> list[dict[str, Any]]:
        return [
            row
            for row in _read(folder / kind)
            if row["question_id"] in ids_by_benchmark.get(row["benchmark"], [row["question_id"]])
        ]

    selections = {
        (item["benchmark"], item["question_id"], item["selection_id"]): item for item in rows_of("selections")
    }
    answers = [
        (item, selections[item["benchmark"], item["question_id"], item["selection_id"]]) for item in rows_of("answers")
    ]
    return Rows(selections, answers)


def _read(folder: Path) -> list[dict[str, Any]]:
    """Return the rows of all parts below `folder`: Parquet files joined with their costs, and JSON lines."""
    import pyarrow.parquet

    row_by_key: dict[tuple[str, ...], dict[str, Any]] = {}
    for part in sorted(path for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []:
        rows: list[dict[str, Any]] = []
        if (part / "rows.parquet").exists():
            rows = pyarrow.parquet.ParquetFile(part / "rows.parquet").read().to_pylist()
            costs = pyarrow.parquet.ParquetFile(part / "costs.parquet").read().to_pylist()
            by_question = {cost["question_id"]: cost for cost in costs}
            rows = [{**row, **by_question[row["question_id"]]} for row in rows]
        for path in sorted(part.glob("*.jsonl")):
            rows += [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        for row in rows:
            for name in ("options", "facts", "clips", "seconds", "tokens", "gmacs", "encoded", "text_pulls", "asked"):
                if isinstance(row.get(name), str):
                    row[name] = json.loads(row[name])
            key = (part.name, row["benchmark"], row["question_id"], str(row.get("cell_id")), row["selection_id"])
            row_by_key.setdefault(key, row)
    return list(row_by_key.values())


def pairs_of(rows: Rows) -> list[tuple[Row | None, Row]]:
    """Return (answer, selection) pairs; selections alone where no model answered."""
    return [*rows.answers] if rows.answers else [(None, selection) for selection in rows.selections.values()]


def belongs(pair: tuple[Row | None, Row], line: Mapping[str, str]) -> bool:
    """Return True if an answer and its selection, or a selection alone, belong to this line of a table."""
    answer, selection = pair
    checks: dict[str, Callable[[str], bool]] = {
        "Benchmark": lambda text: text == selection["benchmark"],
        "Model": lambda text: answer is None or text == answer["model"],
        "K": lambda text: int(text) == selection["k"],
        "Encoder": lambda text: text in (selection["encoder"], "none" if not selection["encoder"] else ""),
        "Sampler": lambda text: _is_series(text, selection),
    }
    for title, names in SAME_OPTION.items():
        checks[title] = lambda text, names=names: _has_option(selection, names, text)  # type: ignore[misc]
    return all(checks[title](text) for title, text in line.items() if title in checks)


def _has_option(selection: Row, names: Sequence[str], text: str) -> bool:
    values = [selection["options"][name] for name in names if name in selection["options"]]
    return (not values and text == "") or any(text == f"{float(value):g}" for value in values)


def _is_series(text: str, selection: Row) -> bool:
    """Return whether "focus alpha=0.1 (clip) #ab12" names the selection: sampler, options, encoder, start of its id."""
    # The form of a query is free text with blanks of its own, so it is taken out whole before the rest is split.
    query = selection["options"].get("query")
    if (query is not None) != (" query=" in text) or (query is not None and f" query={query}" not in text):
        return False
    parts = text.replace(f" query={query}", "").split(" ")
    if parts[0] != selection["sampler"]:
        return False
    for part in parts[1:]:
        if part.startswith("(") and part != f"({selection['encoder']})":
            return False
        if part.startswith("#") and not selection["selection_id"].startswith(part[1:]):
            return False
        name, is_option, value = part.partition("=")
        if is_option and str(selection["options"].get(name)) != value:
            return False
    return True
