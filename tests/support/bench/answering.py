"""Makes a small benchmark of real clips, and a matrix in which a service on this machine answers it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.support.keyframes.synthetic import write_numbered_clip

N_VIDEOS = 8


def write_answering_matrix(
    folder: Path, n_questions: int, *, model: Mapping[str, Any], samplers: tuple[str, ...] = ("uniform",)
) -> Path:
    """Write clips, documents as LongVideoBench has them and a matrix; return the matrix file.

    Args:
        model: name, model, args and frames, as in a matrix.
    """
    import pyarrow
    import pyarrow.parquet

    videos = folder / "home" / "datasets" / "longvideobench" / "videos"
    videos.mkdir(parents=True)
    for number in range(N_VIDEOS):
        write_numbered_clip(videos / f"v{number}.mp4", 24 + number, width=64, height=48, fps=4)
    documents = [_document(number) for number in range(n_questions)]
    (folder / "data").mkdir()
    pyarrow.parquet.write_table(
        pyarrow.Table.from_pylist(documents), folder / "data" / "validation-00000-of-00001.parquet"
    )
    matrix = {
        "name": "answering",
        "benchmarks": [
            {
                "name": "made_up",
                "benchmark": "longvideobench",
                "task": "focus_longvideobench",
                "dataset": str(folder / "data"),
                "data_home": str(folder / "home"),
                "videos": str(videos),
            }
        ],
        "models": [{"needs_gpu": False, **model}],
        "samplers": list(samplers),
        "max_error_share": 1.0,
    }
    (folder / "matrix.yaml").write_text(yaml.safe_dump(matrix))
    return folder / "matrix.yaml"


def _document(number: int) -> dict[str, Any]:
    """Return one question of the small benchmark, as a line of LongVideoBench's annotations."""
    video = f"v{number % N_VIDEOS}"
    options = {f"option{i}": text for i, text in enumerate(["a dog", "a red car", "the woman", "a blue door", "N/A"])}
    return {
        "id": f"q{number}", "video_id": video, "video_path": f"{video}.mp4", "subtitle_path": f"{video}_en.json",
        "starting_timestamp_for_subtitles": 0.0, "question": f"What is next to the dog when scene {number} begins?",
        "question_wo_referring_query": "What is next to it?", "question_category": "S2E", "topic_category": "NP-News",
        "level": "IntraMoment", "duration": 6.0, "duration_group": 15, "view_count": 1, "correct_choice": number % 4,
        **options,
    }  # fmt: skip
