"""Reads the NAL units of H.264 and HEVC packets: where decoding can start, what refers to what, what is damaged."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from typing import Any

START = b"\x00\x00\x01"
# Bytes of a packet that are looked through for the first slice; parameter sets and messages come before it.
MAX_HEAD_BYTES = 4096
H264_SLICES, HEVC_SLICES = (1, 5), range(32)
_IDR, _SEI, _SEQUENCE = 5, 6, 7
_RECOVERY_POINT = 6
_INTRA = 2  # a slice type modulo 5


def nal_length_bytes(extradata: bytes | None, codec: str = "h264") -> int:
    """Return the size in bytes of MP4's NAL length field (ISO 14496-15, 5.3.3 and 8.3.3), 0 if start codes are used."""
    at = 4 if codec == "h264" else 21
    return (extradata[at] & 3) + 1 if extradata and len(extradata) > at and extradata[0] == 1 else 0


def nal_units(packet: Any, length_bytes: int) -> tuple[list[tuple[int, bytes]], bool]:
    """Return the NAL units of an H.264 packet, and True if they fill it, up to zeros behind them, as FFmpeg accepts.

    A unit is (header byte, up to 300 bytes after it); with start codes, those of the first 4 KiB only. As in FFmpeg, a
    unit with a length may hold more units behind start codes: Samsung's cameras put a picture behind its prefix unit
    this way.
    """
    if length_bytes == 0:
        return list(_units_behind_codes(bytes(memoryview(packet)[:MAX_HEAD_BYTES]))), True
    data = bytes(packet)
    units: list[tuple[int, bytes]] = []
    at, size, fills = 0, len(data), True
    # Not by `sized_units`: for each frame that is asked for, dozens of packets are looked at.
    while at + length_bytes < size:
        start = at + length_bytes
        at = start + int.from_bytes(data[at:start], "big")
        header = data[start]
        fills = fills and at <= size and (header < 128 or at == start)
        units.append((header, data[start + 1 : min(at, start + 300)]))
        if header & 31 not in H264_SLICES:
            units += _units_behind_codes(data[start : min(at, start + MAX_HEAD_BYTES)])
    return units, fills and not data[at:].strip(b"\0")


def _units_behind_codes(head: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while (at := head.find(START, at) + 3) > 2 and at < len(head):
        yield head[at], head[at + 1 : at + 297]


def sized_units(data: memoryview, length_bytes: int) -> Iterator[tuple[int, int]]:
    """Yield [start, stop) of the NAL units that follow their length; the last `stop` may lie past the data."""
    at = 0
    while at + length_bytes < len(data):
        start = at + length_bytes
        at = start + int.from_bytes(data[at:start], "big")
        yield start, at


def is_divided(data: memoryview, length_bytes: int) -> bool:
    """Return True if NAL units with lengths fill a packet, up to zeros behind them, as FFmpeg accepts."""
    stop = 0
    for start, stop in sized_units(data, length_bytes):
        if stop > len(data) or (stop > start and data[start] >> 7):
            return False
    return not bytes(data[stop:]).strip(b"\0")


def is_h264_reference(units: Sequence[tuple[int, bytes]]) -> bool:
    """Return True if a slice of an H.264 packet is marked as a reference, or its `units` show no slice."""
    kinds = [(header >> 5 & 3) > 0 for header, _ in units if header & 31 in H264_SLICES]
    return any(kinds) if kinds else True


def starts_h264(packet: Any, length_bytes: int) -> bool:
    """Return True if an H.264 decoder started at this packet gives exactly its picture and all pictures shown after it.

    True for an IDR picture and for a recovery point that needs no further frame (ITU-T H.264, D.2.8). A gradual
    refresh, or an I picture without such a mark, is not a start.
    """
    units, _ = nal_units(packet, length_bytes)
    for header, data in units:
        if header & 31 == _IDR:
            return True
        if header & 31 == _SEI and _recovery_frames(data) == 0:
            return True
    return False


def _recovery_frames(sei: bytes) -> int | None:
    """Return `recovery_frame_cnt` of the recovery point among an SEI unit's messages; None if it has none."""
    at = 0
    while at + 2 < len(sei):
        kind, at = _sei_number(sei, at)
        size, at = _sei_number(sei, at)
        if kind == _RECOVERY_POINT:
            bits = _Bits(sei[at : at + 5])
            n_frames = bits.exp_golomb()
            return None if bits.is_past_end else n_frames
        at += size
    return None


def _sei_number(sei: bytes, at: int) -> tuple[int, int]:
    """Return a message's type or size, written as bytes of 255 and a last byte, and where the next field is."""
    total = 0
    while at < len(sei) and sei[at] == 255:
        total, at = total + 255, at + 1
    return total + (sei[at] if at < len(sei) else 0), at + 1


class _Bits:
    """Reads the bits of a NAL unit behind its header; zeros behind the end."""

    def __init__(self, data: bytes) -> None:
        # Encoders put a 3 behind two zeros, so that no start code appears (ITU-T H.264, 7.4.1).
        content = data.replace(b"\0\0\3", b"\0\0")
        self._bits, self._n_left = int.from_bytes(content, "big"), 8 * len(content)

    @property
    def is_past_end(self) -> bool:
        """True if more was read than there is."""
        return self._n_left < 0

    def number(self, n_bits: int) -> int:
        """Return the next bits as a number."""
        self._n_left -= n_bits
        bits = self._bits >> self._n_left if self._n_left >= 0 else self._bits << -self._n_left
        return bits & ((1 << n_bits) - 1)

    def exp_golomb(self) -> int:
        """Return the next unsigned Exp-Golomb number (ITU-T H.264, 9.1)."""
        n_left = max(self._n_left, 0)
        n_zeros = n_left - (self._bits & ((1 << n_left) - 1)).bit_length()
        self._n_left -= n_zeros
        return self.number(n_zeros + 1) - 1


# Profiles of H.264 whose parameters state how colours are stored (ITU-T H.264, 7.3.2.1.1).
_HIGH_PROFILES = (100, 110, 122, 244, 44, 83, 86, 118, 128, 138, 139, 134, 135)
_CHROMA_444 = 3


class PictureNumbers:
    """Follows the numbers that H.264 gives its pictures, in decoding order (`frame_num`, ITU-T H.264, 7.4.3).

    A picture after a reference has the next number. One that has a later number needs a picture that is missing, or
    whose mark as a reference was overwritten; FFmpeg then puts an earlier picture in its place, and logs nothing.

    Args:
        extradata: of the stream, with its parameters.
    """

    def __init__(self, extradata: bytes | None) -> None:
        self._numberings: set[tuple[int, bool]] = set()
        self._latest: int | None = None  # of the reference picture decoded last
        self._may_restart = False
        if extradata and nal_length_bytes(extradata):
            at = 6
            for _ in range(extradata[5] & 31):
                size = int.from_bytes(extradata[at : at + 2], "big")
                self._numberings.add(_numbering(extradata[at + 3 : at + 2 + size]))
                at += 2 + size
        elif extradata:
            units = _units_behind_codes(extradata)
            self._numberings |= {_numbering(data) for header, data in units if header & 31 == _SEQUENCE}

    def follow(self, units: Sequence[tuple[int, bytes]]) -> bool:
        """Return True if a packet's number follows those of the packets before, or no number is known.

        Args:
            units: of the packet, from `nal_units`.
        """
        for header, data in units:
            if header & 31 == _SEQUENCE:
                self._numberings.add(_numbering(data))
            if header & 31 in H264_SLICES:
                break
        else:
            return True
        if len(self._numberings) != 1:
            return True
        ((n_bits, may_skip),) = self._numberings
        bits = _Bits(data[:12])
        bits.exp_golomb()  # its first macroblock
        kind = bits.exp_golomb()
        bits.exp_golomb()  # its parameters
        number, latest = bits.number(n_bits), self._latest
        is_known = latest is not None and header & 31 != _IDR and not may_skip
        # The second field of a picture has the same number. Behind an I picture, numbers may begin anew.
        follows = latest is None or (number - latest) % (1 << n_bits) < 2 or (self._may_restart and number < 2)
        if header >> 5 & 3:
            self._latest, self._may_restart = number, kind % 5 == _INTRA
        return not is_known or follows


def _numbering(sequence: bytes) -> tuple[int, bool]:
    """Return (bits of a picture's number, whether numbers may be left out) of a sequence parameter set.

    0 bits where colour planes are coded apart, which puts a field before the number.
    """
    bits = _Bits(sequence[3:])
    bits.exp_golomb()
    if sequence[:1] and sequence[0] in _HIGH_PROFILES:
        chroma = bits.exp_golomb()
        if chroma == _CHROMA_444 and bits.number(1):
            return 0, True
        bits.exp_golomb(), bits.exp_golomb()  # depths
        bits.number(1)
        if bits.number(1):
            for number in range(12 if chroma == _CHROMA_444 else 8):
                if bits.number(1):
                    _skip_scaling_list(bits, 16 if number < 6 else 64)
    n_bits = bits.exp_golomb() + 4
    order_kind = bits.exp_golomb()
    if order_kind == 0:
        bits.exp_golomb()
    elif order_kind == 1:
        bits.number(1)
        bits.exp_golomb(), bits.exp_golomb()
        for _ in range(min(bits.exp_golomb(), 255)):
            bits.exp_golomb()
    bits.exp_golomb()  # pictures kept
    return (0, True) if bits.is_past_end or n_bits > 16 else (n_bits, bool(bits.number(1)))


def _skip_scaling_list(bits: _Bits, length: int) -> None:
    latest = following = 8
    for _ in range(length):
        if following:
            code = bits.exp_golomb()
            following = (latest + (code + 1 >> 1 if code & 1 else -(code >> 1))) % 256
        latest = following or latest


_HEVC_DELIMITER, _HEVC_ENDS, _HEVC_FILLER, _HEVC_MESSAGES = 35, (36, 37), 38, (39, 40)
# Types that HEVC reserves or leaves to others.
_HEVC_UNNAMED = {*range(10, 16), *range(22, 32), *range(41, 64)}
_OTHER_LAYER, _MISPLACED = 64, 128
_STARTS = re.compile(START)


def odd_hevc_units(packet: Any, length_bytes: int) -> set[int]:
    """Return the kinds of an HEVC packet's units that FFmpeg leaves out without a word.

    Those are units of a type that is reserved or left to others, of another layer, of another type than the picture's
    slice before, or without the form of their type. Dolby Vision and films in 3D have such units in each picture;
    elsewhere one is a slice that was overwritten, and the picture keeps a hole.
    """
    data, odd, slice_kind = bytes(packet), set(), None
    for start, stop in _hevc_units(data, length_bytes):
        kind, layer = data[start] >> 1 & 63, (data[start] & 1) << 5 | data[start + 1] >> 3
        is_misplaced = data[start] >> 7 > 0 or not data[start + 1] & 7
        if not layer and kind in HEVC_SLICES:
            begins_picture = data[start + 2 : start + 3] >= b"\x80"
            # The slices of a picture have one type (ITU-T H.265, 7.4.2.2); another picture may follow in the packet.
            is_misplaced |= not begins_picture and slice_kind not in (None, kind)
            slice_kind = kind
        elif not layer:
            is_misplaced |= not _has_form(kind, data[start + 2 : stop].rstrip(b"\0"))
        if is_misplaced or layer or kind in _HEVC_UNNAMED:
            odd.add(kind + _OTHER_LAYER * (layer > 0) + _MISPLACED * is_misplaced)
    return odd


def _hevc_units(data: bytes, length_bytes: int) -> Iterator[tuple[int, int]]:
    """Yield [start, stop) of the NAL units of two bytes or more, also of those behind start codes in one with a length.

    The last `stop` may lie past the data.
    """
    parts = sized_units(memoryview(data), length_bytes) if length_bytes else iter([(0, len(data))])
    for first, last in parts:
        codes = [match.end() for match in _STARTS.finditer(data, first, last)]
        starts = [first, *codes] if length_bytes else codes
        for start, stop in itertools.pairwise([*starts, last + len(START)]):
            if min(stop - len(START), len(data)) >= start + 2:
                yield start, stop - len(START)


def _has_form(kind: int, content: bytes) -> bool:
    """Return True if an HEVC unit that is no slice has the form of its type; parameters are left to the decoder."""
    if kind == _HEVC_DELIMITER:
        return len(content) <= 1
    if kind in _HEVC_ENDS:
        return not content
    if kind == _HEVC_FILLER:
        return content.strip(b"\xff") in (b"\x80", b"")
    return kind not in _HEVC_MESSAGES or _are_messages(content)


def _are_messages(content: bytes) -> bool:
    """Return True if messages fill an SEI unit up to its last bit."""
    data, at = content.replace(b"\0\0\3", b"\0\0"), 0
    while at + 2 < len(data):
        _, at = _sei_number(data, at)
        size, at = _sei_number(data, at)
        at += size
    return data[at:] == b"\x80"
