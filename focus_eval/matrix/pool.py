"""Keeps the rows of all runs in one place, so that one table can use what another has answered.

    RESULTS/pool/selections/NAME/   one selection, whichever matrices ask for it
    RESULTS/pool/answers/NAME/      one cell
    RESULTS/pool/.writers/RUN.lock  held while a run writes
    RESULTS/alpha/                  a run: run.json, and links to its parts in the pool

NAME ends in a hash over all that can change a row. Several runs may write to one part: each to files of its own, which
begin with its id, and whoever ends first leaves the files of the others where they are.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from focus_eval.errors import RunError

NAME = "pool"


class Pool:
    """The pool beside a run's folder, as that run sees it."""

    def __init__(self, run: Path) -> None:
        self.path = run.parent / NAME
        # The same folder has the same id after a kill: its files of rows are appended to.
        self.run_id = hashlib.sha256(str(run.resolve()).encode()).hexdigest()[:8]

    def part(self, kind: str, name: str) -> Path:
        """Return the folder of a part; `kind` is "selections" or "answers"."""
        return self.path / kind / name

    def file_name(self, worker: str) -> str:
        """Return the name of the file that `worker` of this run writes, in every part."""
        # One writer per file: lines of two processes cannot run into each other.
        return f"rows-{self.run_id}-{worker}.jsonl"

    def link(self, run: Path, kind: str, name: str) -> None:
        """Show a part of the pool in the run's folder.

        Raises:
            RunError: a file system without links.
        """
        link = run / kind / name
        link.parent.mkdir(parents=True, exist_ok=True)
        # A link whose target is not made yet does not `exist`, but is there.
        if link.is_symlink() or link.exists():
            return
        try:
            # Relative, so that the results can be moved or copied together.
            link.symlink_to(os.path.relpath(self.part(kind, name), link.parent.resolve()), target_is_directory=True)
        except FileExistsError:
            return  # another worker of this run was faster
        except OSError as error:
            raise RunError(f"{link}: cannot be linked to {self.path} ({error.strerror or error})") from error

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Mark that this run is writing; the mark is released when the process ends, however it ends."""
        from filelock import FileLock

        (self.path / ".writers").mkdir(parents=True, exist_ok=True)
        # A lock of the operating system: it is gone with the process, also after a kill.
        with FileLock(self._lock_of(self.run_id)):
            yield

    @contextmanager
    def alone_in(self, part: Path) -> Iterator[None]:
        """Wait until no other run turns the lines of `part` into Parquet, and keep others from it."""
        from filelock import FileLock

        with FileLock(part / ".lock"):
            yield

    def held(self, part: Path) -> list[Path]:
        """Return the files of `part` that another run still writes to."""
        by_run: dict[str, list[Path]] = {}
        for file in part.glob("rows-*.jsonl"):
            # The run's id is the second part of the name: see `file_name`.
            by_run.setdefault(file.name.split("-")[1].removesuffix(".jsonl"), []).append(file)
        return [file for run, files in by_run.items() if self._is_alive(run) for file in files]

    def _is_alive(self, run_id: str) -> bool:
        from filelock import FileLock, Timeout

        # A lock that can be taken belongs to nobody who lives; its files are this run's to compact.
        if run_id == self.run_id or not self._lock_of(run_id).exists():
            return False
        try:
            with FileLock(self._lock_of(run_id), timeout=0):
                return False
        except Timeout:
            return True

    def _lock_of(self, run_id: str) -> Path:
        return self.path / ".writers" / f"{run_id}.lock"
