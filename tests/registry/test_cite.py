"""What a paper says of a run: is every key that is cited given, and is what has no reference named?"""

from __future__ import annotations

import json
import re

import pytest

from focus_eval.benchmarks.registry import BENCHMARKS
from focus_eval.encoders.registry import ENCODERS
from focus_eval.lmms.manifests import known_models
from focus_eval.registry.cards import read_registry
from focus_eval.registry.cite import cited, read_references
from focus_eval.report.run import load_run
from focus_eval.rows.packed import pack_run
from tests.report.simulated import Simulation, simulate_run


@pytest.fixture
def folder(tmp_path):
    what = Simulation(n_questions=9, samplers=("uniform", "focus", "newcomer"), encoder="blip", seeds=(0, 3))
    made = simulate_run(tmp_path / "made", what)
    said = json.loads((made / "run.json").read_text())
    said["against"] = ["64 frames where the paper has 32_000"]
    said["starts"][0]["versions"] = {"focus-eval": "0.1.7", "torch": "2.9.1"}
    (made / "run.json").write_text(json.dumps(said))
    return made


def test_every_key_that_is_cited_is_given_once_and_what_lacks_one_is_named(folder):
    text = cited(load_run(folder), read_registry())
    keys = re.findall(r"^@\w+\{([^,]+),", text, re.MULTILINE)
    assert set(re.findall(r"\\cite\{([^}]+)\}", text)) == set(keys)
    assert sorted(keys) == ["blip", "focus", "focus_eval", "lmms-eval", "longvideobench"]
    assert "% no reference on file: sampler newcomer" in text
    assert "% no reference on file: model zero" in text
    assert "uniform" not in re.findall(r"no reference on file: (.*)", text)
    assert text.count("{") == text.count("}")


def test_the_paragraph_states_versions_settings_and_deviations(folder):
    paragraph = cited(load_run(folder), read_registry()).partition("\\begin{table*}")[0]
    assert "focus-eval 0.1.7, revision abc1234" in paragraph
    assert "K = 8; seeds 0, 3." in paragraph
    assert "longvideobench~\\cite{longvideobench} (9 questions)" in paragraph
    assert "blip~\\cite{blip} (1)" in paragraph
    assert "torch 2.9.1" in paragraph
    assert "Asked otherwise than in the paper: 64 frames where the paper has 32\\_000." in paragraph


def test_a_packed_run_is_cited_alike(folder, tmp_path):
    pack_run(folder, tmp_path / "made.zip")
    cards = read_registry()
    assert cited(load_run(tmp_path / "made.zip"), cards) == cited(load_run(folder), cards)


def test_every_reference_is_that_of_a_card_or_of_a_plugin():
    papers = {card.paper for card in read_registry().values()}
    names = {*papers, *ENCODERS.names(), *BENCHMARKS.names(), *known_models(), "lmms-eval"}
    references = read_references()
    assert set(references) <= names
    assert all({"title", "author", "year"} <= about.keys() for about in references.values())
    arxiv = [about["arxiv"] for about in references.values() if "arxiv" in about]
    assert len(set(arxiv)) == len(arxiv)
    assert all(re.fullmatch(r"\d{4}\.\d{5}", text) for text in arxiv)
