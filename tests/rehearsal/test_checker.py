"""Every figure of a report is what independent formulas give from its rows; a wrong one is found."""

from __future__ import annotations

import csv
import dataclasses
import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from focus_eval.cli import app
from focus_eval.keyframes.rows.records import AnswerRow, SelectionRow
from tests.support.bench.report_check import check_report

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A folder of rows and its report: three samplers, two seeds, two questions on each of six videos.

    One answer failed, one cannot be parsed; seed 1 found its frames in the store.
    """
    folder = tmp_path_factory.mktemp("reported") / "run"
    selections, answers = [], []
    for sampler in ("uniform", "focus", "scan_cover"):
        for seed in (0, 1):
            for at in range(12):
                selections.append(_selection(sampler, seed, at))
                answers.append(_answer(sampler, seed, at))
    for kind, rows in (("selections", selections), ("answers", answers)):
        (folder / kind / "part").mkdir(parents=True)
        lines = [json.dumps(dataclasses.asdict(row)) for row in rows]
        (folder / kind / "part" / "rank0.jsonl").write_text("\n".join(lines) + "\n")
    result = CliRunner().invoke(app, ["report", str(folder), "--no-html"])
    assert result.exit_code == 0, result.output
    return folder


@pytest.fixture
def reported(written, tmp_path):
    """A copy that a test may change."""
    return Path(shutil.copytree(written, tmp_path / "run"))


def test_every_figure_of_a_report_is_computed_again_from_its_rows(reported):
    checked = check_report(reported)
    assert checked.wrong == []
    assert checked.unknown == set()
    assert checked.figures > 40


COLUMNS = (
    "Overall", "Overall low", "Frames scored (%)", "Forward equivalents (%)", "Device-hours (cpu)", "unparsed", "p",
)  # fmt: skip


@pytest.mark.parametrize("column", COLUMNS)
def test_a_figure_that_the_rows_do_not_give_is_found(reported, column):
    name = "report-against_baseline.csv" if column == "p" else "report.csv"
    with open(reported / name, newline="") as file:
        lines = list(csv.DictReader(file))
    line = next(item for item in lines if item[column])
    line[column] = str(float(line[column]) + 0.01)
    with open(reported / name, "w", newline="") as file:
        writer = csv.DictWriter(file, list(lines[0]))
        writer.writeheader()
        writer.writerows(lines)
    wrong = check_report(reported).wrong
    assert len(wrong) == 1
    assert column in wrong[0]


def _selection(sampler, seed, at):
    """Return one selection; only seed 0 computed its forwards, seed 1 found them in the store."""
    pulled = list(range(at + 3)) if sampler != "uniform" else []
    scanned = [*range(0, 60, 5), 60 + at] if sampler == "scan_cover" else []
    is_computed = seed == 0
    return SelectionRow(
        benchmark="longvideobench", question_id=f"q{at}", video=_video(at), query="what?",
        selection_id=f"{sampler}{seed}", sampler=sampler, options={}, encoder="blip" if pulled else "",
        encoder_revision="", k=2, seed=seed, bucket=("short", "medium", "long")[at // 2 % 3], duration_seconds=100.0,
        n_frames=1000, fps=10.0, keyframes=[10, 500], times_seconds=[1.0, 50.0 + at * seed], device="cpu",
        pulled_frames=pulled, evidence_seconds=[1.5, 52.0], pulled_relevance=[0.5] * len(pulled),
        scan_encoder="clip" if scanned else "", scanned_frames=scanned, scan_forwards=len(scanned) * is_computed,
        gmacs={"image": 191.1, "keys": 10.9, "fusion": 3.9, "scan_image": 4.4} if pulled else {},
        seconds={"open": 0.5, "scan": 0.2 * len(scanned) * is_computed, "encode": 4.0 * len(pulled) * is_computed,
                 "select": 1.0, "idle": 0.25 * at, "decode": 9.0},
        forwards=len(pulled) * is_computed,
    )  # fmt: skip


def _video(at):
    return f"v{at // 2}.mp4"


def _answer(sampler, seed, at):
    """Return one answer; one of focus failed, and one of uniform cannot be parsed."""
    failed = sampler == "focus" and seed == 1 and at == 5
    parsed = None if failed or (sampler == "uniform" and at == 1) else "A"
    return AnswerRow(
        benchmark="longvideobench", question_id=f"q{at}", video=_video(at), selection_id=f"{sampler}{seed}",
        cell_id=f"{sampler}{seed}", cell=f"{sampler}{seed}", model="m", bucket=("short", "medium", "long")[at // 2 % 3],
        frames_asked=2, frames_chosen=2, frames_fed=2, answer="A", parsed=parsed, correct_answer="A",
        score=float(parsed is not None and (sampler != "uniform" or (at + seed) % 3 == 0)),
        error="broken" if failed else None,
    )  # fmt: skip
