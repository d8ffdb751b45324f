"""The model answers one question or many alike, in its tokenizer's words, within its context."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import torch

from focus_eval.bench.lmms.llava_video.checkpoint import make_setup
from focus_eval.bench.lmms.llava_video.model import LlavaVideo, VideoQuestion
from focus_eval.core.errors import InvalidInput

TOLERANCE = 2e-5


@pytest.fixture(scope="module")
def model(tiny_checkpoint):
    return LlavaVideo.load(str(tiny_checkpoint), setup=make_setup("aks"), dtype="float32")


def asked(n_frames: int, question: str, *, seed: int = 0, **fields) -> VideoQuestion:
    frames = np.random.default_rng(seed).integers(0, 256, (n_frames, 24, 40, 3), dtype=np.uint8)
    return VideoQuestion(question=question, frames=frames, **fields)


BATCH = [
    asked(4, "What is it?", seed=1),
    asked(1, "A much longer question about what happens in the end of it all?", seed=2),
    asked(7, "Why?", seed=3),
    asked(4, "Which one?\nA. one\nB. two", seed=4),
]


def test_a_batch_gives_the_answers_of_its_questions_one_by_one(model):
    batch_answers = model.answer(BATCH, max_new_tokens=12)
    assert batch_answers == [model.answer([item], max_new_tokens=12)[0] for item in BATCH]
    assert len({item.text for item in batch_answers}) == len(BATCH)


def test_an_answer_counts_its_tokens(model):
    for item, answer in zip(BATCH, model.answer(BATCH, max_new_tokens=5), strict=True):
        n_text = sum(len(half) for half in model.prompt_ids(item))
        assert answer.n_vision_tokens == 30 * len(item.frames)
        assert answer.n_input_tokens == n_text + answer.n_vision_tokens
        assert 1 <= answer.n_new_tokens <= 5


@pytest.mark.parametrize("attn_implementation", ["sdpa", "eager"])
def test_left_padding_leaves_the_logits_as_they_are(tiny_checkpoint, attn_implementation):
    loaded = LlavaVideo.load(
        str(tiny_checkpoint), setup=make_setup("aks"), dtype="float32", attn_implementation=attn_implementation
    )
    rows = [loaded.inputs(item, max_new_tokens=1) for item in BATCH]
    assert len({len(row) for row in rows}) > 1
    batch_logits = loaded.network.logits(rows)
    for padded, row in zip(batch_logits, rows, strict=True):
        row_logits = loaded.network.logits([row])[0]
        assert (padded[-len(row) :] - row_logits).abs().max() <= TOLERANCE


def test_the_answer_depends_on_the_frames_and_on_their_order(model):
    asked_question = asked(4, "What is it?", seed=1)
    other_frames = asked(4, "What is it?", seed=9)
    reversed_ = VideoQuestion(question=asked_question.question, frames=asked_question.frames[::-1])
    inputs = [
        model.inputs(video_question, max_new_tokens=1) for video_question in (asked_question, other_frames, reversed_)
    ]
    logits = [model.network.logits([row])[0, -1] for row in inputs]
    assert (logits[0] - logits[1]).abs().max() > 1e-2
    assert (logits[0] - logits[2]).abs().max() > 1e-3


def test_the_prompt_is_tokenised_in_two_halves_around_the_video(model):
    asked_question = asked(2, "Why?")
    first_ids, second_ids = model.prompt_ids(asked_question)
    text = model.tokenizer.decode(first_ids) + "<image>" + model.tokenizer.decode(second_ids)
    assert text == (
        "<|im_start|>system\nAnswer the questions.<|im_end|><|im_start|>user\n<image>\nWhy?<|im_end|>"
        "<|im_start|>assistant\n"
    )
    tokens_per_frame = 5 * 6
    assert len(model.inputs(asked_question, max_new_tokens=1)) == len(first_ids) + 2 * tokens_per_frame + len(
        second_ids
    )


def test_the_time_instruction_names_the_times_it_is_given(tiny_checkpoint):
    setup = make_setup("aks", time_instruction="lmms_eval")
    loaded = LlavaVideo.load(str(tiny_checkpoint), setup=setup, dtype="float32")
    asked_question = asked(2, "Why?", times_seconds=[0.5, 7.25], duration_seconds=9.0)
    assert "located at 0.50s,7.25s.Please" in loaded.tokenizer.decode(loaded.prompt_ids(asked_question)[1])
    with pytest.raises(InvalidInput, match="1 times for 2 frames"):
        loaded.prompt_ids(asked(2, "Why?", times_seconds=[0.5], duration_seconds=9.0))


def test_more_frames_than_the_context_holds_are_refused_with_the_number_that_fits(model):
    n_text = sum(len(half) for half in model.prompt_ids(asked(1, "Why?")))
    fit = (4096 - n_text - 8) // 30
    model.inputs(asked(fit, "Why?"), max_new_tokens=8)
    with pytest.raises(InvalidInput, match=f"the context holds 4096; {fit} frames fit"):
        model.inputs(asked(fit + 1, "Why?"), max_new_tokens=8)


def test_ids_past_the_tokenizer_are_never_chosen(model):
    """The tiny embedding has 112 rows for 99 tokens; the published one has more rows than tokens too."""
    rows = [model.inputs(item, max_new_tokens=40) for item in BATCH]
    free = model.network.generate(rows, max_new_tokens=40)
    bound = model.network.generate(rows, max_new_tokens=40, known_ids=99)
    assert free.max() >= 99
    assert bound.max() < 99


def test_an_answer_ends_at_the_stop_token(model):
    row = model.inputs(BATCH[0], max_new_tokens=8)
    first, second = model.network.generate([row], max_new_tokens=2)[0].tolist()
    stopped = model.network.generate([row], max_new_tokens=8, stop_ids=[second])[0].tolist()
    assert stopped == [first, second]


def test_a_repetition_penalty_of_the_checkpoint_counts_new_tokens_only(tiny_checkpoint, tmp_path):
    """The published generation config has one; with the prompt counted too, the first token could already differ."""
    folder = shutil.copytree(tiny_checkpoint, tmp_path / "penalty")
    (folder / "generation_config.json").write_text(json.dumps({"repetition_penalty": 50.0, "do_sample": True}))
    plain = LlavaVideo.load(str(tiny_checkpoint), setup=make_setup("aks"), dtype="float32")
    penal = LlavaVideo.load(str(folder), setup=make_setup("aks"), dtype="float32")
    rows = [plain.inputs(item, max_new_tokens=10) for item in BATCH]
    free, bound = (model.network.generate(rows, max_new_tokens=10) for model in (plain, penal))
    assert torch.equal(free[:, 0], bound[:, 0])
    assert any(len(set(answer)) < 10 for answer in free.tolist())
    assert all(len(set(answer)) == 10 for answer in bound.tolist())
    row_answers = [penal.network.generate([row], max_new_tokens=10)[0] for row in rows]
    assert torch.equal(bound, torch.stack(row_answers)), "left padding took the penalty away"


def test_bfloat16_stays_near_float32(tiny_checkpoint, model):
    half = LlavaVideo.load(str(tiny_checkpoint), setup=make_setup("aks"), dtype="bfloat16")
    row = half.inputs(BATCH[0], max_new_tokens=1)
    assert row.dtype == torch.bfloat16
    exact = model.network.logits([model.inputs(BATCH[0], max_new_tokens=1)])
    half_logits = half.network.logits([row]).float()
    assert torch.nn.functional.cosine_similarity(half_logits.view(1, -1), exact.view(1, -1)) > 0.99


def test_no_frame_is_no_question():
    with pytest.raises(InvalidInput, match="at least one frame"):
        VideoQuestion(question="Why?", frames=np.empty((0, 4, 4, 3), np.uint8))


def test_a_tokenizer_of_another_family_is_refused(model):
    class Renamed:
        name_or_path = "other"
        pad_token_id = 0

        def get_vocab(self):
            return {"</s>": 2}

    with pytest.raises(InvalidInput, match=r"does not know <\|im_end\|>"):
        LlavaVideo(model.network, Renamed(), setup=make_setup("aks"))


def test_a_tokenizer_longer_than_the_embedding_is_refused(make_checkpoint, tmp_path):
    folder = make_checkpoint(tmp_path / "short", vocab_size=90)
    with pytest.raises(InvalidInput, match="tokenizer has 99 tokens, the embedding 90 rows"):
        LlavaVideo.load(str(folder), setup=make_setup("aks"), dtype="float32")
