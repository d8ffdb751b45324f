"""Commands on results of others: what they print, write and refuse."""

from __future__ import annotations

import json
import re

import pytest
from typer.testing import CliRunner

from focus_eval.bench.benchmarks.registry import read_rates
from focus_eval.cli import app
from focus_eval.core.errors import FocusEvalError, InvalidInput, SelectionMismatch, UnknownName
from focus_eval.external.commands.exchange import selection_files
from focus_eval.keyframes.rows.json_lines import RowWriter
from tests.bench.report.simulated import Simulation, simulate_run
from tests.external.imports.test_lmms_logs import line, write_log
from tests.support.bench.commands import called

# report, recall, import and compare as they are called.


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory):
    simulation = Simulation(n_questions=48, models=("llava_video_7b",))
    return simulate_run(tmp_path_factory.mktemp("runs") / "by_length", simulation, anchors="by_length")


def append(path, row):
    writer = RowWriter(path)
    writer.write(row)
    writer.close()


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


def test_what_lies_outside_is_shown_in_part_and_counted(shared, tmp_path):
    lists = json.loads(shared("data/aks_longvideobench_blip_64.json").read_text())
    (tmp_path / "late.json").write_text(json.dumps([[*frames, 10**6] for frames in lists]))
    output = called(
        *("recall", "--annotations", shared("data/lvb_val.json"), "--rates", shared("data/lvb_val_fps.csv")),
        *("--selections", tmp_path / "late.json", "--allow-outside"),
    )
    assert output.count("frames left out") == 5
    assert "and 1,332 more such lines, 1,337 in all" in output


def test_a_packed_run_is_a_selection_as_its_folder_is(tmp_path, shared, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = ("--annotations", shared("data/lvb_val.json"), "--rates", shared("data/lvb_val_fps.csv"))
    called("import", "toolmerge", shared("data/toolmerge_qwen3_lvb_8.json"), "--out", "run", "--model", "m", *options)
    called("pack", "run")
    outputs = [called("recall", *options, "--selections", f"X={name}") for name in ("run", "run.zip")]
    assert outputs[0] == outputs[1]
    with pytest.raises(SelectionMismatch, match=r"^run: no rows of 'aks'; there are: toolmerge"):  # no temporary folder
        called("recall", *options, "--selections", "run.zip", "--format", "rows:sampler=aks")
    for name in ("run", "run.zip"):
        with pytest.raises(InvalidInput, match=f"{name}: a run already, no log; report, compare"):
            called("import", "lmms", name, "--out", "again")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("import", "lmms", "nosuch", "--out", "run"), "nosuch: no such file or folder"),
        (("import", "vlmevalkit", "mine.tsv", "--out", "run"), r"mine\.tsv: its name has no model, .*say which"),
        (("recall", "--annotations", "LVB", "--selections", "X="), "X=: no file after the name; write NAME=FILE"),
    ],
)
def test_a_wrong_argument_is_called_what_it_is(tmp_path, shared, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    columns = ("index", "prediction", "video", "question", "A", "B", "answer")
    (tmp_path / "mine.tsv").write_text("\t".join(columns) + "\n0\tA\tv\tWhy?\tx\ty\tA\n")
    with pytest.raises(InvalidInput, match=message):
        called(*(shared("data/lvb_val.json") if item == "LVB" else item for item in arguments))


def test_audit_says_which_logs_the_annotation_is_not_of(tmp_path, shared):
    write_log(tmp_path / "log", [line(0)], results={"my_task": {"acc,none": 1.0}})
    output = called("audit", tmp_path / "log", "--annotations", shared("data/lvb_val.json"))
    assert "lvb_val.json: for log (my_task@validation); it is of longvideobench (--benchmark names another)" in output


def test_a_run_is_not_written_into_a_file(tmp_path):
    write_log(tmp_path / "log", [line(0)])
    (tmp_path / "notes.md").write_text("mine")
    with pytest.raises(InvalidInput, match=r"notes\.md: is a file; give --out a run's folder"):
        called("import", "lmms", tmp_path / "log", "--out", tmp_path / "notes.md")
    assert (tmp_path / "notes.md").read_text() == "mine"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("id;duration_s;fps\na;1;2\n", r"separated by commas; has no 'id', but 'id;duration_s;fps'"),
        ("id,seconds,fps\na,1,2\n", r"has no 'duration_s', but 'id', 'seconds', 'fps'"),
        (
            "id,duration_s,fps\na,3:10.16,30\n",
            r"csv:2: duration_s '3:10\.16' or fps '30' is not a number; write seconds",
        ),
        ("id,duration_s,fps\na,10,30/0\n", r"csv:2: duration_s '10' or fps '30/0' is not a number"),
        ("id,duration_s,fps\na,10\n", r"csv:2: duration_s '10' or fps '' is not a number"),
        ("id,duration_s,fps\na,nan,30\n", r"csv:2: a video needs seconds and a rate above 0, got nan s"),
    ],
)
def test_rates_that_cannot_be_read_name_line_value_and_fix(tmp_path, text, message):
    (tmp_path / "rates.csv").write_text(text)
    with pytest.raises(InvalidInput, match=message):
        read_rates(tmp_path / "rates.csv")


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


def test_a_comparison_of_two_models_names_both(tmp_path):
    for name in ("7B", "72B"):
        write_log(tmp_path / name, [line(at, input=f"what {at}?") for at in range(4)], model_name=f"org/Model-{name}")
    output = called("compare", tmp_path / "7B", tmp_path / "72B", "--out", tmp_path / "page.html")
    assert "Model Model-7B / Model-72B, K 8" in " ".join(output.split())
    assert "Model-7B / Model-72B" in (tmp_path / "page.html").read_text()


def test_logs_that_do_not_state_k_are_compared_and_k_may_be_named(tmp_path, run_folder):
    arguments = {"a": "max_num_frames=8", "b": "fps=2"}
    for name, text in arguments.items():
        lines = [line(n, doc={"video_name": f"{n}.mp4", "question": f"what at {n}?"}) for n in range(12)]
        write_log(tmp_path / name, lines, config={"model": "some_vl", "model_args": f"pretrained=org/M-7B,{text}"})
    folders = (tmp_path / "a", tmp_path / "b")
    assert "K 8 / unknown: 12 questions paired" in called("compare", *folders)
    assert "K 8: 12 questions paired" in called("compare", *folders, "-o", "k=8")
    with pytest.raises(UnknownName, match="metrics"):
        called("compare", *folders, "-o", "metrics=acc")
    with pytest.raises(InvalidInput, match="-o is for logs of lmms-eval"):
        called("compare", run_folder, run_folder, "-o", "k=8")


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


@pytest.mark.parametrize(
    "arguments",
    [
        ("evidence", "RUN", "--policy", "else:a"),
        ("predict", "mine.json", "--logs", "RUN", "--annotations", "a.json", "--rates", "rates.csv"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_what_research_adds_says_how_it_is_installed_where_it_is_not(run_folder, monkeypatch, arguments):
    monkeypatch.setattr("focus_eval.core.offers.entry_points", lambda group, name: [])
    words = [str(run_folder) if word == "RUN" else word for word in arguments]
    with pytest.raises(InvalidInput, match=r"needs focus_eval_research, which is missing .*pip install -e research"):
        CliRunner().invoke(app, words, catch_exceptions=False)
