"""How a file of AKS selections was made shows in the frames."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from focus_eval_research.field_data import longvideobench, videomme
from focus_eval_research.published import read_published
from typer.testing import CliRunner

from focus_eval.bench.benchmarks.registry import read_annotations, read_rates
from focus_eval.cli import app
from focus_eval.external.audit import NOTE, CheckedSeries, aks_settings
from focus_eval.external.imports.aks_settings import AksSettings, _equal_halves, infer_settings
from focus_eval.external.imports.loading import load_selections, rows_of_selections
from focus_eval.keyframes.samplers.base import derived_rng
from focus_eval.keyframes.samplers.registry import make_sampler
from focus_eval.lab.traces import make_trace
from focus_eval.lab.worlds import WORLDS


def test_the_second_half_of_an_odd_part_reaches_to_its_end():
    # [0, 7) is [0, 3) and [3, 7), with two frames each; then [0, 1), [1, 3), [3, 5) and [5, 7) with one each.
    assert _equal_halves(np.array([0, 1, 3, 6]), 7, 4) == [(1, 1), (2, 2)]


@pytest.mark.parametrize(
    ("t1", "depth", "k"), [(0.8, 5, 32), (0.37, 3, 32), (0.37, 2, 16), (2.0, 5, 32), (-2.0, 5, 32)]
)
def test_depth_and_unsplit_videos_are_inferred_from_the_frames_alone(t1, depth, k):
    triples, whole = [], 0
    for number in range(60):
        trace = make_trace(WORLDS["measured"], number, seed=0, minutes=(3, 30))
        sampler = make_sampler("aks", t1=t1, max_depth=depth)
        selection = sampler.select(trace.info, k=k, pull=trace.relevance, rng=derived_rng(0))
        triples.append((selection.keyframes, trace.info.n_frames, trace.info.fps))
        whole += selection.facts["segments"] == 1
    settings = infer_settings(triples)
    assert (settings.k, settings.questions, settings.off_grid) == (k, 60, 0)
    assert abs(settings.whole - whole) <= 3
    assert settings.depth == (0 if whole == 60 else depth)


def test_frames_off_the_grid_are_counted_and_a_file_of_none_on_it_is_said_to_be_none():
    settings = infer_settings([([1, 7, *range(300, 600, 15)], 3000, 25.0)] * 3)
    assert str(settings) == "how AKS split the videos is not known: frames off the grid of int(fps) in 3 questions"
    assert infer_settings([]) is None
    assert infer_settings([(range(0, 800, 25), 800, 25.0)]) is None, "a selection of every candidate says nothing"
    assert infer_settings([(range(0, 200, 25), 8000, 25.0)]) is None, "of eight frames halves are equal by chance"


def test_the_listed_settings_are_those_that_the_published_files_show(shared):
    by_id, lvb_rates = longvideobench(shared("data"))
    by_benchmark = {"longvideobench": ([*by_id.values()], lvb_rates), "videomme": videomme(shared("data"))}
    for item in (item for item in read_published() if item.settings.startswith("t1 ")):
        questions, rates = by_benchmark[item.benchmark]
        path = next(path for path in shared("data").rglob(f"{item.file}*"))
        selections = load_selections(path, format="aks", questions=questions)
        settings = infer_settings(
            (chosen.selection.keyframes, rates[key].n_frames, float(rates[key].fps))
            for key, chosen in selections.items()
        )
        t1, depth = item.settings.removeprefix("t1 ").split(", depth ")
        assert settings.depth == int(depth), item.file
        # The table is of BLIP's relevance on LongVideoBench.
        if item.benchmark == "longvideobench" and "clip" not in item.file:
            assert settings.t1 == pytest.approx(float(t1), abs=0.06), item.file


def test_the_import_says_how_the_file_was_made_or_what_it_needs_to_tell(tmp_path, shared):
    arguments = ["import", "aks", str(shared("data/field/selections/aks_lvb_32.json.gz"))]
    arguments += ["--out", str(tmp_path / "aks.parquet"), "--annotations", str(shared("data/lvb_val.json"))]
    output = CliRunner().invoke(app, arguments).output
    assert "How AKS split the videos is not known without frame numbers and --rates." in output
    output = CliRunner().invoke(app, [*arguments, "--rates", str(shared("data/lvb_val_fps.csv"))]).output
    assert "AKS: the whole video is unsplit in 78 % of 1,074 questions: plain Top-32; else split to depth 5" in output


def test_the_audit_notes_it_and_only_of_imported_aks(shared):
    questions = read_annotations("longvideobench", shared("data/lvb_val.json"))
    path, rates = shared("data/field/selections/aks_lvb_32.json.gz"), read_rates(shared("data/lvb_val_fps.csv"))
    selections = load_selections(path, format="aks", questions=questions)
    rows, _ = rows_of_selections(selections, questions, rates, name="aks_lvb_32")
    series = CheckedSeries(name="aks_lvb_32", selections={row.question_id: row for row in rows})
    [finding] = aks_settings(series)
    assert (finding.severity, finding.of) == (NOTE, 1074)
    assert 0.75 < finding.count / finding.of < 0.82
    assert "plain Top-32" in str(finding)
    assert not [*aks_settings(replace(series, name="wfs_lvb_32"))]


def test_settings_of_frames_off_the_grid_alone_have_no_threshold():
    settings = AksSettings(k=32, questions=0, off_grid=3, whole=0, depth=0)
    assert settings.t1 is None
    assert str(settings) == "how AKS split the videos is not known: frames off the grid of int(fps) in 3 questions"
