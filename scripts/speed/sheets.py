"""What do 100 rows over 30 videos cost: as one sheet with one worker and with two, in Python, and as single calls?

Writes clips of moving noise, 10 s of 360p at 10 frames a second, and chooses 8 keyframes for each row with the default
sampler and the encoder `offline`, without contact sheets. Processor seconds are of the process and of those that decode
for it; memory is the peak of the largest of them. Of single calls a sample is measured.

Run: python -m scripts.speed.sheets [--rows 100] [--videos 30] [--singles 10] [--csv results/measured/sheets.csv
    --machine 'CPU, 2 cores']
"""

from __future__ import annotations

import argparse
import csv
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import date
from pathlib import Path

import numpy as np

from focus_eval.keyframes.video.clip_writer import ClipWriter

WIDTH, HEIGHT, FPS, SECONDS = 640, 360, 10, 10
QUERIES = ("a dog", "a car", "a boat", "a person with a hat")
LOOP = """
import csv, sys
from focus_eval import KeyframeSelector
selector = KeyframeSelector(k=8, encoder="offline")
for row in csv.DictReader(open(sys.argv[1])):
    selection = selector.select(sys.argv[2] + "/" + row["video"], row["query"])
"""
FIELDS = ("what", "rows", "processor s", "s", "peak MiB", "machine", "date", "command")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100)
    parser.add_argument("--videos", type=int, default=30)
    parser.add_argument("--singles", type=int, default=10, help="rows that are measured as single calls")
    parser.add_argument("--csv", type=Path, help="write the rows here too")
    parser.add_argument("--machine", default="")
    options = parser.parse_args()
    command = f"python -m scripts.speed.sheets --rows {options.rows} --videos {options.videos}"
    lines = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        rows = write_sheet(folder, n_videos=options.videos, n_rows=options.rows)
        main_call = ["-c", "from focus_eval.cli import main; main()", "select", "--encoder", "offline", "-q"]
        sheet = [*main_call, "--from", folder / "rows.csv", "--out"]
        measurements = {
            "one sheet, one worker": [[*sheet, folder / "one", "--no-sheets"]],
            "one sheet, two workers": [[*sheet, folder / "two", "--workers", 2, "--no-sheets"]],
            "a loop in Python": [["-c", LOOP, folder / "rows.csv", folder]],
            "single calls": [
                [*main_call, folder / video, "--query", query, "--frames", folder / f"single{at}"]
                for at, (video, query) in enumerate(rows[: options.singles])
            ],
        }
        for what, calls in measurements.items():
            n_rows = len(calls) if what == "single calls" else len(rows)
            processor, seconds, peak = (sum(values) for values in zip(*map(measure, calls), strict=True))
            values = (what, n_rows, round(processor, 1), round(seconds, 1), round(peak / len(calls)))
            print(*values, sep=", ", flush=True)
            lines.append((*values, options.machine, f"{date.today()}", command))
    if options.csv:
        with options.csv.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerows([FIELDS, *lines])


def write_sheet(folder: Path, *, n_videos: int, n_rows: int) -> list[tuple[str, str]]:
    """Write the clips and `rows.csv`; return its rows."""
    for number in range(n_videos):
        rng = np.random.default_rng(number)
        coarse = rng.integers(0, 255, (HEIGHT // 8, WIDTH // 8 + SECONDS * FPS, 3), dtype=np.uint8)
        with ClipWriter(folder / f"v{number}.mp4", width=WIDTH, height=HEIGHT, fps=FPS, gop=50) as writer:
            for at in range(SECONDS * FPS):
                writer.write(np.kron(coarse[:, at : at + WIDTH // 8], np.ones((8, 8, 1), np.uint8)))
    rows = [(f"v{number % n_videos}.mp4", QUERIES[number // n_videos % len(QUERIES)]) for number in range(n_rows)]
    with (folder / "rows.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("video", "query"), *rows])
    return rows


def measure(arguments: Sequence[object]) -> tuple[float, float, float]:
    """Run Python with arguments; return processor seconds, seconds, and the peak in MiB of its largest process."""
    started = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, *map(str, arguments)], stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"the call ended with code {process.returncode}: {arguments}")
    return usage.ru_utime + usage.ru_stime, time.perf_counter() - started, usage.ru_maxrss / 1024


if __name__ == "__main__":
    main()
