"""What a selection might be worth: made-up answers with a known rule, and the real files both ways."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from focus_eval.core.errors import InvalidInput
from focus_eval.report.estimate import FOLDS, _left_out, calibration_error, expected_share, fit_answers


def lines(seed=0, *, in_view=0.5, effect=2.0, k=8, n_videos=150):
    """Three questions per video, right with logit `effect * (in view - 1/2)`, whatever category and length."""
    rng = np.random.default_rng(seed)
    n = 3 * n_videos
    view = (rng.random(n) < in_view).astype(float)
    right = rng.random(n) < 1 / (1 + np.exp(-effect * (view - 0.5)))
    return pd.DataFrame(
        {
            "score": right.astype(float),
            "video": [f"v{number // 3}" for number in range(n)],
            "recall@1": view * (rng.random(n) < 0.5),
            "recall@2": view,
            "recall@5": view,
            "duration": rng.uniform(180, 3600, n),
            "category": rng.choice(["S2E", "T2O", "SSS"], n),
            "k": k,
        }
    )


def test_a_question_is_judged_by_a_fit_that_has_not_seen_its_fold():
    rng = np.random.default_rng(0)
    columns, folds = rng.normal(size=(200, 3)), np.arange(200.0) % FOLDS
    scores = (rng.random(200) < 0.5).astype(float)
    changed = np.where(folds == 3, 1 - scores, scores)
    before, after = (_left_out(columns, values, folds, 0.01) for values in (scores, changed))
    assert before[folds == 3].tolist() == after[folds == 3].tolist()
    assert (before[folds != 3] != after[folds != 3]).all()


def test_more_evidence_in_view_is_expected_to_give_what_it_gives():
    answers, target = lines(0), lines(1, in_view=0.9)
    fitted, share = expected_share(answers, target, draws=40)
    truth = 0.9 / (1 + np.exp(-1.0)) + 0.1 / (1 + np.exp(1.0))
    assert abs(share.value - truth) < 0.05
    assert share.low < truth < share.high
    assert answers["score"].mean() + 0.1 < share.value
    assert fitted.brier < fitted.brier_of_mean
    assert fitted.calibration_error < 0.1


def test_without_an_effect_nothing_is_expected_of_more_evidence():
    answers, target = lines(2, effect=0.0), lines(3, in_view=0.95)
    _, share = expected_share(answers, target, draws=20)
    assert abs(share.value - answers["score"].mean()) < 0.06


def test_the_fit_of_the_answers_own_questions_gives_their_mean_and_is_the_same_each_time():
    answers = lines(4)
    first, again = fit_answers(answers), fit_answers(answers.sample(frac=1, random_state=1))
    # The intercept is not penalised, so the fitted probabilities sum to the right answers.
    assert first.probabilities(answers).mean() == pytest.approx(answers["score"].mean(), abs=1e-4)
    assert np.allclose(first.coefficients, again.coefficients, atol=1e-4)
    assert first.penalty == again.penalty


def test_a_category_nobody_answered_is_estimated_without_one():
    target = lines(5).assign(category="new")
    assert np.isfinite(fit_answers(lines(4)).probabilities(target)).all()


def test_calibration_error_is_the_distance_in_ten_bins():
    estimated = np.full(100, 0.5)
    assert calibration_error(estimated, np.tile([0.0, 1.0], 50)) == pytest.approx(0.0)
    assert calibration_error(estimated, np.ones(100)) == pytest.approx(0.5)


def test_partial_credit_and_few_videos_are_refused():
    with pytest.raises(InvalidInput, match="right or wrong"):
        fit_answers(lines().assign(score=0.5))
    with pytest.raises(InvalidInput, match="at least 10 videos, got 4"):
        fit_answers(lines(n_videos=4))
