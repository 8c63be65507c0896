"""Fourteen drifting days: training on from yesterday beside training from scratch.

    python benchmarks/days/bench_days.py [--days N] [--arms scratch,warm,...] [--directory DIR]

Each day is trained on and the next one tested, all its samples, by:

- scratch: a new model on all days so far;
- warm: yesterday's model, trained on with this day alone;
- once: the model of the first day, left alone.

Further arms try out options of the warm start. All share the first day's model. Seconds are of
processor, of the whole command `merlin-sim train`; what `preprocess` takes stands beside it. What
has a line in DIR/days.jsonl is not run again, so that a stopped benchmark goes on.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from merlin_sim.foundation.process_wide import silence_third_party_noise

silence_third_party_noise()

from days_table import Outcome, print_table  # noqa: E402
from next_day import auc_of_chance, aucs_of_next_day  # noqa: E402

COMMAND = str(Path(sys.executable).parent / "merlin-sim")
WORLD = "--users {users} --items 2000 --categories 50 --shown 20 --seed {seed}"
LOG = (
    "--user_column user --item_column item --timestamp_column time --label_column clicked"
    " --item_feature_columns category --max_sequence_length 50 --shortest_sequence_for_user 2"
)
MODEL = "--model_type din --global_batch_size 1024 --lr 0.002 --optimizer adam --seed {seed}"
RUN = "--keep_checkpoints 1"


class Arm(NamedTuple):
    """A way to have a model for the next day."""

    options: str
    """Of `train`, behind those that all share; {old} is the directory of yesterday's data."""
    is_warm: bool = True


ARMS = {
    "scratch": Arm("--epochs 2", is_warm=False),
    "scratch-1": Arm("--epochs 1", is_warm=False),
    "scratch-3": Arm("--epochs 3", is_warm=False),
    "scratch-twice-rate": Arm("--epochs 2 --lr 0.004", is_warm=False),
    "scratch-four-rate": Arm("--epochs 2 --lr 0.008", is_warm=False),
    "once": Arm(""),
    "warm": Arm("--epochs 1"),
    "warm-2": Arm("--epochs 2"),
    "warm-random": Arm("--epochs 1 --new_rows random"),
    "warm-half-rate": Arm("--epochs 1 --lr 0.001"),
    "warm-twice-rate": Arm("--epochs 1 --lr 0.004"),
    "warm-four-rate": Arm("--epochs 1 --lr 0.008"),
    "replay": Arm("--epochs 1 --replay {old}:0.2"),
    "replay-half": Arm("--epochs 1 --replay {old}:0.5"),
    "known-half": Arm("--epochs 1 --known_rows_rate 0.5"),
    "known-frozen": Arm("--epochs 1 --known_rows_rate 0"),
}


class Spent(NamedTuple):
    """What a command took."""

    cpu: float
    wall: float


def run(words: Sequence[str]) -> Spent:
    """Run a command; only its last words are shown, where it fails."""
    begin = time.perf_counter()
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(words, stdout=said, stderr=subprocess.STDOUT)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            said.seek(0)
            raise SystemExit(f"{' '.join(words)}\n{said.read()[-3000:].decode()}")
    return Spent(used.ru_utime + used.ru_stime, time.perf_counter() - begin)


class Days:
    """The days in a directory, and what was found of them.

    Args:
        directory: Where all stays.
        count: Days that are trained on; there is one more.
        drift: See `data synthesize days`.
        users: Of each day, who are shown 20 items each.
        seed: Of what is drawn, and of the models.
    """

    def __init__(self, directory: Path, count: int, drift: float, users: int, seed: int) -> None:
        self.world = WORLD.format(users=users, seed=seed)
        self.model = MODEL.format(seed=seed)
        self.directory, self.count, self.drift = directory, count, drift
        self.results = directory / "days.jsonl"
        lines = self.results.read_text().splitlines() if self.results.exists() else []
        self.done = [Outcome(**json.loads(line)) for line in lines]
        if not (directory / "logs").exists():
            words = [COMMAND, "data", "synthesize", "days", "--output", str(directory / "logs")]
            run([*words, "--days", str(count + 1), "--turnover", str(drift), *self.world.split()])

    def log(self, day: int) -> str:
        """Return the file of a day."""
        return str(self.directory / f"logs/day_{day:02}.csv")

    def dataset(self, day: int) -> Path:
        """Make the dataset of a day alone, whose ids and histories go on from the day before."""
        words = ["log", self.log(day), "--output_path"]
        if day == 0:
            return self._made("alone", day, [*words, "{}", *LOG.split()])
        before = str(self.directory / f"alone_{day - 1:02}")
        return self._made(
            "alone", day, [*words, "{}", "--fitted", before, "--history", before, "--grow"]
        )

    def dataset_so_far(self, day: int) -> Path:
        """Make the dataset of all days so far, in the same ids."""
        if day == 0:
            return self.dataset(0)
        logs = [self.log(number) for number in range(day + 1)]
        fitted = ["--fitted", str(self.directory / f"alone_{day:02}")]
        return self._made("so_far", day, ["log", *logs, "--output_path", "{}", *fitted])

    def _made(self, kind: str, day: int, words: list[str]) -> Path:
        path = self.directory / f"{kind}_{day:02}"
        if not path.exists():
            reported = [word.format(path) for word in words]
            spent = run([COMMAND, "preprocess", *reported])
            (path.with_suffix(".json")).write_text(json.dumps(spent))
        return path

    def preprocessing(self, dataset: Path) -> float:
        """Return the seconds of processor that making a dataset took."""
        return float(json.loads(dataset.with_suffix(".json").read_text())[0])

    def train(self, name: str, day: int) -> tuple[Path, Path, Spent]:
        """Train an arm on a day; return its checkpoints, its data, and what it took.

        On the first day all arms are one model, trained as `scratch` is.
        """
        arm = ARMS[name if day else "scratch"]
        checkpoints = self.checkpoints(name, day)
        dataset = self.dataset(day) if arm.is_warm else self.dataset_so_far(day)
        if day and name == "once":
            return self.checkpoints(name, 0), dataset, Spent(0, 0)
        noted = checkpoints.parent / "spent.json"
        if not noted.exists():
            shutil.rmtree(checkpoints.parent, ignore_errors=True)
            words = [COMMAND, "train", "--dataset_dir", str(dataset)]
            words += [*self.model.split(), *RUN.split()]
            words += ["--save_checkpoint_path", str(checkpoints), *arm.options.split()]
            words += ["--results_dir", str(checkpoints.parent / "results")]
            if arm.is_warm:
                words += ["--warm_start", str(self.checkpoints(name, day - 1))]
            before = str(self.directory / f"alone_{day - 1:02}")
            spent = run([word.replace("{old}", before) for word in words])
            noted.write_text(json.dumps(spent))
        return checkpoints, dataset, Spent(*json.loads(noted.read_text()))

    def checkpoints(self, name: str, day: int) -> Path:
        """Return where an arm's checkpoints of a day are."""
        return self.directory / f"runs/{name if day else 'scratch'}_{day:02}/checkpoints"

    def show(self, names: list[str], scratch_every: int) -> None:
        """Train and test what is missing, day by day."""
        self.dataset(0)
        for day in range(self.count):
            self.dataset(day + 1)
            known = {outcome.arm for outcome in self.done if outcome.day == day}
            missing = [name for name in names if name not in known]
            if day % scratch_every and day != self.count - 1:
                missing = [name for name in missing if ARMS[name].is_warm]
            trained = {name: self.train(name, day) for name in missing}
            trained_until = {name: checkpoints for name, (checkpoints, _, _) in trained.items()}
            if not trained_until:
                continue
            for name, auc in aucs_of_next_day(self.dataset(day + 1), trained_until).items():
                _, dataset, spent = trained[name]
                made = self.preprocessing(dataset) if spent.cpu else 0.0
                self._add(Outcome(day, name, auc, spent.cpu, made, spent.wall / 60))
            if "chance" not in known:
                best = auc_of_chance(self.log(day + 1), self.world, day + 1, self.drift)
                self._add(Outcome(day, "chance", best, 0.0, 0.0, 0.0))

    def _add(self, outcome: Outcome) -> None:
        self.done.append(outcome)
        with self.results.open("a") as file:
            file.write(json.dumps(outcome._asdict()) + "\n")
        print(
            f"day {outcome.day} {outcome.arm}: AUC of the next {outcome.auc:.4f}, "
            f"{outcome.seconds:.0f} s of processor",
            flush=True,
        )


def main() -> None:
    """Run what was asked for, then show all that is known."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--days", type=int, default=2, help="that are trained on; 13 for all")
    parser.add_argument("--drift", type=float, default=0.05)
    parser.add_argument("--users", type=int, default=5000, help="a day, with 20 rows each")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--arms", default="scratch,warm,once", help=f"of {', '.join(ARMS)}")
    parser.add_argument("--scratch_every", type=int, default=1, help="days; the last in any case")
    parser.add_argument("--directory", type=Path, help="default: one that is removed")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        directory = options.directory or Path(temporary)
        directory.mkdir(parents=True, exist_ok=True)
        days = Days(directory, options.days, options.drift, options.users, options.seed)
        days.show(options.arms.split(","), options.scratch_every)
        print_table(days.done)


if __name__ == "__main__":
    main()
