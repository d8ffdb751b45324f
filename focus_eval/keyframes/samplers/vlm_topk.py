"""Which frames would a vision-language model need to answer the question?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from focus_eval.core.options import option
from focus_eval.keyframes.samplers.bandit import best_first
from focus_eval.keyframes.samplers.base import AskingSampler, Choice, SelectionRequest
from focus_eval.keyframes.samplers.uniform import even_frames

PROMPT = """{question}
{options}
Does this picture help to answer the question? Answer yes or no."""


@dataclass(frozen=True, kw_only=True)
class VlmTopK(AskingSampler):
    """A model is asked about each frame of an even grid; the `k` frames with the highest probability of yes are kept.

    The published method, FRAG, asks about 256 frames at the model's own resolution, with its own prompt; here pictures
    are shrunk to `size`. Of equal frames the earlier is kept.

    Args:
        frames: number of frames in the grid; at least `k` if the video has them.
        size: longest side of a picture in pixels.
    """

    name: ClassVar[str] = "vlm_topk"
    paper: ClassVar[str] = "frag"
    source: ClassVar[str] = "after FRAG (Huang et al., 2025); its prompt and resolution differ"
    draws: ClassVar[bool] = False
    needs_encoder: ClassVar[bool] = False

    frames: int = option(64, at_least=1)
    size: int = option(336, at_least=16)

    def choose(self, request: SelectionRequest) -> Choice:
        """Ask the model about each frame of an even grid; return the `k` of the highest probability of yes."""
        frames = even_frames(request.video, max(self.frames, request.k))
        options = "\n".join(request.options)
        prompt = PROMPT.format(question=request.question, options=options).replace("\n\n", "\n")
        yes: list[float] = []
        # Ask in groups of 64, because the pictures of an hour of video do not fit into memory.
        for at in range(0, frames.size, 64):
            yes += request.llm.yes(prompt, request.ledger.look(frames[at : at + 64], size=self.size)).tolist()
        return Choice(keyframes=frames[best_first(np.array(yes))[: request.n_wanted]])
