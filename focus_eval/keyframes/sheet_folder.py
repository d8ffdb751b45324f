"""Writes the keyframes of a sheet's rows to a folder: a table, pictures by id, a page to look through, and records.

FOLDER/keyframes.csv                   the table, a line for each row of the sheet
FOLDER/pictures/ID/                    keyframes as JPEG, sheet.png
FOLDER/index.html                      the page
FOLDER/selections/SHEET/rows.jsonl     the records, which a second start goes on from
"""

from __future__ import annotations

import csv
import hashlib
import html
import json
import math
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, Protocol
from urllib.parse import quote

from focus_eval.core.errors import FocusEvalError, InvalidInput, RunError, printable
from focus_eval.core.files import replace_file
from focus_eval.core.resources import whole_text
from focus_eval.core.types import Question
from focus_eval.keyframes.many_videos import Result, Search
from focus_eval.keyframes.pipeline.selector import Selector
from focus_eval.keyframes.pipeline.stretch import Stretch
from focus_eval.keyframes.question_sheet import Sheet, SheetRow
from focus_eval.keyframes.rows.files import locked_at_once
from focus_eval.keyframes.rows.json_lines import RowWriter, name_file_in_errors, read_rows
from focus_eval.keyframes.rows.records import SelectionRow, error_line
from focus_eval.keyframes.selection import VideoSelection, selection_of

if TYPE_CHECKING:
    from focus_eval.keyframes.video.reader import VideoReader

COLUMNS = ("id", "video", "query", "frames", "times_seconds", "relevance", "pictures", "warning", "error")
ANSWER_COLUMNS = ("answer", "read_as", "correct_answer", "score")
TABLE_SUFFIXES = (".csv", ".jsonl")
DEFAULT_TABLE = "keyframes.csv"
MAX_FOLDER_NAME = 80
# Names of the facts that this module adds to the facts of a row's selection.
_STRETCH, _WARNING, _QUESTION = "stretch_seconds", "warning", "question"

Line = Mapping[str, Any]


class AsksRows(Protocol):
    """Asks a model about the rows of a sheet; `focus_eval.bench` provides one."""

    def earlier(self, row: SheetRow) -> Line | None:
        """Return the cells of the table of a row that was answered before; None for others."""

    def ask(self, row: SheetRow, selection: VideoSelection, record: SelectionRow) -> Line:
        """Ask about a row, and return the cells of the table."""

    def close(self) -> None:
        """Close the files."""


@dataclass(frozen=True, kw_only=True)
class SheetPlace:
    """A folder and the name of the table in it."""

    folder: Path
    table: Path

    @classmethod
    def of(cls, out: Path) -> SheetPlace:
        """Return the place that `out` names: a folder, or a table (.csv, .jsonl) whose folder is meant.

        Raises:
            InvalidInput: a file of another kind.
        """
        if out.suffix.lower() in TABLE_SUFFIXES and not out.is_dir():
            return cls(folder=out.parent, table=out)
        if out.exists() and not out.is_dir():
            raise InvalidInput(f"--out {out}: a file; name a folder, or a table in it (.csv, .jsonl)")
        return cls(folder=out, table=out / DEFAULT_TABLE)


class SheetFolder:
    """The results of one sheet while they are written: open it with `with`.

    Args:
        answers: asks a model about each row; None asks none.
        draws_sheets: draw a contact sheet of each row.
    """

    def __init__(
        self,
        sheet: Sheet,
        place: SheetPlace,
        selector: Selector,
        *,
        answers: AsksRows | None = None,
        draws_sheets: bool = True,
    ) -> None:
        self._draws_sheets = draws_sheets
        self._sheet, self._place, self._selector, self._answers = sheet, place, selector, answers
        self._unanswered: dict[str, SelectionRow] = {}
        self._writing = threading.Lock()
        self._rows = {row.id: row for row in sheet.rows}
        self._records = place.folder / "selections" / re.sub(r"[^\w.-]", "_", sheet.path.stem) / "rows.jsonl"
        self._lines: dict[str, Line] = {}

    def __enter__(self) -> SheetFolder:
        """Read what an earlier start chose, and open the files.

        Raises:
            InvalidInput: the folder has rows chosen with other settings or for other queries.
            RunError: another process writes to it, or it cannot be written.
        """
        folder = self._place.folder
        with name_file_in_errors(folder):
            self._records.parent.mkdir(parents=True, exist_ok=True)
        self._lock = locked_at_once(folder / ".sheet.lock", "another start of this command writes here; wait for it")
        self._lock.__enter__()
        try:
            for record in self._earlier_records():
                cells = {} if self._answers is None else self._answers.earlier(self._rows[record.question_id])
                if cells is None:
                    self._unanswered[record.question_id] = record
                else:
                    self._lines[record.question_id] = {**_record_line(record), **cells}
            self._writer = RowWriter(self._records)
            self._write_table()
            with name_file_in_errors(self._place.table):
                self._table = open(self._place.table, "a", encoding="utf-8", newline="")
        except BaseException:
            self._lock.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Write the table in the order of the sheet, and the page; close the files."""
        try:
            self._table.close()
            self._writer.close()
            if self._answers is not None:
                self._answers.close()
            self._write_table()
            with replace_file(self._place.folder / "index.html") as part, open(part, "w", encoding="utf-8") as file:
                file.write(_PAGE_HEAD.format(title=html.escape(printable(self._sheet.path.name))))
                for line in self._ordered_lines():
                    file.write(whole_text(_section(line, self._place.folder)))
        except (InvalidInput, RunError):
            if error is None:  # do not raise a second error, e.g. when the disk is full
                raise
        finally:
            self._lock.__exit__(kind, error, trace)

    @property
    def _columns(self) -> tuple[str, ...]:
        return COLUMNS if self._answers is None else (*COLUMNS[:-1], *ANSWER_COLUMNS, COLUMNS[-1])

    @property
    def n_finished(self) -> int:
        """Number of rows of the sheet that have keyframes."""
        return sum(not line["error"] for line in self._lines.values())

    @property
    def errors(self) -> list[tuple[str, str]]:
        """Id and error of each row that failed, in the order of the sheet."""
        return [(line["id"], line["error"]) for line in self._ordered_lines() if line["error"]]

    def open_searches(self) -> list[Search]:
        """Return the searches of the rows without keyframes, and record the errors of rows that cannot be searched."""
        searches = []
        for error in self._sheet.errors:
            self._add_line(_error_line(error.row_id, error.video, "", error.text))
        for row in self._sheet.rows:
            if row.id not in self._lines and row.id not in self._unanswered:
                try:
                    searches.append(search_of(row))
                except InvalidInput as error:
                    self._add_line(_error_line(row.id, row.video, row.query, error_line(error)))
        return searches

    def write(self, search: Search, result: Result) -> None:
        """Write the pictures of a selection, then its record and its line; for an error write only the line.

        Raises:
            RunError: a file cannot be written: the disk is full.
        """
        row = self._rows[search.name]
        if not isinstance(result, VideoSelection):
            self._add_line(_error_line(row.id, row.video, row.query, error_line(result)))
            return
        stretch = {_STRETCH: [row.start_seconds, row.end_seconds]} if search.stretch else {}
        warning = {_WARNING: result.warning} if result.warning else {}
        record = replace(
            result.row,
            benchmark=self._sheet.path.stem,
            question_id=row.id,
            option_texts=list(row.options),
            facts={**result.row.facts, **stretch, **warning, _QUESTION: row.question},
        )
        with self._writing:  # one thread at a time: matplotlib is not thread-safe, and lines must stay in order
            self._write_pictures(row, result)
            self._writer.write(record)
        self._answer(row, result, record)

    def answer_earlier(self, reopen: Callable[[Path], Callable[[], VideoReader]]) -> None:
        """Ask about the rows whose keyframes an earlier start chose, and did not ask about."""
        for row_id, record in self._unanswered.items():
            row = self._rows[row_id]
            version = self._selector.sampler.version
            self._answer(row, selection_of(record, sampler_version=version, reopen=reopen(row.path)), record)

    def _answer(self, row: SheetRow, selection: VideoSelection, record: SelectionRow) -> None:
        """Ask about a row if answers are wanted, and add its line."""
        cells: Line = {}
        if self._answers is not None:
            try:
                shown_selection = selection if row.subtitles is None else selection.with_subtitles(row.subtitles)
                cells = self._answers.ask(row, shown_selection, record)
            except RunError:
                raise
            except FocusEvalError as error:
                cells = {"error": error_line(error)}
        self._add_line({**_record_line(record), **cells})

    def _write_pictures(self, row: SheetRow, selection: VideoSelection) -> None:
        pictures = self._place.folder / "pictures" / folder_name(row.id)
        try:
            for earlier in pictures.glob("*") if pictures.is_dir() else ():  # a killed start may have left pictures
                if earlier.is_file():
                    earlier.unlink()
            selection.save_frames(pictures)
            if self._draws_sheets:
                selection.save_sheet(pictures / "sheet.png")
        except (InvalidInput, OSError) as error:
            if isinstance(error.__cause__ or error, OSError):
                raise RunError(f"{error}; run again when there is room, finished rows are kept") from error
            raise

    def _earlier_records(self) -> Iterator[SelectionRow]:
        """The records of earlier starts; those of rows that the sheet no longer has are left out."""
        if not self._records.exists():
            return
        for record in read_rows(self._records, SelectionRow):
            row = self._rows.get(record.question_id)
            if row is None or record.error is not None:
                continue
            stretch = record.facts.get(_STRETCH, [0.0, None])
            reasons = {
                "other settings (sampler, encoder, -k, --seed)": record.selection_id != self._selector.selection_id,
                f"the query {record.query!r}": record.query != row.query,
                f"the video {record.video}": record.video != row.video,
                f"the question {record.facts.get(_QUESTION)!r}": record.facts.get(_QUESTION) != row.question,
                f"the options {record.option_texts}": record.option_texts != [*row.options],
                f"the times {stretch}": stretch != [row.start_seconds, row.end_seconds],
            }
            if reason := next((text for text, is_so in reasons.items() if is_so), ""):
                raise InvalidInput(
                    f"{self._place.folder}: row {printable(row.id)!r} was chosen with {printable(reason)}; name "
                    "another folder with --out, or remove this one"
                )
            yield record

    def _add_line(self, line: Line) -> None:
        with self._writing, name_file_in_errors(self._place.table):
            self._lines[line["id"]] = line
            _write_line(self._table, self._place.table, line, self._columns)
            self._table.flush()

    def _write_table(self) -> None:
        """Write the table as a whole, in the order of the sheet."""
        with replace_file(self._place.table) as part, open(part, "w", encoding="utf-8", newline="") as file:
            if self._place.table.suffix.lower() == ".csv":
                csv.writer(file, lineterminator="\n").writerow(self._columns)
            for line in self._ordered_lines():
                _write_line(file, self._place.table, line, self._columns)

    def _ordered_lines(self) -> list[Line]:
        return [self._lines[row_id] for row_id in self._sheet.ids if row_id in self._lines]


def search_of(row: SheetRow) -> Search:
    """Return the search of a row, which chooses what `select` chooses for the same video and query.

    Raises:
        InvalidInput: the row's start and end enclose no time.
    """
    stretch = None
    if row.start_seconds or row.end_seconds is not None:
        stretch = Stretch(start_seconds=row.start_seconds, end_seconds=row.end_seconds)
    question = Question(benchmark="video", id=row.query, query=row.query, options=(), video=row.video, answer=None)
    return Search(name=row.id, path=row.path, question=question, stretch=stretch)


def folder_name(row_id: str) -> str:
    """Return a row's id as the name of a folder; one that had to be changed ends in a hash of the id."""
    name = re.sub(r"[^\w.-]", "_", row_id).lstrip(".")[:MAX_FOLDER_NAME]
    return name if name == row_id else f"{name}-{hashlib.sha256(row_id.encode()).hexdigest()[:8]}"


def _record_line(record: SelectionRow) -> Line:
    selection = record.selection
    relevance = [] if selection is None else selection.relevance.tolist()
    return {
        "id": record.question_id,
        "video": record.video,
        "query": record.query,
        "frames": record.keyframes or [],
        "times_seconds": [round(seconds, 3) for seconds in record.times_seconds or []],
        "relevance": [None if math.isnan(value) else round(value, 4) for value in relevance],
        "pictures": f"pictures/{folder_name(record.question_id)}",
        "warning": record.facts.get(_WARNING, ""),
        "error": "",
    }


def _error_line(row_id: str, video: str, query: str, text: str) -> Line:
    return {**dict.fromkeys(COLUMNS, ""), "id": row_id, "video": video, "query": query, "frames": [],
            "times_seconds": [], "relevance": [], "error": text}  # fmt: skip


def _write_line(file: IO[str], table: Path, line: Line, columns: Sequence[str]) -> None:
    """Append a line to the table; a CSV file holds a list as numbers separated by blanks."""
    if table.suffix.lower() == ".jsonl":
        cells = {column: line.get(column, "") for column in columns}
        file.write(whole_text(json.dumps(cells, ensure_ascii=False)) + "\n")
        return
    texts = [
        " ".join("-" if value is None else f"{value:.10g}" for value in cell) if isinstance(cell, list) else cell
        for cell in (line.get(column, "") for column in columns)
    ]
    csv.writer(file, lineterminator="\n").writerow([whole_text(str(cell)) for cell in texts])


_PAGE_HEAD = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark"><title>{title}</title>
<style>
body {{ font: 15px/1.4 sans-serif; margin: 1.5em; overflow-wrap: anywhere }}
section {{ border-top: 1px solid #8888; padding: .6em 0; content-visibility: auto; contain-intrinsic-size: auto 200px }}
h2 {{ font-size: 1em; margin: 0 }} p {{ margin: .2em 0 }} .error {{ color: #a00 }} .warning {{ color: #850 }}
figure {{ display: inline-block; margin: .3em .3em 0 0; font-size: .8em }} img {{ height: 120px; display: block }}
@media (max-width: 500px) {{ body {{ margin: 1em }} figure {{ width: 47% }} img {{ height: auto; width: 100% }} }}
@media (prefers-color-scheme: dark) {{ .error {{ color: #f88 }} .warning {{ color: #db6 }} a {{ color: #8bf }} }}
</style></head><body><h1>{title}</h1>
"""


def _section(line: Line, folder: Path) -> str:
    """A row on the page: id, video, query and its pictures with their times, or its error."""
    video, query = (html.escape(printable(line[name])) for name in ("video", "query"))
    parts = [f"<section><h2>{html.escape(printable(line['id']))}</h2><p>{video}: {query}</p>"]
    parts += [
        f'<p class="{name}">{html.escape(printable(line[name]))}</p>' for name in ("warning", "error") if line[name]
    ]
    if line.get("answer"):
        notes = [f"read as {line['read_as']}"] if line["read_as"] else []
        if line["correct_answer"] != "":
            notes = [*(notes or ["not read"]), f"correct {line['correct_answer']}", f"score {line['score']}"]
        text = f"{line['answer']} ({', '.join(notes)})" if notes else str(line["answer"])
        parts.append(f"<p>{html.escape(printable(text))}</p>")
    if line["pictures"]:
        names = sorted(path.name for path in (folder / line["pictures"]).glob("*.jpg"))
        for name, seconds in zip(names, line["times_seconds"], strict=False):
            address = html.escape(quote(f"{line['pictures']}/{name}"))
            parts.append(
                f'<figure><a href="{address}"><img src="{address}" loading="lazy" alt=""></a>'
                f"<figcaption>{seconds:.2f} s</figcaption></figure>"
            )
    return "".join([*parts, "</section>\n"])
