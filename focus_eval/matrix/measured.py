"""Compares a machine's stated rates with those of a run's rows, and plans the rest of the run with the latter.

encoders, decoding = measured_rates(folder)
for line in rate_lines(encoders, load_machine("eight_h100")):
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
from focus_eval.rows.files import read_sealed_json
from focus_eval.rows.records import BLOCKING_STAGES


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
class MeasuredDecoding:
    """Cost of decoding in a run's rows, at the resolutions of its own videos.

    Args:
        device: that embedded the frames, its name in the rows; it tells the machine whose cores decoded.
        near_sync: True for frames near sync frames (`focus_gop`).
        n_frames: requested from the decoder.
        core_seconds: processor seconds of all decoding threads, frames decoded on the way included.
    """

    device: str
    near_sync: bool
    n_frames: int
    core_seconds: float

    @property
    def seconds_per_frame(self) -> float:
        """Seconds of one core per requested frame."""
        return self.core_seconds / self.n_frames


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
                _add(totals, 1, row.seconds["generate"], planned)
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


def measured_rates(folder: Path) -> tuple[list[MeasuredRate], list[MeasuredDecoding]]:
    """Return rates of a run's rows: one for each encoder and device, and one of decoding for each device.

    Empty if nothing was clocked: an imported run has no matrix and no clock, and not every reader counts its threads'
    seconds. Selections that scan with a second encoder are left out, since their clocks are those of both.

    Raises:
        InvalidInput: the matrix is one of another version.
    """
    if not read_sealed_json(folder / "run.json").get("matrix"):
        return [], []
    run, sums = RunFolder(folder), dict[tuple[str, str], tuple[EncoderConfig, list[float]]]()
    decoding = dict[tuple[str, bool], list[float]]()
    for spec in selection_specs(matrix_of_run(folder / "run.json")):
        if spec.encoder is None or spec.scan_encoder is not None:
            continue
        for row in run.selections(spec):
            if "device" in row.seconds:
                _, counts = sums.setdefault((spec.encoder.name, row.device), (spec.encoder, [0.0, 0.0, 0.0]))
                held = sum(row.seconds.get(stage, 0.0) for stage in BLOCKING_STAGES)
                _add(counts, row.forwards, row.seconds["device"], held)
            if "decode_cpu" in row.seconds:
                counts = decoding.setdefault((row.device, row.sampler == "focus_gop"), [0.0, 0.0])
                _add(counts, row.forwards + len(row.looked_frames), row.seconds["decode_cpu"])
    rates = [
        MeasuredRate(encoder=encoder, device=device, n_forwards=int(n), device_seconds=busy, held_seconds=held)
        for (_, device), (encoder, (n, busy, held)) in sums.items()
        if n and busy
    ]
    return rates, [
        MeasuredDecoding(device=device, near_sync=near_sync, n_frames=int(n), core_seconds=seconds)
        for (device, near_sync), (n, seconds) in decoding.items()
        if n and seconds
    ]


def _add(totals: list[float], *counts: float) -> None:
    """Add each of `counts` to the total at its place."""
    totals[:] = [total + count for total, count in zip(totals, counts, strict=True)]


def with_measured_rates(machine: Machine, rates: Sequence[MeasuredRate], folder: Path) -> Machine:
    """Return `machine` with the rates that were measured on its kind of device, in place of the stated ones."""
    suitable = [rate for rate in rates if machine.has_device(rate.device)]
    if not suitable:
        return machine
    # Other precisions go: a stated rate beside a measured one would show a gain that nobody measured.
    replaced = {rate.encoder.name: {rate.encoder.precision: rate.frames_per_second} for rate in suitable}
    source = f"encoders {', '.join(replaced)} measured in the rows of {folder}; the others: {machine.source}"
    return machine.model_copy(update={"frames_per_second": {**machine.frames_per_second, **replaced}, "source": source})


def with_measured_decoding(machine: Machine, decoding: Sequence[MeasuredDecoding], folder: Path) -> Machine:
    """Return `machine` with the seconds of decoding that were measured on its kind of device."""
    replaced = {
        "decode_seconds_gop" if item.near_sync else "decode_seconds": item.seconds_per_frame
        for item in decoding
        if machine.has_device(item.device)
    }
    if not replaced:
        return machine
    source = f"decoding measured in the rows of {folder}; {machine.source}"
    return machine.model_copy(update={**replaced, "source": source})


def decoding_lines(decoding: Sequence[MeasuredDecoding], machine: Machine | None = None) -> list[str]:
    """Return a line for each measured cost of decoding, and how far off the machine's own was.

    Args:
        machine: None for the shipped one of the rows' device; without one the stated cost is left out.
    """
    return [_decoding_line(item, machine or _shipped_machine(item.device)) for item in decoding]


def _decoding_line(item: MeasuredDecoding, machine: Machine | None) -> str:
    """Return a line on a measured cost of decoding, compared with the machine's own if it has the same device."""
    name = "decoding near sync frames" if item.near_sync else "decoding"
    text = f"{name}: {item.n_frames:,} frames at {1000 * item.seconds_per_frame:.1f} ms of a core beside {item.device}"
    if machine is None or not machine.has_device(item.device):
        return text
    stated = (machine.decode_seconds_gop if item.near_sync else None) or machine.decode_seconds
    return (
        f"{text}; planned at {1000 * stated:.1f} ms ({machine.name}, {machine.rates_are}): decoding took "
        f"{item.seconds_per_frame / stated:.0%} of the planned time"
    )


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
