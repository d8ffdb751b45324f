"""Keeps what a command wrote as long as rows, options, videos and code are those it was written from."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TextIO, cast

from focus_eval.core.errors import InvalidInput, RowsChanged
from focus_eval.core.resources import resource_path
from focus_eval.rows.records import replace_file
from focus_eval.rows.sealed import read_sealed_json, write_sealed_json

_CODE = Path(__file__).resolve().parents[1]
# What counts, draws and writes, besides our own code.
_DRAWN_WITH = ("numpy", "scipy", "pandas", "pyarrow", "matplotlib", "jinja2", "pillow", "av", "rich")


class KeptOutputs:
    """The outputs of one command, described in a file beside them.

    They count as current only if that file names the same inputs, and every output still has the size and the time of
    change that it had. The file goes before the first output changes and comes back after the last is written, so a
    command that was killed has left nothing that counts as current.

    Args:
        record: the describing file.
        inputs: digest of everything that the outputs depend on; see `inputs_digest`.
    """

    def __init__(self, record: Path, inputs: str) -> None:
        self._record = record
        self._inputs = inputs

    def printed(self) -> str | None:
        """Return what the command printed, if all it wrote is here and current; else None."""
        try:
            known = read_sealed_json(self._record)
        except InvalidInput:  # none, or a damaged one: the outputs are made anew
            return None
        if known.get("inputs") != self._inputs:
            return None
        folder = self._record.parent
        is_current = all(_state(folder / name) == state for name, state in known["outputs"].items())
        return str(known["printed"]) if is_current else None

    @contextmanager
    def writing(self) -> Iterator[list[Path]]:
        """Yield a list for the paths that are written inside the block; record them, and what was printed, at its end.

        Without paths nothing is recorded.
        """
        self._record.unlink(missing_ok=True)
        written: list[Path] = []
        copied = _Copied(sys.stdout)
        with redirect_stdout(cast(TextIO, copied)):
            yield written
        if written:
            outputs = {os.path.relpath(path, self._record.parent): _state(path) for path in written}
            document = {"inputs": self._inputs, "outputs": outputs, "printed": "".join(copied.parts)}
            with replace_file(self._record) as part:
                write_sealed_json(part, document)


def inputs_digest(run: Path, *, options: Mapping[str, Any], videos: Path | None = None) -> str:
    """Return the digest of what a report of the run in `run` depends on.

    That is every byte of its rows and its description, all code and shipped data, the versions of the libraries, the
    terminal's width, and of each video size and time of change. A run's starts are not in it: one that found nothing to
    do changes no more than the clock.

    Args:
        run: a run's folder, or a packed run.
        options: of the command, as JSON.
        videos: the folder whose files are shown.
    """
    digest = hashlib.sha256()
    described = [run] if run.is_file() else [*(run / name for name in ("selections", "answers")), run / "cell.json"]
    shipped = [_CODE, *(resource_path(name) for name in ("paper", "published", "configs"))]
    for file in (file for place in (*described, *shipped) for file in _files(place)):
        if file.suffix != ".pyc":
            digest.update(f"{file}\0".encode(errors="surrogateescape"))
            try:
                with file.open("rb") as content:
                    while block := content.read(1 << 20):
                        digest.update(block)
            except FileNotFoundError as error:
                raise RowsChanged(f"{file}: removed") from error
    about = read_sealed_json(run / "run.json") if (run / "run.json").is_file() else {}
    about.pop("starts", None)
    shown = [(str(file), _state(file)) for file in _files(videos)] if videos else []
    columns, is_terminal = os.environ.get("COLUMNS", ""), sys.stdout.isatty()
    width = os.get_terminal_size(sys.stdout.fileno()).columns if is_terminal else 0
    rest = [about, dict(options), shown, columns, width, is_terminal, _versions()]
    digest.update(json.dumps(rest, sort_keys=True, default=str).encode(errors="surrogateescape"))
    return digest.hexdigest()


def _files(place: Path) -> Iterable[Path]:
    """Return `place` if it is a file, else all files below it, in the order of their names; a run links its parts."""
    if place.is_file():
        return [place]
    found = (Path(folder) / name for folder, _, names in os.walk(place, followlinks=True) for name in names)
    return sorted(file for file in found if file.is_file())


def _state(path: Path) -> list[int] | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    return [stat.st_size, stat.st_mtime_ns]


def _versions() -> dict[str, str]:
    found = {"python": sys.version}
    for package in _DRAWN_WITH:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


class _Copied:
    """The stream `to`, whose texts are kept."""

    def __init__(self, to: TextIO) -> None:
        self._to = to
        self.parts: list[str] = []

    def write(self, text: str, /) -> int:
        n = self._to.write(text)  # first: it refuses what is not text
        self.parts.append(text)
        return n

    def __getattr__(self, name: str) -> Any:
        return getattr(self._to, name)
