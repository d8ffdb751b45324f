"""Reads VLMEvalKit's predictions: one table of a model's answers, `MODEL_DATASET_8frame.xlsx` or `.tsv`.

    log = predictions_log(Path("GPT4o_Video-MME_8frame_score.xlsx"))   # a log like those of lmms-eval
    for record in log.records(): ...

VLMEvalKit's code writes these columns: `index`, `prediction`, the data set's own (`video`, `question`, `candidates` or
the options A to E, `answer` or `correct_choice`), and after scoring `hit` or `score`. The table has no frames.
"""

from __future__ import annotations

import ast
import csv
import re
import sys
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from focus_eval.bench.benchmarks.question import letters
from focus_eval.bench.rows.entries import FileEntry
from focus_eval.core.errors import InvalidInput, MissingDependency
from focus_eval.core.extras import install_command
from focus_eval.core.resources import whole_text
from focus_eval.external.imports.formats import SelectionFormat, Source
from focus_eval.external.imports.lmms_logs import PREDICTION_SUFFIXES, LmmsLog

NEEDED_COLUMNS = ("index", "prediction", "question")
# Columns of the score, the preferred one first: VLMEvalKit writes `hit` for multiple choice and `score` for video
# benchmarks.
_SCORE_COLUMNS = ("hit", "score")
_OPTION_COLUMNS = letters(26)
# The end of a file name after MODEL_DATASET: how videos were sampled, then further parts that differ between runs.
_ENDING = re.compile(r"_(?:(?P<k>\d+)frame|[\d.]+fps|score|\w+_result|result)(?:_.*)?$")


@dataclass(frozen=True, kw_only=True)
class PredictionLog(LmmsLog):
    """A table of predictions as a log. Each row of the table is a line of the log; the first row is line 2."""

    def _lines(self) -> Iterator[tuple[int, dict[str, object]]]:
        score_column = self.metric_names[0] if self.metric_names else ""
        for number, row in _rows(self.samples):
            yield number, _line(row, score_column, f"{self.samples}:{number}")


@dataclass(frozen=True, kw_only=True)
class Predictions(SelectionFormat):
    """VLMEvalKit's predictions: answers without frames, so no selections; `import vlmevalkit` reads the answers."""

    name: ClassVar[str] = "vlmevalkit"
    summary: ClassVar[str] = "VLMEvalKit's predictions (.xlsx, .tsv): index, prediction, hit or score; no frames"

    def detects(self, source: Source) -> bool:
        """Return True for a table that has the columns of predictions."""
        return source.path.suffix in PREDICTION_SUFFIXES and source.path.is_file() and _has_columns(source.path)

    def read(self, source: Source) -> Iterable[FileEntry]:
        """Raise InvalidInput: a table of predictions names no frames."""
        raise InvalidInput(
            f"{source.path}: VLMEvalKit's predictions name no frames; read the answers: focus-eval import vlmevalkit "
            f"{source.path.name} --out RUN"
        )


def predictions_log(path: Path) -> LmmsLog:
    """Return the table of predictions in `path` as a log; model, data set and K are read from the file's name.

    Raises:
        InvalidInput: the file does not exist, is no table, or lacks a column.
        MissingDependency: an .xlsx file, but no openpyxl.
    """
    first = next(_rows(path), None)
    if first is None:
        raise InvalidInput(f"{path}: no rows below the names of the columns; copy it again")
    columns = first[1]
    if missing := [name for name in NEEDED_COLUMNS if name not in columns]:
        raise InvalidInput(
            f"{path}: no column {missing[0]!r}, so not VLMEvalKit's predictions; it has {', '.join(columns)}"
        )
    stem = whole_text(path.stem)
    ending = _ENDING.search(stem)
    k = ending["k"] if ending else None
    model, _, dataset = stem[: ending.start() if ending else None].rpartition("_")
    return PredictionLog(
        run=stem,
        stamp="",
        task=dataset or stem,
        samples=path,
        model=model,
        model_args={"num_frames": k} if k else {},
        metric_names=tuple(name for name in _SCORE_COLUMNS if name in columns)[:1],
    )


def _line(row: Mapping[str, str], score_column: str, location: str) -> dict[str, object]:
    """A row as a line of lmms-eval's samples."""
    doc: dict[str, object] = {name: text for name, text in row.items() if name not in ("prediction", score_column)}
    options = [row[name] for name in _OPTION_COLUMNS if row.get(name)] or _listed_options(row.get("candidates", ""))
    if options:
        doc |= {"candidates": options, "options": options}
    answer = row.get("answer") or ""
    if not answer and row.get("correct_choice", "").isdecimal():
        answer = letters(26)[int(row["correct_choice"]) % 26]
        doc["correct_choice"] = int(row["correct_choice"])
    if row.get("video_path"):
        doc["video_path"] = row["video_path"].rpartition("/")[2]
    index = row["index"].removesuffix(".0")
    line: dict[str, object] = {"doc_id": int(index) if index.isdecimal() else index, "doc": doc, "target": answer}
    line["filtered_resps"] = row["prediction"]
    if score_column:
        line[score_column] = _score_entry(row[score_column], answer, f"{location} (index {index}): {score_column}")
    return line


def _score_entry(text: str, answer: str, location: str) -> dict[str, object]:
    try:
        score = float({"True": "1", "False": "0"}.get(text, text))
    except ValueError:
        raise InvalidInput(f"{location} is {text!r}, not a number; score the file again with VLMEvalKit") from None
    # VLMEvalKit gives the score -1 to an answer that its judge could not read. Count such an answer as wrong and
    # unparsed.
    return {"score": 0.0, "pred": "", "answer": answer} if score == -1 else {"score": score, "answer": answer}


def _listed_options(text: str) -> list[str]:
    """The options in a cell that holds a list as Python writes it; [] for any other text."""
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return []
    return [str(option) for option in value] if isinstance(value, (list, tuple)) else []


def _has_columns(path: Path) -> bool:
    try:
        first = next(_rows(path), None)
    except (InvalidInput, MissingDependency):
        return False
    return first is not None and all(name in first[1] for name in NEEDED_COLUMNS)


def _rows(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield (line from 2, cells by column) of a table; an empty cell is "", so that an option "None" stays one."""
    try:
        lines = _sheet_lines(path) if path.suffix == ".xlsx" else _text_lines(path)
        names = next(lines, [])
        for number, cells in enumerate(lines, start=2):
            if not any(cells):
                continue
            if len(cells) > len(names):
                raise InvalidInput(f"{path}:{number}: {len(cells)} cells below {len(names)} columns; was it edited?")
            yield number, dict(zip(names, [*cells, *[""] * (len(names) - len(cells))], strict=True))
    except OSError as error:
        raise InvalidInput(f"{path}: cannot be read ({error.strerror or error})") from error
    except (zipfile.BadZipFile, KeyError, UnicodeDecodeError, csv.Error) as error:
        raise InvalidInput(f"{path}: no table ({type(error).__name__}: {error}); copy it again") from error


def _text_lines(path: Path) -> Iterator[list[str]]:
    csv.field_size_limit(sys.maxsize)
    with path.open(newline="", encoding="utf-8-sig") as file:
        yield from csv.reader(file, delimiter="\t")


def _sheet_lines(path: Path) -> Iterator[list[str]]:
    try:
        from openpyxl import load_workbook
    except ModuleNotFoundError as error:
        raise MissingDependency(
            f"{path}: reading .xlsx needs openpyxl: {install_command('xlsx')}; or save it as .tsv"
        ) from error
    book = load_workbook(path, read_only=True, data_only=True)
    try:
        for cells in book.active.iter_rows(values_only=True):
            values: Sequence[Any] = list(cells)
            while values and values[-1] is None:  # trailing empty columns
                values = values[:-1]
            yield ["" if value is None else str(value) for value in values]
    finally:
        book.close()
