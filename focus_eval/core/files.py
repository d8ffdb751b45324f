"""Writes files atomically: readers see the old file or the complete new one."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from focus_eval.core.errors import InvalidInput


@contextmanager
def replace_file(path: Path) -> Iterator[Path]:
    """Yield the path of an unfinished file, which replaces `path` if the block succeeds and is removed if it fails.

    Raises:
        InvalidInput: the folder does not exist or cannot be written.
    """
    # The name must be random: threads share a process id, and on a shared disk two machines may use the same one.
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        yield part
        with open(part, "rb") as file:
            os.fsync(file.fileno())  # otherwise a power cut may keep the name without the content
        os.replace(part, path)
    except OSError as error:
        raise InvalidInput(f"{path}: cannot be written ({error.strerror or error})") from error
    finally:
        part.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> Path:
    """Write a UTF-8 file atomically, create its folder if needed, and return `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replace_file(path) as part:
        part.write_text(text, encoding="utf-8")
    return path
