"""Fixtures every test may use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

for _name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE"):
    os.environ.setdefault(_name, "1")

SHARED = Path(__file__).resolve().parents[2] / "shared"


def shared_path(relative: str) -> Path:
    """Return a file or folder of the material beside the checkout, or skip the test with the reason.

    With REQUIRE_RECORDED=1 in the environment its absence fails the test: a suite that skips its own
    purpose has not passed.
    """
    path = SHARED / relative
    if not path.exists():
        reason = f"the recorded material ({relative}) is not beside this checkout, at {SHARED.name}/{relative}"
        if os.environ.get("REQUIRE_RECORDED") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    return path


@pytest.fixture(scope="session")
def shared():
    """A function from a relative path to the recorded material, which skips where it is absent."""
    return shared_path
