"""Cells of a matrix with and without subtitles: their prompts, their rows and identities, and the report on them."""

from __future__ import annotations

from collections import defaultdict

import pandas as pd
import pytest
import yaml
from typer.testing import CliRunner

from focus_eval.bench.matrix.cells import cells
from focus_eval.bench.matrix.config import load_matrix
from focus_eval.bench.matrix.preflight import check_all
from focus_eval.bench.report.layouts import results_table
from focus_eval.bench.report.methods import methods_texts
from focus_eval.bench.report.run import load_run
from focus_eval.cli import app
from focus_eval.keyframes.subtitles.files import read_subtitles
from focus_eval.keyframes.subtitles.prompts import block_text, interleaved, shown_lines
from tests.support.bench.lmms_data import QUESTIONS, write_home
from tests.support.keyframes.chat_server import ChatServer

MODES = {"plain": {}, "off": {"subtitles": "off"}, "shown": {"subtitles": "shown"}, "all": {"subtitles": "all"}}
FOLDERS = {
    "longvideobench": ("datasets/longvideobench/subtitles", "_en.json"),
    "videomme": ("videomme/subtitle", ".srt"),
}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Documents, clips and subtitles of the benchmarks; one video of Video-MME has no subtitles."""
    home_folder = write_home(tmp_path_factory.mktemp("home"))
    (home_folder.hf / "videomme/subtitle/portrait.srt").unlink()
    (documents,) = home_folder.data["videomme"].glob("*.parquet")
    frame = pd.read_parquet(documents)
    # No other video is asked the same question, so a request tells whose it is.
    frame["question"] = frame["question"] + " (" + frame["videoID"] + " of Video-MME)"
    frame.to_parquet(documents)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HOME", str(home_folder.hf))
        import lmms_eval.tasks.videomme.utils as videomme

        # Read once, when the module is imported; another test may have imported it before.
        patch.setattr(videomme, "base_cache_dir", str(home_folder.hf))
        yield home_folder


@pytest.fixture
def bodies(monkeypatch):
    """The requests to a service on this machine, which answers each with B."""
    requests = []
    with ChatServer(reply_to=lambda body: requests.append(body) or ("B", {})) as server:
        monkeypatch.setenv("OPENAI_API_KEY", "any")
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("OPENAI_API_BASE", server.url)
        monkeypatch.setenv("TQDM_DISABLE", "1")
        yield requests


def write_matrix(home, folder, tasks, modes):
    """Write a matrix of a service that gets three random frames, under each of `modes`; return its file."""
    benchmarks = [
        {
            "name": task, "benchmark": name, "task": task, "dataset": str(home.data[name]),
            "videos": str(home.videos[name]), "data_home": str(home.hf),
        }
        for task, name in tasks.items()
    ]  # fmt: skip
    model = {"model": "focus_gpt4o", "args": {"retry_backoff_s": 0.01}, "frames": 3, "needs_gpu": False}
    document = {
        "name": "spoken",
        "benchmarks": benchmarks,
        "models": [{**model, "name": name, **MODES[name]} for name in modes],
        "samplers": ["random"],
    }
    file = folder / "matrix.yaml"
    file.write_text(yaml.safe_dump(document))
    return file


def run_by_command(file, out):
    """Run a matrix by command; return its rows, and the notes and methods of its report."""
    result = CliRunner().invoke(app, ["run", str(file), "--out", str(out)])
    assert result.exit_code == 0, (result.output, result.stderr, result.exception)
    run = load_run(out)
    return run, results_table(run).notes, methods_texts(run)[0]


def question_of(row):
    where = f"{row.video.removesuffix('.mp4')}{' of Video-MME' if row.benchmark == 'videomme' else ''}"
    return f"{QUESTIONS[int(row.question_id[-1])]} ({where})"


def expected_prompt(home, row, mode):
    """The lines of a prompt about a row's frames above the question; None for each picture."""
    folder, suffix = FOLDERS[row.benchmark]
    path = home.hf / folder / f"{row.video.removesuffix('.mp4')}{suffix}"
    lines, times = read_subtitles(path) if path.exists() else (), [frame / 10 for frame in row.fed_frames]
    shown_texts = {"off": (), "all": lines, "shown": shown_lines(lines, times, rule=row.benchmark, fps=10.0)}[mode]
    if row.benchmark == "longvideobench":
        return interleaved(lines, times, texts_of=shown_texts)
    block = block_text(shown_texts, absence="" if lines else "No subtitles available").splitlines()
    return [None, None, None, *(block if mode != "off" else [])]


def prompts_by_question(bodies):
    """The lines of each request above its question (and the task's words before it), by the question."""
    prompts = defaultdict(list)
    for body in bodies:
        parts = [part.get("text") for message in body["messages"] for part in message["content"]]
        lines = [line for part in parts for line in ([None] if part is None else part.splitlines())]
        at = next(at for at, line in enumerate(lines) if line is not None and line.endswith(")"))
        own_words = lines[at - 1] is not None and lines[at - 1].startswith("Select the best answer")
        prompts[lines[at]].append(lines[: at - own_words])
    return prompts


@pytest.mark.parametrize(
    ("tasks", "default"),
    [
        ({"focus_longvideobench": "longvideobench", "focus_videomme": "videomme"}, "off"),
        pytest.param(
            {"longvideobench_val_i": "longvideobench", "videomme_w_subtitle": "videomme"},
            "shown",
            marks=pytest.mark.slow,
        ),
    ],
    ids=["own_tasks", "stock_tasks"],
)
def test_cells_with_and_without_subtitles(home, task_index, bodies, tmp_path, tasks, default):
    file = write_matrix(home, tmp_path, tasks, MODES)
    run, notes, methods = run_by_command(file, tmp_path / "run")
    requests, expected = prompts_by_question(bodies), defaultdict(list)
    for row in run.answers:
        mode = default if row.model == "plain" else row.model
        expected[question_of(row)].append(expected_prompt(home, row, mode))
        has_none = row.video == "portrait.mp4" and row.benchmark == "videomme" and mode != "off"
        assert (row.error, row.prompt_note) == (None, "no subtitles available" if has_none else "")
    assert len(bodies) == len(MODES) * (8 + 4)
    assert {key: sorted(prompts, key=str) for key, prompts in requests.items()} == {
        key: sorted(prompts, key=str) for key, prompts in expected.items()
    }
    # Two cells have one identity exactly where their prompts are the same.
    for name in tasks.values():
        ids = {cell.model.name: cell.id for cell in cells(load_matrix(file)) if cell.benchmark.benchmark == name}
        assert len(set(ids.values())) == 3
        assert ids["plain"] == ids[default]
    assert max(len(set(map(str, prompts))) for prompts in requests.values()) == 3
    modes = {"shown": "with subtitles of the shown frames", "all": "with all subtitles of the video"}
    if default == "shown":
        modes |= {"plain": modes["shown"], "off": "without the subtitles that the task itself would write"}
    assert {note for note in notes if "prompts" in note} == {
        f"{model} on {name}: prompts {words}." for model, words in modes.items() for name in tasks.values()
    }
    assert {note for note in notes if "available" in note} == {
        f"{model}: no subtitles available for 2 of 12 answers." for model in modes if model != "off"
    }
    assert "; shown [@focus_gpt4o], subtitles shown" in methods


def test_subtitles_that_a_benchmark_or_a_model_cannot_have_are_refused_before_the_run(home, bodies, tmp_path):
    file = write_matrix(home, tmp_path, {"focus_mlvu": "mlvu"}, ["all"])
    result = CliRunner().invoke(app, ["run", str(file), "--out", str(tmp_path / "run")])
    assert (
        str(result.exception)
        == f"{file}: subtitles=all: benchmark focus_mlvu declares no `subtitles` in its file; subtitles=off"
    )
    document = yaml.safe_load(write_matrix(home, tmp_path, {"focus_videomme": "videomme"}, ["all"]).read_text())
    document["models"][0] |= {"model": "focus_zero_shot", "args": {"answer_encoder": "offline"}}
    document["models"][0]["subtitle_layout"] = "interleaved"
    file.write_text(yaml.safe_dump(document))
    (missing,) = check_all([(load_matrix(file), tmp_path / "run")]).missing
    assert "focus_zero_shot takes a video, not pictures one by one; say subtitle_layout=block" in missing.fix
    assert not bodies
