"""From a raw log to a dataset directory: the phases of a run, in order."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...foundation.digest import sha256
from ...foundation.exceptions import MerlinSimError, UnfitNumberError
from ...foundation.progress import Narrator, Silence
from ...foundation.staging import staged_directory
from ...sampling.item_table import COUNT, KEY
from ...schemas.dataset import write_documents
from ...schemas.stored_types import type_in_words
from ...schemas.users_layout import POPULARITY
from ...schemas.users_layout import USERS as USERS_LAYOUT
from ..continuation.earlier_histories import EarlierHistories
from ..continuation.newest_rows import HISTORY
from ..engine.schedulers import Scheduler, SingleProcess
from ..features.fitted_numbers import FittedNumbers
from ..logs.bad_rows import FAIL, POLICIES, BadRows
from ..logs.log_source import LogSource
from ..vocabularies.fit_vocabularies import Train, fit_vocabularies, read_all
from ..vocabularies.vocabulary import CATEGORIES, Vocabularies
from .behaviour_columns import ROLE, BehaviourColumns
from .dataset_spec import users_layout_of, users_spec
from .encode_and_sample import encode_all
from .fitted import FittedWorkflow, write_fitted
from .histories import Histories
from .kept_users import EVENTS, ITEMS, SHOWN, USERS, KeepLongUsers
from .rules import NONE, SPLIT_RULES, SampleRules
from .split import Split
from .summary import Summary
from .user_buckets import BUCKETS, LogDealer, deal_log, first_dealt, number_of_buckets
from .write_samples import write_samples_files
from .write_users import refuse_names_of_positions, user_parts, write_users

WORK = ".work"
EARLIER_BUCKETS = "earlier buckets"
SAMPLES = "samples"
LAYOUTS = (SAMPLES, USERS_LAYOUT)
MOST_BEHAVIOURS = 20
"""That a message names."""
Features = Mapping[str, tuple[pa.Array, pa.Array, str]]
"""By name: items, their values, and the value of items that are not among them."""


class _UnfitInLog(Exception):
    """A row of the log, not one that operators were fitted on, does not fit what they learned."""

    def __init__(self, fitted: FittedNumbers) -> None:
        super().__init__("a number does not fit its operators")
        self.fitted = fitted


@dataclass(frozen=True)
class DatasetBuilder:
    """Builds a dataset directory of a log; see the methods for the phases."""

    source: LogSource
    rules: SampleRules
    scheduler: Scheduler = field(default_factory=SingleProcess)
    narrator: Narrator = field(default_factory=Silence)
    on_bad_rows: str = FAIL
    features: Callable[[], tuple[Features, BadRows]] | None = None
    """Reads item features that do not stand in the log, once the output can be written."""
    layout: str = SAMPLES
    """One row per sample, or one per user: one of ``LAYOUTS``."""
    earlier: EarlierHistories | None = None
    """The histories that the log continues, where it does; a fitted workflow is needed then."""
    parts: Mapping[Path, int] | None = None
    """Whose rows each file of the source has, as a place among the rules' mappings; None where
    files are no split."""

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
        if self.on_bad_rows not in POLICIES:
            raise MerlinSimError(
                f"`on_bad_rows` should be one of {', '.join(POLICIES)}. "
                f"Received: `on_bad_rows` = {self.on_bad_rows!r}."
            )
        self._check_files()
        self._check_negatives()
        self._check_layout()
        self._check_earlier(fitted)
        self._check_growth(fitted, grow)
        split = self._split()
        summary = Summary(
            has_labels=self.columns.label is not None,
            equal_times=self.rules.equal_times,
            is_fitted=fitted is not None,
            continues=self.earlier is not None,
            shortest=self.rules.shortest_sequence_for_user,
        )
        with staged_directory(output, overwrite=overwrite, say=self.narrator.say) as directory:
            work = directory / WORK
            for name in (EVENTS, ITEMS, USERS):
                (work / name).mkdir(parents=True)
            (directory / HISTORY).mkdir()
            given = self._read_features(summary)
            in_log = () if fitted and not grow else self.columns.item_features
            in_log = tuple(name for name in in_log if name not in given)
            in_log += () if fitted and not grow else self.columns.of_items
            buckets = self._deal_out(work, summary, placed=bool(in_log))
            self._look_at_behaviours(summary, anew=fitted is None)
            self._keep_long_users(work, directory / HISTORY, buckets, in_log, summary)
            vocabularies = Vocabularies(directory / CATEGORIES)
            if fitted is not None:
                self._check_types_of_keys(work, fitted)
                shutil.copytree(fitted.vocabularies.directory, vocabularies.directory)
                summary.grown = dict(fitted.sizes) if grow else {}
            if fitted is None or grow:
                numbers = self._fit(work, vocabularies, given, split, fitted, summary)
            else:
                numbers = fitted.numbers
                summary.domains = dict(fitted.sizes)
            if fitted is not None:
                self._count_unseen(work, vocabularies, summary)
            self._refuse_a_single_item(vocabularies, summary)
            try:
                histories = self._encode(work, vocabularies, split, numbers, summary)
            except UnfitNumberError as error:
                raise _UnfitInLog(numbers) from error
            self._choose_positions(histories, split, summary)
            events = None
            if fitted is None and self.columns.features.encodings:
                events = work / "events of keys", numbers
                histories.write_events(events[0], vocabularies)
            self._write(directory, histories, vocabularies, events, summary)
            kept = self._kept_for_next(directory)
            grown_from = fitted if grow else None
            write_fitted(
                directory, self.columns, self.rules, summary.domains, numbers, kept, grown_from
            )
            shutil.rmtree(work)
        return summary

    def _check_files(self) -> None:
        if (self.parts is None) == (self.rules.test_files is None):
            return
        if self.parts is None:
            raise MerlinSimError(
                "The rules have a split by given files, expected its files too (`--test_path`); or "
                "give another split (`--test_users 0` for each user's last interaction)."
            )
        raise MerlinSimError("Files of test are given, expected rules with `test_files` = True.")

    def _check_negatives(self) -> None:
        if self.columns.label is None and not self.rules.twins:
            raise MerlinSimError(
                f"`negatives` = {NONE!r} needs a column of labels (`--label_column`): without one "
                "every row of the log is a positive sample, and none would be negative."
            )

    def _check_earlier(self, fitted: FittedWorkflow | None) -> None:
        if self.earlier is None:
            return
        if fitted is None:
            raise MerlinSimError(
                f"The histories of {self.earlier.directory} go on in its ids: expected a fitted "
                "workflow too (`--fitted`)."
            )
        self.earlier.check(self.rules.kept_for_next, self.source.time_kind())
        self.earlier.size()

    def _check_growth(self, fitted: FittedWorkflow | None, grow: bool) -> None:
        if grow and fitted is None:
            raise MerlinSimError(
                "Vocabularies grow from those of a fitted workflow (`--fitted`). Received: none."
            )
        if grow and self.columns.features.encodings:
            raise MerlinSimError(
                "`encodings` are counts of the log that was fitted on, which do not grow. "
                f"Received: {', '.join(self.columns.features.encoded)} with `grow`. Fit anew, on "
                "both logs."
            )

    def _check_layout(self) -> None:
        if self.layout not in LAYOUTS:
            raise MerlinSimError(
                f"`layout` should be {' or '.join(LAYOUTS)}. Received: `layout` = {self.layout!r}."
            )
        if self.rules.negatives_not_in_history and self.layout != USERS_LAYOUT:
            raise MerlinSimError(
                "`negatives_not_in_history` needs `--layout users`: a row of samples knows a part "
                f"of its user's history. Received: `layout` = {self.layout!r}."
            )
        if self.layout == USERS_LAYOUT:
            self._refuse_what_users_cannot_hold()
            refuse_names_of_positions(self.columns, users_layout_of(self.columns, self.rules))
            if self.rules.pad:
                raise MerlinSimError(
                    "`pad` is of the samples layout: users' histories have no longest length. "
                    f"Received: `pad` = True with `layout` = {self.layout!r}."
                )

    def _refuse_what_users_cannot_hold(self) -> None:
        intervals = self.columns.intervals
        beside = [name for name in self.columns.beside_target if name not in intervals]
        if beside:
            raise MerlinSimError(
                "Numbers, vectors and lists need `--layout samples`: with `--layout users` a "
                "sample is made of ids and time intervals (buckets make ids of a user's and an "
                f"item's numbers). Received: `--features` makes {', '.join(beside)}."
            )
        if self.columns.label is not None:
            raise MerlinSimError(
                f"A column of labels ({self.columns.label!r}) needs `--layout samples`: with "
                "`--layout users` a user's row holds what was taken, not what was shown."
            )
        if self.columns.behaviour is not None:
            raise MerlinSimError(
                f"A column of behaviours ({self.columns.behaviour!r}) needs `--layout samples`: "
                "with `--layout users` all that is in a history is predicted."
            )

        if self.earlier is not None:
            raise MerlinSimError(
                f"To continue histories ({self.earlier.directory}) needs `--layout samples`: with "
                "`--layout users` a user's row holds the whole history."
            )

    def with_features(self, read: Callable[[], tuple[Features, BadRows]]) -> DatasetBuilder:
        """The same, with a reader of item features."""
        return replace(self, features=read)

    def _read_features(self, summary: Summary) -> Features:
        if self.features is None:
            return {}
        given, bad = self.features()
        summary.bad_rows.append(bad)
        return given

    @property
    def columns(self) -> BehaviourColumns:
        """The log's columns."""
        columns = self.source.columns
        return columns if self.earlier is None else replace(columns, continued=True)

    @property
    def _files(self) -> str:
        return ", ".join(map(str, self.source.files))

    def _deal_out(self, work: Path, summary: Summary, placed: bool) -> int:
        more = 0 if self.earlier is None else self.earlier.size()
        buckets = number_of_buckets(self.source.size() + more)
        (work / BUCKETS).mkdir()
        dealer = LogDealer(
            self.source,
            self.columns,
            work / BUCKETS,
            buckets,
            self.on_bad_rows,
            self.parts,
            placed,
        )
        with self.narrator.phase("reading interactions", self.source.size()) as report:
            results = deal_log(dealer, self.scheduler.run, report)
        summary.interactions = sum(result.rows for result in results)
        for result in results:
            summary.behaviours += result.behaviours
        blocks = self.source.blocks()
        bad_rows: dict[Path, BadRows] = {}
        lines: dict[Path, int] = {}
        for result in sorted(results, key=lambda result: result.block):
            path = blocks[result.block].path
            bad = bad_rows.setdefault(path, BadRows(str(path)))
            before = lines.setdefault(path, blocks[result.block].header)
            bad.add(result.bad, before)
            lines[path] = before + result.lines
        summary.bad_rows += bad_rows.values()
        if not summary.interactions:
            raise _stopped(f"{self._files}: expected interactions, found none.", summary)
        if self.earlier is not None:
            self._deal_out_earlier(self.earlier, work, buckets)
        return buckets

    def _deal_out_earlier(self, earlier: EarlierHistories, work: Path, buckets: int) -> None:
        (work / EARLIER_BUCKETS).mkdir()
        example = first_dealt(work / BUCKETS)
        with self.narrator.phase("reading earlier histories", len(earlier.files)) as report:
            times, output = self.source.time_kind(), work / EARLIER_BUCKETS
            for rows in earlier.deal(self.columns, example, times, buckets, output):
                report(1, rows)

    def _look_at_behaviours(self, summary: Summary, anew: bool) -> None:
        """Say what each behaviour is for; refuse those that a log to be fitted on lacks."""
        columns = self.columns
        if columns.behaviour is None:
            return
        for name in summary.behaviours:
            parts = {
                "history": columns.history_behaviours,
                "predicted": columns.target_behaviours,
            }
            played = [part for part, names in parts.items() if not names or name in names]
            if played:
                summary.roles[name] = " and ".join(played)
        named = (*columns.history_behaviours, *columns.target_behaviours)
        missing = [name for name in dict.fromkeys(named) if name not in summary.behaviours]
        if missing and anew:
            known = [name for name, _ in summary.behaviours.most_common(MOST_BEHAVIOURS)]
            more = ", ..." if len(summary.behaviours) > len(known) else ""
            raise _stopped(
                f"{self._files}: column {columns.behaviour!r}: expected the behaviours "
                f"{', '.join(missing)}, found only {', '.join(known)}{more}.",
                summary,
            )

    def _keep_long_users(
        self, work: Path, history: Path, buckets: int, in_log: tuple[str, ...], summary: Summary
    ) -> None:
        keep = KeepLongUsers(
            columns=self.columns,
            shortest=self.rules.shortest_sequence_for_user,
            longest=self.rules.kept_for_next,
            equal_times=self.rules.equal_times,
            buckets=work / BUCKETS,
            earlier=None if self.earlier is None else work / EARLIER_BUCKETS,
            directory=work,
            history=history,
            item_features=in_log,
            parts=self.rules.split.columns if self.rules.split else (),
        )
        with self.narrator.phase("choosing users", buckets) as report:
            for bucket in self.scheduler.run(keep, range(buckets)):
                report(1, bucket.rows)
                summary.kept_interactions += bucket.rows
                summary.repeated += bucket.repeated
                summary.same_time += bucket.same_time
                if self.columns.label is not None and self.columns.behaviour is None:
                    summary.taken = (summary.taken or 0) + bucket.taken
                summary.users += bucket.users
                summary.dropped_users += bucket.dropped_users
                summary.earlier_interactions += bucket.earlier_rows
                summary.late += bucket.late
                if bucket.mixed:
                    raise MerlinSimError(
                        f"{self._files}: expected that a user's interactions of test come after "
                        "those that validate, and these after those that train; found one of user "
                        f"{bucket.mixed} of a later part."
                    )
        if not summary.users:
            raise _stopped(
                f"No user has {self.rules.shortest_sequence_for_user} "
                f"{self.columns.history_in_words} or more "
                f"{self._together}(`shortest_sequence_for_user`): {summary.interactions:,} "
                f"interactions of {summary.dropped_users:,} users were read from {self._files}, "
                "nothing is left.",
                summary,
            )
        shutil.rmtree(work / BUCKETS)
        if self.earlier is not None:
            shutil.rmtree(work / EARLIER_BUCKETS)

    @property
    def _together(self) -> str:
        if self.earlier is None:
            return ""
        return f"in the histories of {self.earlier.directory} and the log together "

    def _check_types_of_keys(self, work: Path, fitted: FittedWorkflow) -> None:
        """Refuse users and items of another type: none would be known."""
        for name, directory in ((self.columns.item, ITEMS), (self.columns.user, USERS)):
            expected = pa.array([fitted.vocabularies.first_key(name)]).type
            received = read_all(work / directory, [KEY])[KEY].type
            if expected != received:
                raise MerlinSimError(
                    f"{self._files}: column {name!r}: expected {type_in_words(expected)}, as the "
                    f"workflow was fitted on, found {type_in_words(received)}."
                )

    def _count_unseen(self, work: Path, vocabularies: Vocabularies, summary: Summary) -> None:
        """Count what the vocabularies do not know."""
        found = read_all(work / ITEMS, [KEY, SHOWN])
        items = found[KEY].combine_chunks()
        known = vocabularies.known(self.columns.item, items.type)
        unseen = np.asarray(pc.is_null(pc.index_in(items, known)))
        summary.unseen_rows = int(np.asarray(found[SHOWN])[unseen].sum())
        summary.unseen_items = pc.count_distinct(items.filter(pa.array(unseen))).as_py()
        if unseen.all():
            raise _stopped(
                f"{self._files}: column {self.columns.item!r}: expected items that the fitted "
                f"workflow knows, found none: {summary.unseen_items:,} others.",
                summary,
            )

    def _kept_for_next(self, directory: Path) -> EarlierHistories:
        files = sorted((directory / HISTORY).iterdir())
        return EarlierHistories(
            directory,
            self.rules.kept_for_next,
            self.source.time_kind(),
            {path.name: sha256(path) for path in files},
        )

    def _fit(
        self,
        work: Path,
        vocabularies: Vocabularies,
        given: Features,
        split: Split | None,
        grown: FittedWorkflow | None,
        summary: Summary,
    ) -> FittedNumbers:
        columns = self.columns

        train = None if split is None else Train(split, columns.user, columns.timestamp)
        before = None if grown is None else grown.numbers
        with self.narrator.phase("fitting vocabularies", 1) as report:
            try:
                summary.unknown, fitted = fit_vocabularies(
                    columns, work, vocabularies, given, train, before
                )
            except MerlinSimError as error:
                raise _stopped(f"{self._files}: {error}", summary) from error
            for name in columns.domains:
                summary.domains[name] = vocabularies.size(name)
            report(1, sum(summary.domains.values()))
        summary.fewer_buckets = fitted.fewer_buckets(columns.features)
        return fitted

    def _refuse_a_single_item(self, vocabularies: Vocabularies, summary: Summary) -> None:
        name = self.columns.item
        counts = vocabularies.items(name).feature(COUNT)[1:]
        drawn = np.flatnonzero(counts if self.rules.drawn_by == POPULARITY else counts + 1)
        if len(drawn) != 1:
            return
        item = vocabularies.keys(name).iloc[drawn[0]]
        raise _stopped(
            f"{self._files}: column {name!r}: expected {self.columns.history_in_words} "
            f"with at least two items, found only {item!r}: a negative history, and a negative "
            "sample that is drawn, needs another one. Is it the column of the items?",
            summary,
        )

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

    def _choose_positions(
        self, histories: Histories, split: Split | None, summary: Summary
    ) -> None:
        histories.choose_positions(self.rules.shortest_sequence_for_training, split)
        if split is None and self.columns.roles != (ROLE,):
            return
        for mapping in self.rules.mappings:
            if not histories.count_samples(mapping, self.rules.twins):
                by = f"the split ({_in_words(self.rules)})" if split else "each user's last"
                raise _stopped(
                    f"{self._files}: expected samples in {mapping}, found none: {by} "
                    "leaves it no interaction with enough before it.",
                    summary,
                )

    def _encode(
        self,
        work: Path,
        vocabularies: Vocabularies,
        split: Split | None,
        numbers: FittedNumbers,
        summary: Summary,
    ) -> Histories:
        encoded = work / "encoded"
        histories = Histories(work / "histories", self.columns)
        with self.narrator.phase("encoding histories", summary.users) as report:
            for rows in encode_all(
                self.columns,
                vocabularies,
                work / EVENTS,
                encoded,
                self.rules.equal_times,
                split,
                self.scheduler,
                numbers if self.columns.features else None,
            ):
                report(rows, rows)
            histories.gather(sorted(encoded.glob("*.arrow")), split)
        read = summary.kept_interactions + summary.earlier_interactions
        summary.unseen_earlier = read - int(histories.offsets[-1]) - summary.unseen_rows
        summary.unknown_users = int((histories.column(self.columns.user) == 0).sum())
        return histories

    def _write(
        self,
        directory: Path,
        histories: Histories,
        vocabularies: Vocabularies,
        events: tuple[Path, FittedNumbers] | None,
        summary: Summary,
    ) -> None:
        if self.layout == USERS_LAYOUT:
            self._write_users(directory, histories, summary)
        else:
            rows = write_samples_files(
                directory,
                histories,
                self.rules,
                vocabularies,
                summary.domains,
                self.scheduler,
                self.narrator,
                self.rules.mappings,
                events,
            )
            summary.rows = rows
        files = directory.glob("*/part.*.parquet")
        summary.bytes = sum(path.stat().st_size for path in files)

    def _write_users(self, directory: Path, histories: Histories, summary: Summary) -> None:
        layout = users_layout_of(self.columns, self.rules)
        items = summary.domains[self.columns.item]
        with self.narrator.phase("writing users", summary.users) as report:
            for users in write_users(histories, layout, items, directory, self.scheduler):
                report(users, users)
        summary.rows = {
            mapping: histories.count_samples(mapping, self.rules.twins)
            for mapping in self.rules.mappings
        }
        files = [part.file for part in user_parts(histories)]
        spec = users_spec(self.columns, summary.domains, self.rules, files)
        write_documents(directory, spec)


def _in_words(rules: SampleRules) -> str:
    given = {name: getattr(rules, name) for name in SPLIT_RULES}
    return ", ".join(f"{name} {value}" for name, value in given.items() if value is not None)


def _stopped(message: str, summary: Summary) -> MerlinSimError:
    """An error that names the rows left out too: they may be the reason."""
    return MerlinSimError("\n".join([message, *summary.left_out()]))
