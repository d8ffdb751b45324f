"""Published selection files: the real ones, each shape, and what each refuses."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace

import pytest

from focus_eval.bench.benchmarks.registry import read_annotations
from focus_eval.bench.rows.entries import file_entry
from focus_eval.core.errors import FocusEvalError, InvalidInput, SelectionMismatch
from focus_eval.core.types import Question, VideoInfo
from focus_eval.external.imports.loading import load_selections, rows_of_selections, selections_hash
from focus_eval.keyframes.rows.json_lines import RowWriter
from focus_eval.keyframes.rows.records import SelectionRow


def questions(*ids, video=None, seconds=100.0):
    """Return a question of LongVideoBench for each id; each has its own video unless `video` is given."""
    return [
        Question(
            benchmark="longvideobench",
            id=name,
            query=f"what is in {name}?",
            options=("a", "b"),
            video=video or f"{name}.mp4",
            answer="A",
            duration_seconds=seconds,
        )
        for name in ids
    ]


def stated(entries):
    """Return the rows of loaded entries by question id, without their places in the file."""
    return {key: entry.selection for key, entry in entries.items()}


def frames_of(entries):
    """Return the keyframes of loaded entries by question id."""
    return {key: row.keyframes for key, row in stated(entries).items()}


def written(folder, value, name="selected.json"):
    path = folder / name
    path.write_text(json.dumps(value))
    return path


def row(question_id, keyframes, *, sampler="focus", **fields):
    values = {
        "benchmark": "longvideobench",
        "question_id": question_id,
        "video": f"{question_id}.mp4",
        "query": "q",
        "selection_id": f"id-{sampler}",
        "sampler": sampler,
        "options": {"alpha": 0.25},
        "encoder": "recorded",
        "encoder_revision": "1",
        "k": len(keyframes),
        "seed": 0,
        "bucket": "short",
        "duration_seconds": 100.0,
        "n_frames": 3000,
        "fps": 30.0,
        "keyframes": list(keyframes),
        "times_seconds": [frame / 30.0 for frame in keyframes],
    }
    return SelectionRow(**{**values, **fields})


def write_rows(path, rows):
    writer = RowWriter(path)
    for item in rows:
        writer.write(item)
    writer.close()
    return path


@pytest.mark.parametrize(
    ("benchmark", "annotations", "file", "kind", "n", "max_frames"),
    [
        ("longvideobench", "lvb_val.json", "aks_longvideobench_blip_64.json", "aks", 1337, 64),
        ("videomme", "videomme.json", "aks_videomme_blip_64.json", "aks", 2700, 64),
        ("longvideobench", "lvb_val.json", "qca_longvideobench_64.json", "qca", 1337, 64),
        ("longvideobench", "lvb_val.json", "wfs_longvideobench_16.json", "wfs", 1337, 16),
    ],
)
def test_the_real_files_are_recognised_and_read(shared, benchmark, annotations, file, kind, n, max_frames):
    benchmark_questions = read_annotations(benchmark, shared(f"data/{annotations}"))
    selections = load_selections(shared(f"data/{file}"), questions=benchmark_questions)
    assert {row.sampler for row in stated(selections).values()} == {kind}
    assert len(selections) == n
    assert max(map(len, frames_of(selections).values())) == max_frames
    raw = json.loads(shared(f"data/{file}").read_text())
    for number, question in enumerate(benchmark_questions):
        values = raw[question.id] if kind == "qca" else raw[number]
        values = values["keyframe_indices"] if kind == "wfs" else values
        assert selections[question.id].selection.keyframes == values
        assert selections[question.id].selection.video == question.video


def test_a_list_by_row_of_another_benchmark_is_refused(shared):
    benchmark_questions = read_annotations("longvideobench", shared("data/lvb_val.json"))
    with pytest.raises(SelectionMismatch, match="2700 rows for 1337 questions"):
        load_selections(shared("data/aks_videomme_blip_64.json"), questions=benchmark_questions)


def test_a_list_by_row_shifted_by_one_is_refused(shared, tmp_path):
    from focus_eval.bench.benchmarks.registry import read_rates

    benchmark_questions = read_annotations("longvideobench", shared("data/lvb_val.json"))
    fps = {key: float(rate.fps) for key, rate in read_rates(shared("data/lvb_val_fps.csv")).items()}
    rows = json.loads(shared("data/aks_longvideobench_blip_64.json").read_text())
    path = written(tmp_path, rows[1:] + rows[:1])
    with pytest.raises(SelectionMismatch, match=r"selected.json: row \d+ .*asked, the video has"):
        load_selections(path, format="aks", questions=benchmark_questions, fps=fps)


def test_seconds_read_as_frames_are_refused(shared, tmp_path):
    benchmark_questions = read_annotations("longvideobench", shared("data/lvb_val.json"))
    whole = [[int(asked_question.duration_seconds * i / 8) for i in range(8)] for asked_question in benchmark_questions]
    with pytest.raises(SelectionMismatch, match=r"row 0 \(86CxyhFV9MI_0\).*these are seconds"):
        load_selections(written(tmp_path, whole), format="aks", questions=benchmark_questions)
    read = load_selections(written(tmp_path, whole), format="aks", questions=benchmark_questions, unit="seconds")
    assert read["86CxyhFV9MI_0"].selection.times_seconds[1] == int(190.16 / 8)
    assert read == load_selections(written(tmp_path, whole), format="aks:unit=seconds", questions=benchmark_questions)


def test_a_fraction_is_no_frame(tmp_path):
    path = written(tmp_path, [[0, 30], [1.5, 2.5]])
    with pytest.raises(SelectionMismatch, match=r"selected.json: row 1 \(b\): 1.5 is not a frame index.*seconds"):
        load_selections(path, questions=questions("a", "b"))


def test_frames_read_as_seconds_are_refused(tmp_path):
    data = {"a.mp4": [{"question_id": "a", "question": "q", "frames": [100, 2000]}]}
    with pytest.raises(SelectionMismatch, match=r"video 'a.mp4', entry 0 \(a\): 2000 s asked.*are these frames"):
        load_selections(written(tmp_path, data), questions=questions("a"))


def test_bolt_goes_by_video_and_states_seconds(tmp_path):
    data = {
        "v": [
            {"question_id": "a", "question": "what is in a?", "frames": [0.0, 12.5, 12.5]},
            {"question_id": "b", "question": "what is in b?", "frames": [3.0, 99.96]},
        ]
    }
    selections = load_selections(written(tmp_path, data), questions=questions("a", "b", video="v.mp4"))
    assert selections["a"].selection.times_seconds == [0.0, 12.5, 12.5]
    assert selections["a"].frames_in(VideoInfo(3000, 30.0)) == [0, 375, 375]
    assert selections["b"].frames_in(VideoInfo(3000, 30.0)) == [90, 2999]


def test_bolts_questions_without_ids_are_told_apart_by_their_text(tmp_path):
    data = {"v": [{"question_id": "v.mp4", "question": f"what is in {name}?", "frames": [1.0]} for name in "ab"]}
    assert list(load_selections(written(tmp_path, data), questions=questions("a", "b", video="v.mp4"))) == ["a", "b"]
    with pytest.raises(SelectionMismatch, match="appears twice"):
        load_selections(written(tmp_path, data))


def test_bolts_ids_count_for_more_than_equal_texts(tmp_path):
    same_texts = [replace(item, query="what is in it?") for item in questions("a", "b", video="v.mp4")]
    entries = [{"question_id": name, "question": "what is in it?", "frames": [1.0]} for name in "ab"]
    assert list(load_selections(written(tmp_path, {"v": entries}), questions=same_texts)) == ["a", "b"]


def test_frames_by_video_go_to_all_its_questions(tmp_path):
    benchmark_questions = [*questions("a", "b", video="v.mp4"), *questions("c")]
    selections = load_selections(
        written(tmp_path, {"v": [0, 2000], "c": [2500]}), format="qca", questions=benchmark_questions
    )
    assert frames_of(selections) == {"a": [0, 2000], "b": [0, 2000], "c": [2500]}


def test_the_name_of_a_video_may_have_dots(tmp_path):
    path = written(tmp_path, {"/data/@daiki.shino": [0, 30], "@daiki.3gp": [5]})
    expected_questions = [*questions("0", video="@daiki.shino.mp4"), *questions("1", video="@daiki.webm")]
    assert frames_of(load_selections(path, questions=expected_questions)) == {"0": [0, 30], "1": [5]}


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("rows.jsonl", '{"id": "a", "frames": [0]}', "line 1: no keyframes, .* name its format: rows of id and frames"),
        ("20260101_samples_t.jsonl", '{"doc_id": 0, "doc": {}}', "line 1: a line of an lmms-eval log; .*lmms:frames_f"),
        ("rows.csv", 'id,frames\na,"[0]"\n', "not a known kind of selection file; if its format is one of these, name"),
    ],
)
def test_rows_of_another_form_say_which_format_to_name(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(FocusEvalError, match=rf"{name}: {message}"):
        load_selections(tmp_path / name, questions=questions("a"))


def test_a_csv_of_ids_says_which_column_is_read(tmp_path):
    (tmp_path / "rows.csv").write_text('id,frames\na,"[0]"\n')
    with pytest.raises(SelectionMismatch, match=r"row 0: no list of frames, 'a,\[0\]'; the first column is read"):
        load_selections(tmp_path / "rows.csv", format="csv", questions=questions("a"))


def test_a_key_that_is_a_questions_id_is_not_taken_for_a_video(tmp_path):
    benchmark_questions = [*questions("a", video="w.mp4"), *questions("b", video="a.mp4")]
    selections = load_selections(
        written(tmp_path, {"a": [0, 5], "b": [7]}), format="qca", questions=benchmark_questions
    )
    assert frames_of(selections) == {"a": [0, 5], "b": [7]}


def test_a_field_of_another_name_is_found_when_named(tmp_path):
    rows = [{"id": "a", "chosen": [1, 2]}]
    with pytest.raises(SelectionMismatch, match=r"no field of frames.*has: chosen, id"):
        load_selections(written(tmp_path, rows))
    assert load_selections(written(tmp_path, rows), options={"field": "chosen"})["a"].selection.keyframes == [1, 2]


def test_an_unknown_question_and_a_missing_one_are_named(tmp_path):
    with pytest.raises(SelectionMismatch, match="'z' is not a question of this benchmark"):
        load_selections(written(tmp_path, {"a": [1], "z": [2]}), questions=questions("a"))
    with pytest.raises(SelectionMismatch, match="1 selections for 2 questions, the first without is 'b'"):
        load_selections(written(tmp_path, {"a": [1]}), questions=questions("a", "b"))
    assert list(load_selections(written(tmp_path, {"a": [1]}), questions=questions("a", "b"), allow_missing=True)) == [
        "a"
    ]


def test_a_question_written_twice_is_refused(tmp_path):
    path = tmp_path / "twice.json"
    path.write_text('{"a": [1, 2], "b": [3], "a": [4]}')
    with pytest.raises(InvalidInput, match="the key 'a' is written twice"):
        load_selections(path, questions=questions("a", "b"))


def test_an_empty_row_is_no_selection(tmp_path):
    for values in ([[0, 30], []], [[0, 30], None], {"a": [0, 30], "b": None}):
        path = written(tmp_path, values)
        with pytest.raises(SelectionMismatch, match=r"\(b\): no frames chosen \(--allow-missing"):
            load_selections(path, questions=questions("a", "b"))
        assert list(load_selections(path, questions=questions("a", "b"), allow_missing=True)) == ["a"]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([[3, 1]], "frames must ascend; sort them"),
        ([[-1, 1]], "below 0"),
        ([["30"]], "'30' is not a number; write it without quotes"),
        ([[[0, 30]]], r"\[0, 30\] is not a number; give each question one flat list of frames"),
        ([[True]], "True is not a number"),
        ([[float("nan")]], "nan is not a number"),
    ],
)
def test_frames_that_are_none_are_refused_with_their_row(tmp_path, value, message):
    with pytest.raises(SelectionMismatch, match=f"selected.json: row 0.*{message}"):
        load_selections(written(tmp_path, value), questions=questions("a"))


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", "[1, 2]", '"x"', "[[1], {}]"])
def test_a_file_of_no_known_kind_is_one_line(tmp_path, text):
    path = tmp_path / "odd.json"
    path.write_text(text)
    with pytest.raises(FocusEvalError) as caught:
        load_selections(path, questions=questions("a"))
    assert "odd.json" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_list_by_row_needs_the_questions(tmp_path):
    with pytest.raises(SelectionMismatch, match="follows the order of the annotation"):
        load_selections(written(tmp_path, [[1, 2]]))


def test_an_unknown_format_names_the_nearest(tmp_path):
    with pytest.raises(InvalidInput, match="did you mean 'bolt'"):
        load_selections(tmp_path / "x.json", format="bold")


def test_a_frame_past_the_probed_end_is_refused_at_replay():
    item = file_entry("a", "aks", keyframes=[0, 299, 300], location="f.json: row 7")
    with pytest.raises(SelectionMismatch, match=r"f.json: row 7 \(a\): frame 300 asked, video has 300"):
        item.frames_in(VideoInfo(300, 30.0))
    late = file_entry("a", "bolt", times_seconds=[1.0, 10.5])
    with pytest.raises(SelectionMismatch, match=r"10.5 s asked, video has 10.00 s"):
        late.frames_in(VideoInfo(300, 30.0))


def test_our_rows_are_read_from_lines_and_from_a_runs_folder(tmp_path):
    rows = [row("a", [1, 50]), row("b", [2, 60, 2999])]
    write_rows(tmp_path / "run" / "selections" / "w0.jsonl", rows[:1])
    write_rows(tmp_path / "run" / "selections" / "w1.jsonl", rows[1:])
    for path in (tmp_path / "run", tmp_path / "run" / "selections"):
        selections = load_selections(path, questions=questions("a", "b"))
        assert frames_of(selections) == {"a": [1, 50], "b": [2, 60, 2999]}
        assert selections["a"].selection.sampler == "focus"


def test_rows_of_two_samplers_need_a_name(tmp_path):
    path = write_rows(tmp_path / "rows.jsonl", [row("a", [1]), row("a", [2], sampler="topk")])
    with pytest.raises(SelectionMismatch, match=r"rows of 2 samplers \(focus id-focus, topk id-topk\)"):
        load_selections(path)
    assert load_selections(path, options={"sampler": "topk"})["a"].selection.keyframes == [2]
    with pytest.raises(SelectionMismatch, match="no rows of 'aks'; there are: focus, topk"):
        load_selections(path, options={"sampler": "aks"})


def test_an_error_row_is_no_selection(tmp_path):
    path = write_rows(tmp_path / "rows.jsonl", [row("a", [1]), row("b", [], error="b.mp4: no such file")])
    with pytest.raises(SelectionMismatch, match=r"line 2 \(b\): no selection, b.mp4: no such file"):
        load_selections(path)
    assert list(load_selections(path, allow_missing=True)) == ["a"]


def test_a_line_that_was_being_written_is_no_row(tmp_path):
    path = write_rows(tmp_path / "run" / "rows.jsonl", [row("a", [1])])
    with open(path, "a") as file:
        file.write('{"question_id": "b", "keyfr')
    assert list(load_selections(tmp_path / "run")) == ["a"]
    with pytest.raises(InvalidInput, match=r"rows.jsonl:2: cut off here, 1 lines are whole"):
        load_selections(path)


@pytest.mark.parametrize("packed", [False, True])
def test_a_last_line_without_its_end_is_a_row(tmp_path, packed):
    text = "\ufeff" + "\r\n".join(json.dumps({"question_id": key, "keyframes": [1, 2]}) for key in "ab")
    path = tmp_path / ("rows.jsonl.gz" if packed else "rows.jsonl")
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    assert list(load_selections(path, questions=questions("a", "b"))) == ["a", "b"]


def test_the_hash_sees_frames_and_nothing_else():
    item = file_entry("a", "aks", keyframes=[1, 2], location="here")
    elsewhere = file_entry("a", "aks", keyframes=[1, 2], location="there")
    selection = file_entry("a", "aks", keyframes=[1, 3])
    assert selections_hash({"a": item}) == selections_hash({"a": elsewhere}) != selections_hash({"a": selection})


def test_a_finished_run_is_read_from_its_parquet_files(tmp_path):
    from focus_eval.bench.rows.store import compact

    part = tmp_path / "run" / "selections" / "focus-k3"
    write_rows(part / "rows-0.jsonl", [row("b", [2, 60, 2999]), row("a", [1, 50])])
    first_load = stated(load_selections(tmp_path / "run"))
    compact(part, SelectionRow, ["a", "b"])
    assert sorted(path.name for path in part.iterdir()) == ["costs.parquet", "rows.parquet"]
    assert stated(load_selections(tmp_path / "run")) == first_load
    assert stated(load_selections(part / "rows.parquet")) == first_load


def test_a_column_of_lists_follows_the_annotation(tmp_path, shared):
    path = tmp_path / "frames.csv"
    path.write_text('values\n"[5, 7]"\n"[1]"\n')
    selections = load_selections(path, questions=questions("a", "b"))
    assert frames_of(selections) == {"a": [5, 7], "b": [1]}
    with pytest.raises(SelectionMismatch, match="2 rows for 3 questions"):
        load_selections(path, questions=questions("a", "b", "c"))
    path.write_text('values\n"[5, 7]"\n"[2]"\n"[1]"\n')
    selections = load_selections(path, format="csv:skip=1", questions=questions("a", "b"))
    assert frames_of(selections) == {"a": [2], "b": [1]}
    path.write_text('values\n"[5, 7]"\nno list\n')
    with pytest.raises(SelectionMismatch, match="row 1: no list of frames, 'no list'"):
        load_selections(path, questions=questions("a", "b"))
    file = shared("data/public/selections/videomme_maxinfo_1000_64_R=8_tol=0.3.csv.gz")
    published = load_selections(file, questions=read_annotations("videomme", shared("data/videomme.json")))
    assert {*map(len, frames_of(published).values())} == {64}


def test_even_frames_fill_a_selection_that_is_short(tmp_path):
    expected_questions = questions("a", "b", "c", seconds=10.0)
    path = written(tmp_path, [[0, 50, 99], [60], [1, 2, 3]])
    selections = load_selections(
        path, format="aks:fill=even", questions=expected_questions, fps=dict.fromkeys("abc", 10.0)
    )
    assert [row.facts for row in stated(selections).values()] == [{}, {"filled": 2}, {}]
    assert selections["b"].selection.keyframes == [29, 60, 80]
    path = written(
        tmp_path, [{"id": "a", "frame_timestamps": [0.5, 5, 7]}, {"id": "b", "frame_timestamps": [6.0, 6.0]}]
    )
    in_seconds = load_selections(path, format="kfs:fill=even", questions=expected_questions[:2])
    assert in_seconds["b"].selection.times_seconds == pytest.approx([2.999, 6.0, 8.0], abs=0.01)
    rows = rows_of_selections(in_seconds, expected_questions, {}, name="n")[0]
    assert [selection.facts.get("filled") for selection in rows] == [None, 2]


def test_a_selection_that_cannot_be_filled_is_refused(tmp_path):
    path = written(tmp_path, [[0, 50], [60]])
    with pytest.raises(InvalidInput, match="needs the lengths of the videos"):
        load_selections(path, format="aks:fill=even")
    with pytest.raises(InvalidInput, match="length and rate"):
        load_selections(path, format="aks:fill=even", questions=questions("a", "b"))
    with pytest.raises(InvalidInput, match="unknown fill 'odd'"):
        load_selections(path, format="aks:fill=odd", questions=questions("a", "b"))
    entries = [{"id": key, "times": times, "answer": "A"} for key, times in (("a", [1.0, 2.0]), ("b", [3.0]))]
    with pytest.raises(SelectionMismatch, match="answered without filled frames"):
        load_selections(written(tmp_path, entries), format="answers:fill=even", questions=questions("a", "b"))


def test_a_format_with_options_is_one_text(tmp_path):
    rows = [{"id": "a", "chosen": [1, 2], "frames": [3]}]
    assert load_selections(written(tmp_path, rows), format="wfs:field=chosen")["a"].selection.keyframes == [1, 2]
    with pytest.raises(InvalidInput, match=r"option of selection format 'wfs': 'feild'; did you mean 'field'"):
        load_selections(written(tmp_path, rows), format="wfs:feild=chosen")
    with pytest.raises(InvalidInput, match="option 'field' of 'wfs' is given twice"):
        load_selections(written(tmp_path, rows), format="wfs:field=chosen", options={"field": "frames"})


def test_an_option_of_another_format_is_refused_not_ignored(tmp_path):
    with pytest.raises(InvalidInput, match="unknown option of selection format 'qca': 'sampler'"):
        load_selections(written(tmp_path, {"a": [1]}), options={"sampler": "focus"})


def test_a_file_that_two_formats_claim_needs_its_format_named(tmp_path, monkeypatch):
    from focus_eval.external.imports.by_question import BoltFormat

    monkeypatch.setattr(BoltFormat, "detects", lambda self, source: True)
    path = written(tmp_path, {"a": [1]})
    with pytest.raises(SelectionMismatch, match="looks like bolt and qca; name its format"):
        load_selections(path)
    assert load_selections(path, format="qca")["a"].selection.keyframes == [1]
