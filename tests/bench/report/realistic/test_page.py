"""Plots, page and exports of a realistic run show the figures of its rows."""

from __future__ import annotations

import base64
import csv
import gzip
import itertools
import json
import re
import shutil
from collections import defaultdict
from statistics import fmean

import pytest
from typer.testing import CliRunner

from focus_eval.bench.report.comparisons import run_comparison
from focus_eval.bench.report.page.browser import pack_browser
from focus_eval.bench.report.page.charts import charts_of, cost_points
from focus_eval.bench.report.page.html import render_html, report_tables
from focus_eval.bench.report.rendering import latex_escaped, narrowed, to_csv, to_latex, to_markdown
from focus_eval.bench.report.run import Run, load_run
from focus_eval.cli import app
from focus_eval.core.errors import UnknownName
from tests.bench.report.realistic.by_hand import (
    LABELS,
    answers_of,
    by_question,
    over_types,
    recall_at_2,
    recalls_of,
    selections_of,
)
from tests.bench.report.realistic.made_run import BENCHMARKS, FRAMES, MODELS

pytestmark = pytest.mark.slow


def test_points_of_the_plots_are_those_of_one_benchmark_and_one_k(run, rows):
    for benchmark, model, k in itertools.product(BENCHMARKS, MODELS, FRAMES):
        frame = run.answer_frame
        part = frame[(frame["benchmark"] == benchmark) & (frame["model"] == model) & (frame["k"] == k)]
        by_cost = cost_points(run, part, costs=("frames scored (%)", "GPU hours"))
        assert [len(points) for points in by_cost.values()] == [5, 5]
        for scored, hours in zip(*by_cost.values(), strict=True):
            label = scored.label
            selections = selections_of(rows, benchmark, label, k)
            questions = by_question(answers_of(rows, benchmark, model, label, k))
            accuracy = over_types(questions) if benchmark == "vsibench" else fmean(questions.values())
            assert scored.value.ours == hours.value.ours == pytest.approx(100 * accuracy)
            total = sum(selection["n_frames"] for selection in selections)
            assert scored.cost == pytest.approx(
                100 * sum(len(selection["pulled_frames"]) for selection in selections) / total
            )
            held_seconds = sum(
                selection["seconds"].get(stage, 0) for selection in selections for stage in ("open", "encode", "select")
            )
            assert hours.cost == pytest.approx(held_seconds / 3600 / 3)


def test_the_svg_says_each_point_with_its_k(run, rows):
    charts = charts_of(run)
    ks = len(FRAMES)
    assert len(charts) == 2 * ks + 2 * 2 * 3 * ks, "recall of the annotated one, and its costs; once per K"
    for label, k in itertools.product(LABELS, FRAMES):
        caption = f"vsibench, large_vl: accuracy against frames scored (%), K={k}"
        drawn = next(chart for chart in charts if chart.caption == caption)
        accuracy = 100 * over_types(by_question(answers_of(rows, "vsibench", "large_vl", label, k)))
        assert f"<title>{label}: {accuracy:.1f} ±" in drawn.svg
        recall = [recall_at_2(item) for item in selections_of(rows, "longvideobench", label, k)]
        by_question_then_seed = defaultdict(list)
        for item, value in zip(selections_of(rows, "longvideobench", label, k), recall, strict=True):
            if value is not None:
                by_question_then_seed[item["question_id"]].append(value)
        mean = 100 * fmean(fmean(values) for values in by_question_then_seed.values())
        caption = f"longvideobench: evidence recall within 2 s against frames scored (%), K={k}"
        assert f"<title>{label}: {mean:.1f} [" in next(chart for chart in charts if chart.caption == caption).svg


def test_the_question_browser_has_each_series_once_with_its_own_answers(run, rows):
    browser = pack_browser(run)
    names = [item["name"] for item in browser.index["series"]]
    assert len(names) == len(set(names)) == 5 * 2 * 2 * 3
    answers = {
        (row["benchmark"], row["question_id"], row["model"], row["selection_id"]): row for row in rows["answers"]
    }
    ids_by_name = {
        f"{row['label']}, K={row['k']}, {model}, seed {row['seed']}": (model, row["selection_id"])
        for row in rows["selections"]
        for model in MODELS
    }
    assert set(names) == set(ids_by_name)
    assert len(browser.index["questions"]) == 48
    for question_id, benchmark, _, _, verdicts, *_ in browser.index["questions"]:
        for name, verdict in zip(names, verdicts, strict=True):
            answer = answers[(benchmark, question_id, *ids_by_name[name])]
            if answer["error"]:
                expected = "e"
            elif answer["parsed"] is None:
                expected = "u"
            else:
                expected = {1.0: "r", 0.0: "w"}.get(answer["score"], "p")
            assert verdict == expected
    details = [
        detail for chunk in browser.chunks for detail in json.loads(gzip.decompress(base64.b64decode(chunk)).decode())
    ]
    for (question_id, benchmark, *_), detail in zip(browser.index["questions"], details, strict=True):
        for name, series in zip(names, detail["series"], strict=True):
            assert series["score"] == answers[(benchmark, question_id, *ids_by_name[name])]["score"]


def test_every_number_of_the_tables_stands_on_the_page_and_in_every_export(run, tables):
    page = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", render_html(run, tables=tables)))
    for table in tables:
        markdown, latex = to_markdown(table), to_latex(table)
        lines = list(csv.reader(to_csv(table).splitlines()))
        # The page, Markdown and LaTeX say once for a column that it has no interval.
        on_page = narrowed(table)
        for note in set(on_page.notes) - set(table.notes):
            assert note in page
        for row, page_row, line in zip(table.rows, on_page.rows, lines[1:], strict=True):
            for title, column, page_figure in zip(table.columns, row.figures, page_row.figures, strict=True):
                text = page_figure if isinstance(page_figure, str) else page_figure.ours_text
                assert text in markdown
                assert latex_escaped(text) in latex
                assert text in page
                if not isinstance(column, str) and column.ours is not None:
                    assert float(line[lines[0].index(title)]) == pytest.approx(column.ours, rel=1e-9)


@pytest.mark.slow
@pytest.mark.usefixtures("unsaved_figures")
def test_the_report_command_writes_them_and_leaves_nothing_of_an_earlier_one(folder, rows, tmp_path):
    stale = [tmp_path / "report-against_baseline.csv", tmp_path / "figures" / "efficiency-other-model.pdf"]
    (tmp_path / "figures").mkdir()
    for path in (*stale, tmp_path / "report-mine.csv"):
        path.write_text("old")
    result = CliRunner().invoke(app, ["report", str(folder), "--out", str(tmp_path), "--no-html"])
    assert result.exit_code == 0, result.output
    assert stale[0].read_text() != "old"
    assert not stale[1].exists()
    assert (tmp_path / "report-mine.csv").exists(), "only what a report writes is removed"
    assert len(list((tmp_path / "figures").glob("efficiency-*.pdf"))) == 5, "accuracy of 2 models on 2, recall on 1"
    with open(tmp_path / "report-recall_against_baseline.csv", newline="") as file:
        written = list(csv.DictReader(file))
    first = written[0]
    a, b = (recalls_of(rows, "longvideobench", first[side], int(first["K"]), 1) for side in ("A", "B"))
    assert float(first["B − A (points)"]) == pytest.approx(100 * fmean(b[key] - a[key] for key in a))
    refused = CliRunner().invoke(app, ["report", str(folder), "--out", str(tmp_path), "--baseline", "fokus"])
    assert isinstance(refused.exception, UnknownName)


def test_a_sampler_that_is_not_compared_is_named_with_the_reason(folder, tables, tmp_path):
    copied = shutil.copytree(folder, tmp_path / "run")
    path = copied / "answers" / "all" / "rows-0.jsonl"
    uniform = {row.selection_id for row in load_run(folder).selections if row.sampler == "uniform"}
    answers = [json.loads(line) for line in path.read_text().splitlines()]
    failed = {"error": "the server did not answer", "answer": None, "parsed": None, "score": 0.0}
    path.write_text(
        "".join(
            json.dumps({**row, **failed} if row["selection_id"] in uniform and row["benchmark"] == "vsibench" else row)
            + "\n"
            for row in answers
            if not (row["selection_id"] in uniform and row["model"] == "large_vl")
        )
    )
    notes = [note for table in report_tables(load_run(copied)) for note in table.notes if "Not compared" in note]
    assert notes == [
        "Not compared, because uniform was not run: longvideobench, large_vl, K 4; longvideobench, large_vl, K 16; "
        "vsibench, large_vl, K 4; vsibench, large_vl, K 16. --baseline names another.",
        "Not compared, because no question has a score of it and of the baseline: random [control], "
        "aks max_depth=3, focus (blip), focus (clip) (vsibench, small_vl, K 4); random [control], aks max_depth=3, "
        "focus (blip), focus (clip) (vsibench, small_vl, K 16).",
    ]
    assert not [note for table in tables for note in table.notes if "Not compared" in note]


def test_cells_that_the_other_run_lacks_are_named_by_group_and_counted(run):
    first = next(answer for answer in run.answers if answer.error is None)
    cell = (first.benchmark, first.model, first.selection_id)
    answers = [answer for answer in run.answers if (answer.benchmark, answer.model, answer.selection_id) == cell]
    table = run_comparison(run, Run("part", list(run.selections), answers))
    [note] = [note for note in table.notes if note.startswith("Not compared")]
    *groups, rest = note.removesuffix(f" ({run.name}).").partition(": ")[2].split("; ")
    listed = [label for group in groups for label in group.rpartition(" (")[0].split(", ")]
    n_cells = len(BENCHMARKS) * len(MODELS) * len(FRAMES) * len(LABELS)
    assert len(groups) == 4
    assert set(listed) == set(LABELS)
    assert rest == f"{n_cells - 1 - len(listed)} more cells"
