"""Derives the random generator of one question."""

from __future__ import annotations

import hashlib

import numpy as np


def derived_rng(seed: int, *parts: str) -> np.random.Generator:
    """Return the generator of (seed, *parts), the same on every machine and in any order of questions.

    Called with (seed, benchmark, question id, sampler) for a question and with (seed, benchmark, video, "coarse")
    for coarse pulls shared by the questions of a video.
    """
    text = "\x1f".join([str(int(seed)), *parts])
    digest = hashlib.sha256(text.encode()).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest[:16], "little")))
