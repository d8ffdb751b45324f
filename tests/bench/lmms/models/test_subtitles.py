"""Prompts with subtitles: those of the shown frames, in requests to a service, a video model and stock tasks."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from focus_eval.bench.answering.choosing import SamplerChooser
from focus_eval.bench.benchmarks.registry import benchmark_of_task
from focus_eval.bench.benchmarks.subtitles import SubtitleOptions, make_prompt, subtitle_choice
from focus_eval.core.errors import InvalidInput
from focus_eval.core.types import TimedText
from focus_eval.keyframes.pipeline.selector import Selector
from focus_eval.keyframes.samplers.registry import make_sampler
from focus_eval.keyframes.subtitles.files import read_subtitles
from focus_eval.keyframes.subtitles.prompts import interleaved, shown_lines, text_of_parts


@pytest.fixture
def stock_task(home, task_index, monkeypatch):
    """Load an official task as a run of the plugin does, on the documents of `home`."""
    from lmms_eval.tasks import TaskManager

    from focus_eval.bench.lmms.patches import look_prompts_up_by_wrapper

    monkeypatch.chdir(home.root)
    look_prompts_up_by_wrapper("focus_gpt4o", "openai")

    def load(name, **kwargs):
        from lmms_eval.tasks import get_task_dict

        manager = TaskManager("ERROR", include_defaults=True, model_name="focus_gpt4o")
        task = get_task_dict([{"task": name, **kwargs} if kwargs else name], manager)[name]
        return task, list(task.dataset[task.config.test_split])

    return load


def stock_times(name, document, k, *, seconds, fps):
    """Times of the even frames of which the stock task writes the subtitles."""
    if name.startswith("longvideobench"):
        from lmms_eval.tasks.longvideobench.utils import compute_frame_timestamps

        return [float(time) for time in compute_frame_timestamps(document["duration"], k)]
    return (np.linspace(0, seconds * fps - 1, k, dtype=int) / fps).tolist()


@pytest.mark.parametrize("k", [16, 32])
@pytest.mark.parametrize(
    ("name", "kwargs"),
    [
        ("longvideobench_val_i", {"insert_interleave_subtitles": True}),
        ("longvideobench_val_v", {"pre_prompt": "Look.", "insert_interleave_subtitles": True}),
        ("videomme_w_subtitle", {}),
        ("videomme_long_w_subtitle", {}),
    ],
)
def test_prompts_of_even_frames_are_those_of_the_stock_tasks(stock_task, home, monkeypatch, name, kwargs, k):
    specific = {"default": {"pre_prompt": "", "post_prompt": "Answer.\n", "frame_num": k, **kwargs}}
    # Without its filter: the documents of `home` are short.
    whole = {"process_docs": None} if "long_w" in name else {}
    task, documents = stock_task(name, lmms_eval_specific_kwargs=specific, **whole)
    if name.startswith("longvideobench"):
        # lmms-eval runs the task's module anew, and the task has no argument for its number of frames.
        module = task.config.doc_to_text.with_subtitles.__globals__
        monkeypatch.setitem(module, "compute_frame_timestamps", _with_k(module["compute_frame_timestamps"], k))
    facts = benchmark_of_task(name).facts.subtitles
    arguments = task.lmms_eval_specific_kwargs
    options = SubtitleOptions(layout=facts.layout, can_interleave=True)
    pre_prompt = arguments["pre_prompt"]
    choice = subtitle_choice(facts, options, is_written_by_task=True, location=name, pre_prompt=pre_prompt)
    n_lines = 0
    for document in documents:
        # Longer than the task's number of frames, which are whole seconds otherwise.
        document = {**document, "duration": 40.0} if name.startswith("longvideobench") else document
        question = benchmark_of_task(name).question(document)
        path = home.videos[question.benchmark] / question.video
        times = stock_times(name, document, k, seconds={"portrait": 8}.get(path.stem, 9), fps=10)
        base = task.config.doc_to_text(document, arguments)
        prompt = make_prompt(base, question, choice, video_path=path, times=times, fps=10.0)
        assert prompt.text == task.config.doc_to_text.with_subtitles(document, arguments)
        assert "line" not in base
        assert "<image>" not in base
        n_lines += prompt.text.count("line")
    assert n_lines > 20


def _with_k(function, k):
    return lambda duration, max_num_frames: function(duration, k)


def parts_of(body):
    """The parts of a request to a service: texts, and None for each picture."""
    content = [part for message in body["messages"] for part in message["content"]]
    return [part.get("text") if part["type"] == "text" else None for part in content]


def lines_of_row(home, row, *, rule="longvideobench"):
    """The lines of a row's frames, by a reading of their own."""
    folder = {
        "longvideobench": ("datasets/longvideobench/subtitles", "_en.json"),
        "videomme": ("videomme/subtitle", ".srt"),
    }
    name, suffix = folder[rule]
    lines = read_subtitles(home.hf / name / f"{row['video'].removesuffix('.mp4')}{suffix}")
    return lines, shown_lines(lines, row["times_seconds"], rule=rule, fps=10.0)


def rows_with_bodies(tools, server, folder):
    """Selection and answer rows with the request of each question."""
    answers = {row["question_id"]: row for row in tools.read_record(folder, "answers")}
    pairs = []
    for row in tools.read_record(folder, "selections"):
        (body,) = [body for body in server.bodies if any(row["query"] in (text or "") for text in parts_of(body))]
        pairs.append((row, answers[row["question_id"]], parts_of(body)))
    return pairs


def test_a_service_gets_the_lines_of_the_chosen_frames_between_the_pictures(
    gpt, server, evaluate, home, tools, tmp_path
):
    evaluate(gpt(frames=4), ["longvideobench_val_i"], official=True)
    pairs = rows_with_bodies(tools, server, tmp_path)
    assert len(pairs) == 8
    for row, answer, parts in pairs:
        lines, expected = lines_of_row(home, row)
        assert parts.count(None) == len(row["keyframes"]) == answer["frames_fed"]
        assert [text for text in parts[:-1] if text is not None] == [line.text for line in expected]
        assert parts[-1].startswith(row["query"])
        assert not any("<image>" in (text or "") for text in parts)
        # Each line stands after all frames at or before its middle, or that of a line before it.
        for line in expected:
            middles = [(item.start_seconds + item.stop_seconds) / 2 for item in lines[: lines.index(line) + 1]]
            n_before = parts[: parts.index(line.text)].count(None)
            assert n_before == sum(time <= max(middles) for time in row["times_seconds"])
        assert (answer["error"], answer.get("prompt_note")) == (None, None)


@pytest.mark.parametrize(
    ("mode", "layout"), [("off", ""), ("shown", "block"), ("all", "block"), ("all", "interleaved")]
)
def test_mode_and_layout_are_cells_of_their_own(gpt, server, evaluate, home, tools, tmp_path, mode, layout):
    evaluate(gpt(frames=4, subtitles=mode, subtitle_layout=layout), ["focus_longvideobench"])
    for row, _, parts in rows_with_bodies(tools, server, tmp_path):
        lines, shown_texts = lines_of_row(home, row)
        expected = {"off": (), "shown": shown_texts, "all": lines}[mode]
        texts = [text for part in parts if part is not None for text in part.splitlines()]
        assert sorted(text for text in texts if text in {line.text for line in lines}) == sorted(
            line.text for line in expected
        )
        assert ("This video's subtitles are listed below: " in texts) == (layout == "block")
        assert (parts[0] is None) == (layout != "interleaved" or row["times_seconds"][0] <= 0.2)
    (cell,) = tmp_path.glob("*/answers/*/cell.json")
    identity = json.loads(cell.read_text())["identity"]
    assert identity.get("subtitles") == (None if mode == "off" else f"{mode}, {layout}")


def test_a_video_model_gets_a_block_and_refuses_another_layout(qwen, evaluate, home, tools, tmp_path, monkeypatch):
    prompts = []
    generate = type(qwen).wrapper_generate
    monkeypatch.setattr(
        type(qwen),
        "wrapper_generate",
        lambda view, requests: prompts.extend(r.args[0] for r in requests) or generate(view, requests),
    )
    options = replace(qwen.adapter_options, record=str(tmp_path / "rows"))
    qwen.show(qwen.context.chooser, frames=qwen.context.frames, options=options)
    evaluate(qwen, ["videomme_w_subtitle"], official=True)
    rows = tools.read_record(tmp_path / "rows", "selections")
    assert len(rows) == len(prompts) == 4
    for row in rows:
        (prompt,) = [text for text in prompts if f"{row['query']}\n" in text and _has_lines(home, row, text)]
        assert prompt.endswith("The best answer is:")
    with pytest.raises(InvalidInput, match="takes a video, not pictures one by one; say subtitle_layout=block"):
        qwen.subtitle_options("shown", "interleaved")


@pytest.fixture
def tapped_llava(llava, tools, tmp_path, monkeypatch):
    """LLaVA-OneVision, shown four random frames, with a tap before its processor."""
    tap = tools.Tap(llava._image_processor)
    monkeypatch.setattr(llava, "_image_processor", tap)

    chooser = SamplerChooser(Selector(sampler=make_sampler("random"), encoder=None, k=4))
    options = replace(llava.adapter_options, record=str(tmp_path / "rows"), max_error_share=1.0)
    llava.show(chooser, frames=4, options=options)
    return llava, tap


def test_llava_onevision_gets_pictures_of_one_question_between_lines(tapped_llava, evaluate, home, tools, tmp_path):
    model, tap = tapped_llava
    evaluate(model, ["longvideobench_val_i"], official=True)
    rows = tools.read_record(tmp_path / "rows", "selections")
    answers = {row["question_id"]: row for row in tools.read_record(tmp_path / "rows", "answers")}
    assert len(rows) == len(tap.calls) == 8
    for row in rows:
        (call,) = [call for call in tap.calls if row["query"] in call["text"]]
        lines, expected = lines_of_row(home, row)
        parts = interleaved(lines, row["times_seconds"], texts_of=expected)
        assert f"{text_of_parts(parts)}\n{row['query']}" in call["text"]
        (pictures,) = call["images"]  # those of one question: one tile each
        every_frame = tools.decode_all(home.videos["longvideobench"] / row["video"])
        assert np.array_equal(np.stack(pictures), every_frame[row["keyframes"]])
        answer = answers[row["question_id"]]
        assert (answer["error"], answer["frames_fed"], answer["fed_frames"]) == (None, 4, row["keyframes"])


def test_pictures_that_llava_onevision_cannot_take_are_the_questions_error(
    tapped_llava, evaluate, home, tools, tmp_path, monkeypatch
):
    model, _ = tapped_llava
    path = home.hf / "datasets/longvideobench/subtitles/odd_en.json"
    content = path.read_bytes()
    try:
        path.write_text(json.dumps([{"timestamp": [0, 9], "text": "an <image> of words"}]))
        monkeypatch.setattr(model._config.text_config, "max_position_embeddings", 60)
        evaluate(model, ["longvideobench_val_i"], official=True)
    finally:
        path.write_bytes(content)
    errors = {row["video"]: row["error"] for row in tools.read_record(tmp_path / "rows", "answers")}
    assert "5 <image> in the text for 4 pictures; subtitle_layout=block" in errors["odd.mp4"]
    assert "tokens of 4 pictures and text, the context has 60; say subtitle_layout=block" in errors["few.mp4"]


def _has_lines(home, row, prompt):
    _, expected = lines_of_row(home, row, rule="videomme")
    block = "\n".join(
        ["This video's subtitles are listed below: ", *(line.text for line in expected), "Select the best"]
    )
    return prompt.startswith(block)


def test_files_that_are_missing_empty_or_broken_are_the_questions_own(gpt, server, evaluate, home, tools, tmp_path):
    folder = home.hf / "videomme/subtitle"
    contents = {path: path.read_bytes() for path in folder.iterdir()}
    try:
        (folder / "landscape.srt").unlink()
        (folder / "portrait.srt").write_text("no subtitles at all\n")
        evaluate(gpt(frames=3, max_error_share=1.0), ["videomme_w_subtitle"], official=True)
        answers = tools.read_record(tmp_path, "answers")
        by_video = {row["video"]: row for row in answers}
        missing, broken = by_video["landscape.mp4"], by_video["portrait.mp4"]
        assert (missing["error"], missing["prompt_note"]) == (None, "no subtitles available")
        assert "portrait.srt: subtitles cannot be read (neither SubRip, WebVTT nor JSON)" in broken["error"]
        assert len(answers) == 4
        assert all("listed below: \nNo subtitles available\nSelect" in parts_of(body)[-1] for body in server.bodies)
    finally:
        for path, content in contents.items():
            path.write_bytes(content)


def test_a_task_that_writes_for_frames_of_its_own_is_noted_in_its_rows(gpt, evaluate, home, tools, tmp_path):
    data = home.data["longvideobench"]
    lines = ["task: own_frames", f"dataset_path: {data}", "test_split: validation", "output_type: generate_until"]
    lines += [
        "doc_to_visual: !function focus_eval.bench.lmms.tasks.longvideobench_visual",
        "doc_to_target: correct_choice",
    ]
    lines += ["doc_to_text: !function focus_eval.bench.lmms.tasks.longvideobench_text"]
    lines += ["process_results: !function focus_eval.bench.lmms.tasks.longvideobench_results"]
    lines += ["metric_list:", "- metric: accuracy", "  higher_is_better: true"]
    lines += ["  aggregation: !function focus_eval.bench.lmms.tasks.accuracy"]
    lines += ["generation_kwargs: {max_new_tokens: 2}"]
    lines += ["lmms_eval_specific_kwargs: {default: {pre_prompt: '<image><image>', post_prompt: '', frame_num: 32}}"]
    tasks = tmp_path / "own"
    tasks.mkdir()
    (tasks / "own_frames.yaml").write_text("\n".join(lines))
    from lmms_eval.evaluator import simple_evaluate
    from lmms_eval.tasks import TaskManager

    model = gpt(frames=3, record=str(tmp_path / "rows"))
    manager = TaskManager("ERROR", include_path=str(tasks), include_defaults=False, model_name=model.model_id)
    simple_evaluate(model=model, tasks=["own_frames"], task_manager=manager, datetime_str="now", bootstrap_iters=0)
    notes = {row["prompt_note"] for row in tools.read_record(tmp_path / "rows", "answers")}
    assert notes == {
        "prompt made for other frames: 2 <image> in the text, 3 pictures shown; "
        "the task states frame_num=32, 3 frames shown"
    }


def test_interleaved_lines_keep_their_places_with_equal_texts():
    lines = (TimedText(0.0, 1.0, "yes"), TimedText(2.0, 3.0, "yes"))
    assert interleaved(lines, [0.5, 2.5], texts_of=lines[1:]) == [None, None, "yes"]
