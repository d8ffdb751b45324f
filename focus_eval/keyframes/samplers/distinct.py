"""Replaces keyframes that show the same picture as a better one: the option `distinct` of every sampler.

Two frames are near twins if the cosine of their embeddings is at least `TWIN_COSINE`. Without embeddings their pictures
are shrunk to 16 x 16 grey fields; they are near twins if the fields differ by less than `TWIN_LEVELS` on average.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from focus_eval.core.types import IntArray, VideoInfo
from focus_eval.keyframes.samplers.ledger import Ledger

TWIN_COSINE = 0.95
TWIN_LEVELS = 4.0  # mean difference of grey levels from 0 to 255
# A frame replaces a twin only if its relevance is at least this share of the largest; otherwise the twin stays.
LEAST_RELEVANCE_SHARE = 0.5
# Limits on the candidates that may replace twins: many in all if embeddings are known, only a few per keyframe if
# pictures must be decoded.
MAX_EMBEDDED_CANDIDATES, PICTURES_PER_KEYFRAME = 512, 4
_FIELDS = 16


def distinct_frames(keyframes: IntArray, ledger: Ledger, video: VideoInfo) -> tuple[IntArray, dict[str, int]]:
    """Return `keyframes` with near twins replaced by distinct relevant frames, ascending, and facts.

    A twin without a suitable replacement stays. The fact "twins_replaced" counts the replaced twins, "twins_left" those
    that stay; each is absent if its count is 0.

    Args:
        keyframes: each frame once, `(n,)`.
    """
    if keyframes.size < 2:
        return keyframes, {}
    frames = np.concatenate([_best_first(keyframes, ledger), _candidates(keyframes, ledger, video)])
    are_twins = _twins(frames, ledger)
    places: list[int] = []
    for at in range(frames.size):
        if len(places) < keyframes.size and not are_twins[at, places].any():
            places.append(at)
    twins = [at for at in range(keyframes.size) if at not in places]
    n_left = keyframes.size - len(places)
    facts = {"twins_replaced": sum(at >= keyframes.size for at in places), "twins_left": n_left}
    return np.sort(frames[[*places, *twins[:n_left]]]), {name: n for name, n in facts.items() if n}


def _best_first(frames: IntArray, ledger: Ledger) -> IntArray:
    """`frames` by descending relevance, followed by those of unknown relevance in order of time."""
    relevance_by_frame = dict(zip(ledger.frames.tolist(), ledger.relevances.tolist(), strict=True))
    relevance = np.array([relevance_by_frame.get(frame, np.nan) for frame in frames.tolist()])
    return frames[np.argsort(-np.nan_to_num(relevance, nan=-1.0), kind="stable")]


def _candidates(keyframes: IntArray, ledger: Ledger, video: VideoInfo) -> IntArray:
    """Frames that may replace a twin: relevant pulled ones, best first; without pulls even ones, the farthest first."""
    frames, relevance = ledger.pulls_in_time()
    has_relevance = np.isfinite(relevance).any()
    if has_relevance:
        frames = frames[relevance >= LEAST_RELEVANCE_SHARE * np.nanmax(relevance)]
    else:
        frames = np.arange(video.n_frames)
    frames = np.setdiff1d(frames, keyframes)
    has_embeddings = ledger.known_embeddings(np.append(keyframes, frames)) is not None
    n = MAX_EMBEDDED_CANDIDATES if has_embeddings else PICTURES_PER_KEYFRAME * keyframes.size
    # Spread the candidates over the video: the best frames may be neighbours, and so twins of one another.
    frames = frames[:: -(-frames.size // n) or 1]
    if has_relevance:
        return _best_first(frames, ledger)
    # The farthest in time from the keyframes fills the largest gap that a twin leaves.
    distance = np.abs(frames[:, np.newaxis] - keyframes).min(axis=1)
    return frames[np.argsort(-distance, kind="stable")]


def _twins(frames: IntArray, ledger: Ledger) -> NDArray[np.bool_]:
    """A mask `(n, n)` of the pairs of `frames` that are near twins."""
    images = ledger.known_embeddings(frames)
    if images is not None:
        images = images / np.maximum(np.linalg.norm(images, axis=1, keepdims=True), 1e-12)
        return np.asarray(images @ images.T >= TWIN_COSINE)
    from PIL import Image

    pictures = [Image.fromarray(picture) for picture in ledger.look(frames, 2 * _FIELDS)]
    fields = np.array([picture.resize((_FIELDS, _FIELDS), Image.Resampling.BOX) for picture in pictures], dtype=float)
    return np.array([np.abs(fields - field).mean(axis=(1, 2, 3)) < TWIN_LEVELS for field in fields])
