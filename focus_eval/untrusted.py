"""Reads JSON and YAML that others wrote, and makes their text safe to print."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from focus_eval.errors import InvalidInput
from focus_eval.options import yaml_loader

# A few lines of YAML aliases can stand for billions of values; no file of ours comes near this many.
MOST_YAML_VALUES = 1_000_000
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def read_text(path: Path) -> str:
    """Return the text of a UTF-8 file.

    Raises:
        InvalidInput: no such file, a folder, no permission, or bytes that are not UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InvalidInput(f"{path}: cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{path}: not a text file (byte {error.start} is not UTF-8)") from error


def read_json(path: Path) -> Any:
    """Return the value in a JSON file.

    Raises:
        InvalidInput: a file that cannot be read, is not JSON, or is nested too deeply.
    """
    return parse_json(read_text(path), where=str(path))


def parse_json(text: str, *, where: str) -> Any:
    """Return the value of a JSON text. Raises as `read_json`; `where` begins the message."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise InvalidInput(f"{where}:{error.lineno}: not JSON ({error.msg})") from error
    except RecursionError as error:
        raise InvalidInput(f"{where}: JSON nested too deeply") from error


def yaml_node(path: Path, loader: type) -> Any:
    """Return the node of a YAML file, before its values are made.

    Raises:
        InvalidInput: a file that cannot be read, broken YAML (with its line), nested too deeply, aliases that contain
            themselves or stand for more than `MOST_YAML_VALUES` values.
    """
    import yaml

    text = read_text(path)
    try:
        node = yaml.compose(text, Loader=loader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise InvalidInput(f"{path}:{line}: {error.problem}") from error
    except yaml.YAMLError as error:
        raise InvalidInput(f"{path}: not YAML ({error})") from error
    except RecursionError as error:
        raise InvalidInput(f"{path}: YAML nested too deeply") from error
    if _count_values(node, path) > MOST_YAML_VALUES:
        raise InvalidInput(f"{path}: its aliases stand for more than {MOST_YAML_VALUES:,} values")
    return node


def read_yaml(path: Path, loader: type | None = None) -> Any:
    """Return the value in a YAML file, plain types only. Raises as `yaml_node`, and for a tag that makes objects."""
    import yaml

    kind = loader or yaml_loader()
    yaml_node(path, kind)
    try:
        return yaml.load(read_text(path), Loader=kind)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise InvalidInput(f"{path}:{line}: {error.problem}") from error


def printable(text: str) -> str:
    """Return `text` without control characters, which could rewrite a terminal; each becomes U+FFFD."""
    return _CONTROL.sub("\ufffd", text)


def spreadsheet_cell(text: str) -> str:
    """Return `text` with an apostrophe before it where a spreadsheet would take it for a formula."""
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") and not _is_number(text) else text


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _count_values(node: Any, path: Path) -> int:
    """Return how many values `node` stands for with its aliases written out, without writing them out."""
    counts: dict[int, int] = {}
    under_way: set[int] = set()
    stack = [(node, False)]
    while stack:
        current, is_done = stack.pop()
        key = id(current)
        children = _children(current)
        if is_done:
            under_way.discard(key)
            counts[key] = min(1 + sum(counts[id(child)] for child in children), 10 * MOST_YAML_VALUES)
        elif key in under_way:
            raise InvalidInput(f"{path}:{current.start_mark.line + 1}: an alias contains itself")
        elif key not in counts:
            under_way.add(key)
            stack.append((current, True))
            stack += [(child, False) for child in children]
    return counts.get(id(node), 0)


def _children(node: Any) -> list[Any]:
    value = getattr(node, "value", None)
    if not isinstance(value, list):
        return []
    return [child for entry in value for child in (entry if isinstance(entry, tuple) else (entry,))]
