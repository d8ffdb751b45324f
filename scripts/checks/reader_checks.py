"""Switch the reader's own checks against damage off, one by one, and count what each prevents and refuses falsely.

A check prevents harm where a damaged file, read without any own check, gives frames that differ from the whole file's,
or another number of them, though FFmpeg gives no sign, and where that check refuses them; `alone` counts files that no
other check refuses. It refuses falsely where a valid file, which FFmpeg decodes without a sign, is refused with it.
Run: python -m scripts.checks.reader_checks [--each 5] [--first 0] [--only TEXT] [--valid FOLDER..] [--csv FILE]
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import resource
import signal
import sys
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from focus_eval.core.errors import FocusEvalError, VideoError
from focus_eval.keyframes.video import decoder, integrity, open_video, pyav, scan
from tests.support.keyframes.clips import AV1_ENCODER, write_clip
from tests.support.keyframes.faults import SINGLE, STRETCHES, damaged, frame_prints, plain_decode

_SECONDS, _MEMORY_BYTES = 30, 3 << 30
# Frames that differ from the whole file's, or fewer or more of them, without a word.
_HARMS = ("wrong", "shorter")
_X265 = {"x265-params": "log-level=error"}
_NAMES = {  # by the clause of a fault
    "where a box should begin": "MP4: boxes of fragments", "where a fragment begins": "MP4: boxes of fragments",
    "its part ": "MP4: boxes of fragments", "checksum does not match": "Matroska: checksums",
    "bytes, the file has": "Matroska, WMV: bytes promised", "ends within a packet": "TS: cut within a packet",
    "is damaged": "TS: damaged packets", "of its pictures are missing": "TS: times of pictures",
    "packets of the video are missing": "TS: counters", "its last part is incomplete": "Flash: tags",
    "its pages end": "Ogg: pages", "its last page": "Ogg: pages", "frames, the file holds": "AVI: frames promised",
}  # fmt: skip


class Switches:
    """Which checks are off, and which ones fired; for one process."""

    def __init__(self) -> None:
        self.off: set[str] = set()
        self.only: str | None = None
        self.all_off = False
        self.fired: set[str] = set()

    def fires(self, name: str) -> bool:
        """Note that a check fires; return True if it is on."""
        self.fired.add(name)
        return not (self.all_off or name in self.off or self.only not in (None, name))


switches = Switches()


def _named(check: Callable[..., str | None]) -> Callable[..., str | None]:
    """Wrap a check that returns a clause for a fault."""

    def named_check(*arguments: Any) -> str | None:
        fault = check(*arguments)
        if not fault:
            return None
        name = next((name for text, name in _NAMES.items() if text in fault), fault)
        return fault if switches.fires(name) else None

    return named_check


def install() -> None:
    """Wrap every own check of the reader in this process."""
    for name, check in list(integrity._FAULTS.items()):
        integrity._FAULTS[name] = _named(check)
    check_whole, lose, is_refused = scan.check_whole, pyav.Taint._lose, decoder.is_refused

    def check_named(path: Path, opened: Any, packets: Any, *, logged: list[str]) -> Any:
        try:
            return check_whole(path, opened, packets, logged=logged)
        except VideoError as error:
            if "damaged (" not in str(error) or switches.fires("demuxer's log"):
                raise
            return check_whole(path, opened, packets, logged=[])

    def lose_named(taint: Any, position: int) -> None:
        if taint._seen_to == position + 1 and not switches.fires("AV1: next packet"):
            position += 1
        lose(taint, position)

    def is_refused_named(second: Any, packet: Any) -> bool:
        return is_refused(second, packet) and switches.fires("second decoder: VP9")

    scan.check_whole, pyav.Taint._lose = check_named, lose_named  # type: ignore[method-assign]
    decoder.is_refused = is_refused_named


def read(path: Path, prints: list[int] | None) -> tuple[str, str]:
    """Return (outcome, detail) of reading a file forward, from each refusal to the next sync frame, and here and there.

    Args:
        prints: checksums of the frames that it should have; None: any.
    """
    wrong, refusal = set[int](), ""
    scan._recent.clear()
    try:
        with open_video(path, n_threads=1) as video:
            n = video.info.n_frames
            starts = video.info.sync_frames if video.info.sync_frames is not None else np.zeros(1, dtype=int)
            at = 0
            while at < n:
                try:
                    for number, pixels in video.stream(np.arange(at, n)):
                        at = number + 1
                        if prints is not None and prints[number : number + 1] != [zlib.crc32(pixels.tobytes())]:
                            wrong.add(number)
                except VideoError as error:
                    refusal = refusal or str(error)
                    at = int(min((start for start in starts if start > at), default=n))
            for number in range(2, n, max(5, n // 6)):
                with suppress(VideoError):
                    pixels = video.read([number])[0]
                    if prints is not None and prints[number : number + 1] != [zlib.crc32(pixels.tobytes())]:
                        wrong.add(number)
    except FocusEvalError as error:
        return "refused", str(error)
    if wrong:
        return "wrong", f"{sorted(wrong)[:5]} of {n}"
    if refusal:
        return "refused", refusal
    return ("right", "") if prints is None or n == len(prints) else ("shorter", f"{n} of {len(prints)}")


def judge(path: Path, prints: list[int]) -> dict[str, Any]:
    """Read a damaged file with all checks, without any, and with and without each check that fired."""
    result: dict[str, Any] = {"with": read(path, prints)}
    fired = sorted(switches.fired)
    switches.all_off = True
    result |= {"fired": fired, "without": read(path, prints), "only": [], "alone": []}
    switches.all_off = False
    if result["without"][0] in _HARMS:
        for name in fired:
            switches.only = name
            if read(path, prints)[0] not in _HARMS:
                result["only"].append(name)
            switches.only, switches.off = None, {name}
            if read(path, prints)[0] in _HARMS:
                result["alone"].append(name)
            switches.off = set()
    return result


def judge_valid(path: Path) -> dict[str, Any]:
    """Read a file that should be valid with all checks; say which fire though FFmpeg gives no sign."""
    prints, sign = plain_decode(path)
    outcome = read(path, prints)
    fired = sorted(switches.fired)
    switches.all_off = True
    return {"with": outcome, "fired": [] if sign else fired, "without": read(path, prints), "sign": sign}


def apart(call: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return the result of `call` in a child process with limits of memory and time."""
    receiving, sending = os.pipe()
    child = os.fork()
    if child == 0:
        with suppress(BaseException):
            resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
            signal.alarm(_SECONDS)
            os.close(receiving)
            try:
                result = call()
            except Exception as error:  # noqa: BLE001 (what a reader must not raise is counted)
                result = {"with": ("raw", repr(error)), "fired": [], "without": ("raw", ""), "only": [], "alone": []}
            with os.fdopen(sending, "w") as file:
                json.dump(result, file)
        os._exit(0)
    os.close(sending)
    with os.fdopen(receiving) as file:
        content = file.read()
    status = os.waitpid(child, 0)[1]
    if content:
        return dict(json.loads(content))
    kind = "hung" if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGALRM else "crashed"
    return {"with": (kind, str(status)), "fired": [], "without": (kind, ""), "only": [], "alone": []}


def small_clips() -> dict[str, dict[str, Any]]:
    """Return encodings of small clips by file name."""
    vp8, vp9 = {"codec": "libvpx"}, {"codec": "libvpx-vp9", "options": {"cpu-used": "8"}}
    av1 = {"codec": AV1_ENCODER, "options": {"cpu-used": "8", "usage": "realtime"}}
    svt = {"codec": "libsvtav1", "options": {"preset": "12", "svtav1-params": "lp=1"}}
    mjpeg = {"codec": "mjpeg", "pixel_format": "yuvj420p"}
    mpeg2 = {"codec": "mpeg2video", "fps": 25, "options": {"bf": "2"}}
    in_two = {"codec": "libx265", "options": {"x265-params": "log-level=error:slices=2"}, "width": 256, "height": 144}
    return {
        "h264.mp4": {"options": {"x264-params": "bframes=3:ref=3"}},
        "h264_cavlc.mp4": {"options": {"x264-params": "cabac=0:bframes=0"}},
        "h264_fragments.mp4": {"container_options": {"movflags": "frag_keyframe+empty_moov"}}, "h264.mkv": {},
        "h264.ts": {}, "h264.flv": {}, "h264.avi": {"options": {"x264-params": "bframes=0"}},
        "h264_slices.mkv": {"options": {"x264-params": "slices=4"}},
        "hevc.mp4": {"codec": "libx265", "options": _X265}, "hevc.mkv": in_two,
        "hevc.ts": {"codec": "libx265", "options": _X265},
        "mpeg4.avi": {"codec": "mpeg4", "fps": 25},
        "mpeg4_b.mp4": {"codec": "mpeg4", "fps": 25, "options": {"bf": "2"}},
        "mpeg4.mkv": {"codec": "mpeg4", "fps": 25}, "mpeg2.ts": mpeg2, "mpeg2.mpg": mpeg2, "mpeg2.mkv": mpeg2,
        "vp8.ogg": vp8, "ffv1.mkv": {"codec": "ffv1", "options": {"level": "3", "slicecrc": "1"}},
        "vp8.webm": vp8, "vp8.mkv": vp8, "vp9.webm": vp9, "vp9.mp4": vp9, "av1.mkv": av1, "av1_svt.mp4": svt,
        "mjpeg.mov": mjpeg, "mjpeg.avi": mjpeg,
        "wmv2.wmv": {"codec": "wmv2"}, "prores.mov": {"codec": "prores_ks", "pixel_format": "yuv422p10le", "crf": None},
        "gif.gif": {"codec": "gif", "pixel_format": "rgb8", "fps": 25, "crf": None},
    }  # fmt: skip


def damaged_files(folder: Path, options: argparse.Namespace) -> Iterator[tuple[Path, list[int], str]]:
    """Yield (path, checksums of the whole file's frames, kind of damage) of each damaged file, one at a time."""
    size = {"width": 160, "height": 96, "n_frames": 36, "gop": 12, "noise": 8}
    for name, encoding in small_clips().items():
        if not any(text in name for text in options.only.split(",")):
            continue
        settings = {**size, "container_options": {"fflags": "+bitexact"}, **encoding}
        whole = write_clip(folder / name, **settings)
        prints, data = frame_prints(whole), whole.read_bytes()
        for kind in (*STRETCHES, *SINGLE):
            for number in range(options.first, options.first + options.each):
                path = folder / f"{kind}{number}_{name}"
                path.write_bytes(damaged(data, clip=name, kind=kind, number=7_000_000 + number))
                yield path, prints, kind
                path.unlink()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--each", type=int, default=5, help="files per clip and kind of damage (default: 5)")
    parser.add_argument("--first", type=int, default=0, help="number of the first damage (default: 0)")
    parser.add_argument("--only", default="", help="only clips whose name contains one of these, with commas")
    parser.add_argument("--valid", type=Path, nargs="*", default=[], metavar="FOLDER", help="folders of valid files")
    parser.add_argument("--csv", type=Path, help="write the counts by check here")
    parser.add_argument("--log", type=Path, help="write what came of each file here, as JSON lines")
    options = parser.parse_args()
    install()
    since, outcomes = time.perf_counter(), Counter[tuple[str, str]]()
    prevents, alone, falsely = Counter[str](), Counter[str](), Counter[str]()
    log = (options.log or Path(os.devnull)).open("a", encoding="utf-8")
    with tempfile.TemporaryDirectory() as temporary, log:
        for path, prints, _ in damaged_files(Path(temporary), options) if options.each else ():
            result = apart(lambda path=path, prints=prints: judge(path, prints))  # type: ignore[misc]
            outcomes["with", result["with"][0]] += 1
            outcomes["without", result["without"][0]] += 1
            prevents.update(result["only"])
            alone.update(result["alone"])
            log.write(json.dumps({"file": path.name, **result}) + "\n")
            log.flush()
        for path in sorted(path for folder in options.valid for path in folder.iterdir() if path.is_file()):
            result = apart(lambda path=path: judge_valid(path))  # type: ignore[misc]
            if result["with"][0] in ("refused", "wrong"):
                falsely.update(result["fired"])
            outcomes["valid", result["with"][0]] += 1
            outcomes["valid, without", result["without"][0]] += 1
            log.write(json.dumps({"file": path.name, **result}) + "\n")
    print(dict(outcomes))
    rows = [("check", "prevents", "alone", "refuses falsely")]
    rows += [(name, prevents[name], alone[name], falsely[name]) for name in sorted({*prevents, *alone, *falsely})]
    for row in rows:
        print(*row, sep="\t")
    if options.csv:
        with options.csv.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerows(rows)
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    print(f"{time.perf_counter() - since:.0f} s, {sum(u.ru_utime + u.ru_stime for u in usage):.0f} processor seconds")
    return 0


if __name__ == "__main__":
    sys.exit(main())
