"""Does every registered sampler keep the promises all of them make?"""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from focus_eval import VideoInfo, make_sampler
from focus_eval.errors import EncoderError, FocusEvalError, SamplerError
from focus_eval.samplers.base import FlatSource
from focus_eval.samplers.randomness import derived_rng
from focus_eval.samplers.registry import parse_options, sampler_classes
from tests.samplers.worlds import World, bumpy

NAMES = list(sampler_classes())
PULLING = [name for name, kind in sampler_classes().items() if kind.needs_encoder]
COUNTED_AHEAD = [name for name in NAMES if name not in ("focus_iterative", "focus_released")]

LENGTHS_AND_RATES = [
    (1, 30.0), (1, 0.1), (2, 24.0), (3, 60.0), (7, 25.0), (8, 25.0), (29, 29.97), (31, 29.97), (100, 1e6),
    (250, 24.0), (900, 0.2), (1000, 0.999), (1000, 1.0), (2500, 240.0), (7201, 30000 / 1001),
]  # fmt: skip


def run(name, n_frames, fps=30.0, *, k=8, world=None, rng=0, sync=None, **options):
    world = World(bumpy(n_frames)) if world is None else world
    video = VideoInfo(n_frames, fps, sync)
    # Evidence reaches a ceiling only; two moments of one frame, one at the end.
    evidence = (0.0, 0.2 / fps, (n_frames - 1) / fps)
    return make_sampler(name, **options).select(
        video, k=k, pull=world, rng=np.random.default_rng(rng), evidence_seconds=evidence
    )


def assert_contract(selection, world):
    kind = sampler_classes()[selection.sampler]
    frames = np.array(selection.keyframes, dtype=int)
    asked = min(selection.k, selection.video.n_frames)
    assert (frames >= 0).all()
    assert (frames < selection.video.n_frames).all()
    assert (np.diff(frames) >= (0 if kind.may_repeat else 1)).all()
    if frames.size < asked:
        assert kind.may_return_fewer
        assert selection.facts["returned_fewer"] == frames.size
    if frames.size > asked:
        assert kind.may_return_more
        assert selection.facts["returned_more"] == frames.size
    if np.unique(frames).size < frames.size:
        assert selection.facts["unique_keyframes"] == np.unique(frames).size
    asked_of_world = np.concatenate(world.calls) if world.calls else np.empty(0, dtype=int)
    assert np.array_equal(asked_of_world, selection.pulled_frames)
    assert np.unique(asked_of_world).size == asked_of_world.size
    assert (selection.n_pulls > 0) <= kind.needs_encoder
    for clip in selection.clips:
        inside = (selection.pulled_frames >= clip.start) & (selection.pulled_frames < clip.stop)
        assert clip.n_pulls <= inside.sum()
        assert (clip.mean is None) == (clip.n_pulls == 0)
    json.dumps(dict(selection.facts), allow_nan=False)
    json.dumps(dict(selection.options), allow_nan=False)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("n_frames", "fps"), LENGTHS_AND_RATES)
@pytest.mark.parametrize("k", [1, 8, 64])
def test_keyframes_are_in_order_in_range_and_as_many_as_promised(name, n_frames, fps, k):
    world = World(bumpy(n_frames))
    assert_contract(run(name, n_frames, fps, k=k, world=world), world)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=40, deadline=None)
@given(
    n_frames=st.integers(1, 1500),
    fps=st.floats(0.05, 500.0),
    k=st.integers(1, 200),
    seed=st.integers(0, 2**32 - 1),
    levels=st.integers(1, 4),
)
def test_promises_hold_for_any_video(name, n_frames, fps, k, seed, levels):
    # Few levels of relevance make ties everywhere; one level is a flat video.
    world = World(np.random.default_rng(seed).integers(0, levels, n_frames) / max(1, levels - 1))
    assert_contract(run(name, n_frames, fps, k=k, world=world, rng=seed), world)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("value", [0.0, 0.5, 1.0])
def test_flat_relevance_is_a_video_like_any_other(name, value):
    world = World(np.full(3000, value))
    assert_contract(run(name, 3000, k=16, world=world), world)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("k", [40, 41, 1000])
def test_every_frame_is_a_keyframe_where_there_are_not_more_than_asked(name, k):
    selection = run(name, 40, 10.0, k=k)
    if not sampler_classes()[name].may_return_fewer:
        assert selection.keyframes == tuple(range(40))


@pytest.mark.parametrize("name", NAMES)
def test_the_order_of_questions_changes_nothing(name):
    worlds = {question: World(bumpy(2000, seed=i)) for i, question in enumerate("abc")}

    def select_all(order):
        sampler = make_sampler(name)
        return {
            question: sampler.select(
                VideoInfo(2000, 30.0),
                k=8,
                pull=worlds[question],
                rng=derived_rng(3, "bench", question, name),
                evidence_seconds=(1.0, 2.0),
            )
            for question in order
        }

    forward, backward = select_all("abc"), select_all("cba")
    for question in "abc":
        assert forward[question].keyframes == backward[question].keyframes
        assert np.array_equal(forward[question].pulled_frames, backward[question].pulled_frames)


@pytest.mark.parametrize("name", NAMES)
def test_the_budget_is_the_most_pulls_allowed(name):
    video, sampler = VideoInfo(2000, 30.0), make_sampler(name)
    evidence = (1.0,)
    spent = sampler.select(
        video, k=8, pull=FlatSource(), rng=np.random.default_rng(5), evidence_seconds=evidence
    ).n_pulls
    sampler.select(video, k=8, pull=FlatSource(), rng=np.random.default_rng(5), budget=spent, evidence_seconds=evidence)
    if spent:
        with pytest.raises(SamplerError, match="budget"):
            sampler.select(video, k=8, pull=FlatSource(), rng=np.random.default_rng(5), budget=spent - 1)


@pytest.mark.parametrize("name", COUNTED_AHEAD)
@pytest.mark.parametrize(("n_frames", "fps"), [(40, 10.0), (1000, 24.0), (7201, 29.97), (30000, 60.0)])
def test_pulls_are_counted_without_looking(name, n_frames, fps):
    assert make_sampler(name).count_pulls(VideoInfo(n_frames, fps), k=16) == run(name, n_frames, fps, k=16).n_pulls


@pytest.mark.parametrize("name", ["focus_iterative", "focus_released"])
def test_pulls_that_depend_on_what_is_seen_are_counted_closely(name):
    counted = make_sampler(name).count_pulls(VideoInfo(30000, 30.0), k=16)
    assert counted == pytest.approx(run(name, 30000, k=16).n_pulls, rel=0.05)


@pytest.mark.parametrize("name", PULLING)
def test_relevance_that_is_no_number_is_refused(name):
    world = World(np.full(3000, np.nan))
    world.vectors[:] = np.nan
    with pytest.raises(EncoderError, match="finite"):
        run(name, 3000, world=world)


@pytest.mark.parametrize("name", PULLING)
def test_what_a_scorer_cannot_give_is_refused_by_name(name):
    kind = sampler_classes()[name]

    def plain_scorer(frames):
        return np.full(frames.shape, 1.5)

    reason = "plain_scorer gives no" if kind.needs_logits or kind.needs_embeddings else r"relevance 1\.5"
    with pytest.raises(EncoderError, match=reason):
        make_sampler(name).select(VideoInfo(900, 30.0), k=4, pull=plain_scorer, rng=np.random.default_rng(0))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("k", [0, -3])
def test_no_keyframe_asked_is_refused(name, k):
    with pytest.raises(FocusEvalError, match="k must be at least 1"):
        run(name, 100, k=k)


@pytest.mark.parametrize("name", NAMES)
def test_options_survive_text_and_rebuild_the_sampler(name):
    sampler = make_sampler(name)
    texts = {
        option: str(value).lower() if not isinstance(value, str) else value for option, value in sampler.options.items()
    }
    assert parse_options(name, texts) == sampler.options
    assert make_sampler(name, **sampler.options) == sampler


@pytest.mark.parametrize("name", NAMES)
def test_every_sampler_says_where_it_comes_from(name):
    kind = sampler_classes()[name]
    assert kind.name == name
    assert kind.source
    assert kind.__doc__
