"""Writes subtitles into prompts as a benchmark does, after the frames are chosen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Literal

from focus_eval.core.errors import InvalidInput, unknown_name
from focus_eval.core.types import Question, TimedText
from focus_eval.keyframes.subtitles.files import in_order_of_time, read_subtitles
from focus_eval.keyframes.subtitles.prompts import (
    NO_SUBTITLES,
    SUBTITLE_LAYOUTS,
    SUBTITLE_RULES,
    SubtitleLayout,
    SubtitleMode,
    SubtitleRule,
    block_text,
    interleaved,
    shown_lines,
    text_of_parts,
)

SubtitleModeOption = Literal["", "off", "shown", "all"]
SubtitleLayoutOption = Literal["", "interleaved", "block"]


@dataclass(frozen=True, kw_only=True)
class SubtitleFacts:
    """How a benchmark writes subtitles into a prompt: the key `subtitles` of its YAML file.

    Args:
        rule: which subtitle lines belong to a frame; see `shown_lines`.
        layout: "interleaved" puts lines and pictures in one sequence, "block" lists the lines before the question.
        tasks: lmms-eval tasks whose own prompts have subtitles.
        without_file: text in place of the lines of a video without a file; "" makes a missing file an error.
    """

    rule: SubtitleRule
    layout: SubtitleLayout
    tasks: tuple[str, ...] = ()
    without_file: str = ""

    def __post_init__(self) -> None:
        """Raise UnknownName for an unknown rule or layout."""
        for name, value, names in (("rule", self.rule, SUBTITLE_RULES), ("layout", self.layout, SUBTITLE_LAYOUTS)):
            if value not in names:
                raise unknown_name(f"subtitles: {name}", value, names)


@dataclass(frozen=True, kw_only=True)
class SubtitleChoice:
    """Which subtitles a run writes into the prompts of a task, and where.

    Args:
        mode: "off", "shown" (lines of the shown frames) or "all".
        layout: see `SubtitleFacts`.
        facts: subtitle facts of the benchmark.
        pre_prompt: text with which the task begins its prompt, before lines and pictures.
    """

    mode: SubtitleMode
    layout: SubtitleLayout
    facts: SubtitleFacts
    pre_prompt: str = ""

    def __str__(self) -> str:
        """Return the part of a cell's identity: "off", "shown, block", "all, interleaved"."""
        return "off" if self.mode == "off" else f"{self.mode}, {self.layout}"


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """A prompt, with pictures between its lines if they are interleaved.

    Args:
        start: what precedes the sequence, on its first line.
        sequence: texts, and None for each picture in its place; () if the pictures stand elsewhere.
        question_text: the question and what follows it.
        note: `NO_SUBTITLES` if the video has none, or why the prompt does not fit the frames; "" otherwise.
    """

    start: str = ""
    sequence: tuple[str | None, ...] = ()
    question_text: str
    note: str = ""

    @property
    def text(self) -> str:
        """The prompt as one text, `PICTURE` for each picture."""
        return f"{self.start}{text_of_parts(self.sequence)}{chr(10) if self.sequence else ''}{self.question_text}"


@dataclass(frozen=True, kw_only=True)
class SubtitleOptions:
    """Subtitle options of a run.

    Args:
        mode: see `SubtitleChoice`; "" takes the mode of the task.
        layout: see `SubtitleFacts`; "" takes that of the benchmark, or "block" if the model cannot interleave.
        can_interleave: True if the model takes pictures one by one, with text between them.
    """

    mode: SubtitleModeOption = ""
    layout: SubtitleLayoutOption = ""
    can_interleave: bool = False


def subtitle_choice(
    facts: SubtitleFacts | None,
    options: SubtitleOptions,
    *,
    is_written_by_task: bool,
    location: str,
    pre_prompt: str = "",
) -> SubtitleChoice | None:
    """Return the choice for a task; None if the task writes no subtitles and `options` asks for none.

    Args:
        facts: subtitle facts of the task's benchmark; None if it declares none.
        location: benchmark or task, for messages.

    Raises:
        InvalidInput: the benchmark declares no subtitles.
    """
    mode = options.mode or ("shown" if is_written_by_task else "off")
    if facts is None:
        if mode == "off":
            return None
        raise InvalidInput(f"subtitles={mode}: {location} declares no `subtitles` in its file; subtitles=off")
    if mode == "off" and not is_written_by_task:
        return None
    own_layout: SubtitleLayout = facts.layout if options.can_interleave else "block"
    return SubtitleChoice(mode=mode, layout=options.layout or own_layout, facts=facts, pre_prompt=pre_prompt)


def make_prompt(
    text: str, question: Question, choice: SubtitleChoice, *, video_path: Path, times: Sequence[float], fps: float
) -> Prompt:
    """Return the prompt for the frames at `times`.

    Args:
        text: the task's prompt without subtitles.
        video_path: path of the video file; the subtitles are found from its folder.
        times: presentation times of the shown frames in seconds, ascending.
        fps: frame rate of the video.

    Raises:
        InvalidInput: the subtitle file cannot be read, or is missing although the benchmark does not allow that.
    """
    if choice.mode == "off":
        return Prompt(question_text=text)
    facts = choice.facts
    lines = _lines_of(question, facts, video_path)
    question_text = text.removeprefix(choice.pre_prompt)
    start = text.removesuffix(question_text)
    texts_of = lines if choice.mode == "all" else shown_lines(lines, times, rule=facts.rule, fps=fps)
    note = "" if lines else NO_SUBTITLES
    if choice.layout == "interleaved":
        sequence = interleaved(lines, times, texts_of=texts_of)
        return Prompt(start=start, sequence=tuple(sequence), question_text=question_text, note=note)
    absence = "" if lines else facts.without_file or NO_SUBTITLES
    block = block_text(in_order_of_time(tuple(texts_of)), absence=absence)
    return Prompt(question_text=f"{start}{block}{question_text}", note=note)


def _lines_of(question: Question, facts: SubtitleFacts, video_path: Path) -> tuple[TimedText, ...]:
    """The subtitles of a question's video; () for a missing file that the benchmark allows."""
    if not question.subtitles:
        raise InvalidInput(f"{question.benchmark} {question.id}: the document names no file of subtitles")
    folder = video_path.parents[len(PurePath(question.video).parts) - 1].parent
    path = folder / question.subtitles
    if facts.without_file and not path.exists():
        return ()
    # A line without an end lasts to the annotated end of the video, as in lmms-eval.
    return read_subtitles(
        path, offset_seconds=question.subtitles_offset_seconds, open_end_seconds=question.duration_seconds
    )
