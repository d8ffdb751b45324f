"""Every scorer keeps one contract, whatever is inside it."""

from __future__ import annotations

import base64
import hashlib
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from focus_eval.core.errors import InvalidInput
from focus_eval.keyframes.encoders.base import Encoder
from focus_eval.keyframes.encoders.recorded import RecordedScorer
from focus_eval.keyframes.encoders.registry import ENCODERS, make_encoder
from focus_eval.keyframes.encoders.store import RelevanceStore
from focus_eval.keyframes.encoders.weights import local_gmacs
from tests.support.keyframes.chat_server import ChatServer
from tests.support.keyframes.random_weights import (
    TINY_BLIP_HEADS,
    write_tiny_aimv2,
    write_tiny_blip,
    write_tiny_clip,
    write_tiny_naflex,
    write_tiny_open_clip,
    write_tiny_siglip,
    write_tiny_siglip2,
)

QUERIES = [
    "a cat",
    "Which animal appears in the video?",
    "多少只猫？",
    "¿Qué animal es? 🐈",
    "a" * 10_000,
    "cat " * 2500,
]


@dataclass(frozen=True)
class Case:
    """A scorer under the contract.

    Args:
        make: from a folder to the scorer; writes its weights there if they are not there yet.
        tolerance: how far relevance may move with the size of the batch; 0: not a bit.
        paid_for: what its cost is stated for: a picture, or picture and text together.
        options: that it is made with, where it has no folder of weights.
    """

    make: Callable[[Path], Any]
    tolerance: float
    paid_for: str = "image"
    options: Mapping[str, Any] = field(default_factory=dict)


def _tiny(name: str, write: Callable[..., Path], **options: Any) -> Callable[[Path], Any]:
    def make(folder: Path) -> Any:
        if not any(folder.iterdir()):
            write(folder)
        return make_encoder(name, checkpoint=str(folder), device="cpu", **options)

    return make


VLM = {"llm": "chat:model=tiny;parameters=7;retry_backoff_s=0.01"}


def _reply_to(body: dict[str, Any]) -> tuple[str, dict[str, float]]:
    """Answer as a model would whose yes depends on how bright the picture is, and on the text."""
    picture, text = body["messages"][0]["content"]
    image = Image.open(io.BytesIO(base64.b64decode(picture["image_url"]["url"].partition(",")[2])))
    yes = (float(np.asarray(image).mean()) + hashlib.sha256(text["text"].encode()).digest()[0]) / 511
    return ("Yes" if yes > 0.5 else "No"), {"Yes": 0.9 * yes, "No": 0.9 * (1 - yes), "Perhaps": 0.1}


# A new scorer of pixels is put under the contract by one line here.
SCORERS = {
    "offline": Case(lambda _: make_encoder("offline"), tolerance=0.0),
    "blip": Case(_tiny("blip", write_tiny_blip, text_heads=TINY_BLIP_HEADS), tolerance=1e-5),
    "clip": Case(_tiny("clip", write_tiny_clip), tolerance=1e-5),
    "longclip": Case(_tiny("longclip", lambda folder: write_tiny_clip(folder, positions=248)), tolerance=1e-5),
    "siglip": Case(_tiny("siglip", write_tiny_siglip), tolerance=1e-5),
    "siglip2": Case(_tiny("siglip2", write_tiny_siglip2), tolerance=1e-5),
    "siglip2 naflex": Case(_tiny("siglip2", write_tiny_naflex), tolerance=1e-5),
    "aimv2": Case(_tiny("aimv2", write_tiny_aimv2), tolerance=1e-5),
    "open_clip": Case(_tiny("open_clip", write_tiny_open_clip), tolerance=1e-5),
    "vlm": Case(lambda _: make_encoder("vlm", **VLM), tolerance=0.0, paid_for="fusion", options=VLM),
}


@pytest.fixture(scope="module", params=SCORERS)
def case(request):
    """A scorer of each kind; the one that asks a language model has a service on this machine."""
    if request.param == "open_clip":
        pytest.importorskip("open_clip", reason="the extra open-clip is not installed")
    if request.param != "vlm":
        yield SCORERS[request.param]
        return
    with ChatServer(reply_to=_reply_to) as server, pytest.MonkeyPatch.context() as environment:
        environment.setenv("OPENAI_API_KEY", "any")
        environment.setenv("OPENAI_BASE_URL", server.url)
        yield SCORERS["vlm"]


@pytest.fixture(scope="module")
def weights(case, tmp_path_factory):
    return tmp_path_factory.mktemp("weights")


@pytest.fixture(scope="module")
def scorer(case, weights):
    encoder = case.make(weights)
    yield encoder
    encoder.close()


@pytest.fixture(scope="module")
def frames():
    """Eleven frames of a video: a black one, a grey one, and stripes, blobs and noise in several colours."""
    rng = np.random.default_rng(5)
    rows, columns = np.mgrid[0:72, 0:128]
    pictures = np.zeros((11, 72, 128, 3), dtype=np.uint8)
    pictures[1] = 128
    for at in range(2, 11):
        wave = np.sin(rows / rng.uniform(2, 20)) + np.cos(columns / rng.uniform(2, 20))
        pictures[at] = np.clip(128 + wave[..., None] * rng.uniform(-60, 60, 3) + rng.normal(0, 8, (72, 128, 3)), 0, 255)
    return pictures


def test_every_registered_scorer_is_under_the_contract():
    assert {case.partition(" ")[0] for case in SCORERS} | {"recorded"} == set(ENCODERS.names())


def test_it_says_who_it_is_in_one_line(scorer):
    assert isinstance(scorer, Encoder)
    assert scorer.reads_frames
    assert scorer.name in ENCODERS.names()
    assert scorer.revision.strip() == scorer.revision != ""
    assert "\n" not in scorer.revision


def test_it_says_what_a_frame_costs_also_before_its_weights_are_read(case, scorer, weights):
    options = {"checkpoint": str(weights)} if any(weights.iterdir()) else case.options
    assert scorer.gmacs == local_gmacs(scorer.name, options)
    assert scorer.gmacs[case.paid_for] > 0


@pytest.mark.parametrize("query", QUERIES, ids=["short", "question", "chinese", "emoji", "one long word", "long"])
def test_relevance_is_finite_in_the_unit_interval_and_one_per_frame(scorer, frames, query):
    relevance = scorer.relevance(scorer.embed(frames), query)
    assert relevance.shape == (len(frames),)
    assert relevance.dtype == np.float64
    assert ((relevance >= 0) & (relevance <= 1)).all()


def test_frames_and_queries_that_differ_differ_in_relevance(scorer, frames):
    features = scorer.embed(frames)
    relevance = np.stack([scorer.relevance(features, query) for query in ("a cat", "the red car on the table")])
    assert np.ptp(relevance, axis=1).min() > 1e-4
    assert np.ptp(relevance, axis=0).min() > 1e-6


def test_twice_the_same_gives_the_same_bits(scorer, frames):
    first, second = (scorer.relevance(scorer.embed(frames), "a cat") for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_frames_are_not_written_to_and_may_be_read_only_or_strided(scorer, frames):
    flipped = frames[:, :, ::-1]
    copy = flipped.copy()
    flipped.setflags(write=False)
    relevance = scorer.relevance(scorer.embed(flipped), "a cat")
    np.testing.assert_array_equal(flipped, copy)
    np.testing.assert_array_equal(relevance, scorer.relevance(scorer.embed(copy), "a cat"))


@pytest.mark.parametrize("size", [1, 2, 4, 7])
def test_relevance_does_not_depend_on_the_batch(case, scorer, frames, size):
    whole = scorer.relevance(scorer.embed(frames), "a cat")
    parts = [scorer.relevance(scorer.embed(frames[at : at + size]), "a cat") for at in range(0, len(frames), size)]
    np.testing.assert_allclose(np.concatenate(parts), whole, rtol=0, atol=case.tolerance)


def test_relevance_does_not_depend_on_the_order(case, scorer, frames):
    order = np.random.default_rng(0).permutation(len(frames))
    shuffled = scorer.relevance(scorer.embed(frames[order]), "a cat")
    np.testing.assert_allclose(
        shuffled, scorer.relevance(scorer.embed(frames), "a cat")[order], rtol=0, atol=case.tolerance
    )


def test_relevance_to_a_query_does_not_depend_on_the_queries_before_it(case, scorer, weights, frames):
    features = scorer.embed(frames)
    scorer.relevance(features, "another question altogether")
    late = scorer.relevance(features, "a cat")
    fresh = case.make(weights)
    np.testing.assert_array_equal(fresh.relevance(fresh.embed(frames), "a cat"), late)
    fresh.close()


def test_no_frames_give_no_relevance(scorer, frames):
    assert scorer.relevance(scorer.embed(frames[:0]), "a cat").shape == (0,)


@pytest.mark.parametrize(("height", "width"), [(1, 1), (3, 500), (181, 33), (224, 224), (720, 406)])
def test_any_size_of_frame_is_scored(scorer, height, width):
    frames = np.random.default_rng(0).integers(0, 256, (2, height, width, 3), dtype=np.uint8)
    assert np.isfinite(scorer.relevance(scorer.embed(frames), "a cat")).all()


@pytest.mark.parametrize("query", ["", " \n\t", "a lone \ud800 surrogate"])
def test_an_empty_or_broken_query_is_refused(scorer, frames, query):
    features = scorer.embed(frames[:1])
    with pytest.raises(InvalidInput, match="query"):
        scorer.relevance(features, query)


@pytest.mark.parametrize(
    "wrong",
    [
        np.zeros((2, 8, 8, 3)),
        np.zeros((8, 8, 3), np.uint8),
        np.zeros((2, 8, 8, 4), np.uint8),
        np.zeros((2, 0, 8, 3), np.uint8),
    ],
    ids=["float", "one frame", "rgba", "no rows"],
)
def test_what_is_not_rgb_uint8_is_refused(scorer, wrong):
    with pytest.raises(InvalidInput, match="frames"):
        scorer.embed(wrong)


def test_relevance_read_back_from_the_store_equals_the_fresh_one_to_the_bit(scorer, frames, tmp_path):
    store = RelevanceStore(tmp_path / "store.sqlite")
    features, numbers = scorer.embed(frames), np.arange(len(frames)) * 29
    fresh = scorer.relevance(features, "a cat")
    if scorer.stores_embeddings:
        assert (features.dtype, features.ndim) == (np.float32, 2)
        store.put_embeddings(scorer.revision, "video", numbers, features)
        is_stored, stored = RelevanceStore(store.path).embeddings(scorer.revision, "video", numbers[::-1])
        assert is_stored.all()
        np.testing.assert_array_equal(scorer.relevance(stored, "a cat"), fresh[::-1])
    else:
        store.put_relevance(scorer.revision, "video", "a cat", numbers, fresh)
        stored = RelevanceStore(store.path).relevance(scorer.revision, "video", "a cat", numbers[::-1])
        np.testing.assert_array_equal(stored, fresh[::-1])


def test_logits_are_finite_and_one_per_frame(scorer, frames):
    if not scorer.overrides("logits"):
        pytest.skip("gives no logits")
    logits = scorer.logits(scorer.embed(frames), "a cat")
    assert logits.shape == (len(frames),)
    assert np.isfinite(logits).all()
    assert np.ptp(logits) > 1e-4


def test_embeddings_of_frames_and_query_share_a_space(scorer, frames):
    if not scorer.overrides("embeddings"):
        pytest.skip("gives no embeddings")
    features = scorer.embed(frames)
    images, query = scorer.embeddings(features, "a cat")
    assert (images.shape, images.dtype, query.dtype) == ((len(frames), query.size), np.float64, np.float64)
    unit = images / np.linalg.norm(images, axis=1, keepdims=True)
    order = np.argsort(unit @ query)
    assert (np.diff(scorer.relevance(features, "a cat")[order]) >= -1e-12).all()


@pytest.fixture
def recorded():
    return RecordedScorer(np.linspace(0, 1, 11))


def test_recorded_relevance_keeps_the_same_contract_by_frame_index(recorded):
    frames = np.array([10, 0, 4])
    assert isinstance(recorded, Encoder)
    assert not recorded.reads_frames
    for query in QUERIES:
        relevance = recorded.relevance_of(Path("clip.mp4"), frames, query)
        np.testing.assert_array_equal(relevance, frames / 10)
    assert recorded.relevance_of(Path("clip.mp4"), frames[:0], "a cat").shape == (0,)
    with pytest.raises(InvalidInput, match="query"):
        recorded.relevance_of(Path("clip.mp4"), frames, " ")
