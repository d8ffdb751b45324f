"""A server gets the chosen frames byte for byte in every form of request, and with 64 questions in flight."""

from __future__ import annotations

import pytest

from focus_eval.core.errors import InvalidInput
from support.api_forms import Combination, Trial, combinations


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "any")
    monkeypatch.setenv("TQDM_DISABLE", "1")


@pytest.fixture(scope="module")
def small_trial(tmp_path_factory):
    return Trial(tmp_path_factory.mktemp("few"), n_questions=4, n_frames=3)


@pytest.mark.parametrize("form", combinations(), ids=str)
def test_every_form_carries_the_chosen_frames(small_trial, form):
    assert small_trial.run(form) == {"in_flight": 4, "answered": 4, "frames": 12, "differing": 0, "wrong": 0}


def test_with_64_in_flight_each_question_has_its_own_frames(tmp_path):
    trial = Trial(tmp_path, n_questions=64, n_frames=3)
    trial_result = trial.run(Combination(kind="chat", frames="jpeg", times=True, detail="low"))
    assert trial_result == {"in_flight": 64, "answered": 64, "frames": 192, "differing": 0, "wrong": 0}


def test_the_comparison_notices_a_wrong_frame_and_a_wrong_detail(small_trial, monkeypatch):
    from focus_eval.lmms.models import openai as api_frames

    put_into = api_frames.SentFrames.put_into

    def swapped(self, payload):
        put_into(self, payload)
        images = list(api_frames.image_parts(payload["messages"]))
        images[0]["image_url"], images[1]["image_url"] = images[1]["image_url"], images[0]["image_url"]
        images[2]["image_url"]["detail"] = "high"

    monkeypatch.setattr(api_frames.SentFrames, "put_into", swapped)
    trial_result = small_trial.run(Combination(kind="simple", frames="png", times=True, detail="low"))
    assert trial_result["differing"] >= 4
    assert trial_result["wrong"] == 4


def test_an_unknown_detail_and_a_detail_of_a_video_are_refused(small_trial):
    from focus_eval.lmms.models.openai import FocusGPT4oChat

    arguments = {"base_url": "http://127.0.0.1:1", "sampler": "uniform", "frames": 2}
    with pytest.raises(InvalidInput, match=r"option 'detail' of focus_gpt4o .*'hihg'; did you mean 'high'"):
        FocusGPT4oChat(**arguments, detail="hihg")
    with pytest.raises(InvalidInput, match="detail is a field of images"):
        FocusGPT4oChat(**arguments, detail="low", as_video="true")
