"""Chooses keyframes of many videos with one selector; searches of one video share its decoded and encoded frames.

with SearchPool(selector, workers=2) as pool:
    pool.run(searches, take=lambda search, result: print(search.name, result))
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np

from focus_eval.core.errors import FocusEvalError, InvalidInput, RunError
from focus_eval.core.types import IntArray, Pixels, Question
from focus_eval.keyframes.pipeline.rendezvous_batcher import RendezvousBatcher
from focus_eval.keyframes.pipeline.selector import QuestionRequest, Selector, choose_on_video
from focus_eval.keyframes.pipeline.source import OpenVideo
from focus_eval.keyframes.pipeline.stretch import Stretch
from focus_eval.keyframes.select import QUERIES_AT_ONCE
from focus_eval.keyframes.selection import VideoSelection, naming_skip_damaged, selection_of
from focus_eval.keyframes.video import displayed, open_source
from focus_eval.keyframes.video.feed import DecodeProcesses
from focus_eval.keyframes.video.verification import is_video_name
from focus_eval.keyframes.warnings import check_query, selection_warning

if TYPE_CHECKING:
    from focus_eval.keyframes.video.reader import VideoReader

# Limit in bytes of the keyframes of a video that are held in memory at full size.
MAX_PICTURE_BYTES = 256 << 20


@dataclass(frozen=True, kw_only=True)
class Search:
    """What to look for in one video.

    Args:
        name: unique among the searches.
        path: a video file, or a folder of pictures.
        question: has the query.
        stretch: the part of the video to choose from; None for all of it.
    """

    name: str
    path: Path
    question: Question
    stretch: Stretch | None = None


Result = VideoSelection | Exception


class SearchPool:
    """Runs searches, a few videos at once.

    Args:
        selector: chooses the frames of every search; its encoders are loaded once.
        workers: number of videos at once. If it is above one, each video is decoded in a process of its own, so that a
            file that crashes its process fails alone.
        fps: frame rate of folders of pictures.
    """

    def __init__(self, selector: Selector, *, workers: int = 1, fps: float | None = None) -> None:
        self._selector = selector
        self._workers = workers
        self._fps = fps
        self._processes = DecodeProcesses(workers if workers > 1 else 0)
        self._lock = threading.Lock()
        self._underway: set[RendezvousBatcher] = set()
        self._stopped_by: BaseException | None = None

    def run(self, searches: Iterable[Search], take: Callable[[Search, Result], None]) -> None:
        """Hand each search and its selection, or its error, to `take`, video after video.

        Within `take` the pictures of a selection can be read without decoding. Several threads may call `take` at once.
        An error that `take` raises ends all searches.
        """
        jobs = list(_jobs(searches))
        if self._workers == 1:
            for job in jobs:
                self._run_job(job, take)
            return
        with ThreadPoolExecutor(self._workers, thread_name_prefix="video") as pool:
            try:
                ended, _ = wait([pool.submit(self._run_job, job, take) for job in jobs], return_when=FIRST_EXCEPTION)
                for future in ended:
                    future.result()
            except BaseException as error:  # an interrupt reaches only this thread: it must stop the others
                pool.shutdown(wait=False, cancel_futures=True)
                self._processes.close()
                self._stopped_by = error
                for batcher in list(self._underway):  # a stopped video ends at its next batch
                    batcher.stop(error)
                raise

    def opener(self, path: Path) -> Callable[[], VideoReader]:
        """Return a function that opens a video in this process."""
        selector = self._selector
        return lambda: open_source(path, fps=self._fps, backend=selector.backend, kept=selector.store)

    def __enter__(self) -> SearchPool:
        """Return the pool."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the decoding processes."""
        self._processes.close()

    def _run_job(self, job: Sequence[Search], take: Callable[[Search, Result], None]) -> None:
        path, store, backend = job[0].path, self._selector.store, self._selector.backend
        is_fed = self._processes.n_processes and path.is_file() and is_video_name(path) and self._fps is None
        try:
            if is_fed:
                opened = self._processes.open_video(path, backend=displayed(backend), n_threads=1, kept=store)
            else:
                opened = open_source(path, fps=self._fps, backend=backend, kept=store)
        except RunError:
            raise
        except Exception as error:  # noqa: BLE001 (handed over: one video never ends all)
            self._hand_over([(search, error) for search in job], take)
            return
        with opened as reader:
            results = self._choose(reader, job)
            for part in _with_few_pictures(results, reader):
                self._hand_over(_with_pictures(part, reader), take)

    def _hand_over(self, results: Iterable[tuple[Search, Result]], take: Callable[[Search, Result], None]) -> None:
        for search, result in results:
            if self._stopped_by is not None:
                raise RunError("stopped") from self._stopped_by
            take(search, result)

    def _choose(self, reader: VideoReader, job: Sequence[Search]) -> list[tuple[Search, Result]]:
        """The selection of each search, or its error."""
        requests: dict[str, QuestionRequest] = {}
        results: dict[str, Result] = {}
        for search in job:
            try:
                requests[search.name] = self._request(reader, search)
            except FocusEvalError as error:
                results[search.name] = error
        batcher = RendezvousBatcher(reader)
        with self._lock:
            self._underway.add(batcher)
        try:
            outcomes = choose_on_video(reader, [*requests.values()], batcher=batcher)
        finally:
            with self._lock:
                self._underway.discard(batcher)
        for (name, request), outcome in zip(requests.items(), outcomes, strict=True):
            try:
                with naming_skip_damaged():
                    row = outcome.selected_row()
            except Exception as error:  # noqa: BLE001 (handed over: one row never ends all)
                results[name] = error
                continue
            results[name] = selection_of(
                row,
                sampler_version=request.selector.sampler.version,
                reopen=self.opener(job[0].path),
                warning=selection_warning(row, encoder=request.selector.encoder, reader=reader),
            )
        return [(search, results[search.name]) for search in job]

    def _request(self, reader: VideoReader, search: Search) -> QuestionRequest:
        selector = self._selector if search.stretch is None else self._selector.within(search.stretch)
        if (
            reason := selector.sampler.infeasible_reason(selector.info_of(OpenVideo(reader=reader)), k=selector.k)
        ) is not None:
            raise InvalidInput(f"{reader.path}: {selector.sampler.name} would choose no frame: {reason}")
        check_query(search.question.query, selector.encoder)
        return QuestionRequest(selector=selector, question=search.question)


def _jobs(searches: Iterable[Search]) -> Iterator[list[Search]]:
    """The searches grouped by video, at most `QUERIES_AT_ONCE` in a group, in the order of each video's first one."""
    by_path: dict[Path, list[Search]] = {}
    for search in searches:
        by_path.setdefault(search.path, []).append(search)
    for job in by_path.values():
        for start in range(0, len(job), QUERIES_AT_ONCE):
            yield job[start : start + QUERIES_AT_ONCE]


def _with_few_pictures(
    results: Sequence[tuple[Search, Result]], reader: VideoReader
) -> Iterator[list[tuple[Search, Result]]]:
    """The results in parts whose distinct keyframes fit into `MAX_PICTURE_BYTES`; each part has at least one result."""
    n_at_once = MAX_PICTURE_BYTES // (reader.width * reader.height * 3)
    part: list[tuple[Search, Result]] = []
    frames: set[int] = set()
    for search, result in results:
        own_frames = {*result.keyframes} if isinstance(result, VideoSelection) else set()
        if part and len(frames | own_frames) > n_at_once:
            yield part
            part, frames = [], set()
        part.append((search, result))
        frames |= own_frames
    yield part


def _with_pictures(part: Sequence[tuple[Search, Result]], reader: VideoReader) -> list[tuple[Search, Result]]:
    """The results of a part with their pictures, read in one pass; if reading fails, each result is that error."""
    selections = [result for _, result in part if isinstance(result, VideoSelection)]
    frames = sorted({frame for selection in selections for frame in selection.keyframes})
    try:
        with naming_skip_damaged():
            pictures = _ReadPictures(dict(reader.stream(np.asarray(frames, dtype=np.int64))))
    except FocusEvalError as error:
        if isinstance(error, RunError):
            raise
        return [(search, error if isinstance(result, VideoSelection) else result) for search, result in part]
    return [
        (search, replace(result, reopen=lambda: cast("VideoReader", pictures)))
        if isinstance(result, VideoSelection)
        else (search, result)
        for search, result in part
    ]


class _ReadPictures:
    """Pictures in memory, with the method of `VideoReader` by which a selection reads its pictures."""

    def __init__(self, pixels_by_frame: dict[int, Pixels]) -> None:
        self._pixels_by_frame = pixels_by_frame

    def stream(self, frames: IntArray) -> Iterator[tuple[int, Pixels]]:
        """Yield `(frame, pixels)` once per distinct frame, ascending."""
        for frame in sorted({*frames.tolist()}):
            yield frame, self._pixels_by_frame[frame]

    def __enter__(self) -> _ReadPictures:
        return self

    def __exit__(self, *_: object) -> None:
        pass
