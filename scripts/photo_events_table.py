"""Evidence recall and zero-shot accuracy of samplers on photo_events, by length: `photo_events_table.py FOLDER`."""

from __future__ import annotations

import argparse
from collections import defaultdict
from pathlib import Path

import numpy as np

from focus_eval.benchmarks.annotations import read_annotations
from focus_eval.benchmarks.documents import LETTERS
from focus_eval.benchmarks.registry import make_benchmark
from focus_eval.demo.photo_events import build_photo_events
from focus_eval.lmms.models.zero_shot import option_scores
from focus_eval.pipeline.selector import Selector
from focus_eval.samplers.registry import make_sampler
from focus_eval.scoring.registry import make_encoder
from focus_eval.video import open_video

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("folder", type=Path)
parser.add_argument("--samplers", nargs="+", default=["uniform", "random", "topk", "focus"])
parser.add_argument("--k", nargs="+", type=int, default=[8])
parser.add_argument("--seeds", type=int, default=1)
parser.add_argument("--store", default="")
options = parser.parse_args()

root = build_photo_events(options.folder)
benchmark, scorer = make_benchmark("photo_events"), make_encoder("offline")
questions = read_annotations("photo_events", root)
store = None
if options.store:
    from focus_eval.scoring.cache.store import RelevanceStore

    store = RelevanceStore(Path(options.store))

print(f"{'sampler':16s} {'k':>3s} {'bucket':7s} {'n':>3s} {'acc':>5s}  @1    @2    @5   seen %")
for name in options.samplers:
    for k in options.k:
        found: dict[str, list[tuple[float, ...]]] = defaultdict(list)
        for seed in range(options.seeds):
            selector = Selector(sampler=make_sampler(name), encoder=scorer, k=k, seed=seed, store=store)
            for question in questions:
                path = root / "videos" / question.video
                row = selector.select(question, path, bucket_of=benchmark.bucket)
                with open_video(path) as reader:
                    features = scorer.embed(reader.read(np.array(row.keyframes)))
                scores = option_scores(scorer, features, question.query, question.options, temperature=0.05)
                right = LETTERS[int(scores.argmax())] == question.answer
                gaps = np.abs(np.array(question.evidence_seconds)[:, None] - np.array(row.times_seconds)).min(axis=1)
                recalls = [float((gaps <= seconds).mean()) for seconds in (1, 2, 5)]
                found[row.bucket].append((right, *recalls, len(row.pulled_frames), row.n_frames))
        for bucket in ("short", "medium", "long"):
            values = np.array(found[bucket], dtype=float)
            accuracy, *recalls = values[:, :4].mean(axis=0)
            seen = 100 * values[:, 4].sum() / values[:, 5].sum()
            cells = " ".join(f"{value:5.2f}" for value in (accuracy, *recalls))
            print(f"{name:16s} {k:3d} {bucket:7s} {len(values):3d} {cells} {seen:6.2f}", flush=True)
