"""Shows the chosen frames to LLaVA-OneVision (transformers' own class)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from lmms_eval.models.simple.llava_hf import LlavaHf

from focus_eval.bench.answering.frames import PathWithFrames
from focus_eval.bench.lmms.adapter import FrameAdapter
from focus_eval.bench.lmms.patches import rank_and_world
from focus_eval.core.errors import InvalidInput
from focus_eval.core.types import Pixels


class FocusLlavaOnevision(FrameAdapter, LlavaHf):  # type: ignore[misc]
    """LLaVA-OneVision on lmms-eval's `llava_hf`.

    Its chat variant is not offered: the stock one cannot answer a question about a video.
    """

    model_id: ClassVar[str] = "focus_llava_onevision"
    stock_name: ClassVar[str] = "llava_hf"
    checkpoint_types: ClassVar[tuple[str, ...]] = ("llava_onevision",)
    frames_argument: ClassVar[str] = "max_frames_num"
    largest_batch: ClassVar[int | None] = 1
    prepares_ahead: ClassVar[bool] = True

    def defaults(self, wrapper_arguments: dict[str, Any]) -> None:
        """Name checkpoint and device map: by default the stock ones are another model and "", which is refused."""
        wrapper_arguments.setdefault("pretrained", "llava-hf/llava-onevision-qwen2-7b-ov-hf")
        device = wrapper_arguments.setdefault("device", "cuda")
        # With several ranks the wrapper places each process itself, but only without a device map.
        if device == "cpu" or rank_and_world()[1] == 1:
            wrapper_arguments.setdefault("device_map", device)

    def check_loaded(self) -> None:
        """Raise InvalidInput if the tokenizer has no chat template."""
        # The stock wrapper would silently use Vicuna's template, which the checkpoint was not trained with.
        if getattr(self.tokenizer, "chat_template", None) is None and getattr(self, "chat_template", None) is None:
            checkpoint = self._wrapper_arguments["pretrained"]
            raise InvalidInput(f"{checkpoint}: the tokenizer has no chat template; add the checkpoint's to its files")

    def load_video(self, video_path: Any, max_frames_num: int) -> Pixels:
        """Return the frames `(n, height, width, 3)` that the path carries; the stock wrapper reads others."""
        path = video_path[0] if isinstance(video_path, list) else video_path
        return (
            path.frame_batch.take()
            if isinstance(path, PathWithFrames)
            else super().load_video(video_path, max_frames_num)
        )

    def frames_reaching(self, inputs: Mapping[str, Any]) -> list[int] | None:
        """Return the number of frames of the one video, as a list of one."""
        pixels = inputs.get("pixel_values_videos")
        return [0] if pixels is None else [int(pixels.shape[1])]
