"""The pauses between two requests to a service."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from email.utils import format_datetime

import httpx
import openai
import pytest
from tenacity import Future, RetryCallState

from focus_eval.keyframes.llms.chat import ChatClient, Spending


@pytest.fixture
def retrying():
    client = ChatClient(openai.OpenAI(api_key="none"), spending=Spending(), attempts=9, backoff_seconds=0.5, secrets=())
    return client._retrying()


def state_after(n_attempts, retrying, headers):
    request = httpx.Request("POST", "http://localhost")
    response = httpx.Response(429, request=request, headers=headers)
    state = RetryCallState(retrying, None, (), {})
    state.attempt_number = n_attempts
    state.outcome = Future(n_attempts)
    state.outcome.set_exception(openai.APIStatusError("slow down", response=response, body=None))
    return state


def test_the_first_pause_is_the_stated_one_and_each_doubles_up_to_a_minute(retrying):
    for n_attempts in range(1, 12):
        pause, plain = retrying.wait(state_after(n_attempts, retrying, {})), 0.5 * 2 ** (n_attempts - 1)
        assert min(plain, 60) <= pause <= min(plain + 0.5, 60)


def test_a_service_may_ask_for_a_longer_pause_and_not_for_a_shorter_one(retrying):
    assert retrying.wait(state_after(1, retrying, {"retry-after": "90"})) == 90
    assert 0.5 <= retrying.wait(state_after(1, retrying, {"retry-after": "0.1"})) <= 1
    assert retrying.wait(state_after(1, retrying, {"retry-after-ms": "2500", "retry-after": "9"})) == 2.5


def test_a_pause_may_be_stated_as_a_date(retrying):
    now = datetime.now(timezone.utc)
    assert (
        88
        < retrying.wait(state_after(1, retrying, {"retry-after": format_datetime(now + timedelta(seconds=90))}))
        <= 90
    )
    for odd in (format_datetime(now - timedelta(hours=1)), "soon", "nan", "inf"):
        assert retrying.wait(state_after(1, retrying, {"retry-after": odd})) <= 1
