"""What a sampler may ask beside relevance to the question: other texts, pictures and a model; all of it is counted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from focus_eval import VideoInfo, make_sampler
from focus_eval.core.errors import AnswerError, BrokenContract, EncoderError, InvalidInput
from focus_eval.keyframes.llms.scripted import ScriptedModel
from focus_eval.keyframes.samplers.ledger import Ledger
from focus_eval.keyframes.samplers.sources import ArraySource, bumpy
from focus_eval.lab.contract import TEXTS, Case, broken_promises, check_sampler, fingerprint, select
from focus_eval.lab.subprocess_sampler import make_in_subprocess

FILE = Path(__file__).with_name("asking_samplers.py")
ASKS = f"{FILE}:AsksForAll"
CASE = Case(500, 8, 10.0)
VIDEO = VideoInfo(100, 10.0)


@pytest.fixture
def ledger():
    world = ArraySource(bumpy(100))
    return Ledger(world, VIDEO, budget=6, query="a dog", look=world.look)


def test_every_frame_and_text_is_a_pull_of_its_own(ledger):
    ledger.relevance(np.array([1, 2]))
    ledger.relevance(np.array([3]), "a dog")
    cat_relevance = ledger.relevance(np.array([2, 9]), "a cat")
    assert ledger.frames.tolist() == [1, 2, 3]
    assert [(pulls.text, pulls.frames.tolist()) for pulls in ledger.text_pulls] == [("a cat", [2, 9])]
    assert ledger.text_pulls[0].relevance.tolist() == cat_relevance.tolist()
    assert ledger.n_pulls == 5
    with pytest.raises(BrokenContract, match="frame 9 pulled for 'a cat' twice"):
        ledger.relevance(np.array([9]), "a cat")
    with pytest.raises(BrokenContract, match="7 pulls asked, the budget is 6"):
        ledger.relevance(np.array([1, 2]), "a bird")


def test_a_text_is_text_and_an_encoder_of_one_question_says_so(ledger):
    for text in ("  ", 7):
        with pytest.raises(BrokenContract, match="a query is text"):
            ledger.relevance(np.array([1]), text)
    plain = Ledger(np.zeros_like, VIDEO)
    with pytest.raises(EncoderError, match="zeros_like gives relevance to the question alone, not to 'a cat'"):
        plain.relevance(np.array([1]), "a cat")


def test_looks_are_counted_apart_from_pulls_and_may_come_again(ledger):
    assert [picture.shape for picture in ledger.look(np.array([5, 3]))] == [(9, 16, 3)] * 2
    ledger.look(np.array([3]), size=8)
    ledger.relevance(np.array([3]))
    assert ledger.looked_frames.tolist() == [5, 3, 3]
    assert ledger.n_pulls == 1
    with pytest.raises(BrokenContract, match="frame 100 asked, video has 100"):
        ledger.look(np.array([100]))
    with pytest.raises(InvalidInput, match="size of a picture must be at least 1"):
        ledger.look(np.array([1]), size=0)
    with pytest.raises(InvalidInput, match="no pictures to look at"):
        Ledger(ArraySource(bumpy(100)), VIDEO).look(np.array([1]))


def test_a_sampler_in_a_process_of_its_own_asks_and_is_told_the_same():
    in_process, in_subprocess = select(make_sampler(ASKS), CASE), select(make_in_subprocess(ASKS), CASE)
    assert fingerprint(in_process) == fingerprint(in_subprocess)
    assert in_process.facts == in_subprocess.facts == {
        "query": TEXTS.query, "options": list(TEXTS.options), "said": 2, "pixels": in_process.facts["pixels"],
    }  # fmt: skip
    # A text of 53 characters; one of 12 for each of four pictures, whose 16 x 9 pixels are less than a token.
    assert dict(in_subprocess.model_usage) == {
        "calls": 5,
        "images": 4,
        "tokens_sent": 14 + 4 * (3 + 1),
        "tokens_back": 16 + 4,
    }
    assert in_subprocess.looked_frames.size == 4
    assert in_subprocess.n_pulls == 32
    assert in_subprocess.encoded_frames.size == 16


def test_the_suite_takes_a_sampler_that_asks_and_sees_what_it_breaks():
    assert check_sampler(ASKS).broken == ()
    assert broken_promises(make_sampler(f"{FILE}:SeesAFloat"), CASE).keys() == {"asks"}


def test_each_kind_of_prompt_has_an_example_reply_of_its_own():
    name = f"{FILE}:AsksInTwoKinds"
    assert check_sampler(name).broken == ()
    for sampler in (make_sampler(name), make_in_subprocess(name)):
        assert select(sampler, CASE).facts == {"cue": "a red car", "seconds": 12.5}
    model = ScriptedModel().for_question("Which engine roars?", (), reply=sampler.example_reply)
    assert model.ask("Name a cue of it", [], max_tokens=8).text == "a red car"
    assert model.ask("How many seconds?", [np.zeros((4, 4, 3), np.uint8)], max_tokens=8).text == "12.5"
    assert model.ask("Another kind", [], max_tokens=8).text == "engine\nroars"


@pytest.mark.parametrize(("seconds", "reply"), [(7.9, "no"), (8.0, "yes"), (12.0, "yes"), (12.1, "no")])
def test_a_scripted_model_sees_evidence_within_its_reach_alone(seconds, reply):
    model = ScriptedModel(accuracy=0.999).for_question("Which engine roars?", (10.0,), reply="")
    picture = np.zeros((4, 4, 3), np.uint8)
    model.note_time(picture, seconds)
    assert model.ask("Does it roar?", [picture], max_tokens=8).text == reply


def test_the_error_of_a_model_ends_the_question_in_both_processes():
    for sampler in (make_sampler(ASKS), make_in_subprocess(ASKS)):
        with pytest.raises(AnswerError, match="does not answer"):
            select(sampler, Case(500, 8, pattern="not a number"))


def test_a_sampler_without_a_model_is_refused_and_one_that_asks_unasked_too():
    with pytest.raises(InvalidInput, match="asks a model: name one"):
        make_sampler(ASKS).select(VIDEO, k=2, pull=ArraySource(bumpy(100)), rng=np.random.default_rng(0))
    sampler = make_sampler(ASKS)
    object.__setattr__(sampler, "needs_llm", False)
    with pytest.raises(BrokenContract, match="derive it from AskingSampler"):
        select(sampler, CASE)
