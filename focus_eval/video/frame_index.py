"""Maps frames to packets without decoding: which packet holds which frame, and where decoding can start."""

from __future__ import annotations

import contextlib
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray

from focus_eval.core.errors import VideoError
from focus_eval.core.types import IntArray
from focus_eval.video import bitstream


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
    length_bytes = bitstream.nal_length_bytes(stream.codec_context.extradata, codec)
    has_tails = bitstream.may_be_padded(codec)
    for packet in packets_of(container, stream):
        pts, dts = packet.pts, packet.dts
        lacks_ticks = lacks_ticks or pts is None
        if dts is not None:
            goes_back = goes_back or (latest is not None and dts < latest)
            latest = dts
        is_sync = packet.is_keyframe and bitstream.can_start(codec, packet, length_bytes)
        is_hidden = packet.is_discard or bitstream.is_invisible(codec, packet)
        ticks.append(pts or 0)
        decode_ticks.append((pts or 0) if dts is None else dts)
        sizes.append(packet.size)
        places.append(-1 if packet.pos is None else packet.pos)
        if has_tails:
            tails.append(bitstream.trailing_zeros(packet))
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
        padding=bitstream.usual_padding(np.array(tails, dtype=np.int64)),
    )


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

    def packet_at(self, ticks: int) -> int | None:
        """Return the position in the file of the packet with that presentation time, or None."""
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
