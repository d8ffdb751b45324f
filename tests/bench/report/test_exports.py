"""CSV, Markdown and LaTeX hold every number of a table, whatever the names are."""

from __future__ import annotations

import csv
import io
import shutil
import subprocess

import pytest

from focus_eval.bench.report.comparisons import baseline_table
from focus_eval.bench.report.layouts import results_table
from focus_eval.bench.report.rendering import Counts, Table, TableRow, Value, to_csv, to_latex, to_markdown


def test_a_csv_holds_every_number(papers_run):
    table = results_table(papers_run)
    rows = list(csv.DictReader(io.StringIO(to_csv(table))))
    assert len(rows) == len(table.rows)
    focus = next(row for row in rows if (row["Benchmark"], row["Sampler"]) == ("longvideobench", "focus"))
    figure = next(row for row in table.rows if row.keys == ("longvideobench", "focus")).figures[3]
    assert float(focus["Overall"]) == pytest.approx(figure.ours, abs=1e-6)
    assert float(focus["Overall difference"]) == pytest.approx(figure.ours - 63.5, abs=1e-6)
    assert focus["questions"] == "119"


def test_markdown_survives_markup_in_names():
    table = Table(name="t", title="T", key_titles=("S",), columns=("A",), rows=(TableRow(("a|b_*c*",), ("x|y",)),))
    assert r"| a\|b\_\*c\* | x\|y |" in to_markdown(table)


def test_latex_has_little_width_so_what_all_rows_share_is_said_once():
    counts = [Counts(questions=36, attempted=36, errors=errors) for errors in (0, 2)]
    bare = Value(ours=50.0, has_too_few_videos=True)
    rows = tuple(
        TableRow(("videomme", name), (bare,), count) for name, count in zip(("uniform", "aks"), counts, strict=True)
    )
    table = Table(name="t", title="Accuracy", key_titles=("Benchmark", "Sampler"), columns=("Overall",), rows=rows)
    latex = " ".join(to_latex(table).split())
    assert r"\caption{Accuracy, videomme.}" in latex
    assert "Sampler & Overall & questions & errors" in latex
    assert "aks & 50.0 & 36 & 2" in latex
    footer = latex[latex.index(r"\bottomrule") :]
    assert "No interval: that takes 5 videos or more. 0 in every row: unparsed, fallbacks, below K." in footer


@pytest.mark.parametrize("layout", ["by_length", "overview", "two_stage"])
def test_latex_compiles(by_length_run, tmp_path, layout):
    if shutil.which("pdflatex") is None:
        pytest.skip("pdflatex is not installed")
    hostile = Table(
        name="odd",
        title=r"50 % of a_b & \c ~ ^ {x} # $1",
        key_titles=("S",),
        columns=("p",),
        rows=(TableRow(("a_b & c",), ("<0.001 ↑",)),),
    )
    body = "\n".join(
        to_latex(table) for table in (results_table(by_length_run, layout), baseline_table(by_length_run), hostile)
    )
    source = (
        "\\documentclass{article}\n\\usepackage[utf8]{inputenc}\n\\usepackage{booktabs}\n\\usepackage{graphicx}\n"
        f"\\begin{{document}}\n{body}\n\\end{{document}}\n"
    )
    (tmp_path / "tables.tex").write_text(source)
    process = subprocess.run(
        ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "tables.tex"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert process.returncode == 0, process.stdout[-2000:]
    assert (tmp_path / "tables.pdf").stat().st_size > 5000
