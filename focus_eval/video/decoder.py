"""How do the packets of one FFmpeg stream become decoded frames, from any sync packet on?"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Iterator, Sequence, Set
from pathlib import Path
from typing import Any

import av
from av.stream import Disposition

from focus_eval.errors import VideoError
from focus_eval.video.checks import unreadable
from focus_eval.video.index import FrameIndex

# Codecs whose non-reference frames the decoder can drop without touching any other frame. HEVC is not among them: a
# non-reference picture of one temporal layer may serve the layers above it.
_CAN_DROP = {"h264", "mpeg4", "mpeg2video"}
_MOST_THREADS = 8


def n_cores() -> int:
    """Return the processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Decoder:
    """One open container and the decoder of its best video stream.

    The best stream is FFmpeg's choice: the one marked as default, then the one of the highest bit rate.

    Args:
        path: file to open.
        container_options: options of the demuxer, as FFmpeg names them.
        n_threads: threads of the decoder; None: one per core, at most 8.

    Raises:
        VideoError: no FFmpeg demuxer opens the file, it has no video stream, or its codec is not built in.
    """

    def __init__(
        self, path: Path, *, container_options: dict[str, str] | None = None, n_threads: int | None = None
    ) -> None:
        self.path = path
        self._n_threads = n_threads or min(n_cores(), _MOST_THREADS)
        self._options = container_options or {}
        self.container: Any = None
        self.stream: Any = None
        self.n_decoded = 0
        self.restart()

    def restart(self) -> None:
        """Open the file anew, at its first packet: works for every container, also where seeking does not."""
        self.close()
        try:
            self.container = av.open(str(self.path), options=self._options)
        except (av.FFmpegError, OSError) as error:
            raise unreadable(self.path, error) from error
        self.stream = _best_stream(self.path, self.container)
        context = self.stream.codec_context
        context.thread_type = "AUTO" if self._n_threads > 1 else "NONE"
        context.thread_count = self._n_threads

    def close(self) -> None:
        """Release the file."""
        if self.container is not None:
            self.container.close()
            self.container = None

    def frames_from_start(self) -> Iterator[Any]:
        """Yield every frame of a full sequential decode.

        Raises:
            VideoError: the decoder refuses a packet after the first frame (before it, a cut stream may hold packets
                that need what was cut away).
        """
        self.restart()
        n_before = self.n_decoded
        for packet in itertools.chain(self._packets(), [None]):
            frames = self._decode(packet)
            if frames is None and self.n_decoded > n_before:
                n_good = self.n_decoded - n_before
                raise VideoError(f"{self.path}: damaged after frame {n_good - 1}, which ends the order; fetch it again")
            yield from frames or ()

    def frames(self, index: FrameIndex, *, first_packet: int, last_packet: int, wanted: Set[int]) -> Iterator[Any]:
        """Yield the frames that come out of the packets `[first_packet, last_packet]`, in presentation order.

        Ends early at a packet that the decoder refuses, unless it is shown before the first one: such pictures may
        need what lies before it.

        Args:
            wanted: packets whose frames must come out; others may be dropped where that changes nothing.
        """
        context = self.stream.codec_context
        can_drop = context.name in _CAN_DROP
        ticks = index.packets.ticks
        for position, packet in self._packets_from(index, first_packet):
            if position > last_packet:
                break
            if can_drop:
                context.skip_frame = "DEFAULT" if position in wanted else "NONREF"
            frames = self._decode(packet)
            if frames is None and ticks[position] >= ticks[first_packet]:
                return
            yield from frames or ()
        yield from self._decode(None) or ()

    def _packets_from(self, index: FrameIndex, first: int) -> Iterator[tuple[int, Any]]:
        """Yield (position in the file, packet) from the packet `first` on, wherever the demuxer's seek lands."""
        for go in self._ways_to(index, first):
            go()
            packets = self._packets()
            for packet in packets:
                landed = index.packet_at(packet.pts)
                if landed is not None and landed <= first:
                    rest = itertools.chain([packet], packets)
                    yield from itertools.islice(enumerate(rest, landed), first - landed, None)
                    return
                break
        raise VideoError(f"{self.path}: packet {first} is gone since the file was opened; was it replaced?")

    def _ways_to(self, index: FrameIndex, packet: int) -> Iterator[Callable[[], None]]:
        """Yield ways to reach a packet, the nearest first: containers differ in which time they seek by."""
        yield lambda: self._seek(int(index.packets.ticks[packet]))
        yield lambda: self._seek(int(index.packets.decode_ticks[packet]))
        yield self.restart

    def _seek(self, ticks: int) -> None:
        """Go to the last packet at or before `ticks` where the container knows it; stay where it cannot seek."""
        with contextlib.suppress(av.FFmpegError):
            self.container.seek(ticks, stream=self.stream)

    def _packets(self) -> Iterator[Any]:
        """Yield the packets of the stream from where the demuxer stands."""
        try:
            yield from (packet for packet in self.container.demux(self.stream) if packet.size)
        except av.FFmpegError as error:
            raise VideoError(
                f"{self.path}: the file cannot be read further ({error.strerror}); fetch it again"
            ) from error

    def _decode(self, packet: Any) -> Sequence[Any] | None:
        """Return the frames that come out after `packet` went in (None: all that are left), None if it is refused."""
        try:
            frames: Sequence[Any] = self.stream.codec_context.decode(packet)
        except av.FFmpegError:
            return None
        self.n_decoded += len(frames)
        return frames


def _best_stream(path: Path, container: Any) -> Any:
    """Return the video stream to read; a cover picture is none."""
    stream = container.streams.best("video")
    if stream is None or stream.disposition & Disposition.attached_pic:
        kinds = ", ".join(sorted({other.type for other in container.streams})) or "nothing"
        raise VideoError(f"{path}: no video stream, the file holds {kinds}; name a file with pictures")
    if stream.codec_context is None:
        raise VideoError(f"{path}: its video codec is unknown to this FFmpeg; re-encode it as H.264")
    return stream
