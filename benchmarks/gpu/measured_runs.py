"""Runs of the command line that are measured, each in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PROGRAM = Path(sys.executable).with_name("merlin-sim")
ROWS = int(os.environ.get("GPU_TABLE_ROWS", 262_144))
STEPS = int(os.environ.get("GPU_TABLE_STEPS", 80))
WARM_UP = 20
PRECISIONS = {"FP32": ("--no_tf32",), "TF32": ("--tf32",), "AMP": ("--amp",)}

Line = tuple[str, str]


class Failed(Exception):
    """A command did not end well; its last words."""


def run(*words: object, **variables: str) -> float:
    """Run a command and return its seconds."""
    begin = time.perf_counter()
    done = subprocess.run(
        [str(word) for word in words],
        capture_output=True,
        text=True,
        env={**os.environ, **variables},
    )
    if done.returncode:
        lines = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()
        raise Failed(f"failed ({done.returncode}): {lines[-1][:160]}")
    return time.perf_counter() - begin


def entries(results: Path, kind: str) -> list[dict]:
    """Read the lines of a run's log that are of one kind."""
    lines = (results / "log.json").read_text().splitlines()
    return [entry for entry in map(json.loads, lines) if entry["type"] == kind]


def benchmark(mode: str, dataset: Path, batch: int, options: tuple[str, ...]) -> dict:
    """Run a benchmark, feed included, and return what it logs."""
    with tempfile.TemporaryDirectory() as results:
        words = (PROGRAM, mode, "--dataset_dir", dataset, "--results_dir", results, "--benchmark")
        words += ("--benchmark_warmup_steps", WARM_UP, "--benchmark_steps", STEPS)
        run(*words, "--global_batch_size", batch, "--seed", 1, *options)
        return entries(Path(results), "benchmark" if mode == "train" else "inference")[-1]


def measured(mode: str, dataset: Path, batch: int, options: tuple[str, ...]) -> str:
    """Samples a second of training or inference, when it is warm; and memory."""
    return described(benchmark(mode, dataset, batch, options))


def described(entry: dict) -> str:
    """Say what a benchmark logged."""
    held = entry.get("peak_gpu_memory_gib")
    memory = "memory not reported" if held is None else f"{held:.1f} GiB"
    return f"{entry['throughput']:,.0f} samples/s, {memory}"
