"""What is relied on inside qwen-vl-utils, accelerate and lmms-eval is still there."""

from __future__ import annotations

import inspect

import pytest

from focus_eval.lmms import other_packages


def test_qwen_vl_utils_looks_its_readers_up_in_the_table_at_each_call(monkeypatch):
    vision_process = pytest.importorskip("qwen_vl_utils.vision_process")
    readers = dict(vision_process.VIDEO_READER_BACKENDS)
    assert readers
    monkeypatch.setattr(vision_process, "VIDEO_READER_BACKENDS", readers)
    read = []

    def wrap(reader):
        def note(element):
            read.append(element["video"])
            raise LookupError("the wrapped reader was asked")

        return note

    other_packages.wrap_video_readers(wrap)
    with pytest.raises(LookupError, match="the wrapped reader was asked"):
        vision_process.fetch_video({"video": "clip.mp4"})
    assert read[0] == "clip.mp4"


def test_a_reader_of_qwen_vl_utils_gives_frames_metadata_and_rate(tmp_path):
    vision_process = pytest.importorskip("qwen_vl_utils.vision_process")
    from focus_eval.video.synthetic import write_numbered_clip

    clip = write_numbered_clip(tmp_path / "clip.mp4", 8, width=64, height=48, fps=4)
    name = vision_process.get_video_reader_backend()
    frames, metadata, rate = vision_process.VIDEO_READER_BACKENDS[name]({"video": str(clip)})
    assert frames.shape[1:] == (3, 48, 64)
    assert {"fps", "frames_indices", "total_num_frames"} <= set(metadata)
    assert rate > 0


def test_accelerate_shares_its_state_in_dicts_and_describes_one_process_anew():
    state = pytest.importorskip("accelerate.state")
    before = dict(state.PartialState(cpu=True)._shared_state)
    state.PartialState._shared_state["num_processes"] = 7
    assert state.PartialState().num_processes == 7
    try:
        with other_packages.alone_in_accelerate():
            assert state.PartialState().num_processes == 1
        assert state.PartialState().num_processes == 7
    finally:
        state.PartialState._shared_state.clear()
        state.PartialState._shared_state.update(before)


def test_lmms_eval_names_its_cache_as_the_stack_is_read():
    evaluator = pytest.importorskip("lmms_eval.evaluator")
    for name, variable in (("simple_evaluate", "use_cache"), ("evaluate", "response_cache")):
        function = inspect.unwrap(getattr(evaluator, name))
        assert function.__code__.co_name == name
        assert function.__globals__["__name__"] == "lmms_eval.evaluator"
        assert variable in function.__code__.co_varnames, f"{name} has no {variable}"


def test_a_cache_of_lmms_eval_is_seen_from_below_it_and_none_is_not():
    source = "def evaluate(response_cache):\n    return uses_response_cache()\n"
    module = {"__name__": "lmms_eval.evaluator", "uses_response_cache": other_packages.uses_response_cache}
    exec(compile(source, "evaluator.py", "exec"), module)
    assert module["evaluate"](object()) is True
    assert module["evaluate"](None) is False
    assert other_packages.uses_response_cache() is False


def test_the_stock_wrapper_still_needs_the_class_that_generates():
    """Fails once lmms-eval compares model types with model types; then `load_generating_classes` can go."""
    from lmms_eval.models.chat import huggingface as stock

    for table in (stock.AutoModelForCausalLM, stock.AutoModelForImageTextToText):
        assert "internvl" not in table._model_mapping.keys()  # noqa: SIM118 (as the wrapper asks)
