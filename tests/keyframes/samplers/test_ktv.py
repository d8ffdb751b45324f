"""Does `ktv` take one frame of each kind of picture, the one most like the others?"""

from __future__ import annotations

import numpy as np
import pytest

from focus_eval import VideoInfo, make_sampler
from focus_eval.keyframes.samplers.ktv import nearest_to_centres
from focus_eval.keyframes.samplers.ledger import RelevanceSource

VIDEO = VideoInfo(6000, 10.0)  # 600 candidates


class Scenes(RelevanceSource):
    """A pull whose pictures are scenes that come again: a direction each, with noise but for the clean frames."""

    def __init__(self, scene_of, clean, spread=0.2) -> None:
        rng = np.random.default_rng(0)
        self.images = np.eye(scene_of.max() + 1, 24)[scene_of]
        noise = rng.standard_normal(self.images.shape) * spread
        noise[clean] = 0.0
        self.images = self.images + noise

    def embeddings(self, frames):
        return self.images[frames // 10], np.ones(24)

    def __call__(self, frames):
        raise AssertionError("the question plays no part")


def test_one_frame_of_each_kind_of_picture_is_chosen():
    # Five kinds in stretches of unequal length, two of them come again later.
    kinds = np.repeat([0, 1, 2, 0, 3, 4, 1], [200, 40, 100, 60, 50, 100, 50])
    selection = make_sampler("ktv").select(VIDEO, k=5, pull=Scenes(kinds, clean=[]), rng=None)
    assert sorted(kinds[np.array(selection.keyframes) // 10]) == [0, 1, 2, 3, 4]
    assert selection.n_pulls == 600


def test_the_frame_nearest_to_its_centre_stands_for_its_kind():
    kinds = np.repeat(np.arange(6), 100)
    clean = [37, 150, 263, 388, 401, 599]
    selection = make_sampler("ktv").select(VIDEO, k=6, pull=Scenes(kinds, clean), rng=None)
    assert [frame // 10 for frame in selection.keyframes] == clean


def test_clusters_equal_those_of_plain_lloyd_rounds():
    points = np.random.default_rng(5).standard_normal((300, 8))
    centres = np.stack([run.mean(axis=0) for run in np.array_split(points, 12)])
    for _ in range(200):
        nearest = np.linalg.norm(points[:, None] - centres, axis=2).argmin(axis=1)
        centres = np.stack([points[nearest == at].mean(axis=0) for at in np.unique(nearest)])
    distance = np.linalg.norm(points[:, None] - centres, axis=2)
    expected = [np.flatnonzero(nearest == at)[distance[nearest == at, at].argmin()] for at in range(12)]
    assert nearest_to_centres(points, 12).tolist() == sorted(expected)


@pytest.mark.parametrize(("k", "n_gaps", "n_pulls"), [(600, 0, 0), (700, 100, 0), (40, 39, 600)])
def test_what_clusters_do_not_give_comes_from_the_widest_gaps(k, n_gaps, n_pulls):
    uniform_scenes = Scenes(np.zeros(600, dtype=int), clean=np.arange(600))
    selection = make_sampler("ktv").select(VIDEO, k=k, pull=uniform_scenes, rng=None)
    assert len(selection.keyframes) == k
    assert selection.facts["from_widest_gaps"] == n_gaps
    assert selection.n_pulls == n_pulls == make_sampler("ktv").count_pulls(VIDEO, k=k)
