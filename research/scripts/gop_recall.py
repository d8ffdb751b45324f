"""What does it cost focus to pull coarsely at sync frames only? Evidence recall on simulated relevance, by video.

    python research/scripts/gop_recall.py [--videos 200] [-k 32]

Relevance is an Ornstein-Uhlenbeck process (half-life 5 s) with 4 events of 2 to 8 seconds that rise above it; videos
last 1 minute to 3 hours at 25 fps. Sync frames lie `group` seconds apart. Printed: recall within 1 and 2 seconds, the
difference to `focus` in points with its standard error, the share of arms that fell back to any frame, and the share of
coarse pulls at a sync frame or one of the two after it.
"""

from __future__ import annotations

import argparse

import numpy as np

from focus_eval import VideoInfo, make_sampler

FPS = 25.0
GROUPS_SECONDS = (1.0, 2.0, 5.0, 10.0)


def simulated(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Simulate one video; return the relevance of every frame and the seconds of its events."""
    generator = np.random.default_rng(seed)
    seconds = float(np.exp(generator.uniform(np.log(60), np.log(10_800))))
    keep = 0.5 ** (1 / (5.0 * 5.0))  # at 5 Hz
    steps = generator.normal(size=int(5 * seconds) + 2) * np.sqrt(1 - keep**2)
    from scipy.signal import lfilter

    slow = lfilter([1.0], [1.0, -keep], steps)
    frames = np.arange(int(seconds * FPS))
    relevance = 0.3 + 0.08 * np.interp(frames / FPS, np.arange(slow.size) / 5.0, slow)
    times = np.sort(generator.uniform(2, seconds - 2, 4))
    for time in times:
        width = generator.uniform(2, 8) / 2
        relevance += 0.4 * (np.abs(frames / FPS - time) < width)
    return np.clip(relevance + 0.02 * generator.normal(size=frames.size), 0, 1), times


def recall(selection, times: np.ndarray, distance: float) -> float:
    keyframe_seconds = np.array(selection.keyframes) / FPS
    return float(np.mean([np.abs(keyframe_seconds - time).min() <= distance for time in times]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--videos", type=int, default=200)
    parser.add_argument("-k", type=int, default=32)
    options = parser.parse_args()
    recalls: dict[str, list[list[float]]] = {}
    for seed in range(options.videos):
        relevance, times = simulated(seed)
        for group in (None, *GROUPS_SECONDS):
            name = "focus" if group is None else f"focus_gop, groups of {group:g} s"
            sync = None if group is None else np.arange(0, relevance.size, round(group * FPS))
            sampler = make_sampler("focus" if group is None else "focus_gop")
            selection = sampler.select(
                VideoInfo(relevance.size, FPS, sync),
                k=options.k,
                pull=lambda frames, values=relevance: values[frames],
                rng=np.random.default_rng(seed),
            )
            n_coarse = sampler.planned_coarse_pulls(sampler.clips(selection.video))
            cheap = (selection.pulled_frames[:n_coarse] % round((group or 1.0) * FPS) <= 2).mean()
            fell_back = selection.facts.get("arms_without_cheap_frames", 0) / len(selection.clips)
            row = [recall(selection, times, 1.0), recall(selection, times, 2.0), fell_back, cheap if group else np.nan]
            recalls.setdefault(name, []).append(row)
    base = np.array(recalls["focus"])
    print(f"{options.videos} videos, K = {options.k}")
    print(f"{'':<28}{'@1 s':>8}{'@2 s':>8}{'diff @1':>16}{'diff @2':>16}{'fell back':>11}{'cheap':>8}")
    for name, rows in recalls.items():
        values = np.array(rows)
        diff = 100 * (values[:, :2] - base[:, :2])
        error = diff.std(axis=0, ddof=1) / np.sqrt(len(diff))
        texts = [f"{mean:+.1f} +- {item:.1f}" for mean, item in zip(diff.mean(axis=0), error, strict=True)]
        mean = values.mean(axis=0)
        print(f"{name:<28}{mean[0]:>8.3f}{mean[1]:>8.3f}{texts[0]:>16}{texts[1]:>16}{mean[2]:>11.2f}{mean[3]:>8.2f}")


if __name__ == "__main__":
    main()
