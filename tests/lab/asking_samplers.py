"""Samplers that use the question, other texts, pictures and a model; run in this process and in one of their own."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from focus_eval import Choice
from focus_eval.keyframes.samplers.base import AskingSampler


@dataclass(frozen=True, kw_only=True)
class AsksForAll(AskingSampler):
    """Looks, asks for cues, pulls for the first of them and for the question, and says what it was told."""

    name, source = "asks_for_all", "test"
    needs_texts = True

    def choose(self, request):
        frames = np.unique(np.linspace(0, request.video.n_frames - 1, 2 * request.n_wanted).astype(int))
        cues = request.llm.ask(f"What shows {request.question}?", max_tokens=16).splitlines()
        pictures = request.ledger.look(frames[:4], size=16)
        probabilities = request.llm.yes("Is it there?", pictures)
        values = np.maximum(request.ledger.relevance(frames), request.ledger.relevance(frames, cues[0]))
        values[: len(probabilities)] += probabilities
        facts = {"query": request.query, "options": list(request.options), "said": len(request.subtitles)}
        best = frames[np.argsort(-values, kind="stable")[: request.n_wanted]]
        return Choice(keyframes=best, facts={**facts, "pixels": int(sum(p.sum(dtype=int) for p in pictures))})


@dataclass(frozen=True, kw_only=True)
class SeesAFloat(AsksForAll):
    name = "sees_a_float"

    def choose(self, request):
        request.llm.ask("What is this?", [np.zeros((4, 4, 3))])
        return super().choose(request)


@dataclass(frozen=True, kw_only=True)
class AsksInTwoKinds(AskingSampler):
    """Asks for a cue and then for a number, each in a form of its own."""

    name, source, draws, needs_texts = "asks_in_two_kinds", "test", False, True
    example_reply = {"Name a cue": "a red car", "How many seconds": "12.5"}

    def choose(self, request):
        cue = request.llm.ask(f"Name a cue of {request.question}", max_tokens=8)
        seconds = float(request.llm.ask("How many seconds does it last?", request.ledger.look(np.arange(1), size=8)))
        frames = np.arange(request.n_wanted)
        relevance = request.ledger.relevance(frames, cue)
        return Choice(keyframes=frames[: relevance.size], facts={"cue": cue, "seconds": seconds})
