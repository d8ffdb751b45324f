"""Estimates the progress of a video's selections from the frames that its passes have visited."""

from __future__ import annotations

from collections.abc import Callable

# Assumed ratio of the frames of all passes to those of the first pass, before a video is finished: after the first pass
# samplers refine once or twice.
FIRST_GUESS = 1.5


class PassLengths:
    """Numbers of frames visited by the first pass and by all passes over a video, summed over finished videos."""

    def __init__(self) -> None:
        self._first, self._all = 0, 0

    @property
    def ratio(self) -> float:
        """Frames of all passes divided by frames of the first pass."""
        return self._all / self._first if self._first else FIRST_GUESS

    def add(self, n_first: int, n_all: int) -> None:
        """Add a finished video."""
        self._first, self._all = self._first + n_first, self._all + n_all


class PassProgress:
    """Reports which share of one video's work was done, pass by pass; the reported shares add up to 1.

    Implements `relevance.Progress`. The number of passes is known only at the end, since samplers decide by what they
    have seen. Until then the first pass is assumed to be the same share of the work as in earlier videos.

    Args:
        lengths: lengths of the passes over earlier videos; those of this video are added at the end.
        report: called with each further share of the work.
    """

    def __init__(self, lengths: PassLengths, report: Callable[[float], None]) -> None:
        self._lengths, self._report = lengths, report
        self._n_first = self._n_expected = self._n_done = 0
        self._reported = 0.0

    def expect(self, n_pulls: int) -> None:
        """Begin a pass of `n_pulls` frames."""
        if not self._n_first:
            self._n_first = n_pulls
            self._n_expected = round(n_pulls * self._lengths.ratio)
        self._n_expected = max(self._n_expected, self._n_done + n_pulls)

    def advance(self, n_pulls: int) -> None:
        """Report the share of `n_pulls` more frames; nothing is reported while the estimated share does not rise."""
        self._n_done += n_pulls
        share = self._n_done / self._n_expected
        if share > self._reported:
            self._report(share - self._reported)
            self._reported = share

    def end(self) -> None:
        """Report what is left, and note how long the passes were."""
        self._report(1.0 - self._reported)
        self._lengths.add(self._n_first, self._n_done)
