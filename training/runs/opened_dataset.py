"""Checks of a run's directories, without TensorFlow: before heavy work."""

from __future__ import annotations

from ...foundation.exceptions import MerlinSimError
from ...models.family import Family
from ...models.known_families import find_family
from ...schemas.dataset import DatasetDirectory
from ...schemas.layout_names import VALIDATION
from ..evaluation.best_so_far import HOW_TO_VALIDATE
from .replayed import open_replayed, parse_replay
from .run_config import SPREAD, RunConfig

NEWEST = "newest"


def open_dataset(config: RunConfig) -> DatasetDirectory:
    """Open the directory; both mappings must be there, in files that the feed reads.

    Where only a checkpoint knows the model, its contract is checked when that is read.
    """
    family = None if config.model_type is None else find_family(config.model_type)
    options = None
    if family is not None and not config.begins_with_checkpoint:  # which has the other options
        options = family.options.parse(dict(config.model_options))
    directory, feature_spec = config.read_from or (config.dataset_dir, config.feature_spec)
    dataset = DatasetDirectory.open(directory, feature_spec=feature_spec)
    if family is not None:
        family.contract.check(dataset.spec)
        _check_xla(config, family)
        if options is not None:
            family.tables(dataset.schema, options)
    for mapping in ("train", "test"):
        dataset.stored_files(mapping)
    if config.replay is not None and config.mode == "train":
        open_replayed(parse_replay(config.replay)[0], config.feature_spec, dataset)
    _check_validation(config, dataset)
    return dataset


def selection(config: RunConfig, dataset: DatasetDirectory) -> str | None:
    """Name the mapping whose AUC finds the best checkpoint; None where none is chosen."""
    if config.select_by is not None:
        return None if config.select_by == NEWEST else config.select_by
    return VALIDATION if VALIDATION in dataset.spec.source_spec else None


def _check_validation(config: RunConfig, dataset: DatasetDirectory) -> None:
    """Refuse settings that go by validation data where the dataset has none."""
    if VALIDATION in dataset.spec.source_spec:
        return
    named = [] if config.early_stopping is None else ["early_stopping"]
    named += ["select_by validation"] if config.select_by == VALIDATION else []
    if named:
        raise MerlinSimError(
            f"{dataset.path}: {' and '.join(named)} needs validation data, and there are none. "
            f"{HOW_TO_VALIDATE}"
        )


def _check_xla(config: RunConfig, family: Family) -> None:
    if config.tables == SPREAD and config.xla and not family.compiles_after_lookups:
        raise MerlinSimError(
            f"`xla` cannot be given with spread tables of {family.name}: XLA does not compile what "
            "ranks exchange, which is in the middle of it."
        )
