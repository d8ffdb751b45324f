"""Every table, plot, page and export of a run shaped like a real one, against a few lines that only read its rows."""

from __future__ import annotations

from collections import defaultdict
from statistics import fmean, stdev

import pytest

from focus_eval.bench.report.comparisons import baseline_table, recall_table
from focus_eval.bench.report.layouts import results_table
from focus_eval.bench.report.measures import cost_tables
from focus_eval.bench.report.page.html import report_tables
from focus_eval.bench.report.statistics import holm, mean_estimate
from focus_eval.core.errors import UnknownName
from tests.bench.report.realistic.by_hand import (
    CELLS,
    answers_of,
    by_question,
    flips_p,
    over_types,
    recalls_of,
    selections_of,
)
from tests.bench.report.realistic.made_run import SEEDS

pytestmark = pytest.mark.slow


def test_the_fixture_holds_what_a_report_may_mix_up(rows):
    assert len(rows["answers"]) == 2 * 24 * 5 * 2 * 3 * 2
    ids = defaultdict(set)
    for row in rows["selections"]:
        ids[row["selection_id"]].add(row["benchmark"])
    assert all(len(benchmarks) == 2 for benchmarks in ids.values()), "a selection's id does not name its benchmark"
    assert sum(row["error"] is not None for row in rows["selections"]) == 2 * 2 * 2 * 5
    assert any(0 < row["score"] < 1 for row in rows["answers"])


@pytest.mark.parametrize(("benchmark", "model", "label", "k"), CELLS[::3] + CELLS[1::7])
def test_every_figure_of_the_overview_is_that_of_its_rows(run, rows, overview, benchmark, model, label, k):
    row = next(row for row in overview.rows if row.keys == (benchmark, model, label, str(k)))
    figures = dict(zip(overview.columns, row.figures, strict=True))
    answers = answers_of(rows, benchmark, model, label, k)
    for title, bucket in (("Short", "short"), ("Medium", "medium"), ("Long", "long"), ("Overall", None)):
        questions = by_question(answers_of(rows, benchmark, model, label, k, bucket=bucket))
        assert figures[title].ours == pytest.approx(100 * fmean(questions.values())), title
        if bucket is None:
            interval = mean_estimate([*questions.values()], [video for _, video, _ in questions])
            assert (figures[title].low, figures[title].high) == pytest.approx((100 * interval.low, 100 * interval.high))
        else:
            assert figures[title].ours_text.endswith("[too few videos]")
    per_seed = [
        100
        * fmean(
            answer["score"] for answer in answers if answer["selection"]["seed"] == seed and answer["error"] is None
        )
        for seed in SEEDS
    ]
    assert figures["Overall"].spread == pytest.approx(stdev(per_seed))
    types = figures["Mean of task types"].ours
    assert types == (pytest.approx(100 * over_types(by_question(answers))) if benchmark == "vsibench" else None)
    for distance in (1, 2, 5):
        figure, recalls = figures[f"Recall@{distance} s (%)"], recalls_of(rows, benchmark, label, k, distance)
        assert figure.ours == (pytest.approx(100 * fmean(recalls.values())) if recalls else None)
    selections = selections_of(rows, benchmark, label, k)
    scored, total = (
        sum(len(selection["pulled_frames"]) for selection in selections),
        sum(selection["n_frames"] for selection in selections),
    )
    assert figures["Frames scored (%)"].ours == pytest.approx(100 * scored / total)
    held_seconds = sum(
        selection["seconds"].get(stage, 0) for selection in selections for stage in ("open", "encode", "select", "idle")
    )
    assert figures["GPU hours"].ours == pytest.approx(held_seconds / 3600 / 3)
    counts = row.counts
    assert (counts.questions, counts.attempted, counts.expected) == (len(by_question(answers)), 24, 24)
    assert counts.errors == sum(answer["error"] is not None for answer in answers) == (5 if model == "large_vl" else 2)
    assert counts.unparsed == sum(answer["error"] is None and answer["parsed"] is None for answer in answers) == 1
    assert counts.fallbacks == sum(answer["fallback"] is not None for answer in answers) == 1
    assert counts.below_k == sum(
        answer["error"] is None and answer["frames_fed"] < answer["frames_asked"] for answer in answers
    )


def test_the_overview_has_a_line_per_benchmark_model_sampler_and_k(overview):
    assert overview.key_titles == ("Benchmark", "Model", "Sampler", "K")
    assert sorted(row.keys for row in overview.rows) == sorted((*cell[:3], str(cell[3])) for cell in CELLS)


def test_the_papers_layouts_mix_no_two_cells_either(run, rows):
    main = results_table(run, "main_results")
    assert main.key_titles == ("Model", "Sampler", "K")
    for row in main.rows:
        if row.counts is not None:
            questions = by_question(answers_of(rows, "longvideobench", row.keys[0], row.keys[1], int(row.keys[2])))
            assert row.figures[0].ours == pytest.approx(100 * fmean(questions.values()))
            assert row.figures[1].ours is None, "the run has no Video-MME"
    benchmarks_table = results_table(run, "more_benchmarks")
    for row in benchmarks_table.rows:
        if row.counts is not None:
            questions = by_question(answers_of(rows, "vsibench", row.keys[0], row.keys[1], int(row.keys[2])))
            assert [figure.ours for figure in row.figures] == [
                None,
                None,
                pytest.approx(100 * over_types(questions)),
                pytest.approx(100 * fmean(questions.values())),
            ]
    lengths = results_table(run, "by_length")
    assert ("longvideobench", "aks max_depth=3", "small_vl", "4") in [row.keys for row in lengths.rows]
    pivot = results_table(run, "two_stage")
    assert "focus here: focus (blip)." in pivot.notes
    assert "focus here: focus (clip)." in pivot.notes


def test_options_that_are_not_default_stand_beside_the_sampler_of_every_table(run):
    for name in ("main_results", "efficiency", "alpha", "encoder"):
        our_keys = [row.keys for row in results_table(run, name).rows if row.counts is not None]
        assert any("aks max_depth=3" in keys for keys in our_keys), name
        assert not any("aks" in keys for keys in our_keys), name


def test_comparisons_are_those_of_the_rows(run, rows):
    table = baseline_table(run)
    assert len(table.rows) == 2 * 2 * 2 * 4
    ps = []
    for row in table.rows:
        benchmark, model, k, a, b = row.keys
        first, second = (by_question(answers_of(rows, benchmark, model, label, int(k))) for label in (a, b))
        differences = {key: second[key] - first[key] for key in first if key in second}
        figures = dict(zip(table.columns, row.figures, strict=True))
        macro = benchmark == "vsibench"
        weighed = over_types(differences) if macro else fmean(differences.values())
        assert figures["B − A (points)"].ours == pytest.approx(100 * weighed)
        assert figures["Questions"] == str(len(differences))
        better = (
            sum(value < -1e-12 for value in differences.values()),
            sum(value > 1e-12 for value in differences.values()),
        )
        assert figures["Better A / B"] == f"{better[0]} / {better[1]}"
        if not macro:
            assert figures["p"].ours == pytest.approx(flips_p(differences))
        ps.append(figures["p"].ours)
    adjusted = [row.figures[table.columns.index("p (Holm)")].ours for row in table.rows]
    assert adjusted == pytest.approx(list(holm(ps)))
    for row, p_value in zip(table.rows, adjusted, strict=True):
        assert ("↑" in row.figures[0].ours_text or "↓" in row.figures[0].ours_text) == (p_value < 0.05)


def test_paired_recall_is_that_of_the_rows(run, rows):
    table = recall_table(run)
    assert table.name == "recall_against_baseline"
    assert len(table.rows) == 2 * 3 * 4, "one benchmark has evidence; K, distances, samplers"
    for row in table.rows:
        benchmark, k, distance_text, a, b = row.keys
        distance = float(distance_text.split()[0])
        first, second = (recalls_of(rows, benchmark, label, int(k), distance) for label in (a, b))
        differences = {key: second[key] - first[key] for key in first if key in second}
        assert row.figures[0].ours == pytest.approx(100 * fmean(differences.values()))
        assert row.figures[3].ours == pytest.approx(flips_p(differences))
        assert row.figures[1] == str(len(differences)) == "24"
    adjusted = [row.figures[4].ours for row in table.rows]
    assert adjusted == pytest.approx(list(holm([row.figures[3].ours for row in table.rows])))


def test_any_sampler_can_be_the_baseline_by_name_or_label(run):
    for baseline, labels in (("aks", {"aks max_depth=3"}), ("focus (clip)", {"focus (clip)"})):
        tables = [baseline_table(run, baseline=baseline), recall_table(run, baseline=baseline)]
        assert all({row.keys[3] for row in table.rows} == labels for table in tables)
    with pytest.raises(UnknownName, match="unknown baseline 'fokus'; did you mean 'focus'"):
        report_tables(run, baseline="fokus")


def test_the_cost_table_is_that_of_the_rows(run, rows):
    _, table = cost_tables(run)
    assert len(table.rows) == 2 * 5 * 2
    for row in table.rows:
        selections = selections_of(rows, row.keys[0], row.keys[1], int(row.keys[2]))
        figures = dict(zip(table.columns, row.figures, strict=True))
        pulls = sum(len(selection["pulled_frames"]) for selection in selections)
        assert figures["Frames scored"] == f"{pulls / 3:,.0f}"
        for stage in ("open", "encode", "select", "idle", "decode"):
            seconds = sum(selection["seconds"].get(stage, 0) for selection in selections)
            assert figures[stage.capitalize()].ours == pytest.approx(seconds / 3600 / 3)
        assert figures["All"].ours == pytest.approx(
            sum(figures[stage.capitalize()].ours for stage in ("open", "encode", "select", "idle"))
        )
