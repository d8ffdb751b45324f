"""The tutorial's sampler works as it stands in the text, as a file and as an installed package; so do its examples."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from focus_eval.bench.report.run import load_run
from focus_eval.keyframes.samplers.registry import make_sampler
from focus_eval.lab.contract import Case, broken_promises, fingerprints, first_difference
from focus_eval.lab.simulation import SimulationConfig, run_simulation
from focus_eval.lab.subprocess_sampler import make_in_subprocess

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "new_sampler.md").read_text(encoding="utf-8")
THREE = ROOT / "docs" / "examples" / "three.py"


def block(language: str, part: str = "") -> str:
    """Return the only code block of that language that contains `part`; "" stands for any."""
    blocks = [text for text in re.findall(rf"```{language}\n(.*?)```", TEXT, flags=re.DOTALL) if part in text]
    assert len(blocks) == 1
    return blocks[0]


def run(*arguments: str, folder: Path, path: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command in `folder` with `path` and this checkout in front of what is installed."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(item for item in (path, str(ROOT)) if item)}
    return subprocess.run(
        [sys.executable, "-m", *arguments], cwd=folder, env=environment, capture_output=True, text=True
    )


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bisect-peaks")
    (folder / "bisect_peaks.py").write_text(block("python", "class BisectPeaks"))
    (folder / "pyproject.toml").write_text(block("toml"))
    return folder


def test_the_file_keeps_every_promise(project):
    completed = run("focus_eval", "check", "bisect_peaks.py:BisectPeaks", folder=project)
    assert completed.returncode == 0, completed.stdout + completed.stderr
    assert "every promise is kept" in completed.stdout


@pytest.mark.slow
def test_the_file_gets_a_verdict_and_a_page(project):
    arguments = (
        "compare-samplers",
        "bisect_peaks.py:BisectPeaks",
        "focus",
        "--videos",
        "5",
        "--world",
        "realistic",
        "--seed",
        "135246744110095",  # with questions won and lost
        "--out",
        "out",
    )
    completed = run("focus_eval", *arguments, folder=project)
    assert completed.returncode == 0, completed.stdout + completed.stderr
    assert re.search(r"K = 8, \S*[bB]isect\S* against focus: ", completed.stdout)
    page = (project / "out" / "compare.html").read_text()
    assert "Recall and cost" in page
    assert page.count("<svg") >= 2


@pytest.mark.slow
def test_the_installed_package_is_listed_and_found_by_name(project, tmp_path):
    pytest.importorskip("setuptools")
    target = tmp_path / "installed"
    pip = ("pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--target", str(target), ".")
    completed = run(*pip, folder=project)
    assert completed.returncode == 0, completed.stderr
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    completed = run("focus_eval", "check", "bisect_peaks", folder=elsewhere, path=str(target))
    assert completed.returncode == 0, completed.stdout + completed.stderr
    assert "every promise is kept" in completed.stdout


@pytest.mark.parametrize("kind", ["FarApart", "Cues", "Changes"])
def test_each_of_the_three_keeps_the_contract_and_is_simulated(tmp_path, kind):
    spec = f"{THREE}:{kind}"
    for case in (Case(1, 8), Case(7, 8, 25.0), Case(900, 16, 0.2), Case(3000, 16, pattern="flat 0.5"), Case(7201, 8)):
        assert broken_promises(make_sampler(spec), case) == {}
    assert check_once(spec) is None
    config = SimulationConfig(videos=3, minutes=(1, 3), worlds=["realistic"], k=[4], samplers=[spec])
    run_simulation(config, tmp_path / "out", n_workers=1)
    rows = list(load_run(tmp_path / "out").selections)
    assert [row.error for row in rows] == [None] * 3
    assert all(row.n_scored or row.looked_frames for row in rows)
    lines = THREE.read_text(encoding="utf-8").partition(f"class {kind}")[2].partition("@dataclass")[0]
    assert len([line for line in lines.splitlines() if line.strip()]) <= 21


def check_once(spec: str) -> object:
    """Return the first difference between what a sampler does in this process and in a new one; None if none."""
    return first_difference(make_in_subprocess(spec, has_other_hash_seed=True), fingerprints(make_sampler(spec)))
