"""Gives the page its frames as small pictures, in the page or in a folder beside it."""

from __future__ import annotations

import base64
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

import numpy as np

from focus_eval.core.errors import InvalidInput, VideoError
from focus_eval.core.processes import n_cores
from focus_eval.keyframes.rows.records import SelectionRow

# Function from a video and its frames to one image per frame: JPEG bytes to embed, or a path relative to the page.
Thumbnails = Callable[[str, Sequence[int]], Mapping[int, "bytes | str"]]
ReadThumbnails = Callable[..., Iterable[tuple[int, bytes]]]
# Heights in pixels. Linked pictures may be larger, since they add nothing to the size of the page.
EMBEDDED_HEIGHT, LINKED_HEIGHT = 90, 180
# Assumed bytes of a picture until the mean of made pictures is known.
_ASSUMED_PICTURE_BYTES = 5_000


class Pictures:
    """The thumbnails of a page's questions, each of which may use its share of the remaining bytes.

    Args:
        make: function that makes the pictures; None for a page without pictures.
        budget_bytes: limit of the bytes of all pictures in the page; None if the pictures are linked.
        n_questions: number of questions that will be added.
    """

    def __init__(self, make: Thumbnails | None, *, budget_bytes: int | None, n_questions: int) -> None:
        self.taken: dict[int, dict[str, str]] = {}
        self._make = make
        self._is_limited = budget_bytes is not None
        self._left_bytes = 10**12 if budget_bytes is None else budget_bytes
        self._left_questions = n_questions
        self._made = [0, 0]  # number of pictures so far, and their bytes

    def make_ahead(self, questions: Iterable[Sequence[SelectionRow]]) -> None:
        """Make the pictures of all questions in one pass per video, unless the limit of bytes leaves pictures out."""
        if self._make is None or self._is_limited:
            return
        frames_of: dict[str, set[int]] = {}
        for rows in questions:
            if rows:
                frames_of.setdefault(rows[0].video, set()).update(telling_frames(rows))
        with ThreadPoolExecutor(n_cores()) as pool:
            for _ in pool.map(self._make, frames_of, map(sorted, frames_of.values())):
                pass

    def add(self, number: int, rows: Sequence[SelectionRow]) -> None:
        """Add the pictures of question `number`, the most telling ones first, up to its share of bytes."""
        share = self._left_bytes // max(1, self._left_questions)
        self._left_questions -= 1
        if self._make is None or not rows:
            return
        count, size = self._made
        max_pictures = max(1, share // max(1, size // count if count else _ASSUMED_PICTURE_BYTES))
        pictures: dict[str, str] = {}
        images = self._make(rows[0].video, list(itertools.islice(telling_frames(rows), max_pictures)))
        for frame, image in images.items():
            text = image if isinstance(image, str) else "data:image/jpeg;base64," + base64.b64encode(image).decode()
            self._made = [self._made[0] + 1, self._made[1] + len(text)]
            if len(text) <= self._left_bytes:
                pictures[str(frame)] = text
                self._left_bytes -= len(text)
        if pictures:
            self.taken[number] = pictures


def evidence_frames(rows: Sequence[SelectionRow]) -> list[int]:
    """Return the frame of the video at each annotated moment of one question; [] if the video's rate is unknown.

    Uses the file's own frame times if a row has them, else the mean rate.
    """
    row = next((row for row in rows if row.frame_seconds is not None), rows[0])
    if row.info is None:
        return []
    if row.frame_seconds:
        frames, seconds = np.array(row.frame_seconds).T
        return [int(frames[np.abs(seconds - time).argmin()]) for time in row.evidence_seconds]
    return [min(row.info.n_frames - 1, max(0, round(time * row.info.fps))) for time in row.evidence_seconds]


def telling_frames(rows: Sequence[SelectionRow]) -> Iterator[int]:
    """Yield the distinct frames of one question's selections, the most informative first.

    First come frames of the evidence, then each selection's keyframe nearest to the evidence, then the remaining
    keyframes of the selections in turn, spread over the video.
    """
    yielded: set[int] = set()
    evidence = evidence_frames(rows)
    nearest = [min(row.keyframes, key=lambda f: abs(f - at)) for at in evidence for row in rows if row.keyframes]
    turns = itertools.zip_longest(*(_spread(row.keyframes or []) for row in rows))
    for frame in itertools.chain(evidence, nearest, itertools.chain.from_iterable(turns)):
        if frame is not None and frame not in yielded:
            yielded.add(frame)
            yield frame


def _spread(frames: Sequence[int]) -> list[int]:
    """`frames` in an order (bit-reversed indices) whose first n frames are spread evenly, for every n."""
    bits = max(1, (len(frames) - 1).bit_length())
    order = sorted(range(len(frames)), key=lambda i: int(f"{i:0{bits}b}"[::-1], 2))
    return list(np.asarray(frames, dtype=int)[order].tolist()) if order else []


def thumbnail_maker(videos: Path, page: Path | None, *, read: ReadThumbnails, failures: dict[str, str]) -> Thumbnails:
    """Return a function from a video's frames to small JPEGs, or to links beside `page`.

    Args:
        videos: folder to which the rows' video paths are relative.
        page: path of the page that links its pictures; None embeds the pictures.
        read: yields frames of a video file as JPEGs of the given height: `read(path, frames, height=90)`.
        failures: video -> first reason why a frame has no picture; filled by the returned function.

    Raises:
        InvalidInput: no such folder.
    """
    if not videos.is_dir():
        raise InvalidInput(
            f"{videos}: no such folder; --videos must be the folder that the rows' video paths are relative to"
        )
    images: dict[tuple[str, int], bytes | str] = {}
    height = EMBEDDED_HEIGHT if page is None else LINKED_HEIGHT

    def keep(video: str, frames: Sequence[int]) -> None:
        """Read frames of a video and keep their images, or links to the written files."""
        for frame, image in read(videos / video, frames, height=height):
            images[video, frame] = image if page is None else _linked(image, page, video, frame)

    def make(video: str, frames: Sequence[int]) -> Mapping[int, bytes | str]:
        """Return the image or link of each frame that can be read; the video's first error is noted in `failures`."""
        missing = sorted({frame for frame in frames if (video, frame) not in images})
        try:
            keep(video, missing)
        except VideoError as error:
            failures.setdefault(video, str(error))
            # The error ended the pass over the video, so try the remaining frames one by one.
            for frame in missing:
                if (video, frame) not in images:
                    with suppress(VideoError):
                        keep(video, [frame])
        return {frame: images[video, frame] for frame in frames if (video, frame) in images}

    return make


def _linked(image: bytes, page: Path, video: str, frame: int) -> str:
    """Write an image into the folder of thumbnails beside the page; return its address for a link."""
    name = f"{video.replace('/', '_')}-{frame}.jpg"
    folder = page.with_name(f"{page.stem}_thumbnails")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(image)
    return quote(f"{folder.name}/{name}")
