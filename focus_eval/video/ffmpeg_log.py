"""Collects errors that FFmpeg logs while this thread demuxes or decodes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import av.logging

_QUIET = -8
_lock = threading.Lock()
_n_listeners = 0
_sets_level = False
_other_capture: av.logging.Capture | None = None


@contextmanager
def errors_logged() -> Iterator[list[str]]:
    """Collect each error that FFmpeg logs in this thread, as `source: message`; the list is filled when the block ends.

    Errors of FFmpeg's own threads are not collected. FFmpeg has one log per process: inside the block it logs errors,
    and those of other threads are dropped. If the program set a level itself (`av.logging`), that level is kept and
    other threads' lines go to its handler.
    """
    _start()
    errors: list[str] = []
    try:
        with av.logging.Capture(local=True) as lines:
            try:
                yield errors
            finally:
                errors += [f"{name}: {text.strip()}" for level, name, text in lines if level <= av.logging.ERROR]
    finally:
        _stop()


def _start() -> None:
    """Begin to collect FFmpeg's errors; the first listener of the process raises its log level."""
    global _n_listeners, _sets_level, _other_capture
    with _lock:
        _n_listeners += 1
        if _n_listeners > 1:
            return
        level = av.logging.get_level()
        _sets_level = level is None or (_sets_level and level == av.logging.ERROR)
        if _sets_level:
            _other_capture = av.logging.Capture(local=False)
            _other_capture.__enter__()
        if _sets_level or level is None or level < av.logging.ERROR:
            av.logging.set_level(av.logging.ERROR)
        av.logging.set_skip_repeated(False)


def _stop() -> None:
    """End collecting; the last listener of the process restores the log level."""
    global _n_listeners, _other_capture
    with _lock:
        _n_listeners -= 1
        if _n_listeners or not _sets_level:
            return
        # Not `set_level(None)`: a thread that is just logging would meet None where PyAV compares levels. FFmpeg's
        # own function, told to print nothing, needs no Python lock either.
        av.logging.set_libav_level(_QUIET)
        av.logging.restore_default_callback()
        if _other_capture is not None:
            _other_capture.__exit__(None, None, None)
            _other_capture = None
