"""What is relied on inside qwen-vl-utils, accelerate and lmms-eval is still there."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys

import numpy as np
import pytest

from focus_eval.bench.lmms import patches as patches
from focus_eval.core.errors import MissingDependency


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

    patches.wrap_video_readers(wrap)
    with pytest.raises(LookupError, match="the wrapped reader was asked"):
        vision_process.fetch_video({"video": "clip.mp4"})
    assert read[0] == "clip.mp4"


@pytest.mark.slow
def test_lmms_evals_tasks_load_without_the_package_evaluate_until_a_metric_of_it_is_asked_for():
    code = """if True:
        import sys
        from focus_eval.bench.lmms.patches import import_evaluate_late
        import_evaluate_late()
        import lmms_eval.tasks
        from lmms_eval.api import registry
        assert "transformers.pipelines" not in sys.modules, "lmms-eval's tasks import the package evaluate"
        load = registry.hf_evaluate.load
        import evaluate
        assert load is evaluate.load and evaluate.__file__, "the late package is not the package itself"
    """
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_reader_of_qwen_vl_utils_gives_frames_metadata_and_rate(tmp_path):
    vision_process = pytest.importorskip("qwen_vl_utils.vision_process")
    from tests.support.keyframes.synthetic import write_numbered_clip

    clip = write_numbered_clip(tmp_path / "clip.mp4", 8, width=64, height=48, fps=4)
    name = vision_process.get_video_reader_backend()
    frames, metadata, rate = vision_process.VIDEO_READER_BACKENDS[name]({"video": str(clip)})
    assert frames.shape[1:] == (3, 48, 64)
    assert {"fps", "frames_indices", "total_num_frames"} <= set(metadata)
    assert rate > 0


@pytest.mark.parametrize("name", ["simple.qwen2_vl", "simple.qwen2_5_vl", "simple.qwen3_vl", "chat.qwen2_5_vl"])
def test_a_video_with_chosen_frames_is_not_opened_again_and_others_are(name, tmp_path):
    pytest.importorskip("decord")
    from focus_eval.bench.answering.frames import FrameBatch, PathWithFrames
    from tests.support.keyframes.synthetic import write_numbered_clip

    module = importlib.import_module(f"lmms_eval.models.{name}")
    assert "decord.VideoReader(" in inspect.getsource(module)
    patches.open_no_video_twice()
    patches.open_no_video_twice()
    pixels = np.zeros((2, 48, 64, 3), dtype=np.uint8)
    frame_batch = FrameBatch(
        path=tmp_path / "nothing here.mp4", frames=(1, 2), times_seconds=(0, 1), fps=4.0, n_frames=70, pixels=pixels
    )
    reader = module.decord.VideoReader(PathWithFrames(frame_batch))
    assert (len(reader), reader[0].asnumpy().shape) == (70, (48, 64, 3))
    clip = write_numbered_clip(tmp_path / "clip.mp4", 8, width=64, height=48, fps=4)
    assert len(module.decord.VideoReader(str(clip))) == 8


def test_a_release_without_what_only_saves_time_is_used_as_it_is(monkeypatch):
    # A wrapper that does not import decord, and one that is gone: no Qwen model may be lost over either.
    from focus_eval.bench.lmms.models.qwen_vl import FocusQwen2VL

    module = importlib.import_module("lmms_eval.models.simple.qwen2_vl")
    monkeypatch.delattr(module, "decord")
    monkeypatch.setitem(sys.modules, "lmms_eval.models.chat.qwen2_5_vl", None)
    FocusQwen2VL.check_installed()
    assert not hasattr(module, "decord")
    from lmms_eval import evaluator, utils

    monkeypatch.delattr(evaluator, "create_iterator")
    stock = utils.create_iterator
    patches.keep_videos_on_one_rank()
    assert utils.create_iterator is stock


def test_a_release_without_what_frames_or_prompts_need_is_refused_by_name(monkeypatch):
    from lmms_eval.api.task import ConfigurableTask

    from focus_eval.bench.lmms.models.qwen_vl import FocusQwen2VL

    monkeypatch.delattr("qwen_vl_utils.vision_process.VIDEO_READER_BACKENDS")
    with pytest.raises(
        MissingDependency, match=r"^qwen-vl-utils [\d.]+: .* has no VIDEO_READER_BACKENDS.*qwen-vl-utils==0.0.14$"
    ):
        FocusQwen2VL.check_installed()
    monkeypatch.delattr(ConfigurableTask, "_prepare_model_specific_config")
    with pytest.raises(MissingDependency, match=r"^lmms-eval 0\.7\.\d+: ConfigurableTask has no .*lmms-eval==0\.7\.3$"):
        patches.look_prompts_up_by_wrapper("focus_x", "x")
    module = {"__name__": "lmms_eval.evaluator", "uses_response_cache": patches.uses_response_cache}
    exec("def evaluate(cache):\n    return uses_response_cache()\n", module)
    with pytest.raises(MissingDependency, match="evaluate has no variable response_cache"):
        module["evaluate"](None)


def test_accelerate_shares_its_state_in_dicts_and_describes_one_process_anew():
    state = pytest.importorskip("accelerate.state")
    state_of_one = dict(state.PartialState(cpu=True)._shared_state)
    state.PartialState._shared_state["num_processes"] = 7
    assert state.PartialState().num_processes == 7
    try:
        with patches.single_process_in_accelerate():
            assert state.PartialState().num_processes == 1
        assert state.PartialState().num_processes == 7
    finally:
        state.PartialState._shared_state.clear()
        state.PartialState._shared_state.update(state_of_one)


def test_lmms_eval_names_its_cache_as_the_stack_is_read():
    evaluator = pytest.importorskip("lmms_eval.evaluator")
    read_variables = (("simple_evaluate", "use_cache"), ("evaluate", "response_cache"), ("evaluate", "cli_args"))
    for name, variable in read_variables:
        function = inspect.unwrap(getattr(evaluator, name))
        assert function.__code__.co_name == name
        assert function.__globals__["__name__"] == "lmms_eval.evaluator"
        assert variable in function.__code__.co_varnames, f"{name} has no {variable}"


def test_a_cache_of_lmms_eval_is_seen_from_below_it_and_none_is_not():
    source = "def evaluate(response_cache):\n    return uses_response_cache()\n"
    module = {"__name__": "lmms_eval.evaluator", "uses_response_cache": patches.uses_response_cache}
    exec(compile(source, "evaluator.py", "exec"), module)
    assert module["evaluate"](object()) is True
    assert module["evaluate"](None) is False
    assert patches.uses_response_cache() is False


@pytest.mark.slow
def test_the_stock_wrapper_still_needs_the_class_that_generates():
    """Fails once lmms-eval compares model types with model types; then `load_generating_classes` can go."""
    from lmms_eval.models.chat import huggingface as stock

    for table in (stock.AutoModelForCausalLM, stock.AutoModelForImageTextToText):
        assert "internvl" not in table._model_mapping.keys()  # noqa: SIM118 (as the wrapper asks)


@pytest.fixture
def dealt_by_video(monkeypatch):
    """lmms-eval's own way of dealing documents out, replaced for one test."""
    evaluator, utils = pytest.importorskip("lmms_eval.evaluator"), pytest.importorskip("lmms_eval.utils")
    monkeypatch.setattr(utils, "create_iterator", utils.create_iterator)
    monkeypatch.setattr(evaluator, "create_iterator", evaluator.create_iterator)
    patches.keep_videos_on_one_rank()
    patches.keep_videos_on_one_rank()  # a second model in the process
    assert evaluator.create_iterator is utils.create_iterator
    return utils.create_iterator


DOCUMENTS = [{"id": at, "video_path": f"v{at // 2 if at < 30 else at % 4}.mp4"} for at in range(50)]


@pytest.mark.parametrize("field", ["video_path", "videoID", "scene_name"])
@pytest.mark.parametrize(("limit", "offset"), [(None, 0), (17, 0), (20, 5)])
@pytest.mark.parametrize("world", [2, 3, 8])
def test_the_questions_of_a_video_are_on_one_rank_and_each_is_asked_once(dealt_by_video, world, limit, offset, field):
    documents = [{"id": doc["id"], field: doc["video_path"]} for doc in DOCUMENTS]
    shares = [list(dealt_by_video(enumerate(documents), rank, world, limit, offset)) for rank in range(world)]
    expected = list(enumerate(documents))[offset : None if limit is None else offset + limit]
    assert sorted((pair for share in shares for pair in share), key=lambda pair: pair[0]) == expected
    ranks = [{doc[field] for _, doc in share} for share in shares]
    assert sum(map(len, ranks)) == len(set().union(*ranks))
    max_questions = max(sum(doc[field] == video for _, doc in expected) for video in set().union(*ranks))
    assert max(map(len, shares)) - min(map(len, shares)) <= max_questions


def test_what_is_no_document_is_dealt_out_in_turn_and_one_process_gets_all(dealt_by_video):
    assert list(dealt_by_video(range(7), 1, 3)) == [1, 4]
    assert list(dealt_by_video(enumerate(DOCUMENTS), 0, 1)) == list(enumerate(DOCUMENTS))
    two_videos = list(enumerate(DOCUMENTS))[:4]
    assert list(dealt_by_video(iter(two_videos), 1, 3)) == [two_videos[1]]  # no rank is left empty
    with pytest.raises(ValueError, match="offset"):
        dealt_by_video(range(7), 0, 2, None, -1)


def test_lmms_eval_looks_its_dealer_up_where_it_is_replaced():
    task, evaluator = pytest.importorskip("lmms_eval.api.task"), pytest.importorskip("lmms_eval.evaluator")
    assert "utils.create_iterator(" in inspect.getsource(task.Task.build_all_requests)
    assert "utils.create_iterator(" in inspect.getsource(task.Task.doc_iterator)
    assert "create_iterator(" in inspect.getsource(evaluator.evaluate)
