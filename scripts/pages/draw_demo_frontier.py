"""Draw recall against cost of a demo's run, with its samplers replayed at other budgets.

python -m scripts.pages.draw_demo_frontier results/runs/demo --out docs/images
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

import pandas as pd

from focus_eval.bench.commands.demo import RECALL_K
from focus_eval.bench.report.recall_layouts import lab_frame
from focus_eval.bench.report.run import load_run
from focus_eval.lab.overview import save_frontiers
from focus_eval.lab.simulation import SamplerEntry, SimulationConfig, run_simulation

# Percent of the frames that the picture's samplers score, besides the 2 % that focus scores by default.
BUDGETS = (0.5, 1.0, 4.0)
REPLAY_SEEDS = 5


def replay_budgets(folder: Path) -> pd.DataFrame:
    """Return selections at several budgets, replayed from the stored relevance of the run in `folder`.

    A frame has the relevance of the nearest frame that any sampler of the run scored for the question: nothing is
    decoded or scored anew. The rows lie in `budgets` below the run.
    """
    even = [SamplerEntry(sampler=name, budgets=True) for name in ("focus", "even_topk", "even_diverse", "even_cover")]
    config = SimulationConfig(
        name="budgets",
        recorded=str(folder),
        samplers=[*even, SamplerEntry(sampler="even_cover", options={"budget_of": "focus"})],
        k=list(RECALL_K),
        budgets=list(BUDGETS),
        # The questions of a video share their draws, as in the run: one draw would be few.
        seeds=list(range(REPLAY_SEEDS)),
    )
    out = folder / "budgets"
    # Made anew: an earlier run may have stored other relevance.
    shutil.rmtree(out, ignore_errors=True)
    run_simulation(config, out)
    return lab_frame(load_run(out))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    frame = lab_frame(load_run(options.run))
    # Floor and ceiling are lines at 0 and 100 %; the tables have them.
    measured_frame = frame[~frame["sampler"].isin(["blind", "oracle"])]
    for path in save_frontiers(measured_frame, options.out, replayed=replay_budgets(options.run)):
        print(path)


if __name__ == "__main__":
    main()
