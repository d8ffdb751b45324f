"""Tables: figures counted by hand, the paper's shape, four ways of printing."""

from __future__ import annotations

import io
from collections import Counter
from dataclasses import replace

import pytest

from focus_eval.bench.report.comparisons import baseline_table, not_compared, run_comparison
from focus_eval.bench.report.layouts import LAYOUTS, results_table
from focus_eval.bench.report.measures import hours_per_seed
from focus_eval.bench.report.page.charts import panels_of
from focus_eval.bench.report.page.html import render_html
from focus_eval.bench.report.rendering import Counts, Table, TableRow, Value, to_latex, to_markdown, to_terminal
from focus_eval.bench.report.run import Run, load_run
from focus_eval.bench.report.statistics import mean_estimate
from focus_eval.core.errors import InvalidInput
from focus_eval.keyframes.rows.records import BLOCKING_STAGES
from tests.bench.report.simulated import PAPERS, Simulation, simulate_run, simulated_parts


def line(table, *keys):
    return next(row for row in table.rows if row.keys == keys)


def test_a_benchmark_and_a_model_without_answers_are_named_below_the_table():
    parts = {name: next(iter(simulated_parts(Simulation(n_questions=3, benchmark=name)))) for name in ("a", "b")}
    (_, rows, answers), (_, second_rows, _) = parts.values()
    run = Run("going on", [*rows, *second_rows], [row for replies in answers.values() for row in replies])
    planned_run = replace(run, provenance={"matrix": {"models": [{"name": "zero_shot"}, {"name": "other"}]}})
    notes = " ".join(results_table(planned_run).notes)
    assert "Without an answer, so not in this table: benchmark b." in notes
    assert "Without an answer, so not in this table: model other." in notes
    assert "Without an answer" not in " ".join(results_table(Run("whole", rows, run.answers)).notes)


def test_the_figures_are_those_of_the_rows(by_length_run):
    row = line(results_table(by_length_run), "longvideobench", "focus")
    answers = [answer for answer in by_length_run.answers if answer.selection_id.startswith("focus-")]
    good = [answer for answer in answers if answer.error is None]
    for place, bucket in enumerate(("short", "medium", "long", None)):
        bucket_answers = [answer for answer in good if bucket in (None, answer.bucket)]
        by_hand = mean_estimate(
            [answer.score for answer in bucket_answers], [answer.video for answer in bucket_answers]
        )
        assert row.figures[place].ours == pytest.approx(100 * by_hand.value)
        assert row.figures[place].low == pytest.approx(100 * by_hand.low)
    assert row.counts == Counts(
        benchmarks="longvideobench",
        questions=len(good),
        attempted=len(answers),
        expected=120,
        unparsed=sum(answer.is_unparsed for answer in answers),
        errors=len(answers) - len(good),
        fallbacks=sum(answer.fallback is not None for answer in answers),
        below_k=sum(answer.frames_fed < answer.frames_asked for answer in good),
    )
    assert row.counts.unparsed == 2
    assert row.counts.errors == 1
    assert row.counts.fallbacks == 4


def test_the_papers_lines_stand_in_the_papers_order(papers_run):
    table = results_table(papers_run)
    assert [row.keys for row in table.rows][:5] == [
        ("longvideobench", "uniform"),
        ("longvideobench", "topk"),
        ("longvideobench", "aks"),
        ("longvideobench", "focus"),
        ("longvideobench", "focus_released"),
    ]
    focus, released = line(table, "longvideobench", "focus"), line(table, "longvideobench", "focus_released")
    assert [figure.published for figure in focus.figures] == [72.3, 59.0, 63.7, 63.5]
    assert [figure.published for figure in released.figures] == [72.3, 59.0, 63.7, 63.5]
    published_only = line(table, "videomme", "aks")
    assert published_only.figures[3].published == 64.6
    assert published_only.counts is None
    assert "table 2" in " ".join(table.notes)


@pytest.mark.parametrize("name", [name for name, layout in LAYOUTS.items() if layout.published_by])
def test_every_published_figure_has_its_place(name):
    table = results_table(Run("empty", [], [], {}), name)
    printed = [figure.published for row in table.rows for figure in row.figures]
    layout = LAYOUTS[name]
    anchored = [
        float(entry[column.published]) if column.published and entry[column.published] else None
        for entry in layout.published
        for column in layout.columns
    ]
    assert printed == anchored
    assert len(printed) > 2


def test_variants_find_their_published_line(tmp_path):
    run = load_run(simulate_run(tmp_path, Simulation(samplers=("uniform", "focus"), **PAPERS)))
    assert line(results_table(run, "alpha"), "focus", "0.25").figures[0].published == 63.5
    assert line(results_table(run, "clip_length"), "focus", "16").figures[0].published == 63.5
    assert line(results_table(run, "clip_length"), "uniform", "").figures[0].published == 58.9
    assert line(results_table(run, "two_stage"), "llava_video_7b").figures[3].published == 63.5
    assert line(results_table(run, "efficiency"), "focus").figures[0].published == 1.6
    assert line(results_table(run, "main_results"), "llava_video_7b", "focus").figures[1].published == 65.4


@pytest.mark.parametrize(
    "change",
    [{"k": 16}, {"models": ("qwen2_vl_7b",)}, {"encoder": "clip"}, {"options": {"temperature": 0.5}}],
    ids=["K", "model", "encoder", "options"],
)
def test_a_published_figure_stands_beside_its_own_settings_only(tmp_path, change):
    options = change.pop("options", {})
    run = load_run(simulate_run(tmp_path, Simulation(samplers=("uniform", "focus"), **{**PAPERS, **change})))
    if options:
        rows = [replace(row, changed_options=options if row.sampler == "focus" else {}) for row in run.selections]
        run = replace(run, selections=rows)
    rows = results_table(run, "by_length").rows
    our_rows, papers = [row for row in rows if row.keys[0] == "longvideobench" and row.keys[1].split()[0] == "focus"]
    assert [figure.published for figure in our_rows.figures] == [None] * 4
    assert [figure.published for figure in papers.figures] == [72.3, 59.0, 63.7, 63.5]
    assert [figure.ours for figure in papers.figures] == [None] * 4


def test_hours_on_a_cpu_are_never_compared_with_the_papers(tmp_path):
    for device, title, published in (("cpu: x", "Device-hours (cpu)", None), ("cuda: NVIDIA x", "GPU hours", 5.5)):
        folder = simulate_run(tmp_path / title, Simulation(samplers=("focus",), device=device, **PAPERS))
        table = results_table(load_run(folder), "efficiency")
        assert table.columns == ("Frames scored (%)", "Forward equivalents (%)", title)
        assert line(table, "focus").figures[2].published == published


def test_frames_seen_are_pulls_over_frames(by_length_run):
    table = results_table(by_length_run, "efficiency")
    rows = [row for row in by_length_run.selections if row.sampler == "topk" and row.error is None]
    share = sum(len(row.pulled_frames) for row in rows) / sum(row.n_frames for row in rows)
    assert line(table, "topk").figures[0].ours == pytest.approx(100 * share)


def test_only_an_adjusted_p_below_one_in_twenty_with_an_interval_without_0_earns_an_arrow():
    distant = Value(ours=70.0, low=67.0, high=73.0, published=63.5)
    unclear = Value(ours=2.0, low=0.5, high=3.5, is_difference=True, p_adjusted=0.05)
    disputed = Value(ours=-2.0, low=-4.0, high=0.5, is_difference=True, p_adjusted=0.049)
    clear = Value(ours=-2.0, low=-4.0, high=-0.5, is_difference=True, p_adjusted=0.049)
    assert unclear.ours_text == "+2.0 [0.5, 3.5]", "never from the interval"
    assert disputed.ours_text == "−2.0 [−4.0, 0.5]", "nor from p alone"
    assert clear.ours_text == "−2.0 ↓ [−4.0, −0.5]"
    table = Table(
        name="t",
        title="T",
        key_titles=("S",),
        columns=("Accuracy",),
        rows=(TableRow(("a",), (distant,)), TableRow(("b",), (clear,))),
    )
    assert "**" not in to_markdown(table)
    assert "(paper 63.5, +6.5)" in to_markdown(table)
    assert r"\textbf" not in to_latex(table)
    assert to_latex(table).count(r"\downarrow") == 1


def test_too_few_videos_is_said_where_the_interval_would_stand():
    assert Value(ours=33.3, has_too_few_videos=True).ours_text == "33.3 [too few videos]"
    assert Value(text="not scored here").ours_text == "not scored here"


def test_samplers_that_do_not_differ_get_no_arrow(by_length_run):
    table = baseline_table(by_length_run)
    by_label = {row.keys[4]: row.figures for row in table.rows}
    assert "↑" in by_label["topk"][0].ours_text
    copied = replace(by_length_run, selections=by_length_run.selections, answers=by_length_run.answers)
    comparison = run_comparison(by_length_run, copied)
    assert not any(row.figures[0].is_clear for row in comparison.rows)
    assert all(row.figures[0].ours == 0 for row in comparison.rows)
    assert [row.figures[2] for row in comparison.rows] == ["0 / 0"] * 4


def test_a_comparison_counts_who_alone_is_right(by_length_run):
    scores = {
        name: {row.question_id: row.score for row in by_length_run.answers if row.cell.endswith(name) and not row.error}
        for name in ("uniform", "topk")
    }
    only_topk = sum(scores["topk"][key] > scores["uniform"][key] for key in scores["topk"])
    only_uniform = sum(scores["topk"][key] < scores["uniform"][key] for key in scores["topk"])
    row = next(row for row in baseline_table(by_length_run).rows if row.keys[4] == "topk")
    assert row.figures[1] == str(len(scores["topk"]))
    assert row.figures[2] == f"{only_uniform} / {only_topk}"


def test_two_runs_with_other_encoders_say_which(by_length_run):
    clip = replace(
        by_length_run,
        selections=[replace(row, encoder="clip" if row.encoder else "") for row in by_length_run.selections],
    )
    names = {row.keys[3:] for row in run_comparison(by_length_run, clip).rows}
    assert names == {
        ("uniform", "uniform"),
        *((f"{name} (offline)", f"{name} (clip)") for name in ("topk", "focus", "focus_released")),
    }


def test_questions_are_paired_by_their_ids_whatever_their_order(by_length_run):
    answers = list(by_length_run.answers)[::-1]
    first = answers[0]
    # The same answers in another order, and one question of the first cell gone.
    turned = Run("turned", by_length_run.selections, answers[1:], {})
    table = run_comparison(by_length_run, turned)
    assert {row.figures[2] for row in table.rows} == {"0 / 0"}
    counts = sorted({int(row.figures[1]) for row in table.rows})
    scored = [answer for answer in by_length_run.answers if answer.cell_id == first.cell_id and answer.error is None]
    assert min(counts) == len(scored) - (first.error is None)


def test_a_comparison_says_how_many_failed_questions_it_leaves_out(by_length_run):
    n_failed = Counter(row.cell for row in by_length_run.answers if row.error)
    assert n_failed
    left_out = [note for note in run_comparison(by_length_run, by_length_run).notes if "left out" in note]
    assert sorted(int(note.split(": ")[1].split()[0]) for note in left_out) == sorted(n_failed.values())


def test_runs_without_a_common_question_are_not_compared(by_length_run, tmp_path):
    other_run = load_run(simulate_run(tmp_path, Simulation(benchmark="videomme")))
    with pytest.raises(InvalidInput, match="4 cells could be meant"):
        run_comparison(by_length_run, other_run)


def test_a_comparison_with_a_margin_tests_that_the_difference_is_smaller(by_length_run):
    # Equal answers to 119 questions about a few dozen videos: within 40 points, not within 1.
    for margin, is_equivalent in ((40.0, True), (1.0, False)):
        table = run_comparison(by_length_run, by_length_run, margin=margin)
        assert table.columns[-1] == f"p within ±{margin:g}"
        assert {row.figures[-1].ours < 0.05 for row in table.rows} == {is_equivalent}
        assert any(note.startswith(f"p within ±{margin:g}: two one-sided tests") for note in table.notes)
    assert not any("within" in column for column in run_comparison(by_length_run, by_length_run).columns)
    with pytest.raises(InvalidInput, match="margin must be above 0"):
        run_comparison(by_length_run, by_length_run, margin=0.0)


def test_a_partial_run_says_how_partial(by_length_run):
    part = Run("part", by_length_run.selections, by_length_run.answers, {"matrix": {"anchors": "by_length"}})
    table = results_table(part)
    assert "Partial run: 119 of 1337 questions of longvideobench." in table.notes
    assert "Each look at a growing run is one more chance of a false arrow." in table.notes
    assert "119 of 1337" in to_markdown(table)
    assert not any("Partial" in note for note in results_table(by_length_run).notes)


def test_a_guess_that_was_right_is_said_beside_unparsed_answers(by_length_run):
    assert "An answer that could not be parsed is wrong." in results_table(by_length_run).notes
    answers = list(by_length_run.answers)
    first = next(at for at, answer in enumerate(answers) if answer.is_unparsed)
    answers[first] = replace(answers[first], score=1.0, metric="lvb_acc")
    notes = results_table(Run("x", by_length_run.selections, answers, {})).notes
    note = "but 1 of this run got points from a rule of lmms-eval's, which may guess."
    assert f"An answer that could not be parsed is wrong, {note}" in notes


def test_several_seeds_show_mean_and_spread(demo_run):
    figure = line(results_table(demo_run), "longvideobench", "zero_shot", "topk").figures[3]
    seed_means = []
    for seed in (0, 1):
        scores = [row.score for row in demo_run.answers if row.selection_id == f"topk-8-{seed}" and row.error is None]
        seed_means.append(100 * sum(scores) / len(scores))
    assert figure.ours == pytest.approx(sum(seed_means) / 2)
    assert figure.spread == pytest.approx(abs(seed_means[0] - seed_means[1]) / 2**0.5)
    assert "±" in figure.ours_text


def test_hours_are_those_of_one_seed(demo_run):
    rows = [row for row in demo_run.selections if row.sampler == "topk"]
    assert {row.seed for row in rows} == {0, 1}
    held_seconds = sum(row.seconds.get(stage, 0.0) for row in rows for stage in BLOCKING_STAGES)
    topk_lines = demo_run.selection_frame[demo_run.selection_frame["sampler"] == "topk"]
    assert hours_per_seed(topk_lines) == pytest.approx(held_seconds / 3600 / 2)


def test_an_overview_without_evidence_has_no_recall(demo_run):
    assert "Recall@1 s (%)" in results_table(demo_run).columns
    bare = [replace(row, evidence_seconds=[]) for row in demo_run.selections]
    assert "Recall@1 s (%)" not in results_table(Run("x", bare, demo_run.answers, {})).columns


def test_a_run_that_only_selects_has_a_table_too(demo_run):
    run = Run("x", demo_run.selections, [], {})
    table = results_table(run)
    assert table.columns == (
        "Recall@1 s (%)",
        "Recall@2 s (%)",
        "Recall@5 s (%)",
        "Frames scored (%)",
        "Forward equivalents (%)",
        "Device-hours (cpu)",
    )
    assert table.rows[0].counts.errors == 2, "one question under two seeds"
    figures = [figure for row in results_table(run, "main_results").rows for figure in row.figures]
    assert all(figure.ours is None for figure in figures)
    assert any(figure.published is not None for figure in figures)


def test_answers_without_their_selection_are_refused(demo_run):
    with pytest.raises(InvalidInput, match=r"answers without their selection, the first is 'q0\d+'"):
        results_table(Run("x", list(demo_run.selections)[5:], demo_run.answers, {}))


def test_the_terminal_table_shows_ours_and_the_paper(by_length_run):
    from rich.console import Console

    console = Console(width=300, file=io.StringIO())
    (drawn,) = to_terminal(results_table(by_length_run), 300)
    console.print(drawn)
    text = console.file.getvalue()
    assert "paper 63.5" in text
    assert "focus_released" in text


def test_hours_that_another_selection_paid_for_are_neither_compared_nor_drawn(tmp_path):
    simulation = Simulation(samplers=("topk", "focus"), device="cuda: NVIDIA x", **PAPERS)
    paid = load_run(simulate_run(tmp_path, simulation))
    shared = replace(
        paid, selections=[replace(row, forwards=0) if row.sampler == "focus" else row for row in paid.selections]
    )
    for run, published, n_panels, notes in ((paid, 5.5, 5, 0), (shared, None, 4, 1)):
        table = results_table(run, "efficiency")
        assert line(table, "focus").figures[2].published == published
        assert sum("Hours: of each line alone" in note for note in table.notes) == notes
        assert sum(map(len, panels_of(run).values())) == n_panels


@pytest.mark.slow
def test_what_is_asked_otherwise_is_named_once_wherever_a_published_figure_stands(tmp_path):
    """Under the table that has it, else under the plots."""
    simulation = Simulation(n_questions=6, samplers=("uniform", "focus"), **PAPERS)
    for anchors in ("", "main_results"):
        folder = simulate_run(tmp_path / f"run {anchors}", simulation, anchors=anchors)
        page = render_html(load_run(folder), thumbnail_bytes=0)
        assert page.count("The published runs differ in more than these figures") == 1
        assert "hollow: the paper" in page
    other_folder = simulate_run(tmp_path / "other", Simulation(n_questions=6, samplers=("uniform", "focus")))
    page = render_html(load_run(other_folder), thumbnail_bytes=0)
    assert "published runs differ" not in page
    assert "hollow" not in page.partition("<script")[0]


@pytest.mark.parametrize("name", ["two_stage", "bernstein"])
def test_a_layout_of_models_is_made_before_a_model_has_answered(name, tmp_path):
    run = load_run(simulate_run(tmp_path, Simulation(samplers=("uniform", "focus"), models=())))
    table = results_table(run, name)
    assert table.key_titles == ("Model",)
    published_models = [line["model"] for line in LAYOUTS[name].published]
    assert [row.keys for row in table.rows] == [*((model,) for model in published_models), ("",)]


@pytest.mark.parametrize(
    ("samplers", "among"), [(("focus",), ""), (("topk", "focus"), " as one of 2 that Holm adjusts")]
)
def test_the_detectable_difference_of_several_rivals_is_that_after_holm(tmp_path, samplers, among):
    run = load_run(simulate_run(tmp_path / "run", Simulation(samplers=("uniform", *samplers))))
    (note,) = (note for note in baseline_table(run).notes if note.startswith("Detectable"))
    assert note.startswith(f"Detectable: least difference, in points, that gets an arrow{among} in 80 % of runs")


@pytest.mark.parametrize("samplers", [("focus",), ("topk", "focus")])
def test_two_samplers_without_the_baseline_are_named_and_a_single_one_has_no_rival(tmp_path, samplers):
    run = load_run(simulate_run(tmp_path / "run", Simulation(samplers=samplers)))
    place = "longvideobench, zero_shot, K 8"
    note = f"Not compared, because uniform was not run: {place}. --baseline names another."
    assert not_compared(run) == ((note,) if len(samplers) == 2 else ())


def test_a_sampler_without_a_question_of_the_baseline_is_named(tmp_path):
    folder = simulate_run(tmp_path / "run", Simulation())
    for sampler, kept in (("uniform", slice(0, 18)), ("focus", slice(18, 36))):
        path = folder / f"answers/zero_shot-longvideobench-{sampler}-k8-seed0/rows-0.jsonl"
        path.write_text("".join(path.read_text().splitlines(keepends=True)[kept]))
    run = load_run(folder)
    reason = "no question has a score of it and of the baseline"
    assert not_compared(run) == (f"Not compared, because {reason}: focus (longvideobench, zero_shot, K 8).",)
    assert [row.keys[-1] for row in baseline_table(run).rows] == ["topk"]
