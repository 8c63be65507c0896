"""A search's memory: Optuna's storage in SQLite, which any number of processes share."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ...foundation.exceptions import MerlinSimError
from .study_file import Range, Search

STORAGE = "search.db"
LOCK = "search.lock"
NAME = "study"
WAIT_FOR_STORAGE = 60
"""Seconds that a process waits while another writes."""
NO_OPTUNA = (
    "a search needs Optuna, which is not installed: run `make setup` in your clone of merlin-sim, "
    "or `pip install -e '.[study]'` there; or name the values as a grid, which needs nothing."
)


def require_optuna() -> Any:
    """Import Optuna; refuse a search where there is none."""
    try:
        import optuna
    except ImportError as error:
        raise MerlinSimError(NO_OPTUNA) from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


class SearchMemory:
    """The trials of a search and their results, and the next ones."""

    def __init__(self, root: Path, search: Search) -> None:
        self._optuna = optuna = require_optuna()
        self.root, self.search = root, search
        with self.locked():
            self._study = self._open()
            space = json.dumps(_described(search.space), sort_keys=True)
            before = self._study.user_attrs.setdefault("space", space)
            if before != space:
                raise MerlinSimError(
                    f"{root} holds a search of another space: {before} there and {space} here. "
                    "Name another results_dir."
                )
            self._study.set_user_attr("space", space)
        if search.prune:
            # It counts steps from 0, a run its epochs from 1.
            self._study.pruner = optuna.pruners.MedianPruner(
                search.startup_trials, search.warmup_epochs + 1
            )
        else:
            self._study.pruner = optuna.pruners.NopPruner()

    def _open(self) -> Any:
        from sqlalchemy.exc import SQLAlchemyError

        path = self.root / STORAGE
        connection = {"connect_args": {"timeout": WAIT_FOR_STORAGE}}
        try:
            self._storage = self._optuna.storages.RDBStorage(f"sqlite:///{path}", connection)
            return self._optuna.create_study(
                storage=self._storage,
                study_name=NAME,
                direction="maximize",
                load_if_exists=True,
            )
        except (SQLAlchemyError, RuntimeError) as error:  # the latter of another version's storage
            message = " ".join(str(error).split())
            raise MerlinSimError(f"{path}: expected the storage of a search: {message}") from error

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from starting or resuming a trial."""
        with open(self.root / LOCK, "a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def numbers_to_run(self) -> Iterator[int]:
        """Yield the trials that were started and did not end, then a new one if any is left."""
        yield from self.begun()
        if self.count < self.search.trials:
            yield self.ask()

    def begun(self) -> list[int]:
        """List the trials that were started and did not end."""
        return [trial.number for trial in self._trials() if not trial.state.is_finished()]

    @property
    def count(self) -> int:
        """How many trials there are, ended or not."""
        return len(self._trials())

    def ask(self) -> int:
        """Start another trial."""
        self._use_sampler(self.count)
        number = int(self._study.ask().number)
        self.values(number)
        return number

    def values(self, number: int) -> dict[str, Any]:
        """Return a trial's values; draws those that it had not drawn before it was killed."""
        self._use_sampler(number)
        trial = self._trial(number)
        return {name: _suggest(trial, name, entry) for name, entry in self.search.space.items()}

    def report_epoch(self, number: int, epoch: int, auc: float) -> bool:
        """Note an AUC; return whether the trial should continue."""
        trial = self._trial(number)
        if epoch not in self._frozen(number).intermediate_values:
            trial.report(auc, epoch)
        return not trial.should_prune()

    def end(self, number: int, auc: float) -> None:
        """End a trial with its AUC."""
        self._study.tell(number, auc, skip_if_finished=True)

    def end_early(self, number: int) -> None:
        """Prune a trial."""
        pruned = self._optuna.trial.TrialState.PRUNED
        self._study.tell(number, state=pruned, skip_if_finished=True)

    def ended(self) -> list[tuple[int, str, dict[str, Any], float | None]]:
        """List the trials that have ended: number, how, values and AUC."""
        return [
            (t.number, t.state.name.lower(), dict(t.params), t.value if t.values else None)
            for t in self._trials()
            if t.state.is_finished()
        ]

    def _use_sampler(self, number: int) -> None:
        """Draw a trial by its number: a search that was stopped draws what it would have drawn."""
        self._study.sampler = self._optuna.samplers.TPESampler(
            seed=1000 * self.search.seed + number
        )

    def _trials(self) -> list[Any]:
        return list(self._study.get_trials(deepcopy=False))

    def _frozen(self, number: int) -> Any:
        return self._trials()[number]

    def _trial(self, number: int) -> Any:
        study = self._storage.get_study_id_from_name(NAME)
        known = self._storage.get_trial_id_from_study_id_trial_number(study, number)
        return self._optuna.trial.Trial(self._study, known)


def _suggest(trial: Any, name: str, entry: Range | tuple[Any, ...]) -> Any:
    if isinstance(entry, tuple):
        return trial.suggest_categorical(name, entry)
    if isinstance(entry.low, int) and isinstance(entry.high, int):
        return trial.suggest_int(name, entry.low, entry.high, step=entry.step or 1, log=entry.log)
    return trial.suggest_float(name, entry.low, entry.high, step=entry.step, log=entry.log)


def _described(space: Mapping[str, Range | tuple[Any, ...]]) -> dict[str, Any]:
    return {
        name: list(entry) if isinstance(entry, tuple) else asdict(entry)
        for name, entry in space.items()
    }
