"""Infers from a file of AKS selections how it was made: how often the whole video was kept, to what depth it was split.

    print(infer_settings((row.keyframes, row.n_frames, row.fps) for row in rows))

AKS takes `K / 2^d` candidates of a part at depth `d`. So the two halves of a split part hold equally many frames, and
the halves of an unsplit part do so only by chance. "AKS 32" names a method only together with these settings: with
t1 = 0.8 nearly every video is split to the end, with t1 = 0.37 most files are plain Top-K.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from focus_eval.core.types import IntArray

# A depth counts as split if more than this share of its parts has equal halves. By chance at most half would.
SPLIT_SHARE = 0.6
# Least K to infer from: with fewer frames, equal halves are too often chance.
MIN_FRAMES = 16
# Share of the questions whose whole video AKS keeps at each t1, by K: BLIP's relevance of 976 questions of
# LongVideoBench in the world `measured` (docs/simulation.md).
T1_VALUES = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
WHOLE_SHARES = {
    32: (0.940, 0.876, 0.776, 0.657, 0.494, 0.295, 0.130, 0.025),
    64: (0.900, 0.814, 0.685, 0.525, 0.322, 0.152, 0.050, 0.009),
}


@dataclass(frozen=True, kw_only=True)
class AksSettings:
    """How a file of AKS selections was made.

    Args:
        questions: number of questions with more candidates than K and all frames on the grid of one frame a second.
        off_grid: number of questions left out because one of their frames is no multiple of `int(fps)`.
        whole: number of questions whose video was not split, so that their selection is plain Top-K.
        depth: number of levels to which the remaining videos were split; 0 if none was split.
    """

    k: int
    questions: int
    off_grid: int
    whole: int
    depth: int

    @property
    def t1(self) -> float | None:
        """Threshold at which AKS leaves as many videos unsplit under BLIP's relevance; None if unknown for this K."""
        if self.k not in WHOLE_SHARES or not self.questions:
            return None
        share = self.whole / self.questions
        return float(np.interp(-share, [-value for value in WHOLE_SHARES[self.k]], T1_VALUES))

    def __str__(self) -> str:
        """Return the settings as a sentence for people: share of unsplit videos, depth, questions left out."""
        if not self.questions:
            return (
                f"how AKS split the videos is not known: frames off the grid of int(fps) in {self.off_grid} questions"
            )
        share = f"{100 * self.whole / self.questions:.0f} % of {self.questions:,} questions"
        text = f"the whole video is unsplit in {share}: plain Top-{self.k}; else split to depth {self.depth}"
        text += "" if self.t1 is None else f" (t1 about {self.t1:.1f}, if the relevance is BLIP's)"
        return text + (f"; {self.off_grid} questions with frames off the grid left out" if self.off_grid else "")


def infer_settings(selections: Iterable[tuple[Sequence[int], int, float]]) -> AksSettings | None:
    """Return how a file of AKS selections was made; None if that cannot be inferred.

    It cannot be inferred if no question has more candidates than K, or if K is below 16. A single level of splits
    cannot be told from chance.

    Args:
        selections: (keyframes, number of frames of the video, its frame rate) of each question.
    """
    parts, off_grid, k = [], 0, 0
    for keyframes, n_frames, fps in selections:
        stride = max(1, int(fps))
        frames = np.unique(np.asarray(keyframes, dtype=np.int64))
        k = max(k, frames.size)
        if (frames % stride).any():
            off_grid += 1
        elif n_frames // stride > frames.size:
            parts.append((frames // stride, n_frames // stride))
    if k < MIN_FRAMES or not (parts or off_grid):
        return None
    counts = [_equal_halves(frames, n, k) for frames, n in parts if frames.size == k]
    depth = 0
    while counts and depth < k.bit_length() - 1:
        equal, total = np.sum([levels[depth] for levels in counts], axis=0)
        # The share of depth 0 cannot end the search: some videos stay unsplit however deep others are split.
        if depth > 0 and equal <= SPLIT_SHARE * total:
            break
        depth += 1
    # The two halves of an unsplit video may hold equally many frames by chance. So a video counts as split only if at
    # least one of its halves also has two equal halves.
    whole = sum(levels[0][0] == 0 or depth < 2 or levels[1][0] == 0 for levels in counts)
    return AksSettings(k=k, questions=len(counts), off_grid=off_grid, whole=whole, depth=depth if depth > 1 else 0)


def _equal_halves(positions: IntArray, n: int, k: int) -> list[tuple[int, int]]:
    """Return for each depth (number of parts with equally many `positions` in both halves, number of parts checked).

    Depth 0 has one part, `[0, n)`. The parts of the next depth are the halves of the parts with equal halves.
    """
    levels, parts = [], [(0, n)]
    for depth in range(k.bit_length() - 1):
        halves = []
        for start, size in parts:
            half = size // 2
            first, middle, last = np.searchsorted(positions, [start, start + half, start + size])
            if middle - first == last - middle == k >> (depth + 1):
                halves += [(start, half), (start + half, size - half)]
        levels.append((len(halves) // 2, len(parts)))
        parts = halves
    return levels
