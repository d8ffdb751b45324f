"""How do the commands that read a run grow with its questions? Made rows of four samplers and one model, by size.

    python -m scripts.speed.growth --csv results/measured/growth.csv --machine 'CPU, 2 cores' --code COMMIT

An own benchmark with recorded relevance, ten questions a video. A run chooses the frames of the first 200 questions;
the other rows repeat these under their own questions, and every row has a made answer. Each command runs in a process
of its own. Prints processor seconds, peak memory, the page's size, and the factor of time for ten times the questions.
"""

from __future__ import annotations

import argparse
import csv
import os
import subprocess
import sys
import tempfile
from datetime import date
from pathlib import Path

from tests.support.bench.load import measured

KEYS = ("code", "questions", "command")
COMMANDS = ("plan", "status", "report", "compare", "audit", "pack")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument("--commands", nargs="+", default=COMMANDS, choices=COMMANDS)
    parser.add_argument("--csv", type=Path, help="Write to this file, over rows of the same code, size and command.")
    parser.add_argument("--machine", default="", help="processor and cores, for --csv, e.g. 'AMD EPYC, 2 cores'")
    parser.add_argument("--code", default="now", help="Name of the code that is measured, e.g. its commit.")
    parser.add_argument("--checkout", type=Path, help="Folder whose package is measured. [default: the installed one]")
    options = parser.parse_args()
    if options.csv and not options.machine:
        parser.error("--csv needs --machine: whose seconds these are")
    # As in an install, whose modules are compiled once.
    environment = {"PYTHONDONTWRITEBYTECODE": ""}
    environment |= {"PYTHONPATH": str(options.checkout.resolve())} if options.checkout else {}
    measured_lines(10, options.commands, environment)
    lines = [line for size in options.sizes for line in measured_lines(size, options.commands, environment)]
    for line in lines:
        smaller = next((item for item in lines if item["command"] == line["command"]
                        and 10 * item["questions"] == line["questions"]), None)  # fmt: skip
        if smaller:
            factor = line["processor s"] / smaller["processor s"]
            print(f"{line['command']}, {line['questions']:,} questions: {factor:.1f} times the seconds of a tenth")
    if options.csv:
        write_csv(options.csv, lines, code=options.code, machine=options.machine)


def measured_lines(
    n_questions: int, commands: list[str], environment: dict[str, str]
) -> list[dict[str, int | float | str]]:
    """Return a line of figures for each command on a run of `n_questions`, and print it."""
    lines = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        # In a process of its own: the peak of a child begins with the memory of the process that starts it.
        subprocess.run(
            [sys.executable, "-m", "tests.support.bench.made_runs", str(folder), str(n_questions)], check=True
        )
        matrix, out = folder / "datasets" / "longvideobench" / "matrix.yaml", folder / "runs" / "load"
        arguments = {
            "plan": [str(matrix), "--out", str(out)],
            "compare": [str(out), str(out)],
            "pack": [str(out), "--out", str(folder / "load.zip")],
        }
        for command in commands:
            # audit exits with 1 if it finds a fault.
            codes = (0, 1) if command == "audit" else (0,)
            words = arguments.get(command, [str(out)])
            load = measured(command, *words, environment=environment, codes=codes)
            line: dict[str, int | float | str] = {
                "questions": n_questions,
                "command": command,
                "processor s": round(load.processor_seconds, 1),
                "peak MiB": round(load.peak_mib),
                "page MB": round(os.path.getsize(out / "report.html") / 1e6, 1) if command == "report" else "",
            }
            print(*line.values(), sep="\t", flush=True)
            lines.append(line)
    return lines


def write_csv(path: Path, lines: list[dict[str, int | float | str]], *, code: str, machine: str) -> None:
    """Write `lines` under the name `code` to a CSV file, in place of those of the same code, size and command."""
    kept_rows: list[dict[str, str]] = []
    measured_now = {(code, str(line["questions"]), str(line["command"])) for line in lines}
    if path.exists():
        with open(path, newline="", encoding="utf-8") as file:
            kept_rows = [row for row in csv.DictReader(file) if tuple(row[key] for key in KEYS) not in measured_now]
    provenance = {"machine": machine, "date": date.today().isoformat()}
    rows = [*kept_rows, *({"code": code, **line, **provenance} for line in lines)]
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
