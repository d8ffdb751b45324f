"""Reads strict YAML into checked models; errors name key and line."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from focus_eval.errors import RENAMED, InvalidInput
from focus_eval.resources import read_yaml, yaml_loader, yaml_node

ModelT = TypeVar("ModelT", bound=BaseModel)
_VARIABLE = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}")


def load_yaml(path: Path) -> dict[str, Any]:
    """Return the mapping in the YAML file at `path`.

    Raises:
        InvalidInput: no such file, broken YAML (with its line), no mapping, a key written twice.
    """
    node = yaml_node(path)
    if not isinstance(node, yaml.MappingNode):
        raise InvalidInput(f"{path}: must hold a mapping of keys to values")
    # YAML keeps the last of two equal keys and says nothing; half of a configuration would be lost.
    _refuse_repeats(node, path)
    return dict(read_yaml(path))


def check(model: type[ModelT], values: dict[str, Any], path: Path, *, replaced: Collection[str] = ()) -> ModelT:
    """Return `values` as a `model`.

    Args:
        replaced: keys whose values are not those of the file.

    Raises:
        InvalidInput: the first thing wrong, as `file:line: key: what`, with the nearest name for an unknown key.
    """
    try:
        return model.model_validate(values)
    except ValidationError as error:
        mistakes = error.errors()
        # An unknown key comes first: it is often the reason why another one is missing.
        first = next((found for found in mistakes if found["type"] == "extra_forbidden"), mistakes[0])
        location = [part for part in first["loc"] if not _is_union_tag(part, values)] or list(first["loc"][-1:])
        key = ".".join(str(part) for part in location)
        what = first["msg"].removeprefix("Value error, ")
        if first["type"] == "extra_forbidden":
            known = _fields_at(model, location[:-1])
            what = _unknown_key(str(location[-1]), known)
        if location and location[0] in replaced:
            raise InvalidInput(f"{key} (set over {path}): {what}") from error
        # A check of the whole part is about no key.
        raise InvalidInput(": ".join(filter(None, (f"{path}:{_line_of(path, location)}", key, what)))) from error


def _unknown_key(key: str, known: list[str]) -> str:
    # A name from before the first release is not a typing error: its new name may look quite different.
    if RENAMED.get(key) in known:
        return f"unknown key; it is now called {RENAMED[key]!r}"
    nearest = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
    return f"unknown key; did you mean {nearest[0]!r}?" if nearest else f"unknown key; known: {', '.join(known)}"


def read_yaml_value(text: str) -> Any:
    """Return what `text` says as YAML, e.g. [8, 16] of "[8, 16]".

    Raises:
        InvalidInput: broken YAML.
    """
    try:
        return yaml.load(text, Loader=yaml_loader())
    except yaml.YAMLError as error:
        raise InvalidInput(f"{text!r} is not a YAML value") from error


def expand_variables(text: str, path: Path) -> str:
    """Return `text` with `${NAME}` and `${NAME:-default}` replaced from the environment, and a leading `~`.

    Raises:
        InvalidInput: a variable that is not set and has no default.
    """

    def value(match: re.Match[str]) -> str:
        name, default = match.groups()
        found = os.environ.get(name, default)
        if found is None:
            raise InvalidInput(f"{path}: environment variable {name} is not set; export it, or write the path itself")
        return found

    return os.path.expanduser(_VARIABLE.sub(value, text))


def _is_union_tag(part: Any, values: Any) -> bool:
    return isinstance(part, str) and ("[" in part or part in ("str", "int", "float", "bool"))


def _fields_at(model: type[BaseModel], location: list[Any]) -> list[str]:
    current: Any = model
    for part in location:
        if isinstance(part, int):
            continue
        field = getattr(current, "model_fields", {}).get(part)
        inner = _inner_types(field.annotation) if field else []
        # Optional parts and lists: the model is somewhere inside the annotation.
        current = next((item for item in inner if isinstance(item, type) and issubclass(item, BaseModel)), None)
    return sorted(getattr(current, "model_fields", {}))


def _inner_types(annotation: Any) -> list[Any]:
    arguments = getattr(annotation, "__args__", ())
    return (
        [annotation]
        if not arguments
        else [inner_type for argument in arguments for inner_type in _inner_types(argument)]
    )


def _line_of(path: Path, location: list[Any]) -> int:
    """Return the line of the deepest part of `location` that the file has."""
    # Once more, as nodes: the checked values no longer know their lines.
    node: Any = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml_loader())
    line = 1
    for part in location:
        if isinstance(node, yaml.MappingNode):
            pair = next(((key, value) for key, value in node.value if key.value == str(part)), None)
            if pair is None:
                # The key itself is missing, so its parent's line is the nearest.
                return line
            line, node = pair[0].start_mark.line + 1, pair[1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            node = node.value[part]
            line = node.start_mark.line + 1
    return line


def _refuse_repeats(node: Any, path: Path) -> None:
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _refuse_repeats(item, path)
    if not isinstance(node, yaml.MappingNode):
        return
    seen: set[str] = set()
    for key, value in node.value:
        if key.value in seen:
            raise InvalidInput(f"{path}:{key.start_mark.line + 1}: key {key.value!r} is written twice")
        seen.add(key.value)
        _refuse_repeats(value, path)
