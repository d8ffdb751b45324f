"""LongVideoBench with subtitles: the lines spoken at the shown frames stand before the question."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from focus_eval.core.errors import InvalidInput
from focus_eval.lmms.arguments import AdapterOptions
from focus_eval.lmms.tasks import subtitles_near
from focus_eval.pipeline.selector import Selector
from focus_eval.samplers.registry import make_sampler

# Both formats of the data set's files; the clips are 9, 8, 7 and 0.5 seconds long.
SECONDS_AS_NUMBERS = [
    {"timestamp": [100.0 + at, 101.0 + at], "text": f"Line {at} of the speaker."} for at in range(9)
]  # fmt: skip
CLOCK_TIMES = [
    {"start": f"00:01:4{at}.030", "end": f"00:01:4{at}.430", "line": f"Short line {at}."} for at in range(8)
]  # fmt: skip


@pytest.fixture
def data(home, tools, tmp_path):
    """Documents of the official schema, one clip's subtitles in each format."""
    folder = home.hf / "datasets/longvideobench/subtitles"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "landscape_en.json").write_text(json.dumps(SECONDS_AS_NUMBERS))
    (folder / "portrait_en.json").write_text(json.dumps(CLOCK_TIMES))
    rows = tools.longvideobench_rows(["landscape", "portrait"], tools.QUESTIONS[:2])
    documents = [
        {**row, "subtitle_path": f"{row['video_id']}_en.json", "starting_timestamp_for_subtitles": 100.0}
        for row in rows
    ]
    return documents, tools.write_parquet(tmp_path / "documents", "validation", documents)


def overlapping(video: str, times: list[float]) -> list[str]:
    """Return the lines computed by hand: 1 s each, from 0 in "landscape"; .5 s to each side of .23 in "portrait"."""
    if video == "landscape":
        return [f"Line {at} of the speaker." for at in range(9) if any(at < time < at + 1 for time in times)]
    return [f"Short line {at}." for at in range(8) if any(at - 0.27 < time < at + 0.73 for time in times)]


def shown_texts(tools, model, monkeypatch):
    tap = tools.Tap(model.processor)
    monkeypatch.setattr(model, "processor", tap)
    return lambda: [text for text, _ in tap.by_text()]


@pytest.mark.parametrize("batch", [1, 4])
def test_each_question_gets_the_lines_of_its_own_frames(
    qwen, evaluate, home, tools, tmp_path, monkeypatch, data, batch
):
    _, folder = data
    monkeypatch.setattr(qwen, "batch_size_per_gpu", batch)
    texts = shown_texts(tools, qwen, monkeypatch)
    options = replace(qwen.adapter_options, record=str(tmp_path / "record"), subtitles=True)
    qwen.show(Selector(sampler=make_sampler("random"), encoder=None, k=3), frames=3, options=options)
    evaluate(qwen, ["focus_longvideobench"], data=folder)
    rows = tools.read_record(tmp_path / "record", "selections")
    answers = tools.read_record(tmp_path / "record", "answers")
    assert [row["error"] for row in answers] == [None] * 4
    prompts, distinct_lines = texts(), set()
    for row in rows:
        (prompt,) = [text for text in prompts if row["query"] in text]
        video = row["video"].removesuffix(".mp4")
        lines = overlapping(video, row["times_seconds"])
        spoken_lines = [
            line for line in prompt.split("\n") if "ine " in line and line.endswith(".") and "option" not in line
        ]
        spoken_lines = [line.rpartition("|>")[2] for line in spoken_lines]
        assert spoken_lines == lines
        assert prompt.index(row["query"]) > max((prompt.index(line) for line in lines), default=0)
        distinct_lines.add((video, tuple(lines)))
    assert len(distinct_lines) > 2  # two questions about one video see other frames, and read other lines


def test_without_the_option_the_prompt_is_as_it_was(qwen, evaluate, tools, tmp_path, monkeypatch, data):
    _, folder = data
    texts = shown_texts(tools, qwen, monkeypatch)
    options = replace(qwen.adapter_options, record=str(tmp_path / "record"))
    qwen.show(Selector(sampler=make_sampler("random"), encoder=None, k=3), frames=3, options=options)
    evaluate(qwen, ["focus_longvideobench"], data=folder)
    assert not any("of the speaker" in text or "Short line" in text for text in texts())


def test_at_the_tasks_own_frames_the_lines_are_those_of_lmms_eval(data):
    from lmms_eval.tasks.longvideobench.utils import compute_frame_timestamps, longvideobench_doc_to_text

    documents, _ = data
    kwargs = {"pre_prompt": "", "post_prompt": "", "insert_interleave_subtitles": True}
    for document in documents:
        prompt = longvideobench_doc_to_text(document, kwargs)
        task_lines = [
            line for line in prompt.partition(document["question"])[0].split("\n") if line not in ("<image>", "")
        ]
        assert subtitles_near(document, compute_frame_timestamps(document["duration"])) == "\n".join(task_lines)


def test_a_missing_file_or_field_is_an_error_of_the_question(qwen, evaluate, tools, tmp_path, data):
    documents, _ = data
    documents = [{**row, "subtitle_path": "nowhere.json"} if at == 1 else row for at, row in enumerate(documents)]
    folder = tools.write_parquet(tmp_path / "broken", "validation", documents)
    options = replace(qwen.adapter_options, record=str(tmp_path / "record"), subtitles=True, max_error_share=1)
    qwen.show(Selector(sampler=make_sampler("uniform"), encoder=None, k=2), frames=2, options=options)
    evaluate(qwen, ["focus_longvideobench"], data=folder)
    errors = [row["error"] for row in tools.read_record(tmp_path / "record", "answers")]
    assert sum(error is not None for error in errors) == 1
    assert "nowhere.json cannot be read" in next(filter(None, errors))
    with pytest.raises(InvalidInput, match="it has no subtitle_path, starting_timestamp_for_subtitles, duration"):
        subtitles_near({"id": "x"}, [1.0])


def test_chat_requests_get_the_lines_before_the_question_too():
    from focus_eval.lmms.requests import add_preface

    messages = [{"role": "user", "content": [{"type": "video", "url": "v"}, {"type": "text", "text": "Who?"}]}]
    changed = add_preface(messages, "A line.")
    assert changed[0]["content"][1]["text"] == "A line.\nWho?"
    assert messages[0]["content"][1]["text"] == "Who?"


def test_native_sampling_cannot_have_subtitles_near_its_frames():
    with pytest.raises(InvalidInput, match="needs their times"):
        AdapterOptions(sampler="native", subtitles=True)
