"""LLaVA-OneVision-1.5 sees exactly the chosen frames. Its network, which is code of the hub, is a Qwen2.5-VL here."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch

from focus_eval.core.errors import RunError
from support.tiny_transformers import save_qwen_successor

K = 7
CODE = """
from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

class TinyConfig(Qwen2_5_VLConfig):
    model_type = "llavaonevision1_5"

class TinyModel(Qwen2_5_VLForConditionalGeneration):
    config_class = TinyConfig
"""


@pytest.fixture(scope="module")
def weights(tools, tmp_path_factory):
    """A checkpoint that brings its own code, as the published one does."""
    folder = save_qwen_successor(tmp_path_factory.mktemp("llava15"), "qwen2_5")
    (folder / "modeling_tiny.py").write_text(CODE)
    config = json.loads((folder / "config.json").read_text())
    config["model_type"] = "llavaonevision1_5"
    config["auto_map"] = {"AutoConfig": "modeling_tiny.TinyConfig", "AutoModelForCausalLM": "modeling_tiny.TinyModel"}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def resized(frames, factor=28):
    from qwen_vl_utils.vision_process import smart_resize
    from torchvision.transforms import InterpolationMode, functional

    video = torch.from_numpy(frames).permute(0, 3, 1, 2)
    size = smart_resize(*video.shape[-2:], factor=factor, min_pixels=3136, max_pixels=50000)
    return functional.resize(video, list(size), interpolation=InterpolationMode.BICUBIC, antialias=True).float()


class Dropping:
    """Stands before a processor and hands on four frames of each video."""

    def __init__(self, processor):
        self.processor = processor

    def __getattr__(self, name):
        return getattr(self.processor, name)

    def __call__(self, **inputs):
        return self.processor(**{**inputs, "videos": [video[:4] for video in inputs["videos"]]})


@pytest.mark.parametrize("batch", [1, 2])
def test_the_chosen_frames_reach_the_model_also_where_fewer_were_chosen(
    weights, evaluate, home, tools, tmp_path, monkeypatch, batch
):
    from transformers import dynamic_module_utils

    from focus_eval.lmms.models.llava_onevision1_5 import FocusLlavaOnevision1_5

    monkeypatch.setattr(dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    model = FocusLlavaOnevision1_5(
        pretrained=str(weights), device="cpu", sampler="random", frames=K, min_pixels=3136, max_pixels=50000,
        record=str(tmp_path / "record"), batch_size=batch,
    )  # fmt: skip
    tap = tools.Tap(model.processor)
    monkeypatch.setattr(model, "processor", tap)
    evaluate(model, ["focus_longvideobench"])
    selections = tools.read_record(tmp_path / "record", "selections")
    answers = tools.read_record(tmp_path / "record", "answers")
    assert [row["error"] for row in answers] == [None] * len(selections)
    assert {row["frames_fed"] for row in answers} == {K, 5}  # one clip has five frames
    compared = 0
    for text, video in tap.by_text():
        row = next(row for row in selections if row["query"] in text)
        frames = tools.decode_all(home.videos["longvideobench"] / row["video"])[row["keyframes"]]
        assert torch.equal(video, resized(frames))
        compared += len(frames)
    assert compared == sum(2 * min(K, clip["n_frames"]) for clip in tools.CLIPS.values())
    print(f"llava_onevision1_5, batch {batch}: {compared} frames compared, 0 differ")
    monkeypatch.setattr(model, "processor", Dropping(tap))
    model.show(model.context.source, frames=K, options=replace(model.adapter_options, record=str(tmp_path / "lost")))
    with pytest.raises(RunError, match=f"{K} frames were fed, but 4 reached the model"):
        evaluate(model, ["focus_videomme"], limit=1)


def test_at_start_it_says_that_the_published_code_does_not_run_on_this_transformers(monkeypatch):
    from loguru import logger

    from focus_eval.lmms.models import llava_onevision1_5

    lines = []
    sink = logger.add(lines.append, format="{message}", level="WARNING")
    try:
        monkeypatch.setattr(llava_onevision1_5.transformers, "__version__", "5.23.0")
        llava_onevision1_5.FocusLlavaOnevision1_5.check_installed()
        monkeypatch.setattr(llava_onevision1_5.transformers, "__version__", "4.57.6")
        llava_onevision1_5.FocusLlavaOnevision1_5.check_installed()
    finally:
        logger.remove(sink)
    (line,) = lines
    assert "not to run on transformers 5" in line
    assert line.count("\n") == 1
