"""Power before effort: what a number of questions can show, and how many videos would show more."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import stdtrit
from typer.testing import CliRunner

from focus_eval.bench.report.comparisons import baseline_table, comparison_table
from focus_eval.bench.report.run import load_run
from focus_eval.bench.report.statistics import (
    PUBLISHED,
    Discordance,
    compare_paired,
    detectable_difference,
    least_difference,
    more_videos_text,
    power_reach,
    standard_error,
    t_quantile,
    videos_needed,
)
from focus_eval.cli import app
from focus_eval.core.errors import InvalidInput
from tests.bench.report.simulated import Simulation, simulate_run

# Questions per video of LongVideoBench val: 357 videos have one, 208 two, 188 three.
LONGVIDEOBENCH = [1] * 357 + [2] * 208 + [3] * 188


def test_longvideobench_shows_3_6_points_and_mlvu_test_5_to_6():
    assert sum(LONGVIDEOBENCH) == 1337
    assert round(100 * least_difference(LONGVIDEOBENCH, PUBLISHED), 1) == 3.6
    assert 5 < 100 * least_difference([1] * 502, PUBLISHED) < 6


def test_a_planned_difference_is_the_one_that_is_detected_afterwards():
    rng = np.random.default_rng(0)
    videos = np.repeat(np.arange(753), LONGVIDEOBENCH)
    differences = rng.choice([-1, 0, 1], size=videos.size, p=[0.1, 0.79, 0.11])
    effect = standard_error(differences, videos.tolist()) ** 2 * videos.size / differences.var()
    repeats = sum(n**2 for n in LONGVIDEOBENCH) / videos.size - 1
    discordance = Discordance(share=differences.var(), video_correlation=(effect - 1) / repeats)
    assert least_difference(LONGVIDEOBENCH, discordance) == pytest.approx(
        detectable_difference(differences, videos.tolist()), rel=0.005
    )


def test_a_difference_of_the_least_size_is_found_in_four_of_five_runs():
    rng, n_detected = np.random.default_rng(1), 0
    detectable = least_difference([1] * 400, Discordance(share=0.2))
    for _ in range(200):
        differences = rng.choice([-1, 0, 1], size=400, p=[(0.2 - detectable) / 2, 0.8, (0.2 + detectable) / 2])
        comparison = compare_paired(differences < 0, differences > 0, list(range(400)))
        n_detected += comparison.p_value < 0.05
    assert 0.7 < n_detected / 200 < 0.9


@given(st.floats(0.005, 0.2), st.integers(2, 5000), st.floats(0.002, 0.3))
def test_the_videos_needed_are_the_fewest_that_show_it(detectable, videos, difference):
    n_needed = videos_needed(detectable, videos, difference)
    detectable_by_count = (
        detectable
        / power_reach(videos)
        * np.sqrt(videos)
        * np.array([power_reach(number) / np.sqrt(number) for number in (n_needed, max(2, n_needed - 1))])
    )
    assert detectable_by_count[0] <= difference * (1 + 1e-9)
    assert n_needed == 2 or detectable_by_count[1] > difference * (1 - 1e-9)
    assert videos_needed(detectable, videos, detectable) == videos


@pytest.mark.parametrize("share", [0.6, 0.8, 0.975, 0.995])
def test_the_quantiles_of_t_are_scipys(share):
    for freedom in (*range(1, 300), 1000, 9175, 10**5):
        assert t_quantile(share, freedom) == pytest.approx(stdtrit(freedom, share), rel=1e-9)


def test_one_video_says_nothing_of_power():
    with pytest.raises(InvalidInput, match="at least two videos"):
        least_difference([5], PUBLISHED)
    with pytest.raises(InvalidInput, match="a share of the questions"):
        Discordance(share=21.0)
    with pytest.raises(InvalidInput, match="differences above 0"):
        videos_needed(0.03, 100, 0.0)


def test_a_comparison_says_what_it_can_show(tmp_path):
    run = load_run(simulate_run(tmp_path / "r", Simulation(n_questions=90, samplers=("uniform", "topk"))))
    table = baseline_table(run)
    note = next(note for note in table.notes if note.startswith("Power (80 %)"))
    assert "in the line with the largest spread, to show 2 points takes " in note
    assert "more videos like these, 1 point " in note
    assert comparison_table([], name="n", title="t").rows == ()


def test_a_plan_states_what_its_questions_can_show():
    arguments = ["plan", "by_length", "--only", "benchmark=longvideobench", "--only", "sampler=uniform"]
    result = CliRunner().invoke(app, arguments)
    output = " ".join(result.output.split())
    assert "1,337 questions on 753 videos can show a difference of 3.6 points with 80 % power" in output
    result = CliRunner().invoke(app, [*arguments, "--discordance", "0.4"])
    assert "a difference of 5.0 points" in " ".join(result.output.split())
    result = CliRunner().invoke(app, [*arguments, "--discordance", "21"])
    assert "above 0 and at most 1, got 21" in str(result.exception)


def test_a_text_names_points_and_videos():
    assert more_videos_text(0.01, 1000) == "to show 2 points takes no more videos like these, 1 point no"
    assert more_videos_text(0.036, 753) == "to show 2 points takes 1,683 more videos like these, 1 point 8,983"
