"""Is simulated relevance what its parameters say, and the same however it is asked for?"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from focus_eval.bench.benchmarks.registry import read_annotations, read_rates
from focus_eval.bench.report.recall import recall_within
from focus_eval.core.errors import InvalidInput, UnknownName
from focus_eval.core.types import VideoInfo
from focus_eval.keyframes.samplers.base import derived_rng
from focus_eval.keyframes.samplers.registry import make_sampler
from focus_eval.lab import traces
from focus_eval.lab.simulation import SimulationConfig, options_at
from focus_eval.lab.traces import GRID_HZ, RealQuestion, autoregression, frame_noise, make_trace
from focus_eval.lab.worlds import CHANNELS, WORLDS, world_of


@pytest.mark.parametrize("name", WORLDS)
def test_relevance_does_not_depend_on_the_order_or_company_in_which_frames_are_asked(name):
    trace = make_trace(WORLDS[name], 3, seed=1, minutes=(1, 10))
    frames = np.arange(0, trace.info.n_frames, 7)
    whole = trace.relevance(frames)
    shuffled = np.random.default_rng(0).permutation(frames.size)
    assert (trace.relevance(frames[shuffled]) == whole[shuffled]).all()
    assert trace.relevance(frames[5:6])[0] == whole[5]
    second_trace = make_trace(WORLDS[name], 3, seed=1, minutes=(1, 10))
    assert (second_trace.relevance(frames) == whole).all()
    assert second_trace.evidence_seconds == trace.evidence_seconds
    assert ((whole >= 0) & (whole <= 1)).all()


def test_another_number_or_seed_is_another_video():
    item = make_trace(WORLDS["smooth"], 0, seed=0, minutes=(1, 2))
    for number, seed in ((1, 0), (0, 1)):
        unrelated = make_trace(WORLDS["smooth"], number, seed=seed, minutes=(1, 2))
        assert unrelated.evidence_seconds != item.evidence_seconds


@pytest.mark.parametrize("half_life", [2.0, 5.0])
def test_the_background_keeps_half_of_its_correlation_after_the_half_life(half_life):
    x = autoregression(0.5 ** (1 / (half_life * GRID_HZ)), 400_000, np.random.default_rng(0)).astype(float)
    lag = round(half_life * GRID_HZ)
    assert x.var() == pytest.approx(1.0, abs=0.1)
    assert np.corrcoef(x[:-lag], x[lag:])[0, 1] == pytest.approx(0.5, abs=0.05)


def test_frame_noise_has_mean_0_variance_1_and_no_correlation_between_neighbours():
    noise = frame_noise(np.arange(200_000), 12345)
    assert noise.mean() == pytest.approx(0, abs=0.01)
    assert noise.var() == pytest.approx(1, abs=0.01)
    assert np.corrcoef(noise[:-1], noise[1:])[0, 1] == pytest.approx(0, abs=0.01)


@pytest.mark.parametrize("name", WORLDS)
def test_events_stand_above_the_background_and_hold_the_evidence(name):
    inside, outside = [], []
    for number in range(80):
        trace = make_trace(WORLDS[name], number, seed=0, minutes=(2, 10))
        assert len(trace.evidence_seconds) == len(trace.event_lengths) >= 1
        assert all(0 <= time <= trace.info.duration_seconds for time in trace.evidence_seconds)
        assert list(trace.evidence_seconds) == sorted(trace.evidence_seconds)
        cells = (np.array(trace.evidence_seconds) * GRID_HZ).astype(int)
        inside += trace.latent[np.minimum(cells, trace.latent.size - 1)].tolist()
        outside.append(float(np.median(trace.latent)))
    assert np.mean(inside) > np.mean(outside) + 0.8 * WORLDS[name].strength - 0.3


def test_encoder_quality_scales_what_has_to_do_with_the_question():
    heights = [
        np.mean([make_trace(replace(WORLDS["cuts"], encoder_quality=q), n, seed=0, minutes=(2, 4)).strength
                 for n in range(30)])
        for q in (0.5, 1.0)
    ]  # fmt: skip
    assert heights[1] == pytest.approx(2 * heights[0])


def test_the_first_videos_cover_the_range_of_lengths_and_none_depends_on_how_many_there_are():
    lengths = np.array(
        [make_trace(WORLDS["smooth"], n, seed=0, minutes=(1, 180)).info.duration_seconds for n in range(24)]
    )
    assert (np.histogram(np.log(lengths / 60), bins=4, range=(0, np.log(180)))[0] >= 4).all()


def test_ten_hours_are_made_in_less_than_a_second():
    trace = make_trace(WORLDS["calibrated"], 0, seed=0, minutes=(600, 600.001))
    assert trace.info.duration_seconds == pytest.approx(36_000, abs=1)
    assert trace.relevance(np.array([trace.info.n_frames - 1])).shape == (1,)


def test_sync_frames_start_at_0_and_are_at_most_250_frames_apart():
    sync = make_trace(WORLDS["cuts"], 2, seed=0, minutes=(3, 5)).info.sync_frames
    assert sync[0] == 0
    assert np.diff(sync).max() <= 250
    assert (np.diff(sync) < 250).any()  # cuts


@pytest.mark.parametrize("name", ["focus", "even_diverse", "even_cover", "topk", "focus_f"])
@pytest.mark.parametrize("percent", [0.25, 1.0, 4.0])
def test_a_budget_is_what_a_sampler_scores_of_an_hour(name, percent):
    hour = VideoInfo(90_000, 25.0)
    pulls = make_sampler(name, **options_at(name, percent)).count_pulls(hour, k=8)
    assert pulls == pytest.approx(percent / 100 * hour.n_frames, rel=0.1)


def test_a_sampler_without_an_option_for_pulls_has_no_budgets():
    with pytest.raises(InvalidInput, match="no option for its number of pulls"):
        options_at("uniform", 1.0)


def test_unknown_worlds_and_parameters_are_refused_with_the_nearest_name():
    with pytest.raises(UnknownName, match="did you mean 'calibrated'"):
        world_of("callibrated")
    with pytest.raises(UnknownName, match="did you mean 'strength'"):
        world_of({"world": "smooth", "strenght": 1.0})
    with pytest.raises(InvalidInput, match="two worlds have one name"):
        SimulationConfig(samplers=["topk"], k=[8], worlds=["smooth", {"world": "smooth", "noise": 0.1}]).parsed_worlds  # noqa: B018


@pytest.mark.parametrize("share", [0.2, 0.6, 0.9])
def test_the_background_with_cuts_has_variance_1_of_which_the_shots_have_their_share(share):
    quiet = replace(
        WORLDS["smooth"],
        shot_share=share,
        strength=0.0,
        strength_spread=0.0,
        event_spread=0.0,
        distractors_per_minute=0.0,
    )
    trace = make_trace(quiet, 0, seed=0, minutes=(1200, 1200.001))
    latent, times = trace.latent.astype(float), np.arange(trace.latent.size) / GRID_HZ
    assert latent.var() == pytest.approx(1.0, abs=0.05)
    # Half a minute later the smooth part is forgotten: what is still alike lies in the same, long shot.
    lag, shot = 30 * GRID_HZ, np.searchsorted(trace.cuts, times, side="right")
    alike = shot[lag:] == shot[:-lag]
    assert np.corrcoef(latent[:-lag][alike], latent[lag:][alike])[0, 1] == pytest.approx(share, abs=0.15)


def test_an_encoder_sees_the_share_of_cuts_that_was_measured():
    trace = make_trace(WORLDS["cuts"], 0, seed=0, minutes=(1200, 1200.001))
    cuts = (trace.cuts * trace.info.fps).astype(int)
    assert len(cuts) > 5000
    assert np.isin(cuts, trace.info.sync_frames).mean() == pytest.approx(335 / 362, abs=0.01)


def test_blind_questions_are_the_stated_share_and_leave_no_trace_and_the_others_stay_as_they_are():
    seeing, half_blind = world_of("realistic"), world_of({"world": "realistic", "blind": 0.5})
    pairs = [[make_trace(world, n, seed=0, minutes=(2, 4)) for world in (seeing, half_blind)] for n in range(200)]
    is_blind = np.array([second.strength == 0.0 for _, second in pairs])
    assert 0.4 < is_blind.mean() < 0.6
    at_evidence = np.array(
        [[trace.latent[int(trace.evidence_seconds[0] * GRID_HZ)] for trace in pair] for pair in pairs]
    )
    assert (at_evidence[~is_blind, 0] == at_evidence[~is_blind, 1]).all()
    assert at_evidence[is_blind, 1].mean() == pytest.approx(0.0, abs=0.35)
    assert at_evidence[is_blind, 0].mean() > 1.5
    with pytest.raises(InvalidInput, match="blind is a share of the questions"):
        world_of("realistic:blind=1.5")


def test_a_text_names_a_world_with_other_parameters_and_is_its_name():
    world = world_of("measured:blind=0.65")
    assert (world.name, world.blind, world.is_fitted) == ("measured:blind=0.65", 0.65, True)
    assert replace(world, name="measured", blind=0.0) == WORLDS["measured"]


def test_parameters_that_fitted_worlds_do_not_read_are_refused():
    with pytest.raises(InvalidInput, match="fitted events do not depend on event_is_shot"):
        world_of({"world": "measured", "event_is_shot": True})


def test_the_fitted_background_has_the_specified_parts():
    quiet = replace(WORLDS["measured"], strength=-50.0, event_spread=0.0, distractors_per_minute=0.0)
    trace = make_trace(quiet, 0, seed=0, minutes=(1200, 1200.001))
    frames = np.arange(0, trace.info.n_frames, 5)
    relevance = trace.relevance(frames)
    x = (np.log(relevance / (1 - relevance)) - trace.world.location) / trace.world.scale
    assert x.var() == pytest.approx(1.0, abs=0.06)
    assert (x[1:] - x[:-1]).var() > 2 * 0.07  # what changes from frame to frame is in it
    shot = np.searchsorted(trace.cuts, frames / trace.info.fps, side="right")
    lag = round(20 * trace.info.fps / 5)  # the smooth part keeps 2 %, a shot its level
    alike = shot[lag:] == shot[:-lag]
    assert np.corrcoef(x[lag:][alike], x[:-lag][alike])[0, 1] == pytest.approx(0.33, abs=0.15)
    assert np.median(np.diff(trace.cuts)) == pytest.approx(4.5, rel=0.1)


def test_locations_of_the_fitted_world_spread_over_questions_and_a_channel_shares_them():
    traces = [make_trace(WORLDS["measured"], n, seed=0, minutes=(1, 2)) for n in range(300)]
    locations = np.array([trace.world.location for trace in traces])
    assert locations.mean() == pytest.approx(-1.85, abs=0.4)
    assert locations.std() == pytest.approx(2.35, rel=0.15)
    trace_of_channel = make_trace(WORLDS["measured"], 0, seed=0, minutes=(1, 2), channel=CHANNELS["wfs_sb"])
    assert trace_of_channel.world.location - -1.0 == pytest.approx(locations[0] - -1.85)
    assert (trace_of_channel.evidence_seconds, trace_of_channel.cuts.tolist()) == (
        traces[0].evidence_seconds,
        traces[0].cuts.tolist(),
    )


@pytest.mark.parametrize("name", ["realistic", "calibrated", "measured"])
def test_a_real_question_keeps_its_length_and_evidence_and_intervals_are_the_events(name):
    info = VideoInfo(9000, 25.0)
    moments = RealQuestion("q", info, np.array([100.0, 40.0]))
    trace = make_trace(WORLDS[name], 0, seed=0, real=moments)
    assert (trace.question_id, trace.info.n_frames, trace.evidence_seconds) == ("q", 9000, (40.0, 100.0))
    intervals = RealQuestion("q", info, np.array([[100.0, 130.0], [40.0, 41.0]]))
    assert make_trace(WORLDS[name], 0, seed=0, real=intervals).events == [(40.0, 41.0), (100.0, 130.0)]


@pytest.mark.slow
def test_the_fitted_world_gives_the_recall_and_the_splits_of_the_published_selections(shared):
    rates = read_rates(shared("data/lvb_val_fps.csv"))
    questions = [
        q for q in read_annotations("longvideobench", shared("data/lvb_val.json")) if q.duration_seconds >= 180
    ]
    recalls, roots = {0.37: [], 0.8: []}, {0.37: [], 0.8: []}
    for number, question in enumerate(questions):
        moments = np.array(question.evidence_seconds)
        real = RealQuestion(question.id, rates[question.id].info, moments)
        trace = make_trace(WORLDS["measured"], number, seed=0, real=real)
        for t1 in recalls:
            selection = make_sampler("aks", t1=t1).select(real.info, k=32, pull=trace.relevance, rng=derived_rng(0))
            recalls[t1].append(recall_within(moments, np.array(selection.keyframes) / real.info.fps, [2.0])[0])
            roots[t1].append(selection.facts["segments"] == 1)
    assert np.mean(roots[0.37]) == pytest.approx(0.815, abs=0.035)
    assert np.mean(roots[0.8]) == pytest.approx(0.15, abs=0.035)
    assert np.mean(recalls[0.37]) == pytest.approx(0.615, abs=0.035)
    assert np.mean(recalls[0.8]) == pytest.approx(0.485, abs=0.035)


def added_by_events(world, number=0, *, real=None):
    """What events add to the background of a fitted world, ten values a second."""
    quiet = replace(world, strength=-50.0, strength_spread=0.0, event_spread=0.0)
    with_events, background = (
        make_trace(w, number, seed=0, minutes=(10, 11), real=real).latent for w in (world, quiet)
    )
    return with_events - background


def intervals(*ends):
    return RealQuestion("q", VideoInfo(15_000, 25.0), np.array(ends, dtype=float))


STEADY = replace(WORLDS["measured"], strength=3.0, strength_spread=0.0, event_spread=0.0, distractors_per_minute=0.0)
MANY = intervals(*((at, at + 2) for at in range(20, 580, 10)))


def test_overlapping_fitted_events_count_once_and_last_a_second_at_least():
    added = added_by_events(STEADY, real=intervals((10, 20), (15, 30), (40, 40.2)))
    assert added.max() == pytest.approx(3.0, abs=1e-5)
    assert (added > 1).sum() == 200 + 10
    weak = added_by_events(replace(STEADY, encoder_quality=0.5), real=intervals((10, 20)))
    assert weak.max() == pytest.approx(1.5, abs=1e-5)


def test_heights_of_fitted_events_spread_around_one_of_the_question_that_is_never_negative():
    spread = added_by_events(replace(STEADY, event_spread=0.5), real=MANY)[210::100][:56]
    assert spread.std() == pytest.approx(0.5, rel=0.3)
    assert added_by_events(replace(STEADY, strength=-50.0, event_spread=0.5), real=MANY).max() > 0.5


def test_a_blind_question_of_a_fitted_world_adds_nothing_and_look_alikes_have_one_height_of_their_own():
    assert added_by_events(replace(STEADY, blind=1.0), real=MANY).max() == 0.0
    world = replace(WORLDS["measured"], event_spread=0.0, distractors_per_minute=3.0)
    n_apart = 0
    for number in range(20):
        added = np.round(added_by_events(world, number, real=intervals((10, 20))), 4)
        own, others = added[150], np.unique(added[300:])
        assert others.size <= 2, "one height beside 0"
        n_apart += own < others[-1] or own > others[-1] > 0
    assert n_apart > 10


def test_a_moment_may_lie_a_little_outside_of_its_fitted_event():
    traces = [make_trace(WORLDS["measured"], n, seed=0, minutes=(3, 4)) for n in range(200)]
    is_inside = [
        start <= moment <= stop
        for trace in traces
        for moment, (start, stop) in zip(trace.evidence_seconds, trace.events, strict=True)
    ]
    assert 0.8 < np.mean(is_inside) < 1.0


def test_a_blind_question_has_no_related_stretch():
    related = replace(WORLDS["related"], blind=1.0, distractors_per_minute=0.0)
    raised, plain = (make_trace(world, 0, seed=0) for world in (related, replace(related, related_height=0.0)))
    assert (raised.latent == plain.latent).all()


def test_what_is_seen_of_a_moment_lies_around_it_and_anywhere_around_it():
    moments = 100.0 * np.arange(4000)
    starts, lengths = traces._seen_around(moments, np.random.default_rng(0))
    shares = (moments - starts) / lengths  # uniform: mean 1/2, variance 1/12
    assert shares.mean() == pytest.approx(0.5, abs=0.02)
    assert shares.var() == pytest.approx(1 / 12, abs=0.005)
    kept, starts, lengths = traces._seen_events(moments, np.random.default_rng(0))
    assert kept.tolist() == moments.tolist()
    assert np.median(starts + lengths / 2 - moments) == pytest.approx(0, abs=0.1)
