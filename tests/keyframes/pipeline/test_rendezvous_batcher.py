"""Questions of one video served together: the same results as alone, each frame embedded once, errors kept apart."""

from __future__ import annotations

import threading
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from focus_eval import make_sampler
from focus_eval.core.errors import EncoderError, RunError, VideoError
from focus_eval.core.types import Question
from focus_eval.keyframes.encoders.store import RelevanceStore
from focus_eval.keyframes.pipeline import timing
from focus_eval.keyframes.pipeline.rendezvous_batcher import RendezvousBatcher
from focus_eval.keyframes.pipeline.selector import Selector
from focus_eval.keyframes.pipeline.source import OpenVideo
from focus_eval.keyframes.video import open_video
from focus_eval.keyframes.video.clip_writer import ClipWriter

from .test_selector import Brightness

SAMPLERS = ("uniform", "topk", "aks", "focus", "focus_c", "focus_f", "focus_released", "focus_iterative")


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    path = tmp_path_factory.mktemp("clip") / "clip.mp4"
    with ClipWriter(path, width=64, height=48, fps=24, gop=50) as writer:
        for frame in range(480):
            writer.write(np.full((48, 64, 3), 40 + (frame * 7) % 200, dtype=np.uint8))
    return path


def questions(clip):
    return [
        Question(benchmark="b", id=str(n), query="bright" * (n + 1), options=(), video=clip.name, answer=None)
        for n in range(3)
    ]


def selectors(encoder, store=None):
    return [Selector(sampler=make_sampler(name), encoder=encoder, k=8, store=store) for name in SAMPLERS]


def together(clip, selectors_of_clip):
    """Return the selections of every selector and question on a clip, made together."""
    with open_video(clip) as reader:
        batcher = RendezvousBatcher(reader, batch_size=16)
        works = [
            partial(item.select, question, OpenVideo(reader=batcher.reader, server=batcher))
            for item in selectors_of_clip
            for question in questions(clip)
        ]
        return batcher.run(works)


def comparable(row):
    return (row.keyframes, row.pulled_frames, row.pulled_relevance, row.clips, row.facts)


@pytest.mark.parametrize("stored", [False, True])
def test_questions_served_together_get_what_they_get_alone(clip, tmp_path, stored):
    store = RelevanceStore(tmp_path / "store") if stored else None
    rows = together(clip, selectors(Brightness(), store))
    separate_rows = [
        selector.select(question, clip) for selector in selectors(Brightness()) for question in questions(clip)
    ]
    assert [comparable(row) for row in rows] == [comparable(row) for row in separate_rows]


def test_a_frame_is_embedded_once_for_all_that_ask_in_a_round(clip, tmp_path):
    encoder = Brightness()
    rows = together(clip, selectors(encoder, RelevanceStore(tmp_path / "store")))
    distinct = {frame for row in rows for frame in row.pulled_frames}
    assert encoder.embedded == len(distinct)
    assert sum(row.forwards for row in rows) == len(distinct)
    assert sum(len(row.pulled_frames) for row in rows) > 2 * len(distinct)


def test_seconds_are_shared_out_and_none_is_lost(clip):
    rows = together(clip, selectors(Brightness()))
    assert sum(row.seconds.get("decode", 0) for row in rows) > 0
    assert all("waiting" not in row.seconds for row in rows)
    assert all(row.seconds.get("encode", 0) == 0 for row in rows if row.forwards == 0 and row.sampler == "uniform")


def test_decoded_frames_are_shared_out_and_those_passed_through_are_counted(clip):
    with open_video(clip) as reader:
        batcher = RendezvousBatcher(reader, batch_size=16)
        works = [
            partial(item.select, question, OpenVideo(reader=batcher.reader, server=batcher))
            for item in selectors(Brightness())
            for question in questions(clip)
        ]
        rows = batcher.run(works)
        assert sum(row.decoded["all"] for row in rows) == reader.n_decoded
    assert reader.n_decoded > len({frame for row in rows for frame in row.pulled_frames})
    assert all(row.decoded == {"all": 0} for row in rows if row.sampler == "uniform")


def test_a_big_encoder_and_a_small_one_each_pay_for_their_own_time(clip, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(timing, "time", SimpleNamespace(perf_counter=lambda: now[0], thread_time=lambda: 0.0))

    class Slow(Brightness):
        def embed(self, pixels):
            now[0] += 0.5
            return super().embed(pixels)

    slow, fast = (Selector(sampler=make_sampler("topk"), encoder=item, k=8) for item in (Slow(), Brightness()))
    rows = together(clip, [slow, fast])
    seconds = [sum(row.seconds["encode"] for row in rows[at : at + 3]) for at in (0, 3)]
    # 20 candidates are two batches of 16: a second on the clock, which was once split in halves.
    assert seconds == [pytest.approx(1.0), 0.0]
    forwards = [sum(row.forwards for row in rows[at : at + 3]) for at in (0, 3)]
    assert forwards[0] == forwards[1]
    decoded = [sum(row.seconds["decode"] for row in rows[at : at + 3]) for at in (0, 3)]
    assert decoded[0] == pytest.approx(decoded[1]), "both saw the same frames"


def test_a_frame_that_cannot_be_decoded_fails_only_who_asked_for_it(clip):
    with open_video(clip) as reader:

        class Damaged:
            path, info, width, height = reader.path, reader.info, reader.width, reader.height
            frame_times = staticmethod(reader.frame_times)

            @staticmethod
            def stream(frames):
                if 475 in frames.tolist():
                    raise VideoError("clip.mp4: frame 475 is damaged")
                return reader.stream(frames)

        batcher = RendezvousBatcher(Damaged())
        selector = Selector(sampler=make_sampler("topk"), encoder=Brightness(), k=4)
        bad = np.array([475])

        def pull_bad():
            from focus_eval.keyframes.pipeline.relevance import VideoRelevance, VideoSession

            return VideoRelevance(VideoSession(reader=Damaged(), encoder=Brightness(), server=batcher), "bright")(bad)

        def attempt(work):
            try:
                return work()
            except VideoError as error:
                return str(error)

        good = partial(selector.select, questions(clip)[0], OpenVideo(reader=batcher.reader, server=batcher))
        results = batcher.run([partial(attempt, good), partial(attempt, pull_bad)])
    assert comparable(results[0]) == comparable(selector.select(questions(clip)[0], clip))
    assert results[1] == "clip.mp4: frame 475 is damaged"


def test_an_interrupt_leaves_no_thread_waiting(clip):
    class Interrupted(Brightness):
        def embed(self, frames):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        together(clip, selectors(Interrupted()))


class Clumsy(Brightness):
    """Brightness whose batches do what they are told; relevance to "bad" fails."""

    def __init__(self, *batches):
        super().__init__()
        self._batches = list(batches)
        self.n_embedded = 0

    def embed(self, frames):
        self.n_embedded += len(frames)
        if self._batches:
            self._batches.pop(0)()
        return super().embed(frames)

    def relevance(self, features, query):
        if query == "bad":
            raise EncoderError("cannot read that")
        return super().relevance(features, query)


def run_together(clip, encoder, queries, *, store=None, rounds_made=lambda batcher: None):
    question_runs = [
        Question(benchmark="b", id=str(n), query=query, options=(), video=clip.name, answer=None)
        for n, query in enumerate(queries)
    ]
    selector = Selector(sampler=make_sampler("topk"), encoder=encoder, k=4, store=store)

    with open_video(clip) as reader:
        batcher = RendezvousBatcher(reader)
        rounds_made(batcher)
        return batcher.run(
            [
                partial(selector.recorded, question, OpenVideo(reader=batcher.reader, server=batcher))
                for question in question_runs
            ]
        )


def test_a_query_that_fails_costs_the_others_nothing(clip):
    good, encoder = Clumsy(), Clumsy()
    whole = run_together(clip, good, ["x"] * 4)
    rows = run_together(clip, encoder, ["x", "x", "bad", "x"])
    assert rows[2].error == "cannot read that"
    assert [comparable(rows[n]) for n in (0, 1, 3)] == [comparable(whole[n]) for n in (0, 1, 3)]
    assert encoder.n_embedded == good.n_embedded


def fails():
    raise EncoderError("one batch went wrong")


def test_a_round_that_fails_is_served_one_by_one_from_what_is_known(clip, tmp_path):
    encoder = Clumsy(fails)
    rows = run_together(clip, encoder, ["x"] * 4, store=RelevanceStore(tmp_path / "store"))
    whole = run_together(clip, Clumsy(), ["x"] * 4)
    assert [comparable(row) for row in rows] == [comparable(row) for row in whole]
    assert sum(row.forwards for row in rows) == whole[0].forwards


def test_an_interrupt_while_a_failed_round_is_served_again_ends_every_question(clip):
    rounds = []
    encoder = Clumsy(fails, lambda: rounds[0].stop(KeyboardInterrupt()))
    ended = []

    def interrupted():
        with pytest.raises(KeyboardInterrupt):
            run_together(clip, encoder, ["x"] * 4, rounds_made=rounds.append)
        ended.append(True)

    thread = threading.Thread(target=interrupted, daemon=True)
    thread.start()
    thread.join(timeout=600)
    assert ended, "it hangs"


def test_a_device_that_fails_ends_them_all(clip):
    def device_fails():
        raise RunError("cuda failed")

    with pytest.raises(RunError, match="cuda failed"):
        run_together(clip, Clumsy(device_fails), ["x"] * 4)
