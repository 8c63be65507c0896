"""Which checkpoint stands for a run: the best one, the newest, or that of a step."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from .asked_step import BEST, NEWEST
from .checkpoint_files import Checkpoint, CheckpointError
from .checkpoint_store import AUC, CheckpointStore, auc_of


def choose_checkpoint(
    directory: Path,
    step: str = BEST,
    say: Callable[[str], None] = lambda message: None,
    check: Callable[[Checkpoint], None] = lambda checkpoint: None,
) -> Checkpoint:
    """Read the checkpoint that is asked for, and say which one it is and why.

    Args:
        directory: a run's directory of checkpoints, or one of them, which is then taken.
        step: ``best``: by the AUC that the run kept its best checkpoint by, validation data's as a
            rule, and the newest where the run chose none; ``newest``; or the number of a step.
        say: called with what was chosen, and with what had to be passed over.
        check: raises CheckpointError for a checkpoint that does not say what is needed.

    Raises:
        CheckpointError: where there is no such checkpoint that is whole; of an unknown step with
            the steps that are there.
    """
    store = CheckpointStore(directory)
    if store.is_one_checkpoint:
        return _named(store, step, say, check)
    names = store.names()
    if step not in (BEST, NEWEST):
        wanted = f"step-{int(step):010d}"
        if wanted not in names:
            raise _no_such_step(directory, step, names)
        return CheckpointStore(directory / wanted).load(say, check)
    first = store.ranking() if step == BEST else []
    rest = [name for name in names if name not in first]
    checkpoint = store.load(say, check, [*first, *rest])
    say(f"{checkpoint.path}: {_why(checkpoint, first, names, step)}")
    return checkpoint


def _named(
    store: CheckpointStore,
    step: str,
    say: Callable[[str], None],
    check: Callable[[Checkpoint], None],
) -> Checkpoint:
    """Read the one checkpoint that a path names; another step than its own is refused."""
    name = store.directory.name
    if step not in (BEST, NEWEST) and name != f"step-{int(step):010d}":
        raise _no_such_step(store.directory, step, [name])
    return store.load(say, check)


def _no_such_step(directory: Path, step: str, names: list[str]) -> CheckpointError:
    steps = ", ".join(str(_steps(name)) for name in reversed(names)) or "none"
    return CheckpointError(
        f"{directory}: `step` should be {BEST}, {NEWEST} or one of the steps that are there "
        f"({steps}). Received: {step}"
    )


def _steps(name: str) -> int:
    return int(name.removeprefix("step-"))


def _why(checkpoint: Checkpoint, ranked: list[str], names: list[str], step: str) -> str:
    name, newest = checkpoint.path.name[:15], names[0] if names else ""
    if name in ranked:
        of, auc = auc_of(checkpoint.facts), checkpoint.facts[AUC]
        others = "" if name == newest else f"; the newest is step {_steps(newest)}"
        return f"step {_steps(name)}, the best by AUC of {of} data ({auc:.4f}){others}"
    if step == NEWEST:
        return f"step {_steps(name)}, the newest, as was asked for"
    return f"step {_steps(name)}, the newest: its run chose no best one"
