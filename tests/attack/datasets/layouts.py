"""Random layouts: every row exactly once, whatever the files, row groups, batches and ranks.

Whole rows are compared, not numbers of rows: a row of one history and another's label is wrong.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ..attempt import attempt
from ..kinds import pick
from ..outcome import READ, REFUSED, Outcome
from ..plan import Plan
from .laid_out import CANDIDATES, DATASETS, Laid, Matrix

MOST_STEPS = 40
"""Steps of an epoch for each file: a step costs about a millisecond on every rank."""


class LayoutFamily:
    """Cases on how rows are dealt out."""

    name = "layouts"

    def prepare(self) -> None:
        """Import what is slow to import before any worker is forked."""
        from . import feed_reading  # noqa: F401

    def draw(self, random: np.random.Generator) -> Plan:
        """Draw files, a batch, ranks, and from where an epoch is read."""
        of = pick(random, list(DATASETS))
        batch = pick(random, [1, 2, 7, 33, 64, 100, 170, 256])
        ranks = int(random.integers(1, 10))
        most = min(pick(random, [30, 1000, 12000, 30000]), MOST_STEPS * batch * ranks)
        most = max(2, most // DATASETS[of].rows)
        files = [int(random.integers(0, most)) for _ in range(int(random.integers(1, 5)))]
        sizes = {
            "files": [max(1, rows) for rows in files],
            "group": int(random.integers(1, most + 10)),
            "batch": batch,
            "ranks": ranks,
            "window": pick(random, [1, 1000, 4096, 16384, 65536]),
        }
        base = {
            "of": of,
            "seed": int(random.integers(1 << 30)),
            "padded": bool(random.random() < 0.3),
            "shuffle": bool(random.random() < 0.75),
            "drop_last": bool(random.random() < 0.3),
            "epoch": int(random.integers(3)),
            "resume": float(random.random()),
            "candidates": pick(random, CANDIDATES),
            "sizes": sizes,
        }
        return Plan(base, ())

    def judge(self, plan: Plan, phase: Callable[[str], None]) -> Outcome:
        """Write the files, read them on all ranks and on one, and compare."""
        base = plan.base
        with tempfile.TemporaryDirectory(prefix="attack-") as parent:
            laid = DATASETS[base["of"]](Path(parent), base)
            laid.write()
            phase("truth")
            wanted = laid.stored()
            phase("feed")
            tried = attempt(lambda: compared(laid, wanted))
        if tried.fault is not None:
            return Outcome("traceback", tried.fault)
        if tried.refusal is not None:
            if len(wanted) < (_rows_a_step(base) if base["drop_last"] else 1):
                return Outcome(REFUSED, tried.refusal)
            return Outcome("refused a good file", tried.refusal)
        return Outcome(*tried.result) if tried.result else Outcome(READ)


def compared(laid: Laid, wanted: Matrix) -> tuple[str, str] | None:
    """Read on all ranks; give the failure and where it shows, if there is one."""
    from merlin_sim.foundation.ranks import Ranks

    from .feed_reading import open_whole, poisoned_memory, read_batches

    base = laid.base
    dataset, size = open_whole(laid.directory, laid.model), base["sizes"]["ranks"]
    options = {
        "shuffle": base["shuffle"],
        "seed": base["seed"],
        "window_rows": base["sizes"]["window"],
        "drop_last": base["drop_last"],
        "epoch": base["epoch"],
        **laid.options,
    }

    def read(ranks: Ranks, first_step: int = 0) -> list[Matrix]:
        batch = _rows_a_step(base) * laid.options.get("candidates", 1)
        found = read_batches(dataset, "train", batch, ranks, first_step, **options)
        return [laid.matrix(rows) for rows in found]

    with poisoned_memory():
        by_rank = [read(Ranks(rank, size)) for rank in range(size)]
        alone = read(Ranks())
        first_step = int(base["resume"] * len(alone))
        resumed = read(Ranks(size - 1, size), first_step)
    return (
        _against_files(by_rank, wanted, base)
        or _against_one_rank(by_rank, alone)
        or _against_resumed(by_rank[-1][first_step:], resumed)
    )


def _against_files(
    by_rank: list[list[Matrix]], wanted: Matrix, base: dict[str, Any]
) -> tuple[str, str] | None:
    if len({len(batches) for batches in by_rank}) > 1:
        return "unequal steps", f"{[len(batches) for batches in by_rank]} steps by rank"
    found = np.concatenate([_step(by_rank, step) for step in range(len(by_rank[0]))])
    expected = len(wanted)
    if base["drop_last"]:
        expected -= expected % _rows_a_step(base)
    if len(found) != expected:
        return "rows lost", f"{len(found)} rows, {expected} in the files"
    if not base["shuffle"]:
        same = np.array_equal(found, wanted[:expected])
        return None if same else ("wrong values", "not the stored rows in the stored order")
    missing, strange = _counted(found, wanted)
    if strange or missing != len(wanted) - expected:
        return "rows lost", f"{missing} rows missing, {strange} that are in no file"
    return None


def _against_one_rank(by_rank: list[list[Matrix]], alone: list[Matrix]) -> tuple[str, str] | None:
    for step, batch in enumerate(alone):
        if not np.array_equal(_step(by_rank, step), batch):
            return "other batches than one rank's", f"step {step}"
    return None


def _against_resumed(wanted: list[Matrix], found: list[Matrix]) -> tuple[str, str] | None:
    same = len(wanted) == len(found) and all(map(np.array_equal, wanted, found))
    return None if same else ("resumed elsewhere", f"{len(found)} steps of {len(wanted)}")


def _step(by_rank: list[list[Matrix]], step: int) -> Matrix:
    return np.concatenate([batches[step] for batches in by_rank])


def _counted(found: Matrix, wanted: Matrix) -> tuple[int, int]:
    """How many wanted rows were not found, how many found rows are nobody's."""
    rows, places = np.unique(np.concatenate([wanted, found]), axis=0, return_inverse=True)
    balance = np.bincount(places[: len(wanted)], minlength=len(rows))
    balance = balance - np.bincount(places[len(wanted) :], minlength=len(rows))
    return int(balance[balance > 0].sum()), int(-balance[balance < 0].sum())


def _rows_a_step(base: dict[str, Any]) -> int:
    return int(base["sizes"]["batch"] * base["sizes"]["ranks"])
