"""Starts real runs, as a person would, and looks at what they leave."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import launched
import psutil

BIN = Path(sys.executable).parent
MODEL = ["--model_type", "din", "--embedding_dim", "4", "--stage_two_mlp_dims", "8,4"]
"""DIN, whose step is traced in a quarter of SIM's time: these tests are about processes."""


def horovodrun(ranks: int, *options: str) -> list[str]:
    """The words that start so many ranks of the command that follows them."""
    program = [sys.executable, launched.__file__]
    return [*program, "-np", str(ranks), "--gloo", "-H", f"localhost:{ranks}", *options]


def quick_horovodrun(folder: Path) -> Path:
    """Write a program that is horovodrun, but for the time that it takes to start and to end."""
    program = folder / "horovodrun"
    words = f'GRACE_SECONDS=1 exec "{sys.executable}" "{launched.__file__}" "$@"'
    program.write_text(f"#!/bin/sh\n{words}\n")
    program.chmod(0o755)
    return program


def command(dataset: Path, results: Path, *options: str, ranks: int = 1) -> list[str]:
    return [
        *(horovodrun(ranks) if ranks > 1 else []),
        *(str(BIN / "merlin-sim"), "train", "--dataset_dir", str(dataset)),
        *("--results_dir", str(results), *MODEL, "--seed", "3", *options),
    ]


def environment() -> dict[str, str]:
    path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}


def run(words: list[str], seconds: float = 280) -> subprocess.CompletedProcess:
    return subprocess.run(
        words, env=environment(), capture_output=True, text=True, timeout=seconds, check=False
    )


def take_interrupts() -> None:
    """Let Ctrl-C reach the program, as in a person's terminal: the tests may run without it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Started:
    """A run in the background; what it starts ends with the test."""

    def __init__(self, words: list[str], log: Path) -> None:
        self.log = log
        with open(log, "w") as file:
            self.process = subprocess.Popen(
                words,
                env=environment(),
                stdout=file,
                stderr=subprocess.STDOUT,
                preexec_fn=take_interrupts,
            )

    def __enter__(self) -> Started:
        return self

    def __exit__(self, *_: object) -> None:
        for process in [*self.ranks(), *self.family()]:
            process.kill()
        self.process.wait(100)

    def family(self) -> list[psutil.Process]:
        try:
            parent = psutil.Process(self.process.pid)
            return [*parent.children(recursive=True), parent]
        except psutil.NoSuchProcess:
            return []

    def ranks(self) -> list[psutil.Process]:
        """The processes that train, by rank; of warm ones those that wait for them and end them."""
        found = {}
        for process in self.family():
            try:
                words, environ = process.cmdline(), process.environ()
            except psutil.Error:
                continue
            # The program's name stands second, and in the words of one that is warm sixth.
            if any(word.endswith("bin/merlin-sim") for word in words[:6]):
                found[int(environ.get("HOROVOD_RANK", "0"))] = process
        return [found[rank] for rank in sorted(found)]

    def wait_for_steps(self, results: Path, steps: int, seconds: float = 280) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.process.poll() is not None:
                raise AssertionError(f"ended early:\n{self.log.read_text()}")
            if len(entries(results, "step")) >= steps:
                return
            time.sleep(0.1)
        raise AssertionError(f"no {steps} steps:\n{self.log.read_text()}")

    def wait(self, seconds: float) -> int:
        return self.process.wait(seconds)


def entries(results: Path, kind: str) -> list[dict]:
    path = results / "log.json"
    if not path.exists():
        return []
    whole = [line for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
    return [entry for entry in map(json.loads, whole) if entry["type"] == kind]


LOSSES = ("total_loss", "classification_loss", "dien_aux_loss")


def losses(results: Path) -> dict[int, tuple[float, ...]]:
    """The losses that a model has by step; of a step done again after a resume, the last."""
    steps = entries(results, "step")
    return {e["step"]: tuple(e[name] for name in LOSSES if name in e) for e in steps}
