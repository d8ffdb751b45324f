"""How much does reading the frames a sampler asks for cost, against reading them one index at a time?

Makes H.264 clips, takes the frames of each sampler in the order it asks for them, and reads them in fresh processes,
alternating, in one run:

  ours       one forward pass per batch that the sampler asks for (the default reader)
  one by one `video[index]` per frame in the order asked, as the public code does: through decord if it is installed,
             else PyAV with a seek to the sync frame before each index

`times less` divides wall clocks, and processor seconds, which other work on the machine disturbs less; both include
opening. `than released` divides what `focus_released` costs one by one (the public pipeline) by what ours costs for
this sampler. Run: python -m scripts.speed.decode [--quick] [--folder FOLDER]
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from focus_eval import make_sampler
from focus_eval.core.processes import n_cores
from focus_eval.keyframes.video import open_video
from tests.support.keyframes.synthetic import write_long_clip

_FPS = 30
_SIZES = {"360p": (640, 360), "720p": (1280, 720)}
_SAMPLERS = ("focus_released", "focus", "focus_gop", "aks")
# None: x264's usual distance, at most 250 frames and a sync frame at each cut.
_GROUP_SECONDS = (2, 5, 10, None)


def clip_name(minutes: float, size: str, group_seconds: float | None) -> str:
    return f"{minutes:g}min_{size}_{'x264' if group_seconds is None else f'{group_seconds}s'}.mp4"


def make_clip(folder: Path, minutes: float, size: str, group_seconds: float | None) -> Path:
    """Return the path of a benchmark clip in `folder`; make the clip first if it does not exist."""
    name = clip_name(minutes, size, group_seconds)
    path = folder / name
    if path.exists():
        return path
    width, height = _SIZES[size]
    options = {} if group_seconds is None else {"x264-params": f"scenecut=0:min-keyint={group_seconds * _FPS}"}
    gop = 250 if group_seconds is None else int(group_seconds * _FPS)
    partial = path.with_name("making." + name)
    write_long_clip(partial, minutes * 60, width=width, height=height, fps=_FPS, gop=gop, crf=20, options=options)
    return partial.rename(path)


def asked_batches(path: Path, sampler: str, *, k: int = 64) -> list[list[int]]:
    """Return the batches of frames that a sampler pulls from a clip, in the order it asks for them."""
    with open_video(path) as video:
        info = video.info
    bumps = np.random.default_rng(7).uniform(0, info.n_frames, 5)
    batches: list[list[int]] = []

    def pull(frames: np.ndarray) -> np.ndarray:
        """Note the frames asked for, and return relevance that falls off with the distance to the next bump."""
        batches.append(frames.tolist())
        distances = np.abs(frames[:, None] - bumps).min(axis=1) / (20 * _FPS)
        return 0.1 + 0.8 * np.exp(-(distances**2)) * (0.9 + 0.1 * np.cos(frames))

    make_sampler(sampler).select(info, k=k, pull=pull, rng=np.random.default_rng(0))
    return batches


def read_ours(path: Path, batches: list[list[int]]) -> int:
    """Read the batches as the pipeline does; return the number of frames decoded."""
    with open_video(path) as video:
        for batch in batches:
            for _, pixels in video.stream(np.array(batch)):
                assert pixels.ndim == 3
        return video.n_decoded


def read_with_decord(path: Path, batches: list[list[int]]) -> int:
    """Read one index at a time through decord; return the number of frames that it has to decode."""
    import decord

    video = decord.VideoReader(str(path), ctx=decord.cpu(0))
    for batch in batches:
        for number in batch:
            assert video[number].asnumpy().ndim == 3
    return _frames_on_the_way(np.array(video.get_key_indices()), [n for batch in batches for n in batch])


def _frames_on_the_way(sync: np.ndarray, frames: list[int]) -> int:
    """Count the decoded frames of a decoder that goes on within a group and otherwise starts at a sync frame."""
    previous, total = -1, 0
    for number in frames:
        start = int(sync[np.searchsorted(sync, number, side="right") - 1])
        total += number - previous if start <= previous < number else number - start + 1
        previous = number
    return total


def read_with_pyav(path: Path, batches: list[list[int]]) -> int:
    """Read one index at a time through PyAV, with a seek for each; return the number of frames decoded."""
    import av

    n_decoded = 0
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        stream.thread_type = "AUTO"
        for number in (number for batch in batches for number in batch):
            ticks = round(number / _FPS / stream.time_base)
            container.seek(ticks, stream=stream)
            for frame in container.decode(stream):
                n_decoded += 1
                if frame.pts >= ticks:
                    assert frame.to_ndarray(format="rgb24").ndim == 3
                    break
    return n_decoded


_READERS = {"ours": read_ours, "decord": read_with_decord, "pyav": read_with_pyav}


def measure(reader: str, path: Path, batches: list[list[int]]) -> dict[str, float]:
    """Measure one reader in a new process; return seconds, frames decoded and peak MiB beyond the imports."""
    command = [sys.executable, "-m", "scripts.speed.decode", "--child", reader, "--clip", str(path)]
    result = subprocess.run(command, input=json.dumps(batches), capture_output=True, text=True, check=False)
    if result.returncode:
        raise SystemExit(f"{reader} on {path.name} failed: {result.stderr[-2000:]}")
    figures: dict[str, float] = json.loads(result.stdout.splitlines()[-1])
    return figures


def child(reader: str, path: Path) -> None:
    """Measure one reader in this process and print its figures as JSON."""
    batches = json.load(sys.stdin)
    # Loading the libraries is no part of reading.
    importlib.import_module({"ours": "focus_eval.keyframes.video.pyav", "decord": "decord", "pyav": "av"}[reader])
    start, start_cpu = time.perf_counter(), time.process_time()
    n_decoded = _READERS[reader](path, batches)
    seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - start_cpu
    print(json.dumps({"seconds": seconds, "cpu": cpu_seconds, "decoded": n_decoded, "peak_mib": peak_mib()}))


def peak_mib() -> float:
    """Return this process's peak resident memory in MiB.

    `ru_maxrss` does not serve: a child process starts with its parent's peak.
    """
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def best(reader: str, path: Path, batches: list[list[int]], *, repeats: int) -> dict[str, float]:
    """Return the fastest of `repeats` measurements of one reader."""
    return min((measure(reader, path, batches) for _ in range(repeats)), key=lambda figures: figures["seconds"])


def compare(path: Path, *, baseline: str, repeats: int) -> None:
    """Print a row for each sampler: our reader against the baseline on one clip."""
    released: dict[str, float] = {}
    for sampler in _SAMPLERS:
        batches = asked_batches(path, sampler)
        n_asked = sum(map(len, batches))
        reader_best = best("ours", path, batches, repeats=repeats)
        single = best(baseline, path, batches, repeats=repeats)
        released = released or single
        cells = [
            path.stem,
            sampler,
            str(n_asked),
            *_costs(reader_best, single, released, "seconds"),
            *_costs(reader_best, single, released, "cpu"),
            f"{reader_best['decoded'] / n_asked:.1f}",
            f"{single['decoded'] / n_asked:.1f}",
            f"{reader_best['peak_mib']:.0f}",
            f"{single['peak_mib']:.0f}",
        ]
        print("| " + " | ".join(cells) + " |", flush=True)


def _costs(reader_costs: dict[str, float], single: dict[str, float], released: dict[str, float], key: str) -> list[str]:
    ratio, than_released = single[key] / reader_costs[key], released[key] / reader_costs[key]
    return [f"{reader_costs[key]:.2f}", f"{single[key]:.2f}", f"{ratio:.1f}", f"{than_released:.1f}"]


def cases(*, quick: bool) -> list[tuple[float, str, float | None]]:
    """Return the clips to read as (minutes, size, seconds between sync frames)."""
    if quick:
        return [(2, "360p", 5), (2, "360p", None)]
    twenty = [(20, size, group) for size in _SIZES for group in _GROUP_SECONDS]
    return [*twenty, (60, "360p", 5), (60, "360p", None), (60, "720p", 5), (60, "720p", None)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two clips of two minutes")
    parser.add_argument("--folder", type=Path, help="keep the clips here (default: a temporary folder)")
    parser.add_argument("--only", default="", help="only clips whose name contains this, for instance 20min_360p")
    parser.add_argument("--repeats", type=int, default=1, help="measurements per reader, the fastest counts")
    parser.add_argument("--one-by-one", choices=["decord", "pyav"], help="baseline (default: decord if installed)")
    parser.add_argument("--child", choices=list(_READERS), help=argparse.SUPPRESS)
    parser.add_argument("--clip", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child, options.clip)
        return
    baseline = options.one_by_one or ("decord" if importlib.util.find_spec("decord") else "pyav")
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        print(f"one by one: {baseline}; {n_cores()} cores; decoded: frames decoded per frame asked for\n")
        columns = (
            "clip, sampler, frames, ours s, one by one s, times less, than released, ours CPU s, one by one CPU s, "
        )
        columns += "times less, than released, decoded ours, decoded one by one, peak MiB ours, peak MiB one by one"
        print("| " + columns.replace(", ", " | ") + " |")
        print("|" + "---|" * len(columns.split(", ")))
        for minutes, size, group_seconds in cases(quick=options.quick):
            if options.only in clip_name(minutes, size, group_seconds):
                path = make_clip(folder, minutes, size, group_seconds)
                compare(path, baseline=baseline, repeats=options.repeats)


if __name__ == "__main__":
    main()
