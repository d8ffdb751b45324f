"""Reads the NAL units of H.264 packets: where decoding can start, what is a reference, which fields make a frame."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from av import Packet


START = b"\x00\x00\x01"
# Bytes of a packet searched for the first slice, which follows parameter sets and messages.
MAX_HEAD_BYTES = 4096
H264_SLICES = (1, 5)
_IDR, _SEI, _SEQUENCE, _PICTURE = 5, 6, 7, 8
_RECOVERY_POINT = 6


def nal_length_bytes(extradata: bytes | None) -> int:
    """Return the size in bytes of MP4's NAL length field (ISO 14496-15, 5.3.3), 0 if start codes are used."""
    return (extradata[4] & 3) + 1 if extradata and len(extradata) > 4 and extradata[0] == 1 else 0


def nal_units(packet: Packet, length_bytes: int) -> list[tuple[int, bytes]]:
    """Return the NAL units of an H.264 packet as (header byte, up to 300 bytes after it).

    If the packet uses start codes (`length_bytes` 0), only its first 4 KiB are searched. As in FFmpeg, a unit with a
    length field may contain further units after start codes: Samsung's cameras store a picture behind its prefix unit
    this way.
    """
    if length_bytes == 0:
        return list(_units_behind_codes(bytes(memoryview(packet)[:MAX_HEAD_BYTES])))
    data = bytes(packet)
    units: list[tuple[int, bytes]] = []
    at, size = 0, len(data)
    while at + length_bytes < size:
        start = at + length_bytes
        at = start + int.from_bytes(data[at:start], "big")
        header = data[start]
        units.append((header, data[start + 1 : min(at, start + 300)]))
        if header & 31 not in H264_SLICES:
            units += _units_behind_codes(data[start : min(at, start + MAX_HEAD_BYTES)])
    return units


def _units_behind_codes(head: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while (at := head.find(START, at) + 3) > 2 and at < len(head):
        yield head[at], head[at + 1 : at + 297]


def is_h264_reference(units: Sequence[tuple[int, bytes]]) -> bool:
    """Return True if a slice of an H.264 packet is marked as a reference, or its `units` show no slice."""
    kinds = [(header >> 5 & 3) > 0 for header, _ in units if header & 31 in H264_SLICES]
    return any(kinds) if kinds else True


def starts_h264(units: Sequence[tuple[int, bytes]]) -> bool:
    """Return True if decoding can start at an H.264 packet: its picture, and all shown after it, come out right.

    True for an IDR picture and for a recovery point that needs no further frame (ITU-T H.264, D.2.8). Decoding
    cannot start at a gradual refresh, nor at an I picture without a recovery point.
    """
    for header, data in units:
        if header & 31 == _IDR:
            return True
        if header & 31 == _SEI and _recovery_frames(data) == 0:
            return True
    return False


def _recovery_frames(sei: bytes) -> int | None:
    """`recovery_frame_cnt` of the recovery point among an SEI unit's messages; None if it has none."""
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
    """A message's type or size (the sum of bytes of 255 and a smaller last byte), and the next field's offset."""
    total = 0
    while at < len(sei) and sei[at] == 255:
        total, at = total + 255, at + 1
    return total + (sei[at] if at < len(sei) else 0), at + 1


class _Bits:
    """Reads the bits of a NAL unit after its header; reads zeros past the end."""

    def __init__(self, data: bytes) -> None:
        # Remove the 3 that encoders put after two zeros so that no start code appears (ITU-T H.264, 7.4.1).
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


class _Sequence(NamedTuple):
    """Fields of an H.264 sequence parameter set that slice headers depend on."""

    number_bits: int
    has_fields: bool
    has_colour_planes: bool


class FieldPairs:
    """Finds the packets that hold the second field of the frame which the packet before began.

    Interlaced cameras code the two fields of a frame separately, and many containers give each field a packet of its
    own. The fields of a pair have the same number and opposite parity (ITU-T H.264, 7.4.1.2.4).

    Args:
        extradata: the stream's extradata, which holds its parameter sets.

    Attributes:
        has_fields: True if the parameters seen so far allow fields.
    """

    def __init__(self, extradata: bytes | None) -> None:
        self.has_fields = False
        self._sequences: dict[int, _Sequence] = {}
        self._sequence_by_picture: dict[int, int] = {}
        self._open_field: tuple[int, int] | None = None  # number and parity of a first field whose second may follow
        for header, data in _parameters(extradata or b""):
            self._note_parameters(header, data)

    def is_second(self, units: Sequence[tuple[int, bytes]]) -> bool:
        """Return True if a packet holds a second field; packets come in order, with their units from `nal_units`."""
        fields = []
        for header, data in units:
            self._note_parameters(header, data)
            if header & 31 in H264_SLICES:
                fields.append(self._field(data))
        first = fields[0] if fields else None
        if first is None:
            self._open_field = None if fields else self._open_field
            return False
        number, parity = first
        is_second = self._open_field == (number, 1 - parity)
        is_complete = is_second or (number, 1 - parity) in fields
        self._open_field = None if is_complete else first
        return is_second

    def _note_parameters(self, header: int, data: bytes) -> None:
        kind = header & 31
        if kind == _SEQUENCE:
            number, sequence = _read_sequence(data)
            self._sequences[number] = sequence
            self.has_fields |= sequence.has_fields
        elif kind == _PICTURE:
            bits = _Bits(data[:16])
            self._sequence_by_picture[bits.exp_golomb()] = bits.exp_golomb()

    def _field(self, data: bytes) -> tuple[int, int] | None:
        """(number, parity: 1 for a bottom field) of a slice; None for a slice of a frame."""
        bits = _Bits(data[:16])
        bits.exp_golomb(), bits.exp_golomb()  # first macroblock, type
        sequence = self._sequences.get(self._sequence_by_picture.get(bits.exp_golomb(), -1))
        if sequence is None or not sequence.has_fields:
            return None
        bits.number(2 * sequence.has_colour_planes)
        number = bits.number(sequence.number_bits)
        return (number, bits.number(1)) if bits.number(1) else None


def _parameters(extradata: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield (header byte, bytes after it) of the parameter sets of an H.264 stream (ISO 14496-15, 5.3.3)."""
    if not nal_length_bytes(extradata):
        yield from _units_behind_codes(extradata)
        return
    at = 5
    for mask in (31, 255):  # sequences, then pictures
        n_sets = extradata[at] & mask if at < len(extradata) else 0
        at += 1
        for _ in range(n_sets):
            size = int.from_bytes(extradata[at : at + 2], "big")
            if size and at + 2 < len(extradata):
                yield extradata[at + 2], extradata[at + 3 : at + 2 + size]
            at += 2 + size


def _read_sequence(data: bytes) -> tuple[int, _Sequence]:
    """The number of a sequence parameter set, and its fields (ITU-T H.264, 7.3.2.1.1)."""
    bits = _Bits(data[3:])
    set_number, has_colour_planes = bits.exp_golomb(), False
    if data[:1] and data[0] in _HIGH_PROFILES:
        chroma = bits.exp_golomb()
        has_colour_planes = chroma == _CHROMA_444 and bool(bits.number(1))
        bits.exp_golomb(), bits.exp_golomb()  # depths
        bits.number(1)
        if bits.number(1):
            for number in range(12 if chroma == _CHROMA_444 else 8):
                if bits.number(1):
                    _skip_scaling_list(bits, 16 if number < 6 else 64)
    number_bits = min(bits.exp_golomb() + 4, 16)
    order_kind = bits.exp_golomb()
    if order_kind == 0:
        bits.exp_golomb()
    elif order_kind == 1:
        bits.number(1)
        bits.exp_golomb(), bits.exp_golomb()
        for _ in range(min(bits.exp_golomb(), 255)):
            bits.exp_golomb()
    bits.exp_golomb()  # pictures kept
    bits.number(1)
    bits.exp_golomb(), bits.exp_golomb()  # size
    return set_number, _Sequence(number_bits, not bits.number(1) and not bits.is_past_end, has_colour_planes)


def _skip_scaling_list(bits: _Bits, length: int) -> None:
    latest = following = 8
    for _ in range(length):
        if following:
            code = bits.exp_golomb()
            following = (latest + (code + 1 >> 1 if code & 1 else -(code >> 1))) % 256
        latest = following or latest
