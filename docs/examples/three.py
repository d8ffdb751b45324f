"""Samplers that compare embeddings, ask a model what to look for, and look at the pictures themselves."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from focus_eval import AskingSampler, Choice, FrameSampler, SelectionRequest, errors

SOURCE = "docs/examples/three.py"


def even(request: SelectionRequest, n: int) -> np.ndarray:
    last = request.video.n_frames - 1
    return np.unique(np.linspace(0, last, min(max(n, request.n_wanted), last + 1)).astype(int))


def best(request: SelectionRequest, frames: np.ndarray, scores: np.ndarray, **facts: Any) -> Choice:
    best_first = np.argsort(-scores, kind="stable")
    return Choice(keyframes=frames[best_first[: request.n_wanted]], facts=facts)


@dataclass(frozen=True, kw_only=True)
class FarApart(FrameSampler):
    """The most relevant frame, then always the one that is relevant and least like those chosen."""

    name, source, draws, needs_embeddings = "far_apart", SOURCE, False, True

    def choose(self, request: SelectionRequest) -> Choice:
        frames = even(request, 128)
        relevance, vectors = request.ledger.relevance_and_embeddings(frames)
        vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        likeness, free = np.zeros(frames.size), relevance.copy()
        for _ in range(request.n_wanted):
            chosen = int(np.argmax(free - likeness))
            free[chosen] = -np.inf
            likeness = np.maximum(likeness, vectors @ vectors[chosen])
        return Choice(keyframes=frames[np.isneginf(free)])


@dataclass(frozen=True, kw_only=True)
class Cues(AskingSampler):
    """A model names what to look for; a frame counts with the cue that it shows best."""

    name, source, draws, needs_texts = "cues", SOURCE, False, True
    example_reply = "a red car; a street at night"

    def choose(self, request: SelectionRequest) -> Choice:
        asked = f"Name three things to look for, separated by semicolons, to answer: {request.question}"
        cues = [cue.strip() for cue in request.llm.ask(asked, max_tokens=60).split(";") if cue.strip()]
        if not cues:
            raise errors.AnswerError("the model named nothing to look for")
        frames = even(request, 200)
        scores = [request.ledger.relevance(frames, cue) for cue in dict.fromkeys(cues[:3])]
        return best(request, frames, np.max(scores, axis=0), cues=cues[:3])


@dataclass(frozen=True, kw_only=True)
class Changes(FrameSampler):
    """The frames before which the picture changes most; no encoder, no question."""

    name, source, draws, needs_encoder = "changes", SOURCE, False, False

    def choose(self, request: SelectionRequest) -> Choice:
        frames = even(request, 300)
        small = np.array([picture.mean(axis=2) for picture in request.ledger.look(frames, size=24)])
        change = np.abs(np.diff(small, axis=0, prepend=small[:1])).mean(axis=(1, 2))
        return best(request, frames, change)
