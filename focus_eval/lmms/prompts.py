"""Which of its prompts a task asks a model with: those it has for the lmms-eval wrapper behind the model, if any.

lmms-eval looks a task's prompts and generation arguments up by the name given to `--model`, else under "default". A
name of ours is in no task's file, so the name of the stock wrapper is looked up as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml

from focus_eval.core.errors import InvalidInput
from focus_eval.core.resources import read_yaml, resource_path

# The fields of a task's file that lmms-eval looks up by the model's name.
BY_MODEL = ("lmms_eval_specific_kwargs", "model_specific_generation_kwargs", "model_specific_target_kwargs")
DEFAULT = "default"


def prompts_for(task: Mapping[str, Any], model: str, stock_name: str) -> str:
    """Return the name under which a task has prompts or generation arguments for `model`; "default" where it has none.

    Args:
        task: the values of its file, or of the configuration made from them.
        stock_name: lmms-eval's name of the wrapper behind `model`; "" for none.
    """
    stated = [task.get(field) or {} for field in BY_MODEL]
    names = [name for name in (model, stock_name) if name]
    return next((name for name in names if any(name in kwargs for kwargs in stated)), DEFAULT)


def prompts_of_request(look: Any, model: str, stock_name: str) -> str:
    """Return `prompts_for` the task whose bound method (`doc_to_visual`, `doc_to_messages`) a request carries."""
    config = getattr(getattr(look, "__self__", None), "config", None)
    return prompts_for(vars(config), model, stock_name) if config is not None else DEFAULT


@cache
def task_values(task: str) -> dict[str, Any]:
    """Return what the YAML file of an lmms-eval task states, with the files it includes; functions are None.

    Raises:
        InvalidInput: no file of that task, in ours or in lmms-eval's.
    """
    return _values(_task_file(task))


def _task_file(task: str) -> Path:
    # Ours first, as when the task is loaded.
    ours = resource_path("tasks") / f"{task}.yaml"
    if task and ours.is_file():
        return ours
    # Found without importing it: that takes seconds, and a plan needs the file only.
    found = find_spec("lmms_eval")
    folders = [Path(folder) / "tasks" for folder in (found.submodule_search_locations or [])] if found else []
    for folder in folders:
        for file in sorted(folder.rglob(f"{task}.yaml")):
            return file
    raise InvalidInput(f"task {task!r} is known neither to focus-eval nor to lmms-eval (set task, or annotations)")


class _TaskLoader(yaml.SafeLoader):
    """Reads a task file; what its `!function` tags name is not loaded."""


# Loading them would import the task's code, which may need packages that are not here.
_TaskLoader.add_multi_constructor("!", lambda loader, suffix, node: None)


def _values(file: Path) -> dict[str, Any]:
    values: dict[str, Any] = read_yaml(file, _TaskLoader) or {}
    included = values.pop("include", None)
    # A task's own values come after those it includes, and win.
    return {**_values(file.parent / included), **values} if included else values
