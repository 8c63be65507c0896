"""Recommendation at 1,000,000 items x 100,000 users: recall of the index, time of each stage.

    .venv/bin/python benchmarks/retrieval/bench_recommend.py [--items N] [--users N] [--keep DIR]

A made-up log (30 interactions a user, half of them with a user's few favourite categories) goes
the whole way of the command line: preprocess, train two towers and a ranker (DIN) for a few
hundred steps, export, index. Then users are answered one after the other, in one process, as
`merlin-sim recommend` does. Needs the extra `recommend`.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

PER_USER, PER_CATEGORY, FAVOURITES = 30, 50, 4
BATCH = 2048


def write_log(path: Path, items: int, users: int, seed: int = 1) -> None:
    """Write a log in which every item is taken at least once."""
    random = np.random.default_rng(seed)
    rows = users * PER_USER
    user = np.repeat(np.arange(users), PER_USER)
    categories = max(FAVOURITES, items // PER_CATEGORY)
    favourites = random.integers(0, categories, (users, FAVOURITES))
    category = favourites[user, random.integers(0, FAVOURITES, rows)]
    number = (PER_CATEGORY * random.random(rows) ** 3).astype(np.int64)
    item = np.minimum(category * PER_CATEGORY + number, items - 1)
    every = random.choice(rows, items, replace=False)
    item[every] = np.arange(items)
    table = {
        "user": user,
        "item": item,
        "category": item // PER_CATEGORY,
        "time": np.tile(np.arange(PER_USER), users) * 3600 + 1_600_000_000,
    }
    pq.write_table(pa.table(table), path)


def command(*words: object) -> None:
    """Run a command of merlin-sim; return its last line and its processor seconds."""
    program = Path(sys.executable).with_name("merlin-sim")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([program, *map(str, words)], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stdout + done.stderr)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    lines = done.stdout.strip().splitlines() or [""]
    print(f"{words[0]}: {seconds:.0f} s of processor  {lines[-1]}", flush=True)


def make_everything(home: Path, items: int, users: int, steps: int) -> None:
    """Make log, dataset, models and index, where they are not there yet."""
    if not (home / "dataset").exists():
        write_log(home / "log.parquet", items, users)
        columns = ["--user_column", "user", "--item_column", "item", "--timestamp_column", "time"]
        columns += ["--item_feature_columns", "category", "--layout", "users"]
        command(
            "preprocess", "log", home / "log.parquet", "--output_path", home / "dataset", *columns
        )
    for name in ("two_tower", "din"):
        if (home / name).exists():
            continue
        saved = home / f"{name}-checkpoints"
        options = ["--dataset_dir", home / "dataset", "--model_type", name, "--seed", 1]
        options += ["--global_batch_size", BATCH, "--max_steps", steps, "--lr", 0.01]
        options += ["--optimizer", "lazy_adam", "--results_dir", home / f"{name}-run"]
        command("train", *options, "--save_checkpoint_path", saved)
        command(
            "export", "--load_checkpoint_path", saved, "--dataset_dir", home / "dataset",
            "--output", home / name,
        )  # fmt: skip
    if not (home / "index").exists():
        command("index", home / "two_tower", "--output", home / "index",
                "--dataset_dir", home / "dataset")  # fmt: skip


def measure(home: Path, users: int, requests: int) -> None:
    """Answer users one after the other, and print what it takes."""
    from merlin_sim.serving.retrieval.index import open_index, share_found
    from merlin_sim.serving.retrieval.recommender import Recommender
    from merlin_sim.serving.retrieval.towers import Towers
    from merlin_sim.serving.retrieval.users import DatasetHistories, user_event
    from merlin_sim.serving.servable import Servable

    begin = time.perf_counter()
    towers = Towers(Servable.open(home / "two_tower"))
    index = open_index(home / "index", towers)
    recommender = Recommender(towers, index, Servable.open(home / "din"))
    recommender.warm_up()
    print(f"opened in {time.perf_counter() - begin:.1f} s")

    random = np.random.default_rng(2)
    begin = time.perf_counter()
    found = DatasetHistories(home / "dataset").of(random.integers(0, users, requests).tolist())
    print(f"{len(found):,} histories read in {time.perf_counter() - begin:.1f} s")
    histories = list(found.values())

    def vector(user: int):
        encoder = towers.encoder
        return towers.users([encoder.encode(user_event(encoder, histories[user], {}))])

    queries = np.concatenate([vector(user) for user in range(len(histories))])
    nearest = index.search(queries, 500)[0]
    recall = share_found(nearest[:500], index.exact(queries[:500], 500))
    print(f"{index.items:,} items: the index finds {recall:.4f} of the exact nearest 500 of users")

    def of(name: str, work) -> None:
        for user in range(20):  # what is traced and cached at first
            work(user)
        times = []
        before = resource.getrusage(resource.RUSAGE_SELF)
        for user in range(len(histories)):  # each once: the next finds no caches filled for it
            begin = time.perf_counter()
            work(user)
            times.append(time.perf_counter() - begin)
        after = resource.getrusage(resource.RUSAGE_SELF)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        p50, p99 = 1e3 * np.percentile(times, [50, 99])
        each = 1e3 * cpu / len(histories)
        print(f"| {name} | {p50:.1f} ms | {p99:.1f} ms | {each:.1f} ms |", flush=True)

    print("| stage | p50 | p99 | processor |\n|---|---:|---:|---:|")
    of("user's vector", vector)
    of("the nearest 500", lambda user: index.search(queries[user : user + 1], 500))
    of("500 scores", lambda user: recommender.scores.score(histories[user], nearest[user], {}))
    of("the whole, 20 items", lambda user: recommender.recommend(histories[user], 20))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--items", type=int, default=1_000_000)
    parser.add_argument("--users", type=int, default=100_000)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--requests", type=int, default=1_000)
    parser.add_argument("--keep", type=Path, help="make everything here, and use what is there")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        home = arguments.keep or Path(temporary)
        home.mkdir(parents=True, exist_ok=True)
        make_everything(home, arguments.items, arguments.users, arguments.steps)
        measure(home, arguments.users, arguments.requests)


if __name__ == "__main__":
    main()
