"""Do the published annotations become the questions that the protocol counts?"""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pytest

from focus_eval.bench.benchmarks.question import split_question
from focus_eval.bench.benchmarks.registry import make_benchmark, read_annotations, read_rates


@pytest.fixture(scope="module")
def longvideobench(shared):
    return read_annotations("longvideobench", shared("data/lvb_val.json"))


@pytest.fixture(scope="module")
def mlvu(shared):
    return read_annotations("mlvu", shared("data/mlvu_dev.json"))


def test_longvideobench_counts_are_those_of_the_published_tables(longvideobench):
    benchmark = make_benchmark("longvideobench")
    assert len(longvideobench) == 1337
    assert len({question.id for question in longvideobench}) == 1337
    assert len({question.video for question in longvideobench}) == 753
    buckets = Counter(benchmark.bucket(question.duration_seconds) for question in longvideobench)
    assert buckets == {"short": 361, "medium": 700, "long": 276}


def test_one_longvideobench_position_lies_past_its_video_and_is_counted(longvideobench):
    dropped = {question.id: question.n_evidence_dropped for question in longvideobench}
    assert {key: count for key, count in dropped.items() if count} == {"Z-1lgAXOEc8_0": 1}
    assert sum(len(question.evidence_seconds) for question in longvideobench) == 2395


def test_longvideobench_letters_point_at_the_annotated_option(longvideobench, shared):
    rows = {row["id"]: row for row in json.loads(shared("data/lvb_val.json").read_text())}
    for question in longvideobench:
        row = rows[question.id]
        assert question.options["ABCDE".index(question.answer)] == row["candidates"][row["correct_choice"]]
        assert question.query == row["question"].strip()


@pytest.mark.parametrize(
    ("bucket", "within_seconds", "expected"),
    [("short", 1, 1.0), ("medium", 1, 0.2621), ("long", 1, 0.0938), ("long", 2, 0.1681), ("long", 5, 0.4135)],
)
def test_uniform_frames_find_the_published_share_of_evidence(longvideobench, shared, bucket, within_seconds, expected):
    benchmark, rates = make_benchmark("longvideobench"), read_rates(shared("data/lvb_val_fps.csv"))
    recalls = []
    for question in longvideobench:
        if benchmark.bucket(question.duration_seconds) != bucket:
            continue
        info = rates[question.id].info
        times = np.linspace(0, info.n_frames - 1, 64) / info.fps
        gaps = np.abs(np.asarray(question.evidence_seconds)[:, None] - times).min(axis=1)
        recalls.append((gaps <= within_seconds).mean())
    assert round(float(np.mean(recalls)), 4) == expected


def test_the_rates_give_the_frames_that_the_cost_table_is_made_of(longvideobench, shared):
    rates = read_rates(shared("data/lvb_val_fps.csv"))
    assert set(rates) == {question.id for question in longvideobench}
    assert round(sum(rate.n_frames for rate in rates.values()) / 1e6, 2) == 26.78


def test_videomme_buckets_are_its_own_field(shared):
    questions = read_annotations("videomme", shared("data/videomme.json"))
    assert len({question.id for question in questions}) == len(questions) == 2700
    assert len({question.video for question in questions}) == 900
    assert Counter(question.bucket for question in questions) == {"short": 900, "medium": 900, "long": 900}
    assert all(len(question.options) == 4 and question.duration_seconds is None for question in questions)
    assert not any(option[:3] in ("A. ", "B. ", "C. ", "D. ") for item in questions for option in item.options)


def test_mlvu_options_are_split_off_the_question_and_equal_the_candidates(mlvu, shared):
    rows = json.loads(shared("data/mlvu_dev.json").read_text())
    assert len({question.id for question in mlvu}) == len(mlvu) == 2174
    for question, row in zip(mlvu, rows, strict=True):
        assert list(question.options) == [option.strip() for option in row["candidates"]]
        assert row["question"].startswith(question.query)
        assert not any(mark in question.query for mark in ("\n", "(A)", "(B)", "(C)", "(D)"))


def test_mlvu_ids_do_not_depend_on_the_fields_lmms_eval_leaves_out(mlvu, shared):
    benchmark = make_benchmark("mlvu")
    for question, row in zip(mlvu, json.loads(shared("data/mlvu_dev.json").read_text()), strict=True):
        document = {name: row[name] for name in ("video_name", "question", "answer", "task_type")}
        assert benchmark.question(document).id == question.id
        bare = {**row, "question": split_question(row["question"])[0]}
        assert benchmark.question(bare).id == question.id


def test_mlvu_buckets_follow_the_edges_it_is_given(mlvu):
    default, narrow = make_benchmark("mlvu"), make_benchmark("mlvu", edges_seconds=(460, 499))
    assert sum(Counter(default.bucket(item.duration_seconds) for item in mlvu).values()) == 2174
    counts = Counter(narrow.bucket(item.duration_seconds) for item in mlvu)
    assert min(counts[name] for name in ("short", "medium", "long")) > 600
