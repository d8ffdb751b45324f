"""A submission: does a folder of the registry come out of a card and a file, and nothing where anything is wrong?"""

from __future__ import annotations

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
from focus_eval.keyframes.samplers.base import Choice, FrameSampler

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
    options = ["--card", place / "card.yaml", "--out", place / "registry" / "samplers", *arguments]
    return called(
        "submit", *sampler, *options, "--annotations", place / "annotation.json", "--rates", place / "rates.csv"
    )


def card(**changed):
    document = {"title": "My Frames", "authors": "Someone", "licence": "MIT", "selections": [ITEM], **changed}
    return {key: value for key, value in document.items() if value is not None}


def test_a_file_of_selections_alone_becomes_a_row(place):
    result = submitted(place, card())
    assert result.exit_code == 0
    cards = read_registry(place / "registry")
    (item,) = cards["my_frames"].selections
    assert item.file == "selections/mine.json"
    check_file(item, cards["my_frames"].folder / item.file)
    page = (place / "registry/samplers/my_frames/index.html").read_text()
    assert REPLAYED in page
    built = called("registry", "build", "--registry", place / "registry", "--files", place / "nothing", "--no-simulate",
                   "--annotations", place / "annotation.json", "--rates", place / "rates.csv",
                   "--out", place / "site")  # fmt: skip
    assert "index.html: 1 samplers" in built.output


@pytest.mark.parametrize(
    ("document", "message"),
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
def test_a_submission_that_is_wrong_is_one_line_and_leaves_nothing(place, document, message):
    (place / "past.json").write_text(chosen_json([1, 2, 4100]))
    (place / "other.json").write_text(json.dumps({f"x{number}": [1, 2, 3] for number in range(N_VIDEOS)}))
    with pytest.raises(FocusEvalError, match=message):
        submitted(place, document)
    samplers = place / "registry" / "samplers"
    assert not samplers.exists() or not list(samplers.iterdir())


def test_nothing_is_written_over_a_submission(place):
    submitted(place, card())
    with pytest.raises(InvalidInput, match="is there already"):
        submitted(place, card())


def test_a_sampler_that_breaks_the_contract_is_not_written(place):
    (place / "ends.py").write_text(SAMPLER.format(version=1, first="-1"))
    result = submitted(place, card(selections=None), sampler=[f"{place / 'ends.py'}:Ends"])
    assert result.exit_code == 1
    assert "BROKEN" in result.output
    assert not list((place / "registry" / "samplers").iterdir())


def test_a_sampler_gets_its_folder_with_a_verdict_of_a_stated_seed(place):
    (place / "ends.py").write_text(SAMPLER.format(version=1, first="0"))
    ends = card(title="Ends", selections=None, sampler="ends.py:Ends")
    result = submitted(place, ends, "--videos", 5, "--seed", 7)
    assert result.exit_code == 0, result.output
    folder = place / "registry" / "samplers" / "ends"
    assert {path.name for path in folder.iterdir()} == {"card.yaml", "sampler.py", "index.html", "verdict.html"}
    assert "--seed 7 repeats this verdict" in (folder / "verdict.html").read_text()
    registered_cards = read_registry(place / "registry")
    with (
        pytest.raises(InvalidInput, match="raise `version`"),
        submission(place / "card.yaml", "", place / "again", Material(place, {}), registered_cards),
    ):
        pass
    (place / "ends.py").write_text(SAMPLER.format(version=2, first="0"))
    with submission(place / "card.yaml", "", place / "again", Material(place, {}), registered_cards) as newer:
        assert newer.make_sampler().version == 2
    assert [path.name for path in (place / "again").iterdir()] == ["ends"]


def test_selections_without_their_annotation_are_kept_and_not_measured(place):
    result = submitted(place, card(selections=[{**ITEM, "benchmark": "lvbench"}]))
    assert "selections/mine.json: not measured, no annotation of lvbench is given" in result.output
    assert REPLAYED not in (place / "registry/samplers/my_frames/index.html").read_text()


# The workflow ---------------------------------------------------------------------------------------------------------

SCRIPT, WORKFLOW = ROOT / "scripts/submit_changed.py", ROOT / ".github/workflows/registry.yml"
# What a container does, where there is none: another user without network and capabilities.
AS_NOBODY = "unshare --user --map-user=65534 --map-group=65534 --net setpriv --inh-caps -all --no-new-privs"
TOOLS = Path(sys.executable).parent


def runner_as_nobody():
    """Return `AS_NOBODY` where this machine allows it and that user can run the command, else "env"."""
    tried = subprocess.run(
        [*AS_NOBODY.split(), str(TOOLS / "focus-eval"), "--version"], check=False, capture_output=True
    )  # fmt: skip
    return "env" if tried.returncode else AS_NOBODY


def git(place, *arguments, **environment):
    author = ["-c", "user.name=a", "-c", "user.email=a@b"]
    result = subprocess.run(
        ["git", *author, *arguments], cwd=place, check=True, capture_output=True, text=True,
        env={**os.environ, **environment},
    )  # fmt: skip
    return result.stdout.strip()


@pytest.fixture
def proposed(place):
    """A checkout whose branch `proposed` adds folders to the registry of `main`."""

    def write_folder(name, **changed):
        folder = place / "registry" / "samplers" / name
        folder.mkdir(parents=True)
        shutil.copyfile(place / "mine.json", folder / "mine.json")
        (folder / "card.yaml").write_text(yaml.safe_dump(card(title=name, **changed)))
        return folder

    git(place, "init", "-q", "-b", "main")
    write_folder("before")
    git(place, "add", "-A")
    git(place, "commit", "-qm", "before")
    git(place, "checkout", "-qb", "proposed")
    write_folder("mine")
    write_folder("without_licence", licence=None)
    write_folder("Not;Allowed")
    linked = write_folder("linked", selections=[{**ITEM, "file": "secret.json"}])
    (place / "secret.json").write_text(f"the host's secret {chosen_json([1, 2, 3])}")
    (linked / "secret.json").symlink_to(place / "secret.json")
    git(place, "add", "-A", "registry")
    git(place, "commit", "-qm", "after")
    git(place, "checkout", "-q", "main")
    return place


def submit_changed(place, *arguments, runner):
    return subprocess.run(
        [sys.executable, str(SCRIPT), "proposed", str(place / "pages"), "--checkout", str(place), "--main", "main",
         "--runner", runner, *arguments],
        env={**os.environ, "GITHUB_STEP_SUMMARY": str(place / "summary"), "PATH": f"{TOOLS}:{os.environ['PATH']}",
             "HOME": "/tmp", "TMPDIR": "/tmp"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def fake_tool(place, script):
    """Return a runner that finds `script` in place of focus-eval."""
    (place / "tools").mkdir()
    (place / "tools" / "focus-eval").write_text(f"#!/bin/sh\n{script}\n")
    (place / "tools" / "focus-eval").chmod(0o755)
    return f"env PATH={place / 'tools'}:{os.environ['PATH']}"


def test_changed_folders_alone_are_submitted_by_another_user_without_capabilities(proposed):
    result = submit_changed(proposed, runner=runner_as_nobody())
    assert result.returncode == 1, result.stderr
    summary = (proposed / "summary").read_text()
    assert "### mine: submitted" in summary, summary
    assert "### without_licence: not accepted (exit code 2)" in summary
    assert "licence: Field required" in summary
    pages = proposed / "pages"
    assert {path.name for path in pages.iterdir()} == {"mine", "mine.log", "without_licence.log", "linked.log"}
    assert (pages / "mine/mine/index.html").is_file()


def test_a_link_in_a_submission_shows_nothing_of_the_host(proposed):
    # Without a container the link leads to the file; nothing but the container's own log and files come back.
    submit_changed(proposed, runner=fake_tool(proposed, "test -L card/secret.json || cat card/secret.json >&2; exit 1"))
    assert "### linked: not accepted" in (proposed / "summary").read_text()
    texts = [path.read_text() for path in (proposed / "pages").rglob("*") if path.is_file()]
    assert not any("the host's secret" in text for text in [*texts, (proposed / "summary").read_text()])


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("ln -s /etc/hostname out/page", "its result holds './page', which is no plain file"),
        ("ln -s / out/folder; echo x > out/index.html", "its result holds './folder', which is no plain file"),
        ("mkfifo out/pipe", "its result holds './pipe', which is no plain file"),
        ("ln out/a out/b 2>/dev/null || { echo x > out/a; ln out/a out/b; }", "which is no plain file"),
        ("true", "0 files in its result"),
        ("exit 124", "stopped, out of time or memory"),
        ("exit 137", "stopped, out of time or memory"),
    ],
)
def test_only_plain_files_come_back_from_a_submission(proposed, script, problem):
    runner = fake_tool(proposed, script)
    assert submit_changed(proposed, runner=runner).returncode == 1
    summary = (proposed / "summary").read_text()
    assert f"### mine: not accepted ({problem})" in summary or ("which is" in problem and problem in summary)
    assert not any(path.is_symlink() for path in (proposed / "pages").rglob("*"))
    assert {path.suffix for path in (proposed / "pages").iterdir()} == {".log"}


def test_a_submission_cannot_reach_its_log(proposed):
    runner = fake_tool(proposed, "ln -sf /proc/self/environ submit.log; echo its own words >&2; exit 3")
    submit_changed(proposed, runner=runner)
    assert not (proposed / "pages" / "mine.log").is_symlink()
    assert (proposed / "pages" / "mine.log").read_text() == "its own words\n"


def test_the_seed_of_a_verdict_is_the_first_commit_on_main_after_the_submission(proposed):
    runner = fake_tool(proposed, 'echo "$@" >&2; exit 3')

    def seed_at(time):
        submit_changed(proposed, "--submitted-at", time, runner=runner)
        return (proposed / "pages" / "mine.log").read_text().partition("--seed ")[2].split()[0]

    for number, day in enumerate(("2031-05-01", "2031-05-03"), start=1):
        date = f"{day}T00:00:00Z"
        git(proposed, "commit", "--allow-empty", "-qm", str(number), GIT_COMMITTER_DATE=date, GIT_AUTHOR_DATE=date)
    first, second = git(proposed, "rev-parse", "main~1"), git(proposed, "rev-parse", "main")
    assert seed_at("2031-04-30T12:00:00Z") == str(int(first[:12], 16))
    assert seed_at("2031-05-01T00:00:00Z") == str(int(second[:12], 16))
    assert f"of commit {second}, the first on main afterwards" in (proposed / "summary").read_text()
    result = submit_changed(proposed, "--submitted-at", "2031-05-04T00:00:00Z", runner=runner)
    assert "main has no commit after 2031-05-04T00:00:00Z" in result.stderr
    submit_changed(proposed, runner=runner)
    assert "--seed" not in (proposed / "pages" / "mine.log").read_text()  # drawn by the command


def test_the_workflow_gives_foreign_code_no_network_no_secret_and_no_folder_of_ours():
    text = WORKFLOW.read_text()
    workflow = yaml.safe_load(text)
    assert workflow["permissions"] == {"contents": "read", "actions": "read"}
    assert set(workflow[True]) == {"pull_request", "workflow_dispatch"}
    assert "secrets." not in text
    assert "python3 scripts/submit_changed.py proposed pages" in text
    container = SCRIPT.read_text().partition("CONTAINER = (")[2].partition(")  # fmt")[0]
    for limit in (
        '"--network", "none"',
        '"--cap-drop", "ALL"',
        '"--user", "65534',
        '"--memory", "6g"',
        '"--pids-limit"',
    ):
        assert limit in container
    assert not {"-v", "--volume", "--mount"} & {word.strip('", \n') for word in container.split()}
