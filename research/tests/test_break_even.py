"""The map of correlations, costs and budgets from which on a scan pays."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from research.scripts import scan_break_even as script


def test_the_map_says_from_where_on_it_pays_surely(tmp_path):
    rng = np.random.default_rng(0)
    lines = [
        {"video": f"v{number}", "percent": 0.5, "k": 8, "rho": rho, "cost": cost, "even": 0.3,
         "scan": np.clip(0.3 + (rho - 0.2) + rng.normal(0, 0.05), 0, 1)}
        for number in range(12) for rho in (0.0, 0.2, 0.4, 0.6) for cost in (0.05, 0.5)
    ]  # fmt: skip
    table = script.break_even(pd.DataFrame(lines))
    assert list(script.sentences(table)) == ["0.5 % of the frames, K = 8, by cost: 1/20 from rho 0.4, 1/2 from rho 0.4"]
    assert table.loc[table["rho"] == 0.6, "difference"].to_numpy() == pytest.approx(40, abs=4)


def test_the_map_is_of_simulated_videos(monkeypatch):
    for name, value in {"BUDGETS": (0.5,), "KS": (8,), "RHOS": (0.0, 0.5), "COSTS": (0.05,), "MINUTES": (2, 8)}.items():
        monkeypatch.setattr(script, name, value)
    videos = [("smooth", number, 0) for number in range(12)]
    rows = pd.DataFrame([row for video in videos for row in script.differences(video)])
    means = rows.groupby("rho")[["scan", "even"]].mean()
    assert means["even"].nunique() == 1
    assert means.loc[0.5, "scan"] > means.loc[0.5, "even"] > means.loc[0.0, "scan"] - 0.05
