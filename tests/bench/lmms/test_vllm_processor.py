"""vLLM's own multimodal processor makes of our requests what transformers' processor makes in-process.

FOCUS_EVAL_VLLM names folders with vLLM's wheel, what it imports, and the transformers it asks for.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from transformers import AutoProcessor

from tests.support.bench import vllm_processing
from tests.support.keyframes.tiny_transformers import save_qwen2_vl, save_qwen_successor

FOLDERS = os.environ.get("FOCUS_EVAL_VLLM", "")
IN_PROCESS = {"qwen2": "FocusQwen2VL", "qwen2_5": "FocusQwen2_5VLChat", "qwen3": "FocusQwen3VLChat"}
# The template of the tests has none, and neither have lmms-eval's other messages.
SYSTEM = "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
TURN_BEFORE = {"qwen2": SYSTEM, "qwen2_5": "", "qwen3": SYSTEM}
# Newer ones fail in vLLM's processor for Qwen3-VL.
RIGHT_TRANSFORMERS = """
from importlib import metadata
from packaging.requirements import Requirement
asked = next(one for one in map(Requirement, metadata.requires("vllm")) if one.name == "transformers")
found = metadata.version("transformers")
raise SystemExit(None if asked.specifier.contains(found) else f"vLLM asks for {asked}, found {found}")
"""
FRAMES = 7  # odd: the last one is repeated
PIXELS = 50000


def environment() -> dict[str, str]:
    """vLLM inspects models in processes that it starts itself: they find it by this variable."""
    path = os.pathsep.join(part for part in (FOLDERS, os.environ.get("PYTHONPATH", "")) if part)
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}


@pytest.fixture(scope="module", autouse=True)
def vllm():
    process = subprocess.run(
        [sys.executable, "-c", RIGHT_TRANSFORMERS], env=environment(), check=False, capture_output=True, text=True
    )
    if process.returncode:
        pytest.skip(f"FOCUS_EVAL_VLLM={FOLDERS}: {process.stderr.strip().splitlines()[-1]}")


class Engine:
    """Keeps the requests that vLLM's `LLM.generate` would be given."""

    def __init__(self, **_):
        self.seen = []

    def generate(self, inputs, sampling_params):
        self.seen += inputs
        return [SimpleNamespace(outputs=[SimpleNamespace(text="B", token_ids=[1])]) for _ in inputs]

    def get_metrics(self):
        return []


@pytest.fixture
def roads(kind, evaluate, tmp_path, monkeypatch):
    """(checkpoint, what reached `generate` in-process, our requests to vLLM) for the same questions and frames."""
    from lmms_eval.models.chat import vllm_generate
    from lmms_eval.models.simple import vllm as stock

    from focus_eval.bench.lmms.models import qwen_vl
    from focus_eval.bench.lmms.models.vllm import FocusVLLM

    folder = tmp_path / "weights"
    weights = save_qwen2_vl(folder) if kind == "qwen2" else save_qwen_successor(folder, kind)
    model = getattr(qwen_vl, IN_PROCESS[kind])(
        pretrained=str(weights), device="cpu", sampler="random", frames=FRAMES, max_pixels=PIXELS, min_pixels=3136,
        record=str(tmp_path / "in_process"),
    )  # fmt: skip
    reached, generate = [], model.model.generate
    monkeypatch.setattr(model.model, "generate", lambda **inputs: reached.append(inputs) or generate(**inputs))
    evaluate(model, ["focus_videomme"], max_new_tokens=1)

    monkeypatch.setattr(stock, "LLM", Engine)
    monkeypatch.setattr(vllm_generate, "SamplingParams", lambda **parameters: parameters)
    adapter_model = FocusVLLM(
        model=str(weights), sampler="random", frames=FRAMES, max_pixels=PIXELS, min_image_pixels=3136,
        record=str(tmp_path / "vllm"),
    )  # fmt: skip
    evaluate(adapter_model, ["focus_videomme"], max_new_tokens=1)
    return str(weights), reached, adapter_model.client.seen


def by_vllm(checkpoint: str, requests: list[dict], folder: Path) -> list[dict]:
    torch.save({checkpoint: requests}, folder / "requests")
    command = [sys.executable, vllm_processing.__file__, folder / "requests", folder / "results"]
    subprocess.run(command, env=environment(), check=True)
    return torch.load(folder / "results", weights_only=False)[checkpoint]


@pytest.mark.parametrize("kind", list(IN_PROCESS))
def test_vllm_makes_of_a_request_what_the_model_is_given_in_process(kind, roads, tmp_path):
    weights, reached, requests = roads
    processor = AutoProcessor.from_pretrained(weights)
    videos = processor.video_processor
    processed = by_vllm(weights, requests, tmp_path)
    assert len(reached) == len(processed) == 4
    assert [processed_request.get("error") for processed_request in processed] == [None] * 4
    for inputs, processed_request in zip(reached, processed, strict=True):
        ids, video = inputs["input_ids"][0].tolist(), processed_request["video"]
        n = len(processed_request["token_ids"])
        assert ids[-n:] == processed_request["token_ids"]
        assert processor.tokenizer.decode(ids[:-n]) == TURN_BEFORE[kind]
        assert torch.equal(video["video_grid_thw"], inputs["video_grid_thw"][0])
        assert float(video.get("second_per_grid_ts", 0)) == float(inputs.get("second_per_grid_ts", [0])[0])
        pad = inputs["mm_token_type_ids"][0] == 2
        offset, length, is_embed = processed_request["placeholder"]
        n_visual = int(inputs["video_grid_thw"].prod()) // videos.merge_size**2
        assert int(pad.sum()) == n_visual == (length if is_embed is None else int(is_embed.sum()))
        assert offset + length <= n
        assert torch.allclose(
            normalized(video["pixel_values_videos"], videos), inputs["pixel_values_videos"], atol=1e-5
        )


def normalized(patches: torch.Tensor, videos) -> torch.Tensor:
    """vLLM leaves this to the model: pixels of 0 to 255 by the mean and deviation of each color."""
    mean, deviation = (torch.tensor(values)[None, :, None] for values in (videos.image_mean, videos.image_std))
    colors = patches.reshape(len(patches), 3, -1) / 255
    return ((colors - mean) / deviation).reshape(patches.shape)
