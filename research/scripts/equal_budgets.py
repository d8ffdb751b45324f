"""Compare the samplers of a simulation at equal budgets: recall within 2 s, and the paired difference to one of them.

    focus-eval simulate research/configs/simulation_scan.yaml
    python research/scripts/equal_budgets.py results/runs/simulation_scan --baseline even_cover --out budgets.csv

A line per K, budget (percent of the frames at 25 a second) and sampler: its forwards in percent of the frames, recall
in percent, and the difference in points with a 95 % interval clustered by video, not adjusted.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import pandas as pd

from focus_eval.bench.report.run import load_run
from focus_eval.bench.report.statistics import difference_estimate

# The option that a budget sets, and the percent it stands for.
BUDGETS = {
    r" share=([\d.]+)": lambda value: 100 * value,
    r" every_seconds=([\d.]+)": lambda value: 4 / value,
    r" clip_seconds=([\d.]+) seconds_per_fine_pull=[\d.]+": lambda value: 28 / value,
}
# What a label says beside the sampler: its id where worlds have one each, options at their defaults, its role.
UNSAID = re.compile(r" (#\w+|value=recall|fallback=none|\[control\])(?= |$)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--baseline", default="even_cover")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    table = at_equal_budgets(load_run(arguments.run).selection_frame, arguments.baseline)
    table.to_csv(arguments.out, index=False, float_format="%.6g")
    print(f"{arguments.out}: {len(table)} lines")


def series(label: str) -> tuple[str, float] | None:
    """Split a label into the sampler's name and its budget in percent; None for a sampler without a budget."""
    for pattern, percent in BUDGETS.items():
        if match := re.search(pattern, label):
            return UNSAID.sub("", label.replace(match[0], "")), float(f"{percent(float(match[1])):.2g}")
    return None


def at_equal_budgets(rows: pd.DataFrame, baseline: str) -> pd.DataFrame:
    """Return recall, cost and paired difference to the baseline: a line for each K, budget and sampler."""
    series_of_row = rows["label"].map({label: series(label) for label in rows["label"].unique()})
    budgets = rows[series_of_row.notna()].assign(series=series_of_row)
    parts = {(k, *names): part for (k, names), part in budgets.groupby(["k", "series"])}
    parts = {key: part.set_index("question_id").sort_index() for key, part in parts.items()}
    lines = []
    for (k, name, percent), part in parts.items():
        base = parts.get((k, baseline, percent))
        if base is None:  # a sampler's default, which is no budget of the file
            continue
        estimate = difference_estimate(part["recall@2"] - base["recall@2"], part["video"])
        lines.append(
            {
                "K": k,
                "percent": percent,
                "sampler": name,
                "questions": len(part),
                "forwards (%)": 100 * part["forward_equivalents"].sum() / part["n_frames"].sum(),
                "recall": 100 * part["recall@2"].mean(),
                "minus baseline": 100 * estimate.value,
                "minus baseline low": 100 * (estimate.low or 0.0),
                "minus baseline high": 100 * (estimate.high or 0.0),
            }
        )
    return pd.DataFrame(lines)


if __name__ == "__main__":
    main()
