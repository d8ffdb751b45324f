"""How do the runner's time and memory grow? Four samplers with recorded relevance, 2,000 and 20,000 questions."""

from __future__ import annotations

import argparse
import csv
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import yaml

SAMPLERS = ["uniform", "topk", "focus", "focus_released"]
VIDEO_SECONDS = 300


def write_simulation(folder: Path, n_questions: int) -> Path:
    """Write annotations, rates, a trace and the matrix for videos of `VIDEO_SECONDS` at 30 fps, 2 questions each."""
    folder.mkdir(parents=True)
    common = {"candidates": ["a", "b"], "correct_choice": 0, "duration_group": 600, "question_category": "S2E"}
    questions = [
        {
            "id": f"q{n}",
            "video_id": f"v{n // 2}",
            "video_path": f"v{n // 2}.mp4",
            "question": f"What is in scene {n}?",
            "duration": VIDEO_SECONDS,
            "position": [24 * (n % VIDEO_SECONDS)],
            **common,
        }
        for n in range(n_questions)
    ]
    (folder / "questions.json").write_text(json.dumps(questions))
    with open(folder / "rates.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "duration_s", "fps"])
        writer.writerows([question["id"], VIDEO_SECONDS, "30"] for question in questions)
    np.save(folder / "trace.npy", 0.5 + 0.4 * np.sin(np.arange(VIDEO_SECONDS * 30) / 900))
    benchmark = {"name": "simulated", "benchmark": "longvideobench"}
    matrix = {
        "name": "simulation",
        "benchmarks": [
            {**benchmark, "annotations": str(folder / "questions.json"), "rates": str(folder / "rates.csv")}
        ],
        "encoders": [{"name": "trace", "scorer": "recorded", "options": {"path": str(folder / "trace.npy")}}],
        "samplers": SAMPLERS,
        "k": [64],
    }
    (folder / "matrix.yaml").write_text(yaml.safe_dump(matrix))
    return folder / "matrix.yaml"


def child(matrix: str, out: str) -> None:
    """Run the matrix and print seconds and peak memory."""
    from focus_eval.bench.matrix.config import load_matrix
    from tests.support.bench.matrix_rows import run_matrix

    started = time.perf_counter()
    rows = len(run_matrix(load_matrix(matrix), out=out))
    seconds = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"rows": rows, "seconds": seconds, "peak_mib": peak}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--questions", nargs="+", type=int, default=[2000, 20000])
    parser.add_argument("--child", nargs=2, metavar=("MATRIX", "TO"))
    options = parser.parse_args()
    if options.child:
        child(*options.child)
        return
    print("| questions | rows | seconds | ms a row | peak MiB | again, nothing to do: seconds |")
    print("|---:|---:|---:|---:|---:|---:|")
    for n_questions in options.questions:
        with tempfile.TemporaryDirectory() as folder:
            matrix = write_simulation(Path(folder) / "simulation", n_questions)
            command = [sys.executable, "-m", "scripts.speed.matrix", "--child", str(matrix), str(Path(folder) / "run")]
            runs = [json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout) for _ in range(2)]
        first, second = runs
        per_row = first["seconds"] / first["rows"] * 1000
        print(
            f"| {n_questions} | {first['rows']} | {first['seconds']:.1f} | {per_row:.2f} | {first['peak_mib']:.0f} "
            f"| {second['seconds']:.1f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
