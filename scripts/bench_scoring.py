"""How many milliseconds does the offline scorer take per frame, and how fast is the store?

Prints figures measured in one run: what embedding a frame costs by batch size, against the plain way (unfused
network, Pillow, one frame at a time), and rates of the relevance store. Timings are the best of several runs.

    python scripts/bench_scoring.py [--threads 2] [--runs 5]
"""

from __future__ import annotations

import argparse
import hashlib
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from focus_eval.scoring.cache.store import RelevanceStore
from focus_eval.scoring.offline.scorer import OfflineScorer

SIZES = {"360p": (360, 640), "720p": (720, 1280), "1080p": (1080, 1920)}
N_FRAMES = 32


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    started = time.perf_counter()
    import torch

    torch.set_num_threads(options.threads)
    scorer = OfflineScorer()
    scorer.embed(frames_of(8, 8)[:1])
    print(f"torch {torch.__version__}, {options.threads} threads, best of {options.runs} runs of {N_FRAMES} frames")
    print(f"imports, weights and class names: {time.perf_counter() - started:.1f} s\n")
    bench_batches(scorer, options.runs)
    bench_sizes(scorer, options.runs)
    first_query = best(lambda: scorer.relevance(np.zeros((1, 384), np.float32), str(time.perf_counter())), options.runs)
    print(f"a new query: {1e3 * first_query:.1f} ms\n")
    bench_store(options.runs)


def bench_batches(scorer: OfflineScorer, runs: int) -> None:
    """Print milliseconds per 360p frame by frames handed over at once, beside the plain way.

    On a busy machine the processor time is the figure to trust: the plain way's threads wait for each other.
    """
    frames = frames_of(*SIZES["360p"])
    ways: dict[str, Callable[[], object]] = {"plain": lambda: [plain_logits(frame) for frame in frames]}
    for batch in (1, 2, 4, 8, 16, 32):
        parts = [frames[at : at + batch] for at in range(0, N_FRAMES, batch)]
        ways[str(batch)] = lambda parts=parts: [scorer.embed(part) for part in parts]
    print("plain: batch norms unfused, Pillow, one frame at a time")
    print("batch   wall ms/frame   ratio   processor ms/frame   ratio")
    plain: tuple[float, float] | None = None
    for name, work in ways.items():
        wall, busy = (1e3 * best(work, runs, clock) / N_FRAMES for clock in (time.perf_counter, time.process_time))
        plain = plain or (wall, busy)
        print(f"{name:>5s}   {wall:13.2f}   {plain[0] / wall:5.1f}   {busy:18.2f}   {plain[1] / busy:5.1f}")
    print()


def bench_sizes(scorer: OfflineScorer, runs: int) -> None:
    """Print milliseconds per frame by size of the video: cutting and resizing in one thread, and all of it."""
    for name, (height, width) in SIZES.items():
        frames = frames_of(height, width)
        resize = best(lambda frames=frames: scorer.prepare(frames), runs) / N_FRAMES
        whole = best(lambda frames=frames: scorer.embed(frames), runs) / N_FRAMES
        print(f"{name}: {1e3 * whole:.2f} ms per frame; resize alone {1e3 * resize:.2f}")


def bench_store(runs: int, *, n_frames: int = 20_000, batch: int = 32) -> None:
    """Print rates and sizes of a store of embeddings `(n, 384)` and relevance, put in batches."""
    rng = np.random.default_rng(0)
    frames, vectors = np.arange(n_frames) * 7, rng.normal(size=(n_frames, 384)).astype(np.float32)
    values = rng.random(n_frames)
    parts = [slice(start, start + batch) for start in range(0, n_frames, batch)]
    with tempfile.TemporaryDirectory() as folder:
        store = RelevanceStore(Path(folder) / "store.sqlite")
        put = best(lambda: [store.put_embeddings("s", "v", frames[at], vectors[at]) for at in parts], 1)
        got = best(lambda: store.embeddings("s", "v", frames), runs)
        store.close()
        n_bytes = store.path.stat().st_size
        print(f"store, embeddings: put {n_frames / put:,.0f} a second, get {n_frames / got:,.0f}, "
              f"{n_bytes / n_frames:.0f} bytes each")  # fmt: skip
        put = best(lambda: [store.put_relevance("s", "v", "q", frames[at], values[at]) for at in parts], 1)
        got = best(lambda: store.relevance("s", "v", "q", frames), runs)
        store.close()
        print(f"store, relevance: put {n_frames / put:,.0f} a second, get {n_frames / got:,.0f}, "
              f"{(store.path.stat().st_size - n_bytes) / n_frames:.0f} bytes each")  # fmt: skip
        bench_fingerprint(store, Path(folder) / "video.bin", rng)


def bench_fingerprint(store: RelevanceStore, path: Path, rng: np.random.Generator, *, n_megabytes: int = 512) -> None:
    """Print how fast a file is hashed the first time, against the hash alone in memory, and the second time."""
    content = rng.bytes(n_megabytes << 20)
    path.write_bytes(content)
    first, again = (best(lambda: store.video_fingerprint(path), 1) for _ in range(2))
    alone = best(lambda: hashlib.sha256(content), 1)
    print(f"fingerprint: {n_megabytes / first:.0f} MiB a second (SHA-256 alone {n_megabytes / alone:.0f}), "
          f"again {1e3 * again:.2f} ms")  # fmt: skip


def plain_logits(frame: np.ndarray) -> object:
    """Return the classifier's logits of one frame as one would write it first."""
    import torch
    from PIL import Image

    height, width = frame.shape[:2]
    left = (width - height) // 2
    square = Image.fromarray(frame).crop((left, 0, left + height, height))
    pixels = np.asarray(square.resize((224, 224), Image.Resampling.BICUBIC), dtype=np.float32)
    with torch.inference_mode():
        return plain_network()(torch.from_numpy((pixels - 127) / 128).permute(2, 0, 1)[None].contiguous())


def plain_network(made: list[object] = []) -> Callable:  # noqa: B006 - made once
    """Return timm's network, untouched; its weights do not matter for its speed."""
    if not made:
        import timm

        made.append(timm.create_model("tf_efficientnet_lite0", pretrained=False).eval())
    return made[0]


def frames_of(height: int, width: int) -> np.ndarray:
    """Return frames of noise `(32, height, width, 3)`."""
    return np.random.default_rng(0).integers(0, 256, (N_FRAMES, height, width, 3), dtype=np.uint8)


def best(work: Callable[[], object], runs: int, clock: Callable[[], float] = time.perf_counter) -> float:
    """Return the least seconds on `clock` that `work` took, after one run to warm up where there are several."""
    if runs > 1:
        work()
    seconds = []
    for _ in range(runs):
        started = clock()
        work()
        seconds.append(clock() - started)
    return min(seconds)


if __name__ == "__main__":
    main()
