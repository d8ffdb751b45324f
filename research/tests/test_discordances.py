"""configs/public/discordance.yaml is what research/scripts/discordances.py derives from the public logs."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from research.scripts import discordances


def test_the_table_has_a_line_for_each_benchmark_and_that_of_mlvu_is_what_its_logs_give(shared):
    text = discordances.FILE.read_text(encoding="utf-8")
    assert text.startswith(discordances.HEADER)
    lines = text.removeprefix(discordances.HEADER).splitlines(keepends=True)
    assert [line.partition(":")[0] for line in lines] == [*discordances.LOGS]
    assert discordances.line(shared("data"), "mlvu") == lines[-1]


def test_the_correlation_within_videos_is_the_one_that_differences_were_drawn_with():
    rng, n_videos, per_video, share, correlation = np.random.default_rng(0), 3000, 5, 0.3, 0.4
    # A question repeats the difference of its video with this chance, so that two of a video do with its square.
    of_video = rng.choice([-1, 0, 1], (n_videos, 1), p=[share / 2, 1 - share, share / 2])
    of_question = rng.choice([-1, 0, 1], (n_videos, per_video), p=[share / 2, 1 - share, share / 2])
    differences = np.where(rng.random(of_question.shape) < correlation**0.5, of_video, of_question).ravel()
    videos = np.repeat(np.arange(n_videos), per_video)
    uniform = pd.DataFrame({"score": (differences < 0).astype(float), "video": videos})
    aks = uniform.assign(score=uniform["score"] + differences)
    measured_share, measured_correlation = discordances.discordance(uniform, aks)
    assert measured_share == pytest.approx(share, abs=0.01)
    assert measured_correlation == pytest.approx(correlation, abs=0.03)
