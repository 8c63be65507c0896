"""The attack on what serving and `--fitted` read: servables, and a dataset's fitted state.

What is opened is as it was made; anything else is refused with a file's name.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ..attempt import attempt
from ..kinds import MutationKind, pick_kind
from ..mutations.file_mutations import FILE_KINDS, files_of
from ..outcome import READ, REFUSED, Outcome
from ..plan import Plan
from .good_servable import good_servable

KINDS: dict[str, MutationKind] = {kind.name: kind for kind in FILE_KINDS}
SCORED = 0.02
"""The share of the accepted servables whose model is loaded too: that takes seconds."""


class GoodFilesFamily:
    """Cases on a directory of files that something reads whole."""

    def __init__(self, name: str, directory: str, files: tuple[str, ...]) -> None:
        """Name the directory and those of its files that are changed."""
        self.name = name
        self._source = directory
        self._files = files

    def prepare(self) -> None:
        """Make the good files and import before any worker is forked."""
        import merlin_sim.serving.scoring.scorer
        import merlin_sim.workflows.criteo.click_graph  # noqa: F401

        self._good = good_servable() / self._source

    def draw(self, random: np.random.Generator) -> Plan:
        """Draw up to three changes."""
        count = int(random.integers(4))
        mutations = tuple(pick_kind(random, FILE_KINDS).drawn(random) for _ in range(count))
        return Plan({"scored": bool(random.random() < SCORED)}, mutations)

    def judge(self, plan: Plan, phase: Callable[[str], None]) -> Outcome:
        """Copy, change, open."""
        with tempfile.TemporaryDirectory(prefix="attack-") as parent:
            directory = Path(parent) / "copy"
            directory.mkdir()
            for name in self._files or os.listdir(self._good):
                _copy(self._good / name, directory / name)
            for mutation in plan.mutations:
                KINDS[mutation.name].change(directory, **mutation.arguments)
            phase("open")
            tried = attempt(lambda: READERS[self.name](directory, plan.base["scored"]))
            if tried.fault is not None:
                return Outcome("traceback", tried.fault)
            if tried.refusal is not None:
                if not plan.mutations:
                    return Outcome("refused a good file", tried.refusal[:300])
                named = str(directory) in tried.refusal
                kind = REFUSED if named else "refused without a file"
                return Outcome(kind, tried.refusal[:300])
            phase("truth")
            wanted = READERS[self.name](self._good, plan.base["scored"])
            if repr(tried.result) != repr(wanted):
                return Outcome("a change accepted", f"{tried.result!r:.300}, not {wanted!r:.300}")
            return self._against_bytes(directory)

    def _against_bytes(self, directory: Path) -> Outcome:
        """Every file that is there is, byte by byte, what was made."""
        for path in files_of(directory):
            name = path.relative_to(directory)
            if (self._good / name).read_bytes() != path.read_bytes():
                return Outcome("a change accepted", str(name))
        return Outcome(READ)


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target)
    else:
        shutil.copyfile(source, target)


def read_servable(directory: Path, scored: bool) -> Any:
    """Open a servable as serving does: its columns, its vocabularies, now and then its scores."""
    from merlin_sim.serving.events.row_encoder import open_encoder
    from merlin_sim.serving.servables.servable import Servable

    servable = Servable.open(directory)
    encoder = open_encoder(servable)
    event: dict[str, Any] = {column.name: "u1" for column in encoder.columns.users}
    event |= {"history": ["i1", "i2", "i5"], "candidates": ["i3", "i4", "none"]}
    if servable.takes_rows:
        keyed = {column.name: column.largest_id for column in encoder.columns.targets}
        event = {name: 1.5 if last is None else "01234567" for name, last in keyed.items()}
    encoded = encoder.encode(encoder.parse(event))
    scores = None
    if scored:
        from merlin_sim.serving.scoring.scorer import Scorer

        scores = np.round(Scorer(servable).score_events([encoded])[0], 6).tolist()
    return encoder.columns, encoded, scores


def read_fitted(directory: Path, scored: bool) -> Any:
    """Load a fitted workflow as `preprocess --fitted` does."""
    from merlin_sim.workflows.preprocess.fitted import FittedWorkflow

    fitted = FittedWorkflow.load(directory)
    keys = {name: fitted.vocabularies.keys(name).tolist() for name in fitted.domains}
    return fitted.columns, fitted.rules, keys, fitted.sizes


def read_fitted_clicks(directory: Path, scored: bool) -> Any:
    """Load a fitted workflow as `preprocess criteo --fitted` does, with all of its tables."""
    from merlin_sim.workflows.criteo.click_graph import keys_operator, load_clicks

    workflow, rules = load_clicks(directory)
    op = keys_operator(workflow)
    return rules, {name: op.keys(name).to_pylist() for name in op.categories}


READERS: dict[str, Callable[[Path, bool], Any]] = {
    "servables": read_servable,
    "fitted state": read_fitted,
    "click servables": read_servable,
    "fitted clicks": read_fitted_clicks,
}
