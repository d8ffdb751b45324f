"""Answers questions about frames with LLaVA-Video."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from focus_eval.errors import InvalidInput, MissingWeights
from focus_eval.lmms.llava_video.checkpoint import find_checkpoint, load_network
from focus_eval.lmms.llava_video.config import CheckpointConfig, read_config
from focus_eval.lmms.llava_video.network import VideoNetwork
from focus_eval.lmms.llava_video.prompts import STOP, prompt_halves, time_sentence
from focus_eval.lmms.llava_video.setup import Setup
from focus_eval.scoring.encoders.preprocess import BICUBIC, ImageRules, normalise, resize_frames
from focus_eval.video.reader import Pixels

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


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
        if len(self.frames) == 0:
            raise InvalidInput("LLaVA-Video needs at least one frame")


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What the model said, and how many tokens went in (those of the video among them) and came out."""

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

    def __init__(self, network: VideoNetwork, tokenizer: PreTrainedTokenizerBase, *, setup: Setup) -> None:
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
        setup: Setup,
        dtype: str = "bfloat16",
        attn_implementation: str = "sdpa",
        device_map: str | Mapping[str, Any] = "cpu",
    ) -> LlavaVideo:
        """Load the checkpoint `name`, a folder or a hub name in the cache.

        Raises:
            MissingWeights, InvalidInput: see `read_config` and `load_network`.
        """
        config = read_config(find_checkpoint(name))
        tokenizer = load_tokenizer(config)
        loaded = load_network(config, dtype=dtype, attn_implementation=attn_implementation, device_map=device_map)
        return cls(VideoNetwork(loaded, config=config, setup=setup), tokenizer, setup=setup)

    @property
    def image_rules(self) -> ImageRules:
        """How a frame becomes the tower's input: Pillow's bicubic, aspect not kept, mean and deviation 0.5."""
        return tower_rules(int(self.config.vision["image_size"]))

    def pixel_values(self, frames: Pixels) -> torch.Tensor:
        """Return frames `(n, height, width, 3)` as the tower takes them, float32 in [-1, 1], `(n, 3, size, size)`."""
        rules = self.image_rules
        levels = torch.from_numpy(np.ascontiguousarray(resize_frames(frames, rules)))
        return normalise(levels.to(self.network.vision_device).permute(0, 3, 1, 2), rules)

    def prompt_ids(self, asked: VideoQuestion) -> tuple[list[int], list[int]]:
        """Return the token ids before and after the video, each half tokenised on its own as in the original."""
        sentence = ""
        if self.setup.time_instruction != "off":
            if len(asked.times_seconds) != len(asked.frames):
                raise InvalidInput(f"{len(asked.times_seconds)} times for {len(asked.frames)} frames")
            sentence = time_sentence(asked.times_seconds, duration_seconds=asked.duration_seconds)
        halves = prompt_halves(
            asked.question,
            template=self.setup.template,
            time_instruction=self.setup.time_instruction,
            time_sentence=sentence,
        )
        before, after = (self.tokenizer(half, add_special_tokens=False)["input_ids"] for half in halves)
        return before, after

    def inputs(self, asked: VideoQuestion, *, max_new_tokens: int) -> torch.Tensor:
        """Return the input embeddings `(tokens, hidden)` of one question.

        Raises:
            InvalidInput: more frames than the context holds, with the number that fits; nothing is cut off.
        """
        before, after = self.prompt_ids(asked)
        self.network.layout.check_fit(
            len(asked.frames),
            other_tokens=len(before) + len(after) + max_new_tokens,
            context_tokens=self.config.context_tokens,
        )
        return self.network.merged(before, self.network.video_tokens(self.pixel_values(asked.frames)), after)

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
        rows = [self.inputs(asked, max_new_tokens=max_new_tokens) for asked in batch]
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
                n_vision_tokens=self.network.layout.count(len(asked.frames)),
                n_new_tokens=int((tokens != self._pad_id).sum()),
            )
            for text, row, asked, tokens in zip(texts, rows, batch, new, strict=True)
        ]


def tower_rules(size: int) -> ImageRules:
    """Return the rules of a square SigLIP tower of `size` pixels."""
    return ImageRules(height=size, width=size, resample=BICUBIC, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))


def load_tokenizer(config: CheckpointConfig) -> PreTrainedTokenizerBase:
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
    stop = tokenizer.get_vocab().get(STOP)
    if stop is None:
        raise InvalidInput(f"{tokenizer.name_or_path}: the tokenizer does not know {STOP}, so it is not Qwen2's")
    if len(tokenizer) > rows:
        raise InvalidInput(
            f"{tokenizer.name_or_path}: the tokenizer has {len(tokenizer)} tokens, the embedding {rows} rows;"
            " tokenizer and weights are not of one checkpoint"
        )
    return int(stop)
