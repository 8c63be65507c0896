"""Two weeks of days that drift: train on, judge, promote, watch, and ask for an answer.

    python examples/two_weeks.py DIRECTORY [--days 14] [--users 2000] [--no_server]

Runs what docs/tutorial-daily.md explains, with the commands that a daily job would run: about ten
minutes on two cores. DIRECTORY should not be there yet.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import re
import shlex
import subprocess
import sys
import urllib.request
from collections.abc import Sequence
from pathlib import Path

COMMAND = str(Path(sys.executable).parent / "merlin-sim")
WORLD = "--items 1000 --categories 50 --shown 20 --turnover 0.05 --seed 1"
LOG = (
    "--user_column user --item_column item --timestamp_column time --label_column clicked"
    " --item_feature_columns category --max_sequence_length 50 --shortest_sequence_for_user 2"
)
MODEL = "--model_type din --global_batch_size 1024 --optimizer adam --lr 0.004 --seed 1"
TOWERS = "--model_type two_tower --global_batch_size 1024 --epochs 3 --lr 0.005 --seed 1"
PASSED, DRIFTED = 0, 1
READY = re.compile(r"ready: .* at (http://[\w.:]+) and grpc")


def merlin_sim(*words: str, may_end_with: Sequence[int] = (0,)) -> int:
    """Run a command and show it; end where it does not end as expected.

    Args:
        words: What stands behind `merlin-sim`.
        may_end_with: Exit codes that are answers; the one that came is returned.
    """
    print(f"\n$ merlin-sim {shlex.join(words)}", flush=True)
    code = subprocess.run([COMMAND, *words]).returncode
    if code not in may_end_with:
        raise SystemExit(f"merlin-sim {words[0]} ended with {code}")
    return code


class TwoWeeks:
    """The days in a directory.

    Args:
        directory: Where all goes.
        days: How many.
        users: Of each day.
    """

    def __init__(self, directory: Path, days: int, users: int) -> None:
        """Write the logs."""
        self.directory, self.days = directory, days
        self.registry = str(directory / "registry")
        self.promoted: list[int] = []
        world = [*WORLD.split(), "--users", str(users), "--days", str(days)]
        merlin_sim("data", "synthesize", "days", "--output", str(directory / "logs"), *world)

    def dataset(self, day: int) -> str:
        """Where a day's dataset is."""
        return str(self.directory / f"data/day_{day:02}")

    def run_of(self, day: int) -> Path:
        """Where a day's model is."""
        return self.directory / f"runs/day_{day:02}"

    def preprocess(self, day: int) -> None:
        """Make the dataset of a day; ids and histories go on from the day before."""
        words = ["log", str(self.directory / f"logs/day_{day:02}.csv"), "--output"]
        words.append(self.dataset(day))
        if day == 0:
            merlin_sim("preprocess", *words, *LOG.split())
            return
        before = self.dataset(day - 1)
        merlin_sim("preprocess", *words, "--fitted", before, "--history", before, "--grow")

    def train(self, day: int) -> None:
        """Train on with a day's samples, and export what came of it."""
        run = self.run_of(day)
        words = ["--dataset_dir", self.dataset(day), *MODEL.split()]
        words += ["--results_dir", str(run), "--save_checkpoint_path", str(run / "checkpoints")]
        if day == 0:
            merlin_sim("train", *words, "--epochs", "2")
        else:
            start = str(self.run_of(day - 1) / "checkpoints")
            merlin_sim("train", *words, "--epochs", "1", "--warm_start", start)
        self._export(run, day)

    def _export(self, run: Path, day: int) -> None:
        source = ["--load_checkpoint_path", str(run / "checkpoints")]
        words = [*source, "--dataset_dir", self.dataset(day), "--output", str(run / "model")]
        merlin_sim("export", *words)

    def begin(self) -> None:
        """The first day's model is current: there is none to compare it with."""
        self.preprocess(0)
        self.train(0)
        run = self.run_of(0)
        merlin_sim("registry", "add", self.registry, str(run / "model"), "--run", str(run))
        merlin_sim("registry", "promote", self.registry, "1")
        self.promoted.append(1)

    def live(self, day: int) -> None:
        """One day: what came in judges yesterday's challenger, and trains the next one."""
        self.preprocess(day)
        words = ["--reference", self.dataset(day - 1), "--dataset_dir", self.dataset(day)]
        words += ["--output", f"{self.registry}/drift"]
        merlin_sim("drift", *words, "--leave_out", "user", may_end_with=(0, DRIFTED))
        if day > 1:
            self._judge(day)
        if day < self.days - 1:
            self.train(day)

    def _judge(self, day: int) -> None:
        """Judge the challenger of the day before on this day; where it passes it is current."""
        run = self.run_of(day - 1)
        report = self.directory / f"gates/day_{day:02}"
        code = merlin_sim(
            "gate", "--challenger", str(run / "model"), "--current", f"{self.registry}/current",
            "--dataset_dir", self.dataset(day), "--mapping", "train", "--output", str(report),
            may_end_with=(PASSED, 1),
        )  # fmt: skip
        words = [str(run / "model"), "--run", str(run), "--gate", str(report / "gate.json")]
        merlin_sim("registry", "add", self.registry, *words)
        if code == PASSED:
            merlin_sim("registry", "promote", self.registry, str(day))
            self.promoted.append(day)

    def recommend(self) -> None:
        """Train two towers on the last day, and ask what a user should see."""
        day = self.days - 1
        towers = self.directory / "towers"
        words = ["--dataset_dir", self.dataset(day), *TOWERS.split(), "--results_dir", str(towers)]
        merlin_sim("train", *words, "--save_checkpoint_path", str(towers / "checkpoints"))
        self._export(towers, day)
        made = [str(towers / "model"), "--dataset_dir", self.dataset(day)]
        merlin_sim("index", *made, "--output", str(towers / "index"))
        merlin_sim(
            "recommend", "--towers", made[0], "--index", str(towers / "index"),
            "--ranker", f"{self.registry}/current", "--dataset_dir", self.dataset(day),
            "--user", self.shown_last()[0]["user"], "--top", "5",
        )  # fmt: skip

    def shown_last(self) -> list[dict[str, str]]:
        """The first rows of the last day's log."""
        with (self.directory / f"logs/day_{self.days - 1:02}.csv").open() as log:
            return list(itertools.islice(csv.DictReader(log), 5))

    def serve(self) -> None:
        """Serve what is current, with histories kept beside it; send one click, ask once."""
        store = str(self.directory / "histories")
        merlin_sim("histories", "load", store, "--dataset_dir", self.dataset(self.days - 1))
        towers = str(self.directory / "towers")
        words = ["serve", "--registry", self.registry, "--histories", store]
        words += ["--towers", f"{towers}/model", "--index", f"{towers}/index"]
        words += [f"--{name}_port=0" for name in ("http", "grpc", "metrics")]
        print(f"\n$ merlin-sim {shlex.join(words)}", flush=True)
        server = subprocess.Popen([COMMAND, *words], stdout=subprocess.PIPE, text=True)
        try:
            address = wait_until_ready(server)
            rows = self.shown_last()
            user, items = rows[0]["user"], [row["item"] for row in rows]
            click = {"user": user, "item": items[0], "time": int(rows[-1]["time"]) + 86_400}
            print(post(f"{address}/histories", click))
            event = json.dumps({"user": user, "candidates": items[1:]})
            tensor = {"name": "event", "shape": [1, 1], "datatype": "BYTES", "data": [event]}
            print(post(f"{address}/v2/models/events/infer", {"inputs": [tensor]}))
            print(post(f"{address}/recommend", {"user": user, "top": 5}))
        finally:
            server.terminate()
            server.wait()


def wait_until_ready(server: subprocess.Popen[str]) -> str:
    """Show what a server says until it can be asked; return its address."""
    assert server.stdout is not None
    for line in server.stdout:
        print(line, end="", flush=True)
        if found := READY.search(line):
            return found[1]
    raise SystemExit("merlin-sim serve ended before it was ready")


def post(url: str, document: object) -> str:
    """Post JSON, and show what is sent; return what is answered."""
    body = json.dumps(document)
    print(f"\n$ curl {url} -d {shlex.quote(body)}", flush=True)
    with urllib.request.urlopen(url, body.encode(), timeout=100) as response:
        return str(response.read().decode())


def main(arguments: Sequence[str] | None = None) -> None:
    """Live through the days."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=Path, help="that is made")
    parser.add_argument("--days", type=int, default=14)
    parser.add_argument("--users", type=int, default=2000)
    parser.add_argument("--no_server", action="store_true", help="end before a server is started")
    given = parser.parse_args(arguments)
    if given.directory.exists():
        parser.error(f"{given.directory}: expected a directory that is not there yet")
    given.directory.mkdir(parents=True)
    weeks = TwoWeeks(given.directory, given.days, given.users)
    weeks.begin()
    for day in range(1, given.days):
        weeks.live(day)
    merlin_sim("registry", "list", weeks.registry)
    weeks.recommend()
    if not given.no_server:
        weeks.serve()
    print(f"\npromoted: {', '.join(map(str, weeks.promoted))} of {given.days - 1} versions")


if __name__ == "__main__":
    main()
