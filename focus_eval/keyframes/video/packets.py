"""Reads packets without decoding: what their bytes tell, which holds which frame, and where decoding can start."""

from __future__ import annotations

import contextlib
import re
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray

from focus_eval.core.errors import VideoError
from focus_eval.core.types import IntArray
from focus_eval.keyframes.video.nal import (
    H264_SLICES,
    HEVC_SLICES,
    MAX_HEAD_BYTES,
    START,
    PictureNumbers,
    is_divided,
    is_h264_reference,
    nal_length_bytes,
    nal_units,
    odd_hevc_units,
    sized_units,
    starts_h264,
)


@dataclass(frozen=True)
class Packets:
    """The packets of one video stream in file order, as the demuxer gives them: arrays of shape `(n_packets,)`.

    Args:
        ticks: presentation times in the stream's time base; meaningless if `lacks_ticks`.
        decode_ticks: decoding times, or presentation times if the container has none.
        sizes: bytes.
        places: offset in the file, -1 if the demuxer does not give it.
        is_sync: True if decoding can start at the packet.
        is_hidden: True for a packet that is decoded but never shown (cut away by an edit list, or an invisible
            reference frame).
        is_corrupt: True if part of the packet is or may be missing.
        lacks_ticks: True if some packet has no presentation time.
        goes_back: True if some decoding time lies before that of the packet before it, as in joined recordings.
        end_ticks: time at which the last shown packet ends.
        padding: number of zeros that may follow a picture, see `usual_padding`.
        usual_kinds: kinds of odd units that many packets have, see `odd_hevc_units`; of HEVC only.
    """

    ticks: IntArray
    decode_ticks: IntArray
    sizes: IntArray
    places: IntArray
    is_sync: NDArray[np.bool_]
    is_hidden: NDArray[np.bool_]
    is_corrupt: NDArray[np.bool_]
    lacks_ticks: bool
    goes_back: bool
    end_ticks: int
    padding: int
    usual_kinds: Sequence[int] = ()

    @property
    def are_reordered(self) -> bool:
        """True if any packet is shown before one that precedes it in the file."""
        return bool((np.diff(self.ticks) < 0).any())

    @property
    def times_agree(self) -> bool:
        """True if the presentation times in order are the decoding times, later by a constant or by some frames.

        Writers derive one from the other; a damaged table of times shows as two that do not fit. Times of Matroska and
        of streams are rounded, to a tick.
        """
        shown, decoded = np.sort(self.ticks), self.decode_ticks
        has_constant_delay = bool(np.ptp(shown - decoded) == 0)
        return has_constant_delay or any(
            np.abs(shown[: shown.size - n_frames] - decoded[n_frames:]).max(initial=0) <= 1
            for n_frames in range(_MAX_REORDERED_FRAMES + 1)
        )


# H.264 and HEVC keep at most so many pictures.
_MAX_REORDERED_FRAMES = 16


def demux_packets(path: Path, container: Any, stream: Any) -> Packets:
    """Read all packets of `stream` without decoding any; memory: 33 bytes a packet.

    Raises:
        VideoError: the demuxer gives up in the middle of the file.
    """
    try:
        return _demux(container, stream)
    except av.FFmpegError as error:
        raise VideoError(f"{path}: the file cannot be read to its end ({error.strerror}); download it again") from error


def packets_of(container: Any, *streams: Any) -> Iterator[Any]:
    """Yield the packets of `streams` (of all if none is given) from the demuxer's position on; skip empty ones.

    If a programme table changes, FFmpeg adds streams while it reads, and PyAV fails on them after the last packet.
    After 64 KiB without a packet in a transport stream, FFmpeg has to be called again.
    """
    while True:
        try:
            with contextlib.suppress(IndexError):
                yield from (packet for packet in container.demux(*streams) if packet.size)
            return
        except BlockingIOError:
            if container.format.name != "mpegts":
                raise


def _demux(container: Any, stream: Any) -> Packets:
    """Return the packets of `stream`, read to the end of the file."""
    ticks, decode_ticks, places = array("q"), array("q"), array("q")
    sizes, flags, tails = array("q"), array("b"), array("h")
    lacks_ticks, goes_back, end, latest = False, False, 0, None
    codec, is_transport = stream.codec_context.name, container.format.name == "mpegts"
    length_bytes = nal_length_bytes(stream.codec_context.extradata, codec)
    has_tails = codec in _WITH_START_CODES
    odd_kinds: Counter[int] = Counter()
    for packet in packets_of(container, stream):
        pts, dts = packet.pts, packet.dts
        lacks_ticks = lacks_ticks or pts is None
        if dts is not None:
            goes_back = goes_back or (latest is not None and dts < latest)
            latest = dts
        is_sync = packet.is_keyframe and can_start(codec, packet, length_bytes)
        is_hidden = packet.is_discard or is_invisible(codec, packet)
        ticks.append(pts or 0)
        decode_ticks.append((pts or 0) if dts is None else dts)
        sizes.append(packet.size)
        places.append(-1 if packet.pos is None else packet.pos)
        if has_tails:
            tails.append(trailing_zeros(packet))
        if codec == "hevc":
            odd_kinds.update(odd_hevc_units(packet, length_bytes))
        # Of a transport stream, FFmpeg marks every packet before a join; `integrity.py` looks closer.
        flags.append(is_sync | is_hidden << 1 | (packet.is_corrupt and not is_transport) << 2)
        if not is_hidden:
            end = max(end, (pts or 0) + (packet.duration or 0))
    bits = np.array(flags, dtype=np.int8)
    return Packets(
        ticks=np.array(ticks, dtype=np.int64),
        decode_ticks=np.array(decode_ticks, dtype=np.int64),
        sizes=np.array(sizes, dtype=np.int64),
        places=np.array(places, dtype=np.int64),
        is_sync=(bits & 1) > 0,
        is_hidden=(bits & 2) > 0,
        is_corrupt=(bits & 4) > 0,
        lacks_ticks=lacks_ticks,
        goes_back=goes_back,
        end_ticks=end,
        padding=usual_padding(np.array(tails, dtype=np.int64)),
        usual_kinds=sorted(kind for kind, count in odd_kinds.items() if count >= _n_usual(len(ticks))),
    )


def _n_usual(n_packets: int) -> int:
    """Return how many packets must have a peculiarity that is no sign of damage: three, or half of a short file."""
    return min(3, -(-n_packets // 2))


def lost_start(packets: Packets, *, first_ticks: int, is_broadcast: bool) -> str | None:
    """Return the fault shown by packets with times before `first_ticks`, as a clause for a message, or None.

    Legal are leading pictures of the first packet, packets that an edit list hides at the file's start, and, in a
    broadcast that does not begin with a sync packet, those before its first one.

    Args:
        first_ticks: presentation time of the first decoded frame.
        is_broadcast: True for a format whose recordings may begin anywhere.
    """
    is_early = packets.ticks < first_ticks
    later_syncs = np.flatnonzero(packets.is_sync & ~is_early & ~packets.is_hidden)
    early = np.flatnonzero(is_early)
    if (
        not packets.lacks_ticks
        and later_syncs.size
        and early.size
        and early[-1] > max(later_syncs[1:2], default=1 << 62)
    ):
        return "frames in the middle of it have times before its first frame: its index is damaged"
    is_led = is_early & ~packets.is_hidden & (packets.ticks >= packets.ticks[0])
    if is_broadcast:
        is_led &= packets.is_sync & (np.arange(is_led.size) == 0)
    if is_led.any() and not packets.lacks_ticks:
        return "its first frames cannot be decoded"
    return None


@dataclass(frozen=True)
class FrameRun:
    """Frames decoded in one go, from the sync point with index `sync` up to and including packet `last_packet`."""

    sync: int
    frames: IntArray
    last_packet: int


@dataclass(frozen=True)
class FrameIndex:
    """Map from frames in presentation order to packets in file order.

    Args:
        packets: in file order.
        frame_packet: `(n_frames,)` position in the file of each frame's packet.
        frame_ticks: `(n_frames,)` presentation time of each frame, ascending.
        sync_packet, sync_frame: `(n_sync,)` packets and frames at which decoding can start, ascending; the first is the
            start of the file.
    """

    packets: Packets
    frame_packet: IntArray
    frame_ticks: IntArray
    sync_packet: IntArray
    sync_frame: IntArray
    _by_ticks: IntArray

    @classmethod
    def build(cls, packets: Packets, *, first_ticks: int) -> FrameIndex | None:
        """Build the index from packets; return None if their times do not give the presentation order.

        Packets before `first_ticks`, the time of the first frame that the decoder gives, are not counted as
        frames: they are leading pictures of a file that was cut at an open group of pictures.
        """
        shown_packets = np.flatnonzero(~packets.is_hidden & (packets.ticks >= first_ticks))
        by_ticks = np.argsort(packets.ticks, kind="stable")
        if packets.lacks_ticks or packets.goes_back or (np.diff(packets.ticks[by_ticks]) == 0).any():
            return None
        frame_packet = shown_packets[np.argsort(packets.ticks[shown_packets], kind="stable")]
        sync_packet = _clean_sync_packets(packets, shown_packets)
        frame_ticks = packets.ticks[frame_packet]
        sync_frame = np.searchsorted(frame_ticks, packets.ticks[sync_packet])
        sync_frame[0] = 0
        return cls(packets, frame_packet, frame_ticks, sync_packet, sync_frame, by_ticks)

    def packet_at(self, ticks: int | None) -> int | None:
        """Return the position in the file of the packet with that presentation time, or None."""
        if ticks is None:
            return None
        at = int(np.searchsorted(self.packets.ticks, ticks, sorter=self._by_ticks))
        if at == self._by_ticks.size:
            return None
        position = int(self._by_ticks[at])
        return position if self.packets.ticks[position] == ticks else None

    def runs(self, frames: IntArray) -> Iterator[FrameRun]:
        """Split ascending, distinct `frames` into one run per sync point from which they are decoded."""
        syncs = np.searchsorted(self.sync_frame, frames, side="right") - 1
        for sync in np.unique(syncs):
            of_run = frames[syncs == sync]
            yield FrameRun(int(sync), of_run, int(self.frame_packet[of_run].max()))


def _clean_sync_packets(packets: Packets, shown_packets: IntArray) -> IntArray:
    """Return 0, then the positions of sync packets that are shown after all earlier packets, ascending.

    From such a packet every frame shown at or after it can be decoded (H.264 recovery point, HEVC CRA and IDR):
    pictures that lead it belong to the frames before it, which are reached from the sync packet before.
    """
    latest_before = np.maximum.accumulate(np.concatenate([[np.iinfo(np.int64).min], packets.ticks[:-1]]))
    is_clean = packets.is_sync & ~packets.is_hidden & (packets.ticks > latest_before)
    positions = np.flatnonzero(is_clean)
    positions = positions[packets.ticks[positions] > packets.ticks[shown_packets].min()]
    return np.concatenate([[0], positions]).astype(np.int64)


def average_rate(container_rate: float | None, *, n_frames: int, seconds: float) -> float:
    """Return frames per second: the container's rate if it is within 1 % of `n_frames / seconds`, else the latter.

    Containers without a constant rate (Matroska above all) guess; the published strides use the container's rate.
    """
    if seconds <= 0:
        return container_rate or 1.0
    measured = n_frames / seconds
    if container_rate and abs(container_rate / measured - 1) <= 0.01:
        return container_rate
    return measured


# Looking behind each run of zeros keeps the search linear: cameras fill a picture with hundreds of thousands.
_ZEROS_IN_STREAM = re.compile(rb"(?<!\x00)\x00{3,}[^\x00\x01]|\x00\x00\x02", re.DOTALL)
_ZEROS_IN_UNIT = re.compile(rb"\x00\x00(?:\x00[^\x01]|\x02)", re.DOTALL)
_STARTS = re.compile(rb"\x00\x00+\x01")
_MIN_PICTURE_BYTES = 9  # a shorter packet may be a mark that nothing is coded
_ZEROS_IN_MPEG = re.compile(rb"(?<!\x00)\x00{3,}[^\x00\x01]", re.DOTALL)
_MAX_PADDING_BYTES = 3  # bytes: what fills a unit up to a multiple of four
_MAX_TAIL_BYTES = 256
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
        return lambda packet: is_h264_reference(nal_units(packet, length_bytes)[0])
    if codec in ("mpeg4", "mpeg2video"):
        code, kind = (_MPEG4_PICTURE, _MPEG4_B) if codec == "mpeg4" else (_MPEG2_PICTURE, _MPEG2_B)
        return lambda packet: _picture_kind(packet, code) != kind
    return None


def _picture_kind(packet: Any, code: int) -> int | None:
    """Return a picture's coding type, None if not found: MPEG-4 (`code` 0xB6) 0 I, 1 P, 2 B; MPEG-2 1 I, 2 P, 3 B."""
    head = bytes(memoryview(packet)[:MAX_HEAD_BYTES])
    at = head.find(START + bytes([code]))
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
        return starts_h264(packet, length_bytes)
    if codec == "mpeg4":
        return _picture_kind(packet, _MPEG4_PICTURE) in (None, 0)
    if codec in ("mpeg1video", "mpeg2video"):
        return _picture_kind(packet, _MPEG2_PICTURE) in (None, 1)
    if codec in ("vp8", "libvpx"):
        return not memoryview(packet)[0] & 1
    return True


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
    n_needed = _n_usual(tails.size)
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


def form_test(codec: str, extradata: bytes | None, usual_kinds: Sequence[int]) -> Callable[[Any], bool]:
    """Return a test of packets in order, from a sync packet on: True if its form is that of `codec`.

    The form is its framing (start code, lengths or header), of HEVC the kinds of its units, of H.264 its number. A
    packet that fails was overwritten. The end of the packet before it may be damaged too, which not every decoder
    notices.

    Args:
        usual_kinds: of the file's packets.
    """
    if codec == "h264":
        return _h264_tests(extradata)[0]
    length_bytes = nal_length_bytes(extradata, codec)
    if codec == "hevc":
        usual = frozenset(usual_kinds)
        return lambda packet: _is_framed(packet, length_bytes) and odd_hevc_units(packet, length_bytes) <= usual
    if codec == "mpeg4":
        return lambda packet: _is_framed(packet, 0)
    test = {"vp8": _is_vp8, "libvpx": _is_vp8, "vp9": _is_vp9, "libvpx-vp9": _is_vp9}.get(codec)
    test = _is_av1 if codec in AV1 else test
    return (lambda packet: test(memoryview(packet))) if test is not None else lambda packet: True


def packet_tests(
    codec: str, extradata: bytes | None, usual_kinds: Sequence[int]
) -> tuple[Callable[[Any], bool], Callable[[Any], bool] | None]:
    """Return `form_test` and `reference_test`, which may share their work on a packet that both are asked about."""
    if codec == "h264":
        return _h264_tests(extradata)
    return form_test(codec, extradata, usual_kinds), reference_test(codec, extradata)


def _h264_tests(extradata: bytes | None) -> tuple[Callable[[Any], bool], Callable[[Any], bool]]:
    length_bytes, numbers = nal_length_bytes(extradata), PictureNumbers(extradata)
    latest: tuple[Any, list[tuple[int, bytes]], bool] = (None, [], False)

    def split(packet: Any) -> tuple[list[tuple[int, bytes]], bool]:
        nonlocal latest
        if latest[0] is not packet:
            latest = (packet, *nal_units(packet, length_bytes))
        return latest[1:]

    def is_formed(packet: Any) -> bool:
        units, fills = split(packet)
        return fills and (length_bytes > 0 or _is_framed(packet, 0)) and numbers.follow(units)

    return is_formed, lambda packet: is_h264_reference(split(packet)[0])


def _is_framed(packet: Any, length_bytes: int) -> bool:
    if length_bytes:
        return is_divided(memoryview(packet), length_bytes)
    return packet.size < _MIN_PICTURE_BYTES or _STARTS.match(memoryview(packet)[:_MIN_PICTURE_BYTES]) is not None


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
    slices = H264_SLICES if codec == "h264" else HEVC_SLICES
    if b"\0\0\0" not in data and b"\0\0\2" not in data:
        return False
    for start, stop in sized_units(memoryview(data), length_bytes):
        kind = data[start] & 31 if codec == "h264" else data[start] >> 1 & 63
        first = start if kind in slices else data.find(START, start, stop)
        unit = data[first:stop] if first >= 0 else b""
        if b"\0\0\0" not in unit and b"\0\0\2" not in unit:
            continue
        # Bytes that escaping forbids, or more zeros at the end than `padding`.
        content = unit.rstrip(b"\0")
        if len(unit) - len(content) > padding or _ZEROS_IN_UNIT.search(content) is not None:
            return True
    return False
