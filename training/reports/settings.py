"""Runs put together that differ in their seed alone: a setting, and what sets it apart."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...foundation.settings import shown_value
from .run_results import RunResults

NOT_OF_A_SETTING = frozenset(
    {
        "seed",
        "results_dir",
        "log_filename",
        "log_format",
        "tensorboard",
        "save_scores",
        "save_checkpoint_path",
        "checkpoint_every",
        "keep_checkpoints",
        "start_timeout",
        "stall_timeout",
        "dataset_dir",  # its fingerprint says more
    }
)
"""Options that do not change what a run measures."""


@dataclass(frozen=True)
class RunGroup:
    """Runs of the same options on the same data."""

    name: str
    values: Mapping[str, Any]
    """What differs from other settings."""
    runs: Sequence[RunResults]

    def measured(self, measure: str) -> list[float]:
        """Return what its runs measured, as far as they did.

        Runs of one seed that measured the same say no more than one of them.
        """
        values = []
        seen = set()
        for run in self.runs:
            value, seed = run.metric(measure), run.config.get("seed")
            if value is None or (seed is not None and (seed, value) in seen):
                continue
            seen.add((seed, value))
            values.append(value)
        return values


def settings_of(runs: Sequence[RunResults]) -> list[RunGroup]:
    """Put together runs that differ in nothing but their seed, in the order of the first of each.

    A setting of a single run is called as the run is.
    """
    described = [_description(run) for run in runs]
    keys = list(dict.fromkeys(key for description in described for key in description))
    differing = [key for key in keys if len({_as_text(found.get(key)) for found in described}) > 1]
    together: dict[str, list[int]] = {}
    for index, found in enumerate(described):
        together.setdefault(_as_text({key: found.get(key) for key in differing}), []).append(index)
    settings = []
    for indices in together.values():
        values = {key: described[indices[0]].get(key) for key in differing}
        members = [runs[index] for index in indices]
        name = members[0].name if len(members) == 1 else name_of(values) or "all runs"
        settings.append(RunGroup(name, values, members))
    return settings


def name_of(values: Mapping[str, Any]) -> str:
    """Put what sets a setting apart in a few words.

    >>> name_of({"amp": True, "stage_two_mlp_dims": [200, 80], "lr": 0.01})
    'amp true, stage_two_mlp_dims 200,80, lr 0.01'
    """
    shown = (
        f"{key} {value:.6g}" if isinstance(value, float) else f"{key} {shown_value(value)}"
        for key, value in values.items()
    )
    return ", ".join(shown)


def _description(run: RunResults) -> dict[str, Any]:
    if not run.config:  # its options are not known
        return {"run": run.name}
    options = {key: value for key, value in run.config.items() if key not in NOT_OF_A_SETTING}
    if options.get("load_checkpoint_path") == run.config.get("save_checkpoint_path"):
        options.pop("load_checkpoint_path", None)  # a run that goes on where it was
    dataset = run.metadata.get("dataset") or {}
    return {**options, "ranks": run.metadata.get("ranks"), "dataset": dataset.get("fingerprint")}


def _as_text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)
