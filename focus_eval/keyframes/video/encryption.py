"""Tells whether a file's pictures are encrypted, so that a refusal names the cause."""

from __future__ import annotations

import mmap
import re
from pathlib import Path

# The scheme that a protected MP4 names (ISO 23001-7, 4.2), and Matroska's description of a cipher.
_MP4_SCHEME = re.compile(rb"schm\0...(?:cenc|cens|cbc1|cbcs)", re.DOTALL)
_MATROSKA_CIPHER = re.compile(rb"\x50\x35[\x80-\xff]\x47\xe1")
_TRANSPORT_PACKET, _SYNC, _PROGRAMME_MAP = 188, 0x47, 2
# Stream type of H.264 with encrypted samples, as HLS defines it.
_SAMPLE_AES = 0xDB
_SEARCHED_BYTES = 1 << 24


def is_encrypted(path: Path) -> bool:
    """Return True if a mark near a file's start or end states that its content is encrypted."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        if data[:1] == bytes((_SYNC,)) == data[_TRANSPORT_PACKET : _TRANSPORT_PACKET + 1]:
            return _is_transport_encrypted(data[:_SEARCHED_BYTES])
        head, tail = data[:_SEARCHED_BYTES], data[max(len(data) - _SEARCHED_BYTES, 0) :]
        return any(mark.search(part) for mark in (_MP4_SCHEME, _MATROSKA_CIPHER) for part in (head, tail))


def _is_transport_encrypted(data: bytes) -> bool:
    """True if a transport packet is scrambled, or a programme map names a stream with encrypted samples."""
    for start in range(0, len(data) - _TRANSPORT_PACKET + 1, _TRANSPORT_PACKET):
        packet = data[start : start + _TRANSPORT_PACKET]
        if packet[0] == _SYNC and packet[3] >> 6 > 1:
            return True
        is_map = packet[1] & 0x40 and packet[4] == 0 and packet[5] == _PROGRAMME_MAP
        if is_map and _SAMPLE_AES in _stream_types(packet[5:]):
            return True
    return False


def _stream_types(section: bytes) -> set[int]:
    """The types of the streams in a programme map (ISO 13818-1, 2.4.4.8)."""
    stop = min(3 + (int.from_bytes(section[1:3], "big") & 0xFFF) - 4, len(section) - 4)
    at, types = 12 + (int.from_bytes(section[10:12], "big") & 0xFFF), set()
    while at < stop:
        types.add(section[at])
        at += 5 + (int.from_bytes(section[at + 3 : at + 5], "big") & 0xFFF)
    return types
