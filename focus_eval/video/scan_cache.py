"""Caches scans of videos, in this process and, with a store, for other processes."""

from __future__ import annotations

import io
import json
import logging
import threading
import zipfile
import zlib
from collections import OrderedDict
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

import av
import numpy as np

from focus_eval.core.types import VideoInfo
from focus_eval.video.frame_index import FrameIndex, Packets
from focus_eval.video.manifest import FileState, check_file, check_length, file_state
from focus_eval.video.reader import checked_file
from focus_eval.video.scan import Orientation, Scan, scan_file

FORMAT = 5  # raised whenever a scan would find something else in the same file
_RECENT_FILES = 64  # an hour of 30 fps takes about 4 MB
_RISING = ("ticks", "decode_ticks", "places")
_BITS = ("is_sync", "is_hidden", "is_corrupt")
_SINGLE = ("lacks_ticks", "goes_back", "end_ticks", "padding")
_ZIP_ERRORS = (zipfile.BadZipFile, zlib.error, NotImplementedError)
_recent: OrderedDict[tuple[Path, FileState], Scan] = OrderedDict()
_lock = threading.Lock()
log = logging.getLogger(__name__)


class KeptScans(Protocol):
    """Store of serialized scans shared between processes, by path and state of the file."""

    def kept_scan(self, path: Path, state: FileState) -> bytes | None:
        """Return the scan kept for the file in this state, as `scan_bytes`; None if there is none."""
        ...

    def keep_scan(self, path: Path, state: FileState, content: bytes) -> None:
        """Replace the file's kept scan by `content`, from `scan_bytes`."""
        ...


def scan_video(path: Path, *, store: KeptScans | None = None) -> Scan:
    """Scan a video file, or return its cached scan, by path, size, time of change and inode.

    Frames after the first are decoded only if the packets do not suffice. If a manifest names the file (`manifest.py`),
    its size, checksum and number of frames are compared, once in a process.

    Args:
        store: looked up for a kept scan, and given a new one; None: cache in this process only.

    Raises:
        VideoError: no file, no video, a header that promises more than the file holds, another file than the manifest
            names, or visible damage; starts with the path.
    """
    state = file_state(checked_file(path))
    with _lock:
        scan = _recent.get((path, state))
    if scan is None:
        check_file(path)
        scan = _stored_scan(path, state, store)
        is_new = scan is None
        scan = scan or scan_file(path)
        log.debug(
            "%s: %d frames, %.4g fps%s", path, scan.info.n_frames, scan.info.fps, "" if is_new else ", remembered"
        )
        check_length(path, scan.info)
        if store is not None and is_new:
            store.keep_scan(path, state, scan_bytes(scan))
    with _lock:
        _recent[path, state] = scan
        _recent.move_to_end((path, state))
        while len(_recent) > _RECENT_FILES:
            _recent.popitem(last=False)
    return scan


def _stored_scan(path: Path, state: FileState, store: KeptScans | None) -> Scan | None:
    """Return the scan in the store for this state of the file; None without a store or a usable scan."""
    content = store.kept_scan(path, state) if store is not None else None
    return scan_from_bytes(content) if content is not None else None


def scan_bytes(scan: Scan) -> bytes:
    """Return a scan as arrays in NumPy's `npz` format: differences of times and places, facts as JSON."""
    packets = scan.index.packets if scan.index else None
    facts: dict[str, Any] = {
        "writer": writer_version(),
        "n_frames": scan.info.n_frames,
        "fps": scan.info.fps,
        "time_base": scan.time_base,
        "stored_size": scan.stored_size,
        "orientation": asdict(scan.orientation),
        "notes": scan.notes,
    }
    arrays: dict[str, Any] = {}
    if scan.index is not None and packets is not None:
        facts["first_ticks"] = int(scan.index.frame_ticks[0])
        facts["packets"] = {name: getattr(packets, name) for name in _SINGLE}
        arrays = {name: np.diff(getattr(packets, name), prepend=0) for name in _RISING}
        arrays["sizes"] = packets.sizes
        arrays |= {name: np.packbits(getattr(packets, name)) for name in _BITS}
    elif scan.frame_ticks is not None:
        arrays["frame_ticks"] = np.diff(scan.frame_ticks, prepend=0)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, facts=np.frombuffer(json.dumps(facts).encode(), dtype=np.uint8), **arrays)
    return buffer.getvalue()


def scan_from_bytes(content: bytes) -> Scan | None:
    """Return the scan that `scan_bytes` wrote; None if another version wrote it, or a byte of it changed."""
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            facts = json.loads(arrays["facts"].tobytes())
            if facts["writer"] != writer_version():
                return None
            index = _index(facts, arrays) if "packets" in facts else None
            counted_ticks = np.cumsum(arrays["frame_ticks"]) if "frame_ticks" in arrays else None
    except (ValueError, KeyError, TypeError, EOFError, OSError, MemoryError, OverflowError, *_ZIP_ERRORS):
        return None
    return Scan(
        info=VideoInfo(facts["n_frames"], facts["fps"], sync_frames=index.sync_frame if index else None),
        index=index,
        frame_ticks=index.frame_ticks if index else counted_ticks,
        time_base=facts["time_base"],
        stored_size=tuple(facts["stored_size"]),
        orientation=Orientation(**facts["orientation"]),
        notes=tuple(facts["notes"]),
    )


def _index(facts: dict[str, Any], arrays: Any) -> FrameIndex:
    """Return the frame index from stored arrays; raise ValueError if they do not order the frames."""
    sizes = arrays["sizes"]
    fields: dict[str, Any] = {name: np.cumsum(arrays[name]) for name in _RISING}
    fields |= {name: np.unpackbits(arrays[name], count=sizes.size).astype(bool) for name in _BITS}
    index = FrameIndex.build(Packets(sizes=sizes, **fields, **facts["packets"]), first_ticks=facts["first_ticks"])
    if index is None or index.frame_packet.size != facts["n_frames"]:
        raise ValueError("the packets do not order the frames")
    return index


def writer_version() -> str:
    """Return the versions of the scan format, PyAV and FFmpeg; a scan by other versions is not reused."""
    versions = av.library_versions
    return f"{FORMAT} {av.__version__} {versions['libavformat']} {versions['libavcodec']}"
