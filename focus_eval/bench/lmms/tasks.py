"""Tasks of lmms-eval: the functions of our task files, strict parsing, scores, and the names of a task's prompts.

A score is 1 or 0, or VSI-Bench's partial credit. A question without an answer (`NO_ANSWER`) or with one that cannot
be read scores 0 and is counted, as `no_answer` and `unparsed`.

lmms-eval looks a task's prompts and generation arguments up by the name given to `--model`, else under "default". No
task's file has a name of ours, so the name of the stock wrapper is looked up as well (`prompts_for`).
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml

from focus_eval.bench.benchmarks.question import BUCKETS, Benchmark, letters
from focus_eval.bench.benchmarks.registry import make_benchmark
from focus_eval.core.errors import FocusEvalError, InvalidInput
from focus_eval.core.resources import read_yaml, resource_path
from focus_eval.core.types import AnswerParsing, Question
from focus_eval.keyframes.rows.records import error_line
from focus_eval.keyframes.samplers.base import derived_rng

# Strict: an option must be named without doubt; what cannot be read is wrong and counted as unparsed. lmms-eval's own
# rule for LongVideoBench (the first capital letter A to E anywhere, else a random option) is there as "lmms_eval": the
# random option gives the score, and counts as unparsed too.

# What lmms-eval gets for a question without an answer. None of its parsers for our benchmarks reads an option or a
# number in it (no capital letter, no digit, no number word). LongVideoBench's own then guesses at random, as it
# does for every answer it cannot read; our tasks count it as unparsed.
NO_ANSWER = "[focus-eval: no result; see the error in the row]"


@dataclass(frozen=True)
class _Patterns:
    """Patterns of an option letter in an answer: at its start, announced, and several letters (no answer)."""

    leading: re.Pattern[str]
    announced: re.Pattern[str]
    several: re.Pattern[str]


@cache
def _patterns(last: str) -> _Patterns:
    """Return the patterns for option letters A to `last`; cached."""
    letter = f"[A-{last}]"
    return _Patterns(
        # "C", "(C)", "C.", "C) text", "C: text"; a letter followed by a blank and more words is a word ("A man runs").
        leading=re.compile(rf"^\(?({letter})(?:\)|[.:,)](?=\s|$)|$)"),
        # "the answer is C", "Answer: (C)", "Best option: C", "I choose option C".
        announced=re.compile(
            r"(?:\b(?:answer|option|choice)\b(?:\s+(?:is|would be))?\s*[:=]?\s*(?:option\s+)?)"
            rf"[\"'*(\[]{{0,3}}({letter})(?=[\"'*)\].,:;]|\s*$|\s+(?:because|since|as|or|and)\b)",
            re.IGNORECASE,
        ),
        # "A or B", "(A) and (C)": two options are no answer.
        several=re.compile(rf"(?<!\w)\(?{letter}\)?,?\s+(?:or|and)\s+(?:the answer is |option )?\(?{letter}\)?(?!\w)"),
    )


@dataclass(frozen=True)
class ParsedAnswer:
    """An answer as parsed, and its score.

    Args:
        parsed: an option letter, a number as text, or an open answer; None if none can be read or it was guessed.
        score: in [0, 1]; None if the answer cannot be scored.
        metric: name of the task's own metric that gave the score; "" if focus-eval scored the answer.
    """

    parsed: str | None
    score: float | None
    metric: str = ""


def read_answer(
    question: Question, text: str, *, answer_parsing: AnswerParsing = "strict", rule: str = "letters", seed: int = 0
) -> ParsedAnswer:
    """Parse the answer `text` to `question` and score it.

    Args:
        answer_parsing: "lmms_eval" parses LongVideoBench as lmms-eval does, with its random guess drawn from (seed,
            question). Its rules for the other benchmarks never guess: there the two differ only in the accepted forms.
        rule: name of lmms-eval's rule for "lmms_eval" (see `BenchmarkFacts.lmms_eval_parsing`).
        seed: seed of the guess.
    """
    if not question.options:
        return _read_number(question, text)
    if answer_parsing == "lmms_eval":
        letter, is_guess = _read_as_lmms_eval(question, text, rule, seed)
    else:
        letter, is_guess = read_option(text, question.options), False
    is_right = letter is not None and letter == question.answer
    return ParsedAnswer(None if is_guess else letter, float(is_right))


def read_option(text: str, options: tuple[str, ...]) -> str | None:
    """Return the letter that `text` names among `options`, or None.

    Tried in this order: a leading letter ("C", "(C) text", "C. text"), one announced letter ("the answer is
    C"), and the exact text of one option. Several different letters announced are no answer.
    """
    option_letters = letters(len(options))
    # Up to H are letters of options to anyone; later ones only where there are so many options ("I" is a word).
    patterns = _patterns(option_letters[-1] if len(option_letters) > 8 else "H")
    # Models put their answer in quotes or in markdown.
    stripped_text = text.strip().strip("*`\"'").strip()
    leading_match = patterns.leading.match(stripped_text)
    if leading_match and not patterns.several.match(stripped_text):
        return leading_match[1] if leading_match[1] in option_letters else None
    if patterns.several.search(stripped_text):
        return None
    announced = {letter.upper() for letter in patterns.announced.findall(stripped_text)}
    if announced:
        return announced.pop() if len(announced) == 1 and announced <= set(option_letters) else None
    # Options may repeat: a text that fits two names neither.
    matching_letters = [
        letter
        for letter, option in zip(option_letters, options, strict=True)
        if _folded(option) == _folded(stripped_text)
    ]
    return matching_letters[0] if len(matching_letters) == 1 else None


def _folded(text: str) -> str:
    """Return `text` in lower case with single blanks, without a final period or exclamation mark."""
    return " ".join(text.strip().rstrip(".!").casefold().split())


def _read_number(question: Question, text: str) -> ParsedAnswer:
    """Read VSI-Bench's open questions with lmms-eval's own functions: mean relative accuracy from .5 to .95."""
    from lmms_eval.tasks.vsibench import utils

    value = utils.extract_number(text)
    target = utils.to_float(question.answer)
    if value is None or target is None:
        return ParsedAnswer(None, 0.0)
    score = utils.mean_relative_accuracy(value, target, start=0.5, end=0.95, interval=0.05)
    return ParsedAnswer(f"{value:g}", float(score))


def _read_as_lmms_eval(question: Question, text: str, rule: str, seed: int) -> tuple[str | None, bool]:
    """Return the letter that lmms-eval reads (None if none), and True if lmms-eval guessed it."""
    option_letters = list(letters(len(question.options)))
    if rule == "longvideobench":
        from lmms_eval.tasks.longvideobench.utils import parse_multi_choice_response

        with _guessing(question, seed) as seeded:
            letter = parse_multi_choice_response(
                text, option_letters, dict(zip(option_letters, question.options, strict=True))
            )
            # It does not say that it guessed, but only a guess draws a number.
            return str(letter), random.getstate() != seeded
    if rule == "vsibench":
        from lmms_eval.tasks.vsibench.utils import fuzzy_matching

        # It returns a word of the answer, which need not be an option.
        letter = str(fuzzy_matching(text)).upper()
        return (letter if letter in option_letters else None), False
    from lmms_eval.tasks._task_utils.mcq_extract import extract_mcq_answer

    return extract_mcq_answer(text, choices=["A", "B", "C", "D"]) or None, False


@contextmanager
def _guessing(question: Question, seed: int) -> Iterator[Any]:
    """Seed Python's `random`, with which lmms-eval's tasks guess, from `seed` and `question`; restore it afterwards.

    A guess then does not depend on earlier answers. Yields the seeded state.
    """
    state = random.getstate()
    random.seed(int(derived_rng(seed, question.benchmark, question.id, "guess").integers(2**32)))
    try:
        yield random.getstate()
    finally:
        random.setstate(state)


# What a task's dictionary for one question calls its score, the most explicit name first.
_SCORE_NAMES = ("score", "correct", "is_correct", "accuracy", "acc")
_ANSWER_PAIRS = (("pred_answer", "answer"), ("parsed_pred", "answer"), ("pred", "ground_truth"))


def task_of(request: Any) -> Any | None:
    """Return the lmms-eval task that built `request`; None for a request made by hand.

    A wrapper gets documents only, but the score of a task that is not a benchmark here is known to the task alone.
    lmms-eval puts its task's bound method `doc_to_visual` (`doc_to_messages` for chat models) into every request, so
    the task is that method's object. tests/bench/lmms/test_tasks.py fails if that changes.
    """
    for argument in request.args:
        owner = getattr(argument, "__self__", None)
        if owner is not None and hasattr(owner, "process_results"):
            return owner
    return None


def task_score(
    task: Any | None, question: Question, document: Mapping[str, Any], text: str, *, seed: int
) -> ParsedAnswer:
    """Score the answer `text` to `question`, made from `document`, by `process_results` of the lmms-eval task.

    The first metric in the task's own order that gives a number in [0, 1], higher being better, counts. Without one,
    without a task, or if `process_results` fails, there is no score. A task that guesses does so from `seed`.
    """
    unscored = ParsedAnswer(read_option(text, question.options) if question.options else text, None)
    if task is None:
        return unscored
    try:
        with _guessing(question, seed):
            # Not the task's own method: it tries again for ten seconds where a document is damaged.
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
    # Of an error measure the best answer would have the lowest number.
    for metric, entry in metrics.items():
        score = score_in(results.get(metric)) if entry.get("higher_is_better", True) else None
        if score is not None:
            return replace(unscored, score=score, metric=metric)
    return unscored


def score_in(value: Any) -> float | None:
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
    try:
        score = float(value)
    except (TypeError, ValueError):
        return None
    # Beyond that it is a count or a percentage, and nothing says which.
    return score if 0.0 <= score <= 1.0 else None


Document = Mapping[str, Any]
Result = dict[str, Any]

METRICS = ("accuracy", *(f"accuracy_{bucket}" for bucket in BUCKETS), "unparsed", "no_answer")


# Prompts and paths: lmms-eval's own.


def _task_function(benchmark: str, name: str) -> Callable[..., Any]:
    """Return a function that imports and calls `name` of a benchmark's lmms-eval task; the import may fail here."""

    def call(*args: Any, **options: Any) -> Any:
        """Import the benchmark's module of lmms-eval and call its function."""
        return getattr(import_module(f"lmms_eval.tasks.{benchmark}.utils"), name)(*args, **options)

    return call


longvideobench_text = _task_function("longvideobench", "longvideobench_doc_to_text")
videomme_text = _task_function("videomme", "videomme_doc_to_text")
mlvu_text = _task_function("mlvu", "mlvu_doc_to_text")
vsibench_documents = _task_function("vsibench", "process_docs")
vsibench_text = _task_function("vsibench", "vsibench_doc_to_text")


# lmms-eval looks at how many arguments these take.
def videomme_visual(doc: Document) -> list[str]:
    """Return the path of a Video-MME document's video, as a list of one."""
    return list(_task_function("videomme", "videomme_doc_to_visual")(doc))


def vsibench_visual(doc: Document) -> list[str]:
    """Return the path of a VSI-Bench document's video, as a list of one."""
    return list(_task_function("vsibench", "vsibench_doc_to_visual")(doc))


def longvideobench_visual(doc: Document) -> list[str]:
    """Return the path of a LongVideoBench document's video, as a list of one."""
    return [os.path.join(_longvideobench_videos(os.getenv("HF_HOME")), doc["video_path"])]


@cache
def _longvideobench_videos(hf_home: str | None) -> str:
    """Return LongVideoBench's folder of videos, as lmms-eval finds it; cached, for finding it takes 25 ms."""
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


def longvideobench_results(doc: Document, results: list[str]) -> Result:
    """Return the facts of one answer under each of `METRICS`; the bucket follows the video's own duration."""
    return _results("longvideobench", doc, results, longvideobench_visual)


def videomme_results(doc: Document, results: list[str]) -> Result:
    """Return the facts of one answer under each of `METRICS`; the bucket is the document's `duration`."""
    return _results("videomme", doc, results, videomme_visual)


def mlvu_results(doc: Document, results: list[str]) -> Result:
    """Return the facts of one answer under each of `METRICS` and "macro_accuracy" (mean over task types)."""
    result = _results("mlvu", doc, results, mlvu_visual)
    return {**result, "macro_accuracy": result["accuracy"]}


def vsibench_results(doc: Document, results: list[str]) -> Result:
    """Return the facts of one answer under each of `METRICS` and "macro_accuracy" (mean over question types)."""
    result = _results("vsibench", doc, results, vsibench_visual)
    return {**result, "macro_accuracy": result["accuracy"]}


def _results(benchmark: str, doc: Document, results: list[str], visual: Callable[[Document], list[str]]) -> Result:
    """Return the facts of one answer under each of `METRICS`: ids, bucket, type, parsed answer and score.

    `visual` gives the video's path, whose length decides the bucket where no length is stated.
    """
    declared_benchmark = make_benchmark(benchmark)
    question = declared_benchmark.question(doc)
    # lmms-eval gives a list, with one text for the one request of a document.
    text = results[0]
    reading = read_answer(question, text)
    score = {
        "id": question.id,
        "video": question.video,
        # The length of the video comes last: it means opening the file.
        "bucket": question.bucket or _bucket(declared_benchmark, question, doc, visual),
        "type": (declared_benchmark.facts.strata([question.category]) or [question.category])[0],
        "answer": question.answer,
        "parsed": reading.parsed,
        "score": reading.score,
        "no_answer": text == NO_ANSWER,
    }
    # lmms-eval collects values by metric; all of ours are worked out from the same facts.
    return dict.fromkeys(METRICS, score)


def _bucket(benchmark: Benchmark, question: Question, doc: Document, visual: Callable[[Document], list[str]]) -> str:
    """Return the length bucket; "" if the length is not stated and the video cannot be read."""
    if question.duration_seconds is not None:
        return benchmark.bucket(question.duration_seconds)
    try:
        return benchmark.bucket(_probed_seconds(visual(doc)[0]))
    except (FocusEvalError, OSError, SystemExit):  # lmms-eval ends the process where a file is missing
        return ""


@cache
def _probed_seconds(path: str) -> float:
    """Return the length in seconds of the video at `path`, from the file; cached."""
    from focus_eval.keyframes.video import open_video

    with open_video(Path(path)) as reader:
        return reader.info.duration_seconds


# Metrics: each is aggregated over the same scores.


def accuracy(scores: list[Result]) -> float:
    """Return the mean score; NaN without scores."""
    return sum(score["score"] for score in scores) / len(scores) if scores else float("nan")


def _accuracy_of(bucket: str) -> Callable[[list[Result]], float]:
    """Return the metric that averages the scores of one length bucket; NaN without any."""
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

    weights = stratum_weights([score["type"] for score in scores])
    return float(sum(weights * [score["score"] for score in scores])) if scores else float("nan")


# The fields of a task's file that lmms-eval looks up by the model's name.
BY_MODEL = ("lmms_eval_specific_kwargs", "model_specific_generation_kwargs", "model_specific_target_kwargs")
DEFAULT = "default"


def prompts_for(task: Mapping[str, Any], model: str, stock_name: str) -> str:
    """Return the name under which a task has prompts or generation arguments for `model`; "default" if there is none.

    Args:
        task: values of the task's file, or of lmms-eval's configuration of the task.
        stock_name: lmms-eval's name of the wrapper behind `model`; "" for none.
    """
    kwargs_by_field = [task.get(field) or {} for field in BY_MODEL]
    names = [name for name in (model, stock_name) if name]
    return next((name for name in names if any(name in kwargs for kwargs in kwargs_by_field)), DEFAULT)


def prompts_of_request(look: Any, model: str, stock_name: str) -> str:
    """Return `prompts_for` the task of a request; "default" if the task is unknown.

    Args:
        look: the request's `doc_to_visual` or `doc_to_messages`, a bound method of the task.
    """
    config = getattr(getattr(look, "__self__", None), "config", None)
    return prompts_for(vars(config), model, stock_name) if config is not None else DEFAULT


@cache
def task_values(task: str) -> dict[str, Any]:
    """Return the values in the YAML file of an lmms-eval task, included files merged; functions are None.

    Raises:
        InvalidInput: no file of that task, in ours or in lmms-eval's.
    """
    return _values(_task_file(task))


def _task_file(task: str) -> Path:
    """Return the YAML file of a task: ours, else lmms-eval's; raise InvalidInput if there is none."""
    # Ours first, as when the task is loaded.
    packaged_file = resource_path("tasks") / f"{task}.yaml"
    if task and packaged_file.is_file():
        return packaged_file
    # Found without importing it: that takes seconds, and a plan needs the file only.
    module_spec = find_spec("lmms_eval")
    folders = (
        [Path(folder) / "tasks" for folder in (module_spec.submodule_search_locations or [])] if module_spec else []
    )
    for folder in folders:
        for file in sorted(folder.rglob(f"{task}.yaml")):
            return file
    raise InvalidInput(f"task {task!r} is known neither to focus-eval nor to lmms-eval (set task, or annotations)")


class _TaskLoader(yaml.SafeLoader):
    """Reads a task file without loading the functions of its `!function` tags."""


# Loading them would import the task's code, which may need packages that are not here.
_TaskLoader.add_multi_constructor("!", lambda loader, suffix, node: None)


def _values(file: Path) -> dict[str, Any]:
    """Return the values of a task file, over those of the file that it includes."""
    values: dict[str, Any] = read_yaml(file, _TaskLoader) or {}
    included = values.pop("include", None)
    # A task's own values come after those it includes, and win.
    return {**_values(file.parent / included), **values} if included else values
