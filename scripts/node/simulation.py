"""Simulate choosing frames on a node: how busy are its GPUs, and how long does it take?

A discrete-event simulation of what `focus_eval.bench.matrix.selecting` does. Each worker has one GPU and its share of
the cores. A video is opened and then read in passes (FOCUS: coarse, fine). The frames of a pass lie in runs, one for
each group of pictures that it touches; a few runs are decoded side by side, their frames come out in order, and chunks
of them go to the encoder. Decoding holds Python's lock for a part of its time: all threads of a worker take turns
there, however many cores it has.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from event_clock import Clock, Servers

CHUNK = 32  # `worker_share.BATCH_FRAMES`
READY_FRAMES = 4  # frames that a run may have ready: `n_held` of `video.pyav.in_order_ahead`


@dataclass(frozen=True)
class Run:
    """Frames of one group of pictures: how many are requested, and how many are decoded to reach the last."""

    n_frames: int
    n_passed: int


Pass = tuple[Run, ...]


@dataclass(frozen=True)
class Job:
    """Video to read: the number of frames to index, and the passes over it."""

    n_frames: int
    passes: tuple[Pass, ...]


@dataclass(frozen=True, kw_only=True)
class Costs:
    """Measured or published costs, in seconds.

    Args:
        decode: core seconds per decoded frame, requested or only passed over.
        locked: the part of `decode` that holds Python's lock.
        open: core seconds to open a file and its decoders.
        index: core seconds per frame to index a file.
        encode: device seconds per frame of a batch.
        launch: device seconds per batch, whatever its size.
        select: seconds of the algorithm between passes.
        prepare: core seconds per frame between its decoder and its chunk.
        load: core seconds per frame to bring it from its chunk to the device.
        resize: device seconds per frame of a batch.
    """

    decode: float
    locked: float
    open: float
    index: float
    encode: float
    launch: float = 0.005
    select: float = 0.005
    prepare: float = 0.0
    load: float = 0.0
    resize: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Settings of the workers on one GPU.

    Args:
        cores: cores of all workers together.
        videos: videos that a worker reads at a time.
        threads: threads that decode one video.
        batch: frames of a full batch.
        fills: True if batches are filled across videos and padded to full size.
        processes: workers that share the GPU, each with `cores / processes` cores.
    """

    cores: int
    videos: int
    threads: int
    batch: int
    fills: bool
    processes: int = 1


@dataclass(frozen=True)
class Outcome:
    """Result of a run: seconds from the start to the last row, and the share in which the GPUs ran the encoder."""

    seconds: float
    busy: float


@dataclass
class _Gpu:
    """One GPU and the chunks that wait for it, batched as in `pipeline.batch_packer`."""

    clock: Clock
    costs: Costs
    setting: Setting
    calls: deque[list] = field(default_factory=deque)  # [frames left, then, cores of the worker]
    passes: int = 0
    waiting: int = 0
    underway: int = 0
    is_loading: bool = False
    seconds: float = 0.0

    def __post_init__(self) -> None:
        self.device = Servers(self.clock, 1)

    def embed(self, n_frames: int, then: Callable[[], None], cores: Servers) -> None:
        """Queue frames for the GPU, and call `then` once they are embedded."""
        self.calls.append([n_frames, then, cores])
        self.waiting += 1
        self.look()

    def look(self) -> None:
        """Load a batch if one is full or no more frames can come; at most two batches are under way."""
        if self.is_loading or self.underway == 2 or not self.calls:
            return
        fills, max_batch = self.setting.fills, self.setting.batch
        may_grow = self.underway or self.waiting < self.passes
        if fills and sum(call[0] for call in self.calls) < max_batch and may_grow:
            return
        n_taken, callbacks, cores = 0, [], self.calls[0][2]
        while self.calls and (n_taken == 0 or (fills and n_taken < max_batch)):
            call = self.calls[0]
            n = min(call[0], max_batch - n_taken)
            n_taken, call[0] = n_taken + n, call[0] - n
            if call[0]:
                break
            callbacks.append(call[1])
            self.calls.popleft()
        self.underway += 1
        n = max_batch if fills else n_taken
        if self.costs.load:
            self.is_loading = True
            cores.serve(self.costs.load * n, partial(self._loaded, n, callbacks))
        else:
            self._loaded(n, callbacks)

    def _loaded(self, n: int, callbacks: list[Callable[[], None]]) -> None:
        """Let the device resize and encode a batch that has arrived in its memory."""
        self.is_loading = False
        encoding = self.costs.launch + self.costs.encode * n
        self.seconds += encoding
        self.device.serve(self.costs.resize * n + encoding, partial(self._end, callbacks))
        self.look()

    def _end(self, callbacks: list[Callable[[], None]]) -> None:
        """Tell all who wait for the batch that it is done, and look for the next."""
        self.underway -= 1
        self.waiting -= len(callbacks)
        for then in callbacks:
            then()
        self.look()


@dataclass(eq=False)
class _Lane:
    """Progress of one run: frames to decode, frames decoded and ready, and frames still to take."""

    run: Run
    to_decode: int
    ready: int = 0
    to_take: int = 0
    is_started: bool = False
    is_decoding: bool = False


class _Reader:
    """One pass over one video: runs decoded side by side, their frames taken in order into chunks."""

    def __init__(self, worker: _Worker, runs: Pass, ended: Callable[[], None]) -> None:
        self._worker, self._ended = worker, ended
        self._runs = deque(runs)
        self._lanes: deque[_Lane] = deque()
        # Few runs are decoded one after another, as `PyAVReader` does.
        self._n_lanes = max(1, min(worker.setting.threads, len(runs) // 2))
        self._left = sum(run.n_frames for run in runs)
        self._chunk = 0
        self._encoding = False
        self._fill()

    def _fill(self) -> None:
        """Start further runs of frames until every lane is at work."""
        while self._runs and len(self._lanes) <= self._n_lanes:
            run = self._runs.popleft()
            self._lanes.append(_Lane(run, run.n_frames, to_take=run.n_frames))
        n_underway = sum(lane.is_started and lane.to_decode > 0 for lane in self._lanes)
        for lane in self._lanes:
            if not lane.is_started and n_underway < self._n_lanes:
                lane.is_started = True
                n_underway += 1
                self._decode(lane)

    def _decode(self, lane: _Lane) -> None:
        """Decode a lane's next frame unless enough of its frames are ready; part of it holds the lock."""
        if lane.is_decoding or not lane.to_decode or lane.ready > READY_FRAMES:
            return
        lane.is_decoding = True
        share = lane.run.n_passed / lane.run.n_frames
        costs, worker = self._worker.costs, self._worker

        def unlocked() -> None:
            worker.lock.give_back()
            worker.clock.after(share * (costs.decode - costs.locked) + costs.prepare, done)

        def done() -> None:
            worker.cores.give_back()
            self._decoded(lane)

        # A thread that holds Python's lock holds a core too.
        worker.lock.take(lambda: worker.cores.take(lambda: worker.clock.after(share * costs.locked, unlocked)))

    def _decoded(self, lane: _Lane) -> None:
        """Count the frame as ready and go on."""
        lane.is_decoding = False
        lane.to_decode, lane.ready = lane.to_decode - 1, lane.ready + 1
        self._decode(lane)
        self._take()
        self._fill()

    def _take(self) -> None:
        """Move ready frames into the chunk, and send a full or last chunk to the encoder."""
        while self._lanes and self._chunk < CHUNK:
            head = self._lanes[0]
            n = min(head.ready, CHUNK - self._chunk)
            head.ready, head.to_take = head.ready - n, head.to_take - n
            self._chunk, self._left = self._chunk + n, self._left - n
            if head.to_take:
                self._decode(head)
                break
            self._lanes.popleft()
        self._fill()
        if self._encoding or not self._chunk or (self._chunk < CHUNK and self._left):
            return
        n, self._chunk, self._encoding = self._chunk, 0, True
        self._worker.gpu.embed(n, self._embedded, self._worker.cores)
        self._take()

    def _embedded(self) -> None:
        """Go on with the pass after a chunk is embedded, or end it."""
        self._encoding = False
        if self._left or self._chunk:
            self._take()
        else:
            self._ended()


class _Worker:
    """One worker process with its cores, Python's lock and the videos it reads."""

    def __init__(self, clock: Clock, gpu: _Gpu, costs: Costs, setting: Setting, jobs: deque[Job]) -> None:
        self.gpu, self.costs, self.setting = gpu, costs, setting
        self.cores = Servers(clock, max(1, setting.cores // setting.processes))
        self.lock = Servers(clock, 1)
        self.clock, self._jobs = clock, jobs
        for _ in range(setting.videos):
            self._start_video()

    def _start_video(self) -> None:
        """Open the next video, if there is one, and go through its passes."""
        if self._jobs:
            job = self._jobs.popleft()
            opening = self.costs.open + self.costs.index * job.n_frames
            self.cores.serve(opening, partial(self._next_pass, deque(job.passes)))

    def _next_pass(self, passes: deque[Pass]) -> None:
        """Start the next pass of a video, or the next video if it was the last."""
        if not passes:
            self._start_video()
            return
        self.gpu.passes += 1
        _Reader(self, passes.popleft(), partial(self._end_pass, passes))

    def _end_pass(self, passes: deque[Pass]) -> None:
        """Choose the frames after a pass, then start the next one."""
        self.gpu.passes -= 1
        self.clock.after(self.costs.select, partial(self._next_pass, passes))
        self.gpu.look()


def simulate(videos: list[Job], costs: Costs, setting: Setting, *, gpus: int = 1) -> Outcome:
    """Simulate a node of `gpus` GPUs that chooses frames of `videos`; return its seconds and GPU busy share."""
    clock, jobs = Clock(), deque(videos)
    boards = [_Gpu(clock, costs, setting) for _ in range(gpus)]
    for _ in range(setting.processes):
        for board in boards:
            _Worker(clock, board, costs, setting, jobs)
    clock.run()
    return Outcome(clock.now, sum(board.seconds for board in boards) / gpus / clock.now)
