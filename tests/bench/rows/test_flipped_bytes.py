"""Every byte of what is stored may flip: the file is named, or nothing changes; what is lost is asked again."""

from __future__ import annotations

import os
import random
import shutil
from types import SimpleNamespace

import numpy as np
import pytest

from focus_eval.bench.matrix.config import load_matrix
from focus_eval.bench.matrix.running import complete_run
from focus_eval.bench.report.run import load_run
from focus_eval.bench.rows.store import StoredRows
from focus_eval.core.errors import DamagedFile, FocusEvalError, RunError
from focus_eval.keyframes.encoders.store import RelevanceStore
from focus_eval.keyframes.rows import files
from focus_eval.keyframes.rows.files import check_parquet, read_sealed_json
from focus_eval.keyframes.rows.records import SelectionRow
from tests.bench.matrix.conftest import write_simulation
from tests.support.bench.kills import row_digests

N_FLIPS = 300


def flips(content, *, seed):
    """Yield each byte's place, or a sample of `N_FLIPS`, with the content that has another byte there."""
    rng = random.Random(seed)
    places = range(len(content)) if len(content) <= N_FLIPS else sorted(rng.sample(range(len(content)), N_FLIPS))
    for at in places:
        yield at, content[:at] + bytes([content[at] ^ rng.choice((1, 4, 32, 128, 255))]) + content[at + 1 :]


def silent_changes(path, read, *, seed):
    """Return the places whose flip changes what `read` returns without an error that names the file."""
    content, expected, silent = path.read_bytes(), read(), []
    for at, flipped in flips(content, seed=seed):
        path.write_bytes(flipped)
        try:
            if read() != expected:
                silent.append(at)
        except FocusEvalError as error:
            if str(path) not in str(error):
                silent.append(at)
    path.write_bytes(content)
    assert read() == expected
    return silent


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory):
    """A small finished run and its matrix."""
    folder = tmp_path_factory.mktemp("flips")
    matrix = load_matrix(write_simulation(folder / "data", n_questions=6, n_videos=2, samplers=("topk", "focus")))
    complete_run(matrix, out=folder / "runs" / "run")
    return matrix, folder / "runs" / "run"


@pytest.mark.parametrize("name", ["rows.parquet", "costs.parquet"])
def test_no_flipped_byte_of_a_finished_part_is_silent(finished_run, name):
    file = next(path for path in sorted(finished_run[1].glob(f"selections/*/{name}")) if "focus" in path.parent.name)
    assert silent_changes(file, lambda: list(StoredRows(file.parent, SelectionRow)), seed=1) == []


@pytest.fixture
def part(finished_run, tmp_path):
    """The Parquet file of one finished part that nobody has read."""
    source = next(finished_run[1].glob("selections/*/rows.parquet"))
    return shutil.copy(source, tmp_path / "rows.parquet")


@pytest.mark.parametrize(("age_seconds", "n_digests"), [(1, 2), (60, 1)])
def test_only_a_file_that_is_surely_unchanged_is_not_read_again(part, monkeypatch, age_seconds, n_digests):
    digests, digest_around = [], files._digest_around
    monkeypatch.setattr(files, "_digest_around", lambda *place: digests.append(digest_around(*place)) or digests[-1])
    now = part.stat().st_ctime_ns + age_seconds * 10**9
    monkeypatch.setattr(files, "time", SimpleNamespace(time_ns=lambda: now))
    for _ in range(2):
        check_parquet(part)
    assert len(digests) == n_digests


def test_a_byte_that_flips_while_size_and_time_of_change_stay_is_found(part, monkeypatch):
    monkeypatch.setattr(files, "time", SimpleNamespace(time_ns=lambda: part.stat().st_ctime_ns + 60 * 10**9))
    check_parquet(part)
    content, state = part.read_bytes(), part.stat()
    part.write_bytes(content[:100] + bytes([content[100] ^ 1]) + content[101:])
    os.utime(part, ns=(state.st_atime_ns, state.st_mtime_ns))
    with pytest.raises(DamagedFile, match="does not match its SHA-256"):
        check_parquet(part)


def test_no_flipped_byte_of_run_json_is_silent(finished_run):
    file = finished_run[1] / "run.json"

    def read():
        document = read_sealed_json(file)
        return {key: document[key] for key in ("name", "matrix", "asked", "starts", "parts") if key in document}

    assert silent_changes(file, read, seed=2) == []


@pytest.mark.parametrize("name", ["run.json", "spec.json"])
def test_every_flipped_bit_of_a_description_stops_the_run_from_loading(finished_run, name):
    run = finished_run[1]
    file = next(path for path in (run / name, *run.glob(f"selections/*/{name}")) if path.exists())
    content, rng = file.read_bytes(), random.Random(4)
    try:
        for _ in range(60):
            at = rng.randrange(len(content))
            file.write_bytes(content[:at] + bytes([content[at] ^ 1 << rng.randrange(8)]) + content[at + 1 :])
            with pytest.raises(DamagedFile, match=name):
                load_run(run)
    finally:
        file.write_bytes(content)


def test_a_file_of_an_earlier_version_without_digest_is_read(finished_run, tmp_path):
    (tmp_path / "run.json").write_text('{"name": "old", "matrix": {}}')
    assert read_sealed_json(tmp_path / "run.json") == {"name": "old", "matrix": {}}


FRAMES = np.array([0, 1, 300, 70_000])
VECTORS = np.random.default_rng(0).normal(size=(4, 6)).astype(np.float32)
VALUES = np.array([0.0, 1.0, 0.25, 0.7])


def put_all(store):
    """Score all frames as a run would: what is known is taken, what is not is put."""
    returned = []
    for scorer, video in (("clip 1", "aa"), ("clip 1", "ab"), ("blip 2", "aa")):
        is_stored, vectors = store.embeddings(scorer, video, FRAMES)
        assert vectors.tobytes() == VECTORS[is_stored].tobytes()
        returned.append(store.put_embeddings(scorer, video, FRAMES, VECTORS))
        for query in ("a cat", "a cut"):
            values = store.relevance(scorer, video, query, FRAMES)
            np.testing.assert_array_equal(values[~np.isnan(values)], VALUES[~np.isnan(values)])
            returned.append(store.put_relevance(scorer, video, query, FRAMES, VALUES))
    return returned


@pytest.mark.slow
def test_no_flipped_byte_of_the_store_is_silent(tmp_path, capsys):
    file = tmp_path / "store.sqlite"
    video = tmp_path / "v.mp4"
    video.write_bytes(b"frames")
    store = RelevanceStore(file)
    put_all(store)
    fingerprint = store.video_fingerprint(video)
    store.close()
    content, n_named, rng = file.read_bytes(), 0, random.Random(3)
    # Most of a page is empty: the flips fall on what is not, and as many on anything.
    used = [at for at, byte in enumerate(content) if byte]
    for at in sorted({*rng.sample(used, N_FLIPS), *rng.sample(range(len(content)), N_FLIPS // 3)}):
        for old in tmp_path.glob("store.sqlite*"):
            old.unlink()
        file.write_bytes(content[:at] + bytes([content[at] ^ rng.choice((1, 4, 32, 128, 255))]) + content[at + 1 :])
        try:
            store = RelevanceStore(file)
            for values in put_all(store):
                assert values.tobytes() in (VECTORS.tobytes(), VALUES.tobytes()), at
            assert store.video_fingerprint(video) == fingerprint, at
            store.close()
        except FocusEvalError as error:
            assert str(file) in str(error), at  # noqa: PT017 (most flips end well)
            n_named += 1
    assert n_named < N_FLIPS // 10  # nearly all of a damaged store is computed again, or was not in use
    assert str(file) in capsys.readouterr().err


def test_a_store_of_an_earlier_layout_is_refused_and_stays_as_it_is(tmp_path):
    import sqlite3

    file = tmp_path / "store.sqlite"
    store = RelevanceStore(file)
    put_all(store)
    store.close()
    with sqlite3.connect(file) as old:
        old.execute("PRAGMA user_version = 1")
    old.close()
    content = file.read_bytes()
    with pytest.raises(RunError, match=f"{file}: a relevance store of layout 1, this version reads 2; delete it"):
        RelevanceStore(file)
    assert file.read_bytes() == content


@pytest.mark.parametrize("name", ["rows.parquet", "costs.parquet", "run.json", "spec.json"])
def test_a_damaged_file_is_an_error_in_a_report_and_asked_again_in_a_run(finished_run, tmp_path, capsys, name):
    matrix, whole = finished_run
    shutil.copytree(whole.parent, tmp_path / "runs", symlinks=True)
    run = tmp_path / "runs" / "run"
    file = run / name if name == "run.json" else sorted(run.glob(f"selections/*/{name}"))[0]
    content = file.read_bytes()
    file.write_bytes(content[:200] + bytes([content[200] ^ 1]) + content[201:])
    with pytest.raises(DamagedFile, match=rf"{name}.*run the matrix again"):
        list(load_run(run).selections)
    complete_run(matrix, out=run)
    assert f"{file.resolve()}: damaged, kept as {name}.damaged" in capsys.readouterr().err.replace(
        str(file), str(file.resolve())
    )
    assert file.with_name(f"{name}.damaged").read_bytes() != content
    assert row_digests(run) == row_digests(whole)
    assert load_run(run).name == "simulation"
    file.with_name(f"{name}.damaged").unlink()


def test_broken_lines_are_kept_aside_and_asked_again(finished_run, tmp_path, capsys):
    matrix, whole = finished_run
    run = tmp_path / "runs" / "run"
    complete_run(matrix, out=run)
    part = sorted(run.glob("selections/*"))[0]
    from focus_eval.keyframes.rows.json_lines import RowWriter

    rows = list(StoredRows(part, SelectionRow))
    for old in part.glob("*.parquet"):
        old.unlink()
    writer = RowWriter(part / "rows-00000000-local.jsonl")
    for row in rows:
        writer.write(row)
    writer.close()
    lines = writer.path.read_bytes().split(b"\n")
    lines[2] = lines[2].replace(b"{", b"(", 1)
    writer.path.write_bytes(b"\n".join(lines))
    complete_run(matrix, out=run)
    assert "1 damaged lines, kept as rows-00000000-local.jsonl.damaged; asked again" in capsys.readouterr().err
    assert row_digests(run) == row_digests(whole)
