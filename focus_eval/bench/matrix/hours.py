"""Foretells the hours of a matrix on a machine from stated rates, and compares these with the rates of a run's rows.

machine = load_machine("eight_h100")
cost = total_cost(selection_costs(make_plan(load_matrix("alpha")), machine))
for line in measured_rates(folder).lines(machine):
    print(line)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path

import numpy as np
from pydantic import Field

from focus_eval.bench.matrix.cells import cells, selection_specs
from focus_eval.bench.matrix.config import EncoderConfig, MatrixConfig, StrictModel, check, load_yaml
from focus_eval.bench.matrix.folder import RunFolder
from focus_eval.bench.matrix.plan import Plan, SelectionPlan, matrix_of_run
from focus_eval.bench.matrix.questions import public_facts
from focus_eval.core.errors import unknown_name
from focus_eval.core.resources import resource_path
from focus_eval.core.types import FloatArray
from focus_eval.keyframes.rows.files import read_sealed_json
from focus_eval.keyframes.rows.identity import identity_hash
from focus_eval.keyframes.rows.records import BLOCKING_STAGES

# Assumed number of text tokens in a prompt, and of tokens in a reply.
TEXT_TOKENS, OUTPUT_TOKENS = 300, 2
BYTES_OF_WEIGHT = 2


class Machine(StrictModel):
    """Cores, GPUs and measured rates of a machine to plan for.

    `decode_seconds` are seconds of one core per requested frame, including frames decoded on the way to it.
    `decode_seconds_gop` is that number for frames near sync frames (`focus_gop`); None: the same. `frames_per_second`
    is the rate of one GPU (without GPU: of the machine) by encoder and precision; `worker_frames_per_second` is that of
    a whole worker with one GPU, which decodes too, where it was measured. `gpu_tflops` (bf16, dense) and
    `gpu_terabytes_per_second` are those of one GPU's data sheet; answering reaches `share_reached` of the former.
    `answer_factors` are measured times of answering over that arithmetic, by model.
    `gpu` is part of the device's name in rows ("H100"), so that rates of rows may replace stated ones. `is_measured` is
    False for estimates. `source` names who measured or estimated the rates.
    """

    name: str
    cores: int = Field(gt=0)
    gpus: int = Field(default=0, ge=0)
    gpu: str = ""
    decode_seconds: float = Field(gt=0)
    decode_seconds_gop: float | None = Field(default=None, gt=0)
    frames_per_second: dict[str, dict[str, float]] = Field(default_factory=dict)
    worker_frames_per_second: dict[str, dict[str, float]] = Field(default_factory=dict)
    gpu_tflops: float | None = Field(default=None, gt=0)
    gpu_terabytes_per_second: float | None = Field(default=None, gt=0)
    share_reached: float = Field(default=0.4, gt=0, le=1)
    answer_factors: dict[str, float] = Field(default_factory=dict)
    is_measured: bool = False
    source: str = ""

    @property
    def rates_are(self) -> str:
        """ "measured" or "estimated"."""
        return "measured" if self.is_measured else "estimated"

    def has_device(self, device: str) -> bool:
        """Return True if `device`, named as in rows, is of the kind that this machine computes on."""
        return device.startswith("cuda") and bool(self.gpu) and self.gpu in device if self.gpus else device[:3] == "cpu"

    def rates_of(self, encoder: EncoderConfig) -> dict[str, float]:
        """Return the frames a second with `encoder` by precision; {} if none is stated."""
        # Prefer the rate of the checkpoint, since checkpoints of one architecture differ in size and speed.
        return self.frames_per_second.get(encoder.name) or self.frames_per_second.get(encoder.encoder, {})

    def rate_of(self, encoder: EncoderConfig) -> float | None:
        """Return the frames a second with `encoder` in its precision; None if none is stated."""
        return self.rates_of(encoder).get(encoder.precision)

    def worker_rate_of(self, encoder: EncoderConfig, precision: str) -> float | None:
        """Return the most frames a second of a whole worker with `encoder` in `precision`; None if not known.

        A worker is no faster than one that was measured with a faster encoder.
        """
        workers = self.worker_frames_per_second
        measured = workers.get(encoder.name) or workers.get(encoder.encoder, {})
        alone = self.rates_of(encoder)
        bounds = [rate for name, rate in measured.items() if alone.get(name, 0.0) >= alone.get(precision, np.inf)]
        return measured.get(precision) or (min(bounds) if bounds else None)

    def has_worker_rate(self, encoder: EncoderConfig) -> bool:
        """Return True if a whole worker was measured with `encoder` in some precision."""
        return bool({encoder.name, encoder.encoder} & {*self.worker_frames_per_second})

    def decode_seconds_of(self, *, near_sync: bool) -> float:
        """Return the seconds of one core per requested frame, for frames near sync frames or for any."""
        return (self.decode_seconds_gop if near_sync else None) or self.decode_seconds


def load_machine(name: str | Path) -> Machine:
    """Return the machine in the YAML file `name`, or the shipped one of that name (`configs/machines`).

    Raises:
        UnknownName: no such file, and none of that name is shipped.
        InvalidInput: a key or value is invalid.
    """
    file = Path(name)
    shipped = {path.stem: path for path in (resource_path("configs") / "machines").glob("*.yaml")}
    if not file.exists() and not file.suffix:
        if str(name) not in shipped:
            raise unknown_name("machine", str(name), shipped)
        file = shipped[str(name)]
    values = load_yaml(file)
    values.setdefault("name", file.stem)
    return check(Machine, values, file)


# GPUs encode while cores decode: the hours are those of the slower stage, a lower bound, or those of a whole worker
# where one was measured. Start-up and the samplers' own time are not included.


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Time for choosing frames, of one selection or of several one after the other.

    Args:
        selections: number of selections.
        frames: number of frames decoded and embedded.
        encode_hours: hours of encoding on one GPU.
        decode_hours: hours of decoding on one core.
        hours: from start to end, on all GPUs and cores of the machine; of whole workers where these were measured.
        gpu_hours: `hours` for each GPU, since it is held while the cores decode; 0 without a GPU.
    """

    selections: int = 1
    frames: int
    encode_hours: float
    decode_hours: float
    hours: float
    gpu_hours: float


def faster_precisions(plan: Plan, machine: Machine) -> list[str]:
    """Return the precisions in which the machine encodes a selection of `plan` faster than as configured, sorted.

    Where whole workers were measured, only precisions of which it is known how fast a worker is.
    """
    encoders = [selection.spec.encoder for selection in plan.selections if selection.spec.encoder is not None]
    return sorted(
        {
            name
            for encoder in encoders
            if (rate := machine.rate_of(encoder))
            for name, other_rate in machine.rates_of(encoder).items()
            if other_rate > rate and (machine.worker_rate_of(encoder, name) or not machine.has_worker_rate(encoder))
        }
    )


def selection_costs(
    plan: Plan, machine: Machine, *, precision: str | None = None
) -> Iterator[tuple[SelectionPlan, Cost]]:
    """Yield each selection with encoders whose rates are known, and its cost.

    Args:
        precision: of the main encoder, wherever it is faster than the configured one; None: as configured.
    """
    shares = plan.matrix.share_frames
    for selection in plan.selections:
        rates = [machine.rate_of(encoder) for encoder in selection.spec.encoders]
        # Leave the cost unknown rather than guess it from the rate of another precision.
        encoder = selection.spec.encoder
        if encoder is None or not all(rates):
            continue
        used_precision, other_rate = encoder.precision, machine.rates_of(encoder).get(precision or "", 0.0)
        if precision is not None and other_rate > (rates[0] or 0.0):
            rates[0], used_precision = other_rate, precision
        frames = selection.embedded_shared if shares else selection.embedded_alone
        scanned = selection.scanned_shared if shares else selection.scanned
        seconds = machine.decode_seconds_of(near_sync=selection.spec.sampler.name == "focus_gop")
        encode = sum(n / rate for n, rate in zip((frames, scanned), rates, strict=False) if rate) / 3600
        decode = (frames * seconds + scanned * machine.decode_seconds) / 3600
        # Encoding and decoding run at the same time, so the slower stage sets the pace.
        hours = max(encode / max(1, machine.gpus), decode / machine.cores)
        if (worker_rate := machine.worker_rate_of(encoder, used_precision)) is not None:
            hours = max(hours, frames / worker_rate / 3600 / max(1, machine.gpus))
        if not machine.gpus:  # encoder and decoder share the cores
            hours = encode + decode / machine.cores
        yield (
            selection,
            Cost(
                frames=frames,
                encode_hours=encode,
                decode_hours=decode,
                hours=hours,
                gpu_hours=hours * machine.gpus,
            ),
        )


def total_cost(costs: Iterable[tuple[SelectionPlan, Cost]]) -> Cost:
    """Return the sum of costs; a repeated selection counts once."""
    cost_by_selection: dict[Hashable, Cost] = {}
    for selection, cost in costs:
        # Key by configuration, not by name, since names contain revisions, which need weights and torch.
        key = (identity_hash(selection.spec.configuration), selection.spec.share_frames)
        cost_by_selection.setdefault(key, cost)
    distinct = cost_by_selection.values()
    return Cost(**{entry.name: sum(getattr(cost, entry.name) for cost in distinct) for entry in fields(Cost)})


def choosing_hours(plan: Plan, machine: Machine) -> float | None:
    """Return the hours of choosing all frames of `plan`; 0 if nothing is scored, None if a rate is not known."""
    costs = list(selection_costs(plan, machine))
    if len(costs) < sum(selection.spec.encoder is not None for selection in plan.selections):
        return None
    return total_cost(costs).hours


def answering_hours(plan: Plan, machine: Machine) -> float | None:
    """Return the hours of the answers whose time is known; 0 without models, None if no model's time is known."""
    hours = [line.hours for line in answer_lines(plan, machine) if line.hours is not None]
    return sum(hours) if hours or not plan.matrix.models else None


def time_text(hours: float | None) -> str:
    """Return a duration in a readable unit, to three digits: "0.4 s", "12.5 min", "3.25 h", "2.1 d"; or "not known"."""
    if hours is None:
        return "not known"
    for unit, seconds, limit in (("s", 1, 120), ("min", 60, 7200), ("h", 3600, 72 * 3600)):
        if hours * 3600 < limit:
            return f"{float(f'{hours * 3600 / seconds:.3g}'):g} {unit}"
    return f"{hours / 24:,.1f} d"


@dataclass(frozen=True, kw_only=True)
class AnswerLine:
    """Arithmetic time of one model's answers on a machine.

    Args:
        model: its configured name.
        answers: number of questions over all its cells.
        tokens: tokens of frames and text that the language model reads, summed over answers.
        hours: from start to end on all GPUs; None for a service and where the machine states no GPU figures.
        dollars: price of a service; None for a model on the machine.
    """

    model: str
    answers: int
    tokens: int
    hours: float | None
    dollars: float | None


def answer_lines(plan: Plan, machine: Machine) -> list[AnswerLine]:
    """Return a line for each model of `plan` whose size is shipped."""
    facts, lines = public_facts("models"), list[AnswerLine]()
    for model in plan.matrix.models:
        if model.name not in facts:
            continue
        size = facts[model.name]
        frames = [
            (plan.questions[cell.benchmark.name][0], cell.selection.k)
            for cell in plan.cells
            if cell.model.name == model.name
        ]
        answers, n_frames = sum(n for n, _ in frames), sum(n * k for n, k in frames)
        tokens = round(n_frames * size["frame_tokens"]) + answers * TEXT_TOKENS
        is_service = "dollars_per_million_tokens" in size
        seconds = None if is_service else _answer_seconds(size, machine, frames)
        if seconds is not None:
            seconds *= machine.answer_factors.get(model.name, 1.0)
        lines.append(
            AnswerLine(
                model=model.name,
                answers=answers,
                tokens=tokens,
                hours=None if seconds is None else seconds / machine.gpus / 3600,
                dollars=tokens * size["dollars_per_million_tokens"] / 1e6 if is_service else None,
            )
        )
    return lines


def _answer_seconds(size: Mapping[str, float], machine: Machine, frames: list[tuple[int, int]]) -> float | None:
    """Return GPU seconds: products of tower and language model at the reached rate, then weights read once a token.

    Args:
        frames: (number of questions, frames shown to each) by cell.
    """
    if machine.gpu_tflops is None or machine.gpu_terabytes_per_second is None or not machine.gpus:
        return None
    products = reading = 0.0
    for n_questions, k in frames:
        n_tokens = k * size["frame_tokens"] + TEXT_TOKENS
        # Causal attention: a token attends to half of all tokens on average, for scores and for sums.
        attention = size["layers"] * size["width"] * n_tokens**2
        products += n_questions * (1e9 * (size["billions"] * n_tokens + size["frame_gmacs"] * k) + attention)
        reading += n_questions * OUTPUT_TOKENS * size["billions"] * BYTES_OF_WEIGHT
    return 2 * products / (machine.gpu_tflops * 1e12 * machine.share_reached) + reading / (
        machine.gpu_terabytes_per_second * 1e3
    )


@dataclass(frozen=True, kw_only=True)
class EncoderRate:
    """Speed of an encoder in a run's rows, on one device.

    Args:
        device: name of the device in the rows, e.g. "cuda: NVIDIA H100 80GB HBM3".
        n_forwards: number of frames that the encoder embedded.
        device_seconds: seconds that the device computed, by its own clock.
        held_seconds: seconds that the device was held, with waiting and opening.
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

    def line(self, machine: Machine | None) -> str:
        """Return a line on the rate, compared with the machine's own if it has the same device."""
        text = (
            f"{self.encoder.name}, {self.encoder.precision}: {self.n_forwards:,} frames at "
            f"{self.frames_per_second:,.0f} a second on {self.device}, busy "
            f"{self.device_seconds / self.held_seconds:.0%} of the time that it was held"
        )
        if machine is None:
            return text
        if not machine.has_device(self.device):
            return f"{text}; {machine.name} has another device, so its own rates are used"
        stated = machine.rate_of(self.encoder)
        if stated is None:
            return f"{text}; {machine.name} states no rate"
        return (
            f"{text}; planned at {stated:,.0f} ({machine.name}, {machine.rates_are}): encoding took "
            f"{stated / self.frames_per_second:.0%} of the planned time"
        )


@dataclass(frozen=True, kw_only=True)
class DecodingCost:
    """Cost of decoding in a run's rows, at the resolutions of its own videos.

    Args:
        device: name in the rows of the device that embedded the frames; shows which machine's cores decoded.
        near_sync: True for frames near sync frames (`focus_gop`).
        n_frames: number of frames requested from the decoder.
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

    def line(self, machine: Machine | None) -> str:
        """Return a line on the cost, compared with the machine's own if it has the same device."""
        text = (
            f"{'decoding near sync frames' if self.near_sync else 'decoding'}: {self.n_frames:,} frames at "
            f"{1000 * self.seconds_per_frame:.1f} ms of a core beside {self.device}"
        )
        if machine is None or not machine.has_device(self.device):
            return text
        stated = machine.decode_seconds_of(near_sync=self.near_sync)
        return (
            f"{text}; planned at {1000 * stated:.1f} ms ({machine.name}, {machine.rates_are}): decoding took "
            f"{self.seconds_per_frame / stated:.0%} of the planned time"
        )


@dataclass(frozen=True, kw_only=True)
class AnswerTime:
    """Time of a model's answers in a run's rows, on one device, beside the arithmetic of a plan.

    Args:
        machine: machine of the plan.
        model: configured name of the model.
        device: name of the device in the rows.
        n_answers: number of answers without errors.
        generate_seconds: seconds that the model took to generate these answers.
        planned_seconds: seconds planned by arithmetic for the same answers.
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

    def line(self) -> str:
        """Return a line on the seconds of an answer, and how far off the plan they were."""
        return (
            f"{self.model}: {self.n_answers:,} answers at {self.generate_seconds / self.n_answers:.2f} s on "
            f"{self.device}; answering took {self.factor:.0%} of the time planned ({self.machine}, arithmetic)"
        )


@dataclass(frozen=True)
class MeasuredRates:
    """Rates of encoders, costs of decoding and times of answers in a run's rows, by device."""

    encoders: Sequence[EncoderRate] = ()
    decoding: Sequence[DecodingCost] = ()
    answers: Sequence[AnswerTime] = ()

    def lines(self, machine: Machine | None) -> list[str]:
        """Return a line for each, with how far off the machine's own rate was.

        Args:
            machine: machine to compare with; None takes the shipped machine of each device, if there is one.
        """
        rates: list[EncoderRate | DecodingCost] = [*self.encoders, *self.decoding]
        lines = [rate.line(machine or _shipped_machine(rate.device)) for rate in rates]
        return lines + [item.line() for item in self.answers]

    def applied_to(self, machine: Machine, folder: Path) -> Machine:
        """Return `machine` with the rates that were measured on its kind of device, in place of the stated ones.

        Args:
            folder: of the run, named as the source.
        """
        encoders = [rate for rate in self.encoders if machine.has_device(rate.device)]
        decoding = [item for item in self.decoding if machine.has_device(item.device)]
        changes: dict[str, object] = {
            "decode_seconds_gop" if item.near_sync else "decode_seconds": item.seconds_per_frame for item in decoding
        }
        source = machine.source
        if encoders:
            # A measured encoder keeps no stated rates, since rates of other precisions were not measured.
            replaced = {rate.encoder.name: {rate.encoder.precision: rate.frames_per_second} for rate in encoders}
            changes["frames_per_second"] = {**machine.frames_per_second, **replaced}
            if machine.gpus:
                workers = {
                    rate.encoder.name: {rate.encoder.precision: rate.n_forwards / rate.held_seconds}
                    for rate in encoders
                }
                changes["worker_frames_per_second"] = {**machine.worker_frames_per_second, **workers}
            source = f"encoders {', '.join(replaced)} measured in the rows of {folder}; the others: {source}"
        if decoding:
            source = f"decoding measured in the rows of {folder}; {source}"
        factors = {item.model: item.factor for item in self.answers}
        changes |= {"answer_factors": {**machine.answer_factors, **factors}, "source": source}
        return machine.model_copy(update=changes)


def measured_rates(folder: Path, machine: Machine | None = None) -> MeasuredRates:
    """Return the rates of a run's rows.

    The result is empty if the rows have no clocked seconds: an imported run has neither matrix nor clock, and not every
    reader counts the seconds of its threads. Selections that scan with a second encoder are left out, since their
    clocks are those of both.

    Args:
        machine: whose kind of device the answers are of; None for the shipped one of the rows' device.

    Raises:
        InvalidInput: the matrix was written by another version.
    """
    run_file = folder / "run.json"
    if not read_sealed_json(run_file).get("matrix"):
        return MeasuredRates()
    matrix, run = matrix_of_run(run_file), RunFolder(folder)
    return MeasuredRates(*_rates_of_selections(matrix, run), _times_of_answers(matrix, run, machine))


# Large columns that rates do not need.
_UNCLOCKED = ("keyframes", "times_seconds", "pulled_frames", "pulled_relevance", "text_pulls", "clips", "frame_seconds")


def _rates_of_selections(matrix: MatrixConfig, run: RunFolder) -> tuple[list[EncoderRate], list[DecodingCost]]:
    """One rate for each encoder and device, and one cost of decoding for each device."""
    encoder_by_name = dict[str, EncoderConfig]()
    encoding: dict[tuple[str, str], FloatArray] = defaultdict(lambda: np.zeros(3))
    decoding: dict[tuple[str, bool], FloatArray] = defaultdict(lambda: np.zeros(2))
    for spec in selection_specs(matrix):
        if spec.encoder is None or spec.scan_encoder is not None:
            continue
        encoder_by_name[spec.encoder.name] = spec.encoder
        for row in run.selections(spec).without(*_UNCLOCKED):
            if "device" in row.seconds:
                held = sum(row.seconds.get(stage, 0.0) for stage in BLOCKING_STAGES)
                encoding[spec.encoder.name, row.device] += (row.forwards, row.seconds["device"], held)
            if "decode_cpu" in row.seconds:
                n_frames = row.forwards + len(row.looked_frames)
                decoding[row.device, row.sampler == "focus_gop"] += (n_frames, row.seconds["decode_cpu"])
    rates = [
        EncoderRate(
            encoder=encoder_by_name[name],
            device=device,
            n_forwards=int(n),
            device_seconds=float(busy),
            held_seconds=float(held),
        )
        for (name, device), (n, busy, held) in encoding.items()
        if n and busy
    ]
    return rates, [
        DecodingCost(device=device, near_sync=near_sync, n_frames=int(n), core_seconds=float(seconds))
        for (device, near_sync), (n, seconds) in decoding.items()
        if n and seconds
    ]


def _times_of_answers(matrix: MatrixConfig, run: RunFolder, machine: Machine | None) -> list[AnswerTime]:
    """The answers on `machine`'s kind of device, one entry for each model and device."""
    sums: dict[tuple[str, str, str], FloatArray] = defaultdict(lambda: np.zeros(3))
    for cell in cells(matrix):
        seconds_by_machine = dict[str, float | None]()
        for row in run.answers(cell).without("fed_frames"):
            node = machine or _shipped_machine(row.device)
            if row.error is not None or "generate" not in row.seconds or not node or not node.has_device(row.device):
                continue
            if node.name not in seconds_by_machine:
                size = public_facts("models").get(cell.model.name, {})
                seconds_by_machine[node.name] = (
                    _answer_seconds(size, node, [(1, cell.selection.k)]) if "layers" in size else None
                )
            if planned := seconds_by_machine[node.name]:
                sums[node.name, cell.model.name, row.device] += (1, row.seconds["generate"], planned)
    return [
        AnswerTime(
            machine=name,
            model=model,
            device=device,
            n_answers=int(n),
            generate_seconds=float(taken),
            planned_seconds=float(planned),
        )
        for (name, model, device), (n, taken, planned) in sums.items()
    ]


@cache
def _shipped_machine(device: str) -> Machine | None:
    machines = map(load_machine, sorted((resource_path("configs") / "machines").glob("*.yaml")))
    return next((machine for machine in machines if machine.has_device(device)), None)
