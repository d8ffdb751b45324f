"""The text around the video in LLaVA-Video's prompt."""

from __future__ import annotations

from collections.abc import Sequence

from focus_eval.lmms.llava_video.setup import Template, TimeInstruction

IMAGE = "<image>"
STOP = "<|im_end|>"

_SYSTEM: dict[Template, str] = {
    "qwen_1_5": "You are a helpful assistant.",
    "qwen_2_5": "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.",
    "chatml_direct": "Answer the questions.",
}


def prompt_halves(
    question: str, *, template: Template, time_instruction: TimeInstruction = "off", time_sentence: str = ""
) -> tuple[str, str]:
    """Return the text before and after the video; each half is tokenised on its own, as the original does.

    `chatml_direct` puts no newline after a turn's end, the Qwen templates do.
    """
    gap = "" if template == "chatml_direct" else "\n"
    start = "<|im_start|>"
    before = f"{start}system\n{_SYSTEM[template]}{STOP}{gap}{start}user\n"
    after = f"{user_tail(question, time_instruction, time_sentence)}{STOP}{gap}{start}assistant\n"
    return before, after


def user_tail(question: str, time_instruction: TimeInstruction, time_sentence: str) -> str:
    """Return the user's words after the video."""
    if time_instruction == "off":
        return f"\n{question}"
    lead = "\n" if time_instruction == "lmms_eval" else ""
    return f"{lead}{time_sentence}\n{question}"


def time_sentence(times_seconds: Sequence[float], *, duration_seconds: float) -> str:
    """Return the sentence that tells the model when its frames were taken.

    Its words, "uniformly" and the missing blank before "Please", are those the model was trained with, whatever
    sampler chose the frames.
    """
    return (
        f"The video lasts for {duration_seconds:.2f} seconds, and {len(times_seconds)} frames are uniformly sampled"
        f" from it. These frames are located at {time_list(times_seconds)}.Please answer the following questions"
        " related to this video."
    )


def time_list(times_seconds: Sequence[float]) -> str:
    """Return "0.00s,4.27s,...": two decimals, commas, no blanks."""
    return ",".join(f"{time:.2f}s" for time in times_seconds)
