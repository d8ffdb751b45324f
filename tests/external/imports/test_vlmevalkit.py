"""VLMEvalKit's predictions become a run: tables as its code writes them, with and without scores."""

from __future__ import annotations

import pandas as pd
import pytest
from typer.testing import CliRunner

from focus_eval.bench.report.run import load_run
from focus_eval.cli import app
from focus_eval.core.errors import InvalidInput
from focus_eval.external.imports.vlmevalkit import predictions_log

LETTERED = {"A": "red", "B": "None", "C": "green", "D": "3"}
OPTIONS = [*LETTERED.values()]
REPLIES = ["B", "The answer is C.", "(A) red", "", "D. 3"]


def table(*, scores=(1, 0, 0, -1, 0)):
    """A table of multiple choice, with the columns A to D and `hit`."""
    rows = [
        {"index": at, "video": f"v{at // 2}", "question": f"Which colour has scene {at}?", **LETTERED,
         "answer": "B", "category": "colour", "prediction": reply}
        for at, reply in enumerate(REPLIES)
    ]  # fmt: skip
    return pd.DataFrame(rows) if scores is None else pd.DataFrame(rows).assign(hit=list(scores))


def video_mme():
    """A table of its class VideoMME: options as Python writes a list, `score`, the path of a video."""
    rows = [
        {"index": at, "video": f"v{at}", "video_path": f"./video/v{at}.mp4", "duration": "short", "domain": "Film",
         "candidates": [f"{letter}. {text}" for letter, text in LETTERED.items()], "task_type": "Counting",
         "question": f"How many {at}?", "answer": "B", "prediction": "B", "score": 1.0}
        for at in range(3)
    ]  # fmt: skip
    return pd.DataFrame(rows)


def write(frame, path):
    if path.suffix == ".xlsx":
        frame.to_excel(path, index=False, engine="openpyxl")
    else:
        frame.to_csv(path, sep="\t", index=False)
    return path


def imported(path, out, *options):
    result = CliRunner().invoke(app, ["import", "vlmevalkit", str(path), "--out", str(out), *options])
    assert result.exit_code == 0, result.output
    return load_run(out), result.output


@pytest.mark.parametrize("suffix", [".xlsx", ".tsv"])
def test_a_scored_table_keeps_its_scores_and_its_options(tmp_path, suffix):
    path = write(table(), tmp_path / f"llava_qwen2_7b_MyMCQ_8frame_score{suffix}")
    run, output = imported(path, tmp_path / "run")
    answers = sorted(run.answers, key=lambda row: row.question_id)
    assert [row.score for row in answers] == [1, 0, 0, 0, 0]
    assert [row.answer for row in answers] == REPLIES
    assert {(row.model, row.frames_asked, row.correct_answer) for row in answers} == {("llava_qwen2_7b", 8, "B")}
    assert answers[3].parsed is None  # -1: the judge could not read it
    assert all(list(row.option_texts) == OPTIONS for row in run.selections)
    assert "K = 8" in output
    assert "hit, mean 0.20000" in output
    assert all(row.keyframes is None for row in run.selections)


def test_a_table_without_scores_is_scored_from_its_options_and_says_so(tmp_path):
    path = write(table(scores=None), tmp_path / "GPT4o_MyMCQ_8frame.xlsx")
    run, output = imported(path, tmp_path / "run")
    assert [row.score for row in sorted(run.answers, key=lambda row: row.question_id)] == [1, 0, 0, 0, 0]
    assert "scored here from the annotation, strictly" in " ".join(output.split())


def test_the_data_set_of_videos_is_read_as_its_class_writes_it(tmp_path):
    path = write(video_mme(), tmp_path / "Qwen2.5-VL-7B-Instruct_Video-MME_1fps_score.tsv")
    log = predictions_log(path)
    assert (log.model, log.task) == ("Qwen2.5-VL-7B-Instruct", "Video-MME")
    record = next(log.records())
    assert record.doc["candidates"] == ["A. red", "B. None", "C. green", "D. 3"]
    assert record.doc["video_path"] == "v0.mp4"
    run, _ = imported(path, tmp_path / "run", "-o", "k=16")
    assert {row.frames_asked for row in run.answers} == {16}


def test_two_tables_are_paired_by_content_whatever_their_index(tmp_path):
    write(video_mme(), tmp_path / "a_Video-MME_8frame.xlsx")
    second_table = video_mme().assign(score=[1, 0, 0], prediction=["B", "A", "A"])
    write(second_table.iloc[::-1].assign(index=range(3)), tmp_path / "b_Video-MME_8frame.tsv")
    result = CliRunner().invoke(
        app, ["compare", str(tmp_path / "a_Video-MME_8frame.xlsx"), str(tmp_path / "b_Video-MME_8frame.tsv")]
    )
    assert result.exit_code == 0, result.output
    assert "3 questions" in " ".join(result.output.split())


@pytest.mark.parametrize(
    ("frame", "name", "message"),
    [
        (pd.DataFrame([{"index": 1, "answer": "A"}]), "m_d_8frame.tsv", "no column 'prediction'"),
        (table(scores=list("10x00")), "m_d_8frame.tsv", "m_d_8frame.tsv:4 (index 2): hit is 'x', not a number"),
        (table(), "m_d_1fps.tsv", "K unknown"),
        (table().iloc[:0], "m_d_8frame.xlsx", "no rows"),
    ],
)
def test_what_cannot_be_read_is_refused_with_file_and_fix(tmp_path, frame, name, message):
    path = write(frame, tmp_path / name)
    result = CliRunner().invoke(app, ["import", "vlmevalkit", str(path), "--out", str(tmp_path / "run")])
    assert result.exit_code == 1
    assert message in str(result.exception)
    assert not (tmp_path / "run").exists()


def test_a_file_that_is_no_sheet_is_refused(tmp_path):
    (tmp_path / "m_d_8frame.xlsx").write_bytes(b"not a zip")
    with pytest.raises(InvalidInput, match="no table"):
        predictions_log(tmp_path / "m_d_8frame.xlsx")


def test_audit_reads_the_tables_of_a_folder_and_names_those_of_another_kind(tmp_path):
    write(table(), tmp_path / "m_MyMCQ_8frame_score.tsv")
    (tmp_path / "other.tsv").write_text("a\tb\n1\t2\n")
    result = CliRunner().invoke(app, ["audit", str(tmp_path)])
    output = " ".join(result.output.split())
    assert "other.tsv: not checked" in output, (output, result.exception)
    assert "answers not parsed: 1 of 5" in output, output
