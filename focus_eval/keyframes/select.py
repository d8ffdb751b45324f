"""`select_keyframes`: keyframes of any video for a query.

    selection = select_keyframes("clip.mp4", query="a red car", k=8)
    selection.save_sheet("sheet.png")

Queries given as a list share the decoded and encoded frames of the video. `KeyframeSelector` keeps encoders and models
loaded from one video to the next.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, TypedDict, overload

from focus_eval.core.errors import InvalidInput, VideoError
from focus_eval.core.types import Pixels
from focus_eval.keyframes.encoders.base import Encoder
from focus_eval.keyframes.pipeline.relevance import Progress
from focus_eval.keyframes.pipeline.selector import QuestionRequest, Selector, choose_on_video
from focus_eval.keyframes.pipeline.source import OpenVideo
from focus_eval.keyframes.pipeline.stretch import Stretch
from focus_eval.keyframes.samplers.base import FrameSampler
from focus_eval.keyframes.selection import (
    NO_QUERY,
    VideoSelection,
    naming_skip_damaged,
    query_question,
    selection_of,
)
from focus_eval.keyframes.settings import Budget, make_selector, sampler_for
from focus_eval.keyframes.video import Video, open_source
from focus_eval.keyframes.video.manifest import FileState, file_state
from focus_eval.keyframes.video.pictures import PictureReader
from focus_eval.keyframes.video.reader import VideoReader
from focus_eval.keyframes.warnings import check_query, selection_warning

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from focus_eval.keyframes.encoders.store import RelevanceStore
    from focus_eval.keyframes.encoders.weights import Checkpoint

Videos: TypeAlias = "list[str] | list[Path] | list[Pixels] | list[Video]"
Queries: TypeAlias = "list[str] | tuple[str, ...]"

# Limit on the queries of one video that are served at once; each of them has a thread.
QUERIES_AT_ONCE = 64

log = logging.getLogger("focus_eval")


class SelectOptions(TypedDict, total=False):
    """Types of the options of `select_keyframes`, which are fields of `KeyframeSelector`."""

    k: int
    sampler: str | FrameSampler | None
    sampler_options: Mapping[str, object] | None
    encoder: str | Encoder | None
    encoder_options: Mapping[str, object] | None
    seed: int
    store: RelevanceStore | str | Path | None
    backend: str
    share: float | None
    seconds: float | None
    fps: float | None
    start_seconds: float
    end_seconds: float | None
    skip_damaged: bool


@overload
def select_keyframes(
    video: Video, *, query: str | None = None, progress: Progress | None = None, **options: Unpack[SelectOptions]
) -> VideoSelection: ...
@overload
def select_keyframes(
    video: Video, *, query: Queries, progress: Progress | None = None, **options: Unpack[SelectOptions]
) -> list[VideoSelection]: ...
@overload
def select_keyframes(
    video: Videos, *, query: str | None = None, progress: Progress | None = None, **options: Unpack[SelectOptions]
) -> list[VideoSelection]: ...
@overload
def select_keyframes(
    video: Videos, *, query: Queries, progress: Progress | None = None, **options: Unpack[SelectOptions]
) -> list[list[VideoSelection]]: ...
def select_keyframes(
    video: Video | Videos,
    *,
    query: str | Queries | None = None,
    progress: Progress | None = None,
    **options: Unpack[SelectOptions],
) -> VideoSelection | list[VideoSelection] | list[list[VideoSelection]]:
    """Return the `VideoSelection` of `k` keyframes of `video` for `query`; lists give lists, by video, then by query.

    >>> select_keyframes("talk.mp4", query="a slide with a chart", k=4, sampler="uniform").keyframes
    (0, 26, 52, 79)

    Args:
        video: a file, a folder of pictures, RGB uint8 `(n, height, width, 3)`, or a list of these.
        query: the text to look for, or a list; the queries of one video share its decoded and encoded frames. None for
            a summary: by default `uniform`, even in time, without a picture twice.
        progress: callback that is called as frames are scored.
        options: those of `KeyframeSelector`: `k` (8), `sampler`, `sampler_options`, `encoder`, `encoder_options`,
            `seed`, `store`, `backend`, `share`, `seconds`, `fps`, `start_seconds`, `end_seconds`, `skip_damaged`.

    Raises:
        FocusEvalError: the video, an option or the encoder's output is invalid; the message has the remedy.
    """
    selector = KeyframeSelector(**options)
    selector.load(has_query=query is not None)
    if not isinstance(video, list):
        return selector.select(video, query, progress=progress)
    if query is None or isinstance(query, str):
        return [selector.select(item, query, progress=progress) for item in video]
    return [selector.select(item, query, progress=progress) for item in video]


# Held while encoders load, so that threads which share a selector load its encoders only once.
_LOADING = threading.Lock()


@dataclass(frozen=True, kw_only=True, eq=False)
class KeyframeSelector:
    """Chooses keyframes of one video after another; its encoders and its model are loaded once.

    >>> selector = KeyframeSelector(k=2, sampler="uniform")
    >>> [selector.select("talk.mp4", query).keyframes for query in ("a chart", "people")]
    [(0, 79), (0, 79)]

    Args:
        k: number of keyframes; a video with fewer frames gives all of them.
        sampler: a name, with or without options ("focus:alpha=0.1"), or a sampler object. By default `even_cover` with
            600 scored frames. A sampler given by name shows no picture twice while others are relevant (`distinct`).
        sampler_options, encoder_options: by name, in addition to those in the text.
        encoder: a name or a made encoder. By default the best image-text encoder whose weights are here; else, with
            `FOCUS_EVAL_DOWNLOAD=1` set, a downloaded one; else `offline`. A sampler that never pulls loads none.
        seed: seed of all random choices.
        store: file that keeps embeddings for the next call.
        backend: video reader.
        share: share of the video's frames to score.
        seconds: score as many frames as take about this many seconds on this machine, estimated by timing a few.
        fps: frame rate of a folder of pictures or an array, which do not state it.
        start_seconds, end_seconds: choose from frames with start <= time < end (None: to the end of the video). Frames
            and times in the result are those of the whole video.
        skip_damaged: True: if frames of a video cannot be decoded, choose from the others, as if the damaged frames had
            been cut out. `selection.warning` says so, and `selection.facts["damaged_frames"]` holds the number of
            damaged frames and of all frames. False: the first needed frame that cannot be decoded raises its error.
        may_download: see `default_encoder`; by default the environment decides.

    Raises:
        InvalidInput: a budget or a stretch that is out of range.
    """

    k: int = 8
    sampler: str | FrameSampler | None = None
    sampler_options: Mapping[str, object] | None = None
    encoder: str | Encoder | None = None
    encoder_options: Mapping[str, object] | None = None
    seed: int = 0
    store: RelevanceStore | str | Path | None = None
    backend: str = "pyav"
    share: float | None = None
    seconds: float | None = None
    fps: float | None = None
    start_seconds: float = 0.0
    end_seconds: float | None = None
    skip_damaged: bool = False
    may_download: Callable[[Checkpoint], bool] | None = None

    _budget: Budget = field(init=False, repr=False)
    _stretch: Stretch | None = field(init=False, repr=False, default=None)
    # Selectors by whether there is a query, since the default sampler depends on that; a named sampler has one
    # selector.
    _selectors: dict[bool, Selector] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        """Check the budget and the stretch."""
        object.__setattr__(self, "_budget", Budget(share=self.share, seconds=self.seconds))
        if self.start_seconds != 0 or self.end_seconds is not None:
            stretch = Stretch(start_seconds=self.start_seconds, end_seconds=self.end_seconds)
            object.__setattr__(self, "_stretch", stretch)

    def load(self, *, has_query: bool = True) -> Selector:
        """Return the `Selector` that does the work; the first call loads its encoders and its model.

        Raises:
            FocusEvalError: an option is invalid, or a sampler that compares frames with a query has none.
        """
        sampler = sampler_for(self.sampler, has_query=has_query)
        key = has_query or self.sampler is not None
        with _LOADING:
            if key not in self._selectors:
                self._selectors[key] = make_selector(
                    sampler,
                    self.sampler_options or {},
                    self.encoder,
                    self.encoder_options or {},
                    self._budget,
                    k=self.k,
                    seed=self.seed,
                    store=self.store,
                    backend=self.backend,
                    stretch=self._stretch,
                    skip_damaged=self.skip_damaged,
                    may_download=self.may_download,
                )
            return self._selectors[key]

    def __getstate__(self) -> dict[str, object]:
        """Return the settings only: another process, such as a DataLoader's worker, loads its own encoders."""
        return {**vars(self), "_selectors": {}}

    @overload
    def select(self, video: Video, query: str | None = None, *, progress: Progress | None = None) -> VideoSelection: ...
    @overload
    def select(self, video: Video, query: Queries, *, progress: Progress | None = None) -> list[VideoSelection]: ...
    def select(
        self, video: Video, query: str | Queries | None = None, *, progress: Progress | None = None
    ) -> VideoSelection | list[VideoSelection]:
        """Return the keyframes of one video for `query`; for a list of queries, return a list of selections.

        Queries share the decoded and encoded frames of the video. The arguments and errors are those of
        `select_keyframes`.
        """
        if progress is not None and not isinstance(progress, Progress):
            raise InvalidInput(f"progress must have the methods expect and advance, got {progress!r}")
        if query is None or isinstance(query, str):
            (selection,) = self._select_all(video, [query], progress)
            return selection
        if not isinstance(query, (list, tuple)):
            raise InvalidInput(f"query must be text or a list of texts, got {query!r}")
        return self._select_all(video, query, progress)

    def _select_all(
        self, video: Video, queries: Sequence[str | None], progress: Progress | None
    ) -> list[VideoSelection]:
        loaded = self.load(has_query=None not in queries)
        reopen: Callable[[], VideoReader] = partial(
            open_source, video, fps=self.fps, backend=self.backend, kept=loaded.store
        )
        with reopen() as reader:
            if not isinstance(reader, PictureReader) and reader.path.is_file():
                reopen = partial(_open_same, reopen, file_state(reader.path))
            selector = self._budget.apply_to(loaded, reader)
            if isinstance(reader, PictureReader) and selector.store is not None:
                raise InvalidInput(
                    f"{reader.path}: a store keeps what is known of video files, not of pictures; leave it out"
                )
            info = selector.info_of(OpenVideo(reader=reader))
            if (reason := selector.sampler.infeasible_reason(info, k=selector.k)) is not None:
                raise InvalidInput(f"{reader.path}: {selector.sampler.name} would choose no frame: {reason}")
            questions = [query_question(reader.path, NO_QUERY if query is None else query) for query in queries]
            for question in questions:
                check_query(question.query, selector.encoder)
            requests = [QuestionRequest(selector=selector, question=question) for question in questions]
            if progress is not None:
                progress.expect(len(requests) * selector.expected_pulls(info, n_frames=reader.info.n_frames))
            on_pulls = progress.advance if progress is not None else None
            outcomes = choose_on_video(reader, requests, on_pulls=on_pulls, at_once=QUERIES_AT_ONCE)
        selections = []
        for outcome in outcomes:
            with naming_skip_damaged():
                row = outcome.selected_row()
            log.info("%s: %s chose %d keyframes for %r", row.video, row.sampler, len(row.keyframes or ()), row.query)
            selections.append(
                selection_of(
                    row,
                    sampler_version=selector.sampler.version,
                    reopen=reopen,
                    warning=selection_warning(row, encoder=selector.encoder, reader=reader),
                )
            )
        return selections


def _open_same(reopen: Callable[[], VideoReader], state: FileState) -> VideoReader:
    """Open a video again; raise VideoError if the file was changed or replaced."""
    reader = reopen()
    if file_state(reader.path) != state:
        reader.close()
        raise VideoError(f"{reader.path}: replaced or changed after its keyframes were chosen; select again")
    return reader
