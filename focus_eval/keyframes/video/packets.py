"""Reads packets without decoding: picture types, which packet holds which frame, where decoding can start."""

from __future__ import annotations

import contextlib
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import av
import numpy as np
from numpy.typing import NDArray

from focus_eval.core.errors import VideoError
from focus_eval.core.types import IntArray
from focus_eval.keyframes.video.mpeg import (
    MPEG2_B,
    MPEG2_PICTURE,
    MPEG4_B,
    MPEG4_PICTURE,
    MpegFieldPairs,
    picture_kind,
)
from focus_eval.keyframes.video.nal import (
    FieldPairs,
    is_h264_reference,
    nal_length_bytes,
    nal_units,
    starts_h264,
)

if TYPE_CHECKING:
    from av import Packet
    from av.container import InputContainer
    from av.video.stream import VideoStream


@dataclass(frozen=True)
class Packets:
    """The packets of one video stream in file order, as the demuxer gives them: arrays of shape `(n_packets,)`.

    Args:
        ticks: presentation times in the stream's time base; meaningless if `lacks_ticks`.
        decode_ticks: decoding times, or presentation times if the container has none.
        sizes: bytes.
        places: offset in the file, -1 if the demuxer does not give it.
        is_sync: True if decoding can start at the packet.
        is_hidden: True for a packet that is decoded but has no frame of its own (cut away by an edit list, an
            invisible reference frame, a second field).
        is_second_field: True for a packet that completes the frame of the packet before it.
        is_corrupt: True if part of the packet is or may be missing.
        lacks_ticks: True if some packet has no presentation time.
        goes_back: True if some decoding time lies before that of the packet before it, as in joined recordings.
        end_ticks: time at which the last shown packet ends.
    """

    ticks: IntArray
    decode_ticks: IntArray
    sizes: IntArray
    places: IntArray
    is_sync: NDArray[np.bool_]
    is_hidden: NDArray[np.bool_]
    is_second_field: NDArray[np.bool_]
    is_corrupt: NDArray[np.bool_]
    lacks_ticks: bool
    goes_back: bool
    end_ticks: int

    @property
    def are_reordered(self) -> bool:
        """True if any packet is shown before one that precedes it in the file."""
        return bool((np.diff(self.ticks) < 0).any())


def demux_packets(path: Path, container: InputContainer, stream: VideoStream) -> Packets:
    """Read all packets of `stream` without decoding any; memory: 33 bytes a packet.

    Raises:
        VideoError: the demuxer gives up in the middle of the file.
    """
    try:
        return _demux(container, stream)
    except av.FFmpegError as error:
        raise VideoError(f"{path}: the file cannot be read to its end ({error.strerror}); download it again") from error


def packets_of(container: InputContainer, *streams: VideoStream) -> Iterator[Packet]:
    """Yield the packets of `streams` (of all if none is given) from the demuxer's position on; skip empty ones.

    Two errors are handled. If a programme table changes, FFmpeg adds streams while it reads, and PyAV raises IndexError
    for them after the last packet. After 64 KiB without a packet in a transport stream, FFmpeg stops and must be called
    again.
    """
    while True:
        try:
            with contextlib.suppress(IndexError):
                yield from (packet for packet in container.demux(*streams) if packet.size)
            return
        except BlockingIOError:
            if container.format.name != "mpegts":
                raise


def _demux(container: InputContainer, stream: VideoStream) -> Packets:
    """The packets of `stream`, read to the end of the file."""
    ticks, decode_ticks, places = array("q"), array("q"), array("q")
    sizes, flags = array("q"), array("b")
    lacks_ticks, goes_back, end, latest = False, False, 0, None
    codec, is_transport = stream.codec_context.name, container.format.name == "mpegts"
    start_test = StartTest(codec, stream.codec_context.extradata)
    for packet in packets_of(container, stream):
        pts, dts = packet.pts, packet.dts
        is_sync, is_second_field = start_test.look_at(packet)
        lacks_ticks = lacks_ticks or (pts is None and not is_second_field)
        if dts is not None:
            goes_back = goes_back or (latest is not None and dts < latest)
            latest = dts
        is_hidden = packet.is_discard or is_second_field or is_invisible(codec, packet)
        ticks.append(pts or 0)
        decode_ticks.append((pts or 0) if dts is None else dts)
        sizes.append(packet.size)
        places.append(-1 if packet.pos is None else packet.pos)
        # Ignore the mark in a transport stream, where FFmpeg marks all packets before a join; `integrity.py` checks it.
        is_corrupt = packet.is_corrupt and not is_transport
        flags.append(is_sync | is_hidden << 1 | is_corrupt << 2 | is_second_field << 3)
        if not is_hidden or (is_second_field and not packet.is_discard):
            end = max(end, (pts or 0) + (packet.duration or 0))
    bits = np.array(flags, dtype=np.int8)
    return Packets(
        ticks=np.array(ticks, dtype=np.int64),
        decode_ticks=np.array(decode_ticks, dtype=np.int64),
        sizes=np.array(sizes, dtype=np.int64),
        places=np.array(places, dtype=np.int64),
        is_sync=(bits & 1) > 0,
        is_hidden=(bits & 2) > 0,
        is_second_field=(bits & 8) > 0,
        is_corrupt=(bits & 4) > 0,
        lacks_ticks=lacks_ticks,
        goes_back=goes_back,
        end_ticks=end,
    )


def leads_first_frame(packets: Packets, *, first_ticks: int, is_broadcast: bool) -> bool:
    """Return True if a packet should have given a frame before the one at `first_ticks`, which came out first.

    Three kinds of packets need not give a frame: leading pictures of the first packet, packets that an edit list hides
    at the file's start, and, in a broadcast that does not begin with a sync packet, the packets before its first sync
    packet.

    Args:
        first_ticks: presentation time of the first decoded frame.
        is_broadcast: True for a format whose recordings may begin anywhere.
    """
    is_led = (packets.ticks < first_ticks) & ~packets.is_hidden & (packets.ticks >= packets.ticks[0])
    return bool((is_led[:1] & packets.is_sync[:1] if is_broadcast else is_led).any())


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
    _sorted_ticks: IntArray

    @classmethod
    def build(cls, packets: Packets, *, first_ticks: int) -> FrameIndex | None:
        """Build the index from packets; return None if their times do not give the presentation order.

        Packets before `first_ticks`, the time of the first frame that the decoder gives, are not counted as
        frames: they are leading pictures of a file that was cut at an open group of pictures.
        """
        shown_packets = np.flatnonzero(~packets.is_hidden & (packets.ticks >= first_ticks))
        by_ticks = np.argsort(packets.ticks, kind="stable")
        by_ticks = by_ticks[~packets.is_second_field[by_ticks]]
        sorted_ticks = packets.ticks[by_ticks]
        if packets.lacks_ticks or packets.goes_back or (np.diff(sorted_ticks) == 0).any():
            return None
        frame_packet = shown_packets[np.argsort(packets.ticks[shown_packets], kind="stable")]
        sync_packet = _clean_sync_packets(packets, shown_packets)
        frame_ticks = packets.ticks[frame_packet]
        sync_frame = np.searchsorted(frame_ticks, packets.ticks[sync_packet])
        sync_frame[0] = 0
        return cls(packets, frame_packet, frame_ticks, sync_packet, sync_frame, by_ticks, sorted_ticks)

    def packet_at(self, ticks: int | None) -> int | None:
        """Return the position in the file of the packet with that presentation time, or None."""
        if ticks is None:
            return None
        at = int(np.searchsorted(self._sorted_ticks, ticks))
        if at == self._by_ticks.size or self._sorted_ticks[at] != ticks:
            return None
        return int(self._by_ticks[at])

    def runs(self, frames: IntArray) -> Iterator[FrameRun]:
        """Split ascending, distinct `frames` into one run per sync point from which they are decoded."""
        syncs = np.searchsorted(self.sync_frame, frames, side="right") - 1
        for sync in np.unique(syncs):
            of_run = frames[syncs == sync]
            last_packet = int(self.frame_packet[of_run].max())
            if sync == 0 and not self.packets.is_sync[0]:
                # Decode to the end: FFmpeg gives frames of a group without a sync packet only if more packets follow.
                last_packet = self.packets.ticks.size - 1
            elif self.packets.is_second_field[last_packet + 1 :][:1].any():
                last_packet += 1
            yield FrameRun(int(sync), of_run, last_packet)


def _clean_sync_packets(packets: Packets, shown_packets: IntArray) -> IntArray:
    """Return 0, then the positions of sync packets that are shown after all earlier packets, ascending.

    From such a packet every frame shown at or after it can be decoded (H.264 recovery point, HEVC CRA and IDR):
    its leading pictures are shown before it, and are decoded from the sync packet before.
    """
    latest_before = np.maximum.accumulate(np.concatenate([[np.iinfo(np.int64).min], packets.ticks[:-1]]))
    is_clean = packets.is_sync & ~packets.is_hidden & (packets.ticks > latest_before)
    positions = np.flatnonzero(is_clean)
    positions = positions[packets.ticks[positions] > packets.ticks[shown_packets].min()]
    return np.concatenate([[0], positions]).astype(np.int64)


def average_rate(container_rate: float | None, *, n_frames: int, seconds: float) -> float:
    """Return frames per second: the container's rate if it is within 1 % of `n_frames / seconds`, else the latter.

    The container's rate is preferred because published strides use it. It is checked because containers without a
    constant rate (Matroska above all) state a guess.
    """
    if seconds <= 0:
        return container_rate or 1.0
    measured = n_frames / seconds
    if container_rate and abs(container_rate / measured - 1) <= 0.01:
        return container_rate
    return measured


def reference_test(codec: str, extradata: bytes | None) -> Callable[[Packet], bool] | None:
    """Return a function that is True for a packet to which others may refer; None if `codec` does not show it.

    The test agrees with FFmpeg's decoder set to drop unreferenced pictures. It returns True for an unreadable packet.
    """
    if codec == "h264":
        length_bytes = nal_length_bytes(extradata)
        return lambda packet: is_h264_reference(nal_units(packet, length_bytes))
    if codec in ("mpeg4", "mpeg2video"):
        code, kind = (MPEG4_PICTURE, MPEG4_B) if codec == "mpeg4" else (MPEG2_PICTURE, MPEG2_B)
        return lambda packet: picture_kind(packet, code) != kind
    return None


def is_invisible(codec: str, packet: Packet) -> bool:
    """Return True for a VP8 packet that is never shown: `show_frame`, bit 4, is 0 (RFC 6386, 9.1)."""
    return codec in ("vp8", "libvpx") and not memoryview(packet)[0] >> 4 & 1


class StartTest:
    """Tells where decoding can start, and which packets hold a second field; packets must come in file order.

    Args:
        codec, extradata: of the stream.
    """

    def __init__(self, codec: str, extradata: bytes | None) -> None:
        self._codec, self._length_bytes = codec, nal_length_bytes(extradata)
        self._pairs = FieldPairs(extradata) if codec == "h264" else None
        self._mpeg_pairs = MpegFieldPairs() if codec == "mpeg2video" else None

    def look_at(self, packet: Packet) -> tuple[bool, bool]:
        """Return (True if decoding can start at the packet, True if it holds a second field).

        The container's own mark does not suffice, since some containers mark every packet.
        """
        if self._mpeg_pairs is not None and self._mpeg_pairs.is_second(packet):
            return False, True
        if self._pairs is None:
            return packet.is_keyframe and _can_start(self._codec, packet), False
        if not packet.is_keyframe and not self._pairs.has_fields:
            return False, False
        units = nal_units(packet, self._length_bytes)
        is_second = self._pairs.is_second(units)
        return packet.is_keyframe and not is_second and starts_h264(units), is_second


def _can_start(codec: str, packet: Packet) -> bool:
    if codec == "mpeg4":
        return picture_kind(packet, MPEG4_PICTURE) in (None, 0)
    if codec in ("mpeg1video", "mpeg2video"):
        return picture_kind(packet, MPEG2_PICTURE) in (None, 1)
    if codec in ("vp8", "libvpx"):
        return not memoryview(packet)[0] & 1
    return True
