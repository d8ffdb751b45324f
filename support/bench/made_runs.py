"""An own benchmark with recorded relevance, and a matrix of four samplers and one model."""

from __future__ import annotations

from pathlib import Path

import yaml

from support.bench.load import QUESTIONS_PER_VIDEO, write_load_matrix

SAMPLERS = ("uniform", "topk", "aks", "focus")
# Videos after which their lengths repeat.
N_LENGTHS = 20


def write_matrix(folder: Path, n_questions: int) -> Path:
    """Write an own benchmark of `n_questions` and a matrix of `SAMPLERS` and one model; return the matrix file."""
    path = write_load_matrix(
        folder / "datasets" / "longvideobench", n_questions, samplers=SAMPLERS, n_lengths=N_LENGTHS
    )
    data = path.parent
    (data / "validation.json").write_bytes((data / "questions.json").read_bytes())
    (data / "videos").mkdir()
    for number in range(-(-n_questions // QUESTIONS_PER_VIDEO)):
        (data / "videos" / f"v{number}.mp4").write_bytes(b"never opened")
    benchmark = {
        "name": "mine",
        "benchmark": "mine",
        "task": "focus_photo_events",
        "annotations": str(data / "validation.json"),
        "videos": str(data / "videos"),
        "rates": str(data / "rates.csv"),
        "data_home": str(folder),
        "dataset": str(data),
        "fields": "longvideobench",
    }
    matrix = yaml.safe_load(path.read_text())
    matrix |= {"benchmarks": [benchmark], "models": ["zero_shot"]}
    path.write_text(yaml.safe_dump(matrix))
    return path
