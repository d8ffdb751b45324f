"""Opens the best video stream of a file and decodes its packets, from any sync frame on, noting signs of damage."""

from __future__ import annotations

import contextlib
import itertools
import mmap
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence, Set
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, TypedDict

import av
import av.logging
import numpy as np
from av.stream import Disposition
from av.video.codeccontext import VideoCodecContext
from av.video.frame import PictureType
from numpy.typing import NDArray

from focus_eval.core.errors import VideoError
from focus_eval.keyframes.video.manifest import FileState, file_state
from focus_eval.keyframes.video.packets import (
    FrameIndex,
    packets_of,
    reference_test,
)

if TYPE_CHECKING:
    from av import Packet, VideoFrame
    from av.container import InputContainer
    from av.video.stream import VideoStream


# Demuxers of files that contain their pictures. Left out: playlists and scripts (hls, dash, concat, imf, sdp), since
# they open other files; numbered pictures (image2), since they open their neighbours; and text shown as pictures (tty).
_FORMATS = (
    "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,avi,mpegts,mpeg,mpegvideo,m4v,flv,live_flv,kux,asf,asf_o,ogg,nut,mxf,gxf,lxf,"
    "ivf,obu,av1,h264,hevc,vvc,h261,h263,vc1,vc1test,mjpeg,mpjpeg,mjpeg_2000,dirac,cavsvideo,avs2,avs3,rm,ivr,dv,wtv,nsv,"
    "pva,ty,pmp,gif,apng,jpegxl_anim,yuv4mpegpipe,amv,swf,dhav,mvi,mv,roq,bink,smk,flic,film_cpk,nuv,rl2,vmd,xwma"
)
# Demuxers of sound, tried only to name a file's kind in an error.
_SOUND_FORMATS = "mp3,wav,w64,flac,aac,ac3,eac3,aiff,au,caf,amr,ape,dts,mp2,opus,tta,wv"
_PLAYLISTS = (b"#EXTM3U", b"ffconcat", b"<MPD", b"<?xml", b"v=0", b"[playlist]", b"[Reference]", b"<asx", b"file '")

# A program may still be writing to a file that changed less than this many seconds ago.
_GROWING_SECONDS = 60


class TagErrors(TypedDict, total=False):
    """PyAV's argument for the bytes of tags that are not UTF-8."""

    metadata_errors: str


# PyAV 19 accepts tags of any bytes. Earlier versions raise an error for tags that are not UTF-8, unless they are told
# to replace the bytes.
TAG_ERRORS: TagErrors = {} if int(av.__version__.split(".")[0]) >= 19 else {"metadata_errors": "replace"}


def open_container(path: Path, options: dict[str, str]) -> InputContainer:
    """Open `path` as an FFmpeg container, whether or not its tags are UTF-8.

    Args:
        options: further options of the demuxer, as FFmpeg names them.

    Raises:
        VideoError: a playlist or script that names other files.
        av.FFmpegError, OSError: no demuxer of a plain video file opens it.
    """
    if is_playlist(path):
        raise VideoError(f"{path}: a playlist or script, not a video; name the video itself")
    allowed = {"format_whitelist": _FORMATS, "protocol_whitelist": "file"}
    # The prefix `file:` keeps FFmpeg from reading names such as `concat:a|b` or `http:x` as addresses. Use
    # container_options, since PyAV mishandles `options` if streams are found while it opens.
    return av.open(f"file:{path}", container_options={**allowed, **options}, **TAG_ERRORS)


def is_playlist(path: Path) -> bool:
    """Return True if a file begins like a playlist or a concat script."""
    with path.open("rb") as file:
        head = file.read(512).lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    return any(head.startswith(mark.lower()) for mark in _PLAYLISTS)


def unreadable(path: Path, cause: BaseException) -> VideoError:
    """Return the error for a file that no demuxer can open, with the likely reason read from its first bytes."""
    if lacks_index(path):
        return without_index(path)
    if _is_mp4(path):
        return VideoError(f"{path}: a damaged MP4 ({_plain(cause)}); download it again")
    if _is_sound(path):
        return _without_pictures(path, ["audio"])
    return VideoError(f"{path}: not a video this FFmpeg can open ({_plain(cause)}); check the file")


def _is_sound(path: Path) -> bool:
    formats = {"format_whitelist": _SOUND_FORMATS, "protocol_whitelist": "file"}
    with (
        contextlib.suppress(av.FFmpegError, OSError),
        av.open(f"file:{path}", container_options=formats, **TAG_ERRORS) as container,
    ):
        # FFmpeg may open arbitrary bytes as some audio format, so a stream counts as sound only if FFmpeg found its
        # sample rate.
        return any(stream.codec_context is not None and stream.rate for stream in container.streams.audio)
    return False


def _without_pictures(path: Path, kinds: Sequence[str]) -> VideoError:
    return VideoError(f"{path}: no video stream, the file holds {', '.join(kinds)}; name a file with pictures")


def lacks_index(path: Path) -> bool:
    """Return True for an MP4 that ends before or within its index."""
    if not _is_mp4(path):
        return False
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return not any(box == b"moov" and start + length <= len(data) for box, start, length in mp4_boxes(data))


def without_index(path: Path) -> VideoError:
    """Return the error for an MP4 that `lacks_index`."""
    return VideoError(f"{path}: an MP4 without its index (moov box), so cut off before the end; {remedy(path)}")


def remedy(path: Path) -> str:
    """Return the advice for an incomplete file: download it again, or wait if it may still be being written."""
    is_growing = time.time() - path.stat().st_mtime < _GROWING_SECONDS
    return f"download it again{', or wait: it may still be being written' if is_growing else ''}"


def _is_mp4(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(12)[4:8] == b"ftyp"


def mp4_boxes(data: mmap.mmap) -> Iterator[tuple[bytes, int, int]]:
    """Yield (name, offset, length) of an MP4's top-level boxes; the last may state a length past the file's end."""
    start = 0
    while start + 8 <= len(data):
        length = int.from_bytes(data[start : start + 4], "big")
        if length == 1:
            length = int.from_bytes(data[start + 8 : start + 16], "big")
        length = length or len(data) - start
        yield data[start + 4 : start + 8], start, length
        start += max(length, 8)


def _plain(cause: BaseException) -> str:
    """A decoder's message on one line."""
    return " ".join(str(getattr(cause, "strerror", None) or cause).split())


_QUIET = -8
# Warning of HEVC's decoder about a NAL unit that it skips. Units of types 39 and 40 are messages: skipping them changes
# no picture.
_SKIPPED_UNIT, _MESSAGES = "Skipping invalid undecodable NALU: ", ("39", "40")
_log_lock = threading.Lock()
_n_log_listeners = 0
_sets_level = False
_other_capture: av.logging.Capture | None = None


class LoggedErrors:
    """Collects the errors that FFmpeg logs in this thread, as `source: message`; fills the list when the block ends.

    Errors of FFmpeg's own threads are not collected. FFmpeg has one log per process: inside the block it logs errors
    and warnings, and those of other threads are dropped. If the program set a level itself (`av.logging`), that level
    is kept and other threads' lines go to its handler.
    """

    def __enter__(self) -> list[str]:
        """Begin to collect; return the list."""
        _begin_listening()
        self._errors: list[str] = []
        self._capture = av.logging.Capture(local=True)
        self._lines = self._capture.__enter__()
        return self._errors

    def __exit__(self, *error: object) -> None:
        """Fill the list."""
        self._capture.__exit__(None, None, None)
        if self._lines:
            for level, name, text in self._lines:
                skipped = text.partition(_SKIPPED_UNIT)[2].strip()
                if level <= av.logging.ERROR or (skipped and skipped not in _MESSAGES):
                    self._errors.append(f"{name}: {text.strip()}")
        _end_listening()


def _begin_listening() -> None:
    """Begin to collect FFmpeg's errors; the first listener of the process raises its log level."""
    global _n_log_listeners, _sets_level, _other_capture
    with _log_lock:
        _n_log_listeners += 1
        if _n_log_listeners > 1:
            return
        level = av.logging.get_level()
        _sets_level = level is None or (_sets_level and level == av.logging.WARNING)
        if _sets_level:
            _other_capture = av.logging.Capture(local=False)
            _other_capture.__enter__()
        if _sets_level or level is None or level < av.logging.WARNING:
            av.logging.set_level(av.logging.WARNING)
        av.logging.set_skip_repeated(False)


def _end_listening() -> None:
    """End collecting; the last listener of the process restores the log level."""
    global _n_log_listeners, _other_capture
    with _log_lock:
        _n_log_listeners -= 1
        if _n_log_listeners or not _sets_level:
            return
        # Restore FFmpeg's own callback, at a level at which it prints nothing; it takes no Python lock. Do not call
        # `set_level(None)` instead: PyAV would compare a level with None in a thread that logs at that moment.
        av.logging.set_libav_level(_QUIET)
        av.logging.restore_default_callback()
        if _other_capture is not None:
            _other_capture.__exit__(None, None, None)
            _other_capture = None


# Options that make decoders report damage that they would otherwise hide. `explode` is left out: it finds nothing that
# the log does not show, and refuses an intact HEVC picture if FFmpeg cannot read a message beside it. `bitstream` is
# left out for MPEG-1 and 2, whose decoder would refuse intact packets: a second field behind the first, or zeros behind
# a picture.
_STRICT, _STRICT_OF_MPEG = "crccheck+bitstream+buffer", "crccheck+buffer"
# Errors that FFmpeg logs for intact files: it drops a picture that was never decoded (after a start in an open group of
# pictures), or skips messages to players.
_HARMLESS = ("mmco: unref short failure", "SEI type")
# Formats of recordings that may start in the middle of a group of pictures.
_BROADCAST = ("mpegts", "mpegvideo", "h264", "hevc")
# Limit of packets after a seek that may be the rest of a packet into which the seek led.
_MAX_FRAGMENTS_AFTER_SEEK = 16


class Step(NamedTuple):
    """The result of decoding one packet.

    Args:
        position: the packet's position in the file; None for the last step, which drains the decoder.
        frames: decoded frames, in presentation order, mostly of earlier packets.
        is_refused: True if the decoder raised or logged an error.
    """

    position: int | None
    frames: Sequence[VideoFrame]
    is_refused: bool


class SeekError(Exception):
    """Raised when packets after a seek differ from the index; the next request decodes from the start of the file."""


class Decoder:
    """One open container and the decoder of its best video stream.

    The best stream is FFmpeg's choice: the one marked as default, then the one of the highest bit rate. Decoding runs
    in the calling thread. Several threads in one decoder would hide damage, depending on their number: their log is not
    collected here, and a frame may come out before the thread that finds it damaged has marked it.

    Args:
        path: file to open.
        container_options: options of the demuxer, as FFmpeg names them.
        state: expected state of the file; None: its present state.
        is_verified: True for a file whose damaged frames are known: VP9 is then not decoded twice.

    Attributes:
        n_decoded: number of frames decoded so far.
        cpu_seconds: processor seconds of decoding and converting so far, added by the reader.
        shows_damage_late: True for AV1, whose decoder may report a damaged header only with the next packet.
        has_seen_damage: True if the decoder raised or logged an error, or marked a frame as corrupt, since the last
            restart.

    Raises:
        VideoError: no FFmpeg demuxer opens the file, it has no video stream, its codec is not built in, or its state is
            not `state`.
    """

    def __init__(
        self,
        path: Path,
        *,
        container_options: dict[str, str] | None = None,
        state: FileState | None = None,
        is_verified: bool = False,
    ) -> None:
        self.path = path
        self._is_verified = is_verified
        self._state = state or file_state(path)
        self._options = container_options or {}
        self._container: InputContainer | None = None
        self.stream: VideoStream
        self.n_decoded, self.cpu_seconds = 0, 0.0
        self._seeks = True
        self.has_seen_damage = False
        self.restart()

    def restart(self) -> None:
        """Reopen the file at its first packet, which works for containers without seeking too."""
        self.close()
        if file_state(self.path) != self._state:
            raise VideoError(f"{self.path}: replaced or changed after it was opened; open it again when it is complete")
        try:
            self._container = open_container(self.path, self._options)
        except (av.FFmpegError, OSError) as error:
            raise unreadable(self.path, error) from error
        self.stream = _best_stream(self.path, self.container)
        context = self.stream.codec_context
        context.thread_type, context.thread_count = "NONE", 1
        is_mpeg = context.name in ("mpeg1video", "mpeg2video")
        context.options = {"err_detect": _STRICT_OF_MPEG if is_mpeg else _STRICT}
        self._is_transport = self.container.format.name == "mpegts"
        self.may_begin_anywhere = self.container.format.name in _BROADCAST
        self.shows_damage_late = context.name in ("av1", "libdav1d", "libaom-av1")
        self._is_reference = reference_test(context.name, context.extradata)
        self._second = None if self._is_verified or context.name != "vp9" else second_decoder(context)
        self.has_seen_damage = False

    def close(self) -> None:
        """Release the file."""
        if self._container is not None:
            self._container.close()
            self._container = None

    @property
    def container(self) -> InputContainer:
        """The open container."""
        assert self._container is not None, "closed"
        return self._container

    @property
    def tick_seconds(self) -> float:
        """Seconds of one tick of the stream's times."""
        assert self.stream.time_base is not None  # FFmpeg gives every stream one
        return float(self.stream.time_base)

    def is_key(self, frame: VideoFrame) -> bool:
        """Return True if a decoded frame refers to no other frame; always True for H.264, whose packets decide."""
        name = self.stream.codec_context.name
        # H.264 does not mark the frame of a recovery point as a key frame, so its packets decide. FFV1 calls every
        # frame an I picture, so only the mark counts. Decoders without predicted pictures set neither mark nor
        # type.
        if name == "h264" or frame.key_frame:
            return True
        return name != "ffv1" and frame.pict_type not in (PictureType.P, PictureType.B)

    def frames_from_start(self, *, is_strict: bool = True) -> Iterator[VideoFrame]:
        """Yield every frame of a full sequential decode.

        Args:
            is_strict: raise at damage, after which frames can no longer be counted.

        Raises:
            VideoError: a sign of damage, with `is_strict`. Signs before the first frame of a broadcast recording are
                ignored: its first packets may refer to pictures that were cut away.
        """
        self.restart()
        n_good = 0
        for packet in itertools.chain(self.packets(), [None]):
            frames, is_refused = self._decode(packet)
            is_damaged = is_refused or (packet is not None and packet.is_corrupt and not self._is_transport)
            is_damaged = is_damaged or any(frame.is_corrupt for frame in frames)
            if is_strict and is_damaged and (n_good or not self.may_begin_anywhere):
                place = f"after frame {n_good - 1}" if n_good else "at its first frame"
                raise VideoError(f"{self.path}: damaged {place}: later frames have no order; download it again")
            n_good += len(frames)
            yield from frames

    def checksums(self, first_packets: Set[int]) -> list[int]:
        """Return the CRC-32 of each group of packets, in file order; reads the whole file.

        Args:
            first_packets: position of each group's first packet; must include 0.
        """
        self.restart()
        checksums: list[int] = []
        for position, packet in enumerate(self.packets()):
            if position in first_packets:
                checksums.append(0)
            checksums[-1] = zlib.crc32(memoryview(packet), checksums[-1])
        return checksums

    def are_references(self) -> NDArray[np.bool_]:
        """Return one Boolean per packet in file order, True if other pictures may refer to it; reads the whole file."""
        self.restart()
        is_reference = self._is_reference or (lambda packet: True)
        return np.array([is_reference(packet) for packet in self.packets()], dtype=bool)

    def frames(
        self, index: FrameIndex, *, first_packet: int, last_packet: int, wanted_packets: Set[int]
    ) -> Iterator[Step]:
        """Decode packets `first_packet` to `last_packet` (inclusive) and yield a `Step` for each, then one that drains.

        If the decoder shows damage late, the next packet of the group is decoded, too.

        Args:
            wanted_packets: positions of packets whose frames must come out; other frames may be dropped if no frame
                refers to them.

        Raises:
            SeekError: a seek led to wrong packets; call again.
        """
        is_reference = self._is_reference
        # Skip no pictures in two cases: if the file has separate fields, since a field may refer to the other field of
        # its frame, and if the first packet is not a sync frame, since FFmpeg then needs every packet of the group.
        if index.packets.is_second_field.any() or not index.packets.is_sync[first_packet]:
            is_reference = None
        context: VideoCodecContext | None = None
        skipped = ""
        for position, packet in self._packets_from(index, first_packet):
            if position > last_packet and not (self.shows_damage_late and not index.packets.is_sync[position]):
                break
            if context is not self.stream.codec_context:  # the file was opened again, with a new context
                context, skipped = self.stream.codec_context, ""
            if is_reference is not None:
                skipped_now: Literal["DEFAULT", "NONREF"] = "DEFAULT" if position in wanted_packets else "NONREF"
                if skipped != skipped_now:  # set it only on a change, since setting it takes time
                    context.skip_frame = skipped_now
                    skipped = skipped_now
            yield Step(position, *self._decode(packet))
            if position > last_packet:
                break
        yield Step(None, *self._decode(None))

    def _packets_from(self, index: FrameIndex, first: int) -> Iterator[tuple[int, Packet]]:
        """Yield (position in the file, packet) from position `first` on, wherever the demuxer's seek ends."""
        if self.has_seen_damage:
            # Open the file again: after an error FFmpeg's H.264 decoder may conceal parts of the next picture too, even
            # after a seek and a flush.
            self.restart()
        ways: list[Callable[[], None]] = [self.restart]
        if self._seeks:
            times = (index.packets.ticks[first], index.packets.decode_ticks[first])
            ways = [*(partial(self._seek, int(ticks)) for ticks in times), self.restart]
        for go in ways:
            go()
            packets = self.packets()
            for packet in itertools.islice(packets, _MAX_FRAGMENTS_AFTER_SEEK):
                landed = index.packet_at(packet.pts)
                # Skip what is not in the index: after a seek into a packet, its rest comes as a packet of another time.
                if landed is None or packet.size != index.packets.sizes[landed]:
                    continue
                if landed <= first:
                    yield from self._checked(index, itertools.chain([packet], packets), landed=landed, first=first)
                    return
                break
        raise VideoError(f"{self.path}: packet {first} disappeared after the file was opened; was the file replaced?")

    def _checked(
        self, index: FrameIndex, packets: Iterator[Packet], *, landed: int, first: int
    ) -> Iterator[tuple[int, Packet]]:
        """Yield (position, packet) from `first` on; raise if a packet differs from the index.

        Args:
            packets: from position `landed` on.
        """
        ticks, sizes = index.packets.ticks, index.packets.sizes
        for position, packet in enumerate(packets, landed):
            if position >= ticks.size or (packet.pts or 0) != ticks[position] or packet.size != sizes[position]:
                if self._seeks:
                    self._seeks = False
                    raise SeekError
                raise VideoError(f"{self.path}: packet {position} has changed since opening; was the file replaced?")
            if position >= first:
                yield position, packet

    def _seek(self, ticks: int) -> None:
        """Seek to the last packet at or before `ticks`; do nothing if the container cannot seek."""
        with contextlib.suppress(av.FFmpegError):
            self.container.seek(ticks, stream=self.stream)
        # A failed seek does not reset the decoder, and a drained decoder refuses every packet: flush it.
        self.stream.codec_context.flush_buffers()

    def packets(self) -> Iterator[Packet]:
        """Yield the packets of the stream from the demuxer's position on."""
        try:
            yield from packets_of(self.container, self.stream)
        except av.FFmpegError as error:
            raise VideoError(
                f"{self.path}: the file cannot be read further ({error.strerror}); download it again"
            ) from error

    def _decode(self, packet: Packet | None) -> tuple[Sequence[VideoFrame], bool]:
        """The frames that decoding a packet gives, and True if the decoder reports an error; None drains it."""
        context = self.stream.codec_context
        with LoggedErrors() as logged:
            try:
                frames = context.decode(packet)
            except av.FFmpegError:
                self.has_seen_damage = True
                return (), True
        has_complained = any(not line.partition(": ")[2].startswith(_HARMLESS) for line in logged)
        has_complained |= self._second is not None and packet is not None and is_refused(self._second, packet)
        self.has_seen_damage |= has_complained or any(frame.is_corrupt for frame in frames)
        self.n_decoded += len(frames)
        return frames, has_complained


def second_decoder(context: VideoCodecContext) -> VideoCodecContext | None:
    """Return libvpx's decoder of VP8, or of VP9 of 8 bits; None for other codecs, or if this FFmpeg is without libvpx.

    FFmpeg's own decoder fills a picture whose data end too early, without a sign. For VP9, libvpx raises an error
    instead; for VP8, it fills the picture with other pixels, so that a comparison shows the damage.
    """
    name = {"vp8": "libvpx", "vp9": "libvpx-vp9"}.get(context.name)
    has_more_bits = context.format is not None and context.format.components[0].bits > 8
    if name not in av.codecs_available or has_more_bits:
        return None
    second = av.CodecContext.create(name, "r")
    assert isinstance(second, VideoCodecContext)
    second.thread_count, second.extradata = 1, context.extradata
    return second


def is_refused(second: VideoCodecContext, packet: Packet) -> bool:
    """Return True if a second decoder raises an error at a packet."""
    with LoggedErrors():
        try:
            second.decode(packet)
        except av.FFmpegError:
            return True
    return False


def _best_stream(path: Path, container: InputContainer) -> VideoStream:
    """FFmpeg's best video stream; raises VideoError if there is only a cover picture or none, or no codec."""
    streams = container.streams
    stream = streams.best("video")
    assert stream is None or isinstance(stream, av.VideoStream)
    if stream is None or stream.disposition & Disposition.attached_pic:
        # FFmpeg also opens a file that ends within its index, perhaps without having read its video stream.
        if lacks_index(path):
            raise without_index(path)
        # Do not use `stream.type`: before PyAV 18 it ends the process for a stream that FFmpeg cannot name.
        kinds = [kind for kind in ("audio", "subtitles", "data") if getattr(streams, kind)] or ["nothing it can name"]
        if stream is not None:
            raise VideoError(
                f"{path}: its only picture is a cover, beside {' and '.join(kinds)}; name a file with moving pictures"
            )
        raise _without_pictures(path, kinds)
    if stream.codec_context is None:
        raise VideoError(f"{path}: its video codec is unknown to this FFmpeg; re-encode it as H.264")
    return stream
