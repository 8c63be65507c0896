"""How many cores there are to share the work out to."""

from __future__ import annotations

import os


def count_cores() -> int:
    """Count the logical CPUs that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
