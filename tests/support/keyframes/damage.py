"""Turns or damages video files in known ways."""

from __future__ import annotations

from pathlib import Path

import av

from focus_eval.core.errors import InvalidInput

_TURNS = {0: (1, 0, 0, 1), 90: (0, 1, -1, 0), 180: (-1, 0, 0, -1), 270: (0, -1, 1, 0)}
_FIXED_POINT_ONE = 1 << 16
# Bytes from the name of a track header box (version 0) to its matrix, and between the matrix's rows (ISO 14496-12).
_TO_MATRIX, _ROW = 44, 12


def cut_off(source: str | Path, target: str | Path, *, share: float) -> Path:
    """Write the first `share` of a file's bytes, as a broken download leaves them."""
    data = Path(source).read_bytes()
    Path(target).write_bytes(data[: int(len(data) * share)])
    return Path(target)


def blank_out(source: str | Path, target: str | Path, *, start: float, stop: float) -> Path:
    """Copy a file with the bytes from share `start` to share `stop` of its length set to zero."""
    data = bytearray(Path(source).read_bytes())
    first, last = int(len(data) * start), int(len(data) * stop)
    data[first:last] = bytes(last - first)
    Path(target).write_bytes(data)
    return Path(target)


def turn_mp4(source: str | Path, target: str | Path, *, degrees: int) -> Path:
    """Copy an MP4 with a display matrix that turns its picture clockwise by 0, 90, 180 or 270 degrees."""
    if degrees not in _TURNS:
        raise InvalidInput(f"a turn is 0, 90, 180 or 270 degrees, got {degrees}")
    return set_display_matrix(source, target, matrix=_TURNS[degrees])


def set_display_matrix(source: str | Path, target: str | Path, *, matrix: tuple[float, float, float, float]) -> Path:
    """Copy an MP4 with the display matrix `(a, b, c, d)`: (x, y) is shown at `(a x + c y, b x + d y)`."""
    data = bytearray(Path(source).read_bytes())
    at = data.find(b"tkhd")
    if at < 0:
        raise InvalidInput(f"{source}: an MP4 with a track header expected")
    for place, value in zip((0, 4, _ROW, _ROW + 4), matrix, strict=True):
        first = at + _TO_MATRIX + place
        data[first : first + 4] = round(value * _FIXED_POINT_ONE).to_bytes(4, "big", signed=True)
    Path(target).write_bytes(data)
    return Path(target)


def claim_avi_frames(source: str | Path, target: str | Path, *, n_frames: int) -> Path:
    """Copy an AVI whose main and stream headers claim `n_frames` frames."""
    data = bytearray(Path(source).read_bytes())
    for name, offset in ((b"avih", 24), (b"strh", 40)):
        first = data.find(name) + offset
        data[first : first + 4] = n_frames.to_bytes(4, "little")
    Path(target).write_bytes(data)
    return Path(target)


_TRANSPORT_PACKET, _SYNC_BYTE = 188, 0x47
_PROGRAMME_MAP, _CRC_BYTES, _CRC_POLYNOMIAL = 2, 4, 0x04C11DB7


def edit_programme_map(
    source: str | Path, target: str | Path, *, types: dict[int, int], absent_types: tuple[int, ...] = ()
) -> Path:
    """Copy a transport stream whose programme map states other types of its elementary streams.

    Args:
        types: new stream type by the old one (ISO 13818-1, table 2-34); descriptors of such a stream are blanked.
        absent_types: types of further streams that the map names and that never come.
    """
    data = bytearray(Path(source).read_bytes())
    for start in range(0, len(data), _TRANSPORT_PACKET):
        header = start + 5  # four bytes, then the pointer to the section, which FFmpeg writes as 0
        if data[start] == _SYNC_BYTE and data[start + 1] & 0x40 and data[header] == _PROGRAMME_MAP:
            section = _edited_map(bytes(data[header : start + _TRANSPORT_PACKET]), types, absent_types)
            data[header : header + len(section)] = section
    Path(target).write_bytes(data)
    return Path(target)


_VIDEO_PID = 0x100  # the first stream that FFmpeg writes


def nal_places(path: Path) -> list[int]:
    """Return the offsets of NAL units' first bytes in an H.264 or HEVC file: MP4 and Matroska, or TS of FFmpeg."""
    data = path.read_bytes()
    if path.suffix == ".ts":
        return [place for start in range(0, len(data), _TRANSPORT_PACKET) for place in _transport_places(data, start)]
    places = []
    with av.open(str(path)) as container:
        for packet in container.demux(video=0):
            content, at = bytes(packet), 0
            first = data.find(content)
            while at + 4 < len(content):
                places.append(first + at + 4)
                at += 4 + int.from_bytes(content[at : at + 4], "big")
    return places


def _transport_places(data: bytes, start: int) -> list[int]:
    packet = data[start : start + _TRANSPORT_PACKET]
    if (packet[1] & 31) << 8 | packet[2] != _VIDEO_PID:
        return []
    at = 5 + packet[4] if packet[3] & 0x20 else 4
    if packet[1] & 0x40:
        at += 9 + packet[at + 8]  # the header that states the picture's time
    places = []
    while (at := packet.find(b"\0\0\1", at) + 3) > 2 and at + 1 < len(packet):
        places.append(start + at)
    return places


def _edited_map(section: bytes, types: dict[int, int], absent_types: tuple[int, ...]) -> bytes:
    end = 3 + (int.from_bytes(section[1:3], "big") & 0xFFF) - _CRC_BYTES
    at = 12 + (int.from_bytes(section[10:12], "big") & 0xFFF)
    edited = bytearray(section[:at])
    while at < end:
        n_bytes = int.from_bytes(section[at + 3 : at + 5], "big") & 0xFFF
        kind = types.get(section[at], section[at])
        descriptors = section[at + 5 : at + 5 + n_bytes] if kind == section[at] else bytes((0x80, 0)) * (n_bytes // 2)
        edited += bytes((kind,)) + section[at + 1 : at + 5] + descriptors.ljust(n_bytes, b"\0")
        at += 5 + n_bytes
    for number, kind in enumerate(absent_types):
        edited += bytes((kind,)) + (0xE000 | 0x1F00 + number).to_bytes(2, "big") + b"\xf0\0"
    edited[1:3] = (0xB000 | len(edited) - 3 + _CRC_BYTES).to_bytes(2, "big")
    crc = 0xFFFFFFFF
    for byte in edited:
        crc ^= byte << 24
        for _ in range(8):
            crc = (crc << 1 ^ (_CRC_POLYNOMIAL if crc >> 31 else 0)) & 0xFFFFFFFF
    return bytes(edited) + crc.to_bytes(4, "big")
