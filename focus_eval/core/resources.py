"""Finds the files that come with the package, and reads text, JSON and YAML from any source safely."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

from focus_eval.core.errors import InvalidInput

if TYPE_CHECKING:
    import yaml

# Limit on the number of values with aliases expanded: a short YAML file with nested aliases can stand for billions of
# values. The files of this package stay far below.
MAX_YAML_VALUES = 1_000_000
# Limit on the length of a YAML file: a key of ten megabytes took a minute to parse. The longest file of this package
# has 20 thousand characters.
MAX_YAML_CHARACTERS = 1_000_000
HALF_ESCAPED = re.compile(r"\\u[dD][89a-fA-F]")
_GZIP = b"\x1f\x8b"
_PACKAGE = Path(__file__).resolve().parents[1]
_IN_REPOSITORY = {
    "tasks": "tasks",
    "configs": "configs",
    "paper": "results/paper",
}


def resource_path(name: str) -> Path:
    """Return the folder of files that come with the package, e.g. "tasks".

    `name` is a key of `_IN_REPOSITORY`. The folder lies in the installed package, or else in the checkout.
    """
    installed = _PACKAGE / "_data" / name
    return installed if installed.is_dir() else _PACKAGE.parent / _IN_REPOSITORY[name]


def cache_folder() -> Path:
    """Return the folder of files that are computed once per machine: `focus-eval` in the user's cache folder."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "focus-eval"


@contextmanager
def open_unpacked(path: Path) -> Iterator[IO[bytes]]:
    """Open a file for reading bytes; content that begins as gzip is unpacked, whatever the file's name."""
    with open(path, "rb") as file:
        if file.peek(2).startswith(_GZIP):
            with gzip.open(file) as unpacked:
                yield cast(IO[bytes], unpacked)
        else:
            yield file


def read_text(path: Path) -> str:
    """Return the text of a UTF-8 file, gzipped or not.

    Raises:
        InvalidInput: no such file, a folder, no permission, a broken gzip, or bytes that are not UTF-8.
    """
    try:
        with open_unpacked(path) as file, io.TextIOWrapper(file, encoding="utf-8-sig") as text:
            return text.read()
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InvalidInput(f"{path}: not a whole gzip file ({error}); copy it again") from error
    except OSError as error:
        raise InvalidInput(f"{path}: cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{path}: not a text file (byte {error.start} is not UTF-8)") from error


def whole_text(text: str) -> str:
    """Return `text` with each lone surrogate (half a character, which UTF-8 cannot hold) replaced by U+FFFD."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def lines_of(text: str) -> list[str]:
    """Return the lines of `text` without their ends, split at line feeds only: JSON may contain U+2028 and U+0085."""
    return text.removesuffix("\n").split("\n") if text else []


def whole_texts(value: object) -> object:
    """Return a JSON value with `whole_text` applied to every string in it."""
    if isinstance(value, str):
        return whole_text(value)
    if isinstance(value, list):
        return [whole_texts(item) for item in value]
    if isinstance(value, dict):
        return {whole_text(key): whole_texts(item) for key, item in value.items()}
    return value


def read_json(path: Path) -> Any:
    """Return the value in a JSON file.

    Raises:
        InvalidInput: a file that cannot be read, is not JSON, has a key twice in one object, or is nested too deeply.
    """
    return parse_json(read_text(path), location=str(path))


def read_json_object(path: Path) -> dict[str, object]:
    """Return the object in a JSON file. Raises as `read_json`, and for a value that is not an object."""
    value = read_json(path)
    if not isinstance(value, dict):
        raise InvalidInput(f"{path}: must hold a JSON object, holds {type(value).__name__}")
    return value


def parse_json(text: str, *, location: str) -> object:
    """Return the value of a JSON text. Raises as `read_json`, with messages that start with `location`."""
    try:
        value = json.loads(text, object_pairs_hook=_unique_keys)
        # In JSON a lone surrogate can only be written as an escape: without one there is nothing to replace.
        return whole_texts(value) if HALF_ESCAPED.search(text) else value
    except _RepeatedKey as error:
        raise InvalidInput(f"{location}: the key {error.args[0]!r} is written twice in one object") from None
    except json.JSONDecodeError as error:
        raise InvalidInput(f"{location}:{error.lineno}: not JSON ({error.msg})") from error
    except ValueError as error:  # Python refuses integers of thousands of digits
        raise InvalidInput(f"{location}: JSON that cannot be read ({error})") from error
    except RecursionError as error:
        raise InvalidInput(f"{location}: JSON nested too deeply") from error


class _RepeatedKey(Exception):
    """Error for a key that occurs twice in one object of a JSON file."""


def _unique_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """The pairs of a JSON object as a dict; raises _RepeatedKey if a key occurs twice (hook of `json.loads`)."""
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        keys = [key for key, _ in pairs]
        raise _RepeatedKey(next(key for key in keys if keys.count(key) > 1))
    return mapping


@cache
def yaml_loader() -> type[yaml.SafeLoader]:
    """Return a safe YAML loader in which a boolean is `true` or `false`: `yes`, `no`, `on` and `off` are text."""
    import yaml

    class PlainLoader(yaml.SafeLoader):
        def construct_object(self, node: yaml.Node, deep: bool = False) -> object:
            """Return the value of a YAML node, text without lone surrogates.

            A bad value raises a YAML error with its line.
            """
            try:
                value = super().construct_object(node, deep)  # type: ignore[no-untyped-call]
            except (ValueError, TypeError) as error:  # e.g. 2026-02-30, !!float abc, an integer of thousands of digits
                raise yaml.constructor.ConstructorError(None, None, f"not a value: {error}", node.start_mark) from error
            return whole_text(value) if isinstance(value, str) else value

    boolean = "tag:yaml.org,2002:bool"
    PlainLoader.yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag != boolean]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    PlainLoader.add_implicit_resolver(boolean, re.compile("^(?:true|True|false|False)$"), list("tTfF"))
    return PlainLoader


def yaml_node(path: Path, loader: type[yaml.SafeLoader] | None = None) -> yaml.Node | None:
    """Return the root node of a YAML file.

    Raises:
        InvalidInput: a file that cannot be read or is longer than `MAX_YAML_CHARACTERS`, broken YAML (with its line),
            nested too deeply, aliases that contain themselves or expand to more than `MAX_YAML_VALUES` values.
    """
    import yaml

    text = read_text(path)
    if len(text) > MAX_YAML_CHARACTERS:
        raise InvalidInput(
            f"{path}: {len(text):,} characters; no YAML file here needs more than {MAX_YAML_CHARACTERS:,}"
        )
    with _name_line_in_errors(path):
        node = yaml.compose(text, Loader=loader or yaml_loader())
    if node is not None and _count_values(node, path) > MAX_YAML_VALUES:
        raise InvalidInput(f"{path}: its aliases stand for more than {MAX_YAML_VALUES:,} values")
    return node


def read_yaml(path: Path, loader: type[yaml.SafeLoader] | None = None) -> Any:
    """Return the value in a YAML file, plain types only. Raises as `yaml_node`, and for a tag that makes objects."""
    node = yaml_node(path, loader)
    with _name_line_in_errors(path):
        return None if node is None else (loader or yaml_loader())("").construct_document(node)


@contextmanager
def _name_line_in_errors(path: Path) -> Iterator[None]:
    """Raise errors of PyYAML as `InvalidInput` with file and line."""
    import yaml

    try:
        yield
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise InvalidInput(f"{path}:{line}: {error.problem}") from error
    except RecursionError as error:
        raise InvalidInput(f"{path}: YAML nested too deeply") from error
    except (yaml.YAMLError, ValueError, TypeError) as error:
        raise InvalidInput(f"{path}: not YAML that can be read ({error})") from error


def _count_values(node: yaml.Node, path: Path) -> int:
    """Return the number of values in YAML `node` with its aliases expanded; at most `10 * MAX_YAML_VALUES`.

    Raises InvalidInput, with file and line, for an alias that contains itself.
    """
    counts: dict[int, int] = {}
    under_way: set[int] = set()
    stack = [(node, False)]
    while stack:
        current, is_done = stack.pop()
        key = id(current)
        value = getattr(current, "value", None)
        # The value of a scalar node is text, without entries; the entries of a mapping are (key, value) pairs.
        entries = value if isinstance(value, list) else []
        children = [child for entry in entries for child in (entry if isinstance(entry, tuple) else (entry,))]
        if is_done:
            under_way.discard(key)
            counts[key] = min(1 + sum(counts[id(child)] for child in children), 10 * MAX_YAML_VALUES)
        elif key in under_way:
            raise InvalidInput(f"{path}:{current.start_mark.line + 1}: an alias contains itself")
        elif key not in counts:
            under_way.add(key)
            stack.append((current, True))
            stack += [(child, False) for child in children]
    return counts.get(id(node), 0)
