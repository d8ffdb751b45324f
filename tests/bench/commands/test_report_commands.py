"""report, recall, import and compare as they are called; recall of evidence in every unit."""

from __future__ import annotations

import base64
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
from typer.testing import CliRunner

from focus_eval.bench.commands.reports import _reading_processes
from focus_eval.bench.report import outputs
from focus_eval.bench.report import run as run_module
from focus_eval.bench.report.page.thumbnails import evidence_frames, thumbnail_maker
from focus_eval.bench.report.run import load_run
from focus_eval.cli import app
from focus_eval.core.errors import FocusEvalError, InvalidInput, RunError, VideoError
from focus_eval.external.commands.exchange import selection_files
from focus_eval.keyframes.rows.records import RowWriter
from support.keyframes.clips import write_clip
from tests.bench.report.simulated import Simulation, simulate_run
from tests.external.imports.test_lmms_logs import line, write_log

# report, recall, import and compare as they are called.


def called(*arguments):
    """Run a command; return what it printed, or raise the error that the command line would print as one line."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory):
    simulation = Simulation(n_questions=48, models=("llava_video_7b",))
    return simulate_run(tmp_path_factory.mktemp("runs") / "by_length", simulation, anchors="by_length")


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
    monkeypatch.setattr("focus_eval.bench.commands.reports._MOST_ROWS_PRINTED", 0)
    names = re.findall(r"in (report.md) and (\S+)", called("report", run_folder, "--no-html"))
    assert len(names) > 1
    for file in {file for pair in names for file in pair}:
        assert (run_folder / file).is_file(), file


@pytest.mark.usefixtures("unsaved_figures")
def test_thumbnails_are_the_chosen_frames(tmp_path):
    from PIL import Image

    from support.keyframes.synthetic import frame_number, write_numbered_clip

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


def test_an_unknown_table_names_the_nearest(run_folder, tmp_path):
    with pytest.raises(InvalidInput, match="did you mean 'by_length'"):
        called("report", run_folder, "--out", tmp_path, "--table", "by_lenght")
    assert list(tmp_path.iterdir()) == []


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


def test_recall_prints_the_protocols_figures(shared, tmp_path):
    output = called(
        "recall",
        *("--benchmark", "longvideobench", "--annotations", shared("data/lvb_val.json")),
        *("--rates", shared("data/lvb_val_fps.csv"), "--format", "aks", "--out", tmp_path / "recall.md"),
        *("--selections", shared("data/aks_longvideobench_blip_64.json")),
    )
    for figure in ("26.2", "9.4", "16.8", "41.4", "98.7", "64.2", "52.2", "60.0", "66.4"):
        assert figure in output
    assert "short 361, medium 700, long 276" in (tmp_path / "recall.md").read_text()


def test_a_selection_file_without_a_name_is_called_after_itself(tmp_path):
    (tmp_path / "run.v2").mkdir()
    texts = [tmp_path / "a.json.gz", tmp_path / "run.v2", "mine=b.json"]
    assert [name for name, _, _ in selection_files(texts, ["aks"])] == ["a", "run.v2", "mine"]


def test_recall_takes_scenes(shared, tmp_path):
    (tmp_path / "scenes.json").write_text('{"86CxyhFV9MI_0": [[0, 5], [20, 22]], "9PD3ciudpIE_0": [[0, 460]]}')
    output = called(
        "recall",
        *("--annotations", shared("data/lvb_val.json"), "--rates", shared("data/lvb_val_fps.csv")),
        *("--selections", shared("data/qca_longvideobench_64.json"), "--scenes", tmp_path / "scenes.json"),
    )
    assert "share of the scenes with a frame inside" in " ".join(output.split())  # lines fold at the screen's width
    (tmp_path / "scenes.json").write_text('{"nobody": [[0, 5]]}')
    with pytest.raises(InvalidInput, match="'nobody', which is not a question"):
        called(
            "recall",
            *("--annotations", shared("data/lvb_val.json"), "--rates", shared("data/lvb_val_fps.csv")),
            *("--selections", shared("data/qca_longvideobench_64.json"), "--scenes", tmp_path / "scenes.json"),
        )


def test_a_selection_imported_and_written_again_is_the_same(shared, tmp_path):
    annotations = ("--annotations", shared("data/lvb_val.json"))
    source = shared("data/aks_longvideobench_blip_64.json")
    output = called("import", "aks", source, "--out", tmp_path / "s.parquet", *annotations)
    assert "1337 selections of at most 64 frames" in output
    called("import", "rows", tmp_path / "s.parquet", "--to", "aks", "--out", tmp_path / "again.json", *annotations)
    assert json.loads((tmp_path / "again.json").read_text()) == json.loads(source.read_text())


def test_a_bad_import_writes_nothing(shared, tmp_path):
    with pytest.raises(FocusEvalError, match="2700 rows for 1337 questions"):
        called(
            *("import", "aks", shared("data/aks_videomme_blip_64.json"), "--out", tmp_path / "s.parquet"),
            *("--annotations", shared("data/lvb_val.json")),
        )
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(InvalidInput, match="give --annotations"):
        called("import", "auto", tmp_path, "--to", "aks", "--out", tmp_path / "x.json")


# Evidence of other data sets, on made-up files of their shapes: intervals and moments, in the units they use.


# Data set -> what its rows hold as evidence, the unit, and the figures of frames at 10 and 50 s, by hand.
SHAPES = {
    "lvbench": ({"time_reference": "00:08-00:12"}, "time_reference", "clock", ("50.0", "100.0")),
    "cgbench": ({"clue_intervals": [[9, 11], [70, 80]]}, "clue_intervals", "intervals", ("50.0", "50.0")),
    "kfsbench": ({"scenes": [[0, 5], [49, 51], [9, 12]]}, "scenes", "intervals", ("100.0", "66.7")),
    "lvhaystack": ({"keyframes": [10.5, 90.0]}, "keyframes", "seconds", ("50.0", "50.0")),
    "frames": ({"position": [252, 2160]}, "position", "frames@24", ("50.0", "50.0")),
}


@pytest.mark.parametrize("name", SHAPES)
def test_recall_of_a_declared_benchmark(tmp_path, name):
    evidence, field, unit, expected = SHAPES[name]
    row = {"id": "q1", "question": "what is it?", "video": "v.mp4", "answer": "A", "options": ["a", "b"]}
    (tmp_path / "annotation.json").write_text(json.dumps([{**row, "seconds": 100.0, **evidence}]))
    declared = f"benchmark: {name}\nfields:\n  options: options\n  duration: seconds\n  evidence: {field}\n"
    (tmp_path / f"{name}.yaml").write_text(f"{declared}  evidence_unit: {unit}\n")
    (tmp_path / "rates.csv").write_text("id,duration_s,fps\nq1,100,10\n")
    (tmp_path / "chosen.json").write_text(json.dumps({"q1": [100, 500]}))
    arguments = ["recall", "--benchmark", tmp_path / f"{name}.yaml", "--annotations", tmp_path / "annotation.json"]
    arguments += ["--rates", tmp_path / "rates.csv", "--selections", f"mine={tmp_path / 'chosen.json'}"]
    result = CliRunner().invoke(
        app, [str(item) for item in [*arguments, "--format", "qca", "--out", tmp_path / "t.csv"]]
    )
    assert result.exit_code == 0, (result.output, result.exception)
    own_line = next(line for line in (tmp_path / "t.csv").read_text().splitlines() if line.startswith("mine"))
    for figure in expected:
        assert figure in own_line


def test_logs_of_others_and_packed_runs_are_compared_on_a_page_that_needs_no_other_file(tmp_path, run_folder):
    for name, right in (("theirs", 3), ("others", 9)):
        lines = [
            line(
                n,
                doc={"video_name": f"{n}.mp4", "question": f"what at {n}?"},
                acc={"answer": "B", "parsed_pred": "B" if n < right else "C"},
            )
            for n in range(12)
        ]
        write_log(tmp_path / name, lines, results={"my_task": {"acc,none": right / 12}})
    page = tmp_path / "out" / "page.html"
    output = called("compare", tmp_path / "theirs", tmp_path / "others", "--out", page)
    assert "Accuracy difference of others to theirs" in output
    assert "+50.0" in output
    text = page.read_text()
    assert not re.search(r'(src|href)="(?!data:)', text)
    assert "B: others" in text
    assert "Model: Model-7B" in text
    called("pack", run_folder, "--out", tmp_path / "run.zip")
    called("compare", run_folder, tmp_path / "run.zip", "--out", tmp_path / "same.html")
    assert "A: by_length" in (tmp_path / "same.html").read_text()


@pytest.mark.usefixtures("unsaved_figures")
def test_a_report_of_unchanged_rows_is_printed_again_and_not_written(run_folder, tmp_path):
    def report():
        return called("report", run_folder, "--out", tmp_path, "--no-html")

    first = report()
    state_by_file = {file: (file.stat().st_mtime_ns, file.read_bytes()) for file in tmp_path.rglob("*.*")}
    assert report() == first
    assert {file: (file.stat().st_mtime_ns, file.read_bytes()) for file in tmp_path.rglob("*.*")} == state_by_file
    # What is missing or was edited is made again.
    (tmp_path / "report.tex").unlink()
    (tmp_path / "report.md").write_text("edited")
    assert report() == first
    for name in ("report.tex", "report.md"):
        assert (tmp_path / name).read_bytes() == state_by_file[tmp_path / name][1]


def test_outputs_count_as_current_only_with_their_rows_code_and_a_finished_command(tmp_path, monkeypatch, capsys):
    rows, videos, out = tmp_path / "run" / "selections" / "part", tmp_path / "videos", tmp_path / "out" / "table.md"
    for folder in (rows, videos, out.parent):
        folder.mkdir(parents=True)
    (rows / "rows.jsonl").write_text("1\n")
    (videos / "a.mp4").write_text("frames")

    def kept(**options):
        inputs = outputs.inputs_digest(tmp_path / "run", options=options, videos=videos)
        return outputs.KeptOutputs(out.parent / ".report.json", inputs)

    def write(**options):
        with kept(**options).writing() as written:
            out.write_text("table")
            print("said")
            written.append(out)

    write()
    assert kept().printed() == capsys.readouterr().out == "said\n"
    assert kept(k=8).printed() is None
    (rows / "rows.jsonl").write_text("2\n")
    assert kept().printed() is None
    write()
    (videos / "a.mp4").write_text("other frames")
    assert kept().printed() is None
    write()
    assert kept().printed() is not None
    # Killed while it writes, with the same inputs: what is there may be half of it.
    with pytest.raises(KeyboardInterrupt), kept().writing():
        raise KeyboardInterrupt
    assert kept().printed() is None
    write()
    monkeypatch.setattr(outputs, "_DRAWN_WITH", ("numpy",))  # as if a library were another one
    assert kept().printed() is None


def test_allow_missing_compares_on_the_questions_that_every_file_has(tmp_path):
    row = {"question": "what is it?", "video": "v.mp4", "answer": "A", "options": ["a", "b"], "seconds": 100.0}
    rows = [{**row, "id": f"q{at}", "moments": [10.0]} for at in range(3)]
    (tmp_path / "annotation.json").write_text(json.dumps(rows))
    fields = "  options: options\n  duration: seconds\n  evidence: moments\n  evidence_unit: seconds\n"
    (tmp_path / "own.yaml").write_text(f"benchmark: own\nfields:\n{fields}")
    (tmp_path / "rates.csv").write_text("id,duration_s,fps\n" + "".join(f"q{at},100,10\n" for at in range(3)))
    near, far = [100], [900]
    (tmp_path / "whole.json").write_text(json.dumps({"q0": near, "q1": near, "q2": far}))
    (tmp_path / "part.json").write_text(json.dumps({"q0": far, "q1": near}))
    arguments = ["recall", "--benchmark", tmp_path / "own.yaml", "--annotations", tmp_path / "annotation.json"]
    arguments += ["--rates", tmp_path / "rates.csv", "--format", "qca", "--out", tmp_path / "t.csv"]
    arguments += [item for name in ("whole", "part") for item in ("--selections", tmp_path / f"{name}.json")]
    with pytest.raises(FocusEvalError, match="q2"):
        called(*arguments)
    assert "1 questions lack a selection and do not count, the first: q2" in called(*arguments, "--allow-missing")
    lines = (tmp_path / "t.csv").read_text().splitlines()
    # On q0 and q1: the whole file would have 66.7 over its three.
    assert "100.0" in next(line for line in lines if line.startswith("whole"))
    assert "50.0" in next(line for line in lines if line.startswith("part"))


def test_the_report_of_a_folder_of_runs_is_an_index_that_links_to_their_pages(run_folder, tmp_path):
    shutil.copytree(run_folder, tmp_path / "first")
    shutil.copytree(run_folder, tmp_path / "second & last")
    shutil.copytree(run_folder, tmp_path / "pool")  # where runs beside each other keep their rows
    (tmp_path / "first" / "report.html").write_text("a page")
    for name in ("second & last/report.html", "first/.report.json"):
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
