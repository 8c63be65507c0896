"""Lines of the table: the published implementation's own benchmark, where it is at hand."""

from __future__ import annotations

import os
import re
import shlex
import sys
import tempfile
from pathlib import Path

from gpu.measured_runs import ROWS, STEPS, WARM_UP, run

PUBLISHED = os.environ.get("GPU_TABLE_PUBLISHED")
PUBLISHED_DATA = os.environ.get("GPU_TABLE_PUBLISHED_DATA")
PUBLISHED_PACKAGES = os.environ.get("GPU_TABLE_PUBLISHED_PACKAGES", "")
PUBLISHED_OPTIONS = shlex.split(os.environ.get("GPU_TABLE_PUBLISHED_OPTIONS", ""))


def published_lines():
    """The published implementation's own benchmark, where its folder and its data are named."""
    if PUBLISHED is None or PUBLISHED_DATA is None:
        return

    passes = -(-(WARM_UP + STEPS) * 131072 // ROWS)
    enough = {  # inference goes through the data once
        "train": ("--epochs", passes),
        "inference": ("--repeat_count", passes, "--disable_cache"),
    }

    def figures(mode: str) -> str:
        with tempfile.TemporaryDirectory() as results:
            words = (sys.executable, Path(PUBLISHED) / "main.py", "--mode", mode, "--benchmark")
            words += ("--dataset_dir", PUBLISHED_DATA, "--results_dir", results, "--amp", "--xla")
            words += ("--benchmark_warmup_steps", WARM_UP, "--benchmark_steps", STEPS)
            words += (*enough[mode], "--seed", 1, *PUBLISHED_OPTIONS)
            run(*words, "--global_batch_size", 131072, PYTHONPATH=PUBLISHED_PACKAGES)
            text = "".join(path.read_text() for path in Path(results).rglob("*.json"))
            rates = re.findall(r'"(?:mean_)?throughput[^"]*": *([0-9.]+)', text)
            return f"{float(rates[-1]):,.0f} samples/s" if rates else "no throughput in its log"

    for mode in ("train", "inference"):
        yield f"published code, {mode}, 131,072, AMP + XLA", lambda mode=mode: figures(mode)
