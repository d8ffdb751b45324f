"""Tasks of lmms-eval: the functions of our task files, scores, and the names of a task's prompts.

A score is 1 or 0, or VSI-Bench's partial credit. A question without an answer (`NO_ANSWER`) or with one that cannot
be read scores 0 and is counted, as `no_answer` and `unparsed`.

lmms-eval looks a task's prompts and generation arguments up by the name given to `--model`, else under "default". No
task's file has a name of ours, so the name of the stock wrapper is looked up as well (`prompts_for`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, SupportsFloat, TypedDict

import yaml

from focus_eval.bench.benchmarks.question import BUCKETS, Benchmark
from focus_eval.bench.benchmarks.registry import benchmark_of_task, make_benchmark
from focus_eval.bench.benchmarks.subtitles import SubtitleFacts
from focus_eval.bench.lmms.parsing import (
    REASONING_TAGS,
    ParsedAnswer,
    TagPairs,
    guessing,
    read_answer,
    strip_reasoning,
)
from focus_eval.bench.lmms.replies import read_option
from focus_eval.core.errors import FocusEvalError, InvalidInput, UnknownName
from focus_eval.core.resources import read_yaml, resource_path
from focus_eval.core.types import Question
from focus_eval.keyframes.rows.records import error_line
from focus_eval.keyframes.subtitles.prompts import block_text

if TYPE_CHECKING:
    from lmms_eval.api.task import ConfigurableTask

# What lmms-eval gets for a question without an answer. None of its parsers for our benchmarks reads an option or a
# number in it (no capital letter, no digit, no number word). LongVideoBench's own then guesses at random, as it
# does for every answer it cannot read; our tasks count it as unparsed.
NO_ANSWER = "[focus-eval: no result; see the error in the row]"


# What a task's dictionary for one question calls its score, the most explicit name first.
_SCORE_NAMES = ("score", "correct", "is_correct", "accuracy", "acc")
_ANSWER_PAIRS = (("pred_answer", "answer"), ("parsed_pred", "answer"), ("pred", "ground_truth"))


def task_score(
    task: ConfigurableTask | None,
    question: Question,
    document: Mapping[str, object],
    reply: str,
    *,
    seed: int,
    reasoning_tags: TagPairs = REASONING_TAGS,
) -> ParsedAnswer:
    """Score the `reply` to `question`, made from `document`, by `process_results` of the lmms-eval task.

    The score is the first value in [0, 1], in the task's order of metrics, of a metric for which higher is better.
    There is no score without such a metric, without a task, or if `process_results` fails. A task that guesses does so
    from `seed`.
    """
    text, is_cut = strip_reasoning(reply, reasoning_tags)
    parsed = read_option(text, question.options) if question.options else text
    unscored = ParsedAnswer(None if is_cut else parsed, None, is_cut=is_cut)
    if task is None:
        return unscored
    try:
        with guessing(question, seed):
            # Call the function directly: the task's method retries a damaged document for ten seconds.
            process_results = task.config.process_results
            results = (
                process_results(document, [text.strip()])
                if callable(process_results)
                else task.process_results(document, [text])
            )
    except (Exception, SystemExit) as error:  # noqa: BLE001 (a task of others; its answer stays, unscored)
        from loguru import logger  # comes with lmms-eval; a plan reads this module without it

        logger.warning(f"{task.config.task}: its process_results failed, the answer is not scored: {error_line(error)}")
        return unscored
    metrics = {str(entry.get("metric")): entry for entry in task.config.metric_list or [] if isinstance(entry, Mapping)}
    # Skip error measures, where lower is better.
    for metric, entry in metrics.items():
        score = score_in(results.get(metric)) if entry.get("higher_is_better", True) else None
        if score is not None:
            return replace(unscored, score=score, metric=metric)
    return unscored


def score_in(value: object) -> float | None:
    """Return the score of one question in [0, 1] from a metric's value; None if it has none.

    The value is a number, or a mapping with a score or with the predicted and the target answer, which are compared.
    """
    # A task gives a number, or the facts that its aggregation needs later.
    if isinstance(value, Mapping):
        for name in _SCORE_NAMES:
            if name in value:
                return score_in(value[name])
        for prediction_field, target_field in _ANSWER_PAIRS:
            if prediction_field in value and target_field in value:
                return float(str(value[prediction_field]).strip().upper() == str(value[target_field]).strip().upper())
        return None
    if not isinstance(value, (SupportsFloat, str)):
        return None
    try:
        score = float(value)
    except (TypeError, ValueError):
        return None
    # Outside [0, 1] it may be a count or a percentage: unknown.
    return score if 0.0 <= score <= 1.0 else None


Document = Mapping[str, object]


class Result(TypedDict):
    """The facts of one answer, from which every metric is computed."""

    id: str
    video: str
    bucket: str
    type: str
    answer: str | None
    parsed: str | None
    score: float | None
    no_answer: bool


class _TaskFunction(Protocol):
    """A function of a task of lmms-eval."""

    def __call__(self, *args: object, **options: object) -> Any: ...


METRICS = ("accuracy", *(f"accuracy_{bucket}" for bucket in BUCKETS), "unparsed", "no_answer")


# Prompts and paths: lmms-eval's own.


def _task_function(benchmark: str, name: str) -> _TaskFunction:
    """A function that imports and calls `name` of a benchmark's lmms-eval task; the import may fail here."""

    def call(*args: object, **options: object) -> Any:
        """Import the benchmark's module of lmms-eval and call its function."""
        return getattr(import_module(f"lmms_eval.tasks.{benchmark}.utils"), name)(*args, **options)

    return call


longvideobench_text = _task_function("longvideobench", "longvideobench_doc_to_text")
videomme_text = _task_function("videomme", "videomme_doc_to_text")
mlvu_text = _task_function("mlvu", "mlvu_doc_to_text")
vsibench_documents = _task_function("vsibench", "process_docs")
vsibench_text = _task_function("vsibench", "vsibench_doc_to_text")


# These functions take one argument only: lmms-eval passes further arguments to a function that takes more.
def videomme_visual(doc: Document) -> list[str]:
    """Return the path of a Video-MME document's video, as a list of one."""
    return list(_task_function("videomme", "videomme_doc_to_visual")(doc))


def vsibench_visual(doc: Document) -> list[str]:
    """Return the path of a VSI-Bench document's video, as a list of one."""
    return list(_task_function("vsibench", "vsibench_doc_to_visual")(doc))


def longvideobench_visual(doc: Document) -> list[str]:
    """Return the path of a LongVideoBench document's video, as a list of one."""
    return [os.path.join(_longvideobench_videos(os.getenv("HF_HOME")), str(doc["video_path"]))]


@cache
def _longvideobench_videos(hf_home: str | None) -> str:
    """LongVideoBench's folder of videos, as lmms-eval finds it; cached, for finding it takes 25 ms."""
    from lmms_eval.tasks.longvideobench.utils import longvideobench_doc_to_visual_v

    (folder,) = longvideobench_doc_to_visual_v({"video_path": ""})
    return str(folder)


def mlvu_visual(doc: Document) -> list[str]:
    """Return the path of an MLVU document's video, as a list of one.

    Raises:
        InvalidInput: HF_HOME is not set; lmms-eval's own default for this task points nowhere.
    """
    if not os.getenv("HF_HOME"):
        raise InvalidInput("MLVU's videos are looked for below $HF_HOME/mlvu: set HF_HOME")
    return list(_task_function("mlvu", "mlvu_doc_to_visual_dev")(doc))


# Scores.


def longvideobench_results(doc: Document, results: list[str]) -> dict[str, Result]:
    """Return the facts of one answer under each of `METRICS`; the bucket follows the video's own duration."""
    return _results("longvideobench", doc, results, longvideobench_visual)


def videomme_results(doc: Document, results: list[str]) -> dict[str, Result]:
    """Return the facts of one answer under each of `METRICS`; the bucket is the document's `duration`."""
    return _results("videomme", doc, results, videomme_visual)


def mlvu_results(doc: Document, results: list[str]) -> dict[str, Result]:
    """Return the facts of one answer under each of `METRICS` and "macro_accuracy" (mean over task types)."""
    result = _results("mlvu", doc, results, mlvu_visual)
    return {**result, "macro_accuracy": result["accuracy"]}


def vsibench_results(doc: Document, results: list[str]) -> dict[str, Result]:
    """Return the facts of one answer under each of `METRICS` and "macro_accuracy" (mean over question types)."""
    result = _results("vsibench", doc, results, vsibench_visual)
    return {**result, "macro_accuracy": result["accuracy"]}


def _results(
    benchmark: str, doc: Document, results: list[str], visual: Callable[[Document], list[str]]
) -> dict[str, Result]:
    """Return the facts of one answer under each of `METRICS`: ids, bucket, type, parsed answer and score.

    `visual` gives the video's path, whose length decides the bucket where no length is stated.
    """
    declared_benchmark = make_benchmark(benchmark)
    question = declared_benchmark.question(doc)
    # lmms-eval gives a list, with one text for the one request of a document.
    text = results[0]
    reading = read_answer(question, text)
    result: Result = {
        "id": question.id,
        "video": question.video,
        # Probe the length last: it opens the file.
        "bucket": question.bucket or _bucket(declared_benchmark, question, doc, visual),
        "type": (declared_benchmark.facts.strata([question.category]) or [question.category])[0],
        "answer": question.answer,
        "parsed": reading.parsed,
        "score": reading.score,
        "no_answer": text == NO_ANSWER,
    }
    # lmms-eval collects values by metric, and all our metrics aggregate the same result.
    return dict.fromkeys(METRICS, result)


def _bucket(benchmark: Benchmark, question: Question, doc: Document, visual: Callable[[Document], list[str]]) -> str:
    """The length bucket; "" if the length is not stated and the video cannot be read."""
    if question.duration_seconds is not None:
        return benchmark.bucket(question.duration_seconds)
    try:
        return benchmark.bucket(_probed_seconds(visual(doc)[0]))
    except (FocusEvalError, OSError, SystemExit):  # lmms-eval ends the process where a file is missing
        return ""


@cache
def _probed_seconds(path: str) -> float:
    """The length in seconds of the video at `path`, from the file; cached."""
    from focus_eval.keyframes.video import open_video

    with open_video(Path(path)) as reader:
        return reader.info.duration_seconds


# Metrics: all are computed from the same results.


def accuracy(scores: list[Result]) -> float:
    """Return the mean score of the questions whose answer is known; NaN without any."""
    known_scores = [score for result in scores if (score := result["score"]) is not None]
    return sum(known_scores) / len(known_scores) if known_scores else float("nan")


def _accuracy_of(bucket: str) -> Callable[[list[Result]], float]:
    """The metric that averages the scores of one length bucket; NaN without any."""
    return lambda scores: accuracy([score for score in scores if score["bucket"] == bucket])


accuracy_short, accuracy_medium, accuracy_long = map(_accuracy_of, BUCKETS)


def unparsed(scores: list[Result]) -> int:
    """Return the number of answers in which no option could be read; answers that failed do not count."""
    return sum(score["parsed"] is None and not score["no_answer"] for score in scores)


def no_answer(scores: list[Result]) -> int:
    """Return the number of questions without an answer."""
    return sum(score["no_answer"] for score in scores)


def macro_accuracy(scores: list[Result]) -> float:
    """Return the mean over the question types present, parts of a type averaged first; NaN without scores."""
    from focus_eval.bench.report.statistics import stratum_weights

    known_scores = {at: score for at, result in enumerate(scores) if (score := result["score"]) is not None}
    weights = stratum_weights([scores[at]["type"] for at in known_scores])
    return float(sum(weights * list(known_scores.values()))) if known_scores else float("nan")


# The fields of a task's file that lmms-eval looks up by the model's name.
BY_MODEL = ("lmms_eval_specific_kwargs", "model_specific_generation_kwargs", "model_specific_target_kwargs")
DEFAULT = "default"


def prompts_for(task: Mapping[str, object], model: str, stock_name: str) -> str:
    """Return the name under which a task has prompts or generation arguments for `model`; "default" if there is none.

    Args:
        task: values of the task's file, or of lmms-eval's configuration of the task.
        stock_name: lmms-eval's name of the wrapper behind `model`; "" for none.
    """
    kwargs_by_field = [kwargs for field in BY_MODEL if isinstance(kwargs := task.get(field), Mapping)]
    names = [name for name in (model, stock_name) if name]
    return next((name for name in names if any(name in kwargs for kwargs in kwargs_by_field)), DEFAULT)


def subtitles_of_task(task: str, arguments: Mapping[str, object]) -> SubtitleFacts | None:
    """Return how a task of lmms-eval writes subtitles of evenly spaced frames into prompts; None if it writes none.

    Args:
        arguments: of the task for one model, see `task_arguments`.
    """
    try:
        facts = benchmark_of_task(task).facts.subtitles
    except UnknownName:
        return None
    if facts is None or task in facts.tasks or arguments.get("insert_interleave_subtitles"):
        return facts
    return None


def leave_subtitles_out(task: ConfigurableTask) -> None:
    """Let a task of lmms-eval that writes subtitles of evenly spaced frames write prompts without them.

    The original function is kept as the attribute `with_subtitles` of its replacement. A task that would decode frames
    itself returns the path of the video instead.
    """
    facts = subtitles_of_task(task.config.task, task.lmms_eval_specific_kwargs or {})
    own_text = task.config.doc_to_text
    if facts is None or not callable(own_text) or hasattr(own_text, "with_subtitles"):
        return

    def text_without(doc: Document, lmms_eval_specific_kwargs: Mapping[str, object] | None = None) -> str:
        """Return the task's prompt without subtitles."""
        arguments = {**(lmms_eval_specific_kwargs or {}), "insert_interleave_subtitles": False}
        if facts.rule == "longvideobench":
            return str(own_text(doc, arguments))
        # For a video without a subtitle file the task writes one known line instead.
        text = str(own_text({**doc, "videoID": f"{doc['videoID']}.no_subtitles"}, arguments))
        return text.removeprefix(block_text((), absence=facts.without_file))

    text_without.with_subtitles = own_text  # type: ignore[attr-defined]
    task.config.doc_to_text = text_without
    if facts.rule == "longvideobench":
        task.config.doc_to_visual = longvideobench_visual


@cache
def task_values(task: str, include_path: str = "") -> dict[str, object]:
    """Return the values in the YAML file of an lmms-eval task, included files merged; functions are None.

    Args:
        include_path: folder of further task files, as in lmms-eval's option; "" for none.

    Raises:
        InvalidInput: the task has no file among ours, in lmms-eval or in `include_path`.
    """
    return _values(_task_file(task, include_path))


def _task_file(task: str, include_path: str) -> Path:
    """Return the YAML file of a task: ours, else lmms-eval's, else that in `include_path`.

    Raise InvalidInput if there is none, or if both `include_path` and lmms-eval have one: lmms-eval would use its own.
    """
    # Our own file comes first, as it does when lmms-eval loads the task.
    packaged_file = resource_path("tasks") / f"{task}.yaml"
    if task and packaged_file.is_file():
        return packaged_file
    # Locate lmms-eval without importing it, which takes seconds.
    module_spec = find_spec("lmms_eval")
    folders = (
        [Path(folder) / "tasks" for folder in (module_spec.submodule_search_locations or [])] if module_spec else []
    )
    own_file = next(iter(sorted(Path(include_path).rglob(f"{task}.yaml"))), None) if include_path else None
    for folder in folders:
        for file in sorted(folder.rglob(f"{task}.yaml")):
            if own_file is not None:
                raise InvalidInput(f"{own_file}: lmms-eval has a task {task!r} too; rename yours")
            return file
    if own_file is not None:
        return own_file
    raise InvalidInput(
        f"task {task!r} is known neither to focus-eval nor to lmms-eval: there is no {task}.yaml"
        + (f" in {include_path} (include_path)" if include_path else "; include_path names the folder of an own task")
    )


class _TaskLoader(yaml.SafeLoader):
    """Reads a task file without loading the functions of its `!function` tags."""


# Ignore `!function` tags: loading them would import the task's code.
_TaskLoader.add_multi_constructor("!", lambda loader, suffix, node: None)


def _values(file: Path) -> dict[str, object]:
    """The values of a task file, over those of the file that it includes."""
    values: dict[str, object] = read_yaml(file, _TaskLoader) or {}
    included = values.pop("include", None)
    # Own values override included ones.
    return {**_values(file.parent / str(included)), **values} if included else values
