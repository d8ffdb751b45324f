"""Is the share of a video's work told rightly from its passes?"""

from __future__ import annotations

import pytest

from focus_eval.keyframes.pipeline.pass_progress import FIRST_GUESS, PassLengths, PassProgress


def serve(lengths, *passes):
    """Serve passes of several batches each; return the share reported after each pass and at the end."""
    shares, after = [], []
    progress = PassProgress(lengths, shares.append)
    for batches in passes:
        progress.expect(sum(batches))
        for n in batches:
            progress.advance(n)
        after.append(sum(shares))
    progress.end()
    assert all(share >= 0 for share in shares)
    return [*after, sum(shares)]


def test_the_first_pass_is_taken_for_as_large_a_part_as_with_earlier_videos():
    lengths = PassLengths()
    assert serve(lengths, [40, 60], [200], [100]) == pytest.approx([1 / FIRST_GUESS, 1.0, 1.0, 1.0])
    assert lengths.ratio == 4.0
    assert serve(lengths, [50], [100], [50]) == pytest.approx([0.25, 0.75, 1.0, 1.0])


def test_shares_add_up_to_one_whatever_passes_a_video_has():
    lengths = PassLengths()
    assert serve(lengths) == [1.0]
    lengths.add(10, 30)
    assert serve(lengths, [8])[-1] == pytest.approx(1.0)
    assert serve(lengths, [1], [100])[-1] == pytest.approx(1.0)
