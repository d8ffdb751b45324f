"""A machine without a GPU's driver is known to have none without loading torch."""

from __future__ import annotations

import subprocess
import sys

import pytest

from focus_eval.bench.matrix import machine

LOADED = (
    "import sys; from focus_eval.bench.matrix import machine; {}; print(machine.best_device(), 'torch' in sys.modules)"
)


@pytest.mark.slow
@pytest.mark.parametrize(("files", "is_loaded"), [("()", False), (f"({sys.executable!r},)", True)])
def test_torch_is_loaded_only_where_a_driver_may_be(files, is_loaded):
    if is_loaded:
        pytest.importorskip("torch")
    code = LOADED.format(f"machine._DRIVER_FILES = {files}")
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    # Other systems than Linux have no such files: there torch is asked.
    expected = is_loaded or not sys.platform.startswith("linux")
    assert result.stdout.split()[1] == str(expected)


def test_what_a_loaded_torch_says_counts(monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(machine, "_DRIVER_FILES", ())
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert machine.best_device() == "cuda"
