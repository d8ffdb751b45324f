"""A second, cheap encoder looks everywhere: counted apart, stored, shared, the same frames however it is asked."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest

from focus_eval import make_sampler, select_keyframes
from focus_eval.core.errors import EncoderError, InvalidInput
from focus_eval.core.types import VideoInfo
from focus_eval.keyframes.encoders.cache import FeatureCache
from focus_eval.keyframes.encoders.cost import relative_cost
from focus_eval.keyframes.encoders.recorded import RecordedScorer
from focus_eval.keyframes.encoders.registry import make_encoder, make_scan_encoder, scan_encoder_of
from focus_eval.keyframes.encoders.store import RelevanceStore
from focus_eval.keyframes.pipeline.relevance import VideoRelevance, VideoSession, scan_logits
from focus_eval.keyframes.pipeline.rendezvous_batcher import RendezvousBatcher
from focus_eval.keyframes.pipeline.selector import Encoding, Selector
from focus_eval.keyframes.pipeline.source import OpenVideo, UnreadVideo
from focus_eval.keyframes.samplers.base import Choice
from focus_eval.keyframes.samplers.ledger import FunctionSource, log_odds
from focus_eval.keyframes.samplers.scanning import ScanningSampler
from focus_eval.keyframes.video import open_video
from tests.support.keyframes.synthetic import write_numbered_clip

from .test_selector import Brightness, clip, question  # noqa: F401


@dataclass(frozen=True, kw_only=True)
class Scout(ScanningSampler):
    """Scans every twelfth frame, pulls the brightest k of them and shows these."""

    name = "scout"

    relative_cost: float | None = 0.1

    def choose(self, request):
        frames = self.scannable(request.video, np.arange(0, request.video.n_frames, 12))
        best = frames[np.argsort(-request.ledger.scan(frames), kind="stable")[: request.n_wanted]]
        request.ledger.relevance(best)
        return Choice(keyframes=best)


class Darkness(Brightness):
    """The scan encoder of these tests, with logits, and half the pixels for half the work."""

    name = "darkness"

    def logits(self, features, query):
        return 3 - np.asarray(features, dtype=np.float64)[:, 0]


def selector(scan, **changes):
    changes = {"encoder": Brightness(), "k": 4, **changes}
    return Selector(sampler=Scout(scan_encoder="darkness"), scan_encoder=scan, **changes)


def test_scanned_frames_are_no_pulls_and_their_forwards_are_counted_apart(clip):  # noqa: F811
    scan = Darkness()
    row = selector(scan).select(question(1, clip), clip)
    assert row.scanned_frames == list(range(0, 240, 12))
    assert row.scan_forwards == scan.embedded == 20
    assert row.forwards == row.n_scored == 4
    assert (row.scan_encoder, row.scan_encoder_revision) == ("darkness", "1")
    assert row.facts == {}


def test_the_scan_sees_the_decoded_frames_in_the_encoders_own_logits(clip):  # noqa: F811
    frames = np.arange(0, 240, 12)
    with open_video(clip) as reader:
        logits = Darkness().logits(Darkness().embed(reader.read(frames)), "")
    row = selector(Darkness()).select(question(1, clip), clip)
    assert row.keyframes == sorted(frames[np.argsort(-logits, kind="stable")[:4]].tolist())


def test_an_encoder_without_logits_scans_with_the_log_odds_of_its_relevance():
    relevance = np.array([0.0, 0.25, 0.5, 1.0])
    logits = scan_logits(FunctionSource(lambda frames: relevance[frames]))(np.arange(4))
    np.testing.assert_allclose(logits, [np.log(1e-6 / (1 - 1e-6)), -np.log(3), 0, -logits[0]], rtol=1e-9)
    np.testing.assert_array_equal(logits, log_odds(relevance))


@pytest.mark.parametrize("stores_embeddings", [True, False])
def test_a_second_run_scans_nothing_it_has(clip, tmp_path, stores_embeddings):  # noqa: F811
    kind = Darkness if stores_embeddings else Brightness
    rows = []
    for _ in range(2):
        scan = kind(stores_embeddings=stores_embeddings)
        scan.name = "other"
        store = RelevanceStore(tmp_path / "store")
        rows.append(selector(scan, store=store).select(question(1, clip), clip))
        assert scan.embedded == rows[-1].scan_forwards
    assert [row.scan_forwards for row in rows] == [20, 0]
    assert rows[0].keyframes == rows[1].keyframes


@pytest.mark.parametrize("keeps", ["store", "kept"])
def test_two_questions_of_a_video_share_what_was_scanned(clip, tmp_path, keeps):  # noqa: F811
    scan = Darkness(stores_embeddings=keeps == "store")
    caches = (
        {"store": RelevanceStore(tmp_path / "store")}
        if keeps == "store"
        else {"encoding": Encoding(scan_feature_cache=FeatureCache(1 << 20))}
    )
    scanning_selector = selector(scan, **caches)
    rows = [
        scanning_selector.select(question(number, clip, query), clip) for number, query in ((1, "bright"), (2, "dark"))
    ]
    assert scan.embedded == 20
    assert [row.scan_forwards for row in rows] == [20, 0]


def test_questions_served_together_scan_once_and_get_what_they_get_alone(clip):  # noqa: F811
    scan = Darkness()
    video_questions = [question(number, clip, "bright" * number) for number in (1, 2, 3)]
    scanning_selector = selector(scan)
    with open_video(clip) as reader:
        batcher = RendezvousBatcher(reader, batch_size=7)
        rows = batcher.run(
            [
                partial(scanning_selector.select, item, OpenVideo(reader=batcher.reader, server=batcher))
                for item in video_questions
            ]
        )
    assert scan.embedded == sum(row.scan_forwards for row in rows) == 20
    separate_rows = [selector(Darkness()).select(item, clip) for item in video_questions]
    assert [(row.keyframes, row.scanned_frames) for row in rows] == [
        (row.keyframes, row.scanned_frames) for row in separate_rows
    ]


@pytest.mark.parametrize(
    ("mode", "n_scanned", "max_decoded"), [("all", 20, 141), ("reference", 20, 121), ("sync", 5, 5)]
)
def test_the_scan_decodes_what_is_cheap_and_exactly_the_frames_asked(tmp_path, mode, n_scanned, max_decoded):
    options = {"x264-params": "scenecut=0:bframes=1:b-adapt=0:b-pyramid=none:keyint=50:min-keyint=50"}
    path = write_numbered_clip(tmp_path / "clip.mp4", 240, options=options)
    sampler = Scout(scan_encoder="darkness", scan_decode=mode)
    scanning_selector = Selector(
        sampler=sampler, encoder=RecordedScorer(np.full(240, 0.5)), scan_encoder=Darkness(), k=4
    )
    row = scanning_selector.select(question(1, path), path)
    assert len(row.scanned_frames) == n_scanned
    assert row.decoded[mode] <= max_decoded
    with open_video(path) as reader:
        allowed = {"all": range(240), "reference": reader.reference_frames, "sync": reader.info.sync_frames}[mode]
        assert set(row.scanned_frames) <= set(np.asarray(allowed).tolist())
        logits = Darkness().logits(Darkness().embed(reader.read(np.array(row.scanned_frames))), "")
    best = np.argsort(-logits, kind="stable")[:4]
    assert row.keyframes == sorted(np.array(row.scanned_frames)[best].tolist())
    assert "scan_decoded_all" not in row.facts


def test_a_video_whose_sync_frames_are_not_known_is_scanned_everywhere_and_the_row_says_so(clip):  # noqa: F811
    values = RecordedScorer(np.linspace(0.1, 0.9, 240))
    sampler = Scout(scan_encoder="recorded", scan_decode="sync")
    row = Selector(sampler=sampler, encoder=values, scan_encoder=values, k=4).select(
        question(1, clip), UnreadVideo(path=clip, info=VideoInfo(240, 24))
    )
    assert len(row.scanned_frames) == 20
    assert row.facts["scan_decoded_all"] is True


def test_the_scan_encoder_is_part_of_the_identity_and_only_where_there_is_one():
    first, second = selector(Darkness()), selector(Darkness())
    second.scan_encoder.revision = "2"
    assert first.selection_id != second.selection_id
    plain = Selector(sampler=make_sampler("focus"), encoder=Brightness(), scan_encoder=Darkness(), k=4)
    assert not [name for name in plain.identity if name.startswith("scan")]
    assert plain.selection_id == Selector(sampler=make_sampler("focus"), encoder=Brightness(), k=4).selection_id


def test_the_name_that_an_option_gives_the_scan_encoder_changes_no_identity():
    ids = [
        Selector(sampler=Scout(scan_encoder=text), encoder=Brightness(), scan_encoder=Darkness(), k=4).selection_id
        for text in ("darkness", "darkness:device=cuda")
    ]
    assert ids[0] == ids[1]


def test_scanning_with_the_main_encoder_is_allowed_and_said(clip):  # noqa: F811
    row = selector(Brightness()).select(question(1, clip), clip)
    assert row.facts == {"scan_encoder_is_encoder": True}
    assert row.scan_forwards == 20


def test_a_scan_encoder_that_is_not_named_is_refused():
    with pytest.raises(
        InvalidInput, match="'scout' scans with a second, cheap encoder: name it with scan_encoder=NAME"
    ):
        scan_encoder_of(Scout())
    with pytest.raises(InvalidInput, match="'scout' needs a scan encoder"):
        selector(None)
    assert scan_encoder_of(make_sampler("focus")) is None


def test_a_scan_encoder_of_unknown_cost_is_refused_before_a_video_is_opened(clip):  # noqa: F811
    sampler = Scout(scan_encoder="darkness", relative_cost=None)
    with pytest.raises(InvalidInput, match="relative_cost"):
        Selector(sampler=sampler, encoder=Brightness(), scan_encoder=Darkness(), k=4)
    costs = {"encoder": Brightness(), "scan_encoder": Darkness()}
    costs["encoder"].gmacs, costs["scan_encoder"].gmacs = {"image": 8.0, "fusion": 1.0}, {"image": 2.0}
    unpriced_selector = Selector(sampler=sampler, **costs, k=4)
    assert unpriced_selector.scan_cost == 0.25
    assert unpriced_selector.select(question(1, clip), clip).gmacs == {"image": 8.0, "fusion": 1.0, "scan_image": 2.0}


def test_relevance_and_logits_come_from_one_look_at_the_frames(clip):  # noqa: F811
    encoder = Darkness()
    with open_video(clip) as reader:
        pull = VideoRelevance(VideoSession(reader=reader, encoder=encoder), "bright")
        relevance, logits = pull.relevance_and_logits(np.array([100, 7]))
        assert encoder.embedded == pull.forwards == 2
        np.testing.assert_array_equal(relevance, pull(np.array([100, 7])))
        np.testing.assert_array_equal(logits, pull.logits(np.array([100, 7])))


def test_a_recorded_table_without_the_scanned_frames_names_video_and_frame(clip):  # noqa: F811
    values = np.linspace(0.1, 0.9, 240)
    recorded_selector = selector(RecordedScorer(values), encoder=RecordedScorer(values))
    row = recorded_selector.select(question(1, clip), UnreadVideo(path=clip, info=VideoInfo(240, 24)))
    assert row.keyframes == [192, 204, 216, 228]
    assert row.scan_forwards == row.forwards == 0
    values[36] = np.nan
    recorded_selector = selector(RecordedScorer(values), encoder=RecordedScorer(values))
    with pytest.raises(EncoderError, match=r"clip.mp4: frame 36 has no relevance in the trace"):
        recorded_selector.select(question(1, clip), UnreadVideo(path=clip, info=VideoInfo(240, 24)))


def test_select_keyframes_makes_the_scan_encoder_that_the_sampler_names(clip, tmp_path):  # noqa: F811
    np.save(tmp_path / "scan.npy", np.linspace(0.9, 0.1, 240))
    sampler = Scout(scan_encoder=f"recorded:path={tmp_path / 'scan.npy'}")
    selection = select_keyframes(clip, query="bright", k=4, sampler=sampler, encoder=Brightness())
    assert selection.keyframes == (0, 12, 24, 36)
    assert selection.n_scanned == 20


@pytest.mark.slow
def test_mobileclip2_scans_for_pe_core(tmp_path):
    """The pair of configs/ablations/scan.yaml on the smallest towers of both families, the scan named in one text."""
    pytest.importorskip("open_clip", reason="the extra open-clip is not installed")
    from tests.support.keyframes.random_weights import write_tiny_open_clip

    clip_path = tmp_path / "numbered.mp4"
    write_numbered_clip(clip_path, n_frames=240, fps=12)
    main, scan = (write_tiny_open_clip(tmp_path / name, family=name) for name in ("PE-Core", "MobileCLIP2"))
    sampler = make_sampler("scan_cover", scan_encoder=f"open_clip:checkpoint={scan},device=cpu", share=0.05)
    encoders = {"encoder": make_encoder("open_clip", checkpoint=str(main), device="cpu")}
    encoders["scan_encoder"] = make_scan_encoder(sampler)
    row = Selector(sampler=sampler, k=4, **encoders).select(question(1, clip_path), clip_path)
    assert row.scan_encoder == row.encoder == "open_clip"
    assert row.scan_encoder_revision.startswith("MobileCLIP2@sha256:")
    cost = relative_cost(encoders["scan_encoder"], encoders["encoder"])
    assert cost == pytest.approx(2.393 / 4.725, rel=0.01)  # of the two towers
    assert row.scan_forwards == len(row.scanned_frames) > 0
    # What was spent on both is within the budget, in forwards of the main encoder.
    assert row.forwards > 0
    assert cost * row.scan_forwards + row.forwards <= 0.05 * 25 * 20
    assert len(row.keyframes) == 4
