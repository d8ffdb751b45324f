"""Statistics against cases computed by hand, against scipy, and by simulation."""

from __future__ import annotations

from math import comb

import numpy as np
import pytest

from focus_eval.errors import InvalidInput
from focus_eval.report.statistics import (
    compare_paired,
    design_effect_of,
    holm,
    mcnemar_p,
    mean_estimate,
    minimal_difference,
    spread_over_seeds,
)


def clustered_scores(rng, *, n_videos, per_video, mean, correlation):
    """Right or wrong answers whose videos differ in difficulty (beta-binomial)."""
    concentration = (1 - correlation) / correlation
    difficulty = rng.beta(mean * concentration, (1 - mean) * concentration, n_videos)
    videos = np.repeat(np.arange(n_videos), per_video)
    return (rng.random(videos.size) < difficulty[videos]).astype(float), videos


def test_exact_mcnemar_is_the_two_sided_binomial():
    # 3 against 9: twice the chance of at most 3 heads in 12 throws, (1 + 12 + 66 + 220) / 4096.
    by_hand = 2 * sum(comb(12, i) for i in range(4)) / 2**12
    assert mcnemar_p(3, 9) == (pytest.approx(by_hand), True)
    assert by_hand == pytest.approx(0.14599609375)


def test_many_disagreements_use_the_corrected_chi_square():
    from scipy.stats import chi2

    # (|40 - 20| - 1)^2 / 60 = 361 / 60.
    p_value, is_exact = mcnemar_p(40, 20)
    assert p_value == pytest.approx(chi2.sf(361 / 60, 1))
    assert not is_exact


def test_no_disagreement_is_no_evidence():
    assert mcnemar_p(0, 0) == (1.0, True)


def test_disagreements_are_counted_by_side():
    compared = compare_paired([1, 1, 0, 0, 1], [1, 0, 1, 1, 1], list("abcde"))
    assert (compared.only_a, compared.only_b, compared.disagreements) == (1, 2, 3)
    assert compared.difference.value == pytest.approx(0.2)
    assert compared.holds_zero


def test_holm_steps_down():
    # Sorted .01 .02 .03 .04 times 4 3 2 1, then never less than the one before: .04 .06 .06 .06.
    assert holm([0.03, 0.01, 0.04, 0.02]) == pytest.approx([0.06, 0.04, 0.06, 0.06])


def test_spread_is_the_sample_deviation():
    spread = spread_over_seeds([60.0, 62.0, 64.0])
    assert (spread.mean, spread.deviation, spread.seeds) == (62.0, 2.0, 3)
    assert np.isnan(spread_over_seeds([60.0]).deviation)


def test_the_interval_is_that_of_scipy_where_clusters_are_many():
    from scipy.stats import bootstrap

    rng = np.random.default_rng(5)
    scores, videos = clustered_scores(rng, n_videos=400, per_video=3, mean=0.6, correlation=0.3)
    sums = np.bincount(videos, weights=scores)
    theirs = bootstrap((sums / 3,), np.mean, n_resamples=4000, method="percentile", rng=np.random.default_rng(1))
    ours = mean_estimate(scores, videos)
    assert ours.low == pytest.approx(theirs.confidence_interval.low, abs=0.004)
    assert ours.high == pytest.approx(theirs.confidence_interval.high, abs=0.004)


def test_questions_of_one_video_do_not_count_as_independent():
    scores = np.repeat(np.random.default_rng(0).random(60) < 0.5, 10)
    alone = mean_estimate(scores, range(600))
    clustered = mean_estimate(scores, np.repeat(np.arange(60), 10))
    # Ten copies of one answer carry the information of one: sqrt(10) times the width.
    assert clustered.half_width / alone.half_width == pytest.approx(np.sqrt(10), rel=0.08)
    assert design_effect_of(scores, np.repeat(np.arange(60), 10)) == pytest.approx(10, rel=0.05)


def test_an_interval_depends_on_nothing_but_its_input():
    scores, videos = [1, 0, 1, 1, 0, 1] * 20, list("aabbcc") * 20
    assert mean_estimate(scores, videos) == mean_estimate(scores, videos)


def test_all_right_is_not_certainty():
    # Wilson for 12 of 12: 12 / (12 + 1.96^2) = 0.7575.
    estimate = mean_estimate([1.0] * 36, np.repeat(np.arange(12), 3))
    assert estimate.low == pytest.approx(12 / (12 + 1.959964**2), abs=1e-4)
    assert estimate.high == pytest.approx(1.0)


def test_one_video_says_nothing():
    assert mean_estimate([1, 0, 1], ["a"] * 3).low == 0.0
    assert mean_estimate([1, 0, 1], ["a"] * 3).high == 1.0


@pytest.mark.parametrize("scores", [[], [float("nan")], [1.5], [-0.1]])
def test_scores_that_are_none_are_refused(scores):
    with pytest.raises(InvalidInput):
        mean_estimate(scores, ["a"] * len(scores))


@pytest.mark.parametrize(("n_videos", "per_video"), [(4, 3), (12, 3), (60, 3), (300, 2)])
def test_the_interval_covers_the_true_accuracy(n_videos, per_video, capsys):
    rng, covered, repeats = np.random.default_rng(n_videos), 0, 400
    for repeat in range(repeats):
        scores, videos = clustered_scores(rng, n_videos=n_videos, per_video=per_video, mean=0.6, correlation=0.2)
        estimate = mean_estimate(scores, videos, draws=600, seed=repeat)
        covered += estimate.low <= 0.6 <= estimate.high
    with capsys.disabled():
        print(f"\n95 % interval, {n_videos} videos of {per_video} questions: covers in {covered / repeats:.1%}", end="")
    # Three standard errors of 400 repeats are 3.3 points; with 4 videos the interval is known to be a little short.
    assert covered / repeats > (0.88 if n_videos < 10 else 0.915)


@pytest.mark.parametrize("n_videos", [12, 300])
def test_the_paired_test_keeps_its_size_and_finds_a_real_difference(n_videos, capsys):
    rng, repeats = np.random.default_rng(n_videos), 400
    rejected, emphasised, found = 0, 0, 0
    for repeat in range(repeats):
        first, videos = clustered_scores(rng, n_videos=n_videos, per_video=3, mean=0.6, correlation=0.2)
        asked_again = rng.random(first.size) < 0.3
        same = np.where(asked_again, rng.random(first.size) < 0.6, first)
        same_on_average = compare_paired(
            same, np.where(asked_again, rng.random(first.size) < 0.6, first), videos, draws=300, seed=repeat
        )
        rejected += same_on_average.p_value <= 0.05
        emphasised += not same_on_average.holds_zero
        better = np.where(asked_again, 1.0, first)
        found += compare_paired(first, better, videos, draws=2).p_value <= 0.05
    with capsys.disabled():
        print(
            f"\npaired, {3 * n_videos} questions: McNemar rejects {rejected / repeats:.1%}, intervals leave out 0 in "
            f"{emphasised / repeats:.1%} of equal pairs; a real difference is found in {found / repeats:.1%}",
            end="",
        )
    assert rejected / repeats < 0.083
    assert emphasised / repeats < 0.11
    assert found / repeats > (0.99 if n_videos == 300 else 0.1)


def test_the_minimal_difference_is_found_with_the_promised_power():
    n, disagreement = 1337, 0.2
    least = minimal_difference(n, disagreement=disagreement)
    rng, found, repeats = np.random.default_rng(0), 0, 2000
    for _ in range(repeats):
        only_b, only_a, _rest = rng.multinomial(
            n, [(disagreement + least) / 2, (disagreement - least) / 2, 1 - disagreement]
        )
        found += mcnemar_p(int(only_a), int(only_b))[0] <= 0.05
    assert found / repeats == pytest.approx(0.8, abs=0.04)


def test_no_difference_of_a_tiny_benchmark_can_be_seen():
    assert np.isnan(minimal_difference(5, disagreement=0.2))
    assert minimal_difference(1337, disagreement=0.2, design_effect=2) > minimal_difference(1337, disagreement=0.2)


def test_videos_that_all_have_the_same_mean_still_leave_doubt():
    made = mean_estimate([1, 0, 0, 0, 1, 0], ["a", "a", "a", "b", "b", "b"])
    assert made.value == pytest.approx(1 / 3)
    assert made.low < 0.1
    assert made.high > 0.8
