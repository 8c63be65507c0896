"""A visit to a machine with a GPU, of ten minutes or twenty: ``scripts/check_gpu.sh`` runs it.

    PYTHONPATH=benchmarks .venv/bin/python benchmarks/gpu/visit.py TABLE [--small]

What is worth most comes first. Each part is a process of its own with a time limit: what hangs is
ended with all that it started, and its line says so. Lines are written to TABLE as they come, so a
visit that ends early has reported what it knew.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

FOLDER = Path(__file__).parent
PUBLISHED = ("GPU_TABLE_PUBLISHED", "GPU_TABLE_PUBLISHED_DATA")


@dataclass(frozen=True)
class Part:
    """One thing to find out."""

    name: str
    words: tuple[str, ...]
    """Of the command, after Python."""
    seconds: int
    """It may take."""
    variables: dict[str, str] = field(default_factory=dict)
    prints_table: bool = False
    """Whether it prints lines of a table, each as it comes, rather than one answer."""


def question(name: str, seconds: int, *words: object) -> Part:
    """One of ``first_questions.py``."""
    return Part(name, (str(FOLDER / "first_questions.py"), *map(str, words)), seconds)


def lines(name: str, seconds: int, chosen: str, **variables: str) -> Part:
    """Lines of ``gpu_table.py``."""
    variables = {"GPU_TABLE_LINES": chosen, **variables}
    return Part(name, (str(FOLDER / "gpu_table.py"),), seconds, variables, True)


def first_parts(small: bool) -> list[Part]:
    """What matters most, in ten minutes: the command beside the published code, then why."""
    batch, users, logs = (64, 50, 60) if small else (131072, 200_000, 20_000)
    step = "one XLA program on resident data"
    model = "din" if small else "sim"
    parts = [
        question(
            f"{model.upper()} training, {batch:,}, AMP, {step}, {form}",
            *(60, "resident", batch, candidates, model),
        )
        for form, candidates in (("rows", 1), ("users x 16", 16))
    ]
    parts += [
        question(f"{users:,} users read by Merlin's loader", 40, "users", users),
        question(f"NVTabular's graph, {logs:,} users", 90, "graph", logs),
    ]
    if small:
        return parts
    whole = [
        lines("training from users, by the command", 110, "SIM training from users"),
        lines("training from rows, by the command", 100, r"SIM training, 131,072, AMP \+ XLA$"),
    ]
    if all(name in os.environ for name in PUBLISHED):
        whole.append(lines("the published code beside it", 90, "published code, train"))
    return [*whole, *parts]


def further_parts() -> list[Part]:
    """The rest, by what it is worth."""
    tests = ("-m", "pytest", "-m", "gpu", "-q", "--no-header", "-p", "no:randomly", "tests/gpu")
    return [
        question("test AUC with AMP, on the demo's logs", 120, "auc"),
        lines("training", 240, "training, 131,072, AMP"),
        Part("tests marked gpu", tests, 300),
        lines("feed and whole runs", 180, "feed alone|first step|whole run"),
        lines("inference", 180, "inference"),
        lines("all else", 600, "^(?!.*(training, 131,072, AMP|feed|first step|whole|inference))"),
    ]


def end(process: subprocess.Popen[str]) -> None:
    """End a process and all that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def answer(part: Part, report: Callable[[str], None]) -> bool:
    """Run one part; print its lines as they come, and whether it ended well."""
    begin, last = time.monotonic(), "nothing was said"
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            [sys.executable, *part.words],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, "PYTHONPATH": str(FOLDER.parent), **part.variables},
            cwd=FOLDER.parents[1],
            start_new_session=True,
        )
        limit = threading.Timer(part.seconds, end, [process])
        limit.start()
        try:
            for line in process.stdout or ():
                last = line.strip() or last
                if part.prints_table and last.startswith("|"):
                    report(last)
            process.wait()
        finally:
            limit.cancel()
            end(process)
        errors.seek(0)
        said = errors.read().strip().splitlines()
    seconds = time.monotonic() - begin
    if process.returncode == -signal.SIGKILL and seconds >= part.seconds:
        report(f"| {part.name} | ended after its {part.seconds} s |")
    elif process.returncode:
        report(f"| {part.name} | failed: {(said or [last])[-1][:160]} |")
    elif not part.prints_table:
        report(f"| {part.name} | {last} ({seconds:.0f} s) |")
    return process.returncode == 0


def main() -> None:
    """Go through the parts; end with 1 where one failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("table", type=Path)
    parser.add_argument("--small", action="store_true", help="the first parts, on a CPU too")
    given = parser.parse_args()
    with given.table.open("w") as table:
        reported: set[str] = set()

        def report(line: str) -> None:
            if line in reported:  # the head of a table that was begun before
                return
            reported.add(line)
            print(line, flush=True)
            table.write(f"{line}\n")
            table.flush()
            os.fsync(table.fileno())

        report("| what | measured |")
        report("|---|---|")
        parts = first_parts(given.small) + ([] if given.small else further_parts())
        failed = [part.name for part in parts if not answer(part, report)]
    if failed:
        sys.exit(f"check_gpu: failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
