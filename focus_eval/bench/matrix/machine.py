"""Measures a machine for a run: GPUs, memory, and a worker's share of both."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from focus_eval.bench.matrix.config import Resources
from focus_eval.core.errors import InvalidInput, RunError, unknown_name
from focus_eval.core.processes import memory_bytes, n_cores
from focus_eval.keyframes.video.decode_jobs import N_BATCHES
from focus_eval.keyframes.video.decode_process import OPEN_READERS

# Files that exist on Linux if a GPU driver is loaded: NVIDIA, Jetson, AMD, WSL.
_DRIVER_FILES = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/nvhost-gpu", "/dev/nvmap", "/dev/kfd", "/dev/dxg")


# Timeout of connecting to Ray: a host that drops packets would block for minutes.
RAY_SECONDS = 10


def check_engine(name: str, address: str | None = None) -> None:
    """Raise an error unless `name` is "local" or "ray", and an `address` of Ray is one.

    Raises:
        InvalidInput: "processes", an engine of earlier versions; no address of a Ray cluster.
        UnknownName: another name.
        RunError: nothing answers at the address.
    """
    if name == "processes":
        raise InvalidInput(
            "--engine processes is gone: local decodes in a process for each core by itself; leave --engine out"
        )
    if name not in ("local", "ray"):
        raise unknown_name("engine", name, ["local", "ray"])
    if name == "ray" and address is not None:
        check_ray_address(address)


def check_ray_address(address: str) -> None:
    """Raise an error unless `address` is "auto" or "local", or something listens there.

    Raises:
        InvalidInput: no address of a Ray cluster.
        RunError: nothing answers at the address.
    """
    if address in ("auto", "local"):
        return
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal():
        raise InvalidInput(f"--address {address}: give HOST:PORT or ray://HOST:PORT of a Ray cluster, or auto")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=RAY_SECONDS).close()
    except OSError as error:
        raise RunError(
            f"--address {address}: no Ray cluster answers there ({error.strerror or error}); ray status names one"
        ) from error


def best_device() -> str:
    """Return "cuda" if torch finds a GPU, else "cpu"."""
    # Do not load torch (seconds, hundreds of MB) on a machine that has no GPU driver.
    may_have_gpu = not sys.platform.startswith("linux") or any(Path(file).exists() for file in _DRIVER_FILES)
    if "torch" not in sys.modules and not may_have_gpu:
        return "cpu"
    try:
        import torch
    except ImportError:
        # A run of replayed or cheap samplers needs no torch.
        return "cpu"
    return "cuda" if torch.cuda.is_available() else "cpu"


def gpu_gigabytes() -> list[float]:
    """Return the memory of each GPU that torch finds, in gigabytes; [] without any."""
    if best_device() == "cpu":
        return []
    import torch

    return [torch.cuda.get_device_properties(index).total_memory / 1e9 for index in range(torch.cuda.device_count())]


def host_gigabytes() -> float | None:
    """Return the memory that this process may use, in gigabytes; None if the system does not report it."""
    n_bytes = memory_bytes()
    return None if n_bytes is None else n_bytes / 1e9


# Number of frames that are decoded and embedded at once.
BATCH_FRAMES = 32
# Bounds of the default memory for decoded frames of all videos that a worker has in progress.
LEAST_FRAME_GIGABYTES, MAX_FRAME_GIGABYTES = 4.0, 16.0
# Number of reference pictures that a decoder keeps; each takes half the bytes of an RGB frame.
_HELD_BY_DECODER = 10


@dataclass(frozen=True)
class WorkerResources:
    """Cores, memory and GPUs that one worker may use.

    Args:
        cores: number of cores that decode.
        frame_bytes: limit of the memory for decoded frames of all its videos; a video that needs more runs alone.
        gpus: number of GPUs that the worker holds, a fraction if workers share a GPU; 0 for none.
    """

    cores: int
    frame_bytes: int
    gpus: float = 1.0

    @property
    def videos_at_once(self) -> int:
        """Number of videos in work at a time: enough to decode while batches are embedded and frames chosen."""
        # Three more than needed to keep the cores busy, since some videos wait for the encoder, run their sampler, or
        # lack frames for a batch.
        return self.cores // 2 + 3

    def bytes_of_video(self, width: int, height: int) -> int:
        """Return the most bytes of decoded frames that a video of this size in pixels holds: its batches, its decoders.

        A process that decodes keeps a few readers open, so count about as many decoders for each video in work.
        """
        n_decoders = min(max(2, self.cores), -(-self.cores * OPEN_READERS // self.videos_at_once) + 1)
        return 3 * width * height * (N_BATCHES * BATCH_FRAMES + _HELD_BY_DECODER * n_decoders)


def local_resources(resources: Resources) -> WorkerResources:
    """Return the share of a worker that runs in this process: the cores of one GPU, or all if there is none."""
    # The user may start one process per GPU, so take only this GPU's part of the cores.
    cores = resources.decode_cores or max(1, n_cores() // max(1, len(gpu_gigabytes())))
    return WorkerResources(cores, frame_bytes(resources))


def cluster_resources(resources: Resources) -> WorkerResources:
    """Return the share of a worker of a cluster: `decode_cores`, else `cpus`, and the GPUs of `resources`."""
    cores = resources.decode_cores or max(1, int(resources.cpus))
    return WorkerResources(cores, frame_bytes(resources), resources.gpus)


def frame_bytes(resources: Resources) -> int:
    """Return the most bytes of decoded frames for a worker on this machine: as set, else a share of memory."""
    gigabytes = resources.frame_gigabytes
    if gigabytes is None:
        # With a GPU, frames stay full size: eleven 1080p videos of 0.9 GB keep 16 cores busy.
        n_gpus = len(gpu_gigabytes())
        share = (host_gigabytes() or 0.0) * min(resources.gpus, n_gpus) / n_gpus if n_gpus else 0.0
        gigabytes = min(max(LEAST_FRAME_GIGABYTES, share / 8), MAX_FRAME_GIGABYTES)
    return int(gigabytes * 1e9)


class FrameReservations:
    """Reserves memory for the decoded frames of each video in work, within a bound over all of them.

    A video reserves at once all the memory that it may need, and returns it at its end. So no two videos can wait for
    each other.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.n_bytes = 0
        self._changed = threading.Condition()

    @contextmanager
    def reserved(self, n_bytes: int) -> Iterator[None]:
        """Reserve `n_bytes` for the block; waits until they fit beside the other reservations, or there are none."""
        with self._changed:
            # Admit an oversized video when memory is free; it would never fit otherwise.
            self._changed.wait_for(lambda: self.n_bytes == 0 or self.n_bytes + n_bytes <= self.max_bytes)
            self.n_bytes += n_bytes
        try:
            yield
        finally:
            with self._changed:
                self.n_bytes -= n_bytes
                self._changed.notify_all()
