"""Evidence recall: cases computed by hand, and the protocol's table to four decimals."""

from __future__ import annotations

import numpy as np
import pytest

from focus_eval.benchmarks.registry import make_benchmark, read_annotations, read_rates
from focus_eval.core.errors import InvalidInput
from focus_eval.report.recall import (
    EvidenceCase,
    evidence_cases,
    random_recall,
    recall_rows,
    recall_table,
    recall_within,
    uniform_times,
)
from focus_eval.selections import ImportedSelection, load_selections

PROTOCOL = {
    # recall@1 of short, medium and long, then long @2 and @5 (protocol, "Evidence recall")
    "uniform": (1.0000, 0.2621, 0.0938, 0.1681, 0.4135),
    "aks": (0.9866, 0.6419, 0.5223, 0.5998, 0.6637),
    "qca": (0.9945, 0.5274, 0.3368, 0.5078, 0.6739),
}


def case(question_id="q", *, evidence=(10.0,), bucket="short", seconds=100.0, fps=10.0):
    return EvidenceCase(
        question_id=question_id, bucket=bucket, evidence_seconds=evidence, duration_seconds=seconds, fps=fps
    )


def test_the_protocols_table_comes_out_to_four_decimals(shared):
    questions = read_annotations("longvideobench", shared("data/lvb_val.json"))
    rates = read_rates(shared("data/lvb_val_fps.csv"))
    benchmark = make_benchmark("longvideobench")
    fps = {key: float(rate.fps) for key, rate in rates.items()}
    cases = [
        EvidenceCase(
            question_id=question.id,
            bucket=benchmark.bucket(question.duration_seconds),
            evidence_seconds=question.evidence_seconds,
            duration_seconds=question.duration_seconds,
            fps=fps[question.id],
        )
        for question in questions
    ]
    times = {"uniform": uniform_times(cases, k=64)}
    for name, file in (("aks", "aks_longvideobench_blip_64.json"), ("qca", "qca_longvideobench_64.json")):
        selections = load_selections(shared(f"data/{file}"), format=name, questions=questions, fps=fps)
        times[name] = {key: selection.times_at(fps[key]) for key, selection in selections.items()}
    table = recall_table(cases, times).set_index(["selection", "bucket"])
    for name, expected in PROTOCOL.items():
        got = [table.loc[(name, bucket), "recall@1"] for bucket in ("short", "medium", "long")]
        got += [table.loc[(name, "long"), "recall@2"], table.loc[(name, "long"), "recall@5"]]
        assert [round(value, 4) for value in got] == list(expected), name
    assert table.loc["uniform", "questions"].to_dict() == {"short": 361, "medium": 700, "long": 276, "all": 1337}


def test_recall_is_the_share_of_evidence_with_a_frame_that_near():
    # 10 s is 0.5 s from a frame, 20 s is 2 s from one, 90 s is 40 s away.
    shares = recall_within(np.array([10.0, 20.0, 90.0]), [9.5, 22.0, 50.0], (1.0, 2.0, 5.0))
    assert shares == pytest.approx([1 / 3, 2 / 3, 2 / 3])


def test_a_selection_of_nothing_recalls_nothing():
    assert recall_within(np.array([1.0]), [], (1.0, 5.0)).tolist() == [0.0, 0.0]


def test_questions_weigh_the_same_however_much_evidence_they_have():
    cases = [case("a", evidence=(10.0,)), case("b", evidence=(10.0, 30.0, 50.0, 70.0))]
    table = recall_table(cases, {"one": {"a": [10.0], "b": [10.0]}})
    assert table.loc[table.bucket == "all", "recall@1"].item() == pytest.approx((1 + 1 / 4) / 2)


def test_evidence_past_the_end_is_dropped_and_questions_without_any_do_not_count():
    late = case("late", evidence=(50.0, 100.9, 101.1))
    assert late.evidence_seconds.tolist() == [50.0, 100.9]
    assert late.n_dropped == 1
    table = recall_table([late, case("none", evidence=())], {"one": {"late": [50.0]}})
    assert table.loc[table.bucket == "all", "questions"].item() == 1


def test_a_repeated_frame_counts_once_among_the_frames():
    table = recall_table([case()], {"bolt": {"q": [10.0, 10.0, 12.0]}})
    assert table["mean_frames"].tolist() == [2.0, 2.0]


def test_moments_that_are_left_out_are_counted_below_the_table(shared):
    questions = read_annotations("longvideobench", shared("data/lvb_val.json"))
    fps = {key: float(rate.fps) for key, rate in read_rates(shared("data/lvb_val_fps.csv")).items()}
    cases = evidence_cases("longvideobench", questions, fps)
    everywhere = {item.question_id: ImportedSelection(question_id=item.question_id, sampler="first", keyframes=(0,))
                  for item in cases}  # fmt: skip
    notes = recall_rows(cases, {"first": everywhere}, fps).notes
    assert "Left out: 1 annotated times more than a second past the end of their video." in notes


def test_a_missing_selection_is_named():
    with pytest.raises(InvalidInput, match=r"mine: no selection for question 'b'"):
        recall_table([case("a"), case("b")], {"mine": {"a": [1.0]}})


def test_the_random_row_is_the_expectation_of_random_draws():
    cases = [
        case("a", evidence=(0.2, 40.0), seconds=60.0, fps=7.5),
        case("b", evidence=(59.9,), seconds=60.0, fps=29.97, bucket="long"),
    ]
    expected = random_recall(cases, k=9)
    rng = np.random.default_rng(0)
    totals = []
    for _ in range(400):
        times = {
            item.question_id: np.sort(rng.choice(item.n_frames, size=9, replace=False)) / item.fps for item in cases
        }
        totals.append(recall_table(cases, {"random": times})[["recall@1", "recall@2", "recall@5"]].to_numpy())
    simulated = np.mean(totals, axis=0)
    assert np.abs(simulated - expected[["recall@1", "recall@2", "recall@5"]].to_numpy()).max() < 0.06


def test_random_frames_of_a_video_no_longer_than_k_are_all_frames():
    table = random_recall([case(seconds=2.0, fps=4.0, evidence=(1.0,))], k=64)
    assert table["recall@1"].tolist() == [1.0, 1.0]
    assert table["mean_frames"].tolist() == [8.0, 8.0]
