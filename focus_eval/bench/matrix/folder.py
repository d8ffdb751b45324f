"""Reads and writes the folder of a run, and finds the questions of a part that have rows.

    run.json                         the matrix, and versions and device of each start
    recoveries-WORKER.jsonl          counts of an encoder's recoveries, if any
    selections/NAME/spec.json        description of a selection; its rows: rows-RUN-WORKER.jsonl, Parquet when done
    answers/NAME/cell.json           description of a cell, with its rows beside it
    */NAME/videos.json               size and time of change of the videos behind its rows
    .lock                            held by the run that writes

Parts are links into the pool that all runs beside this one share; an unpacked run has its own part folders.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import Timeout

from focus_eval.bench.answering.cell import DESCRIPTION_FILES, Cell, CellSettings, describe_part
from focus_eval.bench.answering.questions import ModelReply, TaskQuestion
from focus_eval.bench.matrix.cells import AnswerSpec, SelectionSpec, cells, selection_specs
from focus_eval.bench.matrix.config import MatrixConfig, safe_name
from focus_eval.bench.rows.packed import object_url
from focus_eval.bench.rows.seen_videos import SeenVideos, read_seen_videos, write_seen_videos
from focus_eval.bench.rows.store import (
    POOL_NAME,
    FinishedQuestions,
    StoredRows,
    compact,
    describe_run,
    set_damaged_files_aside,
)
from focus_eval.core.errors import DamagedFile, InvalidInput, RunError
from focus_eval.keyframes.rows.files import FolderLock, locked_at_once, read_sealed_json, set_aside, write_sealed_json
from focus_eval.keyframes.rows.identity import identity_hash
from focus_eval.keyframes.rows.json_lines import RowWriter, cut_torn_line, name_file_in_errors, write_rows
from focus_eval.keyframes.rows.records import AnswerRow, CellNames, SelectionRow

#     RESULTS/pool/selections/NAME/   one selection, whichever matrices ask for it
#     RESULTS/pool/answers/NAME/      one cell
#     RESULTS/pool/.writers/RUN.lock  held while a run writes
#     RESULTS/alpha/                  a run: run.json, and links to its parts in the pool
# NAME ends in a hash of everything that can change a row. Several runs may write to one part: each run writes its own
# files, whose names contain its id, and a run that ends leaves the files of the other runs where they are.


class Pool:
    """The pool of parts (selections and cells) beside a run's folder, as the run at `run` uses it."""

    def __init__(self, run: Path) -> None:
        self.path = run.parent / POOL_NAME
        # Derive the id from the path, so that a restarted run appends to its own files.
        self.run_id = hashlib.sha256(str(run.resolve()).encode()).hexdigest()[:8]

    def part(self, kind: str, name: str) -> Path:
        """Return the folder of a part; `kind` is "selections" or "answers"."""
        return self.path / kind / name

    def file_name(self, worker: str) -> str:
        """Return the name of the file that `worker` of this run writes, in every part."""
        # Each file has one writer, so that lines of two processes cannot mix.
        return f"rows-{self.run_id}-{worker}.jsonl"

    def link(self, run: Path, kind: str, name: str) -> None:
        """Link a part of the pool into the run's folder, unless it is there.

        Raises:
            RunError: the link cannot be made.
        """
        link = run / kind / name
        link.parent.mkdir(parents=True, exist_ok=True)
        # Check for a link too, since `exists` is False for a link whose target is not made yet.
        if link.is_symlink() or link.exists():
            return
        try:
            # Make the link relative, so that all results can be moved or copied together.
            link.symlink_to(os.path.relpath(self.part(kind, name), link.parent.resolve()), target_is_directory=True)
        except FileExistsError:
            return  # another worker of this run has already made the link
        except OSError as error:
            raise RunError(f"{link}: cannot be linked to {self.path} ({error.strerror or error})") from error

    def writing(self) -> FolderLock:
        """Return the lock, not yet held, that a run holds while it writes.

        Other runs test this lock to see whether the run is alive.
        """
        (self.path / ".writers").mkdir(parents=True, exist_ok=True)
        return FolderLock(self._lock_of(self.run_id))

    def files_in_use(self, part: Path) -> list[Path]:
        """Return the files of rows in `part` that other runs, still alive, write to."""
        by_run: dict[str, list[Path]] = {}
        for file in part.glob("rows-*.jsonl"):
            # The id of the run is the second part of a file's name (see `file_name`).
            by_run.setdefault(file.name.split("-")[1].removesuffix(".jsonl"), []).append(file)
        return [file for run, files in by_run.items() if self._is_alive(run) for file in files]

    def _is_alive(self, run_id: str) -> bool:
        """True if `run_id` is another run and holds its lock."""
        # An unlocked file's writer has exited; this run may compact it.
        if run_id == self.run_id or not self._lock_of(run_id).exists():
            return False
        try:
            with FolderLock(self._lock_of(run_id), timeout=0):
                return False
        except Timeout:
            return True

    def _lock_of(self, run_id: str) -> Path:
        """The path of the lock that run `run_id` holds while it writes."""
        return self.path / ".writers" / f"{run_id}.lock"


class RunFolder:
    """The rows of one matrix on disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        # Rows are kept in the pool, where other matrices with the same part find them.
        self.pool = Pool(path)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder for one run; the lock is released when the process ends, however it ends.

        Raises:
            RunError: another run holds it.
            InvalidInput: the folder is the pool, or lies in an object store.
        """
        if self.path.name == POOL_NAME:
            raise InvalidInput(f"{self.path}: runs share this folder for their rows; name another one with --out")
        if (url := object_url(self.path)) is not None:
            raise InvalidInput(
                f"{url}: rows are appended, linked and locked, which object stores cannot do; run into a local folder, "
                "focus-eval pack RUN, and copy the file there"
            )
        self.path.mkdir(parents=True, exist_ok=True)
        lock = locked_at_once(self.path / ".lock", "another run writes here; wait for it, or use another folder")
        # The second lock tells other runs which files in the pool are still being written.
        with lock, self.pool.writing():
            yield

    def part(self, spec: SelectionSpec | AnswerSpec) -> Path:
        """Return the folder of a selection or a cell: in the pool, or in an unpacked run's own folder."""
        return self.named_part(kind_of(spec), spec.name)

    def named_part(self, kind: str, name: str) -> Path:
        """Return the folder of the part `name`; `kind` is "selections" or "answers".

        A part made when names could still hold a `:` keeps its folder.
        """
        folders = (self.path / kind, self.pool.path / kind)
        present = [folder / name for folder in folders]
        # A name of an earlier version ends in the same hash, so find the folder by the hash.
        former = (
            path
            for folder in folders
            for path in sorted(folder.glob(f"*{name[-9:]}"))
            if safe_name(path.name) == safe_name(name)
        )
        for part in itertools.chain(present, former):
            # Only an unpacked run has real folders here; a link leads into the pool, whose folder names count.
            if part.is_dir() and not part.is_symlink():
                return part
        return self.pool.part(kind, name)

    def open_part(self, spec: SelectionSpec | AnswerSpec) -> Path:
        """Make the folder of a selection or a cell with its description, link it into the run, and return it."""
        folder = self.part(spec)
        describe_part(folder, _rows_of(spec), name=spec.name, identity=spec.identity)
        self.pool.link(self.path, kind_of(spec), folder.name)
        return folder

    def writer(self, spec: SelectionSpec | AnswerSpec, worker: str) -> RowWriter:
        """Return the appending writer of `worker` for a selection or a cell."""
        return RowWriter(self.open_part(spec) / self.pool.file_name(worker))

    def open_cell(
        self,
        spec: AnswerSpec,
        worker: str,
        *,
        read: Callable[[TaskQuestion, ModelReply], Mapping[str, object]],
        selection_id: str,
    ) -> Cell:
        """Return a cell to which `worker` writes answers; its folder is made, and the run holds the lock.

        Args:
            read: as in `CellSettings`.
            selection_id: selection id of the cell's selection rows.
        """
        settings = CellSettings(
            names=CellNames(cell_id=spec.id, cell=spec.name),
            model=spec.model.name,
            frames=spec.selection.k,
            selection_id=selection_id,
            read=read,
            frame_policy=spec.frame_policy,
        )
        return Cell(settings, answers=self.open_part(spec), file_name=self.pool.file_name(worker))

    def finished(self, spec: SelectionSpec | AnswerSpec) -> FinishedQuestions:
        """Return the finished questions of a selection or a cell; it can be read again while the run goes on."""
        return FinishedQuestions(self.part(spec), _rows_of(spec))

    def selections(self, spec: SelectionSpec) -> StoredRows[SelectionRow]:
        """Return the finished rows of `spec`, read as they are iterated over."""
        return StoredRows(self.part(spec), SelectionRow)

    def answers(self, cell: AnswerSpec) -> StoredRows[AnswerRow]:
        """Return the finished rows of `cell`, read as they are iterated over."""
        return StoredRows(self.part(cell), AnswerRow)

    def part_lock(self, part: SelectionSpec | AnswerSpec) -> FolderLock:
        """Return the lock of a part, not yet held; only its holder may replace the part's files."""
        return FolderLock(self.part(part) / ".lock")

    def errors(self, part: SelectionSpec | AnswerSpec) -> dict[str, str | None]:
        """Return the error of each row of a selection or a cell by question id; None for success.

        Others have no row.
        """
        states = StoredRows(self.part(part), _rows_of(part)).states()
        return {question_id: error for (_, question_id, _), error in states}

    def compact(self, spec: SelectionSpec | AnswerSpec, order: list[str]) -> None:
        """Turn the lines of a finished part into Parquet, sorted by ids in `order`; files in use by other runs stay."""
        part = self.open_part(spec)
        # Take the lock, so that two runs that end together do not both move the same lines.
        with self.part_lock(spec):
            compact(part, _rows_of(spec), order, in_use=self.pool.files_in_use(part))

    def set_damaged_files_aside(self, parts: Sequence[SelectionSpec | AnswerSpec]) -> None:
        """Rename damaged files of the run's parts, so that they are made again; print each name."""
        for part in parts:
            folder = self.part(part)
            if not folder.is_dir():
                continue
            with self.part_lock(part):
                set_damaged_files_aside(folder, _rows_of(part), in_use=self.pool.files_in_use(folder))
            try:
                if (file := folder / DESCRIPTION_FILES[_rows_of(part)]).exists():
                    read_sealed_json(file)
            except DamagedFile:
                set_aside(file, "it is written again")

    def drop(self, parts: Sequence[SelectionSpec | AnswerSpec]) -> None:
        """Rename all files of rows of `parts`, so that their questions are asked again.

        Raises:
            RunError: another run writes to one of them.
        """
        for part in parts:
            folder = self.part(part)
            if not folder.is_dir():
                continue
            with self.part_lock(part):
                if self.pool.files_in_use(folder):
                    raise RunError(f"{folder}: another run writes here; drop its rows when that run has ended")
                # Remove the rows file first: rows without costs cannot be read.
                for file in [*sorted(folder.glob("rows*.*")), *folder.glob("costs.parquet")]:
                    if file.suffix in (".parquet", ".jsonl"):
                        set_aside(file, "its questions are asked again", reason="dropped")

    def drop_errors(self, parts: Sequence[SelectionSpec | AnswerSpec]) -> None:
        """Delete the rows of `parts` that record an error, so that their questions are asked again.

        Raises:
            RunError: another run writes to a part that has such rows.
        """
        for part in parts:
            if self.part(part).is_dir():
                with self.part_lock(part):
                    if any(error is not None for error in self.errors(part).values()):
                        self._rewrite(part, lambda row: row.error is None)

    def drop_videos(self, part: SelectionSpec | AnswerSpec, videos: Collection[str]) -> None:
        """Delete the rows of a part about `videos`, so that their questions are asked again; RunError as above."""
        with self.part_lock(part):
            self._rewrite(part, lambda row: row.video not in videos)

    def seen_videos(self, part: SelectionSpec | AnswerSpec) -> SeenVideos:
        """Return the record of the videos behind the rows of a part."""
        return read_seen_videos(self.part(part), part.benchmark.benchmark)

    def note_videos(self, part: SelectionSpec | AnswerSpec, record: SeenVideos) -> None:
        """Write the record of the videos behind the rows of a part."""
        with self.part_lock(part):
            write_seen_videos(self.part(part), record)

    def _rewrite(self, spec: SelectionSpec | AnswerSpec, is_kept: Callable[[SelectionRow | AnswerRow], bool]) -> None:
        """Rewrite one part, whose lock is held, with the rows that are kept; RunError if another run writes to it."""
        folder = self.part(spec)
        # Refuse while another run writes to the part: it would bring its error rows back.
        if self.pool.files_in_use(folder):
            raise RunError(f"{folder}: another run writes here; make its rows again when that run has ended")
        # Write the kept rows completely before any old file is removed. A kill then leaves rows twice, and `StoredRows`
        # reads each once.
        file = folder / self.pool.file_name("kept")
        old = [folder / name for name in ("rows.parquet", "costs.parquet") if (folder / name).exists()]
        old += [path for path in folder.glob("rows-*.jsonl") if path != file]
        write_rows(file, (row for row in StoredRows(folder, _rows_of(spec)) if is_kept(row)))
        # Remove old files last, when the kept rows are safely on the disk.
        for path in old:
            path.unlink()

    def show(self, parts: Sequence[SelectionSpec | AnswerSpec]) -> None:
        """Link the parts of this start in the run's folder, including parts that another run has made.

        If the run has a link to a part with equal settings but different weights, questions or versions, the new link
        replaces it. The rows of the earlier part stay in the pool.
        """
        file = self.path / "run.json"
        document = read_sealed_json(file)
        name_by_key = document.setdefault("parts", {})
        for part in parts:
            # Key links by the configuration without weights and versions, to find the part that this one replaces.
            key = f"{kind_of(part)}/{identity_hash({**part.configuration, 'part': part.readable_name})}"
            name = self.part(part).name
            earlier_link = self.path / kind_of(part) / name_by_key.get(key, name)
            # Remove only the link: the rows of the earlier weights stay in the pool.
            if earlier_link.name != name and earlier_link.is_symlink():
                earlier_link.unlink()
            name_by_key[key] = name
            self.open_part(part)
        write_sealed_json(file, document)

    def describe(
        self,
        matrix: MatrixConfig,
        *,
        engine: str,
        device: str,
        question_ids: Mapping[str, Sequence[str]] | None = None,
        n_questions: Mapping[str, int] | None = None,
        n_all_questions: Mapping[str, int] | None = None,
    ) -> None:
        """Record this start in run.json: matrix, versions, git revision, engine, device, time.

        Args:
            question_ids: ids of the asked questions by benchmark, for benchmarks of which only a part is asked.
            n_questions: number of asked questions by the benchmark's configured name; with it `run_status` need not
                read the questions.
            n_all_questions: number of all questions by benchmark, for benchmarks of which only a part is asked.

        Raises:
            InvalidInput: the folder belongs to a matrix with another name.
        """
        describe_run(
            self.path,
            name=matrix.name,
            matrix=matrix.model_dump(mode="json"),
            engine=engine,
            device=device,
            asked={name: list(ids) for name, ids in (question_ids or {}).items()},
            n_all_questions=dict(n_all_questions or {}),
            progress=progress_of(matrix, n_questions) if n_questions else [],
        )

    def note_end(self) -> None:
        """Record the recoveries of all starts in run.json."""
        file = self.path / "run.json"
        if recoveries := self.recoveries():
            write_sealed_json(file, {**read_sealed_json(file), "recoveries": recoveries})

    def note_recoveries(self, worker: str, encoder: str, counts: dict[str, int]) -> None:
        """Append counts of an encoder's recoveries, by kind, to the file of `worker`; written at once."""
        path = self.path / f"recoveries-{worker}.jsonl"
        # Cut a line that a kill left unfinished, or the new line would be appended to it.
        if path.exists():
            cut_torn_line(path)
        with name_file_in_errors(path), open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps({"encoder": encoder, **counts}) + "\n")

    def recoveries(self) -> dict[str, dict[str, int]]:
        """Return the recoveries of all starts as {encoder: {kind: count}}."""
        totals: dict[str, Counter[str]] = {}
        for path in sorted(self.path.glob("recoveries-*.jsonl")):
            for line in path.read_bytes().split(b"\n")[:-1]:  # text after the last line break is an unfinished line
                counts = json.loads(line)
                totals.setdefault(counts.pop("encoder"), Counter()).update(counts)
        return {encoder: dict(counts) for encoder, counts in totals.items()}


def progress_of(matrix: MatrixConfig, n_questions: Mapping[str, int]) -> list[dict[str, Any]]:
    """Return kind, name, benchmark and number of questions of each selection and cell of `matrix`.

    Args:
        n_questions: number of asked questions by the benchmark's configured name.
    """
    parts: list[SelectionSpec | AnswerSpec] = [*selection_specs(matrix), *cells(matrix)]
    return [
        {
            "kind": kind_of(part),
            "name": part.name,
            "benchmark": part.benchmark.benchmark,
            "questions": n_questions[part.benchmark.name],
        }
        for part in parts
    ]


def kind_of(spec: SelectionSpec | AnswerSpec) -> str:
    """Return "answers" for a cell, "selections" for a selection."""
    return "answers" if isinstance(spec, AnswerSpec) else "selections"


def _rows_of(spec: SelectionSpec | AnswerSpec) -> type[Any]:
    """The type of the rows: answers for a cell, selections otherwise."""
    return AnswerRow if isinstance(spec, AnswerSpec) else SelectionRow
