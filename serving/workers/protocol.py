"""What a model's stub in Triton and its worker say to each other. Imports nothing that is large."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

READY, FAILED, ANSWER, REFUSAL, COUNT = "ready", "failed", "answer", "refusal", "count"
"""Kinds of messages of a worker."""
INVALID, UNAVAILABLE, INTERNAL = "invalid", "unavailable", "internal"
"""Codes of a refusal: whose fault it is."""
FAULT = "the server failed on this request: its log says why"
"""What is told of what is no request's fault."""
PROBE = "merlin-sim-probe"
"""The id of a request by which the server asks itself."""
STUB, WORKER = "stub", "worker"
WORKER_NAME = "merlin-worker"
"""What `ps` and `top` call one."""
_WORKERS, _PROBES = "workers.json", "probes"


def write_workers(folder: Path, address: Path, workers: Mapping[str, str]) -> None:
    """Say where workers are forked, and which class answers for which model."""
    (folder / _PROBES).mkdir()
    document = {"socket": str(address), "workers": dict(workers)}
    (folder / _WORKERS).write_text(json.dumps(document), encoding="utf-8")


def read_workers(folder: Path) -> tuple[str, dict[str, str]]:
    """Return what :func:`write_workers` wrote."""
    found = json.loads((folder / _WORKERS).read_text(encoding="utf-8"))
    return found["socket"], found["workers"]


def probe_file(folder: Path, model: str) -> Path:
    """Where a model's worker writes a request that it answers."""
    return folder / _PROBES / f"{model}.json"


def write_whole(path: Path, text: str) -> None:
    """Write a small file that others read, whole or not at all."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_text(text, encoding="utf-8")
    os.replace(partial, path)


def write_process(folder: Path, model: str, part: str) -> None:
    """Note which process this is: the stub in Triton, or the worker."""
    write_whole(folder / _PROBES / f"{model}.{part}", str(os.getpid()))


def processes_of(folder: Path, model: str) -> list[int]:
    """Return the processes that work for a model, as far as they have begun."""
    found = []
    for part in (STUB, WORKER):
        with suppress(OSError, ValueError):
            found.append(int((folder / _PROBES / f"{model}.{part}").read_text()))
    return found
