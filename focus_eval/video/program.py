"""Checks that the packets of an MPEG program stream follow each other (ISO 13818-1, 2.5.3)."""

from __future__ import annotations

import mmap

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
