"""Makes valid clips of every kind that a reader must give exactly: codecs, containers, rates, starts, joins."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import av
import numpy as np

from focus_eval.core.types import Pixels
from focus_eval.keyframes.video.clip_writer import ClipWriter
from tests.support.keyframes.clip_files import (
    add_bytes,
    add_enhancement,
    cut_packets,
    edit_packets,
    hide_slices,
    join_files,
    lengthen_mdat,
    pad_units,
    replace_bytes,
    with_sound,
    write_packed_avi,
    write_paletted,
    write_tagged,
)
from tests.support.keyframes.damage import turn_mp4
from tests.support.keyframes.synthetic import moving_texture, numbered_frame, repeat_clip

Maker = Callable[[Path], Path]
_N_FRAMES = 60
_X265 = "log-level=error"
_SEED = 5
# The wheel of PyAV 19 has no libaom.
AV1_ENCODER = "libaom-av1" if "libaom-av1" in av.codecs_available else "libsvtav1"


def numbered_texture(n_frames: int, *, width: int, height: int, first: int = 0) -> Iterator[Pixels]:
    """Yield frames that carry their number, as `numbered_frame` draws it, over moving texture."""
    for number, texture in enumerate(moving_texture(n_frames, width=width, height=height, seed=_SEED), first):
        drawn = numbered_frame(number, width=width, height=height).astype(np.uint16)
        yield ((drawn * 3 + texture) // 4).astype(np.uint8)


def write_clip(
    path: Path,
    *,
    n_frames: int = _N_FRAMES,
    width: int = 96,
    height: int = 64,
    ticks: list[int] | None = None,
    first: int = 0,
    noise: int = 0,
    **encoding: Any,
) -> Path:
    """Write a numbered, moving clip; `encoding` goes to `ClipWriter`.

    Args:
        noise: most grey levels that are added to or taken from each value.
    """
    encoding.setdefault("gop", 20)
    rng = np.random.default_rng(_SEED)
    with ClipWriter(path, width=width, height=height, **encoding) as writer:
        for number, pixels in enumerate(numbered_texture(n_frames, width=width, height=height, first=first)):
            if noise:
                pixels = (pixels + rng.integers(-noise, noise + 1, pixels.shape)).clip(0, 255).astype(np.uint8)
            writer.write(pixels, ticks=ticks[number] if ticks else None)
    return path


def clip_makers() -> dict[str, Maker]:
    """Return about 150 valid clips by file name, as functions that write them to a path."""
    return {**_h264(), **_hevc(), **_web(), **_mpeg(), **_others(), **_times(), **_joins(), **_shapes(), **_devices()}


def _made(**settings: Any) -> Maker:
    return partial(write_clip, **settings)


def _x264(params: str, **settings: Any) -> Maker:
    return _made(options={"x264-params": params}, **settings)


def _h264() -> dict[str, Maker]:
    """Return the makers of clips in H.264 by file name: B frames, references, containers and fragments."""
    makers = {f"h264_b{n}.mp4": _x264(f"bframes={n}:b-adapt=0:scenecut=0", n_frames=80) for n in (0, 1, 2, 3, 5, 8, 16)}
    makers |= {f"h264_b_pyramid_{kind}.mkv": _x264(f"bframes=7:b-adapt=0:b-pyramid={kind}")
               for kind in ("none", "strict", "normal")}  # fmt: skip
    for suffix in ("mp4", "mkv", "ts", "flv"):
        makers[f"h264_open_gop.{suffix}"] = _x264("open-gop=1:scenecut=0:bframes=5:b-adapt=0")
        makers[f"h264_intra_refresh.{suffix}"] = _x264("intra-refresh=1:scenecut=0:bframes=0", n_frames=120)
        makers[f"h264_i_not_idr.{suffix}"] = _x264("keyint=60:min-keyint=60:scenecut=100:ref=4", n_frames=100)
    makers["h264_intra_refresh_b.mp4"] = _x264("intra-refresh=1:scenecut=0:bframes=2", n_frames=100)
    for suffix in ("mov", "mkv", "avi", "ts", "m2ts", "flv", "nut", "3gp", "h264", "mpg", "mxf", "asf"):
        makers[f"h264.{suffix}"] = _made(fps=25)
    flags = {"keyframes": "frag_keyframe+empty_moov", "each_frame": "frag_every_frame+empty_moov",
             "dash": "dash+frag_keyframe+default_base_moof"}  # fmt: skip
    makers |= {f"h264_fragments_{k}.mp4": _made(container_options={"movflags": v}) for k, v in flags.items()}
    makers |= {f"h264_{fmt}.mkv": _made(pixel_format=fmt, width=97 if "444" in fmt else 96)
               for fmt in ("yuv422p", "yuv444p", "yuv420p10le", "yuv422p10le", "yuv444p10le", "gray")}  # fmt: skip
    return makers | {
        "h264_faststart.mp4": _made(container_options={"movflags": "faststart"}),
        "h264_all_intra.mp4": _made(gop=1),
        "h264_endless_gop.mp4": _x264("keyint=infinite:scenecut=0", n_frames=200),
        "h264_many_refs.mp4": _x264("ref=16:bframes=3:b-adapt=0"),
        "h264_slices.mp4": _x264("slices=4"),
        "h264_cavlc.mp4": _x264("cabac=0"),
        "h264_interlaced.ts": _x264("interlaced=1"),
        "h264_bottom_first.mp4": _x264("bff=1"),
        "h264_lossless.mp4": _made(crf=None, options={"qp": "0"}),
        "h264_weighted.mp4": _x264("weightp=2:weightb=1:bframes=3"),
        "h264_access_units.ts": _x264("aud=1:repeat-headers=1:nal-hrd=vbr:vbv-maxrate=500:vbv-bufsize=500"),
        "h264_openh264.mp4": _made(codec="libopenh264", crf=None),
        "h264_leading_cut.ts": partial(cut_packets, make=_x264("open-gop=1:scenecut=0:bframes=5:b-adapt=0"), n_sync=1),
    }


def _hevc() -> dict[str, Maker]:
    """Return the makers of clips in HEVC by file name: B frames, containers, pixel formats and GOPs."""

    def hevc(params: str = "", **settings: Any) -> Maker:
        return _made(codec="libx265", options={"x265-params": f"{_X265}:{params}".strip(":")}, **settings)

    makers = {f"hevc_b{n}.mp4": hevc(f"bframes={n}:b-adapt=0") for n in (0, 3, 8)}
    makers["hevc_b16.mp4"] = hevc("bframes=16:b-adapt=0:rc-lookahead=30", gop=40)
    makers |= {f"hevc.{suffix}": hevc() for suffix in ("mkv", "ts", "hevc", "mov", "flv")}
    makers |= {
        f"hevc_{fmt}.mp4": hevc(pixel_format=fmt) for fmt in ("yuv420p10le", "yuv420p12le", "yuv444p", "yuv422p10le")
    }
    return makers | {
        "hevc_open_gop.mp4": hevc("open-gop=1:scenecut=0:bframes=4"),
        "hevc_open_gop.ts": hevc("open-gop=1:scenecut=0:bframes=4"),
        "hevc_closed_gop.mp4": hevc("open-gop=0"),
        "hevc_intra_refresh.mp4": hevc("intra-refresh=1", n_frames=80),
        "hevc_picture_hash.mkv": hevc("hash=1"),
        "hevc_temporal_layers.mp4": hevc("temporal-layers=3:bframes=4:b-adapt=0"),
        "hevc_leading_cut.mp4": partial(cut_packets, make=hevc("open-gop=1:scenecut=0:bframes=4"), n_sync=1),
    }


def _web() -> dict[str, Maker]:
    """Return the makers of clips in VP8, VP9 and AV1 by file name."""
    makers = {f"vp8.{suffix}": _made(codec="libvpx") for suffix in ("webm", "mkv", "ivf", "ogg", "avi")}
    fast = {"cpu-used": "8", "deadline": "realtime"}
    makers |= {f"vp9.{suffix}": _made(codec="libvpx-vp9", options=fast) for suffix in ("webm", "mp4", "mkv", "ivf")}
    makers |= {f"vp9_{fmt}.webm": _made(codec="libvpx-vp9", options=fast, pixel_format=fmt)
               for fmt in ("yuv440p", "yuv444p", "yuv422p")}  # fmt: skip
    av1 = {"cpu-used": "8", "usage": "realtime"}
    makers |= {
        f"av1.{suffix}": _made(codec=AV1_ENCODER, options=av1) for suffix in ("mkv", "mp4", "webm", "ivf", "obu")
    }
    return makers | {
        "vp8_altref.webm": _made(codec="libvpx", options={"auto-alt-ref": "1", "lag-in-frames": "16"}, n_frames=100),
        "vp8_partitions.webm": _made(codec="libvpx", options={"slices": "4", "error-resilient": "partitions"}),
        "vp9_altref.webm": _made(codec="libvpx-vp9", options={"auto-alt-ref": "1", "lag-in-frames": "16"}),
        "vp9_altref.mp4": _made(codec="libvpx-vp9", options={"auto-alt-ref": "1", "lag-in-frames": "16"}),
        "vp9_odd.webm": _made(codec="libvpx-vp9", options=fast, width=97, height=65),
        "vp9_lossless.webm": _made(codec="libvpx-vp9", crf=None, options={**fast, "lossless": "1"}),
        "av1_altref.mkv": _made(codec=AV1_ENCODER, options={"cpu-used": "8", "lag-in-frames": "19"}),
        "av1_ten_bit.mkv": _made(codec=AV1_ENCODER, options=av1, pixel_format="yuv420p10le"),
        "av1_svt.mp4": _made(codec="libsvtav1", options={"preset": "12", "svtav1-params": "lp=1"}),
    }


def _mpeg() -> dict[str, Maker]:
    """Return the makers of clips in MPEG-1, MPEG-2 and MPEG-4 by file name."""
    makers = {f"mpeg4.{suffix}": _made(codec="mpeg4", fps=25) for suffix in ("avi", "mp4", "mkv", "mov", "ts", "m4v")}
    for n in (1, 2, 5):
        makers[f"mpeg4_b{n}.avi"] = _made(codec="mpeg4", fps=25, options={"bf": str(n)})
        makers[f"mpeg4_b{n}.mp4"] = _made(codec="mpeg4", fps=25, options={"bf": str(n)})
        makers[f"mpeg2_b{n}.ts"] = _made(codec="mpeg2video", fps=25, options={"bf": str(n)})
    for suffix in ("mpg", "vob", "ts", "mkv", "m2v", "avi", "mxf"):
        makers[f"mpeg2.{suffix}"] = _made(codec="mpeg2video", fps=25, options={"bf": "2"})
    return makers | {
        "mpeg4_packed_b.avi": _packed_b,
        "mpeg4_qpel.avi": _made(codec="mpeg4", fps=25, options={"flags": "+qpel+mv4"}),
        "mpeg4_interlaced.mp4": _made(codec="mpeg4", fps=25, options={"flags": "+ilme+ildct"}),
        "mpeg4_gaps.avi": _made(codec="mpeg4", fps=25, ticks=[2 * n for n in range(_N_FRAMES)]),
        "mpeg1.mpg": _made(codec="mpeg1video", fps=25, options={"bf": "2"}),
        "mpeg1_b0.mpg": _made(codec="mpeg1video", fps=25),
        "mpeg2_interlaced.ts": _made(codec="mpeg2video", fps=25, options={"flags": "+ilme+ildct"}),
        "mpeg2_closed_gop.mpg": _made(codec="mpeg2video", fps=25,
                                      options={"bf": "2", "flags": "+cgop", "sc_threshold": "1000000000"}),
        "mpeg2_sound.mpg": partial(with_sound, make=_made(codec="mpeg2video", fps=25, options={"bf": "2"}, gop=12,
                                                          n_frames=150, width=352, height=288), sound="mp2"),
        "mpeg2_sound.vob": partial(with_sound, make=_made(codec="mpeg2video", fps=25, options={"bf": "2"}, gop=12,
                                                          n_frames=150, width=352, height=288), sound="mp2"),
        "mpeg1_sound.mpg": partial(with_sound, make=_made(codec="mpeg1video", fps=25, gop=12, n_frames=150, width=352,
                                                          height=288), sound="mp2"),
        "h263.3gp": _made(codec="h263", width=128, height=96, crf=None, fps=Fraction(30000, 1001)),
        "h263.avi": _made(codec="h263p", width=96, height=64, fps=25),
    }  # fmt: skip


def _others() -> dict[str, Maker]:
    """Return the makers of clips in less usual codecs by file name."""
    plain: dict[str, tuple[str, dict[str, Any]]] = {
        "mjpeg.avi": ("mjpeg", {"pixel_format": "yuvj420p"}), "mjpeg.mov": ("mjpeg", {"pixel_format": "yuvj422p"}),
        "mjpeg.mkv": ("mjpeg", {"pixel_format": "yuvj444p"}), "mjpeg.mjpeg": ("mjpeg", {"pixel_format": "yuvj420p"}),
        "ffv1.mkv": ("ffv1", {"options": {"level": "3", "slicecrc": "1"}}),
        "ffv1_no_checksums.avi": ("ffv1", {"options": {"level": "1"}}),
        "ffv1_long_gop.avi": ("ffv1", {"options": {"level": "3", "slices": "4"}, "gop": 30}),
        "huffyuv.avi": ("huffyuv", {"pixel_format": "yuv422p"}), "ffvhuff.avi": ("ffvhuff", {}),
        "utvideo.avi": ("utvideo", {}), "prores.mov": ("prores_ks", {"pixel_format": "yuv422p10le"}),
        "prores_4444.mov": ("prores_ks", {"pixel_format": "yuv444p10le"}),
        "rawvideo.avi": ("rawvideo", {"pixel_format": "bgr24"}), "rawvideo.nut": ("rawvideo", {}),
        "qtrle.mov": ("qtrle", {"pixel_format": "rgb24"}), "png.mov": ("png", {"pixel_format": "rgb24"}),
        "gif.gif": ("gif", {"pixel_format": "rgb8", "fps": 25}),
        "wmv1.wmv": ("wmv1", {}), "wmv2.wmv": ("wmv2", {}), "wmv2.avi": ("wmv2", {}), "wmv2.asf": ("wmv2", {}),
        "msmpeg4v3.avi": ("msmpeg4", {}), "msmpeg4v2.avi": ("msmpeg4v2", {}), "flv1.flv": ("flv", {}),
        "snow.avi": ("snow", {"options": {"strict": "experimental"}}),
        "svq1.mov": ("svq1", {"pixel_format": "yuv410p"}),
        "cinepak.avi": ("cinepak", {"pixel_format": "rgb24", "n_frames": 20}),
        "zmbv.avi": ("zmbv", {"pixel_format": "bgr0"}),
        "flashsv.flv": ("flashsv", {"pixel_format": "bgr24"}), "jpeg2000.mov": ("jpeg2000", {}),
        "dnxhr.mov": ("dnxhd", {"pixel_format": "yuv422p", "width": 256, "height": 128, "n_frames": 20,
                                "options": {"profile": "dnxhr_lb"}}),
        "dv.dv": ("dvvideo", {"width": 720, "height": 576, "fps": 25, "n_frames": 12}),
        "dv.avi": ("dvvideo", {"width": 720, "height": 576, "fps": 25, "n_frames": 12}),
    }  # fmt: skip
    return {name: _made(codec=codec, **{"crf": None, **settings}) for name, (codec, settings) in plain.items()}


def _times() -> dict[str, Maker]:
    """Return the makers of clips by file name, in all sorts of rates, uneven times, pauses and starts."""
    rates: list[float | Fraction] = [0.5, 1, 5, 12.5, Fraction(24000, 1001), Fraction(30000, 1001), 50, 120, 240, 2000]
    makers: dict[str, Maker] = {f"rate_{float(rate):g}.mp4": _made(fps=rate) for rate in rates}
    makers |= {f"rate_{rate}.mkv": _made(fps=rate) for rate in (1, 240)}
    uneven = [n * 40 + n % 7 * 5 for n in range(_N_FRAMES)]
    with_pauses = list(np.cumsum([500 if n % 25 == 24 else 33 for n in range(_N_FRAMES)]).tolist())
    ms = Fraction(1, 1000)
    for suffix in ("mp4", "mkv", "ts", "flv", "nut"):
        makers[f"uneven_rate.{suffix}"] = _made(ticks=uneven, time_base=ms)
    for suffix in ("mp4", "mkv", "ts"):
        makers[f"pauses.{suffix}"] = _made(ticks=with_pauses, time_base=ms, options={"x264-params": "bframes=4"})
    late = list(range(218, 218 + _N_FRAMES))
    makers |= {f"late_start.{suffix}": _made(ticks=late) for suffix in ("mp4", "mkv", "ts", "flv")}
    makers["late_start.webm"] = _made(ticks=late, codec="libvpx")
    makers["late_start_sound.mkv"] = partial(with_sound, make=_made(fps=25, n_frames=100), sound="aac", delay_seconds=4)
    makers |= {f"one_frame.{suffix}": _made(n_frames=1) for suffix in ("mp4", "mkv", "ts", "avi", "flv")}
    makers |= {"one_frame.webm": _made(n_frames=1, codec="libvpx-vp9"), "two_frames.mp4": _made(n_frames=2)}
    makers["edit_list.mp4"] = partial(cut_packets, make=_made(), n_sync=0, earlier=20 * 512)
    makers["three_hours.mp4"] = partial(_three_hours, suffix="mp4")
    makers["three_hours.mkv"] = partial(_three_hours, suffix="mkv")
    return makers


def _three_hours(path: Path, *, suffix: str) -> Path:
    """Write 10,800 frames, one a second, of which 100 are encoded."""
    source = write_clip(
        path.with_name(f"source.{suffix}.{path.stem}.mp4"), n_frames=100, width=48, height=32, fps=1, gop=25
    )
    return repeat_clip(source, path, n_times=108)


def _joins() -> dict[str, Maker]:
    """Return the makers of clips by file name that are joined from several."""
    makers: dict[str, Maker] = {}
    settings: dict[str, dict[str, Any]] = {
        "ts": {}, "h264": {}, "hevc": {"codec": "libx265", "options": {"x265-params": _X265}},
        "mpg": {"codec": "mpeg2video", "fps": 25, "options": {"bf": "2"}},
    }  # fmt: skip
    for suffix, encoding in settings.items():
        parts = [_made(**encoding), _made(first=_N_FRAMES, **encoding)]
        makers[f"joined.{suffix}"] = partial(join_files, parts=parts)
    start = {"ticks": list(range(300, 300 + _N_FRAMES))}
    later, earlier = _made(**start), _made(first=_N_FRAMES, ticks=list(range(37, 37 + _N_FRAMES)))
    makers["joined_going_back.ts"] = partial(join_files, parts=[later, earlier])
    makers["joined_going_on.ts"] = partial(join_files, parts=[_made(), _made(first=_N_FRAMES, **start)])
    sizes = [_made(), _made(first=_N_FRAMES, width=128, height=96)]
    makers["changing_size.ts"] = partial(join_files, parts=sizes)
    makers["changing_size.h264"] = partial(join_files, parts=sizes)
    return makers


def _shapes() -> dict[str, Maker]:
    """Return the makers of clips by file name that are turned or have odd sizes or colours."""
    makers: dict[str, Maker] = {
        f"turned_{degrees}.mp4": partial(_turned, degrees=degrees) for degrees in (90, 180, 270)
    }
    makers |= {f"size_{w}x{h}.mkv": _made(width=w, height=h, pixel_format="yuv444p")
               for w, h in ((97, 65), (33, 127), (641, 35))}  # fmt: skip
    makers |= {f"size_{w}x{h}.mp4": _made(width=w, height=h) for w, h in ((34, 32), (1280, 64), (62, 720))}
    return makers | {
        "full_range.mp4": _made(pixel_format="yuvj420p"),
        "latin1_tags.mp4": partial(_latin1, tag="title"),
        "latin1_tags.mkv": partial(_latin1, tag="title"),
        "latin1_tags.avi": partial(_latin1, tag="title"),
        "sound.mp4": partial(with_sound, make=_made(fps=25), sound="aac"),
        "sound.ts": partial(with_sound, make=_made(fps=25), sound="aac"),
        "sound.mkv": partial(with_sound, make=_made(fps=25), sound="aac"),
        "sound.avi": partial(with_sound, make=_made(codec="mpeg4", fps=25), sound="mp2"),
        "sound.flv": partial(with_sound, make=_made(fps=25), sound="aac"),
    }


def _devices() -> dict[str, Maker]:
    """Return clips with what cameras, recorders and editors of tags do to a file."""
    faststart = _made(container_options={"movflags": "faststart"})
    # FFmpeg reads 5 MB at the start and some of the end when it opens a file: the other table lies between.
    nothing = (b"\x47\x1f\xff\x10" + b"\xff" * 184) * 30_000
    spoken = partial(with_sound, make=_made(fps=25, first=_N_FRAMES), sound="aac")
    parts = [partial(add_bytes, make=part, tail=nothing) for part in (_made(fps=25), spoken)]
    parts.append(_made(fps=25, first=2 * _N_FRAMES))
    return {
        "camera_padded_units.mp4": partial(edit_packets, make=_x264("bframes=0"), edit=pad_units),
        "camera_padded_units.mkv": partial(edit_packets, make=_x264("bframes=2"), edit=pad_units),
        "camera_hidden_slices.mp4": partial(edit_packets, make=_x264("bframes=0"), edit=hide_slices),
        "camera_hidden_slices_b.mp4": partial(edit_packets, make=_x264("bframes=2:b-pyramid=none"), edit=hide_slices),
        "camera_enhancement.mp4": partial(edit_packets, make=_x264("bframes=2"), edit=add_enhancement),
        "palette_raw.avi": partial(write_paletted, codec="rawvideo", n_frames=30),
        "palette_raw.mov": partial(write_paletted, codec="rawvideo", n_frames=30),
        "palette_smc.mov": partial(write_paletted, codec="smc", n_frames=30),
        "palette_rle.avi": partial(write_paletted, codec="msrle", n_frames=30),
        "tail_zeros.ts": partial(add_bytes, make=_made(), tail=bytes(5000)),
        "tail_many_zeros.ts": partial(add_bytes, make=_made(), tail=bytes(188 * 400)),
        "tail_id3.mp4": partial(add_bytes, make=_made(), tail=b"ID3\4" + bytes(300)),
        "tail_tag.mp4": partial(add_bytes, make=_made(), tail=b"TAG" + bytes(125)),
        "tail_other.mp4": partial(add_bytes, make=_made(), tail=bytes(range(200, 256)) * 9),
        "tail_zeros_fragments_index.mp4": partial(
            add_bytes, make=_made(container_options={"movflags": "frag_keyframe"}), tail=bytes(4096)
        ),
        "long_mdat.mp4": partial(lengthen_mdat, make=faststart, n_bytes=8),
        "long_mdat_sound.mp4": partial(lengthen_mdat, make=partial(_faststart_sound), n_bytes=8),
        "stale_checksum.mkv": _stale_checksum,
        "programme_changes.ts": partial(join_files, parts=parts),
    }


def _turned(path: Path, *, degrees: int) -> Path:
    return turn_mp4(write_clip(path.with_name(f"source.{path.name}")), path, degrees=degrees)


def _latin1(path: Path, *, tag: str) -> Path:
    """Write a clip with a tag that is not UTF-8, as old programs did."""
    source = write_tagged(path.with_name(f"source.{path.name}"), make=_made(), tags={tag: "Cafe au lait, CAFE"})
    return replace_bytes(source, path, b"CAFE", "Café".encode("latin-1"))


def _faststart_sound(path: Path) -> Path:
    """Write a clip with sound whose index stands before its frames."""
    source = with_sound(path.with_name(f"sound.{path.name}"), make=_made(fps=25), sound="aac")
    with av.open(str(source)) as clip, av.open(str(path), "w", options={"movflags": "faststart"}) as output:
        streams = {stream.index: output.add_stream_from_template(stream) for stream in clip.streams}
        for packet in clip.demux():
            if packet.size:
                packet.stream = streams[packet.stream_index]
                output.mux_one(packet)
    return path


def _stale_checksum(path: Path) -> Path:
    """Write a title over another one and leave the checksum as it was."""
    tagged = path.with_name(f"tagged.{path.name}")
    source = write_tagged(tagged, make=_made(), tags={"title": "An old title"}, checksums=True)
    return replace_bytes(source, path, b"An old title", b"A new title!")


def _packed_b(path: Path) -> Path:
    source = write_clip(path.with_name(f"source.{path.stem}.mp4"), codec="mpeg4", fps=25, options={"bf": "1"})
    return write_packed_avi(path, source=source)
