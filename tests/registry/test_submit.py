"""A submission: does a folder of the registry come out of a card and a file, and nothing where anything is wrong?"""

from __future__ import annotations

import hmac
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from focus_eval.core.errors import FocusEvalError, InvalidInput
from focus_eval.registry.cards import REPLAYED, check_file, read_registry
from focus_eval.registry.replayed import Material
from focus_eval.registry.submission import submission
from tests.registry.test_registry import N_VIDEOS, called, chosen_json, write_evidence

SAMPLER = """
from dataclasses import dataclass
from typing import ClassVar
import numpy as np
from focus_eval.samplers.base import Choice, FrameSampler

@dataclass(frozen=True, kw_only=True)
class Ends(FrameSampler):
    name: ClassVar[str] = "ends"
    source: ClassVar[str] = "a test"
    version: ClassVar[int] = {version}
    needs_encoder: ClassVar[bool] = False
    draws: ClassVar[bool] = False

    def choose(self, request):
        return Choice(keyframes=np.linspace({first}, request.video.n_frames - 1, request.n_wanted).astype(int))
"""
ROOT = Path(__file__).resolve().parents[2]
ITEM = {"benchmark": "longvideobench", "k": 3, "format": "qca", "file": "mine.json"}


@pytest.fixture
def place(tmp_path):
    """A folder with a benchmark's annotation and frames chosen near its evidence."""
    write_evidence(tmp_path)
    (tmp_path / "mine.json").write_text(chosen_json([1000, 1060, 1110]))
    return tmp_path


def submitted(place, document, *arguments, sampler=()):
    (place / "card.yaml").write_text(yaml.safe_dump(document))
    given = ["--card", place / "card.yaml", "--out", place / "registry" / "samplers", *arguments]
    return called(
        "submit", *sampler, *given, "--annotations", place / "annotation.json", "--rates", place / "rates.csv"
    )


def card(**changed):
    said = {"title": "My Frames", "authors": "Someone", "licence": "MIT", "selections": [ITEM], **changed}
    return {key: value for key, value in said.items() if value is not None}


def test_a_file_of_selections_alone_becomes_a_row(place):
    done = submitted(place, card())
    assert done.exit_code == 0
    cards = read_registry(place / "registry")
    (item,) = cards["my_frames"].selections
    assert item.file == "selections/mine.parquet"
    check_file(item, cards["my_frames"].folder / item.file)
    page = (place / "registry/samplers/my_frames/index.html").read_text()
    assert REPLAYED in page
    assert "No findings." in page
    built = called("registry", "build", "--registry", place / "registry", "--files", place / "nothing", "--no-simulate",
                   "--annotations", place / "annotation.json", "--rates", place / "rates.csv",
                   "--out", place / "site")  # fmt: skip
    assert "2 pages of 1 samplers" in built.output


@pytest.mark.parametrize(
    ("document", "says"),
    [
        (card(licence=None), "licence: Field required"),
        (card(title="Q-Frame"), "the registry has this title, of qframe"),
        (card(title="focus", authors="Others"), "taken in the registry, by Zhu et al. with version 1"),
        (card(selections=[{**ITEM, "k": 2}]), "a question has 3 frames, the card says K = 2"),
        (card(selections=[{**ITEM, "file": "past.json"}]), "past the end"),
        (card(selections=[{**ITEM, "file": "other.json"}]), "is not a question of this benchmark"),
        (card(selections=[{**ITEM, "sha256": "0" * 64}]), "sha256 is"),
        (card(selections=[ITEM, {**ITEM, "name": "again"}]), "two files of the card would have this name"),
        (card(selections=None, sampler="focsu"), "did you mean 'focus'"),
        (card(selections=None, sampler="gone.py:Ends"), r"there is no file .*gone\.py"),
    ],
)
def test_a_submission_that_is_wrong_is_one_line_and_leaves_nothing(place, document, says):
    (place / "past.json").write_text(chosen_json([1, 2, 4100]))
    (place / "other.json").write_text(json.dumps({f"x{number}": [1, 2, 3] for number in range(N_VIDEOS)}))
    with pytest.raises(FocusEvalError, match=says):
        submitted(place, document)
    samplers = place / "registry" / "samplers"
    assert not samplers.exists() or not list(samplers.iterdir())


def test_nothing_is_written_over_a_submission(place):
    submitted(place, card())
    with pytest.raises(InvalidInput, match="is there already"):
        submitted(place, card())


def test_a_sampler_that_breaks_the_contract_is_not_written(place):
    (place / "ends.py").write_text(SAMPLER.format(version=1, first="-1"))
    done = submitted(place, card(selections=None), "--no-demo", sampler=[f"{place / 'ends.py'}:Ends"])
    assert done.exit_code == 1
    assert "BROKEN" in done.output
    assert not list((place / "registry" / "samplers").iterdir())


def test_a_sampler_gets_its_folder_with_a_verdict_of_a_stated_seed(place):
    (place / "ends.py").write_text(SAMPLER.format(version=1, first="0"))
    ends = card(title="Ends", selections=None, sampler="ends.py:Ends")
    done = submitted(place, ends, "--no-demo", "--videos", 5, "--seed", 7)
    assert done.exit_code == 0, done.output
    folder = place / "registry" / "samplers" / "ends"
    assert {path.name for path in folder.iterdir()} == {"card.yaml", "sampler.py", "index.html", "verdict.html"}
    assert "--seed 7 repeats this verdict" in (folder / "verdict.html").read_text()
    taken = read_registry(place / "registry")
    with (
        pytest.raises(InvalidInput, match="raise `version`"),
        submission(place / "card.yaml", "", place / "again", Material(place, {}), taken),
    ):
        pass
    (place / "ends.py").write_text(SAMPLER.format(version=2, first="0"))
    with submission(place / "card.yaml", "", place / "again", Material(place, {}), taken) as newer:
        assert newer.made().version == 2
    assert [path.name for path in (place / "again").iterdir()] == ["ends"]


def test_selections_without_their_annotation_are_kept_and_not_measured(place):
    done = submitted(place, card(selections=[{**ITEM, "benchmark": "lvbench"}]))
    assert "selections/mine.parquet: not measured, no annotation of lvbench is given" in done.output
    assert REPLAYED not in (place / "registry/samplers/my_frames/index.html").read_text()


@pytest.fixture
def proposed(place):
    """A pull request: a checkout whose last commit adds folders to the registry."""

    def git(*arguments):
        who = ["-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(["git", *who, *arguments], cwd=place, check=True, capture_output=True)

    git("init", "-q")
    for name in ("before", "mine", "without_licence", "Not;Allowed"):
        folder = place / "registry" / "samplers" / name
        folder.mkdir(parents=True)
        shutil.copyfile(place / "mine.json", folder / "mine.json")
        licence = None if name == "without_licence" else "MIT"
        (folder / "card.yaml").write_text(yaml.safe_dump(card(title=name, licence=licence)))
        if name == "before":
            git("add", "-A")
            git("commit", "-qm", "before")
    git("add", "-A")
    git("commit", "-qm", "after")
    return place


def submit_changed(place, run, **environment):
    run.chmod(0o755)
    return subprocess.run(
        ["bash", str(ROOT / "scripts/submit_changed.sh"), str(place), "HEAD~1", str(place / "pages")],
        env={**os.environ, "SUBMIT": str(run), "PYTHONPATH": str(ROOT), "GITHUB_STEP_SUMMARY": str(place / "summary"),
             **environment},
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_the_workflow_submits_the_changed_folders_alone_and_fails_where_one_does(proposed):
    place, run = proposed, proposed / "run"
    # What the workflow runs in a container, here without one.
    run.write_text(f'#!/bin/sh\nexec {sys.executable} -m focus_eval submit --card "$1/card.yaml" --out "$2"\n')
    done = submit_changed(place, run)
    assert done.returncode == 1
    summary = (place / "summary").read_text()
    assert "### mine: submitted" in summary
    assert "### without_licence: not accepted" in summary
    assert "licence: Field required" in summary
    assert {path.name for path in (place / "pages").iterdir()} == {"mine", "without_licence"}
    assert (place / "pages/mine/mine/index.html").is_file()


def test_the_seed_of_a_verdict_is_of_the_month_the_content_and_a_secret(proposed):
    run = proposed / "run"
    run.write_text('#!/bin/sh\necho "${3:-none}"\n')

    def seeds(**environment):
        assert submit_changed(proposed, run, **environment).returncode == 0
        return [(proposed / "pages" / name / "submit.log").read_text().strip() for name in ("mine", "without_licence")]

    content = subprocess.run(
        ["git", "rev-parse", "HEAD:registry/samplers/mine"], cwd=proposed, capture_output=True, text=True, check=True
    ).stdout.strip()
    digest = hmac.new(b"s", f"2026-11 {content}".encode(), "sha256").digest()
    november = seeds(REGISTRY_SECRET="s", MONTH="2026-11")
    assert november[0] == str(int.from_bytes(digest[:4], "big") % 2**31)
    assert november == seeds(REGISTRY_SECRET="s", MONTH="2026-11")
    others = [*november, *seeds(REGISTRY_SECRET="s", MONTH="2026-12"), *seeds(REGISTRY_SECRET="t", MONTH="2026-11")]
    assert len(set(others)) == 6
    assert seeds(REGISTRY_SECRET="") == ["none", "none"]  # drawn by the command


@pytest.mark.parametrize(("code", "is_stopped"), [(124, True), (137, True), (1, False)])
def test_a_submission_that_took_too_long_or_too_much_memory_is_named(proposed, code, is_stopped):
    (proposed / "run").write_text(f"#!/bin/sh\nexit {code}\n")
    assert submit_changed(proposed, proposed / "run").returncode == 1
    assert ("Stopped: out of time or memory." in (proposed / "summary").read_text()) == is_stopped


def test_the_workflow_gives_foreign_code_no_network_and_no_secret():
    text = (ROOT / ".github/workflows/registry.yml").read_text() + (ROOT / "scripts/submit_changed.sh").read_text()
    workflow = yaml.safe_load((ROOT / ".github/workflows/registry.yml").read_text())
    assert workflow["permissions"] == {"contents": "read"}
    assert "pull_request" in workflow[True]
    assert all(said in text for said in ("--network none", "--memory 6g", "--pids-limit", "timeout 30m"))
    assert "secrets." not in text
    assert "pull_request_target" not in text
