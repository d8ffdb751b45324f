"""Makes about 150 valid clips and compares every frame that the reader gives with a sequential decode.

Prints one line for each clip that is not exact and a table by codec. Run: python scripts/check_clips.py [--only TEXT]
[--folder FOLDER]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from focus_eval.core.errors import VideoError
from support.clips import clip_makers
from support.exactness import check_clip


def main() -> int:
    """Make, read, print; return 1 where a clip is not exact."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="only clips whose name contains this")
    parser.add_argument("--folder", type=Path, help="keep the clips here (default: a temporary folder)")
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
    return print_table(table, n_frames, time.perf_counter() - start)


def group_of(name: str) -> str:
    """Return the group of a clip: the first word of its name."""
    return name.partition(".")[0].partition("_")[0]


def print_table(table: Counter[tuple[str, str]], n_frames: int, seconds: float) -> int:
    """Print clips by group and outcome; return 1 where one is not exact."""
    kinds = ("exact", "refused", "wrong", "not made")
    print("\n| clips | " + " | ".join(kinds) + " |\n|" + "---|" * 5)
    for group in sorted({group for group, _ in table}):
        print(f"| {group} | " + " | ".join(str(table[group, kind]) for kind in kinds) + " |")
    totals = {kind: sum(count for (_, other), count in table.items() if other == kind) for kind in kinds}
    print("| all | " + " | ".join(str(totals[kind]) for kind in kinds) + " |")
    print(f"\n{n_frames} frames compared, {seconds:.0f} s")
    return int(totals["exact"] != sum(totals.values()))


if __name__ == "__main__":
    sys.exit(main())
