"""Decodes the packets of one FFmpeg stream, from any sync frame on."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import av
import numpy as np
from av.stream import Disposition
from av.video.frame import PictureType
from numpy.typing import NDArray

from focus_eval.core.errors import VideoError
from focus_eval.video.bitstream import blank_test, form_test, reference_test
from focus_eval.video.ffmpeg_log import errors_logged
from focus_eval.video.frame_index import FrameIndex, packets_of
from focus_eval.video.manifest import FileState, file_state
from focus_eval.video.reader import lacks_index, unreadable, without_index

# Demuxers of files that hold their pictures themselves. Left out are playlists and scripts (hls, dash, concat, imf,
# sdp), which open what they name, numbered pictures (image2), which open their neighbours, and text as pictures (tty).
_FORMATS = (
    "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,avi,mpegts,mpeg,mpegvideo,m4v,flv,live_flv,kux,asf,asf_o,ogg,nut,mxf,gxf,lxf,"
    "ivf,obu,av1,h264,hevc,vvc,h261,h263,vc1,vc1test,mjpeg,mpjpeg,mjpeg_2000,dirac,cavsvideo,avs2,avs3,rm,ivr,dv,wtv,nsv,"
    "pva,ty,pmp,gif,apng,jpegxl_anim,yuv4mpegpipe,amv,swf,dhav,mvi,mv,roq,bink,smk,flic,film_cpk,nuv,rl2,vmd,xwma"
)
_PLAYLISTS = (b"#EXTM3U", b"ffconcat", b"<MPD", b"<?xml", b"v=0", b"[playlist]", b"[Reference]", b"<asx", b"file '")


def open_container(path: Path, options: dict[str, str]) -> Any:
    """Return the open FFmpeg container of `path`; tags that are not UTF-8 are read with replacement characters.

    Args:
        options: further options of the demuxer, as FFmpeg names them.

    Raises:
        VideoError: a playlist or script that names other files.
        av.FFmpegError, OSError: no demuxer of a plain video file opens it.
    """
    if is_playlist(path):
        raise VideoError(f"{path}: a playlist or script, not a video; name the video itself")
    allowed = {"format_whitelist": _FORMATS, "protocol_whitelist": "file"}
    # With the prefix, a name such as `concat:a|b` or `http:x` is a file's name and nothing else.
    # Not `options`: PyAV frees one set of those per stream, also for streams that are found only while it opens.
    return av.open(f"file:{path}", container_options={**allowed, **options}, metadata_errors="replace")


def is_playlist(path: Path) -> bool:
    """Tell whether a file begins as a playlist or a concat script does."""
    with path.open("rb") as file:
        head = file.read(512).lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    return any(head.startswith(mark.lower()) for mark in _PLAYLISTS)


# Decoders that say in each frame, or by an error, what they could not decode. The others only log it, so they are
# decoded in the thread that listens.
_REPORT_DAMAGE = {
    "h264", "hevc", "mpeg4", "mpeg1video", "mpeg2video", "vp8", "libvpx", "vp9", "libvpx-vp9", "av1", "libdav1d",
    "libaom-av1", "prores", "dnxhd",
}  # fmt: skip
# Options of decoders that hide damage unless told not to.
_STRICT = {
    "hevc": {"err_detect": "crccheck+explode"},
    "ffv1": {"err_detect": "crccheck"},
    **{name: {"err_detect": "bitstream+buffer"} for name in ("wmv1", "wmv2", "msmpeg4v1", "msmpeg4v2", "msmpeg4")},
}
# Decoders that hide damage and mark the frame instead. Decoding several frames at a time, they may give a frame out
# before the thread that finds it damaged has marked it; so they may share out one picture's slices only.
_SLICE_THREADS_ONLY = {"h264", "mpeg4"}
MOST_THREADS = 8
# Packets after a seek that may be rests of one that began before it.
_MOST_FRAGMENTS = 16


def n_cores() -> int:
    """Return the processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True)
class Decoded:
    """What the decoder gave for one packet: frames, and whether it refused the packet or complained of it."""

    frames: Sequence[Any]
    is_refused: bool


@dataclass(frozen=True)
class Step:
    """What happened when one packet was decoded.

    Args:
        position: of the packet in the file; None: the decoder was drained.
        is_needed: its frame must come out, now or later.
        frames: what came out, in presentation order, mostly of packets before.
        is_refused: the decoder refused a packet or complained of it.
        is_blanked: the packet's picture holds zeros that no encoder writes.
        is_formed: the packet is divided as its codec says.
    """

    position: int | None
    is_needed: bool
    frames: Sequence[Any]
    is_refused: bool
    is_blanked: bool = False
    is_formed: bool = True


class SeekError(Exception):
    """The packets after a seek are not those of a straight pass; the decoder will go from the file's start now."""


class Decoder:
    """One open container and the decoder of its best video stream.

    The best stream is FFmpeg's choice: the one marked as default, then the one of the highest bit rate.

    Args:
        path: file to open.
        container_options: options of the demuxer, as FFmpeg names them.
        n_threads: threads of the decoder; None: one per core, at most 8.
        state: of the file that is meant; None: as it is now.

    Raises:
        VideoError: no FFmpeg demuxer opens the file, it has no video stream, its codec is not built in, or it is not
            the file that is meant.
    """

    def __init__(
        self,
        path: Path,
        *,
        container_options: dict[str, str] | None = None,
        n_threads: int | None = None,
        state: FileState | None = None,
    ) -> None:
        self.path = path
        self._state = state or file_state(path)
        self._n_threads = n_threads or min(n_cores(), MOST_THREADS)
        self._options = container_options or {}
        self.container: Any = None
        self.stream: Any = None
        self.n_decoded = 0
        self._seeks = True
        self._has_seen_damage = False
        self.restart()

    def restart(self) -> None:
        """Reopen the file at its first packet: works for every container, also where seeking does not."""
        self.close()
        if file_state(self.path) != self._state:
            raise VideoError(f"{self.path}: replaced or changed after it was opened; open it again when it is complete")
        try:
            self.container = open_container(self.path, self._options)
        except (av.FFmpegError, OSError) as error:
            raise unreadable(self.path, error) from error
        self.stream = _best_stream(self.path, self.container)
        context = self.stream.codec_context
        self._listens = context.name not in _REPORT_DAMAGE
        n_threads = 1 if self._listens else self._n_threads
        shared_out = "SLICE" if context.name in _SLICE_THREADS_ONLY else "AUTO"
        context.thread_type = "NONE" if n_threads == 1 else shared_out
        context.thread_count = n_threads
        context.options = _STRICT.get(context.name, {})
        self._is_transport = self.container.format.name == "mpegts"
        self._is_reference = reference_test(context.name, context.extradata)
        self._is_blanked = blank_test(context.name, context.extradata)
        self._is_formed = form_test(context.name, context.extradata)
        self._has_seen_damage = False

    def close(self) -> None:
        """Release the file."""
        if self.container is not None:
            # Its threads must be at rest: they may log, for which they would wait for this thread.
            self.stream.codec_context.flush_buffers()
            self.container.close()
            self.container = None

    def is_key(self, frame: Any) -> bool:
        """Return whether a decoded frame refers to no other, by the decoder or by its packet."""
        name = self.stream.codec_context.name
        # A recovery point of H.264 is no key frame: there the packet says whether decoding can start. FFV1 calls every
        # frame an I picture, and decoders without predicted pictures mark neither.
        if name == "h264" or frame.key_frame:
            return True
        return name != "ffv1" and frame.pict_type not in (PictureType.P, PictureType.B)

    def frames_from_start(self) -> Iterator[Any]:
        """Yield every frame of a full sequential decode.

        Raises:
            VideoError: a sign of damage after the first frame (before it, a cut stream may hold packets that need
                what was cut away): what comes then may be wrong, and the frames can no longer be counted.
        """
        self.restart()
        n_good = 0
        for packet in itertools.chain(self._packets(), [None]):
            decoded = self._decode(packet)
            is_damaged = decoded.is_refused or (packet is not None and packet.is_corrupt and not self._is_transport)
            if (is_damaged or any(frame.is_corrupt for frame in decoded.frames)) and n_good:
                raise VideoError(
                    f"{self.path}: damaged after frame {n_good - 1}: later frames have no order; download it again"
                )
            n_good += len(decoded.frames)
            yield from decoded.frames

    def holds_blanks(self, padding: int) -> bool:
        """Return whether any packet's picture holds zeros that no encoder writes; reads the whole file."""
        self.restart()
        is_blanked = self._is_blanked
        return is_blanked is not None and any(is_blanked(packet, padding) for packet in self._packets())

    def are_references(self) -> NDArray[np.bool_]:
        """Return of each packet in file order whether other pictures may refer to it; reads the whole file."""
        self.restart()
        is_reference = self._is_reference or (lambda packet: True)
        return np.array([is_reference(packet) for packet in self._packets()], dtype=bool)

    def frames(self, index: FrameIndex, *, first_packet: int, last_packet: int, wanted: Set[int]) -> Iterator[Step]:
        """Decode the packets `[first_packet, last_packet]` and yield what each step gave, and how the next one begins.

        Args:
            wanted: packets whose frames must come out; others may be dropped where that changes nothing.

        Raises:
            SeekError: ask again.
        """
        context, is_reference = self.stream.codec_context, self._is_reference
        for position, packet in self._packets_from(index, first_packet):
            is_formed = self._is_formed(packet)
            if position > last_packet:
                yield Step(position, False, (), is_refused=False, is_formed=is_formed)
                break
            is_needed = True
            if is_reference is not None:
                is_needed = position in wanted or is_reference(packet)
                context.skip_frame = "DEFAULT" if position in wanted else "NONREF"
            is_blanked = is_needed and self._is_blanked is not None and self._is_blanked(packet, index.packets.padding)
            decoded = self._decode(packet)
            yield Step(position, is_needed, decoded.frames, decoded.is_refused, is_blanked, is_formed)
        decoded = self._decode(None)
        yield Step(None, False, decoded.frames, decoded.is_refused)

    def _packets_from(self, index: FrameIndex, first: int) -> Iterator[tuple[int, Any]]:
        """Yield (position in the file, packet) from the packet `first` on, wherever the demuxer's seek lands."""
        if self._has_seen_damage:
            # After an error FFmpeg's H.264 decoder may conceal parts of the next picture too, across seek and flush.
            self.restart()
        for go in self._ways_to(index, first):
            go()
            packets = self._packets()
            for packet in itertools.islice(packets, _MOST_FRAGMENTS):
                landed = index.packet_at(packet.pts)
                # A seek may land within a packet: its rest then comes with a time of its own.
                if landed is None or packet.size != index.packets.sizes[landed]:
                    continue
                if landed <= first:
                    yield from self._checked(index, itertools.chain([packet], packets), landed=landed, first=first)
                    return
                break
        raise VideoError(f"{self.path}: packet {first} disappeared after the file was opened; was the file replaced?")

    def _checked(
        self, index: FrameIndex, packets: Iterator[Any], *, landed: int, first: int
    ) -> Iterator[tuple[int, Any]]:
        """Yield (position, packet) from `first` on while the packets are those that the index knows."""
        ticks, sizes = index.packets.ticks, index.packets.sizes
        for position, packet in enumerate(packets, landed):
            if position >= ticks.size or packet.pts != ticks[position] or packet.size != sizes[position]:
                if self._seeks:
                    self._seeks = False
                    raise SeekError
                raise VideoError(f"{self.path}: packet {position} has changed since opening; was the file replaced?")
            if position >= first:
                yield position, packet

    def _ways_to(self, index: FrameIndex, packet: int) -> Iterator[Callable[[], None]]:
        """Yield ways to reach a packet, the nearest first: containers differ in which time they seek by."""
        if self._seeks:
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
            yield from packets_of(self.container, self.stream)
        except av.FFmpegError as error:
            raise VideoError(
                f"{self.path}: the file cannot be read further ({error.strerror}); download it again"
            ) from error

    def _decode(self, packet: Any) -> Decoded:
        """Return what comes out after `packet` went in (None: all that is left)."""
        context = self.stream.codec_context
        logged: list[str] = []
        with errors_logged() if self._listens else contextlib.nullcontext(logged) as logged:
            try:
                frames: Sequence[Any] = context.decode(packet)
            except av.FFmpegError:
                self._has_seen_damage = True
                return Decoded((), is_refused=True)
        self._has_seen_damage |= bool(logged) or any(frame.is_corrupt for frame in frames)
        self.n_decoded += len(frames)
        return Decoded(frames, is_refused=bool(logged))


def _best_stream(path: Path, container: Any) -> Any:
    """Return the video stream to read; a cover picture is none."""
    stream = container.streams.best("video")
    if stream is None or stream.disposition & Disposition.attached_pic:
        # FFmpeg opens a file that ends within its index, with as many streams as it could read of it.
        if lacks_index(path):
            raise without_index(path)
        kinds = ", ".join(sorted({other.type for other in container.streams})) or "nothing"
        raise VideoError(f"{path}: no video stream, the file holds {kinds}; name a file with pictures")
    if stream.codec_context is None:
        raise VideoError(f"{path}: its video codec is unknown to this FFmpeg; re-encode it as H.264")
    return stream
