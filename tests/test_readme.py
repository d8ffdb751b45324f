"""What the README says is true: its sampler works, its commands, files and models exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from focus_eval import VideoInfo, make_sampler
from focus_eval.cli import app
from tests.support.keyframes.chat_server import ChatServer
from tests.support.keyframes.synthetic import write_numbered_clip

from .pages import blocks, shell_lines

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


# What takes minutes as printed is run as printed with these options behind it.
SHORTENED = {"focus-eval compare-samplers mine.py:Mine": "focus --videos 5 --out compared"}
# What cannot be run here, and what runs it instead.
ELSEWHERE = {
    "python3 -m venv": "scripts/checks/installs.py",
    "make demo": "tests/bench/demo",
    "source": "the shell",
    "pip install": "scripts/checks/installs.py",
    "lmms-eval": "tests/lmms, tests/rehearsal with tiny weights",
    "focus-eval plan": "tests/rehearsal",
    "focus-eval run": "tests/rehearsal",
    "focus-eval report": "tests/rehearsal",
    "focus-eval audit": "tests/external",
}


LINES = sorted({shlex.join(line.words) for line in shell_lines(ROOT / "README.md")})
LINES_RUN_HERE = [line for line in LINES if not line.startswith(tuple(ELSEWHERE))]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The working folder of the README: a video and a sampler."""
    folder = tmp_path_factory.mktemp("readme")
    for name in ("holiday.mp4", "bikes.mp4"):
        write_numbered_clip(folder / name, n_frames=80, fps=10)
    (folder / "mine.py").write_text(re.search(r"```python\n# mine\.py\n(.*?)```", README, re.DOTALL)[1])
    return folder


@pytest.mark.parametrize("line", LINES_RUN_HERE)
def test_a_command_line_of_the_readme_works_as_printed(line, folder, monkeypatch):
    monkeypatch.chdir(folder)
    program, *arguments = shlex.split(f"{line} {SHORTENED.get(line, '')}")
    assert program == "focus-eval"
    with ChatServer() as server:
        service = {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "any"}
        result = CliRunner().invoke(app, arguments, env=service)
    assert result.exit_code == 0, result.output
    for option in ("--out", "--sheet"):
        if option in arguments:
            assert (folder / arguments[arguments.index(option) + 1]).exists()


def test_the_sampler_of_the_readme_keeps_the_contract(tmp_path):
    code = re.search(r"```python\n# mine\.py\n(.*?)```", README, re.DOTALL)
    (tmp_path / "mine.py").write_text(code[1])
    sampler = make_sampler(f"{tmp_path / 'mine.py'}:Mine", every_seconds=2.0)
    for n_frames in (1, 7, 900):
        rng = np.random.default_rng(0)
        keyframes = sampler.select(VideoInfo(n_frames, 30.0), k=8, pull=lambda f: f / 1000, rng=rng).keyframes
        assert len(keyframes) == len(set(keyframes)) == min(8, len(range(0, n_frames, 60)))


def test_the_first_block_of_python_runs(folder, monkeypatch):
    monkeypatch.chdir(folder)
    names = {}
    exec(compile(blocks(ROOT / "README.md", "python")[0], "README.md", "exec"), names)
    assert len(names["pictures"]) == len(names["selection"].keyframes) == 8


@pytest.mark.parametrize("name", sorted(c.name or c.callback.__name__.strip("_") for c in app.registered_commands))
def test_every_command_has_help(name):
    result = CliRunner().invoke(app, [name, "--help"])
    assert result.exit_code == 0


def test_every_model_named_is_registered():
    from focus_eval.bench.lmms.manifests import known_models

    page = (ROOT / "docs/models.md").read_text(encoding="utf-8")
    tasks = set(re.findall(r"`(focus_[a-z0-9_]+)`", "".join(re.findall(r"^\| `focus_[^|]+", page, re.MULTILINE))))
    assert tasks == set(known_models())


def test_the_list_of_commands_cuts_no_description_at_80_columns():
    result = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "80", "TERMINAL_WIDTH": "80"})
    assert [line for line in result.output.splitlines() if line.startswith("  ") and line.endswith("...")] == []
