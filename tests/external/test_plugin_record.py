"""audit, import and evidence on a record of the plugin, chat and simple requests of a service."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from focus_eval.cli import app
from focus_eval.external.imports.lmms_logs import LmmsLog
from tests.support.bench.api_forms import Combination, Trial


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    """A folder with a record of chat and one of simple requests, four questions each."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENAI_API_KEY", "any")
        patch.setenv("TQDM_DISABLE", "1")
        trial = Trial(tmp_path_factory.mktemp("trial"), n_questions=4, n_frames=3)
        trial.run(Combination(kind="chat", frames="png"))
        trial.run(Combination(kind="simple", frames="jpeg"))
    return trial.folder / "record"


@pytest.mark.parametrize("kind", ["chat_png", "simple_jpeg"])
def test_audit_reads_the_cells_of_a_record_folder_as_runs(record, kind):
    (cell,) = (record / kind).iterdir()
    outputs = [CliRunner().invoke(app, ["audit", str(path)]).output for path in (cell, record / kind)]
    assert outputs[0] == outputs[1]
    assert "in 1 run with answers and no selections" in outputs[0]
    assert "not read" not in outputs[0]


def test_evidence_of_a_record_says_what_its_questions_lack(record):
    (cell,) = (record / "chat_png").iterdir()
    result = CliRunner().invoke(app, ["evidence", str(cell)])
    assert "no answer to a question with annotated evidence" in str(result.exception)


def test_the_frames_of_the_plugin_are_the_k_of_its_log(tmp_path):
    log = LmmsLog(
        run="x",
        stamp="x",
        task="t",
        samples=tmp_path / "x_samples_t.jsonl",
        model_args={"sampler": "focus", "frames": "4"},
    )
    assert log.frames_asked(0) == 4
