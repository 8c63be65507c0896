"""From a raw log to a dataset directory: the phases of a run, in order."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from ...foundation.atomic_write import copy_directory
from ...foundation.exceptions import MerlinSimError, UnfitNumberError
from ...foundation.staging import staged_directory
from ..continuation.newest_rows import HISTORY
from ..features.fitted_numbers import FittedNumbers
from ..features.item_values import ItemValues
from ..logs.bad_rows import BadRows
from ..vocabularies.item_changes import Changes, find_changes, write_item_values
from ..vocabularies.vocabulary import CATEGORIES, Vocabularies
from .dataset_spec import EVENTS, InTime
from .fitted import FittedWorkflow, write_fitted
from .histories import Histories
from .kept_users import EVENTS as KEPT_EVENTS
from .kept_users import ITEM_ROWS, ITEMS, USERS
from .phases.build_settings import BuildSettings, Features
from .phases.fitting import (
    check_types_of_keys,
    count_popularity,
    count_unseen,
    fit,
    refuse_a_single_item,
)
from .phases.reading import (
    choose_users,
    read_interactions,
    tell_what_behaviours_are_for,
    with_newest_validation,
)
from .phases.refusals import (
    refuse_times_that_leave_a_part_empty,
    refuse_what_cannot_be_built,
)
from .phases.writing import (
    choose_positions,
    encode,
    kept_for_next,
    refuse_counted_samples,
    write,
)
from .rules import ITEM_ORDER
from .split import Split
from .summary import Summary

WORK = ".work"


class _UnfitInLog(Exception):
    """A row of the log, not one that operators were fitted on, does not fit what they learned."""

    def __init__(self, fitted: FittedNumbers) -> None:
        super().__init__("a number does not fit its operators")
        self.fitted = fitted


@dataclass(frozen=True)
class DatasetBuilder(BuildSettings):
    """Builds a dataset directory of a log; the phases stand in ``phases/``."""

    def build(
        self,
        output: Path,
        *,
        fitted: FittedWorkflow | None = None,
        grow: bool = False,
        overwrite: bool = False,
    ) -> Summary:
        """Build ``output``; it appears whole or not at all.

        Args:
            output: The dataset directory.
            fitted: Take the ids of this workflow instead of fitting one: interactions with items
                that it does not know are left out, unknown users get id 0.
            grow: Give its unknown keys the next ids, instead.
            overwrite: Replace a directory that holds something.
        """
        source = self.source if fitted is None else self.source.checked_with(fitted.numbers)
        builder = replace(self, source=source)
        try:
            return builder._build(output, fitted, grow, overwrite)
        except _UnfitInLog as found:
            self.narrator.say(f"{found.__cause__} The log is read again to find such rows.")
            builder = replace(self, source=source.checked_with(found.fitted))
        try:
            return builder._build(output, fitted, grow, overwrite)
        except _UnfitInLog as found:
            raise MerlinSimError(str(found.__cause__)) from found

    def _build(
        self, output: Path, fitted: FittedWorkflow | None, grow: bool, overwrite: bool
    ) -> Summary:
        refuse_what_cannot_be_built(self, fitted, grow)
        summary = Summary(
            has_labels=self.columns.label is not None,
            equal_times=self.rules.equal_times,
            is_fitted=fitted is not None,
            continues=self.earlier is not None,
            shortest=self.rules.shortest_sequence_for_user,
        )
        with staged_directory(output, overwrite=overwrite, say=self.narrator.say) as directory:
            work = directory / WORK
            for name in (KEPT_EVENTS, ITEMS, ITEM_ROWS, USERS):
                (work / name).mkdir(parents=True)
            (directory / HISTORY).mkdir()
            given, in_log = self._read(directory, fitted, grow, summary)
            changes = self._changes(work, in_log, fitted)
            settled = self._settled_by_log(work, changes, summary)
            settled._make(directory, given, changes, fitted, grow, summary)
            shutil.rmtree(work)
        return summary

    def _settled_by_log(self, work: Path, changes: Changes, summary: Summary) -> DatasetBuilder:
        """The same, with what only the log says.

        That is what validates, whether times are equal, and which features change.
        """
        rules = with_newest_validation(self, work, self._split(), summary)
        has_equal_times = bool(summary.file_order.same_time) or self.earlier is not None
        return replace(
            self,
            rules=rules,
            has_equal_times=has_equal_times,
            steady=summary.steady,
            dated=bool(changes),
        )

    def _make(
        self,
        directory: Path,
        given: Features,
        changes: Changes,
        fitted: FittedWorkflow | None,
        grow: bool,
        summary: Summary,
    ) -> None:
        """Make the dataset of what was read."""
        work, split = directory / WORK, self._split()
        published = self.rules.equal_times == ITEM_ORDER
        by_hash = () if published else self.columns.items
        vocabularies = Vocabularies(directory / CATEGORIES, by_hash)
        numbers = self._fit_or_take(
            work, vocabularies, given, split, fitted, grow, changes, summary
        )
        values = self._write_values(work, changes, vocabularies, numbers)
        histories = self._encode(work, vocabularies, split, numbers, summary)
        if fitted is None or grow:
            count_popularity(self, histories, vocabularies, split, fitted, summary)
        counts_in_time = fitted is None and bool(self.columns.features.encodings)
        if counts_in_time:
            histories.write_events(directory / EVENTS, vocabularies, values)
        elif fitted is not None and self.columns.features.encodings:
            refuse_counted_samples(self, histories, fitted.counted_until)
        in_time = InTime(numbers if counts_in_time else None, values)
        write(self, directory, histories, in_time, summary)
        kept = kept_for_next(self, directory)
        grown_from = fitted if grow else None
        write_fitted(
            directory, self.columns, self.rules, summary.domains, numbers, kept, grown_from
        )

    def _changes(
        self, work: Path, in_log: tuple[str, ...], fitted: FittedWorkflow | None
    ) -> Changes:
        """Find the features of items that change; where they grow, those of new items."""
        changes = find_changes(self.columns, work, in_log)
        if fitted is not None:  # items that it knows keep what it knows of them
            item = self.columns.item
            known = {
                name: found.without(fitted.vocabularies.known(item, found.items.type))
                for name, found in changes.items()
            }
            changes = {name: found for name, found in known.items() if len(found.items)}
        return changes

    def _write_values(
        self, work: Path, changes: Changes, vocabularies: Vocabularies, numbers: FittedNumbers
    ) -> ItemValues | None:
        directory = work / "values of items"
        try:
            return write_item_values(directory, changes, self.columns, vocabularies, numbers)
        except UnfitNumberError as error:
            raise _UnfitInLog(numbers) from error

    def _read(
        self, directory: Path, fitted: FittedWorkflow | None, grow: bool, summary: Summary
    ) -> tuple[Features, tuple[str, ...]]:
        """Read item features and the log, of which users with long histories are kept.

        Args:
            directory: What is being built.
            split: What tests.
            fitted: What was fitted before, if anything.
            grow: Whether its vocabularies grow by the log.
            summary: Gets what was counted.

        Returns:
            The item features that do not stand in the log, and the names of those that do.
        """
        work = directory / WORK
        given = self._read_features(summary)
        in_log: tuple[str, ...] = ()
        if fitted is None or grow:
            named = tuple(name for name in self.columns.item_features if name not in given)
            in_log = named + self.columns.of_items
        dealt = read_interactions(self, work, summary, placed=bool(in_log))
        refuse_times_that_leave_a_part_empty(self, self._split(), fitted, summary)
        tell_what_behaviours_are_for(self, summary, fitted is None)
        choose_users(self, work, directory / HISTORY, dealt, in_log, summary)
        return given, in_log

    def _fit_or_take(
        self,
        work: Path,
        vocabularies: Vocabularies,
        given: Features,
        split: Split | None,
        fitted: FittedWorkflow | None,
        grow: bool,
        changes: Changes,
        summary: Summary,
    ) -> FittedNumbers:
        """Fit vocabularies and numbers on what was read, or take those that were fitted before."""
        if fitted is not None:
            check_types_of_keys(self, work, fitted)
            copy_directory(fitted.vocabularies.directory, vocabularies.directory)
            summary.grown = dict(fitted.sizes) if grow else {}
        if fitted is None or grow:
            numbers = fit(self, work, vocabularies, given, split, fitted, changes, summary)
        else:
            numbers = fitted.numbers
            summary.domains = dict(fitted.sizes)
        if fitted is not None:
            count_unseen(self, work, vocabularies, summary)
        refuse_a_single_item(self, vocabularies, summary)
        return numbers

    def _encode(
        self,
        work: Path,
        vocabularies: Vocabularies,
        split: Split | None,
        numbers: FittedNumbers,
        summary: Summary,
    ) -> Histories:
        try:
            histories = encode(self, work, vocabularies, split, numbers, summary)
        except UnfitNumberError as error:
            raise _UnfitInLog(numbers) from error
        choose_positions(self, histories, split, summary)
        return histories

    def with_features(self, read: Callable[[], tuple[Features, BadRows]]) -> DatasetBuilder:
        """The same, with a reader of item features."""
        return replace(self, features=read)

    def _read_features(self, summary: Summary) -> Features:
        if self.features is None:
            return {}
        given, bad = self.features()
        summary.bad_rows.append(bad)
        return given

    def _split(self) -> Split | None:
        """The split, its times as the source has them."""
        split = self.rules.split
        if split is None or split.test_from is None:
            return split
        names = ("test_from", "validation_from")
        texts = {name: getattr(split, name) for name in names}
        times = {
            name: None if text is None else self.source.time_of(text, f"--{name}")
            for name, text in texts.items()
        }
        return split.with_times(**times)
