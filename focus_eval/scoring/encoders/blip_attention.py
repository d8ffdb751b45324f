"""BLIP's attention without the attention matrix, for several questions about one frame.

transformers computes BLIP's attention as two matrix products with a softmax between them. The same numbers come
from torch's fused kernel. In cross-attention the questions of a frame lie along the query axis, so the frame's
keys and values are projected once, whatever the number of questions.
"""

from __future__ import annotations

from types import MethodType
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention


def use_fused_attention(model: Any) -> None:
    """Replace the attention of a `BlipForImageTextRetrieval` in place; weights and names stay as they are."""
    for layer in model.vision_model.encoder.layers:
        layer.self_attn.forward = MethodType(_attend_image, layer.self_attn)
    for layer in model.text_encoder.encoder.layer:
        layer.attention.self.forward = MethodType(_attend_text, layer.attention.self)
        layer.crossattention.self.forward = MethodType(_attend_text, layer.crossattention.self)


def _attend_image(module: Any, hidden_states: torch.Tensor, **_: Any) -> tuple[torch.Tensor, None]:
    n, length, width = hidden_states.shape
    mixed = module.qkv(hidden_states).view(n, length, 3, module.num_heads, width // module.num_heads)
    query, key, value = mixed.permute(2, 0, 3, 1, 4).unbind(0)
    context = scaled_dot_product_attention(query, key, value, scale=module.scale)
    return module.projection(context.transpose(1, 2).reshape(n, length, width)), None


def _attend_text(
    module: Any,
    hidden_states: torch.Tensor,
    attention_mask: torch.Tensor | None = None,
    encoder_hidden_states: torch.Tensor | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Self-attention, or attention to image tokens `(n, tokens, width)` of `(n * questions)` texts, frame by frame."""
    rows, length, _width = hidden_states.shape
    queried = hidden_states
    attended = hidden_states
    mask = attention_mask
    if encoder_hidden_states is not None:
        attended = encoder_hidden_states
        queried = hidden_states.reshape(attended.shape[0], -1, hidden_states.shape[2])
        mask = None  # every image token is seen
    query, key, value = (
        _heads(project(states), module.num_attention_heads)
        for project, states in ((module.query, queried), (module.key, attended), (module.value, attended))
    )
    if mask is not None:
        mask = mask.to(query.dtype)
    context = scaled_dot_product_attention(query, key, value, attn_mask=mask)
    return context.transpose(1, 2).reshape(rows, length, module.all_head_size), None


def _heads(states: torch.Tensor, n_heads: int) -> torch.Tensor:
    n, length, width = states.shape
    return states.view(n, length, n_heads, width // n_heads).transpose(1, 2)
