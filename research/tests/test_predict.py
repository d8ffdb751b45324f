"""Accuracy of an unseen selection: exact where it must be, refused outside the logs; the error of the public logs."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
from focus_eval_research.predict import (
    common_questions,
    expected_scores,
    named_families,
    predict,
    prediction_errors,
)

from focus_eval.core.errors import InvalidInput
from tests.external.test_within import annotated, called, imported, long, published  # noqa: F401


def test_leaving_a_family_out_is_the_error_that_counts(published, long):
    errors = {error.measures: error for error in prediction_errors(long)}
    percent = {
        measures: {family: round(100 * value, 1) for family, value in error.by_family.items()}
        for measures, error in errors.items()
    }
    assert percent["recall@2",] == {"uniform": 3.5, "AKS": 0.5, "scenes": 2.1}
    assert percent["recall@2", "near_frames"] == {"uniform": 1.7, "AKS": 1.1, "scenes": 0.5}
    assert percent["nearness",] == {"uniform": 5.6, "AKS": 2.1, "scenes": 3.8}
    assert percent["nearness", "near_frames"] == {"uniform": 2.7, "AKS": 0.7, "scenes": 0.5}
    assert prediction_errors(long)[0].measures == ("recall@2", "near_frames")
    assert round(100 * errors["recall@2",].one_run, 2) == 0.84
    every_length = prediction_errors(published)[0]
    assert [round(100 * value, 1) for value in every_length.by_family.values()] == [1.3, 0.6, 0.5]


def lines_of(families, *, k=32):
    """Answers to 40 questions: a family's runs see a share of the evidence, and every share is worth 20 points."""
    rng = np.random.default_rng(4)
    level = rng.uniform(0.2, 0.7, 40)
    answers = []
    for family, shares in families.items():
        for number, share in enumerate(shares):
            in_view = (rng.random(40) < share).astype(float)
            for question in range(40):
                answers.append(
                    {
                        "question_id": f"q{question}",
                        "run": f"{family}{number}",
                        "family": family,
                        "k": k,
                        "score": level[question] + 0.2 * in_view[question],
                        "recall@2": in_view[question],
                        "near_frames": in_view[question],
                        "nearness": in_view[question],
                    }
                )
    return pd.DataFrame(answers)


def test_a_prediction_is_exact_where_the_score_follows_the_measure():
    answers = lines_of({"a": [0.2, 0.3], "b": [0.5], "c": [0.9]})
    error = prediction_errors(answers)[0]
    assert error.root_mean_square == pytest.approx(0, abs=1e-9)
    selection = answers[answers["run"] == "b0"]
    prediction = predict(answers, selection, error)
    assert prediction.value == pytest.approx(selection["score"].mean())
    assert (prediction.questions, prediction.outside) == (40, "")
    assert expected_scores(answers, selection, ["recall@2"]) == pytest.approx(selection["score"].to_numpy())


def test_a_selection_outside_what_the_logs_cover_gets_no_figure():
    answers = lines_of({"a": [0.2, 0.3], "b": [0.4], "c": [0.5]})
    error = prediction_errors(answers)[0]
    selection = answers[answers["run"] == "b0"]
    assert predict(answers, selection.assign(k=64), error).outside == "K = 64, the logs have 32"
    extreme = selection.assign(**{"recall@2": 1.0, "nearness": 1.0, "near_frames": 1.0})
    assert predict(answers, extreme, error).value is None
    assert "is 100.0 %, the logs have" in predict(answers, extreme, error).outside
    assert predict(answers, selection.assign(question_id="z"), error).outside == "no question in common with the logs"


def test_an_error_needs_three_families_and_a_pattern_that_fits():
    answers = lines_of({"a": [0.2, 0.3], "b": [0.4]})
    with pytest.raises(InvalidInput, match="2 families of runs"):
        prediction_errors(answers)
    assert set(named_families(answers, {"all": "[ab]*"})["family"]) == {"all"}
    with pytest.raises(InvalidInput, match="fits no run"):
        named_families(answers, {"x": "z*"})


@pytest.mark.parametrize("n_families", [3, 6])
def test_the_interval_of_a_prediction_covers_a_family_that_differs_like_those_of_the_logs(n_families):
    rng, repeats, covered = np.random.default_rng(6), 200, 0
    logged = lines_of({f"f{number}": [0.3, 0.6] for number in range(n_families)})
    logged = logged.assign(**{name: rng.random(len(logged)) for name in ("recall@2", "near_frames", "nearness")})
    names = list(dict.fromkeys(logged["family"]))
    for _ in range(repeats):
        shift = dict(zip(names, 0.03 * rng.normal(size=n_families), strict=True))
        answers = logged.assign(score=0.5 + logged["family"].map(shift) + 0.1 * logged["recall@2"])
        selection = answers[answers["run"] == "f00"]
        accuracy = 0.5 + 0.03 * rng.normal() + 0.1 * selection["recall@2"].mean()
        prediction = predict(answers, selection, prediction_errors(answers)[0])
        covered += prediction.low <= accuracy <= prediction.high
    # t with 20 more degrees of freedom covers 84 and 90 %; with one more, 90 and 92.5.
    assert 0.925 < covered / repeats < 0.98


def test_a_prediction_has_no_interval_without_three_named_families():
    answers = lines_of({"a": [0.2, 0.3], "b": [0.5]})
    selection = answers[answers["run"] == "b0"]
    prediction = predict(answers, selection, None)
    assert (prediction.value, prediction.low) == (pytest.approx(selection["score"].mean()), None)


def test_only_questions_of_every_run_enter_a_prediction():
    answers = lines_of({"a": [0.2], "b": [0.4]})
    lacking = answers[~((answers["run"] == "a0") & (answers["question_id"] == "q3"))]
    assert set(common_questions(lacking)["question_id"]) == {f"q{i}" for i in range(40)} - {"q3"}


def test_predict_gives_an_interval_and_refuses_what_the_logs_do_not_cover(shared, imported):
    logs = [item for folder in imported for item in ("--logs", folder)]
    arguments = [*logs, *annotated(shared), "--min-seconds", "180"]
    families = [word for name in ("uniform", "aks", "scenes") for word in ("--family", f"{name}=*{name}*")]
    file = shared("data/field/selections/aks_lvb_blip_32_yunseok.json.gz")
    output = called("predict", f"BLIP={file}", *arguments, *families)
    assert re.search(r"BLIP, K = 32 \d\d\.\d \[\d\d\.\d, \d\d\.\d\] 976", output)
    assert "rests on three families: take it as a convention" in output
    tspo = shared("data/field/selections/tspo_longvideobench_64.json.gz")
    output = called("predict", f"TSPO={tspo}", *arguments, exit_code=1)
    assert "K = 64, the logs have 32" in output
    output = called("predict", f"BLIP={file}", *arguments)
    assert "nothing says which runs are variants of one method" in output
    assert re.search(r"BLIP, K = 32 \d\d\.\d 976", output)
    output = called("predict", f"BLIP={file}", *arguments, "--family", "all=*")
    assert "no interval, because one family of runs cannot show" in output
    assert re.search(r"BLIP, K = 32 \d\d\.\d 976", output)
