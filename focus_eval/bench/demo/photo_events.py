"""Builds the demo benchmark on disk, completely or not at all."""

from __future__ import annotations

import errno
import hashlib
import json
import multiprocessing
import os
import shutil
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from focus_eval.bench.demo.photographs import PHOTOGRAPHS
from focus_eval.bench.demo.storyboard import VIDEO_IDS, BoardQuestion, Storyboard, render, storyboards
from focus_eval.core.errors import InvalidInput, RunError, VideoError
from focus_eval.core.files import replace_file
from focus_eval.core.processes import follow_parent

if TYPE_CHECKING:
    from multiprocessing.queues import SimpleQueue

    from PIL import Image

WIDTH, HEIGHT = 320, 180
WORKING_WIDTH = 480
# x264's default of 250 frames between sync frames. One thread, so that the bytes do not depend on the number of cores.
# Without deblocking, CABAC and the search for B-frames and weights, decoding takes a third less time, encoding a
# quarter less.
_FAST = {"tune": "fastdecode", "x264-params": "b-adapt=0:weightp=0"}
ENCODING: dict[str, Any] = {"gop": 250, "crf": 28, "preset": "superfast", "n_threads": 1, "options": _FAST}
RECIPE = 4  # increase whenever a change of the code may change the bytes of a video
BYTES_PER_FRAME = 1000  # generous estimate for the check of free space
FOLDER = Path("datasets/longvideobench")
POSITION_FPS = 24.0  # LongVideoBench's `position` counts frames at this rate, whatever the file's rate
DONE_FILE = "photo_events.json"

Progress = Callable[[str, int, int], None]


def build_photo_events(
    folder: str | Path,
    *,
    video_ids: Sequence[str] | None = None,
    n_workers: int = 2,
    progress: Progress | None = None,
    cache: Path | None = None,
) -> Path:
    """Make the benchmark below `folder`, which then serves as `HF_HOME`; return the data set's folder in it.

    The data set has LongVideoBench's layout and schema: `videos/`, `validation-00000-of-00001.parquet` and
    `lvb_val.json`. A finished video is kept; one that was interrupted is written again, byte for byte the same.

    Args:
        video_ids: videos to make, with their questions; None makes all.
        n_workers: number of videos written at once.
        progress: called as (video id, frames written, frames of the video) from a separate thread.
        cache: folder of finished videos, shared by several `folder`s; None keeps none.

    Raises:
        MissingDependency: the package of a photograph is not installed, or lacks the picture.
            RunError: the disk is full, or the folder cannot be written.
    """
    root = Path(folder) / FOLDER
    boards = storyboards(aspects(), video_ids=video_ids)
    try:
        (root / "videos").mkdir(parents=True, exist_ok=True)
        done_videos = _DoneVideos(root / DONE_FILE)
        todo = [board for board in boards if not done_videos.has(board, _video_path(root, board))]
        _remove_leftovers(root)
        _check_space(root, todo)
        if cache is not None:
            todo = [board for board in todo if not _copy_from(cache, board, _video_path(root, board), done_videos)]
        _write_videos(root, todo, done_videos, n_workers=n_workers, progress=progress or (lambda *step: None))
        if cache is not None:
            for board in todo:
                _copy_to(cache, board, _video_path(root, board))
        _write_annotation(root, boards)
    except OSError as error:
        raise RunError(_write_failure(root, error)) from error
    return root


def frames_to_draw(folder: str | Path, *, cache: Path) -> int:
    """Return how many frames `build_photo_events` would draw for the videos that neither folder nor `cache` holds."""
    root = Path(folder) / FOLDER
    done_videos = _DoneVideos(root / DONE_FILE)
    return sum(
        board.n_frames
        for board in storyboards(aspects())
        if not done_videos.has(board, _video_path(root, board)) and not any(cache.glob(f"{_recipe(board)}-*.mp4"))
    )


def rows_of(board: Storyboard) -> list[dict[str, object]]:
    """Return the questions of one video as rows of LongVideoBench's validation split, evidence and options included."""
    return [_row(board, number, question) for number, question in enumerate(board.questions)]


def _row(board: Storyboard, number: int, question: BoardQuestion) -> dict[str, object]:
    """One question of a video as a row of LongVideoBench's validation split; `number` is part of its id."""
    seconds = board.duration_seconds
    middles = [(start + stop - 1) / 2 / board.fps for start, stop in question.scenes]
    return {
        "video_id": board.video_id,
        "question": question.query,
        "question_wo_referring_query": question.query,
        "topic_category": "photo_events",
        "question_category": question.topic,
        "level": "L1-Perception",
        "id": f"{board.video_id}_{number}",
        "video_path": f"{board.video_id}.mp4",
        "subtitle_path": f"{board.video_id}_en.json",
        "duration_group": 60 if seconds < 180 else 600 if seconds < 900 else 3600,
        "starting_timestamp_for_subtitles": 0,
        "duration": round(seconds, 3),
        "view_count": 0,
        **{f"option{at}": question.choices[at] if at < len(question.choices) else "N/A" for at in range(5)},
        "correct_choice": question.correct,
        "position": [round(float(time * POSITION_FPS)) for time in map(float, middles)],
    }


def _write_videos(
    root: Path, todo: Sequence[Storyboard], done_videos: _DoneVideos, *, n_workers: int, progress: Progress
) -> None:
    """Write the videos of `todo` in `n_workers` processes, longest first; the first failure stops all of them.

    Threads would be slower than processes, since drawing and encoding hold Python's lock for a third of their time.
    """
    if not todo:
        return
    context = multiprocessing.get_context("spawn")
    stop, steps = context.Event(), context.SimpleQueue()
    reporting = threading.Thread(target=_report, args=(steps, progress))
    n_processes = max(1, min(n_workers, len(todo)))
    pool = ProcessPoolExecutor(n_processes, mp_context=context, initializer=_begin, initargs=(stop, steps))
    longest_first = sorted(todo, key=lambda board: -board.n_frames)
    reporting.start()
    try:
        jobs = {pool.submit(_write_video, root, board): board for board in longest_first}
        for job in as_completed(jobs):
            job.result()
            done_videos.add(jobs[job], _video_path(root, jobs[job]))
    finally:
        stop.set()
        pool.shutdown(wait=True, cancel_futures=True)
        steps.put(None)
        reporting.join()


def _report(steps: SimpleQueue[tuple[str, int, int] | None], progress: Progress) -> None:
    """Pass every step that the writing processes send to `progress`, until None."""
    for step in iter(steps.get, None):
        progress(*step)


def _begin(stop: object, steps: object) -> None:
    """Initialise a writing process with the stop event and the queue of progress steps."""
    follow_parent()
    _from_builder.update(stop=stop, steps=steps)


# In a writing process: the stop event and the queue that the building process passed to `_begin`.
_from_builder: dict[str, Any] = {}


def _write_video(root: Path, board: Storyboard) -> None:
    """Draw and encode one video to its file in the data set; leave no file if the builder stops or it fails."""
    from focus_eval.keyframes.video.clip_writer import ClipWriter

    path = _video_path(root, board)
    # The name holds the builder's process id, so that leftovers of a killed build are recognised.
    partial = path.with_name(f".{board.video_id}.{os.getppid()}.mp4")
    pictures = {name: _working_copy(name) for name in {shot.photograph for shot in board.shots}}
    written = 0
    try:
        with ClipWriter(partial, width=WIDTH, height=HEIGHT, fps=board.fps, **ENCODING) as writer:
            for shot in board.shots:
                for planes, n_times in render(shot, pictures[shot.photograph], width=WIDTH, height=HEIGHT):
                    writer.write(planes, n_times=n_times)
                if _from_builder["stop"].is_set():
                    return
                written += shot.n_frames
                _from_builder["steps"].put((board.video_id, written, board.n_frames))
        os.replace(partial, path)
    except VideoError as error:
        raise RunError(_write_failure(path, error)) from error
    finally:
        partial.unlink(missing_ok=True)


def _write_annotation(root: Path, boards: Sequence[Storyboard]) -> None:
    """Write the questions of all videos as the Parquet file and the JSON file of LongVideoBench's layout."""
    import pyarrow
    import pyarrow.parquet

    rows = [row for board in boards for row in rows_of(board)]
    table = root / "validation-00000-of-00001.parquet"
    partial = table.with_name(f".{table.name}.{os.getpid()}")
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), partial)
    os.replace(partial, table)
    options = [f"option{at}" for at in range(5)]
    listed = [
        {
            **{name: value for name, value in row.items() if name not in options},
            "candidates": [row[name] for name in options if row[name] != "N/A"],
        }
        for row in rows
    ]
    _write_text(root / "lvb_val.json", json.dumps(listed, indent=1))


def _copy_from(cache: Path, board: Storyboard, video: Path, done_videos: _DoneVideos) -> bool:
    """Copy the video of `board` out of `cache` and record it; return False if it is missing or damaged there."""
    for path in cache.glob(f"{_recipe(board)}-*.mp4"):
        content = path.read_bytes()
        if path.name == _cached_name(board, content):
            with replace_file(video) as part:
                part.write_bytes(content)
            done_videos.add(board, video)
            return True
    return False


def _copy_to(cache: Path, board: Storyboard, video: Path) -> None:
    """Copy a finished video to `cache`; do nothing if `cache` cannot be written."""
    content = video.read_bytes()
    with suppress(OSError, InvalidInput):
        cache.mkdir(parents=True, exist_ok=True)
        with replace_file(cache / _cached_name(board, content)) as part:
            part.write_bytes(content)


def _cached_name(board: Storyboard, content: bytes) -> str:
    """The name of a video in the cache, which tells its recipe and content."""
    return f"{_recipe(board)}-{hashlib.sha256(content).hexdigest()[:16]}.mp4"


class _DoneVideos:
    """Record of finished videos with a hash of their recipe, so that a video of an older recipe is made again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._entries: dict[str, dict[str, object]] = {}
        if path.exists():
            try:
                self._entries = json.loads(path.read_text())
            except ValueError as error:
                raise InvalidInput(f"{path}: damaged; remove it and start again") from error

    def has(self, board: Storyboard, video: Path) -> bool:
        """Return True if the file `video` is complete and was made from `board` with this recipe."""
        entry = self._entries.get(board.video_id)
        return entry is not None and video.exists() and entry == self._entry(board, video)

    def add(self, board: Storyboard, video: Path) -> None:
        """Record the finished file `video` of `board`, and write the record to disk."""
        with self._lock:
            self._entries[board.video_id] = self._entry(board, video)
            _write_text(self._path, json.dumps(self._entries, indent=1, sort_keys=True))

    @staticmethod
    def _entry(board: Storyboard, video: Path) -> dict[str, object]:
        """A video's entry in the record: the hash of its recipe and the size of its file."""
        return {"recipe": _recipe(board), "bytes": video.stat().st_size}


def _recipe(board: Storyboard) -> str:
    """A hash of all that can change the video's file: board, photographs, encoding and library versions."""
    import av
    import PIL

    pictures = {name: PHOTOGRAPHS[name].digest for name in sorted({shot.photograph for shot in board.shots})}
    parts = [RECIPE, asdict(board), pictures, ENCODING, WIDTH, HEIGHT, WORKING_WIDTH, av.__version__, PIL.__version__]
    return hashlib.sha256(json.dumps(parts, default=str).encode()).hexdigest()[:16]


@cache
def _working_copy(name: str) -> Image.Image:
    """A photograph shrunk to at most `WORKING_WIDTH`: drawing a large one takes five times as long."""
    picture = PHOTOGRAPHS[name].open()
    if picture.width <= WORKING_WIDTH:
        return picture
    return picture.resize((WORKING_WIDTH, round(picture.height * WORKING_WIDTH / picture.width)))


@cache
def aspects() -> dict[str, float]:
    """Return width over height of each photograph."""
    return {name: (picture := photograph.open()).width / picture.height for name, photograph in PHOTOGRAPHS.items()}


def _video_path(root: Path, board: Storyboard) -> Path:
    return root / "videos" / f"{board.video_id}.mp4"


def _remove_leftovers(root: Path) -> None:
    """Remove the unfinished files of killed processes, not those of running ones."""
    for video_id in VIDEO_IDS:
        for partial in (root / "videos").glob(f".{video_id}.*.mp4"):
            if not _is_running(int(partial.name.split(".")[2])):
                partial.unlink(missing_ok=True)


def _is_running(process_id: int) -> bool:
    """True if a process with this id exists, also one of another user."""
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _check_space(root: Path, todo: Sequence[Storyboard]) -> None:
    """Raise RunError if the disk of `root` has less free space than the videos of `todo` take."""
    n_bytes = sum(board.n_frames for board in todo) * BYTES_PER_FRAME
    free = shutil.disk_usage(root).free
    if n_bytes > free:
        raise RunError(
            f"{root}: photo_events needs about {n_bytes / 1e6:.0f} MB, {free / 1e6:.0f} MB are free; "
            "free some space or choose another folder, then start again"
        )


def _write_failure(path: Path, error: BaseException) -> str:
    """The message for an `error` while writing `path`; it says so if any cause of the error is a full disk."""
    cause: BaseException | None = error
    while cause is not None:
        if getattr(cause, "errno", None) == errno.ENOSPC:
            return f"{path}: no space left; free some and start again, finished videos are kept"
        cause = cause.__cause__
    return f"{path}: cannot be written ({error})"


def _write_text(path: Path, text: str) -> None:
    """Write `text` to a temporary file and rename that to `path`, so that `path` is never half written."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_text(text, encoding="utf-8")
    os.replace(partial, path)
