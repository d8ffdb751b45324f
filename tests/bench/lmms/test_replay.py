"""Selections made elsewhere are shown as they are, from any file that `selections=` takes."""

from __future__ import annotations

import json

import pytest

from focus_eval.core import offers
from focus_eval.core.errors import InvalidInput, SelectionMismatch

# `external` reads the files.
pytestmark = pytest.mark.upper_rooms


@pytest.fixture
def llava(tiny_llava, tmp_path):
    from focus_eval.bench.lmms.models.llava_hf import FocusLlavaOnevision

    def make(file, **arguments):
        return FocusLlavaOnevision(
            pretrained=str(tiny_llava), device="cpu", selections=str(file), record=str(tmp_path / "record"),
            **{"frames": 4, **arguments},
        )  # fmt: skip

    return make


def fed(tools, tmp_path):
    return {row["question_id"]: row["fed_frames"] for row in tools.read_record(tmp_path / "record", "answers")}


IDS = ["landscape-0", "landscape-1", "portrait-0", "portrait-1"]
FRAMES = [[3, 40, 80], [0, 1, 2, 89], [7, 70], [10, 20, 30, 40]]


@pytest.mark.parametrize("kind", ["aks", "qca", "wfs"])
def test_a_published_index_file_is_replayed_to_the_frame(llava, evaluate, tools, tmp_path, kind):
    content = {
        "aks": FRAMES,
        "qca": dict(zip(IDS, FRAMES, strict=True)),
        "wfs": [{"question_id": item, "keyframe_indices": frames} for item, frames in zip(IDS, FRAMES, strict=True)],
    }[kind]
    file = tmp_path / f"{kind}.json"
    file.write_text(json.dumps(content))
    evaluate(llava(file), ["focus_videomme"])
    assert fed(tools, tmp_path) == dict(zip(IDS, FRAMES, strict=True))
    rows = tools.read_record(tmp_path / "record", "selections")
    assert {row["facts"]["replayed_from"] for row in rows} == {f"{kind}.json"}


def test_rows_of_a_run_are_replayed_without_the_room_of_other_formats(llava, evaluate, tools, tmp_path, monkeypatch):
    file = tmp_path / "qca.json"
    file.write_text(json.dumps(dict(zip(IDS, FRAMES, strict=True))))
    evaluate(llava(file), ["focus_videomme"])
    (folder,) = (tmp_path / "record").iterdir()
    (tmp_path / "first").mkdir()
    folder.rename(tmp_path / "first" / "run")
    # As where `focus_eval.external` is not installed: it offers nothing.
    monkeypatch.setattr(offers, "entry_points", lambda **names: [])
    with pytest.raises(InvalidInput, match="load_selections"):
        llava(file)
    evaluate(llava(tmp_path / "first" / "run"), ["focus_videomme"])
    assert fed(tools, tmp_path) == dict(zip(IDS, FRAMES, strict=True))


def test_another_content_of_the_same_file_name_is_another_selection(llava, tmp_path):
    file = tmp_path / "qca.json"
    file.write_text(json.dumps(dict(zip(IDS, FRAMES, strict=True))))
    first = llava(file).context.chooser.selection_id
    file.write_text(json.dumps(dict(zip(IDS, FRAMES[::-1], strict=True))))
    assert llava(file).context.chooser.selection_id != first


def test_a_file_for_other_questions_is_refused_as_a_whole(llava, evaluate, tmp_path):
    file = tmp_path / "aks.json"
    file.write_text(json.dumps(FRAMES[:3]))
    with pytest.raises(SelectionMismatch, match="3 rows for 4 questions"):
        evaluate(llava(file), ["focus_videomme"])


def test_more_frames_than_may_be_shown_are_refused_not_thinned_out(llava, evaluate, tmp_path):
    file = tmp_path / "qca.json"
    file.write_text(json.dumps(dict(zip(IDS, FRAMES, strict=True))))
    with pytest.raises(SelectionMismatch, match="at most 3"):
        evaluate(llava(file, frames=3), ["focus_videomme"])


def test_a_frame_past_the_end_is_an_error_of_its_question(llava, evaluate, tools, tmp_path):
    file = tmp_path / "qca.json"
    file.write_text(json.dumps(dict(zip(IDS, [*FRAMES[:3], [10, 80]], strict=True))))
    evaluate(llava(file, max_error_share=1), ["focus_videomme"])
    errors = {row["question_id"]: row["error"] for row in tools.read_record(tmp_path / "record", "answers")}
    assert "frame 80 asked, video has 80" in errors.pop("portrait-1")
    assert set(errors.values()) == {None}


def test_the_aks_loader_shows_uniform_frames_for_a_short_selection_and_counts_it(llava, evaluate, tools, tmp_path):
    file = tmp_path / "qca.json"
    file.write_text(json.dumps(dict(zip(IDS, FRAMES, strict=True))))
    model = llava(file, frame_policy="aks")
    evaluate(model, ["focus_videomme"])
    shown_frames = fed(tools, tmp_path)
    assert shown_frames["landscape-1"] == FRAMES[1]
    assert shown_frames["landscape-0"] == [0, 29, 59, 89]
    rows = {row["question_id"]: row for row in tools.read_record(tmp_path / "record", "answers")}
    assert rows["portrait-0"]["fallback"] == "aks frame policy: 2 of 4 chosen, uniform frames fed"
    assert (rows["portrait-0"]["frames_asked"], rows["portrait-0"]["frames_chosen"]) == (4, 2)
    assert rows["portrait-0"]["frames_fed"] == 4
    assert rows["landscape-1"]["fallback"] is None


def test_a_partial_file_is_replayed_under_a_limit_that_asks_only_for_what_it_has(llava, evaluate, tools, tmp_path):
    file = tmp_path / "qca.json"
    file.write_text(json.dumps(dict(zip(IDS[:2], FRAMES[:2], strict=True))))
    evaluate(llava(file), ["focus_videomme"], limit=2)
    assert fed(tools, tmp_path) == dict(zip(IDS[:2], FRAMES[:2], strict=True))


def test_a_question_that_the_file_lacks_is_refused_with_the_option_that_allows_it(llava, evaluate, tools, tmp_path):
    file = tmp_path / "qca.json"
    file.write_text(json.dumps(dict(zip(IDS[:2], FRAMES[:2], strict=True))))
    with pytest.raises(SelectionMismatch, match=r"1 of 3 that are asked have none.*'portrait-0'.*allow_missing=true"):
        evaluate(llava(file), ["focus_videomme"], limit=3)
    evaluate(llava(file, **{"selections.allow_missing": True}, max_error_share=1), ["focus_videomme"], limit=3)
    errors = {row["question_id"]: row["error"] for row in tools.read_record(tmp_path / "record", "answers")}
    assert "no selection for videomme portrait-0" in errors.pop("portrait-0")
    assert set(errors.values()) == {None}
