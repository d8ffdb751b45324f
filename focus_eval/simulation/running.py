"""Runs samplers on traces and writes the rows of a run; questions with a row are skipped."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from focus_eval.benchmarks.question import LengthEdges, Question
from focus_eval.core.errors import InvalidInput, RunError
from focus_eval.core.resources import lines_of, read_text
from focus_eval.core.types import FloatArray, IntArray
from focus_eval.pipeline.selector import Selector
from focus_eval.rows.identity import git_revision, identity_hash, selection_identity, versions
from focus_eval.rows.records import RowWriter, SelectionRow, replace_file
from focus_eval.rows.sealed import read_sealed_json, write_sealed_json
from focus_eval.rows.store import compact, finished_questions
from focus_eval.samplers.base import FrameSampler
from focus_eval.samplers.registry import make_sampler, sampler_class
from focus_eval.simulation.worlds import RecordedTrace, SimulatedTrace, World, make_trace, recorded_traces, world_of

# Frames a second that a percentage of frames stands for, whatever the file's rate, as in `even_cover`.
NOMINAL_FPS = 25.0
# Pulls a second of `focus` at its defaults: 3 in 16 seconds, and one a second in a quarter of the arms.
_FOCUS_RATE = 3 / 16 + 0.25


class SamplerEntry(BaseModel):
    """One sampler with options; with `budgets`, once more at each of the simulation's budgets."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    sampler: str
    options: dict[str, Any] = {}
    budgets: bool = False


class SimulationConfig(BaseModel):
    """Worlds, videos, samplers, K and budgets.

    Args:
        minutes: shortest and longest video.
        budgets: percent of the frames scored, of 25 frames a second.
        recorded: folder of a run whose relevance is used instead of simulated worlds.
        budget_k: the K at which budgets are compared; every K where it is empty.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = "simulation"
    videos: int = Field(default=500, gt=0)
    seed: int = 0
    seeds: list[int] = Field(default=[0], min_length=1)
    minutes: tuple[float, float] = (1.0, 180.0)
    worlds: list[str | dict[str, Any]] = ["calibrated"]
    recorded: str = ""
    samplers: list[str | SamplerEntry] = Field(min_length=1)
    k: list[int] = Field(min_length=1)
    budgets: list[float] = []
    budget_k: list[int] = []
    baseline: str = "focus"

    @property
    def made_worlds(self) -> list[World]:
        """The worlds; their names are unique."""
        worlds = [world_of(entry) for entry in self.worlds]
        if len({world.name for world in worlds}) < len(worlds):
            raise InvalidInput(f"{self.name}: two worlds have one name; give the changed one a `name` of its own")
        if not 0 < self.minutes[0] <= self.minutes[1]:
            raise InvalidInput(f"{self.name}: minutes must ascend from above 0, got {list(self.minutes)}")
        return worlds

    def check_baseline(self) -> None:
        """Refuse a baseline that no sampler of the file, at its default options, can be compared with.

        Raises:
            InvalidInput: with the samplers that there are.
        """
        samplers = [sampler for sampler, _ in self.series()]
        if not any(sampler.name == self.baseline and sampler == type(sampler)() for sampler in samplers):
            names = ", ".join(sorted({sampler.name for sampler in samplers}))
            raise InvalidInput(
                f"{self.name}: the baseline {self.baseline!r} is not among the samplers at its default options "
                f"({names}); add it, or write `baseline: NAME`"
            )

    def series(self) -> list[tuple[FrameSampler, int]]:
        """Return every sampler with each K, budgets included, no pair twice."""
        pairs: dict[tuple[FrameSampler, int], None] = {}
        for entry in self.samplers:
            item = SamplerEntry(sampler=entry) if isinstance(entry, str) else entry
            sampler = make_sampler(item.sampler, **item.options)
            pairs.update({(sampler, k): None for k in self.k})
            for percent in self.budgets if item.budgets else []:
                made = make_sampler(item.sampler, **{**item.options, **options_at(item.sampler, percent)})
                pairs.update({(made, k): None for k in self.budget_k or self.k})
        return list(pairs)


def options_at(name: str, percent: float) -> dict[str, Any]:
    """Return the options with which a sampler scores `percent` of the frames of a long video at 25 frames a second.

    The FOCUS family takes longer arms and rarer pulls in one proportion, so that the share of coarse pulls stays.

    Raises:
        InvalidInput: a sampler whose number of pulls no option sets.
    """
    rate = NOMINAL_FPS * percent / 100
    known = sampler_class(name).__dataclass_fields__
    if "share" in known:
        return {"share": percent / 100}
    if "every_seconds" in known:
        return {"every_seconds": 1 / rate}
    if "seconds_per_fine_pull" in known:
        factor = _FOCUS_RATE / rate
        return {"clip_seconds": 16 * factor, "seconds_per_fine_pull": factor}
    raise InvalidInput(f"sampler {name!r} has no option for its number of pulls; leave `budgets` out")


# Raised whenever the code may give other relevance.
VERSION = 1
# Longer simulated videos have a length bucket of their own; the others have LongVideoBench's.
HOURS_FROM_SECONDS = 3600
VIDEOS_AT_ONCE = 25

AnyTrace = SimulatedTrace | RecordedTrace


class TraceEncoder:
    """An encoder that gives the relevance of the trace it was last shown."""

    name: ClassVar[str] = "simulated"

    def __init__(self, revision: str) -> None:
        self.revision = revision
        self.trace: AnyTrace | None = None

    def relevance_of(self, video: Path, frames: IntArray, query: str) -> FloatArray:
        """Return the relevance of `frames`, shape `(n,)`."""
        if self.trace is None:
            raise RunError(f"{video}: no trace")
        return self.trace.relevance(frames)

    def close(self) -> None:
        """Do nothing: there is nothing to release."""


@dataclass(frozen=True)
class Source:
    """Traces of one benchmark: a world's, or those of a recorded run.

    Args:
        world: None for recorded ones.
        traces: the recorded ones; simulated ones are made when they are needed.
    """

    name: str
    revision: str
    world: World | None = None
    traces: tuple[RecordedTrace, ...] = ()

    def trace(self, number: int, config: SimulationConfig) -> AnyTrace:
        if self.world is None:
            return self.traces[number]
        return make_trace(self.world, number, seed=config.seed, minutes=config.minutes)


def run_simulation(
    config: SimulationConfig,
    out: Path,
    *,
    limit: int | None = None,
    n_workers: int = 2,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> None:
    """Write the rows of every sampler, K and trace below `out`, and what each trace is in `traces.jsonl`.

    Args:
        limit: only the first videos of each world.
        progress: called with rows written and rows to write.

    Raises:
        InvalidInput: `out` holds another simulation, or a sampler that needs logits or embeddings.
        RunError: another run writes there.
    """
    from focus_eval.rows.locks import FolderLock, Timeout

    out.mkdir(parents=True, exist_ok=True)
    lock = FolderLock(out / ".lock", timeout=0)
    try:
        with lock:
            _describe(config, out)
            for source in sources(config):
                _run_source(source, config, out, limit=limit, n_workers=n_workers, progress=progress)
    except Timeout as error:
        raise RunError(f"{out}: another run writes here; wait for it, or name another folder") from error


def sources(config: SimulationConfig) -> list[Source]:
    """Return the worlds of `config`, or its recorded run."""
    if not config.recorded:
        return [Source(world.name, _revision(world.values, config), world) for world in config.made_worlds]
    traces = recorded_traces(Path(config.recorded))
    digest = identity_hash({trace.question_id: [trace.frames.tolist(), trace.values.tolist()] for trace in traces})
    return [Source(f"recorded {traces[0].benchmark}", digest, traces=tuple(traces))]


def selection_ids(config: SimulationConfig) -> set[str]:
    """Return the ids of the selections that `config` asks for, as the code of its samplers is now."""
    series = [(sampler, k, seed) for sampler, k in config.series() for seed in config.seeds]
    encoders = [TraceEncoder(source.revision) for source in sources(config)]
    return {Selector(sampler=s, encoder=e, k=k, seed=seed).selection_id for e in encoders for s, k, seed in series}


def select_on(source: Source, config: SimulationConfig, sampler: FrameSampler, k: int, number: int) -> SelectionRow:
    """Return one row with everything that was scored, for a timeline: the same selection as in the run."""
    encoder = TraceEncoder(source.revision)
    trace = encoder.trace = source.trace(number, config)
    selector = Selector(sampler=sampler, encoder=encoder, k=k, seed=config.seeds[0])
    return selector.select(_question(source, trace), Path(_video(trace)), info=trace.info)


def _run_source(
    source: Source, config: SimulationConfig, out: Path, *, limit: int | None, n_workers: int, progress: Any
) -> None:
    n = config.videos if source.world else len(source.traces)
    numbers = range(min(n, limit) if limit else n)
    series = [(sampler, k, seed) for sampler, k in config.series() for seed in config.seeds]
    _check_samplers(series)
    folders = [_part(out, source, sampler, k, seed) for sampler, k, seed in series]
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
    # Read once, before any worker writes: reading at every chunk would take the square of the videos.
    finished = {folder: finished_questions(folder, SelectionRow) for folder in folders}
    chunks = [numbers[at : at + VIDEOS_AT_ONCE] for at in range(0, len(numbers), VIDEOS_AT_ONCE)]
    done, about = 0, []
    # Processes, because samplers are Python; forked, so that a sampler of a file needs no second import.
    with ProcessPoolExecutor(max(1, n_workers), mp_context=get_context("fork")) as pool:
        jobs = [pool.submit(_run_chunk, source, config, finished, list(chunk)) for chunk in chunks]
        try:
            for chunk, job in zip(chunks, jobs, strict=True):
                about += job.result()
                done += len(chunk) * len(series)
                progress(done, len(numbers) * len(series))
        finally:
            # After Ctrl-C the pool would do all chunks that wait, and only then end.
            pool.shutdown(cancel_futures=True)
    order = _write_traces(source, out, about)
    for folder in folders:
        compact(folder, SelectionRow, order)


def _run_chunk(
    source: Source, config: SimulationConfig, finished: Mapping[Path, Set[str]], numbers: Sequence[int]
) -> list[dict[str, Any]]:
    """Write the rows of some traces to files of their own, which no other process writes; say what each trace is.

    Args:
        finished: ids of the questions that have a row, by the folder of each series, in the order of the series.
    """
    encoder = TraceEncoder(source.revision)
    series = [(sampler, k, seed) for sampler, k in config.series() for seed in config.seeds]
    parts = [
        (Selector(sampler=sampler, encoder=encoder, k=k, seed=seed, keep_pulls=False), known, folder)
        for (sampler, k, seed), (folder, known) in zip(series, finished.items(), strict=True)
    ]
    about = []
    rows: list[list[SelectionRow]] = [[] for _ in parts]
    for number in numbers:
        trace = encoder.trace = source.trace(number, config)
        about.append(_about(source, trace, number))
        question, path = _question(source, trace), Path(_video(trace))
        for (selector, known, _), mine in zip(parts, rows, strict=True):
            if question.id not in known:
                mine.append(_row(selector, question, path, trace))
    for (_, _, folder), mine in zip(parts, rows, strict=True):
        _append(folder / f"rows-{numbers[0]:06d}.jsonl", mine)
    return about


def _row(selector: Selector, question: Question, path: Path, trace: AnyTrace) -> SelectionRow:
    try:
        return selector.select(question, path, info=trace.info)
    except RunError:
        raise
    except Exception as error:  # noqa: BLE001 (recorded: one question never ends a run)
        return selector.error_row(question, error)


def _append(path: Path, rows: Sequence[SelectionRow]) -> None:
    if not rows:
        return  # an empty file would make a finished part look unfinished
    with closing(RowWriter(path)) as writer:
        for row in rows:
            writer.write(row)


def _question(source: Source, trace: AnyTrace) -> Question:
    seconds = trace.info.duration_seconds
    return Question(
        benchmark=source.name,
        id=trace.question_id,
        query="the planted evidence",
        options=(),
        video=_video(trace),
        answer=None,
        duration_seconds=seconds,
        bucket=trace.bucket if isinstance(trace, RecordedTrace) else bucket_of(seconds),
        evidence_seconds=trace.evidence_seconds,
    )


def bucket_of(seconds: float) -> str:
    """Return "short" (under 3 minutes), "medium" (20), "long" (an hour) or "hours"."""
    return "hours" if seconds >= HOURS_FROM_SECONDS else LengthEdges().bucket(seconds)


def _video(trace: AnyTrace) -> str:
    return trace.video if isinstance(trace, RecordedTrace) else f"{trace.question_id}.mp4"


def _check_samplers(series: Iterable[tuple[FrameSampler, int, int]]) -> None:
    for sampler, _, _ in series:
        if sampler.needs_logits or sampler.needs_embeddings:
            raise InvalidInput(f"sampler {sampler.name!r} needs logits or embeddings; a trace has relevance only")


def _revision(values: dict[str, Any], config: SimulationConfig) -> str:
    return identity_hash({"version": VERSION, "world": values, "seed": config.seed, "minutes": list(config.minutes)})


def _part(out: Path, source: Source, sampler: FrameSampler, k: int, seed: int) -> Path:
    default = type(sampler)().options
    changed = [f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value}"
               for name, value in sampler.options.items() if value != default[name]]  # fmt: skip
    # A sampler that never pulls sees no relevance, but its questions are those of the source as well.
    identity = selection_identity(sampler, k=k, seed=seed, encoder=TraceEncoder.name, encoder_revision=source.revision)
    readable = re.sub(r"[^\w.,=+-]+", "_", f"{source.name}-{','.join([sampler.name, *changed])}-k{k}-seed{seed}")
    return out / "selections" / f"{readable}-{identity_hash(identity)[:8]}"


def _about(source: Source, trace: AnyTrace, number: int) -> dict[str, Any]:
    about = {"benchmark": source.name, "question_id": trace.question_id, "number": number}
    about |= {"seconds": trace.info.duration_seconds, "n_events": len(trace.evidence_seconds)}
    if isinstance(trace, SimulatedTrace):
        about |= {"event_seconds": float(np.mean(trace.event_lengths)), "strength": trace.strength}
    return about


def _write_traces(source: Source, out: Path, about: Sequence[dict[str, Any]]) -> list[str]:
    """Write a line about each trace; return the ids of all questions that may have rows, in order."""
    lines, order = [json.dumps(line) for line in about], [line["question_id"] for line in about]
    path = out / "traces" / (re.sub(r"[^\w.-]+", "_", source.name) + ".jsonl")
    path.parent.mkdir(exist_ok=True)
    now = set(order)
    if path.exists():  # a run with a smaller --limit keeps what a larger one wrote
        earlier = {json.loads(line)["question_id"]: line for line in lines_of(read_text(path))}
        only_there = [question_id for question_id in earlier if question_id not in now]
        lines += [earlier[question_id] for question_id in only_there]
        order += only_there
    with replace_file(path) as part:
        part.write_text("\n".join(lines) + "\n")
    return order


def _describe(config: SimulationConfig, out: Path) -> None:
    file = out / "run.json"
    document: dict[str, Any] = {"name": config.name, "simulation": config.model_dump(mode="json")}
    document |= {"git": git_revision(), "versions": versions()}
    if file.exists():
        mine = (document["simulation"], read_sealed_json(file).get("simulation", {}))
        for key in ("seed", "minutes", "worlds", "recorded"):
            if mine[0][key] != mine[1].get(key):
                raise InvalidInput(
                    f"{out}: holds a simulation with another value of {key!r}; name another folder with --out"
                )
    with replace_file(file) as part:
        write_sealed_json(part, document)
