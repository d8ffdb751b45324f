"""Gives the page its keyframes as small pictures, in the page or in a folder beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

from focus_eval.errors import InvalidInput
from focus_eval.report.page.question_browser import Thumbnails
from focus_eval.rows.records import SelectionRow

ReadThumbnails = Callable[[Path, list[int]], Iterable[tuple[int, bytes]]]


def thumbnail_maker(videos: Path, page: Path | None, *, read: ReadThumbnails) -> Thumbnails:
    """Return a function from a question's selections to their keyframes as small JPEGs, or as links beside `page`.

    Args:
        videos: the folder that the rows' video paths start from.
        page: the page that links its pictures; None embeds them.
        read: yields frames of a video file as JPEGs.

    Raises:
        InvalidInput: no such folder.
    """
    if not videos.is_dir():
        raise InvalidInput(f"{videos}: no such folder; --videos is the folder that the rows' video paths start from")
    known: dict[tuple[str, int], bytes | str] = {}

    def make(rows: Sequence[SelectionRow]) -> Mapping[int, bytes | str]:
        video = rows[0].video
        frames = sorted({frame for row in rows for frame in row.keyframes})
        missing = [frame for frame in frames if (video, frame) not in known]
        for frame, image in read(videos / video, missing):
            known[video, frame] = image if page is None else _linked(image, page, video, frame)
        return {frame: known[video, frame] for frame in frames}

    return make


def _linked(image: bytes, page: Path, video: str, frame: int) -> str:
    name = f"{video.replace('/', '_')}-{frame}.jpg"
    folder = page.with_name(f"{page.stem}_thumbnails")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(image)
    return quote(f"{folder.name}/{name}")
