"""`focus-eval plan` and `run` as their user sees them."""

from __future__ import annotations

import json
import re

import pytest
import yaml
from typer.testing import CliRunner

from focus_eval.bench.matrix import selecting
from focus_eval.bench.matrix.cells import selection_specs
from focus_eval.bench.matrix.config import load_matrix
from focus_eval.bench.matrix.plan import _rate, load_sets, run_status
from focus_eval.bench.matrix.preflight import _infeasible_questions
from focus_eval.cli import app
from tests.bench.matrix.conftest import write_simulation


@pytest.fixture
def simulation(tmp_path):
    return write_simulation(tmp_path / "simulation", n_questions=6, n_videos=2)


def invoke(*arguments, width=240):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": str(width)})


def test_the_plan_says_once_what_all_selections_share(simulation):
    lines = invoke("plan", simulation).output.splitlines()
    assert lines[0] == "simulated: 6 questions"
    assert lines[1].strip() == "Selections of simulation, simulated, K = 8, seed 0"
    (heading,) = [line.split() for line in lines if "pulls" in line and "sampler" in line]
    assert heading[:3] == ["encoder", "sampler", "pulls"]  # longer titles are folded over two lines
    assert heading[3] in ("frames", "scored")
    # 3 questions about 60 seconds, 3 about 157, one frame a second; two videos
    assert ["trace", "topk", "651", "3.33%", "651", "217", "651", "217"] in [line.split() for line in lines]
    assert any("trace: its cost is not known here" in line for line in lines)
    assert any("frames to embed: all share one store" in line for line in lines)
    unshared = invoke("plan", simulation, "--set", "share_frames=false").output
    assert "each question pays for its own" in unshared


def test_a_plan_names_videos_without_a_length_once(simulation):
    folder = simulation.parent
    document = yaml.safe_load(simulation.read_text())
    document["benchmarks"][0].pop("rates")
    document["benchmarks"][0]["videos"] = str(folder)
    document["samplers"] = ["uniform", "random"]
    simulation.write_text(yaml.safe_dump(document))
    for question in json.loads((folder / "questions.json").read_text()):
        (folder / question["video_path"]).write_bytes(b"no video")
    lines = invoke("plan", simulation).output.splitlines()
    (unknown,) = [line for line in lines if "unknown" in line]
    assert re.match(r"simulated: 6 questions have a video of unknown length .* the first: .*v0.mp4: ", unknown)
    assert "2 selections and no model" in lines


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"samplers": ["fokus"]}, "unknown sampler 'fokus'; did you mean 'focus'"),
        ({"samplers": [{"sampler": "focus", "options": {"alpa": 0.5}}]}, "unknown option of sampler 'focus': 'alpa'"),
        ({"samplers": ["absent.py:Mine"]}, "there is no file"),
        ({"samplers": [{"sampler": "topk", "encoders": ["blip"]}]}, "unknown encoder of matrix"),
        ({"anchors": "alphaa"}, "unknown table 'alphaa'; did you mean 'alpha'"),
        ({"queries": ["a video frame"]}, "a template with {question}"),
        ({"queries": ["{question} {text}"]}, "a template has {question} and {options}, not {text}"),
        ({"name": "../elsewhere"}, "cannot be the name of the run's folder"),
    ],
)
def test_a_mistake_in_the_matrix_is_told_before_what_is_missing(simulation, tmp_path, change, message):
    matrix = yaml.safe_load(simulation.read_text())
    matrix["benchmarks"][0]["annotations"] = str(tmp_path / "absent.json")
    file = tmp_path / "mistaken.yaml"
    file.write_text(yaml.safe_dump({**matrix, **change}))
    for command in ("plan", "run"):
        exception = str(invoke(command, file).exception)
        assert message in exception
        assert exception.startswith(f"{file}: ") or "absent.py" in exception


def test_an_interrupted_run_says_that_nothing_is_lost(simulation, tmp_path, monkeypatch):
    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(selecting.SelectWorker, "run", interrupted)
        stopped = invoke("run", simulation, "--out", tmp_path / "run")
    assert stopped.exit_code == 130
    assert "Run the same command again to continue" in stopped.output
    result = invoke("run", simulation, "--out", tmp_path / "run")
    assert result.exit_code == 0
    assert "evidence recall and cost" in result.output  # the title of the run's table
    assert "report" in result.output.splitlines()[-1]


def test_status_ends_with_the_rows_of_all_parts(simulation, tmp_path):
    assert invoke("run", simulation, "--out", tmp_path / "run").exit_code == 0
    parts = run_status(tmp_path / "run")
    n_rows = sum(part.rows for part in parts)
    assert n_rows > parts[0].rows
    printed = invoke("status", tmp_path / "run").output.splitlines()
    assert printed[-1] == f"selections: {n_rows} of {n_rows} rows, 0 errors"
    narrow = [line for line in invoke("status", tmp_path / "run", width=60).output.splitlines() if "│" in line]
    assert {len(line) for line in narrow} <= set(range(61))
    words = {word for line in narrow for word in line.strip("│ ").split("│")[0].strip().split("-")}
    assert words >= {word for part in parts for word in part.name.split("-")[1:]}, "names fold at hyphens"


def test_an_unpacked_run_goes_on_where_it_is(simulation, tmp_path, monkeypatch):
    unpacked = tmp_path / "elsewhere" / "run"
    assert invoke("run", simulation, "--out", tmp_path / "run", "--limit", 3).exit_code == 0
    monkeypatch.chdir(tmp_path)
    assert invoke("pack", tmp_path / "run").output.startswith("run.zip: ")
    assert invoke("pack", "--undo", tmp_path / "run.zip", "--out", unpacked).exit_code == 0
    status_line = invoke("status", tmp_path / "run").output.splitlines()[-1]
    assert invoke("status", unpacked).output.splitlines()[-1] == status_line
    assert invoke("run", simulation, "--out", unpacked).exit_code == 0
    assert invoke("run", simulation, "--out", tmp_path / "run").exit_code == 0
    counts = [[part.rows for part in run_status(folder)] for folder in (tmp_path / "run", unpacked)]
    assert counts[0] == counts[1]
    assert all(rows == 6 for rows in counts[1])
    files = {folder: sorted(folder.glob("selections/*/rows.parquet")) for folder in (tmp_path / "run", unpacked)}
    assert [file.read_bytes() for file in files[unpacked]] == [file.read_bytes() for file in files[tmp_path / "run"]]


def with_samplers(simulation, *samplers, k=8, **changes):
    """Rewrite the matrix with these samplers, and return it."""
    matrix = yaml.safe_load(simulation.read_text())
    simulation.write_text(yaml.safe_dump({**matrix, "samplers": list(samplers), "k": [k], **changes}))
    return simulation


def warnings_of(simulation):
    """Return the warnings of `plan`."""
    result = invoke("plan", simulation)
    assert result.exit_code == 0, result.output
    return [line for line in result.output.splitlines() if line.startswith("warning: ")]


INFEASIBLE = (
    "aks, K 8: 6 of 6 questions (first: q0, 60.0 s) may end without frames: a segment at max_depth=5 gives "
    "int(8 / 32) = 0 frames; set max_depth=3 or less, or k=32 or more"
)


def test_a_sampler_that_may_end_without_frames_is_refused_before_the_run(simulation, tmp_path):
    with_samplers(simulation, "aks", "topk", "focus")
    for command in (("plan", simulation), ("run", simulation, "--out", tmp_path / "run")):
        result = invoke(*command)
        assert result.exit_code == 1
        lines = result.output.splitlines()
        assert lines[lines.index("missing: 1") + 1] == f"- frames of {INFEASIBLE}"
    assert not (tmp_path / "run").exists()


def test_the_annotations_length_tells_as_much_where_no_rate_is_stated(simulation):
    matrix = load_matrix(with_samplers(simulation, "aks"))
    (questions,) = load_sets(matrix).values()
    questions.__dict__["rates"] = {}
    (spec,) = selection_specs(matrix)
    assert len(_infeasible_questions(spec, questions)) == 6


def test_where_the_matrix_allows_such_errors_they_are_a_note(simulation):
    result = invoke("plan", with_samplers(simulation, "aks", "topk", "focus", max_error_share=0.5))
    assert result.exit_code == 0
    assert f"note: {INFEASIBLE}; such errors count, as max_error_share = 50% allows" in result.output.splitlines()


def test_nothing_is_refused_where_k_is_large_enough(simulation):
    with_samplers(simulation, "aks", "topk", "blind", "oracle", k=32)
    assert warnings_of(simulation) == []
    assert "may end" not in invoke("plan", simulation).output


def test_the_plan_names_question_length_and_remedy_of_a_broken_contract(simulation, tmp_path):
    (tmp_path / "mine.py").write_text(
        "from dataclasses import dataclass\n"
        "from focus_eval import Choice, FrameSampler\n"
        "@dataclass(frozen=True, kw_only=True)\n"
        "class Mine(FrameSampler):\n"
        "    name, source = 'mine', 'test'\n"
        "    def choose(self, request):\n"
        "        frames = request.video.frames_every(10.0)\n"
        "        request.ledger.relevance(frames)\n"
        "        return Choice(keyframes=frames[: request.k])\n"
    )
    (line,) = warnings_of(with_samplers(simulation, f"{tmp_path / 'mine.py'}:Mine"))
    assert line == (
        "warning: mine, K 8: 3 of 6 questions (first: q0, 60.0 s) will be errors: mine chose 6 keyframes, 8 were "
        "requested, of a video of 1800 frames (60.0 s); return request.n_wanted of them, or declare "
        "may_return_fewer = True if that is meant"
    )


def test_a_part_whose_description_was_put_aside_has_no_rate_yet(tmp_path):
    (tmp_path / "rows-1-local.jsonl").write_text("")
    assert _rate(tmp_path, 5) is None
