"""What does a video file hold: how many frames, when, and how are they stored?"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from focus_eval.errors import VideoError
from focus_eval.types import FloatArray, IntArray, VideoInfo
from focus_eval.video.checks import checked_file
from focus_eval.video.decoder import Decoder
from focus_eval.video.index import FrameIndex, Packets, average_rate, demux_packets
from focus_eval.video.orientation import Orientation

_MICROSECONDS = 1_000_000
# Frames decoded to see whether the timestamps say the order, where the packets leave that open.
_N_HEAD = 32
_RECENT_FILES = 64  # an hour of 30 fps takes about 4 MB


@dataclass(frozen=True)
class Scan:
    """What opening learned of a file.

    Args:
        index: None where frames can only be counted; `info.sync_frames` is then None.
        time_base: seconds per tick of the index.
        stored_size: (width, height) as coded, before the orientation.
    """

    info: VideoInfo
    index: FrameIndex | None
    time_base: float
    stored_size: tuple[int, int]
    orientation: Orientation

    @property
    def size(self) -> tuple[int, int]:
        """(width, height) as shown."""
        return self.orientation.size(*self.stored_size)

    def frame_times(self, frames: IntArray) -> FloatArray:
        """Return presentation times in seconds since the first frame, shape `(n,)`; `frame / fps` for counted files."""
        if self.index is None:
            return frames / self.info.fps
        ticks = self.index.frame_ticks
        times: FloatArray = (ticks[frames] - ticks[0]) * self.time_base
        return times


def scan_video(path: Path) -> Scan:
    """Learn what a video file holds, without decoding more than its first frame unless its packets tell too little.

    The last few files are remembered, by path, size and time of change.

    Raises:
        VideoError: no file, no video, or a header that promises more than the file holds; starts with the path.
    """
    status = checked_file(path).stat()
    return _scan(path, status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=_RECENT_FILES)
def _scan(path: Path, n_bytes: int, modified_ns: int) -> Scan:
    decoder = Decoder(path)
    try:
        packets = demux_packets(path, decoder.container, decoder.stream)
        _check_complete(path, decoder, packets)
        first = next(decoder.frames_from_start(), None)
        if first is None or not (first.width and first.height):
            raise VideoError(f"{path}: no frame of it can be decoded; fetch it again or re-encode it")
        index = _trusted_index(decoder, packets, first)
        n_frames = index.frame_packet.size if index else sum(1 for _ in decoder.frames_from_start())
        return Scan(
            info=VideoInfo(
                n_frames=n_frames,
                fps=_rate(decoder, packets, index, n_frames),
                sync_frames=index.sync_frame if index else None,
            ),
            index=index,
            time_base=float(decoder.stream.time_base),
            stored_size=(first.width, first.height),
            orientation=Orientation.of_frame(path, first),
        )
    finally:
        decoder.close()


def _check_complete(path: Path, decoder: Decoder, packets: Packets) -> None:
    """Raise where the header promises more than the file holds.

    Raises:
        VideoError: fewer packets than the header counts, or packets that end over a second before the header says.
    """
    promised, held = decoder.stream.frames, packets.ticks.size
    if held == 0:
        raise VideoError(f"{path}: the video stream holds no frame; fetch it again")
    if promised > held and "mov" in decoder.container.format.name:
        # An edit list may leave samples out; without it the demuxer shows all that are there.
        whole = Decoder(path, container_options={"ignore_editlist": "1"})
        held = demux_packets(path, whole.container, whole.stream).ticks.size
        whole.close()
    if decoder.container.format.name == "avi":
        # AVI counts a repeated frame, which has an index entry but no packet; its time base is one frame.
        held = max(held, packets.end_ticks)
    if promised > held:
        raise VideoError(
            f"{path}: the header promises {promised} frames, the file holds {held}: cut off or damaged; fetch it again"
        )
    if "matroska" in decoder.container.format.name:
        _check_matroska_length(path, decoder, packets)


def _check_matroska_length(path: Path, decoder: Decoder, packets: Packets) -> None:
    promised = (decoder.container.duration or 0) / _MICROSECONDS
    start = (decoder.container.start_time or 0) / _MICROSECONDS
    held = float(packets.end_ticks * decoder.stream.time_base) - start
    if promised - held <= 1:
        return
    decoder.restart()
    ends = [
        (packet.pts + (packet.duration or 0)) * packet.time_base for packet in decoder.container.demux() if packet.size
    ]
    held = float(max(ends)) - start
    if promised - held > 1:
        raise VideoError(
            f"{path}: the header promises {promised:.1f} s, the file holds {held:.1f} s: cut off; fetch it again"
        )


def _trusted_index(decoder: Decoder, packets: Packets, first: Any) -> FrameIndex | None:
    """Return the index where the packets' times are presentation times, None where frames must be counted."""
    if first.pts is None:
        return None
    index = FrameIndex.build(packets, first_ticks=first.pts)
    may_reorder = decoder.stream.codec_context.has_b_frames and not packets.are_reordered
    if index is None or not may_reorder:
        return index
    if decoder.container.format.name == "avi":
        return None
    head = [frame.pts for frame, _ in zip(decoder.frames_from_start(), range(_N_HEAD), strict=False)]
    return index if head == index.frame_ticks[: len(head)].tolist() else None


def _rate(decoder: Decoder, packets: Packets, index: FrameIndex | None, n_frames: int) -> float:
    """Return the average rate in frames per second."""
    said = decoder.stream.average_rate
    if index is None:
        return float(said or decoder.stream.guessed_rate or 1)
    seconds = float((packets.end_ticks - index.frame_ticks[0]) * decoder.stream.time_base)
    return average_rate(float(said) if said else None, n_frames=n_frames, seconds=seconds)
