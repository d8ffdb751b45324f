"""How long does each sampler's algorithm take? Relevance comes from an array: no video, no encoder.

One line per sampler: milliseconds (least and median of the runs), pulls, and the median in units of `focus`.
    python -m scripts.speed.samplers [--minutes 60] [--fps 30] [-k 64] [--runs 15]
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np

from focus_eval import VideoInfo
from focus_eval.keyframes.samplers.ledger import RelevanceSource
from focus_eval.keyframes.samplers.registry import make_sampler, sampler_classes


class Recorded(RelevanceSource):
    """Relevance, logits and embeddings from arrays made beforehand, so that a pull costs next to nothing."""

    def __init__(self, n_frames: int, n_dimensions: int = 512) -> None:
        generator = np.random.default_rng(0)
        seconds = np.arange(n_frames) / n_frames
        events = [np.exp(-(((seconds - center) / 0.01) ** 2)) for center in generator.random(12)]
        self.values = np.clip(0.3 * generator.random(n_frames) + 0.5 * np.sum(events, axis=0), 0, 1)
        # One embedding a scene of a thousand frames: embeddings of every frame would fill the memory.
        self.scenes = generator.normal(size=(n_frames // 1000 + 1, n_dimensions))
        self.noise = generator.normal(size=(997, n_dimensions))

    def __call__(self, frames):
        return self.values[frames]

    def logits(self, frames):
        return 20 * self.values[frames]

    def embeddings(self, frames):
        return self.scenes[frames // 1000] + self.noise[frames % 997], self.scenes[0]


def milliseconds(name: str, video: VideoInfo, k: int, runs: int, pull: Recorded) -> tuple[list[float], int]:
    """Return (milliseconds of each run, number of pulls); a first run is not counted."""
    sampler, seconds, n_pulls = make_sampler(name), [], 0
    for seed in range(runs + 1):
        start = time.perf_counter()
        rng = np.random.default_rng(seed)
        n_pulls = sampler.select(video, k=k, pull=pull, rng=rng, evidence_seconds=(60.0,)).n_pulls
        seconds.append(1000 * (time.perf_counter() - start))
    return seconds[1:], n_pulls


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--fps", type=float, default=30.0)
    parser.add_argument("-k", type=int, default=64)
    parser.add_argument("--runs", type=int, default=15)
    options = parser.parse_args()
    n_frames = int(options.minutes * 60 * options.fps)
    video = VideoInfo(n_frames, options.fps, np.arange(0, n_frames, 250))
    pull = Recorded(n_frames)
    # What asks a model waits for it.
    names = [name for name, kind in sampler_classes().items() if not kind.needs_llm]
    results = {name: milliseconds(name, video, options.k, options.runs, pull) for name in names}
    focus = statistics.median(results["focus"][0])
    print(f"{options.minutes:g} minutes at {options.fps:g} fps, k = {options.k}, {options.runs} runs each")
    print(f"{'sampler':<18}{'least ms':>10}{'median ms':>11}{'/ focus':>9}{'pulls':>9}")
    for name, (seconds, n_pulls) in sorted(results.items(), key=lambda item: statistics.median(item[1][0])):
        middle = statistics.median(seconds)
        print(f"{name:<18}{min(seconds):>10.2f}{middle:>11.2f}{middle / focus:>9.2f}{n_pulls:>9}")


if __name__ == "__main__":
    main()
