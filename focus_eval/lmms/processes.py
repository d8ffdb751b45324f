"""Places a model in one of several processes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from focus_eval.lmms.other_packages import alone_in_accelerate


def rank_and_world() -> tuple[int, int]:
    """Return this process's rank and the number of processes, as lmms-eval reads them."""
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


@dataclass(frozen=True)
class Processes:
    """Whether the wrapper was built as if it were alone."""

    was_alone: bool

    def place(self, model: Any) -> None:
        """Tell a model that was built alone which process it is in."""
        if self.was_alone:
            from accelerate import Accelerator

            # Left undone, every rank would answer all questions and lmms-eval would gather each answer once per rank.
            model._rank, model._world_size = rank_and_world()
            # lmms-eval's evaluator waits for the other ranks through this attribute.
            model.accelerator = Accelerator()


@contextmanager
def one_process_on_cpu(device: str | None) -> Iterator[Processes]:
    """Let a wrapper be built on a CPU in one of several processes.

    The wrappers place every process on its GPU and refuse others, though on a CPU nothing has to be shared: each
    process holds the whole model and answers its own questions. While the wrapper is built, accelerate says that there
    is one process; afterwards lmms-eval gathers the results through it as always.
    """
    if device != "cpu" or rank_and_world()[1] == 1:
        yield Processes(was_alone=False)
        return
    with alone_in_accelerate():
        yield Processes(was_alone=True)
