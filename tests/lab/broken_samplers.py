"""Samplers that each break one promise, as newcomers do; `test_contract` asks what the suite finds."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from focus_eval import Choice, FrameSampler
from focus_eval.core.errors import FocusEvalError


def best(frames, relevance, k):
    return np.asarray(frames)[np.argsort(-relevance, kind="stable")[:k]]


@dataclass(frozen=True, kw_only=True)
class Fine(FrameSampler):
    """Keeps every promise: an even grid of twice as many frames as wanted, and the best of them."""

    name, source = "fine", "test"

    def choose(self, request):
        frames = np.unique(np.linspace(0, request.video.n_frames - 1, 2 * request.n_wanted).astype(int))
        return Choice(keyframes=best(frames, request.ledger.relevance(frames), request.n_wanted))


@dataclass(frozen=True, kw_only=True)
class OldSignature(Fine):
    name = "old_signature"

    def choose(self, video, *, k, ledger, rng, coarse_rng):
        return Choice(keyframes=np.arange(min(k, video.n_frames)))


@dataclass(frozen=True, kw_only=True)
class ReturnsAList(Fine):
    name = "returns_a_list"

    def choose(self, request):
        return super().choose(request).keyframes.tolist()


@dataclass(frozen=True, kw_only=True)
class Seconds(Fine):
    name = "seconds"

    def choose(self, request):
        return Choice(keyframes=super().choose(request).keyframes / request.video.fps)


@dataclass(frozen=True, kw_only=True)
class OnePastTheEnd(Fine):
    name = "one_past_the_end"

    def choose(self, request):
        return Choice(keyframes=super().choose(request).keyframes + 1)


@dataclass(frozen=True, kw_only=True)
class RepeatsInShortVideos(Fine):
    name = "repeats_in_short_videos"

    def choose(self, request):
        frames = np.linspace(0, request.video.n_frames - 1, request.n_wanted + 3).astype(int)
        return Choice(keyframes=frames[: request.n_wanted])


@dataclass(frozen=True, kw_only=True)
class OneAFewSeconds(Fine):
    """The commonest: fewer candidates than k in a short video."""

    name = "one_a_few_seconds"

    def choose(self, request):
        frames = request.video.frames_every(2.0)
        return Choice(keyframes=best(frames, request.ledger.relevance(frames), request.k))


@dataclass(frozen=True, kw_only=True)
class FailsOnOneFrame(Fine):
    name = "fails_on_one_frame"

    def choose(self, request):
        step = (request.video.n_frames - 1) // (request.video.n_frames - 1)
        return Choice(keyframes=np.arange(0, request.n_wanted, step))


@dataclass(frozen=True, kw_only=True)
class DividesByTheSpread(Fine):
    """0 / 0 where relevance is flat: NaN sorts anywhere, and int() of it fails."""

    name = "divides_by_the_spread"

    def choose(self, request):
        frames = np.arange(request.video.n_frames)
        relevance = request.ledger.relevance(frames)
        low, high = float(relevance.min()), float(relevance.max())
        scaled = [(float(value) - low) / (high - low) for value in relevance]
        return Choice(keyframes=best(frames, np.array(scaled), request.n_wanted))


@dataclass(frozen=True, kw_only=True)
class PullsTwice(Fine):
    name = "pulls_twice"

    def choose(self, request):
        choice = super().choose(request)
        request.ledger.relevance(choice.keyframes)
        return choice


@dataclass(frozen=True, kw_only=True)
class GoesRoundTheLedger(Fine):
    name = "goes_round_the_ledger"

    def choose(self, request):
        frames = np.arange(request.video.n_frames)
        return Choice(keyframes=best(frames, request.ledger._pull(frames), request.n_wanted))


@dataclass(frozen=True, kw_only=True)
class CatchesTheLedger(Fine):
    """Falls back in silence when the budget is spent."""

    name = "catches_the_ledger"

    def choose(self, request):
        try:
            return super().choose(request)
        except FocusEvalError:
            return Choice(keyframes=np.arange(request.n_wanted))


@dataclass(frozen=True, kw_only=True)
class GlobalGenerator(Fine):
    name = "global_generator"

    def choose(self, request):
        return Choice(keyframes=np.random.permutation(request.video.n_frames)[: request.n_wanted])  # noqa: NPY002


@dataclass(frozen=True, kw_only=True)
class OwnGenerator(Fine):
    name = "own_generator"

    def choose(self, request):
        return Choice(keyframes=np.random.default_rng().permutation(request.video.n_frames)[: request.n_wanted])


PAST_QUESTIONS: list[int] = []


@dataclass(frozen=True, kw_only=True)
class Remembers(Fine):
    """Keeps something between questions: here, how long the longest video was."""

    name = "remembers"

    def choose(self, request):
        PAST_QUESTIONS.append(request.video.n_frames)
        frames = np.arange(request.video.n_frames)
        return Choice(keyframes=np.roll(frames, max(PAST_QUESTIONS) - frames.size)[: request.n_wanted])


@dataclass(frozen=True, kw_only=True)
class HashesText(Fine):
    """`hash()` of a text is another in every process."""

    name = "hashes_text"

    def choose(self, request):
        start = hash(f"video of {request.video.n_frames}") % request.video.n_frames
        frames = (start + np.arange(request.n_wanted)) % request.video.n_frames
        return Choice(keyframes=frames)


OFFSET = np.random.default_rng().integers(2**40)


@dataclass(frozen=True, kw_only=True)
class DrawsWhenImported(Fine):
    """A draw at the top of the file: the same all through one run."""

    name = "draws_when_imported"

    def choose(self, request):
        return Choice(keyframes=(OFFSET + np.arange(request.n_wanted)) % request.video.n_frames)


@dataclass(frozen=True, kw_only=True)
class FirstQuestionDiffers(Fine):
    """The first question that an instance is asked is answered otherwise than all later ones."""

    name = "first_question_differs"

    def choose(self, request):
        is_first = not hasattr(self, "_was_asked")
        object.__setattr__(self, "_was_asked", True)
        even = np.linspace(0, request.video.n_frames - 1, request.n_wanted).astype(int)
        return Choice(keyframes=even if is_first else np.arange(request.n_wanted))


@dataclass(frozen=True, kw_only=True)
class SeedsTorch(Fine):
    """Every draw of the model's own is another after this sampler."""

    name = "seeds_torch"

    def __post_init__(self):
        import torch  # once in the process of this file, not for every question

        assert torch

    def choose(self, request):
        import torch

        torch.manual_seed(int(request.rng.integers(2**31)))
        return Choice(keyframes=torch.randperm(request.video.n_frames)[: request.n_wanted].numpy())


@dataclass(frozen=True, kw_only=True)
class EmbedsUndeclared(Fine):
    """Nobody is told that an encoder without embeddings cannot serve it."""

    name = "embeds_undeclared"

    def choose(self, request):
        frames = np.unique(np.linspace(0, request.video.n_frames - 1, 2 * request.n_wanted).astype(int))
        images, query = request.ledger.embeddings(frames)
        return Choice(keyframes=best(frames, images @ query, request.n_wanted))


@dataclass(frozen=True, kw_only=True)
class Enlarges(Fine):
    """Frames can be shown smaller, not larger."""

    name = "enlarges"

    def choose(self, request):
        return Choice(keyframes=super().choose(request).keyframes, scales=np.full(request.n_wanted, 2.0))


@dataclass(frozen=True, kw_only=True)
class ShowsFourTimesAsMany(Fine):
    """Finds more than any other sampler at the same K, because K does not bind it."""

    name, may_return_more = "shows_four_times_as_many", True

    def choose(self, request):
        n = min(4 * request.n_wanted, request.video.n_frames)
        return Choice(keyframes=np.unique(np.linspace(0, request.video.n_frames - 1, n).astype(int)))


@dataclass(frozen=True, kw_only=True)
class Exits(Fine):
    name = "exits"

    def choose(self, request):
        raise SystemExit(3)


@dataclass(frozen=True, kw_only=True)
class PromisesFewPulls(Fine):
    name = "promises_few_pulls"

    def count_pulls(self, video, *, k, seed=0):
        return 1


@dataclass(frozen=True, kw_only=True)
class PullsUndeclared(Fine):
    name, needs_encoder = "pulls_undeclared", False


@dataclass(frozen=True, kw_only=True)
class FactsOfNumpy(Fine):
    name = "facts_of_numpy"

    def choose(self, request):
        return Choice(keyframes=super().choose(request).keyframes, facts={"peak": np.float32(0.5)})


@dataclass(frozen=True, kw_only=True)
class LoopsOverFrames(Fine):
    """Two microseconds for every frame: nobody notices at a minute."""

    name = "loops_over_frames"

    def choose(self, request):
        until = time.process_time() + 2e-6 * request.video.n_frames
        while time.process_time() < until:
            pass
        return super().choose(request)
