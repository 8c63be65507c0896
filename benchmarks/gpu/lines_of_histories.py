"""Lines of the table: SIM and its kin, trained and asked; the feed; whole runs."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from gpu.measured_runs import (
    PRECISIONS,
    PROGRAM,
    ROWS,
    Failed,
    benchmark,
    described,
    entries,
    measured,
    run,
)

BATCHES = (4096, 16384, 65536, 131072)
COMPILED = {"": (), " + XLA": ("--xla",)}


def training_lines(dataset: Path):
    """SIM's training at every size, precision and with and without XLA; the largest first."""
    exact: dict[int, float] = {}
    for batch, precision, compiled in itertools.product(BATCHES[::-1], PRECISIONS, COMPILED):
        options = (*PRECISIONS[precision], *COMPILED[compiled])

        def figures(batch=batch, precision=precision, compiled=compiled, options=options) -> str:
            entry = benchmark("train", dataset, batch, options)
            loss = entry["total_loss"]
            if precision == "FP32" and not compiled:
                exact[batch] = loss
            fp32 = f" (FP32: {exact[batch]:.5f})" if batch in exact else ""
            return f"{described(entry)}, loss at step {entry['step']} {loss:.5f}{fp32}"

        yield f"SIM training, {batch:,}, {precision}{compiled}", figures


def other_lines(dataset: Path):
    """Inference, the other models of histories, the feed alone, a whole run."""
    fast = ("--amp", "--xla")
    for batch in (*BATCHES[:1], 8192, *BATCHES[1:2], 32768, *BATCHES[2:]):
        yield (
            f"SIM inference, {batch:,}, AMP + XLA",
            lambda batch=batch: measured("inference", dataset, batch, fast),
        )
    yield (
        "SIM inference, 131,072, AMP + XLA, batches in GPU memory beforehand",
        lambda: in_one_process("predict", dataset, 131072),
    )
    yield (
        "SIM training, 131,072, AMP + XLA, batches in GPU memory beforehand",
        lambda: in_one_process("train", dataset, 131072),
    )
    for model in ("din", "dien", "eta", "sdim", "twin"):
        yield (
            f"{model.upper()} training, 131,072, AMP + XLA",
            lambda own=(*fast, "--model_type", model): measured("train", dataset, 131072, own),
        )
    for name, variables in (("cudf", {}), ("CPU", {"CUDA_VISIBLE_DEVICES": ""})):
        yield (
            f"feed alone, {name} path",
            lambda variables=variables: in_one_process("feed", dataset, 16384, **variables),
        )
    yield "time to the first step, 131,072, AMP + XLA", lambda: first_step(dataset, fast)
    yield "whole run from parquet, one epoch, 131,072, AMP + XLA", lambda: whole_run(dataset, fast)


def in_one_process(task: str, dataset: Path, batch: int, **variables: str) -> str:
    """Measure without the command line."""
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("in_one_process.py"), task, dataset, str(batch)],
        capture_output=True,
        text=True,
        env={**os.environ, **variables},
    )
    if done.returncode:
        raise Failed(f"failed: {done.stderr.strip().splitlines()[-1][:160]}")
    return f"{float(done.stdout.split()[-1]):,.0f} samples/s"


def first_step(dataset: Path, options: tuple[str, ...]) -> str:
    """Seconds of a run of one step, imports and compiling included."""
    with tempfile.TemporaryDirectory() as results:
        words = (PROGRAM, "train", "--dataset_dir", dataset, "--results_dir", results)
        words += ("--benchmark", "--benchmark_steps", 1, "--benchmark_warmup_steps", 0)
        return f"{run(*words, '--global_batch_size', 131072, *options):.1f} s"


def whole_run(dataset: Path, options: tuple[str, ...]) -> str:
    """Seconds of an epoch with its evaluation, and the most memory that the GPU held."""
    with tempfile.TemporaryDirectory() as results:
        words = (PROGRAM, "train", "--dataset_dir", dataset, "--results_dir", results)
        seconds = run(*words, "--epochs", 1, "--global_batch_size", 131072, *options)
        auc = entries(Path(results), "result")[-1]["test_auc"]
        return f"{seconds:.1f} s for {ROWS:,} rows, test AUC {auc:.4f}"


def users_lines(root: Path):
    """Training from users x candidates: 16 samples of a user share the user's history."""

    def figures(model: str) -> str:
        from rows import user_rows

        if not (root / "users").exists():
            user_rows.write_users(root / "users", ROWS // 16, 108, 100)
        return measured("train", root / "users", 131072, ("--amp", "--xla", "--model_type", model))

    for model in ("sim", "twin"):
        yield (
            f"{model.upper()} training from users x 16 candidates, 131,072, AMP + XLA",
            lambda model=model: figures(model),
        )
