"""What the README says is true: its sampler works, its commands, files and models exist."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from focus_eval import VideoInfo, make_sampler
from focus_eval.cli import app

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_sampler_of_the_readme_keeps_the_contract(tmp_path):
    code = re.search(r"```python\n# mine\.py\n(.*?)```", README, re.DOTALL)
    (tmp_path / "mine.py").write_text(code[1])
    sampler = make_sampler(f"{tmp_path / 'mine.py'}:Mine", every_seconds=2.0)
    for n_frames in (1, 7, 900):
        rng = np.random.default_rng(0)
        chosen = sampler.select(VideoInfo(n_frames, 30.0), k=8, pull=lambda f: f / 1000, rng=rng).keyframes
        assert len(chosen) == len(set(chosen)) == min(8, len(range(0, n_frames, 60)))


def test_every_command_named_exists():
    named = set(re.findall(r"(?:`|^ {4}|\()focus-eval ([a-z][a-z-]+)", README, re.MULTILINE))
    known = {command.name or command.callback.__name__.strip("_") for command in app.registered_commands}
    assert named
    assert named <= known


@pytest.mark.parametrize("name", sorted(c.name or c.callback.__name__.strip("_") for c in app.registered_commands))
def test_every_command_has_help(name):
    done = CliRunner().invoke(app, [name, "--help"])
    assert done.exit_code == 0


def test_every_file_linked_or_named_exists():
    for target in re.findall(r"\]\(([^)#]+)\)", README) + re.findall(r"configs/[\w/.]+", README):
        if not target.startswith("http"):
            assert (ROOT / target.rstrip(".")).exists(), target


def test_every_model_named_is_registered():
    from focus_eval.lmms.manifests import MODELS

    section = README.split("Models: ")[1].split("They take")[0]
    named = set(re.findall(r"`(focus_[a-z0-9_]+)`", section))
    assert named == set(MODELS)
