"""Makes questions of a benchmark's documents: declared fields, length buckets, and annotated evidence."""

from __future__ import annotations

import hashlib
import json
import math
import re
import string
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from focus_eval.bench.benchmarks.group_scores import GroupScore
from focus_eval.bench.benchmarks.subtitles import SubtitleFacts
from focus_eval.core.errors import InvalidInput, unknown_name
from focus_eval.core.resources import lines_of, read_json_object
from focus_eval.core.types import Question

# Length buckets of videos, in the order of tables. Only simulated videos, from an hour on, are in the bucket "hours".
BUCKETS = ("short", "medium", "long")
ALL_BUCKETS = (*BUCKETS, "hours")


def in_order(buckets: Iterable[str]) -> list[str]:
    """Return the distinct bucket names in the order of `ALL_BUCKETS`.

    Unknown names follow in alphabetical order; "" is left out.
    """
    names = set(buckets) - {""}
    return [name for name in ALL_BUCKETS if name in names] + sorted(names - set(ALL_BUCKETS))


@dataclass(frozen=True)
class LengthEdges:
    """Bounds of the length buckets in seconds: short is below the first, long above the second, medium the rest.

    The defaults are those of the published LongVideoBench tables.

    Raises:
        InvalidInput: edges that are not `0 < first <= second`.
    """

    short_below_seconds: float = 180.0
    long_above_seconds: float = 1200.0

    def __post_init__(self) -> None:
        """Raise InvalidInput unless `0 < short_below_seconds <= long_above_seconds`, both finite."""
        if not 0 < self.short_below_seconds <= self.long_above_seconds < float("inf"):
            raise InvalidInput(
                "length edges must be two finite ascending numbers of seconds above 0, "
                f"got {self.short_below_seconds} and {self.long_above_seconds}"
            )

    def bucket(self, duration_seconds: float) -> str:
        """Return "short", "medium" or "long".

        Raises:
            InvalidInput: a duration that is not a number above 0.
        """
        if not 0 < duration_seconds < float("inf"):
            raise InvalidInput(f"a duration must be seconds above 0, got {duration_seconds}")
        if duration_seconds < self.short_below_seconds:
            return "short"
        return "medium" if duration_seconds <= self.long_above_seconds else "long"


@dataclass(frozen=True, kw_only=True)
class BenchmarkFacts:
    """Facts about a benchmark besides its documents, from its YAML file.

    Args:
        questions: number of questions of the whole split; None if not stated.
        questions_of_tasks: lmms-eval task -> number of its questions, for tasks that ask another split.
        group_score: the official score of groups of questions; None if single questions are scored.
        mean_over_types: True if accuracy is reported as the mean over question types.
        types_with_parts: types whose parts are averaged first: "a" has the parts "a_easy" and "a_hard".
        evidence_file: second file that holds the evidence, if the documents do not.
        lmms_eval_parsing: the task whose rule reads answers under `answer_parsing=lmms_eval`: "longvideobench",
            "vsibench", or "letters" (the first letter); "" if the task itself then scores them.
        subtitles: how the benchmark's prompts hold subtitles; None if it has no subtitles.
    """

    questions: int | None = None
    questions_of_tasks: Mapping[str, int] = field(default_factory=dict)
    group_score: GroupScore | None = None
    mean_over_types: bool = False
    types_with_parts: tuple[str, ...] = ()
    evidence_file: str = ""
    lmms_eval_parsing: str = ""
    subtitles: SubtitleFacts | None = None

    def __post_init__(self) -> None:
        """Raise UnknownName for an unknown `lmms_eval_parsing`."""
        if self.lmms_eval_parsing not in ("", *LMMS_EVAL_PARSINGS):
            raise unknown_name("lmms_eval_parsing", self.lmms_eval_parsing, LMMS_EVAL_PARSINGS)

    def n_questions(self, tasks: Iterable[str]) -> int | None:
        """Return the number of questions that `tasks` ask, each split once; None if not stated."""
        sizes = {self.questions_of_tasks.get(task, self.questions) for task in tasks} or {self.questions}
        return None if None in sizes else sum(size for size in sizes if size)

    def strata(self, categories: Sequence[str]) -> list[str] | None:
        """Return the question type of each category; None if accuracy is a mean over questions, not types.

        A category "type_part" of a type in `types_with_parts` gives "type/part". The result is also None if a category
        is
        "": only the mean over questions is then known.
        """
        if not self.mean_over_types or not all(categories):
            return None
        strata = []
        for category in categories:
            whole = next((name for name in self.types_with_parts if category.startswith(f"{name}_")), None)
            strata.append(category if whole is None else f"{whole}/{category[len(whole) + 1 :]}")
        return strata


LMMS_EVAL_PARSINGS = ("longvideobench", "vsibench", "letters")


# Distances in seconds at which evidence recall is measured, ascending. All tables, figures and commands use these.
RECALL_SECONDS = (1.0, 2.0, 5.0)
# Distance in seconds used where only one recall is shown (page, figures, demo, simulations).
NEAR_SECONDS = RECALL_SECONDS[len(RECALL_SECONDS) // 2]
# Evidence is in view if a keyframe lies within this many seconds.
IN_VIEW_SECONDS = RECALL_SECONDS[-1]
# Lengths are rounded, so keep moments up to this many seconds past the end. Later moments are annotation errors.
END_SLACK_SECONDS = 1.0
# Tolerance of comparisons: a frame exactly at a bound counts as inside.
SLACK_SECONDS = 1e-6

# "frames@24" are frame numbers at 24 frames per second, whatever the rate of the file. Any rate may replace 24.
EVIDENCE_UNITS = ("seconds", "frames@24", "intervals", "clock")
Moments = tuple[float, ...]
Intervals = tuple[tuple[float, float], ...]
# Minutes may exceed 59 if there are no hours: LVBench writes 101:21.
_CLOCK = re.compile(r"(?:(\d+):(?=\d{1,2}:))?(\d+):(\d{1,2}(?:\.\d+)?)")

LETTERS = string.ascii_uppercase


def letters(n_options: int) -> str:
    """Return the letters of the first `n_options` options as one text: "ABC" for 3."""
    return LETTERS[:n_options]


def without_letter(option: str, index: int) -> str:
    """Return option text without its own letter ("B. Candles." at 1 gives "Candles.")."""
    text = option.strip()
    letter = LETTERS[index]
    for mark in (f"{letter}.", f"({letter})", f"{letter})", f"{letter}:"):
        if text.startswith(mark):
            return text[len(mark) :].strip()
    return option


# What the field `answer` of a document may hold; "letter|text" allows both.
ANSWER_KINDS = ("letter", "index", "text", "open")
# A line of options inside a text: "A. ...", "(A) ...", "A) ...", "A: ...".
_OPTION_LINE = re.compile(r"^[ \t]*\(?([A-Z])(?:\)|[.:])[ \t]*", re.MULTILINE)
_OPTION_TEXT = re.compile(_OPTION_LINE.pattern + r"(.*?)\s*$", re.MULTILINE)
_NO_OPTION = ("N/A",)


@dataclass(frozen=True, kw_only=True)
class DocumentFields:
    """Fields of a document, by their meaning.

    A name may list alternatives: `uid|key` is the first of these that the document has. A name with braces is a
    template of fields: `{video_id}.mp4`. `info.fps` is the field `fps` of the field `info`; `spans[qid]` is the entry
    of `spans` that the field `qid` names. A field whose name ends with "?" may be missing; a declared length, `fps` or
    `bucket` without "?" must be there.

    Args:
        question: the question's text.
        id: id that is unique in the benchmark; "" if documents have none. The id is then made of the video's name and a
            hash of question and options.
        video: path of the file, relative to the benchmark's video folder.
        answer: the right answer; "" if the split hides all answers. A document without a value hides its answer.
        options: field with the option texts, as a list, a mapping of letters to texts, or one text with a line per
            option; or a list of fields with one option each; "" if there are no options.
        options_in_question: True if the question's own text ends with a line per option.
        answer_is: kind of `answer`: a "letter", a 0-based "index", the "text" of an option, or "open" for a question
            without options; "letter|open" if only some have options.
        duration, duration_minutes: length of the video in seconds, or in minutes.
        fps: frames per second of the video.
        bucket: "short", "medium" or "long".
        evidence: annotated moments or intervals, in `evidence_unit`.
        evidence_unit: one of `EVIDENCE_UNITS`.
        category: the type of question.
        subtitles: the subtitle file, relative to the folder that holds the video folder.
        subtitles_offset: time in seconds on the subtitles' clock at which the video begins.
    """

    question: str = "question"
    id: str = "id"
    video: str = "video"
    answer: str = "answer"
    options: str | tuple[str, ...] = ""
    options_in_question: bool = False
    answer_is: str = "letter|open"
    duration: str = ""
    duration_minutes: str = ""
    fps: str = ""
    bucket: str = ""
    evidence: str = ""
    evidence_unit: str = "seconds"
    category: str = ""
    subtitles: str = ""
    subtitles_offset: str = ""

    def __post_init__(self) -> None:
        """Raise an error for an unknown answer kind or evidence unit, or without fields for question and video."""
        for kind in self.answer_is.split("|"):
            if kind not in ANSWER_KINDS:
                raise unknown_name("answer_is", kind, ANSWER_KINDS)
        if self.evidence and not is_evidence_unit(self.evidence_unit):
            raise unknown_name("evidence_unit", self.evidence_unit, EVIDENCE_UNITS)
        for name in ("question", "video"):
            if not getattr(self, name):
                raise InvalidInput(f"fields: {name} needs the name of a field")


@dataclass(frozen=True, kw_only=True)
class FileShape:
    """How a benchmark's file differs from one row per question.

    Args:
        nested: field of a row that holds the list of its questions (LVBench: `qa`); "" if a row is a question.
        beside: name of a second file in the annotation's folder, with an entry of details for each document; `{stem}`
            is
            the annotation's name without suffix; "" for none. A document gets its entry as the field `beside`.
        beside_by: field of a document that holds the key of its entry in the second file.
    """

    nested: str = ""
    beside: str = ""
    beside_by: str = ""

    def __post_init__(self) -> None:
        """Raise InvalidInput unless `beside` and `beside_by` are both given or both empty."""
        if bool(self.beside) != bool(self.beside_by):
            raise InvalidInput("`beside` names a file and `beside_by` the field that is its key; give both")


@dataclass(frozen=True)
class Benchmark:
    """A benchmark whose documents are read by field name.

    Args:
        name: name in matrices and rows.
        tasks: lmms-eval tasks that have these documents.
        fields: fields of a document by meaning.
        edges: bounds of the length buckets.
        facts: further facts about the benchmark.
        shape: shape of its annotation files.
    """

    name: str
    tasks: tuple[str, ...]
    fields: DocumentFields
    edges: LengthEdges = field(default_factory=LengthEdges)
    facts: BenchmarkFacts = field(default_factory=BenchmarkFacts)
    shape: FileShape = field(default_factory=FileShape)

    def question(self, document: Mapping[str, object]) -> Question:
        """Return the question of one document. Evidence that cannot be read raises no error (see `evidence_unread`).

        Raises:
            InvalidInput: a field is missing or not as declared; names benchmark, question and field.
        """
        declared = self.fields
        question_id = _text(document, declared.id, location=self.name, field_role="id") if declared.id else ""
        video = _text(document, declared.video, location=f"{self.name} {question_id}".strip(), field_role="video")
        location = f"{self.name} {question_id or video}"
        query = _text(document, declared.question, location=location, field_role="question").strip()
        options: tuple[str, ...] = ()
        if declared.options_in_question:
            query, options = split_question(query)
        options = options or _options(document, declared, location=location)
        moments, intervals, unread = _evidence(document, declared, location=location)
        seconds = _number(document, declared.duration, location=location, field_role="duration")
        minutes = _number(document, declared.duration_minutes, location=location, field_role="duration_minutes")
        if seconds is None and minutes is not None:
            seconds = 60.0 * minutes
        moments_inside = moments if seconds is None else within_video(moments, seconds)
        grouped = self.facts.group_score
        group = [document.get(name) for name in (grouped.type, grouped.structure)] if grouped else []
        category = _value(document, declared.category) if declared.category else None
        if isinstance(category, (list, tuple)):
            category = ", ".join(map(str, category))
        if not question_id:
            words = " ".join("\n".join((query, *options)).split())
            question_id = f"{PurePosixPath(video).stem}_{hashlib.sha256(words.encode()).hexdigest()[:8]}"
        return Question(
            benchmark=self.name,
            id=question_id,
            query=query,
            options=options,
            video=video,
            answer=_answer(document, declared, options, location=location),
            duration_seconds=seconds,
            bucket=_bucket(document, declared, location=location),
            evidence_seconds=moments_inside,
            evidence_intervals=intervals,
            n_evidence_dropped=len(moments) - len(moments_inside),
            evidence_unread=unread,
            category="" if category is None else str(category),
            fps=_number(document, declared.fps, location=location, field_role="fps"),
            subtitles=str(_value(document, declared.subtitles) or "") if declared.subtitles else "",
            subtitles_offset_seconds=_offset(document, declared, location=location),
            group=() if None in group else tuple(map(str, group)),
        )

    def bucket(self, duration_seconds: float) -> str:
        """Return the length bucket of a video of that length."""
        return self.edges.bucket(duration_seconds)


def split_question(text: str) -> tuple[str, tuple[str, ...]]:
    """Return the question and its options from one text that holds both; no options if none are lettered A, B, ..

    Options start at the first line that begins with A and must follow the alphabet. An option extends to the next; the
    last one ends with its line, because instructions to the model may follow.
    """
    marks = list(_OPTION_LINE.finditer(text))
    start = next((at for at, mark in enumerate(marks) if mark[1] == "A"), len(marks))
    marks = marks[start:]
    if len(marks) < 2 or [mark[1] for mark in marks] != list(letters(len(marks))):
        return text.strip(), ()
    ends = [mark.start() for mark in marks[1:]]
    last = text[marks[-1].end() :].partition("\n")[0]
    texts = [text[mark.end() : end] for mark, end in zip(marks, ends, strict=False)]
    return text[: marks[0].start()].strip(), tuple(option.strip() for option in [*texts, last])


def _value(document: Mapping[str, object], name: str) -> Any:
    """Return the document's value of a declared field, path or template; None if it has none.

    `name` may list alternatives, "a|b?": the first with a value counts.
    """
    for alternative in name.removesuffix("?").split("|"):
        value = _filled(document, alternative) if "{" in alternative else _at(document, alternative)
        if value is not None:
            return value
    return None


def _filled(document: Mapping[str, object], template: str) -> str | None:
    """`template` with each {field} replaced by the document's value; None if one of them is missing or null."""
    parts = set(re.findall(r"\{([^{}]+)\}", template))
    if any(document.get(part) is None for part in parts):
        return None
    return re.sub(r"\{([^{}]+)\}", lambda match: str(document[match[1]]), template)


def _at(document: Mapping[str, object], path: str) -> object:
    """Return the document's value at `path` ("a.b[c]": the entry of a's field b that field c names).

    None if missing.
    """
    if path in document:
        return document[path]
    value: object = document
    for name, by in re.findall(r"([^.\[\]]+)|\[([^\[\]]+)\]", path):
        value = value.get(name or str(document.get(by))) if isinstance(value, Mapping) else None
    return None if value is document else value


def _text(document: Mapping[str, object], name: str, *, location: str, field_role: str) -> str:
    """Return the value of the declared field `name` as text.

    Raise InvalidInput if it is missing, empty or no text or integer.
    """
    value = _value(document, name)
    if isinstance(value, bool) or not isinstance(value, (str, int)) or not str(value).strip():
        raise InvalidInput(_missing(document, name, value, location=location, field_role=field_role))
    return str(value)


def _missing(document: Mapping[str, object], name: str, value: object, *, location: str, field_role: str) -> str:
    """The message for a declared field without a usable value, which lists the document's fields."""
    return (
        f"{location}: {field_role} is declared as field {name!r}, which holds {value!r}; "
        f"fields of the document: {', '.join(map(str, document))}"
    )


def _options(document: Mapping[str, object], declared: DocumentFields, *, location: str) -> tuple[str, ...]:
    """Return the option texts of a document without their letters; () for an open question.

    Options may be a list, a mapping by letter, lettered lines of a text, or one field each. Empty options at the end
    are
    left out. Raises InvalidInput for a single option, or for an empty option before another one.
    """
    if isinstance(declared.options, tuple):
        named_values = [(name, _value(document, name)) for name in declared.options]
        present_values = [value for name, value in named_values if value is not None or not name.endswith("?")]
        option_values: Any = next(
            (value for value in present_values if isinstance(value, (list, tuple))), present_values
        )
        padding = ("", *_NO_OPTION) if option_values is present_values else _NO_OPTION
    else:
        option_values, padding = _value(document, declared.options) if declared.options else None, _NO_OPTION
    if option_values is None:
        return ()
    if isinstance(option_values, Mapping):
        option_values = [option_values[letter] for letter in sorted(option_values)]
    elif isinstance(option_values, str):
        option_values = [text for _, text in _OPTION_TEXT.findall(option_values)] or lines_of(option_values)
    texts = list(option_values)
    # Remove empty options at the end only: removing an earlier one would change the letters of later options.
    while texts and (texts[-1] is None or str(texts[-1]).strip() in padding):
        texts.pop()
    if None in texts or len(texts) == 1:
        raise InvalidInput(
            f"{location}: needs at least 2 options and none missing before the last, got {option_values!r}"
        )
    return tuple(without_letter(str(text), at) for at, text in enumerate(texts))


def _answer(
    document: Mapping[str, object], declared: DocumentFields, options: tuple[str, ...], *, location: str
) -> str | None:
    """Return the letter of the correct option, or the text of an open answer; None if the document has none.

    The value may be a letter, an index or an option's text, as `answer_is` declares. Raises InvalidInput for another.
    """
    value = _value(document, declared.answer) if declared.answer else None
    if value is None or not str(value).strip():
        return None
    text, kinds = str(value).strip(), declared.answer_is.split("|")
    if kinds == ["open"] or (not options and "open" in kinds):
        return text
    if not options:
        raise InvalidInput(f"{location}: no options; an answer that is {declared.answer_is!r} needs at least 2")
    if "index" in kinds and text.removesuffix(".0").isdecimal():  # pandas may read integers as floats: "2.0"
        if (index := int(text.removesuffix(".0"))) >= len(options):
            raise InvalidInput(f"{location}: answer {index} of {len(options)} options")
        return LETTERS[index]
    option_letters = letters(len(options))
    if "letter" in kinds and len(text) == 1 and text in option_letters:
        return text
    matching_places = [
        at for at, option in enumerate(options) if text and option.strip() == without_letter(text, at).strip()
    ]
    if "text" in kinds and len(matching_places) == 1:
        return option_letters[matching_places[0]]
    letter = text.strip("().").upper()
    if "letter" in kinds and len(letter) == 1 and letter in option_letters:
        return letter
    expectation = " or ".join(_ANSWER_SAID[kind].format(n=len(matching_places)) for kind in kinds if kind != "open")
    raise InvalidInput(f"{location}: answer {value!r} is not {expectation} of {len(options)} options")


_ANSWER_SAID = {"letter": "the letter of one", "index": "the index", "text": "the text of just one"}


def _offset(document: Mapping[str, object], declared: DocumentFields, *, location: str) -> float:
    """The seconds that the subtitles' clock is ahead of the video's; 0.0 if not declared or empty."""
    value = _value(document, declared.subtitles_offset) if declared.subtitles_offset else None
    try:
        return float(value or 0)
    except (TypeError, ValueError):
        raise InvalidInput(f"{location}: {declared.subtitles_offset} must be seconds, got {value!r}") from None


def _number(document: Mapping[str, object], name: str, *, location: str, field_role: str) -> float | None:
    """A declared field as a number above 0; None if undeclared, or if optional ("?") and missing."""
    if not name:
        return None
    value = _value(document, name)
    if value is None and name.endswith("?"):
        return None
    if value is None:
        raise InvalidInput(_missing(document, name, value, location=location, field_role=field_role))
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = 0.0
    if not 0 < number < float("inf"):
        raise InvalidInput(f"{location}: {name} must be seconds above 0, got {value!r}")
    return number


def _bucket(document: Mapping[str, object], declared: DocumentFields, *, location: str) -> str | None:
    """Return the length bucket that the document states; None if it states none.

    Raises InvalidInput for an unknown bucket, or a missing one unless the field is optional ("?").
    """
    value: str | None = _value(document, declared.bucket) if declared.bucket else None
    may_be_missing = not declared.bucket or declared.bucket.endswith("?")
    if value not in BUCKETS and not (value is None and may_be_missing):
        raise InvalidInput(f"{location}: {declared.bucket} must be one of {', '.join(BUCKETS)}, got {value!r}")
    return value


def _evidence(
    document: Mapping[str, object], declared: DocumentFields, *, location: str
) -> tuple[Moments, Intervals, str]:
    """Return moments and intervals of evidence in seconds, and the reason if the stated evidence cannot be read.

    The reason is "" otherwise. Without evidence all three are empty.
    """
    value = _value(document, declared.evidence) if declared.evidence else None
    try:
        return ((), (), "") if value is None else (*evidence_of(value, declared.evidence_unit, location=location), "")
    except InvalidInput as error:
        return (), (), str(error)


def documents_in(rows: Iterable[Mapping[str, object]], shape: FileShape, path: Path) -> Iterator[Mapping[str, object]]:
    """Yield the documents of `rows`, which were read from `path`, one for each question.

    If the second file is missing, documents come without its details.

    Raises:
        InvalidInput: a nested field that is no list of objects; names file and row.
    """
    details_by_key = _beside(shape, path)
    for at, row in enumerate(rows):
        for document in _questions_of(row, shape.nested, location=f"{path}: row {at}"):
            key = str(document.get(shape.beside_by))
            yield {**document, "beside": details_by_key[key]} if key in details_by_key else document


def _questions_of(row: Mapping[str, object], nested: str, *, location: str) -> Iterator[Mapping[str, object]]:
    """Yield `row`, or one document per question in its list field `nested`, with the remaining fields of the row."""
    if not nested or nested not in row:
        yield row
        return
    questions = row[nested]
    if not isinstance(questions, list) or not all(isinstance(question, Mapping) for question in questions):
        raise InvalidInput(f"{location}: {nested} must be a list of questions, got {type(questions).__name__}")
    shared = {name: value for name, value in row.items() if name != nested}
    for question in questions:
        yield {**shared, **question}


def _beside(shape: FileShape, path: Path) -> Mapping[str, object]:
    """Return the details of documents, by key, from the second file of annotation `path`; {} if there is no such file.

    The file may be gzipped.
    """
    if not shape.beside:
        return {}
    stem = path.name.removesuffix(".gz").rpartition(".")[0]
    name = shape.beside.replace("{stem}", stem)
    details_path = next((file for file in (path.with_name(name), path.with_name(f"{name}.gz")) if file.is_file()), None)
    return read_json_object(details_path) if details_path is not None else {}


def distances_text(last: str = ", ") -> str:
    """Return the distances of evidence recall in seconds as text, e.g. "1, 2 or 5" with `last=" or "`."""
    *earlier, end = [f"{seconds:g}" for seconds in RECALL_SECONDS]
    return last.join([", ".join(earlier), end]) if earlier else end


def is_evidence_unit(unit: str) -> bool:
    """Return True if `unit` is one of `EVIDENCE_UNITS`, or "frames@" with another rate above 0."""
    return unit in EVIDENCE_UNITS or bool(re.fullmatch(r"frames@\d+(\.\d+)?", unit) and annotation_fps(unit) > 0)


def annotation_fps(unit: str) -> float:
    """Return the rate of a unit of frames: 24.0 for "frames@24"."""
    return float(unit.removeprefix("frames@"))


def evidence_of(value: object, unit: str, *, location: str) -> tuple[Moments, Intervals]:
    """Return evidence as moments in seconds, and as half-open intervals in seconds; one of the two is empty.

    Args:
        value: the document's value: a number, text, or a list of them; text may also be JSON.
        unit: "seconds" (moments), "frames@RATE" (moments as frame numbers), "intervals" (pairs of seconds), or "clock"
            ("01:23" is a moment, "01:23-01:40" an interval; hours may come first).
        location: benchmark and question, for messages.

    Raises:
        InvalidInput: the value does not have the form of the unit.
    """
    if isinstance(value, str) and unit != "clock":
        try:
            value = json.loads(value)
        except json.JSONDecodeError as error:
            raise InvalidInput(f"{location}: evidence {value!r} is not a list of {unit}") from error
    entries = list(value) if isinstance(value, Sequence) and not isinstance(value, str) else [value]
    if unit == "clock":
        return _from_clock(entries, location=location)
    if unit == "intervals":
        pairs = [entries] if len(entries) == 2 and not any(isinstance(item, Sequence) for item in entries) else entries
        return (), tuple(_interval(pair, location=location) for pair in pairs)
    fps = annotation_fps(unit) if unit.startswith("frames@") else 1.0
    return tuple(_moment(number, location=location) / fps for number in entries), ()


def within_video(moments: Moments, duration_seconds: float) -> Moments:
    """Return the moments, in seconds, without those over `END_SLACK_SECONDS` past the end of the video."""
    return tuple(moment for moment in moments if moment <= duration_seconds + END_SLACK_SECONDS)


def _moment(number: object, *, location: str) -> float:
    """`number` as seconds; raises InvalidInput, naming `location`, unless it is finite and at least 0."""
    if isinstance(number, bool) or not isinstance(number, (int, float)) or not math.isfinite(number) or number < 0:
        raise InvalidInput(f"{location}: evidence {number!r} is not a number of 0 or above")
    return float(number)


def _interval(pair: object, *, location: str) -> tuple[float, float]:
    """`pair` as start and stop in seconds; raises InvalidInput unless it is two moments in order."""
    if not isinstance(pair, Sequence) or isinstance(pair, str) or len(pair) != 2:
        raise InvalidInput(f"{location}: evidence {pair!r} is not a pair of seconds")
    start, stop = (_moment(number, location=location) for number in pair)
    if stop < start:
        raise InvalidInput(f"{location}: the evidence interval {start:g} to {stop:g} ends before it starts")
    return start, stop


def _from_clock(texts: Sequence[object], *, location: str) -> tuple[Moments, Intervals]:
    """Return moments and intervals, one of them empty, from texts such as 01:23 and 01:23-01:40.

    Raises InvalidInput if both kinds occur.
    """
    moments: list[float] = []
    intervals: list[tuple[float, float]] = []
    for text in texts:
        times = [clock_seconds(part, location=location) for part in re.split(r"\s*[-–]\s*", str(text).strip())]
        if len(times) == 1:
            moments += times
        else:
            intervals.append(_interval(times, location=location))
    if moments and intervals:
        raise InvalidInput(f"{location}: evidence mixes moments and intervals: {list(texts)!r}")
    return tuple(moments), tuple(intervals)


def clock_seconds(text: str, *, location: str) -> float:
    """Return the seconds of a time like 01:23, 101:23 or 1:02:03.5. Raises InvalidInput for another text."""
    clock_match = _CLOCK.fullmatch(text.strip())
    if not clock_match:
        raise InvalidInput(f"{location}: {text!r} is not a time like 01:23 or 1:02:03")
    return 3600.0 * int(clock_match[1] or 0) + 60.0 * int(clock_match[2]) + float(clock_match[3])
