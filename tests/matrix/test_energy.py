"""GPU energy is a difference of NVML's counters, or nothing. No GPU here: a module stands in for NVML."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from focus_eval.matrix.machine import gpu_joules, measured_energy
from focus_eval.report.page.html import _energy, _recoveries


class NVMLError(Exception):
    """As the package has it."""


def nvml(counters, *, refuses=()):
    """A module that reads the next of `counters` (millijoules per board) each time it is initialised."""
    module, readings = ModuleType("pynvml"), iter(counters)
    module.NVMLError = NVMLError

    def start():
        if "init" in refuses:
            raise NVMLError("driver not loaded")
        module.now = next(readings)

    def read(board):
        if "counter" in refuses:
            raise NVMLError("not supported")
        return module.now[board]

    module.nvmlInit = start
    module.nvmlShutdown = lambda: None
    module.nvmlDeviceGetCount = lambda: len(module.now)
    module.nvmlDeviceGetHandleByIndex = lambda at: at
    module.nvmlDeviceGetTotalEnergyConsumption = read
    return module


def test_joules_are_summed_over_boards(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", nvml([[1500, 2500]]))
    assert gpu_joules() == 4.0


@pytest.mark.parametrize("refuses", ["init", "counter"])
def test_a_board_that_cannot_tell_gives_no_number(monkeypatch, refuses):
    monkeypatch.setitem(sys.modules, "pynvml", nvml([[1, 2]] * 4, refuses=[refuses]))
    assert gpu_joules() is None
    noted = {}
    with measured_energy(noted, "select"):
        pass
    assert noted == {}


def test_without_the_package_nothing_is_noted(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert gpu_joules() is None


def test_a_block_that_fails_is_measured_too(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", nvml([[1000], [8200]]))
    noted = {}
    with pytest.raises(RuntimeError), measured_energy(noted, "answer"):
        raise RuntimeError
    assert noted == {"answer": 7.2}


def test_the_page_says_how_many_starts_were_not_measured():
    starts = [{}, {"gpu_joules": {"select": 3600.0, "answer": 7200.0}}, {"gpu_joules": {"select": 3600.0}}]
    assert _energy(starts) == "select 2.0 Wh, answer 2.0 Wh (1 of 3 starts not measured)"
    assert _energy([{}]) == ""


def test_the_page_names_what_an_encoder_mended():
    assert _recoveries({}) == ""
    text = _recoveries({"blip": {"halved_batches": 1, "fp32_batches": 3}})
    assert text == "blip: 1 batch halved for lack of memory, blip: 3 batches redone in fp32"
