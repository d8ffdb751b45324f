"""Paired tests count every assignment of signs, and tell equal samplers apart as rarely as they promise."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from focus_eval.bench.report.sign_flips import sign_flip_p
from focus_eval.bench.report.statistics import (
    compare_paired,
    detectable_difference,
    holm,
    video_sums,
)
from tests.support.bench.independent_formulas import sign_flip_p as counted_out


def all_signs(n):
    return itertools.product((1, -1), repeat=n)


def test_the_sign_flip_test_counts_every_assignment_of_signs():
    sums = [3.0, 1.0, -1.0, 2.0, 0.0, 0.5]
    observed = 5.5
    totals = [sum(s * v for s, v in zip(signs, sums, strict=True)) for signs in all_signs(6)]
    assert sign_flip_p(sums) == (pytest.approx(np.mean([abs(total) >= observed for total in totals])), True)
    weights = [0.3, 0.1, 0.1, 0.2, 0.1, 0.2]
    assert sign_flip_p(sums, weights=weights) == (pytest.approx(counted_out(sums, weights)), True)


def test_fourteen_videos_are_still_counted_out():
    sums = np.random.default_rng(3).normal(0.1, 0.3, 14).round(3).tolist()
    assert sign_flip_p(sums) == (pytest.approx(counted_out(sums, [1 / 14] * 14), abs=1e-12), True)
    assert not sign_flip_p([*sums, 0.2])[1]


def test_five_videos_that_all_differ_one_way_give_two_in_thirty_two():
    assert sign_flip_p([0.1, 0.4, 0.2, 0.3, 0.1]) == (2 / 32, True)


def test_sums_that_are_equal_but_for_rounding_count_as_equal():
    # 0.3 is seen, in binary as 0.3000000000000001; other totals of 0.3 come out a hair below it.
    sums = [1, 2, 3, -3]
    totals = [abs(sum(sign * item for sign, item in zip(signs, sums, strict=True))) for signs in all_signs(4)]
    assert sign_flip_p([item / 10 for item in sums]) == (np.mean([total >= 3 for total in totals]), True)


def test_random_signs_agree_with_all_signs():
    sums = np.random.default_rng(3).normal(0.3, 1, 14)
    exact, is_exact = sign_flip_p([*sums, 0.0])
    # A video more, whose difference is next to nothing, makes it the random form.
    drawn, is_drawn_exact = sign_flip_p([*sums, 1e-9])
    assert (is_exact, is_drawn_exact) == (True, False)
    assert drawn == pytest.approx(exact, abs=4 * (exact * (1 - exact) / 20_000) ** 0.5)


def test_the_p_of_random_signs_is_never_0():
    # The assignment seen is one of them: 30 videos that all differ one way are not impossible.
    assert sign_flip_p(np.ones(30), draws=1000) == (1 / 1001, False)


def test_random_signs_agree_with_scipy():
    from scipy.stats import permutation_test

    sums = np.random.default_rng(4).normal(0.25, 1, 40)
    scipy_test = permutation_test(
        (sums,), np.sum, permutation_type="samples", n_resamples=20_000, rng=np.random.default_rng(1)
    )
    assert sign_flip_p(sums)[0] == pytest.approx(scipy_test.pvalue, abs=0.012)


def test_the_test_does_not_depend_on_order_nor_on_which_sampler_is_named_first():
    rng = np.random.default_rng(5)
    a, b, videos = rng.random(90), rng.random(90), [f"v{i % 30}" for i in range(90)]
    order = rng.permutation(90)
    compared = compare_paired(a, b, videos)
    shuffled = compare_paired(a[order], b[order], [videos[i] for i in order])
    assert compared.p_value == shuffled.p_value
    assert compare_paired(b, a, videos).p_value == compared.p_value
    assert compare_paired(b, a, videos).difference.value == -compared.difference.value


def test_no_difference_is_no_evidence_and_says_little_of_six_videos():
    compared = compare_paired([1, 0, 1] * 4, [1, 0, 1] * 4, np.repeat(np.arange(6), 2))
    assert (compared.p_value, compared.detectable()) == (1.0, None)
    # None of six differ: at most 45.9 % of all do (1 - .025 ** (1 / 6)).
    assert (compared.difference.value, compared.difference.low) == (0.0, pytest.approx(-0.459, abs=1e-3))


def test_partial_credit_is_not_cut_at_one_half():
    # Nine points on every question, all above one half: no answer changes from wrong to right.
    compared = compare_paired([0.6] * 30, [0.69] * 30, range(30))
    assert compared.difference.value == pytest.approx(0.09)
    assert compared.p_value < 0.001
    assert (compared.better_a, compared.better_b) == (0, 30)


def test_questions_are_counted_by_which_sampler_is_better():
    compared = compare_paired([1, 1, 0, 0, 1], [1, 0, 1, 1, 1], list("abcde"))
    assert (compared.better_a, compared.better_b) == (1, 2)
    assert compared.difference.value == pytest.approx(0.2)


def test_holm_steps_down():
    from statsmodels.stats.multitest import multipletests

    # Sorted .01 .02 .03 .04 times 4 3 2 1, then never less than the one before: .04 .06 .06 .06.
    assert holm([0.03, 0.01, 0.04, 0.02]) == pytest.approx([0.06, 0.04, 0.06, 0.06])
    p_values = np.random.default_rng(0).random(40).round(1)  # with ties
    assert holm(p_values).tolist() == multipletests(p_values, method="holm")[1].tolist()


@pytest.mark.parametrize(("n_videos", "per_video", "seeds"), [(12, 3, 2), (12, 3, 4), (40, 18, 1)])
def test_equal_samplers_are_told_apart_in_about_five_of_a_hundred_runs(n_videos, per_video, seeds):
    rng, rejected, repeats = np.random.default_rng(n_videos + seeds), 0, 400
    for _ in range(repeats):
        tilt = rng.normal(0, 0.25, n_videos)  # a video suits one sampler or the other
        chance = np.clip(rng.beta(1.4, 0.93, n_videos) + np.stack([tilt, -tilt]), 0, 1)
        videos = np.repeat(np.arange(n_videos), per_video)
        a, b = ((rng.random((seeds, videos.size)) < item[videos]).mean(axis=0) for item in chance)
        rejected += sign_flip_p(video_sums(b - a, videos), draws=2000)[0] <= 0.05
    assert rejected / repeats < 0.083


@pytest.mark.slow
def test_the_detectable_difference_is_found_with_the_promised_power():
    rng, n_detected, repeats, n_videos = np.random.default_rng(0), 0, 400, 60
    spread = 0.4
    detectable = []
    for _ in range(repeats):
        noise = rng.normal(0, spread, n_videos)
        detectable.append(detectable_difference(np.clip(noise, -1, 1), range(n_videos)))
        n_detected += sign_flip_p(noise + 2.802 * spread / n_videos**0.5, draws=2000)[0] <= 0.05
    assert np.mean(detectable) == pytest.approx(2.802 * spread / n_videos**0.5, rel=0.06)
    assert n_detected / repeats == pytest.approx(0.8, abs=0.06)
