"""`research/scripts/world_validity.py` reads the published files right and says what it cannot measure."""

from __future__ import annotations

import csv

import numpy as np
import pytest

from focus_eval.lab.verdict import PAIRS_ORDERED_ALIKE, world_record
from research.scripts import world_validity as script
from research.tests.figures.results import RESULTS
from tests.figures.rows import rows_of

# Published files of the reference table by the names of the script; even frames and mixtures are made otherwise there.
NAMES = {"AKS": "AKS", "AKSy-blip": "AKS others BLIP", "AKSy-clip": "AKS others CLIP", "WFS": "WFS"}


def test_recall_of_the_published_files_is_that_of_the_reference_table(shared):
    ground = script.read_grounds(shared("data"))["longvideobench"]
    assert len(ground.questions) == 976
    is_long = np.array([question.info.duration_seconds >= 900 for question in ground.questions])
    with shared("conformance/world_targets.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["method"] in NAMES]
    assert len(rows) == 9
    for row in rows:
        times = ground.times[NAMES[row["method"]], int(row["K"])]
        recalls = 100 * np.array(
            [
                script.recall_within(question.evidence, seconds, (1.0, 2.0, 5.0))
                for question, seconds in zip(ground.questions, times, strict=True)
            ]
        )
        for inside, sign in ((~is_long, "<"), (is_long, ">=")):
            targets = [float(row[f"{sign}900@{tolerance}"].split()[0]) for tolerance in (1, 2, 5)]
            assert recalls[inside].mean(axis=0) == pytest.approx(targets, abs=0.2), (row["method"], row["K"], sign)


def test_a_folder_without_rates_or_with_scenes_of_an_unknown_benchmark_gets_a_line(tmp_path, capsys):
    with pytest.raises(SystemExit, match=r"no lvb_val_fps\.csv: published frames become seconds only with rates"):
        script.read_grounds(tmp_path)
    (tmp_path / "lvb_val_fps.csv").write_text("id,duration_s,fps\na,200,25\n")
    (tmp_path / "kfs_videomme_anno.csv").write_text("id,segment_id,scene_id,start,end\n")
    assert script.read_grounds(tmp_path) == {}
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        "longvideobench left out: no lvb_val.json",
        "videomme left out: scenes without their benchmark's questions (videomme.json)",
    ]


def test_a_world_that_was_fitted_to_the_selections_is_marked():
    fields = {"seed": 1, "aks": "", "questions": 3, "pairs": 4, "share": (0.5, 0.2, 1.1), "error": (2.0, 1.0, 3.0)}
    item = script.Validity(benchmark="b", world="measured", is_fit=True, recall={}, roots={}, **fields)
    cells = script.cells_of(item)
    assert cells["world"] == "measured (fitted to these), seed 1"
    assert (cells["pairs"], cells["agree (%)"], cells["error (points)"]) == ("2 of 4", "50 [20, 100]", "2.0 [1.0, 3.0]")


def test_a_world_like_reality_orders_every_pair_and_one_turned_around_orders_none():
    rng = np.random.default_rng(0)
    base = {("WFS", 8): 0.3, ("uniform", 8): 0.1, ("WFS", 16): 0.5, ("uniform", 16): 0.2}
    base |= {("WFS", 32): 0.6, ("uniform", 32): 0.3}
    methods = list(script.mixtures(list(base)))
    rates = np.array([base.get(method, 0.9) for method in methods])[None, :, None]
    real = (rng.uniform(size=(400, len(methods), 3)) < rates).astype(float)
    videos = [str(number) for number in range(400)]
    ground = script.Ground(benchmark="longvideobench", questions=[], videos=videos, times={key: [] for key in base})
    same, turned = (
        script.compared(ground, range(400), real, made, "measured", 0, aks="", roots={}) for made in (real, 1 - real)
    )
    assert (same.share[0], same.error[0]) == (1.0, 0.0)
    assert turned.share[0] == 0.0
    assert turned.error[0] > 20
    assert (same.pairs, turned.pairs, same.is_fit) == (15, 15, True), "one, one and three pairs of K = 8, 16 and 32"


def test_pairs_that_reality_does_not_tell_apart_are_not_judged_whatever_the_world_says():
    rng = np.random.default_rng(0)
    methods = [("WFS", 8), ("uniform", 8), ("WFS", 16), ("uniform", 16), ("WFS", 32), ("uniform", 32)]
    names = list(script.mixtures(methods))
    real = (rng.uniform(size=(400, len(names), 3)) < 0.5).astype(float)
    real[:, 1:] = real[:, :1]
    videos = [str(number) for number in range(400)]
    ground = script.Ground(benchmark="longvideobench", questions=[], videos=videos, times={key: [] for key in methods})
    real[:, names.index(("uniform", 8))] = 0.0
    made = np.tile(np.linspace(0, 1, len(names))[None, :, None], (400, 1, 3))
    item = script.compared(ground, range(400), real, made, "realistic", 0, aks="", roots={})
    assert (item.pairs, item.is_fit) == (3, False), "the pair of K = 8 at three tolerances"


def test_intervals_are_basic_ones_over_videos():
    values = np.random.default_rng(0).uniform(size=(40, 2, 3))
    drawn, _ = script.drawn_means(values, values, ["the same"] * 40, 0)
    assert np.ptp(drawn, axis=0).max() < 1e-12
    assert script.with_interval(2.0, np.linspace(1, 5, 401)) == pytest.approx((2.0, 0.0, 2.9))


def test_the_verdicts_note_on_a_world_is_what_the_script_recorded():
    recorded = {}
    for row in rows_of(RESULTS / "world_orders.csv"):
        recorded.setdefault(row["world"], {})[row["kind"]] = (int(row["agree"]), int(row["pairs"]))
    assert recorded == PAIRS_ORDERED_ALIKE
    assert world_record("realistic:blind=0.65") == (
        "This world orders 16 of 25 pairs of methods on LongVideoBench as their published selections do "
        "(two forms of AKS: 1 of 4; AKS and WFS-SB: 1 of 3; with uniform: 14 of 18)."
    )
    assert world_record("smooth") == ""
