"""A cell of which no answer can be read stops the run; its rows can be put aside and asked again."""

from __future__ import annotations

import pytest

from focus_eval.bench.lmms import recording
from focus_eval.bench.matrix.config import load_matrix
from focus_eval.bench.matrix.running import complete_run
from focus_eval.core.errors import RunError, UnknownName
from tests.support.bench.answering import write_answering_matrix
from tests.support.bench.matrix_rows import rows_frame

pytest.importorskip("openvino")

MODEL = {"name": "encoder", "model": "focus_zero_shot", "args": {"answer_encoder": "offline"}, "frames": 2}


@pytest.fixture(scope="module")
def matrix(tmp_path_factory):
    return load_matrix(write_answering_matrix(tmp_path_factory.mktemp("answering"), 3, model=MODEL))


@pytest.mark.parametrize("text", ["", "  \n", "I cannot see any video."])
def test_a_cell_of_which_no_answer_can_be_read_stops_the_run_until_it_is_dropped(
    matrix, tmp_path, monkeypatch, capsys, text
):
    with monkeypatch.context() as patch:
        patch.setattr(recording, "answer_text", lambda output: text)
        with pytest.raises(RunError, match=r"answers/.*: none of 3 answers could be read, .*--drop 'answers/.*'"):
            complete_run(matrix, out=tmp_path / "run")
    with pytest.raises(RunError, match="none of 3 answers"):  # the rows are there: the same command says it again
        complete_run(matrix, out=tmp_path / "run")
    complete_run(matrix.model_copy(update={"allow_unparsed": True}), out=tmp_path / "run")
    run = complete_run(matrix, out=tmp_path / "run", drop=["answers/*encoder*"])
    assert set(rows_frame(run, matrix)["parsed"]) <= set("ABCDE")
    (kept_file,) = run.path.glob("answers/*/rows.parquet.dropped")
    assert f"{kept_file.name}; its questions are asked again" in capsys.readouterr().err


def test_some_answers_that_cannot_be_read_do_not_stop_a_run(matrix, tmp_path, monkeypatch):
    texts = iter(["", "A", ""])
    monkeypatch.setattr(recording, "answer_text", lambda output: next(texts))
    complete_run(matrix, out=tmp_path / "run")


def test_a_part_that_the_matrix_does_not_have_is_not_dropped(matrix, tmp_path):
    with pytest.raises(UnknownName, match=r"unknown part 'answers/nobody'.*answers/made_up-encoder"):
        complete_run(matrix, out=tmp_path / "run", drop=["answers/nobody"])
    assert not (tmp_path / "run").exists()
