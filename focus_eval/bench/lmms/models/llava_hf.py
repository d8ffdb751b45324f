"""Shows the chosen frames to LLaVA-OneVision (transformers' own class)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from lmms_eval.models.simple.llava_hf import LlavaHf

from focus_eval.bench.answering.frames import PathWithFrames
from focus_eval.bench.answering.questions import FramedQuestion
from focus_eval.bench.answering.tracing import GenerateInputs, GenerateTrace
from focus_eval.bench.lmms.adapter import FrameAdapter
from focus_eval.bench.lmms.patches import rank_and_world
from focus_eval.core.errors import AnswerError, InvalidInput
from focus_eval.core.types import Pixels
from focus_eval.keyframes.subtitles.prompts import PICTURE

if TYPE_CHECKING:
    from transformers import BatchFeature
    from typing_extensions import Self, Unpack

    from focus_eval.bench.answering.processors import Processor, ProcessorInputs


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
    interleaves: ClassVar[bool] = True

    def defaults(self, wrapper_arguments: dict[str, object]) -> None:
        """Set checkpoint and device map: the stock defaults are another model and the map "", which is refused."""
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

    def load_video(self, video_path: object, max_frames_num: int) -> Pixels:
        """Return the frames `(n, height, width, 3)` that the path carries; the stock wrapper reads other paths."""
        path = video_path[0] if isinstance(video_path, list) else video_path
        return (
            path.frame_batch.take()
            if isinstance(path, PathWithFrames)
            else super().load_video(video_path, max_frames_num)
        )

    def trace_model(self, view: Self, batch: Sequence[FramedQuestion], trace: GenerateTrace) -> None:
        """Trace the model as every adapter does, and let the processor of `view` take pictures as one question's."""
        super().trace_model(view, batch, trace)
        view._image_processor = PicturesProcessor(view._image_processor, context_tokens=self._context_tokens)

    @property
    def _context_tokens(self) -> int:
        text_config = getattr(self._config, "text_config", None)
        return int((self._config if text_config is None else text_config).max_position_embeddings)

    def frames_reaching(self, inputs: GenerateInputs) -> list[int] | None:
        """Return a list of one number: the frames of the one video, or the pictures between lines of text."""
        pixels, sizes = inputs.get("pixel_values_videos"), inputs.get("image_sizes")
        if pixels is not None:
            return [int(pixels.shape[1])]
        return [0 if sizes is None else len(sizes)]


class PicturesProcessor:
    """Wraps a processor so that it takes a list of pictures as those of one question; all else is the processor's.

    The stock wrapper passes a flat list, which the processor takes as separate pictures and cuts into up to ten tiles
    each. Passed as the pictures of one question they have one tile each, as in the model's training.

    Args:
        context_tokens: largest number of tokens in a prompt.
    """

    def __init__(self, processor: Processor, *, context_tokens: int) -> None:
        self._processor = processor
        self._context_tokens = context_tokens

    def __getattr__(self, name: str) -> object:
        """Return the processor's attribute."""
        return getattr(self._processor, name)

    def __call__(self, **inputs: Unpack[ProcessorInputs]) -> BatchFeature:
        """Process `inputs`.

        Raises:
            AnswerError: the text has not one place per picture, or text and pictures exceed the context.
        """
        pictures = inputs.get("images")
        if not pictures:
            return self._processor(**inputs)
        n_places = inputs["text"].count(PICTURE)
        if n_places != len(pictures):
            raise AnswerError(f"{n_places} {PICTURE} in the text for {len(pictures)} pictures; subtitle_layout=block")
        processed = self._processor(**{**inputs, "images": [pictures]})
        n_tokens = int(processed["input_ids"].shape[-1])
        if n_tokens > self._context_tokens:
            raise AnswerError(
                f"{n_tokens:,} tokens of {len(pictures)} pictures and text, the context has {self._context_tokens:,}; "
                "say subtitle_layout=block, or show fewer frames"
            )
        return processed
