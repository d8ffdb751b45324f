"""Selections as published: evidence recall of the real files; what lies outside is left out and counted."""

from __future__ import annotations

import json
from functools import cache

import pytest

from focus_eval.bench.benchmarks.registry import frame_rates, read_annotations, read_rates
from focus_eval.bench.report.recall import evidence_cases
from focus_eval.core.errors import SelectionMismatch
from focus_eval.core.types import Question
from focus_eval.external.imports.loading import load_selections, selection_rows
from focus_eval.external.selection_layouts import moment_means, shown_frames

# Selection -> recall within 1, 2 and 5 s: 180 to 1200 s, then above.
REAL = {
    "wfs_lvb_8": ((0.287, 0.409, 0.549), (0.200, 0.286, 0.422)),
    "wfs_lvb_32": ((0.497, 0.615, 0.727), (0.335, 0.428, 0.568)),
    "aks_lvb_32": ((0.521, 0.616, 0.723), (0.450, 0.524, 0.588)),
    "tspo_longvideobench_64": ((0.631, 0.715, 0.790), (0.486, 0.554, 0.632)),
    "kfs_ascs_lvb_64": ((0.607, 0.740, 0.875), (0.407, 0.526, 0.712)),
}
FORMATS = {"wfs_lvb_8": "wfs", "tspo_longvideobench_64": "wfs", "kfs_ascs_lvb_64": "kfs", "aks_lvb_32": "aks"}


@cache
def benchmark(annotation, rates):
    questions, rate_of = read_annotations("longvideobench", annotation), read_rates(rates)
    return questions, rate_of, evidence_cases("longvideobench", questions, frame_rates(rate_of))


@pytest.mark.parametrize("name", REAL)
def test_a_published_file_gives_the_evidence_recall_of_the_field(shared, name):
    questions, rates, cases = benchmark(shared("data/lvb_val.json"), shared("data/lvb_val_fps.csv"))
    path = shared(f"data/field/selections/{name}.json.gz")
    loaded = load_selections(path, questions=questions, fps=frame_rates(rates), allow_outside=True)
    assert len(loaded) == 1337
    assert {entry.selection.sampler for entry in loaded.values()} == {FORMATS.get(name, "wfs")}
    rows = selection_rows(loaded, questions, rates, name=name)
    table = moment_means(cases, {name: shown_frames(rows)}).set_index("bucket")
    for bucket, expected in zip(("medium", "long"), REAL[name], strict=True):
        measured = [table.loc[bucket, f"recall@{d}"] for d in (1, 2, 5)]
        assert measured == pytest.approx(expected, abs=6e-4)
    assert len(loaded.left_out) == (name == "wfs_lvb_32")


@pytest.mark.parametrize(("encoder", "recall"), [("blip", 0.417), ("clip", 0.269)])
def test_a_third_partys_aks_finds_long_evidence_more_often_with_blip(shared, encoder, recall):
    questions, rates, cases = benchmark(shared("data/lvb_val.json"), shared("data/lvb_val_fps.csv"))
    path = shared(f"data/field/selections/aks_lvb_{encoder}_32_yunseok.json.gz")
    loaded = load_selections(path, format="aks", questions=questions, fps=frame_rates(rates))
    rows = selection_rows(loaded, questions, rates, name="aks")
    table = moment_means(cases, {"aks": shown_frames(rows)}).set_index("bucket")
    assert table.loc["long", "recall@2"] == pytest.approx(recall, abs=6e-4)


def test_wfs_sbs_32_frames_are_refused_whole_unless_what_is_outside_may_go(shared):
    questions, rates, _ = benchmark(shared("data/lvb_val.json"), shared("data/lvb_val_fps.csv"))
    fps = frame_rates(rates)
    path = shared("data/field/selections/wfs_lvb_32.json.gz")
    with pytest.raises(SelectionMismatch, match=r"row 1307 \(3hyPwjkdHEA_1\): frame 9180 \(459\.0 s\) asked"):
        load_selections(path, questions=questions, fps=fps)
    loaded = load_selections(path, questions=questions, fps=fps, allow_outside=True)
    assert len(loaded["3hyPwjkdHEA_1"].shown) == 30
    assert loaded.left_out[0].endswith("2 of 32 frames left out")


def question(name):
    return Question(benchmark="b", id=name, query="q?", options=(), video="v.mp4", answer=None, duration_seconds=100.0)


def written(folder, value):
    path = folder / "chosen.json"
    path.write_text(json.dumps(value))
    return path


def test_a_selection_that_lies_outside_altogether_and_a_foreign_row_are_left_out(tmp_path):
    rows = [{"id": "a", "frame_timestamps": [1.0, 300.0]}, {"id": "b", "frame_timestamps": [200.0]}]
    path = written(tmp_path, [*rows, {"id": "z", "frame_timestamps": [1.0]}])
    benchmark_questions = [question("a"), question("b")]
    loaded = load_selections(path, questions=benchmark_questions, allow_outside=True)
    assert {key: entry.selection.times_seconds for key, entry in loaded.items()} == {"a": [1.0]}
    assert [line.rpartition(";")[2].strip() for line in loaded.left_out] == [
        "left out",
        "1 of 2 frames left out",
        "1 of 1 frames left out",
    ]
    with pytest.raises(SelectionMismatch, match="'z' is not a question of this benchmark"):
        load_selections(path, questions=benchmark_questions)


def test_a_file_of_another_benchmark_is_refused_whatever_may_go(tmp_path):
    path = written(tmp_path, [{"id": "z", "frame_timestamps": [1.0]}])
    with pytest.raises(SelectionMismatch, match="'z' is not a question"):
        load_selections(path, questions=[question("a")], allow_outside=True, allow_missing=True)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([{"id": "a", "times": [1]}], "row 0 lacks frame_timestamps; it has: id, times"),
        ({"a": [1]}, "format 'kfs' is a list of rows"),
        ([{"id": "a", "frame_timestamps": "1, 2"}], "expected a list of seconds, got str"),
    ],
)
def test_a_wrong_kfs_file_says_what_is_missing(tmp_path, value, message):
    with pytest.raises(SelectionMismatch, match=message):
        load_selections(written(tmp_path, value), format="kfs")
