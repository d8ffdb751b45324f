"""Keeps the outputs of a command while the rows, options, videos and code that they were made from stay the same."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any, TextIO, cast

from focus_eval.core.errors import InvalidInput, RowsChanged
from focus_eval.core.resources import resource_path
from focus_eval.keyframes.rows.files import read_sealed_json, write_sealed_json
from focus_eval.keyframes.rows.identity import installed_version

_CODE = Path(__file__).resolve().parents[2]
# Libraries that compute, draw and write the outputs.
_DRAWN_WITH = ("numpy", "scipy", "pandas", "pyarrow", "matplotlib", "jinja2", "pillow", "av", "rich")


class KeptOutputs:
    """The outputs of one command, and a record file in their folder that tells whether they are current.

    Outputs are current if the record has the same inputs digest, and every output still has its recorded size and
    modification time. The record is removed before the first output changes and written after the last one, so the
    outputs of a killed command never count as current.

    Args:
        record: path of the record file.
        inputs: digest of everything that the outputs depend on; see `inputs_digest`.
    """

    def __init__(self, record: Path, inputs: str) -> None:
        self._record = record
        self._inputs = inputs

    def printed(self) -> str | None:
        """Return the text that the command printed if all its outputs are current, else None."""
        try:
            record = read_sealed_json(self._record)
        except InvalidInput:  # missing or damaged: the outputs are made anew
            return None
        if record.get("inputs") != self._inputs:
            return None
        folder = self._record.parent
        is_current = all(_state(folder / name) == state for name, state in record["outputs"].items())
        return str(record["printed"]) if is_current else None

    @contextmanager
    def writing(self) -> Iterator[list[Path]]:
        """Yield an empty list, to which the block adds the path of every file that it writes.

        At the end of the block these paths and the text printed in it are recorded. If the list is empty, or the block
        raises an error, nothing is recorded.
        """
        self._record.unlink(missing_ok=True)
        written: list[Path] = []
        copied = _Copied(sys.stdout)
        with redirect_stdout(cast(TextIO, copied)):
            yield written
        if written:
            outputs = {os.path.relpath(path, self._record.parent): _state(path) for path in written}
            document = {"inputs": self._inputs, "outputs": outputs, "printed": "".join(copied.parts)}
            write_sealed_json(self._record, document)


def inputs_digest(run: Path, *, options: Mapping[str, Any], videos: Path | None = None) -> str:
    """Return the hexadecimal digest of everything that a report of the run in `run` depends on.

    The digest covers every byte of the rows and of the run's description, all code and shipped data, the versions of
    the libraries, the terminal's width, and the size and modification time of each video. The recorded starts of the
    run are left out, because a start that found nothing to do changes no row.

    Args:
        run: a run's folder, or a packed run.
        options: options of the command by name.
        videos: folder of the videos that the report shows; None if it shows none.

    Raises:
        RowsChanged: a file was removed while it was read.
    """
    digest = hashlib.sha256()
    described = [run] if run.is_file() else [*(run / name for name in ("selections", "answers")), run / "cell.json"]
    shipped = [_CODE, *(resource_path(name) for name in ("paper", "configs"))]
    for file in (file for place in (*described, *shipped) for file in _files(place)):
        if file.suffix != ".pyc":
            digest.update(f"{file}\0".encode(errors="surrogateescape"))
            try:
                with file.open("rb") as content:
                    while block := content.read(1 << 20):
                        digest.update(block)
            except FileNotFoundError as error:
                raise RowsChanged(f"{file}: removed") from error
    description = read_sealed_json(run / "run.json") if (run / "run.json").is_file() else {}
    description.pop("starts", None)
    video_states = [(str(file), _state(file)) for file in _files(videos)] if videos else []
    columns, is_terminal = os.environ.get("COLUMNS", ""), sys.stdout.isatty()
    width = os.get_terminal_size(sys.stdout.fileno()).columns if is_terminal else 0
    versions = [sys.version, *map(installed_version, _DRAWN_WITH)]
    settings = [description, dict(options), video_states, columns, width, is_terminal, versions]
    digest.update(json.dumps(settings, sort_keys=True, default=str).encode(errors="surrogateescape"))
    return digest.hexdigest()


def _files(place: Path) -> Iterable[Path]:
    """Return `[place]` if it is a file, else all files below it, sorted by path. Links to folders are followed."""
    if place.is_file():
        return [place]
    paths = (Path(folder) / name for folder, _, names in os.walk(place, followlinks=True) for name in names)
    return sorted(file for file in paths if file.is_file())


def _state(path: Path) -> list[int] | None:
    """Return the size in bytes and the modification time in nanoseconds; None if there is no such file."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return [stat.st_size, stat.st_mtime_ns]


class _Copied:
    """A stream that writes every text to the stream `to` and keeps it in `parts`."""

    def __init__(self, to: TextIO) -> None:
        self._to = to
        self.parts: list[str] = []

    def write(self, text: str, /) -> int:
        """Write `text` to the stream and keep it; return the number of characters."""
        n = self._to.write(text)  # first: it refuses what is not text
        self.parts.append(text)
        return n

    def __getattr__(self, name: str) -> Any:
        """Return the stream's attribute."""
        return getattr(self._to, name)
