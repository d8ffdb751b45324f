"""Reads from a coded picture what containers do not say: whether others refer to it, and whether decoding can start."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

_START = b"\x00\x00\x01"
_IDR, _SEI = 5, 6
_SLICES = (1, 2, 5)
_RECOVERY_POINT = 6
_HEVC_SLICES = range(32)
_FORBIDDEN = (b"\0\0\0", b"\0\0\2")
_ZEROS_IN_STREAM = re.compile(rb"\x00\x00(?:\x00+[^\x00\x01]|\x02)", re.DOTALL)
_ZEROS_IN_MPEG = re.compile(rb"\x00\x00\x00+[^\x00\x01]", re.DOTALL)
_MOST_PADDING = 3  # bytes: what fills a unit up to a multiple of four
# Bytes of a packet that are looked through for the first slice; parameter sets and messages come before it.
_HEAD = 4096
_MPEG = ("mpeg1video", "mpeg2video", "mpeg4")
_MPEG4_PICTURE, _MPEG4_B = 0xB6, 2
_MPEG2_PICTURE, _MPEG2_B = 0x00, 3


def reference_test(codec: str, extradata: bytes | None) -> Callable[[Any], bool] | None:
    """Return a function that says whether other pictures may refer to a packet; None where packets do not show it.

    It answers as FFmpeg's decoder does when it is told to drop pictures nobody refers to; what cannot be read counts
    as referred to.
    """
    if codec == "h264":
        length_bytes = nal_length_bytes(extradata)
        return lambda packet: _is_h264_reference(packet, length_bytes)
    if codec in ("mpeg4", "mpeg2video"):
        code, kind = (_MPEG4_PICTURE, _MPEG4_B) if codec == "mpeg4" else (_MPEG2_PICTURE, _MPEG2_B)
        return lambda packet: _picture_kind(packet, code) != kind
    return None


def _is_h264_reference(packet: Any, length_bytes: int) -> bool:
    kinds = [(header >> 5 & 3) > 0 for header, _ in nal_units(packet, length_bytes) if header & 31 in _SLICES]
    return any(kinds) if kinds else True


def _picture_kind(packet: Any, code: int) -> int | None:
    """Return the coding type of an MPEG-2 or MPEG-4 picture: MPEG-4 0 I, 1 P, 2 B; MPEG-2 1 I, 2 P, 3 B."""
    head = bytes(memoryview(packet)[:_HEAD])
    at = head.find(_START + bytes([code]))
    if at < 0 or at + 6 > len(head):
        return None
    return head[at + 4] >> 6 if code == _MPEG4_PICTURE else head[at + 5] >> 3 & 7


def is_invisible(codec: str, packet: Any) -> bool:
    """Tell whether a VP8 packet is an alternate reference frame: `show_frame`, bit 4, is 0 (RFC 6386, 9.1)."""
    return codec in ("vp8", "libvpx") and not memoryview(packet)[0] >> 4 & 1


def can_start(codec: str, packet: Any, length_bytes: int) -> bool:
    """Tell whether decoding can start at a packet that its container marks as a sync packet; some mark all.

    Args:
        length_bytes: of H.264's NAL units, as `nal_length_bytes` says.
    """
    if codec == "h264":
        return starts_h264(packet, length_bytes)
    if codec == "mpeg4":
        return _picture_kind(packet, _MPEG4_PICTURE) in (None, 0)
    if codec in ("mpeg1video", "mpeg2video"):
        return _picture_kind(packet, _MPEG2_PICTURE) in (None, 1)
    if codec in ("vp8", "libvpx"):
        return not memoryview(packet)[0] & 1
    return True


def starts_h264(packet: Any, length_bytes: int) -> bool:
    """Tell whether an H.264 decoder that starts at this packet gives it and all that is shown after it exactly.

    True for an IDR picture and for a recovery point that needs no further frame (ITU-T H.264, D.2.8). A gradual
    refresh, or an I picture that promises nothing, is not a start.
    """
    for header, data in nal_units(packet, length_bytes):
        if header & 31 == _IDR:
            return True
        if header & 31 == _SEI and _recovery_frames(data) == 0:
            return True
    return False


def nal_length_bytes(extradata: bytes | None, codec: str = "h264") -> int:
    """Return the bytes of a NAL unit's length in MP4's form (ISO 14496-15, 5.3.3 and 8.3.3), 0 for start codes."""
    at = 4 if codec == "h264" else 21
    return (extradata[at] & 3) + 1 if extradata and len(extradata) > at and extradata[0] == 1 else 0


def nal_units(packet: Any, length_bytes: int) -> Iterator[tuple[int, bytes]]:
    """Yield (header byte, first bytes after it) of the NAL units that begin near the start of a packet."""
    data = memoryview(packet)
    if length_bytes == 0:
        head = bytes(data[:_HEAD])
        at = head.find(_START)
        while at >= 0 and at + 3 < len(head):
            yield head[at + 3], head[at + 4 : at + 300]
            at = head.find(_START, at + 3)
        return
    at = 0
    while at + length_bytes < len(data):
        size = int.from_bytes(data[at : at + length_bytes], "big")
        start = at + length_bytes
        yield data[start], bytes(data[start + 1 : min(start + size, start + 300)])
        at = start + size


def has_blanked_part(codec: str, packet: Any, length_bytes: int) -> bool:
    """Tell whether a coded picture holds zeros as no encoder writes them: so a blanked stretch is noticed that would
    decode without an error.

    H.264 and HEVC never hold 00 00 00 or 00 00 02 (ITU-T H.264, 7.4.1), MPEG-1, -2 and -4 no 23 zero bits but in a
    start code (ISO 14496-2, 5.2.3). A few zeros at the end are padding, as writers leave it that cut units out of a
    stream; MPEG-2 may hold any number there.
    """
    data = bytes(packet)
    if codec in _MPEG:
        return _ZEROS_IN_MPEG.search(data) is not None or (codec == "mpeg4" and data.endswith(bytes(_MOST_PADDING + 1)))
    if not length_bytes:
        # Of what follows start codes, only zeros in the middle are looked for: 00 00 00 01 is a start code itself.
        return _ZEROS_IN_STREAM.search(data) is not None
    at = 0
    while at + length_bytes < len(data):
        size = int.from_bytes(data[at : at + length_bytes], "big")
        start = at + length_bytes
        kind = data[start] & 31 if codec == "h264" else data[start] >> 1 & 63
        stop = start + size
        if kind in (_SLICES if codec == "h264" else _HEVC_SLICES) and (_holds(data, start, stop)):
            return True
        at = stop
    return False


def _holds(data: bytes, start: int, stop: int) -> bool:
    for mark in _FORBIDDEN:
        found = data.find(mark, start, stop)
        if found < 0:
            continue
        rest = data[found:stop]
        if len(rest) > _MOST_PADDING or rest.strip(b"\0"):
            return True
    return False


def _recovery_frames(sei: bytes) -> int | None:
    """Return `recovery_frame_cnt` of the recovery point among an SEI unit's messages, None where it has none."""
    at = 0
    while at + 2 < len(sei):
        kind, at = _sei_number(sei, at)
        size, at = _sei_number(sei, at)
        if kind == _RECOVERY_POINT:
            return _exp_golomb(sei[at : at + 5])
        at += size
    return None


def _sei_number(sei: bytes, at: int) -> tuple[int, int]:
    """Return a message's type or size, written as bytes of 255 and a last byte, and where the next field is."""
    total = 0
    while at < len(sei) and sei[at] == 255:
        total, at = total + 255, at + 1
    return total + (sei[at] if at < len(sei) else 0), at + 1


def _exp_golomb(data: bytes) -> int | None:
    """Return the unsigned Exp-Golomb number at the start of `data` (ITU-T H.264, 9.1)."""
    bits = "".join(f"{byte:08b}" for byte in data)
    n_zeros = bits.find("1")
    if n_zeros < 0 or len(bits) < 2 * n_zeros + 1:
        return None
    return int(bits[n_zeros : 2 * n_zeros + 1], 2) - 1
