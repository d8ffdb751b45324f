"""Checks that a file is whole, as far as its container can say."""

from __future__ import annotations

import mmap
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from focus_eval.core.errors import VideoError
from focus_eval.video.decoder import Decoder
from focus_eval.video.frame_index import Packets, packets_of

BY_CHECKSUM, BY_STRUCTURE, UNCHECKED = "checked by checksum", "checked by structure", "cannot be checked"
# Decoders that notice most damage within a picture; the others decode nearly every stream of bytes to some picture.
_NOTICE_DAMAGE = ("h264", "hevc", "mpeg4", "mpeg1video", "mpeg2video", "ffv1")


@dataclass
class Findings:
    """What the check of a container learned.

    Args:
        notes: what is unusual about the file and does no harm.
        has_checksums: every picture's bytes were compared with a checksum.
    """

    notes: list[str] = field(default_factory=list)
    has_checksums: bool = False


def kind_of_check(codec: str, findings: Findings) -> str:
    """Return how far damage within the pictures of a file would be noticed."""
    if findings.has_checksums:
        return BY_CHECKSUM
    return BY_STRUCTURE if codec in _NOTICE_DAMAGE else UNCHECKED


_PACK, _END, _FIRST_STREAM = 0xBA, 0xB9, 0xBB
_MPEG1_PACK, _MPEG2_PACK = 12, 14


def program_fault(data: mmap.mmap, *, stream: int, n_packets: int) -> str | None:
    """Return what is wrong with the structure of a program stream, None where nothing is.

    Args:
        stream: id of the video stream.
        n_packets: pictures that the demuxer found; each time stamp belongs to one of its own.
    """
    at, n_times = 0, 0
    while at + 6 <= len(data):
        kind = data[at + 3]
        if data[at : at + 3] != b"\0\0\1" or kind < _END:
            return None if not data[at:].strip(b"\0") else f"damaged at byte {at}, where a packet should begin"
        if kind == _PACK:
            at += _MPEG2_PACK + (data[at + 13] & 7) if data[at + 4] >> 6 == 1 else _MPEG1_PACK
        elif kind == _END:
            at += 4
        else:
            n_times += kind == stream and _has_time(data, at + 6)
            at += 6 + int.from_bytes(data[at + 4 : at + 6], "big")
    if at > len(data):
        return "its last packet is incomplete: cut off"
    return f"{n_times - n_packets} of its pictures are missing" if n_times > n_packets else None


def _has_time(data: mmap.mmap, at: int) -> bool:
    """Tell whether a packet's header holds a presentation time (MPEG-2: a flag; MPEG-1: a mark behind the stuffing)."""
    if data[at] >> 6 == 2:
        return data[at + 1] >> 7 == 1
    while at < len(data) and data[at] == 0xFF:
        at += 1
    if at + 2 < len(data) and data[at] >> 6 == 1:
        at += 2
    return at < len(data) and data[at] >> 4 in (2, 3)


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


def matroska_fault(data: mmap.mmap, findings: Findings) -> str | None:
    """Return what is wrong with the structure of a Matroska or WebM file, None where nothing is.

    Live recordings state no sizes; of those nothing is said. Where the writer left CRC-32 checksums (FFmpeg does, in
    Matroska but not in WebM), the bytes of each part are compared with them (RFC 8794, 11.3.1).
    """
    at, kind, size = _header(data, 0)
    if kind != _EBML or size is None:
        return None
    at, kind, size = _header(data, at + size)
    if kind != _SEGMENT or size is None:
        return None
    if at + size > len(data):
        return f"the header promises {at + size} bytes, the file has {len(data)}: cut off, or bytes are missing"
    return _segment_fault(data, at, at + size, findings)


def _segment_fault(data: mmap.mmap, at: int, end: int, findings: Findings) -> str | None:
    n_clusters = n_compared = 0
    while at < end:
        start, kind, size = _header(data, at)
        if size is None and kind == _CLUSTER:
            return None
        if size is None or kind not in _PARTS or start + size > end:
            return f"damaged at byte {at}, where a part of the file should begin"
        is_right = _crc_agrees(data, start, start + size)
        if is_right is False:
            if kind not in _HOLD_NO_PICTURES:
                return f"damaged between bytes {start} and {start + size}, whose checksum does not match"
            findings.notes.append(f"the checksum of its {_HOLD_NO_PICTURES[kind]} does not match")
        if kind == _CLUSTER:
            n_clusters, n_compared = n_clusters + 1, n_compared + (is_right is True)
        at = start + size
    findings.has_checksums = 0 < n_clusters == n_compared
    return None


def matroska_has_checksums(data: mmap.mmap) -> bool:
    """Tell whether the first cluster begins with a checksum, as then do all."""
    at = data.find(_CLUSTER.to_bytes(4, "big"))
    return at >= 0 and data[_header(data, at)[0]] == _CRC


def _crc_agrees(data: mmap.mmap, start: int, stop: int) -> bool | None:
    """Return whether a part agrees with the checksum at its start; None where it has none."""
    if stop - start <= 6 or data[start] != _CRC or data[start + 1] != 0x84:
        return None
    return zlib.crc32(memoryview(data)[start + 6 : stop]) == int.from_bytes(data[start + 2 : start + 6], "little")


def _header(data: mmap.mmap, at: int) -> tuple[int, int, int | None]:
    """Return (offset of the content, id, size) of the element at `at`; size None where it is unknown or unreadable."""
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
_LENGTHS = ((188, 0), (192, 4), (204, 0))
# Flags and a clock.
_CLOCK_LENGTH = 7
# Between two recordings that were joined lie the tables that begin the second: that many packets back at most.
_MOST_TABLES = 8
_CHUNK = 1 << 20


def transport_fault(data: mmap.mmap, *, pid: int, n_pictures: int, findings: Findings) -> str | None:
    """Return what is wrong with the packets of stream `pid`, None where nothing is.

    The counter that each packet carries must go up by 1 modulo 16. It may jump where a new recording begins: behind a
    programme table, at the start of a picture that can be decoded by itself. No picture is spread over two units that
    each have a beginning, so there are at least as many pictures as beginnings.

    Args:
        n_pictures: that the demuxer found.
    """
    shape = next(((length, skip) for length, skip in _LENGTHS if _is_aligned(data, length, skip)), None)
    if shape is None:
        return None
    length, skip = shape
    size = _unpadded_size(data, length, findings)
    if size % length:
        return f"it ends within a packet ({size} bytes in packets of {length}): cut off"
    packets = np.frombuffer(data, dtype=np.uint8, count=size).reshape(-1, length)[:, skip:]
    head = packets[:, :6].copy()
    del packets
    if (head[:, 0] != _SYNC).any():
        return f"packet {int(np.argmax(head[:, 0] != _SYNC))} of {len(head)} is damaged"
    pids = (head[:, 1].astype(np.int64) & 31) << 8 | head[:, 2]
    n_starts = int((head[pids == pid, 1] & 0x40 > 0).sum())
    if n_starts > n_pictures:
        return f"{n_starts - n_pictures} of its pictures are missing"
    return _counter_fault(head, pids, pid)


def _unpadded_size(data: mmap.mmap, length: int, findings: Findings) -> int:
    """Return the size without zeros behind the last packet; a packet of which a part is zeros counts as cut."""
    size = len(data)
    while size and data[size - 1] == 0:
        start = max(size - _CHUNK, 0)
        size = start + len(data[start:size].rstrip(b"\0"))
    if size == len(data) or size % length:
        return len(data)
    findings.notes.append(f"{len(data) - size} zeros behind its last packet")
    return size


def _is_aligned(data: mmap.mmap, length: int, skip: int) -> bool:
    places = range(skip, min(len(data), length * 8), length)
    return sum(data[place] == _SYNC for place in places) >= max(len(places) - 2, 1)


def ends_full(data: mmap.mmap, *, pid: int) -> bool:
    """Return whether the last packet of stream `pid` is full: its picture may continue in a missing packet.

    A muxer fills the last packet of a picture up with stuffing, unless the picture happens to fit (1 of 184).
    """
    shape = next(((length, skip) for length, skip in _LENGTHS if _is_aligned(data, length, skip)), None)
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
    at = np.flatnonzero(pids == pid)
    flags = head[at]
    if (flags[:, 1] & 0x80).any():
        return f"packet {int(at[np.argmax(flags[:, 1] & 0x80)])} is marked as damaged by the receiver"
    has_adaptation = (flags[:, 3] & 0x20 > 0) & (flags[:, 4] > 0)
    is_announced = has_adaptation & (flags[:, 5] & 0x80 > 0)
    is_start = (flags[:, 1] & 0x40 > 0) & has_adaptation & (flags[:, 5] & 0x40 > 0)
    counter = (flags[:, 3] & 15).astype(np.int64)
    carries = flags[:, 3] & 0x10 > 0
    step = (np.diff(counter) - carries[1:]) % 16
    # A packet may be sent twice; its counter then stays.
    is_repeat = (np.diff(counter) == 0) & carries[1:]
    for jump in np.flatnonzero((step != 0) & ~is_repeat) + 1:
        before = pids[max(int(at[jump]) - _MOST_TABLES, 0) : at[jump]]
        if not is_announced[jump] and not (is_start[jump] and (before == 0).any()):
            return f"packets of the video are missing before packet {int(at[jump])} of {pids.size}"
    return None


_MICROSECONDS = 1_000_000
# Header times are rounded, and some muxers leave the last frame out.
_MOST_SECONDS_SHORT = 1.0
_ASF_FILE_PROPERTIES = bytes.fromhex("a1dcab8c47a9cf118ee400c00c205365")
_ASF_BROADCAST = 1
_OGG_LAST_PAGE = 4
_COPYRIGHT = 0xA9
_NESTED = (b"traf", b"trak", b"mdia", b"minf", b"stbl")
# Players' tags that are put behind a file.
_TAGS = (b"ID3", b"TAG", b"APE")


def check_whole(path: Path, decoder: Decoder, packets: Packets, *, logged: list[str]) -> Findings:
    """Raise where the container shows that something is missing, or was written over; return what else it shows.

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
    if "matroska" in names or "flv" in names:
        _check_length(path, decoder, packets)
    for name, find_fault in _FAULTS.items():
        if name in names:
            with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                fault = find_fault(data, decoder, packets, findings)
            if fault:
                raise VideoError(f"{path}: {fault}; download it again")
    if "mov" in names and _overlap(packets):
        raise VideoError(f"{path}: its index gives the same bytes to two frames: damaged; download it again")
    # Of padding behind a transport stream the demuxer complains, too.
    is_harmless = "mpegts" in names and bool(findings.notes)
    said = [line for line in logged if line.startswith(f"{decoder.container.format.name}: ") and not is_harmless]
    if said:
        raise VideoError(f"{path}: damaged ({said[0].partition(': ')[2][:120]}); download it again")
    return findings


def mark_doubtful_end(path: Path, decoder: Decoder, packets: Packets) -> Packets:
    """Return `packets` with the last one marked as corrupt where a transport stream may have been cut within it."""
    if decoder.container.format.name != "mpegts":
        return packets
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        is_corrupt = packets.is_corrupt.copy()
        is_corrupt[-1] |= ends_full(data, pid=decoder.stream.id)
    return replace(packets, is_corrupt=is_corrupt)


def _check_count(path: Path, decoder: Decoder, packets: Packets) -> None:
    promised, held = decoder.stream.frames, packets.ticks.size
    if promised > held and "mov" in decoder.container.format.name:
        # An edit list may leave samples out; without it the demuxer shows all that are there.
        whole = Decoder(path, container_options={"ignore_editlist": "1"})
        held = sum(1 for _ in packets_of(whole.container, whole.stream))
        whole.close()
    if decoder.container.format.name == "avi":
        # AVI counts a repeated frame, which has an index entry but no packet; its time base is one frame. The last
        # frame may be repeated as often as any other.
        held = max(held, packets.end_ticks + int(np.diff(np.sort(packets.ticks)).max(initial=1)) - 1)
    if promised > held:
        raise VideoError(
            f"{path}: the header promises {promised} frames, the file holds {held}: cut off; download it again"
        )


def _check_length(path: Path, decoder: Decoder, packets: Packets) -> None:
    """Compare the end of the last packet of any stream with the header's duration, which counts from time 0."""
    promised = (decoder.container.duration or 0) / _MICROSECONDS
    held = float(packets.end_ticks * decoder.stream.time_base)
    if promised - held <= _MOST_SECONDS_SHORT:
        return
    decoder.restart()
    ends = [
        (packet.pts + (packet.duration or 0)) * packet.time_base
        for packet in packets_of(decoder.container)
        if packet.pts is not None
    ]
    held = float(max(ends, default=0))
    if promised - held > _MOST_SECONDS_SHORT:
        raise VideoError(
            f"{path}: the header promises {promised:.1f} s, the file holds {held:.1f} s: cut off; download it again"
        )


def _overlap(packets: Packets) -> bool:
    """Tell whether two packets share bytes without being the same (a picture that is shown again)."""
    order = np.lexsort((packets.sizes, packets.places))
    starts, sizes = packets.places[order], packets.sizes[order]
    is_same = (np.diff(starts) == 0) & (np.diff(sizes) == 0)
    return bool(((starts[:-1] + sizes[:-1] > starts[1:]) & ~is_same & (starts[:-1] >= 0)).any())


def _mp4_fault(data: mmap.mmap, decoder: Decoder, packets: Packets, findings: Findings) -> str | None:
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
            what = name.decode("latin-1")
            if name != b"mdat" or numbers or not _has_all_samples(decoder.path):
                return f"its part {what} needs {start + length} bytes, the file has {len(data)}: cut off"
            findings.notes.append(f"its last part states {start + length - len(data)} bytes too many")
        # Behind the samples and their index, whatever follows was put there by a camera or an editor.
        if name == b"moov" and b"mdat" in names and not numbers:
            index = (start + 8, start + length)
        if name == b"moof":
            if data[start + 12 : start + 16] != b"mfhd" or not _nests(data, start + 8, start + length):
                return f"damaged at byte {start}, where a fragment begins"
            numbers.append(int.from_bytes(data[start + 20 : start + 24], "big"))
        names.add(name)
    # Fragments are counted; a writer that does not count gives all the same number.
    if len(set(numbers)) > 1 and (np.diff(numbers) != 1).any():
        return "a fragment of it is missing"
    return None


def _padding_fault(data: mmap.mmap, start: int, decoder: Decoder, packets: Packets, *, is_complete: bool) -> str | None:
    """Return None where zeros up to the end are padding.

    Behind fragments they may as well be space for more of them, in a recording that did not end: then the index of
    fragments, which is written last, must be there, or the pictures must reach to the end that the header states.
    """
    moov = next((data[at : at + length] for name, at, length in mp4_boxes(data) if name == b"moov"), b"")
    promised = _stated_seconds(moov)
    held = float(packets.end_ticks * decoder.stream.time_base)
    if is_complete or (promised and promised - held <= _MOST_SECONDS_SHORT):
        return None
    return f"only zeros from byte {start} on, where the next fragment should be: unfinished or cut off"


def _stated_seconds(moov: bytes) -> float:
    """Return the length with all fragments that a `moov` box states, 0 where it states none (ISO 14496-12, 8.8.2)."""
    header, extends = moov.find(b"mvhd"), moov.find(b"mehd")
    if header < 0:
        return 0.0
    wide = 8 if moov[header + 4] else 4
    at = header + 8 + 2 * wide
    ticks = int.from_bytes(moov[at : at + 4], "big")
    stated = int.from_bytes(moov[at + 4 : at + 4 + wide], "big")
    if extends >= 0:
        stated = int.from_bytes(moov[extends + 8 : extends + (16 if moov[extends + 4] else 12)], "big")
    return stated / ticks if ticks else 0.0


def _has_all_samples(path: Path) -> bool:
    """Tell whether every sample of every stream that the index names is whole in the file."""
    whole = Decoder(path, container_options={"ignore_editlist": "1"})
    left = {stream.index: stream.frames for stream in whole.container.streams}
    is_whole = True
    for packet in packets_of(whole.container):
        left[packet.stream_index] -= 1
        is_whole = is_whole and not packet.is_corrupt
    whole.close()
    return is_whole and not any(left.values())


def _nests(data: mmap.mmap, start: int, stop: int) -> bool:
    """Tell whether the boxes in `[start, stop)` fill it, and those in tracks and their tables likewise."""
    while start + 8 <= stop:
        length = int.from_bytes(data[start : start + 4], "big")
        if length < 8 or (data[start + 4 : start + 8] in _NESTED and not _nests(data, start + 8, start + length)):
            return False
        start += length
    return start == stop


def mp4_boxes(data: mmap.mmap) -> Iterator[tuple[bytes, int, int]]:
    """Yield (name, offset, length) of the boxes at the top level of an MP4, the last perhaps longer than the file."""
    start = 0
    while start + 8 <= len(data):
        length = int.from_bytes(data[start : start + 4], "big")
        if length == 1:
            length = int.from_bytes(data[start + 8 : start + 16], "big")
        length = length or len(data) - start
        yield data[start + 4 : start + 8], start, length
        start += max(length, 8)


def _avi_fault(data: mmap.mmap, decoder: Decoder, packets: Packets, findings: Findings) -> str | None:
    """Follow the RIFF parts, of which a file over 1 GB has several; behind them there may be a tag or padding."""
    start = 0
    while data[start : start + 4] == b"RIFF":
        length = int.from_bytes(data[start + 4 : start + 8], "little")
        if start + 8 + length > len(data):
            return (
                f"the header promises {start + 8 + length} bytes, the file has {len(data)}: cut off, or bytes missing"
            )
        if length == 0:
            return None
        start += 8 + length + length % 2
    rest = data[start:]
    if rest.strip(b"\0") and not rest.startswith((b"TAG", b"ID3", b"JUNK")):
        return f"it goes on after its end at byte {start}: damaged"
    return None


def _asf_fault(data: mmap.mmap, decoder: Decoder, packets: Packets, findings: Findings) -> str | None:
    at = data.find(_ASF_FILE_PROPERTIES, 0, 1 << 16)
    if at < 0 or int.from_bytes(data[at + 88 : at + 92], "little") & _ASF_BROADCAST:
        return None
    promised = int.from_bytes(data[at + 40 : at + 48], "little")
    if promised > len(data):
        return f"the header promises {promised} bytes, the file has {len(data)}: cut off, or bytes are missing"
    return None


def _flv_fault(data: mmap.mmap, decoder: Decoder, packets: Packets, findings: Findings) -> str | None:
    """Follow the tags: 11 bytes of header with the size of what follows, then 4 bytes with the size of both."""
    start = int.from_bytes(data[5:9], "big") + 4
    while start + 11 <= len(data):
        start += 11 + int.from_bytes(data[start + 1 : start + 4], "big") + 4
    # Some writers leave out the last 4 bytes, some pad with zeros. Without those 4 bytes the file may as well have been
    # cut there, so its pictures must then reach to the end that the header states.
    if start == len(data) or (start < len(data) and not data[start:].strip(b"\0")):
        return None
    promised = (decoder.container.duration or 0) / _MICROSECONDS
    if start == len(data) + 4 and promised - float(packets.end_ticks * decoder.stream.time_base) < 0.1:
        return None
    return "its last part is incomplete: cut off, or bytes are missing"


def _ogg_fault(data: mmap.mmap, decoder: Decoder, packets: Packets, findings: Findings) -> str | None:
    """Follow the pages; the last one of each stream must say that it is the last (RFC 3533, 6)."""
    start, last = 0, {}
    while data[start : start + 4] == b"OggS" and start + 27 <= len(data):
        n_segments = data[start + 26]
        last[data[start + 14 : start + 18]] = data[start + 5] & _OGG_LAST_PAGE
        start += 27 + n_segments + sum(data[start + 27 : start + 27 + n_segments])
    if start != len(data):
        return f"its pages end at {start} of {len(data)} bytes: cut off or damaged"
    findings.has_checksums = True  # of each page, compared by FFmpeg
    return None if all(last.values()) else "its last page is missing: cut off"


_FAULTS: dict[str, Callable[[mmap.mmap, Any, Packets, Findings], str | None]] = {
    "mov": _mp4_fault,
    "avi": _avi_fault,
    "asf": _asf_fault,
    "flv": _flv_fault,
    "ogg": _ogg_fault,
    "matroska": lambda data, decoder, packets, findings: matroska_fault(data, findings),
    "mpegts": lambda data, decoder, packets, findings: transport_fault(
        data, pid=decoder.stream.id, n_pictures=packets.ticks.size, findings=findings
    ),
    "mpeg": lambda data, decoder, packets, findings: program_fault(
        data, stream=decoder.stream.id, n_packets=packets.ticks.size
    ),
}
