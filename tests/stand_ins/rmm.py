"""Stands in for rmm 24.12 where there is no GPU: it notes which memory pool was asked for.

It refuses what rmm refuses: a pool whose size is no whole number of 256 bytes.
"""

from __future__ import annotations

import sys
import types
from typing import Any

_ALIGNED = 256

pools: list[dict[str, Any]] = []
"""What was asked for, for the tests."""


def reinitialize(
    pool_allocator: bool = False,
    managed_memory: bool = False,
    initial_pool_size: int | None = None,
    maximum_pool_size: int | None = None,
    devices: Any = 0,
    logging: bool = False,
    log_file_name: str | None = None,
) -> None:
    for size in (initial_pool_size, maximum_pool_size):
        if size is not None and (not isinstance(size, int) or size % _ALIGNED):
            raise RuntimeError(f"RMM failure: Error, pool size {size} not a multiple of 256 bytes")
    pools.append({"pool": pool_allocator, "managed": managed_memory, "bytes": initial_pool_size})


def rmm_cupy_allocator(nbytes: int) -> Any:
    """Take memory for cupy out of the pool, which no test does."""
    raise RuntimeError(f"there is no GPU to take {nbytes} bytes of")


if __name__ == "rmm":  # it stands in rmm's place
    __path__: list[str] = []
    allocators = types.ModuleType("rmm.allocators")
    allocators.cupy = types.ModuleType("rmm.allocators.cupy")
    allocators.cupy.rmm_cupy_allocator = rmm_cupy_allocator
    sys.modules |= {"rmm.allocators": allocators, "rmm.allocators.cupy": allocators.cupy}
