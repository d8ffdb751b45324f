"""Every table, plot, page and export of a run shaped like a real one, against a few lines that only read its rows."""

from __future__ import annotations

import base64
import csv
import gzip
import itertools
import json
import re
from collections import defaultdict
from statistics import fmean, stdev

import pytest
from realistic import BENCHMARKS, CONFIGURATIONS, FRAMES, MODELS, SEEDS, write_run
from typer.testing import CliRunner

from focus_eval.cli import app
from focus_eval.errors import UnknownName
from focus_eval.report.comparisons import baseline_table, recall_tables
from focus_eval.report.hours import cost_tables
from focus_eval.report.page.charts import charts_of, cost_points, length_bars
from focus_eval.report.page.html import render_html, report_tables
from focus_eval.report.page.question_browser import pack_browser
from focus_eval.report.paired_tests import holm
from focus_eval.report.printing import latex_escaped, to_csv, to_latex, to_markdown
from focus_eval.report.run import load_run
from focus_eval.report.statistics import mean_estimate
from focus_eval.report.tables import results_table

LABELS = ("uniform", "random [control]", "aks max_depth=3", "focus (blip)", "focus (clip)")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("runs") / "realistic")


@pytest.fixture(scope="module")
def run(folder):
    return load_run(folder)


@pytest.fixture(scope="module")
def rows(folder):
    """Each answer with its selection, as plain dictionaries, found by reading the files."""
    read = {
        kind: [json.loads(line) for line in (folder / kind / "all" / "rows-0.jsonl").read_text().splitlines()]
        for kind in ("selections", "answers")
    }
    chosen = {(one["benchmark"], one["question_id"], one["selection_id"]): one for one in read["selections"]}
    by_configuration = {(one.sampler, one.encoder): label for one, label in zip(CONFIGURATIONS, LABELS, strict=True)}
    for one in read["selections"]:
        one["label"] = by_configuration[one["sampler"], one["encoder"]]
    for one in read["answers"]:
        one["selection"] = chosen[one["benchmark"], one["question_id"], one["selection_id"]]
    return read


def answers_of(rows, benchmark, model, label, k, *, bucket=None):
    return [
        one
        for one in rows["answers"]
        if (one["benchmark"], one["model"], one["selection"]["label"], one["frames_asked"])
        == (benchmark, model, label, k)
        and bucket in (None, one["bucket"])
    ]


def selections_of(rows, benchmark, label, k):
    return [one for one in rows["selections"] if (one["benchmark"], one["label"], one["k"]) == (benchmark, label, k)]


def by_question(answers):
    """Mean score over seeds of each answered question, with its video and category."""
    scores = defaultdict(list)
    for one in answers:
        if one["error"] is None:
            scores[one["question_id"], one["video"], one["category"]].append(one["score"])
    return {key: fmean(values) for key, values in scores.items()}


def over_types(questions):
    """VSI-Bench's mean: over types, the relative directions' parts first."""
    kinds = defaultdict(list)
    for (_, _, category), score in questions.items():
        kinds[category].append(score)
    directions = [fmean(kinds.pop(kind)) for kind in list(kinds) if kind.startswith("object_rel_direction")]
    return fmean([*(fmean(scores) for scores in kinds.values()), fmean(directions)])


def recall(selection, distance):
    evidence = selection["evidence_seconds"]
    return fmean(
        any(abs(time - moment) <= distance + 1e-6 for time in selection["times_seconds"]) for moment in evidence
    )


def recalls_of(rows, benchmark, label, k, distance):
    """Mean recall over seeds of each question that has evidence and a selection, by question and video."""
    found = defaultdict(list)
    for one in selections_of(rows, benchmark, label, k):
        if one["error"] is None and one["evidence_seconds"]:
            found[one["question_id"], one["video"]].append(recall(one, distance))
    return {key: fmean(values) for key, values in found.items()}


def flips_p(differences):
    """The sign-flip p of differences by (question, video, ...), counted out."""
    sums = defaultdict(float)
    for (_, video, *_), value in differences.items():
        sums[video] += value
    seen = abs(sum(sums.values())) - 1e-9
    totals = [
        abs(sum(sign * value for sign, value in zip(signs, sums.values(), strict=True)))
        for signs in itertools.product((1, -1), repeat=len(sums))
    ]
    return fmean(total >= seen for total in totals)


CELLS = [*itertools.product(BENCHMARKS, MODELS, LABELS, FRAMES)]


def test_the_fixture_holds_what_a_report_may_mix_up(rows):
    assert len(rows["answers"]) == 2 * 24 * 5 * 2 * 3 * 2
    ids = defaultdict(set)
    for one in rows["selections"]:
        ids[one["selection_id"]].add(one["benchmark"])
    assert all(len(benchmarks) == 2 for benchmarks in ids.values()), "a selection's id does not name its benchmark"
    assert sum(one["error"] is not None for one in rows["selections"]) == 2 * 2 * 2 * 5
    assert any(0 < one["score"] < 1 for one in rows["answers"])


@pytest.mark.parametrize(("benchmark", "model", "label", "k"), CELLS[::3] + CELLS[1::7])
def test_every_figure_of_the_overview_is_that_of_its_rows(run, rows, overview, benchmark, model, label, k):
    row = next(row for row in overview.rows if row.keys == (benchmark, model, label, str(k)))
    shown = dict(zip(overview.columns, row.figures, strict=True))
    answers = answers_of(rows, benchmark, model, label, k)
    for title, bucket in (("Short", "short"), ("Medium", "medium"), ("Long", "long"), ("Overall", None)):
        questions = by_question(answers_of(rows, benchmark, model, label, k, bucket=bucket))
        assert shown[title].ours == pytest.approx(100 * fmean(questions.values())), title
        if bucket is None:
            interval = mean_estimate([*questions.values()], [video for _, video, _ in questions])
            assert (shown[title].low, shown[title].high) == pytest.approx((100 * interval.low, 100 * interval.high))
        else:
            assert shown[title].ours_text.endswith("[too few videos]")
    per_seed = [
        100 * fmean(one["score"] for one in answers if one["selection"]["seed"] == seed and one["error"] is None)
        for seed in SEEDS
    ]
    assert shown["Overall"].spread == pytest.approx(stdev(per_seed))
    types = shown["Mean of task types"].ours
    assert types == (pytest.approx(100 * over_types(by_question(answers))) if benchmark == "vsibench" else None)
    for distance in (1, 2, 5):
        figure, known = shown[f"Recall@{distance} s (%)"], recalls_of(rows, benchmark, label, k, distance)
        assert figure.ours == (pytest.approx(100 * fmean(known.values())) if known else None)
    chosen = selections_of(rows, benchmark, label, k)
    seen, total = sum(len(one["pulled_frames"]) for one in chosen), sum(one["n_frames"] for one in chosen)
    assert shown["Frames scored (%)"].ours == pytest.approx(100 * seen / total)
    held = sum(one["seconds"].get(stage, 0) for one in chosen for stage in ("open", "encode", "select", "idle"))
    assert shown["GPU hours"].ours == pytest.approx(held / 3600 / 3)
    counts = row.counts
    assert (counts.questions, counts.asked, counts.expected) == (len(by_question(answers)), 24, 24)
    assert counts.errors == sum(one["error"] is not None for one in answers) == (5 if model == "large_vl" else 2)
    assert counts.unparsed == sum(one["error"] is None and one["parsed"] is None for one in answers) == 1
    assert counts.fallbacks == sum(one["fallback"] is not None for one in answers) == 1
    assert counts.below_k == sum(one["error"] is None and one["frames_fed"] < one["frames_asked"] for one in answers)


@pytest.fixture(scope="module")
def overview(run):
    return results_table(run, "overview")


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
    more = results_table(run, "more_benchmarks")
    for row in more.rows:
        if row.counts is not None:
            questions = by_question(answers_of(rows, "vsibench", row.keys[0], row.keys[1], int(row.keys[2])))
            assert [one.ours for one in row.figures] == [
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
        ours = [row.keys for row in results_table(run, name).rows if row.counts is not None]
        assert any("aks max_depth=3" in keys for keys in ours), name
        assert not any("aks" in keys for keys in ours), name


def test_comparisons_are_those_of_the_rows(run, rows):
    table = baseline_table(run)
    assert len(table.rows) == 2 * 2 * 2 * 4
    ps = []
    for row in table.rows:
        benchmark, model, k, a, b = row.keys
        first, second = (by_question(answers_of(rows, benchmark, model, label, int(k))) for label in (a, b))
        both = {key: second[key] - first[key] for key in first if key in second}
        shown = dict(zip(table.columns, row.figures, strict=True))
        macro = benchmark == "vsibench"
        weighed = over_types(both) if macro else fmean(both.values())
        assert shown["B − A (points)"].ours == pytest.approx(100 * weighed)
        assert shown["Questions"] == str(len(both))
        better = sum(value < -1e-12 for value in both.values()), sum(value > 1e-12 for value in both.values())
        assert shown["Better A / B"] == f"{better[0]} / {better[1]}"
        if not macro:
            assert shown["p"].ours == pytest.approx(flips_p(both))
        ps.append(shown["p"].ours)
    adjusted = [row.figures[table.columns.index("p (Holm)")].ours for row in table.rows]
    assert adjusted == pytest.approx(list(holm(ps)))
    assert "McNemar p" not in table.columns, "scores are means over three seeds"
    for row, p_value in zip(table.rows, adjusted, strict=True):
        assert ("↑" in row.figures[0].ours_text or "↓" in row.figures[0].ours_text) == (p_value < 0.05)


def test_paired_recall_is_that_of_the_rows(run, rows):
    against, between = recall_tables(run)
    assert (against.name, between.name) == ("recall_against_baseline", "recall_pairs")
    assert len(against.rows) == 2 * 3 * 4, "one benchmark has evidence; K, distances, samplers"
    assert len(between.rows) == 2 * 3 * 6
    for table in (against, between):
        for row in table.rows:
            benchmark, k, within, a, b = row.keys
            distance = float(within.split()[0])
            first, second = (recalls_of(rows, benchmark, label, int(k), distance) for label in (a, b))
            both = {key: second[key] - first[key] for key in first if key in second}
            assert row.figures[0].ours == pytest.approx(100 * fmean(both.values()))
            assert row.figures[3].ours == pytest.approx(flips_p(both))
            assert row.figures[1] == str(len(both)) == "24"
        adjusted = [row.figures[4].ours for row in table.rows]
        assert adjusted == pytest.approx(list(holm([row.figures[3].ours for row in table.rows])))


def test_any_sampler_can_be_the_baseline_by_name_or_label(run):
    for baseline, labels in (("aks", {"aks max_depth=3"}), ("focus (clip)", {"focus (clip)"})):
        tables = [baseline_table(run, baseline=baseline), recall_tables(run, baseline=baseline)[0]]
        assert all({row.keys[3] for row in table.rows} == labels for table in tables)
    with pytest.raises(UnknownName, match="unknown baseline 'fokus'; did you mean 'focus'"):
        report_tables(run, baseline="fokus")


def test_the_cost_table_is_that_of_the_rows(run, rows):
    (table,) = cost_tables(run)
    assert len(table.rows) == 2 * 5 * 2
    for row in table.rows:
        chosen = selections_of(rows, row.keys[0], row.keys[1], int(row.keys[2]))
        shown = dict(zip(table.columns, row.figures, strict=True))
        pulls = sum(len(one["pulled_frames"]) for one in chosen)
        assert shown["Frames scored"] == f"{pulls / 3:,.0f}"
        for stage in ("open", "encode", "select", "idle", "decode"):
            seconds = sum(one["seconds"].get(stage, 0) for one in chosen)
            assert shown[stage.capitalize()].ours == pytest.approx(seconds / 3600 / 3)
        assert shown["All"].ours == pytest.approx(
            sum(shown[stage.capitalize()].ours for stage in ("open", "encode", "select", "idle"))
        )


def test_points_of_the_plots_are_those_of_one_benchmark_and_one_k(run, rows):
    for benchmark, model in itertools.product(BENCHMARKS, MODELS):
        frame = run.answer_frame
        part = frame[(frame["benchmark"] == benchmark) & (frame["model"] == model)]
        by_cost = {cost: cost_points(run, part, cost=cost) for cost in ("frames scored (%)", "GPU hours")}
        assert [len(points) for points in by_cost.values()] == [10, 10]
        for scored, hours in zip(*by_cost.values(), strict=True):
            label, k = scored.label, int(scored.name.rpartition("K=")[2])
            chosen = selections_of(rows, benchmark, label, k)
            questions = by_question(answers_of(rows, benchmark, model, label, k))
            accuracy = over_types(questions) if benchmark == "vsibench" else fmean(questions.values())
            assert scored.accuracy == hours.accuracy == pytest.approx(100 * accuracy)
            total = sum(one["n_frames"] for one in chosen)
            assert scored.cost == pytest.approx(100 * sum(len(one["pulled_frames"]) for one in chosen) / total)
            held = sum(one["seconds"].get(stage, 0) for one in chosen for stage in ("open", "encode", "select"))
            assert hours.cost == pytest.approx(held / 3600 / 3)
            assert (scored.short, hours.short) == (f"K={k}", f"K={k}")


def recall_at_2(row):
    moments = row["evidence_seconds"]
    if row["error"] or not moments:
        return None
    return fmean(any(abs(time - moment) <= 2 for time in row["times_seconds"]) for moment in moments)


def test_the_svg_says_each_point_and_each_bar_with_its_k(run, rows):
    charts = charts_of(run)
    ks = len(FRAMES)
    assert len(charts) == ks + 2 * 2 * (2 * ks + ks), "recall of the annotated one, two costs, lengths; once per K"
    for label, k in itertools.product(LABELS, FRAMES):
        caption = f"vsibench, large_vl: accuracy against frames scored (%), K={k}"
        drawn = next(one for one in charts if one.caption == caption)
        accuracy = 100 * over_types(by_question(answers_of(rows, "vsibench", "large_vl", label, k)))
        assert f"<title>{label}: {accuracy:.1f} % [" in drawn.svg
        recall = [recall_at_2(one) for one in selections_of(rows, "longvideobench", label, k)]
        by_question_then_seed = defaultdict(list)
        for one, value in zip(selections_of(rows, "longvideobench", label, k), recall, strict=True):
            if value is not None:
                by_question_then_seed[one["question_id"]].append(value)
        mean = 100 * fmean(fmean(values) for values in by_question_then_seed.values())
        caption = f"longvideobench: evidence recall within 2 s against frames scored (%), K={k}"
        assert f"<title>{label}: {mean:.1f} %" in next(one for one in charts if one.caption == caption).svg
    for k in FRAMES:
        caption = f"longvideobench, small_vl: accuracy by length of the video, K={k}"
        bars = next(one for one in charts if one.caption == caption)
        for label, bucket in itertools.product(LABELS, ("short", "medium", "long")):
            questions = by_question(answers_of(rows, "longvideobench", "small_vl", label, k, bucket=bucket))
            assert f"<title>{bucket}, {label}: {100 * fmean(questions.values()):.1f} %" in bars.svg


def test_bars_are_of_the_lines_they_are_given(run):
    frame = run.answer_frame
    part = frame[(frame["benchmark"] == "vsibench") & (frame["model"] == "small_vl") & (frame["k"] == 4)]
    assert len(length_bars(part)) == 3 * len(LABELS)


def test_the_question_browser_has_each_series_once_with_its_own_answers(run, rows):
    browser = pack_browser(run)
    names = [one["name"] for one in browser.index["series"]]
    assert len(names) == len(set(names)) == 5 * 2 * 2 * 3
    answers = {
        (one["benchmark"], one["question_id"], one["model"], one["selection_id"]): one for one in rows["answers"]
    }
    wanted = {
        f"{one['label']}, K={one['k']}, {model}, seed {one['seed']}": (model, one["selection_id"])
        for one in rows["selections"]
        for model in MODELS
    }
    assert set(names) == set(wanted)
    assert len(browser.index["questions"]) == 48
    for question_id, benchmark, _, _, verdicts, *_ in browser.index["questions"]:
        for name, verdict in zip(names, verdicts, strict=True):
            one = answers[(benchmark, question_id, *wanted[name])]
            if one["error"]:
                expected = "e"
            elif one["parsed"] is None:
                expected = "u"
            else:
                expected = {1.0: "r", 0.0: "w"}.get(one["score"], "p")
            assert verdict == expected
    details = [
        detail for chunk in browser.chunks for detail in json.loads(gzip.decompress(base64.b64decode(chunk)).decode())
    ]
    for (question_id, benchmark, *_), detail in zip(browser.index["questions"], details, strict=True):
        for name, shown in zip(names, detail["series"], strict=True):
            assert shown["score"] == answers[(benchmark, question_id, *wanted[name])]["score"]


def test_every_number_of_the_tables_stands_on_the_page_and_in_every_export(run):
    tables = report_tables(run)
    page = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", render_html(run, tables=tables)))
    for table in tables:
        markdown, latex = to_markdown(table), to_latex(table)
        lines = list(csv.reader(to_csv(table).splitlines()))
        for row, line in zip(table.rows, lines[1:], strict=True):
            for title, one in zip(table.columns, row.figures, strict=True):
                text = one if isinstance(one, str) else one.ours_text
                assert text in markdown
                assert latex_escaped(text) in latex
                assert text in page
                if not isinstance(one, str) and one.ours is not None:
                    assert float(line[lines[0].index(title)]) == pytest.approx(one.ours, rel=1e-9)


def test_the_report_command_writes_them_and_leaves_nothing_of_an_earlier_one(folder, rows, tmp_path):
    stale = [tmp_path / "report-against_baseline.csv", tmp_path / "figures" / "efficiency-other-model.pdf"]
    (tmp_path / "figures").mkdir()
    for path in (*stale, tmp_path / "report-mine.csv"):
        path.write_text("old")
    done = CliRunner().invoke(app, ["report", str(folder), "--out", str(tmp_path), "--no-html"])
    assert done.exit_code == 0, done.output
    assert stale[0].read_text() != "old"
    assert not stale[1].exists()
    assert (tmp_path / "report-mine.csv").exists(), "only what a report writes is removed"
    assert len(list((tmp_path / "figures").glob("efficiency-*.pdf"))) == 5, "accuracy of 2 models on 2, recall on 1"
    with open(tmp_path / "report-recall_pairs.csv", newline="") as file:
        written = list(csv.DictReader(file))
    first = written[0]
    a, b = (recalls_of(rows, "longvideobench", first[side], int(first["K"]), 1) for side in ("A", "B"))
    assert float(first["B − A (points)"]) == pytest.approx(100 * fmean(b[key] - a[key] for key in a))
    refused = CliRunner().invoke(app, ["report", str(folder), "--out", str(tmp_path), "--baseline", "fokus"])
    assert isinstance(refused.exception, UnknownName)
