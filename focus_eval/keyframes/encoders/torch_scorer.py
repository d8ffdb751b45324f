"""Base of the encoders on torch: device, precision, batches, preprocessing."""

from __future__ import annotations

import gc
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np
import torch

from focus_eval.core.errors import EncoderError, InvalidInput, RunError, is_device_failure
from focus_eval.core.types import Pixels
from focus_eval.keyframes.encoders.base import Encoder, FrameFeatures, checked_frames
from focus_eval.keyframes.encoders.preprocess import (
    ImageRules,
    Resize,
    normalise,
    read_image_rules,
    release_constants,
    resize_frames,
    resize_on_device,
)
from focus_eval.keyframes.encoders.upload import Uploader, start_fetch
from focus_eval.keyframes.encoders.weights import Located, locate, weights_identity

Precision = Literal["fp32", "tf32", "bf16", "fp16"]
PRECISIONS: tuple[Precision, ...] = ("fp32", "tf32", "bf16", "fp16")
_HALF_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
_FORWARD_LOCK = threading.RLock()  # torch's precision switches hold for the process: run one forward at a time
T = TypeVar("T")
_OUT_OF_MEMORY_TEXTS = ("can't allocate memory", "not enough memory", "out of memory")


def _return_unchanged(value: T) -> T:
    return value


class DeviceClock:
    """Adds up the seconds that a device spends inside `with` blocks; a GPU is timed by events, without waiting for it.

    Events are recorded on the stream in which the block runs: the current stream of `device`, even if another device is
    the current one of the process. When a block begins, the seconds of finished blocks are added up and their events
    are dropped, so that a long run keeps only the events of queued blocks. Blocks do not overlap, because they run
    inside `arithmetic`.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._is_cuda = device.type == "cuda"
        self._seconds = 0.0
        self._pending: deque[tuple[torch.cuda.Event, torch.cuda.Event]] = deque()
        self._started: torch.cuda.Event | float = 0.0

    def __enter__(self) -> None:
        """Begin to count: record an event on a GPU's stream, or note the time on a processor."""
        if self._is_cuda:
            self._add_finished()
            self._started = self._record()
        else:
            self._started = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        """End the count; the time of a GPU is added later, when its events have passed."""
        started, self._started = self._started, 0.0
        if isinstance(started, float):
            self._seconds += time.perf_counter() - started
        else:
            self._pending.append((started, self._record()))

    @property
    def seconds(self) -> float:
        """Seconds of all finished blocks, without waiting for blocks that still run."""
        with _FORWARD_LOCK:
            self._add_finished()
            return self._seconds

    def _record(self) -> torch.cuda.Event:
        """Record an event on the current stream of the GPU and return it."""
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self._device))
        return event

    def _add_finished(self) -> None:
        """Add the seconds of the blocks that the GPU has finished; does not wait."""
        while self._pending and self._pending[0][1].query():
            start, stop = self._pending.popleft()
            self._seconds += start.elapsed_time(stop) / 1000


class BatchRunner:
    """Runs a forward over `n` frames in batches, in one precision, on one device.

    Args:
        device: where it runs.
        precision: fp32 (as in the published runs; TF32 off, in convolutions too), tf32 (fp32 with TF32 matrix products
            on GPUs that have them), bf16, fp16 (weights stay fp32, products are in half precision).
        batch_size: limit on the rows of a batch; it is halved, for all later batches too, if a batch does not fit.
        recoveries: counts the failures recovered from, for the row. `halved_batches` did not fit and were run again at
            half their size. `fp32_batches` were not finite in half precision and were run again in fp32.
    """

    def __init__(
        self, device: torch.device, precision: Precision, batch_size: int, *, recoveries: Counter[str] | None = None
    ) -> None:
        if precision not in PRECISIONS:
            raise InvalidInput(f"precision {precision!r} must be one of {', '.join(PRECISIONS)}")
        if batch_size < 1:
            raise InvalidInput(f"batch_size must be at least 1, got {batch_size}")
        self.device = device
        self.precision: Precision = precision
        self.batch_size = batch_size
        self.recoveries = Counter[str]() if recoveries is None else recoveries
        self.clock = DeviceClock(device)

    @property
    def half_dtype(self) -> torch.dtype:
        """Type in which image tokens are stored: the half precision that `precision` names, else fp32."""
        return _HALF_DTYPES.get(self.precision, torch.float32)

    def run(
        self,
        forward: Callable[[slice], torch.Tensor],
        n: int,
        *,
        dtype: torch.dtype,
        rows_per_frame: int = 1,
    ) -> torch.Tensor:
        """Return `forward(slice)` over the frames `[0, n)` in batches. Arguments and errors as of `queue`."""
        return self.queue(forward, n, dtype=dtype, load=_return_unchanged, rows_per_frame=rows_per_frame)()

    def queue(
        self,
        forward: Callable[[T], torch.Tensor],
        n: int,
        *,
        dtype: torch.dtype,
        load: Callable[[slice], T],
        rows_per_frame: int = 1,
        to_host: bool = False,
    ) -> Callable[[], torch.Tensor]:
        """Queue `forward(load(slice))` over the frames `[0, n)` in batches; return a function that joins the results.

        All batches are queued before the first is checked, so that a GPU does not wait for the check. Several threads
        may call this: forwards take turns, since torch's switches hold for the whole process, but loads do not wait.
        The returned function waits only for these batches.

        Args:
            n: number of frames, at least 1.
            dtype: type of the result, which is joined along the first axis.
            load: makes the input of a batch, e.g. its pixel values on the device; called a second time for a batch that
                is not finite in half precision.
            rows_per_frame: number of rows of the batch that one frame takes (questions, in a text encoder).
            to_host: True to copy the result to host memory.

        Raises:
            EncoderError: a single frame does not fit, or (raised by the returned function) fp32 is not finite either.
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
        results = [start_fetch(result) if to_host else partial(_return_unchanged, result) for _, result in parts]
        finite = start_fetch(torch.stack([result.isfinite().all() for _, result in parts]))

        def joined() -> torch.Tensor:
            """Wait for all batches and return them joined; a batch that is not finite is computed again in fp32."""
            finished = [
                result() if is_finite else self._repeat_in_fp32(forward, load, part, to_host=to_host).to(dtype)
                for (part, _), result, is_finite in zip(parts, results, finite().tolist(), strict=True)
            ]
            return finished[0] if len(finished) == 1 else torch.cat(finished)

        return joined

    def _attempt(
        self,
        forward: Callable[[T], torch.Tensor],
        load: Callable[[slice], T],
        part: slice,
        precision: Precision,
    ) -> torch.Tensor | None:
        """The result of the forward over `part`; None if the batch does not fit into memory."""
        try:
            with torch.inference_mode():
                inputs = load(part)
                with arithmetic(precision, self.device), self.clock:
                    return forward(inputs)
        except RuntimeError as error:  # torch's out-of-memory and device errors are RuntimeErrors
            if isinstance(error, torch.cuda.OutOfMemoryError) or any(
                text in str(error) for text in _OUT_OF_MEMORY_TEXTS
            ):
                return None
            if is_device_failure(error):
                line = str(error).strip().splitlines()[0]
                raise RunError(f"{self.device} failed: {line}; run again, finished rows are kept") from error
            raise

    def _halve(self, part: slice, rows_per_frame: int) -> None:
        """Halve the batch size after the batch `part` did not fit; raise EncoderError if it was a single frame."""
        size = part.stop - part.start
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        if size == 1:
            raise EncoderError(f"{self.device} has no memory for a batch of 1; free some, or use precision=bf16")
        self.batch_size = size // 2 * rows_per_frame
        self.recoveries["halved_batches"] += 1

    def _repeat_in_fp32(
        self, forward: Callable[[T], torch.Tensor], load: Callable[[slice], T], part: slice, *, to_host: bool
    ) -> torch.Tensor:
        """Return the forward over `part` in fp32, after a half-precision result that was not finite.

        Raises EncoderError if fp32 is not finite either, or does not fit.
        """
        label = f"frames {part.start} to {part.stop - 1} of a batch"
        if self.precision not in _HALF_DTYPES:
            raise EncoderError(f"{label}: not a finite number in {self.precision}; are the weights damaged?")
        result = self._attempt(forward, load, part, "fp32")
        if result is None:
            raise EncoderError(f"{label}: not finite in {self.precision}, and fp32 does not fit; lower batch_size")
        if not bool(result.isfinite().all()):
            raise EncoderError(f"{label}: not finite in {self.precision}, nor in fp32; are the weights damaged?")
        self.recoveries["fp32_batches"] += 1
        return result.cpu() if to_host else result


@contextmanager
def arithmetic(precision: Precision, device: torch.device) -> Iterator[None]:
    """Compute in `precision` inside the block, one thread at a time, and restore torch's switches after it.

    "fp32" switches TF32 off, which torch by default uses in convolutions.
    """
    with _FORWARD_LOCK, _switch_precisions(is_tf32=precision == "tf32"):
        half = _HALF_DTYPES.get(precision)
        with torch.autocast(device.type, dtype=half) if half is not None else nullcontext():
            yield


@contextmanager
def _switch_precisions(*, is_tf32: bool) -> Iterator[None]:
    """Switch TF32 of a GPU on or off, the reduced precisions of a processor off, and restore all as they were.

    torch has two sets of switches. The older ones (`allow_tf32`, `set_float32_matmul_precision`) raise an error if the
    newer ones (`fp32_precision`, from torch 2.9 on) disagree with them, so both sets are changed.
    """
    switches = _precision_switches()
    shown_precisions = [switch.fp32_precision for switch in switches]
    precisions = []
    # A switch that is not set shows the value of its parent. Clear the parents first: each switch then shows its own.
    for switch in switches:
        precisions.append(switch.fp32_precision)
        switch.fp32_precision = "none"
    # Now that the newer switches are cleared, the older ones can be read.
    matmul, allows_tf32 = torch.get_float32_matmul_precision(), True
    # If old and new switches still disagree, reading raises an error; TF32 in convolutions is on in that case.
    with suppress(RuntimeError):
        allows_tf32 = bool(torch.backends.cudnn.allow_tf32)
    try:
        torch.set_float32_matmul_precision("high" if is_tf32 else "highest")
        torch.backends.cudnn.allow_tf32 = is_tf32
        for switch in switches[2:5]:
            switch.fp32_precision = "tf32" if is_tf32 else "ieee"
        for switch in switches[5:]:
            switch.fp32_precision = "ieee"
        yield
    finally:
        # Restore the newer switches last, because setting the older ones overwrites them.
        torch.set_float32_matmul_precision(matmul)
        torch.backends.cudnn.allow_tf32 = allows_tf32
        for switch, precision in reversed([*zip(switches, precisions, strict=True)]):
            switch.fp32_precision = precision
        # The unset default of cuDNN cannot be restored: "none" makes a switch follow its parent, which is equivalent.
        for switch, precision in zip(switches, shown_precisions, strict=True):
            if switch.fp32_precision != precision:
                switch.fp32_precision = "none"


def _precision_switches() -> list[Any]:
    """Torch's newer switches: two parents, three for a GPU, three for a processor; [] before torch 2.9."""
    backends: Any = torch.backends
    if not hasattr(backends, "fp32_precision"):
        return []
    gpu = [backends.cuda.matmul, backends.cudnn.conv, backends.cudnn.rnn]
    cpu = [backends.mkldnn.matmul, backends.mkldnn.conv, backends.mkldnn.rnn]
    return [backends, backends.cudnn, *gpu, *cpu]


def torch_device(name: str) -> torch.device:
    """Return the device called `name`: "auto" (a GPU if there is one), "cpu", "cuda" or "cuda:1".

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
    """Options of every encoder on torch; only `precision` changes results, and `compile` their last digits.

    Args:
        checkpoint: a known name, a repository of the model hub, or a folder; see `focus-eval doctor`. "": the default.
        revision: commit, tag or branch of the repository; None: the one stated with a known name, else "main".
        device: auto (a GPU if there is one), cpu, cuda, cuda:1.
        precision: fp32, tf32, bf16, fp16.
        batch_size: limit on the frames encoded at once; it is halved if they do not fit into memory. On a GPU every
            batch is padded to this size. A video hands in 32 frames at a time, so that few batches need padding.
        resize: "pil": Pillow, in the threads that decode; "device": Pillow's integer arithmetic on the device
            (bit-equal); "auto": "device" on a GPU, else "pil".
        compile: pass the image tower to `torch.compile`.
    """

    checkpoint: str = ""
    revision: str | None = None
    device: str = "auto"
    precision: Precision = "fp32"
    batch_size: int = 32
    resize: Resize = "auto"
    compile: bool = False

    def __post_init__(self) -> None:
        """Raise InvalidInput for an unknown `resize`."""
        if self.resize not in ("auto", "pil", "device"):
            raise InvalidInput(f"resize {self.resize!r} must be auto, pil or device")


class TorchScorer(Encoder):
    """Base of the encoders on torch: loads a checkpoint and turns frames into image features in batches.

    A subclass defines how its parts load (`load_model`, `read_image_rules`, `load_text`), and its parts of `revision`
    (`settings`) and `gmacs` (`gmacs_in`). Its options are the fields of `options_type`.

    Attributes:
        image_rules: size and colour of the encoder's input.
        preprocess_seconds: seconds spent so far on resizing and uploading.

    Raises:
        MissingWeights, EncoderError: see `weights.locate`.
    """

    extra: ClassVar[str] = "encoders"
    options_type: ClassVar[type[EncoderOptions]] = EncoderOptions

    options: EncoderOptions
    image_rules: ImageRules
    recoveries: Counter[str]
    _text_runner: BatchRunner

    def __init__(self, **options: Any) -> None:
        """Load the checkpoint on the device and state its revision; options are those of `options_type`."""
        self._prepare_device(self.options_type(**options))
        located = self._locate(self.options)
        self._load_on_device(self.load_model(located), self.read_image_rules(located.folder))
        self.load_text(located)
        self.revision = revision_line(located.identity, self.options, self.settings(self.options))
        self.gmacs = self.gmacs_in(located.folder, self.options)

    def _prepare_device(self, options: EncoderOptions) -> None:
        """Set up device, clock and batches, which need no weights."""
        self.options = options
        self._torch_device = torch_device(options.device)
        self.device = str(self._torch_device)
        self.preprocess_seconds = 0.0
        self.recoveries = Counter[str]()
        self._uploader = Uploader(self._torch_device)
        self._runners: list[BatchRunner] = []
        self._image_runner = self._runner(options.batch_size)

    def _load_on_device(self, model: torch.nn.Module, image_rules: ImageRules) -> None:
        """Move the model to the device in fp32, ready for inference, and keep the image rules.

        On a GPU, frames of several videos share batches if the input has one size.
        """
        self.image_rules = image_rules
        self._model: Any = model.to(device=self._torch_device, dtype=torch.float32).eval().requires_grad_(False)
        if self._torch_device.type == "cuda" and image_rules.has_one_size:
            self.fills_batches = True

    def load_model(self, located: Located) -> torch.nn.Module:
        """Return the checkpoint's model, all towers."""
        raise NotImplementedError

    def read_image_rules(self, folder: Path) -> ImageRules:
        """Return size and colour of the input as the checkpoint in `folder` states them."""
        return read_image_rules(folder)

    def load_text(self, located: Located) -> None:
        """Load the parts that read a query, such as the tokenizer; by default none."""

    @classmethod
    def settings(cls, options: Any) -> dict[str, object]:
        """Return the settings of this kind of encoder that can change its results; none by default.

        `revision` must name these settings.
        """
        return {}

    @classmethod
    def gmacs_in(cls, folder: Path, options: Any) -> dict[str, float]:
        """Return the `gmacs` of the checkpoint in `folder`; loads no weights."""
        return {}

    @classmethod
    def revision_of(cls, **options: Any) -> str:
        """Return the `revision` with these options, from the checkpoint's files; loads no weights."""
        parsed = cls.options_type(**options)
        identity = weights_identity(parsed.checkpoint or cls.default_checkpoint, parsed.revision)
        return revision_line(identity, parsed, cls.settings(parsed))

    @classmethod
    def gmacs_of(cls, **options: Any) -> dict[str, float]:
        """Return the `gmacs` of an encoder with these options; loads no weights, which must be on this machine."""
        parsed = cls.options_type(**options)
        return cls.gmacs_in(cls._locate(parsed).folder, parsed)

    @classmethod
    def _locate(cls, options: EncoderOptions) -> Located:
        """The checkpoint that the options name, or the default one; raises MissingWeights if it is not here."""
        name = options.checkpoint or cls.default_checkpoint
        return locate(name, revision=options.revision, model_type=cls.model_type)

    @property
    def batch_size(self) -> int:  # type: ignore[override]
        """Current limit on the frames encoded at once: the option, or less after a batch did not fit."""
        return self._image_runner.batch_size

    def embed(self, frames: Pixels) -> FrameFeatures:
        """Return the features of RGB uint8 frames `(n, height, width, 3)`."""
        return self.queue_parts([frames])()

    @property
    def device_seconds(self) -> float:
        """Seconds that the device has spent in finished forwards of both towers, by its own clock."""
        return sum(runner.clock.seconds for runner in self._runners)

    def prepare(self, frames: Pixels) -> Pixels:
        """Return RGB uint8 frames at the encoder's input size, exactly as `embed` would resize them.

        It runs in a decoding thread, so that only small frames are passed on. If the device resizes, frames are
        returned unchanged.
        """
        if self._resizes_on_device:
            return frames
        return resize_frames(checked_frames(frames), self.image_rules.of_size(*frames.shape[1:3]))

    @property
    def _resizes_on_device(self) -> bool:
        """True if frames are resized on the device: "device", or "auto" on a GPU."""
        resize = self.options.resize
        return resize == "device" or (resize == "auto" and self._torch_device.type == "cuda")

    def close(self) -> None:
        """Release weights and device memory; the encoder cannot be used again.

        A subclass first drops its own references to the model and to tensors on the device.
        """
        self._model = None
        self._uploader.close()
        release_constants()
        gc.collect()  # networks hold reference cycles: collect now to free the device memory
        if self._torch_device.type == "cuda":
            torch.cuda.empty_cache()

    def _runner(self, batch_size: int) -> BatchRunner:
        """A new runner of batches on the encoder's device; its device time is added to the encoder's."""
        runner = BatchRunner(self._torch_device, self.options.precision, batch_size, recoveries=self.recoveries)
        self._runners.append(runner)
        return runner

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
        if not n:  # run one black frame to learn the shape of features, and return none of them
            blank = np.zeros((1, self.image_rules.height, self.image_rules.width, 3), dtype=np.uint8)
            finish = self._queue([blank], tower, dtype=dtype, to_host=to_host)
            return lambda: finish()[:0]

        def load(batch: slice) -> torch.Tensor:
            """Return the pixel values of the frames `batch`."""
            return self._pixel_values(*_split_parts(parts, batch))

        return self._image_runner.queue(tower, n, dtype=dtype, load=load, to_host=to_host)

    def _pixel_values(self, *parts: Pixels) -> torch.Tensor:
        """Fp32 pixel values `(n, 3, height, width)` of all frames of `parts`, on the device."""
        started = time.perf_counter()
        rules = [self.image_rules.of_size(*part.shape[1:3]) for part in parts]
        if self._resizes_on_device:
            uploaded = self._uploader.upload(parts)
            images = [resize_on_device(part, self.image_rules.of_size(*part.shape[1:3])) for part in uploaded]
        else:
            resized = [resize_frames(part, rule) for part, rule in zip(parts, rules, strict=True)]
            images = [part.permute(0, 3, 1, 2) for part in self._uploader.upload(resized)]
        values = normalise(images[0] if len(images) == 1 else torch.cat(images), rules[0])
        self.preprocess_seconds += time.perf_counter() - started
        return values


def revision_line(identity: str, options: EncoderOptions, settings: Mapping[str, object]) -> str:
    """Return an encoder's `revision`: the exact weights, and the options that can change a result."""
    parts = [identity, *(f"{key}={value}" for key, value in settings.items()), f"precision={options.precision}"]
    return " ".join(parts + ["compiled"] * options.compile)


def _split_parts(parts: Sequence[Pixels], batch: slice) -> Iterator[Pixels]:
    """Yield the frames `[batch.start, batch.stop)` of the joined `parts`, piece by piece without joining them."""
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

    _vision: Any

    def close(self) -> None:
        """Release weights and device memory; the encoder cannot be used again."""
        self._vision = None
        super().close()

    def queue_parts(self, parts: Sequence[Pixels]) -> Callable[[], torch.Tensor]:
        """Queue frames; the returned function gives their image tokens `(n, tokens, width)`, left on the device."""
        dtype = self._image_runner.half_dtype
        return self._queue(parts, lambda pixels: self._vision(pixel_values=pixels).last_hidden_state, dtype=dtype)

    def _match_in_batches(
        self, features: torch.Tensor, match: Callable[[torch.Tensor, slice], torch.Tensor], *, rows_per_frame: int = 1
    ) -> torch.Tensor:
        """`match(image tokens, slice of frames)` of `features`, batch by batch, float64 on the CPU."""
        finish = self._text_runner.queue(
            lambda loaded: match(self._states(loaded[0]), loaded[1]),
            len(features),
            load=lambda part: (features[part].to(self._torch_device), part),
            dtype=torch.float32,
            rows_per_frame=rows_per_frame,
            to_host=True,
        )
        return finish().double()

    def _states(self, tokens: torch.Tensor) -> torch.Tensor:
        """Image tokens in the type of the computation: without autocast, half-precision tokens become fp32."""
        return tokens if torch.is_autocast_enabled(self._torch_device.type) else tokens.float()
