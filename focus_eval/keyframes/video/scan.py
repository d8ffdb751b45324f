"""Scans a video file for the number, times and packets of its frames; keeps scans in memory and in a store."""

from __future__ import annotations

import io
import itertools
import json
import logging
import threading
import zipfile
import zlib
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import av
import numpy as np
from av.sidedata.sidedata import Type as SideDataType

from focus_eval.core.errors import VideoError
from focus_eval.core.types import FloatArray, IntArray, Pixels, VideoInfo
from focus_eval.keyframes.video.colour import Appearance
from focus_eval.keyframes.video.decoder import Decoder, LoggedErrors
from focus_eval.keyframes.video.encryption import is_encrypted
from focus_eval.keyframes.video.integrity import check_whole
from focus_eval.keyframes.video.manifest import (
    CRASHES,
    FileState,
    check_file,
    check_length,
    checked_file,
    file_state,
    verdict_on,
)
from focus_eval.keyframes.video.packets import FrameIndex, Packets, average_rate, demux_packets, leads_first_frame

if TYPE_CHECKING:
    from av import VideoFrame


_FIXED_POINT_ONE = 1 << 16  # the display matrix holds 16.16 fixed-point numbers
_TOLERANCE = 0.01


def _unnamed_side_data(kinds: type[SideDataType], value: object) -> object:
    """A member of PyAV's enumeration of side data for a kind that it lacks."""
    member: Any = object.__new__(kinds)
    member._name_, member._value_ = f"UNNAMED_{value}", value
    return member


# Name the kinds of side data that PyAV has no name for (views of MV-HEVC, enhancement by LCEVC): it would refuse the
# frame.
SideDataType._missing_ = classmethod(_unnamed_side_data)  # type: ignore[method-assign, assignment]


@dataclass(frozen=True)
class Orientation:
    """A quarter turn or a flip: rows and columns are swapped first, then each axis may be reversed."""

    swaps_axes: bool = False
    reverses_rows: bool = False
    reverses_columns: bool = False

    @classmethod
    def of_matrix(cls, matrix: bytes) -> Orientation | None:
        """Return the orientation of a display matrix (ISO 14496-12, 8.3.2), None if it is no quarter turn or flip.

        The matrix takes the point (x, y) of the stored picture to `(a x + c y, b x + d y)`, y pointing down.
        """
        a, b, _, c, d = np.frombuffer(matrix, dtype=np.int32)[:5] / _FIXED_POINT_ONE
        if max(abs(value - round(value)) for value in (a, b, c, d)) > _TOLERANCE:
            return None
        a, b, c, d = round(a), round(b), round(c), round(d)
        if abs(a) == abs(d) == 1 and b == c == 0:
            return cls(False, reverses_rows=d < 0, reverses_columns=a < 0)
        if abs(b) == abs(c) == 1 and a == d == 0:
            return cls(True, reverses_rows=b < 0, reverses_columns=c < 0)
        return None

    @classmethod
    def of_frame(cls, path: Path, frame: VideoFrame) -> Orientation:
        """Return the orientation that a decoded frame of `path` states.

        Raises:
            VideoError: the file states a turn that is not a multiple of 90 degrees.
        """
        # A phone's file may state its orientation twice, for the track and within the pictures. Use the track's matrix,
        # which comes first, as FFmpeg's command line did in the versions that were tried; PyAV's access by name gives
        # the last matrix. Read the data by number, since iterating gives their kinds from PyAV 19 on.
        container: Any = frame.side_data
        side_data = [container[number] for number in range(len(container))]
        matrix = next((data for data in side_data if data.type.name == "DISPLAYMATRIX"), None)
        if matrix is None:
            return cls()
        orientation = cls.of_matrix(bytes(matrix))
        if orientation is None:
            raise VideoError(f"{path}: turned by an angle that is not a multiple of 90 degrees; re-encode it upright")
        return orientation

    @property
    def is_mirrored(self) -> bool:
        """True if no turn alone shows the picture upright, as with some front cameras."""
        return self.swaps_axes ^ self.reverses_rows ^ self.reverses_columns

    def size(self, width: int, height: int) -> tuple[int, int]:
        """Return (width, height) as shown of a picture stored as `width` x `height`."""
        return (height, width) if self.swaps_axes else (width, height)

    def apply(self, pixels: Pixels) -> Pixels:
        """Return `pixels` `(height, width, 3)` as shown; contiguous."""
        if self.swaps_axes:
            pixels = pixels.transpose(1, 0, 2)
        pixels = pixels[:: -1 if self.reverses_rows else 1, :: -1 if self.reverses_columns else 1]
        return np.ascontiguousarray(pixels)


# Containers whose structure shows missing packets. In any other container, opening the file decodes every frame.
_TRUSTED_FORMATS = frozenset({"mov", "matroska", "mpegts"})
_UNTRUSTED = (
    "its container ({}) says little of missing pictures, so all were decoded once to verify it; "
    "ffmpeg -i '{}' -c copy '{}.mkv' puts them into one that opens at once"
)
_NEVER = 1 << 62
# Frames decoded to test whether timestamps give the frames' order, if the packets do not show it.
_N_HEAD = 32
# Largest size of an MPEG-4 packet that only states that its picture is not coded.
_MAX_BYTES_WITHOUT_PICTURE = 8


@dataclass(frozen=True)
class Scan:
    """Length, rate, frame index and orientation of a video file.

    Args:
        index: None if frames can only be counted; `info.sync_frames` is then None.
        frame_ticks: `(n_frames,)` presentation time of each frame, ascending; None if the file states none.
        time_base: seconds per tick.
        stored_size: (width, height) as coded, before the orientation.
        notes: harmless peculiarities of the file.
        appearance: how the stored pixels are to be shown.
    """

    info: VideoInfo
    index: FrameIndex | None
    frame_ticks: IntArray | None
    time_base: float
    stored_size: tuple[int, int]
    orientation: Orientation
    notes: tuple[str, ...] = ()
    appearance: Appearance = field(default_factory=Appearance)

    @property
    def size(self) -> tuple[int, int]:
        """(width, height) as shown."""
        return self.orientation.size(*self.stored_size)

    def frame_times(self, frames: IntArray) -> FloatArray:
        """Return times in seconds since the first frame, shape `(n,)`; `frames / fps` if the file states none."""
        if self.frame_ticks is None:
            return frames / self.info.fps
        times: FloatArray = (self.frame_ticks[frames] - self.frame_ticks[0]) * self.time_base
        return times


def scan_file(path: Path) -> Scan:
    """Scan a video file without cache or manifest, see `scan_video`; raise VideoError if it is damaged."""
    checked_file(path)
    try:
        return _scan(path)
    except VideoError as error:
        if is_encrypted(path):
            raise VideoError(f"{path}: encrypted; name a decrypted copy") from error
        raise


def _scan(path: Path) -> Scan:
    with LoggedErrors() as errors_of_opening:
        decoder = Decoder(path)
    with closing(decoder):
        with LoggedErrors() as errors_of_demuxing:
            packets = demux_packets(path, decoder.container, decoder.stream)
        notes = check_whole(path, decoder, packets, logged=[*errors_of_opening, *errors_of_demuxing])
        first = _first_frame(decoder, packets)
        index = _trusted_index(decoder, packets, first)
        packets = index.packets if index is not None else packets
        is_trusted = bool(_TRUSTED_FORMATS.intersection(decoder.container.format.name.split(",")))
        if not is_trusted:
            notes.append(_UNTRUSTED.format(decoder.container.format.name, path.name, path.stem))
        if index is not None and is_trusted:
            n_frames = index.frame_packet.size
        else:
            n_frames = _count_frames(decoder, packets, index)
        ticks = index.frame_ticks if index else _counted_ticks(decoder, packets, n_frames)
        appearance = Appearance.of_stream(decoder.stream)
        return Scan(
            info=VideoInfo(
                n_frames=n_frames,
                fps=_rate(decoder, packets, index, ticks, n_frames=n_frames),
                sync_frames=index.sync_frame if index else None,
            ),
            index=index,
            frame_ticks=ticks,
            time_base=decoder.tick_seconds,
            stored_size=(first.width, first.height),
            orientation=Orientation.of_frame(path, first),
            notes=(*notes, *appearance.notes),
            appearance=appearance,
        )


def _first_frame(decoder: Decoder, packets: Packets) -> VideoFrame:
    """The first decoded frame; raises VideoError if there is none, or if frames before it were lost to damage."""
    first = next(decoder.frames_from_start(is_strict=False), None)
    if first is None or not (first.width and first.height):
        raise VideoError(f"{decoder.path}: no frame of it can be decoded; download it again or re-encode it")
    has_times = first.pts is not None and not (packets.lacks_ticks or packets.goes_back)
    is_broadcast = decoder.may_begin_anywhere
    if (
        has_times
        and decoder.has_seen_damage
        and leads_first_frame(packets, first_ticks=first.pts, is_broadcast=is_broadcast)
    ):
        raise VideoError(f"{decoder.path}: its first frames cannot be decoded; download it again")
    return first


def _count_frames(decoder: Decoder, packets: Packets, index: FrameIndex | None) -> int:
    """The number of frames of a full decode; raises VideoError at damage or if the index has another number."""
    path = decoder.path
    if packets.is_corrupt.any():
        raise VideoError(f"{path}: a packet of it is incomplete: cut off or damaged; download it again")
    n_frames = sum(1 for _ in decoder.frames_from_start())
    if index is not None and index.frame_packet.size != n_frames:
        raise VideoError(
            f"{path}: a decode gives {n_frames} frames of its {index.frame_packet.size}: damaged; download it again"
        )
    return n_frames


def _trusted_index(decoder: Decoder, packets: Packets, first: VideoFrame) -> FrameIndex | None:
    """Return the frame index if the packets' times are presentation times; None if frames must be counted.

    Raises:
        VideoError: damaged first frames.
    """
    if first.pts is None:
        return None
    # Do not trust the times beside an MPEG-4 packet without a picture: the packet before may hold two, or its picture
    # stays shown.
    if decoder.stream.codec_context.name == "mpeg4" and (packets.sizes <= _MAX_BYTES_WITHOUT_PICTURE).any():
        return None
    # A seek would lose the palette, which comes only with the first packet and with packets that change it.
    if first.format.name == "pal8":
        return None
    is_doubtful = decoder.has_seen_damage
    index = FrameIndex.build(packets, first_ticks=first.pts)
    if index is None:
        return None
    has_b_frames = bool(decoder.stream.codec_context.has_b_frames)
    if decoder.container.format.name == "avi" and (has_b_frames or _has_guessed_times(decoder, packets)):
        return None
    if packets.is_second_field.any():
        return _index_of_decode(decoder, index, n_frames=_N_HEAD)
    if is_doubtful or not packets.is_sync[0]:
        return _index_of_decode(decoder, index, n_frames=int([*index.sync_frame, index.frame_ticks.size][1]))
    if has_b_frames and not packets.are_reordered:
        return index if _times_of_decode(decoder, index, _N_HEAD) == index.frame_ticks[:_N_HEAD].tolist() else None
    return index


def _times_of_decode(decoder: Decoder, index: FrameIndex, n_frames: int) -> list[int | None]:
    """The times of a plain decode's frames that come before the index's frame `n_frames`."""
    end = index.frame_ticks[n_frames] if n_frames < index.frame_ticks.size else _NEVER
    frames = decoder.frames_from_start(is_strict=False)
    return [frame.pts for frame in itertools.takewhile(lambda frame: frame.pts is None or frame.pts < end, frames)]


def _index_of_decode(decoder: Decoder, index: FrameIndex, *, n_frames: int) -> FrameIndex | None:
    """Return the index without those of its first `n_frames` that a plain decode leaves out; None if out of order.

    If a stream does not begin with a sync frame, FFmpeg leaves out the frames that may not be whole.

    Raises:
        VideoError: the decoder also reports damage, so later frames may have other numbers than in the whole file.
    """
    times = _times_of_decode(decoder, index, n_frames)
    expected = index.frame_ticks[:n_frames].tolist()
    if times == expected:
        return index
    if decoder.has_seen_damage and not decoder.may_begin_anywhere:
        raise VideoError(f"{decoder.path}: some of its first frames cannot be decoded; download it again")
    if None in times or times != sorted(set(expected).intersection(times)):
        return None
    ticks = index.packets.ticks
    is_left_out = (ticks <= expected[-1]) & ~np.isin(ticks, np.array(times, dtype=np.int64))
    packets = replace(index.packets, is_hidden=index.packets.is_hidden | is_left_out)
    return FrameIndex.build(packets, first_ticks=int(index.frame_ticks[0]))


def _has_guessed_times(decoder: Decoder, packets: Packets) -> bool:
    """True for H.264 and HEVC in AVI if FFmpeg, which guesses their times, moves some out of their slots."""
    is_guessed = decoder.container.format.name == "avi" and decoder.stream.codec_context.name in ("h264", "hevc")
    steps, slots = (np.diff(np.sort(ticks)) for ticks in (packets.ticks, packets.decode_ticks))
    return is_guessed and not np.array_equal(steps, slots)


def _counted_ticks(decoder: Decoder, packets: Packets, n_frames: int) -> IntArray | None:
    """Return the frames' times, ascending, of a file without a frame index; None if unknown.

    If every packet is one frame, the times are those of the packets, sorted.
    """
    packet_ticks = packets.decode_ticks if _has_guessed_times(decoder, packets) else packets.ticks
    ticks = np.sort(packet_ticks[~packets.is_hidden])
    is_told = not (packets.lacks_ticks or packets.goes_back) and ticks.size == n_frames
    return ticks if is_told and (np.diff(ticks) > 0).all() else None


def _rate(
    decoder: Decoder, packets: Packets, index: FrameIndex | None, ticks: IntArray | None, *, n_frames: int
) -> float:
    """The average rate in frames per second."""
    # For a raw stream FFmpeg states an average of 25 fps whatever the stream says, so use its guess.
    stated_rate = decoder.stream.guessed_rate if packets.lacks_ticks else decoder.stream.average_rate
    if ticks is None or (index is None and n_frames == 1):
        return float(stated_rate or decoder.stream.guessed_rate or 1)
    # Without an index the duration of the last frame is unknown, so take the mean of the others.
    n_ticks = packets.end_ticks - ticks[0] if index else (ticks[-1] - ticks[0]) * n_frames / (n_frames - 1)
    seconds = float(n_ticks) * decoder.tick_seconds
    return average_rate(float(stated_rate) if stated_rate else None, n_frames=n_frames, seconds=seconds)


FORMAT = 10  # increase whenever a scan of the same file would give another result
_RECENT_FILES = 64  # the scan of an hour at 30 fps takes about 4 MB
_RISING = ("ticks", "decode_ticks", "places")
_BITS = ("is_sync", "is_hidden", "is_second_field", "is_corrupt")
_SINGLE = ("lacks_ticks", "goes_back", "end_ticks")
_ZIP_ERRORS = (zipfile.BadZipFile, zlib.error, NotImplementedError)
_recent: OrderedDict[tuple[Path, FileState], Scan] = OrderedDict()
_recent_lock = threading.Lock()
log = logging.getLogger(__name__)


class KeptScans(Protocol):
    """Store of serialized scans shared between processes, by path and state of the file."""

    def kept_scan(self, path: Path, state: FileState) -> bytes | None:
        """Return the scan kept for the file in this state, as `scan_bytes`; None if there is none."""
        ...

    def keep_scan(self, path: Path, state: FileState, content: bytes) -> None:
        """Replace the file's kept scan by `content`, from `scan_bytes`."""
        ...


class ScanMemory:
    """Keeps the scans of all videos that a run opens, in memory: about 1 kB for 1,000 frames."""

    def __init__(self) -> None:
        self._content: dict[tuple[Path, FileState], bytes] = {}

    def kept_scan(self, path: Path, state: FileState) -> bytes | None:
        """As in `KeptScans`."""
        return self._content.get((path, state))

    def keep_scan(self, path: Path, state: FileState, content: bytes) -> None:
        """As in `KeptScans`."""
        self._content[path, state] = content


def scan_video(path: Path, *, store: KeptScans | None = None, scan_new: Callable[[Path], Scan] | None = None) -> Scan:
    """Scan a video file, or return its cached scan if path, size, time of change and inode are the same.

    Frames after the first are decoded only if the packets do not suffice. If a manifest in a folder above
    names the file, its size, checksum and number of frames are compared with the manifest, once in a process.

    Args:
        store: store that may hold the scan, and that keeps a new one; None: cache in this process only.
        scan_new: scans a file that no cache knows; None: `scan_file`, in this thread.

    Raises:
        VideoError: no file, no video, a header that promises more than the file holds, another file than the manifest
            names, or visible damage; the message starts with the path.
    """
    state = file_state(checked_file(path))
    scan = recent_scan(path, state)
    if scan is None:
        check_file(path)
        verdict = verdict_on(path)
        if verdict is not None and verdict.error.startswith(CRASHES) and verdict.writer == writer_version():
            raise VideoError(f"{path}: {verdict.error}, by its verdict of `videos verify`")
        content = store.kept_scan(path, state) if store is not None else None
        scan = scan_from_bytes(content) if content is not None else None
        is_new = scan is None
        scan = scan or (scan_new or scan_file)(path)
        log.debug(
            "%s: %d frames, %.4g fps%s", path, scan.info.n_frames, scan.info.fps, "" if is_new else ", remembered"
        )
        check_length(path, scan.info)
        if store is not None and is_new:
            store.keep_scan(path, state, scan_bytes(scan))
    remember_scan(path, state, scan)
    return scan


def recent_scan(path: Path, state: FileState) -> Scan | None:
    """Return the scan of a file in this state that this process remembers; None if it remembers none."""
    with _recent_lock:
        return _recent.get((path, state))


def remember_scan(path: Path, state: FileState, scan: Scan, *, most: int = _RECENT_FILES) -> None:
    """Remember a file's scan in this process, and forget all but the latest `most`."""
    with _recent_lock:
        _recent[path, state] = scan
        _recent.move_to_end((path, state))
        while len(_recent) > most:
            _recent.popitem(last=False)


def scan_bytes(scan: Scan) -> bytes:
    """Return a scan in NumPy's `npz` format: times and places as differences, all other facts as JSON."""
    packets = scan.index.packets if scan.index else None
    facts: dict[str, object] = {
        "writer": writer_version(),
        "n_frames": scan.info.n_frames,
        "fps": scan.info.fps,
        "time_base": scan.time_base,
        "stored_size": scan.stored_size,
        "orientation": asdict(scan.orientation),
        "notes": scan.notes,
        "appearance": asdict(scan.appearance),
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
        appearance=Appearance(**facts["appearance"]),
    )


def _index(facts: Mapping[str, Any], arrays: Mapping[str, Any]) -> FrameIndex:
    """The frame index from stored arrays; raises ValueError if they do not order the frames."""
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
