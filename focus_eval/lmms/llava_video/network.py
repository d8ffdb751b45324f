"""LLaVA-Video's network, from pixels and token ids to new tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch

from focus_eval.lmms.llava_video.checkpoint import tower_body
from focus_eval.lmms.llava_video.config import CheckpointConfig
from focus_eval.lmms.llava_video.setup import Setup

# Frames through the tower at once: bounds its memory whatever the number of frames.
FRAMES_PER_FORWARD = 32


class VideoNetwork:
    """Transformers' LLaVA-OneVision put together as the original puts LLaVA-Video together.

    Args:
        network: with the original weights, from `load_network`.
        config: what the checkpoint says of itself.
        setup: pooling and newlines; the rest of it concerns text.
    """

    def __init__(self, network: Any, *, config: CheckpointConfig, setup: Setup) -> None:
        self.network = network
        self.config = config
        self.layout = config.layout(setup)

    @property
    def device(self) -> torch.device:
        """Where the language model takes its input."""
        return cast(torch.device, self.network.get_input_embeddings().weight.device)

    @property
    def vision_device(self) -> torch.device:
        """Where the vision tower takes its input."""
        return cast(torch.device, tower_body(self.network.model.vision_tower).embeddings.patch_embedding.weight.device)

    @property
    def vocabulary_rows(self) -> int:
        """Number of ids the head scores."""
        return int(self.network.config.text_config.vocab_size)

    @torch.inference_mode()
    def video_tokens(self, pixel_values: torch.Tensor) -> torch.Tensor:
        """Return what replaces the video in the prompt, `(n, hidden)`: tower, projector, pooling, newlines.

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
    def merged(self, before: Sequence[int], video: torch.Tensor, after: Sequence[int]) -> torch.Tensor:
        """Return the input embeddings `(tokens, hidden)`: text, video, text; no marker, no position of their own."""
        embed = self.network.get_input_embeddings()
        halves = [embed(torch.tensor(ids, dtype=torch.long, device=self.device)) for ids in (before, after)]
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
            stop_ids: end an answer, besides those of the generation config.
            known_ids: ids from here on are never chosen (the original's loader cuts those columns off).
        """
        from transformers import LogitsProcessorList

        embeddings, mask = left_padded(rows)
        sampling: dict[str, Any] = {"do_sample": False, "temperature": None, "top_p": None, "top_k": None}
        if temperature > 0:
            sampling = {"do_sample": True, "temperature": temperature, "top_p": top_p}
        beyond = list(range(known_ids, self.vocabulary_rows)) if known_ids is not None else []
        new = self.network.generate(
            inputs_embeds=embeddings,
            attention_mask=mask,
            max_new_tokens=max_new_tokens,
            num_beams=num_beams,
            eos_token_id=sorted({*stop_ids, *self._configured_stops()}) or None,
            pad_token_id=pad_id,
            suppress_tokens=beyond or None,
            repetition_penalty=1.0,
            logits_processor=LogitsProcessorList(self._configured_penalty()),
            **sampling,
        )
        return cast(torch.Tensor, new)

    def _configured_penalty(self) -> list[Any]:
        """Return the processor of the generation config's repetition penalty.

        Transformers 5 would make it itself, but of rows that are padded on the left it then skips as many new tokens
        as there is padding, though the ids it sees begin after the prompt.
        """
        from transformers import RepetitionPenaltyLogitsProcessor

        penalty = self.network.generation_config.repetition_penalty
        return [] if penalty in (None, 1.0) else [RepetitionPenaltyLogitsProcessor(float(penalty))]

    def _configured_stops(self) -> list[int]:
        stops = self.network.generation_config.eos_token_id
        if stops is None:
            return []
        return [stops] if isinstance(stops, int) else list(stops)


def left_padded(rows: Sequence[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return embeddings `(batch, longest, hidden)` padded with zeros on the left, and the mask of what is real."""
    longest = max(len(row) for row in rows)
    embeddings = rows[0].new_zeros(len(rows), longest, rows[0].shape[1])
    mask = torch.zeros(len(rows), longest, dtype=torch.long, device=embeddings.device)
    for index, row in enumerate(rows):
        embeddings[index, longest - len(row) :] = row
        mask[index, longest - len(row) :] = 1
    return embeddings, mask
