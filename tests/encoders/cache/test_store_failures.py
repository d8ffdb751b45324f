"""A store that cannot be read or written is one clear line."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from focus_eval.core.errors import RunError
from focus_eval.encoders.store import RelevanceStore

from .conftest import SCORER, VIDEO, vectors_of


def test_a_file_that_is_no_database_is_named(tmp_path):
    path = tmp_path / "notes.sqlite"
    path.write_text("not a database " * 100)
    with pytest.raises(RunError, match=r"notes\.sqlite: damaged, or not a relevance store .*delete it"):
        RelevanceStore(path)
    assert path.read_text().startswith("not a database")


def test_a_database_of_another_program_is_left_alone(tmp_path):
    path = tmp_path / "other.sqlite"
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE series (id INTEGER)")
    before = path.read_bytes()
    with pytest.raises(RunError, match=r"other\.sqlite: a database of another program.*choose another file"):
        RelevanceStore(path)
    assert path.read_bytes() == before


def test_a_store_of_another_layout_is_refused(store, path):
    store.close()
    with sqlite3.connect(path) as other:
        other.execute("PRAGMA user_version = 99")
    with pytest.raises(
        RunError, match=r"store\.sqlite: a relevance store of layout 99, this version reads 1; delete it"
    ):
        RelevanceStore(path)


def test_a_store_damaged_in_the_middle_says_so(store, path):
    frames = np.arange(2000)
    store.put_embeddings(SCORER, VIDEO, frames, vectors_of(frames, d=384))
    store.close()
    with open(path, "r+b") as file:
        file.seek(16384)
        file.write(b"\xff" * (path.stat().st_size - 32768))
    with pytest.raises(RunError, match=r"store\.sqlite: damaged, or not a relevance store .*delete it"):
        RelevanceStore(path).embeddings(SCORER, VIDEO, frames)


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match=r"store\.sqlite: the store cannot be made here"):
        RelevanceStore(tmp_path / "file" / "store.sqlite")
    with pytest.raises(RunError, match="the store cannot be used"):
        RelevanceStore(tmp_path)


LIMITED = """
    import os, resource, sys
    import numpy as np
    from focus_eval.core.errors import RunError
    from focus_eval.encoders.store import RelevanceStore
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


def limited(path, what):
    command = [sys.executable, "-c", textwrap.dedent(LIMITED), str(path), what]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_a_read_only_folder_is_one_clear_line(tmp_path):
    folder = tmp_path / "locked"
    folder.mkdir()
    tmp_path.chmod(0o755)
    folder.chmod(0o555)
    said = limited(folder / "store.sqlite", "read-only")
    folder.chmod(0o755)
    assert "store.sqlite: the store cannot be" in said
    assert said.count("\n") == 1


def test_a_file_that_may_not_grow_is_one_clear_line_and_keeps_what_it_has(path):
    said = limited(path, "no space")
    assert said.startswith(f"{path}: ")
    assert "space" in said
    assert said.count("\n") == 1
    store = RelevanceStore(path)
    np.testing.assert_array_equal(store.relevance("s", "v", "q", np.arange(4)), np.arange(4) / 4)
    found, vectors = store.embeddings("s", "v", np.arange(2000))
    assert (found.sum() % 64, (vectors == 1).all()) == (0, True)


def test_a_disk_that_is_full_is_one_clear_line(path):
    full = RelevanceStore(path)
    full._connected().execute("PRAGMA max_page_count = 20")  # SQLite answers as on a full disk
    with pytest.raises(RunError, match=r"store\.sqlite: no space left"):
        full.put_embeddings(SCORER, VIDEO, np.arange(2000), vectors_of(np.arange(2000), d=384))
    assert not full.embeddings(SCORER, VIDEO, np.arange(2000))[0].any()
