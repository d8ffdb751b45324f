"""Accuracy by evidence in view: the published figures to the last digit, and cases computed by hand."""

from __future__ import annotations

import json
import re

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from focus_eval.bench.benchmarks.registry import read_annotations, read_rates
from focus_eval.bench.report.run import Run, load_run
from focus_eval.cli import app
from focus_eval.core.errors import InvalidInput
from focus_eval.external.clustered import ClusteredDesign
from focus_eval.external.evidence import (
    _fed_notes,
    accuracy_by_view,
    evidence_answers,
    evidence_tables,
    group_difference,
    stratified_difference,
    view_of,
    within_question,
)
from focus_eval.external.imports.loading import load_selections, rows_of_selections
from tests.bench.report.simulated import Simulation, simulate_run
from tests.figures.rows import PUBLISHED, rows_of


@pytest.fixture(scope="module")
def toolmerge(shared):
    """Qwen3-VL-8B's published answers from ToolMerge's 8 and 32 keyframes."""
    questions = read_annotations("longvideobench", shared("data/lvb_val.json"))
    rates = read_rates(shared("data/lvb_val_fps.csv"))
    published = [
        rows_of_selections(
            load_selections(shared(f"data/toolmerge_qwen3_lvb_{k}.json"), questions=questions),
            questions,
            rates,
            name="toolmerge",
            model="qwen3_vl_8b",
        )
        for k in (8, 32)
    ]
    return Run("t", *([row for rows in kind for row in rows] for kind in zip(*published, strict=True)))


@pytest.mark.parametrize(
    ("k", "expected"),
    [(8, (72.9, 380, 48.2, 384, 24.7, 57.5)), (32, (70.8, 603, 57.1, 182, 13.7, 64.0))],
)
def test_the_published_answers_give_the_recorded_accuracies(toolmerge, k, expected):
    answers = evidence_answers(toolmerge, min_seconds=180.0)
    assert (len(answers), answers["question_id"].nunique(), answers["video"].nunique()) == (1952, 976, 395)
    accuracy = accuracy_by_view(answers[answers["k"] == k], distance=5.0)
    figures = (
        round(100 * accuracy.by_view["all"].value, 1),
        accuracy.by_view["all"].questions,
        round(100 * accuracy.by_view["none"].value, 1),
        accuracy.by_view["none"].questions,
        round(100 * accuracy.difference.value, 1),
        round(100 * accuracy.overall.value, 1),
    )
    assert figures == expected
    assert accuracy.difference.low < accuracy.difference.value < accuracy.difference.high
    assert round(100 * accuracy.same_kind.value, 1) == {8: 18.9, 32: 11.5}[k]
    # Recorded: bootstrap intervals over videos. A t interval differs by what the draws of a bootstrap do.
    bootstrap = {8: (17.7, 31.9), 32: (5.5, 21.7)}[k]
    assert np.abs(100 * np.array([accuracy.difference.low, accuracy.difference.high]) - bootstrap).max() < 0.25


def test_the_same_questions_give_the_recorded_changes(toolmerge):
    answers = evidence_answers(toolmerge, min_seconds=180.0)
    changes = within_question(answers[answers["k"] == 8], answers[answers["k"] == 32], distance=5.0)
    assert changes[-1].change == "gained less none both times"
    net_gain = changes.pop().compared.difference
    assert [round(100 * value, 1) for value in (net_gain.value, net_gain.low, net_gain.high)] == [7.1, -1.5, 15.7]
    figures = {
        item.change: (
            item.compared.difference.questions,
            round(100 * item.accuracy_a, 1),
            round(100 * item.accuracy_b, 1),
        )
        for item in changes
    }
    assert figures["gained"] == (124, 52.4, 66.1)
    assert figures["none both times"] == (182, 50.5, 57.1)
    assert figures["all both times"] == (380, 72.9, 75.3)
    assert figures["all questions"] == (976, 57.5, 64.0)
    assert "lost" not in figures  # the 32 hold what the 8 showed


def called(*words):
    """Return what a command that ends well prints."""
    result = CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "300"})
    assert result.exit_code == 0, result.exception
    return result.output


@pytest.mark.slow
def test_the_command_prints_the_figures(shared, tmp_path):
    annotated = ["--annotations", shared("data/lvb_val.json"), "--rates", shared("data/lvb_val_fps.csv")]
    for k in (8, 32):
        file = shared(f"data/toolmerge_qwen3_lvb_{k}.json")
        called("import", "toolmerge", file, "--out", tmp_path / "run", "--model", "m", *annotated)
    output = called("evidence", tmp_path / "run", "--out", tmp_path / "e.md")
    for figure in ("(380)", "(384)", "+24.7", "(603)", "(182)", "+13.7", "52.4", "66.1"):
        assert figure in output
    written = (tmp_path / "e.md").read_text()
    assert "| gained | 124 | 52.4 | 66.1 |" in written
    views, changes = cells_of(written)
    assert recorded_rows("view") == views
    assert [row for row in recorded_rows("within") if row not in changes] == []


def cells_of(written):
    """Return, of the command's tables, the columns that results/published records: within 5 s, and by change."""
    plain = re.sub(r" ↑|(?<=\d)\*", "", written)
    lines = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in plain.splitlines() if line.startswith("|")
    ]
    changes = [[line[4], *line[5:9], line[10]] for line in lines if len(line) == 11]
    views = [line for line in lines if len(line) == 13 and line[4] == "5"]
    bare_cells = [[re.sub(r" \[.*\]", "", line[column]) for column in (5, 6, 12)] for line in views]
    return [
        [line[3], view, none_in_view, line[7], line[8], line[10], overall.split()[0]]
        for line, (view, none_in_view, overall) in zip(views, bare_cells, strict=True)
    ], changes


def recorded_rows(name):
    return [[*row.values()] for row in rows_of(PUBLISHED / f"evidence_{name}.csv")]


def test_a_view_is_all_some_or_none():
    assert view_of([1.0, 0.5, 0.0]).tolist() == ["all", "some", "none"]


def answered(rows, k=8, seed=0):
    """Lines as `evidence_answers` gives them, of (question, video, share in view, score)."""
    frame = pd.DataFrame(rows, columns=["question_id", "video", "recall@5 any size", "score"])
    return frame.assign(benchmark="b", model="m", label="s", k=k, seed=seed, category="", bucket="long", moments=1)


def test_what_happened_to_the_evidence_is_told_apart():
    a = answered([(f"q{i}", f"v{i}", view, 0.0) for i, view in enumerate((0, 1, 1, 0, 0.5))])
    b = answered([(f"q{i}", f"v{i}", view, 1.0) for i, view in enumerate((1, 0, 1, 0, 1))], k=16)
    assert [item.change for item in within_question(a, b, distance=5.0)] == [
        "gained",
        "lost",
        "all both times",
        "none both times",
        "in part",
        "all questions",
    ]
    with pytest.raises(InvalidInput, match="without a question in common"):
        within_question(a, b.assign(question_id="z"), distance=5.0)


def test_evidence_that_stays_in_view_in_part_is_neither_gained_nor_lost():
    changes = {(0.5, 1.0): "in part", (1.0, 0.5): "in part", (0.5, 0.0): "in part", (1.0, 0.0): "lost"}
    for views, change in changes.items():
        a, b = (answered([(f"q{i}", f"v{i}", view, 1.0) for i in range(6)]) for view in views)
        assert [item.change for item in within_question(a, b, distance=5.0)] == [change, "all questions"], views


def test_a_question_is_paired_within_its_seed():
    # Under seed 0 both see the evidence, under seed 1 neither: across seeds it would seem to be gained and lost.
    parts = [answered([(f"q{i}", f"v{i}", 1.0 - seed, 1.0) for i in range(6)], seed=seed) for seed in (0, 1)]
    answers = pd.concat(parts)
    n_by_change = {
        item.change: item.compared.difference.questions for item in within_question(answers, answers, distance=5.0)
    }
    assert n_by_change == {"all both times": 6, "none both times": 6, "all questions": 12}


def test_runs_with_other_seeds_are_paired_by_question_alone():
    one, two = (
        pd.concat(answered([(f"q{i}", f"v{i}", 1.0, 1.0) for i in range(6)], seed=seed) for seed in range(n))
        for n in (1, 2)
    )
    for a, b in ((one, two), (two, one), (one, one.assign(seed=7))):
        (*_, everything) = within_question(a, b, distance=5.0)
        assert everything.compared.difference.questions == max(len(a), len(b))


def test_equal_ids_of_two_benchmarks_are_two_questions():
    # In the benchmark "b" the evidence stays in view, in "c" out of view: across them it would be gained and lost.
    views = {"b": 1.0, "c": 0.0}
    answers = pd.concat(
        answered([(f"q{i}", f"v{i}", view, 1.0) for i in range(6)]).assign(benchmark=name)
        for name, view in views.items()
    )
    n_by_change = {
        item.change: item.compared.difference.questions for item in within_question(answers, answers, distance=5.0)
    }
    assert n_by_change == {"all both times": 6, "none both times": 6, "all questions": 12}


def test_fewer_frames_than_k_are_said_with_how_many_and_how_often():
    key = ("b", "m")
    parts = [
        ((*key, "scenes", "8"), pd.DataFrame({"frames_fed": [1, 1, 6, 8, 8]})),
        ((*key, "uniform", "8"), pd.DataFrame({"frames_fed": [8, 8, 8, 8, None]})),
    ]
    assert list(_fed_notes(parts)) == [
        "b, m: fewer than K frames were fed in 1 of 2 selections; the most often in scenes, K = 8: 3 of 5 answers, "
        "2.7 frames on average, 1 in 2."
    ]
    assert list(_fed_notes(parts[1:])) == []


def test_fewer_than_five_videos_in_a_group_give_no_interval_and_no_p():
    rows = [(f"q{i}", f"v{i}", float(i < 4), float(i % 2)) for i in range(20)]
    accuracy = accuracy_by_view(answered(rows), distance=5.0)
    assert accuracy.difference.low is None
    assert accuracy.p_value is None


def test_the_same_kind_difference_ignores_kinds_of_question_that_have_one_group_alone():
    # Kind a: 3 of 4 right in view, 1 of 4 out of view. Kind b is always in view and always right: it tells nothing.
    scores = [1, 1, 1, 0, 1, 0, 0, 0, *[1] * 8]
    first = [*[True] * 4, *[False] * 4, *[True] * 8]
    kinds = [*["a"] * 8, *["b"] * 8]
    videos = list(range(16))
    assert stratified_difference(scores, first, videos, kinds).value == pytest.approx(0.5)
    assert stratified_difference(scores[8:], first[8:], videos[8:], kinds[8:]) is None


def test_the_interval_and_the_p_between_groups_agree():
    # Seven videos of two questions; some lie in one group whole, so that the mean does not cancel within a video.
    first = np.array([char == "1" for char in "10110011100010"])
    scores = np.array([float(char) for char in "11110010100101"])
    videos = [f"v{i // 2}" for i in range(14)]
    difference, p_value = group_difference(scores, first, videos)
    assert difference.value == pytest.approx(scores[first].mean() - scores[~first].mean())
    coefficient = ClusteredDesign(videos).fit(scores, first[:, np.newaxis])[0]
    end = coefficient.estimate(level=1 - p_value)
    assert min(abs(end.low), abs(end.high)) == pytest.approx(0, abs=1e-9)


def test_the_test_between_groups_keeps_its_level_and_finds_what_is_there():
    rng = np.random.default_rng(3)
    rejected, n_detected = 0, 0
    for _ in range(60):
        video = np.repeat(np.arange(30), 4)
        easy = rng.normal(0, 0.6, 30)[video]
        first = rng.random(120) < 0.5
        alike = (rng.random(120) < 0.5 + 0.2 * np.tanh(easy)).astype(float)
        better = (rng.random(120) < 0.3 + 0.4 * first).astype(float)
        rejected += group_difference(alike, first, video.tolist())[1] < 0.05
        n_detected += group_difference(better, first, video.tolist())[1] < 0.05
    assert rejected <= 8
    assert n_detected >= 50


def test_a_run_of_ours_with_seeds_and_failed_rows_has_the_tables(tmp_path):
    simulation = Simulation(n_questions=108, samplers=("uniform", "topk", "focus"), seeds=(0, 1))
    run = load_run(simulate_run(tmp_path / "run", simulation))
    tables = {table.name: table for table in evidence_tables(run, min_seconds=0.0)}
    assert {"evidence", "evidence_by_length", "evidence_within"} <= tables.keys()
    failed = sum(row.error is not None for row in run.answers)
    assert failed
    assert len(evidence_answers(run)) == len(run.answers) - failed
    lengths = {row.keys[-1] for row in tables["evidence_by_length"].rows}
    assert lengths == {"short", "medium", "long"}


def test_a_run_without_evidence_says_so(tmp_path):
    run = load_run(simulate_run(tmp_path / "run", Simulation(n_questions=12)))
    with pytest.raises(InvalidInput, match="no answer to a question with annotated evidence"):
        evidence_answers(run, min_seconds=1e6)
    with pytest.raises(InvalidInput, match="has no answers"):
        evidence_answers(Run("r", run.selections, []))


def test_half_the_questions_and_a_frame_past_the_end_are_left_out_when_asked(tmp_path):
    rng, ids = np.random.default_rng(0), [f"q{n}" for n in range(60)]
    question = {"question": "why?", "candidates": ["x", "y"], "correct_choice": 0, "duration": 200}
    rows = [{**question, "id": key, "video_path": f"{n // 2}.mp4", "position": [2400]} for n, key in enumerate(ids)]
    (tmp_path / "lvb.json").write_text(json.dumps(rows))
    (tmp_path / "rates.csv").write_text("\n".join(["id,duration_s,fps", *(f"{key},200,25" for key in ids)]))
    files = ["--annotations", tmp_path / "lvb.json", "--rates", tmp_path / "rates.csv"]

    def printed(*words):
        result = CliRunner().invoke(app, [str(word) for word in words])
        return f"{result.output} {result.exception or ''}"

    for name, wrong in (("a", 10), ("b", 15), ("c", 20)):
        answers = [
            {"id": key, "times": sorted(rng.uniform(0, 200, 4)), "answer": "AB"[n < wrong]} for n, key in enumerate(ids)
        ]
        file = tmp_path / f"{name}.json"
        file.write_text(json.dumps(answers))
        printed("import", "answers", file, "--out", tmp_path / "run", "--model", "m", *files)
    half = [{**answers[0], "times": [1.0, 9e9]}, *answers[1:30]]
    file.write_text(json.dumps(half))
    commands = [
        ["import", "answers", file, "--out", tmp_path / "half", "--model", "m", *files],
        ["recall", "--selections", file, "--selections", tmp_path / "a.json", "--format", "answers", *files],
    ]
    texts = ("1 of 2 frames left out", "30 questions lack a selection and do not count")
    for command, expected in zip(commands, texts, strict=True):
        assert "--allow-outside leaves it out" in printed(*command, "--allow-missing")
        assert "--allow-missing leaves them out" in printed(*command, "--allow-outside")
        assert expected in " ".join(printed(*command, "--allow-missing", "--allow-outside").split())


def interval_files(tmp_path):
    """LVBench's kind of annotation without rates, and answers: 25 of 30 right with a frame inside, 5 of 10 without."""
    questions, entries = [], []
    for at in range(40):
        is_inside = at % 4 != 0
        is_right = at % 8 != 1 if is_inside else at % 8 == 0
        reference = {"uid": str(at), "question": f"what at {at}?\n(A) x\n(B) y", "answer": "A", "question_type": ["t"]}
        qa = [{**reference, "time_reference": "10:00-10:10"}]
        questions.append({"key": f"v{at}", "video_info": {"duration_minutes": 40}, "qa": qa})
        entries.append({"id": str(at), "times": [605.0 if is_inside else 300.0], "answer": "A" if is_right else "B"})
    annotations = tmp_path / "lvbench.jsonl"
    annotations.write_text("\n".join(map(json.dumps, questions)))
    (tmp_path / "a.json").write_text(json.dumps(entries))
    return annotations, tmp_path / "a.json"


def test_intervals_count_as_evidence_and_need_no_rates(tmp_path):
    annotations, answers = interval_files(tmp_path)
    annotated = ["--benchmark", "lvbench", "--annotations", annotations]
    called("import", "answers", answers, "--out", tmp_path / "run", "--model", "m", *annotated)
    assert "83.3" in called("evidence", tmp_path / "run", "--distance", "0")
    output = called("recall", *annotated, "--selections", answers, "--format", "answers")
    assert "40 questions have no rate: their uniform and random frames are taken at 30 a second." in output


def test_hit_coverage_and_ukss_are_measured_of_rows_with_intervals(tmp_path):
    annotations, answers = interval_files(tmp_path)
    questions = read_annotations("lvbench", annotations)
    loaded = load_selections(answers, format="answers", questions=questions)
    run = Run("r", *rows_of_selections(loaded, questions, {}, name="mine", model="m"))
    frame = evidence_answers(run, min_seconds=180.0)
    assert frame["hit"].tolist() == [float(at % 4 != 0) for at in range(40)]
    assert frame["coverage"].max() == pytest.approx(0.4)
    assert frame["UKSS"].max() == 1.0
    view = accuracy_by_view(frame, distance=0.0)
    assert (view.by_view["all"].value, view.by_view["none"].value) == (pytest.approx(25 / 30), 0.5)


@pytest.mark.slow
def test_the_scenes_of_kfs_bench_are_evidence_of_video_mme(shared, tmp_path):
    words = ["--benchmark", "videomme", "--annotations", shared("data/videomme.json"), "--allow-missing"]
    words += ["--scenes", shared("data/public/evidence/kfs_videomme_anno.csv"), "--name", "T", "--model", "m"]
    for k in (8, 32):
        file = shared(f"data/public/selections/toolmerge_qwen3_videomme_{k}.json.gz")
        called("import", "toolmerge", file, "--out", tmp_path / "run", *words)
    output = called("evidence", tmp_path / "run", "--min-seconds", "0", "--distance", "0")
    differences = re.findall(r"^ +(\d+) +0 .*?([+]\d+\.\d) ", output, flags=re.MULTILINE)
    assert differences == [("8", "+22.3"), ("32", "+23.8")]
