"""Compares a machine's stated rates with those of a run's rows, and plans the rest of the run with the latter.

for line in rate_lines(measured_rates(folder), load_machine("eight_h100")):
    print(line)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from focus_eval.core.resources import resource_path
from focus_eval.matrix.cells import selection_specs
from focus_eval.matrix.config import EncoderConfig
from focus_eval.matrix.folder import RunFolder
from focus_eval.matrix.plan import Machine, encoder_rates, load_machine, matrix_of_run
from focus_eval.rows.records import BLOCKING_STAGES
from focus_eval.rows.sealed import read_sealed_json


@dataclass(frozen=True, kw_only=True)
class MeasuredRate:
    """Speed of an encoder in a run's rows, on one device.

    Args:
        device: its name in the rows, e.g. "cuda: NVIDIA H100 80GB HBM3".
        n_forwards: frames that it embedded.
        device_seconds: that it computed, by its own clock.
        held_seconds: that it was held, waiting and opening included.
    """

    encoder: EncoderConfig
    device: str
    n_forwards: int
    device_seconds: float
    held_seconds: float

    @property
    def frames_per_second(self) -> float:
        """Frames embedded in a second of the device's clock."""
        return self.n_forwards / self.device_seconds


def measured_rates(folder: Path) -> list[MeasuredRate]:
    """Return the rates of the rows in a run's folder, one for each encoder and device; [] if nothing was clocked.

    An imported run has no matrix and no clock. Selections that scan with a second encoder are left out, since their
    clock is that of both.

    Raises:
        InvalidInput: the matrix is one of another version.
    """
    if not read_sealed_json(folder / "run.json").get("matrix"):
        return []
    run, sums = RunFolder(folder), dict[tuple[str, str], tuple[EncoderConfig, list[float]]]()
    for spec in selection_specs(matrix_of_run(folder / "run.json")):
        if spec.encoder is None or spec.scan_encoder is not None:
            continue
        for row in run.selections(spec):
            if "device" in row.seconds:
                _, counts = sums.setdefault((spec.encoder.name, row.device), (spec.encoder, [0.0, 0.0, 0.0]))
                held = sum(row.seconds.get(stage, 0.0) for stage in BLOCKING_STAGES)
                for at, count in enumerate((row.forwards, row.seconds["device"], held)):
                    counts[at] += count
    return [
        MeasuredRate(encoder=encoder, device=device, n_forwards=int(n), device_seconds=busy, held_seconds=held)
        for (_, device), (encoder, (n, busy, held)) in sums.items()
        if n and busy
    ]


def with_measured_rates(machine: Machine, rates: Sequence[MeasuredRate], folder: Path) -> Machine:
    """Return `machine` with the rates that were measured on its kind of device, in place of the stated ones."""
    suitable = [rate for rate in rates if machine.has_device(rate.device)]
    if not suitable:
        return machine
    # Other precisions go: a stated rate beside a measured one would show a gain that nobody measured.
    replaced = {rate.encoder.name: {rate.encoder.precision: rate.frames_per_second} for rate in suitable}
    source = f"encoders {', '.join(replaced)} measured in the rows of {folder}; the others: {machine.source}"
    return machine.model_copy(update={"frames_per_second": {**machine.frames_per_second, **replaced}, "source": source})


def rate_lines(rates: Sequence[MeasuredRate], machine: Machine | None = None) -> list[str]:
    """Return a line for each measured rate: the stated one beside it, and how busy the device was.

    Args:
        machine: None for the shipped one of the rate's device; without one the stated rate is left out.
    """
    return [_rate_line(rate, machine or _shipped_machine(rate.device)) for rate in rates]


def _rate_line(rate: MeasuredRate, machine: Machine | None) -> str:
    """Return a line on a measured rate, compared with the machine's own if it has the same device."""
    frames_per_second, precision = rate.frames_per_second, rate.encoder.precision
    text = (
        f"{rate.encoder.name}, {precision}: {rate.n_forwards:,} frames at {frames_per_second:,.0f} a second "
        f"on {rate.device}, busy {rate.device_seconds / rate.held_seconds:.0%} of the time that it was held"
    )
    if machine is None:
        return text
    if not machine.has_device(rate.device):
        return f"{text}; {machine.name} has another device, so its own rates are used"
    stated = encoder_rates(machine, rate.encoder).get(precision)
    if stated is None:
        return f"{text}; {machine.name} states no rate"
    return (
        f"{text}; planned at {stated:,.0f} ({machine.name}, {machine.rates_are}): encoding took "
        f"{stated / frames_per_second:.0%} of the planned time"
    )


def _shipped_machine(device: str) -> Machine | None:
    """Return the first shipped machine that has the device; None if there is none."""
    machines = map(load_machine, sorted((resource_path("configs") / "machines").glob("*.yaml")))
    return next((machine for machine in machines if machine.has_device(device)), None)
