"""Lists how a matrix differs from the paper's runs, or from plain lmms-eval, and what each difference may change.

Facts about the runs of others are from the paper, from AKS's evaluation code, which FOCUS points to, and from the
installed lmms-eval. Sizes are computed from questions and settings; none was measured with real weights.
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
REFERENCES = (PAPER, LMMS_EVAL)
PAPERS_GPT4O = "gpt-4o-2024-05-13"
# qwen-vl-utils: most pixels of a frame, and of all decoded frames of a video together, which share them in pairs.
FRAME_PIXELS = 768 * 28 * 28
VIDEO_PIXELS = 128_000 * 28 * 28 * 0.9
# A stock Qwen2-VL run decodes two frames a second, at most so many, and keeps K of them.
STOCK_FPS, STOCK_FRAMES = 2, 768
_UNKNOWN = "size not known"


@dataclass(frozen=True)
class Difference:
    """One difference between a matrix and its reference.

    Args:
        of: name of the model, sampler or benchmark concerned.
        aspect: what differs, e.g. "template".
        setting, reference_setting: its value in the matrix, and in the reference.
        size: how much the difference may change, in words; "size not known" where that cannot be counted.
    """

    of: str
    aspect: str
    setting: str
    reference_setting: str
    size: str = _UNKNOWN

    @property
    def line(self) -> str:
        """Return the difference as one sentence."""
        return (
            f"{self.of}, {self.aspect}: here {self.setting}; there {self.reference_setting}. "
            f"{self.size[0].upper()}{self.size[1:]}."
        )


def differences(matrix: MatrixConfig, sets: Mapping[str, QuestionSet], reference: str) -> list[Difference]:
    """Return the differences of `matrix` from `reference`, "paper" or "lmms-eval"; [] for a matrix without models.

    Args:
        sets: questions by benchmark name; sizes are counted over them, and benchmarks may be left out.

    Raises:
        UnknownName: another reference.
    """
    if reference not in REFERENCES:
        raise unknown_name("protocol", reference, REFERENCES)
    if not matrix.models:
        return []
    of_models = [item for model in matrix.models for item in _model_differences(model, matrix, sets, reference)]
    return [
        *of_models,
        *_parsing_differences(matrix),
        *(_sampler_differences(matrix, sets) if reference == PAPER else ()),
    ]


def _model_differences(
    model: ModelConfig, matrix: MatrixConfig, sets: Mapping[str, QuestionSet], reference: str
) -> Iterator[Difference]:
    functions = {
        "focus_gpt4o": _gpt4o_differences,
        "focus_llava_onevision": _onevision_differences,
        "focus_llava_video": _llava_video_differences,
    }
    if model.model in functions:
        yield from functions[model.model](model, reference)
    elif model.model.startswith("focus_qwen"):
        yield from _resolution_differences(model, matrix, sets)
    if reference == LMMS_EVAL:
        yield from _prompt_differences(model, matrix)


def _gpt4o_differences(model: ModelConfig, reference: str) -> Iterator[Difference]:
    version = str(model.args.get("model_version") or model.args.get("model") or "gpt-4o")
    if reference == PAPER and version != PAPERS_GPT4O:
        yield Difference(model.name, "version", version, PAPERS_GPT4O, "another model answers: size not known")
    quality, side = model.args.get("jpeg_quality"), model.args.get("max_side")
    if quality or side:
        image_format = (
            f"{'JPEG ' + str(quality) if quality else 'PNG'}, {f'at most {side} px' if side else 'full size'}"
        )
        reference_format = "PNG of full size" + (
            ", lmms-eval's way; the paper does not say" if reference == PAPER else ""
        )
        yield Difference(
            model.name,
            "images",
            image_format,
            reference_format,
            "none for frames within that size, but for JPEG's loss",
        )
    if reference == LMMS_EVAL:
        defect = "its chat requests send wrong frames (21 of 64 in a trial)"
        yield Difference(model.name, "frames sent", "those chosen", defect)


def _onevision_differences(model: ModelConfig, reference: str) -> Iterator[Difference]:
    template = "the chat template of the checkpoint's tokenizer"
    reference_templates = {
        PAPER: "vicuna_v1, the default of AKS's evaluation code; the paper does not say",
        LMMS_EVAL: "qwen_1_5 under llava_onevision; the same as here under llava_hf",
    }
    yield Difference(model.name, "template", template, reference_templates[reference])
    yield Difference(model.name, "numbers", "as the checkpoint is stored", "float16", "rounding; either sign")


def _llava_video_differences(model: ModelConfig, reference: str) -> Iterator[Difference]:
    dtype, preset = str(model.args.get("dtype") or "bfloat16"), str(model.args.get("preset") or "aks")
    if dtype != "float16":
        size = "rounding; either sign, but Qwen2 overflows in float16 (answers of '!!!')"
        yield Difference(model.name, "numbers", dtype, "float16, llava_vid's default", size)
    if preset != "aks" or reference == LMMS_EVAL:
        pooling = {"aks": "bilinear pooling, chatml_direct", "lmms_eval": "average pooling, qwen_1_5"}.get(
            preset, preset
        )
        reference_pooling = {
            PAPER: "bilinear pooling, chatml_direct",
            LMMS_EVAL: "average pooling, vicuna_v1 by default",
        }[reference]
        yield Difference(model.name, "pooling and template", pooling, reference_pooling)
    if model.args.get("times", "exact") == "exact":
        stride_text = "divided by the stride"
        yield Difference(
            model.name, "printed times", "the frames' own", stride_text, "4 % of a time at 12.5 fps, 0 at 30"
        )


def frame_pixels(decoded: float, max_pixels: float = FRAME_PIXELS) -> float:
    """Return the pixel limit of one frame when `decoded` frames of a video share the budget of qwen-vl-utils."""
    return min(max_pixels, FRAME_PIXELS, 2 * VIDEO_PIXELS / decoded)


def _resolution_differences(
    model: ModelConfig, matrix: MatrixConfig, sets: Mapping[str, QuestionSet]
) -> Iterator[Difference]:
    max_pixels = float(model.args.get("max_pixels") or FRAME_PIXELS)
    k = max(matrix.k, default=model.frames)
    frame_size, stock_frame_size = frame_pixels(k, max_pixels), frame_pixels(STOCK_FRAMES, max_pixels)
    if frame_size <= stock_frame_size:
        return
    long, total = _count(sets, lambda seconds: seconds * STOCK_FPS >= STOCK_FRAMES)
    size = f"{frame_size / stock_frame_size:.2f} times the visual tokens a frame"
    size += f" on videos of {STOCK_FRAMES // STOCK_FPS} s and more"
    size += f", {long:,} of {total:,} questions" if total else ""
    size += f"; max_pixels={stock_frame_size:.0f} takes it away"
    yield Difference(
        model.name, "resolution", f"{frame_size:,.0f} px a frame", f"{stock_frame_size:,.0f} on long videos", size
    )


def _prompt_differences(model: ModelConfig, matrix: MatrixConfig) -> Iterator[Difference]:
    """Yield a difference for each `focus_` task whose official counterpart has its own prompts for this model."""
    stock = stock_name(model.model)
    for task in [item.task for item in matrix.benchmarks if item.task.startswith("focus_")]:
        official = task.removeprefix("focus_")
        try:
            prompts = prompts_for(task_values(official), model.model, stock)
        except InvalidInput:  # no official task of that name, and none that has prompts by model
            continue
        if prompts != DEFAULT:
            size = f"size not known; set task: {official} to ask so"
            yield Difference(f"{model.name} on {task}", "prompt", DEFAULT, f"that of {prompts}", size)


def _parsing_differences(matrix: MatrixConfig) -> Iterator[Difference]:
    names = [item.name for item in matrix.benchmarks]
    if matrix.answer_parsing == "strict":
        rules = "lmms-eval's rules, which guess (LongVideoBench) or take any first letter"
        size = "none where every answer is a letter; else at most the share of unparsed answers"
        yield Difference(", ".join(names), "reading of answers", "strict", rules, size)


def _sampler_differences(matrix: MatrixConfig, sets: Mapping[str, QuestionSet]) -> Iterator[Difference]:
    names = {item.sampler for item in matrix.samplers}
    if matrix.frame_policy == "exact":
        sizes = [_shorter_than(k, sets) for k in sorted({*matrix.k} or {model.frames for model in matrix.models})]
        size = "; ".join(filter(None, sizes)) or _UNKNOWN
        if "uniform" in names:
            yield Difference("uniform", "frames of a short video", "K", "one a second, at most K", size)
        fallback = "K uniform frames in place of a selection with fewer (frame_policy: aks)"
        yield Difference("keyframe samplers", "short selections", "what was chosen", fallback, size)
    # A published table keeps the lines of samplers that this matrix does not have.
    lines = read_anchors(matrix.anchors) if matrix.anchors else ()
    names |= {text for line in lines for text in line.values()}
    yield from (item for item in PUBLISHED_SAMPLERS if item.of in names)


def _shorter_than(k: int, sets: Mapping[str, QuestionSet]) -> str:
    """Return a sentence with the number of questions on videos shorter than `k` seconds; "" if no length is known."""
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
    """Return the number of questions whose video length satisfies `holds(seconds)`, and of known lengths."""
    seconds = [
        info.duration_seconds if (info := questions.known_info(question)) else question.duration_seconds
        for questions in sets.values()
        for question in questions.questions
    ]
    lengths = [item for item in seconds if item is not None]
    return sum(bool(holds(item)) for item in lengths), len(lengths)
