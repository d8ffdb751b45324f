"""Every shipped model config is one that the installed wrapper takes, placed on one device unless it says otherwise."""

from __future__ import annotations

import re

import pytest

from focus_eval.bench.matrix.answering import load_arguments
from focus_eval.bench.matrix.config import ModelConfig, Resources, load_matrix, load_yaml, worker_resources
from focus_eval.core.errors import MissingWeights, UnknownName
from focus_eval.core.resources import resource_path

FILES = sorted((resource_path("configs") / "models").glob("*.yaml"))


def config(file, **changes):
    return ModelConfig.model_validate({"name": file.stem, **load_yaml(file), **changes})


def named(name):
    return resource_path("configs") / "models" / f"{name}.yaml"


def check(model):
    from lmms_eval.models import get_model

    get_model(model.model).check_arguments(load_arguments(model, device="cpu"), frames=model.frames)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_installed_wrapper_takes_every_argument_of_a_shipped_model(file, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "any")
    try:
        check(config(file))
    except MissingWeights:  # LLaVA-Video looks for its checkpoint last, after every argument
        assert "llava_video" in file.stem


def test_an_argument_the_wrapper_does_not_have_is_refused_with_the_nearest():
    wrong = config(named("qwen2_vl_7b"), args={"pretrained": "x", "use_flash_attention": False})
    with pytest.raises(UnknownName, match="did you mean 'use_flash_attention_2'"):
        check(wrong)


def test_a_7b_model_is_placed_on_one_device_and_the_72b_over_four_gpus():
    for name in ("qwen2_vl_7b", "llava_ov_7b", "llava_video_7b"):
        arguments = load_arguments(config(named(name)), device="cuda")
        assert arguments["device"] == "cuda"
        assert "device_map" not in arguments  # "auto" would spread one small model over every GPU of the node
        assert worker_resources(config(named(name)), Resources(gpus=1)).gpus == 1
    large = config(named("llava_video_72b"))
    assert load_arguments(large, device="cuda")["device_map"] == "auto"
    assert worker_resources(large, Resources(gpus=1)).gpus == 4
    assert worker_resources(large, Resources(gpus=0)).gpus == 0  # a cluster without GPUs, said so in the matrix


def test_a_model_behind_an_api_takes_no_gpu_of_a_cluster():
    assert worker_resources(config(named("gpt4o")), Resources(gpus=1)).gpus == 0
    assert "device" not in load_arguments(config(named("gpt4o")), device="cuda")


def test_the_72b_model_is_in_a_matrix():
    matrix = load_matrix(resource_path("configs") / "paper" / "reference_models.yaml")
    assert [model.name for model in matrix.models] == ["llava_video_72b"]


def test_the_size_of_a_checkpoint_stands_in_one_place():
    """Of a model in its config, of an encoder beside its class; no matrix, wrapper or comment says it again."""
    checkpoints = {str(config(file).args["pretrained"]) for file in FILES if "pretrained" in config(file).args}
    assert all(config(file).disk_gigabytes > 0 for file in FILES if "pretrained" in config(file).args)
    package = resource_path("configs").parent / "focus_eval"
    encoders = [path.read_text(encoding="utf-8") for path in (package / "encoders").rglob("*.py")]
    assert not [name for name in checkpoints if any(name in text for text in encoders)]
    size = re.compile(r"disk_gigabytes|\bgigabytes\b|\d GB of weights")
    configs = [path for path in resource_path("configs").rglob("*.yaml") if path.parent.name != "benchmarks"]
    wrappers = [*(package / "lmms" / "models").rglob("*.py"), *(package / "lmms" / "llava_video").rglob("*.py")]
    sizes_by_file = {path.name: size.findall(path.read_text(encoding="utf-8")) for path in [*configs, *wrappers]}
    assert {name: sizes for name, sizes in sizes_by_file.items() if sizes} == {
        file.name: ["disk_gigabytes"] for file in FILES if config(file).disk_gigabytes
    }
