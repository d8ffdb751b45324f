"""Imitates a GPU and decoders of measured speed, and counts how often Python's lock is taken.

The encoder is BLIP-large with narrow tensors: it launches the real operations, while a clock says how long the device
computes. A batch takes as long as the device needs, or as launching takes if that is longer: its processor seconds and
the wait for Python's lock. The codec is a sleep of the length, and in threads of the worker with as many releases of
the lock, as decoding a frame was measured to have.

Lock: CPython's `drop_gil` and `take_gil` signal a condition each, which lie in `_PyRuntime`. A preloaded library, built
here, counts these signals and times the waits for them; unlike a wrapper of `PyEval_SaveThread` it also sees the lock
change hands inside the interpreter, and it works whether or not calls within libpython can be replaced.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from focus_eval.keyframes.encoders.blip import LAVIS as RULES
from focus_eval.keyframes.encoders.blip import BlipOptions, BlipScorer
from focus_eval.keyframes.video.pyav import PyAVReader

# Measured on an H200 on 2026-11-28: BLIP-large in TF32, a batch of 32.
IMAGE_SECONDS, TEXT_SECONDS = 0.072, 0.008
# Measured with 360p at 1.25 frames a second: releases of the lock, and seconds, for each frame that is asked for.
RELEASES_A_FRAME, DECODE_SECONDS = 300, 0.018
_SET_TIMER_SLACK = 29  # PR_SET_TIMERSLACK of linux/prctl.h
_COUNTER = "FOCUS_EVAL_LOCK_COUNTER"
_SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

static char *runtime_start, *runtime_end;
static atomic_ullong signals;
static __thread unsigned long long own_signals, own_wait_ns;
static int (*real_signal)(pthread_cond_t *);
static int (*real_wait)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);

static void *find(const char *name) {
    void *function = dlvsym(RTLD_NEXT, name, "GLIBC_2.3.2");
    return function ? function : dlsym(RTLD_NEXT, name);
}
__attribute__((constructor)) static void begin(void) {
    real_signal = find("pthread_cond_signal");
    real_wait = find("pthread_cond_timedwait");
    Dl_info info;
    ElfW(Sym) *symbol = 0;
    char *runtime = dlsym(RTLD_DEFAULT, "_PyRuntime");
    if (runtime && dladdr1(runtime, &info, (void **)&symbol, RTLD_DL_SYMENT) && symbol) {
        runtime_start = runtime;
        runtime_end = runtime + symbol->st_size;
    }
}
static int is_lock(void *condition) { return (char *)condition >= runtime_start && (char *)condition < runtime_end; }
int pthread_cond_signal(pthread_cond_t *condition) {
    if (is_lock(condition)) { atomic_fetch_add(&signals, 1); own_signals++; }
    return real_signal(condition);
}
int pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex, const struct timespec *until) {
    if (!is_lock(condition)) return real_wait(condition, mutex, until);
    struct timespec start, end;
    clock_gettime(CLOCK_MONOTONIC, &start);
    int result = real_wait(condition, mutex, until);
    clock_gettime(CLOCK_MONOTONIC, &end);
    own_wait_ns += 1000000000ull * (end.tv_sec - start.tv_sec) + end.tv_nsec - start.tv_nsec;
    return result;
}
unsigned long long all_signals(void) { return signals; }
unsigned long long thread_signals(void) { return own_signals; }
unsigned long long thread_wait_ns(void) { return own_wait_ns; }
"""


class LockCounter:
    """Counts how often this process takes Python's lock, and how long a thread waits for it.

    Raises:
        RuntimeError: the process was not started by `with_lock_counter`.
    """

    def __init__(self) -> None:
        path = os.environ.get(_COUNTER)
        if path is None:
            raise RuntimeError("the library that counts is not loaded")
        self._library = ctypes.PyDLL(path)  # whose calls keep the lock
        for name in ("all_signals", "thread_signals", "thread_wait_ns"):
            getattr(self._library, name).restype = ctypes.c_ulonglong

    def acquisitions(self) -> float:
        """Return how often all threads took the lock so far; each time signals one condition, giving it up another."""
        return float(self._library.all_signals() / 2)

    def of_thread(self) -> tuple[float, float]:
        """Return how often this thread took the lock so far, and the seconds that it waited for it."""
        return self._library.thread_signals() / 2, self._library.thread_wait_ns() / 1e9


def with_lock_counter(folder: Path, module: str, arguments: list[str]) -> int:
    """Run a module in a process of its own with the library that counts; return its exit code."""
    library = folder / "lock_counter.so"
    (folder / "lock_counter.c").write_text(_SOURCE)
    command = ["cc", "-O2", "-shared", "-fPIC", "-o", str(library), str(folder / "lock_counter.c"), "-ldl"]
    subprocess.run(command, check=True)
    environment = {**os.environ, "LD_PRELOAD": str(library), _COUNTER: str(library)}
    return subprocess.run([sys.executable, "-m", module, *arguments], env=environment, check=False).returncode


class FakeGpuScorer(BlipScorer):
    """BLIP with narrow tensors on a device whose seconds a clock states; stays open for several workers.

    Attributes:
        seconds: of the device so far.
        n_frames: encoded so far.
        takes, wait_seconds: of the lock while operations were launched.
        launch_cpu_seconds: processor seconds of the operations, which a GPU would compute.
    """

    fills_batches = True
    counter: LockCounter | None = None
    is_timed = True

    def reset(self) -> None:
        """Set all counts to 0."""
        self.seconds = self.takes = self.wait_seconds = self.launch_cpu_seconds = 0.0
        self.n_frames, self._free_at = 0, 0.0
        self._text_sizes: list[int] = []

    @property
    def device_seconds(self) -> float:
        """Seconds that the device computed."""
        return self.seconds

    def prepare(self, frames):
        """Return the frames: a GPU resizes them."""
        return frames

    def _pixel_values(self, *parts):
        """Copy the frames into a buffer, as a GPU's are, and go on with some of their pixels."""
        if not hasattr(self, "_staging") or self._staging.nbytes < sum(part.nbytes for part in parts):
            self._staging = np.empty(sum(part.nbytes for part in parts), np.uint8)
        at = 0
        for part in parts:
            np.copyto(self._staging[at : at + part.nbytes].reshape(part.shape), part)
            at += part.nbytes
        return super()._pixel_values(*(np.ascontiguousarray(part[:, ::24, ::24]) for part in parts))

    def queue_parts(self, parts):
        """Launch the image tower; the result is there when the device's time is over."""
        features, ready_at = self._launched(IMAGE_SECONDS, lambda: super(FakeGpuScorer, self).queue_parts(parts)())
        self.n_frames += sum(map(len, parts))

        def finish():
            self._wait(ready_at)
            return features

        return finish

    def relevance_many(self, features, queries):
        """Launch the text tower, and wait for the device."""
        self._text_sizes.append(len(features))
        values, ready_at = self._launched(
            TEXT_SECONDS * len(features) / 32, lambda: super(FakeGpuScorer, self).relevance_many(features, queries)
        )
        self._wait(ready_at)
        return values

    def seconds_alone(self) -> float:
        """Return the device's seconds for as many batches where nothing decodes; sets the counts to 0."""
        n_batches, sizes = self.n_frames // 32, self._text_sizes
        self.reset()
        features = self.embed(np.zeros((32, 360, 640, 3), np.uint8))
        self.reset()
        for _ in range(n_batches):
            features = self.embed(np.zeros((32, 360, 640, 3), np.uint8))
        for size in sizes:
            self.relevance(features[:size], "alone")
        seconds = self.seconds
        self.reset()
        return seconds

    def close(self) -> None:
        """Do nothing: the next worker needs the weights."""

    def _launched(self, seconds: float, launch: Any) -> tuple[Any, float]:
        """Return what a function that launches operations returns, and when the device has computed them."""
        n_acquired, waited = self.counter.of_thread() if self.counter else (0.0, 0.0)
        started, cpu_started = time.perf_counter(), time.thread_time()
        result = launch()
        takes_after, waited_after = self.counter.of_thread() if self.counter else (0.0, 0.0)
        cpu_seconds, wait_seconds = time.thread_time() - cpu_started, waited_after - waited
        self.takes += takes_after - n_acquired
        self.wait_seconds += wait_seconds
        self.launch_cpu_seconds += cpu_seconds
        begins = max(started, self._free_at)
        # Not the time by the clock: others who use the same cores are no matter of this process.
        device_seconds = max(seconds, cpu_seconds + wait_seconds)
        self._free_at = begins + device_seconds
        self.seconds += device_seconds
        return result, self._free_at

    def _wait(self, ready_at: float) -> None:
        if self.is_timed:
            time.sleep(max(0.0, ready_at - time.perf_counter()))


def fake_gpu_scorer() -> FakeGpuScorer:
    """Return the encoder with random weights: as many operations as BLIP-large, on tensors of 16 numbers."""
    from dataclasses import replace

    import torch
    from transformers import BlipConfig, BlipForImageTextRetrieval

    from tests.support.keyframes.random_weights import blip_scorer, random_blip

    torch.manual_seed(0)
    torch.set_num_threads(1)  # narrow tensors are computed sooner than threads meet
    narrow = {"hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2}
    config = BlipConfig(
        image_text_hidden_size=16,
        vision_config={**narrow, "num_hidden_layers": 24, "image_size": 32, "patch_size": 16},
        text_config={**narrow, "num_hidden_layers": 12, "encoder_hidden_size": 16, "vocab_size": 30524},
    )
    model, tokenizer = BlipForImageTextRetrieval(config).eval(), random_blip("tiny", image_size=32)[1]
    options = BlipOptions(device="cpu", batch_size=32, resize="device")
    rules = replace(RULES, text_heads=2)
    scorer = blip_scorer(model, tokenizer, rules=rules, options=options, scorer_class=FakeGpuScorer)
    scorer.reset()
    for _ in range(3):  # the first calls choose kernels
        scorer.relevance(scorer.embed(np.zeros((32, 360, 640, 3), np.uint8)), "warm up")
    scorer.reset()
    return scorer


def fake_codec(*, releases: int) -> None:
    """Replace decoding, in this process, by sleep; the pixels of a frame depend on its number alone.

    Args:
        releases: of the lock, for each frame.
    """
    # Sleeps as short as these last twice as long with the usual slack. New threads inherit it.
    ctypes.CDLL(None).prctl(_SET_TIMER_SLACK, 1, 0, 0, 0)

    def run(
        self: PyAVReader, decoder: Any, index: Any, run: Any, *, convert: bool = True
    ) -> Iterator[tuple[int, np.ndarray]]:
        for number in run.frames.tolist():
            for _ in range(releases if os.environ.get("FOCUS_EVAL_FAKE_CODEC") == "timed" else 0):
                time.sleep(DECODE_SECONDS / releases)
            decoder.n_decoded += 1
            yield number, np.full((self.height, self.width, 3), number * 37 % 251, np.uint8)

    PyAVReader._run = run  # type: ignore[method-assign]
