"""Damages clips in known ways, reads them in processes of their own, and says what came of it."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import av
import numpy as np

from focus_eval.core.errors import FocusEvalError, VideoError
from focus_eval.core.types import Pixels
from focus_eval.keyframes.video import open_video
from focus_eval.keyframes.video.decoder import LoggedErrors
from tests.support.keyframes.clips import AV1_ENCODER, Maker, write_clip
from tests.support.keyframes.exactness import sequential_frames, sign_before

Damage = Callable[[bytes, np.random.Generator], bytes]
_SIZE = {"width": 160, "height": 96, "n_frames": 90, "gop": 24}
# 30 seconds.
_NOISE = {"noise": 12, "n_frames": 750, "fps": 25, "gop": 50}
_MAX_BYTES = 4096
# A read may take so much address space and so many seconds.
MEMORY_BYTES, SECONDS = 4 << 30, 60
_STEP = 5
KINDS = ("right", "refused", "refused falsely", "crashed", "hung", "shorter", "wrong", "wrong without a sign")


def fault_clips() -> dict[str, Maker]:
    """Return 33 clips by file name, in the codecs and containers that videos come in."""
    x264 = {"x264-params": "bframes=3"}
    settings: dict[str, dict[str, object]] = {
        "h264.mp4": {"options": x264}, "h264_cavlc.mp4": {"options": {"x264-params": "cabac=0:bframes=0"}},
        "h264_fragments.mp4": {"container_options": {"movflags": "frag_keyframe+empty_moov"}}, "h264.mkv": {},
        "h264_start.mp4": {"container_options": {"movflags": "faststart"}}, "h264.ts": {}, "h264.flv": {},
        "h264.avi": {},
        "hevc.mp4": {"codec": "libx265", "options": {"x265-params": "log-level=error"}},
        "mpeg4.avi": {"codec": "mpeg4", "fps": 25},
        "mpeg4_b.mp4": {"codec": "mpeg4", "fps": 25, "options": {"bf": "2"}},
        "mpeg2.ts": {"codec": "mpeg2video", "fps": 25, "options": {"bf": "2"}},
        "mpeg2.mpg": {"codec": "mpeg2video", "fps": 25, "options": {"bf": "2"}},
        "ffv1.mkv": {"codec": "ffv1", "options": {"level": "3", "slicecrc": "1"}},
        "ffv1.avi": {"codec": "ffv1", "options": {"level": "3", "slicecrc": "1"}},
        "vp8.webm": {"codec": "libvpx"}, "vp9.webm": {"codec": "libvpx-vp9", "options": {"cpu-used": "8"}},
        "av1.mkv": {"codec": AV1_ENCODER, "options": {"cpu-used": "8", "usage": "realtime"}},
        "mjpeg.avi": {"codec": "mjpeg", "pixel_format": "yuvj420p"}, "wmv2.wmv": {"codec": "wmv2"},
        "h264_slices.mp4": {"options": {"x264-params": "slices=4"}, "width": 320, "height": 180},
        "h264_openh264.mkv": {"codec": "libopenh264", "crf": None, "width": 256, "height": 144},
        "hevc_slices.mkv": {"codec": "libx265", "options": {"x265-params": "log-level=error:slices=2"}, "width": 480,
                            "height": 270, "n_frames": 48},
        "hevc.ts": {"codec": "libx265", "options": {"x265-params": "log-level=error"}, "width": 256, "height": 144},
        "mpeg4.mkv": {"codec": "mpeg4", "fps": 25, "width": 320, "height": 180},
        "vp9_tiles.webm": {"codec": "libvpx-vp9", "width": 512, "height": 288, "n_frames": 48,
                           "options": {"cpu-used": "8", "deadline": "realtime", "tile-columns": "1"}},
        "av1_svt.mp4": {"codec": "libsvtav1", "options": {"preset": "12", "svtav1-params": "lp=1"}},
        "prores.mov": {"codec": "prores_ks", "pixel_format": "yuv422p10le", "crf": None},
        "gif.gif": {"codec": "gif", "pixel_format": "rgb8", "fps": 25, "crf": None, "n_frames": 40},
        "h264_noise.mp4": {**_NOISE, "crf": 28, "preset": "ultrafast"},
        "hevc_noise.mkv": {**_NOISE, "crf": 30, "preset": "ultrafast", "codec": "libx265",
                           "options": {"x265-params": "log-level=error"}},
        "vp9_noise.webm": {**_NOISE, "crf": 40, "codec": "libvpx-vp9",
                           "options": {"cpu-used": "8", "deadline": "realtime"}},
        "mpeg4_noise.avi": {**_NOISE, "codec": "mpeg4", "options": {"b": "300k"}},
    }  # fmt: skip
    return {name: _maker(encoding) for name, encoding in settings.items()}


def further_clips() -> dict[str, Maker]:
    """Return 21 clips by file name: codecs in other containers than those of `fault_clips`, most with noise."""
    mjpeg = {"codec": "mjpeg", "pixel_format": "yuvj420p", "width": 320, "height": 192, "noise": 12, "n_frames": 40}
    noise, x265 = {"noise": 8, "n_frames": 60}, {"codec": "libx265"}
    vp8, vp9 = {"codec": "libvpx", **noise}, {"codec": "libvpx-vp9", "options": {"cpu-used": "8"}, **noise}
    settings: dict[str, dict[str, object]] = {
        "mjpeg.mov": mjpeg, "mjpeg.mkv": mjpeg, "mjpeg.mp4": mjpeg,
        "h264_b0.avi": {**noise, "options": {"x264-params": "bframes=0"}},
        "h264_refs.avi": {**noise, "options": {"x264-params": "bframes=0:ref=5"}},
        "h264_refs.mp4": {**noise, "options": {"x264-params": "bframes=2:ref=5"}},
        "h264_slices.mov": {**noise, "options": {"x264-params": "slices=4"}},
        "h264_slices.mkv": {**noise, "options": {"x264-params": "slices=4"}}, "h264_further.ts": noise,
        "vp8.mkv": {**vp8, "gop": 12}, "vp8_further.webm": vp8, "vp8.avi": vp8,
        "vp9.mkv": vp9, "vp9.mp4": {**vp9, "noise": 0},
        "mpeg4.mov": {"codec": "mpeg4", "fps": 25, "n_frames": 60},
        "mpeg4_further.avi": {"codec": "mpeg4", "fps": 25, **noise},
        "hevc_slices.mp4": {**x265, "options": {"x265-params": "log-level=error:slices=2"}, "width": 256,
                            "height": 144},
        "hevc_further.ts": {**x265, "options": {"x265-params": "log-level=error:bframes=0"}, **noise},
        "mpeg2.mkv": {"codec": "mpeg2video", "fps": 25, "options": {"bf": "2"}, "n_frames": 60},
        "prores.mkv": {"codec": "prores_ks", "pixel_format": "yuv422p10le", "crf": None, "n_frames": 40},
        "av1_further.mp4": {"codec": "libsvtav1", "options": {"preset": "12", "svtav1-params": "lp=1"}, "crf": 35,
                            "n_frames": 60},
    }  # fmt: skip
    return {name: _maker(encoding) for name, encoding in settings.items()}


def _maker(encoding: dict[str, object]) -> Maker:
    """Return the maker of a small clip in this encoding, the same bytes each time."""
    # Without `bitexact` Matroska gets a random number, and the same fault would meet another file.
    settings = {**_SIZE, "container_options": {"fflags": "+bitexact"}, **encoding}
    return lambda path: write_clip(path, **settings)  # type: ignore[arg-type]


def _place(data: bytes, rng: np.random.Generator) -> int:
    """Return where damage begins: behind the first twentieth, where most headers are."""
    return int(rng.integers(len(data) // 20, len(data) - 1))


def _stretch(data: bytes, rng: np.random.Generator) -> tuple[int, int]:
    start = _place(data, rng)
    return start, min(start + int(rng.integers(16, _MAX_BYTES)), len(data))


def _cut(data: bytes, rng: np.random.Generator) -> bytes:
    return data[: _place(data, rng)]


def _zeros(data: bytes, rng: np.random.Generator) -> bytes:
    """Blank sectors of 512 bytes, as a failing disk leaves them."""
    start = _place(data, rng) // 512 * 512
    stop = min(start + 512 * int(rng.integers(1, 9)), len(data))
    return data[:start] + bytes(stop - start) + data[stop:]


def _noise(data: bytes, rng: np.random.Generator) -> bytes:
    start, stop = _stretch(data, rng)
    return data[:start] + rng.bytes(stop - start) + data[stop:]


def _missing(data: bytes, rng: np.random.Generator) -> bytes:
    start, stop = _stretch(data, rng)
    return data[:start] + data[stop:]


def _repeated(data: bytes, rng: np.random.Generator) -> bytes:
    """Repeat a stretch, as a download that was resumed at a wrong place."""
    start, stop = _stretch(data, rng)
    return data[:stop] + data[start:]


def _header(data: bytes, rng: np.random.Generator) -> bytes:
    place = int(rng.integers(0, max(len(data) // 20, 64)))
    return data[:place] + bytes([data[place] ^ int(rng.integers(1, 256))]) + data[place + 1 :]


def _byte(data: bytes, rng: np.random.Generator) -> bytes:
    place = _place(data, rng)
    return data[:place] + bytes([data[place] ^ int(rng.integers(1, 256))]) + data[place + 1 :]


def _bit(data: bytes, rng: np.random.Generator) -> bytes:
    place = _place(data, rng)
    return data[:place] + bytes([data[place] ^ 1 << int(rng.integers(8))]) + data[place + 1 :]


# The first five are what disks, networks and tools do; of the last three, most leave a stream that is valid.
STRETCHES: dict[str, Damage] = {
    "cut": _cut, "zeros": _zeros, "noise": _noise, "missing": _missing, "repeated": _repeated,
}  # fmt: skip
SINGLE: dict[str, Damage] = {"header": _header, "byte": _byte, "bit": _bit}


def damaged(data: bytes, *, clip: str, kind: str, number: int) -> bytes:
    """Return a file's bytes with one fault, the same for the same clip, kind and number."""
    seed = [zlib.crc32(clip.encode()), zlib.crc32(kind.encode()), number]
    return {**STRETCHES, **SINGLE}[kind](data, np.random.default_rng(seed))


def frame_prints(path: Path) -> list[int]:
    """Return a checksum of each frame of a sequential decode."""
    return [_print(pixels) for pixels in sequential_frames(path)]


def _print(pixels: Pixels) -> int:
    return zlib.crc32(pixels.tobytes())


def plain_decode(path: Path, *, flags: Sequence[str] = ()) -> tuple[list[int], str]:
    """Return a checksum of each frame that a decode in order gives, and the first thing that is wrong, or "".

    Args:
        flags: what the decoder is to refuse, as FFmpeg's `err_detect` names it.
    """
    prints, errors = list[int](), list[str]()
    with LoggedErrors() as logged:
        try:
            prints.extend(map(_print, sequential_frames(path, flags=flags, errors=errors)))
        except (av.FFmpegError, OSError, VideoError) as error:
            return prints, str(error).replace(f"{path}: ", "").partition(";")[0]
    return prints, [*errors, *logged, ""][0] or ("" if prints else "no frame")


_STRICT = ("crccheck", "bitstream", "buffer", "explode")


@dataclass(frozen=True)
class Reading:
    """What came of reading one damaged file: one of `KINDS`, with the first message and the peak memory in MiB."""

    kind: str
    detail: str
    peak_mib: float = 0.0


def read_apart(path: Path, prints: list[int]) -> Reading:
    """Read a file in a process with limits of memory and time, and compare its frames with those it should have."""
    return run_apart("tests.support.keyframes.faults", path, text=json.dumps(prints))


def run_apart(module: str, path: Path, *, text: str = "", seconds: float | None = None) -> Reading:
    """Run `python -m module path`, which prints its reading by `print_reading`, for at most so many seconds."""
    command, seconds = [sys.executable, "-m", module, str(path)], seconds or SECONDS
    try:
        result = subprocess.run(command, input=text, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return Reading("hung", f"over {seconds:g} s")
    if result.returncode:
        return Reading("crashed", f"exit {result.returncode}: {result.stderr.strip()[-300:]}")
    return Reading(**json.loads(result.stdout.splitlines()[-1]))


def read_here(path: Path, prints: list[int]) -> Reading:
    """Read a file forward, with one thread and with four, and frame by frame; see `KINDS` for the outcomes.

    `refused`: some frames, or all, were refused with an error that names the file, and all others are right;
    `shorter`: it has fewer or more frames than it should, nothing was refused, and those that are there are right.
    """
    return _compare(path, prints)[0]


def _compare(path: Path, prints: list[int]) -> tuple[Reading, set[tuple[int, int]]]:
    """Return the outcome of `read_here`, and the number and checksum of each wrong frame."""
    wrong: set[tuple[int, int]] = set()
    refusal, right_print = "", dict(enumerate(prints))

    def compare(frames: Iterable[tuple[int, Pixels]], given: list[tuple[int, int]] | None = None) -> None:
        for number, pixels in frames:
            if (frame_print := _print(pixels)) != right_print.get(number):
                wrong.add((number, frame_print))
            if given is not None:
                given.append((number, frame_print))

    try:
        by_threads: list[list[tuple[int, int]]] = [[], []]
        for n_threads, given in zip((1, 4), by_threads, strict=True):
            with open_video(path, n_threads=n_threads) as video, suppress(FocusEvalError):
                compare(video.stream(np.arange(video.info.n_frames)), given)
        if by_threads[0] != by_threads[1]:
            return Reading("wrong", "four threads give other frames than one"), {(-1, 0)}
        with open_video(path) as video:
            n_frames = video.info.n_frames
            for frames in (range(n_frames), *([number] for number in range(0, n_frames, max(_STEP, n_frames // 40)))):
                try:
                    compare(video.stream(np.array(frames)))
                except FocusEvalError as error:
                    refusal = refusal or str(error)
    except FocusEvalError as error:
        return Reading("refused", str(error)), wrong
    if wrong:
        return Reading("wrong", f"frames {sorted({number for number, _ in wrong})[:8]} of {n_frames}"), wrong
    if refusal:
        return Reading("refused", refusal), wrong
    if n_frames != len(prints):
        return Reading("shorter", f"{n_frames} frames of {len(prints)}"), wrong
    return Reading("right", ""), wrong


def judge_here(path: Path, prints: list[int]) -> Reading:
    """Do what `read_here` does, and compare with a plain decode of the damaged file with one thread.

    Where that gives every frame as it should be, a refusal is `refused falsely`; where it gives the same frames and,
    told to be strict or not, finds nothing wrong from their key frames to them, frames are `wrong without a sign`.
    """
    reading, wrong = _compare(path, prints)
    if reading.kind in ("refused", "wrong"):
        plain_prints, sign = plain_decode(path)
        if reading.kind == "refused" and plain_prints == prints:
            return replace(reading, kind="refused falsely")
        # Not by number: a plain decode counts on over frames that it leaves out.
        if reading.kind == "wrong" and {frame_print for _, frame_print in wrong} <= set(plain_prints):
            is_damage_seen = sign or plain_decode(path, flags=_STRICT)[1]
            # What is seen may be in other packets.
            numbers = sorted({number for number, _ in wrong}) if is_damage_seen else []
            if not any(sign_before(path, number, flags=flags) for number in numbers for flags in ((), _STRICT)):
                return replace(reading, kind="wrong without a sign")
    return reading


def print_reading(read: Callable[[], Reading]) -> None:
    """Read under limits and print what came of it as JSON, with the peak memory."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    reading = read()
    status = Path("/proc/self/status")
    words = status.read_text().split() if status.exists() else []
    peak = int(words[words.index("VmHWM:") + 1]) / 1024 if "VmHWM:" in words else 0.0
    print(json.dumps(asdict(replace(reading, peak_mib=peak))))


if __name__ == "__main__":
    # The checksums that the frames should have come from standard input.
    print_reading(lambda: judge_here(Path(sys.argv[1]), json.load(sys.stdin)))
