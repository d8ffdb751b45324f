"""Patches lmms-eval and its dependencies, and places this process among those of a run.

The docstring of each patch says which internals the patch relies on and why it is needed. All other code uses public
interfaces. A patch first checks that the installed release has these internals. If not, a patch that only saves time is
skipped; a patch without which frames, prompts or ranks would be wrong raises an error (`_require`).
`tests/bench/lmms/test_patches.py` fails if a package changes what a patch relies on.
"""

from __future__ import annotations

import importlib
import itertools
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec, module_from_spec
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from focus_eval.bench.answering.frames import FrameBatch
from focus_eval.core.errors import FocusEvalError, InvalidInput, MissingDependency
from focus_eval.keyframes.rows.identity import installed_version
from focus_eval.keyframes.rows.records import error_line

if TYPE_CHECKING:
    from lmms_eval.api.task import ConfigurableTask
    from torch import Tensor

# A `VideoReading` is the frames `(n, 3, height, width)`, the metadata and the sampled rate of a video. An
# `ElementReader` reads it from the video's element, the dict that describes the video in a chat message.
VideoReading = tuple["Tensor", dict[str, object], float]
ElementReader = Callable[[dict[str, object]], VideoReading]
# The releases that these patches were tried with.
TRIED_RELEASES = {"lmms-eval": "0.7.3", "qwen-vl-utils": "0.0.14", "accelerate": "1.15.0"}


def _require(owner: ModuleType | type, name: str) -> Any:
    """Return the attribute `name` of a module or class, which a patch cannot do without.

    Raises:
        MissingDependency: the installed release has no such attribute; the message names a release that has it.
    """
    if not hasattr(owner, name):
        module = str(getattr(owner, "__module__", owner.__name__))
        raise _unknown_release(module, f"{owner.__name__} has no {name}")
    return getattr(owner, name)


def _unknown_release(module: str, fact: str) -> MissingDependency:
    """The error for a release of a module's package that lacks what a patch relies on."""
    package = module.partition(".")[0].replace("_", "-")
    tried = f"{package}=={TRIED_RELEASES[package]}"
    return MissingDependency(
        f"{package} {installed_version(package)}: {fact}, which focus-eval relies on; it was tried with {tried}: "
        f"pip install {tried}"
    )


def wrap_video_readers(wrap: Callable[[ElementReader], ElementReader]) -> None:
    """Replace every video reader of qwen-vl-utils by `wrap(reader)`.

    Relies on: `vision_process.VIDEO_READER_BACKENDS`, a dict from name to function, looked up by `fetch_video` at each
    call. A reader takes the video's element and returns (frames `(n, 3, height, width)`, metadata, sampled rate).

    Why: qwen-vl-utils takes decoded frames as a list of images only, and then knows neither their indices nor the
    video's rate, which Qwen2.5-VL and Qwen3-VL put into the prompt.

    Raises:
        ImportError: qwen-vl-utils is not installed.
    """
    from qwen_vl_utils import vision_process

    readers = _require(vision_process, "VIDEO_READER_BACKENDS")
    readers.update({name: wrap(read) for name, read in readers.items()})


def import_evaluate_late() -> None:
    """Let the package `evaluate` load only when one of its names is used; do nothing if it is loaded already.

    Relies on: `lmms_eval.api.registry` imports `evaluate` at its top and uses it in `get_metric` alone.

    Why: `evaluate` imports torchvision and transformers' pipelines, more than all other imports of lmms-eval's tasks.
    """
    spec = find_spec("evaluate") if "evaluate" not in sys.modules else None
    if spec is not None:
        sys.modules["evaluate"] = module_from_spec(spec)
        sys.modules["evaluate"].__class__ = _LateEvaluate


class _LateEvaluate(ModuleType):
    """The package `evaluate` before it is loaded."""

    def __getattr__(self, name: str) -> object:
        """Load the package and return its attribute `name`.

        Names that begin with "__", which Python asks every module for, raise AttributeError and load nothing.
        """
        if name.startswith("__"):
            raise AttributeError(name)
        if sys.modules.get("evaluate") is self:
            del sys.modules["evaluate"]
        return getattr(importlib.import_module("evaluate"), name)


def open_no_video_twice() -> None:
    """Tell lmms-eval's Qwen wrappers length and size of a video with chosen frames without opening its file.

    Relies on: the wrappers' modules have decord under the name `decord`. Of `decord.VideoReader(path)` they use only
    its `len` and the shape of `[0].asnumpy()`.

    Why: for every question the wrappers would open the video with decord, which reads the whole file, although the
    chosen frames are decoded already.
    """
    for name in ("simple.qwen2_vl", "simple.qwen2_5_vl", "simple.qwen3_vl", "chat.qwen2_5_vl"):
        try:
            module = importlib.import_module(f"lmms_eval.models.{name}")
        except ImportError:
            continue  # not importable here; the plugin reports it when the wrapper is used
        # A wrapper without decord reads length and size by other means, which at worst cost time.
        stock = getattr(module, "decord", None)
        if stock is not None and not isinstance(stock, _FrameAwareDecord):
            vars(module)["decord"] = _FrameAwareDecord(stock)


class _FrameAwareDecord:
    """Replacement for the package decord; its `VideoReader` does not open a path that carries frames."""

    def __init__(self, stock: ModuleType) -> None:
        self._stock = stock

    def __getattr__(self, name: str) -> object:
        """Return the attribute of the stock module."""
        return getattr(self._stock, name)

    def VideoReader(self, path: object, *args: object, **options: object) -> object:
        """Return, for a path that carries frames, a reader that knows only length and size; else decord's own."""
        frame_batch = getattr(path, "frame_batch", None)
        return (
            _FrameBatchVideo(frame_batch)
            if frame_batch is not None
            else self._stock.VideoReader(path, *args, **options)
        )


class _FrameBatchVideo:
    """Replacement for decord's reader: has the video's length, and black frames of its size."""

    def __init__(self, frame_batch: FrameBatch) -> None:
        self._frame_batch = frame_batch

    def __len__(self) -> int:
        return self._frame_batch.n_frames

    def __getitem__(self, frame: int) -> object:
        """Return a black frame of the video's size, whatever `frame` is."""
        black = np.zeros(self._frame_batch.pixels.shape[1:], dtype=np.uint8)
        return SimpleNamespace(asnumpy=lambda: black)


def resize_to_patches() -> None:
    """Let lmms-eval's `vllm_generate` resize chosen frames to the patches of its model.

    Relies on: the name `fetch_video` in `lmms_eval.models.chat.vllm_generate`, called with the video's element, and its
    argument `image_patch_size`.

    Why: the wrapper leaves `image_patch_size` at 14 pixels, so frames are resized to multiples of 28. Qwen3-VL has
    patches of 16 pixels, and its processor would resize the frames a second time, to multiples of 32.
    """
    from lmms_eval.models.chat import vllm_generate

    current = _require(vllm_generate, "fetch_video")
    stock = getattr(current, "stock", current)

    def fetch_video(element: dict[str, object], **options: object) -> object:
        """Call the stock function; frames with a patch size are resized to multiples of it."""
        patch_size = getattr(getattr(element["video"], "frame_batch", None), "patch_size", None)
        return stock(element, **({**options, "image_patch_size": patch_size} if patch_size else options))

    fetch_video.stock = stock  # type: ignore[attr-defined]
    vllm_generate.fetch_video = fetch_video


def load_generating_classes() -> None:
    """Make lmms-eval's `huggingface` wrapper fall back to `AutoModelForImageTextToText` instead of `AutoModel`.

    Relies on: the name `AutoModel` in `lmms_eval.models.chat.huggingface`, used if a model type is in none of the
    wrapper's tables.

    Why: lmms-eval 0.7.3 looks a model type (text) up among configuration classes, never finds it, and loads every model
    as `AutoModel`: a network without `generate`.
    """
    from lmms_eval.models.chat import huggingface as stock
    from loguru import logger
    from transformers import AutoModelForImageTextToText

    # A wrapper without the name `AutoModel` chooses its model class in another way: nothing to patch.
    if getattr(stock, "AutoModel", AutoModelForImageTextToText) is not AutoModelForImageTextToText:
        logger.info("lmms-eval's huggingface wrapper would load a model that cannot generate; loading one that can")
        stock.AutoModel = AutoModelForImageTextToText


@contextmanager
def single_process_in_accelerate() -> Iterator[None]:
    """Make accelerate report a single process inside the block, and restore its state afterwards.

    Relies on: `PartialState._shared_state` and `AcceleratorState._shared_state`, the dicts that all instances share.
    After these are cleared and the launcher's variables unset, the next `PartialState(cpu=True)` describes one process.

    Why: in a run of several processes lmms-eval's wrappers place each process on a GPU of its own, and refuse to be
    built on a CPU.
    """
    from accelerate.state import AcceleratorState, PartialState

    PartialState()  # joins the other processes once, while the launcher's variables are still set
    shared = [_require(kind, "_shared_state") for kind in (PartialState, AcceleratorState)]
    saved_states = [dict(state) for state in shared]
    launched = {name: os.environ.pop(name, None) for name in ("LOCAL_RANK", "RANK", "WORLD_SIZE")}
    try:
        for state in shared:
            state.clear()
        PartialState(cpu=True)
        yield
    finally:
        os.environ.update({name: value for name, value in launched.items() if value is not None})
        for state, values in zip(shared, saved_states, strict=True):
            state.clear()
            state.update(values)


def look_prompts_up_by_wrapper(model: str, stock_name: str) -> None:
    """Make lmms-eval's tasks ask `model` with their prompts for the stock wrapper behind it.

    Relies on: the constructor of `ConfigurableTask` calls `_prepare_model_specific_config` once. That method looks up a
    task's entries for `self.model_name`, which is the name given to `--model`, or the model itself in a call from
    Python. lmms-eval makes the tasks after the model.

    Why: no task's file has our name of the model, so the model would get other prompts than its stock wrapper. A task
    with subtitles would write the subtitles of its own evenly spaced frames into a prompt before our frames are chosen
    (`leave_subtitles_out`).
    """
    from lmms_eval.api.task import ConfigurableTask

    from focus_eval.bench.lmms.tasks import DEFAULT, leave_subtitles_out, prompts_for

    prepare = _require(ConfigurableTask, "_prepare_model_specific_config")
    # This runs for every model that is made: wrap lmms-eval's own function, not the replacement of an earlier call.
    stock = getattr(prepare, "stock", prepare)
    wrappers = {**getattr(prepare, "wrappers", {}), model: stock_name}

    def prepare_by_wrapper(task: ConfigurableTask) -> None:
        """Look up the task's prompts by the stock wrapper's name, if the task has none for our model."""
        name = getattr(task.model_name, "model_id", task.model_name)
        if isinstance(name, str) and name in wrappers:
            prompts_name = prompts_for(vars(task.config), name, wrappers[name])
            task.model_name = name if prompts_name == DEFAULT else prompts_name
        stock(task)
        if isinstance(name, str) and name in wrappers:
            leave_subtitles_out(task)

    prepare_by_wrapper.stock, prepare_by_wrapper.wrappers = stock, wrappers  # type: ignore[attr-defined]
    ConfigurableTask._prepare_model_specific_config = prepare_by_wrapper


# Fields of a document that may name its video, the most reliable first.
_VIDEO_FIELDS = ("video_path", "videoID", "video_id", "video_name", "video", "scene_name")


def keep_videos_on_one_rank() -> None:
    """Make lmms-eval assign all questions of a video to one of its processes.

    Relies on: `lmms_eval.api.task` calls `create_iterator(iterator, rank, world_size, limit, offset)` as an attribute
    of `lmms_eval.utils`, and `lmms_eval.evaluator` calls the same function under its own global name. Documents come as
    pairs (number, document). lmms-eval itself gives ranks with fewer requests copies of their own requests.

    Why: lmms-eval assigns documents to the processes in turn, so several processes would decode and embed each video.
    """
    from lmms_eval import evaluator, utils

    # Optional: without this patch ranks decode more videos, and give the same answers.
    if not (hasattr(utils, "create_iterator") and hasattr(evaluator, "create_iterator")):
        return
    # This runs for every model that is made: wrap lmms-eval's own function, not the replacement of an earlier call.
    stock = getattr(utils.create_iterator, "stock", utils.create_iterator)

    def create_iterator(
        raw_iterator: object, rank: int, world_size: int, limit: object = None, offset: object = 0
    ) -> Iterator[object]:
        """Return the items of one rank; all items of a video are on one rank. A single process gets the stock order."""
        stock(iter(()), rank, world_size, limit, offset)  # raises for arguments that lmms-eval's own refuses
        if int(world_size) < 2:
            return iter(stock(raw_iterator, rank, world_size, limit, offset))
        # `limit` and `offset` are applied by lmms-eval, as in a run of one process.
        all_items = stock(raw_iterator, 0, 1, limit, offset)
        # Every rank distributes all documents and keeps its share, so ranks agree without communication.
        return (item for owner, item in _dealt_by_video(all_items, int(world_size)) if owner == int(rank))

    create_iterator.stock = stock  # type: ignore[attr-defined]
    utils.create_iterator = evaluator.create_iterator = create_iterator


def _dealt_by_video(items: Iterator[object], world_size: int) -> Iterator[tuple[int, object]]:
    """Yield (rank, item) for each item; a video's items all go to the rank with the fewest items at its first item.

    Items without a video are assigned in turn. If there are fewer videos than ranks, all items are assigned in turn:
    lmms-eval fills a rank up with copies of the rank's own requests, so each rank needs at least one.
    """
    # Read no further than needed, since `items` iterates over the whole task.
    start, videos = [], set[str]()
    for item in items:
        start.append(item)
        videos |= {video} if (video := _video_of(item)) is not None else set()
        if len(videos) == world_size:
            break
    counts, rank_of = [0] * world_size, dict[str, int]()
    for at, item in enumerate(itertools.chain(start, items)):
        video = _video_of(item) if len(videos) == world_size else None
        fewest = counts.index(min(counts))
        rank = at % world_size if video is None else rank_of.setdefault(video, fewest)
        counts[rank] += 1
        yield rank, item


def _video_of(item: object) -> str | None:
    """The video of a pair (number, document), from the first of `_VIDEO_FIELDS` that is a text; None if none is."""
    document = item[1] if isinstance(item, tuple) and len(item) == 2 else None
    values = document if isinstance(document, Mapping) else {}
    return next((values[name] for name in _VIDEO_FIELDS if isinstance(values.get(name), str)), None)


def uses_response_cache() -> bool:
    """Return True if the lmms-eval run that is calling uses a response cache.

    Relies on: the local variables `use_cache` of `lmms_eval.evaluator.simple_evaluate` and `response_cache` of
    `lmms_eval.evaluator.evaluate`, read from the frames of the call stack.

    Why: lmms-eval does not tell a model about the cache, and does not call the model if the cache has every answer.
    """
    variables = {"simple_evaluate": "use_cache", "evaluate": "response_cache"}
    return _variable_of_evaluator(variables, is_required=True) is not None


def stated_reasoning_tags() -> str | None:
    """Return `--reasoning_tags` of the lmms-eval run that is calling; None for a run that was started from Python.

    Relies on: the local variable `cli_args` of `lmms_eval.evaluator.evaluate`, the parsed command line.

    Why: lmms-eval removes the reasoning from replies later, and does not tell the model between which tags.
    """
    stated = getattr(_variable_of_evaluator({"evaluate": "cli_args"}), "reasoning_tags", None)
    return None if stated is None else str(stated)


def _variable_of_evaluator(variables: Mapping[str, str], *, is_required: bool = False) -> object:
    """Return the first of `variables` that is set in a calling function of `lmms_eval.evaluator`; None if none is.

    Args:
        variables: name of the variable by name of the function.
        is_required: raise MissingDependency if a calling function has no such variable.
    """
    frame = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        name = variables.get(code.co_name)
        if name and frame.f_globals.get("__name__") == "lmms_eval.evaluator":
            if is_required and name not in code.co_varnames + code.co_cellvars:
                raise _unknown_release("lmms_eval", f"{code.co_name} has no variable {name}")
            if frame.f_locals.get(name) is not None:
                return frame.f_locals[name]
        frame = frame.f_back  # type: ignore[assignment]
    return None


# Checks and settings that use the patches.


def refuse_response_cache() -> None:
    """Raise InvalidInput if lmms-eval's `--use_cache` is on: its keys hold the model arguments, not the shown frames.

    Called at every point where lmms-eval calls us.
    """
    if uses_response_cache():
        raise InvalidInput(
            "--use_cache could answer from other frames than the chosen ones (its key does not hold them); "
            "leave it out: store= keeps what was encoded, and the rows keep every answer"
        )


def is_command_line() -> bool:
    """Return True if lmms-eval's command line is the running program."""
    return "lmms_eval.__main__" in sys.modules


@contextmanager
def command_line_errors() -> Iterator[None]:
    """End lmms-eval's command line with one line and exit code 2 if the block raises one of our errors.

    That command line catches every Exception, prints a traceback and ends with code 0: a script would take a model that
    could not be loaded for a finished run. Errors of other code keep their traceback. In a call from Python, every
    error is raised unchanged.
    """
    try:
        yield
    except FocusEvalError as error:
        if not is_command_line():
            raise
        print(f"focus-eval: {' '.join(str(error).split())}", file=sys.stderr, flush=True)
        # SystemExit is no Exception, so lmms-eval does not catch it.
        raise SystemExit(2) from error
    except (OSError, RuntimeError, ValueError, TypeError, AssertionError, ImportError) as error:
        if not is_command_line():
            raise
        traceback.print_exc()
        print(f"focus-eval: stopped by {error_line(error)}", file=sys.stderr, flush=True)
        raise SystemExit(2) from error


def rank_and_world() -> tuple[int, int]:
    """Return (rank of this process, number of processes) from `RANK` and `WORLD_SIZE`; (0, 1) without them."""
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


def place_on_rank(model: object) -> None:
    """Set rank and world size on a model that was built without knowing the other processes."""
    from accelerate import Accelerator

    # A process that does not know of the other ranks would answer all questions.
    rank, world_size = rank_and_world()
    # lmms-eval's evaluator waits for the other ranks through the accelerator.
    vars(model).update(_rank=rank, _world_size=world_size, accelerator=Accelerator())


@contextmanager
def one_process_on_cpu(device: object) -> Iterator[bool]:
    """Let the block build a wrapper on a CPU inside a multi-process run; yields True if it then needs `place_on_rank`.

    In a multi-process run the wrappers put each process on its own GPU and refuse any other device. On a CPU this is
    not needed: each process holds the whole model and answers its own questions. While the wrapper is built,
    accelerate reports one process; afterwards lmms-eval gathers the results through accelerate.
    """
    if device != "cpu" or rank_and_world()[1] == 1:
        yield False
        return
    with single_process_in_accelerate():
        yield True
