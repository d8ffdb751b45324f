"""The verdict: all questions first, lengths after, failures as 0, the number of looks paid for."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from focus_eval.bench.report.recall_layouts import RECALL
from focus_eval.bench.report.sign_flips import sign_flip_p
from focus_eval.bench.report.statistics import compare_paired, holm
from focus_eval.lab.verdict import (
    LOOKS,
    Rival,
    by_length,
    compare_with_rivals,
    differing_worlds,
    telling_questions,
    verdict_sentence,
    verdict_table,
    whole_verdict,
    with_failures_as_0,
)

BUCKETS = ("short", "medium", "long", "hours")


def lab(recalls, *, k=(8,), failed=None, pulls=None, short=None):
    """Return rows with one question a video, given recall by label; videos take turns through the length groups."""
    lines = []
    for label, values in recalls.items():
        for at, value in enumerate(values):
            for count in k:
                has_failed = label == failed and at % 10 == 0
                lines.append({
                    "benchmark": "w", "question_id": f"w-{at}", "video": f"w-{at}.mp4", "bucket": BUCKETS[at % 4],
                    "label": label, "sampler": label.split()[0], "k": count, RECALL: None if has_failed else value,
                    "n_frames": 1000, "n_pulls": (pulls or {}).get(label, 20), "forward_equivalents": 20.0,
                    "error": "no" if has_failed else None,
                    "n_keyframes": 0 if has_failed else count - (label == short and at % 10 < 3),
                })  # fmt: skip
    return with_failures_as_0(pd.DataFrame(lines))


def noisy(rng, n, gain=0.0):
    return np.clip(0.5 + gain + rng.normal(0, 0.25, n), 0, 1)


def test_all_is_not_adjusted_over_its_own_lengths():
    rng = np.random.default_rng(0)
    frame = lab({"new": noisy(rng, 150, 0.07), "old": noisy(rng, 150)})
    (item,) = compare_with_rivals(frame, "new", [Rival(8, "old", "old")])
    part = frame.pivot(index="question_id", columns="label", values=RECALL).astype(float)
    raw = compare_paired(part["old"], part["new"], part.index.tolist()).p_value
    assert item.p_differs == raw < 0.05


def test_lengths_are_tested_only_where_all_shows_a_difference_and_are_never_surer():
    rng = np.random.default_rng(1)
    frame = lab({"new": noisy(rng, 400, 0.3), "old": noisy(rng, 400), "same": noisy(rng, 400, 0.3)})
    rivals = [Rival(8, "old", "old"), Rival(8, "same", "same")]
    compared = compare_with_rivals(frame, "new", rivals)
    assert [item.differs for item in compared] == [True, False]
    old, equal_lengths = by_length(compared, frame, "new")
    assert {value.p_adjusted >= compared[0].p_differs for value in old.values()} == {True}
    assert {value.p_adjusted for value in equal_lengths.values()} == {None}
    assert list(old) == list(equal_lengths) == list(BUCKETS)


def test_a_length_that_is_clear_by_itself_is_no_surer_than_all():
    # Short videos gain in every one; over all lengths that is one in four.
    rng, n = np.random.default_rng(7), 160
    gain = np.where(np.arange(n) % 4 == 0, 0.3, rng.normal(0, 0.5, n))
    frame = lab({"new": np.clip(0.4 + gain, 0, 1), "old": np.full(n, 0.4)})
    (item,) = compare_with_rivals(frame, "new", [Rival(8, "old", "old")])
    (lengths,) = by_length([item], frame, "new")
    part = frame[frame["bucket"] == "short"].pivot(index="question_id", columns="label", values=RECALL).astype(float)
    alone = compare_paired(part["old"], part["new"], part.index.tolist()).p_value
    assert item.differs
    assert 4 * alone < item.p_differs == lengths["short"].p_adjusted


def test_a_look_may_spend_its_share_of_the_error_only():
    rng = np.random.default_rng(2)
    frame = lab({"new": noisy(rng, 150, 0.1), "old": noisy(rng, 150)})
    whole, part = (compare_with_rivals(frame, "new", [Rival(8, "old", "old")], share=share)[0] for share in (1.0, 0.2))
    assert part.p_differs == pytest.approx(min(1.0, 5 * whole.p_differs))
    assert part.p_equivalent == pytest.approx(min(1.0, 5 * whole.p_equivalent))


def test_equal_samplers_are_told_apart_in_about_five_of_a_hundred_verdicts_however_often_one_looks():
    rng, repeats, wrong = np.random.default_rng(3), 40, 0
    looks = [number // 10 for number in LOOKS]
    for _ in range(repeats):
        sums = rng.normal(size=(3, looks[-1]))
        for n in looks:
            p_values = [sign_flip_p(values[:n] / n, draws=500)[0] for values in sums]
            if min(holm(p_values)) * sum(looks) / n < 0.05:
                wrong += 1
                break
    assert wrong / repeats <= 0.125


def test_a_sampler_that_finds_the_same_is_equivalent_and_said_to_be():
    rng = np.random.default_rng(4)
    old = noisy(rng, 300)
    frame = lab({"new": np.clip(old + rng.normal(0, 0.05, 300), 0, 1), "old": old})
    (item,) = compare_with_rivals(frame, "new", [Rival(8, "old", "old")])
    assert item.is_decided
    assert not item.differs
    sentence = verdict_sentence(item, frame, "new", {})
    assert sentence.startswith("K = 8, new against old: equivalent within ±3 points: ")
    assert compare_with_rivals(frame, "new", [Rival(8, "old", "old")], margin=0.1)[0].is_decided is False


def test_a_difference_that_the_test_finds_and_the_interval_does_not_is_perhaps_one_and_not_decided():
    gains = [0.1, 0.0, 0.3, 0.0, 0.3, -0.3, 0.1, 0.5, 0.2, 0.1, 0.7, 0.1]
    frame = lab({"new": [0.3 + gain for gain in gains], "old": [0.3] * 12})
    (item,) = compare_with_rivals(frame, "new", [Rival(8, "old", "old")])
    assert item.p_differs < 0.05
    assert (item.word, item.differs, item.is_decided) == ("perhaps ahead of", False, False)
    sentence = verdict_sentence(item, frame, "new", {})
    assert "perhaps more, not decided by 12 videos: +17.5 [−0.5, +32.7], adjusted p = 0.045" in sentence
    assert "(one of 12 questions has 45 % of the spread)" in sentence
    assert whole_verdict({"w": [item]}, "new", 3.0) == (
        "new is perhaps ahead of old. "
        "Perhaps: the test that is adjusted for all comparisons finds it, the interval holds 0."
    )
    # No length of a comparison that is not decided is tested, and the table has no arrow.
    (lengths,) = by_length([item], frame, "new")
    assert {value.p_adjusted for value in lengths.values()} == {None}
    assert "↑" not in verdict_table([item], frame, "new", [lengths]).rows[0].figures[1].ours_text


def test_of_ten_equal_rivals_an_interval_without_0_is_no_verdict():
    # One of ten intervals leaves out 0 in 21 of 100 verdicts; the words follow the p that is adjusted for ten.
    words, rng = [], np.random.default_rng(11)
    for _ in range(12):
        new, rivals = noisy(rng, 60), {f"r{at}": noisy(rng, 60) for at in range(10)}
        compared = compare_with_rivals(lab({"new": new, **rivals}), "new", [Rival(8, name, name) for name in rivals])
        words.append({item.word for item in compared if not item.is_equivalent})
        is_outside = [item.overall.difference.leaves_out_zero for item in compared]
        assert all(item.p_differs >= 0.05 for item, outside in zip(compared, is_outside, strict=True) if not outside)
    assert sum(words_of != {"not told apart from"} for words_of in words) <= 2


def test_questions_that_a_sampler_fails_on_count_as_0_and_are_said():
    frame = lab({"new": [1.0] * 40, "old": [1.0] * 40}, failed="new")
    (item,) = compare_with_rivals(frame, "new", [Rival(8, "old", "old")])
    assert item.overall.difference.value == pytest.approx(-0.1)
    assert item.overall.difference.questions == 40
    sentence = verdict_sentence(item, frame, "new", {})
    assert sentence.endswith("; new failed on 4 of 40 questions, counted as 0.")


def test_questions_on_which_a_sampler_chose_fewer_frames_are_said():
    """A control at a small cost may have fewer frames to choose from than were asked: the difference is that, too."""
    frame = lab({"new": [1.0] * 40, "old": [0.5] * 40}, short="old", failed="old")
    (item,) = compare_with_rivals(frame, "new", [Rival(8, "old", "old")])
    assert verdict_sentence(item, frame, "new", {}).endswith(
        "; old chose fewer frames than asked on 8 of 40 questions."
    )
    frame["n_frames"] = 7
    assert "fewer" not in verdict_sentence(item, frame, "new", {})


def test_the_sentence_names_the_cost_of_both():
    rng = np.random.default_rng(5)
    frame = lab({"new": noisy(rng, 200, 0.3), "old": noisy(rng, 200)}, pulls={"new": 19, "old": 2})
    frame["forward_equivalents"] = frame["n_pulls"].astype(float)
    (item,) = compare_with_rivals(frame, "new", [Rival(8, "old", "old")])
    sentence = verdict_sentence(item, frame, "new", by_length([item], frame, "new")[0])
    assert "points more [+" in sentence
    assert "; more on short, medium, long, hours; at 1.9 % of frames encoded (old 0.20 %)" in sentence
    table = verdict_table([item], frame, "new", by_length([item], frame, "new"))
    assert table.rows[0].figures[0].ours == pytest.approx(0.2)


def test_samplers_that_choose_the_same_have_an_interval():
    values = np.full(150, 0.5)
    frame = lab({"new": values, "old": values})
    (item,) = compare_with_rivals(frame, "new", [Rival(8, "old", "old")])
    assert item.is_equivalent
    table = verdict_table([item], frame, "new", by_length([item], frame, "new"))
    assert not any(figure.has_too_few_videos for figure in table.rows[0].figures)


def test_questions_are_won_and_lost():
    frame = lab({"new": [1.0, 0.5, 0.0, 0.5], "old": [0.0, 0.5, 1.0, 0.25]})
    assert telling_questions(frame, "new", "old", 8) == (["w-0", "w-3"], ["w-2"])


def test_an_advantage_in_one_world_only_is_said_and_one_in_all_or_none_is_not():
    rng = np.random.default_rng(5)
    low, high, rivals = (
        noisy(rng, 300),
        noisy(rng, 300, 0.25),
        [Rival(8, name, name) for name in ("old", "none", "top")],
    )
    compared = {
        world: compare_with_rivals(lab({"new": new, "old": low, "none": 0 * low, "top": high}), "new", rivals)
        for world, new in {"realistic": high, "blind": low}.items()
    }
    assert differing_worlds(compared, "new") == [
        "K = 8: new is ahead of old in realistic only, not in blind.",
        "K = 8: new is behind top in blind only, not in realistic.",
    ]


def test_the_margin_is_in_points_of_recall():
    rng = np.random.default_rng(6)
    old = np.full(300, 0.5)
    frame = lab({"new": old + 0.045 + rng.normal(0, 0.01, 300), "old": old})
    narrow, wide = (compare_with_rivals(frame, "new", [Rival(8, "old", "old")], margin=size)[0] for size in (3.0, 6.0))
    assert (narrow.is_equivalent, wide.is_equivalent) == (False, True)


def test_only_lengths_with_a_clear_difference_are_named():
    rng, n = np.random.default_rng(7), 160
    gain = np.where(np.arange(n) % 4 == 0, 0.3, 0.01 + rng.normal(0, 0.2, n))
    frame = lab({"new": np.clip(0.4 + gain, 0, 1), "old": np.full(n, 0.4)})
    (item,) = compare_with_rivals(frame, "new", [Rival(8, "old", "old")])
    (lengths,) = by_length([item], frame, "new")
    assert all(value.ours is not None for value in lengths.values())
    sentence = verdict_sentence(item, frame, "new", lengths)
    assert "; more on short; " in sentence
    assert "less on" not in sentence


def test_a_rivals_cost_is_that_at_its_own_k():
    rng = np.random.default_rng(8)
    frame = lab({"new": noisy(rng, 40), "old": noisy(rng, 40)}, k=(4, 8))
    frame["forward_equivalents"] = np.where(frame["k"] == 4, 5.0, 20.0)
    compared = compare_with_rivals(frame, "new", [Rival(4, "old", "old"), Rival(8, "old", "old")])
    table = verdict_table(compared, frame, "new", by_length(compared, frame, "new"))
    assert [row.figures[0].ours for row in table.rows] == pytest.approx([0.5, 2.0])


def test_a_gap_that_is_not_decided_makes_no_advantage_in_a_world():
    rng = np.random.default_rng(9)
    low = noisy(rng, 300)
    worlds = {"realistic": np.clip(low + 0.25, 0, 1), "blind": np.clip(low + rng.normal(0.005, 0.3, 300), 0, 1)}
    rivals = [Rival(8, "old", "old")]
    compared = {
        world: compare_with_rivals(lab({"new": new, "old": low}), "new", rivals) for world, new in worlds.items()
    }
    (undecided,) = compared["blind"]
    assert (undecided.differs, undecided.overall.difference.value > 0) == (False, True)
    assert differing_worlds(compared, "new") == ["K = 8: new is ahead of old in realistic only, not in blind."]


def test_the_questions_named_are_those_won_and_lost_by_most():
    frame = lab({"new": [0.0, 0.1, 0.2, 0.3, 0.9, 0.8, 0.7, 0.6], "old": [0.5] * 8})
    assert telling_questions(frame, "new", "old", 8) == (["w-4", "w-5", "w-6"], ["w-0", "w-1", "w-2"])


def test_the_table_of_a_look_states_what_it_may_spend():
    rng = np.random.default_rng(10)
    frame = lab({"new": noisy(rng, 40), "old": noisy(rng, 40)})
    compared = compare_with_rivals(frame, "new", [Rival(8, "old", "old")])
    lengths = by_length(compared, frame, "new")
    first, alone = (verdict_table(compared, frame, "new", lengths, share=share).notes[0] for share in (0.2, 1.0))
    assert "this look may spend 20 % of the error" in first
    assert "this look" not in alone
