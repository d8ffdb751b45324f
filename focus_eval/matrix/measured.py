"""Compares a machine's stated rates with those of a run's rows, and plans the rest of the run with the latter.

for line in rate_lines(measured_rates(folder), load_machine("eight_h100")):
    print(line)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from focus_eval.core.resources import resource_path
from focus_eval.matrix.cells import cells, selection_specs
from focus_eval.matrix.config import EncoderConfig
from focus_eval.matrix.folder import RunFolder
from focus_eval.matrix.foretold import planned_answer_seconds
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


@dataclass(frozen=True, kw_only=True)
class MeasuredAnswers:
    """Time of a model's answers in a run's rows, on one device, beside the arithmetic of a plan.

    Args:
        machine: of the plan.
        model: its configured name.
        device: its name in the rows.
        n_answers: without errors.
        generate_seconds: that the model generated, summed.
        planned_seconds: by arithmetic for the same answers.
    """

    machine: str
    model: str
    device: str
    n_answers: int
    generate_seconds: float
    planned_seconds: float

    @property
    def factor(self) -> float:
        """Time taken over time planned."""
        return self.generate_seconds / self.planned_seconds


def measured_answers(folder: Path, machine: Machine | None = None) -> list[MeasuredAnswers]:
    """Return the answers in a run's rows on `machine`'s kind of device, one entry for each model and device.

    Args:
        machine: None for the shipped one of the rows' device; answers on a device of none are left out.

    Raises:
        InvalidInput: the matrix is one of another version.
    """
    if not read_sealed_json(folder / "run.json").get("matrix"):
        return []
    run, sums = RunFolder(folder), dict[tuple[str, str], tuple[str, list[float]]]()
    for cell in cells(matrix_of_run(folder / "run.json")):
        seconds_by_machine = dict[str, float | None]()
        for row in run.answers(cell):
            node = machine or _shipped_machine(row.device)
            if row.error is not None or "generate" not in row.seconds or not node or not node.has_device(row.device):
                continue
            if node.name not in seconds_by_machine:
                seconds_by_machine[node.name] = planned_answer_seconds(cell.model.name, node, cell.selection.k)
            if planned := seconds_by_machine[node.name]:
                _, totals = sums.setdefault((cell.model.name, row.device), (node.name, [0.0, 0.0, 0.0]))
                for at, count in enumerate((1, row.seconds["generate"], planned)):
                    totals[at] += count
    return [
        MeasuredAnswers(
            machine=name, model=model, device=device, n_answers=int(n), generate_seconds=taken, planned_seconds=planned
        )
        for (model, device), (name, (n, taken, planned)) in sums.items()
    ]


def with_measured_answers(machine: Machine, answers: Sequence[MeasuredAnswers]) -> Machine:
    """Return `machine` with the factors by which answers took longer than planned."""
    factors = {**machine.answer_factors, **{item.model: item.factor for item in answers}}
    return machine.model_copy(update={"answer_factors": factors}) if answers else machine


def answer_rate_lines(answers: Sequence[MeasuredAnswers]) -> list[str]:
    """Return a line for each model's answers: the seconds of one, and how far off the plan they were."""
    return [
        f"{item.model}: {item.n_answers:,} answers at {item.generate_seconds / item.n_answers:.2f} s on {item.device}; "
        f"answering took {item.factor:.0%} of the time planned ({item.machine}, arithmetic)"
        for item in answers
    ]


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


@cache
def _shipped_machine(device: str) -> Machine | None:
    """Return the first shipped machine that has the device; None if there is none."""
    machines = map(load_machine, sorted((resource_path("configs") / "machines").glob("*.yaml")))
    return next((machine for machine in machines if machine.has_device(device)), None)
