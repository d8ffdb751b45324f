"""A table says where its answers are of several versions or weights."""

from __future__ import annotations

import json

import pytest

from focus_eval.bench.report.layouts import results_table
from focus_eval.bench.report.run import load_run

from .simulated import Simulation, simulate_run

IDENTITY = {"versions": {"transformers": "5.23.0", "lmms-eval": "0.7.3"}, "weights": "m@aaa"}
NEWER = {"versions": {"transformers": "5.24.0", "lmms-eval": "0.7.3"}, "weights": "m@aaa"}


@pytest.fixture
def run_with(tmp_path):
    """A function that makes a run of two models and two samplers with the given descriptions of its cells.

    They are given by (model, sampler).
    """

    def made(identities):
        folder = simulate_run(tmp_path, Simulation(samplers=("uniform", "focus"), models=("llava", "qwen")))
        for file in (folder / "answers").glob("*/*.jsonl"):
            row = json.loads(file.read_text().splitlines()[0])
            sampler = "focus" if "focus" in file.parent.name else "uniform"
            document = {"name": row["cell"], "identity": identities(row["model"], sampler)}
            (file.parent / "cell.json").write_text(json.dumps(document))
        return load_run(folder)

    return made


def test_answers_of_one_version_need_no_note(run_with):
    assert run_with(lambda model, sampler: IDENTITY).mixed_versions == ()


def test_models_that_answered_under_different_versions_are_named(run_with):
    run = run_with(lambda model, sampler: NEWER if model == "qwen" else IDENTITY)
    (note,) = run.mixed_versions
    assert note == (
        "Answers of several versions: llava with lmms-eval 0.7.3, transformers 5.23.0; "
        "qwen with lmms-eval 0.7.3, transformers 5.24.0."
    )
    assert note in results_table(run, "overview").notes


def test_another_commit_of_one_models_weights_is_named(run_with):
    run = run_with(lambda model, sampler: {**IDENTITY, "weights": "m@bbb"} if sampler == "focus" else IDENTITY)
    assert run.mixed_versions == (
        "Answers of several weights of llava: m@aaa, m@bbb.",
        "Answers of several weights of qwen: m@aaa, m@bbb.",
    )
