"""Tries installs from one wheel in environments of their own: seconds, size, first picture, commands of the pages.

python -m scripts.checks.installs                                  # plain, light and full
python -m scripts.checks.installs full --no-commands

pip's own settings say where packages come from: PIP_FIND_LINKS and PIP_NO_INDEX name a folder of wheels.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
import venv
from pathlib import Path

from focus_eval.core.extras import WITHOUT_DEPENDENCIES
from tests.support.keyframes.clips import write_clip

ROOT = Path(__file__).resolve().parents[2]
# Extras by install, as docs/quickstart.md names them.
EXTRAS = {"plain": "", "offline": "[offline,llm]", "full": "[all]"}
PICTURE = ("select", "clip.mp4", "--query", "a dog", "-k", "8", "--sheet", "sheet.png")
# Settings of this environment that another one must not see.
OWN_SETTINGS = ("PYTHON", "HF_", "VIRTUAL_ENV", "FOCUS_EVAL")


def build_wheel(folder: Path) -> Path:
    """Build the checkout's wheel in `folder`, which is emptied."""
    shutil.rmtree(folder, ignore_errors=True)
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(ROOT))
    (wheel,) = folder.glob("*.whl")
    return wheel


def install(name: str, wheel: Path, folder: Path) -> Path:
    """Install the wheel with the extras of `name` in a new environment; return its interpreter."""
    venv.create(folder, clear=True, with_pip=True)
    python = folder / "bin" / "python"
    run(str(python), "-m", "pip", "install", "--quiet", f"{wheel}{EXTRAS[name]}")
    if name == "offline":
        run(str(python), "-m", "pip", "install", "--quiet", "--no-deps", WITHOUT_DEPENDENCIES[name])
    return python


def run(*words: str, cwd: Path = ROOT, **settings: str) -> None:
    """Run a command in an environment without this one's settings, plus `settings`."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(OWN_SETTINGS)}
    subprocess.run(words, cwd=cwd, env={**inherited, **settings}, check=True)


def size_mib(folder: Path) -> float:
    """Return the disk that a folder takes."""
    return sum(path.lstat().st_blocks for path in folder.rglob("*")) * 512 / 2**20


def main() -> None:
    """Try the installs and print what each took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("installs", nargs="*", metavar="INSTALL", help=f"of {', '.join(EXTRAS)}")
    parser.add_argument("--no-commands", action="store_true", help="do not run the commands of the pages")
    arguments = parser.parse_args()
    wheel, folder = build_wheel(ROOT / "dist"), ROOT / "build" / "installs"
    folder.mkdir(parents=True, exist_ok=True)
    write_clip(folder / "clip.mp4", n_frames=300, width=640, height=360)
    for name in arguments.installs or EXTRAS:
        started = time.monotonic()
        python = install(name, wheel, folder / name)
        print(f"{name}: installed in {time.monotonic() - started:.0f} s, {size_mib(folder / name):.0f} MiB", flush=True)
        if name != "plain":
            started = time.monotonic()
            run(str(python.with_name("focus-eval")), *PICTURE, "--quiet", cwd=folder, HF_HUB_OFFLINE="1")
            print(f"{name}: first picture in {time.monotonic() - started:.1f} s", flush=True)
        if not arguments.no_commands:
            settings = {"INSTALL": name, "INSTALL_PYTHON": str(python)}
            run(sys.executable, "-m", "pytest", "-q", "-n", "0", "tests/test_commands_of_pages.py", **settings)
        shutil.rmtree(folder / name)  # the full one takes as much disk as this environment


if __name__ == "__main__":
    main()
