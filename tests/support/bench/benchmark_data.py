"""The four data sets as their repositories on the hub hold them: documents, archives of videos, nothing else.

Documents have the official schema and number, their text is made up. The first videos of each data set are real clips
of several lengths; all others are one short clip, for runs with `--limit`.
"""

from __future__ import annotations

import io
import json
import tarfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from focus_eval.keyframes.video.clip_writer import ClipWriter

# (seconds, frames per second) of the clips: short, medium and long by LongVideoBench's edges, twice.
CLIPS = ((20, 4), (190, 2), (1210, 1), (12, 10), (240, 1), (1230, 1))
N_DOCUMENTS = {"longvideobench": 1337, "videomme": 2700, "mlvu": 2174, "vsibench": 5130}
BUCKETS = ("short", "medium", "long")
MLVU_TYPES = ("plotQA", "needle", "ego", "topic_reasoning", "order", "count", "anomaly_reco")
VSI_CHOICES = (
    "object_rel_direction_easy", "object_rel_direction_medium", "object_rel_direction_hard", "object_rel_distance",
    "route_planning", "obj_appearance_order",
)  # fmt: skip
VSI_NUMBERS = ("object_counting", "object_abs_distance", "object_size_estimation", "room_size_estimation")
ARCHIVE_PART_BYTES = 1 << 21
# Its middle third is zeros: the container opens, frames there do not decode.
BROKEN_VIDEO = "vmme0000001"
_OBJECTS = ("dog", "car", "red hat", "woman cooking", "cat on the table", "blue door", "man who is reading")


def write_clips(folder: Path) -> list[bytes]:
    """Write the clips of `CLIPS` and one of 2 seconds, and return their files' content."""
    folder.mkdir(parents=True, exist_ok=True)
    contents = []
    for at, (seconds, fps) in enumerate([*CLIPS, (2, 10)]):
        path = folder / f"clip{at}.mp4"
        _write_clip(path, n_frames=seconds * fps, fps=fps, seed=at)
        contents.append(path.read_bytes())
    return contents


def write_longvideobench(folder: Path, clips: Sequence[bytes]) -> Path:
    """Write `longvideobench/LongVideoBench`: two parquet files, two JSON files, one tar in parts, one of subtitles.

    As there, the evidence (`position`) stands in the JSON file alone.
    """
    documents, annotations, videos = [], [], {}
    for at in range(N_DOCUMENTS["longvideobench"]):
        video = f"lvb{at if at < len(CLIPS) else at % 747 + len(CLIPS):07d}"
        seconds, _ = CLIPS[at % len(CLIPS)]
        options = ["a dog", "a red car", "the woman", "a blue door"][: 3 + at % 2]
        videos[f"videos/{video}.mp4"] = clips[min(at, len(clips) - 1)]
        shared = {
            "id": f"{video}_{at}", "video_id": video, "video_path": f"{video}.mp4",
            "subtitle_path": f"{video}_en.json", "starting_timestamp_for_subtitles": 0.0,
            "question": f"In the video, what is next to the {_thing(at)} when scene {at} begins?",
            "question_wo_referring_query": "What is next to it?", "question_category": ["S2E", "T3O", "E2O"][at % 3],
            "topic_category": "NP-News-Programs", "level": "IntraMoment", "duration": float(seconds),
            "duration_group": [15, 600, 3600][at % 3], "view_count": 1000 + at, "correct_choice": at % 3,
        }  # fmt: skip
        padded = [*options, *["N/A"] * (5 - len(options))]
        documents.append({**shared, **{f"option{i}": option for i, option in enumerate(padded)}})
        position = [int(seconds * 24 * share) for share in (0.25, 0.75)]
        annotations.append({**shared, "candidates": options, "position": position})
    _write_parquet(folder / "validation-00000-of-00001.parquet", documents)
    _write_parquet(
        folder / "test-00000-of-00001.parquet", [{**document, "correct_choice": -1} for document in documents[:20]]
    )
    _write_text(folder / "lvb_val.json", json.dumps(annotations))
    _write_text(folder / "lvb_test_wo_gt.json", json.dumps(annotations[:20]))
    _write_tar_parts(folder, "videos", videos)
    # Of the first videos only: a rehearsal asks about no others.
    spoken = {video: json.dumps(subtitle_lines(video)) for video in [Path(name).stem for name in videos][:20]}
    (folder / "subtitles.tar").write_bytes(
        _tar({f"subtitles/{video}_en.json": text.encode() for video, text in spoken.items()})
    )
    return folder


def subtitle_lines(video: str) -> list[dict[str, Any]]:
    """Return the subtitles of a video of LongVideoBench: a line every four seconds, for as long as the longest clip."""
    return [{"timestamp": [4.0 * at, 4.0 * at + 4.0], "text": f"{video} says sentence {at:03d}."} for at in range(320)]


def write_videomme(folder: Path, clips: Sequence[bytes]) -> Path:
    """Write `lmms-eval/Video-MME`: one configuration in a folder, zips of videos, subtitles."""
    documents, videos = [], {}
    for at in range(N_DOCUMENTS["videomme"]):
        number = at // 3
        video = f"vmme{number:07d}"
        content = clips[number if number < len(CLIPS) else -1]
        videos[f"data/{video}.mp4"] = _broken(content) if video == BROKEN_VIDEO else content
        documents.append(
            {
                "video_id": f"{number + 1:03d}", "duration": BUCKETS[number % 3], "domain": "Knowledge",
                "sub_category": "Astronomy", "url": f"https://example.org/{video}", "videoID": video,
                "question_id": f"{number + 1:03d}-{at % 3 + 1}",
                "task_type": ["Counting Problem", "Object Recognition", "Action Reasoning"][at % 3],
                "question": f"How often is the {_thing(at)} seen in part {at}?",
                "options": ["A. Once.", "B. Twice.", "C. Three times.", "D. Never."], "answer": "ABCD"[at * 7 % 4],
            }
        )  # fmt: skip
    _write_parquet(folder / "videomme" / "test-00000-of-00001.parquet", documents)
    _write_card(folder, "videomme", ["videomme/test-*"])
    _write_zips(folder, "videos_chunked_{:02d}.zip", videos, n=4)
    _write_zip(folder / "subtitle.zip", {"subtitle/none.srt": b""})
    return folder


def write_mlvu(folder: Path, clips: Sequence[bytes]) -> Path:
    """Write `sy1998/MLVU_dev`: one configuration in a folder, zips of videos."""
    documents, videos = [], {}
    for at in range(N_DOCUMENTS["mlvu"]):
        number = at if at < len(CLIPS) else at % 1116 + len(CLIPS)
        kind = MLVU_TYPES[at % len(MLVU_TYPES)]
        video = f"{kind}_{number}.mp4"
        seconds, _ = CLIPS[number % len(CLIPS)]
        videos[video] = clips[number if number < len(CLIPS) else -1]
        candidates = ["A letter", "A book", "A hat", "Nothing"]
        listed = "".join(f"({letter}) {text}\n" for letter, text in zip("ABCD", candidates, strict=True))
        documents.append(
            {
                "video_name": video, "duration": float(seconds), "candidates": candidates,
                "question": f"What does the {_thing(at)} hold in part {at}?\n{listed}",
                "answer": "ABCD"[at * 3 % 4], "task_type": kind, "question_id": f"Q{at}",
            }
        )  # fmt: skip
    _write_parquet(folder / "mlvu" / "test-00000-of-00001.parquet", documents)
    _write_card(folder, "mlvu", ["mlvu/test-*"])
    _write_zip(folder / "action_count.zip", {name: data for name, data in videos.items() if name.startswith("count")})
    remaining_videos = {name: data for name, data in videos.items() if not name.startswith("count")}
    _write_zips(folder, "video_part_{:d}.zip", remaining_videos, n=3)
    return folder


def write_vsibench(folder: Path, clips: Sequence[bytes]) -> Path:
    """Write `nyu-visionx/VSI-Bench`: three configurations over two parquet files, one zip per source of scenes."""
    documents: list[dict[str, Any]] = []
    videos: dict[str, dict[str, bytes]] = {}
    for at in range(N_DOCUMENTS["vsibench"]):
        number = (at % 4 if at < 20 else at // 18) % 288
        source = ("arkitscenes", "scannet", "scannetpp")[number % 3]
        scene = f"scene{number:04d}_00"
        videos.setdefault(source, {})[f"{source}/{scene}.mp4"] = clips[(0, 1, 3, 4)[number] if number < 4 else -1]
        kind = (*VSI_CHOICES, *VSI_NUMBERS)[at % 10]
        is_choice = kind in VSI_CHOICES
        documents.append(
            {
                "id": at, "dataset": source, "scene_name": scene, "question_type": kind,
                "question": f"Where is, or how many are, the {_thing(at)} of part {at}?",
                "options": ["A. left", "B. right", "C. back", "D. front"] if is_choice else None,
                "ground_truth": "ABCD"[at % 4] if is_choice else str(2 + at % 3), "pruned": at % 2 == 1,
            }
        )  # fmt: skip
    _write_parquet(folder / "test_debiased.parquet", [document for document in documents if not document["pruned"]])
    _write_parquet(folder / "test_pruned.parquet", [document for document in documents if document["pruned"]])
    _write_text(folder / "test.jsonl", "".join(json.dumps(document) + "\n" for document in documents))
    parts = {"debiased": ["test_debiased.parquet"], "pruned": ["test_pruned.parquet"]}
    parts["full"] = [*parts["debiased"], *parts["pruned"]]
    lines = [f"- config_name: {name}\n{_data_files(files)}" for name, files in parts.items()]
    _write_text(folder / "README.md", "---\nlicense: apache-2.0\nconfigs:\n" + "".join(lines) + "---\n")
    for source, files in videos.items():
        _write_zip(folder / f"{source}.zip", files)
    return folder


def _broken(content: bytes) -> bytes:
    """Return the file with its middle third replaced by zeros."""
    third = len(content) // 3
    return content[:third] + bytes(third) + content[2 * third :]


def _write_clip(path: Path, *, n_frames: int, fps: int, seed: int) -> None:
    """Write scenes of coloured tiles, a new one every 5 seconds, each fading."""
    rng = np.random.default_rng(seed)
    with ClipWriter(path, width=64, height=48, fps=fps, gop=50, crf=30) as writer:
        for frame in range(n_frames):
            if frame % (5 * fps) == 0:
                tiles = rng.integers(0, 256, (6, 8, 3))
                scene = np.kron(tiles, np.ones((8, 8, 1)))
            fade = 1.0 - (frame % (5 * fps)) / (10 * fps)
            writer.write((scene * fade).astype(np.uint8))


def _thing(at: int) -> str:
    return _OBJECTS[at % len(_OBJECTS)]


def _write_parquet(path: Path, documents: list[dict[str, Any]]) -> None:
    """Write the documents as a Parquet file, in a new folder if need be."""
    import pyarrow
    import pyarrow.parquet

    path.parent.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(documents), path)


def _write_text(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _data_files(paths: Sequence[str]) -> str:
    return "  data_files:\n  - split: test\n    path:\n" + "".join(f"    - {path}\n" for path in paths)


def _write_card(folder: Path, config: str, paths: Sequence[str]) -> None:
    _write_text(folder / "README.md", f"---\nconfigs:\n- config_name: {config}\n{_data_files(paths)}---\n")


def _tar(files: dict[str, bytes]) -> bytes:
    """Return an uncompressed tar archive of the files, by name."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


def _write_tar_parts(folder: Path, name: str, files: dict[str, bytes]) -> None:
    """Write a tar archive of the files, cut into parts NAME.tar.part.aa, .ab and so on."""
    data = _tar(files)
    for at, start in enumerate(range(0, len(data), ARCHIVE_PART_BYTES)):
        part = f"{name}.tar.part.{chr(97 + at // 26)}{chr(97 + at % 26)}"
        (folder / part).write_bytes(data[start : start + ARCHIVE_PART_BYTES])


def _write_zips(folder: Path, pattern: str, files: dict[str, bytes], *, n: int) -> None:
    """Write `n` zip archives that share the files out in turn; `pattern` makes a name of each number from 1."""
    names = list(files)
    for at in range(n):
        _write_zip(folder / pattern.format(at + 1), {name: files[name] for name in names[at::n]})


def _write_zip(path: Path, files: dict[str, bytes]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
