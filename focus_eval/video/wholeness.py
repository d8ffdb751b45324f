"""Checks that a file is whole, as far as its container can say."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from focus_eval.errors import VideoError
from focus_eval.video.decoder import Decoder
from focus_eval.video.ebml import matroska_fault
from focus_eval.video.index import Packets
from focus_eval.video.program import program_fault
from focus_eval.video.transport import ends_full, transport_fault

_MICROSECONDS = 1_000_000
# Header times are rounded, and some muxers leave the last frame out.
_MOST_SECONDS_SHORT = 1.0
_ASF_FILE_PROPERTIES = bytes.fromhex("a1dcab8c47a9cf118ee400c00c205365")
_ASF_BROADCAST = 1
_OGG_LAST_PAGE = 4
_COPYRIGHT = 0xA9


def check_whole(path: Path, decoder: Decoder, packets: Packets, *, logged: list[str]) -> None:
    """Raise where the container shows that something is missing, or was written over.

    Args:
        logged: errors that FFmpeg logged while the file was opened and demuxed, as `source: message`.

    Raises:
        VideoError: no packet; fewer frames or seconds than the header promises; bytes missing at the end or in the
            middle; a demuxer that lost its way.
    """
    if packets.ticks.size == 0:
        raise VideoError(f"{path}: the video stream holds no frame; download it again")
    names = decoder.container.format.name.split(",")
    _check_count(path, decoder, packets)
    if "matroska" in names or "flv" in names:
        _check_length(path, decoder, packets)
    for name, find_fault in _FAULTS.items():
        if name in names:
            with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                fault = find_fault(data, decoder, packets)
            if fault:
                raise VideoError(f"{path}: {fault}; download it again")
    if "mov" in names and _overlap(packets):
        raise VideoError(f"{path}: its index gives the same bytes to two frames: damaged; download it again")
    said = [line for line in logged if line.startswith(f"{decoder.container.format.name}: ")]
    if said:
        raise VideoError(f"{path}: damaged ({said[0].partition(': ')[2][:120]}); download it again")


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
        held = sum(1 for packet in whole.container.demux(whole.stream) if packet.size)
        whole.close()
    if decoder.container.format.name == "avi":
        # AVI counts a repeated frame, which has an index entry but no packet; its time base is one frame.
        held = max(held, packets.end_ticks)
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
        for packet in decoder.container.demux()
        if packet.size and packet.pts is not None
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


def _mp4_fault(data: mmap.mmap, decoder: Decoder, packets: Packets) -> str | None:
    numbers = []
    for name, start, length in mp4_boxes(data):
        if not name.strip(b"\0"):
            # Zeros at the end are harmless padding.
            return f"damaged at byte {start}, where a box should begin" if data[start:].strip(b"\0") else None
        if not all(32 <= byte < 127 or byte == _COPYRIGHT for byte in name) or length < 8:
            return f"damaged at byte {start}, where a box should begin"
        if start + length > len(data):
            return f"its part {name.decode('latin-1')} needs {start + length} bytes, the file has {len(data)}: cut off"
        if name == b"moof":
            if data[start + 12 : start + 16] != b"mfhd" or not _nests(data, start + 8, start + length):
                return f"damaged at byte {start}, where a fragment begins"
            numbers.append(int.from_bytes(data[start + 20 : start + 24], "big"))
    # Fragments are counted; a writer that does not count gives all the same number.
    if len(set(numbers)) > 1 and (np.diff(numbers) != 1).any():
        return "a fragment of it is missing"
    return None


def _nests(data: mmap.mmap, start: int, stop: int) -> bool:
    """Tell whether the boxes in `[start, stop)` fill it, and the tracks among them likewise."""
    while start + 8 <= stop:
        length = int.from_bytes(data[start : start + 4], "big")
        if length < 8 or (data[start + 4 : start + 8] == b"traf" and not _nests(data, start + 8, start + length)):
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


def _avi_fault(data: mmap.mmap, decoder: Decoder, packets: Packets) -> str | None:
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


def _asf_fault(data: mmap.mmap, decoder: Decoder, packets: Packets) -> str | None:
    at = data.find(_ASF_FILE_PROPERTIES, 0, 1 << 16)
    if at < 0 or int.from_bytes(data[at + 88 : at + 92], "little") & _ASF_BROADCAST:
        return None
    promised = int.from_bytes(data[at + 40 : at + 48], "little")
    if promised > len(data):
        return f"the header promises {promised} bytes, the file has {len(data)}: cut off, or bytes are missing"
    return None


def _flv_fault(data: mmap.mmap, decoder: Decoder, packets: Packets) -> str | None:
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


def _ogg_fault(data: mmap.mmap, decoder: Decoder, packets: Packets) -> str | None:
    """Follow the pages; the last one of each stream must say that it is the last (RFC 3533, 6)."""
    start, last = 0, {}
    while data[start : start + 4] == b"OggS" and start + 27 <= len(data):
        n_segments = data[start + 26]
        last[data[start + 14 : start + 18]] = data[start + 5] & _OGG_LAST_PAGE
        start += 27 + n_segments + sum(data[start + 27 : start + 27 + n_segments])
    if start != len(data):
        return f"its pages end at {start} of {len(data)} bytes: cut off or damaged"
    return None if all(last.values()) else "its last page is missing: cut off"


_FAULTS: dict[str, Callable[[mmap.mmap, Any, Packets], str | None]] = {
    "mov": _mp4_fault,
    "avi": _avi_fault,
    "asf": _asf_fault,
    "flv": _flv_fault,
    "ogg": _ogg_fault,
    "matroska": lambda data, decoder, packets: matroska_fault(data),
    "mpegts": lambda data, decoder, packets: transport_fault(data, pid=decoder.stream.id, n_packets=packets.ticks.size),
    "mpeg": lambda data, decoder, packets: program_fault(data, stream=decoder.stream.id, n_packets=packets.ticks.size),
}
