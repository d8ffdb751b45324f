"""Hashes a configuration: equal hashes mean equal configurations."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

# What a model's wrapper may be told without any answer changing: such arguments are part of no identity, so that a run
# goes on with another device, batch size or limit on cost and finds its rows.
WITHOUT_EFFECT = (
    "device", "device_map", "batch_size", "num_concurrent", "timeout", "max_retries", "retry_backoff_s",
    "decode_gigabytes", "max_cost", "price_input", "price_output",
)  # fmt: skip


def with_effect(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a wrapper that can change an answer."""
    return {name: value for name, value in arguments.items() if name not in WITHOUT_EFFECT}


def identity_hash(identity: Mapping[str, Any]) -> str:
    """Return 16 hexadecimal digits that change whenever a value of `identity` does."""
    text = json.dumps(identity, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
