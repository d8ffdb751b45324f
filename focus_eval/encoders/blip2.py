"""Scores frames with BLIP-2's image-text matching head.

Relevance is the softmax of the two matching logits, the "match" one, averaged over the query tokens before the
softmax (Li et al. 2023, "BLIP-2", section 3.1), on transformers' `Blip2ForImageTextRetrieval`. `embed` gives the image
tokens of the frozen vision tower; the Q-Former reads them together with the question.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import torch

from focus_eval.core.errors import EncoderError
from focus_eval.core.types import FloatArray
from focus_eval.encoders import torch_scorer
from focus_eval.encoders.blip import clean_caption
from focus_eval.encoders.cost import blip2_gmacs
from focus_eval.encoders.dual_encoder import load_tokenizer
from focus_eval.encoders.preprocess import Resize, read_image_rules
from focus_eval.encoders.protocol import checked_query
from focus_eval.encoders.weights import Located, load_weights, locate, weights_identity

LAVIS_TOKENS = 32  # longest text with both ends in LAVIS, in training and in its matching head


class Blip2Scorer(torch_scorer.MatchingScorer):
    """BLIP-2 ITM: relevance is the probability that image and text match.

    Args:
        checkpoint: a known name, a repository of the model hub, or a folder; see `focus-eval doctor`.
        revision: commit, tag or branch of the repository; None: the known one.
        preprocess: "lavis" cleans the text as LAVIS' `blip_caption` does and cuts it to 32 tokens, as in training;
            "hf" gives the tokenizer the text as it is, cut at the Q-Former's positions. Images are resized by Pillow
            as `preprocessor_config.json` says in both.
        device, precision, batch_size, resize, compile: see `EncoderOptions`.

    Raises:
        MissingWeights, EncoderError: see `weights.locate`.
    """

    name: ClassVar[str] = "blip2"
    model_type: ClassVar[str] = "blip-2"
    default_checkpoint: ClassVar[str] = "blip2-itm-vit-g"
    checkpoints: ClassVar[dict[str, dict[str, Any]]] = {
        "blip2-itm-vit-g": {
            "repository": "Salesforce/blip2-itm-vit-g",
            "revision": "520bf73fd0ef6ccce791cd3f06908040aef2d8cc",
            "gigabytes": 4.70,
            "note": "commit as pinned by public code, size from its 1.17 billion fp32 weights",
        },
    }

    def __init__(
        self,
        *,
        checkpoint: str = default_checkpoint,
        revision: str | None = None,
        preprocess: Literal["lavis", "hf"] = "lavis",
        device: str = "auto",
        precision: torch_scorer.Precision = "fp32",
        batch_size: int = 32,
        resize: Resize = "auto",
        compile: bool = False,
    ) -> None:
        self.preprocess = torch_scorer.checked_preprocess(preprocess)
        located = locate(checkpoint, revision=revision, model_type=self.model_type)
        super().__init__(
            _load_model(located),
            image_rules=read_image_rules(located.folder),
            options=torch_scorer.EncoderOptions(
                device=device, precision=precision, batch_size=batch_size, resize=resize, compile=compile
            ),
        )
        self._tokenizer = load_tokenizer(located.folder)
        self._max_tokens = _max_tokens(self._model.config, preprocess)
        self._vision = torch.compile(self._model.vision_model) if compile else self._model.vision_model
        self._text_runner = self._runner(batch_size)
        self.revision = self._label(located.identity, preprocess=preprocess)
        self.gmacs = blip2_gmacs(self._model.config, _max_tokens(self._model.config, "lavis"))

    @classmethod
    def revision_of(
        cls,
        *,
        checkpoint: str = default_checkpoint,
        revision: str | None = None,
        preprocess: Literal["lavis", "hf"] = "lavis",
        precision: str = "fp32",
        compile: bool = False,
        **_: Any,
    ) -> str:
        """Return the `revision` of an encoder with these options; loads no weights."""
        identity = weights_identity(checkpoint, revision)
        return torch_scorer.revision_line(
            identity, precision=precision, compile=compile, preprocess=torch_scorer.checked_preprocess(preprocess)
        )

    @classmethod
    def gmacs_of(
        cls, *, checkpoint: str = default_checkpoint, revision: str | None = None, **_: Any
    ) -> dict[str, float]:
        """Return the `gmacs` of an encoder with these options; loads no weights."""
        config = _config(locate(checkpoint, revision=revision, model_type=cls.model_type))
        return blip2_gmacs(config, _max_tokens(config, "lavis"))

    def relevance(self, features: torch.Tensor, query: str) -> FloatArray:
        """Return the probability of a match, shape `(n,)`."""
        if not len(features):
            return np.empty(0)
        ids, mask = (part.to(self._torch_device) for part in self.text_inputs([checked_query(query)]))
        probability: FloatArray = self._matched(features, lambda states, _: self._match(states, ids, mask)).numpy()
        return probability

    def text_inputs(self, texts: Sequence[str]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return token ids and mask of `texts`, each int64 `(n_texts, longest)`, without image tokens."""
        encoded = self._tokenizer(
            [self._cleaned(text) for text in texts],
            padding="longest",
            truncation=True,
            max_length=self._max_tokens,
            return_tensors="pt",
        )
        return encoded["input_ids"], encoded["attention_mask"]

    def count_tokens(self, query: str) -> int:
        """Return the tokens of `query` with both ends before the cut."""
        return len(self._tokenizer(self._cleaned(query))["input_ids"])

    def is_cut(self, query: str) -> bool:
        """Return whether the Q-Former sees only the start of `query`."""
        return self.count_tokens(query) > self._max_tokens

    def _cleaned(self, text: str) -> str:
        return clean_caption(text) if self.preprocess == "lavis" else text

    def _match(self, states: torch.Tensor, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return match probabilities `(n,)` in fp32 of image tokens `(n, tokens, width)` with one text."""
        n = len(states)
        queries = self._model.query_tokens.expand(n, -1, -1)
        seen = torch.ones(queries.shape[:2], dtype=mask.dtype, device=mask.device)
        hidden = self._model.qformer(
            query_embeds=self._model.embeddings(input_ids=ids.expand(n, -1), query_embeds=queries),
            query_length=queries.shape[1],
            attention_mask=torch.cat([seen, mask.expand(n, -1)], dim=1),
            encoder_hidden_states=states,
            encoder_attention_mask=torch.ones(states.shape[:2], dtype=mask.dtype, device=mask.device),
        ).last_hidden_state
        logits: torch.Tensor = self._model.itm_head(hidden[:, : queries.shape[1]]).mean(dim=1).float()
        return logits.softmax(dim=-1)[:, 1]


def _load_model(located: Located) -> Any:
    from transformers import Blip2ForImageTextRetrieval

    return load_weights(Blip2ForImageTextRetrieval, located.folder, config=_config(located), where=located.identity)


def _config(located: Located) -> Any:
    from transformers import Blip2Config

    config: Any = Blip2Config.from_pretrained(located.folder, local_files_only=True)
    if not config.qformer_config.use_qformer_text_input:
        raise EncoderError(
            f"{located.identity}: its Q-Former reads no text; a BLIP-2 for image-text retrieval is needed"
        )
    return config


def _max_tokens(config: Any, preprocess: str) -> int:
    positions = int(config.qformer_config.max_position_embeddings)
    return min(LAVIS_TOKENS, positions) if preprocess == "lavis" else positions
