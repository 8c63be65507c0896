"""The questions that only a GPU answers, each in a process of its own: ``visit.py`` starts them.

    PYTHONPATH=benchmarks .venv/bin/python benchmarks/gpu/first_questions.py QUESTION [WORDS]

Prints one line. Without a GPU it answers of the CPU, to try the questions out.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from merlin_sim.foundation.process_wide import silence_third_party_noise

silence_third_party_noise()

import pyarrow.parquet as pq  # noqa: E402
import tensorflow as tf  # noqa: E402
from gpu.lines_of_datasets import precision_line, preprocess  # noqa: E402
from gpu.whole_step import LENGTH, POSITIONS, make_step, small_dataset  # noqa: E402
from rows.user_rows import write_users  # noqa: E402

from merlin_sim.dataloader.sample_columns import SampleColumns  # noqa: E402
from merlin_sim.dataloader.user_rows import UserRows  # noqa: E402

STEPS = 20


def resident(folder: Path, size: str, candidates: str, model: str) -> str:
    """Samples a second of the step in one XLA program, of users that are on the device."""
    batch = int(size)
    dataset = small_dataset(folder / "users", max(1217, -(-batch // POSITIONS)))
    step, given = make_step(dataset, model, batch, int(candidates), amp=True)
    compiled = tf.function(step, jit_compile=True, autograph=False)
    begin = time.perf_counter()
    compiled(given).losses.numpy()
    first = time.perf_counter() - begin
    begin = time.perf_counter()
    for _ in range(STEPS):
        losses = compiled(given).losses
    total = float(losses.numpy()[0])  # waits for the device
    seconds = (time.perf_counter() - begin) / STEPS
    return (
        f"{batch / seconds:,.0f} samples/s, {1e3 * seconds:.1f} ms a step, "
        f"loss {total:.4f}, first step {first:.0f} s"
    )


def auc(folder: Path) -> str:
    """AMP's AUC beside FP32's."""
    ((_, figures),) = precision_line(folder)
    return str(figures())


def users(folder: Path, size: str) -> str:
    """Read users by Merlin's loader, with what this machine reads by, and on the host."""
    count = int(size)
    dataset = write_users(folder / "users", count, LENGTH + POSITIONS + 1, LENGTH)
    columns = SampleColumns.read(dataset, dataset.schema)
    reported, read = [], []
    for how, on_cpu in (("as it reads here", False), ("on the host", True)):
        rows = UserRows(dataset, "train", columns, on_cpu)
        begin = time.perf_counter()
        read.append(rows.tensors(rows.read(rows.parts)))
        reported.append(f"{count / (time.perf_counter() - begin):,.0f} users/s {how}")
    same = bool(tf.reduce_all(read[0].items == read[1].items))
    return f"{', '.join(reported)}; {'the same' if same else 'NOT the same'}"


def graph(folder: Path, users: str) -> str:
    """Preprocess logs by NVTabular's graph on the GPU and on the CPU; compare the files."""
    tables, reported = [], []
    for device, hidden in (("GPU", {}), ("CPU", {"CUDA_VISIBLE_DEVICES": ""})):
        seconds = preprocess(folder, device, "--users", users, layout="users", **hidden)
        files = sorted((folder / device).glob("*/*.parquet"))
        tables.append({str(f.relative_to(folder / device)): pq.read_table(f) for f in files})
        reported.append(f"{device} {seconds:.1f} s")
    ours, theirs = tables
    same = ours.keys() == theirs.keys() and all(ours[name].equals(theirs[name]) for name in theirs)
    return f"{', '.join(reported)}; {'the same files' if same else 'OTHER files'}"


QUESTIONS = {"resident": resident, "auc": auc, "users": users, "graph": graph}

if __name__ == "__main__":
    question, *words = sys.argv[1:]
    with tempfile.TemporaryDirectory() as name:
        print(QUESTIONS[question](Path(name), *words), flush=True)
