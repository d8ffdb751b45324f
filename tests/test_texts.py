"""Any text of a question or an answer goes through annotations, lines, Parquet and page; none ends a run."""

from __future__ import annotations

import json

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from focus_eval.benchmarks.registry import read_annotations
from focus_eval.core.errors import printable
from focus_eval.core.resources import lines_of, whole_text
from focus_eval.matrix.config import load_matrix
from focus_eval.matrix.running import complete_run
from focus_eval.report.page.html import write_html
from focus_eval.report.run import load_run
from focus_eval.rows.records import AnswerRow, RowWriter, SelectionRow, read_rows
from focus_eval.rows.store import StoredRows, compact

from .matrix.conftest import write_simulation

TEXTS = {
    "half an emoji": "a \ud83d b",
    "its other half": "\ude00",
    "other ends of lines": "a\u2028b\u2029c\x85d\x0be\x0cf",
    "nul": "a\0b",
    "a formula": '=HYPERLINK("x")',
    "a script": "</script><script>alert(1)</script>",
    "two megabytes": "x" * 2_000_000,
}
ANY_TEXT = st.text(alphabet=st.characters(exclude_categories=()), max_size=20)


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_any_text_of_a_question_goes_through_lines_rows_and_page(tmp_path, text):
    folder = tmp_path / "data"
    matrix = yaml.safe_load(write_simulation(folder, n_questions=2, samplers=("topk",)).read_text())
    rows = json.loads((folder / "questions.json").read_text())
    rows[0] |= {"question": text, "candidates": [text, "that"], "question_category": text[:40]}
    # Raw, but for half a character: only an escape can stand for it.
    lines = [json.dumps(row, ensure_ascii=whole_text(text) != text) for row in rows]
    (folder / "questions.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    matrix["benchmarks"][0]["annotations"] = str(folder / "questions.jsonl")
    (folder / "matrix.yaml").write_text(yaml.safe_dump(matrix))
    run = complete_run(load_matrix(folder / "matrix.yaml"), out=tmp_path / "run")
    (part,) = (run.path / "selections").iterdir()
    found = {row.question_id: row for row in StoredRows(part, SelectionRow)}
    assert {row.error for row in found.values()} == {None}
    assert found["q0"].option_texts == [whole_text(text).strip(), "that"]
    write_html(load_run(run.path), tmp_path / "page.html")
    assert "<script>alert(1)" not in (tmp_path / "page.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_any_text_of_an_answer_is_a_row(tmp_path, text):
    row = AnswerRow(
        benchmark="b", question_id="q", video="v", selection_id="s", cell_id="c", cell="c", model="m", bucket="",
        frames_asked=8, frames_chosen=8, frames_fed=8, answer=text, parsed=text,
    )  # fmt: skip
    writer = RowWriter(tmp_path / "rows-0.jsonl")
    writer.write(row)
    writer.close()
    compact(tmp_path, AnswerRow, ["q"])
    (stored,) = StoredRows(tmp_path, AnswerRow)
    assert (stored.answer, stored.question_id) == (whole_text(text), "q")


def test_lines_of_others_with_half_a_character_become_parquet(tmp_path):
    """Escaped, as other programs write it."""
    row = {"benchmark": "b", "question_id": "q", "video": "v", "selection_id": "s", "cell_id": "c", "cell": "c"}
    row |= {"model": "m", "bucket": "", "frames_asked": 8, "frames_chosen": 8, "frames_fed": 8, "answer": "\ud83d"}
    (tmp_path / "rows-0.jsonl").write_text(json.dumps(row) + "\n")
    assert next(read_rows(tmp_path / "rows-0.jsonl", AnswerRow)).answer == "\ufffd"
    compact(tmp_path, AnswerRow, ["q"])
    assert [stored.answer for stored in StoredRows(tmp_path, AnswerRow)] == ["\ufffd"]


def test_halves_that_follow_each_other_are_one_character():
    assert whole_text("\ud83d\ude00 \ud83d") == "\U0001f600 \ufffd"


@given(ANY_TEXT)
def test_a_whole_text_is_utf8_and_a_printed_one_has_one_line(text):
    whole_text(text).encode()
    assert len(printable(text).replace("\n", " ").splitlines()) <= 1


@given(st.lists(ANY_TEXT, min_size=1, max_size=4))
def test_json_lines_come_back_whatever_they_hold(tmp_path_factory, texts):
    row = {
        "video_id": "v", "video_path": "v.mp4", "candidates": ["x", "y"], "correct_choice": 0, "duration": 10.0,
        "duration_group": 15, "question_category": "S2E", "position": [1],
    }  # fmt: skip
    path = tmp_path_factory.mktemp("lines") / "a.jsonl"
    lines = [json.dumps({**row, "id": str(at), "question": f"q{text}"}) for at, text in enumerate(texts)]
    assert lines_of("\n".join(lines)) == lines
    raw = "\n".join(json.dumps(json.loads(line), ensure_ascii=False) for line in lines)
    path.write_text(whole_text(raw), encoding="utf-8", newline="")
    found = [question.query for question in read_annotations("longvideobench", path)]
    assert [query.strip() for query in found] == [whole_text(f"q{text}").strip() for text in texts]
