"""The base class of encoders: frames and a query go in, relevance comes out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypedDict

import numpy as np
from numpy.typing import NDArray

from focus_eval.core.errors import InvalidInput
from focus_eval.core.types import FloatArray, IntArray, Pixels

if TYPE_CHECKING:
    from focus_eval.keyframes.samplers.ledger import RelevanceSource

_NO_COUNTS: Mapping[str, int] = MappingProxyType({})


class PublishedWeights(TypedDict, total=False):
    """Facts about published weights that an encoder's class states; `weights.Checkpoint` explains the fields."""

    repository: str
    revision: str
    gigabytes: float | None
    gmacs: Mapping[str, float]
    licence: str
    note: str


class FrameFeatures(Protocol):
    """Features of n frames along the first axis, such as an array or a tensor."""

    def __len__(self) -> int: ...

    def __getitem__(self, rows: slice | IntArray, /) -> FrameFeatures: ...


class Encoder:
    """Base class of encoders: gives relevance in [0, 1], in one of two ways.

    >>> class Brightness(Encoder):
    ...     name, revision = "brightness", "1"
    ...     def embed(self, frames):
    ...         return frames.mean(axis=(1, 2, 3), dtype=np.float32)[:, None]
    ...     def relevance(self, features, query):
    ...         return features[:, 0].astype(np.float64) / 255
    >>> selection = select_keyframes("talk.mp4", query="bright", k=2, sampler="topk", encoder=Brightness())
    >>> selection.n_pulls
    8

    An encoder of pixels has `embed`, the image tower, which does not know the query, and `relevance`, so that the
    questions of a video share the first step. The features that `embed` returns may be anything (an array `(n, d)`,
    image tokens on a device); the caller only stores them and hands them back. An encoder with `reads_frames = False`
    has `relevance_of` instead: it knows relevance by frame index, so that no frame is read, nothing is stored and no
    forward is counted.

    Options are the keywords of the constructor. All other members have defaults that suit most encoders. The attributes
    from `name` to `embeds_independently` are class attributes. They are read from the source without importing the
    file, so their values must be literals.

    Attributes:
        name: the registered name, e.g. "offline", "blip".
        extra: the extra of this package that installs what the encoder imports; "" for none.
        needs_gpu: False for an encoder that runs well on a processor.
        model_type: value, or tuple of allowed values, of `model_type` in a checkpoint's configuration; "" for an
            encoder without checkpoints.
        default_checkpoint: name of the checkpoint that is loaded if none is named.
        checkpoints: published checkpoints by name (see `weights.Checkpoint`).
        reads_frames: True if relevance comes from pixels.
        stores_embeddings: True if `embed` gives a float32 array `(n, d)` small enough to keep on disk; otherwise only
            relevance is stored.
        embeds_independently: True if a frame gets the same bits in any batch; equal frames are then embedded once.
        revision: the weights and every option that can change a result, as one readable line.
        device: torch's name of the device in use, e.g. "cuda:0".
        gmacs: 10^9 multiply-adds by part of the model: "image" and "keys" are spent once per frame, "fusion" once per
            pair of frame and question (see `encoders.cost`); {} if they are not known.
        least_shown: if no frame of a video reaches this relevance, the video does not show what the query names; None
            if not measured.
        recoveries: number of failures recovered from so far, by kind (memory, half precision).
        fills_batches: True if frames of several videos should share a batch, which keeps a GPU busy.
        batch_size: current number of frames in a full batch; it is reduced after a batch did not fit into memory.
    """

    name: ClassVar[str] = ""
    extra: ClassVar[str] = ""
    needs_gpu: ClassVar[bool] = True
    model_type: ClassVar[str | tuple[str, ...]] = ""
    default_checkpoint: ClassVar[str] = ""
    checkpoints: ClassVar[Mapping[str, PublishedWeights]] = {}
    reads_frames: ClassVar[bool] = True
    stores_embeddings: ClassVar[bool] = False
    embeds_independently: ClassVar[bool] = False
    least_shown: ClassVar[float | None] = None

    revision: str = ""
    device: str = "cpu"
    gmacs: Mapping[str, float] = _NO_COUNTS
    recoveries: Mapping[str, int] = _NO_COUNTS
    fills_batches: bool = False
    batch_size: int = 32

    def embed(self, frames: Pixels) -> FrameFeatures:
        """Return the features of RGB uint8 frames `(n, height, width, 3)`, n along the first axis.

        The memory of `frames` is reused after the call. Arrays, tensors and lists of these are copied by the caller if
        they share that memory; features of any other type must not refer to `frames` but copy them.
        """
        raise NotImplementedError(f"encoder {self.name!r} has no embed")

    def relevance(self, features: Any, query: str) -> FloatArray:
        """Return relevance in [0, 1] of embedded frames to `query`, shape `(n,)`."""
        raise NotImplementedError(f"encoder {self.name!r} has no relevance")

    def relevance_of(self, video: Path, frames: IntArray, query: str) -> FloatArray:
        """Return relevance in [0, 1] of `frames` of the file `video` to `query`, shape `(n,)`, without pixels.

        Raises:
            EncoderError: a frame or a text without relevance; names video and frame.
        """
        raise NotImplementedError(f"encoder {self.name!r} has no relevance_of")

    def logits(self, features: Any, query: str) -> FloatArray:
        """Return raw image-text logits, shape `(n,)`, any range, for samplers that ask for them (Q-Frame)."""
        raise NotImplementedError(f"encoder {self.name!r} has no logits")

    def embeddings(self, features: Any, query: str) -> tuple[NDArray[np.float64], FloatArray]:
        """Return frame embeddings `(n, d)` and the query's `(d,)` in one space, for samplers that compare frames."""
        raise NotImplementedError(f"encoder {self.name!r} has no embeddings")

    def prepare(self, frames: Pixels) -> Pixels:
        """Return RGB uint8 frames, shrunk if `embed` then gives bit-equal features; runs in the decoding thread."""
        return frames

    def queue_parts(self, parts: Sequence[Pixels]) -> Callable[[], FrameFeatures]:
        """Queue batches of frames on the device; return a function that waits for their features, in order.

        The parts may differ in height and width. Another batch may be queued before the function is called.
        """
        raise NotImplementedError(f"encoder {self.name!r} cannot queue batches")

    def load_ahead(self) -> None:
        """Begin to load weights in a thread while the first frames are decoded; returns at once."""

    def is_cut(self, query: str) -> bool:
        """Return True if `query` is longer than the text that the encoder reads, so that its end is lost."""
        return False

    def known_neighbours(self, query: str) -> tuple[str, ...]:
        """Return the known names nearest to `query` if the query is outside the encoder's vocabulary.

        Return () if the query is inside the vocabulary, or if the encoder has no fixed vocabulary.

        Raises:
            InvalidInput: a query in a script that the encoder cannot read.
        """
        return ()

    def last_usage(self) -> list[dict[str, float]]:
        """Return the `Reply.usage` of each model reply in this thread's last `relevance` call; [] without a model."""
        return []

    def features_of(self, video: Path, query: str) -> RelevanceSource | None:
        """Return a source of relevance of `video`'s frames, with logits and embeddings; None by default.

        Simulated encoders return one, in place of decoding and embedding.
        """
        return None

    def pictures_of(self, frames: IntArray, size: int | None) -> list[Pixels]:
        """Return one drawn RGB picture `(height, width, 3)` per frame index, without decoding a video.

        Only encoders of simulated videos can draw. `size` is the shorter side in pixels; None keeps the size as drawn.
        """
        raise NotImplementedError(f"encoder {self.name!r} draws no pictures")

    def n_unknown(self, frames: IntArray) -> int:
        """Return how many of `frames` had no relevance of their own and got that of the nearest known frame.

        Counted for the last question.
        """
        return 0

    @property
    def device_seconds(self) -> float:
        """Seconds that the device has spent in finished forwards, by its own clock; 0 for an encoder without one."""
        return 0.0

    def close(self) -> None:
        """Release weights and device memory."""

    @classmethod
    def revision_of(cls, **options: object) -> str:
        """Return the `revision` of an encoder with these options.

        By default the encoder is made for this; override the method if the revision is known without loading weights.
        """
        encoder = cls(**options)
        try:
            return encoder.revision
        finally:
            encoder.close()

    @classmethod
    def gmacs_of(cls, **options: Any) -> Mapping[str, float]:
        """Return the `gmacs` of an encoder with these options; loads no weights."""
        return {}

    @classmethod
    def overrides(cls, method: str) -> bool:
        """Return True if a subclass of `Encoder` has replaced the method named `method`, e.g. "logits"."""
        return getattr(cls, method) is not getattr(Encoder, method)


def feature_array(features: FrameFeatures) -> NDArray[np.float32]:
    """Return `features` typed as an array, for encoders with `stores_embeddings`, whose features are arrays."""
    return np.asarray(features)


def checked_frames(frames: Pixels) -> Pixels:
    """Return `frames` unchanged after checking that they are RGB uint8 `(n, height, width, 3)`, n >= 0, no side 0.

    Raises:
        InvalidInput: another type or shape.
    """
    if frames.dtype != np.uint8 or frames.ndim != 4 or frames.shape[3] != 3 or 0 in frames.shape[1:]:
        raise InvalidInput(f"frames must be RGB uint8 (n, height, width, 3), got {frames.dtype} {frames.shape}")
    return frames
