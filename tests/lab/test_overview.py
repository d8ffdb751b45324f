"""The demo's first table is derived from rows by hand: two seeds, failed questions, answers that could not be read."""

from __future__ import annotations

import json
from dataclasses import replace
from statistics import fmean

import pytest

from focus_eval.bench.report.layouts import results_table
from focus_eval.bench.report.recall_layouts import demo_tables, lab_frame
from focus_eval.bench.report.rendering import Value
from focus_eval.bench.report.run import load_run
from focus_eval.external.evidence import evidence_answers, view_of
from focus_eval.lab.overview import recall_overview
from tests.bench.report.simulated import Simulation, simulate_run

SAMPLERS = ("uniform", "topk", "focus", "oracle")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    simulation = Simulation(n_questions=108, samplers=SAMPLERS, seeds=(0, 1))
    read = load_run(simulate_run(tmp_path_factory.mktemp("runs") / "demo", simulation))
    # Rows of a folder are read again at each iteration.
    return replace(read, selections=[*read.selections], answers=[*read.answers])


@pytest.fixture(scope="module")
def lead(run):
    return {row.keys[0]: dict(zip(table.columns, row.figures, strict=True)) for table in demo_tables(run, "focus")[:1]
            for row in table.rows}  # fmt: skip


def recalls(run, sampler):
    """Recall within 2 s by question, the mean over seeds; failed questions have none."""
    by_question = {}
    for row in run.selections:
        if row.sampler == sampler and row.error is None:
            is_near = [any(abs(time - moment) <= 2 for time in row.times_seconds) for moment in row.evidence_seconds]
            by_question.setdefault(row.question_id, []).append(fmean(is_near))
    return {question: fmean(values) for question, values in by_question.items()}


def label_of(lead, sampler):
    (label,) = [label for label in lead if label.split()[0] == sampler]
    return label


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_recall_and_cost_are_those_of_the_rows(run, lead, sampler):
    figures = lead[label_of(lead, sampler)]
    assert figures["recall within 2 s (%)"].ours == pytest.approx(100 * fmean(recalls(run, sampler).values()))
    sampler_rows = [row for row in run.selections if row.sampler == sampler]
    cost = 100 * sum(len(row.pulled_frames) for row in sampler_rows) / sum(row.n_frames or 0 for row in sampler_rows)
    assert figures["frames scored (%)"].ours == pytest.approx(cost)


@pytest.mark.parametrize("sampler", ["uniform", "topk", "oracle"])
def test_the_gain_is_the_mean_of_paired_differences(run, lead, sampler):
    base, sampler_recalls = recalls(run, "focus"), recalls(run, sampler)
    gain = fmean(sampler_recalls[question] - base[question] for question in base.keys() & sampler_recalls.keys())
    assert lead[label_of(lead, sampler)]["minus focus"].ours == pytest.approx(100 * gain)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_accuracy_is_over_questions_that_did_not_fail_and_over_those_the_ceiling_answers(run, lead, sampler):
    scores, ceiling = {}, set()
    sampler_of = {row.selection_id: row.sampler for row in run.selections}
    for answer in run.answers:
        if answer.error is None and sampler_of[answer.selection_id] == "oracle" and answer.score >= 0.5:
            ceiling.add(answer.question_id)
        if answer.error is None and sampler_of[answer.selection_id] == sampler:
            scores.setdefault(answer.question_id, []).append(answer.score)
    figures = lead[label_of(lead, sampler)]
    mean_scores = {question: fmean(values) for question, values in scores.items()}
    assert figures["accuracy (%)"].ours == pytest.approx(100 * fmean(mean_scores.values()))
    answerable = [mean for question, mean in mean_scores.items() if question in ceiling]
    assert figures["answerable only (%)"].ours == pytest.approx(100 * fmean(answerable))


def test_the_effect_of_evidence_in_view_is_of_this_k_within_a_question_and_without_the_ceiling(tmp_path):
    for k, n_questions in ((8, 108), (16, 60)):
        simulate_run(tmp_path, Simulation(n_questions=n_questions, samplers=SAMPLERS, k=k))
    run = load_run(tmp_path)
    row_of = {(row.question_id, row.selection_id): row for row in run.selections}
    for k, table in zip((8, 16), demo_tables(run, "focus"), strict=False):
        scores, answerable = {}, set()
        for answer in run.answers:
            row = row_of[answer.question_id, answer.selection_id]
            if row.k != k or answer.error is not None:
                continue
            if row.sampler == "oracle":
                answerable |= {answer.question_id} if answer.score else set()
                continue
            # One moment with a frame within 2 s is enough.
            in_view = any(abs(time - moment) <= 2 for time in row.times_seconds for moment in row.evidence_seconds)
            scores.setdefault(answer.question_id, {True: [], False: []})[in_view].append(answer.score)
        gains = [fmean(by_view[True]) - fmean(by_view[False]) for by_view in scores.values() if all(by_view.values())]
        notes = " ".join(table.notes)
        assert f"On the {len(gains)} questions where some samplers found the evidence and others did not" in notes
        assert f"changed accuracy by {100 * fmean(gains):+.1f} [" in notes
        assert f"Answerable: the {len(answerable)} of " in notes


def test_what_failed_is_counted_below_the_tables(run):
    lead, by_k, *_ = demo_tables(run, "focus")
    n_selections = sum(row.error is not None for row in run.selections)
    n_answers = sum(row.error is not None for row in run.answers)
    assert n_selections > 0
    note = f"Left out because they failed: {n_selections} of {len(run.selections)} selections"
    assert f"{note}, {n_answers} of {len(run.answers)} answers." in lead.notes
    assert f"{note}." in by_k.notes


def test_every_k_has_its_column_and_a_sampler_that_did_not_run_there_a_dash(run, tmp_path):
    folder = tmp_path / "two"
    simulate_run(folder, Simulation(n_questions=60, samplers=("uniform", "focus"), k=8))
    simulate_run(folder, Simulation(n_questions=60, samplers=("focus",), k=16, models=()))
    by_k = demo_tables(load_run(folder), "focus")[1]
    assert by_k.columns == ("forward equivalents (%)", "frames scored (%)", "K = 8", "K = 16")
    missing = {row.keys[-1]: [figure.ours is None for figure in row.figures[2:]] for row in by_k.rows}
    assert missing["uniform"] == [False, True]
    assert next(values for label, values in missing.items() if label.startswith("focus")) == [False, False]


def test_small_frames_are_shown_both_ways_and_views_are_of_any_size(tmp_path):
    folder = simulate_run(tmp_path / "sizes", Simulation(n_questions=60, samplers=("uniform", "focus"), seeds=(0,)))
    (file,) = folder.glob("selections/*focus*/rows-0.jsonl")
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    small = [{**row, "scales": [0.5] * len(row["keyframes"])} for row in rows]
    file.write_text("".join(json.dumps(row) + "\n" for row in small))
    run = load_run(folder)
    recalls = {"equal pixels": [], "any size": []}
    for row in run.selections:
        if row.sampler == "focus" and row.error is None:
            n_near = [sum(abs(time - at) <= 2 for time in set(row.times_seconds)) for at in row.evidence_seconds]
            recalls["equal pixels"].append(fmean(1 - 0.75**n for n in n_near))
            recalls["any size"].append(fmean(n > 0 for n in n_near))
    for table in (demo_tables(run, "focus")[0], results_table(run)):
        (line,) = [line for line in table.rows if any(key.startswith("focus") for key in line.keys)]
        figures = dict(zip(table.columns, line.figures, strict=True))
        columns = [name for name in figures if "any size" in name]
        assert [figures[name].ours for name in columns] == [pytest.approx(100 * fmean(recalls["any size"]))]
        (equal,) = [name for name in figures if name in ("recall within 2 s (%)", "Recall@2 s (%)")]
        assert figures[equal].ours == pytest.approx(100 * fmean(recalls["equal pixels"]))
        assert any("worth a full frame drawn with probability s²" in note for note in table.notes)
    in_view = evidence_answers(run, min_seconds=0)
    assert {"all", "none"} <= set(view_of(in_view[in_view["sampler"] == "focus"]["recall@5 any size"]))


def test_a_run_of_full_frames_has_no_column_for_sizes(run):
    for table in (*demo_tables(run, "focus"), results_table(run), recall_overview(lab_frame(run))):
        assert not [column for column in table.columns if "any size" in column or "pixels" in column]


def test_an_arrow_stands_only_where_the_adjusted_p_is_below_the_bound_and_the_interval_leaves_out_0():
    def arrow(value, p, low=None, high=None):
        return Value(ours=value, low=low, high=high, is_difference=True, p_adjusted=p).ours_text.split(" [")[0]

    assert [arrow(2.0, 0.049, 0.1, 3.0), arrow(-2.0, 0.049, -3.0, -0.1)] == ["+2.0 ↑", "−2.0 ↓"]
    assert [arrow(2.0, 0.05, 0.1, 3.0), arrow(-2.0, None, -3.0, -0.1)] == ["+2.0", "−2.0"]
    assert [arrow(2.0, 0.001, -0.1, 3.0), arrow(-2.0, 0.001, -3.0, 0.0), arrow(2.0, 0.001)] == ["+2.0", "−2.0", "+2.0"]
