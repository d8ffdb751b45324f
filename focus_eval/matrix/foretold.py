"""Foretells a matrix before its data is there: stated lengths of videos, and hours of answering by arithmetic.

sets = stated_sets(load_matrix("alpha"))
for line in answer_lines(make_plan(matrix, sets=sets), load_machine("eight_h100")):
    print(line.model, line.hours)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from focus_eval.core.resources import resource_path
from focus_eval.core.types import Question, VideoInfo
from focus_eval.matrix.config import MatrixConfig, load_yaml
from focus_eval.matrix.plan import Machine, Plan
from focus_eval.matrix.questions import QuestionSet

# Of an answer, beside the frames: the question with its options, and the letter with its end.
TEXT_TOKENS, OUTPUT_TOKENS = 300, 2
_BYTES_OF_WEIGHT = 2


class StatedLengths(QuestionSet):
    """Questions without a text or a file, whose videos have the lengths and the rate that public annotations state."""

    def known_info(self, question: Question) -> VideoInfo:
        """Return the stated length of the question's video."""
        assert question.duration_seconds is not None
        assert question.fps is not None
        return VideoInfo(max(1, round(question.duration_seconds * question.fps)), question.fps)


def stated_sets(matrix: MatrixConfig) -> dict[str, QuestionSet]:
    """Return stated questions by configured name, of those benchmarks of `matrix` whose lengths are shipped."""
    lengths, sets = _public("lengths"), dict[str, QuestionSet]()
    for config in matrix.benchmarks:
        if config.name in lengths:
            questions = tuple(_stated_questions(config.benchmark, lengths[config.name]))
            sets[config.name] = StatedLengths(config, questions[: matrix.limit], [each.id for each in questions])
    return sets


def stated_source(benchmark: str) -> str:
    """Return where the stated lengths of a benchmark are from."""
    return str(_public("lengths")[benchmark]["source"])


def _stated_questions(benchmark: str, lengths: dict[str, Any]) -> Iterator[Question]:
    """Yield stand-in questions; `lengths["videos"]` has (seconds, questions a video, number of videos)."""
    for group, (seconds, n_questions, n_videos) in enumerate(lengths["videos"]):
        for number in range(n_videos * n_questions):
            video = f"{group}-{number // n_questions}"
            yield Question(
                benchmark=benchmark,
                id=f"{video}-{number % n_questions}",
                query="What happens in the video?",
                options=("first", "second", "third", "fourth"),
                video=video,
                answer="A",
                duration_seconds=float(seconds),
                fps=float(lengths["fps"]),
            )


@dataclass(frozen=True, kw_only=True)
class AnswerLine:
    """Arithmetic time of one model's answers on a machine.

    Args:
        model: its configured name.
        answers: number of questions over all its cells.
        tokens: read by the language model, frames and text, summed over answers.
        hours: from start to end on all GPUs; None for a service and where the machine states no GPU figures.
        dollars: for a service; None for a model on the machine.
    """

    model: str
    answers: int
    tokens: int
    hours: float | None
    dollars: float | None


def answer_lines(plan: Plan, machine: Machine) -> list[AnswerLine]:
    """Return a line for each model of `plan` whose size is shipped."""
    facts, lines = _public("models"), list[AnswerLine]()
    for model in plan.matrix.models:
        if model.name not in facts:
            continue
        size = facts[model.name]
        frames = [
            (plan.questions[cell.benchmark.name][0], cell.selection.k)
            for cell in plan.cells
            if cell.model.name == model.name
        ]
        answers, n_frames = sum(n for n, _ in frames), sum(n * k for n, k in frames)
        tokens = round(n_frames * size["frame_tokens"]) + answers * TEXT_TOKENS
        is_service = "dollars_per_million_tokens" in size
        seconds = None if is_service else _answer_seconds(size, machine, frames)
        if seconds is not None:
            seconds *= machine.answer_factors.get(model.name, 1.0)
        lines.append(
            AnswerLine(
                model=model.name,
                answers=answers,
                tokens=tokens,
                hours=None if seconds is None else seconds / machine.gpus / 3600,
                dollars=tokens * size["dollars_per_million_tokens"] / 1e6 if is_service else None,
            )
        )
    return lines


def planned_answer_seconds(model: str, machine: Machine, k: int) -> float | None:
    """Return the GPU seconds of an answer to `k` frames by arithmetic; None for a service or an unknown model."""
    size = _public("models").get(model, {})
    return _answer_seconds(size, machine, [(1, k)]) if "layers" in size else None


def _answer_seconds(size: dict[str, Any], machine: Machine, frames: list[tuple[int, int]]) -> float | None:
    """Return GPU seconds: products of tower and language model at the reached rate, then weights read once a token.

    Args:
        frames: (number of questions, frames shown to each) by cell.
    """
    if machine.gpu_tflops is None or machine.gpu_terabytes_per_second is None or not machine.gpus:
        return None
    products = reading = 0.0
    for n_questions, k in frames:
        n_tokens = k * size["frame_tokens"] + TEXT_TOKENS
        # Causal: a token attends to half of all tokens on average, once for scores and once for sums.
        attention = size["layers"] * size["width"] * n_tokens**2
        products += n_questions * (1e9 * (size["billions"] * n_tokens + size["frame_gmacs"] * k) + attention)
        reading += n_questions * OUTPUT_TOKENS * size["billions"] * _BYTES_OF_WEIGHT
    return 2 * products / (machine.gpu_tflops * 1e12 * machine.share_reached) + reading / (
        machine.gpu_terabytes_per_second * 1e3
    )


def _public(name: str) -> dict[str, Any]:
    """Return the shipped public facts called `name`: "lengths" of benchmarks or sizes of "models"."""
    facts: dict[str, Any] = load_yaml(Path(str(resource_path("configs"))) / "public" / f"{name}.yaml")
    return facts
