"""Measure preprocessing: rows per second, peak memory, bytes per sample; beside plain pandas.

In one process, with one row per sample and with one per user, and on a cluster.

python benchmarks/bench_preprocess.py                  # about 1,000,000 interactions
python benchmarks/bench_preprocess.py --amazon_size    # 22.5 million, without pandas
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
from measuring.records import Recording

COMMAND = [sys.executable, "-W", "ignore", "-c"]
MAIN = "import sys; from merlin_sim.scripts.main import main; main()"
HERE = Path(__file__).parent
# As many users, items and interactions as the Amazon Books 2014 log has.
AMAZON = ["--users", "8000000", "--items", "2300000", "--categories", "2300"]
AMAZON += ["--short_users", "0.98675", "--mean_length", "57"]


def measure(name: str, arguments: list[str]) -> tuple[float, float, float]:
    """Run a process; return its seconds, its tree's processor seconds and peak memory in GB.

    Processor seconds are what a busy machine leaves comparable. Memory is what the processes have
    for themselves: pages of files that several of them map, and that the system may drop at any
    time, are not counted.
    """
    started = time.monotonic()
    process = psutil.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE, text=True)
    peak = 0
    processor: dict[int, float] = {}
    while process.poll() is None:
        total = 0
        for member in [process, *children_of(process)]:
            try:
                memory, times = member.memory_info(), member.cpu_times()
                total += memory.rss - memory.shared
                processor[member.pid] = times.user + times.system
            except psutil.NoSuchProcess:
                continue
        peak = max(peak, total)
        time.sleep(0.1)
    seconds = time.monotonic() - started
    output = process.stdout.read()
    if process.returncode:
        raise SystemExit(f"{name} failed with {process.returncode}: {output}")
    used = sum(processor.values())
    print(f"{name}: {seconds:.1f} s, processor {used:.1f} s, peak {peak / 2**30:.2f} GB")
    print("".join(f"    {line}\n" for line in output.splitlines()), end="", flush=True)
    return seconds, used, peak / 2**30


def children_of(process: psutil.Popen) -> list[psutil.Process]:
    """The processes that a process started, if it is still there."""
    try:
        return process.children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--users", type=int, default=21_000)
    parser.add_argument("--amazon_size", action="store_true", help="22.5 million interactions")
    parser.add_argument("--workers", type=int, default=2, help="of the local cluster")
    parser.add_argument("--work", type=Path, help="keep the files here [default: removed]")
    options = parser.parse_args()
    settings = {"users": "Amazon Books size" if options.amazon_size else options.users}
    recording = Recording("preprocess", "Preprocessing", settings)
    with tempfile.TemporaryDirectory() as temporary:
        work = options.work or Path(temporary)
        raw = work / "raw"
        size = AMAZON if options.amazon_size else ["--users", str(options.users)]
        measure(
            "synthesize", [MAIN, "data", "synthesize", "--output", str(raw), "--overwrite", *size]
        )
        with open(raw / "reviews_Books.json", "rb") as file:
            interactions = sum(1 for _ in file)
        recording.settings["interactions"] = interactions
        results = {}
        if not options.amazon_size:
            arguments = [
                (HERE / "baselines/plain_pandas.py").read_text(),
                str(raw),
                str(work / "pandas"),
            ]
            results["plain pandas"] = measure("plain pandas", arguments)
        for name, scheduler in (
            ("one process", ["--scheduler", "single"]),
            ("one process, users", ["--scheduler", "single", "--layout", "users"]),
            (
                f"{options.workers} workers",
                ["--scheduler", "local", "--review_loader_num_workers", str(options.workers)],
            ),
        ):
            measured = measure(
                f"merlin-sim, {name}",
                [
                    MAIN, "preprocess", "amazon-books", "--amazon_dataset_path", str(raw),
                    "--output_path", str(work / "dataset"), "--overwrite", *scheduler,
                ],
            )  # fmt: skip
            results[f"merlin-sim, {name}"] = measured
    titles = {"s": "whole command", "processor s": "whole command", "GB": "peak memory"}
    for index, (unit, title) in enumerate(titles.items()):
        values = {name: [measured[index]] for name, measured in results.items()}
        recording.table(title, unit, values, "plain pandas")
    recording.end()


if __name__ == "__main__":
    main()
