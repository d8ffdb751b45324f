"""A selection that goes out and comes back is the same selection."""

from __future__ import annotations

import json

import pytest

from focus_eval.bench.benchmarks.registry import read_annotations
from focus_eval.bench.rows.entries import file_entry
from focus_eval.bench.rows.store import JSON_COLUMNS
from focus_eval.core.errors import SelectionMismatch
from focus_eval.external.imports.loading import load_selections, write_selections
from focus_eval.external.imports.rows import write_parquet
from tests.external.imports.test_importers import frames_of, questions, row, stated, write_rows


@pytest.fixture
def own_rows(tmp_path):
    clips = [[0, 1500, 5, 0.25, 0.125, True], [1500, 3000, 0, None, None, False]]
    pulls = {"pulled_frames": [40, 10, 90], "pulled_relevance": [0.1, 0.7, 0.3], "clips": clips}
    rows = [row("a", [1, 50], **pulls), row("b", [2, 60, 2999])]
    return load_selections(write_rows(tmp_path / "rows" / "own_rows.jsonl", rows))


@pytest.mark.parametrize("file", ["aks_longvideobench_blip_64.json", "qca_longvideobench_64.json"])
def test_published_frames_survive_parquet_and_both_formats(shared, tmp_path, file):
    benchmark_questions = read_annotations("longvideobench", shared("data/lvb_val.json"))
    first = load_selections(shared(f"data/{file}"), questions=benchmark_questions)
    write_parquet(first, tmp_path / "selections.parquet")
    assert stated(load_selections(tmp_path / "selections.parquet")) == stated(first)
    for kind in ("aks", "focus"):
        folder = tmp_path / kind
        write_selections(first, folder / "selected_frames.json", format=kind, questions=benchmark_questions)
        reloaded = load_selections(folder / "selected_frames.json", format=kind, questions=benchmark_questions)
        assert frames_of(reloaded) == frames_of(first)


def test_an_aks_file_comes_back_as_it_was(shared, tmp_path):
    benchmark_questions = read_annotations("videomme", shared("data/videomme.json"))
    path = shared("data/aks_videomme_blip_64.json")
    write_selections(
        load_selections(path, questions=benchmark_questions),
        tmp_path / "out.json",
        format="aks",
        questions=benchmark_questions,
    )
    assert json.loads((tmp_path / "out.json").read_text()) == json.loads(path.read_text())


def write_details(folder, frames):
    """Write the two files of FOCUS's own code for questions a and b, whose details name these frames."""
    frames_by_question = [[1, 50], [2, 60]]
    arm = {"samples_count": 2, "times_selected": 1, "mean_similarity": 0.25, "focus_score": 0.375}
    idle = {"samples_count": 0, "times_selected": 0, "mean_similarity": 0.0, "focus_score": 0.0}
    details = {
        "coarse_sampling": {"frame_indices": [40, 10], "relevance_scores": [0.1, 0.7]},
        "fine_sampling": {"frame_indices": [90], "relevance_scores": [0.3]},
        "video_metadata": {"total_frames": 3000, "fps": 25.0},
        "arms_info": {
            "arms": [{"start_frame": 0, "end_frame": 1499, **arm}, {"start_frame": 1500, "end_frame": 2999, **idle}]
        },
    }
    (folder / "selected_frames.json").write_text(json.dumps(frames_by_question))
    entries = [{**details, "final_selected_frames": chosen} for chosen in frames]
    (folder / "sampling_details.json").write_text(json.dumps(entries))


def test_focuss_own_details_become_pulls_and_half_open_arms(tmp_path):
    write_details(tmp_path, [[1, 50], [2, 60]])
    loaded, _, location = load_selections(tmp_path, questions=questions("a", "b"))["a"]
    assert loaded.sampler == "focus"
    assert location.startswith("selected_frames.json")
    assert (loaded.n_frames, loaded.fps) == (3000, 25.0)
    assert loaded.clips == [[0, 1500, 2, 0.25, 0.125, True], [1500, 3000, 0, None, None, False]]
    assert (loaded.pulled_frames, loaded.pulled_relevance) == ([40, 10, 90], [0.1, 0.7, 0.3])


def test_details_that_belong_to_other_frames_are_refused(tmp_path):
    write_details(tmp_path, [[1, 51], [2, 60]])
    with pytest.raises(SelectionMismatch, match=r"sampling_details.json: row 0 \(a\): its final frames are not"):
        load_selections(tmp_path, questions=questions("a", "b"))


def test_rows_survive_parquet_whole(own_rows, tmp_path):
    write_parquet(own_rows, tmp_path / "own_rows.parquet")
    assert stated(load_selections(tmp_path / "own_rows.parquet")) == stated(own_rows)


def test_whole_rows_in_parquet_are_read(own_rows, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    lines = [json.loads(line) for line in (tmp_path / "rows" / "own_rows.jsonl").read_text().splitlines()]
    for values in lines:
        for name in set(JSON_COLUMNS) & set(values):
            values[name] = json.dumps(values[name])
    pq.write_table(pa.Table.from_pylist(lines), tmp_path / "whole.parquet")
    assert stated(load_selections(tmp_path / "whole.parquet")) == stated(own_rows)


def test_an_export_needs_every_question_and_frames(own_rows, tmp_path):
    with pytest.raises(SelectionMismatch, match=r"row 2 \(c\): no selection"):
        write_selections(own_rows, tmp_path / "x.json", format="aks", questions=questions("a", "b", "c"))
    in_seconds = {"a": file_entry("a", "bolt", times_seconds=[1.0])}
    with pytest.raises(SelectionMismatch, match="a: chosen in seconds"):
        write_selections(in_seconds, tmp_path / "x.json", format="aks", questions=questions("a"))
    assert not (tmp_path / "x.json").exists()
