"""The last phases: histories are encoded, their positions chosen, and samples or users written."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np

from ....foundation.atomic_write import copy_directory
from ....foundation.digest import sha256
from ....schemas.dataset import DatasetDirectory, write_documents
from ....schemas.users_layout import USERS as USERS_LAYOUT
from ...continuation.earlier_histories import EarlierHistories
from ...continuation.newest_rows import HISTORY
from ...engine.schedulers import written_by_task
from ...features.event_counts import refuse_counted
from ...features.fitted_numbers import FittedNumbers
from ...vocabularies.vocabulary import Vocabularies
from ..behaviour_columns import ROLE, SECONDS
from ..dataset_spec import EVENTS, ITEM_CHANGES, InTime, users_layout_of, users_spec
from ..encode_users import encode_all
from ..histories import Histories
from ..kept_users import EVENTS as KEPT_EVENTS
from ..positions import TRAIN
from ..rules import LATEST
from ..split import Split
from ..summary import Summary
from ..write_users import user_parts, write_users
from .build_settings import BuildSettings
from .refusals import split_in_words


def encode(
    settings: BuildSettings,
    work: Path,
    vocabularies: Vocabularies,
    split: Split | None,
    numbers: FittedNumbers,
    summary: Summary,
) -> Histories:
    """Replace keys by ids, and gather each user's history."""
    encoded = work / "encoded"
    histories = Histories(work / "histories", settings.columns)
    with settings.narrator.phase("encoding histories", summary.users) as report:
        for rows in encode_all(
            settings.columns,
            vocabularies,
            work / KEPT_EVENTS,
            encoded,
            settings.rules,
            split,
            settings.scheduler,
            numbers if settings.columns.features else None,
        ):
            report(rows, rows)
        names = sorted(path.name for path in (work / KEPT_EVENTS).glob("*.arrow"))
        histories.gather((written_by_task(encoded / name) for name in names), split)
    read = summary.kept_interactions + summary.earlier_interactions
    summary.unseen_earlier = read - int(histories.offsets[-1]) - summary.unseen_rows
    summary.unknown_users = int((histories.column(settings.columns.user) == 0).sum())
    return histories


def choose_positions(
    settings: BuildSettings, histories: Histories, split: Split | None, summary: Summary
) -> None:
    """Choose which interactions are samples; refuse a split that leaves a part without any."""
    rules = settings.rules
    histories.choose_positions(rules.shortest_sequence_for_training, split, rules.validates_last)
    _count_targets(settings, histories, summary)
    if split is None and not rules.validates_last and settings.columns.roles != (ROLE,):
        return
    for mapping in settings.rules.mappings:
        if not histories.count_samples(mapping, settings.rules.twins):
            by = f"the split ({split_in_words(settings.rules)})" if split else "each user's last"
            hint = (
                " `--validation none` leaves out the part that validates."
                if rules.validates_last
                else ""
            )
            raise summary.stopped(
                f"{settings.files}: expected samples in {mapping}, found none: {by} "
                f"leaves it no interaction with enough before it.{hint}",
            )


def _count_targets(settings: BuildSettings, histories: Histories, summary: Summary) -> None:
    """Count which interactions become samples, and what becomes of the others."""
    for mapping in settings.rules.mappings:
        summary.targets[mapping] = histories.count_positions(mapping)
    samples = int(histories.offsets[-1])
    if settings.columns.indexes_samples:
        samples = int(histories.samples.offsets[-1])
    summary.history_only = summary.kept_interactions - summary.unseen_rows - samples
    summary.too_early = samples - sum(summary.targets.values())
    summary.least_before = settings.rules.shortest_sequence_for_training


def refuse_counted_samples(
    settings: BuildSettings, histories: Histories, counted_until: float
) -> None:
    """Refuse a log that the fitted workflow counted for its encodings."""
    seconds = histories.numbers(SECONDS)
    places = [histories.places_of_samples(mapping)[1] for mapping in settings.rules.mappings]
    refuse_counted(settings.files, seconds[np.concatenate(places)], counted_until)


def write(
    settings: BuildSettings,
    directory: Path,
    histories: Histories,
    in_time: InTime,
    summary: Summary,
) -> None:
    """Write the rows: one per user, and of these one per sample where that is asked for."""
    rules = settings.rules
    if rules.feature_values == LATEST:
        trained, _ = histories.places_of_samples(TRAIN)
        summary.outdated = histories.count_outdated(TRAIN, in_time.changes), len(trained)
        in_time = replace(in_time, changes=None)
    _write_users(settings, directory, histories, in_time, summary)
    if settings.layout == USERS_LAYOUT:
        summary.rows = {name: histories.count_samples(name, rules.twins) for name in rules.mappings}
    else:
        from ..write_samples import write_samples  # TensorFlow, which users' rows do without

        users = DatasetDirectory.open(directory)
        summary.rows = write_samples(users, directory, settings.narrator, rules.pad)
        for name in (USERS_LAYOUT, EVENTS, ITEM_CHANGES):
            shutil.rmtree(directory / name, ignore_errors=True)
    files = directory.glob("*/part.*.parquet")
    summary.bytes = sum(path.stat().st_size for path in files)


def _write_users(
    settings: BuildSettings,
    directory: Path,
    histories: Histories,
    in_time: InTime,
    summary: Summary,
) -> None:
    if in_time.changes is not None:
        copy_directory(in_time.changes.directory, directory / ITEM_CHANGES)
    layout = users_layout_of(settings.columns, settings.rules, in_time)
    items = summary.domains[settings.columns.item]
    with settings.narrator.phase("writing users", summary.users) as report:
        for users in write_users(histories, layout, items, directory, settings.scheduler):
            report(users, users)
    files = [part.file for part in user_parts(histories)]
    spec = users_spec(settings.columns, summary.domains, settings.rules, files, in_time)
    write_documents(directory, spec)


def kept_for_next(settings: BuildSettings, directory: Path) -> EarlierHistories:
    """What a later log's histories go on from."""
    files = sorted((directory / HISTORY).glob("*.parquet"))
    return EarlierHistories(
        directory,
        settings.rules.kept_for_next,
        settings.source.time_kind(),
        {path.name: sha256(path) for path in files},
    )
