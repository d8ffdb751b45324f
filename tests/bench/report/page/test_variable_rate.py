"""Frames of a file of variable rate stand at the file's own times: on the page, its pictures and timelines."""

from __future__ import annotations

from dataclasses import replace

import pytest

from focus_eval.bench.report.figures import draw_timelines
from focus_eval.bench.report.page.browser import question_detail
from focus_eval.bench.report.page.thumbnails import telling_frames
from focus_eval.core.types import Question
from focus_eval.keyframes.encoders.registry import make_encoder
from focus_eval.keyframes.llms.registry import make_llm
from focus_eval.keyframes.pipeline.selector import Selector
from focus_eval.keyframes.rows.json_lines import read_rows, write_rows
from focus_eval.keyframes.rows.records import SelectionRow
from focus_eval.keyframes.samplers.registry import make_sampler
from tests.support.keyframes.clips import write_clip

# Ten frames a second, eight seconds without a frame, ten frames a second.
TIMES = [number / 10 + 8 * (number >= 10) for number in range(20)]
EVIDENCE = (0.32, 9.22)


def row_of(path, tmp_path, sampler):
    """Choose frames of a file and return the row as a run would read it back."""
    names = {"benchmark": "late", "id": "q1", "query": "a bar", "video": path.name}
    question = Question(**names, options=(), answer=None, evidence_seconds=EVIDENCE)
    model = make_llm("scripted:accuracy=0.999,reach_seconds=0.3")
    selector = Selector(sampler=make_sampler(sampler), encoder=make_encoder("offline:size=64"), llm=model, k=2)
    rows = tmp_path / "rows.jsonl"
    write_rows(rows, [selector.select(question, path)])
    (row,) = read_rows(rows, SelectionRow)
    return row


@pytest.fixture
def late(tmp_path):
    ticks = [round(10 * seconds) for seconds in TIMES]
    return write_clip(tmp_path / "late.mp4", n_frames=20, width=64, height=48, fps=10, ticks=ticks)


def test_pulls_clips_and_evidence_stand_at_the_times_of_the_file(late, tmp_path):
    row = row_of(late, tmp_path, "focus:clip_seconds=1")
    pulled = dict(zip(row.pulled_frames, row.seconds_of(row.pulled_frames), strict=True))
    assert pulled == pytest.approx({frame: TIMES[frame] for frame in row.pulled_frames}, abs=0.001)
    detail = question_detail([row], [None], {"3": "data:"})
    assert (detail["evidence_frames"], detail["mean_rate"]) == ([3, 12], False)
    assert [*telling_frames([row])][:2] == [3, 12]
    (series,) = detail["series"]
    assert series["pulled"][0] == pytest.approx(sorted(TIMES[frame] for frame in row.pulled_frames), abs=0.051)
    ends = [[start, *[stop] * (stop < 20)] for start, stop, *_ in row.clips]
    assert len(ends) > 1
    for clip, drawn in zip(ends, series["clips"], strict=True):
        assert drawn[: len(clip)] == pytest.approx([TIMES[end] for end in clip], abs=0.051)
    bars = draw_timelines([row]).axes[0].collections[0].get_segments()
    assert [bar[0][0] for bar in bars] == pytest.approx(sorted(pulled.values()), abs=0.001)


def test_times_that_are_not_known_are_said_and_not_drawn_as_exact(late, tmp_path):
    row = row_of(late, tmp_path, "even_cover:pulls=20")
    assert "mean rate" not in draw_timelines([row]).axes[-1].get_xlabel()
    unknown = replace(row, frame_seconds=None)
    assert question_detail([unknown], [None], {})["mean_rate"]
    assert "scored frames by the mean rate" in draw_timelines([unknown]).axes[-1].get_xlabel()
    unpulled = replace(row_of(late, tmp_path, "uniform"), frame_seconds=None)
    assert not question_detail([unpulled], [None], {})["mean_rate"]
    assert question_detail([unpulled], [None], {"3": "data:"})["mean_rate"]
    assert not question_detail([unpulled, row], [None, None], {"3": "data:"})["mean_rate"]


def test_a_scripted_model_knows_pictures_by_the_times_of_the_file(late, tmp_path):
    row = row_of(late, tmp_path, "vlm_topk:llm=scripted")
    assert all(min(abs(seconds - moment) for moment in EVIDENCE) <= 0.3 for seconds in row.times_seconds)


def test_a_constant_rate_needs_no_times_in_its_rows(tmp_path):
    row = row_of(write_clip(tmp_path / "even.mp4", n_frames=20, width=64, height=48), tmp_path, "even_cover:pulls=20")
    assert row.frame_seconds == []
    assert row.seconds_of(row.pulled_frames) == pytest.approx([frame / row.fps for frame in row.pulled_frames])
