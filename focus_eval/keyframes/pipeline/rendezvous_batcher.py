"""Serves the questions of one video together: each frame is decoded and embedded once.

Samplers pull in few large batches (coarse, then fine). Each question runs in its own thread until it waits for frames.
When all questions wait, one forward pass over the video serves them all. The result of a question does not depend on
the other questions: it is the same as if the question were run alone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

from focus_eval.core.errors import RunError
from focus_eval.core.types import IntArray, Pixels
from focus_eval.keyframes.encoders.base import FrameFeatures
from focus_eval.keyframes.pipeline.relevance import Progress, VideoSession, Visit, decoded_batches
from focus_eval.keyframes.pipeline.timing import Meter

if TYPE_CHECKING:
    from focus_eval.keyframes.encoders.store import RelevanceStore
    from focus_eval.keyframes.video.reader import VideoReader


T = TypeVar("T")


@dataclass(eq=False)
class _Request:
    """Frames that one question waits for; `forwards` counts the encoder forwards charged to it."""

    number: int
    session: VideoSession
    frames: IntArray
    visit: Visit
    forwards: int = 0
    error: BaseException | None = None
    finished: threading.Event = field(default_factory=threading.Event)


class RendezvousBatcher:
    """Serves the questions of one video in rounds: a round begins once every running question waits for frames.

    Args:
        reader: the open video, read by one thread at a time.
        batch_size: frames decoded and embedded at once.
        progress: its methods are called with the number of frames of each pass and of each batch.
    """

    def __init__(self, reader: VideoReader, *, batch_size: int = 32, progress: Progress | None = None) -> None:
        self.reader = reader
        self._progress = progress
        self._batch_size = batch_size
        self._changed = threading.Condition()
        self._running = 0
        self._waiting: list[_Request] = []
        self._stopped_by: BaseException | None = None
        self._fingerprinting = threading.Lock()
        self._fingerprint: str | None = None
        # Number of the question that a thread runs. It is thread-local, because samplers cannot pass it to `pull`.
        self._number = threading.local()

    def run(self, questions: Sequence[Callable[[], T]]) -> list[T]:
        """Run all `questions`, each in a thread, and return their results, in order.

        Raises:
            BaseException: a question's error, once all have ended.
        """
        if not questions:
            return []
        self._running = len(questions)
        requests: list[_Request] = []
        # Use one thread per question: a sampler is plain Python that blocks in `pull`, so it needs its own stack. This
        # thread does the heavy work in `_serve_round`.
        with ThreadPoolExecutor(max_workers=len(questions), thread_name_prefix="question") as pool:
            try:
                futures = [pool.submit(self._question, number, question) for number, question in enumerate(questions)]
                while requests := self._next_round():
                    self._serve_round(requests)
            except BaseException as error:  # even after an interrupt, no thread may be left waiting for ever
                self.stop(error)
                _fail_requests(requests, error)
                raise
        return [future.result() for future in futures]

    def serve(self, session: VideoSession, frames: IntArray, visit: Visit) -> int:
        """Wait until a round has visited all `frames`; return the forwards made for this question.

        Raises:
            VideoError, EncoderError: a failure of these frames; the other questions continue.
        """
        # Order by question, not by thread: rows must not depend on timing.
        request = _Request(self._number.value, session, frames, visit)
        with session.meter.stage("waiting"):
            with self._changed:
                if self._stopped_by is not None:
                    raise self._stopped_by
                self._waiting.append(request)
                self._changed.notify()
            request.finished.wait()
        session.meter.seconds.pop("waiting")  # drop it: the round measures its work and divides it among questions
        if request.error is not None:
            raise request.error
        return request.forwards

    def fingerprint(self, store: RelevanceStore) -> str:
        """Return the fingerprint of the open video, looked up in `store` once."""
        with self._fingerprinting:
            if self._fingerprint is None:
                self._fingerprint = store.video_fingerprint(self.reader.path)
            return self._fingerprint

    def _question(self, number: int, question: Callable[[], T]) -> T:
        """Run question `number` in this thread, and count it as ended afterwards."""
        self._number.value = number
        try:
            return question()
        finally:
            with self._changed:
                # A finished question requests no more frames, so the round of the others may start now.
                self._running -= 1
                self._changed.notify()

    def _next_round(self) -> list[_Request]:
        """Wait until every running question waits for frames; return the requests, [] if no question is left."""
        with self._changed:
            # Wait for all running questions: the more questions a pass serves, the fewer frames are decoded twice.
            self._changed.wait_for(lambda: len(self._waiting) == self._running)
            requests, self._waiting = sorted(self._waiting, key=lambda entry: entry.number), []
            return requests

    def _serve_round(self, requests: list[_Request]) -> None:
        """Serve one round; if it fails with several questions, serve each alone so that only some fail."""
        try:
            self._serve_pass(requests)
        except RunError:  # the run itself fails, so serving questions alone would not help
            raise
        except Exception as error:  # noqa: BLE001 (raised again in the question it belongs to)
            if len(requests) == 1:
                requests[0].error = error
            else:  # if one question needs damaged frames, the others must not fail
                for request in requests:
                    self._serve_alone(request)
                return
        for request in requests:
            request.finished.set()

    def _serve_alone(self, request: _Request) -> None:
        """Serve a request of a failed round: reuse features that the failed pass embedded, embed the others."""
        is_known, features = request.session.known(request.frames)
        if features is not None and is_known.any():
            _deliver_features(request, request.frames[is_known], features)
            request.frames = request.frames[~is_known]
        # Request only the missing frames again, so that frames before the damaged one are not embedded twice.
        if request.error is not None or request.frames.size == 0:
            request.finished.set()
        else:
            self._serve_round([request])

    def stop(self, error: BaseException) -> None:
        """Make every waiting question fail with `error`, which `run` then raises. Any thread may call this."""
        with self._changed:
            self._stopped_by = error
            waiting, self._waiting = self._waiting, []
        _fail_requests(waiting, error)

    def check_stopped(self) -> None:
        """Raise the error that `stop` was called with."""
        if self._stopped_by is not None:
            raise self._stopped_by

    def _serve_pass(self, requests: list[_Request]) -> None:
        """Decode the requested frames once, in order; embed them once per encoder; give each question its own."""
        shared = Meter()
        # Forwards made before this pass were charged then: after a failed round a request is served once more.
        forwards_before = {id(request): request.forwards for request in requests}
        # One pass over the ascending union: the decoder never has to seek back.
        union = np.unique(np.concatenate([request.frames for request in requests]))
        # Tell encoders apart by object, not by name: two encoders of one name may differ in their options.
        encoders = list({id(request.session.encoder): request.session for request in requests}.values())
        request_groups = [
            [request for request in requests if request.session.encoder is session.encoder] for session in encoders
        ]
        is_requested = [_request_masks(union, group) for group in request_groups]
        encoding = [Meter() for _ in encoders]
        # Frames can be shrunk while they are decoded only if all encoders want the same size.
        prepare = encoders[0].prepare if len(encoders) == 1 else None
        decode_modes = {request.session.decodes for request in requests}
        decodes = decode_modes.pop() if len(decode_modes) == 1 else "all"
        at = 0
        if self._progress is not None:
            self._progress.expect(union.size)
        with ExitStack() as passes:
            # Keep the pass registered to its end: a shared batch that is not full then waits for frames decoded here.
            packers = [session.packer for session in encoders if session.packer is not None]
            for packer in {id(packer): packer for packer in packers}.values():
                passes.enter_context(packer.open_pass())
            for part, pixels in decoded_batches(
                self.reader, union, self._batch_size, shared, prepare=prepare, decodes=decodes
            ):
                # Check between batches, so that an interrupt does not wait for the end of the video.
                self.check_stopped()
                for session, group, is_requested_by, meter in zip(
                    encoders, request_groups, is_requested, encoding, strict=True
                ):
                    with meter.stage(session.stage):
                        _embed_requests(session, group, is_requested_by[:, at : at + part.size], part, pixels, meter)
                at += part.size
                if self._progress is not None:
                    self._progress.advance(part.size)
        new_forwards = {id(request): request.forwards - forwards_before[id(request)] for request in requests}
        _charge_requests(shared, requests, new_forwards)
        for meter, group in zip(encoding, request_groups, strict=True):
            _charge_requests(meter, group, new_forwards)


def _charge_requests(meter: Meter, requests: list[_Request], new_forwards: dict[int, int]) -> None:
    """Divide the times of `meter` among `requests` in proportion to new forwards (by id()); evenly if all are 0."""
    forwards = [new_forwards[id(request)] for request in requests]
    if not any(forwards):  # no new forwards, since all features were cached: divide evenly
        forwards = [1] * len(requests)
    for request, share in zip(requests, forwards, strict=True):
        for stage, seconds in meter.seconds.items():
            request.session.meter.add(stage, seconds * share / sum(forwards))
    shares = np.cumsum([0, *forwards]) / sum(forwards)
    for mode, n_frames in meter.decoded.items():
        # Round the cumulative sums, not the parts, so that the parts add up to the number of decoded frames.
        for request, share in zip(requests, np.diff(np.rint(n_frames * shares)), strict=True):
            request.session.meter.count_decoded(mode, int(share))


def _fail_requests(requests: list[_Request], error: BaseException) -> None:
    """End every unfinished request with `error`, and wake its question."""
    for request in requests:
        # Leave out requests that were served before the error: their frames are valid.
        if not request.finished.is_set():
            request.error = error
            request.finished.set()


def _deliver_features(request: _Request, frames: IntArray, features: FrameFeatures) -> None:
    """Call the question's `visit` with its features; record an error in the request instead of raising it."""
    if request.error is not None:
        return
    try:
        request.visit(frames, features)
    except RunError:
        raise
    except Exception as error:  # noqa: BLE001 (raised again in the question it belongs to)
        request.error = error


def _request_masks(union: IntArray, requests: list[_Request]) -> NDArray[np.bool_]:
    """A mask of the frames of the ascending `union` per request, shape `(n_requests, n)`."""
    is_requested = np.zeros((len(requests), union.size), dtype=bool)
    for mask, request in zip(is_requested, requests, strict=True):
        # Every requested frame is in the union, so `searchsorted` gives its exact position.
        mask[np.searchsorted(union, request.frames)] = True
    return is_requested


def _embed_requests(
    session: VideoSession,
    requests: list[_Request],
    is_requested: NDArray[np.bool_],
    part: IntArray,
    pixels: Pixels,
    meter: Meter,
) -> None:
    """Embed the requested frames of `part` once and give each request its frames.

    A frame's forward is counted for the first request that needs the frame.

    `is_requested` is a mask `(n_requests, n)` of `part`, whose pixels are `pixels`.
    """
    is_requested_by_any = is_requested.any(axis=0)
    if not is_requested_by_any.any():
        return
    features, computed = session.embed(
        part[is_requested_by_any], pixels if is_requested_by_any.all() else pixels[is_requested_by_any], meter=meter
    )
    # The first question that asks for a frame pays for it, so that forwards add up.
    first = is_requested.argmax(axis=0)
    for at, (request, mask) in enumerate(zip(requests, is_requested[:, is_requested_by_any], strict=True)):
        request.forwards += int((computed & (first[is_requested_by_any] == at)).sum())
        if mask.any():
            rows = features if mask.all() else features[np.flatnonzero(mask)]
            _deliver_features(request, part[is_requested_by_any][mask], rows)
