"""A tiny checkpoint of transformers as the model that is asked: its numbers are transformers' own."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from focus_eval.core.errors import AnswerError, MissingWeights
from focus_eval.keyframes.llms.registry import make_llm

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
PICTURE = np.random.default_rng(0).integers(0, 256, (56, 84, 3), dtype=np.uint8)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    from tests.support.keyframes.tiny_transformers import save_qwen2_vl

    return save_qwen2_vl(tmp_path_factory.mktemp("tiny") / "model")


def test_it_says_what_transformers_says_and_counts_its_tokens(folder):
    model = make_llm("local", checkpoint=str(folder), device="cpu")
    processor = transformers.AutoProcessor.from_pretrained(folder)
    plain = transformers.AutoModelForImageTextToText.from_pretrained(folder).eval()
    content = [{"type": "image", "image": Image.fromarray(PICTURE)}, {"type": "text", "text": "What is it?"}]
    prompt = processor.apply_chat_template([{"role": "user", "content": content}], add_generation_prompt=True)
    inputs = processor(text=[prompt], images=[Image.fromarray(PICTURE)], return_tensors="pt")
    with torch.inference_mode():
        tokens = plain.generate(**inputs, do_sample=False, max_new_tokens=5)
        shares = torch.softmax(plain(**inputs).logits[0, -1].float(), -1)
    n_read = inputs["input_ids"].shape[1]
    reply = model.ask("What is it?", [PICTURE], max_tokens=5)
    assert reply.text == processor.decode(tokens[0, n_read:], skip_special_tokens=True)
    assert reply.usage == {"requests": 1, "input": n_read, "output": 5}
    words, n_words_read = model.first_words("What is it?", PICTURE)
    assert n_words_read == n_read
    assert [share for _, share in words] == pytest.approx(shares.sort(descending=True).values[: len(words)].tolist())
    assert words[0][0] == processor.decode([int(shares.argmax())])


def test_it_costs_its_parameters_a_token_and_is_named_by_its_weights(folder):
    model = make_llm(f"local:checkpoint={folder}")
    # Tied weights stand in the files once.
    numbers = transformers.AutoModelForImageTextToText.from_pretrained(folder).parameters()
    assert model.gmacs_per_token == pytest.approx(sum(weights.numel() for weights in numbers) / 1e9)
    assert "sha256:" in model.revision


def test_a_tokenizer_without_yes_and_a_checkpoint_that_is_not_here_are_named(folder):
    with pytest.raises(AnswerError, match="neither"):
        make_llm("local", checkpoint=str(folder), device="cpu").yes("Yes or no?", PICTURE)
    with pytest.raises(MissingWeights, match="not on this machine; hf download nobody/nothing"):
        make_llm("local", checkpoint="nobody/nothing").check()
    with pytest.raises(MissingWeights, match="checkpoint=/absent/model: no folder with weights; correct the path"):
        make_llm("local:checkpoint=/absent/model").check()
    with pytest.raises(MissingWeights, match=r"checkpoint=qwen: .* a repository of the hub is OWNER/NAME"):
        make_llm("local:checkpoint=qwen").check()
