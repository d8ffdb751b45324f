"""What does the option `snap_seconds` change? `measure_snap.py --run results/runs/demo_snap --csv FILE`

    focus-eval demo && focus-eval run research/configs/demo_snap.yaml
    python research/scripts/measure_snap.py --run results/runs/demo_snap --csv research/results/demo_snap.csv

A line for each sampler and encoder: keyframes moved, questions with one, and recall of the evidence without and with.
"""

from __future__ import annotations

import argparse
import csv
from collections import defaultdict
from pathlib import Path

from focus_eval.bench.report.run import load_run
from focus_eval.keyframes.rows.records import SelectionRow

RECALLS = ("recall@1", "recall@2", "recall@5")


def main() -> None:
    """Print the lines and write them as CSV."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--csv", type=Path, required=True)
    arguments = parser.parse_args()
    run = load_run(arguments.run)
    mean_recalls = run.selection_frame.groupby("selection_id")[list(RECALLS)].mean()
    sides: dict[tuple[str, str], dict[bool, list[SelectionRow]]] = defaultdict(lambda: {False: [], True: []})
    for row in run.selections:
        option_texts = [f"{name}={row.options[name]}" for name in ("pulls", "max_depth") if row.options.get(name)]
        size = next((part for part in row.encoder_revision.split(", ") if part.endswith(" px")), "224 px")
        sides[" ".join([row.sampler, *option_texts]), size][bool(row.options.get("snap_seconds"))].append(row)
    lines = []
    for (sampler, size), rows in sorted(sides.items()):
        n_moved = [row.facts.get("snapped", 0) for row in rows[True]]
        recalls_off, recalls_on = (mean_recalls.loc[side[0].selection_id] for side in (rows[False], rows[True]))
        line = {"sampler": sampler, "encoder": size, "keyframes": sum(len(row.keyframes or ()) for row in rows[True])}
        line |= {"moved": sum(n_moved), "questions": sum(count > 0 for count in n_moved)}
        for name in RECALLS:
            line |= {
                f"{name} without": f"{100 * recalls_off[name]:.1f}",
                f"{name} with": f"{100 * recalls_on[name]:.1f}",
            }
        lines.append(line)
        print(" | ".join(map(str, line.values())))
    with arguments.csv.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(lines[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)


if __name__ == "__main__":
    main()
