"""Turns the documents of an lmms-eval log into questions, whether or not a benchmark here describes them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from focus_eval.benchmarks.question import BUCKETS, Benchmark, LengthEdges, Question
from focus_eval.core.errors import InvalidInput, SelectionMismatch
from focus_eval.selections.lmms_logs import LmmsLog, LogRecord

# Usual names in documents and in the entries of metrics. What was found is printed; a field can be named instead.
VIDEO_FIELDS = ("video_path", "video", "video_name", "video_id", "videoID", "video_uid", "vid", "video_idx")
_QUERY_FIELDS = ("question", "query", "Question")
_OPTION_FIELDS = ("candidates", "options", "choices")
_CATEGORY_FIELDS = ("question_category", "task_type", "task_category", "question_type", "category")
_OPTION_LINE = re.compile(r"^\s*\(?([A-Z])(?:\)|[.:])\s*(.+?)\s*$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class QuestionSource:
    """How the questions of a log are known.

    Args:
        benchmark: name in the rows.
        taken: what is read from where, a sentence for the user.
        question: of a record.
        bucket: length bucket of seconds.
    """

    benchmark: str
    taken: str
    question: Callable[[LogRecord], Question]
    bucket: Callable[[float], str]


def question_source(
    log: LmmsLog,
    first: LogRecord,
    *,
    benchmark: Benchmark | None = None,
    annotated: Sequence[Question] | None = None,
    is_named: bool = False,
    id_field: str = "",
    video_field: str = "",
) -> QuestionSource:
    """Return how the questions of `log` are known: from an annotation, a benchmark's documents, or as they stand.

    Args:
        first: the first record of the log.
        benchmark: that describes the documents; None where none does.
        annotated: the questions in the order of the split.
        is_named: the caller named the benchmark: documents that are not its own are refused.
        id_field: that holds a question's id in the annotation.
        video_field: that names the video, where no benchmark says which.
    """
    if annotated is not None:
        return _from_annotation(annotated, benchmark, first, id_field)
    if not log.task:
        raise InvalidInput(f"{log.samples}: a table of answers does not say of which questions; give --annotations")
    if benchmark is not None and first.doc is not None:
        try:
            benchmark.question(first.doc)
        except InvalidInput as error:
            if is_named:
                raise InvalidInput(f"{first.where}: not a document of {benchmark.name}: {error}") from error
            return _as_they_stand(log, first, video_field, why=f"not {benchmark.name}'s documents ({error})")
        return _from_documents(benchmark)
    why = "the log has no documents" if first.doc is None else f"no benchmark here has the task {log.task}"
    return _as_they_stand(log, first, video_field, why=why)


def _from_documents(benchmark: Benchmark) -> QuestionSource:
    def question(record: LogRecord) -> Question:
        try:
            return benchmark.question(record.doc or {})
        except InvalidInput as error:
            raise InvalidInput(f"{record.where}: {error}; the first line is a document of {benchmark.name}") from error

    return QuestionSource(
        benchmark=benchmark.name, taken=f"documents of {benchmark.name}", question=question, bucket=benchmark.bucket
    )


def _from_annotation(
    annotated: Sequence[Question], benchmark: Benchmark | None, first: LogRecord, id_field: str
) -> QuestionSource:
    name = annotated[0].benchmark
    by_id = {question.id: question for question in annotated}
    key, taken = _key_of(benchmark, first, id_field)

    def question(record: LogRecord) -> Question:
        if key is None:
            return _at_row(record, annotated)
        found = key(record)
        if found not in by_id:
            raise SelectionMismatch(f"{record.where}: {found!r} is not a question of {name} ({len(by_id)} questions)")
        return by_id[found]

    bucket, said = (benchmark or LengthEdges()).bucket, f"questions of the annotation, by {taken}"
    return QuestionSource(benchmark=name, taken=said, question=question, bucket=bucket)


def _key_of(
    benchmark: Benchmark | None, first: LogRecord, id_field: str
) -> tuple[Callable[[LogRecord], str] | None, str]:
    """Return what gives a record's id in the annotation, None where its row does; and how that is called."""
    if id_field:
        if first.value(id_field) is None:
            raise InvalidInput(f"{first.where}: no field {id_field!r} (id_field); {_fields_of(first)}")
        return (lambda record: str(record.value(id_field))), id_field
    if isinstance(first.doc_id, str):
        return (lambda record: str(record.doc_id)), "id"
    if benchmark is not None and first.doc is not None:
        made = benchmark
        with suppress(InvalidInput):
            made.question(first.doc)
            return (lambda record: made.question(record.doc or {}).id), f"the document's id as in {made.name}"
    return None, "row (doc_id); each is compared with the prompt"


def _at_row(record: LogRecord, annotated: Sequence[Question]) -> Question:
    """Return the question at row `doc_id`, if the prompt asks it."""
    row = int(record.doc_id)
    if not 0 <= row < len(annotated):
        raise SelectionMismatch(
            f"{record.where}: doc_id {row}, the annotation has {len(annotated)} rows; another split?"
        )
    question = annotated[row]
    if _folded(question.query) not in _folded(record.prompt):
        raise SelectionMismatch(
            f"{record.where}: the prompt is not the question in row {row} of the annotation ({question.id}); "
            "name the field that holds its id (-o id_field=NAME)"
        )
    return question


def _as_they_stand(log: LmmsLog, first: LogRecord, video_field: str, *, why: str) -> QuestionSource:
    """Return questions known by task, split and doc_id."""
    benchmark = f"{log.task}@{log.split}" if log.split else log.task
    if video_field and _field(first, (video_field,)) is None:
        raise InvalidInput(f"{first.where}: no field {video_field!r} (video_field); {_fields_of(first)}")
    video_name = next((name for name in (video_field, *VIDEO_FIELDS) if name and _field(first, (name,))), "")

    def question(record: LogRecord) -> Question:
        duration = _field(record, ("duration",))
        is_length = isinstance(duration, (int, float)) and not isinstance(duration, bool) and duration > 0
        return Question(
            benchmark=benchmark,
            id=str(record.doc_id),
            query=str(_field(record, _QUERY_FIELDS) or record.prompt).strip() or f"doc_id {record.doc_id}",
            options=options_of(record),
            video=str(_field(record, (video_name,)) or f"doc_id {record.doc_id}"),
            answer=None,
            duration_seconds=float(duration) if is_length else None,
            bucket=duration if duration in BUCKETS else None,
            category=category_of(record),
        )

    unnamed = "no video is named: each question has its own (-o video_field=NAME)"
    videos = f"videos by {video_name}" if video_name else unnamed
    taken = f"{why}: questions by task, split and doc_id; {videos}"
    return QuestionSource(benchmark=benchmark, taken=taken, question=question, bucket=LengthEdges().bucket)


def _field(record: LogRecord, names: Sequence[str]) -> Any:
    """Return the first of the fields that the document or an entry of a metric has."""
    places: list[Mapping[str, Any]] = [record.doc] if record.doc is not None else []
    places += [entry for entry in record.metrics.values() if isinstance(entry, Mapping)]
    for name in names:
        for place in places:
            if name and place.get(name) is not None:
                return place[name]
        if "." in name and record.value(name) is not None:
            return record.value(name)
    return None


def options_of(record: LogRecord) -> tuple[str, ...]:
    """Return the options of a document, or of the prompt."""
    given = _field(record, _OPTION_FIELDS)
    if isinstance(given, Sequence) and not isinstance(given, str):
        return tuple(str(option) for option in given)
    found = _OPTION_LINE.findall(record.prompt)
    # A prompt may hold other lines that begin so: only A, B, C, .. from the first on are its options.
    letters = [letter for letter, _ in found]
    is_whole = letters == [chr(ord("A") + at) for at in range(len(letters))]
    return tuple(text for _, text in found) if len(found) > 1 and is_whole else ()


def category_of(record: LogRecord) -> str:
    """Return the type of a question; "" where nothing says it."""
    value = _field(record, _CATEGORY_FIELDS)
    return ", ".join(map(str, value)) if isinstance(value, list) else "" if value is None else str(value)


def _fields_of(record: LogRecord) -> str:
    entries = {name: entry for name, entry in record.metrics.items() if isinstance(entry, Mapping)}
    fields = [*(record.doc or ()), *(f"{name}.{key}" for name, entry in entries.items() for key in entry)]
    return f"there are {', '.join(map(str, fields[:40]))}" if fields else "the log has no documents"


def _folded(text: str) -> str:
    return " ".join(text.split()).casefold()


def number_fields(record: LogRecord) -> list[str]:
    """Return the fields of a document that hold lists of numbers: those that may be frames."""
    lists = {name: value for name, value in (record.doc or {}).items() if isinstance(value, list) and value}
    return [name for name, value in lists.items() if all(map(_is_number, value))]


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) or (isinstance(value, str) and value.isdecimal())
