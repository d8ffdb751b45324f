"""The places that reach into other packages, each in one function that says what it relies on and why.

Everything else goes through public interfaces. `tests/lmms/test_other_packages.py` fails where one of these packages
changes what is relied on here.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


def wrap_video_readers(wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Replace every video reader of qwen-vl-utils by `wrap(reader)`.

    Relies on: `vision_process.VIDEO_READER_BACKENDS`, a dict from name to function, looked up by `fetch_video` at each
    call. A reader takes the video's element and returns (frames `(n, 3, height, width)`, metadata, sampled rate).

    Why: qwen-vl-utils takes decoded frames as a list of images only, and then knows neither their indices nor the
    video's rate, which Qwen2.5-VL and Qwen3-VL put into the prompt.

    Raises:
        ImportError: qwen-vl-utils is not installed.
    """
    from qwen_vl_utils import vision_process

    readers = vision_process.VIDEO_READER_BACKENDS
    readers.update({name: wrap(read) for name, read in readers.items()})


def load_generating_classes() -> None:
    """Let lmms-eval's `huggingface` wrapper fall back to `AutoModelForImageTextToText` in place of `AutoModel`.

    Relies on: the name `AutoModel` in `lmms_eval.models.chat.huggingface`, used where a model type is in none of the
    wrapper's tables.

    Why: lmms-eval 0.7.3 looks a model type (text) up among configuration classes, finds it nowhere, and loads every
    model as `AutoModel`: a network without `generate`.
    """
    from lmms_eval.models.chat import huggingface as stock
    from loguru import logger
    from transformers import AutoModelForImageTextToText

    if stock.AutoModel is not AutoModelForImageTextToText:
        logger.info("lmms-eval's huggingface wrapper would load a model that cannot generate; loading one that can")
        stock.AutoModel = AutoModelForImageTextToText


@contextmanager
def alone_in_accelerate() -> Iterator[None]:
    """Make accelerate say that this is the only process, inside the block; afterwards its state is as before.

    Relies on: `PartialState._shared_state` and `AcceleratorState._shared_state`, the dicts that all instances share;
    cleared, and without a launcher's variables, the next `PartialState(cpu=True)` describes one process.

    Why: lmms-eval's wrappers place each of several processes on its GPU and refuse to be built on a CPU.
    """
    from accelerate.state import AcceleratorState, PartialState

    PartialState()  # joins the other processes, once, while the environment still says which one this is
    shared = [kind._shared_state for kind in (PartialState, AcceleratorState)]
    before = [dict(state) for state in shared]
    launched = {name: os.environ.pop(name, None) for name in ("LOCAL_RANK", "RANK", "WORLD_SIZE")}
    try:
        for state in shared:
            state.clear()
        PartialState(cpu=True)
        yield
    finally:
        os.environ.update({name: value for name, value in launched.items() if value is not None})
        for state, values in zip(shared, before, strict=True):
            state.clear()
            state.update(values)


def uses_response_cache() -> bool:
    """Return whether lmms-eval, which is calling us, has a response cache.

    Relies on: the local variables `use_cache` of `lmms_eval.evaluator.simple_evaluate` and `response_cache` of
    `lmms_eval.evaluator.evaluate`, read from the frames of the call stack.

    Why: the cache never tells the model of itself, and where it has every answer never calls it.
    """
    variables = {"simple_evaluate": "use_cache", "evaluate": "response_cache"}
    frame = sys._getframe(1)
    while frame is not None:
        name = variables.get(frame.f_code.co_name)
        if name and frame.f_globals.get("__name__") == "lmms_eval.evaluator" and frame.f_locals.get(name) is not None:
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False
