"""Annotations as they are published: nested, gzipped, with a file beside; the real ones where they are at hand."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from focus_eval.bench.benchmarks.question import FileShape, documents_in
from focus_eval.bench.benchmarks.registry import make_benchmark, read_annotations, stated_rates
from focus_eval.core.errors import InvalidInput

# Benchmark -> file, questions, those with evidence, videos, questions with a rate; seconds of its evidence intervals at
# 10, 50 and 90 %.
REAL = {
    "lvbench": ("lvbench_video_info.meta.jsonl.gz", 1549, 1534, 103, 1549, (0, 17, 900)),
    "cgbench": ("cgbench_mini.json.gz", 3000, 3000, 1118, 3000, (2, 8, 34)),
    "vue_tr_v2": ("vue_tr_v2_ground_truth.json.gz", 1600, 1600, 847, 0, (1, 8, 84)),
    "nextgqa": ("nextgqa/val.csv", 3358, 3358, 567, 3358, (2, 4, 14)),
}


@pytest.mark.parametrize("name", REAL)
def test_the_published_file_is_read_whole(shared, name):
    file, n_questions, n_with_evidence, n_videos, n_rates, lengths = REAL[name]
    questions = read_annotations(name, shared(f"data/field/evidence/{file}"))
    assert len(questions) == n_questions
    assert sum(bool(question.evidence_intervals) for question in questions) == n_with_evidence
    assert len({question.video for question in questions}) == n_videos
    assert len(stated_rates(questions)) == n_rates
    seconds = [stop - start for question in questions for start, stop in question.evidence_intervals]
    assert tuple(np.percentile(seconds, [10, 50, 90]).round()) == lengths


def test_every_question_of_lvbench_is_asked_and_15_have_evidence_that_cannot_be_read(shared):
    questions = read_annotations("lvbench", shared("data/field/evidence/lvbench_video_info.meta.jsonl.gz"))
    unread = [question.evidence_unread for question in questions if question.evidence_unread]
    assert len(unread) == 15
    assert sum("'None'" in reason for reason in unread) == 2
    assert all(question.answer in "ABCD" and len(question.options) == 4 for question in questions)
    past_an_hour = [question for question in questions if any(stop >= 6000 for _, stop in question.evidence_intervals)]
    assert len(past_an_hour) == 37  # "101:21" and the like


def test_almost_a_third_of_cg_bench_evidence_starts_in_the_first_tenth_of_its_video(shared):
    questions = read_annotations("cgbench", shared("data/field/evidence/cgbench_mini.json.gz"))
    starts = [start / item.duration_seconds for item in questions for start, _ in item.evidence_intervals]
    assert 0.28 < np.mean(np.array(starts) < 0.1) < 0.30


def test_a_file_nested_by_video_gives_a_document_per_question_with_the_videos_fields():
    rows = [{"key": "v", "fps": 24, "qa": [{"uid": 1}, {"uid": 2}]}]
    documents = list(documents_in(rows, FileShape(nested="qa"), Path("a.jsonl")))
    assert documents == [{"key": "v", "fps": 24, "uid": 1}, {"key": "v", "fps": 24, "uid": 2}]
    flat = [{"uid": 1, "question": "q"}]  # lmms-eval's own documents are not nested
    assert list(documents_in(flat, FileShape(nested="qa"), Path("a.jsonl"))) == flat


def test_a_nested_field_that_is_no_list_names_file_and_row():
    rows = [{"qa": [{"uid": 1}]}, {"qa": "later"}]
    with pytest.raises(InvalidInput, match=r"a\.jsonl: row 1: qa must be a list of questions, got str"):
        list(documents_in(rows, FileShape(nested="qa"), Path("a.jsonl")))


@pytest.mark.parametrize("packed", [False, True])
def test_the_file_beside_the_annotation_adds_to_each_document(tmp_path, packed):
    details = json.dumps({"v": {"duration": 30, "fps": 25, "location": {"0": [[1.5, 4]]}}})
    if packed:
        (tmp_path / "gsub_val.json.gz").write_bytes(gzip.compress(details.encode()))
    else:
        (tmp_path / "gsub_val.json").write_text(details)
    header = "video_id,question,answer,qid,type,a0,a1,a2,a3,a4\n"
    (tmp_path / "val.csv").write_text(header + 'v,"why,\nthen?",b,0,CW,a,b,c,d,e\nw,where?,a,0,CW,a,b,c,d,e\n')
    first, second = read_annotations("nextgqa", tmp_path / "val.csv")
    assert (first.id, first.answer, first.duration_seconds, first.fps) == ("v_0", "B", 30.0, 25.0)
    assert (first.evidence_intervals, second.evidence_intervals) == (((1.5, 4.0),), ())


def test_a_shape_says_both_file_and_key():
    with pytest.raises(InvalidInput, match="give both"):
        FileShape(beside="x.json")


def test_a_broken_gzip_is_refused_in_one_line(tmp_path):
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"uid": "1"}\n' * 1000)[:40])
    with pytest.raises(InvalidInput, match="not a whole gzip file"):
        read_annotations(make_benchmark("lvbench"), path)
