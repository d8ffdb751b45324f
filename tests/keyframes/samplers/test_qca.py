"""Does `qca` give the weights, budgets and frames of its authors' code?"""

from __future__ import annotations

import numpy as np
import pytest

from focus_eval import VideoInfo, make_sampler
from focus_eval.keyframes.samplers.ledger import RelevanceSource
from focus_eval.keyframes.samplers.qca import (
    content_weights,
    query_weights,
    relevant_and_far,
    segment_budgets,
    segment_edges,
)
from focus_eval.keyframes.samplers.sources import ArraySource, bumpy
from tests.keyframes.samplers.recorded import recorded_cases, recorded_relevance


class Recorded(RelevanceSource):
    """A pull that gives a case's relevance and embeddings."""

    def __init__(self, case) -> None:
        self.values = recorded_relevance(case["trace"])
        frames, waves = np.arange(self.values.size), np.array(case["features"])
        self.images = np.sin(frames[:, None] * waves[:, 0] + waves[:, 1])

    def __call__(self, frames):
        return self.values[frames]

    def embeddings(self, frames):
        return self.images[frames], np.ones(self.images.shape[1])


@pytest.fixture(scope="module")
def cases():
    """Recorded cases, each with the pull it was recorded on."""
    cases = recorded_cases("qca")
    assert len(cases) == 16
    return [(case, Recorded(case)) for case in cases]


def test_weights_are_those_of_every_recorded_case(cases):
    for case, pull in cases:
        edges = segment_edges(pull.values.size, case["segments"])
        unit = (pull.images / np.linalg.norm(pull.images, axis=1, keepdims=True)).astype(np.float32)
        assert np.allclose(content_weights(unit, edges), case["content_weights"], atol=2e-6), case
        assert np.allclose(query_weights(pull.values, edges, 1.0), case["query_weights"], atol=2e-6), case


def test_budgets_and_frames_are_those_of_every_recorded_case(cases):
    for case, pull in cases:
        options = {name: case[name] for name in ("segments", "gamma", "beta")}
        video = VideoInfo(pull.values.size, 1.0)
        selection = make_sampler("qca", **options).select(video, k=case["k"], pull=pull, rng=None)
        assert selection.facts["budgets"] == case["allocation"], case
        assert list(selection.keyframes) == case["selected"], case


def test_the_cases_reach_a_segment_without_frames_and_one_with_fewer_than_its_budget(cases):
    assert any(0 in case["allocation"] for case, _ in cases)
    assert any(len(set(case["allocation"])) > 2 for case, _ in cases)


@pytest.mark.parametrize("k", [1, 7, 40, 50, 51, 80])
def test_budgets_fill_up_what_sizes_allow_and_no_more(k):
    rng = np.random.default_rng(k)
    for _ in range(30):
        sizes = segment_edges(51, 8)
        sizes = np.diff(sizes)
        budgets = segment_budgets(rng.dirichlet(np.full(8, 0.2)), sizes, k)
        assert budgets.sum() == min(k, 51)
        assert (budgets <= sizes).all()
        assert (budgets >= 0).all()


def test_a_segment_without_relevance_gives_its_frames_all_the_same():
    images = np.eye(5, dtype=np.float32)
    assert relevant_and_far(np.zeros(5), images, 3, 0.5).size == 3
    assert relevant_and_far(np.array([1.0, 0.1, 0.3, 0.0, 0.6]), images, 2, 0.5).tolist() == [0, 4]
    # Equal pictures have no distance: floating point may stop there, never repeat one.
    equal_images = np.full((5, 3), np.float32(1 / np.sqrt(3)))
    positions = relevant_and_far(np.full(5, 0.5), equal_images, 4, 0.5)
    assert 1 <= positions.size <= 4
    assert np.unique(positions).size == positions.size


def test_fewer_candidates_than_segments_are_the_most_relevant():
    world = ArraySource(bumpy(100))
    selection = make_sampler("qca").select(VideoInfo(100, 10.0), k=4, pull=world, rng=None)
    assert selection.facts["fallback"] == "topk"
    best = np.argsort(-world.values[::10], kind="stable")[:4] * 10
    assert selection.keyframes == tuple(sorted(best.tolist()))
