"""Reads runs of focus-eval, logs of lmms-eval and files of selections, each as a `Run`.

runs, notes = read_runs([Path("logs"), Path("aks.json")], ReadingOptions(frames_field="indices"))
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from focus_eval.bench.benchmarks.registry import VideoRate
from focus_eval.bench.report.run import Run, is_run_path, joined_run, load_run
from focus_eval.bench.rows.packed import run_folder
from focus_eval.bench.rows.store import run_folders
from focus_eval.core.errors import InvalidInput, SelectionMismatch
from focus_eval.core.types import Question
from focus_eval.external.imports.lmms_logs import (
    PREDICTION_SUFFIXES,
    find_logs,
    has_samples,
    is_results_file,
    is_samples_file,
    run_name_of,
)
from focus_eval.external.imports.loading import load_selections, rows_of_selections
from focus_eval.external.imports.log_import import LogImport, LogOptions, LogOrigin, read_log_imports

_SELECTION_FILE = re.compile(r"\.(json|jsonl|parquet|csv)(\.gz)?$")


@dataclass(frozen=True, kw_only=True)
class ReadingOptions:
    """Options and annotations for reading logs and files of selections.

    Args:
        frames_field: field of a log's documents that holds the frames fed to the model; "" reads no frames.
        questions: questions of the benchmark, in the annotation's order; None if not given.
        rates: length and frame rate of the video by question id.
    """

    frames_field: str = ""
    questions: Sequence[Question] | None = None
    rates: Mapping[str, VideoRate] = field(default_factory=dict)


def read_runs(paths: Sequence[Path], options: ReadingOptions) -> tuple[list[Run], list[str]]:
    """Return the runs in `paths`, and a sentence for each item that was not read.

    A log that can be read in part raises no error: its problems are listed in `Run.logs`.

    Raises:
        InvalidInput: a path that does not exist, or that holds no run, log or selections.
    """
    runs: list[Run] = []
    notes: dict[str, None] = {}
    for path in paths:
        if not path.exists():
            raise InvalidInput(f"{path}: no such file or folder")
        items = list(_read_path(run_folder(path), options))
        if not any(isinstance(item, Run) for item in items):
            raise InvalidInput(f"{path}: neither a run, nor lmms-eval's samples, nor a file of selections")
        runs += [item for item in items if isinstance(item, Run)]
        notes |= dict.fromkeys(item for item in items if isinstance(item, str))
    return runs, list(notes)


def run_of_logs(path: Path, options: LogOptions) -> Run:
    """Return all logs in a file or below a folder, joined to one run; the K of a log that does not state it is 0."""
    logs = read_log_imports(path, options, needs_k=False)
    return joined_run([_run_of_import(log) for log in logs], run_name_of(path))


def is_log_path(path: Path) -> bool:
    """Return True for a samples file of lmms-eval, a folder of such files, or a table of VLMEvalKit.

    False for the folder of a focus-eval run.
    """
    is_table = path.suffix in PREDICTION_SUFFIXES and path.is_file()
    return not is_run_path(path) and (is_table or is_samples_file(path) or has_samples(path))


def _read_path(path: Path, options: ReadingOptions) -> Iterator[Run | str]:
    """Yield each run, log and file of selections at `path` or below, and a sentence for each item that is not read."""
    if path.is_dir() and is_run_path(path):
        yield load_run(path)
    elif path.is_dir() and (runs := run_folders(path)):
        for run in runs:
            yield load_run(run)
    elif path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.is_file())
        if any(map(is_samples_file, files)):
            yield from _read_logs(path, options)
        for file in files:
            is_of_log = is_samples_file(file) or is_results_file(file)
            if (_SELECTION_FILE.search(file.name) and not is_of_log) or file.suffix in PREDICTION_SUFFIXES:
                yield from _read_file(file, options, is_argument=False)
    else:
        yield from _read_file(path, options, is_argument=True)


def _read_file(path: Path, options: ReadingOptions, *, is_argument: bool) -> Iterator[Run | str]:
    """Yield the logs or the selections in a file.

    Args:
        is_argument: if the file is neither, True raises InvalidInput, and False yields a sentence with the reason.
    """
    if is_samples_file(path) or (path.suffix == ".parquet" and _is_table(path)):
        yield from _read_logs(path, options)
        return
    try:
        if path.suffix in PREDICTION_SUFFIXES and path.is_file():
            yield from _read_logs(path, options)
        else:
            yield read_selections(path, options)
    except InvalidInput as error:  # not a selection file
        if is_argument:
            raise
        yield f"{path}: not checked ({error})"


def _read_logs(path: Path, options: ReadingOptions) -> Iterator[Run | str]:
    """Yield a run for each log at `path`, read as far as possible, and sentences on unread frames."""
    # A Parquet table has one column of frames, so the caller need not name it.
    frames_field = "frames" if path.suffix == ".parquet" else options.frames_field
    for log in read_log_imports(
        path,
        LogOptions(frames_field=frames_field),
        annotations=options.questions,
        rates=options.rates or None,
        is_tolerant=True,
    ):
        yield _run_of_import(log)
        yield from _frame_notes(log)


def _run_of_import(log: LogImport) -> Run:
    """An imported log as a run, in memory."""
    rows = list(log.rows())
    selections, answers = [selection for selection, _ in rows], [answer for _, answer in rows]
    identities = {log.answers_part: {"versions": log.versions}}
    return Run(log.name, selections, answers, made_with=identities, logs={log.cell: asdict(log.origin)})


def _frame_notes(log: LogImport) -> Iterator[str]:
    """Yield a sentence with the fields that may hold the frames, if frames of the log were not read."""
    counts, name, origin = log.counts, log.options.frames_field, log.origin
    if origin.candidate_fields or (name and not log.problems and counts.without_frames):
        n_lines = f"{counts.without_frames:,} of {counts.answers:,} lines"
        n_lines = "any line" if counts.without_frames == counts.answers else n_lines
        reason = f"no field {name!r} in {n_lines}" if name else "no --frames-field"
        candidates = ", ".join(origin.candidate_fields)
        yield (
            f"{log.log.samples}: frames not read ({reason})"
            + (f"; its documents have {candidates}" if candidates else "")
        )


def read_selections(path: Path, options: ReadingOptions) -> Run:
    """Return a file of selections as a run without answers.

    If the selections do not fit the questions, the run has no rows and `Run.logs` names the problem.

    Raises:
        InvalidInput: the file holds no known kind of selections, or can be read only with the questions.
    """
    name = path.name.split(".")[0]
    try:
        loaded = load_selections(path, questions=options.questions, allow_missing=True)
    except SelectionMismatch as error:
        if "not a known kind" in str(error):
            raise InvalidInput(str(error)) from error
        return Run(name, [], [], logs={name: asdict(LogOrigin(file=path.name, problems=(str(error),)))})
    rates = {key: options.rates[key] for key in loaded if key in options.rates}
    rates = rates if len(rates) == len(loaded) else {}
    selections, answers = rows_of_selections(loaded, options.questions, rates, name=name, model="model not stated")
    return Run(name, selections, answers)


def _is_table(path: Path) -> bool:
    """True if the Parquet file `path` holds answers rather than selections."""
    try:
        return bool(find_logs(path))
    except InvalidInput:
        return False
