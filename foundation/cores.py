"""How many cores there are to share the work out to."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

THIS_PROCESS = Path("/proc/self")
UNIFIED, CPU = "cgroup2", "cpu"
"""The file system of version 2, and the controller of version 1 that has quotas."""


def count_cores(process: Path = THIS_PROCESS) -> int:
    """Count the logical CPUs that this process may use.

    A container with a quota (``docker --cpus=2``, a limit of Kubernetes) sees all CPUs of its host
    and gets the time of a few; of a fraction a whole one is counted.

    Args:
        process: What the system says of the process; files of Linux.
    """
    cores = len(os.sched_getaffinity(0))
    quotas = [_quota(directory) for directory in _cgroups(process)]
    return max(1, math.ceil(min([cores, *quotas])))


def _cgroups(process: Path) -> Iterator[Path]:
    """Give the directories of the process' cgroups that may have a quota, and those above."""
    own = {}
    for line in _lines(process / "cgroup"):
        _, controllers, path = line.split(":", 2)
        if not controllers or CPU in controllers.split(","):
            own[CPU if controllers else UNIFIED] = PurePosixPath(path)
    for line in _lines(process / "mountinfo"):
        mounted, _, system = line.partition(" - ")
        root, point = (field.replace("\\040", " ") for field in mounted.split()[3:5])
        kind, *_, options = system.split()  # the source between them may be empty
        version = CPU if kind == "cgroup" and CPU in options.split(",") else kind
        if version in own:
            yield from _up_to(Path(point), PurePosixPath(root), own[version])


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except OSError:  # not Linux
        return []


def _up_to(point: Path, root: PurePosixPath, path: PurePosixPath) -> Iterator[Path]:
    """Give a cgroup's directory and all above it, up to where its file system is mounted."""
    is_below = path.is_relative_to(root) and ".." not in path.parts
    inner = path.relative_to(root) if is_below else PurePosixPath()
    yield from (point / above for above in (inner, *inner.parents))


def _quota(directory: Path) -> float:
    """How many CPUs' time a cgroup gets; infinity where that is not limited."""
    words = " ".join(_lines(directory / "cpu.max"))
    if not words:
        files = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
        words = " ".join(line for name in files for line in _lines(directory / name))
    try:
        quota, period = map(int, words.split())
        return quota / period if quota > 0 else math.inf
    except (ValueError, ZeroDivisionError):  # "max"
        return math.inf


def multiplies_bfloat16() -> bool:
    """Return whether the processor multiplies bfloat16; True where the system does not say."""
    lines = _lines(Path("/proc/cpuinfo"))
    return not lines or any("avx512_bf16" in line or "amx_bf16" in line for line in lines)
