"""Logs whose official score is of groups, and logs without scores: imported, audited and reported."""

from __future__ import annotations

import json

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
        "group_type": "relevance" if video == "002" else "logic", "group_structure": "[1, [2, 3], 4]",
    }  # fmt: skip


def log_lines(*, has_scores=True, right=RIGHT, videos=("001", "002")):
    lines = []
    for at, (video, number) in enumerate((video, number) for video in videos for number in (1, 2, 3, 4)):
        reply = "B" if (video, number) in right else "C"
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


VIDEOS = [f"{at:03}" for at in range(1, 14)]


def write_group_log(folder, *, numbers_of):
    """A log of 13 groups, 12 of them logic, with the right question numbers of each video."""
    right = {(video, number) for at, video in enumerate(VIDEOS) for number in numbers_of(at)}
    scores = results(0.0, 0.0)
    write_log(folder, log_lines(right=right, videos=VIDEOS), task="videomme_v2", results=scores)
    return folder


# Levels count up to the first with a wrong answer: (1 + 3 + 3) / 12 against 0, with three of four right in both.
FIRST_THREE, LAST_THREE = (1, 2, 3), (2, 3, 4)


def compared_tables(a, b):
    result = run_command("compare", a, b, "--margin", "3", "--json")
    assert result.exit_code == 0, result.output
    compared = json.loads(result.stdout)
    return [
        {
            column: figure["text"]
            for column, figure in zip(table["columns"], table["rows"][0]["figures"], strict=True)
        } | {"notes": " ".join(table["notes"])}
        for table in (compared["table"], compared["group_table"])
    ]  # fmt: skip


def test_compare_finds_a_difference_of_group_scores_where_as_many_answers_are_right(tmp_path):
    a = write_group_log(tmp_path / "a", numbers_of=lambda at: LAST_THREE)
    b = write_group_log(tmp_path / "b", numbers_of=lambda at: FIRST_THREE)
    accuracy, groups = compared_tables(a, b)
    assert (accuracy["Questions"], groups["Groups"], groups["Better A / B"]) == ("52", "13", "0 / 12")
    assert accuracy["B − A (points)"].startswith("±0.0")
    # Twelve groups gain, the one of the other kind is equal: two of 2 ** 12 sign assignments are as far from 0.
    assert groups["B − A (points)"].startswith(f"+{100 * 7 / 12 * 12 / 13:.1f}")
    assert "↑" in groups["B − A (points)"]
    assert (groups["p"], groups["p (Holm)"]) == ("<0.001", "<0.001")
    assert "groups on which that sampler has the higher score" in groups["notes"]


def test_compare_finds_no_difference_of_group_scores_that_cancel(tmp_path):
    a = write_group_log(tmp_path / "a", numbers_of=lambda at: LAST_THREE if at % 2 else FIRST_THREE)
    b = write_group_log(tmp_path / "b", numbers_of=lambda at: FIRST_THREE if at % 2 else LAST_THREE)
    _, groups = compared_tables(a, b)
    assert groups["Better A / B"] == "7 / 5"
    assert not {"↑", "↓"} & {*groups["B − A (points)"]}
    assert float(groups["p"]) > 0.5


def test_groups_without_the_same_questions_in_both_logs_are_left_out_and_counted(tmp_path):
    a = write_group_log(tmp_path / "a", numbers_of=lambda at: LAST_THREE)
    lines = log_lines(right={(video, number) for video in VIDEOS for number in (1, 2, 3, 4)}, videos=VIDEOS)
    write_log(tmp_path / "b", lines[:-2], task="videomme_v2", results=results(0.0, 0.0))
    _, groups = compared_tables(a, tmp_path / "b")
    assert groups["Groups"] == "12"
    assert "Groups without the same questions on both sides, left out: 1 at most in a line." in groups["notes"]
    result = run_command("compare", a, tmp_path / "b", "--out", tmp_path / "page.html")
    assert "Group score difference of" in result.output
    assert "Group score difference of" in (tmp_path / "page.html").read_text()
