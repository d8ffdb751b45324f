"""Statistics against cases computed by hand, against scipy, and by simulation."""

from __future__ import annotations

import numpy as np
import pytest

from focus_eval.bench.benchmarks.registry import facts_of
from focus_eval.bench.report.sign_flips import INTERVAL_DRAWS, SignFlips, sign_flip_p
from focus_eval.bench.report.statistics import (
    Estimate,
    compare_paired,
    detectable_difference,
    difference_estimate,
    equivalence_p,
    mean_estimate,
    standard_error,
    stratum_weights,
    video_sums,
)
from focus_eval.core.errors import InvalidInput


def clustered_scores(rng, *, n_videos, per_video, mean, correlation, seeds=1):
    """Right or wrong answers, the mean over seeds, of videos that differ in difficulty (beta-binomial)."""
    concentration = (1 - correlation) / correlation
    difficulty = rng.beta(mean * concentration, (1 - mean) * concentration, n_videos)
    videos = np.repeat(np.arange(n_videos), per_video)
    return (rng.random((seeds, videos.size)) < difficulty[videos]).mean(axis=0), videos


def test_the_interval_is_a_t_interval_on_the_logit_scale_where_videos_are_many():
    from scipy.stats import t

    rng = np.random.default_rng(5)
    scores, videos = clustered_scores(rng, n_videos=400, per_video=3, mean=0.6, correlation=0.3)
    video_means = np.bincount(videos, weights=scores) / 3
    p, error = video_means.mean(), video_means.std(ddof=1) / 20
    reach = t.ppf(0.975, 399) * error / (p * (1 - p))
    ends = [1 / (1 + np.exp(-(np.log(p / (1 - p)) + sign * reach))) for sign in (-1, 1)]
    estimate = mean_estimate(scores, videos)
    # The imagined half video can only move an end outwards, and of 400 hardly.
    assert ends[0] - 0.001 < estimate.low <= ends[0] + 1e-12
    assert ends[1] - 1e-12 <= estimate.high < ends[1] + 0.001


def test_a_differences_interval_is_the_clustered_t_interval_where_videos_are_many():
    from scipy.stats import t

    rng = np.random.default_rng(6)
    differences, videos = rng.choice([-1.0, 0.0, 1.0], 1200, p=[0.1, 0.6, 0.3]), np.repeat(np.arange(400), 3)
    video_means = differences.reshape(400, 3).mean(axis=1)
    reach = t.ppf(0.975, 399) * video_means.std(ddof=1) / 20
    estimate = difference_estimate(differences, videos)
    assert estimate.value == pytest.approx(video_means.mean())
    assert (estimate.low, estimate.high) == pytest.approx(
        (video_means.mean() - reach, video_means.mean() + reach), abs=0.001
    )
    assert standard_error(differences, videos) == pytest.approx(video_means.std(ddof=1) / 20)


@pytest.mark.parametrize("sizes", [(1, 1, 1, 1, 1, 1), (8, 1, 2, 5, 1, 1)])
def test_the_ends_of_a_mean_are_the_outer_ones_with_and_without_the_imagined_half_video(sizes):
    from scipy.stats import t

    scores, sizes = np.array([0.9, 0.95, 0.9, 1.0, 0.85, 0.95]), np.array(sizes)
    mean, share = np.average(scores, weights=sizes), sizes / sizes.sum()
    # The mean without one video, for each: the jackknife's pseudo-deviations.
    jackknife_means = np.array([np.average(np.delete(scores, at), weights=np.delete(sizes, at)) for at in range(6)])
    parts = np.sqrt(5 / 6) * (mean - jackknife_means)
    freedom = 1 / (share**2).sum() - 1

    def ends(centre, error):
        reach = t.ppf(0.975, freedom) * error / (centre * (1 - centre))
        return [1 / (1 + np.exp(-(np.log(centre / (1 - centre)) + sign * reach))) for sign in (-1, 1)]

    plain = ends(mean, np.sqrt((parts**2).sum()))
    half = 0.5 * (share**2).sum()  # half a video of effective size
    centre = (mean + 0.5 * half) / (1 + half)
    moved = np.append(parts + (mean - centre) * share, (0.5 - centre) * half * np.sqrt(6 / 5))
    imagined = ends(centre, np.sqrt((moved**2).sum()) / (1 + half))
    assert imagined[0] < plain[0] - 0.05, "here it decides"
    estimate = mean_estimate(np.repeat(scores, sizes), np.repeat(range(6), sizes).tolist())
    assert (estimate.low, estimate.high) == pytest.approx((min(plain[0], imagined[0]), max(plain[1], imagined[1])))


def test_the_ends_of_a_differences_interval_are_the_means_the_test_rejects_at_five_percent():
    rng = np.random.default_rng(8)
    sizes = rng.integers(1, 9, 60)
    differences = np.repeat(np.clip(rng.exponential(0.3, 60) - 0.2, -1, 1), sizes)
    estimate = difference_estimate(differences, np.repeat(np.arange(60), sizes))
    # Moved by an end, 0 is just not rejected; the two imagined half videos matter little among 60.
    for end in (estimate.low, estimate.high):
        sums = np.bincount(np.repeat(np.arange(60), sizes), weights=(differences - end) / sizes.sum())
        assert sign_flip_p(sums, weights=sizes / sizes.sum())[0] == pytest.approx(0.05, abs=0.012)


def test_questions_of_one_video_do_not_count_as_independent():
    scores = np.repeat(np.random.default_rng(0).random(60) < 0.5, 10)
    # Ten copies of one answer carry the information of one: sqrt(10) times the error.
    naive_error = standard_error(scores - 0.5, range(600))
    assert standard_error(scores - 0.5, np.repeat(np.arange(60), 10)) / naive_error == pytest.approx(10**0.5, rel=0.02)


def test_all_right_is_not_certainty():
    # Wilson for 12 of 12: 12 / (12 + 1.96^2) = 0.7575.
    estimate = mean_estimate([1.0] * 36, np.repeat(np.arange(12), 3))
    assert estimate.low == pytest.approx(12 / (12 + 1.959964**2), abs=1e-4)
    assert estimate.high == pytest.approx(1.0)


@pytest.mark.parametrize("n_videos", [1, 2, 4])
def test_fewer_than_five_videos_allow_no_interval(n_videos):
    scores, videos = [1, 0, 1] * n_videos, np.repeat(np.arange(n_videos), 3)
    assert mean_estimate(scores, videos).low is None
    assert difference_estimate(scores, videos).high is None
    assert compare_paired([0, 0, 0] * n_videos, scores, videos).detectable() is None


def test_where_fewer_than_five_videos_differ_the_interval_is_that_of_how_many_do():
    from scipy.stats import binomtest

    estimate = difference_estimate([1.0] * 4 + [0.0] * 36, range(40))
    ends = [binomtest(count, 40).proportion_ci().high for count in (0, 4)]
    assert (estimate.low, estimate.high) == pytest.approx((-ends[0], ends[1]))
    alike = difference_estimate([0.0] * 150, range(150))
    assert (alike.low, alike.high) == pytest.approx((-0.0243, 0.0243), abs=1e-4)


def test_an_interval_of_how_many_videos_differ_allows_for_the_largest_video():
    from scipy.stats import binomtest

    # 40 questions, 10 of them about the first video: 31 videos, the largest 10 / (40 / 31) = 7.75 times the mean.
    videos = [0] * 10 + list(range(1, 31))
    estimate = difference_estimate([0.0] * 10 + [1.0] * 2 + [0.0] * 28, videos)
    ends = [binomtest(count, 31).proportion_ci().high * 7.75 for count in (0, 2)]
    assert (estimate.low, estimate.high) == pytest.approx((-ends[0], min(1.0, ends[1])))
    assert estimate.remark == "2 of 31 videos differ"
    # The equivalence of such videos allows for it too: none of 31 differs if 1 % / 7.75 of the videos do.
    assert equivalence_p([0.0] * 40, videos, margin=0.01) == pytest.approx((1 - 0.01 / 7.75) ** 31)


def uneven_differences(rng):
    """Skewed mean differences of 60 videos of Zipf sizes (1 in 10 gains .9, the others lose .1), expected value 0."""
    sizes = np.maximum(1, np.round(60 / np.arange(1, 61))).astype(int)
    return np.repeat(np.where(rng.random(60) < 0.1, 0.9, -0.1), sizes), np.repeat(np.arange(60), sizes)


def test_a_few_videos_with_most_questions_widen_a_differences_interval_until_it_covers():
    rng, covered, repeats = np.random.default_rng(12), 0, 200
    for _ in range(repeats):
        estimate = difference_estimate(*uneven_differences(rng))
        covered += estimate.low <= 0 <= estimate.high
        assert estimate.remark == "few effective videos: 13 of 60"
    # 91 % with half videos at half of the largest video's part.
    assert covered / repeats > 0.95


def test_a_few_videos_with_most_questions_widen_a_means_interval_until_it_covers():
    sizes = np.maximum(1, np.round(200 / np.arange(1, 101))).astype(int)
    rng, covered, repeats, videos = np.random.default_rng(13), 0, 300, np.repeat(np.arange(100), sizes)
    for _ in range(repeats):
        chance = rng.beta(0.95, 0.05, 100)
        estimate = mean_estimate((rng.random(videos.size) < chance[videos]).astype(float), videos)
        covered += estimate.low <= 0.95 <= estimate.high
    # 89 % with half a video of average size.
    assert covered / repeats > 0.94


def test_videos_of_like_size_are_not_called_few():
    rng = np.random.default_rng(14)
    videos = np.repeat(np.arange(60), rng.integers(1, 9, 60))
    assert difference_estimate(rng.choice([-1, 0, 1], videos.size), videos).remark == ""


def test_no_interval_has_width_zero():
    # The same difference in every video, which the demo once printed as +33.3 [33.3, 33.3].
    difference = difference_estimate([1, 0, 0] * 6, np.repeat(np.arange(6), 3))
    assert difference.value == pytest.approx(1 / 3)
    assert difference.low < difference.value < difference.high
    mean = mean_estimate([1, 0, 0] * 6, np.repeat(np.arange(6), 3))
    assert mean.low < 0.15
    assert mean.high > 0.6
    with pytest.raises(InvalidInput, match="width 0"):
        Estimate(0.5, 0.5, 0.5, 3, 6)


@pytest.mark.parametrize("scores", [[], [float("nan")], [1.5], [-0.1]])
def test_scores_that_are_none_are_refused(scores):
    with pytest.raises(InvalidInput):
        mean_estimate(scores, ["a"] * len(scores))
    with pytest.raises(InvalidInput):
        compare_paired([0.5] * len(scores), scores, ["a"] * len(scores))


def test_a_comparison_needs_the_same_questions():
    with pytest.raises(InvalidInput, match="the same questions, got 2 and 3"):
        compare_paired([1, 0], [1, 0, 1], list("abc"))


def test_the_mean_over_task_types_is_lmms_evals():
    from lmms_eval.tasks.vsibench.utils import vsibench_aggregate_overall

    rng = np.random.default_rng(7)
    kinds = [
        *("object_rel_direction_easy", "object_rel_direction_medium", "object_rel_direction_hard"),
        *("object_rel_distance", "route_planning", "obj_appearance_order"),
        *("object_abs_distance", "object_counting", "object_size_estimation", "room_size_estimation"),
    ]
    documents = []
    for _ in range(200):
        kind, score = str(rng.choice(kinds)), float(rng.integers(0, 11)) / 10
        documents.append({"question_type": kind, "accuracy": score, "MRA:.5:.95:.05": score})
    categories = [document["question_type"] for document in documents]
    scores = [document["accuracy"] for document in documents]
    estimate = mean_estimate(scores, range(200), strata=facts_of("vsibench").strata(categories))
    assert estimate.value == pytest.approx(vsibench_aggregate_overall(documents), abs=1e-6)
    assert abs(estimate.value - np.mean(scores)) > 0.005


def test_task_types_weigh_the_same_however_many_questions_they_have():
    weights = stratum_weights(["count", "count", "count", "d/easy", "d/hard"])
    assert weights == pytest.approx([1 / 6, 1 / 6, 1 / 6, 1 / 4, 1 / 4])
    sums = video_sums([1, 0, 0, -1, 1], list("aabbc"), strata=["count", "count", "count", "d/easy", "d/hard"])
    assert sums == pytest.approx([1 / 6, -1 / 4, 1 / 4])


def test_only_mlvu_and_vsibench_are_means_over_task_types():
    assert facts_of("longvideobench").strata(["a", "b"]) is None
    assert facts_of("mlvu").strata(["order", "ego"]) == ["order", "ego"]
    assert facts_of("mlvu").strata(["order", ""]) is None, "rows that do not say their category"
    assert facts_of("vsibench").strata(["object_rel_direction_hard", "object_rel_distance"]) == [
        "object_rel_direction/hard",
        "object_rel_distance",
    ]


def test_a_task_types_mean_has_an_interval_that_is_wider_where_its_questions_are_few():
    scores = [*([1, 0] * 50), 1, 0]
    strata = ["many"] * 100 + ["few"] * 2
    over_types = mean_estimate(scores, range(102), strata=strata)
    assert over_types.high - over_types.low > 1.5 * (mean_estimate(scores, range(102)).high - 0.5)


@pytest.mark.parametrize(("n_videos", "mean", "seeds"), [(9, 0.95, 1), (12, 0.8, 3), (60, 0.5, 1)])
def test_the_interval_covers_the_true_accuracy(n_videos, mean, seeds):
    rng, covered, repeats = np.random.default_rng(n_videos), 0, 400
    for _ in range(repeats):
        scores, videos = clustered_scores(rng, n_videos=n_videos, per_video=3, mean=mean, correlation=0.2, seeds=seeds)
        estimate = mean_estimate(scores, videos)
        covered += estimate.low <= mean <= estimate.high
    # About 95 % (docs/statistics.md has more cases); three standard errors of 400 repeats are 3.3 points.
    assert covered / repeats > 0.915


@pytest.mark.parametrize("counts", [[2] * 9, [1] * 12, [1, 4, 4, 4, 4, 4]])
def test_the_interval_covers_a_mean_over_task_types_of_few_questions(counts):
    # 71 to 75 % before each type's n / (n - 1), and with types of one question that had no spread.
    rng, kind, repeats = np.random.default_rng(sum(counts)), np.repeat(np.arange(len(counts)), counts), 300
    chance = 0.7 + np.linspace(-0.15, 0.15, len(counts))
    covered = 0
    for _ in range(repeats):
        scores = (rng.random(kind.size) < chance[kind]).astype(float)
        estimate = mean_estimate(scores, range(kind.size), strata=kind.astype(str))
        covered += estimate.low <= 0.7 <= estimate.high
    assert covered / repeats > 0.91


def test_a_type_of_one_question_adds_to_the_spread():
    scores, strata = [1.0, 0.0, 1.0, 1.0, 0.0, 1.0], ["a"] * 3 + ["b"] * 3 + ["alone"]
    # The other two types weigh a third each; 1/3 is the variance of 1, 0, 1.
    of_others = np.sqrt(2 * (1 / 3) ** 2 * (1 / 3) / 3)
    for score in (1.0, 0.0):
        assert standard_error([*scores, score], range(7), strata=strata) > 1.1 * of_others


@pytest.mark.parametrize("shape", ["skewed", "rare"])
def test_skewed_differences_of_very_unequal_videos_are_told_from_0_in_about_five_of_a_hundred_runs(shape):
    rng, repeats, rejected, unstudentised = np.random.default_rng(11), 250, 0, 0
    for _ in range(repeats):
        sizes = np.ceil(np.exp(rng.normal(0.5, 1.2, 60))).astype(int)
        exponential = rng.exponential(0.2, 60) - 0.2
        mean = np.where(rng.random(60) < 0.1, 0.9, -0.1) if shape == "rare" else exponential
        sums, weights = sizes * mean / sizes.sum(), sizes / sizes.sum()
        rejected += sign_flip_p(sums, weights=weights, draws=500)[0] <= 0.05
        plain = np.abs((1.0 - 2.0 * rng.integers(0, 2, (500, 60))) @ sums)
        unstudentised += (plain >= abs(sums.sum())).mean() <= 0.05
    assert rejected / repeats < 0.095
    assert shape == "skewed" or unstudentised / repeats > 0.11


def test_two_one_sided_tests_agree_with_the_ninety_percent_interval():
    rng = np.random.default_rng(9)
    videos = np.repeat(np.arange(80), 2)
    differences = np.clip(rng.normal(0.01, 0.15, 160), -1, 1)
    narrow = difference_estimate(differences, videos, level=0.9)
    reach = max(abs(narrow.low), abs(narrow.high))
    assert equivalence_p(differences, videos, margin=1.1 * reach) < 0.05
    assert equivalence_p(differences, videos, margin=0.9 * reach) > 0.05
    with pytest.raises(InvalidInput, match="margin must be above 0"):
        equivalence_p(differences, videos, margin=0)


def test_samplers_that_choose_the_same_are_equivalent_once_the_videos_are_enough():
    # If 3 % of videos differed, none of 98 would with a chance of .97 ** 98, just above .05.
    assert equivalence_p([0.0] * 98, range(98), margin=0.03) == pytest.approx(0.97**98)
    assert equivalence_p([0.0] * 99, range(99), margin=0.03) < 0.05
    assert equivalence_p([0.0] * 4, range(4), margin=0.5) == 1.0


def test_where_few_videos_differ_equivalence_needs_gains_and_losses_to_be_rare():
    from scipy.stats import binom

    # Two of 99 videos gain, none loses: that gains are common is the harder one to rule out.
    differences = [1.0, 1.0] + [0.0] * 97
    assert equivalence_p(differences, range(99), margin=0.03) == pytest.approx(binom.cdf(2, 99, 0.03))
    assert equivalence_p([-d for d in differences], range(99), margin=0.03) == pytest.approx(binom.cdf(2, 99, 0.03))


def test_videos_are_few_effective_ones_below_half_of_their_number():
    rng = np.random.default_rng(3)
    # Ten videos, one of n questions and nine of 1: (n + 9)² / (n² + 9) is 5.8 for 5 and 4.4 for 7.
    for largest, remark in ((5, ""), (7, "few effective videos: 4 of 10")):
        videos = np.repeat(np.arange(10), [largest, *[1] * 9])
        assert difference_estimate(rng.choice([-1.0, 1.0], videos.size), videos).remark == remark


def test_a_mean_of_unequal_videos_has_the_degrees_of_freedom_of_its_effective_number():
    from scipy.special import logit
    from scipy.stats import t

    sizes = np.array([40, 10, 10, 5, 5, 5, 5, 5, 5, 5])
    videos = np.repeat(np.arange(10), sizes)
    scores = (np.arange(videos.size) % 2).astype(float)
    estimate, error = mean_estimate(scores, videos), standard_error(scores, videos)
    effective = sizes.sum() ** 2 / (sizes**2).sum()
    slope = estimate.value * (1 - estimate.value)
    for end in (estimate.low, estimate.high):
        assert abs(logit(end) - logit(estimate.value)) >= t.ppf(0.975, effective - 1) * error / slope - 1e-9


def test_a_task_type_of_one_video_joins_the_type_with_the_next_fewest_videos():
    strata = ["alone"] + ["small"] * 2 + ["big"] * 10

    def error(alone, small, big):
        return standard_error([alone, *[small] * 2, *[big] * 10], range(13), strata=strata)

    # With the small type it has no spread where they are equal, whatever the big type is.
    assert error(1.0, 1.0, 0.0) == pytest.approx(0.0, abs=1e-12)
    assert error(0.0, 1.0, 0.0) > 0.1


def test_a_differences_interval_is_of_the_videos_and_two_half_ones():
    rng = np.random.default_rng(4)
    sizes = np.array([3, 2, 2, 2, 1, 1, 1, 1])
    differences, videos = rng.choice([-1.0, 0.0, 1.0], sizes.sum(), p=[0.2, 0.2, 0.6]), np.repeat(np.arange(8), sizes)
    sums = np.bincount(videos, weights=differences) / sizes.sum()
    half = np.abs(sums).max() / 2
    flips = SignFlips(
        np.append(sums, [half, -half]), np.append(sizes / sizes.sum(), [0.5 / 8, 0.5 / 8]), draws=INTERVAL_DRAWS
    )
    estimate = difference_estimate(differences, videos)
    assert (estimate.low, estimate.high) == flips.interval(sums.sum(), level=0.95)


def test_a_detectable_difference_of_partial_credit_is_at_most_the_mean_absolute_difference():
    # Half of 400 questions gain a tenth, half lose it: 2.8 standard errors, and none could be more than a tenth.
    differences = np.tile([0.1, -0.1], 200)
    error = standard_error(differences, range(400))
    assert detectable_difference(differences, range(400)) == pytest.approx(2.81 * error, rel=0.01)
    # 20 of 400 differ by a tenth: a mean difference of at most .5 points.
    few_gains = np.where(np.arange(400) % 20 == 0, np.tile([0.1, -0.1], 200), 0.0)
    few_gains[20::40] *= -1
    difference = detectable_difference(few_gains, range(400))
    assert difference is None or difference <= np.abs(few_gains).mean() + 1e-12


def test_five_videos_are_enough_for_an_interval_of_a_mean():
    four, five = (mean_estimate([1.0, 0.5, 0.0, 0.5, 1.0][:n], range(n)) for n in (4, 5))
    assert (four.low, four.high) == (None, None)
    assert 0 < five.low < five.value < five.high < 1


def test_an_interval_that_ends_at_0_does_not_leave_it_out():
    ends = {"value": 0.1, "questions": 20, "videos": 10}
    assert not Estimate(low=0.0, high=0.2, **ends).leaves_out_zero
    assert not Estimate(low=-0.1, high=0.2, **ends).leaves_out_zero
    assert Estimate(low=0.01, high=0.2, **ends).leaves_out_zero
