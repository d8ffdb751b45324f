"""Does a folder that gives no locks end with its name and what to do?"""

from __future__ import annotations

import errno
import os

import pytest
from filelock import Timeout

from focus_eval.core.errors import RunError
from focus_eval.matrix.folder import RunFolder
from focus_eval.rows.locks import FolderLock


def test_a_file_system_without_locks_is_named(tmp_path, monkeypatch):
    def no_locks(*args):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("fcntl.flock", no_locks)
    match = rf"{tmp_path}/run: cannot be locked \(No locks available\); use a folder on a local disk, or mount it"
    with pytest.raises(RunError, match=match), RunFolder(tmp_path / "run").locked():
        pass


def test_a_lock_that_another_holds_is_no_missing_lock(tmp_path):
    with FolderLock(tmp_path / ".lock"), pytest.raises(Timeout):
        FolderLock(tmp_path / ".lock", timeout=0).acquire()
