"""Threads and processes share one store, also when one of them is killed."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest

from focus_eval.core.errors import RunError
from focus_eval.encoders.store import RelevanceStore

from .conftest import QUERY, SCORER, VIDEO, vectors_of


def test_threads_share_one_store(store):
    def work(writer):
        for start in range(0, 200, 20):
            frames = np.arange(start, start + 20)
            store.put_embeddings(SCORER, f"video {writer}", frames, vectors_of(frames, writer=writer))

    threads = [threading.Thread(target=work, args=(writer,)) for writer in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for writer in range(8):
        found, vectors = store.embeddings(SCORER, f"video {writer}", np.arange(200))
        assert found.all()
        np.testing.assert_array_equal(vectors, vectors_of(np.arange(200), writer=writer))


RIVAL = """
    import sys, time
    from pathlib import Path
    import numpy as np
    from focus_eval.encoders.store import RelevanceStore
    folder, writer = Path(sys.argv[1]), int(sys.argv[2])
    print("ready", flush=True)
    while not (folder / "go").exists():
        time.sleep(0.001)
    store, kept = RelevanceStore(folder / "store.sqlite", lock_seconds=600), []
    for start in range(0, 400, 16):
        frames = np.arange(start, start + 16)
        vectors = np.repeat((frames + writer / 16).astype(np.float32)[:, None], 8, axis=1)
        kept.append(store.put_embeddings("s", "v", frames, vectors))
    np.save(folder / f"{writer}.npy", np.concatenate(kept))
"""


def started(code, *arguments):
    command = [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    process.stdout.readline()
    return process


def test_processes_that_make_one_store_and_score_the_same_frames_go_on_with_the_same_numbers(tmp_path):
    processes = [started(RIVAL, tmp_path, writer) for writer in range(4)]
    (tmp_path / "go").touch()
    assert [process.wait(timeout=600) for process in processes] == [0, 0, 0, 0]
    stored = RelevanceStore(tmp_path / "store.sqlite").embeddings("s", "v", np.arange(400))[1]
    for writer in range(4):
        np.testing.assert_array_equal(np.load(tmp_path / f"{writer}.npy"), stored)
    writers = (stored[:, 0] - np.arange(400)) * 16
    assert set(writers.tolist()) <= {0.0, 1.0, 2.0, 3.0}
    assert all((block == block[0]).all() for block in writers.reshape(-1, 16)), "a put is kept whole or not at all"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_writes_beside_its_parent(store, path):
    store.put_relevance(SCORER, VIDEO, QUERY, np.array([1]), np.array([0.5]))
    child = os.fork()
    if child == 0:
        known = store.relevance(SCORER, VIDEO, QUERY, np.array([1]))[0]
        store.put_relevance(SCORER, VIDEO, QUERY, np.array([2]), np.array([known / 2]))
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    store.put_relevance(SCORER, VIDEO, QUERY, np.array([3]), np.array([0.75]))
    np.testing.assert_array_equal(
        RelevanceStore(path).relevance(SCORER, VIDEO, QUERY, np.array([1, 2, 3])), [0.5, 0.25, 0.75]
    )


WRITER = """
    import sys
    import numpy as np
    from focus_eval.encoders.store import RelevanceStore
    store = RelevanceStore(sys.argv[1])
    for start in range(int(sys.argv[2]), 10**9, 64):
        frames = np.arange(start, start + 64)
        store.put_embeddings("s", "v", frames, np.repeat(frames.astype(np.float32)[:, None], 384, axis=1))
        print(start, flush=True)
"""


def test_a_writer_killed_in_the_middle_loses_at_most_the_put_it_was_in(path):
    start = 0
    for n_puts in (1, 2, 4, 6, 8):
        process = started(WRITER, path, start)  # which waits for the first put
        said = [process.stdout.readline() for _ in range(n_puts)]
        process.send_signal(signal.SIGKILL)
        said += process.stdout.read().split()
        assert process.wait() == -signal.SIGKILL
        done = int(said[-1]) + 64
        store = RelevanceStore(path)
        found, vectors = store.embeddings("s", "v", np.arange(done + 64))
        assert found[:done].all(), "what a put returned from is kept"
        assert found[done:].all() or not found[done:].any(), "a put is kept whole or not at all"
        np.testing.assert_array_equal(vectors[:, 0], np.flatnonzero(found))
        assert sqlite3.connect(path).execute("PRAGMA integrity_check").fetchone() == ("ok",)
        store.close()
        start = int(found.sum())
    assert start >= (1 + 2 + 4 + 6 + 8 + 5) * 64


def test_a_lock_held_too_long_is_one_clear_line(store, path):
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    waiting = RelevanceStore(path, lock_seconds=0.2)
    with pytest.raises(RunError, match=r"store\.sqlite: another process held the store for more than 0\.2 s"):
        waiting.put_relevance(SCORER, VIDEO, QUERY, np.array([1]), np.array([0.5]))
    assert np.isnan(waiting.relevance(SCORER, VIDEO, QUERY, np.array([1]))), "reading does not wait"
    holder.execute("ROLLBACK")
    waiting.put_relevance(SCORER, VIDEO, QUERY, np.array([1]), np.array([0.5]))
    assert store.relevance(SCORER, VIDEO, QUERY, np.array([1])) == 0.5
