"""How many milliseconds of its own does the plugin add to an answer, beside the stock wrapper with the same model?

A tiny LLaVA-OneVision answers the same questions, each about a video of its own, through the stock wrapper and through
the plugin: twenty at a time, in alternation, in one process. Reading is measured alone. What is left of the stock
wrapper is prompt, processor and model; what the plugin has beside that is its own: requests, choosing with `uniform`,
the queue, checks and rows. Medians of processor time over the twenties, of all threads and processes, because other
programs may run meanwhile.

Run: python -m scripts.speed.adapter [--questions 200]
"""

from __future__ import annotations

import argparse
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

N_FRAMES = 8
N_TOGETHER = 20
_TASK = "focus_longvideobench"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", type=int, default=200)
    args = parser.parse_args()
    import torch

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        clips, work_by_name = prepared(Path(folder), N_TOGETHER + args.questions)
        milliseconds: dict[str, list[float]] = {name: [] for name in work_by_name}
        for first in range(0, len(clips), N_TOGETHER):
            numbers = range(first, min(first + N_TOGETHER, len(clips)))
            for name, work in work_by_name.items():
                started = processor_seconds()
                work(numbers)
                if first:  # what is loaded with the first questions is not measured
                    milliseconds[name].append(1e3 * (processor_seconds() - started) / len(numbers))
    unread_milliseconds = {
        name: [whole - read for whole, read in zip(milliseconds[name], milliseconds[f"{name}, reading"], strict=True)]
        for name in ("stock", "plugin")
    }
    milliseconds["plugin, its own"] = [
        plugin_part - stock_part
        for plugin_part, stock_part in zip(unread_milliseconds["plugin"], unread_milliseconds["stock"], strict=True)
    ]
    print(f"processor ms an answer, {args.questions} questions, {N_FRAMES} frames of 320 x 240: median (range)")
    for name, values in milliseconds.items():
        print(f"{name:<20} {statistics.median(values):7.2f} ({min(values):.2f} to {max(values):.2f})")


def processor_seconds() -> float:
    """Return the processor time of this process and of its children that have ended, in seconds."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def prepared(folder: Path, n_clips: int) -> tuple[list[Path], dict[str, Callable[[Sequence[int]], object]]]:
    """Return the videos, and what is measured by name; each takes the numbers of the videos to work on."""
    from lmms_eval.models.simple.llava_hf import LlavaHf

    from focus_eval.bench.lmms.models.llava_hf import FocusLlavaOnevision
    from focus_eval.keyframes.samplers.uniform import even_frames
    from focus_eval.keyframes.video import open_video
    from tests.support.bench.lmms_data import longvideobench_rows
    from tests.support.keyframes.synthetic import write_numbered_clip
    from tests.support.keyframes.tiny_transformers import save_llava_onevision

    weights = save_llava_onevision(folder / "tiny")
    clip = write_numbered_clip(folder / "clip.mp4", 300, width=320, height=240, fps=30)
    clips = [folder / f"video_{number}.mp4" for number in range(n_clips)]
    for path in [*clips, *map(_unread, clips)]:
        path.hardlink_to(clip)
    options = {"pretrained": str(weights), "device": "cpu", "device_map": "cpu"}
    stock = LlavaHf(**options, max_frames_num=N_FRAMES)
    plugin = FocusLlavaOnevision(**options, sampler="uniform", frames=N_FRAMES, record=str(folder / "record"))
    (row,) = longvideobench_rows(["landscape"], ["?"])
    documents = [{**row, "video_path": path.name, "id": path.stem, "duration": 10.0} for path in clips]
    stock.task_dict = plugin.task_dict = {_TASK: {"test": documents}}

    def read_plugin(numbers: Sequence[int]) -> None:
        """Scan videos that the plugin has not seen, and read the frames that it shows."""
        for number in numbers:
            with open_video(_unread(clips[number])) as reader:
                reader.read(even_frames(reader.info, N_FRAMES))

    return clips, {
        "stock": lambda numbers: stock.generate_until(requests(clips, numbers)),
        "plugin": lambda numbers: plugin.generate_until(requests(clips, numbers)),
        "stock, reading": lambda numbers: [stock.load_video(str(clips[number]), N_FRAMES) for number in numbers],
        "plugin, reading": read_plugin,
    }


def _unread(path: Path) -> Path:
    return path.with_stem(f"{path.stem}_unread")


def requests(clips: Sequence[Path], numbers: Sequence[int]) -> list[Any]:
    """Return a request of lmms-eval about each of these videos."""
    from lmms_eval.api.instance import Instance

    def visuals(document: dict[str, str]) -> list[str]:
        return [str(clips[0].with_name(document["video_path"]))]

    metadata = {"task": _TASK, "repeats": 1, "split": "test"}
    return [
        Instance(
            request_type="generate_until",
            arguments=(f"{number}?", {"max_new_tokens": 1}, visuals, number, _TASK, "test"),
            idx=0,
            metadata={**metadata, "doc_id": number},
        )
        for number in numbers
    ]


if __name__ == "__main__":
    main()
