"""How do the original LLaVA-Video and LLaVA-OneVision (the `llava` package) get the chosen frames?

The package is not on the package index and does not run on current transformers; who has an environment with it can
use these. `focus_llava_video` and `focus_llava_onevision` need nothing but transformers.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping
from typing import Any, ClassVar

from lmms_eval.api.model import lmms

from focus_eval.errors import InvalidInput, MissingDependency
from focus_eval.lmms.frame_batch import FedVideo, Feed
from focus_eval.lmms.seam import FrameSeam
from focus_eval.video.reader import Pixels


class _NoWrapper(lmms):  # type: ignore[misc]
    """Stands where a wrapper would be that cannot be imported without `llava`."""

    def loglikelihood(self, requests: Any) -> Any:
        raise NotImplementedError

    def generate_until(self, requests: Any) -> Any:
        raise NotImplementedError

    def generate_until_multi_round(self, requests: Any) -> Any:
        raise NotImplementedError


def _wrapper(module: str, name: str) -> type[lmms]:
    if importlib.util.find_spec("llava") is None:
        return _NoWrapper
    wrapper: type[lmms] = getattr(importlib.import_module(module), name)
    return wrapper


_LlavaVid = _wrapper("lmms_eval.models.simple.llava_vid", "LlavaVid")
_LlavaOnevision = _wrapper("lmms_eval.models.simple.llava_onevision", "Llava_OneVision")


class FedPaths(list):  # type: ignore[type-arg]
    """A list with a video's plain path that carries the frames to show: this wrapper asks for the exact type `str`."""

    def __init__(self, feed: Feed) -> None:
        super().__init__([str(feed.path)])
        self.feed = feed


class LlavaOriginalSeam(FrameSeam):
    """The seam of the wrappers that need `llava`."""

    frames_argument: ClassVar[str] = "max_frames_num"
    largest_batch: ClassVar[int | None] = 1
    native_model: ClassVar[str]

    @classmethod
    def check_installed(cls) -> None:
        """Raise `MissingDependency` without `llava`."""
        if issubclass(cls, _NoWrapper):
            raise MissingDependency(
                f"{cls.model_id} needs the llava package: "
                "pip install git+https://github.com/LLaVA-VL/LLaVA-NeXT.git (in an environment of its own, with "
                f"transformers 4.44); {cls.native_model} runs the same checkpoints without it"
            )

    def prepare(self, own: Mapping[str, Any], wrapper_arguments: dict[str, Any]) -> None:
        """Refuse the decoders that read a video past `load_video`."""
        backend = wrapper_arguments.get("video_decode_backend", "decord")
        if backend != "decord":
            raise InvalidInput(f"video_decode_backend={backend} would read other frames; leave it out")

    def frames_reaching(self, inputs: Mapping[str, Any]) -> list[int] | None:
        """Return the frames of the one video."""
        images = inputs.get("images")
        return [len(images[0])] if images else [0]


class FocusLlavaVid(LlavaOriginalSeam, _LlavaVid):  # type: ignore[misc, valid-type]
    """LLaVA-Video by lmms-eval's `llava_vid`.

    With `add_time_instruction` its prompt calls the frames "uniformly sampled" whatever they are; the times it
    states are those of the chosen frames.
    """

    model_id: ClassVar[str] = "focus_llava_vid"
    native_model: ClassVar[str] = "focus_llava_video"

    def load_video(
        self, video_path: Any, max_frames_num: int, fps: int, force_sample: bool = False
    ) -> tuple[Pixels, str, float]:
        """Return frames, their times as text ("1.00s,2.50s") and the length in seconds, as the wrapper's own does."""
        if not isinstance(video_path, FedVideo):
            return super().load_video(video_path, max_frames_num, fps, force_sample)  # type: ignore[no-any-return]
        feed = video_path.feed
        times = ",".join(f"{time:.2f}s" for time in feed.times_seconds)
        return feed.take(), times, feed.n_frames / feed.fps


class FocusLlavaOnevisionOriginal(LlavaOriginalSeam, _LlavaOnevision):  # type: ignore[misc, valid-type]
    """LLaVA-OneVision by lmms-eval's `llava_onevision`."""

    model_id: ClassVar[str] = "focus_llava_onevision_original"
    native_model: ClassVar[str] = "focus_llava_onevision"

    def visuals(self, feed: Feed) -> Any:
        """Return the path in a list that carries the frames."""
        return FedPaths(feed)

    def load_video(self, video_path: Any, max_frames_num: int) -> Pixels:
        """Return the frames `(n, height, width, 3)` that the list carries; other paths are read as always."""
        if isinstance(video_path, FedPaths):
            return video_path.feed.take()
        return super().load_video(video_path, max_frames_num)  # type: ignore[no-any-return]
