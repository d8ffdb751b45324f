"""Reads facts from coded pictures that containers lack: which are references, and where decoding can start."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from focus_eval.core.types import IntArray

_START = b"\x00\x00\x01"
_IDR, _SEI = 5, 6
_SLICES = (1, 2, 5)
_RECOVERY_POINT = 6
_HEVC_SLICES = range(32)
_ZEROS_IN_STREAM = re.compile(rb"\x00\x00(?:\x00+[^\x00\x01]|\x02)", re.DOTALL)
_ZEROS_IN_UNIT = re.compile(rb"\x00\x00(?:\x00[^\x01]|\x02)", re.DOTALL)
_STARTS = re.compile(rb"\x00\x00+\x01")
_MIN_PICTURE_BYTES = 9  # a shorter packet may be a mark that nothing is coded
_ZEROS_IN_MPEG = re.compile(rb"\x00\x00\x00+[^\x00\x01]", re.DOTALL)
_MAX_PADDING_BYTES = 3  # bytes: what fills a unit up to a multiple of four
_MAX_TAIL_BYTES = 256
# Bytes of a packet that are looked through for the first slice; parameter sets and messages come before it.
_MAX_HEAD_BYTES = 4096
_MPEG = ("mpeg1video", "mpeg2video", "mpeg4")
_WITH_START_CODES = ("h264", "hevc", *_MPEG)
AV1 = ("av1", "libdav1d", "libaom-av1")
_WITH_FEW_ZEROS = ("vp8", "libvpx", "vp9", "libvpx-vp9", *AV1)
_LONG_BLANK = bytes(64)  # the longest seen was 18, in a VP8 frame of one colour
_MPEG4_PICTURE, _MPEG4_B = 0xB6, 2
_MPEG2_PICTURE, _MPEG2_B = 0x00, 3


def reference_test(codec: str, extradata: bytes | None) -> Callable[[Any], bool] | None:
    """Return a test of a packet, True if other pictures may refer to it; None if packets of `codec` do not show it.

    The test agrees with FFmpeg's decoder set to drop unreferenced pictures. It returns True for an unreadable packet.
    """
    if codec == "h264":
        length_bytes = nal_length_bytes(extradata)
        return lambda packet: _is_h264_reference(packet, length_bytes)
    if codec in ("mpeg4", "mpeg2video"):
        code, kind = (_MPEG4_PICTURE, _MPEG4_B) if codec == "mpeg4" else (_MPEG2_PICTURE, _MPEG2_B)
        return lambda packet: _picture_kind(packet, code) != kind
    return None


def _is_h264_reference(packet: Any, length_bytes: int) -> bool:
    """Return True if a slice of an H.264 packet is marked as a reference, or the packet shows no slice."""
    kinds = [(header >> 5 & 3) > 0 for header, _ in nal_units(packet, length_bytes) if header & 31 in _SLICES]
    return any(kinds) if kinds else True


def _picture_kind(packet: Any, code: int) -> int | None:
    """Return a picture's coding type, None if not found: MPEG-4 (`code` 0xB6) 0 I, 1 P, 2 B; MPEG-2 1 I, 2 P, 3 B."""
    head = bytes(memoryview(packet)[:_MAX_HEAD_BYTES])
    at = head.find(_START + bytes([code]))
    if at < 0 or at + 6 > len(head):
        return None
    return head[at + 4] >> 6 if code == _MPEG4_PICTURE else head[at + 5] >> 3 & 7


def is_invisible(codec: str, packet: Any) -> bool:
    """Return True for a VP8 packet that is never shown: `show_frame`, bit 4, is 0 (RFC 6386, 9.1)."""
    return codec in ("vp8", "libvpx") and not memoryview(packet)[0] >> 4 & 1


def can_start(codec: str, packet: Any, length_bytes: int) -> bool:
    """Return True if decoding can start at a packet that its container marks as a sync packet; some mark all.

    Args:
        length_bytes: size of H.264's NAL length field, from `nal_length_bytes`.
    """
    if codec == "h264":
        return _starts_h264(packet, length_bytes)
    if codec == "mpeg4":
        return _picture_kind(packet, _MPEG4_PICTURE) in (None, 0)
    if codec in ("mpeg1video", "mpeg2video"):
        return _picture_kind(packet, _MPEG2_PICTURE) in (None, 1)
    if codec in ("vp8", "libvpx"):
        return not memoryview(packet)[0] & 1
    return True


def _starts_h264(packet: Any, length_bytes: int) -> bool:
    """Return True if an H.264 decoder started at this packet gives exactly its picture and all pictures shown after it.

    True for an IDR picture and for a recovery point that needs no further frame (ITU-T H.264, D.2.8). A gradual
    refresh, or an I picture without such a mark, is not a start.
    """
    for header, data in nal_units(packet, length_bytes):
        if header & 31 == _IDR:
            return True
        if header & 31 == _SEI and _recovery_frames(data) == 0:
            return True
    return False


def nal_length_bytes(extradata: bytes | None, codec: str = "h264") -> int:
    """Return the size in bytes of MP4's NAL length field (ISO 14496-15, 5.3.3 and 8.3.3), 0 if start codes are used."""
    at = 4 if codec == "h264" else 21
    return (extradata[at] & 3) + 1 if extradata and len(extradata) > at and extradata[0] == 1 else 0


def nal_units(packet: Any, length_bytes: int) -> Iterator[tuple[int, bytes]]:
    """Yield (header byte, up to 300 bytes after it) of a packet's NAL units; with start codes, of its first 4 KiB only.

    As in FFmpeg, a unit with a length may hold more units behind start codes: Samsung's cameras put a picture behind
    its prefix unit this way.
    """
    data = memoryview(packet)
    if length_bytes == 0:
        yield from _units_behind_codes(bytes(data[:_MAX_HEAD_BYTES]), 0)
        return
    for start, stop in _sized_units(data, length_bytes):
        yield data[start], bytes(data[start + 1 : min(stop, start + 300)])
        if data[start] & 31 not in _SLICES:
            yield from _units_behind_codes(bytes(data[start : min(stop, start + _MAX_HEAD_BYTES)]), 0)


def _units_behind_codes(head: bytes, at: int) -> Iterator[tuple[int, bytes]]:
    """Yield (header byte, up to 296 bytes after it) of the NAL units behind start codes from offset `at` on."""
    while (at := head.find(_START, at) + 3) > 2 and at < len(head):
        yield head[at], head[at + 1 : at + 297]


def _sized_units(data: memoryview, length_bytes: int) -> Iterator[tuple[int, int]]:
    """Yield [start, stop) of the NAL units that follow their length; the last `stop` may lie past the data."""
    at = 0
    while at + length_bytes < len(data):
        start = at + length_bytes
        at = start + int.from_bytes(data[at:start], "big")
        yield start, at


def may_be_padded(codec: str) -> bool:
    """Return True if zeros at the end of this codec's packets may be padding or damage; see `usual_padding`."""
    return codec in _WITH_START_CODES


def trailing_zeros(packet: Any) -> int:
    """Return the number of zeros at a packet's end; 0 if its last `_MAX_TAIL_BYTES` bytes are all zeros."""
    tail = bytes(memoryview(packet)[-_MAX_TAIL_BYTES:])
    content = tail.rstrip(b"\0")
    return len(tail) - len(content) if content else 0


def usual_padding(tails: IntArray) -> int:
    """Return the number of zeros that may follow a picture of a file; `tails`, `(n,)`, has the zeros at each end.

    Tools that cut units out of a stream leave up to three. Encoders in cameras fill picture after picture up to a
    multiple of 16 bytes or more: if three do, or half of a short file, zeros at the end are no sign of damage, up to
    twice the third largest number.
    """
    padded = np.sort(tails[tails > _MAX_PADDING_BYTES])[::-1]
    n_needed = min(3, -(-tails.size // 2))
    return max(15, 2 * int(padded[n_needed - 1])) if 0 < n_needed <= padded.size else _MAX_PADDING_BYTES


def blank_test(codec: str, extradata: bytes | None) -> Callable[[Any, int], bool] | None:
    """Return a test `(packet, padding)`, True if the packet holds zeros that no encoder writes; None if all are legal.

    `padding` is the number of zeros that may follow a picture. The test detects a blanked stretch that would decode
    without an error. H.264 and HEVC never hold 00 00 00 or 00 00 02 (ITU-T H.264, 7.4.1), MPEG-1, -2 and -4 no 23 zero
    bits except in a start code (ISO 14496-2, 5.2.3). For the zeros at the end see `usual_padding`; MPEG-1 and -2 may
    hold any number there. VP8, VP9 and AV1 may hold any, but hold few.
    """
    if codec in _WITH_FEW_ZEROS:
        return lambda packet, padding: _LONG_BLANK in bytes(packet)
    if codec not in _WITH_START_CODES:
        return None
    length_bytes = nal_length_bytes(extradata, codec)
    return lambda packet, padding: _has_blanked_part(codec, packet, length_bytes, padding)


def form_test(codec: str, extradata: bytes | None) -> Callable[[Any], bool]:
    """Return a test of a packet, True if its framing (start code, lengths or header) is that of `codec`.

    A packet that fails was overwritten. The end of the packet before it may be damaged too, which not every decoder
    notices.
    """
    length_bytes = nal_length_bytes(extradata, codec)
    if codec in ("h264", "hevc") and length_bytes:
        return lambda packet: _is_divided(memoryview(packet), length_bytes)
    if codec in ("h264", "hevc", "mpeg4"):
        return lambda packet: (
            packet.size < _MIN_PICTURE_BYTES or _STARTS.match(memoryview(packet)[:_MIN_PICTURE_BYTES]) is not None
        )
    test = {"vp8": _is_vp8, "libvpx": _is_vp8, "vp9": _is_vp9, "libvpx-vp9": _is_vp9}.get(codec)
    test = _is_av1 if codec in AV1 else test
    return (lambda packet: test(memoryview(packet))) if test is not None else lambda packet: True


def _is_divided(data: memoryview, length_bytes: int) -> bool:
    """Return True if NAL units with lengths fill a packet, up to zeros behind them, as FFmpeg accepts."""
    stop = 0
    for start, stop in _sized_units(data, length_bytes):
        if stop > len(data) or (stop > start and data[start] >> 7):
            return False
    return not bytes(data[stop:]).strip(b"\0")


def _is_vp8(data: memoryview) -> bool:
    """Return True if a frame's first partition fits in it, and a key frame has its start code (RFC 6386, 9.1)."""
    if len(data) < 3:
        return False
    head = int.from_bytes(data[:3], "little")
    return head >> 5 <= len(data) and (bool(head & 1) or bytes(data[3:6]) == b"\x9d\x01\x2a")


def _is_vp9(data: memoryview) -> bool:
    """Return True if a frame begins with its marker, the bits 10 (VP9 bitstream, 6.2)."""
    return data[0] >> 6 == 2


def _is_av1(data: memoryview) -> bool:
    """Return True if open bitstream units fill a packet (AV1 bitstream, 5.3); the last need not state its size."""
    at = 0
    while at < len(data):
        header, at = data[at], at + 1 + (data[at] >> 2 & 1)
        if header & 0x81:
            return False
        if not header & 2:
            return True
        size = shift = 0
        while at < len(data):
            size, shift, at = size | (data[at] & 127) << shift, shift + 7, at + 1
            if not data[at - 1] >> 7:
                break
        at += size
    return at == len(data)


def _has_blanked_part(codec: str, packet: Any, length_bytes: int, padding: int) -> bool:
    """Return True if the packet holds zeros that its codec's encoders never write; `padding` may follow a picture."""
    data = bytes(packet)
    if codec in _MPEG:
        is_blanked_end = codec == "mpeg4" and data.endswith(bytes(padding + 1))
        return is_blanked_end or _ZEROS_IN_MPEG.search(data) is not None
    if not length_bytes:
        # Of what follows start codes, only zeros in the middle are looked for: 00 00 00 01 is a start code itself.
        return _ZEROS_IN_STREAM.search(data) is not None
    slices = _SLICES if codec == "h264" else _HEVC_SLICES
    for start, stop in _sized_units(memoryview(data), length_bytes):
        kind = data[start] & 31 if codec == "h264" else data[start] >> 1 & 63
        first = start if kind in slices else data.find(_START, start, stop)
        if first >= 0 and _has_forbidden_zeros(data[first:stop], padding):
            return True
    return False


def _has_forbidden_zeros(unit: bytes, padding: int) -> bool:
    """Return True for a unit with bytes that escaping forbids, or more than `padding` zeros at its end."""
    if b"\0\0\0" not in unit and b"\0\0\2" not in unit:
        return False
    content = unit.rstrip(b"\0")
    return len(unit) - len(content) > padding or _ZEROS_IN_UNIT.search(content) is not None


def _recovery_frames(sei: bytes) -> int | None:
    """Return `recovery_frame_cnt` of the recovery point among an SEI unit's messages; None if it has none."""
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
    """Return the unsigned Exp-Golomb number at the start of `data` (ITU-T H.264, 9.1); None if it is cut off."""
    bits = "".join(f"{byte:08b}" for byte in data)
    n_zeros = bits.find("1")
    if n_zeros < 0 or len(bits) < 2 * n_zeros + 1:
        return None
    return int(bits[n_zeros : 2 * n_zeros + 1], 2) - 1
