"""The published ways of asking LLaVA-Video: pooling, newlines, prompt, times."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, Literal, get_args

from focus_eval.errors import unknown_name

Pooling = Literal["bilinear", "average"]
Newline = Literal["grid", "frame", "one_token", "no_token"]
Template = Literal["qwen_1_5", "qwen_2_5", "chatml_direct"]
TimeInstruction = Literal["off", "lmms_eval", "model_card"]
Times = Literal["exact", "original"]


@dataclass(frozen=True, kw_only=True)
class Setup:
    """How frames become tokens and a question becomes a prompt.

    Args:
        pooling: from 27x27 patches to 14x14 ("bilinear") or 13x13 ("average"); "checkpoint" is what its config says.
        newline: where the newline vector goes: after each row, after each frame, once at the end, nowhere.
        template: the conversation the question is put into.
        time_instruction: the sentence with the times of the frames, after "<image>" and a newline as in training and
            lmms-eval, or straight after "<image>" as on the model card.
        times: "exact" names the presentation times; "original" is the public code's rule, frame / round(fps).
    """

    pooling: Pooling | Literal["checkpoint"] = "checkpoint"
    newline: Newline | Literal["checkpoint"] = "checkpoint"
    template: Template = "qwen_1_5"
    time_instruction: TimeInstruction = "off"
    times: Times = "exact"

    def __post_init__(self) -> None:
        for option, known in _KNOWN.items():
            if getattr(self, option) not in known:
                raise unknown_name(option, str(getattr(self, option)), known)


_KNOWN: dict[str, tuple[str, ...]] = {
    "pooling": ("checkpoint", *get_args(Pooling)),
    "newline": ("checkpoint", *get_args(Newline)),
    "template": get_args(Template),
    "time_instruction": get_args(TimeInstruction),
    "times": get_args(Times),
}

# AKS's scripts run lmms-eval's llava_vid with overwrite=False, which leaves the checkpoint's pooling alone.
PRESETS = {
    "aks": Setup(template="chatml_direct"),
    "lmms_eval": Setup(pooling="average", newline="grid", template="qwen_1_5"),
}
SETUP_OPTIONS = tuple(option.name for option in fields(Setup))


def make_setup(preset: str = "aks", **options: Any) -> Setup:
    """Return the preset with the given options changed; None leaves an option as the preset has it.

    Raises:
        UnknownName: a preset, option or value nobody knows, with the nearest one.
    """
    if preset not in PRESETS:
        raise unknown_name("preset", preset, PRESETS)
    for option in options:
        if option not in SETUP_OPTIONS:
            raise unknown_name("option of LLaVA-Video", option, SETUP_OPTIONS)
    told = {option: value for option, value in options.items() if value is not None}
    if isinstance(told.get("time_instruction"), bool):  # as lmms-eval's own add_time_instruction
        told["time_instruction"] = "lmms_eval" if told["time_instruction"] else "off"
    return replace(PRESETS[preset], **told)
