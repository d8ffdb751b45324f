"""A model whose prompt opens the thinking: its rows keep the whole reply, and one without an end is cut."""

from __future__ import annotations

import pytest

from tests.support.keyframes.tiny_transformers import save_qwen_successor


@pytest.mark.parametrize(
    ("name", "is_opened"), [("FocusQwen3_5", True), ("FocusQwen3_5Chat", True), ("FocusQwen3_5", False)]
)
def test_qwen3_5_is_cut_where_its_prompt_opens_the_thinking_and_no_tag_closes_it(
    name, is_opened, evaluate, tools, tmp_path
):
    from focus_eval.bench.lmms.models import qwen_vl

    weights = save_qwen_successor(tmp_path / "weights", "qwen3_5")
    model = getattr(qwen_vl, name)(
        pretrained=str(weights), device="cpu", sampler="uniform", frames=2, min_pixels=3136, max_pixels=20000,
        record=str(tmp_path / "record"),
    )  # fmt: skip
    if is_opened:  # as the template of the real checkpoint ends
        model.processor.chat_template += "{% if enable_thinking %}<think>\n{% endif %}"
    results = evaluate(model, ["focus_videomme"], limit=1, max_new_tokens=4)
    (row,) = tools.read_record(tmp_path / "record", "answers")
    assert row["answer"], "the wrapper itself leaves nothing of a reply without a closing tag"
    assert (row["parsed"], row.get("is_cut", False)) == (None, is_opened)
    assert results["results"]["focus_videomme"]["unparsed,none"] == 1
    assert model.strip_reply("A or B?\n</think>\n\nB") == "B"
