"""The port equals the recorded original, and the deliberate mistakes do not."""

from __future__ import annotations

import pytest

from tests.support.bench.llava_video_parity import (
    MISTAKES,
    TOLERANCE,
    measure,
    measure_all,
    measure_mistakes,
    read_cases,
    stage_checkpoint,
)

N_CASES = 11


@pytest.fixture(scope="module")
def recording(recorded_llava_video):
    return recorded_llava_video


@pytest.fixture(scope="module")
def mistakes(recording, tmp_path_factory):
    return measure_mistakes(recording, tmp_path_factory.mktemp("mistakes"))


@pytest.fixture(scope="module", params=["sdpa", pytest.param("eager", marks=pytest.mark.slow)])
def deviations(request, recording, tmp_path_factory):
    return measure_all(recording, tmp_path_factory.mktemp("all"), attn_implementation=request.param)


def test_all_recorded_cases_are_within_the_tolerance_with_equal_greedy_tokens(deviations):
    assert len(deviations) == N_CASES
    for deviation in deviations:
        assert deviation.same_tokens, deviation
        assert deviation.n_tokens[0] == deviation.n_tokens[1], deviation
        assert max(deviation.features, deviation.embeddings, deviation.logits) <= TOLERANCE, deviation


def test_the_recorded_merged_embeddings_are_met(recording, deviations):
    cases, _ = read_cases(recording)
    with_embeddings = [case.name for case in cases if "inputs_embeds" in case.tensors]
    assert with_embeddings == ["f1_bilinear_grid"]
    deviation_by_case = {deviation.case: deviation.embeddings for deviation in deviations}
    assert deviation_by_case["f1_bilinear_grid"] <= TOLERANCE


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_deliberate_mistake_is_outside_the_tolerance(mistakes, mistake):
    assert not mistakes[mistake].within_tolerance, mistakes[mistake]


@pytest.mark.parametrize(
    ("mistake", "part", "min_deviation"),
    [
        ("post-norm applied", "features", 1.0),
        ("one vision layer fewer", "features", 1.0),
        ("newline first", "features", 1.0),
        ("CLIP mean and deviation", "features", 1.0),
        ("vision LayerNorm eps 1e-5", "features", 2e-4),
        ("tanh GELU in the projector", "features", 5e-4),
        ("average for bilinear", "logits", 1.0),
        ("one newline per video", "logits", 1.0),
        ("rope theta 1e4", "logits", 1.0),
        ("RMSNorm eps 1e-5", "logits", 6e-5),
    ],
)
def test_a_mistake_shows_where_it_is_made(mistakes, mistake, part, min_deviation):
    assert getattr(mistakes[mistake], part) >= min_deviation


def test_average_pooling_and_bilinear_pooling_give_different_token_counts(mistakes):
    assert mistakes["average for bilinear"].n_tokens == (546, 630)
    assert mistakes["average for bilinear"].features is None


def test_many_frames_go_through_the_tower_in_parts_without_a_difference(recording, tmp_path, monkeypatch):
    from focus_eval.bench.lmms.llava_video import model as module
    from focus_eval.bench.lmms.llava_video.checkpoint import load_network

    config = stage_checkpoint(recording, tmp_path)
    cases, pixels = read_cases(recording)
    case = next(item for item in cases if item.name == "f8_average_grid")
    monkeypatch.setattr(module, "FRAMES_PER_FORWARD", 3)
    network = module.VideoNetwork(load_network(config, dtype="float32"), config=config, setup=case.setup)
    assert measure(network, case, pixels).within_tolerance
