"""A selection that goes out and comes back is the same selection."""

from __future__ import annotations

import json

import pytest

from focus_eval.benchmarks.registry import read_annotations
from focus_eval.core.errors import SelectionMismatch
from focus_eval.rows.store import JSON_COLUMNS
from focus_eval.selections import (
    ImportedSelection,
    load_selections,
    write_parquet,
    write_selections,
)
from tests.selections.test_importers import questions, row, write_rows


@pytest.fixture
def ours(tmp_path):
    clips = [[0, 1500, 5, 0.25, 0.125, True], [1500, 3000, 0, None, None, False]]
    more = {"pulled_frames": [40, 10, 90], "pulled_relevance": [0.1, 0.7, 0.3], "clips": clips}
    rows = [row("a", [1, 50], **more), row("b", [2, 60, 2999])]
    return load_selections(write_rows(tmp_path / "rows" / "ours.jsonl", rows))


@pytest.mark.parametrize("file", ["aks_longvideobench_blip_64.json", "qca_longvideobench_64.json"])
def test_published_frames_survive_parquet_and_both_formats(shared, tmp_path, file):
    asked = read_annotations("longvideobench", shared("data/lvb_val.json"))
    first = load_selections(shared(f"data/{file}"), questions=asked)
    write_parquet(first, tmp_path / "selections.parquet")
    assert load_selections(tmp_path / "selections.parquet") == first
    for kind in ("aks", "focus"):
        folder = tmp_path / kind
        write_selections(first, folder / "selected_frames.json", format=kind, questions=asked)
        again = load_selections(folder / "selected_frames.json", format=kind, questions=asked)
        assert {key: found.keyframes for key, found in again.items()} == {
            key: found.keyframes for key, found in first.items()
        }


def test_an_aks_file_comes_back_as_it_was(shared, tmp_path):
    asked = read_annotations("videomme", shared("data/videomme.json"))
    path = shared("data/aks_videomme_blip_64.json")
    write_selections(load_selections(path, questions=asked), tmp_path / "out.json", format="aks", questions=asked)
    assert json.loads((tmp_path / "out.json").read_text()) == json.loads(path.read_text())


def test_rows_survive_the_focus_format_with_pulls_and_arms(ours, tmp_path):
    asked = questions("a", "b")
    write_selections(ours, tmp_path / "selected_frames.json", format="focus", questions=asked)
    again = load_selections(tmp_path, questions=asked)
    for key, selection in again.items():
        assert selection.where.startswith("selected_frames.json")
        assert selection.sampler == "focus"
        for name in ("keyframes", "k", "n_frames", "fps", "pulled_frames", "pulled_relevance", "clips"):
            assert getattr(selection, name) == getattr(ours[key], name), name


def test_focuss_own_details_become_pulls_and_half_open_arms(ours, tmp_path):
    asked = questions("a", "b")
    write_selections(ours, tmp_path / "selected_frames.json", format="focus", questions=asked)
    details = json.loads((tmp_path / "sampling_details.json").read_text())
    for entry in details:
        del entry["focus_eval"]
    (tmp_path / "sampling_details.json").write_text(json.dumps(details))
    loaded = load_selections(tmp_path, questions=asked)["a"]
    assert loaded.clips == ((0, 1500, 5, 0.25, 0.125, True), (1500, 3000, 0, None, None, False))
    assert loaded.pulled_frames == (40, 10, 90)


def test_details_that_belong_to_other_frames_are_refused(ours, tmp_path):
    asked = questions("a", "b")
    write_selections(ours, tmp_path / "selected_frames.json", format="focus", questions=asked)
    (tmp_path / "selected_frames.json").write_text("[[1, 51], [2, 60, 2999]]")
    with pytest.raises(SelectionMismatch, match=r"sampling_details.json: row 0 \(a\): its final frames are not"):
        load_selections(tmp_path, questions=asked)


def test_rows_survive_parquet_whole(ours, tmp_path):
    write_parquet(ours, tmp_path / "ours.parquet")
    assert load_selections(tmp_path / "ours.parquet") == ours


def test_whole_rows_in_parquet_are_read(ours, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    lines = [json.loads(line) for line in (tmp_path / "rows" / "ours.jsonl").read_text().splitlines()]
    for values in lines:
        for name in set(JSON_COLUMNS) & set(values):
            values[name] = json.dumps(values[name])
    pq.write_table(pa.Table.from_pylist(lines), tmp_path / "whole.parquet")
    assert load_selections(tmp_path / "whole.parquet") == ours


def test_an_export_needs_every_question_and_frames(ours, tmp_path):
    with pytest.raises(SelectionMismatch, match=r"row 2 \(c\): no selection"):
        write_selections(ours, tmp_path / "x.json", format="aks", questions=questions("a", "b", "c"))
    in_seconds = {"a": ImportedSelection(question_id="a", sampler="bolt", times_seconds=(1.0,))}
    with pytest.raises(SelectionMismatch, match="a: chosen in seconds"):
        write_selections(in_seconds, tmp_path / "x.json", format="aks", questions=questions("a"))
    assert not (tmp_path / "x.json").exists()
