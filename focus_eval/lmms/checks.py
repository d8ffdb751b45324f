"""Checks a run before its first question: versions, options, and its place among several processes."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from focus_eval.core.errors import FocusEvalError, InvalidInput, RunError
from focus_eval.lmms.patches import alone_in_accelerate, uses_response_cache
from focus_eval.rows.records import error_line


@dataclass
class RunCounts:
    """Counts of a run, over all its questions so far."""

    asked: int = 0
    errors: int = 0
    unparsed: int = 0
    fallbacks: int = 0
    first_error: str = ""

    def summary(self) -> str:
        return (
            f"{self.asked} questions, {self.errors} errors, {self.unparsed} unparsed answers, "
            f"{self.fallbacks} fed other frames than the chosen ones"
        )


def over_all_ranks(counts: RunCounts) -> RunCounts:
    """Return the sum over all ranks of a distributed run, so that every rank comes to the same conclusion."""
    # Not imported: a run that never loaded it is not distributed.
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return counts
    parts: list[Any] = [None] * distributed.get_world_size()
    # Collective: it returns only when every rank has called it, also those without an error.
    distributed.all_gather_object(parts, counts)
    sums = {name: sum(getattr(part, name) for part in parts) for name in ("asked", "errors", "unparsed", "fallbacks")}
    return RunCounts(**sums, first_error=next((part.first_error for part in parts if part.first_error), ""))


def check_error_share(counts: RunCounts, limit: float) -> None:
    """Fail a run in which too many questions have no answer.

    Raises:
        RunError: more than `limit` of the questions, with the first error.
    """
    if counts.asked and counts.errors / counts.asked > limit:
        raise RunError(
            f"{counts.errors} of {counts.asked} questions have no answer, more than max_error_share={limit:g} allows; "
            f"the first: {counts.first_error}"
        )


def refuse_response_cache() -> None:
    """Refuse lmms-eval's `--use_cache`: its key knows the model arguments, not the frames a question was shown.

    Called at every point where lmms-eval calls us.

    Raises:
        InvalidInput: a cache is in use.
    """
    if uses_response_cache():
        raise InvalidInput(
            "--use_cache could answer from other frames than the chosen ones (its key does not hold them); "
            "leave it out: store= keeps what was encoded, and the rows keep every answer"
        )


@contextmanager
def command_line_errors() -> Iterator[None]:
    """End lmms-eval's command line with one line and exit code 2 if the block raises one of our errors.

    That command line catches every Exception, prints a traceback and ends with code 0: a script would take a model
    that could not be loaded for a finished run. Errors of other code keep their traceback. Called from Python, the
    error is raised as it is.
    """
    try:
        yield
    except FocusEvalError as error:
        if "lmms_eval.__main__" not in sys.modules:
            raise
        print(f"focus-eval: {' '.join(str(error).split())}", file=sys.stderr, flush=True)
        # No Exception, so that lmms-eval's handler lets it pass.
        raise SystemExit(2) from error
    except (OSError, RuntimeError, ValueError, TypeError, AssertionError, ImportError) as error:
        if "lmms_eval.__main__" not in sys.modules:
            raise
        traceback.print_exc()
        print(f"focus-eval: stopped by {error_line(error)}", file=sys.stderr, flush=True)
        raise SystemExit(2) from error


def rank_and_world() -> tuple[int, int]:
    """Return this process's rank and the number of processes, as lmms-eval reads them."""
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


def place_on_rank(model: Any) -> None:
    """Set rank and world size on a model that was built without knowing the other processes."""
    from accelerate import Accelerator

    # Left undone, every rank would answer all questions and lmms-eval would gather each answer once per rank.
    model._rank, model._world_size = rank_and_world()
    # lmms-eval's evaluator waits for the other ranks through this attribute.
    model.accelerator = Accelerator()


@contextmanager
def one_process_on_cpu(device: str | None) -> Iterator[bool]:
    """Build a wrapper on a CPU inside a multi-process run; gives whether it then needs `place_on_rank`.

    The wrappers place every process on its GPU and refuse others, though on a CPU nothing has to be shared: each
    process holds the whole model and answers its own questions. While the wrapper is built, accelerate says that there
    is one process; afterwards lmms-eval gathers the results through it as always.
    """
    if device != "cpu" or rank_and_world()[1] == 1:
        yield False
        return
    with alone_in_accelerate():
        yield True
