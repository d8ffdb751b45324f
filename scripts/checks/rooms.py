#!/usr/bin/env python3
"""Show that the lower rooms stand alone: tests and commands on a copy of the tree without the upper ones.

    python -m scripts.checks.rooms bench        # without lab and external: tests of core, keyframes and bench
    python -m scripts.checks.rooms keyframes    # without bench too: select and ask on a made clip

The copy has the files that git tracks. Options after the room go to pytest; paths take the place of the rooms' tests.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
REMOVED = {"bench": ("lab", "external"), "keyframes": ("lab", "external", "bench")}
KEPT_TESTS = ("core", "keyframes", "bench")


def copy_without(rooms: tuple[str, ...], folder: Path) -> None:
    """Copy the tracked files to `folder`, without the packages of `rooms`, their tests and their support."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        parts = Path(name).parts
        folders = parts[2:] if parts[:2] == ("tests", "support") else parts[1:]
        if parts[0] in ("focus_eval", "tests") and folders and folders[0] in rooms:
            continue
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, folder / name)


def choose_and_ask(folder: Path, environment: dict[str, str]) -> int:
    """Run `select` and `ask` on a made clip in `folder`, and return the first exit code that is not 0."""
    sys.path.insert(0, str(ROOT))
    from tests.support.keyframes.chat_server import ChatServer
    from tests.support.keyframes.synthetic import write_numbered_clip

    write_numbered_clip(folder / "clip.mp4", 60, fps=10)
    even = ["--sampler", "uniform", "-k", "4"]
    commands = (
        ["select", "clip.mp4", "--query", "a dog", *even, "--sheet", "sheet.png"],
        ["ask", "clip.mp4", "Which number?", "--llm", "chat:model=m", *even],
    )
    with ChatServer(reply_to=lambda body: ("A number.", {})) as server:
        served_environment = {**environment, "OPENAI_API_KEY": "any", "OPENAI_BASE_URL": server.url}
        for command in commands:
            line = [sys.executable, "-m", "focus_eval", *command]
            if code := subprocess.run(line, cwd=folder, env=served_environment, check=False).returncode:
                return code
    return 0 if (folder / "sheet.png").stat().st_size else 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("room", choices=[*REMOVED], help="the uppermost room that stays")
    arguments, pytest_arguments = parser.parse_known_args()
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "focus-eval"
        copy_without(REMOVED[arguments.room], folder)
        shared = ROOT.parent / "shared"
        if shared.is_dir():
            (folder.parent / "shared").symlink_to(shared.resolve())
        environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONSAFEPATH": ""}
        if arguments.room == "keyframes":
            code = choose_and_ask(folder, environment)
        else:
            has_paths = any(argument.startswith("tests/") for argument in pytest_arguments)
            tests = [] if has_paths else [f"tests/{room}" for room in KEPT_TESTS]
            command = [sys.executable, "-m", "pytest", "-q", "-m", "not upper_rooms", *pytest_arguments, *tests]
            code = subprocess.run(command, cwd=folder, env=environment, check=False).returncode
    print(f"{time.perf_counter() - started:.0f} seconds without {', '.join(REMOVED[arguments.room])}")
    sys.exit(code)


if __name__ == "__main__":
    main()
