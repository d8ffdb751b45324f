"""What reaches the processor is an independent decode of the chosen frames, to the last bit."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from focus_eval.bench.answering.choosing import SamplerChooser
from focus_eval.keyframes.pipeline.selector import Selector
from focus_eval.keyframes.samplers.registry import make_sampler
from tests.support.keyframes.synthetic import frame_number
from tests.support.keyframes.tiny_transformers import save_qwen_successor


def random_frames(k: int) -> Selector:
    return SamplerChooser(Selector(sampler=make_sampler("random"), encoder=None, k=k))


def shown_and_expected(tools, home, record, tap):
    """(question id, what the processor got, an independent decode of the recorded frames) per question."""
    rows = tools.read_record(record, "selections")
    answers = {row["question_id"]: row for row in tools.read_record(record, "answers")}
    assert len(answers) == len(rows) == len(tap.by_text())
    for text, video in tap.by_text():
        # Video-MME asks the same of two videos here: their sizes tell them apart.
        matching_rows = [row for row in rows if row["query"] in text]
        row = matching_rows[0] if len(matching_rows) == 1 else matching_rows[int(video.shape[-1] < video.shape[-2])]
        answer = answers[row["question_id"]]
        assert answer["error"] is None
        assert answer["fed_frames"] == row["keyframes"]
        frames = tools.decode_all(home.videos[row["benchmark"]] / row["video"])[row["keyframes"]]
        yield row, video, frames


def qwen_resized(frames: np.ndarray, *, max_pixels: int, min_pixels: int = 3136, factor: int = 28) -> torch.Tensor:
    """Return frames resized as qwen-vl-utils resizes frames that fit into its budget."""
    from qwen_vl_utils.vision_process import smart_resize
    from torchvision.transforms import InterpolationMode, functional

    video = torch.from_numpy(frames).permute(0, 3, 1, 2)
    size = smart_resize(*video.shape[-2:], factor=factor, min_pixels=min_pixels, max_pixels=max_pixels)
    return functional.resize(video, list(size), interpolation=InterpolationMode.BICUBIC, antialias=True).float()


@pytest.mark.parametrize(("k", "batch"), [(1, 1), (3, 4), (7, 1), (8, 4), (64, 1)])
def test_qwen2_vl_gets_the_chosen_frames(qwen, evaluate, home, tools, tmp_path, monkeypatch, k, batch):
    tap = tools.Tap(qwen.processor)
    monkeypatch.setattr(qwen, "processor", tap)
    monkeypatch.setattr(qwen, "batch_size_per_gpu", batch)
    qwen.show(random_frames(k), frames=k, options=with_record(qwen, tmp_path))
    evaluate(qwen, ["focus_longvideobench"])
    compared = 0
    keyframes_by_video = {}
    for row, video, frames in shown_and_expected(tools, home, tmp_path, tap):
        assert len(frames) == min(k, row["n_frames"])
        assert torch.equal(video, qwen_resized(frames, max_pixels=50000))
        if row["video"] != "odd.mp4":
            assert [frame_number(frame) for frame in frames] == row["keyframes"]
        keyframes_by_video.setdefault(row["video"], []).append(row["keyframes"])
        compared += len(frames)
    assert compared == sum(2 * min(k, clip["n_frames"]) for clip in tools.CLIPS.values())
    if k < 64:  # two questions about one video see different frames
        assert all(first != second for video, (first, second) in keyframes_by_video.items() if video != "few.mp4")
    assert {len(call["text"]) for call in tap.calls} == {batch}
    print(f"qwen2_vl k={k} batch={batch}: {compared} frames compared, 0 differ")


@pytest.mark.parametrize("k", [1, 3, 7, 8, 64])
def test_llava_onevision_gets_the_chosen_frames(llava, evaluate, home, tools, tmp_path, monkeypatch, k):
    tap = tools.Tap(llava._image_processor)
    monkeypatch.setattr(llava, "_image_processor", tap)
    llava.show(random_frames(k), frames=k, options=with_record(llava, tmp_path))
    evaluate(llava, ["focus_longvideobench"])
    compared = 0
    for row, video, frames in shown_and_expected(tools, home, tmp_path, tap):
        assert np.array_equal(video, frames)
        assert len(frames) == min(k, row["n_frames"])
        compared += len(frames)
    assert compared == sum(2 * min(k, clip["n_frames"]) for clip in tools.CLIPS.values())
    print(f"llava_onevision k={k}: {compared} frames compared, 0 differ")


@pytest.mark.parametrize(
    ("kind", "name", "factor"),
    [
        ("qwen2_5", "FocusQwen2_5VL", 28), ("qwen2_5", "FocusQwen2_5VLChat", 28),
        ("qwen3", "FocusQwen3VL", 32), ("qwen3", "FocusQwen3VLChat", 32),
        ("qwen3_5", "FocusQwen3_5", 32), ("qwen3_5", "FocusQwen3_5Chat", 32),
    ],
)  # fmt: skip
def test_the_successors_of_qwen2_vl_get_the_chosen_frames_and_their_real_indices(
    kind, name, factor, evaluate, home, tools, tmp_path, tmp_path_factory, monkeypatch
):
    from focus_eval.bench.lmms.models import qwen_vl

    weights = save_qwen_successor(tmp_path_factory.mktemp(kind), kind)
    model = getattr(qwen_vl, name)(
        pretrained=str(weights), device="cpu", sampler="random", frames=7, min_pixels=3136, max_pixels=50000,
        record=str(tmp_path), batch_size=2,
    )  # fmt: skip
    tap = tools.Tap(model.processor)
    monkeypatch.setattr(model, "processor", tap)
    evaluate(model, ["focus_videomme"])
    compared = 0
    for _, video, frames in shown_and_expected(tools, home, tmp_path, tap):
        assert torch.equal(video, qwen_resized(frames, max_pixels=50000, factor=factor))
        compared += len(frames)
    assert compared == 4 * 7
    metadata = [indices for call in tap.calls for indices in call.get("video_metadata") or []]
    if metadata:  # Qwen3-VL writes the frames' times into the prompt: they must be those of the chosen frames
        keyframes = sorted(row["keyframes"] for row in tools.read_record(tmp_path, "selections"))
        assert sorted(item["frames_indices"] for item in metadata) == keyframes
        assert {item["fps"] for item in metadata} == {10.0}
    print(f"{name}: {compared} frames compared, 0 differ")
    assert tools.lost_frame_errors(model, evaluate, tmp_path / "lost", monkeypatch) == tools.LOST_FRAMES


def test_frames_that_qwen2_vl_does_not_get_are_an_error(qwen, evaluate, tools, tmp_path, monkeypatch):
    assert tools.lost_frame_errors(qwen, evaluate, tmp_path, monkeypatch) == tools.LOST_FRAMES


def test_frames_that_llava_onevision_does_not_get_are_an_error(llava, evaluate, tools, tmp_path, monkeypatch):
    assert tools.lost_frame_errors(llava, evaluate, tmp_path, monkeypatch) == tools.LOST_FRAMES


def with_record(model, folder):
    from dataclasses import replace

    return replace(model.adapter_options, record=str(folder))
