"""Tokens of a batch are those of each question: padding is none of them."""

from __future__ import annotations

from types import SimpleNamespace

import torch

from focus_eval.bench.answering.tracing import token_counts

PAD, VIDEO = 0, 9


def test_padding_counts_neither_as_input_nor_as_output():
    prompt_ids = torch.tensor([[PAD, PAD, 5, VIDEO, VIDEO, 6], [5, VIDEO, VIDEO, VIDEO, 6, 7]])
    output = torch.cat([prompt_ids, torch.tensor([[3, 2, PAD, PAD], [3, 3, 3, 2]])], dim=1)
    inputs = {"attention_mask": (prompt_ids != PAD).long(), "pad_token_id": PAD}
    config = SimpleNamespace(video_token_id=VIDEO, image_token_id=None)
    assert token_counts(prompt_ids, output, inputs, config) == [
        {"input": 4, "output": 2, "vision": 2},
        {"input": 6, "output": 4, "vision": 3},
    ]


def test_output_without_the_prompt_is_counted_too():
    prompt_ids, answer = torch.tensor([[5, 6, 7, 8]]), torch.tensor([[3, 2, PAD]])
    assert token_counts(prompt_ids, answer, {"pad_token_id": PAD}, None) == [{"input": 4, "output": 2}]


def test_what_is_no_batch_of_tokens_is_not_counted():
    assert token_counts(None, torch.zeros(1, 3), {}, None) == []
    assert token_counts(torch.zeros(1, 2, 4), torch.zeros(1, 3), {}, None) == []
