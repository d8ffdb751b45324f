"""How busy do 100 Ray workers on one pool keep their stores, and does a second run find its embeddings there?

A discrete-event simulation of selecting on a cluster: the driver hands the videos of LongVideoBench val to the workers
as they become free. Each node has a store of its own, which takes one writer at a time. A second run on the same
videos with another sampler begins with the stores of the first.
Run: python scripts/node/pool_simulation.py [--workers 1 8 100] [--csv results/published/pool_simulation.csv]
"""

from __future__ import annotations

import argparse
import csv
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from event_clock import Clock, Servers

CHUNK = 32  # frames embedded and written together
ENCODE_SECONDS = 1 / 500  # of a frame on a worker's GPU
WRITE_SECONDS = 1 / 72_000  # of an embedding: measured on an Intel Xeon, 2026-11-22
OPEN_SECONDS = 0.5
WORKERS_A_NODE = 8
VIDEOS, LENGTHS = 753, (15.0, 45.0, 400.0, 1800.0)  # seconds, in about equal parts


@dataclass
class PoolOutcome:
    """Result of a run: seconds, node by video, store transactions and write seconds, and reused and all frames."""

    seconds: float = 0.0
    node_of: dict[int, int] = field(default_factory=dict)
    transactions: int = 0
    writing: float = 0.0
    reused: int = 0
    frames: int = 0


def simulate(n_workers: int, *, seed: int, earlier: PoolOutcome | None = None, known_share: float = 0.5) -> PoolOutcome:
    """Simulate one run; the node that read a video in the `earlier` run has stored `known_share` of its frames."""
    clock, outcome, rng = Clock(), PoolOutcome(), np.random.default_rng(seed)
    stores = [Servers(clock, 1) for _ in range(-(-n_workers // WORKERS_A_NODE))]
    pulls = [max(8, int(rng.uniform(0.3, 0.6) * LENGTHS[video % len(LENGTHS)])) for video in range(VIDEOS)]
    videos = deque(range(VIDEOS))

    def next_video(worker: int) -> None:
        """Give a worker the next video; embeddings known to its node's store need not be computed again."""
        if not videos:
            return
        video, node = videos.popleft(), worker // WORKERS_A_NODE
        outcome.node_of[video] = node
        outcome.frames += pulls[video]
        is_here = earlier is not None and earlier.node_of[video] == node
        new = int(pulls[video] * (1 - known_share)) if is_here else pulls[video]
        outcome.reused += pulls[video] - new
        clock.after(OPEN_SECONDS, lambda: chunk(worker, new))

    def chunk(worker: int, n_frames: int) -> None:
        """Encode the next chunk of a video's frames and write it to the node's store, until none is left."""
        if n_frames <= 0:
            next_video(worker)
            return
        n = min(CHUNK, n_frames)
        outcome.transactions += 1
        outcome.writing += n * WRITE_SECONDS
        store = stores[worker // WORKERS_A_NODE]
        written = lambda: chunk(worker, n_frames - n)  # noqa: E731
        clock.after(n * ENCODE_SECONDS, lambda: store.serve(n * WRITE_SECONDS, written))

    for worker in range(n_workers):
        next_video(worker)
    clock.run()
    outcome.seconds = clock.now
    return outcome


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 8, 32, 100])
    parser.add_argument("--csv", type=Path, help="write the rows here too")
    args = parser.parse_args()
    print("| workers | nodes | seconds | transactions a second and store | a store is written | found again |")
    print("|---:|---:|---:|---:|---:|---:|")
    rows = [("workers", "nodes", "written", "found again")]
    for n in args.workers:
        first = simulate(n, seed=0)
        second = simulate(n, seed=1, earlier=first)
        nodes = -(-n // WORKERS_A_NODE)
        share = second.reused / (0.5 * second.frames)
        busy = first.writing / nodes / first.seconds
        rate = first.transactions / nodes / first.seconds
        print(f"| {n} | {nodes} | {first.seconds:.0f} | {rate:.0f} | {busy:.1%} of the time | {share:.0%} |")
        rows.append((str(n), str(nodes), f"{busy:.4f}", f"{share:.4f}"))
    if args.csv:
        with args.csv.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerows(rows)


if __name__ == "__main__":
    main()
