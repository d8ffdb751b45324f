"""Compute every figure of a report's tables again, from the rows alone, by other code than the report's.

Plain loops over dictionaries; the report's package is not imported. It reads the rows' files by itself, the tables from
report*.csv, and compares number by number.
"""

from __future__ import annotations

import csv
import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from focus_eval.testing.formulas_again import holm, mean_with_interval, question_weights, sign_flip_p

Row = Mapping[str, Any]
TOLERANCE = 2e-6
BENCHMARKS = {
    "LongVideoBench": "longvideobench", "Video-MME": "videomme", "MLVU": "mlvu", "VSI-Bench": "vsibench",
}  # fmt: skip
BUCKETS = {"Short": "short", "Medium": "medium", "Long": "long"}
MACRO = ("mlvu", "vsibench")
COUNTS = ("questions", "unparsed", "errors", "fallbacks", "below K")
# A published option and ours that mean the same.
SAME_OPTION = {"alpha": ("alpha", "zoom_ratio"), "Clip (s)": ("clip_seconds", "coarse_every_sec")}


@dataclass
class Checked:
    """What came of checking one folder's tables.

    Args:
        figures: numbers that were computed again.
        wrong: where the report and the rows differ, one line each.
        unknown: columns with numbers that nothing here computes.
    """

    figures: int = 0
    wrong: list[str] = field(default_factory=list)
    unknown: set[str] = field(default_factory=set)

    def compare(self, where: str, printed: str, computed: float | None) -> None:
        """Compare one number of a table, "" being none."""
        self.figures += 1
        if printed == "" or computed is None:
            if printed != "" or computed is not None:
                self.wrong.append(f"{where}: printed {printed!r}, from the rows {computed}")
        elif not math.isclose(float(printed), computed, rel_tol=TOLERANCE, abs_tol=TOLERANCE):
            self.wrong.append(f"{where}: printed {printed}, from the rows {computed:.8g}")


@dataclass(frozen=True)
class Rows:
    """A run's rows: selections by (benchmark, question, selection), answers with their selection."""

    selections: Mapping[tuple[str, str, str], Row]
    answers: Sequence[tuple[Row, Row]]


def check_report(folder: Path, *, rows_in: Path | None = None) -> Checked:
    """Check every `report*.csv` in `folder` against the rows below `rows_in` (the same folder by default)."""
    checked, rows = Checked(), read_run(rows_in or folder)
    for path in sorted(folder.glob("report*.csv")):
        with open(path, newline="", encoding="utf-8") as file:
            lines = list(csv.DictReader(file))
        if lines and "p (Holm)" in lines[0]:
            _check_comparison(checked, path.stem, lines, rows)
        else:
            for number, line in enumerate(lines, start=1):
                _check_line(checked, f"{path.stem}:{number}", line, rows)
    return checked


def read_run(folder: Path) -> Rows:
    """Return the rows of a run: of the questions that it asked, where its parts hold those of other runs too."""
    run = folder / "run.json"
    asked = json.loads(run.read_text(encoding="utf-8")).get("asked", {}) if run.exists() else {}

    def rows_of(kind: str) -> list[dict[str, Any]]:
        found = _read(folder / kind)
        return [
            match for match in found if match["question_id"] in asked.get(match["benchmark"], [match["question_id"]])
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

    found: dict[tuple[str, ...], dict[str, Any]] = {}
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
            for name in ("options", "facts", "clips", "seconds", "tokens"):
                if isinstance(row.get(name), str):
                    row[name] = json.loads(row[name])
            key = (part.name, row["benchmark"], row["question_id"], str(row.get("cell_id")), row["selection_id"])
            found.setdefault(key, row)
    return list(found.values())


def _check_line(checked: Checked, where: str, line: Mapping[str, str], rows: Rows) -> None:
    """Check one line of a results table; a line without counts is a published one."""
    if not line.get("questions"):
        return
    pairs = [pair for pair in _pairs(rows) if _belongs(pair, line)]
    for title in line:
        if f"{title} low" not in line:
            continue
        inside, metric = _column(title, line, pairs)
        if metric is None:
            checked.unknown.add(title)
            continue
        value, low, high = metric(inside)
        if line[title] == "" and value is None:
            continue
        checked.compare(f"{where} {title}", line[title], value)
        if line[f"{title} low"] or low is not None:
            checked.compare(f"{where} {title} low", line[f"{title} low"], low)
            checked.compare(f"{where} {title} high", line[f"{title} high"], high)
        if line[f"{title} published"] and line[f"{title} difference"]:
            difference = value - float(line[f"{title} published"]) if value is not None else None
            checked.compare(f"{where} {title} difference", line[f"{title} difference"], difference)
        if line[f"{title} spread over seeds"]:
            spread = _spread(inside, metric)
            checked.compare(f"{where} {title} spread", line[f"{title} spread over seeds"], spread)
    for title, count in zip(COUNTS, _counts(_shown(line, pairs)), strict=True):
        checked.compare(f"{where} {title}", line[title], count)


def _pairs(rows: Rows) -> list[tuple[Row | None, Row]]:
    """Return (answer, selection) pairs; selections alone where no model answered."""
    return [*rows.answers] if rows.answers else [(None, selection) for selection in rows.selections.values()]


def _belongs(pair: tuple[Row | None, Row], line: Mapping[str, str]) -> bool:
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
    stated = [selection["options"][name] for name in names if name in selection["options"]]
    return (not stated and text == "") or any(text == f"{float(value):g}" for value in stated)


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


Metric = Callable[[list[tuple[Row | None, Row]]], tuple[float | None, float | None, float | None]]


def _column(title: str, line: Mapping[str, str], pairs: list[Any]) -> tuple[list[Any], Metric | None]:
    """Return the pairs under a column's title, and what is computed from them."""
    name, _, over = title.partition(", ")
    if title in ("Accuracy", "Overall"):
        return pairs, _accuracy
    if title in BUCKETS:
        return [pair for pair in pairs if (pair[0] or pair[1])["bucket"] == BUCKETS[title]], _accuracy
    if name in BENCHMARKS:
        inside = [pair for pair in pairs if pair[1]["benchmark"] == BENCHMARKS[name]]
        return inside, _macro if BENCHMARKS[name] in MACRO and not over else _accuracy
    if title == "Mean of task types":
        return pairs, _macro
    if title.startswith("Recall@"):
        seconds = float(title.removeprefix("Recall@").split(" ")[0])
        return pairs, lambda inside: _recall(inside, seconds)
    if title == "Frames scored (%)":
        return pairs, _frames_scored
    if title in ("GPU hours", "Device-hours (cpu)"):
        return pairs, _hours
    inside = [pair for pair in pairs if pair[1]["sampler"] == title]
    return inside, _accuracy if inside else None


def _shown(line: Mapping[str, str], pairs: list[Any]) -> list[Any]:
    """Leave out what no column of the line can show: samplers of a table that has a column per sampler."""
    columns = [title for title in line if f"{title} low" in line]
    inside = [pair for title in columns for pair in _column(title, line, pairs)[0]]
    kept = {id(pair) for pair in inside}
    return [pair for pair in pairs if id(pair) in kept]


def _accuracy(pairs: list[Any]) -> tuple[float | None, float | None, float | None]:
    return mean_with_interval(_question_scores(pairs), lambda _: "")


def _macro(pairs: list[Any]) -> tuple[float | None, float | None, float | None]:
    benchmarks = {selection["benchmark"] for _, selection in pairs}
    kinds = {key: kind for key, (_, _, kind) in _question_scores(pairs).items()}
    if len(benchmarks) != 1 or not benchmarks <= set(MACRO) or not all(kinds.values()):
        return None, None, None
    return mean_with_interval(_question_scores(pairs), lambda kind: kind)


def _question_scores(pairs: list[Any]) -> dict[tuple[str, str], tuple[float, str, str]]:
    """Return (mean score over seeds, video, task type) by question, of the answers that there are."""
    found: dict[tuple[str, str], list[tuple[float, str, str]]] = defaultdict(list)
    for answer, selection in pairs:
        if answer is not None and answer["error"] is None:
            video = f"{selection['benchmark']}/{answer['video']}"
            key = (answer["benchmark"], answer["question_id"])
            found[key].append((answer["score"], video, answer.get("category") or ""))
    return {key: (fmean(score for score, _, _ in same), *same[0][1:]) for key, same in found.items()}


def _recall(pairs: list[Any], seconds: float) -> tuple[float | None, float | None, float | None]:
    """The share of annotated moments with a keyframe within `seconds`, the mean over questions."""
    by_selection = {(pair["benchmark"], pair["question_id"], pair["selection_id"]): pair for _, pair in pairs}
    found: dict[tuple[str, str], list[tuple[float, str, str]]] = defaultdict(list)
    for item in by_selection.values():
        if item["error"] is None and item["evidence_seconds"]:
            near = [
                any(abs(time - moment) <= seconds for time in item["times_seconds"])
                for moment in item["evidence_seconds"]
            ]
            found[item["benchmark"], item["question_id"]].append(
                (fmean(near), f"{item['benchmark']}/{item['video']}", "")
            )
    scores = {key: (fmean(share for share, _, _ in same), *same[0][1:]) for key, same in found.items()}
    return mean_with_interval(scores, lambda _: "")


def _frames_scored(pairs: list[Any]) -> tuple[float | None, None, None]:
    chosen = _selections(pairs)
    total = sum(selection["n_frames"] for selection in chosen)
    return (100 * sum(len(selection["pulled_frames"]) for selection in chosen) / total if total else None), None, None


def _hours(pairs: list[Any]) -> tuple[float | None, None, None]:
    chosen = _selections(pairs)
    held = ("open", "encode", "select", "idle")
    seconds = sum(sum((selection["seconds"] or {}).get(stage, 0.0) for stage in held) for selection in chosen)
    return (seconds / 3600 / len({selection["seed"] for selection in chosen}) if chosen else None), None, None


def _selections(pairs: Iterable[Any]) -> list[Row]:
    return list({(pair["benchmark"], pair["question_id"], pair["selection_id"]): pair for _, pair in pairs}.values())


def _spread(pairs: list[Any], metric: Metric) -> float | None:
    by_seed = [[pair for pair in pairs if pair[1]["seed"] == seed] for seed in {pair[1]["seed"] for pair in pairs}]
    values = [value for value in (metric(part)[0] for part in by_seed) if value is not None]
    return stdev(values) if len(values) > 1 else None


def _counts(pairs: list[Any]) -> tuple[int, int, int, int, int]:
    rows = [(answer if answer is not None else selection, selection) for answer, selection in pairs]
    right = [(row, selection) for row, selection in rows if row["error"] is None]
    return (
        len({(row["benchmark"], row["question_id"]) for row, _ in right}),
        sum("parsed" in row and row["parsed"] is None for row, _ in right),
        len(rows) - len(right),
        sum(bool(row.get("fallback")) for row, _ in rows),
        sum(row.get("frames_chosen", len(selection["keyframes"])) < selection["k"] for row, selection in right),
    )


def _check_comparison(checked: Checked, where: str, lines: Sequence[Mapping[str, str]], rows: Rows) -> None:
    """Check a table of paired differences: the mean, the questions, p of all sign flips, Holm's."""
    p_values = []
    for number, line in enumerate(lines, start=1):
        place = f"{where}:{number}"
        a, b = (_paired_scores(line, line[side], rows) for side in "AB")
        both = sorted(set(a) & set(b))
        macro = "Within" not in line and line["Benchmark"] in MACRO and all(a[key][2] for key in both)
        weights = question_weights({key: a[key][2] if macro else "" for key in both})
        by_video: dict[str, float] = defaultdict(float)
        for key in both:
            by_video[a[key][1]] += weights[key] * (b[key][0] - a[key][0])
        checked.compare(f"{place} B-A", line["B − A (points)"], 100 * sum(by_video.values()))
        checked.compare(f"{place} questions", line["Questions"], len(both))
        better = [sum(sign * (b[key][0] - a[key][0]) > 1e-12 for key in both) for sign in (-1, 1)]
        checked.figures += 2
        if line["Better A / B"] != f"{better[0]} / {better[1]}":
            checked.wrong.append(f"{place} better: printed {line['Better A / B']}, from the rows {better}")
        p_values.append(sign_flip_p(list(by_video.values())))
        checked.compare(f"{place} p", line["p"], p_values[-1])
    for number, (line, adjusted) in enumerate(zip(lines, holm(p_values), strict=True), start=1):
        checked.compare(f"{where}:{number} p (Holm)", line["p (Holm)"], adjusted)


def _paired_scores(line: Mapping[str, str], series: str, rows: Rows) -> dict[tuple[str, str], tuple[float, str, str]]:
    """Return score (or recall), video and task type by question, of one side of a comparison."""
    asked = {**line, "Sampler": series}
    if "Within" not in line:
        return _question_scores([pair for pair in rows.answers if _belongs(pair, asked)])
    seconds = float(line["Within"].split(" ")[0])
    found: dict[tuple[str, str], list[tuple[float, str]]] = {}
    for selection in rows.selections.values():
        if _belongs((None, selection), asked) and selection["error"] is None and selection["evidence_seconds"]:
            near = [
                any(abs(time - moment) <= seconds for time in selection["times_seconds"])
                for moment in selection["evidence_seconds"]
            ]
            key = (selection["benchmark"], selection["question_id"])
            found.setdefault(key, []).append((fmean(near), selection["video"]))
    return {key: (fmean(share for share, _ in same), same[0][1], "") for key, same in found.items()}
