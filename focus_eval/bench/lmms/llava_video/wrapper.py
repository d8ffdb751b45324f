"""LLaVA-Video as a model of lmms-eval, with the chosen frames or the original's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, TypedDict, cast

import torch
from accelerate import Accelerator
from lmms_eval import utils as lmms_utils
from lmms_eval.api.model import lmms
from tqdm import tqdm

from focus_eval.bench.answering.frames import FrameBatch, PathWithFrames
from focus_eval.bench.answering.questions import FramedQuestion
from focus_eval.bench.answering.tracing import GenerateTrace
from focus_eval.bench.lmms.adapter import FrameAdapter
from focus_eval.bench.lmms.llava_video import checkpoint
from focus_eval.bench.lmms.llava_video.model import Answer, LlavaVideo, VideoQuestion, original_frames, original_times
from focus_eval.core.errors import InvalidInput
from focus_eval.core.options import read_value
from focus_eval.core.types import VideoInfo, frozen_ints
from focus_eval.keyframes.encoders.preprocess import release_constants, resize_frames
from focus_eval.keyframes.video import open_video

if TYPE_CHECKING:
    from lmms_eval.api.instance import Instance
    from transformers import PreTrainedTokenizerBase
    from typing_extensions import Self, Unpack

    from focus_eval.bench.answering.questions import Document, TaskDocuments


class GenerationOptions(TypedDict, total=False):
    """The keywords of `LlavaVideo.answer`."""

    max_new_tokens: int
    temperature: float
    top_p: float | None
    num_beams: int


class TaskGeneration(TypedDict, total=False):
    """Generation arguments of a task that are read here; tasks have others too."""

    max_new_tokens: int | None
    temperature: float | None
    top_p: float | None
    num_beams: int | None


class LlavaVideoWrapper(lmms):  # type: ignore[misc]
    """LLaVA-Video as a model of lmms-eval; without the adapter it samples frames as lmms-eval's `llava_vid` does.

    Args:
        pretrained: folder of an original checkpoint, or its name in the hub's cache.
        preset: "aks" (checkpoint's pooling, chatml_direct) or "lmms_eval" (average pooling, qwen_1_5).
        pooling, newline, template, time_instruction, times: change the preset; see `Setup`.
        dtype: "bfloat16", "float16" or "float32".
        attn_implementation: "sdpa", "flash_attention_2" or "eager".
        device: of this process; by default its GPU, or the CPU if there is none.
        device_map: "auto" spreads one model over all GPUs (72B).
        batch_size: questions answered at once.
        max_frames_num: most frames per question.
        video_fps, force_sample: of the original's own sampling.

    As in `llava_vid`, an answer ends at the end of the turn or at `max_new_tokens`; a task's `until` is ignored.
    """

    task_dict: TaskDocuments

    def __init__(
        self,
        pretrained: str = checkpoint.HUB_NAME,
        preset: str = "aks",
        pooling: str | None = None,
        newline: str | None = None,
        template: str | None = None,
        time_instruction: str | None = None,
        times: str | None = None,
        dtype: str = "bfloat16",
        attn_implementation: str = "sdpa",
        device: str | None = None,
        device_map: str | None = None,
        batch_size: int | str = 1,
        max_frames_num: int = 64,
        video_fps: float = 1,
        force_sample: bool = False,
    ) -> None:
        """Place the process on its device and load the checkpoint; options are those of the class."""
        super().__init__()
        changes = (pooling, newline, template, time_instruction, times)
        self.setup = checkpoint.make_setup(preset, **dict(zip(checkpoint.SETUP_OPTIONS, changes, strict=True)))
        self.accelerator = Accelerator()
        self._rank, self._world_size = self.accelerator.process_index, self.accelerator.num_processes
        self._device = torch.device(_own_device(self.accelerator, device))
        self.batch_size_per_gpu = int(batch_size)
        self.max_frames_num = int(max_frames_num)
        self.video_fps = float(video_fps)
        self.force_sample = bool(read_value("focus_llava_video", "force_sample", bool, force_sample))
        self._model: LlavaVideo | None = LlavaVideo.load(
            pretrained,
            setup=self.setup,
            dtype=dtype,
            attn_implementation=attn_implementation,
            device_map=device_map or {"": str(self._device)},
        )
        # Ranks only divide the questions and nothing is trained, so accelerate need not wrap the model.

    @property
    def model(self) -> LlavaVideo | None:
        """The model that answers; None once it is released."""
        return self._model

    @property
    def loaded_model(self) -> LlavaVideo:
        """The model that answers."""
        assert self._model is not None, "the model is released"
        return self._model

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The model's tokenizer."""
        return self.loaded_model.tokenizer

    @property
    def batch_size(self) -> int:
        """Questions answered at once by this process."""
        return self.batch_size_per_gpu

    @property
    def device(self) -> torch.device:
        """Device of this process."""
        return self._device

    def tok_encode(self, string: str) -> list[int]:
        """Return the token ids of a text, without special tokens; requests are sorted by the number of ids."""
        return cast(list[int], self.tokenizer(string, add_special_tokens=False)["input_ids"])

    def generate_until(self, requests: Sequence[Instance]) -> list[str]:
        """Answer `requests` in their order; requests with equal generation arguments share batches."""

        def longest_first(arguments: tuple[str, dict[str, object]]) -> tuple[int, str]:
            """Return the key that sorts requests by length in tokens, the longest first."""
            return -len(self.tok_encode(arguments[0])), arguments[0]

        collator = lmms_utils.Collator(
            [request.args for request in requests],
            longest_first,
            group_fn=lambda arguments: arguments[1],
            grouping=True,
        )
        texts: list[str] = []
        with tqdm(total=len(requests), desc="Answering", disable=self.rank != 0) as progress:
            for batch in collator.get_batched(n=self.batch_size, batch_fn=None):
                video_questions = [self._video_question(*arguments) for arguments in batch]
                answers = self.loaded_model.answer(video_questions, **generation_options(batch[0][1]))
                texts += [answer.text for answer in answers]
                progress.update(len(batch))
        return cast(list[str], collator.get_original(texts))

    def load_video(self, path: str) -> VideoQuestion:
        """Return the frames that the original would show of the video at `path`, with an empty question."""
        with open_video(Path(path)) as reader:
            frames, printed = original_frames(
                reader.info, max_frames=self.max_frames_num, video_fps=self.video_fps, force_sample=self.force_sample
            )
            times = reader.frame_times(frames) if self.setup.times == "exact" else printed
            pixels = reader.read(frames)
            duration = reader.info.duration_seconds
        return VideoQuestion(question="", frames=pixels, times_seconds=times.tolist(), duration_seconds=duration)

    def clean(self) -> None:
        """Release the model at the end of a run, as lmms-eval does."""
        self._model = None
        release_constants()
        super().clean()

    def loglikelihood(self, requests: Sequence[Instance]) -> list[tuple[float, bool]]:
        """Raise NotImplementedError: the model does not score given answers."""
        raise NotImplementedError("LLaVA-Video answers questions; it does not score given answers")

    def generate_until_multi_round(self, requests: Sequence[Instance]) -> list[str]:
        """Raise NotImplementedError: questions of several rounds are not supported."""
        raise NotImplementedError("LLaVA-Video: questions of several rounds are not supported")

    def _video_question(
        self,
        context: str,
        generation: TaskGeneration,
        look: Callable[[Document], Sequence[object]],
        doc_id: int,
        task: str,
        split: str,
    ) -> VideoQuestion:
        """Return a request as a question with frames: the chosen ones, or the original's own sampling.

        `look` is the task's `doc_to_visual`.
        """
        visuals = look(self.task_dict[task][split][doc_id])
        if len(visuals) != 1 or not isinstance(visuals[0], str):
            raise InvalidInput(f"{task}, document {doc_id}: expected one video, found {len(visuals)} visuals")
        video = (
            self._chosen_frames(visuals[0]) if isinstance(visuals[0], PathWithFrames) else self.load_video(visuals[0])
        )
        return replace(video, question=context)

    def _chosen_frames(self, path: PathWithFrames) -> VideoQuestion:
        """The frames that `path` carries, with exact or the original's times, as an empty question."""
        frame_batch = path.frame_batch
        info = VideoInfo(frame_batch.n_frames, frame_batch.fps)
        times: Sequence[float] = frame_batch.times_seconds
        if self.setup.times == "original":
            times = original_times(frozen_ints(frame_batch.frames), info, video_fps=self.video_fps).tolist()
        return VideoQuestion(
            question="", frames=frame_batch.take(), times_seconds=times, duration_seconds=info.duration_seconds
        )


class FocusLlavaVideo(FrameAdapter, LlavaVideoWrapper):
    """LLaVA-Video, shown the chosen frames."""

    model_id: ClassVar[str] = "focus_llava_video"
    stock_name: ClassVar[str] = "llava_vid"
    checkpoint_types: ClassVar[tuple[str, ...]] = ("llava_qwen",)
    frames_argument: ClassVar[str] = "max_frames_num"

    def prepare(self, adapter_arguments: object, wrapper_arguments: dict[str, object]) -> checkpoint.Setup:
        """Check preset, checkpoint and room for the frames before any weight loads; return the complete set-up.

        Raises:
            InvalidInput: an unknown option, another model's checkpoint, or more frames than the context holds.
            MissingWeights: no such checkpoint on this machine.
        """
        setup_options = {
            name: wrapper_arguments[name] for name in checkpoint.SETUP_OPTIONS if name in wrapper_arguments
        }
        setup = checkpoint.make_setup(str(wrapper_arguments.get("preset", "aks")), **setup_options)
        config = checkpoint.read_config(
            checkpoint.find_checkpoint(str(wrapper_arguments.get("pretrained", checkpoint.HUB_NAME)))
        )
        config.layout(setup).check_fit(
            self.frame_limit(wrapper_arguments), other_tokens=1, context_tokens=config.context_tokens
        )
        return setup

    def defaults(self, wrapper_arguments: dict[str, object]) -> None:
        """Change nothing: the wrapper's own defaults place each process on its device."""

    def ready(self, frame_batch: FrameBatch) -> FrameBatch:
        """Return the frames resized, while an earlier question is being answered; resizing again changes nothing."""
        return replace(frame_batch, pixels=resize_frames(frame_batch.pixels, self.loaded_model.image_rules))

    def trace_model(self, view: Self, batch: Sequence[FramedQuestion], trace: GenerateTrace) -> None:
        """Replace the model of `view` by one that notes frames, tokens and seconds of each later call in `trace`."""
        view.__dict__["_model"] = _TracedLlavaVideo(self.loaded_model, trace)


class _TracedLlavaVideo:
    """Wraps a loaded model and records its calls in a trace."""

    def __init__(self, model: LlavaVideo, trace: GenerateTrace) -> None:
        self._model = model
        self._trace = trace
        self.tokenizer = model.tokenizer

    def answer(self, batch: Sequence[VideoQuestion], **options: Unpack[GenerationOptions]) -> list[Answer]:
        """Answer, and record frames, prompt, tokens and seconds."""
        trace = self._trace
        trace.frames = [len(video_question.frames) for video_question in batch]
        if trace.wants_prompt_record:
            trace.sent = {**self._model.sent(batch[0]), "generation": options}
        with trace.generating():
            answers = self._model.answer(batch, **options)
        trace.tokens = [
            {"input": answer.n_input_tokens, "output": answer.n_new_tokens, "vision": answer.n_vision_tokens}
            for answer in answers
        ]
        return answers


def generation_options(generation: TaskGeneration) -> GenerationOptions:
    """Return the options of `LlavaVideo.answer` in a task's generation arguments, with `llava_vid`'s defaults."""
    return {
        "max_new_tokens": int(generation.get("max_new_tokens") or 1024),
        "temperature": float(generation.get("temperature") or 0.0),
        "top_p": generation.get("top_p"),
        "num_beams": int(generation.get("num_beams") or 1),
    }


def _own_device(accelerator: Accelerator, device: str | None) -> str:
    """This process's device: its own GPU in a distributed run, else `device`, else a GPU if there is one."""
    if accelerator.num_processes > 1 and torch.cuda.is_available():
        return f"cuda:{accelerator.local_process_index}"
    return device or ("cuda" if torch.cuda.is_available() else "cpu")
