"""Do the controls, the ceiling and the floor do what they are there for?"""

from __future__ import annotations

import numpy as np
import pytest

from focus_eval import VideoInfo, make_sampler
from focus_eval.core.errors import InvalidInput, SamplerError
from focus_eval.core.gaps import halve_widest_gaps
from focus_eval.keyframes.samplers.base import FlatSource, FrameSampler
from focus_eval.keyframes.samplers.coverage import diverse_best, one_in_each_stratum
from focus_eval.keyframes.samplers.registry import sampler_classes
from focus_eval.keyframes.samplers.sources import ArraySource, bumpy

HOUR = VideoInfo(108_000, 30.0)


def run(name, video=HOUR, *, k=32, world=None, rng=0, coarse_rng=None, evidence=(), **options):
    """Return a sampler's choice on a video whose relevance is an array."""
    world = ArraySource(bumpy(video.n_frames)) if world is None else world
    return make_sampler(name, **options).select(
        video,
        k=k,
        pull=world,
        rng=np.random.default_rng(rng),
        coarse_rng=None if coarse_rng is None else np.random.default_rng(coarse_rng),
        evidence_seconds=evidence,
    )


# A grid of any width ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["topk", "aks"])
def test_every_seconds_sets_the_grid(name):
    selection = run(name, VideoInfo(3000, 29.97), k=8, every_seconds=2.2)
    assert selection.pulled_frames.tolist() == [round(j * 2.2 * 29.97) for j in range(46)]


@pytest.mark.parametrize("name", ["topk", "aks"])
def test_a_grid_of_the_truncated_rate_is_the_published_one(name):
    video, world = VideoInfo(3000, 29.97), ArraySource(bumpy(3000))
    pulls = run(name, video, world=world, every_seconds=29 / 29.97).pulled_frames
    assert pulls[:103].tolist() == run(name, video, world=world).pulled_frames.tolist()
    assert pulls.size == 104  # the published grid leaves out a last part of less than a second


# Filling -----------------------------------------------------------------------------------------------------------


def test_a_sampler_without_enough_candidates_is_filled_when_asked():
    ten_seconds = VideoInfo(300, 30.0)
    short, filled = run("aks", ten_seconds), run("aks", ten_seconds, fill="even")
    assert (len(short.keyframes), len(filled.keyframes)) == (10, 32)
    assert set(short.keyframes) < set(filled.keyframes)
    assert (filled.facts["returned_fewer"], filled.facts["filled"]) == (10, 22)
    assert "filled" not in run("aks", fill="even").facts
    assert run("aks", fill="even").keyframes == run("aks").keyframes


def test_filling_is_part_of_an_identity_and_off_by_default():
    plain, filled = make_sampler("aks"), make_sampler("aks:fill=even")
    assert "fill" not in plain.identifying_options
    assert filled.identifying_options == {**plain.identifying_options, "fill": "even"}
    with pytest.raises(InvalidInput, match="'fill' of sampler 'aks' must be even or none"):
        make_sampler("aks", fill="odd")


def test_frames_that_fill_are_shown_whole_and_repeats_stay():
    one_second = VideoInfo(30, 30.0)
    bolt = run("bolt", one_second, k=8, fill="even")
    assert len(bolt.keyframes) == 8
    assert run("blind", fill="even").keyframes == run("blind").keyframes


# Equal cost -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["even_topk", "even_diverse"])
@pytest.mark.parametrize(("n_frames", "fps"), [(108_000, 30.0), (5459, 25.0), (40, 10.0), (3, 30.0), (900, 0.5)])
def test_the_even_controls_pull_as_much_as_focus(name, n_frames, fps):
    video = VideoInfo(n_frames, fps)
    for budget_of, options in (("focus", {}), ("focus:alpha=0.5", {"alpha": 0.5})):
        planned = make_sampler("focus", **options).count_pulls(video, k=32)
        assert run(name, video, budget_of=budget_of).n_pulls == planned
    assert run(name, video).n_pulls == run(name, video, budget_of="focus").n_pulls
    assert run(name, video, budget_of="topk").n_pulls == max(1, run("topk", video).n_pulls)


@pytest.mark.parametrize("name", ["even_topk", "even_diverse", "even_cover"])
def test_the_number_of_pulls_can_be_said(name):
    assert run(name, pulls=77).n_pulls == 77
    assert run(name, every_seconds=10.0).n_pulls == 360
    # The last, shorter part of the video is pulled from as well.
    assert run(name, VideoInfo(310, 10.0), every_seconds=10.0).n_pulls == 4
    assert run(name, VideoInfo(50, 10.0), pulls=77).n_pulls == 50


@pytest.mark.parametrize("name", ["even_topk", "even_diverse"])
def test_one_frame_is_pulled_at_random_in_each_of_equal_strata(name):
    frames = run(name, VideoInfo(7000, 30.0), pulls=70).pulled_frames
    assert (frames // 100).tolist() == list(range(70))
    places = np.concatenate([run(name, VideoInfo(700, 30.0), pulls=7, rng=seed).pulled_frames for seed in range(300)])
    assert np.bincount(places % 100 // 25) / places.size == pytest.approx(np.full(4, 0.25), abs=0.04)


def test_every_frame_of_a_stratum_can_be_drawn():
    rng = np.random.default_rng(0)
    drawn = [one_in_each_stratum(VideoInfo(20, 10.0), 10, rng) for _ in range(60)]
    assert set(np.concatenate(drawn).tolist()) == set(range(20))


def test_even_topk_keeps_the_most_relevant_pulls():
    world = ArraySource(bumpy(7000))
    selection = run("even_topk", VideoInfo(7000, 30.0), k=9, world=world, pulls=70)
    order = np.argsort(-selection.pulled_relevance, kind="stable")
    assert selection.keyframes == tuple(sorted(selection.pulled_frames[order[:9]].tolist()))


@pytest.mark.parametrize("name", ["even_topk", "even_diverse"])
def test_questions_that_share_the_coarse_generator_share_all_pulls(name):
    selections = [run(name, world=ArraySource(bumpy(108_000, seed=seed)), rng=seed, coarse_rng=7) for seed in (1, 2)]
    assert np.array_equal(selections[0].pulled_frames, selections[1].pulled_frames)


@pytest.mark.parametrize("name", ["even_topk", "even_diverse"])
def test_keyframes_beyond_the_pulls_come_from_the_widest_gaps_and_are_counted(name):
    selection = run(name, VideoInfo(800, 10.0), k=12, pulls=8)
    assert len(selection.keyframes) == 12
    assert set(selection.pulled_frames) <= set(selection.keyframes)
    assert selection.facts == {"from_widest_gaps": 4}


def test_even_diverse_shows_two_events_where_even_topk_shows_one():
    relevance = np.full(30_000, 0.1)
    relevance[3000:3600] = 0.9  # 20 seconds
    relevance[20_000:20_090] = 0.8  # 3 seconds
    video, world = VideoInfo(30_000, 30.0), ArraySource(relevance)
    keyframes_by_name = {
        name: run(name, video, k=6, world=world, pulls=500).keyframes for name in ("even_topk", "even_diverse")
    }
    assert not any(20_000 <= frame < 20_090 for frame in keyframes_by_name["even_topk"])
    assert any(20_000 <= frame < 20_090 for frame in keyframes_by_name["even_diverse"])


def test_the_greedy_choice_is_the_formula_by_hand():
    frames, relevance = np.array([0, 10, 20, 60, 100]), np.array([0.2, 1.0, 0.8, 0.75, 0.7])
    picked, candidates = [1], [0, 2, 3, 4]  # fps 10: frames lie 1, 1, 4 and 4 seconds apart
    scaled = (relevance - 0.2) / 0.8
    while candidates:
        loss = {i: 0.5 * np.exp(-min(abs(frames[i] - frames[j]) for j in picked) / 20.0) for i in candidates}
        best = max(candidates, key=lambda i: scaled[i] - loss[i])
        picked.append(best)
        candidates.remove(best)
    keyframes = diverse_best(frames, relevance, 5, fps=10.0, weight=0.5, fading_seconds=2.0)
    assert keyframes.tolist() == frames[picked].tolist()
    assert picked != sorted(range(5), key=lambda i: -relevance[i])


@pytest.mark.parametrize("seed", range(8))
def test_only_the_nearest_chosen_frame_costs_a_frame_value(seed):
    generator = np.random.default_rng(seed)
    frames, relevance = np.sort(generator.choice(600, 40, replace=False)), 0.3 + 0.2 * generator.random(40)
    scaled, picked = (relevance - relevance.min()) / np.ptp(relevance), []
    for _ in range(12):
        distances = [min((abs(frames[i] - frames[j]) for j in picked), default=np.inf) for i in range(40)]
        value = np.where(np.isin(np.arange(40), picked), -np.inf, scaled - 0.5 * np.exp(-np.array(distances) / 20.0))
        picked.append(int(np.argmax(value)))
    keyframes = diverse_best(frames, relevance, 12, fps=10.0, weight=0.5, fading_seconds=2.0)
    assert keyframes.tolist() == frames[picked].tolist()


def test_without_a_penalty_the_greedy_choice_is_the_most_relevant():
    frames, relevance = np.arange(50) * 3, bumpy(50)
    keyframes = diverse_best(frames, relevance, 7, fps=30.0, weight=0.0, fading_seconds=2.0)
    assert keyframes.tolist() == frames[np.argsort(-relevance, kind="stable")[:7]].tolist()


def test_gaps_are_halved_from_the_widest_down():
    assert halve_widest_gaps(np.array([10]), 4, 100).tolist() == [10, 32, 55, 77]
    assert halve_widest_gaps(np.empty(0, dtype=int), 3, 9).tolist() == [1, 4, 6]
    assert halve_widest_gaps(np.array([3, 0]), 6, 6).tolist() == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("name", ["focus_diverse", "focus_cover"])
def test_another_choice_leaves_the_pulls_of_focus_as_they_are(name):
    world = ArraySource(bumpy(108_000))
    focus, control = (run(item, world=world, coarse_rng=3) for item in ("focus", name))
    assert np.array_equal(focus.pulled_frames, control.pulled_frames)
    assert [clip.mean for clip in focus.clips] == [clip.mean for clip in control.clips]
    assert focus.keyframes != control.keyframes


def test_focus_diverse_chooses_among_pulled_frames():
    selection = run("focus_diverse")
    assert set(selection.keyframes) <= set(selection.pulled_frames.tolist())


# Ceiling and floor ----------------------------------------------------------------------------------------------------


def test_oracle_shows_the_annotated_moments_and_nothing_else():
    selection = run("oracle", VideoInfo(1000, 25.0), k=8, evidence=(3.98, 20.0, 3.99))
    assert selection.keyframes == (100, 500)
    assert selection.facts == {"evidence_frames": 2, "returned_fewer": 2}
    assert selection.n_pulls == 0


def test_oracle_takes_every_other_moment_where_there_are_too_many():
    selection = run("oracle", VideoInfo(1000, 10.0), k=3, evidence=tuple(range(0, 100, 20)))
    assert selection.keyframes == (0, 400, 800)


def test_oracle_without_evidence_says_what_to_do():
    with pytest.raises(InvalidInput, match=r"needs annotated evidence.*leave oracle out"):
        run("oracle")


def test_evidence_reaches_no_sampler_but_a_ceiling(monkeypatch):
    pulled_by_name = {}
    for name, kind in sampler_classes().items():
        monkeypatch.setattr(
            kind, "choose", lambda self, request: pulled_by_name.setdefault(self.name, request) and None
        )
        with pytest.raises(SamplerError, match="must return a Choice"):
            make_sampler(name).select(
                HOUR, k=4, pull=FlatSource(), rng=np.random.default_rng(0), evidence_seconds=(5.0,), llm=FlatSource()
            )
    assert {name for name, request in pulled_by_name.items() if request.evidence_seconds} == {"oracle"}


def test_a_sampler_that_wants_evidence_must_call_itself_a_ceiling():
    class Cheat(FrameSampler):
        name, source, needs_evidence = "cheat", "test", True

        def choose(self, request):
            return None

    with pytest.raises(SamplerError, match="only a sampler of role 'ceiling' may see the annotated evidence"):
        Cheat()


def test_blind_chooses_nothing_and_says_so():
    selection = run("blind")
    assert selection.keyframes == ()
    assert selection.facts == {"returned_fewer": 0}


def test_roles_tell_samplers_from_controls():
    roles = {name: kind.role for name, kind in sampler_classes().items() if kind.role != "sampler"}
    assert roles == {
        "random": "control",
        "even_topk": "control",
        "even_diverse": "control",
        "focus_diverse": "control",
        "focus_cover": "control",
        "scan_only": "control",
        "all_frames": "control",
        "oracle": "ceiling",
        "blind": "floor",
    }
