"""The leaderboard: every row whose file is there is measured again; entries are checked; pages are rewritten."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from focus_eval.benchmarks.registry import read_annotations, read_rates
from focus_eval.cli import app
from focus_eval.core.errors import InvalidInput
from focus_eval.report.leaderboard import (
    COLUMNS,
    baseline_rows,
    check_file,
    leaderboard_table,
    measured_row,
    read_entry,
    read_rows,
    replaced,
    update_page,
    write_rows,
)
from focus_eval.report.recall import evidence_cases
from focus_eval.report.table import to_markdown
from focus_eval.selections import load_selections

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "results/published/leaderboard.csv"
ENTRIES = sorted((ROOT / "configs/leaderboard").glob("*.yaml"))


@pytest.fixture(scope="module")
def measured(shared):
    """Questions, rates and evidence of LongVideoBench val."""
    questions = read_annotations("longvideobench", shared("data/lvb_val.json"))
    fps = {key: float(rate.fps) for key, rate in read_rates(shared("data/lvb_val_fps.csv")).items()}
    return questions, fps, evidence_cases("longvideobench", questions, fps)


@pytest.mark.parametrize("path", ENTRIES, ids=lambda path: path.stem)
def test_a_row_is_what_its_file_gives(shared, measured, path):
    entry = read_entry(path)
    file = shared(f"data/{entry.file}")
    check_file(entry, file)
    questions, fps, cases = measured
    loaded = load_selections(file, format=entry.format, questions=questions, fps=fps)
    row = measured_row(entry, {key: selections.times_at(fps[key]) for key, selections in loaded.items()}, cases)
    assert row.texts in read_rows(RESULTS)
    assert max(selections.n_keyframes for selections in loaded.values()) == entry.k


def test_the_baselines_are_what_they_were(measured):
    stated = read_rows(RESULTS)
    for k in sorted({int(row[1]) for row in stated}):
        assert {row.texts for row in baseline_rows(measured[2], k)} <= set(stated)


def test_toolmerges_recall_is_the_recorded_one():
    rows = {row[:2]: dict(zip(COLUMNS, row, strict=True)) for row in read_rows(RESULTS)}
    names = ("long@1", "long@2", "long@5", "medium@1", "medium@2", "medium@5")
    recorded = {
        "8": ("0.1168", "0.1787", "0.3339", "0.1895", "0.3192", "0.5510"),
        "32": ("0.1802", "0.2747", "0.5472", "0.2944", "0.5011", "0.7862"),
    }
    for k, figures in recorded.items():
        row = rows["ToolMerge (Qwen3-VL-8B)", k]
        assert tuple(row[name] for name in names) == figures


def test_the_page_shows_the_figures_of_the_csv_file():
    page = (ROOT / "docs/leaderboard.md").read_text(encoding="utf-8")
    table = to_markdown(leaderboard_table(read_rows(RESULTS))).strip()
    assert table.replace("### ", "## ") in page


def test_adding_again_replaces_and_a_file_of_another_hash_is_refused(shared, tmp_path):
    results, page = tmp_path / "r.csv", tmp_path / "page.md"
    page.write_text("before\n<!-- leaderboard -->\nold\n<!-- end of leaderboard -->\nafter\n")
    entry = ROOT / "configs/leaderboard/wfs_sb_16.yaml"
    arguments = ["leaderboard", "add", entry, "--files", shared("data"), "--annotations", shared("data/lvb_val.json")]
    arguments += ["--rates", shared("data/lvb_val_fps.csv"), "--results", results, "--page", page]
    for _ in range(2):
        done = CliRunner().invoke(app, [str(item) for item in [*arguments, "--entries", entry.parent]])
        assert done.exit_code == 0, done.output
    rows = read_rows(results)
    assert [row[0] for row in rows] == ["random", "uniform", "WFS-SB"]
    assert set(rows) <= set(read_rows(RESULTS))
    assert page.read_text().startswith("before\n<!-- leaderboard -->\n")
    assert "old" not in page.read_text()
    with pytest.raises(InvalidInput, match="the entry 'WFS-SB'"):
        check_file(read_entry(entry), shared("data/qca_longvideobench_64.json"))


def test_an_entry_or_page_that_is_none_says_so(tmp_path):
    path = tmp_path / "e.yaml"
    path.write_text("name: X\nframes: 8\n")
    with pytest.raises(InvalidInput, match="not a leaderboard entry"):
        read_entry(path)
    with pytest.raises(InvalidInput, match="put the table between"):
        update_page(path, "x")
    path.write_text("a,b\n1,2\n")
    with pytest.raises(InvalidInput, match="its columns are a, b"):
        read_rows(path)
    write_rows(tmp_path / "new.csv", replaced([], []))
    assert read_rows(tmp_path / "new.csv") == []
