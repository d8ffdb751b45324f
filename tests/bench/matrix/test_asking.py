"""A matrix whose sampler asks a model: priced by the plan, refused without a key, its rows kept with what they cost."""

from __future__ import annotations

import json

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from focus_eval.bench.lmms.arguments import AdapterOptions, make_chooser
from focus_eval.bench.matrix.cells import selection_specs
from focus_eval.bench.matrix.config import load_matrix
from focus_eval.bench.matrix.folder import RunFolder
from focus_eval.bench.matrix.plan import make_plan
from focus_eval.bench.matrix.preflight import check_all
from focus_eval.bench.report.measures import llm_notes
from focus_eval.bench.report.run import load_run
from focus_eval.cli import app
from focus_eval.core.errors import InvalidInput
from focus_eval.keyframes.video.clip_writer import ClipWriter
from tests.support.bench.matrix_rows import run_matrix
from tests.support.keyframes.chat_server import ChatServer

from .conftest import lvb_question

LLM = "chat:model=tiny;price_input=10;price_output=20;retry_backoff_s=0.01"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """One video with two questions, of which the model answers one with nonsense, and the matrix that asks them."""
    matrix_folder = tmp_path_factory.mktemp("asking")
    with ClipWriter(matrix_folder / "v.mp4", width=64, height=48, fps=8, gop=24) as writer:
        for frame in range(40):
            writer.write(np.full((48, 64, 3), 6 * frame, dtype=np.uint8))
    questions = [lvb_question(part, "v", 5, answer=part) for part in range(2)]
    questions[1]["question"] = "Nonsense?"
    (matrix_folder / "questions.json").write_text(json.dumps(questions))
    benchmark = {
        "name": "b",
        "benchmark": "longvideobench",
        "annotations": str(matrix_folder / "questions.json"),
        "videos": str(matrix_folder),
    }
    samplers = [{"sampler": "vlm_topk", "options": {"llm": LLM, "frames": 8}}, "uniform"]
    document = {"name": "asking", "benchmarks": [benchmark], "samplers": samplers, "k": [2], "max_error_share": 1}
    (matrix_folder / "matrix.yaml").write_text(yaml.safe_dump(document))
    return matrix_folder


@pytest.fixture
def server(monkeypatch):
    """A service that answers "Perhaps" to questions with "Nonsense" in them, and else "Yes" at odds of 6 to 4."""

    def reply_to(body):
        is_nonsense = "Nonsense" in str(body["messages"][0]["content"][-1])
        return ("Perhaps", {"Perhaps": 1.0}) if is_nonsense else ("Yes", {"Yes": 0.6, "No": 0.4})

    with ChatServer(reply_to=reply_to) as chat_server:
        monkeypatch.setenv("OPENAI_API_KEY", "any")
        monkeypatch.setenv("OPENAI_BASE_URL", chat_server.url)
        yield chat_server


def test_a_run_without_a_key_or_with_a_dead_service_is_refused_before_work(folder, monkeypatch, tmp_path):
    matrix = load_matrix(folder / "matrix.yaml")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    (missing,) = check_all([(matrix, tmp_path / "run")]).missing
    assert "needs OPENAI_API_KEY" in str(missing)
    monkeypatch.setenv("OPENAI_API_KEY", "any")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    (missing,) = check_all([(matrix, tmp_path / "run")]).missing
    assert "http://127.0.0.1:9/v1/ cannot be reached" in str(missing)


def test_the_plan_prices_it_and_the_run_costs_that_with_an_error_where_the_model_answers_nonsense(
    folder, server, tmp_path, monkeypatch
):
    matrix = load_matrix(folder / "matrix.yaml")
    asking = next(entry for entry in make_plan(matrix).selections if entry.spec.sampler.name == "vlm_topk")
    assert (asking.model_usage["calls"], asking.model_usage["images"]) == (16, 16)
    monkeypatch.setenv("COLUMNS", "300")
    plan_text = CliRunner().invoke(app, ["plan", str(folder / "matrix.yaml")]).output
    assert "16 calls with 16 pictures" in plan_text
    assert "dollars at most" in plan_text

    run_matrix(matrix, out=tmp_path / "run")
    spec = next(spec for spec in selection_specs(matrix) if spec.sampler.name == "vlm_topk")
    good, bad = sorted(RunFolder(tmp_path / "run").selections(spec), key=lambda row: row.error or "")
    assert good.asked["calls"] == 8
    assert good.asked["dollars"] == pytest.approx(8 * (100 * 10 + 20) / 1e6)
    assert len(good.looked_frames) == 8
    assert (good.llm, good.llm_revision) == (spec.identity["llm"], spec.identity["llm_revision"])
    assert "first word is neither: 'Perhaps'" in bad.error
    assert bad.keyframes == []
    assert (bad.asked["calls"], bad.asked["input"]) == (8, 800)
    (note, looks) = llm_notes(load_run(tmp_path / "run").selection_frame)
    price_line = "asked chat 16 times about 16 pictures, 1,616 tokens, 0.02 dollars in 2 questions; not in the forward"
    assert note.startswith(f"vlm_topk llm=chat:model=tiny frames=8 {price_line}")
    assert "read 8 pictures" in looks


def test_model_args_name_the_model_too(server, tmp_path):
    options = AdapterOptions(sampler="vlm_topk", sampler_options={"llm": LLM}, record=str(tmp_path))
    chooser = make_chooser(options, frames=2)
    assert chooser.identity["llm"] == "chat"
    assert chooser.identity["options"]["llm"] == "chat"
    with pytest.raises(InvalidInput, match="asks a model: name it with llm="):
        make_chooser(AdapterOptions(sampler="vlm_topk", record=str(tmp_path)), frames=2)
