"""A worker that is closed leaves nothing of its encoders behind."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from focus_eval.bench.matrix.machine import WorkerResources
from focus_eval.bench.matrix.selecting import SelectWorker
from focus_eval.keyframes.encoders.cache import FeatureCache


def test_a_closed_worker_holds_no_features_when_its_encoders_empty_the_gpu():
    worker = SelectWorker(
        [], {}, SimpleNamespace(), name="w", store=None, share=WorkerResources(cores=1, frame_bytes=0)
    )
    features, rows_at_close = FeatureCache(1 << 20), []
    features.put("video", np.arange(3), np.ones((3, 4), np.float32))
    worker._kept["blip"] = features
    worker._scorers["blip"] = SimpleNamespace(close=lambda: rows_at_close.append(len(features)))
    worker.close()
    assert rows_at_close == [0]
