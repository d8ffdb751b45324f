"""Selects as the public scripts of FOCUS and AKS do, for a comparison of hours.

One step after the other, nothing shared: every frame is asked for by its index alone, resized by Pillow on one thread,
normalised on the CPU, and every batch of 32 goes through the whole model in fp32 with the question beside it.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import av
import numpy as np
import torch
from PIL import Image

from focus_eval.core.types import Question
from focus_eval.keyframes.encoders.preprocess import ImageRules, normalise
from focus_eval.keyframes.encoders.torch_scorer import arithmetic
from focus_eval.keyframes.pipeline.timing import Meter
from focus_eval.keyframes.samplers.base import FrameSampler, derived_rng
from focus_eval.keyframes.video import open_video

_BATCH = 32


class OneByOne:
    """Frames of a file by index, each asked for alone: through decord if it is installed, else PyAV with a seek."""

    name = "decord" if importlib.util.find_spec("decord") else "PyAV"

    def __init__(self, path: Path, fps: float) -> None:
        self._fps = fps
        if self.name == "decord":
            import decord

            self._decord = decord.VideoReader(str(path), ctx=decord.cpu(0))
        else:
            self._container = av.open(str(path))
            self._container.streams.video[0].thread_type = "AUTO"

    def __getitem__(self, number: int) -> Any:
        """Return RGB uint8 `(height, width, 3)`."""
        if self.name == "decord":
            return self._decord[number].asnumpy()
        stream: Any = self._container.streams.video[0]
        ticks = round(number / self._fps / stream.time_base)
        self._container.seek(ticks, stream=stream)
        return next(f for f in self._container.decode(stream) if f.pts >= ticks).to_ndarray(format="rgb24")


class PlainPipeline:
    """Selects for one question after another, as the public scripts do; `meter` has the seconds of each step."""

    def __init__(self, model: Any, text_inputs: Any, *, device: str) -> None:
        self._model = model
        self._text_inputs = text_inputs
        self._device = torch.device(device)
        side = model.config.vision_config.image_size
        self._rules = ImageRules(height=side, width=side)
        self.meter = Meter()
        self.pulls = 0
        self._probability(torch.zeros(_BATCH, 3, side, side), "warm up")

    def select(self, sampler: FrameSampler, question: Question, path: Path, *, k: int, seed: int) -> tuple[int, ...]:
        """Return the keyframes of one question."""
        with open_video(path) as video:
            info = video.info
        with self.meter.stage("open"):
            frames = OneByOne(path, info.fps)
        rng = derived_rng(seed, question.benchmark, question.id, sampler.name)
        with self.meter.stage("select"):
            selection = sampler.select(
                info, k=k, pull=lambda pulled: self._pull(frames, pulled, question.query), rng=rng
            )
        return selection.keyframes

    def _pull(self, frames: OneByOne, pulled: Any, query: str) -> Any:
        """Return the relevance of the frames, scored batch by batch, and count them as pulls."""
        parts = [self._score(frames, pulled[at : at + _BATCH], query) for at in range(0, pulled.size, _BATCH)]
        self.pulls += pulled.size
        return np.concatenate(parts)

    def _score(self, frames: OneByOne, batch: Any, query: str) -> Any:
        """Return the relevance of one batch, timing how long decoding, preprocessing and encoding take."""
        with self.meter.stage("decode"):
            pixels = [frames[int(number)] for number in batch]
        with self.meter.stage("preprocess"):
            small = np.stack([self._resized(pixel) for pixel in pixels])
            values = normalise(torch.from_numpy(small).permute(0, 3, 1, 2), self._rules)
        with self.meter.stage("encode"):
            return self._probability(values, query)

    def _resized(self, pixels: Any) -> Any:
        """Return the frame at the encoder's size, resized first in width and then in height."""
        side = self._rules.width
        return np.asarray(Image.fromarray(pixels).resize((side, pixels.shape[0]), 3).resize((side, side), 3))

    def _probability(self, values: torch.Tensor, query: str) -> Any:
        """Return the probability that each frame matches the query, computed in fp32."""
        with torch.inference_mode(), arithmetic("fp32", self._device):
            ids, mask = (part.expand(len(values), -1).to(self._device) for part in self._text_inputs([query]))
            output = self._model(input_ids=ids, attention_mask=mask, pixel_values=values.to(self._device))
            return output.itm_score.softmax(dim=-1)[:, 1].double().cpu().numpy()
