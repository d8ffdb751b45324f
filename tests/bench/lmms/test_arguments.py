"""A wrong argument is one line, before any weight loads."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from focus_eval.core.errors import FocusEvalError, InvalidInput, UnknownName


def qwen(**arguments):
    from focus_eval.bench.lmms.models.qwen_vl import FocusQwen2VL

    return FocusQwen2VL(**{"pretrained": "no/such-model", "device": "cpu", **arguments})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"sampler": "focuss"}, "did you mean 'focus'"),
        ({"sampler": "focus", "encoder": "offline", "sampler.alfa": 0.5}, "did you mean 'alpha'"),
        ({"sampler": "focus", "encoder": "offline", "sampler.alpha": "much"}, "alpha"),
        ({"sampler": "focus"}, "needs an encoder"),
        ({"sampler": "focus", "encoder": "blipp"}, "did you mean 'blip'"),
        ({"sampler": "focus", "encoder": "offline", "encoder.sice": 3}, "sice"),
        ({"sampler": "uniform", "encoder.batch": 3}, "no encoder"),
        ({"sampler": "uniform", "max_pixel": 3}, "did you mean 'max_pixels'"),
        ({"sampler": "uniform", "frams": 3}, "did you mean 'frames'"),
        ({"sampler": "uniform", "frames": 0}, "at least 1"),
        ({"sampler": "uniform", "frames": 2.5}, "must be an integer or none"),
        ({"sampler": "uniform", "frames": 64, "max_num_frames": 32}, "more than max_num_frames=32"),
        ({"sampler": "uniform", "frame_policy": "akss"}, "did you mean 'aks'"),
        ({"sampler": "uniform", "max_error_share": 2}, "at least 0 and at most 1"),
        ({"sampler": "native", "frame_policy": "aks"}, "native"),
        ({"sampler": "native", "encoder": "offline"}, "does not choose frames itself"),
        ({}, "give either sampler=NAME"),
        ({"sampler": "uniform", "selections": "x.json"}, "give either sampler=NAME"),
        ({"selections": "/no/such/file.json"}, "no such file"),
    ],
)  # fmt: skip
def test_a_wrong_argument_is_refused_in_one_line_before_weights_load(arguments, message):
    with pytest.raises(InvalidInput) as refused:  # a missing model would be an OSError
        qwen(**arguments)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_options_come_in_the_types_they_declare():
    from focus_eval.bench.lmms.arguments import AdapterOptions, make_chooser

    # lmms-eval's own parser makes an int of "2" and a string of "none".
    options = AdapterOptions(
        sampler="focus_released", sampler_options={"top_ratio": 1, "min_gap_sec": "auto"}, encoder="offline"
    )
    assert make_chooser(options, frames=4).selector.sampler.min_gap_sec == "auto"
    uniform = make_chooser(AdapterOptions(sampler="uniform", seed=3), frames=4).selector
    assert (uniform.k, uniform.seed, uniform.sampler.name) == (4, 3, "uniform")


def test_a_sampler_and_its_options_are_one_text_in_model_args_too():
    from lmms_eval.utils import simple_parse_args_string

    from focus_eval.bench.lmms.arguments import AdapterOptions, make_chooser, split_arguments

    class Wrapper:
        def __init__(self, pretrained: str = "") -> None: ...

    for text in (
        "sampler=uniform_1fps,frames=4.0",
        "sampler='random',frames=4",
        "sampler=topk,frames=4",
    ):
        options, _, _ = split_arguments("focus_x", simple_parse_args_string(text), Wrapper, kind=AdapterOptions)
        assert options.frames == 4
    text = "sampler='focus:alpha=0.1,clip_seconds=8',encoder=offline:n_classes=5,frames=4"
    options, _, _ = split_arguments("focus_x", simple_parse_args_string(text), Wrapper, kind=AdapterOptions)
    selector = make_chooser(options, frames=4).selector
    assert (selector.sampler.alpha, selector.sampler.clip_seconds, selector.encoder.n_classes) == (0.1, 8.0, 5)


def test_simple_and_chat_requests_to_one_model_have_cells_of_their_own(tmp_path, monkeypatch):
    from focus_eval.bench.answering.questions import RequestParts
    from focus_eval.bench.lmms.models.openai import FocusGPT4o, FocusGPT4oChat

    monkeypatch.setenv("OPENAI_API_KEY", "any")
    parts = RequestParts(context="", generation={}, look=len, doc_id=0, task="videomme", split="test")
    cells = []
    for kind, sampler in ((FocusGPT4o, "uniform"), (FocusGPT4oChat, "uniform"), (FocusGPT4o, "mine.py:Class")):
        model = kind(base_url="http://localhost:9/v1", sampler="uniform", frames=4, record=str(tmp_path))
        recorder = model.context.record
        recorder._selection_name = recorder._selection_name.replace("uniform", sampler)
        cells.append(recorder.cell_of(parts).settings.names)
    simple_cell, chat_cell, file_cell = cells
    assert (simple_cell.cell_id == file_cell.cell_id, simple_cell.cell_id == chat_cell.cell_id) == (True, False)
    assert ":" not in file_cell.cell


def test_llava_onevision_answers_one_question_at_a_time():
    from focus_eval.bench.lmms.models.llava_hf import FocusLlavaOnevision

    with pytest.raises(InvalidInput, match="batch_size=1"):
        FocusLlavaOnevision(pretrained="no/such-model", sampler="uniform", device="cpu", batch_size=4)


def test_lmms_eval_lists_every_model_of_ours_and_each_class_is_what_it_says():
    from lmms_eval.models import MODEL_REGISTRY_V2

    from focus_eval.bench.lmms.adapter import FrameAdapter
    from focus_eval.bench.lmms.manifests import MODELS, known_models

    for name, paths in known_models().items():
        manifest = MODEL_REGISTRY_V2.get_manifest(name)
        assert (manifest.simple_class_path, manifest.chat_class_path) == (paths.simple, paths.chat)
        if paths.simple:
            assert MODEL_REGISTRY_V2.get_model_class(name, force_simple=True).model_id == name
        if paths.chat:
            assert not MODEL_REGISTRY_V2.get_model_class(name).is_simple
    for name in MODELS.names():  # what a class says of itself for the static scan is what its wrapper does
        kind = MODELS.load(name)
        stock = next(base for base in kind.__mro__ if not issubclass(base, FrameAdapter) and "is_simple" in vars(base))
        assert kind.is_simple == stock.is_simple, name


def test_the_manifests_load_no_heavy_package():
    code = (
        "import sys, focus_eval.bench.lmms.manifests;"
        "print([m for m in ('torch', 'transformers', 'lmms_eval', 'av') if m in sys.modules])"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert process.stdout.strip() == "[]"


def test_importing_our_manifests_first_leaves_them_known_to_lmms_eval():
    code = (
        "from focus_eval.bench.lmms.manifests import MANIFESTS; MANIFESTS();"
        "from lmms_eval.models import list_available_models; print('focus_qwen2_vl' in list_available_models())"
    )
    process = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "TQDM_DISABLE": "1"},
    )
    assert process.stdout.strip().endswith("True")


def test_the_api_key_may_not_stand_in_the_model_arguments(monkeypatch):
    from focus_eval.bench.lmms.models.openai import FocusGPT4o

    monkeypatch.setenv("OPENAI_API_KEY", "sk-from-the-environment")
    with pytest.raises(InvalidInput, match="OPENAI_API_KEY") as refused:
        FocusGPT4o(sampler="uniform", api_key="sk-secret-in-arguments")
    assert "sk-secret" not in str(refused.value)


@pytest.mark.parametrize("arguments", [{"jpeg_quality": 0}, {"jpeg_quality": 96}, {"max_side": 4}, {"max_side": 1.5}])
def test_image_options_out_of_range_are_refused(monkeypatch, arguments):
    from focus_eval.bench.lmms.models.openai import FocusGPT4oChat

    monkeypatch.setenv("OPENAI_API_KEY", "any")
    with pytest.raises(InvalidInput, match=next(iter(arguments))):
        FocusGPT4oChat(sampler="uniform", **arguments)


def test_an_error_of_ours_is_a_focus_eval_error():
    with pytest.raises(FocusEvalError):
        qwen(sampler="nobody")
    with pytest.raises(UnknownName):
        qwen(sampler="nobody")
