"""How do time and memory grow with the number of questions? plan, run, a second run and report, no video, no model.

Prints one line per size and command, then how each grows: seconds = a + b * questions by least squares, and the
exponent of the growth (1: linear). Run: python -m scripts.checks.load_test [--sizes 12500 25000 50000 100000]
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np

from tests.support.bench.load import Taken, growth_exponent, measured, write_load_matrix

COMMANDS = ("plan", "run", "run again", "status", "report")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[12_500, 25_000, 50_000, 100_000])
    sizes = parser.parse_args().sizes
    loads_by_command: dict[str, list[Taken]] = {command: [] for command in COMMANDS}
    print("| questions | command | seconds | processor seconds | peak memory (MiB) |\n|---:|---|---:|---:|---:|")
    for size in sizes:
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            matrix, out = str(write_load_matrix(folder / "data", size)), str(folder / "runs" / "load")
            arguments = {"plan": ["plan", matrix], "run": ["run", matrix, "--out", out], "status": ["status", out]}
            arguments |= {"run again": arguments["run"], "report": ["report", out]}
            for command in COMMANDS:
                load = measured(*arguments[command])
                loads_by_command[command].append(load)
                figures = f"{load.seconds:.1f} | {load.processor_seconds:.1f} | {load.peak_mib:.0f}"
                print(f"| {size:,} | {command} | {figures} |", flush=True)
    if len(sizes) > 1:
        print_fits(sizes, loads_by_command)


def print_fits(sizes: list[int], loads_by_command: dict[str, list[Taken]]) -> None:
    """Print how processor seconds and memory grow with the questions, by command."""
    print("\n| command | seconds of the processor | residual | exponent | memory from first to last size |")
    print("|---|---|---:|---:|---:|")
    for command, loads in loads_by_command.items():
        seconds, peaks = [item.processor_seconds for item in loads], [item.peak_mib for item in loads]
        slope, start = np.polyfit(sizes, seconds, 1)
        worst = max(abs(start + slope * n - s) / s for n, s in zip(sizes, seconds, strict=True))
        fit = f"{start:.1f} + {1000 * slope:.2f} per 1,000 questions"
        print(
            f"| {command} | {fit} | {worst:.0%} | {growth_exponent(sizes, seconds):.2f} "
            f"| {peaks[0]:.0f} to {peaks[-1]:.0f} MiB |"
        )


if __name__ == "__main__":
    main()
