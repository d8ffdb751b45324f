"""What choosing frames costs, counted by hand from small rows."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from focus_eval.bench.report.cost import frame_shares
from focus_eval.bench.report.layouts import results_table
from focus_eval.bench.report.measures import cost_tables, forwards_percent
from focus_eval.bench.report.run import Run
from focus_eval.keyframes.rows.records import SelectionRow

BLIP = {"image": 200.0, "keys": 10.0, "fusion": 4.0}
ROW = SelectionRow(
    benchmark="b", question_id="q1", video="v.mp4", query="a cat", selection_id="focus-blip", sampler="focus",
    options={}, encoder="blip", encoder_revision="r", k=8, seed=0, bucket="short", duration_seconds=60.0,
    n_frames=1800, fps=30.0, keyframes=[1], times_seconds=[0.03],
)  # fmt: skip


def row(question="q1", pulled=(), scanned=(), **changes):
    lists = {"pulled_frames": list(pulled), "pulled_relevance": [0.5] * len(pulled), "scanned_frames": list(scanned)}
    return replace(ROW, question_id=question, **lists, **changes)


def columns(*rows):
    frame = Run("x", list(rows), []).selection_frame
    return {name: frame[name].tolist() for name in ("n_pulls", "n_encoded", "n_scanned_encoded", "forward_equivalents")}


def test_a_frame_that_three_questions_asked_for_counts_a_third_for_each():
    costs = columns(row("q1", [1, 2, 3]), row("q2", [3, 4]), row("q3", [3, 2]))
    assert costs["n_pulls"] == [3, 2, 2]
    assert costs["n_encoded"] == pytest.approx([1 + 1 / 2 + 1 / 3, 1 + 1 / 3, 1 / 2 + 1 / 3])
    assert sum(costs["n_encoded"]) == pytest.approx(4)


def test_nothing_is_shared_across_videos_benchmarks_encoders_and_seeds():
    changes = [{"video": "w.mp4"}, {"benchmark": "c"}, {"encoder": "clip", "selection_id": "focus-clip"},
              {"seed": 1, "selection_id": "focus-blip-1"}]  # fmt: skip
    costs = columns(row("q1", [7, 9]), *(row("q2", [7, 9], **change) for change in changes))
    assert costs["n_encoded"] == [2.0] * 5


def test_a_failed_question_takes_no_share():
    costs = columns(row("q1", [1, 2]), row("q2", error="v.mp4: cannot be read", n_frames=0), row("q3", [2]))
    assert costs["n_encoded"] == pytest.approx([1.5, 0, 0.5])


def test_forward_equivalents_count_the_scan_the_keys_of_the_image_and_each_pair():
    gmacs = {**BLIP, "scan_image": 5.0}
    costs = columns(
        row("q1", [1, 2], range(0, 100, 10), gmacs=gmacs), row("q2", [2, 3, 4], range(0, 100, 10), gmacs=gmacs)
    )
    assert costs["n_scanned_encoded"] == [5.0, 5.0]
    assert costs["forward_equivalents"] == pytest.approx(
        [1.5 * 1.05 + 5 * 5 / 200 + 2 * 0.02, 2.5 * 1.05 + 5 * 5 / 200 + 3 * 0.02]
    )


def test_an_encoder_that_states_no_cost_counts_its_forwards_alone_and_a_scan_needs_a_cost():
    costs = columns(row("q1", [1, 2]), row("q2", [1, 2], [5]), row("q3", [1], [5], options={"relative_cost": 0.1}))
    assert costs["forward_equivalents"][0] == pytest.approx(1 / 3 + 1 / 2)
    assert np.isnan(costs["forward_equivalents"][1])
    assert costs["forward_equivalents"][2] == pytest.approx(1 / 3 + 0.5 * 0.1)


def test_the_table_says_of_which_main_encoder_the_matching_is_not_counted():
    silent = row("q1", [1], [2], selection_id="toy", encoder="toy", gmacs={"scan_image": 5.0})
    notes_of_runs = [
        cost_tables(Run("x", [selection], []))[0].notes for selection in (silent, row("q1", [1], gmacs=BLIP))
    ]
    assert [
        "matching frames with text is unknown and left out for: toy." in " ".join(notes) for notes in notes_of_runs
    ] == [True, False]


def test_an_encoder_that_reads_frame_and_text_together_pays_for_every_pair():
    costs = columns(row("q1", [1, 2], gmacs={"fusion": 50.0}), row("q2", [2, 3, 4], gmacs={"fusion": 50.0}))
    assert costs["forward_equivalents"] == pytest.approx([2, 3])


MODEL_USAGE = {"calls": 2, "input": 300, "output": 10}


def test_tokens_of_a_sampler_without_an_encoder_count_in_forwards_of_the_runs_one_encoder():
    asks = row("q1", sampler="vlm_topk", selection_id="vlm", encoder="", gmacs={"llm_token": 7.0}, asked=MODEL_USAGE)
    focus, clip = row("q1", [1], gmacs=BLIP), row("q1", [1], selection_id="clip", encoder="clip", gmacs={"image": 4.4})
    assert columns(asks, focus)["forward_equivalents"] == pytest.approx([310 * 7 / 200, 1.07])
    for other_rows in ((), (focus, clip)):  # no unit, or two
        assert np.isnan(columns(asks, *other_rows)["forward_equivalents"][0])
    silent = row("q1", [1], selection_id="toy", encoder="toy", gmacs={"llm_token": 7.0}, asked=MODEL_USAGE)
    assert np.isnan(columns(silent, focus)["forward_equivalents"][0])
    tokens_unknown = replace(asks, asked={"calls": 2})
    assert np.isnan(columns(tokens_unknown, focus)["forward_equivalents"][0])


def test_a_row_without_its_frames_says_its_share_or_is_alone_with_its_video():
    single = row("q1", n_pulls=30, n_scanned=12)
    assert columns(single)["n_encoded"] == [30.0]
    assert columns(single)["n_scanned_encoded"] == [12.0]
    rows_with_share = [replace(single, encoded={"main": 20.0, "scan": 6.0}), replace(single, question_id="q2")]
    assert columns(*rows_with_share)["n_encoded"] == pytest.approx([20.0, np.nan], nan_ok=True)
    assert columns(*rows_with_share)["n_scanned_encoded"] == pytest.approx([6.0, np.nan], nan_ok=True)


def test_a_file_of_frames_from_elsewhere_does_not_say_what_it_cost():
    costs = columns(row("q1", facts={"replayed_from": "frames.json"}))
    assert np.isnan([costs["n_encoded"][0], costs["forward_equivalents"][0]]).all()


@given(st.lists(st.tuples(st.integers(0, 2), st.lists(st.integers(0, 9), max_size=6)), max_size=8))
def test_shares_add_up_to_the_distinct_frames_of_each_group(requests):
    groups, frames = (
        [group for group, _ in requests],
        [np.array(row_frames, dtype=np.int64) for _, row_frames in requests],
    )
    shares, distinct, sums = frame_shares(groups, frames), defaultdict(set), defaultdict(float)
    for group, row_frames, share in zip(groups, frames, shares, strict=True):
        distinct[group] |= set(row_frames.tolist())
        sums[group] += share
    assert sums == pytest.approx({group: len(group_frames) for group, group_frames in distinct.items()})


DEVICES = {"cpu": "cpu: x", "gpu": "cuda: y"}


def timed(question, pulled, *, forwards, selection="focus-blip", device="cpu", **seconds):
    return row(question, pulled, selection_id=selection, forwards=forwards, device=DEVICES[device], seconds=seconds)


def charged(*rows):
    return Run("x", list(rows), []).selection_frame["charged_seconds"].tolist()


def test_a_selection_that_made_its_own_forwards_takes_what_was_measured():
    rows = [timed("q1", [1, 2], forwards=2, open=1, encode=4, select=3, idle=2), timed("q2", [2], forwards=0, select=1)]
    assert charged(*rows) == [10.0, 1.0]


def test_a_selection_that_found_its_frames_is_charged_what_it_would_have_paid_alone():
    paid = timed("q1", range(10), forwards=10, open=1, encode=20, select=3, idle=5)
    free = [timed(f"q{n}", [2, 3, 4, 5], forwards=0, selection="topk-blip", open=1, select=0.5) for n in (1, 2)]
    # Each has half of four frames, at 2 s a forward and half a second of waiting.
    assert charged(paid, *free) == pytest.approx([29.0, 1.5 + 2 * 2.5, 1.5 + 2 * 2.5])


def test_what_no_forward_was_measured_for_is_unknown_and_never_zero():
    paid = timed("q1", range(10), forwards=10, encode=20)
    elsewhere = timed("q1", [1], forwards=0, selection="topk", device="gpu", select=1)
    nothing = timed("q1", [], forwards=0, selection="uniform", device="gpu", select=1)
    assert charged(paid, elsewhere, nothing) == pytest.approx([20.0, np.nan, 1.0], nan_ok=True)


def test_scanned_frames_are_charged_at_the_scan_encoders_seconds():
    common = {"scan_encoder": "clip", "device": DEVICES["cpu"]}
    scanning = row(
        "q1", [1], range(8), forwards=1, scan_forwards=8, seconds={"encode": 3, "scan": 4, "idle": 9}, **common
    )
    free = row("q1", [1], range(4), selection_id="other", seconds={"select": 1}, **common)
    assert charged(scanning, free) == pytest.approx([16.0, 1 + (3 + 1) + 4 * (0.5 + 1)])


def test_hours_stand_beside_what_was_measured_and_say_the_rule():
    paid = timed("q1", range(10), forwards=10, encode=7200)
    free = replace(timed("q1", range(5), forwards=0, selection="topk", select=0), sampler="topk")
    run = Run("x", [paid, free], [])
    table = results_table(run, "overview")
    hours = {line.keys[-1]: line.figures[-1].ours for line in table.rows}
    assert hours == pytest.approx({"focus": 2.0, "topk": 1.0})
    assert sum("Hours: of each line alone" in note for note in table.notes) == 1
    measured = {line.keys[1]: line.figures[2].ours for line in cost_tables(run)[1].rows}
    assert measured == {"focus": 2.0, "topk": 0.0}
    unknown = results_table(Run("x", [replace(free, encoder="clip"), paid], []), "overview")
    assert [line.figures[-1].ours for line in unknown.rows if line.keys[-1].startswith("topk")] == [None]
    assert any("No hours: every frame of clip came from the store" in note for note in unknown.notes)


def test_the_figures_of_a_question_are_means_over_those_that_did_not_fail():
    fields = {"gmacs": {**BLIP, "scan_image": 5.0}, "decoded": {"all": 30, "sync": 4}}
    rows = [row("q1", [1, 2], [5, 6], **fields), row("q2", [2], [5, 6], **fields), row("q3", error="x", n_frames=0)]
    table = cost_tables(Run("x", rows, []))[0]
    (line,) = table.rows
    figures = {title: figure.ours for title, figure in zip(table.columns, line.figures, strict=True)}
    assert figures == pytest.approx({
        "Frames scored": 1.5, "Frames encoded": 1.0, "Forward equivalents": 1.05 + 5 / 200 + 1.5 * 0.02,
        "Frames scanned": 1.0, "Decoded, all": 30.0, "Decoded, sync": 4.0,
    })  # fmt: skip
    silent = cost_tables(Run("x", [row("q1", [1])], []))[0]
    assert silent.rows[0].figures[-1].ours is None, "decoded frames that no row says"


def test_forward_equivalents_are_over_the_frames_of_the_videos_or_unknown():
    rows = [row("q1", [1, 2]), row("q2", [2]), row("q3", error="cannot be read", n_frames=0)]
    assert forwards_percent(Run("x", rows, []).selection_frame) == pytest.approx(100 * 2 / 3600)
    assert forwards_percent(Run("x", [*rows, row("q4", [1], [9])], []).selection_frame) is None
