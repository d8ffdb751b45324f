"""Writes what a run of the demo measured to results/published/demo_*.csv and docs/images/demo_*.png.

    focus-eval demo && python -m scripts.pages.record_demo results/runs/demo

Every figure of README.md and docs/demo.md on the demo comes from these files (`tests/figures/worlds.py`).
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path

import pandas as pd

from focus_eval.bench.report.figures import draw_timelines, save_figure
from focus_eval.bench.report.page.charts import telling_question
from focus_eval.bench.report.recall_layouts import demo_tables, evidence_effect, lab_frame
from focus_eval.bench.report.rendering import Table, to_csv
from focus_eval.bench.report.run import Run, load_run
from focus_eval.lab.overview import save_frontiers
from scripts.pages.draw_demo_frontier import replay_budgets

ROOT = Path(__file__).resolve().parents[2]
# Floor and ceiling are lines at 0 and 100 %; the tables have them.
UNDRAWN = ("blind", "oracle")


def main() -> None:
    """Write the tables and the pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    arguments = parser.parse_args()
    run = load_run(arguments.run)
    write_tables(run, ROOT / "results/published")
    draw_pictures(run, arguments.run, ROOT / "docs/images")


def write_tables(run: Run, folder: Path) -> None:
    """Write recall, cost and accuracy by sampler, recall at every K, pulls, and what finding the evidence adds."""
    for table in demo_tables(run, "focus"):
        if table.name in ("demo_k8", "recall_by_k"):
            write_rows(table, folder / f"demo_{table.name.removeprefix('demo_')}.csv")
    at_8 = lab_frame(run).query("k == 8")
    sums = at_8.groupby("label")[["n_frames", "n_pulls", "n_encoded"]].sum()
    sums.to_csv(folder / "demo_pulls.csv", index_label="Sampler", lineterminator="\n")
    effect = evidence_effect(at_8, run.answer_frame.query("k == 8 and error.isna()"))
    assert effect is not None
    n_questions, points = effect
    ends = {"points": points.ours, "points low": points.low, "points high": points.high}
    rounded = {name: round(float(value), 1) for name, value in ends.items() if value is not None}
    pd.DataFrame([{"questions": n_questions, **rounded}]).to_csv(
        folder / "demo_effect.csv", index=False, lineterminator="\n"
    )


def write_rows(table: Table, path: Path) -> None:
    """Write a table as CSV without its empty columns."""
    with tempfile.TemporaryFile("w+", encoding="utf-8") as file:
        file.write(to_csv(table))
        file.seek(0)
        rows = pd.read_csv(file, dtype=str)
    rows.dropna(axis="columns", how="all").to_csv(path, index=False, lineterminator="\n")


def draw_pictures(run: Run, folder: Path, images: Path) -> None:
    """Draw recall against cost, with replayed budgets, and the timelines of one telling question."""
    frame = lab_frame(run)
    measured_frame = frame[~frame["sampler"].isin(UNDRAWN)]
    rows = [row for row in telling_question(run) if row.sampler not in UNDRAWN]
    with tempfile.TemporaryDirectory() as name:
        save_frontiers(measured_frame, Path(name), replayed=replay_budgets(folder))
        save_figure(draw_timelines(rows, names=run.labels), Path(name) / "timelines.png")
        for picture in ("frontier", "timelines"):
            shutil.copy(Path(name) / f"{picture}.png", images / f"demo_{picture}.png")


if __name__ == "__main__":
    main()
