"""Where the adapter must change nothing, it changes nothing; where a stock run differs, the difference is stated."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch


def run_stock(model, name, evaluate, tools, monkeypatch, attribute):
    model.model_id = name
    tap = tools.Tap(getattr(model, attribute))
    monkeypatch.setattr(model, attribute, tap)
    results = evaluate(model, ["focus_videomme"], max_new_tokens=6)
    answers = {result["doc"]["question_id"]: result["resps"][0] for result in results["samples"]["focus_videomme"]}
    return tap, answers


def run_ours(model, evaluate, tools, tmp_path, monkeypatch, attribute):
    tap = tools.Tap(getattr(model, attribute))
    monkeypatch.setattr(model, attribute, tap)
    evaluate(model, ["focus_videomme"], max_new_tokens=6)
    return tap, {row["question_id"]: row for row in tools.read_record(tmp_path, "answers")}


def assert_same_inputs(first, second):
    """Fail unless both taps saw the same texts with equal tensors, in any order."""
    assert len(first.calls) == len(second.calls) > 0

    def in_order(tap):
        # Threads prepare several questions at a time, and two questions have one text.
        return sorted(tap.by_text(), key=lambda pair: (pair[0], torch.as_tensor(pair[1]).numpy().tobytes()))

    for first_inputs, second_inputs in zip(in_order(first), in_order(second), strict=True):
        assert first_inputs[0] == second_inputs[0]
        assert torch.equal(torch.as_tensor(first_inputs[1]), torch.as_tensor(second_inputs[1]))


@pytest.mark.parametrize("batch", [1, 3])
def test_native_sampling_of_qwen2_vl_is_the_stock_wrappers_own(
    tiny_qwen, evaluate, tools, tmp_path, monkeypatch, batch
):
    from lmms_eval.models.simple.qwen2_vl import Qwen2_VL

    from focus_eval.bench.lmms.models.qwen_vl import FocusQwen2VL

    options = {"pretrained": str(tiny_qwen), "device": "cpu", "device_map": "cpu", "batch_size": batch}
    stock = Qwen2_VL(**options, max_num_frames=4)
    tap, answers = run_stock(stock, "qwen2_vl", evaluate, tools, monkeypatch, "processor")
    adapter_model = FocusQwen2VL(**options, sampler="native", frames=4, record=str(tmp_path))
    our_tap, rows = run_ours(adapter_model, evaluate, tools, tmp_path, monkeypatch, "processor")
    assert_same_inputs(our_tap, tap)
    assert {key: row["answer"].strip() for key, row in rows.items()} == {k: a.strip() for k, a in answers.items()}
    # A stock batch thins out only its first video: the others show all 18 or 16 frames that were decoded.
    reached = sorted(row["frames_fed"] for row in rows.values())
    assert reached == ([4, 4, 4, 4] if batch == 1 else [4, 4, *reached[2:]])
    assert batch == 1 or reached[2] > 4


@pytest.mark.parametrize("sampler", ["native", "uniform"])
def test_llava_onevision_native_and_uniform_are_the_stock_wrappers_frames(
    tiny_llava, evaluate, tools, tmp_path, monkeypatch, sampler
):
    from lmms_eval.models.simple.llava_hf import LlavaHf

    from focus_eval.bench.lmms.models.llava_hf import FocusLlavaOnevision

    options = {"pretrained": str(tiny_llava), "device": "cpu", "device_map": "cpu"}
    stock = LlavaHf(**options, max_frames_num=5)
    tap, answers = run_stock(stock, "llava_hf", evaluate, tools, monkeypatch, "_image_processor")
    adapter_model = FocusLlavaOnevision(**options, sampler=sampler, frames=5, record=str(tmp_path))
    our_tap, rows = run_ours(adapter_model, evaluate, tools, tmp_path, monkeypatch, "_image_processor")
    assert_same_inputs(our_tap, tap)
    assert {key: row["answer"].strip() for key, row in rows.items()} == {k: a.strip() for k, a in answers.items()}
    assert {row["frames_fed"] for row in rows.values()} == {5}


@pytest.mark.upper_rooms
def test_qwen2_vls_native_indices_through_the_seam_give_the_same_tensors_and_answers(
    tiny_qwen, home, evaluate, tools, tmp_path, monkeypatch
):
    from lmms_eval.models.simple.qwen2_vl import Qwen2_VL

    from focus_eval.bench.lmms.models.qwen_vl import FocusQwen2VL

    options = {"pretrained": str(tiny_qwen), "device": "cpu", "device_map": "cpu"}
    tap, answers = run_stock(
        Qwen2_VL(**options, max_num_frames=4), "qwen2_vl", evaluate, tools, monkeypatch, "processor"
    )
    native = {}
    for video, clip in (("landscape", 90), ("portrait", 80)):
        decoded = np.linspace(0, clip - 1, clip // 10 * 2).round().astype(int)  # two frames per second, then four
        native[video] = decoded[np.linspace(0, len(decoded) - 1, 4).astype(int)].tolist()
    selections = tmp_path / "native.json"
    selections.write_text(json.dumps({f"{video}-{at}": frames for video, frames in native.items() for at in (0, 1)}))
    adapter_model = FocusQwen2VL(**options, selections=str(selections), frames=4, record=str(tmp_path / "record"))
    our_tap, rows = run_ours(adapter_model, evaluate, tools, tmp_path / "record", monkeypatch, "processor")
    assert_same_inputs(our_tap, tap)
    assert {key: row["answer"].strip() for key, row in rows.items()} == {k: a.strip() for k, a in answers.items()}


def test_a_long_video_costs_a_stock_qwen2_vl_run_its_resolution(tmp_path, monkeypatch):
    """Stock: up to 768 frames are decoded under one pixel budget, then 32 kept. Ours: the budget is for those shown."""
    from qwen_vl_utils import vision_process

    def largest_frame(n_decoded, *, max_pixels=602112, min_pixels=3136):
        budget = vision_process.MODEL_SEQ_LEN * 28 * 28 * 0.9
        cap = max(min(vision_process.VIDEO_MAX_TOKEN_NUM * 28 * 28, budget / n_decoded * 2), min_pixels * 1.05)
        return min(max_pixels, cap)

    assert largest_frame(768) == 235200  # a video of 384 s or more, at two frames per second
    assert largest_frame(32) == 602112
    assert largest_frame(32) / largest_frame(768) == pytest.approx(2.56)

    # The same on a real clip, with the budget divided by 400 so that 48 decoded frames already meet it.
    from focus_eval.bench.answering.frames import FrameBatch, PathWithFrames
    from focus_eval.bench.lmms.models.qwen_vl import wrap_reader
    from focus_eval.keyframes.video import open_video
    from tests.support.keyframes.synthetic import write_numbered_clip

    monkeypatch.setattr(vision_process, "MODEL_SEQ_LEN", 320)
    monkeypatch.setattr(
        vision_process,
        "VIDEO_READER_BACKENDS",
        {name: wrap_reader(read) for name, read in vision_process.VIDEO_READER_BACKENDS.items()},
    )
    clip = write_numbered_clip(tmp_path / "clip.mp4", 48, width=224, height=168, fps=2)
    with open_video(clip) as reader:
        frame_batch = FrameBatch(
            path=clip, frames=(0, 47), times_seconds=(0, 23.5), fps=2.0, n_frames=48,
            pixels=reader.read(np.array([0, 47])),
        )  # fmt: skip
    element = {"min_pixels": 3136, "max_pixels": 602112}
    stock = vision_process.fetch_video({**element, "video": str(clip)})
    fed_video = vision_process.fetch_video({**element, "video": PathWithFrames(frame_batch)})
    assert stock.shape == (48, 3, 84, 112)
    assert fed_video.shape == (2, 3, 168, 224)


@pytest.mark.parametrize(
    ("sampler", "keyframes", "k", "fed_frames", "reason"),
    [
        ("focus", [3, 50], 4, [0, 33, 66, 99], "2 of 4 chosen"),
        ("focus", [3, 50, 60, 70], 4, [3, 50, 60, 70], None),
        ("uniform", [0, 33, 66, 99], 4, [0, 33, 66, 99], None),
        ("uniform", list(range(0, 100, 5)), 20, list(range(0, 100, 10)), "one frame per second, 10 of 20"),
        ("uniform", [0, 11, 22, 33, 44, 55, 66, 77, 88, 99], 10, list(range(0, 100, 10)), "per second, 10 of 10"),
    ],
)
def test_the_aks_loader_feeds_what_the_aks_code_feeds_and_says_so(sampler, keyframes, k, fed_frames, reason):
    from focus_eval.bench.answering.frames import frames_to_feed
    from focus_eval.keyframes.rows.records import SelectionRow

    row = SelectionRow(
        benchmark="longvideobench", question_id="q", video="v", query="?", selection_id="s", sampler=sampler,
        options={}, encoder="", encoder_revision="", k=k, seed=0, bucket="short", duration_seconds=10.0, n_frames=100,
        fps=9.97, keyframes=keyframes,
    )  # fmt: skip
    frames, fallback = frames_to_feed(row, "aks")
    assert list(frames) == fed_frames
    assert (fallback is None) if reason is None else (reason in fallback)
    assert frames_to_feed(row, "exact") == (tuple(keyframes), None)


def test_scales_belong_to_the_chosen_frames_and_not_to_those_that_replace_them():
    from focus_eval.bench.answering.frames import FrameBatch, frames_to_feed, show_selection
    from focus_eval.keyframes.rows.records import SelectionRow

    row = SelectionRow(
        benchmark="longvideobench", question_id="q", video="v", query="?", selection_id="s", sampler="qframe",
        options={}, encoder="", encoder_revision="", k=4, seed=0, bucket="short", duration_seconds=10.0, n_frames=100,
        fps=10.0, keyframes=[3, 50], scales=[1.0, 0.5],
    )  # fmt: skip
    scales = {}
    for frame_policy in ("exact", "aks"):
        frames, fallback = frames_to_feed(row, frame_policy)
        frame_batch = FrameBatch(
            path=Path("v"), frames=frames, times_seconds=tuple(frame / 10 for frame in frames), fps=10.0, n_frames=100,
            pixels=np.zeros((len(frames), 2, 2, 3), np.uint8),
        )  # fmt: skip
        scales[frame_policy] = show_selection(row, frame_batch, fallback).scales
    assert scales == {"exact": (1.0, 0.5), "aks": None}
