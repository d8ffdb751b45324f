"""Preflight names everything that is missing before any work, and says "nothing is missing" only where that is so."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from focus_eval.bench.matrix import preflight, running
from focus_eval.bench.matrix import preflight as model_checks
from focus_eval.bench.matrix.config import ModelConfig, load_matrix
from focus_eval.bench.matrix.preflight import check_all
from focus_eval.cli import app
from tests.support.keyframes.chat_server import ChatServer

from .test_documents import documents, hub, shards, snapshot  # noqa: F401 (hub is a fixture)
from .whole_machine import KEY, SERVED_MODEL, Machine, free_disk, service, weights  # noqa: F401 (two are fixtures)


@pytest.fixture
def machine(tmp_path, hub, weights, service, monkeypatch):  # noqa: F811
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setattr("huggingface_hub.get_token", lambda: None)
    free_disk(monkeypatch, 1000)  # so that no test depends on the disk it runs on,
    monkeypatch.setattr("focus_eval.bench.matrix.preflight._API_SECONDS", 600)  # nor on its speed
    return Machine(tmp_path, hub, weights, service)


def test_on_a_whole_machine_nothing_is_missing(machine):
    report = machine.check()
    assert report.missing == ()
    assert {name: len(loaded.questions) for name, loaded in report.sets.items()} == {
        "table/longvideobench": 4, "table/videomme": 4,
    }  # fmt: skip


def no_gpu_memory(machine, monkeypatch):
    monkeypatch.setattr(model_checks, "host_gigabytes", lambda: 1e-6)


def cards(*sizes, **model):
    def broken(machine, monkeypatch):
        monkeypatch.setattr(model_checks, "gpu_gigabytes", lambda: list(sizes))
        machine.model().update(model)

    return broken


def full_disk(machine, monkeypatch):
    free_disk(monkeypatch, 0)


def shard(action):
    def broken(machine, monkeypatch):
        file = sorted((machine.root / "qwen").glob("*.safetensors"))[1]
        action(file)

    return broken


def change(path, value):
    """Set a key of the matrix, e.g. ("models", 0, "args", "pretrained")."""

    def broken(machine, monkeypatch):
        at = machine.matrix
        for part in path[:-1]:
            at = at[part]
        at[path[-1]] = value

    return broken


def without(name):
    return lambda machine, monkeypatch: (machine.root / name).unlink()


def config_says(key, value):
    def broken(machine, monkeypatch):
        file = machine.root / "qwen" / "config.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), key: value}))

    return broken


def documents_gone(machine, monkeypatch):
    shutil.rmtree(machine.hub / "datasets--longvideobench--LongVideoBench")


def cut(file):
    file.write_bytes(file.read_bytes()[:-50])


def corrupt_parquet(machine, monkeypatch):
    cut(machine.mme / "test-00000-of-00001.parquet")


def half_the_videos(machine, monkeypatch):
    for name in ("m1", "m3"):
        (machine.root / "videomme/data" / f"{name}.mp4").unlink()


def empty_video(machine, monkeypatch):
    (machine.root / "videomme/data/m2.mp4").write_bytes(b"")


def videos_elsewhere(machine, monkeypatch):
    (machine.root / "videomme").rename(machine.root / "elsewhere")
    machine.matrix["benchmarks"][1]["videos"] = str(machine.root / "elsewhere/data")


def other_annotations(machine, monkeypatch):
    file = machine.root / "annotations.json"
    rows = documents(6)[2:]
    file.write_text(json.dumps(rows))
    machine.matrix["benchmarks"][0]["annotations"] = str(file)
    (machine.root / "datasets/longvideobench/videos/v2.mp4").write_bytes(b"x")


# What is broken, and what the table of missing things says of it.
BROKEN = {
    "weights not fetched": (
        change(("models", 0, "args", "pretrained"), "Qwen/Qwen2-VL-7B-Instruct"),
        r"weights of model qwen \(Qwen/Qwen2-VL-7B-Instruct, 17 GB\) are not on this machine .* hf download Qwen/",
    ),
    "a missing shard": (shard(Path.unlink), r"weights of model qwen .*: 1 of \d+ shards are missing: model-00002-of-"),
    "a shard cut short": (shard(cut), r"weights of model qwen .*model-00002-of-\d+.safetensors: damaged"),
    "another model's weights": (
        config_says("model_type", "qwen3_vl"),
        "holds a 'qwen3_vl' model, focus_qwen2_vl needs 'qwen2_vl'",
    ),
    "no tokenizer": (without("qwen/tokenizer.json"), "weights of model qwen .*: no tokenizer"),
    "an argument the model does not have": (
        change(("models", 0, "args", "attn_implementation"), "sdpa"),
        r"arguments of model qwen \(focus_qwen2_vl\) .*unknown argument of focus_qwen2_vl: 'attn_implementation'",
    ),
    "an argument of the wrong kind": (
        change(("models", 0, "args", "max_num_frames"), 4),
        "arguments of model qwen .*frames=8 is more than max_num_frames=4",
    ),
    "a model lmms-eval does not know": (
        change(("models", 0, "model"), "focus_qwen2_vll"),
        r"model qwen \| unknown lmms-eval model 'focus_qwen2_vll'; did you mean 'focus_qwen2_vl'\?",
    ),
    "a folder of weights that is not there": (
        change(("models", 0, "args", "pretrained"), "/absent/my-qwen"),
        r"weights of model qwen: no folder /absent/my-qwen \| correct the path",
    ),
    "a folder of an encoder that is not there": (
        change(("encoders", 0, "options", "checkpoint"), "/absent/my-clip"),
        "weights of encoder tiny .*'/absent/my-clip': no such folder; correct the path",
    ),
    "no key": (lambda machine, patch: patch.delenv("OPENAI_API_KEY"), "the API key of model gpt4o .*export OPENAI"),
    "a wrong key": (
        lambda machine, patch: patch.setenv("OPENAI_API_KEY", "sk-wrong"),
        r"an API key of model gpt4o that http://127.0.0.1:\d+/v1 accepts \(it says 401\)",
    ),
    "a service out of reach": (
        change(("models", 1, "args", "base_url"), "http://127.0.0.1:9/v1"),
        "the API of model gpt4o: http://127.0.0.1:9/v1 cannot be reached",
    ),
    "a model the service does not have": (
        change(("models", 1, "args", "model_version"), "gpt-9"),
        f"model gpt-9 at http.* set model_version to one it serves: {SERVED_MODEL}",
    ),
    "an encoder that is not fetched": (
        change(("encoders", 0, "options", "checkpoint"), "siglip-so400m-patch14-384"),
        "weights of encoder tiny .*hf download google/siglip",
    ),
    "an encoder cut short": (
        lambda machine, patch: cut(machine.root / "clip" / "model.safetensors"),
        "weights of encoder tiny .*damaged",
    ),
    "an option the encoder does not have": (
        change(("encoders", 0, "options", "presicion"), "fp16"),
        "encoder tiny .*unknown option of encoder 'clip': 'presicion'",
    ),
    "a gated data set without a token": (
        documents_gone,
        r"documents of longvideobench \(longvideobench/LongVideoBench, split validation\) are not on this machine; the "
        r"data set is gated, no token is set .*hf download longvideobench/LongVideoBench .*hf auth login",
    ),
    "a missing shard of documents": (
        lambda machine, patch: (snapshot(machine.hub) / "validation-00001-of-00002.parquet").unlink(),
        "documents of longvideobench .* are not complete in the hub's cache",
    ),
    "a corrupt parquet": (corrupt_parquet, "questions of videomme .*test-00000-of-00001.parquet: cannot be read"),
    "another number of questions": (
        change(("benchmarks", 0, "questions"), 1337),
        "questions of longvideobench .*4 questions, longvideobench has 1337",
    ),
    "a task nobody knows": (
        change(("benchmarks", 1, "task"), "focus_videome"),
        "questions of videomme .*task 'focus_videome' is known neither",
    ),
    "annotations of another split": (
        other_annotations,
        "2 of 4 questions of longvideobench in the task's documents .*the first is 'q4'",
    ),
    "half the videos": (
        half_the_videos,
        r"2 of 4 videos of videomme \(m1.mp4, m3.mp4\); .* of about 100 GB are here \| "
        r"put them into .*videomme/data, or remove that folder and let lmms-eval fetch and unpack all: "
        r"`python -c .*get_task_dict\(\['focus_videomme'\], .*include_path=",
    ),
    "an empty video": (empty_video, r"1 of 4 videos of videomme are empty files \(m2.mp4\)"),
    "videos where the task does not look": (videos_elsewhere, "one place for the videos of videomme: .*data_home"),
    "no file of rates": (
        change(("benchmarks", 0, "rates"), "/no/such/rates.csv"),
        "questions of longvideobench .*/no/such/rates.csv: cannot be read",
    ),
    "a full disk": (full_disk, r"disk: [\d.e-]+ GB needed, 0 GB free on .*name another disk: --out and"),
    "too little memory": (no_gpu_memory, "memory for model qwen"),
    "too few GPUs": (cards(80.0, gpus=4), "GPUs for model qwen: it takes 4, 1 are here"),
    "GPUs that are too small": (cards(1e-9), "memory for model qwen: 0 GB of weights, 0 GB on 1 GPUs"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_set_up_is_named_with_what_to_do(machine, monkeypatch, name):
    broken, message = BROKEN[name]
    broken(machine, monkeypatch)
    report = machine.check()
    lines = [f"{missing.problem} | {missing.fix}" for missing in report.missing]
    print(f"{name}: " + "; ".join(lines))
    assert any(re.search(message, line) for line in lines), lines
    assert len(lines) <= 2, "what is not broken is named too"  # both encoders read one checkpoint


def test_all_that_is_missing_is_named_at_once_and_no_work_is_done(machine, monkeypatch):
    names = ["a missing shard", "no key", "half the videos", "a gated data set without a token", "a corrupt parquet"]
    for name in names:
        BROKEN[name][0](machine, monkeypatch)
    monkeypatch.setattr(running, "complete_run", lambda *args, **options: pytest.fail("work was begun"))
    machine.check()
    out = machine.root / "runs" / "table"
    for command in (["run", str(machine.file), "--out", str(out)], ["plan", str(machine.file), "--out", str(out)]):
        result = CliRunner().invoke(app, command)
        assert result.exit_code == 1
        printed = " ".join(result.output.split())
        for part in ("shards are missing", "the API key of model gpt4o", "is gated", "cannot be read"):
            assert part in printed
        assert "nothing is missing" not in printed
    assert not (machine.root / "runs").exists(), "something was written"


def test_what_is_still_to_be_fetched_must_fit_on_the_disk_too(machine, monkeypatch):
    free_disk(monkeypatch, 20)
    BROKEN["weights not fetched"][0](machine, monkeypatch)  # 17 GB
    assert not any("disk" in missing.problem for missing in machine.check().missing)
    half_the_videos(machine, monkeypatch)  # 50 of 100 GB more, and as much for their archives
    (disk,) = [missing.problem for missing in machine.check().missing if "disk" in missing.problem]
    assert disk.startswith("disk: 118 GB needed, 20 GB free on")
    machine.matrix["benchmarks"][1]["disk_copies"] = 3
    shutil.rmtree(machine.root / "videomme/data")
    whats = [missing.problem for missing in machine.check().missing]
    assert any(problem.startswith("disk: 318 GB needed") for problem in whats), whats


def test_a_folder_that_cannot_be_written_is_named_with_its_option(machine, monkeypatch):
    assert machine.check().missing == ()
    closed = machine.root / "closed"
    closed.mkdir()
    monkeypatch.setattr(preflight.os, "access", lambda path, mode: path != closed)
    matrix, runs = load_matrix(machine.file), machine.root / "runs"
    for out, store, option in ((runs, closed, "--store"), (closed, runs, "--out")):
        (problem,) = check_all([(matrix, out / "table")], store=store / "store.sqlite").missing
        assert problem.problem == f"{closed}: cannot be written"
        assert f"with {option}," in problem.fix


def test_what_a_matrix_says_that_it_writes_must_be_free_beside_its_store(machine, monkeypatch):
    machine.matrix["store_gigabytes"] = 6
    free_disk(monkeypatch, 4)
    (disk,) = [missing.problem for missing in machine.check().missing]
    assert disk.startswith("disk: 6 GB needed, 4 GB free on")
    machine.matrix["limit"] = 2  # a try takes less than the table
    assert machine.check().missing == ()
    del machine.matrix["limit"]
    (machine.root / "runs").mkdir()
    with open(machine.root / "runs" / "store.sqlite", "wb") as store:
        store.truncate(2_500_000_000)
    assert machine.check().missing == ()


def test_without_documents_a_missing_folder_of_videos_is_named_too(machine, monkeypatch):
    documents_gone(machine, monkeypatch)
    shutil.rmtree(machine.root / "datasets")
    names = [missing.problem.split(" of longvideobench")[0] for missing in machine.check().missing]
    assert names == ["documents", "all videos"]


def test_what_several_matrices_lack_is_named_once(machine, monkeypatch):
    half_the_videos(machine, monkeypatch)
    machine.check()
    second = machine.root / "second.yaml"
    second.write_text(machine.file.read_text())
    pairs = [(load_matrix(file), machine.root / "runs" / file.stem) for file in (machine.file, second)]
    assert len(check_all(pairs).missing) == 1


def test_a_limit_asks_only_for_the_videos_of_its_questions(machine, monkeypatch):
    half_the_videos(machine, monkeypatch)
    machine.matrix["limit"] = 1
    assert machine.check().missing == ()


def test_a_model_that_will_run_on_the_cpu_is_a_note_and_stops_nothing(machine, monkeypatch):
    cards()(machine, monkeypatch)
    report = machine.check()
    assert "qwen will run on the CPU: torch finds no GPU" in report.notes
    assert report.missing == ()


def test_with_half_the_videos_the_available_questions_are_asked_and_called_partial(machine, monkeypatch):
    half_the_videos(machine, monkeypatch)
    (lack,) = machine.check().missing
    assert "--available-only" in lack.fix
    machine.matrix["available_only"] = True
    report = machine.check()
    assert report.missing == ()
    assert "videomme: 0 of 2 videos verified" in report.notes
    assert "videomme: 2 of 4 questions are asked, those whose video is here: every figure of this run is partial" in (
        report.notes
    )
    machine.matrix["limit"] = 1
    assert any(
        note.startswith("videomme: 1 of 4 questions are asked, the first whose") for note in machine.check().notes
    )
    questions = report.sets["table/videomme"]
    assert (len(questions.questions), len(questions.all_ids)) == (2, 4)
    assert {question.video for question in questions.questions} == {"m0.mp4", "m2.mp4"}
    assert running._asked_questions({"videomme": questions})["question_ids"] == {
        "videomme": [question.id for question in questions.questions]
    }


def test_with_no_video_at_all_even_the_available_questions_are_missing(machine, monkeypatch):
    for video in (machine.root / "videomme/data").glob("*.mp4"):
        video.unlink()
    machine.matrix["available_only"] = True
    assert any(lack.problem == "every video of videomme" for lack in machine.check().missing)


def test_the_demos_questions_and_videos_are_made_by_the_demo(tmp_path, monkeypatch):
    monkeypatch.setenv("FOCUS_EVAL_DEMO", str(tmp_path))
    matrix = load_matrix("demo")
    missing = check_all([(matrix, tmp_path / "run")]).missing
    assert [item.fix for item in missing if "photo_events" in item.problem] == ["`focus-eval demo` makes them"] * 2


def test_a_service_whose_list_of_models_is_a_web_page_is_no_traceback(monkeypatch):
    monkeypatch.setenv("ANY_KEY", "any")
    with ChatServer(content=b"<html>a page</html>") as server:
        arguments = {"base_url": server.url, "model_version": "m"}
        model = ModelConfig(name="m", model="focus_gpt4o", args=arguments, frames=8, api_key="ANY_KEY")
        assert list(preflight.key_problems(model)) == []
