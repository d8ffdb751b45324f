"""The first question of a cell is kept as the model was sent it, on every road."""

from __future__ import annotations

import json
import shutil

import pytest
import torch

from focus_eval.bench.answering.tracing import describe_messages, describe_tensors, fold_repeats
from focus_eval.core.errors import InvalidInput


def records(folder):
    return [json.loads(path.read_text()) for path in sorted(folder.rglob("prompt.json"))]


def test_a_repeated_token_is_written_once_with_its_count():
    assert fold_repeats("<s>a<v><v><v><v>b<v><v>") == "<s>a<v>*4b<v><v>"


def test_the_prompt_of_qwen_is_the_text_that_reached_its_processor(tiny_qwen, evaluate, tools, tmp_path, monkeypatch):
    from focus_eval.bench.lmms.models.qwen_vl import FocusQwen2VL

    model = FocusQwen2VL(
        pretrained=str(tiny_qwen), device="cpu", sampler="uniform", frames=4, max_pixels=50000, record=str(tmp_path)
    )
    tap = tools.Tap(model.processor)
    monkeypatch.setattr(model, "processor", tap)
    evaluate(model, ["focus_videomme"], max_new_tokens=2)
    (record,) = records(tmp_path)
    texts = [text for text, _ in tap.by_text()]
    n = record["visual_tokens"]
    assert f"<|video_pad|>*{n}" in record["text"]
    assert record["text"].replace(f"<|video_pad|>*{n}", "<|video_pad|>") in texts
    height, width = record["frame_pixels"]
    # Four frames are two pairs; a visual token stands for 28 x 28 pixels of a pair.
    assert n == 2 * (height // 28) * (width // 28)
    assert record["dtype"] == "float32"
    assert record["attention"] in ("sdpa", "eager")
    assert record["generation"]["max_new_tokens"] == 2
    assert len(record["template"]) == 16
    assert "lmms-eval" in record["versions"]


def test_padding_is_no_part_of_what_was_sent():
    prompt_ids = torch.tensor([[0, 0, 5, 6], [7, 8, 9, 9]])
    mask = torch.tensor([[0, 0, 1, 1], [1, 1, 1, 1]])
    assert describe_tensors(object(), prompt_ids, {"attention_mask": mask})["token_ids"] == [5, 6]


def test_images_of_an_api_request_are_named_by_format_size_and_hash():
    image = {"type": "image_url", "image_url": {"url": "data:image/jpeg;base64,QUJD"}}
    payload = {
        "model": "m",
        "temperature": 0,
        "messages": [{"role": "user", "content": [{"type": "text", "text": "q"}, image]}],
    }
    sent = describe_messages(payload)
    assert sent["generation"] == {"model": "m", "temperature": 0}
    assert sent["text"].splitlines()[0] == "user: q"
    assert sent["text"].splitlines()[1].startswith("user: <image/jpeg, 3 bytes, ")


def test_a_tokenizer_without_a_template_is_refused_not_given_vicunas(tiny_llava, tmp_path):
    from focus_eval.bench.lmms.models.llava_hf import FocusLlavaOnevision

    folder = shutil.copytree(tiny_llava, tmp_path / "without")
    (folder / "chat_template.jinja").unlink(missing_ok=True)
    for file in folder.glob("*.json"):
        config = json.loads(file.read_text())
        file.write_text(json.dumps({key: value for key, value in config.items() if key != "chat_template"}))
    with pytest.raises((InvalidInput, SystemExit), match="has no chat template"):
        FocusLlavaOnevision(pretrained=str(folder), device="cpu", sampler="uniform", frames=4, record=str(tmp_path))


def test_simple_requests_tell_qwen2_5_the_time_between_the_chosen_frames(evaluate, tools, tmp_path, monkeypatch):
    from focus_eval.bench.lmms.models.qwen_vl import FocusQwen2_5VL
    from tests.support.keyframes.tiny_transformers import save_qwen_successor

    weights = save_qwen_successor(tmp_path / "weights", "qwen2_5")
    model = FocusQwen2_5VL(
        pretrained=str(weights), device="cpu", sampler="uniform", frames=6, max_pixels=50000, min_pixels=3136,
        record=str(tmp_path / "record"),
    )  # fmt: skip
    recorded_inputs = []
    generate = model.model.generate
    monkeypatch.setattr(model.model, "generate", lambda **inputs: recorded_inputs.append(inputs) or generate(**inputs))
    evaluate(model, ["focus_videomme"], max_new_tokens=2)
    # Clips of 9 and 8 s in 3 pairs of frames; without metadata it is 2 / 24 s for every video.
    assert sorted(float(inputs["second_per_grid_ts"][0]) for inputs in recorded_inputs) == pytest.approx(
        [8 / 3] * 2 + [3.0] * 2
    )
