"""Plans a matrix: pulls, hours and memory before a run, and how far a run is."""

from __future__ import annotations

import json
import os
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field, ValidationError

from focus_eval.benchmarks.question import Question
from focus_eval.core.errors import FocusEvalError, InvalidInput, unknown_name
from focus_eval.core.resources import resource_path
from focus_eval.core.types import FloatArray, IntArray, Selection, VideoInfo
from focus_eval.matrix.cells import AnswerSpec, SelectionSpec, cells, selection_specs
from focus_eval.matrix.config import EncoderConfig, MatrixConfig, StrictModel, check, load_yaml
from focus_eval.matrix.folder import RunFolder, kind_of
from focus_eval.matrix.questions import QuestionSet, load_questions
from focus_eval.pipeline.selector import texts_of
from focus_eval.pipeline.timing import device_name
from focus_eval.report.cost import common_forward, forward_equivalents, llm_equivalents, unit_costs
from focus_eval.rows.identity import identity_hash
from focus_eval.rows.packed import check_links
from focus_eval.rows.records import replace_file
from focus_eval.rows.sealed import read_sealed_json
from focus_eval.samplers.base import FlatSource, derived_rng
from focus_eval.samplers.expected_pulls import NO_FRAMES, Draw, expected_union

# A question by its number, and what is known of its video.
_Asked = tuple[int, Question, VideoInfo | FocusEvalError]


@dataclass(frozen=True, kw_only=True)
class PlanWarning:
    """A problem that some questions of a selection will have, known before the run.

    Args:
        text: what happens, why, and what to do.
        questions: how many it concerns.
        first: the first of them, with the length of its video.
    """

    text: str
    questions: int
    first: str


@dataclass(frozen=True, kw_only=True)
class SelectionPlan:
    """What one selection will cost.

    Args:
        pulls: frames scored, summed over questions, as the paper counts them.
        frames: frames of the videos, summed over questions (a video asked about twice counts twice).
        scanned: frames that the scan encoder is shown, summed over questions; `scanned_shared` once a video.
        keyframes: chosen on flat relevance, summed over questions.
        embedded_alone: frames embedded if each question pays for its own, as the published hours count.
        embedded_shared: frames embedded if the questions of a video share theirs.
        asked: what it asks its model, as `samplers.asking.Asked`; {} where it asks none.
        unknown: questions whose video's length is not known, with the first reason.
        warnings: what will go wrong: no frames, or a sampler that breaks its contract.
    """

    spec: SelectionSpec
    questions: int
    pulls: int
    frames: int
    keyframes: int = 0
    embedded_alone: int = 0
    embedded_shared: int = 0
    scanned: int = 0
    scanned_shared: int = 0
    asked: Mapping[str, int] = field(default_factory=dict)
    unknown: int = 0
    reason: str = ""
    warnings: tuple[PlanWarning, ...] = ()

    @property
    def frames_scored(self) -> float:
        """Share of the frames that are scored, in [0, 1]; NaN where no length is known."""
        return self.pulls / self.frames if self.frames else float("nan")

    def forward_equivalents(self, *, shared: bool, unit: float | None = None) -> float:
        """Return the frames embedded and scanned, and what matching and a model take, in forwards of the encoder.

        NaN where the cost of a scan or of a model's token is not known.

        Args:
            shared: whether the questions of a video share their frames.
            unit: as of `llm_equivalents`.
        """
        units = unit_costs(self.spec.gmacs, relative_cost=self.spec.sampler.options.get("relative_cost"))
        encoded = self.embedded_shared if shared else self.embedded_alone
        scanned = self.scanned_shared if shared else self.scanned
        asked = {"calls": self.asked.get("calls", 0)}
        asked |= {"input": self.asked.get("tokens_sent", 0), "output": self.asked.get("tokens_back", 0)}
        frames = forward_equivalents(units, encoded=encoded, scanned=scanned, pulls=self.pulls)
        return float(frames) + llm_equivalents(self.spec.gmacs, asked, unit=None if self.spec.encoder else unit)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a matrix will do.

    Args:
        forwards_by_encoder: frames each encoder will embed, each distinct (video, frame) pair once with
            `share_frames`, else again for each question of each selection: exact for samplers that look at fixed
            frames, on flat relevance for the others.
        questions: by benchmark name; those that will be asked, and all there are.
        questions_per_video: by benchmark name; of those that will be asked.
    """

    matrix: MatrixConfig
    selections: tuple[SelectionPlan, ...]
    cells: tuple[AnswerSpec, ...]
    questions: dict[str, tuple[int, int]]
    questions_per_video: dict[str, tuple[int, ...]] = field(default_factory=dict)
    forwards_by_encoder: dict[str, int] = field(default_factory=dict)

    @property
    def seen_by_encoder(self) -> dict[str, tuple[int, int]]:
        """Frames that each encoder scores and scans, summed over questions: all embedded if nothing were shared."""
        totals: dict[str, tuple[int, int]] = {}
        for selection in self.selections:
            # A selection has its main encoder first, then the one that scans.
            seen = ((selection.pulls, 0), (0, selection.scanned))
            for encoder, (pulled, scanned) in zip(selection.spec.encoders, seen, strict=False):
                pulls, scans = totals.get(encoder.name, (0, 0))
                totals[encoder.name] = (pulls + pulled, scans + scanned)
        return totals

    @property
    def forward_gmacs(self) -> float | None:
        """10^9 multiply-adds of a forward, for selections without an encoder; None where encoders differ."""
        return common_forward(selection.spec.gmacs for selection in self.selections)

    @property
    def scan_pairs(self) -> dict[tuple[str, str], float | None]:
        """Relative cost by the names of a scan encoder and its main encoder; None where it is not known."""
        return {
            (spec.scan_encoder.name, spec.encoder.name): getattr(spec.sampler, "relative_cost", None) or spec.scan_cost
            for spec in (selection.spec for selection in self.selections)
            if spec.scan_encoder and spec.encoder
        }


def make_plan(matrix: MatrixConfig, *, progress: Callable[[int, int], None] = lambda done, of: None) -> Plan:
    """Return the plan of `matrix`: counted from lengths and rates alone, on flat relevance.

    One video after another, so that memory does not grow with their number. Of samplers that draw their pulls the
    frames are expectations over the draws.

    Args:
        progress: told how many selections are counted, and of how many.

    Raises:
        InvalidInput: annotations or rates that are missing or damaged.
    """
    sets, specs = load_sets(matrix), selection_specs(matrix)
    of = sum(len(sets[spec.benchmark.name].questions) for spec in specs)
    forwards = {encoder.name: 0 for spec in specs for encoder in spec.encoders}
    selections, done = list[SelectionPlan](), 0
    for name, questions in sets.items():
        mine = [spec for spec in specs if spec.benchmark.name == name]
        further = partial(lambda before, now: progress(before + now, of), done)
        counted, distinct = count_selections(mine, questions.infos(), progress=further)
        selections += counted
        done += len(questions.questions) * len(mine)
        for encoder, n_frames in distinct.items():
            forwards[encoder] += n_frames
    # Then every selection embeds its own frames, also those that another one has.
    if not matrix.share_frames:
        forwards = dict.fromkeys(forwards, 0)
        for selection in selections:
            if selection.spec.encoder:
                forwards[selection.spec.encoder.name] += selection.embedded_alone
            if selection.spec.scan_encoder:
                forwards[selection.spec.scan_encoder.name] += selection.scanned
    return Plan(
        matrix=matrix,
        selections=tuple(selections),
        cells=tuple(cells(matrix)),
        questions={name: (len(questions.questions), len(questions.all_ids)) for name, questions in sets.items()},
        questions_per_video={
            name: tuple(Counter(question.video for question in questions.questions).values())
            for name, questions in sets.items()
        },
        forwards_by_encoder=forwards,
    )


def pooled(plans: Sequence[Plan]) -> dict[str, tuple[int, int]]:
    """Return how many selections and answers the plans ask for in all, and how many of them are distinct.

    Runs beside each other share one pool of rows: what one has answered the next one finds.
    """
    counts = {}
    for what in ("selections", "answers"):
        asked, distinct = 0, dict[str, int]()
        for plan in plans:
            parts = [selection.spec for selection in plan.selections] if what == "selections" else plan.cells
            for part in parts:
                n_questions = plan.questions[part.benchmark.name][0]
                asked += n_questions
                # Two matrices may ask other numbers of questions of one part; the larger covers both.
                distinct[part.name] = max(n_questions, distinct.get(part.name, 0))
        counts[what] = (asked, sum(distinct.values()))
    return counts


def load_sets(matrix: MatrixConfig) -> dict[str, QuestionSet]:
    """Return the questions of every benchmark of `matrix` by the benchmark's configured name."""
    return {
        benchmark.name: load_questions(benchmark, limit=matrix.limit, available_only=matrix.available_only)
        for benchmark in matrix.benchmarks
    }


def count_selections(
    specs: Sequence[SelectionSpec],
    videos: Iterable[list[_Asked]],
    *,
    progress: Callable[[int], None] = lambda done: None,
) -> tuple[list[SelectionPlan], dict[str, int]]:
    """Return the plan of each of `specs` for the questions of `videos`, and the distinct frames by encoder.

    Args:
        videos: as `QuestionSet.infos` gives them.
        progress: told how many selections are counted so far.
    """
    countings = [_Counting(spec) for spec in specs]
    distinct, done = dict[str, float](), 0
    for asked in videos:
        # Over all selections of a video: what one has embedded the next one finds.
        embedded: dict[str, list[_Frames]] = {}
        for counting in countings:
            seen = counting.add_video(asked)
            for encoder, frames in zip(counting.spec.encoders, seen, strict=False):
                embedded.setdefault(encoder.name, []).append(frames)
        for name, several in embedded.items():
            distinct[name] = distinct.get(name, 0.0) + _n_distinct(several)
        done += len(asked) * len(countings)
        progress(done)
    return [counting.plan() for counting in countings], {name: round(n) for name, n in distinct.items()}


@dataclass(frozen=True)
class _Frames:
    """Frames of one video that some questions look at.

    Args:
        known: ascending, each once.
        draws: those expected beside `known`, with how often they are made, by what makes two of them the same.
    """

    known: IntArray
    draws: Mapping[Hashable, tuple[Draw, int]] = field(default_factory=dict)


def _n_distinct(several: Sequence[_Frames]) -> float:
    """Return how many distinct frames are expected among `several`."""
    known = several[0].known
    if len(several) > 1:
        known = np.unique(np.concatenate([frames.known for frames in several]))
    draws = {key: draw for frames in several for key, draw in frames.draws.items()}
    return expected_union(known, draws.values())


class _Counting:
    """Counts what one selection will cost."""

    def __init__(self, spec: SelectionSpec) -> None:
        self.spec = spec
        # By the field of a `SelectionPlan`; expectations are fractions until the end.
        self._sums: dict[str, float] = defaultdict(float, questions=0, pulls=0, frames=0)
        self._asked: Counter[str] = Counter()
        self._reason: tuple[float, str] = (inf, "")
        self._warnings: dict[str, tuple[int, PlanWarning]] = {}

    def add_video(self, asked: list[_Asked]) -> tuple[_Frames, _Frames]:
        """Count the questions of one video; return the frames scored and those scanned for any of them."""
        frames: tuple[_Frames, _Frames] | None = None
        infos = [info for _, _, info in asked]
        if isinstance(infos[0], VideoInfo) and infos.count(infos[0]) == len(infos):
            frames = self._without_runs(asked, infos[0])
        if frames is None:
            seen = [self._seen(number, question, info) for number, question, info in asked]
            pulled, scanned = (np.unique(np.concatenate(parts)) for parts in zip(*seen, strict=True))
            frames = _Frames(pulled), _Frames(scanned)
        self._add(embedded_shared=_n_distinct(frames[:1]), scanned_shared=frames[1].known.size)
        return frames

    def _add(self, **counts: float) -> None:
        for name, count in counts.items():
            self._sums[name] += count

    def _without_runs(self, asked: list[_Asked], info: VideoInfo) -> tuple[_Frames, _Frames] | None:
        """Count questions that all see `info` without running each; None where only that tells."""
        spec, n = self.spec, len(asked)
        try:
            expected = spec.sampler.expected_pulls(info, k=spec.k)
        except FocusEvalError:  # each question's run says it again, and is warned of
            return None
        if expected is None:
            return None
        self._add_questions(asked, info)
        pulls = n * expected.n_pulls
        keyframes = min(spec.k, info.n_frames) if expected.n_keyframes is None else expected.n_keyframes
        self._add(pulls=pulls, embedded_alone=pulls, keyframes=n * keyframes)
        # Selections that draw alike from one generator, for instance at another K, draw the same frames.
        draws: dict[Hashable, tuple[Draw, int]] = {
            (spec.seed, spec.sampler.name, stage, draw.key): (draw, n) for stage, draw in enumerate(expected.more)
        }  # fmt: skip
        if expected.coarse is not None:
            # Shared coarse pulls are drawn once a video, whichever sampler draws them.
            who, times = ("", 1) if spec.coarse_seed == "video" else (spec.sampler.name, n)
            draws[spec.seed, who, -1, expected.coarse.key] = expected.coarse, times
        return _Frames(expected.fixed, draws), _Frames(NO_FRAMES)

    def _add_questions(self, asked: list[_Asked], info: VideoInfo) -> None:
        """Count questions about a video that is known."""
        self._add(questions=len(asked), frames=len(asked) * info.n_frames)
        # Said before the run: such questions become errors, and too many of them fail it.
        if (why := self.spec.sampler.why_no_frames(info, k=self.spec.k)) is not None:
            for number, question, _ in asked:
                self._warn("no frames", f"may end without frames: {why}", number, question, info)

    def plan(self) -> SelectionPlan:
        """Return what was counted."""
        counts: dict[str, Any] = {name: round(count) for name, count in self._sums.items()}
        return SelectionPlan(
            spec=self.spec,
            **counts,
            asked=dict(self._asked),
            reason=self._reason[1],
            warnings=tuple(warning for _, warning in sorted(self._warnings.values(), key=lambda item: item[0])),
        )

    def _seen(self, number: int, question: Question, info: VideoInfo | FocusEvalError) -> tuple[IntArray, IntArray]:
        nothing = NO_FRAMES, NO_FRAMES
        if isinstance(info, FocusEvalError):
            # The first by number, since videos are visited in another order than questions.
            self._reason = min(self._reason, (number, str(info)))
            self._add(questions=1, unknown=1)
            return nothing
        self._add_questions([(number, question, info)], info)
        try:
            selection = _on_flat_relevance(self.spec, question, info)
        except FocusEvalError as error:  # of this question: the run records it and goes on, and so does the plan
            kind = getattr(error, "promise", "") or type(error).__name__
            self._warn(kind, f"will be errors: {error}", number, question, info)
            return nothing
        # A frame pulled twice by one question is embedded once.
        self._add(pulls=selection.n_pulls, embedded_alone=selection.encoded_frames.size)
        self._add(keyframes=len(selection.keyframes), scanned=selection.n_scanned)
        self._asked.update(selection.asked)
        return selection.encoded_frames, selection.scanned_frames

    def _warn(self, kind: str, text: str, number: int, question: Question, info: VideoInfo) -> None:
        """Count a warning; the first question's text stands for its kind."""
        first = f"{question.id}, {info.duration_seconds:.1f} s"
        at, known = self._warnings.get(kind, (number, PlanWarning(text=text, questions=0, first=first)))
        if number < at:
            at, known = number, replace(known, text=text, first=first)
        self._warnings[kind] = (at, replace(known, questions=known.questions + 1))


def _on_flat_relevance(spec: SelectionSpec, question: Question, info: VideoInfo) -> Selection:
    """Return what the run would select if all frames were equally relevant, and a scan gave noise."""
    # The very generators of the run: samplers that draw frames then draw the same ones here.
    key = (spec.benchmark.benchmark, question.id, spec.sampler.name)
    coarse = (spec.benchmark.benchmark, question.video, "coarse")
    shares, flat = spec.coarse_seed == "video", FlatSource(spec.sampler.example_reply)
    return spec.sampler.select(
        info,
        k=spec.k,
        pull=flat,
        # A scan tells the questions of a video apart; on a flat one they would pull the same frames.
        scan=partial(_noise, derived_rng(spec.seed, *key, "scan")),
        scan_cost=spec.scan_cost,
        rng=derived_rng(spec.seed, *key),
        coarse_rng=derived_rng(spec.seed, *coarse) if shares else None,
        evidence_seconds=question.evidence_seconds,
        texts=texts_of(question, spec.query),
        look=flat.look,
        llm=flat,
    )


def _noise(rng: np.random.Generator, frames: IntArray) -> FloatArray:
    return rng.standard_normal(frames.size)


# Two stages run side by side: the GPUs encode, the cores decode. The hours are those of the slower one, so they are a
# bound that a worker comes near to and never passes; start, reading of files and the algorithms are not in them.


class Machine(StrictModel):
    """A machine to plan for.

    `decode_seconds` are processor seconds of a core for each frame asked for, those decoded on the way to it included;
    `decode_seconds_gop` the same where samplers ask for frames near sync frames (`focus_gop`). `frames_per_second` is
    the rate of one GPU (of the whole machine without one) by encoder and precision; `is_measured` says whether the
    rates were measured there or are estimates, and `source` who did that.
    """

    name: str
    cores: int = Field(gt=0)
    gpus: int = Field(default=0, ge=0)
    decode_seconds: float = Field(gt=0)
    decode_seconds_gop: float | None = Field(default=None, gt=0)
    frames_per_second: dict[str, dict[str, float]] = Field(default_factory=dict)
    is_measured: bool = False
    source: str = ""

    @property
    def rates_are(self) -> str:
        """ "measured" or "estimated"."""
        return "measured" if self.is_measured else "estimated"


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
        InvalidInput: a key or value is invalid.
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
        rates, precision = _rates(machine, encoder)
        scan_rate = 1.0
        if selection.spec.scan_encoder:
            scan_rates, scan_precision = _rates(machine, selection.spec.scan_encoder)
            scan_rate = scan_rates.get(scan_precision, 0.0)
        # No line rather than a guess from another precision.
        if precision not in rates or not scan_rate:
            continue
        frames = selection.embedded_shared if plan.matrix.share_frames else selection.embedded_alone
        scanned = selection.scanned_shared if plan.matrix.share_frames else selection.scanned
        is_gop = selection.spec.sampler.name == "focus_gop"
        line = partial(_line, selection, machine, n_scanned=scanned, scan_rate=scan_rate)
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


def precision_hours(lines: Iterable[HoursLine], machine: Machine) -> dict[str, dict[str, float]]:
    """Return hours of one GPU by encoder and precision, to encode what the selections of `lines` ask for as they are.

    The precision an encoder has comes first; a selection met twice counts once, and frames of a scan do not.
    """
    frames: Counter[str] = Counter()
    encoders: dict[str, EncoderConfig] = {}
    for line in {line.selection.spec.name: line for line in lines if not line.setting}.values():
        encoder = line.selection.spec.encoder
        if encoder is not None:
            frames[encoder.name] += line.frames
            encoders[encoder.name] = encoder
    hours: dict[str, dict[str, float]] = {}
    for name, encoder in encoders.items():
        rates, precision = _rates(machine, encoder)
        order = dict.fromkeys([precision, *rates])
        hours[name] = {each: frames[name] / rates[each] / 3600 for each in order}
    return hours


def _rates(machine: Machine, encoder: EncoderConfig) -> tuple[dict[str, float], str]:
    """Return the machine's frames a second with `encoder` by precision, and the precision it has."""
    # By the checkpoint's name first: sizes of one architecture differ in speed.
    rates = machine.frames_per_second.get(encoder.name) or machine.frames_per_second.get(encoder.encoder, {})
    return rates, str(encoder.options.get("precision", "fp32"))


def _with_shared_coarse_pulls(selection: SelectionPlan, sets: dict[str, QuestionSet]) -> int:
    spec = replace(selection.spec, coarse_seed="video")
    ((counted,), _) = count_selections([spec], sets[spec.benchmark.name].infos())
    return counted.embedded_shared


def _line(
    selection: SelectionPlan,
    machine: Machine,
    setting: str,
    frames: int,
    rate: float,
    *,
    near_sync: bool,
    n_scanned: int,
    scan_rate: float,
) -> HoursLine:
    seconds = machine.decode_seconds
    if near_sync and machine.decode_seconds_gop is not None:
        seconds = machine.decode_seconds_gop
    # The slower stage sets the pace, since both work at the same time.
    encode = (frames / rate + n_scanned / scan_rate) / 3600
    decode = (frames * seconds + n_scanned * machine.decode_seconds) / 3600
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


# A few full batches: enough to average over, and few enough for a processor.
N_FRAMES, BATCH = 64, 16


@dataclass(frozen=True)
class EncoderSpeed:
    """Seconds to embed one 640x360 frame, batched, on `device`; decoding not included."""

    encoder: str
    seconds_per_frame: float
    device: str


def calibrated_seconds(encoder: EncoderConfig, *, measure: bool = False) -> EncoderSpeed | None:
    """Return what was measured for `encoder` on this machine; None where nothing was and `measure` is False.

    Raises:
        FocusEvalError: measuring an encoder that cannot be loaded here.
    """
    file = _cache_file(encoder)
    if measure:
        speed = _measure(encoder)
        file.parent.mkdir(parents=True, exist_ok=True)
        # Whole or not at all: another process may be reading it.
        with replace_file(file) as part:
            part.write_text(json.dumps(asdict(speed)))
        return speed
    return EncoderSpeed(**json.loads(file.read_text())) if file.is_file() else None


def _measure(encoder: EncoderConfig) -> EncoderSpeed:
    from focus_eval.encoders.protocol import ScoresFrames
    from focus_eval.encoders.registry import make_encoder

    scorer = make_encoder(encoder.encoder, **encoder.options)
    device = device_name(getattr(scorer, "device", "cpu"))
    # Recorded relevance is looked up, not computed: next to nothing, but not 0, which would divide.
    if isinstance(scorer, ScoresFrames):
        return EncoderSpeed(encoder.name, 1e-7, device)
    # Noise will do: the time of a forward does not depend on what a picture shows.
    frames = np.random.default_rng(0).integers(0, 256, (BATCH, 360, 640, 3), dtype=np.uint8)
    # Once before the clock runs: the first forward loads weights and warms the device up.
    scorer.relevance(scorer.embed(frames), "a cat")
    started = time.perf_counter()
    for _ in range(N_FRAMES // BATCH):
        scorer.relevance(scorer.embed(frames), "a cat")
    seconds = (time.perf_counter() - started) / N_FRAMES
    scorer.close()
    return EncoderSpeed(encoder.name, seconds, device)


def _cache_file(encoder: EncoderConfig) -> Path:
    # In the user's cache, not in the run's folder: the speed is the machine's and serves every run.
    home = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser()
    return home / "focus-eval" / f"speed-{encoder.name}-{identity_hash(encoder.model_dump())}.json"


@dataclass(frozen=True, kw_only=True)
class PartStatus:
    """How many of a part's rows are written.

    `rows_per_second` is over the part's life so far; None before the second row and once it is done.
    """

    name: str
    kind: str
    rows: int
    questions: int
    errors: int
    rows_per_second: float | None

    @property
    def seconds_left(self) -> float | None:
        """Estimate from the rate so far; None where there is none."""
        return (self.questions - self.rows) / self.rows_per_second if self.rows_per_second else None


def _matrix_of(run_file: Path) -> MatrixConfig:
    try:
        return MatrixConfig.model_validate(read_sealed_json(run_file)["matrix"])
    except (KeyError, TypeError, ValidationError) as error:
        raise InvalidInput(f"{run_file}: does not describe a run of this version ({type(error).__name__})") from error


def run_status(folder: str | Path) -> list[PartStatus]:
    """Return one status per selection and cell of the run in `folder`, read while it goes on.

    Raises:
        InvalidInput: no run there, or parts that are links to nowhere.
    """
    path = Path(folder)
    run_file = path / "run.json"
    if not run_file.is_file():
        raise InvalidInput(f"{path}: no run here (no run.json); start one with focus-eval run")
    check_links(path)
    matrix = _matrix_of(run_file)
    run, sets = RunFolder(path), load_sets(matrix)
    statuses = []
    parts: list[SelectionSpec | AnswerSpec] = [*selection_specs(matrix), *cells(matrix)]
    for part in parts:
        asked = {question.id for question in sets[part.benchmark.name].questions}
        # Other runs may have put rows of more questions into the pool.
        errors = [error for question_id, error in run.errors(part).items() if question_id in asked]
        statuses.append(
            PartStatus(
                name=part.name,
                kind=kind_of(part),
                rows=len(errors),
                questions=len(asked),
                errors=sum(error is not None for error in errors),
                rows_per_second=_rate(run.part(part), len(errors)),
            )
        )
    return statuses


def _rate(folder: Path, rows: int) -> float | None:
    lines = list(folder.glob("*.jsonl"))
    # A finished part is Parquet, without lines; one row gives no rate.
    if not lines or rows < 2:
        return None
    # The part's description is written just before its first row; a damaged one was put aside.
    now = time.time()
    seconds = now - min((path.stat().st_mtime for path in folder.glob("*.json")), default=now)
    return rows / seconds if seconds > 0 else None
