"""Reads the logs that lmms-eval leaves, a line at a time.

A run leaves `STAMP_results.json` and, per task, `STAMP_samples_TASK.jsonl` with one line per document; either may be
gzipped. Fields differ between versions and forks: `doc` may be missing, and frames are not part of the format, so they
are read from a field that the caller names.

    for log in find_logs(Path("logs")):        # one per task of each run
        for record in log.records():           # streamed; an error names file and line
            verdict = verdict_of(record.metrics[log.metric_names[0]])
            frames = record.frames("indices")  # None if the line does not have the field
"""

from __future__ import annotations

import glob
import hashlib
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from focus_eval.bench.rows.entries import Verdict, read_lines
from focus_eval.bench.rows.store import parquet_columns, parquet_records
from focus_eval.core.errors import InvalidInput
from focus_eval.core.resources import read_json, whole_text
from focus_eval.keyframes.subtitles.prompts import task_arguments

# Keys that lmms-eval itself writes; all other keys come from the task.
LINE_KEYS = frozenset(
    (
        *("doc_id", "doc", "target", "arguments", "resps", "filtered_resps", "token_counts", "input", "input_media"),
        *("doc_hash", "prompt_hash", "target_hash"),
    )
)
# Columns to read from a Parquet table with the answers of several runs.
TABLE_COLUMNS = ("run", "id", "frames", "resp", "target", "score")
# Suffixes of VLMEvalKit's prediction tables; each table is one log.
PREDICTION_SUFFIXES = (".xlsx", ".tsv")
# Names that tasks give to the parsed prediction, the right answer and the score.
PREDICTED = ("parsed_pred", "pred_answer", "parsed_answer", "pred", "prediction")
RIGHT = ("answer", "gt_answer", "ground_truth", "target", "gt")
WORTH = ("score", "correct", "is_correct", "accuracy")
# Arguments of lmms-eval's model wrappers and of our plugin that set how many frames a model is shown.
_FRAME_ARGUMENTS = (
    "frames",
    "max_num_frames",
    "max_frames_num",
    "max_frames",
    "num_frames",
    "num_frame",
    "nframes",
    "num_frm",
)
_LETTER = re.compile(r"^\W*([A-Z])(?:\W|$)")
_SAMPLES = re.compile(r"(?P<stamp>.+?)_samples_(?P<task>.+)\.jsonl(?:\.gz)?")
_DECIMAL = re.compile(r"\d+\.\d+")


@dataclass(frozen=True, kw_only=True)
class LogRecord:
    """One document of a log.

    Args:
        doc_id: the document's row in its split.
        location: file and line, for messages.
        line: number of the line, from 1.
        doc: the document's fields; None if the log leaves them out.
        target: the right answer as the task gave it, as text.
        response: the model's response after the task's filter.
        prompt: the text sent to the model.
        metrics: the task's entries by metric: numbers, or dictionaries that `verdict_of` reads.
        prompt_hash: the log's hash of the prompt; "" if it has none.
        n_responses: number of responses (`repeats` of lmms-eval); `response` is the first.
    """

    doc_id: int | str
    location: str
    line: int
    doc: Mapping[str, Any] | None
    target: str
    response: str
    prompt: str
    metrics: Mapping[str, Any]
    prompt_hash: str = ""
    n_responses: int = 1

    @property
    def prompt_digest(self) -> str:
        """Digest of the prompt's text, else the log's own prompt hash; "" without either."""
        if self.prompt:
            return "text " + hashlib.sha256(self.prompt.encode()).hexdigest()[:16]
        return f"hash {self.prompt_hash[:16]}" if self.prompt_hash else ""

    def value(self, name: str) -> Any:
        """Return field `name` of the document, else the value at a dotted path of the line ("lvb_acc.id").

        None if neither exists.
        """
        if self.doc is not None and name in self.doc:
            return self.doc[name]
        value: Any = self.metrics
        for part in name.removeprefix("doc.").split("."):
            value = self.doc if name.startswith("doc.") and value is self.metrics else value
            value = value.get(part) if isinstance(value, Mapping) else None
        return value

    def frames(self, name: str, *, unit: str = "frames") -> tuple[float, ...] | None:
        """Return the frames (or seconds) in field `name`, in the log's order; None if the line has no such field.

        Whole numbers written as text ("232"), as some forks write them, are read too.

        Raises:
            InvalidInput: the field is no list, or an item is not a number of `unit`.
        """
        values = self.value(name)
        if values is None:
            return None
        if not isinstance(values, Sequence) or isinstance(values, str):
            raise InvalidInput(
                f"{self.location}: {name} holds {short_text(values)}, not a list of {unit}; name another field"
            )
        if all(type(value) is int and value >= 0 for value in values):
            return tuple(values)
        return tuple(_number(value, name, unit, self.location) for value in values)


@dataclass(frozen=True, kw_only=True)
class LmmsLog:
    """One task of one run: the contents of its results file, and the file of its samples.

    Args:
        run: short name, unique among the logs found together.
        stamp, task, split: time stamp, task and split of the run; `split` is "" if no results file states it.
        samples, results: paths of the two files; `results` is None if there is no results file.
        model: checkpoint without its folders, else the name of the wrapper; "" if not known.
        model_args: arguments of the wrapper.
        scores: the task's numeric figures by metric, or by "metric,filter" if the task has several filters.
        metric_names: names of the metrics in the task's order, from the first line if there is no results file.
        n_samples: number of documents as stated in the results file; None if not stated.
        n_left_out: number of documents that the run's `limit` left out, as stated in the results file.
        git_hash: commit of lmms-eval; "" if not known.
        filters: answer filters with figures, in order; the log has one line per document and filter.
        task_arguments: the task's `lmms_eval_specific_kwargs` for the model; empty if not known.
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
    n_left_out: int = 0
    git_hash: str = ""
    filters: tuple[str, ...] = ()
    task_arguments: Mapping[str, Any] = field(default_factory=dict)

    @property
    def unnamed_model(self) -> str:
        """Clause for messages that says why the model is unknown, and names files that may be renamed results files."""
        if self.samples.suffix in PREDICTION_SUFFIXES:
            return "its name has no model, as GPT4o_Video-MME_8frame has one"
        result_names = sorted(file.name for file in self.samples.parent.glob("*results*.json*"))
        renamed = f"; {', '.join(result_names)}: renamed? A run's is {self.stamp}_results.json" if result_names else ""
        return f"no results file beside it names the model{renamed if self.results is None else ''}"

    def frames_asked(self, most_fed: int) -> int:
        """Return K: the larger of the wrapper's frame argument and `most_fed`; 0 if unknown.

        Args:
            most_fed: largest number of frames that a question was fed.
        """
        frame_texts = (self.model_args.get(name, "") for name in _FRAME_ARGUMENTS)
        return max(most_fed, next((int(text) for text in frame_texts if text.isdecimal()), 0))

    def records(self) -> Iterator[LogRecord]:
        """Yield a record per line, in the file's order; only one line is held in memory.

        Raises:
            InvalidInput: a line that is cut off, damaged or shaped unlike the first line, or a repeated document.
        """
        first: frozenset[str] | None = None
        lines_of: dict[int | str, tuple[int, int]] = {}
        for number, values in self._lines():
            record = _record(values, self.samples, number)
            if first is None:
                first = frozenset(record.metrics)
            elif first != frozenset(record.metrics):
                raise InvalidInput(
                    f"{record.location}: has {_listed(record.metrics)}, line 1 has {_listed(first)}: "
                    "logs of two tasks in one file; give each its own"
                )
            # Compare the scores too: two filters may pass on the same response and score it differently.
            content = (record.response, record.prompt, record.target, record.prompt_hash, repr(record.metrics))
            digest = hash(content)
            if record.doc_id in lines_of:
                line, earlier = lines_of[record.doc_id]
                fix = "two runs, models or filters wrote into this file: keep the lines of one"
                if len(self.filters) > 1:
                    fix = f"lmms-eval writes all lines for each filter ({', '.join(self.filters)}): keep those of one"
                elif digest == earlier:
                    fix = "remove one of the two equal lines"
                raise InvalidInput(
                    f"{record.location}: doc_id {record.doc_id} a second time, first in line {line}; {fix}"
                )
            lines_of[record.doc_id] = (number, digest)
            yield record

    def _lines(self) -> Iterator[tuple[int, dict[str, object]]]:
        """Yield (number from 1, object) of each line of the samples, or of each row of this run in a Parquet table."""
        if self.samples.suffix == ".parquet":
            return _table_lines(self.samples, self.run)
        return read_lines(self.samples, expected=self.n_samples)


def is_samples_file(path: Path) -> bool:
    """Return True if `path` is named as lmms-eval names the answers of a task."""
    return "_samples_" in path.name


def is_results_file(path: Path) -> bool:
    """Return True if `path` is named as lmms-eval names the figures of a run."""
    return "_results." in path.name


def has_samples(folder: Path) -> bool:
    """Return True if samples lie in `folder` or below."""
    return any(folder.glob("**/*_samples_*.jsonl*"))


def run_name_of(path: Path) -> str:
    """Return the stamp in the name of a file of samples, or the name of a folder, as a name for the run."""
    return path.resolve().name.partition("_samples_")[0]


def find_logs(path: str | Path) -> list[LmmsLog]:
    """Return the logs in a file of samples or below a folder, in the order of their names.

    A Parquet file with the columns `TABLE_COLUMNS` holds the answers of several runs and gives a log for each, without
    a task.

    Raises:
        InvalidInput: no samples at `path`, a log that is there twice, or samples of a task without results.
    """
    path = Path(path)
    if path.suffix == ".parquet":
        return _logs_of_table(path)
    # Use glob, which follows links unlike rglob: run folders are often links.
    sample_paths = glob.glob("**/*_samples_*.jsonl*", root_dir=path, recursive=True) if path.is_dir() else []
    files = [path, *(path / name for name in sorted(sample_paths))]
    files = [file for file in files if file.is_file() and _SAMPLES.fullmatch(file.name)]
    if not files:
        if not path.exists():
            raise InvalidInput(f"{path}: no such file or folder")
        if path.suffix == ".zip" or (path / "answers").is_dir():
            raise InvalidInput(f"{path}: a run already, no log; report, compare, audit and evidence read it as it is")
        raise InvalidInput(
            f"{path}: no STAMP_samples_TASK.jsonl (or .gz) here; run lmms-eval with --log_samples --output_path"
        )
    _refuse_twice(files)
    names = _run_names(files)
    return [_log(file, names[file]) for file in files]


def verdict_of(entry: object) -> Verdict | None:
    """Return score, predicted and right answer of a metric's entry; None if it has none, e.g. a submission."""
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


def read_answer(response: str, verdict: Verdict, options: Sequence[str]) -> str | None:
    """Return the answer that the task read from `response`; None if it read none, or a letter the response lacks.

    If the log does not say which answer the task read, return the response's leading letter, or without one the whole
    response.
    """
    predicted = verdict.predicted
    if predicted is None:  # the log has a score but does not say which answer was read
        letter_match = _LETTER.match(response)
        return letter_match[1] if letter_match else response.strip() or None
    return None if not predicted.strip() or _is_guess(predicted, response, options) else predicted


def _is_guess(letter: str, response: str, options: Sequence[str]) -> bool:
    """True if `letter` is A to Z, and neither it nor its option's text is in the response."""
    if not (len(letter) == 1 and "A" <= letter <= "Z"):
        return False
    at = ord(letter) - ord("A")
    text = options[at].casefold() if at < len(options) else ""
    is_there = re.search(rf"(?<![A-Za-z]){letter}(?![A-Za-z])|(?i:^\W*{letter}(?:\W|$))", response)
    return not is_there and (not text or text not in response.casefold())


def _log(samples: Path, run: str) -> LmmsLog:
    """Return the log of a file of samples, with the facts of its results file if there is one.

    Raises InvalidInput if the results file has no figures of this task.
    """
    stamp, task = _stamp_and_task(samples)
    paths = [samples.with_name(f"{stamp}_results.json{end}") for end in ("", ".gz")]
    results = next((file for file in paths if file.is_file()), None)
    if results is None:
        first = next(read_lines(samples), None)
        return LmmsLog(
            run=run,
            stamp=stamp,
            task=task,
            samples=samples,
            metric_names=tuple(name for name in first[1] if name not in LINE_KEYS) if first else (),
        )
    content = read_json(results)
    if not isinstance(content, dict) or not isinstance(content.get("results"), dict):
        raise InvalidInput(f"{results}: not lmms-eval's results: the key `results` is missing")
    if task not in content["results"]:
        raise InvalidInput(
            f"{samples}: {results.name} beside it has no task {task!r}, but {_listed(content['results'])}; "
            "give each run its own folder"
        )
    config, run_config = _object(_object(content.get("configs")).get(task)), _object(content.get("config"))
    scores, filters = _scores(_object(content["results"][task]))
    listed = [str(_object(item).get("metric", "")) for item in config.get("metric_list") or ()]
    arguments = _arguments(run_config.get("model_args"))
    model = content.get("model_name") or arguments.get("pretrained") or run_config.get("model") or ""
    sample_counts = _object(_object(content.get("n-samples")).get(task))
    n_asked, n_documents = (sample_counts.get(name) for name in ("effective", "original"))
    n_left_out = 0
    if run_config.get("limit") is not None and isinstance(n_asked, int) and isinstance(n_documents, int):
        n_left_out = max(0, n_documents - n_asked)
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
        n_samples=n_asked,
        n_left_out=n_left_out,
        git_hash=str(content.get("git_hash") or ""),
        filters=filters,
        task_arguments=task_arguments(
            _object(config.get("lmms_eval_specific_kwargs")), str(run_config.get("model") or "")
        ),
    )


def _logs_of_table(path: Path) -> list[LmmsLog]:
    """A log for each run in a Parquet table of answers; raises InvalidInput if it lacks a column."""
    columns = parquet_columns(path)
    missing = [name for name in TABLE_COLUMNS if name not in columns]
    if missing:
        raise InvalidInput(f"{path}: no column {missing[0]!r}; a table of answers has {', '.join(TABLE_COLUMNS)}")
    runs = dict.fromkeys(str(row["run"]) for row in parquet_records(path, columns=["run"]))
    return [LmmsLog(run=run, stamp="", task="", samples=path, metric_names=("score",)) for run in runs]


def _table_lines(path: Path, run: str) -> Iterator[tuple[int, dict[str, object]]]:
    """Yield the rows of one run as lines of a log; the question's id takes the place of `doc_id`."""
    import pyarrow.dataset as ds

    batches = ds.dataset(path).to_batches(columns=list(TABLE_COLUMNS), filter=ds.field("run") == run)
    for number, row in enumerate((row for batch in batches for row in batch.to_pylist()), start=1):
        doc = {"id": row["id"], "frames": row["frames"]}
        answer = {"target": row["target"], "filtered_resps": row["resp"], "score": row["score"]}
        yield number, {"doc_id": row["id"], "doc": doc, **answer}


def _object(value: object) -> Mapping[str, Any]:
    """`value` if it is a JSON object, else {}: some versions and forks write other types there."""
    return value if isinstance(value, Mapping) else {}


def _scores(values: Mapping[str, Any]) -> tuple[dict[str, float], tuple[str, ...]]:
    """Return a task's numeric results by metric, without standard errors, and its filters.

    If the task has several filters, the metric's name is followed by its filter ("exact_match,strict-match").
    """
    figures: dict[tuple[str, str], float] = {}
    for name, value in values.items():
        metric, _, filter_name = name.partition(",")
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if filter_name and is_number and not metric.endswith(("_stderr", "_stderr_clt", "_stderr_clustered")):
            figures[metric, filter_name] = float(value)
    filters = tuple(dict.fromkeys(filter_name for _, filter_name in figures))
    has_several = len(filters) > 1
    names = {key: ",".join(key) if has_several and key[1] != "none" else key[0] for key in figures}
    return {names[key]: value for key, value in figures.items()}, filters


def _arguments(stated_arguments: object) -> dict[str, str]:
    """A wrapper's arguments, written "a=1,b=2" or as an object, by name."""
    if isinstance(stated_arguments, Mapping):
        return {str(name): str(value) for name, value in stated_arguments.items()}
    pairs = (part.partition("=") for part in str(stated_arguments or "").split(","))
    return {name.strip(): value.strip() for name, equals, value in pairs if equals}


def _run_names(files: Sequence[Path]) -> dict[Path, str]:
    """Return a name for each log's run: its folder, or folder and stamp if a folder has several runs.

    lmms-eval names a run's folder after the model; then the folder above it is used.
    """
    stamps: dict[Path, set[str]] = {}
    for file in files:
        stamps.setdefault(file.parent, set()).add(_stamp_and_task(file)[0])
    short: dict[Path, str] = {}
    for folder in stamps:
        resolved = folder.resolve()
        is_of_model = "__" in resolved.name and resolved.parent.name
        short[folder] = resolved.parent.name if is_of_model else resolved.name
    short_names = list(short.values())
    names = {folder: name if short_names.count(name) == 1 else str(folder).strip("/") for folder, name in short.items()}
    several = {folder for folder, of_folder in stamps.items() if len(of_folder) > 1}
    ends = {file: f"/{_stamp_and_task(file)[0]}" if file.parent in several else "" for file in files}
    return {file: f"{names[file.parent]}{end}" for file, end in ends.items()}


def _stamp_and_task(file: Path) -> tuple[str, str]:
    """The time stamp and the task in the name of a file of samples."""
    name_match = _SAMPLES.fullmatch(file.name)
    assert name_match is not None
    return name_match["stamp"], whole_text(name_match["task"])


def _refuse_twice(files: Sequence[Path]) -> None:
    """Raise InvalidInput if one log is there both plain and gzipped."""
    plain: dict[Path, Path] = {}
    for file in files:
        name = file.with_name(file.name.removesuffix(".gz"))
        if name in plain:
            raise InvalidInput(f"{file}: two runs with one stamp and task; {plain[name].name} is beside it: remove one")
        plain[name] = file


def _record(values: Mapping[str, object], samples: Path, line: int) -> LogRecord:
    """The record in a decoded line; raises InvalidInput for a line without doc_id."""
    location = f"{samples}:{line}"
    doc_id, doc = values.get("doc_id"), values.get("doc")
    if isinstance(doc_id, bool) or not isinstance(doc_id, (int, str)):
        raise InvalidInput(f"{location}: no doc_id, so not a line of lmms-eval's samples; it has {_listed(values)}")
    return LogRecord(
        doc_id=doc_id,
        location=location,
        line=line,
        doc=doc if isinstance(doc, Mapping) else None,
        target=str(values.get("target", "")),
        response=_text(values.get("filtered_resps", values.get("resps", ""))),
        prompt=_text(values.get("input", "")),
        metrics={name: value for name, value in values.items() if name not in LINE_KEYS},
        prompt_hash=str(values.get("prompt_hash") or ""),
        n_responses=_n_texts(values.get("filtered_resps", values.get("resps", ""))),
    )


def _text(value: object) -> str:
    """A response as text: lmms-eval writes it bare, in a list, or in a list of lists; "" if empty."""
    while isinstance(value, list) and value:
        value = value[0]
    return value if isinstance(value, str) else "" if value in (None, []) else json.dumps(value, ensure_ascii=False)


def _n_texts(value: object) -> int:
    """The number of texts in a list, or in the only list within it; 1 for any other value, e.g. scored options."""
    while isinstance(value, list) and len(value) == 1:
        value = value[0]
    if not isinstance(value, list) or not value:
        return 1
    are_texts = all(isinstance(item[0] if isinstance(item, list) and len(item) == 1 else item, str) for item in value)
    return len(value) if are_texts else 1


def _number(value: Any, name: str, unit: str, location: str) -> float:
    """Return `value`, a number or its text, as seconds, or as a whole frame number if `unit` is not "seconds".

    Raises InvalidInput, naming `location` and `name`, if `value` is no number, negative, infinite, or a fraction of a
    frame.
    """
    if isinstance(value, str) and (value.isdecimal() or _DECIMAL.fullmatch(value)):
        value = int(value) if value.isdecimal() else float(value)
    if type(value) not in (int, float) or not 0 <= value < math.inf:
        raise InvalidInput(f"{location}: {name} holds {short_text(value)}, which is not a number of {unit}")
    number: float = value
    if unit == "seconds":
        return number
    if number != int(number):
        raise InvalidInput(f"{location}: {name} holds {value}, which is no frame; are these seconds? (--unit seconds)")
    return int(number)


def _first_text(entry: Mapping[str, object], names: Sequence[str]) -> str | None:
    """The first value of `entry` under one of `names` that is not None, as text; None without any."""
    value = next((entry[name] for name in names if entry.get(name) is not None), None)
    return None if value is None else str(value)


def _listed(names: Iterable[object]) -> str:
    return ", ".join(sorted(map(str, names))) or "nothing"


def short_text(value: object) -> str:
    """Return `value` as Python writes it, cut to 40 characters, for a message."""
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
