"""Intervals and scenes: hits by hand, KFS-Bench's measures against a plain second way, LVBench's real file."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from focus_eval.bench.benchmarks.registry import frame_rates, read_annotations, stated_rates
from focus_eval.bench.report.recall import EvidenceCase, evidence_cases, read_scenes, scene_score
from focus_eval.cli import app
from focus_eval.core.errors import InvalidInput
from focus_eval.external.commands.exchange import known_scenes
from focus_eval.external.imports.loading import load_selections, selection_rows
from focus_eval.external.selection_layouts import SHORT, ShownFrames, interval_figures, interval_table, scene_table
from tests.bench.report.simulated import selection_row_at

HEADER = "id,segment_id,scene_id,start,end\n"


def case(question_id="q", *, bucket="long", seconds=100.0, fps=10.0):
    return EvidenceCase(question_id=question_id, bucket=bucket, evidence_seconds=(), duration_seconds=seconds, fps=fps)


def by_hand(scenes, times):
    """KFS-Bench's three measures, written with loops from its definitions."""

    def is_in(time, scene):
        return any(start <= time <= stop for start, stop in scene)

    true_positives = sum(any(is_in(time, scene) for scene in scenes) for time in times)
    counts = [sum(is_in(time, scene) for time in times) for scene in scenes]
    lengths = [sum(stop - start for start, stop in scene) for scene in scenes]
    n_needed = [
        max(1, math.floor(min(length / sum(lengths) * true_positives, true_positives / len(scenes))))
        for length in lengths
    ]
    recall = sum(count >= n_least for count, n_least in zip(counts, n_needed, strict=True)) / len(scenes)
    best = 0.0
    for tenth in range(11):
        powers = [length ** (tenth / 10) for length in lengths]
        dot = sum(count * power for count, power in zip(counts, powers, strict=True))
        norm = math.sqrt(sum(count**2 for count in counts)) * math.sqrt(sum(power**2 for power in powers))
        best = max(best, dot / norm) if norm else 0.0
    rate = true_positives / len(times)
    return rate, sum(count > 0 for count in counts) / len(scenes), (rate * recall * best) ** (1 / 3)


segments = st.tuples(st.integers(0, 90), st.integers(1, 20)).map(lambda pair: (float(pair[0]), float(sum(pair))))


@given(
    st.lists(st.lists(segments, min_size=1, max_size=3), min_size=1, max_size=4),
    st.lists(st.floats(0, 110).map(lambda value: round(value, 1)), min_size=1, max_size=20),
)
def test_kfs_benchs_measures_equal_a_plain_second_way(scenes, times):
    score = scene_score(scenes, times)
    expected = by_hand(scenes, times)
    assert (score.key_frame_rate, score.scene_hit_rate, score.ukss) == pytest.approx(expected, abs=1e-12)
    assert all(0 <= value <= 1 + 1e-12 for value in expected)


def test_a_long_scene_needs_no_more_than_an_equal_part_of_the_frames():
    # By its length the first scene would need three of the four frames; two are an equal part.
    assert scene_score([[(0.0, 90.0)], [(100.0, 110.0)]], [10.0, 50.0, 102.0, 108.0]).ukss == pytest.approx(1.0)


def test_a_scene_without_a_frame_costs_all_three_measures():
    scenes = [[(0.0, 10.0)], [(20.0, 30.0)]]
    score = scene_score(scenes, [5.0, 6.0, 50.0, 60.0])
    assert (score.key_frame_rate, score.scene_hit_rate) == (0.5, 0.5)
    # half of the scenes have their part, and (2, 0) lies at 45 degrees from (1, 1)
    assert score.ukss == pytest.approx((0.5 * 0.5 * math.sqrt(0.5)) ** (1 / 3))
    assert scene_score(scenes, [50.0]).ukss == 0.0


def test_an_interval_is_hit_at_both_its_ends_and_within_the_tolerance():
    figures = interval_figures([(10.0, 20.0), (30.0, 30.0)], case(), ShownFrames([20.0, 28.5, 99.0]))
    assert figures == {
        "frames inside": pytest.approx(1 / 3),
        "hit@0": 0.5,
        "hit@1": 0.5,
        "hit@2": 1.0,
        "hit@5": 1.0,
    }
    with pytest.raises(InvalidInput, match="0 <= start <= stop"):
        interval_figures([(5.0, 4.0)], case(), ShownFrames([1.0]))


def test_random_frames_hit_as_often_as_drawn_ones_do():
    intervals, question = [(10.0, 12.0), (40.0, 40.0)], case(seconds=60.0)
    expected = interval_figures(intervals, question, ShownFrames(n_random=9))
    rng = np.random.default_rng(0)
    draws = [ShownFrames(np.sort(rng.choice(question.n_frames, 9, replace=False)) / question.fps) for _ in range(600)]
    drawn = [interval_figures(intervals, question, frames) for frames in draws]
    for name, value in expected.items():
        assert np.mean([figures[name] for figures in drawn]) == pytest.approx(value, abs=0.06)


@pytest.mark.slow
def test_lvbenchs_intervals_are_hit_as_the_published_selection_says(shared):
    """QCA at K = 64 over 1,534 questions; long intervals are hit by anything, those up to 10 s tell samplers apart."""
    questions = read_annotations("lvbench", shared("data/field/evidence/lvbench_video_info.meta.jsonl.gz"))
    rates = stated_rates(questions)
    fps = frame_rates(rates)
    loaded = load_selections(shared("data/field/selections/qca_lvbench.json.gz"), questions=questions, fps=fps)
    rows = {"QCA": selection_rows(loaded, questions, rates, name="QCA")}
    intervals = {item.id: list(item.evidence_intervals) for item in questions if item.evidence_intervals}
    table = interval_table(evidence_cases("lvbench", questions, fps), intervals, rows)
    at = {title: number for number, title in enumerate(table.columns)}
    hits = {
        row.keys[0]: tuple(float(row.figures[at[f"{bucket} hit@0"]]) for bucket in ("all", SHORT)) for row in table.rows
    }
    assert hits["QCA"] == (61.9, 32.4)
    assert hits["uniform, K = 64"] == (46.2, 7.8)
    assert hits["random, K = 64"] == (40.0, 6.3)


def test_segments_of_a_csv_last_a_second_past_their_end_and_are_grouped_by_scene(tmp_path):
    path = tmp_path / "anno.csv"
    path.write_text(HEADER + "a,0,2,0:00:10,0:00:12\na,1,2,01:00,01:00\na,2,3,1:00:00,1:00:01\nb,0,0,00:05,00:06\n")
    assert read_scenes(path) == {
        "a": [[(10.0, 13.0), (60.0, 61.0)], [(3600.0, 3602.0)]],
        "b": [[(5.0, 7.0)]],
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HEADER + "a,0,0,0:00:05,0:00:06\na,0,0,later,0:00:06\n", r"anno\.csv:3: 'later' is not a time like 01:23"),
        (HEADER + "a,0,0,0:00:05,0:00:01\n", r"anno\.csv:2: the segment 0:00:05 to 0:00:01 ends before it starts"),
        ("id,start,end\n", r"anno\.csv:1: no column 'scene_id'"),
    ],
)
def test_a_wrong_csv_names_file_and_line(tmp_path, text, message):
    path = tmp_path / "anno.csv"
    path.write_text(text)
    with pytest.raises(InvalidInput, match=message):
        read_scenes(path)


def test_json_scenes_are_intervals_of_their_own(tmp_path):
    path = tmp_path / "scenes.json"
    path.write_text('{"a": [[1, 2], [4, 6]]}')
    assert read_scenes(path) == {"a": [[(1.0, 2.0)], [(4.0, 6.0)]]}
    path.write_text("[1]")
    with pytest.raises(InvalidInput, match="or KFS-Bench's CSV"):
        read_scenes(path)


def test_scenes_are_averaged_over_questions_that_have_them_ukss_geometrically():
    cases = [case("a", bucket="short"), case("b"), case("c")]
    scenes = {"a": [[(0.0, 10.0)]], "b": [[(0.0, 10.0)], [(20.0, 30.0)]]}
    rows = [selection_row_at("a", [5.0]), selection_row_at("b", [50.0, 60.0]), selection_row_at("c", [1.0])]
    table = scene_table(cases, scenes, {"mine": rows})
    line = next(row for row in table.rows if row.keys == ("mine",))
    values = dict(zip(table.columns, map(str, line.figures), strict=True))
    assert (values["all key frames"], values["all scenes hit"]) == ("50.0", "50.0")
    assert values["all UKSS"] == "10.0"  # of 1 and 0.01
    assert "Questions: short 1, long 1, all 2." in table.notes


def test_recall_prints_the_three_measures_of_a_scene_file(tmp_path):
    row = {"id": "q1", "question": "what?", "video": "v.mp4", "answer": "A", "options": ["a", "b"], "seconds": 100.0}
    (tmp_path / "annotation.json").write_text(json.dumps([row]))
    fields = "fields: {options: options, duration: seconds, evidence: position}\n"
    (tmp_path / "mine.yaml").write_text(f"benchmark: mine\n{fields}")
    (tmp_path / "annotation.json").write_text(json.dumps([{**row, "position": [10]}]))
    (tmp_path / "rates.csv").write_text("id,duration_s,fps\nq1,100,10\n")
    (tmp_path / "anno.csv").write_text(HEADER + "q1,0,0,0:00:08,0:00:11\nnot_here,0,0,0:00:08,0:00:11\n")
    (tmp_path / "chosen.json").write_text(json.dumps([{"id": "q1", "frame_timestamps": [10.0, 50.0]}]))
    arguments = ["recall", "--benchmark", "mine.yaml", "--annotations", "annotation.json", "--rates", "rates.csv"]
    arguments += ["--selections", "mine=chosen.json", "--scenes", "anno.csv", "--out", "table.csv"]
    paths = [str(tmp_path / item) if "." in item and "=" not in item else item for item in arguments]
    paths = [f"mine={tmp_path / 'chosen.json'}" if "=" in item else item for item in paths]
    assert "'not_here', which is not a question" in str(CliRunner().invoke(app, paths).exception)
    result = CliRunner().invoke(app, [*paths, "--allow-outside"])
    assert result.exit_code == 0, (result.output, result.exception)
    assert "scenes of 1 ids that are no questions here left out, e.g. 'not_here'" in result.output
    assert "mine,50.0,100.0,79.4" in (tmp_path / "table.csv").read_text()


def test_scenes_of_other_questions_are_left_out_with_a_sentence_but_not_a_file_of_nothing_else(tmp_path):
    path = tmp_path / "scenes.json"
    path.write_text('{"q": [[0, 5]], "other": [[1, 2]]}')
    scenes, notes = known_scenes(path, {"q"}, allow_outside=True)
    assert scenes == {"q": [[(0.0, 5.0)]]}
    assert "scenes of 1 ids" in notes[0]
    with pytest.raises(InvalidInput, match="'other', which is not a question"):
        known_scenes(path, {"q"}, allow_outside=False)
    path.write_text('{"other": [[1, 2]]}')
    with pytest.raises(InvalidInput, match="'other', which is not a question"):
        known_scenes(path, {"q"}, allow_outside=True)
