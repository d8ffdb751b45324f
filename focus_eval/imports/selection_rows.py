"""Turns imported selections and their answers into rows that reports read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from focus_eval.benchmarks.registry import BENCHMARKS, VideoRate, make_benchmark
from focus_eval.core.errors import InvalidInput, SelectionMismatch
from focus_eval.core.types import Question, VideoInfo
from focus_eval.imports.imported import ImportedSelection, selections_hash
from focus_eval.rows.identity import identity_hash
from focus_eval.rows.records import AnswerRow, CellNames, Origin, SelectionRow, answer_row, selection_row

Rows = tuple[list[SelectionRow], list[AnswerRow]]


def rows_of_selections(
    selections: Mapping[str, ImportedSelection],
    questions: Sequence[Question] | None,
    rates: Mapping[str, VideoRate],
    *,
    name: str,
    model: str = "",
) -> Rows:
    """Return the rows of `selection_rows`, and an answer row for each answer in the file.

    Args:
        model: the model that answered; required if the file has answers.

    Raises:
        InvalidInput: answers without a model, or as `selection_rows`.
        SelectionMismatch: the file's right answer is not the annotation's.
    """
    has_answers = any(selection.answered is not None for selection in selections.values())
    if has_answers and not model:
        raise InvalidInput(f"{name}: the file has answers but does not name the model; give --model")
    rows = selection_rows(selections, questions, rates, name=name)
    by_id = {question.id: question for question in questions or ()}
    answers = [
        _answer_row(selection, by_id.get(question_id) or _unknown_question(selection), row, model=model)
        for (question_id, selection), row in zip(selections.items(), rows, strict=True)
        if selection.answered is not None
    ]
    return rows, answers


def selection_rows(
    selections: Mapping[str, ImportedSelection],
    questions: Sequence[Question] | None,
    rates: Mapping[str, VideoRate],
    *,
    name: str,
) -> list[SelectionRow]:
    """Return a selection row per question, in the order of `selections`.

    Times stay as published; if a file states times, a keyframe is the frame nearest to it at the stated rate. The
    selection's cost is unknown: no pulls, no seconds.

    Args:
        questions: of the benchmark; None if only the file's own ids are known.
        rates: length and rate by question id. Without, frames have no times and times no frames.
        name: of the selection, the `sampler` of the rows.

    Raises:
        InvalidInput: some rates, but none for a selection of frame indices.
    """
    k = max(selection.k for selection in selections.values())
    selection_id = identity_hash({"published": selections_hash(selections), "name": name, "k": k})
    origin = Origin(selection_id=selection_id, sampler=name, k=k)
    by_id = {question.id: question for question in questions or ()}
    rows = []
    for question_id, selection in selections.items():
        if rates and question_id not in rates and selection.keyframes is not None:
            raise InvalidInput(f"{name}: no rate for question {question_id!r}; add it to the CSV of --rates")
        question = by_id.get(question_id) or _unknown_question(selection)
        rows.append(_selection_row(selection, question, rates.get(question_id), origin))
    return rows


def _unknown_question(selection: ImportedSelection) -> Question:
    """Return a question that stands for one of which only a published selection's id is known."""
    return Question(
        benchmark=selection.benchmark or "not stated",
        id=selection.question_id,
        query=f"question {selection.question_id}",
        options=(),
        video=selection.video or f"of question {selection.question_id}",
        answer=None,
    )


def _selection_row(
    selection: ImportedSelection, question: Question, rate: VideoRate | None, origin: Origin
) -> SelectionRow:
    """Return the selection row of a published selection; times become the nearest frames if a rate is known."""
    fps = selection.fps if rate is None else float(rate.fps)
    own_info = None if selection.n_frames is None or fps is None else VideoInfo(selection.n_frames, fps)
    is_in_seconds = selection.keyframes is None
    keyframes = None if selection.keyframes is None else list(selection.keyframes)
    times = list(selection.times_at(fps)) if is_in_seconds or fps is not None else None
    if is_in_seconds and rate is not None:
        keyframes = [min(int(time * float(rate.fps) + 0.5), rate.n_frames - 1) for time in times or ()]
    is_known = question.benchmark in BENCHMARKS
    return selection_row(
        question,
        origin,
        video=own_info if rate is None else rate.info,
        keyframes=keyframes,
        times_seconds=times,
        measured_seconds=None if rate is None else rate.duration_seconds,
        bucket_of=make_benchmark(question.benchmark).bucket if is_known else None,
        scales=None if selection.scales is None else list(selection.scales),
        pulled_frames=list(selection.pulled_frames),
        pulled_relevance=list(selection.pulled_relevance),
        clips=[list(clip) for clip in selection.clips],
        facts={
            "published": True,
            **({"keyframes": "nearest to the published times"} if is_in_seconds else {}),
            **({"filled": selection.n_filled} if selection.n_filled else {}),
        },
    )


def _answer_row(selection: ImportedSelection, question: Question, row: SelectionRow, *, model: str) -> AnswerRow:
    """Return the answer row of a published selection with an answer.

    Raises SelectionMismatch if nothing says what is right, or file and annotation differ.
    """
    answer = selection.answered
    assert answer is not None
    if answer.correct_letter is not None and question.answer is not None and answer.correct_letter != question.answer:
        raise SelectionMismatch(
            f"{selection.location} ({question.id}): the file's right answer is {answer.correct_letter}, "
            f"the annotation's is {question.answer}"
        )
    right = question.answer or answer.correct_letter
    if right is None and answer.is_correct is None:
        raise SelectionMismatch(f"{selection.location} ({question.id}): neither file nor annotation says what is right")
    is_right = answer.letter == right if answer.is_correct is None else answer.is_correct
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
        frames_fed=selection.n_keyframes,
        frames_chosen=selection.n_keyframes,
        answer=answer.letter,
        parsed=answer.letter,
        correct_answer=right,
        score=float(is_right),
    )
