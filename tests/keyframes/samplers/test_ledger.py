"""Is every pull checked and written down, and is a sampler that breaks its promises refused?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from focus_eval import VideoInfo
from focus_eval.core.errors import BrokenContract, EncoderError, InvalidInput, SamplerError
from focus_eval.keyframes.samplers.base import Choice, FlatSource, FrameSampler, SelectionRequest
from focus_eval.keyframes.samplers.ledger import Ledger, RelevanceSource
from focus_eval.keyframes.samplers.sources import ArraySource, bumpy

VIDEO = VideoInfo(100, 10.0)


def test_pulls_are_written_down_in_order():
    world = ArraySource(bumpy(100))
    ledger = Ledger(world, VIDEO)
    ledger.relevance(np.array([7, 3]))
    ledger.relevance(np.array([50]))
    assert ledger.frames.tolist() == [7, 3, 50]
    assert ledger.relevances.tolist() == world.values[[7, 3, 50]].tolist()
    assert ledger.n_pulls == 3
    assert ledger.unpulled.tolist() == [frame for frame in range(100) if frame not in (3, 7, 50)]
    assert ledger.is_pulled(np.array([3, 4])).tolist() == [True, False]


@pytest.mark.parametrize(
    ("frames", "message"),
    [
        ([5, 5], "frame 5 pulled twice"),
        ([2], "frame 2 pulled twice"),
        ([100], "video has 100"),
        ([-1], "frame -1 asked"),
    ],
)
def test_a_frame_outside_the_video_or_pulled_before_is_refused(frames, message):
    for ask in (Ledger.relevance, Ledger.logits, Ledger.embeddings):
        ledger = Ledger(ArraySource(bumpy(100)), VIDEO)
        ledger.relevance(np.array([2]))
        with pytest.raises(SamplerError, match=message):
            ask(ledger, np.array(frames))
        assert ledger.frames.tolist() == [2]


def test_a_batch_above_the_budget_is_not_pulled():
    world = ArraySource(bumpy(100))
    ledger = Ledger(world, VIDEO, budget=3)
    ledger.relevance(np.arange(2))
    with pytest.raises(SamplerError, match="4 pulls asked, the budget is 3"):
        ledger.relevance(np.arange(10, 12))
    assert len(world.calls) == 1


class RelevanceAlone(RelevanceSource):
    """Has neither logits nor embeddings."""

    def __call__(self, frames):
        return frames / 100


@pytest.mark.parametrize("pull", [RelevanceAlone(), lambda frames: frames / 100])
@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (Ledger.logits, "gives no raw logits; use one that does"),
        (Ledger.embeddings, "gives no embeddings; use an encoder that does"),
        (
            lambda ledger, frames: ledger.relevance(frames, "another text"),
            "to the question alone, not to 'another text'",
        ),
    ],
)
def test_a_source_refuses_what_it_does_not_have(pull, ask, message):
    ledger = Ledger(pull, VIDEO)
    with pytest.raises(EncoderError, match=message):
        ask(ledger, np.arange(3))
    assert ledger.n_pulls == 0
    relevance, images = ledger.relevance_and_embeddings(np.arange(3))
    assert (relevance.tolist(), images) == ([0.0, 0.01, 0.02], None)
    np.testing.assert_allclose(ledger.relevance_and_logits(np.array([50]))[1], [0.0])


def test_a_scorer_is_not_asked_for_nothing():
    world = ArraySource(bumpy(100))
    ledger = Ledger(world, VIDEO)
    nothing = np.empty(0, dtype=int)
    assert ledger.relevance(nothing).size == ledger.logits(nothing).size == 0
    assert world.calls == []


@pytest.mark.parametrize("values", [[0.1, np.nan], [0.1, -0.01], [1.01, 0.2], [0.1, np.inf], [0.1], [[0.1, 0.2]]])
def test_relevance_of_the_wrong_shape_or_range_is_refused(values):
    with pytest.raises(EncoderError):
        Ledger(lambda frames: np.array(values), VIDEO).relevance(np.arange(2))


def test_a_query_embedding_that_is_no_number_is_refused():
    world = ArraySource(bumpy(100))
    world.query[0] = np.nan
    with pytest.raises(EncoderError, match="not finite"):
        Ledger(world, VIDEO).embeddings(np.arange(3))


@dataclass(frozen=True, kw_only=True)
class Says(FrameSampler):
    """Chooses what it is told to."""

    name: ClassVar[str] = "says"
    source: ClassVar[str] = "test"
    needs_encoder: ClassVar[bool] = False

    frames: str = ""

    def choose(self, request):
        return Choice(keyframes=[int(frame) for frame in self.frames.split()])


def test_a_pull_that_is_not_a_frame_index_is_refused():
    world = ArraySource(bumpy(100))
    with pytest.raises(InvalidInput, match="frame indices must be integers"):
        Ledger(world, VIDEO).relevance(np.array([0.9, 2.0]))
    assert world.calls == []


@dataclass(frozen=True, kw_only=True)
class Returns(FrameSampler):
    """Returns what it was given, whatever that is."""

    name: ClassVar[str] = "returns"
    source: ClassVar[str] = "test"
    value: ClassVar[object] = None

    def choose(self, request):
        return self.value


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([1, 2, 3], "returns: choose must return a Choice, not a list"),
        (None, "returns: choose must return a Choice, not None"),
        (Choice(keyframes=np.array([0.9, 1.9, 2.9])), r"keyframes must be integers.*0\.9"),
        (Choice(keyframes=np.array([1.0, 2.0, 3.0])), "keyframes must be integers"),
        (Choice(keyframes=np.array([True, False, True])), "keyframes must be integers"),
        (Choice(keyframes=["1", "2", "3"]), "keyframes must be integers"),
        (Choice(keyframes=np.array([[1], [2], [3]])), r"one-dimensional array, got shape \(3, 1\)"),
        (Choice(keyframes=[[1], [2, 3]]), "one-dimensional"),
    ],
)
def test_what_is_not_a_choice_of_frame_indices_is_refused_in_one_line(monkeypatch, value, message):
    monkeypatch.setattr(Returns, "value", value)
    with pytest.raises(SamplerError, match=message) as refused:
        Returns().select(VIDEO, k=3, pull=len, rng=np.random.default_rng(0))
    assert "\n" not in str(refused.value)


def test_a_sampler_with_another_signature_is_refused_when_it_is_made():
    class Older(Returns):
        def choose(self, video, *, k, ledger, rng, coarse_rng):
            return Choice(keyframes=np.arange(k))

    with pytest.raises(SamplerError, match=r"choose\(self, video, .*\) must be choose\(self, request\)"):
        Older()


def test_a_request_says_how_many_keyframes_are_wanted():
    request = SelectionRequest(video=VIDEO, k=300, ledger=Ledger(None, VIDEO), rng=None, coarse_rng=None)
    assert request.n_wanted == 100


@pytest.mark.parametrize(
    ("frames", "error", "message"),
    [
        ("4 4 9", BrokenContract, r"3 keyframes, only 2 of them unique, .* may_repeat = True"),
        ("4 9", BrokenContract, r"chose 2 keyframes, 3 were requested, of a video .* may_return_fewer = True"),
        ("4 9 11 12", BrokenContract, r"chose 4 keyframes, 3 were requested, .* may_return_more = True"),
        ("4 9 100", BrokenContract, r"frame 100 of a video of 100 frames \(10.0 s\); it must lie in \[0, 100\)"),
        ("-1 4 9", BrokenContract, "frame -1 of a video"),
    ],
)
def test_a_sampler_that_breaks_its_promise_is_refused(frames, error, message):
    with pytest.raises(error, match=message):
        Says(frames=frames).select(VIDEO, k=3, pull=len, rng=np.random.default_rng(0))


def test_keyframes_come_out_in_order_whatever_order_they_were_chosen_in():
    assert Says(frames="9 4 50").select(VIDEO, k=3, pull=len, rng=np.random.default_rng(0)).keyframes == (4, 9, 50)


def scanning_ledger(**options):
    return Ledger(FlatSource(), VideoInfo(100, 25.0), scan=lambda frames: frames * 2.0 - 7, **options)


def test_scans_are_raw_logits_and_no_pulls():
    ledger = scanning_ledger(budget=2)
    assert ledger.scan(np.array([50, 3, 9])).tolist() == [93.0, -1.0, 11.0]
    ledger.relevance(np.array([3, 9]))  # scanned before, pulled now
    assert (ledger.n_scanned, ledger.scanned_frames.tolist()) == (3, [3, 9, 50])
    assert (ledger.n_pulls, ledger.frames.tolist()) == (2, [3, 9])


def test_a_frame_is_scanned_once_and_lies_in_the_video():
    ledger = scanning_ledger()
    ledger.scan(np.arange(100))
    with pytest.raises(BrokenContract, match="frame 7 scanned twice"):
        ledger.scan(np.array([7]))
    with pytest.raises(BrokenContract, match="frame 100 asked, video has 100"):
        ledger.scan(np.array([100]))


def test_a_scan_needs_a_scan_encoder():
    with pytest.raises(InvalidInput, match="derive the sampler from ScanningSampler and name one"):
        Ledger(FlatSource(), VideoInfo(100, 25.0)).scan(np.array([1]))


def test_scan_logits_are_finite():
    ledger = Ledger(FlatSource(), VideoInfo(9, 25.0), scan=lambda frames: np.where(frames == 4, np.nan, 300.0))
    with pytest.raises(EncoderError, match="frame 4: scan logit nan is not a finite number"):
        ledger.scan(np.arange(9))
