"""Is the evidence of the world `realistic` as long, as much and as close together as that of the benchmarks?"""

from __future__ import annotations

import gzip
import json
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from focus_eval.bench.benchmarks.registry import read_annotations
from focus_eval.core.errors import InvalidInput, UnknownName
from focus_eval.lab.traces import _add_events, drawn_seconds, make_trace, place_evidence
from focus_eval.lab.worlds import EVIDENCE_SHAPES, SHARES, WORLDS, world_of

HOURS = 3 * 3600.0


def near(seconds, quantiles):
    return np.abs(np.log1p(seconds) - np.log1p(quantiles)).max()


@pytest.mark.parametrize("name", EVIDENCE_SHAPES)
def test_drawn_evidence_has_the_stated_quantiles_of_length_and_span(name):
    shape, rng = EVIDENCE_SHAPES[name], np.random.default_rng(0)
    placed = [place_evidence(shape, 1e6, rng) for _ in range(6000)]  # so long that nothing is cut
    lengths = np.concatenate([item.lengths for item in placed])
    assert near(np.quantile(lengths, SHARES[:4]), shape.seconds[:4]) < 0.1
    counts = Counter(item.starts.size for item in placed)
    assert [counts[1 + at] / 6000 for at in range(len(shape.counts))] == pytest.approx(shape.counts, abs=0.02)
    for limit_seconds, quantiles in shape.spans:
        several = [place_evidence(shape, min(limit_seconds - 1, 1e6), rng).moments for _ in range(8000)]
        spans = [moments[-1] - moments[0] for moments in several if moments.size > 1]
        assert near(np.quantile(spans, SHARES[1:4]), quantiles[1:4]) < 0.2


@pytest.mark.slow
def test_the_traces_of_the_realistic_world_have_them_too_in_videos_of_hours():
    by_likeness = {name: [] for name in EVIDENCE_SHAPES}
    for number in range(700):
        trace = make_trace(WORLDS["realistic"], number, seed=0, minutes=(60, 61))
        by_likeness[trace.likeness] += trace.event_lengths
    for name, lengths in by_likeness.items():
        assert near(np.quantile(lengths, SHARES[1:4]), EVIDENCE_SHAPES[name].seconds[1:4]) < 0.8, name
        assert len(lengths) > 140


@given(seconds=st.floats(2.0, HOURS), name=st.sampled_from(sorted(EVIDENCE_SHAPES)), seed=st.integers(0, 2**32))
def test_every_moment_lies_in_its_event_and_every_event_in_the_video(seconds, name, seed):
    placed = place_evidence(EVIDENCE_SHAPES[name], seconds, np.random.default_rng(seed))
    slack = 1e-9 * seconds
    assert (placed.starts >= 0).all()
    assert (placed.starts + placed.lengths <= seconds + slack).all()
    assert (placed.starts <= placed.moments + slack).all()
    assert (placed.moments <= placed.starts + placed.lengths + slack).all()
    assert (np.diff(placed.moments) >= 0).all()
    assert placed.lengths.max() <= 0.5 * seconds


@pytest.mark.parametrize("name", EVIDENCE_SHAPES)
def test_evidence_lies_anywhere_in_the_video_and_anywhere_in_its_event(name):
    rng = np.random.default_rng(0)
    placed = [place_evidence(EVIDENCE_SHAPES[name], HOURS, rng) for _ in range(1500)]
    # The whole span moves freely: its first moment lies anywhere in what it leaves of the video.
    free = [item.moments[0] / (HOURS - np.ptp(item.moments)) for item in placed]
    assert np.quantile(free, [0.1, 0.5, 0.9]) == pytest.approx([0.1, 0.5, 0.9], abs=0.04)
    inside = [
        (moment - start) / length
        for item in placed
        for moment, start, length in zip(item.moments, item.starts, item.lengths, strict=True)
        if 0 < length < moment < HOURS - length  # not moved by an end of the video
    ]
    assert np.quantile(inside, [0.1, 0.5, 0.9]) == pytest.approx([0.1, 0.5, 0.9], abs=0.04)


@given(seed=st.integers(0, 2**32))
def test_no_draw_lies_outside_the_quantiles(seed):
    drawn = drawn_seconds((0, 1, 6, 82, 90), 50, np.random.default_rng(seed))
    assert drawn.min() >= 0
    assert drawn.max() <= 90 + 1e-9


def test_events_of_a_clustered_world_lie_in_one_raised_stretch():
    world = world_of({"world": "clustered", "cluster_seconds": [60, 60], "related_height": 4.0, "strength": 0.0})
    for number in range(10):
        trace = make_trace(world, number, seed=0, minutes=(20, 30))
        starts = np.array([start for start, _ in trace.events])
        stops = np.array([stop for _, stop in trace.events])
        assert 3 <= starts.size <= 6
        assert stops.max() - starts.min() <= 60
        raised = np.convolve(trace.latent, np.ones(600) / 600, "valid")
        assert abs(int(raised.argmax()) / 10 - starts.min()) <= 62


def test_where_events_overlap_the_higher_counts_whichever_comes_first():
    for heights in ([3.0, 1.0], [1.0, 3.0]):
        latent = np.zeros(100, dtype=np.float32)
        _add_events(latent, np.array([1.0, 2.0]), np.array([4.0, 4.0]), np.array(heights), WORLDS["realistic"])
        assert latent[[15, 30, 55]].tolist() == [heights[0], 3.0, heights[1]]


def test_a_world_cannot_have_both_real_evidence_and_a_stretch_and_names_are_checked():
    with pytest.raises(InvalidInput, match="cluster_seconds are above 0, and not given with evidence"):
        world_of({"world": "realistic", "cluster_seconds": [60, 60]})
    with pytest.raises(UnknownName, match="did you mean 'cgbench'"):
        world_of({"world": "smooth", "evidence": ["cgbnech"]})


def test_parameters_that_are_not_set_are_in_no_identity():
    assert "evidence" not in WORLDS["smooth"].values
    assert "cluster_seconds" not in WORLDS["smooth"].values
    assert WORLDS["realistic"].values["evidence"] == list(EVIDENCE_SHAPES)


def real(name, folder):
    """Intervals of each question with evidence, of the real benchmark."""
    evidence = folder / "field" / "evidence"
    if name == "longvideobench":
        questions = read_annotations(name, folder / "lvb_val.json")
        return [[(moment, moment) for moment in question.evidence_seconds] for question in questions]
    if name == "cgbench":
        return [row["clue_intervals"] for row in json.load(gzip.open(evidence / "cgbench_mini.json.gz"))]
    if name == "vue_tr_v2":
        return [row["gt"] for row in json.load(gzip.open(evidence / "vue_tr_v2_ground_truth.json.gz")) if row["gt"]]
    questions = read_annotations(name, evidence / "lvbench_video_info.meta.jsonl.gz")
    return [question.evidence_intervals for question in questions if question.evidence_intervals]


@pytest.mark.parametrize("name", EVIDENCE_SHAPES)
def test_the_quantiles_are_those_of_the_published_annotations(name, shared):
    shape, measured = EVIDENCE_SHAPES[name], real(name, shared("data"))
    if name != "longvideobench":  # moments, no lengths
        lengths = [stop - start for intervals in measured for start, stop in intervals]
        assert near(np.quantile(lengths, SHARES), shape.seconds) < 0.06
    counts = Counter(min(len(intervals), 4) for intervals in measured)
    shares = [counts[1 + at] / len(measured) for at in range(len(shape.counts))]
    assert shares == pytest.approx(shape.counts, abs=0.002)
    spans = [max(b for _, b in item) - min(a for a, _ in item) for item in measured if len(item) > 1]
    if len(shape.spans) == 1:
        assert near(np.quantile(spans, SHARES), shape.spans[0][1]) < 0.06
