"""Requests that fail: tried again, recorded, and never paid for twice."""

from __future__ import annotations

import json

import pytest

from .conftest import KEY, LATE, completion

pytestmark = pytest.mark.slow


def test_questions_are_asked_in_parallel_up_to_the_limit(gpt, server, evaluate):
    server.expected = 3
    evaluate(gpt(num_concurrent=3), ["focus_longvideobench"])
    assert server.busiest == 3


@pytest.mark.parametrize(
    "failure",
    [
        (429, {"error": {"message": "slow down", "code": "rate_limit_exceeded"}}),
        (500, {"error": {"message": "oops"}}),
        (503, "<html>busy</html>"),
        (200, '{"id": "x", "choi'),
        (200, {"error": {"message": "odd"}}),
        LATE,
    ],
    ids=["429", "500", "503", "broken JSON", "no choices", "too slow"],
)
def test_what_may_pass_is_tried_again_with_growing_pauses(gpt, server, evaluate, tools, tmp_path, failure):
    server.replies = [failure, failure]
    evaluate(gpt(num_concurrent=1, timeout=0.1), ["focus_videomme"], limit=1)
    (answer,) = tools.read_record(tmp_path, "answers")
    assert (answer["answer"], answer["error"]) == ("B", None)
    assert answer["tokens"]["requests"] == 3
    assert len(server.times) == 3
    assert server.times[1] - server.times[0] >= 0.05
    assert server.times[2] - server.times[1] >= 0.1


def test_a_server_that_asks_for_a_pause_gets_it(gpt, server, evaluate):
    server.replies = [(429, {"error": {"message": "wait"}}, {"retry-after": "1"})]
    evaluate(gpt(num_concurrent=1), ["focus_videomme"], limit=1)
    assert server.times[1] - server.times[0] >= 1


@pytest.mark.parametrize(
    ("failure", "requests", "message"),
    [
        ((429, {"error": {"message": "pay first", "code": "insufficient_quota"}}), 1, "pay first"),
        ((400, {"error": {"message": "too many images"}}), 1, "too many images"),
        ((429, {"error": {"message": "come back later"}}, {"retry-after": "121"}), 1, "come back later"),
        ((401, {"error": {"message": f"Incorrect API key provided: {KEY}."}}), 1, "Incorrect API key"),
        ((200, completion(None, refusal="I can't help with that")), 1, "refused: I can't help"),
        ((200, completion(None)), 1, "without text"),
        ((500, {"error": {"message": f"key {KEY} broke"}}), 2, "(after 2 requests)"),
        (LATE, 2, "timed out"),
    ],
    ids=["quota", "400", "long pause", "401", "refusal", "empty", "500", "time-out"],
)
def test_a_failure_is_an_error_of_its_question_alone(
    gpt, server, evaluate, tools, tmp_path, capfd, failure, requests, message
):
    from loguru import logger

    sink = logger.add(tmp_path / "everything.log", level=0)
    server.on_question = {"What does the man hold? (portrait)": failure}
    model = gpt(max_retries=2, timeout=0.1, max_error_share=1, num_concurrent=4)
    results = evaluate(model, ["focus_longvideobench"])
    logger.remove(sink)
    answers = {row["question_id"]: row for row in tools.read_record(tmp_path, "answers")}
    failed = answers.pop("portrait_0")
    assert message in failed["error"]
    assert "\n" not in failed["error"]
    assert failed["answer"] is None
    assert failed["tokens"]["requests"] == requests
    assert all(row["answer"] == "B" for row in answers.values())
    assert results["results"]["focus_longvideobench"]["no_answer,none"] == 1
    out = "".join(capfd.readouterr()) + json.dumps(results, default=str)
    everything = out + "".join(path.read_text() for path in tmp_path.rglob("*") if path.is_file())
    assert server.keys[0] == f"Bearer {KEY}"
    assert "Attempt 1/1 failed" in everything  # the wrapper logs what its client raised
    assert KEY not in everything


def test_too_many_failures_fail_the_run_at_its_end(gpt, server, evaluate, tools, tmp_path):
    from focus_eval.core.errors import RunError

    server.on_question = {"(portrait)": (400, {"error": {"message": "no"}})}
    with pytest.raises(RunError, match="2 of 8 questions have no answer"):
        evaluate(gpt(), ["focus_longvideobench"])
    assert len(tools.read_record(tmp_path, "answers")) == 8  # everything was asked and written down first


def test_a_cap_on_cost_ends_the_run_and_keeps_what_was_paid_for(gpt, server, evaluate, tools, tmp_path):
    from focus_eval.core.errors import RunError

    # An answer costs 111 * 5 + 2 * 15 = 585 millionths of a dollar: the third reaches the cap.
    model = gpt(max_cost=0.0015, price_input=5, price_output=15, num_concurrent=1)
    with pytest.raises(RunError, match=r"max_cost=0\.0015 dollars are spent"):
        evaluate(model, ["focus_longvideobench"])
    answers = tools.read_record(tmp_path, "answers")
    assert len(server.bodies) == len(answers) == 3
    assert all(row["error"] is None for row in answers)


def test_answers_under_way_when_the_cap_is_reached_are_kept(gpt, server, evaluate, tools, tmp_path):
    from focus_eval.core.errors import RunError

    server.expected = 4
    model = gpt(max_cost=0.0005, price_input=5, price_output=15, num_concurrent=4)
    with pytest.raises(RunError, match="max_cost"):
        evaluate(model, ["focus_longvideobench"])
    answers = tools.read_record(tmp_path, "answers")
    assert len(server.bodies) == len(answers) == 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"max_cost": 1}, "needs price_input and price_output"),
        ({"max_cost": -1, "price_input": 1, "price_output": 1}, "at least 0"),
        ({"jpeg_quality": "high"}, "option 'jpeg_quality' of focus_gpt4o must be an integer or none, got 'high'"),
        ({"max_side": 0.5}, "option 'max_side' of focus_gpt4o must be an integer"),
        ({"max_cost": "much"}, "option 'max_cost' of focus_gpt4o must be a finite number"),
        ({"max_size_in_mb": "x"}, "option 'max_size_in_mb' of focus_gpt4o must be a finite number"),
    ],
)
def test_a_wrong_option_of_the_request_is_refused_before_anything_is_sent(gpt, server, arguments, message):
    from focus_eval.core.errors import InvalidInput

    with pytest.raises(InvalidInput, match=message):
        gpt(**arguments)
    assert not server.bodies
