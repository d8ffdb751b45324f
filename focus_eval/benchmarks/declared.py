"""Turns the documents of any lmms-eval video task into questions, from field names declared in YAML."""

from __future__ import annotations

import json
import math
import re
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, get_args

from focus_eval.benchmarks.question import BUCKETS, LengthEdges, Question
from focus_eval.core.errors import InvalidInput, unknown_name

LETTERS = string.ascii_uppercase


def letters(n_options: int) -> str:
    """Return the letters of `n_options` options, from A on."""
    return LETTERS[:n_options]


def text_field(document: Mapping[str, Any], name: str, *, benchmark: str) -> str:
    """Return the non-empty text of field `name`, or a number as text.

    Raises:
        InvalidInput: the field is missing, empty or of another kind; names benchmark, field and the document's fields.
    """
    value = document.get(name)
    if isinstance(value, bool) or not isinstance(value, (str, int)) or not str(value).strip():
        raise InvalidInput(
            f"{benchmark}: a document needs the field {name!r} with text, got {value!r}; "
            f"its fields: {', '.join(map(str, document))}"
        )
    return str(value)


def seconds_field(document: Mapping[str, Any], name: str, *, benchmark: str) -> float | None:
    """Return field `name` as seconds above 0, or None where the document has no such field.

    Raises:
        InvalidInput: a value that is not a number above 0.
    """
    value = document.get(name)
    if value is None:
        return None
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise InvalidInput(f"{benchmark}: {name} must be seconds above 0, got {value!r}")
    return seconds


def option_letter(index: int, options: Sequence[str], *, where: str) -> str:
    """Return the letter of option `index`.

    Raises:
        InvalidInput: no such option; the message starts with `where`.
    """
    if not 0 <= index < len(options):
        raise InvalidInput(f"{where}: answer {index} of {len(options)} options")
    return LETTERS[index]


def without_letter(option: str, index: int) -> str:
    """Return option text without its own letter ("B. Candles." at 1 gives "Candles.")."""
    text = option.strip()
    letter = LETTERS[index]
    for mark in (f"{letter}.", f"({letter})", f"{letter})", f"{letter}:"):
        if text.startswith(mark):
            return text[len(mark) :].strip()
    return text


# "frames@24" are frame numbers at 24 frames a second, whatever the file's rate; any other rate may stand there.
EVIDENCE_UNITS = ("seconds", "frames@24", "intervals", "clock")
Moments = tuple[float, ...]
Intervals = tuple[tuple[float, float], ...]
_CLOCK = re.compile(r"(?:(\d+):)?(\d{1,2}):(\d{1,2}(?:\.\d+)?)")


def is_evidence_unit(unit: str) -> bool:
    """Return whether `unit` is one of `EVIDENCE_UNITS`, or "frames@" with another rate above 0."""
    return unit in EVIDENCE_UNITS or bool(re.fullmatch(r"frames@\d+(\.\d+)?", unit) and float(unit[7:]) > 0)


def evidence_of(value: Any, unit: str, *, where: str) -> tuple[Moments, Intervals]:
    """Return evidence as moments in seconds, and as half-open intervals in seconds; one of the two is empty.

    Args:
        value: what the document holds: a number, text, or a list of them; text may also be JSON.
        unit: "seconds" (moments), "frames@RATE" (moments as frame numbers), "intervals" (pairs of seconds), or "clock"
            ("01:23" is a moment, "01:23-01:40" an interval; hours may stand before).
        where: benchmark and question, for messages.

    Raises:
        InvalidInput: a value that the unit does not describe.
    """
    if isinstance(value, str) and unit != "clock":
        try:
            value = json.loads(value)
        except json.JSONDecodeError as error:
            raise InvalidInput(f"{where}: evidence {value!r} is not a list of {unit}") from error
    given = list(value) if isinstance(value, Sequence) and not isinstance(value, str) else [value]
    if unit == "clock":
        return _from_clock(given, where=where)
    if unit == "intervals":
        pairs = [given] if len(given) == 2 and not any(isinstance(item, Sequence) for item in given) else given
        return (), tuple(_interval(pair, where=where) for pair in pairs)
    scale = 1.0 / float(unit.partition("@")[2]) if unit.startswith("frames@") else 1.0
    return tuple(_moment(number, where=where) * scale for number in given), ()


def _moment(number: Any, *, where: str) -> float:
    if isinstance(number, bool) or not isinstance(number, (int, float)) or not math.isfinite(number) or number < 0:
        raise InvalidInput(f"{where}: evidence {number!r} is not a number of 0 or above")
    return float(number)


def _interval(pair: Any, *, where: str) -> tuple[float, float]:
    if not isinstance(pair, Sequence) or isinstance(pair, str) or len(pair) != 2:
        raise InvalidInput(f"{where}: evidence {pair!r} is not a pair of seconds")
    start, stop = (_moment(number, where=where) for number in pair)
    if stop < start:
        raise InvalidInput(f"{where}: the evidence interval {start:g} to {stop:g} ends before it starts")
    return start, stop


def _from_clock(texts: Sequence[Any], *, where: str) -> tuple[Moments, Intervals]:
    moments: list[float] = []
    intervals: list[tuple[float, float]] = []
    for text in texts:
        times = [_clock_seconds(part, where=where) for part in re.split(r"\s*[-–]\s*", str(text).strip())]
        if len(times) == 1:
            moments += times
        else:
            intervals.append(_interval(times, where=where))
    if moments and intervals:
        raise InvalidInput(f"{where}: evidence mixes moments and intervals: {list(texts)!r}")
    return tuple(moments), tuple(intervals)


def _clock_seconds(text: str, *, where: str) -> float:
    found = _CLOCK.fullmatch(text.strip())
    if not found:
        raise InvalidInput(f"{where}: evidence {text!r} is not a time like 01:23 or 1:02:03")
    return 3600.0 * int(found[1] or 0) + 60.0 * int(found[2]) + float(found[3])


AnswerIs = Literal["letter", "index", "text", "open"]
# A line of options inside a text: "A. ...", "(A) ...", "A) ...", "A: ...".
_OPTION_LINE = re.compile(r"^\s*\(?([A-Z])(?:\)|[.:])\s*(.+?)\s*$", re.MULTILINE)
_NO_OPTION = ("", "N/A")


@dataclass(frozen=True, kw_only=True)
class DocumentFields:
    """Which field of a document holds what.

    A name may list alternatives, `uid|key`: the first that the document has. A name with braces is a template over
    fields, `{video_id}.mp4`.

    Args:
        question: the question's text.
        id: what is unique in the benchmark.
        video: the file, relative to the benchmark's video folder.
        answer: the right answer; "" where the split hides it.
        options: the option texts: a list, a mapping of letters to texts, or one text with a line per option; or a
            list of fields with one option each; "" where there are none.
        options_in_question: True where the question's own text ends with a line per option.
        answer_is: what `answer` holds: a "letter", a 0-based "index", the "text" of an option, or "open" (no option).
        duration: seconds.
        bucket: "short", "medium" or "long".
        evidence: annotated moments or intervals, in `evidence_unit`.
        evidence_unit: one of `focus_eval.benchmarks.declared.EVIDENCE_UNITS`.
        category: the type of question.
    """

    question: str = "question"
    id: str = "id"
    video: str = "video"
    answer: str = "answer"
    options: str | tuple[str, ...] = ""
    options_in_question: bool = False
    answer_is: AnswerIs = "letter"
    duration: str = ""
    bucket: str = ""
    evidence: str = ""
    evidence_unit: str = "seconds"
    category: str = ""

    def __post_init__(self) -> None:
        if self.answer_is not in get_args(AnswerIs):
            raise unknown_name("answer_is", self.answer_is, get_args(AnswerIs))
        if self.evidence and not is_evidence_unit(self.evidence_unit):
            raise unknown_name("evidence_unit", self.evidence_unit, EVIDENCE_UNITS)
        for name in ("question", "id", "video"):
            if not getattr(self, name):
                raise InvalidInput(f"fields: {name} needs the name of a field")


def fields_from(given: Mapping[str, Any], *, where: str) -> DocumentFields:
    """Return the fields that a YAML file declares.

    Raises:
        UnknownName: a key that is not one of `DocumentFields`; the message has the nearest name.
        InvalidInput: a value of another kind.
    """
    known = [declared.name for declared in fields(DocumentFields)]
    values: dict[str, Any] = {}
    for name, value in given.items():
        if name not in known:
            raise unknown_name(f"{where}: field", str(name), known)
        if isinstance(value, list) and name == "options":
            value = tuple(map(str, value))
        wanted = bool if name == "options_in_question" else (str, tuple) if name == "options" else str
        if not isinstance(value, wanted):
            raise InvalidInput(f"{where}: fields: {name} must be {'true or false' if wanted is bool else 'text'}")
        values[name] = value
    return DocumentFields(**values)


@dataclass(frozen=True)
class DeclaredBenchmark:
    """A benchmark whose documents are read by field name.

    Args:
        name: as in matrices and rows.
        tasks: lmms-eval tasks whose documents these are.
        fields: which field holds what.
        edges: bounds of the length buckets.
        video_folders: task -> folder of its videos below `$HF_HOME`.
    """

    name: str
    tasks: tuple[str, ...]
    fields: DocumentFields
    edges: LengthEdges = field(default_factory=LengthEdges)
    video_folders: Mapping[str, str] = field(default_factory=dict)

    def question(self, document: Mapping[str, Any]) -> Question:
        """Return the question of one document.

        Raises:
            InvalidInput: a field that is missing or not as declared; names benchmark, question and field.
        """
        declared = self.fields
        question_id = _text(document, declared.id, where=self.name, what="id")
        where = f"{self.name} {question_id}"
        query = _text(document, declared.question, where=where, what="question").strip()
        options = _options(document, declared)
        if declared.options_in_question:
            query, options = _split_question(query)
        moments, intervals = _evidence(document, declared, where=where)
        return Question(
            benchmark=self.name,
            id=question_id,
            query=query,
            options=options,
            video=_text(document, declared.video, where=where, what="video"),
            answer=_answer(document, declared, options, where=where),
            duration_seconds=_duration(document, declared, where=where),
            bucket=_bucket(document, declared, where=where),
            evidence_seconds=moments,
            evidence_intervals=intervals,
            category=_category(document, declared),
        )

    def bucket(self, duration_seconds: float) -> str:
        """Return the length bucket of a video of that length."""
        return self.edges.bucket(duration_seconds)


def _value(document: Mapping[str, Any], name: str) -> Any:
    """Return what field or template `name` gives; None where the document has no such field."""
    if "{" in name:
        parts = set(re.findall(r"\{([^{}]+)\}", name))
        if any(document.get(part) is None for part in parts):
            return None
        return re.sub(r"\{([^{}]+)\}", lambda found: str(document[found[1]]), name)
    for alternative in name.split("|"):
        if document.get(alternative) is not None:
            return document[alternative]
    return None


def _text(document: Mapping[str, Any], name: str, *, where: str, what: str) -> str:
    value = _value(document, name)
    if isinstance(value, bool) or not isinstance(value, (str, int)) or not str(value).strip():
        raise InvalidInput(
            f"{where}: {what} is declared as field {name!r}, which holds {value!r}; "
            f"fields of the document: {', '.join(map(str, document))}"
        )
    return str(value)


def _options(document: Mapping[str, Any], declared: DocumentFields) -> tuple[str, ...]:
    if isinstance(declared.options, tuple):
        given: Any = [document.get(name) for name in declared.options]
    else:
        given = _value(document, declared.options) if declared.options else None
    if given is None:
        return ()
    if isinstance(given, Mapping):
        texts: Sequence[Any] = [given[letter] for letter in sorted(given) if given[letter] is not None]
    elif isinstance(given, str):
        texts = [text for _, text in _OPTION_LINE.findall(given)] or given.splitlines()
    else:
        texts = list(given)
    kept = [str(text) for text in texts if text is not None and str(text).strip() not in _NO_OPTION]
    return tuple(without_letter(text, at) for at, text in enumerate(kept))


def _split_question(text: str) -> tuple[str, tuple[str, ...]]:
    """Return the question and its options from one text that holds both; no options where none are lettered A, B, .."""
    found = list(_OPTION_LINE.finditer(text))
    wanted = letters(len(found))
    if len(found) < 2 or [line[1] for line in found] != list(wanted):
        return text, ()
    return text[: found[0].start()].strip(), tuple(line[2] for line in found)


def _answer(
    document: Mapping[str, Any], declared: DocumentFields, options: tuple[str, ...], *, where: str
) -> str | None:
    value = _value(document, declared.answer) if declared.answer else None
    if value is None:
        return None
    if declared.answer_is == "open" or not options:
        return str(value)
    text = str(value).strip()
    if declared.answer_is == "index":
        if not text.isdecimal():
            raise InvalidInput(f"{where}: answer {value!r} is not the index of an option")
        return option_letter(int(text), options, where=where)
    if declared.answer_is == "text":
        same = [at for at, option in enumerate(options) if option.strip() == without_letter(text, at).strip()]
        if len(same) != 1:
            raise InvalidInput(f"{where}: answer {value!r} is the text of {len(same)} options")
        return option_letter(same[0], options, where=where)
    letter = text.strip("().").upper()
    if letter not in letters(len(options)):
        raise InvalidInput(f"{where}: answer {value!r} is not the letter of one of {len(options)} options")
    return letter


def _duration(document: Mapping[str, Any], declared: DocumentFields, *, where: str) -> float | None:
    if not declared.duration:
        return None
    return seconds_field({declared.duration: _value(document, declared.duration)}, declared.duration, benchmark=where)


def _bucket(document: Mapping[str, Any], declared: DocumentFields, *, where: str) -> str | None:
    value = _value(document, declared.bucket) if declared.bucket else None
    if value is not None and value not in BUCKETS:
        raise InvalidInput(f"{where}: {declared.bucket} must be one of {', '.join(BUCKETS)}, got {value!r}")
    return value


def _evidence(
    document: Mapping[str, Any], declared: DocumentFields, *, where: str
) -> tuple[tuple[float, ...], tuple[tuple[float, float], ...]]:
    value = _value(document, declared.evidence) if declared.evidence else None
    return ((), ()) if value is None else evidence_of(value, declared.evidence_unit, where=where)


def _category(document: Mapping[str, Any], declared: DocumentFields) -> str:
    value = _value(document, declared.category) if declared.category else None
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value))
    return "" if value is None else str(value)
