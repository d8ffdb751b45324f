"""Do scan and pulls together say what the specification says, and does `scan_cover` spend what it may?"""

from __future__ import annotations

import json
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from focus_eval import VideoInfo, make_sampler
from focus_eval.core.errors import InvalidInput
from focus_eval.keyframes.samplers.coverage import best_cover, bridge_variance
from focus_eval.keyframes.samplers.fusion import (
    Prior,
    Regression,
    contrast,
    density_of,
    moving_mean,
    regression,
    scan_density,
    standardised_scan,
)
from focus_eval.keyframes.samplers.ledger import log_odds
from focus_eval.keyframes.samplers.scan_cover import ScanView
from focus_eval.keyframes.samplers.sources import ArraySource, bumpy
from tests.conftest import SHARED

HOUR = VideoInfo(90_000, 25.0)
CONFORMANCE = SHARED / "conformance" / "scan_cover.json"
CASES = json.loads(CONFORMANCE.read_text())["cases"] if CONFORMANCE.exists() else [None]


def run(name="scan_cover", video=HOUR, *, k=8, world=None, scan=None, rng=0, cost=0.05, **options):
    world = ArraySource(bumpy(video.n_frames)) if world is None else world
    scan = world.scan if scan is None else scan
    sampler = make_sampler(name, **options)
    return sampler.select(video, k=k, pull=world, rng=np.random.default_rng(rng), scan=scan, scan_cost=cost)


# The specification ----------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not CONFORMANCE.exists(), reason=f"needs {CONFORMANCE}")
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['world']}-{case['n_grid']}" if case else "absent")
def test_conformance(case):
    times = np.arange(case["n_grid"]) / 5
    values, pulled, logits = (np.array(case[name]) for name in ("scan_values", "pulled", "logits"))
    scanned_at = (case["scan_positions_first"] + case["scan_step"] * np.arange(values.size)) / 5
    scan = standardised_scan(times, times, scanned_at, values)
    fit = regression(scan[pulled], logits, Prior())
    density = density_of(times, scan, pulled / 5, fit, Prior())
    at = case["at"]
    assert scan[at] == pytest.approx(case["standardised_scan"], abs=1e-6)
    assert (fit.slope, fit.rho, fit.q) == pytest.approx((case["slope"], case["rho"], case["q"]), abs=1e-6)
    assert density[at] / density.max() == pytest.approx(case["density_over_its_maximum"], rel=1e-6)
    assert best_cover(density, 8, rate=5.0).tolist() == case["first_eight"]
    view = ScanView(VideoInfo(times.size, 5.0), np.arange(times.size), times, scanned_at, values, scan)
    in_cells = make_sampler("scan_cover").promising(view, case["n_pulls"] - case["n_even"])
    assert in_cells.tolist() == case["cell_pulls"]


def test_the_slope_by_hand():
    # Four pulls: variances 1 and 4, covariance 2; half of the trust is the prior's, with four prior pulls.
    scan = np.array([1.0, -1.0, 1.0, -1.0])
    fit = regression(scan, 2.0 * scan, Prior(prior_pulls=4, rho_prior=0.6))
    assert fit.slope == pytest.approx(0.5 * 2.0 / 1.0 + 0.5 * 0.6 * 2.0 / 1.0)  # V r^2 + 1 - r^2 = 1 where V = 1
    assert fit.residuals == pytest.approx([0.4, -0.4, 0.4, -0.4])
    assert fit.residual_variance == pytest.approx(0.16 * 4 / 2)
    assert fit.sigma == pytest.approx(np.sqrt(1.6**2 + 0.32))
    assert fit.rho == pytest.approx(1.6 / np.sqrt(1.6**2 + 0.32))
    assert fit.q == fit.rho  # above .9


def test_the_density_by_hand():
    # Three moments far apart, so that no contrast or pull reaches another; the pull lies on the first.
    times, scan, prior = np.array([0.0, 100.0, 200.0]), np.array([0.5, 2.0, -1.0]), Prior(nugget=0.1)
    fit = Regression(slope=1.0, residuals=np.array([0.7]), residual_variance=2.0)
    rho, q, sigma, residual = fit.rho, fit.q, fit.sigma, fit.residual_variance / fit.sigma**2
    w_pull, w_scan = (1 - rho * q) / (1 - rho**2), (q - rho) / (1 - rho**2)
    pulled = w_pull * (fit.slope * 0.5 + 0.9 * 0.7) / sigma + w_scan * 0.5
    unknown = w_pull * (fit.slope * 2.0 / sigma) + w_scan * 2.0
    density = density_of(times, scan, np.array([0.0]), fit, prior)
    assert density[0] == pytest.approx(np.exp(1.5 * pulled + 0.5 * (1.5 * w_pull) ** 2 * 0.1 * residual))
    assert density[1] == pytest.approx(np.exp(1.5 * unknown + 0.5 * (1.5 * w_pull) ** 2 * residual))


def test_a_scan_alone_counts_seven_tenths_of_the_height_by_hand():
    times, prior = np.array([0.0, 100.0, 200.0]), Prior(h=2.0, cap=1.5)
    density = scan_density(times, np.array([1.0, -1.0, 9.0]), prior)
    assert density == pytest.approx(np.exp([1.4, -1.4, 2.1]))


def test_contrast_is_the_square_over_the_mean_within_eight_seconds():
    times, density = np.arange(5) * 4.0, np.array([1.0, 2.0, 3.0, 4.0, 10.0])
    assert contrast(density, times) == pytest.approx(
        [1 / 2, 4 / 2.5, 9 / 4, 16 / (19 / 4), 100 / (17 / 3)]
    )  # two neighbours on each side


def test_what_a_pull_leaves_unknown_is_nothing_at_it_and_all_far_away():
    times = np.array([10.0, 16.0])
    variances = bridge_variance(np.array([10.0, 13.0, 16.0, 17.0, 500.0]), times, seconds=3.0)
    middle = (1 - np.exp(-2)) ** 2 / (1 - np.exp(-4))
    assert variances == pytest.approx([0.0, middle, 0.0, 1 - np.exp(-2 / 3), 1.0])


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10**6), st.integers(1, 60), st.floats(0.01, 50.0), st.floats(-30.0, 30.0))
def test_units_of_the_scan_do_not_matter_and_density_is_finite(seed, n_pulls, scale, shift):
    rng = np.random.default_rng(seed)
    times, scanned_at = np.arange(300) / 5, np.sort(rng.choice(300, 80, replace=False)) / 5
    values = rng.normal(size=80).round(rng.integers(0, 6))  # ties, and whole numbers
    pulled = np.sort(rng.choice(300, n_pulls, replace=False)) / 5
    logits = rng.normal(size=n_pulls) * scale

    def density_from(values, logits):
        scan, at_pulls = (standardised_scan(times, at, scanned_at, values) for at in (times, pulled))
        return density_of(times, scan, pulled, regression(at_pulls, logits, Prior()), Prior())

    density = density_from(values, logits)
    assert np.isfinite(density).all()
    assert (density >= 0).all()
    if np.ptp(np.quantile(values, [0.159, 0.841])) > 0:
        moved = density_from(scale * values + shift, logits + shift)
        assert moved / moved.max() == pytest.approx(density / density.max(), rel=1e-5, abs=1e-9)


def test_a_scan_that_agrees_with_the_pulls_counts_for_more():
    rng, times = np.random.default_rng(4), np.arange(2000) / 5
    scan = rng.normal(size=2000)
    pulled = np.arange(0, 2000, 20)
    densities = [
        density_of(times, scan, pulled / 5, regression(scan[pulled], sign * 3.0 * scan[pulled], Prior()), Prior())
        for sign in (1, -1)
    ]
    high, low = scan > 1, scan < -1
    assert densities[0][high].mean() > 20 * densities[0][low].mean()
    assert densities[1][high].mean() < densities[1][low].mean()


def test_one_outlier_in_a_flat_scan_is_where_evidence_is():
    times, values = np.arange(500) / 5, np.zeros(500)
    values[250] = 1.0
    density = scan_density(times, standardised_scan(times, times, times, values), Prior())
    assert np.isfinite(density).all()
    assert int(np.argmax(density)) == 250


def test_a_mean_at_an_end_is_of_what_there_is():
    assert moving_mean(np.array([1.0, 2.0, 6.0]), 1) == pytest.approx([1.5, 3.0, 4.0])
    assert moving_mean(np.array([1.0, 2.0, 6.0]), 9) == pytest.approx([3.0, 3.0, 3.0])


# What is spent --------------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=60)
@given(
    st.integers(100, 60_000), st.floats(1.0, 60.0), st.floats(0.001, 0.2), st.floats(0.005, 2.0), st.floats(1.0, 5.0)
)
def test_the_budget_is_kept(n_frames, fps, share, cost, shared_by):
    video = VideoInfo(n_frames, fps)
    sampler = make_sampler("scan_cover", share=share, shared_by=shared_by)
    scanned, n_pulls = sampler.spending(video, cost)
    budget = share * 25 * video.duration_seconds
    assert scanned.size == 1 or scanned.size * cost / shared_by <= 0.5 * budget * (1 + 1e-9)
    assert scanned.size <= max(1, 2 * video.duration_seconds * (1 + 1e-9))
    assert n_pulls <= max(0, budget - scanned.size * cost / shared_by) + 1e-6
    assert (np.diff(scanned) > 0).all()


def test_an_hour_at_half_a_percent_and_a_twentieth():
    world = ArraySource(bumpy(HOUR.n_frames))
    selection = run(world=world)
    assert selection.n_scanned == 4500  # half of 450 forwards at 1/20
    assert selection.n_pulls == pytest.approx(225, abs=2)
    assert len(world.calls) == 1  # one batch
    assert len(world.scans) == 1
    assert run(cost=1 / 43).n_scanned == 7200  # two a second


def test_the_scan_is_the_same_for_every_question_of_a_video():
    first, second = (
        run(world=ArraySource(bumpy(HOUR.n_frames, seed=seed)), rng=seed, k=8 + seed).scanned_frames for seed in (1, 2)
    )
    assert first.tolist() == second.tolist()


def test_questions_that_share_the_scan_have_more_pulls_each():
    assert run(shared_by=3).n_pulls > 1.2 * run().n_pulls
    assert run("even_cover", shared_by=3).n_pulls == 3 * run("even_cover").n_pulls


def test_promising_pulls_lie_in_different_cells():
    pulls = run(even_share=0.0).pulled_frames
    cells = (pulls / 25.0 / 4.0).astype(int)
    assert len(set(cells.tolist())) == len(cells)
    assert min(b - a for a, b in pairwise(pulls.tolist())) >= 5


def test_of_each_promising_cell_the_best_point_is_pulled():
    times, values = np.arange(200) / 5, np.zeros(200)
    for at, height in ((27, 3.0), (33, 2.0), (147, 2.0), (155, 3.0), (90, 1.0)):  # cells of twenty points
        values[at - 2 : at + 3] += height
    view = ScanView(VideoInfo(200, 5.0), np.arange(200), times, times, values, values)
    assert make_sampler("scan_cover").promising(view, 2).tolist() == pytest.approx([27, 155], abs=2)


def test_scans_at_sync_frames_and_everywhere_where_there_are_none():
    video = VideoInfo(90_000, 25.0, np.arange(0, 90_000, 125))
    selection = run(video=video, scan_decode="sync")
    assert set(selection.scanned_frames.tolist()) == set(range(0, 90_000, 125))
    assert selection.n_pulls == pytest.approx(450 - 720 / 20, abs=2)
    np.testing.assert_array_equal(run(scan_decode="sync").scanned_frames, run().scanned_frames)


def test_a_video_too_short_for_pulls_is_covered_by_the_scan_alone():
    selection = run(video=VideoInfo(700, 25.0), cost=1.0)
    assert (selection.n_pulls, selection.n_scanned, len(selection.keyframes)) == (0, 1, 8)


def test_an_unknown_cost_is_asked_for():
    with pytest.raises(InvalidInput, match="give it as a share of one of the main encoder"):
        run(cost=None)
    assert run(cost=None, relative_cost=0.05).keyframes == run().keyframes
    with pytest.raises(InvalidInput, match="relative_cost"):
        make_sampler("scan_cover", scan_encoder="clip").count_pulls(HOUR, k=8)


def test_a_missing_scan_encoder_is_asked_for():
    with pytest.raises(InvalidInput, match="no scan encoder"):
        make_sampler("scan_cover", relative_cost=0.1).select(
            HOUR, k=8, pull=ArraySource(bumpy(90_000)), rng=np.random.default_rng(0)
        )


def test_where_nothing_differs_frames_are_even():
    flat = ArraySource(np.full(90_000, 0.5))
    selection = run(world=flat, scan=lambda frames: np.zeros(frames.size))
    assert selection.facts["fallback"] == "uniform: both encoders are flat"
    assert np.ptp(np.diff(selection.keyframes)) <= 1


# Guard and fallback ---------------------------------------------------------------------------------------------------


def noise(frames):
    return np.random.default_rng(7).normal(size=90_000)[frames]


def test_the_measured_correlation_is_that_of_the_channels_not_of_the_chosen_pulls():
    rng = np.random.default_rng(1)
    correlations = []
    for _ in range(6):
        common, scan_noise = (np.repeat(rng.normal(size=450), 200) for _ in range(2))  # of eight seconds
        latent = 0.5 * common + np.sqrt(0.75) * scan_noise
        world = ArraySource(1 / (1 + np.exp(-latent)))
        correlations.append(run(world=world, scan=lambda frames, common=common: common[frames]).facts["rho_measured"])
    assert np.mean(correlations) == pytest.approx(0.5, abs=0.05)


def test_fallback_is_off_by_default_and_takes_over_where_the_scan_tells_nothing():
    world = ArraySource(np.random.default_rng(3).uniform(0.2, 0.8, 90_000))
    assert "fallback" not in run(world=world, scan=noise).facts
    selection = run(world=world, scan=noise, fallback="even_cover")
    assert selection.facts["fallback"] == "even_cover"
    assert selection.facts["rho_measured"] < 0.15
    gaps = np.diff(np.sort(selection.pulled_frames))
    assert gaps.max() < 4 * gaps.mean()  # even, not where the scan was high
    assert "fallback" not in run(fallback="even_cover").facts


def test_fallback_pulls_no_more_than_the_budget():
    for scan in (noise, None):
        assert run(scan=scan, fallback="even_cover").n_pulls <= 225


# Controls and options -------------------------------------------------------------------------------------------------


def test_scan_only_spends_everything_on_the_scan_and_pulls_nothing():
    selection = run("scan_only")
    assert (selection.n_scanned, selection.n_pulls) == (9000, 0)
    assert run("scan_only", cost=0.001).n_scanned == 18_000  # five a second are all there is


def test_all_frames_shows_the_grid_to_both():
    selection = run("all_frames")
    assert selection.scanned_frames.tolist() == selection.pulled_frames.tolist()
    assert selection.n_pulls == 18_000


def test_logits_are_taken_where_the_encoder_gives_them():
    world = ArraySource(bumpy(90_000))
    plain = lambda frames: world.values[frames]  # noqa: E731
    with_logits, without_logits = (
        make_sampler("all_frames").select(
            HOUR, k=8, pull=pull, rng=np.random.default_rng(0), scan=world.scan
        ).facts["slope"]
        for pull in (world, plain)
    )  # fmt: skip
    assert with_logits != pytest.approx(without_logits, rel=0.05)
    assert log_odds(np.array([0.5, 0.0])).tolist() == pytest.approx([0.0, -13.8155], abs=1e-4)


def plain_count(density, n, half):
    """Greedy gain of density times log(1 + chosen near), without any bookkeeping."""
    counts, picked = np.zeros(density.size), []
    for _ in range(n):
        value = density * np.log((2 + counts) / (1 + counts))
        gains = [value[max(0, at - half) : at + half + 1].sum() * (at not in picked) for at in range(density.size)]
        best = int(np.argmax(np.array(gains) >= max(gains) * (1 - 1e-12)))
        picked.append(best)
        counts[max(0, best - half) : best + half + 1] += 1
    return picked


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10**6), st.integers(3, 60), st.integers(1, 8))
def test_counted_value_adds_the_most_each_time(seed, size, n):
    density = np.random.default_rng(seed).uniform(0.1, 1.0, size)
    n = min(n, size)
    assert best_cover(density, n, rate=0.6, value="count").tolist() == plain_count(density, n, 3)


def test_counted_value_returns_to_a_peak_that_recall_leaves():
    density = np.full(3000, 0.01)
    density[1500:1510] = 100.0
    frames_by_value = {value: best_cover(density, 8, rate=5.0, value=value) for value in ("recall", "count")}
    n_near_by_value = {value: int((abs(at - 1505) <= 25).sum()) for value, at in frames_by_value.items()}
    assert n_near_by_value["recall"] <= 3
    assert n_near_by_value["count"] == 8


def test_likelihood_ratio_knows_no_shots():
    assert run("even_cover", density="likelihood_ratio").keyframes != run("even_cover").keyframes
    with pytest.raises(InvalidInput, match="knows no shots; leave cuts out"):
        make_sampler("even_cover", density="likelihood_ratio", cuts=True)


def test_options_added_later_change_no_id_at_their_defaults():
    old = {"budget_of", "pulls", "every_seconds", "share", "cuts", "weigh_cuts"}
    assert set(make_sampler("even_cover").identifying_options) == old
    assert set(make_sampler("even_cover", value="count").identifying_options) == {*old, "value"}


def test_with_events_it_pulls_the_same_frames_and_a_smaller_k_is_the_head_of_a_larger_one():
    single, events = (run(share=0.01, density=density) for density in ("likelihood_ratio", "events"))
    assert single.pulled_frames.tolist() == events.pulled_frames.tolist()
    assert single.scanned_frames.tolist() == events.scanned_frames.tolist()
    assert single.keyframes != events.keyframes
    assert {*events.keyframes} <= {*run(k=16, share=0.01, density="events").keyframes}


def test_with_events_two_of_them_are_shown_before_any_is_shown_again():
    seconds = np.arange(HOUR.n_frames) / 25.0
    relevance = np.where((abs(seconds - 900) < 6) | (abs(seconds - 2500) < 6), 0.9, 0.1)
    relevance = np.clip(relevance + 0.03 * np.random.default_rng(0).standard_normal(seconds.size), 0, 1)
    times = np.array(run(k=2, share=0.01, density="events", world=ArraySource(relevance)).keyframes) / 25.0
    assert times == pytest.approx([900, 2500], abs=6)


def test_with_events_the_windows_are_their_own():
    with pytest.raises(InvalidInput, match="density=events has windows of its own; leave value out"):
        make_sampler("scan_cover", density="events", value="count")
