"""Makes a benchmark of many questions with recorded relevance, and measures what a command takes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import yaml

QUESTIONS_PER_VIDEO = 10
FPS = 30
LONGEST_SECONDS = 3600


@dataclass(frozen=True)
class Taken:
    """What a command took: seconds on the clock and of the processor, and its largest resident memory."""

    seconds: float
    processor_seconds: float
    peak_mib: float


def write_load_matrix(
    folder: Path,
    n_questions: int,
    *,
    samplers: Sequence[str] = ("uniform", "focus"),
    k: int = 32,
    n_lengths: int | None = None,
) -> Path:
    """Write annotations, rates, a recorded trace and a matrix that selects with it; return the matrix file.

    Videos of 8 seconds to an hour (log-normal, median 200 s) at 30 frames per second, ten questions each, two evidence
    moments a question. No video is opened.

    Args:
        n_lengths: number of videos after which the lengths repeat; None if they never do.
    """
    folder.mkdir(parents=True)
    n_videos = -(-n_questions // QUESTIONS_PER_VIDEO)
    drawn = np.exp(np.random.default_rng(0).normal(5.3, 1.3, n_lengths or n_videos))
    lengths = np.clip(drawn, 8, LONGEST_SECONDS).round().astype(int)
    seconds = np.resize(lengths, n_videos).tolist()
    questions, rates = [], ["id,duration_s,fps"]
    for number in range(n_questions):
        video = number // QUESTIONS_PER_VIDEO
        length = seconds[video]
        questions.append(
            {
                "id": f"q{number}", "video_id": f"v{video}", "video_path": f"v{video}.mp4",
                "question": f"In the video, what is next to the dog when scene {number} begins, before the door opens?",
                "candidates": ["a dog", "a red car", "the woman", "a blue door"], "correct_choice": number % 4,
                "duration": float(length), "duration_group": 60, "question_category": "S2E",
                "position": [int(24 * length * share) for share in (0.3, 0.7)],
            }
        )  # fmt: skip
        rates.append(f"q{number},{length},{FPS}")
    (folder / "questions.json").write_text(json.dumps(questions))
    (folder / "rates.csv").write_text("\n".join(rates) + "\n")
    times = np.arange(FPS * (LONGEST_SECONDS + 1))
    np.save(folder / "trace.npy", 0.5 + 0.4 * np.sin(times / 900) * np.cos(times / 7001))
    benchmark = {"annotations": str(folder / "questions.json"), "rates": str(folder / "rates.csv")}
    matrix = {
        "name": "load",
        "benchmarks": [{"name": "made_up", "benchmark": "longvideobench", **benchmark}],
        "encoders": [{"name": "trace", "encoder": "recorded", "options": {"path": str(folder / "trace.npy")}}],
        "samplers": list(samplers),
        "k": [k],
    }
    (folder / "matrix.yaml").write_text(yaml.safe_dump(matrix))
    return folder / "matrix.yaml"


def measured(*arguments: str, environment: Mapping[str, str] | None = None, codes: Sequence[int] = (0,)) -> Taken:
    """Run `focus-eval ARGUMENTS` in a process of its own and return what it took.

    Args:
        codes: exit codes that are no failure.

    Raises:
        RuntimeError: it ended with another code; its last lines are in the text.
    """
    with subprocess.Popen(
        [sys.executable, "-m", "focus_eval", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "OMP_NUM_THREADS": "1", **(environment or {})},
    ) as process:
        started = time.perf_counter()
        assert process.stdout is not None
        output = process.stdout.read()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in codes:
        raise RuntimeError(f"focus-eval {' '.join(arguments)}: {output.decode(errors='replace')[-2000:]}")
    return Taken(time.perf_counter() - started, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


def growth_exponent(sizes: Sequence[int], values: Sequence[float]) -> float:
    """Return the slope of log value over log size, least squares: 1 is linear, 2 quadratic, 0 flat."""
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])
