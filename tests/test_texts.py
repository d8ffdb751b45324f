"""Any text of a question or an answer goes through annotations, lines, Parquet and page; none ends a run."""

from __future__ import annotations

import csv
import json

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from focus_eval.bench.benchmarks.registry import read_annotations
from focus_eval.bench.matrix.config import load_matrix
from focus_eval.bench.matrix.running import complete_run
from focus_eval.bench.report.page.html import write_html
from focus_eval.bench.report.run import load_run
from focus_eval.bench.rows.store import StoredRows, compact
from focus_eval.cli import app, main
from focus_eval.core.errors import printable
from focus_eval.core.resources import lines_of, whole_text
from focus_eval.external.imports.loading import load_selections
from focus_eval.keyframes.rows.json_lines import RowWriter, read_rows
from focus_eval.keyframes.rows.records import AnswerRow, SelectionRow
from tests.bench.matrix.conftest import write_simulation
from tests.external.imports.test_lmms_logs import line, write_log

pytestmark = pytest.mark.slow

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
    stored = {row.question_id: row for row in StoredRows(part, SelectionRow)}
    assert {row.error for row in stored.values()} == {None}
    assert stored["q0"].option_texts == [whole_text(text).strip(), "that"]
    write_html(load_run(run.path), tmp_path / "page.html")
    assert "<script>alert(1)" not in (tmp_path / "page.html").read_text(encoding="utf-8")


def command(*arguments):
    """Run a command, and return what it printed."""
    result = CliRunner().invoke(app, [*map(str, arguments)])
    assert result.exit_code == 0, (result.output[-2000:], repr(result.exception)[:2000])
    return result.output


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_any_text_of_a_log_is_imported(tmp_path, text):
    document = {"question": text, "options": [text, "b"], "video": text, "task_type": text, "indices": [1, 2]}
    entry = {"answer": text, "parsed_pred": text}
    item = line(f"q{text}", doc=document, target=text, filtered_resps=[text], input=text, acc=entry)
    name = text[:40]  # becomes a folder's
    write_log(tmp_path / "log", [item, line(1)], model_name=name, git_hash=text)
    printed = command("import", "lmms", tmp_path / "log", "--out", tmp_path / "run", "--frames-field", "indices")
    assert printed == printable(printed)
    run = load_run(tmp_path / "run")
    whole = whole_text(text)
    (selection,) = [row for row in run.selections if row.question_id != "1"]
    (answer,) = [row for row in run.answers if row.question_id != "1"]
    assert (selection.question_id, selection.query, selection.option_texts) == (
        f"q{whole}",
        whole.strip(),
        [whole, "b"],
    )
    assert (answer.answer, answer.model, answer.category) == (whole, whole_text(name).rpartition("/")[2], whole)
    assert {path.relative_to(tmp_path / "run").parts[0] for path in (tmp_path / "run").rglob("*")} == {
        "run.json", "selections", "answers",
    }  # fmt: skip
    command("report", tmp_path / "run", "--out", tmp_path / "tables")
    (page,) = (tmp_path / "tables").glob("*.html")
    assert "<script>alert(1)" not in page.read_text(encoding="utf-8")


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_any_text_of_a_question_is_in_its_imported_and_exported_selection(tmp_path, text):
    whole, id = whole_text(text), f"q{whole_text(text)}"
    document = {"id": f"q{text}", "question": text, "candidates": [text, "b"], "correct_choice": 1, "duration": 200.0}
    (tmp_path / "lvb.json").write_text(json.dumps([{**document, "video_path": "v.mp4", "position": [24]}]))
    (tmp_path / "said.json").write_text(json.dumps([{"id": f"q{text}", "frames": [3, 60], "answer": "B"}]))
    with open(tmp_path / "rates.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("id", "duration_s", "fps"), (id, 200, 25)])
    annotations = ("--annotations", tmp_path / "lvb.json")
    names = ("--rates", tmp_path / "rates.csv", "--model", f"m{text[:40]}", "--name", f"n{text[:40]}")
    command("import", "answers", tmp_path / "said.json", "--out", tmp_path / "run", *annotations, *names)
    run = load_run(tmp_path / "run")
    (selection,), (answer,) = run.selections, run.answers
    assert (selection.question_id, selection.query, selection.option_texts) == (id, whole.strip(), [whole.strip(), "b"])
    assert (selection.sampler, answer.model, answer.score) == (f"n{whole[:40]}", f"m{whole[:40]}", 1.0)
    command("import", "answers", tmp_path / "said.json", "--out", tmp_path / "said.parquet", *annotations)
    for source in (tmp_path / "said.parquet", tmp_path / "run"):
        out = tmp_path / f"of-{source.name}" / "selected_frames.json"
        command("import", "auto", source, "--to", "focus", "--out", out, *annotations)
        exported = load_selections(out, questions=read_annotations("longvideobench", tmp_path / "lvb.json"))
        assert (list(exported), exported[id].selection.keyframes) == ([id], [3, 60])


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_a_text_in_the_place_of_an_answer_is_refused_in_one_short_line(tmp_path, monkeypatch, capsys, text):
    (tmp_path / "said.json").write_text(json.dumps([{"id": f"q{text}", "frames": [3, 60], "answer": text}]))
    out = str(tmp_path / "said.parquet")
    monkeypatch.setattr("sys.argv", ["focus-eval", "import", "answers", str(tmp_path / "said.json"), "--out", out])
    with pytest.raises(SystemExit, match="2"):
        main()
    printed = capsys.readouterr().err
    assert printed.startswith("focus-eval: said.json: row 0 (q")
    assert printed.endswith("is not an option letter A to H or null; write it alone\n")
    assert len(printed.splitlines()) == 1
    assert len(printed) < 2100


def test_a_name_too_long_for_a_folder_is_refused_before_anything_is_written(tmp_path):
    path = write_log(tmp_path / "log", [line(0)], model_name="x" * 2_000_000)
    result = CliRunner().invoke(app, ["import", "lmms", str(tmp_path / "log"), "--out", str(tmp_path / "run")])
    assert str(result.exception).startswith(f"{path}: xxx")
    assert "2,000,026 characters, is too long for a folder; give a short --name or --model" in str(result.exception)
    assert not (tmp_path / "run").exists()


def test_a_log_that_is_not_utf8_is_refused_with_its_line(tmp_path):
    path = write_log(tmp_path / "log", [line(0), line(1, input="HALF")])
    path.write_bytes(path.read_bytes().replace(b"HALF", b"\xed\xa0\xbd"))
    result = CliRunner().invoke(app, ["import", "lmms", str(tmp_path / "log"), "--out", str(tmp_path / "run")])
    assert str(result.exception).startswith(f"{path}:2: not JSON ('utf-8' codec can't decode byte 0xed")


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
    queries = [question.query for question in read_annotations("longvideobench", path)]
    assert [query.strip() for query in queries] == [whole_text(f"q{text}").strip() for text in texts]
