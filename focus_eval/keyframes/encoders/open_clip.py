"""Scores frames with any model that open_clip builds: PE-Core, MobileCLIP2, EVA02, SigLIP and more.

Towers, tokenizer and image rules are open_clip's own, as a checkpoint's `open_clip_config.json` states them. Weights
are read from safetensors only; nothing is downloaded.
"""

from __future__ import annotations

import importlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import torch
from safetensors import SafetensorError, safe_open
from torch.utils.flop_counter import FlopCounterMode

from focus_eval.core.errors import EncoderError, MissingDependency
from focus_eval.core.extras import install_command
from focus_eval.keyframes.encoders.base import PublishedWeights
from focus_eval.keyframes.encoders.dual_encoder import DualEncoderScorer
from focus_eval.keyframes.encoders.preprocess import ImageRules
from focus_eval.keyframes.encoders.resampling import BICUBIC, BILINEAR
from focus_eval.keyframes.encoders.weights import OPEN_CLIP, Located

_FILTERS = {"bilinear": BILINEAR, "bicubic": BICUBIC}


def _library() -> ModuleType:
    """The module open_clip; it is imported at the first call, because the import takes seconds."""
    try:
        return importlib.import_module("open_clip")
    except ImportError as error:
        raise MissingDependency(f"encoder 'open_clip' needs open_clip: {install_command('open-clip')}") from error


@dataclass(frozen=True, kw_only=True)
class TorchvisionRules(ImageRules):
    """Image rules whose centre crop is rounded as in torchvision: an edge between two pixels moves to the even one."""

    def centre(self, height: int, width: int) -> tuple[slice, slice]:
        """Return rows and columns of the centre crop of a frame of that size, rounded as torchvision does."""
        top_edge, left_edge = round((height - self.height) / 2), round((width - self.width) / 2)
        return slice(top_edge, top_edge + self.height), slice(left_edge, left_edge + self.width)


class OpenClipScorer(DualEncoderScorer):
    """A model of open_clip's registry, a repository of the hub, or a folder with `open_clip_config.json`.

    Args:
        checkpoint: one of open_clip's names in `checkpoints`, a repository with `open_clip_model.safetensors`, or a
            folder.

    Raises:
        MissingWeights: see `weights.locate`.
        EncoderError: also for a text tower that open_clip takes from transformers, which is not in the checkpoint.
    """

    name: ClassVar[str] = "open_clip"
    extra: ClassVar[str] = "open-clip"
    model_type: ClassVar[str] = "open_clip"
    default_checkpoint: ClassVar[str] = "PE-Core-L-14-336"
    # Names, repositories and sizes are copied from open_clip's registry; a test compares them with it.
    checkpoints: ClassVar[Mapping[str, PublishedWeights]] = {
        "PE-Core-T-16-384": {
            "repository": "timm/PE-Core-T-16-384",
            "revision": "7fe539ed578ac49a1c2b4f946e4b0747704c825a",
            "gigabytes": 0.28,
            "licence": "Apache-2.0",
            "gmacs": {"image": 4.725257088},
            "note": "commit as pinned by public code",
        },
        "PE-Core-B-16": {
            "repository": "timm/PE-Core-B-16",
            "revision": "0038414f37721c5eafc1a5e0da802d291c909de3",
            "gigabytes": 1.79,
            "gmacs": {"image": 17.802438144},
            "note": "commit as pinned by public code",
        },
        "PE-Core-L-14-336": {
            "repository": "timm/PE-Core-L-14-336",
            "revision": "8eff41b3f687e50a323662c2dda5eb3588c6dd35",
            "gigabytes": 2.68,
            "gmacs": {"image": 192.181880832},
            "note": "commit as pinned by public code",
        },
        "MobileCLIP2-S0": {
            "repository": "timm/MobileCLIP2-S0-OpenCLIP",
            "revision": "095906d28bf54d7584dc411e8ffe448f34289e05",
            "gigabytes": 0.3,
            "gmacs": {"image": 2.392653824},
            "note": "commit as pinned by public code; Apple's licence for research",
        },
        "MobileCLIP2-S2": {
            "repository": "timm/MobileCLIP2-S2-OpenCLIP",
            "revision": "main",
            "gigabytes": 0.4,
            "gmacs": {"image": 7.84638976},
            "note": "Apple's licence for research",
        },
        "EVA02-L-14-336": {
            "repository": "timm/eva02_large_patch14_clip_336.merged2b_s6b_b61k",
            "revision": "main",
            "gigabytes": 1.71,
            "gmacs": {"image": 190.931533824},
        },
        "ViT-SO400M-16-SigLIP2-384": {
            "repository": "timm/ViT-SO400M-16-SigLIP2-384",
            "revision": "main",
            "gigabytes": 4.54,
            "gmacs": {"image": 259.468038144},
        },
    }

    @classmethod
    def gmacs_in(cls, folder: Path, options: object) -> dict[str, float]:
        """Return the 10^9 multiply-adds of one image."""
        return {"image": image_gmacs(json.dumps(_read(folder)["model_cfg"]))}

    def load_model(self, located: Located) -> torch.nn.Module:
        """Return the checkpoint's model; raise EncoderError if open_clip would fetch a tower or cannot load it."""
        text = _read(located.folder)["model_cfg"].get("text_cfg", {})
        if "hf_model_name" in text:
            raise EncoderError(
                f"{located.identity}: its text tower is {text['hf_model_name']!r} of transformers, "
                "which open_clip would fetch; choose a checkpoint that holds both towers"
            )
        try:
            model = _library().create_model(f"local-dir:{located.folder}")
        except SafetensorError as error:
            raise EncoderError(f"{located.identity}: damaged safetensors ({error}); download it again") from error
        except (RuntimeError, AssertionError) as error:  # torch's message lists keys and shapes on many lines
            last = str(error).strip().splitlines()[-1].strip()
            raise EncoderError(f"{located.identity}: open_clip cannot load it ({last})") from error
        _refuse_resized(model, located)
        return _Towers(model)

    def count_positions(self) -> int:
        """Return the number of tokens that the text tower reads."""
        return int(self._model.model.context_length)

    def load_tokenizer(self, located: Located) -> Any:
        """Return open_clip's tokenizer of the checkpoint; raise EncoderError if its files cannot be read."""
        try:
            return _library().get_tokenizer(f"local-dir:{located.folder}")
        except (OSError, ValueError) as error:
            raise EncoderError(
                f"{located.folder}: no readable tokenizer ({error}); fetch the checkpoint again"
            ) from error

    def read_image_rules(self, folder: Path) -> ImageRules:
        """Return size and colour of the input as `open_clip_config.json` states them."""
        config = _read(folder)
        image_config = _library().transform.merge_preprocess_dict(
            _library().transform.PreprocessCfg(size=config["model_cfg"]["vision_cfg"]["image_size"]),
            {name: value for name, value in config.get("preprocess_cfg", {}).items() if name != "size"},
        )
        size = image_config["size"]
        height, width = (size, size) if isinstance(size, int) else size
        if image_config["resize_mode"] == "longest" or (image_config["resize_mode"] == "shortest" and height != width):
            raise EncoderError(
                f"{folder}: resize_mode {image_config['resize_mode']!r} at {height}x{width} is not known here"
            )
        return TorchvisionRules(
            height=height,
            width=width,
            shortest_edge=height if image_config["resize_mode"] == "shortest" else None,
            resample=_FILTERS[image_config["interpolation"]],
            mean=tuple(image_config["mean"]),
            std=tuple(image_config["std"]),
        )

    def count_tokens(self, query: str) -> int:
        """Return the number of tokens of `query`, both ends included, before any cut."""
        if hasattr(self._tokenizer, "tokenizer"):  # a wrapped tokenizer of transformers
            return len(self._tokenizer.tokenizer(self._tokenizer.clean_fn(query))["input_ids"])
        return len(self._tokenizer.encode(query)) + 2

    def text_inputs(self, texts: Sequence[str]) -> dict[str, torch.Tensor]:
        """Return the token ids of `texts`, padded and cut to the tower's length."""
        return {"input_ids": self._tokenizer(list(texts))}


def _refuse_resized(model: torch.nn.Module, located: Located) -> None:
    """Raise EncoderError if a stored tensor and the one in `model` differ in size: open_clip has then resized it."""
    model_state = model.state_dict()
    with safe_open(located.weight_files[0], "numpy") as stored:
        for name in sorted(stored.keys()):
            shape = stored.get_slice(name).get_shape()
            if name in model_state and math.prod(shape) != model_state[name].numel():
                raise EncoderError(
                    f"{located.identity}: {name} has shape {tuple(shape)}, its configuration says "
                    f"{tuple(model_state[name].shape)}: weights of another model"
                )


class _Towers(torch.nn.Module):
    """open_clip's model under the method names of transformers."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def get_image_features(self, *, pixel_values: torch.Tensor) -> torch.Tensor:
        """Return the image embeddings of fp32 pixel values."""
        features: torch.Tensor = self.model.encode_image(pixel_values)
        return features

    def get_text_features(self, *, input_ids: torch.Tensor) -> torch.Tensor:
        """Return the text embeddings of token ids."""
        features: torch.Tensor = self.model.encode_text(input_ids)
        return features


@lru_cache(maxsize=16)
def image_gmacs(model_cfg: str) -> float:
    """Return the 10^9 multiply-adds of one image, counted by torch on a model without weights.

    Args:
        model_cfg: open_clip's configuration of a model, as JSON.
    """
    config = json.loads(model_cfg)
    # The text tower is not counted: make it as small as possible.
    config["text_cfg"] = {"context_length": 1, "vocab_size": 1, "width": 8, "heads": 1, "layers": 1}
    size = config["vision_cfg"]["image_size"]
    height, width = (size, size) if isinstance(size, int) else size
    config.pop("custom_text", None)
    with torch.device("meta"):
        model = _library().CustomTextCLIP(**config).eval().requires_grad_(False)
        with FlopCounterMode(display=False) as counter:
            model.encode_image(torch.zeros(1, 3, height, width))
    return float(counter.get_total_flops()) / 2e9


def _read(folder: Path) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((folder / OPEN_CLIP.config).read_text(encoding="utf-8"))
    return config
