"""Exact access to the frames of a video by index: the contract of a reader, and the bases of those that read files."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from threading import Lock, RLock
from types import TracebackType
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from focus_eval.core.errors import DamagedFrame, VideoError
from focus_eval.core.types import FloatArray, IntArray, Pixels, VideoInfo
from focus_eval.keyframes.video.colour import Appearance
from focus_eval.keyframes.video.decoder import Decoder
from focus_eval.keyframes.video.manifest import FileState, checked_file, file_state, verdict_on
from focus_eval.keyframes.video.scan import Scan, scan_video

ReaderT = TypeVar("ReaderT", bound="VideoReader")


class VideoReader(ABC):
    """Exact access to frames by index: frame `i` is the i-th frame in presentation order, rotation applied.

    Opening reads the container's index and decodes as little as possible. Every failure is a `VideoError` whose message
    starts with the path. Memory does not grow with the length of the video.

    Attributes:
        appearance: how the file's pixels are to be shown.
        shows_stored: True if pixels are given as they are stored, False if as a screen shows them.
        on_exit: called when a `with` block of the reader has closed it.
    """

    path: Path
    info: VideoInfo
    width: int
    height: int
    appearance: Appearance = Appearance()
    shows_stored: bool = True
    on_exit: Callable[[], None] = staticmethod(lambda: None)

    @abstractmethod
    def stream(self, frames: ArrayLike) -> Iterator[tuple[int, Pixels]]:
        """Yield `(frame, pixels (height, width, 3) RGB)` once per distinct frame, ascending, decoding forward once."""

    def frame_times(self, frames: ArrayLike) -> FloatArray:
        """Return presentation times in seconds since the first frame, shape `(n,)`."""
        times: FloatArray = self._checked(frames) / self.info.fps
        return times

    def read(self, frames: ArrayLike) -> Pixels:
        """Return RGB uint8 `(n, height, width, 3)` of `frames`, in their order; repeats are allowed."""
        numbers = self._checked(frames)
        pixels = np.empty((numbers.size, self.height, self.width, 3), dtype=np.uint8)
        for number, picture in self.stream(numbers):
            pixels[numbers == number] = picture
        return pixels

    @property
    def decoder_version(self) -> str:
        """Decoder and version on which pixels may depend, used in keys of stores; "" if unknown."""
        return ""

    @property
    def reference_frames(self) -> IntArray | None:
        """Frames to which other frames may refer, ascending; all if packets do not show it, None without an index."""
        return None

    def damaged_frames(self, *, progress: Callable[[int], None] = lambda n_frames: None) -> IntArray:
        """Return the frames that cannot be decoded, ascending: decodes the whole video.

        Args:
            progress: called with the number of frames tried since its last call; an exception that it raises ends the
                pass.
        """
        damaged = []
        for frame in range(self.info.n_frames):
            try:
                next(self.stream(np.array([frame])))
            except DamagedFrame:
                damaged.append(frame)
            progress(1)
        return np.array(damaged, dtype=np.int64)

    def close(self) -> None:  # noqa: B027 (a reader that keeps no file open has nothing to release)
        """Release the file and its threads."""

    def _checked(self, frames: ArrayLike) -> IntArray:
        """`frames` as int64 `(n,)`; raises VideoError for an index outside the video, or not a whole number."""
        array = np.asarray(frames)
        if array.size == 0:
            return np.zeros(0, dtype=np.int64)
        if array.dtype.kind not in "iu" or array.ndim != 1:
            raise VideoError(
                f"{self.path}: frame indices must be a 1-D array of integers, got {array.dtype} of shape {array.shape}"
            )
        n_frames = self.info.n_frames
        outside = array[(array < 0) | (array >= n_frames)]
        if outside.size:
            raise VideoError(f"{self.path}: frame {outside[0]} asked, video has {n_frames} (0 to {n_frames - 1})")
        return array.astype(np.int64)

    def __enter__(self: ReaderT) -> ReaderT:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the reader."""
        self.close()
        self.on_exit()


_reference_lock = Lock()


@lru_cache(maxsize=64)
def _reference_frames(path: Path, state: FileState) -> IntArray | None:
    """The frames to which other frames may refer, ascending; None if the file has no frame index."""
    index = scan_video(path).index
    if index is None:
        return None
    decoder = Decoder(path, state=state)
    try:
        return np.flatnonzero(decoder.are_references()[index.frame_packet])
    finally:
        decoder.close()


class ScannedReader(VideoReader):
    """Base of the readers of files; see `VideoReader` for the contract.

    Length, rate and sync frames come from one scan for all backends, so that a selection does not depend on the
    backend.

    Class attributes:
        name: the registered name.
        gives_exact_pixels: True if every file it opens gives the same pixels as the default reader.
        package: the distribution that decodes; `focus-eval doctor` shows its version.
        extra: the extra of this package that installs what the reader imports.

    Attributes:
        notes: harmless peculiarities of the file, one sentence each.
    """

    name: ClassVar[str]
    gives_exact_pixels: ClassVar[bool] = False
    package: ClassVar[str] = ""
    extra: ClassVar[str] = ""

    def __init__(self, path: str | Path, *, scan: Scan | None = None) -> None:
        """Scan the file, unless `scan` is given; raise VideoError if it is damaged."""
        self.path = Path(path)
        self._lock = RLock()
        self._state = file_state(checked_file(self.path))
        self._scan = scan or scan_video(self.path)
        self.info = self._scan.info
        self.width, self.height = self._scan.size
        self.notes = self._scan.notes
        self.appearance = self._scan.appearance
        self._verdict = None if scan else verdict_on(self.path)

    @property
    def reference_frames(self) -> IntArray | None:
        """As in `VideoReader`."""
        # Computed on demand, since this takes as long as opening the file.
        with _reference_lock:
            return _reference_frames(self.path, self._state)

    def frame_times(self, frames: ArrayLike) -> FloatArray:
        """Return times in seconds since the first frame, shape `(n,)`; `frames / fps` if the file states no times."""
        return self._scan.frame_times(self._checked(frames))

    def read(self, frames: ArrayLike) -> Pixels:
        """As `VideoReader.read`; concurrent calls run one after the other."""
        with self._lock:
            return super().read(frames)

    def _readable(self, frames: ArrayLike) -> IntArray:
        """The distinct frames, ascending; raises VideoError if the file's verdict lists one as damaged."""
        distinct = np.unique(self._checked(frames))
        damaged = self._verdict.refused_among(distinct) if self._verdict is not None else distinct[:0]
        if damaged.size:
            raise DamagedFrame(
                f"{self.path}: frame {damaged[0]} asked, but it cannot be decoded: the file is damaged, by its "
                "verdict of `videos verify`; download it again"
            )
        return distinct


class ByIndexReader(ScannedReader):
    """Reads a video by frame index through another library; see `VideoReader` for the contract.

    A file is refused if the library counts another number of frames than the scan, or if the picture is mirrored.

    Raises:
        VideoError: as `open_video`; also if the library cannot open the file or counts other frames.
    """

    library: ClassVar[str]
    # What the library raises for a file or a frame that it cannot read.
    failures: ClassVar[tuple[type[Exception], ...]]

    def __init__(self, path: str | Path, *, n_threads: int | None = None) -> None:
        """Open the file with the library; raise VideoError if that fails or the numbers of frames differ."""
        super().__init__(path)
        if self._scan.orientation.is_mirrored:
            # torchcodec and decord only turn the picture by its matrix's angle: it would stay mirrored.
            raise VideoError(f"{self.path}: mirrored, which {self.library} takes for a turn; use backend pyav")
        try:
            self._video: Any = self._open(n_threads)
            n_counted = len(self._video)
        except self.failures as error:
            reason = self._reason(error)
            raise VideoError(f"{self.path}: {self.library} cannot open it ({reason}); use backend pyav") from error
        if n_counted != self.info.n_frames:
            raise VideoError(
                f"{self.path}: {self.library} counts {n_counted} frames, the file has {self.info.n_frames}; "
                "use backend pyav"
            )

    @abstractmethod
    def _open(self, n_threads: int | None) -> Any:
        """Open `self.path` with the library; the result's `len` is the number of frames."""

    @abstractmethod
    def _decoded(self, number: int) -> Pixels:
        """Frame `number` as RGB uint8 `(height, width, 3)`."""

    def _reason(self, error: BaseException) -> str:
        """An error's message on one line, cut to 200 characters."""
        return " ".join(str(error).split())[:200]

    def stream(self, frames: ArrayLike) -> Iterator[tuple[int, Pixels]]:
        """Yield `(frame, pixels (height, width, 3) RGB)` once per distinct frame, ascending."""
        numbers = self._readable(frames).tolist()
        # Not a generator, which only one thread may run at a time.
        return zip(numbers, map(self._frame, numbers), strict=True)

    def _frame(self, number: int) -> Pixels:
        """Decode frame `number`; raise VideoError if it fails, has another size, or the reader is closed."""
        with self._lock:
            if self._video is None:
                raise VideoError(f"{self.path}: this reader is closed; open the file again")
            try:
                pixels = self._decoded(number)
            except self.failures as error:
                reason = self._reason(error)
                raise DamagedFrame(f"{self.path}: {self.library} cannot decode frame {number} ({reason})") from error
        if pixels.shape != (self.height, self.width, 3):
            raise VideoError(f"{self.path}: {self.library} gives frame {number} as {pixels.shape}; use backend pyav")
        return pixels

    def close(self) -> None:
        """Release the file and the library's threads."""
        self._video = None
