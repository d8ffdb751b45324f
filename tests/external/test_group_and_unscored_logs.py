"""Logs whose official score is of groups, and logs without scores: imported, audited and reported."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from focus_eval.bench.report.measures import group_score_table
from focus_eval.bench.report.run import load_run
from focus_eval.cli import app
from tests.external.imports.test_lmms_logs import write_log

OPTIONS = ["A. red", "B. blue", "C. green", "D. black"]
RIGHT = {("001", 1), ("001", 2), ("001", 3), ("002", 1), ("002", 3)}


def document(video, number):
    return {
        "video_id": video, "question_id": f"{video}-{number}", "question": f"What is {number} in {video}?",
        "options": "\n".join(OPTIONS), "answer": "B", "level": 1,
        "group_type": "logic" if video == "001" else "relevance", "group_structure": "[1, [2, 3], 4]",
    }  # fmt: skip


def log_lines(*, has_scores=True):
    lines = []
    for at, (video, number) in enumerate((video, number) for video in ("001", "002") for number in (1, 2, 3, 4)):
        reply = "B" if (video, number) in RIGHT else "C"
        entry = {"pred_answer": reply, "answer": "B", "score": int(reply == "B")}
        names = ("videomme_v2_overall_score", "videomme_v2_overall_acc")
        scores = {name: {**document(video, number), **entry} for name in names} if has_scores else {"bypass": None}
        line = {
            "doc_id": at,
            "doc": document(video, number),
            "target": "B",
            "filtered_resps": [reply],
            "input": "what?",
        }
        lines.append({**line, **scores})
    return lines


def results(score, accuracy):
    figures = {"videomme_v2_overall_score,none": score, "videomme_v2_overall_acc,none": accuracy}
    return {"videomme_v2": {"alias": "videomme_v2", **figures}}


def run_command(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


# Three of four on the levels 1, 3, 3, 5 are 7/12; two of four are (1/2)^2.
GROUP_SCORE = 100 * (7 / 12 + 1 / 4) / 2


def test_a_sound_log_of_groups_has_no_fault_and_a_wrong_figure_is_one(tmp_path):
    write_log(tmp_path / "sound", log_lines(), task="videomme_v2", results=results(GROUP_SCORE, 62.5))
    output = run_command("audit", tmp_path / "sound").output
    assert "fault:" not in output, output
    write_log(tmp_path / "wrong", log_lines(), task="videomme_v2", results=results(50.0, 62.5))
    output = " ".join(run_command("audit", tmp_path / "wrong").output.split())
    assert "a score of groups that does not follow from the rows" in output
    assert f"stated 50.00000, the rows give {GROUP_SCORE:.5f}" in output


def test_a_report_has_the_accuracy_of_questions_and_the_score_of_groups(tmp_path):
    write_log(tmp_path / "log", log_lines(), task="videomme_v2", results=results(GROUP_SCORE, 62.5))
    result = run_command("import", "lmms", tmp_path / "log", "--out", tmp_path / "run")
    assert result.exit_code == 0, result.output
    run = load_run(tmp_path / "run")
    assert set(run.answer_frame["metric"]) == {"videomme_v2_overall_acc"}
    assert run.answer_frame["score"].mean() == pytest.approx(0.625)
    (row,) = group_score_table(run).rows
    score, n_groups = row.figures
    assert (score.ours, n_groups.ours) == (pytest.approx(GROUP_SCORE), 2)
    run.answer_frame.loc[0, "score"] = float("nan")  # as where the split hides the answer
    table = group_score_table(run)
    assert table.rows[0].figures[1].ours == 1
    assert "Groups with a hidden answer, left out: 1 at most in a line." in table.notes


def test_a_log_without_scores_is_scored_from_its_options_and_says_so(tmp_path):
    write_log(tmp_path / "log", log_lines(has_scores=False), task="videomme_v2", results={"videomme_v2": {}})
    output = run_command("audit", tmp_path / "log").output
    assert "answers scored from the annotation: 8 of 8" in " ".join(output.split())
    assert "no findings" not in output
    result = run_command("import", "lmms", tmp_path / "log", "--out", tmp_path / "run")
    assert result.exit_code == 0, result.output
    assert "scored here from the annotation, strictly, mean 0.62500" in " ".join(result.output.split())
    assert load_run(tmp_path / "run").answer_frame["score"].sum() == len(RIGHT)


def test_audit_names_answers_that_nothing_can_judge(tmp_path):
    lines = [{**line, "doc": {"video_id": "v"}} for line in log_lines(has_scores=False)]
    write_log(tmp_path / "log", lines, task="unknown_task", results={"unknown_task": {}})
    output = " ".join(run_command("audit", tmp_path / "log").output.split())
    assert "answers without a score: 8 of 8" in output
