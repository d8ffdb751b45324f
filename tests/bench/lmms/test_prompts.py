"""A model of ours is asked with the prompts that a task has for the stock wrapper behind it."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from focus_eval.bench.lmms import tasks
from focus_eval.bench.lmms.manifests import CHAT_SUFFIX, MODELS, stock_name
from focus_eval.core.errors import MissingDependency
from focus_eval.core.resources import resource_path

pytest.importorskip("lmms_eval")

STOCK_NAMES = {model: stock_name(model) for model in {name.removesuffix(CHAT_SUFFIX) for name in MODELS.names()}}


STOCK_SECTION = re.compile(rf"^ +({'|'.join(sorted(filter(None, STOCK_NAMES.values())))}):", re.MULTILINE)


@cache
def tasks_with_prompts():
    """Files of lmms-eval's tasks about videos, by (task, model of ours), that have prompts for the model's wrapper."""
    import lmms_eval

    root = Path(lmms_eval.__file__).parent / "tasks"
    folders = {path.parent for path in root.rglob("*yaml") if STOCK_SECTION.search(path.read_text(encoding="utf-8"))}
    folders = {folder for folder in folders if any("video" in path.read_text() for path in folder.glob("*utils.py"))}
    path_by_task_and_model = {}
    for path in sorted(path for folder in folders for path in folder.glob("[!_]*.yaml")):
        task = tasks._values(path)
        stock = {key for field in tasks.BY_MODEL for key in task.get(field) or {}}
        # Groups name their tasks as a list.
        if isinstance(task.get("task"), str):
            path_by_task_and_model |= {
                (task["task"], model): path for model, wrapper in STOCK_NAMES.items() if wrapper in stock
            }
    return path_by_task_and_model


class AnyDocument(dict):
    """A document that has every field a task asks for."""

    def __missing__(self, key):
        if key == "Options":
            return {"A": "red", "B": "blue"}
        if "options" in key or "choices" in key or key == "candidates":
            return ["A. red", "B. blue", "C. green", "D. grey"]
        return 3 if "duration" in key or key.endswith("_id") else f"<{key}>"

    def get(self, key, default=None):
        return self[key]


def made(path, name, *, kind="ConfigurableTask"):
    """Return the task of a file as lmms-eval makes it for `--model NAME`, without its documents."""
    from lmms_eval.api import task as stock
    from lmms_eval.utils import load_yaml_config

    config = load_yaml_config(str(path), mode="full")
    new = object.__new__(getattr(stock, kind))
    new._config = stock.TaskConfig(**{key: value for key, value in config.items() if key != "class"})
    new.model_name = name
    new._prepare_model_specific_config()
    return new


def prompt_and_settings(task):
    """Return (prompt for any document, settings of generation) of a task."""
    # A task with subtitles writes its own prompt under our models too; ours is made after the frames are chosen.
    text = getattr(task.config.doc_to_text, "with_subtitles", task.config.doc_to_text)
    text = text(AnyDocument(), task.lmms_eval_specific_kwargs) if callable(text) else text
    return text, task.config.generation_kwargs


@pytest.fixture
def by_wrapper():
    """Look prompts up as a process does once it has loaded a model of ours."""
    from lmms_eval.api.task import ConfigurableTask

    from focus_eval.bench.lmms.patches import look_prompts_up_by_wrapper

    for model, wrapper in STOCK_NAMES.items():
        look_prompts_up_by_wrapper(model, wrapper)
    yield
    prepare = ConfigurableTask._prepare_model_specific_config
    ConfigurableTask._prepare_model_specific_config = getattr(prepare, "stock", prepare)


def test_every_model_of_ours_names_the_wrapper_it_stands_on():
    for name in MODELS.names():
        try:
            model_class = MODELS.load(name)
        except MissingDependency:
            continue
        modules = [base.__module__ for base in model_class.__mro__ if base.__module__.startswith("lmms_eval.models.")]
        if modules and name != "focus_zero_shot":
            assert model_class.stock_name == modules[0].rpartition(".")[2], name


@pytest.mark.slow
def test_each_task_asks_a_model_of_ours_what_it_asks_the_stock_wrapper(by_wrapper):
    videos = {task for task, _ in tasks_with_prompts()}
    assert {"videomme", "videomme_v2", "video_holmes", "perceptioncomp", "neptune_full_v", "timescope"} <= videos
    assert {"longtimescope", "scivideobench", "videott_single_mc", "videomathqa_mcq_w_subtitles"} <= videos
    differing_tasks = []
    for (task, model), path in tasks_with_prompts().items():
        stock, own_task, default = (made(path, name) for name in (STOCK_NAMES[model], model, "default"))
        assert own_task.lmms_eval_specific_kwargs == stock.lmms_eval_specific_kwargs, (task, model)
        assert prompt_and_settings(own_task) == prompt_and_settings(stock), (task, model)
        differing_tasks += [(task, model)] if prompt_and_settings(own_task) != prompt_and_settings(default) else []
    assert {("videomme", "focus_qwen3_vl"), ("videomme", "focus_llava_video")} <= set(differing_tasks)


def test_a_task_of_ours_asks_every_model_the_same(by_wrapper):
    for path in resource_path("tasks").glob("focus_*.yaml"):
        task = tasks.task_values(path.stem)
        assert {tasks.prompts_for(task, model, wrapper) for model, wrapper in STOCK_NAMES.items()} == {"default"}
        assert all(model == name for field in tasks.BY_MODEL for model in task.get(field) or {} for name in ["default"])


def test_a_models_own_entry_wins_over_its_wrappers_and_that_over_the_default():
    kwargs = {"default": {"post_prompt": "d"}, "qwen3_vl": {"post_prompt": "q"}, "focus_qwen2_vl": {"post_prompt": "f"}}
    task = {"lmms_eval_specific_kwargs": kwargs}
    assert tasks.prompts_for(task, "focus_qwen3_vl", "qwen3_vl") == "qwen3_vl"
    assert tasks.prompts_for(task, "focus_qwen2_vl", "qwen3_vl") == "focus_qwen2_vl"
    assert tasks.prompts_for(task, "focus_gpt4o", "openai") == "default"
    assert tasks.prompts_for({"lmms_eval_specific_kwargs": {"pre_prompt": ""}}, "focus_gpt4o", "") == "default"


def test_the_model_itself_in_place_of_its_name_gets_the_same_prompts(by_wrapper):
    path = next(path for (task, _), path in tasks_with_prompts().items() if task == "videomme")
    model = type("Model", (), {"model_id": "focus_qwen3_vl"})()
    assert prompt_and_settings(made(path, model)) == prompt_and_settings(made(path, "qwen3_vl"))
    assert prompt_and_settings(made(path, object())) == prompt_and_settings(made(path, "default"))
