"""Finds the YAML files and published figures that come with the package."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent
_IN_REPOSITORY = {"tasks": "tasks", "configs": "configs", "paper": "results/paper", "published": "results/published"}


def resource_path(name: str) -> Path:
    """Return the folder `name` ("tasks", "configs", "paper" or "published"): in the wheel, or in the repository."""
    installed = _PACKAGE / "_data" / name
    return installed if installed.is_dir() else _PACKAGE.parent / _IN_REPOSITORY[name]
