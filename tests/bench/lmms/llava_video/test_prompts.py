"""Prompts, times and native frames are the original's, character by character."""

from __future__ import annotations

import json

import numpy as np
import pytest

from focus_eval.bench.lmms.llava_video.checkpoint import make_setup
from focus_eval.bench.lmms.llava_video.model import (
    IMAGE,
    original_frames,
    original_times,
    prompt_halves,
    time_list,
    time_sentence,
    user_tail,
)
from focus_eval.core.errors import InvalidInput
from focus_eval.core.types import VideoInfo

LAYOUTS = {"lmms_eval_no_time": "off", "lmms_eval_time": "lmms_eval", "model_card_time": "model_card"}
QUESTION = "Which one?\nA. a\nB. b"


@pytest.fixture(scope="module")
def recorded(recorded_llava_video):
    return json.loads((recorded_llava_video / "prompts.json").read_text())


def test_every_recorded_prompt_is_met(recorded):
    prompts = recorded["prompts"]
    assert len(prompts["rendered"]) == 9
    for prompt in prompts["rendered"]:
        first_half, second_half = prompt_halves(
            prompts["question"],
            template=prompt["template"],
            time_instruction=LAYOUTS[prompt["layout"]],
            time_sentence=prompts["time_instruction"],
        )
        assert first_half + IMAGE + second_half == prompt["prompt"], prompt["layout"]
        tail = user_tail(prompts["question"], LAYOUTS[prompt["layout"]], prompts["time_instruction"])
        assert IMAGE + tail == prompt["user_text"]


def test_the_recorded_time_sentence_is_met(recorded):
    sampling = recorded["sampling"][recorded["prompts"]["time_instruction_from_sampling"]]
    video = VideoInfo(sampling["total_frames"], sampling["avg_fps"])
    _, times = original_frames(video, max_frames=sampling["max_frames"], force_sample=sampling["force_sample"])
    sentence = time_sentence(times.tolist(), duration_seconds=video.duration_seconds)
    assert sentence == recorded["prompts"]["time_instruction"]


def test_native_frames_and_times_are_the_recorded_ones(recorded):
    assert len(recorded["sampling"]) == 9
    for item in recorded["sampling"]:
        video = VideoInfo(item["total_frames"], item["avg_fps"])
        frames, times = original_frames(
            video, max_frames=item["max_frames"], video_fps=item["video_fps"], force_sample=item["force_sample"]
        )
        assert frames.tolist() == item["frame_idx"]
        assert time_list(times) == item["frame_time"]
        assert video.duration_seconds == pytest.approx(item["video_time"], abs=1e-9)


def test_prompts_are_written_out_here_too():
    """Without the recording: the two templates of the presets, letter by letter."""
    assert prompt_halves(QUESTION, template="qwen_1_5") == (
        "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n",
        f"\n{QUESTION}<|im_end|>\n<|im_start|>assistant\n",
    )
    assert prompt_halves(QUESTION, template="chatml_direct") == (
        "<|im_start|>system\nAnswer the questions.<|im_end|><|im_start|>user\n",
        f"\n{QUESTION}<|im_end|><|im_start|>assistant\n",
    )
    assert time_sentence([0.0, 4.267], duration_seconds=30) == (
        "The video lasts for 30.00 seconds, and 2 frames are uniformly sampled from it. These frames are located at"
        " 0.00s,4.27s.Please answer the following questions related to this video."
    )


def test_the_stride_rule_misplaces_chosen_frames_where_the_rate_is_not_whole():
    frames = np.array([0, 100, 2000])
    assert original_times(frames, VideoInfo(3000, 30.0)).tolist() == pytest.approx([0, 100 / 30, 2000 / 30])
    assert original_times(frames, VideoInfo(3000, 23.976)).tolist() == pytest.approx([0, 100 / 24, 2000 / 24])


def test_a_rate_too_low_for_the_stride_rule_is_refused():
    with pytest.raises(InvalidInput, match="stride rule"):
        original_times(np.array([0]), VideoInfo(10, 0.25))
    with pytest.raises(InvalidInput, match="max_frames"):
        original_frames(VideoInfo(10, 25.0), max_frames=0)


def test_presets_are_the_published_set_ups():
    aks, lmms = make_setup("aks"), make_setup("lmms_eval")
    assert (aks.pooling, aks.newline, aks.template) == ("checkpoint", "checkpoint", "chatml_direct")
    assert (lmms.pooling, lmms.newline, lmms.template) == ("average", "grid", "qwen_1_5")
    assert {aks.time_instruction, lmms.time_instruction} == {"off"}
    assert make_setup("aks", pooling="average", times=None).pooling == "average"
    assert make_setup("aks", time_instruction=True).time_instruction == "lmms_eval"
    assert make_setup("aks", time_instruction=False).time_instruction == "off"


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        ({"preset": "ask"}, "did you mean 'aks'"),
        ({"pooling": "avarage"}, "did you mean 'average'"),
        ({"newlines": "grid"}, "did you mean 'newline'"),
        ({"template": "qwen15"}, "did you mean 'qwen_1_5'"),
        ({"times": "right"}, "must be exact or original"),
    ],
)
def test_an_unknown_option_is_refused_with_the_nearest(arguments, hint):
    with pytest.raises(InvalidInput, match=hint):
        make_setup(**arguments)
