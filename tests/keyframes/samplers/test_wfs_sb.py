"""Does `wfs_sb` give the peaks, segments, budgets and frames of its authors' code?"""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from focus_eval import VideoInfo, make_sampler
from focus_eval.keyframes.samplers.ledger import RelevanceSource
from focus_eval.keyframes.samplers.sources import ArraySource, bumpy
from focus_eval.keyframes.samplers.wfs_sb import (
    boundaries,
    coarsest_detail,
    half_even_half_best,
    important,
    segment_budgets,
    segment_importance,
    similarity,
)
from tests.keyframes.samplers.recorded import recorded_cases, recorded_relevance


class Plain(RelevanceSource):
    """A pull without embeddings."""

    def __init__(self, values) -> None:
        self.values = values

    def __call__(self, frames):
        return self.values[frames]


class WithFeatures(Plain):
    """A pull whose frames have the embeddings a case describes."""

    def __init__(self, values, features) -> None:
        super().__init__(values)
        self.features = np.array(features)

    def embeddings(self, frames):
        return np.sin(frames[:, None] * self.features[:, 0] + self.features[:, 1]), np.ones(len(self.features))


@pytest.fixture(scope="module")
def cases():
    """Recorded cases, each with the relevance it was recorded on."""
    cases = recorded_cases("wfs_sb")
    assert len(cases) == 54
    return [(case, recorded_relevance(case["trace"])) for case in cases]


def test_peaks_are_those_of_every_recorded_case(cases):
    for case, relevance in cases:
        assert boundaries(relevance).tolist() == case["peaks"], case


def test_segments_and_budgets_are_those_of_every_recorded_case(cases):
    for case, relevance in cases:
        if not case["peaks"]:
            continue
        edges = [0, *case["peaks"], relevance.size]
        segments = np.stack([edges[:-1], edges[1:]], axis=1)
        importance = segment_importance(segments, relevance)
        is_important = important(importance)
        assert segments[is_important].tolist() == case["kept_segments"], case
        assert segment_budgets(importance[is_important], case["k"]).tolist() == case["allocation"], case


def test_selected_frames_are_those_of_every_recorded_case(cases):
    for case, relevance in cases:
        pull = WithFeatures(relevance, case["features"]) if case["features"] else Plain(relevance)
        selection = make_sampler("wfs_sb").select(VideoInfo(relevance.size, 1.0), k=case["k"], pull=pull, rng=None)
        assert list(selection.keyframes) == case["selected"], case


def test_the_cases_reach_every_branch(cases):
    assert any(not case["peaks"] for case, _ in cases)
    assert any(case["features"] is None for case, _ in cases)
    assert any(0 in case["allocation"] for case, _ in cases)
    assert any(len(case["kept_segments"]) < len(case["peaks"]) + 1 for case, _ in cases)
    # A budget above its segment's length is filled up from all candidates.
    assert any(
        budget > stop - start
        for case, _ in cases
        for (start, stop), budget in zip(case["kept_segments"], case["allocation"], strict=False)
    )


def test_the_detail_is_the_coarsest_band_of_the_wavelet_transform_alone():
    import pywt

    relevance, level = bumpy(601), 6  # floor(log2(601) - 3)
    coefficients = pywt.wavedec(relevance, "db4", mode="symmetric", level=level)
    detail = pywt.waverec([None, coefficients[1]] + [None] * (level - 1), "db4", mode="symmetric")
    assert coarsest_detail(relevance).tolist() == detail[:601].tolist()


def test_one_pull_a_candidate_gives_relevance_and_embedding():
    world = ArraySource(bumpy(3000))
    selection = make_sampler("wfs_sb").select(VideoInfo(3000, 10.0), k=16, pull=world, rng=None)
    assert selection.n_pulls == 300
    assert np.array_equal(selection.pulled_relevance, world.values[::10])
    assert len(world.calls) == 1


def test_relevance_is_not_scaled_over_the_video():
    # Halved relevance halves the weight of relevance against similarity: other frames are chosen.
    world, half = ArraySource(bumpy(3000)), ArraySource(bumpy(3000) / 2)
    first, second = (
        make_sampler("wfs_sb").select(VideoInfo(3000, 10.0), k=16, pull=pull, rng=None) for pull in (world, half)
    )
    assert first.keyframes != second.keyframes


def test_fewer_candidates_than_keyframes_are_uniform_without_a_pull():
    selection = make_sampler("wfs_sb").select(VideoInfo(300, 10.0), k=31, pull=Plain(bumpy(300)), rng=None)
    assert selection.keyframes == tuple(np.linspace(0, 299, 31).astype(int).tolist())
    assert selection.facts == {"candidates": 30, "fallback": "uniform"}
    assert selection.n_pulls == 0


def test_without_a_peak_half_is_even_and_half_the_best():
    relevance = np.linspace(0.0, 1.0, 9)
    assert half_even_half_best(relevance, 4).tolist() == [0, 6, 7, 8]
    assert half_even_half_best(relevance, 9).tolist() == list(range(9))
    assert half_even_half_best(relevance, 1).tolist() == [8]


def test_similarity_without_embeddings_falls_with_distance():
    near_likeness, far_likeness = similarity(None, slice(0, 1), np.array([10, 20]))[0]
    assert near_likeness == pytest.approx(np.exp(-1.0))
    assert far_likeness == pytest.approx(np.exp(-2.0))


def test_balance_one_takes_the_best_of_every_segment():
    segments, world = None, ArraySource(bumpy(600))
    selection = make_sampler("wfs_sb", balance=1.0).select(VideoInfo(600, 1.0), k=16, pull=world, rng=None)
    segments = np.split(np.arange(600), boundaries(world.values))
    for segment in segments:
        inside = np.intersect1d(segment, selection.keyframes)
        if inside.size:
            outside = np.setdiff1d(segment, inside)
            assert world.values[inside].min() >= world.values[outside].max()


def test_a_short_video_raises_no_warning():
    code = (
        "import numpy as np; from focus_eval.keyframes.samplers.wfs_sb import boundaries; "
        "[boundaries(np.linspace(0.2, 0.8, n)) for n in range(1, 40)]"
    )
    result = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
