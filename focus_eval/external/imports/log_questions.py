"""Turns the documents of an lmms-eval log into questions, with or without a matching benchmark."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from focus_eval.bench.benchmarks.question import BUCKETS, Benchmark, LengthEdges, split_question
from focus_eval.core.errors import InvalidInput, SelectionMismatch
from focus_eval.core.types import Question, folded
from focus_eval.external.imports.lmms_logs import LmmsLog, LogRecord, verdict_of
from focus_eval.keyframes.rows.identity import QuestionKey, match_questions, unnamed_video

# Usual field names in documents and metrics, tried in order. The import prints the name that it used; an option sets
# another name.
VIDEO_FIELDS = ("video_path", "video", "video_name", "video_id", "videoID", "video_uid", "vid", "video_idx")
_QUERY_FIELDS = ("question", "query", "Question")
_OPTION_FIELDS = ("candidates", "options", "choices")
_ID_FIELDS = ("question_id", "id", "uid", "qid")
# Fields in which forks record the fed frames. Messages suggest them if the caller named no field.
FRAME_FIELDS = ("indices", "frame_idx", "frame_indices", "frames_used", "selected_frames", "frames")
_GROUP_FIELDS = (
    *("task_type", "task_sub_type", "question_category", "question_type", "category", "sub_category", "task_category"),
    *("topic_category", "domain", "dataset", "source", "split", "level", "duration_group"),
)
# A question id of Video-MME: number of the video, number of the question.
_VIDEO_ID = re.compile(r"(\d{3})-([123])")
_CATEGORY_FIELDS = ("question_category", "task_type", "task_category", "question_type", "category")


@dataclass(frozen=True, kw_only=True)
class QuestionSource:
    """Source of a log's questions: a benchmark, an annotation, or the log alone.

    Args:
        benchmark: name of the benchmark in the rows.
        description: sentence for the user: the source of questions and videos.
        question: returns the question of a record.
        bucket: returns the length bucket of a number of seconds.
    """

    benchmark: str
    description: str
    question: Callable[[LogRecord], Question]
    bucket: Callable[[float], str]


def question_source(
    log: LmmsLog,
    *,
    benchmark: Benchmark | None = None,
    annotated: Sequence[Question] | None = None,
    is_named: bool = False,
    id_field: str = "",
    video_field: str = "",
    is_tolerant: bool = False,
) -> QuestionSource:
    """Return the source of the questions of `log`: an annotation, a benchmark's documents, or the log alone.

    Args:
        benchmark: the benchmark that describes the documents; None if there is none.
        annotated: the questions in the order of the split.
        is_named: True if the caller named the benchmark; documents of any other benchmark are then refused.
        id_field: field with a question's id in the annotation.
        video_field: field with the name of the video, if no benchmark defines it.
        is_tolerant: read as much as possible; the import lists the problems.
    """
    first = first_record(log, is_tolerant=is_tolerant)
    if first is None:
        return _as_they_stand(log, None, "", reason="the log has no lines")
    if annotated is not None:
        return _from_annotation(log, annotated, benchmark, first, id_field, is_tolerant=is_tolerant)
    if not log.task and not is_tolerant:
        raise InvalidInput(f"{log.samples}: a table of answers does not say of which questions; give --annotations")
    if benchmark is not None and first.doc is not None:
        try:
            benchmark.question(first.doc)
        except InvalidInput as error:
            if is_named and not is_tolerant:
                raise InvalidInput(f"{first.location}: not a document of {benchmark.name}: {error}") from error
            reason = f"not {benchmark.name}'s documents ({error})"
            return _as_they_stand(log, first, video_field, reason=reason)
        return _from_documents(benchmark)
    reason = "the log has no documents" if first.doc is None else f"no benchmark here has the task {log.task}"
    return _as_they_stand(log, first, video_field, reason=reason)


def first_record(log: LmmsLog, *, is_tolerant: bool) -> LogRecord | None:
    """Return the first record of a log; with `is_tolerant`, None if no record can be read.

    Raises:
        InvalidInput: not `is_tolerant`, and the log is empty or its first line cannot be read.
    """
    try:
        first = next(log.records(), None)
    except InvalidInput:
        if not is_tolerant:
            raise
        return None
    if first is None and not is_tolerant:
        raise InvalidInput(f"{log.samples}: no answers in this file; copy it again")
    return first


def _from_documents(benchmark: Benchmark) -> QuestionSource:
    """The source that makes each question from the record's document, by the benchmark's field names."""

    def question(record: LogRecord) -> Question:
        """Return the question in a record's document; raise InvalidInput, naming the line, if it is of another form."""
        try:
            return benchmark.question(record.doc or {})
        except InvalidInput as error:
            raise InvalidInput(
                f"{record.location}: {error}; the first line is a document of {benchmark.name}"
            ) from error

    return QuestionSource(
        benchmark=benchmark.name,
        description=f"documents of {benchmark.name}",
        question=question,
        bucket=benchmark.bucket,
    )


def _from_annotation(
    log: LmmsLog,
    annotated: Sequence[Question],
    benchmark: Benchmark | None,
    first: LogRecord,
    id_field: str,
    *,
    is_tolerant: bool,
) -> QuestionSource:
    """Return a source that pairs records with annotated questions by content or id, otherwise by row number.

    A record pairs by row number only if its prompt contains the question of that row.
    """
    name = annotated[0].benchmark
    key_of, reading = _key_of(log, annotated[0].benchmark, benchmark, first, id_field)
    place_of: dict[int | str, int] = {}
    n_by_content = 0
    if key_of is not None:
        place_of, n_by_content = _places_in_annotation(log, annotated, key_of, is_tolerant=is_tolerant)
    own_ids = {question.id for question in annotated}

    def question(record: LogRecord) -> Question:
        """Return the annotated question that the record pairs with; raise SelectionMismatch if there is none."""
        if key_of is None:
            return _at_row(record, annotated)
        place = place_of.get(record.doc_id)
        if place is None:
            key = key_of(record)
            n_questions = f"{name} ({len(annotated)} questions)"
            problem = "stands several times in this log" if key.id in own_ids else f"is not a question of {n_questions}"
            raise SelectionMismatch(f"{record.location}: {key.id!r} {problem}")
        return annotated[place]

    by = f"content ({n_by_content:,}) or {reading}" if n_by_content else reading
    return QuestionSource(
        benchmark=name,
        description=f"questions of the annotation, by {by}",
        question=question,
        bucket=(benchmark or LengthEdges()).bucket,
    )


def _key_of(
    log: LmmsLog, name: str, benchmark: Benchmark | None, first: LogRecord, id_field: str
) -> tuple[Callable[[LogRecord], QuestionKey] | None, str]:
    """Return the function that gives a record's identity, and the name of that identity for messages.

    The function is None if only a record's row identifies it.
    """
    if id_field:
        if first.value(id_field) is None:
            raise InvalidInput(f"{first.location}: no field {id_field!r} (id_field); {_fields_of(first)}")
        return (lambda record: QuestionKey(name, str(record.value(id_field)))), id_field
    if isinstance(first.doc_id, str):
        return (lambda record: QuestionKey(name, str(record.doc_id))), "id"
    if benchmark is not None and first.doc is not None:
        described = benchmark
        with suppress(InvalidInput):
            described.question(first.doc)

            def own_key(record: LogRecord) -> QuestionKey:
                """Return the identity of a record by the id and content of its document."""
                question = described.question(record.doc or {})
                return QuestionKey(name, question.id, question.content_key)

            return own_key, f"the document's id as in {described.name}"
    as_written = _as_they_stand(log, first, "", reason="")
    if first.doc is not None and _field(first, _QUERY_FIELDS) and _field(first, VIDEO_FIELDS):

        def content_key_of(record: LogRecord) -> QuestionKey:
            """Return the identity of a record by its content, for a log whose ids are rows."""
            question = as_written.question(record)
            return QuestionKey(name, question.id, question.content_key, is_row=True)

        return content_key_of, "what the document asks"
    return None, "row (doc_id); each is compared with the prompt"


def _places_in_annotation(
    log: LmmsLog,
    annotated: Sequence[Question],
    key_of: Callable[[LogRecord], QuestionKey],
    *,
    is_tolerant: bool,
) -> tuple[dict[int | str, int], int]:
    """Position in `annotated` by doc_id of each record with a pair, and the number of pairs found by content."""
    doc_ids: list[int | str] = []
    keys: list[QuestionKey] = []
    try:
        for record in log.records():
            keys.append(key_of(record))
            doc_ids.append(record.doc_id)
    except InvalidInput:
        if not is_tolerant:
            raise
    own_keys = [QuestionKey(question.benchmark, question.id, question.content_key) for question in annotated]
    pairs = match_questions(keys, own_keys).pairs
    n_by_content = sum(keys[at].content == own_keys[to].content for at, to in pairs)
    return {doc_ids[at]: to for at, to in pairs}, n_by_content


def _at_row(record: LogRecord, annotated: Sequence[Question]) -> Question:
    """The annotated question at row `doc_id`; raises SelectionMismatch if the prompt does not contain it."""
    row = int(record.doc_id)
    if not 0 <= row < len(annotated):
        raise SelectionMismatch(
            f"{record.location}: doc_id {row}, the annotation has {len(annotated)} rows; another split?"
        )
    question = annotated[row]
    if folded(question.query) not in folded(record.prompt):
        raise SelectionMismatch(
            f"{record.location}: the prompt is not the question in row {row} of the annotation ({question.id}); "
            "name the field that holds its id (-o id_field=NAME)"
        )
    return question


def _as_they_stand(log: LmmsLog, first: LogRecord | None, video_field: str, *, reason: str) -> QuestionSource:
    """A source of questions with ids from task, split and doc_id; reports pair these questions by content."""
    task = log.task or log.samples.name
    benchmark = f"{task}@{log.split}" if log.split else task
    if first is not None and video_field and _field(first, (video_field,)) is None:
        raise InvalidInput(f"{first.location}: no field {video_field!r} (video_field); {_fields_of(first)}")
    names = (video_field, *VIDEO_FIELDS) if first is not None else ()
    video_name = next((name for name in names if name and first is not None and _field(first, (name,))), "")
    has_video_ids = first is not None and not video_name and _has_video_ids(log)

    def question(record: LogRecord) -> Question:
        """Return a question made from the record alone, with its row as id."""
        duration = _field(record, ("duration",))
        is_length = isinstance(duration, (int, float)) and not isinstance(duration, bool) and duration > 0
        # Identify a question by its text, else by its prompt's hash, else by its row.
        text = str(_field(record, _QUERY_FIELDS) or record.prompt).strip()
        hashed = f"prompt {record.prompt_hash}" if record.prompt_hash else f"doc_id {record.doc_id}"
        own_id = _field(record, _ID_FIELDS)
        own_video = f"doc_id {record.doc_id}" if own_id is None else unnamed_video(own_id)
        if has_video_ids:
            own_video = str(own_id).partition("-")[0]
        verdicts = (verdict_of(entry) for entry in record.metrics.values())
        right = next((verdict.right for verdict in verdicts if verdict and verdict.right), None)
        return Question(
            benchmark=benchmark,
            id=str(record.doc_id),
            query=text or hashed,
            options=options_of(record),
            video=str(_field(record, (video_name,)) or own_video),
            answer=right or record.target or None,
            duration_seconds=float(duration) if is_length else None,
            bucket=duration if duration in BUCKETS else None,
            category=category_of(record),
        )

    videos = f"videos by {video_name}" if video_name else "no video is named: each question has its own"
    videos += "" if video_name else " (-o video_field=NAME)"
    if has_video_ids:
        videos = "videos by the questions' ids, which name three of each (001-1, 001-2, 001-3)"
    reading = f"{reason}: questions by task, split and doc_id; {videos}"
    return QuestionSource(benchmark=benchmark, description=reading, question=question, bucket=LengthEdges().bucket)


def _has_video_ids(log: LmmsLog) -> bool:
    """Return True if ids have Video-MME's form: number of the video and 1, 2 or 3, three questions per video.

    The last video of a log that ends early may have fewer questions.
    """
    numbers_by_video: dict[str, list[str]] = {}
    with suppress(InvalidInput):
        for record in log.records():
            match = _VIDEO_ID.fullmatch(str(_field(record, _ID_FIELDS)))
            if match is None:
                return False
            numbers_by_video.setdefault(match[1], []).append(match[2])
    *earlier_videos, last_video = numbers_by_video.values() or ([],)
    all_numbers = ["1", "2", "3"]
    has_all = all(sorted(numbers) == all_numbers for numbers in earlier_videos)
    return has_all and 0 < len(last_video) == len({*last_video})


def group_fields(record: LogRecord) -> dict[str, str]:
    """Return the fields of a record that name a part of its benchmark: type, source, level, split."""
    places = _places(record)
    present = [name for name in _GROUP_FIELDS if any(name in place for place in places)]
    values = ((name, _first_value(places, name)) for name in present)
    return {name: str(value) for name, value in values if isinstance(value, (str, int)) and len(str(value)) <= 80}


def _field(record: LogRecord, names: Sequence[str]) -> Any:
    """The first value under one of `names` in the document or a metric's entry; None without any."""
    places = _places(record)
    for name in filter(None, names):
        if (value := _first_value(places, name)) is not None:
            return value
        if "." in name and record.value(name) is not None:
            return record.value(name)
    return None


def _places(record: LogRecord) -> list[Mapping[str, object]]:
    """The record's document and the entries of its metrics that are objects."""
    documents = [] if record.doc is None else [record.doc]
    return documents + [entry for entry in record.metrics.values() if isinstance(entry, Mapping)]


def _first_value(places: Sequence[Mapping[str, object]], name: str) -> object:
    """The first value under `name` in `places` that is not None; None without any."""
    return next((place[name] for place in places if place.get(name) is not None), None)


def options_of(record: LogRecord) -> tuple[str, ...]:
    """Return the option texts in a record's document, else the options A, B, .. in the prompt; () if there are none."""
    listed = _field(record, _OPTION_FIELDS)
    if isinstance(listed, Sequence) and not isinstance(listed, str):
        return tuple(str(option) for option in listed)
    return split_question(record.prompt)[1]


def category_of(record: LogRecord) -> str:
    """Return the type of a record's question, or its types joined by commas; "" if not stated."""
    value = _field(record, _CATEGORY_FIELDS)
    return ", ".join(map(str, value)) if isinstance(value, list) else "" if value is None else str(value)


def _fields_of(record: LogRecord) -> str:
    """A clause that lists the fields of a record's document and entries, for a message."""
    entries = {name: entry for name, entry in record.metrics.items() if isinstance(entry, Mapping)}
    fields = [*(record.doc or ()), *(f"{name}.{key}" for name, entry in entries.items() for key in entry)]
    return f"there are {', '.join(map(str, fields[:40]))}" if fields else "the log has no documents"


def number_fields(record: LogRecord) -> list[str]:
    """Return the names of fields of a record's document that hold lists of numbers, and so may be frames."""
    lists = {name: value for name, value in (record.doc or {}).items() if isinstance(value, list) and value}
    return [name for name, value in lists.items() if all(map(_is_number, value))]


def _is_number(value: object) -> bool:
    """True for a number, or text of digits alone."""
    return isinstance(value, (int, float)) or (isinstance(value, str) and value.isdecimal())
