"""Evidence recall: cases computed by hand, and the protocol's table to four decimals."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from focus_eval.bench.benchmarks.registry import frame_rates, make_benchmark, read_annotations, read_rates
from focus_eval.bench.report.recall import EvidenceCase, evidence_cases, recall, recall_within, uniform_times
from focus_eval.core.errors import InvalidInput
from focus_eval.external.imports.loading import load_selections
from focus_eval.external.selection_layouts import ShownFrames, moment_means, moment_table
from tests.bench.report.simulated import selection_row_at

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


def recall_table(cases, times):
    """Return the recall of selections whose times are given by name and question."""
    frames = {name: {key: ShownFrames(values) for key, values in of.items()} for name, of in times.items()}
    return moment_means(cases, frames)


def random_recall(cases, *, k):
    return moment_means(cases, {"random": {item.question_id: ShownFrames(n_random=k) for item in cases}})


def test_the_protocols_table_comes_out_to_four_decimals(shared):
    questions = read_annotations("longvideobench", shared("data/lvb_val.json"))
    rates = read_rates(shared("data/lvb_val_fps.csv"))
    benchmark = make_benchmark("longvideobench")
    fps = frame_rates(rates)
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


def test_a_small_frame_is_worth_a_whole_one_that_is_drawn_with_the_probability_of_its_pixels():
    moments, times, scales = np.array([10.0, 20.0, 90.0]), [9.5, 10.5, 22.0, 50.0], [0.5, 0.5, 1.0, 0.25]
    # 10 s has two frames of a quarter of the pixels, 20 s a whole one 2 s away, 90 s none.
    shares = recall_within(moments, times, (1.0, 2.0, 40.0), scales=scales)
    expected = [(1 - 0.75**2) / 3, (1 - 0.75**2 + 1) / 3, (1 + 1 + 1 / 16) / 3]
    assert shares == pytest.approx(expected)
    rng = np.random.default_rng(0)
    drawn = [np.array(times)[rng.random(4) < np.square(scales)] for _ in range(20_000)]
    assert np.mean([recall_within(moments, drawn_times, (2.0,)) for drawn_times in drawn]) == pytest.approx(
        expected[1], abs=0.01
    )


@given(seed=st.integers(0, 2**32 - 1), k=st.integers(1, 8), side=st.sampled_from([2, 4, 8]))
def test_frames_at_full_size_count_as_ever_and_shrinking_an_even_grid_gains_nothing(seed, k, side):
    rng = np.random.default_rng(seed)
    moments, times = rng.uniform(0, 3600, 5), rng.uniform(0, 3600, k)
    distances = (1.0, 2.0, 5.0)
    whole = recall_within(moments, times, distances)
    assert recall_within(moments, times, distances, scales=np.ones(k)) == pytest.approx(whole)
    # Any moment: more frames near it, each worth less, are together worth at most the K frames' share of the video.
    small_frames = np.linspace(0, 3600, k * side**2 + 1)
    share = recall_within(np.arange(10.0, 3590.0), small_frames, (2.0,), scales=np.full(small_frames.size, 1 / side))[0]
    assert share <= (k + 1) * 5 / 3580  # at most five whole seconds lie within 2 s of a frame


def test_the_recall_of_one_question_takes_one_scale_per_keyframe():
    assert recall([10.0, 50.0], [10.0], scales=[0.5, 1.0]) == pytest.approx(0.25)
    for wrong in ([0.5], [0.5, 0.0], [0.5, 2.0]):
        with pytest.raises(InvalidInput, match=r"one scale in \(0, 1\] per keyframe, got \d for 2"):
            recall([10.0, 50.0], [10.0], scales=wrong)


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


def test_the_table_of_selections_counts_pixels_and_says_so():
    whole, small = (selection_row_at("q", [10.0, 90.0], scales=scales) for scales in (None, [0.5, 0.5]))
    table = moment_table([case()], {"whole": [whole], "small": [small]})
    recalls = {row.keys[0]: row.figures[table.columns.index("all @1")] for row in table.rows}
    assert (recalls["whole"], recalls["small"]) == ("100.0", "25.0")
    assert any("a frame at scale s is worth a full frame drawn with probability s²" in note for note in table.notes)
    assert not any("scale" in note for note in moment_table([case()], {"whole": [whole]}).notes)


def test_a_repeated_frame_counts_once_among_the_frames():
    table = recall_table([case()], {"bolt": {"q": [10.0, 10.0, 12.0]}})
    assert table["mean_frames"].tolist() == [2.0, 2.0]


def test_moments_that_are_left_out_are_counted_below_the_table(shared):
    questions = read_annotations("longvideobench", shared("data/lvb_val.json"))
    fps = frame_rates(read_rates(shared("data/lvb_val_fps.csv")))
    cases = evidence_cases("longvideobench", questions, fps)
    first_frames = [selection_row_at(item.question_id, [0.0]) for item in cases]
    notes = moment_table(cases, {"first": first_frames}).notes
    assert "Left out: annotated times more than a second past the end of their video (1)." in notes


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


@pytest.mark.parametrize("moment", [0.0, 0.4, 5.0, 9.0, 9.6])
@pytest.mark.parametrize("k", [1, 3, 9])
def test_the_random_row_counts_every_draw_of_a_short_video(moment, k):
    short = case(evidence=(moment,), seconds=10.0, fps=1.0)
    for distance in (1.0, 2.0, 5.0):
        draws = list(itertools.combinations(range(10), k))
        hits = np.mean([any(abs(frame - moment) <= distance + 1e-9 for frame in draw) for draw in draws])
        expectation = random_recall([short], k=k)[f"recall@{distance:g}"]
        assert expectation.tolist() == [pytest.approx(hits)] * 2
