"""Submit the registry folders that a pull request changes, each in a container, as another user and without network.

    python scripts/submit_changed.py COMMIT pages                     # a trial, on videos drawn in the container
    python scripts/submit_changed.py COMMIT pages --submitted-at TIME # the verdict that counts

Nothing of the host is mounted: a folder goes in over standard input, straight from git, and its page comes back over
standard output, of which files alone are kept, never links. The log of NAME is OUT/NAME.log. Only the standard library
is needed.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import resource
import shlex
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

FOLDERS = "registry/samplers"
MAX_BYTES, MAX_FILES, SECONDS = 100_000_000, 1_000, 1_800
CONTAINER = (
    "docker", "run", "--rm", "-i", "--network", "none", "--memory", "6g", "--memory-swap", "6g", "--cpus", "2",
    "--pids-limit", "256", "--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--user", "65534:65534",
    "--read-only", "--tmpfs", "/tmp:rw,size=2g,mode=1777", "--env", "HOME=/tmp", "--env", "TMPDIR=/tmp", "registry",
)  # fmt: skip
# In the container: unpack, submit with what it prints on the error stream, pack.
SUBMIT = """set -e
work=$(mktemp -d) && cd "$work" && mkdir card out
tar -x -f - -C card --no-same-owner
focus-eval submit --card card/card.yaml --out out "$@" >&2
tar -c -f - -C out .
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("commit", help="Head of the pull request.")
    parser.add_argument("out", type=Path, help="Folder for pages and logs.")
    parser.add_argument("--checkout", type=Path, default=Path(__file__).resolve().parents[1])
    parser.add_argument("--main", default="origin/main", help="The branch that the folders are proposed for.")
    parser.add_argument("--submitted-at", help="Time at which the pull request got COMMIT, e.g. 2026-11-23T10:00:00Z.")
    parser.add_argument("--runner", default=shlex.join(CONTAINER), help="Command that runs another one in a container.")
    options = parser.parse_args()
    arguments: list[str] = []
    if options.submitted_at:
        commit = seed_commit(options.checkout, options.main, options.submitted_at)
        arguments = ["--seed", str(seed_of(commit))]
        summarize(f"Videos of seed {arguments[1]}, of commit {commit}, the first on {options.main} afterwards.")
    options.out.mkdir(parents=True, exist_ok=True)
    results = [
        submit_folder(name, options.checkout, options.commit, options.out, shlex.split(options.runner), arguments)
        for name in changed_folders(options.checkout, options.main, options.commit)
    ]
    return 0 if all(results) else 1


def git(checkout: Path, *arguments: str) -> bytes:
    return subprocess.run(["git", *arguments], cwd=checkout, check=True, stdout=subprocess.PIPE).stdout


def seed_commit(checkout: Path, main_branch: str, submitted_at: str) -> str:
    """Return the first commit on the main branch after a submission, which is public but unknown to its author.

    The time must be the server's, because an author can write any date into a commit.
    """
    submitted = datetime.fromisoformat(submitted_at.replace("Z", "+00:00")).timestamp()
    log = git(checkout, "log", "--first-parent", "--reverse", "--format=%H %ct", main_branch).decode()
    for line in log.splitlines():
        commit, _, seconds = line.partition(" ")
        if int(seconds) > submitted:
            return commit
    sys.exit(f"{main_branch} has no commit after {submitted_at}: its next one gives the seed")


def seed_of(commit: str) -> int:
    """Return the seed that a commit gives: its first twelve hexadecimal digits."""
    return int(commit[:12], 16)


def changed_folders(checkout: Path, main_branch: str, commit: str) -> list[str]:
    """Return the registry folders with an allowed name that `commit` adds or changes."""
    paths = git(checkout, "diff", "--name-only", "-z", f"{main_branch}...{commit}", "--", FOLDERS).decode().split("\0")
    matches = (re.fullmatch(rf"{FOLDERS}/([a-z0-9][a-z0-9_]{{0,39}})/.*", path, re.DOTALL) for path in paths)
    names = sorted({match[1] for match in matches if match})
    listed = git(checkout, "ls-tree", "-d", "--name-only", "-z", commit, f"{FOLDERS}/").decode().split("\0")
    return [name for name in names if f"{FOLDERS}/{name}" in listed]


def submit_folder(
    name: str, checkout: Path, commit: str, out: Path, runner: Sequence[str], arguments: Sequence[str]
) -> bool:
    """Submit one folder of `commit`, keep its page and its log, and return whether it was accepted."""
    archive = git(checkout, "archive", "--format=tar", f"{commit}:{FOLDERS}/{name}")
    command = [*runner, "timeout", "-k", "10", str(SECONDS), "sh", "-c", SUBMIT, "submit", *arguments]
    log = out / f"{name}.log"
    with tempfile.TemporaryFile() as page, open(log, "wb") as errors:
        code = subprocess.run(
            command, input=archive, stdout=page, stderr=errors, check=False, preexec_fn=_limit_files
        ).returncode
        page.seek(0)
        problem = f"exit code {code}" if code else unpack(page, out / name)
    if code in (124, 137):
        problem = "stopped, out of time or memory"
    lines = log.read_text(encoding="utf-8", errors="replace").replace("`", "").splitlines()[-60:]
    summarize(
        "\n".join([f"### {name}: {f'not accepted ({problem})' if problem else 'submitted'}", "```", *lines, "```"])
    )
    return not problem


def _limit_files() -> None:
    # A submission could print until the host's disk is full.
    resource.setrlimit(resource.RLIMIT_FSIZE, (MAX_BYTES, MAX_BYTES))


def unpack(archive: io.IOBase, folder: Path) -> str:
    """Write the files of an archive below `folder`; return the reason if it is refused, else "".

    An archive may hold only folders and plain files whose paths stay below `folder`.
    """
    try:
        with tarfile.open(fileobj=archive, mode="r:") as tar:  # type: ignore[arg-type]
            members = [member for member in tar if not member.isdir()]
            if not members or len(members) > MAX_FILES:
                return f"{len(members)} files in its result"
            for member in members:
                parts = Path(member.name).parts
                if not member.isreg() or Path(member.name).is_absolute() or ".." in parts:
                    return f"its result holds {member.name!r}, which is no plain file"
            for member in members:
                path = folder / member.name
                path.parent.mkdir(parents=True, exist_ok=True)
                content = tar.extractfile(member)
                path.write_bytes(content.read() if content else b"")
    except tarfile.TarError as error:
        return f"no result: {error}"
    return ""


def summarize(text: str) -> None:
    """Print `text`, and add it to the workflow's summary if there is one."""
    with open(os.environ.get("GITHUB_STEP_SUMMARY") or os.devnull, "a", encoding="utf-8") as file:
        file.write(f"{text}\n")
    print(text)


if __name__ == "__main__":
    sys.exit(main())
