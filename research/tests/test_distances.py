"""The distances of evidence recall stand in one constant of the tool: the leaderboard's records follow it."""

from __future__ import annotations

import hashlib
import subprocess
import sys

import pytest

from tests.pages import ROOT
from tests.test_distances import CHANGED, prepared  # noqa: F401

MEASURED = """
from focus_eval_research.leaderboard import update_records
from focus_eval_research.published import read_published
from focus_eval_research.replayed import Material, measured_groups, missing_files
folder = Path(sys.argv[4])
listed = read_published(folder / "list.yaml")
material = Material.of(folder, [str(folder / "annotation.json")], [str(folder / "rates.csv")], [])
for group in measured_groups(listed, material):
    update_records(folder / "records", group)
assert not missing_files(listed, material)
"""


@pytest.mark.parametrize("distances", [(1.0, 5.0), (0.5, 3.0, 10.0)])
def test_changed_distances_are_those_of_the_leaderboard(prepared, distances):
    digest = hashlib.sha256((prepared / "chosen.json").read_bytes()).hexdigest()
    entry = f"{{benchmark: longvideobench, k: 2, format: qca, file: chosen.json, sha256: '{digest}'}}"
    (prepared / "list.yaml").write_text(f"Mine: [{entry}]\n")
    (prepared / "records").mkdir(exist_ok=True)
    (prepared / "records/by_length.csv").unlink(missing_ok=True)
    changed = f"from pathlib import Path\n{CHANGED}{MEASURED}"
    process = subprocess.run(
        [sys.executable, "-c", changed, repr(distances), "[]", str(prepared / "run"), str(prepared)],
        capture_output=True, text=True, cwd=ROOT, check=False,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr[-3000:]
    results = (prepared / "records/by_length.csv").read_text()
    assert all(f",within {distance:g} s," in results for distance in distances)
    assert "@2" not in results
