"""What a model was sent: the first question of a cell with its template applied, sizes, numbers and versions.

An accuracy is comparable only with its prompt. The record lies in the cell's folder as `prompt.json`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from focus_eval.rows.identity import versions

# A token that stands for visual features comes hundreds of times in a row.
_REPEATED = re.compile(r"(<[^<>]+>)\1{2,}")
# Where lmms-eval's wrappers keep what turns text into tokens.
_TOKENIZERS = ("tokenizer", "_tokenizer", "processor", "_processor", "_image_processor")


def sent_tensors(model: Any, given: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the first question of a batch looks like among the inputs of a transformers model's `generate`.

    Args:
        given: token ids `(batch, length)`.
        inputs: keyword arguments of `generate`.
    """
    config, mask = getattr(model, "config", None), inputs.get("attention_mask")
    ids = given[0] if mask is None or mask.shape != given.shape else given[0][mask[0].bool()]
    defaults: Mapping[str, Any] = getattr(getattr(model, "generation_config", None), "to_diff_dict", dict)()
    return {
        "token_ids": ids.tolist(),
        "frame_pixels": _frame_pixels(inputs, config),
        **numbers_of(model),
        "generation": {**_plain(defaults), **_plain(inputs)},
    }


def numbers_of(model: Any) -> dict[str, str]:
    """Return the kind of numbers and of attention that a transformers model computes with."""
    dtype, config = getattr(model, "dtype", ""), getattr(model, "config", None)
    attention = getattr(config, "_attn_implementation", None)
    return {"dtype": str(dtype).removeprefix("torch."), "attention": str(attention or "")}


def image_parts(messages: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the image parts of chat messages in order."""
    for message in messages:
        if isinstance(message["content"], list):
            yield from (part for part in message["content"] if part.get("type") == "image_url")


def sent_messages(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a request to an API says, images as their format, bytes and hash."""
    lines = []
    for message in payload["messages"]:
        content = message["content"]
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        lines += [f"{message['role']}: {_part_text(part)}" for part in parts]
    rest = {name: value for name, value in payload.items() if name != "messages"}
    return {"text": "\n".join(lines), "generation": _plain(rest)}


def prompt_record(view: Any, question_id: str, sent: Mapping[str, Any], tokens: Mapping[str, int]) -> dict[str, Any]:
    """Return the record of one question: `sent`, its token ids as text, and what stands behind them.

    Args:
        view: the model's wrapper.
        tokens: counts of the question, "vision" among them where they could be counted.
    """
    record = {name: value for name, value in sent.items() if name != "token_ids"}
    tokenizer = _tokenizer(view)
    if "token_ids" in sent and tokenizer is not None:
        record["text"] = folded(tokenizer.decode(sent["token_ids"], skip_special_tokens=False))
    template = str(getattr(tokenizer, "chat_template", None) or "")
    made = {
        "question_id": question_id,
        **record,
        "visual_tokens": tokens.get("vision"),
        "template": hashlib.sha256(template.encode()).hexdigest()[:16] if template else "",
        "special_tokens": {name: str(token) for name, token in getattr(tokenizer, "special_tokens_map", {}).items()},
        "versions": versions(),
    }
    return {name: value for name, value in made.items() if value not in (None, "", {}, [])}


def folded(text: str) -> str:
    """Return `text` with a token that is repeated written once: `<|video_pad|>` three times as `<|video_pad|>*3`."""
    return _REPEATED.sub(lambda found: f"{found[1]}*{len(found[0]) // len(found[1])}", text)


def _tokenizer(view: Any) -> Any:
    found: Iterable[Any] = (getattr(view, name, None) for name in _TOKENIZERS)
    held = [getattr(item, "tokenizer", item) for item in found if item is not None]
    return next((item for item in held if hasattr(item, "decode")), None)


def _frame_pixels(inputs: Mapping[str, Any], config: Any) -> list[int]:
    """Return [height, width] of a frame as the vision tower takes it; [] where the inputs do not show it."""
    grids = [inputs.get(name) for name in ("video_grid_thw", "image_grid_thw")]
    grid = next((item for item in grids if item is not None), None)
    patch = getattr(getattr(config, "vision_config", None), "patch_size", None)
    if grid is not None and isinstance(patch, int):
        return [patch * int(grid[0][1]), patch * int(grid[0][2])]
    kinds = [inputs.get(name) for name in ("pixel_values_videos", "pixel_values")]
    pixels = next((item for item in kinds if item is not None), None)
    return [int(side) for side in pixels.shape[-2:]] if pixels is not None and pixels.ndim >= 4 else []


def _part_text(part: Mapping[str, Any]) -> str:
    if part.get("type") == "text":
        return str(part["text"])
    url = str((part.get("image_url") or part.get("video_url") or {}).get("url", ""))
    head, _, data = url.partition("base64,")
    digest = hashlib.sha256(data.encode()).hexdigest()[:16]
    detail = (part.get("image_url") or {}).get("detail")
    return f"<{head.removeprefix('data:').rstrip(';')}, {len(data) * 3 // 4:,} bytes, {digest}{detail or ''}>"


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that are no tensors and no objects."""
    kinds = (bool, int, float, str)
    return {
        name: value
        for name, value in values.items()
        if isinstance(value, kinds)
        or (isinstance(value, Sequence) and len(value) < 20 and all(isinstance(item, kinds) for item in value))
    }
