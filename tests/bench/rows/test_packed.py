"""Does a packed run say what the run said, wherever it is unpacked, and is a zip file of others trusted in nothing?"""

from __future__ import annotations

import io
import shutil
import stat
import zipfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from focus_eval.bench.matrix.folder import RunFolder
from focus_eval.bench.report.page.html import render_html, report_tables
from focus_eval.bench.report.rendering import to_markdown
from focus_eval.bench.report.run import load_run
from focus_eval.bench.rows.packed import SUMS_FILE, pack_run, unpack_run
from focus_eval.cli import app
from focus_eval.core.errors import DamagedFile, FocusEvalError, InvalidInput, RunError
from focus_eval.keyframes.rows.files import FolderLock
from tests.bench.report.simulated import Simulation, simulate_run


def tables_of(path):
    return [to_markdown(table) for table in report_tables(load_run(path))]


def called(*arguments):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if isinstance(result.exception, FocusEvalError):
        raise result.exception
    return result


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run whose parts are links into a pool."""
    place = tmp_path_factory.mktemp("runs")
    folder = simulate_run(place / "made", Simulation(n_questions=9, samplers=("uniform", "topk")))
    for part in sorted(folder.glob("*/longvideobench-*")) + sorted(folder.glob("*/zero_shot-*")):
        target = place / "pool" / part.parent.name / part.name
        target.parent.mkdir(parents=True, exist_ok=True)
        part.rename(target)
        part.symlink_to(f"../../pool/{part.parent.name}/{part.name}")
    return folder


@pytest.fixture(scope="module")
def packed(run, tmp_path_factory):
    out = tmp_path_factory.mktemp("packed") / "made.zip"
    pack_run(run, out)
    return out


@pytest.mark.slow
def test_a_report_is_the_same_after_pack_move_and_unpack_and_from_the_packed_run(run, packed, tmp_path):
    called("pack", "--undo", packed, "--out", tmp_path / "moved" / "made")
    assert render_html(load_run(tmp_path / "moved" / "made")) == render_html(load_run(run))
    assert tables_of(packed) == tables_of(tmp_path / "moved" / "made") == tables_of(run)


def test_compare_reads_a_packed_run(run, packed):
    assert called("compare", packed, run).output == called("compare", run, run).output


def test_the_same_run_packs_to_the_same_bytes_and_pictures_only_where_asked(run, packed, tmp_path):
    assert {name.split("/")[0] for name in pack_run(run, tmp_path / "again.zip")} == {
        "answers", "run.json", "selections",
    }  # fmt: skip
    assert (tmp_path / "again.zip").read_bytes() == packed.read_bytes()
    copied = tmp_path / "made"
    shutil.copytree(run, copied)
    (copied / "figures").mkdir()
    (copied / "figures" / "a.png").write_bytes(b"x")
    (copied / "secrets.env").write_text("KEY=1")
    assert "figures/a.png" not in pack_run(copied, tmp_path / "b.zip")
    names = pack_run(copied, tmp_path / "c.zip", pictures=True)
    assert "figures/a.png" in names
    assert "secrets.env" not in names


def test_a_copied_run_whose_links_lead_nowhere_is_named(run, tmp_path):
    shutil.copytree(run, tmp_path / "copied", symlinks=True)
    for command in (["report"], ["status"], ["pack", "--out", tmp_path / "x.zip"]):
        with pytest.raises(InvalidInput, match=r"selections/.*: its rows are not here, it is a link to .*4 of 4 parts"):
            called(command[0], tmp_path / "copied", *command[1:])
    assert not (tmp_path / "x.zip").exists()


def test_a_run_that_is_written_is_not_packed(run, tmp_path):
    with FolderLock(run / ".lock"), pytest.raises(RunError, match="another run writes here; pack it"):
        pack_run(run, tmp_path / "x.zip")
    assert not (tmp_path / "x.zip").exists()


def zipped(path, entries):
    """Write a zip file of (name or ZipInfo, content)."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in entries:
            file.writestr(name, content)
    return path


def link(name):
    entry = zipfile.ZipInfo(name)
    entry.external_attr = (stat.S_IFLNK | 0o777) << 16
    return entry


SUMS = (f"r/{SUMS_FILE}", "")


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([SUMS, ("r/../../out.txt", "x")], "leads out of its folder"),
        ([SUMS, ("/out.txt", "x")], "leads out of its folder"),
        ([SUMS, ("r/..\\out.txt", "x")], "a character that no path of a run has"),
        ([SUMS, (link("r/selections"), "/etc")], "is a link"),
        ([SUMS, SUMS], "is there twice"),
        ([("r/run.json", "{}")], f"has no {SUMS_FILE}"),
        ([SUMS, ("s/run.json", "{}")], f"has no {SUMS_FILE} in one folder"),
        ([SUMS, ("r/run.json", "{}")], r"'run.json' is not both in it and in its"),
        ([(SUMS[0], f"{'0' * 64}  run.json"), ("r/run.json", "{}")], "run.json does not match its SHA-256"),
        ([SUMS, ("r/zeros", bytes(70_000_000))], "bytes that would become 70,000,000"),
    ],
)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_zip_file_that_is_no_packed_run_is_one_line_and_leaves_nothing(tmp_path, entries, message):
    file = zipped(tmp_path / "x.zip", entries)
    for command in (("pack", "--undo", file, "--out", tmp_path / "a" / "run"), ("report", file)):
        with pytest.raises(InvalidInput, match=message):
            called(*command)
    assert sorted(path.name for path in tmp_path.rglob("*")) in (["a", "x.zip"], ["x.zip"])


def test_an_entry_that_holds_more_than_it_states_is_refused(tmp_path):
    file = zipped(tmp_path / "x.zip", [SUMS, ("r/zeros", bytes(30_000_000))])
    content = file.read_bytes()
    # Both places that state the size: the entry's head and the directory.
    file.write_bytes(content.replace((30_000_000).to_bytes(4, "little"), (10).to_bytes(4, "little")))
    with zipfile.ZipFile(file) as packed:
        assert packed.getinfo("r/zeros").file_size == 10
    with pytest.raises(InvalidInput):
        unpack_run(file, tmp_path / "run")


def test_a_cut_or_flipped_file_is_named(packed, tmp_path):
    content = packed.read_bytes()
    for damaged in (content[:-30], b"", content[:3000] + bytes([content[3000] ^ 1]) + content[3001:]):
        (tmp_path / "x.zip").write_bytes(damaged)
        with pytest.raises(DamagedFile, match=r"x\.zip: .*copy"):
            unpack_run(tmp_path / "x.zip", tmp_path / "run")
        assert [path.name for path in tmp_path.iterdir()] == ["x.zip"]


def test_nothing_is_unpacked_over_what_is_there(packed, tmp_path):
    (tmp_path / "run").mkdir()
    unpack_run(packed, tmp_path / "run")
    assert load_run(tmp_path / "run").answers
    with pytest.raises(InvalidInput, match="is there already"):
        unpack_run(packed, tmp_path / "run")


def test_any_zip_file_of_ours_lists_what_it_holds(packed):
    with zipfile.ZipFile(io.BytesIO(packed.read_bytes())) as file:
        sums = file.read(f"made/{SUMS_FILE}").decode().splitlines()
        assert {f"made/{line[66:]}" for line in sums} | {f"made/{SUMS_FILE}"} == set(file.namelist())


def test_an_object_store_is_refused_with_what_to_do(run):
    with pytest.raises(InvalidInput, match="pack to a file here"):
        pack_run(run, Path("s3://bucket/made.zip"))


def test_a_run_cannot_write_its_rows_into_an_object_store():
    with (
        pytest.raises(InvalidInput, match="s3://bucket/run: rows are appended, linked and locked"),
        RunFolder(Path("s3://bucket/run")).locked(),
    ):
        pass
