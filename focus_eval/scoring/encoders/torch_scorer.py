"""What all encoders on torch share: device, precision, batches, preprocessing."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from focus_eval.errors import InvalidInput
from focus_eval.scoring.encoders.precision import BatchRunner, Precision, Recoveries, torch_device
from focus_eval.scoring.encoders.preprocess import ImageRules, Resize, normalise, resize_frames, resize_on_device
from focus_eval.scoring.scorer import checked_frames
from focus_eval.video.reader import Pixels


@dataclass(frozen=True, kw_only=True)
class EncoderOptions:
    """How an encoder runs; none but `precision` (and `compile`, in the last digits) changes a number.

    Args:
        device: auto (a GPU where there is one), cpu, cuda, cuda:1.
        precision: fp32, tf32, bf16, fp16.
        batch_size: most frames encoded at once; halved when they do not fit into memory.
        resize: "pil" on the CPU, "device" with Pillow's own integer arithmetic on the device (bit-equal);
            "auto": "device" on a GPU, else "pil".
        compile: hand the image tower to `torch.compile`.
    """

    device: str = "auto"
    precision: Precision = "fp32"
    batch_size: int = 64
    resize: Resize = "auto"
    compile: bool = False

    def __post_init__(self) -> None:
        if self.resize not in ("auto", "pil", "device"):
            raise InvalidInput(f"resize {self.resize!r} must be auto, pil or device")


class TorchScorer:
    """Base of the encoders: turns frames into image features in batches.

    Attributes:
        device: torch name of the device in use, e.g. "cpu", "cuda:0".
        image_rules: the encoder's input.
        preprocess_seconds: time spent so far on resizing and uploading, for the meter.
    """

    def __init__(self, model: Any, *, image_rules: ImageRules, options: EncoderOptions) -> None:
        self._torch_device = torch_device(options.device)
        self.device = str(self._torch_device)
        self.options = options
        self.image_rules = image_rules
        self.preprocess_seconds = 0.0
        self._recoveries = Recoveries()
        self._runners: list[BatchRunner] = []
        self._model = model.to(device=self._torch_device, dtype=torch.float32).eval().requires_grad_(False)
        self._image_runner = self._runner(options.batch_size)

    @property
    def recoveries(self) -> dict[str, int]:
        """Batches halved for memory and batches redone in fp32 so far, by name; {} where all went well."""
        return self._recoveries.as_dict()

    @property
    def batch_size(self) -> int:
        """Most frames encoded at once now: the option, or less after a batch did not fit."""
        return self._image_runner.batch_size

    @property
    def encode_seconds(self) -> float:
        """Seconds the device has spent so far in forwards of both towers, for the meter."""
        return sum(runner.device_seconds for runner in self._runners)

    def prepare(self, frames: Pixels) -> Pixels:
        """Return RGB uint8 frames at the encoder's input size, exactly as `embed` would resize them.

        For a decoding thread: what goes on from there is small, and `embed` takes it without a second resize.
        """
        return resize_frames(checked_frames(frames), self.image_rules)

    def close(self) -> None:
        """Release weights and device memory."""
        self._model = None
        if self._torch_device.type == "cuda":
            torch.cuda.empty_cache()

    def _runner(self, batch_size: int) -> BatchRunner:
        made = BatchRunner(self._torch_device, self.options.precision, batch_size, recoveries=self._recoveries)
        self._runners.append(made)
        return made

    def _encode(
        self, frames: Pixels, tower: Callable[[torch.Tensor], torch.Tensor], *, dtype: torch.dtype
    ) -> torch.Tensor:
        """Return `tower(pixel values)` of RGB uint8 frames `(n, h, w, 3)`, batch by batch, as `dtype`."""
        checked_frames(frames)
        if not len(frames):  # the shape of one frame's features, none of them
            height, width = self.image_rules.height, self.image_rules.width
            return self._encode(np.zeros((1, height, width, 3), dtype=np.uint8), tower, dtype=dtype)[:0]
        load: Callable[[slice], torch.Tensor] = lambda part: self._pixel_values(frames[part])  # noqa: E731
        return self._image_runner.run(tower, len(frames), dtype=dtype, load=load)

    def _pixel_values(self, frames: Pixels) -> torch.Tensor:
        """Return fp32 pixel values `(n, 3, height, width)` on the device."""
        started = time.perf_counter()
        where = self.options.resize
        if where == "device" or (where == "auto" and self._torch_device.type == "cuda"):
            images = resize_on_device(self._upload(frames), self.image_rules)
        else:
            images = self._upload(resize_frames(frames, self.image_rules)).permute(0, 3, 1, 2)
        values = normalise(images, self.image_rules)
        self.preprocess_seconds += time.perf_counter() - started
        return values

    def _upload(self, frames: Pixels) -> torch.Tensor:
        tensor = torch.tensor(frames)
        if self._torch_device.type == "cuda":
            return tensor.pin_memory().to(self._torch_device, non_blocking=True)
        return tensor

    def _label(self, identity: str, **settings: Any) -> str:
        """Return the revision line: the weights, and the options that can change a number."""
        parts = [
            identity,
            *(f"{key}={value}" for key, value in settings.items()),
            f"precision={self.options.precision}",
        ]
        return " ".join(parts + ["compiled"] * self.options.compile)
