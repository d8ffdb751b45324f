"""Power before effort: what a number of questions can show, and how many videos would show more."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import stdtrit
from typer.testing import CliRunner

from focus_eval.bench.matrix.questions import public_facts
from focus_eval.bench.report.comparisons import Pair, baseline_table, comparison_table
from focus_eval.bench.report.power import (
    Discordance,
    expected_discordances,
    least_difference,
    more_videos_text,
    power_reach,
    t_quantile,
    videos_needed,
)
from focus_eval.bench.report.run import load_run
from focus_eval.bench.report.sign_flips import SEED as SIGN_SEED
from focus_eval.bench.report.sign_flips import rejections, sign_flip_p
from focus_eval.bench.report.statistics import (
    compare_paired,
    detectable_difference,
    difference_estimate,
    standard_error,
)
from focus_eval.cli import app
from focus_eval.core.errors import InvalidInput
from tests.bench.report.simulated import Simulation, simulate_run

PUBLISHED = Discordance(**public_facts("discordance")["longvideobench"])
# Questions per video of LongVideoBench val: 357 videos have one, 208 two, 188 three.
LONGVIDEOBENCH = [1] * 357 + [2] * 208 + [3] * 188


def test_longvideobench_shows_3_6_points_and_mlvu_test_5_to_6():
    assert sum(LONGVIDEOBENCH) == 1337
    assert round(100 * least_difference(LONGVIDEOBENCH, PUBLISHED), 1) == 3.6
    assert 5 < 100 * least_difference([1] * 502, PUBLISHED) < 6


def test_many_correlated_videos_of_few_differing_questions_can_show_no_difference():
    # 40 of 5,000 questions differ: all in one direction are .8 points, and the t test needs 2.4.
    assert least_difference([50] * 100, Discordance(share=0.008, video_correlation=0.9)) is None
    assert least_difference([50] * 100, Discordance(share=0.008)) < 0.008


def test_correlated_questions_of_sixty_videos_show_about_what_a_t_test_of_their_means_shows():
    sizes = [18] * 60
    for correlation in (0.1, 0.3):
        error = np.sqrt(0.21 * (1 + 17 * correlation) / sum(sizes))
        difference = least_difference(sizes, Discordance(share=0.21, video_correlation=correlation))
        assert difference == pytest.approx(power_reach(60) * error, rel=0.1)


def test_a_planned_difference_is_the_one_that_is_detected_afterwards():
    rng = np.random.default_rng(0)
    videos = np.repeat(np.arange(753), LONGVIDEOBENCH)
    differences = rng.choice([-1, 0, 1], size=videos.size, p=[0.1, 0.79, 0.11])
    effect = standard_error(differences, videos.tolist()) ** 2 * videos.size / differences.var()
    repeats = sum(n**2 for n in LONGVIDEOBENCH) / videos.size - 1
    discordance = Discordance(share=differences.var(), video_correlation=(effect - 1) / repeats)
    assert least_difference(LONGVIDEOBENCH, discordance) == pytest.approx(
        detectable_difference(differences, videos.tolist()), rel=0.005
    )


def test_a_difference_of_the_least_size_is_found_in_four_of_five_runs():
    rng, n_detected = np.random.default_rng(1), 0
    detectable = least_difference([1] * 400, Discordance(share=0.2))
    for _ in range(100):
        differences = rng.choice([-1, 0, 1], size=400, p=[(0.2 - detectable) / 2, 0.8, (0.2 + detectable) / 2])
        comparison = compare_paired(differences < 0, differences > 0, list(range(400)))
        n_detected += comparison.p_value < 0.05
    assert 0.68 < n_detected / 100 < 0.92


def urn_differences(rng, questions_per_video, share, correlation, difference):
    """Right and wrong answers to questions of videos, each video with its own chances (Dirichlet)."""
    chances = np.array([(share + difference) / 2, (share - difference) / 2, 1 - share])
    n_videos = len(questions_per_video)
    of_video = rng.dirichlet(np.maximum(chances, 1e-9) * (1 - correlation) / correlation, n_videos)
    videos = np.repeat(np.arange(n_videos), questions_per_video)
    draws = rng.random(videos.size)
    gains, losses = draws < of_video[videos, 0], draws > 1 - of_video[videos, 1]
    return gains.astype(float) - losses, videos


@pytest.mark.parametrize(
    ("questions_per_video", "share", "correlation"),
    [
        ([3] * 12, 0.4, 0.1),
        ([3] * 20, 0.4, 0.1),
        ([18] * 60, 0.1, 0.3),
        ([12] * 6 + [2] * 40, 0.3, 0.1),
        ([3] * 296, 0.1, 0.1),
    ],
)
def test_few_or_correlated_or_uneven_videos_find_the_stated_difference_in_about_four_of_five_runs(
    questions_per_video, share, correlation
):
    stated = least_difference(questions_per_video, Discordance(share=share, video_correlation=correlation))
    rng, n_found, repeats = np.random.default_rng(3), 0, 250
    for _ in range(repeats):
        differences, videos = urn_differences(rng, questions_per_video, share, correlation, stated)
        sums = np.bincount(videos, weights=differences / videos.size)
        is_rejected = sign_flip_p(sums, weights=np.bincount(videos) / videos.size, draws=400)[0] <= 0.05
        # An arrow takes the interval too, which is wide where six videos have half of the questions.
        is_even = len(set(questions_per_video)) == 1
        n_found += is_rejected and (is_even or difference_estimate(differences, videos).leaves_out_zero)
    # Three standard errors of 250 runs are 8 points.
    assert n_found / repeats == pytest.approx(0.8, abs=0.09)


def test_ten_comparisons_at_once_need_about_a_third_more_which_is_found_in_four_of_five_runs_after_holm():
    single, among_ten = (least_difference([2] * 400, Discordance(share=0.2), tests=tests) for tests in (1, 10))
    # Normal quantiles: (2.807 + .842) / (1.960 + .842).
    assert among_ten / single == pytest.approx(1.303, rel=0.01)
    discordance, sizes = Discordance(share=0.3, video_correlation=0.1), [3] * 60
    simulated = least_difference(sizes, discordance, tests=10)
    assert 1.2 < simulated / least_difference(sizes, discordance) < 1.45
    rng, n_found = np.random.default_rng(8), 0
    for _ in range(250):
        differences, videos = urn_differences(rng, sizes, 0.3, 0.1, simulated)
        sums = np.bincount(videos, weights=differences / videos.size)
        n_found += sign_flip_p(sums, draws=2000)[0] <= 0.005
    assert n_found / 250 == pytest.approx(0.8, abs=0.09)


def test_a_table_states_what_its_lines_could_show_after_holm(tmp_path):
    rng = np.random.default_rng(9)
    a, b = ((rng.random(400) < 0.5).astype(float) for _ in range(2))
    pair = Pair(group=("b", "m", "8"), a="u", b="v", compared=compare_paired(a, b, range(400)))
    single, ten = (comparison_table([pair] * n, name="n", title="t") for n in (1, 10))
    assert ten.rows[0].figures[-1].ours / single.rows[0].figures[-1].ours == pytest.approx(1.303, rel=0.01)
    assert any("gets an arrow as one of 10 that Holm adjusts in 80 % of runs" in note for note in ten.notes)
    assert any("gets an arrow in 80 % of runs" in note for note in single.notes)
    videos = [next(note for note in table.notes if note.startswith("Power")) for table in (single, ten)]
    n_one, n_ten = (int(re.search(r"takes ([\d,]+) more", text)[1].replace(",", "")) + 400 for text in videos)
    # The number of videos grows with the square of the difference.
    assert n_ten / n_one == pytest.approx(1.303**2, rel=0.01)


def test_a_difference_that_the_discordance_does_not_allow_cannot_be_shown(tmp_path):
    assert least_difference([3] * 12, Discordance(share=0.1)) is None
    assert least_difference([3] * 12, Discordance(share=0.21)) is None
    # 30 of 36 questions stay equal; the t test would have said 20 points where 17 can differ.
    differences, videos = [1, 1, 1, -1, -1, 1] + [0] * 30, np.arange(36) % 12
    assert detectable_difference(differences, videos) is None
    compared = compare_paired([max(0, -d) for d in differences], [max(0, d) for d in differences], videos)
    table = comparison_table([Pair(group=("b", "m", "8"), a="u", b="v", compared=compared)], name="n", title="t")
    assert table.rows[0].figures[-1].ours_text == "none"
    assert any("cannot be shown with this many videos" in note for note in table.notes)


def test_correlation_within_videos_raises_the_least_difference_by_the_design_effect():
    # 1 + (18 - 1) .3 = 6.1 times the variance; uneven videos count by questions: (120 * 6 ** 2 + 400) / 1120 = 4.21.
    for counts, effect in (([18] * 400, 6.1), ([6] * 120 + [1] * 400, 1 + (4720 / 1120 - 1) * 0.3)):
        alone, correlated = (
            least_difference(counts, Discordance(share=0.3, video_correlation=correlation)) for correlation in (0, 0.3)
        )
        assert correlated / alone == pytest.approx(effect**0.5)


def test_a_runs_rows_give_the_correlation_that_its_power_is_computed_from():
    rng = np.random.default_rng(5)
    correlated, videos = urn_differences(rng, [18] * 60, 0.21, 0.3, 0.0)
    expected = least_difference([18] * 60, Discordance(share=0.21, video_correlation=0.3))
    assert detectable_difference(correlated, videos) == pytest.approx(expected, rel=0.25)
    assert detectable_difference(rng.permutation(correlated), videos) < 0.6 * expected


def test_partial_credit_is_simulated_with_differences_of_its_size():
    # All 24 questions differ, by a tenth: as differences of 1 a tenth as often, 4.8 of 24 videos would differ.
    differences = np.tile([0.1, -0.1], 12)
    assert detectable_difference(differences, np.arange(24)) == pytest.approx(power_reach(24) * 0.1 / 24**0.5, rel=0.1)
    assert least_difference([1] * 24, Discordance(share=0.01)) is None


def test_many_tests_at_once_are_those_one_by_one():
    rng = np.random.default_rng(2)
    weights = np.array([5, 3, *[1] * 18]) / 26
    sums = np.where(rng.random((60, 20)) < 0.5, 0, rng.normal(1.0, 1, (60, 20))) * weights
    p_values = np.array([sign_flip_p(line, weights=weights)[0] for line in sums])
    rejected = rejections(sums, weights, level=0.05, draws=2000)
    is_clear = np.abs(p_values - 0.05) > 0.015
    assert is_clear.sum() > 45
    assert rejected[is_clear].tolist() == (p_values <= 0.05)[is_clear].tolist()
    assert 5 < rejected.sum() < 55
    # 2 of 32 assignments are as far: never below .05, whatever the draws.
    five = np.zeros((1, 20))
    five[0, :5] = 1.0
    assert not rejections(five, weights, level=0.05, draws=30).any()


@pytest.mark.parametrize("questions", [[5] * 20, [30, 9, 4, *[1] * 17], [2] * 40])
@pytest.mark.parametrize("level", [0.05, 0.005])
def test_no_assignment_is_left_out_that_reaches_the_observed_statistic(questions, level):
    weights, draws, rng = np.array(questions) / np.sum(questions), 1500, np.random.default_rng(3)
    means = np.linspace(0, 2.5, 80)[:, None]
    sums = np.where(rng.random((80, weights.size)) < 0.2, 0, rng.normal(means, 1, (80, weights.size))) * weights
    signs = np.random.default_rng(SIGN_SEED).choice([-1.0, 1.0], (weights.size, draws + 1))
    signs[:, 0] = 1
    # The statistic by its definition (`SignFlips.statistics`), of every assignment.
    flipped = sums[:, :, None] * signs
    total = flipped.sum(axis=1, keepdims=True)
    rest = flipped - total * weights[:, None]
    error = np.sqrt((rest**2).sum(axis=1))
    skew, t = np.clip((rest**3).sum(axis=1) / error**3, -1, 1), total[:, 0] / error
    distance = np.abs(t + skew * t**2 / 3 + skew**2 * t**3 / 27 + skew / 6)
    p_values = (distance >= distance[:, :1] * (1 - 1e-9)).mean(axis=1)
    rejected = rejections(sums, weights, level=level, draws=draws)
    assert rejected.tolist() == (p_values <= level).tolist()
    assert 5 < rejected.sum() < 80


@given(st.floats(0.005, 0.2), st.integers(2, 5000), st.floats(0.002, 0.3))
def test_the_videos_needed_are_the_fewest_that_show_it(detectable, videos, difference):
    n_needed = videos_needed(detectable, videos, difference)
    detectable_by_count = (
        detectable
        / power_reach(videos)
        * np.sqrt(videos)
        * np.array([power_reach(number) / np.sqrt(number) for number in (n_needed, max(2, n_needed - 1))])
    )
    assert detectable_by_count[0] <= difference * (1 + 1e-9)
    assert n_needed == 2 or detectable_by_count[1] > difference * (1 - 1e-9)
    assert videos_needed(detectable, videos, detectable) == videos


@pytest.mark.parametrize("share", [0.6, 0.8, 0.975, 0.995])
def test_the_quantiles_of_t_are_scipys(share):
    for freedom in (*range(1, 300), 1000, 9175, 10**5):
        assert t_quantile(share, freedom) == pytest.approx(stdtrit(freedom, share), rel=1e-9)


def test_one_video_says_nothing_of_power():
    with pytest.raises(InvalidInput, match="at least two videos"):
        least_difference([5], PUBLISHED)
    with pytest.raises(InvalidInput, match="a share of the questions"):
        Discordance(share=21.0)
    with pytest.raises(InvalidInput, match="differences above 0"):
        videos_needed(0.03, 100, 0.0)


def test_a_comparison_says_what_it_can_show(tmp_path):
    run = load_run(simulate_run(tmp_path / "r", Simulation(n_questions=90, samplers=("uniform", "topk"))))
    table = baseline_table(run)
    note = next(note for note in table.notes if note.startswith("Power (80 %)"))
    assert "in the line with the largest spread, to show 2 points takes " in note
    assert "more videos like these, 1 point " in note
    assert comparison_table([], name="n", title="t").rows == ()


def test_a_plan_states_what_its_questions_can_show():
    arguments = ["plan", "by_length", "--only", "benchmark=longvideobench", "--only", "sampler=uniform"]
    result = CliRunner().invoke(app, arguments)
    output = " ".join(result.output.split())
    shown = "can show a difference of 3.6 points in a single comparison with 80 % power"
    assert f"1,337 questions on 753 videos {shown}" in output
    result = CliRunner().invoke(app, [*arguments, "--discordance", "0.4"])
    assert "a difference of 5.0 points" in " ".join(result.output.split())
    result = CliRunner().invoke(app, [*arguments, "--discordance", "21"])
    assert "above 0 and at most 1, got 21" in str(result.exception)


def test_a_benchmark_without_public_logs_has_a_range_and_says_what_is_assumed():
    arguments = ["plan", "by_length", "--only", "benchmark=videomme", "--only", "sampler=uniform"]
    output = " ".join(CliRunner().invoke(app, arguments).output.split())
    shown = "can show a difference of 2.5 to 3.1 points in a single comparison with 80 % power"
    assert f"2,700 questions on 900 videos {shown}" in output
    assert "correlated by 0 to 0.3 within a video (assumed: no public log of this benchmark was measured)" in output
    (measured,) = expected_discordances(PUBLISHED, share=0.4)
    assert (measured.share, measured.video_correlation) == (0.4, 0.06)


def test_a_text_names_points_and_videos():
    assert more_videos_text(0.01, 1000) == "to show 2 points takes no more videos like these, 1 point no"
    assert more_videos_text(0.036, 753) == "to show 2 points takes 1,683 more videos like these, 1 point 8,983"


def test_many_videos_of_which_few_differ_and_many_questions_of_few_videos_are_simulated():
    # A t test would say 3.1 points for 20 differing questions of 400, 11.4 for 200 questions about 20 videos.
    by_t = [power_reach(400) * (0.05 / 400) ** 0.5, power_reach(20) * (0.3 / 200) ** 0.5]
    assert least_difference([1] * 400, Discordance(share=0.05)) > 1.05 * by_t[0]
    assert least_difference([10] * 20, Discordance(share=0.3)) > 1.05 * by_t[1]
    # With 100 videos and 40 differing questions it is the t test's.
    of_many = least_difference([1] * 400, Discordance(share=0.2))
    assert of_many == pytest.approx(power_reach(400) * (0.2 / 400) ** 0.5)


def test_the_power_of_a_table_is_that_of_its_line_with_the_largest_spread():
    pairs = []
    for n in (200, 800):
        a, b = ((np.random.default_rng([n, at]).random(n) < 0.5).astype(float) for at in range(2))
        pairs.append(Pair(group=("b", "m", str(n)), a="u", b="v", compared=compare_paired(a, b, range(n))))
    detectable = pairs[0].compared.detectable(tests=2)
    for order in (pairs, pairs[::-1]):
        notes = comparison_table(order, name="n", title="t").notes
        assert any(more_videos_text(detectable, 200, tests=2) in note for note in notes)
