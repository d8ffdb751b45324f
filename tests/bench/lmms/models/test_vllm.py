"""vLLM is given exactly the chosen frames. The engine, which needs a GPU, is a stand-in at its call."""

from __future__ import annotations

import dataclasses
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from tests.support.keyframes.tiny_transformers import save_qwen_successor

K = 6


class Engine:
    """Takes what vLLM's `LLM` takes and keeps it; answers "B"."""

    def __init__(self, **arguments):
        self.arguments = arguments
        self.seen = []

    def generate(self, inputs, sampling_params):
        assert len(inputs) == len(sampling_params)
        self.seen += inputs
        completion = SimpleNamespace(text="B", token_ids=[1])
        return [SimpleNamespace(outputs=[completion], prompt_token_ids=[0] * 9) for _ in inputs]

    def get_metrics(self):
        return []


@pytest.fixture(params=["qwen2_5", "qwen3"])
def model(request, tools, tmp_path, tmp_path_factory, monkeypatch):
    from lmms_eval.models.chat import vllm_generate
    from lmms_eval.models.simple import vllm as stock

    from focus_eval.bench.lmms.models.vllm import FocusVLLM

    arguments = dataclasses.make_dataclass("EngineArgs", [("max_model_len", int, 0)])
    monkeypatch.setitem(sys.modules, "vllm", SimpleNamespace(EngineArgs=arguments))
    monkeypatch.setattr(stock, "LLM", Engine)
    monkeypatch.setattr(vllm_generate, "SamplingParams", lambda **parameters: parameters)
    weights = save_qwen_successor(tmp_path_factory.mktemp(request.param), request.param)
    return FocusVLLM(
        model=str(weights), sampler="random", frames=K, batch_size=4, max_pixels=50000, record=str(tmp_path),
        max_model_len=9000,
    )  # fmt: skip


def test_the_engine_gets_the_chosen_frames_and_their_indices(model, evaluate, home, tools, tmp_path):
    from qwen_vl_utils import vision_process

    assert model.client.arguments["max_model_len"] == 9000
    evaluate(model, ["focus_videomme"])
    selections = tools.read_record(tmp_path, "selections")
    answers = tools.read_record(tmp_path, "answers")
    assert [row["error"] for row in answers] == [None] * 4
    assert {row["frames_fed"] for row in answers} == {K}
    assert {row["tokens"]["input"] for row in answers} == {9}
    fed_videos = []
    for request_inputs in model.client.seen:
        (video,) = request_inputs["multi_modal_data"]["video"]
        frames, metadata = video if isinstance(video, tuple) else (video, None)
        assert request_inputs["mm_processor_kwargs"]["do_sample_frames"] is False
        fed_videos.append((frames, metadata))
    # Without it vLLM refuses the videos of Qwen2.5-VL, and takes times of its own for those of Qwen3-VL.
    assert sorted(metadata["frames_indices"] for _, metadata in fed_videos) == sorted(
        row["keyframes"] for row in selections
    )
    patch = model.processor.video_processor.patch_size
    assert all(side % (2 * patch) == 0 for frames, _ in fed_videos for side in frames.shape[-2:])
    for row in selections:
        all_frames = tools.decode_all(home.videos["videomme"] / row["video"])
        element = {"video": "x", "max_pixels": 50000, "min_pixels": 28, "max_frames": K, "nframes": K}
        chosen_frames = all_frames[row["keyframes"]]
        matching = [
            frames
            for frames, metadata in fed_videos
            if frames.shape[0] == K
            and np.array_equal(frames.numpy(), resized(vision_process, chosen_frames, element, patch))
        ]
        assert matching


def test_frames_that_the_engine_does_not_get_are_an_error(model, evaluate, tools, tmp_path, monkeypatch):
    assert tools.lost_frame_errors(model, evaluate, tmp_path / "lost", monkeypatch) == tools.LOST_FRAMES


def resized(vision_process, frames, element, patch_size=14):
    """Return a reader's frames as resized by qwen-vl-utils."""
    import torch

    def read(_):
        tensor = torch.from_numpy(frames).permute(0, 3, 1, 2)
        return tensor, {"fps": 10.0, "frames_indices": [], "total_num_frames": 1, "video_backend": "x"}, 1.0

    with pytest.MonkeyPatch.context() as patch:
        for name in list(vision_process.VIDEO_READER_BACKENDS):
            patch.setitem(vision_process.VIDEO_READER_BACKENDS, name, read)
        return vision_process.fetch_video(element, image_patch_size=patch_size).numpy()


def test_without_vllm_it_says_what_to_install(tmp_path):
    from lmms_eval.models.simple import vllm as stock

    from focus_eval.bench.lmms.models.vllm import FocusVLLM
    from focus_eval.core.errors import MissingDependency

    if stock.LLM is not None:
        pytest.skip("vLLM is installed")
    with pytest.raises(MissingDependency, match="pip install vllm"):
        FocusVLLM(model="x", sampler="uniform", frames=4)
