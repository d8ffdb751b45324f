"""A small benchmark of known lengths, whose relevance is a recorded trace: no video, no network, no model."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest
import yaml

from focus_eval.keyframes.video.clip_writer import ClipWriter


def lvb_question(number, video, seconds, *, answer):
    """Return a line of LongVideoBench's annotations about `video`, with two choices and a piece of evidence."""
    return {
        "id": f"q{number}",
        "video_id": video,
        "video_path": f"{video}.mp4",
        "question": f"What happens in scene {number}?",
        "candidates": ["this", "that"],
        "correct_choice": answer,
        "duration": float(seconds),
        "duration_group": 60,
        "question_category": "S2E",
        "position": [24 * (number % 50)],
    }


def write_noise_matrix(folder, *, n_videos, gop, **settings):
    """Write clips of 12 seconds of noise with two questions each, and a matrix of them; return the matrix file.

    Args:
        gop: frames from one sync frame of a clip to the next.
        settings: further entries of the matrix.
    """
    rng, questions = np.random.default_rng(0), []
    for number in range(n_videos):
        with ClipWriter(folder / f"v{number}.mp4", width=64, height=48, fps=8, gop=gop) as writer:
            for _ in range(12):
                writer.write(rng.integers(0, 256, (48, 64, 3), dtype=np.uint8), n_times=8)
        questions += [lvb_question(10 * number + part, f"v{number}", 12, answer=part) for part in range(2)]
    annotations = folder / "questions.json"
    annotations.write_text(json.dumps(questions))
    places = {"annotations": str(annotations), "videos": str(folder)}
    document = {
        "benchmarks": [{"name": "noise", "benchmark": "longvideobench", **places}],
        "encoders": [{"name": "offline", "encoder": "offline"}],
        "k": [4],
        **settings,
    }
    (folder / "matrix.yaml").write_text(yaml.safe_dump(document))
    return folder / "matrix.yaml"


def write_simulation(
    folder, *, n_questions=24, n_videos=6, samplers=("uniform", "topk", "focus", "focus_released"), k=(8,)
):
    """Write annotations, rates and a matrix that selects with recorded relevance; return the matrix file."""
    folder.mkdir(parents=True, exist_ok=True)
    questions, rates = [], []
    for number in range(n_questions):
        seconds = 60 + 97 * (number % n_videos)
        questions.append(lvb_question(number, f"v{number % n_videos}", seconds, answer=number % 2))
        rates.append({"id": f"q{number}", "duration_s": seconds, "fps": "30"})
    (folder / "questions.json").write_text(json.dumps(questions))
    with open(folder / "rates.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, ["id", "duration_s", "fps"])
        writer.writeheader()
        writer.writerows(rates)
    times = np.arange(30 * (60 + 97 * n_videos))
    np.save(folder / "trace.npy", 0.5 + 0.4 * np.sin(times / 900) * np.cos(times / 7001))
    matrix = {
        "name": "simulation",
        "benchmarks": [
            {
                "name": "simulated",
                "benchmark": "longvideobench",
                "annotations": str(folder / "questions.json"),
                "rates": str(folder / "rates.csv"),
            }
        ],
        "encoders": [{"name": "trace", "encoder": "recorded", "options": {"path": str(folder / "trace.npy")}}],
        "samplers": list(samplers),
        "k": list(k),
    }
    (folder / "matrix.yaml").write_text(yaml.safe_dump(matrix))
    return folder / "matrix.yaml"


@pytest.fixture
def simulation(tmp_path):
    """The matrix file of a small simulation."""
    return write_simulation(tmp_path / "simulation")
