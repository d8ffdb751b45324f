"""Reads a file of selections in any known format and checks it against the benchmark's questions.

selections = load_selections("selected_frames.json", format="aks", questions=questions)
keyframes = selections[questions[0].id].keyframes
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from focus_eval.core.errors import InvalidInput, SelectionMismatch, unknown_name
from focus_eval.core.options import make, named_options
from focus_eval.core.plugins import Registry, check_derived, classes_in
from focus_eval.core.types import Question
from focus_eval.imports import imported


def _check(loaded: Any, label: str) -> type[imported.SelectionFormat]:
    """Return the loaded class if it is a selection format; raise PluginError otherwise."""
    kind: type[imported.SelectionFormat] = check_derived(loaded, label, base=imported.SelectionFormat)
    return kind


FORMATS = Registry(
    "selection format",
    group="focus_eval.selection_formats",
    built_in=classes_in("focus_eval.imports", base="SelectionFormat"),
    check=_check,
)
UNITS = ("frames", "seconds")
FILLS = ("even", "none")


def load_selections(
    path: str | Path,
    *,
    format: str = "auto",
    questions: Sequence[Question] | None = None,
    unit: str | None = None,
    fps: Mapping[str, float] | None = None,
    allow_missing: bool = False,
    left_out: list[str] | None = None,
    options: Mapping[str, Any] | None = None,
) -> dict[str, imported.ImportedSelection]:
    """Return the selections of a file by question id, in the file's order.

    Args:
        format: a registered name, with options or without ("wfs:field=chosen", "aks:unit=seconds"); "auto" detects it.
        questions: the benchmark's questions in the order of its annotation. Required for `aks` and `focus`, whose files
            have no ids; files of other formats are checked against them.
        unit: "frames" or "seconds" if the file differs from its format's usual unit.
        fps: rate by question id, to detect indices past the end without opening a video.
        allow_missing: leave out questions without frames instead of refusing the file.
        left_out: if given, frames past the end of their video and rows of no question are left out and described here,
            instead of refusing the file.
        options: of the format: `field` (wfs), `sampler` (rows), the names of the fields (answers). Of every format:
            `unit`, and `fill=even`, which adds frames in the middle of the widest gaps to selections with fewer
            different frames than the K of most of them.

    Raises:
        SelectionMismatch: a file that does not fit; names the row at fault.
        UnknownName: an unknown format, option or unit.
        InvalidInput: a file that is missing or cannot be read.
    """
    name, format_options = named_options(format, options or {})
    unit, fill = format_options.pop("unit", unit), format_options.pop("fill", None)
    for value, option, known in ((unit, "unit", UNITS), (fill, "fill", FILLS)):
        if value is not None and value not in known:
            raise unknown_name(option, value, known)
    if fill and questions is None:
        raise InvalidInput(f"{path}: fill={fill} needs the lengths of the videos; give the questions (--annotations)")
    source = imported.Source(path=Path(path), questions=questions, allow_missing=allow_missing)
    reader = make_format(_detect(source) if name == "auto" else name, **format_options)
    source = replace(source, format=reader.name, unit=unit or reader.unit)
    selections = _by_id(reader.read(source), source.path)
    if questions is None:
        return selections
    selections = _fitted(selections, questions, source.path, allow_missing=allow_missing, left_out=left_out)
    if source.unit == "frames":
        imported.check_unit_plausible(selections, questions)
    checked = imported.check_lengths(selections, questions, fps or {}, left_out=left_out)
    return imported.filled_selections(checked, questions, fps or {}) if fill == "even" else checked


def make_format(name: str, **options: Any) -> imported.SelectionFormat:
    """Return the selection format `name` ("wfs", "wfs:field=chosen") with `options`.

    Raises:
        UnknownName: no such format or option; the message has the nearest name.
        InvalidInput: an option of another type.
        PluginError: a plugin that cannot be used.
    """
    name, options = named_options(name, options)
    kind = FORMATS.load(name)
    return make(f"selection format {name!r}", kind, options)


def write_selections(
    selections: Mapping[str, imported.ImportedSelection], path: Path, *, format: str, questions: Sequence[Question]
) -> list[Path]:
    """Write `selections` in the order of `questions` and return the files written.

    Raises:
        UnknownName: no such format that can be written.
        SelectionMismatch: a question without a selection, or a selection that the format cannot hold.
    """
    written = [name for name in FORMATS.names() if FORMATS.fact(name, "is_written", False)]
    if format not in written:
        raise unknown_name("export format", format, written)
    return make_format(format).write(selections, path, questions=questions)


def _detect(source: imported.Source) -> str:
    """Return the name of the one format that `source` looks like; raise SelectionMismatch for none or several.

    General formats are tried last.
    """
    for is_general in (False, True):
        candidates = [name for name in FORMATS.names() if bool(FORMATS.fact(name, "is_general", False)) == is_general]
        matching = [name for name in candidates if make_format(name).detects(source)]
        if len(matching) > 1:
            raise SelectionMismatch(f"{source.path}: looks like {' and '.join(matching)}; name its format")
        if matching:
            return matching[0]
    known_formats = ", ".join(FORMATS.names())
    raise SelectionMismatch(f"{source.path}: not a known kind of selection file; formats: {known_formats}")


def _by_id(
    imported_selections: Iterable[imported.ImportedSelection], path: Path
) -> dict[str, imported.ImportedSelection]:
    """Return the selections by question id; raise SelectionMismatch for a repeated question or an empty file."""
    selections: dict[str, imported.ImportedSelection] = {}
    for selection in imported_selections:
        if selection.question_id in selections:
            first = selections[selection.question_id].location
            raise SelectionMismatch(
                f"{selection.location}: question {selection.question_id!r} appears twice; first in {first}"
            )
        selections[selection.question_id] = selection
    if not selections:
        raise SelectionMismatch(f"{path}: no selections in this file")
    return selections


def _fitted(
    selections: dict[str, imported.ImportedSelection],
    questions: Sequence[Question],
    path: Path,
    *,
    allow_missing: bool,
    left_out: list[str] | None,
) -> dict[str, imported.ImportedSelection]:
    """Return the selections of known questions, with benchmark and video filled in from these.

    Selections of unknown questions raise SelectionMismatch, or, if `left_out` is given, go there as sentences.
    Questions without one raise it unless `allow_missing`.
    """
    question_by_id = {question.id: question for question in questions}
    foreign = [selection for key, selection in selections.items() if key not in question_by_id]
    if foreign and (left_out is None or len(foreign) == len(selections)):
        raise SelectionMismatch(_no_question(foreign[0], len(question_by_id)))
    if left_out is not None:
        left_out += [f"{_no_question(selection, len(question_by_id))}; left out" for selection in foreign]
    missing = [question.id for question in questions if question.id not in selections]
    if missing and not allow_missing:
        raise SelectionMismatch(
            f"{path.name}: {len(selections)} selections for {len(question_by_id)} questions, the first without is "
            f"{missing[0]!r} (--allow-missing leaves them out)"
        )
    return {
        key: _named(selection, question_by_id[key]) for key, selection in selections.items() if key in question_by_id
    }


def _no_question(selection: imported.ImportedSelection, n_questions: int) -> str:
    """Return a clause saying that the selection's id is not a question of the benchmark."""
    return (
        f"{selection.location}: {selection.question_id!r} is not a question of this benchmark ({n_questions} questions)"
    )


def _named(selection: imported.ImportedSelection, question: Question) -> imported.ImportedSelection:
    """Return the selection with benchmark and video of `question`; raise SelectionMismatch for another benchmark."""
    if selection.benchmark and selection.benchmark != question.benchmark:
        raise SelectionMismatch(
            f"{selection.location}: a selection for {selection.benchmark}, the question is of {question.benchmark}"
        )
    return replace(selection, benchmark=question.benchmark, video=question.video)
