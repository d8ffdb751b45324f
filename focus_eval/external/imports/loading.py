"""Reads a file of selections in any known format, checks it against the benchmark's questions, and makes its rows.

selections = load_selections("selected_frames.json", format="aks", questions=questions)
rows = selection_rows(selections, questions, rates, name="AKS")
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from focus_eval.bench.benchmarks.registry import BENCHMARKS, VideoRate, make_benchmark
from focus_eval.bench.rows.entries import FileEntry
from focus_eval.bench.rows.packed import run_folder
from focus_eval.core.errors import InvalidInput, SelectionMismatch, unknown_name
from focus_eval.core.gaps import halve_widest_gaps
from focus_eval.core.options import named_options
from focus_eval.core.types import Question, VideoInfo
from focus_eval.external.imports.formats import FORMATS, Source, make_format
from focus_eval.keyframes.rows.identity import identity_hash, unnamed_video
from focus_eval.keyframes.rows.records import (
    AnswerRow,
    CellNames,
    KnownSelection,
    Origin,
    SelectionRow,
    answer_row,
    selection_row,
)

UNITS = ("frames", "seconds")
FILLS = ("even", "none")
# Selections in seconds are filled on a grid of this many positions per second.
TIMES_PER_SECOND = 1000.0
# In LongVideoBench the annotated length and that of the video file differ by up to a second.
SLACK_SECONDS = 1.0
# With fewer frames in the file, all may be smaller than their video's length in seconds by chance.
_MIN_FRAMES_TO_JUDGE = 16


class Entries(dict[str, FileEntry]):
    """Selections of a file by question id.

    Attributes:
        left_out: a sentence for each row without a known question, and for each selection that lost frames past the end
            of its video.
    """

    def __init__(self, entries: Mapping[str, FileEntry], left_out: Sequence[str] = ()) -> None:
        super().__init__(entries)
        self.left_out = tuple(left_out)


def load_selections(
    path: str | Path,
    *,
    format: str = "auto",
    questions: Sequence[Question] | None = None,
    unit: str | None = None,
    fps: Mapping[str, float] | None = None,
    allow_missing: bool = False,
    allow_outside: bool = False,
    options: Mapping[str, object] | None = None,
) -> Entries:
    """Return the entries of a file by question id, in the file's order.

    Args:
        path: a file, a run's folder or a packed run.
        format: a registered name, with options or without ("wfs:field=chosen", "aks:unit=seconds"); "auto" detects it.
        questions: the benchmark's questions in the order of its annotation. Required for `aks` and `focus`, whose files
            have no ids; files of other formats are checked against them.
        unit: "frames" or "seconds"; None takes the format's usual unit.
        fps: frame rate by question id; detects frame numbers past the end without opening a video.
        allow_missing: leave out questions without frames instead of refusing the file.
        allow_outside: leave out frames past the end of their video and rows without a known question, and describe them
            in
            `Entries.left_out`, instead of refusing the file.
        options: options of the format: `field` (wfs), `sampler` (rows), the names of the fields (answers). Every format
            has `unit`, and `fill=even`: selections with fewer different frames than the most frequent K get further
            frames in the middle of their widest gaps.

    Raises:
        SelectionMismatch: a file that does not fit; names the row at fault.
        UnknownName: an unknown format, option or unit.
        InvalidInput: a file that is missing or cannot be read.
    """
    name, format_options = named_options(format, options or {})
    unit = _choice("unit", format_options.pop("unit", unit), UNITS)
    fill = _choice("fill", format_options.pop("fill", None), FILLS)
    if fill and questions is None:
        raise InvalidInput(f"{path}: fill={fill} needs the lengths of the videos; give the questions (--annotations)")
    source = Source(path=run_folder(Path(path)), questions=questions, allow_missing=allow_missing)
    reader = make_format(_detect(source) if name == "auto" else name, **format_options)
    source = replace(source, format=reader.name, unit=unit or reader.unit)
    entries = _by_id(reader.read(source), source.path)
    if questions is None:
        return entries
    entries = _fitted(entries, questions, source.path, allow_missing=allow_missing, allow_outside=allow_outside)
    if source.unit == "frames":
        _check_unit_plausible(entries, questions)
    entries = _within_videos(entries, questions, fps or {}, allow_outside=allow_outside)
    return _filled(entries, questions, fps or {}) if fill == "even" else entries


def _choice(option: str, value: object, choices: Sequence[str]) -> str | None:
    """`value` if it is None or one of `choices`; raises UnknownName otherwise."""
    if value is None or (isinstance(value, str) and value in choices):
        return value
    raise unknown_name(option, str(value), choices)


def selections_hash(entries: Mapping[str, FileEntry]) -> str:
    """Return a hash of 16 hexadecimal digits of everything that a replay uses: ids, frames, times, scales."""
    content = [
        [key, row.keyframes, row.times_seconds if row.keyframes is None else None, row.scales]
        for key, (row, *_) in sorted(entries.items())
    ]
    return hashlib.sha256(json.dumps(content, separators=(",", ":")).encode()).hexdigest()[:16]


def rows_of_selections(
    entries: Mapping[str, FileEntry],
    questions: Sequence[Question] | None,
    rates: Mapping[str, VideoRate],
    *,
    name: str,
    model: str = "",
) -> tuple[list[SelectionRow], list[AnswerRow]]:
    """Return the rows of `selection_rows`, and an answer row for each answer in the file.

    Args:
        model: the model that answered; required if the file has answers.

    Raises:
        InvalidInput: answers without a model, or as `selection_rows`.
        SelectionMismatch: the file's right answer is not the annotation's.
    """
    if not model and any(entry.verdict is not None for entry in entries.values()):
        raise InvalidInput(f"{name}: the file has answers but does not name the model; give --model")
    rows = selection_rows(entries, questions, rates, name=name)
    by_id = {question.id: question for question in questions or ()}
    answers = [
        _answer_row(entry, by_id.get(row.question_id) or _unknown_question(entry.selection), row, model=model)
        for entry, row in zip(entries.values(), rows, strict=True)
        if entry.verdict is not None
    ]
    return rows, answers


def selection_rows(
    entries: Mapping[str, FileEntry],
    questions: Sequence[Question] | None,
    rates: Mapping[str, VideoRate],
    *,
    name: str,
) -> list[SelectionRow]:
    """Return a selection row per question, in the order of `entries`.

    Times stay as published; if a file states times, a keyframe is the frame nearest to it at the stated rate. The
    selection's cost is unknown: no pulls, no seconds.

    Args:
        questions: questions of the benchmark; None if only the ids in the file are known.
        rates: length and rate by question id. Without its rate, a selection has only the frames or only the times that
            the file states.
        name: name of the selection, which becomes the `sampler` of the rows.

    Raises:
        InvalidInput: `rates` is not empty but lacks a selection of frame indices.
    """
    k = max(entry.selection.k for entry in entries.values())
    selection_id = identity_hash({"published": selections_hash(entries), "name": name, "k": k})
    origin = Origin(selection_id=selection_id, sampler=name, k=k)
    by_id = {question.id: question for question in questions or ()}
    rows = []
    for question_id, entry in entries.items():
        if rates and question_id not in rates and entry.selection.keyframes is not None:
            raise InvalidInput(f"{name}: no rate for question {question_id!r}; add it to the CSV of --rates")
        question = by_id.get(question_id) or _unknown_question(entry.selection)
        rows.append(_selection_row(entry, question, rates.get(question_id), origin))
    return rows


def write_selections(
    entries: Mapping[str, FileEntry], path: Path, *, format: str, questions: Sequence[Question]
) -> list[Path]:
    """Write the selections in the order of `questions` and return the files written.

    Raises:
        UnknownName: no such format that can be written.
        SelectionMismatch: a question without a selection, or a selection that the format cannot hold.
    """
    written = [name for name in FORMATS.names() if FORMATS.fact(name, "is_written", False)]
    if format not in written:
        raise unknown_name("export format", format, written)
    return make_format(format).write(entries, path, questions=questions)


def _detect(source: Source) -> str:
    """Return the name of the one format that `source` looks like; raise SelectionMismatch for none or several.

    Formats marked `is_general` are tried last.
    """
    for is_general in (False, True):
        candidates = [name for name in FORMATS.names() if bool(FORMATS.fact(name, "is_general", False)) == is_general]
        matching = [name for name in candidates if make_format(name).detects(source)]
        if len(matching) > 1:
            raise SelectionMismatch(f"{source.path}: looks like {' and '.join(matching)}; name its format")
        if matching:
            return matching[0]
    known_formats = ", ".join(FORMATS.names())
    raise SelectionMismatch(
        f"{source.path}: not a known kind of selection file; if its format is one of these, name it: {known_formats}"
    )


def _by_id(entries: Iterable[FileEntry], path: Path) -> Entries:
    """The entries by question id; raises SelectionMismatch for a repeated question or an empty file."""
    by_id: dict[str, FileEntry] = {}
    for entry in entries:
        question_id = entry.selection.question_id
        if question_id in by_id:
            first = by_id[question_id].location
            raise SelectionMismatch(f"{entry.location}: question {question_id!r} appears twice; first in {first}")
        by_id[question_id] = entry
    if not by_id:
        raise SelectionMismatch(f"{path}: no selections in this file")
    return Entries(by_id)


def _fitted(
    entries: Entries, questions: Sequence[Question], path: Path, *, allow_missing: bool, allow_outside: bool
) -> Entries:
    """Return the entries of known questions, with benchmark and video filled in from the question.

    Raises SelectionMismatch for an entry of another benchmark, for an entry of an unknown question (left out with
    `allow_outside`) and for a question without an entry (permitted with `allow_missing`).
    """
    question_by_id = {question.id: question for question in questions}
    foreign = [
        f"{entry.location}: {key!r} is not a question of this benchmark ({len(question_by_id)} questions)"
        for key, entry in entries.items()
        if key not in question_by_id
    ]
    if foreign and (not allow_outside or len(foreign) == len(entries)):
        raise SelectionMismatch(foreign[0])
    missing = [question.id for question in questions if question.id not in entries]
    if missing and not allow_missing:
        raise SelectionMismatch(
            f"{path.name}: {len(entries)} selections for {len(question_by_id)} questions, the first without is "
            f"{missing[0]!r} (--allow-missing leaves them out)"
        )
    known_entries = {}
    for key, entry in entries.items():
        if (question := question_by_id.get(key)) is None:
            continue
        if entry.selection.benchmark not in ("", question.benchmark):
            raise SelectionMismatch(
                f"{entry.location}: a selection for {entry.selection.benchmark}, the question is of "
                f"{question.benchmark}"
            )
        known_entries[key] = _changed(entry, benchmark=question.benchmark, video=question.video)
    return Entries(known_entries, [f"{problem}; left out" for problem in foreign])


def _changed(entry: FileEntry, **fields: Any) -> FileEntry:
    """The entry with other values for these fields of its row."""
    return entry._replace(selection=replace(entry.selection, **fields))


def _check_unit_plausible(entries: Entries, questions: Sequence[Question]) -> None:
    """Raise SelectionMismatch if no frame number exceeds its video's length in seconds: they are probably seconds.

    The message names the first row and its length. Files of few frames are not checked.
    """
    seconds = {question.id: question.duration_seconds for question in questions}
    judged = [
        (entry, entry.selection.keyframes, length)
        for key, entry in entries.items()
        if entry.selection.keyframes and (length := seconds.get(key)) is not None
    ]
    if sum(len(frames) for _, frames, _ in judged) < _MIN_FRAMES_TO_JUDGE:
        return
    if all(frames[-1] <= length + SLACK_SECONDS for _, frames, length in judged):
        entry, frames, length = judged[0]
        raise SelectionMismatch(
            f"{entry.place}: no frame of this file is past its video's length in "
            f"seconds (here: {frames[-1]} of {length:g} s); these are seconds (unit: seconds)"
        )


def _within_videos(
    entries: Entries, questions: Sequence[Question], fps: Mapping[str, float], *, allow_outside: bool
) -> Entries:
    """Return the entries after checking that none goes more than a second past its video's annotated end.

    Args:
        fps: rate by question id, for entries without their own; without rate or length, frames are not checked.
        allow_outside: leave out frames past the end, and entries that have no other frame.

    Raises:
        SelectionMismatch: a frame past the end that is not left out; names the row.
    """
    seconds = {question.id: question.duration_seconds for question in questions}
    checked: dict[str, FileEntry] = {}
    left_out = [*entries.left_out]
    for key, entry in entries.items():
        length, rate = seconds.get(key), entry.selection.fps or fps.get(key)
        is_known = length is not None and (entry.selection.keyframes is None or rate is not None)
        times = entry.times_at(rate) if is_known else []
        if length is None or not times or times[-1] <= length + SLACK_SECONDS:
            checked[key] = entry
            continue
        last, hint = f"{times[-1]:g} s", "are these frames? (unit: frames)"
        if entry.selection.keyframes is not None:
            last, hint = f"frame {entry.selection.keyframes[-1]} ({times[-1]:.1f} s)", "past the end"
        problem = f"{entry.place}: {last} asked, the video has {length:g} s; {hint}"
        if not allow_outside:
            raise SelectionMismatch(f"{problem} (--allow-outside leaves it out)")
        inside = sum(time <= length + SLACK_SECONDS for time in times)
        left_out.append(f"{problem}; {len(times) - inside} of {len(times)} frames left out")
        if inside:
            lists = {name: getattr(entry.selection, name) for name in ("keyframes", "times_seconds", "scales")}
            cut = {name: values[:inside] for name, values in lists.items() if values is not None}
            checked[key] = _changed(entry, **cut)
    return Entries(checked, left_out)


def _filled(entries: Entries, questions: Sequence[Question], fps: Mapping[str, float]) -> Entries:
    """Return the entries; those with fewer distinct frames than the usual K are filled up in their widest gaps.

    The row's fact "filled" holds the number of added frames.

    Raises:
        InvalidInput: a selection must be filled, but the length of its video is unknown, or the file states frame
            numbers and the frame rate is unknown.
        SelectionMismatch: a selection to fill has answers, which the model gave without the added frames.
    """
    seconds = {question.id: question.duration_seconds for question in questions}
    counts = Counter(entry.selection.k for entry in entries.values())
    k = max(counts, key=lambda n: (counts[n], n))
    filled: dict[str, FileEntry] = {}
    for key, entry in entries.items():
        frames, times, length = entry.selection.keyframes, entry.selection.times_seconds or [], seconds.get(key)
        rate = TIMES_PER_SECOND if frames is None else entry.selection.fps or fps.get(key)
        on_grid = np.rint(np.array(times) * TIMES_PER_SECOND) if frames is None else np.array(frames)
        grid = np.unique(on_grid).astype(np.int64)
        if grid.size >= k:
            filled[key] = entry
            continue
        if entry.verdict is not None:
            raise SelectionMismatch(f"{entry.place}: the model answered without filled frames")
        if length is None or rate is None:
            raise InvalidInput(f"{entry.place}: fill=even needs the video's length and rate (--rates)")
        n_frames = max(int(length * rate), int(grid.max(initial=-1)) + 1)
        new_frames = np.setdiff1d(halve_widest_gaps(grid, min(k, n_frames), n_frames), grid)
        changes: dict[str, Any] = {"keyframes": sorted([*grid.tolist(), *new_frames.tolist()]), "times_seconds": None}
        if frames is None:
            changes = {"times_seconds": sorted({*times, *(new_frames / rate).tolist()})}
        filled[key] = _changed(entry, **changes, scales=None, facts={"filled": int(new_frames.size)})
    return Entries(filled, entries.left_out)


def _unknown_question(row: SelectionRow) -> Question:
    """A placeholder for a question that is known only by its id in a published selection."""
    return Question(
        benchmark=row.benchmark or "not stated",
        id=row.question_id,
        query=f"question {row.question_id}",
        options=(),
        video=row.video or unnamed_video(row.question_id),
        answer=None,
    )


def _selection_row(entry: FileEntry, question: Question, rate: VideoRate | None, origin: Origin) -> SelectionRow:
    """A report's row of an entry; times become the nearest frames if a rate is known."""
    row = entry.selection
    fps = row.fps if rate is None else float(rate.fps)
    own_info = None if row.n_frames is None or fps is None else VideoInfo(row.n_frames, fps)
    is_in_seconds, keyframes = row.keyframes is None, row.keyframes
    times = entry.times_at(fps) if is_in_seconds or fps is not None else None
    if is_in_seconds and rate is not None:
        keyframes = rate.info.frames_at(entry.shown)
    return selection_row(
        question,
        origin,
        KnownSelection(
            video=own_info if rate is None else rate.info,
            keyframes=keyframes,
            times_seconds=times,
            scales=row.scales,
            pulled_frames=row.pulled_frames,
            pulled_relevance=row.pulled_relevance,
            clips=row.clips,
        ),
        facts={
            "published": True,
            **({"keyframes": "nearest to the published times"} if is_in_seconds else {}),
            **row.facts,
        },
        measured_seconds=None if rate is None else rate.duration_seconds,
        bucket_of=make_benchmark(question.benchmark).bucket if question.benchmark in BENCHMARKS else None,
    )


def _answer_row(entry: FileEntry, question: Question, row: SelectionRow, *, model: str) -> AnswerRow:
    """Return the answer row of an entry with an answer.

    Raises SelectionMismatch if neither file nor annotation states the right answer, or if the two differ.
    """
    verdict = entry.verdict
    assert verdict is not None
    if verdict.right is not None and question.answer is not None and verdict.right != question.answer:
        raise SelectionMismatch(
            f"{entry.place}: the file's right answer is {verdict.right}, the annotation's is {question.answer}"
        )
    right = question.answer or verdict.right
    if right is None and verdict.score is None:
        raise SelectionMismatch(f"{entry.place}: neither file nor annotation says what is right")
    names = CellNames(
        cell_id=identity_hash({"published": row.selection_id, "model": model}),
        cell=f"{row.benchmark}-{model}-{row.sampler}-k{row.k}",
    )
    return answer_row(
        question,
        names,
        model=model,
        frames_asked=row.k,
        selection=row,
        fed_frames=row.keyframes or [],
        frames_fed=len(entry.shown),
        frames_chosen=len(entry.shown),
        answer=verdict.predicted,
        parsed=verdict.predicted,
        correct_answer=right,
        score=float(verdict.predicted == right) if verdict.score is None else verdict.score,
    )
