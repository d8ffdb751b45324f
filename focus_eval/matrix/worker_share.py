"""Says what of a machine one worker uses to choose frames: cores that decode, videos in work, bytes of frames."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from focus_eval.matrix.config import Resources
from focus_eval.matrix.devices import gpu_gigabytes
from focus_eval.video.decoder import MOST_THREADS, n_cores

# Frames decoded and embedded at once, and how many batches of one video are held: one is embedded, one decoded, and
# one is being put together.
BATCH_FRAMES, BATCHES_HELD = 32, 3
# Threads that decode, in all, for each core: some wait with a frame that nobody has taken yet. With four for each core
# two cores took a quarter more processor time, since the threads take turns at Python's lock.
_THREADS_PER_CORE = 2
# Full-size frames that a decoding thread may have ready (see `video.prefetch`).
_HELD_BY_THREAD = 6
# Pictures that a decoder keeps for others to refer to, at half the bytes of an RGB frame each: a reader has a decoder
# for each thread and one more.
_HELD_BY_DECODER = 10


@dataclass(frozen=True)
class WorkerShare:
    """What one worker may use.

    Args:
        cores: that decode.
        frame_bytes: most memory for decoded frames of all its videos; a single video may exceed it alone.
        gpus: GPUs it holds, its share of one where several workers share it; 0 without.
    """

    cores: int
    frame_bytes: int
    gpus: float = 1.0

    @property
    def videos_at_once(self) -> int:
        """Videos in work at a time: enough that the cores decode while batches are embedded and frames chosen."""
        # Three more than the cores need: they wait for the encoder, choose, or have too few frames left for a batch.
        return self.cores // 2 + 3

    def threads_per_video(self, n_videos: int | None = None) -> int:
        """Return the threads that decode each video where `n_videos` are in work (None: as many as there can be)."""
        n_videos = min(n_videos or self.videos_at_once, self.videos_at_once)
        return max(1, min(self.cores, MOST_THREADS, _THREADS_PER_CORE * self.cores // n_videos))

    def bytes_of_video(self, width: int, height: int, *, n_threads: int) -> int:
        """Return the bytes of decoded frames that a video of this size holds at most."""
        of_decoders = _HELD_BY_DECODER * (n_threads + 1)
        return 3 * width * height * (BATCHES_HELD * BATCH_FRAMES + _HELD_BY_THREAD * n_threads + of_decoders)


def local_share(resources: Resources) -> WorkerShare:
    """Return the share of a worker that runs in this process: the cores of one GPU, or all where there is none."""
    # One process may run per GPU, so each leaves the others their cores.
    cores = resources.decode_cores or max(1, n_cores() // max(1, len(gpu_gigabytes())))
    return WorkerShare(cores, int(resources.frame_gigabytes * 1e9))


def cluster_share(resources: Resources) -> WorkerShare:
    """Return the share of a worker of a cluster: the cores that it is given there."""
    cores = resources.decode_cores or max(1, int(resources.cpus))
    return WorkerShare(cores, int(resources.frame_gigabytes * 1e9), resources.gpus)


class FrameMemory:
    """Keeps the decoded frames of all videos in work within a number of bytes.

    A video takes all it may need at once and gives it back at its end, so that no two wait for each other.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.n_bytes = 0
        self._changed = threading.Condition()

    @contextmanager
    def held(self, n_bytes: int) -> Iterator[None]:
        """Wait until `n_bytes` fit beside what others hold (or nobody holds any), and hold them for the block."""
        with self._changed:
            # A video larger than the limit goes alone, else it would wait for ever.
            self._changed.wait_for(lambda: self.n_bytes == 0 or self.n_bytes + n_bytes <= self.max_bytes)
            self.n_bytes += n_bytes
        try:
            yield
        finally:
            with self._changed:
                self.n_bytes -= n_bytes
                self._changed.notify_all()
