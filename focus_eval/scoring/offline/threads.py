"""Loads the offline encoder's networks once per process, and says how they compute."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import numpy as np
import openvino
from numpy.typing import NDArray

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


def single_threaded(n_threads: int) -> dict[str, Any]:
    """Return OpenVINO's settings for `n_threads` requests at a time, each computed by one thread, in float32."""
    return {
        "INFERENCE_PRECISION_HINT": "f32",  # some processors would round to bfloat16 unasked
        "NUM_STREAMS": n_threads,
        "INFERENCE_NUM_THREADS": n_threads,
        "ENABLE_CPU_PINNING": False,  # several processes would be pinned to the same processor
    }


def constant(values: NDArray[np.float32]) -> Any:
    """Return `values` as a node of OpenVINO's graph; given an array, its operators would make a list of it first."""
    return openvino.op.Constant(np.ascontiguousarray(values))


def load_weights(path: Path, load: Callable[[], Any]) -> Any:
    """Return `load()`; a file that is gone or damaged is one clear error."""
    try:
        return load()
    except Exception as error:  # pickle, safetensors and tokenizers each raise their own kinds
        raise MissingWeights(f"{path}: cannot be read ({error}); reinstall the package it belongs to") from error
