"""Autocorrelation of relevance against signals whose curve is known; the script that draws it."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from focus_eval.bench.report.figures import COLUMN_INCHES, save_figure
from focus_eval.core.errors import InvalidInput
from research.scripts.draw_autocorrelation import (
    autocorrelation,
    draw_autocorrelation,
    half_life,
    relevance_autocorrelation,
)
from tests.bench.report.simulated import Simulation, simulate_run

SCRIPT = Path(__file__).resolve().parents[2] / "research" / "scripts" / "draw_autocorrelation.py"


def grid_row(template, relevance, *, video="v.mp4", step=24):
    """Return the row with relevance recorded every `step` frames, of a video at 24 frames a second."""
    return replace(
        template,
        video=video,
        fps=24.0,
        error=None,
        n_frames=step * len(relevance),
        pulled_frames=[step * i for i in range(len(relevance))],
        pulled_relevance=[float(value) for value in relevance],
    )


@pytest.fixture
def template(demo_run):
    return next(iter(demo_run.selections))


def test_autocorrelation_is_the_sum_of_products():
    values = np.random.default_rng(0).random(50)
    centred = values - values.mean()
    by_hand = [(centred[: 50 - lag] * centred[lag:]).sum() / (centred**2).sum() for lag in range(50)]
    assert autocorrelation(values) == pytest.approx(by_hand)


def test_the_half_life_of_an_autoregression_is_found(template):
    # r_t = 0.9 r_{t-1} + e has autocorrelation 0.9^lag, which is one half at 6.58 s.
    rng = np.random.default_rng(1)
    rows = []
    for video in range(60):
        noise = rng.normal(0, 0.02, 4000)
        series = np.zeros(4000)
        for i in range(1, 4000):
            series[i] = 0.9 * series[i - 1] + noise[i]
        rows.append(grid_row(template, 0.5 + series, video=f"v{video}.mp4"))
    curve = relevance_autocorrelation(rows, max_lag_seconds=30)
    assert curve.half_life_seconds == pytest.approx(np.log(0.5) / np.log(0.9), rel=0.05)
    assert curve.lags_seconds.tolist() == list(range(31))
    assert (curve.low <= curve.median).all()
    assert (curve.videos, curve.questions, curve.flat) == (60, 60, 0)


def test_half_life_lies_between_two_lags():
    assert half_life(np.array([0.0, 1.0, 2.0]), np.array([1.0, 0.7, 0.3])) == pytest.approx(1.5)
    assert half_life(np.array([0.0, 1.0]), np.array([1.0, 0.7])) is None


def test_pulls_off_a_grid_and_flat_relevance_do_not_count(template):
    wave = 0.5 + 0.4 * np.sin(np.arange(100) / 9)
    off_grid = replace(grid_row(template, wave), pulled_frames=[0, 5, *range(30, 128)])
    flat = grid_row(template, np.full(100, 0.3), video="flat.mp4")
    with pytest.raises(InvalidInput, match="regular grid"):
        relevance_autocorrelation([off_grid])
    curve = relevance_autocorrelation([off_grid, flat, grid_row(template, wave, video="w.mp4")])
    assert (curve.videos, curve.questions, curve.flat) == (1, 1, 1)


def test_figures_are_written_as_vector_and_png_in_column_width(demo_run, tmp_path):
    rows = [row for row in demo_run.selections if row.sampler == "topk"]
    acf = draw_autocorrelation(relevance_autocorrelation(rows))
    assert acf.get_size_inches()[0] == COLUMN_INCHES
    for name in ("acf.pdf", "acf.svg", "acf.png"):
        vector, png = save_figure(acf, tmp_path / name)
        assert vector.suffix in (".pdf", ".svg")
        assert vector.stat().st_size > 3000
        assert Image.open(png).size[0] == pytest.approx(COLUMN_INCHES * 300, abs=2)


def test_the_script_draws_a_run_and_prints_the_half_life(tmp_path):
    run = simulate_run(tmp_path / "run", Simulation(n_questions=6))
    out = tmp_path / "acf.png"
    command = [sys.executable, str(SCRIPT), str(run), "--out", str(out)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert re.search(r"half-life \d+\.\d s; \d+ videos, \d+ questions", printed)
    assert out.exists()
    assert out.with_suffix(".pdf").exists()
    refused = subprocess.run([*command, "--sampler", "focus"], capture_output=True, text=True, check=False)
    assert "regular grid" in refused.stderr
