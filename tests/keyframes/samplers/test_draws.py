"""Samplers that declare that they draw nothing choose the same frames under every seed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from focus_eval.core.errors import BrokenContract
from focus_eval.core.types import VideoInfo
from focus_eval.keyframes.samplers.registry import SAMPLERS, make_sampler
from focus_eval.keyframes.samplers.topk import TopK

VIDEO = VideoInfo(n_frames=3000, fps=25.0)
RELEVANCE = np.random.default_rng(5).random(VIDEO.n_frames)


def chosen(sampler, seed):
    return sampler.select(VIDEO, k=8, pull=lambda frames: RELEVANCE[frames], rng=np.random.default_rng(seed)).keyframes


def test_a_declaration_is_kept_and_its_lack_is_needed():
    drawing = set()
    for name in SAMPLERS.names():
        sampler = make_sampler(name)
        if not (
            sampler.needs_scan
            or sampler.needs_llm
            or sampler.needs_logits
            or sampler.needs_embeddings
            or sampler.needs_evidence
        ):
            frames = {chosen(sampler, seed) for seed in range(4)}
            assert sampler.draws or len(frames) == 1, name
            drawing |= {name} if len(frames) > 1 else set()
    assert {"random", "focus", "focus_released"} <= drawing


def test_a_sampler_that_draws_against_its_inherited_declaration_is_told():
    @dataclass(frozen=True, kw_only=True)
    class Shuffled(TopK):
        name: ClassVar[str] = "shuffled"

        def choose(self, request):
            request.rng.random()
            return super().choose(request)

    with pytest.raises(BrokenContract, match="declare draws = True"):
        chosen(Shuffled(), 0)
