"""Formats whose entries name their question: published files of several papers, and a log of lmms-eval as frames.

ToolMerge's `frames_used` are not native frame indices as its README says, but positions on a grid of 2 frames per
second (`frames_used / timestamps_used` is 2 in every row of the published files). Only its times are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from focus_eval.bench.rows.entries import FileEntry, Verdict
from focus_eval.core.errors import SelectionMismatch
from focus_eval.core.types import Question
from focus_eval.external.imports.formats import SelectionFormat, Source, is_list_of_rows
from focus_eval.external.imports.lmms_logs import find_logs
from focus_eval.keyframes.video.verification import SUFFIXES

LETTERS = "ABCDEFGH"
_FRAME_FIELDS = ("keyframe_indices", "selected_frames", "frame_indices", "frame_idx", "keyframes", "frames")
_ID_FIELDS = ("id", "question_id", "qid", "question_idx")


@dataclass(frozen=True, kw_only=True)
class Kfs(SelectionFormat):
    """KFS-Bench's list of results."""

    name: ClassVar[str] = "kfs"
    summary: ClassVar[str] = "rows of `id` and `frame_timestamps` in seconds"
    unit: ClassVar[str] = "seconds"

    def detects(self, source: Source) -> bool:
        """Return True if the file is a list of objects with `id` and `frame_timestamps`."""
        return is_list_of_rows(source.data, "id", "frame_timestamps")

    def read(self, source: Source) -> Iterable[FileEntry]:
        """Yield the selection of each object, times in seconds."""
        for row, values in enumerate(source.records("id", "frame_timestamps")):
            yield from source.selection(
                values["frame_timestamps"], question_id=str(values["id"]), location=f"row {row}"
            )


class QcaFormat(SelectionFormat):
    """QCA's mapping from question id, or video, to frames."""

    name: ClassVar[str] = "qca"
    summary: ClassVar[str] = "by question id (or by video, for all its questions): frames"

    def detects(self, source: Source) -> bool:
        """Return True if the file maps names to lists of numbers."""
        data = source.data
        return _is_mapping_of_lists(data) and not any(isinstance(value[0], Mapping) for value in data.values() if value)

    def read(self, source: Source) -> Iterable[FileEntry]:
        """Yield the selections by question id; a video's frames go to all its questions."""
        if not isinstance(source.data, Mapping):
            raise SelectionMismatch(
                f"{source.path.name}: format 'qca' is a mapping from question id (or video) to frames"
            )
        of_video: dict[str, list[Question]] = {}
        by_id = {question.id: question for question in source.questions or ()}
        for question in source.questions or ():
            of_video.setdefault(_video_stem(question.video), []).append(question)
        for key, values in source.data.items():
            asked_here = [by_id[key]] if key in by_id else of_video.get(_video_stem(key), [])
            pairs = [(question.id, question.video) for question in asked_here] or [(str(key), "")]
            for question_id, video in pairs:
                yield from source.selection(values, question_id=question_id, location=f"key {key!r}", video=video)


class BoltFormat(SelectionFormat):
    """BOLT's mapping from video to its questions."""

    name: ClassVar[str] = "bolt"
    summary: ClassVar[str] = "by video: a list of {question_id, question, frames}, frames in seconds"
    unit: ClassVar[str] = "seconds"

    def detects(self, source: Source) -> bool:
        """Return True if the file maps videos to lists of objects."""
        data = source.data
        return _is_mapping_of_lists(data) and any(isinstance(value[0], Mapping) for value in data.values() if value)

    def read(self, source: Source) -> Iterable[FileEntry]:
        """Yield the selection of each entry, times in seconds.

        If no question has the entry's id, find the question by video and text. Raises SelectionMismatch if an entry has
        another form.
        """
        if not isinstance(source.data, Mapping):
            raise SelectionMismatch(f"{source.path.name}: format 'bolt' is a mapping from video to its questions")
        by_text = {
            (_video_stem(question.video), question.query.strip()): question.id for question in source.questions or ()
        }
        known_ids = {question.id for question in source.questions or ()}
        for video, entries in source.data.items():
            for number, entry in enumerate(entries if isinstance(entries, list) else [None]):
                location = f"video {video!r}, entry {number}"
                if not isinstance(entry, Mapping) or "frames" not in entry or "question_id" not in entry:
                    raise SelectionMismatch(f"{source.path.name}: {location}: needs `question_id` and `frames`")
                question_id = str(entry["question_id"])
                if question_id not in known_ids:
                    # MLVU has no question ids, so BOLT writes the video's name as the id. Find the question by video
                    # and text instead.
                    question_id = by_text.get((_video_stem(video), str(entry.get("question", "")).strip()), question_id)
                yield from source.selection(
                    entry["frames"], question_id=question_id, location=location, video=str(video)
                )


@dataclass(frozen=True, kw_only=True)
class Wfs(SelectionFormat):
    """WFS-SB's copy of the annotation.

    Args:
        field: name of the field that holds the frames; None takes the first of the usual names that the file has.
    """

    name: ClassVar[str] = "wfs"
    summary: ClassVar[str] = "the rows of the annotation with a field of frames (option `field`)"
    is_general: ClassVar[bool] = True

    field: str | None = None

    def detects(self, source: Source) -> bool:
        """Return True if the file is a list of objects."""
        return is_list_of_rows(source.data)

    def read(self, source: Source) -> Iterable[FileEntry]:
        """Yield the selection of each row, from `field` or the first usual field that the file has."""
        rows = source.records()
        frames_field = self.field or _first_field(rows, _FRAME_FIELDS, source.path, "frames")
        id_field = _first_field(rows, _ID_FIELDS, source.path, "an id")
        for row, values in enumerate(source.records(frames_field, id_field)):
            video = str(values.get("video_path") or values.get("video_name") or values.get("videoID") or "")
            yield from source.selection(
                values[frames_field], question_id=str(values[id_field]), location=f"row {row}", video=video
            )


@dataclass(frozen=True, kw_only=True)
class Answers(SelectionFormat):
    """A list of rows, each with the model's answer; the options name the fields.

    Args:
        id: the question's id in the annotation.
        times, frames: keyframes in seconds, or as frame indices of the video file; name one of the two.
        answer: the option letter that the model gave; null if it gave none.
        correct_answer, correct: the right letter, and whether the answer is right; "" if the file has none.
    """

    name: ClassVar[str] = "answers"
    # Never detected, must be named: an annotation also has a field `answer`, with the correct letter.
    summary: ClassVar[str] = "rows of id, times or frames, and the model's answer, in fields that the options name"

    id: str = "id"
    times: str = "times"
    frames: str = "frames"
    answer: str = "answer"
    correct_answer: str = ""
    correct: str = ""

    def read(self, source: Source) -> Iterable[FileEntry]:
        """Yield the selections and answers of a list of rows.

        Raises:
            SelectionMismatch: a row without id, keyframes or answer, or whose verdict contradicts its letters.
        """
        required_fields = filter(None, (self.id, self.answer, self.correct_answer, self.correct))
        for at, row in enumerate(source.records(*required_fields)):
            keyframes = next((name for name in (self.times, self.frames) if name and name in row), None)
            if keyframes is None:
                names = " or ".join(filter(None, (self.times, self.frames)))
                raise SelectionMismatch(
                    f"{source.path.name}: row {at} lacks {names}; it has: {', '.join(map(str, row))}"
                )
            question_id = str(row[self.id])
            answered = _answer(row, self, location=f"{source.path.name}: row {at} ({question_id})")
            unit = "seconds" if keyframes == self.times else "frames"
            yield from source.selection(
                row[keyframes], question_id=question_id, location=f"row {at}", unit=unit, verdict=answered
            )


@dataclass(frozen=True, kw_only=True)
class ToolMerge(Answers):
    """ToolMerge's rows."""

    name: ClassVar[str] = "toolmerge"
    summary: ClassVar[str] = "rows of `uid`, `timestamps_used`, and the model's `answer`"
    unit: ClassVar[str] = "seconds"

    id: str = "uid"
    times: str = "timestamps_used"
    frames: str = ""
    correct_answer: str = "ground_truth"
    correct: str = "correct"

    def detects(self, source: Source) -> bool:
        """Return True if the file is a list of objects with `uid` and `timestamps_used`."""
        return is_list_of_rows(source.data, "uid", "timestamps_used")

    def read(self, source: Source) -> Iterable[FileEntry]:
        """Yield the selections with their answers; raise SelectionMismatch if the caller sets the unit to "frames"."""
        if source.unit != "seconds":
            raise SelectionMismatch(
                f"{source.path.name}: ToolMerge's frames_used count on a grid of 2 frames per second, not in the file; "
                "its times are read (unit: seconds)"
            )
        yield from super().read(source)


@dataclass(frozen=True, kw_only=True)
class Lmms(SelectionFormat):
    """One log of lmms-eval, of which only the frames are read; `focus-eval import lmms` also reads its answers.

    Args:
        frames_field: field of the document with the frames that were fed. There is no default, because a log may have
            several
            fields of frames.
        id_field: field with the question's id in the annotation.
        run: name of the run, if the file holds several.
    """

    name: ClassVar[str] = "lmms"
    # Never detected, since the caller must name the field of frames.
    summary: ClassVar[str] = "a log of lmms-eval (options `frames_field`, `id_field`, `run`)"

    frames_field: str = ""
    id_field: str = "id"
    run: str = ""

    def read(self, source: Source) -> Iterable[FileEntry]:
        """Yield the frames of every line of the one log; a line without frames counts as an empty selection.

        Raises SelectionMismatch if there are several logs or no field of frames is named.
        """
        logs = [log for log in find_logs(source.path) if self.run in ("", log.run)]
        if len(logs) != 1:
            raise SelectionMismatch(f"{source.path}: holds {len(logs)} logs, name the file of one (or its `run`)")
        if not self.frames_field:
            raise SelectionMismatch(f"{source.path}: name the field of the frames that were fed (frames_field)")
        for record in logs[0].records():
            question_id = record.value(self.id_field)
            if question_id is None:
                raise SelectionMismatch(
                    f"{record.location}: no field {self.id_field!r} with the question's id (id_field)"
                )
            frames = record.frames(self.frames_field, unit=source.unit)
            yield from source.selection(
                sorted(frames or ()), question_id=str(question_id), location=f"line {record.line}"
            )


def _is_mapping_of_lists(data: object) -> bool:
    """True if `data` is a mapping of names to lists, or to null where there are no frames."""
    if not isinstance(data, Mapping) or not any(isinstance(value, list) for value in data.values()):
        return False
    return all(value is None or isinstance(value, list) for value in data.values())


def _video_stem(video: str) -> str:
    """The file name of `video` without folder and the suffix of a video."""
    # Video names may contain dots: strip known suffixes only.
    path = Path(str(video))
    return path.stem if path.suffix.lower() in SUFFIXES else path.name


def _first_field(rows: Sequence[Mapping[str, object]], names: Sequence[str], path: Path, field_role: str) -> str:
    """The first of `names` that the first row has; raises SelectionMismatch, naming `field_role`, if none."""
    for name in names:
        if rows and name in rows[0]:
            return name
    have = ", ".join(sorted(rows[0])) if rows else "no rows"
    raise SelectionMismatch(f"{path.name}: row 0 has no field of {field_role} among {', '.join(names)}; has: {have}")


def _answer(row: Mapping[str, Any], shape: Answers, *, location: str) -> Verdict:
    """Return the answer in `row`, whose field names `shape` gives.

    Raises SelectionMismatch if the answer is neither a letter A to H nor null, or if the verdict contradicts the
    letters.
    """
    letter = row[shape.answer]
    if letter is not None and (not isinstance(letter, str) or len(letter) != 1 or letter not in LETTERS):
        raise SelectionMismatch(f"{location}: answer {letter!r} is not an option letter A to H or null; write it alone")
    right = row[shape.correct_answer] if shape.correct_answer else None
    is_right = row[shape.correct] if shape.correct else None
    if is_right is not None and not isinstance(is_right, bool):
        raise SelectionMismatch(f"{location}: {shape.correct} is {is_right!r}, not true or false")
    if is_right is not None and right is not None and is_right != (letter == right):
        raise SelectionMismatch(
            f"{location}: says {shape.correct} = {is_right}, but {letter} was answered and {right} is right"
        )
    return Verdict(score=None if is_right is None else float(is_right), predicted=letter, right=right)
