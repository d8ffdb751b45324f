"""`focus-eval ask --from`: a model's answers to the rows of a sheet, its accuracy, and the folder that reports read."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest

from focus_eval import load_run
from focus_eval.bench.report.statistics import mean_estimate
from focus_eval.keyframes.video.clip_writer import ClipWriter
from tests.support.keyframes.chat_server import ChatServer
from tests.support.keyframes.many_commands import run_commands

N_ROWS = 12


@pytest.fixture(scope="module")
def sheet(tmp_path_factory):
    """Twelve questions about six clips; the correct answers are A, B, C in turn."""
    folder = tmp_path_factory.mktemp("sheet")
    for number in range(6):
        with ClipWriter(folder / f"v{number}.mp4", width=64, height=48, fps=10) as writer:
            for frame in range(20):
                writer.write(np.full((48, 64, 3), 10 * frame + number, np.uint8))
    with open(folder / "rows.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "video", "question", "options", "answer"])
        for number in range(N_ROWS):
            options = ["u", "v", f"w{number}"]
            writer.writerow(
                [f"q{number}", f"v{number % 6}.mp4", f"Which, {number}?", "|".join(options), options[number % 3]]
            )
    return folder / "rows.csv"


@pytest.fixture
def server(monkeypatch):
    pytest.importorskip("openai", reason="the extra llm is not installed")

    def reply_to(body):
        """Answer B to all, and nothing that can be read to number 3."""
        text = json.dumps(body["messages"])
        return ("Hard to say." if "Which, 3?" in text else "The answer is B."), {}

    with ChatServer(reply_to=reply_to, keeps_images=True) as server:
        monkeypatch.setenv("OPENAI_API_KEY", "any")
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        yield server


def run(*arguments):
    (ran,) = run_commands([[*map(str, arguments)]])
    return ran


EVEN = ("--sampler", "uniform", "-k", "3", "--llm", "chat:model=m")
BARE = ("--no-sheets", *EVEN)  # contact sheets take most of the time of twelve rows


def test_the_accuracy_is_that_of_the_report_and_nothing_is_asked_twice(sheet, server, tmp_path):
    out = tmp_path / "out"
    ran = run("ask", "--from", sheet, "--out", out, "--workers", "2", *EVEN)
    assert ran.code == 0, ran.err
    with open(out / "keyframes.csv", newline="") as file:
        lines = list(csv.DictReader(file))
    assert [line["id"] for line in lines] == [f"q{number}" for number in range(N_ROWS)]
    assert [line["read_as"] for line in lines] == ["" if number == 3 else "B" for number in range(N_ROWS)]
    assert [line["correct_answer"] for line in lines] == ["A", "B", "C"] * 4
    assert len(server.texts) == N_ROWS
    page = (out / "index.html").read_text()
    assert page.count("The answer is B. (read as B, correct ") == N_ROWS - 1
    assert "The answer is B. (read as B, correct C, score 0.0)" in page
    assert "Hard to say. (not read, correct A, score 0.0)" in page
    text = next(text for text in server.texts if "Which, 5?" in text)
    assert text.endswith("Which, 5?\nA. u\nB. v\nC. w5\nAnswer with the letter of the correct option.")
    answers = load_run(out).answer_frame
    estimate = mean_estimate(answers["score"], answers["video"])
    line = next(line for line in ran.out.splitlines() if line.startswith("accuracy"))
    assert line == (
        f"accuracy 33.3 % [{100 * estimate.low:.1f}, {100 * estimate.high:.1f}]: 12 answers about 6 videos, "
        "1 without a readable answer, counted as wrong"
    )
    report = run("report", out)
    assert report.code == 0, report.err
    assert "33.3" in report.out
    second_run = run("ask", "--from", sheet, "--out", out, *BARE)
    assert (second_run.code, len(server.texts)) == (0, N_ROWS)
    assert line in second_run.out.splitlines()


def test_answers_to_rows_that_left_the_sheet_are_not_in_its_accuracy(sheet, server, tmp_path):
    short_sheet, out = tmp_path / "rows.csv", tmp_path / "out"
    lines = sheet.read_text().splitlines(keepends=True)
    options = ("--from", short_sheet, "--videos", sheet.parent, "--out", out, *BARE)
    short_sheet.write_text("".join(lines[:4]))
    assert "accuracy 33.3 %: 3 answers about 3 videos, no interval below 5 videos" in run("ask", *options).out
    short_sheet.write_text("".join(lines[:2]))
    assert run("ask", *options).out.splitlines()[-1] == (
        "accuracy 0.0 %: 1 answer about 1 video, no interval below 5 videos, left out 2 to rows that the sheet does "
        "not have, which report counts"
    )
    assert len(server.texts) == 3


def test_another_model_answers_from_the_same_keyframes_and_is_compared(sheet, server, tmp_path):
    assert run("ask", "--from", sheet, "--out", tmp_path / "one", *BARE).code == 0
    server.reply_to = lambda body: ("C", {})
    assert run("ask", "--from", sheet, "--out", tmp_path / "two", *BARE).code == 0
    compared = run("compare", tmp_path / "one", tmp_path / "two")
    assert compared.code == 0, compared.err
    n_selections = len(load_run(tmp_path / "one").selection_frame)
    other = run("ask", "--from", sheet, "--out", tmp_path / "one", *BARE[:-1], "chat:model=other")
    assert other.code == 0, other.err
    assert len(load_run(tmp_path / "one").selection_frame) == n_selections == N_ROWS
    answers = load_run(tmp_path / "one").answer_frame
    assert answers["model"].value_counts().to_dict() == {"chat (m)": N_ROWS, "chat (other)": N_ROWS}
    longer = run("ask", "--from", sheet, "--out", tmp_path / "one", "--max-tokens", "9", *BARE)
    assert (longer.code, "chat (m) answered row 'q0' with other settings" in longer.err) == (2, True)


def test_a_failed_request_is_an_error_of_its_row_and_is_asked_again(sheet, server, tmp_path):
    server.reply_to = lambda body: ("" if "Which, 4?" in json.dumps(body["messages"]) else "B", {})
    out = tmp_path / "out"
    ran = run("ask", "--from", sheet, "--out", out, *BARE)
    assert ran.code == 2
    assert "focus-eval: row q4: " in ran.err
    assert "11 answers about 6 videos" in ran.out
    server.reply_to = lambda body: ("B", {})
    n_before = len(server.texts)
    ran = run("ask", "--from", sheet, "--out", out, *BARE)
    assert (ran.code, len(server.texts) - n_before) == (0, 1)
    assert "12 answers about 6 videos" in ran.out
    assert load_run(out).answer_frame["score"].tolist().count(1.0) == 4


def test_words_without_options_are_answered_and_not_scored(sheet, server, tmp_path):
    rows = sheet.parent / "open.csv"
    rows.write_text("video,question,answer\nv0.mp4,What is it?,a dog\nv1.mp4,Who?,\n")
    ran = run("ask", "--from", rows, "--out", tmp_path / "out", *BARE)
    assert ran.code == 0, ran.err
    assert "2 answers, none scored: the sheet states no answer that can be" in ran.out


def test_a_changed_answer_is_not_scored_by_the_old_one(sheet, server, tmp_path):
    out = tmp_path / "out"
    assert run("ask", "--from", sheet, "--out", out, *BARE).code == 0
    changed = sheet.parent / "rows2" / "rows.csv"
    changed.parent.mkdir()
    changed.write_text(sheet.read_text().replace("u|v|w0,u", "u|v|w0,v"))
    ran = run("ask", "--from", changed, "--videos", sheet.parent, "--out", out, *BARE)
    assert (ran.code, "row 'q0' was scored for the answer 'A', the sheet now has 'B'" in ran.err) == (2, True)
