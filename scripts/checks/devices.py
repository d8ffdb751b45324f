"""Compare every frame of the video files in a folder with a sequential decode, each file in its own process.

Prints a line for each file that is not right, and how many were right, wrong, refused rightly and refused falsely.
Where the folder has a `manifest.json` with checksums, files that differ from it are named.
Run: python -m scripts.checks.devices FOLDER.. [--seconds 60] [--csv results/published/devices.csv]
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import sys
import time
from collections import Counter
from pathlib import Path

from tests.support.keyframes.devices import VERDICTS, judge_apart


def main() -> int:
    """Check all files; return 1 if one is wrong, refused falsely, crashed or hung."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+", metavar="FOLDER")
    parser.add_argument("--csv", type=Path, help="write the counts here too")
    parser.add_argument("--seconds", type=float, default=60, help="longest time for a file (default: 60)")
    options = parser.parse_args()
    paths = [path for folder in options.folders for path in folder.iterdir() if path.is_file()]
    files = sorted(path for path in paths if path.suffix not in (".json", ".md"))
    if not files:
        parser.error(f"{', '.join(map(str, options.folders))}: no files in it")
    start, counts = time.perf_counter(), Counter[str]()
    for path in files:
        reading = judge_apart(path, seconds=options.seconds)
        counts[reading.kind] += 1
        if reading.kind != "right":
            print(f"{path.name}: {reading.kind}: {reading.detail.replace(f'{path}: ', '')}", flush=True)
    for line in (line for folder in options.folders for line in changed_files(folder)):
        print(line)
    print("\n| files | " + " | ".join(VERDICTS) + " |\n|" + "---|" * (1 + len(VERDICTS)))
    print(f"| {len(files)} | " + " | ".join(str(counts[kind]) for kind in VERDICTS) + " |")
    print(f"\n{time.perf_counter() - start:.0f} s")
    if options.csv:
        rows = [("files", *VERDICTS), (len(files), *(counts[kind] for kind in VERDICTS))]
        with options.csv.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerows(rows)
    return int(counts["right"] + counts["refused rightly"] < len(files))


def changed_files(folder: Path) -> list[str]:
    """Return a line for each file of the folder's manifest that is missing or has another checksum."""
    manifest = folder / "manifest.json"
    entries = json.loads(manifest.read_text(encoding="utf-8")) if manifest.exists() else []
    lines = []
    for entry in entries:
        path = folder / entry["file"]
        if not path.exists():
            lines.append(f"{path.name}: named by the manifest, not there")
        elif hashlib.sha256(path.read_bytes()).hexdigest() != entry["sha256"]:
            lines.append(f"{path.name}: not the file that the manifest names")
    return lines


if __name__ == "__main__":
    sys.exit(main())
