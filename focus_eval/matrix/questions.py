"""The questions of a matrix, and the lengths of their videos."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from focus_eval.benchmarks.annotations import questions_of, read_annotations, read_documents
from focus_eval.benchmarks.question import Benchmark, Question
from focus_eval.benchmarks.rates import VideoRate, read_rates
from focus_eval.errors import FocusEvalError, InvalidInput
from focus_eval.matrix.config import BenchmarkConfig
from focus_eval.matrix.documents import dataset_snapshot, find_documents, task_source
from focus_eval.types import VideoInfo
from focus_eval.video import open_video
from focus_eval.video.manifest import known_info as manifest_info


@dataclass(frozen=True)
class QuestionSet:
    """The questions of one benchmark, in the annotation's order, with their videos.

    Args:
        config: where they are.
        questions: those asked, after `limit`.
        all_ids: ids of all questions of the benchmark.
    """

    config: BenchmarkConfig
    questions: tuple[Question, ...]
    all_ids: list[str]

    @cached_property
    def benchmark(self) -> Benchmark:
        """The benchmark, with the config's length edges."""
        return self.config.make()

    @cached_property
    def by_video(self) -> dict[str, list[Question]]:
        """Questions by video, in the order in which the videos first appear."""
        groups: dict[str, list[Question]] = {}
        for question in self.questions:
            groups.setdefault(question.video, []).append(question)
        return groups

    @cached_property
    def rates(self) -> dict[str, VideoRate]:
        """Length and rate by question id, where the config names a file of them."""
        return read_rates(self.config.rates) if self.config.rates else {}

    def video_path(self, video: str) -> Path:
        """Return where the file of `video` lies."""
        return Path(self.config.videos) / video

    def known_info(self, question: Question) -> VideoInfo | None:
        """Return length and rate from the file of rates, else from the videos' manifest; None where neither has it."""
        # The file of rates wins: it is stated by the config, the manifest is only found.
        rate = self.rates.get(question.id)
        if rate is not None:
            return rate.info
        return manifest_info(self.video_path(question.video)) if self.config.videos else None

    def info(self, question: Question) -> VideoInfo:
        """Return length and rate from the file of rates or the manifest, else from the video itself.

        Raises:
            VideoError: no rates, and a video that cannot be read.
        """
        known = self.known_info(question)
        if known is not None:
            return known
        with open_video(self.video_path(question.video)) as reader:
            return reader.info

    def infos(self) -> Iterator[list[tuple[int, Question, VideoInfo | FocusEvalError]]]:
        """Yield the questions video by video: number, question, and what is known of its video or why nothing is."""
        # Videos are visited one by one, but whoever counts may need the annotation's order.
        numbers = {question.id: number for number, question in enumerate(self.questions)}
        for questions in self.by_video.values():
            yield [(numbers[question.id], question, info) for question, info in self._infos_of(questions)]

    def _infos_of(self, questions: list[Question]) -> Iterator[tuple[Question, VideoInfo | FocusEvalError]]:
        """Yield the questions of one video with its length and rate; it is opened once at most."""
        probed: VideoInfo | FocusEvalError | None = None
        for question in questions:
            known = self.known_info(question)
            # An error is kept too: a damaged file is opened once, not for each of its questions.
            if known is None and probed is None:
                try:
                    probed = self.info(question)
                except FocusEvalError as error:
                    probed = error
            info = known or probed
            assert info is not None
            yield question, info


def load_questions(config: BenchmarkConfig, *, limit: int | None = None) -> QuestionSet:
    """Return the first `limit` questions of the benchmark (all by default).

    Raises:
        MissingDocuments: the task's documents are not on this machine.
        InvalidInput: annotations that are missing or damaged, or other in number than the config states.
    """
    questions, where = read_questions(config)
    if config.questions is not None and len(questions) != config.questions:
        raise InvalidInput(
            f"{where}: {len(questions)} questions, {config.name} has {config.questions}; "
            "is this another split or version?"
        )
    # All ids, also under a limit: finished rows are put into the order of the whole benchmark.
    return QuestionSet(config, tuple(questions[:limit]), [question.id for question in questions])


def read_questions(config: BenchmarkConfig) -> tuple[list[Question], str]:
    """Return all questions of a benchmark, and the name of the file or folder they are from.

    They are those of `annotations` where the config names it, else the documents of its task.

    Raises:
        MissingDocuments: the task's documents are not on this machine.
        InvalidInput: a file that is damaged; names it.
    """
    if config.annotations:
        return read_annotations(config.make(), config.annotations), config.annotations
    found = find_documents(config)
    documents = [document for file in found.files for document in read_documents(file)]
    where = str(found.files[0] if len(found.files) == 1 else found.files[0].parent)
    return questions_of(config.make(), _with_evidence(documents, config), where=where), where


def _with_evidence(documents: list[Mapping[str, Any]], config: BenchmarkConfig) -> list[Mapping[str, Any]]:
    """Add what the data set annotates in another file than its documents (see `LongVideoBench.evidence_file`)."""
    name, field = getattr(config.make(), "evidence_file", ""), "position"
    # Nothing to add, or the documents have it already.
    if not name or field in documents[0]:
        return documents
    folder = Path(config.dataset) if config.dataset else dataset_snapshot(task_source(config.task).repository)
    # Not every copy of the data set has it; only what uses evidence does without it then.
    if folder is None or not (folder / name).is_file():
        return documents
    annotated = {row.get("id"): row.get(field) for row in read_documents(folder / name)}
    return [{**document, field: annotated.get(document.get("id"))} for document in documents]
