"""Does `focus-eval samplers` list what there is?"""

from __future__ import annotations

import json

from typer.testing import CliRunner

from focus_eval.cli import app
from focus_eval.samplers.registry import make_sampler, sampler_classes


def test_json_lists_every_sampler_with_options_and_pulls():
    result = CliRunner().invoke(app, ["samplers", "--json", "-k", "16", "--minutes", "10"])
    assert result.exit_code == 0, result.output
    listing = json.loads(result.stdout)
    assert listing["n_frames"] == 18_000
    assert [row["name"] for row in listing["samplers"]] == sorted(sampler_classes())
    for row in listing["samplers"]:
        assert row["options"] == make_sampler(row["name"]).options
        assert (row["pulls"] == 0) == (row["needs"] == "nothing")
    assert {row["name"]: row["pulls"] for row in listing["samplers"]}["topk"] == 600


def test_the_table_names_sampler_source_option_and_cost(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    result = CliRunner().invoke(app, ["samplers"])
    assert result.exit_code == 0, result.output
    for text in ("focus_released", "Algorithm 2", "region_half_window_sec=none", "alpha=0.25", "1587 (1.47 %)"):
        assert text in result.stdout
