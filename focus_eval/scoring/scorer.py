"""What is a scorer: frames and a query in, relevance out?"""

from __future__ import annotations

from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from focus_eval.types import FloatArray
from focus_eval.video.reader import Pixels


@runtime_checkable
class Scorer(Protocol):
    """Gives relevance in [0, 1] in two steps, so that the questions of one video share the first.

    `embed` is the vision tower: it does not know the query. What it returns is the scorer's own (an array
    `(n, d)`, or image tokens on a device) and is handed back to the second step unread.

    Attributes:
        name: registered name, e.g. "offline", "blip".
        revision: what identifies the weights and every option that can change a number, as one readable line.
        stores_embeddings: True where `embed` gives a float32 array `(n, d)` small enough to keep on disk; else
            only relevance is stored.
    """

    name: ClassVar[str]
    revision: str
    stores_embeddings: ClassVar[bool]

    def embed(self, frames: Pixels) -> Any:
        """Return the features of RGB uint8 frames `(n, height, width, 3)`, n along the first axis."""
        ...

    def relevance(self, features: Any, query: str) -> FloatArray:
        """Return relevance in [0, 1] of embedded frames to `query`, shape `(n,)`."""
        ...

    def close(self) -> None:
        """Release weights and device memory."""
        ...


@runtime_checkable
class GivesLogits(Protocol):
    """A scorer whose raw image-text logits a sampler may ask for (Q-Frame)."""

    def logits(self, features: Any, query: str) -> FloatArray:
        """Return raw logits, shape `(n,)`, any range."""
        ...


@runtime_checkable
class GivesEmbeddings(Protocol):
    """A scorer with image and text in one space, for samplers that compare frames with each other (MDP3, MaxInfo)."""

    def embeddings(self, features: Any, query: str) -> tuple[NDArray[np.float64], FloatArray]:
        """Return frame embeddings `(n, d)` and the query's `(d,)`."""
        ...
