"""Counts the pulls and frames of a matrix before its run, and reports a run's progress."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError

from focus_eval.bench.matrix.cells import AnswerSpec, SelectionSpec, cells, selection_specs
from focus_eval.bench.matrix.config import MatrixConfig
from focus_eval.bench.matrix.folder import RunFolder, progress_of
from focus_eval.bench.matrix.questions import QuestionSet, load_questions
from focus_eval.bench.rows.packed import check_links
from focus_eval.bench.rows.store import StoredRows, run_folders
from focus_eval.core.errors import FocusEvalError, InvalidInput
from focus_eval.core.types import FloatArray, IntArray, Question, Selection, VideoInfo
from focus_eval.keyframes.pipeline.selector import texts_of
from focus_eval.keyframes.rows.cost import common_forward, forward_equivalents, llm_equivalents, unit_costs
from focus_eval.keyframes.rows.files import read_sealed_json
from focus_eval.keyframes.rows.records import AnswerRow, SelectionRow
from focus_eval.keyframes.samplers.base import FlatSource, derived_rng
from focus_eval.keyframes.samplers.expected_pulls import NO_FRAMES, Draw, expected_union

# (number of the question, question, length and rate of its video or the error of reading them).
_NumberedQuestion = tuple[int, Question, VideoInfo | FocusEvalError]


@dataclass(frozen=True, kw_only=True)
class PlanWarning:
    """A problem that some questions of a selection will have.

    Args:
        text: effect, cause and fix.
        questions: number of questions with the problem.
        first: id of the first such question and length of its video, as text.
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
        keyframes: number of keyframes if all frames are equally relevant, summed over questions.
        embedded_alone: frames embedded if each question pays for its own, as the published hours count.
        embedded_shared: frames embedded if the questions of a video share their frames.
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
    # Without sharing every selection embeds all of its frames.
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
                # Two matrices may ask different numbers of questions; the larger covers both.
                distinct[part.name] = max(n_questions, distinct.get(part.name, 0))
        counts[kind] = (n_requested, sum(distinct.values()))
    return counts


def load_sets(matrix: MatrixConfig) -> dict[str, QuestionSet]:
    """Return the questions of every benchmark of `matrix` by the benchmark's configured name."""
    return {
        benchmark.name: load_questions(
            benchmark, limit=matrix.limit, available_only=matrix.available_only, only=matrix.only_questions
        )
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
    # A small cache suffices: if only stated lengths are known, videos of equal length follow each other.
    count_distinct = lru_cache(maxsize=32)(_n_distinct)
    for questions in videos:
        # The selections of a video share this record, since later selections reuse embedded frames.
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
        frames: ascending and distinct frames.
        draws: random draws of further frames, each with its number of repetitions. Draws with equal keys draw equal
            frames.
    """

    frames: IntArray
    draws: Mapping[Hashable, tuple[Draw, int]] = field(default_factory=dict)


def _n_distinct(several: Sequence[_Frames]) -> float:
    """The expected number of distinct frames in the union of `several`."""
    frames_seen = several[0].frames
    if len(several) > 1:
        frames_seen = np.unique(np.concatenate([frames.frames for frames in several]))
    draws = dict[Hashable, tuple[Draw, int]]()
    for key, (draw, times) in (item for frames in several for item in frames.draws.items()):
        if key in draws and draw.is_ranking:  # draws by the same ranking are nested: keep the larger
            draw = replace(draw, rates=np.maximum(draw.rates, draws[key][0].rates))
        draws[key] = draw, times
    return expected_union(frames_seen, draws.values())


class _Counting:
    """Sums the predicted cost of one selection, video by video."""

    def __init__(self, spec: SelectionSpec) -> None:
        self.spec = spec
        self._count_expected = lru_cache(maxsize=1)(partial(_count_expected, spec))
        # Field of `SelectionPlan` -> sum. Expected numbers are rounded only at the end.
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
            # Keep the reason of the lowest question number, since videos are not visited in the order of questions.
            self._reason = min(self._reason, (number, str(info)))
            self._add(questions=1, unknown=1)
            return nothing
        self._add(questions=1, frames=info.n_frames)
        try:
            selection = _select_on_flat_relevance(self.spec, question, info)
        except FocusEvalError as error:  # the run records such an error and goes on, and so does the plan
            kind = getattr(error, "promise", "") or type(error).__name__
            self._warn(kind, f"will be errors: {error}", number, question, info)
            return nothing
        # `encoded_frames` has a frame only once, since a frame that a question pulls twice is embedded once.
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
    except FocusEvalError:  # the run reports such an error at each question
        return None
    if expected is None:
        return None
    # Selections with equal draws from one generator (e.g. at another K) draw the same frames.
    draws: dict[Hashable, tuple[Draw, int]] = {
        (spec.seed, spec.sampler.name, stage, draw.key): (draw, n) for stage, draw in enumerate(expected.later_draws)
    }
    if expected.coarse is not None:
        # If coarse pulls are shared, they are drawn once per video, whichever sampler draws them.
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
    """The selection if all frames are equally relevant and a scan gives random noise."""
    # Use the generators of the run, so that samplers draw the same frames.
    key = (spec.benchmark.benchmark, question.id, spec.sampler.name)
    coarse = (spec.benchmark.benchmark, question.video, "coarse")
    shares, flat = spec.coarse_seed == "video", FlatSource(spec.sampler.example_reply)
    return spec.sampler.select(
        info,
        k=spec.k,
        pull=flat,
        # Give each question its own noise: on a constant scan all questions of a video would pull the same frames.
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
    """Scan logits that are standard normal numbers, one per frame."""
    return rng.standard_normal(frames.size)


@dataclass(frozen=True, kw_only=True)
class PartStatus:
    """Progress of one part of a run.

    `kind` is "selections" or "answers". `questions` is None where only lmms-eval knows how many are asked: a record of
    the plugin. `rows_per_second` is the mean since the part was made; None before the second row and once it is done.
    """

    name: str
    kind: str
    rows: int
    questions: int | None
    errors: int
    rows_per_second: float | None

    @property
    def is_done(self) -> bool:
        """True if every question has its row."""
        return self.questions is not None and self.rows >= self.questions

    @property
    def seconds_left(self) -> float | None:
        """Seconds to the end at the rate so far; None if there is no rate."""
        if self.questions is None or not self.rows_per_second:
            return None
        return (self.questions - self.rows) / self.rows_per_second


def matrix_of_run(run_file: Path) -> MatrixConfig:
    """Return the matrix that `run.json` describes; raise InvalidInput if it is of another version."""
    try:
        return MatrixConfig.model_validate(read_sealed_json(run_file)["matrix"])
    except (KeyError, TypeError, ValidationError) as error:
        raise InvalidInput(f"{run_file}: does not describe a run of this version ({type(error).__name__})") from error


def run_status(folder: str | Path) -> list[PartStatus]:
    """Return one status per selection and cell of the run in `folder`, read while it goes on.

    If the rows have no matrix (records of the plugin, imported logs), only rows are counted.

    Raises:
        InvalidInput: there is no run in `folder`, or a part is a broken link.
    """
    path = Path(folder)
    run_file = path / "run.json"
    described = run_file.is_file() and read_sealed_json(run_file)
    counted = [] if described and described.get("matrix") else _counted_rows(path)
    if counted or not described:
        if not counted:
            raise InvalidInput(f"{path}: no run here (no run.json); start one with focus-eval run")
        return counted
    check_links(path)
    matrix = matrix_of_run(run_file)
    # Runs of earlier versions record no numbers of questions, so count the questions of the matrix.
    progress = described.get("progress") or progress_of(
        matrix, {name: len(questions.questions) for name, questions in load_sets(matrix).items()}
    )
    run, statuses = RunFolder(path), []
    # The pool may hold rows of further questions from other runs.
    ids_by_benchmark = {name: frozenset(ids) for name, ids in described.get("asked", {}).items()}
    for part in progress:
        folder = run.named_part(part["kind"], part["name"])
        row_type = AnswerRow if part["kind"] == "answers" else SelectionRow
        n_rows, n_errors = StoredRows(folder, row_type).counts(ids_by_benchmark.get(part["benchmark"]))
        statuses.append(
            PartStatus(
                name=part["name"],
                kind=part["kind"],
                rows=n_rows,
                questions=part["questions"],
                errors=n_errors,
                rows_per_second=_rate(folder, n_rows),
            )
        )
    return statuses


def _counted_rows(folder: Path) -> list[PartStatus]:
    """The status of each part with rows in `folder`, or in the runs one level below."""
    statuses = []
    for run in run_folders(folder) or [folder]:
        kinds: tuple[tuple[str, type[SelectionRow] | type[AnswerRow]], ...]
        kinds = (("selections", SelectionRow), ("answers", AnswerRow))
        for kind, row_type in kinds:
            for part in [run / kind, *sorted((run / kind).glob("*/"))]:
                n_rows, n_errors = StoredRows(part, row_type).counts()
                if n_rows:
                    name = run.resolve().name if part == run / kind else part.name
                    statuses.append(
                        PartStatus(
                            name=name, kind=kind, rows=n_rows, questions=None, errors=n_errors, rows_per_second=None
                        )
                    )
    return statuses


def _rate(folder: Path, rows: int) -> float | None:
    """The rows a second since the part was made; None with fewer than 2 rows, or if it is finished."""
    lines = list(folder.glob("*.jsonl"))
    # A finished part is Parquet, without lines; one row gives no rate.
    if not lines or rows < 2:
        return None
    # The part's description was written just before its first row, so its time is the start; it may be missing if it
    # was damaged and set aside.
    now = time.time()
    seconds = now - min((path.stat().st_mtime for path in folder.glob("*.json")), default=now)
    return rows / seconds if seconds > 0 else None
