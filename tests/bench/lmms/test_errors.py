"""A question that fails is a row with an error: never an answer, never the end of the run, never its batch's end."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import pytest

from focus_eval.bench.answering.choosing import SamplerChooser
from focus_eval.bench.lmms.tasks import NO_ANSWER
from focus_eval.core.errors import InvalidInput, RunError

BROKEN = {"empty_0", "text_0", "torn_0", "late_0", "missing_0"}


@pytest.fixture(scope="module")
def qwen(tiny_qwen, tmp_path_factory):
    from focus_eval.bench.lmms.models.qwen_vl import FocusQwen2VL

    record = tmp_path_factory.mktemp("record")
    return FocusQwen2VL(
        pretrained=str(tiny_qwen), device="cpu", sampler="uniform", frames=4, record=str(record), max_error_share=1
    )


@pytest.fixture
def recorded(qwen, tmp_path):
    """The model, writing below this test's folder."""
    qwen.show(qwen.context.chooser, frames=4, options=replace(qwen.adapter_options, record=str(tmp_path / "record")))
    return qwen


@pytest.fixture(scope="module")
def broken(home, tools, tmp_path_factory):
    """LongVideoBench documents of two good videos and five that cannot be read as asked."""
    from tests.support.keyframes.synthetic import write_numbered_clip

    videos = home.videos["longvideobench"]
    whole = (videos / "landscape.mp4").read_bytes()
    (videos / "empty.mp4").write_bytes(b"")
    (videos / "text.mp4").write_text("this is no video")
    (videos / "torn.mp4").write_bytes(whole[: len(whole) // 2])
    late = {"container_options": {"movflags": "faststart"}, "width": 112, "height": 84, "fps": 10, "crf": 1, "gop": 10}
    write_numbered_clip(videos / "late.mp4", 90, **late)  # its index is whole, its last frames are not there
    data = (videos / "late.mp4").read_bytes()
    (videos / "late.mp4").write_bytes(data[: len(data) * 3 // 4])
    names = ["landscape", "empty", "text", "torn", "late", "missing", "portrait"]
    rows = tools.longvideobench_rows(names, tools.QUESTIONS[:1])
    return tools.write_parquet(tmp_path_factory.mktemp("broken"), "validation", rows)


def answers_of(tools, tmp_path):
    return {row["question_id"]: row for row in tools.read_record(tmp_path / "record", "answers")}


@pytest.mark.parametrize("batch", [1, 4])
def test_an_unreadable_video_is_an_error_of_its_question(
    recorded, evaluate, broken, tools, tmp_path, monkeypatch, batch
):
    monkeypatch.setattr(recorded, "batch_size_per_gpu", batch)
    results = evaluate(recorded, ["focus_longvideobench"], data=broken)
    answers = answers_of(tools, tmp_path)
    failed = {key for key, row in answers.items() if row["error"]}
    assert failed == BROKEN
    assert all(answers[key]["answer"] is None and answers[key]["video"] in answers[key]["error"] for key in failed)
    assert all(answers[key]["answer"] is not None for key in ("landscape_0", "portrait_0"))
    selections = tools.read_record(tmp_path / "record", "selections")
    assert {row["question_id"] for row in selections if row["error"]} == failed
    metrics = results["results"]["focus_longvideobench"]
    assert metrics["no_answer,none"] == 5
    samples = {result["doc"]["id"]: result["resps"][0] for result in results["samples"]["focus_longvideobench"]}
    assert {key for key, text in samples.items() if text == NO_ANSWER} == failed


def test_a_missing_video_does_not_end_a_task_that_would_exit(recorded, evaluate, tools, tmp_path):
    rows = [
        {
            "video_name": f"{video}.mp4", "duration": 9.0, "question": "What?\n(A) A letter\n(B) A book\n",
            "candidates": ["A letter", "A book"], "answer": "B", "task_type": "plotQA",
        }
        for video in ("nowhere", "landscape")
    ]  # fmt: skip
    data = tools.write_parquet(tmp_path / "mlvu", "test", rows)
    results = evaluate(recorded, ["focus_mlvu"], data=data)
    errors = sorted(str(row["error"]) for row in answers_of(tools, tmp_path).values())
    assert errors[0] == "None"
    assert "nowhere.mp4" in errors[1]
    assert results["results"]["focus_mlvu"]["no_answer,none"] == 1


@pytest.mark.parametrize("batch", [1, 4])
def test_a_model_that_fails_on_one_question_answers_the_others(recorded, evaluate, tools, tmp_path, monkeypatch, batch):
    monkeypatch.setattr(recorded, "batch_size_per_gpu", batch)
    evaluate(recorded, ["focus_videomme"])
    first_answers = {key: row["answer"] for key, row in answers_of(tools, tmp_path).items()}
    processor = recorded.processor

    class Stumbling(tools.Tap):
        def __call__(self, *args, **inputs):
            if any("portrait" not in text and tools.QUESTIONS[1] in text for text in inputs["text"]):
                raise RuntimeError("CUDA out of memory, so to say")
            return super().__call__(*args, **inputs)

    monkeypatch.setattr(recorded, "processor", Stumbling(processor))
    shutil.rmtree(tmp_path / "record")
    recorded.show(recorded.context.chooser, frames=4, options=recorded.context.options)
    evaluate(recorded, ["focus_videomme"])
    answers = answers_of(tools, tmp_path)
    assert {key for key, row in answers.items() if row["error"]} == {"landscape-1", "portrait-1"}
    assert "CUDA out of memory" in answers["landscape-1"]["error"]
    assert set(first_answers) == set(answers)
    assert all(row["answer"] is not None for row in answers.values() if row["error"] is None)
    if batch == 1:
        assert all(answers[key]["answer"] == first_answers[key] for key in ("landscape-0", "portrait-0"))


@pytest.mark.parametrize("batch", [1, 4])
def test_a_device_that_fails_ends_the_run_and_no_question_is_blamed(
    recorded, evaluate, tools, tmp_path, monkeypatch, batch
):
    monkeypatch.setattr(recorded, "batch_size_per_gpu", batch)
    calls, generate = [], recorded._model.generate

    def failing(**inputs):
        calls.append(inputs)
        if len(calls) > 1:
            raise RuntimeError("CUDA error: an illegal memory access was encountered\nCompile with TORCH_USE_CUDA_DSA")
        return generate(**inputs)

    monkeypatch.setattr(recorded._model, "generate", failing)
    with pytest.raises(RunError, match=r"CUDA error: an illegal memory access was encountered; run again"):
        evaluate(recorded, ["focus_videomme", "focus_mlvu"])
    assert all(row["error"] is None for row in answers_of(tools, tmp_path).values())


def test_an_exception_that_the_wrapper_swallows_is_an_error(tiny_llava, evaluate, tools, tmp_path, monkeypatch):
    from focus_eval.bench.lmms.models.llava_hf import FocusLlavaOnevision

    llava = FocusLlavaOnevision(
        pretrained=str(tiny_llava), device="cpu", sampler="uniform", frames=2, record=str(tmp_path / "record"),
        max_error_share=1,
    )  # fmt: skip
    monkeypatch.setattr(llava._model, "generate", lambda **inputs: (_ for _ in ()).throw(RuntimeError("no kernel")))
    results = evaluate(llava, ["focus_videomme"])  # the stock wrapper would answer ""
    assert {row["error"] for row in answers_of(tools, tmp_path).values()} == {"RuntimeError: no kernel"}
    assert results["results"]["focus_videomme"]["no_answer,none"] == 4


def test_a_file_the_wrapper_does_not_take_is_an_error_not_an_answer_from_text_alone(
    recorded, home, evaluate, tools, tmp_path
):
    # The stock wrapper passes over suffixes it does not know and asks its model without any frame.
    videos = home.videos["longvideobench"]
    shutil.copy(videos / "landscape.mp4", videos / "clip.mkv")
    rows = [{**row, "video_path": "clip.mkv"} for row in tools.longvideobench_rows(["landscape"], tools.QUESTIONS[:1])]
    evaluate(recorded, ["focus_longvideobench"], data=tools.write_parquet(tmp_path / "mkv", "validation", rows))
    (answer,) = answers_of(tools, tmp_path).values()
    assert "did not read the chosen frames" in answer["error"]


def test_native_sampling_that_shows_no_frame_is_an_error_too(recorded, evaluate, broken, tools, tmp_path):
    source = recorded.context.chooser
    recorded.show(None, frames=4, options=recorded.context.options)
    evaluate(recorded, ["focus_longvideobench"], data=broken)
    answers = answers_of(tools, tmp_path)
    recorded.show(source, frames=4)
    # The stock wrapper answers these from the text alone, and lmms-eval scores it; the last it reads in its own way.
    assert {key for key, row in answers.items() if row["error"]} >= BROKEN - {"late_0"}


def test_a_sampler_that_may_choose_no_frame_is_named_when_it_happens_first(recorded, evaluate, tools, tmp_path):
    from loguru import logger

    from focus_eval.keyframes.encoders.registry import make_encoder
    from focus_eval.keyframes.pipeline.selector import Selector
    from focus_eval.keyframes.samplers.registry import make_sampler
    from tests.support.keyframes.random_weights import write_tiny_clip

    encoder = make_encoder("clip", checkpoint=str(write_tiny_clip(tmp_path / "clip")), device="cpu")
    lines, source = [], recorded.context.chooser
    sink = logger.add(lines.append, format="{message}", level="WARNING")
    try:
        aks = SamplerChooser(Selector(sampler=make_sampler("aks"), encoder=encoder, k=2))
        recorded.show(aks, frames=2, options=recorded.context.options)
        evaluate(recorded, ["focus_videomme"])
    finally:
        logger.remove(sink)
        recorded.show(source, frames=4)
    (warning,) = [line for line in lines if "may end without frames" in line]
    assert "gives int(2 / 32) = 0 frames; set max_depth=1 or less, or k=32 or more" in warning
    errors = [row["error"] for row in answers_of(tools, tmp_path).values()]
    assert errors.count(None) < 4
    assert all("no frame chosen: a segment at max_depth" in error for error in errors if error is not None)


def test_too_many_errors_fail_the_run_after_everything_was_asked(recorded, evaluate, broken, tools, tmp_path):
    options = replace(recorded.context.options, max_error_share=0.02)
    recorded.show(recorded.context.chooser, frames=4, options=options)
    with pytest.raises(RunError, match="5 of 7 questions have no answer") as failed:
        evaluate(recorded, ["focus_longvideobench"], data=broken)
    assert "max_error_share=0.02" in str(failed.value)
    assert len(answers_of(tools, tmp_path)) == 7


def test_lmms_evals_response_cache_is_refused(recorded, evaluate, tmp_path):
    for _ in range(2):  # the second time the cache would have every answer
        with pytest.raises(InvalidInput, match="--use_cache"):
            evaluate(recorded, ["focus_videomme"], use_cache=str(tmp_path / "cache"))


def test_the_response_cache_would_have_answered_from_other_frames(tiny_qwen, evaluate, tmp_path, monkeypatch):
    """Why it is refused: with the refusal off, other frames get the first frames' answers back."""
    from focus_eval.bench.lmms import patches
    from focus_eval.bench.lmms.models.qwen_vl import FocusQwen2VL
    from focus_eval.keyframes.pipeline.selector import Selector
    from focus_eval.keyframes.samplers.registry import make_sampler

    monkeypatch.setattr(patches, "refuse_response_cache", lambda: None)
    model = FocusQwen2VL(
        pretrained=str(tiny_qwen), device="cpu", sampler="uniform", frames=4, record=str(tmp_path / "record")
    )
    evaluate(model, ["focus_videomme"], use_cache=str(tmp_path / "cache"), model_args={"tag": 1})
    model.show(SamplerChooser(Selector(sampler=make_sampler("random"), encoder=None, k=4)), frames=4)
    wrapper_calls = []
    monkeypatch.setattr(model, "wrapper_generate", lambda requests: wrapper_calls.append(requests))
    evaluate(model, ["focus_videomme"], use_cache=str(tmp_path / "cache"), model_args={"tag": 1})
    assert wrapper_calls == []


def test_more_frames_than_the_model_was_loaded_for_are_refused(recorded):
    with pytest.raises(InvalidInput, match="loaded for at most 4"):
        recorded.show(recorded.context.chooser, frames=5)


def test_one_loaded_model_serves_many_runs_and_hands_back_rows_it_has(recorded, evaluate, tools, tmp_path):
    evaluate(recorded, ["focus_videomme"])
    rows = answers_of(tools, tmp_path)
    rows["landscape-0"]["answer"] = "C"
    kept_lines = [json.dumps(row) + "\n" for key, row in rows.items() if key != "portrait-1"]
    (file,) = (tmp_path / "record").rglob("answers/*/*.jsonl")
    file.write_text("".join(kept_lines))
    recorded.show(recorded.context.chooser, frames=4, options=recorded.context.options)
    results = evaluate(recorded, ["focus_videomme"])
    written = file.read_text().splitlines(keepends=True)
    assert written[:-1] == kept_lines
    assert json.loads(written[-1])["question_id"] == "portrait-1"
    samples = {result["doc"]["question_id"]: result["resps"][0] for result in results["samples"]["focus_videomme"]}
    assert samples["landscape-0"] == "C"
    assert samples["portrait-0"] == rows["portrait-0"]["answer"]


def test_frames_of_mixed_sizes_are_refused_where_they_cannot_be_shown(tiny_llava, evaluate, tools, tmp_path):
    from focus_eval.bench.lmms.models.llava_hf import FocusLlavaOnevision
    from focus_eval.keyframes.pipeline.selector import Selector
    from focus_eval.keyframes.samplers.registry import make_sampler

    class Halves(Selector):
        def attempt(self, *arguments, **source):
            outcome = super().attempt(*arguments, **source)
            return replace(outcome, row=replace(outcome.row, scales=[1.0, 0.5]))

    llava = FocusLlavaOnevision(
        pretrained=str(tiny_llava), device="cpu", sampler="uniform", frames=2, record=str(tmp_path / "record"),
        max_error_share=1,
    )  # fmt: skip
    llava.show(SamplerChooser(Halves(sampler=make_sampler("uniform"), encoder=None, k=2)), frames=2)
    evaluate(llava, ["focus_videomme"], limit=1)
    (answer,) = answers_of(tools, tmp_path).values()
    assert "one size only" in answer["error"]


def test_qwen2_vl_shows_frames_of_mixed_sizes_as_images_of_these_sizes(
    recorded, evaluate, home, tools, tmp_path, monkeypatch
):
    import numpy as np

    from focus_eval.keyframes.pipeline.selector import Selector
    from focus_eval.keyframes.samplers.registry import make_sampler

    class Halves(Selector):
        def attempt(self, *arguments, **source):
            outcome = super().attempt(*arguments, **source)
            return replace(outcome, row=replace(outcome.row, scales=[1.0, 0.75, 0.5]))

    tap = tools.Tap(recorded.processor)
    monkeypatch.setattr(recorded, "processor", tap)
    source = recorded.context.chooser
    halves = Halves(sampler=make_sampler("uniform"), encoder=None, k=3)
    recorded.show(SamplerChooser(halves), frames=3, options=recorded.context.options)
    evaluate(recorded, ["focus_videomme"], limit=1)
    recorded.show(source, frames=4)
    (answer,) = answers_of(tools, tmp_path).values()
    assert answer["error"] is None
    (call,) = tap.calls
    # 112 x 84 at 1, 3/4 and 1/2; qwen-vl-utils then rounds to multiples of 28 and fills up to min_pixels.
    assert [image.size for image in call["images"]] == [(112, 84), (84, 56), (56, 56)]
    first = tools.decode_all(home.videos["videomme"] / "landscape.mp4")[0]
    assert np.array_equal(np.asarray(call["images"][0]), first)


@pytest.mark.parametrize("n_keyframes", [4, 5])
def test_more_frames_than_the_model_is_set_to_show_are_refused(recorded, evaluate, tools, tmp_path, n_keyframes):
    from focus_eval.keyframes.pipeline.selector import Selector
    from focus_eval.keyframes.samplers.registry import make_sampler

    chooser = recorded.context.chooser
    long_chooser = SamplerChooser(Selector(sampler=make_sampler("uniform"), encoder=None, k=n_keyframes))
    recorded.show(long_chooser, frames=4, options=recorded.context.options)
    evaluate(recorded, ["focus_videomme"], limit=1)
    recorded.show(chooser, frames=4)
    (answer,) = answers_of(tools, tmp_path).values()
    refusal = "5 frames chosen, focus_qwen2_vl is set to show at most 4"
    assert answer["error"] == (None if n_keyframes == 4 else refusal)
