"""The relevance store gives back what was put, to the bit, whoever else writes and whenever somebody is killed."""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import sqlite3
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import numpy as np
import pytest

from focus_eval.core.errors import InvalidInput, RunError, VideoError
from focus_eval.keyframes.encoders.store import RelevanceStore
from focus_eval.keyframes.video.manifest import file_state

# A store in a file of its own.


SCORER, VIDEO, QUERY = "offline rev 1", "0123abcd", "a cat"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "kept" / "store.sqlite"


@pytest.fixture
def store(path):
    store = RelevanceStore(path)
    yield store
    store.close()


def vectors_of(frames, *, writer=0, d=8):
    """Embeddings that tell frame and writer: each is one number, `d` times."""
    return np.repeat((np.asarray(frames) + writer / 16).astype(np.float32)[:, None], d, axis=1)


# The relevance store gives back what was put, to the bit, whoever else writes and whenever somebody is killed.


def test_embeddings_come_back_to_the_bit_in_asked_order_with_repeats(store):
    frames = np.array([7, 3, 900_000_000_000, 0])
    vectors = np.random.default_rng(0).normal(size=(4, 384)).astype(np.float32)
    vectors[0, :3] = (np.float32(1e-45), -0.0, np.finfo(np.float32).max)
    np.testing.assert_array_equal(store.put_embeddings(SCORER, VIDEO, frames, vectors), vectors)
    is_stored, back = store.embeddings(SCORER, VIDEO, np.array([0, 5, 7, 7, 900_000_000_000]))
    np.testing.assert_array_equal(is_stored, [True, False, True, True, True])
    assert back.dtype == np.float32
    assert back.tobytes() == vectors[[3, 0, 0, 2]].tobytes()


def test_relevance_comes_back_to_the_bit_and_nan_where_unknown(store):
    frames, values = np.arange(50) * 3, np.random.default_rng(0).random(50)
    values[:3] = (0.0, 1.0, np.nextafter(0, 1))
    store.put_relevance(SCORER, VIDEO, QUERY, frames, values)
    back = store.relevance(SCORER, VIDEO, QUERY, np.arange(150))
    np.testing.assert_array_equal(back[::3], values)
    assert np.isnan(back.reshape(50, 3)[:, 1:]).all()


def test_nothing_known_and_nothing_asked_are_empty(store):
    is_stored, vectors = store.embeddings(SCORER, VIDEO, np.array([1, 2]))
    assert (is_stored.tolist(), vectors.shape) == ([False, False], (0, 0))
    nothing = np.array([], dtype=np.int64)
    assert store.embeddings(SCORER, VIDEO, nothing)[0].shape == (0,)
    assert store.put_embeddings(SCORER, VIDEO, nothing, np.empty((0, 8), np.float32)).shape == (0, 8)
    assert store.put_relevance(SCORER, VIDEO, QUERY, nothing, np.empty(0)).shape == (0,)


@pytest.mark.parametrize("series", [("rev 2", VIDEO, QUERY), (SCORER, "ffff", QUERY), (SCORER, VIDEO, "a dog")])
def test_scorer_video_and_query_each_keep_their_own(store, series):
    frames = np.array([1, 2])
    store.put_relevance(SCORER, VIDEO, QUERY, frames, np.array([0.25, 0.5]))
    assert np.isnan(store.relevance(*series, frames)).all()
    store.put_relevance(*series, frames, np.array([0.75, 1.0]))
    np.testing.assert_array_equal(store.relevance(SCORER, VIDEO, QUERY, frames), [0.25, 0.5])


def test_what_was_put_first_stays_and_is_what_a_later_put_returns(store):
    store.put_embeddings(SCORER, VIDEO, np.array([1, 2]), vectors_of([1, 2], writer=1))
    stored = store.put_embeddings(SCORER, VIDEO, np.array([3, 2]), vectors_of([3, 2], writer=2))
    np.testing.assert_array_equal(stored, np.concatenate([vectors_of([3], writer=2), vectors_of([2], writer=1)]))
    store.put_relevance(SCORER, VIDEO, QUERY, np.array([1]), np.array([0.5]))
    np.testing.assert_array_equal(
        store.put_relevance(SCORER, VIDEO, QUERY, np.array([1, 2]), np.array([0.1, 0.2])), [0.5, 0.2]
    )


def test_a_long_unicode_query_is_a_key(store):
    query = "多少只猫 🐈 " * 1250
    store.put_relevance(SCORER, VIDEO, query, np.array([4]), np.array([0.5]))
    assert store.relevance(SCORER, VIDEO, query, np.array([4])) == 0.5
    assert np.isnan(store.relevance(SCORER, VIDEO, query + "x", np.array([4]))).all()


@pytest.mark.parametrize(
    "wrong",
    [
        lambda s: s.put_embeddings(SCORER, VIDEO, np.array([1]), np.zeros((1, 4))),
        lambda s: s.put_embeddings(SCORER, VIDEO, np.array([1, 2]), np.zeros((1, 4), np.float32)),
        lambda s: s.put_embeddings(SCORER, VIDEO, np.array([1]), np.full((1, 4), np.nan, np.float32)),
        lambda s: s.put_relevance(SCORER, VIDEO, QUERY, np.array([1]), np.array([np.nan])),
        lambda s: s.put_relevance(SCORER, VIDEO, QUERY, np.array([1]), np.array([1.01])),
        lambda s: s.put_relevance(SCORER, VIDEO, QUERY, np.array([1, 2]), np.array([0.5])),
        lambda s: s.put_relevance(SCORER, VIDEO, "", np.array([1]), np.array([0.5])),
    ],
    ids=["float64", "too few", "nan vector", "nan", "above one", "too few values", "no query"],
)
def test_what_no_scorer_may_give_is_refused_and_not_kept(store, wrong):
    with pytest.raises(InvalidInput):
        wrong(store)
    assert not store.embeddings(SCORER, VIDEO, np.array([1]))[0].any()
    assert np.isnan(store.relevance(SCORER, VIDEO, QUERY, np.array([1]))).all()


def test_a_closed_store_opens_again_and_another_sees_what_it_kept(store, path):
    store.put_embeddings(SCORER, VIDEO, np.array([1]), vectors_of([1]))
    store.close()
    for reader in (RelevanceStore(path), store, pickle.loads(pickle.dumps(store))):
        np.testing.assert_array_equal(reader.embeddings(SCORER, VIDEO, np.array([1]))[1], vectors_of([1]))


def test_a_store_made_anew_at_the_same_path_forgets_the_old_numbers(store, path):
    store.put_relevance(SCORER, "other video", QUERY, np.array([1]), np.array([0.5]))
    store.put_relevance(SCORER, VIDEO, QUERY, np.array([1]), np.array([0.25]))
    store.close()
    path.unlink()
    store.put_relevance(SCORER, VIDEO, QUERY, np.array([1]), np.array([0.75]))
    assert store.relevance(SCORER, VIDEO, QUERY, np.array([1])) == 0.75
    assert np.isnan(store.relevance(SCORER, "other video", QUERY, np.array([1])))


def test_the_fingerprint_is_of_the_content_not_of_the_name(store, tmp_path):
    first, copy, third = (tmp_path / name for name in ("a.mp4", "b.mkv", "c.mp4"))
    first.write_bytes(b"frames" * 1000)
    shutil.copy(first, copy)
    third.write_bytes(b"Frames" + b"frames" * 999)
    prints = [store.video_fingerprint(item) for item in (first, copy, third)]
    assert prints[0] == prints[1] != prints[2]
    third.write_bytes(b"frames" * 1000)
    assert store.video_fingerprint(third) == prints[0]


def test_a_file_is_hashed_once_while_it_stays_the_same(store, path, tmp_path, monkeypatch):
    video = tmp_path / "clip.mp4"
    video.write_bytes(b"frames")
    fingerprint = store.video_fingerprint(video)
    monkeypatch.setattr("focus_eval.keyframes.encoders.store.content_hash", lambda _: pytest.fail("hashed again"))
    monkeypatch.chdir(tmp_path)
    assert RelevanceStore(path).video_fingerprint("clip.mp4") == fingerprint


def test_a_video_whose_name_is_not_utf8_is_kept_as_others_are(store, tmp_path):
    video = tmp_path / os.fsdecode(b"caf\xe9.mp4")
    video.write_bytes(b"frames")
    assert store.video_fingerprint(video) == store.known_fingerprint(video)
    store.keep_scan(video, file_state(video), b"scan")
    assert store.kept_scan(video, file_state(video)) == b"scan"


def test_a_video_that_is_not_there_is_named(store, tmp_path):
    with pytest.raises(VideoError, match=r"gone\.mp4: No such file"):
        store.video_fingerprint(tmp_path / "gone.mp4")
    with pytest.raises(VideoError, match="Is a directory"):
        store.video_fingerprint(Path(tmp_path))


# A store that cannot be read or written is one clear line.


def test_a_file_that_is_no_database_is_named(tmp_path):
    path = tmp_path / "notes.sqlite"
    path.write_text("not a database " * 100)
    with pytest.raises(RunError, match=r"notes\.sqlite: no relevance store, .*choose another file"):
        RelevanceStore(path)
    assert path.read_text().startswith("not a database")


def test_a_database_of_another_program_is_left_alone(tmp_path):
    path = tmp_path / "other.sqlite"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE series (id INTEGER)")
    content = path.read_bytes()
    with pytest.raises(RunError, match=r"other\.sqlite: a database of another program.*choose another file"):
        RelevanceStore(path)
    assert path.read_bytes() == content


def test_a_store_of_another_layout_is_refused(store, path):
    store.close()
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA user_version = 99")
    with pytest.raises(
        RunError, match=r"store\.sqlite: a relevance store of layout 99, this version reads 2; delete it"
    ):
        RelevanceStore(path)


def test_a_store_damaged_in_the_middle_is_kept_aside_and_begun_again(store, path, capsys):
    frames = np.arange(2000)
    store.put_embeddings(SCORER, VIDEO, frames, vectors_of(frames, d=384))
    store.close()
    with open(path, "r+b") as file:
        file.seek(16384)
        file.write(b"\xff" * (path.stat().st_size - 32768))
    damaged = path.read_bytes()
    reopened = RelevanceStore(path)
    assert not reopened.embeddings(SCORER, VIDEO, frames)[0].any()
    assert "kept as store.sqlite.damaged; what it held is computed again" in capsys.readouterr().err
    assert path.with_name("store.sqlite.damaged").read_bytes() == damaged
    np.testing.assert_array_equal(
        reopened.put_embeddings(SCORER, VIDEO, frames, vectors_of(frames)), vectors_of(frames)
    )


def test_a_value_that_stands_at_another_frame_is_not_given_out(store, path):
    store.put_embeddings(SCORER, VIDEO, np.array([3, 7]), vectors_of([3, 7]))
    store.close()
    with sqlite3.connect(path) as database:
        database.execute("UPDATE embedding SET vector = (SELECT vector FROM embedding WHERE frame = 7) WHERE frame = 3")
    assert not store.embeddings(SCORER, VIDEO, np.array([3]))[0].any()


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match=r"store\.sqlite: the store cannot be made here"):
        RelevanceStore(tmp_path / "file" / "store.sqlite")
    with pytest.raises(RunError, match="a folder; name a file in it"):
        RelevanceStore(tmp_path)


LIMITED = """
    import os, resource, sys
    import numpy as np
    from focus_eval.core.errors import RunError
    from focus_eval.keyframes.encoders.store import RelevanceStore
    path, what = sys.argv[1:]
    if what == "read-only":
        if os.geteuid() == 0:
            os.seteuid(65534)
    else:
        store = RelevanceStore(path)
        store.put_relevance("s", "v", "q", np.arange(4), np.arange(4) / 4)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
    try:
        if what == "read-only":
            RelevanceStore(path)
        for start in range(0, 10**6, 64):
            store.put_embeddings("s", "v", np.arange(start, start + 64), np.ones((64, 384), np.float32))
    except RunError as error:
        print(error)
"""


def limited(path, limit):
    command = [sys.executable, "-c", textwrap.dedent(LIMITED), str(path), limit]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_a_read_only_folder_is_one_clear_line(tmp_path):
    folder = tmp_path / "locked"
    folder.mkdir()
    tmp_path.chmod(0o755)
    folder.chmod(0o555)
    message = limited(folder / "store.sqlite", "read-only")
    folder.chmod(0o755)
    assert "store.sqlite: the store cannot be" in message
    assert message.count("\n") == 1


def test_a_file_that_may_not_grow_is_one_clear_line_and_keeps_what_it_has(path):
    message = limited(path, "no space")
    assert message.startswith(f"{path}: ")
    assert "space" in message
    assert message.count("\n") == 1
    store = RelevanceStore(path)
    np.testing.assert_array_equal(store.relevance("s", "v", "q", np.arange(4)), np.arange(4) / 4)
    is_stored, vectors = store.embeddings("s", "v", np.arange(2000))
    assert (is_stored.sum() % 64, (vectors == 1).all()) == (0, True)


def test_a_disk_that_is_full_is_one_clear_line(path):
    full = RelevanceStore(path)
    full._connected().execute("PRAGMA max_page_count = 20")  # SQLite answers as on a full disk
    with pytest.raises(RunError, match=r"store\.sqlite: no space left"):
        full.put_embeddings(SCORER, VIDEO, np.arange(2000), vectors_of(np.arange(2000), d=384))
    assert not full.embeddings(SCORER, VIDEO, np.arange(2000))[0].any()


# Threads and processes share one store, also when one of them is killed.


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
        is_stored, vectors = store.embeddings(SCORER, f"video {writer}", np.arange(200))
        assert is_stored.all()
        np.testing.assert_array_equal(vectors, vectors_of(np.arange(200), writer=writer))


RIVAL = """
    import sys, time
    from pathlib import Path
    import numpy as np
    from focus_eval.keyframes.encoders.store import RelevanceStore
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
        value = store.relevance(SCORER, VIDEO, QUERY, np.array([1]))[0]
        store.put_relevance(SCORER, VIDEO, QUERY, np.array([2]), np.array([value / 2]))
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    store.put_relevance(SCORER, VIDEO, QUERY, np.array([3]), np.array([0.75]))
    np.testing.assert_array_equal(
        RelevanceStore(path).relevance(SCORER, VIDEO, QUERY, np.array([1, 2, 3])), [0.5, 0.25, 0.75]
    )


WRITER = """
    import sys
    import numpy as np
    from focus_eval.keyframes.encoders.store import RelevanceStore
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
        lines = [process.stdout.readline() for _ in range(n_puts)]
        process.send_signal(signal.SIGKILL)
        lines += process.stdout.read().split()
        assert process.wait() == -signal.SIGKILL
        n_stored = int(lines[-1]) + 64
        store = RelevanceStore(path)
        is_stored, vectors = store.embeddings("s", "v", np.arange(n_stored + 64))
        assert is_stored[:n_stored].all(), "what a put returned from is kept"
        assert is_stored[n_stored:].all() or not is_stored[n_stored:].any(), "a put is kept whole or not at all"
        np.testing.assert_array_equal(vectors[:, 0], np.flatnonzero(is_stored))
        assert sqlite3.connect(path).execute("PRAGMA integrity_check").fetchone() == ("ok",)
        store.close()
        start = int(is_stored.sum())
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


def test_another_decoder_has_values_of_its_own_and_values_without_one_are_read(store):
    frames, vectors = np.array([1, 2]), np.eye(2, dtype=np.float32)
    store.put_embeddings("offline", "abc", frames[:1], vectors[:1])
    store.put_embeddings("offline", "abc libavcodec 61", frames[1:], vectors[1:])
    is_stored, stored_vectors = store.embeddings("offline", "abc libavcodec 61", frames)
    assert is_stored.tolist() == [True, True]
    assert stored_vectors.tolist() == vectors.tolist()
    assert store.embeddings("offline", "abc libavcodec 62", frames)[0].tolist() == [True, False]
    assert store.embeddings("offline", "abc", frames)[0].tolist() == [True, False]
