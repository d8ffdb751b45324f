"""What all encoders on torch share: device, precision, batches, preprocessing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np
import torch

from focus_eval.core.errors import EncoderError, InvalidInput, RunError, is_device_failure
from focus_eval.encoders.preprocess import ImageRules, Resize, normalise, resize_frames, resize_on_device
from focus_eval.encoders.protocol import checked_frames
from focus_eval.encoders.upload import Uploader, fetched
from focus_eval.video.reader import Pixels

Precision = Literal["fp32", "tf32", "bf16", "fp16"]
PRECISIONS: tuple[Precision, ...] = ("fp32", "tf32", "bf16", "fp16")
_HALF = {"bf16": torch.bfloat16, "fp16": torch.float16}
_FORWARD = threading.RLock()  # torch's switches hold for the whole process, so forwards take turns
T = TypeVar("T")
_OUT_OF_MEMORY = ("can't allocate memory", "not enough memory", "out of memory")


def _itself(value: T) -> T:
    return value


@dataclass
class Recoveries:
    """Counts of failures that were recovered from; they stand in the row.

    Args:
        halved_batches: batches that did not fit and were tried again at half their size.
        fp32_batches: batches of half precision that were not finite and were computed again in fp32.
    """

    halved_batches: int = 0
    fp32_batches: int = 0

    def as_dict(self) -> dict[str, int]:
        """Return the counts above 0 by name."""
        return {name: count for name, count in asdict(self).items() if count}


class DeviceClock:
    """Adds up the seconds a device spends inside `with` blocks; on a GPU measured there, without waiting for it."""

    def __init__(self, device: torch.device) -> None:
        self._is_cuda = device.type == "cuda"
        self._seconds = 0.0
        self._pending: list[tuple[Any, Any]] = []
        self._event: Any = torch.cuda.Event
        self._started = 0.0

    def __enter__(self) -> None:
        if self._is_cuda:
            start, stop = self._event(enable_timing=True), self._event(enable_timing=True)
            start.record()
            self._pending.append((start, stop))
        else:
            self._started = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        if self._is_cuda:
            self._pending[-1][1].record()
        else:
            self._seconds += time.perf_counter() - self._started

    @property
    def seconds(self) -> float:
        """Seconds so far; waits for the blocks still queued on the device."""
        with _FORWARD:
            pending, self._pending = self._pending, []
        for start, stop in pending:
            stop.synchronize()
            self._seconds += start.elapsed_time(stop) / 1000
        return self._seconds


class BatchRunner:
    """Runs a forward over `n` frames in batches, in one arithmetic, on one device.

    Args:
        device: where it runs.
        precision: fp32 (what the published runs used; TF32 off, in convolutions too), tf32 (fp32 with TF32 matrix
            products where the GPU has them), bf16, fp16 (weights stay fp32, products are done in half).
        batch_size: most rows at once; halved for good when they do not fit.
    """

    def __init__(
        self, device: torch.device, precision: Precision, batch_size: int, *, recoveries: Recoveries | None = None
    ) -> None:
        if precision not in PRECISIONS:
            raise InvalidInput(f"precision {precision!r} must be one of {', '.join(PRECISIONS)}")
        if batch_size < 1:
            raise InvalidInput(f"batch_size must be at least 1, got {batch_size}")
        self.device = device
        self.precision: Precision = precision
        self.batch_size = batch_size
        self.recoveries = Recoveries() if recoveries is None else recoveries
        self._clock = DeviceClock(device)

    @property
    def device_seconds(self) -> float:
        """Seconds that the device has spent in forwards so far; waits for those still queued."""
        return self._clock.seconds

    @property
    def half_dtype(self) -> torch.dtype:
        """The type in which image tokens are kept: half if the arithmetic is half, else fp32."""
        return _HALF.get(self.precision, torch.float32)

    def run(
        self,
        forward: Callable[[Any], torch.Tensor],
        n: int,
        *,
        dtype: torch.dtype,
        load: Callable[[slice], Any] = _itself,
        rows_per_frame: int = 1,
    ) -> torch.Tensor:
        """Return `forward(load(slice))` over the frames `[0, n)` in batches. Arguments and errors as of `queue`."""
        return self.queue(forward, n, dtype=dtype, load=load, rows_per_frame=rows_per_frame)()

    def queue(
        self,
        forward: Callable[[Any], torch.Tensor],
        n: int,
        *,
        dtype: torch.dtype,
        load: Callable[[slice], Any] = _itself,
        rows_per_frame: int = 1,
        to_host: bool = False,
    ) -> Callable[[], torch.Tensor]:
        """Queue `forward(load(slice))` over the frames `[0, n)` in batches; return what waits for them and joins them.

        All batches are queued before the first is looked at, so that a GPU does not wait for the check. May be
        called from several threads: forwards take turns, since torch's switches hold for the whole process; loads
        do not wait. The function returned waits for these batches alone.

        Args:
            n: frames, at least 1.
            dtype: of the result, joined along the first axis.
            load: makes the input of a batch, e.g. its pixel values on the device; called again where a batch of half
                precision is not finite.
            rows_per_frame: rows of the batch that one frame takes (questions, in a text encoder).
            to_host: whether the result is to be on the processor.

        Raises:
            EncoderError: one frame alone does not fit, or (from the function) fp32 gives no finite number either.
            RunError: the device failed.
        """
        parts: list[tuple[slice, torch.Tensor]] = []
        start = 0
        while start < n:
            part = slice(start, min(n, start + max(1, self.batch_size // rows_per_frame)))
            result = self._attempt(forward, load, part, self.precision)
            if result is None:
                self._halve(part, rows_per_frame)
                continue
            parts.append((part, result.to(dtype)))
            start = part.stop
        results = [fetched(result) if to_host else partial(_itself, result) for _, result in parts]
        finite = fetched(torch.stack([result.isfinite().all() for _, result in parts]))

        def joined() -> torch.Tensor:
            kept = [
                result() if is_finite else self._again_in_fp32(forward, load, part, to_host=to_host).to(dtype)
                for (part, _), result, is_finite in zip(parts, results, finite().tolist(), strict=True)
            ]
            return kept[0] if len(kept) == 1 else torch.cat(kept)

        return joined

    def _attempt(
        self, forward: Callable[[Any], torch.Tensor], load: Callable[[slice], Any], part: slice, precision: Precision
    ) -> torch.Tensor | None:
        """Return the result, or None where it does not fit into memory."""
        try:
            with torch.inference_mode():
                inputs = load(part)
                with arithmetic(precision, self.device), self._clock:
                    return forward(inputs)
        except RuntimeError as error:  # torch's out-of-memory and device errors are RuntimeErrors
            if isinstance(error, torch.cuda.OutOfMemoryError) or any(text in str(error) for text in _OUT_OF_MEMORY):
                return None
            if is_device_failure(error):
                line = str(error).strip().splitlines()[0]
                raise RunError(f"{self.device} failed: {line}; run again, finished rows are kept") from error
            raise

    def _halve(self, part: slice, rows_per_frame: int) -> None:
        size = part.stop - part.start
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        if size == 1:
            raise EncoderError(f"{self.device} has no memory for a batch of 1; free some, or use precision=bf16")
        self.batch_size = size // 2 * rows_per_frame
        self.recoveries.halved_batches += 1

    def _again_in_fp32(
        self, forward: Callable[[Any], torch.Tensor], load: Callable[[slice], Any], part: slice, *, to_host: bool
    ) -> torch.Tensor:
        where = f"frames {part.start} to {part.stop - 1} of a batch"
        if self.precision not in _HALF:
            raise EncoderError(f"{where}: not a finite number in {self.precision}; are the weights damaged?")
        result = self._attempt(forward, load, part, "fp32")
        if result is None:
            raise EncoderError(f"{where}: not finite in {self.precision}, and fp32 does not fit; lower batch_size")
        if not bool(result.isfinite().all()):
            raise EncoderError(f"{where}: not finite in {self.precision}, nor in fp32; are the weights damaged?")
        self.recoveries.fp32_batches += 1
        return result.cpu() if to_host else result


@contextmanager
def arithmetic(precision: Precision, device: torch.device) -> Iterator[None]:
    """Compute in `precision` inside the block, one thread at a time, and restore torch's switches after it.

    TF32 in convolutions is on by default in torch; fp32 here means fp32.
    """
    with _FORWARD, _switched(precision == "tf32"):
        half = _HALF.get(precision)
        with torch.autocast(device.type, dtype=half) if half is not None else nullcontext():
            yield


@contextmanager
def _switched(is_tf32: bool) -> Iterator[None]:
    before = (torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = is_tf32
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


def torch_device(name: str) -> torch.device:
    """Return the device called `name`: "auto" (a GPU where there is one), "cpu", "cuda" or "cuda:1".

    Raises:
        InvalidInput: another name.
        EncoderError: a GPU that is not there.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise InvalidInput(f"device {name!r} must be auto, cpu, cuda or cuda:N") from error
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise EncoderError(f"device {name!r}: {torch.cuda.device_count()} GPUs are visible to torch; use device=cpu")
    if device.type not in ("cpu", "cuda"):
        raise InvalidInput(f"device {name!r} must be auto, cpu, cuda or cuda:N")
    return device


@dataclass(frozen=True, kw_only=True)
class EncoderOptions:
    """How an encoder runs; none but `precision` (and `compile`, in the last digits) changes a number.

    Args:
        device: auto (a GPU where there is one), cpu, cuda, cuda:1.
        precision: fp32, tf32, bf16, fp16.
        batch_size: most frames encoded at once; halved when they do not fit into memory. On a GPU every batch is of
            this size, padded at the end of a video; 32 is what a video hands in at a time, so that most are full.
        resize: "pil" in the threads that decode, "device" with Pillow's own integer arithmetic there (bit-equal);
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
        gmacs: what a frame costs (see `cost`); {} where that is not known.
    """

    extra: ClassVar[str] = "encoders"

    def __init__(self, model: Any, *, image_rules: ImageRules, options: EncoderOptions) -> None:
        self._torch_device = torch_device(options.device)
        self.device = str(self._torch_device)
        self.options = options
        self.image_rules = image_rules
        self.preprocess_seconds = 0.0
        self.gmacs: dict[str, float] = {}
        self._recoveries = Recoveries()
        self._uploader = Uploader(self._torch_device)
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

    def embed(self, frames: Pixels) -> Any:
        """Return the features of RGB uint8 frames `(n, height, width, 3)`."""
        return self.queue_parts([frames])()

    def queue_parts(self, parts: Sequence[Pixels]) -> Callable[[], Any]:
        """Queue the frames of `parts` on the device; return what waits for their features and gives them, in order.

        The parts may differ in height and width. They must not change before the function returned has ended.
        """
        raise NotImplementedError

    @property
    def encode_seconds(self) -> float:
        """Seconds the device has spent so far in forwards of both towers, for the meter."""
        return sum(runner.device_seconds for runner in self._runners)

    def prepare(self, frames: Pixels) -> Pixels:
        """Return RGB uint8 frames at the encoder's input size, exactly as `embed` would resize them.

        For a decoding thread: what goes on from there is small, and `embed` takes it without a second resize. Frames
        that the device resizes come back unchanged.
        """
        if self._resizes_on_device:
            return frames
        return resize_frames(checked_frames(frames), self.rules_for(*frames.shape[1:3]))

    @property
    def _resizes_on_device(self) -> bool:
        where = self.options.resize
        return where == "device" or (where == "auto" and self._torch_device.type == "cuda")

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

    def _queue(
        self,
        parts: Sequence[Pixels],
        tower: Callable[[torch.Tensor], torch.Tensor],
        *,
        dtype: torch.dtype,
        to_host: bool = False,
    ) -> Callable[[], torch.Tensor]:
        """Queue `tower(pixel values)` of all frames of `parts`, batch by batch; see `BatchRunner.queue`."""
        parts = [checked_frames(part) for part in parts]
        n = sum(len(part) for part in parts)
        if not n:  # the shape of one frame's features, none of them
            blank = np.zeros((1, self.image_rules.height, self.image_rules.width, 3), dtype=np.uint8)
            found = self._queue([blank], tower, dtype=dtype, to_host=to_host)
            return lambda: found()[:0]

        def load(batch: slice) -> torch.Tensor:
            return self._pixel_values(*_pieces(parts, batch))

        return self._image_runner.queue(tower, n, dtype=dtype, load=load, to_host=to_host)

    def _pixel_values(self, *parts: Pixels) -> torch.Tensor:
        """Return fp32 pixel values `(n, 3, height, width)` of all frames of `parts`, on the device."""
        started = time.perf_counter()
        rules = [self.rules_for(*part.shape[1:3]) for part in parts]
        if self._resizes_on_device:
            uploaded = self._uploader.upload(parts)
            images = [resize_on_device(part, self.rules_for(*part.shape[1:3])) for part in uploaded]
        else:
            resized = [resize_frames(part, rule) for part, rule in zip(parts, rules, strict=True)]
            images = [part.permute(0, 3, 1, 2) for part in self._uploader.upload(resized)]
        values = normalise(images[0] if len(images) == 1 else torch.cat(images), rules[0])
        self.preprocess_seconds += time.perf_counter() - started
        return values

    def _label(self, identity: str, **settings: Any) -> str:
        return revision_line(identity, precision=self.options.precision, compile=self.options.compile, **settings)


def revision_line(identity: str, *, precision: str = "fp32", compile: bool = False, **settings: Any) -> str:
    """Return an encoder's `revision`: the exact weights, and the options that can change a number."""
    parts = [identity, *(f"{key}={value}" for key, value in settings.items()), f"precision={precision}"]
    return " ".join(parts + ["compiled"] * compile)


def _pieces(parts: Sequence[Pixels], batch: slice) -> Iterator[Pixels]:
    """Yield the frames `[batch.start, batch.stop)` of `parts` taken one after another, each part's by themselves."""
    start = 0
    for part in parts:
        piece = part[max(0, batch.start - start) : max(0, batch.stop - start)]
        if len(piece):
            yield piece
        start += len(part)


class MatchingScorer(TorchScorer):
    """Base of the encoders whose features are image tokens, too many to store.

    A subclass sets `_vision`, the image tower, and `_text_runner`, which runs the text encoder.
    """

    stores_embeddings: ClassVar[bool] = False

    _vision: Any
    _text_runner: BatchRunner

    def queue_parts(self, parts: Sequence[Pixels]) -> Callable[[], torch.Tensor]:
        """Queue image tokens `(n, tokens, width)` on the device: 577 x 1024 for BLIP large, 257 x 1408 for BLIP-2."""
        dtype = self._image_runner.half_dtype
        return self._queue(parts, lambda pixels: self._vision(pixel_values=pixels).last_hidden_state, dtype=dtype)

    def _matched(
        self, features: torch.Tensor, match: Callable[[torch.Tensor, slice], torch.Tensor], *, rows_per_frame: int = 1
    ) -> torch.Tensor:
        """Return `match(image tokens, which frames)` of `features`, batch by batch, float64 on the CPU."""
        found = self._text_runner.queue(
            lambda loaded: match(self._states(loaded[0]), loaded[1]),
            len(features),
            load=lambda part: (features[part].to(self._torch_device), part),
            dtype=torch.float32,
            rows_per_frame=rows_per_frame,
            to_host=True,
        )
        return found().double()

    def _states(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return image tokens in the type that is computed in: half ones may be computed on again in fp32."""
        return tokens if torch.is_autocast_enabled(self._torch_device.type) else tokens.float()


def checked_preprocess(preprocess: str) -> str:
    """Return `preprocess`.

    Raises:
        InvalidInput: neither lavis nor hf.
    """
    if preprocess not in ("lavis", "hf"):
        raise InvalidInput(f"preprocess {preprocess!r} must be lavis or hf")
    return preprocess
