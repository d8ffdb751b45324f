"""The scorer protocol: frames and a query go in, relevance comes out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from focus_eval.core.errors import InvalidInput
from focus_eval.core.types import FloatArray, IntArray
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
class ScoresFrames(Protocol):
    """Knows relevance by frame index, so that no frame is read: recorded traces, simulations.

    A pipeline asks `isinstance(scorer, ScoresFrames)` first; such a scorer has no `embed`, is never stored, and
    makes no encoder forwards.

    Attributes:
        revision: as in `Scorer`.
    """

    revision: str

    @property
    def name(self) -> str:
        """As in `Scorer`."""
        ...

    def relevance_of(self, video: Path, frames: IntArray, query: str) -> FloatArray:
        """Return relevance in [0, 1] of `frames` of the file `video` to `query`, shape `(n,)`.

        Raises:
            EncoderError: a frame or a text it knows nothing of; names video and frame.
        """
        ...

    def close(self) -> None:
        """Release what it holds."""
        ...


@runtime_checkable
class AnswersForPulls(Protocol):
    """A `ScoresFrames` with logits and embeddings too."""

    def features_of(self, video: Path, query: str) -> Callable[[IntArray], Any]:
        """Return what gives relevance of frames, and has `logits` and `embeddings` of them."""
        ...


@runtime_checkable
class KnowsItsFrames(Protocol):
    """A `ScoresFrames` that knows only some frames, and gives others what the nearest has."""

    def n_unknown(self, frames: IntArray) -> int:
        """Return how many of `frames`, pulled for the last question, are not among them."""
        ...


@runtime_checkable
class DrawsPictures(Protocol):
    """A `ScoresFrames` that can also draw what a sampler looks at."""

    def pictures_of(self, frames: IntArray, size: int | None) -> list[Pixels]:
        """Return a picture of each frame, RGB uint8 `(height, width, 3)`."""
        ...


AnyScorer: TypeAlias = "Scorer | ScoresFrames"


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


@runtime_checkable
class PreparesFrames(Protocol):
    """A scorer that can shrink frames to what `embed` looks at, in the thread that decodes them."""

    def prepare(self, frames: Pixels) -> Pixels:
        """Return small RGB uint8 frames that `embed` turns into the same features, to the bit."""
        ...


@runtime_checkable
class EmbedsIndependently(Protocol):
    """A scorer that stores embeddings and gives a frame the same bits in any batch: equal frames are embedded once.

    Attributes:
        embeds_independently: True; the promise.
    """

    embeds_independently: ClassVar[bool]


@runtime_checkable
class LoadsAhead(Protocol):
    """A scorer whose weights can load in a thread while the first frames are decoded."""

    def load_ahead(self) -> None:
        """Begin to load; returns at once, and does nothing the second time."""
        ...


@runtime_checkable
class FillsBatches(Protocol):
    """A scorer that is slow with batches that are not full: the frames of several videos are put into one.

    Attributes:
        fills_batches: whether that is so where it runs now (a GPU).
        batch_size: frames of a full batch.
    """

    @property
    def fills_batches(self) -> bool:
        """Whether batches should be filled."""
        ...

    @property
    def batch_size(self) -> int:
        """Frames of a full batch now; less after one did not fit into memory."""
        ...

    def queue_parts(self, parts: Sequence[Pixels]) -> Callable[[], Any]:
        """Queue all frames of `parts`; return what waits for their features and gives them, in order.

        The parts may differ in height and width. Another batch may be queued before the function returned is called.
        """
        ...


@runtime_checkable
class CutsQueries(Protocol):
    """A scorer whose text tower takes so many tokens and no more (BLIP: 35)."""

    def is_cut(self, query: str) -> bool:
        """Return whether `query` is longer than what the scorer reads of it."""
        ...


@runtime_checkable
class Spends(Protocol):
    """A scorer whose relevance is asked of a service, and may be paid for."""

    def last_usage(self) -> list[dict[str, float]]:
        """Return what each reply took that this thread's last call of `relevance` asked for, as of `Reply.usage`."""
        ...


@runtime_checkable
class StatesCost(Protocol):
    """A scorer that knows its work, so that tables can say what frames cost in forwards of one encoder.

    Attributes:
        gmacs: 10^9 multiply-adds by what they are paid for: "image" and "keys" once a frame, "fusion" once a frame
            and question (see `encoders.cost`). Without "image", a frame costs nothing until it is matched.
    """

    @property
    def gmacs(self) -> Mapping[str, float]:
        """The figures by name; {} where they cannot be told."""
        ...


@runtime_checkable
class CountsRecoveries(Protocol):
    """A scorer that recovers from what goes wrong (memory, half precision) and says how often."""

    @property
    def recoveries(self) -> dict[str, int]:
        """Counts so far by kind; {} where all went well."""
        ...


def checked_query(query: str) -> str:
    """Return `query` without surrounding blanks; every scorer passes its query through here.

    Raises:
        InvalidInput: an empty query, or text that is not valid Unicode (a lone surrogate).
    """
    text = query.strip()
    if not text:
        raise InvalidInput("the query is empty: say what to look for")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput(f"the query is not valid text: character {error.start} is a lone surrogate") from error
    return text


def checked_frames(frames: Pixels) -> Pixels:
    """Return `frames` as they are, if they are RGB uint8 `(n, height, width, 3)` with at least one pixel each.

    Raises:
        InvalidInput: another type or shape.
    """
    if frames.dtype != np.uint8 or frames.ndim != 4 or frames.shape[3] != 3 or 0 in frames.shape[1:]:
        raise InvalidInput(f"frames must be RGB uint8 (n, height, width, 3), got {frames.dtype} {frames.shape}")
    return frames
