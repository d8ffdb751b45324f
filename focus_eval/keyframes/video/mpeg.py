"""Reads the picture headers of MPEG-2 and MPEG-4 packets: kinds of pictures, and which fields make a frame."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from focus_eval.keyframes.video.nal import MAX_HEAD_BYTES, START

if TYPE_CHECKING:
    from av import Packet

MPEG4_PICTURE, MPEG4_B = 0xB6, 2
MPEG2_PICTURE, MPEG2_B = 0x00, 3
_PICTURE_START = START + bytes([MPEG2_PICTURE])
_EXTENSION_START = START + b"\xb5"
_CODING_EXTENSION = 8
_TOP, _BOTTOM = 1, 2


def picture_kind(packet: Packet, code: int) -> int | None:
    """Return the coding type of a packet's first picture; None if no picture header is found.

    Args:
        code: `MPEG4_PICTURE`, whose types are 0 (I), 1 (P), 2 (B), or `MPEG2_PICTURE`: 1 (I), 2 (P), 3 (B).
    """
    head = bytes(memoryview(packet)[:MAX_HEAD_BYTES])
    at = head.find(START + bytes([code]))
    if at < 0 or at + 6 > len(head):
        return None
    return head[at + 4] >> 6 if code == MPEG4_PICTURE else head[at + 5] >> 3 & 7


def count_pictures(packet: Packet) -> int:
    """Return the number of MPEG-2 pictures in a packet: frames, or single fields."""
    return bytes(packet).count(_PICTURE_START)


class _Field(NamedTuple):
    """A picture that holds one field: the number of its frame within the group, and its parity."""

    frame_number: int
    parity: int


class MpegFieldPairs:
    """Finds the MPEG-2 packets that hold the second field of the frame which the packet before began.

    The fields of a pair have the same temporal reference and opposite parity (ITU-T H.262, 6.3.9 and 6.3.10). Most
    containers keep both fields in one packet; MP4 and Matroska may keep each field in a packet of its own.
    """

    def __init__(self) -> None:
        self._open_field: _Field | None = None

    def is_second(self, packet: Packet) -> bool:
        """Return True if a packet holds a second field; packets come in order."""
        field = _field(bytes(memoryview(packet)[:MAX_HEAD_BYTES]))
        is_second = field is not None and self._open_field == field._replace(parity=_TOP + _BOTTOM - field.parity)
        is_complete = is_second or field is None or count_pictures(packet) > 1
        self._open_field = None if is_complete else field
        return is_second


def _field(head: bytes) -> _Field | None:
    """The field that a packet's first picture holds; None if it is a whole frame, or if no picture is found."""
    at = head.find(_PICTURE_START)
    extension = head.find(_EXTENSION_START, at)
    if at < 0 or extension < 0 or extension + 7 > len(head) or head[extension + 4] >> 4 != _CODING_EXTENSION:
        return None
    structure = head[extension + 6] & 3
    number = head[at + 4] << 2 | head[at + 5] >> 6
    return _Field(number, structure) if structure in (_TOP, _BOTTOM) else None
