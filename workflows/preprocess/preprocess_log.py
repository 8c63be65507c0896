"""From a raw log to a dataset directory: read, graph, fit, write."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import dask.dataframe as dd
import numpy as np
import nvtabular as nvt
import pyarrow as pa
import pyarrow.compute as pc
from merlin.dag import iter_nodes
from merlin.io import Dataset

from ...foundation.digest import sha256
from ...foundation.exceptions import MerlinSimError, UnfitNumberError
from ...foundation.files import copy_directory, staged_directory, whole_file
from ...foundation.hashing import hash_keys
from ...foundation.process_wide import quiet_merlin
from ...schemas.dataset import DatasetDirectory
from ...schemas.item_table import COUNT
from ...schemas.layout_names import CATEGORIES, VALIDATION
from ...schemas.users_layout import POPULARITY, SAMPLE
from ...schemas.users_layout import USERS as USERS_LAYOUT
from ..behaviour_columns import LOG_ROW
from ..dataset_spec import EVENTS as COUNTED_EVENTS
from ..dataset_spec import ITEM_CHANGES
from ..fitted_numbers import FittedNumbers
from ..frames import distinct, frame_from_arrow
from ..ops.categorify import Categorify
from ..ops.group_histories import GroupHistories
from ..ops.key_index import ABSENT, KeyIndex
from ..ops.workflow import Workflow, fitting_on
from ..rules import ALL_ROWS, LATEST, SampleRules, newest_tenth
from ..schedulers import read_arrow, written_by_task
from ..table_log import MOST_BEHAVIOURS
from ..text_lines import bad_rows_of
from ..times import TimeRange, joined, known_times, text_of_time
from .dataset_writer import DatasetWriter, fitted_numbers, group_of, keys_of
from .earlier_histories import (
    FITTED,
    HISTORY,
    OF_HISTORIES,
    EarlierHistories,
    HistoryWriter,
    kept_for_next,
    stored_of_items,
)
from .fitted import write_fitted
from .graph import behaviour_graph
from .kept_users import EVENTS, OTHERS, Given, KeepLongUsers
from .settings import SAMPLES, Settings, refuse_what_cannot_be_built, split_in_words, split_of
from .summary import Summary
from .user_buckets import BUCKETS, DealtFiles, LogDealer, deal_log, number_of_buckets

WORK = ".work"
EARLIER_BUCKETS = "earlier buckets"


class _UnfitInLog(Exception):
    """A row of the log, not one that operators were fitted on, does not fit what they learned."""

    def __init__(self, fitted: FittedNumbers) -> None:
        super().__init__("a number does not fit its operators")
        self.fitted = fitted


@dataclass(frozen=True)
class PreprocessLog(Settings):
    """Makes a dataset directory of a log."""

    def write(self, output: Path, *, overwrite: bool = False) -> Summary:
        """Write the dataset directory ``output``; it appears whole or not at all."""
        source = self.source
        if self.fitted is not None:
            source = source.checked_with(self.fitted.numbers)
        try:
            return replace(self, source=source)._write(output, overwrite)
        except _UnfitInLog as found:
            self.reporter.say(f"{found.__cause__} The log is read again to find such rows.")
            again = replace(self, source=source.checked_with(found.fitted))
        try:
            return again._write(output, overwrite)
        except _UnfitInLog as found:
            raise MerlinSimError(str(found.__cause__)) from found

    def _write(self, output: Path, overwrite: bool) -> Summary:
        refuse_what_cannot_be_built(self)
        summary = Summary(self)
        with staged_directory(output, overwrite=overwrite, say=self.reporter.say) as directory:
            _Run(self, directory, summary).run()
        return summary


@dataclass
class _Run:
    settings: PreprocessLog
    directory: Path
    summary: Summary

    @property
    def work(self) -> Path:
        return self.directory / WORK

    @property
    def marks(self) -> Path:
        """The folder of files that say of each row of the users kept whether it is fitted on."""
        return self.work / "trains"

    def run(self) -> None:
        settings, summary = self.settings, self.summary
        for name in (EVENTS, OTHERS):
            (self.work / name).mkdir(parents=True)
        (self.directory / HISTORY).mkdir()
        given: Given = {}
        if settings.given is not None and settings.fits:
            given, bad = settings.given()
            summary.bad_rows.append(bad)
        dealt = self._read_interactions()
        summary.refuse_times_that_leave_a_part_empty()
        self._choose_users(given, *dealt)
        workflow = self._workflow(given)
        if settings.fits:
            self._fit(workflow, given)
        if settings.fitted is not None:
            self._count_unseen(workflow)
        self._write(workflow)
        shutil.rmtree(self.work)

    # ---- read ----

    def _read_interactions(self) -> tuple[int, DealtFiles, DealtFiles | None]:
        """Deal the log out to buckets by users, and the earlier histories; say where both are."""
        settings, summary, source = self.settings, self.summary, self.settings.source
        more = 0 if settings.earlier is None else settings.earlier.size()
        buckets = number_of_buckets(source.size() + more)
        (self.work / BUCKETS).mkdir()
        dealer = LogDealer(
            source,
            settings.columns,
            self.work / BUCKETS,
            buckets,
            settings.on_bad_rows,
            settings.parts,
        )
        with settings.reporter.phase("reading interactions", source.size()) as report:
            results = deal_log(dealer, settings.scheduler.run, report)
        summary.interactions = sum(result.rows for result in results)
        for result in results:
            summary.behaviours += result.behaviours
        blocks, in_order = source.blocks(), sorted(results, key=lambda result: result.block)
        summary.bad_rows += bad_rows_of((blocks[r.block], r.lines, r.bad) for r in in_order)
        if not summary.interactions:
            raise summary.stopped(f"{settings.files}: expected interactions, found none.")
        dealt = DealtFiles(self.work / BUCKETS, tuple(result.file for result in results))
        earlier, ranges = None, [result.times for result in results]
        times = joined(ranges)
        assert times is not None  # as there are interactions
        if settings.earlier is not None:
            earlier, more_ranges = self._deal_earlier(settings.earlier, buckets, dealt)
            ranges += more_ranges
        columns = settings.columns
        known = known_times(
            joined(ranges) or times, source.time_kind(), columns.features.timestamp_unit,
            columns.needs_unit, columns.timestamp,
        )  # fmt: skip
        summary.times = replace(known, range=times)
        self._report_what_behaviours_are_for()
        return buckets, dealt, earlier

    def _deal_earlier(
        self, earlier: EarlierHistories, buckets: int, log: DealtFiles
    ) -> tuple[DealtFiles, list[TimeRange | None]]:
        """Deal the earlier rows out as well; gives from when to when they are, too."""
        settings, output, ranges = self.settings, self.work / EARLIER_BUCKETS, []
        output.mkdir()
        with settings.reporter.phase("reading earlier histories", len(earlier.files)) as report:
            for rows, found in earlier.deal(
                settings.columns, log.empty_table(), settings.source.time_kind(), buckets, output
            ):
                report(1, rows)
                ranges.append(found)
        return DealtFiles(output, tuple(path.name for path in output.glob("*.arrow"))), ranges

    def _report_what_behaviours_are_for(self) -> None:
        """Say what each behaviour is for; refuse those that a log to be fitted on lacks."""
        settings, summary, columns = self.settings, self.summary, self.settings.columns
        if columns.behaviour is None:
            return
        parts = {"history": columns.history_behaviours, "predicted": columns.target_behaviours}
        for name in summary.behaviours:
            played = [part for part, names in parts.items() if not names or name in names]
            if played:
                summary.roles[name] = " and ".join(played)
        named = dict.fromkeys(name for names in parts.values() for name in names)
        missing = [name for name in named if name not in summary.behaviours]
        if missing and settings.fitted is None:
            known = [name for name, _ in summary.behaviours.most_common(MOST_BEHAVIOURS)]
            more = ", ..." if len(summary.behaviours) > len(known) else ""
            raise summary.stopped(
                f"{settings.files}: column {columns.behaviour!r}: expected the behaviours "
                f"{', '.join(missing)}, found only {', '.join(known)}{more}.",
            )

    def _choose_users(
        self, given: Given, buckets: int, log: DealtFiles, earlier: DealtFiles | None
    ) -> None:
        settings, summary, rules = self.settings, self.summary, self.settings.rules
        keep = KeepLongUsers(
            columns=settings.columns,
            rules=rules,
            buckets=log,
            earlier=earlier,
            directory=self.work,
            given=given,
        )
        with settings.reporter.phase("choosing users", buckets) as report:
            for bucket in settings.scheduler.run(keep, range(buckets)):
                report(1, bucket.rows)
                summary.add_bucket(bucket)
                if bucket.rows:
                    written_by_task(keep.file(bucket.bucket))
                if bucket.others:
                    written_by_task(keep.file(bucket.bucket, OTHERS))
                if bucket.mixed:
                    raise MerlinSimError(
                        f"{settings.files}: expected that a user's interactions of test come "
                        "after those that validate, and these after those that train; found one "
                        f"of user {bucket.mixed} of a later part."
                    )
        if not summary.users:
            together = ""
            if settings.earlier is not None:
                together = f"in the histories of {settings.earlier.directory} and the log together "
            raise summary.stopped(
                f"No user has {rules.shortest_sequence_for_user} "
                f"{settings.columns.history_in_words} or more "
                f"{together}(`shortest_sequence_for_user`): {summary.interactions:,} "
                f"interactions of {summary.dropped_users:,} users were read from "
                f"{settings.files}, nothing is left.",
            )
        for files in filter(None, (log, earlier)):
            shutil.rmtree(files.directory)

    # ---- graph ----

    def _with_newest_validation(self) -> SampleRules:
        """The rules, with a part that validates where they ask for one and name none.

        Of a split by time it is the newest tenth of what would train.
        """
        settings, summary = self.settings, self.summary
        rules, columns = settings.rules, settings.columns
        if VALIDATION in rules.mappings:
            return rules
        if rules.validation is None:
            summary.validation = "nothing validates"
            return rules
        if rules.test_files:
            summary.validation = "nothing validates: give files that do (`--validation_path`)"
            return rules
        split = split_of(rules, settings.source)
        assert split is not None and split.test_from is not None
        names, kept = [columns.user, columns.timestamp, *columns.roles], self._events()
        events = pa.concat_tables(kept.table(name).select(names) for name in kept.names)
        trains = split.parts_of(events, columns.user, columns.timestamp) == 0
        for name in columns.roles:
            roles = columns.roles_of(np.asarray(events[name]).astype(np.int64))
            trains &= (roles & SAMPLE) > 0
        first = newest_tenth(np.asarray(events[columns.timestamp])[trains])
        if first is None:
            summary.validation = "nothing validates: all that trains has one time"
            return rules
        text = text_of_time(first, settings.source.time_kind())
        summary.validation = (
            f"validation: the newest tenth of what would train, from {text} on "
            "(`--validation_from`, or `--validation none`)"
        )
        return replace(rules, validation_from=text)

    def _workflow(self, given: Given) -> nvt.Workflow:
        """The graph, with what the fitted workflow learned where there is one.

        Only the log says what validates, whether times are equal, and which features change.
        """
        settings, summary, fitted = self.settings, self.summary, self.settings.fitted
        rules, columns = self._with_newest_validation(), settings.columns
        has_equal_times = bool(summary.file_order.same_time) or settings.earlier is not None
        columns = replace(
            columns,
            own_time_excluded=columns.own_time_excluded and has_equal_times,
            steady=(*summary.steady, *given),
        )
        split = split_of(rules, settings.source)
        node = behaviour_graph(columns, rules, split, str(self.work / "vocabularies"))
        workflow = Workflow(node)
        schema = self._events().dataset().schema
        with quiet_merlin():
            workflow.fit_schema(schema)
            if fitted is not None:
                fitted.teach(workflow, schema, grow=settings.grow)
                summary.grown = dict(fitted.sizes) if settings.grow else {}
        return workflow

    def _events(self) -> Events:
        names = sorted(path.name for path in (self.work / EVENTS).glob("*.arrow"))
        columns = self.settings.columns
        of_items = set(stored_of_items(columns)) - set(columns.items_in_log)
        return Events(self.work / EVENTS, tuple(names), (*OF_HISTORIES, *of_items))

    # ---- fit ----

    def _fit(self, workflow: nvt.Workflow, given: Given) -> None:
        settings, summary = self.settings, self.summary
        events = self._events()
        group: GroupHistories = workflow.output_node.op
        if settings.fitted is not None:
            _check_types_of_keys(self)
        if group.rules.fit_on != ALL_ROWS or group.columns.continued:
            self.marks.mkdir()
            mark = partial(mark_training, events, group, self.marks)
            training = 0
            with settings.reporter.phase("splitting", len(events.names)) as report:
                for rows in settings.scheduler.run(mark, events.names):
                    report(1, rows)
                    training += rows
            if not training:
                raise summary.stopped(
                    f"{settings.files}: expected samples in {group.rules.mappings[0]}, found "
                    "none: no row of the users who are kept trains. Give another split, or fit "
                    f"on all rows (`--fit_on {ALL_ROWS}`)."
                )
            events = replace(events, marks=self.marks)
        with settings.reporter.phase("fitting the workflow", 1) as report:
            try:
                with fitting_on(workflow, settings.scheduler.compute), quiet_merlin():
                    if settings.fitted is None:
                        workflow.fit(events.dataset())
                    else:
                        grow(workflow, events.dataset())
            except UnfitNumberError as error:
                if not fitted_numbers(workflow).without_values():
                    raise _UnfitInLog(fitted_numbers(workflow)) from error
            except MerlinSimError as error:
                raise summary.stopped(f"{settings.files}: {error}") from error
            report(1, sum(group.sizes.values()))
        numbers = fitted_numbers(workflow)
        for name in numbers.without_values():
            raise summary.stopped(
                f"{settings.files}: {name!r}: expected numbers, found none: all are missing."
            )
        items = keys_of(workflow, group.columns.item)
        for name, (known, _, _) in given.items():
            summary.unknown[name] = pc.index_in(items, known).null_count
        summary.fewer_buckets = numbers.fewer_buckets(group.columns.features)
        self._refuse_a_single_item(workflow)

    def _refuse_a_single_item(self, workflow: nvt.Workflow) -> None:
        """Refuse a log that has no second item for a negative sample."""
        settings, group = self.settings, workflow.output_node.op
        name = group.columns.item
        size = group.sizes[name]
        counts = np.asarray(group.items.for_ids(size)[COUNT])
        drawn = np.flatnonzero(counts if group.rules.drawn_by == POPULARITY else counts + 1)
        if len(drawn) > 1:
            return
        only = [repr(keys_of(workflow, name)[int(n)].as_py()) for n in drawn]
        raise self.summary.stopped(
            f"{settings.files}: column {name!r}: expected {settings.columns.history_in_words} "
            f"with at least two items, found only {', '.join(only) or 'none'}: a negative "
            "history, and a negative sample that is drawn, needs another one. Is it the column of "
            "the items?",
        )

    def _count_unseen(self, workflow: nvt.Workflow) -> None:
        """Count what the vocabularies do not know, file by file."""
        settings, summary, item = self.settings, self.summary, self.settings.columns.item
        if not settings.fits:
            _check_types_of_keys(self)
        events, known = self._events(), KeyIndex(keys_of(workflow, item))
        interactions, hashes = 0, np.zeros(0, np.uint64)
        for name in events.names:
            rows = events.table(name)
            if LOG_ROW in rows.column_names:  # earlier rows are not those of the log
                rows = rows.filter(pc.greater_equal(rows[LOG_ROW], 0))
            items = rows[item].combine_chunks().dictionary_encode()
            is_unseen = known.positions(items.dictionary.cast(known.keys.type)) == ABSENT
            unseen = items.filter(pa.array(is_unseen[np.asarray(items.indices)]))
            interactions += len(items)
            summary.unseen_rows += len(unseen)
            hashes = np.union1d(hashes, hash_keys(distinct(unseen)))
        summary.unseen_items = len(hashes)
        if summary.unseen_rows == interactions:
            raise summary.stopped(
                f"{settings.files}: column {item!r}: expected items that the fitted workflow "
                f"knows, found none: {summary.unseen_items:,} others.",
            )

    # ---- write ----

    def _write(self, workflow: nvt.Workflow) -> None:
        settings, summary, directory = self.settings, self.summary, self.directory
        writer = DatasetWriter(
            workflow, self._events().dataset(), directory, settings.scheduler, settings.reporter,
            summary.users,
        )  # fmt: skip
        group = writer.group
        summary.domains = {name: group.sizes[name] for name in group.columns.domains}
        try:
            written = writer.write_users()
        except UnfitNumberError as error:
            raise _UnfitInLog(fitted_numbers(workflow)) from error
        self._count_written(group, written)
        if settings.fitted is not None and group.columns.features.encodings:
            written.refuse_counted(group, settings.files, group.rules.mappings)
        if settings.fits:
            writer.write_vocabularies()
        else:
            assert settings.fitted is not None
            copy_directory(settings.fitted.vocabularies.directory, directory / CATEGORIES)
        if settings.layout != SAMPLES:  # which are described with their own files
            writer.write_documents()
        self._write_histories()
        grown_from = settings.fitted if settings.grow else None
        fitted = workflow
        if not settings.fits and settings.fitted is not None:
            fitted = settings.fitted.workflow
            own = group_of(fitted)
            own.rules, own.split = group.rules, group.split
        kept = EarlierHistories(
            directory,
            kept_for_next(group.columns, group.rules),
            settings.source.time_kind(),
            {path.name: sha256(path) for path in sorted((directory / HISTORY).glob("*.parquet"))},
        )
        write_fitted(directory, fitted, kept, grown_from)
        summary.rows = written.rows
        if settings.layout == SAMPLES:
            self._write_samples(writer.users, group.rules)
        files = directory.glob("*/part.*.parquet")
        summary.bytes = sum(path.stat().st_size for path in files)

    def _write_histories(self) -> None:
        """Write what the next day begins with, also of users who are not kept."""
        settings, columns = self.settings, self.settings.columns
        write = HistoryWriter(
            columns,
            settings.rules,
            self.directory / CATEGORIES / f"{columns.item}.parquet",
            self.directory / HISTORY,
            self.marks if self.marks.is_dir() else None,
        )
        tasks = [
            (path, settings.fits and of == EVENTS)
            for of in (EVENTS, OTHERS)
            for path in sorted((self.work / of).glob("*.arrow"))
        ]
        with settings.reporter.phase("keeping histories", len(tasks)) as report:
            for rows in settings.scheduler.run(write, tasks):
                report(1, rows)

    def _write_samples(self, users: DatasetDirectory, rules: SampleRules) -> None:
        from .write_samples import write_samples  # TensorFlow, which users' rows do without

        reporter = self.settings.reporter
        self.summary.rows = write_samples(users, self.directory, reporter, rules.pad)
        for name in (USERS_LAYOUT, COUNTED_EVENTS, ITEM_CHANGES):
            shutil.rmtree(self.directory / name, ignore_errors=True)

    def _count_written(self, group: GroupHistories, written: Any) -> None:
        """Count what was written; refuse a split that leaves a part without samples."""
        settings, summary, rules = self.settings, self.summary, group.rules
        read = summary.kept_interactions + summary.earlier_interactions
        summary.unseen_earlier = read - written.interactions - summary.unseen_rows
        if settings.fitted is None:  # what stands in rows alone that were not fitted on
            summary.unseen_rows, summary.unseen_earlier = summary.unseen_earlier, 0
        summary.unknown_users = written.unknown_users
        summary.targets = dict(written.positions)
        summary.history_only = summary.kept_interactions - summary.unseen_rows - written.samples
        summary.too_early = written.samples - sum(written.positions.values())
        if rules.feature_values == LATEST:
            summary.outdated = written.outdated, written.positions["train"]
        for mapping in rules.mappings:
            if written.rows[mapping]:
                continue
            if group.split is None and not rules.validates_last and not group.columns.roles:
                continue
            by = f"the split ({split_in_words(rules)})" if group.split else "each user's last"
            without = ""
            if summary.unseen_rows:
                without = (
                    f"; {summary.unseen_rows:,} interactions are left out: their items have no id"
                )
            hint = ""
            if rules.validates_last:
                hint = " `--validation none` leaves out the part that validates."
            raise summary.stopped(
                f"{settings.files}: expected samples in {mapping}, found none: {by} "
                f"leaves it no interaction with enough before it{without}.{hint}",
            )


def _check_types_of_keys(run: _Run) -> None:
    fitted, events = run.settings.fitted, run._events()
    assert fitted is not None
    schema = events.table(events.names[0]).schema
    fitted.check_types_of_keys(
        run.settings.files, dict(zip(schema.names, schema.types, strict=True))
    )


def grow(workflow: nvt.Workflow, log: Dataset) -> None:
    """Fit what grows on more rows: keys, and what is known of items. Numbers stay as they are."""
    nodes = list(iter_nodes([workflow.output_node]))
    for kind in (Categorify, GroupHistories):
        growing = [node for node in nodes if isinstance(node.op, kind)]
        workflow.executor.fit_phase(log, growing)
    workflow.graph.construct_schema(log.schema, preserve_dtypes=True)


@dataclass(frozen=True)
class Events:
    """The kept interactions, a partition for each bucket of users; travels as a path."""

    directory: Path
    names: tuple[str, ...]
    left_out: tuple[str, ...] = ()
    """Columns that no frame has: the workflow does not read them."""
    marks: Path | None = None
    """Files that say of each row whether it is one of these; None for all rows."""

    def table(self, name: str) -> pa.Table:
        """Read one partition."""
        table = read_arrow(self.directory / name)
        if self.marks is not None:
            chosen = np.load(written_by_task(self.marks / f"{name}.npy"))
            table = table.filter(pa.array(chosen))
        return table

    def __call__(self, name: str) -> Any:
        """Read one partition as a frame."""
        return self._frame(self.table(name))

    def _frame(self, table: pa.Table) -> Any:
        names = [name for name in self.left_out if name in table.column_names]
        return frame_from_arrow(table.drop_columns(names))

    def dataset(self) -> Dataset:
        """All of them as a dataset."""
        empty = self._frame(self.table(self.names[0]).slice(0, 0))
        frames = dd.from_map(self, list(self.names), meta=empty, enforce_metadata=False)
        with quiet_merlin():
            return Dataset(frames, cpu=None)


def mark_training(events: Events, group: GroupHistories, marks: Path, name: str) -> int:
    """Say of each row whether it trains and was not fitted on, in a file; returns how many do."""
    chosen = np.asarray(events.table(name)[FITTED]) == 0
    if group.rules.fit_on != ALL_ROWS:
        chosen &= group.trains(events(name))
    with whole_file(marks / f"{name}.npy") as path, open(path, "wb") as file:
        np.save(file, chosen)
    return int(chosen.sum())
