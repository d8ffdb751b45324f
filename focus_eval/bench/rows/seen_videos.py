"""Records size and change time of the videos behind the rows of a part, to notice files replaced later.

    part/videos.json    {"benchmark": .., "folder": .., "videos": {"a.mp4": [[bytes, mtime_ns], ..]}}

A video has one state, or several if its rows were made from several versions of the file.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NamedTuple

from focus_eval.keyframes.rows.files import read_sealed_json, write_sealed_json

SEEN_VIDEOS_FILE = "videos.json"


class SeenState(NamedTuple):
    """Size in bytes and time of change of a video's file."""

    size: int
    mtime_ns: int


@dataclass(frozen=True, kw_only=True)
class SeenVideos:
    """The videos behind the rows of a part, as its runs saw them.

    Args:
        benchmark: name of the benchmark in the rows.
        folder: folder of the videos when they were last seen.
        videos: video -> states of its file, one for each version that its rows were made from, in order.
    """

    benchmark: str
    folder: str
    videos: Mapping[str, tuple[SeenState, ...]] = field(default_factory=dict)

    def changed(self, folder: str, states: Mapping[str, SeenState]) -> list[str]:
        """Return the videos whose file differs from the recorded one, in the order of `states`.

        If `folder` is not the recorded folder, only sizes are compared, because a copy may have another change time.
        """
        last = {video: self.videos[video][-1] for video in states if video in self.videos}
        is_moved = folder != self.folder
        return [
            video
            for video, state in last.items()
            if state.size != states[video].size or not (is_moved or state.mtime_ns == states[video].mtime_ns)
        ]

    def updated(self, folder: str, states: Mapping[str, SeenState], mixed: Collection[str]) -> SeenVideos:
        """Return the record after a start that saw `states`; videos in `mixed` keep rows of earlier states."""
        videos = dict(self.videos)
        for video, state in states.items():
            earlier = videos.get(video, ())
            # If only the change time differs, the file is the same: replace the last state.
            is_same = bool(earlier) and video not in self.changed(folder, {video: state})
            videos[video] = (*(earlier[:-1] if is_same else earlier if video in mixed else ()), state)
        return SeenVideos(benchmark=self.benchmark, folder=folder, videos=videos)


def read_seen_videos(part: Path, benchmark: str = "") -> SeenVideos:
    """Return the record in the folder of a part; without videos if there is none.

    Raises:
        DamagedFile: the record is damaged.
    """
    file = part / SEEN_VIDEOS_FILE
    if not file.is_file():
        return SeenVideos(benchmark=benchmark, folder="")
    document = read_sealed_json(file)
    videos = {name: tuple(SeenState(*state) for state in states) for name, states in document["videos"].items()}
    return SeenVideos(benchmark=document["benchmark"], folder=document["folder"], videos=videos)


def write_seen_videos(part: Path, record: SeenVideos) -> None:
    """Write the record of a part if it has changed; the file is written completely or not at all."""
    if record != read_seen_videos(part, record.benchmark):
        write_sealed_json(part / SEEN_VIDEOS_FILE, asdict(record))
