"""How often do the worlds of `compare-samplers` order real methods as published selections do?

    python research/scripts/world_orders.py FOLDER > research/results/world_orders.csv

FOLDER is that of world_validity.py. Unlike there, videos and evidence are drawn as `compare-samplers` draws them, for
its first look. Pairs: methods of one K on LongVideoBench from 180 s whose real recall within 1, 2 or 5 s differs
significantly.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from world_validity import AUTHORS, DEFAULT, TOLERANCES, drawn_means, read_grounds

from focus_eval.bench.report.recall import recall_within
from focus_eval.core.types import FloatArray
from focus_eval.keyframes.samplers.base import derived_rng
from focus_eval.keyframes.samplers.registry import make_sampler
from focus_eval.lab.traces import make_trace
from focus_eval.lab.verdict import LOOKS
from focus_eval.lab.worlds import world_of

WORLDS = ("realistic", "realistic:blind=0.65")
# Published method and K -> the sampler that made it.
SAMPLERS = {
    **{("AKS", k): make_sampler("aks", **AUTHORS[k]) for k in (32, 64)},
    **{("AKS others BLIP", k): make_sampler("aks", **DEFAULT) for k in (32, 64)},
    **{("WFS", k): make_sampler("wfs_sb") for k in (8, 32)},
    **{("uniform", k): make_sampler("uniform") for k in (8, 32, 64)},
}


def main() -> None:
    """Print a line per world and kind of pair."""
    ground = read_grounds(Path(sys.argv[1]))["longvideobench"]
    real = np.array(
        [
            [recall_within(question.evidence, ground.times[method][at], TOLERANCES) for method in SAMPLERS]
            for at, question in enumerate(ground.questions)
        ]
    )
    methods = list(SAMPLERS)
    pairs = [(a, b) for a, b in itertools.combinations(range(len(methods)), 2) if methods[a][1] == methods[b][1]]
    first, second = (list(side) for side in zip(*pairs, strict=True))
    drawn, _ = drawn_means(real, real, ground.videos, 0)
    low, high = np.quantile(drawn[:, first] - drawn[:, second], [0.025, 0.975], axis=0)
    is_clear = (low > 0) | (high < 0)
    real_order = np.sign(real.mean(axis=0)[first] - real.mean(axis=0)[second])
    kinds = np.array([kind_of(methods[a][0], methods[b][0]) for a, b in pairs])
    print("world,kind,agree,pairs")
    for world in WORLDS:
        simulated = simulated_recall(world)
        is_alike = np.sign(simulated[first] - simulated[second]) == real_order
        for kind in dict.fromkeys(kinds.tolist()):
            of_kind = is_clear & (kinds == kind)[:, np.newaxis]
            print(f"{world},{kind},{int((is_alike & of_kind).sum())},{int(of_kind.sum())}")


def simulated_recall(world: str) -> FloatArray:
    """Return the mean recall of each method at each tolerance over the videos of the first look."""
    recalls: list[Sequence[FloatArray]] = []
    for number in range(LOOKS[0]):
        trace = make_trace(world_of(world), number, seed=0)
        evidence, fps = np.array(trace.evidence_seconds), trace.info.fps
        keyframes_by_sampler = [
            sampler.select(trace.info, k=k, pull=trace.relevance, rng=derived_rng(0)).keyframes
            for (_, k), sampler in SAMPLERS.items()
        ]
        recalls.append([recall_within(evidence, np.array(frames) / fps, TOLERANCES) for frames in keyframes_by_sampler])
    mean: FloatArray = np.array(recalls).mean(axis=0)
    return mean


def kind_of(a: str, b: str) -> str:
    """Return the kind of a pair of methods."""
    if "uniform" in (a, b):
        return "with uniform"
    return "two forms of AKS" if a.startswith("AKS") and b.startswith("AKS") else "AKS and WFS-SB"


if __name__ == "__main__":
    main()
