"""Measures how many seconds one frame takes on this machine."""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from focus_eval.matrix.config import EncoderConfig
from focus_eval.pipeline.timing import device_name
from focus_eval.rows.identity import identity_hash
from focus_eval.rows.records import replace_file

# A few full batches: enough to average over, and few enough for a processor.
N_FRAMES, BATCH = 64, 16


@dataclass(frozen=True)
class EncoderSpeed:
    """Seconds to embed one 640x360 frame, batched, on `device`; decoding not included."""

    encoder: str
    seconds_per_frame: float
    device: str


def calibrated_seconds(encoder: EncoderConfig, *, measure: bool = False) -> EncoderSpeed | None:
    """Return what was measured for `encoder` on this machine; None where nothing was and `measure` is False.

    Raises:
        FocusEvalError: measuring an encoder that cannot be loaded here.
    """
    file = _cache_file(encoder)
    if measure:
        speed = _measure(encoder)
        file.parent.mkdir(parents=True, exist_ok=True)
        # Whole or not at all: another process may be reading it.
        with replace_file(file) as part:
            part.write_text(json.dumps(asdict(speed)))
        return speed
    return EncoderSpeed(**json.loads(file.read_text())) if file.is_file() else None


def _measure(encoder: EncoderConfig) -> EncoderSpeed:
    from focus_eval.scoring.registry import make_encoder
    from focus_eval.scoring.scorer import ScoresFrames

    scorer = make_encoder(encoder.encoder, **encoder.options)
    device = device_name(getattr(scorer, "device", "cpu"))
    # Recorded relevance is looked up, not computed: next to nothing, but not 0, which would divide.
    if isinstance(scorer, ScoresFrames):
        return EncoderSpeed(encoder.name, 1e-7, device)
    # Noise will do: the time of a forward does not depend on what a picture shows.
    frames = np.random.default_rng(0).integers(0, 256, (BATCH, 360, 640, 3), dtype=np.uint8)
    # Once before the clock runs: the first forward loads weights and warms the device up.
    scorer.relevance(scorer.embed(frames), "a cat")
    started = time.perf_counter()
    for _ in range(N_FRAMES // BATCH):
        scorer.relevance(scorer.embed(frames), "a cat")
    seconds = (time.perf_counter() - started) / N_FRAMES
    scorer.close()
    return EncoderSpeed(encoder.name, seconds, device)


def _cache_file(encoder: EncoderConfig) -> Path:
    # In the user's cache, not in the run's folder: the speed is the machine's and serves every run.
    home = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser()
    return home / "focus-eval" / f"speed-{encoder.name}-{identity_hash(encoder.model_dump())}.json"
