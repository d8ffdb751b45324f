"""Records the videos of a folder: indexes them in its manifest, and verifies which of their frames are whole."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from queue import SimpleQueue

from focus_eval.core.errors import InvalidInput, VideoError
from focus_eval.core.processes import DisposableProcess, ProcessDied
from focus_eval.core.types import VideoInfo
from focus_eval.keyframes.video.doubts import doubts_about
from focus_eval.keyframes.video.manifest import (
    CRASHES,
    MANIFEST_NAME,
    MANIFEST_VERSION,
    VERDICTS_NAME,
    VERDICTS_VERSION,
    FileState,
    ManifestEntry,
    VideoVerdict,
    content_hash,
    entry_of,
    file_state,
    name_in,
    read_manifest,
    read_verdicts,
)
from focus_eval.keyframes.video.pyav import PyAVReader
from focus_eval.keyframes.video.scan import scan_file, scan_video, writer_version

SUFFIXES = frozenset(
    {".mp4", ".m4v", ".mov", ".mkv", ".webm", ".avi", ".ts", ".m2ts", ".mts", ".mpg", ".mpeg", ".vob", ".flv", ".wmv"}
    | {".asf", ".ogv", ".ogg", ".3gp", ".mxf", ".gif", ".nut"}
)

_manifest_lock = threading.Lock()


def is_video_name(path: Path) -> bool:
    """Return True for a suffix in `SUFFIXES`; False for a hidden file: macOS puts a `._NAME` beside each video."""
    return path.suffix.lower() in SUFFIXES and not path.name.startswith(".")


def index_folder(
    folder: Path, *, only_new: bool = False, progress: Callable[[Path], None] = lambda path: None
) -> dict[str, ManifestEntry]:
    """Read the videos under `folder`, write the manifest there, and return their entries by path in the folder.

    An existing manifest is replaced, unless `only_new`. If `folder` is one video, only its entry is replaced, in the
    manifest of its `manifest_folder`.

    Args:
        folder: a folder, or the file of one video.
        only_new: read only videos that no manifest names, and add their entries.
        progress: called with each path before it is read.

    Raises:
        InvalidInput: no such folder, or no video in it.
    """
    paths = list(video_files(folder))
    if not paths:
        raise InvalidInput(f"{folder}: no videos in it ({', '.join(sorted(SUFFIXES))})")
    root, keeps_others = manifest_folder(folder), only_new or folder.is_file()
    entries = {}
    with DisposableProcess() as process:
        for path in paths:
            if not (only_new and entry_of(path)):
                progress(path)
                entries[Path(os.path.relpath(path, root)).as_posix()] = _new_entry(path, process)
    if entries:
        _write_manifest(root, {**(read_manifest(root) if keeps_others else {}), **entries})
    return entries


def manifest_folder(path: Path) -> Path:
    """Return the folder whose manifest has the videos of `path`.

    For a folder, this is `path` itself. For a file, it is the folder of the manifest that names the file, or without
    such a manifest the folder that holds the file.
    """
    if not path.is_file():
        return path
    match = entry_of(path)
    folder = match[0].parent if match else path.parent
    # Prefer the folder as the user wrote it, for messages.
    return next((parent for parent in path.parents if Path(os.path.abspath(parent)) == folder), folder)


def note_first_sight(folder: Path, path: Path, *, sha256: str) -> bool:
    """Add a video that no manifest names to `folder`'s manifest, so that a later change of it is noticed.

    If two processes write at once, the entry of one may be lost; the next run then adds it again.

    Returns:
        True if a manifest names the video now; False if `folder` does not hold it or cannot be written to.
    """
    if entry_of(path):
        return True
    folder, path = folder.resolve(), path.resolve()
    if folder not in path.parents or not os.access(folder, os.W_OK):
        return False
    scan, state = scan_video(path), file_state(path)
    info = scan.info
    entry = ManifestEntry(
        state.size, sha256, info.n_frames, info.fps, info.duration_seconds, notes=scan.notes, mtime_ns=state.mtime_ns
    )
    with _manifest_lock:
        _write_manifest(folder, {**read_manifest(folder), path.relative_to(folder).as_posix(): entry})
    return True


def forget_first_sight(path: Path) -> None:
    """Remove the entry that a run added when it first saw a video; an entry of `videos index` stays."""
    with _manifest_lock:
        match = entry_of(path)
        if match is not None and match[1].mtime_ns:
            folder = match[0].parent
            entries = read_manifest(folder)
            _write_manifest(folder, {name: entry for name, entry in entries.items() if name != name_in(folder, path)})


def _write_manifest(folder: Path, entries: Mapping[str, ManifestEntry]) -> None:
    """Write the folder's manifest."""
    videos = {name: asdict(entry) for name, entry in entries.items()}
    _write_json(folder / MANIFEST_NAME, {"version": MANIFEST_VERSION, "videos": videos}, indent=1)


def _write_json(path: Path, content: dict[str, object], *, indent: int | None = None) -> None:
    """Write a JSON file atomically: readers find the old content or all of the new."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    # A name that is not UTF-8 is written as JSON's escapes, so that it is found again.
    text = json.dumps(content, indent=indent, ensure_ascii=False) + "\n"
    partial.write_text(text, encoding="utf-8", errors="backslashreplace")
    os.replace(partial, path)


def video_files(folder: Path) -> Iterator[Path]:
    """Yield the files under `folder` with a video's suffix, sorted; if `folder` is a file, only this file.

    Raises:
        InvalidInput: neither a folder nor a file.
    """
    if folder.is_file():
        yield folder
        return
    if not folder.is_dir():
        raise InvalidInput(f"{folder}: no such folder or file")
    yield from sorted(path for path in folder.rglob("*") if is_video_name(path) and path.is_file())


def _new_entry(path: Path, process: DisposableProcess) -> ManifestEntry:
    """A video's entry: size, checksum, length and rate, or why the video cannot be read."""
    size, digest = path.stat().st_size, content_hash(path)
    try:
        info, notes = process.call(_length_and_notes, path)
    except VideoError as error:
        return ManifestEntry(size, digest, 0, 0.0, 0.0, str(error).removeprefix(f"{path}: "))
    except ProcessDied as death:
        return ManifestEntry(size, digest, 0, 0.0, 0.0, _crash_error(death))
    return ManifestEntry(size, digest, info.n_frames, info.fps, info.duration_seconds, notes=notes)


def _length_and_notes(path: Path) -> tuple[VideoInfo, tuple[str, ...]]:
    scan = scan_file(path)
    return scan.info, scan.notes


def _crash_error(death: ProcessDied) -> str:
    return f"{CRASHES} (signal {death.signal_number}); re-encode it, or download it again"


def verify_folder(
    folder: Path,
    *,
    n_jobs: int = 1,
    progress: Callable[[Path], None] = lambda path: None,
    on_frames: Callable[[int, int], None] = lambda n_done, n_total: None,
) -> dict[str, VideoVerdict]:
    """Decode every video under `folder` not verified yet, write the verdicts, and return all by path in `folder`.

    Videos that no manifest names are indexed first. A video whose content differs from its manifest's is compared with
    an earlier verification, group by group of pictures.

    Args:
        folder: a folder, or the file of one video; the returned paths are then those in its `manifest_folder`.
        n_jobs: number of videos decoded at a time, each by one thread.
        progress: called with each path before it is decoded.
        on_frames: called with (frames decoded so far, frames to decode in all).

    Raises:
        InvalidInput: no such folder, or no video in it.
    """
    index_folder(folder, only_new=True, progress=progress)
    paths = list(video_files(folder))
    count = _FrameCount(sum(_named_entry(path)[1].frames for path in paths), on_frames)
    idle: SimpleQueue[DisposableProcess] = SimpleQueue()

    def verify(path: Path) -> tuple[Path, FileState, str, VideoVerdict]:
        """Return path, state, SHA-256 and verdict of one video; it is decoded only if no current verdict is kept."""
        (manifest, entry), state = _named_entry(path), file_state(path)
        verdicts, digest = read_verdicts(manifest.parent).videos, content_hash(path)
        verdict = verdicts.get(digest)
        if verdict is None or verdict.writer != writer_version():
            progress(path)
            process = idle.get()
            try:
                with count.video(entry.frames) as decoded:
                    verdict = _verify_apart(path, process, progress=decoded)
            finally:
                idle.put(process)
            if digest != entry.sha256:
                verdict = _compare(verdict, verdicts.get(entry.sha256))
        else:
            count.leave_out(entry.frames)
        return path, state, digest, verdict

    root, results = manifest_folder(folder), dict[str, VideoVerdict]()
    with ExitStack() as processes, ThreadPoolExecutor(n_jobs, thread_name_prefix="verify") as pool:
        for _ in range(n_jobs):
            idle.put(processes.enter_context(DisposableProcess()))
        # Save after each video, so that a stopped run continues there.
        for path, state, digest, verdict in pool.map(verify, paths):
            results[Path(os.path.relpath(path, root)).as_posix()] = verdict
            _keep_verdict(path, state, digest, verdict)
    return results


class _FrameCount:
    """Counts the frames that are decoded of `n_total`; safe for threads."""

    def __init__(self, n_total: int, report: Callable[[int, int], None]) -> None:
        self._n_done, self._n_total, self._report = 0, n_total, report
        self._lock = threading.Lock()

    @contextmanager
    def video(self, n_frames: int) -> Iterator[Callable[[int], None]]:
        """Yield a function that counts decoded frames of a video; at the end, count the frames not reported."""
        n_left = n_frames

        def decoded(n: int) -> None:
            nonlocal n_left
            n_left -= n
            self._add(n, 0)

        yield decoded
        self._add(n_left, 0)  # of a damaged file, or of one decoded at opening

    def leave_out(self, n_frames: int) -> None:
        """Subtract the frames of a video that need not be decoded from the total."""
        self._add(0, -n_frames)

    def _add(self, n_done: int, n_total: int) -> None:
        with self._lock:
            self._n_done, self._n_total = self._n_done + n_done, self._n_total + n_total
            self._report(self._n_done, self._n_total)


def _named_entry(path: Path) -> tuple[Path, ManifestEntry]:
    """(manifest path, entry) of a video; raises VideoError if no manifest names it any more."""
    entry = entry_of(path)
    if entry is None:
        raise VideoError(f"{path}: no manifest names it any more; was it changed while its folder was verified?")
    return entry


def _keep_verdict(path: Path, state: FileState, digest: str, verdict: VideoVerdict) -> None:
    """Write a video's verdict and state into the file of verdicts beside its manifest, unless they are there."""
    manifest, entry = _named_entry(path)
    kept, name = read_verdicts(manifest.parent), name_in(manifest.parent, path)
    states = dict(kept.states)
    states.pop(name, None)
    if digest == entry.sha256:
        states[name] = (state.size, state.mtime_ns)
    if kept.videos.get(digest) != verdict or states != kept.states:
        videos = {key: asdict(value) for key, value in {**kept.videos, digest: verdict}.items()}
        content = {"version": VERDICTS_VERSION, "videos": videos, "states": states}
        _write_json(manifest.parent / VERDICTS_NAME, content)


def verify_file(path: Path, *, progress: Callable[[int], None] = lambda n_frames: None) -> VideoVerdict:
    """Decode every frame of a file once, in this thread; an unreadable file gives a verdict with `error`.

    `progress` is called with numbers of further frames decoded.
    """
    try:
        with PyAVReader(path, n_threads=1, scan=scan_file(path)) as reader:
            # A file without an index was decoded at opening, which refuses damage.
            damaged, groups = _merge(reader.damaged_ranges(progress=progress)), tuple(reader.groups())
            notes = (*reader.notes, *doubts_about(path))
            return VideoVerdict(reader.info.n_frames, damaged, groups, writer=writer_version(), notes=notes)
    except VideoError as error:
        return VideoVerdict(0, error=str(error).removeprefix(f"{path}: "), writer=writer_version())


def _verify_apart(path: Path, process: DisposableProcess, *, progress: Callable[[int], None]) -> VideoVerdict:
    """The verdict of `verify_file`, run in `process`, since a damaged file may crash it."""
    try:
        verdict: VideoVerdict = process.call(verify_file, path, progress=progress)
        return verdict
    except ProcessDied as death:
        return VideoVerdict(0, error=_crash_error(death), writer=writer_version())


def _compare(verdict: VideoVerdict, earlier: VideoVerdict | None) -> VideoVerdict:
    """A changed file's verdict; groups whose packets differ from those in `earlier` are added as damaged."""
    if verdict.error:
        return verdict
    ranges = [group[:2] for group in verdict.groups]
    if earlier is None or ranges != [group[:2] for group in earlier.groups]:
        return VideoVerdict(0, error="its content is not what its manifest was written for", writer=verdict.writer)
    groups_of_both = zip(verdict.groups, earlier.groups, strict=True)
    changed = [group[:2] for group, earlier_group in groups_of_both if group != earlier_group]
    return replace(verdict, damaged=_merge([*verdict.damaged, *changed]))


def _merge(ranges: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """The half-open ranges in ascending order; ranges that touch or overlap are joined."""
    merged: list[tuple[int, int]] = []
    for start, stop in sorted(ranges):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(stop, merged[-1][1])
        else:
            merged.append((start, stop))
    return tuple(merged)
