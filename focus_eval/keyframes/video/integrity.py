"""Checks that a file is complete, as far as its container shows it; finds faults that FFmpeg does not report.

`docs/reliability.md` says what each check prevents, as measured by `scripts/checks/reader_checks.py`.
"""

from __future__ import annotations

import mmap
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from focus_eval.core.errors import VideoError
from focus_eval.keyframes.video.decoder import Decoder, mp4_boxes, remedy
from focus_eval.keyframes.video.mpeg import count_pictures
from focus_eval.keyframes.video.packets import Packets

# Raw streams. Lines logged under their format's name come from the parser of the same name and prove no damage of the
# container; the decoder reports a damaged picture itself.
_RAW_FORMATS = ("h264", "hevc", "vvc", "mpegvideo", "m4v", "h263", "h261", "mjpeg", "obu", "av1")


def check_whole(path: Path, decoder: Decoder, packets: Packets, *, logged: list[str]) -> list[str]:
    """Raise VideoError if the container shows that bytes are missing or overwritten; return harmless peculiarities.

    Args:
        logged: errors that FFmpeg logged while the file was opened and demuxed, as `source: message`.

    Raises:
        VideoError: no packet; bytes that are missing, overwritten or there twice; an error that the demuxer logged.
    """
    if packets.ticks.size == 0:
        raise VideoError(f"{path}: the video stream holds no frame; download it again")
    container, notes = decoder.container.format.name, list[str]()
    for name, find_fault in _FAULTS.items():
        if name in container.split(","):
            with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                fault = find_fault(data, decoder, packets, notes)
            if fault:
                raise VideoError(f"{path}: {fault}; {remedy(path)}")
    complaints = [line for line in logged if line.startswith(f"{container}: ") and container not in _RAW_FORMATS]
    if complaints and not any(_AT_THE_END in note for note in notes):
        complaint = complaints[0].partition(": ")[2][:120]
        if "partial file" in complaint:
            raise VideoError(f"{path}: cut off ({complaint}); {remedy(path)}")
        raise VideoError(f"{path}: damaged ({complaint}); download it again")
    return notes


# Word in a note about bytes after the last picture: what FFmpeg logs about these bytes is then no sign of damage.
_AT_THE_END = "behind"


def _avi_fault(data: mmap.mmap, decoder: Decoder, packets: Packets, notes: list[str]) -> str | None:
    """The fault, as a clause for a message, if an AVI's number of frames differs from its header's; else None."""
    n_promised, n_packets = decoder.stream.frames, packets.ticks.size
    if 0 < n_promised < n_packets:
        return f"the header promises {n_promised} frames, the file holds {n_packets}: part of it is there twice"
    # The header also counts repeated frames, which have no packet. A tick is one frame, so a gap between two times
    # shows the repeats of a frame. For the last frame, allow as many repeats as the largest gap shows, or as there are
    # empty chunks at the end.
    n_repeats = max(int(np.diff(np.sort(packets.ticks)).max(initial=1)) - 1, _n_empty_chunks_at_end(data))
    n_packets = max(n_packets, packets.end_ticks + n_repeats)
    if n_promised > n_packets:
        return f"the header promises {n_promised} frames, the file holds {n_packets}: cut off"
    return None


def _n_empty_chunks_at_end(data: mmap.mmap) -> int:
    """The number of an AVI's empty chunks of pictures just before its index."""
    start = end = data.rfind(b"idx1")
    while start >= 8 and data[start - 6 : start - 5] == b"d" and data[start - 4 : start] == bytes(4):
        start -= 8
    return (end - start) // 8


_NESTED = (b"traf", b"trak", b"mdia", b"minf", b"stbl")
_MAX_NESTED_BOXES = 8
_COPYRIGHT = 0xA9


def _mp4_fault(data: mmap.mmap, decoder: Decoder, packets: Packets, notes: list[str]) -> str | None:
    """Return the fault in the boxes of a fragmented MP4, as a clause for a message, or None.

    FFmpeg finds each fragment by the length of the fragment before, so a wrong length loses pictures. An MP4 without
    fragments is not checked: FFmpeg finds every picture by the index.
    """
    is_fragmented = False
    for name, start, length in mp4_boxes(data):
        is_fragmented |= name == b"moof"
        if not is_fragmented or not (name.strip(b"\0") or data[start:].strip(b"\0")):
            continue
        if length < 8 or not all(32 <= byte < 127 or byte == _COPYRIGHT for byte in name):
            return f"damaged at byte {start}, where a box should begin"
        if start + length > len(data) and name in (b"moof", b"mdat"):
            return f"its part {name.decode()} needs {start + length} bytes, the file has {len(data)}: cut off"
        if name == b"moof" and not _nests(data, start + 8, start + length):
            return f"damaged at byte {start}, where a fragment begins"
    return None


def _nests(data: mmap.mmap, start: int, stop: int, *, depth: int = 0) -> bool:
    """True if MP4 boxes exactly fill bytes `[start, stop)`, also inside tracks and their tables."""
    while start + 8 <= stop and depth < _MAX_NESTED_BOXES:
        length = int.from_bytes(data[start : start + 4], "big")
        is_nested = data[start + 4 : start + 8] in _NESTED
        if length < 8 or (is_nested and not _nests(data, start + 8, start + length, depth=depth + 1)):
            return False
        start += length
    return start == stop


_EBML, _SEGMENT, _CLUSTER, _CRC = 0x1A45DFA3, 0x18538067, 0x1F43B675, 0xBF
# Elements whose faults are only noted: programs that edit titles and tags leave old checksums, which players ignore. A
# seek by wrong cues is noticed by the packets that follow.
_HOLD_NO_PICTURES = {
    0x114D9B74: "seek head", 0x1549A966: "title", 0x1C53BB6B: "cues", 0x1941A469: "attachments", 0x1043A770: "chapters",
    0x1254C367: "tags",
}  # fmt: skip


def _matroska_fault(data: mmap.mmap, decoder: Decoder, packets: Packets, notes: list[str]) -> str | None:
    """Return the fault in the size or a checksum of a Matroska or WebM file, as a clause for a message, or None.

    Live recordings state no size and are not checked. If the writer left CRC-32 checksums (FFmpeg does, in Matroska but
    not in WebM), the bytes of each part are compared with them (RFC 8794, 11.3.1).
    """
    at, kind, size = _header(data, 0)
    if kind != _EBML or size is None:
        return None
    at, kind, size = _header(data, at + size)
    if kind != _SEGMENT or size is None:
        return None
    end = at + size
    while at < min(end, len(data)):
        start, kind, size = _header(data, at)
        if size is None:
            break
        if start + size > len(data):
            if kind in _HOLD_NO_PICTURES:
                notes.append(f"its {_HOLD_NO_PICTURES[kind]}, behind the last picture, are cut off")
                return None
            break
        has_checksum = size > 6 and data[start] == _CRC and data[start + 1] == 0x84
        checksum = int.from_bytes(data[start + 2 : start + 6], "little")
        if has_checksum and zlib.crc32(memoryview(data)[start + 6 : start + size]) != checksum:
            if kind not in _HOLD_NO_PICTURES:
                return f"damaged between bytes {start} and {start + size}, whose checksum does not match"
            notes.append(f"the checksum of its {_HOLD_NO_PICTURES[kind]} does not match")
        at = start + size
    return _size_fault(end, len(data))


def _size_fault(promised: int, size: int) -> str | None:
    if promised > size:
        return f"the header promises {promised} bytes, the file has {size}: cut off, or bytes are missing"
    return None


def _header(data: mmap.mmap, at: int) -> tuple[int, int, int | None]:
    """(offset of the content, id, size) of the element at `at`; size None if unknown or unreadable."""
    first = data[at] if at < len(data) else 0
    id_length = 9 - first.bit_length()
    if not 1 <= id_length <= 4 or at + id_length >= len(data):
        return at, 0, None
    size_at = at + id_length
    size_length = 9 - data[size_at].bit_length()
    if size_length > 8:
        return at, 0, None
    mask = (1 << 7 * size_length) - 1
    size = int.from_bytes(data[size_at : size_at + size_length], "big") & mask
    kind = int.from_bytes(data[at:size_at], "big")
    return size_at + size_length, kind, None if size == mask else size


_SYNC = 0x47
# (bytes per packet, bytes before the sync byte): plain, with arrival times (Blu-ray), with error correction.
_PACKET_LENGTHS = ((188, 0), (192, 4), (204, 0))
# Packets before a jump of the counter in which a programme table, the start of a joined recording, is looked for.
_MAX_TABLES_AT_JOIN = 8
_COUNTER_VALUES = 16
_CHUNK = 1 << 20


def _transport_fault(data: mmap.mmap, decoder: Decoder, packets: Packets, notes: list[str]) -> str | None:
    """Return the fault in the packets of the video's stream, as a clause for a message, or None.

    The counter in each packet must go up by 1 modulo 16. It may jump where a new recording begins: after a programme
    table, at the start of a picture that can be decoded by itself. A picture may be spread over several units, but the
    units after its first state no time or the same time, so there must be at least as many pictures as times. A few
    damaged packets are accepted if none of them belongs to the video and packets of the video follow.
    """
    shape = _packet_shape(data)
    if shape is None:
        return None
    length, skip = shape
    size = _unpadded_size(data, length, notes)
    if size % length:
        return f"it ends within a packet ({size} bytes in packets of {length}): cut off"
    pid = decoder.stream.id
    parts = np.frombuffer(data, dtype=np.uint8, count=size).reshape(-1, length)[:, skip:]
    head = parts[:, :6].copy()
    pids = (head[:, 1].astype(np.int64) & 31) << 8 | head[:, 2]
    damaged = np.flatnonzero(head[:, 0] != _SYNC)
    pids[damaged] = -1
    n_times = _count_times(parts[(pids == pid) & (head[:, 1] & 0x40 > 0)])
    del parts
    # After a damaged packet the demuxer looks for the next sync byte, perhaps in the middle of a packet of the video,
    # which it then marks as corrupt. Damaged packets behind the video's last packet may belong to the video: no later
    # counter would show it.
    is_behind = damaged.size > 0 and damaged[-1] > np.flatnonzero(pids == pid).max(initial=-1)
    decoder.restart()
    is_marked = damaged.size > 0 and any(packet.is_corrupt for packet in decoder.packets())
    if damaged.size >= _COUNTER_VALUES or is_behind or is_marked:
        return f"packet {damaged[-1 if is_behind else 0]} of {len(head)} is damaged"
    n_missing = n_times - packets.ticks.size
    if n_missing > 0 and decoder.stream.codec_context.name == "mpeg2video":
        # FFmpeg joins the two fields of a frame, each of which may have a time of its own, so count the fields.
        decoder.restart()
        n_missing = n_times - sum(map(count_pictures, decoder.packets()))
    if n_missing > 0:
        return f"{n_missing} of its pictures are missing"
    fault = _counter_fault(head, pids, pid)
    if damaged.size and fault is None:
        notes.append(f"packet {damaged[0]} of {len(head)}, not of the video, is damaged")
    return fault


def _count_times(starts: NDArray[np.uint8]) -> int:
    """The number of times in `starts` (packets that begin a unit); equal times in a row count once."""
    n_times, latest = 0, b""
    for packet in starts:
        at = 5 + int(packet[4]) if packet[3] & 0x20 else 4
        header = packet[at : at + 14].tobytes()
        if len(header) == 14 and header[:3] == b"\0\0\1" and header[7] >> 7 and header[9:] != latest:
            n_times, latest = n_times + 1, header[9:]
    return n_times


def _unpadded_size(data: mmap.mmap, length: int, notes: list[str]) -> int:
    """The file size without zeros behind the last packet; the full size if the zeros begin within a packet."""
    size = len(data)
    while size and data[size - 1] == 0:
        start = max(size - _CHUNK, 0)
        size = start + len(data[start:size].rstrip(b"\0"))
    if size == len(data) or size % length:
        return len(data)
    notes.append(f"{len(data) - size} zeros behind its last packet")
    return size


def _packet_shape(data: mmap.mmap) -> tuple[int, int] | None:
    """(length, bytes before the sync byte) of the file's transport packets; None if it has none."""
    for length, skip in _PACKET_LENGTHS:
        places = range(skip, min(len(data), length * 8), length)
        # Allow two damaged packets among the first.
        if sum(data[place] == _SYNC for place in places) >= max(len(places) - 2, 1):
            return length, skip
    return None


def _counter_fault(head: NDArray[np.uint8], pids: NDArray[np.int64], pid: int) -> str | None:
    """Return the fault in the packet counters of stream `pid`, as a clause for a message, or None.

    Args:
        head: first bytes of each transport packet, one row a packet.
        pids: stream of each packet.
    """
    at = np.flatnonzero(pids == pid)
    flags = head[at]
    has_adaptation = (flags[:, 3] & 0x20 > 0) & (flags[:, 4] > 0)
    is_announced = has_adaptation & (flags[:, 5] & 0x80 > 0)
    is_start = (flags[:, 1] & 0x40 > 0) & has_adaptation & (flags[:, 5] & 0x40 > 0)
    counter = (flags[:, 3] & 15).astype(np.int64)
    carries = flags[:, 3] & 0x10 > 0
    step = (np.diff(counter) - carries[1:]) % _COUNTER_VALUES
    # A packet may be sent twice, both times with the same counter.
    is_repeat = (np.diff(counter) == 0) & carries[1:]
    for jump in np.flatnonzero((step != 0) & ~is_repeat) + 1:
        earlier_pids = pids[max(int(at[jump]) - _MAX_TABLES_AT_JOIN, 0) : at[jump]]
        if not is_announced[jump] and not (is_start[jump] and (earlier_pids == 0).any()):
            return f"packets of the video are missing before packet {int(at[jump])} of {pids.size}"
    return None


_MICROSECONDS = 1_000_000
_ASF_FILE_PROPERTIES = bytes.fromhex("a1dcab8c47a9cf118ee400c00c205365")
_ASF_BROADCAST = 1
_OGG_LAST_PAGE = 4


def _asf_fault(data: mmap.mmap, decoder: Decoder, packets: Packets, notes: list[str]) -> str | None:
    """The fault if the header promises more bytes than the file has, as a clause for a message, or None."""
    at = data.find(_ASF_FILE_PROPERTIES, 0, 1 << 16)
    if at < 0 or int.from_bytes(data[at + 88 : at + 92], "little") & _ASF_BROADCAST:
        return None
    return _size_fault(int.from_bytes(data[at + 40 : at + 48], "little"), len(data))


def _flv_fault(data: mmap.mmap, decoder: Decoder, packets: Packets, notes: list[str]) -> str | None:
    """Return the fault in the tags of an FLV file, as a clause for a message, or None.

    A tag is a header of 11 bytes with the content's size, the content, and 4 bytes with the size of both.
    """
    start = int.from_bytes(data[5:9], "big") + 4
    while start + 11 <= len(data):
        start += 11 + int.from_bytes(data[start + 1 : start + 4], "big") + 4
    # Some writers pad the file with zeros, and some leave out its last 4 bytes. A file without these could also have
    # been cut off at that point, so accept it only if its pictures reach the end that the header states.
    if start == len(data) or (start < len(data) and not data[start:].strip(b"\0")):
        return None
    promised = (decoder.container.duration or 0) / _MICROSECONDS
    if start == len(data) + 4 and promised - float(packets.end_ticks * decoder.tick_seconds) < 0.1:
        return None
    return "its last part is incomplete: cut off, or bytes are missing"


def _ogg_fault(data: mmap.mmap, decoder: Decoder, packets: Packets, notes: list[str]) -> str | None:
    """Return the fault in the pages of an Ogg file, as a clause for a message, or None.

    The last page of each stream must be marked as the last (RFC 3533, 6).
    """
    start, last = 0, {}
    while data[start : start + 4] == b"OggS" and start + 27 <= len(data):
        n_segments = data[start + 26]
        last[data[start + 14 : start + 18]] = data[start + 5] & _OGG_LAST_PAGE
        start += 27 + n_segments + sum(data[start + 27 : start + 27 + n_segments])
    if start != len(data):
        return f"its pages end at {start} of {len(data)} bytes: cut off or damaged"
    return None if all(last.values()) else "its last page is missing: cut off"


_FAULTS: dict[str, Callable[[mmap.mmap, Decoder, Packets, list[str]], str | None]] = {
    "avi": _avi_fault,
    "mov": _mp4_fault,
    "asf": _asf_fault,
    "flv": _flv_fault,
    "ogg": _ogg_fault,
    "matroska": _matroska_fault,
    "mpegts": _transport_fault,
}
