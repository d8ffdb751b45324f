"""`focus-eval select --from`: keyframes for each row of a sheet, whatever stands in it and however the run ends."""

from __future__ import annotations

import csv
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from PIL import Image

from focus_eval import select_keyframes
from focus_eval.core.errors import InvalidInput
from focus_eval.keyframes.encoders.registry import ENCODERS
from focus_eval.keyframes.question_sheet import read_sheet
from focus_eval.keyframes.select import QUERIES_AT_ONCE
from focus_eval.keyframes.video.clip_writer import ClipWriter
from tests.support.keyframes.many_commands import run_commands

# Relevance is the share of the frame's grey level that the query names; `slow` sleeps for each batch.
ENCODER = """
import time
import numpy as np
from focus_eval.keyframes.encoders.base import Encoder


class Greys(Encoder):
    name, revision, stores_embeddings, needs_gpu = "sheet_greys", "1", True, False

    def __init__(self, seconds: float = 0.0):
        self.seconds = seconds

    def embed(self, frames):
        time.sleep(self.seconds)
        return frames.mean(axis=(1, 2, 3), dtype=np.float64).astype(np.float32)[:, None]

    def relevance(self, features, query):
        return 1 - np.abs(features[:, 0] - float(query)).astype(np.float64) / 255
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Four clips whose grey level rises from 0 to 250 in 5 s, each by other steps, and an encoder of grey levels."""
    folder = tmp_path_factory.mktemp("clips")
    (folder / "clips").mkdir()
    for number in range(4):
        with ClipWriter(folder / "clips" / f"v{number}.mp4", width=64, height=48, fps=10, gop=10) as writer:
            for frame in range(50):
                writer.write(np.full((48, 64, 3), 5 * ((frame + 7 * number) % 50), np.uint8))
    # Installed as a plugin: here for the commands of this process, by PYTHONPATH for those of others.
    (folder / "sheet_greys.py").write_text(ENCODER)
    (folder / "greys-1.dist-info").mkdir()
    (folder / "greys-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: greys\nVersion: 1\n")
    entry = "[focus_eval.encoders]\nsheet_greys = sheet_greys:Greys\n"
    (folder / "greys-1.dist-info" / "entry_points.txt").write_text(entry)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        patch.setenv("PYTHONPATH", str(folder))
        ENCODERS.clear()
        yield folder
    ENCODERS.clear()


def select(*arguments):
    (ran,) = run_commands([["select", *map(str, arguments)]])
    return ran


def table_of(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def write_rows(path, rows, columns=("video", "query")):
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows([columns, *rows])
    return path


def options(folder, **encoder_options):
    settings = [f"-e{name}={value}" for name, value in encoder_options.items()]
    return ["--encoder", "sheet_greys", *settings, "-k", "3", "--videos", folder / "clips"]


ROWS = [("v0.mp4", "100"), ("v1.mp4", "30"), ("v0.mp4", "200"), ("v2.mp4", "0"), ("v3.mp4", "250"), ("v1.mp4", "90")]


@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_each_row_gets_what_select_chooses_for_it_alone(folder, tmp_path, workers):
    sheet = write_rows(tmp_path / "rows.csv", ROWS)
    ran = select("--from", sheet, "--out", tmp_path / "out", "--workers", workers, *options(folder))
    assert ran.code == 0, ran.err
    lines = table_of(tmp_path / "out" / "keyframes.csv")
    assert [(line["id"], line["video"], line["query"], line["error"]) for line in lines] == [
        (str(number), *row, "") for number, row in enumerate(ROWS, start=1)
    ]
    for line in lines[:3]:
        alone = select(folder / "clips" / line["video"], "--query", line["query"], "--json", *options(folder)[:-2])
        record = json.loads(alone.out)
        assert line["frames"] == " ".join(map(str, record["keyframes"]))
        assert [float(seconds) for seconds in line["times_seconds"].split()] == record["times_seconds"]
        pictures = sorted((tmp_path / "out" / line["pictures"]).glob("*.jpg"))
        shown = [5 * ((frame + 7 * int(line["video"][1])) % 50) for frame in record["keyframes"]]
        assert [np.asarray(Image.open(path)).mean() for path in pictures] == pytest.approx(shown, abs=6)
        assert Image.open(tmp_path / "out" / line["pictures"] / "sheet.png").width > 500
    page = (tmp_path / "out" / "index.html").read_text()
    assert page.count("<img") == 18


def test_keyframes_that_look_alike_are_counted_in_the_row_and_beside_the_video(folder, tmp_path):
    with ClipWriter(tmp_path / "still.mp4", width=64, height=48, fps=10) as writer:
        for frame in range(50):
            writer.write(np.full((48, 64, 3), 200 if frame < 25 else 50, np.uint8))
    sheet = write_rows(tmp_path / "rows.csv", [(tmp_path / "still.mp4", "200"), (folder / "clips" / "v0.mp4", "200")])
    chooser = ["--encoder", "sheet_greys", "-k", "4"]
    assert select("--from", sheet, "--out", tmp_path / "out", "--no-sheets", *chooser).code == 0
    warnings = [line["warning"] for line in table_of(tmp_path / "out" / "keyframes.csv")]
    warning = "2 of 4 keyframes look like another one: no other relevant frame shows something else."
    assert warnings == [warning, ""]
    assert warning in (tmp_path / "out" / "index.html").read_text()
    ran = select(tmp_path / "still.mp4", folder / "clips" / "v0.mp4", "--query", "200", *chooser)
    assert f"still.mp4: {warning}" in " ".join(ran.out.split())
    alone = select(tmp_path / "still.mp4", "--query", "200", *chooser)
    assert warning in " ".join(alone.out.split())


def test_ids_that_a_folder_cannot_be_called_keep_folders_of_their_own(folder, tmp_path):
    rows = [(row_id, "v0.mp4", query) for row_id, query in (("a/b", "10"), ("a_b", "120"), ("a b", "230"))]
    sheet = write_rows(tmp_path / "rows.csv", rows, columns=("id", "video", "query"))
    assert select("--from", sheet, "--out", tmp_path / "out", "--no-sheets", *options(folder)).code == 0
    lines = table_of(tmp_path / "out" / "keyframes.csv")
    assert len({line["pictures"] for line in lines}) == 3
    assert [len([*(tmp_path / "out" / line["pictures"]).glob("*.jpg")]) for line in lines] == [3, 3, 3]


def test_contact_sheets_may_be_left_out(folder, tmp_path):
    sheet = write_rows(tmp_path / "rows.csv", ROWS[:2])
    assert select("--from", sheet, "--out", tmp_path / "out", "--no-sheets", *options(folder)).code == 0
    assert (len([*tmp_path.rglob("*.jpg")]), [*tmp_path.rglob("*.png")]) == (6, [])
    ran = select(folder / "clips" / "v0.mp4", "--query", "1", "--no-sheets")
    assert (ran.code, "--no-sheets: belongs to a sheet; name it with --from" in ran.err) == (2, True)


def test_a_bad_row_is_an_error_in_its_row_and_in_the_exit_code(folder, tmp_path):
    rows = [
        ("a/b", "v0.mp4", "100", "1", "0:03"),
        ("gone", "gone.mp4", "100", "", ""),
        ("silent", "v1.mp4", "", "", ""),
        ("late", "v1.mp4", "10", "60", ""),
        ("back", "v1.mp4", "10", "3", "2"),
        ("text", "v1.mp4", "10", "soon", ""),
        ("early", "v1.mp4", "10", "-3", ""),
        ("..", "v2.mp4", "0", "", ""),
    ]
    sheet = write_rows(tmp_path / "rows.csv", rows, columns=("ID", "film", "Question", "start", "end"))
    out = tmp_path / "out" / "table.jsonl"
    arguments = ["--from", sheet, "--column", "video=film", "--out", out, "--no-sheets", *options(folder)]
    ran = select(*arguments)
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert ran.code == 2
    assert "6 rows failed" in ran.err
    assert [line["id"] for line in lines] == [row[0] for row in rows]
    errors = {line["id"]: line["error"] for line in lines}
    assert all(1 <= seconds < 3 for seconds in lines[0]["times_seconds"])
    assert (errors["a/b"], errors[".."]) == ("", "")
    assert errors["gone"].endswith("gone.mp4: no such file; check the path")
    assert errors["silent"] == "the row has no query"
    assert "60" in errors["late"]
    assert errors["back"] == "a stretch from 3 s to 2 s has no frame"
    assert errors["text"] == "start must be seconds or H:MM:SS, got 'soon'"
    assert errors["early"] == "start must be seconds or H:MM:SS, got '-3'"
    assert {path.parent.name for path in (tmp_path / "out").rglob("*.jpg")} == {
        Path(lines[0]["pictures"]).name, Path(lines[7]["pictures"]).name
    }  # fmt: skip
    # The video comes, and the same command adds its row.
    (folder / "clips" / "gone.mp4").write_bytes((folder / "clips" / "v3.mp4").read_bytes())
    try:
        ran = select(*arguments)
    finally:
        (folder / "clips" / "gone.mp4").unlink()
    assert "2 rows of 8 finished by an earlier start" in ran.out
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [line["id"] for line in lines if not line["error"]] == ["a/b", "gone", ".."]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "an empty file; its first line names the columns"),
        ("video,query\n", "no row below"),
        ("film,query\nv0.mp4,1\n", "no column video; it has film, query: name it with --column video=NAME"),
        ("video,text\nv0.mp4,1\n", "no column query; it has video, text: name it with --column query=NAME"),
        ("video,Query,query\nv0.mp4,1,2\n", "2 columns fit query ('Query', 'query')"),
        ("id,video,query\n7,v0.mp4,1\n8,v0.mp4,1\n7,v0.mp4,1\n", "rows 1, 3 have the same id '7'"),
        ("video,query\nv0.mp4,a, b\n", "row 1 has 3 cells under 2 columns"),
        ('video,query\nv0.mp4,"1\n', "is a quotation mark not closed"),
    ],
)
def test_a_sheet_that_cannot_be_read_is_one_clear_line(tmp_path, text, message):
    (tmp_path / "rows.csv").write_text(text)
    ran = select("--from", tmp_path / "rows.csv", "--out", tmp_path / "out", "--sampler", "uniform")
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert message in ran.err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_marks_and_separators_of_other_programs_are_read(tmp_path, encoding, separator):
    lines = [["Video", "Question", "Options", "Answer"], ["ä b.mp4", '"Is it, or not;?"', "yes | no", "No"]]
    (tmp_path / "rows.csv").write_text("\r\n".join(map(separator.join, lines)), encoding=encoding)
    (row,) = read_sheet(tmp_path / "rows.csv").rows
    assert (row.id, row.path, row.query) == ("1", tmp_path / "ä b.mp4", "Is it, or not;?")
    assert (row.options, row.answer) == (("yes", "no"), "B")


def test_the_same_rows_are_read_from_json_lines_and_parquet(tmp_path):
    values = [
        {"video": "a.mp4", "query": "x", "question": "What?", "start": 1.5, "options": ["u", "v"], "answer": "A"},
        {"video": "b.mp4", "query": None, "question": "Who?", "start": None, "options": None, "answer": None},
    ]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(value) + "\n" for value in values))
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(values), tmp_path / "rows.parquet")
    sheets = [read_sheet(tmp_path / f"rows.{suffix}", videos=tmp_path / "v") for suffix in ("jsonl", "parquet")]
    assert sheets[0].rows == sheets[1].rows
    first, second = sheets[0].rows
    assert (first.query, first.question, first.start_seconds, first.answer) == ("x", "What?", 1.5, "A")
    assert (second.query, second.path) == ("Who?", tmp_path / "v" / "b.mp4")


def test_more_rows_of_a_video_than_are_chosen_at_once_come_once_each_and_in_order(folder, tmp_path):
    queries = [str(number) for number in range(2 * QUERIES_AT_ONCE + 2)]
    sheet = write_rows(tmp_path / "rows.csv", [("v0.mp4", query) for query in queries])
    ran = select("--from", sheet, "--out", tmp_path / "out", "--no-sheets", *options(folder))
    assert ran.code == 0, ran.err
    lines = table_of(tmp_path / "out" / "keyframes.csv")
    assert [line["query"] for line in lines] == queries
    alone = select_keyframes(
        folder / "clips" / "v0.mp4", query=queries[-1], k=3, encoder="sheet_greys", sampler="even_cover"
    )
    assert lines[-1]["frames"] == " ".join(map(str, alone.keyframes))


def test_ten_thousand_rows_are_read_in_a_second(tmp_path):
    write_rows(tmp_path / "rows.csv", [(f"v{number % 30}.mp4", str(number)) for number in range(10_000)])
    started = time.process_time()
    sheet = read_sheet(tmp_path / "rows.csv")
    assert time.process_time() - started < 3
    assert (len(sheet.rows), sheet.ids[0], sheet.ids[-1]) == (10_000, "00001", "10000")


def test_other_settings_or_another_query_do_not_mix_with_what_a_folder_has(folder, tmp_path):
    sheet = write_rows(tmp_path / "rows.csv", ROWS[:2])
    arguments = ["--from", sheet, "--out", tmp_path / "out", "--no-sheets", *options(folder)]
    assert select(*arguments).code == 0
    before = (tmp_path / "out" / "keyframes.csv").read_bytes()
    ran = select(*arguments, "--seed", "1", "-k", "2")
    assert (ran.code, "row '1' was chosen with other settings" in ran.err) == (2, True)
    write_rows(sheet, [("v0.mp4", "100"), ("v1.mp4", "31")])
    ran = select(*arguments)
    assert (ran.code, "row '2' was chosen with the query '30'" in ran.err) == (2, True)
    assert (tmp_path / "out" / "keyframes.csv").read_bytes() == before


def test_a_row_that_changed_in_any_column_is_not_taken_for_the_earlier_one(folder, tmp_path):
    columns = ("id", "video", "query", "question", "options", "start")
    row = {"id": "a", "video": "v0.mp4", "query": "9", "question": "What?", "options": "x|y", "start": "1"}
    sheet = write_rows(tmp_path / "rows.csv", [row.values()], columns=columns)
    arguments = ["--from", sheet, "--out", tmp_path / "out", "--no-sheets", *options(folder)]
    assert select(*arguments).code == 0
    changes = {"video": ("v1.mp4", "the video v0.mp4"), "question": ("Who?", "the question 'What?'"),
               "options": ("x|z", "the options ['x', 'y']"), "start": ("2", "the times [1.0, None]")}  # fmt: skip
    for column, (value, reason) in changes.items():
        write_rows(sheet, [{**row, column: value}.values()], columns=columns)
        ran = select(*arguments)
        assert (ran.code, f"row 'a' was chosen with {reason}" in ran.err) == (2, True), (column, ran.err)


def started(folder, sheet, out, *, workers, limit=""):
    command = [sys.executable, "-c", f"import sys\n{limit}\nfrom focus_eval.cli import main\nmain()", "select"]
    command += ["--from", sheet, "--out", out, "--workers", workers, *options(folder, seconds=0.05)]
    return subprocess.Popen(
        list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def wait_for_lines(table, n_lines):
    for _ in range(600):
        if table.exists() and len(table.read_text().splitlines()) >= n_lines:
            return
        time.sleep(0.05)
    pytest.fail(f"{table} has not got {n_lines} lines in half a minute")


def record_ids(out):
    records = [json.loads(line) for line in (out / "selections" / "rows" / "rows.jsonl").read_text().splitlines()]
    return [record["question_id"] for record in records]


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_kills_neither_lose_nor_double_a_row(folder, tmp_path, workers):
    rows = [(f"v{number % 4}.mp4", str(number)) for number in range(12)]
    sheet, out = write_rows(tmp_path / "rows.csv", rows), tmp_path / "out"
    draw = random.Random(workers)
    for n_lines in (3, 6):
        process = started(folder, sheet, out, workers=workers)
        wait_for_lines(out / "keyframes.csv", n_lines)
        time.sleep(draw.uniform(0, 0.5))
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    ran = select("--from", sheet, "--out", out, "--workers", workers, *options(folder, seconds=0.05))
    assert ran.code == 0, ran.err
    assert sorted(record_ids(out)) == [f"{number:02}" for number in range(1, 13)]
    select("--from", sheet, "--out", tmp_path / "whole", *options(folder, seconds=0))
    assert (out / "keyframes.csv").read_bytes() == (tmp_path / "whole" / "keyframes.csv").read_bytes()


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_an_interrupt_keeps_finished_rows_and_says_how_to_go_on(folder, tmp_path, workers):
    rows = [(f"v{number % 4}.mp4", str(number)) for number in range(200)]
    sheet, out = write_rows(tmp_path / "rows.csv", rows), tmp_path / "out"
    process = started(folder, sheet, out, workers=workers)
    table = out / "keyframes.csv"
    wait_for_lines(table, 3)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode not in (0, 2)
    assert "stopped; finished rows are kept. Run the same command again to continue." in errors
    assert "Traceback" not in errors
    lines = table_of(table)
    assert [line["id"] for line in lines if not line["error"]] == sorted(record_ids(out))
    assert 0 < len(lines) < 200


@pytest.mark.slow
def test_an_offered_download_is_named_once_and_not_where_nothing_was_chosen(folder, tmp_path):
    pytest.importorskip("transformers")
    (tmp_path / "song.wav").write_bytes(b"RIFF")
    sheet = write_rows(tmp_path / "rows.csv", [("v0.mp4", "a dog"), ("v1.mp4", "a cat"), ("v0.mp4", "a car")])
    rows = ["--from", sheet, "--out", tmp_path / "out", "--videos", folder / "clips"]
    n_offers = []
    for arguments in (
        rows,
        [folder / "clips" / "v0.mp4", "--query", "a dog"],
        [tmp_path / "song.wav", "--query", "a dog"],
    ):
        command = [sys.executable, "-c", "from focus_eval.cli import main; main()", "select", *arguments, "-k", "2"]
        environment = {**os.environ, "HF_HOME": str(tmp_path / "hub"), "FOCUS_EVAL_DOWNLOAD": ""}
        environment.pop("HF_HUB_CACHE", None)
        ran = subprocess.run(
            [*map(str, command), "-o", "pulls=2"],
            capture_output=True,
            text=True,
            check=False,
            env=environment,
            stdin=subprocess.DEVNULL,
        )
        assert ran.returncode == (2 if "song" in str(arguments[0]) else 0), ran.stderr
        n_offers.append(ran.stderr.count("--yes or FOCUS_EVAL_DOWNLOAD=1 downloads"))
    assert n_offers == [1, 1, 0]


def test_a_folder_that_may_not_be_written_is_named_with_the_fix(folder, tmp_path):
    sheet = write_rows(tmp_path / "rows.csv", ROWS)
    ran = select("--from", sheet, "--out", "/sys/keyframes", *options(folder))  # where root makes no folder either
    assert ran.code == 2
    assert ran.err.startswith("focus-eval: /sys/keyframes: cannot be written (")
    assert ran.err.endswith("; name another folder, or allow writing to this one\n")


def test_a_full_disk_ends_the_run_with_one_line_and_finished_rows_stay(folder, tmp_path):
    sheet, out = write_rows(tmp_path / "rows.csv", ROWS), tmp_path / "out"
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))"
    process = started(folder, sheet, out, workers=1, limit=limit)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "cannot be written" in errors
    assert "Traceback" not in errors
    assert select("--from", sheet, "--out", out, "--no-sheets", *options(folder, seconds=0.05)).code == 0
    assert sorted(record_ids(out)) == list("123456")


def test_columns_are_refused_in_a_message_of_their_own(tmp_path):
    write_rows(tmp_path / "rows.csv", [("a.mp4", "1")])
    with pytest.raises(InvalidInput, match="no column 'film' for video; it has video, query"):
        read_sheet(tmp_path / "rows.csv", columns={"video": "film"})
    with pytest.raises(InvalidInput, match="unknown role of a column 'vido'"):
        read_sheet(tmp_path / "rows.csv", columns={"vido": "film"})
