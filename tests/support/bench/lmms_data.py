"""Documents and clips of four benchmarks in the official layout, for lmms-eval's own tasks."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

QUESTIONS = ["What does the man hold?", "Who enters the room last, and why?", "What happens after the rain?"]
CLIPS: dict[str, dict[str, Any]] = {
    "landscape": {"n_frames": 90, "width": 112, "height": 84, "fps": 10},
    "portrait": {"n_frames": 80, "width": 84, "height": 140, "fps": 10},
    "odd": {"n_frames": 70, "width": 97, "height": 61, "fps": 10, "pixel_format": "yuv444p"},
    "few": {"n_frames": 5, "width": 112, "height": 84, "fps": 10},
}


class Home:
    """A folder as $HF_HOME and as a working directory in which the hub's names are local folders."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.hf = root / "hf"
        self.videos = {
            "longvideobench": self.hf / "datasets/longvideobench/videos",
            "videomme": self.hf / "videomme/data",
            "mlvu": self.hf / "mlvu",
            "vsibench": self.hf / "vsibench/arkitscenes",
        }
        self.data = {
            "longvideobench": root / "longvideobench/LongVideoBench",
            "videomme": root / "lmms-eval/Video-MME",
            "mlvu": root / "sy1998/MLVU_dev",
            "vsibench": root / "nyu-visionx/VSI-Bench",
        }

    def environment(self) -> dict[str, str]:
        """For a command run in `root`."""
        return {
            **os.environ,
            "HF_HOME": str(self.hf),
            "HF_DATASETS_CACHE": str(self.root / "datasets_cache"),
            "LMMS_EVAL_DATASETS_CACHE": str(self.root / "datasets_cache"),
        }


def write_parquet(folder: Path, split: str, rows: list[dict[str, Any]]) -> Path:
    """Write documents as the one file of a data set's split."""
    import pandas as pd

    folder.mkdir(parents=True, exist_ok=True)
    pd.DataFrame(rows).to_parquet(folder / f"{split}-00000-of-00001.parquet")
    return folder


def longvideobench_rows(videos: list[str], questions: list[str]) -> list[dict[str, Any]]:
    """Return documents of LongVideoBench: every question about every video."""
    return [
        {
            "id": f"{video}_{at}", "video_id": video, "video_path": f"{video}.mp4", "question": f"{question} ({video})",
            "option0": "red", "option1": "blue", "option2": "green", "option3": "N/A", "option4": "N/A",
            "duration": CLIPS[video]["n_frames"] / 10 if video in CLIPS else 9.0, "duration_group": 15,
            "correct_choice": at % 3, "question_category": "S2E", "position": [10],
            "subtitle_path": f"{video}_en.json", "starting_timestamp_for_subtitles": 0.0,
        }
        for video in videos
        for at, question in enumerate(questions)
    ]  # fmt: skip


def _videomme_rows() -> list[dict[str, Any]]:
    """Return the documents of Video-MME: two questions on each of two clips."""
    return [
        {
            "video_id": video, "duration": "short", "domain": "Knowledge", "sub_category": "Astronomy", "url": "",
            "videoID": video, "question_id": f"{video}-{at}", "task_type": "Counting Problem", "question": question,
            "options": ["A. Apples.", "B. Candles.", "C. Berries.", "D. None."], "answer": "C",
        }
        for video in ("landscape", "portrait")
        for at, question in enumerate(QUESTIONS[:2])
    ]  # fmt: skip


def _mlvu_rows() -> list[dict[str, Any]]:
    """Return the documents of MLVU: one question on each of two clips."""
    return [
        {
            "video_name": f"{video}.mp4", "duration": CLIPS[video]["n_frames"] / 10,
            "question": f"{question}\n(A) A letter\n(B) A book\n(C) A hat\n(D) Nothing\n",
            "candidates": ["A letter", "A book", "A hat", "Nothing"], "answer": "B", "task_type": kind,
        }
        for video, question, kind in (("landscape", QUESTIONS[0], "plotQA"), ("odd", QUESTIONS[1], "count"))
    ]  # fmt: skip


def _vsibench_rows() -> list[dict[str, Any]]:
    kinds = ["easy", "medium", "hard"]
    choices = [
        {
            "id": f"{at}", "dataset": "arkitscenes", "scene_name": "landscape", "question": f"Where is it? ({kind})",
            "question_type": f"object_rel_direction_{kind}", "options": ["A. left", "B. right"], "ground_truth": "A",
        }
        for at, kind in enumerate(kinds)
    ]  # fmt: skip
    count = {
        "id": "7", "dataset": "arkitscenes", "scene_name": "portrait", "question": "How many chairs are there?",
        "question_type": "object_counting", "options": None, "ground_truth": "4",
    }  # fmt: skip
    return [*choices, count]


def write_home(root: Path) -> Home:
    """Write documents and clips of the four benchmarks into `root`, where lmms-eval looks for them."""
    from tests.support.keyframes.synthetic import write_numbered_clip

    home = Home(root)
    for folder in home.videos.values():
        folder.mkdir(parents=True)
        for name, clip in CLIPS.items():
            options = dict(clip)
            write_numbered_clip(folder / f"{name}.mp4", options.pop("n_frames"), **options)
    _write_subtitles(home)
    rows = longvideobench_rows(list(CLIPS), QUESTIONS[:2])
    write_parquet(home.data["longvideobench"], "validation", rows)
    write_parquet(home.data["videomme"], "test", _videomme_rows())
    write_parquet(home.data["mlvu"], "test", _mlvu_rows())
    write_parquet(home.data["vsibench"], "test", _vsibench_rows())
    (home.data["vsibench"] / "README.md").write_text(
        "---\nconfigs:\n- config_name: full\n  data_files:\n  - split: test\n    path: test-*.parquet\n---\n"
    )
    return home


def _write_subtitles(home: Home) -> None:
    """Write the subtitles of both benchmarks that have some: a line in each half second, a longer one, a late one."""
    spans = [(at / 2, at / 2 + 0.4, f"line {at}") for at in range(40)] + [(0.2, 3.7, "long"), (90.0, 99.0, "late")]
    entries = [{"timestamp": [start, stop], "text": text} for start, stop, text in sorted(spans)]
    cues = []
    for number, (start, stop, text) in enumerate(sorted(spans), start=1):
        clock = " --> ".join(
            f"00:{int(t) // 60:02}:{int(t) % 60:02},{round(t * 1000) % 1000:03}" for t in (start, stop)
        )
        cues.append(f'{number}\n{clock}\n<font color="white" size=".72c">{text}</font>\n')
    for folder, suffix, content in (
        (home.hf / "datasets/longvideobench/subtitles", "_en.json", json.dumps(entries)),
        (home.hf / "videomme/subtitle", ".srt", "\n".join(cues)),
    ):
        folder.mkdir(parents=True)
        for name in CLIPS:
            (folder / f"{name}{suffix}").write_text(content)


def decode_all(path: Path) -> np.ndarray[Any, Any]:
    """Return every frame of a file in presentation order, by a plain sequential decode: `(n, height, width, 3)`."""
    import av

    with av.open(str(path)) as container:
        frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
    return np.stack(frames)


def read_record(folder: Path, kind: str) -> list[dict[str, Any]]:
    """Return the rows below a record folder, whatever its runs are called."""
    files = sorted(folder.glob(f"**/{kind}/*/*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]
