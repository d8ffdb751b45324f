"""How busy is a GPU while a model answers, by resolution, frames and GPUs of a node? A discrete-event simulation.

Each GPU has a process with its share of the cores. A question's frames are decoded (runs of a video side by side, at
most four), its inputs are prepared on one core (resizing and processor), then the model takes it alone. Ways:

  between   two questions are decoded ahead; inputs are prepared between forwards
  ahead     `lmms.lookahead.n_lanes` threads take questions from file to model, which takes them in order
  together  the same, and three cells of a matrix share the frames of a video as far as they fit into memory
            (`lmms.lookahead.FrameGroup`)

Cores' seconds are measured here (`--measure CLIP` prints them for a file) or stated; a forward's seconds are stated.
Run: python scripts/node/answer_simulation.py [--cores 64] [--forward 0.6] [--measure CLIP]
[--csv results/published/answer_simulation.csv]
"""

from __future__ import annotations

import argparse
import csv
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from event_clock import Clock, Servers

from focus_eval.bench.lmms.lookahead import n_groups_ahead, n_lanes

# Seconds of a core on an Intel Xeon, 2026-11-23, by video: for each frame passed over on the way to those asked for,
# and to prepare one frame for Qwen2-VL (resizing and processor, one thread).
DECODE = {"720p": 0.0014, "1080p": 0.0029}
PREPARE = {"720p": 0.060, "1080p": 0.081}
FPS, GROUP = 30, 150  # a sync frame every five seconds
LENGTHS = (15.0, 45.0, 400.0, 1800.0)  # seconds, in about equal parts, as in LongVideoBench
READERS = 4  # runs of one video that are decoded side by side
FRAME_BYTES = {"720p": 1280 * 720 * 3, "1080p": 1920 * 1080 * 3}
SHARED_BYTES = 2e9  # half of `decode_gigabytes`
COLUMNS = ("video", "K", "GPUs", "cores each", "between", "ahead", "together")


@dataclass(frozen=True)
class Question:
    """Seconds that one question takes: of a core to decode its frames and prepare its inputs, and of the model.

    Args:
        part: number of the group of questions whose frames are decoded together; `decode` is then for all frames of
            the group. None for a question with frames of its own.
    """

    decode: float
    prepare: float
    forward: float
    part: int | None = None


@dataclass(frozen=True)
class Way:
    """Way in which a process works.

    Args:
        lanes: questions decoded side by side.
        prepares: True if the decoding threads prepare the inputs too.
        n_ahead: parts of shared frames decoded ahead.
    """

    lanes: int
    prepares: bool
    n_ahead: int = 0


def questions(size: str, k: int, *, n_videos: int, forward: float, n_ahead: int = 0) -> list[Question]:
    """Return the questions of three cells in order, two questions a video, with LongVideoBench's video lengths.

    Args:
        n_ahead: parts of shared frames decoded ahead; 0 if each question decodes its own frames.
    """
    rng = np.random.default_rng(0)
    max_ahead = SHARED_BYTES / (n_ahead + 2) / FRAME_BYTES[size]
    simulated: list[Question] = []
    n_parts = 0
    for number in range(n_videos):
        n_frames = int(LENGTHS[number % len(LENGTHS)] * FPS)
        unions: list[list[np.ndarray]] = []
        for frames in [np.unique(rng.integers(0, n_frames, k)) for _ in range(6)]:
            if n_ahead and unions and np.unique(np.concatenate([*unions[-1], frames])).size <= max_ahead:
                unions[-1].append(frames)
            else:
                unions.append([frames])
        for union in unions:
            cost = passed(np.unique(np.concatenate(union))) * DECODE[size]
            part = n_parts if len(union) > 1 else None
            n_parts += len(union) > 1
            simulated += [Question(cost, k * PREPARE[size], forward, part)] * len(union)
    return simulated


def passed(frames: np.ndarray) -> int:
    """Return how many frames are decoded to reach `frames`: in each group, from its sync frame to the last one."""
    groups = frames // GROUP
    last = np.flatnonzero(np.diff(groups, append=-1))
    return int((frames[last] % GROUP + 1).sum())


def busy(questions: Sequence[Question], *, cores: int, method: Way) -> tuple[float, float]:
    """Return the seconds that one process takes for `questions`, and the share of them in which its GPU computes."""
    clock = Clock()
    node, lanes = Servers(clock, cores), Servers(clock, method.lanes)
    waiting: deque[tuple[int, Question]] = deque(enumerate(questions))
    ready: dict[int, Callable[[], None]] = {}
    state = {"next": 0, "is_free": True, "busy": 0.0}
    pool = Servers(clock, max(1, method.n_ahead))
    cost_of = {question.part: question.decode for question in questions}
    waits: dict[int, list[Callable[[], None]] | None] = {}  # by part that was started; None where it is decoded

    def start() -> None:
        """Begin to decode the next question, if there is one, on a free lane."""
        if waiting:
            at, question = waiting.popleft()
            lanes.take(lambda: decode(at, question))

    def decode(at: int, question: Question) -> None:
        """Decode a question's frames; where it shares them, those of its part and of the parts decoded ahead."""
        if question.part is None:
            read(question.decode, lambda: decoded(at, question))
            return
        for part in range(question.part, question.part + 1 + method.n_ahead):
            if part in cost_of and part not in waits:
                waits[part] = []
                pool.take(partial(read, cost_of[part], partial(part_decoded, part)))
        callbacks = waits[question.part]
        if callbacks is None:
            decoded(at, question)
        else:
            callbacks.append(lambda: decoded(at, question))

    def part_decoded(part: int) -> None:
        """Free the part's place and go on with all questions that wait for it."""
        callbacks, waits[part] = waits[part], None
        pool.give_back()
        for then in callbacks or []:
            then()

    def read(seconds: float, then: Callable[[], None]) -> None:
        """Share the seconds of decoding out among the readers, and call `then` once all are done."""
        remaining = [READERS]

        def run_done() -> None:
            remaining[0] -= 1
            if remaining[0] == 0:
                then()

        for _ in range(READERS):
            node.serve(seconds / READERS, run_done)

    def decoded(at: int, question: Question) -> None:
        """Prepare a question's frames: at once if the method prepares ahead, else when its turn has come."""
        if method.prepares:
            node.serve(question.prepare, lambda: arrive(at, lambda: run(question)))
        else:
            arrive(at, lambda: node.serve(question.prepare, lambda: run(question)))

    def arrive(at: int, then: Callable[[], None]) -> None:
        ready[at] = then
        look()

    def look() -> None:
        """Start the next question in order if it is ready and the GPU's thread is free."""
        if state["is_free"] and state["next"] in ready:
            state["is_free"] = False
            ready.pop(int(state["next"]))()
            if not method.prepares:  # its thread decodes the next one, while this one is prepared and answered
                give_back()

    def run(question: Question) -> None:
        state["busy"] += question.forward
        clock.after(question.forward, answered)

    def answered() -> None:
        """Go on with the next question."""
        state["next"] += 1
        state["is_free"] = True
        if method.prepares:
            give_back()
        look()

    def give_back() -> None:
        lanes.give_back()
        start()

    for _ in range(method.lanes):
        start()
    clock.run()
    return clock.now, state["busy"] / clock.now


def measure(clip: Path) -> None:
    """Print the core seconds to decode a frame of `clip` and to prepare its frames for Qwen2-VL."""
    import torch
    from qwen_vl_utils import fetch_video
    from transformers import Qwen2VLVideoProcessor

    from focus_eval.bench.lmms.models.qwen_vl import wrap_reader
    from focus_eval.bench.lmms.patches import wrap_video_readers
    from focus_eval.bench.lmms.requests import FrameBatch, PathWithFrames
    from focus_eval.keyframes.video import open_video

    torch.set_num_threads(1)
    wrap_video_readers(wrap_reader)
    with open_video(clip, n_threads=1) as video:
        frames = np.linspace(0, video.info.n_frames - 1, 16).astype(np.int64)
        start = time.process_time(), video.n_decoded  # type: ignore[attr-defined]
        pixels = video.read(frames)
        n_decoded = video.n_decoded - start[1]  # type: ignore[attr-defined]
        print(f"decode: {(time.process_time() - start[0]) / n_decoded:.4f} s a frame passed over ({n_decoded})")
        batch = FrameBatch(
            path=clip, frames=tuple(frames.tolist()), times_seconds=tuple(video.frame_times(frames)), pixels=pixels,
            fps=video.info.fps, n_frames=video.info.n_frames,
        )  # fmt: skip
    processor = Qwen2VLVideoProcessor()
    started = time.process_time()
    resized = fetch_video({"video": PathWithFrames(batch), "max_pixels": 602112, "min_pixels": 3136})
    processor(videos=[resized], return_tensors="pt", do_sample_frames=False)
    print(f"prepare: {(time.process_time() - started) / len(frames):.3f} s a frame, to {tuple(resized.shape[2:])}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cores", type=int, default=64, help="of the node")
    parser.add_argument("--forward", type=float, default=0.6, help="seconds of a question with 32 frames")
    parser.add_argument("--videos", type=int, default=40, help="for each GPU")
    parser.add_argument("--measure", type=Path, metavar="CLIP")
    parser.add_argument("--csv", type=Path, help="write the rows here too")
    args = parser.parse_args()
    if args.measure:
        measure(args.measure)
        return
    print(f"| {' | '.join(COLUMNS)} |\n|---|---:|---:|---:|---:|---:|---:|")
    rows = []
    for size in DECODE:
        for k in (32, 64):
            for gpus in (1, 4, 8):
                cores = max(1, args.cores // gpus)
                lines, shares = [], []
                lanes = n_lanes(cores)
                for method in (
                    Way(2, prepares=False),
                    Way(lanes, prepares=True),
                    Way(lanes, True, n_groups_ahead(cores)),
                ):
                    forward = args.forward * k / 32
                    workload = questions(size, k, n_videos=args.videos, forward=forward, n_ahead=method.n_ahead)
                    seconds, share = busy(workload, cores=cores, method=method)
                    lines.append(f"{share:.0%}, {seconds / len(workload):.2f} s")
                    shares.append(f"{share:.4f}")
                print(f"| {size} | {k} | {gpus} | {cores} | " + " | ".join(lines) + " |", flush=True)
                rows.append((size, k, gpus, cores, *shares))
    if args.csv:
        with args.csv.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerows([COLUMNS, *rows])


if __name__ == "__main__":
    main()
