"""What the page carries: every question whole, thumbnails within a number of bytes, the same rows the same page."""

from __future__ import annotations

import base64
import gzip
import json
import re
import time
from dataclasses import replace

import pytest

from focus_eval.bench.report.page.browser import CHUNK_QUESTIONS, json_for_script, pack_browser
from focus_eval.bench.report.page.html import render_html, write_html
from focus_eval.bench.report.page.thumbnails import Pictures
from focus_eval.bench.report.run import Run, load_run
from tests.bench.report.simulated import Simulation, simulate_run, simulated_parts

from .conftest import pictures


def test_no_text_of_the_data_ends_a_script_element(hostile_run):
    text = render_html(hostile_run)
    assert "alert(" not in re.sub(r'<script type="application/json".*?</script>', "", text, flags=re.S)
    assert text.count("<script") == text.count("</script>")
    assert json.loads(json_for_script(["</script><!--", "\u2028"])) == ["</script><!--", "\u2028"]


def test_a_chunk_holds_its_questions_whole(by_length_run):
    browser = pack_browser(by_length_run)
    first = json.loads(gzip.decompress(base64.b64decode(browser.chunks[0])))
    assert len(first) == CHUNK_QUESTIONS
    assert len(browser.chunks) == 3
    names = [item["name"] for item in browser.index["series"]]
    row = next(row for row in by_length_run.selections if row.question_id == "q00007" and row.sampler == "topk")
    assert first[7]["series"][names.index("topk")]["frames"] == row.keyframes
    assert first[7]["series"][names.index("topk")]["pulls"] == len(row.pulled_frames)
    assert first[7]["evidence"] == pytest.approx(row.evidence_seconds, abs=0.01)


@pytest.mark.parametrize(
    ("samplers", "pair"),
    [
        (("uniform", "topk", "focus"), ["focus", "uniform"]),
        (("focus", "topk"), ["topk", "focus"]),
        (("aks", "focus"), ["focus", "aks"]),
        (("topk", "aks"), ["topk", "aks"]),
    ],
)
def test_the_page_compares_two_samplers_also_without_uniform(tmp_path, samplers, pair):
    run = load_run(simulate_run(tmp_path / "run", Simulation(n_questions=3, samplers=samplers)))
    assert sorted(pack_browser(run).index["pair"]) == sorted(pair)


@pytest.mark.parametrize(("n_bytes", "n_pictured"), [(30, 2), (9_000, 0)])
def test_a_picture_that_is_larger_than_all_that_is_left_is_not_taken(by_length_run, n_bytes, n_pictured):
    row = next(row for row in by_length_run.selections if row.sampler == "topk")
    made = Pictures(lambda video, frames: dict.fromkeys(frames, b"x" * n_bytes), budget_bytes=9_000, n_questions=2)
    for number in range(2):
        made.add(number, [row])
    assert len(made.taken) == n_pictured


def details_of(browser):
    return [load for chunk in browser.chunks for load in json.loads(gzip.decompress(base64.b64decode(chunk)))]


def test_a_budget_of_bytes_takes_frames_from_every_question_not_questions(by_length_run):
    budget = 600_000
    small_browser = pack_browser(by_length_run, thumbnails=pictures, thumbnail_bytes=budget)
    details = details_of(small_browser)
    assert small_browser.pictured == 119  # one question has no selection
    assert sum(len(text) for detail in details for text in detail["pictures"].values()) <= budget
    for detail in details:
        assert not detail["pictures"] or str(detail["evidence_frames"][0]) in detail["pictures"]
    link = {"thumbnails": lambda video, frames: {f: f"thumbs/{f}.jpg" for f in frames}, "thumbnail_bytes": None}
    linked = pack_browser(by_length_run, **link)
    for item in details_of(linked):
        frames = {frame for series in item["series"] for frame in series["frames"]}
        assert {int(frame) for frame in item["pictures"]} == frames | (
            set(item["evidence_frames"]) if frames else set()
        )


@pytest.mark.slow
def test_the_same_rows_give_the_same_page(demo_run):
    assert render_html(demo_run) == render_html(demo_run)


@pytest.mark.slow
def test_a_page_of_many_questions_stays_small_and_opens(opened, tmp_path, capsys):
    parts = []
    for benchmark in ("longvideobench", "videomme"):
        simulation = Simulation(n_questions=150, samplers=("uniform", "topk", "focus"), k=64, benchmark=benchmark)
        parts += simulated_parts(simulation)
    run = Run(
        "large",
        [row for _, rows, _ in parts for row in rows],
        [row for _, _, answers in parts for rows in answers.values() for row in rows],
    )
    path = write_html(run, tmp_path / "large.html")
    size = path.stat().st_size / 1e6
    began = time.perf_counter()
    browser = opened(path)
    browser.page.wait_for_selector("#detail .time .key")
    seconds = time.perf_counter() - began
    began = time.perf_counter()
    browser.page.locator("#list button").nth(30).click()
    browser.page.wait_for_function("document.querySelector('#detail h3').textContent.includes('scene 30')")
    click = time.perf_counter() - began
    with capsys.disabled():
        print(f"\n300 questions, 3 samplers: {size:.1f} MB, opens in {seconds:.2f} s, one question in {click:.2f}")
    assert size < 1.8
    assert browser.listed() == "300 of 300 questions"
    assert browser.problems == []


def test_a_benchmark_that_no_model_has_answered_yet_is_listed_too(tmp_path):
    """As in a run that is stopped between two benchmarks, or while its rows still come."""
    simulations = [Simulation(n_questions=3, benchmark=name) for name in ("longvideobench", "videomme")]
    (_, first_rows, answers), *_ = simulated_parts(simulations[0])
    (_, second_rows, _), *_ = simulated_parts(simulations[1])
    replies = [row for rows in answers.values() for row in rows]
    browser = pack_browser(Run("going on", [*first_rows, *second_rows], replies))
    assert [line[1] for line in browser.index["questions"]] == ["longvideobench"] * 3 + ["videomme"] * 3
    # A selection of the first benchmark that has no cell yet is in no series: its questions wait for their answers.
    new_rows = [replace(row, question_id=f"new {row.question_id}", selection_id="new") for row in first_rows]
    assert len(pack_browser(Run("going on", [*first_rows, *new_rows], replies)).index["questions"]) == 3
