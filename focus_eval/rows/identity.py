"""Hashes a configuration: equal hashes mean equal configurations."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any


def identity_hash(identity: Mapping[str, Any]) -> str:
    """Return 16 hexadecimal digits that change whenever a value of `identity` does."""
    text = json.dumps(identity, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
