"""Which clips do the reader tests run over, and what does a plain sequential decode of them give?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import cache, lru_cache
from itertools import product
from pathlib import Path

import av
import numpy as np
import pytest

from focus_eval.core.errors import MissingDependency
from focus_eval.keyframes.video import open_video
from focus_eval.keyframes.video.feed import DecodeProcesses
from tests.support.keyframes.clips import AV1_ENCODER
from tests.support.keyframes.damage import turn_mp4
from tests.support.keyframes.synthetic import write_numbered_clip


def _from_packet(source: Path, target: Path, *, first: int, shift: int = 0, **options: str) -> Path:
    """Copy the packets of `source` from number `first` on, `shift` ticks earlier."""
    with av.open(str(source)) as clip, av.open(str(target), "w", options=options) as output:
        template = clip.streams.video[0]
        stream = output.add_stream_from_template(template)
        for number, packet in enumerate(clip.demux(template)):
            if packet.size and number >= first:
                packet.stream = stream
                packet.pts, packet.dts = packet.pts - shift, packet.dts - shift
                output.mux_one(packet)
    return target


def _beside(path: Path, name: str, **encoding: object) -> Path:
    return write_numbered_clip(path.with_name(f"source.{path.stem}.{name}"), 100, **encoding)


_OPEN_H264 = {"x264-params": "open-gop=1:scenecut=0:bframes=5"}
_OPEN_HEVC = {"x265-params": "open-gop=1:scenecut=0:bframes=4:log-level=error"}
_QUIET = {"x265-params": "log-level=error"}


def _leading(path: Path) -> Path:
    """Start at the second CRA picture of an HEVC stream: pictures lead it that need what was cut away."""
    source = _beside(path, "mp4", gop=20, codec="libx265", options=_OPEN_HEVC)
    keys = [number for number, packet in enumerate(av.open(str(source)).demux(video=0)) if packet.is_keyframe]
    return _from_packet(source, path, first=keys[1])


def _hidden(path: Path) -> Path:
    """Write a VP8 stream in which two frames are invisible (bit `show_frame` cleared), as alternate references are."""
    source = _beside(path, "webm", gop=20, codec="libvpx")
    with av.open(str(source)) as clip, av.open(str(path), "w") as output:
        template = clip.streams.video[0]
        stream = output.add_stream_from_template(template)
        for number, packet in enumerate(clip.demux(template)):
            if packet.size:
                data = bytearray(packet)
                data[0] &= 0xFF if number not in (7, 33) else 0xEF
                copy = av.Packet(bytes(data))
                copy.stream, copy.pts, copy.dts = stream, packet.pts, packet.dts
                copy.time_base, copy.is_keyframe = packet.time_base, packet.is_keyframe
                output.mux_one(copy)
    return path


def _cover(path: Path) -> Path:
    """Write two video streams, the smaller one first, as some published files have them."""
    with av.open(str(path), "w") as output:
        sources = [_beside(path, f"{height}.mp4", width=height * 3 // 2, height=height) for height in (32, 64)]
        clips = [av.open(str(source)) for source in sources]
        templates = [clip.streams.video[0] for clip in clips]
        streams = [output.add_stream_from_template(template) for template in templates]
        for clip, template, stream in zip(clips, templates, streams, strict=True):
            for packet in clip.demux(template):
                if packet.size:
                    packet.stream = stream
                    output.mux(packet)
            clip.close()
    return path


def _numbered(n_frames: int = 100, **encoding: object) -> Callable[[Path], Path]:
    return lambda path: write_numbered_clip(path, n_frames, **encoding)


def _edited(path: Path) -> Path:
    source = _beside(path, "mp4", gop=50)
    return _from_packet(source, path, first=0, shift=30 * 512, avoid_negative_ts="disabled")


CLIP_MAKERS: dict[str, Callable[[Path], Path]] = {
    "constant.mp4": _numbered(gop=30),
    "one_frame.mp4": _numbered(1),
    "two_frames.mp4": _numbered(2),
    "all_intra.mp4": _numbered(40, gop=1),
    "long_gop.mp4": _numbered(300, options={"x264-params": "scenecut=0:keyint=infinite"}),
    "b_frames.mp4": _numbered(gop=40, options={"x264-params": "bframes=8:b-adapt=0:b-pyramid=normal"}),
    "open_gop.mp4": _numbered(gop=20, options=_OPEN_H264),
    "intra_refresh.mp4": _numbered(gop=20, options={"x264-params": "intra-refresh=1"}),
    "interlaced.mp4": _numbered(gop=20, options={"x264-params": "interlaced=1"}),
    "variable_rate.mp4": _numbered(gop=20, ticks=[n * 40 + n % 7 * 5 for n in range(100)], time_base=Fraction(1, 1000)),
    "late_start.mp4": _numbered(gop=20, ticks=range(100, 200)),
    "edit_list.mp4": _edited,
    "fragmented.mp4": _numbered(gop=20, container_options={"movflags": "frag_keyframe+empty_moov"}),
    "turned_90.mp4": lambda path: turn_mp4(_beside(path, "mp4", gop=20), path, degrees=90),
    "turned_180.mp4": lambda path: turn_mp4(_beside(path, "mp4", gop=20), path, degrees=180),
    "turned_270.mp4": lambda path: turn_mp4(_beside(path, "mp4", gop=20), path, degrees=270),
    "two_streams.mp4": _cover,
    "h264.mkv": _numbered(gop=20),
    "h264.avi": _numbered(gop=20),
    "h264.ts": _numbered(gop=20),
    "h264.h264": _numbered(gop=20),
    "hevc.mp4": _numbered(gop=20, codec="libx265", options=_QUIET),
    "hevc_open_gop.mp4": _numbered(gop=20, codec="libx265", options=_OPEN_HEVC),
    "hevc_cut_at_cra.mp4": _leading,
    "ten_bit.mp4": _numbered(gop=20, codec="libx265", pixel_format="yuv420p10le", options=_QUIET),
    "odd_444.mkv": _numbered(gop=20, width=97, height=65, pixel_format="yuv444p"),
    "odd_vp9.webm": _numbered(gop=20, width=97, height=65, codec="libvpx-vp9"),
    "vp9_altref.webm": _numbered(codec="libvpx-vp9", options={"auto-alt-ref": "1", "lag-in-frames": "16"}),
    "vp8.webm": _numbered(gop=20, codec="libvpx"),
    "vp8_hidden.webm": _hidden,
    "av1.mkv": _numbered(gop=20, codec=AV1_ENCODER, options={"cpu-used": "8"}),
    "mpeg4_b.avi": _numbered(gop=20, codec="mpeg4", options={"bf": "2"}),
    "mpeg4_gaps.avi": _numbered(gop=20, codec="mpeg4", ticks=range(0, 200, 2)),
    "mpeg2.mpg": _numbered(gop=20, codec="mpeg2video", options={"bf": "2"}),
    "full_range.avi": _numbered(gop=20, codec="mjpeg", pixel_format="yuvj420p"),
}
SHARED = (
    "av1_video.mkv",
    "h264_10bits.mp4",
    "h265_video.mp4",
    "nasa_13013.mp4",
    "nasa_13013_rotated.mp4",
    "test_non_zero_start.mp4",
    "testsrc2_mpeg4.avi",
    "testsrc2_odd_width_vp9.mp4",
    "testsrc2_vp8.webm",
)
# Made clips whose frame i does not carry the number i: leading frames are cut away, or two are invisible.
NOT_NUMBERED = ("edit_list.mp4", "hevc_cut_at_cra.mp4", "vp8_hidden.webm")
# `make test` reads the others over one road, the long ones over none.
_ON_EVERY_ROAD = (
    "constant.mp4", "open_gop.mp4", "intra_refresh.mp4", "variable_rate.mp4", "edit_list.mp4", "turned_90.mp4",
    "h264.mkv", "h264.avi", "hevc.mp4", "vp8_hidden.webm",
)  # fmt: skip
_LONG = ("av1_video.mkv", "nasa_13013.mp4", "testsrc2_vp8.webm")


@pytest.fixture
def sparse_avi(tmp_path: Path) -> Path:
    """80 frames at 30 a second in slots of 1/600 s, as FFmpeg copies them from MP4, with half a second of pause."""
    ticks = [20 * n + 300 * (n >= 50) for n in range(80)]
    options = {"x264-params": "bframes=3:b-adapt=0"}
    return write_numbered_clip(
        tmp_path / "sparse.avi", 80, gop=20, ticks=ticks, time_base=Fraction(1, 600), options=options
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that asks for `clip` over every clip, and one that asks for `backend` over every backend."""
    axes: dict[str, list[str]] = {}
    if "numbered_clip" in metafunc.fixturenames:
        axes["numbered_clip"] = [name for name in CLIP_MAKERS if name not in NOT_NUMBERED]
    if "clip" in metafunc.fixturenames:
        axes["clip"] = [*SHARED, *CLIP_MAKERS]
    suite, code = metafunc.module.__name__.rpartition(".")[2], metafunc.function.__code__
    # A patch of this process says nothing of another; the suite over all backends has names for them.
    is_bound_here = {"monkeypatch", "backend"} & {*code.co_varnames[: code.co_argcount]}
    if suite in _SUITES_OVER_FEED and "open_video" in code.co_names and not is_bound_here:
        axes["road"] = ["here", "feed"]
    if "backend" in metafunc.fixturenames:
        axes["backend"] = ["pyav", "torchcodec", "decord"]
    if axes:
        values = [
            pytest.param(*names, marks=[pytest.mark.slow] if _is_rare({*names}) else [])
            for names in product(*axes.values())
        ]
        metafunc.parametrize(tuple(axes), values, indirect=True)


def _is_rare(names: set[str]) -> bool:
    """True for a long recorded clip, and for a rare clip over another road than the default reader in this process."""
    clips = names & {*SHARED, *CLIP_MAKERS}
    return not clips.isdisjoint(_LONG) or (
        not clips <= {*_ON_EVERY_ROAD} and not names.isdisjoint({"feed", "torchcodec", "decord"})
    )


@pytest.fixture(scope="session")
def make_clip(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A function from a name in `CLIP_MAKERS` to the clip, written once."""
    folder = tmp_path_factory.mktemp("clips")

    @cache
    def make(name: str) -> Path:
        return CLIP_MAKERS[name](folder / name)

    return make


@pytest.fixture
def clip(request: pytest.FixtureRequest, make_clip: Callable[[str], Path], shared: Callable[[str], Path]) -> Path:
    """Each recorded clip and each made one."""
    name = request.param
    return make_clip(name) if name in CLIP_MAKERS else shared(f"data/video/{name}")


@pytest.fixture
def numbered_clip(request: pytest.FixtureRequest, make_clip: Callable[[str], Path]) -> Path:
    """Each made clip whose frame i carries the number i."""
    return make_clip(request.param)


@pytest.fixture
def backend(request: pytest.FixtureRequest, make_clip: Callable[[str], Path]) -> str:
    """Each backend that is installed."""
    try:
        open_video(make_clip("one_frame.mp4"), backend=request.param).close()
    except MissingDependency as error:
        pytest.skip(str(error))
    return str(request.param)


@lru_cache(maxsize=1)
def decode_all(path: Path) -> tuple[list[np.ndarray], list[int | None]]:
    """Return RGB frames and timestamps of a plain sequential decode with one thread, turned as PyAV says."""
    frames, ticks = [], []
    with av.open(str(path)) as container:
        for frame in container.decode(container.streams.best("video")):
            range_ = "JPEG" if frame.color_range == 2 else "MPEG"
            pixels = frame.to_ndarray(format="rgb24", dst_colorspace="ITU601", src_color_range=range_)
            frames.append(np.rot90(pixels, frame.rotation // 90))
            ticks.append(frame.pts)
    return frames, ticks


@pytest.fixture
def sequential(clip: Path) -> tuple[list[np.ndarray], list[int | None]]:
    """RGB frames and timestamps of a full sequential decode of the clip."""
    return decode_all(clip)


@pytest.fixture(scope="session")
def decode_processes() -> Iterator[DecodeProcesses]:
    """Processes that decode for every test that asks for them."""
    with DecodeProcesses(2) as processes:
        yield processes


# The suites about what any reader owes its user run over the feed, too.
_SUITES_OVER_FEED = ("test_bad_input", "test_clips", "test_contract", "test_faults", "test_orientation", "test_pyav")


@pytest.fixture(autouse=True)
def road(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `open_video` of the test's module read through decode processes where the test runs over the feed."""
    if getattr(request, "param", "here") == "feed":
        monkeypatch.setattr(request.module, "open_video", request.getfixturevalue("decode_processes").open_video)
