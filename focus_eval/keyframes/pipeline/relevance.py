"""Computes the relevance of frames, or reads it from the store."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from focus_eval.core.types import FloatArray, IntArray, Pixels
from focus_eval.keyframes.encoders.base import Encoder, FrameFeatures, feature_array
from focus_eval.keyframes.encoders.cache import FeatureCache, duplicate_cache
from focus_eval.keyframes.pipeline.batch_packer import BatchPacker
from focus_eval.keyframes.pipeline.timing import Meter
from focus_eval.keyframes.samplers.ledger import RelevanceFn, RelevanceSource, log_odds

if TYPE_CHECKING:
    from focus_eval.keyframes.encoders.store import RelevanceStore
    from focus_eval.keyframes.video.feed import FedReader
    from focus_eval.keyframes.video.reader import VideoReader


@runtime_checkable
class Progress(Protocol):
    """Progress callbacks: the number of frames to score, then each scored batch."""

    def expect(self, n_pulls: int) -> None:
        """Begin work on `n_pulls` frames; called before the first pull, and by a batcher before each pass."""
        ...

    def advance(self, n_pulls: int) -> None:
        """Add `n_pulls` finished frames; called after each batch."""
        ...


# Is given the number of frames scored since the last call; what it raises ends the choosing.
OnPulls = Callable[[int], None]
Visit = Callable[[IntArray, FrameFeatures], None]
Prepare = Callable[[Pixels], Pixels]


class FrameServer(Protocol):
    """Embeds frames of an open video for several questions at once."""

    def serve(self, session: VideoSession, frames: IntArray, visit: Visit) -> int:
        """Call `visit(part, features)` until all `frames` were visited; return the forwards made for this question."""
        ...

    def fingerprint(self, store: RelevanceStore) -> str:
        """Return the video's fingerprint, looked up in `store` once."""
        ...

    def check_stopped(self) -> None:
        """Raise the error that stopped the questions, if there is one."""
        ...


# Limit in bytes of the feature cache for one question whose frames are compared with several texts.
QUESTION_BYTES = 1 << 30


@dataclass(frozen=True, kw_only=True)
class EncoderUse:
    """An encoder of a selector, and how the selector uses it.

    Args:
        store: keeps embeddings or relevance between runs; None keeps nothing.
        feature_cache: keeps features for the next question about the video, if the store does not keep them.
        batch_size: number of frames encoded at once; it limits the pixels held in memory.
        shares: True to reuse the features of an identical picture that was embedded before.
        batches: fills the encoder's batches with frames of other videos, if the encoder `fills_batches`.
        stage: stage to which the encoder's seconds are booked, "scan" for a scan encoder.
        decodes: decoding mode under which decoded frames are counted: "all", "reference" or "sync".
        compares_texts: True if the sampler compares each frame with several texts of a question.
        needs_features: True if the sampler needs logits or embeddings.
        pixels: the video backend if its pixels are not exact, part of the store's keys; "" if they are.
    """

    encoder: Encoder
    store: RelevanceStore | None = None
    feature_cache: FeatureCache | None = None
    batch_size: int = 32
    shares: bool = True
    batches: BatchPacker | None = None
    stage: str = "encode"
    decodes: str = "all"
    compares_texts: bool = False
    needs_features: bool = False
    pixels: str = ""

    def on(self, reader: VideoReader, *, server: FrameServer | None, meter: Meter) -> VideoSession:
        """Return the session of one question on an open video; `server` and `meter` as in `VideoSession`."""
        # Use a cache only for an encoder whose features the store never keeps.
        cache = None if self.encoder.stores_embeddings else self.feature_cache
        if cache is None and self.compares_texts:
            cache = FeatureCache(QUESTION_BYTES)
        key = ""
        if self.store:
            # The server computes the fingerprint once per open video: even for a known file it costs disk accesses.
            fingerprint = server.fingerprint(self.store) if server else self.store.video_fingerprint(reader.path)
            key = " ".join(filter(None, [fingerprint, reader.decoder_version, self.pixels]))
        settings = {**vars(self), "feature_cache": cache}
        if server is None:  # only a server registers passes, and shared batches wait for registered passes
            settings["batches"] = None
        return VideoSession(**settings, reader=reader, key=key, server=server, meter=meter)


@dataclass(frozen=True, kw_only=True)
class VideoSession(EncoderUse):
    """The use of an encoder for one question on one open video.

    Args:
        key: fingerprint of the video's content; "" if there is no store.
        server: embeds frames together with other questions; None: each question alone.
    """

    reader: VideoReader
    key: str = ""
    meter: Meter = field(default_factory=Meter)
    server: FrameServer | None = None

    @property
    def scorer_key(self) -> str:
        """Identity of the relevance of this encoder, a key of the store."""
        return f"{self.encoder.name} {self.encoder.revision}"

    @property
    def prepare(self) -> Prepare | None:
        """The encoder's function that shrinks a frame right after decoding; None if it has none."""
        return self.encoder.prepare if self.encoder.overrides("prepare") else None

    def known(self, frames: IntArray) -> tuple[NDArray[np.bool_], FrameFeatures | None]:
        """Return a mask `(n,)` of the `frames` with stored features, and these features (None or empty if none)."""
        # Look in only one place: an encoder's features are kept either in the store or in `feature_cache`.
        if self.store is not None and self.encoder.stores_embeddings:
            return self.store.embeddings(self.scorer_key, self.key, frames)
        if self.feature_cache is not None:
            return self.feature_cache.get(str(self.reader.path), frames)
        return np.zeros(frames.shape, dtype=bool), None

    @property
    def packer(self) -> BatchPacker | None:
        """`batches`, if the encoder needs full ones; None if it takes batches of any size."""
        return self.batches if self.encoder.fills_batches else None

    def embed(self, frames: IntArray, pixels: Pixels, *, meter: Meter) -> tuple[FrameFeatures, NDArray[np.bool_]]:
        """Return the features of decoded frames and a mask of those that the encoder ran on; store the features.

        `meter` is in the session's stage; waiting for frames of other videos is moved to "idle".
        """
        if self.packer is not None:
            started = time.perf_counter()
            features, seconds = self.packer.embed(self.encoder, pixels)
            meter.move(self.stage, "idle", max(0.0, time.perf_counter() - started - seconds))
            # Shared batches do not look for identical pictures, so the encoder ran on every frame.
            computed = np.ones(frames.shape, dtype=bool)
        elif self.shares and self.encoder.embeds_independently:
            # Slides and still shots repeat pixel by pixel. Compare the prepared pictures, which are smaller.
            pictures = self.encoder.prepare(pixels)
            features, computed = duplicate_cache(self.scorer_key).embed(
                pictures, lambda part: feature_array(self.encoder.embed(part))
            )
        else:
            features, computed = _own_features(self.encoder.embed(pixels), pixels), np.ones(frames.shape, dtype=bool)
        if self.store is not None and self.encoder.stores_embeddings:
            # Continue with the stored features, so that all processes use the same: another may have written first.
            features = self.store.put_embeddings(self.scorer_key, self.key, frames, feature_array(features))
        elif self.feature_cache is not None:
            self.feature_cache.put(str(self.reader.path), frames, features)
        return features, computed


def _own_features(features: FrameFeatures, pixels: Pixels) -> FrameFeatures:
    """The features, copied if they share memory with `pixels`, because the next batch is written to that memory."""
    if isinstance(features, np.ndarray):
        return features.copy() if np.may_share_memory(features, pixels) else features
    if isinstance(features, (list, tuple)):
        return type(features)(_own_features(part, pixels) for part in features)
    if type(features).__module__ == "torch":
        import torch  # loaded already

        if isinstance(features, torch.Tensor) and features.device.type == "cpu":
            return features.clone() if np.may_share_memory(features.detach().numpy(), pixels) else features
    return features


# Source method -> encoder method that it needs.
_ENCODER_METHODS = {
    "logits": "logits",
    "relevance_and_logits": "logits",
    "embeddings": "embeddings",
    "relevance_and_embeddings": "embeddings",
}


class VideoRelevance(RelevanceSource):
    """Relevance of one video's frames to one query, as the ledger pulls it.

    It gives logits and embeddings only if the encoder has them. `forwards` counts the encoder forwards actually made.
    It does not count frames that came from the store, that another question needed first, or whose pixels equal those
    of a frame embedded before (`embeds_independently`).
    """

    def __init__(self, session: VideoSession, query: str, *, on_pulls: OnPulls | None = None) -> None:
        self.name = session.encoder.name
        self.forwards = 0
        self._session = session
        self._query = query
        self._on_pulls = on_pulls or _ignore

    def gives(self, method: str) -> bool:
        """Return True unless the method needs logits or embeddings, and the encoder has none."""
        return method not in _ENCODER_METHODS or self._session.encoder.overrides(_ENCODER_METHODS[method])

    def __call__(self, frames: IntArray) -> FloatArray:
        """Return relevance in [0, 1], shape `(n,)`; if all of it is stored, no weights are loaded."""
        session = self._session
        if session.store is None:
            return self._from_features(frames, self._relevance)
        values = session.store.relevance(session.scorer_key, session.key, self._query, frames)
        missing = np.isnan(values)
        # Count frames from the store as progress too.
        self._on_pulls(int((~missing).sum()))
        if missing.any():
            fresh = self._from_features(frames[missing], self._relevance)
            # Use the stored values, not the computed ones: two processes then agree.
            values[missing] = session.store.put_relevance(
                session.scorer_key, session.key, self._query, frames[missing], fresh
            )
        return values

    def _relevance(self, features: object) -> FloatArray:
        """Compute relevance of embedded frames to the query, and book the requests and dollars of models."""
        encoder = self._session.encoder
        try:
            return encoder.relevance(features, self._query)
        finally:
            for usage in encoder.last_usage():
                self._session.meter.spend(usage)

    def relevance_to(self, frames: IntArray, text: str) -> FloatArray:
        """Return relevance to another text in [0, 1], shape `(n,)`; stored features are reused."""
        source = VideoRelevance(self._session, text, on_pulls=self._on_pulls)
        try:
            return source(frames)
        finally:
            self.forwards += source.forwards

    def logits(self, frames: IntArray) -> FloatArray:
        """Return the encoder's logits of `frames` to the query, `(n,)`; refuse if it has none."""
        encoder = self._session.encoder
        if not self.gives("logits"):
            return super().logits(frames)
        return self._from_features(frames, lambda features: encoder.logits(features, self._query))

    def relevance_and_logits(self, frames: IntArray) -> tuple[FloatArray, FloatArray]:
        """Return relevance and logits of `frames`, each `(n,)`, from one embedding."""
        encoder = self._session.encoder
        relevance, columns = self._relevance_and(frames, lambda features: encoder.logits(features, self._query))
        return relevance, columns[:, 0]

    def embeddings(self, frames: IntArray) -> tuple[NDArray[np.float64], FloatArray]:
        """Return the embeddings of `frames`, `(n, d)`, and of the query, `(d,)`; refuse if the encoder has none."""
        encoder = self._session.encoder
        if not self.gives("embeddings"):
            return super().embeddings(frames)
        queries: list[FloatArray] = []

        def read(features: object) -> FloatArray:
            """Return the frame embeddings and note the query's."""
            images: FloatArray
            images, query = encoder.embeddings(features, self._query)
            queries.append(query)
            return images

        return self._from_features(frames, read), queries[-1]

    def relevance_and_embeddings(self, frames: IntArray) -> tuple[FloatArray, NDArray[np.float64]]:
        """Return relevance `(n,)` and embeddings `(n, d)` of `frames`, from one pass."""
        encoder = self._session.encoder
        return self._relevance_and(frames, lambda features: encoder.embeddings(features, self._query)[0])

    def _relevance_and(self, frames: IntArray, read: Callable[[object], FloatArray]) -> tuple[FloatArray, FloatArray]:
        """Relevance `(n,)` and the columns `(n, m)` of `read(features)`, from one pass over the frames."""
        relevance, query = self._session.encoder.relevance, self._query
        columns = self._from_features(
            frames, lambda features: np.column_stack([relevance(features, query), read(features)])
        )
        return columns[:, 0], columns[:, 1:]

    def _from_features(self, frames: IntArray, read: Callable[[object], FloatArray]) -> FloatArray:
        """`read(features)` for all frames in their order, one row or number a frame."""
        # `_visit` gives stored features first and then computed ones: collect the rows by frame to restore the order.
        rows_by_frame: dict[int, FloatArray] = {}

        def visit(part: IntArray, features: object) -> None:
            """Note `read(features)` of each frame of `part`."""
            rows_by_frame.update(zip(part.tolist(), read(features), strict=True))

        self._visit(frames, visit)
        return np.asarray([rows_by_frame[frame] for frame in frames.tolist()], dtype=np.float64)

    def _visit(self, frames: IntArray, visit: Visit) -> None:
        """Call `visit(part, features)` with stored features first, then with newly embedded ones, ascending."""
        session = self._session
        is_known, features = session.known(frames)
        if features is not None and is_known.any():
            with session.meter.stage(session.stage):
                visit(frames[is_known], features)
            self._on_pulls(int(is_known.sum()))
        # Sort the frames, so that the decoder goes over the video once; `_from_features` restores the order.
        missing = np.sort(frames[~is_known])
        if missing.size == 0:
            return
        session.encoder.load_ahead()
        if session.server is not None:
            self.forwards += session.server.serve(session, missing, visit)
            self._on_pulls(missing.size)
            return
        for part, pixels in decoded_batches(
            session.reader,
            missing,
            session.batch_size,
            session.meter,
            prepare=session.prepare,
            decodes=session.decodes,
        ):
            with session.meter.stage(session.stage):
                features, computed = session.embed(part, pixels, meter=session.meter)
                visit(part, features)
            self.forwards += int(computed.sum())
            self._on_pulls(part.size)


class PictureEncoder(Encoder):
    """An encoder whose features are the pictures themselves, for samplers that look at frames.

    Args:
        size: longest side in pixels; larger pictures are shrunk (Lanczos). None for their own size.
    """

    name: ClassVar[str] = "pictures"

    def __init__(self, size: int | None) -> None:
        self._size = size

    def prepare(self, frames: Pixels) -> Pixels:
        """Return the frames at most `size` pixels wide and high, RGB uint8 `(n, height, width, 3)`."""
        height, width = frames.shape[1:3]
        if self._size is None or max(height, width) <= self._size:
            return frames
        from PIL import Image

        factor = self._size / max(height, width)
        shape = (max(1, round(width * factor)), max(1, round(height * factor)))
        return np.stack([np.asarray(Image.fromarray(f).resize(shape, Image.Resampling.LANCZOS)) for f in frames])

    def embed(self, frames: Pixels) -> Pixels:
        """Return the pictures, shrunk as by `prepare`."""
        return self.prepare(frames)


class StartsSession(Protocol):
    """Opens a session on a video with the given encoder."""

    def __call__(self, *, encoder: Encoder, stage: str) -> VideoSession: ...


def pictures_of(start_session: StartsSession, frames: IntArray, size: int | None) -> list[Pixels]:
    """Return the pictures of distinct `frames` in their order, each `(height, width, 3)`, at most `size` pixels long.

    The frames are decoded in one pass with the frames that other questions about the video wait for.
    """
    session = start_session(encoder=PictureEncoder(size), stage="select")
    pixels_by_frame: dict[int, Pixels] = {}

    def visit(part: IntArray, pictures: object) -> None:
        """Note the picture of each frame of `part`."""
        pixels_by_frame.update(zip(part.tolist(), np.array(pictures), strict=True))

    ascending, prepare = np.sort(frames), session.encoder.prepare
    if session.server is not None:
        session.server.serve(session, ascending, visit)
    else:
        for part in decoded_batches(session.reader, ascending, session.batch_size, session.meter, prepare=prepare):
            visit(*part)
    return [pixels_by_frame[frame] for frame in frames.tolist()]


def scan_logits(relevance: RelevanceSource) -> RelevanceFn:
    """Return a function that gives the scan encoder's logits; without logits, the log-odds of its relevance."""
    return relevance.logits if relevance.gives("logits") else (lambda frames: log_odds(relevance(frames)))


def decoded_batches(
    reader: VideoReader,
    frames: IntArray,
    batch_size: int,
    meter: Meter,
    *,
    prepare: Prepare | None = None,
    decodes: str = "all",
) -> Iterator[tuple[IntArray, Pixels]]:
    """Yield batches of decoded frames, ascending; the next ones are decoded while the caller encodes.

    The pixels may be a view of memory that the next batch overwrites: a caller that keeps them must copy them.

    Args:
        frames: ascending, each once.
        meter: gets the seconds of decoding and shrinking as "decode" and "preprocess", the wait for them as "idle";
            and, if the reader counts them, the frames that the decoder gave out, including those decoded on the way,
            and the processor seconds of decoding as "decode_cpu".
        prepare: shrinks frames. In this process each frame is shrunk at once, so that only one is held at full size.
    """
    from focus_eval.keyframes.video.feed import FedReader

    n_before, cpu_before = getattr(reader, "n_decoded", None), getattr(reader, "decode_cpu_seconds", None)
    try:
        if isinstance(reader, FedReader):
            yield from _fed_batches(reader, frames, batch_size, meter, prepare)
        else:
            yield from _threaded_batches(reader, frames, batch_size, meter, prepare)
    finally:
        if n_before is not None:
            meter.count_decoded(decodes, getattr(reader, "n_decoded", n_before) - n_before)
        if cpu_before is not None:
            meter.add("decode_cpu", getattr(reader, "decode_cpu_seconds", cpu_before) - cpu_before)


def _fed_batches(
    reader: FedReader, frames: IntArray, batch_size: int, meter: Meter, prepare: Prepare | None
) -> Iterator[tuple[IntArray, Pixels]]:
    batches = reader.batches(frames, batch_size)
    for at in range(0, frames.size, batch_size):
        decoding = reader.counts.seconds
        with meter.stage("idle"):
            part, pixels = next(batches)
            if part.size < min(batch_size, frames.size - at):
                next(batches)  # raises the error that ended the batch early
            preparing = time.perf_counter()
            prepared = prepare(pixels) if prepare else pixels
        meter.add("decode", reader.counts.seconds - decoding)
        meter.add("preprocess", time.perf_counter() - preparing)
        yield part, prepared


def _threaded_batches(
    reader: VideoReader, frames: IntArray, batch_size: int, meter: Meter, prepare: Prepare | None
) -> Iterator[tuple[IntArray, Pixels]]:
    parts = [frames[at : at + batch_size] for at in range(0, frames.size, batch_size)]
    stream = reader.stream(frames)

    def decode(part: IntArray) -> tuple[Pixels, float, float]:
        """Return pixels of the next frames, seconds of decoding and seconds of preparing; runs in the thread."""
        started, preparing, prepared = time.perf_counter(), 0.0, []
        for _ in range(part.size):
            # Shrink one frame at a time: a batch of 4K frames at full size would take hundreds of megabytes.
            pixels = next(stream)[1][np.newaxis]
            preparing_since = time.perf_counter()
            prepared.append(prepare(pixels) if prepare else pixels)
            preparing += time.perf_counter() - preparing_since
        return np.concatenate(prepared), time.perf_counter() - started - preparing, preparing

    # Use one thread: the reader does not support several, and one batch ahead is enough to keep the encoder busy.
    with ThreadPoolExecutor(max_workers=1) as pool:
        next_batch = pool.submit(decode, parts[0])
        for part, following in zip(parts, [*parts[1:], None], strict=True):
            with meter.stage("idle"):
                pixels, decoding, preparing = next_batch.result()
            meter.add("decode", decoding)
            meter.add("preprocess", preparing)
            if following is not None:
                next_batch = pool.submit(decode, following)
            yield part, pixels


def _ignore(n_pulls: int) -> None:
    """Progress callback that does nothing."""
