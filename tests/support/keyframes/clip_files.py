"""Joins, cuts, packs and tags the files that made clips come in."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np

from focus_eval.core.errors import InvalidInput

Maker = Callable[[Path], Path]
_MPEG4_PICTURE = b"\x00\x00\x01\xb6"
# A P picture that says only that it is not coded (ISO 14496-2, 6.2.5), with 5 bits of time for 25 fps: type 01, no
# whole second, marker, 00000 of time, marker, not coded, stuffing.
_NOT_CODED = _MPEG4_PICTURE + int("01" + "0" + "1" + "00000" + "1" + "0" + "01111", 2).to_bytes(2, "big")
_USER_DATA = b"\x00\x00\x01\xb2"
_RATE = 16000


def _source(path: Path, make: Maker) -> Path:
    return make(path.with_name(f"source.{path.name}"))


def _packets(container: Any, stream: Any) -> Iterator[Any]:
    return (packet for packet in container.demux(stream) if packet.size)


def cut_packets(path: Path, *, make: Maker, n_sync: int, earlier: int = 0) -> Path:
    """Write what `make` makes from its sync packet `n_sync` on (counted from 0), `earlier` ticks before its time.

    What then lies before time 0 is cut away by an edit list where the container has one.
    """
    options = {"avoid_negative_ts": "disabled"} if earlier else {}
    with av.open(str(_source(path, make))) as clip, av.open(str(path), "w", options=options) as output:
        template: Any = clip.streams.video[0]
        stream = output.add_stream_from_template(template)
        n_seen = -1
        for packet in _packets(clip, template):
            n_seen += packet.is_keyframe
            if n_seen >= n_sync:
                packet.stream = stream
                packet.pts, packet.dts = packet.pts - earlier, packet.dts - earlier
                output.mux_one(packet)
    return path


def copy_video(source: Path, target: Path) -> Path:
    """Copy the packets of a file's first video stream into another container; return `target`."""
    with av.open(str(source)) as clip, av.open(str(target), "w") as output:
        template: Any = clip.streams.video[0]
        stream: Any = output.add_stream_from_template(template)
        for packet in clip.demux(template):
            if packet.size:
                packet.stream = stream
                output.mux_one(packet)
    return target


def edit_packets(path: Path, *, make: Maker, edit: Callable[[bytes], bytes]) -> Path:
    """Write what `make` makes with the bytes of each packet changed by `edit`."""
    with av.open(str(_source(path, make))) as clip, av.open(str(path), "w") as output:
        template: Any = clip.streams.video[0]
        stream: Any = output.add_stream_from_template(template)
        for packet in _packets(clip, template):
            edited: Any = av.Packet(edit(bytes(packet)))
            edited.stream, edited.time_base, edited.is_keyframe = stream, packet.time_base, packet.is_keyframe
            edited.pts, edited.dts, edited.duration = packet.pts, packet.dts, packet.duration
            output.mux_one(edited)
    return path


def pad_units(picture: bytes) -> bytes:
    """Fill each NAL unit with zeros up to a multiple of 16 bytes, as Android's encoders do."""
    return b"".join(_sized(unit + bytes(-len(unit) % 16)) for unit in split_units(picture))


def hide_slices(picture: bytes) -> bytes:
    """Put each slice behind a prefix unit and a start code into one unit with a length, as Samsung's cameras do."""
    prefix = bytes((0x0E, 0xC0, 0x80, 0x07))
    return b"".join(
        _sized((bytes((unit[0] & 0x60 | 14,)) + prefix[1:] + b"\0\0\0\1" if unit[0] & 31 in (1, 5) else b"") + unit)
        for unit in split_units(picture)
    )


def add_enhancement(picture: bytes) -> bytes:
    """Put a message before each picture that carries an LCEVC enhancement: FFmpeg attaches it to the frame."""
    # User data registered by ITU-T T.35 (type 4): United Kingdom, V-Nova, and a few bytes of its own.
    message = bytes((0xB4, 0x00, 0x50, 0x01, *range(1, 9)))
    return _sized(bytes((6, 4, len(message))) + message + b"\x80") + picture


def _sized(unit: bytes) -> bytes:
    return len(unit).to_bytes(4, "big") + unit


def split_units(picture: bytes) -> Iterator[bytes]:
    """Yield the units of a coded picture, without the four bytes of length before each."""
    at = 0
    while at < len(picture):
        size = int.from_bytes(picture[at : at + 4], "big")
        yield picture[at + 4 : at + 4 + size]
        at += 4 + size


def write_paletted(path: Path, *, codec: str, n_frames: int) -> Path:
    """Write noise in 256 colours of a palette that only the first packet carries."""
    rng = np.random.default_rng(n_frames)
    palette = np.concatenate([rng.integers(0, 256, (256, 3)), np.full((256, 1), 255)], axis=1).astype(np.uint8)
    with av.open(str(path), "w") as output:
        stream: Any = output.add_stream(codec, rate=25)
        stream.width, stream.height, stream.pix_fmt = 96, 64, "pal8"
        for _ in range(n_frames):
            blocks = rng.integers(0, 256, (8, 12)).astype(np.uint8).repeat(8, axis=0).repeat(8, axis=1)
            output.mux(stream.encode(av.VideoFrame.from_ndarray((blocks, palette), format="pal8")))
        output.mux(stream.encode(None))
    return path


def add_bytes(path: Path, *, make: Maker, tail: bytes) -> Path:
    """Write what `make` makes with `tail` behind it."""
    path.write_bytes(_source(path, make).read_bytes() + tail)
    return path


def lengthen_mdat(path: Path, *, make: Maker, n_bytes: int) -> Path:
    """Write an MP4 whose `mdat` states so many bytes more than it has."""
    data = bytearray(_source(path, make).read_bytes())
    at = data.find(b"mdat") - 4
    data[at : at + 4] = (int.from_bytes(data[at : at + 4], "big") + n_bytes).to_bytes(4, "big")
    path.write_bytes(data)
    return path


def join_files(path: Path, *, parts: Sequence[Maker]) -> Path:
    """Write the bytes of several files one after another, as recordings are joined."""
    files = [make(path.with_name(f"part{number}.{path.name}")) for number, make in enumerate(parts)]
    path.write_bytes(b"".join(part.read_bytes() for part in files))
    return path


def replace_bytes(source: Path, path: Path, old: bytes, new: bytes) -> Path:
    """Copy a file with every `old` replaced by `new`, of the same length."""
    data = source.read_bytes()
    if len(old) != len(new) or old not in data:
        raise InvalidInput(f"{source}: {old!r} cannot be replaced by {new!r}")
    path.write_bytes(data.replace(old, new))
    return path


def write_tagged(path: Path, *, make: Maker, tags: dict[str, str], checksums: bool = False) -> Path:
    """Copy what `make` makes with tags; with Matroska's `checksums`, which tell of a tag that is changed afterwards."""
    options = {"write_crc32": "0"} if path.suffix == ".mkv" and not checksums else {}
    with av.open(str(_source(path, make))) as clip, av.open(str(path), "w", options=options) as output:
        template: Any = clip.streams.video[0]
        stream = output.add_stream_from_template(template)
        output.metadata.update(tags)
        for packet in _packets(clip, template):
            packet.stream = stream
            output.mux_one(packet)
    return path


def with_sound(path: Path, *, make: Maker, sound: str, delay_seconds: int = 0) -> Path:
    """Write what `make` makes together with a tone, the pictures `delay_seconds` after the sound's start."""
    # Other containers leave out some packets' times.
    source = make(path.with_name(f"source.{path.name}.mp4"))
    with av.open(str(source)) as clip, av.open(str(path), "w") as output:
        template: Any = clip.streams.video[0]
        stream = output.add_stream_from_template(template)
        audio: Any = output.add_stream(sound, rate=_RATE, layout="mono")
        delay = round(delay_seconds / template.time_base)
        pictures = list(_packets(clip, template))
        seconds = max(float(packet.pts * template.time_base) for packet in pictures) + delay_seconds
        items = [(float(packet.dts * template.time_base) + delay_seconds, 1, packet) for packet in pictures]
        items += [(float(packet.pts * packet.time_base), 0, packet) for packet in _tone(audio, seconds)]
        for _, is_picture, packet in sorted(items, key=lambda item: item[:2]):
            if is_picture:
                packet.stream = stream
                packet.pts, packet.dts = packet.pts + delay, packet.dts + delay
            output.mux_one(packet)
    return path


def _tone(stream: Any, seconds: float) -> list[Any]:
    """Return encoded packets of a tone of 440 Hz."""
    packets: list[Any] = []
    size = 1152 if stream.codec_context.name.startswith("mp2") else 1024
    kind = "s16" if size == 1152 else "fltp"
    for start in range(0, round(seconds * _RATE), size):
        wave = np.sin(2 * np.pi * 440 * np.arange(start, start + size) / _RATE) / 4
        samples = (wave * 32767).astype(np.int16) if kind == "s16" else wave.astype(np.float32)
        frame = av.AudioFrame.from_ndarray(samples[None], format=kind, layout="mono")
        frame.rate, frame.pts, frame.time_base = _RATE, start, Fraction(1, _RATE)
        packets += stream.encode(frame)
    return packets + list(stream.encode(None))


def write_packed_avi(path: Path, *, source: Path) -> Path:
    """Write the MPEG-4 clip `source` in AVI as DivX and XviD did: a B picture in the packet of its reference.

    A packet that holds only "not coded" stands in its place, so that each packet still stands for one frame.
    """
    with av.open(str(source)) as clip, av.open(str(path), "w") as output:
        template: Any = clip.streams.video[0]
        stream: Any = output.add_stream_from_template(template)
        header = template.codec_context.extradata + _USER_DATA + b"DivX503b1393p"
        pictures = [(bytes(packet), packet.is_keyframe) for packet in _packets(clip, template)]
        for number, (data, is_key) in enumerate(_packed(pictures)):
            packet: Any = av.Packet(header + data if number == 0 else data)
            packet.stream, packet.time_base = stream, Fraction(1, 25)
            packet.pts = packet.dts = number
            packet.duration, packet.is_keyframe = 1, is_key
            output.mux_one(packet)
    return path


def _packed(pictures: list[tuple[bytes, bool]]) -> Iterator[tuple[bytes, bool]]:
    """Yield packets of pictures given in the order of decoding, each B packed behind the one before it."""
    number = 0
    while number < len(pictures):
        data, is_key = pictures[number]
        follower = pictures[number + 1][0] if number + 1 < len(pictures) else b""
        if _kind(data) != 2 and follower and _kind(follower) == 2:
            yield data + follower, is_key
            yield _NOT_CODED, False
            number += 2
        else:
            yield data, is_key
            number += 1


def _kind(picture: bytes) -> int:
    """Return the coding type of an MPEG-4 picture: 0 I, 1 P, 2 B."""
    at = picture.find(_MPEG4_PICTURE)
    return picture[at + 4] >> 6


_QUARTER_TURN = 1 << 14  # of the 16 bits in which a display orientation states a whole turn
_ORIENTATION_MESSAGE = 47


def add_orientation(picture: bytes, *, codec: str, n_turns: int, mirrors: bool, flips: bool) -> bytes:
    """Put a display orientation before a picture (ITU-T H.264, D.1.27, and H.265, D.2.17).

    Args:
        codec: "h264" or "hevc".
        n_turns: quarter turns anticlockwise, after the mirroring.
        mirrors, flips: left and right, or top and bottom, are exchanged.
    """
    # Not cancelled, the two flips, the turn, then: repeated until further notice ("ue(1)", no extension, or one flag).
    bits = f"0{int(mirrors)}{int(flips)}{n_turns * _QUARTER_TURN:016b}" + ("0100" if codec == "h264" else "1")
    bits = (bits + "1").ljust(24, "0") if len(bits) < 24 else bits + "1"
    payload = int(bits.ljust(-(-len(bits) // 8) * 8, "0"), 2).to_bytes(-(-len(bits) // 8), "big")
    header = b"\x06" if codec == "h264" else b"\x4e\x01"
    message = bytes((_ORIENTATION_MESSAGE, len(payload))) + payload + b"\x80"
    return _sized(header + _escaped(message)) + picture


def _escaped(message: bytes) -> bytes:
    """Return the bytes of a unit with 3 put between two zeros and a byte up to 3 (ITU-T H.264, 7.4.1)."""
    escaped = bytearray()
    for byte in message:
        if byte <= 3 and escaped[-2:] == b"\0\0":
            escaped.append(3)
        escaped.append(byte)
    return bytes(escaped)


def write_mpeg2_fields(path: Path, *, make: Maker, is_paired: bool) -> Path:
    """Write the I pictures of MPEG-2 that `make` makes as fields, top and bottom in turn: two pictures make a frame.

    The macroblocks of an I picture are coded alike in a field and in a progressive frame, so that only headers change
    (ITU-T H.262, 6.2.2 and 6.2.3).

    Args:
        is_paired: both fields of a frame in one packet, not each in its own.
    """
    with av.open(str(_source(path, make))) as clip, av.open(str(path), "w") as output:
        template: Any = clip.streams.video[0]
        stream: Any = output.add_stream_from_template(template)
        pictures = [bytes(packet) for packet in _packets(clip, template)]
        height, ticks = 2 * template.codec_context.height, 90_000 // 50
        fields = [_field_of(picture, height=height, is_bottom=bool(at % 2)) for at, picture in enumerate(pictures)]
        parts = [first + second for first, second in zip(fields[::2], fields[1::2], strict=True)]
        for at, part in enumerate(parts if is_paired else fields):
            packet: Any = av.Packet(part)
            packet.stream, packet.time_base, packet.is_keyframe = stream, Fraction(1, 90_000), True
            packet.duration = ticks * (2 if is_paired else 1)
            packet.pts = packet.dts = at * packet.duration
            output.mux_one(packet)
    return path


def _field_of(picture: bytes, *, height: int, is_bottom: bool) -> bytes:
    """An I picture of MPEG-2 as one field of a frame of `height`; without the headers before it if it is the second."""
    data = bytearray(picture)
    extensions = {1: [(12, 1, 0)], 8: [(22, 2, 2 if is_bottom else 1), (24, 2, 0), (31, 2, 0)]}
    for code in (0xB3, 0xB5, 0x00):
        at = -1
        while (at := data.find(b"\0\0\1" + bytes([code]), at + 1)) >= 0:
            if code == 0xB3:
                edits = [(12, 12, height)]
            elif code == 0x00:
                edits = [(0, 10, 0)]
            else:
                edits = extensions.get(data[at + 4] >> 4, [])
            for bit, width, value in edits:
                _set_bits(data, 8 * (at + 4) + bit, width, value)
    return bytes(data[data.index(b"\0\0\1\0") if is_bottom else 0 :])


def _set_bits(data: bytearray, start: int, width: int, value: int) -> None:
    for place, bit in enumerate(range(start, start + width)):
        mask = 0x80 >> bit % 8
        is_set = value >> width - 1 - place & 1
        data[bit // 8] = data[bit // 8] | mask if is_set else data[bit // 8] & ~mask
