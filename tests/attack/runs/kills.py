"""Runs that are killed at random moments, again and again, and end as if nothing had happened.

A chain is one run: it is started, killed, continued, killed ... and at last left to its end.
Its losses, weights and metrics are then those of a run that nobody disturbed, to the bit.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..datasets.clicks_form import FORM as CLICKS
from ..datasets.draft import SAMPLES, Form
from ..datasets.users_form import FORM as USERS
from ..kinds import pick
from ..outcome import READ, Outcome
from ..plan import Mutation, Plan
from .checkpoints import load_newest
from .run_process import RunProcess, entries, import_for_forks

KILLS_PER_CHAIN = 5
EPOCHS = 4
SECONDS = 240.0
"""The longest wait for one thing: a step, an end."""

RUN = [
    *("--embedding_dim", "4", "--seed", "3", "--affinity", "disabled", "--epochs", str(EPOCHS)),
]
SIM = [
    *("--stage_one_mlp_dims", "8", "--stage_two_mlp_dims", "8,4", "--aux_mlp_dims", "6"),
    *("--long_seq_length", "6", "--top_k", "3", "--dropout_rate", "0.2"),
]
DLRM = ["--model_type", "dlrm", "--bottom_mlp_dims", "8,4", "--top_mlp_dims", "8,1"]
RUNS: dict[str, tuple[Form, list[int], list[str]]] = {
    "samples": (SAMPLES, [150, 90, 40], [*RUN, *SIM, "--global_batch_size", "16"]),
    "users": (
        *(USERS, [8, 5, 1]),
        [*RUN, *SIM, "--global_batch_size", "24", "--candidates", "4", "--fresh_negatives"],
    ),
    "clicks": (CLICKS, [150, 90, 40], [*RUN, *DLRM, "--global_batch_size", "16"]),
    "spread": (
        *(CLICKS, [150, 90, 40]),
        [*RUN, *DLRM, "--global_batch_size", "16", "--tables", "spread", "--cut", "columns"],
    ),
}
"""What is trained on -> its form, the rows of its files, and the words of the command."""
WAYS = {"one rank": (1, False), "two ranks": (2, False), "one of two ranks": (2, True)}
"""Way -> how many ranks there are, and whether only one of them is killed."""

MOMENTS = ["step", "step", "save", "save", "start", "end"]


class Broken(Exception):
    """A chain that did not go as it has to."""

    def __init__(self, kind: str, said: str) -> None:
        """Keep the failure's name and what is said of it."""
        super().__init__(said)
        self.outcome = Outcome(kind, said)


@dataclass
class KillFamily:
    """Chains of kills of one way."""

    name: str

    def prepare(self) -> None:
        """Make a folder for the datasets, and the runs that nobody disturbs."""
        import_for_forks()
        self._parent = tempfile.TemporaryDirectory(prefix="attack-")

    def draw(self, random: np.random.Generator) -> Plan:
        """Draw the moments of a chain."""
        kills = [
            Mutation(
                "kill",
                {
                    "moment": pick(random, MOMENTS),
                    "steps": int(random.integers(1, 9)),
                    "delay": float(random.random()) ** 3 * 0.1,
                    "rank": int(random.integers(2)),
                },
            )
            for _ in range(KILLS_PER_CHAIN)
        ]
        base = {"keep": pick(random, [1, 1, 3]), "of": pick(random, list(RUNS))}
        return Plan(base, tuple(kills))

    def judge(self, plan: Plan, phase: Callable[[str], None]) -> Outcome:
        """Run a chain."""
        phase("undisturbed")
        undisturbed = self._undisturbed(plan.base["of"])
        with tempfile.TemporaryDirectory(prefix="attack-") as parent:
            directory = Path(parent)
            hit = 0
            try:
                for number, kill in enumerate(plan.mutations):
                    phase(f"kill {number + 1}")
                    hit += self._kill_once(directory, plan.base, kill.arguments)
                phase("end")
                self._finish(directory, plan.base, _ending(undisturbed))
                return Outcome(READ, f"{hit} kills")
            except Broken as broken:
                return broken.outcome

    def _kill_once(self, directory: Path, base: dict[str, Any], kill: dict[str, Any]) -> int:
        """Start the run, kill it; 1 where it was still running."""
        ranks, only_one = WAYS[self.name]
        before, done = _newest(directory / "saved"), len(entries(directory, "step"))
        with RunProcess(self._arguments(directory, base), ranks, directory / "out") as process:
            reached = _moment(directory, kill, done)
            if not process.wait(SECONDS, reached):
                raise Broken("hang", f"no {kill} in {SECONDS:.0f} s: {process.text()[-800:]}")
            time.sleep(kill["delay"])
            if process.poll() not in (None, 0):
                raise Broken("ended by itself", f"{process.poll()}: {process.text()[-800:]}")
            was_running = process.poll() is None
            if only_one:
                _kill_rank(process, kill["rank"])
        after = _newest(directory / "saved")
        if after < before:
            raise Broken("checkpoint lost", f"step {after} is found, before it was {before}")
        return int(was_running)

    def _finish(self, directory: Path, base: dict[str, Any], ending: dict[str, Any]) -> None:
        """Let the run go to its end, and compare that with the undisturbed one."""
        with RunProcess(
            self._arguments(directory, base), WAYS[self.name][0], directory / "out"
        ) as process:
            if not process.wait(SECONDS):
                raise Broken("hang", process.text()[-800:])
            if process.poll() != 0:
                raise Broken("no end", f"exit code {process.poll()}: {process.text()[-800:]}")
        found = _ending(directory)
        for what, wanted in ending.items():
            if found[what] != wanted:
                said = f"{what}: {_first_difference(found[what], wanted)}"
                raise Broken("another end", said)

    def _arguments(self, directory: Path, base: dict[str, Any]) -> list[str]:
        dataset = Path(self._parent.name) / base["of"] / "dataset"
        return _arguments(base["of"], dataset, directory, base["keep"])

    def _undisturbed(self, of: str) -> Path:
        """Return the directory of the run that nobody disturbs; made when it is first wanted."""
        kept = Path(self._parent.name) / of
        if not (kept / "ended").exists():
            shutil.rmtree(kept, ignore_errors=True)
            _run_undisturbed(of, WAYS[self.name][0], kept)
            (kept / "ended").touch()
        return kept / "untouched"


def _run_undisturbed(of: str, ranks: int, parent: Path) -> None:
    """Make a dataset, and train on it with so many ranks."""
    dataset, directory = parent / "dataset", parent / "untouched"
    dataset.mkdir(parents=True)
    directory.mkdir()
    form, rows, _ = RUNS[of]
    sizes = {"rows": rows, "group": 40}
    form.make({"seed": 4, "padded": False, "sizes": sizes}).write(dataset)
    with RunProcess(_arguments(of, dataset, directory, 3), ranks, directory / "out") as process:
        if not process.wait(SECONDS) or process.poll() != 0:
            raise RuntimeError(f"the undisturbed run ended so:\n{process.text()}")


def _arguments(of: str, dataset: Path, directory: Path, keep: int) -> list[str]:
    """The words of the command, which goes on where there is a checkpoint."""
    saved = directory / "saved"
    words = ["train", "--dataset_dir", str(dataset), "--results_dir", str(directory)]
    words += [*RUNS[of][2], "--save_checkpoint_path", str(saved), "--checkpoint_every", "1"]
    words += ["--keep_checkpoints", str(keep)]
    if _newest(saved) >= 0:
        words += ["--load_checkpoint_path", str(saved)]
    return words


def _kill_rank(process: RunProcess, number: int) -> None:
    """Kill one rank; the other has to notice and end the run with an exit code of its own."""
    rank = process.ranks().get(number)
    if rank is None:
        return
    rank.kill()
    if not process.wait(SECONDS):
        raise Broken("hang", f"not over after rank {number} died: {process.text()[-800:]}")
    if process.poll() == 0:
        raise Broken("a lost rank unseen", f"exit code 0: {process.text()[-800:]}")


def _moment(directory: Path, kill: dict[str, Any], done: int) -> Callable[[], bool]:
    """What is waited for before the kill."""
    started = time.monotonic()
    saved = directory / "saved"

    def reached() -> bool:
        if kill["moment"] == "start":
            return time.monotonic() - started > 0.5 * kill["steps"]
        if kill["moment"] == "end":
            return bool(entries(directory, "epoch")) and _steps(directory) >= done + kill["steps"]
        if kill["moment"] == "save" and _steps(directory) >= done + kill["steps"] // 2:
            return any(name.startswith(".step-") for name in _names(saved))
        return _steps(directory) >= done + kill["steps"]

    return reached


def _steps(directory: Path) -> int:
    return len(entries(directory, "step"))


def _names(directory: Path) -> list[str]:
    return [path.name for path in directory.iterdir()] if directory.is_dir() else []


def _newest(saved: Path) -> int:
    """The step of the newest checkpoint that is whole, by its digests alone; -1 for none."""
    whole = [name for name in _names(saved) if name.startswith("step-") and _is_whole(saved / name)]
    return max((int(name.split("-")[1].split(".")[0]) for name in whole), default=-1)


def _is_whole(path: Path) -> bool:
    try:
        lines = (path / "SHA256SUMS").read_text().splitlines()
        stated = dict(line.split("  ", 1)[::-1] for line in lines)
        found = {name: hashlib.sha256((path / name).read_bytes()).hexdigest() for name in stated}
    except (OSError, ValueError):
        return False
    return "manifest.json" in stated and found == stated


TIMES = ("samples/s", "seconds", "throughput", "latency", "time_to_train")


def _ending(directory: Path) -> dict[str, Any]:
    """What a run has to end with: losses by step, the last epoch's metrics, the weights."""
    steps = {
        entry["step"]: [value for name, value in sorted(entry.items()) if name.endswith("loss")]
        for entry in entries(directory, "step")
    }
    epochs = entries(directory, "epoch")
    last = {k: v for k, v in (epochs[-1] if epochs else {}).items() if not k.startswith(TIMES)}
    weights = {}
    if _newest(directory / "saved") >= 0:
        arrays = load_newest(directory / "saved").arrays
        weights = {name: array.tobytes().hex() for name, array in arrays.items()}
    return {"losses": steps, "metrics": last, "weights": weights}


def _first_difference(found: dict[Any, Any], wanted: dict[Any, Any]) -> str:
    for name in sorted({*found, *wanted}, key=str):
        if found.get(name) != wanted.get(name):
            return f"{name}: {found.get(name)!s:.80}, undisturbed {wanted.get(name)!s:.80}"
    return "nothing"
