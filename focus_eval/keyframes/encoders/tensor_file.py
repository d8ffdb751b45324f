"""Reads the tensors of a file that torch wrote before version 1.6, without torch and without running its code."""

from __future__ import annotations

import pickle
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

# The file begins with five pickles: this number, a version, facts on the machine, the tensors by name, and the names of
# their buffers. Then each buffer follows: its number of values, and the values.
_MAGIC = 0x1950A86A20F9469CFC6C
_DTYPES = {"FloatStorage": np.dtype("<f4"), "LongStorage": np.dtype("<i8")}


def read_tensors(path: Path) -> dict[str, NDArray[np.generic]]:
    """Return the tensors of `path` by name, float32 or int64, each contiguous.

    Raises:
        Exception: the file cannot be opened, is cut off or has another format. The type varies, as errors of pickle do.
    """
    with open(path, "rb") as file:
        magic, _, _ = (_Tensors(file).load() for _ in range(3))
        if magic != _MAGIC:
            raise ValueError("not in the format of torch before version 1.6")
        reader = _Tensors(file)
        tensors = reader.load()
        names = _Tensors(file).load()
        buffers = {name: _read_buffer(file, *reader.buffers[name]) for name in names}
        return {name: tensor(buffers) for name, tensor in tensors.items()}


_Tensor = Callable[[dict[str, NDArray[np.generic]]], NDArray[np.generic]]


class _Tensors(pickle.Unpickler):
    """Unpickler that accepts tensors only; a tensor becomes a view of a buffer that is read later."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__(file)
        self.buffers: dict[str, tuple[np.dtype[np.generic], int]] = {}

    def find_class(self, module: str, name: str) -> object:
        """Return one of the few classes that tensors need; raise UnpicklingError for any other, so no code runs."""
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return _view
        if module == "torch" and name in _DTYPES:
            return _DTYPES[name]
        raise pickle.UnpicklingError(f"holds {module}.{name}, which is not a tensor")

    def persistent_load(self, pid: tuple[str, np.dtype[np.generic], str, str, int, object]) -> str:
        """Note type and length of a buffer that a tensor refers to, and return its name."""
        _, dtype, name, _, n_values, _ = pid
        self.buffers[name] = dtype, n_values
        return str(name)


def _view(buffer: str, offset: int, shape: tuple[int, ...], strides: tuple[int, ...], *_: object) -> _Tensor:
    """A function that takes the buffers by name and returns the tensor stored in `buffer`."""

    def tensor(buffers: dict[str, NDArray[np.generic]]) -> NDArray[np.generic]:
        """Return the tensor as a contiguous array; raise ValueError if it reaches beyond its buffer."""
        values = buffers[buffer][offset:]
        reach = sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True))
        if min((*shape, *strides, 1)) < 0 or reach >= values.size:
            raise ValueError(f"a tensor of shape {shape} reaches beyond its buffer")
        steps = [stride * values.itemsize for stride in strides]
        return np.ascontiguousarray(as_strided(values, shape, steps, writeable=False)).reshape(shape)

    return tensor


def _read_buffer(file: BinaryIO, dtype: np.dtype[np.generic], n_values: int) -> NDArray[np.generic]:
    """The next buffer of the file, `n_values` numbers; raises EOFError if it is cut off."""
    header_bytes = int.from_bytes(file.read(8), "little")
    values = np.frombuffer(file.read(n_values * dtype.itemsize), dtype)
    if not header_bytes == n_values == values.size:
        raise EOFError(f"the file is cut off: {values.size} of {n_values} values")
    return values
