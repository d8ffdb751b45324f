"""What a matrix asks otherwise than the paper or lmms-eval is named, and counted over its questions."""

from __future__ import annotations

import pytest

from focus_eval.core.errors import UnknownName
from focus_eval.core.types import Question
from focus_eval.matrix.against import differences, frame_pixels
from focus_eval.matrix.config import load_matrix
from focus_eval.matrix.questions import QuestionSet


def lines(matrix, reference, sets=None):
    return {(item.of, item.aspect): item for item in differences(matrix, sets or {}, reference)}


@pytest.fixture
def matrix():
    return load_matrix("main_results")


def changed(matrix, model, **arguments):
    models = [
        item.model_copy(update={"args": {**item.args, **arguments}}) if item.name == model else item
        for item in matrix.models
    ]
    return matrix.model_copy(update={"models": models})


def test_the_shipped_gpt4o_is_the_papers_and_another_is_named(matrix):
    assert ("gpt4o", "version") not in lines(matrix, "paper")
    newer = lines(changed(matrix, "gpt4o", model_version="gpt-4o-2024-08-06"), "paper")
    assert newer["gpt4o", "version"].setting == "gpt-4o-2024-08-06"
    assert newer["gpt4o", "version"].reference_setting == "gpt-4o-2024-05-13"


def test_a_difference_goes_when_the_matrix_asks_as_there(matrix):
    assert ("qwen2_vl_7b", "resolution") in lines(matrix, "paper")
    assert ("qwen2_vl_7b", "resolution") not in lines(changed(matrix, "qwen2_vl_7b", max_pixels=235200), "paper")
    assert ("llava_video_7b", "numbers") not in lines(changed(matrix, "llava_video_7b", dtype="float16"), "paper")
    lenient = lines(matrix.model_copy(update={"answer_parsing": "lmms_eval", "frame_policy": "aks"}), "paper")
    assert not {"reading of answers", "frames of a short video", "short selections"} & {aspect for _, aspect in lenient}


def test_the_budget_of_qwen_vl_utils_is_the_installed_ones():
    vision_process = pytest.importorskip("qwen_vl_utils.vision_process")
    budget = vision_process.MODEL_SEQ_LEN * 28 * 28 * 0.9
    assert frame_pixels(768) == min(vision_process.VIDEO_MAX_TOKEN_NUM * 28 * 28, budget / 768 * 2) == 235200
    assert frame_pixels(32) == vision_process.VIDEO_MAX_TOKEN_NUM * 28 * 28 == 602112


def test_sizes_are_counted_over_the_questions(matrix):
    videos = {"short": 40.0, "middle": 100.0, "long": 384.0}
    questions = tuple(
        Question(benchmark="longvideobench", id=name, query="?", options=("a", "b"), video=f"{name}.mp4", answer="A",
                 duration_seconds=seconds)
        for name, seconds in videos.items()
    )  # fmt: skip
    config = matrix.benchmarks[0].model_copy(update={"rates": ""})
    sets = {"longvideobench": QuestionSet(config, questions, list(videos))}
    differences_by_key = lines(matrix, "paper", sets)
    assert "1 of 3 questions" in differences_by_key["qwen2_vl_7b", "resolution"].size
    assert differences_by_key["uniform", "frames of a short video"].size.count("1 of 3 questions") == 1


def test_lmms_eval_asks_videomme_with_prompts_of_its_own(matrix):
    differences_by_key = lines(matrix, "lmms-eval")
    assert differences_by_key["llava_video_7b on focus_videomme", "prompt"].reference_setting == "that of llava_vid"
    assert ("uniform", "frames of a short video") not in differences_by_key


def test_a_sampler_whose_published_line_stands_beside_ours_is_named(matrix):
    """Table 1 asks no AKS and no Q-Frame, and keeps their published lines."""
    assert {item.sampler for item in matrix.samplers} & {"aks", "qframe"} == set()
    assert {("aks", "published figures"), ("qframe", "published figures")} <= set(lines(matrix, "paper"))
    assert ("aks", "published figures") not in lines(load_matrix("alpha"), "paper")


def test_an_unknown_protocol_is_refused_with_the_known_ones(matrix):
    with pytest.raises(UnknownName, match="paper"):
        differences(matrix, {}, "papers")
