"""Are a trace's logits and embeddings those of its relevance and of its pictures?"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from focus_eval.core.types import VideoInfo, frozen_floats, frozen_ints
from focus_eval.keyframes.samplers.registry import make_sampler
from focus_eval.lab.features import TraceFeatures
from focus_eval.lab.recorded import RecordedTrace
from focus_eval.lab.simulation import SimulationConfig, select_on, trace_sources
from focus_eval.lab.traces import make_trace
from focus_eval.lab.worlds import WORLDS


def trace(world="calibrated"):
    return make_trace(WORLDS[world], 1, seed=0, minutes=(5, 6))


def recorded(values, *, is_cosine=False):
    frames = np.arange(len(values)) * 25
    return RecordedTrace(
        benchmark="b", question_id="q", video="v.mp4", bucket="short", info=VideoInfo(25 * len(values), 25.0),
        evidence_seconds=(3.0,), frames=frozen_ints(frames), values=frozen_floats(values), is_cosine=is_cosine,
    )  # fmt: skip


def test_logits_are_the_log_odds_of_relevance():
    item = trace()
    frames = np.arange(0, item.info.n_frames, 9)
    logits = TraceFeatures(item).logits(frames)
    assert 1 / (1 + np.exp(-logits)) == pytest.approx(item.relevance(frames))


@pytest.mark.parametrize("world", WORLDS)
def test_the_cosine_with_the_query_ranks_frames_as_relevance_does(world):
    item = trace(world)
    frames = np.arange(0, item.info.n_frames, 25)
    images, query = TraceFeatures(item).embeddings(frames)
    assert np.linalg.norm(images, axis=1) == pytest.approx(1)
    relevance, cosine = item.relevance(frames), images @ query
    inside = np.abs(cosine) < 0.89
    assert (np.diff(cosine[inside][np.argsort(relevance[inside], kind="stable")]) >= -1e-6).all()


def test_frames_of_one_shot_are_alike_and_those_across_a_cut_are_not():
    item = trace()
    cuts = item.cuts[(item.cuts > 2) & (item.cuts < item.info.duration_seconds - 2)]
    cut_frames = np.array([(int((cut - 0.8) * item.info.fps), int((cut - 0.2) * item.info.fps),
                      int((cut + 0.2) * item.info.fps)) for cut in cuts])  # fmt: skip
    changes = item.looks[:-1] != item.looks[1:]
    images, _ = TraceFeatures(item).embeddings(cut_frames.ravel())
    images_before, just_before, images_after = images.reshape(len(cut_frames), 3, -1).transpose(1, 0, 2)
    assert (images_before * just_before).sum(axis=1).mean() > 0.8
    assert changes.any()
    assert (just_before * images_after).sum(axis=1).mean() < 0.4


def test_features_are_the_same_in_whatever_order_and_object_they_are_asked():
    frames = np.array([100, 7, 5000])
    first, _ = TraceFeatures(trace()).embeddings(frames)
    reversed_vectors, _ = TraceFeatures(trace()).embeddings(frames[::-1])
    assert (first == reversed_vectors[::-1]).all()


def test_a_recorded_cosine_is_the_cosine_of_the_embeddings_and_a_hundredth_of_the_logits():
    cosines = np.array([0.12, 0.2, 0.31, 0.25])
    features = TraceFeatures(recorded((1 + cosines) / 2, is_cosine=True))
    images, query = features.embeddings(np.arange(4) * 25)
    assert images @ query == pytest.approx(cosines)
    assert features.logits(np.arange(4) * 25) == pytest.approx(100 * cosines)


def test_recorded_relevance_has_embeddings_too_even_where_it_is_the_same_everywhere():
    for values in ([0.5] * 8, [0.0, 1.0, 0.3, 0.9]):
        images, _ = TraceFeatures(recorded(values)).embeddings(np.arange(len(values)) * 25)
        assert np.isfinite(images).all()


def test_only_samplers_that_declare_it_are_given_logits_or_embeddings():
    features = TraceFeatures(trace())
    assert hasattr(features, "logits")
    assert hasattr(features, "embeddings")
    config = SimulationConfig(samplers=["wfs_sb"], k=[8], minutes=(2, 3))
    source = trace_sources(config)[0]
    plain = select_on(source, config, make_sampler("wfs_sb"), 8, 0)
    assert None not in plain.pulled_relevance  # by distance in time, as before there were embeddings


@pytest.mark.parametrize("name", ["maxinfo", "mdp3", "qframe"])
@pytest.mark.parametrize("world", ["realistic", "smooth", "cuts"])
def test_samplers_that_need_features_choose_on_simulated_and_on_recorded_traces(name, world):
    config = SimulationConfig(worlds=[world], samplers=[name], k=[8], minutes=(2, 3))
    row = select_on(trace_sources(config)[0], config, make_sampler(name), 8, 0)
    assert row.error is None
    assert len(row.keyframes) >= 8


def test_a_sampler_that_believes_the_embeddings_finds_the_evidence():
    config = SimulationConfig(worlds=["smooth"], samplers=["mdp3"], k=[8], minutes=(1, 2))
    source = replace(trace_sources(config)[0], world=replace(WORLDS["smooth"], strength=6.0, event_seconds=(8.0, 8.0)))
    hits = []
    for number in range(12):
        row = select_on(source, config, make_sampler("mdp3", balance=0.05), 8, number)
        hits += [min(abs(t - e) for t in row.times_seconds) <= 4 for e in row.evidence_seconds]
    assert np.mean(hits) > 0.8
