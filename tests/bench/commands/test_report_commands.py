"""report, recall, import and compare as they are called; recall of evidence in every unit."""

from __future__ import annotations

import base64
import errno
import gzip
import io
import json
import multiprocessing
import os
import re
import shutil
from dataclasses import replace

import numpy as np
import pytest

from focus_eval.bench.commands.reports import _reading_processes
from focus_eval.bench.report import run as run_module
from focus_eval.bench.report.page.thumbnails import evidence_frames, thumbnail_maker
from focus_eval.bench.report.run import load_run
from focus_eval.core.errors import InvalidInput, RunError, VideoError
from focus_eval.keyframes.rows.json_lines import RowWriter
from tests.bench.report.simulated import Simulation, simulate_run
from tests.support.bench.commands import called
from tests.support.keyframes.clips import write_clip

# report, recall, import and compare as they are called.


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory):
    simulation = Simulation(n_questions=48, models=("llava_video_7b",))
    return simulate_run(tmp_path_factory.mktemp("runs") / "by_length", simulation, anchors="by_length")


@pytest.mark.usefixtures("unsaved_figures")
def test_a_folder_that_cannot_be_written_is_an_error_that_names_the_option_for_another(run_folder, monkeypatch):
    def refuse(path, *arguments, **options):
        raise OSError(errno.EROFS, "Read-only file system", str(path))

    message = r"cannot be written \(Read-only file system\); name another folder: --out FOLDER"
    with monkeypatch.context() as patch:
        patch.setattr("pathlib.Path.unlink", refuse)
        with pytest.raises(InvalidInput, match=message):
            called("report", run_folder, "--no-html")
    with monkeypatch.context() as patch:
        patch.setattr("os.replace", refuse)
        with pytest.raises(InvalidInput, match=message):
            called("report", run_folder.parent)
    (run_folder / "report.md").unlink(missing_ok=True)
    with pytest.raises(InvalidInput, match=r"cannot be written .*: --out FOLDER"):
        called("report", run_folder, "--out", "/sys/report", "--no-html")


@pytest.fixture
def run_with_other_frames(tmp_path):
    """A run in which three answers were given to other frames than the chosen ones, one of them after a fallback."""
    folder = simulate_run(tmp_path / "run", Simulation(n_questions=8, models=("llava_video_7b",)))
    file = sorted((folder / "answers").glob("*/*.jsonl"))[0]
    rows = [json.loads(text) for text in file.read_text().splitlines()]
    for row in rows[:3]:
        row["fed_frames"] = [0, 1, 2]
    rows[2]["fallback"] = "aks"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder, rows


@pytest.mark.slow
def test_answers_to_other_frames_than_the_chosen_are_a_fault_in_the_first_lines(run_with_other_frames):
    folder, rows = run_with_other_frames
    output = called("report", folder)
    assert output.startswith("fault: 2 of "), output[:300]
    assert f"question {rows[0]['question_id']}): their accuracy is not that of the chosen frames" in output
    assert (folder / "report.md").read_text().startswith("**Fault: 2 of ")
    page = (folder / "report.html").read_text()
    assert page.index('<p class="fault">Fault: 2 of ') < page.index('id="results"')


def test_report_writes_all_its_files_beside_the_rows(run_folder):
    output = called("report", run_folder)
    names = ("report.md", "report.tex", "report.csv", "report-overview.csv", "report.html", "methods.md")
    for name in (*names, "references.bib"):
        assert (run_folder / name).stat().st_size > 300
        assert name in output
    assert {file.suffix for file in (run_folder / "figures").iterdir()} == {".pdf", ".png"}
    assert "paper 63.5" in output
    assert "| longvideobench | focus |" in (run_folder / "report.md").read_text()


@pytest.mark.usefixtures("unsaved_figures")
def test_a_table_too_long_to_print_names_the_files_it_is_in(run_folder, monkeypatch):
    monkeypatch.setattr("focus_eval.bench.commands.reports._MAX_ROWS_PRINTED", 0)
    names = re.findall(r"in (report.md) and (\S+)", called("report", run_folder, "--no-html"))
    assert len(names) > 1
    for file in {file for pair in names for file in pair}:
        assert (run_folder / file).is_file(), file


@pytest.mark.slow
@pytest.mark.usefixtures("unsaved_figures")
def test_thumbnails_are_the_chosen_frames(tmp_path):
    from PIL import Image

    from tests.support.keyframes.synthetic import frame_number, write_numbered_clip

    folder = simulate_run(tmp_path / "run", Simulation(n_questions=1, samplers=("uniform", "topk")))
    (tmp_path / "videos").mkdir()
    rows = list(load_run(folder).selections)
    write_numbered_clip(tmp_path / "videos" / "v0000.mp4", rows[0].n_frames)
    page = tmp_path / "out" / "report.html"
    called("report", folder, "--out", page.parent, "--videos", tmp_path)
    chunk = re.search(r'id="chunk0">([^<]+)<', page.read_text()).group(1)
    pictures = json.loads(gzip.decompress(base64.b64decode(chunk)))[0]["pictures"]
    assert {int(frame) for frame in pictures} == {
        frame for row in rows for frame in (*row.keyframes, *evidence_frames([row]))
    }
    for frame, source in pictures.items():
        image = Image.open(io.BytesIO(base64.b64decode(source.partition(",")[2]))).convert("RGB")
        assert frame_number(np.asarray(image)) == int(frame)
    called("report", folder, "--out", page.parent, "--videos", tmp_path, "--link-thumbnails")
    linked = sorted((page.parent / "report_thumbnails").iterdir())
    assert len(linked) == len(pictures)
    assert (
        "report_thumbnails/"
        in gzip.decompress(base64.b64decode(re.search(r'id="chunk0">([^<]+)<', page.read_text()).group(1))).decode()
    )


@pytest.mark.usefixtures("unsaved_figures")
def test_a_report_does_without_thumbnails_of_frames_that_cannot_be_read(tmp_path):
    folder = simulate_run(tmp_path / "run", Simulation(n_questions=1, samplers=("uniform", "topk")))
    (tmp_path / "videos").mkdir()
    output = called("report", folder, "--out", tmp_path / "out", "--videos", tmp_path)
    assert "note: videos without thumbnails of some frames: 1, the first: " in output
    assert "v0000.mp4: no such file" in output
    assert (tmp_path / "out" / "report.html").exists()


def test_frames_behind_a_damaged_stretch_have_thumbnails(tmp_path):
    def read(path, frames, *, height):
        if 99 in frames:
            raise VideoError(f"{path}: frame 99 asked, video has 10")
        for frame in frames:
            if frame in (2, 3):
                raise VideoError(f"{path}: frame {frame} cannot be decoded")
            yield frame, bytes([frame])

    failures = {}
    make = thumbnail_maker(tmp_path, None, read=read, failures=failures)
    assert make("a.mp4", [4, 1, 2, 3, 5]) == {1: b"\1", 4: b"\4", 5: b"\5"}
    assert failures == {"a.mp4": f"{tmp_path / 'a.mp4'}: frame 2 cannot be decoded"}
    assert make("b.mp4", [99, 6]) == {6: b"\6"}


def test_a_folder_that_is_no_run_is_one_line(tmp_path):
    with pytest.raises(InvalidInput, match="no rows under selections/"):
        called("report", tmp_path)
    with pytest.raises(InvalidInput, match="no such folder"):
        called("report", tmp_path / "nowhere")


def test_an_unknown_table_or_baseline_names_the_nearest_and_leaves_an_earlier_report(run_folder, tmp_path):
    earlier = tmp_path / "report.md"
    earlier.write_text("| earlier |")
    for option, nearest in (("--table=by_lenght", "by_length"), ("--baseline=topp", "topk")):
        with pytest.raises(InvalidInput, match=f"did you mean '{nearest}'"):
            called("report", run_folder, "--out", tmp_path, option)
    assert list(tmp_path.iterdir()) == [earlier]


def test_compare_prints_how_two_runs_differ(run_folder, tmp_path):
    answers = load_run(run_folder).answers
    changed = tmp_path / "changed"
    for row in load_run(run_folder).selections:
        append(changed / "selections" / "all" / "rows-0.jsonl", row)
    flipped = 0
    for row in answers:
        is_flip = row.cell_id.endswith("topk-8-0") and row.error is None and row.score == 1 and flipped < 5
        flipped += is_flip
        append(changed / "answers" / "all" / "rows-0.jsonl", replace(row, score=0.0, parsed="C") if is_flip else row)
    output = called("compare", run_folder, changed, "--out", tmp_path / "table.csv")
    topk = next(line for line in output.splitlines() if " topk" in line)
    assert "5 / 0" in topk
    assert "−10.4" in topk  # 5 of 48
    assert "5 / 0" in (tmp_path / "table.csv").read_text()


def append(path, row):
    writer = RowWriter(path)
    writer.write(row)
    writer.close()


@pytest.mark.usefixtures("unsaved_figures")
def test_a_report_reads_rows_again_that_another_run_replaced_meanwhile(run_folder, tmp_path, monkeypatch):
    """Runs that share cells: the other one ends between the reads of this report."""
    part = next(path for path in (run_folder / "answers").rglob("*") if path.is_file())
    load, replaced = run_module.load_run, []

    def loaded(folder):
        run = load(folder)
        if len(replaced) < n_replaced:
            replaced.append(shutil.copy(part, tmp_path / f"{len(replaced)}"))
            os.replace(replaced[-1], part)
        return run

    monkeypatch.setattr(run_module, "load_run", loaded)
    n_replaced = 2
    printed = called("report", run_folder, "--out", tmp_path / "out", "--no-html")
    assert "changed while it was read: a run is writing here; reading again" in printed
    assert len(replaced) == 2
    n_replaced = 9
    with pytest.raises(InvalidInput, match="a run is writing here; run the command again"):
        called("report", run_folder, "--out", tmp_path / "other", "--no-html")


# Evidence of other data sets, on made-up files of their shapes: intervals and moments, in the units they use.


# Data set -> what its rows hold as evidence, the unit, and the figures of frames at 10 and 50 s, by hand.
SHAPES = {
    "lvbench": ({"time_reference": "00:08-00:12"}, "time_reference", "clock", ("50.0", "100.0")),
    "cgbench": ({"clue_intervals": [[9, 11], [70, 80]]}, "clue_intervals", "intervals", ("50.0", "50.0")),
    "kfsbench": ({"scenes": [[0, 5], [49, 51], [9, 12]]}, "scenes", "intervals", ("100.0", "66.7")),
    "lvhaystack": ({"keyframes": [10.5, 90.0]}, "keyframes", "seconds", ("50.0", "50.0")),
    "frames": ({"position": [252, 2160]}, "position", "frames@24", ("50.0", "50.0")),
}


@pytest.mark.usefixtures("unsaved_figures")
def test_a_report_made_again_prints_and_writes_the_same(run_folder, tmp_path):
    def report():
        return called("report", run_folder, "--out", tmp_path, "--no-html")

    first = report()
    text_by_file = {file: file.read_bytes() for file in tmp_path.rglob("*.*")}
    (tmp_path / "report.tex").unlink()
    (tmp_path / "report.md").write_text("edited")
    assert report() == first
    assert {file: file.read_bytes() for file in tmp_path.rglob("*.*")} == text_by_file


def test_the_report_of_a_folder_of_runs_is_an_index_that_links_to_their_pages(run_folder, tmp_path):
    shutil.copytree(run_folder, tmp_path / "first")
    shutil.copytree(run_folder, tmp_path / "second & last")
    shutil.copytree(run_folder, tmp_path / "pool")  # where runs beside each other keep their rows
    (tmp_path / "first" / "report.html").write_text("a page")
    for name in ("second & last/report.html",):
        (tmp_path / name).unlink(missing_ok=True)
    assert called("report", tmp_path).split() == [str(tmp_path / "index.html")]
    text = (tmp_path / "index.html").read_text()
    rows = re.findall(r"<tr>(.*?)</tr>", text, flags=re.DOTALL)[1:]
    run = load_run(run_folder)
    assert len(rows) == 2 * len(run.cells)
    assert sum('<a href="first/report.html">first</a>' in row for row in rows) == len(run.cells)
    assert "which focus-eval report RUN writes: second &amp; last" in text
    focus = next(row for row in rows if ">focus<" in row)
    frame = run.answer_frame
    accuracy = 100 * frame[frame["sampler"] == "focus"]["score"].mean()
    assert f'<span class="value">{accuracy:.1f}</span>' in focus
    assert run.provenance["starts"][-1]["time"][:10] in focus


def test_a_process_of_thumbnails_that_is_killed_is_one_line_and_a_damaged_video_names_itself(tmp_path):
    path = write_clip(tmp_path / "v.mp4", n_frames=8)
    (tmp_path / "empty.mp4").touch()
    with _reading_processes() as read:
        assert [frame for frame, _ in read(path, [1, 5], height=90)] == [1, 5]
        with pytest.raises(VideoError, match=r"empty.mp4: the file is empty"):
            read(tmp_path / "empty.mp4", [1], height=90)
        for process in multiprocessing.active_children():
            process.kill()
            process.join()
        with pytest.raises(RunError, match="thumbnails was killed; free some memory"):
            read(path, [1], height=90)
