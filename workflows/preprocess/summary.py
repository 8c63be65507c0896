"""Summary of a run of preprocessing, in numbers and in sentences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from ...foundation.exceptions import MerlinSimError
from ..rules import HASH_ORDER, ITEM_ORDER, LOG_ORDER, UNKNOWN_ORDER, fitted_on_in_words
from ..text_lines import BadRows
from ..times import LogTimes
from .kept_users import FileOrder, KeptBucket
from .settings import Settings, split_in_words, split_of


@dataclass
class Summary:
    """Numbers of what a run read, kept and wrote."""

    settings: Settings
    interactions: int = 0
    kept_interactions: int = 0
    file_order: FileOrder = field(default_factory=FileOrder)
    """Of kept interactions: how many have the time of another one, and what their order says."""
    times: LogTimes | None = None
    """From when to when the log is, and the histories that it continues."""
    taken: int | None = None
    """Kept interactions whose item was taken; None where the log has no labels."""
    behaviours: Counter[str] = field(default_factory=Counter)
    """What was done -> how many of the log's rows say so; none where the log has one behaviour."""
    roles: dict[str, str] = field(default_factory=dict)
    """What a behaviour is for; those without are left out."""
    users: int = 0
    dropped_users: int = 0
    domains: dict[str, int] = field(default_factory=dict)
    unknown: dict[str, int] = field(default_factory=dict)
    """Item features that do not stand in the log -> the items that have no value."""
    grown: dict[str, int] = field(default_factory=dict)
    """How many ids each domain had before, where they grow."""
    fewer_buckets: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Numbers whose values leave fewer buckets than asked for -> how many, of how many."""
    rows: dict[str, int] = field(default_factory=dict)
    bad_rows: list[BadRows] = field(default_factory=list)
    bytes: int = 0
    targets: dict[str, int] = field(default_factory=dict)
    """Mapping -> how many interactions it predicts."""
    history_only: int = 0
    """Kept interactions that have an id and are no sample, whatever stands before them."""
    too_early: int = 0
    """Samples that no mapping has: too little stands before them."""
    validation: str = ""
    """What validates, or why nothing does; empty where the rules ask for nothing."""
    earlier_interactions: int = 0
    """Rows of the earlier histories of users who are kept."""
    late: int = 0
    """Kept interactions that are no later than the newest of these of their user."""
    unseen_rows: int = 0
    """Kept interactions whose item has no id."""
    unseen_items: int = 0
    unseen_earlier: int = 0
    """Rows of the earlier histories whose item has no id."""
    changing_users: Counter[str] = field(default_factory=Counter)
    """By stored column of users, how many have different values in time."""
    outdated: tuple[int, int] | None = None
    """Interactions that train whose user or item got another value later, and all that train; where
    samples have the latest values."""
    unknown_users: int = 0
    """Kept users without an id."""

    @property
    def steady(self) -> tuple[str, ...]:
        """Columns of users that have one value for each user."""
        return tuple(name for name, count in self.changing_users.items() if not count)

    def add_bucket(self, bucket: KeptBucket) -> None:
        """Add what is left of a bucket."""
        columns = self.settings.columns
        self.kept_interactions += bucket.rows
        self.file_order.add(bucket.order)
        if columns.label is not None and columns.behaviour is None:
            self.taken = (self.taken or 0) + bucket.taken
        self.users += bucket.users
        self.dropped_users += bucket.dropped_users
        self.earlier_interactions += bucket.earlier_rows
        self.late += bucket.late
        self.changing_users.update(bucket.changing)

    def stopped(self, message: str) -> MerlinSimError:
        """An error that names the rows left out too: they may be the reason."""
        return MerlinSimError("\n".join([message, *self.left_out()]))

    def refuse_times_that_leave_a_part_empty(self) -> None:
        """Raise a MerlinSimError where no row of the log lies in a part that times make."""
        settings, fitted, times = self.settings, self.settings.fitted, self.times
        split, mappings = split_of(settings.rules, settings.source), settings.rules.mappings
        if split is None or split.test_from is None or times is None:
            return
        first, name = split.validation_from, "validation_from"
        if first is None:
            first, name = split.test_from, "test_from"
        if times.range.first >= float(first):
            mapping, reason = mappings[0], f"of the time of `{name}` or later"
        elif times.range.last < float(split.test_from):
            mapping, reason = mappings[-1], "before `test_from`"
        else:
            return
        kept = ""
        if fitted is not None and settings.rules.split == fitted.rules.split:
            kept = " The split is that of the fitted workflow, which is kept where none is given."
        raise self.stopped(
            f"{settings.files}: expected samples in {mapping}, found none: the split "
            f"({split_in_words(settings.rules)}) leaves it no row: every row of the log is "
            f"{reason} ({times}).{kept} Give a `--test_from` within the log, or `--test_users 0` "
            "for each user's last interaction."
        )

    def left_out(self) -> list[str]:
        """Say of each file which of its rows could not be read."""
        return [bad.describe() for bad in self.bad_rows if bad.count]

    def lines(self) -> list[str]:
        """Report what was read, kept and written, a sentence a line."""
        return [
            *self.left_out(),
            f"{self.interactions:,} interactions read; {self.kept_interactions:,} of "
            f"{self.users:,} users kept, {self.file_order.repeated:,} of them repetitions"
            f"{self._dropped_in_words}",
            *([] if self.times is None else [f"times: {self.times}"]),
            *self._taken_lines(),
            *self._behaviour_lines(),
            *self._time_lines(),
            *self._fitted_lines(),
            *self._target_lines(),
            "ids: " + ", ".join(map(self._ids_of, self.domains)),
            *(
                f"{name}: {count:,} items without one"
                for name, count in self.unknown.items()
                if count
            ),
            *(
                f"{name}: {found:,} buckets of the {asked:,} asked for: a value that is frequent "
                "has one of several alone"
                for name, (found, asked) in self.fewer_buckets.items()
            ),
            *self._outdated_lines(),
            "rows: " + ", ".join(f"{name} {count:,}" for name, count in self.rows.items()),
            f"{self.bytes / max(1, sum(self.rows.values())):.3g} bytes per sample",
        ]

    def _outdated_lines(self) -> Iterator[str]:
        if self.outdated is not None:
            outdated, of = self.outdated
            yield (
                f"feature values: {outdated:,} of {of:,} interactions that train have a value of "
                "their user or item that only a later row of the log gives (`--feature_values "
                "as_of_sample` gives each what was known at its time)"
            )

    def _ids_of(self, name: str) -> str:
        size = self.domains[name]
        if not self.grown:
            return f"{name} {size:,}"
        return f"{name} {size:,} ({size - self.grown[name]:,} of them new)"

    def _taken_lines(self) -> Iterator[str]:
        if self.taken is not None:
            shown = self.kept_interactions - self.taken
            yield (
                f"labels: {self.taken:,} taken (1), {shown:,} shown and not taken (0): "
                f"{self.taken / max(1, self.kept_interactions):.2%} taken"
            )

    def _behaviour_lines(self) -> Iterator[str]:
        counts = [
            f"{name} {count:,} ({self.roles.get(name, 'left out')})"
            for name, count in self.behaviours.most_common()
        ]
        if counts:
            yield "behaviours: " + ", ".join(counts)

    def _fitted_lines(self) -> Iterator[str]:
        settings, rules = self.settings, self.settings.rules
        if settings.fitted is None:
            yield fitted_on_in_words(rules.fit_on)
            if self.unseen_rows:
                yield (
                    f"left out: {self.unseen_rows:,} interactions with items that stand in no row "
                    "that trains; they have no id"
                )
            return
        earlier = ""
        if settings.earlier is not None:
            earlier = f", and {self.unseen_earlier:,} earlier interactions with such"
            yield (
                f"histories go on from {self.earlier_interactions:,} earlier interactions of the "
                f"users kept; {self.late:,} interactions of the log are no later than these of "
                "their user, and stand among them by their time"
            )
        else:
            yield (
                f"histories start in this log: {self.users:,} of "
                f"{self.users + self.dropped_users:,} users have "
                f"{rules.shortest_sequence_for_user} interactions or more in it (`--history` "
                "continues those of an earlier dataset)"
            )
        yield (
            f"left out: {self.unseen_rows:,} interactions with {self.unseen_items:,} items that "
            f"have no id{earlier}; {self.unknown_users:,} of the users kept have none and get id 0"
        )

    @property
    def _dropped_in_words(self) -> str:
        """What of the rows read is not kept, so that the numbers add up."""
        no_part = sum(n for name, n in self.behaviours.items() if name not in self.roles)
        short = self.interactions - self.kept_interactions - no_part
        parts = [f"{short:,} of {self.dropped_users:,} users too short"]
        parts += [f"{no_part:,} of behaviours that play no part"] * bool(no_part)
        return "; left out: " + ", ".join(parts)

    def _target_lines(self) -> Iterator[str]:
        if not self.targets:
            return
        of_each = ", ".join(f"{name} {count:,}" for name, count in self.targets.items())
        alone = [f"{self.history_only:,} are history alone"] * bool(self.history_only)
        if self.too_early:
            least = self.settings.rules.shortest_sequence_for_training
            alone.append(
                f"{self.too_early:,} have fewer than {least} interactions before them and are "
                "history alone"
            )
        yield f"interactions that are predicted: {of_each}" + "".join(f"; {a}" for a in alone)
        if self.validation:
            yield self.validation

    def _time_lines(self) -> Iterator[str]:
        count, order_of = self.file_order.same_time, self.settings.rules.equal_times
        has_labels = self.settings.columns.label is not None
        if not count:
            return
        order = {
            UNKNOWN_ORDER: "a hash orders them",
            HASH_ORDER: "a hash orders them",
            LOG_ORDER: "they stand in the order of the log",
            ITEM_ORDER: "they stand in the order of items",
        }[order_of]
        if has_labels or order_of == UNKNOWN_ORDER:
            seen = "no sample's history holds what has its own time"
        else:
            seen = "samples have those of their own time that stand before them in their history"
        yield f"{count:,} have the time of an earlier one of their user: {order}, and {seen}"
        yield from self.file_order.lines(order_of == LOG_ORDER and not has_labels)
