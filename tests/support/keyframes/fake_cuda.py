"""Fake CUDA devices: tensors that state a CUDA device, compute on the processor, and break the rules of no stream.

    with FakeCuda(n_devices=2) as cuda:
        values = torch.ones(3).to("cuda:1") * 2     # a tensor of cuda:1; adding one of the processor's to it raises
        print(cuda.bytes_alive("cuda:1"))

Unlike torch's fake mode the tensors have numbers, so that results can be compared with the processor's. Work on a
stream is over, for the host, only once the host has waited for it: until then a copy to pinned memory leaves noise
there, and pinned memory that is copied from must not change. An operation takes a millisecond of its stream.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, ClassVar
from unittest import mock

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_leaves, tree_map

from focus_eval.keyframes.encoders import preprocess, upload

_ATEN = torch.ops.aten
_SECONDS_PER_OPERATION = 0.001


class DeviceMistake(AssertionError):
    """A use of devices or streams that is a race or an error on a GPU."""


@dataclass(eq=False)
class Stream:
    """Queue of a device: `position` operations were queued, the host knows `n_finished` to be over."""

    device: torch.device
    position: int = 0
    n_finished: int = 0
    copies: list[tuple[int, Any]] = field(default_factory=list)
    waits: list[tuple[int, Stream, int]] = field(default_factory=list)

    def wait_event(self, event: Event) -> None:
        if event.stream is not None:
            self.waits.append((self.position, event.stream, event.position))

    def has_waited_for(self, stream: Stream, position: int) -> bool:
        """Return True if work queued here now comes after `position` operations of `stream`."""
        waits = any(other is stream and at >= position for _, other, at in self.waits)
        return stream is self or stream.n_finished >= position or waits

    def finish(self, position: int) -> None:
        """Let the host know that `position` operations are over, with all that they waited for."""
        for queued_at, other, at in self.waits:
            if queued_at < position and other.n_finished < at:
                other.finish(at)
        for _, copy in [copy for copy in self.copies if copy[0] <= position]:
            copy()
        self.copies = [copy for copy in self.copies if copy[0] > position]
        self.n_finished = max(self.n_finished, position)


class Event:
    """CUDA event: a position of the stream it is recorded on."""

    alive: ClassVar[weakref.WeakSet[Event]] = weakref.WeakSet()

    def __init__(self, *, enable_timing: bool = False, blocking: bool = False) -> None:
        self.stream: Stream | None = None
        self.position, self._is_timed = 0, enable_timing
        Event.alive.add(self)

    def record(self, stream: Stream | None = None) -> None:
        self.stream = stream or torch.cuda.current_stream()
        self.position = self.stream.position

    def query(self) -> bool:
        return self.stream is None or self.stream.n_finished >= self.position

    def synchronize(self) -> None:
        if self.stream is not None:
            self.stream.finish(self.position)

    def elapsed_time(self, stop: Event) -> float:
        if not (self._is_timed and stop._is_timed and self.stream is stop.stream and self.stream and stop.query()):
            raise DeviceMistake("the time between two events of one stream that are over, made with enable_timing")
        return 1000 * _SECONDS_PER_OPERATION * (stop.position - self.position)


@dataclass(eq=False)
class Memory:
    """Bytes of a device, allocated on `stream`; last written on `written_on`, as its operation `written_at`."""

    n_bytes: int
    stream: Stream
    written_on: Stream
    written_at: int
    readers: list[Stream] = field(default_factory=list)


class CudaTensor(torch.Tensor):
    """Tensor that states a CUDA device; `on_host` holds its numbers on the processor."""

    on_host: torch.Tensor
    memory: Memory

    @staticmethod
    def __new__(cls, values: torch.Tensor, memory: Memory) -> CudaTensor:
        layout = {"strides": values.stride(), "storage_offset": values.storage_offset(), "dtype": values.dtype}
        device = memory.stream.device
        with torch.inference_mode(False):  # a view of a module's tensor must be no inference tensor
            tensor = torch.Tensor._make_wrapper_subclass(cls, values.shape, device=device, **layout)
        tensor.on_host, tensor.memory = values, memory
        return tensor

    __torch_function__ = torch._C._disabled_torch_function_impl

    def tolist(self) -> Any:
        return self.cpu().tolist()

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        return f"{self.on_host!r} of {self.device}"

    def record_stream(self, stream: Stream) -> None:
        self.memory.readers.append(stream)

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return FakeCuda.current.dispatch(function, args, kwargs or {})


class _Indexed(TorchFunctionMode):
    """Answers what torch would ask the driver: which device "cuda" is, and how numbers get to a device."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is not torch.device:
            args, kwargs = tree_map(_with_index, (args, kwargs))
        kwargs = kwargs or {}
        if function in (torch.tensor, torch.as_tensor) and not isinstance(args[0], torch.Tensor):
            numbers = tree_map(lambda leaf: leaf.item() if isinstance(leaf, CudaTensor) else leaf, args[0])
            device = kwargs.pop("device", None)
            return function(numbers, *args[1:], **kwargs).to(device or "cpu")
        return function(*args, **kwargs)


class _ThreadMode(TorchDispatchMode):
    """Dispatch of a thread that set its device; a mode of torch holds in its own thread alone."""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return FakeCuda.current.dispatch(function, args, kwargs or {})


class FakeCuda(TorchDispatchMode):
    """Context in which torch has `n_devices` CUDA devices of `capacity` bytes each; the first is the current one.

    Another thread that begins meanwhile has them once it calls `torch.cuda.set_device`, as a thread of a GPU's user
    should.
    """

    current: FakeCuda

    def __init__(self, n_devices: int = 2, capacity: float = float("inf")) -> None:
        super().__init__()
        self.capacity, self.peak_bytes = capacity, 0
        self._streams = {index: Stream(torch.device("cuda", index)) for index in range(n_devices)}
        self._memories: weakref.WeakSet[Memory] = weakref.WeakSet()
        self._allocating = threading.RLock()  # threads that prepare ahead allocate too
        self._pinned = set[int]()
        self._of_thread = threading.local()
        self._patches = ExitStack()

    @property
    def _device_index(self) -> int:
        """Index of this thread's current device."""
        return getattr(self._of_thread, "index", 0)

    @_device_index.setter
    def _device_index(self, index: int) -> None:
        self._of_thread.index = index

    def bytes_alive(self, device: str) -> int:
        """Return the bytes allocated on `device`."""
        with self._allocating:
            return sum(memory.n_bytes for memory in self._memories if memory.stream.device == torch.device(device))

    def n_operations(self, device: str) -> int:
        """Return the number of operations queued on `device`, those of streams of its own left out."""
        return self._streams[torch.device(device).index].position

    def __enter__(self) -> FakeCuda:
        if torch.cuda.is_available():
            pytest.skip("this machine has a GPU, whose tests are test_gpu.py")
        FakeCuda.current, self._thread = self, threading.current_thread()
        torch._C._ensureCUDADeviceGuardSet()  # else views ask the driver
        replacements = {
            "_lazy_init": lambda: None, "is_available": lambda: True, "is_initialized": lambda: True,
            "is_bf16_supported": lambda *_: True, "device_count": lambda: len(self._streams),
            "current_device": lambda: self._device_index, "empty_cache": lambda: None, "set_device": self._set_device,
            "get_device_name": lambda _=None: "fake CUDA", "current_stream": self._stream_of, "stream": self._on_stream,
            "Stream": lambda device: Stream(self._indexed(device)), "Event": Event,
            "get_device_capability": lambda _=None: (9, 0),
            "get_device_properties": lambda _=None: SimpleNamespace(name="fake CUDA", total_memory=self.capacity),
        }  # fmt: skip
        for name, replacement in replacements.items():
            self._patches.enter_context(mock.patch.object(torch.cuda, name, replacement))
        # Weights are read in this thread: one of transformers' own has no fake devices.
        self._patches.enter_context(mock.patch.dict(os.environ, {"HF_DEACTIVATE_ASYNC_LOAD": "1"}))
        self._patches.enter_context(mock.patch.object(upload, "_STREAM", replacements["Stream"]))
        self._patches.enter_context(mock.patch.object(upload, "_EVENT", Event))
        preprocess.release_constants()
        # A module's tensors are replaced when it moves: `.data = ` would keep the processor's type.
        torch.__future__.set_overwrite_module_params_on_conversion(True)
        self._patches.callback(torch.__future__.set_overwrite_module_params_on_conversion, False)
        self._patches.enter_context(_Indexed())
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._patches.close()
        preprocess.release_constants()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self.dispatch(function, args, kwargs or {})

    def dispatch(self, function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Compute an operation where its tensors are; refuse what a GPU would refuse or do wrongly."""
        if function.overloadpacket is _ATEN.to:
            return self._decompose(function, args, kwargs)
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        inputs = [tensor for tensor in tensors if isinstance(tensor, CudaTensor)]
        target = self._indexed(kwargs["device"]) if kwargs.get("device") is not None else None
        if function is _ATEN.copy_.default and inputs:
            return self._copy(*args, **kwargs)
        is_cuda = target is not None and target.type == "cuda"
        if function is _ATEN._to_copy.default and target not in (None, args[0].device) and (is_cuda or inputs):
            return self._move(args[0], target, kwargs)
        if not inputs and not is_cuda:
            return self._compute_on_host(function, args, kwargs)
        # A number of the processor may meet tensors of a device, an array may not.
        devices = {tensor.device for tensor in tensors if tensor.dim() or isinstance(tensor, CudaTensor)}
        if len(devices) > 1:
            raise RuntimeError(f"Expected all tensors to be on the same device, but {function} got {devices}")
        stream = self._stream_of(target or inputs[0].device)
        for tensor in inputs:
            self._read(tensor, stream)
        stream.position += 1
        if function is _ATEN._fused_sdp_choice.default:
            return 0  # plain matrix products, which both devices have
        if function is _ATEN._local_scalar_dense.default:
            stream.finish(stream.position)
        plain_args, plain_kwargs = tree_map(_values, (args, {**kwargs, **({"device": "cpu"} if target else {})}))
        plain_kwargs.pop("pin_memory", None)
        result = function(*plain_args, **plain_kwargs)
        result = tree_map(lambda leaf: self._on_device(leaf, stream, inputs), result)
        return return_and_correct_aliasing(function, args, kwargs, result) if inputs else result

    def _decompose(self, function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Take `to` apart, which inference mode passes on whole, into the copies that it makes."""
        with _ThreadMode():
            return function.decompose(*args, **kwargs)

    def _on_device(self, values: Any, stream: Stream, inputs: list[CudaTensor]) -> Any:
        """Return a result as a tensor of the stream's device; a view shares the memory of what it views."""
        if not isinstance(values, torch.Tensor):
            return values
        address = values.untyped_storage().data_ptr()
        for tensor in inputs:
            if tensor.on_host.untyped_storage().data_ptr() == address and values.numel():
                return tensor if tensor.on_host is values else CudaTensor(values, tensor.memory)
        return CudaTensor(values, self._allocate(values.nbytes, stream))

    def _allocate(self, n_bytes: int, stream: Stream) -> Memory:
        """Return memory on the stream's device; raises torch's OutOfMemoryError beyond its capacity."""
        with self._allocating:
            n_bytes_then = self.bytes_alive(str(stream.device)) + n_bytes
            self.peak_bytes = max(self.peak_bytes, n_bytes_then)
            if n_bytes_then > self.capacity:
                raise torch.cuda.OutOfMemoryError(
                    f"CUDA out of memory. Tried to allocate {n_bytes} bytes on {stream.device}"
                )
            memory = Memory(n_bytes, stream, stream, stream.position)
            self._memories.add(memory)
            return memory

    def _read(self, tensor: CudaTensor, stream: Stream) -> None:
        """Refuse to read what another stream may not have written yet, or may free meanwhile."""
        memory = tensor.memory
        if not stream.has_waited_for(memory.written_on, memory.written_at):
            raise DeviceMistake(f"{stream.device}: a tensor is read before the stream that copies it is waited for")
        if memory.stream is not stream and stream not in memory.readers:
            raise DeviceMistake(f"{stream.device}: a tensor of another stream is read without record_stream")

    def _move(self, tensor: torch.Tensor, target: torch.device, kwargs: dict[str, Any]) -> torch.Tensor:
        """Copy a tensor to another device."""
        dtype = kwargs.get("dtype") or tensor.dtype
        if target.type == "cpu":
            return self._copy(torch.empty(tensor.shape, dtype=dtype), tensor)
        values = _values(tensor).to(dtype, copy=True, memory_format=kwargs.get("memory_format"))
        stream = self._stream_of(target)
        copy = CudaTensor(values, self._allocate(values.nbytes, stream))
        stream.position += 1
        copy.memory.written_at = stream.position
        if tensor.device.type == "cpu" and kwargs.get("non_blocking") and self._is_pinned(tensor):
            self._hold(tensor, stream)
        else:
            stream.finish(stream.position)
        return copy

    def _hold(self, source: torch.Tensor, stream: Stream) -> None:
        """Check, once the host knows that a copy is over, that pinned memory was not overwritten before."""
        before = source.clone()

        def check() -> None:
            if not torch.equal(before, source):
                raise DeviceMistake("pinned memory was overwritten while a copy out of it was queued")

        stream.copies.append((stream.position, check))

    def _copy(self, target: torch.Tensor, source: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
        """Copy into a tensor; into pinned memory without waiting, the numbers come when the host has waited."""
        stream = self._stream_of((target if isinstance(target, CudaTensor) else source).device)
        if isinstance(source, CudaTensor):
            self._read(source, stream)
        stream.position += 1
        values = _values(source)
        if isinstance(target, CudaTensor):
            target.on_host.copy_(values)
        elif non_blocking and self._is_pinned(target):
            target.view(torch.uint8 if target.dtype == torch.bool else target.dtype).fill_(77)
            snapshot = values.clone()
            stream.copies.append((stream.position, lambda: target.copy_(snapshot)))
        else:
            stream.finish(stream.position)
            target.copy_(values)
        return target

    def _compute_on_host(self, function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Call the function without `pin_memory`, and remember its result as pinned if it was set."""
        is_pinned = kwargs.pop("pin_memory", False)
        result = function(*args, **kwargs)
        if is_pinned:
            self._pinned.add(result.untyped_storage().data_ptr())
        return result

    def _is_pinned(self, tensor: torch.Tensor) -> bool:
        return tensor.untyped_storage().data_ptr() in self._pinned

    def _indexed(self, device: Any) -> torch.device:
        device = torch.device(device)
        return torch.device("cuda", self._device_index) if device == torch.device("cuda") else device

    def _set_device(self, device: Any) -> None:
        """Make a device the current one of this thread, and dispatch what the thread computes from now on."""
        self._device_index = device if isinstance(device, int) else self._indexed(device).index
        if threading.current_thread() is not self._thread and not hasattr(self._of_thread, "modes"):
            self._of_thread.modes = (_Indexed(), _ThreadMode())
            for mode in self._of_thread.modes:
                mode.__enter__()

    def _stream_of(self, device: Any = None) -> Stream:
        """Return the current stream of a device, by default of the current one."""
        return self._streams[self._device_index if device is None else self._indexed(device).index]

    @contextmanager
    def _on_stream(self, stream: Stream) -> Iterator[None]:
        """Make a stream the current one of its device, and its device the current one."""
        index, device_index = stream.device.index, self._device_index
        outer, self._streams[index], self._device_index = self._streams[index], stream, index
        try:
            yield
        finally:
            self._streams[index], self._device_index = outer, device_index


def _with_index(leaf: Any) -> Any:
    is_bare = isinstance(leaf, (str, torch.device)) and str(leaf) == "cuda"
    return FakeCuda.current._indexed(leaf) if is_bare else leaf


def _values(leaf: Any) -> Any:
    return leaf.on_host if isinstance(leaf, CudaTensor) else leaf
