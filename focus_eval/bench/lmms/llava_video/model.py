"""Answers questions about frames with LLaVA-Video."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np
import torch

from focus_eval.bench.answering.tracing import numeric_formats
from focus_eval.bench.lmms.llava_video import checkpoint
from focus_eval.core.errors import InvalidInput, MissingWeights
from focus_eval.core.types import FloatArray, IntArray, Pixels, VideoInfo
from focus_eval.keyframes.encoders.preprocess import ImageRules, normalise, resize_frames
from focus_eval.keyframes.encoders.resampling import BICUBIC

if TYPE_CHECKING:
    from transformers import LlavaOnevisionForConditionalGeneration, PreTrainedTokenizerBase


def original_frames(
    video: VideoInfo, *, max_frames: int, video_fps: float = 1, force_sample: bool = False
) -> tuple[IntArray, FloatArray]:
    """Return the frames that lmms-eval's llava_vid takes, and their times in seconds.

    llava_vid takes every `stride`-th frame, with the time frame / stride. If these are more than `max_frames` frames,
    or if `force_sample` is set, it takes `max_frames` evenly spaced frames with the time frame / fps. Their positions
    are truncated to whole frames, so a short video repeats frames.

    Raises:
        InvalidInput: `max_frames` below 1, or a rate at which the stride rounds to 0.
    """
    if max_frames < 1:
        raise InvalidInput(f"max_frames must be at least 1, got {max_frames}")
    stride = _stride(video, video_fps)
    frames = np.arange(0, video.n_frames, stride, dtype=np.int64)
    if len(frames) <= max_frames and not force_sample:
        return frames, frames / stride
    frames = np.linspace(0, video.n_frames - 1, max_frames).astype(np.int64)
    return frames, frames / video.fps


def original_times(frames: IntArray, video: VideoInfo, *, video_fps: float = 1) -> FloatArray:
    """Return the times that the original's stride rule prints for `frames`: frame / round(fps), in seconds.

    At 29.97 and 23.976 fps these times are 0.1 % early; at 12.5 fps (stride 12) they are 4 % late.
    """
    return np.asarray(frames, dtype=np.int64) / _stride(video, video_fps)


def _stride(video: VideoInfo, video_fps: float) -> int:
    """The step in frames that gives `video_fps`, rounded; raises InvalidInput if the step is below 1."""
    stride = round(video.fps / video_fps)
    if stride < 1:
        raise InvalidInput(
            f"the original's stride rule needs at least half of {video_fps} fps, the video has {video.fps}"
        )
    return stride


IMAGE = "<image>"
STOP = "<|im_end|>"

_SYSTEM: dict[checkpoint.Template, str] = {
    "qwen_1_5": "You are a helpful assistant.",
    "qwen_2_5": "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.",
    "chatml_direct": "Answer the questions.",
}


def prompt_halves(
    question: str,
    *,
    template: checkpoint.Template,
    time_instruction: checkpoint.TimeInstruction = "off",
    time_sentence: str = "",
) -> tuple[str, str]:
    """Return the text before and after the video; each half is tokenised on its own, as the original does.

    `chatml_direct` puts no newline after a turn's end, the Qwen templates do.
    """
    gap = "" if template == "chatml_direct" else "\n"
    start = "<|im_start|>"
    first_half = f"{start}system\n{_SYSTEM[template]}{STOP}{gap}{start}user\n"
    second_half = f"{user_tail(question, time_instruction, time_sentence)}{STOP}{gap}{start}assistant\n"
    return first_half, second_half


def user_tail(question: str, time_instruction: checkpoint.TimeInstruction, time_sentence: str) -> str:
    """Return the text of the user's turn after the video: the time sentence, if any, and the question."""
    if time_instruction == "off":
        return f"\n{question}"
    lead = "\n" if time_instruction == "lmms_eval" else ""
    return f"{lead}{time_sentence}\n{question}"


def time_sentence(times_seconds: Sequence[float], *, duration_seconds: float) -> str:
    """Return the sentence that tells the model when its frames were taken.

    The wording is that of the model's training, with "uniformly" and without a blank before "Please". It stays the same
    whatever sampler chose the frames.
    """
    return (
        f"The video lasts for {duration_seconds:.2f} seconds, and {len(times_seconds)} frames are uniformly sampled"
        f" from it. These frames are located at {time_list(times_seconds)}.Please answer the following questions"
        " related to this video."
    )


def time_list(times_seconds: Sequence[float]) -> str:
    """Return "0.00s,4.27s,...": two decimals, commas, no blanks."""
    return ",".join(f"{time:.2f}s" for time in times_seconds)


# Number of frames that go through the vision tower at once, which limits the tower's memory.
FRAMES_PER_FORWARD = 32


class VideoNetwork:
    """Transformers' LLaVA-OneVision, assembled like the original LLaVA-Video.

    Args:
        network: with the original weights, from `load_network`.
        config: settings of the checkpoint.
        setup: only its pooling and newlines are used.
    """

    def __init__(
        self,
        network: LlavaOnevisionForConditionalGeneration,
        *,
        config: checkpoint.CheckpointConfig,
        setup: checkpoint.Setup,
    ) -> None:
        self.network = network
        self.config = config
        self.layout = config.layout(setup)

    @property
    def device(self) -> torch.device:
        """Device of the language model's input."""
        return cast(torch.device, self.network.get_input_embeddings().weight.device)

    @property
    def vision_device(self) -> torch.device:
        """Device of the vision tower's input."""
        return cast(
            torch.device,
            checkpoint.tower_body(self.network.model.vision_tower).embeddings.patch_embedding.weight.device,
        )

    @property
    def vocabulary_rows(self) -> int:
        """Number of token ids that the head scores."""
        return int(self.network.config.get_text_config().vocab_size)

    @torch.inference_mode()
    def video_tokens(self, pixel_values: torch.Tensor) -> torch.Tensor:
        """Return the embeddings that stand for the video, `(n, hidden)`: tower, projector, pooling, newlines.

        Args:
            pixel_values: `(frames, 3, size, size)` in [-1, 1].
        """
        model = self.network.model
        pooled = []
        for part in torch.split(pixel_values.to(self.network.dtype), FRAMES_PER_FORWARD):
            patches = model.multi_modal_projector(model.vision_tower(part).last_hidden_state)
            pooled.append(self.layout.pool(patches))
        return self.layout.tokens(torch.cat(pooled), model.image_newline)

    @torch.inference_mode()
    def merged(self, first_ids: Sequence[int], video: torch.Tensor, second_ids: Sequence[int]) -> torch.Tensor:
        """Return the input embeddings `(tokens, hidden)`: text, video, text; no marker, no position of their own."""
        embed = self.network.get_input_embeddings()
        halves = [embed(torch.tensor(ids, dtype=torch.long, device=self.device)) for ids in (first_ids, second_ids)]
        return torch.cat([halves[0], video.to(halves[0]), halves[1]])

    @torch.inference_mode()
    def logits(self, rows: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return logits `(batch, longest, rows of the vocabulary)` of merged embeddings `(tokens, hidden)` each."""
        embeddings, mask = left_padded(rows)
        positions = (mask.cumsum(1) - 1).clamp(min=0)
        out = self.network(inputs_embeds=embeddings, attention_mask=mask, position_ids=positions)
        return cast(torch.Tensor, out.logits)

    @torch.inference_mode()
    def generate(
        self,
        rows: Sequence[torch.Tensor],
        *,
        max_new_tokens: int,
        stop_ids: Sequence[int] = (),
        pad_id: int = 0,
        known_ids: int | None = None,
        temperature: float = 0.0,
        top_p: float | None = None,
        num_beams: int = 1,
    ) -> torch.Tensor:
        """Return new token ids `(batch, new)` for merged embeddings `(tokens, hidden)` each; greedy at temperature 0.

        The prompt goes in as embeddings, as in the original: a repetition penalty of the checkpoint's generation
        config therefore counts new tokens only.

        Args:
            stop_ids: ids that end an answer, besides those of the generation config.
            known_ids: ids from here on are never chosen (the original's loader cuts those columns off).
        """
        from transformers import LogitsProcessorList, RepetitionPenaltyLogitsProcessor

        stops = self.network.generation_config.eos_token_id
        penalty = self.network.generation_config.repetition_penalty
        configured_stops = [stops] if isinstance(stops, int) else stops or []
        processors = LogitsProcessorList()
        if penalty not in (None, 1.0):
            # Transformers 5 would make this processor itself. But for a row padded on the left its processor skips as
            # many new tokens as the row has padding, although the ids that it gets begin after the prompt.
            processors.append(RepetitionPenaltyLogitsProcessor(float(penalty)))
        embeddings, mask = left_padded(rows)
        sampling: dict[str, object] = {"do_sample": False, "temperature": None, "top_p": None, "top_k": None}
        if temperature > 0:
            sampling = {"do_sample": True, "temperature": temperature, "top_p": top_p}
        unknown_ids = list(range(known_ids, self.vocabulary_rows)) if known_ids is not None else []
        new = self.network.generate(
            inputs_embeds=embeddings,
            attention_mask=mask,
            max_new_tokens=max_new_tokens,
            num_beams=num_beams,
            eos_token_id=sorted({*stop_ids, *configured_stops}) or None,
            pad_token_id=pad_id,
            suppress_tokens=unknown_ids or None,
            repetition_penalty=1.0,
            logits_processor=processors,
            **sampling,
        )
        return cast(torch.Tensor, new)


def left_padded(rows: Sequence[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return embeddings `(batch, longest, hidden)` padded with zeros on the left, and their mask (1 is real)."""
    longest = max(len(row) for row in rows)
    embeddings = rows[0].new_zeros(len(rows), longest, rows[0].shape[1])
    mask = torch.zeros(len(rows), longest, dtype=torch.long, device=embeddings.device)
    for index, row in enumerate(rows):
        embeddings[index, longest - len(row) :] = row
        mask[index, longest - len(row) :] = 1
    return embeddings, mask


@dataclass(frozen=True, kw_only=True)
class VideoQuestion:
    """A question about frames.

    Args:
        question: the text of the user's turn.
        frames: RGB uint8 `(n, height, width, 3)` in time order, at least one.
        times_seconds: one per frame; used by the time instruction.
        duration_seconds: length of the video; used by the time instruction.
    """

    question: str
    frames: Pixels
    times_seconds: Sequence[float] = ()
    duration_seconds: float = 0.0

    def __post_init__(self) -> None:
        """Raise InvalidInput for a question without frames."""
        if len(self.frames) == 0:
            raise InvalidInput("LLaVA-Video needs at least one frame")


@dataclass(frozen=True, kw_only=True)
class Answer:
    """Text of an answer, and its numbers of input tokens (those of the video included) and output tokens."""

    text: str
    n_input_tokens: int
    n_vision_tokens: int
    n_new_tokens: int


class LlavaVideo:
    """The network, its tokenizer and a setup.

    Args:
        network: the computation.
        tokenizer: the checkpoint's own.
        setup: prompt and times; pooling and newlines are in the network.
    """

    def __init__(self, network: VideoNetwork, tokenizer: PreTrainedTokenizerBase, *, setup: checkpoint.Setup) -> None:
        self.network = network
        self.config = network.config
        self.tokenizer = tokenizer
        self.setup = setup
        self._stop_id = _stop_id(tokenizer, network.vocabulary_rows)
        self._pad_id: int = self._stop_id if tokenizer.pad_token_id is None else tokenizer.pad_token_id

    @classmethod
    def load(
        cls,
        name: str,
        *,
        setup: checkpoint.Setup,
        dtype: str = "bfloat16",
        attn_implementation: str = "sdpa",
        device_map: str | Mapping[str, object] = "cpu",
    ) -> LlavaVideo:
        """Load the checkpoint `name`, a folder or a hub name in the cache.

        Raises:
            MissingWeights, InvalidInput: see `read_config` and `load_network`.
        """
        config = checkpoint.read_config(checkpoint.find_checkpoint(name))
        tokenizer = load_tokenizer(config)
        loaded = checkpoint.load_network(
            config, dtype=dtype, attn_implementation=attn_implementation, device_map=device_map
        )
        return cls(VideoNetwork(loaded, config=config, setup=setup), tokenizer, setup=setup)

    @property
    def image_rules(self) -> ImageRules:
        """Rules from a frame to the tower's input: Pillow's bicubic, aspect ratio not kept, mean and deviation 0.5."""
        return tower_rules(int(self.config.vision["image_size"]))

    def pixel_values(self, frames: Pixels) -> torch.Tensor:
        """Return frames `(n, height, width, 3)` as the tower's input, float32 in [-1, 1], `(n, 3, size, size)`."""
        rules = self.image_rules
        levels = torch.from_numpy(np.ascontiguousarray(resize_frames(frames, rules)))
        return normalise(levels.to(self.network.vision_device).permute(0, 3, 1, 2), rules)

    def prompt_ids(self, video_question: VideoQuestion) -> tuple[list[int], list[int]]:
        """Return the token ids before and after the video, each half tokenised on its own as in the original."""
        sentence = ""
        if self.setup.time_instruction != "off":
            if len(video_question.times_seconds) != len(video_question.frames):
                raise InvalidInput(f"{len(video_question.times_seconds)} times for {len(video_question.frames)} frames")
            sentence = time_sentence(video_question.times_seconds, duration_seconds=video_question.duration_seconds)
        halves = prompt_halves(
            video_question.question,
            template=self.setup.template,
            time_instruction=self.setup.time_instruction,
            time_sentence=sentence,
        )
        first_ids, second_ids = (self.tokenizer(half, add_special_tokens=False)["input_ids"] for half in halves)
        return first_ids, second_ids

    def sent(self, video_question: VideoQuestion) -> dict[str, object]:
        """Return what the model is sent for one question, for the prompt record: text, frame size, dtype, attention."""
        first_half, second_half = (self.tokenizer.decode(ids) for ids in self.prompt_ids(video_question))
        return {
            "text": f"{first_half}<video: {self.network.layout.count(len(video_question.frames))} tokens>{second_half}",
            "frame_pixels": [int(self.config.vision["image_size"])] * 2,
            **numeric_formats(self.network.network),
        }

    def inputs(self, video_question: VideoQuestion, *, max_new_tokens: int) -> torch.Tensor:
        """Return the input embeddings `(tokens, hidden)` of one question.

        Raises:
            InvalidInput: more frames than the context holds, with the number that fits; nothing is cut off.
        """
        first_ids, second_ids = self.prompt_ids(video_question)
        self.network.layout.check_fit(
            len(video_question.frames),
            other_tokens=len(first_ids) + len(second_ids) + max_new_tokens,
            context_tokens=self.config.context_tokens,
        )
        return self.network.merged(
            first_ids, self.network.video_tokens(self.pixel_values(video_question.frames)), second_ids
        )

    def answer(
        self,
        batch: Sequence[VideoQuestion],
        *,
        max_new_tokens: int = 1024,
        temperature: float = 0.0,
        top_p: float | None = None,
        num_beams: int = 1,
    ) -> list[Answer]:
        """Answer several questions at once; greedy unless `temperature` is above 0.

        Raises:
            InvalidInput: more frames than the context holds, or times that do not match the frames.
        """
        rows = [self.inputs(video_question, max_new_tokens=max_new_tokens) for video_question in batch]
        new = self.network.generate(
            rows,
            max_new_tokens=max_new_tokens,
            stop_ids=[self._stop_id],
            pad_id=self._pad_id,
            known_ids=len(self.tokenizer),
            temperature=temperature,
            top_p=top_p,
            num_beams=num_beams,
        )
        texts = self.tokenizer.batch_decode(new, skip_special_tokens=True)
        return [
            Answer(
                text=text.strip(),
                n_input_tokens=len(row),
                n_vision_tokens=self.network.layout.count(len(video_question.frames)),
                n_new_tokens=int((tokens != self._pad_id).sum()),
            )
            for text, row, video_question, tokens in zip(texts, rows, batch, new, strict=True)
        ]


def tower_rules(size: int) -> ImageRules:
    """Return the rules of a square SigLIP tower of `size` pixels."""
    return ImageRules(height=size, width=size, resample=BICUBIC, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))


def load_tokenizer(config: checkpoint.CheckpointConfig) -> PreTrainedTokenizerBase:
    """Return the checkpoint's own tokenizer, which is Qwen2's.

    Raises:
        MissingWeights: no tokenizer files beside the weights.
    """
    from transformers import Qwen2Tokenizer

    if not any((config.folder / name).is_file() for name in ("tokenizer.json", "vocab.json")):
        raise MissingWeights(f"{config.folder}: neither tokenizer.json nor vocab.json; download the whole checkpoint")
    tokenizer: PreTrainedTokenizerBase = Qwen2Tokenizer.from_pretrained(config.folder, local_files_only=True)
    return tokenizer


def _stop_id(tokenizer: PreTrainedTokenizerBase, rows: int) -> int:
    """Return the id of the token that ends a turn; raise InvalidInput if tokenizer and weights do not fit.

    `rows` is the number of token ids that the head scores.
    """
    stop = tokenizer.get_vocab().get(STOP)
    if stop is None:
        raise InvalidInput(f"{tokenizer.name_or_path}: the tokenizer does not know {STOP}, so it is not Qwen2's")
    if len(tokenizer) > rows:
        raise InvalidInput(
            f"{tokenizer.name_or_path}: the tokenizer has {len(tokenizer)} tokens, the embedding {rows} rows;"
            " tokenizer and weights are not of one checkpoint"
        )
    return int(stop)
