"""What all encoders on torch share: device, precision, batches, preprocessing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
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
        batch_size: most frames encoded at once; halved when they do not fit into memory. On a GPU every batch is of
            this size, padded at the end of a video; 32 is what a video hands in at a time, so that most are full.
        resize: "pil" on the CPU, "device" with Pillow's own integer arithmetic on the device (bit-equal);
            "auto": "device" on a GPU, else "pil".
        compile: hand the image tower to `torch.compile`.
    """

    device: str = "auto"
    precision: Precision = "fp32"
    batch_size: int = 32
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
    def fills_batches(self) -> bool:
        """Whether batches should be full: on a GPU."""
        return self._torch_device.type == "cuda"

    def embed(self, frames: Any) -> Any:
        """Return the features of RGB uint8 frames `(n, height, width, 3)`; also of a list of such arrays."""
        raise NotImplementedError

    def embed_parts(self, parts: Sequence[Pixels]) -> Any:
        """Return the features of all frames of `parts`, in order; the parts may differ in height and width."""
        return self.embed(list(parts))

    @property
    def encode_seconds(self) -> float:
        """Seconds the device has spent so far in forwards of both towers, for the meter."""
        return sum(runner.device_seconds for runner in self._runners)

    def prepare(self, frames: Pixels) -> Pixels:
        """Return RGB uint8 frames at the encoder's input size, exactly as `embed` would resize them.

        For a decoding thread: what goes on from there is small, and `embed` takes it without a second resize.
        """
        return resize_frames(checked_frames(frames), self.rules_for(*frames.shape[1:3]))

    def rules_for(self, height: int, width: int) -> ImageRules:
        """Return the input's size and colour for frames of that size; most encoders have the same for all."""
        return self.image_rules

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
        self, frames: Pixels | list[Pixels], tower: Callable[[torch.Tensor], torch.Tensor], *, dtype: torch.dtype
    ) -> torch.Tensor:
        """Return `tower(pixel values)` of RGB uint8 frames `(n, h, w, 3)`, batch by batch, as `dtype`."""
        parts = [checked_frames(part) for part in (frames if isinstance(frames, list) else [frames])]
        n = sum(len(part) for part in parts)
        if not n:  # the shape of one frame's features, none of them
            height, width = self.image_rules.height, self.image_rules.width
            return self._encode(np.zeros((1, height, width, 3), dtype=np.uint8), tower, dtype=dtype)[:0]

        def load(batch: slice) -> torch.Tensor:
            values = [self._pixel_values(piece) for piece in _pieces(parts, batch)]
            return values[0] if len(values) == 1 else torch.cat(values)

        return self._image_runner.run(tower, n, dtype=dtype, load=load)

    def _pixel_values(self, frames: Pixels) -> torch.Tensor:
        """Return fp32 pixel values `(n, 3, height, width)` on the device."""
        started = time.perf_counter()
        where, rules = self.options.resize, self.rules_for(*frames.shape[1:3])
        if where == "device" or (where == "auto" and self._torch_device.type == "cuda"):
            images = resize_on_device(self._upload(frames), rules)
        else:
            images = self._upload(resize_frames(frames, rules)).permute(0, 3, 1, 2)
        values = normalise(images, rules)
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


def _pieces(parts: Sequence[Pixels], batch: slice) -> Iterator[Pixels]:
    """Yield the frames `[batch.start, batch.stop)` of `parts` taken one after another, each part's by themselves."""
    start = 0
    for part in parts:
        piece = part[max(0, batch.start - start) : max(0, batch.stop - start)]
        if len(piece):
            yield piece
        start += len(part)
