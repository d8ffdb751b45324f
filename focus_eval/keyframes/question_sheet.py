"""Reads a sheet of questions about videos: a CSV, JSON-lines or Parquet file with a video and a query in each row.

rows = read_sheet(Path("rows.csv"), columns={"video": "path"})
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from focus_eval.core.errors import InvalidInput, printable, unknown_name
from focus_eval.core.resources import lines_of
from focus_eval.core.types import checked_query

# Roles of columns. A column whose name is that of a role, in any case, needs no `--column`.
ROLES = ("id", "video", "query", "question", "start", "end", "options", "answer", "subtitles")
SUFFIXES = (".csv", ".tsv", ".jsonl", ".parquet")
_DELIMITERS = ",;\t|"
_BYTE_ORDER_MARKS = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
MAX_SHOWN_COLUMNS = 12
MAX_OPTIONS = 26


class SheetError(NamedTuple):
    """Fault of one row of a sheet."""

    row_id: str
    video: str
    text: str


@dataclass(frozen=True, kw_only=True)
class SheetRow:
    """One row of a sheet.

    Args:
        id: unique in the sheet.
        video: as the sheet writes it; `path` is the file.
        query: what to look for: the column `query`, else `question`.
        question: what a model is asked: the column `question`, else `query`.
        start_seconds, end_seconds: the stretch of the video to choose from; None for the end of the video.
        options: texts of the options of a multiple-choice question, in order.
        answer: the letter of the correct option, or the correct number; "" if the sheet states none.
        subtitles: the file of the video's subtitles; None without.
    """

    id: str
    video: str
    path: Path
    query: str
    question: str
    start_seconds: float = 0.0
    end_seconds: float | None = None
    options: tuple[str, ...] = ()
    answer: str = ""
    subtitles: Path | None = None


@dataclass(frozen=True, kw_only=True)
class Sheet:
    """The valid rows of a sheet, in order, and the errors of all other rows."""

    path: Path
    rows: tuple[SheetRow, ...]
    errors: tuple[SheetError, ...]
    ids: tuple[str, ...]


def read_sheet(path: Path, *, columns: Mapping[str, str] | None = None, videos: Path | None = None) -> Sheet:
    """Read a sheet.

    Args:
        path: a CSV file (separated by commas, semicolons, tabs or bars), JSON lines or Parquet.
        columns: name of the column for a role, if it is not the name of the role; for `options` also several names,
            separated by commas.
        videos: folder that paths of videos are relative to; by default the folder of the sheet. Paths of subtitles are
            relative to the folder of the sheet.

    Raises:
        InvalidInput: the file cannot be read or has no row, a column is missing, or a column or an id occurs twice.
    """
    names, records = _read_records(path)
    columns_by_role = _find_columns(path, names, columns or {})
    if not records:
        raise InvalidInput(f"{path}: no row below the names of its columns")
    width = len(str(len(records)))
    rows, errors, ids = [], [], []
    for number, record in enumerate(records, start=1):
        values = {
            # Only the role `options` may have several columns: keep those that are not empty.
            role: record.get(columns[0]) if len(columns) == 1 else list(filter(_text, map(record.get, columns)))
            for role, columns in columns_by_role.items()
        }
        row_id = _text(values.get("id")) if "id" in values else f"{number:0{width}}"
        ids.append(row_id or f"row-{number:0{width}}")
        try:
            rows.append(_row(ids[-1], values, has_id=bool(row_id), videos=videos or path.parent, folder=path.parent))
        except InvalidInput as error:
            errors.append(SheetError(ids[-1], _text(values.get("video")), str(error)))
    repeated = [row_id for row_id, n in Counter(ids).items() if n > 1]
    if repeated:
        lines = [str(number) for number, row_id in enumerate(ids, start=1) if row_id == repeated[0]]
        raise InvalidInput(
            f"{path}: rows {', '.join(lines[:5])} have the same id {printable(repeated[0])!r}"
            f"{f', and {len(repeated) - 1} other ids stand twice' if len(repeated) > 1 else ''}; an id names the "
            "folder of a row: give each its own, or leave the column out"
        )
    return Sheet(path=path, rows=tuple(rows), errors=tuple(errors), ids=tuple(ids))


def _row(row_id: str, values: Mapping[str, object], *, has_id: bool, videos: Path, folder: Path) -> SheetRow:
    """The row with these values by role; raises InvalidInput, without the file's name, for a wrong value."""
    if not has_id:
        raise InvalidInput("the row has no id")
    video = _text(values.get("video"))
    if not video:
        raise InvalidInput("the row names no video")
    texts = [_text(values.get(role)) for role in ("query", "question")]
    query, question = texts[0] or texts[1], texts[1] or texts[0]
    if not query:
        raise InvalidInput("the row has no query")
    options, answer = _options(values.get("options")), _text(values.get("answer"))
    subtitles = _text(values.get("subtitles"))
    if len(options) > MAX_OPTIONS:
        raise InvalidInput(f"{len(options)} options; at most {MAX_OPTIONS} have a letter")
    return SheetRow(
        id=row_id,
        video=video,
        path=videos / Path(video).expanduser(),
        query=checked_query(query),
        question=checked_query(question),
        start_seconds=_seconds(values.get("start"), "start") or 0.0,
        end_seconds=_seconds(values.get("end"), "end"),
        options=options,
        answer=_letter(answer, options) if options and answer else answer,
        subtitles=folder / Path(subtitles).expanduser() if subtitles else None,
    )


def _read_records(path: Path) -> tuple[list[str], list[Mapping[str, object]]]:
    """The names of the columns, and the records by column."""
    suffix = path.suffix.lower()
    if suffix in (".xlsx", ".xls", ".ods"):
        raise InvalidInput(f"{path}: a workbook; save its sheet as CSV (UTF-8) and name that file")
    if suffix not in SUFFIXES:
        raise InvalidInput(f"{path}: a sheet is a {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]} file")
    if suffix == ".parquet":
        return _read_parquet(path)
    text = _read_text(path)
    if not text.strip():
        raise InvalidInput(f"{path}: an empty file; its first line names the columns, e.g. video,query")
    return _read_json_lines(path, text) if suffix == ".jsonl" else _read_csv(path, text)


def _read_text(path: Path) -> str:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InvalidInput(f"{path}: cannot be read ({error.strerror or error})") from error
    encoding = _BYTE_ORDER_MARKS.get(content[:2], "utf-8-sig")
    try:
        return content.decode(encoding)
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{path}: byte {error.start} is not {encoding}; save it as CSV UTF-8") from error


def _read_csv(path: Path, text: str) -> tuple[list[str], list[Mapping[str, object]]]:
    # Leave out quoted parts of the header, in which a delimiter separates nothing.
    header = re.sub(r'"[^"]*"', "", text.lstrip("\r\n").splitlines()[0])
    delimiter = max(_DELIMITERS, key=header.count)
    try:
        lines = [line for line in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True) if line]
    except csv.Error as error:
        raise InvalidInput(f"{path}: not a table ({error}); is a quotation mark not closed?") from error
    names = [name.strip() for name in lines[0]]
    for number, line in enumerate(lines[1:], start=1):
        if len(line) > len(names) and any(line[len(names) :]):
            raise InvalidInput(
                f"{path}: row {number} has {len(line)} cells under {len(names)} columns; put a text that has "
                f"{delimiter!r} in quotation marks"
            )
    return names, [dict(zip(names, line, strict=False)) for line in lines[1:] if any(cell.strip() for cell in line)]


def _read_json_lines(path: Path, text: str) -> tuple[list[str], list[Mapping[str, object]]]:
    records: list[Mapping[str, object]] = []
    for number, line in enumerate(lines_of(text), start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except ValueError as error:
            raise InvalidInput(f"{path}: line {number} is not JSON ({error})") from error
        if not isinstance(record, dict):
            raise InvalidInput(f"{path}: line {number} is not an object of columns and values")
        records.append(record)
    return list(dict.fromkeys(name for record in records for name in record)), records


def _read_parquet(path: Path) -> tuple[list[str], list[Mapping[str, object]]]:
    import pyarrow
    import pyarrow.parquet

    try:
        table = pyarrow.parquet.read_table(path)
    except (pyarrow.ArrowException, OSError) as error:
        raise InvalidInput(f"{path}: cannot be read as Parquet ({' '.join(str(error).split())})") from error
    return table.column_names, table.to_pylist()


def _find_columns(path: Path, names: Sequence[str], text_by_role: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """The columns by role: the given ones, else those with the name of the role, in any case."""
    names_text = ", ".join(printable(name) for name in names[:MAX_SHOWN_COLUMNS]) + (
        f" and {len(names) - MAX_SHOWN_COLUMNS} more" if len(names) > MAX_SHOWN_COLUMNS else ""
    )
    columns: dict[str, tuple[str, ...]] = {}
    for role, text in text_by_role.items():
        if role not in ROLES:
            raise unknown_name("role of a column", role, ROLES)
        parts = (text,) if role != "options" or text in names else tuple(part.strip() for part in text.split(","))
        missing = [part for part in parts if part not in names]
        if missing:
            raise InvalidInput(f"{path}: no column {missing[0]!r} for {role}; it has {names_text}")
        columns[role] = parts
    used_names = {name for parts in columns.values() for name in parts}
    for role in ROLES:
        fitting = [name for name in names if name.strip().casefold() == role and name not in used_names]
        if role in columns or not fitting:
            continue
        if len(fitting) > 1:
            raise InvalidInput(
                f"{path}: {len(fitting)} columns fit {role} ({', '.join(map(repr, fitting))}); leave one out, or give "
                f"the other columns other names"
            )
        columns[role] = (fitting[0],)
    for role, is_there in (("video", "video" in columns), ("query", "query" in columns or "question" in columns)):
        if not is_there:
            raise InvalidInput(f"{path}: no column {role}; it has {names_text}: name it with --column {role}=NAME")
    if repeated := [name for parts in columns.values() for name in parts if list(names).count(name) > 1]:
        raise InvalidInput(f"{path}: two columns are called {repeated[0]!r}; rename one")
    return columns


def _text(value: object) -> str:
    """A cell as text; "" for an empty one. A whole number that a table library made a float loses its ".0"."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value).strip()


def _seconds(value: object, role: str) -> float | None:
    """A time in seconds, from a number or from [H:]MM:SS; None for an empty cell."""
    text = _text(value)
    if not text:
        return None
    if re.fullmatch(r"(\d+:)?\d?\d:\d\d(\.\d*)?", text):
        return math.fsum(float(part) * 60**power for power, part in enumerate(reversed(text.split(":"))))
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise InvalidInput(f"{role} must be seconds or H:MM:SS, got {printable(text)!r}")
    return seconds


def _options(value: object) -> tuple[str, ...]:
    """The options of a list, of a JSON list, or of a text that bars or line feeds separate."""
    if isinstance(value, (list, tuple)):
        return tuple(filter(None, map(_text, value)))
    text = _text(value)
    if text.startswith("["):
        try:
            parsed = json.loads(text)
        except ValueError as error:
            raise InvalidInput(f"options are not a JSON list ({error})") from error
        return _options(parsed)
    options = tuple(filter(None, (part.strip() for part in re.split(r"[|\n]", text))))
    if len(options) == 1:
        raise InvalidInput(f"one option, {printable(text[:60])!r}; separate several by |")
    return options


def _letter(answer: str, options: Sequence[str]) -> str:
    """The letter of the correct option; a sheet may state the letter or the text of the option."""
    letters = [chr(ord("A") + at) for at in range(len(options))]
    places = [at for at, option in enumerate(options) if option.casefold() == answer.casefold()]
    if len(places) == 1:
        return letters[places[0]]
    letter = answer.strip("(). ").upper()
    if letter in letters:
        return letter
    raise InvalidInput(f"the answer {printable(answer[:60])!r} is none of the options {', '.join(letters)}")
