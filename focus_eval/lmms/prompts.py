"""Finds the name under which a task has prompts for a model: the model's, its wrapper's, or "default".

lmms-eval looks a task's prompts and generation arguments up by the name given to `--model`, else under "default". No
task's file has a name of ours, so the name of the stock wrapper is looked up as well.
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
    """Return the name under which a task has prompts or generation arguments for `model`; "default" if there is none.

    Args:
        task: values of the task's file, or of lmms-eval's configuration of the task.
        stock_name: lmms-eval's name of the wrapper behind `model`; "" for none.
    """
    kwargs_by_field = [task.get(field) or {} for field in BY_MODEL]
    names = [name for name in (model, stock_name) if name]
    return next((name for name in names if any(name in kwargs for kwargs in kwargs_by_field)), DEFAULT)


def prompts_of_request(look: Any, model: str, stock_name: str) -> str:
    """Return `prompts_for` the task of a request; "default" if the task is unknown.

    Args:
        look: the request's `doc_to_visual` or `doc_to_messages`, a bound method of the task.
    """
    config = getattr(getattr(look, "__self__", None), "config", None)
    return prompts_for(vars(config), model, stock_name) if config is not None else DEFAULT


@cache
def task_values(task: str) -> dict[str, Any]:
    """Return the values in the YAML file of an lmms-eval task, included files merged; functions are None.

    Raises:
        InvalidInput: no file of that task, in ours or in lmms-eval's.
    """
    return _values(_task_file(task))


def _task_file(task: str) -> Path:
    """Return the YAML file of a task: ours, else lmms-eval's; raise InvalidInput if there is none."""
    # Ours first, as when the task is loaded.
    packaged_file = resource_path("tasks") / f"{task}.yaml"
    if task and packaged_file.is_file():
        return packaged_file
    # Found without importing it: that takes seconds, and a plan needs the file only.
    module_spec = find_spec("lmms_eval")
    folders = (
        [Path(folder) / "tasks" for folder in (module_spec.submodule_search_locations or [])] if module_spec else []
    )
    for folder in folders:
        for file in sorted(folder.rglob(f"{task}.yaml")):
            return file
    raise InvalidInput(f"task {task!r} is known neither to focus-eval nor to lmms-eval (set task, or annotations)")


class _TaskLoader(yaml.SafeLoader):
    """Reads a task file without loading the functions of its `!function` tags."""


# Loading them would import the task's code, which may need packages that are not here.
_TaskLoader.add_multi_constructor("!", lambda loader, suffix, node: None)


def _values(file: Path) -> dict[str, Any]:
    """Return the values of a task file, over those of the file that it includes."""
    values: dict[str, Any] = read_yaml(file, _TaskLoader) or {}
    included = values.pop("include", None)
    # A task's own values come after those it includes, and win.
    return {**_values(file.parent / included), **values} if included else values
