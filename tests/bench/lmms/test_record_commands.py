"""Every command that reads a run reads a record of the plugin too: simple and chat requests, a service, two ranks."""

from __future__ import annotations

import json
import re
import shutil

import pytest
from typer.testing import CliRunner

from focus_eval.bench.lmms.models.openai import FocusGPT4o, FocusGPT4oChat
from focus_eval.bench.matrix.config import load_matrix
from focus_eval.bench.matrix.running import complete_run
from focus_eval.bench.report.run import load_run
from focus_eval.cli import app
from tests.support.bench.answering import write_answering_matrix
from tests.support.bench.commands import called
from tests.support.keyframes.chat_server import ChatServer
from tests.support.keyframes.tiny_transformers import save_qwen_successor

RECORDS = ("service_chat", "service_simple", "local_chat", "local_simple", "native", "two_ranks")
N_QUESTIONS = {"longvideobench": 8, "videomme": 4}


@pytest.fixture(scope="module")
def records(home, tiny_qwen, tmp_path_factory):
    """Record folders of lmms-eval runs of the plugin, by name: two tasks each."""
    from lmms_eval.evaluator import simple_evaluate
    from lmms_eval.tasks import TaskManager

    from focus_eval.bench.lmms.models.qwen_vl import FocusQwen2_5VLChat, FocusQwen2VL
    from focus_eval.core.resources import resource_path

    folder = tmp_path_factory.mktemp("records")
    successor = save_qwen_successor(tmp_path_factory.mktemp("tiny") / "qwen2_5", "qwen2_5")
    local = {"pretrained": str(tiny_qwen), "device": "cpu"}
    with pytest.MonkeyPatch.context() as patch, ChatServer() as server:
        patch.setenv("OPENAI_API_KEY", "any")
        patch.setenv("HF_HOME", str(home.hf))
        patch.chdir(home.root)
        models = {
            "service_chat": lambda **options: FocusGPT4oChat(base_url=server.url, sampler="random", **options),
            "service_simple": lambda **options: FocusGPT4o(base_url=server.url, sampler="uniform", **options),
            "local_chat": lambda **options: FocusQwen2_5VLChat(
                pretrained=str(successor), device="cpu", sampler="uniform", **options
            ),
            "local_simple": lambda **options: FocusQwen2VL(**local, sampler="random", **options),
            "native": lambda **options: FocusQwen2VL(**local, sampler="native", **options),
        }
        for name, load in models.items():
            model = load(frames=4, seed=3, record=str(folder / name))
            tasks = TaskManager(
                "ERROR",
                include_path=str(resource_path("tasks")),
                include_defaults=False,
                model_name=model.model_id,
            )
            simple_evaluate(
                model=model,
                tasks=["focus_longvideobench", "focus_videomme"],
                task_manager=tasks,
                gen_kwargs="max_new_tokens=2",
                datetime_str="now",
                bootstrap_iters=0,
            )
    # What two processes of accelerate leave: each row in the file of the rank that was dealt its document.
    shutil.copytree(folder / "service_simple", folder / "two_ranks")
    for path in (folder / "two_ranks").rglob("rows-rank0of1.jsonl"):
        rows = path.read_text().splitlines(keepends=True)
        for rank in (0, 1):
            path.with_name(f"rows-rank{rank}of2.jsonl").write_text("".join(rows[rank::2]))
        path.unlink()
    return {name: folder / name for name in (*models, "two_ranks")}


@pytest.fixture(scope="module")
def matrix_run(tmp_path_factory):
    """A run of a matrix that a service on this machine answered."""
    folder = tmp_path_factory.mktemp("matrix")
    with pytest.MonkeyPatch.context() as patch, ChatServer() as server:
        patch.setenv("OPENAI_API_KEY", "any")
        model = {"name": "service", "model": "focus_gpt4o", "args": {"base_url": server.url}, "frames": 4}
        matrix = load_matrix(write_answering_matrix(folder, 8, model=model, samplers=("uniform", "random")))
        complete_run(matrix, out=folder / "run")
    return folder / "run"


def cell_of(record, benchmark="longvideobench"):
    """Return the folder of the record's cell on a benchmark."""
    (cell,) = record.glob(f"focus_{benchmark}-*")
    return cell


@pytest.mark.slow
@pytest.mark.parametrize("command", [pytest.param("audit", marks=pytest.mark.upper_rooms), "compare"])
def test_a_record_of_two_ranks_is_read_as_that_of_one(records, command):
    def output_of(name):
        arguments = (
            (cell_of(records[name]), cell_of(records["local_simple"])) if command == "compare" else (records[name],)
        )
        result = CliRunner().invoke(app, [command, *map(str, arguments)])
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        assert result.exit_code < 2, result.output
        return result.exit_code, result.output.replace(str(records[name]), "").replace(name, "")

    assert output_of("two_ranks") == output_of("service_simple")


@pytest.mark.usefixtures("unsaved_figures")
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] if name.startswith("local") or name == "service_simple" else [])
        for name in RECORDS
    ],
)
def test_report_writes_all_its_files_of_a_record(records, name, tmp_path):
    cell = cell_of(records[name])
    output = called("report", cell, "--out", tmp_path)
    for file in ("report.md", "report.tex", "report.csv", "report.html", "methods.md", "references.bib"):
        assert (tmp_path / file).stat().st_size > 100
        assert file in output.replace("\n", "")
    assert "8 of 1337" in (tmp_path / "report.md").read_text()
    sampler = {"service_chat": "random", "local_simple": "random", "native": "native"}.get(name, "uniform")
    methods = (tmp_path / "methods.md").read_text()
    version = "" if name == "native" else r"version \d+, "
    assert re.search(rf"Samplers: {sampler}[^;]* \({version}", methods)
    assert "revision" in methods or load_run(cell).provenance["starts"][0].get("git") is None
    assert re.search(r"Versions: python 3\.", methods)


@pytest.mark.usefixtures("unsaved_figures")
def test_report_writes_all_its_files_of_a_matrix_run(matrix_run, tmp_path):
    called("report", matrix_run, "--out", tmp_path)
    assert re.search(r"uniform \(version \d+", (tmp_path / "methods.md").read_text())


@pytest.mark.parametrize("name", RECORDS)
def test_status_counts_the_rows_of_a_record_and_of_a_folder_of_them(records, name):
    n_answers = N_QUESTIONS["longvideobench"]
    assert f"answers: {n_answers} rows, 0 errors" in called("status", cell_of(records[name]))
    assert f"answers: {sum(N_QUESTIONS.values())} rows, 0 errors" in called("status", records[name])


def test_status_of_a_matrix_run_knows_how_many_are_asked(matrix_run):
    assert "answers: 16 of 16 rows, 0 errors" in called("status", matrix_run)


@pytest.mark.usefixtures("unsaved_figures")
@pytest.mark.parametrize("name", ["service_chat", "native"])
def test_a_packed_record_is_reported_alike(records, name, tmp_path):
    cell = cell_of(records[name])
    called("pack", cell, "--out", tmp_path / "packed.zip")
    called("report", cell, "--out", tmp_path / "plain", "--no-html")
    called("report", tmp_path / "packed.zip", "--out", tmp_path / "packed", "--no-html")
    for file in ("report.md", "report.csv", "methods.md"):
        assert (tmp_path / "plain" / file).read_text() == (tmp_path / "packed" / file).read_text()


@pytest.mark.parametrize(("a", "b"), [("service_simple", "service_chat"), ("native", "local_simple")])
def test_compare_pairs_the_questions_of_two_records(records, a, b):
    output = called("compare", cell_of(records[a]), cell_of(records[b]))
    assert "8 questions paired" in output


def test_requests_to_a_service_that_differ_in_their_images_alone_are_not_called_different(records, tmp_path):
    first = cell_of(records["service_chat"])
    copy = tmp_path / "copy"
    shutil.copytree(first, copy)
    assert "different requests" not in called("compare", first, copy)
    (file,) = copy.glob("answers/*/prompt.json")
    prompt = json.loads(file.read_text())
    prompt.pop("sha256")
    prompt["text"] = re.sub(r"\d+ bytes, \w+", "999 bytes, 0123456789abcdef", prompt["text"])
    file.write_text(json.dumps(prompt))
    assert "different requests" not in called("compare", first, copy)
    prompt["text"] = prompt["text"].replace("user:", "system:", 1)
    file.write_text(json.dumps(prompt))
    assert "different requests" in called("compare", first, copy)


def test_wrapper_sampling_has_unknown_frames_and_no_cost(records):
    run = load_run(cell_of(records["native"]))
    assert {row.sampler for row in run.selections} == {"native"}
    assert all(row.keyframes is None for row in run.selections)
    assert not run.selection_frame["has_cost"].any()
