"""docs/your_matrix.md names every key of a matrix and, by docstrings, of its rows; its example runs as printed."""

from __future__ import annotations

import re
from dataclasses import fields

import pytest

from focus_eval.bench.demo.photo_events import build_photo_events
from focus_eval.bench.matrix.cells import cells, selection_specs
from focus_eval.bench.matrix.config import (
    BenchmarkConfig,
    EncoderConfig,
    MatrixConfig,
    ModelConfig,
    Resources,
    SamplerConfig,
    load_matrix,
)
from focus_eval.bench.report.run import load_run
from focus_eval.keyframes.rows.records import AnswerRow, SelectionRow
from tests.bench.report.simulated import simulate_run
from tests.pages import ROOT, blocks, shell_lines
from tests.support.bench.commands import called

PAGE = ROOT / "docs/your_matrix.md"
MARKED = dict(re.findall(r"<!-- keys: (\w+) -->\n(.*?)<!-- end -->", PAGE.read_text(encoding="utf-8"), re.DOTALL))
# By the first words of a table's head: the classes whose keys its lines name.
CONFIGS = {
    "matrix": (MatrixConfig, Resources),
    "entry of `benchmarks`": (BenchmarkConfig,),
    "entry of `models`": (ModelConfig,),
    "entry of `encoders`, `samplers`": (EncoderConfig, SamplerConfig),
}


def names_in(text):
    """Return what a table's first column has in backticks; all of a text without a table."""
    rows = re.findall(r"^\| (.*?) \|", text, re.MULTILINE) or [text]
    return {name for row in rows[1:] or rows for name in re.findall(r"`([^`]+)`", row)}


@pytest.mark.parametrize("head", CONFIGS)
def test_a_table_names_every_key_of_its_configuration_and_no_other(head):
    (table,) = (part for part in MARKED["matrix"].split("\n\n") if part.startswith(f"| {head} |"))
    keys = {key for config in CONFIGS[head] for key in config.model_fields}
    named = names_in(table)
    if head == "matrix":  # a worker's resources are named behind the two keys that hold them
        named |= {*Resources.model_fields} & {*re.findall(r"`(\w+)`", table)}
    assert named == keys


@pytest.mark.parametrize("kind", [SelectionRow, AnswerRow])
def test_the_page_takes_the_columns_of_a_row_from_a_docstring_that_names_no_other(kind):
    assert f".. autoclass:: {kind.__module__}.{kind.__name__}\n" in PAGE.read_text(encoding="utf-8")
    described = re.findall(r"^ {8}(\w[\w, ]*): ", kind.__doc__, re.MULTILINE)
    assert {name for names in described for name in names.split(", ")} <= {item.name for item in fields(kind)}


def test_the_docstrings_name_every_column_of_the_frames_and_no_other(tmp_path):
    run = load_run(simulate_run(tmp_path / "run"))
    columns, answers = (
        {*re.findall(r"`([^`]+)`", frame.__doc__)} for frame in (type(run).selection_frame, type(run).answer_frame)
    )
    assert columns == set(run.selection_frame.columns)
    assert columns | answers == set(run.answer_frame.columns)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The reader's folder: the page's matrix."""
    folder = tmp_path_factory.mktemp("reader")
    (example,) = blocks(PAGE, "yaml")
    (folder / "table.yaml").write_text(example, encoding="utf-8")
    return folder


def test_the_example_has_ten_lines_and_as_many_rows_as_the_page_states(folder):
    matrix = load_matrix(folder / "table.yaml")
    assert len((folder / "table.yaml").read_text().splitlines()) == 10
    n_selections, n_answers = (matrix.limit * len(of(matrix)) for of in (selection_specs, cells))
    assert f"The ten questions give {n_selections} selections and {n_answers} answers." in PAGE.read_text()


@pytest.mark.slow
@pytest.mark.usefixtures("unsaved_figures")
def test_the_example_runs_on_the_demos_data(folder, monkeypatch):
    pytest.importorskip("skimage")
    build_photo_events(folder / "results/demo", video_ids=["short_a", "short_b"])
    lines = [line.words[1:] for line in shell_lines(PAGE) if line.program == "focus-eval" and len(line.words) > 2]
    assert [words[0] for words in lines] == ["plan", "run", "report"]
    monkeypatch.chdir(folder)
    for words in lines:
        called(*words)
    run = load_run(folder / "results/runs/table")
    assert (len(run.selections), len(run.answers)) == (80, 80)
    assert {row.error for row in (*run.selections, *run.answers)} == {None}
    assert {len(row.keyframes) for row in run.selections} == {4, 8}
