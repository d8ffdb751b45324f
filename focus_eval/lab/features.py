"""Logits, embeddings and pictures for the frames of a trace: they agree with its relevance, and are else random."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from focus_eval.core.errors import InvalidInput
from focus_eval.core.types import FloatArray, IntArray, Pixels
from focus_eval.keyframes.samplers.base import derived_rng
from focus_eval.keyframes.samplers.ledger import RelevanceSource
from focus_eval.lab.recorded import RecordedTrace
from focus_eval.lab.traces import GRID_HZ, SimulatedTrace, autoregression, frame_noise
from focus_eval.lab.worlds import World

# Number of dimensions of a synthetic embedding besides the direction of the query.
DIMENSIONS = 16
# Width and height of a synthetic picture in pixels, and grey levels per standard deviation of its content.
PICTURE_SIDE, GREYS = 16, 40
# Mean, spread and largest value of the cosine of frame and query. Those of CLIP ViT-B/32 lie between about .1 and .4
# (docs/simulation.md).
MEAN_COSINE, COSINE_SPREAD, LARGEST_COSINE = 0.25, 0.04, 0.9
# CLIP's logits are its cosines times this.
CLIP_LOGIT_SCALE = 100.0
_SMALLEST = 1e-9


class TraceFeatures(RelevanceSource):
    """Source of relevance for samplers that need logits or embeddings.

    The first dimension of a frame's embedding is the query's direction and gives the frame its relevance. The remaining
    `DIMENSIONS` dimensions are its appearance, a random background like that of relevance: smooth within a shot, with a
    jump at each cut, and the same again if the video returns to a scene. A recorded trace has no cuts, so its
    appearance is smooth throughout.
    """

    def __init__(self, trace: SimulatedTrace | RecordedTrace) -> None:
        self.trace = trace

    def __call__(self, frames: IntArray) -> FloatArray:
        """Return the relevance of `frames` to the question, `(n,)`."""
        return self.trace.relevance(frames)

    def logits(self, frames: IntArray) -> FloatArray:
        """Return the log-odds of the relevance, or CLIP's logits for a trace of recorded cosines, shape `(n,)`."""
        relevance = self.trace.relevance(frames)
        if self._is_cosine:
            return CLIP_LOGIT_SCALE * (2.0 * relevance - 1.0)
        inside = np.clip(relevance, _SMALLEST, 1 - _SMALLEST)
        return np.asarray(np.log(inside / (1 - inside)))

    def embeddings(self, frames: IntArray) -> tuple[NDArray[np.float64], FloatArray]:
        """Return unit vectors of the frames `(n, 1 + DIMENSIONS)` and of the query `(1 + DIMENSIONS,)`."""
        cosine = self._cosine(frames)[:, None]
        vectors = self._vectors_of(frames)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        return np.hstack([cosine, np.sqrt(1 - cosine**2) * vectors]), np.eye(1 + DIMENSIONS)[0]

    def relevance_to(self, frames: IntArray, text: str) -> FloatArray:
        """Return relevance to a text other than the query, shape `(n,)`: relevance to the query plus noise.

        The noise is added to the logits, is seeded by the text, and is as smooth and as large as the background.

        Raises:
            InvalidInput: the trace is recorded, so its relevance to other texts is unknown.
        """
        if not isinstance(self.trace, SimulatedTrace):
            raise InvalidInput(f"{self.trace.question_id}: relevance to other texts was not recorded, asked {text!r}")
        n, world = self.trace.latent.size, self.trace.world
        rng = derived_rng(0, "text", str(self.trace.key), text)
        noise = autoregression(0.5 ** (1.0 / (world.half_life_seconds * GRID_HZ)), n, rng)
        cell = np.minimum((frames * (GRID_HZ / self.trace.info.fps)).astype(np.int64), n - 1)
        relevance: FloatArray = 1 / (1 + np.exp(-(self.logits(frames) + world.scale * noise[cell])))
        return relevance

    def pictures(self, frames: IntArray) -> list[Pixels]:
        """Return a picture of each frame, `PICTURE_SIDE` pixels wide and high: one grey field per dimension."""
        side = round(DIMENSIONS**0.5)
        grey = np.clip(128 + GREYS * self._vectors_of(frames), 0, 255).astype(np.uint8).reshape(-1, side, side, 1)
        fields = grey.repeat(PICTURE_SIDE // side, axis=1).repeat(PICTURE_SIDE // side, axis=2).repeat(3, axis=3)
        return list(fields)

    @property
    def _is_cosine(self) -> bool:
        """True for a recorded trace of cosines."""
        return isinstance(self.trace, RecordedTrace) and self.trace.is_cosine

    def _cosine(self, frames: IntArray) -> FloatArray:
        """The cosine of each frame's embedding with the query's, `(n,)`, from its relevance."""
        if self._is_cosine:
            return 2.0 * self.trace.relevance(frames) - 1.0
        middle, spread = self._scale
        cosine = MEAN_COSINE + COSINE_SPREAD * (self.logits(frames) - middle) / spread
        return np.clip(cosine, -LARGEST_COSINE, LARGEST_COSINE)

    @cached_property
    def _scale(self) -> tuple[float, float]:
        """Location and scale of the background's logits."""
        if isinstance(self.trace, SimulatedTrace):
            return self.trace.world.location, self.trace.world.scale
        logits = self.logits(self.trace.frames)
        return float(logits.mean()), max(float(logits.std()), _SMALLEST)

    def _vectors_of(self, frames: IntArray) -> FloatArray:
        """The appearance of `frames`, `(n, DIMENSIONS)`, with noise of each frame."""
        cell = np.minimum((frames * (GRID_HZ / self.trace.info.fps)).astype(np.int64), len(self._pictures) - 1)
        noise = [frame_noise(frames, self._key + at) for at in range(DIMENSIONS)]
        return self._pictures[cell] + self._world.noise * np.stack(noise, axis=1)

    @property
    def _world(self) -> World:
        """The trace's world; one of default parameters for a recorded trace."""
        return self.trace.world if isinstance(self.trace, SimulatedTrace) else World(name="recorded")

    @cached_property
    def _key(self) -> int:
        """Number that seeds the noise of each frame."""
        return int(self._rng("noise").integers(2**62))

    def _rng(self, part: str) -> np.random.Generator:
        """A generator for one `part` of a video's appearance, shared by all questions of a recorded video."""
        of = self.trace.video if isinstance(self.trace, RecordedTrace) else str(self.trace.key)
        return derived_rng(0, "pictures", of, part)

    @cached_property
    def _pictures(self) -> NDArray[np.float64]:
        """Appearance of the video at ten times per second, `(n_grid, DIMENSIONS)`."""
        n, world, rng = int(np.ceil(self.trace.info.duration_seconds * GRID_HZ)) + 1, self._world, self._rng("shown")
        keep = 0.5 ** (1.0 / (world.half_life_seconds * GRID_HZ))
        smooth = np.stack([autoregression(keep, n, rng) for _ in range(DIMENSIONS)], axis=1).astype(np.float64)
        if isinstance(self.trace, RecordedTrace) or world.shot_share == 0:
            return smooth
        scenes = rng.standard_normal((int(self.trace.looks.max()) + 1, DIMENSIONS))
        shot = np.searchsorted(self.trace.cuts, np.arange(n) / GRID_HZ, side="right")
        scene = scenes[self.trace.looks[np.minimum(shot, self.trace.looks.size - 1)]]
        return np.asarray(np.sqrt(world.shot_share) * scene + np.sqrt(1 - world.shot_share) * smooth)
