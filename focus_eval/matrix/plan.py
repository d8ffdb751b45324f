"""Estimates the cost of a matrix before its run (pulls, frames to embed, hours), and reports a run's progress."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache, partial
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field, ValidationError

from focus_eval.core.errors import FocusEvalError, InvalidInput, unknown_name
from focus_eval.core.resources import resource_path
from focus_eval.core.types import FloatArray, IntArray, Question, Selection, VideoInfo
from focus_eval.matrix.cells import AnswerSpec, SelectionSpec, cells, selection_specs
from focus_eval.matrix.config import EncoderConfig, MatrixConfig, StrictModel, check, load_yaml
from focus_eval.matrix.folder import RunFolder, kind_of
from focus_eval.matrix.questions import QuestionSet, load_questions
from focus_eval.pipeline.selector import texts_of
from focus_eval.report.cost import common_forward, forward_equivalents, llm_equivalents, unit_costs
from focus_eval.rows.files import read_sealed_json
from focus_eval.rows.identity import identity_hash
from focus_eval.rows.packed import check_links
from focus_eval.samplers.base import FlatSource, derived_rng
from focus_eval.samplers.expected_pulls import NO_FRAMES, Draw, expected_union

# A question by its number, and what is known of its video.
_NumberedQuestion = tuple[int, Question, VideoInfo | FocusEvalError]


@dataclass(frozen=True, kw_only=True)
class PlanWarning:
    """A problem that some questions of a selection will have.

    Args:
        text: effect, cause and fix.
        questions: number of questions concerned.
        first: id of the first of them and the length of its video, as text.
    """

    text: str
    questions: int
    first: str


@dataclass(frozen=True, kw_only=True)
class SelectionPlan:
    """Predicted cost of one selection.

    Args:
        pulls: frames scored, summed over questions, as the paper counts them.
        frames: frames of the videos, summed over questions (a video asked about twice counts twice).
        scanned: frames that the scan encoder is shown, summed over questions; `scanned_shared` once a video.
        keyframes: number chosen if all frames are equally relevant, summed over questions.
        embedded_alone: frames embedded if each question pays for its own, as the published hours count.
        embedded_shared: frames embedded if the questions of a video share theirs.
        model_usage: calls, images and tokens of the model that the sampler asks; {} if it asks none.
        unknown: number of questions whose video's length is not known; `reason` is the first one's error.
        warnings: predicted errors, for instance of a sampler that breaks its contract.
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
    model_usage: Mapping[str, int] = field(default_factory=dict)
    unknown: int = 0
    reason: str = ""
    warnings: tuple[PlanWarning, ...] = ()

    @property
    def share_scored(self) -> float:
        """Share of the frames that are scored, in [0, 1]; NaN if no length is known."""
        return self.pulls / self.frames if self.frames else float("nan")

    def forward_equivalents(self, *, shared: bool, unit: float | None = None) -> float:
        """Return the whole cost in forwards of the encoder: embedding, scanning, matching, tokens of a model.

        NaN if the cost of a scan or of a model's token is not known.

        Args:
            shared: True if the questions of a video share their frames.
            unit: 10^9 multiply-adds of a forward, used for a selection without an encoder.
        """
        units = unit_costs(self.spec.gmacs, relative_cost=self.spec.sampler.options.get("relative_cost"))
        encoded = self.embedded_shared if shared else self.embedded_alone
        scanned = self.scanned_shared if shared else self.scanned
        usage = {"calls": self.model_usage.get("calls", 0)}
        usage |= {"input": self.model_usage.get("tokens_sent", 0), "output": self.model_usage.get("tokens_back", 0)}
        frames = forward_equivalents(units, encoded=encoded, scanned=scanned, pulls=self.pulls)
        return float(frames) + llm_equivalents(self.spec.gmacs, usage, unit=None if self.spec.encoder else unit)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Predicted work of a matrix.

    Args:
        forwards_by_encoder: frames each encoder will embed, each distinct (video, frame) pair once with `share_frames`,
            else again for each question of each selection: exact for samplers that pull fixed frames, on flat relevance
            for the others.
        questions: (number asked, number in all) by benchmark name.
        questions_per_video: numbers of asked questions, one per video, by benchmark name.
    """

    matrix: MatrixConfig
    selections: tuple[SelectionPlan, ...]
    cells: tuple[AnswerSpec, ...]
    questions: dict[str, tuple[int, int]]
    questions_per_video: dict[str, tuple[int, ...]] = field(default_factory=dict)
    forwards_by_encoder: dict[str, int] = field(default_factory=dict)

    @property
    def seen_by_encoder(self) -> dict[str, tuple[int, int]]:
        """(frames scored, frames scanned) by encoder name, summed over questions without any sharing."""
        totals: dict[str, tuple[int, int]] = {}
        for selection in self.selections:
            # A selection has its main encoder first, then the one that scans.
            frame_counts = ((selection.pulls, 0), (0, selection.scanned))
            for encoder, (pulled, scanned) in zip(selection.spec.encoders, frame_counts, strict=False):
                pulls, scans = totals.get(encoder.name, (0, 0))
                totals[encoder.name] = (pulls + pulled, scans + scanned)
        return totals

    @property
    def forward_gmacs(self) -> float | None:
        """10^9 multiply-adds of a forward, used for selections without an encoder; None if encoders differ."""
        return common_forward(selection.spec.gmacs for selection in self.selections)

    @property
    def scan_pairs(self) -> dict[tuple[str, str], float | None]:
        """Relative cost of a scan by (scan encoder name, main encoder name); None if not known."""
        return {
            (spec.scan_encoder.name, spec.encoder.name): getattr(spec.sampler, "relative_cost", None) or spec.scan_cost
            for spec in (selection.spec for selection in self.selections)
            if spec.scan_encoder and spec.encoder
        }


def make_plan(
    matrix: MatrixConfig,
    *,
    sets: Mapping[str, QuestionSet] | None = None,
    progress: Callable[[int, int], None] = lambda n_done, total: None,
) -> Plan:
    """Return the plan of `matrix`, counted from lengths and rates alone, on flat relevance.

    Videos are counted one after another, so that memory does not grow with their number. For samplers that draw
    their pulls, frame counts are expectations over the draws.

    Args:
        sets: questions by configured benchmark name; None: those of the annotations.
        progress: called as (selections counted, selections in all).

    Raises:
        InvalidInput: annotations or rates that are missing or damaged.
    """
    specs = selection_specs(matrix)
    sets = load_sets(matrix) if sets is None else sets
    total = sum(len(sets[spec.benchmark.name].questions) for spec in specs)
    forwards = {encoder.name: 0 for spec in specs for encoder in spec.encoders}
    selections, n_done = list[SelectionPlan](), 0
    for name, questions in sets.items():
        benchmark_specs = [spec for spec in specs if spec.benchmark.name == name]
        further = partial(lambda earlier, now: progress(earlier + now, total), n_done)
        benchmark_plans, distinct = count_selections(benchmark_specs, questions.infos(), progress=further)
        selections += benchmark_plans
        n_done += len(questions.questions) * len(benchmark_specs)
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
    """Return, by kind of row, the rows that `plans` ask for together and how many of them are distinct.

    Kinds are "selections" and "answers". Runs in one folder share a pool of rows, so each distinct row is made once.
    """
    counts = {}
    for kind in ("selections", "answers"):
        n_requested, distinct = 0, dict[str, int]()
        for plan in plans:
            parts = [selection.spec for selection in plan.selections] if kind == "selections" else plan.cells
            for part in parts:
                n_questions = plan.questions[part.benchmark.name][0]
                n_requested += n_questions
                # Two matrices may ask other numbers of questions of one part; the larger covers both.
                distinct[part.name] = max(n_questions, distinct.get(part.name, 0))
        counts[kind] = (n_requested, sum(distinct.values()))
    return counts


def load_sets(matrix: MatrixConfig) -> dict[str, QuestionSet]:
    """Return the questions of every benchmark of `matrix` by the benchmark's configured name."""
    return {
        benchmark.name: load_questions(benchmark, limit=matrix.limit, available_only=matrix.available_only)
        for benchmark in matrix.benchmarks
    }


def count_selections(
    specs: Sequence[SelectionSpec],
    videos: Iterable[list[_NumberedQuestion]],
    *,
    progress: Callable[[int], None] = lambda n_done: None,
) -> tuple[list[SelectionPlan], dict[str, int]]:
    """Return the plan of each of `specs` for the questions of `videos`, and the number of distinct frames by encoder.

    Args:
        videos: as `QuestionSet.infos` gives them.
        progress: called with the number of selections counted so far.
    """
    countings = [_Counting(spec) for spec in specs]
    distinct, n_done = dict[str, float](), 0
    # Videos of one length follow each other where only stated lengths are known.
    count_distinct = lru_cache(maxsize=32)(_n_distinct)
    for questions in videos:
        # Over all selections of a video: what one has embedded the next one finds.
        embedded: dict[str, list[_Frames]] = {}
        for counting in countings:
            scored_and_scanned = counting.add_video(questions)
            for encoder, frames in zip(counting.spec.encoders, scored_and_scanned, strict=False):
                embedded.setdefault(encoder.name, []).append(frames)
        for name, several in embedded.items():
            distinct[name] = distinct.get(name, 0.0) + count_distinct(tuple(several))
        n_done += len(questions) * len(countings)
        progress(n_done)
    return [counting.plan() for counting in countings], {name: round(n) for name, n in distinct.items()}


@dataclass(frozen=True, eq=False)
class _Frames:
    """Frames of one video that some questions need; equal only to itself.

    Args:
        frames: ascending, each once.
        draws: random draws of further frames, each with its number of repetitions; equal keys draw equal frames.
    """

    frames: IntArray
    draws: Mapping[Hashable, tuple[Draw, int]] = field(default_factory=dict)


def _n_distinct(several: Sequence[_Frames]) -> float:
    """Return the expected number of distinct frames in the union of `several`."""
    frames_seen = several[0].frames
    if len(several) > 1:
        frames_seen = np.unique(np.concatenate([frames.frames for frames in several]))
    draws = dict[Hashable, tuple[Draw, int]]()
    for key, (draw, times) in (item for frames in several for item in frames.draws.items()):
        if key in draws and draw.is_ranking:  # of two draws by one ranking the larger holds all frames
            draw = replace(draw, rates=np.maximum(draw.rates, draws[key][0].rates))
        draws[key] = draw, times
    return expected_union(frames_seen, draws.values())


class _Counting:
    """Sums the predicted cost of one selection, video by video."""

    def __init__(self, spec: SelectionSpec) -> None:
        self.spec = spec
        self._count_expected = lru_cache(maxsize=1)(partial(_count_expected, spec))
        # By the field of a `SelectionPlan`; expectations are fractions until the end.
        self._sums: dict[str, float] = defaultdict(float, questions=0, pulls=0, frames=0)
        self._model_usage: Counter[str] = Counter()
        self._reason: tuple[float, str] = (inf, "")
        self._warnings: dict[str, tuple[int, PlanWarning]] = {}

    def add_video(self, questions: list[_NumberedQuestion]) -> tuple[_Frames, _Frames]:
        """Count the questions of one video; return the frames scored and those scanned for any of them."""
        infos = [info for _, _, info in questions]
        if isinstance(infos[0], VideoInfo) and infos.count(infos[0]) == len(infos):
            expected = self._count_expected(infos[0], len(questions))
            if expected is not None:
                counts, frames = expected
                self._add(**counts)
                return frames
        frame_pairs = [self._count_question(number, question, info) for number, question, info in questions]
        pulled, scanned = (np.unique(np.concatenate(parts)) for parts in zip(*frame_pairs, strict=True))
        self._add(embedded_shared=pulled.size, scanned_shared=scanned.size)
        return _Frames(pulled), _Frames(scanned)

    def _add(self, **counts: float) -> None:
        """Add the given counts, by name, to the sums of the selection."""
        for name, count in counts.items():
            self._sums[name] += count

    def plan(self) -> SelectionPlan:
        """Return the counts as a plan."""
        counts: dict[str, Any] = {name: round(count) for name, count in self._sums.items()}
        return SelectionPlan(
            spec=self.spec,
            **counts,
            model_usage=dict(self._model_usage),
            reason=self._reason[1],
            warnings=tuple(warning for _, warning in sorted(self._warnings.values(), key=lambda item: item[0])),
        )

    def _count_question(
        self, number: int, question: Question, info: VideoInfo | FocusEvalError
    ) -> tuple[IntArray, IntArray]:
        """Count one question by running its sampler; return frames scored and scanned, empty after an error."""
        nothing = NO_FRAMES, NO_FRAMES
        if isinstance(info, FocusEvalError):
            # The first by number, since videos are visited in another order than questions.
            self._reason = min(self._reason, (number, str(info)))
            self._add(questions=1, unknown=1)
            return nothing
        self._add(questions=1, frames=info.n_frames)
        try:
            selection = _select_on_flat_relevance(self.spec, question, info)
        except FocusEvalError as error:  # of this question: the run records it and goes on, and so does the plan
            kind = getattr(error, "promise", "") or type(error).__name__
            self._warn(kind, f"will be errors: {error}", number, question, info)
            return nothing
        # A frame pulled twice by one question is embedded once.
        self._add(pulls=selection.n_pulls, embedded_alone=selection.encoded_frames.size)
        self._add(keyframes=len(selection.keyframes), scanned=selection.n_scanned)
        self._model_usage.update(selection.model_usage)
        return selection.encoded_frames, selection.scanned_frames

    def _warn(self, kind: str, text: str, number: int, question: Question, info: VideoInfo) -> None:
        """Count a question with the problem `kind`; keep the text of the question with the lowest number."""
        first = f"{question.id}, {info.duration_seconds:.1f} s"
        at, warning = self._warnings.get(kind, (number, PlanWarning(text=text, questions=0, first=first)))
        if number < at:
            at, warning = number, replace(warning, text=text, first=first)
        self._warnings[kind] = (at, replace(warning, questions=warning.questions + 1))


def _count_expected(
    spec: SelectionSpec, info: VideoInfo, n: int
) -> tuple[dict[str, float], tuple[_Frames, _Frames]] | None:
    """Count `n` questions about one video by the sampler's expected pulls; return counts and (scored, scanned) frames.

    Returns None if the sampler has to be run for each question.
    """
    try:
        expected = spec.sampler.at_cost(spec.scan_cost).expected_pulls(info, k=spec.k)
    except FocusEvalError:  # each question's run says it again, and is warned of
        return None
    if expected is None:
        return None
    # Selections that draw alike from one generator, for instance at another K, draw the same frames.
    draws: dict[Hashable, tuple[Draw, int]] = {
        (spec.seed, spec.sampler.name, stage, draw.key): (draw, n) for stage, draw in enumerate(expected.later_draws)
    }
    if expected.coarse is not None:
        # Shared coarse pulls are drawn once a video, whichever sampler draws them.
        owner, n_draws = ("", 1) if spec.coarse_seed == "video" else (spec.sampler.name, n)
        draws[spec.seed, owner, -1, expected.coarse.key] = expected.coarse, n_draws
    scored, pulls = _Frames(expected.fixed, draws), n * expected.n_pulls
    keyframes = min(spec.k, info.n_frames) if expected.n_keyframes is None else expected.n_keyframes
    counts = {
        "questions": n,
        "frames": n * info.n_frames,
        "pulls": pulls,
        "embedded_alone": pulls,
        "keyframes": n * keyframes,
        "embedded_shared": _n_distinct([scored]),
        "scanned": n * expected.scanned.size,
        "scanned_shared": expected.scanned.size,
    }
    return counts, (scored, _Frames(expected.scanned))


def _select_on_flat_relevance(spec: SelectionSpec, question: Question, info: VideoInfo) -> Selection:
    """Return the selection for equally relevant frames and a scan that gives noise."""
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
    """Return standard normal numbers as scan logits, one a frame."""
    return rng.standard_normal(frames.size)


# Two stages run side by side: the GPUs encode, the cores decode. The hours are those of the slower one, so they are a
# bound that a worker comes near to and never passes; start, reading of files and the algorithms are not in them.


class Machine(StrictModel):
    """Cores, GPUs and measured rates of a machine to plan for.

    `decode_seconds` are seconds of one core per requested frame, including frames decoded on the way to it.
    `decode_seconds_gop` is that number for frames near sync frames (`focus_gop`); None: the same. `frames_per_second`
    is the rate of one GPU (without GPU: of the machine) by encoder and precision. `gpu_tflops` (bf16, dense) and
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


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Time for choosing frames.

    Args:
        frames: number decoded and embedded.
        encode_hours: hours of one GPU.
        decode_hours: hours of one core.
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
    """Time of one selection on a machine, as configured or in a faster precision.

    Args:
        setting: e.g. "precision=tf32"; "" for the selection as configured.
    """

    selection: SelectionPlan
    setting: str


@dataclass(frozen=True, kw_only=True)
class HoursTotal(Cost):
    """Time of several selections, one after the other.

    Args:
        setting: applied to every selection with a line for it; "" for all as configured.
        changed: number of selections that the setting applies to.
        selections: number of selections in the total.
    """

    setting: str
    changed: int
    selections: int


def hours_totals(lines: Iterable[HoursLine]) -> list[HoursTotal]:
    """Return a total per setting, the first as configured; a repeated selection counts once."""
    by_selection: dict[tuple[str, bool], dict[str, HoursLine]] = {}
    settings: dict[str, None] = {}
    for line in lines:
        # By the configuration: revisions, of which a name tells, need the encoder's weights and torch.
        key = (identity_hash(line.selection.spec.configuration), line.selection.spec.share_frames)
        by_selection.setdefault(key, {}).setdefault(line.setting, line)
        settings.setdefault(line.setting)
    totals = []
    for setting in settings:
        # What a setting does not apply to stays as it is: the total is that of the whole table.
        selection_lines = [
            line_by_setting.get(setting, line_by_setting[""]) for line_by_setting in by_selection.values()
        ]
        totals.append(
            HoursTotal(
                setting=setting,
                changed=sum(setting in line_by_setting for line_by_setting in by_selection.values()) if setting else 0,
                selections=len(selection_lines),
                **{entry.name: sum(getattr(line, entry.name) for line in selection_lines) for entry in fields(Cost)},
            )
        )
    return totals


def time_text(hours: float) -> str:
    """Return a duration in a readable unit, to three digits: "0.4 s", "12.5 min", "3.25 h", "2.1 d"."""
    for unit, seconds, limit in (("s", 1, 120), ("min", 60, 7200), ("h", 3600, 72 * 3600)):
        if hours * 3600 < limit:
            return f"{float(f'{hours * 3600 / seconds:.3g}'):g} {unit}"
    return f"{hours / 24:,.1f} d"


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


def hours_lines(plan: Plan, machine: Machine) -> Iterator[HoursLine]:
    """Yield a line for each selection with an encoder whose rate is known, and one for each faster precision."""
    for selection in plan.selections:
        encoder = selection.spec.encoder
        if encoder is None:
            continue
        rates, precision = encoder_rates(machine, encoder), encoder.precision
        scan_rate = 1.0
        if selection.spec.scan_encoder:
            scan_encoder = selection.spec.scan_encoder
            scan_rate = encoder_rates(machine, scan_encoder).get(scan_encoder.precision, 0.0)
        # No line rather than a guess from another precision.
        if precision not in rates or not scan_rate:
            continue
        frames = selection.embedded_shared if plan.matrix.share_frames else selection.embedded_alone
        scanned = selection.scanned_shared if plan.matrix.share_frames else selection.scanned
        is_gop = selection.spec.sampler.name == "focus_gop"
        line = partial(_hours_line, selection, machine, n_scanned=scanned, scan_rate=scan_rate)
        yield line("", frames, rates[precision], near_sync=is_gop)
        for faster_precision, rate in rates.items():
            # Only what saves time is worth a line.
            if rate > rates[precision]:
                yield line(f"precision={faster_precision}", frames, rate, near_sync=is_gop)


def encoder_rates(machine: Machine, encoder: EncoderConfig) -> dict[str, float]:
    """Return the machine's frames a second with `encoder` by precision; {} if it states none."""
    # By the checkpoint's name first: sizes of one architecture differ in speed.
    return machine.frames_per_second.get(encoder.name) or machine.frames_per_second.get(encoder.encoder, {})


def _hours_line(
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
    """Return the line for `frames` at `rate` and `n_scanned` at `scan_rate`, in frames a second."""
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


@dataclass(frozen=True, kw_only=True)
class PartStatus:
    """Progress of one part of a run.

    `kind` is "selections" or "answers". `rows_per_second` is the mean since the part was made; None before the second
    row and once the part is done.
    """

    name: str
    kind: str
    rows: int
    questions: int
    errors: int
    rows_per_second: float | None

    @property
    def seconds_left(self) -> float | None:
        """Seconds to the end at the rate so far; None without a rate."""
        return (self.questions - self.rows) / self.rows_per_second if self.rows_per_second else None


def matrix_of_run(run_file: Path) -> MatrixConfig:
    """Return the matrix that `run.json` describes; raise InvalidInput if it is of another version."""
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
    matrix = matrix_of_run(run_file)
    run, sets = RunFolder(path), load_sets(matrix)
    statuses = []
    parts: list[SelectionSpec | AnswerSpec] = [*selection_specs(matrix), *cells(matrix)]
    for part in parts:
        question_ids = {question.id for question in sets[part.benchmark.name].questions}
        # Other runs may have put rows of more questions into the pool.
        errors = [error for question_id, error in run.errors(part).items() if question_id in question_ids]
        statuses.append(
            PartStatus(
                name=part.name,
                kind=kind_of(part),
                rows=len(errors),
                questions=len(question_ids),
                errors=sum(error is not None for error in errors),
                rows_per_second=_rate(run.part(part), len(errors)),
            )
        )
    return statuses


def _rate(folder: Path, rows: int) -> float | None:
    """Return the rows a second since the part was made; None with fewer than 2 rows, or if it is finished."""
    lines = list(folder.glob("*.jsonl"))
    # A finished part is Parquet, without lines; one row gives no rate.
    if not lines or rows < 2:
        return None
    # The part's description is written just before its first row; a damaged one was put aside.
    now = time.time()
    seconds = now - min((path.stat().st_mtime for path in folder.glob("*.json")), default=now)
    return rows / seconds if seconds > 0 else None
