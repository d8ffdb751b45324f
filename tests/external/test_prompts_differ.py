"""Two runs that asked a model otherwise are told so, field by field."""

from __future__ import annotations

from types import SimpleNamespace

import pandas as pd

from focus_eval.bench.report.comparisons import _prompt_differences

SENT = {
    "question_id": "q1",
    "text": "<s>what?",
    "dtype": "bfloat16",
    "generation": {"temperature": 0, "max_new_tokens": 32},
}
PART = pd.DataFrame({"cell": ["c"], "model": ["m"]})


def lines(**changes):
    a, b = (SimpleNamespace(name=name, prompts={"c": sent}) for name, sent in (("a", SENT), ("b", {**SENT, **changes})))
    return list(_prompt_differences(a, PART, b, PART))


def test_equal_records_say_nothing_and_a_missing_one_neither():
    assert lines() == []
    assert (
        list(
            _prompt_differences(
                SimpleNamespace(name="a", prompts={}), PART, SimpleNamespace(name="b", prompts={}), PART
            )
        )
        == []
    )


def test_what_differs_is_named_with_both_values():
    assert lines(dtype="float16") == ["m got different requests, dtype: a bfloat16; b float16."]
    (line,) = lines(generation={"temperature": 0, "max_new_tokens": 16})
    assert line == "m got different requests, generation: a {'max_new_tokens': 32}; b {'max_new_tokens': 16}."


def test_texts_are_compared_for_one_question_only():
    assert lines(question_id="q2", text="other") == []
    assert lines(text="<s>when?") == ["m got different requests, text: a '<s>what?'; b '<s>when?'."]
