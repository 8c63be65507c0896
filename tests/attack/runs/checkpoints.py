"""The attack on checkpoints: the newest whole one is read as it was saved, whatever lies beside.

Whole is a checkpoint whose files are, byte by byte, what was written.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ..attempt import Attempt, attempt
from ..kinds import MutationKind, pick, pick_kind
from ..mutations.file_mutations import FILE_KINDS
from ..outcome import READ, REFUSED, Outcome
from ..plan import Plan

KINDS: dict[str, MutationKind] = {kind.name: kind for kind in FILE_KINDS}
AUCS = {1: 0.6, 2: 0.8, 3: None}
"""The checkpoints: steps and test AUC."""

OPTIONS: dict[str, dict[str, Any]] = {
    "sim": {"embedding_dim": 4, "mlp": [8, 4]},
    "dlrm": {"embedding_dims": [4, 2], "bottom_mlp_dims": [8, 4], "top_mlp_dims": [8, 1]},
}
"""Model -> what a checkpoint says of it."""

Saved = tuple[dict[str, Any], dict[str, np.ndarray]]


class CheckpointFamily:
    """Cases on a directory of checkpoints."""

    name = "checkpoints"

    def prepare(self) -> None:
        """Import before any worker is forked."""
        import merlin_sim.checkpoints.checkpoint_store  # noqa: F401

    def draw(self, random: np.random.Generator) -> Plan:
        """Draw one to four changes."""
        count = int(random.integers(1, 5))
        mutations = tuple(pick_kind(random, FILE_KINDS).drawn(random) for _ in range(count))
        base = {
            "seed": int(random.integers(1000)),
            "named": pick(random, [0, 0, 0, 2]),
            "model": pick(random, list(OPTIONS)),
        }
        return Plan(base, mutations)

    def judge(self, plan: Plan, phase: Callable[[str], None]) -> Outcome:
        """Save, change, read."""
        from merlin_sim.checkpoints.checkpoint_store import CheckpointStore

        with tempfile.TemporaryDirectory(prefix="attack-") as parent:
            directory = Path(parent) / "saved"
            saved = _save_all(directory, plan.base["seed"], plan.base["model"])
            before = _contents(directory)
            for mutation in plan.mutations:
                KINDS[mutation.name].change(directory, **mutation.arguments)
            named = plan.base["named"]
            asked = directory / f"step-{named:010d}" if named else directory
            phase("load")
            said: list[str] = []
            tried = attempt(lambda: CheckpointStore(asked).load(said.append))
            return _judged(directory, asked, saved, before, tried)


def load_newest(directory: Path) -> Any:
    """Load the newest whole checkpoint of a run."""
    from merlin_sim.checkpoints.checkpoint_store import CheckpointStore

    return CheckpointStore(directory).load()


def _save_all(directory: Path, seed: int, model: str) -> dict[str, Saved]:
    from merlin_sim.checkpoints.array_part import whole
    from merlin_sim.checkpoints.checkpoint_store import CheckpointStore

    store, saved = CheckpointStore(directory), {}
    for steps, auc in AUCS.items():
        random = np.random.default_rng([seed, steps])
        arrays = {
            "model/0": random.random((5, 4), np.float32),
            "optimizer/0": random.integers(0, 9, 7),
            "train_auc": np.zeros((2, 8), np.int64),
        }
        facts = {
            "epoch": steps,
            "step": 3 * steps,
            "loss_sums": [0.5, steps / 3, 0.0],
            "model_type": model,
            "model_options": OPTIONS[model],
            "order": {"seed": 3, "shuffle": True},
            "finished_epoch": None,
        }
        saved[store.save(steps, facts, whole(arrays), auc).name] = (facts, arrays)
    return saved


def _contents(directory: Path) -> dict[str, dict[str, bytes]]:
    """Directory -> the bytes of each file in it."""
    return {
        path.name: {file.name: file.read_bytes() for file in path.iterdir() if file.is_file()}
        for path in directory.iterdir()
        if path.is_dir() and re.fullmatch(r"step-\d{10}", path.name)
    }


def _judged(
    directory: Path,
    asked: Path,
    saved: dict[str, Saved],
    before: dict[str, dict[str, bytes]],
    tried: Attempt,
) -> Outcome:
    if tried.fault is not None:
        return Outcome("traceback", tried.fault)
    now = _contents(directory) if directory.is_dir() else {}
    whole = [
        name
        for name, files in now.items()
        if all(files.get(file) == content for file, content in before.get(name, {"": b""}).items())
    ]
    expected = max((n for n in whole if asked == directory or n == asked.name), default=None)
    if tried.refusal is not None:
        if expected is not None:
            return Outcome("a whole checkpoint not found", f"{expected}: {tried.refusal[:300]}")
        if str(directory) not in tried.refusal:
            return Outcome("refused without a file", tried.refusal[:300])
        return Outcome(REFUSED, tried.refusal)
    found = tried.result
    if expected is not None and found.path.name < expected:
        return Outcome("an older checkpoint taken", f"{found.path.name}, not {expected}")
    if found.path.name not in saved or not _is_as_saved(found, saved[found.path.name]):
        return Outcome("a changed checkpoint accepted", f"{found.path.name}: {found.facts!s:.300}")
    return Outcome(READ)


def _is_as_saved(found: Any, saved: Saved) -> bool:
    facts, arrays = saved
    steps = int(found.path.name.removeprefix("step-"))
    wanted = {**facts, "steps": steps, "auc": AUCS[steps]}
    missing = object()
    same_facts = all(
        repr(found.facts.get(name, missing)) == repr(value) for name, value in wanted.items()
    )
    return (
        same_facts
        and found.arrays.keys() == arrays.keys()
        and all(np.array_equal(found.arrays[name], array) for name, array in arrays.items())
    )
