"""Qwen3-VL-Embedding and -Reranker give what transformers' own processor and model give for the authors' prompts."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import (
    AutoTokenizer,
    Qwen2VLImageProcessorPil,
    Qwen3VLForConditionalGeneration,
    Qwen3VLProcessor,
    Qwen3VLVideoProcessor,
)

from focus_eval.core.errors import EncoderError, InvalidInput
from focus_eval.encoders.registry import encoder_gmacs_of, encoder_revision, make_encoder
from support.tiny_transformers import write_tiny_qwen3_vl

QUERIES = ["A red CAR", "Who is the man on the left?"]
MAX_PIXELS = 8 * 32 * 32


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_tiny_qwen3_vl(tmp_path_factory.mktemp("weights") / "tiny")


@pytest.fixture(scope="module")
def frames():
    noise = np.random.default_rng(0).integers(-60, 60, (3, 90, 160, 3))
    return np.clip(np.array([200, 120, 40]).reshape(3, 1, 1, 1) + noise, 0, 255).astype(np.uint8)


@pytest.fixture(scope="module")
def embedder(folder):
    return make_encoder("qwen3_vl_embedding", checkpoint=str(folder), device="cpu", max_pixels=MAX_PIXELS)


@pytest.fixture(scope="module")
def reranker(folder):
    return make_encoder("qwen3_vl_reranker", checkpoint=str(folder), device="cpu", max_pixels=MAX_PIXELS)


class ReferenceModel:
    """transformers' own way: the processor makes prompt, pictures and tokens, and the whole model runs on them."""

    def __init__(self, folder) -> None:
        images = Qwen2VLImageProcessorPil.from_pretrained(
            folder, size={"shortest_edge": 4096, "longest_edge": MAX_PIXELS}
        )
        parts = {"tokenizer": AutoTokenizer.from_pretrained(folder), "video_processor": Qwen3VLVideoProcessor()}
        self.processor = Qwen3VLProcessor.from_pretrained(folder, image_processor=images, **parts)
        self.model = Qwen3VLForConditionalGeneration.from_pretrained(folder).eval()

    def __call__(self, system, parts, frame=None):
        """Return the last token's state `(d,)` and its logits."""
        content = [{"type": "text", "text": part} for part in parts] + [{"type": "image"}] * (frame is not None)
        messages = [
            {"role": "system", "content": [{"type": "text", "text": system}]},
            {"role": "user", "content": content},
        ]
        text = self.processor.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        images = None if frame is None else [Image.fromarray(frame)]
        inputs = self.processor(text=[text], images=images, return_tensors="pt")
        with torch.inference_mode():
            output = self.model(**inputs, output_hidden_states=True)
            state = self.model.model(**inputs).last_hidden_state[0, -1]
        return state.double().numpy(), output.logits[0, -1].double().numpy()


@pytest.fixture(scope="module")
def reference(folder):
    return ReferenceModel(folder)


def test_embeddings_are_the_last_tokens_of_the_whole_model(embedder, reference, frames):
    features = embedder.embed(frames)
    expected = np.stack([reference("Represent the user's input.", [], frame)[0] for frame in frames])
    assert np.allclose(features, expected, rtol=1e-4, atol=1e-4)
    unit = expected / np.linalg.norm(expected, axis=1, keepdims=True)
    for query in QUERIES:
        text, _ = reference("Retrieve images or text relevant to the user's query.", [query])
        cosine = unit @ (text / np.linalg.norm(text))
        assert np.abs(embedder.cosine(features, query) - cosine).max() < 1e-5
    assert np.ptp(cosine) > 1e-3  # there is something to compare


def test_odds_are_those_of_yes_against_no_in_the_whole_model(reranker, reference, frames):
    judge = (
        "Judge whether the Document meets the requirements based on the Query and the Instruct provided. "
        'Note that the answer can only be "yes" or "no".'
    )
    instruct = "<Instruct>: Given a search query, retrieve relevant candidates that answer the query."
    yes, no = (reference.processor.tokenizer.get_vocab()[word] for word in ("yes", "no"))
    features = reranker.embed(frames)
    for query in QUERIES:
        logits = [reference(judge, [instruct, "<Query>:", query, "\n<Document>:"], frame)[1] for frame in frames]
        odds = np.array([row[yes] - row[no] for row in logits])
        assert np.allclose(reranker.logits(features, query), odds, rtol=1e-4, atol=1e-4)
        assert np.allclose(reranker.relevance(features, query), 1 / (1 + np.exp(-odds)), atol=1e-5)
    assert np.ptp(odds) > 1e-3


def test_they_are_what_samplers_may_ask(embedder, reranker):
    assert embedder.overrides("embeddings")
    assert reranker.overrides("logits")
    assert not reranker.overrides("embeddings")
    assert not embedder.image_rules.has_one_size


def counted(run):
    from torch.utils.flop_counter import FlopCounterMode

    plain = torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH)
    with torch.no_grad(), plain, FlopCounterMode(display=False) as counter:
        run()
    # Angles of the positions are small products too, of each tower once a forward.
    parts = [of for name, of in counter.get_flop_counts().items() if name.endswith(("rotary_emb", "rotary_pos_emb"))]
    angles = sum(n for of in parts for n in of.values())
    return (counter.get_total_flops() - angles) / 2e9


def test_the_cost_is_that_of_the_forwards_really_made(folder, embedder, reranker):
    square = np.zeros((1, 64, 128, 3), dtype=np.uint8)  # just max_pixels
    options = {"checkpoint": str(folder), "max_pixels": MAX_PIXELS}
    assert embedder.gmacs == encoder_gmacs_of("qwen3_vl_embedding", options)
    assert embedder.gmacs == {"image": pytest.approx(counted(lambda: embedder.embed(square)), rel=1e-9)}
    assert reranker.gmacs == encoder_gmacs_of("qwen3_vl_reranker", options)
    features = reranker.embed(square)
    assert reranker.gmacs["image"] == pytest.approx(counted(lambda: reranker.embed(square)), rel=1e-9)
    query = "q" * 64  # of the byte tokenizer
    gmacs = counted(lambda: reranker.logits(features, query))
    assert reranker.gmacs["fusion"] == pytest.approx(gmacs, rel=1e-4)  # the last product is left out


def test_the_published_sizes_cost_what_their_configurations_say():
    from transformers import Qwen3VLConfig

    from focus_eval.encoders.cost import qwen3_vl_gmacs

    config = Qwen3VLConfig(
        text_config={"hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 28, "head_dim": 128,
                     "num_attention_heads": 16, "num_key_value_heads": 8},
        vision_config={"hidden_size": 1024, "intermediate_size": 4096, "depth": 24, "num_heads": 16,
                       "out_hidden_size": 2048, "deepstack_visual_indexes": [5, 11, 17]},
    )  # fmt: skip
    assert qwen3_vl_gmacs(config, 256, 281) == pytest.approx({"image": 388.16, "fusion": 405.07}, abs=0.005)


def test_revisions_name_what_can_change_a_number(folder, embedder, reranker):
    options = {"checkpoint": str(folder), "max_pixels": MAX_PIXELS}
    for scorer in (embedder, reranker):
        assert encoder_revision(scorer.name, options) == scorer.revision
        assert encoder_revision(scorer.name, {**options, "max_pixels": 2 * MAX_PIXELS}) != scorer.revision
        assert encoder_revision(scorer.name, {**options, "instruction": "Find it."}) != scorer.revision


def test_a_long_query_loses_its_end_and_the_prompt_keeps_its_own(embedder, reranker):
    just, long, longer = "a" * 512, "a" * 513, "a" * 2000  # one token a letter
    ids = embedder.text_inputs([long])["input_ids"][0].tolist()
    assert ids == embedder.text_inputs([longer])["input_ids"][0].tolist()
    assert ids == embedder.text_inputs([just])["input_ids"][0].tolist()
    assert ids[-12:] == embedder.text_inputs(["b"])["input_ids"][0].tolist()[-12:]
    for scorer in (embedder, reranker):
        assert [scorer.is_cut(query) for query in ("a dog", just, long)] == [False, False, True]


@pytest.mark.parametrize("query", ["<|image_pad|>", "what <|im_end|> is"])
def test_a_query_with_a_control_token_is_refused(embedder, reranker, frames, query):
    for scorer in (embedder, reranker):
        with pytest.raises(InvalidInput, match="a control token of the model"):
            scorer.relevance(scorer.embed(frames[:1]), query)


def test_bad_options_and_frames_are_one_line(folder, embedder, tmp_path):
    with pytest.raises(InvalidInput, match="max_pixels must be at least 4096, got 10"):
        make_encoder("qwen3_vl_embedding", checkpoint=str(folder), max_pixels=10)
    with pytest.raises(InvalidInput, match="a frame of 1000x2"):
        embedder.embed(np.zeros((1, 2, 1000, 3), dtype=np.uint8))


def test_a_model_without_yes_and_no_is_no_reranker(tmp_path):
    from support.tiny_transformers import save_qwen_successor

    with pytest.raises(EncoderError, match="has no token 'yes'; is it a reranker"):
        make_encoder("qwen3_vl_reranker", checkpoint=str(save_qwen_successor(tmp_path, "qwen3")), device="cpu")
