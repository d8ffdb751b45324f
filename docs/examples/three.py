"""Samplers that compare embeddings, ask a model what to look for, and look at the pictures themselves."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from focus_eval.core.errors import AnswerError
from focus_eval.samplers.base import AskingSampler, Choice, FrameSampler, SelectionRequest


def even(request: SelectionRequest, n: int) -> np.ndarray:
    last = request.video.n_frames - 1
    return np.unique(np.linspace(0, last, min(max(n, request.n_wanted), last + 1)).astype(int))


@dataclass(frozen=True, kw_only=True)
class FarApart(FrameSampler):
    """The most relevant frame, then always the one that is relevant and least like those chosen."""

    name: ClassVar[str] = "far_apart"
    source: ClassVar[str] = "docs/examples/three.py"
    draws: ClassVar[bool] = False
    needs_embeddings: ClassVar[bool] = True

    def choose(self, request: SelectionRequest) -> Choice:
        frames = even(request, 128)
        relevance, vectors = request.ledger.relevance_and_embeddings(frames)
        vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        likeness, free = np.zeros(frames.size), relevance.copy()
        for _ in range(request.n_wanted):
            best = int(np.argmax(free - likeness))
            free[best] = -np.inf
            likeness = np.maximum(likeness, vectors @ vectors[best])
        return Choice(keyframes=frames[np.isneginf(free)])


@dataclass(frozen=True, kw_only=True)
class Cues(AskingSampler):
    """A model names what to look for; a frame counts with the cue that it shows best."""

    name: ClassVar[str] = "cues"
    source: ClassVar[str] = "docs/examples/three.py"
    draws: ClassVar[bool] = False
    needs_texts: ClassVar[bool] = True
    example_reply: ClassVar[str] = "a red car; a street at night"

    def choose(self, request: SelectionRequest) -> Choice:
        asked = f"Name three things to look for, separated by semicolons, to answer: {request.question}"
        cues = [cue.strip() for cue in request.llm.ask(asked, max_tokens=60).split(";") if cue.strip()]
        if not cues:
            raise AnswerError("the model named nothing to look for")
        frames = even(request, 200)
        scores = [request.ledger.relevance(frames, cue) for cue in dict.fromkeys(cues[:3])]
        best = np.argsort(-np.max(scores, axis=0), kind="stable")[: request.n_wanted]
        return Choice(keyframes=frames[best], facts={"cues": cues[:3]})


@dataclass(frozen=True, kw_only=True)
class Changes(FrameSampler):
    """The frames before which the picture changes most; no encoder, no question."""

    name: ClassVar[str] = "changes"
    source: ClassVar[str] = "docs/examples/three.py"
    draws: ClassVar[bool] = False
    needs_encoder: ClassVar[bool] = False

    def choose(self, request: SelectionRequest) -> Choice:
        frames = even(request, 300)
        small = np.array([picture.mean(axis=2) for picture in request.ledger.look(frames, size=24)])
        change = np.abs(np.diff(small, axis=0, prepend=small[:1])).mean(axis=(1, 2))
        return Choice(keyframes=frames[np.argsort(-change, kind="stable")[: request.n_wanted]])
