"""Figures of one configuration: its mean over questions or task types, and its spread over seeds."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from focus_eval.bench.report.measures import accuracy_figure, reported_figure
from focus_eval.bench.report.recall_layouts import demo_tables
from focus_eval.bench.report.run import load_run
from tests.bench.report.simulated import Simulation, simulate_run


def seeded(scores_by_seed, types):
    """Answers to the same questions under several seeds, one video each."""
    lines = [
        {"benchmark": "b", "question_id": f"q{at}", "video": f"v{at}", "type": kind, "seed": seed, "score": score}
        for seed, scores in enumerate(scores_by_seed)
        for at, (kind, score) in enumerate(zip(types, scores, strict=True))
    ]
    return pd.DataFrame(lines).assign(is_answered=True)


def test_the_spread_over_seeds_is_of_the_same_mean_as_the_figure():
    # Type b has one question of four: under the second seed it alone is right.
    part = seeded([[1.0, 1.0, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0]], ["a", "a", "a", "b"])
    over_questions, over_types = accuracy_figure(part), accuracy_figure(part, over_types=True)
    assert over_questions.spread == pytest.approx(np.std([75, 25], ddof=1))
    assert over_types.spread == pytest.approx(0.0)
    assert (over_questions.ours, over_types.ours) == (pytest.approx(50), pytest.approx(50))
    assert reported_figure(part) == over_types


def test_without_a_question_of_which_only_some_samplers_found_the_evidence_the_demo_states_no_effect(tmp_path):
    for samplers, has_effect in ((("uniform", "topk"), True), (("uniform",), False)):
        folder = simulate_run(tmp_path / "-".join(samplers), Simulation(samplers=samplers))
        lead, *_ = demo_tables(load_run(folder), "uniform")
        assert any("some samplers found the evidence" in note for note in lead.notes) == has_effect
