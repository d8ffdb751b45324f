"""The ledger gives a sampler relevance, embeddings and pictures, and checks and counts every pull."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from focus_eval.core.errors import BrokenContract, EncoderError, InvalidInput
from focus_eval.core.types import (
    FloatArray,
    IntArray,
    Pixels,
    TextPulls,
    VideoInfo,
    frozen_floats,
    frozen_ints,
    whole_number,
)


def broken(promise: str, message: str) -> BrokenContract:
    """Return a `BrokenContract` with `message`; its attribute `promise` names the broken promise, e.g. "budget"."""
    error = BrokenContract(message)
    error.promise = promise
    return error


RelevanceFn = Callable[[IntArray], FloatArray]
LookFn = Callable[[IntArray, "int | None"], list[Pixels]]

_LEAST_RELEVANCE = 1e-6


def log_odds(relevance: FloatArray) -> FloatArray:
    """Return the log-odds of `relevance`, clipped to [1e-6, 1 - 1e-6] first, shape like `relevance`."""
    clipped = np.clip(relevance, _LEAST_RELEVANCE, 1 - _LEAST_RELEVANCE)
    odds: FloatArray = np.log(clipped / (1 - clipped))
    return odds


class RelevanceSource(ABC):
    """Relevance of one video's frames to one query, as a ledger pulls it.

    A subclass must give relevance; by default all other outputs raise EncoderError.

    Attributes:
        name: the encoder's name in messages; if "", messages use the name of the class.
        forwards: encoder forwards made so far.
    """

    name: str = ""
    forwards: int = 0

    @abstractmethod
    def __call__(self, frames: IntArray) -> FloatArray:
        """Return the relevance of `frames` to the query in [0, 1], shape `(n,)`."""

    def gives(self, method: str) -> bool:
        """Return True if the source has the method of this name, e.g. "logits"; False if it would refuse."""
        return getattr(type(self), method) is not getattr(RelevanceSource, method)

    def logits(self, frames: IntArray) -> FloatArray:
        """Return raw logits of `frames`, `(n,)`; by default raise EncoderError."""
        raise EncoderError(f"{self.readable_name} gives no raw logits; use one that does (clip, siglip)")

    def embeddings(self, frames: IntArray) -> tuple[NDArray[np.float64], FloatArray]:
        """Return the embeddings of `frames`, `(n, d)`, and of the query, `(d,)`; by default raise EncoderError."""
        raise EncoderError(f"{self.readable_name} gives no embeddings; use an encoder that does (clip, siglip)")

    def relevance_and_logits(self, frames: IntArray) -> tuple[FloatArray, FloatArray]:
        """Return relevance and logits, both `(n,)`; override it to get both from one pass over the frames."""
        return self(frames), self.logits(frames)

    def relevance_and_embeddings(self, frames: IntArray) -> tuple[FloatArray, NDArray[np.float64]]:
        """Return relevance `(n,)` and embeddings `(n, d)`; override it to get both from one pass over the frames."""
        return self(frames), self.embeddings(frames)[0]

    def relevance_to(self, frames: IntArray, text: str) -> FloatArray:
        """Return the relevance of `frames` to `text`, `(n,)`; by default raise EncoderError."""
        raise EncoderError(f"{self.readable_name} gives relevance to the question alone, not to {text[:80]!r}")

    @property
    def readable_name(self) -> str:
        """Name for messages."""
        return self.name or type(self).__name__


class FunctionSource(RelevanceSource):
    """Relevance from a plain function of frames; without a function every pull is refused."""

    def __init__(self, function: RelevanceFn | None) -> None:
        self.name = str(getattr(function, "name", "") or getattr(function, "__name__", type(function).__name__))
        self._function = function

    def __call__(self, frames: IntArray) -> FloatArray:
        """Return the function's result for `frames`; raise InvalidInput if there is no function."""
        if self._function is None:
            raise InvalidInput(f"{frames.size} frames pulled, but there is no encoder")
        return self._function(frames)


class Ledger:
    """Give a sampler relevance, logits, embeddings and pictures of frames, and check and record every request.

    >>> ledger = Ledger(lambda frames: frames / 100, VideoInfo(100, 10.0))
    >>> ledger.relevance([0, 50]).tolist(), ledger.n_pulls
    ([0.0, 0.5], 2)

    Pulling a frame twice for one text raises `BrokenContract`. Relevance must be finite and in [0, 1]. Each of
    `relevance`, `logits` and `embeddings` counts one pull per frame. Scans and looks are recorded apart from pulls;
    their frames may be pulled as well.

    Args:
        pull: a source, or a plain function that gives relevance of an int64 array of frames.
        video: bounds of the frame indices.
        budget: limit on the number of pulls, without scans and looks; None for no limit.
        scan: gives the scan encoder's raw logits of an array of frames, shape `(n,)`; None without such an encoder.
        look: gives the pictures of frames, given a longest side in pixels or None for full size; None without pictures.
        query: the text that `pull` compares frames with.
        distinct: keep the embeddings of pulled frames, if the encoder has them, for `known_embeddings`.
    """

    def __init__(
        self,
        pull: RelevanceSource | RelevanceFn | None,
        video: VideoInfo,
        *,
        budget: int | None = None,
        scan: RelevanceFn | None = None,
        look: LookFn | None = None,
        query: str = "",
        distinct: bool = False,
    ) -> None:
        """Begin to record the pulls of one question; `distinct` keeps embeddings to find near twins."""
        self._pull = pull if isinstance(pull, RelevanceSource) else FunctionSource(pull)
        self._embedding_by_frame: dict[int, FloatArray] | None = {} if distinct else None
        self._video = video
        self._budget = budget
        self._scan = scan
        self._look = look
        self._query = query
        self._looked: list[IntArray] = []
        self._of_texts: dict[str, list[tuple[IntArray, FloatArray]]] = {}
        self._is_scanned = np.zeros(video.n_frames if scan else 0, dtype=bool)
        self._frames: list[IntArray] = []
        self._relevance: list[FloatArray] = []
        self._is_pulled = np.zeros(video.n_frames, dtype=bool)
        self._n_pulls = 0

    @property
    def n_pulls(self) -> int:
        """Pulls so far, those for other texts included."""
        return self._n_pulls

    @property
    def frames(self) -> IntArray:
        """Frames pulled for the question in pull order, shape `(n,)`, read-only."""
        return frozen_ints(np.concatenate(self._frames) if self._frames else [])

    @property
    def relevances(self) -> FloatArray:
        """Relevance of `frames` in their order, shape `(n,)`; NaN for pulls of logits or embeddings alone."""
        return frozen_floats(np.concatenate(self._relevance) if self._relevance else [])

    def pulls_in_time(self) -> tuple[IntArray, FloatArray]:
        """Return the frames pulled for the question, ascending, and their relevance, both `(n,)`."""
        order = np.argsort(self.frames, kind="stable")
        return self.frames[order], self.relevances[order]

    @property
    def n_scanned(self) -> int:
        """Frames scanned so far."""
        return int(np.count_nonzero(self._is_scanned))

    @property
    def scanned_frames(self) -> IntArray:
        """Frames scanned so far, ascending, shape `(n_scanned,)`, read-only."""
        return frozen_ints(np.flatnonzero(self._is_scanned))

    @property
    def text_pulls(self) -> tuple[TextPulls, ...]:
        """Pulls for other texts than the question's, in the order of their first use."""
        return tuple(
            TextPulls(
                text,
                frozen_ints(np.concatenate([frames for frames, _ in parts])),
                frozen_floats(np.concatenate([values for _, values in parts])),
            )
            for text, parts in self._of_texts.items()
        )

    @property
    def looked_frames(self) -> IntArray:
        """Frames in the order they were looked at, repeats included, shape `(n,)`, read-only."""
        return frozen_ints(np.concatenate(self._looked) if self._looked else [])

    @property
    def unpulled(self) -> IntArray:
        """Frames never pulled for the question so far, ascending."""
        return np.flatnonzero(~self._is_pulled)

    def is_pulled(self, frames: IntArray) -> NDArray[np.bool_]:
        """Return a mask of the `frames` that were pulled for the question already, shape like `frames`."""
        return self._is_pulled[frames]

    def relevance(self, frames: IntArray, query: str | None = None) -> FloatArray:
        """Pull `frames` in one batch and return their relevance in [0, 1], shape `(n,)`.

        Args:
            query: text to compare the frames with; None for the question. Each pair of frame and text is one pull.

        Raises:
            SamplerError: a frame out of range, repeated, or above the budget.
            EncoderError: relevance of the wrong shape, not finite, or outside [0, 1]; or no relevance to other texts.
        """
        if query is not None and query != self._query:
            return self._relevance_to(frames, query)
        frames = self._pullable(frames)
        if frames.size == 0:
            return frozen_floats([])
        if self._embedding_by_frame is not None and self._pull.gives("relevance_and_embeddings"):
            raw_values, images = self._pull.relevance_and_embeddings(frames)
            self._embedding_by_frame.update(zip(frames.tolist(), images, strict=True))
        else:
            raw_values = self._pull(frames)
        values = _checked_values(raw_values, frames, low=0.0, high=1.0)
        self._record(frames, values)
        return values

    def known_embeddings(self, frames: IntArray) -> NDArray[np.float64] | None:
        """Return the kept embeddings `(n, d)` of `frames`; None if the embedding of any of them was not kept."""
        images = [(self._embedding_by_frame or {}).get(frame) for frame in frames.tolist()]
        return None if any(image is None for image in images) else np.array(images)

    def _relevance_to(self, frames: IntArray, text: str) -> FloatArray:
        """Pull `frames` for another text than the question and return their relevance to it, `(n,)`.

        Raises BrokenContract for an empty text, EncoderError if the encoder takes no other text.
        """
        if not isinstance(text, str) or not text.strip():
            raise broken("ledger", f"a query is text that says what to look for, got {text!r}")
        is_pulled = np.zeros(self._video.n_frames, dtype=bool)
        for pulled, _ in self._of_texts.get(text, ()):
            is_pulled[pulled] = True
        frames = self._within_budget(self._checked(frames, is_pulled, f"pulled for {text[:80]!r}"))
        if frames.size == 0:
            return frozen_floats([])
        values = _checked_values(self._pull.relevance_to(frames, text), frames, low=0.0, high=1.0)
        self._of_texts.setdefault(text, []).append((frames, frozen_floats(values)))
        self._n_pulls += int(frames.size)
        return values

    def look(self, frames: IntArray, size: int | None = None) -> list[Pixels]:
        """Return the pictures of `frames` in their order, RGB uint8 `(height, width, 3)`; counts no pulls.

        Args:
            frames: distinct within one call; frames that were pulled or looked at before are allowed. Each look is
                recorded.
            size: longest side in pixels, from 1; larger pictures are shrunk. None for their own size.

        Raises:
            BrokenContract: a frame out of range or repeated.
            InvalidInput: the ledger has no pictures because only the video's length is known, or `size` is below 1.
        """
        if size is not None:
            size = whole_number(size, "the size of a picture")
        if self._look is None:
            raise InvalidInput("there are no pictures to look at: name the folder of the videos, or leave look out")
        frames = self._checked(frames, np.zeros(self._video.n_frames, dtype=bool), "looked at")
        if frames.size == 0:
            return []
        pictures = self._look(frames, size)
        self._looked.append(frames)
        return pictures

    def logits(self, frames: IntArray) -> FloatArray:
        """Pull `frames` in one batch and return the encoder's raw logits, shape `(n,)`.

        Raises:
            EncoderError: the encoder has no logits, or gave some that are not finite.
        """
        frames = self._pullable(frames)
        if frames.size == 0:
            return frozen_floats([])
        values = _checked_values(self._pull.logits(frames), frames, low=-np.inf, high=np.inf)
        self._record(frames, np.full(frames.shape, np.nan))
        return values

    def embeddings(self, frames: IntArray) -> tuple[NDArray[np.float64], FloatArray]:
        """Pull `frames`, at least one, in one batch and return their embeddings `(n, d)` and the query's `(d,)`.

        Raises:
            EncoderError: the encoder has no embeddings, or gave some of the wrong shape.
        """
        self.check_embeddings()
        frames = self._pullable(frames)
        images, query = self._pull.embeddings(frames)
        _check_images(images, frames)
        if query.shape != images.shape[1:] or not np.isfinite(query).all():
            raise EncoderError(f"the query's embedding has shape {query.shape} or is not finite")
        self._record(frames, np.full(frames.shape, np.nan))
        return images, query

    def check_embeddings(self) -> None:
        """Raise EncoderError if the encoder has no embeddings."""
        if not self._pull.gives("embeddings"):
            self._pull.embeddings(frozen_ints([]))  # raises if the encoder has no embeddings

    def relevance_and_embeddings(self, frames: IntArray) -> tuple[FloatArray, NDArray[np.float64] | None]:
        """Pull `frames`, at least one, in one batch; return their relevance `(n,)` and their embeddings `(n, d)`.

        One pull per frame. The embeddings are None if the encoder has none.

        Raises:
            SamplerError, EncoderError: as `relevance` and `embeddings`.
        """
        if not self._pull.gives("embeddings"):
            return self.relevance(frames), None
        frames = self._pullable(frames)
        relevance, images = self._pull.relevance_and_embeddings(frames)
        values = _checked_values(relevance, frames, low=0.0, high=1.0)
        if images is not None:  # a ledger in another process gives None if its encoder has no embeddings
            _check_images(images, frames)
        self._record(frames, values)
        return values, images

    def relevance_and_logits(self, frames: IntArray) -> tuple[FloatArray, FloatArray]:
        """Pull `frames` in one batch; return their relevance and raw logits, both `(n,)`.

        One pull per frame. An encoder without logits gives the log-odds of relevance instead.

        Raises:
            SamplerError, EncoderError: as `relevance` and `logits`.
        """
        if not self._pull.gives("logits") or len(frames) == 0:
            relevance = self.relevance(frames)
            return relevance, log_odds(relevance)
        frames = self._pullable(frames)
        raw_relevance, raw_logits = self._pull.relevance_and_logits(frames)
        relevance = _checked_values(raw_relevance, frames, low=0.0, high=1.0)
        logits = _checked_values(raw_logits, frames, low=-np.inf, high=np.inf, quantity="logit")
        self._record(frames, relevance)
        return relevance, logits

    def scan(self, frames: IntArray) -> FloatArray:
        """Run the scan encoder on `frames` in one batch and return its raw logits, shape `(n,)`; counts no pulls.

        Raises:
            InvalidInput: no scan encoder.
            BrokenContract: a frame out of range, or scanned before.
            EncoderError: logits of the wrong shape or not finite.
        """
        if self._scan is None:
            raise InvalidInput(
                "no scan encoder: derive the sampler from ScanningSampler and name one, e.g. -o scan_encoder=clip"
            )
        frames = self._checked(frames, self._is_scanned, "scanned")
        if frames.size == 0:
            return frozen_floats([])
        values = _checked_values(self._scan(frames), frames, low=-np.inf, high=np.inf, quantity="scan logit")
        self._is_scanned[frames] = True
        return values

    def _pullable(self, frames: IntArray) -> IntArray:
        """`frames` as int64; raises BrokenContract for a repeated frame, one outside the video or too many pulls."""
        return self._within_budget(self._checked(frames, self._is_pulled, "pulled"))

    def _within_budget(self, frames: IntArray) -> IntArray:
        """`frames`; raises BrokenContract if pulling them would exceed the budget."""
        if self._budget is not None and self.n_pulls + frames.size > self._budget:
            raise broken("budget", f"{self.n_pulls + frames.size} pulls asked, the budget is {self._budget}")
        return frames

    def _checked(self, frames: IntArray, is_known: NDArray[np.bool_], verb: str) -> IntArray:
        """Return `frames` as int64; raise BrokenContract for one outside the video or repeated.

        A frame also counts as repeated if `is_known` is True for it. `verb` says in the message what was done with it.
        """
        frames = frozen_ints(frames)
        outside = (frames < 0) | (frames >= self._video.n_frames)
        if outside.any():
            raise broken("ledger", f"frame {frames[outside][0]} asked, video has {self._video.n_frames}")
        unique, counts = np.unique(frames, return_counts=True)
        repeated = np.concatenate([unique[counts > 1], frames[is_known[frames]]])
        if repeated.size:
            raise broken("ledger", f"frame {repeated[0]} {verb} twice; keep what the ledger gave the first time")
        return frames

    def _record(self, frames: IntArray, relevance: FloatArray) -> None:
        """Record a pull for the question."""
        self._is_pulled[frames] = True
        self._n_pulls += int(frames.size)
        self._frames.append(frames)
        self._relevance.append(frozen_floats(relevance))


def _checked_values(
    raw_values: object, frames: IntArray, *, low: float, high: float, quantity: str = "relevance"
) -> FloatArray:
    """An encoder's values as floats, `(n,)`; raises EncoderError for another shape or a value out of range."""
    try:
        values = np.asarray(raw_values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise EncoderError(f"{quantity} must be an array of numbers, got {raw_values!r:.80}") from error
    if values.shape != frames.shape:
        raise EncoderError(f"{frames.size} frames asked, {quantity} came with shape {values.shape}")
    bad = ~np.isfinite(values) | (values < low) | (values > high)
    if bad.any():
        raise EncoderError(
            f"frame {frames[bad][0]}: {quantity} {values[bad][0]} is not a finite number in [{low}, {high}]"
        )
    return values


def _check_images(images: NDArray[np.float64], frames: IntArray) -> None:
    """Raise EncoderError unless `images` holds one finite embedding a frame, `(n, d)`."""
    if images.ndim != 2 or images.shape[0] != frames.size or not np.isfinite(images).all():
        raise EncoderError(f"embeddings of {frames.size} frames have shape {images.shape} or are not finite")
