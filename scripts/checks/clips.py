"""Make 252 valid clips and compare every frame that the reader gives with a sequential decode.

Prints one line for each clip that is not exact and a table by codec. Run: python -m scripts.checks.clips [--only TEXT]
[--folder FOLDER] [--csv results/published/clips.csv]
"""

from __future__ import annotations

import argparse
import csv
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from focus_eval.core.errors import VideoError
from tests.support.keyframes.clips import clip_makers
from tests.support.keyframes.exactness import check_clip

KINDS = ("exact", "refused", "wrong", "not made")


def main() -> int:
    """Check all clips; return 1 if one is not exact."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="only clips whose name contains this")
    parser.add_argument("--folder", type=Path, help="keep the clips here (default: a temporary folder)")
    parser.add_argument("--csv", type=Path, help="write the counts by group here too")
    options = parser.parse_args()
    start, table = time.perf_counter(), Counter[tuple[str, str]]()
    n_frames = 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for name, make in clip_makers().items():
            if options.only not in name:
                continue
            try:
                outcome = check_clip(make(folder / name))
            except VideoError as error:
                table[group_of(name), "not made"] += 1
                print(f"{name}: not made: {error}", flush=True)
                continue
            table[group_of(name), outcome.kind] += 1
            n_frames += outcome.n_frames
            if outcome.kind != "exact":
                print(f"{name}: {outcome.kind}: {outcome.detail}", flush=True)
    if options.csv:
        with options.csv.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerows(counts_by_group(table))
    return print_table(table, n_frames, time.perf_counter() - start)


def counts_by_group(table: Counter[tuple[str, str]]) -> list[tuple[str | int, ...]]:
    """Return a header row, then a row of outcomes for each group of clips."""
    groups = sorted({group for group, _ in table})
    return [("clips", *KINDS), *((group, *(table[group, kind] for kind in KINDS)) for group in groups)]


def group_of(name: str) -> str:
    """Return the group of a clip: the first word of its name."""
    return name.partition(".")[0].partition("_")[0]


def print_table(table: Counter[tuple[str, str]], n_frames: int, seconds: float) -> int:
    """Print clips by group and outcome; return 1 if a clip is not exact."""
    head, *rows = counts_by_group(table)
    print("\n| " + " | ".join(map(str, head)) + " |\n|" + "---|" * len(head))
    for row in rows:
        print("| " + " | ".join(map(str, row)) + " |")
    totals = {kind: sum(count for (_, outcome), count in table.items() if outcome == kind) for kind in KINDS}
    print("| all | " + " | ".join(str(totals[kind]) for kind in KINDS) + " |")
    print(f"\n{n_frames} frames compared, {seconds:.0f} s")
    return int(totals["exact"] != sum(totals.values()))


if __name__ == "__main__":
    sys.exit(main())
