"""Checks that a file is whole, as far as its container shows."""

from __future__ import annotations

import mmap
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from focus_eval.core.errors import VideoError
from focus_eval.keyframes.video.decoder import Decoder, mp4_boxes, remedy
from focus_eval.keyframes.video.packets import Packets, packets_of


@dataclass
class Findings:
    """Results of the check of a container.

    Args:
        notes: harmless peculiarities of the file.
        has_odd_end: True if bytes after the last picture are cut, or are padding: FFmpeg may complain of them.
    """

    notes: list[str] = field(default_factory=list)
    has_odd_end: bool = False

    def note_end(self, note: str) -> None:
        """Note a peculiarity after the last picture."""
        self.notes.append(note)
        self.has_odd_end = True


_PACK, _END, _FIRST_STREAM = 0xBA, 0xB9, 0xBB
_MPEG1_PACK, _MPEG2_PACK = 12, 14


def _program_fault(data: mmap.mmap, decoder: Decoder, packets: Packets, findings: Findings) -> str | None:
    """Return the fault in the structure of an MPEG program stream, as a clause for a message, or None."""
    at = 0
    while at + 6 <= len(data):
        kind = data[at + 3]
        if data[at : at + 3] != b"\0\0\1" or kind < _END:
            return None if not data[at:].strip(b"\0") else f"damaged at byte {at}, where a packet should begin"
        if kind == _PACK:
            at += _MPEG2_PACK + (data[at + 13] & 7) if data[at + 4] >> 6 == 1 else _MPEG1_PACK
        elif kind == _END:
            at += 4
        else:
            at += 6 + int.from_bytes(data[at + 4 : at + 6], "big")
    return "its last packet is incomplete: cut off" if at > len(data) else None


_EBML, _SEGMENT, _CLUSTER, _CRC = 0x1A45DFA3, 0x18538067, 0x1F43B675, 0xBF
# What may lie directly in a segment (RFC 9559, 5.1): SeekHead, Info, Tracks, Cluster, Cues, Attachments, Chapters and
# Tags; Void and CRC-32 may lie anywhere.
_PARTS = {0x114D9B74, 0x1549A966, 0x1654AE6B, _CLUSTER, 0x1C53BB6B, 0x1941A469, 0x1043A770, 0x1254C367, 0xEC, _CRC}
# Editors of titles and tags leave the checksums of these as they were; players do not look at them. Seeking by wrong
# cues is noticed by the packets that come.
_HOLD_NO_PICTURES = {
    0x114D9B74: "seek head", 0x1549A966: "title", 0x1C53BB6B: "cues", 0x1941A469: "attachments", 0x1043A770: "chapters",
    0x1254C367: "tags",
}  # fmt: skip
# Writers put these behind all clusters, or before them.
_BEHIND_PICTURES = (0x1C53BB6B, 0x1254C367)


def matroska_fault(data: mmap.mmap, findings: Findings) -> str | None:
    """Return the fault in the structure of a Matroska or WebM file, as a clause for a message, or None.

    Live recordings state no sizes, so None is returned. If the writer left CRC-32 checksums (FFmpeg does, in Matroska
    but not in WebM), the bytes of each part are compared with them (RFC 8794, 11.3.1).
    """
    at, kind, size = _header(data, 0)
    if kind != _EBML or size is None:
        return None
    at, kind, size = _header(data, at + size)
    if kind != _SEGMENT or size is None:
        return None
    fault = _segment_fault(data, at, min(at + size, len(data)), findings)
    if at + size > len(data) and not findings.has_odd_end:
        return f"the header promises {at + size} bytes, the file has {len(data)}: cut off, or bytes are missing"
    return fault


def _segment_fault(data: mmap.mmap, at: int, end: int, findings: Findings) -> str | None:
    """Return the fault among the parts of a Matroska segment `[at, end)`, as a clause for a message, or None."""
    has_clusters = False
    while at < end:
        start, kind, size = _header(data, at)
        if size is None and kind == _CLUSTER:  # written live: its end, and all behind it, is known to the demuxer alone
            return None
        if has_clusters and kind in _BEHIND_PICTURES and size and start + size > end:
            findings.note_end(f"its {_HOLD_NO_PICTURES[kind]}, behind the last picture, are cut off")
            break
        if size is None or kind not in _PARTS or start + size > end:
            return f"damaged at byte {at}, where a part of the file should begin"
        has_checksum = size > 6 and data[start] == _CRC and data[start + 1] == 0x84
        checksum = int.from_bytes(data[start + 2 : start + 6], "little")
        if has_checksum and zlib.crc32(memoryview(data)[start + 6 : start + size]) != checksum:
            if kind not in _HOLD_NO_PICTURES:
                return f"damaged between bytes {start} and {start + size}, whose checksum does not match"
            findings.notes.append(f"the checksum of its {_HOLD_NO_PICTURES[kind]} does not match")
        has_clusters |= kind == _CLUSTER
        at = start + size
    return None


def _header(data: mmap.mmap, at: int) -> tuple[int, int, int | None]:
    """Return (offset of the content, id, size) of the element at `at`; size None if unknown or unreadable."""
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
# Plain, with an arrival time before each packet (Blu-ray), with error correction after each.
_PACKET_LENGTHS = ((188, 0), (192, 4), (204, 0))
# Flags and a clock.
_CLOCK_LENGTH = 7
# Between two recordings that were joined lie the tables that begin the second: that many packets back at most.
_MAX_TABLES_AT_JOIN = 8
_COUNTER_VALUES = 16
_CHUNK = 1 << 20


def transport_fault(
    data: mmap.mmap, *, pid: int, n_pictures: int, findings: Findings, is_marked: Callable[[], bool]
) -> str | None:
    """Return the fault in the packets of stream `pid`, as a clause for a message, or None.

    The counter in each packet must go up by 1 modulo 16. It may jump where a new recording begins: after a programme
    table, at the start of a picture that can be decoded by itself. A picture may be spread over several units, of which
    those after the first state no time or the same, so there are at least as many pictures as times. A few packets may
    be damaged if none of them is of the video, and the video goes on behind them.

    Args:
        n_pictures: number of pictures that the demuxer found.
        is_marked: tells whether the demuxer marks a packet of the video as incomplete.
    """
    shape = _packet_shape(data)
    if shape is None:
        return None
    length, skip = shape
    size = _unpadded_size(data, length, findings)
    if size % length:
        return f"it ends within a packet ({size} bytes in packets of {length}): cut off"
    packets = np.frombuffer(data, dtype=np.uint8, count=size).reshape(-1, length)[:, skip:]
    head = packets[:, :6].copy()
    pids = (head[:, 1].astype(np.int64) & 31) << 8 | head[:, 2]
    damaged = np.flatnonzero(head[:, 0] != _SYNC)
    pids[damaged] = -1
    n_times = _count_times(packets[(pids == pid) & (head[:, 1] & 0x40 > 0)])
    del packets
    # The demuxer looks for the next sync byte, perhaps within a packet of the video, whose counter then jumps for it.
    # Behind the last packet of the video no counter tells whether they were of the video.
    is_behind = damaged.size > 0 and damaged[-1] > np.flatnonzero(pids == pid).max(initial=-1)
    if damaged.size >= _COUNTER_VALUES or is_behind or (damaged.size and is_marked()):
        return f"packet {damaged[-1 if is_behind else 0]} of {len(head)} is damaged"
    if n_times > n_pictures:
        return f"{n_times - n_pictures} of its pictures are missing"
    fault = _counter_fault(head, pids, pid)
    if damaged.size and fault is None:
        findings.notes.append(f"packet {damaged[0]} of {len(head)}, not of the video, is damaged")
    return fault


def _count_times(starts: NDArray[np.uint8]) -> int:
    """Return the number of distinct successive presentation times in `starts`, transport packets that begin a unit."""
    n_times, latest = 0, b""
    for packet in starts:
        at = 5 + int(packet[4]) if packet[3] & 0x20 else 4
        header = packet[at : at + 14].tobytes()
        if len(header) == 14 and header[:3] == b"\0\0\1" and header[7] >> 7 and header[9:] != latest:
            n_times, latest = n_times + 1, header[9:]
    return n_times


def _unpadded_size(data: mmap.mmap, length: int, findings: Findings) -> int:
    """Return the file size without zeros behind the last packet; the full size if they start within one."""
    size = len(data)
    while size and data[size - 1] == 0:
        start = max(size - _CHUNK, 0)
        size = start + len(data[start:size].rstrip(b"\0"))
    if size == len(data) or size % length:
        return len(data)
    findings.note_end(f"{len(data) - size} zeros behind its last packet")
    return size


def _packet_shape(data: mmap.mmap) -> tuple[int, int] | None:
    """Return (length, bytes before the sync byte) of the file's transport packets; None if it begins otherwise."""
    for length, skip in _PACKET_LENGTHS:
        places = range(skip, min(len(data), length * 8), length)
        # Nearly all of the first packets begin with the sync byte.
        if sum(data[place] == _SYNC for place in places) >= max(len(places) - 2, 1):
            return length, skip
    return None


def ends_in_full_packet(data: mmap.mmap, *, pid: int) -> bool:
    """Return True if the last packet of stream `pid` is full: its picture may continue in a missing packet.

    A muxer fills the last packet of a picture with stuffing, unless the picture happens to fit (1 of 184).
    """
    shape = _packet_shape(data)
    if shape is None:
        return False
    length, skip = shape
    for start in range(len(data) - len(data) % length - length, -1, -length):
        head = data[start + skip : start + skip + 6]
        if (head[1] & 31) << 8 | head[2] == pid and head[3] & 0x10:
            # An adaptation field that carries a clock and no more does not fill up.
            return not head[3] & 0x20 or (head[5] & 0x10 > 0 and head[4] == _CLOCK_LENGTH)
    return False


def _counter_fault(head: NDArray[np.uint8], pids: NDArray[np.int64], pid: int) -> str | None:
    """Return the fault in the packet counters of stream `pid`, as a clause for a message, or None.

    Args:
        head: first bytes of each transport packet, one row a packet.
        pids: stream of each packet.
    """
    at = np.flatnonzero(pids == pid)
    flags = head[at]
    if (flags[:, 1] & 0x80).any():
        return f"packet {int(at[np.argmax(flags[:, 1] & 0x80)])} is marked as damaged by the receiver"
    has_adaptation = (flags[:, 3] & 0x20 > 0) & (flags[:, 4] > 0)
    is_announced = has_adaptation & (flags[:, 5] & 0x80 > 0)
    is_start = (flags[:, 1] & 0x40 > 0) & has_adaptation & (flags[:, 5] & 0x40 > 0)
    counter = (flags[:, 3] & 15).astype(np.int64)
    carries = flags[:, 3] & 0x10 > 0
    step = (np.diff(counter) - carries[1:]) % _COUNTER_VALUES
    # A packet may be sent twice; its counter then stays.
    is_repeat = (np.diff(counter) == 0) & carries[1:]
    for jump in np.flatnonzero((step != 0) & ~is_repeat) + 1:
        earlier_pids = pids[max(int(at[jump]) - _MAX_TABLES_AT_JOIN, 0) : at[jump]]
        if not is_announced[jump] and not (is_start[jump] and (earlier_pids == 0).any()):
            return f"packets of the video are missing before packet {int(at[jump])} of {pids.size}"
    return None


_MICROSECONDS = 1_000_000
# Header times are rounded, and some muxers leave the last frame out.
_MAX_SECONDS_SHORT = 1.0
_ASF_FILE_PROPERTIES = bytes.fromhex("a1dcab8c47a9cf118ee400c00c205365")
_ASF_BROADCAST = 1
_OGG_LAST_PAGE = 4
_COPYRIGHT = 0xA9
_NESTED = (b"traf", b"trak", b"mdia", b"minf", b"stbl")
# Players' tags that are put behind a file.
_TAGS = (b"ID3", b"TAG", b"APE")


def check_whole(path: Path, decoder: Decoder, packets: Packets, *, logged: list[str]) -> Findings:
    """Raise VideoError if the container shows that bytes are missing or overwritten; return harmless findings.

    Args:
        logged: errors that FFmpeg logged while the file was opened and demuxed, as `source: message`.

    Raises:
        VideoError: no packet; fewer frames or seconds than the header promises; bytes missing at the end or in the
            middle; a demuxer that lost its way.
    """
    if packets.ticks.size == 0:
        raise VideoError(f"{path}: the video stream holds no frame; download it again")
    names = decoder.container.format.name.split(",")
    findings = Findings()
    _check_count(path, decoder, packets)
    if "matroska" in names:
        _check_length(path, decoder, packets)
    for name, find_fault in _FAULTS.items():
        if name in names:
            with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                fault = find_fault(data, decoder, packets, findings)
            if fault:
                raise VideoError(f"{path}: {fault}; {remedy(path)}")
    if "mov" in names and _overlap(packets):
        raise VideoError(f"{path}: its index gives the same bytes to two frames: damaged; download it again")
    complaints = [line for line in logged if line.startswith(f"{decoder.container.format.name}: ")]
    if complaints and not findings.has_odd_end:
        raise VideoError(f"{path}: damaged ({complaints[0].partition(': ')[2][:120]}); download it again")
    return findings


def mark_doubtful_end(path: Path, decoder: Decoder, packets: Packets) -> Packets:
    """Return `packets`, the last one marked as corrupt if a transport stream may have been cut within it."""
    if decoder.container.format.name != "mpegts":
        return packets
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        is_corrupt = packets.is_corrupt.copy()
        is_corrupt[-1] |= ends_in_full_packet(data, pid=decoder.stream.id)
    return replace(packets, is_corrupt=is_corrupt)


def _check_count(path: Path, decoder: Decoder, packets: Packets) -> None:
    """Raise VideoError if the header promises more frames than the file holds; of AVI also if fewer."""
    n_promised, n_packets = decoder.stream.frames, packets.ticks.size
    if n_promised > n_packets and "mov" in decoder.container.format.name:
        # An edit list may leave samples out; without it the demuxer shows all that are there.
        whole = Decoder(path, container_options={"ignore_editlist": "1"})
        n_packets = sum(1 for _ in packets_of(whole.container, whole.stream))
        whole.close()
    if decoder.container.format.name == "avi":
        if 0 < n_promised < n_packets:
            raise VideoError(
                f"{path}: the header promises {n_promised} frames, the file holds {n_packets}: part of it is there "
                "twice; download it again"
            )
        # AVI counts a repeated frame, which has an index entry but no packet; its time base is one frame. The last
        # frame may be repeated as often as any other.
        n_packets = max(n_packets, packets.end_ticks + int(np.diff(np.sort(packets.ticks)).max(initial=1)) - 1)
    if n_promised > n_packets:
        raise VideoError(
            f"{path}: the header promises {n_promised} frames, the file holds {n_packets}: cut off; {remedy(path)}"
        )


def _check_length(path: Path, decoder: Decoder, packets: Packets) -> None:
    """Raise VideoError if all streams end well before the duration that the header states, counted from time 0."""
    promised_seconds = (decoder.container.duration or 0) / _MICROSECONDS
    held_seconds = _held_seconds(decoder, packets)
    if promised_seconds - held_seconds <= _MAX_SECONDS_SHORT:
        return
    decoder.restart()
    ends = [
        (packet.pts + (packet.duration or 0)) * packet.time_base
        for packet in packets_of(decoder.container)
        if packet.pts is not None
    ]
    held_seconds = float(max(ends, default=0))
    if promised_seconds - held_seconds > _MAX_SECONDS_SHORT:
        raise VideoError(
            f"{path}: the header promises {promised_seconds:.1f} s, the file holds {held_seconds:.1f} s: cut off; "
            f"{remedy(path)}"
        )


def _held_seconds(decoder: Decoder, packets: Packets) -> float:
    """Return the time in seconds at which the last picture ends."""
    return float(packets.end_ticks * decoder.stream.time_base)


def _overlap(packets: Packets) -> bool:
    """Return True if two packets share bytes without being identical (a picture that is shown again)."""
    order = np.lexsort((packets.sizes, packets.places))
    starts, sizes = packets.places[order], packets.sizes[order]
    is_same = (np.diff(starts) == 0) & (np.diff(sizes) == 0)
    return bool(((starts[:-1] + sizes[:-1] > starts[1:]) & ~is_same & (starts[:-1] >= 0)).any())


def _mp4_fault(data: mmap.mmap, decoder: Decoder, packets: Packets, findings: Findings) -> str | None:
    """Return the fault in the boxes of an MP4, as a clause for a message, or None."""
    numbers: list[int] = []
    names, index = set(), None
    for name, start, length in mp4_boxes(data):
        if not name.strip(b"\0") and not data[start:].strip(b"\0"):
            return _padding_fault(data, start, decoder, packets, is_complete=not numbers or b"mfra" in names)
        if data[start : start + 3] in _TAGS and b"moov" in names:
            findings.notes.append(f"{len(data) - start} bytes of tags behind its last part")
            break
        is_box = all(32 <= byte < 127 or byte == _COPYRIGHT for byte in name) and length >= 8
        if index and not (is_box and start + length <= len(data)) and _nests(data, *index):
            findings.notes.append(f"{len(data) - start} bytes that belong to no part behind its last")
            break
        if not is_box:
            return f"damaged at byte {start}, where a box should begin"
        if start + length > len(data):
            box = name.decode("latin-1")
            is_index = name == b"mfra" and numbers
            if not is_index and (b"moov" not in names or numbers or not _has_all_samples(decoder.path)):
                return f"its part {box} needs {start + length} bytes, the file has {len(data)}: cut off"
            findings.note_end(f"its last part states {start + length - len(data)} bytes too many")
        # Behind the samples and their index, whatever follows was put there by a camera or an editor.
        if name == b"moov" and b"mdat" in names and not numbers:
            index = (start + 8, start + length)
        if name == b"moof":
            if data[start + 12 : start + 16] != b"mfhd" or not _nests(data, start + 8, start + length):
                return f"damaged at byte {start}, where a fragment begins"
            numbers.append(int.from_bytes(data[start + 20 : start + 24], "big"))
        names.add(name)
    return _fragment_fault(numbers)


def _fragment_fault(numbers: list[int]) -> str | None:
    """Return the fault in the numbers of an MP4's fragments, as a clause for a message, or None."""
    # A writer that does not count gives all the same number.
    if len(set(numbers)) < 2 or (np.diff(numbers) == 1).all():
        return None
    ordered, counts = np.unique(numbers, return_counts=True)
    gaps = ordered[:-1][np.diff(ordered) > 1]
    if gaps.size:
        return f"a fragment of it is missing, number {gaps[0] + 1}"
    if (counts > 1).any():
        return f"fragment {ordered[counts > 1][0]} of it is there twice"
    at = int(np.argmax(np.diff(numbers) != 1))
    return f"its fragments are in another order: after number {numbers[at]} comes {numbers[at + 1]}"


def _padding_fault(data: mmap.mmap, start: int, decoder: Decoder, packets: Packets, *, is_complete: bool) -> str | None:
    """Return None if the zeros from byte `start` to the end are padding, else the fault.

    After fragments they may also be reserved space, in a recording that was interrupted: then the index of fragments,
    which is written last, must be there, or the pictures must reach the end that the header states.
    """
    moov = next((data[at : at + length] for name, at, length in mp4_boxes(data) if name == b"moov"), b"")
    promised_seconds = _stated_seconds(moov)
    held_seconds = _held_seconds(decoder, packets)
    if is_complete or (promised_seconds and promised_seconds - held_seconds <= _MAX_SECONDS_SHORT):
        return None
    return f"only zeros from byte {start} on, where the next fragment should be: unfinished or cut off"


def _stated_seconds(moov: bytes) -> float:
    """Return the length in seconds, with all fragments, that a `moov` box states; 0 if none (ISO 14496-12, 8.8.2)."""
    header, extends = moov.find(b"mvhd"), moov.find(b"mehd")
    if header < 0:
        return 0.0
    wide = 8 if moov[header + 4] else 4
    at = header + 8 + 2 * wide
    ticks = int.from_bytes(moov[at : at + 4], "big")
    n_ticks = int.from_bytes(moov[at + 4 : at + 4 + wide], "big")
    if extends >= 0:
        n_ticks = int.from_bytes(moov[extends + 8 : extends + (16 if moov[extends + 4] else 12)], "big")
    return n_ticks / ticks if ticks else 0.0


def _has_all_samples(path: Path) -> bool:
    """Return True if every sample that the index names, of every stream, is whole in the file."""
    whole = Decoder(path, container_options={"ignore_editlist": "1"})
    n_missing = {stream.index: stream.frames for stream in whole.container.streams}
    is_whole = True
    for packet in packets_of(whole.container):
        n_missing[packet.stream_index] -= 1
        is_whole = is_whole and not packet.is_corrupt
    whole.close()
    return is_whole and not any(n_missing.values())


def _nests(data: mmap.mmap, start: int, stop: int) -> bool:
    """Return True if MP4 boxes exactly fill bytes `[start, stop)`, also inside tracks and their tables."""
    while start + 8 <= stop:
        length = int.from_bytes(data[start : start + 4], "big")
        if length < 8 or (data[start + 4 : start + 8] in _NESTED and not _nests(data, start + 8, start + length)):
            return False
        start += length
    return start == stop


def _asf_fault(data: mmap.mmap, decoder: Decoder, packets: Packets, findings: Findings) -> str | None:
    """Return the fault if the header promises more bytes than the file has, as a clause for a message, or None."""
    at = data.find(_ASF_FILE_PROPERTIES, 0, 1 << 16)
    if at < 0 or int.from_bytes(data[at + 88 : at + 92], "little") & _ASF_BROADCAST:
        return None
    promised = int.from_bytes(data[at + 40 : at + 48], "little")
    if promised > len(data):
        return f"the header promises {promised} bytes, the file has {len(data)}: cut off, or bytes are missing"
    return None


def _flv_fault(data: mmap.mmap, decoder: Decoder, packets: Packets, findings: Findings) -> str | None:
    """Return the fault in the tags of an FLV file, as a clause for a message, or None.

    A tag has 11 bytes of header with the size of the content, then 4 bytes with the size of both.
    """
    start = int.from_bytes(data[5:9], "big") + 4
    while start + 11 <= len(data):
        start += 11 + int.from_bytes(data[start + 1 : start + 4], "big") + 4
    # Some writers leave out the last 4 bytes, some pad with zeros. Without those 4 bytes the file may as well have been
    # cut there, so its pictures must then reach to the end that the header states.
    if start == len(data) or (start < len(data) and not data[start:].strip(b"\0")):
        return None
    promised = (decoder.container.duration or 0) / _MICROSECONDS
    if start == len(data) + 4 and promised - _held_seconds(decoder, packets) < 0.1:
        return None
    return "its last part is incomplete: cut off, or bytes are missing"


def _ogg_fault(data: mmap.mmap, decoder: Decoder, packets: Packets, findings: Findings) -> str | None:
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


def _marks_packets(decoder: Decoder) -> bool:
    decoder.restart()
    return any(packet.is_corrupt for packet in packets_of(decoder.container, decoder.stream))


_FAULTS: dict[str, Callable[[mmap.mmap, Any, Packets, Findings], str | None]] = {
    "mov": _mp4_fault,
    "asf": _asf_fault,
    "flv": _flv_fault,
    "ogg": _ogg_fault,
    "matroska": lambda data, decoder, packets, findings: matroska_fault(data, findings),
    "mpegts": lambda data, decoder, packets, findings: transport_fault(
        data,
        pid=decoder.stream.id,
        n_pictures=packets.ticks.size,
        findings=findings,
        is_marked=partial(_marks_packets, decoder),
    ),
    "mpeg": _program_fault,
}
