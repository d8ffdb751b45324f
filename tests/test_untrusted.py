"""Whatever a file, a name or an argument holds, there is a value or one line that says what is wrong."""

from __future__ import annotations

import csv
import io
import json
import math
import subprocess
import sys

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from focus_eval.bench.benchmarks.registry import read_annotations
from focus_eval.bench.lmms.parsing import read_option
from focus_eval.bench.report.rendering import Table, TableRow, spreadsheet_cell, to_csv, to_latex, to_markdown
from focus_eval.core.errors import FocusEvalError, InvalidInput, printable
from focus_eval.core.resources import read_json, read_yaml
from focus_eval.external.imports.loading import load_selections
from focus_eval.keyframes.rows.records import error_line

pytestmark = pytest.mark.slow

BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{name}: &{name} [{','.join(['*' + last] * 9)}]\n" for last, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (BOMB, "its aliases stand for more than 1,000,000 values"),
        ("name: &n [*n]\n", "1: an alias contains itself"),
        ("a: " + "[" * 5000 + "]" * 5000, "nested too deeply"),
        ("name: !!python/object/apply:os.system ['true']\n", "could not determine a constructor"),
        ("a: [1\n", "expected"),
        ("b: 1\na: 2026-02-30\n", r"a\.yaml:2: not a value: day is out of range"),
        ("a: !!float abc\n", r"a\.yaml:1: not a value: could not convert string to float"),
        ("a: " + "9" * 5000, r"a\.yaml:1: not a value: Exceeds the limit"),
        ("? [a, b]\n: 1\n", r"a\.yaml:1: found unhashable key"),
    ],
)
def test_yaml_that_would_blow_up_or_run_code_is_refused(tmp_path, text, message):
    path = tmp_path / "a.yaml"
    path.write_text(text)
    with pytest.raises(InvalidInput, match=message):
        read_yaml(path)


def test_a_matrix_with_a_list_as_key_is_one_line(tmp_path):
    from focus_eval.bench.matrix.config import load_yaml

    path = tmp_path / "a.yaml"
    path.write_text("name: x\n? [a, b]\n: 1\n")
    with pytest.raises(InvalidInput, match=r"a\.yaml:2: a key must be text"):
        load_yaml(path)


def test_json_with_a_number_of_thousands_of_digits_is_one_line(tmp_path):
    path = tmp_path / "a.json"
    path.write_text("[" + "9" * 5000 + "]")
    with pytest.raises(InvalidInput, match=r"a\.json: JSON that cannot be read"):
        read_json(path)


def test_plain_aliases_are_fine(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text("a: &a {k: 1}\nb: *a\nc: [*a, *a]\n")
    assert read_yaml(path) == {"a": {"k": 1}, "b": {"k": 1}, "c": [{"k": 1}, {"k": 1}]}


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"[" * 100_000 + b"]" * 100_000, b"{", b""])
def test_json_that_is_none_is_one_line(tmp_path, content):
    path = tmp_path / "a.json"
    path.write_bytes(content)
    with pytest.raises(InvalidInput, match=r"a\.json"):
        read_json(path)


COMMANDS = [
    ("run", "bikes.mp4"), ("run", "bin.yaml"), ("plan", "bomb.yaml"), ("plan", "deep.yaml"), ("plan", "tag.yaml"),
    ("report", "file.txt"), ("report", "nowhere"), ("status", "file.txt"), ("status", "run"),
    ("compare", "file.txt", "file.txt"),
    ("recall", "--selections", "deep.json", "--annotations", "deep.json", "--rates", "file.txt"),
    ("recall", "--selections", "list.json", "--annotations", "bin.json", "--rates", "file.txt"),
    ("import", "aks", "deep.json", "--out", "x"), ("import", "toolmerge", "list.json", "--out", "file.txt/x"),
    ("pack", "--undo", "file.txt"), ("pack", "file.txt", "--out", "x.zip"),
    ("select", "file.txt", "--query", "x"), ("select", "nowhere.mp4", "--query", ""),
    ("list", "samplers", "--minutes", "nan"), ("list", "samplers", "-k", "0"),
    ("evidence", "file.txt"), ("check", "nowhere.py:Mine"), ("check", "file.txt:Mine"),
    ("list", "configs", "--copy", "file.txt"), ("videos", "index", "nowhere.mp4"),
]  # fmt: skip


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """A folder of files that must not harm their reader: too deep, too large, not text, or with code in them."""
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "file.txt").write_text("x")
    (folder / "bin.yaml").write_bytes(b"\xff\xfe\x00bad")
    (folder / "bin.json").write_bytes(b"\xff\xfe{}")
    (folder / "deep.json").write_text("[" * 100_000 + "]" * 100_000)
    (folder / "deep.yaml").write_text("a: " + "[" * 5000 + "]" * 5000)
    (folder / "bomb.yaml").write_text(BOMB)
    (folder / "tag.yaml").write_text("name: !!python/object/apply:os.system ['touch pwned']\n")
    (folder / "run").mkdir()
    (folder / "run" / "run.json").write_text("{}")
    (folder / "list.json").write_text("[1, 2, 3]")
    return folder


RUN_ALL = """
import contextlib, io, json, sys
from focus_eval import cli
results = []
for arguments in json.load(sys.stdin):
    sys.argv = ["focus-eval", *arguments]
    err = io.StringIO()
    with contextlib.redirect_stderr(err), contextlib.redirect_stdout(io.StringIO()):
        try:
            cli.main()
            code = 0
        except SystemExit as end:
            code = end.code
        except BaseException as error:
            code = f"{type(error).__name__}: {error}"
    results.append([code, err.getvalue()])
print(json.dumps(results))
"""


def test_no_user_input_ends_in_a_traceback(hostile):
    completed = subprocess.run(
        [sys.executable, "-c", RUN_ALL],
        input=json.dumps(COMMANDS),
        capture_output=True,
        text=True,
        cwd=hostile,
        check=True,
    )
    results = json.loads(completed.stdout.splitlines()[-1])
    assert len(results) == len(COMMANDS)
    for arguments, (code, err) in zip(COMMANDS, results, strict=True):
        assert code == 2, f"{arguments}: {code} {err}"
        assert err.strip(), arguments
    assert not (hostile / "pwned").exists()


ROW = {
    "id": "a", "video_id": "v", "video_path": "v.mp4", "question": "What?", "candidates": ["x", "y"],
    "correct_choice": 0, "duration": 10.0, "duration_group": 15, "question_category": "S2E", "position": [1],
}  # fmt: skip


@pytest.mark.parametrize("video", ["../../secret.mp4", "/etc/passwd", "a/../../b.mp4", "..\\b.mp4", "v\0.mp4"])
def test_an_annotation_cannot_lead_out_of_the_folder_of_videos(tmp_path, video):
    path = tmp_path / "a.json"
    path.write_text(json.dumps([{**ROW, "video_path": video}]))
    with pytest.raises(InvalidInput, match=r"row 0: a: video .* leaves the folder of videos"):
        read_annotations("longvideobench", path)


def test_a_folder_below_and_names_with_dots_are_no_escape(tmp_path):
    path = tmp_path / "a.json"
    path.write_text(json.dumps([{**ROW, "video_path": "a/b..c/v.mp4"}]))
    assert read_annotations("longvideobench", path)[0].video == "a/b..c/v.mp4"


def test_a_question_cannot_rewrite_the_terminal():
    assert printable("a\x1b[31m\x07b\u202ec") == "a\ufffd[31m\ufffdb\ufffdc"
    assert "\x1b" not in error_line(InvalidInput("bad \x1b]0;title\x07"))
    assert printable("plain — text é 日本") == "plain — text é 日本"


def test_a_name_cannot_become_a_formula_of_a_spreadsheet():
    names = ("=cmd()", "@sum(a)", "+1+1", "-2+3", "\tx", "focus", "-1.5")
    rows = tuple(TableRow((name,), ("=also()",)) for name in names)
    table = Table(name="t", title="T", key_titles=("S",), columns=("A",), rows=rows)
    lines = list(csv.reader(io.StringIO(to_csv(table))))[1:]
    assert [row[0] for row in lines] == ["'=cmd()", "'@sum(a)", "'+1+1", "'-2+3", "'\tx", "focus", "-1.5"]
    assert {row[1] for row in lines} == {"'=also()"}


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@given(ANYTHING)
def test_any_json_is_selections_or_a_clear_refusal(tmp_path_factory, value):
    path = tmp_path_factory.mktemp("any") / "a.json"
    path.write_text(json.dumps(value))
    for form in ("auto", "aks", "qca", "wfs_sb", "toolmerge"):
        try:
            load_selections(path, format=form, questions=[], fps={})
        except FocusEvalError as error:
            assert str(error).strip()  # noqa: PT017 (most values are refused, a few are selections)


@given(ANYTHING)
def test_any_yaml_is_a_matrix_or_a_clear_refusal(tmp_path_factory, value):
    from focus_eval.bench.matrix.config import load_matrix

    path = tmp_path_factory.mktemp("any") / "a.yaml"
    path.write_text(yaml.safe_dump(value, allow_unicode=True))
    try:
        load_matrix(path)
    except FocusEvalError as error:
        assert str(error).strip()  # noqa: PT017 (most values are refused)


@given(st.text(), st.lists(st.text(max_size=10), min_size=2, max_size=5))
def test_any_answer_is_an_option_or_none(text, options):
    assert read_option(text, tuple(options)) in (None, *"ABCDE"[: len(options)])


@given(st.text())
def test_any_text_is_safe_in_every_format(text):
    table = Table(name="t", title=text, key_titles=("S",), columns=("A",), rows=(TableRow((text,), (text,)),))
    assert "\n\n\n" not in to_markdown(table).strip("\n") or "\n" in text
    to_latex(table)
    cell = next(csv.reader(io.StringIO(to_csv(table).split("\n", 1)[1], newline="")))[0]
    assert cell in (text, f"'{text}") or "\r" in text or "\n" in text
    assert spreadsheet_cell(text)[:1] not in ("=", "@")


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_relevance_that_is_no_number_is_refused(tmp_path, bad):
    from focus_eval.keyframes.encoders.recorded import RecordedScorer

    trace = np.full(100, 0.5)
    trace[7] = bad
    np.save(tmp_path / "trace.npy", trace)
    with pytest.raises(FocusEvalError, match=r"finite|number|relevance"):
        RecordedScorer(path=str(tmp_path / "trace.npy")).relevance_of(tmp_path / "v.mp4", np.array([7]), "q")
