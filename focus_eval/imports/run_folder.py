"""Writes imported rows into a run's folder: a part of selections, and one of answers for each model."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from focus_eval.core.errors import InvalidInput, printable
from focus_eval.rows.files import write_sealed_json
from focus_eval.rows.records import AnswerRow, SelectionRow, replace_file, write_rows
from focus_eval.rows.store import part_writer

MAX_NAME_BYTES = 255  # on every usual file system


def write_run(
    folder: Path, selections: Sequence[SelectionRow], answers: Sequence[AnswerRow] = (), *, name: str = ""
) -> list[Path]:
    """Add the rows of one selection, and of one model's answers, to a run's folder; return the files written.

    Args:
        name: of the selection, by default its sampler; an earlier one of the same name and K is replaced.
    """
    part = f"{name or selections[0].sampler}-k{selections[0].k}"
    path = folder / "selections" / part_name(part, location=folder) / "rows-0.jsonl"
    written = [write_rows(path, selections)]
    if answers:
        path = folder / "answers" / part_name(f"{answers[0].model}-{part}", location=folder) / "rows-0.jsonl"
        written.append(write_rows(path, answers))
    name_run(folder)
    return written


def write_parts(
    folder: Path,
    parts: tuple[str, str],
    rows: Iterable[tuple[SelectionRow, AnswerRow]],
    cell: Mapping[str, Any],
) -> list[Path]:
    """Add the rows of one log to a run's folder, streaming them; return the files written.

    Args:
        parts: folder names of its selections and its answers; existing ones are replaced.
        cell: content of the answers' `cell.json`.
    """
    places = (folder / "selections" / parts[0], folder / "answers" / parts[1])
    for place in places:
        place.mkdir(parents=True, exist_ok=True)
    with part_writer(places[0], SelectionRow) as put_selection, part_writer(places[1], AnswerRow) as put_answer:
        for selection, answer in rows:
            put_selection(selection)
            put_answer(answer)
    with replace_file(places[1] / "cell.json") as unfinished:
        write_sealed_json(unfinished, dict(cell))
    name_run(folder)
    return [place / "rows.parquet" for place in places]


def part_name(text: str, *, location: Path) -> str:
    """Return `text` as the name of a part's folder.

    Raises:
        InvalidInput: too long for a folder's name.
    """
    if len(text.encode()) > MAX_NAME_BYTES:
        raise InvalidInput(
            f"{location}: {text[:40]}..., {len(text):,} characters, is too long for a folder; "
            "give a short --name or --model"
        )
    return re.sub(r"[/\n\t]", "_", printable(text))


def name_run(folder: Path) -> None:
    """Write a `run.json` that names the run after its folder, unless there is one."""
    path = folder / "run.json"
    if not path.exists():
        with replace_file(path) as unfinished:
            write_sealed_json(unfinished, {"name": folder.resolve().name, "matrix": {}})
