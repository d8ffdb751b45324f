"""The published selections that are measured: their list in research/configs/selections.yaml, and their files."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from focus_eval.core.errors import InvalidInput
from focus_eval.core.resources import open_unpacked, read_yaml

LISTED = Path(__file__).resolve().parents[1] / "configs" / "selections.yaml"


@dataclass(frozen=True, kw_only=True)
class PublishedFile:
    """A published file of the frames that a method chose for a benchmark's questions.

    Args:
        name: name of its rows. Unique with benchmark and K.
        format: format for `load_selections`, with its options.
        file: in the reader's folder or below it; it may be gzipped.
        sha256: of the file, not gzipped.
        settings: of the method, where files of one name were made in different ways; tables show it.
        source, path, commit: repository, path in it and commit; "" if not recorded.
        variant: True for a further setting of a listed method: measured and recorded, but left out of the page.
    """

    name: str
    benchmark: str
    k: int
    format: str
    file: str
    sha256: str
    source: str = ""
    path: str = ""
    commit: str = ""
    settings: str = ""
    variant: bool = False


def read_published(path: Path | None = None) -> list[PublishedFile]:
    """Return the listed files in order; by default those of `LISTED`.

    Raises:
        InvalidInput: two files of one name, benchmark and K.
    """
    path = path or LISTED
    listed = [
        PublishedFile(**{"name": title, **entry}) for title, entries in read_yaml(path).items() for entry in entries
    ]
    rows = [(item.name, item.benchmark, item.k) for item in listed]
    repeated = next((row for row in rows if rows.count(row) > 1), None)
    if repeated is not None:
        raise InvalidInput(f"{path}: two files of {repeated[0]}, {repeated[1]}, K = {repeated[2]}; name one of them")
    return listed


def find_file(item: PublishedFile, folder: Path) -> Path | None:
    """Return the path of `item` in `folder` or below it, gzipped or not; None if it is not there."""
    names = (item.file, f"{item.file}.gz")
    nested = (path for name in names for path in sorted(folder.rglob(name)))
    return next((path for path in (*(folder / name for name in names), *nested) if path.is_file()), None)


def check_file(item: PublishedFile, path: Path) -> None:
    """Raise InvalidInput if the SHA-256 of the file at `path` is not the listed one."""
    with open_unpacked(path) as file:
        digest = hashlib.sha256(file.read()).hexdigest()
    if digest != item.sha256:
        raise InvalidInput(f"{path}: sha256 is {digest}, listed for {item.name} (K = {item.k}) is {item.sha256!r}")
