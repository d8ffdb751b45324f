"""Damage 33 clips in 8 ways and count what the reader does: right, refused, refused falsely, crashed, hung, wrong.

Each month draws other damage.

Each file is read in a process of its own, with limits of memory and time. Prints a line for each file that is not
right or refused, and tables by codec and by kind of damage. A file that is refused though a plain decode gives every
frame as it should be is "refused falsely".
A file with a wrong frame in which a plain decode finds nothing either is "wrong without a sign": only a checksum tells.
Run: python -m scripts.checks.faults [--each 2] [--month 2026-11] [--first 0] [--only TEXT,TEXT]
    [--further] [--csv results/published/faults.csv]
"""

from __future__ import annotations

import argparse
import csv
import tempfile
import time
from collections import Counter
from datetime import date
from pathlib import Path

from tests.support.keyframes.faults import (
    KINDS,
    SINGLE,
    STRETCHES,
    damaged,
    fault_clips,
    frame_prints,
    further_clips,
    read_apart,
)

CODECS = {"h264": "H.264", "hevc": "HEVC", "mpeg4": "MPEG-4", "mpeg2": "MPEG-2", "ffv1": "FFV1", "vp8": "VP8",
          "vp9": "VP9", "av1": "AV1", "mjpeg": "MJPEG", "prores": "ProRes", "wmv2": "WMV 2",
          "gif": "GIF"}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--each", type=int, default=2, help="files per clip and kind of damage (default: 2, so 528)")
    parser.add_argument("--month", default=f"{date.today():%Y-%m}", help="draws the damage (default: this month)")
    parser.add_argument("--first", type=int, default=0, help="number of the month's first file, below 100 (default: 0)")
    parser.add_argument("--only", default="", help="only clips whose name contains one of these, with commas")
    parser.add_argument("--further", action="store_true", help="damage 21 other clips: codecs in other containers")
    parser.add_argument("--csv", type=Path, help="write the counts by clip here too")
    options = parser.parse_args()
    start, peak = time.perf_counter(), 0.0
    counts: Counter[tuple[str, str, str]] = Counter()
    with tempfile.TemporaryDirectory() as temporary:
        for name, make in (further_clips() if options.further else fault_clips()).items():
            if not any(text in name for text in options.only.split(",")):
                continue
            whole = make(Path(temporary) / name)
            prints, data = frame_prints(whole), whole.read_bytes()
            for kind in (*STRETCHES, *SINGLE):
                for number in damage_numbers(options.month, options.each, first=options.first):
                    path = Path(temporary) / f"{kind}{number}_{name}"
                    path.write_bytes(damaged(data, clip=name, kind=kind, number=number))
                    reading = read_apart(path, prints)
                    counts[name, kind, reading.kind] += 1
                    peak = max(peak, reading.peak_mib)
                    if reading.kind not in ("right", "refused"):
                        print(f"{path.name}: {reading.kind}: {reading.detail}", flush=True)
                    path.unlink()
            if options.csv:  # after each clip: a run that is stopped keeps what it has
                with options.csv.open("w", newline="", encoding="utf-8") as file:
                    csv.writer(file, lineterminator="\n").writerows(counts_by_clip(counts))
    print_tables(counts)
    print(f"\n{sum(counts.values())} files, peak memory {peak:.0f} MiB, {time.perf_counter() - start:.0f} s")


def damage_numbers(month: str, n_files: int, *, first: int = 0) -> range:
    """Return the numbers that draw a month's damage, `n_files` from `first` on for each clip and kind of damage."""
    start = 100 * int(month.replace("-", "")) + first
    return range(start, start + n_files)


def counts_by_clip(counts: Counter[tuple[str, str, str]]) -> list[tuple[str | int, ...]]:
    """Return a header row, then two rows for each clip: damaged stretches of bytes, and single bytes."""
    rows: list[tuple[str | int, ...]] = [("damage", "clip", *KINDS)]
    for title, kinds in (("stretches of bytes", STRETCHES), ("one byte or bit", SINGLE)):
        for name in dict.fromkeys(clip for clip, _, _ in counts):
            totals = (sum(counts[name, kind, outcome] for kind in kinds) for outcome in KINDS)
            rows.append((title, name, *totals))
    return rows


def print_tables(counts: Counter[tuple[str, str, str]]) -> None:
    """Print outcomes by clip, with stretches and single bytes in rows of their own, and by kind of damage."""
    for title, kinds in (("stretches of bytes", STRETCHES), ("one byte or bit", SINGLE)):
        print(f"\n| {title} | " + " | ".join(KINDS) + " |\n|" + "---|" * (1 + len(KINDS)))
        for name in dict.fromkeys(clip for clip, _, _ in counts):
            codec, container = name.partition(".")[0].partition("_")[0], name.rpartition(".")[2]
            row = _row(counts, lambda clip, kind, n=name, k=kinds: clip == n and kind in k)
            print(f"| {CODECS[codec]} ({name.rpartition('.')[0]}, {container}) | {row} |")
        print(f"| all | {_row(counts, lambda clip, kind, k=kinds: kind in k)} |")
    print("\n| damage | " + " | ".join(KINDS) + " |\n|" + "---|" * (1 + len(KINDS)))
    for kind in (*STRETCHES, *SINGLE):
        print(f"| {kind} | {_row(counts, lambda clip, fault, k=kind: fault == k)} |")


def _row(counts: Counter[tuple[str, str, str]], belongs: object) -> str:
    """Return the cells of a table row: how often each outcome occurred, among the counts that belong to it."""
    assert callable(belongs)
    totals = [sum(n for (c, k, o), n in counts.items() if o == outcome and belongs(c, k)) for outcome in KINDS]
    return " | ".join(map(str, totals))


if __name__ == "__main__":
    main()
