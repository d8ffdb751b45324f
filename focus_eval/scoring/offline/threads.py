"""Loads the offline encoder's networks once per process and shares its processors."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import torch

from focus_eval.errors import MissingWeights

NetworkT = TypeVar("NetworkT")


def shared(kind: type[NetworkT]) -> NetworkT:
    """Return this process's network of `kind`: made once, dropped when the last scorer lets go of it."""
    with _lock:
        network = _alive.get(kind)
        if network is None:
            network = _alive[kind] = kind()
        return network


_lock = threading.Lock()
_alive: WeakValueDictionary[type, Any] = WeakValueDictionary()


def pool_of_single_threads(n_threads: int) -> ThreadPoolExecutor:
    """Return a pool whose threads each compute without helpers; the caller's own number of threads stays."""
    ready = threading.Barrier(n_threads + 1)

    def compute_alone() -> None:
        torch.get_num_threads()  # torch gives a thread the process's number when it first asks: not after the next line
        torch.set_num_threads(1)
        ready.wait()

    pool = ThreadPoolExecutor(n_threads, thread_name_prefix="offline-scorer", initializer=compute_alone)
    for _ in range(n_threads):
        pool.submit(int)  # each starts a thread, for all wait in the barrier
    ready.wait()
    torch.set_num_threads(n_threads)  # parts of torch keep one number for the whole process
    return pool


def load_weights(path: Path, load: Callable[[], Any]) -> Any:
    """Return `load()`; a file that is gone or damaged is one clear error."""
    try:
        return load()
    except Exception as error:  # pickle, safetensors and tokenizers each raise their own kinds
        raise MissingWeights(f"{path}: cannot be read ({error}); reinstall the package it belongs to") from error
