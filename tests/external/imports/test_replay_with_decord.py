"""The rows of a published run are replayed with decord, the reader that it was made with."""

from __future__ import annotations

import pytest

from focus_eval.bench.benchmarks.registry import frame_rates, read_annotations, read_rates
from focus_eval.external.imports.loading import load_selections, selection_rows
from focus_eval.keyframes.video import open_video
from tests.support.keyframes.synthetic import frame_number, write_numbered_clip

pytest.importorskip("decord")


@pytest.fixture(scope="module")
def published(shared):
    """The authors' AKS rows of three of the shortest videos of LongVideoBench, each at another frame rate."""
    questions, rates = (
        read_annotations("longvideobench", shared("data/lvb_val.json")),
        read_rates(shared("data/lvb_val_fps.csv")),
    )
    loaded = load_selections(
        shared("data/aks_longvideobench_blip_64.json"), format="aks", questions=questions, fps=frame_rates(rates)
    )
    rows = sorted(selection_rows(loaded, questions, rates, name="AKS"), key=lambda row: rates[row.question_id].n_frames)
    row_by_rate = {}
    for row in rows:
        row_by_rate.setdefault(rates[row.question_id].fps, row)
    return [(row, rates[row.question_id]) for row in [*row_by_rate.values()][:3]]


def test_decord_gives_the_frames_of_published_rows(published, tmp_path):
    """On clips of the videos' lengths and rates whose frames carry their numbers; the videos are not ours to keep."""
    assert len({rate.fps for _, rate in published}) == 3
    for row, rate in published:
        clip = write_numbered_clip(tmp_path / f"{row.question_id}.mp4", rate.n_frames, fps=rate.fps)
        with open_video(clip, backend="decord") as video, open_video(clip) as exact:
            assert video.info == exact.info
            assert len(row.keyframes) > 1
            assert [frame_number(pixels) for pixels in video.read(row.keyframes)] == [*row.keyframes]
            assert row.times_seconds == pytest.approx([frame / float(rate.fps) for frame in row.keyframes], abs=0.01)
