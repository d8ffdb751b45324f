"""What a matrix asks otherwise than the paper's runs, or than lmms-eval as it is, and what that may change.

Facts about the runs of others are from the paper, from AKS's evaluation code, which FOCUS points to, and from the
installed lmms-eval. A size is counted where it can be; nothing of it was measured with real weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from focus_eval.core.errors import InvalidInput, unknown_name
from focus_eval.lmms.manifests import stock_name
from focus_eval.lmms.prompts import DEFAULT, prompts_for, task_values
from focus_eval.matrix.config import MatrixConfig, ModelConfig
from focus_eval.matrix.questions import QuestionSet
from focus_eval.report.tables import read_anchors

PAPER, LMMS_EVAL = "paper", "lmms-eval"
OTHERS = (PAPER, LMMS_EVAL)
PAPERS_GPT4O = "gpt-4o-2024-05-13"
# qwen-vl-utils: most pixels of a frame, and of all decoded frames of a video together, which share them in pairs.
FRAME_PIXELS = 768 * 28 * 28
VIDEO_PIXELS = 128_000 * 28 * 28 * 0.9
# A stock Qwen2-VL run decodes two frames a second, at most so many, and keeps K of them.
STOCK_FPS, STOCK_FRAMES = 2, 768
_UNKNOWN = "size not known"


@dataclass(frozen=True)
class Difference:
    """One thing that is asked otherwise.

    Args:
        of: model, sampler or benchmark.
        ours, theirs: what holds here, and there.
        size: what it may change, as far as it can be counted.
    """

    of: str
    what: str
    ours: str
    theirs: str
    size: str = _UNKNOWN

    @property
    def line(self) -> str:
        """The difference as one sentence."""
        return f"{self.of}, {self.what}: here {self.ours}; there {self.theirs}. {self.size[0].upper()}{self.size[1:]}."


def differences(matrix: MatrixConfig, sets: Mapping[str, QuestionSet], other: str) -> list[Difference]:
    """Return what `matrix` asks otherwise than `other`, "paper" or "lmms-eval".

    Args:
        sets: the questions by benchmark, as far as they are on this machine: sizes are counted over them.

    Raises:
        UnknownName: another name.
    """
    if other not in OTHERS:
        raise unknown_name("protocol", other, OTHERS)
    if not matrix.models:
        return []
    found = [item for model in matrix.models for item in _of_model(model, matrix, sets, other)]
    return [*found, *_of_parsing(matrix), *(_of_samplers(matrix, sets) if other == PAPER else ())]


def _of_model(
    model: ModelConfig, matrix: MatrixConfig, sets: Mapping[str, QuestionSet], other: str
) -> Iterator[Difference]:
    known = {"focus_gpt4o": _of_gpt4o, "focus_llava_onevision": _of_onevision, "focus_llava_video": _of_llava_video}
    if model.model in known:
        yield from known[model.model](model, other)
    elif model.model.startswith("focus_qwen"):
        yield from _of_resolution(model, matrix, sets)
    if other == LMMS_EVAL:
        yield from _of_prompts(model, matrix)


def _of_gpt4o(model: ModelConfig, other: str) -> Iterator[Difference]:
    version = str(model.args.get("model_version") or model.args.get("model") or "gpt-4o")
    if other == PAPER and version != PAPERS_GPT4O:
        yield Difference(model.name, "version", version, PAPERS_GPT4O, "another model answers: size not known")
    quality, side = model.args.get("jpeg_quality"), model.args.get("max_side")
    if quality or side:
        ours = f"{'JPEG ' + str(quality) if quality else 'PNG'}, {f'at most {side} px' if side else 'full size'}"
        theirs = "PNG of full size" + (", lmms-eval's way; the paper does not say" if other == PAPER else "")
        yield Difference(model.name, "images", ours, theirs, "none for frames within that size, but for JPEG's loss")
    if other == LMMS_EVAL:
        said = "its chat requests send wrong frames (21 of 64 in a trial)"
        yield Difference(model.name, "frames sent", "those chosen", said)


def _of_onevision(model: ModelConfig, other: str) -> Iterator[Difference]:
    own = "the chat template of the checkpoint's tokenizer"
    theirs = {
        PAPER: "vicuna_v1, the default of AKS's evaluation code; the paper does not say",
        LMMS_EVAL: "qwen_1_5 under llava_onevision; the same as here under llava_hf",
    }
    yield Difference(model.name, "template", own, theirs[other])
    yield Difference(model.name, "numbers", "as the checkpoint is stored", "float16", "rounding; either sign")


def _of_llava_video(model: ModelConfig, other: str) -> Iterator[Difference]:
    dtype, preset = str(model.args.get("dtype") or "bfloat16"), str(model.args.get("preset") or "aks")
    if dtype != "float16":
        size = "rounding; either sign, but Qwen2 overflows in float16 (answers of '!!!')"
        yield Difference(model.name, "numbers", dtype, "float16, llava_vid's default", size)
    if preset != "aks" or other == LMMS_EVAL:
        here = {"aks": "bilinear pooling, chatml_direct", "lmms_eval": "average pooling, qwen_1_5"}.get(preset, preset)
        there = {PAPER: "bilinear pooling, chatml_direct", LMMS_EVAL: "average pooling, vicuna_v1 by default"}[other]
        yield Difference(model.name, "pooling and template", here, there)
    if model.args.get("times", "exact") == "exact":
        said = "divided by the stride"
        yield Difference(model.name, "printed times", "the frames' own", said, "4 % of a time at 12.5 fps, 0 at 30")


def frame_pixels(decoded: float, max_pixels: float = FRAME_PIXELS) -> float:
    """Return the most pixels of a frame where so many frames of a video share qwen-vl-utils's budget."""
    return min(max_pixels, FRAME_PIXELS, 2 * VIDEO_PIXELS / decoded)


def _of_resolution(model: ModelConfig, matrix: MatrixConfig, sets: Mapping[str, QuestionSet]) -> Iterator[Difference]:
    most = float(model.args.get("max_pixels") or FRAME_PIXELS)
    k = max(matrix.k, default=model.frames)
    ours, theirs = frame_pixels(k, most), frame_pixels(STOCK_FRAMES, most)
    if ours <= theirs:
        return
    long, total = _count(sets, lambda seconds: seconds * STOCK_FPS >= STOCK_FRAMES)
    size = f"{ours / theirs:.2f} times the visual tokens a frame on videos of {STOCK_FRAMES // STOCK_FPS} s and more"
    size += f", {long:,} of {total:,} questions" if total else ""
    size += f"; max_pixels={theirs:.0f} takes it away"
    yield Difference(model.name, "resolution", f"{ours:,.0f} px a frame", f"{theirs:,.0f} on long videos", size)


def _of_prompts(model: ModelConfig, matrix: MatrixConfig) -> Iterator[Difference]:
    """Yield the tasks of ours whose official task has prompts of its own for the wrapper behind the model."""
    stock = stock_name(model.model)
    for task in [item.task for item in matrix.benchmarks if item.task.startswith("focus_")]:
        official = task.removeprefix("focus_")
        try:
            found = prompts_for(task_values(official), model.model, stock)
        except InvalidInput:  # no official task of that name, and none that has prompts by model
            continue
        if found != DEFAULT:
            size = f"size not known; set task: {official} to ask so"
            yield Difference(f"{model.name} on {task}", "prompt", DEFAULT, f"that of {found}", size)


def _of_parsing(matrix: MatrixConfig) -> Iterator[Difference]:
    names = [item.name for item in matrix.benchmarks]
    if matrix.answer_parsing == "strict":
        theirs = "lmms-eval's rules, which guess (LongVideoBench) or take any first letter"
        size = "none where every answer is a letter; else at most the share of unparsed answers"
        yield Difference(", ".join(names), "reading of answers", "strict", theirs, size)


def _of_samplers(matrix: MatrixConfig, sets: Mapping[str, QuestionSet]) -> Iterator[Difference]:
    names = {item.sampler for item in matrix.samplers}
    if matrix.frame_policy == "exact":
        sizes = [_shorter_than(k, sets) for k in sorted({*matrix.k} or {model.frames for model in matrix.models})]
        size = "; ".join(filter(None, sizes)) or _UNKNOWN
        if "uniform" in names:
            yield Difference("uniform", "frames of a short video", "K", "one a second, at most K", size)
        theirs = "K uniform frames in place of a selection with fewer (frame_policy: aks)"
        yield Difference("keyframe samplers", "short selections", "what was chosen", theirs, size)
    # A published table keeps the lines of samplers that this matrix does not have.
    lines = read_anchors(matrix.anchors) if matrix.anchors else ()
    names |= {text for line in lines for text in line.values()}
    yield from (item for item in PUBLISHED_SAMPLERS if item.of in names)


def _shorter_than(k: int, sets: Mapping[str, QuestionSet]) -> str:
    short, total = _count(sets, lambda seconds: int(seconds) < k)
    return f"{short:,} of {total:,} questions have a video of less than K = {k} s" if total else ""


# How the figures of other samplers came about, where one stands beside ours.
PUBLISHED_SAMPLERS = (
    Difference(
        "aks", "published figures", "this run's model, template and reading",
        "its own fork: float16, vicuna_v1 unless told otherwise, frames of whole seconds",
    ),
    Difference(
        "qframe", "published figures", "K frames as for every sampler, or three sizes where a model takes them",
        "4 frames of full, 8 of half and 32 of a quarter of the side: the tokens of 8 full frames",
    ),
)  # fmt: skip


def _count(sets: Mapping[str, QuestionSet], holds: Any) -> tuple[int, int]:
    """Return for how many questions `holds(seconds of the video)`, and of how many the length is known."""
    seconds = [
        info.duration_seconds if (info := questions.known_info(question)) else question.duration_seconds
        for questions in sets.values()
        for question in questions.questions
    ]
    known = [item for item in seconds if item is not None]
    return sum(bool(holds(item)) for item in known), len(known)
