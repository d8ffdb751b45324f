"""The tutorial's sampler works as it stands in the text: as a file, and as an installed package."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "docs" / "new_sampler.md").read_text(encoding="utf-8")


def block(language: str) -> str:
    """The only code block of that language."""
    found = re.findall(rf"```{language}\n(.*?)```", TEXT, flags=re.DOTALL)
    assert len(found) == 1
    return found[0]


def run(*arguments: str, folder: Path, path: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command in `folder` with `path` and this checkout in front of what is installed."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(item for item in (path, str(ROOT)) if item)}
    return subprocess.run(
        [sys.executable, "-m", *arguments], cwd=folder, env=environment, capture_output=True, text=True
    )


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bisect-peaks")
    (folder / "bisect_peaks.py").write_text(block("python"))
    (folder / "pyproject.toml").write_text(block("toml"))
    return folder


def test_the_file_keeps_every_promise(project):
    done = run("focus_eval", "check", "bisect_peaks.py:BisectPeaks", folder=project)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "every promise is kept" in done.stdout


def test_the_file_gets_a_verdict_and_a_page(project):
    arguments = (
        "compare-samplers",
        "bisect_peaks.py:BisectPeaks",
        "focus",
        "--videos",
        "12",
        "--no-demo",
        "--out",
        "out",
    )
    done = run("focus_eval", *arguments, folder=project)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"K = 8, \S*[bB]isect\S* against focus: ", done.stdout)
    page = (project / "out" / "compare.html").read_text()
    assert "Recall and cost" in page
    assert page.count("<svg") >= 2


def test_the_installed_package_is_listed_and_found_by_name(project, tmp_path):
    pytest.importorskip("setuptools")
    target = tmp_path / "installed"
    pip = ("pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--target", str(target), ".")
    done = run(*pip, folder=project)
    assert done.returncode == 0, done.stderr
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    done = run("focus_eval", "check", "bisect_peaks", folder=elsewhere, path=str(target))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "every promise is kept" in done.stdout
