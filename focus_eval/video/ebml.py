"""Walks through a Matroska file and checks that its parts follow each other and match their checksums."""

from __future__ import annotations

import mmap
import zlib

_EBML, _SEGMENT, _CLUSTER, _CRC = 0x1A45DFA3, 0x18538067, 0x1F43B675, 0xBF
# What may lie directly in a segment (RFC 9559, 5.1): SeekHead, Info, Tracks, Cluster, Cues, Attachments, Chapters and
# Tags; Void and CRC-32 may lie anywhere.
_PARTS = {0x114D9B74, 0x1549A966, 0x1654AE6B, _CLUSTER, 0x1C53BB6B, 0x1941A469, 0x1043A770, 0x1254C367, 0xEC, _CRC}


def matroska_fault(data: mmap.mmap) -> str | None:
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
    return _segment_fault(data, at, at + size)


def _segment_fault(data: mmap.mmap, at: int, end: int) -> str | None:
    while at < end:
        start, kind, size = _header(data, at)
        if size is None and kind == _CLUSTER:
            return None
        if size is None or kind not in _PARTS or start + size > end:
            return f"damaged at byte {at}, where a part of the file should begin"
        if size > 6 and data[start] == _CRC and data[start + 1] == 0x84:
            said = int.from_bytes(data[start + 2 : start + 6], "little")
            if zlib.crc32(memoryview(data)[start + 6 : start + size]) != said:
                return f"damaged between bytes {start} and {start + size}, whose checksum does not match"
        at = start + size
    return None


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
