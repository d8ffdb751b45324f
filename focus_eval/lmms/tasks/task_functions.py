"""What do our task files call? lmms-eval's own task functions for prompts and paths, strict reading for scores.

A score is 1 or 0, or VSI-Bench's partial credit. A question without an answer (`NO_ANSWER`) or with one that cannot
be read scores 0 and is counted, as `no_answer` and `unparsed`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from focus_eval.benchmarks.question import Benchmark, Question
from focus_eval.benchmarks.registry import make_benchmark
from focus_eval.errors import FocusEvalError, InvalidInput
from focus_eval.lmms.tasks.parsing import NO_ANSWER, read_answer

Document = Mapping[str, Any]
Result = dict[str, Any]

METRICS = ("accuracy", "accuracy_short", "accuracy_medium", "accuracy_long", "unparsed", "no_answer")


# Prompts and paths: lmms-eval's own.


# Each function imports its own task's module only: those of other tasks may need packages that are not here.
def longvideobench_visual(doc: Document) -> list[str]:
    """Return the video's path."""
    return [os.path.join(_longvideobench_videos(os.getenv("HF_HOME")), doc["video_path"])]


@cache
def _longvideobench_videos(hf_home: str | None) -> str:
    """Return the folder lmms-eval looks in. It reads that from a YAML file for every document, 25 ms each."""
    from lmms_eval.tasks.longvideobench.utils import longvideobench_doc_to_visual_v

    (folder,) = longvideobench_doc_to_visual_v({"video_path": ""})
    return str(folder)


def longvideobench_text(doc: Document, lmms_eval_specific_kwargs: Mapping[str, Any]) -> str:
    from lmms_eval.tasks.longvideobench.utils import longvideobench_doc_to_text

    return str(longvideobench_doc_to_text(doc, lmms_eval_specific_kwargs))


def videomme_visual(doc: Document) -> list[str]:
    """Return the video's path."""
    from lmms_eval.tasks.videomme.utils import videomme_doc_to_visual

    return list(videomme_doc_to_visual(doc))


def videomme_text(doc: Document, lmms_eval_specific_kwargs: Mapping[str, Any]) -> str:
    from lmms_eval.tasks.videomme.utils import videomme_doc_to_text

    return str(videomme_doc_to_text(doc, lmms_eval_specific_kwargs))


def mlvu_visual(doc: Document) -> list[str]:
    """Return the video's path.

    Raises:
        InvalidInput: HF_HOME is not set; lmms-eval's own default for this task points nowhere.
    """
    if not os.getenv("HF_HOME"):
        raise InvalidInput("MLVU's videos are looked for below $HF_HOME/mlvu: set HF_HOME")
    from lmms_eval.tasks.mlvu.utils import mlvu_doc_to_visual_dev

    return list(mlvu_doc_to_visual_dev(doc))


def mlvu_text(doc: Document, lmms_eval_specific_kwargs: Mapping[str, Any]) -> str:
    from lmms_eval.tasks.mlvu.utils import mlvu_doc_to_text

    return str(mlvu_doc_to_text(doc, lmms_eval_specific_kwargs))


def vsibench_documents(dataset: Any) -> Any:
    """Return the documents, as lmms-eval does."""
    from lmms_eval.tasks.vsibench.utils import process_docs

    return process_docs(dataset)


def vsibench_visual(doc: Document) -> list[str]:
    """Return the video's path."""
    from lmms_eval.tasks.vsibench.utils import vsibench_doc_to_visual

    return list(vsibench_doc_to_visual(doc))


def vsibench_text(doc: Document, lmms_eval_specific_kwargs: Mapping[str, Any]) -> str:
    from lmms_eval.tasks.vsibench.utils import vsibench_doc_to_text

    return str(vsibench_doc_to_text(doc, lmms_eval_specific_kwargs))


# Scores.


def longvideobench_results(doc: Document, results: list[str]) -> Result:
    """Score one answer; the bucket follows the video's own duration."""
    return _results("longvideobench", doc, results, longvideobench_visual)


def videomme_results(doc: Document, results: list[str]) -> Result:
    """Score one answer; the bucket is the document's `duration`."""
    return _results("videomme", doc, results, videomme_visual)


def mlvu_results(doc: Document, results: list[str]) -> Result:
    """Score one answer; also the mean over task types, as lmms-eval reports it."""
    result = _results("mlvu", doc, results, mlvu_visual)
    return {**result, "macro_accuracy": result["accuracy"]}


def vsibench_results(doc: Document, results: list[str]) -> Result:
    """Score one answer; also the mean over question types, as lmms-eval reports it."""
    result = _results("vsibench", doc, results, vsibench_visual)
    return {**result, "macro_accuracy": result["accuracy"]}


def _results(benchmark: str, doc: Document, results: list[str], visual: Callable[[Document], list[str]]) -> Result:
    made = make_benchmark(benchmark)
    question = made.question(doc)
    # lmms-eval gives a list, with one text for the one request of a document.
    text = results[0]
    reading = read_answer(question, text)
    score = {
        "id": question.id,
        "video": question.video,
        # The length of the video comes last: it means opening the file.
        "bucket": question.bucket or _bucket(made, question, doc, visual),
        "category": question.category,
        "answer": question.answer,
        "parsed": reading.parsed,
        "score": reading.score,
        "no_answer": text == NO_ANSWER,
    }
    # lmms-eval collects values by metric; all of ours are worked out from the same facts.
    return dict.fromkeys(METRICS, score)


def _bucket(benchmark: Benchmark, question: Question, doc: Document, visual: Callable[[Document], list[str]]) -> str:
    """Return the length bucket; "" where the length is not stated and the video cannot be read."""
    if question.duration_seconds is not None:
        return benchmark.bucket(question.duration_seconds)
    try:
        return benchmark.bucket(_probed_seconds(visual(doc)[0]))
    except (FocusEvalError, OSError, SystemExit):  # lmms-eval ends the process where a file is missing
        return ""


@cache
def _probed_seconds(path: str) -> float:
    from focus_eval.video import open_video

    with open_video(Path(path)) as reader:
        return reader.info.duration_seconds


# Metrics: each is aggregated over the same scores.


def accuracy(scores: list[Result]) -> float:
    """Return the mean score."""
    return _mean(scores)


def accuracy_short(scores: list[Result]) -> float:
    """Return the mean score of the short videos; NaN without any."""
    return _mean([score for score in scores if score["bucket"] == "short"])


def accuracy_medium(scores: list[Result]) -> float:
    """Return the mean score of the medium videos; NaN without any."""
    return _mean([score for score in scores if score["bucket"] == "medium"])


def accuracy_long(scores: list[Result]) -> float:
    """Return the mean score of the long videos; NaN without any."""
    return _mean([score for score in scores if score["bucket"] == "long"])


def unparsed(scores: list[Result]) -> int:
    """Return how many answers could not be read."""
    return sum(score["parsed"] is None and not score["no_answer"] for score in scores)


def no_answer(scores: list[Result]) -> int:
    """Return how many questions have no answer."""
    return sum(score["no_answer"] for score in scores)


def macro_accuracy(scores: list[Result]) -> float:
    """Return the mean over the question types present; VSI-Bench's three relative directions count as one."""
    by_type: dict[str, list[Result]] = {}
    for score in scores:
        by_type.setdefault(score["category"], []).append(score)
    means = {kind: _mean(of_kind) for kind, of_kind in by_type.items()}
    directions = [kind for kind in means if kind.startswith("object_rel_direction")]
    if directions:
        means["object_rel_direction"] = sum(means.pop(kind) for kind in directions) / len(directions)
    return sum(means.values()) / len(means) if means else float("nan")


def _mean(scores: list[Result]) -> float:
    return sum(score["score"] for score in scores) / len(scores) if scores else float("nan")
