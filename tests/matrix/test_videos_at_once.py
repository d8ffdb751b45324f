"""Videos are served two at a time: the same rows as one at a time, and an interrupt stops them all."""

from __future__ import annotations

import json
import threading

import numpy as np
import pytest
import yaml

from focus_eval.matrix import selecting
from focus_eval.matrix.config import load_matrix
from focus_eval.matrix.running import run_matrix
from focus_eval.video.synthetic import ClipWriter

from .test_running import result_bytes

pytest.importorskip("openvino", reason="the offline extra is not installed")

N_VIDEOS = 4


@pytest.fixture(scope="module")
def matrix(tmp_path_factory):
    folder = tmp_path_factory.mktemp("filmed")
    rng = np.random.default_rng(0)
    questions = []
    for number in range(N_VIDEOS):
        with ClipWriter(folder / f"v{number}.mp4", width=64, height=48, fps=8, gop=24) as writer:
            for _ in range(12):
                writer.write(rng.integers(0, 256, (48, 64, 3), dtype=np.uint8), n_times=8)
        for part in range(2):
            questions.append(
                {
                    "id": f"q{number}{part}",
                    "video_id": f"v{number}",
                    "video_path": f"v{number}.mp4",
                    "question": f"What happens in scene {part}?",
                    "candidates": ["this", "that"],
                    "correct_choice": part,
                    "duration": 12.0,
                    "duration_group": 15,
                    "question_category": "S2E",
                    "position": [24],
                }
            )
    (folder / "questions.json").write_text(json.dumps(questions))
    document = {
        "name": "filmed",
        "benchmarks": [
            {
                "name": "filmed",
                "benchmark": "longvideobench",
                "annotations": str(folder / "questions.json"),
                "videos": str(folder),
            }
        ],
        "encoders": [{"name": "offline", "scorer": "offline"}],
        "samplers": ["uniform", "topk", "focus"],
        "k": [4],
    }
    (folder / "matrix.yaml").write_text(yaml.safe_dump(document))
    return load_matrix(folder / "matrix.yaml")


@pytest.fixture(scope="module")
def one_at_a_time(matrix, tmp_path_factory):
    folder = tmp_path_factory.mktemp("alone")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(selecting, "VIDEOS_AT_ONCE", 1)
        run_matrix(matrix, to=folder / "run")
    return result_bytes(folder / "run")


def test_rows_are_those_of_one_video_at_a_time(matrix, one_at_a_time, tmp_path):
    frame = run_matrix(matrix, to=tmp_path / "run")
    assert frame["error"].isna().all()
    assert result_bytes(tmp_path / "run") == one_at_a_time


@pytest.mark.parametrize("after", [1, 7])
def test_an_interrupt_stops_every_video_and_the_next_run_ends_the_same(matrix, one_at_a_time, tmp_path, after):
    before = threading.active_count()

    class Impatient:
        rows = 0

        def start(self, phase, n_rows):
            """Nothing is shown."""

        def advance(self, phase, n_rows, n_errors):
            self.rows += n_rows
            if self.rows == after:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_matrix(matrix, to=tmp_path / "run", watch=Impatient())
    assert threading.active_count() <= before + 1  # torch may keep one
    run_matrix(matrix, to=tmp_path / "run")
    assert result_bytes(tmp_path / "run") == one_at_a_time
