"""Where are the objects and cues that a question is about? A model names them, and the encoder scores each."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from focus_eval.core.errors import AnswerError
from focus_eval.core.options import option
from focus_eval.keyframes.samplers.base import AskingSampler, Choice, SelectionRequest
from focus_eval.keyframes.samplers.coverage import diverse_best, fill_gaps
from focus_eval.keyframes.samplers.uniform import even_frames

PROMPT = """A question is asked about a video. Name what must be seen to answer it: the objects, people and scenes it \
is about, and cues that are near them. Write at most {n} short descriptions, one a line, and nothing else.

Question: {question}
{options}"""
# A reply is not a list if it has a longer line, or if it begins like a refusal.
MAX_CHARACTERS = 200
REFUSAL = re.compile(
    r"\W*(i(['’]m| am) (sorry|afraid|unable|not)|i (can|do)(not|n?['’]t| not)|sorry(?=[,.!])|unfortunately|as an ai)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, kw_only=True)
class SubQuestions(AskingSampler):
    """An even grid is scored for the question and for each text that a model names; a frame's highest score counts.

    The published method, T*, finds the named objects with a detector, in ever finer grids of pictures. Here the encoder
    scores one even grid, and keyframes are chosen as in `even_diverse`.

    Args:
        pulls: number of frames in the grid, at least `k` if the video has them; each is encoded once for all texts.
        texts: limit on the number of texts that are used.
        diversity, fading_seconds: as in `even_diverse`.
    """

    name: ClassVar[str] = "subquestions"
    paper: ClassVar[str] = "tstar"
    source: ClassVar[str] = "after T* (Ye et al., CVPR 2025), without its detector and its iterations"
    version: ClassVar[int] = 2
    draws: ClassVar[bool] = False
    needs_texts: ClassVar[bool] = True

    pulls: int = option(256, at_least=1)
    texts: int = option(4, at_least=1)
    diversity: float = option(0.5, at_least=0)
    fading_seconds: float = option(2.0, above=0)

    def choose(self, request: SelectionRequest) -> Choice:
        """Score an even grid for the question and each text that the model names; return the best, kept apart."""
        texts, video = self._texts(request), request.video
        frames = even_frames(video, max(self.pulls, request.k))
        best = request.ledger.relevance(frames)
        for text in texts:
            best = np.maximum(best, request.ledger.relevance(frames, text))
        best_frames = diverse_best(
            frames, best, request.n_wanted, fps=video.fps, weight=self.diversity, fading_seconds=self.fading_seconds
        )
        choice = fill_gaps(best_frames, request)
        return Choice(keyframes=choice.keyframes, facts={**choice.facts, "texts": texts})

    def _texts(self, request: SelectionRequest) -> list[str]:
        """Return the texts that the model names, each once, without the question itself.

        Raises:
            AnswerError: an empty reply, a refusal, or no list.
        """
        options = "Options: " + "; ".join(request.options) if request.options else ""
        prompt = PROMPT.format(n=self.texts, question=request.question, options=options).rstrip()
        reply = request.llm.ask(prompt, max_tokens=32 * self.texts)
        lines = [line.strip(" \t-*•0123456789.)") for line in reply.splitlines()]
        # Skip lines that end in a colon: they announce the list.
        items = [line for line in lines if line and line[-1] != ":" and line != request.query]
        texts = list(dict.fromkeys(items))[: self.texts]
        if not texts or REFUSAL.match(reply) or max(map(len, texts)) > MAX_CHARACTERS:
            raise AnswerError(f"{self.name}: the model named nothing to look for but said {reply[:80]!r}")
        return texts
