"""Effects within questions: CR2 against its definition, planted effects, and the field's own figures."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from focus_eval.bench.benchmarks.registry import read_annotations, read_rates
from focus_eval.bench.report.recall import recall_within, row_measures
from focus_eval.cli import app
from focus_eval.core.errors import InvalidInput
from focus_eval.external.clustered import ClusteredDesign, deviations
from focus_eval.external.within import deviation_by_frames, mean_over_seeds, measure_effects

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def published(shared):
    """Answers of Qwen2.5-VL-7B under 22 selections (LimGeunTaekk/LVU 8337f69), with their measures."""
    lines = pd.read_parquet(shared("data/field/lmms_logs/lvb_qwen2_5_vl_7b_32_frames_22_runs.parquet"))
    questions = {question.id: question for question in read_annotations("longvideobench", shared("data/lvb_val.json"))}
    rates = read_rates(shared("data/lvb_val_fps.csv"))
    lines_made = []
    for line in lines.itertuples():
        question, rate = questions[line.id], rates[line.id]
        frames = np.linspace(0, rate.n_frames - 1, 32) if line.frames is None else np.asarray(line.frames, float)
        evidence, times = np.asarray(question.evidence_seconds), frames / float(rate.fps)
        family = {"qwen2_5_vl": "uniform", "qwen2_5_vl_AKS": "AKS"}.get(line.run, "scenes")
        lines_made.append(
            {
                "run": line.run,
                "family": family,
                "k": 32,
                "question_id": line.id,
                "video": question.video,
                "seconds": question.duration_seconds,
                "moments": evidence.size,
                "score": line.score,
                **row_measures(evidence, times, duration_seconds=rate.duration_seconds),
                "recall@10": recall_within(evidence, times, (10,))[0],
            }
        )
    return pd.DataFrame(lines_made)


@pytest.fixture(scope="module")
def long(published):
    return published[published["seconds"] >= 180]


def rounded(coefficient):
    estimate = coefficient.estimate()
    return [round(100 * value, 1) for value in (estimate.value, estimate.low, estimate.high)]


def test_the_runs_accuracies_and_recalls_are_the_recorded_ones(published):
    run_means = published.groupby("run")[["score", "recall@1", "recall@2", "recall@5"]].mean()
    assert run_means.loc["qwen2_5_vl"].round(5).tolist() == [0.58340, 0.35408, 0.42430, 0.62947]
    assert run_means.loc["qwen2_5_vl_AKS"].round(3).tolist() == [0.622, 0.629, 0.700, 0.770]
    scenes = run_means.loc["qwen2_5_vl_n_scenes_10_detectors_pyscene_coefs_0.5"]
    assert scenes.round(3).tolist() == [0.610, 0.365, 0.441, 0.532]


def test_evidence_in_view_adds_17_points_to_the_same_question(long):
    assert (len(long), long["question_id"].nunique(), long["video"].nunique()) == (21472, 976, 395)
    effects = {effect.measure: effect for effect in measure_effects(long, ["recall@1", "recall@5", "nearness"])}
    assert rounded(effects["recall@1"].separate) == [17.1, 11.9, 22.3]
    assert rounded(effects["recall@5"].separate) == [16.0, 11.5, 20.6]
    assert rounded(effects["recall@1"].question_only)[0] == 17.5
    assert [round(effects[name].correlation, 3) for name in effects] == [0.166, 0.173, 0.191]


def test_near_frames_tell_more_than_recall_where_two_methods_differ(long):
    effects = {item.measure: rounded(item.joint) for item in measure_effects(long, ["recall@2", "near_frames"])}
    assert effects == {"recall@2": [8.1, 0.7, 15.5], "near_frames": [3.9, 0.5, 7.2]}
    two = long[long["family"] != "scenes"]
    effects = {item.measure: rounded(item.joint) for item in measure_effects(two, ["recall@2", "near_frames"])}
    assert effects == {"recall@2": [0.5, -7.6, 8.5], "near_frames": [8.8, 3.6, 14.0]}


def test_the_first_near_frame_is_worth_most(long):
    groups = [(name, round(100 * mean, 1)) for name, mean, _ in deviation_by_frames(long)]
    assert groups == [("0", -3.8), ("1", 4.0), ("2 to 3", 2.8), ("4 to 7", 4.7), ("8 to 15", 2.3), ("16 and more", 6.1)]


def test_cr2_is_what_its_definition_gives():
    rng = np.random.default_rng(0)
    videos, columns = rng.integers(0, 8, 60), rng.normal(size=(60, 2))
    scores = rng.normal(size=60) + rng.normal(size=8)[videos]
    design = np.column_stack([columns, np.ones(60)])
    inverse = np.linalg.inv(design.T @ design)
    hat = design @ inverse @ design.T
    residuals = scores - hat @ scores
    meat, parts = np.zeros((3, 3)), []
    for video in range(8):
        rows = np.flatnonzero(videos == video)
        values, vectors = np.linalg.eigh(np.eye(rows.size) - hat[np.ix_(rows, rows)])
        half = (vectors / np.sqrt(values)) @ vectors.T
        score = design[rows].T @ half @ residuals[rows]
        meat += np.outer(score, score)
        parts.append((np.eye(60) - hat)[rows].T @ half @ design[rows] @ inverse)
    variance = inverse @ meat @ inverse
    for at, coefficient in enumerate(ClusteredDesign(videos).fit(scores, columns)):
        spread_of = np.array([part[:, at] for part in parts])
        spread_of = spread_of @ spread_of.T
        freedom = np.trace(spread_of) ** 2 / (spread_of**2).sum()
        assert (coefficient.value, coefficient.error, coefficient.freedom) == pytest.approx(
            ((inverse @ design.T @ scores)[at], np.sqrt(variance[at, at]), freedom)
        )


def test_absorbing_groups_is_the_fit_with_a_column_for_each():
    rng = np.random.default_rng(1)
    groups, measure = np.repeat(np.arange(12), 5), rng.normal(size=(60, 1))
    videos = groups // 2
    scores = rng.normal(size=60) + groups
    dummies = np.eye(12)[groups][:, 1:]
    absorbed = ClusteredDesign(videos, groups=groups).fit(scores, measure)[0]
    written = ClusteredDesign(videos).fit(scores, np.column_stack([measure, dummies]))[0]
    assert (absorbed.value, absorbed.error, absorbed.freedom) == pytest.approx(
        (written.value, written.error, written.freedom)
    )


def test_an_interval_from_five_videos_on_one_side_covers_93_percent():
    rng, covered, repeats = np.random.default_rng(2), 0, 400
    for _ in range(repeats):
        videos = np.repeat(np.arange(300), rng.integers(1, 6, 300))
        chance = 1 / (1 + np.exp(-(0.7 * rng.normal(size=300)[videos] + 0.3)))
        is_right = (rng.random(videos.size) < chance).astype(float)
        coefficient = ClusteredDesign(videos).fit(is_right, (videos < 5)[:, None])[0]
        covered += coefficient.estimate().low <= 0 <= coefficient.estimate().high
    assert covered / repeats > 0.92  # 0.80 with the cluster-robust variance and one degree less than videos


def planted(slope, *, questions=60, runs=4, seed=3):
    """Answers whose score is the question's own level plus `slope` times a measure."""
    rng = np.random.default_rng(seed)
    lines = pd.DataFrame(
        [(f"q{q}", f"v{q // 3}", f"r{r}") for q in range(questions) for r in range(runs)],
        columns=["question_id", "video", "run"],
    )
    lines["x"], lines["y"] = rng.normal(size=len(lines)), rng.normal(size=len(lines))
    level = rng.normal(size=questions)[lines["question_id"].str[1:].astype(int)]
    return lines.assign(score=level + slope * lines["x"] + 0.1 * lines["run"].str[1:].astype(int))


def test_a_planted_effect_is_found_and_an_idle_measure_adds_nothing():
    effects = {effect.measure: effect for effect in measure_effects(planted(0.25), ["x", "y"])}
    assert effects["x"].separate.value == pytest.approx(0.25)
    assert effects["x"].joint.value == pytest.approx(0.25)
    assert effects["y"].joint.value == pytest.approx(0, abs=1e-9)


@given(st.lists(st.floats(-3, 3), min_size=60, max_size=60))
def test_how_hard_a_question_is_moves_no_effect(levels):
    lines = planted(0.5)
    moved = lines["score"] + np.asarray(levels)[lines["question_id"].str[1:].astype(int)]
    original, shifted = (measure_effects(part, ["x"])[0].separate for part in (lines, lines.assign(score=moved)))
    assert shifted.value == pytest.approx(original.value, abs=1e-9)


def test_effects_within_questions_need_runs_that_differ():
    lines = planted(0.5)
    with pytest.raises(InvalidInput, match="two runs with questions in common"):
        measure_effects(lines[lines["run"] == "r0"], ["x"])
    with pytest.raises(InvalidInput, match="the runs show the same frames"):
        measure_effects(lines.assign(x=1.0), ["x"])
    with pytest.raises(InvalidInput, match="stands twice"):
        measure_effects(pd.concat([lines, lines.iloc[:1]]), ["x"])
    with pytest.raises(InvalidInput, match="not known of every answer"):
        measure_effects(lines.assign(x=np.nan), ["x"])


def test_seeds_of_a_question_count_as_one_answer():
    lines = planted(0.5).assign(seed=0)
    two_seeds = pd.concat([lines, lines.assign(seed=1, score=lines["score"] + 1)])
    averaged = mean_over_seeds(two_seeds[["run", "question_id", "video", "score"]], ["score"])
    assert len(averaged) == len(lines)
    assert averaged["score"].mean() == pytest.approx(lines["score"].mean() + 0.5)


def test_deviations_are_from_the_mean_of_the_group():
    result = deviations(np.array([1.0, 3.0, 10.0]), np.array([0, 0, 1]))
    assert result.tolist() == [-1.0, 1.0, 0.0]


def test_measures_of_nearness_by_hand():
    evidence = np.array([10.0, 20.0])
    close, repeated, spread_out, empty = (
        row_measures(evidence, times, duration_seconds=100.0)
        for times in ([10.0, 25.0], [10.0, 10.0, 15.0, 40.0], [0.0, 5.0, 95.0, 100.0], [])
    )
    assert close["nearness"] == pytest.approx((1 + np.exp(-1)) / 2)
    assert repeated["near_frames"] == pytest.approx((np.log(3) + np.log(2)) / 2)
    assert spread_out["spread"] == 0.2
    assert set(empty.values()) == {0.0}


@pytest.fixture(scope="module")
def imported(shared, tmp_path_factory):
    """A run of three public logs of Qwen2.5-VL-7B: uniform, AKS and a scene method."""
    folder = tmp_path_factory.mktemp("logs")
    for name in ("uniform", "aks", "scenes"):
        (folder / "in").mkdir(exist_ok=True)
        (folder / "in" / f"lvb_{name}").symlink_to(shared(f"data/field/lmms_logs/lvb_{name}"))
        arguments = ["import", "lmms", folder / "in" / f"lvb_{name}", "--out", folder / name, *annotated(shared)]
        called(*arguments, "--frames-field", "indices", "-o", "assume_uniform=true")
    return [folder / name for name in ("uniform", "aks", "scenes")]


def annotated(shared):
    files = ["--annotations", shared("data/lvb_val.json"), "--rates", shared("data/lvb_val_fps.csv")]
    return ["--benchmark", "longvideobench", *files]


def called(*arguments, exit_code=0):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": "200"})
    assert result.exit_code == exit_code, result.output
    return " ".join(result.output.split())


def test_evidence_compares_each_question_with_itself_over_several_runs(imported):
    output = called("evidence", *imported, "--within", "--measure", "recall@2", "--measure", "near_frames")
    assert "2,928 answers to 976 questions on 395 videos" in output
    assert "Answers by the number of frames within 5 s of the one moment" in output
    assert "Alone" in output
    result = CliRunner().invoke(app, ["evidence", str(imported[0]), "--within"])
    assert "need one model's answers from two selections" in str(result.exception)
    result = CliRunner().invoke(app, ["evidence", *map(str, imported), "--within", "--measure", "recall@3"])
    assert "unknown measure 'recall@3'" in str(result.exception)
    result = CliRunner().invoke(app, ["evidence", str(imported[0]), "--measure", "nearness"])
    assert "--measure goes with --within" in str(result.exception)


def test_several_models_stand_side_by_side(shared, tmp_path):
    for k, name in ((8, "first"), (32, "first"), (8, "second"), (32, "second")):
        file = shared(f"data/toolmerge_qwen3_lvb_{k}.json")
        called("import", "toolmerge", file, "--out", tmp_path / "run", "--model", name, *annotated(shared))
    output = called("evidence", tmp_path / "run", "--within")
    assert "longvideobench, first: 1,952 answers" in output
    assert "longvideobench, second: 1,952 answers" in output
