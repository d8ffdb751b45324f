"""BLIP's relevance for several frames and questions at once is that of one frame and one question."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import torch
from transformers import BlipForImageTextRetrieval

from focus_eval.core.errors import EncoderError, InvalidInput
from focus_eval.keyframes.encoders import blip
from focus_eval.keyframes.encoders.blip import BlipOptions, BlipScorer, clean_caption
from focus_eval.keyframes.encoders.registry import make_encoder
from tests.support.keyframes.random_weights import TINY_BLIP_HEADS, WORDS, blip_scorer, random_blip, write_tiny_blip

TOLERANCE = 1e-5
LONG = " ".join(WORDS * 3)
QUERIES = ["a red car", "Who is the man on the left?", "x", LONG, "what color is the dog (in the video)?"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_tiny_blip(tmp_path_factory.mktemp("blip"))


def make(folder, **options):
    return make_encoder("blip", checkpoint=str(folder), text_heads=TINY_BLIP_HEADS, device="cpu", **options)


@pytest.fixture(scope="module")
def scorer(folder):
    return make(folder)


@pytest.fixture(scope="module")
def frames():
    """Nine frames that look different: noise of several strengths over several colours."""
    rng = np.random.default_rng(0)
    colours = rng.integers(0, 256, (9, 1, 1, 3))
    noise = rng.integers(-1, 2, (9, 70, 120, 3)) * np.arange(9).reshape(9, 1, 1, 1) * 12
    return np.clip(colours + noise, 0, 255).astype(np.uint8)


def test_relevance_tells_frames_and_questions_apart(scorer, frames):
    relevance = scorer.relevance_many(scorer.embed(frames), QUERIES)
    assert relevance.shape == (len(QUERIES), len(frames))
    assert ((relevance > 0) & (relevance < 1)).all()
    assert relevance.std(axis=0).min() > 100 * TOLERANCE
    assert relevance.std(axis=1).min() > 100 * TOLERANCE


def test_several_questions_at_once_equal_one_by_one(scorer, frames):
    tokens = scorer.embed(frames)
    relevance = scorer.relevance_many(tokens, QUERIES)
    one_by_one = np.stack([scorer.relevance(tokens, query) for query in QUERIES])
    assert np.abs(relevance - one_by_one).max() < TOLERANCE


@pytest.mark.parametrize(("text_rows", "queries_at_once"), [(1, 64), (7, 2), (12, 5), (512, 1)])
def test_the_size_of_the_text_batches_changes_nothing(folder, frames, monkeypatch, text_rows, queries_at_once):
    whole = make(folder)
    tokens = whole.embed(frames)
    monkeypatch.setattr(blip, "_MAX_TEXT_ROWS", text_rows)
    monkeypatch.setattr(blip, "_MAX_QUERIES_AT_ONCE", queries_at_once)
    in_parts = make(folder).relevance_many(tokens, QUERIES)
    assert np.abs(in_parts - whole.relevance_many(tokens, QUERIES)).max() < TOLERANCE


@pytest.mark.parametrize("batch_size", [1, 4, 64])
def test_the_size_of_the_image_batches_changes_nothing(folder, scorer, frames, batch_size):
    assert (make(folder, batch_size=batch_size).embed(frames) - scorer.embed(frames)).abs().max() < TOLERANCE


def test_the_fused_attention_gives_what_transformers_own_attention_gives(folder, scorer, frames):
    model = BlipForImageTextRetrieval.from_pretrained(folder).eval()
    pixels = scorer._pixel_values(frames)
    for query in QUERIES:
        ids, mask = scorer.text_inputs([query] * len(frames))
        with torch.inference_mode():
            reference = model(input_ids=ids, attention_mask=mask, pixel_values=pixels)
        assert reference.question_embeds.shape[:2] == ids.shape  # the whole sequence, despite the name
        expected = reference.itm_score.softmax(dim=-1)[:, 1].numpy()
        assert np.abs(scorer.relevance(scorer.embed(frames), query) - expected).max() < TOLERANCE


def test_the_order_of_frames_and_of_questions_does_not_matter(scorer, frames):
    tokens = scorer.embed(frames)
    order = np.random.default_rng(3).permutation(len(frames))
    turned = scorer.relevance_many(tokens[torch.from_numpy(order)], QUERIES[::-1])
    assert np.abs(turned - scorer.relevance_many(tokens, QUERIES)[::-1, order]).max() < TOLERANCE


@pytest.mark.parametrize("options", [{}, {"preprocess": "hf"}, {"resize": "device"}], ids=str)
def test_prepared_frames_embed_to_the_same_tokens(folder, frames, options):
    scorer = make(folder, **options)
    assert torch.equal(scorer.embed(scorer.prepare(frames)), scorer.embed(frames))


def test_frames_of_several_parts_embed_to_the_same_tokens_as_one(scorer, frames):
    assert torch.equal(scorer.queue_parts([frames[:1], frames[1:]])(), scorer.embed(frames))


def test_resizing_on_the_device_changes_no_token(folder, scorer, frames):
    assert torch.equal(make(folder, resize="device").embed(frames), scorer.embed(frames))


@pytest.mark.parametrize(("precision", "dtype"), [("fp16", torch.float16), ("bf16", torch.bfloat16)])
def test_half_precision_keeps_half_the_bytes_and_stays_near(folder, scorer, frames, precision, dtype):
    half = make(folder, precision=precision)
    tokens = half.embed(frames)
    assert tokens.dtype == dtype
    difference = np.abs(half.relevance_many(tokens, QUERIES) - scorer.relevance_many(scorer.embed(frames), QUERIES))
    assert 0 < difference.max() < 0.1
    assert half.recoveries == {}


def test_weights_that_overflow_fp16_are_redone_in_fp32_and_counted(scorer, frames):
    """Scaling one layer up and the next down leaves fp32 as it was and overflows fp16 in between."""
    model, tokenizer = random_blip("tiny", image_size=96)
    options = BlipOptions(device="cpu", precision="fp16", batch_size=4)
    block = model.vision_model.encoder.layers[0].mlp
    block.fc1.bias.data += 8.0  # far right of the GELU, which is linear there
    plain = blip_scorer(model, tokenizer, options=options).embed(frames).float()
    with torch.no_grad():
        block.fc1.weight *= 1e5
        block.fc1.bias *= 1e5
        block.fc2.weight /= 1e5
    harsh = blip_scorer(model, tokenizer, options=options)
    tokens = harsh.embed(frames)
    assert harsh.recoveries == {"fp32_batches": 3}
    assert (tokens.float() - plain).abs().max() < 0.05


def test_a_damaged_network_is_no_relevance(frames):
    model, tokenizer = random_blip("tiny", image_size=96)
    model.itm_head.weight.data[0, 0] = float("nan")
    scorer = blip_scorer(model, tokenizer, options=BlipOptions(device="cpu"))
    with pytest.raises(EncoderError, match="weights damaged"):
        scorer.relevance(scorer.embed(frames), "a dog")


def test_a_question_is_cut_where_it_has_more_than_35_tokens(scorer):
    assert not scorer.is_cut("a red car")
    words = ["dog"] * 33  # with both ends 35 tokens
    assert scorer.count_tokens(" ".join(words)) == 35
    assert not scorer.is_cut(" ".join(words))
    assert scorer.is_cut(" ".join([*words, "dog"]))


def test_what_lies_beyond_the_cut_changes_nothing(scorer, frames):
    tokens = scorer.embed(frames)
    start = " ".join(["dog"] * 33)
    assert np.array_equal(scorer.relevance(tokens, start + " a"), scorer.relevance(tokens, start + " man"))
    assert not np.array_equal(scorer.relevance(tokens, "dog a"), scorer.relevance(tokens, "dog man"))


@pytest.mark.parametrize(
    ("raw", "cleaned"),
    [
        ('Who says "No!" (twice)?', "who says no twice ?"),
        ("It's 3:45 p.m.; then...", "it's 3 45 p m then"),
        ("well-known, isn't it?\n", "well-known, isn't it?"),
        ("a\tb\n\nc ~", "a\tb c"),
        (" ".join(str(n) for n in range(60)), " ".join(str(n) for n in range(50))),
        ("...", ""),
    ],
)
def test_text_is_cleaned_as_lavis_does(raw, cleaned):
    assert clean_caption(raw) == cleaned


def test_without_a_cut_a_text_beyond_the_positions_is_refused(folder, frames):
    scorer = make_encoder("blip", checkpoint=str(folder), preprocess="hf", device="cpu")
    with pytest.raises(EncoderError, match="has 602 tokens, the encoder 512"):
        scorer.relevance(scorer.embed(frames[:1]), "dog " * 600)


def test_no_frame_gives_no_relevance(scorer):
    tokens = scorer.embed(np.empty((0, 40, 60, 3), dtype=np.uint8))
    assert tokens.shape[0] == 0
    assert scorer.relevance(tokens, "a dog").shape == (0,)


@pytest.mark.parametrize(
    "frames", [np.zeros((2, 8, 8, 3)), np.zeros((8, 8, 3), np.uint8), np.zeros((1, 8, 8, 4), np.uint8)]
)
def test_anything_but_rgb_bytes_is_refused(scorer, frames):
    with pytest.raises(InvalidInput, match="uint8"):
        scorer.embed(frames)


def test_the_revision_names_weights_and_what_changes_a_number(folder, scorer):
    assert scorer.revision.endswith("preprocess=lavis text_heads=6 precision=fp32")
    assert "sha256:" in scorer.revision
    variants = [make(folder, precision="bf16"), make_encoder("blip", checkpoint=str(folder), preprocess="hf")]
    assert len({scorer.revision, *(variant.revision for variant in variants)}) == 3
    assert make(folder, batch_size=2, resize="device").revision == scorer.revision


@pytest.mark.parametrize("options", [{"preprocess": "clip"}, {"resize": "nearest"}, {"precision": "int8"}])
def test_an_unknown_choice_is_refused(folder, options):
    with pytest.raises(InvalidInput):
        BlipScorer(checkpoint=str(folder), **options)


def test_the_memory_of_the_large_model_is_what_the_documentation_says():
    from transformers import BlipVisionConfig

    config = BlipVisionConfig(hidden_size=1024, image_size=384, patch_size=16)
    tokens = (config.image_size // config.patch_size) ** 2 + 1
    assert tokens * config.hidden_size * 2 == 1_181_696


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler on the CPU")
def test_the_compiled_tower_gives_the_same_tokens_and_says_so(folder, scorer, frames):
    compiled = make(folder, compile=True, batch_size=len(frames))
    assert (compiled.embed(frames) - scorer.embed(frames)).abs().max() < TOLERANCE
    assert compiled.revision == f"{scorer.revision} compiled"


def test_a_question_is_tokenized_once_for_all_its_frames(folder, frames, monkeypatch):
    scorer, tokenized = make(folder), []
    stock = scorer.text_inputs
    monkeypatch.setattr(scorer, "text_inputs", lambda texts: tokenized.append(list(texts)) or stock(texts))
    batches = [scorer.relevance(scorer.embed(frames[at : at + 3]), query) for query in QUERIES[:2] for at in (0, 3, 6)]
    assert tokenized == [[query] for query in QUERIES[:2]]
    relevance = scorer.relevance_many(scorer.embed(frames), QUERIES[:2])
    assert np.abs(np.concatenate(batches).reshape(2, -1) - relevance).max() < TOLERANCE


def test_further_questions_about_the_same_frames_find_the_images_keys_and_values(folder, frames, monkeypatch):
    scorer = make(folder)
    readers = [layer.crossattention.self for layer in scorer._model.text_encoder.encoder.layer]
    projected = []
    for reader in readers:
        reader.key.register_forward_hook(lambda *_: projected.append(1))
    tokens, reversed_tokens = scorer.embed(frames), scorer.embed(frames[::-1])
    relevance = [scorer.relevance(tokens, query) for query in QUERIES]
    assert len(projected) == len(readers), "once for all questions"
    # The same frames again, but in another tensor: nothing of the first one passes for it.
    assert np.array_equal(scorer.relevance(reversed_tokens.flip(0), QUERIES[0]), relevance[0])
    assert np.abs(scorer.relevance(reversed_tokens, QUERIES[0]) - relevance[0][::-1]).max() < TOLERANCE
    assert len(projected) == 3 * len(readers)
    fresh = [make(folder).relevance(tokens, query) for query in QUERIES]
    assert np.array_equal(relevance, fresh), "to the bit"
    monkeypatch.setattr(blip, "_MAX_KEPT_BYTES", 0)
    assert [np.array_equal(scorer.relevance(tokens, query), relevance[at]) for at, query in enumerate(QUERIES)] == [
        True
    ] * 5
    assert len(projected) == 8 * len(readers), "what would take too much memory is not kept"


def test_keys_and_values_take_no_more_bytes_than_their_bound_over_all_layers_and_parts(folder, frames, monkeypatch):
    scorer = make(folder)
    readers = [layer.crossattention.self for layer in scorer._model.text_encoder.encoder.layer]
    tokens = scorer.embed(frames)
    expected = scorer.relevance(tokens, QUERIES[0])
    whole = scorer._keys.n_bytes
    assert whole == sum(value.nbytes for layer in scorer._keys.by_part[0, len(frames), False] for value in layer)
    most_held, held_now = [], []

    def note(*_):
        images = [reader.image for reader in readers if reader.image is not None]
        held_now.append(sum(value.nbytes for image in images for value in image))

    for reader in readers:
        reader.register_forward_hook(note)
    for n_fitting in (0, 1, 2, 9):
        monkeypatch.setattr(blip, "_MAX_KEPT_BYTES", n_fitting * whole // len(frames))
        scorer._text_runner.batch_size = 1  # a part for each frame
        scorer._keys = None
        held_now.clear()
        scorer.relevance(tokens, QUERIES[0])
        assert len(scorer._keys.by_part) == n_fitting
        assert scorer._keys.n_bytes == n_fitting * whole // len(frames)
        most_held.append(max(held_now))
    # A part that would not fit holds no layer's keys and values while it runs.
    assert most_held == [0] + 3 * [whole // len(frames)]
    scorer._text_runner.batch_size = blip._MAX_TEXT_ROWS
    scorer._keys = None
    monkeypatch.setattr(blip, "_MAX_KEPT_BYTES", whole - 1)
    held_now.clear()
    assert np.array_equal(scorer.relevance(tokens, QUERIES[0]), expected)
    assert (max(held_now), scorer._keys.n_bytes) == (0, 0)
