"""Makes the selections of one video for all configurations that need them."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from threading import Lock

from focus_eval.bench.matrix.cells import SelectionSpec
from focus_eval.bench.matrix.config import EncoderConfig
from focus_eval.bench.matrix.folder import RunFolder
from focus_eval.bench.matrix.machine import BATCH_FRAMES, FrameReservations, WorkerResources
from focus_eval.bench.matrix.questions import QuestionSet, video_paths
from focus_eval.core.errors import FocusEvalError, RunError
from focus_eval.keyframes.encoders.base import Encoder
from focus_eval.keyframes.encoders.cache import FeatureCache
from focus_eval.keyframes.encoders.registry import make_encoder
from focus_eval.keyframes.encoders.store import RelevanceStore
from focus_eval.keyframes.llms.registry import Model, llm_of
from focus_eval.keyframes.pipeline.batch_packer import BatchPacker
from focus_eval.keyframes.pipeline.pass_progress import PassLengths, PassProgress
from focus_eval.keyframes.pipeline.rendezvous_batcher import RendezvousBatcher
from focus_eval.keyframes.pipeline.selector import (
    Encoding,
    Outcome,
    QuestionRequest,
    Selector,
    choose_on_video,
)
from focus_eval.keyframes.pipeline.source import UnreadVideo
from focus_eval.keyframes.pipeline.timing import SharedClock, charged_rows
from focus_eval.keyframes.rows.json_lines import RowWriter
from focus_eval.keyframes.rows.records import SelectionRow
from focus_eval.keyframes.video.feed import DecodeProcesses, n_processes_for
from focus_eval.keyframes.video.reader import VideoReader
from focus_eval.keyframes.video.verification import note_first_sight

# Limit of the memory for image states that are kept for further questions of a video, if an encoder stores no
# embeddings.
FEATURE_CACHE_BYTES = 2 << 30


@dataclass(frozen=True)
class SelectJob:
    """Questions of one video that have no row yet, served together.

    `missing` holds their ids by selection name.
    """

    video: str
    benchmark: str
    missing: dict[str, list[str]]

    @property
    def n_rows(self) -> int:
        """Number of rows that this job will write."""
        return sum(len(ids) for ids in self.missing.values())

    def without(self, finished_ids: Mapping[str, Collection[str]]) -> SelectJob:
        """Return this job without the questions in `finished_ids`, ids by selection name."""
        open_ids = {
            spec: [item for item in ids if item not in finished_ids[spec]] for spec, ids in self.missing.items()
        }
        return SelectJob(self.video, self.benchmark, {spec: ids for spec, ids in open_ids.items() if ids})


def select_jobs(specs: list[SelectionSpec], sets: dict[str, QuestionSet], folder: RunFolder) -> list[SelectJob]:
    """Return jobs for the questions without a row, in the annotations' order.

    Selections with `share_frames` get one job per video, which embeds each frame once. Selections without it get one
    job
    per question.
    """
    finished_ids = {spec.name: folder.finished(spec).ids() for spec in specs}
    jobs = []
    for name, questions in sets.items():
        benchmark_specs = [spec for spec in specs if spec.benchmark.name == name]
        # One job for all of a video's questions and samplers: their frames are decoded in one pass.
        shared_specs = [spec.name for spec in benchmark_specs if spec.share_frames]
        for video, video_questions in questions.by_video.items():
            ids = [question.id for question in video_questions]
            jobs.append(SelectJob(video, name, dict.fromkeys(shared_specs, ids)))
            separate_specs = [spec.name for spec in benchmark_specs if not spec.share_frames]
            # Each question pays for all its frames, so it must run alone.
            jobs += [SelectJob(video, name, {spec: [item]}) for spec in separate_specs for item in ids]
    return [open_job for job in jobs if (open_job := job.without(finished_ids)).n_rows]


class SelectWorker:
    """Makes selections, one video after another; loads each encoder once, and writes its own files of rows."""

    def __init__(
        self,
        specs: list[SelectionSpec],
        sets: dict[str, QuestionSet],
        folder: RunFolder,
        *,
        name: str,
        store: Path | None,
        share: WorkerResources,
    ) -> None:
        self._share = share
        self._processes = DecodeProcesses(n_processes_for(video_paths(sets.values()), share.cores))
        self._memory = FrameReservations(share.frame_bytes)
        self._batches = BatchPacker()
        self._specs = {spec.name: spec for spec in specs}
        self._sets = sets
        self._folder = folder
        self._name = name
        self._store = RelevanceStore(store) if store is not None else None
        self._scorers: dict[str, Encoder] = {}
        self._kept: dict[str, FeatureCache] = {}
        self._llms: dict[str, Model | None] = {"": None}
        self._selectors: dict[str, Selector] = {}
        self._writers: dict[str, RowWriter] = {}
        self._clock = SharedClock()
        self._load_seconds = 0.0
        self._pass_lengths = PassLengths()
        self._noted: dict[str, Counter[str]] = {}
        self._booked: dict[str, float] = {}
        # Two locks, so that writing a row does not wait for an encoder to load.
        self._writing, self._starting = Lock(), Lock()
        self._underway: set[RendezvousBatcher] = set()
        self._stopped_by: BaseException | None = None

    def run_all(
        self,
        jobs: list[SelectJob],
        *,
        on_row: Callable[[SelectionRow], None] | None = None,
        on_work: Callable[[SelectJob, float], None] | None = None,
    ) -> None:
        """Run all `jobs`, a few videos at once to keep cores and encoder busy. The first failure ends all."""
        for spec in dict.fromkeys(name for job in jobs for name in job.missing):
            self._selector(spec)  # load the encoders in this thread, where Ctrl-C can interrupt
        reads_videos = any(self._sets[job.benchmark].config.videos for job in jobs)
        # Without videos nothing waits for a disk or a decoder, so threads would gain nothing.
        n_at_once = self._share.videos_at_once if reads_videos else 1
        with ThreadPoolExecutor(n_at_once, thread_name_prefix="video") as pool:
            waiting = iter(jobs)

            def submit(job: SelectJob) -> Future[None]:
                return pool.submit(self.run, job, on_row=on_row, on_work=partial(on_work, job) if on_work else None)

            # Submit a few jobs at a time, since the futures of a hundred thousand jobs would take a lot of memory.
            futures = {submit(job) for job in islice(waiting, 4 * n_at_once)}
            try:
                while futures:
                    ended, futures = wait(futures, return_when=FIRST_COMPLETED)
                    for future in ended:
                        # Raise the error that ended a video here, where all other videos can be stopped.
                        future.result()
                    futures |= {submit(job) for job in islice(waiting, len(ended))}
            except BaseException as error:  # only this thread gets an interrupt, so it stops the others
                self._stop(error)
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def run(
        self,
        job: SelectJob,
        *,
        on_row: Callable[[SelectionRow], None] | None = None,
        on_work: Callable[[float], None] | None = None,
    ) -> None:
        """Write the rows of one job; a question that fails gets a row with the error.

        All questions and samplers are served together: a frame is decoded and embedded once for all of them, and its
        time is divided among their rows. May be called from several threads.
        """
        questions = self._sets[job.benchmark]
        by_id = {question.id: question for question in questions.by_video[job.video]}
        with self._starting:
            path, bucket_of = questions.video_path(job.video), questions.benchmark.bucket
            requests = [
                QuestionRequest(selector=self._selector(spec), question=by_id[item], bucket_of=bucket_of)
                for spec, ids in job.missing.items()
                for item in ids
            ]
            for spec in job.missing:
                if spec not in self._writers:
                    self._writers[spec] = self._folder.writer(self._specs[spec], self._name)
            writers = [self._writers[spec] for spec, ids in job.missing.items() for _ in ids]
            # Hold one lock throughout, so that two starting videos do not load an encoder twice.
            loading, self._load_seconds = self._load_seconds, 0.0  # time spent loading encoders since the last video
        if not questions.config.videos:
            # Without a folder of videos no frame can be read: only lengths and rates are known.
            for request, writer in zip(requests, writers, strict=True):
                try:
                    source = UnreadVideo(path=path, info=questions.info(request.question))
                    outcome = request.attempt(source)
                except FocusEvalError as error:  # the length of the video is stated nowhere
                    if isinstance(error, RunError):
                        raise
                    outcome = Outcome(error=error)
                self._write(writer, request, request.row_of(outcome), on_row)
                if on_work is not None:
                    on_work(1 / len(requests))
            return
        progress = PassProgress(self._pass_lengths, on_work or (lambda share: None))
        with self._clock.job() as device_seconds:
            rows = self._rows_of_video(path, requests, progress)
            # The seconds of threads overlap, so scale them: the rows of a video must add up to the time that the device
            # was held.
            rows = charged_rows(rows, device_seconds(), loading=loading, gpus=self._share.gpus)
            rows = self._with_device_seconds(
                rows, [self._specs[spec] for spec, ids in job.missing.items() for _ in ids]
            )
        if self._store is not None and path.exists() and (sha256 := self._store.known_fingerprint(path)):
            note_first_sight(Path(questions.config.videos), path, sha256=sha256)
        for writer, request, row in zip(writers, requests, rows, strict=True):
            self._write(writer, request, row, on_row)
        progress.end()
        self._note_recoveries()

    def _with_device_seconds(self, rows: list[SelectionRow], specs: list[SelectionSpec]) -> list[SelectionRow]:
        """Return rows with the seconds that their encoders' devices computed since they were last asked.

        Several videos are served at the same time, so rows of one video may get seconds of another; sums over a run are
        right.
        """
        with self._writing:
            for name, scorer in self._scorers.items():
                users = [
                    at
                    for at, (row, spec) in enumerate(zip(rows, specs, strict=True))
                    if row.seconds and name in {encoder.name for encoder in spec.encoders}
                ]
                so_far = scorer.device_seconds
                if not users or not so_far:  # without a clock
                    continue
                seconds = (so_far - self._booked.get(name, 0.0)) * (self._share.gpus or 1.0) / len(users)
                self._booked[name] = so_far
                for at in users:
                    booked = rows[at].seconds.get("device", 0.0) + seconds
                    rows[at] = replace(rows[at], seconds={**rows[at].seconds, "device": round(booked, 9)})
        return rows

    def _rows_of_video(self, path: Path, requests: list[QuestionRequest], progress: PassProgress) -> list[SelectionRow]:
        """Return the row of each request about one video, decoded once.

        A video that cannot be opened gives error rows.
        """
        try:
            backend = requests[0].selector.backend
            reader = self._processes.open_video(path, backend=backend, n_threads=1, kept=self._store)
        except RunError:
            raise
        except Exception as error:  # noqa: BLE001 (recorded: one video never ends a run)
            # Give all questions this error: opening a file again that crashed a decoding process would crash this
            # process.
            return [request.row_of(Outcome(error=error)) for request in requests]
        n_bytes = self._share.bytes_of_video(reader.width, reader.height)
        # Reserve memory before the batcher starts, so that no frame is decoded without room for it.
        with reader, self._memory.reserved(n_bytes), self._batcher(reader, progress) as batcher:
            outcomes = choose_on_video(reader, requests, batcher=batcher)
        return [request.row_of(outcome) for request, outcome in zip(requests, outcomes, strict=True)]

    def _write(
        self,
        writer: RowWriter,
        request: QuestionRequest,
        row: SelectionRow,
        on_row: Callable[[SelectionRow], None] | None,
    ) -> None:
        """Append the row, and pass it to `on_row`; a row that cannot be written as JSON becomes an error row."""
        with self._writing:
            try:
                writer.write(row)
            except (TypeError, ValueError) as error:  # a fact of the sampler cannot be written as JSON
                # Write an error row, since a question without a row would be tried again at every start.
                row = request.row_of(Outcome(error=error))
                writer.write(row)
            if on_row is not None:
                on_row(row)

    def close(self) -> None:
        """Close the files, end the processes that decode, and release the encoders."""
        self._processes.close()
        for writer in self._writers.values():
            writer.close()
        for features in self._kept.values():  # on the GPU, which the encoders empty when they close
            features.clear()
        for scorer in self._scorers.values():
            scorer.close()
        for llm in self._llms.values():
            if llm is not None:
                llm.close()

    def _note_recoveries(self) -> None:
        """Record the encoders' recoveries since the last video in the run's folder."""
        with self._writing:
            for encoder, scorer in self._scorers.items():
                so_far, noted = Counter(scorer.recoveries), self._noted.get(encoder, Counter())
                # Write only new counts: readers sum over all lines.
                if fresh := so_far - noted:
                    self._folder.note_recoveries(self._name, encoder, dict(fresh))
                    self._noted[encoder] = so_far

    @contextmanager
    def _batcher(self, reader: VideoReader, progress: PassProgress) -> Iterator[RendezvousBatcher]:
        """Open a batcher that `_stop` can stop."""
        batcher = RendezvousBatcher(reader, batch_size=BATCH_FRAMES, progress=progress)
        with self._starting:
            # A video that begins after the stop must stop too.
            if self._stopped_by is not None:
                raise self._stopped_by
            self._underway.add(batcher)
        try:
            yield batcher
        finally:
            with self._starting:
                self._underway.discard(batcher)

    def _stop(self, error: BaseException) -> None:
        """Make the questions of all videos in work fail with `error`."""
        if isinstance(error, Exception) and not isinstance(error, RunError):
            # Use RunError, which writes no error row, since the questions of these videos did not fail themselves.
            error = RunError(f"stopped: {error}").with_traceback(error.__traceback__)
        with self._starting:
            self._stopped_by = error
            for batcher in self._underway:
                batcher.stop(error)

    def _selector(self, spec_name: str) -> Selector:
        """The selector of a selection, made with its encoders at first use."""
        if spec_name not in self._selectors:
            spec = self._specs[spec_name]
            # Selections that name the same model share one object, and so its limit `max_cost`.
            llm = str(spec.sampler.options.get("llm", "")) if spec.sampler.needs_llm else ""
            if llm not in self._llms:
                self._llms[llm] = llm_of(spec.sampler)
            self._selectors[spec_name] = Selector(
                sampler=spec.sampler,
                encoder=self._scorer(spec.encoder) if spec.encoder else None,
                scan_encoder=self._scorer(spec.scan_encoder) if spec.scan_encoder else None,
                llm=self._llms[llm],
                k=spec.k,
                seed=spec.seed,
                store=self._store if spec.share_frames else None,
                coarse_seed=spec.coarse_seed,
                query=spec.query,
                backend=spec.backend,
                timeline=spec.timeline,
                encoding=Encoding(
                    feature_cache=self._features_of(spec.encoder, spec),
                    scan_feature_cache=self._features_of(spec.scan_encoder, spec),
                    share_frames=spec.share_frames,
                    batches=self._batches,
                ),
            )
        return self._selectors[spec_name]

    def _features_of(self, encoder: EncoderConfig | None, spec: SelectionSpec) -> FeatureCache | None:
        """The cache of the encoder's features; None without encoder, or if questions are served alone."""
        # Without sharing there is no cache, since the selection must pay for all its frames itself.
        if encoder is None or not spec.share_frames:
            return None
        return self._kept.setdefault(encoder.name, FeatureCache(FEATURE_CACHE_BYTES))

    def _scorer(self, encoder: EncoderConfig) -> Encoder:
        """The encoder, loaded at first use; raises RunError if it cannot load. Loading seconds are noted."""
        if encoder.name not in self._scorers:
            started = time.perf_counter()
            print(f"loading encoder {encoder.name}", file=sys.stderr, flush=True)
            try:
                self._scorers[encoder.name] = make_encoder(encoder.encoder, **encoder.options)
            except FocusEvalError as error:
                raise RunError(f"encoder {encoder.name!r}: {error}") from error
            self._load_seconds += time.perf_counter() - started
        return self._scorers[encoder.name]
