"""Answers with an encoder alone: the option that fits the shown frames best.

`focus_zero_shot` needs no language model: frames are weighted by their relevance to the question, and the option
nearest to the weighted frames is the answer. The answerer recognises what a frame shows, but no actions; it
cannot count or follow instructions. Use it to compare samplers without a language model, not in place of one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from lmms_eval.api.instance import Instance
from lmms_eval.api.model import lmms

from focus_eval.bench.answering.frames import PathWithFrames
from focus_eval.bench.benchmarks.question import LETTERS
from focus_eval.bench.lmms.adapter import FrameAdapter
from focus_eval.core.errors import AnswerError, InvalidInput
from focus_eval.core.types import FloatArray, Question
from focus_eval.keyframes.encoders.base import Encoder, FrameFeatures, feature_array
from focus_eval.keyframes.encoders.cache import duplicate_cache

if TYPE_CHECKING:
    from typing_extensions import Self

    from focus_eval.bench.answering.questions import FramedQuestion
    from focus_eval.bench.answering.tracing import GenerateTrace
    from focus_eval.core.types import Pixels


class ZeroShotAnswerer(lmms):  # type: ignore[misc]
    """An lmms-eval model that answers with an encoder; `FocusZeroShot` makes the encoder and shows it the frames.

    Args:
        temperature: of the softmax over the frames' relevance to the question, above 0.
        max_num_frames: most frames it is shown.
        device: of the encoder, if it has a choice.
        batch_size: questions at a time; only 1.
    """

    scorer: Encoder
    _questions: dict[tuple[str, str, int], Question]
    _trace: GenerateTrace

    def __init__(
        self, *, temperature: float = 0.05, max_num_frames: int = 8, device: str = "", batch_size: int = 1
    ) -> None:
        super().__init__()
        if not temperature > 0:
            raise InvalidInput(f"focus_zero_shot: temperature must be above 0, got {temperature}")
        self.temperature = float(temperature)
        self.max_num_frames = int(max_num_frames)
        self.batch_size_per_gpu = int(batch_size)

    @property
    def batch_size(self) -> int:
        """Questions at a time."""
        return self.batch_size_per_gpu

    def generate_until(self, requests: list[Instance]) -> list[str]:
        """Return the letter of the best option for each request."""
        return [self._answer_request(request) for request in requests]

    def loglikelihood(self, requests: list[Instance]) -> list[tuple[float, bool]]:
        """Raise NotImplementedError: an encoder has no likelihoods of answers."""
        raise NotImplementedError("focus_zero_shot has no likelihoods; use tasks that generate an answer")

    def generate_until_multi_round(self, requests: list[Instance]) -> list[str]:
        """Raise NotImplementedError: questions of several rounds are not supported."""
        raise NotImplementedError("focus_zero_shot: questions of several rounds are not supported")

    def _answer_request(self, request: Instance) -> str:
        """The letter that answers one request from its chosen frames; raises AnswerError without a sampler."""
        _, _, look, doc_id, task, split = request.args
        (video,) = look(self.task_dict[task][split][doc_id])
        if not isinstance(video, PathWithFrames):
            raise AnswerError("focus_zero_shot has no sampling of its own: set sampler=")
        pixels = video.frame_batch.take()
        self._trace.frames = [len(pixels)]
        if self.scorer.needs_gpu:
            # Questions take turns: each may fill the memory of a GPU, and on the processor all its cores.
            self._trace.take_model()
        with self._trace.generating():
            return self.read(self._questions[task, split, doc_id], pixels)

    def read(self, question: Question, pixels: Pixels) -> str:
        """Return the letter of the option that fits RGB frames `(n, height, width, 3)` best; of equals, the first.

        Raises:
            AnswerError: an open question.
        """
        if not question.options:
            raise AnswerError(
                f"{question.benchmark} {question.id}: focus_zero_shot answers questions with options only"
            )
        features = self._features(pixels)
        scores = option_scores(self.scorer, features, question.query, question.options, temperature=self.temperature)
        return LETTERS[int(np.argmax(scores))]

    def _features(self, pixels: Pixels) -> FrameFeatures:
        """The encoder's features of the frames; pictures seen before are not embedded again."""
        scorer = self.scorer
        prepared = scorer.prepare(pixels)
        if not scorer.embeds_independently:
            return scorer.embed(prepared)
        # The cache holds frames that a sampler pulled in this process, and frames that were shown for another question.
        cache = duplicate_cache(f"{scorer.name} {scorer.revision}")
        return cache.embed(prepared, lambda part: feature_array(scorer.embed(part)))[0]


@dataclass(frozen=True, kw_only=True)
class AnswererOptions:
    """The answerer's own arguments. They are independent of the samplers' `encoder`; keep them fixed in comparisons.

    Args:
        answer_encoder: an encoder of pixels, with its options or without.
        answer_encoder_checkpoint: its checkpoint, if it has several.
    """

    answer_encoder: str = "offline"
    answer_encoder_checkpoint: str = ""


class FocusZeroShot(FrameAdapter, ZeroShotAnswerer):
    """The zero-shot answerer, shown the chosen frames through the same adapter as every model."""

    model_id: ClassVar[str] = "focus_zero_shot"
    frames_argument: ClassVar[str] = "max_num_frames"
    largest_batch: ClassVar[int | None] = 1
    prepares_ahead: ClassVar[bool] = True
    own_options: ClassVar[type | None] = AnswererOptions

    def prepare(self, adapter_arguments: object, wrapper_arguments: dict[str, object]) -> str:
        """Make the encoder; return its name and revision, which become part of the run's identity."""
        assert isinstance(adapter_arguments, AnswererOptions)
        from focus_eval.core.options import declared_types
        from focus_eval.keyframes.encoders.registry import ENCODERS, make_encoder, read_encoder

        checkpoint_options = (
            {"checkpoint": adapter_arguments.answer_encoder_checkpoint}
            if adapter_arguments.answer_encoder_checkpoint
            else {}
        )
        name, options = read_encoder(adapter_arguments.answer_encoder, checkpoint_options)
        if wrapper_arguments.get("device") and "device" in declared_types(ENCODERS.load(name)):
            options["device"] = str(wrapper_arguments["device"])
        scorer = make_encoder(name, **options)
        if not scorer.reads_frames:
            raise InvalidInput(f"answer_encoder={name} does not look at frames and cannot answer from them")
        self.scorer = scorer
        return f"{scorer.name} {scorer.revision}"

    def defaults(self, wrapper_arguments: dict[str, object]) -> None:
        """Change nothing: the answerer has no device map."""

    def trace_model(self, view: Self, batch: Sequence[FramedQuestion], trace: GenerateTrace) -> None:
        """Give `view` the questions of its batch: the options are read from the document, not from the prompt."""
        view._questions = {framed.task_question.parts.key: framed.task_question.question for framed in batch}
        view._trace = trace


def option_scores(
    scorer: Encoder, features: object, query: str, options: tuple[str, ...], *, temperature: float
) -> FloatArray:
    """Return how well each option fits the frames, shape `(n_options,)`; larger is better.

    The frames' weights are `softmax(relevance to the query / temperature)`. If the encoder has embeddings, an option's
    score is the cosine of its embedding with the weighted mean of the frames' embeddings. If not (BLIP), it is the
    weighted mean of the frames' relevance to the text "query option".

    Args:
        features: features of the frames, from `scorer.embed`.
    """
    weights = frame_weights(scorer.relevance(features, query), temperature=temperature)
    if not scorer.overrides("embeddings"):
        return np.array([weights @ scorer.relevance(features, f"{query} {option}") for option in options])
    images = scorer.embeddings(features, query)[0]
    mean_image = weights @ images
    mean_image = mean_image / max(float(np.linalg.norm(mean_image)), 1e-12)
    return np.array([float(mean_image @ scorer.embeddings(features, option)[1]) for option in options])


def frame_weights(relevance: FloatArray, *, temperature: float) -> FloatArray:
    """Return `softmax(relevance / temperature)`, shape `(n,)`, summing to 1."""
    scaled = (relevance - relevance.max()) / temperature
    weights = np.exp(scaled)
    return np.asarray(weights / weights.sum(), dtype=np.float64)
