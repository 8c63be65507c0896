"""Stands in for cupy 13.6 where there is no GPU: numpy, behind a wall.

It has the functions that are called and no others, with cupy's arguments, and refuses what cupy
refuses: an array as ``repeats``, turning an array into numpy's without ``get``, and numpy's arrays
among its own. It refuses one thing that cupy allows, because there each element would be a copy
from the device: going through an array in Python.
"""

from __future__ import annotations

import types
from typing import Any

import numpy as np

int8, int32, int64, uint64, float32, float64 = (
    np.int8, np.int32, np.int64, np.uint64, np.float32, np.float64,
)  # fmt: skip


class ndarray:
    """An array on the device; its elements are seen through ``get`` and ``item`` alone."""

    __array_priority__ = 100.0

    def __init__(self, shape: Any, dtype: Any = float) -> None:
        self._host = np.empty(shape, dtype)

    def get(self) -> np.ndarray:
        """Copy the array to the host."""
        return self._host.copy()

    def item(self) -> Any:
        """Copy the only element to the host."""
        return self._host.item()

    def __array__(self, dtype: Any = None) -> Any:
        """Refuse, as cupy does."""
        raise TypeError(
            "Implicit conversion to a NumPy array is not allowed. Please use `.get()` to construct"
            " a NumPy array explicitly."
        )

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return _wrapped(getattr(ufunc, method)(*map(_unwrapped, inputs), **kwargs))

    def __iter__(self) -> Any:
        """Refuse what would copy element by element."""
        raise TypeError("cupy arrays are not gone through in Python: each element is a copy")

    def __len__(self) -> int:
        return len(self._host)

    def __bool__(self) -> bool:
        """Copy the only element to the host."""
        return bool(self._host)

    def __int__(self) -> int:
        """Copy the only element to the host."""
        return int(self._host)

    def __float__(self) -> float:
        """Copy the only element to the host."""
        return float(self._host)

    __index__ = None

    def __getitem__(self, key: Any) -> ndarray:
        return _wrapped(self._host[_key(key)])

    def __setitem__(self, key: Any, value: Any) -> None:
        self._host[_key(key)] = _unwrapped(value)

    def __dlpack__(self, stream: Any = None) -> Any:
        """Hand the memory over, which begins where a device's allocator would let it begin."""
        block = np.empty(self._host.nbytes + 64, np.uint8)
        start = -block.ctypes.data % 64
        aligned = block[start : start + self._host.nbytes].view(self.dtype).reshape(self.shape)
        aligned[...] = self._host
        return aligned.__dlpack__()

    @property
    def shape(self) -> tuple[int, ...]:
        return self._host.shape

    @property
    def dtype(self) -> Any:
        return self._host.dtype

    @property
    def size(self) -> int:
        return self._host.size

    @property
    def ndim(self) -> int:
        return self._host.ndim

    def astype(self, dtype: Any, order: str = "K", copy: bool = True) -> ndarray:
        return _wrapped(self._host.astype(dtype, order=order, copy=copy))

    def reshape(self, *shape: Any) -> ndarray:
        return _wrapped(self._host.reshape(*shape))

    def repeat(self, repeats: Any, axis: int | None = None) -> ndarray:
        """Repeat each element; only numbers on the host say how often."""
        return repeat(self, repeats, axis)


for _name in ("min", "max", "sum", "any", "all"):

    def _reduction(self: ndarray, axis: Any = None, _name: str = _name) -> ndarray:
        return _wrapped(np.asarray(getattr(self._host, _name)(axis=axis)))

    setattr(ndarray, _name, _reduction)

for _name in (
    "add", "sub", "mul", "mod", "floordiv", "truediv", "and", "or", "xor", "lshift", "rshift",
    "lt", "le", "gt", "ge", "eq", "ne",
):  # fmt: skip
    for _method in (f"__{_name}__", f"__r{_name}__", f"__i{_name}__"):
        if not hasattr(np.ndarray, _method):
            continue

        def _operator(self: ndarray, other: Any, _method: str = _method) -> ndarray:
            result = getattr(self._host, _method)(_unwrapped(other))
            return self if _method.startswith("__i") else _wrapped(np.asarray(result))

        setattr(ndarray, _method, _operator)

ndarray.__invert__ = lambda self: _wrapped(~self._host)
ndarray.__neg__ = lambda self: _wrapped(-self._host)


def _wrapped(host: Any) -> ndarray:
    array = ndarray.__new__(ndarray)
    array._host = np.asarray(host)
    return array


def _unwrapped(value: Any) -> Any:
    if isinstance(value, ndarray):
        return value._host
    if isinstance(value, np.ndarray):
        raise TypeError("Unsupported type <class 'numpy.ndarray'>")
    if isinstance(value, (list, tuple)):
        raise TypeError(f"Unsupported type {type(value)}")
    return value


def _key(key: Any) -> Any:
    if isinstance(key, tuple):
        return tuple(map(_key, key))
    if isinstance(key, np.ndarray):
        raise IndexError("Unsupported type <class 'numpy.ndarray'>")
    return key._host if isinstance(key, ndarray) else key


def array(obj: Any, dtype: Any = None, copy: bool = True) -> ndarray:
    """Copy to the device; numpy's arrays are taken here."""
    return _wrapped(np.array(obj._host if isinstance(obj, ndarray) else obj, dtype))


def asarray(a: Any, dtype: Any = None) -> ndarray:
    """Copy to the device what is not there yet."""
    if isinstance(a, ndarray) and dtype in (None, a.dtype):
        return a
    return array(a, dtype)


def arange(start: Any, stop: Any = None, step: Any = 1, dtype: Any = None) -> ndarray:
    """Count; bounds are numbers on the host."""
    bounds = (0, start) if stop is None else (start, stop)
    if any(isinstance(bound, ndarray) for bound in bounds):
        raise TypeError("cupy.arange takes numbers of the host")
    return _wrapped(np.arange(*bounds, step, dtype=dtype))


def zeros(shape: Any, dtype: Any = float) -> ndarray:
    return _wrapped(np.zeros(shape, dtype))


def ones(shape: Any, dtype: Any = float) -> ndarray:
    return _wrapped(np.ones(shape, dtype))


def zeros_like(a: ndarray, dtype: Any = None) -> ndarray:
    return _wrapped(np.zeros_like(_device(a), dtype))


def concatenate(tup: Any, axis: int = 0) -> ndarray:
    return _wrapped(np.concatenate([_device(part) for part in tup], axis))


def cumsum(a: ndarray, axis: Any = None, dtype: Any = None) -> ndarray:
    return _wrapped(np.cumsum(_device(a), axis, dtype))


def flatnonzero(a: ndarray) -> ndarray:
    return _wrapped(np.flatnonzero(_device(a)))


def bincount(x: ndarray, weights: Any = None, minlength: int | None = None) -> ndarray:
    if not _device(x).size:
        raise ValueError("zero-size array to reduction operation cupy_max which has no identity")
    return _wrapped(np.bincount(_device(x), minlength=int(minlength or 0)))


def searchsorted(a: ndarray, v: ndarray, side: str = "left", sorter: Any = None) -> ndarray:
    return _wrapped(np.searchsorted(_device(a), _device(v), side))


def argsort(a: ndarray, axis: int = -1, kind: Any = None) -> ndarray:
    """Order; only ``stable`` may be asked for."""
    if kind not in (None, "stable"):
        raise ValueError("kind can only be None or 'stable'")
    return _wrapped(np.argsort(_device(a), axis, kind="stable"))


def where(condition: ndarray, x: Any = None, y: Any = None) -> ndarray:
    return _wrapped(np.where(_device(condition), _unwrapped(x), _unwrapped(y)))


def minimum(x1: Any, x2: Any) -> ndarray:
    return _wrapped(np.minimum(_unwrapped(x1), _unwrapped(x2)))


def maximum(x1: Any, x2: Any) -> ndarray:
    return _wrapped(np.maximum(_unwrapped(x1), _unwrapped(x2)))


def isfinite(x: ndarray) -> ndarray:
    return _wrapped(np.isfinite(_device(x)))


def abs(x: ndarray) -> ndarray:  # noqa: A001
    return _wrapped(np.abs(_device(x)))


def floor(x: ndarray) -> ndarray:
    return _wrapped(np.floor(_device(x)))


def repeat(a: ndarray, repeats: Any, axis: int | None = None) -> ndarray:
    """Repeat each element; only numbers on the host say how often."""
    if isinstance(repeats, (ndarray, np.ndarray)):
        raise ValueError("cupy.ndaray cannot be specified as `repeats` argument.")
    return _wrapped(np.repeat(_device(a), repeats, axis))


def _device(value: Any) -> np.ndarray:
    if not isinstance(value, ndarray):
        raise TypeError(f"Unsupported type {type(value)}")
    return value._host


class OutOfMemoryError(MemoryError):
    """There is no memory left on the device; its words do not say of which."""

    __module__ = "cupy.cuda.memory"

    def __init__(self, size: int, total: int, limit: int = 0) -> None:
        """Say how much was asked for, and how much there is."""
        self._given = size, total, limit
        limited = f", limit set to: {limit:,} bytes" if limit else ""
        super().__init__(
            f"Out of memory allocating {size:,} bytes (allocated so far: {total:,} bytes{limited})."
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._given


class _Stream:
    synchronized = 0

    def synchronize(self) -> None:
        """Count, so that a test can ask whether it was waited for."""
        _Stream.synchronized += 1


_stream = _Stream()
allocators: list[Any] = []
"""What gives memory, the latest last; for the tests."""
_memory = types.ModuleType("cupy.cuda.memory")
_memory.OutOfMemoryError = OutOfMemoryError
cuda = types.SimpleNamespace(
    get_current_stream=lambda: _stream, memory=_memory, set_allocator=allocators.append
)
del OutOfMemoryError
