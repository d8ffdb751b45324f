"""A server gets the chosen frames byte for byte in every form of request, and with 64 questions in flight."""

from __future__ import annotations

import pytest

from tests.support.bench.api_forms import Combination, Trial, combinations


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "any")
    monkeypatch.setenv("TQDM_DISABLE", "1")


@pytest.fixture(scope="module")
def small_trial(tmp_path_factory):
    return Trial(tmp_path_factory.mktemp("few"), n_questions=4, n_frames=3)


@pytest.mark.parametrize("form", combinations(), ids=str)
def test_every_form_carries_the_chosen_frames(small_trial, form):
    assert small_trial.run(form) == {"in_flight": 4, "answered": 4, "frames": 12, "differing": 0}


def test_with_64_in_flight_each_question_has_its_own_frames(tmp_path):
    trial = Trial(tmp_path, n_questions=64, n_frames=3)
    trial_result = trial.run(Combination(kind="chat", frames="jpeg"))
    assert trial_result == {"in_flight": 64, "answered": 64, "frames": 192, "differing": 0}


def test_the_comparison_notices_a_wrong_frame(small_trial, monkeypatch):
    from focus_eval.bench.lmms.models import openai as api_frames

    replace_images = api_frames.replace_images

    def swapped(payload, urls):
        replace_images(payload, [urls[1], urls[0], *urls[2:]])

    monkeypatch.setattr(api_frames, "replace_images", swapped)
    trial_result = small_trial.run(Combination(kind="simple", frames="png"))
    assert trial_result["differing"] >= 4
