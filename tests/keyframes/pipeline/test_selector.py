"""From a file to a row: what is stored, shared and counted, on a real clip with an encoder that reads pixels."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from focus_eval import VideoInfo, make_sampler, select_keyframes
from focus_eval.bench.report.cost import CostColumns
from focus_eval.bench.rows.store import StoredRows, compact
from focus_eval.core.errors import EncoderError, InvalidInput, UnknownName, VideoError
from focus_eval.core.types import Question
from focus_eval.keyframes.encoders.base import Encoder
from focus_eval.keyframes.encoders.cache import FeatureCache
from focus_eval.keyframes.encoders.recorded import RecordedScorer
from focus_eval.keyframes.encoders.store import RelevanceStore
from focus_eval.keyframes.pipeline.rendezvous_batcher import RendezvousBatcher
from focus_eval.keyframes.pipeline.selector import Encoding, Selector
from focus_eval.keyframes.pipeline.source import OpenVideo, UnreadVideo
from focus_eval.keyframes.rows.json_lines import RowWriter
from focus_eval.keyframes.rows.records import BLOCKING_STAGES, SelectionRow
from focus_eval.keyframes.samplers.base import Choice, FlatSource, FrameSampler, derived_rng
from focus_eval.keyframes.selection import query_question, selection_of
from focus_eval.keyframes.video import open_video
from focus_eval.keyframes.video.clip_writer import ClipWriter

N_FRAMES, FPS = 240, 24


class Brightness(Encoder):
    """Relevance is a frame's mean brightness: an encoder small enough to check by hand. Counts what it embeds."""

    name = "brightness"
    revision = "1"
    stores_embeddings = True

    def __init__(self, *, stores_embeddings=True):
        self.stores_embeddings = stores_embeddings
        self.embedded = 0

    def embed(self, frames):
        self.embedded += len(frames)
        return frames.reshape(len(frames), -1).mean(axis=1, keepdims=True).astype(np.float32) / 255

    def relevance(self, features, query):
        return np.clip(np.asarray(features, dtype=np.float64)[:, 0] * len(query) / 10, 0, 1)


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    path = tmp_path_factory.mktemp("clip") / "clip.mp4"
    with ClipWriter(path, width=64, height=48, fps=FPS, gop=50) as writer:
        for frame in range(N_FRAMES):
            writer.write(np.full((48, 64, 3), 40 + (frame * 7) % 200, dtype=np.uint8))
    return path


def selector(encoder, **changes):
    return Selector(sampler=make_sampler("focus"), encoder=encoder, k=8, **changes)


def question(number, clip, query="bright"):
    return Question(benchmark="b", id=str(number), query=query, options=(), video=clip.name, answer=None)


def test_relevance_is_that_of_the_decoded_frame(clip):
    row = selector(Brightness()).select(question(1, clip), clip)
    with open_video(clip) as reader:
        pixels = reader.read(np.array(row.pulled_frames))
    expected = Brightness().relevance(Brightness().embed(pixels), "bright")
    assert row.pulled_relevance == expected.tolist()


def test_the_row_gives_the_selection_back(clip):
    selection = select_keyframes(clip, query="bright", k=8, sampler="focus", encoder=Brightness(), seed=3)
    assert len(selection.keyframes) == 8
    assert selection.video == VideoInfo(N_FRAMES, FPS)
    assert sum(item.is_final for item in selection.clips) >= 4
    assert selection.clips[-1].stop == N_FRAMES


def test_an_open_video_that_is_given_stays_open(clip):
    with open_video(clip) as reader:
        rows = [selector(Brightness()).select(question(number, clip), OpenVideo(reader=reader)) for number in range(2)]
        assert reader.read(np.array([0])).shape[0] == 1
    assert all(row.error is None for row in rows)


def test_the_same_seed_gives_the_same_frames_and_another_seed_others(clip):
    frames = [selector(Brightness(), seed=seed).select(question(1, clip), clip).pulled_frames for seed in (0, 0, 1)]
    assert frames[0] == frames[1] != frames[2]


def test_the_order_of_questions_and_the_batch_size_change_nothing(clip):
    forward = [selector(Brightness()).select(question(n, clip), clip).keyframes for n in range(4)]
    small = selector(Brightness(), encoding=Encoding(batch_size=3))
    backward = [small.select(question(n, clip), clip).keyframes for n in reversed(range(4))]
    assert forward == backward[::-1]


def test_a_row_says_what_its_encoder_costs_and_how_many_frames_were_decoded_for_it(clip, tmp_path):
    encoder, store = Brightness(), RelevanceStore(tmp_path / "store")
    encoder.gmacs = {"image": 2.0}
    rows = [selector(encoder, store=store).select(question(1, clip), clip) for _ in range(2)]
    assert rows[0].gmacs == rows[1].gmacs == {"image": 2.0}
    # Passing through a group of pictures leaves out what nothing refers to.
    assert rows[0].decoded["all"] >= len(rows[0].pulled_frames)
    assert rows[1].decoded == {"all": 0}
    assert selector(Brightness()).select(question(1, clip), clip).gmacs == {}


@pytest.mark.parametrize("stores_embeddings", [True, False])
def test_a_second_run_forwards_nothing_it_has(clip, tmp_path, stores_embeddings):
    encoder = Brightness(stores_embeddings=stores_embeddings)
    first = selector(encoder, store=RelevanceStore(tmp_path / "store")).select(question(1, clip), clip)
    assert encoder.embedded == first.forwards == len(first.pulled_frames)
    second = selector(encoder, store=RelevanceStore(tmp_path / "store")).select(question(1, clip), clip)
    assert encoder.embedded == first.forwards
    assert second.forwards == 0
    assert second.keyframes == first.keyframes
    assert second.pulled_relevance == first.pulled_relevance


def test_a_question_asked_before_loads_no_weight(clip, tmp_path):
    class Unloaded(Brightness):
        """The same encoder in a process that has not loaded it."""

        def embed(self, frames):
            raise AssertionError("weights loaded")

        def relevance(self, features, query):
            raise AssertionError("weights loaded")

    store = RelevanceStore(tmp_path / "store.sqlite")
    first = selector(Brightness(), store=store).select(question(1, clip), clip)
    second = selector(Unloaded(), store=store).select(question(1, clip), clip)
    assert (second.pulled_relevance, second.keyframes) == (first.pulled_relevance, first.keyframes)


def test_questions_of_a_video_share_coarse_pulls_only_when_asked_to(clip):
    def coarse(seed_of, seed=0):
        instance = selector(Brightness(), coarse_seed=seed_of, seed=seed)
        rows = [instance.select(question(number, clip), clip) for number in (1, 2)]
        return [row.pulled_frames[:24] for row in rows]

    assert len(set(map(tuple, coarse("video")))) == 1
    assert len(set(map(tuple, coarse("question")))) == 2
    assert coarse("video", seed=1)[0] != coarse("video")[0], "or seeds would not vary"


def test_the_generator_is_that_of_seed_benchmark_question_and_sampler(clip):
    this_question = question(1, clip)
    row = Selector(sampler=make_sampler("random"), encoder=None, k=8, seed=3).select(this_question, clip)
    rng = derived_rng(3, this_question.benchmark, this_question.id, "random")
    by_hand = make_sampler("random").select(VideoInfo(row.n_frames, row.fps), k=8, pull=FlatSource(), rng=rng)
    assert row.keyframes == list(by_hand.keyframes)


def test_using_feature_folder_spare_the_forwards_of_the_next_question(clip):
    encoder = Brightness(stores_embeddings=False)
    instance = Selector(
        sampler=make_sampler("topk"), encoder=encoder, k=4, encoding=Encoding(feature_cache=FeatureCache(1 << 20))
    )
    rows = [instance.select(question(number, clip, query), clip) for number, query in ((1, "bright"), (2, "dark"))]
    assert [row.forwards for row in rows] == [10, 0]
    single = Selector(sampler=make_sampler("topk"), encoder=encoder, k=4).select(question(2, clip, "dark"), clip)
    assert single.pulled_relevance == rows[1].pulled_relevance


def test_whatever_can_change_a_selection_changes_its_identity(clip):
    base = selector(Brightness())
    other_scorer = Brightness()
    other_scorer.revision = "2"
    selectors = [
        selector(Brightness(), seed=1),
        selector(Brightness(), coarse_seed="video"),
        selector(other_scorer),
        Selector(sampler=make_sampler("focus", alpha=0.5), encoder=Brightness(), k=8),
        Selector(sampler=make_sampler("focus_m"), encoder=Brightness(), k=8),
        Selector(sampler=make_sampler("focus"), encoder=Brightness(), k=9),
    ]
    ids = {base.selection_id, *(changed.selection_id for changed in selectors)}
    assert len(ids) == 1 + len(selectors)
    assert selector(Brightness(), encoding=Encoding(batch_size=5)).selection_id == base.selection_id


def test_recorded_relevance_needs_no_file():
    trace = np.linspace(0, 1, N_FRAMES)
    instance = selector(RecordedScorer(trace))
    row = instance.select(
        question(1, Path("absent.mp4")), UnreadVideo(path=Path("absent.mp4"), info=VideoInfo(N_FRAMES, FPS))
    )
    assert row.pulled_relevance == [trace[frame] for frame in row.pulled_frames]
    assert row.times_seconds == pytest.approx([frame / FPS for frame in row.keyframes])


def test_stages_add_up_to_less_than_the_wall_clock(clip):
    import time

    started = time.perf_counter()
    row = selector(Brightness()).select(question(1, clip), clip)
    wall = time.perf_counter() - started
    assert {"open", "decode", "decode_cpu", "preprocess", "encode", "select", "idle"} <= set(row.seconds)
    assert sum(row.seconds.get(stage, 0.0) for stage in BLOCKING_STAGES) <= wall + 1e-4  # rounded
    assert row.seconds["decode_cpu"] > 0


def test_a_stated_length_bucket_stands_and_a_missing_one_is_found(clip):
    this_question, instance = question(1, clip), selector(Brightness())
    with_bucket = replace(this_question, bucket="long")
    assert instance.select(with_bucket, clip, bucket_of=lambda seconds: "short").bucket == "long"
    assert instance.select(this_question, clip, bucket_of=lambda seconds: "short").bucket == "short"


def test_rows_keep_the_options_of_their_question_also_where_selecting_failed(clip):
    this_question = replace(question(1, clip), options=("a cat", "a horse"))
    instance = selector(Brightness())
    assert instance.select(this_question, clip).option_texts == ["a cat", "a horse"]
    assert instance.error_row(this_question, VideoError("clip.mp4: broken")).option_texts == ["a cat", "a horse"]


def test_a_selection_that_failed_is_not_read_as_one(clip):
    instance = selector(Brightness())
    row = instance.error_row(question(1, clip), VideoError("clip.mp4: broken"))
    with pytest.raises(Exception, match=r"clip\.mp4: broken"):
        selection_of(row, sampler_version=1, reopen=lambda: open_video(clip))


def test_nan_relevance_is_refused(clip):
    class Broken(Brightness):
        def relevance(self, features, query):
            return np.full(len(features), np.nan)

    with pytest.raises(EncoderError, match=r"frame .* relevance nan"):
        selector(Broken()).select(query_question(clip, "bright"), clip)


def test_logits_are_refused_by_the_scorers_name(clip):
    with pytest.raises(EncoderError, match="brightness gives no raw logits"):
        Selector(sampler=make_sampler("qframe"), encoder=Brightness(), k=4).select(question(1, clip), clip)


def test_wrong_names_are_refused_with_the_nearest(clip):
    with pytest.raises(UnknownName, match="did you mean 'alpha'"):
        make_sampler("focus", alpa=0.2)
    with pytest.raises(UnknownName, match="did you mean 'offline'"):
        select_keyframes(clip, query="x", k=2, encoder="ofline")
    with pytest.raises(InvalidInput, match="k must be at least 1"):
        select_keyframes(clip, query="x", k=0, encoder=Brightness())
    with pytest.raises(InvalidInput, match="query"):
        select_keyframes(clip, query="  ", k=1, encoder=Brightness())


def test_a_query_that_the_encoder_cuts_is_counted(clip, tmp_path):
    from focus_eval.bench.report.run import load_run
    from focus_eval.keyframes.rows.json_lines import RowWriter

    class Short(Brightness):
        def is_cut(self, query):
            return len(query) > 8

    instance = selector(Short())
    writer = RowWriter(tmp_path / "selections" / "rows.jsonl")
    for number, query in enumerate(["bright", "a long question", "dark"]):
        writer.write(instance.select(question(number, clip, query), clip))
    writer.close()
    assert load_run(tmp_path).cut_queries == {"brightness": (1, 3)}


class Colour(Brightness):
    """Brightness that also places a frame: by its brightness and its darkness."""

    name = "colour"

    def embeddings(self, features, query):
        light = np.asarray(features, dtype=np.float64)
        return np.column_stack([light, 1 - light]), np.array([1.0, 0.0])


@pytest.mark.parametrize("encoder", [Brightness(), Colour()])
def test_a_sampler_that_uses_relevance_and_embeddings_embeds_every_frame_once(clip, encoder):
    chooser = Selector(sampler=make_sampler("wfs_sb"), encoder=encoder, k=4, encoding=Encoding(batch_size=3))
    row = chooser.select(question(1, clip), clip)
    assert encoder.embedded == row.forwards == len(row.pulled_frames) == 10
    with open_video(clip) as reader:
        features = Brightness().embed(reader.read(np.array(row.pulled_frames)))
    assert row.pulled_relevance == Brightness().relevance(features, "bright").tolist()


@dataclass(frozen=True, kw_only=True)
class ComparesTexts(FrameSampler):
    """Pulls a few frames for the question and for a longer text, and looks at two."""

    name, source = "compares_texts", "test"
    needs_texts = True

    def choose(self, request):
        frames = np.arange(0, 240, 12)
        values = request.ledger.relevance(frames) + request.ledger.relevance(frames[::-1], "a longer text")[::-1]
        small, full_size = request.ledger.look(frames[:1], size=32), request.ledger.look(frames[1:2])
        facts = {"shapes": [list(small[0].shape), list(full_size[0].shape)], "grey": int(full_size[0].mean())}
        return Choice(keyframes=frames[np.argsort(-values, kind="stable")[: request.n_wanted]], facts=facts)


@pytest.mark.parametrize("stores_embeddings", [True, False])
def test_a_frame_is_encoded_once_for_all_texts_and_a_look_is_decoded(clip, stores_embeddings):
    encoder = Brightness(stores_embeddings=stores_embeddings)
    instance = Selector(sampler=ComparesTexts(), encoder=encoder, k=8)
    row = instance.select(question(1, clip), clip)
    assert row.forwards == encoder.embedded == len(row.encoded_frames) == 20
    assert row.n_scored == 40
    ((text, frames, relevance),) = row.text_pulls
    assert (text, frames[0]) == ("a longer text", 228)
    longer = np.minimum(1, np.array(row.pulled_relevance) * len(text) / len("bright"))
    assert relevance[::-1] == pytest.approx(longer.tolist())
    assert row.looked_frames == [0, 12]
    with open_video(clip) as reader:
        grey = int(reader.read(np.array([12])).mean())
    assert row.facts == {"shapes": [[24, 32, 3], [48, 64, 3]], "grey": grey}
    # Together with another question of the video: the same row, though its frames were decoded in a shared pass.
    with open_video(clip) as reader:
        batcher = RendezvousBatcher(reader)
        jobs = [
            partial(instance.select, question(n, clip), OpenVideo(reader=batcher.reader, server=batcher))
            for n in (1, 2)
        ]
        rows = batcher.run(jobs)[0]
    assert (rows.keyframes, rows.text_pulls, rows.facts) == (row.keyframes, row.text_pulls, row.facts)


def test_a_row_of_several_texts_is_read_back_from_parquet(clip, tmp_path):
    row = Selector(sampler=ComparesTexts(), encoder=Brightness(), k=8).select(question(1, clip), clip)
    with closing(RowWriter(tmp_path / "rows.jsonl")) as writer:
        writer.write(row)
    compact(tmp_path, SelectionRow, ["1"])
    (stored,) = StoredRows(tmp_path, SelectionRow)
    assert stored == row
    assert selection_of(stored, sampler_version=1, reopen=lambda: open_video(clip)).n_pulls == 40


def test_a_texts_cost_is_that_of_matching(clip):
    encoder = Brightness()
    encoder.gmacs = {"image": 10.0, "fusion": 1.0}
    columns = CostColumns()
    columns.add(Selector(sampler=ComparesTexts(), encoder=encoder, k=8).select(question(1, clip), clip))
    # 20 images, and 40 pairs of a frame and a text at a tenth of an image.
    assert columns.columns()["forward_equivalents"].tolist() == pytest.approx([24.0])


@dataclass(frozen=True, kw_only=True)
class ReadsSubtitles(FrameSampler):
    """Shows the frames at which a word of the question is said."""

    name, source, needs_encoder, needs_subtitles, may_return_fewer = "reads_subtitles", "test", False, True, True

    def choose(self, request):
        lines = [line for line in request.subtitles if request.question in line.text]
        facts = {"lines": [[line.start_seconds, line.stop_seconds, line.text] for line in request.subtitles]}
        return Choice(keyframes=np.array([int(line.start_seconds * FPS) for line in lines], dtype=int), facts=facts)


def test_subtitles_reach_a_sampler_that_declares_them_by_time_and_a_missing_file_is_named(clip, tmp_path):
    videos = tmp_path / "videos"
    videos.mkdir()
    (videos / "clip.mp4").symlink_to(clip)
    (tmp_path / "said").mkdir()
    (tmp_path / "said" / "clip.json").write_text(
        '[{"timestamp": [102.5, null], "text": "so bright"}, {"start": "0:01:44.0", "end": "0:01:45", "line": "dark"}]'
    )
    this_question = replace(question(1, clip), subtitles="said/clip.json", subtitles_offset_seconds=100.0)
    row = Selector(sampler=ReadsSubtitles(), encoder=None, k=8).select(this_question, videos / "clip.mp4")
    assert row.facts["lines"] == [[2.5, 4.0, "so bright"], [4.0, 5.0, "dark"]]
    assert row.keyframes == [60]
    for content, message in (
        (None, "cannot be read"),
        ('[{"text": 1}]', "entry 0 is not a line"),
        ("{}", "not a list"),
    ):
        path = tmp_path / "said" / f"{message[:5]}.json"
        if content is not None:
            path.write_text(content)
        with pytest.raises(InvalidInput, match=f"{path}: .*{message}"):
            Selector(sampler=ReadsSubtitles(), encoder=None, k=8).select(
                replace(this_question, subtitles=f"said/{path.name}"), videos / "clip.mp4"
            )
