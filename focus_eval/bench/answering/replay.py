"""Replays selections made before: our own rows, or a file in another format if `focus_eval.external` is installed."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from focus_eval.bench.answering.choosing import FrameChoice
from focus_eval.bench.answering.questions import SplitDocuments, TaskQuestion
from focus_eval.bench.benchmarks.question import Benchmark
from focus_eval.bench.rows.entries import FileEntry, holds_own_rows, read_own_rows
from focus_eval.bench.rows.packed import run_folder
from focus_eval.core.errors import RunError, SelectionMismatch
from focus_eval.core.offers import offered
from focus_eval.core.options import named_options, read_options
from focus_eval.core.types import Question
from focus_eval.keyframes.pipeline.relevance import OnPulls
from focus_eval.keyframes.rows.identity import identity_hash
from focus_eval.keyframes.rows.records import KnownSelection, Origin, error_line, selection_row

if TYPE_CHECKING:
    from focus_eval.keyframes.video.reader import VideoReader

_OWN_OPTIONS = {"sampler": str | None}


class ReplayedSelections:
    """Selections from a file: our rows, or a published index file, which `focus_eval.external` reads.

    Args:
        path: the file, or the folder of a run.
        frames: limit of frames in a selection; a selection with more is refused, not thinned out.
        options: format, unit and allow_missing of `load_selections`, and the options of the format.
    """

    needs_gpu = False

    def __init__(
        self,
        path: Path,
        *,
        frames: int,
        options: Mapping[str, object] | None = None,
    ) -> None:
        self.k = frames
        self._path = path
        all_options = options or {}
        option_types = {"format": str, "unit": str | None, "allow_missing": bool}
        reader_options = {name: value for name, value in all_options.items() if name in option_types}
        self._options = read_options("selections", option_types, reader_options)
        # Options of the format, which its reader checks.
        self._format_options = {name: value for name, value in all_options.items() if name not in option_types}
        self._format = str(self._options.get("format") or "auto")
        self._is_own = self._format.partition(":")[0] in ("auto", "rows") and holds_own_rows(run_folder(path))
        self._by_benchmark: dict[str, Mapping[str, FileEntry]] = {}
        # The file may be changed in place, so the identity of the selection is the hash of its content.
        settings = {**self._options, **self._format_options}
        self.identity: Mapping[str, object] = {"content": _content_hash(path), "options": settings, "frames": frames}
        self.selection_id = identity_hash(self.identity)
        # Read our own rows now, so that an unusable file is refused before any weights load. A published file can be
        # read only against the questions, so check here only that its reader is installed.
        if self._is_own:
            self._read(None)
        else:
            offered("load_selections")

    def prepare(self, benchmark: str, questions: Sequence[Question], *, question_ids: Collection[str]) -> None:
        """Read the file against all questions of `benchmark`, in the annotation's order.

        Raises:
            SelectionMismatch: a file that does not fit them, with more frames than may be shown, or without a
                selection for a question that is asked (unless `allow_missing`).
        """
        if benchmark not in self._by_benchmark:
            self._by_benchmark[benchmark] = self._read(questions)
        selections = self._by_benchmark[benchmark]
        missing = [
            question.id for question in questions if question.id in question_ids and question.id not in selections
        ]
        if missing and not self._options.get("allow_missing"):
            raise SelectionMismatch(
                f"{self._path}: {len(selections)} selections for {len(questions)} questions of {benchmark}; "
                f"{len(missing)} of {len(question_ids)} that are asked have none, the first is {missing[0]!r} "
                "(selections.allow_missing=true records an error for each of them instead)"
            )

    def begin(self, questions: Sequence[TaskQuestion], documents: Mapping[str, Mapping[str, SplitDocuments]]) -> None:
        """Call `prepare` for each benchmark among `questions`; `documents` are those of the tasks by split."""
        asked_ids: dict[tuple[str, str], set[str]] = {}
        benchmarks: dict[tuple[str, str], Benchmark] = {}
        for task_question in questions:
            # Without a benchmark the order of the questions is unknown, so the file cannot be checked against them.
            if task_question.benchmark is not None:
                key = task_question.parts.task, task_question.parts.split
                benchmarks[key] = task_question.benchmark
                asked_ids.setdefault(key, set()).add(task_question.question.id)
        for (task, split), benchmark in benchmarks.items():
            # All questions of the split, also under --limit: some published files list selections by position.
            all_questions = [benchmark.question(document) for document in documents[task][split]]
            self.prepare(benchmark.name, all_questions, question_ids=asked_ids[task, split])

    def choose(
        self, reader: VideoReader, questions: Sequence[TaskQuestion], *, on_pulls: OnPulls | None = None
    ) -> list[FrameChoice]:
        """Return the recorded selection of each question as a row; an error if there is none that fits the video."""
        return [self._choice(reader, task_question) for task_question in questions]

    def failed(self, task_question: TaskQuestion, error: Exception) -> FrameChoice:
        """As in `Chooser`."""
        row = selection_row(
            task_question.question,
            self._origin("replay"),
            facts=self._facts,
            bucket_of=task_question.bucket_of,
            error=error,
        )
        return FrameChoice(row=row, error=error_line(error))

    def _choice(self, reader: VideoReader, task_question: TaskQuestion) -> FrameChoice:
        question = task_question.question
        try:
            entry = self._by_benchmark[question.benchmark].get(question.id)
            if entry is None:
                raise SelectionMismatch(f"{self._path}: no selection for {question.benchmark} {question.id}")
            # Ask the video for its length and the times of its frames, which a file of indices does not hold.
            frames = entry.frames_in(reader.info)
            times = reader.frame_times(np.asarray(frames, dtype=np.int64))
        except RunError:
            raise
        except Exception as error:  # noqa: BLE001 (recorded: one question never ends a run)
            return self.failed(task_question, error)
        row = entry.selection
        return FrameChoice(
            row=selection_row(
                question,
                self._origin(row.sampler),
                KnownSelection(
                    video=reader.info,
                    keyframes=list(frames),
                    times_seconds=[round(float(time), 6) for time in times],
                    scales=row.scales,
                    pulled_frames=row.pulled_frames,
                    pulled_relevance=row.pulled_relevance,
                    clips=row.clips,
                ),
                facts=self._facts,
                bucket_of=task_question.bucket_of,
            )
        )

    @property
    def _facts(self) -> dict[str, object]:
        """Facts for the rows: the name of the file of selections."""
        return {"replayed_from": self._path.name}

    def _origin(self, sampler: str) -> Origin:
        return Origin(selection_id=self.selection_id, sampler=sampler, k=self.k)

    def _read(self, questions: Sequence[Question] | None) -> Mapping[str, FileEntry]:
        """The file's selections by question id; raises SelectionMismatch for more frames than are shown."""
        entries: Mapping[str, FileEntry]
        if self._is_own:
            entries = self._own_rows(questions)
        else:
            # Another format, which `focus_eval.external` reads.
            reader_options = {**self._options, "allow_missing": True}
            load_selections = offered("load_selections")
            entries = load_selections(self._path, questions=questions, **reader_options, options=self._format_options)
        for entry in entries.values():
            # Allow any number of frames with scales: such a selection has more and smaller frames by design.
            if len(entry.shown) > self.k and entry.selection.scales is None:
                raise SelectionMismatch(
                    f"{entry.place}: {len(entry.shown)} frames, the model is shown at most {self.k}; set frames="
                )
        return entries

    def _own_rows(self, questions: Sequence[Question] | None) -> Mapping[str, FileEntry]:
        """Our own rows by question id; raises SelectionMismatch for a question that the benchmark does not have."""
        _, format_options = named_options(self._format, self._format_options)
        # Rows made under --limit cover only some questions; `prepare` checks which of them are missing.
        entries: dict[str, FileEntry] = {}
        for entry in read_own_rows(run_folder(self._path), **read_options("selections", _OWN_OPTIONS, format_options)):
            question_id = entry.selection.question_id
            if question_id in entries:
                raise SelectionMismatch(f"{entry.location}: question {question_id!r} appears twice")
            entries[question_id] = entry
        if questions is None:
            return entries
        benchmark_of = {question.id: question.benchmark for question in questions}
        for question_id, entry in entries.items():
            if question_id not in benchmark_of:
                n_questions = len(benchmark_of)
                raise SelectionMismatch(
                    f"{entry.location}: {question_id!r} is not a question of this benchmark ({n_questions} questions)"
                )
            if entry.selection.benchmark not in ("", benchmark_of[question_id]):
                raise SelectionMismatch(
                    f"{entry.location}: a selection for {entry.selection.benchmark}, the question is of "
                    f"{benchmark_of[question_id]}"
                )
        return entries


def _content_hash(path: Path) -> str:
    """A hash over name and content of a file, or of every file in a folder."""
    digest = hashlib.sha256()
    for file in [path] if path.is_file() else sorted(item for item in path.rglob("*") if item.is_file()):
        digest.update(file.name.encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]
