"""Reads the logs that lmms-eval leaves, a line at a time.

A run leaves `STAMP_results.json` and, per task, `STAMP_samples_TASK.jsonl` with one line per document; either may be
gzipped. Fields differ between versions and forks: `doc` may be missing, and frames are not part of the format, so they
are read from a field that the caller names.

    for log in find_logs(Path("logs")):        # one per task of each run
        for record in log.records():           # streamed; an error names file and line
            verdict = verdict_of(record.metrics[log.metric_names[0]])
            frames = record.frames("indices")  # None where the line does not have the field
"""

from __future__ import annotations

import glob
import gzip
import json
import math
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from focus_eval.core.errors import InvalidInput
from focus_eval.core.resources import HALF_ESCAPED, opened, read_json, whole_text, whole_texts
from focus_eval.rows.store import parquet_columns, parquet_records

# What lmms-eval itself writes into a line; every other key is an entry of the task's own.
LINE_KEYS = frozenset(
    (
        *("doc_id", "doc", "target", "arguments", "resps", "filtered_resps", "token_counts", "input", "input_media"),
        *("doc_hash", "prompt_hash", "target_hash"),
    )
)
# A table of the answers of several runs, as Parquet: these columns and no others are read.
TABLE_COLUMNS = ("run", "id", "frames", "resp", "target", "score")
# How tasks call what the model named, what is right, and what it is worth.
PREDICTED = ("parsed_pred", "pred_answer", "parsed_answer", "pred", "prediction")
RIGHT = ("answer", "gt_answer", "ground_truth", "target", "gt")
WORTH = ("score", "correct", "is_correct", "accuracy")
# Arguments of lmms-eval's wrappers that say how many frames a model is shown.
_FRAME_ARGUMENTS = ("max_num_frames", "max_frames_num", "max_frames", "num_frames", "num_frame", "nframes", "num_frm")
_LETTER = re.compile(r"^\W*([A-Z])(?:\W|$)")
_SAMPLES = re.compile(r"(?P<stamp>.+?)_samples_(?P<task>.+)\.jsonl(?:\.gz)?")
_DECIMAL = re.compile(r"\d+\.\d+")


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What a task's entry says of one answer.

    Args:
        score: as stated, or 1.0 where prediction and right answer are equal, else 0.0.
        predicted, right: as the entry has them, None where it does not.
    """

    score: float
    predicted: str | None = None
    right: str | None = None


@dataclass(frozen=True, kw_only=True)
class LogRecord:
    """One document of a log.

    Args:
        doc_id: the document's row in its split.
        where: file and line, for messages.
        line: number of the line, from 1.
        doc: the document's fields; None where the log leaves them out.
        target: the right answer as the task gave it, as text.
        response: what the model said, after the task's filter.
        prompt: what the model was asked.
        metrics: the task's own entries by name: numbers, or dictionaries for `verdict_of`.
        prompt_hash: "" where the log has none.
    """

    doc_id: int | str
    where: str
    line: int
    doc: Mapping[str, Any] | None
    target: str
    response: str
    prompt: str
    metrics: Mapping[str, Any]
    prompt_hash: str = ""

    def value(self, name: str) -> Any:
        """Return field `name` of the document, or the one at a dotted path ("lvb_acc.id") of the line; else None."""
        if self.doc is not None and name in self.doc:
            return self.doc[name]
        found: Any = self.metrics
        for part in name.removeprefix("doc.").split("."):
            found = self.doc if name.startswith("doc.") and found is self.metrics else found
            found = found.get(part) if isinstance(found, Mapping) else None
        return found

    def frames(self, name: str, *, unit: str = "frames") -> tuple[float, ...] | None:
        """Return the frames (or seconds) in field `name` as the log has them; None where the line has no such field.

        Whole numbers written as text ("232") are read: forks write them so.

        Raises:
            InvalidInput: no list, or something in it that is not a number of `unit`.
        """
        values = self.value(name)
        if values is None:
            return None
        if not isinstance(values, Sequence) or isinstance(values, str):
            raise InvalidInput(f"{self.where}: {name} holds {_short(values)}, not a list of {unit}; name another field")
        return tuple(_number(value, name, unit, self.where) for value in values)


@dataclass(frozen=True, kw_only=True)
class LmmsLog:
    """One task of one run: what its results file says, and the file of its samples.

    Args:
        run: short name, unique among the logs found together.
        stamp, task, split: of the run; `split` is "" where no results file says it.
        samples, results: the files; `results` is None where there is none.
        model: checkpoint without its folders, else the name of the wrapper; "" where not known.
        model_args: of the wrapper, as it was given them.
        scores: the task's own figures by metric, where they are numbers.
        metric_names: in the task's order; of the first line where there is no results file.
        n_samples: documents that were asked, as the results file says; None where it does not.
        git_hash: of lmms-eval; "" where not known.
    """

    run: str
    stamp: str
    task: str
    samples: Path
    results: Path | None = None
    split: str = ""
    model: str = ""
    model_args: Mapping[str, str] = field(default_factory=dict)
    scores: Mapping[str, float] = field(default_factory=dict)
    metric_names: tuple[str, ...] = ()
    n_samples: int | None = None
    git_hash: str = ""

    def frames_asked(self, most_fed: int) -> int:
        """Return K: what the wrapper's arguments say or `most_fed`, whichever is more; 0 where neither is known."""
        stated = (self.model_args.get(name, "") for name in _FRAME_ARGUMENTS)
        return max(most_fed, next((int(text) for text in stated if text.isdecimal()), 0))

    def records(self) -> Iterator[LogRecord]:
        """Yield the documents in the file's order; only one line is held.

        Raises:
            InvalidInput: a line that is cut off, damaged, of another shape than the first, or a document met twice.
        """
        first: frozenset[str] | None = None
        lines_of: dict[int | str, int] = {}
        for number, values in self._lines():
            record = _record(values, self.samples, number)
            if first is None:
                first = frozenset(record.metrics)
            elif first != frozenset(record.metrics):
                raise InvalidInput(
                    f"{record.where}: has {_listed(record.metrics)}, line 1 has {_listed(first)}: "
                    "logs of two tasks in one file; give each its own"
                )
            if record.doc_id in lines_of:
                raise InvalidInput(
                    f"{record.where}: doc_id {record.doc_id} a second time, first in line {lines_of[record.doc_id]}; "
                    "two runs wrote into this file: keep the lines of one"
                )
            lines_of[record.doc_id] = number
            yield record

    def _lines(self) -> Iterator[tuple[int, dict[str, Any]]]:
        if self.samples.suffix == ".parquet":
            return _table_lines(self.samples, self.run)
        return read_lines(self.samples, expected=self.n_samples)


def find_logs(path: str | Path) -> list[LmmsLog]:
    """Return the logs in a file of samples or below a folder, in the order of their names.

    A Parquet file with the columns `TABLE_COLUMNS` holds the answers of several runs: a log for each, without a task.

    Raises:
        InvalidInput: no samples there, one log twice, or samples of a task that the results beside them lack.
    """
    path = Path(path)
    if path.suffix == ".parquet":
        return _logs_of_table(path)
    # Not rglob: folders of runs are often links.
    below = glob.glob("**/*_samples_*.jsonl*", root_dir=path, recursive=True) if path.is_dir() else []
    files = [path, *(path / name for name in sorted(below))]
    files = [file for file in files if file.is_file() and _SAMPLES.fullmatch(file.name)]
    if not files:
        raise InvalidInput(
            f"{path}: no STAMP_samples_TASK.jsonl (or .gz) here; run lmms-eval with --log_samples --output_path"
        )
    _refuse_twice(files)
    names = _run_names(files)
    return [_log(file, names[file]) for file in files]


def read_lines(path: Path, *, expected: int | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the number (from 1) and the value of each line of a JSON-lines file, gzipped or not.

    Args:
        expected: number of lines that the whole file should have, for the message about one that is cut off.

    Raises:
        InvalidInput: a line that is cut off or is not a JSON object; names file and line.
    """
    number = 0
    try:
        with opened(path) as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield number, _parsed(line, path, number, expected)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise _cut_off(path, number + 1, expected) from error
    except OSError as error:
        raise InvalidInput(f"{path}: cannot be read ({error.strerror or error})") from error


def verdict_of(entry: Any) -> Verdict | None:
    """Return what a task's entry says of an answer; None for one that holds no verdict (a submission, a list)."""
    if isinstance(entry, (bool, int, float)):
        return Verdict(score=float(entry)) if math.isfinite(entry) else None
    if not isinstance(entry, Mapping):
        return None
    predicted, right = _first_text(entry, PREDICTED), _first_text(entry, RIGHT)
    worth = next((entry[name] for name in WORTH if isinstance(entry.get(name), (bool, int, float))), None)
    if worth is not None:
        return Verdict(score=float(worth), predicted=predicted, right=right) if math.isfinite(worth) else None
    if predicted is None or right is None:
        return None
    return Verdict(score=float(predicted == right), predicted=predicted, right=right)


def answer_read(response: str, verdict: Verdict, options: Sequence[str]) -> str | None:
    """Return what the task read from a response; None where it read nothing, or guessed what is not in the response."""
    said = verdict.predicted
    if said is None:  # a score alone says nothing of how it was read
        found = _LETTER.match(response)
        return found[1] if found else response.strip() or None
    return None if not said.strip() or _is_guess(said, response, options) else said


def _is_guess(letter: str, response: str, options: Sequence[str]) -> bool:
    """Return whether a task made up the option letter: neither it nor its option's text is in the response."""
    if not (len(letter) == 1 and "A" <= letter <= "Z"):
        return False
    at = ord(letter) - ord("A")
    text = options[at].casefold() if at < len(options) else ""
    is_there = re.search(rf"(?<![A-Za-z]){letter}(?![A-Za-z])|(?i:^\W*{letter}(?:\W|$))", response)
    return not is_there and (not text or text not in response.casefold())


def _log(samples: Path, run: str) -> LmmsLog:
    stamp, task = _stamp_and_task(samples)
    results = _results_file(samples, stamp)
    if results is None:
        return LmmsLog(run=run, stamp=stamp, task=task, samples=samples, metric_names=_metrics_of_first(samples))
    content = _results(results)
    if task not in content["results"]:
        raise InvalidInput(
            f"{samples}: {results.name} beside it has no task {task!r}, but {_listed(content['results'])}; "
            "give each run its own folder"
        )
    config, about = _object(_object(content.get("configs")).get(task)), _object(content.get("config"))
    scores = _scores(_object(content["results"][task]))
    listed = [str(_object(item).get("metric", "")) for item in config.get("metric_list") or ()]
    arguments = _arguments(about.get("model_args"))
    model = content.get("model_name") or arguments.get("pretrained") or about.get("model") or ""
    counted = _object(_object(content.get("n-samples")).get(task))
    return LmmsLog(
        run=run,
        stamp=stamp,
        task=task,
        samples=samples,
        results=results,
        split=str(config.get("test_split") or config.get("validation_split") or ""),
        model=str(model).rstrip("/").rpartition("/")[2],
        model_args=arguments,
        scores=scores,
        metric_names=tuple(dict.fromkeys([*listed, *scores])),
        n_samples=counted.get("effective"),
        git_hash=str(content.get("git_hash") or ""),
    )


def _logs_of_table(path: Path) -> list[LmmsLog]:
    columns = parquet_columns(path)
    missing = [name for name in TABLE_COLUMNS if name not in columns]
    if missing:
        raise InvalidInput(f"{path}: no column {missing[0]!r}; a table of answers has {', '.join(TABLE_COLUMNS)}")
    runs = dict.fromkeys(str(row["run"]) for row in parquet_records(path, columns=["run"]))
    return [LmmsLog(run=run, stamp="", task="", samples=path, metric_names=("score",)) for run in runs]


def _table_lines(path: Path, run: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the rows of one run as the lines of a log; the question's id stands for its row in the split."""
    import pyarrow.dataset as ds

    kept = ds.dataset(path).to_batches(columns=list(TABLE_COLUMNS), filter=ds.field("run") == run)
    for number, row in enumerate((row for batch in kept for row in batch.to_pylist()), start=1):
        doc = {"id": row["id"], "frames": row["frames"]}
        said = {"target": row["target"], "filtered_resps": row["resp"], "score": row["score"]}
        yield number, {"doc_id": row["id"], "doc": doc, **said}


def _results_file(samples: Path, stamp: str) -> Path | None:
    found = [samples.with_name(f"{stamp}_results.json{end}") for end in ("", ".gz")]
    return next((file for file in found if file.is_file()), None)


def _results(path: Path) -> dict[str, Any]:
    content = read_json(path)
    if not isinstance(content, dict) or not isinstance(content.get("results"), dict):
        raise InvalidInput(f"{path}: not lmms-eval's results: the key `results` is missing")
    return content


def _object(value: Any) -> Mapping[str, Any]:
    """Return an object of a results file; an empty one for what versions and forks write in its place."""
    return value if isinstance(value, Mapping) else {}


def _scores(values: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers among a task's results, named without the filter "none"; standard errors left out."""
    kept = {}
    for name, value in values.items():
        metric, _, filter_name = name.partition(",")
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if filter_name and is_number and not metric.endswith(("_stderr", "_stderr_clt", "_stderr_clustered")):
            kept[metric if filter_name == "none" else name] = float(value)
    return kept


def _arguments(given: Any) -> dict[str, str]:
    """Return a wrapper's arguments, written "a=1,b=2" or as an object."""
    if isinstance(given, Mapping):
        return {str(name): str(value) for name, value in given.items()}
    pairs = (part.partition("=") for part in str(given or "").split(","))
    return {name.strip(): value.strip() for name, equals, value in pairs if equals}


def _metrics_of_first(samples: Path) -> tuple[str, ...]:
    first = next(read_lines(samples), None)
    return tuple(name for name in first[1] if name not in LINE_KEYS) if first else ()


def _run_names(files: Sequence[Path]) -> dict[Path, str]:
    """Return a name for each log's run: its folder, or that and the stamp where a folder has several runs.

    lmms-eval puts a run in a folder called after the model: the folder above it says more.
    """
    stamps: dict[Path, set[str]] = {}
    for file in files:
        stamps.setdefault(file.parent, set()).add(_stamp_and_task(file)[0])
    short = {folder: _folder_name(folder) for folder in stamps}
    taken = list(short.values())
    names = {folder: name if taken.count(name) == 1 else str(folder).strip("/") for folder, name in short.items()}
    several = {folder for folder, of_folder in stamps.items() if len(of_folder) > 1}
    ends = {file: f"/{_stamp_and_task(file)[0]}" if file.parent in several else "" for file in files}
    return {file: f"{names[file.parent]}{end}" for file, end in ends.items()}


def _folder_name(folder: Path) -> str:
    folder = folder.resolve()
    return folder.parent.name if "__" in folder.name and folder.parent.name else folder.name


def _stamp_and_task(file: Path) -> tuple[str, str]:
    found = _SAMPLES.fullmatch(file.name)
    assert found is not None
    return found["stamp"], whole_text(found["task"])


def _refuse_twice(files: Sequence[Path]) -> None:
    """Refuse a log that lies there plain and gzipped."""
    plain: dict[Path, Path] = {}
    for file in files:
        name = file.with_name(file.name.removesuffix(".gz"))
        if name in plain:
            raise InvalidInput(f"{file}: two runs with one stamp and task; {plain[name].name} is beside it: remove one")
        plain[name] = file


def _record(values: Mapping[str, Any], samples: Path, line: int) -> LogRecord:
    where = f"{samples}:{line}"
    doc_id, doc = values.get("doc_id"), values.get("doc")
    if isinstance(doc_id, bool) or not isinstance(doc_id, (int, str)):
        raise InvalidInput(f"{where}: no doc_id, so not a line of lmms-eval's samples; it has {_listed(values)}")
    return LogRecord(
        doc_id=doc_id,
        where=where,
        line=line,
        doc=doc if isinstance(doc, Mapping) else None,
        target=str(values.get("target", "")),
        response=_text(values.get("filtered_resps", values.get("resps", ""))),
        prompt=_text(values.get("input", "")),
        metrics={name: value for name, value in values.items() if name not in LINE_KEYS},
        prompt_hash=str(values.get("prompt_hash") or ""),
    )


def _text(value: Any) -> str:
    """Return a response: lmms-eval writes it bare, in a list, or in a list of lists."""
    while isinstance(value, list) and value:
        value = value[0]
    return value if isinstance(value, str) else "" if value in (None, []) else json.dumps(value, ensure_ascii=False)


def _number(value: Any, name: str, unit: str, where: str) -> float:
    if isinstance(value, str) and (value.isdecimal() or _DECIMAL.fullmatch(value)):
        value = int(value) if value.isdecimal() else float(value)
    if type(value) not in (int, float) or not 0 <= value < math.inf:
        raise InvalidInput(f"{where}: {name} holds {_short(value)}, which is not a number of {unit}")
    number: float = value
    if unit == "seconds":
        return number
    if number != int(number):
        raise InvalidInput(f"{where}: {name} holds {value}, which is no frame; are these seconds? (--unit seconds)")
    return int(number)


def _first_text(entry: Mapping[str, Any], names: Sequence[str]) -> str | None:
    value = next((entry[name] for name in names if entry.get(name) is not None), None)
    return None if value is None else str(value)


def _parsed(line: bytes, path: Path, number: int, expected: int | None) -> dict[str, Any]:
    try:
        values = json.loads(text := line.decode("utf-8-sig"))
        values = whole_texts(values) if HALF_ESCAPED.search(text) else values
    except ValueError as error:
        if not line.endswith(b"\n"):
            raise _cut_off(path, number, expected) from error
        raise InvalidInput(f"{path}:{number}: not JSON ({error}); the file was edited or damaged") from error
    except RecursionError as error:
        raise InvalidInput(f"{path}:{number}: JSON nested too deeply") from error
    if not isinstance(values, dict):
        raise InvalidInput(f"{path}:{number}: not an object but {type(values).__name__}; write one object a line")
    return values


def _cut_off(path: Path, number: int, expected: int | None) -> InvalidInput:
    of = f" of {expected}" if expected else ""
    return InvalidInput(f"{path}:{number}: cut off here, {number - 1}{of} lines are whole; copy the file again")


def _listed(names: Any) -> str:
    return ", ".join(sorted(map(str, names))) or "nothing"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
