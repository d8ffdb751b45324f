"""Runs samplers on traces and writes the rows of a run; questions with a row are skipped."""

from __future__ import annotations

import gc
import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from typing import ClassVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from focus_eval.bench.benchmarks.question import LengthEdges
from focus_eval.bench.report.cost import frame_shares
from focus_eval.bench.rows.store import FinishedQuestions, compact
from focus_eval.core.errors import InvalidInput, RunError
from focus_eval.core.types import CoarseSeed, FloatArray, IntArray, Pixels, Question, VideoInfo
from focus_eval.keyframes.encoders.base import Encoder
from focus_eval.keyframes.llms.registry import Model, make_llm
from focus_eval.keyframes.pipeline.selector import Selector
from focus_eval.keyframes.pipeline.source import UnreadVideo
from focus_eval.keyframes.rows.files import locked_at_once, read_sealed_json, write_sealed_json
from focus_eval.keyframes.rows.identity import git_revision, identity_hash, selection_identity, versions
from focus_eval.keyframes.rows.json_lines import RowWriter
from focus_eval.keyframes.rows.records import SelectionRow
from focus_eval.keyframes.samplers.base import FrameSampler
from focus_eval.lab.features import TraceFeatures
from focus_eval.lab.recorded import RecordedTrace, recorded_traces, scanned_traces
from focus_eval.lab.subprocess_sampler import class_apart, make_apart
from focus_eval.lab.traces import SimulatedTrace, make_trace, trace_video
from focus_eval.lab.worlds import Channel, World, channel_name, channel_of, world_of

# Percentages of frames refer to a video of this rate, whatever the file's rate (as in `even_cover`).
NOMINAL_FPS = 25.0
# Pulls of `focus` per second of video at its defaults: 3 in each 16 seconds, and one per second in a quarter of the
# arms.
_FOCUS_RATE = 3 / 16 + 0.25


class SamplerEntry(BaseModel):
    """One sampler with options. With `budgets` the sampler also runs at each of the simulation's budgets.

    Args:
        k: the K at which the sampler runs; if empty, those of the simulation.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    sampler: str
    options: dict[str, object] = {}
    budgets: bool = False
    k: list[int] = []


class SimulationConfig(BaseModel):
    """Worlds, videos, samplers, K and budgets.

    Args:
        minutes: lengths of the shortest and the longest video.
        budgets: frames scored in percent of the frames of a video with 25 frames per second.
        recorded: folder of a run whose relevance is used instead of simulated worlds; "" for none.
        scan_recorded: folder of a run with relevance of the same questions for the scan encoder.
        budget_k: the K at which budgets are compared; every K if empty.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = "simulation"
    videos: int = Field(default=500, gt=0)
    seed: int = 0
    seeds: list[int] = Field(default=[0], min_length=1)
    minutes: tuple[float, float] = (1.0, 180.0)
    worlds: list[str | dict[str, object]] = ["calibrated"]
    recorded: str = ""
    scan_recorded: str = ""
    samplers: list[str | SamplerEntry] = Field(min_length=1)
    k: list[int] = Field(min_length=1)
    budgets: list[float] = []
    budget_k: list[int] = []
    baseline: str = "focus"

    @property
    def parsed_worlds(self) -> list[World]:
        """The worlds; raises InvalidInput if two have one name, or if `minutes` is not positive and ascending."""
        worlds = [world_of(entry) for entry in self.worlds]
        if len({world.name for world in worlds}) < len(worlds):
            raise InvalidInput(f"{self.name}: two worlds have one name; give the changed one a `name` of its own")
        if not 0 < self.minutes[0] <= self.minutes[1]:
            raise InvalidInput(f"{self.name}: minutes must ascend from above 0, got {list(self.minutes)}")
        return worlds

    def check_baseline(self) -> None:
        """Raise InvalidInput, listing the samplers, if the baseline at its default options is not one of them."""
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
            sampler = make_apart(item.sampler, **item.options)
            pairs.update({(sampler, k): None for k in item.k or self.k})
            for percent in self.budgets if item.budgets else []:
                instance = make_apart(item.sampler, **{**item.options, **options_at(item.sampler, percent)})
                pairs.update({(instance, k): None for k in self.budget_k or self.k})
        return list(pairs)

    def seeded_series(self) -> list[tuple[FrameSampler, int, int]]:
        """Return every sampler with each K and seed."""
        return [(sampler, k, seed) for sampler, k in self.series() for seed in self.seeds]


def options_at(name: str, percent: float) -> dict[str, object]:
    """Return the options with which a sampler scores `percent` of the frames of a long video at 25 frames a second.

    For the FOCUS family, arms get longer and fine pulls rarer by the same factor, so the share of coarse pulls stays
    the same.

    Raises:
        InvalidInput: the sampler has no option that sets its number of pulls.
    """
    rate = NOMINAL_FPS * percent / 100
    option_names = class_apart(name).__dataclass_fields__
    if "share" in option_names:
        return {"share": percent / 100}
    if "every_seconds" in option_names:
        return {"every_seconds": 1 / rate}
    if "seconds_per_fine_pull" in option_names:
        factor = _FOCUS_RATE / rate
        return {"clip_seconds": 16 * factor, "seconds_per_fine_pull": factor}
    raise InvalidInput(f"sampler {name!r} has no option for its number of pulls; leave `budgets` out")


# Increase whenever a change of the code may change the relevance of a trace.
VERSION = 1
# Simulated videos of at least this length form a bucket of their own; shorter ones have LongVideoBench's buckets.
HOURS_FROM_SECONDS = 3600
VIDEOS_AT_ONCE = 25

AnyTrace = SimulatedTrace | RecordedTrace


# The query of simulated questions.
QUERY = "the planted evidence"


class TraceEncoder(Encoder):
    """An encoder that returns the relevance of its current `trace`; its cost is 1 per frame."""

    name: ClassVar[str] = "simulated"
    reads_frames: ClassVar[bool] = False

    def __init__(self, revision: str) -> None:
        self.revision = revision
        self.gmacs = {"image": 1.0}
        self.trace: AnyTrace | None = None
        self._drawn: TraceFeatures | None = None

    def relevance_of(self, video: Path, frames: IntArray, query: str) -> FloatArray:
        """Return the relevance of `frames` in the current trace to `query`, shape `(n,)`.

        A query other than `QUERY` gets the relevance that `TraceFeatures.relevance_to` makes for it.

        Raises:
            RunError: there is no current trace.
        """
        if self.trace is None:
            raise RunError(f"{video}: no trace")
        return self.trace.relevance(frames) if query == QUERY else self._features.relevance_to(frames, query)

    def features_of(self, video: Path, query: str) -> TraceFeatures:
        """Return the features of the current trace."""
        return self._features

    def pictures_of(self, frames: IntArray, size: int | None) -> list[Pixels]:
        """Return a picture of each frame of the trace; `size` is ignored."""
        return self._features.pictures(frames)

    @property
    def _features(self) -> TraceFeatures:
        """Features of the current trace, made once per trace; raises RunError if there is no current trace."""
        if self.trace is None:
            raise RunError("no trace")
        if self._drawn is None or self._drawn.trace is not self.trace:
            self._drawn = TraceFeatures(self.trace)
        return self._drawn

    def n_unknown(self, frames: IntArray) -> int:
        """Return how many of `frames` a recorded trace lacks; 0 for a simulated one."""
        return _n_unknown(self.trace, frames)


class ChannelEncoder(Encoder):
    """The scan encoder of a simulation: it sees video `number` through one channel."""

    reads_frames: ClassVar[bool] = False

    def __init__(self, text: str, source: TraceSource, config: SimulationConfig) -> None:
        self.name = channel_name(text)  # type: ignore[misc]
        channel = channel_of(self.name)
        self.revision = identity_hash({"channel": asdict(channel), "source": source.revision})
        self.gmacs = {"image": channel.cost}
        self._made = lru_cache(maxsize=1)(lambda number: source.scan(number, config, channel))
        self.number = 0

    def relevance_of(self, video: Path, frames: IntArray, query: str) -> FloatArray:
        """Return the relevance of `frames` in this channel, shape `(n,)`."""
        values: FloatArray = self._made(self.number).relevance(frames)
        return values

    def n_unknown(self, frames: IntArray) -> int:
        """Return how many of `frames` a recorded scan lacks; 0 for a simulated one."""
        return _n_unknown(self._made(self.number), frames)


def _n_unknown(trace: AnyTrace | None, frames: IntArray) -> int:
    """How many of `frames` a recorded trace lacks; 0 for any other trace."""
    return int(np.isin(frames, trace.frames, invert=True).sum()) if isinstance(trace, RecordedTrace) else 0


@dataclass(frozen=True)
class TraceSource:
    """Source of the traces of one benchmark: of a simulated world or of a recorded run.

    Args:
        world: the simulated world; None for a recorded run.
        traces: the recorded traces; simulated traces are made when they are needed.
    """

    name: str
    revision: str
    world: World | None = None
    traces: tuple[RecordedTrace, ...] = ()

    @property
    def coarse_seed(self) -> CoarseSeed:
        """ "video" for recorded traces, because the questions of a recorded video share frames and so coarse draws."""
        return "question" if self.world else "video"

    def number(self, question_id: str) -> int:
        """Return the number of the trace of question `question_id`."""
        if self.world is None:
            return [trace.question_id for trace in self.traces].index(question_id)
        return int(question_id.rpartition("-")[2])

    def numbers(self, config: SimulationConfig, limit: int | None) -> Sequence[int]:
        """Return the numbers of the traces of the first `limit` videos, with all their questions.

        No question of a video is left out, because questions share the cost of its frames: fewer would each pay more.
        """
        if self.world is not None:
            return range(config.videos)[:limit]
        videos = {*list(dict.fromkeys(trace.video for trace in self.traces))[:limit]}
        return [number for number, trace in enumerate(self.traces) if trace.video in videos]

    def video(self, number: int, config: SimulationConfig) -> VideoInfo:
        """Return length and rate of a trace's video, without making the trace."""
        if self.world is None:
            return self.traces[number].info
        return trace_video(self.world, number, seed=config.seed, minutes=config.minutes)

    def trace(self, number: int, config: SimulationConfig) -> AnyTrace:
        """Return trace `number`: the recorded one, or a newly simulated one."""
        if self.world is None:
            return self.traces[number]
        return make_trace(self.world, number, seed=config.seed, minutes=config.minutes)

    def scan(self, number: int, config: SimulationConfig, channel: Channel) -> AnyTrace:
        """Return the trace of a video as `channel` sees it; for a recorded video, its recorded scan."""
        if self.world is None:
            scan = self.traces[number].scan
            if scan is None:
                raise InvalidInput(
                    f"{self.name}: no scan was recorded; name one (--scan-relevance, scan_recorded), or leave samplers "
                    "with a scan encoder out"
                )
            return scan
        return make_trace(self.world, number, seed=config.seed, minutes=config.minutes, channel=channel)

    def scan_encoder(self, sampler: FrameSampler, config: SimulationConfig) -> ChannelEncoder | None:
        """Return the scan encoder of a sampler: the channel that its option `scan_encoder` names."""
        if not sampler.needs_scan:
            return None
        return ChannelEncoder(str(sampler.options["scan_encoder"]), self, config)


def scripted_llm(sampler: FrameSampler) -> Model | None:
    """Return the scripted model that a sampler asks: the one its option `llm` names, or the default."""
    if not sampler.needs_llm:
        return None
    name = str(sampler.options["llm"])
    return make_llm(name if name.partition(":")[0] == "scripted" else "scripted")


def run_simulation(
    config: SimulationConfig,
    out: Path,
    *,
    limit: int | None = None,
    n_workers: int = 2,
    progress: Callable[[int, int], None] = lambda n_done, n_rows: None,
) -> None:
    """Write the rows of every sampler, K and trace below `out`.

    Args:
        limit: only the first videos of each world.
        progress: called with the number of rows written and the number of rows to write.

    Raises:
        InvalidInput: `out` holds another simulation.
        RunError: another run writes there.
    """
    out.mkdir(parents=True, exist_ok=True)
    with locked_at_once(out / ".lock", "another run writes here; wait for it, or name another folder"):
        _describe(config, out)
        for source in trace_sources(config):
            _run_source(source, config, out, limit=limit, n_workers=n_workers, progress=progress)


def infeasible_lines(config: SimulationConfig, limit: int | None = None) -> list[str]:
    """Return a line with the reason for each sampler and K that cannot choose frames of some videos.

    Args:
        limit: only the first videos of each world.
    """
    lines = []
    for source in trace_sources(config):
        videos = [source.video(number, config) for number in source.numbers(config, limit)]
        for sampler, k in config.series():
            reasons = [reason for video in videos if (reason := sampler.infeasible_reason(video, k=k)) is not None]
            if reasons:
                count = f"{len(reasons)} of {len(videos)} questions may end without frames, which counts as recall 0"
                lines.append(f"{sampler.name}, K = {k}, {source.name}: {count}: {reasons[0]}")
    return lines


# A seed of this size is short enough to type, but there are too many to search for a favourable one.
SEED_BITS = 48


def with_fresh_seed(config: SimulationConfig, out: Path) -> SimulationConfig:
    """Return `config` with a new random seed if it sets none and runs samplers from files.

    With a known seed, the author of such a file may have seen the videos. A later run in `out` gets the seed of the
    first run.

    Raises:
        InvalidInput: the seed in `out` was drawn for another version of the files.
    """
    tried, file = tried_files(config), out / "run.json"
    if not tried or config.recorded or "seed" in config.model_fields_set:
        return config
    if not file.exists():
        return config.model_copy(update={"seed": secrets.randbits(SEED_BITS)})
    document = read_sealed_json(file)
    if document.get("tried") != tried:
        raise InvalidInput(
            f"{out}: its seed was drawn before the sampler's file was changed; name another folder (--out)"
        )
    return config.model_copy(update={"seed": document["simulation"]["seed"]})


def tried_files(config: SimulationConfig) -> list[str]:
    """Return the hashes of the sampler files that `config` names by path, sorted; empty if there are none."""
    return sorted({sampler.file_digest for sampler, _ in config.series()} - {""})


def trace_sources(config: SimulationConfig) -> list[TraceSource]:
    """Return the sources of the traces of `config`: one per world, or the sources of a recorded run.

    A source's revision depends on all its values, so that a changed source gets new rows.
    """
    if not config.recorded:
        shared = {"version": VERSION, "seed": config.seed, "minutes": list(config.minutes)}
        return [
            TraceSource(world.name, identity_hash({**shared, "world": world.values}), world)
            for world in config.parsed_worlds
        ]
    traces = recorded_traces(Path(config.recorded))
    recorded = {trace.question_id: [trace.frames.tolist(), trace.values.tolist()] for trace in traces}
    if config.scan_recorded:
        traces = scanned_traces(traces, Path(config.scan_recorded))
        recorded |= {f"{trace.question_id} scan": trace.scan.values.tolist() for trace in traces if trace.scan}
    digest = identity_hash(recorded)
    name = traces[0].benchmark if traces[0].is_published else f"recorded {traces[0].benchmark}"
    return [TraceSource(name, digest, traces=tuple(traces))]


def selection_ids(config: SimulationConfig) -> set[str]:
    """Return the selection ids of `config` with the current code of its samplers."""
    series = config.seeded_series()
    return {
        _selector(source, entry, TraceEncoder(source.revision), source.scan_encoder(entry[0], config)).selection_id
        for source in trace_sources(config)
        for entry in series
    }


def _selector(
    source: TraceSource,
    series: tuple[FrameSampler, int, int],
    encoder: TraceEncoder,
    scan: ChannelEncoder | None,
    *,
    keep_pulls: bool = True,
) -> Selector:
    """The selector of a sampler, K and seed for traces of `encoder` and `scan`."""
    sampler, k, seed = series
    return Selector(
        sampler=sampler,
        encoder=encoder,
        scan_encoder=scan,
        llm=scripted_llm(sampler),
        k=k,
        seed=seed,
        coarse_seed=source.coarse_seed,
        keep_pulls=keep_pulls,
    )


def select_on(
    source: TraceSource, config: SimulationConfig, sampler: FrameSampler, k: int, number: int
) -> SelectionRow:
    """Return the row of a sampler at `k` on trace `number`, with all its pulls, for a timeline."""
    encoder = TraceEncoder(source.revision)
    trace = encoder.trace = source.trace(number, config)
    scan = source.scan_encoder(sampler, config)
    if scan is not None:
        scan.number = number
    selector = _selector(source, (sampler, k, config.seeds[0]), encoder, scan)
    return selector.recorded(_question(source, trace), UnreadVideo(path=Path(_video(trace)), info=trace.info))


def _run_source(
    source: TraceSource,
    config: SimulationConfig,
    out: Path,
    *,
    limit: int | None,
    n_workers: int,
    progress: Callable[[int, int], None],
) -> None:
    """Write the rows of all series on the traces of one source, in several processes; skip questions with a row."""
    numbers = source.numbers(config, limit)
    series = config.seeded_series()
    folders = [_part(out, source, config, sampler, k, seed) for sampler, k, seed in series]
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
    # Read finished questions once, before any worker writes: reading all rows again for every chunk would take too
    # long.
    finished = {folder: FinishedQuestions(folder, SelectionRow).ids() for folder in folders}
    chunks = list(_chunks(source, numbers))
    n_done, question_ids = 0, set[str]().union(*finished.values())
    # Fork the workers, so that they need not import a sampler's file again. Collect garbage before: in a fork,
    # OpenVINO's destructor would wait for threads that only the parent process has.
    gc.collect()
    with ProcessPoolExecutor(max(1, n_workers), mp_context=get_context("fork"), initializer=gc.freeze) as pool:
        jobs = [pool.submit(_run_chunk, source, config, finished, list(chunk)) for chunk in chunks]
        try:
            for chunk, job in zip(chunks, jobs, strict=True):
                question_ids |= job.result()
                n_done += len(chunk) * len(series)
                progress(n_done, len(numbers) * len(series))
        finally:
            # Without this the pool would finish all queued chunks after Ctrl-C.
            pool.shutdown(cancel_futures=True)
    for folder in folders:
        compact(folder, SelectionRow, sorted(question_ids, key=source.number))


def _chunks(source: TraceSource, numbers: Sequence[int]) -> Iterator[list[int]]:
    """Yield the trace numbers of each job; questions of a video stay in one job, since they share frames."""
    videos: dict[int | str, list[int]] = {}
    for number in numbers:
        videos.setdefault(number if source.world else source.traces[number].video, []).append(number)
    chunk: list[int] = []
    for video_numbers in videos.values():
        chunk += video_numbers
        if len(chunk) >= VIDEOS_AT_ONCE:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _with_shares(rows: Sequence[SelectionRow]) -> list[SelectionRow]:
    """The rows of one selection, with counts instead of pulls and with each row's share of its video's frames."""
    videos = [row.video for row in rows]
    main, scan = (
        frame_shares(videos, [np.array(frames, dtype=np.int64) for frames in lists])
        for lists in ([sorted(row.encoded_frames) for row in rows], [row.scanned_frames for row in rows])
    )
    return [
        replace(row.without_pulls(), encoded={"main": round(a, 6), "scan": round(b, 6)})
        for row, a, b in zip(rows, main.tolist(), scan.tolist(), strict=True)
    ]


def _shared_by(sampler: FrameSampler, rows: Sequence[SelectionRow]) -> list[SelectionRow]:
    """Return simulated rows with their share of frames, for a sampler with the option `shared_by`.

    A simulated video has only one question. The option assumes that `shared_by` questions of a video share the scanned
    frames, or the pulled frames if the sampler does not scan.
    """
    questions, shared = sampler.options.get("shared_by", 1.0), "scan" if sampler.needs_scan else "main"
    if questions == 1:
        return list(rows)
    parts = [{"main": row.encoded.get("main", float(row.n_scored)), "scan": float(row.frames_scanned)} for row in rows]
    return [
        replace(row, encoded={**part, shared: round(part[shared] / questions, 6)})
        for row, part in zip(rows, parts, strict=True)
    ]


def _run_chunk(
    source: TraceSource, config: SimulationConfig, finished: Mapping[Path, Set[str]], numbers: Sequence[int]
) -> set[str]:
    """Write the rows of some traces to separate files, and return the ids of their questions.

    Args:
        finished: ids of the questions that have a row, by the folder of each series, in the order of the series.
    """
    encoder = TraceEncoder(source.revision)
    series = config.seeded_series()
    # One scan source per channel: its traces are made once per video.
    scans = {sampler.options["scan_encoder"]: source.scan_encoder(sampler, config)
             for sampler, _, _ in series if sampler.needs_scan}  # fmt: skip
    parts = []
    for entry, (folder, finished_ids) in zip(series, finished.items(), strict=True):
        scan = scans.get(entry[0].options.get("scan_encoder"))
        parts.append((_selector(source, entry, encoder, scan, keep_pulls=not source.world), finished_ids, folder))
    videos: dict[str, set[str]] = {}
    for number in () if source.world else numbers:
        videos.setdefault(source.traces[number].video, set()).add(source.traces[number].question_id)
    question_ids = set()
    rows: list[list[SelectionRow]] = [[] for _ in parts]
    for number in numbers:
        trace = encoder.trace = source.trace(number, config)
        for scan in scans.values():
            if scan is not None:
                scan.number = number
        question_ids.add(trace.question_id)
        question, path = _question(source, trace), Path(_video(trace))
        for (selector, finished_ids, _), selector_rows in zip(parts, rows, strict=True):
            # Skip a video only if all its questions have rows, because their shares of the common frames must add up.
            if not videos.get(question.video, {question.id}) <= finished_ids:
                selector_rows.append(selector.recorded(question, UnreadVideo(path=path, info=trace.info)))
    for (selector, finished_ids, folder), selector_rows in zip(parts, rows, strict=True):
        written_rows = _shared_by(selector.sampler, selector_rows) if source.world else _with_shares(selector_rows)
        _append(
            folder / f"rows-{numbers[0]:06d}.jsonl",
            [row for row in written_rows if row.question_id not in finished_ids],
        )
    return question_ids


def _append(path: Path, rows: Sequence[SelectionRow]) -> None:
    """Append rows to a file of JSON lines; without rows make no file."""
    if not rows:
        return  # an empty file would mark a finished part as unfinished
    with closing(RowWriter(path)) as writer:
        for row in rows:
            writer.write(row)


def _question(source: TraceSource, trace: AnyTrace) -> Question:
    seconds = trace.info.duration_seconds
    return Question(
        benchmark=source.name,
        id=trace.question_id,
        query=QUERY,
        options=(),
        video=_video(trace),
        answer=None,
        duration_seconds=seconds,
        bucket=trace.bucket if isinstance(trace, RecordedTrace) else bucket_of(seconds),
        evidence_seconds=trace.evidence_seconds,
    )


def bucket_of(seconds: float) -> str:
    """Return "short" (under 3 minutes), "medium" (under 20), "long" (under an hour) or "hours"."""
    return "hours" if seconds >= HOURS_FROM_SECONDS else LengthEdges().bucket(seconds)


def _video(trace: AnyTrace) -> str:
    return trace.video if isinstance(trace, RecordedTrace) else f"{trace.question_id}.mp4"


def _part(out: Path, source: TraceSource, config: SimulationConfig, sampler: FrameSampler, k: int, seed: int) -> Path:
    """The folder of the rows of a sampler, K and seed, named by a hash of all settings that can change the rows."""
    default = type(sampler)().options
    changed = [f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value}"
               for name, value in sampler.options.items() if value != default[name]]  # fmt: skip
    # Hash the source even for a sampler that never pulls, because the questions come from the source.
    scan, llm = source.scan_encoder(sampler, config), scripted_llm(sampler)
    identity = selection_identity(
        sampler,
        k=k,
        seed=seed,
        encoder=TraceEncoder.name,
        encoder_revision=source.revision,
        scan_encoder=scan.name if scan else "",
        scan_encoder_revision=scan.revision if scan else "",
        llm=llm.model_id if llm else "",
        llm_revision=llm.revision if llm else "",
    )
    readable = re.sub(r"[^\w.,=+-]+", "_", f"{source.name}-{','.join([sampler.name, *changed])}-k{k}-seed{seed}")
    return out / "selections" / f"{readable}-{identity_hash(identity)[:8]}"


def _describe(config: SimulationConfig, out: Path) -> None:
    """Write `run.json`; raise InvalidInput if the folder holds a simulation with other videos."""
    file = out / "run.json"
    simulation = config.model_dump(mode="json")
    document: dict[str, object] = {"name": config.name, "simulation": simulation}
    document |= {"git": git_revision(), "versions": versions(), "tried": tried_files(config)}
    if file.exists():
        stored = read_sealed_json(file).get("simulation", {})
        for key in ("seed", "minutes", "worlds", "recorded", "scan_recorded"):
            if simulation[key] != stored.get(key, ""):  # keys added in later versions count as unset
                raise InvalidInput(
                    f"{out}: holds a simulation with another value of {key!r}; name another folder with --out"
                )
    write_sealed_json(file, document)
