"""Estimates the hours that choosing frames takes on a stated machine, and what cheaper settings would save.

Two stages run side by side: the GPUs encode, the cores decode. The hours are those of the slower one, so they are a
bound that a worker comes near to and never passes; start, reading of files and the algorithms are not in them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path

from pydantic import Field

from focus_eval.errors import unknown_name
from focus_eval.matrix.config import StrictModel
from focus_eval.matrix.planning import Plan, SelectionPlan, plan_selection
from focus_eval.matrix.questions import QuestionSet
from focus_eval.matrix.yaml_source import check, load_yaml
from focus_eval.resources import resource_path


class Machine(StrictModel):
    """A machine to plan for.

    `decode_seconds` are processor seconds of a core for each frame asked for, those decoded on the way to it included;
    `decode_seconds_gop` the same where samplers ask for frames near sync frames (`focus_gop`). `frames_per_second` is
    the rate of one GPU (of the whole machine without one) by encoder and precision. `source` says who measured that.
    """

    name: str
    cores: int = Field(gt=0)
    gpus: int = Field(default=0, ge=0)
    decode_seconds: float = Field(gt=0)
    decode_seconds_gop: float | None = Field(default=None, gt=0)
    frames_per_second: dict[str, dict[str, float]] = Field(default_factory=dict)
    source: str = ""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What choosing frames takes.

    Args:
        frames: decoded and embedded.
        encode_hours: of one GPU.
        decode_hours: of one core.
        hours: from start to end, on all GPUs and cores of the machine.
        gpu_hours: `hours` for each GPU, since it is held while the cores decode; 0 without a GPU.
    """

    frames: int
    encode_hours: float
    decode_hours: float
    hours: float
    gpu_hours: float


@dataclass(frozen=True, kw_only=True)
class HoursLine(Cost):
    """What one selection takes on a machine, as it is or with one setting changed.

    Args:
        setting: what is changed; "" for the selection as it is.
    """

    selection: SelectionPlan
    setting: str


@dataclass(frozen=True, kw_only=True)
class HoursTotal(Cost):
    """What several selections take together, one after the other.

    Args:
        setting: what is changed wherever it can be; "" for all as they are.
        changed: how many selections it changes, of `selections`.
    """

    setting: str
    changed: int
    selections: int


def hours_totals(lines: Iterable[HoursLine]) -> list[HoursTotal]:
    """Return a total per setting, first of all selections as they are; a selection met twice counts once."""
    by_selection: dict[str, dict[str, HoursLine]] = {}
    settings: dict[str, None] = {}
    for line in lines:
        by_selection.setdefault(line.selection.spec.name, {}).setdefault(line.setting, line)
        settings.setdefault(line.setting)
    totals = []
    for setting in settings:
        # What a setting does not apply to stays as it is: the total is that of the whole table.
        taken = [known.get(setting, known[""]) for known in by_selection.values()]
        totals.append(
            HoursTotal(
                setting=setting,
                changed=sum(setting in known for known in by_selection.values()) if setting else 0,
                selections=len(taken),
                **{entry.name: sum(getattr(line, entry.name) for line in taken) for entry in fields(Cost)},
            )
        )
    return totals


def time_text(hours: float) -> str:
    """Return a length of time in the unit that suits it, to three digits: "0.4 s", "12.5 min", "3.25 h", "2.1 d"."""
    for unit, seconds, below in (("s", 1, 120), ("min", 60, 7200), ("h", 3600, 72 * 3600)):
        if hours * 3600 < below:
            return f"{float(f'{hours * 3600 / seconds:.3g}'):g} {unit}"
    return f"{hours / 24:,.1f} d"


def load_machine(name: str | Path) -> Machine:
    """Return the machine in the YAML file `name`, or the shipped one of that name (`configs/machines`).

    Raises:
        UnknownName: no such file, and none of that name is shipped.
        InvalidInput: a key or value that is not as it must be.
    """
    file = Path(name)
    shipped = {found.stem: found for found in (resource_path("configs") / "machines").glob("*.yaml")}
    if not file.exists() and not file.suffix:
        if str(name) not in shipped:
            raise unknown_name("machine", str(name), shipped)
        file = shipped[str(name)]
    values = load_yaml(file)
    values.setdefault("name", file.stem)
    return check(Machine, values, file)


def hours_lines(plan: Plan, machine: Machine, sets: dict[str, QuestionSet]) -> Iterator[HoursLine]:
    """Yield a line for each selection with an encoder whose rate is known, and one for each cheaper setting.

    Args:
        sets: the questions, as `load_sets` gives them; shared coarse pulls are counted on them.
    """
    for selection in plan.selections:
        encoder = selection.spec.encoder
        if encoder is None:
            continue
        # By the checkpoint's name first: sizes of one architecture differ in speed.
        rates = machine.frames_per_second.get(encoder.name) or machine.frames_per_second.get(encoder.encoder, {})
        precision = str(encoder.options.get("precision", "fp32"))
        # No line rather than a guess from another precision.
        if precision not in rates:
            continue
        frames = selection.embedded_shared if plan.matrix.share_frames else selection.embedded_alone
        is_gop = selection.spec.sampler.name == "focus_gop"
        line = partial(_line, selection, machine)
        yield line("", frames, rates[precision], near_sync=is_gop)
        for other, rate in rates.items():
            # Only what saves time is worth a line.
            if rate > rates[precision]:
                yield line(f"precision={other}", frames, rate, near_sync=is_gop)
        # The settings below are about how FOCUS pulls; other samplers have none of them.
        if selection.spec.sampler.name != "focus":
            continue
        if machine.decode_seconds_gop is not None:
            yield line("sampler focus_gop", frames, rates[precision], near_sync=True)
        yield line("sampler even_diverse, half the pulls", frames // 2, rates[precision], near_sync=False)
        if plan.matrix.share_frames and selection.spec.coarse_seed != "video":
            shared = _with_shared_coarse_pulls(selection, sets)
            yield line("coarse_seed: video", shared, rates[precision], near_sync=False)


def _with_shared_coarse_pulls(selection: SelectionPlan, sets: dict[str, QuestionSet]) -> int:
    spec = replace(selection.spec, coarse_seed="video")
    return plan_selection(spec, sets[spec.benchmark.name]).embedded_shared


def _line(
    selection: SelectionPlan, machine: Machine, setting: str, frames: int, rate: float, *, near_sync: bool
) -> HoursLine:
    seconds = machine.decode_seconds
    if near_sync and machine.decode_seconds_gop is not None:
        seconds = machine.decode_seconds_gop
    # The slower stage sets the pace, since both work at the same time.
    encode, decode = frames / rate / 3600, frames * seconds / 3600
    hours = max(encode / max(1, machine.gpus), decode / machine.cores)
    if not machine.gpus:  # encoder and decoder share the cores
        hours = encode + decode / machine.cores
    return HoursLine(
        selection=selection,
        setting=setting,
        frames=frames,
        encode_hours=encode,
        decode_hours=decode,
        hours=hours,
        gpu_hours=hours * machine.gpus,
    )
