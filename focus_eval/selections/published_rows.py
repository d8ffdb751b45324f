"""Turns published selections, and the answers beside them, into rows that reports read."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from focus_eval.benchmarks.question import Question
from focus_eval.benchmarks.registry import VideoRate, make_benchmark
from focus_eval.core.errors import InvalidInput, SelectionMismatch, printable
from focus_eval.rows import records
from focus_eval.rows.identity import identity_hash
from focus_eval.rows.sealed import write_sealed_json
from focus_eval.selections.imported import ImportedSelection, selections_hash

_MOST_BYTES_OF_A_NAME = 255  # on every usual file system


@dataclass(frozen=True, kw_only=True)
class PublishedRows:
    """One published file as rows: a selection per question, and an answer per question where the file has them."""

    name: str
    model: str
    selections: list[records.SelectionRow]
    answers: list[records.AnswerRow]


def published_rows(
    selections: Mapping[str, ImportedSelection],
    questions: Sequence[Question],
    rates: Mapping[str, VideoRate],
    *,
    name: str,
    model: str = "",
) -> PublishedRows:
    """Return the rows of `selections`.

    Times stay as published; where a file states times, a keyframe is the frame nearest to it at the stated rate. What
    the selection cost is not known: no pulls, no seconds.

    Args:
        rates: length and rate by question id.
        name: of the selection, the `sampler` of the rows.
        model: who answered; needed where the file has answers.

    Raises:
        InvalidInput: answers without a model, or a question without rate.
        SelectionMismatch: the file's right answer is not the annotation's.
    """
    has_answers = any(chosen.answered is not None for chosen in selections.values())
    if has_answers and not model:
        raise InvalidInput(f"{name}: the file has answers but does not name the model; give --model")
    k = max(chosen.k for chosen in selections.values())
    selection_id = identity_hash({"published": selections_hash(selections), "name": name, "k": k})
    by_id = {question.id: question for question in questions}
    chosen_rows, answer_rows = [], []
    for question_id, chosen in selections.items():
        question = by_id[question_id]
        if question_id not in rates:
            raise InvalidInput(f"{name}: no length and rate for question {question_id!r}")
        row = _published_selection(chosen, question, rates[question_id], name=name, k=k, selection_id=selection_id)
        chosen_rows.append(row)
        if chosen.answered is not None:
            answer_rows.append(_published_answer(chosen, question, row, model=model))
    return PublishedRows(name=name, model=model, selections=chosen_rows, answers=answer_rows)


def write_run(folder: Path, published: PublishedRows) -> list[Path]:
    """Add `published` to a run's folder, and return the files written; the same name and K replace what was there."""
    part = f"{published.name}-k{published.selections[0].k}"
    chosen = folder / "selections" / part_name(part, where=folder) / "rows-0.jsonl"
    said = folder / "answers" / part_name(f"{published.model}-{part}", where=folder) / "rows-0.jsonl"
    written = [records.write_rows(chosen, published.selections)]
    written += [records.write_rows(said, published.answers)] if published.answers else []
    name_run(folder)
    return written


def part_name(text: str, *, where: Path) -> str:
    """Return the name of a part's folder.

    Raises:
        InvalidInput: too long for one.
    """
    if len(text.encode()) > _MOST_BYTES_OF_A_NAME:
        raise InvalidInput(
            f"{where}: {text[:40]}..., {len(text):,} characters, is too long for a folder; "
            "give a short --name or --model"
        )
    return re.sub(r"[/\n\t]", "_", printable(text))


def name_run(folder: Path) -> None:
    """Write the `run.json` of a folder that has none: a run is called after its folder."""
    about = folder / "run.json"
    if not about.exists():
        with records.replace_file(about) as unfinished:
            write_sealed_json(unfinished, {"name": folder.resolve().name, "matrix": {}})


def _published_selection(
    chosen: ImportedSelection, question: Question, rate: VideoRate, *, name: str, k: int, selection_id: str
) -> records.SelectionRow:
    fps, last = float(rate.fps), rate.n_frames - 1
    times = chosen.times_at(fps)
    nearest = chosen.keyframes is None
    keyframes = [min(int(time * fps + 0.5), last) for time in times] if nearest else list(chosen.keyframes or ())
    return records.selection_row(
        question,
        records.Chooser(selection_id=selection_id, sampler=name, k=k),
        video=rate.info,
        keyframes=keyframes,
        times_seconds=times,
        measured_seconds=rate.duration_seconds,
        bucket_of=make_benchmark(question.benchmark).bucket,
        scales=None if chosen.scales is None else list(chosen.scales),
        pulled_frames=list(chosen.pulled_frames),
        pulled_relevance=list(chosen.pulled_relevance),
        clips=[list(clip) for clip in chosen.clips],
        facts={"published": True, **({"keyframes": "nearest to the published times"} if nearest else {})},
    )


def _published_answer(
    chosen: ImportedSelection, question: Question, row: records.SelectionRow, *, model: str
) -> records.AnswerRow:
    said = chosen.answered
    assert said is not None
    if said.correct_letter is not None and question.answer is not None and said.correct_letter != question.answer:
        raise SelectionMismatch(
            f"{chosen.where} ({question.id}): the file's right answer is {said.correct_letter}, "
            f"the annotation's is {question.answer}"
        )
    right = question.answer or said.correct_letter
    if right is None and said.is_correct is None:
        raise SelectionMismatch(f"{chosen.where} ({question.id}): neither file nor annotation says what is right")
    is_right = said.letter == right if said.is_correct is None else said.is_correct
    names = records.CellNames(
        cell_id=identity_hash({"published": row.selection_id, "model": model}),
        cell=f"{row.benchmark}-{model}-{row.sampler}-k{row.k}",
    )
    return records.answer_row(
        question,
        names,
        model=model,
        frames_asked=row.k,
        selection=row,
        fed_frames=row.keyframes,
        answer=said.letter,
        parsed=said.letter,
        correct_answer=right,
        score=float(is_right),
    )
