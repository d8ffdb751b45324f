"""Does a folder that gives no locks end with its name and what to do? Is a file that two write whole?"""

from __future__ import annotations

import errno
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from filelock import Timeout

from focus_eval.bench.matrix.folder import RunFolder
from focus_eval.core.errors import RunError
from focus_eval.core.files import replace_file
from focus_eval.keyframes.rows.files import FolderLock


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.ENOLCK, r"\(No locks available\); use a folder on a local disk, or mount it with locks"),
        (errno.EROFS, r"\(Read-only file system\); copy it to a folder that can be written"),
    ],
)
def test_a_file_system_that_gives_no_lock_is_named(tmp_path, monkeypatch, number, remedy):
    def no_locks(*args):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("fcntl.flock", no_locks)
    match = rf"{tmp_path}/run: cannot be locked {remedy}"
    with pytest.raises(RunError, match=match), RunFolder(tmp_path / "run").locked():
        pass


def test_a_lock_that_another_holds_is_no_missing_lock(tmp_path):
    with FolderLock(tmp_path / ".lock"), pytest.raises(Timeout):
        FolderLock(tmp_path / ".lock", timeout=0).acquire()


def test_two_threads_that_write_one_file_each_write_it_whole(tmp_path):
    barrier = threading.Barrier(2)

    def written(text):
        with replace_file(tmp_path / "file") as part:
            part.write_text(text)
            barrier.wait(60)
        return part

    with ThreadPoolExecutor(2) as pool:
        parts = set(pool.map(written, ["a" * 9, "b" * 9]))
    assert len(parts) == 2
    assert (tmp_path / "file").read_text() in ("a" * 9, "b" * 9)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
