"""Decodes each video of a folder once and records which of its frames are whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

from focus_eval.core.errors import VideoError
from focus_eval.video.manifest import FileState, ManifestEntry, content_hash, entry_of, file_state, name_in
from focus_eval.video.manifest_writer import index_folder, video_files, write_json
from focus_eval.video.pyav import PyAVReader
from focus_eval.video.scan import scan_file
from focus_eval.video.scan_cache import writer_version
from focus_eval.video.verdicts import VERDICTS_NAME, VERDICTS_VERSION, VideoVerdict, read_verdicts


def verify_folder(
    folder: Path, *, n_jobs: int = 1, progress: Callable[[Path], None] = lambda path: None
) -> dict[str, VideoVerdict]:
    """Decode every video under `folder` not verified yet, write the verdicts, and return all by path in `folder`.

    Videos that no manifest names are indexed first. A video whose content differs from its manifest's is compared with
    an earlier verification, group by group of pictures.

    Args:
        n_jobs: number of videos decoded at a time, each by one thread.
        progress: called with each path before it is decoded.

    Raises:
        InvalidInput: no such folder, or no video in it.
    """
    index_folder(folder, only_new=True, progress=progress)

    def verify(path: Path) -> tuple[Path, FileState, str, VideoVerdict]:
        """Return path, state, SHA-256 and verdict of one video; it is decoded only if no current verdict is kept."""
        (manifest, entry), state = _entry(path), file_state(path)
        verdicts, digest = read_verdicts(manifest.parent).videos, content_hash(path)
        verdict = verdicts.get(digest)
        if verdict is None or verdict.writer != writer_version():
            progress(path)
            verdict = verify_file(path)
            if digest != entry.sha256:
                verdict = _compare(verdict, verdicts.get(entry.sha256))
        return path, state, digest, verdict

    results: dict[str, VideoVerdict] = {}
    with ThreadPoolExecutor(n_jobs, thread_name_prefix="verify") as pool:
        # Kept after each video: a run that is stopped goes on where it was.
        for path, state, digest, verdict in pool.map(verify, video_files(folder)):
            results[path.relative_to(folder).as_posix()] = verdict
            _keep(path, state, digest, verdict)
    return results


def _entry(path: Path) -> tuple[Path, ManifestEntry]:
    """Return (manifest path, entry) of a video; raise VideoError if no manifest names it any more."""
    entry = entry_of(path)
    if entry is None:
        raise VideoError(f"{path}: no manifest names it any more; was it changed while its folder was verified?")
    return entry


def _keep(path: Path, state: FileState, digest: str, verdict: VideoVerdict) -> None:
    """Write a video's verdict and state into the file of verdicts beside its manifest, unless they are there."""
    manifest, entry = _entry(path)
    kept, name = read_verdicts(manifest.parent), name_in(manifest.parent, path)
    states = dict(kept.states)
    states.pop(name, None)
    if digest == entry.sha256:
        states[name] = (state.size, state.mtime_ns)
    if kept.videos.get(digest) != verdict or states != kept.states:
        videos = {key: asdict(value) for key, value in {**kept.videos, digest: verdict}.items()}
        content = {"version": VERDICTS_VERSION, "videos": videos, "states": states}
        write_json(manifest.parent / VERDICTS_NAME, content)


def verify_file(path: Path) -> VideoVerdict:
    """Decode every frame of a file once, in this thread; an unreadable file gives a verdict with `error`."""
    try:
        with PyAVReader(path, n_threads=1, scan=scan_file(path)) as reader:
            # Opening decoded a file without an index, and refused it where it is damaged.
            damaged, groups = _merge(reader.damaged_ranges()), tuple(reader.groups())
            return VideoVerdict(reader.info.n_frames, damaged, groups, writer=writer_version())
    except VideoError as error:
        return VideoVerdict(0, error=str(error).removeprefix(f"{path}: "), writer=writer_version())


def _compare(verdict: VideoVerdict, earlier: VideoVerdict | None) -> VideoVerdict:
    """Return a changed file's verdict, with groups damaged whose packets differ from those in `earlier`."""
    if verdict.error:
        return verdict
    ranges = [group[:2] for group in verdict.groups]
    if earlier is None or ranges != [group[:2] for group in earlier.groups]:
        return VideoVerdict(0, error="its content is not what its manifest was written for", writer=verdict.writer)
    groups_of_both = zip(verdict.groups, earlier.groups, strict=True)
    changed = [group[:2] for group, earlier_group in groups_of_both if group != earlier_group]
    return VideoVerdict(verdict.frames, _merge([*verdict.damaged, *changed]), verdict.groups, writer=verdict.writer)


def _merge(ranges: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Return the half-open ranges, ascending, those that touch or overlap joined."""
    merged: list[tuple[int, int]] = []
    for start, stop in sorted(ranges):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(stop, merged[-1][1])
        else:
            merged.append((start, stop))
    return tuple(merged)
