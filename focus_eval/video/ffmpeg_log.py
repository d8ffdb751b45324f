"""Hears what FFmpeg logs as an error while this thread demuxes or decodes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import av.logging

_QUIET = -8
_lock = threading.Lock()
_n_listeners = 0
_is_ours = False
_others: av.logging.Capture | None = None


@contextmanager
def errors_logged() -> Iterator[list[str]]:
    """Collect `source: message` of every error that FFmpeg logs in this thread; what its own threads log is not heard.

    FFmpeg's log is one for the process. While anybody listens, it is on at the level of errors, and what other
    threads log is dropped, as it is when nobody listens. Where the program set a level itself (`av.logging`), that
    level is kept and other threads' lines go where it sends them.
    """
    _start()
    heard: list[str] = []
    try:
        with av.logging.Capture(local=True) as lines:
            try:
                yield heard
            finally:
                heard += [f"{name}: {text.strip()}" for level, name, text in lines if level <= av.logging.ERROR]
    finally:
        _stop()


def _start() -> None:
    global _n_listeners, _is_ours, _others
    with _lock:
        _n_listeners += 1
        if _n_listeners > 1:
            return
        level = av.logging.get_level()
        _is_ours = level is None or (_is_ours and level == av.logging.ERROR)
        if _is_ours:
            _others = av.logging.Capture(local=False)
            _others.__enter__()
        if _is_ours or level is None or level < av.logging.ERROR:
            av.logging.set_level(av.logging.ERROR)
        av.logging.set_skip_repeated(False)


def _stop() -> None:
    global _n_listeners, _others
    with _lock:
        _n_listeners -= 1
        if _n_listeners or not _is_ours:
            return
        # Not `set_level(None)`: a thread that is just logging would meet None where PyAV compares levels. FFmpeg's
        # own function, told to print nothing, needs no Python lock either.
        av.logging.set_libav_level(_QUIET)
        av.logging.restore_default_callback()
        if _others is not None:
            _others.__exit__(None, None, None)
            _others = None
