"""What a paper says of a run: is every key that is cited given, and is what has no reference named?"""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from focus_eval.bench.benchmarks.registry import BENCHMARKS
from focus_eval.bench.lmms.manifests import known_models
from focus_eval.bench.report.methods import methods_texts, read_references, write_methods
from focus_eval.bench.report.run import load_run
from focus_eval.bench.rows.packed import pack_run
from focus_eval.keyframes.encoders.registry import ENCODERS
from focus_eval.keyframes.samplers.registry import SAMPLERS
from tests.bench.report.simulated import Simulation, simulate_run


@pytest.fixture
def folder(tmp_path):
    simulation = Simulation(n_questions=9, samplers=("uniform", "focus", "newcomer"), encoder="blip", seeds=(0, 3))
    run_folder = simulate_run(tmp_path / "made", simulation)
    document = json.loads((run_folder / "run.json").read_text())
    document["starts"][0]["versions"] = {"focus-eval": "0.1.7", "torch": "2.9.1"}
    (run_folder / "run.json").write_text(json.dumps(document))
    return run_folder


def test_every_key_that_is_cited_is_given_once_and_what_lacks_one_is_named(folder):
    methods, references = methods_texts(load_run(folder))
    keys = re.findall(r"^@\w+\{([^,]+),", references, re.MULTILINE)
    assert set(re.findall(r"\[@([^]]+)\]", methods)) == set(keys)
    assert sorted(keys) == ["blip", "focus", "focus_eval", "lmms-eval", "longvideobench"]
    (missing,) = re.findall(r"^No reference on file: (.*)\.$", methods, re.MULTILINE)
    assert missing.split("; ")[0] == "sampler newcomer"
    assert "model zero" in missing
    assert "uniform" not in missing
    assert references.count("{") == references.count("}")


def test_the_paragraph_states_versions_and_settings(folder):
    methods, _ = methods_texts(load_run(folder))
    assert "focus-eval 0.1.7, revision abc1234" in methods
    assert "K = 8; seeds 0, 3." in methods
    assert "frames" not in methods.partition("Answers: ")[2].partition(".")[0]
    assert "longvideobench [@longvideobench] (9 questions)" in methods
    assert "blip [@blip] (1)" in methods
    assert "torch 2.9.1" in methods


def test_every_k_and_what_coarse_pulls_are_drawn_for_are_named(tmp_path):
    run_folder = simulate_run(tmp_path / "made", Simulation(n_questions=3, k=8))
    document = json.loads((run_folder / "run.json").read_text())
    document["matrix"] = {**document.get("matrix", {}), "coarse_seed": "video"}
    (run_folder / "run.json").write_text(json.dumps(document))
    run = load_run(run_folder)
    more = [replace(row, k=16, selection_id=f"{row.selection_id}-16") for row in run.selections]
    methods, _ = methods_texts(replace(run, selections=[*run.selections, *more]))
    assert re.search(r"K = 8, 16; seeds [\d, ]+; coarse_seed video\.", methods)


def test_methods_of_a_packed_run_are_written_alike(folder, tmp_path):
    pack_run(folder, tmp_path / "made.zip")
    written = write_methods(load_run(tmp_path / "made.zip"), tmp_path)
    assert [path.name for path in written] == ["methods.md", "references.bib"]
    assert tuple(path.read_text() for path in written) == methods_texts(load_run(folder))


def test_every_reference_is_that_of_a_plugin():
    papers = {SAMPLERS.fact(name, "paper", "") for name in SAMPLERS.names()}
    names = {*papers, *ENCODERS.names(), *BENCHMARKS.names(), *known_models(), "lmms-eval"}
    references = read_references()
    assert set(references) <= names
    assert all({"title", "author", "year"} <= reference.keys() for reference in references.values())
    arxiv = [reference["arxiv"] for reference in references.values() if "arxiv" in reference]
    assert len(set(arxiv)) == len(arxiv)
    assert all(re.fullmatch(r"\d{4}\.\d{5}", text) for text in arxiv)
